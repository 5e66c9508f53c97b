#!/bin/bash
# Fuzzes each target of the repository in its turn, for as long as `make fuzz` says, or one of them. What is found is kept
# under the package's testdata/fuzz, and `make test` tries it from then on.
# An input that is new is made smaller by few attempts: by default that takes up to a minute each, in which nothing else is tried.
set -euo pipefail
cd "$(dirname "$0")/.."

found=0
while IFS=: read -r file name; do
	[ -z "$2" ] || [ "$2" = "$name" ] || continue
	found=1
	echo "$name in $(dirname "$file")"
	go test -run '^$' -fuzz "^$name\$" -fuzztime "$1" -fuzzminimizetime 100x "./$(dirname "$file")"
done < <(grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z]*' . | sed 's|^\./||; s|:func |:|' | sort)
[ "$found" = 1 ] || { echo "there is no target $2" >&2; exit 1; }
