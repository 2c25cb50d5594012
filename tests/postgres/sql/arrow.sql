-- Tables of format 'arrow': what goes in comes out, of every type; what Arrow cannot hold is refused when
-- it is written. The bytes themselves are arrow.py's.
CREATE FUNCTION differences(a regclass, b regclass) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM %s ours FULL JOIN %s heaps ON ours.id = heaps.id WHERE ours::text IS DISTINCT FROM heaps::text', a, b) INTO n;
    RETURN n;
END $$;

-- The option.
CREATE FOREIGN TABLE r_case (id int) SERVER gstore_fdw OPTIONS (format 'Arrow');
SELECT gstore_fdw_format('r_case');
SELECT * FROM r_case;
SELECT gstore_export('r_case') IS NULL AS token, gstore_export_ipchandle('r_case') IS NULL AS handle;
INSERT INTO r_case VALUES (1), (NULL);
SELECT gstore_fdw_format('r_case'), gstore_fdw_nitems('r_case'), gstore_fdw_rawsize('r_case');
SELECT format, nitems, pinning FROM gstore_fdw_chunk_info
    WHERE table_oid = 'r_case'::regclass ORDER BY gstore_fdw_chunk_info.revision DESC LIMIT 1;
DROP FOREIGN TABLE r_case;
CREATE FOREIGN TABLE bad (id int) SERVER gstore_fdw OPTIONS (format 'feather');
\echo :LAST_ERROR_SQLSTATE

-- Every type: as a heap table has it, NULLs in between and at the ends.
CREATE TYPE r_mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE r_pair AS (x int, y text);
CREATE DOMAIN r_positive AS int CHECK (value > 0);
CREATE DOMAIN r_short AS varchar(8);
CREATE TABLE r_heap (id int, b bool, i2 smallint, i8 bigint, f4 real, f8 double precision, d date, ts timestamp,
    tz timestamptz, tm time, t text, v varchar(20), c char(6), j json, by bytea, u uuid, o oid, q "char", nm name,
    n numeric, n2 numeric(10, 2), jb jsonb, iv interval, tt timetz, ip inet, m macaddr, p point, e r_mood, pr r_pair,
    dp r_positive, ds r_short, r int4range, bits varbit, iv2 int2vector,
    a2 smallint[], a4 int[], a8 bigint[], af real[], ag float8[], ad date[], ats timestamp[], atz timestamptz[],
    atm time[], ao oid[], au uuid[], ab bool[], at text[], an numeric[], ae r_mood[]);
INSERT INTO r_heap
    SELECT i, i % 3 = 0, (i * 37 % 65536 - 32768)::smallint, i::bigint << 40, i / 3.0, i / 7.0, date '1969-12-30' + i,
        timestamp '1970-01-01' - interval '1.000001 s' + i * interval '1 h', '1999-12-31 23:59:59.5+00'::timestamptz + i * interval '1 day',
        time '00:00' + i * interval '7 s', repeat('ä' || i, i % 5), 'v' || i, 'c' || i % 10, json_build_object('i', i),
        decode(repeat(md5(i::text), i % 4), 'hex'), md5(i::text)::uuid, i, chr(65 + i % 26)::"char", 'name' || i,
        i / 7.0, i * 1.25, jsonb_build_object('i', i), i * interval '1 mon 2 d 3.5 s', timetz '01:02:03+04' + i * interval '1 s',
        ('10.0.0.' || i % 256)::inet, '08:00:2b:01:02:03', point(i, -i), (ARRAY['sad', 'ok', 'happy'])[1 + i % 3]::r_mood,
        (i, 'p' || i)::r_pair, i, 's' || i, int4range(i, 2 * i), (i % 64)::bit(6)::varbit, '1 2 3',
        ARRAY[i % 100, NULL, 3], CASE WHEN i % 4 > 0 THEN ARRAY[i, -i] ELSE '{}' END, ARRAY[i::bigint << 33], ARRAY[i / 3.0, 'nan'],
        ARRAY[i / 7.0, NULL, 'infinity'], ARRAY[date '2000-01-01' + i, NULL, 'infinity', '-infinity'],
        ARRAY[timestamp '1999-12-31' + i * interval '1 s', 'infinity'], ARRAY['1960-01-01 00:00+00'::timestamptz + i * interval '1 s', NULL],
        ARRAY[time '12:00' + i * interval '1 s'], ARRAY[i, 4294967295], ARRAY[NULL, md5(i::text)::uuid],
        ARRAY[true, NULL, i % 2 = 0], ARRAY['a', NULL, '', i::text], ARRAY[[i, 1.5], [NULL, 2]], ARRAY['ok', 'sad']::r_mood[]
    FROM generate_series(1, 100) i;
