#!/usr/bin/env python3
"""Measures gstore_fdw beside an unlogged heap table, in one private server and in turns.

usage: bench-gstore.py [-n ROWS] [-r REPETITIONS] [-o FILE] [BUILD-FOLDER]

Rows are (int, float8, text). Prints medians in ms and, with -o, records every sample as JSON. Needs
PostgreSQL with its server headers (PG_CONFIG); GVMEM_DRIVER and GVMEM_SOFTGPU say which GPU.
"""
import argparse
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ["max_wal_size=8GB", "shared_buffers=4GB", "work_mem=256MB", "checkpoint_timeout=60min", "autovacuum=off", "jit=off"]
COLUMNS = "(id int, value float8, name text)"
TABLES = {"gstore": f"CREATE FOREIGN TABLE gstore {COLUMNS} SERVER gstore_fdw", "heap": f"CREATE UNLOGGED TABLE heap {COLUMNS}"}
ONE_ROW_TIMES = 200
COMMIT_SECONDS = 5
SMALL_ROWS = 1000


class Server:
    def __init__(self, build, tree=ROOT, settings=()):
        self.script = str(tree / "scripts/pg-server.sh")
        self.folder = tempfile.mkdtemp(prefix="bench-gstore-", dir="/tmp")
        os.chmod(self.folder, 0o755)
        self.environment = dict(os.environ, BUILD=str(build))
        subprocess.run([self.script, "start", self.folder, *SETTINGS, *settings], check=True, env=self.environment)
        out = subprocess.run([self.script, "env", self.folder], check=True, capture_output=True, text=True, env=self.environment).stdout
        words = shlex.split(subprocess.run(["sh", "-c", out + "\nprintf '%s\\n%s' \"$PGHOST\" \"$PATH\""], check=True, capture_output=True, text=True).stdout)
        self.environment.update(PGHOST=words[0], PGUSER="postgres", PGDATABASE="postgres", PATH=" ".join(words[1:]))

    def psql(self, text):
        """The statements' own times in ms, and what they printed."""
        done = subprocess.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1"], input="\\timing on\n" + text, capture_output=True, text=True, env=self.environment)
        if done.returncode != 0:
            sys.exit(f"bench-gstore: {done.stderr}")
        lines = done.stdout.splitlines()
        times = [float(m[1]) for m in (re.match(r"Time: ([0-9.]+) ms", line) for line in lines) if m]
        return times, [line for line in lines if not line.startswith("Time:")]

    def stop(self):
        subprocess.run([self.script, "stop", self.folder, "immediate"], check=False, env=self.environment)
        subprocess.run(["rm", "-rf", self.folder], check=False)


def measure(server, samples, name, repetitions, before, statement, count=1):
    """One statement on each table, in turns and in changing order; `before` outside the clock."""
    for turn in range(repetitions):
        for table in sorted(TABLES, reverse=turn % 2 == 1):
            setup = before.replace("@", table)
            if setup:
                server.psql(setup)
            times, _ = server.psql(statement.replace("@", table) * count)
            samples.setdefault(name, {}).setdefault(table, []).extend(times)


def measure_commits(server, samples, repetitions):
    """One-row commits by clients of pgbench, with a table each or one for all: ms a commit of all clients together."""
    makes = {"gstore": "CREATE FOREIGN TABLE {} (id int, value float8, name text) SERVER gstore_fdw", "heap": "CREATE UNLOGGED TABLE {} (id int, value float8, name text)"}
    for table, make in makes.items():
        server.psql("".join(f"{make.format(f'{table}_{i}')}; INSERT INTO {table}_{i} SELECT * FROM source LIMIT {SMALL_ROWS};" for i in range(4)))
        for tables in (1, 4):
            branches = "".join(f"\\elif :client_id % {tables} = {i}\nINSERT INTO {table}_{i} VALUES (0, 0, 'one');\n" for i in range(tables))
            Path(f"{server.folder}/run/{table}.{tables}.pgbench").write_text(branches.replace("\\elif", "\\if", 1) + "\\endif\n")
    cases = {(1, 1): "1 client of pgbench", (4, 4): "4 clients and tables", (4, 1): "4 clients, one table"}
    for turn in range(repetitions):
        for (clients, tables), name in cases.items():
            for table in sorted(TABLES, reverse=turn % 2 == 1):
                command = ["pgbench", "-n", "-c", str(clients), "-j", str(clients), "-T", str(COMMIT_SECONDS), "-f", f"{server.folder}/run/{table}.{tables}.pgbench"]
                done = subprocess.run(command, capture_output=True, text=True, env=server.environment)
                rate = re.search(r"^tps = ([0-9.]+)", done.stdout, re.M)
                if done.returncode != 0 or not rate:
                    sys.exit(f"bench-gstore: {done.stderr}")
                samples.setdefault(f"INSERT of one row and commit, {name}", {}).setdefault(table, []).append(1000 / float(rate[1]))
    server.psql("".join(f"DROP FOREIGN TABLE gstore_{i}; DROP TABLE heap_{i};" for i in range(4)))


