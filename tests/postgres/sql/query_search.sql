-- gstore_search(): the rows nearest to each of many vectors, by the GPU and by statements.
\set QUIET on
SET client_min_messages = warning;
CREATE EXTENSION gstore_fdw_bit;
SET max_parallel_workers_per_gather = 0;
-- Values whose distances are exact, or not equal.
CREATE TABLE sh (id int, r real[], d double precision[], s smallint[], b bit(37), loose real[], t text, gone int);
INSERT INTO sh
SELECT i, CASE WHEN i % 7 > 0 THEN (SELECT array_agg((i * x * 31 % 64 - 32) / 8.0) FROM generate_series(1, 19) x) END,
    CASE WHEN i % 9 > 0 THEN (SELECT array_agg((i * x * 17 % 32 - 16) + i / 1024.0 + i * i * 2::float8 ^ -30) FROM generate_series(1, 5) x) END,
    CASE WHEN i % 5 > 0 THEN (SELECT array_agg(i * x * 977 % 65536 - 32768) FROM generate_series(1, 20) x) END,
    CASE WHEN i % 11 > 0 THEN (i::int8 * 123456789123)::bit(37) END, '{1,2}', 'text ' || i, i FROM generate_series(1, 5000) i;
CREATE FOREIGN TABLE sg (id int, r real[] OPTIONS (length '19'), d double precision[] OPTIONS (length '5'), s smallint[] OPTIONS (length '20'), b bit(37), loose real[], t text, gone int) SERVER gstore_fdw;
CREATE FOREIGN TABLE sa (id int, r real[] OPTIONS (length '19'), d double precision[] OPTIONS (length '5'), s smallint[] OPTIONS (length '20'), b bit(37), loose real[], t text, gone int) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO sg SELECT * FROM sh;
INSERT INTO sa SELECT * FROM sh;
ALTER TABLE sh DROP COLUMN gone;
ALTER FOREIGN TABLE sg DROP COLUMN gone;
ALTER FOREIGN TABLE sa DROP COLUMN gone;
DELETE FROM sh WHERE id % 10 = 3;
DELETE FROM sg WHERE id % 10 = 3;
DELETE FROM sa WHERE id % 10 = 3;

-- What a statement for each vector says, and whether the function, with and without the GPU, says the same.
CREATE FUNCTION found(rows text, vectors text, k int, o text, filter text = NULL, relation text = 'sg') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    one text;
BEGIN
    EXECUTE format('SELECT string_agg(format(''%%s %%s %%s'', query, distance, r), E''\n'' ORDER BY query, distance, (r).id) FROM gstore_search(NULL::%s, %L, %s, %s, %L, %L)', relation, rows, vectors, k, o, filter) INTO one;
    RETURN one;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
