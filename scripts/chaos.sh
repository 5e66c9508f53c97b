#!/bin/bash
# The soak of tests/chaos: a whole installation under load and under faults that follow from a seed, which is printed.
# Arguments go to the test in addition.
set -euo pipefail
cd "$(dirname "$0")/.."

[ "$(id -u)" = 0 ] || { echo "chaos: it starts a Docker engine of its own to restart it: run this as root" >&2; exit 1; }
images/build.sh
exec go test -tags chaos -v -count=1 -timeout=0 -run "${RUN:-TestChaos\$}" ./tests/chaos -args \
	-seed="${SEED:-0}" -length="${LENGTH:-2m}" "$@"
