#!/bin/bash
# Runs the tests against real PostgreSQL, Redis and Docker, each made for this run; `make test` calls it with an engine
# that answers. A test that fails is run again alone once; if it passes then, the end says `flaky: NAME`. More than three
# that fail are not run again. A test binary that says nothing for five minutes hangs: it is ended with the stacks of its
# goroutines (tests/silence). One that is only slow goes on.
#
#   LONG=1    also the tests that take many seconds, many rows or much memory; these may be silent for 40 minutes
#   RACE=1    with the race detector          STRICT=1  fail where an image cannot be made
#
# Arguments go to go test in place of the defaults. Else one tenant's walk over another's things (tests/attack) and the
# clients of others (tests/e2b) run beside the rest; what they said comes at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

# The images are made beside each other. The large ones are left to who asks for them: make image TEMPLATE=data-science
declare -A making
for template in python base node; do
	TEMPLATE=$template images/build.sh &
	making[$template]=$!
done
# Meanwhile all that the tests need is compiled.
[ $# != 0 ] || [ "${RACE:-0}" = 1 ] || go list -test -export ./... >/dev/null
for template in python base node; do # the tests that need base or node say so where it is missing
	wait "${making[$template]}" || {
		echo "test: no image of template $template could be made" >&2
		[ "${STRICT:-0}" = 0 ] && [ $template != python ] || exit 1
	}
done
[ "$(id -u)" != 0 ] || images/tree.sh # the local provider needs root, and so do its tests

flags=()
[ $# != 0 ] || flags=(-count=1)
if [ "${RACE:-0}" = 1 ]; then
	export CGO_ENABLED=1 # the race detector's C part
	flags+=(-race)
fi
[ $# = 0 ] || exec go test "${flags[@]}" "$@"
# Tests wait for services far more than they compute: more of them at once than there are cores end sooner.
flags+=(-parallel=8)
silence=40m
flags+=(-timeout=40m)
[ "${LONG:-0}" = 1 ] || {
	silence=5m && flags+=(-short)
	export GOGC=200 # those that measure memory closely are the long ones
}

# These wait more than they compute.
again=$(mktemp -d) beside=$(mktemp -d)
(
	echo "test: one tenant walks over all that is another's"
	AGAIN=$again/walk ONLY=foreign-ids scripts/attack.sh
) >"$beside/walk" 2>&1 &
walk=$!
(
	echo "test: the clients of E2B, Daytona and MCP; make e2b runs all of them, and the providers over a vendor's API"
	AGAIN=$again/clients scripts/e2b.sh -run '^Test(Node|Python|Daytona|MCP|ContractsAreHeldTo)$'
) >"$beside/clients" 2>&1 &
clients=$!

events=$(mktemp) watcher=$(mktemp -d)/silence
go build -o "$watcher" ./tests/silence
"$watcher" -after $silence "$events" &
silent=$!
status=0
AGAIN=$again/rest EVENTS=$events scripts/again.sh ./... "${flags[@]}" || status=$?
kill $silent && wait $silent || true
if [ $status != 0 ]; then
	kill $walk $clients 2>/dev/null || true # one may have ended
	exit $status
fi

# failed lists the packages that failed; with -v, those in which a test did not fail but something else.
failed() { grep '"Action":"fail"' "$events" | grep "$@" '"Test":' | sed 's/.*"Package":"\([^"]*\)".*/\1/' | sort -u; }

# Of a package that failed as a whole, for a leak for example, no test was run again. It is run whole.
flaky=$(comm -23 <(failed -v) <(failed -e))
for package in $flaky; do
	echo "test: $package failed as a whole and is run again; it had said:"
	grep -F "\"Package\":\"$package\"" "$events" | grep '"Action":"output"' | grep -v '"Test":' | sed 's/.*"Output":"\(.*\)"}$/\1/; s/\\n$//; s/\\t/\t/g'
	go test "${flags[@]}" -timeout=10m "$package" # nobody watches this one
done

for suite in $walk $clients; do
	wait $suite || status=$?
done
cat "$beside"/*
[ $status = 0 ] || exit $status
find "$again" -type f -exec sed -n '/: 0 runs/d; s/^\([^ :]*\):.*/flaky: \1/p' {} +
[ -z "$flaky" ] || printf 'flaky: %s\n' $flaky
rm -r "$again" "$beside" "$events" "${watcher%/*}"
