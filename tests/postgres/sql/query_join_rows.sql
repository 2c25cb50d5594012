-- Joins on the GPU whose rows are the result, beside the same over heaps and without the GPU.
SET cpu_tuple_cost = 0.0001;
CREATE TYPE colour AS ENUM ('red', 'green', 'blue');
CREATE TABLE f_h (id int, k int, k2 int8, d date, x int, y float8, b bool, n numeric(12, 2), u uuid, c colour, t timestamptz, s text);
INSERT INTO f_h SELECT i, CASE WHEN i % 11 <> 0 THEN i % 40 END, i % 7, date '2000-01-01' + i % 50, i % 100, (i % 64) / 8.0, i % 3 = 0, nullif(i % 13, 0) * -1.01, CASE WHEN i % 5 <> 0 THEN md5(i::text)::uuid END,
    (enum_range(NULL::colour))[1 + i % 3], timestamptz '2020-01-01 00:00+00' + i * interval '1 hour', 'row ' || i FROM generate_series(1, 3000) i;
CREATE TABLE a_h (k int, name int2, w float4, ok bool, n numeric(30, 4), u uuid, c "char", o oid);
INSERT INTO a_h SELECT i, i % 5, i / 4.0, i % 2 = 0, i * 12345678901234567890.1234, md5(i::text)::uuid, (65 + i)::"char", i * 100000000::int8 FROM generate_series(0, 29) i;
INSERT INTO a_h VALUES (NULL, 99, 'nan', true, 'nan', NULL, NULL, NULL), (NULL, NULL, '-0', NULL, NULL, NULL, NULL, NULL);
CREATE TABLE m_h (k int2, k2 int4, v int8);
INSERT INTO m_h SELECT i % 10, i % 4, i FROM generate_series(1, 60) i;
INSERT INTO m_h VALUES (NULL, 1, 1000), (1, NULL, 2000);
CREATE TABLE c_h (d date, q int, y float8);
INSERT INTO c_h SELECT date '2000-01-01' + i, i % 4, (i % 8) / 8.0 FROM generate_series(0, 40) i;
INSERT INTO c_h VALUES ('infinity', 7, 'nan'), ('1999-12-31', 8, '-0');
CREATE TABLE e_h (k int, v int);
CREATE TABLE t_h (k int, s text, z text);
INSERT INTO t_h SELECT i % 40, nullif('row ' || i % 9, 'row 8'), 'z' || i FROM generate_series(1, 200) i;
-- A result of 560,000 rows: 50 matches of each row of l, but for one that has 60,000.
CREATE TABLE l_h (k int, v int);
INSERT INTO l_h SELECT i % 200, i FROM generate_series(1, 9999) i;
INSERT INTO l_h VALUES (-1, 0);
CREATE TABLE r_h (k int, v int, s text);
INSERT INTO r_h SELECT i % 200, i, 'r ' || i FROM generate_series(1, 10000) i;
INSERT INTO r_h SELECT -1, i, 'r ' || i FROM generate_series(1, 60000) i;
-- Columns of types that programs do not have: empty values, long ones, NULL.
CREATE TABLE o_h (k int, k2 int, s text, c char(6), a int[], m text[], b bytea, n numeric, j jsonb, i interval, p point);
INSERT INTO o_h SELECT i % 40, i % 7, CASE i % 5 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN repeat('long é ', CASE WHEN i = 7 THEN 9000 ELSE i END) ELSE 'o ' || i END, CASE WHEN i % 4 <> 0 THEN (i % 3)::text END, CASE WHEN i % 3 <> 0 THEN ARRAY[i, NULL, -i] END, CASE WHEN i % 6 = 0 THEN '{}' WHEN i % 6 < 4 THEN ARRAY['a', NULL, repeat('b', i)] END,
    CASE i % 4 WHEN 0 THEN NULL WHEN 1 THEN bytea '' ELSE decode(md5(i::text), 'hex') END, CASE WHEN i % 8 <> 0 THEN i * 1.000001 END, CASE WHEN i % 2 = 0 THEN jsonb_build_object('a', i) END, CASE WHEN i % 9 <> 0 THEN i * interval '1 min' END, CASE WHEN i % 7 <> 0 THEN point(i, -i) END FROM generate_series(1, 300) i;
