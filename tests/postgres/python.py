#!/usr/bin/env python3
"""Tables of a server from Python, by the package gvmem: TAP, a line a case.

usage: python.py [CASE...]. What gvmem.Table has of a column is compared with SQL, in both layouts; what gvmem.load() appends is
read by SQL. Skipped where no interpreter fits the package (tests/python/package.py).
"""
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
import package  # noqa: E402

if "GVMEM_PYTHON_TESTS" not in os.environ:
    python = package.find_interpreter()
    if python is None:
        print(f"{'Bail out!' if os.environ.get('CI') else '1..0 # SKIP'} there is no {package.WANTED}")
        sys.exit(1 if os.environ.get("CI") else 0)
    package.build(python)
    machine = f"devices=2,memory=4GiB,sms=2,instance=python-{os.getpid()}"
    environ = {"GVMEM_PYTHON_TESTS": "1", "GVMEM_SOFTGPU": machine, "GVMEM_DRIVER": "soft", **os.environ, **package.environment()}
    os.execve(python, [python, *sys.argv], environ)

import json  # noqa: E402

import cases  # noqa: E402
import gvmem  # noqa: E402
import numpy  # noqa: E402
from cases import group  # noqa: E402
from private import Failed, SqlError, expect  # noqa: E402

ROWS = 3000
COLUMNS = {  # type, value in row i, and what SQL says that it is in JSON
    "b": ("boolean", "i % 3 = 0", "b"),
    "i2": ("smallint", "i % 30000 - 15000", "i2"),
    "i4": ("int", "i * -7", "i4"),
    "i8": ("bigint", "i::bigint << 40", "i8"),
    "f4": ("real", "i / 4.0", "f4"),
    "f8": ("float8", "i / 7.0", "f8"),
    "d": ("date", "date '1999-12-01' + i", "d - date '1970-01-01'"),
    "ts": ("timestamp", "timestamp '1969-12-31' + i * interval '1 h 0.000001 s'", "(extract(epoch FROM ts) * 1000000)::bigint"),
    "u": ("uuid", "md5(i::text)::uuid", "replace(u::text, '-', '')"),
    "t": ("text", "repeat('\u00e9' || i, i % 5)", "t"),
    "by": ("bytea", "decode(repeat(md5(i::text), i % 3), 'hex')", "encode(by, 'hex')"),
    "li": ("int[]", "CASE WHEN i % 4 = 0 THEN '{}' ELSE ARRAY[i, NULL, -i] END", "li"),
    "lu": ("uuid[]", "CASE WHEN i % 4 = 0 THEN '{}' ELSE ARRAY[md5(i::text)::uuid, NULL] END", "replace(lu::text, '-', '')::text[]"),
}
POSTGRES_DAYS, POSTGRES_US = 10957, 946684800000000  # from 1970 to 2000, which pgstrom's dates count from


def make(server, layout, rows=ROWS):
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in COLUMNS.items())
    values = ", ".join(f"CASE WHEN (i + {at}) % 7 > 0 THEN {value} END" for at, (_, value, _) in enumerate(COLUMNS.values()))
    server.sql(f"DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft ({columns}) SERVER gstore_fdw OPTIONS (format '{layout}')")
    if rows:
        server.sql(f"INSERT INTO ft SELECT {values} FROM generate_series(1, {rows}) i")


def rows_of(server, name, meaning=None):
    """As SQL says."""
    said = server.sql(f"SELECT coalesce(json_agg({meaning or COLUMNS[name][2]} ORDER BY ctid), '[]') FROM ft")
    return json.loads(said)


def bits(array, rows):
    return numpy.unpackbits(numpy.asarray(array), bitorder="little")[:rows].astype(bool)


