#!/bin/sh
# usage: demo.sh [BUILD-FOLDER]
# Builds, and shows one thing that gvmem is for: molecules in a PostgreSQL table that lives in GPU memory, searched
# there by plain SQL; the same rows read in place by another process and by Python; at last two models that two processes swap.
# Results are compared. Needs no GPU: without one the software GPU takes its place. Starts a server and a keeper of its own in a
# temporary folder and leaves nothing behind. ROWS= how many molecules, QUERY= the number of the one to which others are compared,
# SMILES= a file of molecules, lines of SMILES and number.
set -eu
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8 # psql's times with a point
export BUILD="${1:-build}"
scripts/setup.sh demo
scripts/pg-server.sh check
scripts/build.sh "$BUILD"
build=$(cd "$BUILD" && pwd)
query=${QUERY:-2066}
smiles=${SMILES:-}
BUILD=$build
# The software GPU, where there is no other, apart from those of other programs.
export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-devices=1,memory=2GiB,instance=demo$$}"
began=$(date +%s)

say() { printf '\n==== %s\n' "$1"; }
give_up() {
    echo "demo: $1" >&2
    exit 1
}

folder=$(mktemp -d "${TMPDIR:-/tmp}/gvmem-demo-XXXXXX")
chmod 755 "$folder" # the server is another user's if root runs this
keeper=$folder/keeper
finish() {
    code=$?
    trap - EXIT
    if [ "$code" -ne 0 ] && [ -s "$folder/pg/log" ]; then
        echo "demo: the end of the server's log:" >&2
        tail -n 10 "$folder/pg/log" >&2
    fi
    scripts/pg-server.sh stop "$folder/pg" immediate >/dev/null 2>&1 || :
    [ ! -S "$keeper" ] || "$build/tools/gvmem" keeper stop --socket "$keeper" || :
    rm -rf "$folder"
    exit "$code"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP

[ -n "$smiles" ] || smiles=$(find /usr/share/RDKit /usr/share/rdkit -name first_5K.smi 2>/dev/null | head -n 1)
[ -s "$smiles" ] || give_up "there is no file of molecules: install rdkit-data, or name a file of SMILES in SMILES="
awk -v id="$query" '$2 == id { found = 1 } END { exit !found }' "$smiles" ||
    give_up "there is no molecule $query: set QUERY= to a number that $smiles has"

say 'A PostgreSQL server of its own, and the GPU that its tables are on'
scripts/pg-server.sh start "$folder/pg"
eval "$(scripts/pg-server.sh env "$folder/pg")"
export PGOPTIONS='-c extra_float_digits=-9' # distances of 6 digits, as the other two print them
sql() { psql -X -q -v ON_ERROR_STOP=1 "$@"; }
ask() { sql -At -c "$1"; }
# pgvector's operators where it is installed, else our own of the same names.
distances=$(ask "SELECT CASE WHEN EXISTS (SELECT FROM pg_available_extension_versions
    WHERE name = 'vector' AND string_to_array(version, '.')::int[] >= '{0,7,0}') THEN 'vector' ELSE 'gstore_fdw_bit' END")
sql -c 'CREATE EXTENSION gstore_fdw' -c "CREATE EXTENSION $distances"
ask "SELECT 'PostgreSQL ' || current_setting('server_version') || ', operators of bit strings by $distances'"
[ "$(ask 'SELECT ready FROM gstore_fdw_keeper_info')" = t ] ||
    give_up "the server cannot use a GPU: $(ask 'SELECT problem FROM gstore_fdw_keeper_info')"
software=$(ask 'SELECT software FROM gstore_fdw_keeper_info WHERE device = 0')
ask "SELECT device_name || ', ' || pg_size_pretty(device_budget) || ' for tables' FROM gstore_fdw_keeper_info WHERE device = 0"
if [ "$software" = t ]; then
    echo 'There is no NVIDIA GPU here: threads of the CPU take its place, as slow as CPU threads are. On a GPU the'
    echo 'same commands take 10 million molecules; docs/benchmarks.md has times of an H100.'
    most=500000
else
    "$build/tools/gvmem" info | grep -q '^kernels for real GPUs: none' &&
        give_up "this build has no kernels for GPUs: nvcc or g++ is missing, or does not work; install both, and run this again; or GVMEM_DRIVER=soft make demo"
    most=$(ask 'SELECT least(10000000, device_budget / 800) FROM gstore_fdw_keeper_info WHERE device = 0')
fi

molecules=$(wc -l <"$smiles")
rounds=$(((${ROWS:-$most} + molecules - 1) / molecules - 1)) # of mixtures, each of as many as there are molecules
say "Molecules, with fingerprints of 1024 bits, and mixtures of two of them, into GPU memory"
python3 examples/similarity_fingerprints.py "$smiles" >"$folder/rows"
cat >"$folder/table.sql" <<END
CREATE FOREIGN TABLE molecules (id int, parts int, smiles text, fingerprint bit(1024))
    SERVER gstore_fdw OPTIONS (format 'arrow');
END
cat "$folder/table.sql"
sql -f "$folder/table.sql"
# What a mixture has, either part has: so its fingerprint is that of both.
loaded=$(date +%s)
sql >"$folder/out" <<END
CREATE TEMP TABLE nci (place int GENERATED ALWAYS AS IDENTITY (MINVALUE 0), id int, smiles text, fingerprint bit(1024),
    parts int GENERATED ALWAYS AS (1 + length(smiles) - length(replace(smiles, '.', ''))) STORED);
\copy nci (id, smiles, fingerprint) FROM '$folder/rows'
INSERT INTO molecules SELECT id, parts, smiles, fingerprint FROM nci;
INSERT INTO molecules
    SELECT 1000000 + row_number() OVER (), a.parts + b.parts, a.smiles || '.' || b.smiles, a.fingerprint | b.fingerprint
    FROM generate_series(1, $rounds) round CROSS JOIN nci a JOIN nci b ON b.place = (a.place + round) % $molecules;
ANALYZE molecules;
END
rows=$(ask "SELECT to_char(count(*), 'FM999,999,999') FROM molecules")
ask "SELECT '$rows rows in $(($(date +%s) - loaded)) s, ' || pg_size_pretty(rawsize) || ' in GPU memory' FROM gstore_fdw_chunk_info ORDER BY revision DESC LIMIT 1"

# search NAME CONDITION: the search as a prepared statement, with gstore_fdw.gpu_queries and without it; both must have the
# same rows. Leaves them in NAME.on, where they come from in NAME.ran, and the median times in NAME.on.ms and NAME.off.ms.
search() {
    cat >"$folder/search.sql" <<END
PREPARE search(bit) AS
SELECT id, fingerprint <%> \$1 AS distance, smiles FROM molecules$2
ORDER BY distance, id LIMIT 10;
END
    sed 1d "$folder/search.sql"
    for plan in on off; do
        # A generic plan, or EXPLAIN shows 1024 bits. The median of five.
        sql -At >"$folder/out" <<END
SELECT fingerprint AS q FROM molecules WHERE id = $query \gset
SET plan_cache_mode = force_generic_plan;
SET gstore_fdw.gpu_queries = $plan;
\i $folder/search.sql
\o $folder/$1.$plan
EXECUTE search(:'q');
\o $folder/$1.$plan.explain
EXPLAIN (ANALYZE, COSTS OFF, SUMMARY OFF) EXECUTE search(:'q');
\o /dev/null
\timing on
$(for _ in 1 2 3 4 5; do echo "EXECUTE search(:'q');"; done)
END
        sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' "$folder/out" | sort -n | sed -n 3p >"$folder/$1.$plan.ms"
        [ -s "$folder/$1.$plan.ms" ] || give_up 'psql printed no times'
    done
    echo 'by the local plan, which costs less here' >"$folder/$1.ran"
    ! grep -q 'Ran: on the GPU' "$folder/$1.on.explain" || echo 'on the GPU' >"$folder/$1.ran"
    cmp -s "$folder/$1.on" "$folder/$1.off" || {
        diff "$folder/$1.on" "$folder/$1.off" >&2 || :
        give_up 'the GPU and the local plan have different rows: please report that'
    }
    printf '\n'
    show_rows "$folder/$1.on"
}
show_rows() { awk -F '|' 'BEGIN { print "      id   distance  smiles" } { printf "%8d  %9s  %s\n", $1, $2, substr($0, length($1 $2) + 3) }' "$1"; }

say "The ten most like molecule $query, in SQL on the GPU: <%> is Jaccard's distance, 1 - Tanimoto's similarity"
search all ''
grep -q 'on the GPU' "$folder/all.ran" || {
    cat "$folder/all.on.explain" >&2
    give_up 'the search did not run on the GPU: the plan above and the log tell why; with more rows (ROWS=) the GPU costs less'
}
printf '\nEXPLAIN (ANALYZE) tells where it ran:\n'
sed -n '/GPU: /,/Bytes Moved/p' "$folder/all.on.explain"

say 'Mixtures left out, by a condition like any other'
search some ' WHERE parts = 1'

say 'A token, and what another process reads with it in the very same memory'
token=$(ask "SELECT gstore_export('molecules')")
# compare NAME PROGRAM...: the ten rows must be those of the search in SQL. Its time goes to NAME.ms.
compare() {
    name=$1
    shift
    "$@" "$token" "$query" >"$folder/$name" 2>"$folder/out" || {
        cat "$folder/out" >&2
        give_up "$name cannot search the table"
    }
    cmp -s "$folder/$name" "$folder/all.on" || {
        diff "$folder/$name" "$folder/all.on" >&2 || :
        give_up "$name and SQL have different rows: please report that"
    }
    sed -n 's/.* searched in \([0-9.]*\) ms$/\1/p' "$folder/out" >"$folder/$name.ms"
    echo 'The ten rows are those of the search in SQL.'
}
# shellcheck disable=SC2016 # to be read, not to be expanded
printf '$ gvmem table -n 3 -c id,parts,smiles "$token"\n'
"$build/tools/gvmem" table -n 3 -c id,parts,smiles "$token"
# shellcheck disable=SC2016
printf '\n$ examples/similarity "$token" %s    # the search by a kernel of its own\n' "$query"
compare process "$build/examples/similarity"
# shellcheck disable=SC2016
printf '\n$ python3 examples/similarity.py "$token" %s    # by NumPy, on the CPU\n' "$query"
if python3 tests/python/package.py -c '' 2>"$folder/out"; then
    compare python python3 tests/python/package.py examples/similarity.py
else
    echo "Left out: $(cat "$folder/out")"
fi

show_time() { [ ! -s "$folder/$2.ms" ] || printf '%-62s %9.1f ms\n' "$1" "$(cat "$folder/$2.ms")"; }
say "The times, side by side: the ten of $rows rows, medians of five; all results agree"
show_time "SQL, $(cat "$folder/all.ran")" all.on
show_time '    with gstore_fdw.gpu_queries = off' all.off
show_time "SQL WHERE parts = 1, $(cat "$folder/some.ran")" some.on
show_time '    with gstore_fdw.gpu_queries = off' some.off
show_time 'another process, its kernel (once)' process
show_time 'another process, Python and NumPy (once)' python

say 'Stopping the server; its memory goes with it'
scripts/pg-server.sh stop "$folder/pg"

say 'Two models in two processes, and device memory for one: a keeper, and examples/models.py'
[ "$software" = t ] && mib=64 || mib=1024
"$build/tools/gvmem" keeper start --socket "$keeper" --device-budget "${mib}M" --host-budget $((3 * mib))M >/dev/null
code=77
if python3 tests/python/package.py -c '' 2>"$folder/out"; then
    code=0
    python3 tests/python/package.py examples/models.py "$keeper" "$mib" || code=$?
else
    echo "skipped: $(cat "$folder/out")"
fi
[ "$code" -eq 0 ] || [ "$code" -eq 77 ] || give_up 'the models cannot be swapped: please report that'
"$build/tools/gvmem" keeper stop --socket "$keeper"
cat <<END

That took $(($(date +%s) - began)) s after the build. Next:
  docs/tutorial-queries.md    more SQL on the GPU: filters, joins with GROUP BY, EXPLAIN
  docs/tutorial.md            device memory from C: arrays that grow where they are, sharing, keepers
  docs/python.md              from Python: shared arrays, models, memory that is given up and comes back
  ${1:-build}/tools/gvmem info      devices, the driver behind them, settings
  make help, README.md
END
