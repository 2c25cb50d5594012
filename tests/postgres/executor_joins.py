#!/usr/bin/env python3
"""Joins in the executor of queries: hash tables are shared, kept for a while and given back, may be larger than the device, and end with whatever
happens to a query that builds one; joined rows come run by run, whatever room a run has. TAP, a line a case.

usage: executor_joins.py [CASE...]
"""
import contextlib
import ctypes
import os
import select
import signal
import socket
import struct
import sys
import time

sys.dont_write_bytecode = True
from cases import group, main  # noqa: E402
from executor_client import COUNT, ID, K, N, PLANNED, Client, Column, Program, Span, aggregate, block, descriptors, executor_pid, executor_pids, expect_verb, fill, fill_hashes, op, other_server, signed, stopped, wait_until, write_inner, write_program  # noqa: E402
from private import Failed, SqlError, expect  # noqa: E402

# The outer table is `fact`, whatever costs less.
JOIN = "SELECT count(*), sum(f.x), sum(d.v) FROM fact f LEFT JOIN dim d ON f.k = d.k"
LONG_S = 8  # as long as a launch may take, but for its beginning
COUNTED_S = 1.5  # figures of the keeper are those of the last second
TOO_LONG_S = 11  # of a launch
SEMI_IF = N["GQUERY_JOIN_CONDITION"] | N["GQUERY_JOIN_SEMI"]
ROWS, KEYS = 20000, 50000


def make(server, rows=ROWS, keys=KEYS):
    server.sql(
        "DROP FOREIGN TABLE IF EXISTS fact, dim; CREATE FOREIGN TABLE fact (k int, x int) SERVER gstore_fdw; CREATE FOREIGN TABLE dim (k int, v int) SERVER gstore_fdw;"
        f"INSERT INTO fact SELECT i * 7 % {2 * keys}, i FROM generate_series(1, {rows}) i; INSERT INTO dim SELECT i, i % 100 FROM generate_series(0, {keys - 1}) i"
    )


def wanted(server):
    return server.sql("SET gstore_fdw.gpu_queries = off; " + JOIN).splitlines()[-1]


def objects(server):
    """At the keeper."""
    time.sleep(COUNTED_S)
    return int(server.sql("SELECT sum(objects) FROM gstore_fdw_keeper_info"))


