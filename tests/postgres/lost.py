#!/usr/bin/env python3
"""Tables in GPU memory that have lost their rows, or never had any: what reads of them say. TAP, a line a case.

usage: lost.py [CASE...]. Each case starts from a working server and leaves one.
"""
import math
import os
import shlex
import signal
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from cases import count, expect_usable, fill, group, main  # noqa: E402
from executor_client import other_server  # noqa: E402
from private import BUILD, START_S, Failed, as_owner, expect, wait_until  # noqa: E402

LOADER = "SELECT {} FROM pg_stat_activity WHERE backend_type = 'gstore_fdw loader' AND wait_event = 'PgSleep'"
MAKE = "CREATE FOREIGN TABLE {} (id int) SERVER gstore_fdw OPTIONS (source '{}'); INSERT INTO {} VALUES (0)"
LOADERS = "SELECT {} FROM pg_stat_activity a JOIN pg_locks l USING (pid) WHERE backend_type = 'gstore_fdw loader' AND mode = 'ShareUpdateExclusiveLock' AND wait_event = 'PgSleep'"
LOST = "SELECT bool_or(lost) FROM gstore_fdw_chunk_info WHERE table_oid = 'ft'::regclass"


def terminate(server):
    pid, ready = server.keeper_pid(), server.log().count("keeper: ready")
    os.kill(pid, signal.SIGTERM)
    server.wait_log("keeper: ready", ready)


