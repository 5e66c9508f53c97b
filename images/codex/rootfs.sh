#!/bin/bash
# What the codex template has beside its Debian packages ($1 = the root): Codex from npm, pinned by hashes in
# package-lock.json, and Sandyard's tools for it.
set -euo pipefail
root=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$root/tmp/build
mkdir "$work" && trap 'rm -rf "$work"' EXIT
# shellcheck source=images/fetch.sh
. "$here/../fetch.sh"

install -D -m 644 -t "$work/app" "$here/package.json" "$here/package-lock.json"
get_npm "$here/../requirements.txt"
install_locked "$work/app"
mkdir -p "$root/opt"
cp -a --no-preserve=ownership "$work"/app/node_modules/@openai/codex-linux-*/vendor/* "$root/opt/codex" # of this machine's architecture
rm -rf "$root/opt/codex/codex-resources/voice"
install -D -m 755 "$here/codex" "$root/usr/local/bin/codex"
install -D -m 644 "$here/config.toml" "$root/etc/codex/config.toml"
