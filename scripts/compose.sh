#!/bin/bash
# The Compose file without a registry.
#
#   scripts/compose.sh env     writes .env from .env.example, with random passwords, unless there is one
#   scripts/compose.sh check   validates docker-compose.yml
#   scripts/compose.sh image   makes sandyard:dev from the programs in bin/
#   scripts/compose.sh smoke   starts the whole topology with three workers on images made from this machine's packages,
#                              runs a job through its API, and removes everything. Root only: it starts an engine of its
#                              own in a network namespace that has no way out.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "compose: $*"; }
die() { echo "compose: $*" >&2; exit 1; }

compose() {
	if docker compose version >/dev/null 2>&1; then docker compose "$@"; else docker-compose "$@"; fi
}

random() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }

env() {
	[ ! -e .env ] || die ".env is there already"
	umask 077
	sed -e "s/^POSTGRES_PASSWORD=$/&$(random)/" -e "s/^REDIS_PASSWORD=$/&$(random)/" \
		-e "s|^SECRETS_KEY=$|&$(head -c 32 /dev/urandom | base64)|" .env.example >.env
	say "wrote .env, which only $(id -un) can read"
}

# with_settings runs compose with the settings of $1 and no others.
with_settings() {
	local file
	file=$(mktemp)
	echo "$1" >"$file"
	shift
	(unset POSTGRES_PASSWORD REDIS_PASSWORD && compose --env-file "$file" "$@") || { rm "$file"; return 1; }
	rm "$file"
}

# section prints a service's part of the whole configuration.
section() { sed -n "/^  $1:/,/^  [a-z]/p" <<<"$config"; }

check() {
	local said services config number
	for said in "" "POSTGRES_PASSWORD=a" "REDIS_PASSWORD=a" "$(cat .env.example)"; do
		! with_settings "$said" config -q 2>/dev/null || die "it starts without passwords"
	done
	config=$(with_settings $'POSTGRES_PASSWORD=secret-a\nREDIS_PASSWORD=secret-b' config)
	services=$(with_settings $'POSTGRES_PASSWORD=a\nREDIS_PASSWORD=b' config --services | sort | tr '\n' ' ')
	[ "$services" = "api migrate postgres redis scheduler worker " ] || die "unexpected services: $services"
	for said in $services; do
		section "$said" | grep -q 'mem_limit:' || die "$said has no limit of memory"
		section "$said" | grep -q 'pids_limit:' || die "$said has no limit of processes"
		section "$said" | grep -q 'max-size:' || die "the log of $said has no limit"
	done
	for said in postgres redis; do
		! section "$said" | grep -q outside || die "$said is on the network that leads outside"
	done
	grep -A 1 '^  data:' <<<"$config" | grep -q 'internal: true' || grep -A 2 '^  data:' <<<"$config" | grep -q 'internal: true' || die "the network of the data leads outside"
	! section redis | sed -n '/command:/,/environment:/p' | grep -q secret-b || die "the password of Redis is on its command line"
	section worker | grep -q 'NODE_NAME: compose' || die "workers have no NODE_NAME: a drain would not outlive their containers"
	number=$(($(connections api) + $(connections scheduler) + 3 * $(connections worker) + 2 * $(connections migrate)))
	[ "$number" -le 90 ] || die "with three workers there may be $number connections to PostgreSQL, which takes 100"
	say "docker-compose.yml is valid: $services"
}

connections() { section "$1" | sed -nE "s/.*DATABASE_CONNECTIONS: ['\"]?([0-9]+).*/\1/p"; }

image() {
	cp /etc/ssl/certs/ca-certificates.crt bin/ca-certificates.crt
	DOCKER_BUILDKIT=${DOCKER_BUILDKIT:-0} docker build --quiet --network none --target local --tag sandyard:dev . >/dev/null 2>bin/image.log ||
		{ cat bin/image.log >&2; die "docker build ended with an error"; }
	rm bin/image.log
	say "made sandyard:dev from bin/"
}

smoke() {
	[ "$(id -u)" = 0 ] || die "a private engine needs root: run this as root"
	source scripts/compose-engine.sh
	open_engine
	trap close_engine EXIT
	say "private engine $(docker version --format '{{.Server.Version}}') has no network but its own"
	image
	scripts/compose-services.sh
	load_sandbox_image
	export SANDYARD_IMAGE=sandyard:dev POSTGRES_IMAGE=sandyard-local/postgres REDIS_IMAGE=sandyard-local/redis
	export POSTGRES_PASSWORD REDIS_PASSWORD
	POSTGRES_PASSWORD=$(random) REDIS_PASSWORD=$(random)
	export DOCKER_SOCKET=$engine_socket DOCKER_DATA=$engine_home/data COMPOSE_PROJECT_NAME=sandyard-smoke
	in_engine_network scripts/compose-smoke.sh
}

load_sandbox_image() {
	if command env -u DOCKER_HOST docker image inspect sandyard/python:default >/dev/null 2>&1; then
		command env -u DOCKER_HOST docker save sandyard/python:default | docker load --quiet >/dev/null
	else
		images/build.sh
	fi
}

case ${1:-} in
env | check | image | smoke) "$1" ;;
*) die "usage: scripts/compose.sh env|check|image|smoke" ;;
esac
