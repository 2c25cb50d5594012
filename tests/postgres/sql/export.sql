-- gstore_export(): whom it answers, when it has nothing to say, what a token looks like. What other processes do with
-- tokens is in attach.py.
\set VERBOSITY terse
CREATE FOREIGN TABLE ex (id int, t text) SERVER gstore_fdw;
CREATE TABLE ex_heap (id int);
CREATE ROLE ex_reader;
CREATE ROLE ex_column;
CREATE ROLE ex_stranger;
CREATE ROLE ex_member;
GRANT SELECT ON ex TO ex_reader;
GRANT SELECT (id, t) ON ex TO ex_column;
GRANT ex_reader TO ex_member;

-- ---- Nothing to export: NULL, no rows, no longer any; bad input is no table.
SELECT gstore_export(NULL) IS NULL AS strict, gstore_export('ex') IS NULL AS never_filled;
INSERT INTO ex VALUES (1, 'one');
DELETE FROM ex;
SELECT gstore_export('ex') IS NULL AS emptied;
INSERT INTO ex VALUES (1, 'one');
TRUNCATE ex;
SELECT gstore_export('ex') IS NULL AS truncated;
SELECT gstore_export('ex_heap');
\echo :LAST_ERROR_SQLSTATE
SELECT gstore_export('ex_heap'::regclass::oid);
\echo :LAST_ERROR_SQLSTATE
SELECT gstore_export('missing');
SELECT gstore_export(0);
\echo :LAST_ERROR_SQLSTATE
SELECT gstore_export(4294967295);
\echo :LAST_ERROR_SQLSTATE
CREATE FOREIGN TABLE ex_none () SERVER gstore_fdw;
INSERT INTO ex_none DEFAULT VALUES;
SELECT gstore_export('ex_none') IS NOT NULL AS rows_without_columns;

-- ---- Shape: a line of printable characters: version, checksum, place, length, secret, socket.
INSERT INTO ex SELECT i, 'row ' || i FROM generate_series(1, 1000) i;
SELECT gstore_export('ex') AS token \gset
SELECT pg_typeof(gstore_export('ex')), length(:'token') < 512 AS short, :'token' ~ '^[[:graph:]]+$' AS printable;
SELECT field, CASE
        WHEN field = 1 THEN regexp_replace(part, '[0-9]+', 'N', 'g')
        WHEN field = 6 THEN CASE WHEN part ~ '^/gstore/[0-9a-f]{32}$' THEN 'secret' ELSE part END
        WHEN field = 2 THEN CASE WHEN part ~ '^[0-9a-f]{16}$' THEN 'checksum' ELSE part END
        WHEN field IN (3, 4, 5) THEN CASE WHEN part ~ '^[0-9]+$' THEN 'number' ELSE part END
        ELSE regexp_replace(part, '^/.*/', '/.../') END AS part
    FROM string_to_table(:'token', ':') WITH ORDINALITY AS t (part, field);
SELECT split_part(:'token', ':', 7) = (SELECT DISTINCT socket FROM gstore_fdw_keeper_info) AS socket;

-- ---- One token a revision: the same while rows and columns are the same, another one after each change.
SELECT gstore_export('ex') = :'token' AS same;
SELECT gstore_export('public.ex'::reggstore) = :'token' AS same, gstore_export('ex'::regclass::oid) = :'token' AS by_oid;
BEGIN;
INSERT INTO ex VALUES (0, 'undone');
ROLLBACK;
SELECT gstore_export('ex') = :'token' AS same_after_rollback;
CREATE TABLE ex_tokens (n serial, token text UNIQUE);
INSERT INTO ex_tokens (token) VALUES (:'token');
INSERT INTO ex VALUES (1001, 'inserted');
INSERT INTO ex_tokens (token) SELECT gstore_export('ex');
UPDATE ex SET t = 'updated' WHERE id = 1;
INSERT INTO ex_tokens (token) SELECT gstore_export('ex');
DELETE FROM ex WHERE id = 2;
INSERT INTO ex_tokens (token) SELECT gstore_export('ex');
ALTER FOREIGN TABLE ex RENAME COLUMN t TO text;
INSERT INTO ex_tokens (token) SELECT gstore_export('ex');
ALTER FOREIGN TABLE ex ADD COLUMN more int;
INSERT INTO ex_tokens (token) SELECT gstore_export('ex');
ALTER FOREIGN TABLE ex DROP COLUMN more;
ALTER FOREIGN TABLE ex RENAME COLUMN text TO t;
INSERT INTO ex_tokens (token) SELECT gstore_export('ex');
SELECT count(DISTINCT token) FROM ex_tokens;
-- commit_writes_the_change_and_not_the_table: it adds to the store that is there.
CREATE FOREIGN TABLE ex_grows (id int, t text) SERVER gstore_fdw;
INSERT INTO ex_grows SELECT i, 'row ' || i FROM generate_series(1, 100000) i;
SELECT gstore_fdw_rawsize('ex_grows') AS bytes \gset
INSERT INTO ex_grows VALUES (0, 'one more');
SELECT gstore_fdw_rawsize('ex_grows') - :bytes < 64 AS bytes_of_a_row;
UPDATE ex_grows SET t = 'changed' WHERE id = 1;
SELECT nitems, rawsize - :bytes < 128 AS bytes_of_two FROM gstore_fdw_chunk_info
    WHERE table_oid = 'ex_grows'::regclass ORDER BY revision DESC LIMIT 1;
