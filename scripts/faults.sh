#!/bin/bash
# Plays a run of each kind of job with one call after the other failing; `make faults` calls it with a seed, the name of one
# fault and whether connections also fall silent, each of which may be empty.
set -euo pipefail
cd "$(dirname "$0")/.."

args=()
[ -z "$1" ] || args+=("-faults.seed=$1")
[ -z "$2" ] || args+=("-faults.only=$2")
[ -z "$3" ] || args+=(-faults.hang)
[ -n "$1$2" ] || args+=(-faults.all)
export CGO_ENABLED=1 # the race detector's C part
exec go test -race -count=1 -v -timeout=12h -parallel=8 -run '^TestEveryCallMayFail$' ./jobs/faults -args "${args[@]}"
