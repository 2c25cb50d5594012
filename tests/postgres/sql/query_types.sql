-- Queries on the GPU with uuid, enums and fields of dates and times, beside the same over a heap and without the GPU.
SET timezone = 'UTC';
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
ALTER TYPE mood ADD VALUE 'fine' BEFORE 'ok';
CREATE TYPE size AS ENUM ('s', 'm', 'l');
CREATE DOMAIN y_id AS uuid;
CREATE TABLE yh (id int, u uuid, v uuid NOT NULL, w y_id, e mood, f mood NOT NULL, z size, d date, t time, ts timestamp, tz timestamptz);
CREATE FOREIGN TABLE yg (id int, u uuid, v uuid NOT NULL, w y_id, e mood, f mood NOT NULL, z size, d date, t time, ts timestamp, tz timestamptz) SERVER gstore_fdw;
CREATE FOREIGN TABLE ya (id int, u uuid, v uuid NOT NULL, w y_id, e mood, f mood NOT NULL, z size, d date, t time, ts timestamp, tz timestamptz) SERVER gstore_fdw OPTIONS (format 'arrow');
-- Of u many have the same first half, above and below that of 8 zeros as a signed number.
INSERT INTO yh
SELECT i, CASE WHEN i % 7 <> 0 THEN (CASE WHEN i % 2 = 0 THEN '7fffffff' ELSE '80000000' END || '-0000-0000-' || CASE WHEN i % 3 = 0 THEN '7f' ELSE '80' END || '00-0000000000' || lpad(to_hex(i % 200), 2, '0'))::uuid END,
    md5(i::text)::uuid, CASE WHEN i % 5 <> 0 THEN md5((i % 40)::text)::uuid END, CASE WHEN i % 11 <> 0 THEN (enum_range(NULL::mood))[i % 4 + 1] END, (enum_range(NULL::mood))[i % 3 + 1],
    CASE WHEN i % 2 = 0 THEN (enum_range(NULL::size))[i % 3 + 1] END, CASE WHEN i % 13 <> 0 THEN date '1996-02-20' + i * 3 END, CASE WHEN i % 17 <> 0 THEN time '00:00' + i * interval '51.123457 s' END,
    CASE WHEN i % 19 <> 0 THEN timestamp '1995-12-20 12:34:56.789' + i * interval '1 day 7 min 13.000001 s' END, CASE WHEN i % 23 <> 0 THEN timestamptz '1967-12-29 21:00+00' + i * interval '17 h 3 min' END
FROM generate_series(1, 1500) i;
INSERT INTO yh (id, u, v, f, d, t, ts, tz) VALUES
    (2001, '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', 'sad', '4714-11-24 BC', '24:00', '4714-11-24 00:00 BC', '4714-11-24 00:00+00 BC'),
    (2002, 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'happy', '5874897-12-31', '00:00', '294246-12-31 23:59:59.999999', '294246-12-31 23:59:59.999999+00'),
    (2003, NULL, '7fffffff-ffff-ffff-8000-000000000000', 'ok', '0001-12-31 BC', '23:59:59.999999', '0001-02-29 13:00 BC', '0001-12-31 23:59:59 BC'),
    (2004, '7fffffff-ffff-ffff-7fff-ffffffffffff', '80000000-0000-0000-0000-000000000000', 'fine', '0001-01-01', '12:00', '0101-01-01 00:00', '1900-02-28 23:59:59.5'),
    (2005, NULL, '80000000-0000-0000-0000-000000000000', 'fine', '1999-12-31', NULL, '2000-01-01 00:00', '1999-12-31 23:59:59.999999'), (2006, NULL, '80000000-0000-0000-0000-000000000000', 'fine', '2000-02-29', NULL, '1970-01-01', '1970-01-01');
INSERT INTO yg SELECT * FROM yh;
INSERT INTO ya SELECT * FROM yh;
-- Settings, and comparisons with the heap: answer(), place(), same().
SET test.tables = 'y';
SET test.node = '"GPU":';
SET test.ordered = off;
SET test.shown = '80 40';
\getenv abs_srcdir PG_ABS_SRCDIR
\set include :abs_srcdir '/sql_include/query_same.sql'
\i :include
-- How many rows meet each of the conditions, without those with the first and the last timestamp.
CREATE FUNCTION met(VARIADIC conditions text[]) RETURNS text LANGUAGE sql AS $$
    SELECT same('SELECT ' || string_agg('count(*) FILTER (WHERE ' || c || ')', ', ') || ' FROM q WHERE id NOT IN (2001, 2002)') FROM unnest(conditions) c
