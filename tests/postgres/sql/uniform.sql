-- Columns of one length: packed at a fixed stride, in both formats, and the same as in a heap.
\set QUIET on
SET client_min_messages = warning;

-- numbers_of_every_precision_and_scale_come_back
CREATE TABLE scales (p int, s int);
INSERT INTO scales VALUES (1, 0), (5, 2), (9, 9), (10, 0), (18, 4), (19, 19), (20, 1), (38, 0), (38, 2), (38, 37), (38, 38), (3, -3), (38, -5),
    (2, 5), (38, 100), (5, -1000), (7, 1000), (38, 1000), (4, 63), (4, 64), (12, -7), (38, -1000);
CREATE FUNCTION check_scale(p int, s int, f text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE differ bigint; most numeric := ('1e' || p)::numeric - 1; unit numeric := ('1e' || -s)::numeric;
BEGIN
    EXECUTE format('CREATE TEMP TABLE h (id int, n numeric(%s,%s)); CREATE FOREIGN TABLE g (id int, n numeric(%1$s,%2$s)) SERVER gstore_fdw OPTIONS (format %3$L)', p, s, f);
    INSERT INTO h SELECT i, v * unit FROM unnest(ARRAY[0, 1, -1, 9, 10, 99, -100, 9999, 10000, 10001, -99999999, 123456789012345678, 18446744073709551615,
        18446744073709551616, -100000000000000000000, 12345678901234567890123456789012345678, most, -most, trunc(most / 2), trunc(most / 7), 'NaN', NULL])
        WITH ORDINALITY t(v, i) WHERE abs(v) <= most OR v IS NULL OR v = 'NaN';
    INSERT INTO h SELECT 100 + i, (1 - i % 2 * 2) * trunc(10::numeric ^ (i % p)) * unit FROM generate_series(1, 80) i;
    INSERT INTO g SELECT * FROM h;
    SELECT count(*) FROM h JOIN g USING (id) WHERE h.n IS DISTINCT FROM g.n OR h.n::text IS DISTINCT FROM g.n::text OR scale(h.n) IS DISTINCT FROM scale(g.n)
        OR numeric_send(h.n) IS DISTINCT FROM numeric_send(g.n) INTO differ;
    IF (SELECT count(*) FROM g) <> (SELECT count(*) FROM h) THEN differ := -1; END IF;
    DROP FOREIGN TABLE g; DROP TABLE h;
    RETURN differ;
END $$;
SELECT p, s, f FROM scales, unnest(ARRAY['pgstrom', 'arrow']) f WHERE check_scale(p, s, f) <> 0;

-- numbers_that_do_not_fit_are_refused
CREATE FOREIGN TABLE n (a numeric(5,2), b numeric(38,0), c numeric(39,2), d numeric) SERVER gstore_fdw;
INSERT INTO n VALUES (999.994, '99999999999999999999999999999999999999', 1e36, 'Infinity'), ('-0.00', '-0', 'NaN', 0), ('NaN', 'NaN', NULL, '1e-200');
\set VERBOSITY sqlstate
INSERT INTO n(a) VALUES (999.995);
INSERT INTO n(a) VALUES ('Infinity');
INSERT INTO n(b) VALUES (1e38);
\set VERBOSITY default
SELECT *, scale(a), scale(b) FROM n;
SELECT a FROM n WHERE a = 'NaN' OR a < 1;
DROP FOREIGN TABLE n;

-- comparisons_are_those_of_a_heap
CREATE FOREIGN TABLE g (id int, n numeric(6,2), w numeric(38,0), k numeric(5,-2), x numeric(38,38)) SERVER gstore_fdw;
CREATE TABLE h (LIKE g);
INSERT INTO h SELECT i, i / 4.0, i * 1e36, i * 100, i * 1e-3 FROM generate_series(-99, 99) i;
INSERT INTO h VALUES (200, 'NaN', 'NaN', 'NaN', 'NaN'), (201, NULL, NULL, NULL, NULL), (202, 9999.99, 1e38 - 1, 9999900, 0.99999999999999999999999999999999999999), (203, -9999.99, 1 - 1e38, -9999900, -0.99999999999999999999999999999999999999);
INSERT INTO g SELECT * FROM h;
EXPLAIN (COSTS OFF) SELECT count(*) FROM g WHERE n < 3.14 AND w BETWEEN 0 AND 1e37 AND 5 >= k;
CREATE FUNCTION compare(condition text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE of_g bigint[]; of_h bigint[];
BEGIN
    EXECUTE 'SELECT array_agg(id ORDER BY id) FROM g WHERE ' || condition INTO of_g;
    EXECUTE 'SELECT array_agg(id ORDER BY id) FROM h WHERE ' || condition INTO of_h;
    RETURN of_g IS NOT DISTINCT FROM of_h;
END $$;
SELECT c, op, v FROM unnest('{n,w,k,x}'::text[]) c, unnest('{<,<=,=,<>,>=,>}'::text[]) op,
    unnest('{0,-0.0,1.25,1.251,1.249,-1.25,-1.251,-1.249,0.005,-0.005,100,150,-150,-50,9999.99,9999.991,-9999.99,-9999.991,1e36,1e36,1e38,-1e38,1e39,-1e39,1e-38,1e-39,-1e-39,1e300,-1e300,1e-300,-1e-300,NaN,Infinity,-Infinity}'::text[]) v
    WHERE NOT compare(format('%I %s %L::numeric', c, op, v)) OR NOT compare(format('%L::numeric %s %I', v, op, c));
SELECT compare('n < id'), compare('n IS NULL OR n > 3'), compare('n = (SELECT 1.25)'), compare('n < NULL::numeric'), compare('n IN (1.25, 1.5)'), compare('n < 3 AND n > -3 AND x < 0.02 AND w IS NOT NULL');
PREPARE below(numeric) AS SELECT count(*) FROM g WHERE n < $1;
EXECUTE below(1);
EXECUTE below('NaN');
EXECUTE below(NULL);
SELECT i, (SELECT count(*) FROM g WHERE n < i::numeric / 2) FROM generate_series(-1, 3) i;
DROP FOREIGN TABLE g;
DROP TABLE h;
DROP FUNCTION compare;

-- values_of_one_length_are_those_of_a_heap
CREATE DOMAIN price AS numeric(9,3) CHECK (VALUE >= 0);
CREATE DOMAIN pair AS int4[] CHECK (VALUE[1] <= VALUE[2]);
CREATE FUNCTION packed_rows(first int, last int) RETURNS TABLE (id int, n numeric(12,4), p price, b1 bit(1), b bit(19), i2 int2[], f4 real[], f8 float8[], d date[],
    ts timestamp[], u uuid[], pr pair, t text, v varchar(9), c char(4), by bytea, x text) LANGUAGE sql AS $$
    SELECT i, CASE WHEN i % 5 > 0 THEN i * -1.2345 END, CASE WHEN i % 7 > 0 THEN i / 8.0 END, (i % 2)::bit(1), CASE WHEN i % 3 > 0 THEN (i * 37)::bit(19) END,
        CASE WHEN i % 4 > 0 THEN ARRAY[i, -i, 0, 7]::int2[] END, ARRAY[i / 3.0, 'NaN', '-0'], CASE WHEN i % 6 > 0 THEN ARRAY['infinity', i / 7.0] END,
        ARRAY[date '2000-01-01' + i, 'infinity', '-infinity', '1970-01-01', '4713-01-01 BC'], CASE WHEN i % 9 > 0 THEN ARRAY[timestamp '1999-12-31 23:59:59.999999' + i * interval '1 h', 'infinity'] END,
        ARRAY[md5(i::text)::uuid], CASE WHEN i % 8 > 0 THEN ARRAY[i, i + 1] END, right('00000' || i, 6), left(md5(i::text), 9), 'é' || (i % 10),
        CASE WHEN i % 10 > 0 THEN decode(md5(i::text), 'hex') END, repeat('x', i % 13)
    FROM generate_series(first, last) i $$;
CREATE TABLE h AS SELECT * FROM packed_rows(0, -1);
ALTER TABLE h ALTER pr TYPE pair, ALTER p TYPE price, ALTER n TYPE numeric(12,4), ALTER b1 TYPE bit(1), ALTER b TYPE bit(19), ALTER v TYPE varchar(9), ALTER c TYPE char(4);
\set columns 'id int, n numeric(12,4), p price, b1 bit(1), b bit(19), i2 int2[] OPTIONS (length \'4\'), f4 real[] OPTIONS (length \'3\'), f8 float8[] OPTIONS (length \'2\'), d date[] OPTIONS (length \'5\'), ts timestamp[] OPTIONS (length \'2\'), u uuid[] OPTIONS (length \'1\'), pr pair OPTIONS (length \'2\'), t text OPTIONS (length \'6\'), v varchar(9) OPTIONS (length \'9\'), c char(4) OPTIONS (length \'5\'), "by" bytea OPTIONS (length \'16\', compression \'none\'), x text'
CREATE FOREIGN TABLE gp (:columns) SERVER gstore_fdw;
CREATE FOREIGN TABLE ga (:columns) SERVER gstore_fdw OPTIONS (format 'arrow');
CREATE FUNCTION differing() RETURNS TABLE (in_pgstrom bigint, in_arrow bigint) LANGUAGE sql AS $$
    SELECT (SELECT count(*) FROM (SELECT * FROM gp) g FULL JOIN h USING (id) WHERE g.*::text IS DISTINCT FROM h.*::text),
        (SELECT count(*) FROM (SELECT * FROM ga) g FULL JOIN h USING (id) WHERE g.*::text IS DISTINCT FROM h.*::text) $$;
INSERT INTO h SELECT * FROM packed_rows(1, 1003);
INSERT INTO gp SELECT * FROM h; -- with the short headers of a heap's rows
INSERT INTO ga SELECT * FROM packed_rows(1, 1003);
SELECT * FROM differing();
SELECT * FROM gp WHERE id = 40;
SELECT * FROM ga WHERE id = 40;

-- conditions_joins_and_groups
SELECT count(*), count(n), sum(n), max(p) FROM gp WHERE n < -100 AND b IS NOT NULL;
SELECT count(*), count(n), sum(n), max(p) FROM h WHERE n < -100 AND b IS NOT NULL;
SELECT count(*) FROM ga WHERE n IS NULL;
SELECT count(i2), count(f8), count("by") FROM ga;
SELECT b1, count(*), min(n), max(d) FROM ga GROUP BY b1 ORDER BY b1;
SELECT count(*) FROM gp JOIN h USING (n, "by", u);
SELECT id, f8 FROM gp WHERE f8[1] = 'infinity' AND d[1] = '2000-01-03';

-- changes_savepoints_and_compaction
BEGIN;
UPDATE gp SET n = n + 1, i2 = (i2 || 5::int2)[1:4] WHERE i2 IS NOT NULL AND id % 3 = 0;
UPDATE ga SET n = n + 1, i2 = (i2 || 5::int2)[1:4] WHERE i2 IS NOT NULL AND id % 3 = 0;
UPDATE h SET n = n + 1 WHERE i2 IS NOT NULL AND id % 3 = 0;
SAVEPOINT s;
INSERT INTO gp SELECT * FROM packed_rows(2000, 2100);
DELETE FROM ga;
ROLLBACK TO s;
INSERT INTO gp SELECT * FROM packed_rows(3000, 3009);
INSERT INTO ga SELECT * FROM packed_rows(3000, 3009);
INSERT INTO h SELECT * FROM packed_rows(3000, 3009);
DELETE FROM gp WHERE id % 10 = 1;
DELETE FROM ga WHERE id % 10 = 1;
DELETE FROM h WHERE id % 10 = 1;
SELECT * FROM differing();
COMMIT;
SELECT * FROM differing();
SELECT octet_length(gstore_export_ipchandle('gp')) AS handle_gp,
    octet_length(gstore_export_ipchandle('ga')) AS handle_ga;
SELECT gstore_fdw_compact('gp') > 0 AS gp, gstore_fdw_compact('ga') > 0 AS ga;
SELECT * FROM differing();
SELECT gstore_export('gp') IS NOT NULL AS gp, gstore_export('ga') IS NOT NULL AS ga;
ANALYZE gp (n, b, f8), ga (n, b, f8);
SELECT tablename, attname, null_frac > 0 AS nulls, n_distinct <> 0 AS distinct FROM pg_stats WHERE tablename IN ('gp', 'ga') ORDER BY 1, 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
EXPLAIN (COSTS OFF) SELECT sum(n), sum(round(f8[2]::numeric, 3)), bit_or(b) FROM gp;
SELECT sum(n), sum(round(f8[2]::numeric, 3)), bit_or(b) FROM gp;
SELECT sum(n), sum(round(f8[2]::numeric, 3)), bit_or(b) FROM h;
RESET ALL;
SET client_min_messages = warning;

-- values_of_another_length_are_refused
CREATE FUNCTION refused(statement text) RETURNS TABLE (code text, message text, hint text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    RETURN QUERY SELECT 'none', statement, '';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    RETURN QUERY SELECT SQLSTATE, SQLERRM, hint;
END $$;
SELECT * FROM unnest(ARRAY[
    $$INSERT INTO gp(i2) VALUES ('{1,2,3}')$$, $$INSERT INTO gp(i2) VALUES ('{1,2,3,4,5}')$$, $$INSERT INTO gp(i2) VALUES ('{}')$$, $$INSERT INTO gp(i2) VALUES ('{1,2,3,NULL}')$$,
    $$INSERT INTO gp(i2) VALUES ('{{1,2},{3,4}}')$$, $$INSERT INTO gp(i2) VALUES ('[0:3]={1,2,3,4}')$$, $$INSERT INTO ga(t) VALUES ('12345')$$, $$INSERT INTO ga(t) VALUES ('éééé')$$,
    $$INSERT INTO gp(c) VALUES ('a')$$, $$INSERT INTO gp("by") VALUES ('\x00')$$, $$INSERT INTO gp(b) VALUES ('101')$$, $$INSERT INTO gp(n) VALUES (123456789)$$,
    $$UPDATE ga SET ts = ARRAY[timestamp '294277-01-01', 'infinity'] WHERE id = 2$$, $$UPDATE ga SET f8 = f8 || 1.0::float8$$]) s, refused(s);
SELECT * FROM differing();

-- options_are_checked
SELECT * FROM unnest(ARRAY[
    $$CREATE FOREIGN TABLE r (a int OPTIONS (length '4')) SERVER gstore_fdw$$, $$CREATE FOREIGN TABLE r (a text[] OPTIONS (length '4')) SERVER gstore_fdw$$,
    $$CREATE FOREIGN TABLE r (a bool[] OPTIONS (length '4')) SERVER gstore_fdw$$, $$CREATE FOREIGN TABLE r (a int2vector OPTIONS (length '4')) SERVER gstore_fdw$$,
    $$CREATE FOREIGN TABLE r (a numeric OPTIONS (length '4')) SERVER gstore_fdw$$, $$CREATE FOREIGN TABLE r (a bit varying OPTIONS (length '4')) SERVER gstore_fdw$$,
    $$CREATE FOREIGN TABLE r (a int[] OPTIONS (length '0')) SERVER gstore_fdw$$, $$CREATE FOREIGN TABLE r (a int[] OPTIONS (length '-1')) SERVER gstore_fdw$$,
    $$CREATE FOREIGN TABLE r (a int[] OPTIONS (length '3 ')) SERVER gstore_fdw$$, $$CREATE FOREIGN TABLE r (a int[] OPTIONS (length '99999999999999999999')) SERVER gstore_fdw$$,
    $$CREATE FOREIGN TABLE r (a int[] OPTIONS (length '262145')) SERVER gstore_fdw$$, $$CREATE FOREIGN TABLE r (a int[]) SERVER gstore_fdw OPTIONS (length '3')$$,
    $$ALTER FOREIGN TABLE ga ALTER x OPTIONS (ADD length '9')$$]) s, refused(s);
CREATE FOREIGN TABLE wide (a int[] OPTIONS (length '262144'), b bit(8388608), c bit(8388609)) SERVER gstore_fdw;
INSERT INTO wide SELECT array_agg(i), repeat('01', 4194304)::bit(8388608), repeat('1', 8388609)::bit(8388609) FROM generate_series(1, 262144) i;
INSERT INTO wide SELECT * FROM wide UNION ALL SELECT * FROM wide UNION ALL SELECT NULL, NULL, NULL;
SELECT cardinality(a), a[262144], length(b), get_bit(b, 8388606) + get_bit(b, 8388607) AS bits, length(c) FROM wide;
DROP FOREIGN TABLE wide;

-- alterations_keep_the_places_of_values
SELECT * FROM unnest(ARRAY[
    $$ALTER FOREIGN TABLE ga ALTER n TYPE numeric(12,5)$$, $$ALTER FOREIGN TABLE ga ALTER n TYPE numeric(11,4)$$, $$ALTER FOREIGN TABLE ga ALTER n TYPE numeric(39,4)$$,
    $$ALTER FOREIGN TABLE ga ALTER n TYPE numeric$$, $$ALTER FOREIGN TABLE ga ALTER b TYPE bit(20)$$, $$ALTER FOREIGN TABLE ga ALTER b TYPE bit varying$$,
    $$ALTER FOREIGN TABLE ga ALTER i2 OPTIONS (DROP length)$$, $$ALTER FOREIGN TABLE gp ALTER i2 OPTIONS (SET length '5')$$, $$ALTER FOREIGN TABLE gp ALTER t OPTIONS (DROP length)$$,
    $$ALTER FOREIGN TABLE gp ALTER i2 TYPE int$$]) s, refused(s);
ALTER FOREIGN TABLE gp ALTER n TYPE numeric(38,4), ALTER t TYPE varchar;
ALTER FOREIGN TABLE ga ALTER n TYPE numeric(38,4), ALTER t TYPE varchar;
ALTER TABLE h ALTER n TYPE numeric(38,4), ALTER t TYPE varchar;
INSERT INTO gp(id, n) VALUES (4000, '9999999999999999999999999999999999.9999'), (4001, '-1e33');
INSERT INTO ga(id, n) VALUES (4000, '9999999999999999999999999999999999.9999'), (4001, '-1e33');
INSERT INTO h(id, n) VALUES (4000, '9999999999999999999999999999999999.9999'), (4001, '-1e33');
ALTER FOREIGN TABLE gp ADD z bit(11), ADD y numeric(4,1) DEFAULT 2.5, ADD w int[] OPTIONS (length '2') DEFAULT '{3,4}', DROP pr;
ALTER FOREIGN TABLE ga ADD z bit(11), ADD y numeric(4,1) DEFAULT 2.5, ADD w int[] OPTIONS (length '2') DEFAULT '{3,4}', DROP pr;
ALTER TABLE h ADD z bit(11), ADD y numeric(4,1) DEFAULT 2.5, ADD w int[] DEFAULT '{3,4}', DROP pr;
SELECT * FROM differing();
ALTER FOREIGN TABLE gp ADD late numeric(5,1), ADD late_too real[] OPTIONS (length '3');
ALTER FOREIGN TABLE ga ADD late numeric(5,1), ADD late_too real[] OPTIONS (length '3');
ALTER TABLE h ADD late numeric(5,1), ADD late_too real[];
SELECT * FROM differing();
SELECT gstore_export('gp') IS NOT NULL AS gp, gstore_export('ga') IS NOT NULL AS ga, octet_length(gstore_export_ipchandle('gp')), octet_length(gstore_export_ipchandle('ga'));
INSERT INTO gp(id, late, late_too) VALUES (5000, 1.5, '{1,2,3}');
INSERT INTO ga(id, late, late_too) VALUES (5000, 1.5, '{1,2,3}');
INSERT INTO h(id, late, late_too) VALUES (5000, 1.5, '{1,2,3}');
SELECT * FROM differing();
SELECT count(*) FROM gp WHERE late IS NULL AND late_too IS NULL;
BEGIN;
TRUNCATE gp;
ALTER FOREIGN TABLE gp ALTER i2 OPTIONS (SET length '1'), ALTER b TYPE bit(2), ALTER n TYPE numeric(3,2);
INSERT INTO gp(id, i2, b, n) VALUES (1, '{5}', '10', 1.25);
SELECT id, i2, b, n FROM gp;
ROLLBACK;
SELECT * FROM differing();

-- rows_after_a_truncation_have_the_length_of_then
CREATE FOREIGN TABLE len (id int, v real[] OPTIONS (length '3')) SERVER gstore_fdw;
BEGIN;
INSERT INTO len VALUES (1, '{1,2,3}');
TRUNCATE len;
ALTER FOREIGN TABLE len ALTER v OPTIONS (SET length '1000');
INSERT INTO len SELECT i, array_fill(i::real, ARRAY[1000]) FROM generate_series(1, 200) i;
COMMIT;
SELECT count(*) FROM len WHERE v = array_fill(id::real, ARRAY[1000]);
BEGIN;
DELETE FROM len WHERE id > 100;
INSERT INTO len VALUES (500, array_fill(500::real, ARRAY[1000]));
SAVEPOINT s;
TRUNCATE len;
ALTER FOREIGN TABLE len ALTER v OPTIONS (SET length '4');
INSERT INTO len VALUES (1, '{1,2,3,4}');
SELECT * FROM len;
ROLLBACK TO s;
INSERT INTO len SELECT i, array_fill(i::real, ARRAY[1000]) FROM generate_series(501, 564) i;
COMMIT;
SELECT count(*), count(*) FILTER (WHERE v = array_fill(id::real, ARRAY[1000])) AS right FROM len;
DROP FOREIGN TABLE len;

-- triggers_and_checks_see_whole_values
CREATE FUNCTION twice() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.n := NEW.n * 2; NEW.a := ARRAY[NEW.a[2], NEW.a[1]]; RETURN NEW; END $$;
CREATE FOREIGN TABLE tr (id int, n numeric(9,2) CHECK (n < 1000), a int[] OPTIONS (length '2') NOT NULL, g bit(3) GENERATED ALWAYS AS (id::bit(3)) STORED) SERVER gstore_fdw;
CREATE TRIGGER twice BEFORE INSERT OR UPDATE ON tr FOR EACH ROW EXECUTE FUNCTION twice();
INSERT INTO tr VALUES (1, 1.25, '{1,2}'), (2, NULL, '{3,4}') RETURNING *;
SELECT * FROM refused($$INSERT INTO tr VALUES (3, 500, '{1,2}')$$);
UPDATE tr SET a[1] = 9 RETURNING *;
DROP FOREIGN TABLE tr;
DROP FOREIGN TABLE gp, ga;
DROP TABLE h, scales;
DROP FUNCTION refused, differing, packed_rows, check_scale, twice;
DROP DOMAIN price, pair;
