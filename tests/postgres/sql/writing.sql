-- Many rows written, deleted and undone, beside a heap table that says what is right.
\set VERBOSITY terse
CREATE FOREIGN TABLE w (id int, v float8, t text, n name) SERVER gstore_fdw;
CREATE UNLOGGED TABLE h (id int, v float8, t text, n name);
CREATE FUNCTION differ() RETURNS bigint LANGUAGE sql AS $$
    SELECT count(*) FROM ((TABLE w EXCEPT ALL TABLE h) UNION ALL (TABLE h EXCEPT ALL TABLE w)) d $$;
CREATE PROCEDURE apply(statement text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE replace(statement, '@', 'w');
    EXECUTE replace(statement, '@', 'h');
END $$;

-- Several flushes; the first NULL after some of them, and in the middle of a byte.
CALL apply('INSERT INTO @ SELECT i, i, NULLIF(''row '' || i, ''row 90001''), i FROM generate_series(1, 90003) i');
CALL apply('INSERT INTO @ SELECT i, NULLIF(i % 3, 0), repeat(''x'', i % 50), NULL FROM generate_series(90004, 160000) i');
SELECT count(*), differ() FROM w;

-- Deletions: few, as a list; many, as a bitmap; seen by the transaction and by others after it.
CALL apply('DELETE FROM @ WHERE id % 9973 = 1');
SELECT count(*), differ() FROM w;
CALL apply('DELETE FROM @ WHERE id BETWEEN 100 AND 40000 AND id % 3 <> 0');
SELECT count(*), differ() FROM w;
BEGIN;
CALL apply('DELETE FROM @ WHERE id % 5 = 0');
SELECT count(*), differ() FROM w;
DELETE FROM w WHERE id % 5 = 0;
CALL apply('UPDATE @ SET v = -v, t = NULL WHERE id % 7 = 0');
SELECT count(*), differ() FROM w;
-- A cursor keeps what it saw, whatever later commands delete.
DECLARE c CURSOR FOR SELECT count(*) FROM w WHERE id % 2 = 0;
DECLARE d NO SCROLL CURSOR FOR SELECT id FROM w WHERE id % 2 = 0;
FETCH 1 FROM d;
CALL apply('DELETE FROM @ WHERE id % 2 = 0');
FETCH 1 FROM c;
MOVE FORWARD ALL IN d;
SELECT count(*), differ() FROM w;
ROLLBACK;
SELECT count(*), differ() FROM w;

-- Savepoints: what was deleted in them comes back, the same rows can be deleted again.
BEGIN;
CALL apply('DELETE FROM @ WHERE id % 4 = 0');
SAVEPOINT a;
CALL apply('DELETE FROM @ WHERE id % 4 <= 1');
SAVEPOINT b;
CALL apply('INSERT INTO @ SELECT i, i, ''new'', i FROM generate_series(200001, 240000) i');
CALL apply('DELETE FROM @ WHERE id % 4 = 2');
ROLLBACK TO b;
SELECT count(*), differ() FROM w;
CALL apply('INSERT INTO @ SELECT i, i, ''again'', i FROM generate_series(300001, 350000) i');
CALL apply('DELETE FROM @ WHERE id % 4 = 2 AND id > 50000');
RELEASE b;
SELECT count(*), differ() FROM w;
ROLLBACK TO a;
SELECT count(*), differ() FROM w;
CALL apply('DELETE FROM @ WHERE id % 4 = 1');
CALL apply('TRUNCATE @');
CALL apply('INSERT INTO @ SELECT i, i, ''third'', i FROM generate_series(1, 40000) i');
CALL apply('DELETE FROM @ WHERE id <= 20000');
SELECT count(*), differ() FROM w;
ROLLBACK TO a;
SELECT count(*), differ() FROM w;
CALL apply('DELETE FROM @ WHERE id % 4 = 1');
COMMIT;
SELECT count(*), differ(), gstore_fdw_nitems('w') FROM w;

-- Most of the rows: the others are written anew.
SELECT gstore_fdw_rawsize('w') AS before \gset
CALL apply('DELETE FROM @ WHERE id % 10 <> 3');
SELECT count(*), differ(), gstore_fdw_rawsize('w') < :before / 2 AS smaller FROM w;
CALL apply('UPDATE @ SET t = t || ''!''');
SELECT count(*), differ() FROM w;
CALL apply('DELETE FROM @');
SELECT count(*), differ(), gstore_fdw_rawsize('w') FROM w;

-- COPY, many at a time, and one that fails in the middle and leaves nothing.
INSERT INTO h SELECT i, i / 7.0, NULLIF('line ' || i, 'line 5'), 'n' || i FROM generate_series(1, 100000) i;
SELECT current_setting('data_directory') || '/writing.data' AS file \gset
COPY h TO :'file';
COPY w FROM :'file';
SELECT count(*), differ() FROM w;
ALTER FOREIGN TABLE w ADD CHECK (id < 90000) NOT VALID;
COPY w FROM :'file';
BEGIN;
SAVEPOINT s;
COPY w FROM :'file';
ROLLBACK TO s;
INSERT INTO w VALUES (-1, 0, 'kept', NULL);
INSERT INTO h VALUES (-1, 0, 'kept', NULL);
COMMIT;
SELECT count(*), differ() FROM w;

-- A column larger than 64 MiB moves to larger chunks, in the middle of a command, with what is in it.
TRUNCATE w;
TRUNCATE h;
INSERT INTO w SELECT i, i, NULL, md5(i::text) FROM generate_series(1, 3000) i;
INSERT INTO w SELECT i, i, NULL, md5(i::text) FROM generate_series(3001, 1300000) i WHERE i < 90000;
CREATE FOREIGN TABLE wide (id int, n name, t text) SERVER gstore_fdw;
INSERT INTO wide SELECT i, 'first ' || i, 'first' FROM generate_series(1, 10000) i;
BEGIN;
SAVEPOINT s;
INSERT INTO wide SELECT i, 'more ' || i, NULL FROM generate_series(10001, 1200000) i;
SELECT count(*), count(DISTINCT n), sum(length(n::text)) FROM wide;
ROLLBACK TO s;
INSERT INTO wide SELECT i, CASE WHEN i % 2 = 0 THEN 'later ' || i END, repeat('y', 7) FROM generate_series(10001, 1250000) i;
COMMIT;
SELECT count(*), count(n), sum((n = CASE WHEN id <= 10000 THEN 'first ' ELSE 'later ' END || id)::int), sum(id::bigint) FROM wide;
-- One that is larger from the start.
ALTER FOREIGN TABLE wide ADD other name;
SELECT count(*), count(other) FROM wide;
UPDATE wide SET other = 'set' WHERE id = 1250000;
SELECT id, other FROM wide WHERE other IS NOT NULL;

-- Progress of ALTER, while rows are written anew and while they are only looked at.
CREATE TABLE seen (what text, command text, relation regclass, rows_so_far boolean, bytes_so_far boolean);
CREATE FUNCTION note(what text, id int) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF id = 89999 THEN
        INSERT INTO seen SELECT what, command, relid, rows_written > 0, bytes_written > 0
            FROM gstore_fdw_progress WHERE pid = pg_backend_pid();
    END IF;
    RETURN true;
END $$;
CREATE SEQUENCE number;
CREATE FUNCTION next_id() RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    i int := nextval('number');
BEGIN
    PERFORM note('default', i);
    RETURN i;
END $$;
ALTER FOREIGN TABLE w ADD d int DEFAULT next_id();
SELECT count(*), min(d), max(d), count(DISTINCT d) FROM w;
ALTER FOREIGN TABLE w ADD CONSTRAINT noted CHECK (note('check', id));
SELECT * FROM seen;
SELECT count(*) FROM gstore_fdw_progress WHERE pid = pg_backend_pid();

-- A transaction of one row holds memory for few.
CREATE FOREIGN TABLE few (id int, t text) SERVER gstore_fdw;
BEGIN;
INSERT INTO few VALUES (1, 'one');
SELECT sum(total_bytes) < 100000 AS little FROM pg_backend_memory_contexts WHERE name LIKE 'gstore%';
COMMIT;

-- A transaction of many statements and subtransactions keeps a few bytes for each of them.
CREATE FOREIGN TABLE many (id int NOT NULL, a text OPTIONS (compression 'pglz'), b text OPTIONS (compression 'pglz'), c text OPTIONS (compression 'pglz'),
    d text OPTIONS (compression 'pglz'), e text OPTIONS (compression 'pglz')) SERVER gstore_fdw;
BEGIN;
DO $$
BEGIN
    FOR i IN 1..1000 LOOP
        INSERT INTO many VALUES (i);
        BEGIN
            INSERT INTO many VALUES (-i);
            IF i % 2 = 0 THEN
                RAISE EXCEPTION 'undone';
            END IF;
        EXCEPTION WHEN raise_exception THEN
        END;
    END LOOP;
END $$;
SELECT sum(used_bytes) < 200000 AS little FROM pg_backend_memory_contexts WHERE name IN ('gstore pending', 'gstore changes');
SELECT count(*), sum(id) FROM many;
COMMIT;

-- Rows of several statements are written together, in a table with constraints, too.
BEGIN;
INSERT INTO many SELECT i, repeat(md5(i::text), 100) FROM generate_series(1, 60) i;
INSERT INTO many SELECT i, repeat(md5(i::text), 100) FROM generate_series(1, 60) i;
SELECT sum(used_bytes) > 20000 AS both FROM pg_backend_memory_contexts WHERE name IN ('gstore writer');
COMMIT;
DROP FOREIGN TABLE few, many, w, wide;
DROP TABLE h, seen;
DROP PROCEDURE apply;
DROP FUNCTION differ, next_id, note;
DROP SEQUENCE number;
