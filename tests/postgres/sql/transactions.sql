-- Transactions: what is undone, what is seen, what is one.
CREATE FOREIGN TABLE x (id int, t text) SERVER gstore_fdw;
CREATE FOREIGN TABLE y (id int, t text) SERVER gstore_fdw;
CREATE FUNCTION ids() RETURNS int[] LANGUAGE sql VOLATILE AS 'SELECT array_agg(id ORDER BY id) FROM x';

-- aborted_changes_are_gone.
BEGIN;
INSERT INTO x VALUES (1, 'a'), (2, NULL);
SELECT * FROM x ORDER BY id;
ROLLBACK;
SELECT ids();
INSERT INTO x VALUES (1, 'a'), (2, NULL), (3, 'c');
BEGIN;
UPDATE x SET id = id + 10;
DELETE FROM x WHERE id = 13;
INSERT INTO x VALUES (99, 'zz');
SELECT ids();
ROLLBACK;
SELECT * FROM x ORDER BY id;
BEGIN;
INSERT INTO x VALUES (4, 'd');
SELECT 1 / 0;
INSERT INTO x VALUES (5, 'e');
COMMIT;
SELECT ids();

-- own_rows_have_their_nulls_and_bodies, command by command; also what was inserted and deleted again.
BEGIN;
INSERT INTO x VALUES (4, NULL);
INSERT INTO x SELECT 5, repeat('five', 3);
SELECT * FROM x ORDER BY id;
UPDATE x SET t = 'four' WHERE id = 4;
UPDATE x SET t = t || '!' WHERE id = 4;
DELETE FROM x WHERE id = 5;
SELECT * FROM x WHERE id > 3 ORDER BY id;
INSERT INTO x SELECT id + 100, t FROM x WHERE id >= 3;
SELECT ids();
COMMIT;
SELECT * FROM x ORDER BY id;
DELETE FROM x WHERE id > 3;

-- savepoint_rows_rolled_back_are_gone: neither seen in the transaction nor kept by its commit.
BEGIN;
INSERT INTO x VALUES (10, 'kept');
SAVEPOINT a;
INSERT INTO x VALUES (11, 'gone');
SELECT ids();
ROLLBACK TO a;
SELECT ids();
INSERT INTO x VALUES (12, 'kept');
COMMIT;
SELECT * FROM x ORDER BY id;

-- Updates and deletions under a savepoint come back.
BEGIN;
SAVEPOINT a;
DELETE FROM x WHERE id = 10;
UPDATE x SET t = 'changed' WHERE id = 12;
SELECT * FROM x WHERE id >= 10 ORDER BY id;
ROLLBACK TO a;
SELECT * FROM x WHERE id >= 10 ORDER BY id;
DELETE FROM x WHERE id = 12;
RELEASE a;
COMMIT;
SELECT ids();
DELETE FROM x WHERE id = 10;

-- Nested: released into one that is rolled back, rolled back in one that is released, and used again.
BEGIN;
INSERT INTO x VALUES (20, 'level 1');
SAVEPOINT a;
INSERT INTO x VALUES (21, 'level 2');
SAVEPOINT b;
INSERT INTO x VALUES (22, 'level 3');
SAVEPOINT c;
INSERT INTO x VALUES (23, 'level 4');
DELETE FROM x WHERE id = 20;
RELEASE c;
SELECT ids();
ROLLBACK TO b;
SELECT ids();
INSERT INTO x VALUES (24, 'level 3 again');
ROLLBACK TO b;
INSERT INTO x VALUES (25, 'level 3, third');
RELEASE b;
SELECT ids();
SAVEPOINT b;
DELETE FROM x;
SELECT ids();
ROLLBACK TO a;
SELECT ids();
INSERT INTO x VALUES (26, 'level 2 again');
RELEASE a;
COMMIT;
SELECT * FROM x ORDER BY id;

-- NULLs and bodies that were undone leave nothing behind for those written in their place.
BEGIN;
SAVEPOINT a;
INSERT INTO x SELECT NULL, NULL FROM generate_series(1, 21);
ROLLBACK TO a;
INSERT INTO x SELECT i, 'long ' || repeat('x', i) FROM generate_series(30, 50) i;
SAVEPOINT b;
INSERT INTO x SELECT i, repeat('undone', i) FROM generate_series(51, 80) i;
ROLLBACK TO b;
INSERT INTO x SELECT i, CASE WHEN i <> 52 THEN 'short' END FROM generate_series(51, 53) i;
COMMIT;
SELECT count(*), count(id), count(t), sum(length(t)) FROM x WHERE id >= 30 OR id IS NULL;
SELECT * FROM x WHERE id > 49 ORDER BY id;
DELETE FROM x WHERE id >= 20;

