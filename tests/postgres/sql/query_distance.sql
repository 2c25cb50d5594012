-- Distances of arrays and bit strings: as functions and operators, and by the GPU.
\set QUIET on
SET client_min_messages = warning;
CREATE EXTENSION gstore_fdw_bit;

-- ---- functions and operators
SELECT '{1,2,3}'::real[] <-> '{4,6,3}' AS l2, '{1,2,3}'::real[] <#> '{4,6,3}' AS inner, '{1,0}'::real[] <=> '{0,2}' AS cosine, '{1,2,3}'::real[] <+> '{4,6,2}' AS l1;
SELECT '{1,2,3}'::float8[] <-> '{4,6,3}' AS l2, '{1,2,3}'::float8[] <#> '{4,6,3}' AS inner, '{3,4}'::float8[] <=> '{-3,-4}' AS cosine, '{1,2,3}'::float8[] <+> '{4,6,2}' AS l1;
SELECT '{-32768,2}'::int2[] <-> '{32767,2}' AS l2, '{-32768,1}'::int2[] <#> '{-32768,3}' AS inner, '{3,4}'::int2[] <=> '{6,8}' AS cosine, '{-32768,1}'::int2[] <+> '{32767,2}' AS l1;
SELECT B'1100' <~> B'1010' AS hamming, B'1100' <%> B'1010' AS jaccard, B'1100' <%> B'0011' AS nothing, B'000' <%> B'000' AS zeros, repeat('10', 100)::varbit::bit(200) <~> repeat('1', 200)::varbit::bit(200) AS long,
    gstore_hamming_distance(B'', B''), gstore_jaccard_distance(repeat('110', 67)::varbit::bit(201), repeat('011', 67)::varbit::bit(201));
SELECT '{1,NaN}'::real[] <-> '{1,2}' AS nan, '{1,Infinity}'::real[] <+> '{1,2}' AS infinite, '{Infinity}'::real[] <-> '{Infinity}' AS of_both, '{1e300}'::float8[] <-> '{-1e300}' AS beyond, '{0,0}'::real[] <=> '{1,2}' AS zeros, '{}'::real[] <-> '{}' AS empty,
    NULL::real[] <-> '{1}' AS null, '[5:6]={1,2}'::real[] <-> '{1,3}' AS bounds, '{1.5,2}'::real[] <-> ARRAY[1.5, 4] AS numerics;
SELECT gstore_negative_inner_product('{1,2}'::real[], '{3,4}') AS inner, gstore_cosine_distance('{1,0}'::int2[], '{0,3}') AS cosine;
SELECT '{1,2}'::real[] <-> '{1}';
SELECT '{1,NULL}'::int2[] <-> '{1,2}';
SELECT '{{1,2}}'::real[] <=> '{{1,2}}';
SELECT B'101' <~> B'1';
SELECT gstore_l2_distance('{1}'::int[], '{2}');
SELECT o.oprname, o.oprleft::regtype, p.provolatile, p.proisstrict, p.proparallel, o.oprcom = o.oid AS commutes FROM pg_operator o JOIN pg_proc p ON p.oid = o.oprcode
    WHERE p.proname ~ '^gstore_.*(distance|product)$' ORDER BY p.proname, 2;

-- ---- on the GPU; values whose distances are exact, so that equal ones are equal
SET enable_sort = off;
CREATE TABLE dh (id int, r real[], d double precision[], s smallint[], b bit(37), loose real[], t text);
CREATE FOREIGN TABLE dg (id int, r real[] OPTIONS (length '12'), d double precision[] OPTIONS (length '9'), s smallint[] OPTIONS (length '20'), b bit(37), loose real[], t text) SERVER gstore_fdw;
CREATE FOREIGN TABLE da (id int, r real[] OPTIONS (length '12'), d double precision[] OPTIONS (length '9'), s smallint[] OPTIONS (length '20'), b bit(37), loose real[], t text) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO dh
SELECT i, CASE WHEN i % 7 > 0 THEN (SELECT array_agg((i * x * 31 % 64 - 32) / 8.0) FROM generate_series(1, 12) x) END,
    CASE WHEN i % 9 > 0 THEN (SELECT array_agg((i * x * 17 % 32 - 16) * 2.0 ^ 20 + i / 1024.0) FROM generate_series(1, 9) x) END,
    CASE WHEN i % 5 > 0 THEN (SELECT array_agg(i * x * 977 % 65536 - 32768) FROM generate_series(1, 20) x) END,
    CASE WHEN i % 11 > 0 THEN (i::int8 * 123456789123)::bit(37) END, '{1,2}', 'text ' || i FROM generate_series(1, 2000) i;
