"""Cases in groups, each group on a private server of its own: TAP, a line a case. A file of cases calls main()."""
import signal
import sys
import traceback

import private
from private import Failed, Server, expect

GROUPS = []


class Skipped(Exception):
    """Raised by a case that cannot run here, with the reason. It counts as neither passed nor failed."""


def group(*settings):
    """A class whose methods are cases, run in their order on one server."""

    def add(cls):
        GROUPS.append((cls, settings))
        return cls

    return add


def fill(server, rows=1000):
    server.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int, t text) SERVER gstore_fdw")
    server.sql(f"INSERT INTO ft SELECT i, 'row ' || i FROM generate_series(1, {rows}) i")


def count(server, table="ft"):
    return int(server.sql(f"SELECT count(*) FROM {table}"))


def in_middle(server, session, statement):
    """Begins a long statement; returns when it is at work on rows."""
    session.begin(statement)
    server.wait_for(
        "SELECT query_start < clock_timestamp() - interval '300 ms' AND state = 'active'"
        f" FROM pg_stat_activity WHERE pid = {session.pid}"
    )


def expect_usable(server, rows):
    """The table has that many rows, and takes more and gives them back."""
    expect(count(server), rows, "rows")
    server.sql("INSERT INTO ft SELECT -i, 'new ' || i FROM generate_series(1, 100) i")
    expect(server.sql("SELECT count(*), sum(id), max(t) FROM ft WHERE id < 0"), "100|-5050|new 99", "new rows")
    server.sql("UPDATE ft SET t = 'changed' WHERE id = -1")
    expect(server.sql("SELECT t FROM ft WHERE id = -1"), "changed", "a changed row")
    server.sql("DELETE FROM ft WHERE id < 0")
    expect(count(server), rows, "rows after deletion")


def main():
    reason = private.why_not()
    if reason:
        print(f"1..0 # SKIP {reason}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    wanted = sys.argv[1:]
    plan = [
        (cls, settings, [n for n in vars(cls) if is_case(cls, n) and (not wanted or n in wanted)])
        for cls, settings in GROUPS
    ]
    print(f"1..{sum(len(names) for _, _, names in plan)}", flush=True)
    number, failed = 0, 0
    for cls, settings, names in plan:
        try:
            server = Server(cls.__name__.lower(), *settings) if names else None
        except Failed as error:
            print("Bail out! no server: " + " | ".join(str(error).splitlines()), flush=True)
            return 1
        for name in names:
            number += 1
            try:
                getattr(cls(), name)(server)
                print(f"ok {number} - {name}", flush=True)
            except Skipped as reason:
                print(f"ok {number} - {name} # SKIP {reason}", flush=True)
            except Exception:  # whatever it is, the next case is still worth running
                failed += 1
                print(f"not ok {number} - {name}", flush=True)
                for line in traceback.format_exc().splitlines()[-6:] + server.log().splitlines()[-8:]:
                    print("# " + line, flush=True)
                try:
                    server.stop("immediate")
                except Failed:
                    pass
                server.start()
        if server:
            server.end()
    return 1 if failed else 0


def is_case(cls, name):
    return callable(getattr(cls, name)) and not name.startswith("_")