INSERT INTO r_heap (id) SELECT i FROM generate_series(101, 113) i;
CREATE FOREIGN TABLE r (id int, b bool, i2 smallint, i8 bigint, f4 real, f8 double precision, d date, ts timestamp,
    tz timestamptz, tm time, t text, v varchar(20), c char(6), j json, by bytea, u uuid, o oid, q "char", nm name,
    n numeric, n2 numeric(10, 2), jb jsonb, iv interval, tt timetz, ip inet, m macaddr, p point, e r_mood, pr r_pair,
    dp r_positive, ds r_short, r int4range, bits varbit, iv2 int2vector,
    a2 smallint[], a4 int[], a8 bigint[], af real[], ag float8[], ad date[], ats timestamp[], atz timestamptz[],
    atm time[], ao oid[], au uuid[], ab bool[], at text[], an numeric[], ae r_mood[])
    SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO r SELECT * FROM r_heap WHERE id > 100;
INSERT INTO r SELECT * FROM r_heap WHERE id <= 100 ORDER BY id;
SELECT differences('r', 'r_heap');
SELECT id, b, d, ts, t, c, a2, ad FROM r WHERE id IN (1, 2, 8, 101) ORDER BY id;
SELECT count(*), count(b), count(t), count(a4), count(an) FROM r;
SELECT length(gstore_export_ipchandle('r')) AS handle, gstore_export('r') LIKE 'gstore3:%' AS token;

-- Changes: rows that are deleted, moved, undone; bits that begin in the middle of a byte.
UPDATE r SET t = 'new ' || id, b = NOT b, a2 = a2 || 9::smallint WHERE id % 3 = 0;
UPDATE r_heap SET t = 'new ' || id, b = NOT b, a2 = a2 || 9::smallint WHERE id % 3 = 0;
DELETE FROM r WHERE id % 10 = 5;
DELETE FROM r_heap WHERE id % 10 = 5;
SELECT differences('r', 'r_heap');
BEGIN;
INSERT INTO r (id, b, t, a2) VALUES (201, true, 'kept', '{1,NULL}');
SAVEPOINT s;
INSERT INTO r (id, b, t, a2) SELECT i, NULL, NULL, '{NULL,NULL,NULL}' FROM generate_series(202, 300) i;
UPDATE r SET b = NULL, t = '' WHERE id = 201;
SELECT id, b, t, a2 FROM r WHERE id BETWEEN 201 AND 203 ORDER BY id;
ROLLBACK TO s;
INSERT INTO r (id, b, t, a2) VALUES (202, true, '', '{}'), (203, false, NULL, NULL);
SELECT id, b, t, a2 FROM r WHERE id > 200 ORDER BY id;
COMMIT;
INSERT INTO r_heap (id, b, t, a2) VALUES (201, true, 'kept', '{1,NULL}'), (202, true, '', '{}'), (203, false, NULL, NULL);
SELECT differences('r', 'r_heap');
SELECT length(gstore_export_ipchandle('r')) AS of_dead_rows_too;
SELECT gstore_fdw_compact('r') > 0 AS rewritten;
SELECT differences('r', 'r_heap');
DO $$
BEGIN
    FOR i IN 1..40 LOOP
        INSERT INTO r (id, b, i2, t, a2, ag) SELECT 1000 * i + j, (i + j) % 2 = 0, j, repeat('x', j), ARRAY[i, j], ARRAY[i / 2.0, j]
            FROM generate_series(1, i % 11 + 1) j;
    END LOOP;
    INSERT INTO r_heap (id, b, i2, t, a2, ag) SELECT 1000 * i + j, (i + j) % 2 = 0, j, repeat('x', j), ARRAY[i, j], ARRAY[i / 2.0, j]
        FROM generate_series(1, 40) i, generate_series(1, i % 11 + 1) j;
END $$;
SELECT differences('r', 'r_heap');

