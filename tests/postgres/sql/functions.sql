-- The SQL functions and views: what they return, whom they refuse, what they do with bad input.
\set VERBOSITY terse
CREATE FOREIGN TABLE f (a int, b text, c float8, d smallint) SERVER gstore_fdw;
CREATE TABLE heap (a int);
CREATE FOREIGN DATA WRAPPER nobody;
CREATE SERVER nobody FOREIGN DATA WRAPPER nobody;
CREATE FOREIGN TABLE other (a int) SERVER nobody;
CREATE ROLE f_reader;
CREATE ROLE f_stranger;
GRANT SELECT ON f TO f_reader;

-- reggstore: by name, by number, and back.
SELECT 'f'::reggstore, 'public.f'::reggstore, 'f'::regclass::oid::reggstore, 'f'::regclass::reggstore;
SELECT 'f'::reggstore::oid = 'f'::regclass::oid AS oid, 'f'::reggstore::int = 'f'::regclass::int AS int,
    'f'::reggstore::bigint = 'f'::regclass::bigint AS bigint, 'f'::reggstore::regclass;
SELECT 7::smallint::reggstore, 8::int::reggstore, 9::bigint::reggstore, 10::oid::reggstore, '-'::reggstore;
SELECT provolatile FROM pg_proc WHERE proname ~ '^reggstore_(in|out|recv|send)$' GROUP BY 1;
SELECT 'heap'::reggstore;
SELECT 'other'::reggstore;
SELECT 'pg_class'::reggstore;
SELECT 'missing'::reggstore;
SELECT (1::bigint << 40)::reggstore;
CREATE TABLE keeps (r reggstore);
INSERT INTO keeps VALUES ('f');
COPY keeps TO STDOUT;
SELECT reggstore_send(r) = oidsend(r) AS send FROM keeps;
SELECT 'f' IN (SELECT r::text FROM keeps) AS text, count(*) FROM keeps WHERE r = 'f'::regclass;
-- A table that is gone leaves a number, which can be printed, stored and read again.
CREATE FOREIGN TABLE f_gone (a int) SERVER gstore_fdw;
INSERT INTO keeps VALUES ('f_gone');
DROP FOREIGN TABLE f_gone;
SELECT r::text ~ '^[0-9]+$' AS number, r::text::reggstore = r AS again FROM keeps WHERE r <> 'f'::reggstore;
SELECT gstore_fdw_nitems(99999999);
SELECT gstore_fdw_nitems(0);

-- What there is of a table.
SELECT gstore_fdw_format('f'), gstore_fdw_nitems('f'), gstore_fdw_nattrs('f'), gstore_fdw_rawsize('f'),
    gstore_export_ipchandle('f');
INSERT INTO f VALUES (1, 'one', 1.5, NULL), (2, NULL, 2.5, 4), (3, 'three', NULL, 9);
SELECT gstore_fdw_format('f'), gstore_fdw_nitems('f'), gstore_fdw_nattrs('f'),
    gstore_fdw_rawsize('f') > 3 * (4 + 4 + 8 + 2) AS rawsize;
SELECT pg_typeof(gstore_fdw_format('f')), pg_typeof(gstore_fdw_nitems('f')), pg_typeof(gstore_fdw_nattrs('f')),
    pg_typeof(gstore_fdw_rawsize('f')), pg_typeof(gstore_export_ipchandle('f'));
SELECT gstore_fdw_nitems('f'::regclass::oid), gstore_fdw_nitems(NULL) IS NULL AS strict;
SELECT gstore_fdw_nitems('heap'::regclass::oid);
SELECT gstore_fdw_format('other'::regclass::oid);
SELECT gstore_fdw_rawsize('heap'::regclass::oid);
SELECT gstore_fdw_nattrs('heap'::regclass::oid);
SELECT gstore_export_ipchandle('heap'::regclass::oid);
SELECT gstore_fdw_compact('heap'::regclass::oid);
CREATE TABLE split (a int) PARTITION BY LIST (a);
DO $$
DECLARE
    hint text;
BEGIN
    PERFORM gstore_fdw_nitems('split'::regclass::oid);
