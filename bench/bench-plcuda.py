#!/usr/bin/env python3
"""Measures what a function in the language plcuda costs: compiling, first calls, each further call, a scan of a table.

usage: bench-plcuda.py [--rows N] [--calls N]. A private server of the build folder that BUILD names (default build), on the GPU if
GVMEM_DRIVER=cuda, else on the software GPU. Times are the server's own, through SQL; prints JSON, seconds unless named. Beside each
figure stands what it is compared with: a function in plpgsql, the same scan in SQL on a heap table.
"""
import argparse
import json
import os
import sys
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


def seconds(session, statement, times=1):
    quoted = statement.replace("'", "''")
    return float(session.sql(f"SELECT timed('{quoted}', {times})"))


def create(name, body):
    return f"CREATE OR REPLACE FUNCTION {name}(int, int) RETURNS int LANGUAGE plcuda AS $p${body}$p$"


def measure(server, rows, calls):
    server.sql("CREATE EXTENSION plcuda")
    server.sql(TIMED)
    server.sql("CREATE FUNCTION plain_add(int, int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN $1 + $2; END'")
    server.sql("CREATE FOREIGN TABLE g (a int, b int) SERVER gstore_fdw; CREATE UNLOGGED TABLE h (a int, b int)")
    server.sql(f"INSERT INTO h SELECT i, i FROM generate_series(1, {rows}) i; INSERT INTO g SELECT * FROM h")
    server.sql("VACUUM ANALYZE h")
    server.sql(f"CREATE FUNCTION total(reggstore) RETURNS int8 LANGUAGE plcuda AS $p${SUM}$p$")
    session = server.session()
    figures = {
        "compile_s": seconds(session, create("f", ADD.format("/* one */\n"))),
        "compile_cached_s": seconds(session, create("f", ADD.format("/* one */\n"))),
    }
    session.close()
    session = server.session()
    figures["first_call_of_a_session_s"] = seconds(session, "SELECT f(1, 2)")
    figures["first_call_of_another_function_s"] = seconds(session, "SELECT total('g')")
    figures["call_s"] = seconds(session, "SELECT f(1, 2)", calls)
    figures["call_of_plpgsql_s"] = seconds(session, "SELECT plain_add(1, 2)", calls)
    figures["sum_s"] = seconds(session, "SELECT total('g')", 20)
    figures["sum_in_sql_on_a_heap_s"] = seconds(session, "SELECT sum(a) FROM h", 5)
    if session.sql("SELECT total('g') = (SELECT sum(a) FROM h)") != "t":
        sys.exit("bench-plcuda: the sums differ")
    session.close()
    figures["device"] = server.sql("SELECT device_name FROM gstore_fdw_keeper_info LIMIT 1")
    return figures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1000000)
    parser.add_argument("--calls", type=int, default=2000)
    arguments = parser.parse_args()
    reason = private.why_not()
    if reason:
        sys.exit(f"bench-plcuda: {reason}")
    os.environ.setdefault("GVMEM_SOFTGPU", f"devices=1,memory=8GiB,sms=2,instance=bench-plcuda-{os.getpid()}")
    server = private.Server("bench-plcuda")
    try:
        print(json.dumps({"rows": arguments.rows, "calls": arguments.calls, **measure(server, arguments.rows, arguments.calls)}, indent=1))
    finally:
        server.end()


if __name__ == "__main__":
    main()
