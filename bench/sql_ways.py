"""Statements on the same rows in GPU memory, in a heap table and in DuckDB, in turns: what bench-queries.py and bench-ssb.py share.

Statements are prepared, and run by pgbench over the server's socket, so times are end to end; DuckDB's, of its Python module where there is one, are
within its process, on all cores. The heap has HEAP-ROWS of a large table, as loading all takes long, with parallel workers on all cores; its times are
also given as for all rows. Results of the GPU and of DuckDB are compared. Needs numpy; GVMEM_DRIVER and GVMEM_SOFTGPU say which GPU.

In a statement @name is a table: gstorename, heapname, duckname.
"""
import argparse
import json
import os
import platform
import re
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy
from neighbour import neighbour

try:
    import duckdb
except ImportError:
    duckdb = None

ROOT = Path(__file__).resolve().parent.parent


bench_gstore, arrow = neighbour("bench-gstore"), neighbour("bench-gstore-load")

BATCH = 10_000_000
SECONDS = 1  # of a run of pgbench, about; 0: each client has one statement


class Table:
    """Columns are (name, PostgreSQL's type, numpy's type); make(rows) returns their values. The heap has a part of a table that is large.

    A numpy type of (uint8, float16 or float32, n) is a column of one length. With `part` so many rows are made and loaded at a time, by make(rows, first).
    """

    def __init__(self, rows, columns, make, large=False, part=None):
        self.rows, self.columns, self.make, self.large, self.part = rows, columns, make, large, part

    def parts(self):
        parts = [(min(self.part, self.rows - first), first) for first in range(0, self.rows, self.part)] if self.part else [(self.rows,)]
        for part in parts:
            made = self.make(*part)
            yield {name: values.astype(numpy.dtype(kind).base, copy=False) for (name, _, kind), values in zip(self.columns, made)}

    def types(self, stored=False):
        """In SQL; stored: with the options of a foreign table's columns."""
        return ", ".join(f"{name} {kind}" + (f" OPTIONS (length '{numpy.dtype(of).shape[0]}')" if stored and kind.endswith("[]") else "") for name, kind, of in self.columns)


def arrow_field(name, kind):
    kind = numpy.dtype(kind)
    if kind.shape and kind.base == numpy.uint8:
        return arrow.field(name, 15, arrow.table(arrow.inline("<i", kind.shape[0])))
    if kind.shape:
        return arrow.field(name, 16, arrow.table(arrow.inline("<i", kind.shape[0])), [arrow_field("item", kind.base)])
    if numpy.issubdtype(kind, numpy.floating):
        return arrow.field(name, 3, arrow.table(arrow.inline("<h", {2: 0, 4: 1, 8: 2}[kind.itemsize])))
    return arrow.field(name, 2, arrow.table(arrow.inline("<i", 8 * kind.itemsize), arrow.inline("<?", True)))


def stream(path, table, columns):
    """The rows as an Arrow IPC stream, for gstore_load_file(), batch by batch."""
    with open(path, "wb") as out:
        out.write(arrow.message(1, arrow.table(None, arrow.references([arrow_field(name, kind) for name, _, kind in table.columns])), 0))
        for first in range(0, len(next(iter(columns.values()))), BATCH):
            write_batch(out, [column[first : first + BATCH] for column in columns.values()])
        out.write(struct.pack("<Ii", 0xFFFFFFFF, 0))
    os.chmod(path, 0o644)