-- Comparisons with the heap: answer(), place(), same_join(); the same tables in GPU memory, in both formats.
SET test.node = '"GPU": "join of';
SET test.ordered = off;
SET test.shown = '60 40';
\getenv abs_srcdir PG_ABS_SRCDIR
\set include :abs_srcdir '/sql_include/query_same.sql'
\i :include
\set include :abs_srcdir '/sql_include/query_join_same.sql'
\i :include
SELECT copy_tables('{f,a,m,c,e,t,l,r,o}');
-- Texts that are compressed.
ALTER FOREIGN TABLE t_g ALTER z OPTIONS (compression 'pglz');
INSERT INTO t_h VALUES (0, 'row 9', repeat('x', 9000)), (9990, 'row 9', repeat('x', 9000));
INSERT INTO t_g VALUES (0, 'row 9', repeat('x', 9000)), (9990, 'row 9', repeat('x', 9000));
INSERT INTO t_a VALUES (0, 'row 9', repeat('x', 9000)), (9990, 'row 9', repeat('x', 9000));

-- Plans.
EXPLAIN (COSTS OFF, VERBOSE) SELECT f.id, x + name FROM f_g f JOIN a_g a ON f.k = a.k WHERE f.x > 10 AND a.ok;
EXPLAIN (COSTS OFF) SELECT c.q, x + name FROM f_g f JOIN a_g a ON f.k = a.k LEFT JOIN c_g c ON f.d = c.d WHERE NOT EXISTS (SELECT FROM m_g m WHERE m.k2 = f.k2) AND f.x > a.name ORDER BY f.id LIMIT 3;
SET gstore_fdw.gpu_joins = off;
EXPLAIN (COSTS OFF) SELECT f.id, x + name FROM f_g f JOIN a_g a ON f.k = a.k WHERE f.x > 10 AND a.ok;
RESET gstore_fdw.gpu_joins;

