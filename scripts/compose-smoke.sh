#!/bin/bash
# Starts docker-compose.yml with three workers on the engine of DOCKER_HOST, and checks that every service becomes healthy,
# that programs run through the API, also after a worker was killed, and that the end leaves no container. compose.sh
# smoke sets the stage: call that.
set -euo pipefail
cd "$(dirname "$0")/.."

base=http://127.0.0.1:8080
patience=120
export POOL_SIZE=2 POOL_MAX=2
export ENGINE_UNSAFE=allow # the engine of the distribution may be old
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
services="postgres redis api worker scheduler"

say() { echo "compose: $*"; }
die() {
	echo "compose: $*" >&2
	cat "$errors" >&2
	compose logs --tail 40 >&2 || true
	exit 1
}

compose() {
	if docker compose version >/dev/null 2>&1; then docker compose "$@"; else docker-compose "$@"; fi
}

health() { compose ps -q $services | xargs docker inspect -f '{{.State.Health.Status}}' | sort | uniq -c | xargs; }

await_healthy() {
	local i
	for ((i = 0; i < patience; i++)); do
		[ "$(health)" != "$1 healthy" ] || return 0
		sleep 1
	done
	die "not healthy within $patience s: $(health)"
}

new_key() {
	compose run --rm --no-deps -T migrate /sandyard key smoke 2>"$errors" | grep -oE 'sy_[A-Za-z0-9_-]+'
}

# run_program runs one Python program in a sandbox and prints what it wrote.
run_program() {
	curl --silent --show-error --fail-with-body --max-time 90 "$base/v1/run" -H "Authorization: Bearer $key" \
		-H 'Content-Type: application/json' -d "{\"argv\": [\"python3\", \"-c\", \"print($1)\"]}"
}

expect() {
	local answer
	answer=$(run_program "$1") || die "run $1: $answer"
	grep -qF "\"stdout\":\"$2\\n\"" <<<"$answer" || die "run $1: expected $2 in: $answer"
}

many() {
	local i pids=()
	for i in $(seq "$1"); do
		expect "$i * $i" "$((i * i))" &
		pids+=($!)
	done
	for i in "${pids[@]}"; do wait "$i" || die "one of $1 runs went wrong"; done
	say "$1 programs ran at once"
}

# waiting is how many pool containers the living workers say they hold; it fails where one does not answer.
waiting() {
	local sum=0 ip n
	for ip in $(compose ps -q worker | xargs docker inspect \
		-f '{{if .State.Running}}{{with index .NetworkSettings.Networks "sandyard-smoke_outside"}}{{.IPAddress}}{{end}}{{end}}'); do
		n=$(curl --silent --fail --max-time 5 "http://$ip:8081/metrics" |
			awk '/^sandyard_pool_waiting[{ ]/ { n += $2; found = 1 } END { if (found) print n }') || return 1
		[ -n "$n" ] || return 1
		sum=$((sum + n))
	done
	echo "$sum"
}

members() { docker ps --all --quiet --filter name=sandyard-pool- | wc -l; }

# await_owners waits until every pool container has a living worker that hands it out, and there are some.
await_owners() {
	local i held there=
	for ((i = 0; i < patience; i++)); do
		held=$(waiting) && there=$(members) || held=
		[ -z "$held" ] || [ "$held" = 0 ] || [ "$held" != "$there" ] || return 0
		sleep 1
	done
	die "$1: after $patience s workers hold ${held:-an unknown number} of ${there:-an unknown number of} pool containers"
}

nodes() { compose run --rm --no-deps -T migrate /sandyard node "$@" 2>"$errors"; }

# await_drained waits until so many living workers are drained.
await_drained() {
	local i
	for ((i = 0; i < patience; i++)); do
		[ "$(nodes list | awk '$4 == "draining"' | wc -l)" != "$1" ] || return 0
		sleep 1
	done
	die "not $1 drained: $(nodes list)"
}

# outlive_containers drains a worker and gives all of them new containers, which have new host names.
outlive_containers() {
	nodes drain "$(nodes list | awk '$4 == "live" { print $1; exit }')" >/dev/null || die "no worker could be drained"
	compose up --detach --no-build --no-deps --force-recreate --scale worker=3 worker >/dev/null 2>"$errors" || die "workers were not made again"
	await_healthy 7
	await_drained 1
	expect '7 * 7' 49
	nodes undrain "$(nodes list | awk '$4 == "draining" { print $1; exit }')" >/dev/null || die "the worker could not be undrained"
	await_drained 0
	say "of three new containers of workers one was drained, as before"
}

# fill_the_disk builds an image whose step writes to a file without a name, which only who sees its processes can count.
fill_the_disk() {
	local answer
	! nodes list | grep -q unknown || die "a worker does not see its engine's disk: $(nodes list)"
	answer=$(curl --silent --show-error --fail-with-body --max-time 120 "$base/v1/templates/filler/builds?wait=100s" -H "Authorization: Bearer $key" \
		-H 'Content-Type: application/json' \
		-d '{"dockerfile": "FROM sandyard/python:default\nRUN exec 3>/big; rm /big; head -c 1500M /dev/zero >&3; sleep 60", "disk_mb": 64}') || die "build: $answer"
	grep -q 'more than the 64 MB' <<<"$answer" || die "a build that fills the disk: $answer"
	say "a build that fills the disk with a file without a name was ended"
}

finish() {
	local left
	compose stop --timeout 60 worker >/dev/null 2>&1
	left=$(docker ps --all --filter label=sandyard.fleet --format '{{.Names}} {{.Status}}')
	[ -z "$left" ] || die "workers have stopped and left: $left"
	compose down --volumes --timeout 60 >/dev/null 2>&1
	left=$(docker ps --all --format '{{.Names}} {{.Status}}')
	[ -z "$left" ] || { echo "compose: containers were left: $left" >&2; return 1; }
	say "everything is stopped and nothing was left"
}

compose up --detach --no-build --scale worker=3 >/dev/null 2>"$errors" || die "docker compose up ended with an error"
await_healthy 7
say "seven containers are healthy, three of them workers"
curl --silent --show-error --fail "$base/readyz" >/dev/null || die "/readyz is not green"
key=$(new_key) || die "no API key could be made"
expect '6 * 7' 42
say "a program ran in a sandbox and its output came back"
many 6
await_owners "three workers run"
docker kill "$(compose ps -q worker | head -n 1)" >/dev/null
many 4
say "that was with one worker killed"
await_owners "one worker was killed"
say "the others removed its pool"
outlive_containers
fill_the_disk
finish
