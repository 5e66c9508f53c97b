#!/bin/sh
# Writes the numbers of the system calls of each machine from Go's own tables.
set -eu
from=$(go list -m -f '{{.Dir}}' golang.org/x/sys)/unix
for machine in amd64 arm64; do
	sed -nE 's/^\tSYS_([A-Z0-9_]+) += ([0-9]+)$/\L\1\E \2/p' "$from/zsysnum_linux_$machine.go" >"calls_$machine.txt"
done
