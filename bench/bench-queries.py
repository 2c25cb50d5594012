#!/usr/bin/env python3
"""Measures queries that gstore_fdw computes on the GPU, beside the same rows in a heap table and in DuckDB, in turns.

usage: bench-queries.py [-n ROWS] [-k HEAP-ROWS] [-r REPETITIONS] [-o FILE] [BUILD-FOLDER]

Rows are five integers, a bigint and two float8, at random. Statements are prepared, and run by pgbench over the server's socket, so times are end to
end; DuckDB's, of its Python module where there is one, are within its process, on all cores. The heap has HEAP-ROWS, as loading all takes long, with parallel workers on all
cores; its times are also given as for ROWS. Answers of the GPU and of DuckDB are compared. Needs numpy; GVMEM_DRIVER and GVMEM_SOFTGPU say which GPU.
"""
import argparse
import importlib.util
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

try:
    import duckdb
except ImportError:
    duckdb = None

ROOT = Path(__file__).resolve().parent.parent


def neighbour(name):
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), ROOT / f"bench/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bench_gstore, arrow = neighbour("bench-gstore"), neighbour("bench-gstore-load")

BATCH = 10_000_000
SECONDS = 1  # of a run of pgbench, about
# name: (type, Arrow's type as flatbuffers have it, values)
COLUMNS = {
    "day": ("int4", numpy.int32, lambda rng, n: rng.integers(0, 2555, n)),
    "quantity": ("int4", numpy.int32, lambda rng, n: rng.integers(1, 51, n)),
    "few": ("int4", numpy.int32, lambda rng, n: rng.integers(0, 8, n)),
    "hundred": ("int4", numpy.int32, lambda rng, n: rng.integers(0, 100, n)),
    "many": ("int4", numpy.int32, lambda rng, n: rng.integers(0, 1_000_000, n)),
    "amount": ("int8", numpy.int64, lambda rng, n: rng.integers(-1_000_000, 1_000_000, n)),
    "price": ("float8", numpy.float64, lambda rng, n: rng.integers(90_000, 10_500_000, n) / 128),
    "discount": ("float8", numpy.float64, lambda rng, n: rng.integers(0, 11, n) / 128),
}
# name: (statement, bytes of the columns that it reads of a row)
QUERIES = {
    "one row": ("SELECT count(*) FROM @one WHERE quantity < 24", 4),
    "filter and count": ("SELECT count(*) FROM @ WHERE quantity < 24", 4),
    "three conditions, sum of a product": (
        "SELECT sum(price * discount) FROM @ WHERE day >= 730 AND day < 1095 AND quantity < 24 AND few <> 3", 28),
    "sum, avg, min and max of a bigint": ("SELECT sum(amount), avg(amount), min(amount), max(amount) FROM @", 8),
    "GROUP BY, 8 groups": ("SELECT few, count(*), sum(amount) FROM @ GROUP BY few", 12),
    "GROUP BY, 100 groups": ("SELECT hundred, count(*), sum(amount) FROM @ GROUP BY hundred", 12),
    "ORDER BY a float8 DESC LIMIT 10": ("SELECT price FROM @ ORDER BY price DESC LIMIT 10", 8),
    "rows by an integer, one of a million": ("SELECT day, quantity, amount FROM @ WHERE many = 4711", 4),
    "GROUP BY, a million groups, the 10 largest": ("SELECT many, count(*), sum(amount) AS s FROM @ GROUP BY many ORDER BY s DESC, many LIMIT 10", 12),
}


def stream(path, rows, seed):
    """The rows as an Arrow IPC stream, for gstore_load_file(), batch by batch; returns the columns."""
    rng = numpy.random.default_rng(seed)
    columns = {name: make(rng, rows).astype(kind) for name, (_, kind, make) in COLUMNS.items()}
    fields = []
    for name, (_, kind, _) in COLUMNS.items():
        size = numpy.dtype(kind).itemsize
        if numpy.issubdtype(kind, numpy.floating):
            fields.append(arrow.field(name, 3, arrow.table(arrow.inline("<h", 2))))
        else:
            fields.append(arrow.field(name, 2, arrow.table(arrow.inline("<i", 8 * size), arrow.inline("<?", True))))
    with open(path, "wb") as out:
        out.write(arrow.message(1, arrow.table(None, arrow.references(fields)), 0))
        for first in range(0, rows, BATCH):
            write_batch(out, [column[first : first + BATCH] for column in columns.values()])
        out.write(struct.pack("<Ii", 0xFFFFFFFF, 0))
    os.chmod(path, 0o644)
    return columns


