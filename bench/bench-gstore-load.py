#!/usr/bin/env python3
"""Measures how rows come into a table of gstore_fdw: COPY beside gstore_load() and gstore_load_file(), in turns.

usage: bench-gstore-load.py [-n ROWS] [-r REPETITIONS] [-o FILE] [BUILD-FOLDER]

Rows are (int, float8, text), the table is of format 'arrow', in a private server. The program that writes rows to be
loaded is tests/postgres/load_probe.c; its time does not count, nor that of gstore_load_begin(). Prints medians in ms
and, with -o, records every sample as JSON. Needs PostgreSQL with its server headers (PG_CONFIG), and a C compiler.
"""
import argparse
import array
import itertools
import json
import os
import platform
import shlex
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

from neighbour import neighbour

ROOT = Path(__file__).resolve().parent.parent
bench_gstore = neighbour("bench-gstore")

ALIGN = 64
WAYS = ("COPY, text", "COPY, binary", "gstore_load_file, Arrow IPC stream", "gstore_load, from GPU memory")


def padded(data):
    return data + bytes(-len(data) % ALIGN)


class Rows:
    """(id, value, name) as Arrow's buffers."""

    def __init__(self, count):
        names = [b"row number %d" % i for i in range(1, count + 1)]
        self.count = count
        self.ids = array.array("i", range(1, count + 1)).tobytes()
        self.values = array.array("d", (i * 0.37 for i in range(count))).tobytes()
        self.ends = array.array("q", itertools.chain([0], itertools.accumulate(map(len, names)))).tobytes()
        self.names = b"".join(names)

    def staged(self):
        """The layout of gvmem/load.h."""
        head_bytes = 64 + 3 * 192
        places, at = [], (head_bytes + ALIGN - 1) // ALIGN * ALIGN
        for data in (self.ids, self.values, self.ends, self.names):
            places.append((at, len(data)))
            at += len(padded(data))
        none = (0, 0)
        columns = (
            ("id", "i", none, none, places[0]), ("value", "g", none, none, places[1]), ("name", "U", none, places[2], places[3]),
        )
        head = struct.pack("<QQIIB3xIII24x", at, self.count, 2, 3, ord("a"), 64, 192, 0)
        for name, kind, validity, offsets, values in columns:
            head += struct.pack("<64s16s16sIih6xQQQQQQQQQ8x", name.encode(), kind.encode(), b"", 0, -1, 0, *validity, *offsets, *values, *none, 0)
        return padded(head) + b"".join(map(padded, (self.ids, self.values, self.ends, self.names)))

    def stream(self):
        """An IPC stream of a schema and one batch."""
        body, buffers = b"", []
        for data in (None, self.ids, None, self.values, None, self.ends, self.names):
            buffers.append((len(body), len(data or b"")))
            body += padded(data or b"")
        fields = [field("id", 2, table(inline("<i", 32), inline("<?", True))), field("value", 3, table(inline("<h", 2))), field("name", 20, table())]
        nodes = struct.pack("<6q", *[self.count, 0] * 3)
        batch = table(inline("<q", self.count), vector(nodes, 3), vector(b"".join(struct.pack("<2q", *b) for b in buffers), len(buffers)))
        return message(1, table(None, references(fields)), 0) + message(3, batch, len(body)) + body + struct.pack("<Ii", 0xFFFFFFFF, 0)


# ---- flatbuffers: functions that append a part to a buffer, and return where it is


def inline(code, value):
    return struct.pack(code, value).ljust(8, b"\0")


def table(*fields):
    """A field is bytes, a part, or None. Each takes 8 bytes."""

    def append(out):
        out.extend(bytes(-(len(out) + 4 + 2 * len(fields)) % 8 + 4 if (len(out) + 4 + 2 * len(fields)) % 8 != 4 else 0))
        vtable = len(out)
        out.extend(struct.pack("<HH", 4 + 2 * len(fields), 4 + 8 * len(fields)))
        out.extend(b"".join(struct.pack("<H", 0 if f is None else 4 + 8 * i) for i, f in enumerate(fields)))
        start = len(out)
        out.extend(struct.pack("<i", start - vtable))
        for f in fields:
            out.extend(f if isinstance(f, bytes) else bytes(8))
        for i, f in enumerate(fields):
            if callable(f):
                refer(out, start + 4 + 8 * i, f)
        return start

    return append


def refer(out, at, part):
    struct.pack_into("<I", out, at, part(out) - at)


def vector(data, count):
    def append(out):
        out.extend(bytes((4 - len(out)) % 8))  # so that the elements are aligned
        start = len(out)
        out.extend(struct.pack("<I", count) + data)
        return start

    return append


