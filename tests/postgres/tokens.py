#!/usr/bin/env python3
"""Tokens of tables in GPU memory among roles and sessions that stand in each other's way: TAP, a line a case.

usage: tokens.py [CASE...]
"""
import sys

from cases import fill, group, main
from private import expect

ON_THE_GPU = "SET gstore_fdw.gpu_startup_cost = 0; SET gstore_fdw.gpu_instruction_cost = 0;"


def refusal(server, statement):
    """SQLSTATE, message and hint with which it fails; it does not wait for long, whatever the machine does."""
    return server.sql(
        "SET statement_timeout = '100s'; SET client_min_messages = warning; CREATE TEMP TABLE said (state text, message text, hint text);"
        f"DO $$ DECLARE state text; message text; hint text; BEGIN {statement};"
        " EXCEPTION WHEN OTHERS OR QUERY_CANCELED THEN"
        " GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;"
        " INSERT INTO said VALUES (state, message, hint); END $$; SELECT * FROM said"
    ).split("|")


def ran(server, query):
    """Where a query ran, as EXPLAIN says."""
    plan = server.sql(f"SET statement_timeout = '100s'; {ON_THE_GPU} EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) {query}")
    return next((line.strip().removeprefix("Ran: ") for line in plan.splitlines() if "Ran: " in line), plan)


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


if __name__ == "__main__":
    sys.exit(main())
