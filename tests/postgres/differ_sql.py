"""Random tables and statements for differ.py: each statement in two forms, for either twin.

Statements are made so that their answer does not depend on the order in which rows are met: sums are
of numerics, LIMIT comes with an order in which no two different rows tie, and what may fail does so
whatever is evaluated first.
"""
import random
import string
from dataclasses import dataclass, field

FORMATS = ("pgstrom", "pgstrom", "arrow")
READ, WRITE, EXCLUSIVE = 1, 2, 3  # what a statement needs of a table; 0: nothing

SETUP = """
CREATE TYPE d_mood AS ENUM ('sad', 'ok', 'happy', 'very happy');
CREATE TYPE d_pair AS (a int, b text);
CREATE DOMAIN d_small AS int CHECK (VALUE < 2000);
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
        Type("int2[]", small_ints, where=("3 = ANY ({c})", "cardinality({c}) > 2", "{c}[1] = 1"), change=("array_remove({c}, 1::int2)",)),
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
WIDER = {"varchar(300)": "text", "d_small": "int4", "d_word": "text", "numeric(10,2)": "numeric"}
REFUSED = ("int4", "int8", "text", "float8", "numeric", "uuid", "int4[]")


# ---- tables


@dataclass
class Column:
    name: str
    type: str
    more: str = ""
    generated: bool = False
    pglz: bool = False

    @property
    def nulls(self):
        """How often a value is to be NULL."""
        return 0.005 if "NOT NULL" in self.more or self.type == "d_word" else 0.15

    def define(self, twin, table_format):
        options = " OPTIONS (compression 'pglz')" if self.pglz and twin == "g" else ""
        limit = f" {self.limit()}" if table_format == "arrow" and twin == "h" and self.type.endswith("[]") else ""
        return f"{self.name} {self.type}{options}{self.more}{limit}"

    def limit(self):
        """What format 'arrow' refuses: differ.py takes one error for the other."""
        return f"CHECK (coalesce(array_ndims({self.name}), 1) = 1 AND coalesce(array_lower({self.name}, 1), 1) = 1)"


@dataclass
class Table:
    index: int
    columns: list
    format: str = "pgstrom"
    change: int = 0  # a trigger adds it to k; 0: there is none

    @property
    def names(self):
        return f"g{self.index}", f"h{self.index}"

    def of_type(self, *types):
        return [c for c in self.columns if c.type in types]


def make_column(r, name, table_format, table_columns):
    sql = r.choice(tuple(TYPES))
    column = Column(name, sql, pglz=r.random() < 0.4 and table_format != "arrow")
    kind = r.random()
    if kind < 0.12:
        column.more = f" DEFAULT {TYPES[sql].literal(r)} NOT NULL"
    elif kind < 0.3:
        column.more = f" DEFAULT {TYPES[sql].literal(r)}"
    elif kind < 0.36 and table_columns:
        of = r.choice(table_columns)
        if not of.generated:
            expression = r.choice(("length({}::text)", "coalesce({}::text, 'none')", "({} IS NULL)"))
            column.type = {"l": "int4", "c": "text", "(": "bool"}[expression[0]]
            if of.type in ("text", "varchar(300)", "int4", "int2", "int8", "bool", "jsonb") or expression[0] == "(":
                column.more = f" GENERATED ALWAYS AS ({expression.format(of.name)}) STORED"
                column.generated = True
    elif kind < 0.4 and sql in INTEGERS:
        column.more = f" CHECK ({name} <> 13)"
    return column


def make_table(r, index):
    table_format = r.choice(FORMATS)
    columns = [Column("id", "int4", " NOT NULL" if r.random() < 0.5 else ""), Column("k", "int4", r.choice(("", " CHECK (k < 1000)", " DEFAULT 5")))]
    for i in range(r.randint(1, 9)):
        columns.append(make_column(r, f"c{i}", table_format, columns))
    table = Table(index, columns, table_format)
    if r.random() < 0.15:
        table.change = r.choice((1, 100))
    return table


def create(table, device):
    g, h = table.names
    define = [", ".join(c.define(twin, table.format) for c in table.columns) for twin in "gh"]
    yield f"CREATE FOREIGN TABLE {g} ({define[0]}) SERVER gstore_fdw OPTIONS (pinning '{device}', format '{table.format}')"
    yield f"CREATE TABLE {h} ({define[1]}) WITH (autovacuum_enabled = false)"
    yield f"CREATE TRIGGER lock BEFORE INSERT ON {h} FOR EACH STATEMENT EXECUTE FUNCTION d_lock()"
    if table.change:
        for name in table.names:
            yield f"CREATE TRIGGER change BEFORE INSERT OR UPDATE ON {name} FOR EACH ROW EXECUTE FUNCTION d_change({table.change})"


# ---- statements


@dataclass
class Statement:
    kind: str
    text: str  # with @1@, @2@ for the tables
    need: dict = field(default_factory=dict)  # table index: READ ...
    heap: str = None  # of the heap twin, where it is another
    ordered: bool = False
    waits: bool = False  # may be sent to where it has to wait
    copy: tuple = ()  # (data or None)
    effect: tuple = ()  # what it does to a session, if it succeeds
    same_result: bool = True  # tags and rows are to be the same
    probe: str = None  # what differ.py asks the heap first
    loose: bool = False  # several rows may each fail in a way of its own

    def for_twin(self, twin):
        text = self.heap if twin == 1 and self.heap is not None else self.text
        return text.replace("@1@", "gh"[twin] + "1").replace("@2@", "gh"[twin] + "2")

    def before(self):
        """What the heap's twin says first so that one writer at a time is at its table. For INSERT and COPY a trigger
        does, after the statement's snapshot was taken: that is when a table in GPU memory is locked."""
        if self.heap is not None or self.text.startswith(("INSERT", "COPY")):
            return []
        return [f"LOCK TABLE h{i} IN SHARE UPDATE EXCLUSIVE MODE" for i, need in self.need.items() if need == WRITE]


