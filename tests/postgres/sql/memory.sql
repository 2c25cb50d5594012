-- What tables take: of the copy behind a CUDA handle, and of the GPU.
\set VERBOSITY terse
SET client_min_messages = warning;

CREATE FUNCTION copied(t reggstore) RETURNS TABLE (length_in_head bigint, bytes_imported bigint, rawsize bigint)
LANGUAGE plpgsql AS $$
DECLARE object oid; bytes bytea;
BEGIN
    object := lo_import_gpu(0, gstore_export_ipchandle(t), 0, gstore_fdw_rawsize(t));
    bytes := lo_get(object);
    PERFORM lo_unlink(object);
    length_in_head := 0;
    FOR i IN REVERSE 6 .. 0 LOOP -- little-endian
        length_in_head := length_in_head * 256 + get_byte(bytes, i);
    END LOOP;
    RETURN QUERY SELECT length_in_head, octet_length(bytes)::bigint, gstore_fdw_rawsize(t);
END $$;

-- ---- rawsize_is_the_length_of_the_copy: all of it is imported
CREATE FOREIGN TABLE m_dense (id int, f float8, t text) SERVER gstore_fdw;
CREATE FOREIGN TABLE m_arrow (id int, f float8, t text, b boolean, l int[]) SERVER gstore_fdw OPTIONS (format 'arrow');
SELECT gstore_fdw_rawsize('m_dense') AS empty, gstore_fdw_rawsize('m_arrow') AS empty_arrow;
INSERT INTO m_dense SELECT i, CASE WHEN i % 3 > 0 THEN i END, repeat('x', i % 50) FROM generate_series(1, 1001) i;
INSERT INTO m_arrow SELECT id, f, t, f > 500, CASE WHEN id % 7 > 0 THEN ARRAY[id, NULL] END FROM m_dense;
SELECT t, length_in_head = bytes_imported AS whole, bytes_imported = c.rawsize AS by_function, v.rawsize = c.rawsize AS by_view
    FROM unnest('{m_dense,m_arrow}'::text[]) t, copied(t::regclass::reggstore) c, gstore_fdw_chunk_info v
    WHERE v.table_oid = t::regclass ORDER BY t;
-- with columns that were added and dropped
ALTER FOREIGN TABLE m_dense ADD COLUMN more int, DROP COLUMN f;
ALTER FOREIGN TABLE m_arrow ADD COLUMN more int, DROP COLUMN f;
SELECT t, length_in_head = bytes_imported AS whole, bytes_imported = c.rawsize AS by_function, v.rawsize = c.rawsize AS by_view
    FROM unnest('{m_dense,m_arrow}'::text[]) t, copied(t::regclass::reggstore) c, gstore_fdw_chunk_info v
    WHERE v.table_oid = t::regclass ORDER BY t;
-- with deleted rows, whose texts the view does not look at
DELETE FROM m_dense WHERE id % 4 = 0;
DELETE FROM m_arrow WHERE id % 4 = 0;
SELECT t, length_in_head = bytes_imported AS whole, bytes_imported = c.rawsize AS by_function, v.rawsize > c.rawsize AS at_most
    FROM unnest('{m_dense,m_arrow}'::text[]) t, copied(t::regclass::reggstore) c, gstore_fdw_chunk_info v
    WHERE v.table_oid = t::regclass AND v.xmax = '0'::xid ORDER BY t;

-- ---- committed_memory_adds_up_to_the_keepers: the newest revision of a store has it
CREATE FUNCTION adds_up() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE ours bigint; keepers bigint;
BEGIN
    PERFORM pg_sleep(1.5); -- both are as of the last second
    FOR i IN 1 .. 600 LOOP
        SELECT sum(committed) INTO ours FROM gstore_fdw_chunk_info;
        SELECT sum(device_resident + device_on_host) INTO keepers FROM gstore_fdw_keeper_info;
        EXIT WHEN ours = keepers;
        PERFORM pg_sleep(0.1);
    END LOOP;
    RETURN ours = keepers;
END $$;
SELECT adds_up();
SELECT gstore_export('m_dense') IS NOT NULL AS token; -- which has memory of its own
SELECT adds_up();
INSERT INTO m_dense SELECT i, repeat('x', 100) FROM generate_series(1, 50000) i;
SELECT adds_up();
SELECT table_oid::regclass, count(*) AS stores, count(committed) AS measured, max(committed) >= max(rawsize) AS all_of_it
    FROM gstore_fdw_chunk_info WHERE table_oid IN ('m_dense'::regclass, 'm_arrow'::regclass) AND xmax = '0'::xid
    GROUP BY table_oid ORDER BY 1;
DROP FOREIGN TABLE m_dense, m_arrow;
DROP FUNCTION copied, adds_up;
