-- Queries on the GPU with functions of numbers, dates and timestamps, beside the same over a heap and without the GPU.
SET timezone = 'UTC';
CREATE TABLE zh (id int, d date, e date NOT NULL, ts timestamp, us timestamp, tz timestamptz, uz timestamptz, i2 smallint, i4 int, i8 bigint, f8 float8, f4 real, n numeric(10,2), m numeric(12,4), b bool);
CREATE FOREIGN TABLE zg (id int, d date, e date NOT NULL, ts timestamp, us timestamp, tz timestamptz, uz timestamptz, i2 smallint, i4 int, i8 bigint, f8 float8, f4 real, n numeric(10,2), m numeric(12,4), b bool) SERVER gstore_fdw;
CREATE FOREIGN TABLE za (id int, d date, e date NOT NULL, ts timestamp, us timestamp, tz timestamptz, uz timestamptz, i2 smallint, i4 int, i8 bigint, f8 float8, f4 real, n numeric(10,2), m numeric(12,4), b bool) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO zh
SELECT i, CASE WHEN i % 13 <> 0 THEN date '1996-02-20' + i * 3 END, date '1998-02-20' + i % 700 * 4, CASE WHEN i % 19 <> 0 THEN timestamp '1995-12-20 12:34:56.789' + i * interval '1 day 7 min 13.000001 s' END,
    CASE WHEN i % 7 <> 0 THEN timestamp '1996-12-29 02:04:56.789' + i * interval '11 h 14 min' END, CASE WHEN i % 23 <> 0 THEN timestamptz '1997-12-29 21:00+00' + i * interval '17 h 3 min' END, timestamptz '1998-03-01 21:00+00' + i * interval '15 h 1 min',
    CASE WHEN i % 5 <> 0 THEN i % 97 - 40 END, CASE WHEN i % 6 <> 0 THEN i * 977 - 400000 END, CASE WHEN i % 11 <> 0 THEN (i - 700) * 1234567890123 END, CASE WHEN i % 9 <> 0 THEN (i - 700) / 8.0 END,
    CASE WHEN i % 8 <> 0 THEN (i - 700) / 4.0 END, CASE WHEN i % 10 <> 0 THEN (i - 700) * 1.37 END, CASE WHEN i % 12 <> 0 THEN (i - 500) * 0.1235 END, CASE WHEN i % 3 <> 0 THEN i % 2 = 0 END
FROM generate_series(1, 1500) i;
INSERT INTO zh (id, d, e, f8, f4, ts, tz, n, m) VALUES
    (2001, '4714-11-24 BC', '2000-01-31', -0.0, -0.0, '2000-01-31 12:00', '2000-01-31 12:00', 0.50, 0.0500), (2002, '5874897-12-31', '2000-03-31', -0.3, 0.5, '1999-03-31', '1999-03-31', -0.50, -0.0500),
    (2003, 'infinity', '2001-12-31', 2.5, 'NaN', '2020-02-29 23:59:59.999999', '2020-02-29 23:59:59.999999', 99999999.99, 12345678.9999), (2004, '-infinity', '1999-01-01', 1e300, -1.5, 'infinity', 'infinity', -99999999.99, -12345678.9999),
    (2005, '1999-01-01', '1999-01-01', 'NaN', 'Infinity', '-infinity', '-infinity', 0, 0.0001), (2006, '2004-02-29', '1999-01-01', -4503599627370495.5, NULL, '4714-11-24 00:00 BC', '4714-11-24 00:00+00 BC', 1, -0.0001),
    (2007, NULL, '1999-01-01', 'Infinity', 1e-30, '294246-12-31 23:59:59.999999', '294246-12-31 23:59:59.999999+00', NULL, NULL), (2008, NULL, '1999-01-01', '-Infinity', -0.5, '0001-02-28 12:00 BC', '0001-12-31 12:00', 45.45, 45.4545);
INSERT INTO zg SELECT * FROM zh;
INSERT INTO za SELECT * FROM zh;
SET test.tables = 'z';
SET test.node = '"GPU":';
SET test.ordered = off;
SET test.shown = '70 40';
\getenv abs_srcdir PG_ABS_SRCDIR
\set include :abs_srcdir '/sql_include/query_same.sql'
\i :include
-- How many rows meet each of the conditions.
CREATE FUNCTION met(VARIADIC conditions text[]) RETURNS text LANGUAGE sql AS $$
    SELECT same('SELECT ' || string_agg('count(*) FILTER (WHERE ' || c || ')', ', ') || ' FROM q WHERE id < 2000') FROM unnest(conditions) c
