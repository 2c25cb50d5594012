#!/usr/bin/env python3
"""Random statements of shapes that queries.py does not make, on heap tables and on tables in GPU memory of the same rows. TAP.

usage: queries_shapes.py [--seed N] [--queries N]

Trees of inner, outer, lateral, semi and anti joins of tables, subqueries, sets and groups; DISTINCT, HAVING, grouping sets, windows, first rows WITH TIES; by
cursors in pieces, and prepared with parameters; INSERT, UPDATE and DELETE with RETURNING, which a savepoint undoes or the rest of the transaction sees; first rows by
distances, and gstore_search(). Eight tables have 0 to 40 rows of few values, so that most joins find some; in the last groups two of them have 20,000 and more.
In each statement tables of both formats, partitioned ones and heaps are mixed, and some of the planner's choices are turned off.

Results are the same but for the scale of decimals and the sign of 0, of which PostgreSQL shows any of equal ones. Errors of values (class 22) may be raised by one plan and
not by another. Where the heap takes longer than HEAP_S the statement is left out; where tables in GPU memory take longer than LIMIT_S that is shown.
"""
import decimal
import random
import re
import sys

sys.dont_write_bytecode = True
import private  # noqa: E402
import queries  # noqa: E402
import wire  # noqa: E402
from queries import run  # noqa: E402

QUERIES = 1000
ON_GPU_LEAST = 0.5
HEAP_S, LIMIT_S = 10, 60
SETTINGS = tuple(s for s in queries.SETTINGS if not s.startswith("enable_"))
TABLES = 8
ROWS = ((0, 1, 3, 12, 25), (12, 25, 25, 40), (0, 5, 12))
LARGE, LARGE_GROUPS, SMALL_BESIDE = (20000, 33000), 2, (0, 1, 5, 7)
KINDS = ("heap", "pgstrom", "arrow", "parts")
MIXTURES = (("pgstrom",), ("arrow",), ("parts",), ("pgstrom", "arrow"), ("pgstrom", "arrow", "heap"), ("pgstrom", "heap"), KINDS)
COLUMNS = {"id": "int", "a": "int", "b": "bigint", "c": "smallint", "f": "float8", "r": "real", "g": "float8", "n": "numeric(6,2)", "m": "numeric(8,3)", "t": "text", "vt": "varchar(8)",
           "ch": "char(3)", "d": "date", "ts": "timestamp", "tz": "timestamptz", "bo": "bool", "u": "uuid", "e": "mood", "o": "oid"}
