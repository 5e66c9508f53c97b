#!/bin/bash
# Turns a tree of unpacked Debian packages ($1) into the root of a sandbox. Called by mmdebstrap from build.sh.
# No maintainer script runs, so what those would have set up and a sandbox needs is done here.
set -euo pipefail
root=$1

cp "$root/usr/share/base-passwd/passwd.master" "$root/etc/passwd"
cp "$root/usr/share/base-passwd/group.master" "$root/etc/group"
echo 'sandbox:x:1000:1000:sandbox:/workspace:/bin/bash' >>"$root/etc/passwd"
echo 'sandbox:x:1000:' >>"$root/etc/group"
install -d -o 1000 -g 1000 "$root/workspace"
chmod 1777 "$root/tmp"

[ -e "$root/bin/sh" ] || ln -s dash "$root/usr/bin/sh"
ln -sf python3 "$root/usr/bin/python"
[ -e "$root/usr/bin/awk" ] || ln -s mawk "$root/usr/bin/awk"

[ ! -e "$root/usr/bin/which.debianutils" ] || ln -sf which.debianutils "$root/usr/bin/which"

# pip installs into the home directory, which is the sandbox's own: nothing of Debian's is in its way. Login shells find the
# programs there, too, wherever the home directory is.
rm -f "$root"/usr/lib/python3*/EXTERNALLY-MANAGED
install -d "$root/etc/profile.d"
# shellcheck disable=SC2016 # for the shell to expand
echo 'PATH="$HOME/.local/bin:$PATH"' >"$root/etc/profile.d/sandyard.sh"
[ -e "$root/etc/profile" ] || echo 'for script in /etc/profile.d/*.sh; do . "$script"; done' >"$root/etc/profile"

# The certificates' own set-up is a maintainer script too; its outcome is one file.
install -d "$root/etc/ssl/certs"
find "$root/usr/share/ca-certificates" -name '*.crt' -exec cat {} + >"$root/etc/ssl/certs/ca-certificates.crt"

unused=zoneinfo
[ ! -d "$root/usr/lib/python3/dist-packages/pandas" ] || unused= # which knows time zones from there
for dir in doc man info locale i18n lintian bug $unused common-licenses gitweb bash-completion git-core/contrib; do
	rm -rf "$root/usr/share/$dir"
done
rm -rf "$root"/var/lib/{apt,dpkg}/* "$root"/var/cache/* "$root"/var/log/* \
	"$root"/usr/lib/*/gconv "$root"/usr/lib/python3*/{test,idlelib,turtledemo,lib2to3/tests}

# Debian's alternatives are set up by maintainer scripts, too: these libraries are found where they lie.
for dir in "$root"/usr/lib/*/blas "$root"/usr/lib/*/lapack; do
	[ ! -d "$dir" ] || echo "${dir#"$root"}" >>"$root/etc/ld.so.conf.d/alternatives.conf"
done
ldconfig -r "$root"

# The root is read-only in a sandbox, so Python could never keep what it compiles: import asyncio takes a
# fraction of the time with this. Unchecked, because nothing edits these files afterwards.
chroot "$root" python3 -m compileall -q --invalidation-mode unchecked-hash /usr/lib/python3*/ /usr/lib/python3/ >/dev/null || true
