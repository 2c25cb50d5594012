#!/usr/bin/env python3
"""Writes the files beside it, with pyarrow: what gstore_load_file() takes, and what it refuses.

usage: make.py. They are kept, as pyarrow is no part of what the tests need. Rows are (id, name, price, day, tags).
"""
import datetime
import decimal
import os

import pyarrow as pa
import pyarrow.ipc as ipc

HERE = os.path.dirname(os.path.abspath(__file__))


def table(first, count):
    ids = list(range(first, first + count))
    return {
        "id": pa.array(ids, pa.int32()),
        "name": pa.array([None if i % 4 == 3 else f"n\u00e9{i}" for i in ids], pa.string()),
        "price": pa.array([None if i % 5 == 4 else i / 4 for i in ids], pa.float64()),
        "day": pa.array([datetime.date(2000, 1, 1) + datetime.timedelta(i) for i in ids], pa.date32()),
        "tags": pa.array([None if i % 3 == 2 else list(range(i % 3)) + [None] for i in ids], pa.list_(pa.int16())),
    }


def batches():
    """The second one is a slice, whose bits begin within a byte."""
    return [pa.record_batch(table(0, 5)), pa.record_batch(table(0, 12)).slice(5, 7), pa.record_batch(table(0, 0))]


def write(name, what, stream=False, **options):
    make = ipc.new_stream if stream else ipc.new_file
    with make(os.path.join(HERE, name), what[0].schema, options=ipc.IpcWriteOptions(**options)) as writer:
        for batch in what:
            writer.write_batch(batch)


def one(name, array, stream=False, **options):
    write(name, [pa.record_batch({"id": array})], stream, **options)


write("rows.arrow", batches())
write("rows.arrows", batches(), stream=True)
write("version_4.arrow", batches(), metadata_version=ipc.MetadataVersion.V4)
write("legacy.arrows", batches(), stream=True, use_legacy_format=True, metadata_version=ipc.MetadataVersion.V4)
write("compressed.arrow", batches(), compression="lz4")
one("dictionary.arrow", pa.array(["a", "b", "a"]).dictionary_encode())
one("dictionary.arrows", pa.array(["a", "b", "a"]).dictionary_encode(), stream=True)
one("struct.arrow", pa.array([{"a": 1}]))
one("view.arrow", pa.array(["a"], pa.string_view()))
one("nested.arrow", pa.array([[["a"]]]))
one("null.arrow", pa.nulls(3))
write("uniform.arrow", [pa.record_batch({
    "n": pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-7.50")], pa.decimal128(6, 2)),
    "a": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)),
})])
one("wide.arrow", pa.array([1, 2, 3], pa.int64()))
one("large.arrow", pa.array(["a", None, "bc"], pa.large_string()))
one("stamps.arrow", pa.array([0, None, 1], pa.timestamp("us", "Europe/Paris")))
one("nanoseconds.arrow", pa.array([0, None, 1], pa.timestamp("ns")))
