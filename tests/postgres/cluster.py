#!/usr/bin/env python3
"""Tables spread over three servers, each with a keeper and a GPU of its own, behind a fourth one, as examples/cluster has them: answers are those of one heap
table, the parts are computed there at the same time; what becomes of servers that are killed, restart empty, vanish, or are added. TAP, a line a case.

usage: cluster.py [CASE...]. As root, in a network of its own, which one server is reached by.
"""
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
from cases import Skipped, group, main  # noqa: E402
from private import PROJECT, Failed, Server, expect, pg_config  # noqa: E402

FILES = PROJECT / "examples/cluster"
SERVERS, ORDERS, ITEMS = 3, 6000, 3000
BY_NETWORK = 1  # the server that is reached so, where there is a network of the test's own
NETWORK = "GVMEM_TEST_NETWORK"  # is set there
GONE_S = 60  # Linux's own limits are a quarter of an hour and two hours
KILLED_S = 10  # an idle machine takes some milliseconds
QUERIES = ("count", "groups", "join", "search")


def statement(name):
    return (FILES / f"{name}.sql").read_text()


def run_file(server, name, **variables):
    options = [word for key, value in variables.items() for word in ("-v", f"{key}={value}")]
    done = subprocess.run(server.psql(*options, "-f", str(FILES / f"{name}.sql")), env={**server.environ, "PGUSER": "postgres"}, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise Failed(f"{name}.sql: {done.stderr[-1000:]}")


def processes_of(server):
    postmaster = (server.folder / "data/postmaster.pid").read_text().split()[0]
    return [int(pid) for pid in [postmaster, *Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()]]


def kill(server):
    """As a machine without power ends: nobody says anything."""
    pids = processes_of(server)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return pids


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def restart(server, pids):
    while any(is_running(pid) for pid in pids):
        time.sleep(0.05)
    # A process that nobody waits for keeps its number, which these files have.
    for file in (server.folder / "data/postmaster.pid", *(server.folder / "run").glob(".s.*")):
        file.unlink(missing_ok=True)
    server.start()


def network(*words):
    subprocess.run(["ip", *words], check=True)


@group("shared_preload_libraries=", "max_prepared_transactions=2", "autovacuum=off")
class Cluster:
    gpus = []  # servers

    def _add(self, number, part):
        more = ["listen_addresses=127.0.0.1"] if number == BY_NETWORK and NETWORK in os.environ else []
        gpu = Server(f"gpu{number}", "gstore_fdw.gpu_startup_cost=0", "gstore_fdw.gpu_instruction_cost=0", *more)
        self.gpus.append(gpu)
        run_file(gpu, "server", servers=SERVERS, number=part, orders=ORDERS, items=ITEMS)
        return "127.0.0.1" if more else gpu.folder / "run"

    def _reload(self, number):
        self.gpus[number].sql("TRUNCATE orders, lines, items")
        run_file(self.gpus[number], "rows", servers=SERVERS, number=number, orders=ORDERS, items=ITEMS)

    def three_servers_have_all_rows_each_where_it_belongs(self, c):
        run_file(c, "coordinator")
        for number in range(SERVERS):
            host = self._add(number, number)
            run_file(c, "partition", servers=SERVERS, number=number, items=ITEMS, host=host)
        expect(c.sql("SELECT count(*), sum(id) FROM orders"), f"{ORDERS}|{ORDERS * (ORDERS + 1) // 2}", "orders")
        expect(c.sql("SELECT count(*), count(DISTINCT order_id) FROM lines"), f"{3 * ORDERS}|{ORDERS}", "lines")
        c.sql("CREATE SCHEMA heap")
        for table, key in (("orders", "id"), ("lines", "order_id"), ("items", "id")):
            c.sql(f"CREATE TABLE heap.{table} AS SELECT * FROM {table}")
            for n in range(SERVERS):
                is_here = f"satisfies_hash_partition('public.{table}'::regclass, {SERVERS}, {n}, {key})"
                if table == "items":
                    is_here = f"id >= {n * ITEMS // SERVERS} AND id < {(n + 1) * ITEMS // SERVERS}"
                c.sql(f"CREATE VIEW heap.{table}_{n} AS SELECT * FROM heap.{table} WHERE {is_here}")
                expect(c.sql(f"SELECT count(*) FROM {table}_{n}"), c.sql(f"SELECT count(*) FROM heap.{table}_{n}"), f"rows of {table}_{n}")

    def _expect_as_heap(self, c, query):
        answer = c.sql(query)
        expect(answer, c.sql(f"SET search_path = heap, public; {query}"), query)
        expect(answer != "", True, f"rows of {query}")

    def _expect_sent(self, c, query):
        """What is sent to the servers, all at the same time."""
        plan = c.sql(f"EXPLAIN (VERBOSE, COSTS OFF) {query}")
        sent = re.findall(r"Async Foreign Scan.*?Remote SQL: (.*?)$", plan, re.DOTALL | re.MULTILINE)
        expect(len(sent), SERVERS, f"parts that are computed at the same time in {plan}")
        return sent

    def _counters(self, gpu):
        return [int(number) for number in gpu.sql("SELECT sum(queries), sum(no_room + row_errors + decimals + unavailable + executor_lost + device_errors + unsupported) FROM gstore_fdw_queries").split("|")]

    def _expect_on_gpus(self, c, query):
        for gpu, sent in zip(self.gpus, self._expect_sent(c, query)):
            plan = gpu.sql(f"EXPLAIN (COSTS OFF) {sent}")
            expect("GPU: " in plan or "GPU Filter: " in plan, True, f"on the GPU, of {sent}: {plan}")
        before = [self._counters(gpu) for gpu in self.gpus]
        self._expect_as_heap(c, query)
        for gpu, (done, local) in zip(self.gpus, before):
            now = self._counters(gpu)
            expect((now[0] > done, now[1]), (True, local), f"whether a GPU has done it, and queries that it has not, of {query}")

    def examples_are_computed_by_all_gpus_at_once_with_one_tables_answer(self, c):
        for name in QUERIES:
            self._expect_on_gpus(c, statement(name))

    def filters_and_joins_of_partitions_are_sent(self, c):
        for query in (
            "SELECT id, customer, quantity, price FROM orders JOIN lines ON order_id = id WHERE placed = '2024-02-29' AND price > 20",
            "SELECT id, sum(quantity) FROM orders JOIN lines ON order_id = id WHERE placed < '2024-02-01' GROUP BY id HAVING sum(quantity) > 90",
            "SELECT order_id, quantity FROM lines WHERE quantity > 48 AND price < 3",
            "SELECT id FROM items WHERE embedding <-> '{50,40,30,20,10,20,30,40}' < 40",
        ):
            # ORDER BY alone would be sent, and the parts be merged, one server after the other.
            self._expect_on_gpus(c, f"WITH found AS MATERIALIZED ({query}) SELECT * FROM found ORDER BY found")

        distinct = " UNION ".join(f"SELECT quantity FROM lines_{n} WHERE price < 30 GROUP BY quantity" for n in range(SERVERS))
        self._expect_on_gpus(c, f"SELECT count(*) FROM ({distinct}) part")

    def one_order_is_looked_for_on_its_server_alone(self, c):
        plan = c.sql("EXPLAIN (COSTS OFF) SELECT sum(quantity) FROM lines WHERE order_id = 77")
        expect(plan.count("Foreign Scan") + plan.count("Relations"), 1, f"scans in {plan}")
        self._expect_as_heap(c, "SELECT sum(quantity) FROM lines WHERE order_id = 77")

    def what_postgres_fdw_does_not_send_has_the_same_answer(self, c):
        """docs/scale.md says so of these plans; if one is better now, it is to say that."""
        partial = "SELECT count(*), avg(price) FROM lines WHERE quantity > 45"
        plan = c.sql(f"EXPLAIN (VERBOSE, COSTS OFF) {partial}")
        expect("Partial Aggregate" in plan and "count(" not in "".join(re.findall("Remote SQL: .*", plan)), True, f"rows are fetched in {plan}")
        self._expect_as_heap(c, partial)
        merged = "SELECT id, customer, quantity FROM orders JOIN lines ON order_id = id WHERE placed = '2024-02-29' ORDER BY 1, 3"
        plan = c.sql(f"EXPLAIN (VERBOSE, COSTS OFF) {merged}")
        expect("Merge Append" in plan and "Async" not in plan, True, f"one server after the other in {plan}")
        self._expect_as_heap(c, merged)

    def writer_that_waited_gets_40001(self, c):
        one, other = c.session(), c.session()
        one.sql("BEGIN; UPDATE lines SET quantity = quantity + 1 WHERE order_id = 5")
        other.begin("UPDATE lines SET quantity = quantity + 1 WHERE order_id = 5")
        while sum(int(gpu.sql("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'lines'::regclass")) for gpu in self.gpus) == 0:
            time.sleep(0.02)
        one.sql("COMMIT")
        expect(other.error(), "40001", "SQLSTATE")
        one.sql("UPDATE lines SET quantity = quantity - 1 WHERE order_id = 5")
        one.close()
        self._expect_as_heap(c, statement("groups"))

    def commit_in_two_phases_is_refused(self, c):
        expect(c.error("BEGIN; UPDATE lines SET quantity = 1 WHERE order_id = 5; PREPARE TRANSACTION 'x'"), "0A000", "SQLSTATE")
        self._expect_as_heap(c, "SELECT sum(quantity) FROM lines")

    def killed_server_is_an_error_at_once_and_the_others_go_on(self, c):
        asked, beside = c.session(), c.session()
        asked.begin("SELECT count(*) FROM lines_2 a JOIN lines_2 b ON a.quantity <> b.quantity JOIN lines_2 c ON a.quantity <> c.quantity")
        self.gpus[2].wait_for("SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'postgres_fdw' AND state = 'active'")
        beside.begin("SELECT count(*) FROM lines_0 a JOIN lines_0 b ON a.quantity <> b.quantity")
        began, pids = time.monotonic(), kill(self.gpus[2])
        state = asked.error()
        took = time.monotonic() - began
        expect(state in ("08006", "08000", "XX000"), True, f"{state}: an error of the connection")
        print(f"# error {state} after {took * 1000:.0f} ms", flush=True)
        expect(took < KILLED_S, True, f"{took:.1f} s until the error")
        expect(int(beside.finish()) > 0, True, "the other server's pairs")
        beside.close()
        expect(c.error("SELECT count(*) FROM lines"), "08001", "SQLSTATE without the server")
        expect(c.sql("SELECT count(*) FROM lines_1"), c.sql("SELECT count(*) FROM heap.lines_1"), "rows of another server")
        restart(self.gpus[2], pids)
        for query in (statement("groups"), "SELECT count(*) FROM lines"):
            expect(c.error(query), "55000", "SQLSTATE with a server that has lost its rows")
        self._reload(2)
        for name in QUERIES:
            self._expect_as_heap(c, statement(name))

    def server_that_vanishes_is_an_error_within_its_time_limits(self, c):
        if NETWORK not in os.environ:
            raise Skipped("there is no network of the test's own")
        asked = c.session()
        asked.begin("SELECT count(*) FROM lines_1 a JOIN lines_1 b ON a.quantity <> b.quantity JOIN lines_1 c ON a.quantity <> c.quantity")
        self.gpus[BY_NETWORK].wait_for("SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'postgres_fdw' AND state = 'active'")
        idle = c.session()
        idle.sql("SELECT count(*) FROM lines_1")
        network("link", "set", "lo", "down")
        try:
            began = time.monotonic()
            idle.begin("SELECT count(*) FROM lines_1")
            for what, session in (("waited", asked), ("was idle", idle)):
                state, took = session.error(), time.monotonic() - began
                print(f"# error {state} of a session that {what} after {took:.1f} s", flush=True)
                expect(state in ("08006", "08001") and took < GONE_S, True, f"{state} after {took:.1f} s")
            expect(c.error("SELECT count(*) FROM lines"), "08001", "SQLSTATE of a new session")
            expect(c.sql("SELECT count(*) FROM lines_0"), c.sql("SELECT count(*) FROM heap.lines_0"), "rows of another server")
        finally:
            network("link", "set", "lo", "up")
        # The server's side of a lost connection ends its statement when it notices, or here:
        self.gpus[BY_NETWORK].sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'postgres_fdw'")
        for name in QUERIES:
            self._expect_as_heap(c, statement(name))

    def partition_moves_to_a_server_that_is_added(self, c):
        """Loaded there first; readers and writers wait for one transaction alone."""
        host = self._add(3, 2)
        gpu = self.gpus[3]
        options = c.sql("SELECT string_agg(format('%s %L', option_name, option_value), ', ') FROM pg_foreign_server, pg_options_to_table(srvoptions) WHERE srvname = 'gpu_2' AND option_name <> 'host'")
        c.sql(f"CREATE SERVER gpu_3 FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{host}', {options}); CREATE USER MAPPING FOR CURRENT_USER SERVER gpu_3 OPTIONS (user 'postgres')")
        c.sql(
            "BEGIN;"
            + "".join(
                f"ALTER TABLE {table} DETACH PARTITION {table}_2; DROP FOREIGN TABLE {table}_2;"
                f"CREATE FOREIGN TABLE {table}_2 PARTITION OF {table} FOR VALUES {bounds} SERVER gpu_3 OPTIONS (table_name '{table}');"
                for table, bounds in (("orders", "WITH (MODULUS 3, REMAINDER 2)"), ("lines", "WITH (MODULUS 3, REMAINDER 2)"), ("items", f"FROM ({2 * ITEMS // 3}) TO ({ITEMS})"))
            )
            + "COMMIT"
        )
        self.gpus[2].stop("immediate")
        del self.gpus[2]
        for name in QUERIES:
            self._expect_on_gpus(c, statement(name))
        gpu.sql("CREATE FOREIGN TABLE items_3 (id int NOT NULL, embedding real[] OPTIONS (length '8')) SERVER gstore_fdw")
        c.sql(f"CREATE FOREIGN TABLE items_3 PARTITION OF items FOR VALUES FROM ({ITEMS}) TO ({2 * ITEMS}) SERVER gpu_3")
        c.sql(f"INSERT INTO items SELECT id, ARRAY[1, 2, 3, 4, 5, 6, 7, 8] FROM generate_series({ITEMS}, {ITEMS + 9}) id")
        expect(c.sql("SELECT count(*), sum(id) FROM items_3"), f"10|{10 * ITEMS + 45}", "new items")


if __name__ == "__main__":
    if NETWORK not in os.environ and os.geteuid() == 0 and subprocess.run(["unshare", "-n", "ip", "link", "set", "lo", "up"], capture_output=True).returncode == 0:
        os.environ[NETWORK] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    if NETWORK in os.environ:
        network("link", "set", "lo", "up")
    if not Path(pg_config("--sharedir"), "extension/postgres_fdw.control").exists():
        print("1..0 # SKIP there is no postgres_fdw")
        sys.exit(0)
    sys.exit(main())
