#!/usr/bin/env python3
"""Partitions on several GPUs of one server: their queries run at the same time, and what becomes of statements of which some parts are under way. TAP, a line a case.

usage: partitions.py [CASE...]. That two run at once is seen by a state: one GPU's executor is stopped, and the other one has its query all the same.
"""
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
from cases import group, main  # noqa: E402
from executor_client import executor_pids  # noqa: E402
from private import expect, stop_process, wait_until  # noqa: E402

DEVICES, PARTITIONS, ROWS = 2, 6, 30000
SETTINGS = ("gstore_fdw.gpu_startup_cost=0", "gstore_fdw.gpu_instruction_cost=0", "enable_partitionwise_aggregate=on", "enable_partitionwise_join=on", "autovacuum=off", "jit=off")
COUNT = "SELECT count(*), sum(v) FROM {} WHERE v % 7 = 3"
FILTER = "SELECT id, v FROM {} WHERE v % 1000 = 77"
FIRST = "SELECT id, v FROM {} ORDER BY v DESC, id LIMIT 10"


def executor_of(server, device):
    found = [pid for pid in executor_pids(server) if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1] == str(device).encode()]
    expect(len(found), 1, f"executors of GPU {device}")
    return found[0]


def connections(pid):
    """Of backends: each has a memory file."""
    found = 0
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found += os.readlink(path).startswith("/memfd:gstore")
    return found


@contextlib.contextmanager
def stopped(pid):
    stop_process(pid)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # one that is stopped for long is taken for one that hangs
            os.kill(pid, signal.SIGCONT)


def queries(server):
    """That a GPU has done, and that it has not."""
    return [int(n) for n in server.sql("SELECT sum(queries), sum(no_room + row_errors + decimals + unavailable + executor_lost + device_errors + unsupported) FROM gstore_fdw_queries").split("|")]


def plan_of(server, query, settings=""):
    return server.sql(f"{settings} EXPLAIN (COSTS OFF) {query}")


def sorted_lines(text):
    return sorted(text.splitlines())


