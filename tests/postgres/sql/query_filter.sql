-- Conditions of scans on the GPU: beside the same over a heap, and evaluated by the scan.
SET gstore_fdw.gpu_aggregates = off;
CREATE TABLE fh (id int, i int, b int8, f float8, d date, ok bool, n numeric(10,2), t text, a int[]);
CREATE FOREIGN TABLE fg (id int, i int, b int8, f float8, d date, ok bool, n numeric(10,2), t text, a int[]) SERVER gstore_fdw;
CREATE FOREIGN TABLE fa (id int, i int, b int8, f float8, d date, ok bool, n numeric(10,2), t text, a int[]) SERVER gstore_fdw OPTIONS (format 'arrow');
-- Texts are so long that a batch has few rows.
INSERT INTO fh
SELECT k, CASE WHEN k % 11 <> 0 THEN k * 37 % 1000 - 500 END, CASE WHEN k % 13 <> 0 THEN k::int8 * 123456789 END, CASE WHEN k % 17 <> 0 THEN (k % 64) / 4.0 END,
    CASE WHEN k % 19 <> 0 THEN date '1999-12-01' + k % 60 END, CASE WHEN k % 3 <> 0 THEN k % 4 = 1 END, CASE WHEN k % 5 <> 0 THEN k / 100.0 END,
    CASE WHEN k % 7 <> 0 THEN repeat('text ' || k || ' ', 40) END, CASE WHEN k % 23 <> 0 THEN ARRAY[k, NULL, k % 5] END
FROM generate_series(1, 5000) k;
INSERT INTO fg SELECT * FROM fh;
INSERT INTO fa SELECT * FROM fh;
DELETE FROM fh WHERE id % 10 = 7;
DELETE FROM fg WHERE id % 10 = 7;
DELETE FROM fa WHERE id % 10 = 7;

-- Settings, and comparisons with the heap: answer(), place(), same().
SET test.tables = 'f';
SET test.node = '"GPU Filter"';
SET test.ordered = off;
SET test.shown = 'count';
\getenv abs_srcdir PG_ABS_SRCDIR
\set include :abs_srcdir '/sql_include/query_same.sql'
\i :include

-- Plans.
EXPLAIN (COSTS OFF) SELECT id, t FROM fg WHERE i < 10 OR i IS NULL;
EXPLAIN (COSTS OFF) SELECT id FROM fg WHERE t ~ '1' AND i * 2 > 10 AND n > 3 AND f < 3;
EXPLAIN (VERBOSE, COSTS OFF) UPDATE fg SET t = 'x' WHERE i IN (1, 2);
SET gstore_fdw.gpu_filters = off;
EXPLAIN (COSTS OFF) SELECT id, t FROM fg WHERE i < 10 OR i IS NULL;
RESET gstore_fdw.gpu_filters;
SET gstore_fdw.gpu_queries = off;
EXPLAIN (COSTS OFF) SELECT id, t FROM fg WHERE i < 10 OR i IS NULL;
RESET gstore_fdw.gpu_queries;
-- No conditions, and such that the GPU does not evaluate.
EXPLAIN (COSTS OFF) SELECT id FROM fg;
EXPLAIN (COSTS OFF) SELECT id FROM fg WHERE t ~ 'x' AND a IS NOT NULL;
EXPLAIN (COSTS OFF) SELECT id FROM fg WHERE ctid = '(0,1)' AND i > 0;
-- What may raise an error does not come before what PostgreSQL evaluates first; what may not, does.
EXPLAIN (COSTS OFF) SELECT id FROM fg WHERE t !~ 'x' AND 1 / i > 0 AND i > 3;
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT id FROM fg WHERE i % 500 = 3;

