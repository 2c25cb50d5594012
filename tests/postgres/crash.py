#!/usr/bin/env python3
"""What becomes of tables in GPU memory when something ends, fails or runs out: TAP, a line a case.

usage: crash.py [CASE...]. Each case starts from a working server and leaves one; groups of cases that
need other settings have servers of their own. "Usable" means: rows go in and come out again.
"""
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
import private  # noqa: E402
from cases import count, expect_usable, fill, group, in_middle, main  # noqa: E402
from private import Failed, Server, SqlError, expect  # noqa: E402

BIG_ROWS = 3_000_000  # takes seconds to insert, so that there is a middle
LOAD_S = 8
CLIENTS = 16

INSERT = f"INSERT INTO ft SELECT i, 'big ' || i FROM generate_series(1, {BIG_ROWS}) i"
SELECT = "SELECT count(*), max(a.t || b.t) FROM ft a, ft b, ft c"


@group()
class Ends:
    """The server is restarted, by itself or by somebody: contents are gone, the table is not."""

    def backend_killed_in_transaction_table_is_empty_and_usable(self, server):
        fill(server)
        other, session = server.session(), server.session()
        session.sql("BEGIN; INSERT INTO ft VALUES (0, 'never')")
        server.kill_and_wait(session.pid)
        other.begin("SELECT 1")
        other.error()
        expect_usable(server, 0)

    def backend_killed_inserting_table_is_empty_and_usable(self, server):
        fill(server)
        session = server.session()
        in_middle(server, session, INSERT)
        server.kill_and_wait(session.pid)
        session.error()
        expect_usable(server, 0)

    def keeper_killed_server_restarts_table_is_empty_and_usable(self, server):
        fill(server)
        pid = server.keeper_pid()
        session = server.session()
        in_middle(server, session, INSERT)
        server.kill_and_wait(pid)
        session.error()
        expect_usable(server, 0)

    def keeper_terminated_comes_back_without_a_restart(self, server):
        fill(server)
        session = server.session()
        pid = server.keeper_pid()
        os.kill(pid, signal.SIGTERM)
        server.wait_keeper(pid)
        expect(session.sql("SELECT 'still here'"), "still here", "a session from before")
        expect(session.sql("SELECT count(*) FROM ft"), "0", "rows")
        session.close()
        expect_usable(server, 0)

    def keeper_terminated_writers_fail_and_keep_nothing(self, server):
        fill(server)
        session = server.session()
        session.sql("BEGIN; INSERT INTO ft VALUES (0, 'before')")
        pid = server.keeper_pid()
        os.kill(pid, signal.SIGTERM)
        server.wait_keeper(pid)
        session.begin("SELECT count(*) FROM ft; COMMIT")
        state = session.error()
        if state[:2] not in ("08", "HV"):
            raise Failed(f"SQLSTATE {state}")
        expect_usable(server, 0)

    def keeper_terminated_old_handles_and_tokens_lead_nowhere(self, server):
        fill(server)
        both = "SELECT encode(gstore_export_ipchandle('ft'), 'hex'), gstore_export('ft')"
        handle, token = server.sql(both).split("|")
        expect(server.sql(f"SELECT lo_import_gpu(0, '\\x{handle}', 0, 1) > 0"), "t", "a large object by the handle")
        pid = server.keeper_pid()
        os.kill(pid, signal.SIGTERM)
        server.wait_keeper(pid)
        expect(server.sql(both), "|", "handle and token of an empty table")
        expect(server.error(f"SELECT lo_import_gpu(0, '\\x{handle}', 0, 1)"), "22023", "SQLSTATE")
        expect_usable(server, 0)
        fill(server)
        new_handle, new_token = server.sql(both).split("|")
        if new_handle == handle or new_token == token:
            raise Failed("an old handle or token is used again")
        done = subprocess.run([f"{private.BUILD}/tools/gvmem", "table", token], env=server.environ, capture_output=True, text=True)
        if done.returncode == 0:
            raise Failed("an old token is taken for the new table's")

    def keeper_is_no_query_that_can_be_cancelled(self, server):
        fill(server)
        pid = server.keeper_pid()
        server.sql(f"SELECT pg_cancel_backend({pid})")
        server.wait_for("SELECT ready FROM gstore_fdw_keeper_info LIMIT 1")
        time.sleep(1.5)  # it looks at itself once a second
        expect(server.keeper_pid(), pid, "the keeper")
        expect_usable(server, 1000)

    def cursor_of_an_old_keeper_leaves_the_next_one_alone(self, server):
        """What it asks for does not exist any more; what others have loaded since must stay."""
        fill(server, 100000)
        server.sql("CREATE FOREIGN TABLE IF NOT EXISTS later (id int) SERVER gstore_fdw")
        session = server.session()
        session.sql("BEGIN; DECLARE c CURSOR FOR SELECT id FROM ft; FETCH 1 FROM c")
        pid = server.keeper_pid()
        os.kill(pid, signal.SIGTERM)
        server.wait_keeper(pid)
        server.sql("INSERT INTO later SELECT generate_series(1, 50000)")
        session.begin("MOVE FORWARD 90000 IN c")
        session.error()
        time.sleep(1.5)
        expect(count(server, "later"), 50000, "rows of the table that was loaded since")
        server.sql("DROP FOREIGN TABLE later")

    def values_staged_for_a_flush_that_failed_are_whole(self, server):
        """A SELECT in a savepoint writes the rows that are staged, and is cancelled; they are written later.

        The keeper goes on after 15 s in any case: where it was stopped during the command, the cancelled backend waits for it."""
        server.sql("CREATE FOREIGN TABLE bits (id int, v int) SERVER gstore_fdw")
        keeper = server.keeper_pid()
        script = f"""BEGIN; INSERT INTO bits VALUES (1, 1), (2, NULL), (3, 3); SAVEPOINT a; SET LOCAL statement_timeout = '500ms';
\\! kill -STOP {keeper}; until grep -q 'State:.T' /proc/{keeper}/status; do sleep 0.01; done; (sleep 15; kill -CONT {keeper}) >/dev/null 2>&1 &
SELECT count(*) FROM bits;
\\! kill -CONT {keeper}
ROLLBACK TO a; RELEASE a; INSERT INTO bits SELECT i, i FROM generate_series(4, 9) i; COMMIT;
"""
        done = subprocess.run(server.psql("-v", "ON_ERROR_STOP=0"), input=script, env=server.environ, capture_output=True, text=True, check=False)
        if "57014" not in done.stderr:
            raise Failed(f"nothing was cancelled: {done.stderr}")
        expect(server.sql("SELECT string_agg(id || '=' || coalesce(v::text, ''), ' ' ORDER BY id) FROM bits"), "1=1 2= 3=3 4=4 5=5 6=6 7=7 8=8 9=9", "rows")
        server.sql("DROP FOREIGN TABLE bits")

    def keeper_stopped_sessions_do_what_needs_no_gpu(self, server):
        """No lock is held while the keeper works, and who waits for it can be cancelled."""
        fill(server)
        server.sql("CREATE FOREIGN TABLE IF NOT EXISTS empty (id int) SERVER gstore_fdw; CREATE TABLE IF NOT EXISTS heap (id int)")
        waiting = server.session()
        keeper = server.keeper_pid()
        private.stop_process(keeper)
        try:
            in_middle(server, waiting, "SELECT max(t) FROM ft")
            limit = "SET statement_timeout = '20s';"
            expect(server.sql(f"{limit} SELECT gstore_fdw_nitems('ft'), gstore_fdw_rawsize('ft') > 0"), "1000|t", "the directory")
            expect(server.sql(f"{limit} SELECT nitems FROM gstore_fdw_chunk_info WHERE table_oid = 'ft'::regclass"), "1000", "a view")
            server.sql(f"{limit} EXPLAIN SELECT * FROM ft WHERE id = 1; SELECT * FROM gstore_fdw_keeper_info")
            expect(server.sql(f"{limit} SELECT count(*) FROM empty"), "0", "rows of an empty table")
            expect(server.sql(f"{limit} BEGIN; INSERT INTO heap VALUES (1); TRUNCATE empty; COMMIT; SELECT count(*) FROM heap"), "1", "rows of a heap")
            expect(server.error("SET statement_timeout = '200ms'; SELECT max(t) FROM ft"), "57014", "SQLSTATE of a statement that waits")
            server.sql(f"SELECT pg_cancel_backend({waiting.pid})")
            expect(waiting.error(), "57014", "SQLSTATE of a session that waits")
        finally:
            os.kill(keeper, signal.SIGCONT)
        expect_usable(server, 1000)
        server.sql("DROP FOREIGN TABLE empty; DROP TABLE heap")

    def fast_shutdown_ends_sessions_table_is_empty_and_usable(self, server):
        fill(server)
        session = server.session()
        in_middle(server, session, INSERT)
        server.stop("fast")
        expect(session.error(), "57P01", "SQLSTATE of a session")
        server.start()
        expect_usable(server, 0)

    def immediate_shutdown_table_is_empty_and_usable(self, server):
        fill(server)
        session = server.session()
        in_middle(server, session, INSERT)
        server.stop("immediate")
        session.error()
        server.start()
        expect_usable(server, 0)

    def smart_restart_while_idle_table_is_empty_and_usable(self, server):
        fill(server)
        server.stop("smart")
        server.start()
        expect_usable(server, 0)


