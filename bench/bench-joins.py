#!/usr/bin/env python3
"""Measures what gstore_fdw computes on the GPU where memory is short, and a join of equal keys.

usage: bench-joins.py [-n ROWS] [-r REPETITIONS] [-o FILE] [BUILD-FOLDER]

A table of ROWS rows that the device budget holds, or half or an eighth of it, the rest being in host memory; an inner table whose hash table has room, or is 1.2 times the
budget, used by one session and by eight at once; ROWS / 500 by ROWS / 10000 rows of one key, in the heap too where these are at most 10^8. Answers are checked. What the link
needs follows from the first two: the bytes beyond the budget at the rate of the statements of an eighth.
"""
import statistics
import sys
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent))
import sql_ways  # noqa: E402

SESSIONS, MB = 8, 1 << 20
SETTINGS = ["gstore_fdw.gpu_startup_cost=0", "gstore_fdw.gpu_instruction_cost=0.0000001"]


def make_rows(rows):
    return [numpy.arange(rows) * 7919 % rows, numpy.arange(rows) % 1000]


def make_equal(rows):
    return [numpy.full(rows, 5), numpy.arange(rows) % 1000]


class Case:
    """A server with a device budget, and statements in it."""

    def __init__(self, bench, budget_mb, tables):
        self.bench = bench
        self.server = sql_ways.start(bench.arguments.build, [*SETTINGS, f"gstore_fdw.device_memory={budget_mb}MB", f"gstore_fdw.gpu_query_memory={4 * budget_mb}MB"])
        self.ways = sql_ways.Ways(self.server, bench.arguments.rows)
        self.ways.duck = None
        self.server.psql("CREATE EXTENSION gstore_fdw;")
        for name, table in tables.items():
            self.ways.load_table(name, table)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop()

    def statement(self, name, query, wanted, clients=1, way="gstore"):
        found = self.ways.answer(way, query)
        if found != [wanted]:
            sys.exit(f"{name}: {found} instead of {wanted}")
        if way == "gstore" and not any("Ran: on the GPU" in line for line in self.ways.explain(query)):
            sys.exit(f"{name}: not on the GPU")
        samples = [self.ways.measure(way, query, clients) for _ in range(self.bench.arguments.repetitions)]
        self.bench.add(name, way, statistics.median(samples), samples)


class Bench:
    def __init__(self, arguments):
        self.arguments, self.figures = arguments, []

    def add(self, name, way, median, samples):
        self.figures.append({"name": name, "way": way, "unit": "ms", "rows": self.arguments.rows, "median": median, "samples": samples})
        print(f"{name:70} {way:8} {median:12.3f} ms", flush=True)

    def halves(self):
        rows = self.arguments.rows
        table = {"t": sql_ways.Table(rows, [("k", "int8", "i8"), ("v", "int8", "i8")], make_rows)}
        whole, query = rows * 16 // MB, "SELECT count(*), sum(v) FROM @t WHERE k >= 10"
        values = make_rows(rows)
        wanted = f"{rows - 10}|{int(values[1][values[0] >= 10].sum())}"
        for name, budget in (("a table that the budget holds", 2 * whole + 64), ("half of it", whole // 2), ("an eighth of it", whole // 8)):
            with Case(self, max(budget, 16), table) as case:
                case.statement(f"filter and sum, {name}", query, wanted)

    def inner(self):
        rows = self.arguments.rows
        tables = {name: sql_ways.Table(rows, [("k", "int8", "i8"), ("v", "int8", "i8")], make_rows) for name in ("o", "i")}
        query = "SELECT count(*), sum(i.v - o.v) FROM @o o JOIN @i i USING (k)"
        slots = 1 << (2 * rows - 1).bit_length()
        hashed = (slots * 16 + rows * 4) // MB
        for name, budget in (("with room for all", 8 * hashed + 64), ("1.2 times the budget", int(hashed / 1.2))):
            with Case(self, max(budget, 16), tables) as case:
                for clients in (1, SESSIONS):
                    case.statement(f"join, hash table {name}, sessions: {clients}", query, f"{rows}|0", clients)

    def equal(self):
        outer, inner = self.arguments.rows // 500, self.arguments.rows // 10_000
        kinds = [("k", "int4", "i4"), ("v", "int4", "i4")]
        pairs = outer * inner
        with Case(self, 1024, {"o": sql_ways.Table(outer, kinds, make_equal), "i": sql_ways.Table(inner, kinds, make_equal)}) as case:
            total = int(make_equal(inner)[1].sum()) * outer
            for way in ("gstore", "heap") if pairs <= 1e8 else ("gstore",):
                case.statement(f"{outer} x {inner} equal keys, counted", "SELECT count(*) FROM @o JOIN @i USING (k)", str(pairs), way=way)
                case.statement(f"{outer} x {inner} equal keys, summed", "SELECT sum(@i.v) FROM @o JOIN @i USING (k)", str(total), way=way)


def main():
    arguments = sql_ways.parse(__doc__, 10_000_000)
    bench = Bench(arguments)
    bench.halves()
    bench.inner()
    bench.equal()
    sql_ways.write_record("joins", arguments, arguments.rows, figures=bench.figures)


if __name__ == "__main__":
    main()
