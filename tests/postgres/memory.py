#!/usr/bin/env python3
"""How much memory tables take, when it goes back, and what is said when there is none: TAP, a line a case.

usage: memory.py [CASE...]. Each case starts from a working server and leaves one, as in crash.py.
"""
import re
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
from cases import count, fill, group, main  # noqa: E402
from private import expect, wait_until  # noqa: E402


@group("gstore_fdw.device_memory=64MB", "gstore_fdw.host_memory=64MB")
class Limits:
    """Memory of 128 MiB in all."""

    TOO_MUCH = "INSERT INTO ft SELECT i, repeat(md5(i::text), 32) FROM generate_series(1, 150000) i"  # 150 MiB
    ENOUGH = "INSERT INTO ft SELECT i, repeat(md5(i::text), 32) FROM generate_series(1, 80000) i"  # 80 MiB: once only

    def loads_that_are_undone_leave_what_the_rows_take(self, server):
        server.sql("DROP FOREIGN TABLE IF EXISTS ft")
        fill(server, 10)
        for undone in (
            f"BEGIN; {self.ENOUGH}; ROLLBACK",
            f"BEGIN; INSERT INTO ft VALUES (11, 'x'); SAVEPOINT s; {self.ENOUGH}; ROLLBACK TO s; DELETE FROM ft WHERE id = 11; COMMIT",
            f"DO $$ BEGIN BEGIN {self.TOO_MUCH}; RAISE 'it fits'; EXCEPTION WHEN out_of_memory THEN NULL; END; END $$",
        ):
            server.sql(undone)
            self._expect_small(server)
        expect(server.error(self.TOO_MUCH), "53200", "SQLSTATE")
        self._expect_small(server)
        server.sql("CREATE FOREIGN TABLE beside (id int, t text) SERVER gstore_fdw; " + self.ENOUGH.replace("ft", "beside"))
        server.sql("DROP FOREIGN TABLE beside")
        self._expect_small(server)
        expect(count(server), 10, "rows")

    def memory_of_an_undone_load_is_there_for_the_next_writer(self, server):
        """Which begins where the other one did, whether the memory went back in between or not."""
        fill(server, 10)
        for i in range(20):
            server.sql("BEGIN; INSERT INTO ft SELECT i, repeat('a', 1000) FROM generate_series(1, 10000) i; ROLLBACK")
            server.sql(f"INSERT INTO ft SELECT i, 'b' || i FROM generate_series(1, {i}) i")
        expect(server.sql("SELECT count(*), count(*) FILTER (WHERE t LIKE 'a%') FROM ft"), "200|0", "rows")
        server.sql("DROP FOREIGN TABLE ft")

    def out_of_memory_names_the_table_what_it_needs_and_the_settings(self, server):
        fill(server, 10)
        said = server.sql(
            f"DO $$ DECLARE m text; d text; h text; BEGIN {self.TOO_MUCH}; EXCEPTION WHEN out_of_memory THEN"
            " GET STACKED DIAGNOSTICS m = MESSAGE_TEXT, d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT;"
            " PERFORM set_config('test.said', concat_ws('|', m, d, h), false); END $$; SELECT current_setting('test.said')"
        )
        message, detail, hint = said.split("|")
        expect(message, 'out of GPU memory for table "ft"', "message")
        expect(bool(re.match(r'Column "t" needs \d{5,6} KiB in one piece: .*\. GPU 0 has a budget of 64 MiB, .*there are 64 MiB in host memory', detail)), True, f"in {detail!r}: what was wanted, and what there is")
        used = re.search(r"of which tables use (\d+); .* of which (\d+) are used", detail)
        expect(bool(used) and int(used[1]) + int(used[2]) > 70, True, f"in {detail!r}: what the load had taken by then")
        expect("gstore_fdw.device_memory" in hint and "gstore_fdw.host_memory" in hint, True, f"in {hint!r}: settings")

    def memory_ahead_of_need_goes_before_anybody_is_refused(self, server):
        server.sql("DROP FOREIGN TABLE IF EXISTS ft, ahead")
        server.sql("CREATE FOREIGN TABLE ahead (t text) SERVER gstore_fdw")
        server.sql("INSERT INTO ahead SELECT repeat(md5(i::text), 32) FROM generate_series(1, 34000) i")  # 34 MiB and some
        committed = "SELECT committed >> 20 FROM gstore_fdw_chunk_info WHERE table_oid = 'ahead'::regclass"
        server.wait_for(f"SELECT ({committed}) >= 40", "t")
        fill(server, 10)
        expect(server.error(self.TOO_MUCH), "53200", "SQLSTATE")
        server.wait_for(committed, "38")  # 34 of texts, 2 of offsets, 2 of the pack
        server.sql("DROP FOREIGN TABLE ahead")

    def deleted_rows_are_left_out_where_there_is_no_memory_for_their_bitmap(self, server):
        server.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int) SERVER gstore_fdw; CREATE FOREIGN TABLE rest (id int8) SERVER gstore_fdw")
        server.sql("INSERT INTO ft SELECT generate_series(1, 600000)")
        server.sql(
            "DO $$ BEGIN LOOP BEGIN INSERT INTO rest SELECT generate_series(1, 250000);"
            " EXCEPTION WHEN out_of_memory THEN EXIT; END; END LOOP; END $$"
        )
        plan = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) "
        deleted = server.sql("SET gstore_fdw.gpu_startup_cost = 0; SET gstore_fdw.gpu_instruction_cost = 0; " + plan + "DELETE FROM ft WHERE id % 3 = 0")
        expect("Ran: by the scan: neither the device budget nor the host budget has room" in deleted, True, f"in {deleted}: no memory for the GPU's token is no error")
        moved = "SET gstore_fdw.gpu_queries = off; " + plan + "SELECT count(*) FROM ft"
        expect("Bytes Moved: 0" in server.sql(moved), True, "deleted rows come from the directory")
        expect(server.sql("SELECT count(*), count(*) FILTER (WHERE id % 3 = 0) FROM ft"), "400000|0", "rows")
        server.sql("DROP FOREIGN TABLE rest")
        wait_until("a bitmap is read once there is memory", lambda: "Bytes Moved: 75000" in server.sql(moved))
        expect(count(server), 400000, "rows")
        server.sql("DROP FOREIGN TABLE ft")

    def dropped_columns_give_memory_back_at_compaction(self, server):
        """Also when rows came in between: those have nothing of the column, but the others' is there."""
        objects = "SELECT sum(objects) FROM gstore_fdw_keeper_info"
        for more in ("SELECT", "INSERT INTO ft VALUES (11)", "DELETE FROM ft WHERE id = 1; INSERT INTO ft VALUES (12)"):
            fill(server, 30000)  # each area has an object of its own
            server.wait_for(objects, "3")
            server.sql("ALTER FOREIGN TABLE ft DROP COLUMN t")
            server.sql(more)
            server.sql("BEGIN; INSERT INTO ft VALUES (13); ROLLBACK")
            server.sql("SELECT gstore_fdw_compact('ft')")
            server.wait_for(objects, "1")
            revision = "SELECT revision FROM gstore_fdw_chunk_info WHERE table_oid = 'ft'::regclass"
            before = server.sql(revision)
            server.sql("SELECT gstore_fdw_compact('ft')")
            expect(server.sql(revision), before, "revision after a compaction that has nothing to do")
        server.sql("DROP FOREIGN TABLE ft")

    def exports_keep_no_more_than_their_tokens_need(self, server):
        """One that fails, and one whose token has ended: columns share chunks again."""
        objects = "SELECT sum(objects) FROM gstore_fdw_keeper_info"
        server.sql("DROP FOREIGN TABLE IF EXISTS ft")
        server.wait_for(objects, "0")
        for columns, fits in ((100, False), (10, True)):
            server.sql("CREATE FOREIGN TABLE wide (" + ", ".join(f"c{i} int" for i in range(columns)) + ") SERVER gstore_fdw")
            server.sql("INSERT INTO wide VALUES (" + ", ".join(str(i) for i in range(columns)) + ")")
            if fits:
                server.sql("SELECT gstore_export('wide')")
                expect(server.sql("SELECT gstore_revoke_all('wide')"), "1", "tokens")
            else:
                expect(server.error("SELECT gstore_export('wide')"), "53200", "SQLSTATE")
            server.wait_for(objects, "2" if fits else "1")  # what columns share, and the manifests; none is made for what does not fit
            expect(server.sql(f"SELECT c0, c{columns - 1} FROM wide"), f"0|{columns - 1}", "values")
            server.sql("DROP FOREIGN TABLE wide")
            server.wait_for(objects, "0")

    def _expect_small(self, server):
        """The keeper has one chunk for each of the columns' areas."""
        server.wait_for(f"SELECT sum(device_resident + device_on_host) = sum(objects) * {2 << 20} FROM gstore_fdw_keeper_info", "t")


