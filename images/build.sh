#!/bin/bash
# Makes the image that a template's sandboxes start from: sandyard/TEMPLATE:<version>, also tagged sandyard/TEMPLATE:default.
#
# Where the registry answers, python, node and base stand on their official images; elsewhere, and the others always, are
# made from this machine's Debian packages and hold the versions of that release. The labels of the image and the last line
# printed say which.
#
#   TEMPLATE=name   base, python (the default), node, data-science (or python-data-science, the same), browser,
#                   code-server, claude-code, codex, cloud or all-in-one
#   PULL=0    never ask the registry          BASE=name  another base image than the official one
#   FORCE=1   rebuild although nothing changed
set -euo pipefail
cd "$(dirname "$0")"

template=${TEMPLATE:-python}
[ "$template" != python-data-science ] || template=data-science
name=sandyard/$template

die() { echo "image: $*" >&2; exit 1; }

case $template in
python) base=${BASE:-python:3.12-slim} command=python3 ;;
node) base=${BASE:-node:22-slim} command=node ;;
base) base=${BASE:-debian:12-slim} command=bash ;;
browser) base=${BASE:-} command=chromium ;;
code-server | codex) base=${BASE:-} command=$template ;;
claude-code) base=${BASE:-} command=claude ;;
cloud) base=${BASE:-} command=aws ;;
*) base=${BASE:-} command=python3 ;;
esac

# shellcheck source=images/debian.sh
. ./debian.sh

engine() { $sudo docker "$@"; }

find_docker() {
	sudo=
	type -P docker >/dev/null || die "docker is missing; install it (Debian: apt-get install docker.io)"
	docker version >/dev/null 2>&1 && return
	sudo="sudo -n"
	engine version >/dev/null 2>&1 || die "no Docker engine answers; start it (dockerd) or set DOCKER_HOST"
}

label() { engine image inspect -f "{{index .Config.Labels \"$2\"}}" "$1" 2>/dev/null; }

# version_of runs what the image is for. code-server logs before it answers.
version_of() {
	local found
	found=$(engine run --rm --network none --log-driver none --attach stdout --entrypoint "$command" "$1" --version | awk '!/^\[/ && !seen++')
	sed -E 's/^[^0-9]*([0-9][0-9.]*).*/\1/' <<<"$found"
}

# from_registry pulls the base and adds the sandbox's user. A slow or absent registry only costs the wait.
from_registry() {
	[ "${PULL:-1}" != 0 ] && [ -n "$base" ] || return 1
	echo "image: asking the registry for $base (PULL=0 skips this)"
	timeout 120 $sudo docker pull -q "$base" >/dev/null 2>&1 || return 1
	add_user
}

# add_user also installs the small tools that the image made from packages has, where Debian's mirror can be reached.
add_user() {
	local made path
	path=$(engine image inspect -f '{{range .Config.Env}}{{println .}}{{end}}' "$base" | sed -n 's/^PATH=//p')
	made=$(engine create --log-driver none --user 0:0 "$base" /bin/sh -c '
		grep -q "^sandbox:" /etc/passwd || {
			echo "sandbox:x:1000:1000:sandbox:/workspace:/bin/bash" >>/etc/passwd
			echo "sandbox:x:1000:" >>/etc/group
		}
		mkdir -p /workspace /etc/profile.d && chown 1000:1000 /workspace
		rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
		echo "PATH=\"\$HOME/.local/bin:\$PATH\"" >/etc/profile.d/sandyard.sh
		timeout 100 sh -c "apt-get -qq update && apt-get -qq install --no-install-recommends --yes $1" >/dev/null 2>&1 ||
			echo "image: without $1: no mirror of Debian answers" >&2
		rm -rf /var/lib/apt/lists/*' sh "${tools//,/ } ca-certificates curl git")
	engine start --attach "$made" >/dev/null
	engine commit -c 'WORKDIR /workspace' -c 'USER 1000:1000' -c 'CMD ["'"$command"'"]' \
		-c "ENV PATH=/workspace/.local/bin:${path:-/usr/local/bin:/usr/bin:/bin} HOME=/workspace LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1" \
		"$made" "$name:building" >/dev/null
	engine rm -f "$made" >/dev/null
	origin=$base
}

from_packages() {
	type -P mmdebstrap >/dev/null ||
		die "no registry answers and mmdebstrap is missing; install it (apt-get install mmdebstrap) or run where ${base:-a base image} can be pulled"
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	chmod 755 "$work"
	debian_tar "$work/root.tar"
	engine import -c 'WORKDIR /workspace' -c 'USER 1000:1000' -c 'CMD ["'"$command"'"]' -c "ENV ${environment[*]}" \
		- "$name:building" <"$work/root.tar" >/dev/null
	origin="debian $(debian_suite) packages"
}

# seal writes into the labels what the image really holds, as found by running it.
seal() {
	local version=$1 made old
	old=$(engine image inspect -f '{{.Id}}' "$name:default" 2>/dev/null || true)
	made=$(engine create --network none "$name:building")
	engine commit -c "LABEL sandyard.version=\"$version\" sandyard.$command=\"$version\" sandyard.origin=\"$origin\" sandyard.recipe=\"$(recipe)\"" \
		"$made" "$name:$version" >/dev/null
	engine rm "$made" >/dev/null
	engine tag "$name:$version" "$name:default"
	engine rmi "$name:building" >/dev/null
	# The one it replaces stays only while a sandbox still uses it.
	[ -z "$old" ] || engine rmi "$old" >/dev/null 2>&1 || true
}

say() { echo "image: $name:default holds $command $(label "$name:default" sandyard.version), made from $(label "$name:default" sandyard.origin)"; }

find_docker
if [ "${FORCE:-0}" != 1 ] && [ "$(label "$name:default" sandyard.recipe)" = "$(recipe)" ]; then
	say
	exit 0
fi
from_registry || from_packages
seal "$(version_of "$name:building")"
say
