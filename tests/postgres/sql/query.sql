-- Queries on the GPU: aggregates and GROUP BY over a table, beside the same over a heap and without the GPU.
CREATE DOMAIN q_small AS int;
CREATE TABLE qh (id int, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, b bool, d date, t time, ts timestamp,
    tz timestamptz, o oid, c "char", dom q_small, note text);
CREATE FOREIGN TABLE qg (id int, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, b bool, d date, t time, ts timestamp,
    tz timestamptz, o oid, c "char", dom q_small, note text) SERVER gstore_fdw;
CREATE FOREIGN TABLE qa (id int, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, b bool, d date, t time, ts timestamp,
    tz timestamptz, o oid, c "char", dom q_small, note text) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO qh
SELECT i, CASE WHEN i % 7 <> 0 THEN i % 100 - 50 END, CASE WHEN i % 11 <> 0 THEN i * 37 % 1000 - 500 END,
    CASE WHEN i % 13 <> 0 THEN i::int8 * 123456789012 % 10000019 * 1000003 END, CASE WHEN i % 5 <> 0 THEN (i % 64) / 4.0 END,
    CASE WHEN i % 17 <> 0 THEN (i % 1024) / 8.0 - 50 END, CASE WHEN i % 3 <> 0 THEN i % 4 = 1 END,
    CASE WHEN i % 19 <> 0 THEN date '1999-12-01' + i % 60 END, CASE WHEN i % 23 <> 0 THEN time '00:00' + i * interval '7 s' END,
    CASE WHEN i % 29 <> 0 THEN timestamp '1999-12-31 23:00' + i * interval '1 min' END,
    CASE WHEN i % 31 <> 0 THEN timestamptz '2000-01-01 00:00+00' + i * interval '1 h' END,
    CASE WHEN i % 37 <> 0 THEN (4294960000 + i)::oid END, CASE WHEN i % 41 <> 0 THEN (i % 256 - 128)::"char" END, i % 10, 'note ' || i
FROM generate_series(1, 2000) i;
-- Extremes.
INSERT INTO qh VALUES
    (3001, -32768, -2147483648, -9223372036854775808, '-infinity', '-infinity', false, '-infinity', '00:00', '-infinity', '-infinity', 0, '\200', 0, ''),
    (3002, 32767, 2147483647, 9223372036854775807, 'infinity', 'infinity', true, 'infinity', '24:00', 'infinity', 'infinity', 4294967295, '\177', 9, ''),
    (3003, 0, 0, 0, 'nan', 'nan', true, '4713-01-01 BC', '12:00', '4713-01-01 00:00 BC', '4713-01-01 00:00+00 BC', 1, '\377', 1, ''),
    (3004, NULL, NULL, NULL, '-0', '-0', NULL, '1970-01-01', NULL, '1970-01-01 00:00', '1970-01-01 00:00+00', NULL, NULL, NULL, NULL),
    (3005, 1, 1, 1, '1e-45', '5e-324', NULL, '5000-12-31', NULL, '290000-12-31 00:00', '290000-12-31 00:00+00', NULL, NULL, NULL, NULL);
INSERT INTO qg SELECT * FROM qh;
INSERT INTO qa SELECT * FROM qh;

-- Settings, and comparisons with the heap: answer(), place(), same().
SET test.tables = 'q';
SET test.node = '"GPU":';
SET test.ordered = off;
SET test.shown = '60 40';
\getenv abs_srcdir PG_ABS_SRCDIR
\set include :abs_srcdir '/sql_include/query_same.sql'
\i :include
-- How many rows meet a condition.
CREATE FUNCTION met(condition text) RETURNS text LANGUAGE sql AS $$ SELECT same('SELECT count(*) FROM q WHERE ' || condition) $$;

