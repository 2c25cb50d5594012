-- SELECT ... FOR UPDATE and its weaker forms lock the table. What sessions see of each other is in
-- isolation/specs/locking.spec.
CREATE FOREIGN TABLE l (id int, v text) SERVER gstore_fdw;
INSERT INTO l SELECT i, 'v' || i FROM generate_series(1, 5) i;
CREATE FOREIGN TABLE l_other (id int) SERVER gstore_fdw;
INSERT INTO l_other VALUES (1), (2);
-- Tables that this transaction has locked as a writer does.
CREATE VIEW locks AS SELECT relation::regclass::text COLLATE "C" AS locked FROM pg_locks
    WHERE pid = pg_backend_pid() AND mode = 'ShareUpdateExclusiveLock' AND relation >= 16384 ORDER BY 1;

-- Every form takes the lock and keeps it; a plain SELECT does not; nor does one that reads no row.
BEGIN; SELECT id FROM l WHERE id = 1 FOR UPDATE; SELECT * FROM locks; COMMIT;
BEGIN; SELECT id FROM l WHERE id = 1 FOR NO KEY UPDATE; SELECT * FROM locks; COMMIT;
BEGIN; SELECT id FROM l WHERE id = 1 FOR SHARE; SELECT * FROM locks; COMMIT;
BEGIN; SELECT id FROM l WHERE id = 1 FOR KEY SHARE NOWAIT; SELECT * FROM locks; COMMIT;
BEGIN; SELECT id FROM l WHERE id = 1; SELECT * FROM locks; COMMIT;
BEGIN; SELECT id FROM l WHERE id = 99 FOR UPDATE; SELECT * FROM locks; COMMIT;
BEGIN; SELECT id FROM l LIMIT 0 FOR UPDATE; SELECT * FROM locks; COMMIT;
BEGIN; SELECT l.id FROM l JOIN l_other USING (id) ORDER BY 1 FOR UPDATE OF l; SELECT * FROM locks; COMMIT;
BEGIN; SELECT l.id FROM l JOIN l_other USING (id) ORDER BY 1 FOR UPDATE; SELECT * FROM locks; COMMIT;
BEGIN; EXPLAIN (COSTS OFF) SELECT id FROM l FOR UPDATE; SELECT * FROM locks; COMMIT;
BEGIN; DO $$ BEGIN EXECUTE 'EXPLAIN ANALYZE SELECT id FROM l WHERE id < 3 FOR UPDATE'; END $$; SELECT * FROM locks; COMMIT;
-- Other tables of UPDATE, DELETE and INSERT are read, and not locked.
BEGIN; UPDATE l SET v = 'x' FROM l_other o WHERE o.id = l.id; SELECT * FROM locks; ROLLBACK;
BEGIN; DELETE FROM l_other USING l WHERE l_other.id = l.id; SELECT * FROM locks; ROLLBACK;
-- A prepared statement, and a transaction that is prepared: it has changed nothing.
PREPARE lock_one(int) AS SELECT v FROM l WHERE id = $1 FOR UPDATE;
BEGIN; EXECUTE lock_one(2); SELECT * FROM locks; PREPARE TRANSACTION 'locks';
SELECT id FROM l FOR SHARE NOWAIT;
COMMIT PREPARED 'locks';
SELECT id FROM l ORDER BY id FOR SHARE NOWAIT;

-- Refused, as there is nothing to skip; as everywhere: in a read-only transaction, without the right to UPDATE, in a
-- function that is not volatile, of an aggregate.
SELECT id FROM l FOR UPDATE SKIP LOCKED;
EXPLAIN (COSTS OFF) SELECT id FROM l FOR SHARE SKIP LOCKED;
SELECT l.id FROM l JOIN l_other USING (id) FOR UPDATE OF l_other SKIP LOCKED;
UPDATE l SET v = 'x' WHERE ctid = (SELECT ctid FROM l LIMIT 1 FOR UPDATE SKIP LOCKED);
BEGIN READ ONLY; SELECT id FROM l FOR SHARE; ROLLBACK;
CREATE ROLE l_reader;
GRANT SELECT ON l TO l_reader;
SET ROLE l_reader;
SELECT count(*) FROM l;
SELECT id FROM l FOR KEY SHARE;
RESET ROLE;
GRANT UPDATE (v) ON l TO l_reader;
SET ROLE l_reader;
SELECT id FROM l WHERE id = 1 FOR UPDATE;
RESET ROLE;
DROP OWNED BY l_reader;
DROP ROLE l_reader;
CREATE FUNCTION l_stable() RETURNS void LANGUAGE plpgsql STABLE AS 'BEGIN PERFORM id FROM l FOR UPDATE; END';
SELECT l_stable();
DROP FUNCTION l_stable;
SELECT count(*) FROM l FOR UPDATE;
-- No table in GPU memory can be locked by name, whatever the mode, but through a parent.
BEGIN; LOCK TABLE l IN SHARE UPDATE EXCLUSIVE MODE; ROLLBACK;
-- Neither are there samples; WHERE CURRENT OF is in dml.sql.
SELECT * FROM l TABLESAMPLE SYSTEM (50);

-- No plan with several processes, where a plain SELECT has one.
CREATE FOREIGN TABLE l_big (id int, v int) SERVER gstore_fdw;
INSERT INTO l_big SELECT i, 0 FROM generate_series(1, 200000) i;
CREATE VIEW l_view AS SELECT * FROM l_big WHERE id % 100000 = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET gstore_fdw.gpu_filters = off; -- a real GPU costs less than several processes
EXPLAIN (COSTS OFF) SELECT id FROM l_view WHERE v = 0;
EXPLAIN (COSTS OFF) SELECT id FROM l_view WHERE v = 0 FOR UPDATE;
RESET gstore_fdw.gpu_filters;
EXPLAIN (COSTS OFF) SELECT count(*) FROM (SELECT id FROM l_view FOR UPDATE) s;
BEGIN; SELECT count(*) FROM (SELECT id FROM l_view FOR UPDATE) s; SELECT * FROM locks; COMMIT;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;

-- A row that is locked keeps its ctid: it can be found by it until the transaction ends.
BEGIN;
SELECT ctid FROM l_big WHERE id = 77 FOR UPDATE \gset
UPDATE l_big SET v = 77 WHERE ctid = :'ctid' RETURNING *;
SELECT id FROM l_big WHERE ctid = :'ctid';
COMMIT;
BEGIN;
DECLARE c CURSOR FOR SELECT id, ctid FROM l_big WHERE id > 5 FOR UPDATE;
FETCH c;
SELECT gstore_export('l_big');
ROLLBACK;

DROP VIEW locks, l_view;
DROP FOREIGN TABLE l, l_other, l_big;
