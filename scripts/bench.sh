#!/bin/bash
# Runs the benchmarks; `make bench` calls it with an engine that answers.
#
#   JSON=file  also writes the results as go test's JSON events     BENCH=regexp  only these (default: all)
set -euo pipefail
cd "$(dirname "$0")/.."

images/build.sh
bench=(go test -run '^$' -bench "${BENCH:-.}" -benchmem -timeout 30m)
if [ -z "${JSON:-}" ]; then
	exec "${bench[@]}" ./...
fi
"${bench[@]}" -json ./... >"$JSON"
echo "bench: results are in $JSON"
