-- Groups by texts on the GPU, and their DISTINCT, beside the same over a heap and without the GPU.
SET max_parallel_workers_per_gather = 0;
SET gstore_fdw.gpu_startup_cost = 0;
SET gstore_fdw.gpu_instruction_cost = 0;
CREATE DOMAIN y_name AS varchar(40);
CREATE TABLE yh (id int, t text, v varchar(50), c char(6), u char(4), d y_name, e text COLLATE "C", b bpchar, n text, p text, k int);
CREATE FOREIGN TABLE yg (id int, t text, v varchar(50), c char(6), u char(4) OPTIONS (length '4'), d y_name, e text COLLATE "C", b bpchar, n text, p text OPTIONS (compression 'pglz'), k int) SERVER gstore_fdw;
CREATE FOREIGN TABLE ya (id int, t text, v varchar(50), c char(6), u char(4) OPTIONS (length '4'), d y_name, e text COLLATE "C", b bpchar, n text, p text, k int) SERVER gstore_fdw OPTIONS (format 'arrow');
-- Texts of 0 to 256 bytes, that differ in one byte, at their ends or in their lengths alone; characters of 1 to 4 bytes.
INSERT INTO yh
SELECT i, CASE i % 13 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN repeat('x', 247 + i % 10) WHEN 3 THEN repeat('€', 85) || i % 2 WHEN 4 THEN repeat('12345678', i % 33) WHEN 5 THEN repeat('a', 100) || chr(97 + i % 5) || repeat('a', 20) ELSE (ARRAY['a', 'ab', 'abc', 'a ', 'b_c', 'é', 'aé', '€uro', '😀', 'A', 'aab', ' a ', 'ba'])[i % 29 % 13 + 1] END,
    CASE WHEN i % 7 <> 0 THEN 'name ' || i % 40 END, CASE WHEN i % 11 <> 0 THEN (ARRAY['a', 'ab', 'abc', '', 'é', 'abcdef'])[i % 6 + 1] END, CASE WHEN i % 9 <> 0 THEN (ARRAY['ab', 'abcd', '', 'a'])[i % 4 + 1] END,
    CASE WHEN i % 5 <> 0 THEN md5((i % 30)::text) END, (ARRAY['B', 'a', 'A', 'b'])[i % 4 + 1] || i % 3, CASE WHEN i % 4 <> 0 THEN (ARRAY['one', 'two', ''])[i % 3 + 1] END, NULL, 'zip ' || repeat('zip ', i % 3 * 20) || i % 4, i % 10
FROM generate_series(1, 3000) i;
INSERT INTO yg SELECT * FROM yh;
INSERT INTO ya SELECT * FROM yh;
DELETE FROM yh WHERE id % 10 = 7;
DELETE FROM yg WHERE id % 10 = 7;
DELETE FROM ya WHERE id % 10 = 7;
ANALYZE yh, yg, ya;
-- Comparisons with the heap: answer(), place(), same().
SET test.tables = 'y';
SET test.node = '"GPU';
SET test.ordered = off;
SET test.shown = '80 40';
\getenv abs_srcdir PG_ABS_SRCDIR
\set include :abs_srcdir '/sql_include/query_same.sql'
\i :include

-- Plans.
EXPLAIN (COSTS OFF) SELECT t, count(*) FROM yg GROUP BY t;
EXPLAIN (COSTS OFF) SELECT v, sum(k) FROM yg WHERE k < 5 GROUP BY v HAVING count(*) > 3 ORDER BY sum(k) DESC LIMIT 3;
EXPLAIN (COSTS OFF) SELECT DISTINCT c, k FROM ya;
-- One key.
SELECT same('SELECT t, count(*) FROM q GROUP BY t');
SELECT w, same('SELECT ' || w || ', count(*), sum(id), min(k), avg(k) FROM q GROUP BY ' || w), same('SELECT DISTINCT ' || w || ' FROM q'), same('SELECT ' || w || ' FROM q WHERE k = 3 OR id < 20 GROUP BY ' || w) FROM unnest('{t,v,c,u,d,e,n}'::text[]) w;
-- Several of them, and others beside them.
SELECT same('SELECT t, v, count(*) FROM q GROUP BY t, v'), same('SELECT k, t, u, k % 3, sum(id) FROM q GROUP BY k, t, u, k % 3'), same('SELECT t, v, c, u, d, e, n, k, count(*) FROM q GROUP BY t, v, c, u, d, e, n, k'), same('SELECT DISTINCT v, e, k FROM q WHERE id < 1000'),
    same('SELECT t AS one, t AS other, count(*) FROM q GROUP BY 1, 2'), same('SELECT v::text, count(*) FROM q GROUP BY v::text'), same('SELECT d, k FROM q GROUP BY d, k HAVING sum(id) > 5000');