DROP FOREIGN TABLE ex_grows;
-- Two tables never share one.
CREATE FOREIGN TABLE ex_twin (id int, t text) SERVER gstore_fdw;
INSERT INTO ex_twin SELECT * FROM ex;
SELECT gstore_export('ex') <> gstore_export('ex_twin') AS different;
DROP FOREIGN TABLE ex_twin;

-- ---- Released tokens: after TRUNCATE and DROP there is none, and none comes back with the next rows or the next table.
TRUNCATE ex;
SELECT gstore_export('ex') IS NULL AS gone;
INSERT INTO ex SELECT i, 'row ' || i FROM generate_series(1, 1000) i;
SELECT count(*) AS seen_before FROM ex_tokens WHERE token = gstore_export('ex');
INSERT INTO ex_tokens (token) SELECT gstore_export('ex');
BEGIN;
TRUNCATE ex;
ROLLBACK;
SELECT max(n) = 8 AS as_before_the_rollback FROM ex_tokens WHERE token = gstore_export('ex');

-- ---- In a transaction: what it has changed itself is not exported; what is committed is; so is its rewriting.
BEGIN;
INSERT INTO ex VALUES (0, 'own');
SELECT gstore_export('ex');
ROLLBACK;
BEGIN;
TRUNCATE ex;
SELECT gstore_export('ex');
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT gstore_export('ex') IS NOT NULL AS read_only;
COMMIT;
DELETE FROM ex WHERE id <= 10;
BEGIN READ ONLY;
SELECT gstore_export('ex');
ROLLBACK;
BEGIN;
SELECT gstore_export('ex') IS NOT NULL AS rewritten;
SELECT gstore_fdw_nitems('ex');
ROLLBACK;
BEGIN;
SELECT gstore_export('ex') AS token \gset
COMMIT;
SELECT gstore_export('ex') = :'token' AS good_after_commit;
PREPARE again AS SELECT gstore_export('ex') = $1 AS same;
EXECUTE again (:'token');
EXECUTE again (:'token');
DEALLOCATE again;

-- ---- Whom: SELECT on the whole table; rewriting is the owner's.
SET ROLE ex_reader;
SELECT gstore_export('ex') <> :'token' AS a_readers_own;
SET ROLE ex_member;
SELECT gstore_export('ex') <> :'token' AS a_members_own;
SET ROLE ex_column;
SELECT count(*) FROM ex;
SELECT gstore_export('ex');
\echo :LAST_ERROR_SQLSTATE
SET ROLE ex_stranger;
SELECT gstore_export('ex');
\echo :LAST_ERROR_SQLSTATE
SELECT gstore_export('ex'::regclass::oid);
RESET ROLE;
DELETE FROM ex WHERE id = 11;
SET ROLE ex_reader;
SELECT gstore_export('ex');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
\set VERBOSITY default
SET ROLE ex_reader;
SELECT gstore_export('ex');
RESET ROLE;
\set VERBOSITY terse
SELECT gstore_fdw_compact('ex');
SET ROLE ex_reader;
SELECT gstore_export('ex') IS NOT NULL AS reader_after_compaction;
RESET ROLE;
REVOKE SELECT ON ex FROM ex_reader;
SET ROLE ex_member;
SELECT gstore_export('ex');
RESET ROLE;
-- EXECUTE on the function can be taken away, as of any.
REVOKE EXECUTE ON FUNCTION gstore_export FROM PUBLIC;
GRANT SELECT ON ex TO ex_reader;
SET ROLE ex_reader;
SELECT gstore_export('ex');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
GRANT EXECUTE ON FUNCTION gstore_export TO PUBLIC;
-- Through a function of its owner's, others may, as the owner intends.
CREATE FUNCTION ex_lend() RETURNS boolean LANGUAGE sql SECURITY DEFINER AS $$ SELECT gstore_export('ex') IS NOT NULL $$;
SET ROLE ex_stranger;
SELECT ex_lend();
RESET ROLE;

-- ---- Handles and tokens of one table do not disturb each other.
SELECT octet_length(gstore_export_ipchandle('ex')), gstore_export('ex') IS NOT NULL AS token;

DROP FUNCTION ex_lend;
DROP FOREIGN TABLE ex, ex_none;
DROP TABLE ex_heap, ex_tokens;
DROP ROLE ex_reader, ex_column, ex_stranger, ex_member;
