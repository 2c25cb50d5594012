#!/usr/bin/env python3
"""Measures gstore_fdw of this tree beside that of another one: two private servers on one GPU, in turns.

usage: bench-gstore-pair.py [-n ROWS] [-r REPETITIONS] [-o FILE] OTHER-TREE

Each tree must have a release build in its build-release (bench.sh makes it). For changes that are to cost
nothing: what one server shows alone differs more between two machines than between two versions.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path

from neighbour import neighbour

ROOT = Path(__file__).resolve().parent.parent
bench_gstore = neighbour("bench-gstore")

WRITES = {"INSERT ... SELECT": "INSERT INTO gstore SELECT * FROM source;\n", "COPY": "COPY gstore FROM '{file}';\n"}
READS = {
    "SELECT of all columns": "SELECT count(id), sum(value), max(length(name)) FROM gstore;\n",
    "count(*) with a filter that few rows pass": "SELECT count(*) FROM gstore WHERE value < 10;\n",
    "count(*) with a filter that half the rows pass": "SELECT count(*) FROM gstore WHERE value < 500;\n",
}
READS_A_TURN = 5
COMMITS = 200


def version_of(tree):
    done = subprocess.run(["git", "-C", tree, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 and (tree / ".git").exists() else tree.name


def prepare(server, rows):
    server.psql("CREATE EXTENSION gstore_fdw; SET max_parallel_workers_per_gather = 0;" + bench_gstore.TABLES["gstore"] + ";")
    server.psql(f"CREATE UNLOGGED TABLE source AS SELECT i AS id, random() * 1000 AS value, 'row number ' || i AS name FROM generate_series(1, {rows}) i;")
    server.psql(f"COPY source TO '{server.folder}/run/rows'; CHECKPOINT;")


def measure(server, figures, name, text, keep=None):
    times, _ = server.psql("SET max_parallel_workers_per_gather = 0;\n" + text)
    figures.setdefault(name, []).extend(times[1:][-(keep or 1):])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--rows", type=int, default=5_000_000)
    parser.add_argument("-r", "--repetitions", type=int, default=8)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("other", type=Path)
    arguments = parser.parse_args()
    trees = {"this": ROOT, "other": arguments.other.resolve()}
    figures = {which: {} for which in trees}
    servers = {}
    try:
        for which, tree in trees.items():
            servers[which] = bench_gstore.Server(tree / "build-release", tree)
            prepare(servers[which], arguments.rows)
        for turn in range(arguments.repetitions + 1):  # the first warms up
            for which in sorted(servers, reverse=turn % 2 == 1):
                server = servers[which]
                into = figures[which] if turn > 0 else {}
                for name, text in WRITES.items():
                    server.psql("TRUNCATE gstore;")
                    measure(server, into, name, text.format(file=f"{server.folder}/run/rows"))
                for name, text in READS.items():
                    measure(server, into, name, text * (READS_A_TURN + 1), READS_A_TURN)
                measure(server, into, "INSERT of one row and commit", "INSERT INTO gstore VALUES (0, 0, 'one');\n" * COMMITS, COMMITS)
        _, devices = servers["this"].psql("SELECT device_name FROM gstore_fdw_keeper_info ORDER BY device;")
    finally:
        for server in servers.values():
            server.stop()
    print(f"{'':48} {'this':>10} {'other':>10} {'this/other':>11}   ms, medians")
    out = []
    for name in figures["this"]:
        this, other = (statistics.median(figures[which][name]) for which in ("this", "other"))
        print(f"{name:48} {this:10.3f} {other:10.3f} {this / other:11.2f}")
        out += [{"name": name, "tree": which, "unit": "ms", "median": statistics.median(figures[which][name]), "samples": figures[which][name]} for which in trees]
    if arguments.output:
        record = {
            "benchmark": "gstore-pair", "command": f"bench/bench-gstore-pair.py -n {arguments.rows} -r {arguments.repetitions} {arguments.other.name}",
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "host": {"machine": platform.machine(), "cpus": os.cpu_count(), "kernel": platform.release()},
            "devices": devices, "rows": arguments.rows, "versions": {which: version_of(tree) for which, tree in trees.items()}, "figures": out,
        }
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")
        print(f"recorded in {arguments.output}")


if __name__ == "__main__":
    main()
