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

has() { type -P "$1" >/dev/null; }

installed() { [ "$(cat "$clients/installed" 2>/dev/null)" = "$wanted" ]; }

install_clients() {
	has node && has npm || give_up "Node 18 or newer with npm is missing"
	has python3 || give_up "Python 3.10 or newer is missing"
	rm -rf "$clients"
	mkdir -p "$clients"
	cp "$suite"/js/package.json "$suite"/js/package-lock.json "$clients"/
	(cd "$clients" && npm ci --no-audit --no-fund --ignore-scripts --fetch-retries=1 --fetch-timeout=20000) >"$clients/log" 2>&1 ||
		give_up "npm could not install the client (see $clients/log)"
	{ python3 -m venv "$clients/venv" && "$clients/venv/bin/pip" install --quiet --retries 1 --timeout 20 --requirement "$suite/python/requirements.txt"; } \
		>>"$clients/log" 2>&1 || give_up "pip could not install the client (see $clients/log)"
	echo "$wanted" >"$clients/installed"
}

installed || install_clients
docker image inspect sandyard/python:default >/dev/null 2>&1 || images/build.sh
export E2B_CLIENTS=$clients CGO_ENABLED=1 # the race detector's C part
exec go test -race -count=1 -timeout=10m -tags=e2b "$@" ./tests/e2b/
