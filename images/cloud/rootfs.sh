#!/bin/bash
# What the cloud template has beside its Debian packages, kubectl among them ($1 = the root): the command lines of AWS
# and Azure, which do not share a directory because they want other releases of the same packages, and Google's libraries
# for Python. gcloud is in no package registry: it can only be had from Google's own site, so it is not here.
#
# The three lists come from `uv pip compile --generate-hashes --only-binary :all: --python-version 3.11` of awscli,
# azure-cli, and google-cloud- bigquery, compute, pubsub, run, secret-manager and storage.
set -euo pipefail
root=$1
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=images/fetch.sh
. "$here/../fetch.sh"

wheels "$here/aws.txt" /opt/aws
wheels "$here/azure.txt" /opt/azure
wheels "$here/google.txt" "$(chroot "$root" python3 -c 'import sysconfig; print(sysconfig.get_path("purelib", "posix_local"))')"
install -D -m 755 -t "$root/usr/local/bin" "$here/aws" "$here/az"
