#!/usr/bin/env python3
"""The same random queries on a heap table and on tables in GPU memory, computed on the GPU and by the backend. TAP.

usage: queries.py [--seed N] [--queries N]

Results are the same: of integers, dates, filters and expressions to the last bit; sums of floats are of numbers whose sums are exact
in any order. An error that a heap table does not raise is none that the GPU may raise; fewer errors are allowed, as PostgreSQL does not say in
which order it evaluates. EXPLAIN says in how many queries the GPU has computed; it must be most of them.

Tables have the same rows, some of them deleted, some not committed yet, in both formats. A seed makes the same queries again, in the same version of Python.
"""
import argparse
import random
import re
import struct
import sys
import traceback

sys.dont_write_bytecode = True
import private  # noqa: E402
import wire  # noqa: E402
from private import Server  # noqa: E402

QUERIES = 20000
GROUPS = 10  # lines of TAP
ON_GPU_LEAST = 0.7
ANALYZED = 0.1  # of the queries: whether the GPU has computed, and not only the plan says so
WEIGHED = 0.2  # of the queries: also with costs, by which the planner dismisses some of its paths on the GPU
SETTINGS = ("autovacuum=off", "max_parallel_workers_per_gather=0", "gstore_fdw.gpu_startup_cost=0", "gstore_fdw.gpu_instruction_cost=0", "cpu_tuple_cost=0.0001", "enable_sort=off", "enable_partitionwise_aggregate=on", "jit=off", "constraint_exclusion=on")

# name: (type, how values are drawn). Those that end in _s are small, so that most arithmetic raises no error.
INTEGERS = {"smallint": 15, "integer": 31, "bigint": 63}
COLUMNS = {
    "i2": "smallint", "i4": "integer", "i8": "bigint", "i2_s": "smallint", "i4_s": "integer", "i8_s": "bigint", "f4": "real",
    "f8": "float8", "f4_s": "real", "f8_s": "float8", "d": "date", "t": "time", "ts": "timestamp", "tz": "timestamptz", "b": "bool",
    "o": "oid", "c": '"char"', "k": "integer", "k2": "smallint", "n_s": "numeric(9,2)", "n": "numeric(18,4)", "n_w": "numeric(30,3)", "nk": "numeric(4,1)",
    "u": "uuid", "e": "mood", "e2": "mood",
}
MOODS = ("sad", "ok", "fine", "happy")
# The last one's values have OIDs in another order.
MOOD_TYPES = (f"CREATE TYPE mood AS ENUM {MOODS}", "CREATE TYPE mood AS ENUM ('sad', 'happy'); ALTER TYPE mood ADD VALUE 'fine' BEFORE 'happy'; ALTER TYPE mood ADD VALUE 'ok' AFTER 'sad'")
NOT_NULL = {"k", "i4_s", "n_s"}
# Vectors, by their distances from others: of eighths, so that sums are exact.
ELEMENTS, BITS = 7, 20
INNER_TABLE = re.compile(r"@\d")
OUTER = re.compile(r"@(?!\d)")
LIMIT = re.compile(r" LIMIT \d+( OFFSET \d+)?$")
VECTORS = f", v real[]{{}}, w bit({BITS}), code char(4){{}}"
# Texts; code is behind the vectors, and of one length.
TEXTS = {"note": "text", "name": "varchar(12)", "tag": 'text COLLATE "C"', "code": "char(4)"}
TEXT_KEYS = ("tag", "tag", 'note COLLATE "C"', 'name COLLATE "C"', 'code COLLATE "C"', "lower(tag)", 'upper(note) COLLATE "C"')  # of ORDER BY
TEXT_GROUPS = (*TEXTS, *TEXTS, "lower(tag)", "upper(note)", 'lower(note) COLLATE "C"', 'upper(name COLLATE "C")', "lower(code)")
OTHERS = (*TEXTS, "v", "w")  # columns of types that the GPU does not compute with
LETTERS = "aAb B\u00e9\u20ac%_"
DISTANCES = ("<->", "<#>", "<+>")
# Of the inner tables of joins, which are named as the table, with the number at the end; in 1 keys are unique, and ji is in all.
INNER = {"jk": "integer", "jk2": "smallint", "jv": "bigint", "jf": "float8", "jd": "date", "jb": "bool", "jt": "text", "ji": "integer"}
INNER_ROWS = {1: 14, 2: 60}
FAMILIES = {"smallint": "integers", "integer": "integers", "bigint": "integers", "real": "floats", "float8": "floats",
            "numeric(9,2)": "decimals", "numeric(18,4)": "decimals", "numeric(30,3)": "decimals", "numeric(4,1)": "decimals"}
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


def quoted(text):
    return f"'{text}'"


