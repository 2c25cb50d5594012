#!/usr/bin/env python3
"""Random statements of sqlsmith on tables in GPU memory: no internal error, and a server that stays up. TAP.

usage: smith.py [--seconds N] [--seed N]

sqlsmith reads what is in the catalogs: tables of all formats and many types, some below a partitioned table and
some that inherit from a heap, as sqlsmith changes no foreign table itself. It runs until the server and it have
used so many seconds of processor time. An error of class XX that comes from a source file of gstore_fdw is a
failure, and so is the end of a process of the server's. Skipped where there is no sqlsmith.
"""
import argparse
import collections
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
import private  # noqa: E402
from private import Server  # noqa: E402

OURS = {path.name for path in (private.PROJECT / "postgres").glob("*.[ch]")}
SET_UP = """
CREATE FOREIGN TABLE plain (id int, k int, f float8, t text, n numeric, d date, ts timestamptz, b bool) SERVER gstore_fdw;
CREATE FOREIGN TABLE arrow (id int, k int, f float4, t text, d date, b bool, s smallint, l bigint) SERVER gstore_fdw OPTIONS (format 'arrow');
CREATE FOREIGN TABLE odd (id int, u uuid, j jsonb, a int[], p point, i interval, by bytea, v varchar(20), c char(5), bt bit(9)) SERVER gstore_fdw;
CREATE FOREIGN TABLE empty (id int, t text) SERVER gstore_fdw;
CREATE TABLE parted (id int, k int, t text) PARTITION BY LIST (k);
CREATE FOREIGN TABLE parted_0 PARTITION OF parted FOR VALUES IN (0) SERVER gstore_fdw;
CREATE FOREIGN TABLE parted_1 PARTITION OF parted FOR VALUES IN (1) SERVER gstore_fdw;
CREATE TABLE parted_2 PARTITION OF parted DEFAULT;
CREATE TABLE parent (id int, k int, f float8, t text);
CREATE FOREIGN TABLE child () INHERITS (parent) SERVER gstore_fdw;
CREATE TABLE heap (id int, k int, t text);
CREATE VIEW seen AS SELECT p.id, p.t, a.k, a.d FROM plain p JOIN arrow a USING (id);
INSERT INTO plain SELECT i, i % 7, i / 3.0, 'row ' || i, i * 1.5, date '2000-01-01' + i, timestamptz '2000-01-01 UTC' + i * interval '1 h', i % 2 = 0
    FROM generate_series(1, 500) i;
INSERT INTO plain SELECT i FROM generate_series(1, 30) i;
DELETE FROM plain WHERE id % 11 = 0;
INSERT INTO arrow SELECT i, i % 5, i / 4.0, repeat('x', i % 40), date '1999-12-31' + i, i % 3 = 0, i % 1000, i * 1000000007::bigint FROM generate_series(1, 300) i;
INSERT INTO odd SELECT i, ('00000000-0000-4000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, jsonb_build_object('a', i), ARRAY[i, -i], point(i, 1),
    i * interval '1 day', decode(lpad(to_hex(i), 4, '0'), 'hex'), 'v' || i, 'c' || i % 9, i::bit(9) FROM generate_series(1, 200) i;
INSERT INTO parted SELECT i, i % 3, 'p' || i FROM generate_series(1, 90) i;
INSERT INTO parent SELECT i, i, i, 'parent' FROM generate_series(1, 20) i;
INSERT INTO child SELECT i, i, i, 'child' FROM generate_series(1, 60) i;
INSERT INTO heap SELECT i, i, 'h' FROM generate_series(1, 100) i;
ANALYZE;
"""
BATCH = 2000  # statements of one run of sqlsmith