class Maker:
    """Makes statements for a session, which it may know: the tables, as the session sees them."""

    def __init__(self, rng, tables, large):
        self.r = rng
        self.tables = tables
        self.large = large  # tables of thousands of rows: nothing that looks at them once for each row
        self.number = 0

    # -- expressions

    def operand(self, type_name):
        r = self.r
        if type_name in INTEGERS:
            type_name = r.choice(INTEGERS)
        elif type_name in ("float4", "float8"):
            type_name = r.choice(("float4", "float8"))
        return TYPES[type_name].literal(r, 0.03)

    def condition(self, table, alias, depth=0):
        r = self.r
        kind = r.random()
        if depth < 2 and kind < 0.3:
            left, right = (self.condition(table, alias, depth + 1) for _ in range(2))
            return f"({left} {r.choice(('AND', 'AND', 'OR'))} {right})"
        if depth < 2 and kind < 0.35:
            return f"NOT ({self.condition(table, alias, depth + 1)})"
        column = r.choice(table.columns)
        c, kind_of = f"{alias}.{column.name}", TYPES[column.type]
        kind = r.random()
        if kind < 0.12:
            return f"{c} IS {r.choice(('NULL', 'NOT NULL'))}"
        if kind < 0.3:
            return r.choice(kind_of.where).replace("{c}", c)
        if not kind_of.order:
            return f"({c})::text {r.choice(('<', '=', '<>'))} {quote(kind_of.raw(r))}"
        operator = r.choice(("<", "<=", "=", "<>", ">=", ">"))
        if kind < 0.6:
            return f"{c} {operator} {self.operand(column.type)}"
        if kind < 0.66:
            return f"{self.operand(column.type)} {operator} {c}"
        if kind < 0.74:
            return f"{c} {r.choice(('', 'NOT '))}BETWEEN {r.choice(('', 'SYMMETRIC '))}{kind_of.literal(r)} AND {kind_of.literal(r, 0.05)}"
        if kind < 0.84:
            values = ", ".join(kind_of.literal(r, 0.04) for _ in range(r.randint(1, 5)))
            return f"{c} {r.choice(('', 'NOT '))}IN ({values})" if r.random() < 0.7 or "[]" in column.type else f"{c} {operator} ANY (ARRAY[{values}])"
        if kind < 0.89:
            return f"{c} IS {r.choice(('', 'NOT '))}DISTINCT FROM {kind_of.literal(r, 0.1)}"
        others = [o for o in table.of_type(column.type) if o is not column]
        if kind < 0.94 and others:
            return f"{c} {operator} {alias}.{r.choice(others).name}"
        return f"{alias}.{r.choice(('id', 'k'))} {operator} {r.randint(-5, 40)}" if len(table.of_type("int4")) > 1 else "true"

    def where(self, table, alias, chance=0.8):
        return f" WHERE {self.condition(table, alias)}" if self.r.random() < chance else ""

    def few(self, table, alias):
        """Of the rows a part, so that tables do not change from all to nothing."""
        r = self.r
        kind = r.random()
        if kind < 0.35:
            return f" WHERE {alias}.id = {r.randint(-5, 60)}"
        if kind < 0.65:
            low = r.randint(-10, 60)
            return f" WHERE {alias}.id BETWEEN {low} AND {low + r.randint(0, 20)}"
        if kind < 0.75:
            return f" WHERE {alias}.id % {r.randint(2, 9)} = {r.randint(0, 3)}"
        if kind < 0.95:
            return f" WHERE {alias}.id % 3 = {r.randint(0, 2)} AND {self.condition(table, alias)}"
        return self.where(table, alias)

    def columns(self, table, most=4):
        return self.r.sample(table.columns, min(len(table.columns), self.r.randint(1, most)))

    def any_table(self):
        return self.r.choice(self.tables)

    def returning(self, table, alias=""):
        r = self.r
        if r.random() < 0.65:
            return ""
        if r.random() < 0.4:
            return " RETURNING *"
        return " RETURNING " + ", ".join(f"{alias}{c.name} AS r{i}" for i, c in enumerate(self.columns(table)))

    # -- queries

    def query(self):
        """(text, needs, ordered)"""
        r = self.r
        kind = r.choices(
            (self._plain, self._sorted, self._aggregate, self._group, self._join, self._self_join, self._sub, self._window, self._set, self._lateral),
            (6, 4, 4, 3, 3, 0, 0, 2, 2, 0) if self.large else (6, 4, 4, 3, 3, 2, 4, 2, 2, 1),
        )[0]
        return kind()

    def _plain(self):
        t = self.any_table()
        what = self.r.choice(("*", "t", ", ".join(f"t.{c.name} AS r{i}" for i, c in enumerate(self.columns(t))), "1 AS one"))
        return f"SELECT {what} FROM @{t.index}@ AS t{self.where(t, 't')}", [t.index], False

    def _sorted(self):
        r, t = self.r, self.any_table()
        keys = [f"{TYPES[c.type].key.format('t.' + c.name)} {r.choice(('', 'DESC', 'NULLS FIRST', 'DESC NULLS LAST'))}"
                for c in self.columns(t, 2) if TYPES[c.type].order]
        order = ", ".join(keys + ['t::text COLLATE "C"'])
        limit = r.choice(("", f" LIMIT {r.randint(0, 12)}", f" LIMIT {r.randint(1, 9)} OFFSET {r.randint(0, 9)}"))
        return f"SELECT * FROM @{t.index}@ AS t{self.where(t, 't')} ORDER BY {order}{limit}", [t.index], True

    def _aggregates(self, table, alias):
        r = self.r
        out = ["count(*)"]
        for c in self.columns(table):
            of, kind = f"{alias}.{c.name}", TYPES[c.type]
            key = kind.key.format(of)
            choices = [f"count({of})", f"count(DISTINCT {key})", f"string_agg({of}::text, ',' ORDER BY {of}::text COLLATE \"C\")",
                       f"count(*) FILTER (WHERE {self.condition(table, alias, 1)})"]
            if not kind.order:
                choices[1] = choices[0]
            if kind.minmax and kind.order:
                choices += [f"min({key})", f"max({key})"] * 2
            if c.type in INTEGERS + ("float4", "float8", "numeric", "numeric(10,2)"):
                choices += [f"sum({of}::numeric)", f"avg({of}::numeric)"]
            if c.type == "bool":
                choices += [f"bool_and({of})", f"bool_or({of})"]
            out.append(r.choice(choices))
        return ", ".join(f"{a} AS a{i}" for i, a in enumerate(out))

    def _aggregate(self):
        t = self.any_table()
        return f"SELECT {self._aggregates(t, 't')} FROM @{t.index}@ AS t{self.where(t, 't')}", [t.index], False

    def _group(self):
        r, t = self.r, self.any_table()
        keys = [TYPES[c.type].key.format("t." + c.name) for c in self.columns(t, 2) if TYPES[c.type].order] or ["t.id"]
        group = ", ".join(keys)
        having = r.choice(("", "", " HAVING count(*) > 1"))
        if r.random() < 0.15:
            group = f"ROLLUP ({group})"
        text = f"SELECT {', '.join(f'{k} AS k{i}' for i, k in enumerate(keys))}, {self._aggregates(t, 't')} FROM @{t.index}@ AS t"
        return f"{text}{self.where(t, 't', 0.5)} GROUP BY {group}{having}", [t.index], False

    def _join(self):
        r, t = self.r, self.any_table()
        kind = r.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        columns = ", ".join(f"t.{c.name} AS r{i}" for i, c in enumerate(self.columns(t)))
        on = f"t.{r.choice(('id', 'k'))} = o.k"
        if kind != "FULL JOIN" and r.random() < 0.3:
            on += f" AND {self.condition(t, 't', 1)}"
        return f"SELECT {columns}, o.k AS ok, o.t AS ot FROM @{t.index}@ AS t {kind} d_other AS o ON {on}{self.where(t, 't', 0.4)}", [t.index], False

    def _self_join(self):
        r, a, b = self.r, self.any_table(), self.any_table()
        kind = r.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
        on = f"a.id = b.{r.choice(('id', 'k'))}"
        if kind != "FULL JOIN" and r.random() < 0.3:
            on = f"a.id BETWEEN b.id AND b.id + 2 AND b.k = {r.randint(0, 30)}"
        text = f"SELECT count(*) AS n, count(a.k) AS ak, sum(a.k::numeric * b.id) AS s, max(b.id) AS b FROM @{a.index}@ AS a {kind} @{b.index}@ AS b ON {on}"
        return text + self.where(a, "a", 0.5), [a.index, b.index], False

    def _sub(self):
        r, t, u = self.r, self.any_table(), self.any_table()
        table = f"@{u.index}@"
        text = r.choice((
            f"t.id {r.choice(('IN', 'NOT IN'))} (SELECT u.k FROM {table} AS u{self.where(u, 'u')})",
            f"{r.choice(('', 'NOT '))}EXISTS (SELECT FROM {table} AS u WHERE u.k = t.id AND {self.condition(u, 'u', 1)})",
            f"EXISTS (SELECT FROM d_other AS o WHERE o.k = t.k AND o.n > {r.randint(0, 99999)})",
            f"t.id {r.choice(('<', '=', '>='))} (SELECT {r.choice(('max', 'min'))}(u.k) FROM {table} AS u{self.where(u, 'u')})",
            f"t.id > (SELECT count(*) FROM {table} AS u WHERE u.k = t.k)",
            f"t.id = ANY (SELECT o.k FROM d_other AS o WHERE o.t LIKE '%{r.randint(0, 9)}')",
            f"(SELECT count(*) FROM d_other AS o WHERE o.k < t.k) > {r.randint(0, 30)}",
        ))
        columns = ", ".join(f"t.{c.name} AS r{i}" for i, c in enumerate(self.columns(t)))
        need = [t.index] + ([u.index] if table in text else [])
        return f"SELECT {columns} FROM @{t.index}@ AS t WHERE {text} AND {self.condition(t, 't', 1)}", need, False

    def _window(self):
        r, t = self.r, self.any_table()
        by = TYPES[r.choice([c for c in t.columns if TYPES[c.type].order]).type]
        column = r.choice(t.of_type(by.sql))
        over = r.choice((
            f"PARTITION BY {by.key.format('t.' + column.name)} ORDER BY t::text COLLATE \"C\"",
            f"ORDER BY {by.key.format('t.' + column.name)}, t::text COLLATE \"C\"",
        ))
        call = r.choice(("row_number()", "count(*)", "sum(t.k::numeric)", "lag(t.id)", "first_value(t.k)"))
        return f"SELECT t.id, t.k, {call} OVER ({over}) AS w FROM @{t.index}@ AS t{self.where(t, 't', 0.5)}", [t.index], False

    def _set(self):
        r, a, b = self.r, self.any_table(), self.any_table()
        operation = r.choice(("UNION", "UNION ALL", "EXCEPT", "INTERSECT", "EXCEPT ALL"))
        left, right = (f"SELECT t.id, t.k FROM @{t.index}@ AS t{self.where(t, 't')}" for t in (a, b))
        return f"{left} {operation} {right}", [a.index, b.index], False

    def _lateral(self):
        t, u = self.any_table(), self.any_table()
        inner = f"SELECT count(*) AS n, max(u.id) AS m FROM @{u.index}@ AS u WHERE u.id <= o.k AND {self.condition(u, 'u', 1)}"
        return f"SELECT o.k, l.n, l.m FROM d_other AS o, LATERAL ({inner}) AS l WHERE o.k % 5 = 0", [u.index], False

    def select(self):
        text, needs, ordered = self.query()
        if self.r.random() < 0.05:
            return Statement("copy to", f"COPY ({text}) TO STDOUT", {n: READ for n in needs}, ordered=ordered)
        return Statement("select", text, {n: READ for n in needs}, ordered=ordered)

    def look(self):
        t = self.any_table()
        return Statement("select", f"SELECT count(*) FROM @{t.index}@", {t.index: READ}, waits=True)

    # -- changes

    def targets(self, table):
        columns = [c for c in table.columns if not c.generated]
        if self.r.random() < 0.4:
            columns = [c for c in columns if c.name == "id" or self.r.random() < 0.6]
        return columns

    def value(self, column):
        r = self.r
        if column.name == "id":
            return str(r.randint(-5, 60)) if r.random() < 0.99 else "NULL"
        if column.name == "k":
            return str(r.choice((r.randint(-5, 40),) * 30 + (2000,)))
        return TYPES[column.type].literal(r, column.nulls) if r.random() < 0.95 else "DEFAULT"

    def insert(self):
        r, t = self.r, self.any_table()
        columns = self.targets(t) or t.columns[:1]
        kind = r.random()
        names = ", ".join(c.name for c in columns)
        many = kind > 0.3
        if kind < 0.65:
            rows = [", ".join(self.value(c) for c in columns) for _ in range(1 if not many else r.randint(2, 12))]
            source = "VALUES " + ", ".join(f"({row})" for row in rows)
        else:
            source = self.series(columns, r.randint(1, 40))
        if r.random() < 0.02:
            names, source = "id", "VALUES (DEFAULT)"
        conflict = " ON CONFLICT DO NOTHING" if r.random() < 0.03 else ""
        return Statement("insert", f"INSERT INTO @{t.index}@ ({names}) {source}{conflict}{self.returning(t)}", {t.index: WRITE}, waits=True, loose=many)

    def series(self, columns, rows, first=None):
        """Values of many rows out of a few: by number."""
        r = self.r
        first = r.randint(-5, 50) if first is None else first

        def one(c):
            if c.name in ("id", "k"):
                return r.choice(("i", "i % 40", "i / 2"))
            values = [TYPES[c.type].literal(r, c.nulls) for _ in range(r.randint(1, 6))]
            values = [v if rows * len(v) < 2 * 10**6 else "NULL" for v in values]
            return f"(ARRAY[{', '.join(values)}])[abs(i) % {len(values)} + 1]" if "[]" not in c.type else values[0]

        return f"SELECT {', '.join(one(c) for c in columns)} FROM generate_series({first}, {first + rows - 1}) AS i"

    def load(self, rows):
        t = self.any_table()
        columns = [c for c in t.columns if not c.generated]
        names = ", ".join(c.name for c in columns)
        return Statement("load", f"INSERT INTO @{t.index}@ ({names}) {self.series(columns, rows, -5)}", {t.index: WRITE}, waits=True, loose=True)

    def insert_select(self):
        """From one of the tables, maybe the same."""
        r, t, u = self.r, self.any_table(), self.any_table()
        columns = [c for c in self.targets(t)]
        out = []
        for c in columns:
            same = u.of_type(c.type)
            out.append(f"u.{r.choice(same).name}" if same else TYPES[c.type].literal(r, 0.1))
        if not columns:
            return self.insert()
        text = f"INSERT INTO @{t.index}@ ({', '.join(c.name for c in columns)}) SELECT {', '.join(out)} FROM @{u.index}@ AS u{self.few(u, 'u')}"
        need = {u.index: READ}
        need[t.index] = WRITE
        return Statement("insert select", text + self.returning(t), need, waits=t is u, loose=True)

    def copy_from(self):
        r, t = self.r, self.any_table()
        columns = self.targets(t) or t.columns[:1]
        csv = r.random() < 0.4

        def value(c):
            if r.random() < c.nulls:
                return "" if csv else "\\N"
            raw = str(r.randint(-5, 60)) if c.name in ("id", "k") else TYPES[c.type].raw(r)
            if csv:
                return '"' + raw.replace('"', '""') + '"'
            return raw.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")

        lines = [("," if csv else "\t").join(value(c) for c in columns) for _ in range(r.randint(0, 60))]
        if r.random() < 0.06:
            lines.insert(r.randint(0, len(lines)), "not a row")
        data = None if r.random() < 0.05 else "".join(line + "\n" for line in lines)
        names = ", ".join(c.name for c in columns)
        where = r.choice(("", "", " WHERE id % 2 = 0"))
        return Statement("copy", f"COPY @{t.index}@ ({names}) FROM STDIN{' (FORMAT csv)' if csv else ''}{where}", {t.index: WRITE},
                         copy=(data,), waits=len(data or "") < 50000, loose=True)  # so much goes into a socket that nobody reads

    def assignments(self, table, alias=""):
        r = self.r
        columns = [c for c in self.columns(table, 3) if not c.generated] or [table.columns[1]]
        out = []
        for c in columns:
            kind = TYPES[c.type]
            if c.name in ("id", "k"):
                out.append(f"{c.name} = {r.choice((self.value(c), f'{alias}{c.name} + 1', f'{alias}k', f'{alias}id'))}")
            elif kind.change and r.random() < 0.4:
                out.append(f"{c.name} = {r.choice(kind.change).replace('{c}', alias + c.name)}")
            else:
                out.append(f"{c.name} = {self.value(c)}")
        return ", ".join(out)

    def update(self):
        r, t = self.r, self.any_table()
        text = f"UPDATE @{t.index}@ AS t SET {self.assignments(t, 't.')}"
        kind = r.random()
        if kind < 0.7:
            return Statement("update", text + self.few(t, "t") + self.returning(t, "t."), {t.index: WRITE}, waits=True, loose=True)
        if kind < 0.85:  # of the other side one row for each of ours
            text += f" FROM d_other AS o WHERE o.k = t.k AND {self.condition(t, 't', 1)}"
            return Statement("update from", text + self.returning(t, "t."), {t.index: WRITE}, loose=True)
        u = self.any_table()
        need = {u.index: READ}
        need[t.index] = WRITE
        if kind < 0.93:
            text = (f"UPDATE @{t.index}@ AS t SET k = s.n FROM (SELECT u.id, count(*) AS n FROM @{u.index}@ AS u GROUP BY u.id) AS s"
                    f" WHERE s.id = t.id AND {self.condition(t, 't', 1)}")
        else:
            text += f" WHERE t.id = (SELECT max(u.id) FROM @{u.index}@ AS u{self.where(u, 'u')})"
        return Statement("update join", text + self.returning(t, "t."), need, loose=True)

    def delete(self):
        r, t = self.r, self.any_table()
        text = f"DELETE FROM @{t.index}@ AS t"
        kind = r.random()
        if kind < 0.75:
            return Statement("delete", text + self.few(t, "t") + self.returning(t, "t."), {t.index: WRITE}, waits=True)
        if kind < 0.78:
            return Statement("delete", text, {t.index: WRITE}, waits=True)
        u = self.any_table()
        need = {u.index: READ}
        need[t.index] = WRITE
        if kind < 0.88:
            text += f" USING d_other AS o WHERE o.k = t.id AND {self.condition(t, 't', 1)}"
            return Statement("delete using", text + self.returning(t, "t."), {t.index: WRITE})
        text += f" WHERE t.id IN (SELECT u.k FROM @{u.index}@ AS u WHERE u.id % 4 = {r.randint(0, 3)})"
        return Statement("delete in", text + self.returning(t, "t."), need)

    def few_to_lock(self, table, alias):
        """The planner leaves out a scan, and so its lock, where it finds the condition false: by a comparison with NULL, or by
        two that contradict each other."""
        rows = self.few(table, alias)
        while "NULL" in rows or " AND " in rows:
            rows = self.few(table, alias)
        return rows

    def lock(self):
        r, t = self.r, self.any_table()
        strength = r.choice(("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"))
        return Statement("select for", f"SELECT * FROM @{t.index}@ AS t{self.few_to_lock(t, 't')} FOR {strength}", {t.index: WRITE}, waits=True)

    def by_ctid(self):
        """Rows that were locked, found again."""
        r, t = self.r, self.any_table()
        rows = f"SELECT u.ctid FROM @{t.index}@ AS u{self.few_to_lock(t, 'u')} FOR UPDATE"
        change = r.choice((f"UPDATE @{t.index}@ AS t SET {self.assignments(t, 't.')}", f"DELETE FROM @{t.index}@ AS t"))
        return Statement("by ctid", f"{change} WHERE t.ctid = ANY (ARRAY({rows})){self.returning(t, 't.')}", {t.index: WRITE}, waits=True, loose=True)

    def within(self):
        """A function changes the rows that the statement is to change, which fails (27000), or others."""
        r, t = self.r, self.any_table()
        if t.change:
            return self.update()  # a heap's row is looked at before triggers, which may leave it as it is
        table, n = f"@{t.index}@", r.randint(-5, 60)
        text = r.choice((
            f"UPDATE {table} AS t SET k = d_touch('{table}', t.id) WHERE t.id = {n}",
            f"DELETE FROM {table} AS t WHERE t.id = {n} AND d_touch('{table}', t.id) > 0",
            f"UPDATE {table} AS t SET k = d_touch('{table}', t.id + 1) WHERE t.id % 2 = 0 AND t.id BETWEEN {n} AND {n + 8}",
            f"DELETE FROM {table} AS t WHERE t.id % 2 = 0 AND t.id BETWEEN {n} AND {n + 8} AND d_touch('{table}', t.id + 1) > 0",
        ))
        return Statement("within", text, {t.index: WRITE}, waits=True, loose=True)

    def thin_out(self):
        """Most rows go, so that a table is written anew without them."""
        t = self.any_table()
        return Statement("delete", f"DELETE FROM @{t.index}@ AS t WHERE t.id % 5 <> {self.r.randint(0, 4)}", {t.index: WRITE}, waits=True)

    def with_change(self):
        """A data-modifying CTE: all parts see what was before the statement."""
        r, t, u = self.r, self.any_table(), self.any_table()
        table, other = f"@{t.index}@", f"@{u.index}@"
        kind = r.random() * (0.4 if self.large else 1)
        need = {u.index: READ if 0.4 <= kind < 0.8 else WRITE}
        need[t.index] = WRITE
        if kind < 0.4:
            text = (f"WITH d AS (DELETE FROM {table} AS t{self.few(t, 't')} RETURNING t.id, t.k)"
                    f" INSERT INTO {other} (id, k) SELECT d.id + 1, d.k FROM d RETURNING id, k")
        elif kind < 0.6:
            text = (f"WITH d AS (UPDATE {table} AS t SET k = t.k + 1{self.few(t, 't')} RETURNING t.id, t.k)"
                    f" SELECT d.id, d.k, (SELECT count(*) FROM {other} AS u WHERE u.k = d.k) AS n FROM d")
        elif kind < 0.8:
            text = (f"WITH i AS (INSERT INTO {table} (id, k) SELECT u.k, u.id FROM {other} AS u{self.few(u, 'u')} RETURNING id)"
                    f" SELECT (SELECT count(*) FROM i) AS new, (SELECT count(*) FROM {table}) AS old")
        else:
            text = (f"WITH i AS (INSERT INTO {table} (id, k) VALUES (1, 1), (2, 2) RETURNING id), d AS (DELETE FROM {other} AS u WHERE u.id = 1 RETURNING u.k)"
                    " SELECT (SELECT count(*) FROM i) AS i, (SELECT count(*) FROM d) AS d")
        return Statement("with", text, need, loose=True, waits=kind < 0.4 and t is u)  # it looks at nothing but what it changes

    def failing(self):
        """An error of its own kind, alone."""
        r, t = self.r, self.any_table()
        table = f"@{t.index}@"
        text, need = r.choice((
            (f"SELECT 1 / (t.k - t.k) FROM {table} AS t", READ),
            ("SELECT 1 / 0", 0),
            (f"SELECT missing FROM {table}", READ),
            (f"INSERT INTO {table} (id, k) VALUES (1, 2000), (2, 2000)", WRITE),
            (f"INSERT INTO {table} (id) VALUES (NULL)", WRITE),
            (f"UPDATE {table} AS t SET id = 1 / (t.id - t.id)", WRITE),
            (f"INSERT INTO {table} (id) SELECT 1 / (i - 9) FROM generate_series(1, 9) AS i", WRITE),
            (f"DELETE FROM {table} AS t WHERE 1 / (t.id - t.id) = 0", WRITE),
            (f"INSERT INTO {table} (id, k) VALUES ('x', 1)", WRITE),
            (f"DO $$ BEGIN INSERT INTO {table} (id, k) VALUES (1, 1); RAISE division_by_zero; END $$", WRITE),
        ))
        statement = Statement("error", text, {t.index: need} if need else {}, loose=True)
        return statement

    def block(self):
        """Subtransactions within a statement."""
        r, t = self.r, self.any_table()
        table = f"@{t.index}@"
        fails = r.choice(("", "PERFORM 1 / 0;", f"INSERT INTO {table} (id, k) VALUES (1, 5000);"))
        text = (f"DO $$ BEGIN INSERT INTO {table} (id, k) VALUES ({r.randint(0, 60)}, 1);"
                f" BEGIN UPDATE {table} AS t SET k = t.k - 1{self.few(t, 't')}; DELETE FROM {table} AS t{self.few(t, 't')}; {fails}"
                f" EXCEPTION WHEN OTHERS THEN INSERT INTO {table} (id, k) VALUES (77, 7); END;"
                f" UPDATE {table} SET k = (SELECT count(*) FROM {table}) WHERE id = 77; END $$")
        return Statement("do", text, {t.index: WRITE}, loose=True)

    def truncate(self, emulate):
        t = self.any_table()
        heap = f"LOCK TABLE h{t.index} IN ACCESS EXCLUSIVE MODE; DELETE FROM h{t.index}" if emulate else None
        return Statement("truncate", f"TRUNCATE @{t.index}@", {t.index: EXCLUSIVE}, heap=heap, same_result=False)

    def analyze(self):
        t = self.any_table()
        text = f"ANALYZE @{t.index}@"
        return Statement("analyze", text, {t.index: WRITE}, heap=text)

    def export(self):
        """Asking for a token writes a table anew, which is not to be seen."""
        t = self.any_table()
        return Statement("export", f"SELECT gstore_export('g{t.index}') IS NULL AS empty", {t.index: WRITE},
                         heap=f"SELECT NOT EXISTS (SELECT FROM h{t.index}) AS empty")

    # -- changes of the table itself

    def alter(self):
        r, t = self.r, self.any_table()
        columns = [c for c in t.columns if c.name not in ("id", "k")]
        table = f"ALTER TABLE @{t.index}@"
        kind = r.random()
        if kind < 0.35 or not columns:
            self.number += 1
            new = make_column(r, f"n{self.number}", t.format, t.columns)
            if r.random() < 0.15:
                new.more = " NOT NULL"  # fails where there are rows
            text = f"ALTER FOREIGN TABLE @{t.index}@ ADD COLUMN {new.define('g', t.format)}"
            return Statement("add column", text, {t.index: EXCLUSIVE}, heap=f"ALTER TABLE h{t.index} ADD COLUMN {new.define('h', t.format)}",
                             effect=("columns", t.index, t.columns + [new]), loose=True, same_result=False)
        column = r.choice(columns)
        rest = [c for c in t.columns if c is not column]
        if kind < 0.55:
            return Statement("drop column", f"{table} DROP COLUMN {column.name}", {t.index: EXCLUSIVE}, effect=("columns", t.index, rest))
        if kind < 0.65:
            self.number += 1
            renamed = Column(f"m{self.number}", column.type, column.more, column.generated, column.pglz)
            return Statement("rename column", f"{table} RENAME COLUMN {column.name} TO {renamed.name}", {t.index: EXCLUSIVE},
                             effect=("columns", t.index, [renamed if c is column else c for c in t.columns]))
        if kind < 0.72 and column.type in WIDER and not column.generated:
            wider = Column(column.name, WIDER[column.type], column.more, column.generated, column.pglz)
            return Statement("widen type", f"{table} ALTER COLUMN {column.name} TYPE {wider.type}", {t.index: EXCLUSIVE},
                             effect=("columns", t.index, [wider if c is column else c for c in t.columns]))
        if kind < 0.8 and not column.generated and not (t.format == "arrow" and column.type.endswith("[]")):
            other = r.choice([x for x in REFUSED if x not in (column.type, WIDER.get(column.type))])
            changed = Column(column.name, other, "", False, column.pglz)
            # With rows it is refused: differ.py sees to it that it fails on the heap, too.
            text = f"ALTER TABLE {{}} ALTER COLUMN {column.name} DROP DEFAULT, ALTER COLUMN {column.name} TYPE {other}"
            limit = f", ADD {changed.limit()}" if t.format == "arrow" and other.endswith("[]") else ""
            return Statement("change type", text.format(f"g{t.index}"), {t.index: EXCLUSIVE}, heap=text.format(f"h{t.index}") + f" USING NULL::{other}{limit}",
                             probe=f"SELECT count(*), count({column.name}) FROM h{t.index}", loose=True, effect=("columns", t.index, [changed if c is column else c for c in t.columns]))
        if kind < 0.86 and not column.generated:
            return Statement("alter default", f"{table} ALTER COLUMN {column.name} SET DEFAULT {TYPES[column.type].literal(r)}", {t.index: EXCLUSIVE})
        if kind < 0.92:
            return Statement("alter null", f"{table} ALTER COLUMN {column.name} {r.choice(('SET', 'DROP'))} NOT NULL", {t.index: EXCLUSIVE})
        if kind < 0.96 or t.format == "arrow":
            self.number += 1
            return Statement("add check", f"{table} ADD CONSTRAINT check{self.number} CHECK ({r.choice(('id < 58', 'k < 900', 'id IS NOT NULL'))})",
                             {t.index: EXCLUSIVE})
        text = f"ALTER FOREIGN TABLE g{t.index} ALTER COLUMN {column.name} OPTIONS ({'SET' if column.pglz else 'ADD'} compression '{r.choice(('pglz', 'none'))}')"
        changed = Column(column.name, column.type, column.more, column.generated, True)
        # SET STATISTICS alone would let readers go on.
        heap = f"LOCK TABLE h{t.index} IN ACCESS EXCLUSIVE MODE; ALTER TABLE h{t.index} ALTER COLUMN {column.name} SET STATISTICS 100"
        return Statement("compression", text, {t.index: EXCLUSIVE}, heap=heap,
                         same_result=False, effect=("columns", t.index, [changed if c is column else c for c in t.columns]))

    # -- cursors and prepared statements

    def cursor(self, name, hold):
        text, needs, ordered = self.query()
        return Statement("declare", f"DECLARE {name} CURSOR {'WITH HOLD ' if hold else ''}FOR {text}", {n: READ for n in needs},
                         effect=("cursor", name, hold, ordered))

    def prepare(self, name):
        r, t = self.r, self.any_table()
        a, b = r.choice(t.columns), r.choice(t.columns)
        table = f"@{t.index}@"
        kind = r.random()
        if kind < 0.5 and TYPES[a.type].order and TYPES[b.type].order:
            types, need = (a.type, b.type), READ
            text = f"SELECT * FROM {table} AS t WHERE t.{a.name} {r.choice(('<', '=', '>=', '<>'))} $1 {r.choice(('AND', 'OR'))} t.{b.name} <= $2"
        elif kind < 0.75:
            types, need = ("int4", "int8"), WRITE
            text = f"UPDATE {table} SET k = $1 % 900 WHERE id = $2 % 50 RETURNING id, k"
        else:
            types, need = ("int4", "int2"), WRITE
            text = f"INSERT INTO {table} (id, k) VALUES ($1 % 60, $2 % 100)"
        return Statement("prepare", f"PREPARE {name} ({', '.join(types)}) AS {text}", {t.index: READ}, effect=("prepare", name, types, t.index, need))

    def execute(self, name, types, index, need):
        values = ", ".join(TYPES[t].literal(self.r, 0.02) for t in types)
        return Statement("execute", f"EXECUTE {name} ({values})", {index: need}, loose=True)
