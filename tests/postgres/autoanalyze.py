#!/usr/bin/env python3
"""ANALYZE that nobody asks for, of tables in GPU memory whose rows have changed. TAP, a line a case.

usage: autoanalyze.py [CASE...]. Each case starts from a working server and leaves one. That something is not done is shown
by what is done later: `expect_none()`.
"""
import sys
import time

sys.dont_write_bytecode = True
import private  # noqa: E402
from cases import fill, group, main  # noqa: E402
from private import Failed, expect  # noqa: E402

ANALYZER = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'gstore_fdw analyzer'"
ASLEEP = ANALYZER + " AND wait_event = 'PgSleep'"
TABLES_MAX = 6
CANCELLED = "canceling statement due to user request"


def reltuples(table="ft"):
    return f"SELECT reltuples FROM pg_class WHERE oid = '{table}'::regclass"


def analyzed(table="ft"):
    return f"SELECT pg_stat_get_analyze_count('{table}'::regclass)"


def expect_none(server, query, wanted):
    """Two rounds in which another table is analyzed; what was due before them is tried in the second one at the latest."""
    server.sql("CREATE FOREIGN TABLE other (id int) SERVER gstore_fdw")
    for rows in (1000, 3000):
        server.sql("INSERT INTO other SELECT generate_series(1, %d - (SELECT count(*) FROM other))" % rows)
        server.wait_for(reltuples("other"), str(rows))
    server.sql("DROP FOREIGN TABLE other")
    expect(server.sql(query), wanted, query)


def autovacuum(server, value):
    server.sql(f"ALTER SYSTEM SET autovacuum = {value}")  # not in a transaction with others
    server.sql("SELECT pg_reload_conf()")
    server.wait_for("SHOW autovacuum", value)


SLOW = """
    CREATE FUNCTION slow(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1000); RETURN $1; END';
    CREATE STATISTICS slow ON (slow(id)) FROM """  # ANALYZE of the table lasts until these are dropped


@group("autovacuum_naptime=1s", f"gstore_fdw.max_relations={TABLES_MAX}")
class Due:
    """Which tables are analyzed, and which are not."""

    def tables_are_analyzed_when_more_rows_have_changed_than_autovacuum_says(self, server):
        fill(server, 1000)
        server.wait_for(reltuples(), "1000")
        expect(server.sql("SELECT n_distinct FROM pg_stats WHERE tablename = 'ft' AND attname = 'id'"), "-1", "statistics")
        server.sql("INSERT INTO ft SELECT generate_series(1, 100); UPDATE ft SET t = 'x' WHERE id <= 20; DELETE FROM ft WHERE id > 990")
        expect_none(server, analyzed(), "1")  # 100 + 40 + 10 are not more than 50 + 1000 / 10
        server.sql("DELETE FROM ft WHERE id = 990")
        server.wait_for(reltuples(), "1089")
        server.sql("UPDATE ft SET t = 'x' WHERE id <= 200")
        server.wait_for("SELECT most_common_vals::text FROM pg_stats WHERE tablename = 'ft' AND attname = 't'", "{x}")
        server.sql("COPY ft (id) FROM PROGRAM 'seq 1000'")
        server.wait_for(reltuples(), "2089")

    def threshold_is_set_by_autovacuums_settings(self, server):
        fill(server, 1000)
        server.wait_for(reltuples(), "1000")
        for name, value in (("threshold", "5"), ("scale_factor", "0")):
            server.sql(f"ALTER SYSTEM SET autovacuum_analyze_{name} = {value}")
        server.sql("SELECT pg_reload_conf()")
        server.sql("INSERT INTO ft SELECT generate_series(1, 6)")
        server.wait_for(reltuples(), "1006")
        for name in ("threshold", "scale_factor"):
            server.sql(f"ALTER SYSTEM RESET autovacuum_analyze_{name}")
        server.sql("SELECT pg_reload_conf()")
        expect(server.error("ALTER FOREIGN TABLE ft SET (autovacuum_analyze_threshold = 5)"), "42809", "SQLSTATE of a table's own threshold")

    def changes_that_were_undone_do_not_count(self, server):
        fill(server, 1000)
        server.wait_for(reltuples(), "1000")
        server.sql("BEGIN; INSERT INTO ft SELECT generate_series(1, 10000); ROLLBACK")
        server.sql("BEGIN; INSERT INTO ft VALUES (0); SAVEPOINT a; INSERT INTO ft SELECT generate_series(1, 10000); DELETE FROM ft; ROLLBACK TO a; INSERT INTO ft VALUES (0); COMMIT")
        # A commit that fails when its changes are there already: no further table can have rows.
        for number in range(TABLES_MAX):
            server.sql(f"CREATE FOREIGN TABLE full{number} (id int) SERVER gstore_fdw")
        for number in range(TABLES_MAX - 1):
            server.sql(f"INSERT INTO full{number} VALUES (0)")
        expect(server.error(f"BEGIN; INSERT INTO full{TABLES_MAX - 1} VALUES (0); INSERT INTO ft SELECT generate_series(1, 10000); COMMIT"), "53400", "SQLSTATE")
        server.sql("DROP FOREIGN TABLE " + ", ".join(f"full{number}" for number in range(TABLES_MAX)))
        server.wait_for("SELECT count(DISTINCT table_oid) FROM gstore_fdw_chunk_info", "1")
        server.sql("BEGIN; ALTER FOREIGN TABLE ft ADD COLUMN c int DEFAULT 1; COMMIT")  # writes all rows anew
        expect_none(server, analyzed(), "1")

    def analyze_by_hand_counts_if_it_is_of_the_whole_table(self, server):
        autovacuum(server, "off")
        fill(server, 1000)
        server.sql("CREATE TABLE parent (id int, t text); CREATE FOREIGN TABLE child () INHERITS (parent) SERVER gstore_fdw; INSERT INTO child SELECT generate_series(1, 1000)")
        server.sql("CREATE FOREIGN TABLE columns (id int, t text) SERVER gstore_fdw; INSERT INTO columns SELECT generate_series(1, 1000)")
        server.sql("CREATE FOREIGN TABLE undone (id int) SERVER gstore_fdw; INSERT INTO undone SELECT generate_series(1, 1000)")
        server.sql("ANALYZE ft; ANALYZE parent; ANALYZE columns (id)")
        server.sql("BEGIN; ANALYZE undone; ROLLBACK")
        autovacuum(server, "on")
        for table, before in (("child", 0), ("columns", 1), ("undone", 1)):
            server.wait_for(analyzed(table), str(before + 1))
        expect_none(server, analyzed(), "1")
        server.sql("DROP FOREIGN TABLE child, columns, undone; DROP TABLE parent")

    def nothing_is_analyzed_without_autovacuum(self, server):
        autovacuum(server, "off")
        fill(server, 1000)
        time.sleep(2.5)
        expect(server.sql(analyzed()), "0", "ANALYZE")
        autovacuum(server, "on")
        server.wait_for(reltuples(), "1000")

    def table_is_not_analyzed_again_for_what_the_catalog_knows(self, server):
        """The catalog's number of rows counts, also after a restart, of which the keeper's worker has no record."""
        fill(server, 10000)
        server.wait_for(reltuples(), "10000")
        server.stop("fast")
        server.start()
        server.wait_for("SELECT ready FROM gstore_fdw_keeper_info LIMIT 1")
        server.sql("INSERT INTO ft SELECT generate_series(1, 1000)")
        expect_none(server, reltuples(), "10000")
        server.sql("INSERT INTO ft SELECT generate_series(1, 1000)")
        server.wait_for(reltuples(), "2000")


