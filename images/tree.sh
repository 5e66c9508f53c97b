#!/bin/bash
# Makes the tree of files that local sandboxes start from, where no engine keeps images: the same content as
# build.sh's image, taken from that where an engine holds it, and else from this machine's Debian packages.
#
#   images/tree.sh [DIR]   DIR is the local provider's data directory, default .sandyard/local
set -euo pipefail
cd "$(dirname "$0")"

name=sandyard/python:default
dir=${1:-../.sandyard/local}

die() { echo "tree: $*" >&2; exit 1; }

# shellcheck source=images/debian.sh
. ./debian.sh

[ "$(id -u)" = 0 ] || die "files of several owners are unpacked: run this as root"
mkdir -p "$dir/images"
images=$(cd "$dir/images" && pwd)
link="$images/sandyard%2Fpython%3Adefault"
this=python-$(recipe)

in_engine() {
	type -P docker >/dev/null && [ "$(docker image inspect -f '{{index .Config.Labels "sandyard.recipe"}}' $name 2>/dev/null)" = "$(recipe)" ]
}

from_engine() {
	local made
	made=$(docker create --network none --log-driver none $name)
	docker export "$made" | tar -x -C "$draft/tree"
	docker rm "$made" >/dev/null
	docker image inspect -f '{{range .Config.Env}}{{println .}}{{end}}' $name | sed '/^$/d' >"$draft/env"
	rm -f "$draft/tree/.dockerenv"
}

from_packages() {
	type -P mmdebstrap >/dev/null || die "mmdebstrap is missing; install it (apt-get install mmdebstrap)"
	debian_tar "$draft/root.tar"
	tar -x -C "$draft/tree" -f "$draft/root.tar"
	rm "$draft"/root.tar*
	printf '%s\n' "${environment[@]}" >"$draft/env"
}

# sweep removes the trees that this one replaces and no sandbox uses: who does holds a lock.
sweep() {
	local old
	for old in "$images"/python-*; do
		[ "$old" = "$images/$this" ] || flock -n -x "$old/tree" rm -rf "$old" || true
	done
}

if [ ! -d "$images/$this/tree" ]; then
	draft=$(mktemp -d "$images/.draft-XXXXXX")
	trap 'rm -rf "$draft"' EXIT
	chmod 755 "$draft"
	mkdir "$draft/tree"
	if in_engine; then from_engine; else from_packages; fi
	# Somebody else may have made the same one just now.
	mv -T "$draft" "$images/$this" 2>/dev/null || [ -d "$images/$this/tree" ]
fi
ln -sfn "$this" "$link.new.$$"
mv -T "$link.new.$$" "$link"
sweep
echo "tree: $name is unpacked in $images/$this"