def references(parts):
    def append(out):
        start = vector(bytes(4 * len(parts)), len(parts))(out)
        for i, part in enumerate(parts):
            refer(out, start + 4 + 4 * i, part)
        return start

    return append


def text(value):
    return vector(value.encode() + b"\0", len(value))


def field(name, kind, type_, children=()):
    return table(text(name), inline("<?", True), inline("<B", kind), type_, None, references(list(children)))


def message(kind, header, body_bytes):
    out = bytearray(4)
    refer(out, 0, table(inline("<h", 4), inline("<B", kind), header, inline("<q", body_bytes)))
    out.extend(bytes(-(len(out) + 8) % ALIGN))
    return struct.pack("<Ii", 0xFFFFFFFF, len(out)) + bytes(out)


# ---- measuring


def build_probe(build, folder):
    probe = Path(folder) / "run/load_probe"
    command = [
        *shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-D_GNU_SOURCE", f"-I{ROOT}/include", str(ROOT / "tests/postgres/load_probe.c"),
        "-o", str(probe), f"-L{build}", "-lgvmem", "-lpthread", f"-Wl,-rpath,{build}",
    ]
    subprocess.run(command, check=True)
    return probe


def scripts(folder, probe, staged_bytes):
    """What psql is said in each way; the last statement's time counts."""
    hand_over = f"\\setenv TOKEN :token\n\\! printf 'open %s\\nfile {folder}/run/staged\\nclose\\n' \"$TOKEN\" | {probe} > {folder}/run/said\n"
    return dict(zip(WAYS, (
        f"COPY gstore FROM '{folder}/run/text';\n", f"COPY gstore FROM '{folder}/run/binary' (FORMAT binary);\n",
        f"SELECT gstore_load_file('gstore', '{folder}/run/stream');\n",
        f"SELECT gstore_load_begin('gstore', {staged_bytes}) AS token \\gset\n{hand_over}SELECT gstore_load('gstore', :'token');\n",
    )))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--rows", type=int, default=10_000_000)
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("build", nargs="?", type=Path, default=ROOT / "build")
    arguments = parser.parse_args()
    build, samples = arguments.build.resolve(), {way: [] for way in WAYS}
    rows = Rows(arguments.rows)
    server = bench_gstore.Server(build)
    try:
        run = Path(server.folder) / "run"
        (run / "staged").write_bytes(rows.staged())
        (run / "stream").write_bytes(rows.stream())
        os.chmod(run / "stream", 0o644)
        server.psql("CREATE EXTENSION gstore_fdw; CREATE FOREIGN TABLE gstore (id int, value float8, name text) SERVER gstore_fdw OPTIONS (format 'arrow');")
        ways = scripts(server.folder, build_probe(build, server.folder), (run / "staged").stat().st_size)
        server.psql(ways[WAYS[2]] + f"COPY (SELECT * FROM gstore) TO '{run}/text'; COPY (SELECT * FROM gstore) TO '{run}/binary' (FORMAT binary);")
        _, wanted = server.psql("SELECT count(*), sum(id), max(value), sum(length(name)), max(name) FROM gstore;")
        for turn in range(arguments.repetitions + 1):  # the first warms up
            for way in WAYS if turn % 2 else reversed(WAYS):
                server.psql("TRUNCATE gstore;")
                times, _ = server.psql(ways[way])
                _, said = server.psql("SELECT count(*), sum(id), max(value), sum(length(name)), max(name) FROM gstore;")
                if said != wanted:
                    sys.exit(f"bench-gstore-load: {way}: {said} instead of {wanted}")
                if turn > 0:
                    samples[way].append(times[-1])
        _, devices = server.psql("SELECT device_name FROM gstore_fdw_keeper_info ORDER BY device;")
    finally:
        server.stop()
    copy = statistics.median(samples[WAYS[0]])
    print(f"{arguments.rows} rows{'':38} {'ms, median':>12} {'COPY, text is so many times as slow':>36}")
    figures = []
    for way in WAYS:
        median = statistics.median(samples[way])
        print(f"{way:50} {median:12.1f} {copy / median:36.1f}")
        figures.append({"name": way, "unit": "ms", "median": median, "samples": samples[way]})
    if arguments.output:
        record = {
            "benchmark": "gstore-load", "command": f"bench/bench-gstore-load.py -n {arguments.rows} -r {arguments.repetitions}",
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "host": {"machine": platform.machine(), "cpus": os.cpu_count(), "kernel": platform.release()},
            "devices": devices, "rows": arguments.rows, "bytes": len(rows.staged()), "figures": figures,
        }
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")
        print(f"recorded in {arguments.output}")


if __name__ == "__main__":
    main()
