-- Conditions on texts on the GPU, and their lengths, beside the same over a heap and without the GPU.
SET max_parallel_workers_per_gather = 0;
SET gstore_fdw.gpu_startup_cost = 0;
SET gstore_fdw.gpu_instruction_cost = 0;
CREATE DOMAIN x_name AS varchar(40);
CREATE TABLE xh (id int, t text, v varchar(50), c char(6), u char(4), d x_name, e text COLLATE "C", p text, k int);
CREATE FOREIGN TABLE xg (id int, t text, v varchar(50), c char(6), u char(4) OPTIONS (length '4'), d x_name, e text COLLATE "C", p text OPTIONS (compression 'pglz'), k int) SERVER gstore_fdw;
CREATE FOREIGN TABLE xa (id int, t text, v varchar(50), c char(6), u char(4) OPTIONS (length '4'), d x_name, e text COLLATE "C", p text, k int) SERVER gstore_fdw OPTIONS (format 'arrow');
-- Values of no bytes, of characters of 1 to 4 bytes, of more than 128 bytes and more than 2 kB.
INSERT INTO xh
SELECT i, CASE i % 13 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN repeat('ab', i % 90) WHEN 3 THEN repeat('long é ', 20) || i WHEN 4 THEN repeat('x€y', 450) || i % 7 ELSE (ARRAY['a', 'ab', 'abc', 'b%c', 'b_c', 'é', 'aé', '€uro', '😀', 'b\c', 'aab', ' a ', 'ba'])[i % 29 % 13 + 1] END,
    CASE WHEN i % 7 <> 0 THEN 'name ' || i % 40 END, CASE WHEN i % 11 <> 0 THEN (ARRAY['a', 'ab', 'abc', '', 'é', 'abcdef'])[i % 6 + 1] END, CASE WHEN i % 9 <> 0 THEN (ARRAY['ab', 'abcd', '', 'a'])[i % 4 + 1] END,
    CASE WHEN i % 5 <> 0 THEN md5((i % 30)::text) END, (ARRAY['B', 'a', 'A', 'b'])[i % 4 + 1] || i % 3, CASE WHEN i % 3 = 0 THEN repeat('zip ', 200) || i % 10 ELSE 'short ' || i % 10 END, i % 10
FROM generate_series(1, 3000) i;
INSERT INTO xg SELECT * FROM xh;
INSERT INTO xa SELECT * FROM xh;
DELETE FROM xh WHERE id % 10 = 7;
DELETE FROM xg WHERE id % 10 = 7;
DELETE FROM xa WHERE id % 10 = 7;
ANALYZE xh, xg, xa;
-- Comparisons with the heap: answer(), place(), same().
SET test.tables = 'x';
SET test.node = '"GPU';
SET test.ordered = off;
SET test.shown = '80 40';
\getenv abs_srcdir PG_ABS_SRCDIR
\set include :abs_srcdir '/sql_include/query_same.sql'
\i :include
-- How many rows meet each of the conditions.
CREATE FUNCTION met(VARIADIC conditions text[]) RETURNS text LANGUAGE sql AS $$
    SELECT same('SELECT ' || string_agg('count(*) FILTER (WHERE ' || c || ')', ', ') || ' FROM q') FROM unnest(conditions) c
$$;

-- Plans.
EXPLAIN (COSTS OFF) SELECT id FROM xg WHERE t = 'abc' AND v LIKE 'name 1%' AND k < 5;
EXPLAIN (COSTS OFF) SELECT count(*) FROM xa WHERE t LIKE '%b%' OR length(v) > 6;
-- Equality.
SELECT w, met('t ' || w || ' ''abc''', '''é'' ' || w || ' t', 't ' || w || ' ''''', 't ' || w || ' repeat(''ab'', 44)', 't ' || w || ' repeat(''x€y'', 450) || 3', 't ' || w || ' repeat(''x€y'', 450) || 8', 't ' || w || ' NULL', 't ' || w || ' ''none''',
    'v ' || w || ' ''name 8''', 'd ' || w || ' md5(''8'')', 'e ' || w || ' ''A1''')