def crc32c(data):
    """As PostgreSQL writes it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def restart(server, keeper=True):
    server.stop("fast")
    server.start()
    if keeper:
        server.wait_for("SELECT ready FROM gstore_fdw_keeper_info LIMIT 1")


def wait_recorded(server, *tables):
    """Until the file of tables with rows names these, and no others."""
    path = server.folder / "data/gstore.tables"
    names = [struct.pack("=I", int(server.sql(f"SELECT '{table}'::regclass::oid"))) for table in tables]

    def is_so():
        record = path.read_bytes() if path.exists() else bytes(8)
        return struct.unpack_from("=I", record, 4)[0] == len(names) and all(name in record for name in names)

    wait_until(f"the server has recorded {tables}", is_so)


def stepping_clock(back):
    """To be preloaded: the clock is an hour behind while there is the file."""
    library = back.with_suffix(".so")
    command = [*shlex.split(os.environ.get("CC", "cc")), "-shared", "-fPIC", "-x", "c", "-", "-o", str(library), "-ldl"]
    source = f"""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <sys/time.h>
        #include <unistd.h>
        int gettimeofday(struct timeval *now, void *zone)
        {{
            static int (*ask)(struct timeval *, void *);
            if (ask == 0)
                ask = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
            if (ask(now, zone) != 0)
                return -1;
            if (access("{back}", F_OK) == 0)
                now->tv_sec -= 3600;
            return 0;
        }}"""
    subprocess.run(command, input=source, text=True, check=True)
    return str(library)


@group()
class Lost:
    """Rows that are lost are not taken for rows that never were."""

    def snapshots_from_before_the_loss_fail_and_later_ones_see_an_empty_table(self, server):
        fill(server, 100)
        server.sql("CREATE TABLE heap (id int); CREATE FUNCTION items() RETURNS bigint STABLE LANGUAGE sql AS 'SELECT count(*) FROM ft'")
        fails = [
            "INSERT INTO heap SELECT id FROM ft; COMMIT",
            "SELECT gstore_fdw_nitems('ft')",
            "SELECT gstore_fdw_rawsize('ft')",
            "SELECT gstore_export('ft')",
            "SELECT gstore_export_ipchandle('ft')",
            "SELECT items()",
            "PREPARE p AS SELECT count(*) FROM ft; EXECUTE p",
            "UPDATE ft SET id = 0",
            "DELETE FROM ft",
            "SAVEPOINT a; SELECT count(*) FROM ft",
            "SELECT FROM ft FOR SHARE",
            "SET LOCAL parallel_setup_cost = 0; SET LOCAL min_parallel_table_scan_size = 0; SELECT count(*) FROM ft",
            "EXECUTE q",
            "FETCH 1 FROM c",
            "INSERT INTO ft VALUES (0); SELECT count(*) FROM ft",
        ]
        sessions = []
        for number, _ in enumerate(fails):
            session = server.session()
            session.sql("PREPARE q AS SELECT count(*) FROM ft; BEGIN ISOLATION LEVEL " + ("SERIALIZABLE" if number % 2 else "REPEATABLE READ"))
            expect(session.sql("SELECT count(*) FROM ft"), "100", "rows")
            session.sql("DECLARE c CURSOR FOR SELECT id FROM ft")
            sessions.append(session)
        exporter, importer, cursor, committed, writes = (server.session() for _ in range(5))
        snapshot = exporter.sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()")
        cursor.sql("BEGIN; DECLARE c CURSOR FOR SELECT id FROM ft; DECLARE h SCROLL CURSOR WITH HOLD FOR SELECT id FROM ft; COMMIT; BEGIN; DECLARE c CURSOR FOR SELECT id FROM ft")
        expect(committed.sql("BEGIN; SELECT count(*) FROM ft"), "100", "rows")
        writes.sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM ft")
        terminate(server)
        expect(committed.sql("SELECT count(*) FROM ft; SELECT items(); COMMIT"), "0\n0", "rows of a new snapshot")
        for text, session in zip(fails[:8], sessions[:8]):
            self._fails(session, text)
        expect(server.sql(LOST), "t", "lost")
        server.sql("INSERT INTO ft SELECT generate_series(1, 7)")
        for text, session in zip(fails[8:], sessions[8:]):
            self._fails(session, text, "40001" if text.startswith(("DELETE", "SELECT FROM")) else "55000")
        importer.sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '" + snapshot + "'")
        self._fails(importer, "SELECT count(*) FROM ft")
        expect(cursor.sql("MOVE ALL FROM h; FETCH BACKWARD 1 FROM h"), "100", "a row of a held cursor")
        self._fails(cursor, "FETCH 1 FROM c")
        writes.sql("TRUNCATE ft; INSERT INTO ft VALUES (1); COMMIT")
        expect(count(server), 1, "rows")
        expect(count(server, "heap"), 0, "rows taken from the table")
        exporter.close()
        server.wait_for(LOST, "f")
        server.sql("DROP TABLE heap; DROP FUNCTION items")

    def lost_tables_are_errors_if_so_set_until_they_are_truncated(self, server):
        """After the keeper's end, the server's, and its crash."""
        error = "SET gstore_fdw.lost_tables = error; "
        for lose in (terminate, restart, lambda server: server.kill_and_wait(server.keeper_pid())):
            fill(server, 100)
            server.sql("CREATE FOREIGN TABLE never (id int) SERVER gstore_fdw; CREATE FOREIGN TABLE emptied (id int) SERVER gstore_fdw")
            server.sql("CREATE FOREIGN TABLE dropped (id int) SERVER gstore_fdw; INSERT INTO dropped VALUES (1); INSERT INTO emptied VALUES (1); TRUNCATE emptied")
            server.sql("CREATE FOREIGN TABLE undone (id int) SERVER gstore_fdw")
            server.sql("BEGIN; INSERT INTO undone VALUES (1); ROLLBACK; DROP FOREIGN TABLE dropped")
            server.wait_for("SELECT count(*) FROM gstore_fdw_chunk_info", "1")
            wait_recorded(server, "ft")
            server.sql("ANALYZE ft")
            before = server.log().count("1 table in GPU memory has lost its rows")
            lose(server)
            expect(server.log().count("1 table in GPU memory has lost its rows") > before, True, "the log reports the loss")
            for text in ("SELECT count(*) FROM ft", "SELECT FROM ft FOR UPDATE", "SELECT gstore_fdw_nitems('ft')", "SELECT gstore_export('ft')"):
                expect(server.error(error + text), "55000", "SQLSTATE: " + text)
            for text in ("INSERT INTO ft VALUES (1)", "UPDATE ft SET id = 1", "DELETE FROM ft", "COPY ft FROM '/dev/null'"):
                expect(server.error(error + text), "55000", "SQLSTATE: " + text)
            expect(server.sql(error + "SELECT count(*) FROM never; SELECT count(*) FROM emptied; SELECT count(*) FROM undone"), "0\n0\n0", "rows of tables that lost none")
            expect(count(server), 0, "rows by default")
            expect(server.sql("SELECT table_oid::regclass, pinning, format, rawsize, nitems, lost FROM gstore_fdw_chunk_info"), "ft|||0|0|t", "the view")
            server.sql(error + "BEGIN; TRUNCATE ft; INSERT INTO ft VALUES (1); ROLLBACK")
            expect(server.error(error + "SELECT count(*) FROM ft"), "55000", "SQLSTATE after ROLLBACK")
            expect(server.error(error + "BEGIN; SAVEPOINT a; TRUNCATE ft; ROLLBACK TO a; INSERT INTO ft VALUES (1)"), "55000", "SQLSTATE after ROLLBACK TO")
            expect(server.sql(error + "ANALYZE ft; ALTER FOREIGN TABLE ft ADD COLUMN c int DEFAULT 1; EXPLAIN (COSTS off) SELECT FROM ft"), "Foreign Scan on ft\n  Columns Read: none", "a plan")
            expect(server.sql("SELECT reltuples FROM pg_class WHERE relname = 'ft'"), "100", "rows that the planner counts, after an ANALYZE that left the table out")
            expect(server.sql(error + "BEGIN; TRUNCATE ft; ANALYZE ft; SELECT reltuples FROM pg_class WHERE relname = 'ft'; ROLLBACK"), "0", "rows by ANALYZE after TRUNCATE")
            expect(server.sql(error + "BEGIN; TRUNCATE ft; INSERT INTO ft VALUES (1); SELECT count(*) FROM ft; COMMIT"), "1", "rows")
            expect(server.sql(error + "SELECT count(*) FROM ft"), "1", "rows")
            server.wait_for(LOST, "f")
            fill(server, 10)
            restart(server)
            server.sql(error + "TRUNCATE ft")
            expect(server.sql(error + "SELECT count(*) FROM ft"), "0", "rows of a truncated table")
            fill(server, 10)
            restart(server)
            server.sql("DROP FOREIGN TABLE ft, never, emptied, undone")
            server.wait_for("SELECT count(*) FROM gstore_fdw_chunk_info", "0")

    def database_copied_from_a_template_has_empty_tables_that_lost_nothing(self, server):
        server.sql("CREATE DATABASE model")
        server.sql("CREATE EXTENSION gstore_fdw; CREATE FOREIGN TABLE ft (id int) SERVER gstore_fdw; INSERT INTO ft SELECT generate_series(1, 10)", database="model")
        for number, more in enumerate(("", " STRATEGY file_copy")):
            server.sql(f"CREATE DATABASE copy{number} TEMPLATE model{more}")
            for lose in (lambda server: None, terminate):
                lose(server)
                expect(server.sql("SET gstore_fdw.lost_tables = error; SELECT count(*) FROM ft", database=f"copy{number}"), "0", "rows of the copy")
            server.sql("TRUNCATE ft; INSERT INTO ft SELECT generate_series(1, 10)", database="model")
            server.sql("INSERT INTO ft VALUES (1)", database=f"copy{number}")
            expect(server.sql("SELECT count(*) FROM ft", database="model"), "10", "rows of the template")
            server.sql(f"DROP DATABASE copy{number}")
        server.sql("DROP DATABASE model")

    def server_without_the_library_preloaded_refuses_to_read(self, server):
        fill(server, 10)
        settings = server.folder / "data/postgresql.conf"
        before = settings.read_text()
        settings.write_text(before + "shared_preload_libraries = ''\n")
        restart(server, keeper=False)
        for text in ("SELECT * FROM ft", "SELECT gstore_fdw_nitems('ft')", "SELECT gstore_export('ft')", "INSERT INTO ft VALUES (1)", "ANALYZE ft"):
            expect(server.error(text), "55000", "SQLSTATE: " + text)
        for text in ("SELECT count(*) FROM ft", "SELECT * FROM ft WHERE id = 1", "SELECT * FROM ft ORDER BY id LIMIT 1", "SELECT count(*) FROM ft a JOIN ft b USING (id)", "DELETE FROM ft WHERE id = 1"):
            server.sql("EXPLAIN " + text)
            expect(server.error(text), "55000", "SQLSTATE: " + text)
            expect(server.error("BEGIN ISOLATION LEVEL SERIALIZABLE; " + text), "55000", "SQLSTATE of SERIALIZABLE: " + text)
        server.sql("EXPLAIN SELECT * FROM ft; SELECT gstore_fdw_format('ft'); DROP FOREIGN TABLE ft")
        settings.write_text(before)
        restart(server)
        server.wait_for("SELECT count(*) FROM gstore_fdw_chunk_info", "0")  # though nobody saw the DROP

    def table_dropped_without_a_keeper_is_forgotten(self, server):
        fill(server, 10)
        settings = server.folder / "data/postgresql.conf"
        before = settings.read_text()
        settings.write_text(before + "gstore_fdw.keeper = '/nonexistent'\n")
        restart(server, keeper=False)
        server.wait_for(LOST)
        server.sql("DROP FOREIGN TABLE ft")
        server.wait_for("SELECT count(*) FROM gstore_fdw_chunk_info", "0")
        settings.write_text(before)
        restart(server)
        expect(server.sql("SELECT count(*) FROM gstore_fdw_chunk_info"), "0", "tables that are lost")

    def more_tables_than_the_setting_allows_are_lost_all_the_same(self, server):
        tables = [f"t{i}" for i in range(7)]
        for table in tables:
            server.sql(f"CREATE FOREIGN TABLE {table} (id int) SERVER gstore_fdw; INSERT INTO {table} VALUES (1)")
        settings = server.folder / "data/postgresql.conf"
        before = settings.read_text()
        settings.write_text(before + "gstore_fdw.max_relations = 2\n")
        for lose in (restart, lambda server: server.kill_and_wait(server.keeper_pid()), restart):
            lose(server)
            for table in tables:
                expect(server.error(f"SET gstore_fdw.lost_tables = error; SELECT count(*) FROM {table}"), "55000", f"SQLSTATE: {table}")
            server.sql("TRUNCATE t0; INSERT INTO t0 VALUES (1)")  # the file is written again
            expect(server.sql("SET gstore_fdw.lost_tables = error; SELECT count(*) FROM t0"), "1", "rows")
        server.sql("CREATE FOREIGN TABLE one_more (id int) SERVER gstore_fdw")
        expect(server.error("INSERT INTO one_more VALUES (1)"), "53400", "SQLSTATE: one table more")
        server.sql("DROP FOREIGN TABLE one_more, " + ", ".join(tables))
        settings.write_text(before)
        restart(server)

    def tables_of_a_database_that_is_gone_are_forgotten(self, server):
        """It was dropped while the server ran without the library, or by a standby's primary."""
        path = server.folder / "data/gstore.tables"
        fill(server, 10)
        server.stop("fast")
        first = struct.unpack("<3I", path.read_bytes()[:12])
        own, gone = path.read_bytes()[12:][: 8 * first[1]], struct.pack("<2I", 999999, 16384)
        path.write_bytes(struct.pack("<3I", first[0], first[1] + 1, crc32c(own + gone)) + own + gone)
        server.start()
        wait_until("the record does not name it any more", lambda: gone not in path.read_bytes())
        expect("database 999999 does not exist" in server.log(), False, "a loader was started for it")
        expect(server.error("SET gstore_fdw.lost_tables = error; SELECT count(*) FROM ft"), "55000", "SQLSTATE of another lost table")

    def record_that_grew_after_the_start_names_tables_as_there_is_place(self, server):
        """More than the shared memory was made for: as after a start at which the file could not be read."""
        path = server.folder / "data/gstore.tables"
        fill(server, 10)
        first = struct.unpack("<3I", path.read_bytes()[:12])
        own = path.read_bytes()[12:][: 8 * first[1]]
        keys = own + b"".join(struct.pack("<2I", 1, 1000000 + i) for i in range(20000))
        path.write_bytes(struct.pack("<3I", first[0], len(keys) // 8, crc32c(keys)) + keys)
        server.kill_and_wait(server.keeper_pid())
        expect('file "gstore.tables" names 20001 tables' in server.log(), True, "the log reports the tables that are left out")
        expect(server.error("SET gstore_fdw.lost_tables = error; SELECT count(*) FROM ft"), "55000", "SQLSTATE")
        server.stop("fast")
        path.unlink()
        server.start()
        expect_usable(server, 0)

    def record_that_could_not_be_written_is_written_later(self, server):
        """Though nothing changes any more: a table that was emptied meanwhile is not taken for a lost one. The log has one line."""
        fill(server, 10)
        temporary, said = server.folder / "data/gstore.tables.tmp", 'could not create file "gstore.tables.tmp"'
        tables, before = "SELECT get_byte(pg_read_binary_file('gstore.tables'), 4)", server.log().count(said)
        named = int(server.sql(tables))
        temporary.mkdir()
        server.sql("TRUNCATE ft")
        server.wait_log(said, before)
        time.sleep(1)  # for more tries
        temporary.rmdir()
        server.wait_for(tables, str(named - 1))
        expect(server.log().count(said), before + 1, "lines in the log")
        restart(server)
        expect(server.sql("SET gstore_fdw.lost_tables = error; SELECT count(*) FROM ft"), "0", "rows of the table that was emptied")

    def table_that_was_empty_when_the_record_was_written_is_in_the_next_one(self, server):
        """An older snapshot keeps what the server knows of it, and it was recorded before."""
        fill(server, 10)
        server.sql("CREATE FOREIGN TABLE another (id int) SERVER gstore_fdw")
        old = server.session()
        old.sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current()")
        server.sql("TRUNCATE ft")
        terminate(server)
        server.sql("INSERT INTO another VALUES (1)")
        wait_recorded(server, "another")
        server.sql("INSERT INTO ft VALUES (1)")
        wait_recorded(server, "another", "ft")
        old.close()
        restart(server)
        expect(server.error("SET gstore_fdw.lost_tables = error; SELECT count(*) FROM ft"), "55000", "SQLSTATE")
        server.sql("DROP FOREIGN TABLE another")

    def damaged_record_of_tables_is_reported_and_the_server_starts(self, server):
        path = server.folder / "data/gstore.tables"
        for damage in (lambda text: text[:-1], lambda text: text + b"x", lambda text: b"x" + text[1:], lambda text: text[:12] + b"xxxx" + text[16:], lambda text: b""):
            fill(server, 10)
            server.stop("fast")
            path.write_bytes(damage(path.read_bytes()))
            before = server.log().count('file "gstore.tables" is damaged')
            server.start()
            expect(server.log().count('file "gstore.tables" is damaged'), before + 1, "lines in the log")
            expect(server.sql("SET gstore_fdw.lost_tables = error; SELECT count(*) FROM ft"), "0", "rows")
            expect_usable(server, 0)

    def record_of_tables_of_another_version_is_refused_by_name(self, server):
        path = server.folder / "data/gstore.tables"
        fill(server, 10)
        server.stop("fast")
        text = path.read_bytes()
        expect(text[:4], b"GST1", "the file's name and version")
        path.write_bytes(b"GST2" + text[4:])
        server.start()
        expect('file "gstore.tables" is of another version of gstore_fdw' in server.log(), True, "the log names the reason")
        expect_usable(server, 0)

    def _fails(self, session, text, state="55000"):
        session.begin(text)
        try:
            said = session.error()
        except Failed as error:
            raise Failed(f"{text}: {error}") from None
        expect(said, state, "SQLSTATE: " + text)


@group()
class Source:
    """Tables with the option "source" are loaded again."""

    def tables_are_loaded_from_their_sources_after_a_loss(self, server):
        """As their owners, who may do nothing more by it than without; a table that depends on another one comes after it."""
        server.sql("CREATE ROLE owner; GRANT ALL ON SCHEMA public TO owner; GRANT USAGE ON FOREIGN SERVER gstore_fdw TO owner")
        server.sql("SET ROLE owner; CREATE TABLE heap AS SELECT i AS id FROM generate_series(1, 1000) i")
        server.sql(
            "SET ROLE owner; CREATE FOREIGN TABLE second (n bigint) SERVER gstore_fdw OPTIONS (source 'SELECT count(*) FROM public.first');"
            "CREATE FOREIGN TABLE first (id int, who name) SERVER gstore_fdw OPTIONS (source 'SELECT id, current_user FROM public.heap');"
            "CREATE FOREIGN TABLE plain (id int) SERVER gstore_fdw; CREATE FOREIGN TABLE emptied (id int) SERVER gstore_fdw OPTIONS (source 'SELECT 1')"
        )
        server.sql("INSERT INTO first VALUES (0); INSERT INTO second VALUES (0); INSERT INTO plain VALUES (0); INSERT INTO emptied VALUES (0); TRUNCATE emptied")
        server.wait_for("SELECT count(*) FROM gstore_fdw_chunk_info", "3")
        wait_recorded(server, "first", "second", "plain")
        for lose in (restart, terminate, lambda server: server.kill_and_wait(server.keeper_pid())):
            loaded = 'loaded 1000 rows into table "public.first" in GPU memory of database "postgres" from its source'
            before = server.log().count(loaded)
            lose(server)
            server.wait_for("SELECT max(n) FROM second", "1000")
            expect(server.log().count(loaded), before + 1, "lines in the log")
            expect(server.sql("SELECT count(*), sum(id), min(who), max(who) FROM first"), "1000|500500|owner|owner", "rows")
            expect(server.sql("SELECT count(*) FROM emptied"), "0", "rows of a table that had none")
            expect(server.sql("SET gstore_fdw.lost_tables = error; SELECT count(*) FROM first"), "1000", "rows")
            expect(server.error("SET gstore_fdw.lost_tables = error; SELECT count(*) FROM plain"), "55000", "SQLSTATE of a table without a source")
        server.sql("DROP TABLE heap; DROP FOREIGN TABLE first, second, plain, emptied; REVOKE ALL ON SCHEMA public FROM owner; REVOKE ALL ON FOREIGN SERVER gstore_fdw FROM owner; DROP ROLE owner")

    def readers_wait_for_the_source_if_so_set(self, server):
        server.sql("CREATE TABLE gate (id int); INSERT INTO gate VALUES (1), (2)")
        server.sql("CREATE FOREIGN TABLE ft (id int) SERVER gstore_fdw OPTIONS (source 'SELECT id FROM public.gate'); INSERT INTO ft VALUES (0)")
        holder = server.session()
        holder.sql("BEGIN; LOCK gate")
        terminate(server)
        server.wait_for("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")
        sets = "SET gstore_fdw.wait_for_source = on; "
        expect(count(server), 0, "rows for who does not wait")
        expect(server.error(sets + "SET statement_timeout = '200ms'; SELECT count(*) FROM ft"), "57014", "SQLSTATE")
        server.sql("CREATE TABLE heap (id int, v int); INSERT INTO heap VALUES (1, 0)")
        reader, repeatable, writer, joiner, late, deleter = (server.session() for _ in range(6))
        calls = ["SELECT gstore_fdw_nitems('ft')", "SELECT gstore_fdw_rawsize('ft') > 0", "SELECT gstore_export('ft') IS NOT NULL", "SELECT gstore_export_ipchandle('ft') IS NOT NULL"]
        functions = [server.session() for _ in calls]
        late.sql(sets + "BEGIN ISOLATION LEVEL REPEATABLE READ")
        for session, text in ((reader, "SELECT count(*) FROM ft"), (late, "SELECT gstore_fdw_nitems('ft')"), (repeatable, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM ft"), (joiner, "UPDATE heap SET v = v + 1 FROM ft WHERE ft.id = heap.id RETURNING v"), (writer, "UPDATE ft SET id = id RETURNING id"), (deleter, "BEGIN; DELETE FROM ft WHERE id NOT IN (SELECT min(id) FROM ft GROUP BY id > 0) RETURNING id")) + tuple(zip(functions, calls)):
            session.sql(sets)
            session.begin(text)
        server.wait_for("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND query ~ 'FROM ft|UPDATE ft|gstore_'", "10")
        server.sql("UPDATE heap SET v = 10")
        holder.sql("COMMIT")
        expect(deleter.finish(), "2", "a row that was deleted for what another scan of the statement saw")
        deleter.sql("ROLLBACK")
        expect(reader.finish(), "2", "rows for who waits")
        expect(repeatable.error(), "40001", "SQLSTATE")
        expect(late.error(), "40001", "SQLSTATE of a function")
        expect([session.finish() for session in functions], ["2", "t", "t", "t"], "what functions say after they waited")
        expect(sorted(writer.finish().split()), ["1", "2"], "rows that were updated")
        expect(joiner.finish(), "11", "a row that was changed meanwhile, and joined again")
        server.sql("ALTER FOREIGN TABLE ft OPTIONS (SET source 'SELECT 7'); DROP FOREIGN TABLE ft; DROP TABLE gate, heap")

    def statement_that_waited_sees_one_state_of_the_table(self, server):
        server.sql("CREATE TABLE gate AS SELECT generate_series(1, 100) AS id")
        server.sql("CREATE FOREIGN TABLE ft (id int, v real[] OPTIONS (length '1')) SERVER gstore_fdw OPTIONS (source 'SELECT id, ARRAY[id] FROM public.gate'); INSERT INTO ft VALUES (0)")
        server.sql("CREATE TABLE parent (id int, v real[]); ALTER FOREIGN TABLE ft INHERIT parent")
        server.sql("CREATE TABLE heap AS SELECT generate_series(1, 100000) AS id; ANALYZE heap")
        parallel = "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0"
        many = "(SELECT array_agg(n) FROM generate_series(-2000, 1998, 2) n)"  # more than a program on the GPU has room for, which is known when it runs
        texts = {
            "by the local plan": f"SELECT count(*) FROM ft WHERE id = ANY ({many}::int[])",
            "by the local plan, in an order": f"SELECT string_agg(id::text, ' ') FROM (SELECT id FROM ft WHERE id = ANY ({many}::int[]) ORDER BY id DESC LIMIT 3) s",
            "again and again": "SELECT string_agg((SELECT count(*) FROM ft WHERE id > n)::text, ' ' ORDER BY n) FROM generate_series(97, 101) n",
            "again and again, in an order": "SELECT string_agg((SELECT id FROM ft WHERE id > n ORDER BY id LIMIT 1)::text, ' ' ORDER BY n) FROM generate_series(97, 101) n",
            "twice": "SELECT count(*), (SELECT count(*) FROM ft), (SELECT sum(id) FROM ft WHERE id < 3) FROM ft",
            "near vectors, by a statement for each": "SELECT count(DISTINCT query) FROM gstore_search(NULL::ft, 'v', '{{1},{2},{3}}'::real[], 1, '<->', 'id::text ~ ''.''')",
            "near vectors, 1024 at a time": "SELECT count(DISTINCT query) FROM gstore_search(NULL::ft, 'v', (SELECT array_agg(ARRAY[n::real]) FROM generate_series(1, 1100) n), 1, '<->')",
            "near vectors, by a call for each": "SELECT count(query) FROM generate_series(1, 3) n, gstore_search(NULL::ft, 'v', ARRAY[n::real], 1, '<->')",
            "of a child near vectors": "SELECT count(DISTINCT query) FROM gstore_search(NULL::parent, 'v', '{{1},{2},{3}}'::real[], 1, '<->')",
            "in a parallel plan": f"{parallel}; SET gstore_fdw.gpu_joins = off; SELECT count(*) FROM heap JOIN ft USING (id)",
            "in a parallel plan, joined on the GPU": f"{parallel}; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_nestloop = off; SELECT count(*) FROM heap JOIN ft USING (id)",
        }
        sessions = [server.session() for _ in texts]
        for session in sessions:
            session.sql("SET gstore_fdw.wait_for_source = on; SET gstore_fdw.gpu_startup_cost = 0; SET gstore_fdw.gpu_instruction_cost = 0; SET enable_sort = off")
        for local in ("on", "off"):
            for session in sessions:
                session.sql(f"SET gstore_fdw.gpu_queries = {local}")
            holder = server.session()
            holder.sql("BEGIN; LOCK gate")
            terminate(server)
            server.wait_for("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")
            for session, text in zip(sessions, texts.values()):  # the loader waits for its lock for 10 s
                session.begin(text)
            server.wait_for("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND query ~ '(FROM|JOIN) ft|gstore_search'", str(len(texts)))
            holder.sql("COMMIT")
            for session, name, rows in zip(sessions, texts, ("50", "100 98 96", "3 2 1 0 0", "98 99 100", "100|100|3", "3", "1100", "3", "3", "100", "100")):
                expect(session.finish(), rows, f"rows {name}, queries on the GPU {local}")
        server.sql("DROP FOREIGN TABLE ft; DROP TABLE gate, parent, heap")

    def rows_that_came_while_a_statement_ran_are_seen(self, server):
        server.sql("CREATE TABLE gate AS SELECT generate_series(1, 100) AS id")
        server.sql("CREATE FOREIGN TABLE ft (id int) SERVER gstore_fdw OPTIONS (source 'SELECT id FROM public.gate'); INSERT INTO ft VALUES (0)")
        server.sql("CREATE FOREIGN TABLE bare (id int) SERVER gstore_fdw; INSERT INTO bare VALUES (0)")
        holder, early, describes, reader, repeatable, replaces, other = (server.session() for _ in range(7))
        holder.sql("SELECT pg_advisory_lock(1); BEGIN; LOCK gate")
        counts, waiting = "(SELECT count(*) FROM ft), (SELECT count(*) FROM ft WHERE id > 50)", "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        for session, what in ((early, counts), (describes, "gstore_fdw_nitems('bare')")):
            session.sql("SET gstore_fdw.wait_for_source = on")
            session.begin(f"SELECT {what} FROM pg_advisory_lock_shared(1)")
        server.wait_for(waiting, "2")
        terminate(server)
        server.wait_for("SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'relation' AND NOT granted")
        for session, wait in ((reader, "on"), (repeatable, "on"), (replaces, "on"), (other, "off")):
            session.sql(f"SET gstore_fdw.wait_for_source = {wait}")
        for session in (repeatable, replaces, other):
            session.sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM gstore_fdw_keeper_info")
        reader.begin(f"SELECT {counts} FROM pg_advisory_lock_shared(1)")
        server.wait_for(waiting, "3")
        holder.sql("COMMIT")
        server.wait_for("SELECT count(*) FROM ft", "100")
        holder.sql("SELECT pg_advisory_unlock(1)")
        expect(reader.finish(), "100|50", "rows for who would have waited")
        expect(early.finish(), "100|50", "rows for a statement that began before the loss")
        expect(describes.error(), "55000", "SQLSTATE of a function in a statement that began before the loss of a table without a source")
        expect(replaces.sql("TRUNCATE ft; INSERT INTO ft VALUES (1); SELECT count(*) FROM ft; ROLLBACK"), "1", "rows that replace those that have come")
        expect(other.sql("SELECT count(*) FROM ft; COMMIT"), "0", "rows for who would not")
        repeatable.begin("SELECT count(*) FROM ft")
        expect(repeatable.error(), "40001", "SQLSTATE")
        server.wait_for("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'gstore_fdw loader'", "0")
        server.sql("ALTER FOREIGN TABLE bare OPTIONS (source 'SELECT 1')")
        self._sees_none_of_others(server, "bare")
        server.sql("DROP FOREIGN TABLE ft, bare; DROP TABLE gate")

    def _sees_none_of_others(self, server, table):
        """A transaction that would wait, of a lost table that is not loaded, though it has a source."""
        session, count_rows = server.session(), f"SELECT count(*) FROM {table}"
        expect(session.sql(f"SET gstore_fdw.wait_for_source = on; BEGIN ISOLATION LEVEL REPEATABLE READ; {count_rows}"), "0", "rows of the lost table")
        server.sql(f"INSERT INTO {table} VALUES (1)")
        expect(session.sql(f"{count_rows}; COMMIT"), "0", "rows of the lost table, to which others have added some")

    def joined_tables_that_came_one_after_the_other_are_seen_together(self, server):
        for name in ("a", "b"):
            server.sql(f"CREATE TABLE gate_{name} AS SELECT generate_series(1, 100) AS id")
            server.sql(f"CREATE FOREIGN TABLE ft_{name} (id int) SERVER gstore_fdw OPTIONS (source 'SELECT id FROM public.gate_{name}'); INSERT INTO ft_{name} VALUES (0)")
        holders = {name: server.session() for name in ("a", "b")}
        for name, holder in holders.items():
            holder.sql(f"BEGIN; LOCK gate_{name}")
        terminate(server)
        waits = "SELECT relation::regclass FROM pg_locks WHERE NOT granted"
        server.wait_for(f"SELECT count(*) FROM ({waits}) w", "1")
        first = server.sql(waits)[-1]
        last = "ab".replace(first, "")
        reader = server.session()
        reader.sql("SET gstore_fdw.wait_for_source = on; SET gstore_fdw.gpu_startup_cost = 0; SET gstore_fdw.gpu_instruction_cost = 0; SET enable_async_append = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_nestloop = off")
        text = f"SELECT count(*) FROM ft_{first} UNION ALL SELECT count(x.id) FROM ft_{last} x LEFT JOIN ft_{first} y ON x.id = y.id"
        expect("GPU Join: " in reader.sql("EXPLAIN (COSTS OFF) " + text), True, "the join is on the GPU")
        reader.begin(text)
        server.wait_for("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND query ~ 'UNION ALL'", "1")
        holders[first].sql("COMMIT")
        server.wait_for(f"SELECT count(*) FROM ({waits} AND relation = 'gate_{last}'::regclass) w", "1")
        holders[last].sql("COMMIT")
        expect(reader.finish().split(), ["100", "100"], "rows of the first table, and of the join")
        server.sql("DROP FOREIGN TABLE ft_a, ft_b; DROP TABLE gate_a, gate_b")

    def load_that_fails_leaves_the_table_lost_for_who_has_waited(self, server):
        server.sql("CREATE TABLE gate (id int); CREATE FOREIGN TABLE ft (id int) SERVER gstore_fdw OPTIONS (source 'SELECT id FROM public.gate'); INSERT INTO ft VALUES (0)")
        holder = server.session()
        holder.sql("BEGIN; DROP TABLE gate")
        terminate(server)
        server.wait_for("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")
        waits = [(server.session(), level, what) for level in ("READ COMMITTED", "REPEATABLE READ") for what in ("count(*) FROM ft", "gstore_fdw_nitems('ft')")]
        for session, level, what in waits:
            session.sql("SET gstore_fdw.wait_for_source = on")
            session.begin(f"BEGIN ISOLATION LEVEL {level}; SELECT {what}; COMMIT")
        server.wait_for("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND query ~ 'FROM ft|nitems'", "4")
        holder.sql("COMMIT")
        for session, level, what in waits:
            expect(session.finish(), "0", f"{level}: {what}")
        server.sql("DROP FOREIGN TABLE ft")

    def source_that_fails_is_logged_once_and_tried_again(self, server):
        server.sql("CREATE FOREIGN TABLE ft (id int) SERVER gstore_fdw OPTIONS (source 'SELECT id FROM public.later'); INSERT INTO ft VALUES (0)")
        server.sql("CREATE FOREIGN TABLE failed (id int) SERVER gstore_fdw OPTIONS (source 'SELECT id FROM public.never'); INSERT INTO failed VALUES (0)")
        said = 'relation "public.later" does not exist'
        before = server.log().count(said)
        terminate(server)
        server.wait_log(said, before)
        hints = server.log().count("HINT:  Set gstore_fdw.wait_for_source = on to wait until it is loaded from its source.")
        expect(server.error("SET gstore_fdw.lost_tables = error; SELECT count(*) FROM ft"), "55000", "SQLSTATE")
        expect(server.log().count("HINT:  Set gstore_fdw.wait_for_source = on to wait until it is loaded from its source."), hints + 1, "hints in the log")
        time.sleep(4)  # for two more tries
        expect(server.log().count(said), before + 1, "lines in the log")
        expect('loading from its source table "public.ft" in GPU memory' in server.log(), True, "the table's name in the log")
        expect(server.sql("SET gstore_fdw.wait_for_source = on; SELECT count(*) FROM ft"), "0", "rows of a table that cannot be loaded")
        self._sees_none_of_others(server, "failed")
        server.sql("CREATE TABLE later AS SELECT 1 AS id")
        server.wait_for("SELECT count(*) FROM ft", "1")
        server.sql("DROP FOREIGN TABLE ft, failed; DROP TABLE later")

    def source_gives_what_columns_can_be_given(self, server):
        """Neither generated columns nor those behind it; of a database whose transactions do not write."""
        server.sql(
            "CREATE FOREIGN TABLE given (id int GENERATED ALWAYS AS IDENTITY, twice int GENERATED ALWAYS AS (n * 2) STORED, n int, rest int DEFAULT 9)"
            " SERVER gstore_fdw OPTIONS (source 'SELECT 5, 7'); INSERT INTO given (n) VALUES (1); ALTER DATABASE postgres SET default_transaction_read_only = on"
        )
        terminate(server)
        server.wait_for("SELECT string_agg(given::text, ' ') FROM given", "(5,14,7,9)")
        server.sql("BEGIN READ WRITE; ALTER DATABASE postgres RESET default_transaction_read_only; DROP FOREIGN TABLE given; COMMIT")

    def source_whose_process_crashes_is_tried_later_each_time(self, server):
        """It ends all others at each try."""
        server.sql("CREATE FOREIGN TABLE ft (id int) SERVER gstore_fdw OPTIONS (source 'SELECT 1 FROM pg_sleep(1000)'); INSERT INTO ft VALUES (0)")
        wait_recorded(server, "ft")
        start = time.monotonic()
        terminate(server)
        for delay_s in (0, 2, 4):
            server.wait_for(LOADER.format("count(*)"), "1")
            expect(time.monotonic() - start >= delay_s, True, f"a load after {time.monotonic() - start:.1f} s, {delay_s} s after the restart")
            pid = int(server.sql(LOADER.format("pid")))
            start = time.monotonic()  # the delay begins before recovery does
            server.kill_and_wait(pid)
        server.sql("DROP FOREIGN TABLE ft")

    def worker_without_shared_memory_goes_on_and_tables_stay(self, server):
        """What deletions need of it in the end is not there: they stay where they are meanwhile."""
        revisions, said = "SELECT count(*) FROM gstore_fdw_chunk_info WHERE table_oid = '{}'::regclass", "could not resize shared memory segment"
        server.sql("CREATE FOREIGN TABLE bits (x bool) SERVER gstore_fdw OPTIONS (format 'arrow'); INSERT INTO bits SELECT true FROM generate_series(1, 16000000)")
        fill(server)
        keeper, before = server.keeper_pid(), server.log().count(said)
        subprocess.run(as_owner(["prlimit", f"--pid={keeper}", "--fsize=1048576:"]), check=True)
        server.sql("DELETE FROM bits WHERE ctid = '(0,1)'")
        server.wait_log(said, before)
        server.sql("DELETE FROM ft WHERE id = 1")
        server.wait_for(revisions.format("ft"), "1")
        expect(server.sql("SELECT count(*) FROM bits"), "15999999", "rows of the table whose deletions have no memory")
        time.sleep(3)
        expect(server.log().count(said), before + 1, "lines in the log")
        subprocess.run(as_owner(["prlimit", f"--pid={keeper}", "--fsize=unlimited:"]), check=True)
        server.wait_for(revisions.format("bits"), "1")
        expect(server.sql("SELECT count(*) FROM bits"), "15999999", "rows with memory")
        expect(server.keeper_pid(), keeper, "the worker")
        server.sql("DROP FOREIGN TABLE bits, ft")

    def load_is_ended_by_no_role_but_the_owners(self, server):
        """PostgreSQL takes the lock of CREATE TRIGGER before it looks at rights."""
        server.sql("CREATE ROLE stranger LOGIN; CREATE ROLE owner LOGIN; GRANT CREATE ON SCHEMA public TO owner; GRANT USAGE ON FOREIGN SERVER gstore_fdw TO owner")
        server.sql("SET ROLE owner; " + MAKE.format("ft", "SELECT 1 FROM pg_sleep(5)", "ft"))
        terminate(server)
        server.wait_for(LOADER.format("count(*)"), "1")
        pid = server.sql(LOADER.format("pid"))
        stranger = server.session(database="dbname=postgres user=stranger")
        stranger.begin("CREATE TRIGGER t BEFORE INSERT ON ft FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()")
        server.wait_for(f"SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = {stranger.pid}", "t")
        time.sleep(3)
        expect(server.sql(LOADER.format("pid")), pid, "the load beside a stranger that waits")
        server.wait_for("SELECT id FROM ft", "1")
        expect(stranger.error(), "42501", "the stranger's trigger")
        server.sql("ALTER FOREIGN TABLE ft OPTIONS (SET source 'SELECT 1 FROM pg_sleep(1000)')")
        terminate(server)
        server.wait_for(LOADER.format("count(*)"), "1")
        owner = server.session(database="dbname=postgres user=owner")
        owner.begin("DROP FOREIGN TABLE ft")
        server.wait_for("SELECT to_regclass('ft') IS NULL")
        owner.finish()
        owner.close()
        server.sql("DROP OWNED BY owner; DROP ROLE owner, stranger")

    def partitions_come_and_go_without_a_look_at_rows(self, server):
        """DETACH leaves a CHECK, by which ATTACH knows where the rows are: neither waits for a keeper that does not answer."""
        server.sql("CREATE TABLE parent (id int) PARTITION BY RANGE (id); CREATE FOREIGN TABLE part (id int) SERVER gstore_fdw; INSERT INTO part SELECT generate_series(1, 1000)")
        server.sql("ALTER TABLE parent ATTACH PARTITION part FOR VALUES FROM (0) TO (1001)")
        keeper = server.keeper_pid()
        os.kill(keeper, signal.SIGSTOP)
        try:
            server.sql("ALTER TABLE parent DETACH PARTITION part CONCURRENTLY", timeout=START_S)
            server.sql("ALTER TABLE parent ATTACH PARTITION part FOR VALUES FROM (0) TO (1001)", timeout=START_S)
        finally:
            os.kill(keeper, signal.SIGCONT)
        expect(server.sql("SELECT count(*) FROM parent"), "1000", "rows")
        server.sql("DROP TABLE parent")

    def source_can_change_neither_roles_nor_settings(self, server):
        server.sql("CREATE ROLE owner; CREATE SCHEMA own AUTHORIZATION owner; GRANT USAGE ON FOREIGN SERVER gstore_fdw TO owner")
        server.sql("SET ROLE owner; CREATE FUNCTION own.f(what text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE what; RETURN 1; END $$")
        for number, what in enumerate(("RESET ROLE", "SET SESSION AUTHORIZATION postgres", "CREATE TEMP TABLE t (id int)", "LISTEN x")):
            server.sql(f"SET ROLE owner; CREATE FOREIGN TABLE own.t{number} (id int) SERVER gstore_fdw OPTIONS (source $$SELECT own.f('{what}')$$); INSERT INTO own.t{number} VALUES (0)")
        before = server.log().count("within security-restricted operation")
        terminate(server)
        server.wait_log("within security-restricted operation", before + 3)
        server.sql("DROP SCHEMA own CASCADE; REVOKE ALL ON FOREIGN SERVER gstore_fdw FROM owner; DROP ROLE owner")

    def database_is_dropped_while_a_source_runs(self, server):
        server.sql("CREATE DATABASE other")
        server.sql("CREATE EXTENSION gstore_fdw; CREATE FOREIGN TABLE ft (id int) SERVER gstore_fdw OPTIONS (source 'SELECT 1 FROM pg_sleep(100)'); INSERT INTO ft VALUES (0)", database="other")
        terminate(server)
        server.wait_for("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'gstore_fdw loader' AND wait_event = 'PgSleep'", "1")
        server.sql("DROP DATABASE other")
        server.wait_for("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'gstore_fdw loader'", "0")

    def source_that_does_not_end_holds_up_tables_of_no_other_owner(self, server):
        """Tables of others in the same database, and in another one."""
        sleeping = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'gstore_fdw loader' AND wait_event = 'PgSleep'"
        server.sql("CREATE ROLE endless; GRANT CREATE ON SCHEMA public TO endless; GRANT USAGE ON FOREIGN SERVER gstore_fdw TO endless")
        server.sql("CREATE DATABASE other")
        server.sql("CREATE EXTENSION gstore_fdw; " + MAKE.format("ft", "SELECT id FROM public.later", "ft"), database="other")
        endless = "first, second, third, fourth"
        for name in endless.split(", "):
            server.sql("SET ROLE endless; " + MAKE.format(name, "SELECT 1 FROM pg_sleep(10000)", name))
        server.sql(MAKE.format("ft", "SELECT id FROM public.later", "ft"))
        server.sql("CREATE SEQUENCE tries")
        failing = [f"failing{i}" for i in range(8)]  # of any place among the others
        for name in failing:
            server.sql(MAKE.format(name, "SELECT 1 / (nextval(''public.tries'') * 0)", name))
        terminate(server)
        server.wait_for(sleeping, "1")
        for database in ("postgres", "other"):
            server.sql("CREATE TABLE later AS SELECT 7 AS id", database=database)  # without it the source fails
            deadline = time.monotonic() + START_S
            while server.sql("SELECT sum(id) FROM ft", database=database) != "7":
                expect(time.monotonic() < deadline, True, f"the table in {database} is loaded")
                time.sleep(0.1)
        expect(server.sql(sleeping), "1", "loads of the owner whose sources do not end")
        before = int(server.sql("SELECT last_value FROM tries"))
        time.sleep(10)  # a slow machine tries less
        tries = int(server.sql("SELECT last_value FROM tries")) - before
        expect(tries <= 4 * len(failing), True, f"delays between tries, of which there were {tries}")
        server.sql("DROP FOREIGN TABLE " + ", ".join(failing) + "; DROP SEQUENCE tries")
        loader, loading = server.sql(LOADERS.format("pid, relation::regclass")).split("|")
        writer = server.session()
        writer.begin(f"INSERT INTO {loading} VALUES (1)")
        server.wait_for(f"SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = {writer.pid}")
        time.sleep(3)
        expect(server.sql(LOADERS.format("pid")), loader, "the loader that a writer waits for")
        server.sql(f"SET ROLE endless; DROP FOREIGN TABLE {endless}")
        writer.finish()
        writer.close()
        server.sql("DROP DATABASE other")
        server.sql("DROP FOREIGN TABLE ft; DROP TABLE later; DROP OWNED BY endless; DROP ROLE endless")

    def source_that_fails_is_tried_no_sooner_as_another_owner_loads(self, server):
        """The end of each of the other's loads is the end of what its other tables have waited for."""
        server.sql("CREATE ROLE slow; GRANT CREATE ON SCHEMA public TO slow; GRANT USAGE ON FOREIGN SERVER gstore_fdw TO slow; CREATE SEQUENCE tries")
        names = [f"slow{i}" for i in range(16)]
        for name in names:
            server.sql("SET ROLE slow; " + MAKE.format(name, "SELECT 1 FROM pg_sleep(1)", name))
        server.sql(MAKE.format("failing", "SELECT 1 / (nextval(''public.tries'') * 0)", "failing"))
        start = time.monotonic()
        terminate(server)
        for name in names:
            server.wait_for(f"SELECT sum(id) FROM {name}", "1")
        tries, passed_s = int(server.sql("SELECT last_value FROM tries")), time.monotonic() - start
        expect(tries <= math.log2(passed_s + 2), True, f"{tries} tries in {passed_s:.0f} s are 2 s, 4 s and so on apart")
        server.sql(f"DROP FOREIGN TABLE failing, {', '.join(names)}; DROP SEQUENCE tries; DROP OWNED BY slow; DROP ROLE slow")

    def table_that_is_dropped_while_it_is_loaded_keeps_no_other_one_of_its_owner_waiting(self, server):
        server.sql("CREATE SEQUENCE turns")
        names = ["first", "second", "third"]
        for name in names:
            server.sql(MAKE.format(name, "SELECT CASE nextval(''public.turns'') WHEN 1 THEN (SELECT 1 FROM pg_sleep(10000)) ELSE 7 END", name))
        terminate(server)
        server.wait_for(LOADERS.format("count(*)"), "1")
        time.sleep(5)  # for another loader, which finds that the owner has one
        names.remove(loading := server.sql(LOADERS.format("relation::regclass")))
        start = time.monotonic()
        server.sql(f"DROP FOREIGN TABLE {loading}")
        for name in names:
            server.wait_for(f"SELECT sum(id) FROM {name}", "7")
        expect(time.monotonic() - start < 40, True, "sooner than without its end")
        server.sql(f"DROP FOREIGN TABLE {', '.join(names)}; DROP SEQUENCE turns")

    def clock_that_steps_back_delays_no_load(self, _):
        back = BUILD / f"postgres-run/back.{os.getpid()}"
        with other_server(LD_PRELOAD=stepping_clock(back)) as server:
            server.sql(MAKE.format("ft", "SELECT id FROM public.later", "ft"))
            terminate(server)
            server.wait_log('relation "public.later" does not exist')
            back.touch()
            try:
                server.sql("CREATE TABLE later AS SELECT 7 AS id")
                server.wait_for("SELECT sum(id) FROM ft", "7")
            finally:
                back.unlink()

    def sources_that_are_no_query_are_refused(self, server):
        for text in ("nonsense", "", "SELECT 1; SELECT 2", "DELETE FROM x", "SELECT 1 INTO x"):
            state = server.error(f"CREATE FOREIGN TABLE no (id int) SERVER gstore_fdw OPTIONS (source '{text}')")
            expect(state, "42601" if text == "nonsense" else "HV024", "SQLSTATE: " + text)


if __name__ == "__main__":
    sys.exit(main())
