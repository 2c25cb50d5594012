"""Random types, tables and views for differ.py: each table made twice, g1 in GPU memory and h1 as a heap.

A table has partitions (range, list, hash) or children, or neither; one of them may be a heap on both sides. Over each
table there is a view with security_barrier, which can be written to, and over all of them one by UNION ALL.
"""
import string
from dataclasses import dataclass

FORMATS = ("pgstrom", "pgstrom", "arrow")

SETUP = """
CREATE TYPE d_mood AS ENUM ('sad', 'ok', 'happy', 'very happy');
CREATE TYPE d_pair AS (a int, b text);
CREATE DOMAIN d_small AS int CHECK (VALUE < 2000);
CREATE DOMAIN d_three AS float4[] CHECK (array_ndims(VALUE) = 1 AND array_lower(VALUE, 1) = 1 AND cardinality(VALUE) = 3 AND array_position(VALUE, NULL) IS NULL);
CREATE DOMAIN d_days AS date[] CHECK (array_ndims(VALUE) = 1 AND array_lower(VALUE, 1) = 1 AND cardinality(VALUE) = 2 AND array_position(VALUE, NULL) IS NULL);
CREATE DOMAIN d_code AS text CHECK (octet_length(VALUE) = 6);
CREATE DOMAIN d_hash AS bytea CHECK (octet_length(VALUE) = 16);
CREATE DOMAIN d_word AS text NOT NULL DEFAULT 'word' CHECK (length(VALUE) < 300);
CREATE TABLE d_other (k int PRIMARY KEY, n bigint, t text);
INSERT INTO d_other SELECT i, i * i * 1000, CASE WHEN i % 5 <> 0 THEN 'other ' || i END FROM generate_series(-5, 40) i;
ANALYZE d_other;
CREATE FUNCTION d_lock() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN EXECUTE format('LOCK TABLE %s IN SHARE UPDATE EXCLUSIVE MODE', TG_RELID::regclass); RETURN NULL; END $$;
CREATE FUNCTION d_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF NEW.id % 7 = 0 THEN RETURN NULL; END IF; NEW.k := NEW.k + TG_ARGV[0]::int; RETURN NEW; END $$;
CREATE FUNCTION d_touch(name text, n int) RETURNS int LANGUAGE plpgsql AS
$$ BEGIN EXECUTE format('UPDATE %I SET k = k + 1 WHERE id = $1', name) USING n; RETURN 5; END $$;
"""


def quote(text):
    return "'" + text.replace("'", "''") + "'"


# ---- types


def of_list(*values):
    return lambda r: r.choice(values)


def integer(least, most):
    def make(r):
        kind = r.random()
        if kind < 0.05:
            return str(r.choice((least, most, least + 1, most - 1)))
        return str(r.randint(-20, 60) if kind < 0.8 else r.randint(max(least, -10**6), min(most, 10**6)))

    return make


def floating(r):
    kind = r.random()
    if kind < 0.12:
        return r.choice(("NaN", "Infinity", "-Infinity", "-0", "0", "1e30", "-1e-30"))
    return str(r.randint(-400, 400) / 4)