-- Rows.
SELECT same('SELECT * FROM q WHERE i < 10'), same('SELECT id, t FROM q WHERE i = 3 OR b % 100 = 7'), same('SELECT t, a FROM q WHERE f > 3 AND ok'), same('SELECT a FROM q WHERE d < ''2000-01-01'''),
    same('SELECT id FROM q WHERE NOT ok'), same('SELECT count(*) FROM q WHERE i IS NULL'), same('SELECT 1 FROM q WHERE i IS NOT NULL'), same('SELECT count(t) FROM q WHERE f = 2.5');
SELECT same('SELECT * FROM q WHERE i > 10000'), same('SELECT * FROM q WHERE id > 0'), same('SELECT * FROM q WHERE id = 5000'), same('SELECT t FROM q WHERE id IN (1, 2500, 4999)');
SELECT same('SELECT * FROM q WHERE i < 10 AND t ~ ''9'''), same('SELECT id FROM q WHERE i < 10 AND n > 30'), same('SELECT t FROM q WHERE n > 30 AND n < 40 AND i % 2 = 0 AND a[3] = 1'), same('SELECT * FROM q WHERE 10 / i > 2');
SELECT same('SELECT x.id, y.t FROM q x JOIN q y ON x.id = y.i WHERE x.i < 0 AND y.i % 3 = 0'), same('SELECT id FROM q WHERE i = (SELECT max(i) FROM fh WHERE i < 100)'),
    same('SELECT id, (SELECT max(y.t) FROM q y WHERE y.i = x.id) FROM fh x WHERE id < 20'), same('SELECT i, count(*), max(t) FROM q WHERE ok GROUP BY i ORDER BY i'), same('SELECT * FROM q WHERE false'  , NULL);
-- The fall back: a list that is too long, known when the query runs.
PREPARE many(int[]) AS SELECT count(*), max(id) FROM fg WHERE i = ANY ($1);
SET plan_cache_mode = force_generic_plan;
SELECT array_agg(k * 2) AS list FROM generate_series(-750, 750) k \gset
EXECUTE many(:'list');
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE many(:'list');
EXECUTE many('{1,2,3}');
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE many('{1,2,3}');
EXECUTE many(NULL);
SELECT count(*), max(id) FROM fh WHERE i = ANY (:'list') UNION ALL SELECT count(*), max(id) FROM fh WHERE i IN (1, 2, 3);
PREPARE mixed(int[], text) AS SELECT count(*), max(id) FROM fa WHERE i % 2 = 0 AND i = ANY ($1) AND n > 1 AND t ~ $2;
EXECUTE mixed(:'list', '1');
EXECUTE mixed('{2,4,6}', '1');
SELECT count(*), max(id) FROM fh WHERE i % 2 = 0 AND i = ANY (:'list') AND n > 1 AND t ~ '1' UNION ALL SELECT count(*), max(id) FROM fh WHERE i IN (2, 4, 6) AND n > 1 AND t ~ '1';
RESET plan_cache_mode;
DEALLOCATE ALL;

-- Values that depend on no row are evaluated when a row comes to them.
CREATE FUNCTION f_fail() RETURNS int LANGUAGE sql STABLE AS 'SELECT 1 / (count(*)::int - count(*)::int) FROM (VALUES (1)) v';
SELECT same('SELECT id FROM q WHERE i > 1000 AND b = (SELECT f_fail())'), same('SELECT id FROM q WHERE i > 0 AND b = (SELECT f_fail())'), same('SELECT id FROM q WHERE i > 0 AND b = (SELECT b FROM fh WHERE id = 1000)'),
    same('SELECT id FROM q WHERE CASE WHEN i > 1000 THEN i = (SELECT f_fail()) ELSE i = 3 END'), same('SELECT id FROM q WHERE i > 0 AND id IN ((SELECT f_fail()), 3)'), same('SELECT id FROM q WHERE i > 0 AND d > current_date - 10');
