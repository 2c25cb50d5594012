#!/usr/bin/env python3
"""Measures the functions of examples/plcuda: nearest molecules, k-means, logistic regression, text search.

usage: bench-plcuda-examples.py [-n ROWS] [-q QUERIES] [-r REPETITIONS] [-o FOLDER] [PART...]

PART is knn, kmeans, logregr or pattern; all of them by default. A private server of the build folder that BUILD names (default
build), on the GPU if GVMEM_DRIVER=cuda, else on the software GPU. Rows are made here with NumPy and loaded from an Arrow file. A
sample is one call through SQL, timed in the server; the first call, which compiles, does not count. Each result is compared with
that of what it is measured beside, in the same run, on the same rows:

    knn      PyTorch on the GPU: bits as half-precision numbers, products of matrices, the largest of each piece
    kmeans   PyTorch and CuPy on the GPU: product of matrices, the least of each row, sums by index
    logregr  scikit-learn on all processors, solver newton-cholesky
    pattern  LIKE over a heap table, in parallel workers

What is not installed is left out. WHEELS may name a folder of wheels (scikit-learn, scipy, joblib, threadpoolctl), which are unpacked
for the run. Prints medians in ms and, with -o, records every sample as JSON in that folder.
"""
import argparse
import json
import os
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/postgres"))
import private  # noqa: E402
from neighbour import neighbour  # noqa: E402

ARROW, PLCUDA = neighbour("bench-gstore-load"), neighbour("bench-plcuda")
# What -n is without it: rows on a GPU, and on the software GPU.
ROWS = {"knn": (10_000_000, 20000), "kmeans": (10_000_000, 20000), "logregr": (10_000_000, 20000), "pattern": (10_000_000, 50000)}
K, CENTRES, COORDINATES, FEATURES, TEXT_BYTES = 10, 100, 16, 16, 64
PATTERN = "%GPU_memory%store%"


def optional(name):
    try:
        return __import__(name)
    except ImportError:
        return None


def unpack_wheels(folder):
    for wheel in sorted(Path(os.environ["WHEELS"]).glob("*.whl")) if "WHEELS" in os.environ else ():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    sys.path.append(folder)


# ---- tables, by a file of Arrow's with one batch


class Column:
    """A name, Arrow's number and table of a type, and its buffers; the first one, for NULLs, is not there."""

    def __init__(self, name, kind, type_, *buffers):
        self.name, self.kind, self.type, self.buffers = name, kind, type_, (numpy.empty(0, "u1"), *buffers)


def int4(name, values):
    return Column(name, 2, ARROW.table(ARROW.inline("<i", 32), ARROW.inline("<?", True)), values.astype("i4", copy=False))


def floating(name, values):
    return Column(name, 3, ARROW.table(ARROW.inline("<h", 1 if values.dtype == "f4" else 2)), values)


def boolean(name, values):
    return Column(name, 6, ARROW.table(), numpy.packbits(values, bitorder="little"))


def fixed(name, rows):
    """Bytes of one length: an array of two dimensions."""
    return Column(name, 15, ARROW.table(ARROW.inline("<i", rows.shape[1])), rows)


def text(name, offsets, characters):
    return Column(name, 20, ARROW.table(), offsets, characters)


def write_stream(path, rows, columns):
    buffers = [memoryview(numpy.ascontiguousarray(b)).cast("B") if b.size else b"" for c in columns for b in c.buffers]
    places, at = [], 0
    for data in buffers:
        places.append((at, len(data)))
        at += (len(data) + 63) // 64 * 64
    schema = ARROW.table(None, ARROW.references([ARROW.field(c.name, c.kind, c.type) for c in columns]))
    nodes = ARROW.vector(struct.pack("<2q", rows, 0) * len(columns), len(columns))
    batch = ARROW.table(ARROW.inline("<q", rows), nodes, ARROW.vector(b"".join(struct.pack("<2q", *p) for p in places), len(places)))
    with open(path, "wb") as out:
        out.write(ARROW.message(1, schema, 0) + ARROW.message(3, batch, at))
        for data in buffers:
            out.write(data)
            out.write(bytes(-len(data) % 64))
        out.write(struct.pack("<Ii", 0xFFFFFFFF, 0))
    os.chmod(path, 0o644)