$$;

-- uuid
SELECT c, met('u ' || c || ' ''80000000-0000-0000-8000-000000000019''', 'u ' || c || ' ''7fffffff-0000-0000-7f00-000000000018''', '''7fffffff-0000-0000-7f00-000000000018'' ' || c || ' u', 'u ' || c || ' v', 'v ' || c || ' w', 'w ' || c || ' u', 'u ' || c || ' NULL::uuid')
FROM unnest('{=,<>,<,<=,>,>=,IS DISTINCT FROM,IS NOT DISTINCT FROM}'::text[]) c;
SELECT met('u IN (''80000000-0000-0000-8000-000000000019'', ''80000000-0000-0000-8000-000000000017'', ''7fffffff-0000-0000-8000-000000000020'')', 'u NOT IN (''80000000-0000-0000-8000-000000000019'', ''7fffffff-0000-0000-8000-000000000020'')',
    'u IN (''80000000-0000-0000-8000-000000000019'', NULL)', '(u NOT IN (''80000000-0000-0000-8000-000000000019'', NULL)) IS NULL', 'u = ANY (''{}''::uuid[])', 'u <> ALL (''{}''::uuid[])', 'u IS NULL', 'w IS NOT NULL', 'w = md5(''7'')::uuid', 'u BETWEEN ''7fffffff-0000-0000-8000-000000000020'' AND ''80000000-0000-0000-8000-000000000019''', 'NOT u > v OR v = w');
SELECT same('SELECT count(u), count(*) FROM q WHERE v > ''55555555-5555-5555-5555-555555555555'''), same('SELECT u, count(*), min(id) FROM q GROUP BY u'), same('SELECT id % 2, w, f, count(u) FROM q GROUP BY id % 2, w, f'), same('SELECT w FROM q GROUP BY w HAVING count(*) > 35'), same('SELECT u, v, w, id FROM q WHERE id > 1900 GROUP BY u, v, w, id'),
    same('SELECT u, v, w, f, e, id FROM q WHERE id > 1900 GROUP BY u, v, w, f, e, id');
SELECT same('SELECT count(*) FROM q WHERE coalesce(u, v) = v'), same('SELECT coalesce(u, v) FROM q WHERE id > 2000 GROUP BY 1'), same('SELECT count(*) FROM q WHERE nullif(u, v) IS NULL'), same('SELECT count(CASE WHEN id > 100 THEN u END) FROM q'), same('SELECT count(*) FROM q WHERE CASE WHEN id > 100 THEN u ELSE v END > w');
-- enums
SELECT c, met('e ' || c || ' ''ok''', 'e ' || c || ' ''sad''', 'e ' || c || ' ''happy''', '''fine'' ' || c || ' e', 'e ' || c || ' NULL::mood', 'z ' || c || ' ''m''')
FROM unnest('{=,<>,<,<=,>,>=}'::text[]) c;
SELECT met('e IN (''ok'', ''fine'')', 'e NOT IN (''ok'', ''fine'')', 'e IN (''ok'', NULL)', 'e = f', 'e <> f', 'e IS DISTINCT FROM f', 'e IS NOT DISTINCT FROM ''ok''', 'e IS NULL', 'nullif(e, ''ok'') IS NULL', 'coalesce(e, ''sad'') = ''sad''', 'CASE e WHEN ''ok'' THEN f ELSE ''fine'' END <= ''fine''', 'e BETWEEN ''fine'' AND ''ok''', 'NOT e < ''ok'' OR z > ''s''');
SELECT met('e < f', 'f <= e', 'e > coalesce(f, e)', 'e >= f', 'greatest(e, f) = ''ok''', 'least(e, f, ''fine'') = ''sad''', 'greatest(e, NULL) IS NULL', 'z < least(z, ''m'')', 'e < CASE WHEN id % 3 = 0 THEN f END');
SELECT same('SELECT id % 7, min(e), max(f), max(z), min(greatest(e, f)), max(DISTINCT e), max(e) FILTER (WHERE e <> ''happy'') FROM q GROUP BY 1'), same('SELECT min(e), max(z), count(DISTINCT e) FROM q'), same('SELECT min(e), max(z) FROM q WHERE id < 0'), same('SELECT id % 50 FROM q GROUP BY 1 HAVING max(e) = ''ok'' OR min(z) > ''s'''),
    same('SELECT e, max(f) FROM q GROUP BY e HAVING max(f) >= e');
