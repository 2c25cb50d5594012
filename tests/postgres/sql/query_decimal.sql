-- Decimals in queries on the GPU: numeric(p, s) beside the same over a heap and without the GPU.
CREATE DOMAIN d_price AS numeric(7,1);
CREATE TABLE dh (id int, i2 int2, i8 int8, n numeric(9,2), m numeric(12,4) NOT NULL, z numeric(18,0), w numeric(30,3), neg numeric(6,-2), small numeric(3,5), price d_price, any_scale numeric, k numeric(4,1));
CREATE FOREIGN TABLE dg (id int, i2 int2, i8 int8, n numeric(9,2), m numeric(12,4) NOT NULL, z numeric(18,0), w numeric(30,3), neg numeric(6,-2), small numeric(3,5), price d_price, any_scale numeric, k numeric(4,1)) SERVER gstore_fdw;
CREATE FOREIGN TABLE da (id int, i2 int2, i8 int8, n numeric(9,2), m numeric(12,4) NOT NULL, z numeric(18,0), w numeric(30,3), neg numeric(6,-2), small numeric(3,5), price d_price, any_scale numeric, k numeric(4,1)) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO dh
SELECT i, CASE WHEN i % 7 <> 0 THEN i % 100 - 50 END, CASE WHEN i % 13 <> 0 THEN i::int8 * 123456789012 % 10000019 END, CASE WHEN i % 5 <> 0 THEN (i * 37 % 1000 - 500) / 4.0 END, (i % 100) / 16.0,
    CASE WHEN i % 11 <> 0 THEN i::int8 * 999999999989 % 1000000007 - 500000000 END, CASE WHEN i % 3 <> 0 THEN (i - 700) * 1.125 END, CASE WHEN i % 17 <> 0 THEN i * 100 END, CASE WHEN i % 19 <> 0 THEN i % 900 / 100000.0 END,
    CASE WHEN i % 4 <> 0 THEN i % 50 + 0.5 END, i, i % 10 / 2.0