SELECT same('SELECT x.id, (SELECT count(*) FROM q y WHERE y.i > x.b AND y.b = (SELECT f_fail())) FROM fh x WHERE x.id < 5');
EXPLAIN (COSTS OFF) SELECT id FROM fg WHERE t ~ 'none' AND b = (SELECT f_fail());
SELECT id FROM fg WHERE t ~ 'none' AND b = (SELECT f_fail());
-- Not for rows behind a LIMIT, which nobody may ask for.
SELECT same('SELECT id FROM q WHERE id = 1 OR b = (SELECT f_fail()) LIMIT 1', 'by the scan: a row raises an error, or a sum may'), same('SELECT id FROM q WHERE CASE WHEN id > 1 THEN b = (SELECT f_fail()) ELSE true END LIMIT 1', 'by the scan: a row raises an error, or a sum may'),
    same('SELECT EXISTS (SELECT FROM q WHERE id = 1 OR b = (SELECT f_fail()))', 'by the scan: a row raises an error, or a sum may'), same('SELECT id FROM q WHERE id = 1 OR b = (SELECT b FROM fh WHERE id = 1000)', 'by the scan: a row raises an error, or a sum may'), same('SELECT count(*) FROM q WHERE id > 0 OR b = (SELECT f_fail())');
DROP FUNCTION f_fail;
-- The planner of a kept plan has evaluated one of them, which is another one now.
SET test.number = '1';
PREPARE kept AS SELECT count(*) FROM fg WHERE f < 0 AND id > current_setting('test.number')::int;
EXECUTE kept;
SET gstore_fdw.gpu_queries = off;
PREPARE kept_text AS SELECT count(*) FROM fg WHERE t LIKE 'none%' AND id > current_setting('test.number')::int;
EXECUTE kept_text;
SET test.number = 'x';
EXECUTE kept_text;
RESET gstore_fdw.gpu_queries;
EXECUTE kept;
DEALLOCATE ALL;
-- A time near to now raises no error: it is tested first.
EXPLAIN (COSTS OFF) SELECT id FROM fg WHERE t ~ 'x' AND d > current_date - 10 AND d < now() - interval '1 year' AND id > 0;
EXPLAIN (COSTS OFF) SELECT id FROM fg WHERE t ~ 'x' AND d > current_date - 1000000 AND d < now() - interval '3000 years' AND id > 0;

-- Own rows and deletions, before and after savepoints.
BEGIN;
INSERT INTO fh SELECT id + 10000, i, b, f, d, ok, n, t, a FROM fh WHERE id < 500;
INSERT INTO fg SELECT id + 10000, i, b, f, d, ok, n, t, a FROM fg WHERE id < 500;
INSERT INTO fa SELECT id + 10000, i, b, f, d, ok, n, t, a FROM fa WHERE id < 500;
SELECT same('SELECT * FROM q WHERE i < 0'), same('SELECT * FROM q WHERE id > 10100 AND i > 0');
SAVEPOINT s;
DELETE FROM fh WHERE i % 3 = 0;
DELETE FROM fg WHERE i % 3 = 0;
DELETE FROM fa WHERE i % 3 = 0;
SELECT same('SELECT * FROM q WHERE i < 0'), same('SELECT * FROM q WHERE id > 10100 AND i > 0');
ROLLBACK TO s;
SELECT same('SELECT * FROM q WHERE i < 0'), same('SELECT * FROM q WHERE id > 10100 AND i > 0');
TRUNCATE fh, fg, fa;
SELECT same('SELECT * FROM q WHERE i < 0', NULL);
INSERT INTO fg (id, i) VALUES (1, 1), (2, 2);
SELECT id FROM fg WHERE i = 2;
ROLLBACK;

-- A cursor is of the rows of its snapshot.
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM fg WHERE i % 100 = 0;
FETCH 3 FROM c;
DELETE FROM fg WHERE i % 100 = 0;
FETCH 2 FROM c;
MOVE ALL FROM c;
FETCH BACKWARD 1 FROM c;
SELECT count(*) FROM fg WHERE i % 100 = 0;
ROLLBACK;