@group("gstore_fdw.device_memory=1GB", "gstore_fdw.host_memory=64MB", "gstore_fdw.max_relations=512")
class Packs:
    COLUMNS = "(i int, f float8, t text, n numeric, b boolean)"
    TABLES = 400

    def tables_of_one_row_take_one_chunk_each(self, server):
        tables = range(self.TABLES)
        server.sql("".join(f"CREATE FOREIGN TABLE small{i} {self.COLUMNS} SERVER gstore_fdw OPTIONS (format '{'arrow' if i % 2 else 'pgstrom'}');" for i in tables))
        server.sql("".join(f"INSERT INTO small{i} VALUES ({i}, {i}.5, 'row {i}', {i}, NULL);" for i in tables))
        said = server.sql("".join(f"SELECT i, f, t, n, b IS NULL FROM small{i};" for i in tables)).splitlines()
        expect(said, [f"{i}|{i}.5|row {i}|{i}|t" for i in tables], "rows")
        server.wait_for("SELECT sum(device_resident), sum(objects) FROM gstore_fdw_keeper_info", f"{self.TABLES * (2 << 20)}|{self.TABLES}")
        server.sql("".join(f"DROP FOREIGN TABLE small{i};" for i in tables))

    def tables_that_outgrow_their_rooms_keep_their_rows(self, server):
        """Area by area: texts first, then numbers, then bits; and back when a load is undone."""
        server.sql(f"CREATE FOREIGN TABLE ft {self.COLUMNS} SERVER gstore_fdw; CREATE TABLE heap {self.COLUMNS}")
        for last in range(0, 40000, 2000):
            rows = f"SELECT i, nullif(i % 7, 0), repeat('t', i % 90), i * 1.5, i % 3 = 0 FROM generate_series({last} + 1, {last} + 2000) i"
            server.sql(f"BEGIN; INSERT INTO ft {rows.replace('2000', '90000')}; ROLLBACK; INSERT INTO ft {rows}; INSERT INTO heap {rows}")
            differ = "(TABLE ft EXCEPT ALL TABLE heap) UNION ALL (TABLE heap EXCEPT ALL TABLE ft)"
            expect(server.sql(f"SELECT count(*) FROM ft; SELECT count(*) FROM ({differ}) d"), f"{last + 2000}\n0", "rows, and rows that differ")
        server.sql("DROP TABLE heap; DROP FOREIGN TABLE ft")

    def table_of_many_columns_shares_chunks(self, server):
        server.sql("CREATE FOREIGN TABLE wide (" + ", ".join(f"c{i} int" for i in range(1200)) + ") SERVER gstore_fdw")
        server.sql("INSERT INTO wide VALUES (" + ", ".join(str(i) for i in range(1200)) + ")")
        server.wait_for("SELECT sum(objects), sum(device_resident)::bigint >> 20 FROM gstore_fdw_keeper_info", "1|76")  # 32 in a chunk
        expect(server.sql("SELECT c0, c999, c1000, c1199 FROM wide"), "0|999|1000|1199", "values")
        server.sql("DROP FOREIGN TABLE wide")


