-- What ROLLBACK TO takes back of a table's definition, seen by what comes after it in the transaction.
SET client_min_messages = warning;

-- Compaction at COMMIT follows the definition that is there then.
CREATE FOREIGN TABLE sp (id int, v int) SERVER gstore_fdw;
INSERT INTO sp SELECT i, i FROM generate_series(1, 20000) i;
BEGIN;
DELETE FROM sp WHERE id > 100;
SAVEPOINT s;
ALTER FOREIGN TABLE sp ADD a text DEFAULT 'x', ADD b text DEFAULT 'y', ADD c text DEFAULT 'z', ADD d text DEFAULT 'q', ADD e numeric DEFAULT 5;
ROLLBACK TO s;
COMMIT;
SELECT count(*), sum(v) FROM sp;
ALTER FOREIGN TABLE sp ADD n text;
INSERT INTO sp VALUES (1, 1, 'k');
SELECT count(*), count(n), sum(v) FROM sp;

CREATE FOREIGN TABLE sp_format (id int, t text) SERVER gstore_fdw;
INSERT INTO sp_format SELECT i, i FROM generate_series(1, 20000) i;
BEGIN;
DELETE FROM sp_format WHERE id > 100;
SAVEPOINT s;
TRUNCATE sp_format;
ALTER FOREIGN TABLE sp_format OPTIONS (ADD format 'arrow');
INSERT INTO sp_format VALUES (5, 'five');
ROLLBACK TO s;
COMMIT;
SELECT count(*), sum(t::int), gstore_fdw_format('sp_format') FROM sp_format;

-- Columns that a statement inside has completed, and that are not any more.
CREATE FOREIGN TABLE sp_columns (id int) SERVER gstore_fdw;
INSERT INTO sp_columns VALUES (0);
ALTER FOREIGN TABLE sp_columns ADD a text, ADD b int, ADD c text;
CREATE FUNCTION sp_inside(x int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        INSERT INTO sp_columns VALUES (-1, 'inner', 1, 'inner');
        RAISE EXCEPTION 'undone';
    EXCEPTION WHEN raise_exception THEN NULL;
    END;
    RETURN 'a' || x;
END $$;
INSERT INTO sp_columns SELECT i, sp_inside(i), i, 'c' || i FROM generate_series(1, 5) i;
SELECT * FROM sp_columns ORDER BY id;

-- Rows move in a compaction: not under a statement that knows them by their numbers.
CREATE FOREIGN TABLE sp_used (id int) SERVER gstore_fdw;
INSERT INTO sp_used SELECT generate_series(1, 1000);
DELETE FROM sp_used WHERE id <= 500;
CREATE FUNCTION sp_compact() RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
    PERFORM gstore_fdw_compact('sp_used');
    RETURN true;
END $$;
\set VERBOSITY sqlstate
DELETE FROM sp_used WHERE id = 900 AND sp_compact();
\set VERBOSITY default
SELECT count(*), min(id), max(id), count(*) FILTER (WHERE id = 900) AS still FROM sp_used;

DROP FOREIGN TABLE sp, sp_format, sp_columns, sp_used;
DROP FUNCTION sp_inside, sp_compact;
