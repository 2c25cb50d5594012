#!/usr/bin/env python3
"""Where the keeper of a server listens, what a server does that finds none, and what is left to one that waits: TAP, a line a case.

usage: keeper.py [CASE...]. Each case starts from a working server and leaves one, as in crash.py.
"""
import array
import contextlib
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
import private  # noqa: E402
from attached import expect_same, export, objects, show, tool  # noqa: E402
from cases import count, expect_usable, fill, group, in_middle, main  # noqa: E402
from private import Failed, expect  # noqa: E402


@group()
class Private:
    def base_backup_has_nothing_of_the_keeper_and_starts_in_any_folder(self, server):
        """One whose path is too long for a socket, too: programs of the same user still reach the keeper by a token."""
        warnings = server.log().count("special file")
        folder = server.folder / ("long" * 30) / "data"
        folder.parent.mkdir()
        shutil.chown(folder.parent, (server.folder / "data").stat().st_uid)
        server.run("pg_basebackup", "-D", str(folder), "-X", "stream", "-c", "fast")
        expect([str(path) for path in folder.rglob("*gstore*")], [], "the keeper's files in the copy")
        expect(server.log().count("special file"), warnings, "warnings of the backup")
        with private.started(server, folder) as other:
            fill(other, 10)
            expect(count(other), 10, "rows")
            path = other.sql("SELECT socket FROM gstore_fdw_keeper_info LIMIT 1")
            expect(os.path.samefile(path, folder / "pg_stat_tmp/gstore.sock"), True, f"{path} is in the data directory")
            show = private.as_owner([f"{private.BUILD}/tools/gvmem", "table", other.sql("SELECT gstore_export('ft')")])
            said = subprocess.run(show, env=other.environ, capture_output=True, text=True)
            if said.returncode:
                raise Failed(said.stderr)


    def path_of_a_keeper_that_is_relative_is_refused(self, server):
        fill(server, 10)
        settings = server.folder / "data/postgresql.conf"
        before = settings.read_text()
        settings.write_text(before + "gstore_fdw.keeper = 'run/keeper.sock'\n")
        server.stop("fast")
        server.start()
        server.wait_for("""SELECT bool_or(problem LIKE 'gstore_fdw.keeper must be an absolute path, not "run/keeper.sock"') FROM gstore_fdw_keeper_info""")
        expect(server.error("SET gstore_fdw.start_timeout = 1; INSERT INTO ft VALUES (1)"), "HV00N", "SQLSTATE")
        settings.write_text(before)
        server.stop("fast")
        server.start()


@group("gstore_fdw.device_memory=100TB", "gstore_fdw.start_timeout=3600")
class Failing:
    def keeper_that_cannot_start_fails_statements_at_once(self, server):
        server.sql("CREATE FOREIGN TABLE ft (id int, t text) SERVER gstore_fdw")
        insert = server.psql("-v", "VERBOSITY=verbose", "-c", "INSERT INTO ft VALUES (1)")
        for _ in range(2):  # during the first try, perhaps, and later
            said = subprocess.run(insert, env=server.environ, capture_output=True, text=True, timeout=private.START_S).stderr
            for words in ("ERROR:  HV00N: the GPU memory keeper is not ready", "DETAIL:  cannot start the keeper at .*: .*budget of 100.* TiB", "HINT:  .*gstore_fdw.device_memory"):
                if not re.search(words, said):
                    raise Failed(f"no {words}: {said}")


@group("gstore_fdw.readers=all")
class Shared:
    def socket_in_a_folder_where_all_may_replace_it_is_refused(self, server):
        fill(server, 10)
        run, pid = server.folder / "run", server.keeper_pid()
        mode = run.stat().st_mode
        run.chmod(0o777)
        os.kill(pid, signal.SIGTERM)
        server.wait_for("SELECT bool_or(problem LIKE 'any user could put a keeper of their own into %/run,%') FROM gstore_fdw_keeper_info")
        expect(server.error("SET gstore_fdw.start_timeout = 1; INSERT INTO ft VALUES (1)"), "HV00N", "SQLSTATE")
        run.chmod(0o1777)  # as /tmp is
        expect(count(server), 0, "rows")
        server.sql("INSERT INTO ft VALUES (1)")
        run.chmod(mode)


