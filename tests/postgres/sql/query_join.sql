-- Joins on the GPU below aggregates, beside the same over heaps and without the GPU.
-- A fact table and dimensions: unique keys, keys that come again, keys of other types, none at all.
CREATE TABLE f_h (id int, k int, k2 int8, d date, x int, y float8, b bool);
INSERT INTO f_h SELECT i, CASE WHEN i % 11 <> 0 THEN i % 40 END, i % 7, date '2000-01-01' + i % 50, i % 100, (i % 64) / 8.0, i % 3 = 0 FROM generate_series(1, 3000) i;
CREATE TABLE a_h (k int, name int, w float8, ok bool);
INSERT INTO a_h SELECT i, i % 5, i / 4.0, i % 2 = 0 FROM generate_series(0, 29) i;
INSERT INTO a_h VALUES (NULL, 99, 1, true);
CREATE TABLE m_h (k int2, k2 int4, v int8);
INSERT INTO m_h SELECT i % 10, i % 4, i FROM generate_series(1, 60) i;
INSERT INTO m_h VALUES (NULL, 1, 1000), (1, NULL, 2000);
CREATE TABLE c_h (d date, q int, y float8);
INSERT INTO c_h SELECT date '2000-01-01' + i, i % 4, (i % 8) / 8.0 FROM generate_series(0, 40) i;
INSERT INTO c_h VALUES ('infinity', 7, 'nan'), ('1999-12-31', 8, '-0');
CREATE TABLE e_h (k int, v int);
-- Comparisons with the heap: answer(), place(), same_join(); the same tables in GPU memory, in both formats.
SET test.node = '"GPU Join":';
SET test.ordered = off;
SET test.shown = '60 40';
\getenv abs_srcdir PG_ABS_SRCDIR
\set include :abs_srcdir '/sql_include/query_same.sql'
\i :include
\set include :abs_srcdir '/sql_include/query_join_same.sql'
\i :include
SELECT copy_tables('{f,a,m,c,e}');

-- Plans.
EXPLAIN (COSTS OFF) SELECT count(*), sum(x + name) FROM f_g f JOIN a_g a ON f.k = a.k WHERE f.x > 10 AND a.ok;
EXPLAIN (COSTS OFF) SELECT c.q, count(*), sum(x + name) FROM f_g f JOIN a_g a ON f.k = a.k LEFT JOIN c_g c ON f.d = c.d WHERE NOT EXISTS (SELECT FROM m_g m WHERE m.k2 = f.k2) AND f.x > a.name GROUP BY c.q HAVING count(*) > 3;
SET gstore_fdw.gpu_joins = off;
EXPLAIN (COSTS OFF) SELECT count(*), sum(x + name) FROM f_g f JOIN a_g a ON f.k = a.k WHERE f.x > 10 AND a.ok;
RESET gstore_fdw.gpu_joins;