EXCEPTION WHEN wrong_object_type THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    RAISE NOTICE '% %', SQLERRM, hint;
END
$$;
DROP TABLE split;
-- A revision is what was committed; the statement's snapshot decides which.
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO f VALUES (4);
DELETE FROM f WHERE a = 1;
SELECT gstore_fdw_nitems('f');
ROLLBACK;

-- Privileges: as for reading the table.
SET ROLE f_reader;
SELECT gstore_fdw_nitems('f'), octet_length(gstore_export_ipchandle('f'));
SELECT gstore_fdw_compact('f');
SET ROLE f_stranger;
SELECT gstore_fdw_format('f');
SELECT gstore_fdw_nitems('f');
SELECT gstore_fdw_nattrs('f');
SELECT gstore_fdw_rawsize('f');
SELECT gstore_export_ipchandle('f');
SELECT lo_import_gpu(0, '', 0, 1);
SELECT lo_export_gpu(1, 0, '', 0, 1);
RESET ROLE;

-- Revisions.
SELECT database_oid = (SELECT oid FROM pg_database WHERE datname = current_database()) AS database, revision > 0 AS revision,
    xmin <> '0'::xid AS xmin, xmax, pinning, format, rawsize = gstore_fdw_rawsize('f') AS rawsize, nitems
    FROM gstore_fdw_chunk_info WHERE table_oid = 'f'::regclass ORDER BY gstore_fdw_chunk_info.revision DESC LIMIT 1;
SET ROLE f_reader;
SELECT count(*) > 0 AS reader FROM gstore_fdw_chunk_info WHERE table_oid = 'f'::regclass;
SET ROLE f_stranger;
SELECT count(*) AS stranger FROM gstore_fdw_chunk_info WHERE table_oid = 'f'::regclass;
RESET ROLE;
GRANT pg_read_all_stats TO f_stranger;
SET ROLE f_stranger;
SELECT count(*) > 0 AS monitor FROM gstore_fdw_chunk_info WHERE table_oid = 'f'::regclass;
RESET ROLE;
REVOKE pg_read_all_stats FROM f_stranger;
SET ROLE f_stranger;
SELECT socket IS NULL AS hidden FROM gstore_fdw_keeper_info LIMIT 1;
RESET ROLE;
SELECT attname, atttypid::regtype FROM pg_attribute WHERE attrelid = 'gstore_fdw_chunk_info'::regclass ORDER BY attnum;

-- The keeper.
SELECT ready, epoch > 0 AS epoch, pid > 0 AS pid, socket <> '' AS socket, problem, host_budget > 0 AS host_budget,
    windows > 0 AS windows, windows_in_use BETWEEN 0 AND windows AS in_use, device, device_name <> '' AS name,
    device_budget > 0 AS device_budget
    FROM gstore_fdw_keeper_info WHERE device = 0;
-- It is a process of the server's like others: pg_stat_activity shows what it does and waits for. It may just be at work.
CREATE FUNCTION keeper_rests() RETURNS SETOF pg_stat_activity LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..200 LOOP
        RETURN QUERY SELECT * FROM pg_stat_activity WHERE backend_type = 'gstore_fdw keeper' AND state = 'idle' AND wait_event IS NOT NULL;
        EXIT WHEN FOUND;
        PERFORM pg_stat_clear_snapshot(), pg_sleep(0.1);
    END LOOP;
END $$;
SELECT pid = (SELECT DISTINCT pid FROM gstore_fdw_keeper_info) AS pid, datname, query, wait_event_type,
    backend_start <= state_change AS times FROM keeper_rests();
SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'gstore_fdw keeper';
DROP FUNCTION keeper_rests;
-- session_opens_no_gpu_and_copies_no_table: the driver is in the keeper's memory alone; of a table a session has a batch.
SELECT pg_read_file('/proc/self/maps') ~ 'libcuda|softgpu' AS session,
    (SELECT pg_read_file('/proc/' || pid || '/maps') ~ 'libcuda|softgpu' FROM gstore_fdw_keeper_info LIMIT 1) AS keeper;