@group("gstore_fdw.windows=2", "gstore_fdw.window_size=64kB", "max_parallel_workers_per_gather=0")
class Cancel:
    """With two windows only: one that did not come back would stop all that follows."""

    def insert_cancelled_keeps_nothing(self, server):
        fill(server, 3000)
        for _ in range(3):
            session = server.session()
            in_middle(server, session, INSERT)
            server.sql(f"SELECT pg_cancel_backend({session.pid})")
            expect(session.error(), "57014", "SQLSTATE")
            expect(count(server), 3000, "rows")
        expect_usable(server, 3000)

    def insert_cancelled_in_savepoint_keeps_what_was_before(self, server):
        fill(server, 10)
        session = server.session()
        session.sql("\\set ON_ERROR_STOP off\nBEGIN; INSERT INTO ft VALUES (11, 'before'); SAVEPOINT a")
        in_middle(server, session, INSERT)
        server.sql(f"SELECT pg_cancel_backend({session.pid})")
        session.finish()
        session.sql("ROLLBACK TO a; INSERT INTO ft VALUES (12, 'after'); COMMIT")
        session.close()
        expect(server.sql("SELECT count(*), sum(id) FROM ft"), "12|78", "rows")

    def select_cancelled_leaves_the_table_usable(self, server):
        fill(server, 3000)
        session = server.session()
        in_middle(server, session, SELECT)
        server.sql(f"SELECT pg_cancel_backend({session.pid})")
        expect(session.error(), "57014", "SQLSTATE")
        expect_usable(server, 3000)

    def statements_timed_out_at_any_time_lose_no_window(self, server):
        fill(server, 50000)
        for ms in (1, 2, 3, 5, 8, 10, 13, 15, 20, 25, 30, 40, 50, 60, 80, 100):
            for text in ("SELECT sum(length(t)) FROM ft", "UPDATE ft SET t = t || 'x'", INSERT):
                try:
                    server.sql(f"BEGIN; SET LOCAL statement_timeout = {ms}; {text}; ROLLBACK", timeout=120)
                except SqlError as error:
                    expect(str(error), "57014", "SQLSTATE")
        expect_usable(server, 50000)

    def sessions_that_stay_after_a_cancelled_read_keep_no_window(self, server):
        """There are as many of them as windows, and they say nothing more."""
        fill(server, 3000)
        sessions = [server.session() for _ in range(2)]
        for session in sessions:
            session.sql("\\set ON_ERROR_STOP off\nSELECT 1")
        keeper = server.keeper_pid()
        private.stop_process(keeper)
        try:
            for session in sessions:
                in_middle(server, session, "SELECT max(t) FROM ft")
                server.sql(f"SELECT pg_cancel_backend({session.pid})")
                session.finish()
        finally:
            os.kill(keeper, signal.SIGCONT)
        expect(server.sql("SET statement_timeout = '20s'; SELECT count(t), max(t) FROM ft"), "3000|row 999", "values")
        for session in sessions:
            session.close()
        expect_usable(server, 3000)

    def backends_terminated_keep_nothing_and_lose_no_window(self, server):
        fill(server, 3000)
        for text in (INSERT, SELECT, INSERT, SELECT):
            session = server.session()
            in_middle(server, session, text)
            server.sql(f"SELECT pg_terminate_backend({session.pid})")
            expect(session.error(), "57P01", "SQLSTATE")
        expect_usable(server, 3000)

    def clients_gone_in_the_middle_keep_nothing(self, server):
        fill(server, 3000)
        session = server.session()
        in_middle(server, session, "BEGIN; " + INSERT)
        session.process.kill()
        session.process.wait()
        server.sql(f"SELECT pg_terminate_backend({session.pid})")
        server.wait_for(f"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = {session.pid}")
        expect_usable(server, 3000)


