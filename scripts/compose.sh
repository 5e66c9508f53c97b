#!/bin/bash
# The Compose file without a registry.
#
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

check() {
	compose config -q
	local services
	services=$(compose config --services | sort | tr '\n' ' ')
	[ "$services" = "api migrate postgres redis scheduler worker " ] || die "unexpected services: $services"
	compose config | sed -n '/^  worker:/,/^  [a-z]/p' | grep -q 'NODE_NAME: compose' || die "workers have no NODE_NAME: a drain would not outlive their containers"
	say "docker-compose.yml is valid: $services"
}

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
	export DOCKER_SOCKET=$engine_socket COMPOSE_PROJECT_NAME=sandyard-smoke
	in_engine_network scripts/compose-smoke.sh
}

load_sandbox_image() {
	if env -u DOCKER_HOST docker image inspect sandyard/python:default >/dev/null 2>&1; then
		env -u DOCKER_HOST docker save sandyard/python:default | docker load --quiet >/dev/null
	else
		images/build.sh
	fi
}

case ${1:-} in
check | image | smoke) "$1" ;;
*) die "usage: scripts/compose.sh check|image|smoke" ;;
esac