-- Conditions, and several processes.
SELECT count(*) FROM r WHERE d < '1970-01-01';
SELECT count(*) FROM r WHERE ts >= '1970-01-02 00:00' AND tz < '2000-02-01 00:00+00';
SELECT count(*), count(id) FILTER (WHERE t IS NULL) FROM r WHERE b;
SELECT count(*) FROM r WHERE NOT b AND t IS NOT NULL;
SELECT id FROM r WHERE d IS NULL AND id < 103 ORDER BY id;
CREATE FOREIGN TABLE r_long (id int, b bool, d date, t text, a int[]) SERVER gstore_fdw OPTIONS (format 'arrow');
CREATE TABLE r_long_heap (id int, b bool, d date, t text, a int[]);
INSERT INTO r_long_heap SELECT i, nullif(i % 3, 1) = 0, date '2000-01-01' + i % 1000, CASE WHEN i % 7 > 0 THEN repeat('y', i % 50) END,
    CASE WHEN i % 5 > 0 THEN ARRAY[i, NULL, i % 5] ELSE '{}' END FROM generate_series(1, 30011) i;
INSERT INTO r_long SELECT * FROM r_long_heap;
SELECT count(*), sum(id), count(b), sum(length(t)), sum(a[3]) FROM r_long WHERE d > '2001-01-01';
SELECT count(*), sum(id), count(b), sum(length(t)), sum(a[3]) FROM r_long_heap WHERE d > '2001-01-01';
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
SELECT count(*), sum(id), count(b), sum(length(t)), sum(a[3]) FROM r_long WHERE d > '2001-01-01' AND b;
SELECT count(*), sum(id), count(b), sum(length(t)), sum(a[3]) FROM r_long_heap WHERE d > '2001-01-01' AND b;
RESET parallel_setup_cost; RESET parallel_tuple_cost;
DELETE FROM r_long WHERE id % 2 = 0;
DELETE FROM r_long_heap WHERE id % 2 = 0;
SELECT differences('r_long', 'r_long_heap');
SELECT length(gstore_export_ipchandle('r_long'));
DELETE FROM r_long WHERE id % 3 = 0; -- more than half are dead: written anew at commit
DELETE FROM r_long_heap WHERE id % 3 = 0;
SELECT differences('r_long', 'r_long_heap');
-- Bits that another store had at the same place are not carried over.
CREATE FOREIGN TABLE r_bits (id int, b bool, t text, a int[]) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO r_bits SELECT i, true, CASE WHEN i % 2 = 1 THEN 'x' END, CASE WHEN i = 2 THEN '{NULL}' ELSE ARRAY[i] END FROM generate_series(1, 3) i;
BEGIN;
INSERT INTO r_bits VALUES (4, true, NULL, '{4}');
SAVEPOINT s;
TRUNCATE r_bits;
INSERT INTO r_bits SELECT i, false, CASE WHEN i % 2 = 0 THEN 'y' END, '{NULL}' FROM generate_series(1, 4) i;
SELECT * FROM r_bits ORDER BY id;
ROLLBACK TO s;
INSERT INTO r_bits VALUES (5, false, NULL, '{5}');
SELECT * FROM r_bits ORDER BY id;
COMMIT;
DROP FOREIGN TABLE r_bits;

-- Ends of the ranges.
CREATE FOREIGN TABLE r_ends (id int, d date, ts timestamp, tz timestamptz, t text, a timestamp[])
    SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO r_ends VALUES (1, '4713-01-01 BC', '4713-01-01 BC', '4713-01-02 BC', '', '{}'),
    (2, '5874897-12-31', '294247-01-10 04:00:54.775806', 'infinity', repeat('long ', 300000), '{infinity,-infinity}'),
    (3, 'infinity', 'infinity', '-infinity', NULL, NULL), (4, '-infinity', '-infinity', NULL, 'x', '{294247-01-10 04:00:54.775806}'),
    (5, '1970-01-01', '1970-01-01', '1970-01-01 00:00+00', '1', NULL), (6, '2000-01-01', '2000-01-01', '2000-01-01 00:00+00', '2', NULL);
SET timezone = 'UTC';
SELECT id, d, ts, tz, length(t), a FROM r_ends ORDER BY id;
SELECT id FROM r_ends WHERE ts = 'infinity' OR d = '-infinity' ORDER BY id;
RESET timezone;
INSERT INTO r_ends (ts) VALUES ('294247-01-10 04:00:54.775807');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO r_ends (tz) VALUES ('294276-12-31 23:59:59+00');
INSERT INTO r_ends (a) VALUES ('{2000-01-01,294276-12-31}');
SELECT count(*) FROM r_ends;

-- Arrays that are no lists.
INSERT INTO r (id, a4) VALUES (-1, '{{1,2},{3,4}}');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO r (id, a4) VALUES (-1, '[0:1]={1,2}');
UPDATE r SET ag = '{{1},{2}}' WHERE id = 1;
INSERT INTO r (id, at, ab) VALUES (-2, '[0:1]={a,b}', '{{t},{f}}');
SELECT at, ab FROM r WHERE id < 0;
DELETE FROM r WHERE id < 0;
SELECT differences('r', 'r_heap');

