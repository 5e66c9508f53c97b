#!/bin/bash
# Makes sandyard-local/postgres and sandyard-local/redis, which stand in for the official images where no registry can be
# reached: the servers installed here, the libraries they load, and an entry point that knows the variables
# docker-compose.yml uses.
set -euo pipefail

version=$(find /usr/lib/postgresql -mindepth 1 -maxdepth 1 -printf '%f\n' | sort -n | tail -n 1)
bin=/usr/lib/postgresql/$version/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# listing names the files of these packages, and of all libraries their programs load.
listing() {
	dpkg -L "$@" | grep -vE '^/usr/share/(doc|man|locale)/|/llvmjit|/bitcode/' | while read -r path; do
		[ ! -f "$path" ] || echo "$path"
	done >"$work/files"
	{ xargs -r ldd <"$work/files" 2>/dev/null || true; } |
		awk '$2 == "=>" && $3 ~ "^/" { print $3 } NF == 2 && $1 ~ "^/" { print $1 }' >"$work/libraries"
	sort -u "$work/files" "$work/libraries"
	find /usr/lib/locale/C.utf8 -type f
}

accounts() {
	mkdir -p "$1/etc" "$1/tmp"
	chmod 1777 "$1/tmp"
	printf 'root:x:0:0::/:/bin/sh\nserver:x:999:999::/:/bin/sh\n' >"$1/etc/passwd"
	printf 'root:x:0:\nserver:x:999:\n' >"$1/etc/group"
}

fill() {
	local root=$1
	shift
	accounts "$root"
	listing dash coreutils grep "$@" >"$work/list"
	sed 's,^/,,' "$work/list" | tar --create --dereference --directory / --files-from - | tar --extract --directory "$root"
}

import() {
	local root=$1 name=$2
	shift 2
	tar --create --directory "$root" . | docker import "$@" - "$name" >/dev/null
	echo "compose: made $name from this machine's packages"
}

postgres() {
	local root=$work/postgres
	mkdir "$root"
	fill "$root" "postgresql-$version" "postgresql-client-$version" tzdata
	mkdir -p "$root/var/lib/postgresql/data" "$root/usr/local/bin"
	chown 999:999 "$root/var/lib/postgresql/data"
	chmod 700 "$root/var/lib/postgresql/data"
	cat >"$root/usr/local/bin/entrypoint" <<END
#!/bin/sh
set -eu
data=/var/lib/postgresql/data
if [ ! -s "\$data/PG_VERSION" ]; then
	echo "\$POSTGRES_PASSWORD" >/tmp/password
	initdb -D "\$data" -U "\$POSTGRES_USER" --pwfile /tmp/password -A scram-sha-256 -E UTF8 --locale C.UTF-8 --no-instructions
	rm /tmp/password
	echo 'host all all all scram-sha-256' >>"\$data/pg_hba.conf"
	printf 'create database %s;\n' "\$POSTGRES_DB" | postgres --single -D "\$data" postgres
fi
exec postgres -D "\$data" -k /tmp -c 'listen_addresses=*'
END
	chmod 755 "$root/usr/local/bin/entrypoint"
	import "$root" sandyard-local/postgres -c 'USER 999:999' -c "ENV PATH=$bin:/usr/bin:/bin" \
		-c 'ENTRYPOINT ["/usr/local/bin/entrypoint"]' -c 'VOLUME /var/lib/postgresql/data'
}

redis() {
	local root=$work/redis
	mkdir -p "$root"
	fill "$root" redis-server redis-tools
	mkdir -p "$root/data"
	chown 999:999 "$root/data"
	import "$root" sandyard-local/redis -c 'USER 999:999' -c 'ENV PATH=/usr/bin:/bin' -c 'WORKDIR /data' -c 'VOLUME /data' \
		-c 'CMD ["redis-server"]'
}

postgres
redis