CREATE FUNCTION same(rows text, vectors text, k int, o text, filter text = NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    wanted text;
    others text[];
BEGIN
    PERFORM set_config('gstore_fdw.gpu_queries', 'off', true);
    wanted := found(rows, vectors, k, o, filter, 'sh');
    others := ARRAY[found(rows, vectors, k, o, filter)];
    PERFORM set_config('gstore_fdw.gpu_queries', 'on', true);
    others := others || found(rows, vectors, k, o, filter) || found(rows, vectors, k, o, filter, 'sa');
    FOR i IN 1 .. 3 LOOP
        IF others[i] IS DISTINCT FROM wanted THEN
            RETURN i || ': ' || left(others[i], 300) || ' and not ' || left(wanted, 300);
        END IF;
    END LOOP;
    RETURN CASE WHEN length(wanted) < 100 THEN wanted ELSE regexp_count(wanted, E'\n') + 1 || ' ' || md5(wanted) END;
END $$;

SELECT query, distance, (r).id, (r).t FROM gstore_search(NULL::sg, 'b', ARRAY[1::bit(37), 77::bit(37)], 2, '<~>', 'id < 100 AND t LIKE ''%7''') ORDER BY 1, 2, 3;
SET client_min_messages = debug1;
SELECT count(*) FROM gstore_search(NULL::sg, 'r', (SELECT array_agg(r) FROM sh WHERE id BETWEEN 1 AND 6), 3, '<->', 'id > 100');
SELECT count(*) FROM gstore_search(NULL::sg, 'r', (SELECT array_agg(r) FROM sh WHERE id BETWEEN 1 AND 6), 3, '<->', 't ~ ''7$''');
SET gstore_fdw.gpu_query_memory = 1;
SELECT count(*) FROM gstore_search(NULL::sg, 'd', (SELECT array_agg(d) FROM sh WHERE id % 40 = 1 AND d IS NOT NULL), 3, '<->', 'id % 2 = 0 OR b::text IS NULL');
SELECT count(*) FROM gstore_search(NULL::sg, 'd', (SELECT array_agg(d) FROM sh WHERE id % 40 = 1 AND d IS NOT NULL), 3, '<->', 'id % 2 = 0 OR id IS NULL');
RESET gstore_fdw.gpu_query_memory;
SELECT count(*) FROM gstore_search(NULL::sh, 'r', (SELECT array_agg(r) FROM sh WHERE id BETWEEN 1 AND 6), 3, '<->');
SELECT count(*) FROM gstore_search(NULL::sg, 'loose', '{{1,2}}'::real[], 3, '<->');
SET client_min_messages = warning;
-- Every type and distance, without equal distances where a list ends.
SELECT o, same('r', '(SELECT array_agg(r ORDER BY id) FROM sh WHERE id < 65 AND r IS NOT NULL)', 1, o, 'id < 65'), same('d', '(SELECT array_agg(d ORDER BY id) FROM sh WHERE id % 50 = 1 AND d IS NOT NULL)', 1, o), same('s', '(SELECT array_agg(s ORDER BY id) FROM sh WHERE id % 50 = 1)', 1, o)
FROM unnest('{<->,<+>}'::text[]) o;
SELECT o, same('b', '(SELECT array_agg(b ORDER BY id) FROM sh WHERE id % 70 = 1 AND b IS NOT NULL)', 1, o) FROM unnest('{<~>,<%>}'::text[]) o;
SELECT same('d', '(SELECT array_agg(d ORDER BY id) FROM sh WHERE id % 50 = 1 AND d IS NOT NULL)', 9, '<->'), same('d', '(SELECT array_agg(d ORDER BY id) FROM sh WHERE id % 50 = 1 AND d IS NOT NULL)', 3, '<#>', 'id % 2 = 0'), same('d', '(SELECT array_agg(d ORDER BY id) FROM sh WHERE id % 50 = 1 AND d IS NOT NULL)', 30, '<+>', 'id < 1000 AND r IS NOT NULL'),
    same('s', '(SELECT array_agg(s ORDER BY id) FROM sh WHERE id < 5 AND s IS NOT NULL)', 6000, '<+>'), same('d', '''{1,2,3,4,5}''::float8[]', 5, '<=>', 'id < 20'), same('d', '''{1,2,3,4,5}''::real[]', 5, '<->');
-- No rows, no vectors, none that passes; more queries than a run has memory for.
SELECT same('d', '(SELECT array_agg(d) FROM sh WHERE id < 0)', 3, '<->'), same('d', '''{}''::float8[]', 3, '<->'), same('d', '''{1,2,3,4,5}''::float8[]', 0, '<->'), same('d', '''{1,2,3,4,5}''::float8[]', 3, '<->', 'id < 0'), same('d', '''{1,2,3,4,5}''::float8[]', 3, '<->', 'NULL');
SET gstore_fdw.gpu_query_memory = 1;
SELECT same('d', '(SELECT array_agg(d ORDER BY id) FROM sh WHERE id % 40 = 1 AND d IS NOT NULL)', 2, '<->');
RESET gstore_fdw.gpu_query_memory;
-- What is refused.
SELECT same('r', '''{{1,2},{3,4}}''::real[]', 3, '<->'), same('r', '''{{{1,2},{3,4}}}''::real[]', 3, '<->'), same('b', 'ARRAY[1::bit(37), NULL]', 3, '<~>'), same('d', '''{1,2,3,4,5}''::float8[]', -1, '<->');
SELECT * FROM gstore_search(NULL::sg, 'd', NULL::float8[], 3, '<->');
SELECT * FROM gstore_search(NULL::sg, 'nothing', '{1,2}'::real[], 3, '<->');
SELECT same('d', '''{1,2}''::real[]', 3, '<->'), same('d', '''{1,2,3,4,5}''::float8[]', 3, '='), same('d', '''{1,2,3,4,5}''::float8[]', 3, '<<>>');
SELECT same('d', '''{1,2,3,4,5}''::float8[]', 3, '<->', f) FROM unnest(ARRAY['id', 'now() > ''2000-01-01''', 'id IN (SELECT 1)', 'true; SELECT 1', 'true FROM pg_class', '', 'count(*) > 1', '$1', 'true) OR (true', 'true AS a', 'nothing > 1', 'pg_class.oid > 1', '1 / 0 > id', '*', '(*)', 'ARRAY[*] IS NULL', 'DEFAULT', 'GROUPING(id) > 0', 'row_number() OVER () > 0', 'generate_series(1, id) > 0', 'EXISTS (SELECT 1)', 'ARRAY(SELECT 1) IS NULL', 'int4larger(c => 1, d => 2) > 0', 'r[1:*] IS NULL', 'r.x IS NULL', 'ROW(id).* IS NULL', 'xmin IS NULL', 'DISTINCT true', 'true UNION SELECT true', 'true INTO x']) f;
-- A syntax error has its position in the filter.
SELECT count(*) FROM gstore_search(NULL::sg, 'd', '{1,2,3,4,5}'::float8[], 3, '<->', E'id > 100\n    AND > 5');
SELECT count(*) FROM gstore_search(NULL::sg, 'd', '{1,2,3,4,5}'::float8[], 3, '<->', 'true; SELECT 1');
-- Whole rows are no stars.
SELECT f, found('d', '''{1,2,3,4,5}''::float8[]', 2, '<->', f) = found('d', '''{1,2,3,4,5}''::float8[]', 2, '<->'), left(found('d', '''{1,2,3,4,5}''::float8[]', 2, '<->', f), 60) FROM unnest(ARRAY['sg.*', 'sg', 'sg.* = sg', 'tableoid IS NOT NULL']) f;
SELECT * FROM gstore_search(1, 'd', '{1,2,3,4,5}'::float8[], 3, '<->');
-- With the rights of who calls it: all columns; and policies.
CREATE ROLE s_reader;
GRANT SELECT (id, d) ON sg TO s_reader;
SET ROLE s_reader;
SELECT count(*) FROM gstore_search(NULL::sg, 'd', '{1,2,3,4,5}'::float8[], 3, '<->');
RESET ROLE;
GRANT SELECT (id, r, d, s, b, loose, t) ON sg TO s_reader;
CREATE TABLE with_policy (id int, d double precision[]);
INSERT INTO with_policy VALUES (1, '{1}'), (2, '{2}');
ALTER TABLE with_policy ENABLE ROW LEVEL SECURITY;
CREATE POLICY one ON with_policy USING (id = 1);
GRANT SELECT ON with_policy TO s_reader;
SET ROLE s_reader;
SELECT count(*) FROM gstore_search(NULL::sg, 'd', '{1,2,3,4,5}'::float8[], 3, '<->');
SELECT count(*) FROM gstore_search(NULL::with_policy, 'd', '{1}'::float8[], 3, '<->');
SELECT count(*) FROM gstore_search(NULL::sg, 'd', '{1,2,3,4,5}'::float8[], 3, '<->', 'abs(id) > 5');
RESET ROLE;
REVOKE EXECUTE ON FUNCTION abs(int), gstore_l1_distance(float8[], float8[]) FROM PUBLIC;
SET ROLE s_reader;
SELECT count(*) FROM gstore_search(NULL::sg, 'd', '{1,2,3,4,5}'::float8[], 3, '<->', 'abs(id) > 5');
SELECT count(*) FROM gstore_search(NULL::sg, 'd', '{1,2,3,4,5}'::float8[], 3, '<+>');
RESET ROLE;
GRANT EXECUTE ON FUNCTION abs(int), gstore_l1_distance(float8[], float8[]) TO PUBLIC;
SELECT count(*) FROM gstore_search(NULL::with_policy, 'd', '{1}'::float8[], 3, '<->');
-- Own rows, names that have to be quoted, a column that has the name of its table, operators of a schema.
BEGIN;
INSERT INTO sg (id, d) VALUES (9001, '{100,200,300,400,500}');
SELECT query, distance, (r).id FROM gstore_search(NULL::sg, 'd', '{100,200,300,400,501}'::float8[], 1, 'public.<->', 'id > 7000 OR id IS NULL');
DELETE FROM sg WHERE id > 50;
SELECT query, distance, (r).id FROM gstore_search(NULL::sg, 'd', '{100,200,300,400,501}'::float8[], 1, '<->');
ROLLBACK;
CREATE FOREIGN TABLE "S G" (t int, "The D" float8[] OPTIONS (length '1'), "S G" int) SERVER gstore_fdw;
INSERT INTO "S G" VALUES (1, '{1}', 2), (2, '{5}', NULL);
SELECT * FROM gstore_search(NULL::"S G", 'The D', '{4}'::float8[], 2, '<->', '"S G" > 0 OR t = 2');
SET gstore_fdw.gpu_queries = off;
SELECT * FROM gstore_search(NULL::"S G", 'The D', '{4}'::float8[], 2, '<->', '"S G" > 0 OR t = 2');
RESET gstore_fdw.gpu_queries;
-- Rows of children are the table's.
CREATE FOREIGN TABLE s_child (more int) INHERITS ("S G") SERVER gstore_fdw;
INSERT INTO s_child VALUES (3, '{4.5}', 7, 1);
SET client_min_messages = debug1;
SELECT * FROM gstore_search(NULL::"S G", 'The D', '{4}'::float8[], 2, '<->');
SET gstore_fdw.gpu_queries = off;
SELECT * FROM gstore_search(NULL::"S G", 'The D', '{4}'::float8[], 2, '<->');
RESET gstore_fdw.gpu_queries;
SET client_min_messages = warning;
-- Columns that are no vectors, by operators that return float8.
CREATE FOREIGN TABLE sf (id int, f float8, p point, e real, z timestamptz, i interval) SERVER gstore_fdw;
INSERT INTO sf (id, f, p, e) SELECT i, i, point(i, 1), i FROM generate_series(1, 100) i;
SELECT query, distance, (r).id FROM gstore_search(NULL::sf, 'f', '{1,2}'::float8[], 1, '-', 'id = 7');
SELECT query, distance, (r).id FROM gstore_search(NULL::sf, 'e', '{1,2}'::float8[], 1, '-', 'id = 7');
SELECT query, distance, (r).id FROM gstore_search(NULL::sf, 'p', ARRAY[point(5,1), point(8,1)], 1, '<->');
-- Constants of the filter are what they are, with any settings; those are as they were afterwards.
INSERT INTO sf VALUES (200, 0.1234567890123456, '(1,2)', 1, '2026-03-04 05:06:07.891+05:30', '1 year -2 days 03:04:05.678');
SET extra_float_digits = 0;
SET DateStyle = German;
SET TimeZone = 'Asia/Kolkata';
SET IntervalStyle = sql_standard;
SELECT f, (SELECT (r).id FROM gstore_search(NULL::sf, 'p', ARRAY[point(1,2)], 1, '<->', f)) FROM unnest('{f = ''0.1234567890123456''::float8,z = ''2026-03-04 05:06:07.891+05:30''::timestamptz,i = ''1 year -2 days 03:04:05.678''::interval}'::text[]) f;
SELECT current_setting('extra_float_digits'), current_setting('DateStyle'), current_setting('IntervalStyle');
RESET extra_float_digits;
RESET DateStyle;
RESET TimeZone;
RESET IntervalStyle;

DROP FOREIGN TABLE sg, sa, sf, s_child, "S G";
DROP TABLE sh, with_policy;
DROP ROLE s_reader;
DROP FUNCTION found, same;
DROP EXTENSION gstore_fdw_bit;