-- ALTER.
ALTER FOREIGN TABLE r_long ADD COLUMN n int, ADD COLUMN s text, ADD COLUMN l int[], ADD COLUMN k bool;
SELECT count(*), count(n), count(s), count(l), count(k) FROM r_long;
SELECT length(gstore_export_ipchandle('r_long'));
INSERT INTO r_long (id, n, s, l, k) VALUES (-1, 1, 'one', '{1,NULL}', true);
SELECT count(*), count(n), count(s), count(l), count(k) FROM r_long;
SELECT id, b, n, s, l, k FROM r_long WHERE id < 2 ORDER BY id;
ALTER FOREIGN TABLE r_long ADD COLUMN f text DEFAULT 'full', DROP COLUMN a;
SELECT count(*), count(f), min(f), count(k) FROM r_long;
ALTER FOREIGN TABLE r ALTER v TYPE text;
SELECT differences('r', 'r_heap');
ALTER FOREIGN TABLE r ALTER o TYPE int;
\echo :LAST_ERROR_SQLSTATE
ALTER FOREIGN TABLE r OPTIONS (SET format 'pgstrom');
\echo :LAST_ERROR_SQLSTATE
ALTER FOREIGN TABLE r OPTIONS (SET format 'ARROW');
TRUNCATE r_long;
ALTER FOREIGN TABLE r_long OPTIONS (SET format 'pgstrom');
INSERT INTO r_long (id, b, t) VALUES (1, true, 'pgstrom');
SELECT gstore_fdw_format('r_long'), id, b, t FROM r_long;
BEGIN;
INSERT INTO r_long (id, b, t) VALUES (2, true, 'not yet');
DELETE FROM r_long;
ALTER FOREIGN TABLE r_long OPTIONS (SET format 'arrow');
INSERT INTO r_long (id, b, t) VALUES (3, false, 'arrow'), (4, true, NULL);
SELECT gstore_fdw_format('r_long'), id, b, t FROM r_long ORDER BY id;
SAVEPOINT s;
TRUNCATE r_long;
ALTER FOREIGN TABLE r_long OPTIONS (SET format 'pgstrom');
INSERT INTO r_long (id, b, t) VALUES (5, true, 'undone');
SELECT gstore_fdw_format('r_long'), id, b, t FROM r_long;
ROLLBACK TO s;
INSERT INTO r_long (id, b, t) VALUES (6, true, 'again');
COMMIT;
SELECT gstore_fdw_format('r_long'), id, b, t FROM r_long ORDER BY id;
SELECT format FROM gstore_fdw_chunk_info
    WHERE table_oid = 'r_long'::regclass ORDER BY gstore_fdw_chunk_info.revision DESC LIMIT 1;

-- Arrow's buffers are not compressed.
CREATE FOREIGN TABLE bad (t text OPTIONS (compression 'pglz')) SERVER gstore_fdw OPTIONS (format 'arrow');
\echo :LAST_ERROR_SQLSTATE
ALTER FOREIGN TABLE r ALTER t OPTIONS (ADD compression 'pglz');
ALTER FOREIGN TABLE r ADD COLUMN more text OPTIONS (compression 'pglz');
CREATE FOREIGN TABLE r_packed (t text OPTIONS (compression 'pglz')) SERVER gstore_fdw;
ALTER FOREIGN TABLE r_packed OPTIONS (ADD format 'arrow');
ALTER FOREIGN TABLE r_packed ALTER t OPTIONS (SET compression 'none');
ALTER FOREIGN TABLE r_packed OPTIONS (ADD format 'arrow');
INSERT INTO r_packed VALUES (repeat('x', 100000));
SELECT length(t) FROM r_packed;
SELECT relname FROM pg_class WHERE relname = 'bad';

-- NULL elements take their full width: what could be written and never read is refused.
CREATE FOREIGN TABLE r_wide (id int, u uuid[]) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO r_wide VALUES (1, array_fill(NULL::uuid, ARRAY[40000000]));
INSERT INTO r_wide VALUES (2, ARRAY[NULL, '00000000-0000-0000-0000-000000000001']::uuid[]);
SELECT * FROM r_wide;
DROP FOREIGN TABLE r_wide;

DROP FOREIGN TABLE r, r_long, r_ends, r_packed;
DROP TABLE r_heap, r_long_heap;
DROP FUNCTION differences;
DROP DOMAIN r_positive, r_short;
DROP TYPE r_mood, r_pair;
