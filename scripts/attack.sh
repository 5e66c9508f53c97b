#!/bin/bash
# The attacks of tests/attack: one tenant against another one and the installation, through the front door. ONLY=name
# plays one of them.
set -euo pipefail
cd "$(dirname "$0")/.."

images/build.sh
exec scripts/again.sh ./tests/attack -tags attack -v -count=1 -timeout=15m -run "TestAttacks/^(${ONLY:-.*}|traces)\$"
