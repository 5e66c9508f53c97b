#!/bin/bash
# What the claude-code template has beside its Debian packages ($1 = the root): Claude Code from npm, pinned by hashes in
# package-lock.json, and Sandyard's tools for it. It is no free software: its licence lies beside the program.
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
program=$(echo "$work"/app/node_modules/@anthropic-ai/claude-code-linux-*) # of this machine's architecture
install -D -m 755 -t "$root/opt/claude-code" "$program/claude"
install -D -m 644 -t "$root/opt/claude-code" "$program/LICENSE.md"
install -D -m 755 "$here/claude" "$root/usr/local/bin/claude"
install -D -m 644 "$here/tools.json" "$root/etc/sandyard/claude-code.json"
