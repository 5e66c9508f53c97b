#!/bin/bash
# Runs the tests against real PostgreSQL, Redis and Docker, each made for this run; `make test` calls it with an engine
# that answers. Arguments go to go test in place of the defaults. RACE=1: with the race detector. STRICT=1: fail where an
# image cannot be made.
set -euo pipefail
cd "$(dirname "$0")/.."

images/build.sh
# data-science, browser and code-server, large ones, are left to who asks for them: make image TEMPLATE=data-science
for template in base node; do # the tests that need one say so where it is missing
	TEMPLATE=$template images/build.sh || {
		echo "test: no image of template $template could be made" >&2
		[ "${STRICT:-0}" = 0 ] || exit 1
	}
done
[ "$(id -u)" != 0 ] || images/tree.sh # the local provider needs root, and so do its tests
[ $# -gt 0 ] || set -- -timeout=20m ./...
if [ "${RACE:-0}" = 1 ]; then
	export CGO_ENABLED=1 # the race detector's C part
	set -- -race "$@"
fi
exec go test "$@"
