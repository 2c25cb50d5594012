-- Exact search on the GPU: ORDER BY a distance of pgvector with LIMIT, where it is installed.
\set QUIET on
SET client_min_messages = warning;
SELECT count(*) = 0 AS missing FROM pg_available_extensions WHERE name = 'vector' \gset
\if :missing
    \echo pgvector is not installed
    \quit
\endif
CREATE EXTENSION vector;
SET enable_sort = off;
-- Values whose distances are exact, so that equal ones are equal.
CREATE TABLE vh (id int, v vector(12), f halfvec(20), b bit(37), loose vector, t text);
CREATE FOREIGN TABLE vg (id int, v vector(12), f halfvec(20), b bit(37), loose vector, t text) SERVER gstore_fdw;
CREATE FOREIGN TABLE va (id int, v vector(12), f halfvec(20), b bit(37), loose vector, t text) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO vh
SELECT i, CASE WHEN i % 7 > 0 THEN (SELECT array_agg((i * x * 31 % 64 - 32) / 8.0) FROM generate_series(1, 12) x)::vector END,
    CASE WHEN i % 9 > 0 THEN (SELECT array_agg((i * x * 17 % 32 - 16) / 4.0) FROM generate_series(1, 20) x)::halfvec END,
    CASE WHEN i % 11 > 0 THEN (i::int8 * 123456789123)::bit(37) END, '[1,2]', 'text ' || i FROM generate_series(1, 2000) i;
INSERT INTO vh (id, v, f, b) VALUES (3001, array_fill(0, ARRAY[12])::vector, array_fill(0, ARRAY[20])::halfvec, 0::bit(37));
INSERT INTO vg SELECT * FROM vh;
INSERT INTO va SELECT * FROM vh;
DELETE FROM vh WHERE id % 10 = 3;
DELETE FROM vg WHERE id % 10 = 3;
DELETE FROM va WHERE id % 10 = 3;

-- Settings, and comparisons with the heap: answer(), place(), same().
SET test.tables = 'v';
SET test.node = '"GPU": "order';
SET test.ordered = on;
SET test.shown = '60 40';
\getenv abs_srcdir PG_ABS_SRCDIR
\set include :abs_srcdir '/sql_include/query_same.sql'
\i :include

EXPLAIN (COSTS OFF) SELECT id, v <-> '[1,0,0,0,0,0,0,0,0,0,0,0.5]' AS distance FROM vg WHERE id > 10 ORDER BY v <-> '[1,0,0,0,0,0,0,0,0,0,0,0.5]', id LIMIT 5;
SELECT o, same(format('SELECT id, v %s ''[1,0,0,-2,0,0,0,3,0,0,0,0.5]'' AS d FROM q ORDER BY d, id LIMIT 5', o)), same(format('SELECT id FROM q ORDER BY ''[1,0,0,-2,0,0,0,3,0,0,0,0.5]''::vector %s v DESC, id LIMIT 100', o)),
    same(format('SELECT id, f %s (SELECT f FROM vh WHERE id = 14) AS d FROM q ORDER BY d, id LIMIT 5', o))
FROM unnest('{<->,<#>,<+>}'::text[]) o;
SELECT o, same(format('SELECT id, b %s B''1010101010101010101010101010101010101'' AS d FROM q ORDER BY d, id LIMIT 5', o)) FROM unnest('{<~>,<%>}'::text[]) o;
-- Cosines are rounded, and not a number for the vector without a direction.
SELECT same('SELECT id FROM q WHERE id IN (1, 2, 4, 5, 3001) ORDER BY v <=> ''[1,0,0,-2,0,0,0,3,0,0,0,0.5]'', id LIMIT 9'), same('SELECT id FROM q WHERE id < 7 OR id = 3001 ORDER BY f <=> (SELECT f FROM vh WHERE id = 14) DESC, id LIMIT 9');
-- NULLs, two distances, an end of the list, conditions, vectors of another length.
SELECT same('SELECT id FROM q ORDER BY v <-> NULL::vector, id LIMIT 3'), same('SELECT id FROM q WHERE v IS NULL ORDER BY v <-> ''[1,0,0,-2,0,0,0,3,0,0,0,0.5]'', id LIMIT 3'), same('SELECT id FROM q ORDER BY v <-> ''[1,0,0,-2,0,0,0,3,0,0,0,0.5]'' NULLS FIRST, b <~> 0::bit(37), id LIMIT 8'),
    same('SELECT id FROM q WHERE id > 1900 ORDER BY v <-> ''[1,0,0,-2,0,0,0,3,0,0,0,0.5]'', id LIMIT 1000'), same('SELECT id, t FROM q WHERE t LIKE ''%7'' AND id > 100 ORDER BY v <-> ''[1,0,0,-2,0,0,0,3,0,0,0,0.5]'', id LIMIT 4'),
    same('SELECT id FROM q ORDER BY v <-> ''[1,2]'' LIMIT 3', NULL), same('SELECT id FROM q ORDER BY loose <-> ''[1,2]'', id LIMIT 3', NULL);
-- With parameters, and own rows.
PREPARE nearest(vector, bigint) AS SELECT id FROM vg ORDER BY v <-> $1, id LIMIT $2;
SET plan_cache_mode = force_generic_plan;
EXECUTE nearest('[1,0,0,-2,0,0,0,3,0,0,0,0.5]', 3);
BEGIN;
INSERT INTO vg (id, v) VALUES (4001, '[1,0,0,-2,0,0,0,3,0,0,0,0.5]');
EXECUTE nearest('[1,0,0,-2,0,0,0,3,0,0,0,0.5]', 2);
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE nearest('[1,0,0,-2,0,0,0,3,0,0,0,0.5]', 2);
ROLLBACK;
EXECUTE nearest('[1,0,0,-2,0,0,0,3,0,0,0,0.5]', 1);
DEALLOCATE nearest;

-- Operators of both extensions for bit strings: not in one schema; in two, that of the first schema in the path.
CREATE EXTENSION gstore_fdw_bit;
CREATE SCHEMA own;
CREATE EXTENSION gstore_fdw_bit SCHEMA own;
SELECT B'1100' <~> B'1010' AS hamming, '[1,2]'::vector <-> '[4,6]' AS l2, '[1,2]'::vector <-> '{4,6}'::real[] AS mixed, '{1,2}'::real[] <-> '{4,6}' AS l2_of_arrays;
SELECT same('SELECT id FROM q ORDER BY b <~> 5::bit(37), id LIMIT 3'), same('SELECT id FROM q ORDER BY b OPERATOR(own.<~>) 5::bit(37), id LIMIT 3');
DROP SCHEMA own CASCADE;

DROP FOREIGN TABLE vg, va;
DROP TABLE vh;
DROP FUNCTION answer, place, same;
DROP EXTENSION vector;