def write_batch(out, columns):
    count, at, places, lengths = len(columns[0]), 0, [], []
    for column in columns:
        is_list = column.ndim > 1 and column.dtype != numpy.uint8
        lengths += [count, column.size] if is_list else [count]
        places += [(at, 0)] * (1 + is_list) + [(at, column.nbytes)]
        at += -(-column.nbytes // arrow.ALIGN) * arrow.ALIGN
    nodes = b"".join(struct.pack("<2q", length, 0) for length in lengths)
    buffers = b"".join(struct.pack("<2q", *place) for place in places)
    batch = arrow.table(arrow.inline("<q", count), arrow.vector(nodes, len(lengths)), arrow.vector(buffers, len(places)))
    out.write(arrow.message(3, batch, at))
    for column in columns:
        out.write(numpy.ascontiguousarray(column).data)
        out.write(bytes(-column.nbytes % arrow.ALIGN))


class Ways:
    """The same statement as each way has it: tables, and how one is run."""

    def __init__(self, server, heap_rows):
        self.server, self.heap_rows, self.duck = server, heap_rows, None

    def load(self, tables):
        self.server.psql("CREATE EXTENSION gstore_fdw;")
        if duckdb is not None:
            self.duck = duckdb.connect()
        for name, table in tables.items():
            self.load_table(name, table)

    def load_table(self, name, table):
        path = Path(self.server.folder) / "run/rows"
        self.server.psql(f"CREATE FOREIGN TABLE gstore{name} ({table.types(stored=True)}) SERVER gstore_fdw OPTIONS (format 'arrow');")
        for columns in table.parts():
            stream(path, table, columns)
            self.server.psql(f"SELECT gstore_load_file('gstore{name}', '{path}');")
            os.unlink(path)
            if self.duck is not None:
                self.duck.execute(f"CREATE TABLE duck{name} AS SELECT * FROM columns")
        limit = f"LIMIT {self.heap_rows}" if table.large else ""
        self.server.psql(f"""ANALYZE gstore{name};
            CREATE UNLOGGED TABLE heap{name} ({table.types()}); INSERT INTO heap{name} SELECT * FROM gstore{name} {limit}; VACUUM ANALYZE heap{name};""")

    def answer(self, table, query):
        """Of the statement, as comparable text."""
        text = query.replace("@", table)
        if table == "duck":
            return sorted("|".join(str(value) for value in row) for row in self.duck.execute(text).fetchall())
        return sorted(self.server.psql(text + ";")[1])

    def measure(self, table, query, clients=1):
        """ms of one statement, a mean over about SECONDS; of several clients at once the time that all need for one each."""
        text = query.replace("@", table)
        if table == "duck":
            start, times = time.perf_counter(), 0
            while times < 3 or time.perf_counter() - start < SECONDS:
                self.duck.execute(text).fetchall()
                times += 1
            return 1000 * (time.perf_counter() - start) / times
        script = Path(self.server.folder) / "run/query.pgbench"
        script.write_text(text + ";\n")
        length = ["-T", str(SECONDS)] if SECONDS else ["-t", "1"]
        command = ["pgbench", "-n", "-M", "prepared", "-c", str(clients), "-j", str(clients), *length, "-f", str(script)]
        done = subprocess.run(command, capture_output=True, text=True, env=self.server.environment)
        found = re.search(r"latency average = ([0-9.]+) ms", done.stdout)
        if done.returncode != 0 or not found:
            sys.exit(f"{text}: {done.stderr}")
        return float(found[1])

    def explain(self, query):
        _, lines = self.server.psql(f"EXPLAIN (ANALYZE, VERBOSE, COSTS OFF) {query.replace('@', 'gstore')};")
        return lines


def same(one, other):
    """Answers of two ways: numbers of floats may differ in their last digits."""
    if len(one) != len(other):
        return False
    for a, b in zip(one, other):
        for x, y in zip(a.split("|"), b.split("|")):
            if x != y and abs(float(x) - float(y)) > 1e-9 * abs(float(y)):
                return False
    return True


def compare_all(ways, queries, repetitions):
    """Samples of each query by each way, and its plan."""
    samples, plans = {}, {}
    ways_of = ["gstore", "heap"] + (["duck"] if ways.duck else [])
    for name, (query, _) in queries.items():
        wanted = ways.answer("gstore", query)
        if ways.duck and not same(wanted, ways.answer("duck", query)):
            sys.exit(f"{name}: {wanted[:3]}, and of DuckDB {ways.answer('duck', query)[:3]}")
        plans[name] = ways.explain(query)
        for turn in range(repetitions):
            for way in ways_of if turn % 2 == 0 else reversed(ways_of):
                samples.setdefault(name, {}).setdefault(way, []).append(ways.measure(way, query))
    return samples, plans


def mean(samples, way):
    """The geometric one of the queries' medians."""
    return statistics.geometric_mean(statistics.median(ways[way]) for ways in samples.values())


def report(rows, heap_rows, samples, floor, queries, plans):
    """Prints all; returns the record's figures."""
    scale = rows / heap_rows
    print(f"{rows} rows, ms; SELECT 1 takes {statistics.median(floor):.3f}\n{'':46} {'GPU':>10} {'DuckDB':>10} {'heap':>10}  (of {heap_rows} rows; in the ratio of all)")
    figures = [{"name": "SELECT 1", "way": "heap", "unit": "ms", "median": statistics.median(floor), "samples": floor}]
    for name, ways in samples.items():
        medians = {way: statistics.median(values) for way, values in ways.items()}
        deleted = medians.get("gstore, rows deleted")
        print(f"{name:46} {medians['gstore']:10.3f} {medians.get('duck', float('nan')):10.3f} {medians['heap']:10.3f} {medians['heap'] * (1 if name == 'one row' else scale):10.1f}" + (f"  {deleted:.3f} without rows that were deleted" if deleted else ""))
        for way, values in ways.items():
            figures.append({"name": name, "way": way, "unit": "ms", "rows": heap_rows if way == "heap" else rows, "bytes_a_row": queries[name][1], "median": medians[way], "samples": values})
    means = {way: mean(samples, way) for way in next(iter(samples.values()))}
    print(f"{'geometric mean':46} {means['gstore']:10.3f} {means.get('duck', float('nan')):10.3f} {means['heap']:10.3f} {means['heap'] * scale:10.1f}")
    for name, lines in plans.items():
        print(f"\n{name}: {queries[name][0]}\n  " + "\n  ".join(lines))
    return figures


def parse(description, rows, tables=None):
    """The benchmark's arguments; tables: those that it has, of which some can be chosen."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--rows", type=int, default=rows)
    parser.add_argument("-k", "--heap-rows", type=int, default=1_000_000)
    parser.add_argument("-r", "--repetitions", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("build", nargs="?", type=Path, default=ROOT / "build")
    if tables:
        parser.add_argument("-t", "--tables", type=lambda names: names.split(","), default=tables, help=",".join(tables))
    arguments = parser.parse_args()
    for name in arguments.tables if tables else ():
        if name not in tables:
            parser.error(f"-t {name}: it is none of {', '.join(tables)}")
    return arguments


def start(build, settings=()):
    """A server whose heap tables are read by all cores."""
    cores = os.cpu_count()
    return bench_gstore.Server(build.resolve(), settings=[f"max_parallel_workers_per_gather={cores}", f"max_parallel_workers={cores}", f"max_worker_processes={cores + 8}", *settings])


def write_record(benchmark, arguments, heap_rows, **more):
    if not arguments.output:
        return
    tables = f" -t {','.join(arguments.tables)}" if "tables" in arguments else ""
    record = {
        "benchmark": benchmark, "command": f"bench/bench-{benchmark}.py -n {arguments.rows} -k {heap_rows} -r {arguments.repetitions}{tables}",
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "host": {"machine": platform.machine(), "cpus": os.cpu_count(), "kernel": platform.release()}, **more,
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(record, indent=1) + "\n")
    print(f"recorded in {arguments.output}")


def measure_deleted(ways, queries, condition, samples, repetitions):
    """Adds samples of the GPU without the rows of a condition."""
    ways.server.psql(f"DELETE FROM gstore WHERE {condition};")
    for name, (query, _) in queries.items():
        samples[name]["gstore, rows deleted"] = [ways.measure("gstore", query) for _ in range(repetitions)]


def run(benchmark, arguments, tables, queries, deleted=None):
    """queries: name: (statement, bytes of the columns that it reads of a row of the large table). deleted: which rows for another turn of the GPU."""
    heap_rows = min(arguments.heap_rows, arguments.rows)
    server = start(arguments.build)
    ways = Ways(server, heap_rows)
    try:
        ways.load(tables)
        samples, plans = compare_all(ways, queries, arguments.repetitions)
        if deleted:
            measure_deleted(ways, queries, deleted, samples, arguments.repetitions)
        floor = [ways.measure("heap", "SELECT 1") for _ in range(arguments.repetitions)]
        _, devices = server.psql("SELECT device_name FROM gstore_fdw_keeper_info ORDER BY device;")
    finally:
        server.stop()
    figures = report(arguments.rows, heap_rows, samples, floor, queries, plans)
    write_record(benchmark, arguments, heap_rows, devices=devices, duckdb=duckdb.__version__ if duckdb else None, figures=figures, plans=plans)
