#!/usr/bin/env python3
"""Tables in GPU memory and heap tables side by side: random statements in several sessions, the same answers.

usage: differ.py [--seed N] [--statements N] [--sessions N] [--round N] [--socket PATH] [--no-serializable] [--trace]

Each session is two connections: one works on tables in GPU memory, its twin says the same to heap
tables with the same columns. After each statement results, counts, SQLSTATEs and the state of the
transaction are compared, and the whole of both tables as the session sees it; after each end of a
transaction all sessions compare theirs. Prints TAP. A seed makes the same statements again; each round
(new tables) has a seed of its own, so --seed N --round M repeats one alone. What made the first
difference is shrunk to the fewest statements that still do.

Writers of a table in GPU memory take turns, by a SHARE UPDATE EXCLUSIVE lock. So do those of its twin here:
they lock it themselves (Statement.before, d_lock()). Who holds which lock is known (Session.levels), and
a statement that has to wait is sent when the twins can both be seen waiting; the others go on, until the
lock is free. What may differ is where docs/design/gstore.md says so: at REPEATABLE READ an UPDATE fails after any change by
others, and SERIALIZABLE fails on conflicts of whole tables (both 40001). The other way round, a heap alone may
find such a conflict before the commit, and never at it.
"""
import argparse
import collections
import contextlib
import os
import random
import signal
import sys
import time
import traceback

sys.dont_write_bytecode = True
import private  # noqa: E402
import differ_sql  # noqa: E402
import differ_tables  # noqa: E402
import wire  # noqa: E402
from differ_sql import EXCLUSIVE, READ, WRITE, Statement  # noqa: E402

TABLES = (1, 2)
ROUND_STATEMENTS = 250
LARGE_STATEMENTS = 100  # of a round with large tables
ROWS_MOST = 300  # of a small table, before it is thinned out
GROUPS = 10  # lines of TAP
SETTINGS = ("autovacuum=off", "gstore_fdw.window_size=64kB", "gstore_fdw.windows=8", "max_parallel_workers_per_gather=0",
            "deadlock_timeout=60s", "synchronous_commit=off")
SHRINK_S = 60
WAIT_S = 60
CONTENTS = " UNION ALL ".join(
    f"SELECT {i}, count(*), sum(hashtextextended(t::text, 0)::numeric) FROM @{i}@ AS t" for i in TABLES
)
SERIALIZATION = "40001"