def load(server, name, definition, rows, columns):
    path = server.folder / "run/rows.arrow"
    write_stream(path, rows, columns)
    server.sql(f"CREATE FOREIGN TABLE {name} ({definition}) SERVER gstore_fdw OPTIONS (format 'arrow')")
    server.sql(f"SELECT gstore_load_file('{name}', '{path}')")
    path.unlink()


# ---- what is timed


class Part:
    def __init__(self, server, repetitions):
        self.server, self.repetitions, self.figures = server, repetitions, []
        self.session = server.session()

    def add(self, name, samples, unit="ms"):
        self.figures.append({"name": name, "unit": unit, "median": statistics.median(samples), "samples": samples})
        print(f"{name:60} {self.figures[-1]['median']:12.3f} {unit}", flush=True)

    def add_sql(self, name, statement):
        PLCUDA.ms(self.session, statement)
        self.add(name, [PLCUDA.ms(self.session, statement) for _ in range(self.repetitions)])

    def add_gpu(self, name, synchronize, run):
        run()
        samples = []
        for _ in range(self.repetitions):
            synchronize()
            start = time.perf_counter()
            run()
            synchronize()
            samples.append(1000 * (time.perf_counter() - start))
        self.add(name, samples)

    def check(self, same, what):
        if not same:
            sys.exit(f"bench-plcuda-examples: {what}: the results differ")

    def check_near(self, exact, found, most, what):
        """Sums of floats differ, and so does which of two centres at nearly the same distance a row goes to."""
        off = numpy.abs(exact - found).max()
        print(f"  coordinates beside {what}: at most {off:.1e} apart")
        self.check(off <= most, what)


def torch_on_gpu():
    torch = optional("torch")
    return torch if torch and torch.cuda.is_available() and os.environ.get("GVMEM_DRIVER") == "cuda" else None


