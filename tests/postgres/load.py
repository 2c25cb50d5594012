#!/usr/bin/env python3
"""Rows that programs hand over in GPU memory, and files of Arrow's: TAP, a line a case.

usage: load.py [CASE...]. load_probe.c is the program, honest or hostile; layouts are made here, by gvmem/load.h and Arrow's
columnar format alone. Whatever it does, a table has the rows of statements that succeeded, and no others.
"""
import os
import shlex
import signal
import struct
import subprocess
import sys
import time

import arrow
import cases
from cases import group
from private import BUILD, PROJECT, Failed, expect

SIZE = 4 << 20
CODES = {"s": "h", "i": "i", "I": "I", "l": "q", "f": "f", "g": "d", "tdD": "i", "ttu": "q", "tsu:": "q", "tsu:UTC": "q"}
MALFORMED, ENDED = "22P03", "55000"

ATTEMPT = """
CREATE OR REPLACE FUNCTION attempt(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE said text;
BEGIN
    EXECUTE statement INTO said;
    RETURN said;
EXCEPTION WHEN OTHERS OR query_canceled THEN
    RETURN SQLSTATE;
END $$;
"""


# ---- layouts


def bits(flags):
    """A bitmap, with ones behind the last bit, which the server must ignore."""
    packed = bytearray(b"\xff" * ((len(flags) + 7) // 8))
    for at, flag in enumerate(flags):
        if not flag:
            packed[at // 8] &= ~(1 << at % 8)
    return bytes(packed)


def pack(kind, values):
    if kind == "b":
        return bits([bool(value) for value in values])
    if kind.startswith("w:"):
        return b"".join(value or bytes(int(kind[2:])) for value in values)
    if kind.startswith("d:"):
        return b"".join((value or 0).to_bytes(16, "little", signed=True) for value in values)
    return struct.pack(f"<{len(values)}{CODES[kind]}", *(value or 0 for value in values))


def running(lengths, wide):
    ends = [0]
    for length in lengths:
        ends.append(ends[-1] + length)
    return struct.pack(f"<{len(ends)}{'q' if wide else 'i'}", *ends)


class Column:
    """A column of Arrow's by its buffers, which may be replaced by others."""

    def __init__(self, name, kind, values, element=""):
        self.name, self.kind, self.element, self.rows = name, kind, element, len(values)
        self.validity = bits([value is not None for value in values]) if None in values else b""
        self.offsets = self.element_validity = b""
        self.elements = 0
        if kind in ("u", "U", "z", "Z"):
            texts = [b"" if v is None else v.encode() if isinstance(v, str) else v for v in values]
            self.offsets = running([len(text) for text in texts], kind.isupper())
            self.values = b"".join(texts)
        elif kind in ("+l", "+L"):
            lists = [value or [] for value in values]
            flat = [item for items in lists for item in items]
            self.offsets = running([len(items) for items in lists], kind.isupper())
            self.values = pack(element, flat)
            self.element_validity = bits([item is not None for item in flat]) if None in flat else b""
            self.elements = len(flat)
        elif kind.startswith("+w:"):
            flat = [item for items in values for item in items or [0] * int(kind[3:])]
            self.values = pack(element, flat)
            self.element_validity = bits([item is not None for item in flat]) if None in flat else b""
        else:
            self.values = b"" if kind == "n" else pack(kind, values)


def staged(*columns, rows=None, **head):
    """The bytes of a whole, and where each column's buffers are: {name: {buffer: offset}}."""
    rows = columns[0].rows if rows is None else rows
    at = 64 + 192 * len(columns)
    body, descriptions, places = bytearray(), bytearray(), {}
    for column in columns:
        refs = []
        for name in ("validity", "offsets", "values", "element_validity"):
            data = getattr(column, name)
            place = (at + len(body) + 63) // 64 * 64
            body.extend(bytes(place - at - len(body)) + data)
            refs += [place if data else 0, len(data)]
            places.setdefault(column.name, {})[name] = place
        descriptions += struct.pack(
            "<64s16s16sIih6x8QQ8x", column.name.encode(), column.kind.encode(), column.element.encode(), 0, -1, 0, *refs, column.elements
        )
    length = (at + len(body) + 63) // 64 * 64
    fields = {"length": length, "nitems": rows, "version": 2, "ncols": len(columns), "format": ord("a"), "head_bytes": 64, "column_bytes": 192}
    fields.update(head)
    whole = struct.pack(
        "<QQIIB3xIII24x", *(fields[n] for n in ("length", "nitems", "version", "ncols", "format", "head_bytes", "column_bytes")), 0
    )
    whole += bytes(descriptions) + bytes(body)
    return whole + bytes(length - len(whole)), places


# ---- the program


class Loader:
    alive = []

    def __init__(self, server):
        self.server = server
        self.process = subprocess.Popen(
            [str(BUILD / "postgres-run/load_probe")], env=server.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        Loader.alive.append(self)

    def ask(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline().strip()
        if not said:
            raise Failed(f"the probe ended at {words[0]}: {self.process.wait()}")
        return said

    def want(self, *words, status="GVM_OK"):
        expect(self.ask(*words), status, " ".join(words)[:80])

    def write(self, data):
        path = BUILD / "postgres-run/staged"
        path.write_bytes(data)
        self.want("file", str(path))

    def end(self):
        self.process.kill()
        self.process.wait()
        Loader.alive.remove(self)


def build_probe():
    (BUILD / "postgres-run").mkdir(exist_ok=True)
    subprocess.run(
        [
            *shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", f"-I{PROJECT}/include",
            str(PROJECT / "tests/postgres/load_probe.c"), "-o", str(BUILD / "postgres-run/load_probe"), f"-L{BUILD}", "-lgvmem", "-lpthread",
            f"-Wl,-rpath,{BUILD}",
        ],
        check=True,
    )


class Stage:
    """A session, a token of it and a program that has it open."""

    def __init__(self, server, table="ft", size=SIZE, session=None):
        self.table = table
        self.session = session or server.session()
        self.token = self.session.sql(f"SELECT gstore_load_begin('{table}', {size})")
        self.loader = Loader(server)
        expect(int(self.loader.ask("open", self.token)) >= size, True, "the object's size")

    def load(self, data=None, table=None):
        """The number of rows, or the SQLSTATE; the transaction goes on."""
        if data is not None:
            self.loader.write(data)
        return self.session.sql(f"SELECT attempt($t$SELECT gstore_load('{table or self.table}', '{self.token}')$t$)")

    def end(self):
        self.loader.end()
        self.session.close()


def make(server, columns, options="format 'arrow'", table="ft"):
    server.sql(f"DROP FOREIGN TABLE IF EXISTS {table}; CREATE FOREIGN TABLE {table} ({columns}) SERVER gstore_fdw OPTIONS ({options})")
    server.sql(ATTEMPT)


def rows_of(server, table="ft"):
    return server.sql(f"SELECT * FROM {table}").splitlines()


def plain(count, first=1):
    """(int, float8, text) of `count` rows, some NULL, and what psql shows of them."""
    numbers = list(range(first, first + count))
    ids = Column("id", "i", numbers)
    floats = Column("f", "g", [None if n % 7 == 0 else n / 2 for n in numbers])
    words = [None if n % 5 == 0 else f"r\u00e9{n}" * (n % 3) for n in numbers]
    shown = [f"{n}|{'' if n % 7 == 0 else format(n / 2, 'g')}|{word or ''}" for n, word in zip(numbers, words)]
    texts = Column("t", "u", words)
    return (ids, floats, texts), shown


@group("gstore_fdw.readers = all")
class Load:
    def rows_are_appended_wherever_a_byte_ends(self, server):
        make(server, "id int, f float8, t text")
        stage = Stage(server)
        wanted = []
        for count in (1, 3, 8, 5, 64, 1000):
            columns, shown = plain(count, len(wanted) + 1)
            expect(stage.load(staged(*columns)[0]), str(count), "rows")
            wanted += shown
            expect(rows_of(server), wanted, f"rows after {count} more")
            stage.end()
            server.sql(f"INSERT INTO ft VALUES ({len(wanted) + 1}, NULL, 'between')")
            wanted.append(f"{len(wanted) + 1}||between")
            stage = Stage(server)
        stage.end()
        expect(rows_of(server), wanted, "rows")

    def every_type_comes_as_it_is_exported(self, server):
        days, us = 10957, 10957 * 86400 * 1000000
        kinds = [
            ("b", "bool", "b", [True, None, False], ["t", "", "f"]), ("s", "smallint", "s", [-1, None, 7], ["-1", "", "7"]),
            ("l", "bigint", "l", [1 << 60, None, -5], [str(1 << 60), "", "-5"]), ("o", "oid", "I", [4294967295, None, 0], ["4294967295", "", "0"]),
            ("f", "real", "f", [0.5, None, -0.25], ["0.5", "", "-0.25"]), ("d", "date", "tdD", [days, None, 2**31 - 1], ["2000-01-01", "", "infinity"]),
            ("tm", "time", "ttu", [0, None, 86400000000], ["00:00:00", "", "24:00:00"]),
            ("ts", "timestamp", "tsu:", [us, None, 2**63 - 1], ["2000-01-01 00:00:00", "", "infinity"]),
            ("tz", "timestamptz", "tsu:UTC", [0, None, -(2**63)], ["1970-01-01 00:00:00+00", "", "-infinity"]),
            ("u", "uuid", "w:16", [bytes(range(16)), None, bytes(16)], ["00010203-0405-0607-0809-0a0b0c0d0e0f", "", "00000000-0000-0000-0000-000000000000"]),
            ("m", "macaddr", "w:8", [b"\x08\0\x2b\1\2\3\0\0", None, bytes(8)], ["08:00:2b:01:02:03", "", "00:00:00:00:00:00"]),
            ("t", "text", "U", ["a", None, "\u00e9\u4e2d"], ["a", "", "\u00e9\u4e2d"]), ("v", "varchar(3)", "u", ["abc", None, "\u00e9\u00e9\u00e9"], ["abc", "", "\u00e9\u00e9\u00e9"]),
            ("y", "bytea", "z", [b"\0\xff", None, b""], ["\\x00ff", "", "\\x"]), ("y2", "bytea", "Z", [b"\1", None, b"\2"], ["\\x01", "", "\\x02"]),
            ("n", "int", "n", [None, None, None], ["", "", ""]),
        ]
        lists = [("ai", "int[]", "+L", "i", [[1, None, 3], None, []], ["{1,NULL,3}", "", "{}"]), ("ad", "date[]", "+l", "tdD", [[days], None, [0, None]], ["{2000-01-01}", "", "{1970-01-01,NULL}"])]
        columns = [Column(name, kind, values) for name, _, kind, values, _ in kinds]
        columns += [Column(name, kind, values, element) for name, _, kind, element, values, _ in lists]
        definition = ", ".join(f"{row[0]} {row[1]}" for row in kinds + lists)
        shown = ["|".join(texts) for texts in zip(*(row[-1] for row in kinds + lists))]
        for options in ("format 'arrow'", "format 'pgstrom'"):
            make(server, definition, options)
            server.sql("ALTER DATABASE postgres SET timezone = 'UTC'; INSERT INTO ft DEFAULT VALUES")
            stage = Stage(server)
            stage.session.sql("BEGIN")
            for _ in range(3):
                expect(stage.load(staged(*columns)[0]), "3", f"rows, {options}")
            stage.session.sql("COMMIT")
            expect(rows_of(server), ["|" * (len(columns) - 1)] + shown * 3, options)
            server.sql("UPDATE ft SET s = 0 WHERE s = -1; DELETE FROM ft WHERE s = 7")
            stage.end()

    def columns_of_one_length_come_as_they_lie(self, server):
        """Decimals, bits, arrays and texts of one length: good ones as SQL shows them, bad ones not at all."""
        nan, days = -(1 << 127), 10957
        kinds = [
            ("n", "numeric(10,2)", "d:10,2", "", [12345, None, nan, -1], ["123.45", "", "NaN", "-0.01"], [10**10, -(10**10), nan + 1], "22003"),
            ("w", "numeric(38,0)", "d:38,0", "", [10**38 - 1, None, 0, 1 - 10**38], [str(10**38 - 1), "", "0", str(1 - 10**38)], [10**38, (1 << 127) - 1], "22003"),
            ("b", "bit(11)", "w:2", "", [b"\xff\xe0", None, b"\0\0", b"\x80\x20"], ["1" * 11, "", "0" * 11, "10000000001"], [b"\0\x10", b"\0\1"], MALFORMED),
            ("b8", "bit(8)", "w:1", "", [b"\xff", None, b"\0", b"\1"], ["1" * 8, "", "0" * 8, "00000001"], [], ""),
            ("t", "text OPTIONS (length '3')", "w:3", "", [b"abc", None, "\u4e2d".encode(), b"\xc3\xa9z"], ["abc", "", "\u4e2d", "\u00e9z"], [b"ab\0", b"ab\xc3", b"\xa9zz"], "22021"),
            ("y", "bytea OPTIONS (length '2')", "w:2", "", [b"\0\xff", None, b"ab", b"\0\0"], ["\\x00ff", "", "\\x6162", "\\x0000"], [], ""),
            ("a", "real[] OPTIONS (length '2')", "+w:2", "f", [[0.5, -1], None, [0, 2], [1, 1]], ["{0.5,-1}", "", "{0,2}", "{1,1}"], [[1, None]], "22004"),
            ("d", "date[] OPTIONS (length '1')", "+w:1", "tdD", [[days], None, [0], [1]], ["{2000-01-01}", "", "{1970-01-01}", "{1970-01-02}"], [[2**31 - 2]], "22008"),
        ]
        columns = [Column(name, kind, values, element) for name, _, kind, element, values, *_ in kinds]
        definition = ", ".join(f"{row[0]} {row[1]}" for row in kinds)
        shown = ["|".join(texts) for texts in zip(*(row[5] for row in kinds))]
        for options in ("format 'arrow'", "format 'pgstrom'"):
            make(server, definition, options)
            server.sql("INSERT INTO ft DEFAULT VALUES")
            stage = Stage(server)
            stage.session.sql("BEGIN")
            for _ in range(2):
                expect(stage.load(staged(*columns)[0]), "4", f"rows, {options}")
            for name, _, kind, element, good, _, bad, wanted in kinds:
                for value in bad:
                    expect(stage.load(staged(Column(name, kind, [*good, value], element))[0]), wanted, f"{name} {value}, {options}")
                expect(stage.load(staged(Column(name, "w:7", [b"1234567"]))[0]), "42804", f"another format for {name}")
            expect(stage.load(staged(Column("n", "d:10,3", [1]))[0]), "42804", "another scale")
            expect(stage.load(staged(Column("n", "d:38,2", [1]))[0]), "1", "another precision")
            stage.session.sql("COMMIT")
            expect(rows_of(server), ["|" * (len(columns) - 1)] + shown * 2 + ["0.01" + "|" * (len(columns) - 1)], options)
            stage.end()

    def copy_of_a_table_can_be_loaded(self, server):
        """All columns that can be, of 1500 rows of arrow.py; the copy is what gstore_export_ipchandle() makes."""
        refused = {"j", "iv", "q", "n", "ab", "ta"}
        arrow.make(server, 1500)
        server.sql(ATTEMPT + "".join(f"ALTER FOREIGN TABLE ft DROP COLUMN {name};" for name in refused))
        columns = [("id", "int")] + [(name, kind) for name, kind, _, _ in arrow.COLUMNS if name not in refused]
        types = ", ".join(f"{name} {kind}" for name, kind in columns)
        names = ", ".join(name for name, _ in columns)
        (copy,) = arrow.probe(server, "handle", server.sql("SELECT encode(gstore_export_ipchandle('ft'), 'hex')"))
        for options in ("format 'arrow'", "format 'pgstrom'"):
            server.sql("DROP FOREIGN TABLE IF EXISTS other")
            server.sql(f"CREATE FOREIGN TABLE other ({types}) SERVER gstore_fdw OPTIONS ({options})")
            stage = Stage(server, "other", size=len(copy) // 2)
            expect(stage.load(bytes.fromhex(copy)), "1500", "rows")
            expect(server.sql(f"SELECT count(*) FROM (SELECT {names} FROM ft) f WHERE f::text NOT IN (SELECT other::text FROM other)"), "0", "rows that differ")
            stage.end()

    def what_is_loaded_is_the_transactions(self, server):
        make(server, "id int, f float8, t text")
        columns, shown = plain(20)
        stage = Stage(server)
        other = server.session()
        stage.session.sql("BEGIN")
        expect(stage.load(staged(*columns)[0]), "20", "rows")
        expect(stage.session.sql("SELECT count(*) FROM ft"), "20", "rows that the transaction sees")
        expect(other.sql("SELECT count(*) FROM ft"), "0", "rows that others see")
        stage.session.sql("SAVEPOINT a")
        expect(stage.load(), "20", "the same again")
        stage.session.sql("ROLLBACK TO a")
        expect(stage.load(), "20", "and again")
        stage.session.sql("DELETE FROM ft WHERE id <= 10; COMMIT")
        expect(other.sql("SELECT count(*) FROM ft"), "20", "rows")
        expect(stage.load(), ENDED, "after the commit")
        server.wait_for(f"SELECT attempt($$SELECT gstore_revoke('{stage.token}')$$)", "false")
        stage.end()
        stage = Stage(server)
        stage.loader.write(staged(*columns)[0])
        stage.session.sql(f"BEGIN; SELECT gstore_load('ft', '{stage.token}'); ROLLBACK")
        expect(other.sql("SELECT count(*) FROM ft"), "20", "rows after a rollback")
        expect(stage.load(), "20", "after the rollback")
        expect(other.sql("SELECT count(*) FROM ft"), "40", "rows")
        stage.end()
        other.close()

    def token_is_loaded_by_one_transaction(self, server):
        """Neither a second session nor an inner subtransaction can load a token that another transaction has loaded."""
        make(server, "id int, f float8, t text")
        make(server, "id int, f float8, t text", table="gt")
        columns, shown = plain(20)
        stage = Stage(server)
        stage.loader.write(staged(*columns)[0])
        other = server.session()
        load = f"SELECT attempt($t$SELECT gstore_load('gt', '{stage.token}')$t$)"
        stage.session.sql("BEGIN")
        expect(stage.load(), "20", "rows")
        expect(other.sql(load), "55006", "by a second session")
        stage.session.sql("COMMIT")
        expect(other.sql(load), ENDED, "after the commit")
        other.close()
        stage.end()
        stage = Stage(server)
        stage.loader.write(staged(*columns)[0])
        stage.session.sql("BEGIN")
        expect(stage.load(), "20", "rows")
        stage.session.sql("SAVEPOINT a")
        expect(stage.load(table="gt"), "20", "into another table")
        stage.session.sql("ROLLBACK TO a; COMMIT")
        expect(stage.load(), ENDED, "after the commit, again")
        expect(server.sql("SELECT count(*) FROM ft UNION ALL SELECT count(*) FROM gt"), "40\n0", "rows")
        stage.end()

    def memory_under_a_lease_counts_until_it_is_free(self, server):
        """A program that keeps a lease keeps the memory of an ended token, which counts in the role's limit."""
        make(server, "id int")
        server.sql("DROP ROLE IF EXISTS keen; CREATE ROLE keen; GRANT INSERT ON ft TO keen; GRANT USAGE ON FOREIGN SERVER gstore_fdw TO keen")
        session = server.session()
        session.sql("SET gstore_fdw.load_memory = '64MB'; SET ROLE keen")
        begin = "SELECT attempt($$SELECT gstore_load_begin('ft', 60 * 1048576)$$)"
        token = session.sql(begin)
        loader = Loader(server)
        loader.ask("open", token)
        loader.want("take")
        expect(session.sql(f"SELECT gstore_revoke('{token}')"), "t", "the token ends")
        for _ in range(4):
            expect(session.sql(begin), "53400", "another one while the memory is kept")
        loader.end()
        token = session.sql(begin)
        expect(token.startswith("gstoreload"), True, f"another one when the program has ended: {token}")
        for _ in range(10):  # without a program the memory of one that has ended is free for the next
            session.sql(f"SELECT gstore_revoke('{token}')")
            token = session.sql(begin)
            expect(token.startswith("gstoreload"), True, f"another one: {token}")
        session.close()
        server.sql("DROP OWNED BY keen; DROP ROLE keen")

    def load_that_failed_keeps_no_memory(self, server):
        """Of a token that an outer subtransaction has loaded, and that is revoked before the transaction ends."""
        make(server, "id int")
        make(server, "word text", table="gt")
        server.sql("DROP ROLE IF EXISTS keen; CREATE ROLE keen; GRANT INSERT ON ft, gt TO keen; GRANT USAGE ON FOREIGN SERVER gstore_fdw TO keen")
        sessions = server.session(), server.session()
        for session in sessions:
            session.sql("SET gstore_fdw.load_memory = '64MB'; SET ROLE keen")
        stage = Stage(server, size=60 << 20, session=sessions[0])
        stage.loader.write(staged(Column("id", "i", [1, 2, 3]))[0])
        stage.session.sql("BEGIN")
        expect(stage.load(), "3", "rows")
        expect(stage.load(table="gt"), "42703", "rows of other columns")
        stage.loader.end()
        expect(sessions[1].sql(f"SELECT gstore_revoke('{stage.token}')"), "t", "the token ends")
        other = sessions[1].sql("SELECT attempt($$SELECT gstore_load_begin('ft', 60 * 1048576)$$)")
        expect(other.startswith("gstoreload"), True, f"another one while the transaction goes on: {other}")
        stage.session.sql("COMMIT")
        for session in sessions:
            session.close()
        expect(server.sql("SELECT count(*) FROM ft"), "3", "rows")
        server.sql("DROP OWNED BY keen; DROP ROLE keen")

    def readers_see_their_snapshot_while_rows_come(self, server):
        make(server, "id int, f float8, t text")
        columns, shown = plain(1000)
        reader = server.session()
        reader.sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM ft")
        for round_ in range(1, 4):
            stage = Stage(server)
            expect(stage.load(staged(*columns)[0]), "1000", "rows")
            expect(reader.sql("SELECT count(*) FROM ft"), "0", "rows of the old snapshot")
            expect(server.sql("SELECT count(*) FROM ft"), str(1000 * round_), "rows of a new one")
            stage.end()
        reader.close()

    def rules_hold_as_for_inserts(self, server):
        server.sql("DROP DOMAIN IF EXISTS even CASCADE; CREATE DOMAIN even AS int CHECK (value % 2 = 0)")
        server.sql("DROP TABLE IF EXISTS parts CASCADE; CREATE TABLE parts (id int, t text) PARTITION BY RANGE (id)")
        server.sql("CREATE FOREIGN TABLE part PARTITION OF parts FOR VALUES FROM (1) TO (10) SERVER gstore_fdw OPTIONS (format 'arrow')")
        good, null = Column("id", "i", [2, 4]), Column("id", "i", [2, None])
        odd, texts = Column("id", "i", [2, 11]), Column("t", "U", ["a", "abcd "])
        for definition, columns, wanted in (
            ("id int NOT NULL, t text", [null, texts], "23502"), ("id int, t text NOT NULL", [good], "23502"),
            ("id int CHECK (id < 10), t text", [odd, texts], "23514"), ("id even, t text", [odd, texts], "23514"),
            ("id int, t varchar(3)", [good, texts], "22001"), ("id int, t char(3)", [good, texts], "22001"),
            ("id int, u text", [good, texts], "42703"), ("id int, t int", [good, texts], "42804"), ("id bigint, t text", [good, texts], "42804"),
            ("id int, t jsonb", [good, texts], "0A000"), ("id int, t json", [good, texts], "0A000"), ("id int, t numeric", [good, texts], "0A000"),
            ("id int, t name", [good, texts], "0A000"), ("id int, t text GENERATED ALWAYS AS (id::text) STORED", [good, texts], "428C9"),
            ("id int, t text", [good, good], "42701"),
            ("id int NOT NULL, t char(5)", [good, texts], "2"), ("id even DEFAULT 8, t text", [texts], "2"), ("id int DEFAULT 7, t text", [texts], "2"),
            ("id int, t text, g int GENERATED ALWAYS AS (id * 2) STORED", [good, texts], "2"), ("id int, t text, s serial", [good, texts], "2"),
        ):
            if "serial" in definition:
                server.sql("DROP SEQUENCE IF EXISTS numbers; CREATE SEQUENCE numbers")
                definition = definition.replace("s serial", "s int DEFAULT nextval('numbers')")
            for options in ("format 'arrow'", "format 'pgstrom'"):
                make(server, definition, options)
                stage = Stage(server)
                expect(stage.load(staged(*columns)[0]), wanted, definition)
                expect(server.sql("SELECT count(*) FROM ft"), "2" if wanted == "2" else "0", f"rows of {definition}")
                stage.end()
        expect(server.sql("SELECT string_agg(id || t || s, ';') FROM ft"), "2a3;4abcd 4", "rows with a default")
        stage = Stage(server, "part")
        expect(stage.load(staged(odd, texts)[0]), "23514", "a row of another partition")
        expect(stage.load(staged(good, texts)[0]), "2", "rows of the partition")
        expect(server.sql("SELECT id, t || '.' FROM parts"), "2|a.\n4|abcd .", "rows of the partitioned table")
        stage.end()
        make(server, "id int, t text")
        server.sql("CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
        for when in ("BEFORE INSERT ON ft FOR EACH ROW", "AFTER INSERT ON ft FOR EACH STATEMENT", "AFTER UPDATE ON ft FOR EACH ROW"):
            server.sql(f"CREATE TRIGGER x {when} EXECUTE FUNCTION nothing()")
            stage = Stage(server)
            expect(stage.load(staged(good, texts)[0]), "2" if "UPDATE" in when else "0A000", when)
            stage.end()
            server.sql("DROP TRIGGER x ON ft")

    def lying_layouts_change_nothing(self, server):
        make(server, "id int, f float8, t text, a int[], d date, ts timestamp, tm time, b bool")
        big = 2**64 - 64
        server.sql("INSERT INTO ft (id, t) VALUES (1, 'there')")
        columns = [
            Column("id", "i", [1, 2, 3]), Column("f", "g", [1.0, None, 3.0]), Column("t", "U", ["ab", None, "cde"]),
            Column("a", "+L", [[1, None], None, [3]], "i"), Column("d", "tdD", [1, 2, 3]), Column("b", "b", [1, 0, 1]),
        ]
        whole, places = staged(*columns)

        def at(column, field):
            index = [c.name for c in columns].index(column)
            return 64 + 192 * index + {"validity": 112, "offsets": 128, "values": 144, "element_validity": 160, "elements": 176, "format": 64, "name": 0}[field]

        def changed(offset, code, *values):
            data = bytearray(whole)
            struct.pack_into("<" + code, data, offset, *values)
            return bytes(data)

        lies = {
            "format of the copy": changed(24, "B", ord("c")), "version": changed(16, "I", 9), "head_bytes": changed(28, "I", 128), "column_bytes": changed(32, "I", 64),
            "no columns": changed(20, "I", 0), "many columns": changed(20, "I", 2**32 - 1), "1664 columns": changed(20, "I", 1664), "length": changed(0, "Q", SIZE * 2),
            "length 0": changed(0, "Q", 0), "length of all": changed(0, "Q", 2**64 - 1), "rows": changed(8, "Q", 4000), "many rows": changed(8, "Q", 2**40),
            "more rows": changed(8, "Q", 2**61), "most rows": changed(8, "Q", 2**64 - 1), "a name without end": changed(at("id", "name"), "64s", b"i" * 64),
            "a format without end": changed(at("id", "format"), "16s", b"i" * 16),
        }
        for column in columns:
            for field in ("validity", "offsets", "values", "element_validity"):
                if getattr(column, field):
                    lies[f"{column.name} {field} beyond"] = changed(at(column.name, field), "QQ", SIZE - 8, 64)
                    lies[f"{column.name} {field} far"] = changed(at(column.name, field), "QQ", big, 64)
                    lies[f"{column.name} {field} long"] = changed(at(column.name, field), "QQ", 64, big)
                    lies[f"{column.name} {field} over"] = changed(at(column.name, field), "QQ", big, big)
                    if field in ("offsets", "values") and not (field == "values" and column.kind in ("U", "+L")):
                        lies[f"{column.name} {field} short"] = changed(at(column.name, field), "QQ", places[column.name][field], 0)
        for name, count in (("t", 5), ("a", 3)):
            lies[f"{name} decreasing"] = changed(places[name]["offsets"], "4q", 0, 2, 1, count)
            lies[f"{name} negative"] = changed(places[name]["offsets"], "4q", -1, 2, 2, count)
            lies[f"{name} beyond"] = changed(places[name]["offsets"], "4q", 0, 2, 2, count + 1)
            lies[f"{name} far beyond"] = changed(places[name]["offsets"], "4q", 0, 0, 0, 2**62)
            lies[f"{name} overflowing"] = changed(places[name]["offsets"], "4q", 0, 2**63 - 1, -(2**63), count)
        lies["elements"] = changed(at("a", "elements"), "Q", 2**62)
        lies["elements over"] = changed(at("a", "elements"), "Q", 2**64 - 1)
        lies["nothing but NULL"] = staged(Column("id", "n", [None]), rows=2**30)[0]
        stage = Stage(server)
        for what, data in lies.items():
            expect(stage.load(data), MALFORMED, what)
            expect(rows_of(server), ["1||there|||||"], what)
        stage.loader.write(bytes(SIZE))
        expect(stage.load(), MALFORMED, "zeros")
        expect(stage.load(whole), "3", "the truth")
        expect(server.sql("SELECT id, t, a, b FROM ft"), "1|there||\n1|ab|{1,NULL}|t\n2|||f\n3|cde|{3}|t", "rows")
        stage.end()
        stage = Stage(server)
        expect(stage.load(staged(*columns, rows=0)[0]), "0", "no rows")
        stage.end()

    def values_that_are_none_change_nothing(self, server):
        make(server, "id int, t text, d date, ts timestamp, tz timestamptz, tm time, ad date[]")
        two = Column("id", "i", [1, 2])
        bad = [
            ("t", "U", [b"a", b"\xff"], ""), ("t", "u", [b"\xc3", b"\xa9"], ""), ("t", "U", [b"a\0", b""], ""), ("t", "U", [b"\xed\xa0\x80", b"a"], ""),
            ("t", "U", [b"\xf4\x90\x80\x80", b""], ""), ("t", "U", [b"\xc0\xaf", b""], ""), ("d", "tdD", [0, 2**31 - 2], ""), ("d", "tdD", [-(2**31) + 1, 0], ""),
            ("ts", "tsu:", [0, -(2**63) + 1], ""), ("tz", "tsu:UTC", [-(2**63) + 1, 0], ""), ("tm", "ttu", [86400000001, 0], ""), ("tm", "ttu", [0, -1], ""),
            ("ad", "+L", [[0], [2**31 - 2]], "tdD"),
        ]
        stage = Stage(server)
        for name, kind, values, element in bad:
            said = stage.load(staged(two, Column(name, kind, values, element))[0])
            expect(said, "22021" if name == "t" else "22008", f"{name} {values}")
            expect(server.sql("SELECT count(*) FROM ft"), "0", "rows")
        # Where a row is NULL any bytes may be.
        column = Column("d", "tdD", [5, None])
        column.values = struct.pack("<2i", 5, 2**31 - 2)
        texts = Column("t", "U", [b"a", None])
        texts.values, texts.offsets = b"a\xff", struct.pack("<3q", 0, 1, 2)
        lists = Column("ad", "+L", [[5], None], "tdD")
        lists.values, lists.offsets, lists.elements = struct.pack("<2i", 5, 2**31 - 2), struct.pack("<3q", 0, 1, 2), 2
        expect(stage.load(staged(two, column, texts, lists)[0]), "2", "NULLs")
        expect(server.sql("SELECT id, t, d, ad FROM ft"), "1|a|1970-01-06|{1970-01-06}\n2|||", "rows")
        stage.end()

    def names_are_utf8_in_every_encoding(self, server):
        """In messages, what is none is shown as question marks."""
        rows, wrong = BUILD / "postgres-run/named.arrow", BUILD / "postgres-run/wrong.arrow"
        files = PROJECT / "tests/postgres/arrow_files"
        rows.write_bytes((files / "stamps.arrow").read_bytes().replace(b"\2\0\0\0id\0", b"\2\0\0\0" + "\u00e9\0".encode()))
        wrong.write_bytes((files / "dictionary.arrow").read_bytes().replace(b"\2\0\0\0id\0", b"\2\0\0\0\xff\xfe\0"))
        server.sql("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
        for database in ("latin", "postgres"):
            server.sql("CREATE EXTENSION IF NOT EXISTS gstore_fdw; "
                       "CREATE FOREIGN TABLE named (U&\"\\00e9\" timestamptz) SERVER gstore_fdw OPTIONS (format 'arrow'); "
                       "CREATE FOREIGN TABLE generated (id int, U&\"\\00e9\" timestamptz GENERATED ALWAYS AS (NULL::timestamptz) STORED) SERVER gstore_fdw; "
                       "CREATE FUNCTION message(statement text) RETURNS text LANGUAGE plpgsql AS "
                       "$$ BEGIN EXECUTE statement; EXCEPTION WHEN OTHERS THEN RETURN SQLERRM; END $$", database=database)
            loaded = server.sql(f"SELECT gstore_load_file('named', '{rows}')", database=database)
            expect(int(loaded) > 0 and server.sql("SELECT count(*) FROM named", database=database), loaded, "rows")
            said = server.sql(f"SELECT message($t$SELECT gstore_load_file('generated', '{rows}')$t$) = U&'cannot load values into column \"\\00e9\"'", database=database)
            expect(said, "t", "whether the message has the name")
        said = server.sql(f"SELECT message($t$SELECT gstore_load_file('named', '{wrong}')$t$)")
        expect(said.endswith("dictionaries: column ??"), True, said)
        server.sql("DROP DATABASE latin")
        server.sql("DROP FUNCTION message; DROP FOREIGN TABLE named, generated")

    def encoding_is_checked_where_pieces_meet(self, server):
        """A piece is 4 MiB: characters of three bytes lie across each place where one could end."""
        make(server, "t text")
        stage = Stage(server, size=32 << 20)
        long = "\u4e2d" * (3 << 20)
        texts = ["x" * 7, long, "\u4e2d" * 1000] + ["\u4e2dx"] * 5000 + [long]
        column = Column("t", "U", texts)
        expect(stage.load(staged(column)[0]), str(len(texts)), "rows")
        expect(server.sql("SELECT count(*), sum(length(t)), count(DISTINCT t) FROM ft"), f"{len(texts)}|{sum(map(len, texts))}|4", "rows")
        stage.end()
        for at in (7 + (4 << 20), len(column.values) - 1, 7 + len(long.encode()) - 1):
            data = bytearray(column.values)
            data[at] ^= 0x40
            stage = Stage(server, size=32 << 20)
            wrong = Column("t", "U", texts)
            wrong.values = bytes(data)
            expect(stage.load(staged(wrong)[0]), "22021", f"a wrong byte at {at}")
            expect(server.sql("SELECT count(*) FROM ft"), str(len(texts)), "rows")
            stage.end()

    def bytes_that_change_meanwhile_are_checked_as_they_are_stored(self, server):
        """The program writes without a lease, offsets, texts and dates that are wrong and right by turns."""
        make(server, "t text, d date")
        rows = 20000
        texts, dates = Column("t", "U", ["ab"] * rows), Column("d", "tdD", [1] * rows)
        whole, places = staged(texts, dates)
        for offset, code in (
            (places["t"]["offsets"] + 8 * 9999, struct.pack("<q", 2**40)), (places["t"]["values"] + rows, b"\xff"), (places["d"]["values"] + 4 * 9999, struct.pack("<i", 2**31 - 2)),
            (8, struct.pack("<Q", rows * 3)), (64 + 192 + 144, struct.pack("<QQ", 2**63, 2**63)), (64 + 128, struct.pack("<QQ", SIZE, 8)),
        ):
            stage = Stage(server)
            stage.loader.write(whole)
            stage.loader.want("scribble", str(offset), code.hex())
            outcomes = {}
            for _ in range(12):
                before = int(server.sql("SELECT count(*) FROM ft"))
                stage.session.sql("BEGIN")
                said = stage.load()
                outcomes[said] = outcomes.get(said, 0) + 1
                stage.session.sql("ROLLBACK")
                expect(said in (str(rows), MALFORMED, "22021", "22008"), True, f"{said} at {offset}")
                expect(int(server.sql("SELECT count(*) FROM ft")), before, "rows")
            expect(int(stage.loader.ask("stop")) > 12, True, "writes meanwhile")
            stage.loader.write(whole)
            expect(stage.load(), str(rows), "at rest")
            expect(server.sql("SELECT count(*), min(t), max(t), min(d), max(d) FROM ft"), f"{before + rows}|ab|ab|1970-01-02|1970-01-02", "rows")
            stage.end()

    def program_can_do_nothing_else(self, server):
        make(server, "id int")
        server.sql("INSERT INTO ft VALUES (1)")
        stage = Stage(server)
        for word in ("shrink", "seal", "name", "meta", "list", "make", "spy /gstore/0"):
            stage.loader.want(*word.split(), status="GVM_E_DENIED")
        stage.loader.want("grow", status="GVM_E_INVALID")
        stage.loader.want("poke", str(1 << 40), "00", status="GVM_E_INVALID")
        stage.loader.want("take")
        expect(stage.load(), "55P03", "under the program's lease")
        stage.loader.want("give")
        expect(stage.load(staged(Column("id", "i", [5]))[0]), "1", "without it")
        expect(server.sql("SELECT sum(id) FROM ft"), "6", "rows")
        stage.loader.want("close")
        expect(stage.loader.ask("open", stage.token), "GVM_E_ABSENT", "a token that was loaded")
        for token in ("x", "gstoreload", "gstoreload1:0:/gstore/0:/x", "gstoreload9:0:/gstore/00/load:/x", stage.token.replace("/load:", "/l:")):
            expect(stage.loader.ask("open", token) in ("GVM_E_FORMAT", "GVM_E_VERSION", "GVM_E_PEER", "GVM_E_ABSENT"), True, token)
        stage.end()

    def token_ends_with_what_made_it(self, server):
        make(server, "id int")
        data = staged(Column("id", "i", [5]))[0]
        loader = Loader(server)

        def ended(token):
            for _ in range(500):
                if loader.ask("open", token) == "GVM_E_ABSENT":
                    return
                loader.ask("close")
                time.sleep(0.01)
            raise Failed("the token lives")

        stage = Stage(server)
        stage.loader.end()
        stage.session.close()
        ended(stage.token)
        session = server.session()
        session.sql("BEGIN")
        token = session.sql("SELECT gstore_load_begin('ft', 1000000)")
        session.sql("ROLLBACK")
        ended(token)
        session.sql("BEGIN; SAVEPOINT a")
        token = session.sql("SELECT gstore_load_begin('ft', 1000000)")
        session.sql("ROLLBACK TO a; COMMIT")
        ended(token)
        token = session.sql("SELECT gstore_load_begin('ft', 1000000)")
        expect(session.sql(f"SELECT gstore_revoke('{token}'), gstore_revoke('{token}')"), "t|f", "revoking")
        ended(token)
        session.sql("SET gstore_fdw.token_lifetime = 1")
        token = session.sql("SELECT gstore_load_begin('ft', 1000000)")
        ended(token)
        session.close()
        stage = Stage(server)
        stage.loader.write(data)
        stage.loader.process.send_signal(signal.SIGKILL)
        stage.loader.process.wait()
        expect(stage.load(), "1", "of a program that is gone")
        stage.end()
        loader.end()
        server.wait_for("SELECT sum(device_resident) < 100000000 FROM gstore_fdw_keeper_info", "t")

    def others_need_rights(self, server):
        server.sql("DROP FOREIGN TABLE IF EXISTS ft; DROP ROLE IF EXISTS writer; CREATE ROLE writer; DROP ROLE IF EXISTS other; CREATE ROLE other")
        make(server, "id int, t text")
        session = server.session()

        def attempt(statement):
            return session.sql(f"SELECT attempt($t${statement}$t$)")

        session.sql("SET ROLE writer")
        expect(attempt("SELECT gstore_load_begin('ft', 100000)"), "42501", "without INSERT")
        expect(attempt("SELECT gstore_load_file('ft', '/etc/passwd')"), "42501", "a file")
        server.sql(f"COPY (SELECT 1) TO PROGRAM 'mkfifo {server.folder}/fifo'")
        expect(server.error(f"SELECT gstore_load_file('ft', '{server.folder}/fifo')"), "42809", "a FIFO that nobody writes")
        server.sql("GRANT INSERT (id) ON ft TO writer; GRANT INSERT ON ft TO other")
        token = session.sql("SELECT gstore_load_begin('ft', 100000)")
        loader = Loader(server)
        loader.ask("open", token)
        loader.write(staged(Column("id", "i", [5]))[0])
        session.sql("SET ROLE other")
        expect(attempt(f"SELECT gstore_load('ft', '{token}')"), "42501", "a token of another role")
        expect(attempt(f"SELECT gstore_revoke('{token}')"), "42501", "revoking it")
        session.sql("SET ROLE writer")
        expect(attempt(f"SELECT gstore_load('ft', '{token}')"), "1", "its own")
        token = session.sql("SELECT gstore_load_begin('ft', 100000)")
        loader.ask("close")
        loader.ask("open", token)
        loader.write(staged(Column("id", "i", [5]), Column("t", "U", ["x"]))[0])
        expect(attempt(f"SELECT gstore_load('ft', '{token}')"), "42501", "a column without INSERT")
        session.sql("RESET ROLE")
        expect(attempt("SELECT gstore_load('ft', 'gstore2:x')"), "22023", "no token")
        expect(attempt("SELECT gstore_load_begin('ft', 10)"), "22023", "too little")
        expect(attempt("SELECT gstore_load_begin('ft', -1)"), "22023", "less than nothing")
        expect(attempt(f"SELECT gstore_load_begin('ft', {2**62})"), "54000", "too much")
        expect(attempt("SELECT gstore_load_begin('pg_class', 1000)"), "42809", "no table of ours")
        expect(session.sql("SET gstore_fdw.load_memory = 3; SELECT attempt('SELECT gstore_load_begin(''ft'', 4000000)')"), "53400", "beyond load_memory")
        session.sql("RESET gstore_fdw.load_memory; BEGIN READ ONLY")
        expect(attempt(f"SELECT gstore_load('ft', '{token}')"), "25006", "in a read-only transaction")
        session.sql("ROLLBACK; SET gstore_fdw.load_memory = -1")
        tokens = [session.sql("SELECT gstore_load_begin('ft', 1000)") for _ in range(64)]
        expect(attempt("SELECT gstore_load_begin('ft', 1000)"), "53400", "more than 64")
        for one in tokens:
            session.sql(f"SELECT gstore_revoke('{one}')")
        loader.end()
        session.close()

    def segments_meet_without_a_gap(self, server):
        """More than one is read at a time: half a million rows, and 65536 where rows are made one by one."""
        count = 600001
        texts = ["\u00e9" * (i % 3) for i in range(count)]
        columns = (
            Column("id", "i", list(range(count))), Column("t", "u", texts), Column("b", "b", [i % 3 == 0 for i in range(count)]),
            Column("f", "f", [None if i % 1000 == 7 else 0.5 for i in range(count)]), Column("a", "+L", [[i] if i % 2 else None for i in range(count)], "i"),
        )
        data = staged(*columns)[0]
        wanted = f"{count}|{count * (count - 1) // 2}|{sum(i * (i % 3) for i in range(count))}|{sum(range(0, count, 3))}|{count - 600}|{sum(range(1, count, 2))}"
        for options in ("format 'arrow'", "format 'pgstrom'"):
            make(server, "id int, t text, b bool, f real, a int[]", options)
            server.sql("INSERT INTO ft SELECT WHERE false")
            stage = Stage(server, size=32 << 20)
            expect(stage.load(data), str(count), "rows")
            query = "SELECT count(*), sum(id), sum(id * length(t)::bigint), sum(id) FILTER (WHERE b), count(f), sum(a[1]) FILTER (WHERE a[1] = id) FROM ft"
            expect(server.sql(query), wanted, options)
            stage.end()
        places = staged(*columns)[1]
        make(server, "id int, t text, b bool, f real, a int[]")
        wrong = bytearray(data)
        at = places["t"]["offsets"] + 4 * (1 << 19)
        struct.pack_into("<i", wrong, at, 0)
        stage = Stage(server, size=32 << 20)
        expect(stage.load(bytes(wrong)), MALFORMED, "an offset where segments meet")
        expect(server.sql("SELECT count(*) FROM ft"), "0", "rows")
        stage.end()

    def bits_of_elements_pass_in_pieces(self, server):
        """A piece is 4 Mi elements: lists with NULL on both sides of where each ends, behind rows that end within a byte."""
        piece, lengths = 4 << 20, [0, 3000001, 5, 3000001, 3000001]
        total = sum(lengths)
        absent = [0, 3000000, 3000001, piece - 1, piece, 2 * piece - 1, 2 * piece, 2 * piece + 8, total - 1]
        column = Column("a", "+L", [[]] * len(lengths), "s")
        column.offsets, column.values, column.elements = running(lengths, True), b"\1\0" * total, total
        mask = bytearray(b"\xff" * ((total + 7) // 8))
        for at in absent:
            mask[at // 8] &= ~(1 << at % 8)
        wanted = []
        for row, length in enumerate(lengths):
            begin = sum(lengths[:row])
            wanted += [f"{row}|{at - begin + 1}" for at in absent if begin <= at < begin + length]
        sums = "\n".join(f"{row}|{length}" for row, length in enumerate(lengths))
        for options, all_there in (("format 'arrow'", False), ("format 'arrow'", True), ("format 'pgstrom'", False)):
            make(server, "id int, a smallint[]", options)
            server.sql("INSERT INTO ft VALUES (-1, '{1,NULL,3}')")
            column.element_validity = b"" if all_there else bytes(mask)
            stage = Stage(server, size=32 << 20)
            expect(stage.load(staged(Column("id", "i", list(range(len(lengths)))), column)[0]), str(len(lengths)), f"rows, {options}")
            stage.end()
            expect(server.sql("SELECT a FROM ft WHERE id = -1"), "{1,NULL,3}", "the row before")
            expect(server.sql("SELECT id, cardinality(a) FROM ft WHERE id >= 0 ORDER BY id"), sums, "lengths")
            found = server.sql("SELECT id, i FROM ft, unnest(a) WITH ORDINALITY u(v, i) WHERE id >= 0 AND v IS DISTINCT FROM 1 ORDER BY id, i", timeout=120)
            expect(found.splitlines(), [] if all_there else wanted, f"elements that are NULL, {options}")

    def program_or_session_killed_meanwhile_changes_nothing(self, server):
        server.sql(
            "CREATE FUNCTION slow(int) RETURNS bool LANGUAGE plpgsql AS "
            "'BEGIN IF $1 % 100 = 0 THEN PERFORM pg_sleep(0.001); END IF; RETURN true; END'"
        )
        make(server, "id int CHECK (slow(id)), t text")
        data = staged(Column("id", "i", list(range(200000))), Column("t", "U", ["abc"] * 200000))[0]
        server.sql("INSERT INTO ft VALUES (1, 'there')")
        for victim in ("program", "session", "cancel"):
            before = int(server.sql("SELECT count(*) FROM ft"))
            stage = Stage(server, size=len(data))
            stage.loader.write(data)
            stage.session.begin(f"SELECT gstore_load('ft', '{stage.token}')")
            server.wait_for("SELECT count(*) > 0 FROM gstore_fdw_progress")
            if victim == "program":
                stage.loader.process.kill()
                stage.loader.process.wait()
                expect(stage.session.finish(), "200000", "a load whose program is gone")
                before += 200000
            else:
                server.sql(f"SELECT pg_{'cancel' if victim == 'cancel' else 'terminate'}_backend({stage.session.pid})")
                expect(stage.session.error()[:5] in ("57014", "57P01", "conne"), True, victim)
            expect(int(server.sql("SELECT count(*) FROM ft")), before, f"rows after the end of the {victim}")
            stage.end()

    def large_loads_can_be_cancelled(self, server):
        """A check that sleeps makes the load longer than the limit, however fast the machine is."""
        rows = 400000
        server.sql("CREATE FUNCTION pause(int) RETURNS bool LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.02); RETURN true; END'")
        make(server, "id int CHECK (id % 1000 <> 0 OR pause(id))")
        stage = Stage(server)
        stage.loader.write(staged(Column("id", "i", list(range(rows))))[0])
        began = time.monotonic()
        load = f"SELECT attempt($t$SELECT gstore_load('ft', '{stage.token}')$t$)"
        expect(stage.session.sql(f"SET LOCAL statement_timeout = '200ms' \\; {load}"), "57014", "after 200 ms")
        expect(time.monotonic() - began < 6, True, "long before its 8 s of sleep are over")
        expect(server.sql("SELECT count(*) FROM ft"), "0", "rows")
        stage.end()
        stage = Stage(server)
        stage.loader.write(staged(Column("id", "i", list(range(rows))))[0])
        stage.session.begin(f"SELECT gstore_load('ft', '{stage.token}')")
        server.wait_for("SELECT command || '|' || relid::regclass FROM gstore_fdw_progress", "LOAD|ft")
        expect(stage.session.finish(), str(rows), "rows loaded")
        expect(server.sql("SELECT count(*), sum(id) FROM ft"), f"{rows}|{rows * (rows - 1) // 2}", "rows")
        stage.end()


@group("gstore_fdw.device_memory = 16MB", "gstore_fdw.host_memory = 16MB")
class Short:
    def want_of_memory_leaves_nothing(self, server):
        make(server, "id int, t text")
        session = server.session()
        expect(session.sql("SELECT attempt('SELECT gstore_load_begin(''ft'', 100000000)')"), "53200", "more than there is")
        stage = Stage(server, size=10 << 20, session=session)
        stage.loader.write(staged(Column("id", "i", list(range(1000))), Column("t", "U", ["x" * 9000] * 1000))[0])
        stage.session.sql("BEGIN")
        outcomes = [stage.load() for _ in range(4)]
        expect(outcomes[-1], "53200", "more than fits")
        stage.session.sql("COMMIT")
        expect(server.sql("SELECT count(*), count(t) FROM ft"), f"{1000 * outcomes.count('1000')}|{1000 * outcomes.count('1000')}", "rows")
        stage.end()
        server.sql("TRUNCATE ft; INSERT INTO ft VALUES (1, 'still')")
        expect(rows_of(server), ["1|still"], "rows")


@group()
class Lost:
    def keeper_that_ends_ends_the_load(self, server):
        make(server, "id int CHECK (id >= 0)")
        stage = Stage(server)
        stage.loader.write(staged(Column("id", "i", list(range(300000))))[0])
        pid = server.keeper_pid()
        stage.session.begin(f"SELECT attempt($t$SELECT gstore_load('ft', '{stage.token}')$t$)")
        os.kill(pid, signal.SIGTERM)
        said = stage.session.finish()
        expect(said in ("08006", "57P01", "300000", ENDED), True, f"the load says {said}")
        server.wait_keeper(pid)
        expect(server.sql("SELECT count(*) FROM ft"), "0", "rows")
        expect(stage.load(), ENDED, "the token of a keeper that is gone")
        stage.end()


def main():
    if not cases.private.why_not():
        build_probe()
        cases.private.build_probe("arrow_probe")
    try:
        return cases.main()
    finally:
        for loader in list(Loader.alive):
            loader.end()


if __name__ == "__main__":
    sys.exit(main())
