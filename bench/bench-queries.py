#!/usr/bin/env python3
"""Measures queries of one table that gstore_fdw computes on the GPU, beside the same rows in a heap table and in DuckDB (sql_ways.py).

usage: bench-queries.py [-n ROWS] [-k HEAP-ROWS] [-r REPETITIONS] [-o FILE] [BUILD-FOLDER]

Rows are five integers, a bigint and two float8, at random. The GPU's times are taken once more when 1 % of the rows have been deleted.
"""
import sys
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent))
import sql_ways  # noqa: E402

# name: (type, numpy's type, values)
COLUMNS = {
    "day": ("int4", numpy.int32, lambda rng, n: rng.integers(0, 2555, n)),
    "quantity": ("int4", numpy.int32, lambda rng, n: rng.integers(1, 51, n)),
    "few": ("int4", numpy.int32, lambda rng, n: rng.integers(0, 8, n)),
    "hundred": ("int4", numpy.int32, lambda rng, n: rng.integers(0, 100, n)),
    "many": ("int4", numpy.int32, lambda rng, n: rng.integers(0, 1_000_000, n)),
    "amount": ("int8", numpy.int64, lambda rng, n: rng.integers(-1_000_000, 1_000_000, n)),
    "price": ("float8", numpy.float64, lambda rng, n: rng.integers(90_000, 10_500_000, n) / 128),
    "discount": ("float8", numpy.float64, lambda rng, n: rng.integers(0, 11, n) / 128),
}
# name: (statement, bytes of the columns that it reads of a row)
QUERIES = {
    "one row": ("SELECT count(*) FROM @one WHERE quantity < 24", 4),
    "filter and count": ("SELECT count(*) FROM @ WHERE quantity < 24", 4),
    "three conditions, sum of a product": (
        "SELECT sum(price * discount) FROM @ WHERE day >= 730 AND day < 1095 AND quantity < 24 AND few <> 3", 28),
    "sum, avg, min and max of a bigint": ("SELECT sum(amount), avg(amount), min(amount), max(amount) FROM @", 8),
    "GROUP BY, 8 groups": ("SELECT few, count(*), sum(amount) FROM @ GROUP BY few", 12),
    "GROUP BY, 100 groups": ("SELECT hundred, count(*), sum(amount) FROM @ GROUP BY hundred", 12),
    "ORDER BY a float8 DESC LIMIT 10": ("SELECT price FROM @ ORDER BY price DESC LIMIT 10", 8),
    "rows by an integer, one of a million": ("SELECT day, quantity, amount FROM @ WHERE many = 4711", 4),
    "GROUP BY, a million groups, the 10 largest": ("SELECT many, count(*), sum(amount) AS s FROM @ GROUP BY many ORDER BY s DESC, many LIMIT 10", 12),
}


def make(rows):
    rng = numpy.random.default_rng(1)
    return [draw(rng, rows) for _, _, draw in COLUMNS.values()]


def main():
    arguments = sql_ways.parse(__doc__, 10_000_000)
    columns = [(name, kind, stored) for name, (kind, stored, _) in COLUMNS.items()]
    tables = {"": sql_ways.Table(arguments.rows, columns, make, large=True), "one": sql_ways.Table(1, columns, make)}
    sql_ways.run("queries", arguments, tables, QUERIES, deleted="many % 100 = 7")


if __name__ == "__main__":
    main()