INSERT INTO dh (id, r, d, s, b) VALUES (3001, array_fill(0, ARRAY[12]), array_fill(0, ARRAY[9]), array_fill(0, ARRAY[20]), 0::bit(37)), (3002, array_fill('NaN'::real, ARRAY[12]), array_fill('Infinity'::float8, ARRAY[9]), NULL, NULL);
INSERT INTO dg SELECT * FROM dh;
INSERT INTO da SELECT * FROM dh;
DELETE FROM dh WHERE id % 10 = 3;
DELETE FROM dg WHERE id % 10 = 3;
DELETE FROM da WHERE id % 10 = 3;

-- Settings, and comparisons with the heap: answer(), place(), same().
SET test.tables = 'd';
SET test.node = '"GPU(": "order| Filter|": "aggregate)';
SET test.ordered = on;
SET test.shown = '60 40';
\getenv abs_srcdir PG_ABS_SRCDIR
\set include :abs_srcdir '/sql_include/query_same.sql'
\i :include

EXPLAIN (COSTS OFF) SELECT id, r <-> '{1,0,0,-2,0,0,0,3,0,0,0,0.5}' AS distance FROM dg WHERE id > 10 ORDER BY r <-> '{1,0,0,-2,0,0,0,3,0,0,0,0.5}', id LIMIT 5;
SELECT o, same(format('SELECT id, r %s ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'' AS d FROM q ORDER BY 2, id LIMIT 5', o)), same(format('SELECT id FROM q ORDER BY ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}''::real[] %s r DESC, id LIMIT 100', o)),
    same(format('SELECT id, d %s (SELECT d FROM dh WHERE id = 14) AS d FROM q ORDER BY 2, id LIMIT 5', o)), same(format('SELECT id, s %s (SELECT s FROM dh WHERE id = 14) AS d FROM q ORDER BY 2, id LIMIT 5', o))
FROM unnest('{<->,<#>,<+>}'::text[]) o;
SELECT o, same(format('SELECT id, b %s B''1010101010101010101010101010101010101'' AS d FROM q ORDER BY 2, id LIMIT 5', o)) FROM unnest('{<~>,<%>}'::text[]) o;
-- By functions, and by operators of somebody's.
CREATE OPERATOR ~~~ (LEFTARG = smallint[], RIGHTARG = smallint[], FUNCTION = gstore_l1_distance);
SELECT same('SELECT id FROM q ORDER BY gstore_l2_distance(r, ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}''), gstore_l1_distance(r, ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}''), id LIMIT 5'), same('SELECT id FROM q ORDER BY gstore_hamming_distance(5::bit(37), b) DESC, id LIMIT 5'), same('SELECT id FROM q ORDER BY s ~~~ (SELECT s FROM dh WHERE id = 14), id LIMIT 5');
-- Cosines are rounded, and not a number for the vector without a direction.
SELECT same('SELECT id FROM q WHERE id IN (1, 2, 4, 5, 3001) ORDER BY r <=> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'', id LIMIT 9'), same('SELECT id FROM q WHERE id < 7 OR id = 3001 ORDER BY d <=> (SELECT d FROM dh WHERE id = 14) DESC, id LIMIT 9'),
    same('SELECT id FROM q WHERE id < 9 OR id = 3001 ORDER BY s <=> (SELECT s FROM dh WHERE id = 14), id LIMIT 9');