@group("gstore_fdw.keeper=FOLDER/run/keeper.sock", "gstore_fdw.start_timeout=60")
class External:
    """A keeper that others run."""

    def keeper_missing_tries_become_rare_until_a_statement_needs_it(self, server):
        """One line for each; and none of a process that ends."""
        with private.running_keeper(server) as keeper:
            self._wait_used(server, keeper)
            lost, before_16 = len(server.log()), server.log().count("next try in 16 s")
        server.wait_log("next try in 16 s", before_16)
        said = server.log()[lost:]
        waits = re.findall(r"next try in (\d+) s", said)
        expect(said.count("A gvmem-keeper must listen at that socket and let in this server's user"), len(waits), "hints in the log")
        expect(waits[:5], ["1", "2", "4", "8", "16"], "seconds between tries")
        expect(said.count("no keeper listens"), len(waits), "lines about it")
        expect(said.count("exited with exit code"), 1, "processes that ended: the one that lost its keeper")
        with private.running_keeper(server):
            server.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int, t text) SERVER gstore_fdw")
            server.sql("SET gstore_fdw.start_timeout = '12s'; INSERT INTO ft VALUES (1, 'x')")  # and not after 16 s
            expect(count(server), 1, "rows")

    def commands_of_exports_and_loads_can_be_left_to_a_stopped_keeper(self, server):
        """A thread each has: what an export needs, a link, the end of links, memory to load rows from. Other sessions go on, and nothing stays."""
        with private.running_keeper(server) as keeper:
            self._wait_used(server, keeper)
            fill(server)
            server.sql("CREATE FOREIGN TABLE packed (id int) SERVER gstore_fdw; INSERT INTO packed VALUES (1), (2); CREATE ROLE reader; GRANT SELECT ON ft TO reader")
            server.sql("CREATE DATABASE other")
            token = export(server)
            with self._stopped(keeper):
                for statement in (
                    "SELECT gstore_export('packed')",
                    "SET ROLE reader; SELECT gstore_export('ft')",
                    f"SELECT gstore_revoke('{token}')",
                    "SELECT gstore_load_begin('ft', 1 << 20)",
                    # Now no thread is free, and a command of the table is left.
                    "SELECT gstore_export('ft')",
                    "SET ROLE reader; SELECT gstore_export('ft')",
                    "SELECT sum(id) FROM ft",
                    "INSERT INTO ft SELECT i, 'late' FROM generate_series(1, 100000) i",
                    "COPY packed FROM PROGRAM 'seq 100000'",
                ):
                    expect(server.error(f"SET statement_timeout = '300ms'; {statement}", timeout=private.START_S), "57014", statement)
                server.sql("DROP DATABASE other", timeout=private.START_S)
            self._expect_packed(server, "ft")
            for name in ("ft", "packed"):
                expect_same(server, name)
            server.sql("SELECT gstore_revoke_all('packed')")
            self._expect_packed(server, "packed")
            server.sql("INSERT INTO packed VALUES (3)")
            expect(server.sql("SELECT sum(id) FROM packed"), "6", "rows with one that came later")
            expect_usable(server, 1000)
            server.sql("DROP FOREIGN TABLE ft, packed; DROP ROLE reader")
            private.wait_until("no memory is left", lambda: not objects(server))

    def export_that_moves_columns_can_be_left_to_a_stopped_keeper(self, server):
        with private.running_keeper(server) as keeper:
            self._wait_used(server, keeper)
            server.sql("CREATE FOREIGN TABLE wide (" + ", ".join(f"c{i} int" for i in range(400)) + ") SERVER gstore_fdw")
            server.sql("INSERT INTO wide SELECT " + ", ".join(f"{i} + i" for i in range(400)) + " FROM generate_series(1, 3) i")
            rows = [[i + row for i in range(400)] for row in (1, 2, 3)]
            for _ in range(10):  # an export can be through before the keeper is stopped
                first = subprocess.Popen(server.psql("-c", "SELECT gstore_export('wide')"), env=server.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                private.wait_until("columns move", lambda: len(objects(server)) > 2)
                with self._stopped(keeper):
                    server.sql(f"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT gstore_export(''wide'')'")
                    try:
                        failed = first.communicate(timeout=private.START_S)[1]
                    finally:
                        first.kill()
                    if failed:
                        expect(failed.split()[-1], "57014", "SQLSTATE of an export")
                        expect(server.error("SET statement_timeout = '300ms'; SELECT gstore_export('wide')", timeout=private.START_S), "57014", "SQLSTATE of the next one")
                        second = server.session()
                        second.begin("SELECT gstore_export('wide')")
                        break
                server.sql("SELECT gstore_revoke_all('wide')")
                self._expect_packed(server, "wide")
            else:
                raise Failed("each export was through before the keeper was stopped")
            shown = show(server, second.finish())["rows"]
            second.close()
            expect([[int(value) for value in row.values()] for row in shown], rows, "rows by the token")
            server.sql("SELECT gstore_revoke_all('wide')")
            self._expect_packed(server, "wide")
            expect([[int(value) for value in row.split("|")] for row in server.sql("SELECT * FROM wide").splitlines()], rows, "rows")
            server.sql("DROP FOREIGN TABLE wide")
            private.wait_until("no memory is left", lambda: not objects(server))

    def session_with_temporary_tables_ends_beside_a_stopped_keeper(self, server):
        """It drops them as it ends, when nothing can be cancelled."""
        with private.running_keeper(server) as keeper:
            self._wait_used(server, keeper)
            fill(server, 10)
            session = server.session()
            pid = session.sql("SELECT pg_backend_pid()")
            session.sql("CREATE FOREIGN TABLE pg_temp.own (id int) SERVER gstore_fdw")
            session.sql("INSERT INTO own SELECT generate_series(1, 1000)")
            token = session.sql("SELECT gstore_export('own')")
            with self._stopped(keeper):
                session.close()
                server.wait_for(f"SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid})")
            server.wait_for("SELECT count(*) = 1 FROM gstore_fdw_chunk_info")
            expect("the token has ended" in tool(server, token).stderr, True, "the end of the token")
            expect_usable(server, 10)

    @contextlib.contextmanager
    def _stopped(self, keeper):
        private.stop_process(keeper.pid)
        try:
            yield
        finally:
            keeper.send_signal(signal.SIGCONT)

    def _wait_used(self, server, keeper):
        """Until the server uses this one: it may have one to forget."""
        server.wait_for("SELECT DISTINCT keeper_pid FROM gstore_fdw_keeper_info WHERE ready", str(keeper.pid))

    def _expect_packed(self, server, table):
        """No column has a link: so all are in the table's pack again."""
        oid = server.sql(f"SELECT '{table}'::regclass::oid")
        private.wait_until(f"all columns of {table} are packed", lambda: not [o for o in objects(server) if f"/{oid}/" in o["name"] and not o["name"].endswith((".pack", ".manifest"))])

    def keeper_of_another_version_is_refused_in_words(self, server):
        """By its greeting, the message WELCOME of keeper/protocol/wire.h: whatever else is different, nothing of it is used."""
        path, version = server.folder / "run/keeper.sock", 77
        tries = server.log().count("next try in")
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            path.chmod(0o666)
            listener.listen()
            listener.settimeout(private.START_S)
            with contextlib.closing(listener.accept()[0]) as client:
                hello = client.recv(4096)
                welcome = hello[24:32] + struct.pack("<IIQII", version, os.getpid(), 1, 4096, 0)
                head = struct.pack("<HHIIIQ", 64, 3, 24 + len(welcome), 0, 0, struct.unpack_from("<Q", hello, 16)[0])
                fds = array.array("i", [listener.fileno()] * 3)
                client.sendmsg([head + welcome], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
                client.recv(4096)
        server.wait_log("next try in", tries)
        words = rf"cannot use the keeper at {path}: the keeper has protocol version {version}, the program \d+ \(gvmem [0-9.]+\): use one release for both"
        if not re.search(words, server.log()):
            raise Failed(f"the log does not say: {words}")

    def program_of_another_version_is_refused_in_words(self, server):
        with private.running_keeper(server), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(server.folder / "run/keeper.sock"))
            client.settimeout(private.START_S)
            client.sendall(struct.pack("<HHIIIQQII", 1, 0, 40, 0, 0, 1, 0x70656B6D7667, 77, 0))
            said = client.recv(4096)
            if not re.search(rb"the keeper has protocol version \d+ \(gvmem [0-9.]+\), the program 77: use one release for both\0", said):
                raise Failed(f"the keeper says {said}")


@group("gstore_fdw.service_threads=2")
class Left:
    """Two threads, one of which has an export that somebody has cancelled: it waits for a lease of another program."""

    def export_after_one_that_was_left_takes_no_thread(self, server):
        server.sql("CREATE FOREIGN TABLE first (id int) SERVER gstore_fdw; INSERT INTO first VALUES (1)")
        fill(server)
        sessions = [server.session() for _ in range(2)]
        export = "SELECT gstore_export('first') LIKE 'gstore%'"
        with private.leased(server, "first"):
            in_middle(server, sessions[0], export)
            server.sql(f"SELECT pg_cancel_backend({sessions[0].pid})")
            expect(sessions[0].error(), "57014", "SQLSTATE")
            in_middle(server, sessions[1], export)
            expect(server.sql("SET statement_timeout = '20s'; SELECT sum(id) FROM ft"), "500500", "another table's rows")
        expect(sessions[1].finish(), "t", "a token")
        sessions[1].close()
        expect(server.sql("SELECT sum(id) FROM first"), "1", "rows")
        server.sql("DROP FOREIGN TABLE first, ft")
        server.wait_for("SELECT sum(objects) FROM gstore_fdw_keeper_info", "0")

    def copy_that_was_left_is_freed_once_it_is_filled(self, server):
        server.sql("CREATE FOREIGN TABLE first (id int) SERVER gstore_fdw; INSERT INTO first VALUES (1)")
        session = server.session()
        with private.leased(server, "first"):
            in_middle(server, session, "SELECT gstore_export_ipchandle('first')")
            server.sql(f"SELECT pg_cancel_backend({session.pid})")
            timer = threading.Timer(20, session.process.kill)  # before the thread's own time is over
            timer.start()
            expect(session.error(), "57014", "SQLSTATE")
            timer.cancel()
            time.sleep(2.5)  # the worker looks for what is to be freed once a second
            expect(server.sql("SELECT sum(device_copies) > 0 FROM gstore_fdw_keeper_info"), "t", "a copy that a thread is yet to fill")
        server.wait_for("SELECT sum(device_copies) FROM gstore_fdw_keeper_info", "0")
        expect(server.sql("SELECT length(gstore_export_ipchandle('first')), sum(id) FROM first"), "64|1", "a handle, and rows")
        server.sql("DROP FOREIGN TABLE first")


if __name__ == "__main__":
    sys.exit(main())
