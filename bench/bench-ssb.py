#!/usr/bin/env python3
"""Measures the star schema benchmark's 13 queries on the GPU, beside a heap and DuckDB, in turns.

usage: bench-ssb.py [-s SCALE] [-k HEAP-ROWS] [-r REPETITIONS] [-o FILE] [BUILD-FOLDER]

A scale of 1 is 6 million rows of lineorder. Tables and selectivities are the benchmark's; what it has as texts (regions, nations, cities, brands) are numbers here. All else is as
in bench-queries.py: answers are compared, the heap has HEAP-ROWS of lineorder and all of the other tables.
"""
import argparse
import datetime
import importlib.util
import json
import math
import os
import statistics
import struct
import sys
import time
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parent.parent


def neighbour(name):
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), ROOT / f"bench/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


queries = neighbour("bench-queries")
arrow, bench_gstore, duckdb = queries.arrow, queries.bench_gstore, queries.duckdb

LINES, CUSTOMERS, SUPPLIERS, PARTS = 6_000_000, 30_000, 2_000, 200_000
# {} are lineorder, date, customer, supplier and part of a way; the last two columns: flights by SSB's numbers
DATED = "FROM {lineorder}, {date} WHERE lo_orderdate = d_datekey AND "
BRANDS = "SELECT sum(lo_revenue), d_year, p_brand FROM {lineorder}, {date}, {part}, {supplier} WHERE lo_orderdate = d_datekey AND lo_partkey = p_partkey AND lo_suppkey = s_suppkey AND {{}} GROUP BY d_year, p_brand ORDER BY d_year, p_brand"
PLACES = "SELECT c_{0}, s_{0}, d_year, sum(lo_revenue) AS revenue FROM {{customer}}, {{lineorder}}, {{supplier}}, {{date}} WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey AND {1} GROUP BY c_{0}, s_{0}, d_year ORDER BY d_year, revenue DESC, c_{0}, s_{0}"
PROFIT = "SELECT d_year, {0}, sum(lo_revenue - lo_supplycost) AS profit FROM {{date}}, {{customer}}, {{supplier}}, {{part}}, {{lineorder}} WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_partkey = p_partkey AND lo_orderdate = d_datekey AND {1} GROUP BY d_year, {0} ORDER BY d_year, {0}"
PRODUCT = "SELECT sum(lo_extendedprice::int8 * lo_discount) "
QUERIES = {
    "1.1": PRODUCT + DATED + "d_year = 1993 AND lo_discount BETWEEN 1 AND 3 AND lo_quantity < 25",
    "1.2": PRODUCT + DATED + "d_yearmonthnum = 199401 AND lo_discount BETWEEN 4 AND 6 AND lo_quantity BETWEEN 26 AND 35",
    "1.3": PRODUCT + DATED + "d_weeknuminyear = 6 AND d_year = 1994 AND lo_discount BETWEEN 5 AND 7 AND lo_quantity BETWEEN 26 AND 35",
    "2.1": BRANDS.replace("{{}}", "p_category = 12 AND s_region = 1"),
    "2.2": BRANDS.replace("{{}}", "p_brand BETWEEN 2221 AND 2228 AND s_region = 2"),
    "2.3": BRANDS.replace("{{}}", "p_brand = 2239 AND s_region = 3"),
    "3.1": PLACES.format("nation", "c_region = 2 AND s_region = 2 AND d_year BETWEEN 1992 AND 1997"),
    "3.2": PLACES.format("city", "c_nation = 9 AND s_nation = 9 AND d_year BETWEEN 1992 AND 1997"),
    "3.3": PLACES.format("city", "c_city IN (91, 95) AND s_city IN (91, 95) AND d_year BETWEEN 1992 AND 1997"),
    "3.4": PLACES.format("city", "c_city IN (91, 95) AND s_city IN (91, 95) AND d_yearmonthnum = 199712"),
    "4.1": PROFIT.format("c_nation", "c_region = 1 AND s_region = 1 AND p_mfgr IN (1, 2)"),
    "4.2": PROFIT.format("s_nation, p_category", "c_region = 1 AND s_region = 1 AND d_year IN (1997, 1998) AND p_mfgr IN (1, 2)"),
    "4.3": PROFIT.format("s_city, p_brand", "s_nation = 6 AND d_year IN (1997, 1998) AND p_category = 14"),
}


