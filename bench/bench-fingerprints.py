#!/usr/bin/env python3
"""Measures Tanimoto search of fingerprints by gstore_fdw, beside FPSim2 and RDKit's PostgreSQL cartridge with its index, on the same fingerprints.

usage: bench-fingerprints.py [-n ROWS] [-k CARTRIDGE-ROWS] [-r REPETITIONS] [-o FILE] [BUILD-FOLDER]

A row has the bits of two molecules, but for an eighth, and an eighth of those of a third one; about 16 rows have the same two. Molecules are Morgan
fingerprints (radius 2, 1024 bits) of the first 5,000 of the NCI's, from RDKit's own data; without RDKit as many are drawn. Queries are made as rows are;
a time of one query is the mean of QUERIES. What each way finds is compared with NumPy's distances of all rows.

FPSim2 has the fingerprints in memory, ordered by their numbers of bits; for many queries at once each core does one. RDKit's index does not find all of
the nearest, so its recall is recorded, and a scan of the same table by all cores, which finds them, is measured beside it. PostgreSQL 15.20 refuses
Debian's script of the cartridge (202209.3) unless COMMUTATOR and NEGATOR of its operators @= are taken out.
"""
import os
import statistics
import sys
import timeit
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent))
import sql_ways  # noqa: E402
from neighbour import neighbour  # noqa: E402

try:
    import rdkit
    from rdkit import Chem, DataStructs, RDConfig, RDLogger
    from rdkit.Chem import rdFingerprintGenerator
except ImportError:
    rdkit = None
try:
    import FPSim2
    import tables
except ImportError:
    FPSim2 = None

search = neighbour("bench-search")

BITS, MANY, NEAREST, QUERIES, PART = search.BITS, search.MANY, search.NEAREST, 5, 250_000
SIMILAR = 0.6999  # so a similarity of 0.7 is enough however it is rounded, and no other is between
CORES = os.cpu_count()
ONES = numpy.array([bin(i).count("1") for i in range(1 << 16)], numpy.uint8)
THE_NEAREST, ALL_NEAR, AT_ONCE = f"the {NEAREST} nearest", "all of a similarity of 0.7", f"the {NEAREST} nearest of each of {MANY} at once"


def molecules():
    """Their fingerprints, and what they are."""
    path = Path(RDConfig.RDDataDir if rdkit else "") / "NCI/first_5K.smi"
    if path.exists():
        RDLogger.DisableLog("rdApp.*")
        generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=BITS)
        read = (Chem.MolFromSmiles(line.split()[0]) for line in path.open())
        return numpy.packbits([generator.GetFingerprintAsNumPy(molecule) for molecule in read if molecule], axis=1), "NCI"
    rng = numpy.random.default_rng(2)
    frequencies = rng.permutation(numpy.minimum(0.7, 4.5 / numpy.arange(1, BITS + 1)))
    return numpy.packbits(rng.random((5000, BITS)) < frequencies, axis=1), "drawn"


def ones(prints):
    return ONES[prints.view(numpy.uint16)].sum(axis=-1, dtype=numpy.int32)