@group("gstore_fdw.device_memory=64MB", "gstore_fdw.host_memory=64MB", "gstore_fdw.max_relations=4")
class Limits:
    """Memory of 128 MiB in all."""

    TOO_MUCH = "INSERT INTO ft SELECT i, repeat(md5(i::text), 32) FROM generate_series(1, 150000) i"  # 150 MiB
    ENOUGH = "INSERT INTO ft SELECT i, repeat(md5(i::text), 32) FROM generate_series(1, 80000) i"  # 80 MiB: once only

    def out_of_memory_in_a_load_keeps_nothing_and_memory_is_back(self, server):
        fill(server, 10)
        for _ in range(2):
            expect(server.error(self.TOO_MUCH), "53200", "SQLSTATE")
            expect(count(server), 10, "rows")
        self._expect_memory(server)

    def out_of_memory_in_a_savepoint_keeps_what_was_before(self, server):
        fill(server, 10)
        server.sql(
            "DO $$ BEGIN INSERT INTO ft VALUES (11, 'before');"
            f" BEGIN {self.TOO_MUCH}; RAISE 'it fits'; EXCEPTION WHEN out_of_memory THEN NULL; END;"
            " INSERT INTO ft VALUES (12, 'after'); END $$"
        )
        expect(server.sql("SELECT count(*), sum(id) FROM ft"), "12|78", "rows")

    def rolled_back_loads_give_memory_back(self, server):
        fill(server, 0)
        for _ in range(2):
            self._load(server)
            server.sql("BEGIN; TRUNCATE ft; INSERT INTO ft VALUES (1, 'x'); ROLLBACK")
            server.sql("TRUNCATE ft")
            self._load(server, "BEGIN; ", "; ROLLBACK")
        self._expect_memory(server)

    def truncated_emptied_and_dropped_tables_give_memory_back(self, server):
        for last in ("TRUNCATE ft", "DELETE FROM ft", "DROP FOREIGN TABLE ft"):
            fill(server, 0)
            self._load(server)
            server.sql(last)
        fill(server, 10)
        self._expect_memory(server)

    def dropped_database_gives_memory_back(self, server):
        for _ in range(2):
            server.sql("CREATE DATABASE other")
            server.sql("CREATE EXTENSION gstore_fdw", database="other")
            server.sql("CREATE FOREIGN TABLE ft (id int, t text) SERVER gstore_fdw", database="other")
            self._load(server, database="other")
            server.sql("DROP DATABASE other WITH (FORCE)")
        fill(server, 10)
        self._expect_memory(server)

    def dropped_extension_gives_memory_back(self, server):
        for _ in range(2):
            fill(server, 0)
            self._load(server)
            server.sql("SET client_min_messages = error; DROP EXTENSION gstore_fdw CASCADE")
            server.sql("CREATE EXTENSION gstore_fdw")
        fill(server, 10)
        self._expect_memory(server)

    def too_many_tables_are_refused_until_one_goes(self, server):
        server.sql("DROP FOREIGN TABLE IF EXISTS ft")
        server.sql("".join(f"CREATE FOREIGN TABLE many{i} (id int) SERVER gstore_fdw;" for i in range(5)))
        for i in range(4):
            self._retry(server, "53400", f"INSERT INTO many{i} VALUES ({i})")
        expect(server.error("INSERT INTO many4 VALUES (4)"), "53400", "SQLSTATE")
        server.sql("TRUNCATE many4; BEGIN; INSERT INTO many4 VALUES (4); TRUNCATE many4; COMMIT")  # what leaves nothing needs no place
        expect(count(server, "many4"), 0, "rows of what was refused")
        expect(count(server, "many3"), 1, "rows of the last one that was not")
        server.sql("DROP FOREIGN TABLE many0")
        self._retry(server, "53400", "INSERT INTO many4 VALUES (4)")
        expect(count(server, "many4"), 1, "rows")
        server.sql("DROP FOREIGN TABLE many1, many2, many3, many4")

    def rows_that_could_not_be_written_are_missed_at_commit(self, server):
        """A statement ends while its last rows are on their way: if they do not arrive, the commit knows."""
        text = "INSERT INTO ft SELECT i, repeat(md5(i::text), 32) FROM generate_series(1, {}) i"
        server.sql("CREATE FOREIGN TABLE ballast (id int, t text) SERVER gstore_fdw")
        self._retry(server, "53200", self.ENOUGH.replace("ft", "ballast"))
        fits, fails = 0, 80000
        while fails - fits > 100:
            rows = (fits + fails) // 2
            fill(server, 0)
            self._wait_objects(server, 4)  # one is the pack
            try:
                server.sql(f"BEGIN; {text.format(rows)}; ROLLBACK")
                fits = rows
            except SqlError as error:
                expect(str(error), "53200", "SQLSTATE")
                fails = rows
        self._wait_objects(server, 4)  # one is the pack
        session = server.session()
        session.sql("BEGIN; " + text.format(fails - 300))  # the rows of the flush before the one that failed
        session.sql("DO $$ BEGIN PERFORM max(t) FROM ft; EXCEPTION WHEN out_of_memory THEN NULL; END $$")  # waits for them
        server.sql("DROP FOREIGN TABLE ballast")
        self._wait_objects(server, 4)  # one is the pack
        session.begin("COMMIT")
        expect(session.error(), "53200", "SQLSTATE")
        expect(count(server), 0, "rows")
        server.sql("DROP FOREIGN TABLE ft")

    def wide_table_that_does_not_fit_is_refused_until_it_fits(self, server):
        fill(server, 10)
        columns = ", ".join(f"c{i} name DEFAULT '{i}'" for i in range(400))
        rows = "INSERT INTO broad (id) SELECT i FROM generate_series(1, 1100) i"  # each column outgrows its room
        server.sql(f"CREATE FOREIGN TABLE broad (id int, {columns}) SERVER gstore_fdw")
        for _ in range(2):
            expect(server.error(rows), "53200", "SQLSTATE")
            expect(count(server, "broad"), 0, "rows")
        expect(count(server), 10, "rows beside it")
        server.sql("DROP FOREIGN TABLE broad; CREATE FOREIGN TABLE broad (id int, " + columns[: columns.index("c40")] + " last int) SERVER gstore_fdw")
        self._retry(server, "53200", rows)
        expect(server.sql("SELECT id, c39 FROM broad WHERE id = 1"), "1|39", "values")
        server.sql("DROP FOREIGN TABLE broad")
        self._expect_memory(server)

    def rows_appended_to_columns_that_were_evicted_stay(self, server):
        fill(server, 1000)
        for last in range(1000, 4000, 500):
            self._evict(server)
            for _ in range(4):  # what is read comes back to the device
                server.sql("SELECT count(*), max(t) FROM ft")
            server.sql(f"INSERT INTO ft SELECT i, 'row ' || i FROM generate_series({last} + 1, {last} + 500) i")
            self._evict(server)
            expect(server.sql("SELECT count(*), sum((t = 'row ' || id)::int) FROM ft"), f"{last + 500}|{last + 500}", "rows, and right ones")
        server.sql("DROP FOREIGN TABLE ft")

    def _evict(self, server):
        tool = [f"{private.BUILD}/tools/gvmem", "keeper"]
        socket = ["-s", f"{server.folder}/data/pg_stat_tmp/gstore.sock"]
        said = subprocess.run(private.as_owner([*tool, "ls", *socket]), env=server.environ, capture_output=True, text=True, check=True)
        for name in said.stdout.split():
            subprocess.run(private.as_owner([*tool, "evict", name, *socket]), env=server.environ, capture_output=True, check=True)

    def _wait_objects(self, server, number):
        """Until what nobody needs any more is gone."""
        server.wait_for("SELECT sum(objects) FROM gstore_fdw_keeper_info", str(number))

    def _retry(self, server, state, text, **more):
        """Again while it fails so: what nobody needs goes a second later, when the keeper has looked."""
        deadline = time.monotonic() + 30
        while True:
            try:
                return server.sql(text, **more)
            except SqlError as error:
                if str(error) != state or time.monotonic() > deadline:
                    raise

    def _load(self, server, before="", after="", **more):
        self._retry(server, "53200", before + self.ENOUGH + after, **more)

    def _expect_memory(self, server):
        before = count(server)
        self._load(server)
        expect(count(server), before + 80000, "rows")
        server.sql("DROP FOREIGN TABLE ft")


