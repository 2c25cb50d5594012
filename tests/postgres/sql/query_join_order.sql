-- The first joined rows in an order on the GPU, beside the same over heaps and without the GPU.
SET cpu_tuple_cost = 0.0001;
SET enable_sort = off;
CREATE TYPE colour AS ENUM ('red', 'green', 'blue');
CREATE TABLE f_h (id int, k int, k2 int8, d date, x int, y float8, b bool, n numeric(12, 2), u uuid, c colour, s text);
INSERT INTO f_h SELECT i, CASE WHEN i % 11 <> 0 THEN i % 40 END, i % 7, CASE WHEN i % 9 <> 0 THEN date '2000-01-01' + i % 50 END, i * 7919 % 100, CASE WHEN i % 13 = 0 THEN NULL WHEN i % 64 = 1 THEN 'nan' WHEN i % 64 = 2 THEN '-0' ELSE i % 64 / 8.0 END, i % 3 = 0, nullif(i % 17, 0) * -1.01,
    CASE WHEN i % 5 <> 0 THEN md5(i::text)::uuid END, (enum_range(NULL::colour))[1 + i % 3], 'row ' || i FROM generate_series(1, 3000) i;
CREATE TABLE a_h (k int, name int2, w float4, n numeric(30, 4), u uuid, s text, a int[]);
INSERT INTO a_h SELECT i, nullif(i % 5, 3), i / 4.0, i * 12345678901234567890.1234, md5(i::text)::uuid, CASE WHEN i % 6 = 0 THEN NULL WHEN i % 6 = 1 THEN '' ELSE repeat('a ', i * 40) END, ARRAY[i, NULL] FROM generate_series(0, 29) i;
INSERT INTO a_h VALUES (NULL, 99, 'nan', 'nan', NULL, 'none', NULL);
CREATE TABLE m_h (k int2, k2 int4, v int8);
INSERT INTO m_h SELECT i % 10, i % 4, i FROM generate_series(1, 60) i;
INSERT INTO m_h VALUES (NULL, 1, 1000), (1, NULL, 2000);
CREATE TABLE e_h (k int, v int);
-- 60,000 joined rows: 20 matches of each row of l, but for one that has 20,000.
CREATE TABLE l_h (k int, v int);
INSERT INTO l_h SELECT i % 100, i FROM generate_series(1, 1999) i;
INSERT INTO l_h VALUES (-1, 0);
CREATE TABLE r_h (k int, v int, s text);
INSERT INTO r_h SELECT i % 100, i, 'r ' || i FROM generate_series(1, 2000) i;
INSERT INTO r_h SELECT -1, i, 'r ' || i FROM generate_series(1, 20000) i;
-- Comparisons with the heap: answer(), place(), same_join(); the same tables in GPU memory, in both formats.
SET test.node = '"GPU Sort Key"';
SET test.ordered = on;
SET test.shown = '60 40';
\getenv abs_srcdir PG_ABS_SRCDIR
\set include :abs_srcdir '/sql_include/query_same.sql'
\i :include
\set include :abs_srcdir '/sql_include/query_join_same.sql'
\i :include
SELECT copy_tables('{f,a,m,e,l,r}');

-- Plans.
EXPLAIN (COSTS OFF, VERBOSE) SELECT f.id, a.s FROM f_g f JOIN a_g a ON f.k = a.k WHERE f.x > 10 ORDER BY a.name DESC, f.y + 1 NULLS FIRST, f.id LIMIT 5 OFFSET 2;
SET gstore_fdw.gpu_order = off;
EXPLAIN (COSTS OFF) SELECT f.id, a.s FROM f_g f JOIN a_g a ON f.k = a.k ORDER BY f.x LIMIT 5;
RESET gstore_fdw.gpu_order;
-- Keys of each type, of any table, several of them; directions, and where NULLs are.
SELECT o, same_join('SELECT f.id, f.s, a.s FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY f.x ' || o || ', f.id LIMIT 7'), same_join('SELECT f.id, f.y FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY f.y ' || o || ', f.id LIMIT 300'), same_join('SELECT f.id, f.d FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY f.d ' || o || ', f.id DESC LIMIT 400'),
    same_join('SELECT f.id, f.n FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY f.n ' || o || ', f.id LIMIT 30'), same_join('SELECT f.u, f.id FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY f.u ' || o || ', f.id LIMIT 30'), same_join('SELECT f.id, f.b FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY f.b ' || o || ', f.id LIMIT 30'),
    same_join('SELECT a.name, f.id FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY a.name ' || o || ', f.id LIMIT 70'), same_join('SELECT a.w, a.u, f.id FROM f@ f LEFT JOIN a@ a ON f.k = a.k AND a.k > 5 ORDER BY a.w ' || o || ', f.x, f.id LIMIT 90'), same_join('SELECT m.v, a.u, a.k FROM a@ a LEFT JOIN m@ m ON a.k = m.k ORDER BY m.v ' || o || ', a.u ' || o || ', a.k LIMIT 50')
