#!/usr/bin/env python3
"""A heap's snapshot is a pickle of what torch.cuda.memory._snapshot() returns, has all extents of the heap, and is written with
operations that the reader of memory_viz knows. usage: heap_snapshot.py PROGRAM"""
import pickle
import pickletools
import subprocess
import sys
import tempfile
from itertools import groupby

# Those of torch/utils/viz/MemoryViz.js, which refuses all others.
KNOWN = set(
    "APPENDS BINGET BININT BININT1 BININT2 EMPTY_DICT EMPTY_LIST FRAME LONG1 LONG_BINGET MARK MEMOIZE PROTO SETITEMS SHORT_BINUNICODE STOP "
    "TUPLE2 APPEND NEWFALSE BINPUT BINUNICODE EMPTY_TUPLE NEWTRUE NONE BINFLOAT TUPLE TUPLE1 TUPLE3 LONG_BINPUT LIST DICT SETITEM".split()
)
STATES = ["inactive", "active_allocated", "inactive", "active_pending_free"]  # by gvm_heap_use
ITEMS_MAX = 10000  # that it can append at once


def blocks_of(extents):
    for _, address, length, size, use, _, tag in extents:
        shown = tag.encode("ascii", "replace").decode() if tag else ""
        yield {
            "address": address,
            "size": length,
            "requested_size": size,
            "state": STATES[use],
            "frames": [{"name": shown, "filename": "gvmem", "line": 0}] if shown else [],
        }


def segments_of(extents, device):
    for address, part in groupby(extents, key=lambda extent: extent[0]):
        part = list(part)
        yield {
            "device": device,
            "address": address,
            "total_size": sum(extent[2] for extent in part),
            "allocated_size": sum(extent[2] for extent in part if extent[4] == 1),
            "active_size": sum(extent[2] for extent in part if extent[4] in (1, 3)),
            "requested_size": sum(extent[3] for extent in part),
            "stream": part[0][5],
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "is_expandable": True,
            "frames": [],
            "blocks": list(blocks_of(part)),
        }


def read_extents(lines):
    for line in lines:
        *numbers, tag = line.split(b" ", 6)
        yield (*map(int, numbers), tag.decode("latin-1"))


def check_operations(data):
    marks, depth = [], 0
    for operation, argument, _ in pickletools.genops(data):
        name = operation.name
        assert name in KNOWN, f"memory_viz does not know {name}"
        if name == "LONG1":
            assert 0 <= argument < 1 << 53, "a number that JavaScript cannot hold"
        if name == "MARK":
            marks.append(depth)
        elif name in ("APPENDS", "SETITEMS"):
            assert depth - marks[-1] <= ITEMS_MAX
            depth = marks.pop()
        elif name in ("APPEND", "TUPLE2"):
            depth -= 1
        elif name not in ("PROTO", "BINPUT", "STOP"):
            depth += 1
    assert depth == 1 and not marks


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/snapshot.pickle"
        devices, *lines = subprocess.run([sys.argv[1], path], check=True, stdout=subprocess.PIPE).stdout.split(b"\n")[:-1]
        with open(path, "rb") as file:
            data = file.read()
    extents = list(read_extents(lines))
    snapshot = pickle.loads(data)
    check_operations(data)
    assert list(snapshot) == ["segments", "device_traces"]
    assert snapshot["device_traces"] == [[]] * int(devices)
    wanted = list(segments_of(extents, int(devices) - 1))
    assert len(snapshot["segments"]) == len(wanted)
    for found, segment in zip(snapshot["segments"], wanted):
        assert found == segment, f"{found['address']:#x}"
        address = segment["address"]
        for block in segment["blocks"]:  # end to end: memory_viz adds sizes up
            assert block["address"] == address
            address += block["size"]
        assert address == segment["address"] + segment["total_size"]
    assert {extent[4] for extent in extents} == {0, 1, 2, 3} and len(extents) > 3000
    assert len({segment["stream"] for segment in wanted}) == 2 and max(extent[2] for extent in extents) > 1 << 31
    print(f"{len(wanted)} segments, {len(extents)} blocks, {len(data)} bytes")


if __name__ == "__main__":
    main()