@group()
class Memory:
    """Of a backend."""

    def out_of_memory_in_a_delete_deletes_nothing(self, server):
        """The list of deletions, of 16 MiB, cannot grow; what came before in the transaction stays."""
        server.sql("CREATE FOREIGN TABLE ft (id int) SERVER gstore_fdw")
        server.sql("INSERT INTO ft SELECT generate_series(1, 3000000)")
        server.sql(
            "CREATE FUNCTION empty_it() RETURNS text LANGUAGE plpgsql AS $$ BEGIN DELETE FROM ft; RETURN 'done';"
            " EXCEPTION WHEN out_of_memory THEN RETURN 'no memory'; END $$"
        )
        session = server.session()
        session.sql("BEGIN; DELETE FROM ft WHERE id = 1")
        session.sql("SAVEPOINT a; DELETE FROM ft WHERE id < 100000; ROLLBACK TO a")
        used = int(self._line(session, "status", "VmSize:").split()[1]) << 10
        most = self._line(session, "limits", "Max address space").split()[-2]
        self._limit(session, used + (24 << 20))
        expect(session.sql("SELECT empty_it()"), "no memory", "what it came to")
        self._limit(session, most)
        expect(session.sql("SELECT count(*) FROM ft"), "2999999", "rows in the transaction")
        session.sql("COMMIT")
        session.close()
        expect(server.sql("SELECT count(*), min(id), sum(id::bigint) FROM ft"), "2999999|2|4500001499999", "rows")
        server.sql("DROP FOREIGN TABLE ft; DROP FUNCTION empty_it")

    def _line(self, session, file, start):
        with open(f"/proc/{session.pid}/{file}", encoding="utf8") as lines:
            return next(line for line in lines if line.startswith(start))

    def _limit(self, session, address_space):
        subprocess.run(private.as_owner(["prlimit", f"--pid={session.pid}", f"--as={address_space}:"]), check=True)


@group("max_connections=60")
class Starts:
    ROWS = 100
    TABLES = 12
    ROUNDS = 4

    def keeper_terminated_again_and_again_commits_during_its_start_keep_nothing(self, server):
        """Transactions of the previous epoch are committed from its first moment on: no table has a row of that epoch.
        How it ends if the start is slow is External's."""
        for number in range(self.ROUNDS):
            server.sql("".join(f"DROP FOREIGN TABLE IF EXISTS s{i}; CREATE FOREIGN TABLE s{i} (id int) SERVER gstore_fdw;" for i in range(self.TABLES)))
            server.sql("".join(f"INSERT INTO s{i} SELECT generate_series(1, {self.ROWS});" for i in range(self.TABLES)))
            sessions = [server.session() for _ in range(self.TABLES)]
            for i, session in enumerate(sessions):
                self._change(session, i)
            ready, pid = server.log().count("keeper: ready"), server.keeper_pid()
            os.kill(pid, signal.SIGTERM)
            server.wait_keeper(pid)
            for session in sessions:
                session.begin("COMMIT")
                time.sleep(0.002 + 0.002 * number)
            server.wait_log("keeper: ready", ready)
            for session in sessions:
                self._expect_lost(session)
            for i in range(self.TABLES):
                expect(count(server, f"s{i}"), 0, f"rows in round {number}")
                server.sql(f"INSERT INTO s{i} VALUES (1)")
                expect(count(server, f"s{i}"), 1, "rows of the new life")
        server.sql("".join(f"DROP FOREIGN TABLE s{i};" for i in range(self.TABLES)))

    def _change(self, session, i):
        """A third of them writes into the store that is there, a third to a new one, a third deletes; all of it is
        with the keeper, so that COMMIT does not need it."""
        before = ["", f"TRUNCATE s{i};", ""][i % 3]
        change = [f"INSERT INTO s{i} SELECT generate_series(1, {self.ROWS})", f"INSERT INTO s{i} SELECT generate_series(1, {self.ROWS})", f"DELETE FROM s{i} WHERE id > 50"][i % 3]
        session.sql(f"BEGIN; {before} {change}")
        expect(session.sql(f"SELECT count(*) FROM s{i}"), str([2 * self.ROWS, self.ROWS, 50][i % 3]), "own rows")

    def _expect_lost(self, session):
        """An error; or it was in time for the previous epoch, of which nothing is left."""
        try:
            session.finish()
            session.close()
        except SqlError as error:
            if str(error)[:2] not in ("08", "HV"):
                raise Failed(f"SQLSTATE {error}") from None