-- NULLs, values of another length or shape, columns of any length.
SELECT same('SELECT id FROM q ORDER BY r <-> NULL::real[], id LIMIT 3'), same('SELECT id FROM q WHERE id < 30 ORDER BY r <-> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'', d <+> array_fill(1, ARRAY[9]), id LIMIT 40'), same('SELECT id FROM q ORDER BY r <-> ''{1,2}'' LIMIT 3', NULL),
    same('SELECT id FROM q ORDER BY r <-> ''{1,2,3,4,5,6,7,8,9,10,11,NULL}'' LIMIT 3', NULL), same('SELECT id FROM q ORDER BY b <~> B''1'' LIMIT 3', NULL),
    same('SELECT id FROM q WHERE id < 2000 ORDER BY r <-> ''[5:16]={1,0,0,-2,0,0,0,3,0,0,0,0.5}'', id LIMIT 3'), same('SELECT id FROM q ORDER BY loose <-> ''{1,2}'', id LIMIT 3', NULL);
-- In conditions, arguments of aggregates, and expressions.
EXPLAIN (COSTS OFF) SELECT id FROM dg WHERE r <-> '{1,0,0,-2,0,0,0,3,0,0,0,0.5}' < 7;
EXPLAIN (COSTS OFF) SELECT count(*) FILTER (WHERE r <-> '{1,0,0,-2,0,0,0,3,0,0,0,0.5}' < 7) FROM dg WHERE b <~> 5::bit(37) < 15;
SELECT same('SELECT id FROM q WHERE r <-> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'' < 7'), same('SELECT id, t FROM q WHERE r <-> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'' BETWEEN 7 AND 9 AND t LIKE ''%7'''), same('SELECT count(*), min(id), max(id) FROM q WHERE 8 >= r <-> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'''), same('SELECT count(*) FROM q WHERE b <%> 1234567::bit(37) < 0.75'),
    same('SELECT count(*) FROM q WHERE r <-> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'' IS NULL'), same('SELECT count(*) FILTER (WHERE s <+> (SELECT s FROM dh WHERE id = 14) < 200000), max(s <+> (SELECT s FROM dh WHERE id = 14)) FROM q WHERE b <~> 5::bit(37) < 15'), same('SELECT id % 5, avg(r <+> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}''), count(d <#> array_fill(1::float8, ARRAY[9])) FROM q WHERE id < 3000 GROUP BY 1 ORDER BY 1');
SELECT same('SELECT id FROM q WHERE r <-> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'' < 9 ORDER BY r <-> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'', id LIMIT 5'), same('SELECT id FROM q ORDER BY (r <-> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'') * (r <-> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'') + 1, id LIMIT 5'), same('SELECT sum(CASE WHEN id % 2 = 0 THEN r <+> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'' ELSE s <+> ''{2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2}'' END) FROM q WHERE id < 3000'),
    same('SELECT count(*) FROM q WHERE r <-> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'' = ''NaN'''), same('SELECT count(*), max(id) FROM q WHERE r <=> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'' < 0.8');
-- Of five the scan evaluates one; one of another length is no error where no row comes to it.
SELECT same('SELECT count(*) FROM q WHERE r <-> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'' > 1 AND r <-> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'' < 100 AND r <+> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'' > 2 AND r <#> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'' < 0 AND id > 0'), same('SELECT count(*) FROM q WHERE r <-> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'' > 1 AND d <-> ''{1,2,3,4,5,6,7,8,9}'' > 2 AND r <+> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'' > 2 AND r <#> ''{1,0,0,-2,0,0,0,3,0,0,0,0.5}'' < 0 AND s <-> ''{2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2}'' > 2'),
    same('SELECT id FROM q WHERE id > 5000 AND r <-> ''{1}'' < 3'), same('SELECT id FROM q WHERE id > 1990 AND r <-> ''{1}'' < 3');