SELECT same('SELECT e, z, count(*), count(e) FROM q GROUP BY e, z'), same('SELECT CASE WHEN id % 2 = 0 THEN e ELSE f END, count(*) FROM q GROUP BY 1'), same('SELECT max(e) FROM q'), same('SELECT count(*) FROM q WHERE e < f');
-- Fields.
SELECT f, met('extract(' || f || ' from d) > 10', 'extract(' || f || ' from d) = 5', 'extract(' || f || ' from ts) <= 3', 'extract(' || f || ' from tz) <> 30', 'date_part(''' || f || ''', d) = 12', 'date_part(''' || f || ''', ts) < 0', 'date_part(''' || f || ''', tz) BETWEEN 2 AND 2000.5')
FROM unnest('{year,decade,century,millennium,quarter,month,week,isoyear,day,doy,dow,isodow}'::text[]) f;
SELECT f, met('extract(' || f || ' from t) > 10', 'extract(' || f || ' from t) = 12', 'extract(' || f || ' from ts) <= 3.5', 'extract(' || f || ' from tz) <> 30')
FROM unnest('{hour,minute,second}'::text[]) f;
SELECT same('SELECT id, max(extract(decade from ts)), max(extract(century from ts)), max(extract(millennium from ts)), max(extract(decade from d)), max(extract(century from d)), max(extract(millennium from d)) FROM q WHERE id > 2000 GROUP BY id');
SELECT same('SELECT id, max(extract(year from ts)), max(extract(isoyear from ts)), max(extract(week from ts)), max(extract(doy from d)), max(extract(isoyear from d)), max(extract(week from d)), max(extract(dow from d)), max(extract(second from t)) FROM q WHERE id > 2000 GROUP BY id');
SELECT same('SELECT count(*), sum(extract(epoch from d)), sum(extract(epoch from t)), max(extract(second from ts)), min(extract(second from t)), sum(extract(minute from tz)) FROM q'), same('SELECT sum(extract(epoch from ts)), avg(extract(epoch from tz)), max(date_part(''epoch'', ts)), min(date_part(''epoch'', tz)) FROM q WHERE id < 2000'),
    met('date_part(''hour'', ts) = 12', 'date_part(''minute'', t) = 30', 'date_part(''epoch'', t) > 4000.5'), same('SELECT max(extract(epoch from ts)) FROM q'), same('SELECT max(date_part(''second'', ts)) FROM q'), same('SELECT max(extract(decade from ts)) FROM q'), same('SELECT max(extract(hour from d)) FROM q');
SELECT f, same('SELECT date_trunc(''' || f || ''', ts), count(*), max(ts) FROM q WHERE id > 1400 AND id <> 2001 GROUP BY 1'), same('SELECT max(date_trunc(''' || f || ''', tz)), min(date_trunc(''' || f || ''', tz)), min(date_trunc(''' || f || ''', d)), count(*) FILTER (WHERE date_trunc(''' || f || ''', d) = ''2000-01-01'') FROM q WHERE id NOT IN (2001, 2002)')
FROM unnest('{year,quarter,month,week,day,hour,minute,second,milliseconds}'::text[]) f;
SELECT same('SELECT extract(year from ts)::int, extract(month from d)::int2, count(*), sum(extract(epoch from d)::int8) FROM q WHERE id <> 2002 GROUP BY 1, 2'), same('SELECT sum(extract(epoch from ts)::int4) FROM q'), same('SELECT max(extract(second from t)::int) FROM q'), met('extract(hour from t)::int = 12', 'extract(year from d)::int2 > 2000', 'extract(dow from ts)::int IN (0, 6)');
SELECT same('SELECT extract(year from d), extract(month from d), count(*), sum(extract(day from d)) FROM q WHERE d < ''2000-01-01'' GROUP BY 1, 2'), same('SELECT ts::date, count(*) FROM q GROUP BY 1'), same('SELECT min(d::timestamp), max(ts::date), min(tz::date), max(tz::timestamp), min(ts::timestamptz), max(d::timestamptz) FROM q WHERE id <> 2002'), same('SELECT max(d::timestamp) FROM q'), same('SELECT max(date_trunc(''week'', ts)) FROM q WHERE id = 2001'),
    same('SELECT min(date_trunc(''year'', ts)) FROM q');
-- Of infinite values.
BEGIN;
INSERT INTO yh (id, v, f, d, ts, tz) SELECT 3000, md5('')::uuid, 'ok', i, i, i FROM unnest('{infinity,-infinity}'::date[]) i;
INSERT INTO yg SELECT * FROM yh WHERE id = 3000;
INSERT INTO ya SELECT * FROM yh WHERE id = 3000;
SELECT met('date_trunc(''month'', ts) = ''infinity''', 'date_trunc(''month'', tz) = ''-infinity''', 'd::timestamp = ''-infinity''', 'ts::date = ''infinity'''), met('extract(year from ts) > 2000'), met('extract(month from d) IS NULL'), same('SELECT max(extract(epoch from ts)) FROM q WHERE id <> 2002');
ROLLBACK;
-- Its microseconds since 1970 have no 64 bits: the local plan has it. No table of format 'arrow' has such a timestamp.
CREATE FOREIGN TABLE late (ts timestamp) SERVER gstore_fdw;
INSERT INTO late VALUES ('294270-01-01');
SELECT date_part('epoch', ts), extract(epoch FROM ts) FROM late;
SELECT max(date_part('epoch', ts)), max(extract(epoch FROM ts)) FROM late;
SELECT count(*) FROM late WHERE date_part('epoch', ts) > 9e12 AND extract(epoch FROM ts) > 9e12;
DROP FOREIGN TABLE late;
-- Some fields of them are NULL, where no value of a column is.
CREATE FOREIGN TABLE infinite (d date, ts timestamp, t time) SERVER gstore_fdw;
INSERT INTO infinite VALUES ('infinity', 'infinity', '12:00'), ('2000-01-01', '-infinity', '12:00'), ('2000-01-01', '2000-01-01', '12:00');
SELECT count(extract(doy from ts)), count(extract(month from d) = 1.5), count(extract(hour from t)) FROM infinite;
SELECT count(*) FROM infinite WHERE (extract(week from ts) > 0) IS NOT NULL;
DROP FOREIGN TABLE infinite;
-- A zone of one offset, and one that has changed it.
SET timezone = '+05:30';
SELECT same('SELECT date_trunc(''day'', tz), count(*) FROM q WHERE id < 100 GROUP BY 1'), met('extract(hour from tz) = 5', 'tz::date > ''1970-01-01''', 'tz::timestamp > ''1970-01-01''', 'd::timestamptz < ts::timestamptz', 'date_trunc(''month'', d) = ''1999-01-01''', 'extract(epoch from tz) > 0');
SET timezone = 'Europe/Berlin';
SELECT met('extract(hour from tz) = 5'), met('tz::date > ''1970-01-01'''), met('extract(hour from ts) = 5'), same('SELECT date_trunc(''day'', tz), count(*) FROM q GROUP BY 1');
-- A generic plan is one for all zones.
SET timezone = 'UTC';
SET plan_cache_mode = force_generic_plan;
PREPARE p (mood, uuid) AS SELECT count(*) FILTER (WHERE extract(hour from tz) = 5), count(*) FILTER (WHERE e < $1), count(*) FILTER (WHERE u > $2), count(*) FILTER (WHERE u = ANY (ARRAY[$2])) FROM yg;
EXPLAIN (COSTS OFF) EXECUTE p ('ok', '80000000-0000-0000-8000-000000000019');
EXECUTE p ('ok', '80000000-0000-0000-8000-000000000019');
SET timezone = 'Europe/Berlin';
EXECUTE p ('happy', NULL);
EXECUTE p (NULL, '7fffffff-0000-0000-8000-000000000020');
SELECT count(*) FILTER (WHERE extract(hour from tz) = 5), count(*) FILTER (WHERE e < 'happy'), count(*) FILTER (WHERE u > '7fffffff-0000-0000-8000-000000000020'), count(*) FILTER (WHERE u = '7fffffff-0000-0000-8000-000000000020') FROM yh;
DEALLOCATE p;
-- Also of a table that has no rows by then; and of a portal that is opened in one zone and read in another.
SET timezone = 'UTC';
CREATE FOREIGN TABLE ye (tz timestamptz, x int) SERVER gstore_fdw;
INSERT INTO ye SELECT timestamptz '2000-01-01 00:00+00' + i * interval '1 h', i FROM generate_series(1, 1000) i;
CREATE FUNCTION read_in(zone text, these int[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    found CURSOR FOR SELECT count(*) FILTER (WHERE extract(hour FROM tz) = 5 AND x = ANY (these)), sum(x), avg(x) FROM ye;
    answer record;
BEGIN
    OPEN found;
    PERFORM set_config('TimeZone', zone, false);
    FETCH found INTO answer;
    CLOSE found;
    RETURN answer::text;
END $$;
PREPARE emptied AS SELECT count(*), sum(x), avg(x) FROM ye WHERE extract(hour FROM tz) = 5;
PREPARE filtered AS SELECT count(*) FILTER (WHERE tz::date > '2000-01-10'), sum(x) FROM ye;
EXECUTE emptied;
EXECUTE filtered;
SELECT read_in('UTC', '{4,5,28,29}'), read_in('Europe/Berlin', '{4,29}'), read_in('UTC', '{4,5,28,29}');
TRUNCATE ye;
SET timezone = 'Europe/Berlin';
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE emptied;
EXECUTE emptied;
EXECUTE filtered;
SELECT read_in('UTC', '{5}');
DEALLOCATE emptied;
DEALLOCATE filtered;
DROP FUNCTION read_in;
DROP FOREIGN TABLE ye;
RESET plan_cache_mode;
-- In the zone that there is when the rows are read, a part of a condition may be for the GPU which was not when values were prepared.
CREATE FOREIGN TABLE yl (tz timestamptz, x int) SERVER gstore_fdw;
INSERT INTO yl SELECT timestamptz '2000-01-01 00:00+00' + i * interval '1 h', i FROM generate_series(1, 1000) i;
ANALYZE yl;
SET test.span = '1 day';
BEGIN;
SET LOCAL timezone = 'Europe/Berlin';
DECLARE later CURSOR FOR SELECT count(*), sum(x) FROM yl
    WHERE tz >= date_trunc('day', timestamptz '2000-01-02 00:00+00' + current_setting('test.span')::interval);
SET LOCAL timezone = 'UTC';
FETCH later;
COMMIT;
DROP FOREIGN TABLE yl;
SET timezone = 'UTC';
-- Lists, and conditions of scans.
SET test.ordered = on;
SET enable_sort = off;
SELECT same('SELECT id, u FROM q ORDER BY u, id LIMIT 20'), same('SELECT id, u FROM q ORDER BY u DESC, id LIMIT 200'), same('SELECT id, u FROM q ORDER BY u DESC NULLS LAST, v LIMIT 20 OFFSET 3'), same('SELECT id, v FROM q WHERE e < ''ok'' ORDER BY v, id LIMIT 20'), same('SELECT id FROM q WHERE id <> 2001 ORDER BY date_trunc(''month'', ts) DESC NULLS LAST, extract(dow from tz), id LIMIT 20'), same('SELECT id FROM q ORDER BY e, id LIMIT 5');
-- In the order of enums: of mood values have OIDs in another order, of size in this one.
SELECT k, o, same(format('SELECT id, %s FROM q ORDER BY %s %s, id LIMIT 8', k, k, o)), same(format('SELECT id, %s FROM q WHERE id %% 5 = 1 ORDER BY %s %s, id LIMIT 3 OFFSET 200', k, k, o))
FROM unnest('{e,f,z}'::text[]) k, unnest('{ASC,DESC,ASC NULLS FIRST,DESC NULLS LAST}'::text[]) o ORDER BY 1, 2;
SELECT same('SELECT id FROM q ORDER BY coalesce(e, ''fine''), z DESC NULLS LAST, id LIMIT 70'), same('SELECT id FROM q ORDER BY greatest(e, f) DESC, id LIMIT 70'), same('SELECT e, f, count(*) FROM q GROUP BY e, f ORDER BY f DESC, e NULLS FIRST LIMIT 5'), same('SELECT id % 30, max(e) FROM q GROUP BY 1 ORDER BY max(e) DESC NULLS LAST, min(f), 1 LIMIT 5'), same('SELECT DISTINCT e FROM q ORDER BY e DESC LIMIT 2');
-- Values that come later: a plan that is kept knows them.
SET plan_cache_mode = force_generic_plan;
PREPARE by_order AS SELECT id, e, z FROM yg ORDER BY z DESC NULLS LAST, e DESC NULLS LAST, id LIMIT 3;
PREPARE by_extreme AS SELECT max(e), min(z), max(z), count(*) FILTER (WHERE greatest(z, 's') = 's') FROM yg;
EXECUTE by_order;
EXECUTE by_extreme;
ALTER TYPE size ADD VALUE 'xs' BEFORE 's';
ALTER TYPE size ADD VALUE 'xl';
ALTER TYPE mood ADD VALUE 'glad' AFTER 'happy';
ALTER TYPE mood ADD VALUE 'wild' BEFORE 'happy';
UPDATE yh SET e = (ARRAY['glad', 'wild'])[1 + id % 2]::mood, z = (ARRAY['xs', 'xl'])[1 + id / 3 % 2]::size WHERE id % 100 < 20;
UPDATE yg SET e = (ARRAY['glad', 'wild'])[1 + id % 2]::mood, z = (ARRAY['xs', 'xl'])[1 + id / 3 % 2]::size WHERE id % 100 < 20;
UPDATE ya SET e = (ARRAY['glad', 'wild'])[1 + id % 2]::mood, z = (ARRAY['xs', 'xl'])[1 + id / 3 % 2]::size WHERE id % 100 < 20;
EXPLAIN (COSTS OFF) EXECUTE by_order;
EXECUTE by_order;
EXECUTE by_extreme;
SELECT max(e), min(z), max(z), count(*) FILTER (WHERE greatest(z, 's') = 's') FROM yh;
DEALLOCATE ALL;
RESET plan_cache_mode;
SELECT k, o, same(format('SELECT id, %s FROM q ORDER BY %s %s, id LIMIT 8 OFFSET 150', k, k, o)) FROM unnest('{e,z}'::text[]) k, unnest('{ASC,DESC,ASC NULLS FIRST,DESC NULLS LAST}'::text[]) o ORDER BY 1, 2;
-- A type with more values than a program has room for: in the order of its OIDs it needs none.
SELECT format('CREATE TYPE many AS ENUM (%s)', string_agg(quote_literal('v' || i), ', ')) AS many FROM generate_series(1, 1500) i \gset
:many;
CREATE FOREIGN TABLE ym (id int, m many) SERVER gstore_fdw;
INSERT INTO ym SELECT i, (enum_range(NULL::many))[i * 7 % 1500 + 1] FROM generate_series(1, 3000) i;
SELECT place('SELECT id FROM ym ORDER BY m, id LIMIT 3'), answer('SELECT m, id FROM ym ORDER BY m DESC, id LIMIT 3'), place('SELECT max(m) FROM ym'), answer('SELECT max(m) FROM ym');
ALTER TYPE many ADD VALUE 'first' BEFORE 'v1';
INSERT INTO ym VALUES (0, 'first');
SELECT place('SELECT id FROM ym ORDER BY m, id LIMIT 3'), answer('SELECT m, id FROM ym ORDER BY m, id LIMIT 3'), place('SELECT min(m) FROM ym'), answer('SELECT min(m) FROM ym');
DROP FOREIGN TABLE ym;
DROP TYPE many;
RESET enable_sort;
SET test.ordered = off;
SET test.node = '"GPU Filter":';
SELECT same('SELECT id, u, e FROM q WHERE u = ''80000000-0000-0000-8000-000000000019'''), same('SELECT id FROM q WHERE e > ''ok'' AND extract(year from ts) = 1997'), same('SELECT id, ts FROM q WHERE id < 1000 AND date_trunc(''month'', ts) = ''1998-02-01''');
DROP FOREIGN TABLE yg, ya;
DROP TABLE yh;
DROP DOMAIN y_id;
DROP TYPE mood, size;
DROP FUNCTION answer, place, same, met;
