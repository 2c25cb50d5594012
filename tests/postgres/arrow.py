#!/usr/bin/env python3
"""Tables of format 'arrow', byte by byte, as other processes have them: TAP, a line a case.

usage: arrow.py [CASE...]. arrow_probe.c, another process, hands out the bytes behind a token and behind a CUDA
handle; what they mean is decided here, by Arrow's columnar format and docs/gstore_format.md alone.
"""
import json
import os
import random
import struct
import subprocess
import sys
import time
import traceback

import attach
import private
from attach import export
from private import BUILD, Failed, Server, SqlError, expect

HEAD_BYTES, COLUMN_BYTES = 64, 192
ROUNDS = 12
NUMBERS = {"s": "h", "i": "i", "I": "I", "l": "q", "f": "f", "g": "d", "tdD": "i", "ttu": "q", "tsu:": "q", "tsu:UTC": "q"}

# Columns of a table with each type that has one of Arrow's own: its name there and what a value is, in SQL. NULL is
# for the caller. Infinity is the greatest number.
EPOCH = "CASE {0}::text WHEN 'infinity' THEN 9223372036854775807 WHEN '-infinity' THEN -9223372036854775808 ELSE (extract(epoch FROM {0}) * 1000000)::bigint END"
DAYS = "CASE {0}::text WHEN 'infinity' THEN 2147483647 WHEN '-infinity' THEN -2147483648 ELSE {0} - date '1970-01-01' END"
SCALARS = [
    ("b", "bool", "b", "{0}"), ("i2", "smallint", "s", "{0}"), ("i4", "int", "i", "{0}"), ("i8", "bigint", "l", "{0}"), ("o", "oid", "I", "{0}::bigint"),
    ("f4", "real", "f", "encode(float4send({0}), 'hex')"), ("f8", "float8", "g", "encode(float8send({0}), 'hex')"), ("d", "date", "tdD", DAYS),
    ("tm", "time", "ttu", "(extract(epoch FROM {0}) * 1000000)::bigint"), ("ts", "timestamp", "tsu:", EPOCH), ("tz", "timestamptz", "tsu:UTC", EPOCH),
    ("u", "uuid", "w:16", "replace({0}::text, '-', '')"),
]
OTHERS = [
    ("t", "text", "U", "{0}"), ("v", "varchar(30)", "U", "{0}"), ("c", "char(5)", "U", "rpad({0}::text, 5)"), ("j", "json", "U", "{0}::text"),
    ("by", "bytea", "Z", "encode({0}, 'hex')"), ("iv", "interval", "w:16", None), ("q", '"char"', "w:1", "encode(\"charsend\"({0}), 'hex')"),
    ("n", "numeric", "Z", None), ("ab", "bool[]", "Z", None), ("ta", "text[]", "Z", None),
]
LISTS = [("a_" + name, kind + "[]", arrow, meaning) for name, kind, arrow, meaning in SCALARS if name != "b"]
# Columns of one length: their buffers, and for each what a value is.
DECIMAL = "CASE WHEN {{0}} = 'NaN' THEN -170141183460469231731687303715884105728 ELSE trunc({{0}} * 1e{}) END"
UNIFORM = [
    ("dn", "numeric(12,3)", "d:12,3", DECIMAL.format(3)), ("dw", "numeric(38,0)", "d:38,0", DECIMAL.format(0)), ("dr", "numeric(4,-2)", "d:4,-2", DECIMAL.format(-2)),
    ("b1", "bit(1)", "w:1", "encode(substring(bit_send({0}) FROM 5), 'hex')"), ("b19", "bit(19)", "w:3", "encode(substring(bit_send({0}) FROM 5), 'hex')"),
    ("tl", "text OPTIONS (length '5')", "w:5", "encode({0}::bytea, 'hex')"), ("bl", "bytea OPTIONS (length '16')", "w:16", "encode({0}, 'hex')"),
]
FIXED = [("w_" + name, kind + "[] OPTIONS (length '2')", arrow, meaning) for name, kind, arrow, meaning in SCALARS if name != "b"]
COLUMNS = SCALARS + OTHERS + LISTS + UNIFORM + FIXED