$$;

-- Days.
SELECT met('d + 30 > e', 'd - i2 <= date ''1999-01-01''', 'd - e BETWEEN -100 AND 100', '7 + d = e', 'd - date ''1998-01-01'' = i2', 'current_date - d > 0', 'd - 1 IS NULL');
SELECT same('SELECT min(d + 7), max(d - i2), sum(d - e), sum(e - d) FROM q WHERE id < 2000'), same('SELECT d - e, count(*) FROM q WHERE id < 2000 AND d - e BETWEEN 3 AND 200 GROUP BY 1'), same('SELECT id, max(d + 0), min(d - 0) FROM q WHERE id > 2000 GROUP BY 1'),
    same('SELECT max(d + 1) FROM q WHERE id <> 2002'), same('SELECT max(d + 1) FROM q'), same('SELECT max(d - 1) FROM q WHERE id = 2001'), same('SELECT max(d - e) FROM q WHERE id IN (2001, 2002)'), same('SELECT max(d - e) FROM q'), same('SELECT max(d + 2147483647) FROM q WHERE id = 2001'), same('SELECT max(e + 2147483647) FROM q'), same('SELECT max(d - (-2147483647 - 1)) FROM q WHERE id < 2000');
-- Timestamps and intervals.
SELECT met('ts - us > interval ''2 days''', 'interval ''1 month 2 days'' <= ts - us', 'ts - us < tz - uz', 'ts > us + interval ''3 days 2 hours''', 'ts - interval ''1 year'' < us', 'tz - timestamptz ''1999-01-01'' BETWEEN interval ''-1 day'' AND interval ''100 h''', 'ts - us IS NULL', 'ts - us = interval ''0''', 'tz - uz <> NULL', 'now() - tz > interval ''10 years''', 'd + interval ''1 month'' = ts::date');
SELECT same('SELECT min(ts - us), max(ts - us), min(tz - uz), max(us - ts), count(ts - us) FROM q WHERE id < 2000'), same('SELECT ts - us, count(*) FROM q WHERE id < 2000 GROUP BY 1'), same('SELECT uz - tz, max(id) FROM q WHERE uz - tz > ''300 h'' GROUP BY 1'), same('SELECT count(DISTINCT ts - us) FROM q WHERE id < 2000'), same('SELECT avg(ts - us) FROM q WHERE id < 2000');
SELECT same('SELECT sum(ts - us), avg(us - ts), sum(tz - uz), avg(ts - us) FILTER (WHERE b), avg(CASE WHEN b THEN us - ts END) FROM q WHERE id < 2000'), same('SELECT id % 7, sum(us - ts), avg(us - ts), count(us - ts), stddev(i4) FROM q WHERE id < 2000 GROUP BY 1'), same('SELECT sum(ts - us), avg(ts - us) FROM q WHERE id < 0'), same('SELECT count(DISTINCT i2), sum(ts - us), avg(us - ts) FROM q WHERE id < 2000'),
    same('SELECT sum(timestamp ''294276-01-01'' - us) FROM q'), same('SELECT sum(ts - us) FROM q'), same('SELECT id % 7 FROM q WHERE id < 2000 GROUP BY 1 HAVING sum(ts - us) > ''40000 days'''), same('SELECT sum(DISTINCT ts - us) FROM q WHERE id < 2000', NULL);
SELECT same('SELECT sum(extract(epoch FROM ts - us)), max(extract(day FROM ts - us)), min(extract(hour FROM us - ts)), min(extract(minute FROM us - ts)), max(extract(second FROM us - ts)) FROM q WHERE id < 2000'), same('SELECT min(date_part(''epoch'', ts - us)), max(date_part(''epoch'', tz - uz)), max(date_part(''day'', ts - us)), min(date_part(''hour'', us - ts)), max(date_part(''epoch'', us - ts)) FROM q WHERE id < 2000'),
    same('SELECT extract(day FROM us - ts), count(*) FROM q WHERE id < 2000 GROUP BY 1'), same('SELECT max(extract(month FROM ts - us)) FROM q WHERE id < 2000', NULL), same('SELECT max(date_part(''second'', ts - us)) FROM q WHERE id < 2000', NULL), same('SELECT max(extract(epoch FROM ts - us)) FROM q WHERE id IN (2006, 2007)');