class Difference(Exception):
    """Twins do not do the same. kind is the same for the same fault in a shorter run."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


class Abandoned(Exception):
    """The heap twin has committed and the other could not: serializable, and known to differ."""


class Level:
    """What goes with a savepoint, or with the transaction."""

    def __init__(self, name):
        self.name = name
        self.locks = {}  # table: READ ...
        self.columns = {}  # table: as it was


class Session:
    def __init__(self, number, options):
        self.number = number
        self.twins = [connect(options) for _ in range(2)]
        self.reset()

    def reset(self):
        self.levels = []  # of the open transaction
        self.isolation = None
        self.read_only = False
        self.failed = False
        self.waiting = None
        self.versions = {}  # of tables, when the snapshot was taken
        self.wrote = set()
        self.cursors = {}
        self.prepared = {}
        self.said = []  # in this transaction

    @property
    def has_snapshot(self):
        return bool(self.levels) and self.isolation in ("REPEATABLE READ", "SERIALIZABLE")

    def holds(self, table):
        return max((level.locks.get(table, 0) for level in self.levels), default=0)

    def close(self):
        for twin in self.twins:
            twin.close()


class Cursor:
    def __init__(self, hold, ordered, depth):
        self.hold, self.ordered, self.depth = hold, ordered, depth
        self.rows = [[], []]


def conflict(held, wanted):
    return EXCLUSIVE in (held, wanted) if held and wanted and held != wanted else held >= WRITE and held == wanted


class World:
    """The sessions and tables of a round, and the rules by which twins are compared."""

    def __init__(self, options, tables, settings):
        self.options = options
        self.tables = tables
        self.settings = settings
        self.monitor = connect(options)
        self.sessions = []
        self.commits = dict.fromkeys(TABLES, 0)
        self.rows = dict.fromkeys(TABLES, 0)  # lately
        self.queue = []  # sessions that wait, in order
        self.done = []  # (session, whether its transaction ended) of the statements that the last one let finish
        self.counts = collections.Counter()
        self.number = 0  # of the statement

    def open(self):
        self.must("SET client_min_messages = warning; DROP SCHEMA IF EXISTS round CASCADE; CREATE SCHEMA round")
        for text in differ_tables.create(self.tables, device_of(self.options)):
            self.must(text)
        for number, settings in enumerate(self.settings):
            session = Session(number, self.options)
            self.sessions.append(session)
            for twin in session.twins:
                for setting in settings:
                    if twin.ask(setting).state:
                        raise Difference("setting", str(twin.reply))

    def must(self, text):
        reply = self.monitor.ask(text)
        if reply.state:
            raise Difference("set-up", f"{text}: {reply}")
        return reply

    def close(self):
        for session in self.sessions:
            session.close()
        self.monitor.close()

    # -- who waits for whom

    def blockers(self, session, need, queue=None):
        """Sessions that hold what the statement needs, and those before it in the queue."""
        queue = self.queue if queue is None else queue
        found = []
        for other in self.sessions:
            if other is session:
                continue
            if any(conflict(other.holds(table), wanted) for table, wanted in need.items()):
                found.append(other)
            elif other in queue and any(conflict(other.waiting.need.get(table, 0), wanted) for table, wanted in need.items()):
                found.append(other)
        return found

    def may_send(self, session, statement):
        """Whether it can be said now; if it has to wait, that must be for one who goes on by itself, in a known order."""
        need = {t: n for t, n in statement.need.items() if n > session.holds(t)}
        if statement.kind == "begin" and statement.effect[1] != "READ COMMITTED":
            # A heap that is being truncated would be empty to it.
            return not any(o.holds(t) == EXCLUSIVE for o in self.sessions for t in TABLES)
        exclusive = [t for t, n in statement.need.items() if n == EXCLUSIVE]
        if exclusive:
            if any(o.waiting for o in self.sessions) or self.blockers(session, need):
                return False
            if statement.kind != "truncate" or statement.heap is None:
                # Old snapshots see a heap that was truncated or written anew as empty.
                return not any(o.has_snapshot for o in self.sessions if o is not session)
            return session.isolation in (None, "READ COMMITTED")
        blockers = self.blockers(session, need)
        if not blockers:
            return True
        if not statement.waits or session.read_only or len(self.queue) >= 2 or statement.text.startswith("EXECUTE"):
            return False
        behind_exclusive = any(o.holds(t) == EXCLUSIVE for o in blockers for t in need)
        if behind_exclusive and (statement.kind != "select" or self.queue):
            return False
        if self.queue and any(READ in o.waiting.need.values() for o in self.queue):
            return False
        # Nobody waits for who waits, but for those in the same queue.
        if any(o.waiting and o.holds(t) for o in blockers for t in TABLES):
            return False
        return not any(session.holds(t) for o in blockers if o.waiting for t in o.waiting.need)

    def wait_until_blocked(self, session):
        """False: the statement failed before it came to that, on both sides. A conflict is found in GPU memory before the wait, in the heap after it:
        that wait is cancelled."""
        pids = ", ".join(str(twin.pid) for twin in session.twins)
        deadline = time.monotonic() + WAIT_S
        while True:
            answered = [twin for twin in session.twins if twin.answered()]
            if len(answered) == 2 and all(twin.reply.state for twin in answered):
                return False
            if answered and (len(answered) == 2 or not answered[0].reply.state):
                raise Difference("does not wait", f"session {session.number} should wait for another: {[str(twin.reply) for twin in answered]}")
            rows = self.must(f"SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted AND pid IN ({pids})").results[0].rows
            waiting = int(wire.fields(rows[0])[0])
            if waiting == 2:
                return True
            if waiting == 1 and answered == session.twins[:1] and answered[0].reply.state == SERIALIZATION:
                self.must(f"SELECT pg_cancel_backend({session.twins[1].pid})")
                return False
            if time.monotonic() > deadline:
                raise Difference("waits for something else", "a twin should wait for another session's lock and does not, and has no answer")
            time.sleep(0.0005)

    def wake(self):
        """Answers of those whose lock has become free."""
        again = True
        while again:
            again = False
            for at, session in enumerate(self.queue):
                statement = session.waiting
                need = {t: n for t, n in statement.need.items() if n > session.holds(t)}
                if not self.blockers(session, need, self.queue[:at]):
                    self.queue.remove(session)
                    session.waiting = None
                    self.done.append(self.take_answers(session, statement))
                    again = True
                    break

    # -- one statement

    def run(self, session, statement):
        """False: it cannot be said now."""
        if session.waiting or not self.may_send(session, statement):
            return False
        need = {t: n for t, n in statement.need.items() if n > session.holds(t)}
        blocked = bool(self.blockers(session, need))
        heap = self.text_of_heap(session, statement)
        if heap is None:
            return False
        self.number += 1
        text = "; ".join(statement.before(0, self.parted()) + [statement.for_twin(0)])
        session.said.append(f"-- {self.number}\n{text}")
        if self.options.trace:
            print(f"# {self.number} session {session.number}{' waits' if blocked else ''}: {text} || {heap}", flush=True)
        data = statement.copy[0] if statement.copy else None
        session.twins[0].send(text, data)
        session.twins[1].send(heap, data)
        self.counts[statement.kind] += 1
        if blocked and self.wait_until_blocked(session):
            self.counts["(waited)"] += 1
            session.waiting = statement
            self.queue.append(session)
            return True
        self.done = [self.take_answers(session, statement)]
        self.wake()
        # Not before: those who were woken are at work.
        self.compare_all_contents()
        return True

    def parted(self):
        return [t.index for t in self.tables if t.fixed] if len(self.sessions) > 1 else []

    def text_of_heap(self, session, statement):
        """None: there is no saying what should happen."""
        if statement.kind == "change type":
            answer = session.twins[1].ask(statement.probe)
            rows, values = map(int, wire.fields(answer.results[0].rows[0])) if answer.results else (0, 0)
            if values:
                return "DO $$ BEGIN RAISE feature_not_supported; END $$"
            if rows:
                return None  # done if the column was never written, or else refused
        return "; ".join(statement.before(1, self.parted()) + [statement.for_twin(1)])

    def take_answers(self, session, statement):
        try:
            replies = [twin.receive() for twin in session.twins]
        except wire.Lost as lost:
            raise Difference("lost", f"a connection is lost, or has no answer: {lost}") from lost
        replies = self.compare(session, statement, replies)
        wrote = bool(session.wrote) or any(n > READ for n in statement.need.values())
        self.follow(session, statement, replies[0])
        return session, wrote and replies[0].status == "I"

    # -- comparing

    def compare(self, session, statement, replies):
        """The replies, after both twins have been brought to the same state where they may differ."""
        g, h = replies
        if g.state != h.state:
            replies = self.compare_errors(session, statement, g, h)
        elif not g.state:
            self.compare_results(session, statement, g, h)
        if replies[0].status != replies[1].status:
            raise Difference("status", f"transactions differ: {replies[0].status} and {replies[1].status}")
        return replies

    def compare_errors(self, session, statement, g, h):
        both = f"in GPU memory: {g}\nheap: {h}"
        serializable = session.isolation == "SERIALIZABLE"
        if g.state and h.state:
            classes = {g.state[:2], h.state[:2]}
            if g.state == "0A000" and h.state[:2] in ("22", "23") and any(self.tables[t - 1].format == "arrow" for t in statement.need):
                return g, h  # Column.limit()
            if statement.loose and (classes <= {"22", "23", "44"} or statement.kind == "change type"):
                return g, h
            if SERIALIZATION in (g.state, h.state) and (serializable or self.may_fail(session, statement, g)):
                return g, h
            raise Difference(f"errors {g.state} {h.state}", both)
        if serializable and g.state == SERIALIZATION:
            self.counts["(40001, serializable)"] += 1
            if statement.kind == "commit":
                raise Abandoned
        elif self.may_fail(session, statement, g):
            self.counts["(40001, repeatable read)"] += 1
        elif serializable and h.state == SERIALIZATION and "dependencies" in h.message and statement.kind != "commit":
            # What is not committed is not among a table's versions: the other twin finds out when it commits.
            self.counts["(40001 earlier, serializable)"] += 1
            return session.twins[0].ask("SELECT 1 / 0"), h
        else:
            raise Difference(f"error {g.state} {h.state}", both)
        return g, session.twins[1].ask("SELECT 1 / 0")  # so that its transaction has failed, too

    def may_fail(self, session, statement, g):
        """A table in GPU memory was changed by somebody since the snapshot."""
        return (
            g.state == SERIALIZATION
            and session.isolation == "REPEATABLE READ"
            and any(n == WRITE and self.commits[t] != session.versions.get(t) for t, n in statement.need.items())
        )

    def compare_results(self, session, statement, g, h):
        mine, twin = g.results[-1], h.results[-1]
        if not statement.same_result:
            return
        if mine.tag != twin.tag:
            raise Difference(f"tag {statement.kind}", f"in GPU memory: {mine.tag}\nheap: {twin.tag}")
        cursor = session.cursors.get(statement.effect[1]) if statement.kind == "fetch" else None
        if cursor and not cursor.ordered:
            cursor.rows[0] += mine.rows
            cursor.rows[1] += twin.rows
            if len(mine.rows) < statement.effect[2]:
                self.compare_rows(*cursor.rows, False)
            return
        if [(n, t) for n, t in mine.columns if n != "g1"] != [(n, t) for n, t in twin.columns if n != "g1"] and "t" not in dict(mine.columns):
            raise Difference("columns", f"in GPU memory: {mine.columns}\nheap: {twin.columns}")
        self.compare_rows(mine.rows, twin.rows, statement.ordered or bool(cursor))

    def compare_rows(self, mine, twins, ordered):
        if mine == twins or (not ordered and sorted(mine) == sorted(twins)):
            return
        lines = []
        if ordered and sorted(mine) == sorted(twins):
            lines.append("the same rows in another order")
        for name, rows, others in (("in GPU memory only", mine, twins), ("heap only", twins, mine)):
            left = list((collections.Counter(rows) - collections.Counter(others)).elements())
            lines.append(f"{name}: {len(left)} of {len(rows)} rows")
            lines += ["  " + show(row) for row in left[:8]]
        raise Difference("rows", "\n".join(lines))

    def compare_all_contents(self):
        """All sessions after a transaction that wrote has ended, or else those that did something."""
        seen = self.sessions if any(ended for _, ended in self.done) else [session for session, _ in self.done]
        for session in seen:
            if not session.waiting and not session.failed:
                self.compare_contents(session)

    def compare_contents(self, session):
        need = dict.fromkeys(TABLES, READ)
        if self.blockers(session, need):
            return
        if self.number % 10 and (session.isolation == "SERIALIZABLE" or "max_parallel" in str(self.settings[session.number])):
            return  # to read everything is a conflict with all who write, or takes long
        for number, twin in enumerate(session.twins):
            twin.send(Statement("", CONTENTS).for_twin(number))
        self.counts["(contents)"] += 1
        try:
            replies = [twin.receive() for twin in session.twins]
        except wire.Lost as lost:
            raise Difference("lost", f"a connection is lost reading the tables: {lost}") from lost
        if replies[0].state or replies[1].state:
            probe = Statement("contents", CONTENTS, need)
            replies = self.compare(session, probe, replies)
            self.follow(session, probe, replies[0])
            self.wake()  # who waited for a transaction that has failed here is at work
            return
        if session.levels:
            for table in TABLES:
                session.levels[-1].locks.setdefault(table, READ)
        g, h = (reply.results[-1].rows for reply in replies)
        for row in map(wire.fields, h):
            self.rows[int(row[0])] = int(row[1])
        if sorted(g) != sorted(h):
            self.explain_contents(session)

    def explain_contents(self, session):
        lines = [f"session {session.number} sees different tables"]
        for table in TABLES:
            rows = []
            for number, twin in enumerate(session.twins):
                reply = twin.ask(f"SELECT t::text FROM {'gh'[number]}{table} AS t")
                rows.append(reply.results[-1].rows if reply.results else [])
            try:
                self.compare_rows(*rows, False)
            except Difference as difference:
                lines += [f"table {table}:", str(difference)]
        raise Difference("contents", "\n".join(lines))

    # -- what a statement does to its session

    def follow(self, session, statement, reply):
        if reply.state:
            self.follow_error(session, reply)
        else:
            if session.levels and reply.status == "T":
                locks = session.levels[-1].locks
                for table, need in statement.need.items():
                    locks[table] = max(locks.get(table, 0), need)
            written = {t for t, n in statement.need.items() if n >= WRITE}
            session.wrote |= written
            self.apply(session, statement, reply)
            if reply.status == "I":
                if statement.kind == "rollback":
                    session.wrote = set()
                for table in session.wrote:
                    self.commits[table] += 1
        if reply.status == "I":
            self.end_transaction(session, keep=not reply.state and statement.kind != "rollback")

    def follow_error(self, session, reply):
        if session.levels:
            self.undo(session, session.levels[-1], len(session.levels) - 1)
            session.failed = reply.status == "E"

    def undo(self, session, level, depth):
        for table, columns in level.columns.items():
            self.tables[table - 1].columns = columns
        level.columns, level.locks = {}, {}
        for name in [n for n, c in session.cursors.items() if c.depth is not None and c.depth >= depth]:
            del session.cursors[name]

    def end_transaction(self, session, keep):
        if not keep:
            for depth in reversed(range(len(session.levels))):
                self.undo(session, session.levels[depth], depth)
        for name in [n for n, c in session.cursors.items() if c.depth is not None]:
            if keep and session.cursors[name].hold:
                session.cursors[name].depth = None
            else:
                del session.cursors[name]
        session.levels, session.isolation, session.read_only, session.failed = [], None, False, False
        session.wrote, session.versions, session.said = set(), {}, []

    def apply(self, session, statement, reply):
        if not statement.effect:
            return
        kind, *what = statement.effect
        levels = session.levels
        names = [level.name for level in levels]
        if kind == "begin" and not levels:
            session.isolation, session.read_only = what
            session.levels = [Level(None)]
            session.versions = dict(self.commits)
        elif kind == "commit" and reply.results[-1].tag == "ROLLBACK":  # it had failed
            session.wrote = set()
            self.end_transaction(session, False)
        elif kind == "savepoint" and levels:
            levels.append(Level(what[0]))
        elif kind == "rollback to" and what[0] in names:
            at = len(names) - 1 - names[::-1].index(what[0])
            for depth in reversed(range(at, len(levels))):
                self.undo(session, levels[depth], depth)
            del levels[at + 1 :]
            session.failed = False
        elif kind == "release" and what[0] in names:
            at = len(names) - 1 - names[::-1].index(what[0])
            for level in levels[at:]:
                for table, need in level.locks.items():
                    levels[at - 1].locks[table] = max(levels[at - 1].locks.get(table, 0), need)
                for table, columns in level.columns.items():
                    levels[at - 1].columns.setdefault(table, columns)
            del levels[at:]
            for cursor in session.cursors.values():
                if cursor.depth is not None:
                    cursor.depth = min(cursor.depth, at - 1)
        elif kind == "columns":
            table = self.tables[what[0] - 1]
            if levels:
                levels[-1].columns.setdefault(what[0], table.columns)
            table.columns = what[1]
        elif kind == "cursor":
            session.cursors[what[0]] = Cursor(what[1], what[2], len(levels) - 1)
        elif kind == "close":
            session.cursors.pop(what[0], None)
        elif kind == "prepare":
            session.prepared[what[0]] = what[1:]
        elif kind == "deallocate":
            session.prepared.pop(what[0], None)


def device_of(options):
    return lambda number: (number - 1) % options.devices


def show(row):
    try:
        text = str(wire.fields(row))
    except Exception:  # a line of COPY
        text = repr(row)
    return text if len(text) < 400 else text[:400] + "..."


class Script:
    """The next statements of the sessions: chosen by a random generator from the model's state."""

    def __init__(self, rng, world, large):
        self.r, self.world, self.large = rng, world, large
        self.maker = differ_sql.Maker(rng, world.tables, large)
        self.names = 0
        self.calm = 0  # so many statements in which transactions end: then tables can be altered
        self.plots = {}  # of sessions: what makes their next statements

    def name(self, kind):
        self.names += 1
        return f"{kind}{self.names}"

    def next(self, session):
        r = self.r
        if session.failed:
            self.plots.pop(session, None)
            return self.after_error(session)
        if session.levels and self.plots.get(session):
            return self.plots[session].pop(0)()
        kind = r.random()
        if session.levels and kind > 0.97:
            self.plots[session] = self.undone(session)
        if kind < 0.01:
            self.calm = 15
        self.calm -= 1
        if not session.levels:
            return self.begin() if kind < 0.45 and self.calm < 0 else self.statement(session)
        if kind < 0.13 or (self.calm > 0 and kind < 0.6):
            return Statement("commit", "COMMIT", effect=("commit",))
        if kind < 0.18:
            return Statement("rollback", "ROLLBACK")
        if kind < 0.25 and len(session.levels) < 6:
            name = r.choice(("a", "b", "c"))  # names may come twice
            return Statement("savepoint", f"SAVEPOINT {name}", effect=("savepoint", name))
        if kind < 0.33 and len(session.levels) > 1:
            name = r.choice(session.levels[1:]).name
            if r.random() < 0.6:
                return Statement("rollback to", f"ROLLBACK TO {name}", effect=("rollback to", name))
            return Statement("release", f"RELEASE {name}", effect=("release", name))
        return self.statement(session)

    def begin(self):
        r = self.r
        isolation = r.choices(("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"), (5, 4, 1 if self.world.options.serializable else 0))[0]
        mode = r.choice((" READ ONLY",) + ("",) * 14)
        text = f"BEGIN ISOLATION LEVEL {isolation}{mode}"
        # The twins take their snapshots at the same time.
        text += "" if isolation == "READ COMMITTED" else "; SELECT 1"
        return Statement("begin", text, effect=("begin", isolation, bool(mode)))

    def undone(self, session):
        """What one transaction does to a table that it has written, and takes back."""
        r, maker = self.r, self.maker
        change = r.choice((lambda: self.truncate(session), maker.alter if self.is_alone(session) else maker.delete, maker.update))
        plot = [maker.insert, lambda: Statement("savepoint", "SAVEPOINT u", effect=("savepoint", "u")), change]
        plot += r.choice(([], [maker.insert], [maker.select, maker.insert]))
        return plot + [lambda: Statement("rollback to", "ROLLBACK TO u", effect=("rollback to", "u")), maker.select, maker.insert]

    def is_alone(self, session):
        return session.isolation in (None, "READ COMMITTED")

    def truncate(self, session):
        emulate = not self.is_alone(session) or any(s.has_snapshot for s in self.world.sessions)
        if emulate and any(c.depth is not None for c in session.cursors.values()):
            return self.maker.delete()  # an open cursor of the session forbids TRUNCATE (55006), not what is done in its place
        return self.maker.truncate(emulate)

    def after_error(self, session):
        r = self.r
        if len(session.levels) > 1 and r.random() < 0.7:
            name = r.choice(session.levels[1:]).name
            return Statement("rollback to", f"ROLLBACK TO {name}", effect=("rollback to", name))
        kind = r.random()
        if kind < 0.2:
            return self.maker.look()  # 25P02
        if kind < 0.5:
            return Statement("commit", "COMMIT", effect=("commit",))
        return Statement("rollback", "ROLLBACK")

    def statement(self, session):
        r, maker = self.r, self.maker
        if max(self.world.rows.values()) > ROWS_MOST and not self.large and r.random() < 0.2:
            return maker.thin_out()
        if session.cursors and r.random() < 0.3:
            return self.of_cursor(session)
        if session.prepared and r.random() < 0.1:
            name = r.choice(tuple(session.prepared))
            if r.random() < 0.05:
                return Statement("deallocate", f"DEALLOCATE {name}", effect=("deallocate", name))
            return maker.execute(name, *session.prepared[name])
        free = 5 if all(o is session or not o.levels for o in self.world.sessions) else 1
        alone = self.is_alone(session)
        truncate = free * (3 if len(session.levels) > 1 else 1)  # to be undone
        makers = [
            (maker.select, 30), (maker.look, 2), (maker.insert, 16), (maker.copy_from, 5), (maker.update, 14), (maker.delete, 8), (maker.failing, 2),
            (maker.analyze, 0.7), (lambda: self.truncate(session), truncate),
            (maker.lock, 4), (maker.by_ctid, 2), (maker.within, 2), (maker.insert_select, 4), (maker.with_change, 5), (lambda: maker.prepare(self.name("p")), 1),
        ]
        if alone:
            makers += [(maker.block, 1.5), (maker.alter, 2 * free)]
        if not session.levels:
            makers += [(maker.export, 0.5)]
        else:
            makers += [(lambda: maker.cursor(self.name("q"), r.random() < 0.3), 2)]
        if self.large and max(self.world.rows.values()) < 30000:
            makers += [(lambda: maker.load(r.choice((500, 3000, 9000))), 6), (maker.thin_out, 2)]
        return r.choices([m for m, _ in makers], [w for _, w in makers])[0]()

    def of_cursor(self, session):
        r = self.r
        name = r.choice(tuple(session.cursors))
        if r.random() < 0.1:
            return Statement("close", f"CLOSE {name}", effect=("close", name))
        count = r.choice((1, 3, 10, 10**9))
        return Statement("fetch", f"FETCH {count if count < 10**9 else 'ALL'} FROM {name}", effect=("fetch", name, count))