def knn(part, rows, queries):
    random = numpy.random.default_rng(1)
    words = random.integers(0, 2**64, (rows, 16), "u8")
    for _ in range(3):  # one bit of 16 is set
        words &= random.integers(0, 2**64, (rows, 16), "u8")
    asked = words[:: max(1, rows // queries)][:queries] & random.integers(0, 2**64, (queries, 16), "u8") | words[:queries] & words[-queries:]
    definition = "id int, fingerprint bytea OPTIONS (length '128')"
    load(part.server, "molecules", definition, rows, [int4("id", numpy.arange(rows)), fixed("fingerprint", words.view("u1"))])
    load(part.server, "queries", definition, queries, [int4("id", numpy.arange(queries)), fixed("fingerprint", asked.view("u1"))])
    part.add_sql(f"knn_similarity, {rows} x {queries}, k = {K}", f"SELECT * FROM knn_similarity({K}, 'queries', 'molecules')")
    found = part.server.sql(f"SELECT query, similarity FROM knn_similarity({K}, 'queries', 'molecules') ORDER BY query, similarity DESC")
    found = numpy.array([float(line.split("|")[1]) for line in found.split()], "f4").reshape(queries, K)
    if rows * queries <= 10_000_000:
        bits = [numpy.unpackbits(w.view("u1"), axis=1).astype("f4") for w in (asked, words)]
        both, ones = bits[0] @ bits[1].T, [b.sum(1) for b in bits]
        part.check((-numpy.sort(-both / (ones[0][:, None] + ones[1] - both))[:, :K] == found).all(), "NumPy")
    torch = torch_on_gpu()
    if torch:
        part.check(bool((knn_torch(part, torch, words, asked) == found).all()), "PyTorch")


def knn_torch(part, torch, words, asked):
    """Pieces of as many molecules as leave the products in about 1 GiB."""
    shifts = torch.arange(8, device="cuda", dtype=torch.uint8)
    unpack = lambda w: ((torch.from_numpy(w.view("u1")).cuda()[:, :, None] >> shifts) & 1).view(len(w), -1).half()  # noqa: E731
    molecules = torch.cat([unpack(words[at : at + 1_000_000]) for at in range(0, len(words), 1_000_000)])
    queries = unpack(asked)
    ones, asked_ones, result = molecules.sum(1, dtype=torch.float32), queries.sum(1, dtype=torch.float32), {}

    def run():
        best = torch.zeros((len(queries), K), device="cuda")
        for at in range(0, len(molecules), 262144):
            both = (queries @ molecules[at : at + 262144].T).float()
            similarity = both / (asked_ones[:, None] + ones[at : at + 262144] - both)
            best = torch.cat([best, similarity.topk(K, 1).values], 1).topk(K, 1).values
        result["best"] = best

    part.add_gpu("the same in PyTorch, bits unpacked before", torch.cuda.synchronize, run)
    return result["best"].cpu().numpy()


def kmeans(part, rows, _):
    random = numpy.random.default_rng(2)
    middles = random.normal(0, 3, (CENTRES, COORDINATES)).astype("f4")
    points = middles[random.integers(0, CENTRES, rows)] + random.standard_normal((rows, COORDINATES), "f4")
    start, names = points[:: max(1, rows // CENTRES)][:CENTRES], [f"c{i}" for i in range(COORDINATES)]
    load(part.server, "points", ", ".join(f"{n} real" for n in names), rows, [floating(n, points[:, i].copy()) for i, n in enumerate(names)])
    centres = json.dumps(start.astype("f8").tolist()).replace("[", "{").replace("]", "}")
    part.server.sql(f"CREATE TABLE start AS SELECT '{centres}'::float8[] AS centres, column_numbers('points', '{{{','.join(names)}}}') AS numbers")
    part.add_sql(f"kmeans_step, {rows} x {COORDINATES}, {CENTRES} centres", "SELECT kmeans_step('points', numbers, centres) FROM start")
    found = numpy.array(json.loads(part.server.sql("SELECT array_to_json(kmeans_step('points', numbers, centres)) FROM start")))
    if rows <= 100000:
        nearest = ((points[:, None, :] - start[None]) ** 2).sum(2).argmin(1)
        part.check(numpy.allclose([points[nearest == c].mean(0) if (nearest == c).any() else start[c] for c in range(CENTRES)], found, atol=1e-4), "NumPy")
    torch = torch_on_gpu()
    if torch:
        exact = kmeans_exact(torch, points, start)
        part.check_near(exact, found, 1e-3, "double precision")
        part.check_near(exact, kmeans_torch(part, torch, points, start), 1e-2, "PyTorch")
    cupy = optional("cupy") if torch else None
    if cupy:
        part.check_near(exact, kmeans_cupy(part, cupy, points, start), 1e-2, "CuPy")


def kmeans_exact(torch, points, start):
    """By differences in double precision; sums of floats and products of matrices, as below, are off by some thousandths."""
    c = torch.from_numpy(start).cuda().double()
    sums, counts = torch.zeros_like(c), torch.zeros(len(c), device="cuda", dtype=torch.double)
    for at in range(0, len(points), 65536):
        x = torch.from_numpy(points[at : at + 65536]).cuda().double()
        nearest = ((x[:, None, :] - c) ** 2).sum(2).argmin(1)
        sums.index_add_(0, nearest, x)
        counts += torch.bincount(nearest, minlength=len(c))
    return torch.where(counts[:, None] > 0, sums / counts[:, None].clamp(min=1), c).cpu().numpy()


def kmeans_torch(part, torch, points, start):
    """Whole, in pieces whose distances fit in the GPU's cache, and whole with products in TF32, which are less exact."""
    x, c, result = torch.from_numpy(points).cuda(), torch.from_numpy(start.copy()).cuda(), {}
    one = torch.ones(len(x), device="cuda")

    def run(piece):
        half, sums, counts = (c * c).sum(1) / 2, torch.zeros_like(c), torch.zeros(len(c), device="cuda")
        for at in range(0, len(x), piece):
            part_x = x[at : at + piece]
            nearest = torch.addmm(half, part_x, c.T, alpha=-1).argmin(1)
            sums.index_add_(0, nearest, part_x)
            counts.index_add_(0, nearest, one[: len(part_x)])
        result["centres"] = torch.where(counts[:, None] > 0, sums / counts[:, None].clamp(min=1), c)

    for piece, tf32 in ((len(x), False), (65536, False), (len(x), True)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        name = "whole" if piece == len(x) else f"pieces of {piece}"
        part.add_gpu(f"an iteration in PyTorch, {name}{', TF32' if tf32 else ''}", torch.cuda.synchronize, lambda piece=piece: run(piece))
        if not tf32:
            centres = result["centres"]
    return centres.cpu().numpy()


def kmeans_cupy(part, cupy, points, start):
    x, c, result = cupy.asarray(points), cupy.asarray(start), {}

    def run():
        nearest = ((c * c).sum(1) / 2 - x @ c.T).argmin(1)
        counts = cupy.bincount(nearest, minlength=len(c))
        sums = cupy.stack([cupy.bincount(nearest, weights=x[:, d], minlength=len(c)) for d in range(x.shape[1])], 1)
        result["centres"] = cupy.where(counts[:, None] > 0, sums / cupy.maximum(counts, 1)[:, None], c)

    part.add_gpu("an iteration in CuPy", cupy.cuda.runtime.deviceSynchronize, run)
    return result["centres"].get()


def logregr(part, rows, _):
    random = numpy.random.default_rng(3)
    x, weights = random.standard_normal((rows, FEATURES)), random.normal(0, 0.5, FEATURES)
    hit = random.random(rows) < 1 / (1 + numpy.exp(-(x @ weights - 0.3)))
    names = [f"f{i}" for i in range(FEATURES)]
    load(part.server, "cases", "hit bool, " + ", ".join(f"{n} float8" for n in names), rows, [boolean("hit", hit), *(floating(n, x[:, i].copy()) for i, n in enumerate(names))])
    train = f"logregr_train('cases', 'hit', '{{{','.join(names)}}}')"
    part.add_sql(f"logregr_train, {rows} x {FEATURES}", f"SELECT {train}")
    part.server.sql("CREATE TABLE start AS SELECT column_numbers('cases', '{hit," + ",".join(names) + "}') AS numbers")
    part.add_sql("one step of it", f"SELECT logregr_step('cases', numbers[1], numbers[2:], array_fill(0::float8, ARRAY[{FEATURES + 1}])) FROM start")
    found = numpy.array(json.loads(part.server.sql(f"SELECT array_to_json({train})")))
    sklearn = optional("sklearn")
    if not sklearn:
        slope = numpy.c_[numpy.ones(rows), x].T @ (hit - 1 / (1 + numpy.exp(-(x @ found[1:] + found[0])))) / rows
        part.check(abs(slope).max() < 1e-8, "derivatives")
        return
    from sklearn.linear_model import LogisticRegression

    without = {"penalty": None} if tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 8) else {"C": numpy.inf}
    samples = []
    for _ in range(min(part.repetitions, 3)):
        start = time.perf_counter()
        model = LogisticRegression(**without, solver="newton-cholesky", tol=1e-8).fit(x, hit)
        samples.append(1000 * (time.perf_counter() - start))
    part.add(f"the same in scikit-learn {sklearn.__version__}, {os.cpu_count()} processors", samples)
    part.check(numpy.allclose([*model.intercept_, *model.coef_[0]], found, atol=1e-5), "scikit-learn")


def pattern(part, rows, _):
    random = numpy.random.default_rng(4)
    letters = numpy.frombuffer(b"abcdefghijklmnopqrstuvwxyz GPUmemorystore", "u1")
    characters = letters[random.integers(0, len(letters), rows * TEXT_BYTES, "u1")].reshape(rows, TEXT_BYTES)
    characters[::1000, 10:33] = numpy.frombuffer(b"GPU memory is one store", "u1")
    offsets = numpy.arange(rows + 1) * TEXT_BYTES
    load(part.server, "documents", "id int, body text", rows, [int4("id", numpy.arange(rows)), text("body", offsets, characters)])
    part.add_sql(f"text_search, {rows} texts of {TEXT_BYTES} bytes", f"SELECT count(*) FROM text_search('documents', 'id', 'body', '{PATTERN}')")
    part.server.sql("CREATE UNLOGGED TABLE heap AS SELECT * FROM documents")
    part.server.sql("VACUUM ANALYZE heap")
    for workers in (0, os.cpu_count()):
        part.session.sql(f"SET max_parallel_workers_per_gather = {workers}; SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; ALTER TABLE heap SET (parallel_workers = {workers})")
        part.add_sql(f"LIKE over a heap table, {workers} workers", f"SELECT count(*) FROM heap WHERE body LIKE '{PATTERN}'")
    part.check(part.server.sql(f"SELECT (SELECT array_agg(id ORDER BY id) FROM text_search('documents', 'id', 'body', '{PATTERN}') f (id)) = (SELECT array_agg(id::bigint ORDER BY id) FROM heap WHERE body LIKE '{PATTERN}')") == "t", "LIKE")


PARTS = {"knn": (knn, "knn_similarity"), "kmeans": (kmeans, "kmeans"), "logregr": (logregr, "logregr"), "pattern": (pattern, "text_search")}


def measure(name, arguments):
    run, example = PARTS[name]
    server = private.Server("bench-plcuda-examples", f"max_worker_processes={2 * os.cpu_count() + 8}", f"max_parallel_workers={os.cpu_count()}")
    try:
        server.wait_for("SELECT count(device_name) > 0 FROM gstore_fdw_keeper_info", "t")
        device, software = server.sql("SELECT device_name, software FROM gstore_fdw_keeper_info LIMIT 1").split("|")
        rows = arguments.rows or ROWS[name][software == "t"]
        server.sql("CREATE EXTENSION plcuda")
        server.sql(PLCUDA.TIMED)
        subprocess.run(server.psql("-f", str(ROOT / f"examples/plcuda/{example}.sql")), env=server.environ, check=True)
        part = Part(server, arguments.repetitions)
        queries = arguments.queries or (1000 if software != "t" else 20)
        run(part, rows, queries)
        part.session.close()
    finally:
        server.end()
    if arguments.output:
        record = {
            "benchmark": f"plcuda-{name}", "command": f"bench/bench-plcuda-examples.py -n {rows} -q {queries} -r {arguments.repetitions} {name}",
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "host": {"machine": platform.machine(), "cpus": os.cpu_count(), "kernel": platform.release()},
            "driver": PLCUDA.driver_version(software == "t"), "devices": [device], "rows": rows, "figures": part.figures,
        }
        arguments.output.mkdir(parents=True, exist_ok=True)
        path = arguments.output / f"plcuda-{name}-{device.lower().replace(' ', '-')}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.json"
        path.write_text(json.dumps(record, indent=1) + "\n")
        print(f"recorded in {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--rows", type=int)
    parser.add_argument("-q", "--queries", type=int)
    parser.add_argument("-r", "--repetitions", type=int, default=7)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("parts", nargs="*", metavar="PART", help="of " + ", ".join(PARTS))
    arguments = parser.parse_args()
    reason = private.why_not()
    if reason or not set(arguments.parts) <= set(PARTS):
        sys.exit(f"bench-plcuda-examples: {reason or 'no such part'}")
    os.environ.setdefault("GVMEM_SOFTGPU", f"devices=1,memory=8GiB,sms=2,instance=bench-plcuda-examples-{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:
        unpack_wheels(folder)
        for name in arguments.parts or PARTS:
            measure(name, arguments)


if __name__ == "__main__":
    main()