FROM generate_series(1, 1500) i;
-- Extremes; 2^61, about which values of w become too large.
INSERT INTO dh VALUES
    (2001, 1, 9223372036854775807, 9999999.99, 99999999.9999, 999999999999999999, 2305843009213693.951, 999900, 0.00999, 999999.9, 1, 999.9),
    (2002, -1, -9223372036854775808, -9999999.99, -99999999.9999, -999999999999999999, -2305843009213693.952, -999900, -0.00999, -999999.9, 1, -999.9),
    (2003, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (2004, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
INSERT INTO dg SELECT * FROM dh;
INSERT INTO da SELECT * FROM dh;
-- Settings, and comparisons with the heap: answer(), place(), same().
SET test.tables = 'd';
SET test.node = '"GPU":';
SET test.ordered = off;
SET test.shown = '80 40';
\getenv abs_srcdir PG_ABS_SRCDIR
\set include :abs_srcdir '/sql_include/query_same.sql'
\i :include
-- How many rows meet a condition.
CREATE FUNCTION met(condition text) RETURNS text LANGUAGE sql AS $$ SELECT translate(same('SELECT count(*) FROM q WHERE ' || condition), '()', '') $$;

-- Comparisons with what has the column's scale, lies between two of its decimals, or beyond all.
SELECT c, met('n ' || c || ' 7.5'), met('n ' || c || ' 7.505'), met('n ' || c || ' -7.505'), met('n ' || c || ' 7'), met('n ' || c || ' 1e20'), met('n ' || c || ' -1e20'), met('n ' || c || ' ''nan'''), met('n ' || c || ' ''infinity'''), met('n ' || c || ' ''-infinity''')
FROM unnest('{=,<>,<,<=,>,>=,IS DISTINCT FROM,IS NOT DISTINCT FROM}'::text[]) c;
SELECT c, met('7.505 ' || c || ' n'), met('7.5 ' || c || ' n'), met('n ' || c || ' m'), met('id < 2000 AND n ' || c || ' z'), met('id < 2000 AND z ' || c || ' w'), met('n ' || c || ' z'), met('n ' || c || ' price'), met('i2 ' || c || ' n'), met('m ' || c || ' i2'), met('i2 ' || c || ' 1.5'), met('id::int8 ' || c || ' w'), met('n ' || c || ' NULL::numeric')
FROM unnest('{=,<>,<,<=,>,>=,IS DISTINCT FROM,IS NOT DISTINCT FROM}'::text[]) c;
SELECT c, met('neg ' || c || ' 300'), met('neg ' || c || ' 350.5'), met('small ' || c || ' 0.005'), met('small ' || c || ' 0.0000001'), met('neg ' || c || ' n'), met('small ' || c || ' neg'), met('price ' || c || ' 25.5'), met('w ' || c || ' 2305843009213693.951'), met('w ' || c || ' 2305843009213693.952'), met('w ' || c || ' 1e25')
FROM unnest('{=,<>,<,<=,>,>=}'::text[]) c;
SELECT met('n IN (1.25, 1.255, 100, ''nan'', 1e30)'), met('n NOT IN (1.25, 1.255, 100)'), met('n IN (1.255)'), met('n NOT IN (1.255)'), met('n IN (1.255, NULL)'), met('(n IN (1.255, NULL)) IS NULL'), met('n = ANY (''{}''::numeric[])'), met('n IS NULL'), met('n IS NOT NULL'), met('any_scale IS NULL'),
    met('n BETWEEN 1.001 AND 2.999'), met('n BETWEEN m AND 100'), met('price IN (1.5, 2.5)');

-- Arithmetic, with the scales that PostgreSQL shows.
SELECT same('SELECT sum(n + m), sum(n - m), sum(n * m), sum(n * 2), sum(n * i2), sum(2.50 * n), sum(-n), sum(abs(n)), sum(@ n), sum(+ n), sum(n * (1 - m) * (1 + n)) FROM q WHERE id < 2000');
SELECT same('SELECT sum(i2::numeric), avg(id::numeric), max(i2::numeric * 1.50), min(i8 * 1.0), sum(id * 0.1), sum(price * 2), sum(price + n), sum(z + w), max(small * n), min(z - 1) FROM q WHERE id < 2000');
SELECT met('n + m > 10'), met('n * m > 10.5'), met('id < 2000 AND n * m > 10.5'), met('n - 1 = m'), met('-n < -20'), met('abs(n) > 100'), met('n * n > n'), met('n + i2 > 5'), met('n * 0 = 0'), met('n + NULL > 1'), met('w * 1000 > 5');
SELECT met('CASE WHEN i2 > 0 THEN n ELSE m END > 3.5'), met('CASE WHEN i2 > 0 THEN m ELSE n END > 3.5'), met('coalesce(n, 0) > 3'), met('coalesce(n, 0.001) > 3'), met('coalesce(m, n) > 3'), met('nullif(n, 1.25) > 1'), met('nullif(n, 1.255) > 1'), met('nullif(n, m) IS NULL'),
    met('CASE any_scale WHEN 1.25 THEN false WHEN 7 THEN true END'), met('CASE n WHEN 1.25 THEN 1 WHEN 2.505 THEN 2 WHEN m THEN 3 END = 3'), met('CASE WHEN i2 > 0 THEN 1 WHEN i2 < -10 THEN n END > m');
-- What a product is too large for is computed without the GPU, as are quotients, roundings, and what has another scale in each row.
SELECT same('SELECT sum(z * z) FROM q'), same('SELECT max(w) FROM q'), same('SELECT sum(n / 3) FROM q'), same('SELECT sum(round(n)) FROM q'), same('SELECT sum(n::numeric(5,1)) FROM q WHERE id < 2000'), same('SELECT max(i8::numeric) FROM q'), met('i8 > 9223372036854775806.5'), met('any_scale > 5'), same('SELECT sum(any_scale) FROM q'), same('SELECT sum(neg * 2) FROM q');
-- Sums of decimals with two scales have the smaller one where no value has the greater one: of some groups here.
SELECT same('SELECT sum(CASE WHEN i2 > 0 THEN n ELSE 0 END), avg(CASE WHEN i2 > 0 THEN n ELSE 0 END), sum(coalesce(n, 0)), count(coalesce(n, 0)) FROM q'), same('SELECT sum(CASE WHEN id < 0 THEN n ELSE 0 END), avg(coalesce(NULLIF(n, n), 7)) FROM q'), same('SELECT sum(CASE WHEN i2 > 0 THEN n ELSE 0 END) FROM q WHERE false');
SELECT e, same(format('SELECT id %% 397, sum(%s), avg(%1$s), sum(%1$s) FILTER (WHERE id %% 2 = 0) FROM q WHERE id < 2000 GROUP BY 1', e)), same(format('SELECT sum(%s), sum(%1$s) FILTER (WHERE id = 5) FROM q WHERE id < 12', e))
FROM unnest('{"CASE WHEN i2 > 0 THEN 0 WHEN i2 < -10 THEN n ELSE 0 END","m * (1 - coalesce(n, 0))","m - coalesce(n, 0)","CASE WHEN coalesce(n, 0) > 3 THEN m ELSE 1 END","(coalesce(n, 0) > 3)::int::numeric * coalesce(n, 0)","NULLIF(coalesce(n, 0), 0)","NULLIF(n, coalesce(n, 0))","-coalesce(n, 1) * 2.5","1.0 * coalesce(n, 0) + 1","CASE id % 3 WHEN 1 THEN n WHEN 2 THEN 7 END","CASE WHEN n IS NULL THEN 0 ELSE n * m END"}'::text[]) e;
-- That one is NULL has no scale, nor has that of a column whose values are not on the GPU's stack.
SELECT same('SELECT sum(CASE WHEN i2 > 0 THEN n ELSE 0 END), bool_or((CASE WHEN i2 > 0 THEN n ELSE 0 END) IS NULL), bool_or(any_scale IS NULL), count(any_scale) FROM q'), same('SELECT (CASE WHEN i2 > 0 THEN n ELSE 0 END) IS NULL, count(*) FROM q GROUP BY 1');
-- Not of three scales, nor where it is not told by one value.
SELECT same('SELECT sum(CASE WHEN i2 > 0 THEN n WHEN i2 < -10 THEN 1.5 ELSE 0 END) FROM q'), same('SELECT sum(coalesce(n, 0) * coalesce(price, 1)) FROM q'), same('SELECT sum((m - coalesce(n, 0)) * (1 - coalesce(n, 0))) FROM q'), same('SELECT sum(coalesce(CASE WHEN i2 > 0 THEN n ELSE 0 END, n)) FROM q'), same('SELECT max(coalesce(n, 0)), count(*) FROM q');
-- Integers of decimals without digits behind the point.
SELECT same('SELECT sum(z::int8), sum((z * 0)::int4), sum((i2::numeric)::int2) FROM q'), same('SELECT sum(z::int4) FROM q'), same('SELECT sum(n::int4) FROM q'), met('(i2::numeric)::int4 > 3'), met('(z - 1)::int8 = -1');

-- Aggregates, and keys.
SELECT same('SELECT count(n), sum(n), avg(n), min(n), max(n), sum(m), avg(m), min(m), max(m), sum(z), avg(z), min(z), max(z) FROM q');
SELECT same('SELECT count(neg), sum(neg), avg(neg), min(neg), max(neg), sum(small), avg(small), min(small), max(small), sum(price), avg(price), min(price), max(price) FROM q');
SELECT same('SELECT count(w), sum(w), avg(w), min(w), max(w) FROM q WHERE id < 2000'), same('SELECT sum(n) FILTER (WHERE m > 3), avg(n) FILTER (WHERE false) FROM q'), same('SELECT sum(n), count(n), avg(n), max(n) FROM q WHERE id = 2003'), same('SELECT sum(n), avg(n) FROM q WHERE false');
SELECT same('SELECT k, count(*), sum(n), avg(n), min(m), max(m), sum(z), max(price) FROM q GROUP BY k'), same('SELECT n, count(*) FROM q GROUP BY n'), same('SELECT n, k, w, max(id) FROM q WHERE id < 2000 GROUP BY n, k, w'), same('SELECT n * 2.0, sum(m) FROM q GROUP BY 1'), same('SELECT neg, small, price, count(*) FROM q GROUP BY neg, small, price'),
    same('SELECT k, sum(n) FROM q GROUP BY k HAVING sum(n) > 100.005'), same('SELECT coalesce(n, 0.00), count(*) FROM q GROUP BY 1'), same('SELECT coalesce(n, 0), count(*) FROM q GROUP BY 1');
SELECT same('SELECT sum(n * m) FROM q WHERE id < 2000 GROUP BY i2 % 3'), same('SELECT sum(w * 1.5) FROM q WHERE id < 2000'), same('SELECT count(n * z) FROM q');
SELECT same('SELECT k FROM q GROUP BY k HAVING max(n) > count(*) / 30.0');
-- Lists.
SET test.ordered = on;
SET enable_sort = off;
SELECT same('SELECT id, n FROM q ORDER BY n, id LIMIT 20'), same('SELECT id, n FROM q ORDER BY n DESC, id LIMIT 20'), same('SELECT id, n FROM q ORDER BY n DESC NULLS LAST, m, id LIMIT 20'), same('SELECT id, m FROM q WHERE m > 2.005 ORDER BY m * 2, id LIMIT 20'), same('SELECT id, w FROM q WHERE id < 2000 ORDER BY w, id LIMIT 20 OFFSET 3');
RESET enable_sort;
SET test.ordered = off;
-- Conditions of scans.
SET test.node = '"GPU Filter":';
SELECT same('SELECT id, n, m, w FROM q WHERE n > 120.005 AND m < 3'), same('SELECT id FROM q WHERE n * m > 600'), same('SELECT id FROM q WHERE w > 9e15'), same('SELECT id FROM q WHERE w * 1000000 > 9e15');
SET test.node = '"GPU":';

-- Parameters, whose scale is not known before: generic plans.
SET plan_cache_mode = force_generic_plan;
PREPARE p (numeric, numeric[]) AS SELECT count(*), sum(n * $1), max(m + $1), min(n) FILTER (WHERE n > $1) FROM dg WHERE n < $1 OR n = ANY ($2);
PREPARE h (numeric, numeric[]) AS SELECT count(*), sum(n * $1), max(m + $1), min(n) FILTER (WHERE n > $1) FROM dh WHERE n < $1 OR n = ANY ($2);
EXPLAIN (COSTS OFF) EXECUTE p (1, '{1}');
EXECUTE p (1, '{10,20.25,3.33333}');
EXECUTE h (1, '{10,20.25,3.33333}');
EXECUTE p (1.50500, '{NULL,10}');
EXECUTE h (1.50500, '{NULL,10}');
EXECUTE p (NULL, '{10}');
EXECUTE h (NULL, '{10}');
EXECUTE p ('nan', '{10}');
EXECUTE h ('nan', '{10}');
EXECUTE p (12345678901234567.891, '{10}');
EXECUTE h (12345678901234567.891, '{10}');
DEALLOCATE ALL;
RESET plan_cache_mode;

-- NaN is above all, and computed with without the GPU.
INSERT INTO dh SELECT 3000 + i, 1, 1, CASE WHEN i = 1 THEN nan ELSE 5 END, nan, nan, nan, nan, nan, nan, nan, nan FROM generate_series(1, 2) i, (VALUES ('nan'::numeric)) v (nan);
INSERT INTO dg SELECT * FROM dh WHERE id > 3000;
INSERT INTO da SELECT * FROM dh WHERE id > 3000;
SELECT c, met('n ' || c || ' 7.5'), met('n ' || c || ' ''nan'''), met('n ' || c || ' 1e30'), met('n ' || c || ' ''infinity'''), met('n ' || c || ' m'), met('k ' || c || ' price')
FROM unnest('{=,<>,<,<=,>,>=,IS DISTINCT FROM}'::text[]) c;
SELECT same('SELECT min(n), max(n), count(n) FROM q'), same('SELECT k, count(*), max(z) FROM q GROUP BY k'), same('SELECT sum(n) FROM q'), same('SELECT avg(n) FROM q WHERE n < 100'), same('SELECT max(n + 1) FROM q'), same('SELECT max(n * 0) FROM q'), same('SELECT min(-n) FROM q'), met('n - m = 0'), met('n IN (5, ''nan'')');
SET test.ordered = on;
SET enable_sort = off;
SELECT same('SELECT id, n FROM q ORDER BY n DESC NULLS LAST, id LIMIT 5'), same('SELECT id, n FROM q WHERE id > 1990 ORDER BY n, id LIMIT 30');
RESET enable_sort;
SET test.ordered = off;

-- bigint has no NaN: that error does not come before a condition which is not for the GPU.
EXPLAIN (COSTS OFF) SELECT count(*) FROM dg WHERE n > 1 AND any_scale < 1234.5 AND z::int8 > 0;
SELECT count(*) FROM dh WHERE n > 1 AND any_scale < 1234.5 AND z::int8 > 0;
SELECT count(*) FROM dg WHERE n > 1 AND any_scale < 1234.5 AND z::int8 > 0;
SELECT count(*) FROM da WHERE n > 1 AND any_scale < 1234.5 AND z::int8 > 0;

-- Parameters, whose scale is known when they come: what is behind one may be for the GPU then alone.
CREATE FOREIGN TABLE dl (n numeric(10,2)) SERVER gstore_fdw;
INSERT INTO dl SELECT i FROM generate_series(1, 1000) i;
ANALYZE dl;
SET plan_cache_mode = force_generic_plan;
PREPARE scales(numeric, numeric, numeric) AS
    SELECT sum(n * coalesce($1, round($2, 2), CASE WHEN 1.5 > $3 THEN 1.00 ELSE 2.00 END)) FROM dl;
EXPLAIN (COSTS OFF) EXECUTE scales(1.500, 1, 1);
EXECUTE scales(1.500, 1, 1);
EXECUTE scales(NULL, NULL, 1);
EXECUTE scales(NULL, NULL, 7);
DEALLOCATE scales;
RESET plan_cache_mode;
DROP FOREIGN TABLE dl;

-- Columns of another scale.
ALTER FOREIGN TABLE dg ADD COLUMN later numeric(5,2);
ALTER FOREIGN TABLE da ADD COLUMN later numeric(5,2);
ALTER TABLE dh ADD COLUMN later numeric(5,2);
SELECT met('later > 1'), met('later IS NULL'), same('SELECT sum(later), count(later) FROM q');
ALTER FOREIGN TABLE dg ALTER COLUMN n TYPE numeric(14,2);
ALTER FOREIGN TABLE da ALTER COLUMN n TYPE numeric(14,2);
ALTER TABLE dh ALTER COLUMN n TYPE numeric(14,2);
SELECT met('n > 5.005'), same('SELECT min(n), max(n) FROM q');
DROP FOREIGN TABLE dg, da;
DROP TABLE dh;
DROP DOMAIN d_price;
DROP FUNCTION answer, place, same, met;
