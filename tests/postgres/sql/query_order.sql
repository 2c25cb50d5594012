-- ORDER BY with LIMIT on the GPU: beside the same over a heap, and without the GPU.
SET enable_sort = off;
CREATE TABLE oh (id int, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, b bool, d date, tm time, ts timestamp, o oid, c "char", t text, a int[]);
CREATE FOREIGN TABLE og (id int, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, b bool, d date, tm time, ts timestamp, o oid, c "char", t text, a int[]) SERVER gstore_fdw;
CREATE FOREIGN TABLE oa (id int, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, b bool, d date, tm time, ts timestamp, o oid, c "char", t text, a int[]) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO oh
SELECT k, CASE WHEN k % 7 <> 0 THEN k * 31 % 100 - 50 END, CASE WHEN k % 11 <> 0 THEN k * 7919 % 10007 - 5000 END, CASE WHEN k % 13 <> 0 THEN k::int8 * 123456789012 % 10000019 END,
    CASE WHEN k % 5 <> 0 THEN (k % 64 - 32) / 4.0 END, CASE WHEN k % 17 <> 0 THEN (k * 7 % 1024 - 500) / 8.0 END, CASE WHEN k % 3 <> 0 THEN k % 4 = 1 END,
    CASE WHEN k % 19 <> 0 THEN date '1999-12-01' + k % 60 END, CASE WHEN k % 23 <> 0 THEN time '00:00' + k * interval '7 s' END,
    CASE WHEN k % 29 <> 0 THEN timestamp '1999-12-31 23:00' + k * interval '1 min' END, CASE WHEN k % 37 <> 0 THEN (4294960000 + k)::oid END,
    CASE WHEN k % 41 <> 0 THEN (k % 256 - 128)::"char" END, CASE WHEN k % 6 <> 0 THEN 'text ' || k END, CASE WHEN k % 9 <> 0 THEN ARRAY[k, NULL, k % 5] END