-- Plans.
EXPLAIN (COSTS OFF) SELECT count(*) FROM qg;
EXPLAIN (COSTS OFF) SELECT i2, count(*), sum(i4) FILTER (WHERE b) FROM qg WHERE i8 > 0 AND d < '2000-01-15' GROUP BY i2;
EXPLAIN (COSTS OFF) SELECT i2 + 1 AS k, avg(f8) * 2 FROM qg GROUP BY i2 + 1 HAVING sum(i4) > 10 ORDER BY k;
EXPLAIN (VERBOSE, COSTS OFF) SELECT sum(i4), sum(i4) + count(*) FROM qg WHERE i2 = ANY ('{1,2,NULL}');
SET gstore_fdw.gpu_aggregates = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM qg;
RESET gstore_fdw.gpu_aggregates;
SET gstore_fdw.gpu_queries = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM qg;
RESET gstore_fdw.gpu_queries;
-- A query that is not for the GPU is planned as ever.
CREATE FUNCTION is_local(query text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    plan text;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
    RETURN plan !~ '"GPU":';
END $$;
SELECT query FROM (VALUES ('SELECT count(DISTINCT initcap(note)) FROM qg'), ('SELECT string_agg(note, '''') FROM qg'), ('SELECT array_agg(i4 ORDER BY id) FROM qg'),
    ('SELECT count(*) FROM qg WHERE note ~ ''note 1'''), ('SELECT count(lower(note)) FROM qg'), ('SELECT f8, count(*) FROM qg GROUP BY f8'),
    ('SELECT initcap(note), count(*) FROM qg GROUP BY 1'), ('SELECT i2, count(*) FROM qg GROUP BY ROLLUP (i2)'),
    ('SELECT count(*) FROM qg WHERE random() < 2'), ('SELECT count(*) FROM qg WHERE ctid = ''(0,1)'''),
    ('SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY i4) FROM qg'),
    ('SELECT count(*) FROM qg WHERE i4 IN (SELECT i4 FROM qh)'), ('SELECT sum(i4::numeric / 3) FROM qg'), ('SELECT regr_slope(f8, f4) FROM qg'),
    ('SELECT count(*) FROM qg WHERE id = 1 AND current_user = ''x'''), ('SELECT id FROM qg')) v (query)
WHERE NOT is_local(query);

-- Pairs with all rows of a heap.
SELECT same('SELECT count(*), sum(q.i4::int8), max(pair.id) FROM q, qh pair WHERE q.id < 30');

-- Conditions.
SELECT c, met('i2 ' || c || ' 7'), met('i2 ' || c || ' i4'), met('i2 ' || c || ' i8'), met('i4 ' || c || ' 7'), met('i4 ' || c || ' i8'),
    met('i8 ' || c || ' i2'), met('i8 ' || c || ' 7000000000'), met('i8 ' || c || ' i4')
FROM unnest('{=,<>,<,<=,>,>=}'::text[]) c;
SELECT c, met('f4 ' || c || ' 7.5'), met('f4 ' || c || ' f8'), met('f8 ' || c || ' 7.5'), met('f8 ' || c || ' f4'), met('f8 ' || c || ' ''nan'''),
    met('f8 ' || c || ' 0'), met('f8 ' || c || ' ''infinity''')
FROM unnest('{=,<>,<,<=,>,>=}'::text[]) c;
SELECT c, met('b ' || c || ' true'), met('d ' || c || ' date ''2000-01-01'''), met('t ' || c || ' time ''01:00'''), met('ts ' || c || ' timestamp ''2000-01-01'''),
    met('tz ' || c || ' timestamptz ''2000-01-10 00:00+00'''), met('o ' || c || ' 4294961000'), met('dom ' || c || ' 5')
FROM unnest('{=,<>,<,<=,>,>=}'::text[]) c;
SELECT c, met('c ' || c || ' ''x'''), met('d ' || c || ' ''infinity'''), met('ts ' || c || ' ''-infinity''')
FROM unnest('{=,<>,<,<=,>,>=}'::text[]) c;
SELECT met('b'), met('NOT b'), met('b IS TRUE'), met('b IS NOT TRUE'), met('b IS FALSE'), met('b IS NOT FALSE'), met('b IS UNKNOWN'), met('b IS NOT UNKNOWN'),
    met('i2 IS NULL'), met('i2 IS NOT NULL'), met('(i2 + i4) IS NULL'), met('(i4 > 0) IS NULL');
SELECT met('i2 IS DISTINCT FROM i4'), met('i2 IS NOT DISTINCT FROM i4'), met('f8 IS DISTINCT FROM f4'), met('i2 IS DISTINCT FROM 3'), met('b IS NOT DISTINCT FROM (i2 > 0)');
SELECT met('i2 > 0 AND i4 > 0'), met('i2 > 0 OR i4 > 0'), met('NOT (i2 > 0 AND (i4 < 0 OR b))'), met('(i2 > 0) = b'), met('(i2 > 0 OR NULL) IS NULL'), met('i4 BETWEEN -10 AND 10'),
    met('i4 NOT BETWEEN SYMMETRIC 10 AND -10');
SELECT met('i2 IN (1, 2, 3)'), met('i2 NOT IN (1, 2, 3)'), met('i4 IN (1, NULL, 3)'), met('(i4 NOT IN (1, NULL, 3)) IS NULL'), met('i8 = ANY (''{0,1}''::int8[])'),
    met('i2 = ANY (''{1,40000}''::int4[])'), met('f4 IN (1, 2.5, ''nan'')'), met('f8 IN (0, ''infinity'', 1.125)'), met('i4 = ANY (''{}''::int4[])'), met('i4 <> ALL (''{}''::int4[])'),
    met('d IN (''2000-01-01'', ''infinity'')'), met('(i4 = ANY (NULL::int[])) IS NULL'), met('o IN (1, 4294967295)'), met('dom IN (1, 2)');
-- Lists within lists.
SELECT met('(id IN (1, 2)) IN (true)'), met('(i2 = ANY (''{1,2,3}'')) NOT IN (true)'), met('(i2 = ANY (''{1,2,3}'')) NOT IN (true, NULL)'), met('(i4 IN (1, 2, 3)) = ANY (''{false}'')'), met('((i2 IN (1, 2, 3)) IN (false, NULL)) IN (true)'), met('(id IN (7, 8, 9)) NOT IN (false)');

-- Numbers.
SELECT same('SELECT sum(i2 + i2), sum(i2::int4 + i4::int8), sum(i2 * i2::int8), sum(i2 - i4::int8), sum(i8 / 1000), sum(i2 / 7), sum(i2 % 7), sum(i4::int8 % 1000), sum(abs(i2::int4)), sum(-(i4 / 2)) FROM q WHERE id < 3000');
SELECT same('SELECT sum(f8 + f4), sum(f8 - 0.5), sum(f4 * 2), sum(f8 / 4), sum(abs(f8)), sum(-f8), sum(@ f4), max(f4 / 3), min(f8 / 3), max(f4 * f8) FROM q WHERE id < 3000');
SELECT same('SELECT sum(i2::int8), sum(i4::int2), sum((i8 / 1000000000)::int4), sum(i4::float8), max(i8::float8 / 1e6), sum(f8::int4), sum(f8::int2), sum(f4::int8), sum(i4::float4), max(f8::float4), sum(b::int4) FROM q WHERE id < 3000');
SELECT same('SELECT sum(CASE WHEN i2 > 0 THEN i4 WHEN i2 < -20 THEN -1 ELSE i2 END), sum(CASE dom WHEN 1 THEN i4 WHEN 2 THEN 5 END), sum(coalesce(i2, i4, 7)), count(nullif(dom, 3)), sum(nullif(i2, i4)) FROM q');
SELECT same('SELECT count(*) FROM q WHERE CASE WHEN b THEN i2 ELSE i4 END > CASE dom WHEN 3 THEN 10 WHEN 4 THEN NULL ELSE -10 END');

-- What a CASE compares with depends on the row, also where there are no instructions for it.
SELECT same('SELECT sum(CASE note WHEN ''note 7'' THEN 1 WHEN ''note 8'' THEN 20 ELSE 0 END) FROM q') AS of_text, same('SELECT sum(CASE d WHEN timestamp ''1999-12-03'' THEN 1 END) FROM q') AS of_other_types;
-- Aggregates, of all rows and of groups, of none and of NULLs alone.
SELECT same('SELECT count(*), count(i2), count(i4), count(id), sum(i2), sum(i4), sum(i8), avg(i2), avg(i4), avg(i8) FROM q');
SELECT same('SELECT min(i2), max(i2), min(i4), max(i4), min(i8), max(i8), min(f4), max(f4), min(f8), max(f8) FROM q');
SELECT same('SELECT min(d), max(d), min(t), max(t), min(ts), max(ts), min(tz), max(tz), min(o), max(o) FROM q');
SELECT same('SELECT bool_and(b), bool_or(b), every(id > 0), bool_or(i2 > 1000), bit_and(i2), bit_or(i4), bit_xor(i8), bit_and(id), bit_or(i2), bit_xor(i4) FROM q');
SELECT same('SELECT sum(f4), avg(f4), sum(f8), avg(f8) FROM q WHERE id < 3000'), same('SELECT sum(f8), avg(f8), sum(f4) FROM q'), same('SELECT sum(f8), avg(f8) FROM q WHERE id IN (3002, 1, 2)');
-- Of -0 alone a sum is -0, and an average is 0.
SELECT same('SELECT sum(f8), avg(f8), sum(f4), avg(f4) FROM q WHERE id = 3004'), same('SELECT id, sum(f8), avg(f8), sum(f4) FROM q WHERE id IN (3004, 400) GROUP BY id'), same('SELECT sum(f8) FROM q WHERE id IN (3004, 400)');
SELECT same('SELECT count(*), count(i2), sum(i2), avg(i8), min(f8), bool_and(b), bit_xor(i4), sum(f8), avg(f4), max(tz) FROM q WHERE id = 0');
SELECT same('SELECT count(*), count(i2), sum(i2), avg(i8), min(f8), bool_and(b), bit_xor(i4) FROM q WHERE i2 IS NULL AND i8 IS NULL AND b IS NULL');
SELECT same('SELECT count(*) FILTER (WHERE b), sum(i4) FILTER (WHERE i2 > 0), avg(i4) FILTER (WHERE false), min(id) FILTER (WHERE id > 1000), count(id) FILTER (WHERE NOT b), max(f8) FILTER (WHERE f8 < 3) FROM q');
SELECT same('SELECT dom, count(*), sum(i4), avg(i8), min(d), max(f8), bool_or(b) FROM q GROUP BY dom');
SELECT same('SELECT b, i2, count(*) FROM q GROUP BY b, i2'), same('SELECT d, count(*) FROM q GROUP BY d'), same('SELECT c, o, t, ts, tz, max(id) FROM q GROUP BY c, o, t, ts, tz');
SELECT same('SELECT i2 % 3, dom IS NULL, count(i4) FILTER (WHERE b) FROM q GROUP BY i2 % 3, dom IS NULL'), same('SELECT dom FROM q GROUP BY dom'), same('SELECT id, i2, i4, i8, b, d, t, ts FROM q GROUP BY id, i2, i4, i8, b, d, t, ts');
SELECT same('SELECT dom, count(*) FROM q WHERE id < 0 GROUP BY dom'), same('SELECT dom + 1, sum(i4) * 2 + dom FROM q GROUP BY dom HAVING count(*) > 1 AND sum(i4) > -100000'), same('SELECT 1 FROM q HAVING count(*) > 3'), same('SELECT 1 FROM q HAVING count(*) < 3');
SELECT same('SELECT dom, (SELECT count(*) FROM q WHERE i2 = dom) FROM q GROUP BY dom'), same('SELECT sum(n) FROM (SELECT dom, count(*) AS n FROM q GROUP BY dom) s');

-- Errors, where PostgreSQL raises them and nowhere else.
SELECT met('10 / i2 > 1'), met('i2 <> 0 AND 10 / i2 > 1'), met('i2 = 0 OR 10 / i2 > 1'), met('(10 / i2 > 1) AND i2 <> 0'), met('CASE WHEN i2 <> 0 THEN 10 / i2 > 1 END'), met('coalesce(i2, 1 / (i4 - i4)) > 0');
SELECT same('SELECT sum(i2::int2 * i2) FROM q'), same('SELECT sum(i4 + i4) FROM q'), same('SELECT sum(i8 * 2) FROM q'), same('SELECT max(i4::int2) FROM q'), same('SELECT max(i8::int4) FROM q'), same('SELECT max(-i2) FROM q'), same('SELECT max(abs(i8)) FROM q');
SELECT same('SELECT max(f8::int4) FROM q'), same('SELECT max(1 / f8) FROM q'), same('SELECT max(f8 * 1e308) FROM q WHERE id < 3000'), same('SELECT min(f8 / 1e300) FROM q WHERE id = 3005'), same('SELECT max((f8 * 1e100)::float4) FROM q WHERE id < 3000'),
    same('SELECT max(i2 % 0::int2) FROM q'), same('SELECT min(i4 / -1) FROM q'), same('SELECT min(i8 % -1) FROM q');
SELECT same('SELECT sum(CASE WHEN i2 <> 0 THEN 100 / i2 END), sum(100 / i2) FILTER (WHERE i2 <> 0) FROM q'), same('SELECT sum(1e308::float8 + id * 0) FROM q'), same('SELECT sum(3e38::float4) FROM q');

-- Values that depend on no row are evaluated when a row comes to them: where none does, they raise no error.
CREATE FUNCTION q_fail() RETURNS int LANGUAGE sql STABLE AS 'SELECT 1 / (count(*)::int - count(*)::int) FROM (VALUES (1)) v';
SELECT same('SELECT count(*) FROM q WHERE i4 > 2147483647 AND i2 = (SELECT q_fail())'), same('SELECT count(*) FROM q WHERE i4 > 1000 AND i2 = (SELECT q_fail())'), same('SELECT count(*) FROM q WHERE i4 > 1000 AND i2 = (SELECT min(id) FROM qh)'),
    same('SELECT count(*) FROM q WHERE i2 = (SELECT q_fail())'), same('SELECT count(*) FROM q WHERE i2 = (SELECT min(id) FROM qh)');
SELECT same('SELECT count(CASE WHEN i4 > 1000 AND id < 0 THEN (SELECT q_fail()) END) FROM q'), same('SELECT sum(CASE WHEN i4 > 400 THEN (SELECT q_fail()) ELSE 1 END) FROM q'), same('SELECT sum(CASE WHEN i4 > 400 THEN (SELECT min(id) FROM qh) ELSE -1 END) FROM q'),
    same('SELECT sum(coalesce(id, (SELECT q_fail()))) FROM q'), same('SELECT sum(coalesce(i2, (SELECT min(id) FROM qh))) FROM q'), same('SELECT count(*) FROM q WHERE id > 0 OR i2 = (SELECT q_fail())'), same('SELECT sum(id + (SELECT q_fail())) FROM q WHERE id < 0'),
    same('SELECT sum(id + (SELECT q_fail())) FROM q'), same('SELECT count(id) FILTER (WHERE i2 = (SELECT q_fail())) FROM q WHERE id < 0'), same('SELECT i2 + (SELECT q_fail()), count(*) FROM q WHERE id < 0 GROUP BY 1'), same('SELECT dom + (SELECT min(id) FROM qh), count(*) FROM q WHERE id < 30 GROUP BY 1');
SELECT same('SELECT count(*) FROM q WHERE id < 0 AND i2 = ANY (ARRAY[1, (SELECT q_fail())])'), same('SELECT count(*) FROM q WHERE id > 0 AND i2 = ANY (ARRAY[1, (SELECT q_fail())])'), same('SELECT count(*) FROM q WHERE id > 0 AND i2 = ANY (ARRAY[1, (SELECT min(id) FROM qh)])'),
    same('SELECT count(*) FROM q WHERE id < 0 AND i2 <> ALL ((SELECT CASE WHEN q_fail() > 0 THEN ''{1}'' END)::int[])'), same('SELECT count(*) FROM q WHERE id > 0 AND i2 <> ALL ((SELECT ''{1,2}'')::int[])'), same('SELECT count(*) FROM q WHERE id > 0 OR i2 <> ALL ((SELECT CASE WHEN q_fail() > 0 THEN ''{1}'' END)::int[])');
SELECT same('SELECT count(*) FROM q WHERE 1 / (id - id) > (SELECT (''x'' || count(*))::int FROM qh)'), same('SELECT count(*) FROM q WHERE 1 / id >= 0 AND id > (SELECT (''x'' || count(*))::int FROM qh)');
-- So it is where a row comes to another of them, or to several.
SELECT same('SELECT sum(CASE WHEN i4 > 400 THEN (SELECT min(id) FROM qh) WHEN id < 0 THEN (SELECT q_fail()) END) FROM q'), same('SELECT sum(CASE WHEN id < 0 THEN (SELECT q_fail()) WHEN i4 > 400 THEN (SELECT min(id) FROM qh) ELSE (SELECT max(id) FROM qh) END) FROM q'),
    same('SELECT count(id) FILTER (WHERE i2 = (SELECT min(id) FROM qh)), count(id) FILTER (WHERE id < 0 AND i2 = (SELECT q_fail())) FROM q'), same('SELECT sum(CASE WHEN i4 > 400 THEN (SELECT min(id) FROM qh) WHEN i4 < 400 THEN (SELECT q_fail()) END) FROM q');
PREPARE late (int, text) AS SELECT count(*) FROM qg WHERE i4 > $1 AND i2 = $2::int;
SET plan_cache_mode = force_generic_plan;
EXECUTE late (2147483647, 'x');
EXECUTE late (400, 'x');
EXECUTE late (400, '7');
SELECT count(*) FROM qh WHERE i4 > 400 AND i2 = 7;
-- A row is there, though some are deleted; or none is.
BEGIN;
DELETE FROM qg WHERE id <= 3000;
EXECUTE late (-2147483648, '1');
SELECT count(*) FROM qg WHERE i4 = (SELECT q_fail());
ROLLBACK;
BEGIN;
DELETE FROM qg;
SELECT count(*) FROM qg WHERE i4 = (SELECT q_fail());
SELECT sum(i4 + (SELECT q_fail())), count(*) FROM qg;
INSERT INTO qg (i4) VALUES (1);
SELECT count(*) FROM qg WHERE i4 = (SELECT q_fail());
ROLLBACK;
RESET plan_cache_mode;
DEALLOCATE late;
-- None comes before a condition that PostgreSQL evaluates first.
EXPLAIN (COSTS OFF) SELECT id FROM qg WHERE note ~ 'none' AND i2 = (SELECT q_fail());
SELECT id FROM qg WHERE note ~ 'none' AND i2 = (SELECT q_fail());

-- What a transaction has changed is seen: by whom and when as everywhere.
BEGIN;
INSERT INTO qg (id, i4, dom) VALUES (9001, 1, 77), (9002, 2, 77);
SELECT dom, count(*), sum(i4) FROM qg WHERE dom = 77 GROUP BY dom;
SAVEPOINT s;
DELETE FROM qg WHERE id = 9001;
UPDATE qg SET i4 = 10 WHERE id = 9002;
DELETE FROM qg WHERE id <= 1000;
SELECT count(*), sum(i4) FILTER (WHERE dom = 77) FROM qg;
ROLLBACK TO s;
SELECT count(*), sum(i4) FILTER (WHERE dom = 77) FROM qg;
TRUNCATE qg;
SELECT count(*), sum(i4), max(d) FROM qg;
SELECT dom, count(*) FROM qg GROUP BY dom;
INSERT INTO qg (id) VALUES (1);
SELECT count(*), sum(i4) FROM qg;
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
DELETE FROM qg WHERE id % 2 = 0;
SELECT count(*), sum(id) FROM qg;
ROLLBACK;
SELECT count(*), sum(id) FROM qg;

-- Parameters: of custom and generic plans, of an outer query, of cursors.
PREPARE p (int, int2[], date) AS SELECT count(*), sum(i4) FROM qg WHERE i4 > $1 AND i2 = ANY ($2) AND d > $3 - 7;
EXECUTE p (0, '{1,2,3}', '2000-01-01');
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE p (0, '{1,2,3}', '2000-01-01');
EXECUTE p (0, '{1,2,3}', '2000-01-01');
EXECUTE p (NULL, '{1,2,3}', '2000-01-01');
EXECUTE p (0, NULL, '2000-01-01');
-- More values than a program has room for: the local plan.
SELECT array_agg(i)::int2[] AS many FROM generate_series(-2000, 2000) i \gset
EXECUTE p (-600, :'many', '1990-01-01');
SELECT place(format('EXECUTE p (-600, %L, ''1990-01-01'')', :'many'));
RESET plan_cache_mode;
SELECT g, (SELECT count(*) FROM qg WHERE dom = g), (SELECT sum(i4) FROM qg WHERE i2 > g * 10 GROUP BY dom ORDER BY 1 LIMIT 1) FROM generate_series(0, 3) g;
SELECT g, c.n, c.s FROM generate_series(0, 2) g, LATERAL (SELECT dom, count(*) AS n, sum(id) AS s FROM qg WHERE dom <= g GROUP BY dom) c ORDER BY 1, 2, 3;
BEGIN;
DECLARE q_cursor CURSOR FOR SELECT dom, count(*) FROM qg WHERE dom < 5 GROUP BY dom ORDER BY dom;
FETCH 2 FROM q_cursor;
SELECT count(*) FROM qg;
FETCH 2 FROM q_cursor;
MOVE BACKWARD ALL FROM q_cursor;
FETCH 1 FROM q_cursor;
COMMIT;
-- A cursor whose results are not fetched in one piece, and another query meanwhile; then one that is closed before its end.
CREATE FOREIGN TABLE qm (k int, v int) SERVER gstore_fdw;
INSERT INTO qm SELECT i, i % 10 FROM generate_series(1, 700000) i;
SELECT count(*), sum(c), min(k), max(k), sum(k) FROM (SELECT k, count(*) AS c FROM qm GROUP BY k) s;
BEGIN;
DECLARE q_many CURSOR FOR SELECT k, count(*), sum(v) FROM qm GROUP BY k;
MOVE 1000 FROM q_many;
SELECT v, count(*) FROM qm WHERE k <= 100000 GROUP BY v ORDER BY v LIMIT 3;
MOVE 500000 FROM q_many;
SELECT count(*) FROM qm;
MOVE ALL FROM q_many;
DECLARE q_left CURSOR FOR SELECT k, count(*), sum(v) FROM qm GROUP BY k;
MOVE 10 FROM q_left;
CLOSE q_left;
DECLARE q_aborted CURSOR FOR SELECT k, count(*), sum(v) FROM qm GROUP BY k;
MOVE 10 FROM q_aborted;
ROLLBACK;
SELECT sum(v) FROM qm;
-- Too little memory for the groups: the local plan.
SET gstore_fdw.gpu_query_memory = '1MB';
SELECT place('SELECT k, count(*) FROM qm GROUP BY k') ~ '^by the local plan: ' AS local, count(*), sum(c) FROM (SELECT k, count(*) AS c FROM qm GROUP BY k) s;
RESET gstore_fdw.gpu_query_memory;
-- A time limit ends a query, and the next one runs.
SET LOCAL statement_timeout = '20ms' \; SELECT count(*) FROM (SELECT k, sum(v), max(k * 1.5::float8), count(v % 7) FROM qm GROUP BY k) s;
SELECT place('SELECT sum(v) FROM qm'), sum(v) FROM qm;
DROP FOREIGN TABLE qm;

-- Rights: of some columns alone; a condition that may raise an error stays behind a barrier.
CREATE ROLE q_reader;
GRANT SELECT (id, dom) ON qg TO q_reader;
CREATE VIEW q_barrier WITH (security_barrier) AS SELECT id, i4, i2 FROM qg WHERE i2 > 0;
GRANT SELECT ON q_barrier TO q_reader;
SET ROLE q_reader;
SELECT count(dom), sum(id) FROM qg;
SELECT sum(i4) FROM qg;
EXPLAIN (COSTS OFF) SELECT count(*) FROM q_barrier WHERE 10 / i2 > 2;
SELECT count(*) FROM q_barrier WHERE 10 / i2 > 2;
SELECT count(*), sum(i4) FROM q_barrier;
RESET ROLE;
DROP VIEW q_barrier;
REVOKE ALL ON qg FROM q_reader;
DROP ROLE q_reader;

-- Children are not summed up with their parent by it.
CREATE FOREIGN TABLE qg_child () INHERITS (qg) SERVER gstore_fdw;
INSERT INTO qg_child (id, i4) VALUES (1, 5);
SELECT count(*) FROM qg;
SELECT count(*) FROM ONLY qg;
DROP FOREIGN TABLE qg_child;

-- Columns that came, went and changed.
ALTER FOREIGN TABLE qg ADD COLUMN later int;
SELECT count(*), count(later), sum(later), min(later) FROM qg;
SELECT later, count(*) FROM qg GROUP BY later;
UPDATE qg SET later = id WHERE id <= 10;
SELECT count(*), count(later), sum(later), min(later) FROM qg;
ALTER FOREIGN TABLE qg DROP COLUMN i2;
SELECT count(*), sum(i4), max(i4) FROM qg;
-- A table without rows.
CREATE FOREIGN TABLE qe (id int, v int) SERVER gstore_fdw;
SELECT count(*), sum(v), min(v), bool_and(v > 0) FROM qe;
SELECT v, count(*) FROM qe GROUP BY v;
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT count(*) FROM qe;

-- Values that only look alike.
SELECT same('SELECT count(*) FROM q WHERE d = ANY (''{2000-01-01, 1999-12-05}''::timestamp[])');
SELECT same('SELECT count(*) FROM q WHERE d <> ALL (''{2000-01-01, 1999-12-05}''::timestamp[])');
SELECT same('SELECT count(10 / (dom - 3)) FROM q WHERE dom IS NOT NULL');
SELECT same('SELECT count(10 / (id - 7)) FROM q');
SELECT same('SELECT max(-1e-310 * abs(dom)) FROM q WHERE dom > 0');
SELECT same('SELECT generate_series(1, 3) AS g, count(*) FROM q GROUP BY g');
DROP FOREIGN TABLE qe, qg, qa;
DROP TABLE qh;
DROP FUNCTION answer, place, same, met, is_local, q_fail;
DROP DOMAIN q_small;
