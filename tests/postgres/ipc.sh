#!/bin/sh
# shellcheck disable=SC1091,SC2154 # private.sh, and what it sets
# usage: ipc.sh
# CUDA handles between gstore_fdw and another process (ipc_probe.c): a table's handle opens there and
# has the rows that SQL shows, in the format of docs/gstore_format.md; memory of that process is read
# and written by lo_import_gpu and lo_export_gpu, and no byte beside it. Prints TAP. BUILD says where the
# library was built (default build), PG_CONFIG which PostgreSQL.
set -u
here=$(cd "$(dirname "$0")" && pwd)
project=$(cd "$here/../.." && pwd)
BUILD=$(cd "${BUILD:-$project/build}" && pwd) || exit 2
export BUILD
. "$here/private.sh"
private_start ipc 'gstore_fdw.window_size = 1MB'

number=0 code=0
ok() { # WHAT: of the command before
    [ $? -eq 0 ] && result=ok || result='not ok' code=1
    [ "$result" = ok ] || code=1
    number=$((number + 1))
    echo "$result $number - $1"
}
sql() { psql -XAtq -v ON_ERROR_STOP=1 -d postgres "$@" 9>&-; }
sqlstate() { psql -XAtq -v VERBOSITY=sqlstate -d postgres -c "$1" 2>&1 9>&-; }
handle() { sql -c "SELECT encode(gstore_export_ipchandle('$1'), 'hex')"; }
same_rows() { # HANDLE QUERY
    "$private/probe" show "$1" >"$private/shown" 2>&1
    sql -c "$2" >"$private/rows"
    tail -n +2 "$private/shown" | cmp -s - "$private/rows" && [ -s "$private/rows" ] && return 0
    diff "$private/shown" "$private/rows" | head -n 20 | sed 's/^/# /'
    return 1
}
# As the server's user: the software GPU lets a process open the memory of its own user's alone.
as_server() { exec "$project/scripts/pg-owner.sh" "$@"; }
until_true() { # QUERY, for 20 s
    for _ in $(seq 200); do
        [ "$(sql -c "$1")" = t ] && return 0
        sleep 0.1
    done
    return 1
}
gone() { # HANDLE: it does not open any more, within 20 s
    for _ in $(seq 200); do
        "$private/probe" show "$1" >/dev/null 2>&1 || return 0
        sleep 0.1
    done
    return 1
}

# shellcheck disable=SC2086
${CC:-cc} -std=gnu11 -D_GNU_SOURCE -O1 -I"$project" -I"$project/include" "$here/ipc_probe.c" -o "$private/probe" \
    -L"$BUILD" -lgvmem -Wl,-rpath,"$BUILD" >"$private/out" 2>&1 ||
    private_fail 'the probe does not build' "$private/out"
echo 1..24
sql -c 'CREATE EXTENSION gstore_fdw' -c "CREATE FOREIGN TABLE t (a int, b text, c float8, d smallint, e bigint) SERVER gstore_fdw" \
    -c "INSERT INTO t SELECT i, CASE WHEN i % 5 > 0 THEN repeat(chr(97 + i % 26), i % 50) END, i / 4.0, nullif(i % 7, 0), i::bigint << 32 FROM generate_series(1, 200000) i"