-- Changes by such scans.
BEGIN;
UPDATE fh SET i = i + 1, t = 'new' WHERE i % 10 = 4;
UPDATE fg SET i = i + 1, t = 'new' WHERE i % 10 = 4;
UPDATE fa SET i = i + 1, t = 'new' WHERE i % 10 = 4;
SELECT same('SELECT * FROM q WHERE id > 0'), same('SELECT count(*) FROM q WHERE i % 10 = 5');
DELETE FROM fg USING fh o WHERE fg.i = o.id AND o.ok AND fg.b > 0;
DELETE FROM fa USING fh o WHERE fa.i = o.id AND o.ok AND fa.b > 0;
DELETE FROM fh USING fh o WHERE fh.i = o.id AND o.ok AND fh.b > 0;
SELECT same('SELECT * FROM q WHERE id > 0');
SELECT id FROM fg WHERE i = 105 ORDER BY id FOR UPDATE;
EXPLAIN (COSTS OFF) SELECT id FROM fg WHERE i = 105 FOR UPDATE;
ROLLBACK;

-- Partitions.
CREATE TABLE fp (id int, i int, t text) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE fp1 PARTITION OF fp FOR VALUES FROM (0) TO (100) SERVER gstore_fdw;
CREATE FOREIGN TABLE fp2 PARTITION OF fp FOR VALUES FROM (100) TO (200) SERVER gstore_fdw;
CREATE TABLE fp3 PARTITION OF fp FOR VALUES FROM (200) TO (300);
INSERT INTO fp SELECT k, k % 7, 'row ' || k FROM generate_series(0, 299) k;
EXPLAIN (COSTS OFF) SELECT t FROM fp WHERE i % 7 = 3 AND id < 150;
SELECT count(*), min(t), max(t) FROM fp WHERE i % 7 = 3 AND id < 250;
UPDATE fp SET i = 10 WHERE i % 7 = 3 AND id > 50;
SELECT count(*) FROM fp WHERE i = 10;
DROP TABLE fp;

-- Row security: nothing that may raise an error, or is not leakproof, sees rows that a policy keeps back.
CREATE FUNCTION f_allowed(note text) RETURNS bool LANGUAGE plpgsql COST 0.0001 AS $$ BEGIN RETURN note IS NULL OR note NOT LIKE 'text 1%'; END $$;
CREATE ROLE f_reader;
CREATE VIEW f_barrier WITH (security_barrier) AS SELECT * FROM fg WHERE f_allowed(t);
GRANT SELECT ON fg, f_barrier TO f_reader;
CREATE VIEW f_compiled WITH (security_barrier) AS SELECT * FROM fg WHERE i > 0;
EXPLAIN (COSTS OFF) SELECT id FROM f_barrier WHERE 1 / (id - 1) > 5;
EXPLAIN (COSTS OFF) SELECT id FROM f_barrier WHERE 1 / (id - 1) > 5 AND i > 3;
SELECT id FROM f_barrier WHERE 1 / (id - 1) > 5;
SELECT id FROM fg WHERE 1 / (id - 1) > 5;
EXPLAIN (COSTS OFF) SELECT id FROM f_compiled WHERE 1 / i > 5;
SELECT id FROM f_compiled WHERE 1 / (CASE WHEN i = 0 THEN 0 ELSE 1 END) > 5;
DROP VIEW f_barrier, f_compiled;
-- The same of a policy, which a partitioned table has for its partitions.
CREATE TABLE fp (id int, i int, t text) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE fp1 PARTITION OF fp FOR VALUES FROM (0) TO (100) SERVER gstore_fdw;
INSERT INTO fp SELECT k, k % 7, 'text ' || k FROM generate_series(0, 99) k;
ALTER TABLE fp ENABLE ROW LEVEL SECURITY;
CREATE POLICY allowed ON fp USING (f_allowed(t));
GRANT SELECT ON fp TO f_reader;
SET ROLE f_reader;
EXPLAIN (COSTS OFF) SELECT id FROM fp WHERE 1 / (id - 1) >= 0 AND i = 3;
SELECT count(*), sum(id) FROM fp WHERE 1 / (id - 1) >= 0 AND i < 3;
RESET ROLE;
-- Also for what is written.
CREATE TABLE fp2 PARTITION OF fp FOR VALUES FROM (100) TO (200);
INSERT INTO fp VALUES (100, 1, 'text 2');
GRANT INSERT, UPDATE ON fp TO f_reader;
SET ROLE f_reader;
INSERT INTO fp VALUES (50, 1, 'text 1x');
UPDATE fp SET t = 'text 1x' WHERE id = 2;
UPDATE fp SET id = 51, t = 'text 1x' WHERE id = 100;
INSERT INTO fp VALUES (50, 1, 'text 2x') RETURNING *;
UPDATE fp SET t = 'text 2y' WHERE id = 2 RETURNING *;
UPDATE fp SET id = 51 WHERE id = 100 RETURNING *;
RESET ROLE;
-- A MERGE that moves a row updates it, whatever may be inserted.
CREATE POLICY inserted ON fp FOR INSERT WITH CHECK (true);
INSERT INTO fp VALUES (100, 1, 'text 2');
SET ROLE f_reader;
INSERT INTO fp VALUES (52, 1, 'text 1x');
MERGE INTO fp USING (VALUES (100)) new (n) ON fp.id = new.n AND fp.id >= 100 WHEN MATCHED THEN UPDATE SET id = 53, t = 'text 1x';
MERGE INTO fp USING (VALUES (100)) new (n) ON fp.id = new.n AND fp.id >= 100 WHEN MATCHED THEN UPDATE SET id = 53;
MERGE INTO fp USING (VALUES (54)) new (n) ON fp.id = new.n AND fp.id >= 100 WHEN NOT MATCHED THEN INSERT VALUES (new.n, 1, 'text 1x');
RESET ROLE;
SELECT tableoid::regclass, * FROM fp WHERE id BETWEEN 50 AND 54 OR id >= 100 ORDER BY id;
DROP TABLE fp;
REVOKE ALL ON fg FROM f_reader;
DROP ROLE f_reader;
DROP FUNCTION f_allowed;