CREATE FOREIGN TABLE f_large (a int, b text) SERVER gstore_fdw;
INSERT INTO f_large SELECT i, repeat('x', 1000) FROM generate_series(1, 50000) i;
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM f_large;
MOVE 1 IN c;
SELECT gstore_fdw_rawsize('f_large') > 50000000 AS table_bytes, sum(total_bytes) < 16000000 AS session_bytes FROM pg_backend_memory_contexts;
COMMIT;
DROP FOREIGN TABLE f_large;

-- Progress: a trigger that fires in the middle of a load sees it, and nothing is left of it.
CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.a % 40000 = 0 THEN
        RAISE NOTICE '% % % rows: % bytes: %', (SELECT datname = current_database() FROM gstore_fdw_progress WHERE pid = pg_backend_pid()),
            (SELECT relid::regclass FROM gstore_fdw_progress WHERE pid = pg_backend_pid()),
            (SELECT command FROM gstore_fdw_progress WHERE pid = pg_backend_pid()),
            (SELECT rows_written > 10000 AND rows_written <= NEW.a FROM gstore_fdw_progress WHERE pid = pg_backend_pid()),
            (SELECT bytes_written >= 18 * rows_written FROM gstore_fdw_progress WHERE pid = pg_backend_pid());
    END IF;
    IF NEW.d < 0 THEN
        RAISE EXCEPTION 'enough';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER look BEFORE INSERT ON f FOR EACH ROW EXECUTE FUNCTION look();
BEGIN;
INSERT INTO f SELECT i, 'row', i, 1 FROM generate_series(1, 40000) i;
SELECT count(*) FROM gstore_fdw_progress WHERE pid = pg_backend_pid();
SAVEPOINT s;
INSERT INTO f SELECT i, 'row', i, 4 - i FROM generate_series(1, 10) i;
ROLLBACK TO s;
SELECT count(*) FROM gstore_fdw_progress WHERE pid = pg_backend_pid();
COMMIT;
INSERT INTO f VALUES (1, NULL, NULL, -1);
SELECT count(*) FROM gstore_fdw_progress WHERE pid = pg_backend_pid();
COPY f FROM STDIN;
40000	copied	1	1
\.
SELECT count(*) FROM gstore_fdw_progress WHERE pid = pg_backend_pid();
CREATE FUNCTION fails_inside() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO f VALUES (1, NULL, NULL, -1);
    RETURN 0;
EXCEPTION WHEN raise_exception THEN
    RETURN (SELECT count(*) FROM gstore_fdw_progress WHERE pid = pg_backend_pid());
END $$;
SELECT fails_inside();
DROP TRIGGER look ON f;

-- Compaction.
SELECT gstore_fdw_nitems('f');
DELETE FROM f WHERE a > 39990;
SELECT gstore_fdw_compact('f'), gstore_fdw_compact('f');
SELECT count(*), sum(a) FROM f;
DELETE FROM f WHERE a > 3;

-- Copies under a handle: made once for a revision; gone when the last revision that has one is.
SELECT octet_length(gstore_export_ipchandle('f')), gstore_export_ipchandle('f') = gstore_export_ipchandle('f') AS same;
CREATE FUNCTION nitems_of(handle bytea) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    PERFORM lo_import_gpu(0, handle, 0, 56, 424240);
    RETURN get_byte(lo_get(424240), 8);