FROM unnest('{=,<>,IS DISTINCT FROM,IS NOT DISTINCT FROM}'::text[]) w;
SELECT w, met('c ' || w || ' ''ab''', 'c ' || w || ' ''ab  ''', '''é'' ' || w || ' c', 'c ' || w || ' ''''', 'c ' || w || ' ''ab ''::text', 'c ' || w || ' ''ab''::text', 'u ' || w || ' ''ab''', 'u ' || w || ' ''abcd''', 'u::text ' || w || ' ''ab''', 't::bpchar ' || w || ' ''a''')
FROM unnest('{=,<>,IS DISTINCT FROM}'::text[]) w;
SELECT met('t IN (''a'', ''abc'', ''é'', '''')', 't NOT IN (''a'', ''abc'')', 't IN (''a'', NULL)', '(t NOT IN (''a'', NULL)) IS NULL', 't = ANY (''{}'')', 't <> ALL (''{}'')', 't = ANY (NULL::text[])', 't <> ALL (ARRAY[''ab'', ''ba'', repeat(''x€y'', 450) || 3])',
    'v IN (''name 1'', ''name 39'')', 'v = ANY (''{name 3,name 4}''::varchar[])', 'c IN (''ab'', ''é'')', 'u NOT IN (''abcd'', ''a'')', 'd IN (md5(''1''), md5(''2''))');
SELECT same('SELECT count(*) FROM q WHERE v = ANY (ARRAY(SELECT ''name '' || i FROM generate_series(1, 20) i))'), same('SELECT count(*) FROM q WHERE v IN (SELECT ''name '' || i FROM generate_series(1, 20) i)', NULL), same('SELECT id FROM q WHERE t = (SELECT ''abc'') AND id < 60'), same('SELECT count(*) FROM q WHERE (SELECT '' a''::char(4))::text = t');
SELECT met('t IS NULL', 't IS NOT NULL', 'v IS NULL', 'u IS NULL', 'c IS NOT NULL OR d IS NULL', 'p IS NULL');
-- Those that are not NULL are counted, with no byte of them.
SELECT same('SELECT count(t), count(v), count(c), count(u), count(d), count(e), count(p), count(*) FROM q'), same('SELECT k, count(t), count(u) FILTER (WHERE id > 1500), count(*) FROM q GROUP BY k HAVING count(t) > 3'), same('SELECT count(t), count(DISTINCT v), count(v) FROM q WHERE u IS NOT NULL'),
    same('SELECT count(a.t), count(b.t), count(b.u), count(*) FROM q a LEFT JOIN q b ON a.k = b.id AND b.t IS NOT NULL'), same('SELECT b.k, count(a.v), count(b.p) FROM q a JOIN q b ON a.k = b.id WHERE a.u IS NULL OR b.v IS NOT NULL GROUP BY b.k'), same('SELECT count(t), count(v) FROM q WHERE id < 0');
CREATE FUNCTION bytes_read(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    plan text;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ' || query INTO plan;
    RETURN substring(plan FROM '"GPU Bytes Read": (\d+)');
END $$;
SELECT bytes_read('SELECT count(t) FROM xg') AS offsets, bytes_read('SELECT count(t) FROM xa') AS bits, bytes_read('SELECT count(u) FROM xg') AS of_one_length, bytes_read('SELECT count(b.t) FROM xa a JOIN xa b ON a.k = b.id') - bytes_read('SELECT count(*) FROM xa a JOIN xa b ON a.k = b.id') AS inner_bits,
    bytes_read('SELECT count(length(t)) FROM xa') > 100000 AS read;
-- Columns of other types: arrays, bytes, documents, intervals, numbers of any scale.
CREATE TYPE x_pair AS (a int, b text);
CREATE TABLE ah (id int, a int[], f int[], b bytea, j jsonb, i interval, n numeric, r x_pair, w bit(9), s text[]);
CREATE FOREIGN TABLE ag (id int, a int[], f int[] OPTIONS (length '2'), b bytea, j jsonb, i interval, n numeric, r x_pair, w bit(9), s text[]) SERVER gstore_fdw;
CREATE FOREIGN TABLE aa (id int, a int[], f int[] OPTIONS (length '2'), b bytea, j jsonb, i interval, n numeric, r x_pair, w bit(9), s text[]) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO ah SELECT x, CASE WHEN x % 3 <> 0 THEN ARRAY[x, NULL] END, CASE WHEN x % 4 <> 0 THEN ARRAY[x, 1] END, CASE WHEN x % 5 = 0 THEN bytea '' WHEN x % 5 < 3 THEN '\x00' END, CASE WHEN x % 6 <> 0 THEN to_jsonb(x) END, CASE WHEN x % 7 <> 0 THEN x * interval '1 h' END,
    CASE WHEN x % 8 <> 0 THEN x * 1.01 END, CASE WHEN x % 9 = 0 THEN NULL WHEN x % 2 = 0 THEN (NULL, NULL)::x_pair ELSE (x, 'b')::x_pair END, CASE WHEN x % 10 <> 0 THEN x::bit(9) END, CASE WHEN x % 11 = 0 THEN '{}'::text[] WHEN x % 11 < 5 THEN '{a}' END FROM generate_series(1, 500) x;
INSERT INTO ag SELECT * FROM ah;
INSERT INTO aa SELECT * FROM ah;
SET test.tables = 'a';
SET enable_sort = off;
SELECT same('SELECT count(a), count(f), count(b), count(j), count(i), count(n), count(r), count(w), count(s) FROM q'), same('SELECT id FROM q WHERE a IS NULL AND f IS NOT NULL AND b IS NULL AND i IS NOT NULL AND w IS NOT NULL AND s IS NULL'), same('SELECT count(*) FROM q WHERE j IS NULL OR n IS NULL'), same('SELECT id % 2, count(n), count(i) FILTER (WHERE w IS NULL) FROM q GROUP BY 1'),
    same('SELECT count(x.a), count(y.b), count(y.n) FROM q x LEFT JOIN q y ON x.id = y.id + 1 AND y.s IS NULL WHERE y.j IS NULL OR y.i IS NOT NULL'), same('SELECT id, a IS NULL FROM q ORDER BY n IS NULL, id LIMIT 3');
RESET enable_sort;
-- Not of rows, of which it is asked whether all of their fields are.
SELECT same('SELECT count(*) FROM q WHERE r IS NULL', NULL), same('SELECT count(q) FROM q', NULL), same('SELECT count(a || 1) FROM q', NULL);
ALTER FOREIGN TABLE ag ADD COLUMN late int[];
ALTER FOREIGN TABLE aa ADD COLUMN late int[];
ALTER TABLE ah ADD COLUMN late int[];
SELECT same('SELECT count(late), count(n), count(*) FILTER (WHERE late IS NULL AND n IS NOT NULL) FROM q');
DROP FOREIGN TABLE ag, aa;
DROP TABLE ah;
DROP TYPE x_pair;
SET test.tables = 'x';
-- Patterns.
SELECT w, met('t ' || w || ' ''abc''', 't ' || w || ' ''ab%''', 't ' || w || ' ''%c''', 't ' || w || ' ''%b%''', 't ' || w || ' ''%''', 't ' || w || ' ''''', 't ' || w || ' ''%%''', 't ' || w || ' ''a%b''', 't ' || w || ' ''a%a%b''', 't ' || w || ' ''ab%ab''', 't ' || w || ' ''%€%y_''', 't ' || w || ' NULL')
FROM unnest('{LIKE,NOT LIKE}'::text[]) w;
SELECT met('t LIKE ''_''', 't LIKE ''__''', 't LIKE ''_%''', 't LIKE ''%_''', 't LIKE ''a_''', 't LIKE ''_é''', 't LIKE ''%_b_%''', 't LIKE ''_b%_''', 't LIKE ''___%€__''', 't LIKE ''%é%0''', 't LIKE ''%long _ long%'' || ''__''', 't LIKE ''_€_x%_''');
SELECT met(E't LIKE ''b\\%c''', E't LIKE ''b\\_c''', E't LIKE ''b\\\\c''', E't LIKE ''\\b_c''', E't LIKE ''%\\%%''', E't LIKE ''\\é''', 't LIKE ''b#%c'' ESCAPE ''#''', E't LIKE ''b\\c'' ESCAPE ''''', 't LIKE ''b_c'' ESCAPE ''_''', E't LIKE ''%\\\\%''', E't LIKE ''%\\\\''');
SELECT met('v LIKE ''name _''', 'v NOT LIKE ''%3%''', 'd LIKE ''%a%b%c%''', 'c LIKE ''ab''', 'c LIKE ''ab%''', 'c LIKE ''ab    ''', 'c LIKE ''% ''', 'c::text LIKE ''%b''', 'u LIKE ''ab__''', 'u LIKE ''ab''', 'starts_with(t, ''ab'')', 't ^@ ''é''', 't ^@ ''''', 'starts_with(v, NULL)', 'starts_with(t, ''a%'')', 'e LIKE ''A%''', 'like(t, ''a%'')', 'notlike(t, ''a%'')');
SELECT same('SELECT count(*) FROM q WHERE t LIKE repeat(''%ab'', 30) || ''%'''), same('SELECT count(*) FROM q WHERE t LIKE (SELECT ''%x€%6'')'), same('SELECT id, k, t FROM q WHERE t LIKE ''%_😀'' OR t = ''😀'' AND id < 100');
-- A pattern that ends in the character that escapes others is an error of the rows that come to it.
SELECT same(E'SELECT count(*) FROM q WHERE t LIKE ''ab\\''', NULL), same(E'SELECT count(*) FROM q WHERE k < 0 AND t LIKE ''a\\'''), same(E'SELECT count(*) FROM q WHERE e LIKE ''none\\''', NULL);
SELECT same(E'SELECT count(*) FROM q WHERE t LIKE (SELECT ''none\\'')', 'by the local plan: too many instructions or values');
-- Long patterns over long texts: rows go through the kernels in smaller batches.
CREATE TABLE yh (id int, t text);
CREATE FOREIGN TABLE yg (id int, t text) SERVER gstore_fdw;
CREATE FOREIGN TABLE ya (id int, t text) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO yh SELECT i, repeat('b', 299 + i % 3) || CASE WHEN i % 7 = 0 THEN repeat('aé', 500) ELSE '' END || i FROM generate_series(1, 10000) i;
INSERT INTO yg SELECT * FROM yh;
INSERT INTO ya SELECT * FROM yh;
SET test.tables = 'y';
SELECT same('SELECT count(*), sum(id) FROM q WHERE t LIKE ''%'' || repeat(''aé'', 500) || ''%9%'''), same('SELECT id FROM q WHERE t LIKE ''%'' || repeat(''a_'', 500) || ''7%'''), same('SELECT id % 5, count(*) FROM q WHERE t NOT LIKE ''b%'' || repeat(''_a'', 499) || ''%'' GROUP BY 1');
SET test.tables = 'x';
DROP TABLE yh;
DROP FOREIGN TABLE yg, ya;
-- More than a program has room for.
SELECT same('SELECT count(*) FROM q WHERE t LIKE repeat(''x€y'', 2000)', NULL), same('SELECT count(*) FROM q WHERE t IN (' || string_agg(quote_literal(md5(i::text)), ',') || ')', NULL) FROM generate_series(1, 400) i;
-- Compressed values are read where their length decides; otherwise the local plan runs.
SELECT same('SELECT count(*) FROM q WHERE p = ''short 3'''), same('SELECT count(*) FROM q WHERE p <> ALL (''{short 3,none}'')'), same('SELECT max(octet_length(p)) FROM q');
SET test.tables = 'x';
SELECT place('SELECT count(*) FROM xg WHERE p LIKE ''%5'''), place('SELECT count(*) FROM xa WHERE p LIKE ''%5'''), place('SELECT count(*) FROM xg WHERE p = repeat(''zip '', 200) || 3'), place('SELECT count(*) FROM xg WHERE p LIKE ''%5'' AND k = 0 AND p LIKE ''short%''');
SELECT answer('SELECT count(*) FROM xg WHERE p LIKE ''%5''') = answer('SELECT count(*) FROM xh WHERE p LIKE ''%5'''), answer('SELECT count(*) FROM xg WHERE p = repeat(''zip '', 200) || 3') = answer('SELECT count(*) FROM xh WHERE p = repeat(''zip '', 200) || 3');
-- Lengths.
SET enable_sort = off;
SELECT same('SELECT sum(length(t)), sum(octet_length(t)), max(length(c)), max(octet_length(c)), sum(char_length(u)), sum(octet_length(u)), count(length(t)) FROM q'), same('SELECT length(t), count(*) FROM q WHERE length(t) < 5 GROUP BY length(t)'), same('SELECT id FROM q ORDER BY length(t) DESC NULLS LAST, id LIMIT 5');
-- Wherever conditions are.
SELECT same('SELECT count(CASE WHEN t LIKE ''a%'' THEN k WHEN v = ''name 3'' THEN 1 END), sum(CASE v WHEN ''name 1'' THEN 10 WHEN ''name 2'' THEN 20 ELSE 1 END), sum(CASE c WHEN ''ab'' THEN 1 ELSE 0 END) FROM q'), same('SELECT count(*) FROM q WHERE coalesce(t = ''abc'', k > 3)'),
    same('SELECT (t LIKE ''a%''), count(*) FROM q GROUP BY 1'), same('SELECT bool_or(t = ''abc''), bool_and(v LIKE ''name%''), count(t = ''a'') FROM q'), same('SELECT k, count(*) FILTER (WHERE t ~~ ''%b%''), sum(k) FROM q WHERE NOT t = ''abc'' GROUP BY k HAVING count(*) > 10'), same('SELECT id, t FROM q WHERE v = ''name 5'' ORDER BY id LIMIT 3'),
    same('SELECT count(*) FROM q a JOIN q b ON a.k = b.id WHERE b.v LIKE ''name%'' AND a.t = ''abc'''), same('SELECT count(*), count(b.id) FROM q a LEFT JOIN q b ON a.k = b.id AND b.t <> '''' WHERE b.v IS NULL OR b.v LIKE ''%5'''), same('SELECT count(*) FROM q a WHERE NOT EXISTS (SELECT FROM q b WHERE a.k = b.id AND b.t LIKE ''a%'')');