@group("gstore_fdw.device_memory=1GB")
class Growth:
    ROWS = "INSERT INTO ft SELECT i, repeat(md5(i::text), 256) FROM generate_series(1, {}) i"  # of 8 KiB
    TAKEN = "SELECT sum(device_resident + device_on_host) FROM gstore_fdw_keeper_info"

    def loaded_table_takes_an_eighth_more_than_its_rows_at_most(self, server):
        fill(server, 0)
        for rows in (4500, 8700, 16700, 33000, 36000):  # a little more than a power of two, also where chunks become large
            server.sql("TRUNCATE ft")
            server.sql(self.ROWS.format(rows))
            need = int(server.sql("SELECT gstore_fdw_rawsize('ft')"))
            # An area has one chunk more at most: of 2 MiB, or from 256 MiB on of 32 MiB.
            most = need + need // 8 + 2 * (2 << 20) + (32 << 20 if need >= 256 << 20 else 2 << 20)
            server.wait_for(f"SELECT sum(device_resident) BETWEEN {need} AND {most} FROM gstore_fdw_keeper_info", "t")

    def stores_that_a_transaction_has_replaced_go_before_its_end(self, server):
        fill(server, 0)
        for statement in (
            f"TRUNCATE ft; {self.ROWS.format(4000)}",
            f"BEGIN TRUNCATE ft; {self.ROWS.format(4000)}; EXCEPTION WHEN division_by_zero THEN NULL; END",
            f"BEGIN TRUNCATE ft; {self.ROWS.format(4000)}; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END",
        ):
            session = server.session()
            session.sql(f"BEGIN; {self.ROWS.format(10)}; DO $$ BEGIN FOR n IN 1 .. 10 LOOP {statement}; END LOOP; END $$")
            server.wait_for(f"SELECT sum(device_resident) < {110 << 20} FROM gstore_fdw_keeper_info")  # of the state before and of the last one
            expect(session.sql("SELECT count(*) >= 10, count(*) = count(t) FROM ft"), "t|t", "rows")
            session.sql("ROLLBACK")
            session.close()
        expect(count(server), 0, "rows")

    def stores_of_statements_that_have_failed_in_blocks_go_with_these(self, server):
        """One for the rows of a file, each time; the transaction's own rows stay."""
        rows = Path(__file__).resolve().parent / "arrow_files/rows.arrow"
        server.sql("CREATE FOREIGN TABLE checked (id int CHECK (id < 3), name text, price float8, day date, tags smallint[]) SERVER gstore_fdw")
        server.sql("INSERT INTO checked VALUES (1)")
        taken = int(server.sql(self.TAKEN))
        session = server.session()
        session.sql("BEGIN; INSERT INTO checked VALUES (2)")
        load = f"BEGIN PERFORM gstore_load_file('checked', '{rows}'); RAISE 'it fits'; EXCEPTION WHEN check_violation THEN NULL; END"
        session.sql(f"DO $$ BEGIN FOR n IN 1 .. 30 LOOP {load}; END LOOP; END $$")
        time.sleep(1)  # memory is counted a little later
        server.wait_for(f"SELECT ({self.TAKEN}) <= {taken + (10 << 20)}")
        expect(session.sql("SELECT id FROM checked; ROLLBACK"), "1\n2", "rows")
        session.close()
        server.sql("DROP FOREIGN TABLE checked")

    def column_of_an_undone_load_has_small_chunks_again(self, server):
        fill(server, 0)
        server.sql("TRUNCATE ft; INSERT INTO ft VALUES (1, 'one')")
        server.sql(f"BEGIN; {self.ROWS.format(36000)}; ROLLBACK")
        server.wait_for(self.TAKEN, str(2 << 20))
        server.sql("INSERT INTO ft VALUES (2, 'two')")
        expect(server.sql("SELECT id, t FROM ft ORDER BY id"), "1|one\n2|two", "rows")
        server.sql("DROP FOREIGN TABLE ft")


if __name__ == "__main__":
    sys.exit(main())
