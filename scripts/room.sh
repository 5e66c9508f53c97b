#!/bin/bash
# Runs a command in a directory of its own, /tmp/sy-…, that holds whatever the run starts or writes: the engine that
# engine.sh starts, servers, sockets and temporary files. When the command has ended, every process of the run is ended,
# too, and the directory is removed. First it does the same for runs that were killed.
#
#   scripts/room.sh COMMAND...
#
# A process belongs to a run when its environment, its command line or its working directory names the directory, or when it
# is in a control group of the run.
set -uo pipefail

[ -z "${SANDYARD_ROOM:-}" ] || exec "$@" # a part of a run that has one

say() { echo "room: $*" >&2; }

# processes_of lists the processes that name the directory $1.
processes_of() {
	local p text
	for p in /proc/[0-9]*; do
		text=$(cat "$p/environ" "$p/cmdline" 2>/dev/null | tr '\0' '\n')
		[[ $text == *"SANDYARD_ROOM=$1"* || $text == *"$1/"* || $(readlink "$p/cwd" 2>/dev/null) == "$1"* ]] && echo "${p#/proc/}"
	done
}

# groups_of lists the control groups of the run of $1, the inner ones first: those of the containers of its engines, those
# of sandboxes of the local provider, and those that tests named after the directory.
groups_of() {
	local dir names=(-name "*${1##*/}*")
	while read -r dir; do
		names+=(-o -name "*${dir##*/}*")
	done < <(find "$1" -maxdepth 7 -name overlay2 -prune -o -type d \
		\( -path '*/data/containers/*' -o -name 'sb??????????????????????????' \) -print -prune 2>/dev/null)
	find /sys/fs/cgroup -maxdepth 5 -depth -type d \( "${names[@]}" \) 2>/dev/null
}

# end_engine lets an engine that still runs remove its containers itself, which leaves the least behind.
end_engine() {
	local pid
	pid=$(cat "$1/engine/pid" 2>/dev/null) && [[ $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null) == *"$1/engine"* ]] || return 0
	docker -H "unix://$1/engine/docker.sock" ps -aq 2>/dev/null | xargs -r timeout 30 docker -H "unix://$1/engine/docker.sock" rm -f >/dev/null 2>&1
	kill "$pid" && timeout 20 tail --pid="$pid" -f /dev/null
}

# clear_room ends what belongs to the run of $1 and removes the directory.
clear_room() {
	local groups pids namespace i
	groups=$(groups_of "$1")
	end_engine "$1"
	for ((i = 0; i < 50; i++)); do
		pids=$(processes_of "$1"; for group in $groups; do cat "$group/cgroup.procs" 2>/dev/null; done)
		[ -n "$pids" ] || break
		# shellcheck disable=SC2086 # a list of numbers
		kill -9 $pids 2>/dev/null
		sleep 0.1
	done
	for group in $groups; do rmdir "$group" 2>/dev/null; done
	for namespace in /run/netns/*"${1##*/}"*; do [ ! -e "$namespace" ] || ip netns delete "${namespace##*/}"; done
	awk -v room="$1/" 'index($2, room) == 1 {print $2}' /proc/self/mounts | sort -r | while read -r mount; do umount -l "$mount"; done
	rm -rf --one-file-system "$1" /tmp/.sandyard-*/*"${1##*/}"* # and the spools that tests named after it
}

# sweep clears what killed runs have left: a run that lives holds its lock.
sweep() {
	local old
	for old in /tmp/sy-??????; do
		[ -O "$old" ] && [ -e "$old/lock" ] || continue
		(flock -n 8 || exit 0; say "clearing $old, which a run that was killed has left"; clear_room "$old") 8<"$old/lock"
	done
}

sweep
room=$(mktemp -d /tmp/sy-XXXXXX) || exit 1
exec 7>"$room/lock"
flock 7
mkdir "$room/t" && chmod 711 "$room" && chmod 1777 "$room/t"
trap 'clear_room "$room"' EXIT
trap 'exit 130' INT TERM HUP
# What runs in a room asks no container registry (PULL).
PULL=0 SANDYARD_ROOM=$room TMPDIR=$room/t "$@" 7>&-
