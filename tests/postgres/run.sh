#!/bin/sh
# usage: run.sh regress|isolation [TEST...]
# The SQL tests of gstore_fdw against a private server that is made for them and gone afterwards, also
# when this script is killed. Prints TAP, a line for each file of sql/ or isolation/specs/; the folder of
# results is named where something failed, and kept. BUILD says where the library was built (default
# build), PG_CONFIG which PostgreSQL. As root the server runs as scripts/pg-owner.sh says.
# shellcheck disable=SC1091,SC2154 # what private.sh sets
set -u
here=$(cd "$(dirname "$0")" && pwd)
project=$(cd "$here/../.." && pwd)
kind=${1:-}
case $kind in regress | isolation) shift ;; *) sed -n '2,6s/^# //p' "$0" >&2; exit 2 ;; esac
BUILD=$(cd "${BUILD:-$project/build}" && pwd) || exit 2
pg_config=${PG_CONFIG:-pg_config}
export BUILD MALLOC_PERTURB_=165 # what is freed is overwritten
. "$here/private.sh"
# Without autovacuum plans do not depend on when they are made. Where a test sets enable_sort off local plans have such costs that they would be
# compiled, which takes most of its time. From 16 on PostgreSQL sorts before aggregates that ask for an order, so that plans differ.
case $("$pg_config" --version) in
*' 15.'*) later='' results=$BUILD/postgres-results/$kind ;;
*) later=enable_presorted_aggregate=off results=$BUILD/postgres-results/later-$kind ;; # version.sh runs it at the same time
esac
private_start "$kind" 'max_prepared_transactions = 4' 'max_parallel_workers_per_gather = 2' \
    'min_parallel_table_scan_size = 0' 'autovacuum=off' 'jit=off' ${later:+"$later"}

if [ "$kind" = regress ]; then
    program=$($pg_config --pkglibdir)/pgxs/src/test/regress/pg_regress
    input=$here ending=sql files=$here/sql
else
    program=$($pg_config --pkglibdir)/pgxs/src/test/isolation/pg_isolation_regress
    input=$here/isolation ending=spec files=$here/isolation/specs
fi
[ $# -gt 0 ] || for file in "$files"/*."$ending"; do set -- "$@" "$(basename "$file" ".$ending")"; done

psql -X -q -d postgres -c 'CREATE DATABASE regression' -c '\c regression' -c 'CREATE EXTENSION gstore_fdw' \
    >"$private/out" 2>&1 || private_fail 'the extension cannot be made' "$private/out"
rm -rf "$results"
mkdir -p "$results"

echo "1..$#"
number=0 code=0
for name; do
    number=$((number + 1))
    # Not in the foreground, where a signal to this script would wait for it.
    timeout -k 5 300 "$program" --use-existing --dbname=regression --host="$PGHOST" --user=postgres \
        --bindir="$private_bin" --inputdir="$input" --outputdir="$results" "$name" >"$private/out" 2>&1 9>&- &
    if wait $!; then
        skipped=$(grep -m 1 -xE 'there is no [a-z_]+|[a-z_]+ is not installed' "$results/results/$name.out") # as expected/*_1.out have it
        echo "ok $number - $name${skipped:+ # SKIP $skipped}"
    else
        code=1
        echo "not ok $number - $name"
        sed 's/^/# /' "$private/out"
        # A server that died would fail all that follow; it says why in its log.
        if [ -f "$results/regression.diffs" ]; then head -n 200 "$results/regression.diffs" | sed 's/^/# /'; fi
        grep -E 'PANIC|FATAL|terminated by signal|TRAP' "$private/log" | tail -n 5 | sed 's/^/# server: /'
    fi
done
[ "$code" -eq 0 ] && rm -rf "$results"
exit "$code"
