#!/usr/bin/env python3
"""Parts of a server are killed under clients that write and clients that check: TAP, a line a kind of kill.

usage: kills.py [--kills N] [--seed N]

Writers make transfers as of TPC-B: each adds an amount to an account, a teller and a branch, and writes it into the
history. One that finds some of them, as rows are lost in its middle, goes on: its COMMIT has to fail. Checkers read the sums of all four tables several times in one REPEATABLE READ transaction. All sums
are equal, or all tables are empty: their rows were lost with the keeper. In one transaction they never change. A
statement may fail, as the connection may; what it may not do is answer with something else.

In the end all tables are truncated and the keeper holds no memory.
"""
import argparse
import collections
import contextlib
import os
import random
import signal
import sys
import threading
import time
import traceback

sys.dont_write_bytecode = True
import private  # noqa: E402
from private import Failed, Server, SqlError, expect  # noqa: E402

ACCOUNTS = 2000
TELLERS = 10
WRITERS = 4
CHECKERS = 3
START_S = 60
# What a client may get as an error: the connection, the keeper or the rows are gone, the server ends or starts, or the
# snapshot is older than another's change.
EXPECTED = ("connection lost", "the database system is", "08", "57P0", "55000", "40001", "HV")
TABLES = ("account", "teller", "branch", "history")
SET_UP = """
CREATE FOREIGN TABLE account (id int, balance int) SERVER gstore_fdw;
CREATE FOREIGN TABLE teller (id int, balance int) SERVER gstore_fdw;
CREATE FOREIGN TABLE branch (id int, balance int) SERVER gstore_fdw;
CREATE FOREIGN TABLE history (account int, teller int, delta int, t text) SERVER gstore_fdw;
CREATE FUNCTION transfer(a int, t int, d int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    rows bigint;
    changed bigint := 0;
BEGIN
    UPDATE account SET balance = balance + d WHERE id = a;
    GET DIAGNOSTICS rows = ROW_COUNT; changed := changed + rows;
    UPDATE teller SET balance = balance + d WHERE id = t;
    GET DIAGNOSTICS rows = ROW_COUNT; changed := changed + rows;
    UPDATE branch SET balance = balance + d WHERE id = 1;
    GET DIAGNOSTICS rows = ROW_COUNT; changed := changed + rows;
    IF changed = 0 THEN -- the tables wait to be filled
        RAISE object_not_in_prerequisite_state;
    END IF;
    INSERT INTO history VALUES (a, t, d, repeat('x', 20 + d % 7));
END $$;
"""
FILL = f"""
BEGIN;
SELECT count(*) FROM (SELECT 1 FROM account FOR UPDATE) AS a;
SELECT count(*) = 0 AS empty FROM account \\gset
\\if :empty
INSERT INTO account SELECT i, 0 FROM generate_series(1, {ACCOUNTS}) i;
INSERT INTO teller SELECT i, 0 FROM generate_series(1, {TELLERS}) i;
INSERT INTO branch VALUES (1, 0);
\\endif
COMMIT
"""
SUMS = (
    "SELECT (SELECT count(*) || ' ' || coalesce(sum(balance), 0) FROM account), (SELECT count(*) || ' ' || coalesce(sum(balance), 0) FROM teller),"
    " (SELECT count(*) || ' ' || coalesce(sum(balance), 0) FROM branch),"
    " (SELECT coalesce(sum((length(t) IS DISTINCT FROM 20 + delta % 7 AND account > 0)::int), 0) || ' ' || coalesce(sum(delta), 0) FROM history)"
)


class Books:
    """The clients, and what was wrong."""

    def __init__(self, server, seed):
        self.server = server
        self.seed = seed
        self.stopped = threading.Event()
        self.counts = collections.Counter()
        self.wrong = []
        self.pids = {}  # of the connections that are open
        self.threads = []

    def start(self):
        for work, number in [(self._write, i) for i in range(WRITERS)] + [(self._check, i) for i in range(CHECKERS)]:
            name = f"{work.__name__.strip('_')} {number}"
            self.threads.append(threading.Thread(target=self._client, args=(name, work), daemon=True))
            self.threads[-1].start()

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join(START_S)
            if thread.is_alive():
                self.wrong.append(f"a client has no answer for {START_S} s")
        return self.wrong

    def _client(self, name, work):
        """Connects again whenever the connection is lost."""
        rng = random.Random(f"{self.seed} {name}")
        while not self.stopped.is_set():
            session = None
            try:
                session = self.server.session()
                self.pids[name] = session.pid
                while not self.stopped.is_set():
                    work(session, rng)
            except SqlError as error:
                self._note(name, str(error))
            except (Failed, OSError, ValueError) as error:
                if not isinstance(error, BrokenPipeError):
                    self.wrong.append(f"{name}: {error}")
            except Exception:
                self.wrong.append(f"{name}: {traceback.format_exc()}")
            finally:
                self.pids.pop(name, None)
                if session:
                    with contextlib.suppress(OSError):
                        session.close()
            time.sleep(0.02)

    def _note(self, name, state):
        self.counts[f"error {state[:15]}"] += 1
        if not state.startswith(EXPECTED):
            self.wrong.append(f"{name}: {state}")

    def _write(self, session, rng):
        account, teller, delta = rng.randint(1, ACCOUNTS), rng.randint(1, TELLERS), rng.randint(-99, 99)
        end = "ROLLBACK" if rng.random() < 0.1 else "COMMIT"
        session.sql(f"BEGIN; SELECT transfer({account}, {teller}, {delta}); {end}")
        self.counts[end.lower()] += 1

    def _check(self, session, rng):
        session.sql("BEGIN ISOLATION LEVEL REPEATABLE READ")
        seen = set()
        for _ in range(rng.randint(1, 4)):
            seen.add(session.sql(SUMS))
            time.sleep(rng.random() * 0.05)
        session.sql("COMMIT")
        self.counts["checks"] += 1
        if len(seen) > 1:
            raise Failed(f"one transaction saw {seen}")
        account, teller, branch, history = (tuple(map(int, text.split())) for text in seen.pop().split("|"))
        if (account[0], teller[0], branch[0]) not in ((0, 0, 0), (ACCOUNTS, TELLERS, 1)) or len({s[1] for s in (account, teller, branch, history)}) > 1 or history[0]:
            raise Failed(f"books that do not balance: account {account}, teller {teller}, branch {branch}, history {history}")
        self.counts["checks of empty tables"] += branch[0] == 0