-- Blocks with EXCEPTION are savepoints.
DO $$
BEGIN
    FOR n IN 1 .. 5 LOOP
        BEGIN
            INSERT INTO x VALUES (100 + n, 'block');
            IF n % 2 = 0 THEN RAISE 'even'; END IF;
        EXCEPTION WHEN raise_exception THEN
            INSERT INTO x VALUES (200 + n, 'handler');
        END;
    END LOOP;
END $$;
SELECT ids();
DO $$
BEGIN
    DELETE FROM x WHERE id > 100;
    BEGIN
        INSERT INTO x VALUES (300, 'x');
        BEGIN
            TRUNCATE x;
            INSERT INTO x VALUES (301, 'y');
            PERFORM 1 / 0;
        EXCEPTION WHEN division_by_zero THEN
            RAISE NOTICE 'inner: %', ids();
        END;
        RAISE 'outer';
    EXCEPTION WHEN raise_exception THEN
        RAISE NOTICE 'outer: %', ids();
    END;
END $$;
SELECT ids();
-- Many of them, with the writer's stage between.
DO $$
BEGIN
    FOR n IN 1 .. 300 LOOP
        BEGIN
            INSERT INTO x VALUES (1000 + n, repeat('s', n));
            IF n % 3 <> 0 THEN RAISE 'undo'; END IF;
        EXCEPTION WHEN raise_exception THEN NULL;
        END;
    END LOOP;
END $$;
SELECT count(*), sum(id), sum(length(t)) FROM x WHERE id > 1000;
DELETE FROM x WHERE id > 100;

-- truncate_is_transactional: alone, then filled, then undone; to a savepoint; twice.
BEGIN;
TRUNCATE x;
SELECT count(*) FROM x;
ROLLBACK;
SELECT ids();
BEGIN;
INSERT INTO x VALUES (4, 'd');
TRUNCATE x;
INSERT INTO x VALUES (5, 'after');
SELECT * FROM x;
UPDATE x SET id = 6;
SAVEPOINT a;
TRUNCATE x;
INSERT INTO x VALUES (7, 'in savepoint');
SELECT ids();
ROLLBACK TO a;
SELECT ids();
ROLLBACK;
SELECT ids();
BEGIN;
SAVEPOINT a;
TRUNCATE x;
RELEASE a;
INSERT INTO x VALUES (8, 'eight');
COMMIT;
SELECT * FROM x;
TRUNCATE x, y;
SELECT count(*) FROM x;
INSERT INTO x VALUES (1, 'a'), (2, NULL), (3, 'c');

-- dropped_table_is_back_after_rollback, with its rows; CREATE in a transaction.
BEGIN;
DROP FOREIGN TABLE x;
SELECT to_regclass('x');
ROLLBACK;
SELECT * FROM x ORDER BY id;
BEGIN;
INSERT INTO x VALUES (4, 'before drop');
SAVEPOINT a;
DROP FOREIGN TABLE x;
CREATE FOREIGN TABLE x (other int) SERVER gstore_fdw;
INSERT INTO x VALUES (42);
SELECT * FROM x;
ROLLBACK TO a;
SELECT * FROM x ORDER BY id;
COMMIT;
SELECT ids();
BEGIN;
CREATE FOREIGN TABLE z (id int) SERVER gstore_fdw;
INSERT INTO z VALUES (1), (2);
SELECT count(*) FROM z;
ROLLBACK;
SELECT to_regclass('z');

-- Two tables are one transaction.
BEGIN;
INSERT INTO y SELECT * FROM x WHERE id <= 2;
DELETE FROM x WHERE id <= 2;
ROLLBACK;
SELECT ids(), (SELECT count(*) FROM y) AS y;
BEGIN;
INSERT INTO y SELECT * FROM x WHERE id <= 2;
DELETE FROM x WHERE id <= 2;
COMMIT;
SELECT ids(), (SELECT count(*) FROM y) AS y;
-- With a heap table that refuses at commit.
CREATE TABLE h (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED);
INSERT INTO h VALUES (1);
BEGIN;
INSERT INTO x VALUES (5, 'with heap');
INSERT INTO h VALUES (1);
COMMIT;
SELECT ids();

