"""Random statements for differ.py: each in two forms, for either twin.

Statements are made so that their answer does not depend on the order in which rows are met: sums are
of numerics, LIMIT comes with an order in which no two different rows tie, and what may fail does so
whatever is evaluated first.
"""
import re
from dataclasses import dataclass, field

from differ_tables import ALL, HIDDEN, INTEGERS, REFUSED, TYPES, WIDER, Column, make_column, quote

READ, WRITE, EXCLUSIVE = 1, 2, 3  # what a statement needs of a table; 0: nothing


# Constants whose cast raises an error.
OUTSIDE_DOMAIN = re.compile(r"'2\d\d\d'::d_small|NULL::d_word")

# ---- statements


@dataclass
class Statement:
    kind: str
    text: str  # with @1@, @2@ for the tables, and what else differ_tables.py has names for
    need: dict = field(default_factory=dict)  # by number of a table: READ ...; a view or partition is given as its tables
    heap: str = None  # of the heap twin, where it is another
    ordered: bool = False
    waits: bool = False  # may be sent to where it has to wait
    copy: tuple = ()  # (data or None)
    effect: tuple = ()  # what it does to a session, if it succeeds
    same_result: bool = True  # tags and rows are to be the same
    probe: str = None  # what differ.py asks the heap first
    loose: bool = False  # several rows may each fail in a way of its own

    def __post_init__(self):
        need = {}
        for index, wanted in self.need.items():
            for number in map(int, re.findall("[0-9]", str(index)) or "12"):
                need[number] = max(need.get(number, 0), wanted)
        self.need = need

    def for_twin(self, twin):
        text = self.heap if twin == 1 and self.heap is not None else self.text
        return re.sub(r"@(\w+)@", "gh"[twin] + r"\1", text)

    def before(self, twin, parted):
        """What the heap's twin says first so that one writer at a time is at its table. For INSERT and COPY a trigger
        does, after the statement's snapshot was taken: that is when a table in GPU memory is locked. Partitions (parted:
        tables that have some, and several sessions) are all locked, on both sides, as the test does not
        know which of them a statement would lock."""
        heap = twin == 1 and self.heap is None and not self.text.startswith(("INSERT", "COPY"))
        return [f"LOCK TABLE {'gh'[twin]}{i} IN SHARE UPDATE EXCLUSIVE MODE" for i, need in self.need.items()
                if need == WRITE and (heap or i in parted)]


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

    def condition_beside(self, table, alias):
        """Of a statement that joins. Whether it is evaluated where the other side has no row is the plan's matter: so none has a constant
        that is outside of its domain, whose error one of two plans would raise."""
        while OUTSIDE_DOMAIN.search(text := self.condition(table, alias, 1)):
            pass
        return text

    def where(self, table, alias, chance=0.8, condition=None):
        return f" WHERE {(condition or self.condition)(table, alias)}" if self.r.random() < chance else ""

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

    def source(self):
        """What can be read."""
        return ALL if self.r.random() < 0.08 else self.target()

    def target(self):
        """What can be changed."""
        t, kind = self.any_table(), self.r.random()
        if kind < 0.1:
            return t.view
        return self.r.choice(t.parts) if kind < 0.3 and t.parts else t

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
            (self._plain, self._sorted, self._aggregate, self._group, self._join, self._hidden, self._cte, self._window, self._set,
             self._self_join, self._sub, self._lateral, self._recursive),
            (6, 4, 4, 4, 3, 1, 2, 2, 2) + ((0, 0, 0, 0) if self.large else (2, 4, 3, 1)),
        )[0]
        return kind()

    def _plain(self):
        t = self.source()
        what = self.r.choice(("*", "t", ", ".join(f"t.{c.name} AS r{i}" for i, c in enumerate(self.columns(t))), "1 AS one"))
        only = "ONLY " if t.shape and self.r.random() < 0.3 else ""
        return f"SELECT {what} FROM {only}@{t.index}@ AS t{self.where(t, 't')}", [t.index], False

    def _sorted(self):
        r, t = self.r, self.source()
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
            if c.type in INTEGERS + ("float4", "float8") or c.type.startswith("numeric"):
                choices += [f"sum({of}::numeric)", f"avg({of}::numeric)"]
            if c.type == "bool":
                choices += [f"bool_and({of})", f"bool_or({of})"]
            out.append(r.choice(choices))
        return ", ".join(f"{a} AS a{i}" for i, a in enumerate(out))

    def _aggregate(self):
        t = self.source()
        return f"SELECT {self._aggregates(t, 't')} FROM @{t.index}@ AS t{self.where(t, 't')}", [t.index], False

    def _having(self, table, alias):
        r, c = self.r, self.r.choice(table.columns)
        of = f"{alias}.{c.name}"
        return r.choice((
            "count(*) > 1", f"count({of}) > {r.randint(0, 3)}", f"count({of}) < count(*)", f"count({of}) = 0", f"max({alias}.id) > min({alias}.k)",
            f"count(*) FILTER (WHERE {self.condition(table, alias, 1)}) > 0", f"sum({alias}.k::numeric) IS NOT NULL AND count({of}) <> 2",
            f"bool_or({of} IS NULL)",
        ))

    def _group(self):
        r, t = self.r, self.source()
        if r.random() < 0.1:  # all rows or none
            return (f"SELECT {self._aggregates(t, 't')} FROM @{t.index}@ AS t{self.where(t, 't', 0.5)} HAVING {self._having(t, 't')}", [t.index], False)
        keys = [TYPES[c.type].key.format("t." + c.name) for c in self.columns(t, 3) if TYPES[c.type].order] or ["t.id"]
        columns, group = [f"{k} AS k{i}" for i, k in enumerate(keys)], ", ".join(keys)
        having = f" HAVING {self._having(t, 't')}" if r.random() < 0.4 else ""
        if r.random() < 0.4:
            columns += [f"GROUPING({group}) AS grouping"]
            group = r.choice((f"ROLLUP ({group})", f"CUBE ({group})", f"GROUPING SETS (({group}), ({keys[-1]}), ())",
                              f"GROUPING SETS (({keys[0]}), ROLLUP ({group}))", f"{keys[0]}, ROLLUP ({group})"))
        text = f"SELECT {', '.join(columns)}, {self._aggregates(t, 't')} FROM @{t.index}@ AS t"
        return f"{text}{self.where(t, 't', 0.5)} GROUP BY {group}{having}", [t.index], False

    def _join(self):
        r, t = self.r, self.source()
        kind = r.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        columns = ", ".join(f"t.{c.name} AS r{i}" for i, c in enumerate(self.columns(t)))
        on = f"t.{r.choice(('id', 'k'))} = o.k"
        if kind != "FULL JOIN" and r.random() < 0.3:
            on += f" AND {self.condition_beside(t, 't')}"
        return f"SELECT {columns}, o.k AS ok, o.t AS ot FROM @{t.index}@ AS t {kind} d_other AS o ON {on}{self.where(t, 't', 0.4, self.condition_beside)}", [t.index], False

    def _self_join(self):
        r, a, b = self.r, self.source(), self.source()
        kind = r.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
        on = f"a.id = b.{r.choice(('id', 'k'))}"
        if kind != "FULL JOIN" and r.random() < 0.3:
            on = f"a.id BETWEEN b.id AND b.id + 2 AND b.k = {r.randint(0, 30)}"
        text = f"SELECT count(*) AS n, count(a.k) AS ak, sum(a.k::numeric * b.id) AS s, max(b.id) AS b FROM @{a.index}@ AS a {kind} @{b.index}@ AS b ON {on}"
        return text + self.where(a, "a", 0.5, self.condition_beside), [a.index, b.index], False

    def _sub(self):
        r, t, u = self.r, self.source(), self.source()
        table = f"@{u.index}@"
        text = r.choice((
            f"t.id {r.choice(('IN', 'NOT IN'))} (SELECT u.k FROM {table} AS u{self.where(u, 'u', condition=self.condition_beside)})",
            f"{r.choice(('', 'NOT '))}EXISTS (SELECT FROM {table} AS u WHERE u.k = t.id AND {self.condition_beside(u, 'u')})",
            f"EXISTS (SELECT FROM d_other AS o WHERE o.k = t.k AND o.n > {r.randint(0, 99999)})",
            f"t.id {r.choice(('<', '=', '>='))} (SELECT {r.choice(('max', 'min'))}(u.k) FROM {table} AS u{self.where(u, 'u', condition=self.condition_beside)})",
            f"t.id > (SELECT count(*) FROM {table} AS u WHERE u.k = t.k)",
            f"t.id = ANY (SELECT o.k FROM d_other AS o WHERE o.t LIKE '%{r.randint(0, 9)}')",
            f"(SELECT count(*) FROM d_other AS o WHERE o.k < t.k) > {r.randint(0, 30)}",
        ))
        columns = ", ".join(f"t.{c.name} AS r{i}" for i, c in enumerate(self.columns(t)))
        need = [t.index] + ([u.index] if table in text else [])
        return f"SELECT {columns} FROM @{t.index}@ AS t WHERE {text} AND {self.condition_beside(t, 't')}", need, False

    def _window(self):
        r, t = self.r, self.source()
        by = TYPES[r.choice([c for c in t.columns if TYPES[c.type].order]).type]
        column = r.choice(t.of_type(by.sql))
        over = r.choice((
            f"PARTITION BY {by.key.format('t.' + column.name)} ORDER BY t::text COLLATE \"C\"",
            f"ORDER BY {by.key.format('t.' + column.name)}, t::text COLLATE \"C\"",
        ))
        call = r.choice(("row_number()", "count(*)", "sum(t.k::numeric)", "lag(t.id)", "first_value(t.k)"))
        return f"SELECT t.id, t.k, {call} OVER ({over}) AS w FROM @{t.index}@ AS t{self.where(t, 't', 0.5)}", [t.index], False

    def _set(self):
        r, a, b = self.r, self.source(), self.source()
        operation = r.choice(("UNION", "UNION ALL", "EXCEPT", "INTERSECT", "EXCEPT ALL"))
        left, right = (f"SELECT t.id, t.k FROM @{t.index}@ AS t{self.where(t, 't')}" for t in (a, b))
        return f"{left} {operation} {right}", [a.index, b.index], False

    def _hidden(self):
        """A condition that would fail on what a view hides."""
        t = self.any_table().view
        bad = f"(t.id % 4 - {HIDDEN})"
        condition = self.r.choice((f"12 / {bad} <> 5", f"t.k / {bad} = 3", f"{self.condition(t, 't', 1)} AND 1 / {bad} < 1"))
        return f"SELECT * FROM @{t.index}@ AS t WHERE {condition}", [t.index], False

    def _lateral(self):
        r, t, u = self.r, self.source(), self.source()
        inner = f"SELECT count(*) AS n, max(u.id) AS m FROM @{u.index}@ AS u WHERE {self.condition_beside(u, 'u')} AND u.id <= "
        if r.random() < 0.3:
            return f"SELECT o.k, l.n, l.m FROM d_other AS o, LATERAL ({inner}o.k) AS l WHERE o.k % 5 = 0", [u.index], False
        inner = r.choice((
            inner + "t.k",
            f"SELECT u.id AS n, u.k AS m FROM @{u.index}@ AS u WHERE u.k >= t.id ORDER BY u.id, u.k LIMIT {r.randint(1, 3)}",
            f"SELECT u.k AS n, t.k + o.k AS m FROM @{u.index}@ AS u {r.choice(('LEFT JOIN', 'JOIN'))} d_other AS o ON o.k = u.id WHERE u.id = t.k",
            f"SELECT u.id AS n, u.k AS m FROM @{u.index}@ AS u WHERE u.id = t.id UNION ALL SELECT o.k, o.n FROM d_other AS o WHERE o.k = t.k",
        ))
        join = r.choice(("CROSS JOIN LATERAL ({}) AS l", "JOIN LATERAL ({}) AS l ON true", "LEFT JOIN LATERAL ({}) AS l ON l.m > t.k")).format(inner)
        return f"SELECT t.id, t.k, l.n, l.m FROM @{t.index}@ AS t {join}{self.few(t, 't')}", [t.index, u.index], False

    def _cte(self):
        r, t, u = self.r, self.source(), self.source()
        how = r.choice(("", "MATERIALIZED ", "NOT MATERIALIZED "))
        columns = "".join(f", t.{c.name} AS r{i}" for i, c in enumerate(self.columns(t)))
        with_q = f"WITH q AS {how}(SELECT t.id, t.k{columns} FROM @{t.index}@ AS t{self.where(t, 't')})"
        text = r.choice((
            f"SELECT * FROM q WHERE q.id > {r.randint(-5, 40)}",
            "SELECT (SELECT count(*) FROM q) AS n, (SELECT max(q.k) FROM q WHERE q.id IS NOT NULL) AS m",
            f"SELECT count(*) AS n FROM q JOIN @{u.index}@ AS u ON u.id = q.k",
            f"SELECT q.id, q.k FROM q EXCEPT SELECT u.id, u.k FROM @{u.index}@ AS u{self.where(u, 'u')}",
        ))
        return f"{with_q} {text}", [t.index] + ([u.index] if " AS u" in text else []), False

    def _recursive(self):
        t, u = self.source(), self.source()
        return (f"WITH RECURSIVE q AS (SELECT t.id, t.k, 0 AS depth FROM @{t.index}@ AS t{self.few(t, 't')} UNION"
                f" SELECT u.id, u.k, q.depth + 1 FROM q JOIN @{u.index}@ AS u ON u.id = q.k WHERE q.depth < 4) SELECT * FROM q", [t.index, u.index], False)

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
        r, t = self.r, self.target()
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
        r, t, u = self.r, self.target(), self.source()
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
        t = r.choice(t.parts + [t] * 3)
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
        columns = [c for c in self.columns(table, 3) if not c.generated and not (table.fixed and c.name == "id")] or [table.columns[1]]
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
        r, t = self.r, self.target()
        text = f"UPDATE @{t.index}@ AS t SET {self.assignments(t, 't.')}"
        kind = r.random()
        if kind < 0.7:
            return Statement("update", text + self.few(t, "t") + self.returning(t, "t."), {t.index: WRITE}, waits=True, loose=True)
        if kind < 0.85:  # of the other side one row for each of ours
            text += f" FROM d_other AS o WHERE o.k = t.k AND {self.condition_beside(t, 't')}"
            return Statement("update from", text + self.returning(t, "t."), {t.index: WRITE}, loose=True)
        u = self.source()
        need = {u.index: READ}
        need[t.index] = WRITE
        if kind < 0.93:
            text = (f"UPDATE @{t.index}@ AS t SET k = s.n FROM (SELECT u.id, count(*) AS n FROM @{u.index}@ AS u GROUP BY u.id) AS s"
                    f" WHERE s.id = t.id AND {self.condition_beside(t, 't')}")
        else:
            text += f" WHERE t.id = (SELECT max(u.id) FROM @{u.index}@ AS u{self.where(u, 'u')})"
        return Statement("update join", text + self.returning(t, "t."), need, loose=True)

    def delete(self):
        r, t = self.r, self.target()
        text = f"DELETE FROM @{t.index}@ AS t"
        kind = r.random()
        if kind < 0.75:
            return Statement("delete", text + self.few(t, "t") + self.returning(t, "t."), {t.index: WRITE}, waits=True)
        if kind < 0.78:
            return Statement("delete", text, {t.index: WRITE}, waits=True)
        u = self.source()
        need = {u.index: READ}
        need[t.index] = WRITE
        if kind < 0.88:
            text += f" USING d_other AS o WHERE o.k = t.id AND {self.condition_beside(t, 't')}"
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
        r, t = self.r, self.target()
        strength = r.choice(("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"))
        return Statement("select for", f"SELECT * FROM @{t.index}@ AS t{self.few_to_lock(t, 't')} FOR {strength}", {t.index: WRITE}, waits=True)

    def by_ctid(self):
        """Rows that were locked, found again."""
        r, t = self.r, self.any_table()
        rows = f"FROM @{t.index}@ AS u{self.few_to_lock(t, 'u')} FOR UPDATE"
        change = r.choice((f"UPDATE @{t.index}@ AS t SET {self.assignments(t, 't.')}", f"DELETE FROM @{t.index}@ AS t"))
        which = f"t.ctid = ANY (ARRAY(SELECT u.ctid {rows}))"
        if t.shape:  # a ctid alone is of several
            which = f"(t.tableoid, t.ctid) IN (SELECT u.tableoid, u.ctid {rows})"
        return Statement("by ctid", f"{change} WHERE {which}{self.returning(t, 't.')}", {t.index: WRITE}, waits=True, loose=True)

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
        r, t, u = self.r, self.target(), self.target()
        table, other = f"@{t.index}@", f"@{u.index}@"
        kind = r.random() * (0.4 if self.large else 1.3)
        if kind > 1:
            return self.of_cte(t, u)
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

    def of_cte(self, t, u):
        """A change of what a CTE has chosen, one row for each of those that it changes."""
        r = self.r
        rows = f"WITH q AS {r.choice(('', 'MATERIALIZED '))}(SELECT u.k AS id, count(*) AS n FROM @{u.index}@ AS u{self.where(u, 'u')} GROUP BY u.k)"
        change = r.choice((f"UPDATE @{t.index}@ AS t SET k = q.n FROM q WHERE q.id = t.id", f"DELETE FROM @{t.index}@ AS t USING q WHERE q.id = t.id AND q.n > 1"))
        need = {u.index: READ}
        need[t.index] = WRITE
        return Statement("with", f"{rows} {change}{self.returning(t, 't.')}", need, loose=True)

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
        if t.shape:
            return self.analyze()
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
            if t.shape:
                new.pglz, new.length = False, 0
            if r.random() < 0.15:
                new.more = " NOT NULL"  # fails where there are rows
            text = f"ALTER TABLE @{t.index}@ ADD COLUMN {new.define('g', t.format)}"
            return Statement("add column", text, {t.index: EXCLUSIVE}, heap=f"ALTER TABLE h{t.index} ADD COLUMN {new.define('h', t.format)}",
                             effect=("columns", t.index, t.columns + [new]), loose=True, same_result=False)
        column = r.choice(columns)
        rest = [c for c in t.columns if c is not column]
        if kind < 0.55:
            return Statement("drop column", f"{table} DROP COLUMN {column.name}", {t.index: EXCLUSIVE}, effect=("columns", t.index, rest))
        if kind < 0.65:
            self.number += 1
            renamed = Column(f"m{self.number}", column.type, column.more, column.generated, column.pglz, column.length)
            return Statement("rename column", f"{table} RENAME COLUMN {column.name} TO {renamed.name}", {t.index: EXCLUSIVE},
                             effect=("columns", t.index, [renamed if c is column else c for c in t.columns]))
        if kind < 0.72 and column.type in WIDER and not column.generated and not column.length:
            wider = Column(column.name, WIDER[column.type], column.more, column.generated, column.pglz)
            return Statement("widen type", f"{table} ALTER COLUMN {column.name} TYPE {wider.type}", {t.index: EXCLUSIVE},
                             effect=("columns", t.index, [wider if c is column else c for c in t.columns]))
        if kind < 0.8 and not t.shape and not column.generated and not column.length and not (t.format == "arrow" and column.type.endswith("[]")):
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
        if kind < 0.96 or t.format == "arrow" or t.shape:
            self.number += 1
            return Statement("add check", f"{table} ADD CONSTRAINT check{self.number} CHECK ({r.choice(('id < 58', 'k < 900', 'id IS NOT NULL'))})",
                             {t.index: EXCLUSIVE})
        text = f"ALTER FOREIGN TABLE g{t.index} ALTER COLUMN {column.name} OPTIONS ({'SET' if column.pglz else 'ADD'} compression '{r.choice(('pglz', 'none'))}')"
        changed = Column(column.name, column.type, column.more, column.generated, True, column.length)
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
