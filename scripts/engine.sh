#!/bin/bash
# Runs a command with a Docker engine that answers.
#
#   scripts/engine.sh [--or OTHER] COMMAND...
#
# An engine that answers, DOCKER_HOST's or the system's, is used as it is. Otherwise root gets one: the system's service
# where systemd runs, else a dockerd of our own. That of a run of tests (room.sh) stands in the directory of the run and ends
# with it; any other ends with the last command that uses it. It has no bridge and touches no firewall, as sandboxes have no
# network. Where there can be none, it runs OTHER instead, split at blanks.
set -euo pipefail

log=.sandyard/dockerd.log
lock=/run/sandyard-engine.lock
seconds_to_start=60

say() { echo "engine: $*" >&2; }
die() { say "$*"; exit 1; }

answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

explain() {
	[ -z "${DOCKER_HOST:-}" ] || die "no Docker engine answers at DOCKER_HOST=$DOCKER_HOST; start it, or unset DOCKER_HOST"
	[ "$(id -u)" != 0 ] || return 0
	if [ -S /var/run/docker.sock ] && [ ! -w /var/run/docker.sock ]; then
		die "user $(id -un) may not use the Docker engine; run as root: usermod -aG docker $(id -un)
engine: then log in again, or run this command as root"
	fi
	die "no Docker engine answers; as root run: systemctl start docker (or: dockerd), or run this command as root"
}

await() {
	local i
	for ((i = 0; i < seconds_to_start * 10; i++)); do
		answers && return
		[ -z "${1:-}" ] || kill -0 "$1" 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}

with_systemd() { [ -d /run/systemd/system ] && systemctl cat docker.service >/dev/null 2>&1; }

# A bare container may come without mounted control groups, which the engine does not mount itself.
mount_cgroups() {
	[ -z "$(ls -A /sys/fs/cgroup 2>/dev/null)" ] || return 0
	mount -t cgroup2 cgroup2 /sys/fs/cgroup && say "mounted /sys/fs/cgroup"
}

start() {
	if with_systemd; then
		systemctl start docker && await && say "started the system's docker service" && return
		die "the system's docker service does not start: see journalctl -u docker"
	fi
	mount_cgroups || die "no control groups here, which an engine needs: run in a privileged container or on a host"
	mkdir -p "$(dirname "$log")"
	setsid "$0" --keep </dev/null >>"$log" 2>&1 8>&- 9>&- &
	if ! await $!; then
		tail -n 15 "$log" >&2
		die "dockerd does not start; its last output is above, the rest is in $log"
	fi
	say "started dockerd without a bridge (log in $log); it ends with the last command that uses it"
}

# begin_in_room starts the engine of this run, unless it runs already.
begin_in_room() {
	local dir=$SANDYARD_ROOM/engine
	mount_cgroups || die "no control groups here, which an engine needs: run in a privileged container or on a host"
	exec 8>>"$dir.lock"
	flock -x 8
	export DOCKER_HOST=unix://$dir/docker.sock
	if ! answers; then
		mkdir -p "$dir"
		setsid dockerd --host "$DOCKER_HOST" --bridge=none --iptables=false --ip-forward=false --pidfile "$dir/pid" \
			--data-root "$dir/data" --exec-root "$dir/exec" </dev/null >>"$dir/log" 2>&1 8>&- 9>&- &
		await $! || { tail -n 15 "$dir/log" >&2; die "dockerd does not start; its last output is above"; }
		say "started dockerd without a bridge in $dir"
	fi
	exec 8>&-
}

# begin starts an engine, unless another command was just about to.
begin() {
	explain
	type -P dockerd >/dev/null || die "no Docker engine answers and dockerd is missing: run make setup"
	exec 8>>"$lock.start"
	flock -x 8
	answers || start
	exec 8>&-
}

# keep is the engine's parent: it waits for all holders of the shared lock to be gone, and ends the engine.
keep() {
	dockerd --bridge=none --iptables=false &
	local daemon=$!
	exec 9>>"$lock"
	flock -x 9 &
	wait -n
	# Somebody's containers mean that the engine is in use beyond our commands.
	if kill -0 $daemon 2>/dev/null && [ -n "$(docker ps -q)" ]; then
		say "containers are running: the engine stays"
		return
	fi
	kill $(jobs -p) 2>/dev/null || true
	wait
}

# hold takes the shared lock on file 9, for the command to inherit. It waits for an engine that is just ending.
hold() {
	[ "$(id -u)" = 0 ] || return 0
	exec 9>>"$lock"
	flock -s 9
}

if [ "${1:-}" = --keep ]; then
	keep
	exit
fi
other=
if [ "${1:-}" = --or ]; then
	other=$2
	shift 2
fi

reach() {
	type -P docker >/dev/null || die "the docker command is missing: run make setup"
	answers && return
	if [ -n "${SANDYARD_ROOM:-}" ] && [ "$(id -u)" = 0 ] && type -P dockerd >/dev/null && ! with_systemd; then
		begin_in_room
	else
		begin
	fi
}

hold
if [ -z "$other" ] || [ -n "${DOCKER_HOST:-}" ]; then
	reach
elif ! (reach); then
	exec 9>&-
	# shellcheck disable=SC2086 # a program with its arguments
	exec $other
fi
exec "$@"