-- All types, of both tables; expressions above, and no column at all.
SELECT same_join('SELECT f.id, f.k, f.k2, f.d, f.x, f.y, f.b, f.n, f.u, f.c, f.t, a.k, a.name, a.w, a.ok, a.n, a.u, a.c, a.o FROM f@ f JOIN a@ a ON f.k = a.k');
SELECT same_join('SELECT f.id, f.n, f.u, a.k, a.name, a.w, a.ok, a.n, a.u, a.c, a.o FROM f@ f LEFT JOIN a@ a ON f.k = a.k AND a.name = 3');
SELECT same_join('SELECT x * name + f.k2, f.n + a.n, f.d + a.name, CASE WHEN ok THEN f.c END FROM f@ f JOIN a@ a ON f.k = a.k'), same_join('SELECT 1 AS one FROM f@ f JOIN a@ a ON f.k = a.k');
SELECT same_join('SELECT f.id, q, c.y FROM f@ f JOIN c@ c ON f.d = c.d'), same_join('SELECT f.id, c.q, c.d FROM f@ f JOIN c@ c ON f.y = c.y'), same_join('SELECT a.k, c.y FROM a@ a JOIN c@ c ON a.w = c.y');
-- Keys of several types, several keys, keys that come again; conditions on one table and on both.
SELECT same_join('SELECT f.id, v FROM f@ f JOIN m@ m ON f.k = m.k'), same_join('SELECT f.id, m.k2, v FROM f@ f JOIN m@ m ON f.k = m.k AND f.k2 = m.k2'), same_join('SELECT f.id, a.k FROM f@ f JOIN a@ a ON f.k + 1 = a.k * 2');
SELECT same_join('SELECT f.id, v FROM f@ f JOIN m@ m ON f.k2 = m.k AND m.v > 10 WHERE f.x < 50 AND f.x > m.v'), same_join('SELECT f.id, m.v, n.v FROM f@ f JOIN m@ m ON f.k = m.k JOIN m@ n ON f.k2 = n.k2 AND n.v > m.v');
-- Outer joins, semi-joins, anti-joins, chains.
SELECT same_join('SELECT f.id, name, a.k FROM f@ f LEFT JOIN a@ a ON f.k = a.k AND a.ok'), same_join('SELECT f.id, v FROM f@ f LEFT JOIN m@ m ON f.k = m.k WHERE coalesce(v, 7) % 7 = 0');
SELECT same_join('SELECT f.id, x FROM f@ f WHERE EXISTS (SELECT FROM m@ m WHERE m.k = f.k)'), same_join('SELECT f.id FROM f@ f WHERE f.k IN (SELECT k FROM m@ WHERE v > 55)'), same_join('SELECT f.id FROM f@ f LEFT JOIN a@ a ON f.k = a.k WHERE a.k IS NULL');
-- What a semi-join has found is not known behind it, though PostgreSQL knows equal columns.
SELECT same_join('SELECT f.id FROM f@ f WHERE EXISTS (SELECT FROM a@ a WHERE f.k + 1 = a.k) AND EXISTS (SELECT FROM m@ m WHERE f.k + 1 = m.k AND f.k2 = m.k2)');
SELECT same_join('SELECT f.id, name, q FROM f@ f JOIN a@ a ON f.k = a.k LEFT JOIN c@ c ON c.d = f.d AND c.q > 1 WHERE NOT EXISTS (SELECT FROM m@ m WHERE m.k2 = f.k2 AND m.k = a.name)');
SELECT same_join('SELECT f.id, a1.n, a2.n, a3.w, a4.c, a8.o FROM f@ f JOIN a@ a1 ON f.k = a1.k JOIN a@ a2 ON f.k2 = a2.k JOIN a@ a3 ON a1.name = a3.k JOIN a@ a4 ON a2.name = a4.k
    LEFT JOIN a@ a5 ON a3.name = a5.k JOIN a@ a6 ON a4.name = a6.k JOIN a@ a7 ON a5.name = a7.k JOIN a@ a8 ON a6.name = a8.k');
-- Conditions on the pair: what fails them is no match.
SELECT same_join('SELECT f.id, name FROM f@ f LEFT JOIN a@ a ON f.k = a.k AND f.x > a.name * 20'), same_join('SELECT f.id, v FROM f@ f LEFT JOIN m@ m ON f.k = m.k AND m.v > f.x'), same_join('SELECT f.id, v FROM f@ f LEFT JOIN m@ m ON f.k = m.k AND m.v > f.x AND (m.v < f.x + 20 OR f.b) WHERE coalesce(v, 7) % 3 < 2');
SELECT same_join('SELECT f.id FROM f@ f WHERE EXISTS (SELECT FROM m@ m WHERE m.k = f.k AND m.v > f.x)'), same_join('SELECT f.id FROM f@ f WHERE NOT EXISTS (SELECT FROM m@ m WHERE m.k = f.k AND m.v > f.x)'), same_join('SELECT f.id FROM f@ f WHERE NOT EXISTS (SELECT FROM m@ m WHERE m.k = f.k AND m.v + f.x < 60 AND m.k2 <> f.k2)');
SELECT same_join('SELECT f.id, m.v, n.v FROM f@ f LEFT JOIN m@ m ON f.k = m.k AND m.v > f.x LEFT JOIN m@ n ON f.k2 = n.k2 AND n.v < m.v'), same_join('SELECT f.id, m.v FROM f@ f JOIN m@ m ON f.k = m.k WHERE NOT EXISTS (SELECT FROM m@ n WHERE n.k = m.k AND n.v > m.v AND n.v < 2000)');
SELECT same_join('SELECT count(*), sum(v), sum(f.x) FROM (SELECT f.x, v FROM f@ f LEFT JOIN m@ m ON f.k = m.k AND m.v > f.x OFFSET 0) f'), same_join('SELECT f.id FROM f@ f LEFT JOIN a@ a ON f.k = a.k AND f.x > a.name * 20 WHERE a.k IS NULL');
SELECT same_join('SELECT f.id FROM f@ f LEFT JOIN m@ m ON f.k = m.k AND 100 / (m.v - f.x) > 3'), same_join('SELECT f.id FROM f@ f LEFT JOIN e@ e ON f.k = e.k AND e.v > f.x'), same_join('SELECT f.id, a.k FROM f@ f LEFT JOIN a@ a ON f.k = a.k AND f.x > a.name WHERE coalesce(a.name, f.x) > 5');
-- Behind one that is not true none is evaluated.
SELECT same_join('SELECT f.id, v FROM f@ f LEFT JOIN m@ m ON f.k = m.k AND m.v > f.x + 5000 AND m.v + f.x > (SELECT 1 / min(0) FROM m_h)'), same_join('SELECT f.id FROM f@ f WHERE NOT EXISTS (SELECT FROM m@ m WHERE m.k = f.k AND nullif(f.x, f.x) > m.v AND m.v + f.x > (SELECT 1 / min(0) FROM m_h))'),
    same_join('SELECT f.id, v FROM f@ f LEFT JOIN m@ m ON f.k = m.k AND m.v > f.x + 1900 AND m.v + f.x > (SELECT 1 / min(0) FROM m_h)'), same_join('SELECT f.id FROM f@ f WHERE EXISTS (SELECT FROM m@ m WHERE m.k = f.k AND nullif(f.x, 7) > m.v AND 100 / (f.x - 7) > m.v)');
-- Nor behind a limit.
SELECT same_join('SELECT 1 AS one FROM f@ f JOIN m@ m ON f.k = m.k WHERE f.id < 2900 OR m.v + f.x = (SELECT 1 / min(0) FROM m_h) LIMIT 1');
-- One that is computed above, too.
SELECT same_join('SELECT f.id, (f.x > a.name AND f.x > a.k) AS above FROM f@ f LEFT JOIN a@ a ON f.k = a.k AND f.x > a.name AND f.x > a.k'), same_join('SELECT f.id, (a.ok AND a.name > 2) AS above FROM f@ f LEFT JOIN a@ a ON f.k = a.k AND a.ok AND a.name > 2');
-- Conditions on texts: of the outer table, of the inner one, of joined rows, of the pair.
SELECT same_join('SELECT f.id, a.name FROM f@ f JOIN a@ a ON f.k = a.k WHERE f.s LIKE ''row 1%'''), same_join('SELECT f.id, t.k FROM f@ f JOIN t@ t ON f.k = t.k AND t.s IN (''row 1'', ''row 2'')'), same_join('SELECT f.id, t.k FROM f@ f LEFT JOIN t@ t ON f.k = t.k WHERE t.s IS NULL OR t.s = ''row 3''');
SELECT same_join('SELECT f.id, t.k FROM f@ f LEFT JOIN t@ t ON f.k = t.k AND (t.s = ''row 3'' OR f.s LIKE ''%9'')'), same_join('SELECT f.id FROM f@ f WHERE EXISTS (SELECT FROM t@ t WHERE f.k = t.k AND (length(t.s) > 90 OR f.x < 3))'), same_join('SELECT f.id FROM f@ f WHERE NOT EXISTS (SELECT FROM t@ t WHERE f.k = t.k AND (t.s <> ''row 2'') = f.b)');
-- One that is compressed: of a row, also of one of the last ones, before any is returned; of no row.
SELECT same_join('SELECT f.id, t.k FROM t@ t JOIN f@ f ON f.k = t.k WHERE t.z LIKE ''%x'' OR f.x > 3'), same_join('SELECT f.id, t.k FROM f@ f LEFT JOIN t@ t ON f.k = t.k AND (t.z LIKE ''z1%'' OR f.x = 77)'), same_join('SELECT f.id, t.k FROM f@ f JOIN t@ t ON f.k = t.k WHERE f.k <> 0 AND (t.z LIKE ''z1%'' OR f.b)');
SELECT same_join('SELECT count(*), sum(a::int8 * b) FROM (SELECT l.v AS a, r.v AS b FROM l@ l JOIN r@ r ON l.k = r.k LEFT JOIN t@ t ON r.v = t.k WHERE (t.z LIKE ''z1%'') IS NOT TRUE OFFSET 0) j');
-- Columns that are read by the numbers of rows: of the outer table, of inner ones, of several; where a left join has no row; beside values, and in expressions above.
SELECT same_join('SELECT f.id, f.s FROM f@ f JOIN a@ a ON f.k = a.k'), same_join('SELECT f.id, t.s, t.z FROM f@ f JOIN t@ t ON f.k = t.k'), same_join('SELECT f.s, t.z, o.s, o.k2, f.n, f.u FROM f@ f JOIN t@ t ON f.k = t.k JOIN o@ o ON f.k = o.k AND f.k2 = o.k2');
SELECT same_join('SELECT f.id, o.s, o.c, o.a, o.m, o.b, o.n, o.j, o.i, o.p::text FROM f@ f JOIN o@ o ON f.k = o.k'), same_join('SELECT f.id, f.s, o.m, o.s, o.a, o.k FROM f@ f LEFT JOIN o@ o ON f.id = o.k + 30 AND o.k2 > 2'), same_join('SELECT f.id, o.s, t.s FROM f@ f LEFT JOIN o@ o ON f.k = o.k AND o.k2 = f.k2 LEFT JOIN t@ t ON t.k = o.k2 + 20');
SET enable_sort = off;
SELECT same_join('SELECT length(o.s), o.a[1] + f.x, upper(f.s), o.s IS NULL FROM f@ f JOIN o@ o ON f.k = o.k'), same_join('SELECT f.s FROM f@ f WHERE EXISTS (SELECT FROM o@ o WHERE o.k = f.k AND o.s IS NULL)'), same_join('SELECT f.s, f.id FROM f@ f WHERE NOT EXISTS (SELECT FROM o@ o WHERE o.k = f.k AND o.a IS NOT NULL AND o.k2 > f.k2)'),
    same_join('SELECT o.s, j, f.s FROM f@ f JOIN o@ o ON f.k = o.k ORDER BY o.s, j, f.s LIMIT 7'), same_join('SELECT DISTINCT ON (o.s) o.s, f.s, f.id FROM f@ f JOIN o@ o ON f.k = o.k ORDER BY o.s, f.id');
RESET enable_sort;
SELECT same_join('SELECT f.id, o.s FROM f@ f JOIN o@ o ON f.k = o.k AND o.s LIKE ''long%'' WHERE f.s LIKE ''%7'''), same_join('SELECT o.s, e.k FROM o@ o LEFT JOIN e@ e ON o.k = e.k'), same_join('SELECT o.s, f.s FROM e@ e JOIN o@ o ON e.k = o.k JOIN f@ f ON f.id = o.k'), same_join('SELECT o.s, f.s FROM o@ o JOIN f@ f ON f.id < o.k2 - 3 AND f.x > o.k');
SELECT same_join('SELECT count(*), sum(a::int8 * b), sum(length(s)), count(*) FILTER (WHERE s = ''r '' || b) FROM (SELECT l.v AS a, r.v AS b, r.s FROM l@ l JOIN r@ r ON l.k = r.k WHERE l.v BETWEEN 1 AND 300 OFFSET 0) j');
-- Tables without rows, conditions that no row meets.
SELECT same_join('SELECT f.id, e.v FROM f@ f JOIN e@ e ON f.k = e.k'), same_join('SELECT f.id, e.v FROM f@ f LEFT JOIN e@ e ON f.k = e.k'), same_join('SELECT f.id FROM f@ f WHERE NOT EXISTS (SELECT FROM e@ e WHERE f.k = e.k)');
SELECT same_join('SELECT f.k, name FROM e@ f JOIN a@ a ON f.k = a.k'), same_join('SELECT f.id FROM f@ f JOIN a@ a ON f.k = a.k WHERE a.name > 100'), same_join('SELECT f.id FROM f@ f JOIN a@ a ON f.k = a.k WHERE f.x > 1000');
-- Above it: order, limits, distinct rows, unions, subqueries, other tables.
SET enable_sort = off;
SELECT same_join('SELECT DISTINCT ON (f.k) f.k, f.id, a.n FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY f.k, f.id'), same_join('SELECT f.id, a.name FROM f@ f JOIN a@ a ON f.k = a.k ORDER BY a.name DESC, f.id LIMIT 5 OFFSET 7');
RESET enable_sort;
SELECT same_join('SELECT f.id, sum(a.name) OVER (PARTITION BY f.k2 ORDER BY f.id) FROM f@ f JOIN a@ a ON f.k = a.k'), same_join('SELECT j.id, h.v FROM (SELECT f.id, a.name FROM f@ f JOIN a@ a ON f.k = a.k OFFSET 0) j JOIN m_h h ON j.name = h.k');
SELECT same_join('SELECT count(*) FROM (SELECT f.id FROM f@ f JOIN a@ a ON f.k = a.k LIMIT 700) l'), same_join('SELECT f.id, a.name FROM f@ f JOIN a@ a ON f.k = a.k UNION ALL SELECT f.id, m.v FROM f@ f JOIN m@ m ON f.k = m.k');
-- An error of a row is PostgreSQL's own, if it evaluates it; none is raised for rows that others exclude.
SELECT same_join('SELECT f.id FROM f@ f JOIN a@ a ON f.k = a.k WHERE 10 / name > 3'), same_join('SELECT f.id, 1 / name FROM f@ f JOIN a@ a ON f.k = a.k'), same_join('SELECT f.id FROM f@ f JOIN a@ a ON f.k = a.k WHERE 100 / (name - 4) > 3 AND name < 4');
-- More rows than a piece of results, or a run, has; and where memory is too little for a run, or for the matches of one row.
SELECT same_join('SELECT count(*), sum(a::int8 * b), sum(a # b) FROM (SELECT l.v AS a, r.v AS b FROM l@ l JOIN r@ r ON l.k = r.k OFFSET 0) j');
SET gstore_fdw.gpu_query_memory = '4MB';
SELECT same_join('SELECT count(*), sum(a::int8 * b), sum(a # b) FROM (SELECT l.v AS a, r.v AS b FROM l@ l JOIN r@ r ON l.k = r.k WHERE l.v BETWEEN 1 AND 4000 OFFSET 0) j');
SELECT same_join('SELECT count(*), sum(a::int8 * b), sum(a # b) FROM (SELECT l.v AS a, r.v AS b FROM l@ l JOIN r@ r ON l.k = r.k WHERE l.v < 2000 AND 5000 / (l.v + 1) + r.v > 0 OFFSET 0) j');
SELECT same_join('SELECT count(*), sum(a::int8 * b), sum(a # b) FROM (SELECT l.v AS a, r.v AS b FROM l@ l JOIN r@ r ON l.k = r.k WHERE l.v BETWEEN 1 AND 4000 AND 5000 / (l.v + 1) + r.v > 0 OFFSET 0) j');
SELECT same_join('SELECT count(*), sum(a::int8 * b), sum(a # b) FROM (SELECT l.v AS a, r.v AS b FROM l@ l JOIN r@ r ON l.k = r.k WHERE l.v BETWEEN 1 AND 4000 AND 5000 / (l.v - 4000) + r.v > 0 OFFSET 0) j');
SET gstore_fdw.gpu_query_memory = '1MB';
SELECT same_join('SELECT count(*), sum(a::int8 * b), sum(a # b) FROM (SELECT l.v AS a, r.v AS b FROM l@ l JOIN r@ r ON l.k = r.k WHERE l.v < 1000 OFFSET 0) j');
RESET gstore_fdw.gpu_query_memory;
-- A LIMIT ends it early; so does the end of a cursor, which others' changes and own ones do not touch.
CREATE FUNCTION count_joined(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    plan text;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ' || query INTO plan;
    RETURN substring(plan FROM '"GPU Joined Rows": (\d+)');
END $$;
SELECT count_joined('SELECT l.v, r.v FROM l_g l JOIN r_g r ON l.k = r.k LIMIT 10') BETWEEN 4096 AND 50000 AS few, count_joined('SELECT l.v, r.v FROM l_g l JOIN r_g r ON l.k = r.k') AS all;
BEGIN;
DECLARE joined CURSOR FOR SELECT l.v, r.v, r.s FROM l_g l JOIN r_g r ON l.k = r.k WHERE l.v < 2000;
CREATE TABLE seen (a int, b int, s text);
DO $$
DECLARE
    joined refcursor := 'joined';
    a int;
    b int;
    s text;
BEGIN
    FOR i IN 1..6000 LOOP
        FETCH joined INTO a, b, s;
        INSERT INTO seen VALUES (a, b, s);
    END LOOP;
END $$;
DELETE FROM r_g WHERE v % 3 = 0;
UPDATE r_g SET s = 'other' WHERE v % 3 = 1;
INSERT INTO l_g SELECT 7, -i FROM generate_series(1, 100) i;
UPDATE l_g SET k = 8 WHERE k = 9;
DO $$
DECLARE
    joined refcursor := 'joined';
    a int;
    b int;
    s text;
BEGIN
    LOOP
        FETCH joined INTO a, b, s;
        EXIT WHEN NOT FOUND;
        INSERT INTO seen VALUES (a, b, s);
    END LOOP;
END $$;
SELECT count(*), sum(a::int8 * b), sum(a # b), count(*) FILTER (WHERE s = 'r ' || b) AS texts FROM seen;
SELECT count(*), sum(l.v::int8 * r.v), sum(l.v # r.v) FROM l_h l JOIN r_h r ON l.k = r.k WHERE l.v < 2000;
ROLLBACK;
-- With columns that are read.
SELECT count_joined('SELECT l.v, r.s FROM l_g l JOIN r_g r ON l.k = r.k LIMIT 10') BETWEEN 4096 AND 50000 AS few;
EXPLAIN (COSTS OFF, VERBOSE) SELECT f.id, upper(f.s), o.s, o.k2 FROM f_g f LEFT JOIN o_g o ON f.k = o.k WHERE f.x > 10;
-- Rescans: without another parameter, with one, in a LATERAL subquery; parameters of statements.
SELECT same_join('SELECT o.x, j.id, j.name FROM (VALUES (1), (2), (2), (77)) o (x) CROSS JOIN LATERAL (SELECT f.id, a.name FROM f@ f JOIN a@ a ON f.k = a.k WHERE a.name = o.x AND f.x < 9 OFFSET 0) j');
SELECT same_join('SELECT o.x, j.s, j.t FROM (VALUES (1), (2), (2), (77)) o (x) CROSS JOIN LATERAL (SELECT f.s, t.s AS t FROM f@ f JOIN t@ t ON f.k = t.k WHERE t.k = o.x AND f.x < 9 OFFSET 0) j'), same_join('SELECT o.x, j.s FROM (VALUES (1), (2)) o (x), (SELECT f.s FROM f@ f JOIN a@ a ON f.k = a.k WHERE f.x < 2 OFFSET 0) j');
SELECT same_join('SELECT o.x, (SELECT max(j.id) FROM (SELECT f.id FROM f@ f JOIN a@ a ON f.k = a.k WHERE f.x < 5 OFFSET 0) j WHERE j.id > o.x) FROM (VALUES (1), (2), (77)) o (x)');
PREPARE joined_by(int, int) AS SELECT f.id, a.name FROM f_g f JOIN a_g a ON f.k = a.k WHERE f.x > $1 AND a.name < $2 ORDER BY f.id LIMIT 3;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE joined_by(50, 3);
EXECUTE joined_by(50, 3);
EXECUTE joined_by(90, 2);
RESET plan_cache_mode;
SELECT same_join('SELECT f.id FROM f@ f JOIN a@ a ON f.k = a.k WHERE f.x = (SELECT 7) AND a.name > (SELECT min(v) FROM m_h)'), same_join('SELECT f.id FROM f@ f JOIN a@ a ON f.k = a.k WHERE f.x = (SELECT 1 / min(0) FROM m_h)');
-- What is not for the GPU there: whole rows, other columns and joins, locks, statements that write.
SELECT query FROM (VALUES ('SELECT f.id FROM f_g f JOIN t_g t ON f.s = t.s'), ('SELECT f FROM f_g f JOIN a_g a ON f.k = a.k'), ('SELECT f.ctid FROM f_g f JOIN a_g a ON f.k = a.k'), ('SELECT f.tableoid FROM f_g f JOIN a_g a ON f.k = a.k'),
    ('SELECT f.id FROM f_g f FULL JOIN a_g a ON f.k = a.k'),
    ('SELECT f.id FROM f_g f JOIN a_g a ON f.k = a.k WHERE current_setting(''test.node'') = ''''')) v (query)
WHERE place(query) IS NOT NULL;
EXPLAIN (COSTS OFF) SELECT f.id FROM f_g f JOIN a_g a ON f.k = a.k FOR UPDATE OF f;
EXPLAIN (COSTS OFF) UPDATE f_g f SET x = a.name FROM a_g a WHERE f.k = a.k AND a.ok;
-- Own rows and deleted rows of all tables.
BEGIN;
DELETE FROM a_g WHERE k % 3 = 1;
INSERT INTO a_g (k, name) VALUES (100, 1), (1, 7);
UPDATE f_g SET k = 100, s = 'own ' || id WHERE id % 10 = 0;
DELETE FROM f_g WHERE id % 17 = 3;
DELETE FROM a_h WHERE k % 3 = 1;
INSERT INTO a_h (k, name) VALUES (100, 1), (1, 7);
UPDATE f_h SET k = 100, s = 'own ' || id WHERE id % 10 = 0;
DELETE FROM f_h WHERE id % 17 = 3;
SELECT place('SELECT f.id, name, a.n FROM f_g f LEFT JOIN a_g a ON f.k = a.k'), place('SELECT f.id, f.s, name FROM f_g f LEFT JOIN a_g a ON f.k = a.k');
SELECT f.id, f.s, name FROM f_g f LEFT JOIN a_g a ON f.k = a.k EXCEPT ALL SELECT f.id, f.s, name FROM f_h f LEFT JOIN a_h a ON f.k = a.k;
SELECT f.id, f.s, name FROM f_h f LEFT JOIN a_h a ON f.k = a.k EXCEPT ALL SELECT f.id, f.s, name FROM f_g f LEFT JOIN a_g a ON f.k = a.k;
SELECT f.id, name, a.n FROM f_g f LEFT JOIN a_g a ON f.k = a.k EXCEPT ALL SELECT f.id, name, a.n FROM f_h f LEFT JOIN a_h a ON f.k = a.k;
SELECT f.id, name, a.n FROM f_h f LEFT JOIN a_h a ON f.k = a.k EXCEPT ALL SELECT f.id, name, a.n FROM f_g f LEFT JOIN a_g a ON f.k = a.k;
ROLLBACK;
SELECT same_join('SELECT f.id, name, a.n FROM f@ f LEFT JOIN a@ a ON f.k = a.k');
-- Columns that came later, or have another type now.
ALTER FOREIGN TABLE a_g ADD COLUMN later int DEFAULT 5, ADD COLUMN said text, DROP COLUMN o;
ALTER TABLE a_h ADD COLUMN later int DEFAULT 5, ADD COLUMN said text, DROP COLUMN o;
ALTER FOREIGN TABLE a_a ADD COLUMN later int DEFAULT 5, ADD COLUMN said text, DROP COLUMN o;
SELECT same_join('SELECT f.id, a.later, a.said FROM f@ f JOIN a@ a ON f.k = a.k');
INSERT INTO a_g (k, said) VALUES (31, 'so'), (32, NULL);
INSERT INTO a_a (k, said) VALUES (31, 'so'), (32, NULL);
INSERT INTO a_h (k, said) VALUES (31, 'so'), (32, NULL);
SELECT same_join('SELECT f.id, a.said, f.s FROM f@ f JOIN a@ a ON f.k = a.k');
-- It ends with its statement.
SET LOCAL statement_timeout = '300ms' \; SELECT count(*) FROM (SELECT l.v, r.v, m.v FROM r_g l JOIN r_g r ON l.k = r.k JOIN r_g m ON r.k = m.k OFFSET 0) j;
SELECT same_join('SELECT f.id, name FROM f@ f JOIN a@ a ON f.k = a.k');
-- A cursor goes on as it began, whatever is set meanwhile: one row has 60,000 matches, for which there would be no room now.
BEGIN;
SET LOCAL TimeZone = 'UTC';
DECLARE kept CURSOR FOR SELECT l.v, r.v FROM l_g l JOIN r_g r ON l.k = r.k WHERE l.v >= 0;
MOVE 1 IN kept;
SET LOCAL gstore_fdw.gpu_query_memory = 1;
SET LOCAL TimeZone = 'America/New_York';
MOVE FORWARD ALL IN kept;
ROLLBACK;
-- Row security is evaluated where PostgreSQL evaluates it: before what may tell of a row.
CREATE ROLE join_rows_reader;
GRANT SELECT ON f_g, a_g TO join_rows_reader;
CREATE VIEW shown WITH (security_barrier) AS SELECT * FROM a_g WHERE name < 3;
GRANT SELECT ON shown TO join_rows_reader;
SET ROLE join_rows_reader;
EXPLAIN (COSTS OFF) SELECT f.id FROM f_g f JOIN shown a ON f.k = a.k WHERE 10 / (a.name - 4) > -100;
SELECT count(*) FROM (SELECT f.id FROM f_g f JOIN shown a ON f.k = a.k WHERE 10 / (a.name - 4) > -100 OFFSET 0) j;
SELECT f.id FROM f_g f JOIN m_g m ON f.k = m.k;
RESET ROLE;
DROP VIEW shown;
DROP OWNED BY join_rows_reader;
DROP ROLE join_rows_reader;
DROP FOREIGN TABLE f_g, f_a, a_g, a_a, m_g, m_a, c_g, c_a, e_g, e_a, t_g, t_a, l_g, l_a, r_g, r_a, o_g, o_a;
DROP TABLE f_h, a_h, m_h, c_h, e_h, t_h, l_h, r_h, o_h;
DROP TYPE colour;
DROP FUNCTION answer, place, same, same_join, copy_tables, count_joined;
