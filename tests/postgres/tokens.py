#!/usr/bin/env python3
"""Tokens of tables in GPU memory among roles and sessions that stand in each other's way: TAP, a line a case.

usage: tokens.py [CASE...]
"""
import contextlib
import os
import signal
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from attached import tool
from cases import fill, group, main
from executor_client import COUNT, N, Client, Ended
from private import SqlError, expect, stop_process, wait_until

ON_THE_GPU = "SET gstore_fdw.gpu_startup_cost = 0; SET gstore_fdw.gpu_instruction_cost = 0;"


def refusal(server, statement, before=""):
    """SQLSTATE, message and hint with which it fails; it does not wait for long, whatever the machine does."""
    return server.sql(
        f"{before} SET statement_timeout = '100s'; SET client_min_messages = warning; CREATE TEMP TABLE said (state text, message text, hint text);"
        f"DO $$ DECLARE state text; message text; hint text; BEGIN {statement};"
        " EXCEPTION WHEN OTHERS OR QUERY_CANCELED THEN"
        " GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;"
        " INSERT INTO said VALUES (state, message, hint); END $$; SELECT * FROM said"
    ).split("|")


def ran(server, query, role="postgres"):
    """Where a query ran, as EXPLAIN says."""
    plan = server.sql(f"SET statement_timeout = '100s'; SET SESSION AUTHORIZATION {role}; {ON_THE_GPU} EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) {query}")
    return next((line.strip().removeprefix("Ran: ") for line in plan.splitlines() if "Ran: " in line), plan)


def is_attached(server, token):
    return tool(server, "-n", "0", token).returncode == 0


def use_up(server, hog, roles, tables):
    """As many tokens as the session's user gets, for each table and role; their number, SQLSTATE, message and hint."""
    said = server.sql(
        f"SET SESSION AUTHORIZATION {hog}; SET client_min_messages = warning;"
        "CREATE TEMP TABLE said (made int, state text, message text, hint text);"
        f"""DO $$ DECLARE made int := 0; state text; message text; hint text; BEGIN
            FOR r IN 1..{roles} LOOP
                EXECUTE 'SET LOCAL ROLE other_' || r;
                FOR t IN {tables[0]}..{tables[-1]} LOOP
                    BEGIN
                        PERFORM gstore_export(('t' || t)::reggstore);
                        made := made + 1;
                    EXCEPTION WHEN OTHERS THEN
                        GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
                    END;
                    EXIT WHEN state IS NOT NULL;
                END LOOP;
                EXIT WHEN state IS NOT NULL;
            END LOOP;
            SET LOCAL ROLE NONE;
            INSERT INTO said VALUES (made, state, message, hint);
        END $$; SELECT * FROM said"""
    )
    made, *refused = said.split("|")
    return int(made), refused


def compilers(server):
    """Processes of the keeper."""
    found = []
    for thread in Path(f"/proc/{server.keeper_pid()}/task").glob("*/children"):
        for pid in thread.read_text().split():
            with contextlib.suppress(OSError):
                if b"gstore-gpu-worker\0compile" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
    return found


