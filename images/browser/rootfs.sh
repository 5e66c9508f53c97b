#!/bin/bash
# What the browser template has beside its Debian packages ($1 = the root): Playwright from PyPI, which finds Debian's
# Chromium as if it were its own, the start command, and the program of the browser tools.
set -euo pipefail
root=$1
here=$(dirname "$0")

install -D -m 755 -t "$root/usr/local/bin" "$here/sandyard-desktop" "$here/sandyard-browser"

# The sandbox is the boundary: it gives nobody the namespaces that Chromium's own would need.
install -d "$root/etc/chromium.d"
echo 'CHROMIUM_FLAGS="$CHROMIUM_FLAGS --no-sandbox --disable-dev-shm-usage --disable-gpu --no-first-run"' >"$root/etc/chromium.d/sandyard"

# For the Python of the root, which need not be this machine's.
wheels=$root/tmp/wheels
site=$root$(chroot "$root" python3 -c 'import sysconfig; print(sysconfig.get_path("purelib", "posix_local"))')
version=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
python3 -m pip download --quiet --disable-pip-version-check --only-binary=:all: --python-version "$version" \
	--dest "$wheels" --requirement "$here/requirements.txt"
install -d "$site"
for wheel in "$wheels"/*.whl; do
	python3 -m zipfile -e "$wheel" "$site"
done
rm -rf "$wheels"
chmod +x "$site/playwright/driver/node" # which zipfile forgets

# The root is read-only in a sandbox, see the other rootfs.sh.
chroot "$root" python3 -m compileall -q --invalidation-mode unchecked-hash "${site#"$root"}" >/dev/null || true

# Playwright looks for the revisions of its browsers.json.
browsers=$root/opt/playwright
revision() { python3 -c 'import json, sys; print(next(b["revision"] for b in json.load(open(sys.argv[1]))["browsers"] if b["name"] == sys.argv[2]))' "$site/playwright/driver/package/browsers.json" "$1"; }
for browser in chromium:chromium:chrome-linux/chrome chromium-headless-shell:chromium_headless_shell:chrome-linux/headless_shell; do
	IFS=: read -r name dir program <<<"$browser"
	home=$browsers/$dir-$(revision "$name")
	install -d "$home/$(dirname "$program")"
	ln -s /usr/bin/chromium "$home/$program"
	touch "$home/INSTALLATION_COMPLETE"
done
fc_cache=$(chroot "$root" fc-cache -s 2>&1) || echo "fonts: $fc_cache" >&2