def expect_on_gpu(session):
    plan = session.sql("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + JOIN)
    if "Ran: on the GPU" not in plan or "GPU Join:" not in plan:
        raise Failed(f"the join did not run on the GPU: {plan}")


def export(server):
    """Their tokens have objects, too."""
    server.sql(PLANNED + "SELECT count(*) FROM fact WHERE x > 0; SELECT count(*) FROM dim WHERE v > 0")


@group()
class Sharing:
    def sessions_have_one_hash_table_of_the_same_rows(self, server):
        make(server)
        right = wanted(server)
        export(server)
        before = objects(server)
        with contextlib.ExitStack() as stack:
            sessions = [server.session() for _ in range(4)]
            for s in sessions:
                stack.callback(s.close)
                s.sql(PLANNED)
            for s in sessions:
                s.begin(JOIN)
            for s in sessions:
                expect(s.finish(), right, "the result")
            expect_on_gpu(sessions[0])
            expect(objects(server) - before, 1, "objects more")
            # Other rows are another one.
            server.sql("DELETE FROM dim WHERE k = 7")
            right = wanted(server)
            expect(sessions[1].sql(JOIN), right, "the result after a deletion")
            expect_on_gpu(sessions[1])

    def hash_table_without_a_user_goes_with_its_memory(self, server):
        server.sql("DROP FOREIGN TABLE fact, dim")
        server.wait_for("SELECT sum(device_resident + device_on_host) FROM gstore_fdw_keeper_info", "0")

    def own_rows_make_hash_tables_that_are_used_once(self, server):
        make(server)
        session = server.session()
        session.sql(PLANNED + "BEGIN")
        session.sql("INSERT INTO dim VALUES (-1, 5); INSERT INTO fact VALUES (-1, 1000000)")
        right = session.sql("SET LOCAL gstore_fdw.gpu_queries = off; " + JOIN + "; SET LOCAL gstore_fdw.gpu_queries = on").splitlines()[0]
        expect_on_gpu(session)
        before = objects(server)
        expect(session.sql(JOIN), right, "the result")
        expect(objects(server) - before, 0, "objects more")
        session.sql("ROLLBACK")
        expect(session.sql(JOIN), wanted(server), "the result after ROLLBACK")
        session.close()


@group("gstore_fdw.device_memory=64MB", "gstore_fdw.host_memory=1GB")
class Large:
    def hash_table_larger_than_the_device_is_read_over_the_link(self, server):
        make(server, 30000, 2500000)  # 2 x 16 bytes a row, and 4
        right = wanted(server)
        session = server.session()
        session.sql(PLANNED)
        expect(session.sql(JOIN), right, "the result")
        expect_on_gpu(session)
        server.wait_for("SELECT sum(device_resident + device_on_host) > 80000000 AND sum(device_on_host) > 0 AND sum(device_resident) > 0 FROM gstore_fdw_keeper_info")
        session.close()


@group("gstore_fdw.device_memory=64MB", "gstore_fdw.host_memory=16MB", "gstore_fdw.gpu_join_memory=1GB")
class NoRoom:
    def hash_table_that_has_no_room_anywhere_leaves_the_join_to_the_local_plan(self, server):
        make(server, 3000, 2500000)
        right = wanted(server)
        session = server.session()
        session.sql(PLANNED)
        expect(session.sql(JOIN), right, "the result")
        expect("by the local plan" in session.sql("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + JOIN), True, "the local plan has run")
        # What was begun is undone: a smaller one has room.
        server.sql("DELETE FROM dim WHERE k >= 1000")
        right = wanted(server)
        expect(session.sql(JOIN), right, "the result")
        expect_on_gpu(session)
        session.close()


@group()
class Limit:
    ROWS = 5000  # k is id % 1000, so that a key has five; those with 0 have NULL
    MATCHES = 5
    KEYS = ROWS - MATCHES
    HASH = KEYS * 2 * 2 * 8 + ROWS * 4  # bytes

    def _ask(self, client, token, role, hashes, first=0):
        """For joined rows, from an outer row on."""
        write_rows(client, token, self.ROWS)
        w = client.window
        w.role, w.hash_bytes_max, w.first_row = role, hashes, first
        client.send("RUN")

    def _beside_a_long_query(self, check):
        """Its role is 1, and its hash tables leave no room for another one within the limit. The software GPU has SMs for others beside it. On a busy machine it may end before what is done meanwhile, which is done again then."""
        limit = 3 * self.HASH - 1
        with other_server(GVMEM_DRIVER="soft", GVMEM_SOFTGPU=f"devices=1,sms=20,instance=limit.{os.getpid()}") as server:
            token = fill(server, self.ROWS)
            for _ in range(5):
                with Client(server) as long, Client(server) as mine:
                    write_product(long, token, self.ROWS, "count(*)")
                    long.window.role = 1
                    long.send("RUN")

                    def runs():
                        return not select.select([long.socket], [], [], 0)[0]

                    def has_no_room():
                        self._ask(mine, token, 1, limit)
                        return mine.receive().verb == N["GQUERY_NO_ROOM"] or not runs()

                    wait_until("the long query has its hash tables", has_no_room)
                    if check(server, token, limit, long, runs):
                        return
        raise Failed("the long query has always ended before what was done beside it")

    def hash_tables_count_to_the_role_whose_query_builds_them(self, server):
        token = fill(server, self.ROWS)
        with Client(server) as client:
            self._ask(client, token, 1, self.HASH - 1)
            expect_verb(client.receive(), "NO_ROOM", "53200")
            self._ask(client, token, 1, self.HASH)
            expect(len(client.finish(client.receive())), self.KEYS * self.MATCHES, "joined rows")

        def check(server, token, limit, _, runs):
            with Client(server) as client:
                self._ask(client, token, 2, limit)
                answer, ran = client.receive(), runs()
                expect(len(client.finish(answer)), self.KEYS * self.MATCHES, "another role's joined rows")
                return ran

        self._beside_a_long_query(check)

    def query_of_which_rows_were_returned_waits_for_room(self, _):
        def check(server, token, limit, long, runs):
            with Client(server) as client:
                self._ask(client, token, 1, self.HASH - 1, first=1)  # it never has so much
                expect_verb(client.receive(), "NO_ROOM", "53200")
                self._ask(client, token, 1, limit, first=1)
                time.sleep(0.5)
                answered, ran = select.select([client.socket], [], [], 0)[0], runs()
                if ran:
                    expect(answered, [], "answers before the end of the long query")
                long.socket.shutdown(socket.SHUT_RDWR)
                expect(len(client.finish(client.receive())), (self.KEYS - 1) * self.MATCHES, "joined rows")
                return ran

        self._beside_a_long_query(check)

    def query_that_waits_for_room_ends_with_its_backend(self, _):
        def check(server, token, limit, _, runs):
            pid = executor_pid(server)
            before = descriptors(pid)
            with Client(server) as client:
                self._ask(client, token, 1, limit, first=1)
                wait_until("it is there", lambda: len(descriptors(pid)) > len(before))
                time.sleep(0.2)
            wait_until("it has ended", lambda: len(descriptors(pid)) <= len(before))
            return runs()

        self._beside_a_long_query(check)


@group()
class Life:
    def cancelled_builds_leave_nothing_and_others_go_on(self, server):
        make(server, 1000, 1500000)
        right = wanted(server)
        other = server.session()
        other.sql(PLANNED)
        for ms in (0, 5, 20, 60, 150, 400):
            session = server.session()  # an error ends it
            session.sql(PLANNED)
            session.begin(JOIN)
            other.begin(JOIN)
            time.sleep(ms / 1000)
            server.sql(f"SELECT pg_cancel_backend({session.pid})")
            with contextlib.suppress(SqlError):
                session.finish()
            session.close()
            expect(other.finish(), right, "the result of another session")
            server.sql("DELETE FROM dim WHERE k = (SELECT max(k) FROM dim); INSERT INTO fact VALUES (0, 0)")
            right = wanted(server)
        expect(other.sql(JOIN), right, "the result")
        expect_on_gpu(other)
        other.close()

    def killed_executor_loses_its_hash_tables_and_the_next_one_builds_them(self, server):
        make(server)
        right = wanted(server)
        session = server.session()
        session.sql(PLANNED)
        expect(session.sql(JOIN), right, "the result")
        pid = executor_pid(server)
        os.kill(pid, signal.SIGKILL)
        wait_until("it is gone", lambda: pid not in executor_pids(server))
        expect(session.sql(JOIN), right, "the result")
        expect_on_gpu(session)
        server.sql("DROP FOREIGN TABLE fact, dim")
        session.close()
        server.wait_for("SELECT sum(device_resident + device_on_host) FROM gstore_fdw_keeper_info", "0")


# ---- queries that a backend would not send


def write_join(client, token, rows, kind="GQUERY_JOIN_INNER", column=ID):
    """count(*) and the sum of the inner rows' values, of ft joined with itself by the column."""
    code = [op("LOAD", 0), op("PROBE", 1, 1, N[kind]), aggregate(0, "COUNT_ROWS"), op("LOAD", 1), aggregate(1, "SUM_I64")]
    client.write(token, rows, (code, 3), columns=(column, column))
    client.window.program.columns[1].table = 1
    return write_inner(client, token, rows, column)


# What becomes of the rows of a product: they are counted; a condition leaves out all of them; they are looked for among those of the last table, and none is one.
ENDS = {
    "count(*)": [op("PROBE", 2, 1), aggregate(0, "COUNT_ROWS")],
    "rows": [op("PROBE", 2, 1), op("CONSTANT"), op("FILTER"), op("APPEND")],
    "rows with matches": [op("PROBE", 2, 1, SEMI_IF), op("CONSTANT"), op("MATCH", 2, 0, SEMI_IF), op("APPEND")],
}


def write_product(client, token, rows, end):
    """ft three times over: of 5000 rows 125 billion, of which a launch has some at least."""
    at = write_join(client, token, rows, column=K)
    w = client.window
    w.table_count, w.tables[2], w.builds[2 - 1] = 3, w.tables[1], w.builds[0]
    w.gather_count = int(end != "count(*)")
    code = [op("CONSTANT"), op("PROBE", 1, 1), op("CONSTANT"), *ENDS[end]]
    write_program(w.program, (code, 1 - w.gather_count), [Column(0, K[0] + 1, K[1], N[K[2]], 0)])
    client.map[at + Program.code.offset : at + Program.code.offset + 16] = bytes(op("CONSTANT"))


# ---- joined rows, run by run


def write_rows(client, token, rows, code=(), wanted=0, scratch=1 << 30, kind="GQUERY_JOIN_INNER"):
    """k, id and the other's id of ft joined with itself by k; code: what is behind the join. Columns 0 and 1 are the outer table's."""
    program = [op("LOAD", 0), op("PROBE", 1, 1, N[kind]), *code, op("APPEND")]
    client.write(token, rows, (program, 0), columns=(K, ID, ID), scratch=scratch, gather=(0, 1, 2), entries=wanted)
    client.window.program.columns[2].table = 1
    write_inner(client, token, rows, K)


def all_runs(client, token, rows, **more):
    """Each joined row, and how many runs there were."""
    found, runs, first, slice_ = [], 0, 0, 0
    while True:
        write_rows(client, token, rows, **more)
        client.window.first_row, client.window.slice_rows = first, slice_
        found += client.finish(client.ask())
        runs += 1
        after = client.window.next_row
        expect(first < after <= rows or rows == 0, True, "a run goes on")
        first, slice_ = after, client.window.next_slice_rows
        if first == rows:
            return sorted(found), runs


def list_scratch(entries, words):
    """For a list, with room for 4096 more entries, which is the least."""
    return block((entries + 4096) * 8 * words) + block(entries * 8 * words)


def first_rows(client, token, rows, code, entries, scratch=1 << 30, after=None, kind="GQUERY_JOIN_INNER"):
    """Of the same join, whose columns 0 and 1 are the outer table's, 2 the inner one's: the first entries of keys that code leaves, in their order."""
    program = [op("LOAD", 0), op("PROBE", 1, 1, N[kind]), *code]
    client.write(token, rows, (program, 0), columns=(K, ID, ID), scratch=scratch, entries=entries, after=after)
    client.window.program.columns[2].table = 1
    write_inner(client, token, rows, K)
    reply = client.ask()
    return sorted(tuple(signed(word) for word in entry) for entry in client.finish(reply)) if reply.verb == N["GQUERY_DONE"] else reply


@group()
class Rows:
    ROWS = 4000  # k is id % 1000, so that a key has four; those with 0 have NULL

    def _expected(self):
        return sorted((0, k, i, j) for k in range(1, 1000) for i in range(k, self.ROWS + 1, 1000) for j in range(k, self.ROWS + 1, 1000))

    def joined_rows_are_the_same_whatever_room_a_run_has(self, server):
        token, wanted = fill(server, self.ROWS), self._expected()
        with Client(server) as client:
            for scratch, runs_least, runs_most in ((1 << 30, 1, 1), (1 << 20, 1, 2), (256 << 10, 3, 40), (64 << 10, 12, 150), (16 << 10, 40, 2000)):
                found, runs = all_runs(client, token, self.ROWS, scratch=scratch)
                expect(found == wanted, True, f"joined rows with {scratch} bytes, {runs} runs, {len(found)} rows")
                expect(runs_least <= runs <= runs_most, True, f"runs with {scratch} bytes: {runs}")
            # They may end early, and the rows of one key may be more than there is room for.
            found, runs = all_runs(client, token, self.ROWS, wanted=100)
            expect((found == wanted, runs > 1), (True, True), f"joined rows, 100 at a time, {runs} runs")
            write_rows(client, token, self.ROWS, scratch=1024)
            expect_verb(client.ask(), "NO_ROOM", "53200")

    def numbers_of_the_rows_that_are_joined_come_in_place_of_values(self, server):
        token, row = fill(server, self.ROWS), N["GQUERY_GATHER_ROW"]
        wanted = sorted((0, i - 1, k, j - 1) for _, k, i, j in self._expected())
        with Client(server) as client:
            write_rows(client, token, self.ROWS)
            for i, word in enumerate((row, 0, row | 1)):  # of the outer table, a value, of the inner one
                client.window.gather[i] = word
            expect(sorted(client.finish(client.ask())) == wanted, True, "rows of both tables")
            # Of an inner table alone, without a column of it; where a left join has found none.
            write_rows(client, token, self.ROWS, kind="GQUERY_JOIN_LEFT")
            client.window.gather_count, client.window.gather[0], client.window.program.column_count = 1, row | 1, 2
            found = client.finish(client.ask())
            expect((found.count((1, 0)), len(found)), (self.ROWS // 1000, len(wanted) + self.ROWS // 1000), "rows without a match")

    def first_rows_in_an_order_are_the_same_whatever_room_a_list_has(self, server):
        token = fill(server, self.ROWS)
        pairs = [(i, j) for _, _, i, j in self._expected()]
        orders = (
            ([op("LOAD", 2), op("EMIT", 1)], sorted((j, i - 1, j - 1) for i, j in pairs)),
            ([op("LOAD", 1), op("INVERT"), op("LOAD", 2), op("EMIT", 2)], sorted((~i, j, i - 1, j - 1) for i, j in pairs)),
            ([op("CONSTANT"), op("EMIT", 1)], sorted((0, i - 1, j - 1) for i, j in pairs)),
        )
        with Client(server) as client:
            for code, wanted in orders:
                for entries in (1, 64, 3000, len(pairs), 100000):
                    for scratch in (1 << 30, list_scratch(entries, len(wanted[0]))):
                        found = first_rows(client, token, self.ROWS, code, entries, scratch)
                        expect(found == wanted[:entries], True, f"{entries} entries with {scratch} bytes")
                # List by list, each behind the last entry of the one before.
                found, after = [], None
                while after is None or len(part) == 1777:
                    part = first_rows(client, token, self.ROWS, code, 1777, after=after)
                    found, after = found + part, part[-1]
                expect(found == wanted, True, "all entries")
                expect_verb(first_rows(client, token, self.ROWS, code, 3000, list_scratch(3000, len(wanted[0])) - 1), "NO_ROOM", "53200")
            # Of a semi-join each outer row is there once, and without an inner one; of a left join those without a match are.
            found = first_rows(client, token, self.ROWS, [op("LOAD", 1), op("EMIT", 1)], 100000, kind="GQUERY_JOIN_SEMI")
            expect(found == sorted((i, i - 1, -1) for i in {i for i, _ in pairs}), True, "entries of a semi-join")
            found = first_rows(client, token, self.ROWS, [op("LOAD", 1), op("EMIT", 1)], 100000, kind="GQUERY_JOIN_LEFT")
            alone = [(i, i - 1, -1) for i in range(1000, self.ROWS + 1, 1000)]
            expect(found == sorted([(i, i - 1, j - 1) for i, j in pairs] + alone), True, "entries of a left join")

    def first_rows_of_one_row_with_very_many_matches_need_no_room_for_all(self, server):
        server.sql("DROP FOREIGN TABLE IF EXISTS one; CREATE FOREIGN TABLE one (id int, k bigint) SERVER gstore_fdw; INSERT INTO one SELECT i, CASE WHEN i <= 30000 THEN 0 ELSE i END FROM generate_series(1, 30100) i")
        token = server.sql("SELECT gstore_export('one')")
        of_last = [op("LOAD", 1), op("CONSTANT", value=29999), op("GE", b="GQUERY_ORDER_I64"), op("FILTER")]
        pairs = [(i, j) for i in (29999, 30000) for j in range(1, 30001)] + [(i, i) for i in range(30001, 30101)]
        with Client(server) as client:
            for keys, wanted in (([op("LOAD", 2), op("EMIT", 1)], sorted((j, i - 1, j - 1) for i, j in pairs)), ([op("LOAD", 2), op("INVERT"), op("EMIT", 1)], sorted((~j, i - 1, j - 1) for i, j in pairs))):
                for entries in (1, 500, 20000):
                    found = first_rows(client, token, 30100, [*of_last, *keys], entries, list_scratch(entries, 3))
                    expect(found == wanted[:entries], True, f"{entries} entries")

    def errors_of_all_rows_come_before_the_first_results(self, server):
        token, wanted = fill(server, self.ROWS), self._expected()
        # 10 / (id - least) > -11, where id - least is 0 in the last row that is joined
        def divided(least):
            return [op("CONSTANT", value=10), op("LOAD", 1), op("CONSTANT", value=least), op("SUBTRACT", b="GQUERY_ARITHMETIC_I32"), op("DIVIDE", b="GQUERY_ARITHMETIC_I32"),
                    op("CONSTANT", value=-11), op("GT", b="GQUERY_ORDER_I64"), op("FILTER")]  # fmt: skip
        with Client(server) as client:
            for scratch in (1 << 30, 64 << 10):
                write_rows(client, token, self.ROWS, divided(self.ROWS - 1), scratch=scratch)
                expect_verb(client.ask(), "RAISED")
                found, _ = all_runs(client, token, self.ROWS, code=divided(self.ROWS), scratch=scratch)  # of no joined row
                expect(found == wanted, True, f"joined rows with {scratch} bytes")

    def one_row_with_very_many_matches_has_all_of_them_or_the_local_plan(self, server):
        server.sql("DROP FOREIGN TABLE IF EXISTS one; CREATE FOREIGN TABLE one (id int, k bigint) SERVER gstore_fdw; INSERT INTO one SELECT i, CASE WHEN i <= 30000 THEN 0 ELSE i END FROM generate_series(1, 30100) i")
        token = server.sql("SELECT gstore_export('one')")
        def of_last(first):  # the outer rows from this one on
            return [op("LOAD", 1), op("CONSTANT", value=first), op("GE", b="GQUERY_ORDER_I64"), op("FILTER")]
        with Client(server) as client:
            found, runs = all_runs(client, token, 30100, code=of_last(29999), scratch=2 << 20)
            expect((len(found), len(set(found)), runs > 1), (60100, 60100, True), "two rows with 30,000 matches, and others with one")
            write_rows(client, token, 30100, code=of_last(30000), scratch=1 << 20)
            expect_verb(client.ask(), "NO_ROOM", "53200")

    def rows_that_others_delete_and_an_executor_that_ends_do_not_change_a_cursor(self, server):
        make(server, 60000, 60000)
        query = "SELECT f.x, d.v FROM fact f JOIN dim d ON f.k = d.k"
        session, right = server.session(), server.sql(f"SET gstore_fdw.gpu_queries = off; SELECT count(*), sum(x::int8 * (v + 1)) FROM ({query} OFFSET 0) j").splitlines()[-1]
        session.sql(PLANNED + f"SET cpu_tuple_cost = 0.0001; CREATE TEMP TABLE seen (x int, v int); BEGIN; DECLARE c CURSOR FOR {query}")
        expect("GPU: join of" in session.sql("EXPLAIN " + query), True, "the plan joins on the GPU")
        fetch = "DO $$ DECLARE c refcursor := 'c'; x int; v int; BEGIN FOR i IN 1..{} LOOP FETCH c INTO x, v; EXIT WHEN NOT FOUND; INSERT INTO seen VALUES (x, v); END LOOP; END $$"
        session.sql(fetch.format(5))
        # What it has fetched is here, and the next run is another executor's.
        server.sql("DELETE FROM dim WHERE k % 2 = 0; DELETE FROM fact WHERE x % 2 = 0; INSERT INTO fact SELECT 1, 1 FROM generate_series(1, 1000)")
        pid = executor_pid(server)
        os.kill(pid, signal.SIGKILL)
        wait_until("it is gone", lambda: pid not in executor_pids(server))
        session.sql(fetch.format(100000))
        expect(session.sql("SELECT count(*), sum(x::int8 * (v + 1)) FROM seen"), right, "what the cursor has returned")
        session.sql("COMMIT")
        session.close()


@group()
class Long:
    def keys_with_one_place_are_no_room_and_the_next_join_works(self, server):
        """Each of them would be looked for behind all before."""
        for rows in (100000, 500):
            token = fill_hashes(server, (5 << 60 | i for i in range(rows)))  # the server is ready then, which takes a while on a GPU
            with Client(server) as client:
                write_join(client, token, rows, column=K)
                if rows > 1000:
                    expect_verb(client.ask(), "NO_ROOM", "53000")
                else:
                    expect([record[1] for record in client.finish(client.ask())], [rows], "count(*)")
        server.sql("SELECT gstore_fdw_queries_reset()")
        fill_hashes(server, (5 << 60 | i for i in range(100000)))
        query = "SELECT count(*) FROM ft a JOIN ft b ON a.k = b.k"
        expect(server.sql(PLANNED + query).splitlines()[-1], "100000", "count(*) by the local plan")
        expect(server.sql("SELECT kind, unsupported FROM gstore_fdw_queries WHERE unsupported > 0"), "join|1", "what the view counts")

    ROWS = 5000

    def joins_that_would_take_for_ever_are_no_room_and_end_no_other_query(self, server):
        token = fill_hashes(server, range(self.ROWS))
        with Client(server) as client, Client(server) as other:
            expect(other.run(token, self.ROWS, COUNT), [(0, self.ROWS)], "count(*)")
            pid = executor_pid(server)
            for end in ENDS:
                for _ in range(15):  # on a busy machine the other query can take longer than the join may
                    write_product(client, token, self.ROWS, end)
                    client.send("RUN")
                    time.sleep(COUNTED_S)  # it runs
                    expect(other.run(token, self.ROWS, COUNT), [(0, self.ROWS)], "count(*)")
                    meanwhile = select.select([client.socket], [], [], 0)[0]
                    expect_verb(client.receive(), "NO_ROOM", "53000")
                    expect(executor_pid(server), pid, "the executor")
                    if not meanwhile:
                        break
                expect(meanwhile, [], f"answers before the other query's, {end}")
                expect(other.run(token, self.ROWS, COUNT), [(0, self.ROWS)], "count(*)")

    def several_that_take_long_one_after_the_other_are_not_taken_for_one_that_hangs(self, _):
        """At any time one of them has not gone on for as long as its launch may take, and each of them goes on soon. All run: the software GPU has SMs for them."""
        with other_server(GVMEM_DRIVER="soft", GVMEM_SOFTGPU=f"devices=1,sms=20,instance=several.{os.getpid()}") as server, contextlib.ExitStack() as stack:
            token = fill_hashes(server, range(self.ROWS))
            clients = [stack.enter_context(Client(server)) for _ in range(2)]
            for client in clients:
                expect(client.run(token, self.ROWS, COUNT), [(0, self.ROWS)], "count(*)")
                write_product(client, token, self.ROWS, "count(*)")
            pid = executor_pid(server)
            until = time.monotonic() + (N["GSTORE_SPAWN_HANG_MS"] + 2 * N["GSTORE_SPAWN_BEAT_MS"]) / 1000
            for client in clients:
                client.send("RUN")
                time.sleep(TOO_LONG_S / len(clients))
            while time.monotonic() < until:
                ready = select.select([client.socket for client in clients], [], [], 1)[0]
                for client in (client for client in clients if client.socket in ready):
                    expect_verb(client.receive(), "NO_ROOM", "53000")
                    client.send("RUN")
                expect(executor_pids(server), [pid], "executors")
            for client in clients:
                expect_verb(client.receive(), "NO_ROOM", "53000")

    def joins_that_would_take_for_ever_end_soon_after_their_backends(self, server):
        token = fill_hashes(server, range(self.ROWS))
        with Client(server) as other:
            for end in ENDS:
                with Client(server) as client:
                    expect(client.run(token, self.ROWS, COUNT), [(0, self.ROWS)], "count(*)")
                    expect(other.run(token, self.ROWS, COUNT), [(0, self.ROWS)], "count(*)")
                    pid = executor_pid(server)
                    before = len(descriptors(pid))
                    write_product(client, token, self.ROWS, end)
                    client.send("RUN")
                    time.sleep(COUNTED_S)  # it runs
                wait_until(f"the connection is closed, {end}", lambda: len(descriptors(pid)) == before - 2, limit_s=LONG_S - COUNTED_S)

    def joined_rows_that_would_take_too_long_at_a_time_come_by_fewer(self, server):
        """Once some have been returned. 225 million pairs, of which those of equal keys are rows: they take seconds, but for a GPU."""
        rows = 15000
        token = fill_hashes(server, range(rows))
        with Client(server) as client:
            code = [op("CONSTANT"), op("PROBE", 1, 1), op("LOAD", 0), op("LOAD", 1), op("EQ", b="GQUERY_ORDER_I64"), op("FILTER"), op("APPEND")]
            found, first, slice_ = [], 1, rows
            while first < rows:
                at = write_join(client, token, rows, column=K)
                w = client.window
                write_program(w.program, (code, 0), [Column(t, K[0] + 1, K[1], N[K[2]], 0) for t in (0, 1)])
                client.map[at + Program.code.offset : at + Program.code.offset + 16] = bytes(op("CONSTANT"))
                w.gather_count, w.gather[1] = 2, 1
                w.first_row, w.slice_rows = first, slice_
                client.send("RUN")
                if first == 1:  # once it goes on, it seems to have taken long
                    time.sleep(COUNTED_S)
                    with stopped(executor_pid(server)):
                        time.sleep(TOO_LONG_S)
                found += client.finish(client.receive())
                first, slice_ = w.next_row, w.next_slice_rows
            expect(len(found), rows - 1, "joined rows")
            expect((len(set(found)), all(left == right for _, left, right in found)), (rows - 1, True), "each of them once")

    def hash_table_is_built_where_its_first_query_has_no_turn(self, _):
        """That is of a role which has as many as it may have; the next one is of another. Each of the software GPU's SMs has a block at a time: there are more than queries."""
        with other_server(GVMEM_DRIVER="soft", GVMEM_SOFTGPU=f"devices=1,sms=20,instance=turns.{os.getpid()}") as server:
            token = fill(server, self.ROWS)
            server.sql("CREATE FOREIGN TABLE single (id int, k bigint) SERVER gstore_fdw; INSERT INTO single VALUES (1, 1)")
            single = server.sql("SELECT gstore_export('single')")
            for version in range(1, 16):  # on a busy machine the role's others can end before the join
                if self._joins_without_a_turn(server, token, single, version):
                    return
        raise Failed("the role's other queries have always ended before the join")

    def _joins_without_a_turn(self, server, token, single, version):
        """False: the other queries have ended meanwhile."""
        with contextlib.ExitStack() as stack:
            first, other, *busy = [stack.enter_context(Client(server)) for _ in range(14)]
            for each in busy:
                write_product(each, token, self.ROWS, "count(*)")
                w = each.window
                w.role, w.table_count, w.tables[3], w.builds[3 - 1] = 1, 4, w.tables[1], w.builds[0]
                w.tables[0].token, w.tables[0].rows = single.encode(), 1  # a block alone
                probes = [code for table in (1, 2, 3) for code in (op("CONSTANT"), op("PROBE", table, 1))]
                write_program(w.program, ([*probes, aggregate(0, "COUNT_ROWS")], 1), [Column(0, K[0] + 1, K[1], N[K[2]], 0)])
                each.send("RUN")
            first.write("", 0, COUNT, columns=(), role=1)
            answer = first.ask()
            while answer.verb == N["GQUERY_DONE"] and not select.select([each.socket for each in busy], [], [], 0)[0]:
                answer = first.ask()
            if answer.verb == N["GQUERY_DONE"]:
                return False
            expect_verb(answer, "NO_ROOM")  # they have all turns of the role
            for role, each in enumerate((first, other), 1):
                write_join(each, token, self.ROWS)
                each.window.role, each.window.tables[1].store, each.window.tables[1].version = role, 1, version
            first.window.first_row = 1  # it may wait for as long as it takes
            first.send("RUN")
            wait_until("it has begun", lambda: first.window.begun != 0)
            time.sleep(COUNTED_S / 3)
            expect(other.finish(other.ask()), [(0, self.ROWS, self.ROWS * (self.ROWS + 1) // 2, 0)], "a join")
            return not select.select([each.socket for each in (first, *busy)], [], [], 0)[0]

    def query_that_waits_for_a_turn_ends_with_its_statement(self, server):
        token = fill_hashes(server, range(self.ROWS))
        server.sql("CREATE FOREIGN TABLE few (id int) SERVER gstore_fdw; INSERT INTO few SELECT generate_series(1, 1000)")
        text, role = "SELECT count(*) FROM few WHERE id > 1", int(server.sql("SELECT oid FROM pg_roles WHERE rolname = session_user"))
        sessions = [server.session() for _ in range(2)]
        for session in sessions:
            session.sql(PLANNED + text)
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: [session.close() for session in sessions])
            for _ in range(12):  # all that one role may have
                client = stack.enter_context(Client(server))
                write_product(client, token, self.ROWS, "count(*)")
                client.window.role = role
                client.send("RUN")
            time.sleep(COUNTED_S)  # they run
            pid = executor_pid(server)
            start, before = time.monotonic(), len(descriptors(pid))
            sessions[0].begin("SET statement_timeout = 500; " + text)
            sessions[1].begin("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + text)
            expect(sessions[0].error(), "57014", "SQLSTATE after a time limit")
            # Not by a launch of its own, which would come after the others'.
            wait_until("its connection is closed", lambda: len(descriptors(pid)) == before - 1)
            expect(time.monotonic() - start < LONG_S - COUNTED_S, True, "it has waited until others' end")
            plan = sessions[1].finish()
            expect("Ran: by the local plan: cannot read a table: for 2000 ms the GPU has had no turn for another query: 16 run at a time, of one role 12" in plan, True, f"what ran: {plan}")


@group()
class Lies:
    ROWS = 1000

    def joins_that_lie_are_errors(self, server):
        token = fill(server, self.ROWS)
        right = [(0, self.ROWS, self.ROWS * (self.ROWS + 1) // 2, 0)]

        def code_of(at, number):
            return at + Program.code.offset + 16 * number

        def change_build(client, where, value):
            client.map[where : where + 2] = value.to_bytes(2, "little")

        with Client(server) as client:
            write_join(client, token, self.ROWS)
            expect(client.finish(client.ask()), right, "the join")
            for change in (
                lambda w: setattr(w, "table_count", 1),
                lambda w: setattr(w, "table_count", 3),
                lambda w: setattr(w, "table_count", 2**32 - 1),
                lambda w: setattr(w, "builds", type(w.builds)()),
                lambda w: setattr(w.builds[0], "at", w.builds[0].at + 8),
                lambda w: setattr(w.builds[0], "at", 2**64 - 64),
                lambda w: setattr(w.builds[0], "bytes", 64),
                lambda w: setattr(w.program.code[1], "b", 2),
                lambda w: setattr(w.program.code[1], "a", 2),
                lambda w: setattr(w.program.code[1], "value", 4),
                lambda w: setattr(w.program.columns[1], "table", 2),
            ):
                write_join(client, token, self.ROWS)
                change(client.window)
                expect_verb(client.ask(), "ERROR", "XX000")
            at = write_join(client, token, self.ROWS)
            change_build(client, code_of(at, 1), N["GQUERY_MARK"])
            expect_verb(client.ask(), "ERROR", "XX000")
            at = write_join(client, token, self.ROWS)
            change_build(client, code_of(at, 1) + 4, 2)  # two keys
            expect_verb(client.ask(), "ERROR", "XX000")
            for table, form in ((2**32 - 1, "GQUERY_F64"), (2**32 - 2, "GQUERY_I64")):  # a distance, a group
                at = write_join(client, token, self.ROWS) + Program.columns.offset
                for field, value in (("table", table), ("form", N[form])):
                    struct.pack_into("<I", client.map, at + getattr(Column, field).offset, value)
                expect_verb(client.ask(), "ERROR", "XX000")
            # Of a table that is not as the query has it.
            write_join(client, token, self.ROWS)
            client.window.tables[1].rows = self.ROWS + 1
            expect_verb(client.ask(), "ERROR", "55000")
            write_join(client, token, self.ROWS)
            client.window.program.columns[1].number = 77
            expect_verb(client.ask(), "ERROR", "55000")
            write_join(client, token, self.ROWS)
            client.window.tables[1].rows = 2**32
            expect_verb(client.ask(), "NO_ROOM")
            for change in (
                lambda w: setattr(w, "first_row", self.ROWS + 1),
                lambda w: setattr(w, "first_row", 2**64 - 1),
                lambda w: setattr(w, "gather_count", 65),
                lambda w: setattr(w, "gather_count", 2**32 - 1),
                lambda w: w.gather.__setitem__(0, 3),
                lambda w: w.gather.__setitem__(0, 2**32 - 1),
                lambda w: w.gather.__setitem__(0, 2**31),  # a half of a column that has none
                lambda w: w.gather.__setitem__(0, N["GQUERY_GATHER_ROW"] | 2),  # of no table
                lambda w: w.gather.__setitem__(0, N["GQUERY_GATHER_ROW"] | 2**31),
                lambda w: setattr(w.program.columns[2], "table", 2),
                lambda w: setattr(w.program.columns[2], "table", 2**32 - 1),
                lambda w: setattr(w.program.code[1], "value", N["GQUERY_JOIN_SEMI"]),  # it has no columns then
                lambda w: setattr(w.program.code[2], "op", N["GQUERY_EMIT"]),  # of no value
                lambda w: setattr(w.program.code[2], "a", w.program.code[1].a) or setattr(w.program, "code_count", 4),
            ):
                write_rows(client, token, self.ROWS)
                change(client.window)
                expect_verb(client.ask(), "ERROR", "XX000")
            write_rows(client, token, self.ROWS)
            client.window.program.columns[2].type = 20
            expect_verb(client.ask(), "ERROR", "55000")
            write_rows(client, token, self.ROWS)
            client.window.slice_rows = 2**64 - 1
            expect(len(client.finish(client.ask())), 999, "joined rows")
            write_join(client, token, self.ROWS)
            expect(client.finish(client.ask()), right, "the next join")

    def random_bytes_in_programs_of_inner_tables_end_in_an_answer(self, server):
        token = fill(server, self.ROWS)
        with Client(server) as client:
            for seed in range(200):
                at = write_join(client, token, self.ROWS)
                place = at + seed * 37 % (ctypes.sizeof(Program) // (1 if seed % 2 else 40))
                client.map[place : place + 4] = os.urandom(4)
                expect(client.ask().verb in (N["GQUERY_DONE"], N["GQUERY_ERROR"], N["GQUERY_RAISED"], N["GQUERY_NO_ROOM"]), True, "an answer")
                client.send("FORGET")
            write_join(client, token, self.ROWS)
            expect(client.finish(client.ask()), [(0, self.ROWS, self.ROWS * (self.ROWS + 1) // 2, 0)], "the next join")


if __name__ == "__main__":
    sys.exit(main())