-- Which of several equal texts is shown of a bpchar PostgreSQL does not say.
SELECT same('SELECT b::text, count(*) FROM q GROUP BY b::text'), same('SELECT c::text, count(*) FROM q GROUP BY 1'), same('SELECT DISTINCT u::text FROM q'), same('SELECT v::bpchar, count(*) FROM q GROUP BY 1'), same('SELECT t::bpchar = ''a'', sum(n) FROM (SELECT t::bpchar AS t, count(*) AS n FROM q GROUP BY 1) g GROUP BY 1'), same('SELECT octet_length(rtrim(b)), n FROM (SELECT b, count(*) AS n FROM q GROUP BY b) g');
-- Conditions before, also on the same columns.
SELECT same('SELECT t, count(*) FROM q WHERE t LIKE ''%a%'' AND length(t) < 50 GROUP BY t'), same('SELECT t, count(*) FROM q WHERE t IS NULL GROUP BY t'), same('SELECT v, count(*) FROM q WHERE t IS NOT NULL AND v <> ''name 3'' GROUP BY v'), same('SELECT v, count(*) FROM q WHERE id < 0 GROUP BY v'), same('SELECT u, count(*) FILTER (WHERE t = ''a''), sum(CASE v WHEN ''name 1'' THEN 1 ELSE 2 END) FROM q GROUP BY u'),
    same('SELECT v, sum(10 / k) FROM q WHERE k > 0 GROUP BY v'), same('SELECT v, sum(10 / k) FROM q GROUP BY v'), same('SELECT e, count(*) FROM q WHERE v = (SELECT ''name 4'') GROUP BY e'), same('SELECT e, count(*) FROM q WHERE k < (SELECT max(k) FROM q) GROUP BY e');
-- The first groups in an order, and HAVING.
SET test.ordered = on;
SELECT same('SELECT v, count(*) FROM q GROUP BY v ORDER BY count(*) DESC, sum(id) LIMIT 5'), same('SELECT t, u, max(id) FROM q GROUP BY t, u ORDER BY 3 DESC LIMIT 7 OFFSET 2'), same('SELECT d, k, sum(id) FROM q GROUP BY d, k HAVING count(*) > 5 ORDER BY sum(id) LIMIT 4'), same('SELECT v, count(*) FROM q GROUP BY v ORDER BY v LIMIT 5'), same('SELECT v, count(*) FROM q GROUP BY v HAVING v LIKE ''%1%'' ORDER BY count(*), v LIMIT 5'), same('SELECT t FROM q GROUP BY t HAVING max(k) = 9 OR t = ''a'' ORDER BY t'), same('SELECT v FROM q GROUP BY v HAVING count(*) > 50 AND (v || ''x'' <> ''x'' OR v IS NULL) ORDER BY sum(id) LIMIT 3');
SET test.ordered = off;
-- DISTINCT within aggregates.
SELECT same('SELECT count(DISTINCT t) FROM q'), same('SELECT k, count(DISTINCT t), sum(id), count(*) FROM q GROUP BY k'), same('SELECT v, count(DISTINCT k) FROM q GROUP BY v'), same('SELECT v, count(DISTINCT c) FROM q GROUP BY v'), same('SELECT e, count(DISTINCT e), count(*) FROM q GROUP BY e'), same('SELECT count(DISTINCT n), count(DISTINCT n) FROM q'), same('SELECT count(DISTINCT b), count(*) FROM q'), same('SELECT v, count(DISTINCT u) FROM q GROUP BY v ORDER BY 2 DESC, sum(id) LIMIT 3');
-- lower() and upper(): of ASCII, and under "C".
EXPLAIN (COSTS OFF) SELECT upper(v), count(*) FROM yg GROUP BY upper(v);
SELECT w, same('SELECT lower(' || w || '), count(*), sum(id) FROM q GROUP BY 1'), same('SELECT DISTINCT upper(' || w || ') FROM q') FROM unnest(ARRAY['v', 'u', 'd', 'e', 'n', 'b', 't COLLATE "C"', 'c COLLATE "C"']) w;
SELECT same('SELECT lower(e), upper(e), e, count(*) FROM q GROUP BY 1, 2, 3'), same('SELECT upper(v), lower(e), k, sum(id) FROM q WHERE v LIKE ''name 1%'' AND lower(e) <> ''a1'' GROUP BY 1, 2, 3'), same('SELECT lower(e), count(DISTINCT k) FROM q GROUP BY 1'), same('SELECT count(DISTINCT lower(e)), count(*) FROM q'), same('SELECT v, count(DISTINCT upper(e)) FROM q GROUP BY v'), same('SELECT upper(e) FROM q GROUP BY 1 HAVING count(*) > 400'),
    same('SELECT lower(b.e), count(*) FROM q a JOIN q b ON a.k = b.id GROUP BY 1'), same('SELECT lower(a.e), upper(b.v), count(*) FROM q a LEFT JOIN q b ON a.id = b.id + 2900 GROUP BY 1, 2'), same('SELECT lower(e), count(*) FROM q GROUP BY e');