ELEMENTS, BITS = 3, 10
VECTORS = {"v": "real[]", "v8": "float8[]", "v2": "smallint[]"}
OPERATORS = ("<->", "<#>", "<+>")
PGVECTOR = {"vv": f"vector({ELEMENTS})", "vh": f"halfvec({ELEMENTS})"}  # where it is installed
INTS, FLOATS, DECIMALS, TEXTS = ("int", "bigint", "smallint"), ("float8", "real"), ("numeric(6,2)", "numeric(8,3)", "numeric"), ("text", "varchar(8)", "char(3)")
FEW = {  # values of each type, of which tables have all, too
    "text": ("", "a", "ab", "A", "b", "ba", "a "), "varchar(8)": ("", "a", "ab", "A", "b"), "char(3)": ("", "a", "ab", "A", "b"),
    "date": ("2000-01-01", "2000-01-02", "1999-12-31", "infinity", "-infinity", "2024-02-29"), "timestamp": ("2000-01-01", "2000-01-02 12:00", "1999-12-31", "infinity", "2024-02-29"),
    "timestamptz": ("2000-01-01", "2000-01-02 12:00", "1999-12-31", "infinity", "2024-02-29"), "bool": ("true", "false"), "mood": ("sad", "ok", "fine", "happy"), "oid": (0, 1, 2, 4294967295),
    "uuid": [f"{first}0000000-0000-0000-0000-00000000000{last}" for first in "7f" for last in range(3)], "numeric": ("0", "1", "1.50", "2.500", "-1.25", "3", "2", "0.125"),
    "float8": ("NaN", "Infinity", "-Infinity", "-0", "0", "0.5", "1", "2", "-1.5", "3.125"),
}
FEW["real"] = FEW["float8"]
COMPARISONS = ("=", "=", "=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
ORDERS = ("", " DESC", " NULLS FIRST", " DESC NULLS LAST")
CHOICES = (*(f"SET LOCAL enable_{what}=off" for what in ("hashjoin", "nestloop", "mergejoin", "memoize", "material", "sort", "hashagg")), "SET LOCAL join_collapse_limit=1", "SET LOCAL from_collapse_limit=1",
           "SET LOCAL enable_partitionwise_join=on", "SET LOCAL enable_partitionwise_aggregate=on", "SET LOCAL work_mem='64kB'", "SET LOCAL cpu_operator_cost=1", "SET LOCAL cpu_tuple_cost=10")
TABLE, PARAMETER = re.compile(r"@(\d)"), re.compile(r"\?(\d+)\?")
NUMERIC, FLOAT4, FLOAT8 = 1700, 700, 701


def family(kind):
    return next((f for f in (INTS, FLOATS, DECIMALS, TEXTS) if kind in f), (kind,))


class Shapes:
    """Makes one statement: @3 stands for the fourth table, #3 for it where it is changed, ?0? for the first parameter. A scope is a list of (expression, type)."""

    def __init__(self, rng, large=False, vectors=VECTORS):
        self.rng, self.large, self.vectors = rng, large, vectors
        self.names = 0
        self.has_large = False
        self.parameters = None  # where the statement has some: their types and literals

    def maybe(self, share):
        return self.rng.random() < share

    # ---- values and expressions

    def literal(self, kind):
        rng = self.rng
        if kind in INTS:
            return f"'{rng.randint(-2, 6)}'::{kind}"
        if kind in DECIMALS:
            return f"'{rng.choice(FEW['numeric'])}'::{rng.choice((kind, 'numeric'))}"
        return f"'{rng.choice(FEW[kind])}'::{kind}"

    def constant(self, kind):
        """A literal or a parameter."""
        if self.parameters is None or self.maybe(0.5):
            return self.literal(kind)
        self.parameters.append((kind, self.literal(kind)))
        return f"?{len(self.parameters) - 1}?"

    def value(self, column):
        rng = self.rng
        if self.maybe(0.15):
            return "NULL"
        if column == "g":  # its sums are exact in any order
            return f"{rng.randint(-16, 16) / 8}"
        if column == "f" and self.maybe(0.7):
            return str(rng.randint(-3, 6))
        if column == "b" and self.maybe(0.03):
            return str(rng.choice((2**63 - 1, -(2**63) + 1)))
        return self.literal(COLUMNS[column])

    def vector(self):
        return ",".join(str(self.rng.randint(-9, 9)) for _ in range(ELEMENTS))

    def bits(self):
        return f"B'{self.rng.getrandbits(BITS):0{BITS}b}'"

    def pick(self, scope, *kinds):
        some = [e for e in scope if not kinds or e[1] in kinds]
        return self.rng.choice(some) if some else None

    def expression(self, scope, depth=1):
        rng = self.rng
        text, kind = self.pick(scope)
        if depth <= 0 or self.maybe(0.5):
            return text, kind
        if self.maybe(0.35) and (made := self.of_kind(scope, text, kind)):
            return made
        other = self.pick(scope, kind)[0]
        made = rng.choice((f"coalesce({text}, {self.constant(kind)})", f"coalesce({text}, {other})", f"CASE WHEN {self.condition(scope, 0)} THEN {text} ELSE {other} END",
                           f"CASE WHEN {self.condition(scope, 0)} THEN {text} END", f"nullif({text}, {other})", f"greatest({text}, {other})"))
        return made, "numeric" if kind in DECIMALS else "text" if kind in TEXTS else kind

    def of_kind(self, scope, text, kind):
        """An expression that only this type has."""
        rng = self.rng
        if kind in INTS:
            other, narrow = self.pick(scope, "int", "smallint") or (self.literal("int"), "int")
            wide = "bigint" if kind == "bigint" else "int" if "int" in (kind, narrow) else "smallint"
            return rng.choice(((f"({text} % 5 + {other})", wide), (f"({text} % 3)", kind), (f"(- ({text} % 7))", kind), (f"({text} % 9)::float8", "float8")))
        if kind in FLOATS:
            return rng.choice(((f"({text} + 1)", "float8"), (f"(- {text})", kind), (f"abs({text})", kind)))
        if kind in DECIMALS:
            return rng.choice((f"({text} + 1.5)", f"(- {text})", f"round({text}, 1)")), "numeric"
        made = {"bool": lambda: f"({self.condition(scope, 0)})", "text": lambda: rng.choice(("lower({})", "upper({})", "left({}, 1)", "({} || 'x')")).format(text),
                "timestamp": lambda: f"date_trunc('day', {text})", "date": lambda: f"({text} + 1)"}
        return (made[kind](), kind) if kind in made else None

    def condition(self, scope, depth=1):
        rng, choice = self.rng, self.rng.random()
        if depth > 0 and choice < 0.2:
            return f"({self.condition(scope, depth - 1)} {rng.choice(('AND', 'OR'))} {self.condition(scope, depth - 1)})"
        if depth > 0 and choice < 0.27:
            return f"NOT ({self.condition(scope, depth - 1)})"
        text, kind = self.expression(scope, depth)
        if depth > 0 and choice < 0.3:  # which no row meets
            return f"({text} = {self.literal(kind)} AND {text} IS NULL)"
        if choice < 0.4:
            return f"({text} IS {rng.choice(('', 'NOT '))}NULL)"
        if choice < 0.5:
            return f"({text} {rng.choice(('', 'NOT '))}IN ({', '.join(self.constant(kind) for _ in range(rng.randint(1, 4)))}{rng.choice(('', '', '', ', NULL'))}))"
        if kind == "bool" and choice < 0.7:
            return f"({text} {rng.choice(('', 'IS TRUE', 'IS NOT TRUE', 'IS FALSE', 'IS UNKNOWN', 'IS NOT UNKNOWN'))})"
        beside = None if self.maybe(0.6) else self.pick(scope, *family(kind))
        other = beside[0] if beside else self.constant(kind)
        return f"({text} {rng.choice(COMPARISONS)} {other})"

    def pair(self, left, right):
        """A condition that compares both scopes."""
        rng = self.rng
        for _ in range(20):
            text, kind = self.expression(left, self.maybe(0.2))
            kinds = (*INTS, *FLOATS, *DECIMALS) if kind in INTS and self.maybe(0.1) else ("timestamp",) if kind == "date" and self.maybe(0.2) else family(kind) if self.maybe(0.8) else (kind,)
            if other := self.pick(right, *kinds):
                sides = [text, other[0]]
                rng.shuffle(sides)
                return f"{sides[0]} {rng.choice(('=', '=', *COMPARISONS))} {sides[1]}"
        return "true"

    def on(self, left, right, always=False):
        rng = self.rng
        if not always and self.maybe(0.05):
            return rng.choice(("true", "true", "false", "NULL"))
        conditions = [self.pair(left, right)]
        while self.maybe(0.35):
            conditions.append(rng.choice((lambda: self.pair(left, right), lambda: self.condition(left, 0), lambda: self.condition(right, 0), lambda: self.condition(left + right, 1)))())
        return " AND ".join(conditions) if self.maybe(0.95) else f"({' OR '.join(conditions)})"

    # ---- FROM

    def alias(self):
        self.names += 1
        return f"x{self.names}"

    def table(self, number=None):
        """Of the large tables a statement has one; or two, joined by their keys."""
        if number is None:
            number = self.rng.randrange(2 if self.large and self.has_large else 0, TABLES)
            self.has_large |= number < 2
        name = self.alias()
        return f"@{number} AS {name}", [(f"{name}.{column}", kind) for column, kind in COLUMNS.items()]

    def named(self, columns):
        """The list after SELECT, the name of the subquery, and its scope."""
        name = self.alias()
        return ", ".join(f"{text} AS y{i}" for i, (text, _) in enumerate(columns)), name, [(f"{name}.y{i}", kind) for i, (_, kind) in enumerate(columns)]

    def subquery(self, outer=None, depth=1):
        rng = self.rng
        source, scope = self.source(rng.choice((1, 1, 1, 2)), depth - 1)
        choice, where, rest = rng.random(), "", ""
        if outer and self.maybe(0.8):
            where = f" WHERE {self.on(outer, scope, True)}"
        elif self.maybe(0.5):
            where = f" WHERE {self.condition(scope)}"
        if choice < 0.35:
            head, columns = "", [self.expression(scope + (outer or []) if self.maybe(0.2) else scope) for _ in range(rng.randint(1, 4))]
        elif choice < 0.5:
            head, columns = "DISTINCT ", [rng.choice(scope) for _ in range(rng.randint(1, 3))]
            if self.maybe(0.5):
                rest = f" ORDER BY {', '.join(str(i + 1) for i in rng.sample(range(len(columns)), len(columns)))} LIMIT {rng.randint(1, 20)}"
        elif choice < 0.85:
            head, keys = "", [self.expression(scope) for _ in range(rng.choice((0, 1, 1, 2)))]
            columns = keys + [self.aggregate(scope, True) for _ in range(rng.randint(1, 2))]
            rest = (f" GROUP BY {', '.join(str(i + 1) for i in range(len(keys)))}" if keys else "") + (f" HAVING {self.counted(scope)} > {rng.randint(0, 2)}" if self.maybe(0.2) else "")
        elif choice < 0.95:
            other, other_scope = self.source(1, depth - 1)
            pairs = [(e, o) for e in rng.sample(scope, min(len(scope), rng.randint(1, 3))) if (o := self.pick(other_scope, e[1]))]
            if not pairs:
                return self.table()
            head, columns = "", [e for e, _ in pairs]
            rest = f" {rng.choice(('UNION ALL', 'UNION ALL', 'UNION', 'EXCEPT', 'INTERSECT'))} SELECT {', '.join(o for _, (o, _) in pairs)} FROM {other}"
        else:
            name = self.alias()
            return rng.choice((f"generate_series(-2, {rng.randint(0, 8)}) AS {name}(y0)", f"(VALUES (1), (2), (NULL), (2), ({rng.randint(-2, 6)})) AS {name}(y0)")), [(f"{name}.y0", "int")]
        wanted, name, made = self.named(columns)
        return f"(SELECT {head}{wanted} FROM {source}{where}{rest}) AS {name}", made

    def item(self, depth):
        return self.subquery(None, depth) if depth > 0 and self.maybe(0.25) else self.table()

    def source(self, count, depth=1):
        """A tree of so many tables or subqueries."""
        rng = self.rng
        if count <= 1:
            return self.item(depth)
        if self.large and not self.has_large and self.maybe(0.4):
            self.has_large = True
            (left, scope), (right, other) = self.table(0), self.table(1)
            more = f" AND {self.on(scope, other)}" if self.maybe(0.3) else ""
            return f"{left} {rng.choice(('JOIN', 'JOIN', 'LEFT JOIN', 'FULL JOIN'))} {right} ON {scope[0][0]} = {other[0][0]}{more}".replace("FULL JOIN", "LEFT JOIN" if more else "FULL JOIN"), scope + other
        if count > 2 and self.maybe(0.25):
            behind = rng.randint(1, count - 1)
            left, scope = self.source(count - behind, depth)
            right, other = self.source(behind, depth)
            right = f"({right})" if behind > 1 else right
        else:
            left, scope = self.source(count - 1, depth)
            right, other = self.item(depth)
        if self.maybe(0.07) and depth > 0 and count <= 3 and not self.large:
            right, other = self.subquery(scope, 0)
            if right.startswith("("):
                return f"{left} {rng.choice(('JOIN LATERAL', 'LEFT JOIN LATERAL'))} {right} ON {rng.choice(('true', self.on(scope, other)))}", scope + other
        if self.maybe(0.05):
            return f"{left} CROSS JOIN {right}", scope + other
        kind, on = rng.choice(("JOIN",) * 4 + ("LEFT JOIN",) * 4 + ("RIGHT JOIN", "FULL JOIN")), self.on(scope, other)
        if kind == "FULL JOIN":  # only by an equality
            mine, theirs = self.pick(scope, "int"), self.pick(other, "int")
            kind, on = (kind, f"{mine[0]} = {theirs[0]}") if mine and theirs else ("LEFT JOIN", on)
        return f"{left} {kind} {right} ON {on}", scope + other

    def exists(self, scope, depth=1):
        """EXISTS, IN, and others with a subquery. For each row of a large table anew: none."""
        rng, choice = self.rng, self.rng.random()
        source, inner = self.source(rng.choice((1, 1, 1, 2, 3)), 0)
        if choice < 0.55:
            nested = " AND " + self.exists(inner, 0) if depth > 0 and not self.large and self.maybe(0.15) else ""
            return f"{rng.choice(('', 'NOT '))}EXISTS (SELECT FROM {source} WHERE {self.on(scope, inner, True)}{nested})"
        text, kind = self.pick(scope)
        other = self.pick(inner, *family(kind))
        if not other:
            return "true"
        where = f" WHERE {self.on(scope, inner, True) if self.maybe(0.3) and not self.large else self.condition(inner)}" if self.maybe(0.5) else ""
        if choice < 0.9 or kind in ("bool", "uuid") or self.large:
            return f"{text} {rng.choice(('IN', 'IN', 'NOT IN'))} (SELECT {other[0]} FROM {source}{where})"
        if choice < 0.95:
            return f"{text} {rng.choice('= < >='.split())} {rng.choice(('ANY', 'ALL'))} (SELECT {other[0]} FROM {source}{where})"
        return f"{text} {rng.choice('=<>')} (SELECT min({other[0]}) FROM {source}{where})"

    def conditions(self, scope):
        some = [self.condition(scope) for _ in range(self.rng.choice((0, 0, 1, 1, 2)))]
        if self.maybe(0.3):
            some += [self.exists(scope) for _ in range(self.rng.choice((1, 1, 2)))]
        return f" WHERE {' AND '.join(some)}" if some else ""

    # ---- aggregates

    def counted(self, scope):
        return self.rng.choice(("count(*)", f"count({self.pick(scope)[0]})"))

    def aggregate(self, scope, inner=False):
        """One that others may be made of (inner) is exact: no average of floats."""
        rng, choice = self.rng, self.rng.random()
        text, kind = self.expression(scope)
        filtered = f" FILTER (WHERE {self.condition(scope)})" if self.maybe(0.2) else ""
        distinct = "DISTINCT " if self.maybe(0.12) else ""
        if choice < 0.15:
            return f"count(*){filtered}", "bigint"
        if choice < 0.3 or kind == "uuid":
            return f"count({distinct}{text}){filtered}", "bigint"
        if kind in INTS and choice < 0.5:
            return f"sum({distinct}{text}){filtered}", "numeric" if kind == "bigint" else "bigint"
        if kind in INTS and choice < 0.7:
            return f"avg({distinct}{text}){filtered}", "numeric"
        if kind in INTS and choice < 0.8:
            name = rng.choice(("bit_and", "bit_or", "bit_xor") if inner else ("var_pop", "var_samp", "stddev", "bit_and", "bit_or"))
            return f"{name}({distinct}{text}){filtered}", kind
        if kind in DECIMALS and choice < 0.7:
            return f"{rng.choice(('sum', 'avg'))}({distinct}{text}){filtered}", "numeric"
        if kind in FLOATS and choice < 0.7:
            exact = [e for e, _ in scope if e.endswith(".g")]
            return f"{rng.choice(('sum', 'sum' if inner else 'avg'))}({distinct}{rng.choice(exact) if exact else text}){filtered}", "float8"
        if kind == "bool":
            return f"{rng.choice(('bool_and', 'bool_or', 'every'))}({text}){filtered}", "bool"
        return f"{rng.choice(('min', 'max'))}({text}){filtered}", "text" if kind == "varchar(8)" else "numeric" if kind in DECIMALS else kind

    # ---- statements. Those with an order have it of all columns: (text, whether it is so).

    def order(self, columns):
        """By all of so many columns, in any order of them."""
        return "ORDER BY " + ", ".join(f"{i + 1}{self.rng.choice(ORDERS)}" for i in self.rng.sample(range(columns), columns))

    def limit(self, *rows):
        rows = self.rng.choice(rows)
        if self.parameters is not None and self.maybe(0.5):
            self.parameters.append(("bigint", f"'{rows}'::bigint"))
            rows = f"?{len(self.parameters) - 1}?"
        return f" LIMIT {rows}" + (f" OFFSET {self.rng.choice((1, 4, 300))}" if self.maybe(0.35) else "")

    def query(self):
        rng, choice = self.rng, self.rng.random()
        source, scope = self.source(rng.choice((1, 2, 2, 3) if self.large else (1, 1, 2, 2, 2, 3, 3, 4, 5, 8)))
        rest = f" FROM {source}{self.conditions(scope)}"
        if choice < 0.3:
            return self.rows(scope, rest)
        if choice < 0.4:
            columns = [self.expression(scope)[0] for _ in range(rng.randint(1, 4))]
            if self.maybe(0.3):
                return f"SELECT DISTINCT ON ({columns[0]}) {', '.join(columns)}{rest} ORDER BY {', '.join(str(i + 1) for i in range(len(columns)))}", True
            ordered = self.maybe(0.4)
            return f"SELECT DISTINCT {', '.join(columns)}{rest}{f' {self.order(len(columns))}{self.limit(1, 9, 30)}' if ordered else ''}", ordered
        if choice < 0.45:
            value, key = self.pick(scope), self.pick(scope)[0]
            over = f"max({value[0]})" if value[1] not in ("bool", "uuid") else f"count({value[0]})"
            return f"SELECT {key}, {rng.choice(('count(*)', over))} OVER (PARTITION BY {key}), rank() OVER (ORDER BY {value[0]}){rest}", False
        return self.groups(scope, rest)

    def rows(self, scope, rest):
        rng = self.rng
        columns = [self.expression(scope)[0] for _ in range(rng.randint(1, 6))]
        if self.maybe(0.08) and "(" not in rest:
            columns.append(rng.choice(re.findall(r" AS (x\d+)", rest)))  # a whole row
        if self.maybe(0.1) and not self.large:
            table, inner = self.table()
            columns.append(f"(SELECT {self.aggregate(inner)[0]} FROM {table} WHERE {self.on(scope, inner, True)})")
        text = f"SELECT {', '.join(columns)}{rest}"
        if self.maybe(0.08):
            return f"{text} ORDER BY 1{rng.choice(ORDERS)} FETCH FIRST {rng.choice((1, 3, 10))} ROWS WITH TIES", False
        return (f"{text} {self.order(len(columns))}{self.limit(1, 5, 20, 100)}", True) if self.maybe(0.2) else (text, False)

    def groups(self, scope, rest):
        rng = self.rng
        keys = [self.expression(scope)[0] for _ in range(rng.choice((0, 0, 1, 1, 2, 3)))]
        if self.maybe(0.08):
            keys.append(rng.choice(("1::int", "NULL::text", "'x'::text", "(1 = 1)")))
        aggregates = [self.aggregate(scope)[0] for _ in range(rng.randint(1, 4))]
        if keys and self.maybe(0.1):
            aggregates.append(f"{aggregates[0]} IS NULL")
        group = f" GROUP BY {', '.join(str(i + 1) for i in range(len(keys)))}" if keys else ""
        if keys and self.maybe(0.1):
            every = ", ".join(keys)
            group = f" GROUP BY {rng.choice((f'ROLLUP ({every})', f'CUBE ({every})', f'GROUPING SETS (({every}), ({keys[0]}), ())'))}"
        if self.maybe(0.15):
            group += f" HAVING {rng.choice((f'{self.counted(scope)} > {rng.randint(0, 3)}', f'{self.aggregate(scope)[0]} IS NOT NULL', f'{self.counted(scope)} < {self.counted(scope)}', 'false', 'count(*) % 2 = 0'))}"
        wanted = keys + aggregates
        text = f"SELECT {'DISTINCT ' if self.maybe(0.04) else ''}{', '.join(wanted)}{rest}{group}"
        if self.maybe(0.05) and "DISTINCT " not in text[:20]:
            return f"{text} ORDER BY {rng.randint(1, len(wanted))} FETCH FIRST {rng.choice((1, 4))} ROWS WITH TIES", False
        return (f"{text} {self.order(len(wanted))}{self.limit(1, 5, 20)}", True) if self.maybe(0.2) else (text, False)

    def distance(self, table):
        """Of whole numbers of few digits, so that it is the same however it is added up."""
        rng = self.rng
        if self.maybe(0.2):
            return f"gstore_{rng.choice(('hamming', 'jaccard'))}_distance({table}w, {self.bits()})"
        column = rng.choice(list(self.vectors))
        sides = [f"{table}{column}", as_vector(self.vector(), self.vectors[column])]
        rng.shuffle(sides)
        return f"({f' {rng.choice(OPERATORS)} '.join(sides)})"

    def nearest(self):
        """First rows by distances."""
        rng = self.rng
        source, scope = self.source(rng.choice((1, 1, 2, 2, 3)), 0)
        tables = [text[:-2] for text, _ in scope if text.endswith(".id")]
        distances = [self.distance(rng.choice(tables)) for _ in range(rng.choice((1, 1, 2)))]
        columns = distances + [f"{table}id" for table in tables] + [self.expression(scope)[0] for _ in range(rng.randint(0, 2))]
        where = self.conditions(scope)
        if self.maybe(0.3):
            where += f"{' AND' if where else ' WHERE'} {self.distance(rng.choice(tables))} {rng.choice('<>')} {rng.choice((0, 0.7, 3, 10.5, 30))}"
        keys = [str(i + 1) for i in range(len(columns))]
        return f"SELECT {', '.join(columns)} FROM {source}{where} ORDER BY {keys[0]}{rng.choice(('', '', *ORDERS))}, {', '.join(keys[1:])}{self.limit(1, 3, 10, 64, 200)}", True

    def search(self):
        """(the query on heaps, the one with gstore_search()), both of them of @ as the table."""
        rng, number = self.rng, self.rng.randrange(TABLES)
        column, kind = rng.choice(list(self.vectors.items()))
        k, operator, condition = rng.choice((1, 2, 10, 100)), rng.choice(OPERATORS), self.condition(list(COLUMNS.items())) if self.maybe(0.6) else "true"
        vectors = [as_vector(self.vector(), kind) for _ in range(rng.randint(1, 5))]
        near = f"SELECT {column} {operator} qv AS distance FROM @{number} WHERE {condition} AND {column} IS NOT NULL ORDER BY 1 LIMIT {k}"
        heap = f"SELECT qn, distance FROM (VALUES {', '.join(f'({n + 1}, {vector})' for n, vector in enumerate(vectors))}) q(qn, qv), LATERAL ({near}) near"
        return heap, f"SELECT query, distance FROM gstore_search(NULL::@{number}, '{column}', ARRAY[{', '.join(vectors)}], {k}, '{operator}', $f${condition}$f$)"

    def change(self, first_id):
        """The number of a table, and its INSERT, UPDATE or DELETE with what it returns; keys of new rows begin at first_id."""
        rng, number = self.rng, self.rng.randrange(TABLES)
        if self.maybe(0.05):
            return number, f"TRUNCATE #{number}"
        scope = [(f"x.{column}", kind) for column, kind in COLUMNS.items()]
        where = f" WHERE {self.condition(scope)}" + (f" AND {self.exists(scope)}" if self.maybe(0.3) else "")
        seen = self.maybe(0.1)  # by a query around it, which sees the table as it was before
        returning = f" RETURNING {', '.join(['x.id'] if seen else [self.expression(scope)[0] for _ in range(rng.randint(1, 4))])}" if seen or self.maybe(0.7) else ""
        other, names, choice = rng.randrange(2 if self.large else 0, TABLES), rng.sample(list(COLUMNS)[1:], rng.randint(1, 4)), rng.random()

        def value(name):
            return self.pick(scope, COLUMNS[name])[0] if self.maybe(0.6) else f"(SELECT max({name}) FROM @7)" if self.maybe(0.3) and COLUMNS[name] not in ("bool", "uuid") else self.literal(COLUMNS[name])
        if choice < 0.3:
            text = f"INSERT INTO #{number} AS x (id, {', '.join(names)}) SELECT x.id + {first_id}, {', '.join(value(name) for name in names)} FROM @{other} AS x{where}{returning}"
        else:
            word, what = ("FROM", f"UPDATE #{number} AS x SET {', '.join(f'{name} = {value(name)}' for name in names)}") if choice < 0.65 else ("USING", f"DELETE FROM #{number} AS x")
            text = what + (f" {word} @{other} AS z{where} AND z.id = x.id" if self.maybe(0.25) else where) + returning
        return number, f"WITH changed(key) AS ({text}) SELECT (SELECT count(*) FROM #{number}), count(*), count(y.id) FROM changed LEFT JOIN #{number} AS y ON y.id = key" if seen else text


def as_vector(text, kind):
    """Literal of an array, or of a type of pgvector's."""
    return f"'[{text}]'::{kind}" if "vec" in kind else f"'{{{text}}}'::{kind}"


# ---- tables


def make_tables(connection, rng, rows, large, vectors):
    """In schemas named as their kinds. Some have had other columns; rows are deleted, and some are this transaction's own, which stays open."""
    shapes, columns = Shapes(rng), {**COLUMNS, **vectors, "w": f"bit({BITS})"}
    for text in ("SET timezone = 'UTC'; SET client_min_messages = warning", f"DROP SCHEMA IF EXISTS {', '.join(KINDS)} CASCADE; DROP TYPE IF EXISTS mood CASCADE", *queries.MOOD_TYPES[1].split(";"), *(f"CREATE SCHEMA {kind}" for kind in KINDS)):
        run(connection, text)
    committed = {}
    for number in range(TABLES):
        make_empty(connection, rng, number, columns)
        count = rng.choice(LARGE) if large and number < 2 else rng.choice(SMALL_BESIDE if large else rows)
        lines = [", ".join([f"({shapes.value(name)})::{kind}" for name, kind in list(COLUMNS.items())[1:]] + [rng.choice((f"NULL::{kind}", *[as_vector(shapes.vector(), kind)] * 5)) for kind in vectors.values()] + [shapes.bits()]) for _ in range(min(count, 500))]
        if lines:  # a large table has each many times
            run(connection, f"INSERT INTO heap.t{number} SELECT row_number() OVER (), v.* FROM (VALUES ({'), ('.join(lines)})) v, generate_series(1, {count // len(lines)})")
        committed[number] = rng.choice((count, count * 9 // 10))
        for kind in KINDS[1:]:
            run(connection, f"INSERT INTO {kind}.t{number} ({', '.join(columns)}) SELECT * FROM heap.t{number} WHERE id <= {committed[number]} ORDER BY id")
        for kind in KINDS if rng.random() < 0.5 else ():
            run(connection, f"DELETE FROM {kind}.t{number} WHERE id % 7 = 3 AND id <= {committed[number]}")
    run(connection, "ANALYZE; BEGIN")
    for number in range(TABLES):
        for kind in KINDS[1:]:
            run(connection, f"INSERT INTO {kind}.t{number} ({', '.join(columns)}) SELECT * FROM heap.t{number} WHERE id > {committed[number]} ORDER BY id")


def make_empty(connection, rng, number, columns):
    """The table of each kind; columns have the same names in all of them, and not the same places."""
    def of(names, options=True):
        return ", ".join(f"{name} {columns[name]}" + (f" OPTIONS (length '{ELEMENTS}')" if options and name in VECTORS and rng.random() < 0.7 else "") for name in names)
    names = list(columns)
    run(connection, f"CREATE TABLE heap.t{number} ({of(names, False)}); CREATE TABLE parts.t{number} ({of(names, False)}) PARTITION BY HASH (id)")
    for kind, options in (("pgstrom", ""), ("arrow", " OPTIONS (format 'arrow')")):
        if rng.random() < 0.5:
            run(connection, f"CREATE FOREIGN TABLE {kind}.t{number} ({of(names)}) SERVER gstore_fdw{options}")
        else:
            run(connection, f"CREATE FOREIGN TABLE {kind}.t{number} (gone0 int, {of(names[:-1])}, gone text) SERVER gstore_fdw{options}; ALTER FOREIGN TABLE {kind}.t{number} DROP COLUMN gone, DROP COLUMN gone0, ADD COLUMN {of(names[-1:])}")
    part = f"parts.t{number}_{{0}} PARTITION OF parts.t{number} FOR VALUES WITH (MODULUS 3, REMAINDER {{0}})"
    run(connection, f"""CREATE FOREIGN TABLE parts.t{number}_0 (gone int, {of(rng.sample(names, len(names)))}) SERVER gstore_fdw; ALTER FOREIGN TABLE parts.t{number}_0 DROP COLUMN gone;
        ALTER TABLE parts.t{number} ATTACH PARTITION parts.t{number}_0 FOR VALUES WITH (MODULUS 3, REMAINDER 0); CREATE FOREIGN TABLE {part.format(1)} SERVER gstore_fdw OPTIONS (format 'arrow');
        {rng.choice((f"CREATE TABLE {part.format(2)}", f"CREATE FOREIGN TABLE {part.format(2)} SERVER gstore_fdw"))}""")


# ---- comparison


def on_tables(text, *kinds, rng=random, target="heap"):
    """The statement with names of tables, each of one of these kinds."""
    return re.sub(r"#(\d)", rf"{target}.t\1", TABLE.sub(lambda m: f"{rng.choice(kinds)}.t{m[1]}", text))


def ask(connection, text):
    """The transaction goes on after errors."""
    reply = connection.ask(f"SAVEPOINT s; {text}")
    if reply.state and reply.state.startswith("42601"):
        raise private.Failed(f"{reply}: {text}")
    run(connection, "ROLLBACK TO s; RELEASE s" if reply.state else "RELEASE s")
    reply.plan = "\n".join(wire.fields(row)[0] for result in reply.results if result.tag == "EXPLAIN" for row in result.rows)
    reply.returned = [result for result in reply.results if result.tag != "EXPLAIN" and result.columns]
    return reply


def plain(results):
    """Rows whose decimals have no zeros behind, and whose zeros no sign."""
    def value(text, kind):
        if text is None or kind not in (NUMERIC, FLOAT4, FLOAT8):
            return text
        return str(float(text) + 0.0) if kind != NUMERIC else str(decimal.Decimal(text).normalize() + 0)
    return [[value(text, kind) for text, (_, kind) in zip(wire.fields(row), result.columns)] for result in results for row in result.rows]


def judge(wanted, reply, ordered, text):
    """Failed: the reply is not as that of the heap."""
    if wanted.state:
        if not wanted.state.startswith(("22", "57014")):
            raise private.Failed(f"heap: {wanted}: {text}")
        return
    if reply.state:
        if not reply.state.startswith(("22", "57014")):
            raise private.Failed(f"{reply}, and no error of the heap: {text}\n{reply.plan}")
        print(f"# {reply}, and no error of the heap: {text}", flush=True)
        return
    mine, theirs = ([row for result in r.returned for row in result.rows] for r in (reply, wanted))
    if mine != theirs and (ordered or sorted(mine) != sorted(theirs)):
        mine, theirs = plain(reply.returned), plain(wanted.returned)
        if not ordered:
            mine.sort(key=str)
            theirs.sort(key=str)
        if mine != theirs:
            only = [[row for row in one if row not in other[:9999]][:3] for one, other in ((theirs[:9999], mine), (mine[:9999], theirs))]
            raise private.Failed(f"{len(mine)} rows, {len(theirs)} of the heap; only the heap has {only[0]}, only the other {only[1]}: {text}\n{reply.plan}")


class Group:
    """Statements on one set of tables."""

    def __init__(self, connection, rng, large, vectors):
        self.connection, self.rng, self.large, self.vectors = connection, rng, large, vectors
        self.next_id = 1000000

    def _compare(self, heap, text, ordered, more=""):
        """A statement that changes nothing for long; whether the GPU computes."""
        run(self.connection, f"SAVEPOINT q; SET LOCAL statement_timeout = '{HEAP_S}s'")
        wanted = ask(self.connection, heap)
        choices = self.rng.sample(CHOICES, self.rng.choice((0, 0, 1, 2, 3)))
        run(self.connection, "; ".join((f"ROLLBACK TO q; SET LOCAL statement_timeout = '{LIMIT_S}s'", *choices)))
        reply = ask(self.connection, f"{more}{text}")
        run(self.connection, "ROLLBACK TO q; RELEASE q")
        judge(wanted, reply, ordered, "; ".join((*choices, text)))
        return "GPU" in reply.plan

    def query(self):
        rng, shapes = self.rng, Shapes(self.rng, self.large, self.vectors)
        way = rng.choice(("plain",) * 6 + ("cursor", "prepared"))
        shapes.parameters = [] if way == "prepared" else None
        text, ordered = shapes.nearest() if rng.random() < 0.15 else shapes.query()
        mine = on_tables(text, *rng.choice(MIXTURES), rng=rng)
        if way == "prepared" and shapes.parameters:
            return self._prepared(shapes, text, mine, ordered)
        if way == "cursor":
            changed, moves = rng.randrange(TABLES), ["3", "NEXT", *(rng.choice(("FORWARD 5", "1", "FORWARD 70", *(("BACKWARD 4", "LAST", "FIRST", "ABSOLUTE 7", "RELATIVE -2") if ordered else ()))) for _ in range(rng.randint(0, 5))), "ALL"]
            parts = [f"FETCH {move} FROM c" for move in moves]
            parts.insert(2, "; ".join(f"DELETE FROM {kind}.t{changed} WHERE id % 5 = 0" for kind in KINDS))  # which the cursor does not see
            heap, ours = ("; ".join((f"DECLARE c {'SCROLL ' if ordered else ''}CURSOR FOR {one}", *parts)) for one in (on_tables(text, "heap"), mine))
            return self._compare(heap, ours, ordered, f"EXPLAIN (COSTS OFF) {mine}; ")
        return self._compare(on_tables(text, "heap"), mine, ordered, f"EXPLAIN (COSTS OFF) {mine}; ")

    def _prepared(self, shapes, text, mine, ordered):
        """With its own values, and with others."""
        prepare = f"SET LOCAL plan_cache_mode = {self.rng.choice(('auto', 'force_generic_plan', 'force_custom_plan'))}; PREPARE p({', '.join(kind for kind, _ in shapes.parameters)}) AS {PARAMETER.sub(lambda m: f'${int(m[1]) + 1}', mine)}; "
        on_gpu = False
        for values in ([value for _, value in shapes.parameters], [shapes.literal(kind) for kind, _ in shapes.parameters]):
            heap, execute = PARAMETER.sub(lambda m, values=values: values[int(m[1])], on_tables(text, "heap")), f"EXECUTE p({', '.join(values)})"
            on_gpu |= self._compare(heap, execute, ordered, f"{prepare}EXPLAIN (COSTS OFF) {execute}; ")
            run(self.connection, "DEALLOCATE ALL")
        return on_gpu

    def search(self):
        heap, search = Shapes(self.rng, self.large, self.vectors).search()
        self._compare(on_tables(heap, "heap"), on_tables(search, self.rng.choice(("pgstrom", "arrow"))), False)

    def change(self):
        """The same one of a table of each kind, which is undone or not."""
        rng = self.rng
        number, text = Shapes(rng, self.large, self.vectors).change(self.next_id)
        self.next_id += 1000000
        text = text.replace(f"@{number}", f"#{number}")  # those of the other kinds are changed before, or later
        texts = [on_tables(text, *(KINDS[1:] if kind != "heap" else KINDS[:1]), rng=rng, target=kind) for kind in KINDS]
        undone = rng.random() < 0.6 or text.startswith("TRUNCATE")
        run(self.connection, f"SAVEPOINT c; SET LOCAL statement_timeout = '{LIMIT_S}s'")
        replies = [ask(self.connection, one) for one in texts]
        for reply, one in zip(replies[1:], texts[1:]):
            judge(replies[0], reply, False, one)
        if not any(reply.state for reply in replies):
            self._compare_contents(number, texts)
        run(self.connection, f"{'ROLLBACK TO c; ' if undone or any(reply.state for reply in replies) else ''}RELEASE c")
        self._compare_contents(number, texts)

    def _compare_contents(self, number, texts):
        names = ", ".join(COLUMNS)
        asked = [f"SELECT count(*), sum(hashtext(replace(ROW({names})::text, '-0', '0'))) FROM {kind}.t{number}" for kind in KINDS]
        replies = [run(self.connection, one) for one in asked]
        for reply, text in zip(replies[1:], texts[1:]):
            if reply.results[-1].rows != replies[0].results[-1].rows:
                raise private.Failed(f"the table differs from the heap after {text}")


def shapes_of(connection, rng, group, count):
    """Some queries in a hundred are others."""
    large = group >= queries.GROUPS - LARGE_GROUPS
    available = run(connection, "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").results[-1].rows
    if available:
        run(connection, "SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS vector")
    vectors = {**VECTORS, **(PGVECTOR if available else {})}
    make_tables(connection, rng, rng.choice(ROWS), large, vectors)
    statements = Group(connection, rng, large, vectors)
    for _ in range(count):
        choice = rng.random()
        if choice < 0.12:
            statements.change()
        elif choice < 0.2:
            statements.search()
        else:
            yield statements.query()


if __name__ == "__main__":
    sys.exit(queries.main(__doc__, "shapes", QUERIES, ON_GPU_LEAST, SETTINGS, shapes_of))