TRANSFER = """
\\set a random(1, 20)
\\set b random(1, 20)
\\set d random(1, 100)
BEGIN;
UPDATE account SET balance = balance - :d WHERE id = :a;
UPDATE account SET balance = balance + :d WHERE id = :b;
INSERT INTO entry VALUES (:a, :b, :d, repeat('x', :d));
"""
INCREMENT = r"""
BEGIN;
SELECT n FROM counter WHERE id = 1 FOR UPDATE \gset
UPDATE counter SET n = :n + 1 WHERE id = 1;
COMMIT;
"""
UNDONE = """
SAVEPOINT s;
UPDATE account SET balance = balance + 1000;
INSERT INTO entry SELECT 1, 2, 1000, NULL FROM generate_series(1, 50);
ROLLBACK TO s;
"""
READ = """
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT sum(balance) AS first, (SELECT count(*) FROM entry) AS entries FROM account \\gset
SELECT sum(balance) AS second, (SELECT count(*) FROM entry) AS again FROM account \\gset
SELECT 1 / (:first = 20000 AND :second = 20000 AND :entries = :again)::int;
COMMIT;
"""
CHURN = """
\\set a random(1, 20)
BEGIN;
INSERT INTO account SELECT id + 100, 0 FROM account WHERE id = :a;
DELETE FROM account WHERE id > 100;
COMMIT;
"""


