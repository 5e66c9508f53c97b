#!/bin/bash
# Runs the benchmarks, each beside its baseline, and prints a table of them; `make bench` calls it with an engine that
# answers.
#
#   JSON=file  also writes the table as a JSON array     BENCH=regexp  only these (default: all)
set -euo pipefail
cd "$(dirname "$0")/.."

images/build.sh
[ "$(id -u)" != 0 ] || images/tree.sh
go test -run '^$' -bench "${BENCH:-.}" -benchtime 1x -timeout 20m ./jobs ./providers/docker ./providers/local ./web |
	go run ./tests/benchtable ${JSON:+-json "$JSON"}