-- Nor where a condition that the GPU does not evaluate comes before it.
PREPARE after_like(real[]) AS SELECT id FROM dg WHERE t ~ '^nothing' AND r <-> $1 < 7;
SET plan_cache_mode = force_generic_plan;
EXECUTE after_like('{1}');
DEALLOCATE after_like;
PREPARE after_id(int, real[]) AS SELECT id FROM dg WHERE id > $1 AND r <-> $2 < 3;
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE after_id(5000, '{1}');
EXECUTE after_id(1000, '{1}');
DEALLOCATE after_id;
PREPARE near_like(real[]) AS SELECT id FROM dg WHERE t ~ '7$' ORDER BY r <-> $1, id LIMIT 3;
EXPLAIN (COSTS OFF) EXECUTE near_like(NULL);
EXECUTE near_like('{1,0,0,-2,0,0,0,3,0,0,0,0.5}');
DEALLOCATE near_like;
SELECT id FROM dh WHERE t ~ '7$' ORDER BY r <-> '{1,0,0,-2,0,0,0,3,0,0,0,0.5}', id LIMIT 3;
-- With parameters.
PREPARE nearest(real[], bigint) AS SELECT id FROM dg ORDER BY r <-> $1, id LIMIT $2;
SET plan_cache_mode = force_generic_plan;
EXECUTE nearest('{1,0,0,-2,0,0,0,3,0,0,0,0.5}', 3);
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE nearest('{1,0,0,-2,0,0,0,3,0,0,0,0.5}', 2);
EXECUTE nearest('{1,0}', 3);
DEALLOCATE nearest;
RESET plan_cache_mode;

-- Elements whose squares and products are too small or too large for a real.
CREATE TABLE eh (id int, r real[]);
CREATE FOREIGN TABLE eg (id int, r real[] OPTIONS (length '3')) SERVER gstore_fdw;
INSERT INTO eh SELECT i, ARRAY[(50 - i) * CASE WHEN i > 20 THEN 1e-24 ELSE 1e36 END, CASE WHEN i > 20 THEN 1e-24 ELSE 1e36 END, 0] FROM generate_series(1, 40) i;
INSERT INTO eg SELECT * FROM eh;
EXPLAIN (COSTS OFF) SELECT count(*) FROM eg WHERE r <-> '{0,0,0}' > 0;
SELECT (SELECT count(*) FROM eg WHERE r <-> '{0,0,0}' > 0) AS gpu, (SELECT count(*) FROM eh WHERE r <-> '{0,0,0}' > 0) AS heap;
SELECT (SELECT count(*) FROM eg WHERE r <-> '{1e36,0,0}' BETWEEN 3e37 AND 3.5e37) AS gpu, (SELECT count(*) FROM eh WHERE r <-> '{1e36,0,0}' BETWEEN 3e37 AND 3.5e37) AS heap;
SELECT op, gpu, gpu = heap AS as_heap FROM (VALUES
    ('<->', ARRAY(SELECT id FROM eg ORDER BY r <-> '{0,0,0}', id LIMIT 25), ARRAY(SELECT id FROM eh ORDER BY r <-> '{0,0,0}', id LIMIT 25)),
    ('<#>', ARRAY(SELECT id FROM eg ORDER BY r <#> '{-1e-24,0,0}', id LIMIT 25), ARRAY(SELECT id FROM eh ORDER BY r <#> '{-1e-24,0,0}', id LIMIT 25)),
    ('<#>', ARRAY(SELECT id FROM eg ORDER BY r <#> '{1e36,0,0}', id LIMIT 25), ARRAY(SELECT id FROM eh ORDER BY r <#> '{1e36,0,0}', id LIMIT 25)),
    ('<=>', ARRAY(SELECT id FROM eg WHERE id > 20 ORDER BY r <=> '{0,1,0}', id LIMIT 15), ARRAY(SELECT id FROM eh WHERE id > 20 ORDER BY r <=> '{0,1,0}', id LIMIT 15)),
    ('<+>', ARRAY(SELECT id FROM eg ORDER BY r <+> '{0,0,0}', id LIMIT 25), ARRAY(SELECT id FROM eh ORDER BY r <+> '{0,0,0}', id LIMIT 25))) v (op, gpu, heap);
DROP FOREIGN TABLE eg;
DROP TABLE eh;

DROP FOREIGN TABLE dg, da;
DROP TABLE dh;
DROP OPERATOR ~~~ (smallint[], smallint[]);
DROP FUNCTION answer, place, same;
DROP EXTENSION gstore_fdw_bit;
