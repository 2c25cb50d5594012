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
SELECT same_join('SELECT f.id, f.s, x + name FROM f_h f JOIN a@ a ON f.k = a.k WHERE f.x > 10 AND a.ok');
SELECT same_join('SELECT f.*, a.k, a.name, a.w, a.ok, a.n, a.u, a.c, a.o, a.e, a.t FROM f_h f JOIN a@ a ON f.k = a.k');

DROP FOREIGN TABLE a_g, a_a, m_g, m_a, e_g, e_a;
DROP TABLE f_h, a_h, m_h, e_h;
DROP TYPE colour;
DROP FUNCTION answer, place, same, same_join, copy_tables;