RESET enable_sort;
PREPARE x_pattern (text) AS SELECT count(*) FROM xg WHERE t LIKE $1;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE x_pattern('a%');
EXECUTE x_pattern('a%');
EXECUTE x_pattern('abc');
EXECUTE x_pattern(E'ab\\');
EXECUTE x_pattern(E'none\\');
EXECUTE x_pattern(NULL);
RESET plan_cache_mode;
-- Collations: those that say that equal texts have equal bytes.
SELECT met('e = ''a1'' COLLATE "POSIX"', 't = ''abc'' COLLATE "C"', 't LIKE ''a%'' COLLATE "C"');
SELECT same('SELECT count(*) FROM q WHERE t < ''b''', NULL), same('SELECT count(*) FROM q WHERE t SIMILAR TO ''A%''', NULL), same('SELECT count(*) FROM q WHERE t <> ANY (''{a,b}'')', NULL), same('SELECT count(*) FROM q WHERE t = v', NULL), same('SELECT count(*) FROM q WHERE initcap(t) = ''Abc''', NULL), same('SELECT count(*) FROM q WHERE t || '''' LIKE ''a%''', NULL);
-- Under one that says otherwise nothing is compared on the GPU. Where PostgreSQL has no such collations that is so in any case.
CREATE FUNCTION x_ignores_case() RETURNS TABLE (equality text, list text, answers bool) LANGUAGE plpgsql AS $$
DECLARE
    ignoring text := 'SELECT count(*) FROM xg WHERE ';
