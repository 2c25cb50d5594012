"""Tables by token. What their columns hold is tested with PostgreSQL in tests/postgres."""
import gc
import weakref

import numpy
import pytest

import gvmem
from test_lease import OwnedStream

ROWS = 1000


def test_table_says_what_it_is(token):
    with gvmem.Table(token) as table:
        assert (table.schema, table.name, table.layout, table.rows, len(table), table.device) == ("public", "\x1b", "pgstrom", ROWS, ROWS, 0)
        assert list(table.columns) == ["id", "body"] and "id" in table and "nothing" not in table
        assert (table.columns["id"].type_name, table.columns["body"].length) == ("int", -1)
        assert r"public.\x1b," in repr(table)


def test_column_is_read_under_a_lease(token):
    with gvmem.Table(token) as table, table.read("id", "body") as columns:
        assert list(columns) == ["id", "body"]
        ids, body = columns["id"], columns["body"]
        assert numpy.asarray(ids.data).tolist() == [3 * row + 1 for row in range(ROWS)]
        assert ids.data.readonly and ids.data.dtype == "<i4" and ids.offsets is None
        offsets, data = numpy.asarray(body.offsets), bytes(body.data)
        assert offsets.dtype.kind == "u" and (offsets[::2] == 0).all()
        for offset in (offsets[1::2].astype(int) * (8 if offsets.itemsize == 4 else 1)).tolist():
            length = int.from_bytes(data[offset : offset + 4], "little") // 4
            assert data[offset + 4 : offset + length] == b"odd"
        del offsets


def test_column_by_name_keeps_its_lease(token):
    table = gvmem.Table(token, whole=True)
    column = table["id"]
    data = column.data
    table.close()
    assert table.closed and numpy.asarray(data)[9] == 28
    del column
    assert numpy.asarray(data)[9] == 28  # by the array alone
    del data
    with pytest.raises(ValueError, match="closed"):
        table["id"]


def test_column_after_its_lease_cannot_be_consumed(token):
    with gvmem.Table(token) as table:
        with table.read() as columns:
            assert set(columns) == {"id", "body"}
        with pytest.raises(BufferError):
            numpy.asarray(columns["id"].data)
        column = table["body"]
        assert column.release() is True and "ended" in repr(column)
        with pytest.raises(BufferError):
            bytes(column.data)


def test_column_consumed_keeps_the_lease(token):
    with gvmem.Table(token) as table:
        lease = table.read("id", cpu=True, timeout=5)
        with lease as columns:
            kept = numpy.asarray(columns["id"].data)
        assert not lease.released and kept[1] == 4
        del kept
        assert lease.released


def test_lease_for_the_cpu_beside_one_of_the_same_thread_is_an_error(token):
    with gvmem.Table(token) as table:
        column = table["id"]
        with pytest.raises(BufferError, match="this thread"):
            table.read("id", cpu=True)
        del column
        table.read("id", cpu=True).release()


def test_table_refuses_nonsense(token):
    for wrong in ("", "gstore1:nonsense", "x" * 5000, token[:-3]):
        with pytest.raises(gvmem.Error):
            gvmem.Table(wrong)
    with pytest.raises(gvmem.Error, match=r"no token of a table: .*; gstore_export\(\) makes one"):
        gvmem.Table("trades")
    for wrong in (None, 5, b"bytes", "a\0b"):
        with pytest.raises((TypeError, ValueError)):
            gvmem.Table(wrong)
    with gvmem.Table(token) as table:
        with pytest.raises(KeyError):
            table["nothing"]
        with pytest.raises(KeyError):
            table.read("id", "nothing")
        with pytest.raises(ValueError):
            table.read("id", "id")
        with pytest.raises(ValueError):
            table.read("id", timeout=-1)
        with pytest.raises(TypeError):
            iter(table)
        table.open("id")
        table.open()




def test_table_of_a_server_that_ended_is_an_error():
    import subprocess

    from conftest import BUILD

    with subprocess.Popen([BUILD / "tools/table_holder"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        token = holder.stdout.readline().strip()
        table = gvmem.Table(token)
        holder.stdin.close()
        holder.wait()
    with pytest.raises(ConnectionError):
        gvmem.Table(token)
    with pytest.raises(ConnectionError):
        table["id"]
    table.close()


def test_stream_lives_as_long_as_what_needs_it(token):
    stream = OwnedStream()
    found = weakref.ref(stream)
    with gvmem.Table(token, whole=True) as table:
        with table.read("id", stream=stream) as columns:
            kept = memoryview(columns["id"].data)
        del stream, columns
        gc.collect()
        assert found() is not None and kept[9] == 28
        del kept
        gc.collect()
        assert found() is None