def make_date():
    days = [datetime.date(1992, 1, 1) + datetime.timedelta(n) for n in range(2556)]
    return {
        "d_datekey": [d.year * 10000 + d.month * 100 + d.day for d in days], "d_year": [d.year for d in days],
        "d_yearmonthnum": [d.year * 100 + d.month for d in days], "d_weeknuminyear": [(d.timetuple().tm_yday - 1) // 7 + 1 for d in days],
    }


def make_places(rng, key, prefix, rows):
    city = rng.integers(0, 250, rows)
    return {key: numpy.arange(1, rows + 1), f"{prefix}_city": city, f"{prefix}_nation": city // 10, f"{prefix}_region": city // 50}


def make_part(rng, rows):
    brand = rng.integers(0, 1000, rows)  # 5 manufacturers of 5 categories of 40 brands
    category = (brand // 200 + 1) * 10 + brand // 40 % 5 + 1
    return {"p_partkey": numpy.arange(1, rows + 1), "p_mfgr": brand // 200 + 1, "p_category": category, "p_brand": category * 100 + brand % 40 + 1}


def make_tables(scale):
    rng = numpy.random.default_rng(7)
    lines, parts = int(LINES * scale), int(PARTS * (1 + math.log2(max(scale, 1))))
    tables = {"date": make_date(), "customer": make_places(rng, "c_custkey", "c", max(int(CUSTOMERS * scale), 1)), "supplier": make_places(rng, "s_suppkey", "s", max(int(SUPPLIERS * scale), 1)), "part": make_part(rng, parts)}
    price, discount = rng.integers(90_000, 10_500_000, lines), rng.integers(0, 11, lines)
    tables["lineorder"] = {
        "lo_custkey": rng.integers(1, len(tables["customer"]["c_custkey"]) + 1, lines), "lo_partkey": rng.integers(1, parts + 1, lines),
        "lo_suppkey": rng.integers(1, len(tables["supplier"]["s_suppkey"]) + 1, lines), "lo_orderdate": numpy.array(tables["date"]["d_datekey"])[rng.integers(0, 2406, lines)],
        "lo_quantity": rng.integers(1, 51, lines), "lo_extendedprice": price, "lo_discount": discount, "lo_revenue": price * (100 - discount) // 100, "lo_supplycost": price * 6 // 10,
    }
    return {name: {column: numpy.asarray(values).astype(numpy.int32) for column, values in columns.items()} for name, columns in tables.items()}


def write_stream(path, columns):
    fields = [arrow.field(name, 2, arrow.table(arrow.inline("<i", 32), arrow.inline("<?", True))) for name in columns]
    rows = len(next(iter(columns.values())))
    with open(path, "wb") as out:
        out.write(arrow.message(1, arrow.table(None, arrow.references(fields)), 0))
        for first in range(0, rows, queries.BATCH):
            queries.write_batch(out, [column[first : first + queries.BATCH] for column in columns.values()])
        out.write(struct.pack("<Ii", 0xFFFFFFFF, 0))
    os.chmod(path, 0o644)


class Ways(queries.Ways):
    """In place of a table's name a query has braces for each; a way is a suffix."""

    def load(self):
        run = Path(self.server.folder) / "run"
        tables = make_tables(self.rows / LINES)
        self.server.psql("CREATE EXTENSION gstore_fdw;")
        if duckdb is not None:
            self.duck = duckdb.connect()
        for name, columns in tables.items():
            types = ", ".join(f"{column} int4" for column in columns)
            write_stream(run / "rows", columns)
            self.server.psql(f"""CREATE FOREIGN TABLE {name}_gstore ({types}) SERVER gstore_fdw OPTIONS (format 'arrow'); SELECT gstore_load_file('{name}_gstore', '{run}/rows'); ANALYZE {name}_gstore;
                CREATE UNLOGGED TABLE {name}_heap ({types}); INSERT INTO {name}_heap SELECT * FROM {name}_gstore LIMIT {self.heap_rows if name == 'lineorder' else 'ALL'}; VACUUM ANALYZE {name}_heap;""")
            os.unlink(run / "rows")
            if self.duck:
                self.duck.register("columns", columns)
                self.duck.execute(f"CREATE TABLE {name}_duck AS SELECT * FROM columns")
                self.duck.unregister("columns")

    def text(self, table, query):
        return query.format(**{name: f"{name}_{table}" for name in ("lineorder", "date", "customer", "supplier", "part")})

    def answer(self, table, query):
        return super().answer(table, self.text(table, query))

    def measure(self, table, query):
        return super().measure(table, self.text(table, query))

    def explain(self, query):
        return super().explain(self.text("gstore", query))


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def run(ways, repetitions):
    """ms of each query by each way, and plans."""
    tables, samples, plans = ["gstore", "heap"] + (["duck"] if ways.duck else []), {}, {}
    for name, query in QUERIES.items():
        wanted = ways.answer("gstore", query)
        if ways.duck and not queries.same(wanted, ways.answer("duck", query)):
            sys.exit(f"bench-ssb: {name}: {wanted[:3]}, and of DuckDB {ways.answer('duck', query)[:3]}")
        plans[name] = ways.explain(query)
        for turn in range(repetitions):
            for table in tables if turn % 2 == 0 else reversed(tables):
                samples.setdefault(name, {}).setdefault(table, []).append(ways.measure(table, query))
    return samples, plans


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-s", "--scale", type=float, default=1)
    parser.add_argument("-k", "--heap-rows", type=int, default=1_000_000)
    parser.add_argument("-r", "--repetitions", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("build", nargs="?", type=Path, default=ROOT / "build")
    arguments = parser.parse_args()
    rows = int(LINES * arguments.scale)
    bench_gstore.SETTINGS.extend([f"max_parallel_workers_per_gather={os.cpu_count()}", f"max_parallel_workers={os.cpu_count()}", f"max_worker_processes={os.cpu_count() + 8}"])
    server = bench_gstore.Server(arguments.build.resolve())
    ways = Ways(server, rows, min(arguments.heap_rows, rows))
    try:
        ways.load()
        samples, plans = run(ways, arguments.repetitions)
        _, devices = server.psql("SELECT device_name FROM gstore_fdw_keeper_info ORDER BY device;")
    finally:
        server.stop()
    scale, figures, medians = rows / ways.heap_rows, [], {}
    print(f"{rows} rows of lineorder, ms\n{'':6} {'GPU':>10} {'DuckDB':>10} {'heap':>10}  (of {ways.heap_rows} rows; in the ratio of all)")
    for name, tables_of in samples.items():
        of = {table: statistics.median(values) for table, values in tables_of.items()}
        print(f"{name:6} {of['gstore']:10.3f} {of.get('duck', float('nan')):10.3f} {of['heap']:10.3f} {of['heap'] * scale:10.1f}")
        for table, values in tables_of.items():
            medians.setdefault(table, []).append(of[table])
            figures.append({"name": name, "way": table, "unit": "ms", "rows": ways.heap_rows if table == "heap" else rows, "median": of[table], "samples": values})
    print("geometric means: " + ", ".join(f"{table} {geometric_mean(values):.3f}" for table, values in medians.items()))
    for name, lines in plans.items():
        print(f"\n{name}: {QUERIES[name]}\n  " + "\n  ".join(lines))
    if arguments.output:
        record = {
            "benchmark": "ssb", "command": f"bench/bench-ssb.py -s {arguments.scale} -k {ways.heap_rows} -r {arguments.repetitions}", "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "devices": devices, "duckdb": duckdb.__version__ if duckdb else None, "figures": figures, "plans": plans,
        }
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")
        print(f"recorded in {arguments.output}")


if __name__ == "__main__":
    main()