FROM unnest('{ASC,DESC,NULLS FIRST,DESC NULLS LAST}'::text[]) o;
SELECT same_join('SELECT f.id, m.v FROM f@ f JOIN m@ m ON f.k = m.k ORDER BY m.k2, f.k2 DESC, m.v, f.id LIMIT 200'), same_join('SELECT f.id, m.v, a.name FROM f@ f JOIN m@ m ON f.k = m.k JOIN a@ a ON f.k2 = a.k ORDER BY a.name DESC, m.v DESC, f.id LIMIT 100 OFFSET 1000'), same_join('SELECT f.id + m.v AS sum, m.v FROM f@ f JOIN m@ m ON f.k = m.k ORDER BY f.id + m.v, m.v LIMIT 20');
SELECT same_join('SELECT f.c, a.w, f.id FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY f.c DESC, a.w, f.id LIMIT 700'), same_join('SELECT f.k, f.id FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY a.k, f.id LIMIT 20'), same_join('SELECT f.id, a.w FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY CASE WHEN a.name > 2 THEN f.x ELSE a.k END, f.id LIMIT 20'), same_join('SELECT 1 FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY f.x LIMIT 20'), same_join('SELECT f.*, a.* FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY f.x, f.id LIMIT 10');
-- Joins of all kinds.
SELECT same_join('SELECT f.id, f.s FROM f@ f WHERE EXISTS (SELECT FROM m@ m WHERE m.k = f.k) ORDER BY f.x, f.id LIMIT 100'), same_join('SELECT f.id FROM f@ f WHERE NOT EXISTS (SELECT FROM m@ m WHERE m.k = f.k AND m.v > f.x) ORDER BY f.y DESC, f.id LIMIT 100'), same_join('SELECT f.id FROM f@ f WHERE EXISTS (SELECT FROM m@ m WHERE m.k = f.k AND m.v > f.x) ORDER BY f.k DESC, f.id LIMIT 100'),
    same_join('SELECT f.id, m.v, n.v FROM f@ f LEFT JOIN m@ m ON f.k = m.k AND m.v > f.x LEFT JOIN m@ n ON f.k2 = n.k2 AND n.v < m.v WHERE EXISTS (SELECT FROM a@ a WHERE a.k = f.x) ORDER BY n.v DESC, m.v, f.id LIMIT 150'), same_join('SELECT f.id, m.v FROM f@ f JOIN m@ m ON f.x BETWEEN m.k AND m.v WHERE f.id < 300 ORDER BY m.v - f.x DESC, f.id LIMIT 50');