def values_of(column):
    """A list, with None for NULL."""
    rows, info = column.rows, column.info
    valid = numpy.ones(rows, bool) if column.validity is None else bits(column.validity, rows)
    data = numpy.asarray(column.data)
    if column.offsets is not None and info.arrow is None:
        offsets = numpy.asarray(column.offsets)
        starts = (offsets.astype("i8") * (8 if offsets.itemsize == 4 else 1)).tolist()
        bodies = data.tobytes()
        found = [bodies[start + 4 : start + int.from_bytes(bodies[start : start + 4], "little") // 4] for start in starts]
        valid = valid & (offsets != 0)
    elif column.offsets is not None:
        offsets = numpy.asarray(column.offsets).tolist()
        items = data.tobytes() if info.arrow != "+L" else data.tolist() if data.ndim == 1 else [bytes(value).hex() for value in data]
        if column.element_validity is not None:
            items = [item if known else None for item, known in zip(items, bits(column.element_validity, len(items)))]
        found = [items[offsets[row] : offsets[row + 1]] for row in range(rows)]
    elif info.arrow == "b":
        found = bits(data, rows).tolist()
    else:
        expect(len(data), rows, f"length of {column.name}")
        found = [bytes(value).hex() for value in data] if data.ndim == 2 else data.tolist()
    if info.arrow is None and info.base_type in (1082, 1114):
        found = [value + (POSTGRES_DAYS if info.base_type == 1082 else POSTGRES_US) for value in found]
    if column.type == "bytea":
        found = [bytes(value).hex() for value in found]
    if column.type == "text":
        found = [bytes(value).decode() for value in found]
    return [value if known else None for value, known in zip(found, valid.tolist())]


def compare_with_arrow(column):
    """By Arrow's interface a column is the same buffers, whose types and lengths are those that Arrow wants."""
    arrow, places = column.info.arrow, [array.address if array is not None and array.nbytes else 0 for array in (
        column.validity, column.offsets, column.data, column.element_validity)]
    validity, offsets, data, element_validity = places
    format, name, children, _ = gvmem._gvmem.arrow_schema(column.__arrow_c_schema__())
    length, offset, buffers, parts = gvmem._gvmem.arrow_array(column.__arrow_c_array__()[1])
    expect((format, name, length, offset), (arrow, column.name, column.rows, 0), f"{column.name} in Arrow")
    if arrow == "+L":
        elements = int(numpy.asarray(column.offsets)[-1])
        expect([child[:2] for child in children], [(column.info.arrow_element, "item")], f"{column.name}'s child")
        expect((buffers, parts), ([validity, offsets], [(elements, 0, [element_validity, data], [])]), f"{column.name}'s buffers")
    else:
        expect((buffers, parts), ([validity, offsets, data] if arrow in ("U", "Z") else [validity, data], []), f"{column.name}'s buffers")


def compare(server, layout, rows):
    make(server, layout, rows)
    with gvmem.Table(server.sql("SELECT gstore_export('ft')")) as table:
        expect((table.name, table.layout, table.rows, list(table.columns)), ("ft", layout, rows, list(COLUMNS)), "the table")
        with table.read() as columns:
            for name in COLUMNS:
                if name not in ("li", "lu") or layout == "arrow":  # of PostgreSQL's own arrays there is no more than a varlena
                    expect(values_of(columns[name]), rows_of(server, name), f"{name} of {layout}")
                if layout == "arrow" and rows:
                    compare_with_arrow(columns[name])
        del columns


def statement(sql, parameters):
    """As a DB-API module puts them together."""
    return sql % tuple("'" + p.replace("'", "''") + "'" if isinstance(p, str) else str(p) for p in parameters)


class Cursor:
    """A DB-API cursor on a psql."""

    def __init__(self, session):
        self.session = session

    def execute(self, sql, parameters=()):
        self.said = self.session.sql(statement(sql, parameters))

    def fetchone(self):
        return (int(self.said) if self.said.isdigit() else self.said,)


@group()
class Reading:
    def columns_of_arrow_are_those_of_sql(self, server):
        for rows in (ROWS, 1):
            compare(server, "arrow", rows)

    def columns_of_pgstrom_are_those_of_sql(self, server):
        for rows in (ROWS, 1):
            compare(server, "pgstrom", rows)

    def column_by_name_lasts_while_the_table_changes(self, server):
        make(server, "arrow")
        before = rows_of(server, "i4")
        price = gvmem.Table(server.sql("SELECT gstore_export('ft')"))["i4"]
        server.sql("UPDATE ft SET i4 = 5; TRUNCATE ft")
        expect(values_of(price), before, "after the table was emptied")

    def values_may_be_compressed_as_long_as_some_are(self, server):
        server.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (t text OPTIONS (compression 'pglz')) SERVER gstore_fdw")
        server.sql("INSERT INTO ft SELECT repeat('compressible ', 100) FROM generate_series(1, 100)")
        server.sql("ALTER FOREIGN TABLE ft ALTER t OPTIONS (DROP compression); INSERT INTO ft VALUES ('flat')")
        for rewritten in (False, True):
            with gvmem.Table(server.sql("SELECT gstore_export('ft')")) as table:
                expect(bool(table.columns["t"].compressed), not rewritten, f"compressed, rewritten: {rewritten}")
            server.sql("DELETE FROM ft WHERE t = 'flat'; SELECT gstore_fdw_compact('ft')")

    def token_that_ended_is_not_found(self, server):
        make(server, "arrow", 10)
        token = server.sql("SELECT gstore_export('ft')")
        table = gvmem.Table(token)
        server.sql(f"SELECT gstore_revoke('{token}')")
        for call in (lambda: gvmem.Table(token), lambda: table["i4"]):
            try:
                call()
            except FileNotFoundError as error:
                expect(error.name, "GVM_E_ABSENT", "the status")
            else:
                raise Failed("a token that was revoked is taken")


LOADED = """(b boolean, i2 smallint, i4 int, i8 bigint, f4 real, f8 float8, d date, ts timestamp, tz timestamptz, u uuid, t text, by bytea,
    li int[], tx text)"""


def columns_to_load(rows):
    """NULL in every seventh row, by turns."""
    i = numpy.arange(1, rows + 1)

    def some(at, data, **more):
        return gvmem.Values(data, validity=(i + at) % 7 > 0, **more)

    texts = ["\u00e9" * (row % 5) + str(row) for row in i.tolist()]
    ends = numpy.concatenate([[0], numpy.cumsum((i + 12) % 7 > 0)])
    return {
        "b": some(0, i % 3 == 0), "i2": some(1, (i % 30000).astype("i2")), "i4": some(2, (i * -7).astype("i4")), "i8": some(3, i << 40),
        "f4": some(4, (i / 4).astype("f4")), "f8": some(5, i / 7), "d": some(6, (i + 10000).astype("i4"), format="tdD"),
        "ts": i.astype("M8[us]"), "tz": some(8, i * 1000001, format="tsu:UTC"),
        "u": some(9, numpy.repeat(i, 2).astype("i8").view("u1").reshape(rows, 16)),
        "t": [text if (row + 10) % 7 else None for row, text in zip(i.tolist(), texts)],
        "by": [text.encode() if (row + 11) % 7 else None for row, text in zip(i.tolist(), texts)],
        "li": gvmem.Values(i.astype("i4")[: ends[-1]], offsets=ends),
    }


# The same in SQL.
SAME = """SELECT CASE WHEN i % 7 > 0 THEN i % 3 = 0 END, CASE WHEN (i + 1) % 7 > 0 THEN i % 30000 END, CASE WHEN (i + 2) % 7 > 0 THEN i * -7 END,
    CASE WHEN (i + 3) % 7 > 0 THEN i::bigint << 40 END, CASE WHEN (i + 4) % 7 > 0 THEN (i / 4.0)::real END,
    CASE WHEN (i + 5) % 7 > 0 THEN i / 7.0::float8 END, CASE WHEN (i + 6) % 7 > 0 THEN date '1970-01-01' + i + 10000 END,
    timestamp '1970-01-01' + i * interval '0.000001 s',
    CASE WHEN (i + 8) % 7 > 0 THEN timestamptz '1970-01-01 00:00+00' + i * interval '1.000001 s' END,
    CASE WHEN (i + 9) % 7 > 0 THEN encode(b || b, 'hex')::uuid END,
    CASE WHEN (i + 10) % 7 > 0 THEN repeat('\u00e9', i % 5) || i END, CASE WHEN (i + 11) % 7 > 0 THEN convert_to(repeat('\u00e9', i % 5) || i, 'UTF8') END,
    CASE WHEN (i + 12) % 7 > 0 THEN ARRAY[(i - (i + 5) / 7)::int] ELSE '{}' END, 'as it was'
    FROM generate_series(1, ROWS) i, LATERAL (SELECT decode(string_agg(lpad(to_hex(i::bigint >> 8 * j & 255), 2, '0'), '' ORDER BY j), 'hex') AS b
    FROM generate_series(0, 7) j) x"""


@group()
class Loading:
    def _make(self, server, layout="arrow"):
        server.sql(f"DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft {LOADED} SERVER gstore_fdw OPTIONS (format '{layout}')")
        server.sql("ALTER FOREIGN TABLE ft ALTER tx SET DEFAULT 'as it was'")

    def columns_that_are_loaded_are_those_of_sql(self, server):
        for layout, rows in (("arrow", 5000), ("pgstrom", 500)):
            self._make(server, layout)
            session = server.session()
            expect(gvmem.load(Cursor(session), "public.ft", columns_to_load(rows)), rows, "rows")
            session.close()
            wanted = f"{SAME.replace('ROWS', str(rows))}"
            expect(server.sql("SELECT count(*) FROM ft"), str(rows), "rows in SQL")
            expect(server.sql(f"SELECT * FROM ft EXCEPT ALL ({wanted})"), "", f"rows of {layout} that should be others")

    def rows_belong_to_the_transaction(self, server):
        self._make(server)
        session = server.session()
        cursor = Cursor(session)
        session.sql("BEGIN")
        gvmem.load(cursor, "ft", {"i4": numpy.arange(10, dtype="i4")})
        expect((session.sql("SELECT count(*) FROM ft"), server.sql("SELECT count(*) FROM ft")), ("10", "0"), "rows here and there")
        session.sql("ROLLBACK; BEGIN")
        for _ in range(3):
            gvmem.load(cursor, "ft", {"i4": numpy.arange(10, dtype="i4"), "t": ["x"] * 10})
        session.sql("COMMIT")
        expect(server.sql("SELECT count(*), sum(i4), max(t) FROM ft"), "30|135|x", "rows afterwards")
        session.close()

    def columns_that_do_not_fit_are_refused(self, server):
        self._make(server)
        for columns, state in (({"i4": numpy.arange(3)}, "42804"), ({"nothing": numpy.arange(3)}, "42703"),
                               ({"t": gvmem.Values(b"\xff\xfe", offsets=numpy.array([0, 1, 2]))}, "22021"),
                               ({"t": gvmem.Values(b"ab", offsets=numpy.array([0, 2, 1]))}, "22P03"),
                               ({"t": gvmem.Values(b"ab", offsets=numpy.array([0, 1, 1 << 40]))}, "22P03")):
            session = server.session()
            try:
                gvmem.load(Cursor(session), "ft", columns)
            except SqlError as error:
                expect(str(error).split(":")[0], state, "the SQLSTATE")
            else:
                raise Failed(f"no error for {list(columns)}")
        expect(server.sql("SELECT count(*) FROM ft"), "0", "rows")

    def tables_may_be_large_and_empty(self, server):
        server.sql("DROP FOREIGN TABLE IF EXISTS big; CREATE FOREIGN TABLE big (i int, t text) SERVER gstore_fdw OPTIONS (format 'arrow')")
        session = server.session()
        rows = 2_000_000
        ends = numpy.arange(rows + 1) * 3
        columns = {"i": numpy.arange(rows, dtype="i4"), "t": gvmem.Values(b"abc" * rows, offsets=ends)}
        expect(gvmem.load(Cursor(session), "big", columns), rows, "rows")
        expect(gvmem.load(Cursor(session), "big", {"i": numpy.array([], "i4")}), 0, "no rows")
        session.close()
        expect(server.sql("SELECT count(*), sum(i::bigint), min(t), max(t) FROM big"), f"{rows}|{rows * (rows - 1) // 2}|abc|abc", "rows in SQL")


if __name__ == "__main__":
    sys.exit(cases.main())