def decimal(precision, scale):
    def make(r):
        kind = r.random()
        if kind < 0.12:
            return r.choice(("NaN", "0", "-0.00", "1e%d" % -scale, "-1e%d" % -scale))
        most = 10**precision - 1
        number = r.choice((most, -most, most // 7, -most // 2)) if kind < 0.25 else r.randint(-400, 400) if kind < 0.7 else r.randint(-most, most)
        return f"{max(-most, min(most, number))}e{-scale}"

    return make


def word(r):
    kind = r.random()
    if kind < 0.75:
        return "".join(r.choice("abcde AB%_") for _ in range(r.randint(0, 9)))
    if kind < 0.9:
        return r.choice(("", "ünïcödé ✓", "it's", "back\\slash", "tab\there", "line\nbreak", '"quoted"', "NULL", "\\N"))
    if kind < 0.99:
        return r.choice("xyz") * r.randint(30, 280)  # compresses well
    return "".join(r.choice(string.ascii_letters) for _ in range(r.randint(100, 290)))


def long_text(r):
    if r.random() > 0.02:
        return word(r)
    return "".join(r.choice(string.ascii_letters) for _ in range(97)) * r.choice((3, 30, 90, 1200))


def short(most):
    return lambda r: word(r)[:most]


def array_of(element, null="NULL"):
    def make(r):
        if r.random() < 0.1:
            return "{}"
        return "{" + ",".join(null if r.random() < 0.1 else element(r) for _ in range(r.randint(1, 6))) + "}"

    return make


def nested(r):
    a = [str(r.randint(0, 9)) for _ in range(4)]
    return r.choice(("{{%s,%s},{%s,%s}}" % tuple(a), "[2:3]={%s,%s}" % tuple(a[:2]), "{" + ",".join(a * r.randint(1, 30)) + "}"))


def small_ints(r):
    return nested(r) if r.random() < 0.3 else array_of(lambda r: str(r.randint(-9, 9)))(r)


def quoted_word(r):
    return '"' + "".join(r.choice("abc ,{}'") for _ in range(r.randint(0, 8))) + '"'


def pair(r):
    a = "" if r.random() < 0.1 else str(r.randint(-9, 9))
    b = "" if r.random() < 0.1 else '"' + "".join(r.choice("abc ,()'") for _ in range(r.randint(0, 8))) + '"'
    return f"({a},{b})"


def uuid(r):
    return f"00000000-0000-4000-8000-{r.randint(0, 30):012x}"


def moment(r):
    if r.random() < 0.06:
        return r.choice(("infinity", "-infinity"))
    return f"{r.randint(1990, 2030)}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}" + r.choice(
        (" 00:00:00", f" {r.randint(0, 23):02d}:{r.randint(0, 59):02d}:{r.randint(0, 59):02d}.{r.randint(0, 999999):06d}")
    )


def day(r):
    return moment(r).split(" ")[0]


def clock(r):
    return f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}:{r.randint(0, 59):02d}"


def document(r):
    return r.choice(
        (
            "{}", "[]", "null", "true", '"text"', str(r.randint(-9, 9)),
            '{"a": %d}' % r.randint(0, 5),
            '{"a": %d, "b": {"c": [1, 2, "%s"]}}' % (r.randint(0, 5), r.choice("xyz")),
            '[%d, null, "%s"]' % (r.randint(0, 9), "z" * r.randint(0, 200)),
        )
    )


class Type:
    """raw makes a value's text; key is of equal values the same, and so a thing to group and sort by."""

    def __init__(self, sql, raw, key="{}", order=True, minmax=True, where=(), change=()):
        self.sql, self.raw, self.key, self.order, self.minmax = sql, raw, key, order, minmax
        self.where, self.change = where, change

    def literal(self, r, nulls=0.0):
        return f"NULL::{self.sql}" if r.random() < nulls else f"{quote(self.raw(r))}::{self.sql}"


def numbers(sql, raw, change=(), key="{}"):
    return Type(sql, raw, key=key, where=("{c} % 3 = 1", "({c} / 2) > 4", "-({c} / 2) < 5"), change=change)


WHOLE = ("{c} + 1", "{c} - 3", "{c} / 2", "-{c}", "100 / ({c} % 10)", "{c} % 11", "{c} * 2")
REAL = ("{c} + 0.25", "{c} * 2", "-{c}", "1 / {c}")
TEXT = ("upper({c})", "{c} || 'x'", "left({c}, 3)", "reverse({c})", "coalesce({c}, 'none')", "substr({c}, 2)")
TEXT_WHERE = (
    "{c} LIKE 'a%'", "{c} LIKE '%b%'", "{c} NOT LIKE '_a%'", "{c} ~ '[ab]$'", "length({c}) > 4", "{c} ILIKE '%A'", "{c} || 'z' < 'c'",
    "starts_with({c}::text, 'x')", "upper({c}) = {c}::text",
)
TYPES = {
    t.sql: t
    for t in (
        numbers("int2", integer(-(2**15), 2**15 - 1), WHOLE),
        numbers("int4", integer(-(2**31), 2**31 - 1), WHOLE),
        numbers("int8", integer(-(2**63), 2**63 - 1), WHOLE),
        Type("float4", floating, key="({}::float8 + 0.0)", where=("{c} > 1.5", "{c} * 0.5 < 3"), change=REAL),
        Type("float8", floating, key="({} + 0.0)", where=("{c} > 1.5::float4", "{c} * 0.5 < 3", "{c} <> 'NaN'"), change=REAL),
        Type("numeric", lambda r: floating(r) if r.random() < 0.5 else f"{r.randint(-10**20, 10**20)}.{r.randint(0, 999)}", key="trim_scale({})",
             where=("{c} > 3", "round({c}) = 2"), change=REAL),
        Type("numeric(10,2)", lambda r: str(r.randint(-99999, 99999) / 100), where=("{c} > 3", "{c} BETWEEN -9 AND 9.5"), change=REAL),
        Type("numeric(12,2)", decimal(12, 2), where=("{c} > 3", "{c} = 'NaN'"), change=REAL),
        Type("numeric(38,0)", decimal(38, 0), where=("{c} > 3", "{c} % 3 = 1"), change=("{c} + 1", "-{c}", "trunc({c} / 3)")),
        Type("numeric(38,21)", decimal(38, 21), where=("{c} < 0.5", "scale({c}) = 21"), change=("-{c}", "{c} / 2")),
        Type("numeric(9,-3)", decimal(9, -3), where=("{c} > 3000", "{c} % 7000 = 0"), change=("{c} + 700", "-{c}")),
        Type("bit(1)", of_list("0", "1"), minmax=False, where=("{c} = B'1'",), change=("~{c}",)),
        Type("bit(19)", lambda r: "".join(r.choice("01") for _ in range(19)), minmax=False, where=("get_bit({c}, 3) = 1", "{c} > B'1'"), change=("~{c}", "{c} << 3")),
        Type("d_three", lambda r: "{" + ",".join(floating(r) if r.random() < 0.9 else "1" for _ in range(3)) + "}", where=("{c}[2] > 3", "'NaN' = ANY ({c})"),
             change=("ARRAY[{c}[3], {c}[1], 0.25]::float4[]",), key="({}::float8[])::text"),
        Type("d_days", lambda r: "{" + day(r) + "," + day(r) + "}", where=("{c}[2] > '2010-05-05'", "isfinite({c}[1])"), change=("ARRAY[{c}[2], {c}[1]]",)),
        Type("d_code", lambda r: "".join(r.choice("abcx_%") for _ in range(6)) if r.random() < 0.9 else "\u00fcbera", where=TEXT_WHERE[:5], change=("reverse({c})",)),
        Type("d_hash", lambda r: "\\x" + f"{r.randint(0, 40):032x}", minmax=False, where=("{c} > '\\x00'", "get_byte({c}, 15) < 9"), change=("set_byte({c}, 0, 7)",)),
        Type("text", long_text, where=TEXT_WHERE, change=TEXT),
        Type("varchar(300)", word, where=TEXT_WHERE, change=TEXT),
        Type("char(8)", short(8), key="{}::text", where=("{c} = 'a'", "length({c}) > 2"), change=("upper({c})",)),
        Type("name", short(20), where=("{c} >= 'b'", "{c}::text LIKE 'a%'")),
        Type("bytea", lambda r: "\\x" + word(r).encode().hex(), minmax=False, where=("length({c}) > 3", "{c} > '\\x61'"), change=("{c} || '\\x00'",)),
        Type("bool", of_list("t", "f"), minmax=False, where=("{c}", "NOT {c}", "{c} IS TRUE", "{c} IS NOT TRUE", "{c} IS UNKNOWN", "{c} = false"),
             change=("NOT {c}",)),
        Type("date", day, where=("{c} > '2010-05-05'", "isfinite({c})", "{c} < timestamp '2011-01-01 12:00'"), change=("{c} + 1",)),
        Type("time", clock, where=("{c} < '12:00'",), change=("{c} + interval '1 hour'",)),
        Type("timestamp", moment, where=("{c} >= date '2010-01-01'", "isfinite({c})")),
        Type("timestamptz", moment, where=("{c} >= '2010-01-01 00:00+01'", "isfinite({c})")),
        Type("uuid", uuid, minmax=False, where=("{c} > '00000000-0000-4000-8000-000000000009'",)),
        Type("oid", lambda r: str(r.choice((0, 1, 77, 4294967295, r.randint(0, 100)))), where=("{c} < 50", "{c} >= 4000000000")),
        Type('"char"', lambda r: r.choice("abcxyz"), minmax=False, where=("{c} > 'b'",)),
        Type("int4[]", small_ints, where=("3 = ANY ({c})", "array_length({c}, 1) > 2", "{c} @> '{1}'", "{c} > '{3}'"),
             change=("{c} || 7", "{c}[1:2]")),
        Type("int2[]", small_ints, where=("3 = ANY ({c})", "cardinality({c}) > 2", "{c}[1] = 1"), change=("array_append({c}, 1::int2)",)),
        Type("text[]", array_of(quoted_word), where=("'abc' = ANY ({c})", "cardinality({c}) > 2", "array_to_string({c}, ',') LIKE '%a%'")),
        Type("d_pair[]", array_of(lambda r: '"' + pair(r).replace('"', '\\"') + '"'), minmax=False, where=("({c})[1] IS NULL",)),
        Type("jsonb", document, minmax=False, where=("{c} ? 'a'", "{c} @> '{\"a\": 1}'", "{c} ->> 'a' = '2'", "jsonb_typeof({c}) = 'array'"),
             change=("coalesce({c}, '[]') || '[1]'",)),
        Type("json", document, key="{}::text", minmax=False, order=False, where=("json_typeof({c}) = 'object'",)),
        Type("d_mood", of_list("sad", "ok", "happy", "very happy"), where=("{c} > 'ok'", "{c} IN ('sad', 'happy')")),
        Type("d_pair", pair, minmax=False, where=("({c}).a > 3", "({c}).b IS NULL", "{c} IS NULL", "{c} IS NOT NULL"),
             change=("ROW(({c}).a, 'new')",)),
        Type("d_small", lambda r: str(r.randint(-30, 2020)), where=("{c} % 3 = 1", "{c} < 40"), change=("{c} + 300", "{c} - 5")),
        Type("d_word", word, where=TEXT_WHERE, change=("{c} || {c}", "upper({c})")),
        Type("interval", lambda r: f"{r.randint(0, 11)} mons", where=("{c} > '3 mons'",)),
        Type("inet", lambda r: f"10.0.{r.randint(0, 3)}.{r.randint(0, 30)}", where=("{c} << '10.0.1.0/24'",), minmax=False),
        Type("macaddr", lambda r: f"08:00:2b:01:02:{r.randint(0, 30):02x}", minmax=False, where=("{c} > '08:00:2b:01:02:09'",)),
        Type("int4range", lambda r: r.choice(("empty", "(,)", f"[{r.randint(-9, 0)},{r.randint(1, 9)})")), minmax=False, where=("{c} @> 2", "isempty({c})")),
        Type("bit varying", lambda r: "".join(r.choice("01") for _ in range(r.randint(0, 70))), minmax=False, where=("length({c}) > 9",)),
        Type("point", lambda r: f"({r.randint(-9, 9)},{r.randint(-9, 9)})", key="{}::text", minmax=False, order=False, where=("{c} <@ box '((0,0),(5,5))'",)),
    )
}
INTEGERS = ("int2", "int4", "int8")
# Types whose values are of the other type, byte for byte.
WIDER = {"varchar(300)": "text", "d_small": "int4", "d_word": "text", "d_code": "text", "numeric(10,2)": "numeric(12,2)"}
LENGTHS = {"d_three": 3, "d_days": 2, "d_code": 6, "d_hash": 16}  # of columns of one length: the option of tables in GPU memory
REFUSED = ("int4", "int8", "text", "float8", "numeric", "uuid", "int4[]")


# ---- tables


@dataclass
class Column:
    name: str
    type: str
    more: str = ""
    generated: bool = False
    pglz: bool = False
    length: int = 0

    @property
    def nulls(self):
        """How often a value is to be NULL."""
        return 0.005 if "NOT NULL" in self.more or self.type == "d_word" else 0.15

    def define(self, twin, table_format):
        options = ["compression 'pglz'"] * self.pglz + [f"length '{self.length}'"] * (self.length > 0) if twin == "g" else []
        options = f" OPTIONS ({', '.join(options)})" if options else ""
        limit = f" {self.limit()}" if table_format == "arrow" and twin == "h" and self.type.endswith("[]") else ""
        return f"{self.name} {self.type}{options}{self.more}{limit}"

    def limit(self):
        """What format 'arrow' refuses: differ.py takes one error for the other."""
        return f"CHECK (coalesce(array_ndims({self.name}), 1) = 1 AND coalesce(array_lower({self.name}, 1), 1) = 1)"


@dataclass
class Table:
    """index: what a statement calls it, between @. Partitions or children are called 1_a, 1_b ..."""

    index: int
    columns: list
    format: str = "pgstrom"
    change: int = 0  # a trigger adds it to k; 0: there is none
    shape: str = ""  # a key of SHAPES
    heap_part: str = ""  # of these partitions or children one is a heap on both sides

    @property
    def names(self):
        return f"g{self.index}", f"h{self.index}"

    @property
    def fixed(self):
        """Whether an UPDATE may not change the id: it would move rows out of foreign partitions (0A000)."""
        return self.shape in PARTITIONS

    @property
    def parts(self):
        return [Part(self, f"{self.index}_{letter}") for letter in SHAPES[self.shape]]

    @property
    def view(self):
        """A view that hides what its users are not to see, whatever their conditions do."""
        return View(f"b{self.index}", self.columns_of_view, self.fixed)

    def __post_init__(self):
        self.columns_of_view = self.columns[:3]

    def of_type(self, *types):
        return [c for c in self.columns if c.type in types]


@dataclass
class Part:
    """A partition or child, by its own name."""

    table: Table
    index: str
    fixed: bool = False  # what does not belong into a partition is refused on both sides
    shape: str = ""
    of_type = Table.of_type

    @property
    def columns(self):
        return self.table.columns


@dataclass
class View:
    index: str
    columns: list
    fixed: bool = False
    shape: str = ""
    of_type = Table.of_type


PARTITIONS = {
    "range": ("RANGE (id)", ("FROM (MINVALUE) TO (10)", "FROM (10) TO (25)", "FROM (25) TO (MAXVALUE)", None)),
    "list": ("LIST ((id % 3))", ("IN (0, NULL)", "IN (1)", None)),
    "hash": ("HASH (id)", ("WITH (MODULUS 2, REMAINDER 0)", "WITH (MODULUS 2, REMAINDER 1)")),
}
SHAPES = {"": "", "children": "abc", "heap's children": "abc"} | {name: "abcd"[:len(bounds)] for name, (_, bounds) in PARTITIONS.items()}
ALL = View("u", [Column("id", "int4"), Column("k", "int4"), Column("part", "int4")])  # of all tables' rows
HIDDEN = 1  # the remainder by 4 of an id that a Table.view does not show


def make_column(r, name, table_format, table_columns):
    sql = r.choice(tuple(TYPES))
    column = Column(name, sql, pglz=r.random() < 0.4 and table_format != "arrow", length=r.choice((0, LENGTHS[sql], LENGTHS[sql])) if sql in LENGTHS else 0)
    kind = r.random()
    if kind < 0.12:
        column.more = f" DEFAULT {TYPES[sql].literal(r)} NOT NULL"
    elif kind < 0.3:
        column.more = f" DEFAULT {TYPES[sql].literal(r)}"
    elif kind < 0.36 and table_columns:
        of = r.choice(table_columns)
        if not of.generated:
            expression = r.choice(("length({}::text)", "coalesce({}::text, 'none')", "({} IS NULL)"))
            column.type, column.length = {"l": "int4", "c": "text", "(": "bool"}[expression[0]], 0
            if of.type in ("text", "varchar(300)", "int4", "int2", "int8", "bool", "jsonb") or expression[0] == "(":
                column.more = f" GENERATED ALWAYS AS ({expression.format(of.name)}) STORED"
                column.generated = True
    elif kind < 0.4 and sql in INTEGERS:
        column.more = f" CHECK ({name} <> 13)"
    return column


def make_table(r, index, alone):
    """alone: one session works on it. Only then has it children, which a LOCK of a foreign table leaves out, or a heap
    among its parts, whose rows a TRUNCATE hides from older snapshots."""
    table_format = r.choice(FORMATS)
    columns = [Column("id", "int4", " NOT NULL" if r.random() < 0.5 else ""), Column("k", "int4", r.choice(("", " CHECK (k < 1000)", " DEFAULT 5")))]
    for i in range(r.randint(1, 9)):
        columns.append(make_column(r, f"c{i}", table_format, columns))
    table = Table(index, columns, table_format)
    if r.random() < 0.15:
        table.change = r.choice((1, 100))
    if r.random() < (0.7 if alone else 0.25):
        # A heap takes arrays that format 'arrow' refuses.
        table.shape = r.choice([name for name in SHAPES if name and (name != "heap's children" or table_format != "arrow")] if alone else list(PARTITIONS))
        for column in columns:
            column.pglz, column.length = False, 0  # options of foreign tables, not of their parents
        if alone and r.random() < 0.3 and table_format != "arrow":
            table.heap_part = r.choice(SHAPES[table.shape])
    return table


def create(tables, device_of):
    """Everything that the tables of a round consist of."""
    for table in tables:
        yield from create_table(table, device_of)
        shown = ", ".join(c.name for c in table.columns_of_view)
        for name in table.names:
            yield (f"CREATE VIEW {name[0]}{table.view.index} WITH (security_barrier{', check_option=local' if table.index % 2 else ''}) AS"
                   f" SELECT {shown} FROM {name} WHERE id % 4 <> {HIDDEN}")
    for twin in "gh":
        yield f"CREATE VIEW {twin}u AS " + " UNION ALL ".join(f"SELECT id, k, {t.index} AS part FROM {twin}{t.index}" for t in tables)


def create_table(table, device_of):
    rows = table.shape in ("", "children")  # it has some of its own
    for twin, name in zip("gh", table.names):
        define = ", ".join(c.define(twin, table.format) for c in table.columns)
        yield create_one(twin if rows else "h", name, f"({define})", table, device_of(table.index))
        for at, part in enumerate(table.parts):
            letter = part.index[-1]
            yield create_one("h" if letter == table.heap_part else twin, twin + part.index, of_parent(table, name, at), table, device_of(table.index + at))
        if table.change:
            yield f"CREATE TRIGGER change BEFORE INSERT OR UPDATE ON {name} FOR EACH ROW EXECUTE FUNCTION d_change({table.change})"
    yield f"CREATE TRIGGER lock BEFORE INSERT ON {table.names[1]} FOR EACH STATEMENT EXECUTE FUNCTION d_lock()"


def create_one(twin, name, what, table, device):
    if twin == "g":
        return f"CREATE FOREIGN TABLE {name} {what} SERVER gstore_fdw OPTIONS (pinning '{device}', format '{table.format}')"
    if not what.startswith("(") or table.shape not in PARTITIONS:
        return f"CREATE TABLE {name} {what} WITH (autovacuum_enabled = false)"
    return f"CREATE TABLE {name} {what} PARTITION BY {PARTITIONS[table.shape][0]}"


def of_parent(table, name, at):
    if table.shape not in PARTITIONS:
        return f"({'own int' if at == 1 else ''}) INHERITS ({name})"
    bound = PARTITIONS[table.shape][1][at]
    return f"PARTITION OF {name} {f'FOR VALUES {bound}' if bound else 'DEFAULT'}"