class Kills:
    """What is killed, each with what makes the server work again."""

    def __init__(self, server, books):
        self.server, self.books = server, books

    def backend_of_a_writer(self, rng):
        self._backend(rng, "write")

    def backend_of_a_reader(self, rng):
        self._backend(rng, "check")

    def keeper_killed(self, rng):
        self._keeper(signal.SIGKILL)

    def keeper_terminated(self, rng):
        self._keeper(signal.SIGTERM)

    def keeper_stopped_and_killed(self, rng):
        pid = self.server.keeper_pid()
        if pid:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(rng.random() * 0.3)
        self._keeper(signal.SIGKILL)

    def postmaster(self, rng):
        """As the kernel does when memory is short; what it leaves ends by itself."""
        self._kill(self._postmaster(), signal.SIGKILL)
        self._start()

    def immediate_shutdown(self, rng):
        self.server.stop("immediate")
        self._start()

    def fast_shutdown(self, rng):
        self.server.stop("fast")
        self._start()

    def _backend(self, rng, kind):
        pids = [pid for name, pid in list(self.books.pids.items()) if name.startswith(kind)]
        if pids:
            self._kill(rng.choice(pids), signal.SIGKILL)

    def _keeper(self, number):
        pid = self.server.keeper_pid()
        if pid:
            self._kill(pid, number)

    def _kill(self, pid, number):
        with contextlib.suppress(ProcessLookupError):  # it was about to end
            os.kill(pid, number)

    def _postmaster(self):
        return int((self.server.folder / "data/postmaster.pid").read_text().split()[0])

    def _start(self):
        """Not before the last process of the old server has ended: until then PostgreSQL refuses."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.server.start()
                return
            except Failed:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


def fill(server):
    """Rows for tables that lost them, as soon as the server works."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            session = server.session()
            session.sql(FILL)
            session.close()
            return
        except (SqlError, ValueError) as error:
            if time.monotonic() > deadline:
                raise Failed(f"tables cannot be filled: {error}") from None
            time.sleep(0.05)


def expect_nothing_left(server):
    server.sql("".join(f"TRUNCATE {table};" for table in TABLES))
    server.wait_for("SELECT sum(device_resident + device_on_host + host_used) FROM gstore_fdw_keeper_info", "0")
    expect(server.sql("SELECT max(windows_in_use) FROM gstore_fdw_keeper_info"), "0", "windows in use")


def main():
    reason = private.why_not()
    if reason:
        print(f"1..0 # SKIP {reason}")
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    rng = random.Random(options.seed)
    server = Server("kills", "max_connections=40", "restart_after_crash=on")
    failed = 0
    try:
        server.sql(SET_UP)
        fill(server)
        books = Books(server, options.seed)
        kills = Kills(server, books)
        kinds = [name for name in vars(Kills) if not name.startswith("_")]
        print(f"1..{len(kinds) + 1}\n# seed {options.seed}", flush=True)
        books.start()
        done = collections.Counter()
        for number in range(options.kills):
            kind = kinds[number % len(kinds)] if number < len(kinds) else rng.choice(kinds)
            time.sleep(0.1 + rng.random() * 0.7)
            before = len(books.wrong)
            try:
                getattr(kills, kind)(rng)
                fill(server)
            except Exception as error:
                books.wrong.append(f"{kind}: {error!r}")
            done[kind] += 1
            for text in books.wrong[before:]:
                print(f"# after {number} kills, {kind}: {text}", flush=True)
        for text in books.stop()[:20]:
            print(f"# {text}")
        failed = len(books.wrong)
        for number, kind in enumerate(kinds, 1):
            print(f"{'not ok' if failed else 'ok'} {number} - {kind}: {done[kind]} times")
        try:
            if books.counts["commit"] == 0 or books.counts["checks"] == 0:
                raise Failed("nothing was written or checked")
            fill(server)
            expect_nothing_left(server)
            print(f"ok {len(kinds) + 1} - truncated tables hold no memory")
        except (Failed, SqlError) as error:
            failed += 1
            print(f"not ok {len(kinds) + 1} - truncated tables hold no memory\n# {error}")
        print("# " + ", ".join(f"{name} {n}" for name, n in books.counts.most_common()))
        if failed:
            print("\n".join("# " + line for line in server.log().splitlines()[-60:]))
    finally:
        server.end()
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
