#!/bin/sh
# usage: demo-cluster.sh [BUILD-FOLDER]
# Builds, and shows tables that are spread over three PostgreSQL servers, each with a keeper and a software GPU of its own, behind a fourth one, by
# PostgreSQL's postgres_fdw and the files of examples/cluster: what the servers compute, answers compared with those of heap tables, a server that is
# killed and comes back empty. docs/scale.md describes it. Starts the servers in a temporary folder and leaves nothing behind. ORDERS= how many.
set -eu
cd "$(dirname "$0")/.."
export BUILD="${1:-build}"
scripts/setup.sh cluster
scripts/pg-server.sh check
scripts/build.sh "$BUILD"
BUILD=$(cd "$BUILD" && pwd)
orders=${ORDERS:-60000}
items=30000
servers=3
began=$(date +%s)

say() { printf '\n==== %s\n' "$1"; }
give_up() {
    echo "demo-cluster: $1" >&2
    exit 1
}

folder=$(mktemp -d "${TMPDIR:-/tmp}/gvmem-cluster-XXXXXX")
chmod 755 "$folder" # the servers are another user's if root runs this
finish() {
    code=$?
    trap - EXIT
    for name in 0 1 2 coordinator; do
        [ "$code" -eq 0 ] || [ ! -s "$folder/$name/log" ] || tail -n 5 "$folder/$name/log" >&2
        scripts/pg-server.sh stop "$folder/$name" immediate >/dev/null 2>&1 || :
    done
    rm -rf "$folder"
    exit "$code"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP

# on SERVER PSQL-ARGUMENTS...
on() (
    eval "$(scripts/pg-server.sh env "$folder/$1")"
    shift
    exec psql -X -q -v ON_ERROR_STOP=1 "$@"
)
ask() { on coordinator -At "$@"; }
start() { GVMEM_SOFTGPU="devices=1,memory=1GiB,sms=2,instance=cluster$$-$1" GVMEM_DRIVER=soft scripts/pg-server.sh start "$folder/$1"; }
load() { on "$1" -v servers="$servers" -v number="$1" -v orders="$orders" -v items="$items" -f "examples/cluster/${2:-server}.sql"; }
# in_parallel COMMAND: for each server; fails if one has.
in_parallel() {
    pids=
    for number in 0 1 2; do
        "$@" "$number" &
        pids="$pids $!"
    done
    for pid in $pids; do wait "$pid" || give_up "$*: a server has failed"; done
}

say 'Three servers, each with a keeper and a software GPU of its own, and one without that is asked'
in_parallel start
scripts/pg-server.sh start "$folder/coordinator" 'shared_preload_libraries='
for number in 0 1 2; do
    # So that tables as small as these are computed by the GPU.
    on "$number" -c 'ALTER DATABASE postgres SET gstore_fdw.gpu_startup_cost = 0' -c 'ALTER DATABASE postgres SET gstore_fdw.gpu_instruction_cost = 0'
done
echo "ready after $(($(date +%s) - began)) s"

say "Their partitions, of $orders orders with $((3 * orders)) lines, and $items items, loaded by all servers at the same time"
in_parallel load
ask -f examples/cluster/coordinator.sql
for number in 0 1 2; do
    ask -v servers="$servers" -v number="$number" -v items="$items" -v host="$folder/$number/run" -f examples/cluster/partition.sql
done
ask -F '  ' -c 'SELECT tableoid::regclass, count(*) FROM lines GROUP BY 1 ORDER BY 1'
# The same rows in one place. The views have those that belong to each partition.
ask -c 'CREATE SCHEMA heap' -c 'CREATE TABLE heap.orders AS SELECT * FROM orders' -c 'CREATE TABLE heap.lines AS SELECT * FROM lines' \
    -c 'CREATE TABLE heap.items AS SELECT * FROM items'
for number in 0 1 2; do
    ask -c "CREATE VIEW heap.orders_$number AS SELECT * FROM heap.orders WHERE satisfies_hash_partition('public.orders'::regclass, $servers, $number, id)" \
        -c "CREATE VIEW heap.lines_$number AS SELECT * FROM heap.lines WHERE satisfies_hash_partition('public.lines'::regclass, $servers, $number, order_id)" \
        -c "CREATE VIEW heap.items_$number AS SELECT * FROM heap.items WHERE id >= $number * $items / $servers AND id < ($number + 1) * $items / $servers"
done
[ "$(ask -c 'SELECT (SELECT count(*) FROM heap.orders), (SELECT count(*) FROM heap.lines), (SELECT count(*) FROM heap.items)')" = "$orders|$((3 * orders))|$items" ] ||
    give_up 'rows are missing, or there are too many'

for query in count groups join search; do
    say "$(sed -n 's/^-- //p' "examples/cluster/$query.sql" | tr '\n' ' ')"
    grep -v '^--' "examples/cluster/$query.sql"
    on coordinator -A -F '  ' -P footer=off -f "examples/cluster/$query.sql" >"$folder/$query"
    printf '\n'
    cat "$folder/$query"
    PGOPTIONS='-c search_path=heap,public' on coordinator -A -F '  ' -P footer=off -f "examples/cluster/$query.sql" | cmp -s - "$folder/$query" ||
        give_up 'one heap table has another answer: please report that'
    ask -c "EXPLAIN (VERBOSE, COSTS OFF) $(cat "examples/cluster/$query.sql")" >"$folder/plan"
    [ "$(grep -c 'Async Foreign Scan' "$folder/plan")" -eq 3 ] || give_up 'the servers are not asked at the same time'
    printf '\neach server is sent, at the same time:\n'
    remote=$(sed -n 's/^ *Remote SQL: //p' "$folder/plan" | head -n 1)
    echo "$remote"
    echo 'which its GPU computes:'
    on 0 -At -c "EXPLAIN (COSTS OFF) $remote" | tee "$folder/plan"
    grep -q 'GPU: ' "$folder/plan" || give_up 'the GPU does not'
done

say 'A server is killed while it computes'
# Pairs of rows that are not in order: 10 billion, which would take minutes.
slow='SELECT count(*) FROM lines_1 a JOIN lines_1 b ON a.quantity <> b.quantity'
(! ask -c "$slow" >"$folder/killed" 2>&1 && date +%s%N >"$folder/failed") &
waiter=$!
while [ "$(on 1 -At -c "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postgres_fdw' AND state = 'active'")" = 0 ]; do sleep 0.1; done
postmaster=$(head -n 1 "$folder/1/data/postmaster.pid")
processes="$postmaster $(cat "/proc/$postmaster/task/$postmaster/children")"
killed=$(date +%s%N)
# shellcheck disable=SC2086 # numbers
kill -KILL $processes
wait "$waiter" || give_up 'the statement has survived it'
cat "$folder/killed"
echo "after $((($(cat "$folder/failed") - killed) / 1000000)) ms; the others go on:"
ask -c 'SELECT count(*) FROM lines_0' -c 'SELECT count(*) FROM lines_2'

say 'It comes back without its rows, which is an error until they are loaded again'
for process in $processes; do
    while grep -q '^State:[[:space:]]*[^Z[:space:]]' "/proc/$process/status" 2>/dev/null; do sleep 0.1; done
done
rm -f "$folder/1/data/postmaster.pid" "$folder"/1/run/.s.* # a process that nobody waits for keeps its number
start 1
ask -c 'SELECT count(*) FROM lines_1' 2>&1 && give_up 'a table that has lost its rows is read as an empty one'
on 1 -c 'TRUNCATE orders, lines, items'
load 1 rows
on coordinator -A -F '  ' -P footer=off -f examples/cluster/groups.sql | cmp - "$folder/groups" || give_up 'the answer is another one now'
echo 'The answers are the same as before.'

printf '\n%s\n' "That took $(($(date +%s) - began)) s after the build. docs/scale.md describes how to do this with servers of one's own."