SET test.ordered = on;
SELECT same('SELECT lower(e), count(*) FROM q GROUP BY 1 ORDER BY count(*) DESC, max(id), sum(k) LIMIT 4'), same('SELECT upper(v), count(*) FROM q GROUP BY upper(v) HAVING upper(v) LIKE ''%1%'' ORDER BY count(*), upper(v) LIMIT 5');
SET test.ordered = off;
-- Where other characters have cases, too, the local plan has the query, unless conditions leave them out.
SELECT same('SELECT lower(t), count(*) FROM q GROUP BY 1', 'by the local plan: a row raises an error, or a sum may'), same('SELECT DISTINCT upper(c) FROM q', 'by the local plan: a row raises an error, or a sum may'), same('SELECT upper(t), count(*) FROM q WHERE octet_length(t) = length(t) GROUP BY 1'), same('SELECT count(DISTINCT lower(t)) FROM q WHERE t LIKE ''ab%''');
-- Texts that are neither columns nor these, or are asked for more than whether they are equal.
SELECT same('SELECT lower(upper(e)), count(*) FROM q GROUP BY 1', NULL), same('SELECT v, max(t) FROM q GROUP BY v', NULL), same('SELECT v || t, count(*) FROM q GROUP BY 1', NULL), same('SELECT t, count(*) FROM q GROUP BY ROLLUP (t)', NULL), same('SELECT DISTINCT ON (v) v, id FROM q ORDER BY v, id', NULL), same('SELECT 10 / count(*), v FROM q GROUP BY v');
-- Joins: texts of the outer table, and of inner ones, which a left join may not find.
SELECT same('SELECT b.v, count(*), sum(a.k) FROM q a JOIN q b ON a.k = b.id GROUP BY b.v'), same('SELECT a.t, b.t, count(*) FROM q a JOIN q b ON a.k = b.k WHERE a.id < 50 AND b.id < 60 GROUP BY a.t, b.t'), same('SELECT b.c, a.e, count(*) FROM q a LEFT JOIN q b ON a.id = b.id + 2900 GROUP BY b.c, a.e'), same('SELECT b.u, count(DISTINCT a.t) FROM q a JOIN q b ON a.k = b.id WHERE a.v LIKE ''name 1%'' AND b.t IS NOT NULL GROUP BY b.u'), same('SELECT a.v, count(*) FROM q a WHERE EXISTS (SELECT FROM q b WHERE a.id = b.k) GROUP BY a.v'),
    same('SELECT DISTINCT b.d FROM q a JOIN q b ON a.k = b.id'), same('SELECT b.v, sum(a.id) FROM q a JOIN q b ON a.k = b.id GROUP BY b.v ORDER BY 2 DESC LIMIT 2'), same('SELECT b.n, count(*) FROM q a JOIN q b ON a.k = b.id WHERE b.id < 0 GROUP BY b.n');
-- Texts that are too long run locally, but not where another condition leaves them out, or they are deleted.
CREATE TABLE y_long (id int, t text, v text, k int);
INSERT INTO y_long SELECT i, repeat('ab', 128) || CASE i % 3 WHEN 0 THEN '' WHEN 1 THEN 'x' ELSE 'xy' END, 'v' || i % 3, i % 3 FROM generate_series(1, 300) i;
INSERT INTO yh (id, t, v, k) SELECT 10000 + id, t, v, 20 + k FROM y_long;
INSERT INTO yg (id, t, v, k) SELECT 10000 + id, t, v, 20 + k FROM y_long;
INSERT INTO ya (id, t, v, k) SELECT 10000 + id, t, v, 20 + k FROM y_long;
CREATE TABLE y_before AS SELECT unsupported, row_errors FROM gstore_fdw_queries WHERE kind = 'aggregate';
SELECT same('SELECT t, count(*) FROM q GROUP BY t', 'by the local plan: a text is too long for a key'), same('SELECT t, count(*) FROM q WHERE k >= 20 GROUP BY t', 'by the local plan: a text is too long for a key'), same('SELECT t, count(*) FROM q WHERE k <= 20 GROUP BY t'), same('SELECT t, count(*) FROM q WHERE octet_length(t) <= 256 GROUP BY t'), same('SELECT count(DISTINCT t) FROM q', 'by the local plan: a text is too long for a key'), same('SELECT v, count(DISTINCT t) FROM q WHERE k = 20 GROUP BY v'),
    same('SELECT t, v FROM q WHERE k = 21 GROUP BY t, v', 'by the local plan: a text is too long for a key'), same('SELECT b.t, count(*) FROM q a JOIN q b ON a.k = b.id GROUP BY b.t', 'by the local plan: a text is too long for a key'), same('SELECT b.v, count(*) FROM q a JOIN q b ON a.k = b.k WHERE b.t LIKE ''abab%'' GROUP BY b.v');