BEGIN
    BEGIN
        CREATE COLLATION x_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
    EXCEPTION WHEN feature_not_supported THEN
        RETURN QUERY SELECT NULL, NULL, true;
        RETURN;
    END;
    RETURN QUERY SELECT place(ignoring || 'e = ''a1'' COLLATE x_case'), place(ignoring || 'e COLLATE x_case IN (''a1'', ''b2'')'),
        answer(ignoring || 'e = ''a1'' COLLATE x_case') = answer('SELECT count(*) FROM xh WHERE lower(e) = ''a1''') AND answer(ignoring || 'e COLLATE x_case LIKE ''a%''') = answer('SELECT count(*) FROM xh WHERE e COLLATE x_case LIKE ''a%''');
END $$;
SELECT * FROM x_ignores_case();
-- Rows of this transaction, and columns that were added.
BEGIN;
INSERT INTO xg (id, t, v) VALUES (9001, 'abc', 'new'), (9002, 'new', 'abc');
INSERT INTO xa (id, t, v) VALUES (9001, 'abc', 'new'), (9002, 'new', 'abc');
INSERT INTO xh (id, t, v) VALUES (9001, 'abc', 'new'), (9002, 'new', 'abc');
SELECT met('t = ''abc''', 'v LIKE ''new%''', 'd IS NULL', 'p = ''''');
ROLLBACK;
ALTER FOREIGN TABLE xg ADD COLUMN late text;
ALTER FOREIGN TABLE xa ADD COLUMN late text;
ALTER TABLE xh ADD COLUMN late text;
SELECT met('late = ''abc''', 'late IS NULL', 'late LIKE ''%''', 'late IS DISTINCT FROM ''abc''', 'octet_length(late) > 0');
-- UPDATE and DELETE find their rows by it.
UPDATE xg SET k = 100 WHERE t LIKE '%é%' AND v <> 'name 1';
UPDATE xa SET k = 100 WHERE t LIKE '%é%' AND v <> 'name 1';
UPDATE xh SET k = 100 WHERE t LIKE '%é%' AND v <> 'name 1';
DELETE FROM xg WHERE v = 'name 2';
DELETE FROM xa WHERE v = 'name 2';
DELETE FROM xh WHERE v = 'name 2';
SELECT same('SELECT k, count(*), sum(length(t)) FROM q GROUP BY k'), same('SELECT id, t FROM q WHERE k = 100 AND t <> ''x''');
-- An operator of a user's, of one argument.
CREATE OPERATOR @# (RIGHTARG = text, FUNCTION = length);
SELECT same('SELECT count(*) FROM q WHERE @# coalesce(t, ''x'') > 3'), same('SELECT count(*) FROM q WHERE @# v > 6');
DROP OPERATOR @# (NONE, text);
DROP FOREIGN TABLE xg, xa;
DROP TABLE xh;
DROP DOMAIN x_name;
DROP FUNCTION same, place, answer, met, bytes_read, x_ignores_case;
SET client_min_messages = warning;
DROP COLLATION IF EXISTS x_case;
-- A character is a byte in a database whose encoding says so. Where it says something else, patterns are the local plan's.
CREATE DATABASE x_latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C';
CREATE DATABASE x_euc TEMPLATE template0 ENCODING 'EUC_JP' LC_COLLATE 'C' LC_CTYPE 'C';
\c x_latin
SET client_encoding = 'UTF8';
SET gstore_fdw.gpu_startup_cost = 0;
SET gstore_fdw.gpu_instruction_cost = 0;
CREATE EXTENSION gstore_fdw;
CREATE FOREIGN TABLE x_texts (t text) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO x_texts VALUES ('é'), ('éü'), ('aé'), ('ab'), ('éab'), (''), (NULL);
EXPLAIN (COSTS OFF) SELECT t FROM x_texts WHERE t LIKE 'a_' OR length(t) = 1;
SELECT t FROM x_texts WHERE t LIKE 'a_' OR length(t) = 1;
SELECT count(*) FILTER (WHERE t = 'é'), count(*) FILTER (WHERE t LIKE '_'), count(*) FILTER (WHERE t LIKE '%ü'), count(*) FILTER (WHERE t LIKE '_a%'), sum(length(t)), sum(octet_length(t)) FROM x_texts;
\c x_euc
SET client_encoding = 'UTF8';
SET gstore_fdw.gpu_startup_cost = 0;
SET gstore_fdw.gpu_instruction_cost = 0;
CREATE EXTENSION gstore_fdw;
CREATE FOREIGN TABLE x_texts (t text) SERVER gstore_fdw;
INSERT INTO x_texts VALUES ('日本'), ('本'), ('a');
EXPLAIN (COSTS OFF) SELECT t FROM x_texts WHERE t LIKE '%本' AND t <> '日本' AND length(t) = 1 AND octet_length(t) = 2;
SELECT t FROM x_texts WHERE t LIKE '%本' AND t <> '日本' AND length(t) = 1 AND octet_length(t) = 2;
\c regression
DROP DATABASE x_latin;
DROP DATABASE x_euc;
