-- ORDER BY with LIMIT of texts in the order of their bytes, on the GPU: beside the same over a heap, and without the GPU.
SET enable_sort = off;
CREATE TABLE th (id int, t text COLLATE "C", v varchar(40) COLLATE "C", c char(6) COLLATE "POSIX", n text COLLATE "C" NOT NULL, d text, k int);
CREATE FOREIGN TABLE tg (id int, t text COLLATE "C", v varchar(40) COLLATE "C", c char(6) COLLATE "POSIX", n text COLLATE "C" NOT NULL, d text, k int) SERVER gstore_fdw;
CREATE FOREIGN TABLE ta (id int, t text COLLATE "C", v varchar(40) COLLATE "C", c char(6) OPTIONS (length '6') COLLATE "POSIX", n text COLLATE "C" NOT NULL, d text, k int) SERVER gstore_fdw OPTIONS (format 'arrow');
-- Of n many have the first 32 bytes in common, or are these alone; of v most have 7, 8 or 9.
INSERT INTO th
SELECT i, CASE WHEN i % 7 <> 0 THEN (ARRAY['', 'a', 'ab', 'A', 'Zebra', 'é', '€uro', E'\u0001', E'\u007f', '~', ' ', 'a ', 'abcdefgh', 'abcdefghi', '12345678901234567890123456789012'])[1 + i * 13 % 15] || CASE WHEN i % 5 = 0 THEN i % 40 || '' ELSE '' END END,
    CASE WHEN i % 11 <> 0 THEN repeat('v', 7 + i % 3) || CASE WHEN i % 2 = 0 THEN chr(96 + i % 30) ELSE '' END END, CASE WHEN i % 13 <> 0 THEN (ARRAY['', 'x', 'x y', 'xyz', 'XYZ', 'xyzxyz'])[1 + i % 6] END,
    CASE WHEN i % 3 = 0 THEN md5((i % 200)::text) ELSE 'the first thirty-two bytes of it' || CASE WHEN i % 4 = 1 THEN '' ELSE ' ' || md5((i % 500)::text) END END, 'd ' || i, i % 50
FROM generate_series(1, 3000) i;
INSERT INTO tg SELECT * FROM th;
INSERT INTO ta SELECT * FROM th;
DELETE FROM th WHERE id % 10 = 7;
DELETE FROM tg WHERE id % 10 = 7;
DELETE FROM ta WHERE id % 10 = 7;
-- Settings, and comparisons with the heap: answer(), place(), same().
SET test.tables = 't';
SET test.node = '"GPU": "order';
SET test.ordered = on;
SET test.shown = '40 30';
\getenv abs_srcdir PG_ABS_SRCDIR
\set include :abs_srcdir '/sql_include/query_same.sql'
\i :include