def processor_s(pid):
    """Of a process and its children that have ended, and of those that live."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + sum(map(processor_s, children))


def errors_of(log):
    """(SQLSTATE, whether it is from a file of the extension, message and place): of the log's errors of class XX."""
    found = []
    for part in re.split(r"\n(?=\d{4}-)", log):
        match = re.search(r"(?:ERROR|FATAL|PANIC):  (XX\d\w\w): (.*)", part)
        if match:
            found.append([match[1], match[2], ""])
        place = re.search(r"LOCATION:  \w+, (\S+):\d+", part)
        if place and found and not found[-1][2]:
            found[-1][2] = place[1]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    reason = private.why_not() or (None if shutil.which("sqlsmith") else "there is no sqlsmith")
    if reason:
        print(f"1..0 # SKIP {reason}")
        return 0
    server = Server("smith", "log_error_verbosity=verbose", "log_min_error_statement=error", "log_min_messages=warning", "restart_after_crash=off")
    try:
        for statement in SET_UP.split(";\n"):
            if statement.strip():
                server.sql(statement)
        print(f"1..2\n# seed {options.seed}", flush=True)
        start = len(server.log())
        postmaster = int((server.folder / "data/postmaster.pid").read_text().split()[0])
        begun, own, runs, statements = processor_s(postmaster), 0.0, 0, 0
        dead = unsent = None
        while not dead and processor_s(postmaster) - begun + own < options.seconds:
            before = os.times()
            command = ["sqlsmith", "--exclude-catalog", f"--seed={options.seed + runs}", f"--max-queries={BATCH}", f"--target=host={server.environ['PGHOST']} user=postgres dbname=postgres"]
            done = subprocess.run(command, capture_output=True, text=True, env=server.environ, timeout=3600)
            after = os.times()
            own += after.children_user + after.children_system - before.children_user - before.children_system
            try:
                server.sql("SELECT count(*) FROM plain")
            except private.SqlError as error:
                dead = f"{error}; sqlsmith: {done.stderr[-500:]}"
            if done.returncode and not dead:
                unsent = f"sqlsmith has ended with {done.returncode}: {done.stderr[-500:]}"
                break
            runs, statements = runs + 1, statements + BATCH
            # Tables that have become large, or are without rows, say less.
            if not dead:
                for table in ("parted", "parent", "heap"):
                    server.sql(f"DELETE FROM {table} WHERE ctid IS NOT NULL AND random() < 0.5")
                server.sql("INSERT INTO parted SELECT i, i % 3, 'p' || i FROM generate_series(1, 30) i; INSERT INTO child SELECT i, i, i, 'child' FROM generate_series(1, 20) i")
        log = server.log()[start:]
        errors = errors_of(log)
        ours = [error for error in errors if Path(error[2]).name in OURS or "gstore" in error[2]]
        print(f"{'not ok' if ours or unsent else 'ok'} 1 - no internal error of {statements} statements")
        if unsent:
            print("# " + "\n# ".join(unsent.splitlines()))
        for state, message, place in ours[:20]:
            print(f"# {state} {place}: {message}")
        if ours:
            print("# " + "\n# ".join(log[max(log.find(ours[0][1]) - 500, 0):][:6000].splitlines()))
        ended = dead or re.search(r"was terminated by signal.*", log)
        print(f"{'not ok' if ended else 'ok'} 2 - the server stays up")
        if ended:
            print(f"# {dead or ended[0]}")
            at = log.find("was terminated by signal")
            print("# " + "\n# ".join(log[max(at - 3000, 0):at + 500].splitlines()))
        states = collections.Counter(re.findall(r"ERROR:  (\w{5}): ", log))
        print(f"# {runs} runs, {processor_s(postmaster) - begun + own:.0f} s of processor time; errors: " + ", ".join(f"{s} {n}" for s, n in states.most_common()))
        for message, n in collections.Counter(f"{e[0]} {e[2]} {e[1][:80]}" for e in errors).most_common(10):
            print(f"# {n} times: {message}")
        return bool(ours or unsent or ended)
    finally:
        server.end()


if __name__ == "__main__":
    sys.exit(main())