class Values:
    """Literals of each type: what is in the tables, and what queries compare with."""

    def __init__(self, rng):
        self.rng = rng
        self.special = rng.random() < 0.3  # decimals that the GPU does not compute with
        self.long_start = "b" * rng.choice((7, 8, 15, 24, 31, 32, 33))  # of some texts, which an order of the GPU does not decide alone

    def integer(self, bits, small):
        rng, top = self.rng, 1 << bits
        if small:
            return rng.choice((0, 1, -1, rng.randint(-100, 100), rng.randint(-9, 9)))
        return rng.choice((0, -1, top - 1, -top, rng.randint(-top, top - 1), rng.randint(-100, 100), -top + 1))

    def floating(self, bits, small):
        rng = self.rng
        if small:
            return repr(rng.randint(-1000, 1000) / 8)
        form = {32: "<f", 64: "<d"}[bits]
        wild = struct.unpack(form, rng.getrandbits(bits).to_bytes(bits // 8, "little"))[0]
        return str(rng.choice(("NaN", "Infinity", "-Infinity", "-0", "0", rng.randint(-100, 100) / 4, wild, "1e-38", "3e38")))

    def decimal(self, kind, small):
        """What a column has. With NaN, and with what 62 bits do not have, the GPU does not compute."""
        rng, (digits, scale) = self.rng, map(int, kind[8:-1].split(","))
        if self.special and rng.random() < 0.01:
            return rng.choice(("NaN", f"{10 ** (digits - scale) - 1}"))
        number = rng.randint(-2000, 2000) if small else rng.randint(-(10 ** min(digits, 17)) + 1, 10 ** min(digits, 17) - 1)
        return f"{number}e-{scale}"

    def number(self):
        """What decimals are compared with: of any scale."""
        rng = self.rng
        return rng.choice(("NaN", "Infinity", "-1e25", "0", "1.50", "2.500001", str(rng.randint(-100, 100)), f"{rng.randint(-10**6, 10**6)}e-{rng.randint(0, 6)}", f"{rng.randint(-2000, 2000)}e-2"))

    def date(self):
        return self.rng.choice(("infinity", "-infinity", "1970-01-01", "2000-01-01", "4714-11-24 BC", "5874897-12-31", f"{self.rng.randint(1900, 2100)}-{self.rng.randint(1, 12)}-{self.rng.randint(1, 28)}"))

    def time(self):
        return self.rng.choice(("00:00", "24:00", f"{self.rng.randint(0, 23)}:{self.rng.randint(0, 59)}:{self.rng.randint(0, 59)}.{self.rng.randint(0, 999999):06}"))

    def timestamp(self):
        return self.rng.choice(("infinity", "-infinity", "1970-01-01", f"{self.rng.randint(1900, 2100)}-{self.rng.randint(1, 12)}-{self.rng.randint(1, 28)} {self.time().replace('24:', '23:')}"))

    def literal(self, kind, small=False):
        rng = self.rng
        if kind in INTEGERS:
            return f"{quoted(self.integer(INTEGERS[kind], small))}::{kind}"
        if FAMILIES.get(kind) == "decimals":
            return f"{quoted(self.number())}::numeric"
        plain = {
            "real": lambda: self.floating(32, small), "float8": lambda: self.floating(64, small), "date": self.date, "time": self.time,
            "timestamp": self.timestamp, "timestamptz": self.timestamp, "bool": lambda: rng.choice(("t", "f")),
            "uuid": lambda: f"{rng.choice(('7fffffff', '80000000'))}-0000-0000-{rng.choice(('7fff', '8000'))}-00000000000{rng.randrange(10)}", "mood": lambda: rng.choice(MOODS),
            "oid": lambda: rng.choice((0, 4294967295, rng.randrange(100))), '"char"': lambda: rng.choice("abcZ\u00e9")[0].encode("latin1").decode("latin1") if rng.random() < 0.9 else "",
        }
        value = plain[kind]()
        if kind == '"char"' and value and ord(value) > 127:
            value = "\\351"
        if kind == "real" and value not in ("NaN",) and not small:
            value = real(value)
        return f"{quoted(value)}::{kind}"

    def vector(self):
        return f"'{{{','.join(str(self.rng.randint(-128, 128) / 8) for _ in range(ELEMENTS))}}}'::real[]"

    def bits(self):
        return f"B'{self.rng.getrandbits(BITS):0{BITS}b}'"

    def letters(self, most):
        return "".join(self.rng.choice(LETTERS) for _ in range(self.rng.randint(0, most)))

    def of_text(self, name):
        rng = self.rng
        if rng.random() < 0.1:
            return "NULL"
        if name == "note":
            return quoted("note " * rng.randint(0, 9) + str(rng.randrange(9000)))
        if name == "tag" and rng.random() < 0.2:
            return quoted(self.long_start + self.letters(rng.choice((0, 1, 3, 40))))
        text = rng.choice(("ab", "a", "", self.letters(4), self.letters(4), self.letters({"name": 12, "code": 4, "tag": 40}[name])))
        return quoted(text.replace("\u00e9", "b").replace("\u20ac", "a") if name == "code" else text)

    def pattern(self):
        rng = self.rng
        parts = [rng.choice(("%", "%", "_", "a", "ab", "b", "\u00e9", "note", "1", " ", "\\%", "\\_", self.letters(3))) for _ in range(rng.randint(0, 5))]
        return quoted("".join(parts) + ("\\" if rng.random() < 0.02 else ""))

    def of_column(self, name):
        if name not in NOT_NULL and self.rng.random() < 0.1:
            return f"NULL::{COLUMNS[name]}"
        if name == "k":
            return str(self.rng.randint(-3, 12))
        if name == "k2":
            return str(self.rng.choice((self.rng.randrange(200), -32768)))
        if FAMILIES.get(COLUMNS[name]) == "decimals":
            return f"{quoted(self.decimal(COLUMNS[name], name != 'n'))}::{COLUMNS[name]}"
        return self.literal(COLUMNS[name], name.endswith("_s"))


def real(text):
    """What a real can have: PostgreSQL refuses others."""
    number = float(text)
    if number != number or number in (float("inf"), float("-inf")):
        return text
    if abs(number) > 3.4e38 or 0 < abs(number) < 1.2e-38:
        return "1.5"
    return text


class Query:
    """One random query; @ stands for the table."""

    def __init__(self, rng):
        self.rng, self.values = rng, Values(rng)

    def column(self, kind, small=None):
        names = [n for n, t in COLUMNS.items() if t == kind and (small is None or not FAMILIES.get(kind) or small == (n.endswith("_s") or n.startswith("k")))]
        return self.rng.choice(names or [n for n, t in COLUMNS.items() if t == kind])

    def kind(self, *families):
        return self.rng.choice([t for t in set(COLUMNS.values()) if not families or FAMILIES.get(t, t) in families])

    def arithmetic(self, kind, depth):
        rng = self.rng
        small = rng.random() < 0.93
        left, right = self.number(kind, depth - 1, small), self.number(self.narrower(kind), depth - 1, small)
        if rng.random() < 0.5:
            left, right = (left, right) if rng.random() < 0.5 else (right, left)
        operator = rng.choice("+-*+-*/%" if FAMILIES[kind] == "integers" else "+-*/")
        if operator in "/%" and rng.random() < 0.8:
            right = self.values.literal(kind, True).replace("'0'", "'3'").replace("'0.0'", "'3'").replace("'-0.0'", "'3'")
        return f"({left} {operator} {right})"

    def narrower(self, kind):
        order = ["smallint", "integer", "bigint"] if FAMILIES[kind] == "integers" else ["real", "float8"]
        return self.rng.choice(order[: order.index(kind) + 1])

    def distance(self):
        rng = self.rng
        if rng.random() < 0.3:
            return f"gstore_{rng.choice(('hamming', 'jaccard'))}_distance(w, {self.values.bits()})"
        pair = ["v", self.values.vector() if rng.random() < 0.95 else "NULL::real[]"]
        rng.shuffle(pair)
        return f"({f' {rng.choice(DISTANCES)} '.join(pair)})"

    def number(self, kind, depth, small):
        """An expression that has this type, whatever an operator makes of narrower ones."""
        rng = self.rng
        if kind == "float8" and small and rng.random() < 0.3:
            return self.distance()
        if depth <= 0 or rng.random() < 0.4:
            return self.column(kind, small) if rng.random() < 0.75 else self.values.literal(kind, small)
        choice = rng.random()
        if choice < 0.1:
            return f"({self.function(kind, depth, small)})::{kind}"
        if choice < 0.5:
            return f"({self.arithmetic(kind, depth)})::{kind}"
        if choice < 0.6:
            return rng.choice(("(- {})", "abs({})")).format(self.number(kind, depth - 1, small))
        if choice < 0.75:
            other = self.number(self.kind("integers", "floats"), depth - 1, True)
            return f"({other})::{kind}"
        return self.conditional(lambda: self.number(kind, depth - 1, small), depth)

    def extreme(self, make):
        return f"{self.rng.choice(('greatest', 'least'))}({', '.join(make() for _ in range(self.rng.choice((2, 2, 3))))})"

    def function(self, kind, depth, small):
        """Of integers or floats, of a type that has a cast to this one."""
        rng = self.rng

        def one():
            return self.number(kind, depth - 1, small)
        if rng.random() < 0.3:
            return self.extreme(one)
        if kind in INTEGERS:
            return rng.choice((f"{one()} {rng.choice('&|#')} {one()}", f"~ {one()}", f"{one()} {rng.choice(('<<', '>>'))} {rng.randint(0, 9)}", f"{self.date(1)} - {self.date(0)}", f"({self.decimal(depth - 1)})"))
        if kind == "float8" and rng.random() < 0.3:
            return self.decimal(depth - 1)
        return rng.choice((*("round({})", "floor({})", "ceil({})", "trunc({})", "sign({})", "sqrt(abs({}))") * 3, "sqrt({})")).format(one())

    def date(self, depth):
        return self.column("date") if depth <= 0 or self.rng.random() < 0.5 else f"({self.column('date')} {self.rng.choice('+-')} {self.rng.choice((0, 1, 30, 'i2_s', 'k', 'i4_s'))})"

    def interval(self):
        rng = self.rng
        return f"interval '{rng.choice(('1 day', '-3 days', '1 month', '-13 months', '30 months 5 days', '1 h', '36 h 0.5 s', '2 days -3 h', '0', f'{rng.randint(-900, 900)} months {rng.randint(-60, 60)} days'))}'"

    def moved(self, kind):
        """A date or a timestamp by some time."""
        if kind == "date":
            return self.date(1)
        argument = "d" if kind == "timestamp" and self.rng.random() < 0.2 else self.column(kind)
        return f"({argument} {self.rng.choice('+-')} {self.interval()})"

    def times(self):
        """A comparison of different types of dates and timestamps, or of what is between them."""
        rng = self.rng
        kinds = rng.sample(("date", "timestamp", "timestamptz"), 2)
        if rng.random() < 0.5:
            sides = [self.moved(kinds[0]) if rng.random() < 0.2 else self.column(kinds[0]), self.values.literal(kinds[1]) if rng.random() < 0.7 else self.column(kinds[1])]
            rng.shuffle(sides)
            return f"{sides[0]} {rng.choice(COMPARISONS)} {sides[1]}"
        between = f"({self.column(kinds[1]) if kinds[1] != 'date' else 'ts'} - {rng.choice(('ts', self.values.literal('timestamp'))) if kinds[1] != 'timestamptz' else self.values.literal('timestamptz')})"
        if rng.random() < 0.5:
            return f"{between} {rng.choice(COMPARISONS)} {self.interval()}"
        field, form = rng.choice(("epoch", "day", "hour", "minute")), rng.choice(("extract({} FROM {})", "date_part('{}', {})"))
        return f"{form.format(field, between)} {rng.choice(COMPARISONS)} {rng.choice((0, 1, -5, 86400.5))}"

    def decimal(self, depth):
        """An expression of decimals, of whatever scale."""
        rng = self.rng
        choice = rng.random()
        if depth <= 0 or choice < 0.4:
            return self.column(self.kind("decimals")) if rng.random() < 0.85 else self.values.literal("numeric(9,2)")
        if choice < 0.5:
            return rng.choice((f"{rng.choice(('round', 'trunc'))}({self.decimal(depth - 1)}, {rng.randint(-2, 5)})", f"{rng.choice(('floor', 'ceil', 'sign', 'round', 'trunc'))}({self.decimal(depth - 1)})", f"({self.decimal(depth - 1)})::numeric({rng.randint(5, 25)},{rng.randint(0, 4)})", self.extreme(lambda: self.decimal(depth - 1))))
        if choice < 0.7:
            return f"({self.decimal(depth - 1)} {rng.choice('+-*+-*%')} {self.decimal(depth - 1)})"
        if choice < 0.8:
            return rng.choice(("(- {})", "abs({})")).format(self.decimal(depth - 1))
        if choice < 0.88:
            return f"{self.number(self.kind('integers'), depth - 1, True)}::numeric"
        return self.conditional(lambda: self.decimal(depth - 1), depth)

    def conditional(self, make, depth):
        rng = self.rng
        choice = rng.random()
        if choice < 0.4:
            return f"coalesce({make()}, {make()})"
        if choice < 0.7:
            return f"CASE WHEN {self.condition(depth - 1)} THEN {make()} ELSE {make()} END"
        return f"CASE WHEN {self.condition(depth - 1)} THEN {make()} WHEN {self.condition(depth - 1)} THEN {make()} END"

    def expression(self, kind, depth):
        if FAMILIES.get(kind) == "decimals":
            return self.decimal(depth) if self.rng.random() < 0.5 else self.column(kind)
        if kind in FAMILIES:
            return self.number(kind, depth, self.rng.random() < 0.7)
        if kind == "bool" and depth > 0 and self.rng.random() < 0.5:
            return f"({self.condition(depth - 1)})"
        if depth > 0 and self.rng.random() < 0.2:
            return self.conditional(lambda: self.expression(kind, 0), depth)
        if depth > 0 and kind in ("date", "timestamp", "timestamptz") and self.rng.random() < 0.4:
            return self.moved(kind)
        if depth > 0 and self.rng.random() < 0.1:
            return self.extreme(lambda: self.expression(kind, 0))
        return self.column(kind) if self.rng.random() < 0.85 else self.values.literal(kind)

    def field(self):
        """Of a date or a timestamp, with what it is compared with."""
        rng = self.rng
        column, fields = rng.choice((("d", ""), ("ts", "hour minute second"), ("tz", "hour minute second"), ("t", "hour minute second epoch")))
        fields = fields.split() if column == "t" else "year quarter month week isoyear day doy dow isodow epoch decade century millennium".split() + fields.split()
        if column in ("ts", "tz") and rng.random() < 0.4:
            return f"date_trunc('{rng.choice('year quarter month week day hour minute second'.split())}', {column}) {rng.choice(COMPARISONS)} {self.values.literal(COLUMNS[column])}"
        return f"extract({rng.choice(fields)} FROM {column}) {rng.choice(COMPARISONS)} {rng.choice((0, 1, 7, 12, 30, 2000, 1.5))}"

    def of_text(self, column):
        """A condition on a text."""
        rng, name = self.rng, "tag" if column == "jt" else column

        def value():
            return self.values.of_text(name)
        choice = rng.random()
        if rng.random() < 0.3:
            column = rng.choice(("lower({})", "upper({})", "left({}, 2)", "substr({}, 1, 3)", "coalesce({}, 'ab')", "coalesce({}, '')")).format(column)
        if choice < 0.3:
            left, right = (column, f"{value()}::text") if rng.random() < 0.9 else (f"{value()}::text", column)
            return f"{left} {rng.choice(('=', '<>', 'IS DISTINCT FROM', 'IS NOT DISTINCT FROM'))} {right}"
        if choice < 0.45:
            return f"{column} {rng.choice(('', 'NOT '))}IN ({', '.join(value() for _ in range(rng.randint(1, 12)))})"
        if choice < 0.5:
            return f"{column} IS {rng.choice(('', 'NOT '))}NULL"
        if choice < 0.57:
            return f"starts_with({column}, {value()})"
        if choice < 0.64:
            return f"{rng.choice(('length', 'octet_length'))}({column}) {rng.choice(COMPARISONS)} {rng.randint(0, 30)}"
        if choice < 0.7:
            return f"CASE {column} WHEN {value()} THEN b WHEN {value()} THEN NOT b ELSE k > 3 END"
        return f"{column} {rng.choice(('', 'NOT '))}{rng.choice(('LIKE', 'LIKE', 'ILIKE'))} {self.values.pattern()}"

    def condition(self, depth):
        rng = self.rng
        if rng.random() < 0.12:
            return f"({self.of_text(rng.choice(list(TEXTS)))})"
        choice = rng.random()
        if rng.random() < 0.06:
            return f"({self.field() if rng.random() < 0.6 else self.times()})"
        if depth > 0 and choice < 0.25:
            return f"({self.condition(depth - 1)} {rng.choice(('AND', 'OR'))} {self.condition(depth - 1)})"
        if depth > 0 and choice < 0.32:
            return f"(NOT {self.condition(depth - 1)})"
        kind = self.kind()
        left = self.expression(kind, depth - 1)
        if choice < 0.40:
            return f"({left if rng.random() < 0.8 else rng.choice(OTHERS)} IS {rng.choice(('', 'NOT '))}NULL)"
        if choice < 0.46:
            return f"(({self.condition(depth - 1)}) IS {rng.choice(('', 'NOT '))}{rng.choice(('TRUE', 'FALSE', 'UNKNOWN'))})"
        if choice < 0.52:
            return rng.choice(("b", "(NOT b)"))
        if choice < 0.60:
            items = [self.values.literal(kind, rng.random() < 0.7) for _ in range(rng.randint(1, 12))]
            if rng.random() < 0.1:
                items.append(f"NULL::{kind}")
            return f"({left} {rng.choice(('', 'NOT '))}IN ({', '.join(items)}))"
        small = rng.random() < 0.7
        other_kind = self.kind(FAMILIES[kind]) if kind in FAMILIES else kind
        other = self.values.literal(other_kind, small) if rng.random() < 0.7 else self.expression(other_kind, depth - 1)
        if choice < 0.68:
            return f"({left} IS {rng.choice(('', 'NOT '))}DISTINCT FROM {other})"
        if choice < 0.76:
            return f"({left} BETWEEN {self.values.literal(other_kind, small)} AND {other})"
        return f"({left} {rng.choice(COMPARISONS)} {other})"

    def aggregate(self):
        rng = self.rng
        choice = rng.random()
        if choice < 0.2:
            text = "count(*)"
        elif choice < 0.3:
            text = f"count({self.expression(self.kind(), 1) if rng.random() < 0.8 else rng.choice(OTHERS)})"
        elif choice < 0.32:
            column = rng.choice(("ts", "tz"))
            return f"{rng.choice(('sum', 'avg'))}({column} - {self.values.literal('timestamptz')}) FILTER (WHERE {column} BETWEEN '1800-01-01' AND '2200-01-01')"
        elif choice < 0.38:
            text = f"{rng.choice(('sum', 'avg'))}({self.decimal(rng.choice((0, 0, 1, 2)))})"
        elif choice < 0.55:
            text = f"{rng.choice(('sum', 'avg'))}({self.number(self.kind('integers'), rng.choice((0, 0, 1, 2)), rng.random() < 0.5)})"
        elif choice < 0.65:
            # Exact in any order: eighths, and products of two of them.
            text = f"{rng.choice(('sum', 'avg'))}({rng.choice(('f8_s', 'f4_s', 'f8_s * f8_s', 'f8_s + f4_s', 'f8_s * i4_s', '- f8_s'))})"
        elif choice < 0.9:
            kind = self.kind()
            while kind in ("bool", '"char"', "uuid"):
                kind = self.kind()
            text = f"{rng.choice(('min', 'max'))}({self.expression(kind, 1)})"
        elif choice < 0.93:
            text = f"{rng.choice(('var_pop', 'var_samp', 'variance', 'stddev', 'stddev_pop', 'stddev_samp'))}({self.number(self.kind('integers'), rng.choice((0, 0, 1)), rng.random() < 0.9)})"
        elif choice < 0.94:
            # Rounded in another order of additions.
            text = f"{rng.choice(('var_pop', 'var_samp', 'variance', 'stddev', 'stddev_pop', 'stddev_samp'))}({rng.choice(('f8_s', 'f4_s', 'f8_s + f4_s', 'f8_s + 1000'))})"
            filtered = f" FILTER (WHERE {self.condition(1)})" if rng.random() < 0.2 else ""
            return f"round(({text}{filtered} * 1.0123456789)::numeric, 3)"
        elif choice < 0.96:
            text = f"{rng.choice(('bool_and', 'bool_or', 'every'))}({self.condition(1)})"
        else:
            text = f"{rng.choice(('bit_and', 'bit_or'))}({self.expression(self.kind('integers'), 1)})"
        return text + (f" FILTER (WHERE {self.condition(1)})" if rng.random() < 0.2 else "")

    def text(self):
        """Aggregates; columns of rows that meet conditions; the first ones in a total order."""
        choice = self.rng.random()
        if choice < 0.15:
            return self.joined() if choice < 0.1 else self.joined_rows()
        return self.rows() if choice < 0.35 else self.first_rows() if choice < 0.5 else self.distinct_rows() if choice < 0.53 else self.groups()

    def keys(self, count, more=()):
        """So many columns that the GPU groups by, a text among them in a third of the queries."""
        keys = self.rng.sample([*more, *(n for n, t in COLUMNS.items() if t not in ("real", "float8"))], count)
        if keys and self.rng.random() < 0.3:
            keys[0] = self.rng.choice(TEXT_GROUPS)
        return keys

    def distinct_rows(self):
        rng = self.rng
        columns = self.keys(rng.choice((1, 1, 2, 3)))
        where = f" WHERE {self.condition(rng.choice((0, 1, 2)))}" if rng.random() < 0.6 else ""
        limit = f" ORDER BY {', '.join(columns)} LIMIT {rng.choice((1, 20, 900))}" if rng.random() < 0.4 else ""
        return f"SELECT DISTINCT {', '.join(columns)} FROM @{where}{limit}"

    def rows(self):
        rng = self.rng
        columns = rng.sample(list(COLUMNS) + list(TEXTS), rng.randint(1, 5))
        conditions = [self.condition(rng.choice((0, 1, 2, 3))) for _ in range(rng.choice((1, 1, 2, 3)))]
        if rng.random() < 0.3:
            conditions.insert(rng.randrange(len(conditions) + 1), "note ~ '1'")
        return f"SELECT id, {', '.join(columns)} FROM @ WHERE {' AND '.join(conditions)}"

    def first_rows(self):
        rng = self.rng
        keys = [self.distance() if rng.random() < 0.2 else rng.choice(TEXT_KEYS) if rng.random() < 0.25 else self.column(self.kind()) if rng.random() < 0.8 else self.expression(self.kind(), 2) for _ in range(rng.choice((0, 1, 1, 2)))]
        keys = [f"{k if k in COLUMNS else f'({k})'}{rng.choice(('', '', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST'))}" for k in keys + ["id"]]
        limit = f"LIMIT {rng.choice((0, 1, 5, 63, 64, 65, 500, rng.randint(1, 4000)))}" + (f" OFFSET {rng.choice((1, 70, 900))}" if rng.random() < 0.3 else "")
        text = self.rows() if rng.random() < 0.6 else f"SELECT id, {', '.join(rng.sample(list(COLUMNS) + list(TEXTS), rng.randint(1, 5)))} FROM @"
        return f"{text} ORDER BY {', '.join(keys)} {limit}"

    def join(self):
        """FROM and WHERE of rows that are joined with one or two inner tables; names of these tables' columns; aggregates of them."""
        rng = self.rng
        joins, conditions, names, aggregates = [], [self.condition(rng.choice((0, 1, 2))) for _ in range(rng.choice((0, 1, 1, 2)))], [], []
        for number in rng.sample((1, 2), rng.choice((1, 1, 2))):
            def of(name, number=number):
                return f"j{number}.{name}"
            pairs = [("k", "jk"), ("k2", "jk2"), ("i8_s", "jv"), ("f8_s", "jf"), ("f4_s", "jf"), ("d", "jd"), ("i4_s", "jk"), ("i2_s", "jk"), ("k + 1", "jk")]
            keys = " AND ".join(f"{outer} = {of(inner)}" for outer, inner in rng.sample(pairs, rng.choice((1, 1, 1, 2))))
            if rng.random() < 0.15:
                keys = rng.choice(("true", f"k > {of('jk')}", f"i4_s BETWEEN {of('jk')} AND {of('jv')}", f"f8_s <> {of('jf')}", f"d >= {of('jd')}"))
            text = self.of_text("jt").replace("jt", of("jt"))
            own = rng.choice(("", f" AND {of('jv')} > 3", f" AND {of('jb')}", f" AND {of('jk')} % 3 <> 1", f" AND {text}"))
            kind = rng.choice(("JOIN", "JOIN", "LEFT JOIN", "EXISTS", "NOT EXISTS"))
            if rng.random() < 0.3:
                own += rng.choice((f" AND {of('jv')} > i4_s", f" AND {of('jk')} <> k2", f" AND ({of('jb')} IS NOT TRUE OR i2_s > {of('jk2')})", f" AND ({text} OR i2_s > 3)"))
            if kind.endswith("EXISTS"):
                conditions.append(f"{kind} (SELECT FROM @{number} j{number} WHERE {keys}{own})")
                continue
            joins.append(f" {kind} @{number} j{number} ON {keys}{own}")
            names += [of(name) for name in INNER]
            aggregates.append(rng.choice((f"sum({of('jv')})", f"sum({of('jf')})", f"max({of('jd')})", f"count({of('jk')})", f"count({of('jt')})", f"sum({of('jv')} * i4_s)", f"min(coalesce({of('jk')}, k))")))
            if rng.random() < 0.4:
                conditions.append(rng.choice((f"{of('jv')} > i4_s", f"{of('jb')} IS NOT TRUE", f"{of('jk')} + k > 3", f"({of('jd')} IS NULL OR b)", f"({text})")))
        return " FROM @" + "".join(joins) + (f" WHERE {' AND '.join(conditions)}" if conditions else ""), names, aggregates

    def joined(self):
        """Aggregates over joined rows."""
        rng = self.rng
        source, names, aggregates = self.join()
        names = [name for name in names if not name.endswith("jf")]
        aggregates = ["count(*)"] + aggregates + [self.aggregate() for _ in range(rng.choice((0, 1, 2)))]
        if rng.random() < 0.15:
            aggregates.append(f"count(DISTINCT {rng.choice(names + list(COLUMNS) + list(TEXT_GROUPS))})")
        keys = self.keys(rng.choice((0, 1, 1, 2)), names)
        text = f"SELECT {', '.join(keys + aggregates)}{source}"
        text += f" GROUP BY {', '.join(str(i + 1) for i in range(len(keys)))}" if keys else ""
        return text + (self.first_groups(len(keys), len(aggregates)) if keys and rng.random() < 0.3 else "")

    def joined_rows(self):
        """Joined rows: all of them, or the first ones in an order of all that they have."""
        rng = self.rng
        source, names, _ = self.join()
        wanted = ["id"] + rng.sample([*COLUMNS, *OTHERS], rng.randint(0, 4)) + rng.sample(names, min(len(names), rng.randint(1, 4)))
        if rng.random() < 0.2:
            wanted.append(self.expression(self.kind(), 1))
        return f"SELECT {', '.join(wanted)}{source}{self.first_joined(names) if rng.random() < 0.4 else ''}"

    def first_joined(self, names):
        """In a total order."""
        rng = self.rng
        keys = [*rng.sample([*COLUMNS, *names, "k + i4_s"], rng.choice((0, 1, 1, 1, 2))), "id", *(name for name in names if name.endswith("ji"))]
        if rng.random() < 0.2:
            rng.shuffle(keys)
        keys = [key + rng.choice(("", "", " DESC", " NULLS FIRST", " DESC NULLS LAST")) for key in keys]
        return f" ORDER BY {', '.join(keys)} LIMIT {rng.choice((1, 5, 64, 65, 500, rng.randint(1, 4000), '(SELECT 700)'))}" + (f" OFFSET {rng.choice((1, 70, 900))}" if rng.random() < 0.3 else "")

    def groups(self):
        rng = self.rng
        keys = []
        if rng.random() < 0.5:
            keys = self.keys(rng.choice((1, 1, 1, 2, 3)))
            if rng.random() < 0.2:
                keys.append(self.expression(self.kind("integers"), 2))
        aggregates = [self.aggregate() for _ in range(rng.randint(1, 5))]
        if rng.random() < 0.15:
            argument = rng.choice(list(COLUMNS) + list(TEXTS))
            of_it = ("count", "sum", "avg", "max") if COLUMNS.get(argument) in INTEGERS else ("count",)
            aggregates += [f"{name}(DISTINCT {argument})" for name in rng.sample(of_it, rng.randint(1, len(of_it)))]
        where = " AND ".join(self.condition(rng.choice((0, 1, 1, 2, 3))) for _ in range(rng.choice((0, 1, 1, 2, 3))))
        text = f"SELECT {', '.join(keys + aggregates)} FROM @"
        if where:
            text += f" WHERE {where}"
        if keys:
            text += f" GROUP BY {', '.join(str(i + 1) for i in range(len(keys)))}"
        if rng.random() < 0.1:
            text += f" HAVING {rng.choice(('count(*)', 'count(i4)', 'max(i2)', 'sum(k)', 'sum(f8_s)'))} > {rng.randint(0, 3)}"
        if keys and rng.random() < 0.4:
            text += self.first_groups(len(keys), len(aggregates), keys[-1])
        return text

    def first_groups(self, keys, aggregates, made_of=None):
        """In a total order: after some aggregates, or what is made of a key, all keys."""
        rng = self.rng
        order = rng.sample(range(keys + 1, keys + aggregates + 1), rng.randint(0, min(2, aggregates))) + rng.sample(range(1, keys + 1), keys)
        if made_of and rng.random() < 0.3:
            order.insert(0, f"coalesce({made_of}, {made_of})")
        order = [f"{number}{rng.choice(('', '', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST'))}" for number in order]
        return f" ORDER BY {', '.join(order)} LIMIT {rng.choice((1, 5, 50, 10000))}" + (f" OFFSET {rng.randint(0, 9)}" if rng.random() < 0.2 else "")


# ---- tables


def make_tables(connection, rng, rows):
    """heap, pgstrom, arrow, and parts, which has partitions of each: the same rows; a part of them is deleted, and a part is of this session's own transaction, which stays open."""
    values = Values(rng)
    columns = ", ".join(f"{n} {t}{' NOT NULL' if n in NOT_NULL else ''}" for n, t in COLUMNS.items())
    lines = ["(" + ", ".join(values.of_column(n) for n in COLUMNS) + "".join(f", {values.of_text(name)}" for name in TEXTS if name != "code") + ")" for _ in range(rows)]
    lines = [f"{line[:-1]}, {rng.choice(('NULL::real[]', values.vector(), values.vector()))}, {rng.choice((f'NULL::bit({BITS})', values.bits(), values.bits()))}, {values.of_text('code')})" for line in lines]
    columns += "".join(f", {name} {kind}" for name, kind in TEXTS.items() if name != "code")
    plain, uniform = VECTORS.format("", ""), VECTORS.format(f" OPTIONS (length '{ELEMENTS}')", " OPTIONS (length '4')")
    script = f"""SET timezone = 'UTC'; DROP TABLE IF EXISTS heap, parts; DROP FOREIGN TABLE IF EXISTS pgstrom, arrow; DROP TYPE IF EXISTS mood; {rng.choice(MOOD_TYPES)}; CREATE TABLE heap (id int, {columns}{plain});
        CREATE FOREIGN TABLE pgstrom (id int, {columns}{uniform}) SERVER gstore_fdw; CREATE FOREIGN TABLE arrow (id int, {columns}{uniform}) SERVER gstore_fdw OPTIONS (format 'arrow');
        CREATE TABLE parts (id int, {columns}{plain}) PARTITION BY HASH (k); CREATE TABLE part2 PARTITION OF parts FOR VALUES WITH (MODULUS 3, REMAINDER 2);
        CREATE FOREIGN TABLE part0 PARTITION OF parts FOR VALUES WITH (MODULUS 3, REMAINDER 0) SERVER gstore_fdw;
        CREATE FOREIGN TABLE part1 (id int, {columns}{uniform}) SERVER gstore_fdw OPTIONS (format 'arrow');
        ALTER TABLE parts ATTACH PARTITION part1 FOR VALUES WITH (MODULUS 3, REMAINDER 1);"""
    run(connection, script)
    for first in range(0, rows, 500):
        part = ", ".join(lines[first : first + 500])
        run(connection, f"INSERT INTO heap SELECT row_number() OVER () + {first}, * FROM (VALUES {part}) v")
    deleted, own = rng.random() < 0.6, rng.random() < 0.4
    committed = rows * 9 // 10 if own else rows
    both = ("heap", "pgstrom", "arrow", "parts")
    for table in both[1:]:
        run(connection, f"INSERT INTO {table} SELECT * FROM heap WHERE id <= {committed} ORDER BY id")
    if deleted:
        for table in both:
            run(connection, f"DELETE FROM {table} WHERE id % 7 = 3 AND id <= {committed}")
    make_inner(connection, rng)
    run(connection, "ANALYZE heap, pgstrom, arrow, parts; BEGIN")
    if rng.random() < 0.3:
        for table in both:
            run(connection, f"INSERT INTO {table}1 VALUES (40, 1, 1, 1, '2000-01-01', true); DELETE FROM {table}2 WHERE jv = 4")
    if own:
        for table in both[1:]:
            run(connection, f"INSERT INTO {table} SELECT * FROM heap WHERE id > {committed} ORDER BY id")
        for table in both:
            run(connection, f"DELETE FROM {table} WHERE id % 11 = 5")


def make_inner(connection, rng):
    """For each of the tables; keys are small, and some NULL."""
    values = Values(rng)
    columns = ", ".join(f"{n} {t}" for n, t in INNER.items())
    for number, rows in INNER_ROWS.items():
        names = [f"{table}{number}" for table in ("heap", "pgstrom", "arrow", "parts")]
        run(connection, f"""DROP TABLE IF EXISTS {names[0]}; DROP FOREIGN TABLE IF EXISTS {', '.join(names[1:])}; CREATE TABLE {names[0]} ({columns});
            CREATE FOREIGN TABLE {names[1]} ({columns}) SERVER gstore_fdw; CREATE FOREIGN TABLE {names[2]} ({columns}) SERVER gstore_fdw OPTIONS (format 'arrow');
            CREATE FOREIGN TABLE {names[3]} ({columns}) SERVER gstore_fdw""")
        for row in range(rng.choice((rows, rows, rows, 0))):
            key = row - 2 if number == 1 else rng.choice(("NULL", rng.randint(-3, 12)))
            run(connection, f"INSERT INTO {names[0]} VALUES ({key}, {rng.choice(('NULL', rng.randrange(200)))}, {rng.randint(-9, 9)}, {rng.randint(-64, 64) / 8}, {values.literal('date')}, {rng.choice(('true', 'false', 'NULL'))}, {values.of_text('tag')}, {row})")
        for table in names[1:]:
            run(connection, f"INSERT INTO {table} SELECT * FROM {names[0]}")
        for table in names:
            run(connection, f"DELETE FROM {table} WHERE jk % 5 = 2; ANALYZE {table}")


def run(connection, text):
    reply = connection.ask(text)
    if reply.state:
        raise private.Failed(f"{reply.state} {reply.message}: {text[:300]}")
    return reply


def fail_or_rows(connection, text):
    """
    (SQLSTATE and message, or None; rows of the last statement, sorted if it has no order; whether the plan computes on the GPU); the transaction goes on.
    -0 is 0, as PostgreSQL does not say which of the two equal ones is the greatest.
    """
    reply = connection.ask(f"SAVEPOINT s; {text}")
    plan = b"\n".join(row for result in reply.results[2:3] for row in result.rows)
    rows = None if reply.state else [row.replace(b"\0\0\0\2-0", b"\0\0\0\1" + b"0") for row in reply.results[-1].rows]
    if rows and " ORDER BY " not in text:
        rows.sort()
    run(connection, "ROLLBACK TO s; RELEASE s" if reply.state else "RELEASE s")
    if b"GPU Ran: not" in plan:
        raise private.Failed(f"the GPU did not compute though it was planned: {plan.decode(errors='replace')}: {text}")
    return (f"{reply.state} {reply.message}" if reply.state else None), rows, b"GPU: " in plan or b"GPU Filter: " in plan


def error_of_all_rows(connection, query):
    """
    A heap whose groups come in the order of the query leaves those behind the limit, and their errors, out, and for the extreme of a constant it reads
    no more than one row; other plans of PostgreSQL do not.
    """
    whole = LIMIT.sub("", query) if " GROUP BY " in query else query.replace("SELECT ", "SELECT count(*), ", 1)
    return fail_or_rows(connection, whole.replace("@", "heap"))[0] if " GROUP BY " in query or re.match("SELECT (max|min)\\(", query) else None


def is_of_plan(error, query):
    """An error of a value (class 22; NaN has 0A000) in a join: PostgreSQL evaluates no condition on one side if it has found the other side empty, which some plans do first."""
    return error.startswith(("22", "0A000 cannot convert")) and bool(re.search(" JOIN |EXISTS", query))


def error_of_planning(connection, text):
    """An estimate evaluates LIKE on values that ANALYZE has sampled: a pattern that ends in an escape may be an error there, and of other samples none."""
    return fail_or_rows(connection, f"EXPLAIN (COSTS OFF) {text}")[0]


def settings_of(gpu_queries, startup, instruction):
    """As one statement."""
    values = {"gpu_queries": gpu_queries, "gpu_startup_cost": startup, "gpu_instruction_cost": instruction}
    return "SELECT " + ", ".join(f"set_config('gstore_fdw.{name}', '{value}', false)" for name, value in values.items())


def compare(connection, query, table, outer_heap, analyze, startup=None):
    """
    Of the same query on the heap, and on the table, or the heap joined with tables of its kind, by both ways, and with this cost. Returns whether the GPU has computed;
    Failed: they differ.
    """
    wanted_error, wanted, _ = fail_or_rows(connection, query.replace("@", "heap"))
    text = (OUTER.sub("heap", query) if outer_heap else query).replace("@", table)
    on_gpu, explain = False, "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF)" if analyze else "EXPLAIN (COSTS OFF)"
    ways = {"on": ("on", 0, 0), "off": ("off", 0, 0)}
    if startup is not None:
        ways[f"on, and gpu_startup_cost {startup}"] = ("on", startup, -1)
    for way, values in ways.items():
        error, rows, gpu = fail_or_rows(connection, f"{settings_of(*values)}; {explain} {text}; {text}")
        on_gpu |= gpu
        if way == "off" and gpu:
            raise private.Failed(f"the GPU computes though it is not to: {text}")
        if error and not wanted_error and not is_of_plan(error, query) and error not in (error_of_all_rows(connection, query), error_of_planning(connection, text)):
            raise private.Failed(f"gpu_queries {way}: {error}, and the heap raises no error: {text}")
        if not error and not wanted_error and rows != wanted:
            some = [(wire.fields(a), wire.fields(b)) for a, b in zip(wanted, rows) if a != b][:3]
            raise private.Failed(f"gpu_queries {way}: {len(rows)} rows, {len(wanted)} of the heap; first differences (heap, GPU) {some}: {text}")
    return on_gpu


def draw_cost(rng):
    return rng.choice((0, 2, 10, 50, 400)) if rng.random() < WEIGHED else None


def queries_of(connection, rng, group, count):
    make_tables(connection, rng, rng.choice((0, 1, 7, 300, 1200, 9000)) if group else 9000)
    for _ in range(count):
        query = Query(rng).text()
        table = rng.choice(("pgstrom", "arrow", "pgstrom", "arrow", "parts"))
        yield compare(connection, query, table, rng.random() < 0.3 and bool(INNER_TABLE.search(query)), rng.random() < ANALYZED, draw_cost(rng))


def main(description, name, queries, least, settings, group_of):
    """Groups of queries, each in a transaction; group_of(connection, rng, number of the group, queries) makes tables, begins, and yields of each query whether the GPU has computed."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--queries", type=int, default=queries)
    options = parser.parse_args()
    reason = private.why_not()
    if reason:
        print(f"1..0 # SKIP {reason}")
        return 0
    print(f"1..{GROUPS + 1}\n# seed {options.seed}", flush=True)
    rng, code, on_gpu, done = random.Random(options.seed), 0, 0, 0
    server = Server(name, *settings)
    try:
        connection = wire.Connection(f"{server.environ['PGHOST']}/.s.PGSQL.5432", "postgres", "postgres")
        for group in range(GROUPS):
            problem = None
            try:
                for gpu in group_of(connection, rng, group, options.queries // GROUPS):
                    on_gpu += gpu
                    done += 1
                run(connection, "COMMIT")
            except (private.Failed, wire.Lost) as failed:
                problem = str(failed)
                connection.close()
                connection = wire.Connection(f"{server.environ['PGHOST']}/.s.PGSQL.5432", "postgres", "postgres")
            print(f"{'not ok' if problem else 'ok'} {group + 1} - {name} of tables {group + 1}", flush=True)
            if problem:
                code = 1
                print(f"# {problem}", flush=True)
        share = on_gpu / max(done, 1)
        print(f"{'ok' if share >= least else 'not ok'} {GROUPS + 1} - most queries are computed on the GPU")
        print(f"# {done} queries, {100 * share:.1f} % on the GPU")
        return code or share < least
    except Exception:  # noqa: BLE001
        traceback.print_exc(file=sys.stdout)
        return 1
    finally:
        server.end()


if __name__ == "__main__":
    sys.exit(main(__doc__, "queries", QUERIES, ON_GPU_LEAST, SETTINGS, queries_of))
