-- Joins on the GPU whose outer rows are of no table of ours, beside the same over heaps and without the GPU.
SET cpu_tuple_cost = 0.0001;
CREATE TYPE colour AS ENUM ('red', 'green', 'blue');
CREATE TABLE f_h (id int, k int, k2 int8, d date, x int, y float8, b bool, n numeric(12, 2), u uuid, c colour, t timestamptz, s text, q "char", o oid, w float4);
INSERT INTO f_h SELECT i, CASE WHEN i % 11 <> 0 THEN i % 40 END, i % 7, date '2000-01-01' + i % 50, i % 100, (i % 64) / 8.0, i % 3 = 0, nullif(i % 13, 0) * -1.01, CASE WHEN i % 5 <> 0 THEN md5((i % 50)::text)::uuid END,
    (enum_range(NULL::colour))[1 + i % 3], timestamptz '2020-01-01 00:00+00' + i * interval '1 hour', 'row ' || i, (65 + i % 40)::"char", i % 30 * 100000000::int8, CASE i % 9 WHEN 0 THEN 'nan' WHEN 1 THEN '-0' ELSE i % 9 / 4.0 END FROM generate_series(1, 9000) i;
CREATE TABLE a_h (k int, name int2, w float4, ok bool, n numeric(12, 2), u uuid, c "char", o oid, e colour, t timestamptz, s text);
INSERT INTO a_h SELECT i, i % 5, i / 4.0, i % 2 = 0, i * -1.01, md5(i::text)::uuid, (65 + i)::"char", i * 100000000::int8, (enum_range(NULL::colour))[1 + i % 2], timestamptz '2020-01-01 00:00+00' + i * interval '1 day', 'a ' || i FROM generate_series(0, 29) i;
INSERT INTO a_h VALUES (NULL, 99, 'nan', true, 'nan', NULL, NULL, NULL), (NULL, NULL, '-0', NULL, NULL, NULL, NULL, NULL);
CREATE TABLE m_h (k int2, k2 int4, v int8);
INSERT INTO m_h SELECT i % 10, i % 4, i FROM generate_series(1, 60) i;
INSERT INTO m_h VALUES (NULL, 1, 1000), (1, NULL, 2000);
CREATE TABLE e_h (k int, v int);
-- Comparisons with the heap: answer(), place(); the inner tables in GPU memory, in both formats.
SET test.node = '"GPU": "join of rows';
SET test.ordered = off;
SET test.shown = '60 40';
\getenv abs_srcdir PG_ABS_SRCDIR
\set include :abs_srcdir '/sql_include/query_same.sql'
\i :include
\set include :abs_srcdir '/sql_include/query_join_same.sql'
\i :include
SELECT copy_tables('{a,m,e}');
ANALYZE f_h;

-- Plans.
EXPLAIN (COSTS OFF, VERBOSE) SELECT f.id, f.s, x + name FROM f_h f JOIN a_g a ON f.k = a.k WHERE f.x > 10 AND a.ok;
SET gstore_fdw.gpu_joins = off;
EXPLAIN (COSTS OFF) SELECT f.id, f.s, x + name FROM f_h f JOIN a_g a ON f.k = a.k WHERE f.x > 10 AND a.ok;
RESET gstore_fdw.gpu_joins;
EXPLAIN (COSTS OFF, VERBOSE) SELECT f.k2, count(*), sum(f.x), avg(f.y), max(f.n) FROM f_h f LEFT JOIN a_g a ON f.k = a.k AND f.x > a.name GROUP BY 1 HAVING count(*) > 3;
EXPLAIN (COSTS OFF) SELECT f.s, a.w, m.v FROM f_h f JOIN a_g a ON f.k = a.k JOIN m_a m ON m.k = a.name WHERE NOT EXISTS (SELECT FROM m_g n WHERE n.k2 = f.k2 AND n.k = a.k);

