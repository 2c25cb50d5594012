-- Bitmaps of deleted rows on the device: who makes them, who reads them, and that rows are the same as in a heap table.
SET max_parallel_workers_per_gather = 0;
SET gstore_fdw.gpu_queries = off; -- query.sql has those
CREATE TABLE d_heap (id int, t text);
CREATE FOREIGN TABLE d (id int, t text) SERVER gstore_fdw;
CREATE FUNCTION bytes_moved(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, FORMAT JSON) ' || query INTO plan;
    RETURN jsonb_path_query_first(plan::jsonb, '$.**."Bytes Moved"')::bigint;
END $$;
-- A statement for both tables; and whether they have the same rows then.
CREATE FUNCTION on_both(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    differ bigint;
BEGIN
    EXECUTE format(statement, 'd_heap');
    EXECUTE format(statement, 'd');
    SELECT count(*) INTO differ FROM d FULL JOIN d_heap h ON d.id = h.id AND d.t = h.t WHERE d.id IS NULL OR h.id IS NULL;
    RETURN CASE WHEN differ = 0 THEN 'same' ELSE differ || ' differ' END;
END $$;

-- Of a small table the directory has them: nothing is moved to count rows.
SELECT on_both('INSERT INTO %s SELECT i, ''row '' || i FROM generate_series(1, 8191) i');
SELECT on_both('DELETE FROM %s WHERE id = 8000');
SELECT bytes_moved('SELECT count(*) FROM d');
-- One row more: a scan has its bits from the device, 1024 bytes. Not where nothing is deleted.
SELECT on_both('INSERT INTO %s VALUES (8192, ''row 8192'')');
SELECT bytes_moved('SELECT count(*) FROM d'), (SELECT count(*) FROM d), (SELECT count(*) FROM d_heap);
SELECT on_both('TRUNCATE %s');
SELECT on_both('INSERT INTO %s SELECT i, ''row '' || i FROM generate_series(1, 100000) i');
SELECT bytes_moved('SELECT count(*) FROM d');
SELECT on_both('DELETE FROM %s WHERE id BETWEEN 65530 AND 65550 OR id %% 1000 = 0 OR id > 99990');
SELECT bytes_moved('SELECT count(*) FROM d');
-- Rows by their ctid take what is there.
SELECT bytes_moved('SELECT id FROM d WHERE ctid = ''(0,8)''') < 2000 AS stretch;
SELECT count(*), min(id), max(id) FROM d WHERE ctid IN (SELECT ctid FROM d WHERE id IN (7, 64, 65529, 65551, 99990));
SELECT on_both('DELETE FROM %s WHERE id = 7');

-- Changes of this transaction are on top, and go with it.
BEGIN;
SELECT on_both('DELETE FROM %s WHERE id %% 3 = 0 AND id > 60000');
SELECT on_both('UPDATE %s SET t = ''new '' || id WHERE id BETWEEN 10 AND 20');
SAVEPOINT s;
SELECT on_both('DELETE FROM %s WHERE id < 50000');
DECLARE c CURSOR FOR SELECT count(*) FROM d;
SELECT on_both('DELETE FROM %s WHERE id < 60000');
FETCH c;
ROLLBACK TO s;
SELECT on_both('UPDATE %s SET t = ''newer '' || id WHERE id BETWEEN 15 AND 30');
SELECT on_both('INSERT INTO %s SELECT i, ''row '' || i FROM generate_series(100001, 110000) i');
SELECT on_both('DELETE FROM %s WHERE id %% 7 = 0');
ROLLBACK;
SELECT on_both('DELETE FROM %s WHERE id = 8');
BEGIN;
SELECT on_both('DELETE FROM %s WHERE id %% 5 = 0');
SAVEPOINT s;
SELECT on_both('TRUNCATE %s');
SELECT on_both('INSERT INTO %s SELECT i, ''row '' || i FROM generate_series(1, 9000) i');
SELECT on_both('DELETE FROM %s WHERE id %% 5 = 1');
ROLLBACK TO s;
SELECT on_both('DELETE FROM %s WHERE id %% 5 = 1');
COMMIT;
SELECT on_both('UPDATE %s SET t = t || ''!'' WHERE id %% 100 = 3');

-- With several processes: all have the bits from the device, and the leader's own deletions.
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
EXPLAIN (COSTS OFF) SELECT count(*) FROM d WHERE length(t) > 3;
SELECT count(*), sum(id) FROM d WHERE length(t) > 3;
SELECT count(*), sum(id) FROM d_heap WHERE length(t) > 3;
BEGIN;
DELETE FROM d WHERE id BETWEEN 20000 AND 40000;
DELETE FROM d_heap WHERE id BETWEEN 20000 AND 40000;
SELECT count(*), sum(id) FROM d WHERE length(t) > 3;
SELECT count(*), sum(id) FROM d_heap WHERE length(t) > 3;
ROLLBACK;
SET max_parallel_workers_per_gather = 0;

-- What is written anew has no deleted rows, nor has what a token leads to.
SELECT gstore_export_ipchandle('d') IS NOT NULL AS copied;
SELECT gstore_fdw_compact('d') > 0 AS compacted;
SELECT on_both('SELECT count(*) FROM %s');
SELECT bytes_moved('SELECT count(*) FROM d');
SELECT on_both('DELETE FROM %s WHERE id %% 2 = 0');
SELECT bytes_moved('SELECT count(*) FROM d') > 0 AS again;
SELECT on_both('ALTER TABLE %s ADD COLUMN u int DEFAULT 7');
SELECT on_both('DELETE FROM %s WHERE u = 7 AND id %% 11 = 0');

-- Places are used again: many versions later a scan still finds one, as soon as the worker has forgotten old versions.
TRUNCATE d;
INSERT INTO d SELECT i, NULL FROM generate_series(1, 500000) i;
DO $$
BEGIN
    FOR i IN 1..100 LOOP
        DELETE FROM d WHERE id = i;
        PERFORM count(*) FROM d;
        COMMIT;
    END LOOP;
END $$;
DO $$
BEGIN
    FOR i IN 101..300 LOOP
        EXIT WHEN bytes_moved('SELECT count(*) FROM d') = 62500;
        PERFORM pg_sleep(0.1);
        DELETE FROM d WHERE id = i;
        COMMIT;
    END LOOP;
END $$;
SELECT bytes_moved('SELECT count(*) FROM d');
DROP FUNCTION on_both, bytes_moved;
DROP TABLE d_heap;
DROP FOREIGN TABLE d;
