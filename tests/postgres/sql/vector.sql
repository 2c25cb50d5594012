-- vector(n) and halfvec(n) of pgvector at a fixed stride, where it is installed.
\set QUIET on
SET client_min_messages = warning;
SELECT count(*) = 0 AS missing FROM pg_available_extensions WHERE name = 'vector' \gset
\if :missing
    \echo pgvector is not installed
    \quit
\endif

-- A type of that name which is another one.
CREATE SCHEMA own;
CREATE TYPE own.vector;
CREATE FUNCTION own.vector_in(cstring, oid, int) RETURNS own.vector LANGUAGE internal STRICT IMMUTABLE AS 'varcharin';
CREATE FUNCTION own.vector_out(own.vector) RETURNS cstring LANGUAGE internal STRICT IMMUTABLE AS 'varcharout';
CREATE TYPE own.vector (INPUT = own.vector_in, OUTPUT = own.vector_out, TYPMOD_IN = varchartypmodin, TYPMOD_OUT = varchartypmodout);
CREATE FOREIGN TABLE other (v own.vector(9)) SERVER gstore_fdw;
INSERT INTO other VALUES ('a'), ('abc'), (NULL);
SELECT * FROM other;
DROP FOREIGN TABLE other;

CREATE EXTENSION vector;
CREATE TABLE h (id int, v vector(3), w vector(768), f halfvec(5), loose vector, s sparsevec(9));
CREATE FOREIGN TABLE gp (id int, v vector(3), w vector(768), f halfvec(5), loose vector, s sparsevec(9)) SERVER gstore_fdw;
CREATE FOREIGN TABLE ga (id int, v vector(3), w vector(768), f halfvec(5), loose vector, s sparsevec(9)) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO h SELECT i, CASE WHEN i % 5 > 0 THEN ARRAY[i / 7.0, -i, 0]::vector END, (SELECT array_agg(i / (x + 1.0)) FROM generate_series(1, 768) x)::vector,
    ARRAY[i / 7.0, -i, 65504, 6e-8, 0]::halfvec, (SELECT array_agg(x) FROM generate_series(1, i % 9 + 1) x)::vector, '{1:1.5,9:2}/9' FROM generate_series(1, 500) i;
INSERT INTO gp SELECT * FROM h;
INSERT INTO ga SELECT * FROM h;
CREATE FUNCTION differing() RETURNS TABLE (in_pgstrom bigint, in_arrow bigint) LANGUAGE sql AS $$
    SELECT (SELECT count(*) FROM (SELECT * FROM gp) g FULL JOIN h USING (id) WHERE g.*::text IS DISTINCT FROM h.*::text),
        (SELECT count(*) FROM (SELECT * FROM ga) g FULL JOIN h USING (id) WHERE g.*::text IS DISTINCT FROM h.*::text) $$;
SELECT * FROM differing();

-- nearest_neighbours_are_those_of_a_heap
SELECT id, v, f FROM gp ORDER BY v <-> '[3,-20,1]', id LIMIT 3;
SELECT id, v, f FROM h ORDER BY v <-> '[3,-20,1]', id LIMIT 3;
SELECT (SELECT array_agg(id) FROM (SELECT id FROM ga ORDER BY w <=> (SELECT w FROM h WHERE id = 77), id LIMIT 5) s) =
    (SELECT array_agg(id) FROM (SELECT id FROM h ORDER BY w <=> (SELECT w FROM h WHERE id = 77), id LIMIT 5) s) AS same;
SELECT count(v), count(w), count(f), avg(v) = (SELECT avg(v) FROM h) AS same FROM ga;

-- changes_and_copies
UPDATE ga SET v = v + '[1,1,1]', f = '[1,2,3,4,5]' WHERE id % 4 = 0;
UPDATE h SET v = v + '[1,1,1]', f = '[1,2,3,4,5]' WHERE id % 4 = 0;
DELETE FROM gp;
INSERT INTO gp SELECT * FROM ga WHERE id % 3 > 0;
DELETE FROM ga WHERE id % 3 = 0;
DELETE FROM h WHERE id % 3 = 0;
SELECT * FROM differing();
SELECT octet_length(gstore_export_ipchandle('gp')), octet_length(gstore_export_ipchandle('ga')), gstore_export('gp') IS NOT NULL AS gp, gstore_export('ga') IS NOT NULL AS ga;
SELECT * FROM differing();

-- other_lengths_are_refused
\set VERBOSITY terse
INSERT INTO gp(v) VALUES ('[1,2]');
INSERT INTO gp(f) VALUES ('[1,2,3,4,5,6]');
ALTER FOREIGN TABLE gp ALTER v TYPE vector(4);
ALTER FOREIGN TABLE ga ALTER v TYPE vector;
ALTER FOREIGN TABLE ga ALTER loose TYPE vector(3);
ALTER FOREIGN TABLE gp ALTER loose OPTIONS (ADD length '3');
TRUNCATE gp;
ALTER FOREIGN TABLE gp ALTER v TYPE vector(4);
INSERT INTO gp(v) VALUES ('[1,2,3,4]');
SELECT v FROM gp;
CREATE FOREIGN TABLE widest (v vector(16000), f halfvec(16000)) SERVER gstore_fdw;
INSERT INTO widest SELECT array_agg(i)::vector, array_agg(i)::halfvec FROM generate_series(1, 16000) i;
SELECT vector_dims(v), l2_norm(f) FROM widest;
DROP FOREIGN TABLE gp, ga, widest;
DROP TABLE h;
DROP FUNCTION differing;
DROP EXTENSION vector;
DROP SCHEMA own CASCADE;
