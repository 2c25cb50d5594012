#!/usr/bin/env python3
"""queries.py, or queries_shapes.py, with many seeds at once, and a record of what they said.

usage: queries_many.py [--test queries|queries_shapes] [--seconds N] [--processes N] [--queries N] [--first-seed N] [--drivers LIST] [--record FILE]

New ones start for so many seconds, so many at a time, of the drivers in turns; each has a server and a seed of its own. The record has the
seeds of each driver, the queries that were compared, and what failed. Exit status 1: something did, or nothing ran.
"""
import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

DONE = re.compile(r"^# (\d+) queries, ([\d.]+) % on the GPU$", re.MULTILINE)


class Driver:
    """What the runs with one driver said."""

    def __init__(self, name, test):
        self.name, self.test, self.seeds, self.queries, self.on_gpu, self.failed = name, test, [], 0, 0.0, []
        self.lock = threading.Lock()

    def run(self, seed, queries):
        environment = {**os.environ, "GVMEM_DRIVER": self.name}  # a server names its own software GPU
        done = subprocess.run([sys.executable, str(Path(__file__).with_name(f"{self.test}.py")), "--seed", str(seed), "--queries", str(queries)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, check=False)
        found = DONE.search(done.stdout)
        with self.lock:
            self.seeds.append(seed)
            if found:
                self.queries += int(found[1])
                self.on_gpu += int(found[1]) * float(found[2]) / 100
            if done.returncode or not found:
                self.failed.append({"seed": seed, "said": done.stdout[-4000:]})
                print(f"{self.name}, seed {seed}:\n{done.stdout}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test", choices=("queries", "queries_shapes"), default="queries")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument("--queries", type=int, default=2000, help="of each seed")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--drivers", default="soft", help="soft, cuda, or both with a comma between them")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    drivers = [Driver(name, options.test) for name in options.drivers.split(",")]
    seeds, end, started = itertools.count(options.first_seed), time.monotonic() + options.seconds, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    def work(driver):
        while time.monotonic() < end:
            driver.run(next(seeds), options.queries)

    threads = [threading.Thread(target=work, args=(drivers[i % len(drivers)],)) for i in range(options.processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record = {"test": f"{options.test}: random ones beside a heap table", "command": " ".join(sys.argv), "date": started, "cores": os.cpu_count(),
              "drivers": [{"driver": d.name, "seeds": sorted(d.seeds), "queries_each": options.queries, "queries": d.queries,
                           "on_gpu": round(d.on_gpu / max(d.queries, 1), 3), "failed": d.failed} for d in drivers]}
    if options.record:
        options.record.write_text(json.dumps(record, indent=1) + "\n")
    for d in drivers:
        print(f"{d.name}: {d.queries} queries of {len(d.seeds)} seeds, {100 * d.on_gpu / max(d.queries, 1):.1f} % on the GPU, {len(d.failed)} seeds failed")
    return any(d.failed or not d.queries for d in drivers)


if __name__ == "__main__":
    sys.exit(main())