-- One key, of several types; values of both tables in keys, conditions and aggregates.
SELECT same_join('SELECT count(*), sum(x), sum(name), sum(x * name), sum(w), min(a.k), max(f.d) FROM f@ f JOIN a@ a ON f.k = a.k');
SELECT same_join('SELECT name, ok, count(*), sum(x) FROM f@ f JOIN a@ a ON f.k = a.k GROUP BY name, ok');
SELECT same_join('SELECT q, count(*), sum(f.y), bool_or(b) FROM f@ f JOIN c@ c ON f.d = c.d GROUP BY q');
SELECT same_join('SELECT count(*), sum(c.q) FROM f@ f JOIN c@ c ON f.y = c.y'), same_join('SELECT count(*) FROM a@ a JOIN c@ c ON a.w = c.y');
SELECT same_join('SELECT count(*), sum(v) FROM f@ f JOIN m@ m ON f.k = m.k'), same_join('SELECT count(*), sum(v) FROM f@ f JOIN m@ m ON f.k2 = m.k');
SELECT same_join('SELECT count(*), sum(x) FROM f@ f JOIN a@ a ON f.k + 1 = a.k * 2'), same_join('SELECT count(*), sum(x) FROM f@ f JOIN a@ a ON f.k - a.k = 0');
SELECT same_join('SELECT count(*), sum(x) FROM f@ f JOIN a@ a ON f.k = a.k WHERE x > 20 AND ok AND (x > name * 10 OR name IS NULL) AND w < 5');
SELECT same_join('SELECT count(*) FILTER (WHERE ok), sum(CASE WHEN name > 2 THEN x ELSE a.k END), avg(coalesce(w, f.y)) FROM f@ f JOIN a@ a ON f.k = a.k');
-- Several keys, and keys that come again: rows multiply.
SELECT same_join('SELECT count(*), sum(v), sum(x) FROM f@ f JOIN m@ m ON f.k = m.k AND f.k2 = m.k2');
SELECT same_join('SELECT m.k2, count(*), sum(v), min(f.id) FROM f@ f JOIN m@ m ON f.k2 = m.k AND m.v > 10 WHERE f.x < 50 GROUP BY m.k2');
SELECT same_join('SELECT count(*), sum(m.v * n.v) FROM f@ f JOIN m@ m ON f.k = m.k JOIN m@ n ON f.k2 = n.k2 AND n.v > m.v');
SELECT same_join('SELECT count(*), sum(m.v - n.v) FROM f@ f JOIN m@ m ON f.k = m.k JOIN m@ n ON m.k2 = n.k2');
-- Outer joins, semi-joins, anti-joins.
SELECT same_join('SELECT count(*), count(name), sum(x), sum(name) FROM f@ f LEFT JOIN a@ a ON f.k = a.k'), same_join('SELECT name, count(*) FROM f@ f LEFT JOIN a@ a ON f.k = a.k AND a.ok GROUP BY name');
SELECT same_join('SELECT count(*), sum(v) FROM f@ f LEFT JOIN m@ m ON f.k = m.k'), same_join('SELECT count(*), count(a.ok) FROM f@ f LEFT JOIN a@ a ON f.k = a.k WHERE a.name IS DISTINCT FROM 3 AND coalesce(a.name, 1) > 0');
SELECT same_join('SELECT count(*), sum(q) FROM f@ f LEFT JOIN a@ a ON f.k = a.k LEFT JOIN c@ c ON c.q = a.name'), same_join('SELECT count(*), sum(x) FROM f@ f LEFT JOIN a@ a ON f.k = a.k JOIN c@ c ON c.d = f.d');
SELECT same_join('SELECT count(*), sum(x) FROM f@ f WHERE EXISTS (SELECT FROM m@ m WHERE m.k = f.k)'), same_join('SELECT count(*), sum(x) FROM f@ f WHERE f.k IN (SELECT k FROM m@ WHERE v > 55)');
SELECT same_join('SELECT count(*), sum(x) FROM f@ f WHERE NOT EXISTS (SELECT FROM m@ m WHERE m.k = f.k)'), same_join('SELECT count(*), sum(x) FROM f@ f LEFT JOIN a@ a ON f.k = a.k AND a.ok WHERE a.k IS NULL');
SELECT same_join('SELECT name, count(*) FROM f@ f JOIN a@ a ON f.k = a.k WHERE EXISTS (SELECT FROM c@ c WHERE c.d = f.d AND c.q > 1) AND NOT EXISTS (SELECT FROM m@ m WHERE m.k2 = f.k2 AND m.k = a.name) GROUP BY name');
-- Tables without rows, conditions that no row meets.
SELECT same_join('SELECT count(*), sum(e.v) FROM f@ f JOIN e@ e ON f.k = e.k'), same_join('SELECT count(*), sum(e.v) FROM f@ f LEFT JOIN e@ e ON f.k = e.k'), same_join('SELECT count(*) FROM f@ f WHERE NOT EXISTS (SELECT FROM e@ e WHERE f.k = e.k)');
SELECT same_join('SELECT name, count(*) FROM e@ f JOIN a@ a ON f.k = a.k GROUP BY name'), same_join('SELECT count(*) FROM f@ f JOIN a@ a ON f.k = a.k WHERE a.name > 100'), same_join('SELECT count(*) FROM f@ f JOIN a@ a ON f.k = a.k WHERE f.x > 1000');
-- Tables that PostgreSQL has proven to have no rows.
SET constraint_exclusion = on;
SELECT same_join('SELECT count(*), sum(x) FROM f@ f WHERE x > 5 AND x < 3'), same_join('SELECT k, count(*) FROM f@ f WHERE x > 5 AND x < 3 GROUP BY k ORDER BY k LIMIT 3'), same_join('SELECT DISTINCT k FROM f@ f WHERE x > 5 AND x < 3');
SELECT same_join('SELECT count(*), count(a.k), sum(x) FROM f@ f LEFT JOIN a@ a ON f.k = a.k AND a.name > 5 AND a.name < 3'), same_join('SELECT count(*) FROM f@ f WHERE NOT EXISTS (SELECT FROM a@ a WHERE f.k = a.k AND a.name > 5 AND a.name < 3)'), same_join('SELECT name, count(*) FROM f@ f JOIN a@ a ON f.k = a.k WHERE a.name > 5 AND a.name < 3 GROUP BY name');
SELECT same_join('SELECT count(*) FROM f@ f LEFT JOIN a@ a ON f.k = a.k WHERE x > 5 AND x < 3'), same_join('SELECT count(*), count(c.q), sum(name) FROM f@ f JOIN a@ a ON f.k = a.k LEFT JOIN c@ c ON f.d = c.d AND c.q > 5 AND c.q < 3');
SELECT count(*), count(a.k) FROM f_h f LEFT JOIN a_g a ON f.k = a.k AND a.name > 5 AND a.name < 3;
SET gstore_fdw.gpu_startup_cost = -1;
SET gstore_fdw.gpu_instruction_cost = -1;
EXPLAIN (COSTS OFF) SELECT k, count(*) FROM f_g WHERE x > 5 AND x < 3 GROUP BY k;
SET gstore_fdw.gpu_startup_cost = 0;
SET gstore_fdw.gpu_instruction_cost = 0;
RESET constraint_exclusion;
-- A chain of eight.
SELECT same_join('SELECT count(*), sum(f.x), sum(a1.name + a2.name * a3.name - a4.name), max(a8.w) FROM f@ f JOIN a@ a1 ON f.k = a1.k JOIN a@ a2 ON f.k2 = a2.k JOIN a@ a3 ON a1.name = a3.k JOIN a@ a4 ON a2.name = a4.k
    JOIN a@ a5 ON a3.name = a5.k JOIN a@ a6 ON a4.name = a6.k JOIN a@ a7 ON a5.name = a7.k JOIN a@ a8 ON a6.name = a8.k');
SELECT same_join('SELECT a2.name, q, count(*), sum(x) FROM f@ f JOIN a@ a1 ON f.k = a1.k JOIN a@ a2 ON a1.name = a2.k LEFT JOIN c@ c ON f.d = c.d GROUP BY a2.name, q');
-- An error of a row is PostgreSQL's own, if it evaluates it.
SELECT same_join('SELECT sum(1 / name) FROM f@ f JOIN a@ a ON f.k = a.k'), same_join('SELECT sum(1 / name) FROM f@ f JOIN a@ a ON f.k = a.k WHERE name <> 0'), same_join('SELECT count(*) FROM f@ f JOIN a@ a ON f.k = a.k WHERE 100 / (name - 4) > 3 AND name < 4');
-- With parameters, and with what is evaluated once.
PREPARE joined_by(int, int) AS SELECT name, count(*), sum(x) FROM f_g f JOIN a_g a ON f.k = a.k WHERE f.x > $1 AND a.name < $2 GROUP BY name ORDER BY name;
EXECUTE joined_by(50, 3);
EXECUTE joined_by(90, 2);
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE joined_by(50, 3);
EXECUTE joined_by(50, 3);
EXECUTE joined_by(90, 2);
RESET plan_cache_mode;
SELECT same_join('SELECT o.k, (SELECT count(*) FROM f@ f JOIN a@ a ON f.k = a.k WHERE a.name = o.k) FROM (VALUES (1), (2), (77)) o (k)');
-- A value of one table's condition is evaluated where rows of the others come to it: there is an outer row where the inner table is looked into, and a joined row where joins leave out rows.
SELECT same_join(q) FROM unnest('{
"SELECT count(*), sum(x) FROM f@ f JOIN a@ a ON f.k = a.k WHERE f.x > 10 AND a.w > (SELECT avg(w) FROM a_h)",
"SELECT count(*), sum(x) FROM f@ f LEFT JOIN a@ a ON f.k = a.k AND a.w > (SELECT avg(w) FROM a_h) WHERE f.x > (SELECT min(x) + 30 FROM f_h)",
"SELECT name, count(*) FROM f@ f JOIN a@ a ON f.k = a.k JOIN c@ c ON f.d = c.d WHERE f.x > (SELECT avg(x) FROM f_h) AND a.w > (SELECT avg(w) FROM a_h) AND c.y < (SELECT 0.5) GROUP BY name",
"SELECT count(*) FROM f@ f WHERE (f.x = 7 OR f.x = (SELECT max(x) FROM f_h)) AND EXISTS (SELECT FROM m@ m WHERE m.k = f.k)",
"SELECT count(*) FROM f@ f LEFT JOIN a@ a ON f.k = a.k AND a.name > (SELECT 1 / min(0) FROM m_h) WHERE f.x < 0",
"SELECT count(*) FROM f@ f LEFT JOIN a@ a ON f.k = a.k LEFT JOIN m@ m ON a.name = m.k AND m.v > (SELECT 1 / min(0) FROM m_h) WHERE f.x < 0",
"SELECT count(*) FROM f@ f WHERE f.x < 0 AND NOT EXISTS (SELECT FROM m@ m WHERE m.k = f.k AND m.v > (SELECT 1 / min(0) FROM m_h))",
"SELECT count(*) FROM f@ f LEFT JOIN a@ a ON f.k = a.k AND a.name > (SELECT 1 / min(0) FROM m_h)",
"SELECT count(*) FROM f@ f LEFT JOIN e@ e ON f.k = e.k AND e.v > (SELECT 1 / min(0) FROM m_h)",
"SELECT count(*) FROM f@ f LEFT JOIN a@ a ON f.k = a.k WHERE f.x = (SELECT 1 / min(0) FROM m_h)",
"SELECT count(*) FROM f@ f JOIN a@ a ON f.k = a.k + (SELECT 1 / min(0) FROM m_h) WHERE f.x < 0"}'::text[]) q;
SELECT answer(q), place(q) FROM unnest('{
"SELECT count(*) FROM f_g f JOIN a_g a ON f.k = a.k WHERE f.x < 0 AND a.name > (SELECT 1 / min(0) FROM m_h)",
"SELECT count(*) FROM f_g f JOIN e_g e ON f.k = e.k WHERE f.x > (SELECT 1 / min(0) FROM m_h)",
"SELECT count(*) FROM f_g f JOIN a_g a ON f.k = a.k AND a.name > 1000 WHERE f.x > (SELECT 1 / min(0) FROM m_h)",
"SELECT count(*) FROM f_g f WHERE f.x > (SELECT 1 / min(0) FROM m_h) AND EXISTS (SELECT FROM e_g e WHERE f.k = e.k)",
"SELECT count(*) FROM f_g f JOIN a_g a ON f.k = a.k JOIN e_g e ON f.d <> date ''2000-01-01'' + e.v WHERE f.x > (SELECT 1 / min(0) FROM m_h)",
"SELECT count(*) FROM f_g f JOIN a_g a ON f.k = a.k WHERE f.x > (SELECT 1 / min(0) FROM m_h)",
"SELECT count(*) FROM f_g f JOIN e_g e ON f.k + (SELECT 1 / min(0) FROM m_h) = e.k"}'::text[]) q;
-- Conditions on the pair of joins that are no inner ones.
SELECT same_join('SELECT count(*), sum(v), sum(x) FROM f@ f LEFT JOIN m@ m ON f.k = m.k AND m.v > f.x'), same_join('SELECT count(*), sum(x) FROM f@ f WHERE NOT EXISTS (SELECT FROM m@ m WHERE m.k = f.k AND m.v > f.x)'), same_join('SELECT count(*), sum(x) FROM f@ f WHERE EXISTS (SELECT FROM m@ m WHERE m.k = f.k AND m.v > f.x)');
-- What is not for the GPU there: other joins, locks.
SELECT query FROM (VALUES ('SELECT count(*) FROM f_g f FULL JOIN a_g a ON f.k = a.k'),
    ('SELECT count(*) FROM f_g f JOIN LATERAL (SELECT f.k + m.k AS s FROM m_g m LIMIT 1) l ON true')) v (query)
WHERE place(query) IS NOT NULL;
-- Own rows and deleted rows of all tables, which others do not see; versions.
BEGIN;
DELETE FROM a_g WHERE k % 3 = 1;
INSERT INTO a_g VALUES (100, 1, 1, true), (1, 7, 1, true);
UPDATE f_g SET k = 100 WHERE id % 10 = 0;
DELETE FROM f_g WHERE id % 17 = 3;
DELETE FROM a_h WHERE k % 3 = 1;
INSERT INTO a_h VALUES (100, 1, 1, true), (1, 7, 1, true);
UPDATE f_h SET k = 100 WHERE id % 10 = 0;
DELETE FROM f_h WHERE id % 17 = 3;
SELECT place('SELECT name, count(*), sum(x) FROM f_g f LEFT JOIN a_g a ON f.k = a.k GROUP BY name');
SELECT name, count(*), sum(x) FROM f_g f LEFT JOIN a_g a ON f.k = a.k GROUP BY name
EXCEPT ALL SELECT name, count(*), sum(x) FROM f_h f LEFT JOIN a_h a ON f.k = a.k GROUP BY name;
SAVEPOINT s;
DELETE FROM a_g WHERE k = 100;
SELECT count(*) FROM f_g f JOIN a_g a ON f.k = a.k WHERE a.k = 100 OR f.id = -1;
ROLLBACK TO s;
SELECT count(*) FROM f_g f JOIN a_g a ON f.k = a.k WHERE a.k = 100 OR f.id = -1;
ROLLBACK;
SELECT same_join('SELECT name, count(*), sum(x) FROM f@ f LEFT JOIN a@ a ON f.k = a.k GROUP BY name');
DELETE FROM a_h WHERE k = 5;
DELETE FROM a_g WHERE k = 5;
DELETE FROM a_a WHERE k = 5;
SELECT same_join('SELECT name, count(*), sum(x) FROM f@ f JOIN a@ a ON f.k = a.k GROUP BY name');
INSERT INTO a_h VALUES (5, 55, 1, true);
INSERT INTO a_g VALUES (5, 55, 1, true);
INSERT INTO a_a VALUES (5, 55, 1, true);
SELECT same_join('SELECT name, count(*), sum(x) FROM f@ f JOIN a@ a ON f.k = a.k GROUP BY name');
-- A key that all rows have.
CREATE TABLE s_h (z int, v int);
INSERT INTO s_h SELECT 0, i FROM generate_series(1, 500) i;
CREATE FOREIGN TABLE s_g (z int, v int) SERVER gstore_fdw;
CREATE FOREIGN TABLE s_a (z int, v int) SERVER gstore_fdw;
INSERT INTO s_g SELECT * FROM s_h;
INSERT INTO s_a SELECT * FROM s_h;
SELECT same_join('SELECT count(*), sum(t.v::int8 * s.v) FROM s@ s JOIN s@ t ON s.z = t.z');
-- Row security is evaluated where PostgreSQL evaluates it: before what may tell of a row.
CREATE ROLE join_reader;
GRANT SELECT ON f_g, a_g TO join_reader;
CREATE VIEW shown WITH (security_barrier) AS SELECT * FROM a_g WHERE name < 3;
GRANT SELECT ON shown TO join_reader;
SET ROLE join_reader;
EXPLAIN (COSTS OFF) SELECT count(*) FROM f_g f JOIN shown a ON f.k = a.k WHERE 10 / (a.name - 4) > -100;
SELECT count(*) FROM f_g f JOIN shown a ON f.k = a.k WHERE 10 / (a.name - 4) > -100;
SELECT count(*) FROM f_g f JOIN m_g m ON f.k = m.k;
RESET ROLE;
DROP VIEW shown;
DROP OWNED BY join_reader;
DROP ROLE join_reader;
DROP FOREIGN TABLE f_g, f_a, a_g, a_a, m_g, m_a, c_g, c_a, e_g, e_a, s_g, s_a;
DROP TABLE f_h, a_h, m_h, c_h, e_h, s_h;
DROP FUNCTION answer, place, same, same_join, copy_tables;
