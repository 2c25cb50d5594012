#!/usr/bin/env python3
"""The search of similarity.c in Python: the molecules most like a given one, in a table of a PostgreSQL server that is
in GPU memory, by a process that is not the server. usage: similarity.py TOKEN ID

NumPy reads the column in place. On a GPU it cannot: there the column is moved to host memory for the time of the lease
(cpu=True), and back when a query needs it. cupy.asarray() and torch.from_dlpack() read it on the GPU: docs/python.md.
"""
import sys
import time

import gvmem
import numpy

BEST = 10
PART = 1 << 16  # rows at a time, so that what is computed of them stays in the processor's cache
ONES = numpy.array([bin(word).count("1") for word in range(1 << 16)], "u1")  # bits that are set, by 16 bits


def count_ones(words):
    return ONES[words].sum(axis=1, dtype="i8")


def distances(fingerprints, query):
    """Jaccard's: 1 - bits set in both / bits set in either."""
    for start in range(0, len(fingerprints), PART):
        part = fingerprints[start : start + PART]
        both, either = count_ones(part & query), count_ones(part | query)
        yield numpy.where(both > 0, 1 - both / numpy.maximum(either, 1), 1)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: similarity.py TOKEN ID")
    table = gvmem.Table(sys.argv[1])
    with table.read("id", "smiles", "fingerprint", cpu=not gvmem.driver().software) as columns:
        ids = numpy.asarray(columns["id"].data)
        fingerprints = numpy.asarray(columns["fingerprint"].data).view("u2")
        ends, text = numpy.asarray(columns["smiles"].offsets), memoryview(columns["smiles"].data)
        found = numpy.flatnonzero(ids == int(sys.argv[2]))
        if not len(found):
            sys.exit("there is no molecule of that id")

        start = time.perf_counter()
        distance = numpy.concatenate(list(distances(fingerprints, fingerprints[found[0]])))
        best = numpy.lexsort((ids, distance))[:BEST]
        print(f"{table.rows} rows searched in {(time.perf_counter() - start) * 1e3:.1f} ms", file=sys.stderr)

        for row in best:
            smiles = bytes(text[ends[row] : ends[row + 1]]).decode()
            print(ids[row], f"{distance[row]:.6g}", smiles, sep="|")


main()