SELECT i, same('SELECT id % 50, max(ts + ' || i || '), min(ts - ' || i || '), max(tz + ' || i || '), min(tz - ' || i || '), max(e + ' || i || '), min(e - ' || i || ') FROM q WHERE id < 2006 GROUP BY 1'), same('SELECT sum(extract(epoch FROM us + ' || i || ')), sum(extract(epoch FROM us - ' || i || ')), sum(extract(day FROM e + ' || i || ')) FROM q'), same('SELECT max(ts + ' || i || ') FROM q WHERE id = 2007'), same('SELECT min(ts - ' || i || ') FROM q WHERE id = 2006'), same('SELECT min(ts + ' || i || ') FROM q WHERE id = 2008')
FROM unnest('{interval ''1 month'',interval ''-1 month'',interval ''1 day'',interval ''13 months 30 days -4 h 0.000001 s'',interval ''99 years'',interval ''0'',interval ''36 h'',interval ''178000000 years'',interval ''106751991 days''}'::text[]) i;
SELECT same('SELECT max(ts + interval ''2147483647 days'') FROM q WHERE id = 2008', NULL), same('SELECT max(ts - interval ''-2147483648 days'') FROM q WHERE id = 2008', NULL), same('SELECT max(ts + interval ''-106751992 days'') FROM q WHERE id = 2008', NULL);
SELECT same('SELECT max(ts + NULL::interval) FROM q'), same('SELECT max(ts + (SELECT interval ''1 month 1 s'')) FROM q WHERE id < 2000'), same('SELECT max(ts + id * interval ''1 day'') FROM q WHERE id < 2000', NULL);
PREPARE later(interval) AS SELECT max(ts + $1), count(*) FILTER (WHERE ts - us > $1) FROM zg WHERE id < 2000;
SET plan_cache_mode = force_generic_plan;
EXECUTE later('1 month 2 days');
EXECUTE later(NULL);
RESET plan_cache_mode;
-- Different types of them.
SELECT c, met('ts ' || c || ' date ''1998-01-03''', 'us ' || c || ' date ''1998-01-01''', 'd ' || c || ' timestamp ''1998-03-09''', 'd ' || c || ' timestamp ''1998-03-09 12:00''', 'd ' || c || ' timestamptz ''1998-03-09''', 'd ' || c || ' timestamptz ''1998-03-09 00:00:01''', 'tz ' || c || ' date ''1998-02-02''', 'tz ' || c || ' timestamp ''1998-02-02 05:33''', 'ts ' || c || ' timestamptz ''1998-02-02 05:33''', 'date ''1998-01-03'' ' || c || ' ts', 'timestamp ''1998-03-09 12:00'' ' || c || ' d')
FROM unnest('{=,<>,<,<=,>,>=}'::text[]) c;
SELECT c, same('SELECT count(*) FILTER (WHERE d ' || c || ' ts), count(*) FILTER (WHERE d ' || c || ' tz), count(*) FILTER (WHERE ts ' || c || ' tz), count(*) FILTER (WHERE tz ' || c || ' e), count(*) FILTER (WHERE us ' || c || ' d) FROM q WHERE id <> 2002'),
    met('d ' || c || ' timestamp ''infinity''', 'd ' || c || ' timestamp ''-infinity''', 'ts ' || c || ' date ''infinity''', 'd ' || c || ' NULL::timestamp'), same('SELECT count(*) FROM q WHERE d ' || c || ' timestamp ''294276-12-31''', NULL)