@group(*SETTINGS)
class Partitions:
    """t has its partitions on the GPUs in turn, `one` and `other` have both of theirs on different ones; heap has the same rows."""

    def _expect_as_heap(self, server, query, settings=""):
        expect(sorted_lines(server.sql(settings + query.format("t"))), sorted_lines(server.sql(query.format("heap"))), query)

    def _expect_on_gpus(self, server, query, settings=""):
        _, local = queries(server)
        self._expect_as_heap(server, query, settings)
        expect(queries(server)[1], local, f"queries that no GPU has done, of {query}")

    def tables_have_the_same_rows_as_a_heap(self, server):
        server.sql("CREATE TABLE heap (id int, k int, v int, t text)")
        server.sql(f"INSERT INTO heap SELECT i, i % {PARTITIONS}, (i * 7919) % 100003, 'text ' || i % 100 FROM generate_series(1, {ROWS}) i")
        server.sql("CREATE TABLE t (id int, k int, v int, t text) PARTITION BY LIST (k)")
        for n in range(PARTITIONS):
            server.sql(f"CREATE FOREIGN TABLE t{n} PARTITION OF t FOR VALUES IN ({n}) SERVER gstore_fdw OPTIONS (pinning '{n % DEVICES}')")
        server.sql("INSERT INTO t SELECT * FROM heap; ANALYZE heap; ANALYZE t")
        for query in (COUNT, FILTER, FIRST, "SELECT count(*) FROM {}"):
            self._expect_on_gpus(server, query)

    def _prepare(self, server):
        """Both GPUs have executors. After a case that has failed the server was started anew."""
        if server.sql("SELECT count(*) FROM t0") == "0":
            server.sql("INSERT INTO t SELECT * FROM heap; ANALYZE t")
        server.sql(COUNT.format("t"))

    def _begin_with_a_stopped_gpu(self, server, query, device):
        """In a session without connections: waits until the other GPU has a query, too. The statement's result."""
        other = executor_of(server, 1 - device)
        session = server.session()
        before = connections(other)
        with stopped(executor_of(server, device)):
            session.begin(query)
            wait_until("a query of the other GPU", lambda: connections(other) > before)
        answer = session.finish()
        session.close()
        return answer

    def _expect_at_once(self, server, query, part):
        plan = plan_of(server, query.format("t"))
        expect(part in plan, True, f"{part} in {plan}")
        for device in range(DEVICES):
            answer = self._begin_with_a_stopped_gpu(server, query.format("t"), device)
            expect(sorted_lines(answer), sorted_lines(server.sql(query.format("heap"))), query)

    def aggregates_and_filters_run_on_all_gpus_at_once(self, server):
        self._prepare(server)
        for query in (COUNT, FILTER, "SELECT t, count(*), max(v) FROM {} GROUP BY t"):
            self._expect_at_once(server, query, "Async Foreign Scan")

    def first_answer_is_taken_first(self, server):
        """Of a GPU that is behind in the Append's order, while the first one is stopped."""
        self._prepare(server)
        with server_session(server) as session, stopped(executor_of(server, 0)):
            before, _ = queries(server)
            session.begin(COUNT.format("t"))
            wait_until("answers of the other GPU", lambda: queries(server)[0] >= before + PARTITIONS // DEVICES)
        self._expect_as_heap(server, COUNT)

    def first_rows_of_all_partitions_are_looked_for_at_once(self, server):
        self._prepare(server)
        self._expect_at_once(server, FIRST, "Merge Append")

    def parts_of_a_union_run_at_once_behind_limits_and_aggregates(self, server):
        self._prepare(server)
        for part in ("SELECT id, v FROM {} WHERE k = {n} ORDER BY v, id LIMIT 3", "SELECT {n}, count(*) FROM {} WHERE k = {n} AND t ~ '7$' GROUP BY t"):
            query = " UNION ALL ".join(f"({part.replace('{n}', str(n))})" for n in range(PARTITIONS))
            wanted = query.replace("{}", "heap")
            for device in range(DEVICES):
                answer = self._begin_with_a_stopped_gpu(server, query.replace("{}", "t"), device)
                expect(sorted_lines(answer), sorted_lines(server.sql(wanted)), query)

    def more_partitions_than_a_gpu_is_sent_at_once_are_all_done_by_it(self, server):
        self._prepare(server)
        many = 40
        server.sql("CREATE TABLE many (id int, v int) PARTITION BY HASH (id)")
        for n in range(many):
            server.sql(f"CREATE FOREIGN TABLE many{n} PARTITION OF many FOR VALUES WITH (MODULUS {many}, REMAINDER {n}) SERVER gstore_fdw OPTIONS (pinning '{n * DEVICES // many}')")
        server.sql("INSERT INTO many SELECT id, v FROM heap; ANALYZE many")
        for query in (COUNT, FILTER, FIRST, "SELECT v % 10 AS d, count(*) FROM {} GROUP BY d"):
            _, local = queries(server)
            expect(sorted_lines(server.sql(query.format("many"))), sorted_lines(server.sql(query.format("heap"))), query)
            expect(queries(server)[1], local, f"queries that no GPU has done, of {query}")
        server.sql("DROP TABLE many")

    def joins_of_partitions_run_on_their_gpus_at_once(self, server):
        """Of tables by the same key, whose partitions are on the same GPUs as nothing says where they are to be."""
        self._prepare(server)
        for name, rows in (("orders", 3000), ("lines", 12000)):
            server.sql(f"CREATE TABLE heap_{name} AS SELECT i AS id, i * 7 % 3000 AS o, i % 90 AS v FROM generate_series(1, {rows}) i")
            server.sql(f"CREATE TABLE {name} (id int, o int, v int) PARTITION BY HASH ({'id' if name == 'orders' else 'o'})")
            for n in range(4):
                server.sql(f"CREATE FOREIGN TABLE {name}_{n} PARTITION OF {name} FOR VALUES WITH (MODULUS 4, REMAINDER {n}) SERVER gstore_fdw")
            server.sql(f"INSERT INTO {name} SELECT * FROM heap_{name}; ANALYZE {name}; ANALYZE heap_{name}")
        expect(server.sql("SELECT string_agg(pinning::text, '' ORDER BY table_oid::regclass::text) FROM gstore_fdw_chunk_info WHERE table_oid::regclass::text ~ '^(orders|lines)_' AND nitems > 0"), "01010101", "GPUs")
        joined = "FROM {lines} l JOIN {orders} o ON l.o = o.id WHERE o.v < 70"
        for select, part in (
            (f"SELECT count(*), sum(l.v * o.v) {joined}", "GPU: aggregate on lines_"),
            (f"SELECT o.v, count(*) {joined} GROUP BY o.v", "GPU: aggregate on lines_"),
            (f"SELECT l.o, count(*), max(l.v) {joined} GROUP BY l.o HAVING count(*) > 3", "GPU: aggregate on lines_"),
            (f"SELECT l.id, o.v {joined} AND l.v = 88", "GPU: join of lines_"),
            ("SELECT count(*) FROM {lines} l WHERE EXISTS (SELECT FROM {orders} o WHERE o.id = l.o AND o.v > 50)", "GPU: aggregate on lines_"),
            ("SELECT count(*), count(o.id) FROM {lines} l LEFT JOIN {orders} o ON l.o = o.id AND o.v > 50", "GPU: aggregate on lines_"),
            (f"SELECT l.id, l.v + o.v AS s {joined} ORDER BY l.v + o.v DESC, l.id LIMIT 7", "GPU: join of lines_"),
        ):
            ours, wanted = select.format(lines="lines", orders="orders"), server.sql(select.format(lines="heap_lines", orders="heap_orders"))
            plan = plan_of(server, ours)
            expect(plan.count(part), 4, f"{part} in {plan}")
            _, local = queries(server)
            expect(sorted_lines(server.sql(ours)), sorted_lines(wanted), ours)
            expect(queries(server)[1], local, f"queries that no GPU has done, of {ours}")
            for device in range(DEVICES):
                expect(sorted_lines(self._begin_with_a_stopped_gpu(server, ours, device)), sorted_lines(wanted), ours)
        server.sql("DROP TABLE orders, lines, heap_orders, heap_lines")

    def new_partition_is_on_the_gpu_that_has_the_fewest(self, server):
        server.sql("CREATE TABLE months (m int, v int) PARTITION BY RANGE (m)")

        def add(m, options=""):
            server.sql(f"CREATE FOREIGN TABLE month_{m} PARTITION OF months FOR VALUES FROM ({m}) TO ({m + 1}) SERVER gstore_fdw {options}")
            return server.sql(f"SELECT option_value FROM pg_foreign_table, pg_options_to_table(ftoptions) WHERE ftrelid = 'month_{m}'::regclass AND option_name = 'pinning'")

        expect([add(m) for m in range(4)], ["0", "1", "0", "1"], "GPUs")
        expect(add(4, "OPTIONS (pinning '1')"), "1", "as it is said")
        expect([add(m) for m in (5, 6)], ["0", "0"], "GPUs")
        server.sql("DROP FOREIGN TABLE month_1, month_3; CREATE TABLE month_7 PARTITION OF months FOR VALUES FROM (7) TO (8)")
        expect([add(m, "OPTIONS (format 'arrow')") for m in (8, 9)], ["1", "1"], "GPUs after partitions have gone")
        server.sql("CREATE TABLE tenants (tenant int, m int) PARTITION BY LIST (tenant)")
        for n in range(4):  # of the same parent there is none yet
            server.sql(f"CREATE TABLE tenant_{n} PARTITION OF tenants FOR VALUES IN ({n}) PARTITION BY RANGE (m); CREATE FOREIGN TABLE tenant_{n}_0 PARTITION OF tenant_{n} FOR VALUES FROM (0) TO (1) SERVER gstore_fdw")
        expect(server.sql("SELECT string_agg(option_value, '' ORDER BY ftrelid::regclass::text) FROM pg_foreign_table, pg_options_to_table(ftoptions) WHERE ftrelid::regclass::text ~ '^tenant_' AND option_name = 'pinning'"), "0101", "GPUs of partitions of partitions")
        server.sql("DROP TABLE tenants; CREATE FOREIGN TABLE alone (m int) SERVER gstore_fdw")
        expect(server.sql("SELECT ftoptions IS NULL FROM pg_foreign_table WHERE ftrelid = 'alone'::regclass"), "t", "no option of what is no partition")
        server.sql("INSERT INTO months SELECT m, m FROM generate_series(4, 9) m")
        expect(server.sql("SELECT count(*), sum(v) FROM months"), "6|39", "rows")
        server.sql("DROP TABLE months; DROP FOREIGN TABLE alone")

    def parts_begin_anew_with_other_parameters(self, server):
        self._prepare(server)
        for query in (
            "SELECT g, (SELECT count(*) FROM {} WHERE v > g) FROM generate_series(0, 100000, 20000) g",
            "SELECT g, f.* FROM generate_series(0, 100000, 20000) g, LATERAL (SELECT id, v FROM {} WHERE v >= g ORDER BY v, id LIMIT 3) f",
            "SELECT g, f.* FROM generate_series(1, 5) g, LATERAL (SELECT id FROM {} WHERE v % 1000 = 77 AND k < g) f",
            "SELECT g, (SELECT max(c) FROM (SELECT t, count(*) AS c FROM {} WHERE v > g GROUP BY t) s) FROM generate_series(0, 90000, 30000) g",
            "SELECT count(*) FROM {} WHERE v > (SELECT avg(v) FROM heap)",
            "SELECT count(*) FROM {} WHERE v > (SELECT min(v) + 5 FROM {})",
        ):
            for partitionwise in ("on", "off"):
                self._expect_as_heap(server, query.replace("{}", "{0}"), f"SET enable_partitionwise_aggregate = {partitionwise}; SET enable_material = off; SET enable_memoize = off; ")
        session = server.session()
        session.sql("SET plan_cache_mode = force_generic_plan; PREPARE q AS SELECT count(*), sum(v) FROM t WHERE v > $1 AND k >= $2")
        session.sql("PREPARE f AS SELECT id FROM t WHERE v > $1 AND k = $2 ORDER BY v LIMIT 3")
        for v in (0, 50000, 99990, 200000):
            for k in (0, 3, 9):
                expect(session.sql(f"EXECUTE q({v}, {k})"), server.sql(f"SELECT count(*), sum(v) FROM heap WHERE v > {v} AND k >= {k}"), f"{v} {k}")
                expect(session.sql(f"EXECUTE f({v}, {k})"), server.sql(f"SELECT id FROM heap WHERE v > {v} AND k = {k} ORDER BY v LIMIT 3"), f"first of {v} {k}")
        session.close()

    def cursors_that_leave_parts_unread_do_no_harm(self, server):
        """The backend has as many under way as it sends to a GPU: further statements wait for none of these."""
        self._prepare(server)
        session = server.session()
        session.sql("BEGIN")
        for n, query in enumerate((FILTER, FIRST, FILTER, "SELECT id FROM {} WHERE v % 2 = 0", FIRST)):
            session.sql(f"DECLARE c{n} CURSOR FOR {query.format('t')}")
            session.sql(f"FETCH 1 FROM c{n}")
        for query in (COUNT, FILTER, FIRST):
            expect(sorted_lines(session.sql(query.format("t"))), sorted_lines(server.sql(query.format("heap"))), query)
        expect(len(session.sql("FETCH ALL FROM c3").splitlines()), int(server.sql("SELECT count(*) - 1 FROM heap WHERE v % 2 = 0")), "rows of a cursor")
        expect(session.sql("FETCH ALL FROM c1"), "\n".join(server.sql(FIRST.format("heap")).splitlines()[1:]), "first rows of a cursor")
        session.sql("COMMIT")
        expect(len(session.sql("SELECT id FROM t WHERE v % 2 = 0 LIMIT 1").splitlines()), 1, "rows of a limit")
        self._expect_few_connections(server)
        session.close()

    def _expect_few_connections(self, server):
        """That a session keeps, after what it has given up."""
        for device in range(DEVICES):
            pid = executor_of(server, device)
            wait_until("few connections", lambda pid=pid: connections(pid) <= 2)

    def error_of_one_part_is_the_statements_and_ends_the_others(self, server):
        self._prepare(server)
        for query in ("SELECT sum(v / (k - 3)) FROM t", "SELECT id FROM t WHERE 100 / (k - 3) > 7", "SELECT id FROM t WHERE v / (k - 3) > 0 ORDER BY v LIMIT 3"):
            expect(server.error(query), "22012", query)
            self._expect_on_gpus(server, COUNT)
        self._expect_few_connections(server)

    def value_of_a_part_that_no_row_comes_to_is_not_evaluated(self, server):
        self._prepare(server)
        server.sql("CREATE FOREIGN TABLE nothing (id int, v int) SERVER gstore_fdw OPTIONS (pinning '1')")
        part = "SELECT id, v FROM {} WHERE v > (SELECT 1 / (count(*) - {n}) FROM heap) ORDER BY v, id LIMIT 3"
        rows = int(server.sql("SELECT count(*) FROM heap"))
        query = "SELECT * FROM (" + " UNION ALL ".join(f"({part.format(table, n=n)})" for table, n in (("t0", 0), ("nothing", rows), ("t1", rows))) + ") s LIMIT 3"
        expect(len(server.sql(query).splitlines()), 3, "rows before the part with an error")
        expect(server.error(query.replace(") s LIMIT 3", ") s LIMIT 4")), "22012", "with it")

    def rows_of_a_part_that_no_row_is_asked_of_raise_no_error(self, server):
        """Three parts that fail have answered, as the third one is sent after the first one; then the GPU of the part in front goes on."""
        self._prepare(server)
        query = "SELECT id FROM t0 WHERE v >= 0" + "".join(f" UNION ALL SELECT id FROM t{n} WHERE 100 / (k - {n}) > 0" for n in (1, 3, 5)) + " LIMIT "
        expect(plan_of(server, query + "1").count("Async Foreign Scan"), 4, "parts that are asked at once")
        other = executor_of(server, 1)
        for limit, rows in ("1", 1), ("ALL", None):
            session = server.session()
            before = connections(other)
            with stopped(executor_of(server, 0)):
                session.begin(query + limit)
                wait_until("three queries of the other GPU", lambda before=before: connections(other) >= before + 3)
            if rows is None:
                expect(session.error(), "22012", "with all of them")
            else:
                expect(len(session.finish().splitlines()), rows, "rows before them")
            session.close()
        self._expect_few_connections(server)

    def answers_that_wait_for_their_turns_are_few(self, server):
        """Each takes a connection. All parts but the one in front, whose GPU is stopped, might fail, so they wait for it."""
        self._prepare(server)
        most, sent = 16, 2  # GSTORE_KEPT_MOST, GSTORE_SENT_MOST
        query = "SELECT id FROM {} WHERE v >= 0" + " UNION ALL SELECT id FROM {} WHERE v % 1000 = 77 AND 100 / (k + 1) > 0" * 24
        tables = ["t0", *["t1", "t3", "t5"] * 8]
        expect(plan_of(server, query.format(*tables)).count("Async Foreign Scan"), len(tables), "parts that are asked at once")
        other, session = executor_of(server, 1), server.session()
        before = connections(other)
        with stopped(executor_of(server, 0)):
            session.begin(query.format(*tables))
            wait_until("answers of the other GPU", lambda: connections(other) >= before + most)
            time.sleep(2)  # for more of them
            expect(connections(other) - before < most + sent, True, f"connections: {connections(other) - before}")
        rows = server.sql(query.format(*(f"(SELECT * FROM heap WHERE k = {name[1:]}) {name}" for name in tables)))
        expect(sorted_lines(session.finish()), sorted_lines(rows), "rows")
        session.close()

    def limit_of_a_part_that_no_row_comes_to_is_not_evaluated(self, server):
        self._prepare(server)
        query = "SELECT * FROM ((SELECT id FROM t0 ORDER BY v, id LIMIT 5) UNION ALL (SELECT id FROM t1 ORDER BY v, id LIMIT 10 / $1)) s LIMIT "
        session = server.session()
        session.sql(f"SET plan_cache_mode = force_generic_plan; PREPARE few(int) AS {query} 3; PREPARE more(int) AS {query} 6")
        expect("GPU Sort Key" in session.sql("EXPLAIN (COSTS OFF) EXECUTE few(0)"), True, "the plan")
        expect(len(session.sql("EXECUTE few(0)").splitlines()), 3, "rows before the part with an error")
        expect(len(session.sql("EXECUTE more(5)").splitlines()), 6, "rows without one")
        session.begin("EXECUTE more(0)")
        expect(session.error(), "22012", "with it")
        session.close()

    def rows_that_are_locked_are_of_partitions_that_are_asked_for(self, server):
        """Another session has locked a row of a partition behind the limit."""
        self._prepare(server)
        holder, session = server.session(), server.session()
        holder.sql("BEGIN; SELECT id FROM t5 LIMIT 1 FOR UPDATE")
        query = "SELECT id FROM t WHERE v % 1000 = 77 LIMIT {} FOR UPDATE NOWAIT"
        plan = session.sql("EXPLAIN (COSTS OFF) " + query.format(1))
        expect("GPU Filter" in plan and "Async" not in plan, True, plan)
        expect(len(session.sql(query.format(1)).splitlines()), 1, "a row")
        session.begin(query.format(1000000))
        expect(session.error(), "55P03", "all rows")
        holder.close()
        session.close()

    def cancelled_statement_ends_at_once_and_the_next_one_works(self, server):
        self._prepare(server)
        for query in (COUNT, FIRST, FILTER):
            session = server.session()
            with stopped(executor_of(server, 0)):
                session.begin(query.format("t"))
                server.wait_for(f"SELECT wait_event IN ('AppendReady', 'Extension') FROM pg_stat_activity WHERE pid = {session.pid} AND state = 'active'")
                server.sql(f"SELECT pg_cancel_backend({session.pid})")
                expect(session.error(), "57014", "SQLSTATE")
            self._expect_on_gpus(server, query)
        self._expect_few_connections(server)

    def killed_executor_is_no_error(self, server):
        self._prepare(server)
        for query in (COUNT, FIRST, FILTER):
            session = server.session()
            pid, other = executor_of(server, 0), executor_of(server, 1)
            with stopped(pid):
                before = connections(other)
                session.begin(query.format("t"))
                wait_until("a query of the other GPU", lambda other=other, before=before: connections(other) > before)
                os.kill(pid, signal.SIGKILL)
                expect(sorted_lines(session.finish()), sorted_lines(server.sql(query.format("heap"))), query)
            session.close()
            self._expect_as_heap(server, query)

    def own_changes_are_seen_in_all_parts(self, server):
        self._prepare(server)
        session = server.session()
        session.sql("BEGIN; UPDATE t SET v = v + 1 WHERE v % 1000 = 76; DELETE FROM t WHERE v % 7 = 5; INSERT INTO t VALUES (0, 2, 77, 'new'), (-1, 3, 77, 'new')")
        server.sql("CREATE TABLE changed AS SELECT * FROM heap; UPDATE changed SET v = v + 1 WHERE v % 1000 = 76; DELETE FROM changed WHERE v % 7 = 5; INSERT INTO changed VALUES (0, 2, 77, 'new'), (-1, 3, 77, 'new')")
        for query in (COUNT, FILTER, FIRST):
            expect(sorted_lines(session.sql(query.format("t"))), sorted_lines(server.sql(query.format("changed"))), query)
        session.sql("ROLLBACK")
        session.close()
        self._expect_as_heap(server, FILTER)


@group(*SETTINGS)
class Lost:
    def rows_that_are_lost_are_an_error_where_some_are_asked_for(self, server):
        server.sql("".join(f"CREATE FOREIGN TABLE {name} (id int, v int) SERVER gstore_fdw OPTIONS (pinning '{n}'); INSERT INTO {name} SELECT i, i FROM generate_series(1, 1000) i;" for n, name in enumerate(("kept", "lost"))))
        server.kill_and_wait(server.keeper_pid())
        server.wait_for("SELECT bool_and(ready) FROM gstore_fdw_keeper_info")
        server.sql("TRUNCATE kept; INSERT INTO kept SELECT i, i FROM generate_series(1, 1000) i")
        settings, query = "SET gstore_fdw.lost_tables = error;", "SELECT * FROM ((SELECT id FROM kept ORDER BY v, id LIMIT 5) UNION ALL (SELECT id FROM lost ORDER BY v, id LIMIT 5)) s LIMIT "
        expect(plan_of(server, query + "3").count("GPU Sort Key"), 2, "lists on the GPU")
        expect(server.sql(settings + query + "3").splitlines(), ["1", "2", "3"], "rows before those that are lost")
        expect(server.error(settings + query + "6"), "55000", "SQLSTATE")


@contextlib.contextmanager
def server_session(server):
    session = server.session()
    yield session
    session.finish()
    session.close()


if __name__ == "__main__":
    sys.exit(main())