@group("autovacuum_naptime=1s")
class Beside:
    """What others do while a table is analyzed."""

    def writers_get_the_lock_and_the_table_is_analyzed_later(self, server):
        fill(server, 100)
        server.wait_for(reltuples(), "100")
        server.sql(SLOW + "ft")
        server.sql("INSERT INTO ft SELECT generate_series(1, 1000)")
        for text in ("INSERT INTO ft VALUES (0)", "UPDATE ft SET t = t WHERE id = 1", "SELECT FROM ft WHERE id = 1 FOR UPDATE", "ALTER FOREIGN TABLE ft ADD COLUMN c int"):
            server.wait_for(ASLEEP, "1")
            before = server.log().count(CANCELLED)
            server.sql(text)
            expect(server.log().count(CANCELLED), before + 1, "ends of ANALYZE: " + text)
        server.wait_for(ASLEEP, "1")
        server.sql("DROP STATISTICS slow; DROP FUNCTION slow")
        server.wait_for(reltuples(), "1101")

    def readers_wait_for_nothing(self, server):
        fill(server, 10)
        server.sql(SLOW + "ft")
        server.sql("INSERT INTO ft SELECT generate_series(1, 1000)")
        server.wait_for(ASLEEP, "1")
        before = server.log().count(CANCELLED)
        expect(server.sql("SELECT count(*) FROM ft"), "1010", "rows")
        expect(server.log().count(CANCELLED), before, "ends of ANALYZE")
        server.sql("DROP FOREIGN TABLE ft; DROP FUNCTION slow")

    def analyze_does_not_wait_for_a_writer(self, server):
        fill(server, 100)
        server.wait_for(reltuples(), "100")
        writer = server.session()
        # As one message: the next change holds the lock before a process can have begun.
        writer.sql("BEGIN \\; INSERT INTO ft SELECT generate_series(1, 1000) \\; COMMIT AND CHAIN \\; INSERT INTO ft VALUES (0)")
        expect_none(server, reltuples(), "100")
        writer.sql("COMMIT")
        server.wait_for(reltuples(), "1101")

    def tables_databases_and_roles_are_dropped_while_a_table_is_analyzed(self, server):
        fill(server, 1000)
        server.sql(SLOW + "ft")
        for drop in ("TRUNCATE ft", "DROP FOREIGN TABLE ft"):
            server.sql("INSERT INTO ft SELECT generate_series(1, 10000)")
            server.wait_for(ASLEEP, "1")
            server.sql(drop)
        server.sql("DROP FUNCTION slow; CREATE ROLE owner; CREATE SCHEMA AUTHORIZATION owner; GRANT ALL ON FOREIGN SERVER gstore_fdw TO owner")
        server.sql("SET ROLE owner; SET search_path = owner; CREATE FOREIGN TABLE owned (id int) SERVER gstore_fdw; INSERT INTO owned SELECT generate_series(1, 1000);" + SLOW + "owned")
        server.wait_for(ASLEEP, "1")
        server.sql("DROP OWNED BY owner CASCADE; DROP ROLE owner")
        server.sql("CREATE DATABASE first")
        server.sql("CREATE EXTENSION gstore_fdw; CREATE FOREIGN TABLE ft (id int) SERVER gstore_fdw; INSERT INTO ft SELECT generate_series(1, 1000)", database="first")
        server.sql(SLOW + "ft; INSERT INTO ft SELECT generate_series(1, 1000)", database="first")
        for text in ("ALTER DATABASE first RENAME TO second", "CREATE DATABASE third TEMPLATE second", "DROP DATABASE second"):
            server.wait_for(ASLEEP, "1")
            server.sql(text)
        server.sql("DROP DATABASE third")
        server.wait_for(ANALYZER, "0")
        fill(server, 2000)
        server.wait_for(reltuples(), "2000")

    def function_that_does_not_end_holds_up_tables_of_no_other_owner(self, server):
        server.sql("CREATE ROLE endless; CREATE SCHEMA AUTHORIZATION endless; GRANT ALL ON FOREIGN SERVER gstore_fdw TO endless")
        for name in ("first", "second"):
            slow = SLOW if name == "first" else "CREATE STATISTICS other ON (slow(id)) FROM "
            server.sql(f"SET ROLE endless; SET search_path = endless; CREATE FOREIGN TABLE {name} (id int) SERVER gstore_fdw; INSERT INTO {name} SELECT generate_series(1, 1000);" + slow + name)
        server.wait_for(ASLEEP, "1")
        for rows in (1000, 3000):
            fill(server, rows)
            server.wait_for(reltuples(), str(rows))
        expect(server.sql(ASLEEP), "1", "processes at tables of the owner whose function does not end")
        server.sql("DROP OWNED BY endless CASCADE; DROP ROLE endless; DROP FOREIGN TABLE ft")

    def failure_of_one_table_is_logged_and_keeps_no_other_from_being_analyzed(self, server):
        """Functions of the owner run as the owner, who can neither change the role nor be misled by names."""
        server.sql("CREATE ROLE owner; CREATE SCHEMA own AUTHORIZATION owner; GRANT ALL ON FOREIGN SERVER gstore_fdw TO owner")
        server.sql("SET ROLE owner; CREATE FUNCTION own.volatile(what text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE what; RETURN 1; END $$")
        server.sql("SET ROLE owner; CREATE FUNCTION own.f(id int, what text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN own.volatile(what); END $$")
        what = ("RESET ROLE", "CREATE TEMP TABLE t (id int)", "DO 'BEGIN RAISE EXCEPTION ''I am % with path <%>'', current_user, current_setting(''search_path''); END'")
        for number, text in enumerate(what):
            server.sql(f"SET ROLE owner; CREATE FOREIGN TABLE own.t{number} (id int) SERVER gstore_fdw; CREATE STATISTICS own.s{number} ON (own.f(id, $${text}$$)) FROM own.t{number}; INSERT INTO own.t{number} SELECT generate_series(1, 100)")
        fill(server, 1000)
        server.wait_for(reltuples(), "1000")
        for said in ('cannot set parameter "role" within security-restricted operation', "cannot create temporary table within security-restricted operation", "I am owner with path <>"):
            server.wait_log(said)
        expect(server.sql("SELECT count(*) FROM pg_class WHERE relname ~ '^t[0-9]' AND reltuples > 0"), "0", "tables whose ANALYZE failed")
        server.sql("DROP SCHEMA own CASCADE; REVOKE ALL ON FOREIGN SERVER gstore_fdw FROM owner; DROP ROLE owner")


@group("autovacuum_naptime=1s", "wal_level=replica", "max_wal_senders=4", "hot_standby=on")
class Standby:
    def standby_analyzes_nothing_until_it_is_promoted(self, server):
        folder = server.folder / "standby"
        server.run("pg_basebackup", "-D", str(folder), "-R", "-X", "stream", "-c", "fast")
        with private.started(server, folder) as standby:
            fill(server, 1000)
            server.wait_for(reltuples(), "1000")
            standby.wait_for("SELECT coalesce((SELECT reltuples FROM pg_class WHERE relname = 'ft'), 0)", "1000")
            if "analyzer" in (folder / "log").read_text():
                raise Failed("a process of the standby has ended badly")
            server.run("pg_ctl", "-w", "-s", "-D", str(folder), "promote")
            standby.wait_for("SELECT ready FROM gstore_fdw_keeper_info LIMIT 1")
            standby.sql("INSERT INTO ft SELECT generate_series(1, 3000)")
            standby.wait_for(reltuples(), "3000")


if __name__ == "__main__":
    sys.exit(main())