@group("autovacuum=off")
class Shares:
    def queries_of_all_roles_have_one_token(self, s):
        fill(s)
        s.sql("CREATE ROLE reader; GRANT SELECT ON ft TO reader")
        for role in ("postgres", "reader"):
            expect(ran(s, "SELECT count(*) FROM ft", role), "on the GPU", role)
        expect(s.sql("SELECT gstore_revoke_all('ft')"), "1", "tokens")

    def oldest_token_of_a_role_gives_way_and_no_other_ones(self, s):
        fill(s, 10)
        s.sql("GRANT SELECT ON ft TO reader")
        read = s.sql("SET SESSION AUTHORIZATION reader; SELECT gstore_export('ft')")
        session = s.session()
        tokens = []
        for i in range(65):
            session.sql(f"INSERT INTO ft VALUES ({i})")
            tokens.append(session.sql("SELECT gstore_export('ft')"))
        session.close()
        expect([is_attached(s, token) for token in (tokens[0], tokens[1], tokens[-1], read)], [False, True, True, True], "attach")
        s.sql("SELECT gstore_revoke_all('ft')")

    def roles_share_all_tokens(self, s):
        """A user who has made all tokens that it may have leaves some to others; queries still run on the GPU."""
        s.sql(";".join(f"CREATE ROLE other_{i}" for i in range(1, 61)))
        hogs = {"first": range(1, 61), "second": range(61, 76), "third": range(76, 81)}
        s.sql(";".join(f"CREATE FOREIGN TABLE t{i} (id int) SERVER gstore_fdw; INSERT INTO t{i} VALUES ({i})" for i in range(1, 81)))
        s.sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO PUBLIC")
        made = []
        for hog, tables in hogs.items():
            s.sql(f"CREATE ROLE {hog}; GRANT {', '.join(f'other_{i}' for i in range(1, 61))} TO {hog}")
            count, (state, message, hint) = use_up(s, hog, 60, tables)
            expect([state, f'role "{hog}" has {count} tokens' in message, "gstore_revoke" in hint], ["53400", True, True], message)
            made.append(count)
        expect([made[0] > 3000, 700 < made[1] < 800, 150 < made[2] < 200], [True] * 3, f"tokens of three roles: {made}")
        session = s.session()
        session.sql("SET SESSION AUTHORIZATION third; SET ROLE other_1")
        token = session.sql("SELECT gstore_export('t76')")
        expect(session.sql(f"SELECT gstore_revoke('{token}')"), "t", "one of the third role's, which it was given again")
        expect(session.sql("SELECT gstore_export('t76') IS NOT NULL"), "t", "another one in its place")
        session.close()
        expect(s.sql("SET SESSION AUTHORIZATION reader; SELECT gstore_export('t1') IS NOT NULL"), "t", "one of a role that has none")
        where = {ran(s, f"SELECT count(*) FROM t{i}") for i in range(1, 61)}
        expect(where, {"on the GPU"}, "queries")

    def copies_of_a_role_have_a_limit(self, s):
        """Of one version each, while a snapshot sees the version."""
        s.sql("CREATE ROLE copier; CREATE ROLE other_copier; DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int) SERVER gstore_fdw")
        s.sql("INSERT INTO ft SELECT generate_series(1, 200000); GRANT SELECT ON ft TO copier, other_copier")
        export_as = "SET gstore_fdw.copy_memory = '1MB'; SET SESSION AUTHORIZATION {}; "
        handle = s.sql(export_as.format("copier") + "SELECT gstore_export_ipchandle('ft')")
        expect(s.sql(export_as.format("copier") + "SELECT gstore_export_ipchandle('ft')"), handle, "the same handle")
        reader = s.session()
        reader.sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM ft")
        s.sql("INSERT INTO ft VALUES (0)")
        state, message, hint = refusal(s, "PERFORM gstore_export_ipchandle('ft')", export_as.format("copier"))
        expect([state, "limited to 1 MiB a role" in message, "gstore_fdw.copy_memory" in hint], ["53400", True, True], message)
        expect(s.sql(export_as.format("other_copier") + "SELECT gstore_export_ipchandle('ft') IS NOT NULL"), "t", "a copy of another role")
        expect(s.sql(export_as.format("copier") + "SELECT gstore_export_ipchandle('ft') IS NOT NULL"), "t", "which is that of the version for all")
        reader.sql("COMMIT")
        reader.close()
        s.sql("INSERT INTO ft VALUES (0)")

        def is_made():
            try:
                return s.sql(export_as.format("copier") + "SELECT gstore_export_ipchandle('ft') IS NOT NULL") == "t"
            except SqlError as error:
                expect(str(error), "53400", "SQLSTATE until the first copy is freed")
                return False

        wait_until("there is room when no snapshot sees the first version", is_made)
        s.sql("DROP FOREIGN TABLE ft; DROP OWNED BY copier, other_copier; DROP ROLE copier, other_copier")

    def copies_from_before_an_alter_do_not_count_for_the_one_in_their_place(self, s):
        s.sql("CREATE ROLE copier; DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int) SERVER gstore_fdw")
        s.sql("INSERT INTO ft SELECT generate_series(1, 200000); GRANT SELECT ON ft TO copier")
        as_copier = "SET gstore_fdw.copy_memory = '1MB'; SET SESSION AUTHORIZATION copier;"
        export = f"{as_copier} SELECT gstore_export_ipchandle('ft')"
        before = s.sql(export)
        reader = s.session()
        reader.sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")  # ended copies stay
        s.sql("ALTER FOREIGN TABLE ft RENAME COLUMN id TO number")
        after = s.sql(export)
        expect(after != before, True, "another handle")
        s.sql("ALTER FOREIGN TABLE ft RENAME COLUMN number TO id")
        expect(refusal(s, "PERFORM gstore_export_ipchandle('ft')", as_copier)[0], "53400", "SQLSTATE while the first copy is not freed")
        s.sql("ALTER FOREIGN TABLE ft RENAME COLUMN id TO number")
        expect(s.sql(export), after, "the handle, which what was refused has not ended")
        reader.close()
        s.sql("DROP FOREIGN TABLE ft; DROP OWNED BY copier; DROP ROLE copier")

    def versions_of_an_owner_that_a_snapshot_keeps_have_a_limit(self, s):
        columns = ", ".join(f"c{i} int" for i in range(400))
        s.sql(f"CREATE ROLE writer; DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft ({columns}) SERVER gstore_fdw; CREATE FOREIGN TABLE other (id int) SERVER gstore_fdw")
        s.sql("ALTER FOREIGN TABLE ft OWNER TO writer")
        limit = "SET gstore_fdw.version_memory = '1MB'"
        commits = "DO $$ BEGIN FOR i IN 1..100 LOOP INSERT INTO ft (c0) VALUES (i); COMMIT; END LOOP; END $$"
        writer = s.session()
        writer.sql(limit)
        writer.sql(commits)
        reader = s.session()
        reader.sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        writer.begin(commits)
        expect(writer.error(), "53400", "SQLSTATE of more of 20 kB each")
        rows = int(s.sql("SELECT count(*) FROM ft"))
        expect(140 < rows < 170, True, f"rows: {rows}")
        s.sql(f"{limit}; INSERT INTO other VALUES (1)")
        s.sql(f"{limit}; TRUNCATE ft")
        for _ in range(3):
            s.sql(f"{limit}; TRUNCATE ft")  # adds no version
        expect(s.error(f"{limit}; INSERT INTO ft (c0) VALUES (1)"), "53400", "SQLSTATE of another version")
        reader.close()
        s.sql(f"{limit}; INSERT INTO ft (c0) VALUES (1)")
        s.sql("DROP FOREIGN TABLE ft, other; DROP ROLE writer")