def write_batch(out, columns):
    count, at, places = len(columns[0]), 0, []
    for column in columns:
        places += [(at, 0), (at, column.nbytes)]
        at += -(-column.nbytes // arrow.ALIGN) * arrow.ALIGN
    nodes = struct.pack(f"<{2 * len(columns)}q", *[count, 0] * len(columns))
    buffers = b"".join(struct.pack("<2q", *place) for place in places)
    batch = arrow.table(arrow.inline("<q", count), arrow.vector(nodes, len(columns)), arrow.vector(buffers, len(places)))
    out.write(arrow.message(3, batch, at))
    for column in columns:
        out.write(column.tobytes() + bytes(-column.nbytes % arrow.ALIGN))


class Ways:
    """The same statement as each way has it: tables, and how one is run."""

    def __init__(self, server, rows, heap_rows):
        self.server, self.rows, self.heap_rows, self.duck = server, rows, heap_rows, None

    def load(self):
        run = Path(self.server.folder) / "run"
        types = ", ".join(f"{name} {kind}" for name, (kind, _, _) in COLUMNS.items())
        columns = stream(run / "rows", self.rows, 1)
        self.server.psql(f"""CREATE EXTENSION gstore_fdw;
            CREATE FOREIGN TABLE gstore ({types}) SERVER gstore_fdw OPTIONS (format 'arrow');
            CREATE FOREIGN TABLE gstoreone ({types}) SERVER gstore_fdw OPTIONS (format 'arrow');
            SELECT gstore_load_file('gstore', '{run}/rows');
            INSERT INTO gstoreone SELECT * FROM gstore LIMIT 1; ANALYZE gstore, gstoreone;""")
        os.unlink(run / "rows")
        self.server.psql(f"""CREATE UNLOGGED TABLE heap ({types}); CREATE UNLOGGED TABLE heapone ({types});
            INSERT INTO heap SELECT * FROM gstore LIMIT {self.heap_rows}; INSERT INTO heapone SELECT * FROM heap LIMIT 1; VACUUM ANALYZE heap; VACUUM ANALYZE heapone;""")
        if duckdb is not None:
            self.duck = duckdb.connect()
            self.duck.execute("CREATE TABLE duck AS SELECT * FROM columns")
            self.duck.execute("CREATE TABLE duckone AS SELECT * FROM duck LIMIT 1")
        del columns

    def answer(self, table, query):
        """Of the statement, as comparable text."""
        text = query.replace("@", table)
        if table == "duck":
            return sorted("|".join(str(value) for value in row) for row in self.duck.execute(text).fetchall())
        return sorted(self.server.psql(text + ";")[1])

    def measure(self, table, query):
        """ms of one statement, a mean over about SECONDS."""
        text = query.replace("@", table)
        if table == "duck":
            start, times = time.perf_counter(), 0
            while times < 3 or time.perf_counter() - start < SECONDS:
                self.duck.execute(text).fetchall()
                times += 1
            return 1000 * (time.perf_counter() - start) / times
        script = Path(self.server.folder) / "run/query.pgbench"
        script.write_text(text + ";\n")
        command = ["pgbench", "-n", "-M", "prepared", "-c", "1", "-T", str(SECONDS), "-f", str(script)]
        done = subprocess.run(command, capture_output=True, text=True, env=self.server.environment)
        found = re.search(r"latency average = ([0-9.]+) ms", done.stdout)
        if done.returncode != 0 or not found:
            sys.exit(f"bench-queries: {text}: {done.stderr}")
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--rows", type=int, default=10_000_000)
    parser.add_argument("-k", "--heap-rows", type=int, default=1_000_000)
    parser.add_argument("-r", "--repetitions", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("build", nargs="?", type=Path, default=ROOT / "build")
    arguments = parser.parse_args()
    bench_gstore.SETTINGS.extend([f"max_parallel_workers_per_gather={os.cpu_count()}", f"max_parallel_workers={os.cpu_count()}", f"max_worker_processes={os.cpu_count() + 8}"])
    server, samples, plans, floor = bench_gstore.Server(arguments.build.resolve()), {}, {}, []
    ways = Ways(server, arguments.rows, min(arguments.heap_rows, arguments.rows))
    try:
        ways.load()
        tables = ["gstore", "heap"] + (["duck"] if ways.duck else [])
        for name, (query, _) in QUERIES.items():
            wanted = ways.answer("gstore", query)
            if ways.duck and not same(wanted, ways.answer("duck", query)):
                sys.exit(f"bench-queries: {name}: {wanted[:3]}, and of DuckDB {ways.answer('duck', query)[:3]}")
            plans[name] = ways.explain(query)
            for turn in range(arguments.repetitions):
                for table in tables if turn % 2 == 0 else reversed(tables):
                    samples.setdefault(name, {}).setdefault(table, []).append(ways.measure(table, query))
        floor = [ways.measure("heap", "SELECT 1") for _ in range(arguments.repetitions)]
        _, devices = server.psql("SELECT device_name FROM gstore_fdw_keeper_info ORDER BY device;")
    finally:
        server.stop()
    scale = arguments.rows / ways.heap_rows
    print(f"{arguments.rows} rows, ms; SELECT 1 takes {statistics.median(floor):.3f}\n{'':46} {'GPU':>10} {'DuckDB':>10} {'heap':>10}  (of {ways.heap_rows} rows; in the ratio of all)")
    figures = [{"name": "SELECT 1", "way": "heap", "unit": "ms", "median": statistics.median(floor), "samples": floor}]
    for name, tables_of in samples.items():
        medians = {table: statistics.median(values) for table, values in tables_of.items()}
        print(f"{name:46} {medians['gstore']:10.3f} {medians.get('duck', float('nan')):10.3f} {medians['heap']:10.3f} {medians['heap'] * (1 if name == 'one row' else scale):10.1f}")
        for table, values in tables_of.items():
            figures.append({"name": name, "way": table, "unit": "ms", "rows": ways.heap_rows if table == "heap" else arguments.rows, "bytes_a_row": QUERIES[name][1], "median": medians[table], "samples": values})
    for name, lines in plans.items():
        print(f"\n{name}: {QUERIES[name][0]}\n  " + "\n  ".join(lines))
    if arguments.output:
        record = {
            "benchmark": "queries", "command": f"bench/bench-queries.py -n {arguments.rows} -k {ways.heap_rows} -r {arguments.repetitions}",
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "host": {"machine": platform.machine(), "cpus": os.cpu_count(), "kernel": platform.release()},
            "devices": devices, "duckdb": duckdb.__version__ if duckdb else None, "figures": figures, "plans": plans,
        }
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")
        print(f"recorded in {arguments.output}")


if __name__ == "__main__":
    main()
