-- Copies under CUDA handles, and their length, when the table's definition changes.
\set VERBOSITY terse
SET client_min_messages = warning;

CREATE FUNCTION bytes_of(handle bytea, length bigint) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE object oid; bytes bytea;
BEGIN
    object := lo_import_gpu(0, handle, 0, length);
    bytes := lo_get(object);
    PERFORM lo_unlink(object);
    RETURN bytes;
END $$;
-- Whether the copy that the handle's length is of has a text in it.
CREATE FUNCTION copy_has(t reggstore, what text) RETURNS boolean LANGUAGE sql AS
    $$ SELECT position(what::bytea IN bytes_of(gstore_export_ipchandle(t), gstore_fdw_rawsize(t))) > 0 $$;
CREATE FUNCTION view_size(t regclass) RETURNS bigint LANGUAGE sql AS
    $$ SELECT rawsize FROM gstore_fdw_chunk_info WHERE table_oid = t AND xmax = '0'::xid $$;
CREATE ROLE cp_late;
CREATE FOREIGN TABLE cp (i int, secret text, k int) SERVER gstore_fdw;
CREATE FOREIGN TABLE cp_arrow (i int, secret text, k int) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO cp SELECT i, 'classified' || i, i FROM generate_series(1, 100) i;
INSERT INTO cp_arrow SELECT * FROM cp;

-- ---- dropped_columns_values_are_in_no_copy: of a table whose rows were copied before
SELECT gstore_export_ipchandle('cp') AS old, gstore_export_ipchandle('cp_arrow') AS old_arrow,
    gstore_fdw_rawsize('cp') AS size, gstore_fdw_rawsize('cp_arrow') AS size_arrow \gset
SELECT copy_has('cp', 'classified5') AS before, copy_has('cp_arrow', 'classified5') AS before_arrow;
BEGIN;
ALTER FOREIGN TABLE cp DROP COLUMN secret;
ALTER FOREIGN TABLE cp_arrow DROP COLUMN secret;
COMMIT;
GRANT SELECT ON cp, cp_arrow TO cp_late;
SELECT gstore_fdw_rawsize('cp') < :size AS smaller, gstore_fdw_rawsize('cp_arrow') < :size_arrow AS smaller_arrow,
    view_size('cp') = gstore_fdw_rawsize('cp') AS by_view, view_size('cp_arrow') = gstore_fdw_rawsize('cp_arrow') AS by_view_arrow;
SET ROLE cp_late;
SELECT gstore_export_ipchandle('cp') = :'old' AS same, gstore_export_ipchandle('cp_arrow') = :'old_arrow' AS same_arrow;
RESET ROLE;
SELECT copy_has('cp', 'classified5') AS after, copy_has('cp_arrow', 'classified5') AS after_arrow;
SELECT gstore_export_ipchandle('cp') = gstore_export_ipchandle('cp') AS made_once, view_size('cp') = gstore_fdw_rawsize('cp') AS by_view;

-- ---- names_and_columns_of_a_copy_are_the_tables
ALTER FOREIGN TABLE cp RENAME COLUMN k TO newly_named;
SELECT copy_has('cp', 'newly_named');
ALTER FOREIGN TABLE cp ADD COLUMN newly_added int;
SELECT copy_has('cp', 'newly_added');
ALTER FOREIGN TABLE cp_arrow ADD COLUMN newly_added int;
SELECT copy_has('cp_arrow', 'newly_added');
-- What a copy does not show leaves it.
SELECT gstore_export_ipchandle('cp') AS old \gset
ALTER FOREIGN TABLE cp ALTER COLUMN i SET DEFAULT 5;
ALTER FOREIGN TABLE cp RENAME TO cp_renamed;
SELECT gstore_export_ipchandle('cp_renamed') = :'old' AS same;
ALTER FOREIGN TABLE cp_renamed RENAME TO cp;

-- ---- altered_columns_are_not_copied_before_commit
SELECT gstore_fdw_rawsize('cp') AS size \gset
BEGIN;
SAVEPOINT one;
ALTER FOREIGN TABLE cp DROP COLUMN newly_named;
SAVEPOINT two;
SELECT gstore_export_ipchandle('cp');
ROLLBACK TO two;
SELECT gstore_fdw_rawsize('cp');
ROLLBACK TO one;
SELECT gstore_export_ipchandle('cp') = :'old' AS same, gstore_fdw_rawsize('cp') = :size AS size;
ROLLBACK;
SELECT gstore_export_ipchandle('cp') = :'old' AS same, gstore_fdw_rawsize('cp') = :size AS size, copy_has('cp', 'newly_named');

-- ---- format_changed_and_undone_leaves_copies_of_the_stores_format
SELECT gstore_fdw_rawsize('cp') AS size, gstore_fdw_rawsize('cp_arrow') AS size_arrow \gset
SELECT gstore_revoke_all('cp'), gstore_revoke_all('cp_arrow');
BEGIN;
TRUNCATE cp, cp_arrow;
ALTER FOREIGN TABLE cp OPTIONS (ADD format 'arrow');
ALTER FOREIGN TABLE cp_arrow OPTIONS (SET format 'pgstrom');
SELECT octet_length(gstore_export_ipchandle('cp')), octet_length(gstore_export_ipchandle('cp_arrow')),
    gstore_fdw_rawsize('cp') = :size AS size, gstore_fdw_rawsize('cp_arrow') = :size_arrow AS size_arrow;
ROLLBACK;
SELECT t, chr(get_byte(bytes_of(gstore_export_ipchandle(t), 64), 24)) AS format, gstore_fdw_rawsize(t) AS size
    FROM unnest('{cp,cp_arrow}'::reggstore[]) t ORDER BY 1;
SELECT gstore_fdw_rawsize('cp') = :size AS size, gstore_fdw_rawsize('cp_arrow') = :size_arrow AS size_arrow;

-- ---- rawsize_of_a_column_of_another_type_fails_as_the_copy: also where rows are deleted and offsets are read
DELETE FROM cp WHERE i = 10;
DELETE FROM cp_arrow WHERE i = 10;
SELECT view_size('cp') > 0 AS size, view_size('cp_arrow') > 0 AS size_arrow;
BEGIN;
TRUNCATE cp, cp_arrow;
ALTER FOREIGN TABLE cp ALTER COLUMN i TYPE text;
ALTER FOREIGN TABLE cp_arrow ALTER COLUMN i TYPE text;
SAVEPOINT one;
SELECT gstore_fdw_rawsize('cp');
ROLLBACK TO one;
SELECT gstore_fdw_rawsize('cp_arrow');
ROLLBACK TO one;
SELECT gstore_export_ipchandle('cp_arrow');
ROLLBACK TO one;
SELECT view_size('cp') BETWEEN 1 AND 10000 AS size, view_size('cp_arrow') BETWEEN 1 AND 10000 AS size_arrow;
COMMIT;
SELECT gstore_fdw_rawsize('cp'), gstore_fdw_rawsize('cp_arrow'), gstore_export_ipchandle('cp_arrow');

DROP FOREIGN TABLE cp, cp_arrow;
DROP ROLE cp_late;
DROP FUNCTION bytes_of, copy_has, view_size;
