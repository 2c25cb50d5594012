#!/usr/bin/env python3
"""The executor of queries (query/executor.c), asked over its own connection as a backend asks it (query/wire.h), without the planner:
TAP, a line a case. Its life, sums and groups; executor_rows.py has the rest.

usage: executor.py [CASE...]. Programs are written out here; what they find is compared with SQL on the same table.
"""
import contextlib
import ctypes
import errno
import os
import random
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
from cases import Skipped, group, main  # noqa: E402
from executor_client import (  # noqa: E402
    BY_ID,
    BY_K,
    COUNT,
    F,
    ID,
    K,
    LIMIT_S,
    MAGIC,
    N,
    SPAWN_MAGIC,
    Client,
    Ended,
    Message,
    Program,
    Span,
    Window,
    aggregate,
    as_word,
    block,
    check_layouts,
    connect_as_owner,
    descriptors,
    executor_pid,
    executor_pids,
    expect_verb,
    fill,
    fill_hashes,
    has_begun,
    op,
    other_server,
    run_again,
    signed,
    sums,
    sums_in_sql,
    sums_of,
    wait_until,
)
from private import BUILD, Failed, Server, as_owner, expect, leased, running_keeper, stop_process  # noqa: E402

LISTENS = 64  # WAITING_MAX of postgres/spawner.c


