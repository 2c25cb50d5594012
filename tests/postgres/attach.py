#!/usr/bin/env python3
"""Tables in GPU memory, attached by token from other processes: TAP, a line a case.

usage: attach.py [CASE...]. What gvmem table shows is compared with SQL; attach_probe.c stays attached while the table changes.
"""
import os
import random
import signal
import subprocess
import sys
import time
import traceback

import private
import uniform
from attached import (
    OTHER_USER, Probe, expect_same, expect_same_revision, export, fill, links, object_names, objects, other_user, show, spying, tool,
)
from private import BUILD, Failed, Server, SqlError, expect

HOSTILE = 300
STALE = "GVM_E_ABSENT"

TYPES = """
CREATE DOMAIN positive AS int CHECK (value > 0);
CREATE FOREIGN TABLE types (id int, b bool, i2 smallint, i8 bigint, f4 float4, f8 float8, n numeric, n2 numeric(12,3),
    t text, v varchar(10), c char(6), by bytea, d date, ts timestamp, tz timestamptz, tm time, u uuid, j json, ai int[],
    at text[], an numeric[], am int[][], nm name, ch "char", o oid, dm positive, tp text OPTIONS (compression 'pglz'))
    SERVER gstore_fdw;
INSERT INTO types SELECT i, i % 2 = 0, (i * 37 % 65536 - 32768)::smallint, i::bigint * 123456789012,
    (random() * 10 ^ (i % 30 - 15))::float4 * (CASE WHEN i % 2 = 0 THEN 1 ELSE -1 END), random() * 10 ^ (i % 600 - 300),
    random()::numeric * 10 ^ (i % 40 - 20) * (CASE WHEN i % 3 = 0 THEN -1 ELSE 1 END), (random() * 1000)::numeric(12,3),
    CASE WHEN i % 5 = 0 THEN NULL WHEN i % 7 = 0 THEN '' ELSE repeat('\u00e9"\\' || i || E'\\t\\n', i % 20) END,
    left('abc' || i, 10), 'x' || i % 100, decode(md5(i::text), 'hex'), date '0001-01-01' - 400 + i * 997,
    timestamp '2000-01-01' + (i - 500) * interval '37 days 5:06:07.123456',
    timestamptz '1999-12-31 23:59:59.5+00' + i * interval '1.000001 s', time '00:00' + i * interval '3.21 s',
    md5(i::text)::uuid, json_build_object('a', i),
    CASE WHEN i % 4 = 0 THEN '{}' WHEN i % 4 = 1 THEN ARRAY[i, NULL, -i] ELSE ARRAY[i] END,
    ARRAY['a', 'NULL', NULL, '', 'q"\\', ',x y'], ARRAY[1.5, NULL, i::numeric / 7], ARRAY[[1, 2], [3, i]], 'nm' || i,
    chr(65 + i % 26)::"char", i, i, repeat('abcabc ' || i % 10, i) FROM generate_series(1, 1500) i;
INSERT INTO types (id, f8, f4, n, d, ts) VALUES (2001, 'nan', 'inf', 'nan', 'infinity', '-infinity'),
    (2002, '-inf', '-0', 'inf', NULL, 'infinity'), (2003, 1e15, 1e6, 0, '2024-02-29', NULL),
    (2004, 123456789012345, 999999, -0.00001, NULL, NULL), (2005, 1e-5, 1e-4, 1e30, NULL, NULL),
    (2006, 5e-324, 1.17549e-38, '0.000', NULL, NULL), (2007, 1.7976931348623157e308, 3.4028235e38, '-inf', NULL, NULL);
INSERT INTO types (id, ai) VALUES (2008, '[2:4]={1,2,3}'), (2009, '[0:1][-1:0]={{1,2},{3,4}}');
"""


