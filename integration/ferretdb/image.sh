#!/usr/bin/env bash
# Makes the Docker image leasehold/ferretdb:2.7 if it is missing: FerretDB 2.7 in front of
# PostgreSQL 18 with the DocumentDB extension, only from Debian's packages and the Go module proxy.
# Run it as root on a Debian machine with Docker and Go; it takes some three minutes on two cores
# and prints one line.
set -euo pipefail

image=leasehold/ferretdb:2.7
ferretdb=github.com/FerretDB/FerretDB/v2/cmd/ferretdb@v2.7.0

if docker image inspect "$image" >/dev/null 2>&1; then
	echo "$image is there"
	exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# quietly NAME COMMAND… shows the output only if the command fails.
quietly() {
	local log="$work/$1.log"
	shift
	if ! "$@" >"$log" 2>&1 </dev/null; then
		echo "image.sh: failed: $*" >&2
		tail -n 40 "$log" >&2
		return 1
	fi
}

# Build FerretDB while mmdebstrap works.
(
	cd "$work" # away from any go.mod and go.work
	quietly go-install env GOBIN="$work/bin" CGO_ENABLED=0 GOWORK=off GOFLAGS= go install -trimpath "$ferretdb"
) &
building=$!

if ! command -v mmdebstrap >/dev/null; then
	lock='-oDPkg::Lock::Timeout=300'
	export DEBIAN_FRONTEND=noninteractive
	quietly update apt-get "$lock" update
	quietly install apt-get "$lock" install -y --no-install-recommends mmdebstrap debian-archive-keyring
fi

# Use the mirror that this machine uses.
mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/*.sources 2>/dev/null | head -n 1)
if [ -z "$mirror" ]; then
	mirror=$(sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | head -n 1)
fi

cat >"$work/start" <<'START'
#!/bin/sh
# Starts PostgreSQL, only for FerretDB and on loopback, and then replaces this shell with FerretDB.
set -eu
bin=/usr/lib/postgresql/18/bin
data=/var/lib/postgresql/leasehold
pg() { setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }

mkdir -p "$data" /var/run/postgresql /var/lib/ferretdb
chown postgres:postgres "$data" /var/run/postgresql
cd /var/lib/postgresql
if [ ! -s "$data/PG_VERSION" ]; then
	pg "$bin/initdb" -D "$data" --auth=trust -E UTF8 --locale=C.UTF-8 >/dev/null
	cat >>"$data/postgresql.conf" <<-CONF
		listen_addresses = '127.0.0.1'
		max_connections = 300
		dynamic_shared_memory_type = mmap
		shared_preload_libraries = 'pg_cron,pg_documentdb_core,pg_documentdb'
		cron.database_name = 'postgres'
		cron.host = '127.0.0.1'
		# The tests kill the container, never the machine, so everything written survives in the
		# kernel's cache. On a disk that is shared, one fsync has taken seconds.
		fsync = off
		full_page_writes = off
	CONF
fi
rm -f "$data/postmaster.pid" # left by a container that was killed
pg "$bin/pg_ctl" -D "$data" -l "$data/log" -w -t 60 start >/dev/null
pg "$bin/psql" -h 127.0.0.1 -d postgres -qc 'CREATE EXTENSION IF NOT EXISTS documentdb CASCADE' >/dev/null 2>&1
exec ferretdb --listen-addr=:27017 --debug-addr=- --no-auth --telemetry=disable \
	--state-dir=/var/lib/ferretdb --log-level=error \
	--postgresql-url=postgres://postgres@127.0.0.1:5432/postgres "$@"
START
chmod 755 "$work/start"

# The suite testing has the extension. Accept the mirror's snapshot of it even if it is no longer
# valid, and don't let the packages create a default cluster.
quietly root mmdebstrap --mode=root --variant=minbase \
	--include=postgresql-18,postgresql-18-documentdb \
	--aptopt='Acquire::Check-Valid-Until "false"' \
	--essential-hook='mkdir -p "$1/etc/postgresql-common" && echo "create_main_cluster = false" >"$1/etc/postgresql-common/createcluster.conf"' \
	testing "$work/root.tar" "$mirror"

wait "$building"
mkdir -p "$work/add/usr/local/bin"
mv "$work/bin/ferretdb" "$work/start" "$work/add/usr/local/bin"
tar -C "$work/add" --owner=0 --group=0 --append -f "$work/root.tar" usr/local/bin/ferretdb usr/local/bin/start
quietly import docker import --change 'ENTRYPOINT ["/usr/local/bin/start"]' --change 'EXPOSE 27017' \
	--change 'VOLUME ["/var/lib/postgresql/leasehold"]' "$work/root.tar" "$image"
echo "$image made"