SELECT same_join('SELECT f.id, a.s, f.s, m.v FROM f@ f JOIN a@ a ON f.k = a.k AND a.s LIKE ''a%'' JOIN m@ m ON m.k = a.name AND m.v < 20 WHERE f.s LIKE ''%1%'' ORDER BY f.x DESC, m.v, f.id LIMIT 40'), same_join('SELECT f.id, a.w FROM f@ f LEFT JOIN a@ a ON f.k = a.k WHERE a.w IS NULL ORDER BY f.x, f.id LIMIT 40'), same_join('SELECT f.id, f.x FROM f@ f WHERE f.k IN (SELECT k FROM m@ WHERE v > 30) ORDER BY f.k, f.id LIMIT 40');
-- No rows, fewer than the limit, limits that are not known, or none; ties at the end.
SELECT same_join('SELECT f.id, e.v FROM f@ f JOIN e@ e ON f.k = e.k ORDER BY f.x LIMIT 3'), same_join('SELECT f.id, e.v FROM f@ f LEFT JOIN e@ e ON f.k = e.k ORDER BY f.x, f.id LIMIT 3'), same_join('SELECT e.v FROM e@ e JOIN a@ a ON e.k = a.k ORDER BY e.v LIMIT 3'), same_join('SELECT f.id FROM f@ f JOIN a@ a ON f.k = a.k WHERE f.x = 7 AND a.k < 9 ORDER BY f.id LIMIT 1000000000'), same_join('SELECT f.id FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY f.x, f.id LIMIT 0');
SELECT same_join('SELECT f.id FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY f.x, f.id LIMIT (SELECT 700)'), same_join('SELECT f.id FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY f.x, f.id LIMIT 3 OFFSET (SELECT 900)'), same_join('SELECT count(*), sum(x) FROM (SELECT f.x FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY f.x FETCH FIRST 5 ROWS WITH TIES) t');
SELECT same_join('SELECT DISTINCT ON (f.x) f.x, f.id FROM (SELECT f.x, f.id FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY f.x, f.id LIMIT 500) f ORDER BY f.x, f.id'), same_join('SELECT j.id, h.v FROM (SELECT f.id, a.name FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY f.x, f.id LIMIT 70) j JOIN m_h h ON j.name = h.k ORDER BY 1, 2');
-- Very many rows: of one row, in the order of the table and against it; with little memory, and longer lists.
SELECT same_join('SELECT l.v, r.v FROM l@ l JOIN r@ r ON l.k = r.k ORDER BY r.v, l.v LIMIT 400'), same_join('SELECT l.v, r.v, r.s FROM l@ l JOIN r@ r ON l.k = r.k ORDER BY l.v, r.v DESC LIMIT 70'), same_join('SELECT l.v, r.v FROM l@ l JOIN r@ r ON l.k = r.k ORDER BY l.v DESC, r.v LIMIT 70'), same_join('SELECT count(*), sum(l::int8 * r), sum(l # r) FROM (SELECT l.v AS l, r.v AS r FROM l@ l JOIN r@ r ON l.k = r.k ORDER BY l.v, r.v LIMIT 30000) j');
SET gstore_fdw.gpu_query_memory = '4MB';
SELECT same_join('SELECT l.v, r.v FROM l@ l JOIN r@ r ON l.k = r.k ORDER BY r.v DESC, l.v LIMIT 1000'), same_join('SELECT l.v, r.v FROM l@ l JOIN r@ r ON l.k = r.k ORDER BY l.v, r.v LIMIT 10000 OFFSET 8000');
SET gstore_fdw.gpu_query_memory = '1MB';
SELECT same_join('SELECT count(*), sum(l::int8 * r) FROM (SELECT l.v AS l, r.v AS r FROM l@ l JOIN r@ r ON l.k = r.k ORDER BY l.v, r.v LIMIT 25000) j');
RESET gstore_fdw.gpu_query_memory;
SELECT same_join('SELECT count(*), sum(l::int8 * r), sum(l # r) FROM (SELECT l.v AS l, r.v AS r FROM l@ l JOIN r@ r ON l.k = r.k ORDER BY l.v, r.v LIMIT (SELECT 45000)) j');
-- An error of a row comes before the first one; none is raised for rows that others exclude.
SELECT same_join('SELECT f.id FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY 100 / (f.x - 99), f.id LIMIT 5'), same_join('SELECT f.id FROM f@ f JOIN a@ a ON f.k = a.k WHERE f.x <> 99 ORDER BY 100 / (f.x - 99), f.id LIMIT 5'), same_join('SELECT f.id FROM f@ f JOIN a@ a ON f.k = a.k WHERE 100 / (f.x - (SELECT 99)) > 0 ORDER BY f.id LIMIT 5');
-- Parameters, also as limits; rescans.
PREPARE ordered(int, int, int) AS SELECT f.id, f.x, a.name FROM f_g f JOIN a_g a ON f.k = a.k WHERE f.x > $1 ORDER BY f.x, a.name, f.id LIMIT $2 OFFSET $3;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE ordered(50, 3, 0);
EXECUTE ordered(50, 3, 0);
EXECUTE ordered(60, 2, 70);
EXECUTE ordered(98, NULL, 10);
RESET plan_cache_mode;
SELECT same_join('SELECT o.x, j.id, j.s FROM (VALUES (1), (2), (2), (77)) o (x) CROSS JOIN LATERAL (SELECT f.id, a.s FROM f@ f JOIN a@ a ON f.k = a.k WHERE f.x > o.x ORDER BY f.x, f.id LIMIT 3) j'), same_join('SELECT o.x, j.id FROM (VALUES (1), (2)) o (x), (SELECT f.id FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY f.x, f.id LIMIT 3) j ORDER BY 1, 2');
-- A cursor that goes on: what others and itself change does not matter.
BEGIN;
DECLARE joined CURSOR FOR SELECT l.v, r.v, r.s FROM l_g l JOIN r_g r ON l.k = r.k ORDER BY r.v, l.v LIMIT (SELECT 5000);
CREATE TABLE seen (number serial, a int, b int, s text);
CREATE FUNCTION see(most int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    joined refcursor := 'joined';
    a int;
    b int;
    s text;
BEGIN
    FOR i IN 1..most LOOP
        FETCH joined INTO a, b, s;
        EXIT WHEN NOT FOUND;
        INSERT INTO seen (a, b, s) VALUES (a, b, s);
    END LOOP;
END $$;
SELECT see(40);
DELETE FROM r_g WHERE v % 3 = 0;
UPDATE r_g SET s = 'other' WHERE v % 3 = 1;
INSERT INTO l_g SELECT 7, -i FROM generate_series(1, 100) i;
UPDATE l_g SET k = 8 WHERE k = 9;
SELECT see(10000);
SELECT count(*), count(*) FILTER (WHERE s = 'r ' || b) AS texts FROM seen;
SELECT count(*) FROM (SELECT row_number() OVER (ORDER BY r.v, l.v) AS number, l.v AS a, r.v AS b FROM l_h l JOIN r_h r ON l.k = r.k) h JOIN seen USING (number, a, b);
ROLLBACK;
-- Own rows and deleted rows.
BEGIN;
DELETE FROM a_g WHERE k % 3 = 1;
DELETE FROM a_h WHERE k % 3 = 1;
INSERT INTO a_g (k, name, s) VALUES (100, 1, 'own'), (1, 7, 'own too');
INSERT INTO a_h (k, name, s) VALUES (100, 1, 'own'), (1, 7, 'own too');
UPDATE f_g SET k = 100 WHERE id % 10 = 0;
UPDATE f_h SET k = 100 WHERE id % 10 = 0;
SELECT place('SELECT f.id, a.s FROM f_g f JOIN a_g a ON f.k = a.k ORDER BY f.x, f.id LIMIT 60'),
    answer('SELECT f.id, a.s FROM f_g f JOIN a_g a ON f.k = a.k ORDER BY f.x, f.id LIMIT 60') = answer('SELECT f.id, a.s FROM f_h f JOIN a_h a ON f.k = a.k ORDER BY f.x, f.id LIMIT 60') AS same;
ROLLBACK;
-- What is not for the GPU there: orders of texts, other collections of rows above, locks.
SELECT query FROM (VALUES ('SELECT f.id FROM f_g f JOIN a_g a ON f.k = a.k ORDER BY f.s LIMIT 3'), ('SELECT f.id FROM f_g f JOIN a_g a ON f.k = a.k ORDER BY f.x'), ('SELECT f.id, row_number() OVER (ORDER BY f.x) FROM f_g f JOIN a_g a ON f.k = a.k ORDER BY f.x LIMIT 3'),
    ('SELECT DISTINCT f.x FROM f_g f JOIN a_g a ON f.k = a.k JOIN m_h m ON m.k = f.k ORDER BY f.x LIMIT 3'), ('SELECT f.id FROM f_g f JOIN a_h a ON f.k = a.k ORDER BY f.x LIMIT 3'), ('SELECT f.id FROM f_g f JOIN a_g a ON f.k = a.k ORDER BY f.x LIMIT 3 FOR UPDATE OF f')) v (query)
WHERE place(query) IS NOT NULL;
DROP FOREIGN TABLE f_g, f_a, a_g, a_a, m_g, m_a, e_g, e_a, l_g, l_a, r_g, r_a;
DROP TABLE f_h, a_h, m_h, e_h, l_h, r_h;
DROP TYPE colour;
DROP FUNCTION answer, place, same, same_join, copy_tables;