class Reading:
    settings = ()

    def shown_values_of_every_common_type_are_those_of_sql(self, s):
        s.sql(TYPES)
        expect_same(s, "types")

    def shown_values_of_one_length_are_those_of_sql(self, s):
        for table_format in ("pgstrom", "arrow"):
            uniform.make(s, table_format, 1003)
            expect_same(s, "uniform")
            shown = {column["name"]: column for column in show(s, export(s, "uniform"))["columns"]}
            uniform.check_sizes(shown, 1003)
            expect([shown["n4"]["precision"], shown["n4"]["scale"], shown["r"]["length"], shown["b9"]["length"]], ["5", "-3", "3", "9"], "precision, scale, lengths")
            s.sql("DELETE FROM uniform WHERE id % 3 = 1; ALTER FOREIGN TABLE uniform ADD late numeric(9,1), ADD later bit(3)")
            expect_same(s, "uniform")
        s.sql("DROP FOREIGN TABLE uniform")

    def columns_are_described_as_sql_writes_them(self, s):
        done = tool(s, "-n", "0", "-c", "n2,ai,t", export(s, "types"))
        words = [line.split()[:2] for line in done.stdout.splitlines() if line.split()[:1] in (["n2"], ["ai"], ["t"])]
        expect(words, [["n2", "numeric(12,3)"], ["ai", "integer[]"], ["t", "text"]], "columns")

    def table_without_rows_has_no_token(self, s):
        s.sql("CREATE FOREIGN TABLE empty (id int) SERVER gstore_fdw")
        expect(export(s, "empty"), "", "token")

    def token_of_a_revision_is_made_once(self, s):
        fill(s)
        first = export(s)
        expect(export(s), first, "token")
        s.sql("INSERT INTO ft VALUES (0)")
        if export(s) == first:
            raise Failed("another revision has the same token")

    def token_of_a_transaction_that_is_rolled_back_ends(self, s):
        fill(s)
        lost = s.sql("BEGIN; SELECT gstore_export('ft'); ROLLBACK").splitlines()[-1]
        self.wait_stale(s, lost)
        token = s.sql("BEGIN; SAVEPOINT a; SELECT gstore_export('ft'); ROLLBACK TO a; SAVEPOINT b; SELECT gstore_export('ft'); RELEASE b; COMMIT").splitlines()
        self.wait_stale(s, token[0])
        expect(self.is_attached(s, token[1]), "true", "that of the savepoint that was released")
        expect(s.sql("BEGIN; SELECT gstore_export('ft'); ROLLBACK"), token[1], "a token that was there before")
        expect(self.is_attached(s, token[1]), "true", "and that is there after the rollback")

    def token_that_another_session_has_outlives_a_rollback(self, s):
        fill(s)
        s.sql("DROP FOREIGN TABLE IF EXISTS other; CREATE FOREIGN TABLE other (id int) SERVER gstore_fdw; INSERT INTO other VALUES (1)")
        maker = s.session()
        both, own = maker.sql("BEGIN; SELECT gstore_export('ft'), gstore_export('other')").split("|")
        expect(export(s), both, "the token that another session makes")
        maker.sql("ROLLBACK")
        self.wait_stale(s, own)
        expect(self.is_attached(s, both), "true", "the one that two sessions had")
        s.sql("SELECT gstore_revoke_all('ft')")
        token = maker.sql("BEGIN; SAVEPOINT a; SELECT gstore_export('ft')")
        maker.sql("RELEASE a; ROLLBACK")
        self.wait_stale(s, token)
        s.sql("DROP FOREIGN TABLE other")

    def token_asked_for_by_many_at_once_is_the_same(self, s):
        fill(s)
        sessions = [s.session() for _ in range(6)]
        for session in sessions:
            session.begin("SELECT gstore_export('ft')")
        tokens = {session.finish() for session in sessions}
        for session in sessions:
            session.close()
        expect(len(tokens), 1, "tokens")
        expect_same(s, "ft", tokens.pop())

    def revisions_exported_among_writes_are_whole(self, s):
        fill(s, 1)
        writer = s.session()
        writer.begin(
            "DO $$ BEGIN FOR i IN 1..300 LOOP INSERT INTO ft SELECT 1 + (i - 1) * 50 + j, 'row ' || j"
            " FROM generate_series(1, 50) j; COMMIT; END LOOP; END $$"
        )
        seen = set()
        while len(seen) < 300 and "15001" not in seen:
            shown = show(s, export(s))
            seen.add(shown["row_count"])
            expect([int(row["id"]) for row in shown["rows"]], list(range(1, int(shown["row_count"]) + 1)), "ids")
            expect(int(shown["row_count"]) % 50, 1, "rows of a whole transaction")
        writer.finish()
        writer.close()

    def export_cancelled_is_made_again(self, s):
        fill(s, 300000)
        for ms in (1, 5, 20, 60, 150):
            s.sql("DELETE FROM ft WHERE id IN (SELECT min(id) FROM ft)")
            try:
                s.sql(f"SET statement_timeout = {ms}; SELECT gstore_export('ft')")
            except SqlError as error:
                expect(str(error), "57014", "SQLSTATE")
        expect(show(s, export(s))["row_count"], "299995", "rows")

    def tool_says_what_is_wrong(self, s):
        fill(s)
        token = export(s)
        for wanted, arguments in (
            (0, ["-n", "1", token]), (0, ["--help"]), (1, ["gstore3:"]), (1, ["gstore2" + token[7:]]), (1, ["-c", "nothing", token]), (1, ["-c", "id,id", token]),
            (2, []), (2, [token, "more"]), (2, ["-n", "-1", token]), (2, ["--nonsense", token]),
        ):
            done = tool(s, *arguments)
            expect(done.returncode, wanted, f"exit status of {arguments}")
            expect(bool(done.stderr), wanted > 0, f"words about {arguments}")

    def tool_on_another_software_gpu_says_which_setting_differs(self, s):
        if s.sql("SELECT bool_or(software) FROM gstore_fdw_keeper_info") != "t":
            return "needs the software GPU"
        fill(s)
        environ = {**s.environ, "GVMEM_SOFTGPU": "instance=elsewhere"}
        done = subprocess.run([str(BUILD / "tools/gvmem"), "table", export(s)], env=environ, capture_output=True, text=True)
        expect(done.returncode, 1, "exit status")
        wanted = 'none of the software GPUs here: set GVMEM_SOFTGPU, with instance=, as for the keeper (here "instance=elsewhere")'
        expect(wanted in done.stderr, True, done.stderr)

    def rows_and_nulls_appended_later_change_nothing_attached(self, s):
        fill(s, 10003)
        token = export(s)
        probe = Probe(s)
        expect(probe.ask("attach", token), "10003 3", "rows and columns")
        before = [probe.ask("sum", name) for name in ("id", "t", "f")]
        expect_same(s, "ft", token)
        shown = show(s, token)
        s.sql("INSERT INTO ft SELECT NULL, 'more', NULL FROM generate_series(1, 50000)")
        expect([probe.ask("sum", name) for name in ("id", "t", "f")], before, "checksums")
        expect(show(s, token)["rows"], shown["rows"], "rows")
        expect(show(s, export(s))["row_count"], "60003", "rows of the new token")
        probe.close()

    def column_that_moves_to_larger_chunks_stays_what_was_attached(self, s):
        s.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int, n name) SERVER gstore_fdw")
        s.sql("INSERT INTO ft SELECT i, 'row ' || i FROM generate_series(1, 3000) i")
        token = export(s)
        early, late = Probe(s), Probe(s)
        expect(early.ask("attach", token), "3000 2", "rows and columns")
        before = early.ask("sum", "n")
        path = s.sql("SELECT 'ft'::regclass::oid")
        expect(self.chunk_sizes(s, path), [2 << 20, 2 << 20], "chunk sizes")
        s.sql("INSERT INTO ft SELECT i, 'row ' || i FROM generate_series(3001, 4300000) i")  # 64 bytes each
        expect(self.chunk_sizes(s, path), [2 << 20, 32 << 20], "chunk sizes")
        expect(early.ask("sum", "n"), before, "checksum of what was attached")
        expect(late.ask("attach", token), "3000 2", "rows and columns by the old token")
        expect(late.ask("sum", "n"), before, "checksum by the old token")
        expect(s.sql("SELECT count(*), sum((n = 'row ' || id)::int) FROM ft"), "4300000|4300000", "rows, and right ones")
        expect(show(s, token)["rows"][2999]["n"], "row 3000", "the last row of the old token")
        s.sql("DROP FOREIGN TABLE ft")
        self.wait_stale(s, token)
        expect([early.ask("sum", "n"), late.ask("sum", "n")], [before, before], "checksums after the table")
        early.close()
        late.close()
        private.wait_until("no objects are left after the last reader", lambda: not self.chunk_sizes(s, path))

    def column_that_is_packed_has_an_object_of_its_own_from_its_first_export_on(self, s):
        """And does not go back, also if a load is undone; a column that comes later is packed until the next export."""
        s.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int, n name) SERVER gstore_fdw")
        path = s.sql("SELECT 'ft'::regclass::oid")
        s.sql("INSERT INTO ft SELECT i, 'row ' || i FROM generate_series(1, 100) i")
        expect(self.chunk_sizes(s, path), [], "objects of single columns")
        token = export(s)
        expect(self.chunk_sizes(s, path), [2 << 20, 2 << 20], "chunk sizes")
        probes = early, late, last = [Probe(s) for _ in range(3)]
        expect(early.ask("attach", token), "100 2", "rows and columns")
        sums = [early.ask("sum", "id"), early.ask("sum", "n")]
        s.sql("BEGIN; INSERT INTO ft SELECT i, 'none ' || i FROM generate_series(1, 100000) i; ROLLBACK")
        s.wait_for("SELECT committed >> 20 FROM gstore_fdw_chunk_info WHERE table_oid = 'ft'::regclass", "8")  # pack and manifest, too
        expect(self.chunk_sizes(s, path), [2 << 20, 2 << 20], "chunk sizes")
        s.sql("ALTER FOREIGN TABLE ft ADD COLUMN more int; INSERT INTO ft SELECT i, 'row ' || i, i FROM generate_series(101, 200) i")
        expect(self.chunk_sizes(s, path), [2 << 20, 2 << 20], "chunk sizes")
        expect(late.ask("attach", token), "100 2", "rows and columns by the old token")
        for probe in (early, late):
            expect([probe.ask("sum", "id"), probe.ask("sum", "n")], sums, "checksums by the old token")
        expect(last.ask("attach", export(s)), "200 3", "rows and columns by a new token")
        expect(self.chunk_sizes(s, path), [2 << 20] * 3, "chunk sizes")
        expect(s.sql("SELECT count(*), sum((n = 'row ' || id)::int), sum(more) FROM ft"), "200|200|15050", "rows, and right ones")
        expect_same(s, "ft")
        s.sql("DROP FOREIGN TABLE ft")
        for probe in probes:
            probe.close()

    def export_cancelled_while_columns_move_keeps_rows_and_no_memory(self, s):
        """Columns move 16 at a time: a cancel may come between. What has moved goes back once nobody uses it."""
        columns = ["id"] + [f"c{i}" for i in range(1, 80)]
        s.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (" + ", ".join(f"{c} int" for c in columns) + ") SERVER gstore_fdw")
        s.sql("INSERT INTO ft SELECT " + ", ".join(f"i + {i}" for i in range(80)) + " FROM generate_series(1, 100) i")
        path = s.sql("SELECT 'ft'::regclass::oid")
        for ms in [5, 10, 20, 30, 40, 60, 80, 100] * 2:
            try:
                s.sql(f"SET statement_timeout = {ms}; SELECT gstore_export('ft')")
                break
            except SqlError as error:
                expect(str(error), "57014", "the end of an export")
            expect(s.sql("SELECT count(*), sum(id), sum(c40), sum(c79) FROM ft"), "100|5050|9050|12950", "rows")
            deadline = time.monotonic() + 30
            while (left := len(self.chunk_sizes(s, path))) > 0:
                if time.monotonic() > deadline:
                    raise Failed(f"{left} columns have not moved back")
                time.sleep(0.05)
        expect_same(s, "ft")
        s.sql("SELECT gstore_revoke_all('ft'); DROP FOREIGN TABLE ft")

    def first_exports_beside_readers_and_a_writer_are_whole(self, s):
        """Columns leave their pack while commands use them."""
        tables = [f"small{i}" for i in range(12)]
        s.sql("".join(f"CREATE FOREIGN TABLE {t} (id int, t text, f float8, n numeric) SERVER gstore_fdw;" for t in tables))
        s.sql("".join(f"INSERT INTO {t} VALUES (0, 'row 0', 0, 0);" for t in tables))
        reads = "".join(f"PERFORM count(t), sum(f), sum(n) FROM {t};" for t in tables)
        writes = "".join(f"INSERT INTO {t} VALUES (i, 'row ' || i, i, nullif(i % 5, 0)); COMMIT;" for t in tables)
        sessions = [s.session() for _ in range(3)]
        for session, work in zip(sessions, (reads, reads, writes)):
            session.begin(f"DO $$ BEGIN FOR i IN 1..400 LOOP {work} END LOOP; END $$")
        for t in tables:
            expect_same_revision(s, t)
        for session in sessions:
            session.finish()
            session.close()
        for t in tables:
            expect_same(s, t)
            expect(s.sql(f"SELECT count(*), sum((t = 'row ' || id)::int), sum(f) FROM {t}"), "401|401|80200", "rows, and right ones")
        s.sql("".join(f"DROP FOREIGN TABLE {t};" for t in tables))

    @staticmethod
    def chunk_sizes(s, relation):
        columns = [o for o in objects(s) if f"/{relation}/" in o["name"] and o["name"].endswith(".values")]
        return [o["chunk_bytes"] for o in sorted(columns, key=lambda o: o["name"])]

    def insert_waits_for_no_lease_of_a_reader(self, s):
        fill(s)
        probe = Probe(s)
        probe.ask("attach", export(s))
        expect(probe.ask("take", "id"), "GVM_OK", "lease")
        s.sql("SET statement_timeout = '10s'; INSERT INTO ft SELECT i FROM generate_series(1, 100000) i")
        expect(probe.ask("give"), "GVM_OK", "release")
        expect(probe.ask("give"), "GVM_E_INVALID", "a second release")
        probe.close()

    def deleted_and_updated_rows_are_left_out_by_rewriting(self, s):
        fill(s)
        s.sql("DELETE FROM ft WHERE id % 3 = 0")
        s.sql("UPDATE ft SET t = 'changed' WHERE id % 7 = 0")
        expect_same(s, "ft")

    def columns_dropped_and_added_are_as_in_sql(self, s):
        fill(s)
        s.sql("ALTER FOREIGN TABLE ft DROP COLUMN t, ADD COLUMN n int, ADD COLUMN d int DEFAULT 7")
        s.sql("INSERT INTO ft VALUES (-1, 1, 2, 3)")
        expect_same(s, "ft")

    def own_uncommitted_changes_are_not_exported(self, s):
        fill(s)
        expect(s.error("BEGIN; INSERT INTO ft VALUES (1); SELECT gstore_export('ft')"), "55000", "SQLSTATE")

    def token_of_a_compaction_that_was_rolled_back_is_stale(self, s):
        fill(s)
        s.sql("DELETE FROM ft WHERE id < 10")
        token = s.sql("BEGIN; SELECT gstore_export('ft'); ROLLBACK")
        probe = Probe(s)
        self.wait_stale(s, token)
        expect(probe.ask("attach", token), STALE, "attach")
        expect_same(s, "ft")
        probe.close()

    @staticmethod
    def is_attached(s, token):
        return "false" if tool(s, "-n", "0", token).returncode else "true"

    def wait_stale(self, s, token):
        deadline = time.monotonic() + 60
        while self.is_attached(s, token) == "true":
            if time.monotonic() > deadline:
                raise Failed("the token is good still")
            time.sleep(0.05)

    def attached_columns_outlive_truncate_drop_and_rewrite(self, s):
        for change in ("TRUNCATE ft", "DROP FOREIGN TABLE ft", "DELETE FROM ft WHERE id = 1; SELECT gstore_fdw_compact('ft')"):
            fill(s)
            token = export(s)
            some, whole = Probe(s), Probe(s)
            some.ask("attach", token)
            whole.ask("whole", token)
            sums = {name: whole.ask("sum", name) for name in ("id", "t", "f")}
            expect(some.ask("open", "id"), "GVM_OK", "open")
            s.sql(change)
            self.wait_stale(s, token)
            expect(some.ask("sum", "id"), sums["id"], f"opened column after {change}")
            expect(some.ask("sum", "f"), STALE, f"other column after {change}")
            expect({name: whole.ask("sum", name) for name in sums}, sums, f"whole table after {change}")
            some.close()
            whole.close()

    def killed_reader_leaves_nothing_under_its_lease(self, s):
        fill(s)
        probe = Probe(s)
        probe.ask("attach", export(s))
        expect(probe.ask("take", "id"), "GVM_OK", "lease")
        probe.process.send_signal(signal.SIGKILL)
        probe.process.wait()
        s.sql("SET statement_timeout = '20s'; INSERT INTO ft VALUES (1); TRUNCATE ft; INSERT INTO ft VALUES (2)")
        expect(s.sql("SELECT id FROM ft"), "2", "rows")

    def memory_is_free_when_the_last_reader_detaches(self, s):
        fill(s)
        probe = Probe(s)
        probe.ask("whole", export(s))
        s.sql("DROP FOREIGN TABLE IF EXISTS ft, types, wide")
        objects = "SELECT max(objects) FROM gstore_fdw_keeper_info"
        s.wait_for(objects.replace("max(objects)", "max(objects) BETWEEN 1 AND 6"))
        expect(probe.ask("detach"), "GVM_OK", "detach")
        s.wait_for(objects, "0")
        probe.close()

    def tokens_of_a_wide_table_wear_out_and_never_lie(self, s):
        columns = ", ".join(f"column_of_a_long_name_{i:04}_{'x' * 38} int" for i in range(400))
        s.sql(f"CREATE FOREIGN TABLE wide (id int, {columns}) SERVER gstore_fdw")
        tokens = []
        for i in range(110):
            s.sql(f"INSERT INTO wide (id) VALUES ({i})")
            tokens.append(export(s, "wide"))
        good = [i for i in range(110) if self.is_attached(s, tokens[i]) == "true"]
        if not good or good[0] == 0 or good[-1] != 109:
            raise Failed(f"tokens that are good: {good}")
        for i in (good[0], good[-1]):
            expect(show(s, tokens[i])["row_count"], str(i + 1), f"rows of token {i}")
        s.sql("DROP FOREIGN TABLE wide")

    def hostile_tokens_are_refused(self, s):
        fill(s)
        token = export(s)
        seed = int(os.environ.get("SEED", time.time_ns() % 1000000))
        chance = random.Random(seed)
        print(f"# SEED={seed}")
        fields = token.split(":")
        fixed = ["", "gstore", "gstore3:", "gstore2:" + token[8:], token + "x", token[1:], token.replace("gstore3", "gstore03")]
        fixed += [":".join(fields[:i] + [bad] + fields[i + 1 :]) for i in range(1, len(fields)) for bad in ("", "-1", "99999999999999999999", "/", "a" * 600)]
        probe = Probe(s)
        for hostile in fixed:
            if hostile == "":
                continue
            said = probe.ask("attach", hostile)
            if said in ("10000 3", "GVM_E_SYSTEM") and hostile.replace("gstore03", "gstore3") != token:
                raise Failed(f"{hostile!r}: {said}")
            if said == "10000 3":
                probe.ask("detach")
        for _ in range(HOSTILE):
            text = list(token)
            for _ in range(chance.randint(1, 4)):
                text[chance.randrange(len(text))] = chr(chance.randint(33, 126))
            said = probe.ask("attach", "".join(text))
            if not said.startswith("GVM_E_"):
                probe.ask("detach")
        expect(probe.ask("attach", token), "10000 3", "the true token")
        probe.close()

    def privileges_and_wrong_tables_are_refused(self, s):
        fill(s)
        s.sql("CREATE ROLE reader; CREATE ROLE stranger; GRANT SELECT ON ft TO reader")
        expect(s.error("SET ROLE stranger; SELECT gstore_export('ft')"), "42501", "without SELECT")
        expect(s.sql("SET ROLE reader; SELECT gstore_export('ft') IS NOT NULL"), "t", "with SELECT")
        s.sql("DELETE FROM ft WHERE id = 1")
        expect(s.error("SET ROLE reader; SELECT gstore_export('ft')"), "55000", "rewriting is the owner's")
        expect(s.error("BEGIN READ ONLY; SELECT gstore_export('ft')"), "25006", "rewriting in READ ONLY")
        expect(s.error("SELECT gstore_export('pg_class')"), "42809", "a table of no wrapper")
        expect(s.error("SELECT gstore_export(1::oid)"), "42P01", "an OID of nothing")

    def another_user_is_refused(self, s):
        if os.getuid() != 0:
            return "needs root"
        fill(s)
        said = other_user(s).ask("attach", export(s))
        if said not in ("GVM_E_DENIED", "GVM_E_PEER"):
            raise Failed(said)

    def keeper_killed_while_attached_is_reported(self, s):
        fill(s)
        token = export(s)
        probe = Probe(s)
        probe.ask("attach", token)
        probe.ask("open", "id")
        s.kill_and_wait(s.keeper_pid())
        expect(probe.ask("open", "f"), "GVM_E_KEEPER", "open")
        s.wait_for("SELECT bool_and(ready) FROM gstore_fdw_keeper_info")
        fill(s)
        other = Probe(s)
        expect(other.ask("attach", token), STALE, "a token of the keeper before")
        probe.close()
        other.close()

    def exports_delay_no_change_of_privileges_while_columns_move(self, s):
        """What takes long of an export, giving columns memory of their own, comes before it looks at privileges."""
        s.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int) SERVER gstore_fdw; INSERT INTO ft VALUES (1)")
        s.sql("CREATE TABLE heap (id int)")
        waiting = s.session()
        keeper = s.keeper_pid()
        private.stop_process(keeper)
        try:
            waiting.begin("SELECT gstore_export('ft')")
            s.wait_for(f"SELECT wait_event = 'Extension' FROM pg_stat_activity WHERE pid = {waiting.pid}")
            s.sql("SET lock_timeout = '10s'; GRANT SELECT ON heap TO PUBLIC; REVOKE SELECT ON heap FROM PUBLIC")
        finally:
            os.kill(keeper, signal.SIGCONT)
        waiting.finish()
        s.sql("SELECT gstore_revoke_all('ft'); DROP TABLE heap")

    def copies_delay_no_change_of_privileges_and_are_given_by_those_that_hold_at_their_end(self, s):
        fill(s, 100)
        s.sql("CREATE ROLE copier; CREATE ROLE granted; GRANT SELECT ON ft TO copier")
        copying = s.session()
        copying.sql("SET ROLE copier")
        keeper = s.keeper_pid()

        def change_meanwhile(statement):
            private.stop_process(keeper)
            try:
                copying.begin("SELECT gstore_export_ipchandle('ft')")
                s.wait_for(f"SELECT wait_event = 'Extension' FROM pg_stat_activity WHERE pid = {copying.pid}")
                s.sql(f"SET lock_timeout = '10s'; {statement}")
            finally:
                os.kill(keeper, signal.SIGCONT)

        change_meanwhile("GRANT SELECT ON ft TO granted")
        handle = copying.finish()
        s.sql("CREATE TABLE other (); REVOKE SELECT ON other FROM granted")
        expect(copying.sql("SELECT gstore_export_ipchandle('ft')"), handle, "the handle after another table's REVOKE")
        s.sql("INSERT INTO ft VALUES (101)")
        change_meanwhile("REVOKE SELECT ON ft FROM copier")
        expect(copying.error(), "42501", "a copy of a role that may not read any more")
        s.sql("DROP TABLE other; DROP OWNED BY copier, granted; DROP ROLE copier, granted")

    def commits_that_write_delay_no_change_of_privileges(self, s):
        """Rows are written, and written anew where most were deleted, before the commit looks at privileges."""
        s.sql("CREATE ROLE granted; DROP FOREIGN TABLE IF EXISTS beside; CREATE FOREIGN TABLE beside (id int) SERVER gstore_fdw")
        fill(s, 20000)
        writing = s.session()
        keeper = s.keeper_pid()
        for change in ("INSERT INTO ft VALUES (20001)", "DELETE FROM ft WHERE id % 3 <> 0"):
            writing.sql(f"BEGIN; {change}; GRANT SELECT ON ft TO granted")
            private.stop_process(keeper)
            try:
                writing.begin("COMMIT")
                s.wait_for(f"SELECT wait_event = 'Extension' FROM pg_stat_activity WHERE pid = {writing.pid}")
                s.sql("SET lock_timeout = '10s'; GRANT SELECT ON beside TO granted; REVOKE SELECT ON beside FROM granted")
            finally:
                os.kill(keeper, signal.SIGCONT)
            writing.finish()
        writing.close()
        expect(s.sql("SELECT count(*) FROM ft"), "6667", "rows")
        s.sql("DROP FOREIGN TABLE beside; DROP OWNED BY granted; DROP ROLE granted")

    def server_that_is_down_is_reported(self, s):
        fill(s)
        token = export(s)
        s.stop("fast")
        probe = Probe(s)
        expect(probe.ask("attach", token), "GVM_E_PEER", "attach")
        s.start()
        probe.close()


