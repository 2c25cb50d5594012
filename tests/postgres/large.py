#!/usr/bin/env python3
"""A column of more than 32 GiB, on a GPU of 80 GB or more: TAP, a line a case. It takes minutes.

usage: large.py [CASE...]. GVMEM_LARGE_ROWS says how many rows of 10^9 bytes: 36 if it is not set, and then it wants such a GPU. A
few rows of the software GPU show no more than that the test works.
"""
import os
import subprocess
import sys

sys.dont_write_bytecode = True
import private  # noqa: E402
from cases import group, main  # noqa: E402
from private import BUILD, PROJECT, expect  # noqa: E402

ROWS = int(os.environ.get("GVMEM_LARGE_ROWS", 36))
BYTES = 10**9
NEEDED_MIB = 78000
# Row i has the 8 digits of i again and again.
VALUE = f"repeat(to_char(i, 'FM00000000'), {BYTES // 8})"
WANTED = "\n".join(f"{BYTES} {i:08} {i:08}" for i in range(1, ROWS + 1))


def why_not():
    if "GVMEM_LARGE_ROWS" in os.environ:
        return None
    if os.environ.get("GVMEM_DRIVER") != "cuda":
        return "only with a GPU"
    query = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits", "-i", "0"]
    size = int(subprocess.run(query, capture_output=True, text=True, check=True).stdout)
    return None if size >= NEEDED_MIB else f"the GPU has {size} MiB, and {NEEDED_MIB} are needed"


def probe(server, *arguments):
    program = BUILD / "postgres-run/large_probe"
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-O1", f"-I{PROJECT}", f"-I{PROJECT}/include", f"{PROJECT}/tests/postgres/large_probe.c"]
    subprocess.run([*command, "-o", str(program), f"-L{BUILD}", "-lgvmem", f"-Wl,-rpath,{BUILD}"], check=True)
    done = subprocess.run(private.as_owner([str(program), *arguments]), env=server.environ, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else done.stderr


@group(f"gstore_fdw.device_memory={min(40, ROWS + 4)}GB", "gstore_fdw.window_size=32MB")
class Large:
    def column_of_more_than_32_gib_has_every_value(self, server):
        server.sql("CREATE FOREIGN TABLE large (id int, t text) SERVER gstore_fdw")
        server.sql(f"INSERT INTO large SELECT i, {VALUE} FROM generate_series(1, {ROWS}) i", timeout=1200)
        expect(server.sql("SELECT octet_length(t), left(t, 8) FROM large", timeout=1200).replace("|", " "), "\n".join(line[:-9] for line in WANTED.splitlines()), "values")
        expect(server.sql(f"SELECT l.t = {VALUE} FROM large l, (SELECT {ROWS} AS i) i WHERE l.id = i", timeout=600), "t", "the last value is the same")
        if ROWS * BYTES > 32 << 30:
            server.wait_for("SELECT committed >> 30 >= 32 FROM gstore_fdw_chunk_info WHERE table_oid = 'large'::regclass")

    def column_of_more_than_32_gib_is_attached(self, server):
        expect(probe(server, "token", server.sql("SELECT gstore_export('large')"), "t"), WANTED, "values by token")

    def copy_of_more_than_32_gib_has_every_value(self, server):
        handle = server.sql("SELECT encode(gstore_export_ipchandle('large'), 'hex')", timeout=600)
        expect(probe(server, "handle", handle, "2"), WANTED, "values in the copy")
        server.sql("SELECT gstore_revoke_all('large')")

    def rows_deleted_from_it_are_not_there(self, server):
        server.sql("DELETE FROM large WHERE id = 1")
        expect(server.sql("SELECT count(*), count(t) FROM large"), f"{ROWS - 1}|{ROWS - 1}", "rows")
        expect(server.sql(f"SELECT right(t, 8) FROM large WHERE id = {ROWS}"), f"{ROWS:08}", "the last value")
        server.sql("DROP FOREIGN TABLE large")


if __name__ == "__main__":
    skipped = why_not()
    if skipped:
        print(f"1..0 # SKIP {skipped}")
        sys.exit(0)
    os.environ.setdefault("GVMEM_SOFTGPU", f"devices=1,memory=16GiB,sms=2,instance=large.{os.getpid()}")
    sys.exit(main())
