#!/usr/bin/env python3
"""Columns of a table of PostgreSQL as arrays of CuPy, PyTorch, numba and nanoarrow on a GPU: usage: python_tables.py BUILD-FOLDER [CASE...]

Goal: each computes from the table's own memory what SQL says, and holds the lease as long as its array lives. Cases of a package
that is not installed are skipped. Outcomes are told as TAP. Exits 77 without GPU, CuPy or headers of Python; all is skipped without PostgreSQL.
"""
import gc
import importlib
import os
import sys
import tempfile
from pathlib import Path

from python_arrays import compile_package, leave

if len(sys.argv) < 2:
    sys.exit(__doc__)
build = Path(sys.argv.pop(1)).resolve()
os.environ.update(BUILD=str(build), GVMEM_DRIVER="cuda")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "postgres"))

import cases  # noqa: E402
from cases import Skipped, group  # noqa: E402
from private import expect  # noqa: E402

ROWS = 1_000_000


def need(name):
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise Skipped(str(missing)) from None


def read(server, *names):
    return gvmem.Table(server.sql("SELECT gstore_export('ft')")).read(*names)


def expect_released(lease):
    """Arrays that were made of the columns are gone, and the lease with them."""
    gc.collect()
    expect((lease.released, lease.exports), (True, 0), "the lease is given back, and consumers")


@group()
class Columns:
    def table_is_made(self, server):
        server.sql("CREATE FOREIGN TABLE ft (i int, f float8, n bigint, v real[]) SERVER gstore_fdw OPTIONS (format 'arrow')")
        server.sql(f"INSERT INTO ft SELECT i, i / 8.0, CASE WHEN i % 7 > 0 THEN i END, ARRAY[i, i + 1] FROM generate_series(1, {ROWS}) i")

    def cupy_computes_what_sql_does(self, server):
        lease = read(server, "i", "f")
        with lease as columns:
            i, f = cupy.asarray(columns["i"].data), cupy.from_dlpack(columns["f"].data)
            expect(i.data.ptr, columns["i"].data.address, "place")
            total = float((i * f).sum())
            del columns
        expect(lease.released, False, "the lease is given back before its arrays are gone")
        del i, f
        expect(total, float(server.sql("SELECT sum(i * f) FROM ft")), "sum of products")
        expect_released(lease)

    def torch_computes_what_sql_does(self, server):
        torch = need("torch")
        lease = read(server, "f")
        with lease as columns:
            try:
                tensor = torch.from_dlpack(columns["f"].data)
            except (BufferError, RuntimeError) as error:
                raise Skipped(f"PyTorch {torch.__version__} refuses what is read-only: {error}") from None
            expect((tensor.data_ptr(), tensor.dtype), (columns["f"].data.address, torch.float64), "place and type")
            total = float(tensor.sum())
            del tensor, columns
        expect(total, float(server.sql("SELECT sum(f) FROM ft")), "sum")
        expect_released(lease)

    def numba_computes_what_sql_does(self, server):
        """A kernel of its own, which looks at the bitmap of what is not NULL."""
        need("numba")
        cuda = need("numba.cuda")

        @cuda.jit
        def add(values, valid, total):
            row = cuda.grid(1)
            if row < values.size and valid[row >> 3] >> (row & 7) & 1:
                cuda.atomic.add(total, 0, values[row])

        total = cuda.to_device(numpy.zeros(1, "i8"))
        lease = read(server, "n")
        with lease as columns:
            add[(ROWS + 255) // 256, 256](columns["n"].data, columns["n"].validity, total)
            cuda.synchronize()
            del columns
        expect(int(total.copy_to_host()[0]), int(server.sql("SELECT sum(n) FROM ft")), "sum without NULLs")
        expect_released(lease)

    def nanoarrow_takes_columns_where_they_are(self, server):
        device = need("nanoarrow.device")
        lease = read(server, "i", "n", "v")
        with lease as columns:
            for name in ("i", "n", "v"):
                column = columns[name]
                array = device.c_device_array(column)
                expect((array.device_type, array.array.length), (device.DeviceType.CUDA, ROWS), f"{name}: device and length")
                places = [part.address if part is not None else 0 for part in (column.validity, column.offsets if name == "v" else column.data)]
                expect(list(array.array.buffers), places, f"{name}: buffers")
                del array, column
            del columns
        expect_released(lease)


if __name__ == "__main__":
    try:
        import cupy
        import numpy
    except ImportError as missing:
        leave(missing)
    if not cupy.cuda.is_available():
        leave("there is no GPU")
    with tempfile.TemporaryDirectory(prefix="gvmem-tables-") as made:
        compile_package(build, Path(made))
        sys.path.insert(0, made)
        import gvmem

        sys.exit(cases.main())