FROM unnest('{=,<>,<,<=,>,>=}'::text[]) c;
SELECT same('SELECT count(*) FROM q WHERE d < ts'), same('SELECT count(*) FROM q WHERE ts > date ''5874897-12-31''', NULL), same('SELECT count(*) FROM q WHERE d > timestamp ''2000-01-01'' AND d < ''infinity''::timestamp'), same('SELECT count(*) FROM q WHERE d >= (SELECT timestamp ''1998-03-09 12:00'')'), same('SELECT count(*) FROM q WHERE d IS DISTINCT FROM timestamp ''1998-03-09''');
SET timezone = 'Europe/Berlin';
SELECT c, met('d ' || c || ' timestamptz ''1998-03-09''', 'd ' || c || ' timestamptz ''1998-03-09 00:00:01''', 'd ' || c || ' timestamptz ''1998-03-29''', 'd ' || c || ' timestamptz ''1998-10-25 23:00''', 'tz ' || c || ' date ''1998-03-29''', 'tz ' || c || ' timestamp ''1998-03-29 02:30''', 'tz ' || c || ' date ''1998-03-30''')
FROM unnest('{=,<>,<,<=,>,>=}'::text[]) c;
SELECT same('SELECT max(tz + interval ''5 h'') FROM q WHERE id < 2000'), same('SELECT max(tz + interval ''5 days'') FROM q WHERE id < 2000', NULL), same('SELECT count(*) FROM q WHERE d < tz', NULL), same('SELECT count(*) FROM q WHERE ts < timestamptz ''1998-01-01''', NULL);
SET timezone = 'Pacific/Apia'; -- without 2011-12-30
SELECT c, same('SELECT count(*) FILTER (WHERE d + 366 * 7 ' || c || ' timestamptz ''2011-12-30 10:00+00''), count(*) FILTER (WHERE d + 366 * 7 ' || c || ' timestamptz ''2011-12-29 10:00+00''), count(*) FILTER (WHERE d + 366 * 7 ' || c || ' timestamptz ''2011-12-31 10:00+00'') FROM q WHERE id < 2000', NULL) FROM unnest('{=,<,>=}'::text[]) c;
SET timezone = 'UTC';
-- Integers.
SELECT same('SELECT i2 & 15::smallint, count(*) FROM q GROUP BY 1'), same('SELECT sum(i4 & i2), sum(i4 | i2), sum(i4 # 12345), sum(~i8), sum(i4 << 3), sum(i8 >> 4), sum(i2 << 10), sum(i8 << 33), sum(i2 >> 3), sum(~i2), sum(i8 & i4), bit_or(i2 # 3::smallint) FROM q'), same('SELECT sum(i4 << (i2 & 7)) FROM q'),
    same('SELECT sum(i4 << i2) FROM q', 'by the local plan: a row raises an error, or a sum may'), met('i4 & 4 <> 0', 'i4 & 4 = 0 OR i2 | 1 = 3', 'mod(i4, 7) = 3', 'b = (i2 > 3)', 'b <> (i2 > 3)', 'b < true', 'b AND i4 # 5 > 0');
-- Floats.
SELECT same('SELECT id, max(round(f8)), max(floor(f8)), max(ceil(f8)), max(ceiling(f8)), max(trunc(f8)), max(sign(f8)), max(sqrt(abs(f8))), max(|/ abs(f4)), max(round(f4)), max(floor(f4)) FROM q GROUP BY id'), same('SELECT id, round(f8), floor(f8), ceil(f8), trunc(f8), sqrt(f8 * f8) FROM q WHERE round(f8) <> f8 AND floor(f8) < ceil(f8) AND sqrt(f8 + 9e15) > 0', NULL),
    same('SELECT floor(f8 / 10)::int, count(*), sum(floor(f8) * 10) FROM q WHERE f8 BETWEEN -1000 AND 1000 GROUP BY 1'), same('SELECT count(*) FROM q WHERE sqrt(f8) > 3'), same('SELECT count(*) FROM q WHERE sqrt(f8) > 3 AND id > 800'), same('SELECT count(*) FROM q WHERE f8 >= 0 AND sqrt(f8) > 3');
-- Decimals.
SELECT same('SELECT sum(round(n, 1)), sum(round(m * n, 2)), sum(trunc(m, 1)), sum(floor(m)), sum(ceil(m)), sum(ceiling(n)), sum(sign(n)), sum(round(n)), sum(round(n, -2)), sum(trunc(n)), sum(round(n, 4)), sum(trunc(n, -1)), sum(round(m, -12)) FROM q WHERE id < 2000'), same('SELECT id, round(n, 1), trunc(m, 2), round(m), floor(n), ceil(n), sign(m), count(*) FROM q WHERE id > 2000 GROUP BY 1, 2, 3, 4, 5, 6, 7'),
    same('SELECT round(m), count(*), min(floor(n)), max(round(n, 3)) FROM q GROUP BY 1'), same('SELECT sum(CASE WHEN i4 > 0 THEN round(n, 1) ELSE 0 END), avg(round(CASE WHEN i4 > 0 THEN n ELSE 0 END, 1)), sum(CASE WHEN b THEN round(CASE WHEN i4 > 0 THEN n ELSE 0 END, 2) ELSE 0 END) FROM q'), same('SELECT max(round(n, i2)) FROM q', NULL), same('SELECT max(round(n, 40)) FROM q', NULL);
