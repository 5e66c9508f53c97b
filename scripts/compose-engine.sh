# shellcheck shell=bash
# A Docker engine of one's own, sourced by compose.sh: its networks live in a network namespace without a way out, and
# all it keeps is in a temporary directory.

engine_netns=sandyard-compose-${SANDYARD_ROOM:+${SANDYARD_ROOM##*/}-}$$ # room.sh removes those of a killed run by the name of its directory
engine_home=
engine_pid=
engine_socket=

in_engine_network() { nsenter "--net=/run/netns/$engine_netns" "$@"; }

open_engine() {
	engine_home=$(mktemp -d "${TMPDIR:-/tmp}/sandyard-compose-XXXXXX")
	engine_socket=$engine_home/docker.sock
	ip netns add "$engine_netns"
	in_engine_network ip link set lo up
	nsenter "--net=/run/netns/$engine_netns" dockerd --host "unix://$engine_socket" --bridge=none --iptables=false --ip-forward=false \
		--data-root "$engine_home/data" --exec-root "$engine_home/exec" --pidfile "$engine_home/dockerd.pid" \
		>"$engine_home/log" 2>&1 &
	engine_pid=$!
	export DOCKER_HOST=unix://$engine_socket
	local i
	for ((i = 0; i < 300; i++)); do
		docker version >/dev/null 2>&1 && return
		kill -0 "$engine_pid" 2>/dev/null || break
		sleep 0.1
	done
	tail -n 15 "$engine_home/log" >&2
	close_engine
	return 1
}

close_engine() {
	docker ps -aq 2>/dev/null | xargs -r docker rm -f >/dev/null 2>&1 || true
	kill "$engine_pid" 2>/dev/null || true
	wait "$engine_pid" 2>/dev/null || true
	ip netns delete "$engine_netns"
	umount "$engine_home/data" 2>/dev/null || true # the engine mounts it upon itself
	rm -rf "$engine_home"
}
