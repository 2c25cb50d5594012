#!/bin/sh
# usage: demo-table.sh [BUILD-FOLDER]
# Molecules in a PostgreSQL table that lives in GPU memory; another process finds similar ones there with
# a kernel, without a copy, and agrees with SQL over an ordinary table. Starts a server of its own
# in a temporary folder and leaves nothing behind.
set -eu
cd "$(dirname "$0")/.."
build=$(cd "${1:-build}" && pwd)
query=${QUERY:-2066} # the molecule to which others are compared, by its number: theophylline
smiles=${SMILES:-}
export BUILD="$build"
# The software GPU, where there is no other, apart from those of other programs.
export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-devices=1,memory=2GiB,instance=demo$$}"

scripts/setup.sh demo

say() { printf '\n==== %s\n' "$1"; }
give_up() {
    echo "demo: $1" >&2
    exit 1
}

folder=$(mktemp -d "${TMPDIR:-/tmp}/gvmem-demo-XXXXXX")
chmod 755 "$folder" # the server is another user's if root runs this
finish() {
    code=$?
    trap - EXIT
    scripts/pg-server.sh stop "$folder/pg" immediate >/dev/null 2>&1 || :
    rm -rf "$folder"
    exit "$code"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP

[ -n "$smiles" ] || smiles=$(find /usr/share/RDKit /usr/share/rdkit -name first_5K.smi 2>/dev/null | head -n 1)
[ -n "$smiles" ] || give_up "there is no first_5K.smi: install rdkit-data, or name a file of SMILES in SMILES="

say "a PostgreSQL server of its own, with the extension"
scripts/pg-server.sh start "$folder/pg"
eval "$(scripts/pg-server.sh env "$folder/pg")"
sql() { psql -X -q -v ON_ERROR_STOP=1 "$@"; }
sql -At -c 'SELECT version()'
sql -c 'CREATE EXTENSION gstore_fdw'
sed -n 's/.*\(GPU memory keeper: .*\)/\1/p' "$folder/pg/log"

say "$(wc -l <"$smiles") molecules (NCI), with fingerprints of 1024 bits, into GPU memory by COPY"
python3 examples/similarity_fingerprints.py "$smiles" >"$folder/rows"
sql <<END
CREATE FOREIGN TABLE molecules (id int, name text, smiles text, signature smallint[])
    SERVER gstore_fdw OPTIONS (pinning '0', format 'pgstrom');
\copy molecules FROM '$folder/rows'
CREATE TABLE molecules_heap AS SELECT * FROM molecules;
END
sql -c 'SELECT id, name, smiles, signature[1:4] AS "signature[1:4]" FROM molecules ORDER BY id LIMIT 5' \
    -c 'SELECT count(*) AS rows, avg(length(smiles))::numeric(5,1) AS "length of SMILES" FROM molecules'
if [ "$(sql -At -c "SELECT to_regclass('gstore_fdw_chunk_info') IS NOT NULL")" = t ]; then
    sql -x -c 'SELECT * FROM gstore_fdw_chunk_info'
fi

say "a token, and what another process sees with it, in the very same memory"
token=$(sql -At -c "SELECT gstore_export('molecules')")
# shellcheck disable=SC2016 # to be read, not to be expanded
printf '$ gvmem table -n 3 -c id,name,smiles %s\n' "$token"
"$build/tools/gvmem" table -n 3 -c id,name,smiles "$token"

say "the ten molecules most like NSC $query, by a GPU kernel in another process (both/either: bits)"
"$build/examples/similarity" "$token" "$query" >"$folder/gpu"
cat "$folder/gpu"

say "the same search in SQL, over an ordinary table"
sql -At >"$folder/sql" <<END
SELECT to_char("both"::float8 / either, 'FM0.000000') || '  ' || lpad("both"::text, 3) || '/' ||
       rpad(either::text, 3) || '  ' || rpad(name, greatest(8, length(name))) || '  ' || smiles
FROM (SELECT m.id, m.name, m.smiles,
             sum(bit_count(((a & b)::int & 65535)::bit(32))) AS "both",
             sum(bit_count(((a | b)::int & 65535)::bit(32))) AS either
      FROM molecules_heap m, molecules_heap q, unnest(m.signature, q.signature) AS words (a, b)
      WHERE q.id = $query
      GROUP BY m.id, m.name, m.smiles) counted
ORDER BY "both"::float8 / either DESC, id
LIMIT 10
END
diff "$folder/gpu" "$folder/sql" || give_up "the GPU and SQL do not agree"
echo 'All ten lines are the same.'

say "the keeper of that memory: its objects are the table's columns"
COLUMNS=140 "$build/tools/gvmem" top --once -s "$folder/pg/data/pg_stat_tmp/gstore.sock"

say "stopping the server; its memory goes with it"
scripts/pg-server.sh stop "$folder/pg"
