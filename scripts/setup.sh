#!/bin/bash
# Finds what this machine lacks and installs it from Debian's packages, as root or through sudo; where it may not, it
# prints the command and ends with 1. Nothing is asked of the network when nothing is missing.
#
#   scripts/setup.sh          what `make run` needs
#   scripts/setup.sh test     and what the tests, E2B's clients among them, and the linters need
#   scripts/setup.sh compose  and what `make compose-check` and `make compose-smoke` need
#   scripts/setup.sh browser  and what the recipe of that template needs; so for the other templates that have one
set -euo pipefail

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }

has() { type -P "$1" >/dev/null; }
has_postgres() { has postgres || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; }
has_image() { docker image inspect sandyard/python:default >/dev/null 2>&1; }
# The command alone proves nothing: many machines have the client and no engine.
engine_answers() { has docker && docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
# A race-detecting build needs a C compiler and the C library's headers.
has_cgo() { has gcc && [ -e /usr/include/stdlib.h ]; }

missing() {
	[ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
	has_postgres || echo postgresql
	has redis-server || echo redis-server
	[ "${SANDBOX_PROVIDER:-}" = local ] || engine_answers || { has dockerd && has docker; } || echo docker.io
	has_image || has mmdebstrap || echo mmdebstrap
	case ${1:-run} in
	test)
		has_cgo || echo gcc libc6-dev
		has runsc || echo runsc
		has_venv || echo python3 python3-venv
		has ip || echo iproute2
		;;
	browser | claude-code | codex | cloud) has_for_recipe || echo mmdebstrap python3-pip ;;
	code-server | all-in-one) { has_for_recipe && has_for_modules; } || echo mmdebstrap python3-pip g++ make libkrb5-dev ;;
	compose)
		has ip || echo iproute2
		has iptables || echo iptables
		has curl || echo curl
		has_compose || echo docker-compose
		;;
	esac
}

# Some recipes take packages from elsewhere than Debian, and compile some of them.
has_for_recipe() { has mmdebstrap && has python3 && python3 -m pip --version >/dev/null 2>&1; }
has_for_modules() { has g++ && has make && has krb5-config; }
has_venv() { has python3 && python3 -c 'import ensurepip, venv' 2>/dev/null; }
has_compose() { docker compose version >/dev/null 2>&1 || has docker-compose; }

need_go() {
	has go || die "Go is missing: install Go 1.26 or newer and put it on PATH"
	local version major minor
	version=$(GOTOOLCHAIN=local go env GOVERSION)
	IFS=. read -r major minor _ <<<"${version#go}"
	minor=${minor%%[!0-9]*}
	[ "$major" -gt 1 ] || [ "$minor" -ge 21 ] || die "$version is too old: install Go 1.26 or newer"
}

as_root=()
find_root() {
	[ "$(id -u)" = 0 ] && return
	if has sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
		as_root=(sudo)
		return
	fi
	return 1
}

# Only the programs are wanted of PostgreSQL and Redis, not their system services: Sandyard starts private ones. The
# engine's service is wanted where systemd runs; elsewhere engine.sh starts one when there is need.
hold_services() {
	policy=/usr/sbin/policy-rc.d
	[ ! -e $policy ] || return 0
	local allowed=nothing
	[ ! -d /run/systemd/system ] || allowed='docker* | containerd*'
	trap '"${as_root[@]}" rm -f $policy' EXIT
	# shellcheck disable=SC2016 # $1 is for the policy to read
	printf '#!/bin/sh\ncase "$1" in %s) exit 0 ;; esac\nexit 101\n' "$allowed" | "${as_root[@]}" tee $policy >/dev/null
	"${as_root[@]}" chmod 755 $policy
}

apt() {
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@"
}

install() {
	local command="apt-get update && apt-get install --no-install-recommends $*" report
	has apt-get || die "missing: $*. Install what gives these Debian packages on this system, then run this again"
	find_root || die "missing: $*. Run this as root, then try again:
    $command"
	say "installing $*"
	hold_services
	report=$( (apt update && apt install --no-install-recommends --yes "$@") 2>&1) || die "$command
$report"
	say "installed $*"
}

need_go
mapfile -t packages < <(missing "${1:-run}" | tr ' ' '\n')
[ ${#packages[@]} = 0 ] || install "${packages[@]}"
# From Debian 13 on the client is a package of its own.
[ "${SANDBOX_PROVIDER:-}" = local ] || has docker || install docker-cli