FROM generate_series(1, 4000) k;
INSERT INTO oh (id, i2, i4, i8, f4, f8, d, ts, o, c) VALUES
    (5001, -32768, -2147483648, -9223372036854775808, '-infinity', '-infinity', '-infinity', '-infinity', 0, '\200'),
    (5002, 32767, 2147483647, 9223372036854775807, 'infinity', 'infinity', 'infinity', 'infinity', 4294967295, '\177'),
    (5003, 0, 0, 0, 'nan', 'nan', '4713-01-01 BC', '4713-01-01 00:00 BC', 1, '\377'), (5004, 0, 0, 0, '-0', '-0', NULL, NULL, NULL, NULL), (5005, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO og SELECT * FROM oh;
INSERT INTO oa SELECT * FROM oh;
DELETE FROM oh WHERE id % 10 = 7;
DELETE FROM og WHERE id % 10 = 7;
DELETE FROM oa WHERE id % 10 = 7;

-- Settings, and comparisons with the heap: answer(), place(), same().
SET test.tables = 'o';
SET test.node = '"GPU": "order';
SET test.ordered = on;
SET test.shown = '40 30';
\getenv abs_srcdir PG_ABS_SRCDIR
\set include :abs_srcdir '/sql_include/query_same.sql'
\i :include

-- Plans.
EXPLAIN (COSTS OFF) SELECT id, t FROM og ORDER BY f8 DESC, i4 NULLS FIRST, id LIMIT 5;
EXPLAIN (COSTS OFF) SELECT id FROM og WHERE i4 > 0 AND t ~ '1' ORDER BY i2 + i4, f8 DESC NULLS LAST LIMIT 5;
EXPLAIN (VERBOSE, COSTS OFF) SELECT t || 'x', ctid, tableoid::regclass FROM og ORDER BY i4 LIMIT 3 OFFSET 2;
SET gstore_fdw.gpu_order = off;
EXPLAIN (COSTS OFF) SELECT id, t FROM og ORDER BY i4 LIMIT 5;
RESET gstore_fdw.gpu_order;
-- What is not for it.
CREATE FUNCTION is_local(query text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    plan text;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
    RETURN plan !~ '"GPU": "order';
END $$;
SELECT query FROM (VALUES ('SELECT id FROM og ORDER BY i4'), ('SELECT id FROM og ORDER BY t LIMIT 3'), ('SELECT DISTINCT i4 FROM og ORDER BY i4 LIMIT 3'), ('SELECT i4, count(*) FROM og GROUP BY i4 ORDER BY i4 LIMIT 3'),
    ('SELECT og.id FROM og JOIN oh ON oh.id = og.id ORDER BY og.i4 LIMIT 3'), ('SELECT id FROM og ORDER BY random() LIMIT 3'), ('SELECT og FROM og ORDER BY i4 LIMIT 3'), ('SELECT id FROM og ORDER BY i4 LIMIT 3 FOR UPDATE'),
    ('SELECT id FROM og WHERE t ~ ''1$'' ORDER BY 1 / i4 LIMIT 3'), ('SELECT id FROM og WHERE ctid = ''(0,1)'' ORDER BY i4 LIMIT 3'), ('SELECT id, rank() OVER (ORDER BY i4) FROM og ORDER BY i4 LIMIT 3'),
    ('SELECT id FROM og ORDER BY i2, i4, i8, f4, f8 LIMIT 3')) v (query)
WHERE NOT is_local(query);
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT id, t FROM og ORDER BY i4, id LIMIT 5;

-- Each type, in each direction, with NULLs on either side.
SELECT k, o, same(format('SELECT id, %s FROM q ORDER BY %s %s, id LIMIT 8', k, k, o)), same(format('SELECT id, %s FROM q WHERE id %% 5 = 1 ORDER BY %s %s, id LIMIT 3 OFFSET 700', k, k, o))
FROM unnest('{i2,i4,i8,f4,f8,b,d,tm,ts,o,c}'::text[]) k, unnest('{ASC,DESC,ASC NULLS FIRST,DESC NULLS LAST}'::text[]) o ORDER BY 1, 2;
SELECT same('SELECT * FROM q ORDER BY f8 DESC, f4, id DESC LIMIT 20'), same('SELECT id, a, t FROM q ORDER BY b, i2 DESC NULLS LAST, id LIMIT 100'), same('SELECT id FROM q WHERE id < 5000 ORDER BY i2 + i4 DESC NULLS LAST, abs(f8), id LIMIT 10'),
    same('SELECT f8 FROM q ORDER BY f8 LIMIT 2 OFFSET 10'), same('SELECT 1 FROM q ORDER BY id LIMIT 3'), same('SELECT id, i4 * 2 FROM q WHERE id < 5000 ORDER BY 2 NULLS FIRST, 1 LIMIT 4');
-- All rows, none, more than there are; with ties.
SELECT same('SELECT id, i4 FROM q ORDER BY i4, id LIMIT 100000'), same('SELECT id, i4 FROM q ORDER BY i4, id LIMIT 10 OFFSET 5000'), same('SELECT id FROM q ORDER BY i4, id LIMIT NULL'), same('SELECT id FROM q WHERE id < 0 ORDER BY i4 LIMIT 5'),
    same('SELECT i2, id FROM q ORDER BY i2, id FETCH FIRST 3 ROWS WITH TIES'), same('SELECT i2 FROM q ORDER BY i2 DESC NULLS LAST FETCH FIRST 3 ROWS WITH TIES'), same('SELECT id FROM q ORDER BY i4 LIMIT 0', NULL);
SELECT same('SELECT id FROM q ORDER BY 100 / i4, id LIMIT 5'), same('SELECT id FROM q ORDER BY id LIMIT -1');
-- With conditions, compiled and not.
SELECT same('SELECT id, t FROM q WHERE i4 > 100 AND f8 < 3 ORDER BY i4, id LIMIT 10'), same('SELECT id, t FROM q WHERE t ~ ''11$'' ORDER BY f8 DESC, id LIMIT 10'), same('SELECT id FROM q WHERE t = ''text 3988'' AND i4 IS NOT NULL ORDER BY id LIMIT 10'),
    same('SELECT id FROM q WHERE t ~ ''1$'' AND i4 % 2 = 0 AND a[3] = 1 ORDER BY i4 DESC, id LIMIT 50'), same('SELECT id FROM q WHERE i4 / i4 = 1 ORDER BY i4, id LIMIT 5');
SELECT same('SELECT * FROM (SELECT id, i4 FROM q ORDER BY i4, id LIMIT 20) s WHERE id % 2 = 0'), same('SELECT (SELECT y.id FROM q y WHERE y.i4 > x.id ORDER BY y.i4, y.id LIMIT 1) FROM oh x WHERE x.id < 15 ORDER BY x.id'),
    same('SELECT x.id, y.id FROM oh x, LATERAL (SELECT id FROM q WHERE i2 = x.i2 ORDER BY i4 DESC NULLS LAST, id LIMIT 2) y WHERE x.id < 12 ORDER BY 1, 2');

-- Values that depend on no row are evaluated when a row comes to them.
CREATE FUNCTION o_fail() RETURNS int LANGUAGE sql STABLE AS 'SELECT 1 / (count(*)::int - count(*)::int) FROM (VALUES (1)) v';
SELECT same('SELECT id FROM q WHERE id < 0 ORDER BY i4 + (SELECT o_fail()), id LIMIT 5'), same('SELECT id FROM q WHERE id > 0 ORDER BY i4 + (SELECT o_fail()), id LIMIT 5'), same('SELECT id FROM q WHERE id > 0 ORDER BY i4 * (SELECT -1 FROM oh LIMIT 1), id LIMIT 200'),
    same('SELECT id FROM q WHERE id < 0 AND i2 = (SELECT o_fail()) ORDER BY i4, id LIMIT 5'), same('SELECT id FROM q WHERE id > 100 AND i2 > (SELECT min(i2) FROM oh) ORDER BY i4, id LIMIT 300');
EXPLAIN (COSTS OFF) SELECT id FROM og WHERE t ~ 'none' ORDER BY i4 + (SELECT o_fail()), id LIMIT 5;
SELECT id FROM og WHERE t ~ 'none' ORDER BY i4 + (SELECT o_fail()), id LIMIT 5;
DROP FUNCTION o_fail;

-- Parameters.
PREPARE first(int, bigint, bigint) AS SELECT id, i4 FROM og WHERE i4 > $1 ORDER BY i4, id LIMIT $2 OFFSET $3;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE first(10, 200, 5);
EXECUTE first(10, 2, 5);
EXECUTE first(4990, 3, NULL);
EXECUTE first(5003, NULL, 1);
EXECUTE first(NULL, 2, 0);
EXECUTE first(0, -1, 0);
-- The local plan, where a list of values is too long. What a sort takes differs between versions of PostgreSQL.
CREATE FUNCTION explained(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || statement LOOP
        RETURN NEXT regexp_replace(line, 'Memory: \d+kB', 'Memory: some');
    END LOOP;
END $$;
PREPARE many(int[]) AS SELECT id, t FROM oa WHERE i4 = ANY ($1) AND t ~ '1' ORDER BY i4 DESC, id LIMIT 3;
SELECT array_agg(k * 2) AS list FROM generate_series(-750, 750) k \gset
SELECT explained(format('EXECUTE many(%L)', :'list'));
EXECUTE many(:'list');
EXECUTE many('{10,11,12,13,14}');
SELECT id, t FROM oh WHERE i4 = ANY (:'list') AND t ~ '1' ORDER BY i4 DESC, id LIMIT 3;
-- Of expressions, too.
PREPARE twice(int[]) AS SELECT i4 + id AS s, i4 * 2 AS d, t FROM oa WHERE i4 = ANY ($1) AND t ~ '1' ORDER BY i4 DESC, id LIMIT 3;
SELECT explained(format('EXECUTE twice(%L)', :'list'));
EXECUTE twice(:'list');
SELECT i4 + id AS s, i4 * 2 AS d, t FROM oh WHERE i4 = ANY (:'list') AND t ~ '1' ORDER BY i4 DESC, id LIMIT 3;
RESET plan_cache_mode;
DEALLOCATE ALL;

-- Lists for which there is no memory: the local plan goes on behind those that were made. Rows among which the order decides nothing come once.
CREATE FOREIGN TABLE ol (id int, i int, t text) SERVER gstore_fdw;
INSERT INTO ol SELECT k, k * 7919 % 1013, 'text ' || k FROM generate_series(1, 30000) k;
DELETE FROM ol WHERE id % 10 = 7;
SET gstore_fdw.gpu_query_memory = '1MB';
SELECT place('SELECT id, i FROM ol ORDER BY i DESC, i + 1, i + 2, i + 3 LIMIT (SELECT 26000)') AS place;
SELECT count(*), count(DISTINCT id), sum(id), bool_and(i <= before) AS ordered FROM (SELECT id, i, lag(i, 1, 2000) OVER () AS before FROM (SELECT id, i FROM ol ORDER BY i DESC, i + 1, i + 2, i + 3 LIMIT (SELECT 100000)) a) b;
SELECT count(*), sum(id) FROM ol;
-- What does not pass other conditions; columns that are not shown; a cursor; a rescan.
SELECT count(*), count(DISTINCT t), min(t), max(t), bool_and(t ~ '1') FROM (SELECT t FROM ol WHERE t ~ '1' ORDER BY i DESC, i + 1, i + 2, i + 3 LIMIT (SELECT 100000)) a;
SELECT count(*), count(DISTINCT t), min(t), max(t) FROM ol WHERE t ~ '1';
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id, i FROM ol ORDER BY i, id, i + 1, i + 2 LIMIT (SELECT 100000);
FETCH 1 FROM c;
MOVE 19998 FROM c;
FETCH 2 FROM c;
MOVE ABSOLUTE 6000 IN c;
FETCH 2 FROM c;
COMMIT;
SELECT s.n, x.* FROM (VALUES (1), (2)) s (n), LATERAL (SELECT count(*), count(DISTINCT id), max(i) FROM (SELECT id, i FROM ol ORDER BY i DESC, i + 1, i + 2, i + 3 LIMIT (SELECT 25000 + s.n)) a) x ORDER BY 1;
RESET gstore_fdw.gpu_query_memory;
SET gstore_fdw.gpu_order = off;
SELECT id, i FROM ol ORDER BY i, id, i + 1, i + 2 LIMIT 2 OFFSET 6000;
SELECT id, i FROM ol ORDER BY i, id, i + 1, i + 2 LIMIT 2 OFFSET 19999;
RESET gstore_fdw.gpu_order;
DROP FOREIGN TABLE ol;

-- Own rows and deletions.
BEGIN;
INSERT INTO oh (id, i4, t) SELECT 10000 + k, k * 10 - 7000, 'own ' || k FROM generate_series(1, 500) k;
INSERT INTO og (id, i4, t) SELECT 10000 + k, k * 10 - 7000, 'own ' || k FROM generate_series(1, 500) k;
INSERT INTO oa (id, i4, t) SELECT 10000 + k, k * 10 - 7000, 'own ' || k FROM generate_series(1, 500) k;
SELECT same('SELECT id, i4, t FROM q ORDER BY i4, id LIMIT 10'), same('SELECT id, i4, t FROM q ORDER BY i4, id LIMIT 300');
SAVEPOINT s;
DELETE FROM oh WHERE i4 % 3 = 0;
DELETE FROM og WHERE i4 % 3 = 0;
DELETE FROM oa WHERE i4 % 3 = 0;
SELECT same('SELECT id, i4, t FROM q ORDER BY i4, id LIMIT 10'), same('SELECT id, i4, t FROM q ORDER BY i4 DESC NULLS LAST, id LIMIT 300');
ROLLBACK TO s;
SELECT same('SELECT id, i4, t FROM q ORDER BY i4, id LIMIT 10');
TRUNCATE oh, og, oa;
SELECT same('SELECT id FROM q ORDER BY i4 LIMIT 5', 'nowhere, as the table has no rows');
INSERT INTO og (id, i4) VALUES (1, 2), (2, 1);
SELECT id FROM og ORDER BY i4 LIMIT 5;
ROLLBACK;

-- A cursor goes on behind the first list, with the rows of its snapshot.
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id, i4 FROM og ORDER BY i4, id LIMIT 2000;
FETCH 2 FROM c;
DELETE FROM og WHERE i4 < 0;
MOVE 998 FROM c;
FETCH 2 FROM c;
MOVE ABSOLUTE 1 IN c;
FETCH 2 FROM c;
CLOSE c;
SELECT id, i4 FROM oh ORDER BY i4, id LIMIT 3;
SELECT id, i4 FROM oh ORDER BY i4, id LIMIT 2 OFFSET 1000;
DECLARE c NO SCROLL CURSOR FOR SELECT id, i4 FROM og ORDER BY i4, id LIMIT 2000;
FETCH 1 FROM c;
ROLLBACK;

-- Partitions: their orders are merged.
CREATE TABLE op (id int, i int, t text) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE op1 PARTITION OF op FOR VALUES FROM (0) TO (1000) SERVER gstore_fdw;
CREATE FOREIGN TABLE op2 (t text, i int, id int) SERVER gstore_fdw;
ALTER TABLE op ATTACH PARTITION op2 FOR VALUES FROM (1000) TO (2000);
INSERT INTO op SELECT k, k * 7919 % 2003, 'row ' || k FROM generate_series(0, 1999) k;
EXPLAIN (COSTS OFF) SELECT id, t FROM op WHERE i > 3 ORDER BY i DESC, id LIMIT 5;
SELECT id, i, t FROM op WHERE i > 3 ORDER BY i DESC, id LIMIT 5;
SELECT id, i, t FROM op WHERE i > 3 AND t ~ '99' ORDER BY i + 1, id LIMIT 3 OFFSET 10;
DROP TABLE op;

-- Keys that may raise an error are not of rows that a view keeps back.
CREATE FUNCTION o_allowed(note text) RETURNS bool LANGUAGE plpgsql COST 0.0001 AS $$ BEGIN RETURN note <> 'text 1'; END $$;
CREATE VIEW o_barrier WITH (security_barrier) AS SELECT * FROM og WHERE o_allowed(t);
EXPLAIN (COSTS OFF) SELECT id FROM o_barrier ORDER BY 1 / (id - 1) DESC, id LIMIT 2;
SELECT id FROM o_barrier ORDER BY 1 / (id - 1) DESC, id LIMIT 2;
EXPLAIN (COSTS OFF) SELECT id FROM o_barrier WHERE 1 / (id - 1) >= 0 ORDER BY id LIMIT 2;
SELECT id FROM o_barrier WHERE 1 / (id - 1) >= 0 ORDER BY id LIMIT 2;
DROP VIEW o_barrier;
DROP FUNCTION o_allowed;

-- Where it costs more to start it is not cheaper than a scan and a sort, of few rows.
SET gstore_fdw.gpu_startup_cost = 150;
RESET gstore_fdw.gpu_instruction_cost;
RESET enable_sort;
EXPLAIN (COSTS OFF) SELECT id, t FROM og ORDER BY i4 LIMIT 5;
SET enable_sort = off;

-- A condition that is the same for all rows is a plan node above the scan.
SELECT same('SELECT id, i4 FROM q WHERE o > 3 AND EXISTS (SELECT FROM oh WHERE id = 7) ORDER BY i4, id LIMIT 3'), same('SELECT id, i4 FROM q WHERE o > 3 AND NOT EXISTS (SELECT FROM oh WHERE id = 7) ORDER BY i4, id LIMIT 3');

-- A condition on tableoid.
SELECT place('SELECT id FROM og WHERE tableoid = ''og''::regclass ORDER BY i4, id LIMIT 3') AS place, id FROM og WHERE tableoid = 'og'::regclass ORDER BY i4, id LIMIT 3;
SELECT count(*) FROM (SELECT FROM og WHERE tableoid <> 'og'::regclass ORDER BY i4 LIMIT 3) r;

-- Columns that came and went.
ALTER FOREIGN TABLE og ADD COLUMN later int;
SELECT id, later FROM og ORDER BY later, id LIMIT 2;
UPDATE og SET later = -id WHERE id <= 10;
SELECT id, later FROM og ORDER BY later NULLS FIRST, id LIMIT 2;
SELECT id, later FROM og ORDER BY later, id LIMIT 2;

DROP FOREIGN TABLE og, oa;
DROP TABLE oh;
DROP FUNCTION answer, place, same, is_local, explained;