# ---- tables
same_rows "$(handle t)" 'SELECT * FROM t'
ok 'handle_of_a_table_opens_elsewhere_with_its_rows'
sql -c 'DELETE FROM t WHERE a % 3 = 0 OR a BETWEEN 50000 AND 120000'
same_rows "$(handle t)" 'SELECT * FROM t'
ok 'handle_of_a_table_with_dead_rows_has_the_others'
sql -c "UPDATE t SET b = repeat('long ', 300000), d = NULL WHERE a IN (1, 199999)"
same_rows "$(handle t)" 'SELECT * FROM t'
ok 'handle_after_update_has_large_bodies'
sql -c 'ALTER FOREIGN TABLE t DROP COLUMN c' -c 'ALTER FOREIGN TABLE t ADD COLUMN f float8' -c "INSERT INTO t VALUES (-1, 'new', 1, 2, 0.5)"
same_rows "$(handle t)" 'SELECT * FROM t'
ok 'handle_after_dropped_and_added_columns_has_them'
sql -c 'DELETE FROM t WHERE a < 190000' -c "SELECT gstore_fdw_compact('t')" >"$private/out"
same_rows "$(handle t)" 'SELECT * FROM t'
ok 'handle_after_compaction_has_the_rows'
sql -c "CREATE FOREIGN TABLE u (a int, n numeric(9,3), m numeric(18,0), b bit(11), t text OPTIONS (length '5'), i int[] OPTIONS (length '3'), f float8[] OPTIONS (length '2'), e int) SERVER gstore_fdw" \
    -c "INSERT INTO u SELECT i, CASE WHEN i % 9 = 0 THEN 'NaN' WHEN i % 5 > 0 THEN i / -7.0 END, i * 12345678901::bigint, CASE WHEN i % 3 > 0 THEN i::bit(11) END, right('0000' || i, 5),
        CASE WHEN i % 4 > 0 THEN ARRAY[i, -i, 7] END, ARRAY[i / 4.0, -i], i FROM generate_series(1, 70001) i"