def attach(build, server):
    """What another process needs from a token to its first kernel: figures of `gvmem-bench table`."""
    _, (token,) = server.psql("SELECT gstore_export('gstore');")
    done = subprocess.run([build / "bench/gvmem-bench", "table", "--json", token], stdout=subprocess.PIPE, text=True, env=server.environment)
    if done.returncode != 0:
        sys.exit("bench-gstore: gvmem-bench table failed")
    return json.loads(done.stdout)["figures"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--rows", type=int, default=10_000_000)
    parser.add_argument("-r", "--repetitions", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("build", nargs="?", type=Path, default=ROOT / "build")
    arguments = parser.parse_args()
    rows, repetitions, samples = arguments.rows, arguments.repetitions, {}
    server = Server(arguments.build.resolve())
    try:
        server.psql("CREATE EXTENSION gstore_fdw;" + ";".join(TABLES.values()) + ";")
        server.psql(f"CREATE UNLOGGED TABLE source AS SELECT i AS id, random() * 1000 AS value, 'row number ' || i AS name FROM generate_series(1, {rows}) i;")
        copied = f"{server.folder}/run/rows"
        server.psql(f"COPY source TO '{copied}';")
        server.psql("".join(f"TRUNCATE {t}; INSERT INTO {t} SELECT * FROM source LIMIT {SMALL_ROWS};" for t in TABLES))
        measure(server, samples, f"INSERT of one row and commit, table of {SMALL_ROWS}", 1, "", "INSERT INTO @ VALUES (0, 0, 'one');\n", ONE_ROW_TIMES)
        measure_commits(server, samples, repetitions)
        measure(server, samples, f"INSERT ... SELECT of {rows} rows", repetitions, "TRUNCATE @;", "INSERT INTO @ SELECT * FROM source;\n")
        measure(server, samples, f"COPY of {rows} rows, text", repetitions, "TRUNCATE @;", f"COPY @ FROM '{copied}';\n")
        os.unlink(copied)
        server.psql("VACUUM ANALYZE heap; ANALYZE gstore;")
        for workers in (0, 2):
            with_workers = f"SET max_parallel_workers_per_gather = {workers};"
            suffix = f", {workers} parallel workers" if workers else ""
            for name, query in {
                "SELECT of all columns": "SELECT count(id), sum(value), max(length(name)) FROM @;\n",
                "count(*) with a filter that few rows pass": "SELECT count(*) FROM @ WHERE value < 10;\n",
                "count(*) with a filter that half the rows pass": "SELECT count(*) FROM @ WHERE value < 500;\n",
            }.items():
                for turn in range(repetitions + 1):  # the first warms up
                    for table in sorted(TABLES, reverse=turn % 2 == 1):
                        times, _ = server.psql(with_workers + query.replace("@", table))
                        if turn > 0:
                            samples.setdefault(name + suffix, {}).setdefault(table, []).append(times[-1])
        measure(server, samples, f"INSERT of one row and commit, table of {rows}", 1, "", "INSERT INTO @ VALUES (0, 0, 'one');\n", ONE_ROW_TIMES)
        attached = attach(arguments.build.resolve(), server)
        measure(server, samples, "UPDATE of 1 % of the rows", 1, "", "UPDATE @ SET value = -value WHERE id % 100 = 7;\n")
        time.sleep(2)
        bytes_raw = int(server.psql("SELECT sum(4 + 8 + 4 + length(name)) FROM source;")[1][0])
        _, (raw_size,) = server.psql("SELECT gstore_fdw_rawsize('gstore');")
        _, (heap_size,) = server.psql("SELECT pg_relation_size('heap');")
        _, devices = server.psql("SELECT device_name FROM gstore_fdw_keeper_info ORDER BY device;")
    finally:
        server.stop()
    print(f"{'':58} {'gstore':>10} {'heap':>10} {'heap/gstore':>12}   ms, medians")
    figures = []
    for name, tables in samples.items():
        gstore, heap = (statistics.median(tables[t]) for t in ("gstore", "heap"))
        print(f"{name:58} {gstore:10.3f} {heap:10.3f} {heap / gstore:12.2f}")
        for table in tables:
            figures.append({"name": name, "table": table, "unit": "ms", "median": statistics.median(tables[table]), "samples": tables[table]})
    print(f"bytes a row: gstore {int(raw_size) / rows:.1f}, heap {int(heap_size) / rows:.1f}, values alone {bytes_raw / rows:.1f}")
    if arguments.output:
        record = {
            "benchmark": "gstore", "command": f"bench/bench-gstore.py -n {rows} -r {repetitions}", "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "host": {"machine": platform.machine(), "cpus": os.cpu_count(), "kernel": platform.release()},
            "devices": devices, "rows": rows, "rawsize_bytes": int(raw_size), "heap_bytes": int(heap_size), "value_bytes": bytes_raw, "figures": figures, "attach": attached,
        }
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")
        print(f"recorded in {arguments.output}")


if __name__ == "__main__":
    main()
