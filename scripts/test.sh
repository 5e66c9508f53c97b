#!/bin/bash
# Runs every test with the race detector against real PostgreSQL, Redis and Docker, each made for this run; `make test`
# calls it with an engine that answers. Arguments go to go test in place of the defaults.
set -euo pipefail
cd "$(dirname "$0")/.."

images/build.sh
[ "$(id -u)" != 0 ] || images/tree.sh # the local provider needs root, and so do its tests
[ $# -gt 0 ] || set -- -timeout=20m ./...
export CGO_ENABLED=1 # the race detector's C part
exec go test -race "$@"