same_rows "$(handle u)" 'SELECT * FROM u'
ok 'handle_of_columns_of_one_length_opens_elsewhere_with_its_rows'
sql -c 'DELETE FROM u WHERE a % 5 = 1' -c 'ALTER FOREIGN TABLE u ADD late bit(3)'
same_rows "$(handle u)" 'SELECT * FROM u'
ok 'handle_of_columns_of_one_length_with_dead_rows_has_the_others'
sql -c 'DROP FOREIGN TABLE u'
old=$(handle t)
[ ${#old} = 128 ] && [ "$(handle t)" = "$old" ]
ok 'handle_of_a_revision_is_made_once'
sql -c 'INSERT INTO t VALUES (-2)'
for i in 1 2 3 4; do handle t >"$private/handle.$i" & callers="${callers:-} $!"; done
# shellcheck disable=SC2086
wait $callers
[ "$(cat "$private"/handle.? | sort -u | wc -l)" = 1 ] && [ "$(wc -c <"$private/handle.4")" = 129 ]
ok 'handle_asked_for_by_many_at_once_is_made_once'

# An old revision lives, with its copy, as long as a snapshot sees it.
mkfifo "$private/in"
psql -XAtq -d postgres <"$private/in" >"$private/session" 2>&1 9>&- &
session=$!
exec 8>"$private/in"
echo "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT encode(gstore_export_ipchandle('t'), 'hex'); SELECT 'seen';" >&8
for _ in $(seq 200); do grep -q seen "$private/session" && break; sleep 0.1; done
old=$(head -n 1 "$private/session")
sql -c 'SELECT * FROM t' >"$private/before"
sql -c 'DELETE FROM t WHERE a % 2 = 0' -c 'SELECT pg_sleep(1.5)' >/dev/null
"$private/probe" show "$old" 2>&1 | tail -n +2 | cmp -s - "$private/before" && [ "$(handle t)" != "$old" ]
ok 'handle_of_an_old_revision_holds_while_a_snapshot_sees_it'
exec 8>&-
wait "$session"
until_true "SELECT count(*) = 1 FROM gstore_fdw_chunk_info" && gone "$old"
ok 'copy_of_an_old_revision_goes_with_it'

# Revoked: nobody gets the handle any more, and the copy goes when no transaction knows it.
psql -XAtq -d postgres <"$private/in" >"$private/session" 2>&1 9>&- &
session=$!
exec 8>"$private/in"
echo "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT encode(gstore_export_ipchandle('t'), 'hex'); SELECT 'seen';" >&8
for _ in $(seq 200); do grep -q seen "$private/session" && break; sleep 0.1; done
old=$(head -n 1 "$private/session")
sql -c "SELECT gstore_revoke_all('t')" -c 'SELECT pg_sleep(1.5)' >/dev/null
"$private/probe" show "$old" >/dev/null 2>&1 && [ "$(sql -c "SELECT sum(device_copies) > 0 FROM gstore_fdw_keeper_info")" = t ]
ok 'copy_revoked_stays_while_a_transaction_knows_it'
exec 8>&-
wait "$session"
until_true "SELECT sum(device_copies) = 0 FROM gstore_fdw_keeper_info" && gone "$old"
ok 'copy_revoked_goes_with_the_transaction'
for statement in 'REVOKE SELECT ON t FROM pg_monitor' 'DROP OWNED BY ipc_owner' 'DROP FOREIGN TABLE t_dropped'; do
    sql -c 'CREATE FOREIGN TABLE t_dropped (a int) SERVER gstore_fdw' -c 'INSERT INTO t_dropped VALUES (1)' \
        -c 'CREATE ROLE ipc_owner' -c 'GRANT SELECT ON t TO pg_monitor, ipc_owner' 2>>"$private/out"
    old=$(handle t) dropped=$(handle t_dropped)
    case $statement in *dropped) old=$dropped ;; esac
    "$private/probe" show "$old" >/dev/null 2>&1 || break
    sql -c "$statement"
    gone "$old" || break
    ended=$statement
    sql -c 'DROP FOREIGN TABLE IF EXISTS t_dropped' -c 'DROP OWNED BY ipc_owner' -c 'DROP ROLE ipc_owner' 2>>"$private/out"
done
[ "${ended:-}" = 'DROP FOREIGN TABLE t_dropped' ]
ok 'copy_goes_when_privileges_are_revoked_and_tables_dropped'

# Of columns that were dropped: nobody gets the handle any more, and the copy goes once another one is made.
sql -c 'CREATE FOREIGN TABLE t_altered (a int, b text) SERVER gstore_fdw' -c "INSERT INTO t_altered VALUES (1, 'dropped')"
psql -XAtq -d postgres <"$private/in" >"$private/session" 2>&1 9>&- &
session=$!
exec 8>"$private/in"
echo "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 'seen';" >&8
for _ in $(seq 200); do grep -q seen "$private/session" && break; sleep 0.1; done
old=$(handle t_altered)
sql -c 'ALTER FOREIGN TABLE t_altered DROP COLUMN b'
new=$(handle t_altered)
sql -c 'SELECT pg_sleep(1.5)' >/dev/null
"$private/probe" show "$old" >/dev/null 2>&1
kept=$?
exec 8>&-
wait "$session"
[ "$old" != "$new" ] && [ $kept -eq 0 ] && gone "$old" &&
    same_rows "$(handle t_altered)" 'SELECT * FROM t_altered' && [ "$(handle t_altered)" = "$new" ]
ok 'copy_from_before_an_alter_is_replaced_and_goes_with_the_last_transaction'
sql -c 'DROP FOREIGN TABLE t_altered'

# Cancelled or terminated in the middle: neither a copy nor a window is left.
sql -c 'TRUNCATE t' -c "INSERT INTO t SELECT i, repeat('x', 100), i % 100, i FROM generate_series(1, 400000) i" -c 'DELETE FROM t WHERE a % 1000 = 0'
for ms in 3 10 30 60; do sql -c "SET statement_timeout = $ms" -c "SELECT gstore_export_ipchandle('t')" >/dev/null 2>>"$private/cancelled"; done
for pause in 0.02 0.05 0.1; do
    sql -c "SET application_name = 'victim'" -c "SELECT gstore_export_ipchandle('t'), pg_sleep(10)" >/dev/null 2>>"$private/cancelled" &
    victim=$!
    until_true "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'victim' AND query LIKE '%pg_sleep%'"
    sql -c "SELECT pg_sleep($pause), pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim'" >/dev/null
    wait "$victim"
done
grep -q 'statement timeout' "$private/cancelled" && grep -q 'administrator command' "$private/cancelled" && sql -c 'DROP FOREIGN TABLE t' &&
    until_true 'SELECT sum(device_copies) = 0 AND max(windows_in_use) = 0 FROM gstore_fdw_keeper_info'
ok 'export_cancelled_or_terminated_leaves_nothing'

# ---- memory of another program
size=24000000
mkfifo "$private/ask" "$private/answer"
as_server "$private/probe" serve $size <"$private/ask" >"$private/answer" 9>&- &
probe=$!
exec 7>"$private/ask" 6<"$private/answer"
read -r memory <&6
sum() { echo "$1 $2" >&7; read -r answer <&6; echo "$answer"; }
from=$(sum 1234567 10000000) beside=$(sum 22345678 1654322)
sql -c "SELECT lo_import_gpu(0, '\\x$memory', 1234567, 10000000, 7777)" >/dev/null &&
    [ "$(sql -c 'SELECT octet_length(lo_get(7777))')" = 10000000 ] &&
    [ "$(sql -c "SELECT lo_export_gpu(7777, 0, '\\x$memory', 12345678, 10000000)")" = 10000000 ] &&
    [ "$(sum 12345678 10000000)" = "$from" ]
ok 'lo_import_and_lo_export_carry_every_byte'
[ "$(sum 22345678 1654322)" = "$beside" ] && [ "$(sum 1234567 10000000)" = "$from" ]
ok 'lo_export_changes_no_other_byte'
[ "$(sql -c "SELECT lo_from_bytea(7778, '\\x010203')" -c "SELECT lo_export_gpu(7778, 0, '\\x$memory', 0, 2000000)" | tail -n 1)" = 3 ] &&
    [ "$(sum 0 2000000)" = 14 ]
ok 'lo_export_of_a_short_object_zeroes_the_rest_and_tells_its_bytes'
beside=$(sum 5 1000)
[ "$(sql -c "SELECT lo_export_gpu(7777, 0, '\\x$memory', 0, 5)")" = 5 ] && [ "$(sum 5 1000)" = "$beside" ] && [ "$(sum 0 5)" != 14 ]
ok 'lo_export_of_a_long_object_writes_length_bytes'
whole=$(sum 0 $size)
for range in "$size, 1" "0, $((size + 1))" "$((size - 1)), 2" '1, 9223372036854775806'; do
    [ "$(sqlstate "SELECT lo_export_gpu(7777, 0, '\\x$memory', $range)")" = 'ERROR:  22023' ] || break
    [ "$(sqlstate "SELECT lo_import_gpu(0, '\\x$memory', $range)")" = 'ERROR:  22023' ] || break
    checked=$range
done
[ "${checked:-}" = '1, 9223372036854775806' ] && [ "$(sum 0 $size)" = "$whole" ]
ok 'ranges_beyond_the_memory_are_refused_and_change_nothing'
[ "$(sql -c "SELECT lo_import_gpu(0, '\\x$memory', $((size - 1)), 1, 7779)" -c 'SELECT octet_length(lo_get(7779))')" = "7779
1" ]
ok 'last_byte_is_within_the_memory'
state=$(sqlstate "SELECT lo_import_gpu(0, '\\xffff${memory#????}', 0, 1)")
case $state in 'ERROR:  '?????) ! grep -q 'terminated by signal' "$private/log" ;; *) false ;; esac
ok 'handle_with_other_bytes_does_no_harm'
exec 7>&- 6<&-
wait "$probe"
for _ in 1 2 3 4 5; do # the keeper closes what it has open, unless it is asked for it again sooner
    sleep 5
    state=$(sqlstate "SELECT lo_import_gpu(0, '\\x$memory', 0, 1)")
    [ "$state" = 'ERROR:  22023' ] && break
done
[ "$state" = 'ERROR:  22023' ] && [ "$(sql -c 'SELECT 1')" = 1 ]
ok 'handle_of_a_program_that_ended_is_refused'
exit "$code"