@group("gstore_fdw.max_relations=8")
class Tables:
    def owners_share_tables_with_rows(self, s):
        """But superusers, who find all places that are free."""

        def fill_as(role, tables):
            """How many of them can be filled."""
            filled = 0
            for table in tables:
                try:
                    s.sql(f"SET SESSION AUTHORIZATION {role}; CREATE FOREIGN TABLE {table} (id int) SERVER gstore_fdw; INSERT INTO {table} VALUES (1)")
                    filled += 1
                except SqlError as error:
                    expect(str(error), "53400", f"{table} of {role}")
            return filled

        for role in ("first", "second"):
            s.sql(f"CREATE ROLE {role}; GRANT USAGE ON FOREIGN SERVER gstore_fdw TO {role}; GRANT CREATE ON SCHEMA public TO {role}")
        expect(fill_as("first", [f"f{i}" for i in range(8)]), 6, "tables of the first")
        expect(fill_as("second", ["s0"]), 1, "tables of the second")
        s.sql("INSERT INTO f0 VALUES (2)")
        expect(fill_as("first", ["f8"]), 0, "more of the first")
        expect(fill_as("postgres", ["p0"]), 1, "the last place")
        expect(fill_as("second", ["s1"]), 0, "where none is free")
        s.sql("DROP OWNED BY first, second; DROP FOREIGN TABLE p0; DROP ROLE first, second")
        s.wait_for("SELECT count(*) FROM gstore_fdw_chunk_info", "0")
        expect(fill_as("postgres", [f"p{i}" for i in range(9)]), 8, "tables of a superuser")
        s.sql("DROP FOREIGN TABLE " + ", ".join(f"p{i}" for i in range(8)))