-- prepare_transaction_with_changes_is_refused, and leaves nothing for a later commit; without changes it is none of ours.
\set VERBOSITY sqlstate
BEGIN;
INSERT INTO x VALUES (6, 'prepared');
PREPARE TRANSACTION 'with changes';
SELECT ids();
INSERT INTO y VALUES (9, 'unrelated');
SELECT ids();
BEGIN;
TRUNCATE x;
PREPARE TRANSACTION 'with truncate';
BEGIN;
DROP FOREIGN TABLE x;
PREPARE TRANSACTION 'with drop';
SELECT ids();
BEGIN;
DELETE FROM x WHERE id = 12345;
SAVEPOINT a;
INSERT INTO x VALUES (7, 'undone');
ROLLBACK TO a;
SELECT count(*) FROM x;
INSERT INTO h VALUES (2);
PREPARE TRANSACTION 'only read';
SELECT ids();
COMMIT PREPARED 'only read';
SELECT id FROM h ORDER BY id;
SELECT count(*) FROM pg_prepared_xacts;
\set VERBOSITY default
BEGIN;
INSERT INTO x VALUES (6, 'prepared');
PREPARE TRANSACTION 'with changes';
-- Nor with privileges that have changed, of such tables alone: else all exports would wait for what is prepared.
BEGIN;
GRANT SELECT ON h, x TO public;
PREPARE TRANSACTION 'with privileges';
BEGIN;
GRANT SELECT ON h TO public;
PREPARE TRANSACTION 'others';
SELECT count(*) FROM pg_locks WHERE pid IS NULL AND relation = 'pg_foreign_table'::regclass;
ROLLBACK PREPARED 'others';

-- Read-only transactions; a statement in a function sees what the command before it left.
BEGIN READ ONLY;
SELECT ids();
INSERT INTO x VALUES (8, 'read only');
ROLLBACK;
CREATE FUNCTION steps() RETURNS SETOF int[] LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO x VALUES (50, 'step'); RETURN NEXT ids();
    UPDATE x SET id = 51 WHERE id = 50; RETURN NEXT ids();
    DELETE FROM x WHERE id = 51; RETURN NEXT ids();
END $$;
SELECT steps();

-- A procedure that commits between.
CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO x VALUES (60, 'committed'); COMMIT;
    INSERT INTO x VALUES (61, 'rolled back'); ROLLBACK;
    INSERT INTO x VALUES (62, 'committed'); COMMIT;
END $$;
CALL commits();
SELECT ids();

-- Self-insert: a statement reads what was there before it, in the same transaction too.
TRUNCATE x;
INSERT INTO x VALUES (1, 'seed');
BEGIN;
INSERT INTO x SELECT id + 1, t FROM x;
INSERT INTO x SELECT id + 2, t FROM x;
INSERT INTO x SELECT id + 4, t FROM x;
SELECT ids();
COMMIT;
DO $$ BEGIN FOR n IN 3 .. 13 LOOP INSERT INTO x SELECT id + (1 << n), t FROM x; END LOOP; END $$;
SELECT count(*), count(DISTINCT id), min(id), max(id), count(t) FROM x;

-- A function in a parallel worker, which does not know what its transaction has changed.
CREATE FUNCTION in_worker(n int) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT count(*) FROM x WHERE id = n AND t <> '' $$;
SELECT set_config(CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'debug_parallel_query' ELSE 'force_parallel_mode' END, 'on', false) AS forced;
SELECT in_worker(1);
BEGIN;
INSERT INTO y SELECT * FROM x WHERE id = 1;
SELECT in_worker(1);
SAVEPOINT s;
INSERT INTO x SELECT * FROM x WHERE id = 1;
\set VERBOSITY terse
SELECT in_worker(1);
\set VERBOSITY default
ROLLBACK TO s;
SELECT in_worker(1);
ROLLBACK;
SELECT set_config(CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'debug_parallel_query' ELSE 'force_parallel_mode' END, 'off', false) AS forced;
DROP FUNCTION in_worker;

-- A statement that rewrites a table which it reads for a snapshot of before.
CREATE FUNCTION count_stable() RETURNS bigint LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN (SELECT count(*) FROM y); END $$;
BEGIN;
INSERT INTO y SELECT * FROM x WHERE id <= 2;
DELETE FROM y WHERE id = 1;
SELECT count_stable();
SAVEPOINT s;
SELECT gstore_fdw_compact('y'), count_stable();
ROLLBACK TO s;
SELECT gstore_fdw_compact('y');
SELECT count_stable();
ROLLBACK;
-- No error where the snapshot sees none of the changes.
BEGIN;
DECLARE c CURSOR FOR SELECT count_stable();
INSERT INTO y SELECT * FROM x WHERE id <= 2;
TRUNCATE y;
FETCH c;
ROLLBACK;
BEGIN;
TRUNCATE y;
DECLARE c CURSOR FOR SELECT count_stable();
TRUNCATE y;
FETCH c;
ROLLBACK;
DROP FUNCTION count_stable;

DROP FUNCTION ids, steps;
DROP PROCEDURE commits;
DROP FOREIGN TABLE x, y;
DROP TABLE h;
