#!/bin/bash
# Shows what .ci/run withstands, each time in clean clones of HEAD; `make gate-proof STEP=…` calls it.
#
#   kill   a gate is killed in the middle of its tests, with its whole process tree and its engine; then one is green
#   load   RUNS (2) gates one after the other are green while two busy loops run
#   pair   two gates at once are green
#
# Afterwards nothing of the gates may be left: no directory, no mount, no process, no control group. Root only.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

say() { echo "gate-proof: $*"; }
die() { say "$*"; exit 1; }

[ "$(id -u)" = 0 ] || die "the gate starts an engine: run this as root"
yard=$(mktemp -d /tmp/gate-proof-XXXXXX)
loops=()
trap 'kill "${loops[@]}" 2>/dev/null; rm -rf "$yard"' EXIT

clone() { git clone -q --no-local . "$yard/$1" || die "cannot clone"; }

# gate runs a gate in clone $1 and says how it ended.
gate() {
	local start=$SECONDS status=0
	bash "$yard/$1/.ci/run" >"$yard/$1.log" 2>&1 </dev/null || status=$?
	say "$1: $([ $status = 0 ] && echo green || echo RED) after $((SECONDS - start)) s$(sed -n 's/^flaky: /, flaky: /p' "$yard/$1.log" | tr -d '\n')"
	[ $status = 0 ] || { grep -nE '^(=== FAIL|--- FAIL|FAIL|panic:)|not within' "$yard/$1.log" | head -n 20; tail -n 20 "$yard/$1.log"; }
	return $status
}

# tree lists the process $1 and all below it.
tree() {
	local child
	echo "$1"
	for child in $(pgrep -P "$1"); do tree "$child"; done
}

# others lists the directories of runs that live and are none of our gates'.
others() {
	local p lock
	for p in /proc/[0-9]*; do
		lock=$(readlink "$p/fd/7" 2>/dev/null) && [[ $lock == /tmp/sy-*/lock && $(readlink "$p/cwd") != "$yard"/* ]] && echo "${lock%/lock}"
	done
}

# group_list lists the control groups that commands, containers and sandboxes have.
group_list() {
	find /sys/fs/cgroup -maxdepth 5 -type d \( -path '*/docker/*' -o -name '*spool-*' -o -name 'sandyard-*' \) 2>/dev/null | sort
}

residue() {
	local left foreign
	foreign=$(others)
	left=$(ls -d /tmp/sy-?????? 2>/dev/null; grep -o ' /tmp/sy-[^ ]*' /proc/self/mounts; pgrep -af '/tmp/sy-[A-Za-z0-9]{6}')
	foreign+=$'\n'$(others)
	left=$(grep -vF -f <(sed '/^$/d' <<<"$foreign") <<<"$left")
	[ -z "$left" ] || die "left behind: $left"
	if [[ $foreign == *[![:space:]]* ]]; then
		say "control groups were not compared: other runs are on this machine"
	else
		left=$(comm -13 <(echo "$groups_before") <(group_list))
		[ -z "$left" ] || die "left behind: $left"
	fi
	say "nothing is left behind"
}

kill_step() {
	clone killed
	setsid bash "$yard/killed/.ci/run" >"$yard/killed.log" 2>&1 </dev/null &
	local gate=$! i
	for ((i = 0; i < 12000; i++)); do
		[ "$(grep -cE '^(PASS|ok) ' "$yard/killed.log")" -lt 12 ] || break
		kill -0 $gate 2>/dev/null || die "the gate ended before it could be killed: $(tail -n 5 "$yard/killed.log")"
		sleep 0.1
	done
	say "killing the gate with $(tree $gate | wc -l) processes, $(pgrep -cf 'dockerd .*/tmp/sy-') of them an engine"
	# shellcheck disable=SC2046 # a list of numbers
	kill -9 $(tree $gate) 2>/dev/null
	wait $gate 2>/dev/null
	say "left by it: $(ls -d /tmp/sy-?????? 2>/dev/null | tr '\n' ' ')"
	clone after
	gate after
}

load_step() {
	local i status=0
	for i in 1 2; do
		(while :; do :; done) &
		loops+=($!)
	done
	for ((i = 1; i <= ${RUNS:-2}; i++)); do
		clone "loaded-$i"
		gate "loaded-$i" || status=1
		rm -rf "$yard/loaded-$i"
	done
	kill "${loops[@]}"
	return $status
}

pair_step() {
	local first
	clone one
	clone two
	gate one &
	first=$!
	gate two || { wait $first; return 1; }
	wait $first
}

groups_before=$(group_list)
case ${STEP:-} in
kill | load | pair) "${STEP}_step" || die "$STEP failed" ;;
*) die "STEP is kill, load or pair" ;;
esac
residue
