#!/usr/bin/env python3
"""Measures exact search by gstore_fdw on the GPU, end to end through SQL, beside the same rows in a heap table, and PyTorch and CuPy where they are.

usage: bench-search.py [-n ROWS] [-k HEAP-ROWS] [-r REPETITIONS] [-t TABLES] [-o FILE] [BUILD-FOLDER]

Rows are vectors of 768 float32, the same as halfvec where pgvector has it, and fingerprints of 1024 bits. What each statement finds is compared with
float64 on the CPU. PyTorch has the norms of its rows beforehand, and its times end when the result is in host memory; for many vectors at once it has
the rows in half precision.
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
NEAREST_OF = {"vectors": f"nearest of {LENGTH} float32", "halves": f"nearest of {LENGTH} float16", "prints": f"nearest of {BITS} bits, Jaccard"}
MANY_OF = {"vectors": f"{MANY} vectors at once", "halves": f"{MANY} vectors of float16 at once", "prints": f"{MANY} fingerprints at once"}
OPERATORS = {"vectors": "<->", "halves": "<->", "prints": "<%>"}
HALFVEC = "SELECT 1 FROM pg_available_extensions WHERE name = 'vector' AND string_to_array(default_version, '.')::int[] >= '{0,7}';"
TYPES = {"vectors": "real[]", "halves": f"halfvec({LENGTH})", "prints": f"bit({BITS})"}

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
    """What the tables hold; the distances of all rows, in float64. Vectors have values that float16 has; those of part i are of part 0, turned by i places."""

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

    def make_vectors(self, rows, first):
        return [numpy.arange(first, first + rows), self.tags[first : first + rows], numpy.roll(self.base[:rows], first // PART, axis=1)]

    def make_prints(self, rows, first):
        return [numpy.arange(first, first + rows), self.tags[first : first + rows], self.prints[first : first + rows]]

    def euclidean(self, vector):
        vector = vector.astype(numpy.float64)
        turned = numpy.stack([numpy.roll(vector, -part) for part in range(-(-self.count // PART))], axis=1)
        squares = self.norms[:, None] - 2 * numpy.concatenate([part @ turned for part in self.blocks()]) + vector @ vector
        return numpy.sqrt(numpy.maximum(squares, 0)).T.ravel()[: self.count]

    def jaccard(self, row):
        ones = numpy.array([bin(i).count("1") for i in range(1 << 16)], numpy.uint8)
        both, any_ = (ones[f.view(numpy.uint16)].sum(axis=1, dtype=numpy.int32) for f in (self.prints & self.prints[row], self.prints | self.prints[row]))
        return 1 - both / any_


def text_of(table, row):
    """As PostgreSQL reads it."""
    if table == "prints":
        return "".join(f"{byte:08b}" for byte in row)
    return ("{%s}" if table == "vectors" else "[%s]") % ",".join(map(repr, map(float, row)))


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
        self.vectors = None
        self.vectors = torch.empty((self.rows.count, LENGTH), dtype=kind, device="cuda")
        for first in range(0, self.rows.count, PART):
            part = self.rows.make_vectors(min(PART, self.rows.count - first), first)[2]
            self.vectors[first : first + len(part)] = torch.from_numpy(part).cuda().to(kind)
        self.norms = torch.cat([block.float().square().sum(1) for block in self.vectors.split(PART)])

    def nearest(self, vector):
        query = torch.from_numpy(vector).cuda().to(self.vectors.dtype)
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

    def distances(self, table, i):
        """Of all rows from the vector i, or the fingerprint i."""
        return self.rows.jaccard(i) if table == "prints" else self.rows.euclidean(self.rows.vectors[i])

    def query_row(self, table, i):
        return text_of(table, (self.rows.prints if table == "prints" else self.rows.vectors)[i])

    def statement(self, name, query, distances, among=None):
        check(name, self.ways.server.psql(query.replace("@", "gstore") + ";")[1], distances, among)
        for way, count in (("gstore", self.rows.count), ("heap", min(self.ways.heap_rows, self.rows.count))):
            self.add(name, way, count, lambda way=way: self.ways.measure(way, query))

    def one(self, table):
        distance = f"e {OPERATORS[table]} '{self.query_row(table, 1)}'::{TYPES[table]}"
        query, distances = f"SELECT id, {distance} FROM @{table} %s ORDER BY {distance} LIMIT {NEAREST}", self.distances(table, 1)
        self.statement(NEAREST_OF[table], query % "", distances)
        for share in (1, 10, 50):
            name = f"{NEAREST_OF[table]}, of {share} % of the rows"
            self.statement(name, query % f"WHERE tag < {share}", distances, self.rows.tags < share)

    def many(self, table):
        """gstore_search(), by a table of vectors in the heap."""
        lines = "\n".join(f"{i}\t{self.query_row(table, i)}" for i in range(MANY))
        self.ways.server.psql(f"CREATE TABLE many_{table} (i int, e {TYPES[table]});\nCOPY many_{table} FROM STDIN;\n{lines}\n\\.\n")
        query = f"FROM gstore_search(NULL::gstore{table}, 'e', (SELECT array_agg(e ORDER BY i) FROM many_{table}), {NEAREST}, '{OPERATORS[table]}')"
        for i in (1, MANY // 2, MANY):
            check(MANY_OF[table], self.ways.server.psql(f"SELECT (r).id, distance {query} WHERE query = {i} ORDER BY distance;")[1], self.distances(table, i - 1))
        self.add(MANY_OF[table], "gstore", self.rows.count, lambda: self.ways.server.psql(f"SELECT count(*) {query};")[0][0])

    def beside(self, tables):
        if torch is None or not torch.cuda.is_available():
            return
        other = Torch(self.rows)
        if "prints" in tables:
            self.add(NEAREST_OF["prints"], "cupy", self.rows.count, lambda: timed(lambda: other.nearest_print(1)))
        for table, kind in (("vectors", torch.float32), ("halves", torch.float16)):
            other.fill(kind)
            if table in tables:
                self.add(NEAREST_OF[table], "torch", self.rows.count, lambda: timed(lambda: other.nearest(self.rows.vectors[1])))
        self.add(MANY_OF["vectors"], "torch", self.rows.count, lambda: timed(lambda: other.nearest_to_many(self.rows.vectors)))


def main():
    arguments = sql_ways.parse(__doc__, 100_000, tables=list(TYPES))
    rows = Rows(arguments.rows)
    heap_rows = min(arguments.heap_rows, arguments.rows)
    kinds = {"vectors": ("f4", LENGTH), "halves": ("f2", LENGTH), "prints": ("u1", BITS // 8)}
    server = sql_ways.start(arguments.build)
    ways = sql_ways.Ways(server, heap_rows)
    try:
        has_halfvec = server.psql(HALFVEC)[1]
        server.psql(f"CREATE EXTENSION gstore_fdw; CREATE EXTENSION {'vector' if has_halfvec else 'gstore_fdw_bit'};")
        if "halves" in arguments.tables and not has_halfvec:
            arguments.tables.remove("halves")
            print("without halfvec, which pgvector has from 0.7 on")
        bench = Bench(ways, rows, arguments.repetitions)
        for name in arguments.tables:
            columns = [("id", "int4", "i4"), ("tag", "int4", "i4"), ("e", TYPES[name], kinds[name])]
            ways.load_table(name, sql_ways.Table(rows.count, columns, rows.make_prints if name == "prints" else rows.make_vectors, True, PART))
            bench.one(name)
            bench.many(name)
        bench.beside(arguments.tables)
        _, devices = server.psql("SELECT device_name FROM gstore_fdw_keeper_info ORDER BY device;")
    finally:
        server.stop()
    sql_ways.write_record("search", arguments, heap_rows, devices=devices, torch=torch.__version__ if torch else None, figures=bench.figures)


if __name__ == "__main__":
    main()
