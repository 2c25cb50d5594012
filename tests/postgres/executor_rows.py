#!/usr/bin/env python3
"""The executor's results other than groups: marked rows, ordered lists, distances; see executor.py.

usage: executor_rows.py [CASE...]. What it returns is compared with SQL, or with what is computed here from the rows that SQL returns.
"""
import ctypes
import math
import random
import struct
import sys
import threading
import time

sys.dont_write_bytecode = True
from cases import group, main  # noqa: E402
from executor_client import (  # noqa: E402
    BY_ID,
    BY_K,
    COUNT,
    ID,
    K,
    N,
    Client,
    Distance,
    Program,
    Span,
    Window,
    aggregate,
    as_double,
    block,
    check_layouts,
    descriptors,
    executor_pid,
    expect_verb,
    fill,
    op,
    signed,
    wait_until,
)
from private import expect  # noqa: E402

ABOVE = [op("CONSTANT", value=0), op("GT", b="GQUERY_ORDER_I64"), op("FILTER")]
ENTRY_BYTES = 16  # of lists by one key
SLICE = 4096  # rows that a list always has room for


def where_id(name, value):
    return [op("LOAD", 0), op("CONSTANT", value=value), op(name, b="GQUERY_ORDER_I64"), op("FILTER")]


# by column 0, and the other way round; by column 1 with NULLs last or first, which is NULL for some rows
BY_FIRST = [op("LOAD", 0), op("EMIT", 1)], 0
BY_FIRST_DOWN = [op("LOAD", 0), op("INVERT"), op("EMIT", 1)], 0
SECOND_OR_ZERO = [op("LOAD", 1), op("COPY"), op("IS_NULL"), op("IF"), op("CONSTANT", value=0), op("REPLACE"), op("END")]
BY_SECOND = [op("LOAD_NULL", 1), *SECOND_OR_ZERO, op("EMIT", 2)], 0
BY_SECOND_NULLS_FIRST = [op("LOAD_NULL", 1), op("NOT"), *SECOND_OR_ZERO, op("INVERT"), op("EMIT", 2)], 0


def least_scratch(entries, entry_bytes=ENTRY_BYTES):
    """For a list, with room for as few rows of a slice as there may be."""
    return block((entries + SLICE) * entry_bytes) + block(entries * entry_bytes)


def entries_of(records):
    return sorted(tuple(signed(word) for word in record) for record in records)