-- Columns that came and went.
ALTER FOREIGN TABLE fg ADD COLUMN later int;
SELECT count(*) FROM fg WHERE later IS NULL;
UPDATE fg SET later = id WHERE id <= 10;
SELECT id, later FROM fg WHERE later % 3 = 1;
-- A cast of a date to a timestamp may be out of range, and does not come before a condition that is not for the GPU.
CREATE FOREIGN TABLE far (id int, d date, t text) SERVER gstore_fdw;
INSERT INTO far SELECT i, '2000-01-01'::date + i, 'near' FROM generate_series(1, 1000) i;
INSERT INTO far VALUES (0, '5874897-12-31', 'far');
EXPLAIN (COSTS OFF) SELECT count(*) FROM far WHERE id < 500 AND t ~ 'near' AND d::timestamp + interval '1 day' > '2000-01-01' AND date_trunc('month', d::timestamp) > '2000-01-01';
SELECT count(*) FROM far WHERE id < 500 AND t ~ 'near' AND d::timestamp + interval '1 day' > '2000-01-01' AND date_trunc('month', d::timestamp) > '2000-01-01';
EXPLAIN (COSTS OFF) SELECT count(*) FROM far WHERE id < 500 AND t ~ 'near' AND d::timestamp > '2000-01-01'::timestamp;
SELECT count(*) FROM far WHERE id < 500 AND t ~ 'near' AND d::timestamp > '2000-01-01'::timestamp;
DROP FOREIGN TABLE far;

-- By the software GPU such conditions are not cheaper.
RESET gstore_fdw.gpu_startup_cost;
RESET gstore_fdw.gpu_instruction_cost;
EXPLAIN (COSTS OFF) SELECT id FROM fg WHERE i > 400 AND f < 3;

DROP FOREIGN TABLE fg, fa;
DROP TABLE fh;
DROP FUNCTION answer, place, same;
