-- Tables in GPU memory behind postgres_fdw, which locks rows by FOR UPDATE and changes them by their ctids; and beside
-- tables of it, as children of one parent. Where there is no postgres_fdw, remote_1.out is what is expected.
SELECT count(*) = 0 AS missing FROM pg_available_extensions WHERE name = 'postgres_fdw' \gset
\if :missing
    \echo there is no postgres_fdw
    \quit
\endif
CREATE EXTENSION postgres_fdw;
DO $$ BEGIN EXECUTE format('CREATE SERVER loopback FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %L, port %L, dbname %L)',
    split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_database()); END $$;
DO $$ BEGIN EXECUTE format('CREATE USER MAPPING FOR CURRENT_USER SERVER loopback OPTIONS (user %L)', current_user); END $$;
-- postgres_fdw sends nothing of this kind to the other side.
CREATE FUNCTION volatile_int(int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN $1; END';

CREATE FOREIGN TABLE r_store (id int, v text) SERVER gstore_fdw;
INSERT INTO r_store SELECT i, 'v' || i FROM generate_series(1, 6) i;
CREATE FOREIGN TABLE r (id int, v text) SERVER loopback OPTIONS (table_name 'r_store');
EXPLAIN (VERBOSE, COSTS OFF) UPDATE r SET v = v || volatile_int(id) WHERE id > 3;
-- Locked for as long as the transaction here lasts.
BEGIN;
SELECT * FROM r WHERE id = 1 FOR UPDATE;
SELECT id FROM r_store FOR SHARE NOWAIT;
ROLLBACK;
SELECT id FROM r_store ORDER BY id FOR SHARE NOWAIT;
-- Changed by ctid, and pushed down whole.
UPDATE r SET v = v || volatile_int(id) WHERE id > 3 RETURNING *;
UPDATE r SET v = upper(v) WHERE id < 3 RETURNING *;
DELETE FROM r WHERE id = volatile_int(4) RETURNING *;
DELETE FROM r WHERE id = 5 RETURNING *;
SELECT * FROM r_store ORDER BY id;

-- A parent with children of all kinds.
CREATE TABLE r_parent (id int, v text);
CREATE FOREIGN TABLE r_one () INHERITS (r_parent) SERVER gstore_fdw;
CREATE FOREIGN TABLE r_two (v text, id int) SERVER gstore_fdw;
ALTER FOREIGN TABLE r_two INHERIT r_parent;
CREATE TABLE r_heap () INHERITS (r_parent);
ALTER FOREIGN TABLE r INHERIT r_parent;
INSERT INTO r_parent VALUES (1, 'parent'), (2, 'parent'), (3, 'parent');
INSERT INTO r_one VALUES (1, 'one'), (2, 'one'), (3, 'one');
INSERT INTO r_two VALUES ('two', 1), ('two', 2), ('two', 3);
INSERT INTO r_heap VALUES (1, 'heap'), (2, 'heap'), (3, 'heap');
DELETE FROM r_parent WHERE id = 1 RETURNING tableoid::regclass, *, r_parent;
DELETE FROM r_parent WHERE id = volatile_int(2) RETURNING tableoid::regclass, *, r_parent;
UPDATE r_parent SET v = v || '!' WHERE id = volatile_int(3) RETURNING tableoid::regclass, *, r_parent;
BEGIN;
SELECT tableoid::regclass, * FROM r_parent WHERE id = 3 FOR UPDATE;
SELECT relation::regclass::text COLLATE "C" AS locked, pid = pg_backend_pid() AS here FROM pg_locks
    WHERE mode = 'ShareUpdateExclusiveLock' AND relation::regclass::text LIKE 'r\_%' ORDER BY 1;
ROLLBACK;

\set VERBOSITY terse
DROP TABLE r_parent CASCADE;
DROP FOREIGN TABLE r_store;
DROP SERVER loopback CASCADE;
DROP EXTENSION postgres_fdw;
DROP FUNCTION volatile_int;