def bits_of(records, rows):
    """Rows whose bits are set."""
    bitmap = b"".join(struct.pack("=Q", *record) for record in records)
    expect(len(bitmap), (rows + 63) // 64 * 8, "bytes of a bitmap")
    number = int.from_bytes(bitmap, "little")
    expect(number >> rows, 0, "bits behind the last row")
    digits = bin(number)[:1:-1]
    return [row for row, digit in enumerate(digits) if digit == "1"]


def ids_in_sql(server, where):
    """As rows: id 1 is in row 0."""
    return [int(line) - 1 for line in server.sql(f"SELECT id FROM ft WHERE {where} ORDER BY id").splitlines()]


@group()
class Marks:
    def marked_rows_are_those_of_sql(self, server):
        for rows in (1, 31, 64, 4097, 200001):
            token = fill(server, rows)
            with Client(server) as client:
                for code, where in (
                    ([], "true"),
                    (where_id("LT", 0), "false"),
                    (where_id("GE", rows), f"id >= {rows}"),
                    ([op("LOAD", 1), op("CONSTANT", value=500), op("LT", b="GQUERY_ORDER_I64"), op("FILTER")], "k < 500"),
                    ([op("LOAD_NULL", 1), op("FILTER")], "k IS NULL"),
                ):
                    found = client.run(token, rows, ([*code, op("MARK")], 0))
                    expect(bits_of(found, rows), ids_in_sql(server, where), f"rows of {rows} where {where}")

    def table_without_rows_has_no_marks_and_no_entries(self, server):
        with Client(server) as client:
            expect(client.run("", 0, ([op("MARK")], 0), columns=()), [], "marks")
            expect(client.window.record_words, 1, "words of a record")
            expect(client.run("", 0, BY_FIRST, columns=(ID,), entries=5), [], "entries")
            expect(client.window.record_words, 2, "words of a record")

    def dead_rows_are_not_marked(self, server):
        rows = 10000
        token = fill(server, rows)
        with Client(server) as client:
            found = client.run(token, rows, ([op("MARK")], 0), dead=b"\x55" * (rows // 8))
            expect(bits_of(found, rows), list(range(1, rows, 2)), "rows")

    def marks_beyond_the_scratch_memory_are_no_room(self, server):
        token = fill(server, 10000)
        with Client(server) as client:
            client.write(token, 10000, ([op("MARK")], 0), scratch=block(10000 // 8) - 1)
            expect_verb(client.ask(), "NO_ROOM", "53200")
            expect(len(client.run(token, 10000, ([op("MARK")], 0), scratch=block(10000 // 8))), 157, "words")

    def error_of_a_row_is_said(self, server):
        token = fill(server, 1000)
        code = [op("CONSTANT", value=1), op("LOAD", 0), op("CONSTANT", value=500), op("SUBTRACT", b="GQUERY_ARITHMETIC_I32"), op("DIVIDE", b="GQUERY_ARITHMETIC_I32")]
        with Client(server) as client:
            for sink in ([*ABOVE, op("MARK")], [op("EMIT", 1)]):
                client.write(token, 1000, (code + sink, 0), entries=5)
                answer = client.ask()
                expect_verb(answer, "RAISED")
                expect(answer.error, N["GQUERY_E_DIVISION"], "the error")


def gathered_in_sql(server, where):
    """Records: the row, which of id, k and f are NULL, their words."""
    records = []
    for line in server.sql(f"SELECT id, k, f FROM ft WHERE {where} ORDER BY id").splitlines():
        number, k, f = line.split("|")
        records.append((int(number) - 1, (k == "") << 1 | (f == "") << 2, int(number), int(k or 0), float(f or 0)))
    return records


@group()
class Gathered:
    """Rows that pass, as a list with the values of columns."""

    ALL = (0, 1, 2)
    EVERY = [op("LOAD", 0), op("CONSTANT", value=97), op("MODULO", b="GQUERY_ARITHMETIC_I32"), op("CONSTANT", value=5), op("EQ", b="GQUERY_ORDER_I64"), op("FILTER")]

    def _expect_gathered(self, client, records, server, where):
        expect(client.window.gathered, 1, f"it is a list where {where}")
        found = [(row, nulls, signed(number), signed(k), as_double(f)) for row, nulls, number, k, f in records]
        expect(found, gathered_in_sql(server, where), f"records where {where}")

    def few_rows_come_with_their_values(self, server):
        for rows in (4097, 70000, 200001):
            token = fill(server, rows)
            for code, where in (
                (where_id("LT", 0), "false"),
                (where_id("EQ", 1), "id = 1"),
                (where_id("GE", rows), f"id >= {rows}"),
                (where_id("LE", 64), "id <= 64"),
                (self.EVERY, "id % 97 = 5"),
                ([], "true"),
            ):
                with Client(server) as client:
                    records = client.run(token, rows, ([*code, op("MARK")], 0), gather_max=rows, gather=self.ALL)
                    self._expect_gathered(client, records, server, where)

    def more_rows_than_are_wanted_come_as_a_bitmap(self, server):
        rows = 70000
        token, query = fill(server, rows), ([*self.EVERY, op("MARK")], 0)
        count = len(ids_in_sql(server, "id % 97 = 5"))
        with Client(server) as client:
            for most, scratch in ((count - 1, 1 << 30), (rows, block((rows + 63) // 64 * 8) + block(count * 8) + block(count * 40) - 1)):
                found = client.run(token, rows, query, gather_max=most, gather=self.ALL, scratch=scratch)
                expect(client.window.gathered, 0, "it is a list")
                expect(bits_of(found, rows), ids_in_sql(server, "id % 97 = 5"), "rows")
            records = client.run(token, rows, query, gather_max=count, gather=self.ALL)
            self._expect_gathered(client, records, server, "id % 97 = 5")
        with Client(server) as client:  # a list of numbers alone
            records = client.run(token, rows, query, gather_max=count, columns=(ID,))
            expect(records, [(row, 0) for row in ids_in_sql(server, "id % 97 = 5")], "rows")

    def what_cannot_be_gathered_is_refused(self, server):
        token = fill(server, 5000)
        mark, most = ([op("MARK")], 0), {"gather_max": 10}
        with Client(server) as client:
            for query, more in (
                (mark, {"gather": (3,)}), (mark, {"gather": (2**32 - 1,)}), (mark, {"gather": (0,) * 65}), (COUNT, {"gather": (0,)}),
                (mark, {"gather": (0,), "columns": ((0, 23, "GQUERY_DECIMAL"),)}),
            ):  # fmt: skip
                client.write(token, 5000, query, **{**most, **more})
                expect_verb(client.ask(), "ERROR", "XX000")
            for kind in ((0, 20, "GQUERY_I32"), (0, 23, "GQUERY_I64"), (7, 23, "GQUERY_I32")):
                client.write(token, 5000, mark, columns=(kind,), gather=(0,), **most)
                expect_verb(client.ask(), "ERROR", "55000")


def make_table(server, expression, rows):
    """Of id in rows' order, and k."""
    server.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int, k bigint) SERVER gstore_fdw")
    server.sql(f"INSERT INTO ft SELECT {expression} FROM generate_series(1, {rows}) i")
    return server.sql("SELECT gstore_export('ft')")


@group()
class Lists:
    ROWS = 100000
    COLUMNS = (ID, K)
    DRAWN = "hashint4(i) / 7, nullif(hashint4(i + 1) % 50, 0)"

    def _rows(self, server):
        """In their order."""
        lines = [line.split("|") for line in server.sql("SELECT id, k FROM ft").splitlines()]
        return [(int(id_), int(k) if k else None) for id_, k in lines]

    def _orders(self, rows):
        """Programs, and all of their entries in order."""
        by_second = [(int(k is None), k or 0, row) for row, (_, k) in enumerate(rows)]
        yield BY_FIRST, sorted((id_, row) for row, (id_, _) in enumerate(rows))
        yield BY_FIRST_DOWN, sorted((~id_, row) for row, (id_, _) in enumerate(rows))
        yield BY_SECOND, sorted(by_second)
        yield BY_SECOND_NULLS_FIRST, sorted((1 - null, ~k, row) for null, k, row in by_second)

    def first_entries_are_those_of_a_sort(self, server):
        for rows in (1, 4096, 4097, self.ROWS):
            token = make_table(server, self.DRAWN, rows)
            for program, wanted in self._orders(self._rows(server)):
                with Client(server) as client:
                    for entries in (1, 2, 10, 1000, rows - 1, rows, rows + 1, 1 << 20):
                        if entries == 0:
                            continue
                        found = client.run(token, rows, program, columns=self.COLUMNS, entries=entries)
                        expect(entries_of(found) == wanted[:entries], True, f"the first {entries} of {rows} entries")

    def table_in_or_against_the_order_of_the_list_takes_few_turns(self, server):
        """Lists have the room that they need at least: slices of rows against the order have too many entries."""
        rows = 300000
        token = make_table(server, "i, -i", rows)
        with Client(server) as client:
            for entries in (1, 100, 5000):
                scratch = least_scratch(entries)
                start = time.monotonic()
                found = client.run(token, rows, BY_FIRST, columns=self.COLUMNS, entries=entries, scratch=scratch)
                expect(entries_of(found), [(i + 1, i) for i in range(entries)], f"the first {entries}")
                found = client.run(token, rows, BY_FIRST_DOWN, columns=self.COLUMNS, entries=entries, scratch=scratch)
                expect(entries_of(found), [(~(rows - i), rows - i - 1) for i in range(entries)], f"the last {entries}")
                print(f"# {entries} entries of {rows} rows in and against their order: {time.monotonic() - start:.2f} s", flush=True)
                client.write(token, rows, BY_FIRST, columns=self.COLUMNS, entries=entries, scratch=scratch - 1)
                expect_verb(client.ask(), "NO_ROOM", "53200")

    def first_entries_may_be_in_the_middle_of_the_table(self, server):
        """Half of the rows are against the order, and no other rows give the bound that they need."""
        rows = 300000
        token = make_table(server, "abs(i - 150000), i", rows)
        wanted = sorted((abs(row - 149999), row) for row in range(rows))
        with Client(server) as client:
            for entries in (1, 100, 5000):
                for scratch in (1 << 30, least_scratch(entries)):
                    found = client.run(token, rows, BY_FIRST, columns=self.COLUMNS, entries=entries, scratch=scratch)
                    expect(entries_of(found) == wanted[:entries], True, f"the first {entries} entries")

    def rows_that_get_dense_later_have_room_after_some_turns(self, server):
        """Where few rows have passed, a slice is large; here all of it pass at once, and the first entries are anywhere among them."""
        rows = 200000
        token = make_table(server, "CASE WHEN i BETWEEN 60000 AND 180000 THEN hashint4(i) / 2 ELSE hashint4(i) / 8 + 1500000000 END, CASE WHEN i BETWEEN 60000 AND 180000 THEN hashint4(i) % 50 ELSE 1000 END", rows)
        by_first, _, by_second, _ = self._orders(self._rows(server))
        with Client(server) as client:
            for program, wanted in (by_first, by_second):
                for entries in (7, 700):
                    found = client.run(token, rows, program, columns=self.COLUMNS, entries=entries, scratch=least_scratch(entries, ENTRY_BYTES + 8))
                    expect(entries_of(found) == wanted[:entries], True, f"the first {entries} entries")

    def equal_keys_are_in_the_order_of_rows(self, server):
        token = make_table(server, "5, NULL", self.ROWS)
        with Client(server) as client:
            for entries in (1, 3000):
                for scratch in (1 << 30, least_scratch(entries)):
                    found = client.run(token, self.ROWS, BY_FIRST, columns=self.COLUMNS, entries=entries, scratch=scratch)
                    expect(entries_of(found), [(5, row) for row in range(entries)], "entries")

    def lists_that_are_continued_are_the_whole_without_gaps(self, server):
        token = make_table(server, self.DRAWN, 20000)
        for program, wanted in self._orders(self._rows(server)):
            found, after = [], None
            with Client(server) as client:
                while after is None or part:
                    part = entries_of(client.run(token, 20000, program, columns=self.COLUMNS, entries=1777, after=after))
                    found += part
                    after = found[-1]
            expect(found == wanted, True, "all entries")

    def conditions_and_dead_rows_leave_entries_out(self, server):
        token = make_table(server, self.DRAWN, self.ROWS)
        rows = self._rows(server)
        code = [op("LOAD", 1), op("CONSTANT", value=10), op("GT", b="GQUERY_ORDER_I64"), op("FILTER"), *BY_FIRST[0]], 0
        wanted = sorted((id_, row) for row, (id_, k) in enumerate(rows) if k is not None and k > 10 and row % 2)
        with Client(server) as client:
            for entries in (100, self.ROWS):
                found = client.run(token, self.ROWS, code, columns=self.COLUMNS, entries=entries, dead=b"\x55" * (self.ROWS // 8))
                expect(entries_of(found) == wanted[:entries], True, "entries")

    def long_list_comes_in_pieces(self, server):
        rows = 1100000
        token = make_table(server, "-i, i", rows)
        with Client(server) as client:
            for entries in (700000, (1 << 20) - 1, 1 << 20):  # the first ones at once, as they are less than 16 MiB
                found = client.run(token, rows, BY_FIRST, columns=self.COLUMNS, entries=entries)
                expect(client.window.records.bytes < len(found) * ENTRY_BYTES, entries > 700000, "more pieces than one")
                expect(entries_of(found) == [(i - rows, rows - i - 1) for i in range(entries)], True, f"the first {entries} entries")

    def lists_of_no_or_too_many_entries_are_errors(self, server):
        token = make_table(server, self.DRAWN, 1000)
        with Client(server) as client:
            for entries in (0, (1 << 20) + 1, 2**64 - 1):
                client.write(token, 1000, BY_FIRST, columns=self.COLUMNS, entries=entries)
                expect_verb(client.ask(), "ERROR", "XX000")
            client.write(token, 1000, BY_FIRST, columns=self.COLUMNS, entries=10, scratch=0)
            expect_verb(client.ask(), "NO_ROOM", "53200")
            expect(len(client.run(token, 1000, BY_FIRST, columns=self.COLUMNS, entries=10)), 10, "entries")

    def list_takes_little_time(self, server):
        token = make_table(server, self.DRAWN, 1000)
        with Client(server) as client:
            client.run(token, 1000, BY_FIRST, columns=self.COLUMNS, entries=10)
            times = []
            for _ in range(100):
                start = time.perf_counter()
                expect_verb(client.ask(), "DONE")
                times.append(time.perf_counter() - start)
            print(f"# 10 entries of 1000 rows: {sorted(times)[50] * 1e6:.0f} us from message to message (median of 100)", flush=True)

    def connection_that_is_closed_ends_its_list(self, server):
        rows = 3000000
        token = make_table(server, "-i, i", rows)
        with Client(server) as other:
            expect(other.run(token, rows, COUNT, columns=()), [(0, rows)], "rows")
            pid = executor_pid(server)
            before = len(descriptors(pid))
            for wait_s in (0, 0.02, 0.1, 0.3):
                client = Client(server)
                client.write(token, rows, BY_FIRST, columns=self.COLUMNS, entries=1 << 20)
                client.send("RUN")
                time.sleep(wait_s)
                client.close()
            wait_until("descriptors are closed", lambda: len(descriptors(pid)) == before)
            expect(executor_pid(server), pid, "the executor")
        server.sql("DROP FOREIGN TABLE ft")
        server.wait_for("SELECT sum(device_resident + device_on_host) FROM gstore_fdw_keeper_info", "0")


# of BY_K: its key, then how many rows, then the sum of their ids
KEY_WORD, ROWS_WORD, SUM_LOW, SUM_HIGH = 0, 1, 2, 3
# groups by their sums; by the key with NULL first, those of 200 rows alone; a list of no key but the row
BY_SUM = ([op("LOAD", 1), op("INVERT"), op("LOAD", 0), op("INVERT", b=1), op("INVERT"), op("EMIT", 2)], 0), (SUM_LOW, SUM_HIGH)
BY_KEY = ([op("LOAD", 1), op("CONSTANT", value=200), op("EQ", b="GQUERY_ORDER_I64"), op("FILTER"), op("LOAD_NULL", 0), op("NOT"), op("LOAD", 0), op("COPY"), op("IS_NULL"), op("IF"), op("CONSTANT", value=0), op("REPLACE"), op("END"), op("EMIT", 2)], 0), (KEY_WORD, ROWS_WORD)


@group()
class Stages:
    """Programs over groups."""

    def _groups(self, rows, ids):
        """Which keys are NULL, the key, rows, sum: as records of BY_K, whose keys are id % 1000, but NULL for 0."""
        found = {}
        for id_ in range(1, rows + 1):
            key = id_ % 1000
            found.setdefault(key, []).append(id_ if ids else -(2**62))
        return [(int(key == 0), key, len(all_), sum(all_) % 2**64, sum(all_) // 2**64 % 2**64) for key, all_ in found.items()]

    def lists_of_groups_have_the_first_of_them_with_their_words(self, server):
        for rows in (1, 999, 3210, 200000):
            token = fill(server, rows)
            groups = self._groups(rows, True)
            by_sum = sorted(((~signed(g[4]), signed(g[3] ^ 2**64 - 1 ^ 2**63)), g) for g in groups)
            by_key = sorted(((1 - g[0], g[1]), g) for g in groups if g[2] == 200)
            with Client(server) as client:
                for stage, wanted in ((BY_SUM, by_sum), (BY_KEY, by_key)):
                    for entries in (1, 10, 999, 1000, 2**64 - 1):
                        found = client.run(token, rows, BY_K, entries=entries, stages=(stage,))
                        expect(sorted(((signed(r[0]), signed(r[1])), r[3:]) for r in found), wanted[:entries], f"the first {entries} groups of {rows} rows")
                        expect(client.window.record_words, 8, "words of a record")

    def sums_of_more_than_64_bits_are_in_order(self, server):
        """Sums of k are -2^62 for each row: 2, 3 or 4 of them."""
        code = [op("LOAD", 1), op("GROUP", 1), aggregate(0, "COUNT_ROWS"), op("CONSTANT", value=-(2**62)), aggregate(1, "SUM_I64")], 3
        token = fill(server, 2500)
        with Client(server) as client:
            found = client.run(token, 2500, code, entries=501, stages=(BY_SUM,))
            wanted = sorted((-len_ * 2**62, key) for _, key, len_, _, _ in self._groups(2500, False))
            got = sorted((signed(high) * 2**64 + low, key) for _, _, _, _, key, _, low, high in found)
            expect([total for total, _ in got], [total for total, _ in wanted][-501:], "sums")

    def groups_of_groups_and_a_list_of_them(self, server):
        """How many keys have so many rows; the sums of that; the most of them."""
        rows = 123456
        token = fill(server, rows)
        again = ([op("LOAD", 1), op("GROUP", 1), aggregate(0, "COUNT_ROWS"), op("LOAD", 0), aggregate(1, "COUNT")], 2), (KEY_WORD, ROWS_WORD)
        all_ = ([aggregate(0, "COUNT_ROWS"), op("LOAD", 0), aggregate(1, "SUM_I64")], 3), (ROWS_WORD,)
        most = ([op("LOAD", 0), op("INVERT"), op("EMIT", 1)], 0), (1,)
        with Client(server) as client:
            # 456 keys have 124 rows, 544 with that of NULL have 123
            expect(sorted(client.run(token, rows, BY_K, stages=(again,))), [(0, 123, 544, 543), (0, 124, 456, 456)], "groups")
            expect(client.run(token, rows, BY_K, stages=(all_,)), [(0, 1000, rows, 0)], "sums")
            found = client.run(token, rows, BY_K, entries=1, stages=(again, most))
            expect([(r[0], r[2:]) for r in found], [(2**64 - 1 - 544, (0, 123, 544, 543))], "the first group of groups")
            expect(client.window.record_words, 6, "words of a record")

    def many_groups_come_in_pieces_and_are_bounded(self, server):
        rows = 300000
        token = fill(server, rows)
        down = ([op("LOAD", 0), op("INVERT"), op("EMIT", 1)], 0), (KEY_WORD,)
        with Client(server) as client:
            for entries in (10, 5000, rows):
                found = client.run(token, rows, BY_ID, entries=entries, stages=(down,))
                expect(sorted(r[3] for r in found), list(range(rows - entries + 1, rows + 1)), f"the last {entries} ids")
            client.write(token, rows, BY_ID, entries=10, stages=(down,), scratch=16 << 20)
            expect_verb(client.ask(), "NO_ROOM", "53200")
            expect(client.run(token, rows, COUNT, columns=()), [(0, rows)], "the next query")

    def rows_without_groups_have_none_in_the_next_program(self, server):
        token = fill(server, 100)
        none = [op("LOAD", 0), op("CONSTANT", value=0), op("LT", b="GQUERY_ORDER_I64"), op("FILTER"), *BY_K[0]], BY_K[1]
        counted = ([aggregate(0, "COUNT_ROWS")], 1), ()
        with Client(server) as client:
            for query in ((token, 100, none), ("", 0, BY_K)):
                expect(client.run(*query, entries=5, stages=(BY_SUM,)), [], "entries")
                expect(client.window.record_words, 8, "words of a record")
                expect(client.run(*query, stages=(counted,)), [(0, 0)], "groups")

    def errors_of_groups_are_said(self, server):
        token = fill(server, 5000)
        code = [op("CONSTANT", value=1), op("LOAD", 0), op("CONSTANT", value=500), op("SUBTRACT", b="GQUERY_ARITHMETIC_I64"), op("DIVIDE", b="GQUERY_ARITHMETIC_I64"), op("EMIT", 1)], 0
        with Client(server) as client:
            client.write(token, 5000, BY_K, entries=5, stages=((code, (KEY_WORD,)),))
            answer = client.ask()
            expect_verb(answer, "RAISED")
            expect(answer.error, N["GQUERY_E_DIVISION"], "the error")

    def programs_that_read_what_is_not_there_are_refused(self, server):
        token = fill(server, 1000)
        marks, lists = ([op("MARK")], 0), ([op("LOAD", 0), op("EMIT", 1)], 0)
        with Client(server) as client:
            for program, stages in (
                (BY_K, ((lists, (4,)),)),
                (BY_K, ((marks, ()),)),
                (COUNT, ((lists, ()),)),
                (BY_FIRST, ((lists, (0,)),)),
                (BY_K, ((lists, (0,)), (lists, (0,)))),
            ):
                client.write(token, 1000, program, entries=5, stages=stages)
                expect_verb(client.ask(), "ERROR", "XX000")
            for change in ({"stage_count": 3}, {"continued": 1}, {"list_max": 0}):
                client.write(token, 1000, BY_K, entries=5, stages=(BY_SUM,))
                for member, value in change.items():
                    setattr(client.window, member, value)
                expect_verb(client.ask(), "ERROR", "XX000")
            for span in (Span(0, 100), Span(1 << 40, ctypes.sizeof(Program)), Span(2**64 - 64, ctypes.sizeof(Program)), Span(1, ctypes.sizeof(Program))):
                client.write(token, 1000, BY_K, entries=5, stages=(BY_SUM,))
                client.window.stages[0] = span
                expect_verb(client.ask(), "ERROR", "XX000")
            client.write(token, 1000, BY_K, entries=5, stages=(BY_SUM,))
            client.window.program.columns[0].table = 2**32 - 2
            expect_verb(client.ask(), "ERROR", "XX000")
            expect(len(client.run(token, 1000, BY_K, entries=5, stages=(BY_SUM,))), 5, "the next query")


def float_point(values):
    return pad(struct.pack(f"={len(values)}f", *values))


def double_point(values):
    return pad(struct.pack(f"={len(values)}d", *values))


def pad(data):
    return data + b"\0" * (-len(data) % 16)


def sums_of_products(a, b):
    return sum(x * y for x, y in zip(a, b))


def l2(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)))


def l1(a, b):
    return sum(abs(x - y) for x, y in zip(a, b))


def inner(a, b):
    return -sums_of_products(a, b)


def cosine(a, b):
    return 1 - sums_of_products(a, b) / math.sqrt(sums_of_products(a, a) * sums_of_products(b, b))


def hamming(a, b):
    return sum(x != y for x, y in zip(a, b))


def jaccard(a, b):
    both = sum(x == y == "1" for x, y in zip(a, b))
    return 1 - both / sum("1" in pair for pair in zip(a, b)) if both else 1


OF_NUMBERS = {"GQUERY_L2": l2, "GQUERY_INNER": inner, "GQUERY_COSINE": cosine, "GQUERY_L1": l1}
OF_BITS = {"GQUERY_HAMMING": hamming, "GQUERY_JACCARD": jaccard}
FLOATS, DOUBLES, INTEGERS, BITS = (2, 1021), (3, 1022), (4, 1005), (5, 1560)
DISTANCE = (0, 0, "GQUERY_F64")  # the first one
KEY = [op("LOAD", 0), op("ORDER_KEY")]
# Of every row whose vector is not NULL: the distance, and the row.
BY_DISTANCE = [op("LOAD_NULL", 0), op("NOT"), op("FILTER"), *KEY, op("EMIT", 1)], 0


def distance_of_key(key):
    return struct.unpack("=d", struct.pack("=q", key if key >= 0 else key ^ (2**63 - 1)))[0]


def of_column(column, elements, metric, count, stride, square=0.0):
    number, kind = column
    return Distance(0, number, kind, N[elements], N[metric], stride, count, square)


@group()
class Distances:
    ROWS = 9000
    COUNT = 22
    BIT_COUNT = 70

    def _make(self, server, options=""):
        a = f"OPTIONS (length '{self.COUNT}')"
        server.sql(
            f"DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int, f real[] {a}, d float8[] {a}, s int2[] {a}, b bit({self.BIT_COUNT}), g real) SERVER gstore_fdw {options};"
            "INSERT INTO ft SELECT i, CASE WHEN i % 10 <> 3 THEN v::real[] END, v, ARRAY(SELECT (e * 100)::int2 FROM unnest(v) e), "
            f"(SELECT string_agg((hashint4(i * 100 + j) & 1)::text, '') FROM generate_series(1, {self.BIT_COUNT}) j)::bit({self.BIT_COUNT}), i "
            f"FROM generate_series(1, {self.ROWS}) i, LATERAL (SELECT array_agg(hashint4(i * 100 + j) / 1e9::float8) v FROM generate_series(1, {self.COUNT}) j) l"
        )
        self.token = server.sql("SELECT gstore_export('ft')")

    def _column(self, server, name):
        lines = server.sql(f"SELECT {name} FROM ft").split("\n")
        return [[float(e) for e in line[1:-1].split(",")] if line[:1] == "{" else line or None for line in lines]

    def _expect_distances(self, client, distance, point, wanted, metric, **more):
        found = client.run(self.token, self.ROWS, BY_DISTANCE, columns=(DISTANCE,), entries=self.ROWS, distances=[(distance, point)], **more)
        found = {row: distance_of_key(key) for key, row in entries_of(found)}
        expect(sorted(found), [row for row, value in enumerate(wanted) if value is not None], f"rows that are not NULL, by {metric}")
        for row, value in found.items():
            if abs(value - wanted[row]) > 1e-4 * (1 + abs(wanted[row])):
                expect(value, wanted[row], f"the distance of row {row} by {metric}")

    def distances_are_those_of_their_definitions(self, server):
        for options in ("", "OPTIONS (format 'arrow')"):
            self._make(server, options)
            values = {name: self._column(server, name) for name in "fdsb"}
            number = random.Random(1)
            with Client(server) as client:
                for name, column, elements, size, point_of in (
                    ("f", FLOATS, "GQUERY_ELEMENTS_F32", 4, float_point),
                    ("d", DOUBLES, "GQUERY_ELEMENTS_F64", 8, double_point),
                    ("s", INTEGERS, "GQUERY_ELEMENTS_I16", 2, double_point),
                ):
                    point = [number.uniform(-2, 2) for _ in range(self.COUNT)]
                    square = sums_of_products(point, point)
                    for metric, definition in OF_NUMBERS.items():
                        wanted = [definition(value, point) if value else None for value in values[name]]
                        distance = of_column(column, elements, metric, self.COUNT, self.COUNT * size, square)
                        # The second time in launches of few rows.
                        for scratch in (1 << 30, 4 * 8 * SLICE + self.ROWS * 64):
                            self._expect_distances(client, distance, point_of(point), wanted, f"{metric} of {name}", scratch=scratch)
                point = "".join(number.choice("01") for _ in range(self.BIT_COUNT))
                point_bytes = int(point.ljust(72, "0"), 2).to_bytes(9, "big")
                for metric, definition in OF_BITS.items():
                    wanted = [definition(value, point) for value in values["b"]]
                    self._expect_distances(client, of_column(BITS, "GQUERY_ELEMENTS_BITS", metric, self.BIT_COUNT, 9), pad(point_bytes), wanted, metric)

    def distances_are_columns_for_conditions_and_groups(self, server):
        self._make(server)
        floats, bits = self._column(server, "f"), self._column(server, "b")
        points = [1.0] * self.COUNT, "1" * self.BIT_COUNT
        distances = [
            (of_column(FLOATS, "GQUERY_ELEMENTS_F32", "GQUERY_L1", self.COUNT, 4 * self.COUNT), float_point(points[0])),
            (of_column(BITS, "GQUERY_ELEMENTS_BITS", "GQUERY_HAMMING", self.BIT_COUNT, 9), pad(b"\xff" * 8 + b"\xfc")),
        ]
        columns = (DISTANCE, (1, 0, "GQUERY_F64"), ID)
        below = [op("LOAD", 0), op("CONSTANT", value=struct.unpack("=Q", struct.pack("=d", 25.0))[0]), op("LT", b="GQUERY_ORDER_F64"), op("FILTER")]
        near = [row for row, value in enumerate(floats) if value and l1(value, points[0]) < 25]
        groups = {}
        for row in near:
            distance = hamming(bits[row], points[1])
            groups[distance] = groups.get(distance, 0) + row + 1
        by_bits = [op("LOAD", 1), op("F64_TO_I64"), op("GROUP", 1), op("LOAD", 2), aggregate(0, "SUM_I64")]
        expect(0 < len(near) < self.ROWS, True, "the condition is true for some rows")
        with Client(server) as client:
            for scratch in (1 << 30, 1 << 18):
                more = {"columns": columns, "distances": distances, "scratch": scratch}
                expect(client.run(self.token, self.ROWS, (below + COUNT[0], 1), **more), [(0, len(near))], "rows that are near")
                found = client.run(self.token, self.ROWS, (below + by_bits, 2), **more)
                expect({key: low for _, key, low, _ in found}, groups, "sums by distance")
                found = client.run(self.token, self.ROWS, ([*below, op("MARK")], 0), **more)
                expect(bits_of(found, self.ROWS), near, "marks")

    def launches_of_few_rows_mark_the_rows_of_sql(self, server):
        """Batches that a long pattern makes shorter are halved for the distances: kernels write marks by whole words all the same."""
        near, rows = "v <-> '{0,0}'::real[] < 300 AND v <-> '{1,1}'::real[] < 300", 12000
        server.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int, t text, v real[] OPTIONS (length '2')) SERVER gstore_fdw")
        server.sql(f"INSERT INTO ft SELECT i, rpad(i::text, 1000, 'x'), ARRAY[i * 7919::bigint % 601, 0] FROM generate_series(1, {rows}) i")
        found = {}
        for on in ("on", "off"):
            session = server.session()
            session.sql(f"SET gstore_fdw.gpu_startup_cost = 0; SET gstore_fdw.gpu_instruction_cost = 0; SET gstore_fdw.gpu_query_memory = '1MB'; SET gstore_fdw.gpu_queries = {on}")
            for length in range(95, 105):  # about every second one makes an odd number of slices
                query = f"SELECT count(*), sum(id), sum(id::bigint * id) FROM (SELECT id FROM ft WHERE t LIKE '%{'x' * length}%' AND {near} OFFSET 0) s"
                if on == "on" and length == 95:
                    expect("GPU Filter" in session.sql(f"EXPLAIN VERBOSE {query}"), True, "the GPU filters")
                found.setdefault(length, []).append(session.sql(query))
            session.close()
        for length, (gpu, local) in found.items():
            expect(gpu, local, f"rows with {length} x")

    def rows_nearest_to_many_queries_are_those_of_their_definitions(self, server):
        self._make(server)
        values, number, nearest = self._column(server, "f"), random.Random(3), 40
        points = [[number.uniform(-2, 2) for _ in range(self.COUNT)] for _ in range(nearest)]
        distance = of_column(FLOATS, "GQUERY_ELEMENTS_F32", "GQUERY_L1", self.COUNT, 4 * self.COUNT)
        joined = b"".join(float_point(point) for point in points)
        above = [op("LOAD", 0), op("CONSTANT", value=100), op("GT"), op("FILTER"), op("MARK")]
        with Client(server) as client:
            # The second time in slices of few rows.
            for scratch in (1 << 30, 400000):
                found = client.run(self.token, self.ROWS, (above, 0), columns=(ID,), entries=7, distances=[(distance, joined)], nearest=nearest, scratch=scratch)
                expect(len(found), 7 * nearest, "entries")
                for i, point in enumerate(points):
                    wanted = sorted((l1(value, point), row) for row, value in enumerate(values) if value and row >= 100)[:7]
                    expect(sorted(row for _, row in found[7 * i : 7 * i + 7]), sorted(row for _, row in wanted), f"rows nearest to query {i}")
            # With values: of the key, the row, `id`, which is not NULL, and the vector.
            more = {"columns": (ID,), "distances": [(distance, joined)], "nearest": nearest, "gather": (N["GQUERY_GATHER_ROW"], 0), "vectors": True}
            found = client.run(self.token, self.ROWS, (above, 0), entries=7, gather_max=7 * nearest, **more)
            expect(client.window.gathered, 1, "there are records")
            for i, (key, nulls, row, number, *words) in enumerate(found):
                expect((nulls, number), (0, row + 1), "NULLs, and id")
                expect(struct.pack(f"={len(words)}Q", *words), struct.pack(f"={self.COUNT}f", *values[row]), f"the vector of row {row}")
                expect(abs(distance_of_key(key - (key >> 63 << 64)) - l1(values[row], points[i // 7])) < 1e-4, True, "the distance")
            expect(client.run(self.token, self.ROWS, (above, 0), entries=7, gather_max=7 * nearest - 1, **more)[0][1] < self.ROWS, True, "entries alone")
            expect(client.window.gathered, 0, "entries alone")
            found = client.run(self.token, self.ROWS, (above, 0), entries=self.ROWS, gather_max=self.ROWS * nearest, **{**more, "nearest": 1, "distances": [(distance, float_point(points[0]))]})
            rows = [row for row, value in enumerate(values) if value and row >= 100]
            expect(sorted(row for _, nulls, row, *_ in found if nulls == 0), rows, "all rows")
            expect({tuple(words) for _, nulls, *words in found if nulls != 0}, {(0,) * (2 + self.COUNT // 2)}, "records of none")
            # As many as there are; of rows that do not count there is none.
            found = client.run(self.token, self.ROWS, (above, 0), columns=(ID,), entries=self.ROWS + 1, distances=[(distance, float_point(points[0]))], nearest=1)
            rows = [row for row, value in enumerate(values) if value and row >= 100]
            expect(sorted(row for _, row in found if row != 2**64 - 1), rows, "all rows")
            expect(len(found), self.ROWS, "entries")

    def searches_that_contradict_themselves_are_errors(self, server):
        self._make(server)
        distance = of_column(FLOATS, "GQUERY_ELEMENTS_F32", "GQUERY_L2", self.COUNT, 4 * self.COUNT)
        point = float_point([0.5] * self.COUNT)
        good = {"program": ([op("MARK")], 0), "columns": (), "entries": 3, "distances": [(distance, point + point)], "nearest": 2}
        with Client(server) as client:
            for change in (
                {"nearest": 1}, {"nearest": 3}, {"nearest": 2**32 - 1}, {"entries": 0}, {"entries": 2**21}, {"entries": 2**64 - 1}, {"program": COUNT}, {"distances": []},
                {"program": BY_DISTANCE, "columns": (DISTANCE,)}, {"columns": (DISTANCE,)}, {"distances": [(distance, point + point), (distance, point)]},
                {"nearest": 4097, "distances": [(distance, point * 4097)]}, {"gather": (N["GQUERY_GATHER_ROW"] | 1,)}, {"gather": (N["GQUERY_GATHER_ROW"] | 2**31,)},
                {"nearest": 0, "entries": 0, "distances": [], "vectors": True},
            ):  # fmt: skip
                client.write(self.token, self.ROWS, **{**good, **change})
                expect_verb(client.ask(), "ERROR", "XX000")
            # More than the query may have of memory.
            client.write(self.token, self.ROWS, **{**good, "scratch": 4096})
            expect_verb(client.ask(), "NO_ROOM", "53200")
            expect(len(client.run(self.token, self.ROWS, **good)), 6, "entries")

    def distances_other_than_the_table_has_are_errors(self, server):
        self._make(server)
        good = of_column(FLOATS, "GQUERY_ELEMENTS_F32", "GQUERY_L2", self.COUNT, 4 * self.COUNT)
        point = float_point([0.5] * self.COUNT)

        def ask(sqlstate, point=point, change=None, columns=(DISTANCE,), **members):
            distance = Distance.from_buffer_copy(good)
            for name, value in members.items():
                setattr(distance, name, value)
            client.write(self.token, self.ROWS, BY_DISTANCE, columns=columns, entries=3, distances=[(distance, point)])
            if change:
                change(client.window)
            expect_verb(client.ask(), "ERROR", sqlstate)

        def with_span(at, size):
            return lambda w: setattr(w.distances[0], "query", Span(at, size))

        with Client(server) as client:
            expect(len(client.run(self.token, self.ROWS, BY_DISTANCE, columns=(DISTANCE,), entries=3, distances=[(good, point)])), 3, "entries")
            # What the query says is not so in the table.
            ask("55000", number=3)
            ask("55000", number=6)
            ask("55000", number=99)
            ask("55000", type=1022)
            ask("55000", elements=N["GQUERY_ELEMENTS_F16"], stride=2 * self.COUNT)
            ask("55000", count=self.COUNT - 1, stride=4 * self.COUNT - 4)
            ask("55000", count=self.COUNT + 2, stride=4 * self.COUNT + 8, point=float_point([0] * (self.COUNT + 2)))
            ask("55000", number=5, type=1560)
            # It contradicts itself.
            for members in (
                {"stride": 0}, {"stride": 4 * self.COUNT + 4}, {"stride": 2**32 - 1}, {"count": 0}, {"count": 2**31}, {"count": self.COUNT - 1}, {"table": 1},
                {"elements": N["GQUERY_ELEMENTS_BITS"]}, {"elements": 5}, {"elements": 2**32 - 1}, {"metric": N["GQUERY_HAMMING"]}, {"metric": 6}, {"metric": 2**32 - 1},
            ):  # fmt: skip
                ask("XX000", **members)
            # Nor is the query where it should be.
            for span in ((2**64 - 16, len(point)), (0, 2**64 - 1), (1 << 20, len(point)), ((1 << 20) - 16, len(point)), (0, 0), (0, len(point) - 16), (0, len(point) + 16)):
                ask("XX000", change=with_span(*span))
            ask("XX000", columns=((1, 0, "GQUERY_F64"),))
            ask("XX000", columns=((0, 0, "GQUERY_F32"),))
            for count in (0, 5, 2**32 - 1):
                ask("XX000", change=lambda w, count=count: setattr(w, "distance_count", count))
            expect(len(client.run(self.token, self.ROWS, BY_DISTANCE, columns=(DISTANCE,), entries=3, distances=[(good, point)])), 3, "entries")

    def windows_with_random_bytes_end_in_an_answer(self, server):
        """Anywhere from the number of distances to the entry after which a list is continued."""
        self._make(server)
        good = of_column(FLOATS, "GQUERY_ELEMENTS_F32", "GQUERY_L2", self.COUNT, 4 * self.COUNT), float_point([0.5] * self.COUNT)
        query = {"columns": (DISTANCE,), "entries": 3, "distances": [good, good]}
        answers = set()
        with Client(server) as client:
            for seed in range(300):
                drawn = random.Random(seed)
                client.write(self.token, self.ROWS, BY_DISTANCE, **query)
                at = drawn.randrange(Window.distance_count.offset, Window.record_count.offset - 8) // 4 * 4
                client.map[at : at + 4] = drawn.choice((drawn.randbytes(4), b"\0\0\0\0", b"\1\0\0\0", b"\xff\xff\xff\xff"))
                answer = client.ask()
                expect(answer.lost, 0, f"the executor goes on (seed {seed}): {answer.text}")
                answers.add(answer.verb)
            expect(answers >= {N["GQUERY_DONE"], N["GQUERY_ERROR"]}, True, "both answers")
            expect(len(client.run(self.token, self.ROWS, BY_DISTANCE, **query)), 3, "entries of the next query")

    def distances_beyond_the_scratch_memory_are_no_room(self, server):
        self._make(server)
        distances = [(of_column(FLOATS, "GQUERY_ELEMENTS_F32", "GQUERY_L2", self.COUNT, 4 * self.COUNT), float_point([0.5] * self.COUNT))]
        program = [*KEY, aggregate(0, "COUNT")], 1
        with Client(server) as client:
            size = block(SLICE * 8 + len(distances[0][1]))
            client.write(self.token, self.ROWS, program, columns=(DISTANCE,), distances=distances, scratch=size - 1)
            expect_verb(client.ask(), "NO_ROOM", "53200")
            wanted = [(0, self.ROWS - self.ROWS // 10)]
            expect(client.run(self.token, self.ROWS, program, columns=(DISTANCE,), distances=distances, scratch=size), wanted, "vectors that are not NULL")

    def column_that_was_added_later_has_no_distances(self, server):
        self._make(server)
        server.sql(f"ALTER FOREIGN TABLE ft ADD late bit({self.BIT_COUNT})")
        self.token = server.sql("SELECT gstore_export('ft')")
        distances = [(of_column((7, 1560), "GQUERY_ELEMENTS_BITS", "GQUERY_HAMMING", self.BIT_COUNT, 9), pad(b"\0" * 9))]
        with Client(server) as client:
            for code in ([op("LOAD", 0)], [op("LOAD_NULL", 0), op("NOT"), op("FILTER"), op("LOAD", 0)]):
                found = client.run(self.token, self.ROWS, ([*code, aggregate(0, "COUNT")], 1), columns=(DISTANCE,), distances=distances)
                expect(found, [(0, 0)], "distances that are not NULL")


def texts_of(client, records, before):
    """For each record its other words, and its texts, of which there are bytes."""
    found = []
    for record in records:
        texts, at = [], before
        for i in range(client.window.text_count):
            words = client.window.text_words[i]
            texts.append(struct.pack(f"={words - 1}Q", *record[at + 1 : at + words])[: record[at]].decode())
            expect(any(struct.pack(f"={words - 1}Q", *record[at + 1 : at + words])[record[at] :]), False, "bytes behind a text")
            at += words
        expect(at, len(record), "words of a record")
        found.append((record[:before], texts))
    return found


@group()
class Texts:
    """Groups by texts: column 0 is t, 1 is id."""

    COLUMNS = ((1, 25, "GQUERY_TEXT_BODIES", N["GQUERY_NUMBERED"]), ID)
    BY_TEXT = [op("LOAD", 0), op("GROUP", 1), aggregate(0, "COUNT_ROWS"), op("LOAD", 1), aggregate(1, "SUM_I64")], 3
    ROWS = 70000

    def _make(self, server, expression, rows=ROWS):
        server.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int, t text) SERVER gstore_fdw")
        server.sql(f"INSERT INTO ft SELECT i, {expression} FROM generate_series(1, {rows}) i")
        return server.sql("SELECT gstore_export('ft')")

    def _expect_groups(self, server, client, records, where="true"):
        found = {(texts[0] if words[0] == 0 else None): (words[2], words[3]) for words, texts in texts_of(client, records, 5)}
        rows = (line.split("|") for line in server.sql(f"SELECT coalesce(t, '(NULL)'), count(*), sum(id) FROM ft WHERE {where} GROUP BY t").splitlines())
        expect(found, {(None if t == "(NULL)" else t): (int(count), int(total)) for t, count, total in rows}, f"groups where {where}")
        expect(len(found), len(records), "groups")

    def groups_have_their_texts(self, server):
        few, many = "CASE WHEN i % 9 <> 0 THEN repeat('\u20ac', i % 80) || 'x' END", "'text ' || (i * 7919::bigint) % 50021"
        above = [op("LOAD", 1), op("CONSTANT", value=300), op("GT"), op("FILTER")]
        # With little memory in launches of few rows.
        for expression, scratches in ((few, (1 << 30, 1 << 20)), (many, (1 << 30,)), ("NULL", (1 << 20,)), ("''", (1 << 20,))):
            token = self._make(server, expression)
            with Client(server) as client:
                for scratch in scratches:
                    query = {"columns": self.COLUMNS, "texts": ((0, 0),), "scratch": scratch}
                    self._expect_groups(server, client, client.run(token, self.ROWS, self.BY_TEXT, **query))
                    self._expect_groups(server, client, client.run(token, self.ROWS, (above + self.BY_TEXT[0], 3), **query), "id > 300")
                dead = b"\xff" * 8000
                self._expect_groups(server, client, client.run(token, self.ROWS, self.BY_TEXT, dead=dead, **query), "id > 64000")

    def listed_groups_have_their_texts(self, server):
        token = self._make(server, "nullif('text ' || i % 1000, 'text 7')")
        first = [op("LOAD", 0), op("EMIT", 1)], 0
        with Client(server) as client:
            found = client.run(token, self.ROWS, self.BY_TEXT, columns=self.COLUMNS, entries=10, stages=((first, (2,)),), texts=((0, 0),))
            found = sorted((words[5], texts[0], words[2]) for words, texts in texts_of(client, found, 7))
        wanted = server.sql("SELECT sum(id), coalesce(t, ''), t IS NULL FROM ft GROUP BY t ORDER BY 1 LIMIT 10").splitlines()
        expect([f"{total}|{text}|{'t' if nulls else 'f'}" for total, text, nulls in found], wanted, "the first groups")

    def groups_are_sent_with_the_texts_that_are_wanted_of_them(self, server):
        token = self._make(server, "'text ' || i % 10")
        by_both = [op("LOAD", 1), op("CONSTANT", value=3), op("MODULO"), op("LOAD", 0), op("GROUP", 2), aggregate(0, "COUNT_ROWS")], 1
        with Client(server) as client:
            expect(len(client.run(token, self.ROWS, self.BY_TEXT, columns=self.COLUMNS)), 10, "groups without texts")
            expect(client.window.record_words, 5, "words of a record")
            found = client.run(token, self.ROWS, by_both, columns=self.COLUMNS, texts=((1, 0), (1, 0)))
            expect(sorted((words[1], *texts) for words, texts in texts_of(client, found, 4)), sorted((i, f"text {j}", f"text {j}") for i in range(3) for j in range(10)), "keys")
            # In the place of a number that is no row.
            client.write(token, self.ROWS, ([op("LOAD", 0), op("CONSTANT", value=self.ROWS), op("GROUP", 2)], 0), columns=self.COLUMNS, texts=((1, 0),))
            answer = client.ask()
            expect_verb(answer, "RAISED")
            expect(answer.error, N["GQUERY_E_TEXT"], "the error")

    def sizes_of_texts_are_not_taken_from_the_backend(self, server):
        """Which may write to them while the executor lays texts out by them."""
        token = self._make(server, "'text ' || i % 1000")
        by_text, stop = ([op("LOAD", 0), op("GROUP", 1), aggregate(0, "COUNT_ROWS")], 1), threading.Event()
        query = {"columns": self.COLUMNS, "texts": ((0, 0), (0, 0))}
        with Client(server) as client:
            expect(len(client.run(token, self.ROWS, by_text, **query)), 1000, "groups")
            pid = executor_pid(server)

            def write():
                while not stop.is_set():
                    client.window.text_words[1] = 2**31 - 1

            writer = threading.Thread(target=write)
            writer.start()
            try:
                for _ in range(30):
                    expect(len(client.run(token, self.ROWS, by_text, **query)), 1000, "groups")
            finally:
                stop.set()
                writer.join()
            expect(executor_pid(server), pid, "the executor")

    def _write_slow(self, client, token, rows):
        """A pattern that nearly is everywhere in each of the texts, which are not compressed: billions of comparisons a row."""
        piece = b"a" * 4000 + b"b"
        client.write(token, rows, ([op("TEXT", 0, "GQUERY_TEXT_LIKE", 1 << 32), op("FILTER"), aggregate(0, "COUNT_ROWS")], 1), columns=((1, 25, "GQUERY_TEXT_OFFSETS"),))
        words = [len(piece) << 32 | 1, *struct.unpack(f"<{(len(piece) + 7) // 8}Q", piece.ljust((len(piece) + 7) // 8 * 8, b"\0"))]
        client.window.program.value_count, client.window.program.values[: len(words)] = len(words), words

    def _write_lengths(self, client, token, rows):
        """The length in characters of each of the texts, 241 times. Once it is asked for first, as nobody sees the result of that."""
        length, columns = op("TEXT", 0, N["GQUERY_TEXT_CHARACTERS"] | N["GQUERY_TEXT_UTF8"]), ((1, 25, "GQUERY_TEXT_OFFSETS"),)
        expect(client.run(token, rows, ([length, aggregate(0, "SUM_I64")], 2), columns=columns)[0][1], rows * 450000, "characters")
        client.write(token, rows, ([length, *[length, op("ADD", 0, "GQUERY_ARITHMETIC_I64")] * 240, aggregate(0, "SUM_I64")], 2), columns=columns)

    def _make_long(self, server, text="repeat('a', 2000000)", rows=64):
        server.sql(f"DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int, t text) SERVER gstore_fdw OPTIONS (format 'arrow'); INSERT INTO ft SELECT i, {text} FROM generate_series(1, {rows}) i")
        return server.sql("SELECT gstore_export('ft')"), rows

    def programs_that_would_take_long_end_soon_after_their_backends(self, server):
        for write, text in ((self._write_slow, "repeat('a', 2000000)"), (self._write_lengths, "repeat('\u00e9', 450000)")):
            token, rows = self._make_long(server, text)
            with Client(server) as other:
                with Client(server) as client:
                    expect([connected.run(token, rows, COUNT, columns=(ID,)) for connected in (client, other)], [[(0, rows)]] * 2, "count(*)")
                    before = len(descriptors(pid := executor_pid(server)))
                    write(client, token, rows)
                    client.send("RUN")
                    time.sleep(1.5)  # it runs
                wait_until("the connection is closed", lambda: len(descriptors(pid)) == before - 2, limit_s=5)
                expect(other.run(token, rows, COUNT, columns=(ID,)), [(0, rows)], "count(*)")

    def patterns_that_would_take_for_ever_are_no_room_and_end_no_other_query(self, server):
        token, rows = self._make_long(server)
        with Client(server) as client, Client(server) as other:
            expect(other.run(token, rows, COUNT, columns=(ID,)), [(0, rows)], "count(*)")
            pid = executor_pid(server)
            self._write_slow(client, token, rows)
            answer = client.ask()
            expect_verb(answer, "NO_ROOM", "53000")
            expect(answer.error, N["GQUERY_E_LONG"], "the error")
            expect(executor_pid(server), pid, "the executor")
            expect(other.run(token, rows, COUNT, columns=(ID,)), [(0, rows)], "count(*)")

    def text_that_is_too_long_is_said(self, server):
        token = self._make(server, "repeat('x', 256 + (i = 60000)::int)")
        below = [op("LOAD", 1), op("CONSTANT", value=60000), op("LT"), op("FILTER"), *self.BY_TEXT[0]], 3
        with Client(server) as client:
            client.write(token, self.ROWS, self.BY_TEXT, columns=self.COLUMNS, texts=((0, 0),))
            answer = client.ask()
            expect_verb(answer, "RAISED")
            expect(answer.error, N["GQUERY_E_NUMBERED"], "the error")
            self._expect_groups(server, client, client.run(token, self.ROWS, below, columns=self.COLUMNS, texts=((0, 0),)), "id < 60000")

    def texts_that_contradict_the_program_are_errors(self, server):
        token = self._make(server, "'text ' || i % 10")
        good = {"program": self.BY_TEXT, "columns": self.COLUMNS, "texts": ((0, 0),)}
        plain = (1, 25, "GQUERY_TEXT_BODIES")
        with Client(server) as client:
            for change in (
                {"texts": ((1, 0),)}, {"texts": ((0, 1),)}, {"texts": ((0, 2),)}, {"texts": ((2**32 - 1, 2**32 - 1),)}, {"texts": ((0, 0),) * 9},
                {"columns": (plain, ID)}, {"columns": ((*plain, 3), ID)}, {"columns": (*self.COLUMNS, *[self.COLUMNS[0]] * 8)},
                {"program": COUNT}, {"program": ([op("MARK")], 0), "texts": ()}, {"program": ([op("LOAD_NULL", 0), op("GROUP", 1)], 0)},
            ):  # fmt: skip
                client.write(token, self.ROWS, **{**good, **change})
                expect_verb(client.ask(), "ERROR", "XX000")
            for column in ((1, 25, "GQUERY_TEXT_OFFSETS", 1), (1, 25, "GQUERY_TEXT_FIXED", 1), (0, 23, "GQUERY_TEXT_BODIES", 1), (7, 25, "GQUERY_TEXT_BODIES", 1)):
                client.write(token, self.ROWS, **{**good, "columns": (column, ID)})
                expect_verb(client.ask(), "ERROR", "55000")
            self._expect_groups(server, client, client.run(token, self.ROWS, **good))

    def texts_beyond_the_scratch_memory_are_no_room(self, server):
        token = self._make(server, "'text ' || i")
        query = {"columns": self.COLUMNS, "texts": ((0, 0),)}
        answers = []
        with Client(server) as client:
            for scratch in (1 << size for size in range(12, 28)):
                client.write(token, self.ROWS, self.BY_TEXT, scratch=scratch, **query)
                answer = client.ask()
                answers.append(answer.verb)
                if answer.verb == N["GQUERY_DONE"]:
                    self._expect_groups(server, client, client.finish(answer))
                else:
                    expect_verb(answer, "NO_ROOM", "53200")
        expect(answers, sorted(answers, reverse=True), "with more memory there is room")
        expect(set(answers), {N["GQUERY_NO_ROOM"], N["GQUERY_DONE"]}, "answers")

    def texts_with_equal_hashes_end_in_an_answer(self, server):
        """The hash of query/number.c: of 16 bytes, the second half makes up for what the first one has done to it."""

        def mix(h, v):
            h = (h ^ v) * 0xBF58476D1CE4E5B9 % 2**64
            return h ^ h >> 29

        number, texts = random.Random(5), set()
        while len(texts) < 1200:
            first = number.randbytes(8).translate(bytes(i % 127 + 1 for i in range(256)))
            text = first + (mix(16, int.from_bytes(first, "little")) ^ 0x2A51E3770B4D3C19).to_bytes(8, "little")
            if all(0 < byte < 128 for byte in text):
                texts.add(text.hex())
        texts = sorted(texts)
        query = {"columns": self.COLUMNS, "texts": ((0, 0),)}
        for count, verb in ((900, "DONE"), (1200, "NO_ROOM")):
            token = self._make(server, f"convert_from(decode(('{{{','.join(texts[:count])}}}'::text[])[i % {count} + 1], 'hex'), 'UTF8')", 5000)
            with Client(server) as client:
                client.write(token, 5000, self.BY_TEXT, **query)
                answer = client.ask()
                expect_verb(answer, verb)
                if verb == "DONE":
                    found = {texts[0].encode().hex(): words[2] for words, texts in texts_of(client, client.finish(answer), 5)}
                    expect(found, {text: 5000 // count + (0 < i <= 5000 % count) for i, text in enumerate(texts[:count])}, "groups")

    def table_without_rows_has_no_groups(self, server):
        with Client(server) as client:
            expect(client.run("", 0, self.BY_TEXT, columns=self.COLUMNS, texts=((0, 0),)), [], "groups")
            expect(client.window.record_words, 5 + client.window.text_words[0], "words of a record")


@group()
class Deleted:
    ROWS = 600000  # their bitmap of deleted rows is so large that the executor reads it where it is, on the device
    SUMS = "SELECT count(*), sum(id), count(*) FILTER (WHERE k < 10) FROM ft WHERE id > 5"

    def _expect_sums(self, server, what):
        there = "SET gstore_fdw.gpu_startup_cost = 0; SET gstore_fdw.gpu_instruction_cost = 0;"
        expect("Ran: on the GPU" in server.sql(f"{there} EXPLAIN (ANALYZE, COSTS off) {self.SUMS}"), True, f"it runs on the GPU {what}")
        expect(server.sql(f"{there} {self.SUMS}"), server.sql(f"SET gstore_fdw.gpu_queries = off; {self.SUMS}"), f"sums {what}")

    def rows_deleted_by_sql_are_left_out(self, server):
        make_table(server, "i, i % 100", self.ROWS)
        self._expect_sums(server, "of all rows")
        server.sql("DELETE FROM ft WHERE id % 7 = 0")
        self._expect_sums(server, "of rows that are left")
        expect(server.sql("SELECT count(*) FROM ft WHERE id > 0"), str(self.ROWS - self.ROWS // 7), "rows that are left")
        server.sql(f"DELETE FROM ft WHERE id > {self.ROWS - 5000} OR id < 100")
        server.sql("INSERT INTO ft SELECT -i, i FROM generate_series(1, 10000) i")
        self._expect_sums(server, "after more changes")
        self._expect_sums_inside(server)

    def _expect_sums_inside(self, server):
        """Of a transaction, which sees its own deletions."""
        there = "SET LOCAL gstore_fdw.gpu_startup_cost = 0; SET LOCAL gstore_fdw.gpu_instruction_cost = 0;"
        delete = "DELETE FROM ft WHERE id % 5 = 0;"
        found = server.sql(f"BEGIN; {there} {delete} {self.SUMS}; ROLLBACK")
        expect(found, server.sql(f"BEGIN; SET LOCAL gstore_fdw.gpu_queries = off; {delete} {self.SUMS}; ROLLBACK"), "sums inside")


if __name__ == "__main__":
    check_layouts()
    sys.exit(main())