class Round:
    """Tables, sessions and settings by a seed. steps: what was said, to be said again in part."""

    def __init__(self, options, number):
        self.options = options
        self.number = number
        self.rng = random.Random(f"{options.seed} {number}")
        r = self.rng
        self.large = r.random() < 0.12
        # Few sessions, or one alone, can alter tables more often.
        count = 1 if r.random() < 0.25 else r.choices(range(1, options.sessions + 1), range(1, options.sessions + 1))[0]
        self.settings = [self._settings() for _ in range(count)]
        self.state = r.getstate()
        self.steps = []

    def _settings(self):
        r = self.rng
        out = ["SET jit = off"]  # plans that are made to look dear would be compiled
        out += [f"SET enable_{name} = off" for name in ("hashjoin", "mergejoin", "nestloop", "material", "memoize", "hashagg", "sort") if r.random() < 0.12]
        if r.random() < 0.05:
            out += ["SET max_parallel_workers_per_gather = 2", "SET parallel_setup_cost = 0", "SET parallel_tuple_cost = 0",
                    "SET min_parallel_table_scan_size = 0"]
        if r.random() < 0.1:
            out += ["SET work_mem = '64kB'"]
        if r.random() < 0.3:
            out += ["SET enable_partitionwise_join = on", "SET enable_partitionwise_aggregate = on"]
        if r.random() < 0.1:
            out += [f"SET plan_cache_mode = {r.choice(('force_generic_plan', 'force_custom_plan'))}"]
        return out

    def _world(self):
        self.rng.setstate(self.state)
        tables = [differ_tables.make_table(self.rng, i, len(self.settings) == 1) for i in TABLES]
        return World(self.options, tables, self.settings)

    def run(self, most):
        """Returns the counts of statements. The steps stay here."""
        world = self._world()
        script = Script(self.rng, world, self.large)
        try:
            world.open()
            wanted = min(most, LARGE_STATEMENTS if self.large else ROUND_STATEMENTS)
            idle = 0
            while world.number < wanted and idle < 1000:
                session = self.rng.choice([s for s in world.sessions if not s.waiting])
                statement = script.next(session)
                idle += 1
                self.steps.append((session.number, statement))
                if world.run(session, statement):
                    idle = 0
                else:
                    self.steps.pop()
            self._end(world)
        except Abandoned:
            world.counts["(rounds ended by 40001)"] += 1
        except Difference as difference:
            raise self._explain(difference, world)
        finally:
            world.close()
        return world

    def _end(self, world):
        """All transactions end; first of those for whom others wait."""
        for end in (Statement("commit", "COMMIT", effect=("commit",)), Statement("rollback", "ROLLBACK")):
            for session in sorted(world.sessions, key=lambda s: bool(s.waiting)):
                if session.levels and not session.waiting:
                    self.steps.append((session.number, end))
                    world.run(session, end)

    def repeat(self, steps):
        """The difference that some of the steps make, or None."""
        world = self._world()
        try:
            world.open()
            for number, statement in steps:
                world.run(world.sessions[number], statement)
        except Abandoned:
            return None
        except Difference as difference:
            return difference
        finally:
            world.close()
        return None

    def _explain(self, difference, world):
        lines = [f"round {self.number}, statement {world.number}" + (" (a large round)" if self.large else "")]
        if self.steps:
            number, statement = self.steps[-1]
            lines.append(f"session {number}, {world.sessions[number].isolation or 'no transaction'}; the transaction so far:")
            lines += world.sessions[number].said[-30:] or [statement.for_twin(0)]
        difference.args = ("\n".join(lines + [str(difference)]),)
        return difference

    def shrink(self, difference):
        """The fewest steps that were found to make a difference of the same kind."""
        deadline = time.monotonic() + SHRINK_S
        steps, size = list(self.steps), max(len(self.steps) // 2, 1)
        last = difference
        while size >= 1:
            at = 0
            while at < len(steps) and time.monotonic() < deadline:
                tried = steps[:at] + steps[at + size :]
                found = self.repeat(tried)
                if found and found.kind == difference.kind:
                    steps, last = tried, found
                else:
                    at += size
            size //= 2
        return steps, last


def report(options, number, this, difference):
    print(f"not ok {number} - {difference.kind}")
    comment(f"seed {options.seed}; again: differ.py --seed {options.seed} --round {this.number} --sessions {options.sessions}")
    comment(str(difference))
    if difference.kind == "lost":
        comment(options.log()[-3000:])
    steps, last = this.shrink(difference)
    comment(f"shrunk from {len(this.steps)} statements to {len(steps)}:")
    rng_tables = this._world()
    rng_tables.close()
    for text in differ_tables.create(rng_tables.tables, device_of(options)):
        comment(text + ";")
    for session, statement in steps:
        comment(f"session {session}: {statement.for_twin(0)};" + (f"  -- data: {statement.copy[0]!r:.300}" if statement.copy else ""))
    comment("there: " + str(last))


def comment(text):
    for line in text.splitlines():
        print("# " + line, flush=True)


def run_all(options):
    done, number, counts, started = 0, options.round or 0, collections.Counter(), time.monotonic()
    group_size = max(options.statements // GROUPS, 1)
    groups = GROUPS if options.round is None else 1
    print(f"1..{groups}")
    comment(f"seed {options.seed}, {options.statements} statements, {options.sessions} sessions")
    for group in range(1, groups + 1):
        first = number
        while done < min(group * group_size, options.statements):
            this = Round(options, number)
            try:
                world = this.run(options.statements - done)
            except Difference as difference:
                report(options, group, this, difference)
                return 1
            done += world.number
            counts.update(world.counts)
            number += 1
            if options.round is not None:
                break
        print(f"ok {group} - rounds {first} to {number - 1}, seed {options.seed}: {done} statements alike", flush=True)
    comment(f"{time.monotonic() - started:.1f} s; " + ", ".join(f"{name} {count}" for name, count in counts.most_common()))
    return 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--statements", type=int, default=20000)
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--round", type=int, default=None, help="this one alone")
    parser.add_argument("--socket", default=None, help="of a server that runs, with gstore_fdw preloaded and extension made; default: one of its own")
    parser.add_argument("--no-serializable", dest="serializable", action="store_false", help="no transaction is SERIALIZABLE")
    parser.add_argument("--trace", action="store_true", help="print statements before they are sent")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**9)
    return options


def main():
    options = parse()
    server = None
    if options.socket is None:
        reason = private.why_not()
        if reason:
            print(f"1..0 # SKIP {reason}")
            return 0
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        try:
            server = private.Server("differ", *SETTINGS)
        except private.Failed as error:
            print("Bail out! no server: " + " | ".join(str(error).splitlines()))
            return 1
        options.socket = str(server.folder / "run/.s.PGSQL.5432")
    options.path, options.user = options.socket, "postgres" if server else os.environ.get("PGUSER", "postgres")
    options.log = server.log if server else lambda: ""
    try:
        with database(options):
            return run_all(options)
    except Exception:
        print("Bail out! " + traceback.format_exc().splitlines()[-1])
        comment(traceback.format_exc() + options.log()[-2000:])
        return 1
    finally:
        if server:
            server.end()


@contextlib.contextmanager
def database(options):
    """One of this run's own."""
    options.database = "postgres"
    name = f"differ_{os.getpid()}"
    ask(options, f"CREATE DATABASE {name}")
    try:
        options.database = name
        ask(options, "CREATE EXTENSION gstore_fdw; " + differ_tables.SETUP)
        ask(options, f"ALTER DATABASE {name} SET search_path = round, public")
        count = ask(options, "SELECT count(*) FROM gstore_fdw_keeper_info").results[0].rows[0]
        options.devices = int(wire.fields(count)[0])
        yield
    finally:
        options.database = "postgres"
        ask(options, f"DROP DATABASE {name} WITH (FORCE)")


def ask(options, text):
    connection = connect(options)
    reply = connection.ask(text)
    connection.close()
    if reply.state:
        raise Difference("set-up", f"{text}: {reply}")
    return reply


def connect(options):
    """Waits for a server that is coming up again after a crash."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return wire.Connection(options.path, options.user, options.database)
        except (wire.Lost, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