@group()
class Queries:
    ROWS = 200000

    def counts_and_sums_are_those_of_sql(self, server):
        token = fill(server, self.ROWS)
        with Client(server) as client:
            for least in (0, 1, 77777, self.ROWS - 1, self.ROWS):
                (record,) = client.run(token, self.ROWS, sums(least))
                expect(sums_of(record), sums_in_sql(server, f"id > {least}"), f"count and sums above {least}")
            expect(client.window.cost.rows, self.ROWS, "rows that were read")

    def table_without_rows_has_one_record_or_no_group(self, server):
        with Client(server) as client:
            expect(client.run("", 0, COUNT, columns=()), [(0, 0)], "records")
            expect(client.run("", 0, BY_ID), [], "groups")

    def groups_come_in_pieces_and_null_is_one_of_them(self, server):
        rows = 700000
        token = fill(server, rows)
        with Client(server) as client:
            found = {(bits & 1, key): (count, signed(high) * 2**64 + low) for bits, key, count, low, high in client.run(token, rows, BY_K)}
            wanted = {}
            for line in server.sql("SELECT k, count(*), sum(id) FROM ft GROUP BY k").splitlines():
                key, count, total = line.split("|")
                wanted[(key == "", int(key or 0))] = (int(count), int(total))
            expect(found, wanted, "groups")
            many = client.run(token, rows, BY_ID)
            expect(client.window.records.bytes < rows * 24, True, "more pieces than one")
            expect(sorted(key for _, key, _ in many), list(range(1, rows + 1)), "keys")
            expect({count for _, _, count in many}, {1}, "rows of each")
            # What is not fetched is forgotten, by a message or the next query, also if that is none.
            for refused in ({}, {"magic": 1}, {"table_count": 0}, None):
                client.write(token, rows, BY_ID)
                expect_verb(client.ask(), "DONE")
                expect(client.window.more, 1, "more groups")
                if refused is None:
                    break
                for member, value in refused.items():
                    setattr(client.window, member, value)
                if refused:
                    expect_verb(client.ask(), "ERROR", "XX000")
                else:
                    client.send("FORGET")
                expect_verb(client.ask("FETCH"), "ERROR", "XX000")
            expect(client.run("", 0, COUNT, columns=()), [(0, 0)], "records of the next query")

    def groups_beyond_the_scratch_memory_are_no_room_and_the_next_query_works(self, server):
        token = fill(server, self.ROWS)
        with Client(server) as client:
            client.write(token, self.ROWS, BY_ID, scratch=1 << 20)
            expect_verb(client.ask(), "NO_ROOM", "53200")
            client.write(token, self.ROWS, BY_ID, scratch=0)
            expect_verb(client.ask(), "NO_ROOM", "53200")
            expect(len(client.run(token, self.ROWS, BY_K, scratch=1 << 20)), 1000, "groups")

    def groups_of_keys_with_one_place_are_no_room_and_the_next_query_works(self, server):
        """Each of them would be looked for behind all before."""
        rows = 100000
        with Client(server) as client:
            client.write(fill_hashes(server, (i << 40 for i in range(rows))), rows, BY_K)
            expect_verb(client.ask(), "NO_ROOM", "53200")
            few = 500
            expect(len(client.run(fill_hashes(server, (i << 40 for i in range(few))), few, BY_K)), few, "groups")

    def table_of_groups_leaves_room_for_the_results(self, server):
        """A bound in which a table for 8192 groups fits, but not these groups behind each other as well, has room for 3000 of them."""
        token = fill(server, self.ROWS)
        code = [op("LOAD", 0), op("CONSTANT", value=3000), op("MODULO", b="GQUERY_ARITHMETIC_I32"), op("GROUP", 1), aggregate(0, "COUNT_ROWS")], 1
        with Client(server) as client:
            slots, slot_bytes = 16384, 24
            found = client.run(token, self.ROWS, code, scratch=block(slots * slot_bytes))
            expect(sorted(key for _, key, _ in found), list(range(3000)), "keys")
            expect(client.window.cost.scratch_bytes <= block(slots * slot_bytes), True, "scratch memory")

    def small_results_come_at_once_and_do_not_wait_on_the_device(self, server):
        rows = 600000
        token = fill(server, rows)
        with Client(server) as client:
            client.write(token, rows, BY_ID)
            expect_verb(client.ask(), "DONE")
            expect(client.window.more, 0, "more groups")
            expect(client.window.records.bytes > 8 << 20, True, "more than a piece of larger ones")
            expect(sorted(key for _, key, _ in client.records()), list(range(1, rows + 1)), "keys")
            expect_verb(client.ask("FETCH"), "ERROR", "XX000")

    def rows_that_are_dead_are_left_out(self, server):
        token = fill(server, self.ROWS)
        bitmap = bytearray(self.ROWS // 8)
        for row in range(0, self.ROWS, 3):
            bitmap[row // 8] |= 1 << row % 8
        with Client(server) as client:
            (record,) = client.run(token, self.ROWS, sums(0), dead=bytes(bitmap))
            expect(sums_of(record), sums_in_sql(server, "(id - 1) % 3 <> 0"), "count and sums")
            # It ends inside a byte's word: the rows behind it are seen.
            (record,) = client.run(token, self.ROWS, sums(0), dead=bytes(bitmap[:1001]))
            expect(sums_of(record), sums_in_sql(server, "(id - 1) % 3 <> 0 OR id > 8008"), "count and sums")

    def large_bitmap_goes_to_scratch_memory(self, server):
        rows = 5000000
        server.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int) SERVER gstore_fdw; INSERT INTO ft SELECT generate_series(1, 5000000)")
        token = server.sql("SELECT gstore_export('ft')")
        with Client(server) as client:
            expect(client.run(token, rows, COUNT, columns=(), dead=b"\x55" * (rows // 8)), [(0, rows // 2)], "records")
            # It counts as what is taken of the device.
            taken = block(rows // 8)
            expect(taken > rows // 8, True, "memory that is taken")
            client.write(token, rows, COUNT, columns=(), dead=b"\x55" * (rows // 8), scratch=taken - 1)
            expect_verb(client.ask(), "NO_ROOM", "53200")
            expect(client.run(token, rows, COUNT, columns=(), dead=b"\x55" * (rows // 8), scratch=taken), [(0, rows // 2)], "records")
            expect(client.window.cost.scratch_bytes, taken, "scratch memory")

    def error_of_a_row_is_said(self, server):
        token = fill(server, 1000)
        divide = [op("CONSTANT", value=1), op("LOAD", 0), op("CONSTANT", value=500), op("SUBTRACT", b="GQUERY_ARITHMETIC_I32"), op("DIVIDE", b="GQUERY_ARITHMETIC_I32"), aggregate(0, "SUM_I64")]
        with Client(server) as client:
            client.write(token, 1000, (divide, 2))
            answer = client.ask()
            expect_verb(answer, "RAISED")
            expect(answer.error, N["GQUERY_E_DIVISION"], "the error")
            expect(client.run(token, 1000, COUNT, columns=()), [(0, 1000)], "records of the next query")

    def group_sum_that_is_not_finite_is_said_before_a_group_is_returned(self, server):
        rows = 1400000
        token = fill(server, rows)
        halves = [op("LOAD", 0), op("CONSTANT", value=2), op("DIVIDE", b="GQUERY_ARITHMETIC_I32")]
        for least in (1, *range(100001, rows, 100000)):  # two rows of 1e308 in one group, wherever it comes in the results
            value = [
                op("CONSTANT", value=as_word(1.0)), *halves, op("CONSTANT", value=least), op("EQ", b="GQUERY_ORDER_I64"), op("IF"),
                op("CONSTANT", value=as_word(1e308)), op("REPLACE"), op("END"),
            ]  # fmt: skip
            with Client(server) as client:
                client.write(token, rows, ([*halves, op("GROUP", 1), aggregate(0, "COUNT_ROWS"), *value, aggregate(1, "SUM_F64")], 2))
                answer = client.ask()
                if least < rows // 2:
                    expect_verb(answer, "RAISED")
                    expect(answer.error, N["GQUERY_E_OVERFLOW"], "the error")
                else:
                    expect_verb(answer, "DONE")
                    expect(client.window.more, 1, "more groups than a piece has")

    def value_that_is_not_known_is_an_error_where_a_row_comes_to_it(self, server):
        token = fill(server, 1000)
        with Client(server) as client:
            for least, verb in ((1000, "DONE"), (999, "RAISED")):
                some = [op("LOAD", 0), op("CONSTANT", value=least), op("GT", b="GQUERY_ORDER_I64")]
                filtered = [*some, op("FILTER"), op("LOAD", 0), op("UNKNOWN"), op("EQ", b="GQUERY_ORDER_I64"), op("FILTER")]
                branch = [op("CONSTANT", value=0), *some, op("IF"), op("UNKNOWN"), op("REPLACE"), op("END"), op("CONSTANT", value=1), op("EQ", b="GQUERY_ORDER_I64"), op("FILTER")]
                for code in (filtered, branch):
                    client.write(token, 1000, ([*code, aggregate(0, "COUNT_ROWS")], 1))
                    answer = client.ask()
                    expect_verb(answer, verb)
                    expect(answer.error, N["GQUERY_E_UNKNOWN"] if verb == "RAISED" else 0, "the error")

    def two_clients_at_once_get_their_own_answers(self, server):
        token = fill(server, self.ROWS)
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(Client(server)) for _ in range(24)]  # more than run at a time
            for turn in range(3):
                for i, client in enumerate(clients):
                    client.write(token, self.ROWS, sums(turn * 1000 + i) if i % 2 else BY_K)
                    client.send("RUN")
                for i, client in enumerate(clients):
                    found = client.finish(client.receive())
                    if i % 2:
                        expect(sums_of(found[0])[0], self.ROWS - turn * 1000 - i, "rows")
                    else:
                        expect(len(found), 1000, "groups")
            expect(len(executor_pids(server)), 1, "executors")

    def query_that_waits_for_leases_keeps_no_other_waiting(self, server):
        token = fill(server, self.ROWS)
        server.sql("CREATE FOREIGN TABLE other (id int) SERVER gstore_fdw; INSERT INTO other VALUES (1)")
        query = server.sql("SELECT gstore_export('other')"), 1, ([op("LOAD", 0), aggregate(0, "SUM_I64")], 2)
        with contextlib.ExitStack() as stack:
            client, late, *waiting = [stack.enter_context(Client(server)) for _ in range(22)]  # more than run at a time
            for each in (late, *waiting):
                expect(each.run(*query, columns=(ID,)), [(0, 1, 0)], "a sum")
            with leased(server, "other"):
                start = time.monotonic()
                late.send("RUN")
                time.sleep(1)
                for each in waiting:
                    each.send("RUN")
                client.socket.settimeout(N["GQUERY_LEASE_MS"] / 2000)
                for _ in range(20):
                    expect(sums_of(*client.run(token, self.ROWS, sums(0)))[0], self.ROWS, "rows")
                    time.sleep(0.05)
                waiting.pop().socket.close()
                expect_verb(late.receive(), "NO_ROOM")
                expect(time.monotonic() - start > N["GQUERY_LEASE_MS"] / 1000 - 1, True, "it has waited")
            for each in waiting:
                answer = each.receive()
                if answer.verb != N["GQUERY_NO_ROOM"]:
                    expect(each.finish(answer), [(0, 1, 0)], "a sum")
                expect(each.run(*query, columns=(ID,)), [(0, 1, 0)], "a sum")
        server.sql("DROP FOREIGN TABLE other")

    def versions_of_a_table_that_can_be_open_at_a_time_make_room_for_others(self, server):
        """Each has a token of its own, and a connection to the keeper has an object open 16 times at most."""
        server.sql("CREATE FOREIGN TABLE other (id int) SERVER gstore_fdw")
        tokens = []
        for i in range(N["GQUERY_ATTACHED_KEPT"] + 1):
            server.sql(f"INSERT INTO other VALUES ({i})")
            tokens.append(server.sql("SELECT gstore_export('other')"))
        query = [op("LOAD", 0), aggregate(0, "COUNT")], 1
        with contextlib.ExitStack() as stack:
            *others, late = clients = [stack.enter_context(Client(server)) for _ in tokens]
            for rows, (client, token) in enumerate(zip(clients, tokens), 1):
                client.write(token, rows, query, columns=(ID,))
                if client is not late:
                    expect(client.finish(client.ask()), [(0, rows)], "rows")
                    client.window.begun = 0
            with leased(server, "other"):
                for client in others:
                    client.send("RUN")
                wait_until("they have begun", lambda: all(client.window.begun for client in others))
                time.sleep(1)  # they wait for leases
                start = time.monotonic()
                expect_verb(late.ask(), "NO_ROOM", "53400")
                expect(time.monotonic() - start > 1.9, True, "it has waited as for a turn")
                late.window.first_row = 1  # the local plan would return again what was returned before
                late.send("RUN")
                time.sleep(2.5)
                expect(select.select([late.socket], [], [], 0)[0], [], "an answer after the time in which the local plan would begin")
            expect(late.finish(late.receive()), [(0, len(tokens))], "rows")
            for rows, client in enumerate(others, 1):
                answer = client.receive()
                if answer.verb != N["GQUERY_NO_ROOM"]:
                    expect(client.finish(answer), [(0, rows)], "rows")
        server.sql("DROP FOREIGN TABLE other")

    def sums_of_doubles_depend_on_rows_alone(self, server):
        """Not on how long others keep the device: the batches are other ones each time."""
        rows = 2000000
        server.sql(
            "DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (f float8) SERVER gstore_fdw;"
            f"INSERT INTO ft SELECT (random() - 0.5) * 10 ^ (i % 30) FROM generate_series(1, {rows}) i"
        )
        query = server.sql("SELECT gstore_export('ft')"), rows, ([op("LOAD", 0), aggregate(0, "SUM_F64")], 1)
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(Client(server)) for _ in range(4)]
            found = set()
            for turn in range(12):
                at_work = clients[: turn % 4 + 1]
                for client in at_work:
                    client.write(*query, columns=((0, 701, "GQUERY_F64"),))
                    client.send("RUN")
                found.update(client.finish(client.receive())[0][1] for client in at_work)
        expect(len(found), 1, "sums of the same rows")

    def backend_without_a_memory_file_runs_the_local_plan(self, server):
        fill(server, 1000)
        text = "SELECT count(*), sum(k) FROM ft WHERE id > 10"
        for limit, ran in (("fsize", "cannot extend the memory file: File too large"), ("nofile", "cannot create the memory file: Too many open files")):
            session = server.session()
            session.sql("SET gstore_fdw.gpu_startup_cost = 0; SET gstore_fdw.gpu_instruction_cost = 0; SET max_parallel_workers_per_gather = 0")
            session.sql(f"SET gstore_fdw.gpu_queries = off; {text}; SET gstore_fdw.gpu_queries = on")
            used = {int(path.name) for path in Path(f"/proc/{session.pid}/fd").iterdir()}
            least = next(number for number in range(len(used) + 1) if number not in used)
            command = ["prlimit", f"--pid={session.pid}", f"--{limit}={least if limit == 'nofile' else 512 << 10}:"]
            subprocess.run(as_owner(command), check=True)
            server.sql("SELECT gstore_fdw_queries_reset()")
            expect(session.sql(text), "990|499445", "the answer")
            expect(counted(server, "unavailable"), "aggregate 1", "what the view says")
            expect(f"Ran: by the local plan: {ran}" in session.sql(f"EXPLAIN (ANALYZE) {text}"), True, f"why: {session.sql(f'EXPLAIN (ANALYZE) {text}')}")
            expect("Ran: by the scan" in session.sql("EXPLAIN (ANALYZE) SELECT * FROM ft WHERE id > 10"), True, "why a filter")
            subprocess.run(as_owner([*command[:2], f"--{limit}={'unlimited' if limit == 'fsize' else 1000}:"]), check=True)
            expect("Ran: on the GPU" in session.sql(f"EXPLAIN (ANALYZE) {text}"), True, "where it runs afterwards")

    def small_query_takes_little_time(self, server):
        token = fill(server, 1)
        with Client(server) as client:
            client.run(token, 1, sums(0))
            times = []
            for _ in range(200):
                start = time.perf_counter()
                expect_verb(client.ask(), "DONE")
                times.append(time.perf_counter() - start)
            median = sorted(times)[100]
            print(f"# a query over one row: {median * 1e6:.0f} us from message to message (median of 200)", flush=True)
            if min(times) > 0.005:
                raise Failed("something is made anew for each query")


@group("gstore_fdw.device_memory=128MB", "autovacuum=off")
class Budget:
    """An ANALYZE that nobody asked for would keep its table on the device."""

    ROWS = 700000

    def scratch_memory_is_the_keepers_which_moves_tables_to_make_room(self, server):
        token = fill(server, self.ROWS)
        server.sql("CREATE FOREIGN TABLE filler (a bigint, b bigint, c bigint, d bigint, e bigint) SERVER gstore_fdw; INSERT INTO filler SELECT i, i, i, i, i FROM generate_series(1, 2000000) i")
        server.wait_for("SELECT sum(device_resident) > 80000000 FROM gstore_fdw_keeper_info")
        expect(server.sql("SELECT sum(device_on_host) FROM gstore_fdw_keeper_info"), "0", "bytes on the host")
        with Client(server) as client:
            client.write(token, self.ROWS, BY_ID)
            expect_verb(client.ask(), "DONE")
            server.wait_for("SELECT sum(device_on_host) > 0 AND bool_and(device_resident <= device_budget) FROM gstore_fdw_keeper_info")
            expect(sorted(key for _, key, _ in client.finish(Message(verb=N["GQUERY_DONE"]))), list(range(1, self.ROWS + 1)), "keys")
        expect(server.sql("SELECT sum(e) FROM filler"), str(2000000 * 2000001 // 2), "a sum of what was moved")

    def results_that_wait_to_be_fetched_make_room_for_others(self, server):
        """They are more than the device has room for, with a table of groups."""
        server.sql("DROP FOREIGN TABLE IF EXISTS filler")
        token = fill(server, self.ROWS)
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(Client(server)) for _ in range(8)]
            found = []
            for client in clients:
                client.write(token, self.ROWS, BY_ID)
                expect_verb(client.ask(), "DONE")
                expect(client.window.more, 1, "more groups")
                found.append(client.records())
            server.wait_for("SELECT sum(device_on_host) > 0 AND bool_and(device_resident <= device_budget) FROM gstore_fdw_keeper_info")
            for client, records in zip(clients, found):
                while client.window.more:
                    expect_verb(client.ask("FETCH"), "DONE")
                    records += client.records()
                expect(sorted(key for _, key, _ in records), list(range(1, self.ROWS + 1)), "keys")

    def columns_on_the_host_are_counted_by_explain(self, server):
        rows, budget = 3600000, 128 << 20
        server.sql(
            "DROP FOREIGN TABLE IF EXISTS ft, filler; CREATE FOREIGN TABLE filler (a bigint, b bigint, c bigint, d bigint, e bigint) SERVER gstore_fdw;"
            f" INSERT INTO filler SELECT i, i, i, i, i FROM generate_series(1, {rows}) i"
        )
        plan = (
            "SET gstore_fdw.gpu_startup_cost = 0; SET gstore_fdw.gpu_instruction_cost = 0;"
            " EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT {} FROM filler WHERE a > 0"
        )
        host = re.search("GPU Bytes on Host: ([0-9]+)", server.sql(plan.format("sum(b), sum(c), sum(d), sum(e)")))
        expect(host is not None and 5 * 8 * rows - budget <= int(host[1]) <= 5 * 8 * rows, True, f"bytes: {host}")
        server.sql("TRUNCATE filler; INSERT INTO filler SELECT i FROM generate_series(1, 10) i")
        expect("on Host" in server.sql(plan.format("count(*)")), False, "bytes of a small table")
        server.sql("DROP FOREIGN TABLE filler")

    def groups_beyond_the_budget_are_no_room_and_the_next_query_works(self, server):
        token = fill(server, self.ROWS)
        code = [op("LOAD", 0), op("GROUP", 1), *(aggregate(i, "COUNT_ROWS") for i in range(14))], 14
        with Client(server) as client:
            client.write(token, self.ROWS, code)
            expect_verb(client.ask(), "NO_ROOM", "53200")
            expect(len(client.run(token, self.ROWS, BY_K)), 1000, "groups")
        server.sql("DROP FOREIGN TABLE IF EXISTS ft, filler")
        server.wait_for("SELECT sum(device_resident + device_on_host) FROM gstore_fdw_keeper_info", "0")


@group("gstore_fdw.gpu_startup_cost=0", "gstore_fdw.gpu_instruction_cost=0")
class Sessions:
    def session_keeps_no_large_memory_file(self, server):
        rows = 300000
        fill(server, rows)
        session = server.session()
        for query, wanted in ((f"SELECT count(*) FROM (SELECT id, count(*) FROM ft GROUP BY id) g", rows), ("SELECT count(DISTINCT k) FROM (SELECT k FROM ft GROUP BY k) g", 999)):
            plan = session.sql("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + query)
            if "Ran: on the GPU" not in plan:
                raise Failed(f"it does not run on the GPU: {plan}")
            expect(int(session.sql(query)), wanted, "groups")
            expect(file_bytes(session.pid) <= 2 << 20, True, "a small file, or none")
        expect(file_bytes(session.pid) > 0, True, "that of the last query")
        session.close()


    def view_counts_what_is_cancelled_or_lost(self, server):
        fill(server, 700000)
        server.sql("SELECT gstore_fdw_queries_reset()")
        session = server.session()
        session.sql("SET max_parallel_workers_per_gather = 0; BEGIN; DECLARE c CURSOR FOR SELECT id, count(*), sum(k) FROM ft GROUP BY id; FETCH 1 FROM c")
        expect(counted(server, "queries"), "aggregate 1", "queries")
        pid = executor_pid(server)
        other = server.session()
        stop_process(pid)
        other.begin("SELECT count(*) FROM ft WHERE id > 1")
        server.wait_for(f"SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = {other.pid}")
        server.sql(f"SELECT pg_cancel_backend({other.pid})")
        expect(other.error(), "57014", "SQLSTATE")
        expect(counted(server, "cancelled"), "aggregate 1", "what is cancelled")
        os.kill(pid, signal.SIGKILL)
        session.begin("\\set VERBOSITY verbose\nFETCH ALL FROM c")
        expect(session.error().split(":")[0], "38000", "SQLSTATE")
        session.errors.seek(0)
        expect("gstore_fdw.gpu_queries off" in session.errors.read(), True, "a hint that says what to do")
        expect(counted(server, "executor_lost"), "aggregate 1", "what is lost")
        expect(counted(server, "failed"), "", "what fails otherwise")


    def query_that_an_executor_has_ended_with_is_not_sent_to_another_one(self, server):
        """It may be why it has ended. One that it had not begun with is, once: that other one may be the same that is ending."""
        server.sql("CREATE FOREIGN TABLE one (id int) SERVER gstore_fdw; INSERT INTO one SELECT generate_series(1, 1000)")
        server.sql("SELECT gstore_export('one')")
        text = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT count(*) FROM one WHERE id > 1"
        session = server.session()
        session.sql("SET max_parallel_workers_per_gather = 0")
        server.sql("SELECT gstore_fdw_queries_reset()")
        with leased(server, "one"):
            session.begin(text)
            wait_until("the query has begun", lambda: has_begun(session.pid))
            os.kill(executor_pid(server), signal.SIGKILL)
            server.wait_for("SELECT max(executor_lost) FROM gstore_fdw_queries", "1")
        expect("Ran: by the local plan: the executor has ended" in session.finish(), True, "what ran")
        expect(executor_pids(server), [], "executors")
        for _ in range(10):
            session.sql(text)
            pid = executor_pid(server)
            stop_process(pid)
            session.begin(text)
            server.wait_for(f"SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = {session.pid}")
            expect(has_begun(session.pid), False, "it has begun")
            os.kill(pid, signal.SIGKILL)
            if "Ran: on the GPU" in session.finish():
                break
        else:
            raise Failed("it is never sent to another one")
        session.close()


    def backend_that_waits_for_a_connection_can_be_cancelled(self, server):
        """The process that accepts them is stopped, and as many wait as it lets wait."""
        fill(server, 1000)
        session, keeper, waiting = server.session(), server.keeper_pid(), []
        session.sql("SET gstore_fdw.gpu_queries = off; SELECT count(*) FROM ft WHERE id > 1; SET gstore_fdw.gpu_queries = on")
        server.sql("SELECT count(*) FROM ft WHERE id > 1")  # nothing else is to be asked for
        stop_process(keeper)
        try:
            for _ in range(LISTENS + 1):
                waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                connect_as_owner(waiting[-1], server)
            session.begin("SET statement_timeout = '300ms'; SELECT count(*) FROM ft WHERE id > 1")
            wait_until("it is cancelled", lambda: session.process.poll() is not None, limit_s=30)
            expect(session.error(), "57014", "SQLSTATE")
        finally:
            for each in waiting:
                each.close()
            os.kill(keeper, signal.SIGCONT)
        expect(server.sql("SELECT count(*) FROM ft WHERE id > 1"), "999", "rows")

    def sort_of_results_can_be_cancelled(self, server):
        """Where gdb is: an interrupt that comes between two comparisons is seen at the next one."""
        if not shutil.which("gdb"):
            raise Skipped("there is no gdb")
        fill(server, 100000)
        session = server.session()
        text = "SELECT id, count(*) FROM ft GROUP BY id ORDER BY count(*), id LIMIT 30000"
        session.sql(f"SET max_parallel_workers_per_gather = 0; EXPLAIN {text}")
        ready = server.folder / "run/gdb-is-ready"
        commands = [
            "set breakpoint pending on", "break compare_words", f"shell touch {ready}", "continue", "delete",
            "set var *(int *)&InterruptPending = 1", "set var *(int *)&QueryCancelPending = 1", "break ProcessInterrupts", "continue", "bt 3", "delete", "detach",
        ]  # fmt: skip
        command = ["gdb", "-nx", "-batch", "-p", str(session.pid), *(word for text_ in commands for word in ("-ex", text_))]
        with subprocess.Popen(as_owner(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as gdb:
            wait_until("gdb is ready", lambda: ready.exists() or gdb.poll() is not None, limit_s=60)
            session.begin(text)
            said = gdb.stdout.read()
        if not re.search(r"^Breakpoint 1(\.\d+)?, compare_words", said, re.M):
            raise Skipped(f"gdb cannot do it: {said.splitlines()[-1]}")
        expect("compare_words" in said.partition("Breakpoint 2,")[2], True, f"where it is seen: {said}")
        expect(session.error(), "57014", "SQLSTATE")

    def query_that_the_driver_fails_is_run_by_the_local_plan_and_logged(self, _):
        """One call of its that the keeper does not make, once: the next query is computed there."""
        text = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT count(*) FROM ft WHERE id > 1"
        failed = "cannot run the query: cuOccupancyMaxActiveBlocksPerMultiprocessor has failed CUDA_ERROR_UNKNOWN"
        with other_server(GVMEM_FAULT="cuOccupancyMaxActiveBlocksPerMultiprocessor:1") as server:
            fill(server, 1000)
            session = server.session()
            session.sql("SET gstore_fdw.gpu_startup_cost = 0; SET gstore_fdw.gpu_instruction_cost = 0; SET max_parallel_workers_per_gather = 0")
            expect(f"Ran: by the local plan: {failed}" in session.sql(text), True, "what ran")
            expect(server.log().count(f"LOG:  a query is not computed by the GPU: {failed}"), 1, "what is logged")
            expect(counted(server, "device_errors"), "aggregate 1", "what the view says")
            expect("Ran: on the GPU" in session.sql(text), True, "where the next one ran")
            session.close()


def slow_modules(takes_s):
    """To be preloaded: the software GPU takes so long for the first module of an executor."""
    library = BUILD / "postgres-run/slow_modules.so"
    command = [*shlex.split(os.environ.get("CC", "cc")), "-shared", "-fPIC", "-x", "c", "-", "-o", str(library), "-ldl"]
    source = f"""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <errno.h>
        #include <string.h>
        #include <unistd.h>
        int memfd_create(const char *name, unsigned flags)
        {{
            static int taken;
            if (strcmp(name, "gvmem-image") == 0 && strcmp(program_invocation_short_name, "gstore-executor") == 0 && !taken++)
                sleep({takes_s});
            return ((int (*)(const char *, unsigned))dlsym(RTLD_NEXT, "memfd_create"))(name, flags);
        }}"""
    subprocess.run(command, input=source, text=True, check=True)
    return str(library)


def counted(server, counter):
    return server.sql(f"SELECT string_agg(kind || ' ' || {counter}, ',') FROM gstore_fdw_queries WHERE {counter} > 0")


def file_bytes(pid):
    """Of a backend's memory file for queries."""
    sizes = [path.stat().st_size for path in Path(f"/proc/{pid}/fd").iterdir() if os.readlink(path).startswith("/memfd:gstore ")]
    return sum(sizes)


@group()
class BadInput:
    ROWS = 1000

    def _expect_refused(self, client, sqlstate, change=None):
        client.write(self.token, self.ROWS, sums(0))
        if change:
            change(client.window)
        expect_verb(client.ask(), "ERROR", sqlstate)

    def tables_other_than_the_query_says_are_errors(self, server):
        self.token = fill(server, self.ROWS)
        with Client(server) as client:
            for rows in (0, self.ROWS - 1, self.ROWS + 1, 2**63):
                client.write(self.token, rows, sums(0))
                expect_verb(client.ask(), "ERROR", "55000")
            for columns in (
                ((0, 20, "GQUERY_I32"), K, F),  # another type
                ((0, 23, "GQUERY_I64"), K, F),  # another width
                ((0, 23, "GQUERY_BIT"), K, F),
                (ID, K, (3, 25, "GQUERY_I64")),  # offsets of texts
                (ID, K, (9, 25, "GQUERY_I64")),  # no such column
            ):
                client.write(self.token, self.ROWS, sums(0), columns=columns)
                expect_verb(client.ask(), "ERROR", "55000")
            client.write("no token", self.ROWS, sums(0))
            expect_verb(client.ask(), "ERROR")
            client.write("", 1, COUNT, columns=())
            expect_verb(client.ask(), "ERROR", "XX000")
            (record,) = client.run(self.token, self.ROWS, sums(0))
            expect(sums_of(record), sums_in_sql(server, "true"), "the next query")

    def texts_are_read_as_the_table_has_them_and_compared_with_what_the_program_has(self, server):
        token = fill(server, self.ROWS)
        server.sql("DROP FOREIGN TABLE IF EXISTS fa; CREATE FOREIGN TABLE fa (id int, k bigint, f float8, t text) SERVER gstore_fdw OPTIONS (format 'arrow'); INSERT INTO fa SELECT * FROM ft")
        other = server.sql("SELECT gstore_export('fa')")
        from_start, to_end, lower, upper, ascii_, beyond = (0x400 << i for i in range(6))
        bodies, offsets, fixed = ((3, 25, f"GQUERY_TEXT_{form}") for form in ("BODIES", "OFFSETS", "FIXED"))

        def texts(*all_):
            """Words of the program's values: of each text its place and length, then the bytes."""
            words, places = [], []
            for text in all_:
                places.append(len(text) << 32 | (len(all_) + len(words)))
                words += [int.from_bytes(text[i : i + 8], "little") for i in range(0, len(text), 8)]
            return places + words

        with Client(server) as client:

            def ask(columns, values, b, count, first=0, column=0, what="TEXT", token=token):
                code = [op(what, column, b, first | count << 32), op("FILTER"), aggregate(0, "COUNT_ROWS")]
                client.write(token, self.ROWS, (code, 1), columns=columns)
                client.window.program.value_count = len(values)
                client.window.program.values[: len(values)] = values
                return client.ask()

            is_in, like, length = (N[f"GQUERY_TEXT_{name}"] for name in ("IN", "LIKE", "LENGTH"))
            for name, column, its in (("ft", bodies, token), ("fa", offsets, other)):
                for values, b, count, where in (
                    (texts(b"row 7", b"row 77", b"row 1000", b"row 1001"), is_in, 4, "t IN ('row 7', 'row 77', 'row 1000')"),
                    (texts(b"row 1", b"9"), like | from_start | to_end, 2, "t LIKE 'row 1%9'"),
                    ([], is_in, 0, "false"), ([], like, 0, "true"), ([], length, 0, "true"),
                ):  # fmt: skip
                    expect_verb(ask((column,), values, b, count, token=its), "DONE")
                    expect(client.records(), [(0, int(server.sql(f"SELECT count(*) FROM {name} WHERE {where}")))], where)
            # Tables have them otherwise.
            for columns, its in (((offsets,), token), ((fixed,), token), ((bodies,), other), ((fixed,), other), (((0, 23, "GQUERY_TEXT_BODIES"),), token), (((0, 25, "GQUERY_TEXT_BODIES"),), token)):
                expect_verb(ask(columns, texts(b"row 7"), is_in, 1, token=its), "ERROR", "55000")
            some = texts(b"row 1", b"row 2")
            for arguments in (
                dict(count=2, first=4), dict(count=5), dict(count=2**32 - 1), dict(count=1, first=2**32 - 1), dict(count=2, b=0xFF), dict(count=2, b=beyond), dict(count=2, b=lower | upper), dict(count=2, b=ascii_), dict(count=0, b=length | lower),
                dict(count=2, values=some[1::-1] + some[2:]), dict(count=2, values=texts(b"row 2", b"row 1")), dict(count=1, values=[2**32 * 9 + 1, 0]), dict(count=1, values=[2**64 - 1]), dict(count=1, values=[1 << 32 | 2**32 - 1]),
                dict(count=1, b=like, values=[1]), dict(count=0, b=like | from_start), dict(count=0, b=like | to_end), dict(count=2, b=is_in | to_end), dict(count=1, b=length), dict(count=2, column=1), dict(count=2, column=2**32 - 1),
                dict(count=2, columns=((0, 23, "GQUERY_I32"),)), dict(count=2, what="LOAD"),
            ):  # fmt: skip
                answer = ask(**{"columns": (bodies,), "values": some, "b": is_in, **arguments})
                expect((answer.verb, answer.sqlstate), (N["GQUERY_ERROR"], b"XX000"), f"the answer to {arguments}: {answer.text}")

    def windows_and_programs_that_lie_are_errors(self, server):
        self.token = fill(server, self.ROWS)
        size = os.sysconf("SC_PAGE_SIZE")

        def set_(**members):
            return lambda w: [setattr(w, name, value) for name, value in members.items()]

        def in_table(**members):
            return lambda w: [setattr(w.tables[0], name, value) for name, value in members.items()]

        def in_program(**members):
            return lambda w: [setattr(w.program, name, value) for name, value in members.items()]

        def in_code(at, **members):
            return lambda w: [setattr(w.program.code[at], name, value) for name, value in members.items()]

        def in_column(**members):
            return lambda w: [setattr(w.program.columns[0], name, value) for name, value in members.items()]

        with Client(server) as client:
            for change in (
                set_(magic=1), set_(version=9), set_(used=5), set_(used=2**64 - 1), set_(table_count=0), set_(table_count=2), set_(table_count=2**32 - 1),
                in_table(dead=Span(2**64 - 64, 128)), in_table(dead=Span(1 << 20, 1)), in_table(dead=Span(0, 2**64 - 1)),
                in_program(column_count=65), in_program(code_count=2**32 - 1), in_program(value_count=1025), in_program(state_words=65), in_program(state_words=4),
                in_code(0, op=0), in_code(0, op=999), in_code(0, a=3), in_code(5, a=2**31), in_code(6, a=63), in_code(2, b=77), in_code(3, op=N["GQUERY_END"]),
                in_column(form=99), in_column(table=1), in_column(table=2**32 - 1),
            ):  # fmt: skip
                self._expect_refused(client, "XX000", change)
            # On the device there is no such bitmap.
            client.write(self.token, self.ROWS, sums(0))
            client.window.tables[0].deleted_bytes = size
            answer = client.ask()
            expect(answer.verb in (N["GQUERY_ERROR"], N["GQUERY_NO_ROOM"]), True, "a refusal")
            expect([part for part in self.token.split(":") if part.startswith("/") and part in answer.text.decode()], [], "what is said of the token")
            (record,) = client.run(self.token, self.ROWS, sums(0))
            expect(sums_of(record), sums_in_sql(server, "true"), "the next query")

    def programs_of_random_bytes_end_in_an_answer(self, server):
        self.token = fill(server, self.ROWS)
        with Client(server) as client:
            for seed in range(300):
                client.write(self.token, self.ROWS, sums(0))
                noise = random_bytes(seed)
                at = Window.program.offset + (0 if seed % 3 == 0 else Program.code.offset)
                client.map[at : at + len(noise)] = noise
                answer = client.ask()
                expect(answer.lost, 0, f"the executor goes on (seed {seed}): {answer.text}")
                if answer.verb == N["GQUERY_DONE"] and client.window.more:
                    client.send("FORGET")
            (record,) = client.run(self.token, self.ROWS, sums(0))
            expect(sums_of(record), sums_in_sql(server, "true"), "the next query")

    def garbage_closes_the_connection_and_no_other(self, server):
        self.token = fill(server, self.ROWS)
        with Client(server) as other:
            other.run(self.token, self.ROWS, sums(0))
            pid = executor_pid(server)
            for garbage in (b"x", b"\0" * ctypes.sizeof(Message), bytes(Message(MAGIC, 99)), bytes(Message(MAGIC, N["GQUERY_DONE"])), b"y" * 5000):
                with Client(server) as client:
                    client.socket.send(garbage)
                    self._expect_end(client)
            with Client(server, seal=0) as client:  # the file may shrink
                client.send("RUN")
                self._expect_end(client)
            with Client(server) as client:  # not a GQUERY_WINDOW, and too small for one
                expect_verb(client.ask(), "ERROR", "XX000")
            other.run(self.token, self.ROWS, sums(0))
            expect(executor_pid(server), pid, "the executor")

    def _expect_end(self, client):
        try:
            client.receive()
        except Ended as end:
            expect(str(end), "end of file", "what comes")
        else:
            raise Failed("an answer to garbage")

    def device_that_is_not_there_is_no_room(self, server):
        with Client(server, device=77) as client:
            client.write("", 0, COUNT, columns=())
            expect_verb(client.ask(), "NO_ROOM")
        with Client(server, device=-1) as client:
            try:
                client.receive()
            except Ended as end:
                expect(str(end), f"spawner: {(SPAWN_MAGIC, N['GSTORE_SPAWN_FAILED'], errno.EINVAL)}", "what comes")
            else:
                raise Failed("an answer of no device")


def random_bytes(seed):
    return random.Random(seed).randbytes(400)


@group()
class Life:
    ROWS = 5000000

    def _begin(self, client):
        """A query that takes a while; returns while it runs."""
        client.write(self.token, self.ROWS, BY_ID)
        client.send("RUN")

    def connection_that_is_closed_ends_its_query(self, server):
        self.token = fill(server, self.ROWS)
        keeper = server.keeper_pid()
        with Client(server) as other:
            expect(len(other.run(self.token, self.ROWS, BY_K)), 1000, "groups")
            pid = executor_pid(server)
            before = len(descriptors(pid)), len(descriptors(keeper))
            for wait_s in (0, 0.001, 0.02, 0.1, 0.2):
                client = Client(server)
                self._begin(client)
                time.sleep(wait_s)
                client.close()
            wait_until("descriptors are closed", lambda: (len(descriptors(pid)), len(descriptors(keeper))) == before)
            expect(len(other.run(self.token, self.ROWS, BY_K)), 1000, "groups")
            expect(executor_pid(server), pid, "the executor")
        self._expect_memory_goes_back(server)

    def _expect_memory_goes_back(self, server):
        """Nothing is leased or open: what is dropped is gone soon after."""
        server.sql("DROP FOREIGN TABLE ft")
        server.wait_for("SELECT sum(device_resident + device_on_host) FROM gstore_fdw_keeper_info", "0")

    def killed_executor_ends_connections_and_the_next_one_works(self, server):
        self.token = fill(server, self.ROWS)
        keeper = server.keeper_pid()
        with Client(server) as client:
            client.run(self.token, self.ROWS, sums(0))
            pid = executor_pid(server)
            opened = len(descriptors(pid))
        wait_until("the connection is closed", lambda: len(descriptors(pid)) < opened)
        before = len(descriptors(keeper))
        for _ in range(3):
            client = Client(server)
            self._begin(client)
            pid = executor_pid(server)
            os.kill(pid, signal.SIGKILL)
            try:
                client.receive()
            except Ended as end:
                expect(str(end), "end of file", "what comes")
            client.close()
            expect(run_again(server, self.token, self.ROWS, COUNT, columns=()), [(0, self.ROWS)], "the next query")
            wait_until("another one", lambda: pid not in executor_pids(server))
            expect(executor_pid(server) != pid, True, "another executor")
        wait_until("descriptors are closed", lambda: len(descriptors(keeper)) == before)
        self._expect_memory_goes_back(server)

    def stopped_executor_is_killed_and_a_client_may_go_at_once(self, server):
        self.token = fill(server, 1000)
        with Client(server) as client:
            client.run(self.token, 1000, sums(0))
        pid = executor_pid(server)
        stop_process(pid)
        start = time.monotonic()
        with Client(server) as client:
            client.send("RUN")
        expect(time.monotonic() - start < 5, True, "the client does not wait")
        wait_until("it is killed", lambda: pid not in executor_pids(server), limit_s=60)
        expect(20 < time.monotonic() - start < 60, True, "after the time that it has for a sign of life")
        with Client(server) as client:
            client.run(self.token, 1000, sums(0))

    def executor_that_opens_the_device_for_long_is_not_killed(self, _):
        """As where the driver has to compile its kernels: longer than it has for a sign of life."""
        takes_s = (N["GSTORE_SPAWN_HANG_MS"] + N["GSTORE_SPAWN_BEAT_MS"]) // 1000 + 5
        with other_server(GVMEM_DRIVER="soft", LD_PRELOAD=slow_modules(takes_s)) as server, Client(server) as client:
            start = time.monotonic()
            client.socket.settimeout(2 * takes_s)
            expect(client.run("", 0, COUNT, columns=()), [(0, 0)], "records")
            expect(time.monotonic() - start >= takes_s, True, "it has taken long")

    def executor_without_connections_ends_after_a_minute(self, server):
        with Client(server) as client:
            client.run("", 0, COUNT, columns=())
            pid = executor_pid(server)
        start = time.monotonic()
        wait_until("it ends", lambda: pid not in executor_pids(server), limit_s=90)
        expect(time.monotonic() - start > 55, True, "not before")
        run_again(server, "", 0, COUNT, columns=())

    def spawner_needs_descriptors_for_open_connections_alone(self, server):
        """Of its keeper. poll() counts entries without one, too; where it fails, queries run by their local plans."""
        fill(server, 1000)
        keeper = server.keeper_pid()
        limit = ["prlimit", f"--pid={keeper}"]
        before = subprocess.run(as_owner([*limit, "--nofile", "--noheadings", "--output=SOFT"]), capture_output=True, text=True, check=True).stdout.strip()
        settings = "SET gstore_fdw.gpu_startup_cost = 0; SET gstore_fdw.gpu_instruction_cost = 0"
        try:
            for most, ran in (256, "on the GPU"), (2, "by the local plan: no connection to an executor"):
                subprocess.run(as_owner([*limit, f"--nofile={most}:"]), check=True)
                plan = server.sql(f"{settings}; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT count(*) FROM ft WHERE id > 1", timeout=60)
                expect(f"Ran: {ran}" in plan, True, f"what ran with {most} descriptors: {plan}")
        finally:
            subprocess.run(as_owner([*limit, f"--nofile={before}:"]), check=True)
        server.wait_log("no longer run on the GPU: cannot wait for connections: Invalid argument")
        server.stop("fast")
        server.start()

    def executor_ends_with_the_server(self, server):
        with Client(server) as client:
            client.run("", 0, COUNT, columns=())
        pid = executor_pid(server)
        server.stop("fast")
        wait_until("it has ended", lambda: not Path(f"/proc/{pid}").exists() or is_zombie(pid))
        server.start()
        server.wait_for("SELECT bool_and(ready) FROM gstore_fdw_keeper_info")
        with Client(server) as client:
            client.run("", 0, COUNT, columns=())
        pid, keeper = executor_pid(server), server.keeper_pid()
        server.kill_and_wait(keeper)
        wait_until("it has ended", lambda: not Path(f"/proc/{pid}").exists() or is_zombie(pid))


@group("gstore_fdw.keeper=FOLDER/run/keeper.sock", "gstore_fdw.start_timeout=60")
class Keeper:
    """One that is a process of its own, so that it can be stopped without the spawner."""

    ROWS = 1000

    @contextlib.contextmanager
    def _keeper(self, server):
        with running_keeper(server) as keeper:
            server.wait_for("SELECT DISTINCT keeper_pid FROM gstore_fdw_keeper_info WHERE ready", str(keeper.pid))
            yield keeper

    def keeper_that_is_stopped_delays_only_queries_that_need_it(self, server):
        with self._keeper(server) as keeper, contextlib.ExitStack() as stack:
            token = fill(server, self.ROWS)
            other = self._other_table(server, 2)
            client = stack.enter_context(Client(server))
            client.run(token, self.ROWS, sums(0))
            stop_process(keeper.pid)
            waiting = [stack.enter_context(Client(server)) for _ in range(20)]  # more than run at a time
            for each in waiting:
                each.write(other, 1, COUNT, columns=((0, 23, "GQUERY_I32"),))
                each.send("RUN")
            client.socket.settimeout(LIMIT_S)
            for _ in range(30):  # while the others arrive, and so often that the table is not detached
                expect(sums_of(*client.run(token, self.ROWS, sums(0)))[0], self.ROWS, "rows")
                time.sleep(0.05)
            waiting.pop().socket.close()
            os.kill(keeper.pid, signal.SIGCONT)
            for each in waiting:
                expect(each.finish(each.receive()), [(0, 1)], "records")

    def one_role_leaves_lanes_to_others(self, server):
        """Its queries have lanes and wait for the keeper, for memory: there are more than lanes."""
        rows = 700000
        with self._keeper(server) as keeper, contextlib.ExitStack() as stack:
            token = fill(server, rows)
            client, *busy = [stack.enter_context(Client(server)) for _ in range(21)]
            client.run(token, rows, sums(0), role=1)
            stop_process(keeper.pid)
            for each in busy:
                each.write(token, rows, BY_ID, role=2)
                each.send("RUN")
            client.socket.settimeout(LIMIT_S)
            for _ in range(60):  # while the others come so far
                expect(sums_of(*client.run(token, rows, sums(0), role=1))[0], rows, "rows")
                time.sleep(0.05)
            os.kill(keeper.pid, signal.SIGCONT)
            found = [answer if answer.verb == N["GQUERY_NO_ROOM"] else each.finish(answer) for each in busy for answer in [each.receive()]]
            expect({len(each) for each in found if isinstance(each, list)}, {rows}, "groups of those that have had a turn")

    def turns_are_waited_for_a_while_and_left_to_others(self, server):
        """All are of queries, each of a role of its own, that wait for the keeper, for memory."""
        rows = 700000
        with self._keeper(server) as keeper, contextlib.ExitStack() as stack:
            token = fill(server, rows)
            client, *busy = [stack.enter_context(Client(server)) for _ in range(17)]
            client.run(token, rows, sums(0))
            stop_process(keeper.pid)
            for i, each in enumerate(busy):
                each.write(token, rows, BY_ID, role=1 + i)
                each.send("RUN")
            client.write("", 0, COUNT, columns=())
            answer = client.ask()
            while answer.verb == N["GQUERY_DONE"]:  # until the others have all turns
                answer = client.ask()
            expect_verb(answer, "NO_ROOM", "53200")
            client.window.first_row = 1  # the local plan would return again what was returned before
            client.send("RUN")
            time.sleep(2.5)
            sockets = [each.socket for each in (client, *busy)]
            expect(select.select(sockets, [], [], 0)[0], [], "answers while all wait")
            os.kill(keeper.pid, signal.SIGCONT)
            expect(select.select(sockets, [], [], LIMIT_S)[0], [client.socket], "the first answer")
            expect(client.finish(client.receive()), [(0, 0)], "records")
            for each in busy:
                expect(len(each.finish(each.receive())), rows, "groups")

    def worker_that_cannot_be_started_delays_no_connection_to_an_executor(self, server):
        with self._keeper(server) as keeper:
            token = fill(server, self.ROWS)
            with Client(server) as client:
                client.run(token, self.ROWS, sums(0))
                stop_process(keeper.pid)
                with Client(server, kind="GSTORE_SPAWN_SESSION") as worker:
                    start = time.monotonic()
                    with Client(server) as other:
                        other.socket.settimeout(N["GSTORE_KEEPER_WAIT_S"] / 2)
                        expect(sums_of(*other.run(token, self.ROWS, sums(0)))[0], self.ROWS, "rows")
                    try:
                        worker.receive()
                    except Ended as end:
                        expect(str(end), f"spawner: {(SPAWN_MAGIC, N['GSTORE_SPAWN_FAILED'], errno.ETIMEDOUT)}", "what comes")
                    expect(time.monotonic() - start >= N["GSTORE_KEEPER_WAIT_S"], True, "it is waited for")
                os.kill(keeper.pid, signal.SIGCONT)

    def executor_lives_while_the_keeper_is_stopped(self, server):
        """Longer than it has for a sign of life, in which many columns are to be closed, each with a time limit."""
        columns = 48
        with self._keeper(server) as keeper:
            token = self._other_table(server, columns)
            code = [instruction for i in range(columns) for instruction in (op("LOAD", i), aggregate(i, "COUNT"))]
            query = token, 1, (code, columns), [(i, 23, "GQUERY_I32") for i in range(columns)]
            with Client(server) as client:
                client.run(*query)
                pid = executor_pid(server)
                stop_process(keeper.pid)
                time.sleep((N["GSTORE_SPAWN_HANG_MS"] + N["GSTORE_SPAWN_BEAT_MS"]) / 1000 + 2)
                expect(executor_pids(server), [pid], "executors")
                os.kill(keeper.pid, signal.SIGCONT)
                expect(client.run(*query), [(0, *[1] * columns)], "records")

    def _other_table(self, server, columns):
        names = [f"c{i}" for i in range(columns)]
        server.sql(f"DROP FOREIGN TABLE IF EXISTS other; CREATE FOREIGN TABLE other ({', '.join(name + ' int' for name in names)}) SERVER gstore_fdw")
        server.sql(f"INSERT INTO other VALUES ({', '.join('1' for _ in names)})")
        return server.sql("SELECT gstore_export('other')")


def is_zombie(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    return True


if __name__ == "__main__":
    check_layouts()
    sys.exit(main())
