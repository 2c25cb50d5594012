#!/usr/bin/env python3
"""Measures one table in partitions over the GPUs of a server, beside one of its partitions by itself, which is on one GPU.

usage: bench-partitions.py [-n ROWS] [-p PARTITIONS] [-r REPETITIONS] [-o FILE] [--quick] [BUILD-FOLDER]

ROWS rows in PARTITIONS (as many as there are GPUs, if it is not said) tables, which are on the GPUs in turn: a count with a condition, a sum of an expression, a GROUP BY with one sum and one with seven
aggregates, the ten first rows, and the same of the first partition alone. Statements are prepared, and run by pgbench, so times are end to end. Answers are checked. What
partitions cost beside their rows is seen of two rows in each. --quick: each statement once. GVMEM_DRIVER and GVMEM_SOFTGPU say which GPUs.
"""
import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent))
import sql_ways  # noqa: E402

SETTINGS = ["enable_partitionwise_aggregate=on", "gstore_fdw.gpu_startup_cost=0", "gstore_fdw.gpu_instruction_cost=0.0000001"]
COLUMNS = [("part", "int4", numpy.int32), ("few", "int4", numpy.int32), ("quantity", "int4", numpy.int32), ("amount", "int8", numpy.int64)]
GROUPS = 100
# name: (statement, what a row adds to its answer)
QUERIES = {
    "count with a condition": ("SELECT count(*) FROM @ WHERE quantity < 24", lambda few, quantity, amount: [int((quantity < 24).sum())]),
    "sum of an expression": ("SELECT sum(amount * quantity + few) FROM @", lambda few, quantity, amount: [int((amount * quantity + few).sum())]),
    f"GROUP BY, {GROUPS} groups": ("SELECT few, count(*), sum(amount) FROM @ GROUP BY few ORDER BY few", None),
    f"report: seven aggregates in {GROUPS} groups": (
        "SELECT few, count(*), sum(amount), sum(amount * quantity), min(amount), max(amount), sum(quantity * quantity), count(*) FILTER (WHERE quantity < 24) FROM @ GROUP BY few ORDER BY few",
        None,
    ),
    "ORDER BY LIMIT 10": ("SELECT amount FROM @ ORDER BY amount DESC LIMIT 10", None),
}


def make(part, rows, first):
    rng = numpy.random.default_rng([part, first])
    return [numpy.full(rows, part), rng.integers(0, GROUPS, rows), rng.integers(1, 51, rows), rng.integers(-1_000_000_000, 1_000_000_000, rows)]


class Expected:
    """The statements' answers, of all rows that were added."""

    def __init__(self):
        self.sums, self.first = {}, numpy.empty(0, numpy.int64)
        self.groups = numpy.zeros((7, GROUPS), numpy.int64)  # as the report has them
        self.groups[3], self.groups[4] = numpy.iinfo(numpy.int64).max, numpy.iinfo(numpy.int64).min

    def add(self, columns):
        few, quantity, amount = (columns[name].astype(numpy.int64) for name in ("few", "quantity", "amount"))
        for name, (_, found) in QUERIES.items():
            if found is not None:
                self.sums[name] = self.sums.get(name, 0) + found(few, quantity, amount)[0]
        order = numpy.argsort(few.astype(numpy.int16), kind="stable")
        present, starts = numpy.unique(few[order], return_index=True)
        for i, values in enumerate((numpy.ones_like(few), amount, amount * quantity, amount, amount, quantity * quantity, quantity < 24)):
            merge = {3: numpy.minimum, 4: numpy.maximum}.get(i, numpy.add)
            self.groups[i, present] = merge(self.groups[i, present], merge.reduceat(values[order].astype(numpy.int64), starts))
        self.first = numpy.sort(numpy.concatenate([self.first, numpy.sort(amount)[-10:]]))[-10:]

    def answer(self, name):
        if name in self.sums:
            return [str(self.sums[name])]
        if name.startswith("GROUP"):
            return ["|".join(map(str, (i, *self.groups[:2, i]))) for i in range(GROUPS) if self.groups[0, i]]
        if name.startswith("report"):
            return ["|".join(map(str, (i, *self.groups[:, i]))) for i in range(GROUPS) if self.groups[0, i]]
        return [str(amount) for amount in self.first[::-1]]