@group("max_connections=40", "gstore_fdw.windows=4")
class Load:
    def mixed_load_of_clients_leaves_books_that_balance(self, server):
        server.sql("CREATE FOREIGN TABLE account (id int, balance int) SERVER gstore_fdw")
        server.sql("CREATE FOREIGN TABLE entry (a int, b int, d int, t text) SERVER gstore_fdw")
        server.sql("INSERT INTO account SELECT i, 1000 FROM generate_series(1, 20) i")
        scripts = {
            "transfer": (4, TRANSFER + "COMMIT;"),
            "undo": (2, TRANSFER + "ROLLBACK;"),
            "savepoint": (2, TRANSFER + UNDONE + "COMMIT;"),
            "read": (4, READ),
            "churn": (1, CHURN),
        }
        command = [server.bin + "/pgbench", "-n", "-c", str(CLIENTS), "-j", "4", "-T", str(LOAD_S)]
        for name, (weight, text) in scripts.items():
            path = server.folder / (name + ".sql")
            path.write_text(text)
            command += ["-f", f"{path}@{weight}"]
        done = subprocess.run(command, env=server.environ, capture_output=True, text=True, timeout=LOAD_S + 120)
        if done.returncode:
            raise Failed(done.stderr[-2000:])
        expect(server.sql("SELECT sum(balance), count(*) FROM account"), "20000|20", "sum of balances, accounts")
        wrong = server.sql(
            "SELECT count(*) FROM account WHERE balance <> 1000 - (SELECT coalesce(sum(d), 0) FROM entry WHERE a = id)"
            " + (SELECT coalesce(sum(d), 0) FROM entry WHERE b = id)"
        )
        expect(wrong, "0", "accounts that their entries do not explain")
        expect(server.sql("SELECT count(*) FROM entry WHERE length(t) IS DISTINCT FROM d"), "0", "entries with a wrong text")
        if count(server, "entry") == 0:
            raise Failed("no transfer was made")

    def tpcb_balances_are_equal_with_1_4_and_16_clients(self, server):
        server.sql(
            "CREATE FOREIGN TABLE pgbench_branches (bid int, bbalance int, filler char(88)) SERVER gstore_fdw;"
            "CREATE FOREIGN TABLE pgbench_tellers (tid int, bid int, tbalance int, filler char(84)) SERVER gstore_fdw;"
            "CREATE FOREIGN TABLE pgbench_accounts (aid int, bid int, abalance int, filler char(84)) SERVER gstore_fdw;"
            "CREATE FOREIGN TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22)) SERVER gstore_fdw;"
            "INSERT INTO pgbench_branches VALUES (1, 0, '');"
            "INSERT INTO pgbench_tellers SELECT i, 1, 0, '' FROM generate_series(1, 10) i;"
            "INSERT INTO pgbench_accounts SELECT i, 1, 0, '' FROM generate_series(1, 100000) i"
        )
        made = 0
        for clients in 1, 4, 16:
            command = [server.bin + "/pgbench", "-n", "-b", "tpcb-like", "-c", str(clients), "-j", "4", "-t", str(160 // clients)]
            done = subprocess.run(command, env=server.environ, capture_output=True, text=True, timeout=300)
            if done.returncode:
                raise Failed(done.stderr[-2000:])
            made += 160
            sums = "sum(abalance) FROM pgbench_accounts", "sum(tbalance) FROM pgbench_tellers", "sum(bbalance) FROM pgbench_branches"
            rows = server.sql("SELECT count(*), sum(delta) FROM pgbench_history")
            expect(rows.split("|")[0], str(made), f"transactions of {clients} clients")
            for text in sums:
                expect(server.sql(f"SELECT {text}"), rows.split("|")[1], f"{text}, {clients} clients")

    def increments_that_read_for_update_all_count(self, server):
        server.sql("CREATE FOREIGN TABLE counter (id int, n int) SERVER gstore_fdw")
        server.sql("INSERT INTO counter VALUES (1, 0), (2, 0)")
        path = server.folder / "increment.sql"
        path.write_text(INCREMENT)
        command = [server.bin + "/pgbench", "-n", "-c", "8", "-j", "4", "-t", "100", "-f", str(path)]
        done = subprocess.run(command, env=server.environ, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise Failed(done.stderr[-2000:])
        expect(server.sql("SELECT n FROM counter WHERE id = 1"), "800", "increments")

    def dump_restores_the_definition_and_on_demand_the_rows(self, server):
        dump = [server.bin + "/pg_dump", "-d", "postgres"]
        for more, rows in ([], 0), (["--include-foreign-data=gstore_fdw"], count(server, "account")):
            text = subprocess.run(dump + more, env=server.environ, capture_output=True, text=True, check=True).stdout
            path = server.folder / "dump.sql"
            path.write_text(text)
            server.sql("CREATE DATABASE restored")
            subprocess.run(server.psql("-f", str(path), database="restored"), env=server.environ, capture_output=True, check=True)
            expect(server.sql("SELECT count(*) FROM account", database="restored"), str(rows), f"rows with {more}")
            server.sql("DROP DATABASE restored")

    def upgraded_server_has_the_definitions_and_no_rows(self, server):
        """pg_upgrade, to the version that is there: it copies the files of tables, and these have none."""
        fill(server)
        server.sql("CREATE TABLE noted (id int); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.noted VALUES (1); RETURN NULL; END $$")
        server.sql("CREATE FOREIGN TABLE sourced (id int) SERVER gstore_fdw OPTIONS (source 'SELECT 7')")
        server.sql("CREATE TRIGGER note AFTER INSERT ON sourced EXECUTE FUNCTION note(); INSERT INTO sourced VALUES (0)")
        server.stop("fast")
        old, new = server.folder / "data", server.folder / "upgraded"
        server.run("pg_ctl", "-w", "-s", "-D", str(old), "-l", str(server.folder / "log"), "-o", "-b", "start")  # as pg_upgrade does
        server.wait_for("SELECT ready FROM gstore_fdw_keeper_info LIMIT 1")
        time.sleep(3)  # a loader would come in the second after that
        expect(server.sql("SELECT count(*) FROM noted"), "1", "rows of a trigger: nothing is loaded for pg_upgrade")
        server.stop("fast")
        server.run("initdb", "-D", str(new), "-A", "trust", "-U", "postgres", "-N", "--locale=C.UTF-8")
        shutil.copyfile(old / "postgresql.conf", new / "postgresql.conf")
        server.run("pg_upgrade", "-b", server.bin, "-B", server.bin, "-d", str(old), "-D", str(new), "-U", "postgres")
        old.rename(server.folder / "data.old")
        new.rename(old)
        server.start()
        expect_usable(server, 0)


@group("wal_level=replica", "max_wal_senders=4", "hot_standby=on")
class Standby:
    def a_procedure_with_a_parameter_may_roll_back(self, server):
        """By the extended protocol, whose plan of the CALL is gone then."""
        server.sql("""CREATE PROCEDURE rolls_back(i int) LANGUAGE plpgsql AS $$
            BEGIN PERFORM i; ROLLBACK; PERFORM count(*) FROM pg_class; PERFORM count(*) FROM pg_proc; END $$""")
        libpq = ctypes.CDLL("libpq.so.5")
        libpq.PQconnectdb.restype = libpq.PQexecParams.restype = ctypes.c_void_p
        connection = ctypes.c_void_p(libpq.PQconnectdb(f"host={server.environ['PGHOST']} user=postgres dbname=postgres".encode()))
        values = (ctypes.c_char_p * 1)(b"1")
        for _ in range(100):
            result = ctypes.c_void_p(libpq.PQexecParams(connection, b"CALL rolls_back($1)", 1, None, values, None, None, 0))
            expect(libpq.PQresultStatus(result), 1, "PGRES_COMMAND_OK")
            libpq.PQclear(result)
        libpq.PQfinish(connection)
        server.sql("DROP PROCEDURE rolls_back")

    def standby_refuses_to_read_until_it_is_promoted(self, server):
        fill(server, 10)
        server.sql("CREATE FOREIGN TABLE sourced (id int) SERVER gstore_fdw OPTIONS (source 'SELECT 1'); INSERT INTO sourced VALUES (1)")
        folder = server.folder / "standby"
        server.run("pg_basebackup", "-D", str(folder), "-R", "-X", "stream", "-c", "fast")
        with private.started(server, folder) as standby:
            for text in ("SELECT * FROM ft", "SELECT gstore_fdw_nitems('ft')", "SELECT gstore_export('ft')", "SELECT gstore_export_ipchandle('ft')"):
                expect(standby.error(text), "0A000", "SQLSTATE on the standby: " + text)
            expect(standby.error("SET gstore_fdw.wait_for_source = on; SET statement_timeout = '20s'; SELECT * FROM sourced"), "0A000", "SQLSTATE where none is loaded")
            standby.sql("EXPLAIN SELECT * FROM ft; SELECT gstore_fdw_format('ft')")
            expect(standby.error("INSERT INTO ft VALUES (1, 'x')"), "25006", "SQLSTATE")
            expect(standby.error("TRUNCATE ft"), "25006", "SQLSTATE")
            expect(standby.error("SELECT * FROM ft FOR SHARE"), "25006", "SQLSTATE")
            server.sql("INSERT INTO ft VALUES (11, 'x'); CREATE FOREIGN TABLE later (id int) SERVER gstore_fdw")
            standby.wait_for("SELECT to_regclass('later') IS NOT NULL")
            expect(standby.error("SELECT * FROM ft"), "0A000", "SQLSTATE on the standby")
            expect(count(server), 11, "rows on the primary")
            server.run("pg_ctl", "-w", "-s", "-D", str(folder), "promote")
            expect(standby.error("SET gstore_fdw.lost_tables = error; SELECT * FROM ft"), "55000", "SQLSTATE of rows that the standby never had")
            expect_usable(standby, 0)
            expect_usable(server, 11)


@group("gstore_fdw.keeper=FOLDER/run/keeper.sock", "gstore_fdw.start_timeout=60")
class External:
    """A keeper that others run."""

    def keeper_killed_table_is_empty_and_usable_with_the_next_one(self, server):
        with self._keeper(server) as keeper:
            fill(server)
            expect_usable(server, 1000)
            session = server.session()
            session.sql("BEGIN; INSERT INTO ft VALUES (0, 'before')")
            keeper.kill()
            keeper.wait()
            # Before the server knows, what is mapped can still be read.
            server.wait_log("the keeper is gone")
            session.begin("SELECT count(*) FROM ft; COMMIT")
            with self._keeper(server):
                state = session.error()
                if state[:2] not in ("08", "HV"):
                    raise Failed(f"SQLSTATE {state}")
                expect_usable(server, 0)

    def keeper_stopped_the_server_does_not_wait_for_it(self, server):
        """DROP DATABASE waits for every process of the server: the keeper's client must not hang."""
        with self._keeper(server) as keeper:
            self._wait_used(server, keeper)
            fill(server)
            server.sql("CREATE DATABASE other")
            private.stop_process(keeper.pid)
            try:
                server.sql("DROP FOREIGN TABLE ft")
                time.sleep(2)  # it has memory to drop, and looks at the keeper once a second
                server.sql("DROP DATABASE other", timeout=20)
            finally:
                os.kill(keeper.pid, signal.SIGCONT)
            server.wait_for("SELECT sum(objects) FROM gstore_fdw_keeper_info", "0")
            fill(server)
            expect_usable(server, 1000)

    def load_given_up_while_the_keeper_is_stopped_gives_memory_back(self, server):
        """A thread goes on with its last write when the load has been undone already."""
        with self._keeper(server) as keeper:
            self._wait_used(server, keeper)
            server.sql("CREATE FOREIGN TABLE wide (a text, b text) SERVER gstore_fdw; INSERT INTO wide VALUES ('a', 'b')")
            committed = "SELECT max(committed) >> 20 FROM gstore_fdw_chunk_info WHERE table_oid = 'wide'::regclass"
            session = server.session()
            session.begin("INSERT INTO wide SELECT x, x FROM (SELECT repeat(md5(i::text), 100) x FROM generate_series(1, 1000000) i) x")
            server.wait_for(f"SELECT ({committed}) > 64")
            private.stop_process(keeper.pid)
            try:
                time.sleep(0.5)  # the next write waits for its memory
                server.sql(f"SELECT pg_cancel_backend({session.pid})")
                expect(session.error(), "57014", "SQLSTATE")
                time.sleep(1.5)  # the worker has looked
            finally:
                os.kill(keeper.pid, signal.SIGCONT)
            server.wait_for(f"SELECT ({committed}) <= 8")
            expect(server.sql("SELECT * FROM wide"), "a|b", "rows")
            server.sql("DROP FOREIGN TABLE wide")

    def keeper_stopped_the_server_shuts_down_and_leaves_nothing_in_it(self, server):
        """Writers, a reader, tasks and the end of the worker: all would wait for an answer."""
        with self._keeper(server) as keeper:
            self._wait_used(server, keeper)
            fill(server)
            server.sql("CREATE FOREIGN TABLE gone (id int) SERVER gstore_fdw; INSERT INTO gone VALUES (1)")
            sessions = [server.session() for _ in range(6)]
            for number, session in enumerate(sessions[:-1]):
                session.sql(f"CREATE FOREIGN TABLE more{number} (id int) SERVER gstore_fdw")
            private.stop_process(keeper.pid)
            try:
                for number, session in enumerate(sessions[:-1]):
                    in_middle(server, session, f"INSERT INTO more{number} VALUES (1)")
                in_middle(server, sessions[-1], "SELECT pg_sleep(100) FROM ft")
                server.sql("DROP FOREIGN TABLE gone")
                time.sleep(1.5)  # tasks are under way
                begun = time.monotonic()
                server.stop("fast")
                took = time.monotonic() - begun
                for session in sessions:
                    expect(session.error(), "57P01", "SQLSTATE of a session")
            finally:
                os.kill(keeper.pid, signal.SIGCONT)
            if took > 15:
                raise Failed(f"the server took {took:.0f} s to end")
            self._expect_empty(server)
            server.start()
            expect_usable(server, 0)

    def keeper_replaced_commits_during_the_start_keep_nothing(self, server):
        """The next keeper lets the server wait in the middle of its start: what is committed meanwhile is of the previous epoch."""
        with self._keeper(server) as keeper:
            self._wait_used(server, keeper)
            server.sql("".join(f"CREATE FOREIGN TABLE r{i} (id int) SERVER gstore_fdw; INSERT INTO r{i} SELECT generate_series(1, 100);" for i in range(3)))
            sessions = [server.session() for _ in range(3)]
            changes = ["INSERT INTO r0 VALUES (0)", "TRUNCATE r1; INSERT INTO r1 VALUES (0)", "DELETE FROM r2 WHERE id > 50"]
            for i, (session, change) in enumerate(zip(sessions, changes)):
                session.sql(f"BEGIN; {change}")
                expect(session.sql(f"SELECT count(*) FROM r{i}"), str([101, 1, 50][i]), "own rows")
            before, worker = server.log().count("the keeper is gone"), server.keeper_pid()
        server.wait_log("the keeper is gone", before)
        while server.keeper_pid() == worker:
            time.sleep(0.01)
        expect(server.sql("SET gstore_fdw.start_timeout = 0; SELECT count(*) FROM r0"), "0", "rows between two keepers")
        with self._keeper(server, "next.sock") as keeper:
            private.stop_process(keeper.pid)
            (server.folder / "run/next.sock").rename(server.folder / "run/keeper.sock")
            time.sleep(4)  # it is tried once a second, and waited for 10 s
            for session in sessions:
                session.begin("COMMIT")
            for session in sessions:
                try:
                    session.finish()
                except SqlError as error:
                    expect(str(error), "08006", "SQLSTATE")
            os.kill(keeper.pid, signal.SIGCONT)
            self._wait_used(server, keeper)
            for i in range(3):
                expect(count(server, f"r{i}"), 0, "rows")
            for session in sessions:
                session.close()
            server.sql("DROP FOREIGN TABLE r0, r1, r2")
            fill(server)
            expect_usable(server, 1000)

    def writers_terminated_while_the_keeper_is_stopped_leave_nothing_in_it(self, server):
        """In the middle of writes: to a new store, to one that grows, behind rows of others; with savepoints."""
        with self._keeper(server) as keeper:
            self._wait_used(server, keeper)
            for how in ("terminate", "cancel"):
                names = [f"w{i}" for i in range(6)]
                server.sql("".join(f"CREATE FOREIGN TABLE {name} (id int, t text) SERVER gstore_fdw;" for name in names))
                server.sql("".join(f"INSERT INTO {name} VALUES (0, 'there');" for name in names[:2]))
                sessions = [server.session() for _ in names]
                for name, session in zip(names, sessions):
                    session.sql(f"BEGIN; INSERT INTO {name} VALUES (1, 'before'); SAVEPOINT a")
                private.stop_process(keeper.pid)
                try:
                    for number, (name, session) in enumerate(zip(names, sessions)):
                        before = f"TRUNCATE {name}; " if number % 2 else ""
                        in_middle(server, session, f"{before}INSERT INTO {name} SELECT i, repeat('x', 500) FROM generate_series(1, 50000) i")
                    for session in sessions:
                        server.sql(f"SELECT pg_{how}_backend({session.pid})")
                    time.sleep(0.5)
                finally:
                    os.kill(keeper.pid, signal.SIGCONT)
                for session in sessions:
                    expect(session.error(), "57P01" if how == "terminate" else "57014", "SQLSTATE")
                expect(count(server, names[0]), 1, "rows from before")
                server.sql("".join(f"DROP FOREIGN TABLE {name};" for name in names))
                self._expect_empty(server)
            fill(server)
            expect_usable(server, 1000)

    def readers_ended_while_they_write_deleted_rows_harm_nobody(self, server):
        """The bitmap of a version, which a thread writes late, comes over no other version's."""
        with self._keeper(server) as keeper:
            self._wait_used(server, keeper)
            for how in ("terminate", "cancel"):
                server.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int) SERVER gstore_fdw; INSERT INTO ft SELECT generate_series(1, 600000)")
                server.sql("DELETE FROM ft WHERE id % 10 = 0")
                session = server.session()
                private.stop_process(keeper.pid)
                try:
                    in_middle(server, session, "SELECT count(*) FROM ft")
                    server.sql(f"SELECT pg_{how}_backend({session.pid})")
                    expect(session.error(), "57P01" if how == "terminate" else "57014", "SQLSTATE")
                finally:
                    os.kill(keeper.pid, signal.SIGCONT)
                for left in (9, 8, 7):
                    expect(server.sql("SELECT count(*), count(*) FILTER (WHERE id % 10 < 10) FROM ft"), f"{left * 60000}|{left * 60000}", "rows")
                    server.sql(f"DELETE FROM ft WHERE id % 10 = {left}")
                server.sql("DROP FOREIGN TABLE ft")
                self._expect_empty(server)
            fill(server)
            expect_usable(server, 1000)

    def commit_waiting_for_a_stopped_keeper_can_be_ended(self, server):
        """By cancel, statement_timeout and terminate; what a thread is yet to write comes over nobody's rows."""
        with self._keeper(server) as keeper:
            self._wait_used(server, keeper)
            names = ["c_cancel", "c_timeout", "c_commit", "c_terminate"]
            server.sql("".join(f"CREATE FOREIGN TABLE {name} (id int, t text) SERVER gstore_fdw;" for name in names))
            # Rows that are there; a body area that is to be made, and too large for a pack: the keeper is asked.
            never = "repeat('never', 20000)"
            server.sql("".join(f"INSERT INTO {name} VALUES (1, NULL);" for name in names))
            sessions = [server.session() for _ in names]
            sessions[0].sql(f"BEGIN; INSERT INTO c_cancel VALUES (2, {never})")
            sessions[3].sql(f"BEGIN; INSERT INTO c_terminate VALUES (2, {never})")
            sessions[2].sql(f"BEGIN; INSERT INTO c_commit VALUES (2, {never}); SET statement_timeout = '500ms'")
            private.stop_process(keeper.pid)
            try:
                for number in (0, 3):
                    in_middle(server, sessions[number], "COMMIT")
                sessions[1].begin(f"SET statement_timeout = '500ms'; INSERT INTO c_timeout VALUES (2, {never})")
                sessions[2].begin("COMMIT")
                server.sql(f"SELECT pg_cancel_backend({sessions[0].pid}), pg_terminate_backend({sessions[3].pid})")
                for session, state in zip(sessions, ["57014", "57014", "57014", "57P01"]):
                    with self._within(20, session):
                        expect(session.error(), state, "SQLSTATE")
                for name in names:  # who comes next waits, and can be ended as well
                    try:
                        server.sql(f"SET statement_timeout = '500ms'; INSERT INTO {name} VALUES (3, {never})", timeout=20)
                        raise Failed("a commit with a stopped keeper")
                    except SqlError as error:
                        expect(str(error), "57014", "SQLSTATE")
                waiting = [server.session() for _ in names]
                for name, session in zip(names, waiting):
                    session.begin(f"INSERT INTO {name} SELECT i, 'row ' || i FROM generate_series(4, 1003) i")
            finally:
                os.kill(keeper.pid, signal.SIGCONT)
            for session in waiting:
                session.finish()
                session.close()
            for name in names:
                same = f"SELECT count(*), sum(id), bool_and(t = 'row ' || id) FROM {name}"
                expect(server.sql(same), f"1001|{1 + sum(range(4, 1004))}|t", "rows")
            server.sql("".join(f"DROP FOREIGN TABLE {name};" for name in names))
            self._expect_empty(server)

    @contextlib.contextmanager
    def _within(self, seconds, session):
        """Ends a session that does not answer in time: a case that fails is not to wait without end."""
        timer = threading.Timer(seconds, session.process.kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _wait_used(self, server, keeper):
        """Until the server uses this one: it may have one to forget."""
        server.wait_for("SELECT DISTINCT keeper_pid FROM gstore_fdw_keeper_info WHERE ready", str(keeper.pid))

    def _expect_empty(self, server):
        """The keeper has no object, and is informed of none."""
        ls = [f"{private.BUILD}/tools/gvmem", "keeper", "ls", "-s", str(server.folder / "run/keeper.sock")]
        deadline = time.monotonic() + 20
        while True:
            said = subprocess.run(private.as_owner(ls), env=server.environ, capture_output=True, text=True, check=True).stdout
            if not said.strip():
                return
            if time.monotonic() > deadline:
                raise Failed(f"left in the keeper: {said}")
            time.sleep(0.05)

    def _keeper(self, server, name="keeper.sock"):
        return private.running_keeper(server, name)


@group("gstore_fdw.service_threads=1", "gstore_fdw.windows=2")
class Queue:
    """One thread, which waits for a lease: who comes next is in the queue."""

    def command_given_up_is_not_carried_out_later(self, server):
        """An export is cancelled before its turn, and its table dropped: late, it would make an area that is never used."""
        server.sql("CREATE FOREIGN TABLE gone (id int) SERVER gstore_fdw; INSERT INTO gone VALUES (1)")
        session = self._patient(server)
        with self._busy(server):
            in_middle(server, session, "SELECT gstore_export('gone')")
            server.sql(f"SELECT pg_cancel_backend({session.pid})")
            expect(session.finish(), "", "a token")
            server.sql("SET statement_timeout = '20s'; DROP FOREIGN TABLE gone")
            server.wait_for("SELECT sum(objects) FROM gstore_fdw_keeper_info", "1")
        server.wait_for("SELECT sum(objects) FROM gstore_fdw_keeper_info", "0")
        expect(session.sql("SELECT 'still here'"), "still here", "the session")
        session.close()

    def commands_given_up_leave_the_queue_in_order(self, server):
        """There are more of them than it has places; who comes later is served, once."""
        fill(server, 1000)
        session = self._patient(server)
        with self._busy(server):
            session.sql("SET LOCAL statement_timeout = '10ms' \\; SELECT sum(id) FROM ft;" * 300)
            session.begin("SELECT sum(id) FROM ft")
        expect(session.finish(), "500500", "what came last")
        session.close()
        expect_usable(server, 1000)
        server.sql("DROP FOREIGN TABLE ft")

    def reads_left_to_the_thread_lose_no_window(self, server):
        for _ in range(3):  # more than there are windows
            with self._busy(server):
                pass

    def _patient(self, server):
        """A session that goes on after an error."""
        session = server.session()
        session.sql("\\set ON_ERROR_STOP off\nSELECT 1")
        return session

    @contextlib.contextmanager
    def _busy(self, server):
        """The thread has a read that somebody has cancelled, of a column that another program holds."""
        server.sql("CREATE FOREIGN TABLE first (id int) SERVER gstore_fdw; INSERT INTO first VALUES (1)")
        session = self._patient(server)
        with private.leased(server, "first"):
            in_middle(server, session, "SELECT sum(id) FROM first")
            server.sql(f"SELECT pg_cancel_backend({session.pid})")
            expect(session.finish(), "", "a sum")
            yield
        expect(session.sql("SET statement_timeout = '20s'; SELECT sum(id) FROM first"), "1", "a sum")
        session.close()
        server.sql("DROP FOREIGN TABLE first")


if __name__ == "__main__":
    sys.exit(main())
