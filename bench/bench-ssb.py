#!/usr/bin/env python3
"""Measures the 13 queries of a star schema shaped as the Star Schema Benchmark, beside a heap table and DuckDB (sql_ways.py).

usage: bench-ssb.py [-n ROWS] [-k HEAP-ROWS] [-r REPETITIONS] [-o FILE] [BUILD-FOLDER]

ROWS are those of lineorder; 60 million are scale 10, and the other tables have as many as that scale gives them. Names of regions, nations, cities,
manufacturers, categories and brands are numbers, in each way: a nation is region * 5 + 0..4, a city nation * 10 + 0..9, a category
manufacturer * 10 + 1..5, a brand category * 100 + 1..40. Values are drawn at random with the benchmark's distributions.
"""
import datetime
import math
import sys
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent))
import sql_ways  # noqa: E402
from sql_ways import Table  # noqa: E402

SCALE_ROWS = 6_000_000
FIRST_DAY, DAYS = datetime.date(1992, 1, 1), 2556
AFRICA, AMERICA, ASIA, EUROPE, MIDDLE_EAST = range(5)
UNITED_STATES, UNITED_KINGDOM = AMERICA * 5 + 4, EUROPE * 5 + 4
INT4, INT8 = numpy.int32, numpy.int64


def ints(*names):
    return [(name, "int4", INT4) for name in names]


def make_dates(rows):
    days = [FIRST_DAY + datetime.timedelta(i) for i in range(rows)]
    key = [d.year * 10000 + d.month * 100 + d.day for d in days]
    return [numpy.array(values) for values in (key, [d.year for d in days], [d.year * 100 + d.month for d in days], [(d.timetuple().tm_yday - 1) // 7 + 1 for d in days])]


def make_places(seed):
    """Customers or suppliers: a key, a city, its nation, its region."""

    def make(rows):
        city = numpy.random.default_rng(seed).integers(0, 250, rows)
        return [numpy.arange(1, rows + 1), city, city // 10, city // 50]

    return make


def make_parts(rows):
    rng = numpy.random.default_rng(3)
    manufacturer = rng.integers(1, 6, rows)
    category = manufacturer * 10 + rng.integers(1, 6, rows)
    return [numpy.arange(1, rows + 1), manufacturer, category, category * 100 + rng.integers(1, 41, rows)]


def make_lineorders(tables):
    def make(rows):
        rng = numpy.random.default_rng(4)
        dates = tables["date"].make(DAYS)[0]
        price, discount = rng.integers(90_000, 5_550_000, rows), rng.integers(0, 11, rows)
        return [
            rng.integers(1, tables["customer"].rows + 1, rows), rng.integers(1, tables["part"].rows + 1, rows), rng.integers(1, tables["supplier"].rows + 1, rows),
            dates[rng.integers(0, DAYS, rows)], rng.integers(1, 51, rows), price, discount, price * (100 - discount) // 100, price * 6 // 10,
        ]

    return make


def make_tables(rows):
    scale = rows / SCALE_ROWS
    tables = {
        "date": Table(DAYS, ints("d_datekey", "d_year", "d_yearmonthnum", "d_weeknuminyear"), make_dates),
        "customer": Table(max(1, round(30_000 * scale)), ints("c_custkey", "c_city", "c_nation", "c_region"), make_places(1)),
        "supplier": Table(max(1, round(2_000 * scale)), ints("s_suppkey", "s_city", "s_nation", "s_region"), make_places(2)),
        "part": Table(round(200_000 * (1 + math.log2(max(scale, 1)))), ints("p_partkey", "p_mfgr", "p_category", "p_brand1"), make_parts),
    }
    tables["lineorder"] = Table(rows, ints("lo_custkey", "lo_partkey", "lo_suppkey", "lo_orderdate", "lo_quantity", "lo_extendedprice", "lo_discount", "lo_revenue", "lo_supplycost"), make_lineorders(tables), large=True)
    return tables


REVENUE = "SELECT sum(lo_extendedprice::int8 * lo_discount) FROM @lineorder, @date WHERE lo_orderdate = d_datekey AND "
BRANDS = "SELECT sum(lo_revenue), d_year, p_brand1 FROM @lineorder, @date, @part, @supplier WHERE lo_orderdate = d_datekey AND lo_partkey = p_partkey AND lo_suppkey = s_suppkey AND {} GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1"
PLACES = "SELECT c_{0}, s_{0}, d_year, sum(lo_revenue) AS revenue FROM @customer, @lineorder, @supplier, @date WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey AND {1} GROUP BY c_{0}, s_{0}, d_year ORDER BY d_year, revenue DESC"
PROFIT = "SELECT {0}, sum(lo_revenue - lo_supplycost) AS profit FROM @date, @customer, @supplier, @part, @lineorder WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_partkey = p_partkey AND lo_orderdate = d_datekey AND {1} GROUP BY {0} ORDER BY {0}"
KINGDOM = f"({UNITED_KINGDOM * 10 + 1}, {UNITED_KINGDOM * 10 + 5})"
# name: (statement, bytes of lineorder's columns that it reads of a row)
QUERIES = {
    "Q1.1": (REVENUE + "d_year = 1993 AND lo_discount BETWEEN 1 AND 3 AND lo_quantity < 25", 16),
    "Q1.2": (REVENUE + "d_yearmonthnum = 199401 AND lo_discount BETWEEN 4 AND 6 AND lo_quantity BETWEEN 26 AND 35", 16),
    "Q1.3": (REVENUE + "d_weeknuminyear = 6 AND d_year = 1994 AND lo_discount BETWEEN 5 AND 7 AND lo_quantity BETWEEN 26 AND 35", 16),
    "Q2.1": (BRANDS.format(f"p_category = 12 AND s_region = {AMERICA}"), 16),
    "Q2.2": (BRANDS.format(f"p_brand1 BETWEEN 2221 AND 2228 AND s_region = {ASIA}"), 16),
    "Q2.3": (BRANDS.format(f"p_brand1 = 2221 AND s_region = {EUROPE}"), 16),
    "Q3.1": (PLACES.format("nation", f"c_region = {ASIA} AND s_region = {ASIA} AND d_year >= 1992 AND d_year <= 1997"), 16),
    "Q3.2": (PLACES.format("city", f"c_nation = {UNITED_STATES} AND s_nation = {UNITED_STATES} AND d_year >= 1992 AND d_year <= 1997"), 16),
    "Q3.3": (PLACES.format("city", f"c_city IN {KINGDOM} AND s_city IN {KINGDOM} AND d_year >= 1992 AND d_year <= 1997"), 16),
    "Q3.4": (PLACES.format("city", f"c_city IN {KINGDOM} AND s_city IN {KINGDOM} AND d_yearmonthnum = 199712"), 16),
    "Q4.1": (PROFIT.format("d_year, c_nation", f"c_region = {AMERICA} AND s_region = {AMERICA} AND p_mfgr IN (1, 2)"), 24),
    "Q4.2": (PROFIT.format("d_year, s_nation, p_category", f"c_region = {AMERICA} AND s_region = {AMERICA} AND d_year IN (1997, 1998) AND p_mfgr IN (1, 2)"), 24),
    "Q4.3": (PROFIT.format("d_year, s_city, p_brand1", f"c_region = {AMERICA} AND s_nation = {UNITED_STATES} AND d_year IN (1997, 1998) AND p_category = 14"), 24),
}


def main():
    arguments = sql_ways.parse(__doc__, 600_000)
    sql_ways.run("ssb", arguments, make_tables(arguments.rows), QUERIES)


if __name__ == "__main__":
    main()