# A row for each i of generate_series; every seventh value is NULL, by turns.
VALUES = {
    "b": "i % 3 = 0", "i2": "(i * 37 % 65536 - 32768)::smallint", "i4": "i * -7", "i8": "i::bigint << 40", "o": "4294967295 - i", "f4": "i / 3.0::real",
    "f8": "CASE i % 9 WHEN 0 THEN 'infinity' WHEN 1 THEN '-0' ELSE i / 7.0 END::float8",
    "d": "CASE i % 20 WHEN 3 THEN 'infinity' WHEN 4 THEN '-infinity' WHEN 5 THEN '4713-01-01 BC' WHEN 6 THEN '5874897-12-31' ELSE date '1969-12-01' + i END",
    "tm": "time '00:00' + i * interval '3.210001 s'",
    "ts": "CASE i % 20 WHEN 7 THEN 'infinity' WHEN 8 THEN '-infinity' WHEN 9 THEN '294247-01-10 04:00:54.775806' WHEN 10 THEN '4713-01-01 BC' ELSE timestamp '1969-12-31' + i * interval '1 h 0.000001 s' END",
    "tz": "timestamptz '1969-12-31 23:59:59.5+00' + i * interval '1 h'", "u": "md5(i::text)::uuid",
    "t": "repeat('\u00e9\u4e2d' || i, i % 6)", "v": "'v' || i", "c": "left('abc' || i, i % 6)", "j": "json_build_object('i', i)", "by": "decode(repeat(md5(i::text), i % 3), 'hex')",
    "dn": "CASE i % 5 WHEN 0 THEN 'NaN' WHEN 1 THEN 999999999.999 ELSE i / -7.0 END", "dw": "CASE i % 3 WHEN 0 THEN 1e38 - 1 WHEN 1 THEN -1e38 + i ELSE i END", "dr": "i * -100",
    "b1": "i::bit(1)", "b19": "i::bit(19)", "tl": "'\u00e9' || lpad((i % 1000)::text, 3, '0')", "bl": "decode(md5(i::text), 'hex')",
    "iv": "i * interval '1 mon 1 d 1 s'", "q": "chr(65 + i % 26)::\"char\"", "n": "i / 7.0", "ab": "ARRAY[true, NULL]", "ta": "ARRAY['a', NULL, i::text]",
}


def row_values():
    texts = []
    for at, (name, kind, _, _) in enumerate(COLUMNS):
        if name in VALUES:
            value = VALUES[name]
        else:
            one = f"({VALUES[name[2:]]})::{kind.split('[')[0]}"
            value = f"ARRAY[{one}, {one}]" if name.startswith("w_") else f"CASE i % 4 WHEN 0 THEN '{{}}' WHEN 1 THEN ARRAY[{one}] WHEN 2 THEN ARRAY[{one}, NULL, {one}] ELSE ARRAY[{one}, {one}] END"
        texts.append(f"CASE WHEN (i + {at}) % 7 > 0 THEN {value} END")
    return ", ".join(texts)


def make(server, rows=0):
    columns = ", ".join(f"{name} {kind}" for name, kind, _, _ in COLUMNS)
    server.sql("DROP FOREIGN TABLE IF EXISTS ft")
    server.sql(f"CREATE FOREIGN TABLE ft (id int, {columns}) SERVER gstore_fdw OPTIONS (format 'arrow')")
    if rows:
        add(server, 1, rows)


def add(server, first, last):
    server.sql(f"INSERT INTO ft SELECT i, {row_values()} FROM generate_series({first}, {last}) i")


# ---- Arrow


