#!/usr/bin/env python3
"""Measures what a function in the language plcuda costs: compiling, first calls, each further call, a scan of a table, sets.

usage: bench-plcuda.py [-n ROWS] [-c CALLS] [-r REPETITIONS] [-o FILE]

A private server of the build folder that BUILD names (default build), on the GPU if GVMEM_DRIVER=cuda, else on the software
GPU. Times are measured in the server, around EXECUTE in a function. A repetition is a new session; a sample is the median of CALLS
calls, or of 5 scans, and else a single statement. Compared with functions in plpgsql, and with the same scan in SQL on a heap
table. On a GPU: the device memory of a worker, too. Prints medians and, with -o, records every sample as JSON.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/postgres"))
import private  # noqa: E402

ADD = "\n#plcuda_begin\nretval->value = arg1.value + arg2.value;\nretval->isnull = 0;\n{}#plcuda_end\n"
SUM = """
#plcuda_begin
#plcuda_num_threads 262144
uint64_t sum = 0;
PLCUDA_FOR_ROWS (arg1.value, row)
    sum += (uint64_t)plcuda_get_int4(arg1.value, 1, row).value;
gvm_atomic_add_u64((uint64_t *)&retval->value, sum);
if (gvm_thread_global() == 0)
    retval->isnull = 0;
#plcuda_end
"""
ROWS = """
#plcuda_begin
#plcuda_num_threads 262144
PLCUDA_FOR_ROWS (arg1.value, row) {
    plcuda_row *r = plcuda_append(plcuda);

    if (r == 0)
        return;
    r->a = plcuda_get_int4(arg1.value, 1, row);
    r->b = plcuda_get_int4(arg1.value, 2, row);
}
#plcuda_end
"""
TEXTS = """
#plcuda_begin
#plcuda_num_threads 262144
PLCUDA_FOR_ROWS (arg1.value, row) {
    plcuda_row *r = plcuda_append(plcuda);
    char *text = plcuda_append_bytes(plcuda, 8);

    if (r == 0 || text == 0)
        return;
    for (int i = 0; i < 8; i++)
        text[i] = (char)('0' + (row >> 4 * i & 7));
    r->value = text;
    r->length = 8;
    r->isnull = 0;
}
#plcuda_end
"""
# Loops in the server, so that no client is measured.
TIMED = """
CREATE FUNCTION timed(statement text, times int) RETURNS float8 LANGUAGE plpgsql AS $f$
DECLARE start timestamptz; all_s float8[];
BEGIN
    FOR i IN 1 .. times LOOP
        start := clock_timestamp();
        EXECUTE statement;
        all_s := all_s || extract(epoch FROM clock_timestamp() - start)::float8;
    END LOOP;
    RETURN percentile_cont(0.5) WITHIN GROUP (ORDER BY s) FROM unnest(all_s) s;
