#!/usr/bin/env python3
"""Measures exact search by gstore_fdw on the GPU, end to end through SQL, beside the same rows in a heap table, and PyTorch and CuPy where they are.

usage: bench-search.py [-n ROWS] [-k HEAP-ROWS] [-r REPETITIONS] [-o FILE] [BUILD-FOLDER]

Rows are vectors of 768 float32, and fingerprints of 1024 bits. What each statement finds is compared with float64 on the CPU. PyTorch has the norms of
its rows beforehand, and its times end when the result is in host memory; for many vectors at once it has the rows in half precision.
"""
import statistics
import sys
import time
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent))
import sql_ways  # noqa: E402

try:
    import cupy
    import torch
except ImportError:
    cupy = torch = None

LENGTH, BITS, PART, MANY, NEAREST = 768, 1024, 1_000_000, 1000, 10
BASE = 16  # rows of part i are those of part 0 times (BASE + i) / BASE, which float32 has exactly: values of part 0 have 11 bits

POPCOUNT = r"""
extern "C" __global__ void jaccard(const unsigned long long *rows, const unsigned long long *query, long long count, float *out) {
    for (long long r = blockIdx.x * (long long)blockDim.x + threadIdx.x; r < count; r += (long long)gridDim.x * blockDim.x) {
        int both = 0, any = 0;
        for (int i = 0; i < 16; i++) {
            const unsigned long long a = rows[r * 16 + i], b = query[i];
            both += __popcll(a & b);
            any += __popcll(a | b);
        }
        out[r] = any == 0 ? 0.0f : 1.0f - (float)both / any;
    }
}"""