SELECT c.unsupported - b.unsupported, c.row_errors - b.row_errors FROM gstore_fdw_queries c, y_before b WHERE c.kind = 'aggregate';
DROP TABLE y_before;
-- Where most are, the GPU is not asked.
CREATE FOREIGN TABLE y_wide (t text, v text) SERVER gstore_fdw;
INSERT INTO y_wide SELECT repeat('wide ', 100 + i), i % 3 FROM generate_series(1, 100) i;
ANALYZE y_wide;
EXPLAIN (COSTS OFF) SELECT t, count(*) FROM y_wide GROUP BY t;
EXPLAIN (COSTS OFF) SELECT v, count(DISTINCT v) FROM y_wide GROUP BY v;
DROP FOREIGN TABLE y_wide;
DELETE FROM yh WHERE k > 20;
DELETE FROM yg WHERE k > 20;
DELETE FROM ya WHERE k > 20;
SELECT same('SELECT t, count(*) FROM q GROUP BY t');
-- Compressed texts run locally where they would be a key.
SELECT answer('SELECT p, count(*) FROM yg GROUP BY p') = answer('SELECT p, count(*) FROM yh GROUP BY p'), place('SELECT p, count(*) FROM yg GROUP BY p'), place('SELECT p, count(*) FROM ya GROUP BY p'), place('SELECT p, count(*) FROM yg WHERE octet_length(p) < 10 GROUP BY p'), answer('SELECT p, count(*) FROM yg WHERE octet_length(p) < 10 GROUP BY p') = answer('SELECT p, count(*) FROM yh WHERE octet_length(p) < 10 GROUP BY p');
-- Rows of this transaction, and columns that were added.
BEGIN;
INSERT INTO yg (id, t, v) VALUES (9001, 'abc', 'new'), (9002, 'new', 'abc');
INSERT INTO ya (id, t, v) VALUES (9001, 'abc', 'new'), (9002, 'new', 'abc');
INSERT INTO yh (id, t, v) VALUES (9001, 'abc', 'new'), (9002, 'new', 'abc');
DELETE FROM yg WHERE v = 'name 2';
DELETE FROM ya WHERE v = 'name 2';
DELETE FROM yh WHERE v = 'name 2';
SELECT same('SELECT t, count(*) FROM q GROUP BY t'), same('SELECT v, count(*) FROM q GROUP BY v');
ROLLBACK;
ALTER FOREIGN TABLE yg ADD COLUMN late text;
ALTER FOREIGN TABLE ya ADD COLUMN late text;
ALTER TABLE yh ADD COLUMN late text;
SELECT same('SELECT late, k, count(*) FROM q GROUP BY late, k'), same('SELECT DISTINCT late FROM q');
-- Parameters and rescans.
PREPARE y_groups (int) AS SELECT v, count(*) FROM yg WHERE k = $1 GROUP BY v ORDER BY v;
SET plan_cache_mode = force_generic_plan;
EXECUTE y_groups(11);
EXECUTE y_groups(20);
SELECT i, (SELECT string_agg(e || n, ' ' ORDER BY e, n) FROM (SELECT e, count(*) AS n FROM yg WHERE k = i GROUP BY e) g) FROM generate_series(8, 11) i;
RESET plan_cache_mode;
-- Texts with equal hashes (query/number.c).
INSERT INTO yg (id, t, k) SELECT i, (ARRAY['zXK,mx6F4{D(1+zE', 'HT2AN5_LLv4M?),b', 'M?gejGfS_%9XIih[', 'lQmWiw7io+.e9.C8', 'G3pPr06X!#ZczkHl', 'eHwtpRz8/`7,1~mt'])[i % 6 + 1], 30 FROM generate_series(20000, 20099) i;
INSERT INTO ya (id, t, k) SELECT id, t, k FROM yg WHERE k = 30;
INSERT INTO yh (id, t, k) SELECT id, t, k FROM yg WHERE k = 30;
SELECT same('SELECT t, count(*) FROM q WHERE k = 30 GROUP BY t');
-- Partitions.
CREATE TABLE y_parts (k int, t text, n int) PARTITION BY LIST (k);
CREATE FOREIGN TABLE y_part0 PARTITION OF y_parts FOR VALUES IN (0) SERVER gstore_fdw;
CREATE FOREIGN TABLE y_part1 PARTITION OF y_parts FOR VALUES IN (1) SERVER gstore_fdw OPTIONS (format 'arrow');
CREATE TABLE y_part2 PARTITION OF y_parts FOR VALUES IN (2);
INSERT INTO y_parts SELECT i % 3, CASE WHEN i % 5 <> 0 THEN 'text ' || i % 17 END, i FROM generate_series(1, 900) i;
ANALYZE y_parts;
SET enable_partitionwise_aggregate = on;
EXPLAIN (COSTS OFF) SELECT t, count(*), sum(n) FROM y_parts GROUP BY t;
SELECT t, count(*), sum(n) FROM y_parts GROUP BY t ORDER BY t LIMIT 5;
EXPLAIN (COSTS OFF) SELECT k, t, count(*) FROM y_parts GROUP BY k, t;
SELECT md5(string_agg(r::text, ' ' ORDER BY r)) = (SELECT md5(string_agg(r::text, ' ' ORDER BY r)) FROM (SELECT i % 3 AS k, CASE WHEN i % 5 <> 0 THEN 'text ' || i % 17 END AS t, count(*) FROM generate_series(1, 900) i GROUP BY 1, 2) r) FROM (SELECT k, t, count(*) FROM y_parts GROUP BY k, t) r;
-- Many groups.
CREATE FOREIGN TABLE y_many (id int, t text, u char(8) OPTIONS (length '8')) SERVER gstore_fdw;
CREATE FOREIGN TABLE y_many_a (id int, t text) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO y_many SELECT i, CASE WHEN i % 2 = 0 THEN 'many ' || i ELSE md5(i::text) END, lpad(to_hex(i % 100000), 8, 'x') FROM generate_series(1, 1000000) i;
INSERT INTO y_many_a SELECT id, t FROM y_many;
SELECT place('SELECT t, count(*) FROM y_many GROUP BY t'), place('SELECT t, u, count(*) FROM y_many WHERE id < 200000 GROUP BY t, u'), place('SELECT DISTINCT t FROM y_many_a');
SELECT count(*), sum(n), min(n), max(n), md5(string_agg(md5(t), '' ORDER BY t COLLATE "C") FILTER (WHERE t LIKE '%99')) FROM (SELECT t, count(*) AS n FROM y_many GROUP BY t) g;
SELECT count(*), sum(n), min(n), max(n), md5(string_agg(md5(t), '' ORDER BY t COLLATE "C") FILTER (WHERE t LIKE '%99')) FROM (SELECT t, count(*) AS n FROM y_many_a GROUP BY t) g;
SELECT count(*), count(t), md5(string_agg(md5(t), '' ORDER BY t COLLATE "C") FILTER (WHERE t LIKE '%99')) FROM (SELECT t FROM y_many) g;
SELECT u, count(*), max(id) FROM y_many GROUP BY u ORDER BY max(id) DESC LIMIT 3;
SELECT count(DISTINCT t), count(*) FROM y_many;
-- Collations under which texts of different bytes are equal.
CREATE FUNCTION y_ignores_case() RETURNS TABLE (grouped text, counted text, answers bool) LANGUAGE plpgsql AS $$
DECLARE
    ignoring text := 'SELECT count(*) FROM (SELECT e COLLATE y_case FROM yg GROUP BY 1) g';
BEGIN
    BEGIN
        CREATE COLLATION y_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
    EXCEPTION WHEN feature_not_supported THEN
        RETURN QUERY SELECT NULL, NULL, true;
        RETURN;
    END;
    RETURN QUERY SELECT place(ignoring), place('SELECT count(DISTINCT e COLLATE y_case) FROM yg'), answer(ignoring) = answer('SELECT count(*) FROM (SELECT lower(e) FROM yh GROUP BY 1) g');
END $$;
SELECT * FROM y_ignores_case();
DROP FOREIGN TABLE yg, ya, y_many, y_many_a;
DROP TABLE yh, y_long, y_parts;
DROP DOMAIN y_name;
DROP FUNCTION same, place, answer, y_ignores_case;
SET client_min_messages = warning;
DROP COLLATION IF EXISTS y_case;