END $$;
SELECT nitems_of(gstore_export_ipchandle('f'));
INSERT INTO f VALUES (5);
SELECT nitems_of(gstore_export_ipchandle('f'));
SELECT lo_unlink(424240);
-- The figures are those of the last second.
CREATE FUNCTION copies_become(wanted boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..200 LOOP
        IF wanted = (SELECT sum(device_copies) > 0 FROM gstore_fdw_keeper_info) THEN
            RETURN true;
        END IF;
        PERFORM pg_sleep(0.1);
    END LOOP;
    RETURN false;
END $$;

-- Large objects: what a handle's memory has.
TRUNCATE f;
INSERT INTO f SELECT i, 'row', i, 1 FROM generate_series(1, 100) i;
SELECT gstore_export_ipchandle('f') AS handle \gset
SELECT copies_become(true);
SELECT lo_import_gpu(0, :'handle', 0, 56, 424241) AS lo \gset
-- From the head: nitems, version, ncols, format and flags.
SELECT get_byte(lo_get(:lo), 8) AS nitems, get_byte(lo_get(:lo), 16) AS version, get_byte(lo_get(:lo), 20) AS ncols,
    chr(get_byte(lo_get(:lo), 24)) AS format, get_byte(lo_get(:lo), 26) AS has_attnames, octet_length(lo_get(:lo));
-- The values of column a, at the head's columns[0].va_offset.
SELECT lo_import_gpu(0, :'handle', 0, 80, :lo) = :lo AS same_object;
SELECT (get_byte(lo_get(:lo), 72) + 256 * get_byte(lo_get(:lo), 73)) AS va_offset \gset
SELECT lo_import_gpu(0, :'handle', :va_offset, 12, 0) AS values \gset
SELECT lo_get(:values);
-- An object that is there is replaced, its owner and permissions stay.
SELECT lo_from_bytea(424242, repeat('x', 5000)::bytea);
GRANT SELECT ON LARGE OBJECT 424242 TO f_reader;
SELECT lo_import_gpu(0, :'handle', :va_offset + 4, 8, 424242);
SELECT lo_get(424242), lomowner::regrole = current_user::regrole AS owner, lomacl::text LIKE '%f_reader=r/%' AS acl
    FROM pg_largeobject_metadata WHERE oid = 424242;
SELECT lo_import_gpu(0, :'handle', 0, 0, 424242);
SELECT octet_length(lo_get(424242));
-- Bad input: nothing is changed by it. How many devices there are, and what they round to, differs.
\set VERBOSITY sqlstate
SELECT lo_import_gpu(0, :'handle', 0, 1000000000, 424243);
SELECT lo_import_gpu(0, :'handle', 1000000000, 1, 424243);
SELECT lo_import_gpu(0, :'handle', -1, 1, 424243);
SELECT lo_import_gpu(0, :'handle', 0, -1, 424243);
SELECT lo_import_gpu(0, :'handle', 9223372036854775807, 1, 424243);
SELECT lo_import_gpu(0, :'handle', 1, 9223372036854775807, 424243);
SELECT lo_import_gpu(1, :'handle', 0, 1, 424243);
SELECT lo_import_gpu(15, :'handle', 0, 1, 424243);
SELECT lo_import_gpu(-1, :'handle', 0, 1, 424243);
SELECT lo_import_gpu(0, '', 0, 1, 424243);
SELECT lo_import_gpu(0, :'handle'::bytea || '\x00', 0, 1, 424243);
SELECT lo_import_gpu(0, decode(repeat('5a', 64), 'hex'), 0, 1, 424243);
SELECT lo_import_gpu(0, decode(repeat('00', 64), 'hex'), 0, 1, 424243);
\set VERBOSITY terse
SELECT count(*) FROM pg_largeobject_metadata WHERE oid = 424243;
SELECT lo_import_gpu(0, NULL, 0, 1) IS NULL AS strict;
BEGIN READ ONLY;
SELECT lo_import_gpu(0, :'handle', 0, 1);
ROLLBACK;
SELECT lo_export_gpu(424243, 0, :'handle', 0, 1);
-- A table's copy is not written.
SELECT lo_export_gpu(:lo, 0, :'handle', 0, 1);
-- Permissions of the object count.
GRANT EXECUTE ON FUNCTION lo_import_gpu, lo_export_gpu TO f_reader;
SET ROLE f_reader;
SELECT lo_import_gpu(0, :'handle', 0, 1, 424242);
SELECT lo_export_gpu(:lo, 0, :'handle', 0, 1);
RESET ROLE;
SELECT lo_unlink(:lo), lo_unlink(:values), lo_unlink(424242);
-- All copies go with the table.
DROP FOREIGN TABLE f;
SELECT copies_become(false);

DROP FOREIGN TABLE other;
DROP SERVER nobody;
DROP FOREIGN DATA WRAPPER nobody;
DROP TABLE heap, keeps;
DROP FUNCTION look, fails_inside, nitems_of, copies_become;
DROP OWNED BY f_reader;
DROP ROLE f_reader, f_stranger;
