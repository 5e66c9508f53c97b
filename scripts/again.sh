#!/bin/bash
# Runs go test with flags on packages. Where AGAIN names a file, a test that fails is run again alone once, and the file
# tells how often each failed; more than three that fail are not run again. EVENTS names a file for go test's events.
# What go vet finds make lint finds.
#
#   scripts/again.sh PACKAGES [FLAG...]
set -euo pipefail
packages=$1
shift
set -- -vet=off "$@"
[ -n "${AGAIN:-}" ] || exec go test "$@" "$packages"
exec "$GOTESTSUM" --format=pkgname-and-test-fails --format-icons=text --format-hide-empty-pkg --packages="$packages" \
	--rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-run-root-test --rerun-fails-report="$AGAIN" \
	${EVENTS:+--jsonfile="$EVENTS"} -- "$@"