-- All types: of outer rows also those that the GPU has not; keys, conditions, no column at all.
SELECT same_join('SELECT f.id, f.s, x + name FROM f_h f JOIN a@ a ON f.k = a.k WHERE f.x > 10 AND a.ok');
SELECT same_join('SELECT f.*, a.k, a.name, a.w, a.ok, a.n, a.u, a.c, a.o, a.e, a.t FROM f_h f JOIN a@ a ON f.k = a.k'), same_join('SELECT f, f.ctid, f.tableoid::regclass, a.k FROM f_h f JOIN a@ a ON f.k = a.k WHERE f.id < 100'), same_join('SELECT 1 AS one FROM f_h f, a@ a WHERE f.id < 50');
SELECT same_join(format('SELECT f.id, a.k FROM f_h f JOIN a@ a ON %s', on_)) FROM unnest('{f.y = a.w,f.w = a.w,f.n = a.n,f.u = a.u,f.q = a.c,f.o = a.o,f.c = a.e,f.t = a.t,f.b = a.ok AND f.id < 100,f.k2 = a.name,f.k + 1 = a.k * 2,f.n > a.n AND f.id < 50,f.u = a.u AND f.k2 = a.name,f.x BETWEEN a.k AND a.k + 2,f.c > a.e AND f.id < 50,f.k = a.k AND extract(year FROM f.d) > 1999 AND f.t > a.t}'::text[]) on_;
-- Outer joins, semi-joins, anti-joins, chains; conditions on the pair.
SELECT same_join('SELECT f.id, a.name FROM f_h f LEFT JOIN a@ a ON f.k = a.k AND a.name = 3'), same_join('SELECT f.id, f.s FROM f_h f WHERE EXISTS (SELECT FROM m@ m WHERE m.k = f.k)'), same_join('SELECT f.id, f.s FROM f_h f WHERE NOT EXISTS (SELECT FROM m@ m WHERE m.k = f.k AND m.v > f.x)');
SELECT same_join('SELECT f.id, f.s, name, a.w, v FROM f_h f JOIN a@ a ON f.k = a.k LEFT JOIN m@ m ON m.k = a.name AND m.v > f.x WHERE NOT EXISTS (SELECT FROM m@ n WHERE n.k2 = f.k2 AND n.k = a.name)'), same_join('SELECT f.id, m.v, n.v FROM f_h f LEFT JOIN m@ m ON f.k = m.k AND m.v > f.x LEFT JOIN m@ n ON f.k2 = n.k2 AND n.v < m.v');
SELECT same_join('SELECT f.id, v FROM f_h f LEFT JOIN m@ m ON f.k = m.k WHERE coalesce(v, 7) % 7 = 0'), same_join('SELECT f.id, f.s FROM f_h f LEFT JOIN a@ a ON f.k = a.k WHERE a.k IS NULL'), same_join('SELECT f.id, (f.x > a.name AND f.x > a.k) AS both FROM f_h f LEFT JOIN a@ a ON f.k = a.k AND f.x > a.name AND f.x > a.k');
-- Columns of inner tables that programs do not have.
SELECT same_join('SELECT f.id, a.s FROM f_h f JOIN a@ a ON f.k = a.k'), same_join('SELECT f.s, a.s, b.s, b.k FROM f_h f JOIN a@ a ON f.k = a.k LEFT JOIN a@ b ON a.name = b.k AND b.ok'), same_join('SELECT f.id, m.v, a.s FROM f_h f JOIN m@ m ON f.k2 = m.k2 LEFT JOIN a@ a ON a.k = m.v');
-- Tables without rows; no outer row, of which nothing is asked.
SELECT same_join('SELECT f.id, e.v FROM f_h f JOIN e@ e ON f.k = e.k'), same_join('SELECT f.id, e.v FROM f_h f LEFT JOIN e@ e ON f.k = e.k'), same_join('SELECT f.id FROM f_h f WHERE NOT EXISTS (SELECT FROM e@ e WHERE f.k = e.k)'), same_join('SELECT f.k, a.name FROM e_h f JOIN a@ a ON f.k = a.k');
-- Other rows than those of a heap: joins, groups, VALUES, functions, partitions, tables of ours in subqueries.
CREATE TABLE p_h (id int, k int, s text, n numeric(12, 2)) PARTITION BY HASH (id);
CREATE TABLE p0_h PARTITION OF p_h FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE FOREIGN TABLE p1_h PARTITION OF p_h FOR VALUES WITH (MODULUS 2, REMAINDER 1) SERVER gstore_fdw;
INSERT INTO p_h SELECT id, k, s, n FROM f_h WHERE id < 1000;
ANALYZE p_h;
SELECT same_join('SELECT f.*, a.name FROM (VALUES (1, ''x''), (2, ''y''), (77, NULL)) f (k, s) JOIN a@ a USING (k)'), same_join('SELECT f, a.name FROM generate_series(1, 50) f JOIN a@ a ON f = a.k'), same_join('SELECT f.*, a.name FROM (SELECT k, count(*), max(s) AS s FROM f_h GROUP BY k LIMIT 33) f JOIN a@ a USING (k)');
SELECT same_join('SELECT f.id, g.s, a.name FROM f_h f JOIN f_h g ON f.id = g.id + 1 JOIN a@ a ON a.k = f.k'), same_join('SELECT p.id, p.s, a.name FROM p_h p JOIN a@ a ON a.k = p.k'), same_join('SELECT b.s, a.name FROM (SELECT k, s FROM a@ OFFSET 0) b JOIN a@ a USING (k)'), same_join('SELECT f.id, a.w FROM (SELECT id, k, random() < 2 AS r FROM f_h OFFSET 0) f JOIN a@ a ON f.k = a.k AND f.r');
-- What subqueries below outer joins compute: equal expressions have values of their own, NULL where the subquery has no row.
SET join_collapse_limit = 1;
SELECT same_join('SELECT f.id, b.one, c.one AS other, a.name FROM f_h f LEFT JOIN (SELECT 1 AS one, k FROM m_h) b ON b.k = f.k LEFT JOIN (SELECT 1 AS one, k2 FROM m_h) c ON c.k2 = f.x JOIN a@ a ON a.k = f.k WHERE f.id < 200');
SELECT same_join('SELECT f.id, f.x, b.x AS other, a.name FROM f_h f LEFT JOIN LATERAL (SELECT f.x, m.k FROM m_h m) b ON b.k = f.k JOIN a@ a ON a.k = f.x AND f.x >= a.name'), same_join('SELECT f.x, count(b.x), count(*) FROM f_h f LEFT JOIN LATERAL (SELECT f.x, m.k FROM m_h m) b ON b.k = f.k JOIN a@ a ON a.k = f.x GROUP BY 1');
RESET join_collapse_limit;
-- Groups, which PostgreSQL combines: of each batch.
SET test.node = '"GPU": "aggregate on rows';
SELECT same_join('SELECT count(*), sum(f.x), sum(name) FROM f_h f JOIN a@ a ON f.k = a.k'), same_join('SELECT f.k2, count(*), sum(f.x), sum(name), avg(f.y), max(f.n), min(f.d) FROM f_h f JOIN a@ a ON f.k = a.k GROUP BY 1'), same_join('SELECT f.k2, count(*), sum(f.x) FROM f_h f JOIN a@ a ON f.k = a.k GROUP BY 1 HAVING sum(f.x) > 41900 ORDER BY 3 DESC LIMIT 4');
SELECT same_join('SELECT a.s, count(*), variance(f.x), stddev(f.k2), avg(f.x), sum(f.k2), avg(f.k2), bool_or(f.b), count(f.n), sum(f.y) FROM f_h f LEFT JOIN a@ a ON f.k = a.k GROUP BY 1'), same_join('SELECT f.u, f.c, min(f.t), max(a.o), count(*) FILTER (WHERE f.x > a.k) FROM f_h f LEFT JOIN a@ a ON f.k = a.k GROUP BY 1, 2'), same_join('SELECT f.x + a.name AS z, count(*) FROM f_h f JOIN a@ a ON f.k = a.k GROUP BY 1');
-- Which columns are NULL, of any type; of partitions, which then give no values.
SELECT same_join('SELECT count(*), count(p.n), count(p.s) FROM p_h p JOIN a@ a ON a.k = p.k');
SELECT same_join('SELECT count(f.s), count(a.s), count(*) FILTER (WHERE f.s IS NULL), count(*) FROM f_h f LEFT JOIN a@ a ON f.k = a.k'), same_join('SELECT count(f.s), count(f.r), count(f.k), sum(f.k), count(*) FROM (VALUES (1, ''x'', 1.5), (2, NULL, 7.25), (3, ''z'', NULL), (NULL, NULL, NULL)) f (k, s, r) LEFT JOIN a@ a USING (k)');
SELECT same_join('SELECT count(*), sum(v) FROM f_h f JOIN m@ m ON f.k = m.k WHERE f.id < 0'), same_join('SELECT f.k, count(*), sum(v) FROM f_h f JOIN m@ m ON f.k = m.k WHERE f.id < 0 GROUP BY 1'), same_join('SELECT count(*), max(f.x) FROM f_h f WHERE NOT EXISTS (SELECT FROM m@ m WHERE m.k = f.k)'), same_join('SELECT a.name, count(*), sum(m.v), sum(f.x) FROM f_h f JOIN a@ a ON f.k = a.k JOIN m@ m ON m.k2 = f.k2 AND m.v > f.x GROUP BY a.name');
SELECT same_join('SELECT DISTINCT f.k2, a.name + f.x AS z FROM f_h f JOIN a@ a ON f.k = a.k'), same_join('SELECT DISTINCT a.s FROM f_h f JOIN a@ a ON f.k = a.k'), same_join('SELECT DISTINCT f.c, f.u FROM f_h f LEFT JOIN a@ a ON f.k = a.k');
EXPLAIN (COSTS OFF) SELECT DISTINCT f.k2, a.name + f.x AS z FROM f_h f JOIN a_g a ON f.k = a.k;
-- What is not for the GPU there: aggregates whose states are not made there, texts of outer rows as keys, DISTINCT.
SELECT query FROM (VALUES ('SELECT count(DISTINCT f.x) FROM f_h f JOIN m_g m ON f.k = m.k'), ('SELECT f.k, sum(f.n) FROM f_h f JOIN m_g m ON f.k = m.k GROUP BY 1'), ('SELECT f.s, count(*) FROM f_h f JOIN m_g m ON f.k = m.k GROUP BY 1'), ('SELECT string_agg(f.s, '''') FROM f_h f JOIN m_g m ON f.k = m.k'), ('SELECT f.k2, f.x, count(*) FROM f_h f JOIN m_g m ON f.k = m.k GROUP BY ROLLUP (1, 2)')) v (query) WHERE place(query) IS NOT NULL;
SET test.node = '"GPU": "join of rows';
SELECT query FROM (VALUES ('SELECT f.id FROM f_h f FULL JOIN a_g a ON f.k = a.k'), ('SELECT f.id FROM a_g a LEFT JOIN f_h f ON f.k = a.k'), ('SELECT f.id FROM f_h f JOIN a_g a ON f.k = a.k AND f.s < ''row 2''  || a.k'), ('SELECT f.id, l.k FROM f_h f, LATERAL (SELECT * FROM a_g a WHERE a.k = f.k OFFSET 0) l')) v (query) WHERE place(query) IS NOT NULL;
EXPLAIN (COSTS OFF) SELECT f.id FROM f_h f JOIN a_g a ON f.k = a.k FOR UPDATE OF f;
EXPLAIN (COSTS OFF) UPDATE f_h f SET x = a.name FROM a_g a WHERE f.k = a.k AND a.ok;

-- Batches that the GPU cannot do: the first one, a later one; errors are those of PostgreSQL, and of rows that it comes to.
SELECT same_join('SELECT f.id FROM f_h f JOIN a@ a ON f.k = a.k AND 100 / (f.x - 7) > a.k'), same_join('SELECT f.id FROM f_h f JOIN a@ a ON f.k = a.k AND 100 / (f.id - 8999) < a.k'), same_join('SELECT f.id FROM f_h f JOIN a@ a ON f.k = a.k AND 100 / (f.x - a.k) > 1 WHERE f.x > 40'), same_join('SELECT sum(f.k2 * 4611686018427387904) FROM f_h f JOIN a@ a ON f.k = a.k');
UPDATE f_h SET n = 'nan' WHERE id = 6000;
SELECT same_join('SELECT f.id, f.n FROM f_h f JOIN a@ a ON f.n = a.n'), same_join('SELECT f.id, f.n FROM f_h f JOIN a@ a ON f.k = a.k'), same_join('SELECT a.name, count(*), max(f.n) FROM f_h f JOIN a@ a ON f.k = a.k GROUP BY 1');
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT f.id, f.n FROM f_h f JOIN a_g a ON f.n = a.n;
UPDATE f_h SET n = '0' WHERE id = 6000;

-- Parameters, values of subqueries, and plans that begin anew: with other parameters, of the outer rows or of the join; also after a batch that the GPU cannot do.
PREPARE with_parameter (int, int) AS SELECT count(*), sum(id), sum(v) FROM (SELECT f.id, m.v FROM f_h f JOIN m_g m ON f.k = m.k AND m.v > $1 WHERE f.x < $2 OFFSET 0) f;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE with_parameter (10, 50);
EXECUTE with_parameter (10, 50);
EXECUTE with_parameter (20, 90);
EXECUTE with_parameter (NULL, 90);
SELECT count(*), sum(id), sum(v) FROM (SELECT f.id, m.v FROM f_h f JOIN m_h m ON f.k = m.k AND m.v > 20 WHERE f.x < 90) f;
RESET plan_cache_mode;
DEALLOCATE with_parameter;
SELECT same_join('SELECT f.id FROM f_h f JOIN a@ a ON f.k = a.k AND a.name > (SELECT min(v) FROM m_h) + f.k2'), same_join('SELECT f.id FROM f_h f JOIN a@ a ON f.k = a.k AND a.name > f.x + 200 AND a.k + f.x = (SELECT 1 / min(0) FROM m_h)'), same_join('SELECT f.id FROM f_h f JOIN a@ a ON f.k = a.k AND a.name = (SELECT 1 / min(0) FROM m_h) + f.x');
CREATE TABLE o_h (x int, v int);
INSERT INTO o_h SELECT i, i * 3 FROM generate_series(1, 9) i;
EXPLAIN (COSTS OFF) SELECT o.x, (SELECT sum(s) FROM (SELECT f.id + m.v AS s FROM f_h f JOIN m_g m ON f.k = m.k AND m.v > o.v WHERE f.x < o.x OFFSET 0) j) FROM o_h o;
SELECT o.x, (SELECT sum(s) FROM (SELECT f.id + m.v AS s FROM f_h f JOIN m_g m ON f.k = m.k AND m.v > o.v WHERE f.x < o.x OFFSET 0) j) AS gpu, (SELECT sum(s) FROM (SELECT f.id + m.v AS s FROM f_h f JOIN m_h m ON f.k = m.k AND m.v > o.v WHERE f.x < o.x OFFSET 0) j) AS heap FROM o_h o;
SELECT o.x, (SELECT sum(s) FROM (SELECT f.id + m.v AS s FROM f_h f JOIN m_g m ON f.k = m.k AND m.v > o.v OFFSET 0) j) AS gpu, (SELECT sum(s) FROM (SELECT f.id + m.v AS s FROM f_h f JOIN m_h m ON f.k = m.k AND m.v > o.v OFFSET 0) j) AS heap FROM o_h o;
SELECT o.x, (SELECT count(*) || ' ' || sum(m.v) FROM f_h f JOIN m_g m ON f.k = m.k JOIN m_g n ON n.k = f.k2 AND n.v > o.v WHERE f.x < o.x) AS gpu, (SELECT count(*) || ' ' || sum(m.v) FROM f_h f JOIN m_h m ON f.k = m.k JOIN m_h n ON n.k = f.k2 AND n.v > o.v WHERE f.x < o.x) AS heap FROM o_h o;
UPDATE f_h SET n = 'nan' WHERE id IN (20, 6000);
EXPLAIN (COSTS OFF) SELECT o.x, (SELECT count(*) FROM (SELECT FROM f_h f JOIN a_g a ON f.n = a.n JOIN m_a b ON b.v = f.k2 + o.x WHERE f.x < o.x + 20 OFFSET 0) j) FROM o_h o;
SELECT o.x, (SELECT count(*) FROM (SELECT FROM f_h f JOIN a_g a ON f.n = a.n JOIN m_a b ON b.v = f.k2 + o.x WHERE f.x < o.x + 20 OFFSET 0) j) AS gpu, (SELECT count(*) FROM (SELECT FROM f_h f JOIN a_h a ON f.n = a.n JOIN m_h b ON b.v = f.k2 + o.x WHERE f.x < o.x + 20 OFFSET 0) j) AS heap FROM o_h o;
SELECT o.x, (SELECT count(*) FROM (SELECT FROM f_h f JOIN a_g a ON f.n = a.n WHERE f.x < o.x + 15 OFFSET 0) j) AS gpu, (SELECT count(*) FROM (SELECT FROM f_h f JOIN a_h a ON f.n = a.n WHERE f.x < o.x + 15 OFFSET 0) j) AS heap FROM o_h o;
UPDATE f_h SET n = '0' WHERE id IN (20, 6000);
-- Plans that begin anew though nothing below has changed, as the groups above have not all been kept.
SET work_mem = '64kB';
EXPLAIN (COSTS OFF) SELECT o.x, (SELECT sum(c) + o.x FROM (SELECT f.id, count(*) AS c FROM f_h f JOIN m_g m ON f.k = m.k GROUP BY 1) j) FROM o_h o;
SELECT o.x, (SELECT sum(c) + o.x FROM (SELECT f.id, count(*) AS c FROM f_h f JOIN m_g m ON f.k = m.k GROUP BY 1) j) AS gpu, (SELECT sum(c) + o.x FROM (SELECT f.id, count(*) AS c FROM f_h f JOIN m_h m ON f.k = m.k GROUP BY 1) j) AS heap FROM o_h o WHERE o.x < 4;
SELECT o.x, (SELECT count(*) + o.x FROM (SELECT DISTINCT f.id, m.v FROM f_h f JOIN m_g m ON f.k = m.k) j) AS gpu, (SELECT count(*) + o.x FROM (SELECT DISTINCT f.id, m.v FROM f_h f JOIN m_h m ON f.k = m.k) j) AS heap FROM o_h o WHERE o.x < 4;
RESET work_mem;
-- Early ends, cursors that go back.
SELECT count(*) FROM (SELECT f.s, v FROM f_h f JOIN m_g m ON f.k = m.k LIMIT 10) j;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT f.id, f.s, a.k = f.k AS same FROM f_h f JOIN a_g a ON f.k = a.k AND a.ok;
MOVE 500 c;
MOVE BACKWARD 300 c;
MOVE ALL c;
MOVE BACKWARD ALL c;
COMMIT;
-- Own rows and deleted rows, which others do not see.
BEGIN;
INSERT INTO a_g VALUES (7, 77), (35, 78);
DELETE FROM a_g WHERE k = 8;
INSERT INTO f_h (id, k, x) SELECT 10000 + i, i, 1 FROM generate_series(1, 50) i;
SELECT count(*), sum(id), sum(name) FROM (SELECT f.id, a.name FROM f_h f JOIN a_g a ON f.k = a.k OFFSET 0) j;
SET LOCAL gstore_fdw.gpu_joins = off;
SELECT count(*), sum(id), sum(name) FROM (SELECT f.id, a.name FROM f_h f JOIN a_g a ON f.k = a.k OFFSET 0) j;
ROLLBACK;
-- Conditions that may tell what a barrier hides are evaluated behind it; rights on columns.
CREATE FUNCTION tell(i int, s text) RETURNS bool LANGUAGE plpgsql COST 0.0001 AS $$ BEGIN RAISE NOTICE 'seen: % %', i, s; RETURN true; END $$;
CREATE VIEW shown WITH (security_barrier) AS SELECT id, k, s FROM f_h WHERE id < 3;
SELECT f.id, a.name FROM shown f JOIN a_g a ON f.k = a.k WHERE tell(f.id, f.s);
EXPLAIN (COSTS OFF) SELECT f.id, a.name FROM shown f JOIN a_g a ON f.k = a.k;
SELECT count(*) FROM (SELECT f.id FROM shown f JOIN a_g a ON f.k = a.k AND 10 / (f.id - 3) < 0 OFFSET 0) j;
CREATE ROLE heap_reader;
GRANT SELECT (k, name) ON a_g TO heap_reader;
GRANT SELECT (id, k) ON f_h TO heap_reader;
SET ROLE heap_reader;
SELECT count(*) FROM (SELECT f.id, a.name FROM f_h f JOIN a_g a ON f.k = a.k OFFSET 0) j;
SELECT count(*) FROM (SELECT f.id, a.w FROM f_h f JOIN a_g a ON f.k = a.k OFFSET 0) j;
SELECT count(*) FROM (SELECT f.x FROM f_h f JOIN a_g a ON f.k = a.k OFFSET 0) j;
RESET ROLE;
DROP OWNED BY heap_reader;
DROP ROLE heap_reader;
-- Several batches, with an inner table whose deleted rows are a bitmap on the device; each batch builds its own hash table.
CREATE TABLE w_h AS SELECT i AS k FROM generate_series(1, 200000) i;
CREATE FOREIGN TABLE w_g (k int) SERVER gstore_fdw;
INSERT INTO w_g SELECT k FROM w_h;
DELETE FROM w_g WHERE k % 3 = 0;
ANALYZE w_g;
BEGIN;
INSERT INTO w_g VALUES (-1);
SELECT count(*), count(*) FILTER (WHERE k % 3 = 0) FROM (SELECT w.k FROM w_h o JOIN w_g w ON o.k = w.k OFFSET 0) j;
ROLLBACK;
DROP FOREIGN TABLE w_g;
DROP TABLE w_h;
-- Where it costs more than it saves, the GPU is not chosen.
RESET gstore_fdw.gpu_startup_cost;
RESET gstore_fdw.gpu_instruction_cost;
RESET cpu_tuple_cost;
EXPLAIN (COSTS OFF) SELECT f.id, f.s, x + name FROM f_h f JOIN a_g a ON f.k = a.k;

DROP VIEW shown;
DROP FUNCTION tell;
DROP TABLE p_h, o_h;
DROP FOREIGN TABLE a_g, a_a, m_g, m_a, e_g, e_a;
DROP TABLE f_h, a_h, m_h, e_h;
DROP TYPE colour;
DROP FUNCTION answer, place, same, same_join, copy_tables;
