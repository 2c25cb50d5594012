-- Large, long, compressed, empty and NULL values, and where NULLs begin.

-- Values larger than what is staged or moved at a time (1 MiB, 4 MiB), plain and compressed, next to small ones.
CREATE TABLE v_heap (id int, t text, b bytea);
INSERT INTO v_heap VALUES
    (1, repeat('0123456789', 200000), NULL),
    (2, '', ''),
    (3, NULL, decode(repeat('00ff', 3000000), 'hex')),
    (4, (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 60000) i), '\x01'),
    (5, 'small', NULL),
    (6, repeat('z', 20000000), NULL);
CREATE FOREIGN TABLE v_plain (id int, t text, b bytea) SERVER gstore_fdw;
CREATE FOREIGN TABLE v_pglz (id int, t text OPTIONS (compression 'pglz'), b bytea OPTIONS (compression 'pglz')) SERVER gstore_fdw;
INSERT INTO v_plain SELECT * FROM v_heap ORDER BY id;
INSERT INTO v_pglz SELECT * FROM v_heap ORDER BY id;
SELECT id, octet_length(t) AS t, octet_length(b) AS b FROM v_plain ORDER BY id;
SELECT count(*) AS same FROM v_heap h, v_plain f WHERE h.id = f.id AND h.t IS NOT DISTINCT FROM f.t AND h.b IS NOT DISTINCT FROM f.b;
SELECT count(*) AS same FROM v_heap h, v_pglz f WHERE h.id = f.id AND h.t IS NOT DISTINCT FROM f.t AND h.b IS NOT DISTINCT FROM f.b;
-- Compressed where that helps, flat where it does not; empty is not NULL.
SELECT id, pg_column_size(t) < octet_length(t) AS smaller, t IS NULL AS t_null, b IS NULL AS b_null FROM v_pglz ORDER BY id;
-- An offset of a body into a row that a condition leaves out, and back.
SELECT id, right(t, 5) FROM v_pglz WHERE id IN (1, 5, 6) ORDER BY id;
-- Only columns without bodies.
SELECT sum(id), count(*) FROM v_plain;

-- Values that come compressed or out of line from a heap are stored flat all the same.
CREATE TABLE v_toasted (t text);
ALTER TABLE v_toasted ALTER t SET STORAGE EXTERNAL;
INSERT INTO v_toasted SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1000) i;
CREATE FOREIGN TABLE v_flat (t text) SERVER gstore_fdw;
INSERT INTO v_flat SELECT t FROM v_toasted;
DROP TABLE v_toasted;
SELECT length(t), md5(t) = md5((SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1000) i)) AS same FROM v_flat;

-- The first NULL at any place of a byte of the bitmap, in a later statement and a later transaction.
CREATE FOREIGN TABLE v_nulls (id int, x int, f float8) SERVER gstore_fdw;
DO $$
DECLARE
    n int;
BEGIN
    FOR n IN 0 .. 18 LOOP
        TRUNCATE v_nulls;
        INSERT INTO v_nulls SELECT i, i, i FROM generate_series(1, n) i;
        INSERT INTO v_nulls VALUES (n + 1, NULL, 1);
        INSERT INTO v_nulls SELECT i, i, NULL FROM generate_series(n + 2, n + 12) i;
        IF (SELECT array_agg(x ORDER BY id) FROM v_nulls) IS DISTINCT FROM
           (SELECT array_agg(CASE WHEN i <> n + 1 THEN i END ORDER BY i) FROM generate_series(1, n + 12) i) THEN
            RAISE 'x is wrong with % rows before the first NULL', n;
        END IF;
        IF (SELECT array_agg(id ORDER BY id) FROM v_nulls WHERE f IS NULL) IS DISTINCT FROM
           (SELECT array_agg(i ORDER BY i) FROM generate_series(n + 2, n + 12) i) THEN
            RAISE 'f is wrong with % rows before the first NULL', n;
        END IF;
    END LOOP;
END $$;
TRUNCATE v_nulls;
DO $$
BEGIN
    FOR n IN 1 .. 20 LOOP
        INSERT INTO v_nulls VALUES (n, nullif(n, 13), CASE WHEN n % 3 = 0 THEN n END);
        COMMIT;
    END LOOP;
END $$;
SELECT string_agg(coalesce(x::text, '-'), ' ' ORDER BY id) AS x, string_agg(coalesce(f::text, '-'), ' ' ORDER BY id) AS f FROM v_nulls;

-- Only NULLs; a table of one column; many columns.
CREATE FOREIGN TABLE v_void (a int, t text, n numeric) SERVER gstore_fdw;
INSERT INTO v_void SELECT NULL, NULL, NULL FROM generate_series(1, 100);
INSERT INTO v_void DEFAULT VALUES;
SELECT count(*), count(a), count(t), count(n) FROM v_void;
DO $$
BEGIN
    EXECUTE 'CREATE TABLE v_wide_heap (' || (SELECT string_agg(format('c%s %s', i, CASE i % 3 WHEN 0 THEN 'int' WHEN 1 THEN 'text' ELSE 'float8' END), ', ') FROM generate_series(1, 200) i) || ')';
    EXECUTE 'CREATE FOREIGN TABLE v_wide (' || (SELECT string_agg(format('c%s %s', i, CASE i % 3 WHEN 0 THEN 'int' WHEN 1 THEN 'text' ELSE 'float8' END), ', ') FROM generate_series(1, 200) i) || ') SERVER gstore_fdw';
    EXECUTE 'INSERT INTO v_wide_heap SELECT ' || (SELECT string_agg(format('nullif(i %% 7, %s)%s', i % 9, CASE WHEN i % 3 = 1 THEN '::text' ELSE '' END), ', ') FROM generate_series(1, 200) i) || ' FROM generate_series(1, 300) i';
END $$;
INSERT INTO v_wide SELECT * FROM v_wide_heap;
SELECT count(*) FROM v_wide;
SELECT count(*) AS different FROM (SELECT t::text FROM v_wide_heap t EXCEPT ALL SELECT t::text FROM v_wide t) x;
SELECT count(*) AS different FROM (SELECT t::text FROM v_wide t EXCEPT ALL SELECT t::text FROM v_wide_heap t) x;

-- More rows than are read at a time, with values of every length.
CREATE TABLE v_many_heap AS SELECT i AS id, repeat(chr(97 + i % 26), i % 40) AS t, CASE WHEN i % 5 = 0 THEN NULL ELSE i / 3.0 END AS n FROM generate_series(1, 150000) i;
CREATE FOREIGN TABLE v_many (id int, t text, n numeric) SERVER gstore_fdw;
INSERT INTO v_many SELECT * FROM v_many_heap;
SELECT count(*), count(n), sum(length(t)) FROM v_many;
SELECT count(*) AS different FROM v_many_heap h FULL JOIN v_many f USING (id) WHERE (h.t, h.n) IS DISTINCT FROM (f.t, f.n);
SELECT count(*) FROM (SELECT * FROM v_many EXCEPT SELECT * FROM v_many_heap) x;

DROP FOREIGN TABLE v_plain, v_pglz, v_flat, v_nulls, v_void, v_wide, v_many;
DROP TABLE v_heap, v_wide_heap, v_many_heap;