@group()
class Compilers:
    """Connections to the spawner as backends make them; processes that are started wait for a text."""

    def roles_share_places_of_texts_that_wait_and_compilers(self, s):
        share = N["GSTORE_SPAWN_TEXTS_MAX"] * 3 // 4
        with contextlib.ExitStack() as stack:

            def ask(role):
                return stack.enter_context(Client(s, device=role, kind="GSTORE_SPAWN_COMPILE"))

            greedy = [ask(1) for _ in range(share)]
            try:
                ask(1).receive()
                ended = "nothing"
            except Ended as end:
                ended = str(end)
            expect(ended.rpartition(", ")[0].rpartition(", ")[2], str(N["GSTORE_SPAWN_SHARE"]), f"one more: {ended}")
            other = ask(2)
            with Client(s) as query:
                expect(query.run("", 0, COUNT, columns=()), [(0, 0)], "a query")
            other.socket.send(b"no message")  # a process that reads it ends
            wait_until("two run", lambda: len(compilers(s)) == 2)
            greedy[0].socket.close()
            try:
                other.receive()
                ended = "nothing"
            except Ended as end:
                ended = str(end)
            expect("spawner" in ended, True, f"the next one that is started: {ended}")


@group("synchronous_standby_names=nobody", "synchronous_commit=local")
class Privileges:
    def exports_wait_for_a_commit_of_changed_privileges_for_seconds(self, s):
        """The commit has ended the tokens that it had to, and waits for a standby that is not there."""
        fill(s)
        s.sql("CREATE ROLE granted")
        expect(ran(s, "SELECT count(*) FROM ft"), "on the GPU", "before")
        granting = s.session()
        granting.begin("SET synchronous_commit = on; GRANT SELECT ON ft TO granted")
        s.wait_for(f"SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = {granting.pid}")
        for function in ("gstore_export", "gstore_export_ipchandle"):
            state, message, hint = refusal(s, f"PERFORM {function}('ft')")
            expect([state, "another transaction changes privileges" in message, "pg_stat_activity" in hint], ["55P03", True, True], message)
        where = ran(s, "SELECT count(*) FROM ft")
        expect("another transaction changes privileges" in where, True, f"a query meanwhile runs locally: {where}")
        s.sql(f"SELECT pg_cancel_backend({granting.pid})")
        granting.finish()
        expect(s.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND classid = 'pg_foreign_table'::regclass"), "0", "locks that are left")
        expect(ran(s, "SELECT count(*) FROM ft"), "on the GPU", "after")
        expect(s.sql("SELECT gstore_export('ft') IS NOT NULL"), "t", "an export after that")
        s.sql("DROP OWNED BY granted; DROP ROLE granted")

    def joins_that_have_returned_rows_wait_for_it_as_long_as_it_takes(self, s):
        """For longer than a query does that has its local plan."""
        s.sql("DROP FOREIGN TABLE IF EXISTS ft, inner_table; CREATE FOREIGN TABLE ft (id int) SERVER gstore_fdw; CREATE FOREIGN TABLE inner_table (id int) SERVER gstore_fdw")
        s.sql("INSERT INTO ft SELECT generate_series(1, 20000); INSERT INTO inner_table SELECT generate_series(1, 20000); CREATE ROLE granted")
        readers = [s.session() for _ in range(2)]
        for reader in readers:
            reader.sql(f"{ON_THE_GPU} BEGIN; DECLARE joined CURSOR FOR SELECT a.id FROM ft a JOIN inner_table b ON a.id = b.id")
            expect(len(reader.sql("FETCH 10 FROM joined").split()), 10, "rows before")
        granting = s.session()
        granting.begin("SET synchronous_commit = on; GRANT SELECT ON ft TO granted")
        s.wait_for(f"SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = {granting.pid}")
        for reader in readers:
            reader.begin("FETCH ALL FROM joined")
        s.wait_for("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query_start < clock_timestamp() - interval '4 s'", "2")
        s.sql(f"SELECT pg_cancel_backend({readers[1].pid})")
        expect(readers[1].error(), "57014", "one that is cancelled")
        s.sql(f"SELECT pg_cancel_backend({granting.pid})")
        granting.finish()
        expect(len(readers[0].finish().split()), 20000 - 10, "rows after")
        readers[0].close()
        s.sql("DROP FOREIGN TABLE ft, inner_table; DROP OWNED BY granted; DROP ROLE granted")

    def orders_that_have_returned_rows_go_on_by_the_local_plan(self, s):
        """Of one table: the lists that follow are made on the GPU, or by the plan that had no row yet."""
        fill(s, 20000)
        s.sql("CREATE ROLE granted; CREATE FUNCTION is_rare(id int) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RETURN id % 1000 = 1; END'")
        query = "SELECT id FROM ft WHERE is_rare(id) ORDER BY id LIMIT 10"
        expect(ran(s, query), "on the GPU", "before")
        reader = s.session()
        reader.sql(f"{ON_THE_GPU} BEGIN; DECLARE ordered CURSOR FOR {query}")
        first = reader.sql("FETCH 1 FROM ordered")
        granting = s.session()
        granting.begin("SET synchronous_commit = on; GRANT SELECT ON ft TO granted")
        s.wait_for(f"SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = {granting.pid}")
        rows = reader.sql("SET LOCAL statement_timeout = '100s'; FETCH ALL FROM ordered").split()
        expect([first, *rows], s.sql(f"SET gstore_fdw.gpu_queries = off; {query}").split(), "rows")
        s.sql(f"SELECT pg_cancel_backend({granting.pid})")
        granting.finish()
        reader.close()
        s.sql("DROP FUNCTION is_rare; DROP OWNED BY granted; DROP ROLE granted")

    def joins_that_wait_for_it_keep_nobody_from_exports_of_their_tables(self, s):
        """They come to that commit after they have passed it once, as while packed columns are unpacked: here the worker is stopped meanwhile."""
        s.sql("DROP FOREIGN TABLE IF EXISTS ft, inner_table; CREATE FOREIGN TABLE ft (id int) SERVER gstore_fdw; CREATE FOREIGN TABLE inner_table (id int) SERVER gstore_fdw")
        s.sql("INSERT INTO ft SELECT generate_series(1, 20000); INSERT INTO inner_table SELECT generate_series(1, 20000); CREATE ROLE granted")
        reader, other, granting = (s.session() for _ in range(3))
        reader.sql(f"{ON_THE_GPU} BEGIN; DECLARE joined CURSOR FOR SELECT a.id FROM ft a JOIN inner_table b ON a.id = b.id")
        expect(len(reader.sql("FETCH 10 FROM joined").split()), 10, "rows before")
        other.sql("SET statement_timeout = '100s'")
        s.sql("SELECT gstore_revoke_all('ft')")
        worker = s.keeper_pid()
        stop_process(worker)
        try:
            reader.begin("FETCH ALL FROM joined")
            s.wait_for(f"SELECT count(*) FROM pg_locks WHERE pid = {reader.pid} AND classid = 'pg_foreign_table'::regclass AND objid = 'ft'::regclass", "1")
            other.begin("SELECT gstore_export('ft')")
            s.wait_for(f"SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = {other.pid}")
            granting.begin("SET synchronous_commit = on; GRANT SELECT ON ft TO granted")
            s.wait_for(f"SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = {granting.pid}")
        finally:
            os.kill(worker, signal.SIGCONT)
        expect(other.error(), "55P03", "an export that has waited for the join's")
        s.wait_for(f"SELECT wait_event_type FROM pg_stat_activity WHERE pid = {reader.pid}", "Lock")  # the join meanwhile
        s.sql(f"SELECT pg_cancel_backend({granting.pid})")
        granting.finish()
        expect(len(reader.finish().split()), 20000 - 10, "rows after")
        reader.close()
        s.sql("DROP FOREIGN TABLE ft, inner_table; DROP OWNED BY granted; DROP ROLE granted")

    def statement_timeout_holds_for_commits_that_wait_for_it(self, s):
        fill(s, 10)
        s.sql("CREATE ROLE granted; CREATE FOREIGN TABLE other (id int) SERVER gstore_fdw; INSERT INTO other VALUES (1)")
        granting = s.session()
        granting.begin("SET synchronous_commit = on; GRANT SELECT ON ft TO granted")
        s.wait_for(f"SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = {granting.pid}")
        expect(s.error("SET lock_timeout = '100s'; SET statement_timeout = '1s'; GRANT SELECT ON other TO granted"), "57014", "SQLSTATE")
        s.sql(f"SELECT pg_cancel_backend({granting.pid})")
        granting.finish()
        s.sql("SET statement_timeout = '100s'; GRANT SELECT ON other TO granted")
        s.sql("DROP FOREIGN TABLE other; DROP OWNED BY granted; DROP ROLE granted")

    def commits_that_change_no_such_privileges_delay_nobody(self, s):
        """On tables of other kinds; without grant options; of a role that has none."""
        fill(s)
        s.sql("CREATE ROLE reader; CREATE ROLE idle; GRANT SELECT ON ft TO reader; GRANT USAGE, CREATE ON SCHEMA public TO idle")
        for role, before, statement in (
            ("reader", "CREATE TEMP TABLE own ()", "GRANT SELECT ON ALL TABLES IN SCHEMA pg_temp TO PUBLIC"),
            ("reader", "SELECT", "GRANT SELECT ON ft TO PUBLIC"),
            ("idle", "CREATE TABLE own ()", "DROP OWNED BY idle"),
        ):
            changing = s.session()
            changing.sql(f"SET ROLE {role}; {before}")
            changing.begin(f"SET synchronous_commit = on; {statement}")
            s.wait_for(f"SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = {changing.pid}")
            s.sql("INSERT INTO ft VALUES (0)")
            expect(s.sql("SELECT gstore_export('ft') IS NOT NULL"), "t", f"an export beside {statement}")
            s.sql(f"SELECT pg_cancel_backend({changing.pid})")
            changing.finish()
            changing.sql("SET synchronous_commit = local")  # its end drops its temporary tables
            changing.close()
        s.sql("DROP OWNED BY reader, idle; DROP ROLE reader, idle")

    def tokens_end_by_what_a_role_with_grant_options_takes_away(self, s):
        fill(s)
        s.sql("CREATE ROLE reader; CREATE ROLE giver; GRANT SELECT ON ft TO giver WITH GRANT OPTION")
        for statement in ("REVOKE SELECT ON ft FROM reader", "REVOKE SELECT ON ALL TABLES IN SCHEMA public FROM reader"):
            s.sql("SET ROLE giver; GRANT SELECT ON ft TO reader")
            token = s.sql("SET ROLE reader; SELECT gstore_export('ft')")
            expect(is_attached(s, token), True, "attach before")
            s.sql(f"SET ROLE giver; {statement}")
            expect(is_attached(s, token), False, f"attach after {statement}")
        s.sql("DROP OWNED BY reader, giver; DROP ROLE reader, giver")


if __name__ == "__main__":
    sys.exit(main())