def bit(bitmap, at):
    return bitmap[at // 8] >> at % 8 & 1


def fixed(kind, data, at):
    if kind == "b":
        return bool(bit(data, at))
    if kind.startswith("w:"):
        width = int(kind[2:])
        return data[at * width : (at + 1) * width].hex()
    if kind.startswith("d:"):
        return int.from_bytes(data[at * 16 : (at + 1) * 16], "little", signed=True)
    code = "<" + NUMBERS[kind]
    width = struct.calcsize(code)
    if kind in ("f", "g"):
        return data[at * width : (at + 1) * width][::-1].hex()  # big-endian, as PostgreSQL sends them
    return struct.unpack_from(code, data, at * width)[0]


def width_of(kind):
    if kind.startswith("d:"):
        return 16
    return int(kind[2:]) if kind.startswith("w:") else struct.calcsize(NUMBERS[kind])


class Column:
    """An array of Arrow's, by its buffers."""

    def __init__(self, rows, kind, element, values, nulls, bodies, element_nulls):
        self.rows, self.kind, self.element = rows, kind, element
        self.values, self.nulls, self.bodies, self.element_nulls = values, nulls, bodies, element_nulls

    def check(self):
        bits = (self.rows + 7) // 8
        if self.kind == "n":
            expect((self.values, self.nulls, self.bodies), (b"", b"", b""), "buffers of the null type")
            return
        if self.nulls:
            expect(len(self.nulls), bits, "bytes of the validity bitmap")
        if self.kind == "b":
            expect(len(self.values), bits, "bytes of bits")
        elif self.kind in ("U", "Z", "+L"):
            self.check_offsets()
        else:
            width = self.count() * width_of(self.element) if self.count() else width_of(self.kind)
            expect((len(self.values), self.bodies, self.element_nulls), (self.rows * width, b"", b""), "bytes of values")

    def check_offsets(self):
        offsets = self.offsets()
        expect(len(self.values), 8 * (self.rows + 1), "bytes of offsets")
        expect(offsets[0], 0, "the first offset")
        expect(list(offsets), sorted(offsets), "order of the offsets")
        if self.kind == "+L":
            width = width_of(self.element)
            expect(len(self.bodies), offsets[-1] * width, "bytes of the child's values")
            if self.element_nulls:
                expect(len(self.element_nulls), (offsets[-1] + 7) // 8, "bytes of the child's validity bitmap")
        else:
            expect(len(self.bodies), offsets[-1], "bytes of data")

    def count(self):
        """Elements of a fixed-size list; 0: it is none."""
        return int(self.kind[3:]) if self.kind.startswith("+w:") else 0

    def offsets(self):
        return struct.unpack(f"<{self.rows + 1}q", self.values)

    def list(self):
        """Values, None for NULL."""
        self.check()
        if self.kind == "n":
            return [None] * self.rows
        offsets = self.offsets() if self.kind in ("U", "Z", "+L") else None
        return [self.value(row, offsets) if not self.nulls or bit(self.nulls, row) else None for row in range(self.rows)]

    def value(self, row, offsets):
        if self.count():
            return [fixed(self.element, self.values, e) for e in range(row * self.count(), (row + 1) * self.count())]
        if offsets is None:
            return fixed(self.kind, self.values, row)
        start, end = offsets[row : row + 2]
        if self.kind == "U":
            return self.bodies[start:end].decode("utf8")
        if self.kind == "Z":
            return self.bodies[start:end].hex()
        return [fixed(self.element, self.bodies, e) if not self.element_nulls or bit(self.element_nulls, e) else None for e in range(start, end)]


def take(word):
    return b"" if word == "-" else bytes.fromhex(word)


def probe(server, *arguments):
    done = subprocess.run([str(BUILD / "postgres-run/arrow_probe"), *arguments], env=server.environ, capture_output=True, text=True)
    if done.returncode:
        raise Failed(done.stderr)
    return done.stdout.splitlines()


def read_token(server, token):
    lines = probe(server, "token", token)
    _, rows, _, layout = lines[0].split()
    expect(layout, "arrow", "layout")
    columns = {}
    for line in lines[1:]:
        name, kind, element, absent, *buffers = line.split()
        expect(absent == "1", kind == "n", f"absence of {name}")
        columns[name] = Column(int(rows), kind, element.strip("-"), *map(take, buffers))
    return columns


def handle_bytes(server, table="ft"):
    return take(probe(server, "handle", server.sql(f"SELECT encode(gstore_export_ipchandle('{table}'), 'hex')"))[0])


def read_handle(server, table="ft"):
    memory = handle_bytes(server, table)
    length, rows, version, count, kind, head_bytes, column_bytes, oid = struct.unpack_from("<QQIIc3xIII", memory)
    expect((length, version, kind, head_bytes, column_bytes), (len(memory), 2, b"a", HEAD_BYTES, COLUMN_BYTES), "head")
    expect(length % 64, 0, "length of the copy")
    expect(str(oid), server.sql(f"SELECT '{table}'::regclass::oid"), "table")
    columns, used = {}, []
    attributes = server.sql(f"SELECT attname, atttypid, atttypmod, attnum FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum").splitlines()
    expect(count, len(attributes), "columns")
    for i in range(count):
        at = HEAD_BYTES + i * COLUMN_BYTES
        name, kind, element = (part.rstrip(b"\0").decode() for part in struct.unpack_from("<64s16s16s", memory, at))
        type_oid, typmod, number = struct.unpack_from("<Iih", memory, at + 96)
        expect(f"{name}|{type_oid}|{typmod}|{number}", attributes[i], "column")
        buffers = []
        for offset, size in struct.iter_unpack("<QQ", memory[at + 112 : at + 176]):
            expect((offset % 64, (offset == 0) == (size == 0), offset + size <= length), (0, True, True), f"place of a buffer of {name}")
            buffers.append(memory[offset : offset + size])
            if size:
                used.append((offset, offset + size))
        nulls, offsets, values, element_nulls = buffers
        places = (offsets, nulls, values, element_nulls) if kind in ("U", "Z", "+L") else (values, nulls, b"", b"")
        columns[name] = Column(rows, kind, element, *places)
        if kind == "+L":
            expect(struct.unpack_from("<Q", memory, at + 176)[0], columns[name].offsets()[-1], f"elements of {name}")
        elif columns[name].count():
            expect(struct.unpack_from("<Q", memory, at + 176)[0], columns[name].count() * rows, f"elements of {name}")
    used.sort()
    for one, other in zip(used, used[1:]):
        if one[1] > other[0]:
            raise Failed(f"buffers overlap: {one}, {other}")
    return columns


def meaning_of(name):
    """What a value of a column is, in SQL; NULL: only whether it is NULL is compared."""
    meaning = next(column[3] for column in COLUMNS if column[0] == name)
    if meaning is None:
        return "'something'"
    if name[:2] not in ("a_", "w_"):
        return meaning.format(name)
    return f"(SELECT coalesce(json_agg({meaning.format('x')} ORDER BY n), '[]') FROM unnest({name}) WITH ORDINALITY u(x, n))"


def expect_sql(server, columns):
    """What the buffers mean is what SQL says, by id."""
    known = {name: (arrow, meaning) for name, _, arrow, meaning in COLUMNS}
    names = [name for name in columns if name in known]
    values = ", ".join(f"CASE WHEN {name} IS NOT NULL THEN {meaning_of(name)} END" for name in names)
    said = server.sql(f"SET timezone = 'UTC'; SELECT json_build_array(id, {values}) FROM ft")
    wanted = {row[0]: row[1:] for row in map(json.loads, said.splitlines())}
    ids = columns["id"].list()
    expect(sorted(ids), sorted(wanted), "rows")
    for at, name in enumerate(names):
        column, (arrow, meaning) = columns[name], known[name]
        if column.kind != "n":
            wanted_type = {"a_": ("+L", arrow), "w_": ("+w:2", arrow)}.get(name[:2], (arrow, ""))
            expect((column.kind, column.element), wanted_type, f"type of {name}")
        for row, value in zip(ids, column.list()):
            if meaning is None and value is not None:
                value = "something"
            expect(value, wanted[row][at], f"{name} of row {row}")


# ---- cases


class Bytes:
    EXAMPLE = """CREATE FOREIGN TABLE example (id int, ok bool, d date, t text, s smallint[]) SERVER gstore_fdw OPTIONS (format 'arrow');
        INSERT INTO example VALUES (1, true, '1970-01-02', 'Zoë', '{1,-1}'), (2, NULL, '2000-01-01', '', '{}'), (3, false, NULL, NULL, '{256,NULL}')"""
    # Values, validity, data or child, the child's validity; a value of None where Arrow leaves bytes undefined.
    WANTED = {
        "id": ("i", "", "01000000 02000000 03000000", "", "", ""),
        "ok": ("b", "", "01", "05", "", ""),
        "d": ("tdD", "", "01000000 cd2a0000", "03", "", ""),
        "t": ("U", "", "0000000000000000 0400000000000000 0400000000000000 0400000000000000", "03", "5a 6f c3ab", ""),
        "s": ("+L", "s", "0000000000000000 0200000000000000 0200000000000000 0400000000000000", "", "0100 ffff 0001 0000", "07"),
    }

    def example_has_the_bytes_that_are_documented(self, s):
        s.sql(self.EXAMPLE)
        for columns in (read_token(s, export(s, "example")), read_handle(s, "example")):
            expect(list(columns), list(self.WANTED), "columns")
            for name, (kind, element, *buffers) in self.WANTED.items():
                column = columns[name]
                column.check()
                found = [column.values, column.nulls, column.bodies, column.element_nulls]
                if name == "d":
                    found[0] = found[0][:8]
                expect((column.kind, column.element), (kind, element), f"type of {name}")
                expect([part.hex() for part in found], [part.replace(" ", "") for part in buffers], f"buffers of {name}")

    def values_of_every_type_are_those_of_sql(self, s):
        make(s, 1003)
        expect_sql(s, read_token(s, export(s)))
        expect_sql(s, read_handle(s))

    def shown_values_of_every_type_are_those_of_sql(self, s):
        make(s, 300)
        s.sql("ALTER FOREIGN TABLE ft DROP COLUMN iv, DROP COLUMN ab")  # which the tool shows as bytes
        attach.expect_same(s, "ft")

    def tables_of_few_rows_are_whole(self, s):
        for rows in (1, 2, 7, 8, 9, 63, 64, 65):
            make(s, rows)
            expect_sql(s, read_token(s, export(s)))
            expect_sql(s, read_handle(s))

    def copy_of_a_table_with_dead_rows_has_the_others(self, s):
        make(s, 1500)
        s.sql("DELETE FROM ft WHERE id % 3 = 1 OR id BETWEEN 700 AND 900; UPDATE ft SET t = 'new', b = NOT b, a_i2 = '{7,NULL}' WHERE id % 10 = 0")
        expect(s.sql("SELECT count(*) < 1500 FROM ft"), "t", "deleted rows")
        copy = read_handle(s)
        expect_sql(s, copy)
        token = read_token(s, export(s))
        expect({name: column.list() for name, column in copy.items()}, {name: column.list() for name, column in token.items()}, "what the token leads to")

    def rows_and_nulls_appended_later_change_nothing(self, s):
        s.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int, b bool, t text, a_i2 smallint[]) SERVER gstore_fdw OPTIONS (format 'arrow')")
        s.sql("INSERT INTO ft SELECT i, i % 2 = 0, 'x' || i, ARRAY[i, i] FROM generate_series(1, 1003) i")
        token = export(s)
        before = {name: column.list() for name, column in read_token(s, token).items()}
        expect([name for name, column in read_token(s, token).items() if column.nulls or column.element_nulls], [], "bitmaps without NULLs")
        s.sql("INSERT INTO ft SELECT i, NULL, NULL, CASE WHEN i % 2 = 0 THEN '{NULL,1}'::smallint[] END FROM generate_series(1004, 3000) i")
        expect({name: column.list() for name, column in read_token(s, token).items()}, before, "values")
        later = read_token(s, export(s))
        expect(sorted(name for name, column in later.items() if column.nulls), ["a_i2", "b", "t"], "bitmaps of the new token")
        expect({name: column.list()[:1003] for name, column in later.items()}, before, "values that were there")

    def columns_added_later_are_null(self, s):
        s.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int, i2 smallint, t text) SERVER gstore_fdw OPTIONS (format 'arrow')")
        s.sql("INSERT INTO ft SELECT i, i, 'x' || i FROM generate_series(1, 77) i")
        s.sql("ALTER FOREIGN TABLE ft DROP COLUMN i2, ADD COLUMN b bool, ADD COLUMN v varchar(30), ADD COLUMN a_i4 int[], ADD COLUMN i8 bigint")
        columns = read_token(s, export(s))
        expect({name: column.kind for name, column in columns.items()}, {"id": "i", "t": "U", "b": "n", "v": "n", "a_i4": "n", "i8": "n"}, "types")
        expect_sql(s, columns)
        copy = read_handle(s)
        expect({name: column.kind for name, column in copy.items()}, {"id": "i", "t": "U", "b": "b", "v": "U", "a_i4": "+L", "i8": "l"}, "types in the copy")
        expect_sql(s, copy)
        s.sql("INSERT INTO ft VALUES (78, 't', true, 'v', '{1,NULL}', 8)")
        expect_sql(s, read_token(s, export(s)))
        s.sql("DELETE FROM ft WHERE id < 9")
        expect_sql(s, read_handle(s))
        expect_sql(s, read_token(s, export(s)))

    def nothing_but_nulls_and_empty_values_is_whole(self, s):
        s.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int, t text, v varchar(30), by bytea, a_i2 smallint[], a_i4 int[], b bool) SERVER gstore_fdw OPTIONS (format 'arrow')")
        s.sql("INSERT INTO ft SELECT i, NULL, '', '', '{}', NULL, NULL FROM generate_series(1, 100) i")
        for columns in (read_token(s, export(s)), read_handle(s)):
            expect_sql(s, columns)
            expect([name for name, column in columns.items() if column.bodies], [], "columns with data")

    def changes_at_random_are_whole(self, s):
        seed = int(os.environ.get("SEED", time.time_ns() % 1000000))
        chance = random.Random(seed)
        print(f"# SEED={seed}")
        make(s)
        last = 0
        for _ in range(ROUNDS):
            rows = chance.choice((1, 3, 8, 200, 1000))
            undone = chance.randint(1, 300)
            s.sql(
                f"BEGIN; INSERT INTO ft SELECT i, {row_values()} FROM generate_series({last + 1}, {last + rows}) i; SAVEPOINT s;"
                f" INSERT INTO ft SELECT -i, {row_values()} FROM generate_series(1, {undone}) i; DELETE FROM ft WHERE id % 2 = 0; ROLLBACK TO s;"
                f" INSERT INTO ft SELECT i, {row_values()} FROM generate_series({last + rows + 1}, {last + rows + 5}) i; COMMIT"
            )
            last += rows + 5
            if chance.random() < 0.5:
                s.sql(f"DELETE FROM ft WHERE id % {chance.randint(2, 9)} = 1")
            expect_sql(s, read_handle(s))
            if chance.random() < 0.5:
                expect_sql(s, read_token(s, export(s)))

    def text_of_another_encoding_is_binary(self, s):
        s.sql("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
        s.sql("CREATE EXTENSION gstore_fdw; CREATE FOREIGN TABLE ft (id int, t text, c char(4)) SERVER gstore_fdw OPTIONS (format 'arrow'); INSERT INTO ft VALUES (1, U&'Zo\\00eb', U&'\\00eb')", database="latin")
        columns = read_token(s, s.sql("SELECT gstore_export('ft')", database="latin"))
        expect((columns["t"].kind, columns["t"].list()), ("Z", ["5a6feb"]), "text")
        expect((columns["c"].kind, columns["c"].list()), ("w:4", ["eb202020"]), "character")
        expect(s.sql("SELECT encode(convert_to(rpad(c, 4), 'LATIN1'), 'hex') FROM ft", database="latin"), "eb202020", "character in SQL")


def main():
    why = private.why_not()
    if why:
        print(f"1..0 # SKIP {why}")
        return 0
    wanted = sys.argv[1:]
    names = [name for name, value in vars(Bytes).items() if callable(value) and (not wanted or name in wanted)]
    print(f"1..{len(names)}", flush=True)
    private.build_probe("arrow_probe")
    server, code = Server("arrow"), 0
    for number, name in enumerate(names, 1):
        try:
            getattr(Bytes(), name)(server)
            print(f"ok {number} - {name}", flush=True)
        except (Failed, SqlError, subprocess.SubprocessError, OSError, ValueError, struct.error):
            code = 1
            print(f"not ok {number} - {name}", flush=True)
            for line in traceback.format_exc().splitlines() + server.log().splitlines()[-5:]:
                print(f"# {line[:600]}")
    server.end()
    return code


if __name__ == "__main__":
    sys.exit(main())
