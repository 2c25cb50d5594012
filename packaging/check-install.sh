#!/bin/sh
# usage: check-install.sh [BUILD-FOLDER]
# Installs the packages that make deb left in BUILD-FOLDER/deb in a fresh Debian 12, by the RUN lines of Containerfile, and
# uses them as a stranger would: programs built with pkg-config and CMake, the units, the keeper's
# daemon, a cluster of PostgreSQL. Then purges them and compares the files with those of before. Prints TAP;
# exits 77, skipped, where fresh-root.sh cannot make a root.
# shellcheck disable=SC2016 # what the root's shell expands
set -u
cd "$(dirname "$0")/.." || exit 1

if [ -z "${ROOT:-}" ]; then
    build=${1:-build}
    if ! ls "$build"/deb/*.deb >/dev/null 2>&1; then
        echo "Bail out! there are no packages in $build/deb: make deb"
        exit 1
    fi
    DEBS=$(cd "$build/deb" && pwd)
    export DEBS
    code=0
    packaging/fresh-root.sh "$build" packaging/check-install.sh || code=$?
    [ "$code" -ne 77 ] || echo '1..0 # SKIP no fresh Debian can be made here'
    exit "$code"
fi

number=0 failed=0 out=$ROOT/tmp/out
inside() { chroot "$ROOT" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@" </dev/null; }
script() { inside /bin/sh -eu -c "$1"; }

check() { # NAME COMMAND...
    name=$1
    shift
    number=$((number + 1))
    if "$@" >"$out" 2>&1; then
        echo "ok $number - $name"
    else
        failed=$((failed + 1))
        echo "not ok $number - $name"
        tail -n 40 "$out" | sed 's/^/# /'
    fi
}

# What is there, but for what the package tools write for themselves, logs, and the data of clusters.
list_files() {
    (cd "$ROOT" && find . -xdev \( -path ./tmp -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache -o -path ./var/log \
        -o -path ./var/lib/postgresql -o -path ./etc/postgresql -o -path ./run \) -prune -o -print | sort)
}

mkdir -p "$ROOT/tmp/gvmem" "$ROOT/tmp/test"
chmod 1777 "$ROOT/tmp/test"
cp "$DEBS"/*.deb "$ROOT/tmp/gvmem/"
cp packaging/check/* "$ROOT/tmp/test/"

# RUN lines are numbered as in the file: the first installs what is Debian's, the second what is ours.
run_line() { sed -n 's/^RUN //p' packaging/Containerfile | sed -n "$1p"; }
lines=$(sed -n 's/^RUN //p' packaging/Containerfile | wc -l)

check 'Debian has what is needed' script "$(run_line 1)
apt-get install -y -q --no-install-recommends systemd adduser gcc g++ libc6-dev make cmake pkgconf binutils"
list_files >"$ROOT/tmp/before"
inside dpkg-query -W -f '${Package}\n' >"$ROOT/tmp/packages-before"
check 'the packages are installed, and nothing besides' script "$(run_line 2)
dpkg-query -W -f '\${Package}\\n' | diff /tmp/packages-before - | sed -n 's/^> //p' >/tmp/new
for deb in /tmp/gvmem/*.deb; do dpkg-deb -f \$deb Package; done | sort | diff - /tmp/new"
i=3
while [ "$i" -lt "$lines" ]; do
    check "RUN $(run_line "$i")" script "$(run_line "$i")"
    i=$((i + 1))
done

check 'there is the user gvmem' script 'getent passwd gvmem && [ "$(id -u gvmem)" -lt 1000 ]'
check 'programs and libraries find what they link' script 'cd /usr/lib/postgresql/15/lib
ls ./gstore-executor ./gstore_fdw.so ./plcuda.so plcuda/gstore-gpu-worker
! ldd /usr/bin/gvmem* /usr/lib/*/libgvmem*.so ./gstore-executor ./gstore_fdw.so ./plcuda.so plcuda/gstore-gpu-worker | grep "not found"'
check 'the software GPU is libcuda.so.1 in a folder of its own' script \
    'readlink -e /usr/lib/*/gvmem-softgpu/libcuda.so.1 | grep libgvmem-softgpu.so && ! ldconfig -p | grep -F gvmem-softgpu/'