class EveryReader:
    settings = ("gstore_fdw.readers=all",)

    def another_user_reads_where_the_server_lets_everybody(self, s):
        if os.getuid() != 0:
            return "needs root"
        fill(s)
        probe, own = other_user(s), Probe(s)
        token = export(s)
        expect(probe.ask("attach", token), "10000 3", "attach")
        own.ask("attach", token)
        expect(probe.ask("sum", "f"), own.ask("sum", "f"), "checksum")
        probe.close()
        own.close()


    def another_user_finds_nothing_that_was_not_exported(self, s):
        if os.getuid() != 0:
            return "needs root"
        s.sql("DROP FOREIGN TABLE IF EXISTS hidden; CREATE FOREIGN TABLE hidden (id int, t text) SERVER gstore_fdw")
        s.sql("INSERT INTO hidden SELECT i, 'never exported ' || i FROM generate_series(1, 100) i")
        fill(s)
        export(s)
        probe = spying(s)
        expect(probe.ask("list"), "GVM_E_DENIED", "objects that the keeper shows")
        names = object_names(s)
        expect(len(names) > 5, True, "objects that there are")
        for name in names:
            expect(probe.ask("spy", name), "GVM_E_DENIED", name)
            expect(probe.ask("link", name), STALE, f"{name} as a link")
        expect(probe.ask("link", "/gstore/" + "0" * 32 + "/1.values"), STALE, "a guess")
        probe.close()

    def secret_of_a_token_is_no_other_ones(self, s):
        fill(s)
        seen = set()
        for i in range(4):
            s.sql(f"INSERT INTO ft VALUES ({i})")
            seen.add(links(export(s)))
        expect(len(seen), 4, "secrets")
        for secret in seen:
            expect(len(secret), len("/gstore/") + 32, "length of a secret")

    def column_dropped_before_is_behind_no_token(self, s):
        if os.getuid() != 0:
            return "needs root"
        fill(s)
        s.sql("ALTER FOREIGN TABLE ft DROP COLUMN t")
        token = export(s)
        probe = spying(s)
        expect(probe.ask("link", f"{links(token)}/1.values"), "GVM_OK", "a column that there is")
        for part in ("values", "bodies", "nulls"):
            expect(probe.ask("link", f"{links(token)}/2.{part}"), STALE, f"{part} of the dropped one")
            for name in object_names(s):
                if name.endswith(f"/2.{part}"):
                    expect(probe.ask("spy", name), "GVM_E_DENIED", name)
        probe.close()

    def table_that_was_packed_shows_its_columns_alone(self, s):
        """Not what was beside them in the pack: a column that was dropped, and one that the other table has not."""
        if os.getuid() != 0:
            return "needs root"
        s.sql("DROP FOREIGN TABLE IF EXISTS packed, plain; CREATE FOREIGN TABLE packed (id int, t text, f int) SERVER gstore_fdw")
        s.sql("CREATE FOREIGN TABLE plain (id int, f int) SERVER gstore_fdw")
        s.sql("INSERT INTO packed SELECT i, 'dropped ' || i, i FROM generate_series(1, 100) i; INSERT INTO plain SELECT id, f FROM packed")
        s.sql("ALTER FOREIGN TABLE packed DROP COLUMN t")
        pack = [name for name in object_names(s) if name.endswith("/0.pack")]
        tokens = [export(s, "packed"), export(s, "plain")]
        probes = [other_user(s) for _ in tokens]
        for probe, token in zip(probes, tokens):
            expect(probe.ask("attach", token), "100 2", "attach")
            expect(probe.ask("reach", "id"), str(2 << 20), "bytes of id")
        for name in ("id", "f"):
            expect(probes[0].ask("all", name), probes[1].ask("all", name), f"all bytes of {name}")
        spy = spying(s)
        for name in ("0.pack", "2.values", "2.bodies"):
            expect(spy.ask("link", f"{links(tokens[0])}/{name}"), STALE, name)
        for name in pack:
            expect(spy.ask("spy", name), "GVM_E_DENIED", name)
        expect(len(pack) >= 2, True, "packs")
        for probe in (*probes, spy):
            probe.close()
        s.sql("DROP FOREIGN TABLE packed, plain")

    def memory_that_comes_after_the_export_is_not_mapped(self, s):
        if os.getuid() != 0:
            return "needs root"
        fill(s)
        token = export(s)
        early, late = other_user(s), other_user(s)
        expect(early.ask("attach", token), "10000 3", "attach")
        expect(early.ask("reach", "f"), str(2 << 20), "bytes before")
        s.sql("INSERT INTO ft SELECT i, 'later', i FROM generate_series(10001, 900000) i")  # 7 MB
        expect(early.ask("reach", "f"), str(2 << 20), "bytes after")
        expect(late.ask("attach", token), "10000 3", "attach later")
        expect(late.ask("reach", "f"), str(2 << 20), "bytes of who came later")
        expect_same(s, "ft")
        early.close()
        late.close()

    def token_revoked_leads_nowhere_and_what_is_attached_stays(self, s):
        if os.getuid() != 0:
            return "needs root"
        fill(s)
        token = export(s)
        probe, other = other_user(s), other_user(s)
        expect(probe.ask("attach", token), "10000 3", "attach")
        before = probe.ask("sum", "id")
        s.sql("DROP ROLE IF EXISTS stranger; CREATE ROLE stranger")
        expect(s.error(f"SET ROLE stranger; SELECT gstore_revoke('{token}')"), "42501", "a stranger's revoke")
        expect(s.error(f"SET ROLE stranger; SELECT gstore_revoke_all('ft')"), "42501", "a stranger's revoke of all")
        expect(s.error("SELECT gstore_revoke('gstore3:x')"), "22023", "revoke of what is no token")
        expect(other.ask("attach", token), "10000 3", "attach after that")
        other.ask("detach")
        expect(s.sql(f"SELECT gstore_revoke('{token}')"), "t", "revoke")
        expect(other.ask("attach", token), STALE, "attach")
        expect(probe.ask("sum", "id"), before, "what is attached")
        expect(probe.ask("sum", "f"), STALE, "a column that was not opened")
        expect(s.sql(f"SELECT gstore_revoke('{token}')"), "f", "revoke again")
        again = export(s)
        expect(again != token, True, "another token")
        expect(other.ask("attach", again), "10000 3", "attach by it")
        probe.close()
        other.close()

    def object_of_another_user_under_an_ended_token_is_refused(self, s):
        """At the server's own keeper others can link none; with one that others run, too, the token says whose it is."""
        if os.getuid() != 0:
            return "needs root"
        fill(s)
        token = export(s)
        forger, victim, late = spying(s), Probe(s), other_user(s)
        expect(victim.ask("attach", token), "10000 3", "attach")
        expect(forger.ask("forge", f"{links(token)}/1.values"), "GVM_E_DENIED", "link while the token lives")
        s.sql(f"SELECT gstore_revoke('{token}')")
        for name in ("0.manifest", "1.values"):
            expect(forger.ask("forge", f"{links(token)}/{name}"), "GVM_E_DENIED", f"link {name}")
        expect(victim.ask("sum", "id"), STALE, "a column that was not opened")
        expect(late.ask("attach", token), STALE, "attach")
        fields = export(s).split(":")
        expect(late.ask("attach", ":".join(fields)), "10000 3", "attach by a new token")
        late.ask("detach")
        expect(late.ask("attach", ":".join([*fields[:4], str(OTHER_USER), *fields[5:]])), STALE, "a token of another owner")
        for probe in (forger, victim, late):
            probe.close()

    def rows_written_after_a_token_has_ended_are_not_seen(self, s):
        if os.getuid() != 0:
            return "needs root"
        s.sql("DROP ROLE IF EXISTS second; CREATE ROLE second")
        for end, lifetime_s in (("SELECT gstore_revoke('{}')", 3600), ("REVOKE SELECT ON ft FROM second", 3600), ("SELECT 'its time'", 10)):
            fill(s)
            s.sql("GRANT SELECT ON ft TO second")
            token = s.sql(f"SET gstore_fdw.token_lifetime = {lifetime_s}; SELECT gstore_export('ft')")
            probe, other = other_user(s), other_user(s)
            expect(probe.ask("attach", token), "10000 3", "attach")
            rows, before = probe.ask("sum", "id"), probe.ask("all", "id")
            s.sql(end.format(token))
            Reading().wait_stale(s, token)
            s.sql("INSERT INTO ft SELECT i, 'later', i FROM generate_series(10001, 20000) i")
            expect(probe.ask("all", "id"), before, f"all bytes after {end}")
            expect(probe.ask("sum", "id"), rows, f"its rows after {end}")
            expect_same(s, "ft")
            expect(other.ask("attach", export(s)), "20000 3", "attach by a new token")
            s.sql("INSERT INTO ft VALUES (20001)")
            expect_same(s, "ft")
            probe.close()
            other.close()

    def token_that_goes_on_follows_rows_that_move(self, s):
        if os.getuid() != 0:
            return "needs root"
        fill(s)
        s.sql("DROP ROLE IF EXISTS second; CREATE ROLE second; GRANT SELECT ON ft TO second")
        tokens = [export(s), s.sql("SET ROLE second; SELECT gstore_export('ft')")]
        early, late = other_user(s), other_user(s)
        expect(early.ask("whole", tokens[0]), "10000 3", "attach")
        s.sql(f"SELECT gstore_revoke('{tokens[0]}')")
        s.sql("INSERT INTO ft SELECT i, 'later', i FROM generate_series(10001, 20000) i")
        expect(late.ask("attach", tokens[1]), "10000 3", "attach by the other token")
        for name in ("id", "t", "f"):
            expect(late.ask("sum", name), early.ask("sum", name), f"checksum of {name}")
        early.close()
        late.close()

    def token_follows_rows_that_an_undone_load_has_moved(self, s):
        """To larger chunks and back: their links too, and they end there with the token."""
        if os.getuid() != 0:
            return "needs root"
        s.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int, n name) SERVER gstore_fdw")
        path = s.sql("INSERT INTO ft SELECT i, 'row ' || i FROM generate_series(1, 3000) i; SELECT 'ft'::regclass::oid")
        token = export(s)
        probes = early, late, last = [other_user(s) for _ in range(3)]
        expect(early.ask("whole", token), "3000 2", "attach")
        sums = [early.ask("sum", name) for name in ("id", "n")]
        load = s.session()
        load.sql("BEGIN; INSERT INTO ft SELECT i, 'none ' || i FROM generate_series(1, 4300000) i")  # 64 bytes each
        expect(Reading.chunk_sizes(s, path), [2 << 20, 32 << 20], "chunk sizes")
        load.sql("ROLLBACK")
        load.close()
        s.wait_for("SELECT committed >> 20 FROM gstore_fdw_chunk_info WHERE table_oid = 'ft'::regclass", "8")  # the manifest and the pack, too
        expect(Reading.chunk_sizes(s, path), [2 << 20, 2 << 20], "chunk sizes")
        expect(late.ask("attach", token), "3000 2", "attach after that")
        for probe in (early, late):
            expect([probe.ask("sum", name) for name in ("id", "n")], sums, "checksums")
        before = late.ask("all", "n")
        s.sql(f"SELECT gstore_revoke('{token}')")
        s.sql("INSERT INTO ft SELECT i, 'later' FROM generate_series(3001, 4000) i")
        expect(last.ask("attach", token), STALE, "attach after the token's end")
        expect(last.ask("attach", export(s)), "4000 2", "attach by a new one")
        expect(late.ask("all", "n"), before, "all bytes of who has attached before")
        expect(s.sql("SELECT count(*), count(*) FILTER (WHERE n LIKE 'none%') FROM ft"), "4000|0", "rows")
        for probe in probes:
            probe.close()

    def tokens_of_a_table_are_revoked_together(self, s):
        fill(s)
        s.sql("DROP ROLE IF EXISTS second; CREATE ROLE second; GRANT SELECT ON ft TO second")
        tokens = [export(s), s.sql("SET ROLE second; SELECT gstore_export('ft')")]
        expect(tokens[0] != tokens[1], True, "a token for each role")
        s.sql("INSERT INTO ft VALUES (0)")
        tokens.append(export(s))
        expect(s.sql("SELECT gstore_revoke_all('ft')"), "3", "tokens revoked")
        expect([Reading.is_attached(s, token) for token in tokens], ["false"] * 3, "attach")
        s.sql("DROP OWNED BY second; DROP ROLE second")

    def statements_that_take_privileges_away_end_tokens(self, s):
        s.sql("CREATE ROLE granted; CREATE ROLE next_owner")
        for statement in (
            "REVOKE SELECT ON ft FROM granted", "REVOKE ALL ON ALL TABLES IN SCHEMA public FROM granted", "DROP OWNED BY granted",
            "ALTER FOREIGN TABLE ft OWNER TO next_owner", "DROP FOREIGN TABLE ft", "DO $$ BEGIN EXECUTE 'REVOKE SELECT ON ft FROM granted'; END $$",
        ):
            fill(s, 100)
            s.sql("GRANT SELECT ON ft TO granted")
            token = s.sql("SET ROLE granted; SELECT gstore_export('ft')")
            s.sql("GRANT SELECT ON ft TO next_owner")
            s.sql("CREATE TABLE IF NOT EXISTS other (); REVOKE ALL ON other FROM granted")
            expect(Reading.is_attached(s, token), "true", f"attach before {statement}")
            s.sql(f"BEGIN; {statement}; ROLLBACK")
            expect(Reading.is_attached(s, token), "true", f"attach after {statement} was rolled back")
            probe = Probe(s)
            expect(probe.ask("attach", token), "100 3", "attach")
            s.sql(statement)
            expect(Reading.is_attached(s, token), "false", f"attach after {statement}")
            expect(probe.ask("sum", "id"), STALE, f"a column that was not opened, after {statement}")
            probe.close()
        s.sql("DROP FOREIGN TABLE ft; DROP OWNED BY granted, next_owner; DROP ROLE granted, next_owner")

    def grant_whose_commit_fails_ends_nothing_later(self, s):
        fill(s, 100)
        s.sql("CREATE ROLE granted; CREATE TABLE written (); GRANT SELECT ON written TO granted")
        token, handle = export(s), s.sql("SELECT gstore_export_ipchandle('ft')")

        def grant_and_fail_to_commit():
            """Each transaction reads what the other one writes: the second commit fails, after the extension has updated its tokens."""
            first, second = s.session(), s.session()
            for session in (first, second):
                session.sql("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM written; INSERT INTO written DEFAULT VALUES")
            second.sql("GRANT SELECT ON ft TO granted")
            first.sql("COMMIT")
            second.begin("COMMIT")
            expect(second.error(), "40001", "commit")
            first.close()
            second.close()

        grant_and_fail_to_commit()
        s.sql("CREATE FOREIGN TABLE beside (id int) SERVER gstore_fdw; REVOKE SELECT ON written, beside FROM granted")
        expect(Reading.is_attached(s, token), "true", "attach after REVOKE on other tables")
        expect(export(s), token, "the same token")
        expect(s.sql("SELECT gstore_export_ipchandle('ft')"), handle, "the same handle")
        grant_and_fail_to_commit()
        s.sql("REVOKE SELECT ON ft FROM PUBLIC")
        expect(Reading.is_attached(s, token), "false", "attach after REVOKE on the table")
        expect(s.sql("SELECT gstore_export_ipchandle('ft')") != handle, True, "another handle")
        s.sql("DROP FOREIGN TABLE beside; DROP TABLE written; DROP ROLE granted")

    def token_made_while_revoke_is_not_committed_ends_with_it(self, s):
        fill(s)
        s.sql("DROP ROLE IF EXISTS granted; CREATE ROLE granted; GRANT SELECT ON ft TO granted")
        session = s.session()
        session.sql("BEGIN; REVOKE SELECT ON ft FROM granted")
        token = s.sql("SET ROLE granted; SELECT gstore_export('ft')")
        expect(Reading.is_attached(s, token), "true", "attach before")
        session.sql("COMMIT")
        session.close()
        expect(Reading.is_attached(s, token), "false", "attach after")
        expect(s.error("SET ROLE granted; SELECT gstore_export('ft')"), "42501", "export after")

    def attaching_beside_revoke_ends_with_it(self, s):
        fill(s)
        probe = Probe(s)
        for _ in range(20):
            token = export(s)
            session = s.session()
            session.begin(f"SELECT gstore_revoke('{token}')")
            for _ in range(3):
                said = probe.ask("attach", token)
                if said == "10000 3":
                    probe.ask("detach")
                else:
                    expect(said, STALE, "attach meanwhile")
            expect(session.finish(), "t", "revoke")
            session.close()
            expect(probe.ask("attach", token), STALE, "attach after")
        probe.close()

    def token_expires_unless_it_is_asked_for_again(self, s):
        fill(s)
        token = s.sql("SET gstore_fdw.token_lifetime = 1; SELECT gstore_export('ft')")
        Reading().wait_stale(s, token)
        session = s.session()
        first, token = session.sql("SET gstore_fdw.token_lifetime = 1; SELECT gstore_export('ft'); RESET gstore_fdw.token_lifetime; SELECT gstore_export('ft')").split()
        session.close()
        expect(token, first, "the same token, for an hour")
        time.sleep(3)
        expect(Reading.is_attached(s, token), "true", "attach")
        s.sql("CREATE ROLE shortener")
        expect(s.error("SET ROLE shortener; SET gstore_fdw.token_lifetime = 1"), "42501", "the setting is the administrator's")

    def tokens_of_servers_with_one_keeper_are_their_own(self, s):
        if os.getuid() != 0:
            return "needs root"
        path = s.folder / "run" / "shared.sock"
        die = ["setpriv", "--pdeathsig", "KILL", f"{BUILD}/tools/gvmem-keeper", "-s", str(path), "-m", "0666", "--ready-fd", "1"]
        before = os.environ.get("GVMEM_SOFTGPU")
        os.environ["GVMEM_SOFTGPU"] = s.environ["GVMEM_SOFTGPU"]
        servers = []
        with subprocess.Popen(private.as_owner(die), env=s.environ, stdout=subprocess.PIPE, text=True) as keeper:
            try:
                keeper.stdout.readline()
                for readers in ("all", "owner"):
                    servers.append(Server(f"attach-{readers}", f"gstore_fdw.keeper={path}", f"gstore_fdw.readers={readers}"))
                    fill(servers[-1])
                tokens = [export(server) for server in servers]
                probe, own = other_user(s), Probe(s)
                expect(probe.ask("attach", tokens[0]), "10000 3", "attach where everybody may")
                expect(probe.ask("attach", tokens[1]), "GVM_E_DENIED", "attach where the owner may")
                expect(own.ask("attach", tokens[1]), "10000 3", "attach by root")
                expect(servers[1].sql(f"SELECT gstore_revoke('{tokens[0]}')"), "f", "revoke by the other server")
                expect(servers[1].sql("SELECT gstore_revoke_all('ft')"), "1", "revoke of the other server's own")
                expect(other_user(s).ask("attach", tokens[0]), "10000 3", "attach after that")
                servers[0].stop("immediate")
                servers[0].start()
                fill(servers[0])
                expect(other_user(s).ask("attach", tokens[0]), STALE, "attach after a restart")
                expect(other_user(s).ask("attach", export(servers[0])), "10000 3", "attach by a new token")
            finally:
                Probe.end_all()
                for server in servers:
                    server.end()
                keeper.kill()
                os.environ.pop("GVMEM_SOFTGPU")
                if before is not None:
                    os.environ["GVMEM_SOFTGPU"] = before

    def export_cancelled_leaves_no_link(self, s):
        columns = ", ".join(f"c{i} int" for i in range(800))
        s.sql(f"DROP FOREIGN TABLE IF EXISTS wide; CREATE FOREIGN TABLE wide ({columns}) SERVER gstore_fdw; INSERT INTO wide DEFAULT VALUES")
        for ms in (1, 2, 5, 10, 20, 40):
            try:
                s.sql(f"SET statement_timeout = {ms}; SELECT gstore_export('wide')")
            except SqlError as error:
                expect(str(error), "57014", "SQLSTATE")
        token = export(s, "wide")
        expect(Reading.is_attached(s, token), "true", "attach")
        expect(s.sql("SELECT gstore_revoke_all('wide')"), "1", "tokens that there are")
        s.sql("DROP FOREIGN TABLE wide")

    def token_whose_end_was_cancelled_is_not_given_out_again(self, s):
        columns = ", ".join(f"c{i} int" for i in range(800))
        s.sql(f"DROP FOREIGN TABLE IF EXISTS wide; CREATE FOREIGN TABLE wide ({columns}) SERVER gstore_fdw; INSERT INTO wide (c0) VALUES (1)")
        cancelled = 0
        for ms in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15):
            token = export(s, "wide")
            try:
                s.sql(f"SET statement_timeout = {ms}; SELECT gstore_revoke('{token}')")
            except SqlError as error:
                expect(str(error), "57014", "SQLSTATE")
                cancelled += 1
            expect(len(show(s, export(s, "wide"))["rows"]), 1, "rows by the next token")
        s.sql("DROP FOREIGN TABLE wide")
        return None if cancelled else "no end was cancelled"

    def token_given_out_again_leads_to_the_manifests_present_place(self, s):
        columns = ", ".join(f"c{i:0>55} int" for i in range(1500))  # some manifests are as much as a chunk
        s.sql(f"DROP FOREIGN TABLE IF EXISTS wide; CREATE FOREIGN TABLE wide (a0 int, {columns}) SERVER gstore_fdw; INSERT INTO wide (a0) VALUES (1)")
        tokens = [export(s, "wide")]
        for i in range(14):
            s.sql(f"ALTER FOREIGN TABLE wide RENAME a{i} TO a{i + 1}")
            tokens.append(export(s, "wide"))
        s.sql("ALTER FOREIGN TABLE wide RENAME a14 TO a0")
        for token in (export(s, "wide"), tokens[0], tokens[-1]):
            expect(len(show(s, token)["rows"]), 1, "rows")
        s.sql("DROP FOREIGN TABLE wide")


def main():
    why = private.why_not()
    if why:
        print(f"1..0 # SKIP {why}")
        return 0
    wanted = sys.argv[1:]
    groups = []
    for cls in (Reading, EveryReader):
        names = [name for name, value in vars(cls).items() if callable(value) and name not in ("is_attached", "wait_stale", "chunk_sizes")]
        groups.append((cls, [name for name in names if not wanted or name in wanted]))
    print(f"1..{sum(len(names) for _, names in groups)}", flush=True)
    private.build_probe("attach_probe")
    number, code = 0, 0
    for cls, names in groups:
        server = Server("attach", *cls.settings) if names else None
        for name in names:
            number += 1
            try:
                skip = getattr(cls(), name)(server)
                print(f"ok {number} - {name}" + (f" # SKIP {skip}" if skip else ""), flush=True)
            except (Failed, SqlError, subprocess.SubprocessError, OSError):
                code = 1
                print(f"not ok {number} - {name}", flush=True)
                for line in traceback.format_exc().splitlines() + server.log().splitlines()[-5:]:
                    print(f"# {line}")
            Probe.end_all()
        if server:
            server.end()
    return code


if __name__ == "__main__":
    sys.exit(main())