class Bench:
    def __init__(self, arguments):
        self.arguments, self.figures, self.plans = arguments, [], {}
        self.server = sql_ways.start(arguments.build, SETTINGS)
        self.ways = sql_ways.Ways(self.server, 0)

    def find_devices(self):
        self.server.psql("CREATE EXTENSION gstore_fdw;")
        self.devices = []
        while not self.devices:  # their names are not known before the keeper has opened them all
            _, self.devices = self.server.psql("SELECT device_name FROM gstore_fdw_keeper_info WHERE (SELECT bool_and(ready) FROM gstore_fdw_keeper_info) ORDER BY device;")
            time.sleep(0.05)
        self.partitions = self.arguments.partitions or len(self.devices)

    def load(self, name, rows):
        """Expected answers of all partitions, and of the first one."""
        whole, one = Expected(), Expected()
        columns = ", ".join(f"{column} {kind}" for column, kind, _ in COLUMNS)
        self.server.psql(f"CREATE TABLE {name} ({columns}) PARTITION BY LIST (part);")
        path = Path(self.server.folder) / "run/rows"
        for part in range(self.partitions):
            table = sql_ways.Table(max(rows // self.partitions, 1), COLUMNS, lambda count, first=0, part=part: make(part, count, first), part=sql_ways.BATCH)
            self.server.psql(f"CREATE FOREIGN TABLE {name}_{part} ({columns}) SERVER gstore_fdw OPTIONS (format 'arrow', pinning '{part % len(self.devices)}');")
            for columns_of in table.parts():
                sql_ways.stream(path, table, columns_of)
                self.server.psql(f"SELECT gstore_load_file('{name}_{part}', '{path}');")
                os.unlink(path)
                for expected in (whole, one) if part == 0 else (whole,):
                    expected.add(columns_of)
            self.server.psql(f"ALTER TABLE {name} ATTACH PARTITION {name}_{part} FOR VALUES IN ({part}); ANALYZE {name}_{part};")
        return whole, one

    def check(self, table, name, expected, parts):
        query = QUERIES[name][0].replace("@", table)
        _, found = self.server.psql(query + ";")
        if found != expected.answer(name):
            sys.exit(f"{query}: {found[:3]} instead of {expected.answer(name)[:3]}")
        _, plan = self.server.psql(f"EXPLAIN (ANALYZE, VERBOSE, COSTS OFF) {query};")
        self.plans[query] = plan
        if sum("Ran: on the GPU" in line for line in plan) != parts:
            sys.exit(f"{query}: not on the GPU: " + "\n".join(plan))
        if parts > 1 and not any("Async Foreign Scan" in line or "Merge Append" in line for line in plan):
            sys.exit(f"{query}: one partition after the other: " + "\n".join(plan))

    def measure(self, table, name):
        return self.ways.measure(table, QUERIES[name][0])

    def compare(self, table, rows, what=""):
        whole, one = self.load(table, rows)
        each = max(rows // self.partitions, 1)
        for name in QUERIES:
            samples = {"all": [], "one": []}
            self.check(table, name, whole, self.partitions)
            self.check(f"{table}_0", name, one, 1)
            for _ in range(self.arguments.repetitions):
                samples["all"].append(self.measure(table, name))
                samples["one"].append(self.measure(f"{table}_0", name))
            self.report(name + what, {"all": each * self.partitions, "one": each}, samples)

    def report(self, name, rows, samples):
        medians = {way: statistics.median(times) for way, times in samples.items()}
        rates = {way: rows[way] / medians[way] * 1000 for way in samples}
        print(f"{name:44} {rows['all']:12} {medians['all']:10.3f} {medians['one']:10.3f} {rates['all'] / 1e9:12.3f} {rates['one'] / 1e9:12.3f} {rates['all'] / rates['one']:8.2f}", flush=True)
        for way, times in samples.items():
            partitions = self.partitions if way == "all" else 1
            self.figures.append({"name": name, "way": way, "partitions": partitions, "unit": "ms", "rows": rows[way], "rows_a_second": rates[way], "median": medians[way], "samples": times})

    def run(self):
        self.find_devices()
        print(f"{self.partitions} partitions on {len(self.devices)} GPUs\n{'':44} {'rows':>12} {'all, ms':>10} {'one, ms':>10} {'all, Grow/s':>12} {'one, Grow/s':>12} {'ratio':>8}")
        self.compare("t", self.arguments.rows)
        self.compare("small", 2 * self.partitions, ", two rows in each")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--rows", type=int, default=10_000_000)
    parser.add_argument("-p", "--partitions", type=int, default=0)
    parser.add_argument("-r", "--repetitions", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("build", nargs="?", type=Path, default=sql_ways.ROOT / "build")
    return parser.parse_args()


def main():
    arguments = parse()
    if arguments.quick:
        sql_ways.SECONDS = 0
    bench = Bench(arguments)
    try:
        bench.run()
    finally:
        bench.server.stop()
    arguments.partitions = bench.partitions
    sql_ways.write_record("partitions", arguments, 0, devices=bench.devices, partitions=bench.partitions, figures=bench.figures, plans=bench.plans)


if __name__ == "__main__":
    main()
