#!/bin/bash
# Makes the image sandboxes start from: sandyard/python:<version>, also tagged sandyard/python:default.
#
# Where the registry answers it stands on python:3.12-slim; elsewhere it is made from this machine's Debian packages
# and holds the Python of that release. The labels of the image and the last line printed say which.
#
#   PULL=0    never ask the registry          BASE=name  another base image than python:3.12-slim
#   FORCE=1   rebuild although nothing changed
set -euo pipefail
cd "$(dirname "$0")"

name=sandyard/python
base=${BASE:-python:3.12-slim}

die() { echo "image: $*" >&2; exit 1; }

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

python_of() {
	engine run --rm --network none --log-driver none --attach stdout --entrypoint python3 "$1" \
		-c 'import platform; print(platform.python_version())'
}

# from_registry pulls the base and adds the sandbox's user. A slow or absent registry only costs the wait.
from_registry() {
	[ "${PULL:-1}" != 0 ] || return 1
	echo "image: asking the registry for $base (PULL=0 skips this)"
	timeout 120 $sudo docker pull -q "$base" >/dev/null 2>&1 || return 1
	add_user
}

add_user() {
	local made
	made=$(engine create --network none --log-driver none --user 0:0 "$base" /bin/sh -c '
		grep -q "^sandbox:" /etc/passwd || {
			echo "sandbox:x:1000:1000:sandbox:/workspace:/bin/bash" >>/etc/passwd
			echo "sandbox:x:1000:" >>/etc/group
		}
		mkdir -p /workspace && chown 1000:1000 /workspace')
	engine start --attach "$made" >/dev/null
	engine commit -c 'WORKDIR /workspace' -c 'USER 1000:1000' -c 'CMD ["python3"]' \
		-c 'ENV HOME=/workspace LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1' "$made" "$name:building" >/dev/null
	engine rm -f "$made" >/dev/null
	origin=$base
}

from_packages() {
	type -P mmdebstrap >/dev/null ||
		die "the registry does not answer and mmdebstrap is missing; install it (apt-get install mmdebstrap) or run where $base can be pulled"
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	chmod 755 "$work"
	debian_tar "$work/root.tar"
	engine import -c 'WORKDIR /workspace' -c 'USER 1000:1000' -c 'CMD ["python3"]' -c "ENV ${environment[*]}" \
		- "$name:building" <"$work/root.tar" >/dev/null
	origin="debian $(debian_suite) packages"
}

# seal writes into the labels what the image really holds, as found by running it.
seal() {
	local version=$1 made old
	old=$(engine image inspect -f '{{.Id}}' "$name:default" 2>/dev/null || true)
	made=$(engine create --network none "$name:building")
	engine commit -c "LABEL sandyard.python=\"$version\" sandyard.origin=\"$origin\" sandyard.recipe=\"$(recipe)\"" \
		"$made" "$name:$version" >/dev/null
	engine rm "$made" >/dev/null
	engine tag "$name:$version" "$name:default"
	engine rmi "$name:building" >/dev/null
	# The one it replaces stays only while a sandbox still uses it.
	[ -z "$old" ] || engine rmi "$old" >/dev/null 2>&1 || true
}

say() { echo "image: $name:default holds Python $(label "$name:default" sandyard.python), made from $(label "$name:default" sandyard.origin)"; }

find_docker
if [ "${FORCE:-0}" != 1 ] && [ "$(label "$name:default" sandyard.recipe)" = "$(recipe)" ]; then
	say
	exit 0
fi
from_registry || from_packages
seal "$(python_of "$name:building")"
say