END $f$
"""


def ms(session, statement, times=1):
    quoted = statement.replace("'", "''")
    return 1000 * float(session.sql(f"SELECT timed('{quoted}', {times})"))


def create(name, body):
    return f"CREATE OR REPLACE FUNCTION {name}(int, int) RETURNS int LANGUAGE plcuda AS $p${body}$p$"


def prepare(server, rows):
    server.sql("CREATE EXTENSION plcuda")
    server.sql(TIMED)
    server.sql("CREATE FUNCTION plain_add(int, int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN $1 + $2; END'")
    server.sql("CREATE FOREIGN TABLE g (a int, b int) SERVER gstore_fdw; CREATE UNLOGGED TABLE h (a int, b int)")
    server.sql(f"INSERT INTO h SELECT i, i FROM generate_series(1, {rows}) i; INSERT INTO g SELECT * FROM h")
    server.sql("VACUUM ANALYZE h")
    server.sql(f"CREATE FUNCTION total(reggstore) RETURNS int8 LANGUAGE plcuda AS $p${SUM}$p$")
    server.sql(f"CREATE FUNCTION listed(reggstore) RETURNS TABLE (a int, b int) LANGUAGE plcuda AS $p${ROWS}$p$")
    server.sql(f"CREATE FUNCTION texts(reggstore) RETURNS SETOF text LANGUAGE plcuda AS $p${TEXTS}$p$")
    server.sql("CREATE FUNCTION plain_listed() RETURNS TABLE (a int, b int) LANGUAGE plpgsql AS 'BEGIN RETURN QUERY SELECT h.a, h.b FROM h; END'")
    server.sql("CREATE FUNCTION plain_texts() RETURNS SETOF text LANGUAGE plpgsql AS $f$BEGIN RETURN QUERY SELECT lpad(h.a::text, 8, '0') FROM h; END$f$")


def measure(server, calls, turn):
    """One sample of each figure, in ms."""
    text = create("f", ADD.format(f"/* {turn} */\n"))
    session = server.session()
    sample = {"compile": ms(session, text), "compile, in the cache": ms(session, text)}
    session.close()
    session = server.session()
    sample["first call of a session"] = ms(session, "SELECT f(1, 2)")
    sample["first call of another function"] = ms(session, "SELECT total('g')")
    sample["call"] = ms(session, "SELECT f(1, 2)", calls)
    sample["call of plpgsql"] = ms(session, "SELECT plain_add(1, 2)", calls)
    sample["sum"] = ms(session, "SELECT total('g')", 5)
    sample["sum in SQL on a heap table"] = ms(session, "SELECT sum(a) FROM h", 5)
    session.sql("SET work_mem = '2GB'")
    for name, gpu, sql in (("set of rows", "listed('g')", "plain_listed()"), ("set of texts", "texts('g')", "plain_texts()")):
        sample[name] = ms(session, f"SELECT count(*) FROM {gpu}", 3)
        sample[f"{name} of plpgsql"] = ms(session, f"SELECT count(*) FROM {sql}", 3)
        if session.sql(f"SELECT (SELECT count(*) FROM {gpu}) = (SELECT count(*) FROM {sql})") != "t":
            sys.exit("bench-plcuda: the sets differ")
    if session.sql("SELECT total('g') = (SELECT sum(a) FROM h)") != "t":
        sys.exit("bench-plcuda: the sums differ")
    session.close()
    return sample


def free_mib():
    """Of the first GPU."""
    query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits", "-i", "0"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip())


def measure_memory(server):
    """Device memory that a session's worker takes, in MiB: what the first call of a function without buffers leaves less. Compare
    GSTORE_SPAWN_CONTEXT_BYTES of postgres/spawner.h."""
    session, samples = server.session(), []
    for _ in range(3):
        session.close()
        time.sleep(2)  # the worker of before is gone, and its memory free
        before = free_mib()
        session = server.session()
        session.sql("SELECT f(1, 2)")
        samples.append(before - free_mib())
    session.close()
    return {"name": "device memory of a worker", "unit": "MiB", "median": statistics.median(samples), "samples": samples}


def driver_version(software):
    if software:
        return "software GPU"
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--rows", type=int, default=1000000)
    parser.add_argument("-c", "--calls", type=int, default=2000)
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    reason = private.why_not()
    if reason:
        sys.exit(f"bench-plcuda: {reason}")
    os.environ.setdefault("GVMEM_SOFTGPU", f"devices=1,memory=8GiB,sms=2,instance=bench-plcuda-{os.getpid()}")
    server = private.Server("bench-plcuda")
    try:
        prepare(server, arguments.rows)
        turns = [measure(server, arguments.calls, turn) for turn in range(arguments.repetitions)]
        server.sql(create("f", ADD.format("")))
        device, software = server.sql("SELECT device_name, software FROM gstore_fdw_keeper_info LIMIT 1").split("|")
        memory = None if software == "t" else measure_memory(server)
    finally:
        server.end()
    figures = []
    for name in turns[0]:
        samples = [turn[name] for turn in turns]
        figures.append({"name": name, "unit": "ms", "median": statistics.median(samples), "samples": samples})
        print(f"{name:32} {figures[-1]['median']:12.4f} ms")
    if memory:
        figures.append(memory)
        print(f"{memory['name']:32} {memory['median']:12} MiB")
    if arguments.output:
        record = {
            "benchmark": "plcuda", "command": f"bench/bench-plcuda.py -n {arguments.rows} -c {arguments.calls} -r {arguments.repetitions}",
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "host": {"machine": platform.machine(), "cpus": os.cpu_count(), "kernel": platform.release()},
            "driver": driver_version(software == "t"), "devices": [device], "rows": arguments.rows, "figures": figures,
        }
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")
        print(f"recorded in {arguments.output}")


if __name__ == "__main__":
    main()