check 'no run path, and none links the software GPU' script 'cd /usr/lib/postgresql/15/lib
! readelf -d /usr/bin/gvmem /usr/bin/gvmem-keeper /usr/lib/*/libgvmem*.so gstore-executor gstore_fdw.so plcuda.so \
    plcuda/gstore-gpu-worker | grep -E "R(UN)?PATH|NEEDED.*softgpu"'
kernels=$(inside gvmem info 2>/dev/null | sed -n 's/^kernels for real GPUs: //p')
echo "# kernels for real GPUs: $kernels"
case $(inside dpkg-query -W -f '${Version}' gvmem-tools) in
*+nocuda*) check 'there are no kernels for real GPUs, as the version says' [ "$kernels" = none ] ;;
*) check 'there are kernels for real GPUs' script "case '$kernels' in *sm_80*sm_90*compute_90*) ;; *) exit 1 ;; esac" ;;
esac
check 'gvmem share on the software GPU' script 'GVMEM_DRIVER=soft gvmem share -n 2 -l 16M'
check 'manual pages' script 'for page in man1/gvmem.1 man3/gvmem-buffer.3 man3/gvm_buffer_commit.3 man3/gvm_callback_call.3 man3/gvm_append_claim.3 man3/rgn_map_cpu.3 man7/gvmem.7 man8/gvmem-keeper.8; do
    zcat /usr/share/man/$page.gz >/dev/null; done'

check 'every link of an installed page leads to a page' script 'for page in /usr/share/doc/*gvmem*/*.md /usr/share/doc/*gstore*/*.md; do
    grep -o "](\([^)#]*\)" "$page" | cut -c 3- | grep -v : | while read -r link; do
        [ -z "$link" ] || [ -e "$(dirname "$page")/$link" ] || { echo "$page: $link"; exit 1; }
    done || exit 1
done'

check 'C programs, by pkg-config' script 'cd /tmp/test
cc -Wall -Werror /usr/share/doc/libgvmem-dev/examples/growing_array.c $(pkg-config --cflags --libs gvmem) -o array
GVMEM_DRIVER=soft ./array
cc -Wall -Werror /usr/share/doc/libgvmem-dev/examples/keeper_pair.c $(pkg-config --cflags --libs gvmem-keeper) -o pair
GVMEM_DRIVER=soft ./pair'
check 'programs with kernels of their own, by pkg-config' script 'cd /tmp/test
examples=/usr/share/doc/libgvmem-dev/examples
cc -O2 -shared -fPIC $(pkg-config --cflags gvmem) $examples/callbacks_kernel.c -o callbacks_kernel.so
cc -Wall -Werror $examples/callbacks.c $(pkg-config --cflags --libs gvmem) -o callbacks
GVMEM_DRIVER=soft ./callbacks 1
for name in matmul bfs pagerank stencil; do
    cc -O2 -shared -fPIC $(pkg-config --cflags gvmem) $examples/region_${name}_kernel.c -o region_${name}_kernel.so
    cc -Wall -Werror $examples/region_$name.c $(pkg-config --cflags --libs gvmem) -o region_$name
    GVMEM_DRIVER=soft ./region_$name
done
cc -Wall -Werror $examples/region_processes.c $(pkg-config --cflags --libs gvmem-keeper) -o region_processes
GVMEM_DRIVER=soft ./region_processes'
check 'a C++ program with a keeper, by pkg-config' script 'cd /tmp/test
c++ -Wall -Werror keeper.cpp $(pkg-config --cflags --libs gvmem-keeper gvmem) -o keeper
GVMEM_DRIVER=soft ./keeper'
check 'both, by CMake' script 'cd /tmp/test
cmake -S . -B cmake -DWANTED=$(pkg-config --modversion gvmem) && cmake --build cmake
GVMEM_DRIVER=soft cmake/array && GVMEM_DRIVER=soft cmake/keeper'
check 'CMake takes no other minor version' script 'cd /tmp/test
cmake -S . -B cmake-other -DWANTED=0.1 >/tmp/test/log 2>&1 && exit 1
grep "considered but not accepted" /tmp/test/log'

check 'systemd takes the units' script 'systemd-analyze verify --man=no gvmem-keeper.service gvmem-keeper.socket && ! [ -e /etc/systemd/system/sockets.target.wants/gvmem-keeper.socket ]'
check 'the keeper serves another user, as user gvmem' script 'export GVMEM_DRIVER=soft GVMEM_SOFTGPU=memory=256MiB
setpriv --reuid gvmem --regid gvmem --clear-groups gvmem-keeper -s /run/gvmem/keeper.sock -m 0666 &
for i in $(seq 100); do [ -S /run/gvmem/keeper.sock ] && break; sleep 0.1; done
setpriv --reuid nobody --regid nogroup --clear-groups gvmem keeper status -s /run/gvmem/keeper.sock
kill $!
wait $!'