EXPLAIN (COSTS OFF) SELECT id, t FROM tg ORDER BY t DESC, k, n LIMIT 5;
-- Each column, in each direction, with NULLs on either side.
SELECT k, o, same(format('SELECT id, %s FROM q ORDER BY %1$s %s, id LIMIT 8', k, o)), same(format('SELECT id, %s FROM q WHERE id %% 5 = 1 ORDER BY %1$s %s, id LIMIT 30 OFFSET 400', k, o))
FROM unnest('{t,v,c,n}'::text[]) k, unnest('{ASC,DESC,ASC NULLS FIRST,DESC NULLS LAST}'::text[]) o ORDER BY 1, 2;
SELECT same('SELECT id, n FROM q ORDER BY n DESC, id LIMIT (SELECT 5000)'), same('SELECT id, v FROM q ORDER BY v, id LIMIT (SELECT 5000)');
-- Extremes are the first rows of an order.
SELECT same('SELECT min(t), max(t), min(c), max(n) FROM q'), same('SELECT max(t) FROM q WHERE t < ''a'''), same('SELECT min(v) FROM q WHERE id < 0');
-- Several keys: what comes behind a text that is longer than its words decides where texts are the same. Ties.
SELECT same('SELECT id FROM q ORDER BY k DESC, t, id LIMIT 300'), same('SELECT id FROM q ORDER BY n, k DESC, id LIMIT 700'), same('SELECT id FROM q ORDER BY n DESC, t, c DESC, id LIMIT 700'), same('SELECT id FROM q ORDER BY c, n, v NULLS FIRST, id DESC LIMIT 700'), same('SELECT t FROM q ORDER BY t LIMIT 2000 OFFSET 100'), same('SELECT n FROM q ORDER BY n DESC LIMIT 900'), same('SELECT k, n FROM q ORDER BY k, n LIMIT 2600');
-- Conditions, compiled and not; letters of one case; another collation than the column's.
SELECT same('SELECT id, n FROM q WHERE t LIKE ''a%'' ORDER BY n, id LIMIT 20'), same('SELECT id, n FROM q WHERE n ~ ''7$'' ORDER BY n, id LIMIT 100'), same('SELECT id FROM q ORDER BY lower(n) DESC, id LIMIT 100'), same('SELECT id FROM q ORDER BY upper(v), id LIMIT 100'), same('SELECT id FROM q ORDER BY d COLLATE "C", id LIMIT 100'), same('SELECT id FROM q ORDER BY d COLLATE "C" DESC, id LIMIT 100'), same('SELECT id FROM q ORDER BY c::text, id LIMIT 100');
SELECT same('SELECT id, n FROM q ORDER BY n, id FETCH FIRST 40 ROWS WITH TIES'), same('SELECT * FROM (SELECT id, n FROM q ORDER BY n, id LIMIT 2000) s WHERE id % 2 = 0'), same('SELECT x.id, y.id FROM th x, LATERAL (SELECT id FROM q WHERE k = x.k ORDER BY n DESC, id LIMIT 2) y WHERE x.id < 12 ORDER BY 1, 2'), same('SELECT id FROM q WHERE id < 0 ORDER BY n LIMIT 3');
-- What is not for it.
SELECT query FROM (VALUES ('SELECT id FROM tg ORDER BY d LIMIT 3'), ('SELECT id FROM tg ORDER BY t || ''x'' LIMIT 3'), ('SELECT id FROM tg ORDER BY left(n, 3) LIMIT 3'), ('SELECT id FROM tg ORDER BY t, v, c, n, k LIMIT 3'), ('SELECT n, count(*) FROM tg GROUP BY n ORDER BY n LIMIT 3'), ('SELECT g.id FROM tg g JOIN ta a ON g.id = a.id ORDER BY g.t LIMIT 3')) v (query)
WHERE place(query) IS NOT NULL;
-- A cursor, in both directions; a plan that is kept.
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id, n FROM tg ORDER BY n DESC, id LIMIT (SELECT 100000);
FETCH 2 FROM c;
MOVE 1500 FROM c;
FETCH 2 FROM c;
MOVE ABSOLUTE 40 IN c;
FETCH 2 FROM c;
COMMIT;
SELECT id, n FROM th ORDER BY n DESC, id LIMIT 2 OFFSET 1502;
SET plan_cache_mode = force_generic_plan;
PREPARE first(text, bigint) AS SELECT id, n FROM ta WHERE t < $1 IS NOT TRUE ORDER BY n, id LIMIT $2;
EXECUTE first('x', 2);
EXECUTE first(NULL, 3);
DEALLOCATE ALL;
RESET plan_cache_mode;
-- Own rows and deletions; a text that is compressed.
BEGIN;
INSERT INTO th SELECT 5000 + i, 'own ' || i, NULL, NULL, 'the first thirty-two bytes of it,' || i, 'd', i FROM generate_series(1, 50) i;
INSERT INTO tg SELECT * FROM th WHERE id > 5000;
INSERT INTO ta SELECT * FROM th WHERE id > 5000;
DELETE FROM th WHERE k = 3;
DELETE FROM tg WHERE k = 3;
DELETE FROM ta WHERE k = 3;
SELECT same('SELECT id, n FROM q ORDER BY n DESC, id LIMIT 300'), same('SELECT id, t FROM q ORDER BY t, id LIMIT 300');
ROLLBACK;
ALTER FOREIGN TABLE tg ALTER COLUMN d OPTIONS (ADD compression 'pglz');
INSERT INTO tg SELECT 6000, NULL, NULL, NULL, '', repeat('long ', 500);
SELECT place('SELECT id FROM tg ORDER BY d COLLATE "C" DESC LIMIT 1'), answer('SELECT id FROM tg ORDER BY d COLLATE "C" DESC LIMIT 1'), place('SELECT id FROM tg ORDER BY n LIMIT 1'), answer('SELECT id FROM tg ORDER BY n LIMIT 1');
-- More rows without an order than are put into one: the local plan has them, behind those that have one.
CREATE FOREIGN TABLE tm (id int, t text COLLATE "C" NOT NULL) SERVER gstore_fdw;
INSERT INTO tm SELECT i, CASE WHEN i % 100 = 0 THEN 'a' || i ELSE 'b' || repeat('b', 50) || i * 7919 % 70000 END FROM generate_series(1, 70000) i;
SELECT place('SELECT id FROM tm ORDER BY t DESC LIMIT 3'), answer('SELECT id, right(t, 5) FROM tm ORDER BY t DESC LIMIT 3'), place('SELECT id FROM tm ORDER BY t LIMIT 3'), answer('SELECT id, t FROM tm ORDER BY t LIMIT 3'), place('SELECT id FROM tm ORDER BY t LIMIT (SELECT 1000)');
SELECT count(*), count(DISTINCT id), bool_and(t >= before) FROM (SELECT id, t, lag(t, 1, '') OVER () AS before FROM (SELECT id, t FROM tm ORDER BY t LIMIT (SELECT 69000)) a) b;
DELETE FROM tm WHERE id % 100 <> 0 AND id % 20 <> 1;
SELECT place('SELECT id FROM tm ORDER BY t DESC LIMIT 3'), answer('SELECT id, right(t, 5) FROM tm ORDER BY t DESC LIMIT 3'), place('SELECT id FROM tm ORDER BY t LIMIT (SELECT 1000)');
SELECT count(*), count(DISTINCT id), bool_and(t >= before) FROM (SELECT id, t, lag(t, 1, '') OVER () AS before FROM (SELECT id, t FROM tm ORDER BY t LIMIT (SELECT 69000)) a) b;
-- Fewer rows, whose texts take more than work_mem.
CREATE FOREIGN TABLE tl (id int, t text COLLATE "C") SERVER gstore_fdw;
INSERT INTO tl SELECT i, CASE WHEN i % 100 = 0 THEN 'a' || i ELSE repeat('x', 40) || repeat(md5(i::text), 100) END FROM generate_series(1, 2000) i;
SET work_mem = '1MB';
SELECT place('SELECT id FROM tl ORDER BY t DESC LIMIT 3'), answer('SELECT id, substr(t, 41, 5) FROM tl ORDER BY t DESC LIMIT 3'), place('SELECT id FROM tl ORDER BY t LIMIT 3'), place('SELECT id FROM tl ORDER BY t LIMIT (SELECT 1000)');
SELECT count(*), count(DISTINCT id), bool_and(t >= before) FROM (SELECT id, t, lag(t, 1, '') OVER () AS before FROM (SELECT id, t FROM tl ORDER BY t LIMIT (SELECT 1000)) a) b;
SET work_mem = '64MB';
SELECT place('SELECT id FROM tl ORDER BY t DESC LIMIT 3'), answer('SELECT id, substr(t, 41, 5) FROM tl ORDER BY t DESC LIMIT 3'), place('SELECT id FROM tl ORDER BY t LIMIT (SELECT 1000)');
RESET work_mem;
-- Rows of long texts are read fewer at a time: those of 256 would take 100 MB.
CREATE FOREIGN TABLE tw (id int, t text) SERVER gstore_fdw;
INSERT INTO tw SELECT i, repeat('x', 400000) FROM generate_series(1, 256) i;
SELECT place('SELECT id, t FROM tw ORDER BY id LIMIT 256');
SELECT count(*), min(length(t)), max(used) < 90000000 AS bounded FROM (SELECT t, (SELECT sum(used_bytes) FROM pg_backend_memory_contexts WHERE q.id % 8 = 0) AS used FROM (SELECT id, t FROM tw ORDER BY id LIMIT 256) q) x;
DROP FOREIGN TABLE tg, ta, tm, tl, tw;
DROP TABLE th;
DROP FUNCTION answer, place, same;
