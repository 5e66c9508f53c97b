#!/bin/bash
# Starts everything on this machine; `make run` calls it. ONCE=1: stops after the first program.
#
# Sandboxes are containers of a Docker engine. Where none can be had, or with SANDBOX_PROVIDER=local, they are processes
# of this machine in namespaces, which is good for trying things out and not for code that nobody trusts.
set -euo pipefail
cd "$(dirname "$0")/.."

dev=(bin/sandyard dev)
case ${ONCE:-0} in '' | 0) ;; *) dev+=(--once) ;; esac

containers() {
	images/build.sh
	exec "${dev[@]}"
}

processes() {
	echo "run: LOCAL SANDBOXES: processes of this machine in namespaces, no containers. NOT A PRODUCTION BOUNDARY." >&2
	images/tree.sh
	SANDBOX_PROVIDER=local exec "${dev[@]}"
}

case ${1:-} in
containers) containers ;;
processes) processes ;;
*)
	[ "${SANDBOX_PROVIDER:-}" != local ] || processes
	exec scripts/engine.sh --or "scripts/run.sh processes" scripts/run.sh containers
	;;
esac