class Rows:
    def __init__(self, count):
        rng = numpy.random.default_rng(1)
        some, self.source = molecules()

        def draw(number):
            return some[rng.integers(0, len(some), number)]

        def eighth(number):
            masks = rng.integers(0, 256, (3, number, BITS // 8), numpy.uint8)
            return masks[0] & masks[1] & masks[2]

        pairs = draw(-(-count // 16)) | draw(-(-count // 16))
        made = pairs[rng.integers(0, len(pairs), count + MANY)]
        for part in numpy.split(made, range(PART, len(made), PART)):
            part &= ~eighth(len(part))
            part |= eighth(len(part)) & draw(len(part))
        self.count, self.rows, self.queries = count, made[:count], made[count:]
        self.ones = ones(self.rows)
        self.distances = [self.jaccard(query) for query in self.queries[:QUERIES]]

    def jaccard(self, query):
        both = ones(self.rows & query)
        return 1 - both / (self.ones + ones(query) - both)

    def make(self, count, first):
        return [numpy.arange(first, first + count), self.rows[first : first + count]]


def check_near(name, found, distances):
    """That lines `id|distance` are all that are near."""
    found = sorted((int(row), float(distance)) for row, distance in (line.split("|") for line in found))
    wanted = numpy.flatnonzero(distances <= 1 - SIMILAR)
    if [row for row, _ in found] != list(wanted) or not numpy.allclose([distance for _, distance in found], distances[wanted]):
        sys.exit(f"{name}: {len(found)} rows where {len(wanted)} are near, or other distances")


class FpSim2:
    """An engine of a file as FPSim2 writes it; what it finds as lines `id|distance`."""

    def __init__(self, rows, folder):
        order = numpy.argsort(rows.ones, kind="stable")
        words = rows.rows.view(">u8")[order]
        stored = numpy.empty(len(order), [("fp_id", "i8"), ("words", "u8", BITS // 64), ("popcnt", "i8")])
        stored["fp_id"], stored["words"], stored["popcnt"] = order, words, rows.ones[order]
        stored = stored.view([("fp_id", "i8"), *((f"f{i + 1}", "u8") for i in range(BITS // 64)), ("popcnt", "i8")])
        values, firsts = numpy.unique(stored["popcnt"], return_index=True)
        bins = [(int(value), (int(first), int(end))) for value, first, end in zip(values, firsts, [*firsts[1:], len(order)])]
        path = f"{folder}/prints.h5"
        with tables.open_file(path, "w") as out:
            out.create_table("/", "fps", stored)
            config = out.create_vlarray("/", "config", tables.ObjectAtom())
            for value in ("Morgan", {"radius": 2, "fpSize": BITS}, rdkit.__version__, FPSim2.__version__, bins):
                config.append(value)
        self.engine = FPSim2.FPSim2Engine(path)
        self.queries = [DataStructs.CreateFromBitString(search.text_of("prints", query)) for query in rows.queries]

    def nearest(self, query, cores):
        return self.engine.top_k(query, k=NEAREST, threshold=0.0, n_workers=cores)

    def near(self, query, cores):
        return self.engine.similarity(query, SIMILAR, n_workers=cores)

    def many(self):
        with ThreadPoolExecutor(CORES) as pool:
            return list(pool.map(lambda query: self.nearest(query, 1), self.queries))

    @staticmethod
    def lines(found):
        return [f"{row}|{1 - float(similarity)}" for row, similarity in found]


class Bench(search.Bench):
    def sql(self, name, way, rows, statement, check):
        """A statement for each query."""
        texts = [statement(query) for query in self.rows.queries[:QUERIES]]
        for text, distances in zip(texts, self.rows.distances):
            check(f"{name}, {way}", self.ways.server.psql(text + ";")[1], distances[:rows])
        self.add(name, way, rows, lambda: self.ways.measure("", ";\n".join(texts)) / QUERIES)

    def gstore(self):
        def statement(rest):
            return lambda query: f"SELECT id, f <%> {{0}} FROM gstoreprints {rest}".format(f"B'{search.text_of('prints', query)}'")

        self.sql(THE_NEAREST, "gstore", self.rows.count, statement(f"ORDER BY f <%> {{0}} LIMIT {NEAREST}"), search.check)
        self.sql(ALL_NEAR, "gstore", self.rows.count, statement(f"WHERE f <%> {{0}} <= {1 - SIMILAR}"), check_near)

    def gstore_many(self):
        self.ways.server.psql(f"CREATE TABLE many (i int, f bit({BITS}));")
        lines = "\n".join(f"{i}\t{search.text_of('prints', query)}" for i, query in enumerate(self.rows.queries))
        self.ways.server.psql(f"COPY many FROM STDIN;\n{lines}\n\\.\n")
        found = f"FROM gstore_search(NULL::gstoreprints, 'f', (SELECT array_agg(f ORDER BY i) FROM many), {NEAREST}, '<%>')"
        _, lines = self.ways.server.psql(f"SELECT (r).id, distance {found} WHERE query <= {QUERIES} ORDER BY query, distance;")
        for i, distances in enumerate(self.rows.distances):
            search.check(AT_ONCE, lines[NEAREST * i : NEAREST * (i + 1)], distances)
        self.add(AT_ONCE, "gstore", self.rows.count, lambda: self.ways.server.psql(f"SELECT count(*) {found};")[0][0])

    def fpsim2(self):
        peer = FpSim2(self.rows, f"{self.ways.server.folder}/run")
        some = peer.queries[:QUERIES]
        for name, call, check in ((THE_NEAREST, peer.nearest, search.check), (ALL_NEAR, peer.near, check_near)):
            for cores in (1, CORES):
                for query, distances in zip(some, self.rows.distances):
                    check(f"{name}, FPSim2", peer.lines(call(query, cores)), distances)
                self.add(f"{name}, {cores} of {CORES} cores", "FPSim2", self.rows.count, lambda: search.timed(lambda: [call(query, cores) for query in some]) / QUERIES)
        for found, distances in zip(peer.many(), self.rows.distances):
            search.check(AT_ONCE, peer.lines(found), distances)
        self.add(AT_ONCE, "FPSim2", self.rows.count, lambda: 1000 * timeit.timeit(peer.many, number=1))

    def cartridge(self, rows):
        """ms that its index takes. Its type has the bytes of ours: the order of bits matters to no similarity."""
        times, _ = self.ways.server.psql(f"""CREATE EXTENSION rdkit; ALTER DATABASE postgres SET rdkit.tanimoto_threshold = {SIMILAR};
            CREATE UNLOGGED TABLE cartridge (id int, f bfp) WITH (parallel_workers = {CORES});
            INSERT INTO cartridge SELECT id, bfp_from_binary_text(substring(bit_send(f) FROM 5)) FROM gstoreprints WHERE id < {rows};
            CREATE INDEX ON cartridge USING gist (f);
            VACUUM ANALYZE cartridge;""")
        print(f"RDKit's index of {rows} rows takes {times[-2] / 1000:.1f} s")
        recalls = []

        def count_nearest(_, found, distances):
            limit = numpy.partition(distances, NEAREST)[NEAREST - 1]
            recalls.append(sum(distances[int(line.split("|")[0])] <= limit for line in found) / NEAREST)

        def statement(rest):
            return lambda query: f"SELECT id, f <%> {{0}} FROM cartridge {rest}".format(f"'\\x{query.tobytes().hex()}'::bfp")

        self.sql(f"{THE_NEAREST}, scan", "rdkit", rows, statement(f"ORDER BY 1 - tanimoto_sml(f, {{0}}) LIMIT {NEAREST}"), search.check)
        self.sql(f"{THE_NEAREST}, index", "rdkit", rows, statement(f"ORDER BY f <%> {{0}} LIMIT {NEAREST}"), count_nearest)
        self.figures[-1]["recall"] = statistics.mean(recalls)
        print(f"{100 * statistics.mean(recalls):.0f} % of these are among the nearest")
        self.sql(ALL_NEAR, "rdkit", rows, statement("WHERE f % {0}"), check_near)
        return times[-2]


def main():
    arguments = sql_ways.parse(__doc__, 1_000_000)
    rows = Rows(arguments.rows)
    print(f"{rows.source} molecules; a row has {rows.ones.mean():.1f} bits, one of ten rows {numpy.percentile(rows.ones, 10):.0f} at most, one {numpy.percentile(rows.ones, 90):.0f} at least")
    cartridge_rows = min(arguments.heap_rows, arguments.rows)
    server = sql_ways.start(arguments.build)
    ways = sql_ways.Ways(server, 0)
    try:
        server.psql("CREATE EXTENSION gstore_fdw; CREATE EXTENSION gstore_fdw_bit;")
        ways.load_table("prints", sql_ways.Table(rows.count, [("id", "int4", "i4"), ("f", f"bit({BITS})", ("u1", BITS // 8))], rows.make, True, rows.count))
        bench = Bench(ways, rows, arguments.repetitions)
        bench.gstore()
        bench.gstore_many()
        if FPSim2 and rdkit:
            bench.fpsim2()
        else:
            print("FPSim2 is left out: it is not installed")
        _, versions = server.psql("SELECT default_version FROM pg_available_extensions WHERE name = 'rdkit';")
        index_ms = bench.cartridge(cartridge_rows) if versions else print("RDKit's cartridge is left out: it is not installed")
        _, devices = server.psql("SELECT device_name FROM gstore_fdw_keeper_info ORDER BY device;")
    finally:
        server.stop()
    others = {"fpsim2": FPSim2.__version__ if FPSim2 else None, "rdkit": rdkit.__version__ if rdkit else None, "cartridge": versions, "cartridge_index_ms": index_ms}
    sql_ways.write_record("fingerprints", arguments, cartridge_rows, devices=devices, molecules=rows.source, **others, figures=bench.figures)


if __name__ == "__main__":
    main()
