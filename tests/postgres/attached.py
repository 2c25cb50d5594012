"""Programs that read tables in GPU memory by token, for attach.py."""
import json
import subprocess

import private
from private import BUILD, Failed, expect

OTHER_USER = 65533  # who is not in the list of users: nobody may be the server's


class Probe:
    alive = []

    def __init__(self, server, prefix=()):
        self.process = subprocess.Popen(
            [*prefix, str(BUILD / "postgres-run/attach_probe")],
            env=server.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )
        Probe.alive.append(self)

    @classmethod
    def end_all(cls):
        """A case that failed leaves none to the next one."""
        for probe in cls.alive:
            probe.process.kill()
            probe.process.wait()
        cls.alive = []

    def ask(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline().strip()
        if not said:
            raise Failed(f"the probe ended at {words[0]}: {self.process.wait()}")
        return said

    def close(self):
        self.process.stdin.close()
        expect(self.process.wait(), 0, "the probe's exit status")


def export(server, table="ft"):
    return server.sql(f"SELECT gstore_export('{table}')")


def fill(server, rows=10000):
    server.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int, t text, f float8) SERVER gstore_fdw")
    server.sql(f"INSERT INTO ft SELECT i, 'row ' || i, nullif(i % 10, 0) FROM generate_series(1, {rows}) i")


def tool(server, *arguments):
    return subprocess.run(
        [str(BUILD / "tools/gvmem"), "table", *arguments], env=server.environ, capture_output=True, text=True, errors="replace"
    )


def show(server, token):
    done = tool(server, "-n", "1000000", "--json", token)
    if done.returncode:
        raise Failed(done.stderr)
    return json.loads(done.stdout, parse_float=str, parse_int=str)


def expect_same(server, table, token=None):
    """What is read from GPU memory is what SQL says, value by value."""
    shown = show(server, token or export(server, table))
    names = [column["name"] for column in shown["columns"]]
    values = ", ".join(f'"{name}"::text' for name in names)
    said = server.sql(f"SET timezone = 'UTC'; SELECT json_build_array({values}) FROM {table} ORDER BY id")
    rows = [json.loads(line) for line in said.splitlines()]
    expect(len(shown["rows"]), len(rows), "rows")
    for row, wanted in zip(sorted(shown["rows"], key=lambda row: int(row["id"])), rows):
        for name, value in zip(names, wanted):
            found = {True: "true", False: "false"}.get(row[name], row[name])
            if name == "c" and found is not None:
                found = found.rstrip()  # as a cast to text does
            expect(found, value, f"{name} of row {row['id']}")


def expect_same_revision(server, table):
    """A table whose row i is written i-th, at any time."""
    shown = show(server, export(server, table))
    expect([(int(r["id"]), r["t"], float(r["f"])) for r in shown["rows"]],
           [(i, f"row {i}", float(i)) for i in range(int(shown["row_count"]))], "rows")


def other_user(server):
    prefix = ["setpriv", "--reuid", str(OTHER_USER), "--regid", str(OTHER_USER), "--clear-groups"]
    return Probe(server, prefix)


def links(token):
    return token.split(":")[5]


def spying(server):
    probe = other_user(server)
    expect(probe.ask("keeper", server.sql("SELECT DISTINCT socket FROM gstore_fdw_keeper_info")), "GVM_OK", "connect")
    return probe


def objects(server):
    socket = server.sql("SELECT DISTINCT socket FROM gstore_fdw_keeper_info")
    command = [str(BUILD / "tools/gvmem"), "keeper", "ls", "-j", "-s", socket]
    said = subprocess.run(private.as_owner(command), env=server.environ, capture_output=True, text=True, check=True)
    return json.loads(said.stdout)


def object_names(server):
    return [o["name"] for o in objects(server) if o["name"]]