SELECT same('SELECT sum(n::int), sum(m::bigint), sum((n * m)::bigint), max((n / 100)::smallint), max(n::int::float8) FROM q WHERE id < 2000', NULL), same('SELECT sum(n::int), sum(m::bigint), sum((n * m)::bigint), max((n * 0.1)::smallint) FROM q WHERE id < 2000'), same('SELECT max(n::float8), min(m::float8), max((n * m)::float8), min((n * 0.01)::float8), count(*) FILTER (WHERE n > f8), count(*) FILTER (WHERE m::float8 = f8) FROM q WHERE id < 2000'),
    same('SELECT max(n::smallint) FROM q'), same('SELECT max((n * m)::float8 * 2) FROM q', 'by the local plan: a row raises an error, or a sum may'), same('SELECT max(n::float8), max(m::float8) FROM q'), same('SELECT max((n * 10000000)::float8) FROM q', 'by the local plan: a row raises an error, or a sum may'), same('SELECT id, n::float8, m::float8 FROM q WHERE n::float8 > 1 ORDER BY m::float8, id LIMIT 30');
SELECT same('SELECT sum((n * m)::numeric(12,3)), max(n::numeric(10,1)), min((n * 1000)::numeric(20,7)), sum(i4::numeric(12,2)), sum((n / 100.0)::numeric(10,2)) FROM q WHERE id < 2000', NULL), same('SELECT sum((n * m)::numeric(12,3)), max(n::numeric(10,1)), min((n * 1000)::numeric(20,7)), sum(i4::numeric(12,2)), sum(n::numeric(5,-2)) FROM q WHERE id < 2000'), same('SELECT max(n::numeric(6,2)) FROM q WHERE id < 2000'), same('SELECT max(n::numeric(5,2)) FROM q WHERE id < 2000'), same('SELECT n::numeric(5,0), count(*) FROM q WHERE id < 2000 GROUP BY 1');
SELECT same('SELECT sum(n % 3), sum(mod(m, n)), sum(n % 0.7), sum(m % 0.03) FROM q WHERE n <> 0'), same('SELECT sum(n % 0) FROM q'), met('n BETWEEN m AND 400.12345', 'n % 1 = 0', 'round(n) = n', 'm::int = 5', 'floor(m) <> trunc(m)');
-- GREATEST and LEAST.
SET enable_sort = off;
SELECT same('SELECT sum(greatest(i2, i4, 3)), sum(least(i8, i4)), min(greatest(f8, f4)), max(least(f8, f4)), min(least(d, e)), max(greatest(ts, us)), max(least(n, 0.00)), sum(greatest(m, 1.5000)), bool_and(greatest(b, i4 > 0)) FROM q'), same('SELECT id, max(least(f8, f4, 0)), max(greatest(f8, f4, ''-0'')), max(greatest(f8, NULL, f4)), min(least(ts, us)) FROM q WHERE id > 1990 GROUP BY 1'),
    same('SELECT greatest(i2, 3::smallint, NULL), count(*) FROM q GROUP BY 1'), same('SELECT greatest(d, e), least(i2, i4), count(*) FROM q GROUP BY 1, 2'), same('SELECT sum(greatest(n, 0)) FROM q', NULL), same('SELECT count(*) FROM q WHERE greatest(n, 0) > least(m, 5) AND greatest(n, m, 3) IS NOT NULL'), same('SELECT max(greatest(i8, 1 / (i4 - i4))) FROM q'),
    same('SELECT id FROM q WHERE id < 2000 ORDER BY d - e, greatest(i2, 5), ts - us, id LIMIT 30');
RESET enable_sort;
-- Joins and rows.
SELECT same('SELECT count(*), sum(x.i4 & y.i4), min(x.ts - y.us) FROM q x JOIN q y ON x.d + 3 = y.d WHERE x.d - y.e > 3 AND y.id < 2000'), same('SELECT x.id, y.id FROM q x JOIN q y ON x.i2 & 7::smallint = y.i2 AND x.ts > y.us + interval ''30 days'' WHERE x.id < 100 AND y.id < 900');
DROP TABLE zh;
DROP FOREIGN TABLE zg, za;
DROP FUNCTION answer, place, same, met;