# As docs/install-gstore.md has it: set-up, then rights.
sql() { # ROLE STATEMENT...
    role=$1
    shift
    for statement; do set -- "$@" -c "$statement"; shift; done
    inside runuser -u postgres -- psql -X -At -v ON_ERROR_STOP=1 -p 5999 -U "$role" -d postgres "$@"
}
check 'a cluster starts with shared_preload_libraries' script 'cd /tmp
pg_conftool 15 gpu set port 5999
sed -i "s/^local  *all  *all .*/local all all trust/; s/^local  *all  *postgres .*/local all all trust/" /etc/postgresql/15/gpu/pg_hba.conf
pg_ctlcluster 15 gpu start || { tail /var/log/postgresql/*gpu.log; exit 1; }'
check 'CREATE EXTENSION' sql postgres 'CREATE EXTENSION gstore_fdw'
check 'an ordinary role' sql postgres 'CREATE ROLE stranger LOGIN' 'GRANT CREATE ON SCHEMA public TO stranger' \
    'GRANT USAGE ON FOREIGN SERVER gstore_fdw TO stranger'
check 'it creates, fills and reads a table' sql stranger "CREATE FOREIGN TABLE ft (id int, t text) SERVER gstore_fdw" \
    "INSERT INTO ft SELECT i, 'row ' || i FROM generate_series(1, 10000) i" 'UPDATE ft SET id = -id WHERE id = 17' \
    "DO \$\$ BEGIN IF (SELECT (count(*), sum(id), max(t)) FROM ft) IS DISTINCT FROM (10000::bigint, 50004966::bigint, 'row 9999'::text) THEN RAISE 'rows'; END IF; END \$\$"
# With these costs the planner takes the GPU, also the software GPU.
check 'its query runs on the GPU, in the executor' sql stranger 'SET gstore_fdw.gpu_startup_cost = 0' 'SET gstore_fdw.gpu_instruction_cost = 0' \
    'SELECT id, t FROM ft WHERE id > 9990' \
    "DO \$\$ BEGIN IF (SELECT queries > 0 FROM gstore_fdw_queries WHERE kind = 'filter') IS NOT TRUE THEN RAISE '%', (SELECT q FROM gstore_fdw_queries q WHERE kind = 'filter'); END IF; END \$\$"
check 'gvmem table shows it, by a token' script "token=\$(runuser -u postgres -- psql -X -At -p 5999 -U stranger -d postgres -c \"SELECT gstore_export('ft')\")
runuser -u postgres -- gvmem table -n 3 \$token"
check 'a function in CUDA C runs' script "cd /usr/share/doc/postgresql-15-gstore-fdw/examples
runuser -u postgres -- psql -X -q -v ON_ERROR_STOP=1 -p 5999 -d postgres -c 'CREATE EXTENSION plcuda' -f text_search.sql
[ \"\$(runuser -u postgres -- psql -X -At -p 5999 -d postgres -c \"SELECT count(*) FROM text_search('ft', 'id', 't', 'row 99%')\")\" = 111 ]"
check 'CREATE EXTENSION of the others' sql postgres 'CREATE EXTENSION gstore_fdw_bit' 'CREATE EXTENSION pg_strom'
check 'gstore_fdw has the path of the executor of queries' script 'strings -a /usr/lib/postgresql/15/lib/gstore_fdw.so | grep -qx /usr/lib/postgresql/15/lib/gstore-executor'
check 'the cluster stops' script 'pg_dropcluster --stop 15 gpu'

check 'purging leaves the user alone' script 'cd /tmp/gvmem
apt-get purge -y -q $(for deb in *.deb; do dpkg-deb -f $deb Package; done)
getent passwd gvmem'
list_files >"$ROOT/tmp/after"
# Adding a user leaves the former versions of its files, and a lock.
check 'no file is left' script "diff /tmp/before /tmp/after | grep -vE '^> \\./etc/(passwd-|group-|shadow-|gshadow-|\\.pwd\\.lock)\$' | grep '^[<>]' && exit 1 || :"

echo "1..$number"
[ "$failed" -eq 0 ]
