#!/bin/bash
# What the code-server template has beside its Debian packages ($1 = the root): code-server and the Node.js it is for,
# from npm, all of it pinned by hashes: package-lock.json here names code-server's package, and that holds the locks of
# the editor in it. No package's own script may download anything: what they would have done is done here.
set -euo pipefail
root=$1
here=$(cd "$(dirname "$0")" && pwd)
app=$root/opt/code-server
work=$root/tmp/build

# shellcheck source=images/fetch.sh
. "$here/../fetch.sh"

die() { echo "code-server: $*" >&2; exit 1; }

for program in g++ make krb5-config; do
	type -P "$program" >/dev/null || die "$program is missing; install what native modules are compiled with (apt-get install g++ make libkrb5-dev)"
done
mkdir "$work" && trap 'rm -rf "$work"' EXIT

install_app() {
	install -D -m 644 -t "$app" "$here/package.json" "$here/package-lock.json"
	install_locked "$app"
	runtime=$(echo "$app"/node_modules/node-linux-*)
	PATH=$runtime/bin:$PATH # which is what it runs on
	server=$app/node_modules/code-server
	install_locked "$server/lib/vscode"
	install_locked "$server/lib/vscode/extensions"
	node "$server/lib/vscode/extensions/postinstall.mjs" >/dev/null
}

# compile builds what is published as source alone, with the headers of the runtime.
compile() {
	local modules=$server/lib/vscode/node_modules native=(@vscode/native-watchdog @vscode/spdlog kerberos node-pty)
	(cd "$server/lib/vscode" && npm_config_nodedir=$runtime npm_config_build_from_source=true MAKEFLAGS=-j"$(nproc)" \
		node "$npm" rebuild --loglevel=error "${native[@]}")
	local module
	for module in "${native[@]}"; do
		rm -rf "$modules/$module"/{deps,build/{deps,Release/{obj.target,.deps}}}
		find "$modules/$module/build" -type f ! -name '*.node' -delete
	done
	rm -rf "$runtime"/{include,share}
	# Its own would be downloaded.
	install -d "$modules/@vscode/ripgrep/bin"
	ln -s /usr/bin/rg "$modules/@vscode/ripgrep/bin/rg"
}

# finish is what is left of the editor's own installation script.
finish() {
	ln -s node_modules "$server/lib/vscode/node_modules.asar"
	ln -s code-linux.sh "$server/lib/vscode/bin/remote-cli/code-server"
	ln -s browser-linux.sh "$server/lib/vscode/bin/helpers/browser.sh"
	ln -s "${runtime#"$root"}/bin/node" "$server/lib/node"
	chmod 755 "$server/out/node/entry.js"
	# The workbench's own switch, which its pages follow: the server's option holds for the server alone.
	sed -i 's/"enableTelemetry": true/"enableTelemetry": false/' "$server/lib/vscode/product.json"
	# No chat without a model; terminals do not get what keeps the editor's own files out of the workspace. Only an
	# extension can have defaults that a user's settings override.
	install -D -m 644 "$here/defaults.json" "$server/lib/vscode/extensions/sandyard-defaults/package.json"
	install -d "$root/usr/local/bin"
	ln -s "${runtime#"$root"}/bin/node" "$root/usr/local/bin/node"
	printf '#!/bin/sh\nexec %s %s "$@"\n' "${runtime#"$root"}/bin/node" "${server#"$root"}/out/node/entry.js" >"$root/usr/local/bin/code-server"
	chmod 755 "$root/usr/local/bin/code-server"
}

get_npm "$here/requirements.txt"
install_app
compile
finish
find "$app" -name '*.map' -delete
