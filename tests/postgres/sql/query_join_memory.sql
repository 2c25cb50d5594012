-- gstore_fdw.gpu_join_memory: how much hash tables of a role's joins may have.
SET max_parallel_workers_per_gather = 0;
SET gstore_fdw.gpu_startup_cost = 0;
SET gstore_fdw.gpu_instruction_cost = 0;
CREATE FOREIGN TABLE jm_fact (k int, x int) SERVER gstore_fdw;
INSERT INTO jm_fact SELECT i, i FROM generate_series(1, 200000) i;
-- 36 bytes a row: 3.4 MB each.
CREATE FOREIGN TABLE jm_one (k int, v int) SERVER gstore_fdw;
INSERT INTO jm_one SELECT i, i % 100 FROM generate_series(1, 100000) i;
CREATE FOREIGN TABLE jm_two (k int, v int) SERVER gstore_fdw;
INSERT INTO jm_two SELECT i, i % 100 FROM generate_series(1, 100000) i;
ANALYZE jm_fact, jm_one, jm_two;
-- Where a query's join runs.
CREATE FUNCTION ran(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    line text;
    plan text := '';
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
        plan := plan || line || E'\n';
    END LOOP;
    RETURN CASE WHEN plan ~ 'GPU Join:' THEN substring(plan FROM 'Ran: [^\n]*') ELSE 'planned without the GPU' END;
END $$;
\set one 'SELECT count(*), sum(v) FROM jm_fact JOIN jm_one USING (k)'
\set two 'SELECT count(*), sum(v) FROM jm_fact JOIN jm_two USING (k)'
\set both 'SELECT count(*), sum(o.v), sum(t.v) FROM jm_fact f JOIN jm_one o USING (k) JOIN jm_two t USING (k)'
-- More than half of the rows pass, which the planner takes for a few.
\set more 'SELECT count(*), sum(v) FROM jm_fact JOIN jm_one USING (k) WHERE v % 7 + v % 5 = v % 35 % 7 + v % 35 % 5'
SHOW gstore_fdw.gpu_join_memory;
SELECT ran(:'one'), ran(:'both'), ran(:'more');
-- The planner knows it.
SET gstore_fdw.gpu_join_memory = '3MB';
SELECT ran(:'one'), ran(:'both');
SET client_min_messages = debug1;
\set VERBOSITY terse
EXPLAIN (COSTS OFF) :one;
\set VERBOSITY default
RESET client_min_messages;
SET gstore_fdw.gpu_join_memory = '4MB';
SELECT ran(:'one'), ran(:'both');
-- What nobody uses goes first: each of two has room, one after the other. (Those from before are of other rows.)
UPDATE jm_one SET v = v WHERE k = 1;
UPDATE jm_two SET v = v WHERE k = 1;
SELECT ran(:'one'), ran(:'two'), ran(:'one');
-- More rows than the planner thinks: the local plan, before the first row.
SET gstore_fdw.gpu_join_memory = '3MB';
UPDATE jm_one SET v = v WHERE k = 1;
SELECT gstore_fdw_queries_reset();
SELECT ran(:'more');
SELECT queries, no_room FROM gstore_fdw_queries WHERE kind = 'join';
:more;
-- Of a join whose outer rows are a heap's, likewise.
CREATE TABLE jm_heap AS SELECT * FROM jm_fact;
ANALYZE jm_heap;
\set heap 'SELECT count(*), sum(v) FROM jm_heap JOIN jm_one USING (k)'
\set heap_more 'SELECT count(*), sum(v) FROM jm_heap JOIN jm_one USING (k) WHERE v % 7 + v % 5 = v % 35 % 7 + v % 35 % 5'
SELECT ran(:'heap');
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_nestloop = off;
SELECT ran(:'heap_more');
:heap_more;
SET gstore_fdw.gpu_join_memory = '4MB';
SELECT ran(:'heap_more');
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_nestloop;
-- Rows of the transaction itself count, too, in hash tables that are used once.
BEGIN;
INSERT INTO jm_one SELECT i, 1 FROM generate_series(100001, 130000) i;
SELECT ran(:'more'), ran(:'two');
ROLLBACK;
-- None at all.
SET gstore_fdw.gpu_join_memory = 0;
SELECT ran(:'one'), ran(:'more');
RESET gstore_fdw.gpu_join_memory;
-- It is the owner's of the server to set it.
CREATE ROLE jm_user;
GRANT SELECT ON jm_fact, jm_one, jm_two TO jm_user;
ALTER ROLE jm_user SET gstore_fdw.gpu_join_memory = '3MB';
SET SESSION AUTHORIZATION jm_user;
\set VERBOSITY sqlstate
SET gstore_fdw.gpu_join_memory = '10MB';
\set VERBOSITY default
RESET SESSION AUTHORIZATION;
SELECT setconfig FROM pg_db_role_setting WHERE setrole = 'jm_user'::regrole;
DROP OWNED BY jm_user;
DROP ROLE jm_user;
DROP FUNCTION ran;
DROP TABLE jm_heap;
DROP FOREIGN TABLE jm_fact, jm_one, jm_two;