class Rows:
    """What the tables hold; the distances of all rows, in float64."""

    def __init__(self, count):
        rng = numpy.random.default_rng(1)
        self.count = count
        self.base = rng.standard_normal((min(PART, count), LENGTH), numpy.float32).astype(numpy.float16).astype(numpy.float32)
        self.tags = rng.integers(0, 100, count, numpy.int32)
        self.prints = rng.integers(0, 256, (count, BITS // 8), numpy.uint8)
        self.prints &= rng.integers(0, 256, (count, BITS // 8), numpy.uint8)
        self.vectors = rng.standard_normal((MANY, LENGTH), numpy.float32).astype(numpy.float16).astype(numpy.float32)
        self.norms = numpy.concatenate([numpy.einsum("ij,ij->i", part, part) for part in self.blocks()])

    def blocks(self):
        return (self.base[first : first + 50_000].astype(numpy.float64) for first in range(0, len(self.base), 50_000))

    def factor(self, first):
        return (BASE + first // PART) / BASE

    def make_vectors(self, rows, first):
        return [numpy.arange(first, first + rows), self.tags[first : first + rows], self.base[:rows] * numpy.float32(self.factor(first))]

    def make_prints(self, rows, first):
        return [numpy.arange(first, first + rows), self.prints[first : first + rows]]

    def euclidean(self, vector):
        vector = vector.astype(numpy.float64)
        products = numpy.concatenate([part @ vector for part in self.blocks()])
        parts = []
        for first in range(0, self.count, PART):
            rows, factor = min(PART, self.count - first), self.factor(first)
            parts.append(factor * factor * self.norms[:rows] - 2 * factor * products[:rows] + vector @ vector)
        return numpy.sqrt(numpy.maximum(numpy.concatenate(parts), 0))

    def jaccard(self, row):
        ones = numpy.array([bin(i).count("1") for i in range(1 << 16)], numpy.uint8)
        both, any_ = (ones[f.view(numpy.uint16)].sum(axis=1, dtype=numpy.int32) for f in (self.prints & self.prints[row], self.prints | self.prints[row]))
        return 1 - both / any_


def literal(vector):
    return "'{" + ",".join(map(repr, map(float, vector))) + "}'::real[]"


def bits(row):
    return "B'" + "".join(f"{byte:08b}" for byte in row) + "'"


def check(name, found, distances, among=None):
    """That lines `id|distance` are the nearest rows; of equal distances any."""
    wanted = numpy.sort(distances if among is None else distances[among])[: len(found)]
    for line, distance in zip(found, wanted):
        row, said = line.split("|")
        if (among is not None and not among[int(row)]) or not numpy.isclose([distances[int(row)], float(said)], distance, rtol=1e-5).all():
            sys.exit(f"{name}: {line} where {distance} is the next distance")
    if len(found) != NEAREST:
        sys.exit(f"{name}: {len(found)} rows")


def timed(function):
    """ms of a call, whose result is in host memory."""
    start, times = time.perf_counter(), 0
    while times < 3 or time.perf_counter() - start < 0.5:
        function()
        times += 1
    return 1000 * (time.perf_counter() - start) / times


class Torch:
    """The same by operators of PyTorch, and of CuPy for bits."""

    def __init__(self, rows):
        self.rows = rows
        self.prints = cupy.asarray(rows.prints)
        self.jaccard = cupy.RawKernel(POPCOUNT, "jaccard")

    def fill(self, kind):
        parts = [self.rows.make_vectors(min(PART, self.rows.count - first), first)[2] for first in range(0, self.rows.count, PART)]
        self.vectors = torch.empty((self.rows.count, LENGTH), dtype=kind, device="cuda")
        for i, part in enumerate(parts):
            self.vectors[i * PART : i * PART + len(part)] = torch.from_numpy(part).cuda().to(kind)
        self.norms = torch.cat([block.float().square().sum(1) for block in self.vectors.split(PART)])

    def nearest(self, vector):
        query = torch.from_numpy(vector).cuda()
        return torch.topk(self.norms - 2 * (self.vectors @ query), NEAREST, largest=False)[1].cpu()

    def nearest_to_many(self, vectors):
        queries, best = torch.from_numpy(vectors).cuda().half(), None
        for first in range(0, len(self.vectors), PART):
            distances = self.norms[first : first + PART] - 2 * (queries @ self.vectors[first : first + PART].T).float()
            values, places = torch.topk(distances, NEAREST, largest=False)
            places += first
            if best is not None:
                values, places = torch.cat((best[0], values), 1), torch.cat((best[1], places), 1)
                values, chosen = torch.topk(values, NEAREST, largest=False)
                places = places.gather(1, chosen)
            best = values, places
        return best[1].cpu()

    def nearest_print(self, row):
        out = cupy.empty(self.rows.count, cupy.float32)
        self.jaccard((132 * 8,), (256,), (self.prints, self.prints[row], numpy.int64(self.rows.count), out))
        found = cupy.argpartition(out, NEAREST)[:NEAREST]
        return found[cupy.argsort(out[found])].get()


class Bench:
    def __init__(self, ways, rows, repetitions):
        self.ways, self.rows, self.repetitions, self.figures = ways, rows, repetitions, []

    def add(self, name, way, rows, measure):
        samples = [measure() for _ in range(self.repetitions)]
        self.figures.append({"name": name, "way": way, "unit": "ms", "rows": rows, "median": statistics.median(samples), "samples": samples})
        print(f"{name:50} {way:8} {rows:10} rows {statistics.median(samples):12.3f} ms", flush=True)

    def statement(self, name, query, distances, among=None):
        check(name, self.ways.server.psql(query.replace("@", "gstore") + ";")[1], distances, among)
        for way, count in (("gstore", self.rows.count), ("heap", min(self.ways.heap_rows, self.rows.count))):
            self.add(name, way, count, lambda way=way: self.ways.measure(way, query))

    def one(self):
        vector, distances = self.rows.vectors[0], self.rows.euclidean(self.rows.vectors[0])
        distance = f"e <-> {literal(vector)}"
        query = "SELECT id, {0} FROM @vectors {1} ORDER BY {0} LIMIT 10"
        self.statement("nearest of 768 float32", query.format(distance, ""), distances)
        for share in (1, 10, 50):
            self.statement(f"the same, of {share} % of the rows", query.format(distance, f"WHERE tag < {share}"), distances, self.rows.tags < share)
        print_ = f"f <%> {bits(self.rows.prints[1])}"
        self.statement("nearest of 1024 bits, Jaccard", f"SELECT id, {print_} FROM @prints ORDER BY {print_} LIMIT 10", self.rows.jaccard(1))

    def many(self):
        """gstore_search(), by tables of vectors in the heap."""
        self.ways.server.psql(f"CREATE TABLE many (i int, e real[], f bit({BITS}));")
        lines = "\n".join(f"{i}\t{literal(vector)[1:-9]}\t{bits(self.rows.prints[i])[2:-1]}" for i, vector in enumerate(self.rows.vectors))
        self.ways.server.psql(f"COPY many FROM STDIN;\n{lines}\n\\.\n")
        for name, table, column, operator, distances in (
            (f"{MANY} vectors at once", "vectors", "e", "<->", lambda i: self.rows.euclidean(self.rows.vectors[i])),
            (f"{MANY} fingerprints at once", "prints", "f", "<%>", self.rows.jaccard),
        ):
            query = f"FROM gstore_search(NULL::gstore{table}, '{column}', (SELECT array_agg({column} ORDER BY i) FROM many), {NEAREST}, '{operator}')"
            for i in (1, MANY // 2, MANY):
                check(name, self.ways.server.psql(f"SELECT (r).id, distance {query} WHERE query = {i} ORDER BY distance;")[1], distances(i - 1))
            self.add(name, "gstore", self.rows.count, lambda query=query: self.ways.server.psql(f"SELECT count(*) {query};")[0][0])

    def beside(self):
        if torch is None or not torch.cuda.is_available():
            return
        other = Torch(self.rows)
        other.fill(torch.float32)
        self.add("nearest of 768 float32", "torch", self.rows.count, lambda: timed(lambda: other.nearest(self.rows.vectors[0])))
        self.add("nearest of 1024 bits, Jaccard", "cupy", self.rows.count, lambda: timed(lambda: other.nearest_print(1)))
        other.vectors = None
        other.fill(torch.float16)
        self.add(f"{MANY} vectors at once", "torch", self.rows.count, lambda: timed(lambda: other.nearest_to_many(self.rows.vectors)))


def main():
    arguments = sql_ways.parse(__doc__, 100_000)
    rows = Rows(arguments.rows)
    heap_rows = min(arguments.heap_rows, arguments.rows)
    tables = {
        "vectors": sql_ways.Table(rows.count, [("id", "int4", "i4"), ("tag", "int4", "i4"), ("e", "real[]", ("f4", LENGTH))], rows.make_vectors, True, PART),
        "prints": sql_ways.Table(rows.count, [("id", "int4", "i4"), ("f", f"bit({BITS})", ("u1", BITS // 8))], rows.make_prints, True, PART),
    }
    server = sql_ways.start(arguments.build)
    ways = sql_ways.Ways(server, heap_rows)
    try:
        server.psql("CREATE EXTENSION gstore_fdw; CREATE EXTENSION gstore_fdw_bit;")
        for name, table in tables.items():
            ways.load_table(name, table)
        bench = Bench(ways, rows, arguments.repetitions)
        bench.one()
        bench.many()
        bench.beside()
        _, devices = server.psql("SELECT device_name FROM gstore_fdw_keeper_info ORDER BY device;")
    finally:
        server.stop()
    sql_ways.write_record("search", arguments, heap_rows, devices=devices, torch=torch.__version__ if torch else None, figures=bench.figures)


if __name__ == "__main__":
    main()
