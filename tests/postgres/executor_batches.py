#!/usr/bin/env python3
"""Batches of outer rows in the executor of queries, and what becomes of statements that have some: they are joined as tables are, malformed ones are errors, and
where a batch cannot be done the local plan has its rows and all others. TAP, a line a case.

usage: executor_batches.py [CASE...]
"""
import contextlib
import os
import random
import signal
import struct
import sys
import time

sys.dont_write_bytecode = True
from cases import group, main  # noqa: E402
from executor_client import ID, K, PLANNED, Client, N, Span, aggregate, executor_pid, executor_pids, expect_verb, fill, has_begun, op, other_server, signed, wait_until, write_inner  # noqa: E402
from private import expect  # noqa: E402

ROWS_MAX = N["GQUERY_BATCH_ROWS_MAX"]
OUTER_K, OUTER_V = (1, 20, "GQUERY_I64"), (2, 20, "GQUERY_I64")
APPEND, COUNT = ([op("APPEND")], 0), ([aggregate(0, "COUNT_ROWS"), op("LOAD", 1), aggregate(1, "SUM_I64")], 3)


def columns_of(rows):
    """As the memory file has them; None: NULL."""
    pitch, out = (len(rows) + 63) // 64 * 64, b""
    for column in zip(*rows):
        bits = sum(1 << i for i, value in enumerate(column) if value is not None)
        out += struct.pack(f"={pitch}q", *(value or 0 for value in column), *[0] * (pitch - len(rows))) + bits.to_bytes(pitch // 8, "little")
    return out


def write_batch(client, token, table_rows, rows, end=APPEND, kind="GQUERY_JOIN_INNER", scratch=1 << 30):
    """The rows (k, v) joined with ft by k: the row's number, v and the other's id."""
    code = [op("LOAD", 0), op("PROBE", 1, 1, N[kind]), *end[0]]
    client.write("", len(rows), (code, end[1]), columns=(OUTER_K, OUTER_V, ID), scratch=scratch, gather=(1, 2) if end is APPEND else ())
    client.window.program.columns[2].table = 1
    write_inner(client, token, table_rows, K)
    w, data = client.window, columns_of(rows)
    at = (w.used + 63) // 64 * 64
    client.map[at : at + len(data)] = data
    w.batched, w.batch, w.used = 1, Span(at, len(data)), at + len(data)


def all_runs(client, *batch, **more):
    """Each joined row, and how many runs there were."""
    found, runs, first, slice_ = [], 0, 0, 0
    while True:
        write_batch(client, *batch, **more)
        client.window.first_row, client.window.slice_rows = first, slice_
        found += [(row, nulls, signed(v), j) for row, nulls, v, j in client.finish(client.ask())]
        first, slice_, runs = client.window.next_row, client.window.next_slice_rows, runs + 1
        if first == len(batch[2]):
            return sorted(found), runs


@group()
class Batches:
    ROWS = 4000  # k is id % 1000, so that a key has four; those with 0 have NULL

    def _rows(self, count, seed=1):
        rng = random.Random(seed)
        return [(rng.choice((None, rng.randint(-5, 1200))), rng.choice((None, rng.randint(-(2**63), 2**63 - 1)))) for _ in range(count)]

    def _joined(self, rows, left=False):
        def nulls(v, j):
            return (v is None) | (j == 0) << 1

        def matches(k):
            return range(k, self.ROWS + 1, 1000) if k is not None and 0 < k < 1000 else ((0,) if left else ())

        return sorted((i, nulls(v, j), v or 0, j) for i, (k, v) in enumerate(rows) for j in matches(k))

    def batches_are_joined_as_tables_are(self, server):
        token = fill(server, self.ROWS)
        with Client(server) as client:
            for count in (1, 63, 64, 65, 1000, 5000):
                rows = self._rows(count, count)
                expect(all_runs(client, token, self.ROWS, rows)[0] == self._joined(rows), True, f"joined rows of {count}")
                expect(all_runs(client, token, self.ROWS, rows, kind="GQUERY_JOIN_LEFT")[0] == self._joined(rows, True), True, f"rows of {count}, joined to the left")
                write_batch(client, token, self.ROWS, rows, COUNT)
                joined = self._joined(rows)
                _, counted, low, high = client.finish(client.ask())[0]
                expect((counted, signed(high) * 2**64 + low), (len(joined), sum(v for _, _, v, _ in joined)), f"sums of {count}")
            found, runs = all_runs(client, token, self.ROWS, rows, scratch=112 << 10)
            expect((found == self._joined(rows), runs > 2), (True, True), f"joined rows in {runs} runs")
            write_batch(client, token, self.ROWS, rows, scratch=64 << 10)  # which the batch alone takes
            expect_verb(client.ask(), "NO_ROOM", "53200")

    def batches_that_lie_are_errors(self, server):
        token, rows = fill(server, self.ROWS), self._rows(1000)
        with Client(server) as client:
            for change in (
                lambda w: setattr(w, "batched", 0),
                lambda w: setattr(w.tables[0], "token", token.encode()),
                lambda w: setattr(w.tables[0], "dead", Span(64, 8)),
                lambda w: setattr(w.tables[0], "deleted_bytes", 8),
                lambda w: setattr(w.tables[0], "rows", 1100),
                lambda w: setattr(w.tables[0], "rows", 0),
                lambda w: setattr(w.tables[0], "rows", ROWS_MAX + 1),
                lambda w: setattr(w.tables[0], "rows", 2**63),
                lambda w: setattr(w.tables[0], "rows", 2**64 - 1),
                lambda w: setattr(w, "batch", Span(w.batch.at, w.batch.bytes - 8)),
                lambda w: setattr(w, "batch", Span(w.batch.at, w.batch.bytes + 8)),
                lambda w: setattr(w, "batch", Span(w.batch.at, 2**64 - 64)),
                lambda w: setattr(w, "batch", Span(1 << 20, w.batch.bytes)),
                lambda w: setattr(w, "batch", Span(2**64 - 64, w.batch.bytes)),
                lambda w: setattr(w.program.columns[0], "form", N["GQUERY_I32"]),
                lambda w: setattr(w.program.columns[0], "form", N["GQUERY_TEXT_BODIES"]),
                lambda w: setattr(w.program.columns[1], "bias", 1),
                lambda w: setattr(w.program.columns[1], "table", 1),
                lambda w: setattr(w.program.columns[2], "table", 0),
                lambda w: setattr(w.program, "column_count", 2),
                lambda w: setattr(w, "distance_count", 1),
                lambda w: setattr(w, "first_row", 1001),
            ):
                write_batch(client, token, self.ROWS, rows)
                change(client.window)
                expect_verb(client.ask(), "ERROR")
            # A bit of rows that there are not, and values of NULLs, are of no row.
            write_batch(client, token, self.ROWS, rows)
            at = client.window.batch.at + 8 * 1024 + 1000 // 8
            client.map[at : at + 3] = b"\xff\xff\xff"
            expect(sorted((row, nulls, signed(v), j) for row, nulls, v, j in client.finish(client.ask())) == self._joined(rows), True, "joined rows")
            expect(all_runs(client, token, self.ROWS, rows)[0] == self._joined(rows), True, "the next batch")

    def random_bytes_in_windows_end_in_an_answer(self, server):
        token, rows = fill(server, self.ROWS), self._rows(300)
        verbs = [N["GQUERY_" + verb] for verb in ("DONE", "ERROR", "RAISED", "NO_ROOM")]
        with Client(server) as client:
            rng = random.Random(7)
            for _ in range(300):
                write_batch(client, token, self.ROWS, rows, rng.choice((APPEND, COUNT)))
                w = client.window
                field, sizes = rng.choice(((type(w).batched.offset, 24), (type(w).tables.offset + type(w.tables[0]).rows.offset, 8), (w.batch.at, w.batch.bytes), (type(w).program.offset + 16, 72)))
                place = field + rng.randrange(sizes)
                client.map[place : place + 2] = rng.randbytes(2)
                expect(client.ask().verb in verbs, True, "an answer")
                client.send("FORGET")
            expect(all_runs(client, token, self.ROWS, rows)[0] == self._joined(rows), True, "the next batch")


# ---- statements

QUERY = "SELECT f.x, f.s, d.v FROM fact f JOIN dim d ON f.k = d.k"
SEEN = "SELECT count(*), sum(x::int8 * (v + 1)), sum(length(s)) FROM "
COSTS = PLANNED + "SET cpu_tuple_cost = 0.0001; SET max_parallel_workers_per_gather = 0; "
# As few rows as they have been taken one by one, into a table: a cursor of psql's would take all.
FETCH = "DO $$ DECLARE c refcursor := 'c'; x int; s text; v int; BEGIN FOR i IN 1..{} LOOP FETCH c INTO x, s, v; EXIT WHEN NOT FOUND; INSERT INTO seen VALUES (x, s, v); END LOOP; END $$"


def make(server, rows=150000, keys=50000):
    server.sql(
        "DROP TABLE IF EXISTS fact; DROP FOREIGN TABLE IF EXISTS dim; CREATE TABLE fact (k int, x int, s text); CREATE FOREIGN TABLE dim (k int, v int) SERVER gstore_fdw;"
        f"INSERT INTO fact SELECT i * 7 % {2 * keys}, i, 'row ' || i FROM generate_series(1, {rows}) i; INSERT INTO dim SELECT i, i % 100 FROM generate_series(0, {keys - 1}) i; ANALYZE fact, dim"
    )


def in_sql(server):
    return server.sql(f"SET gstore_fdw.gpu_queries = off; {SEEN}({QUERY} OFFSET 0) j").splitlines()[-1]


@contextlib.contextmanager
def cursor(server):
    """A session with a cursor of the query, that has fetched five rows."""
    session = server.session()
    session.sql(COSTS + f"CREATE TEMP TABLE seen (x int, s text, v int); BEGIN; DECLARE c CURSOR FOR {QUERY}")
    expect("GPU: join of rows" in session.sql("EXPLAIN " + QUERY), True, "the plan has batches")
    session.sql(FETCH.format(5))
    yield session
    session.sql("COMMIT")
    session.close()


def expect_rest(session, right):
    session.sql(FETCH.format(1000000))
    expect(session.sql(SEEN + "seen"), right, "what the cursor has returned")


def counted(server, what):
    return int(server.sql(f"SELECT {what} FROM gstore_fdw_queries WHERE kind = 'join'"))


@group()
class Statements:
    def cursor_goes_on_with_another_executor_and_what_it_began_with(self, server):
        make(server)
        right = in_sql(server)
        with cursor(server) as session:
            server.sql("DELETE FROM dim WHERE k % 2 = 0; DELETE FROM fact WHERE x % 2 = 0; INSERT INTO fact SELECT 1, 1, '' FROM generate_series(1, 1000)")
            server.sql("SELECT gstore_fdw_queries_reset()")
            pid = executor_pid(server)
            os.kill(pid, signal.SIGKILL)
            wait_until("it is gone", lambda: pid not in executor_pids(server))
            expect_rest(session, right)
        expect((counted(server, "queries") > 3, counted(server, "executor_lost")), (True, 0), "batches on the GPU, and lost ones")

    def batch_whose_executor_is_killed_is_done_by_the_local_plan_with_all_others(self, _):
        """Groups of the first batch are there, and rows of the second one have very many matches, for which a real GPU would not take long."""
        with other_server(GVMEM_DRIVER="soft") as server:
            make(server, ROWS_MAX + 100)
            server.sql("INSERT INTO dim SELECT 100000, i FROM generate_series(1, 40000) i; INSERT INTO fact SELECT 100000, i, 'many' FROM generate_series(1, 600) i; INSERT INTO fact SELECT i, i, 'behind' FROM generate_series(1, 50000) i")
            text = "SELECT f.x % 3 = 0, count(*), sum(d.v) FROM fact f JOIN dim d ON f.k = d.k GROUP BY 1 ORDER BY 1"
            right = server.sql("SET gstore_fdw.gpu_queries = off; " + text).splitlines()[-2:]
            session = server.session()
            session.sql(COSTS)
            expect("GPU: aggregate on rows" in session.sql("EXPLAIN " + text), True, "the plan has batches")
            server.sql("SELECT gstore_fdw_queries_reset()")
            session.begin(text)
            server.wait_for("SELECT sum(queries) = 1 FROM gstore_fdw_queries")
            wait_until("it has begun with the next one, which takes seconds", lambda: has_begun(session.pid))
            os.kill(executor_pid(server), signal.SIGKILL)
            expect(session.finish().splitlines(), right, "the result")
            expect((counted(server, "queries"), counted(server, "executor_lost")), (1, 1), "batches on the GPU, and lost ones")
            session.close()

    def batch_without_room_is_done_by_the_local_plan_with_all_others(self, server):
        make(server)
        server.sql("INSERT INTO dim SELECT 100000, i FROM generate_series(1, 60000) i; INSERT INTO fact VALUES (100000, 7, 'many'); INSERT INTO fact SELECT i, i, 'behind' FROM generate_series(1, 20000) i")
        right = in_sql(server)
        with cursor(server) as session:
            server.sql("SELECT gstore_fdw_queries_reset()")
            session.sql("SET gstore_fdw.gpu_query_memory = '2MB'")
            expect_rest(session, right)
        expect((counted(server, "queries") > 3, counted(server, "no_room")), (True, 1), "batches on the GPU, and those without room")

    def row_that_raises_an_error_raises_it_where_postgresql_comes_to_it(self, server):
        make(server)
        session = server.session()
        text = QUERY + " AND 100 / (f.x - 149999) < 7"
        session.sql(COSTS)
        expect("GPU: join of rows" in session.sql("EXPLAIN " + text), True, "the plan has batches")
        expect(session.sql(f"SELECT count(*) FROM (SELECT * FROM ({text}) j LIMIT 1000) j"), "1000", "rows before it")
        session.begin(f"SELECT count(*) FROM ({text} OFFSET 0) j")
        expect(session.error(), "22012", "SQLSTATE")
        session.close()

    def cancelled_statements_leave_nothing_and_others_go_on(self, server):
        make(server, 300000)
        right = in_sql(server)
        for ms in (0, 5, 20, 60, 150, 400):
            session = server.session()  # an error ends it
            session.sql(COSTS)
            session.begin(f"{SEEN}({QUERY} OFFSET 0) j")
            time.sleep(ms / 1000)
            server.sql(f"SELECT pg_cancel_backend({session.pid})")
            with contextlib.suppress(Exception):
                session.finish()
            session.close()
        session = server.session()
        session.sql(COSTS)
        expect(session.sql(f"{SEEN}({QUERY} OFFSET 0) j"), right, "the result")
        session.close()
        server.sql("DROP FOREIGN TABLE dim")
        server.wait_for("SELECT sum(device_resident + device_on_host) FROM gstore_fdw_keeper_info", "0")

    def own_rows_are_those_of_all_batches(self, server):
        make(server, 100000)
        session = server.session()
        session.sql(COSTS + "BEGIN; INSERT INTO dim VALUES (-1, 5); DELETE FROM dim WHERE k < 100; INSERT INTO fact SELECT -1, 7, 'own' FROM generate_series(1, 40000)")
        right = session.sql(f"SET LOCAL gstore_fdw.gpu_queries = off; {SEEN}({QUERY} OFFSET 0) j; SET LOCAL gstore_fdw.gpu_queries = on").splitlines()[0]
        expect("Ran: on the GPU" in session.sql("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + QUERY), True, "on the GPU")
        expect(session.sql(f"{SEEN}({QUERY} OFFSET 0) j"), right, "the result")
        session.sql("ROLLBACK")
        session.close()


if __name__ == "__main__":
    sys.exit(main())
