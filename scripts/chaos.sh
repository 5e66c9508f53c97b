#!/bin/bash
# The soak of tests/chaos: a whole installation under load and under faults that follow from a seed, which is printed.
# Arguments go to the test in addition.
set -euo pipefail
cd "$(dirname "$0")/.."

[ "$(id -u)" = 0 ] || { echo "chaos: it starts a Docker engine of its own to restart it, or local sandboxes: run this as root" >&2; exit 1; }
case ${PROVIDER:=docker} in
docker) images/build.sh ;;
local) images/tree.sh ;;
*) echo "chaos: PROVIDER is docker or local" >&2; exit 1 ;;
esac
exec go test -tags chaos -v -count=1 -timeout=0 -run "${RUN:-TestChaos\$}" ./tests/chaos -args \
	-seed="${SEED:-0}" -length="${LENGTH:-2m}" -provider="$PROVIDER" "$@"
