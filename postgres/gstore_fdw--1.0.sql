-- gstore_fdw: tables that live in GPU memory. See docs/gstore_fdw.md.
\echo Use "CREATE EXTENSION gstore_fdw" to load this file. \quit

CREATE FUNCTION public.gstore_fdw_handler() RETURNS fdw_handler
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
CREATE FUNCTION public.gstore_fdw_validator(text[], oid) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FOREIGN DATA WRAPPER gstore_fdw
    HANDLER public.gstore_fdw_handler VALIDATOR public.gstore_fdw_validator;
CREATE SERVER gstore_fdw FOREIGN DATA WRAPPER gstore_fdw;

-- ---- reggstore: a table in GPU memory by its name, as regclass is for all relations
CREATE TYPE public.reggstore;
CREATE FUNCTION public.reggstore_in(cstring) RETURNS public.reggstore
    AS 'MODULE_PATHNAME', 'gstore_reggstore_in' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION public.reggstore_out(public.reggstore) RETURNS cstring
    AS 'MODULE_PATHNAME', 'gstore_reggstore_out' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION public.reggstore_recv(internal) RETURNS public.reggstore
    AS 'MODULE_PATHNAME', 'gstore_reggstore_recv' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION public.reggstore_send(public.reggstore) RETURNS bytea
    AS 'MODULE_PATHNAME', 'gstore_reggstore_send' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE TYPE public.reggstore (
    INPUT = public.reggstore_in, OUTPUT = public.reggstore_out,
    RECEIVE = public.reggstore_recv, SEND = public.reggstore_send,
    LIKE = pg_catalog.oid, CATEGORY = 'N');
COMMENT ON TYPE public.reggstore IS 'table in GPU memory';

-- Casts by functions of the server's under names of our own: with theirs, a cast would want another one to
-- be there, and pg_upgrade restores casts in any order.
CREATE FUNCTION public.reggstore_to_bigint(public.reggstore) RETURNS bigint
    AS 'oidtoi8' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION public.reggstore_from_bigint(bigint) RETURNS public.reggstore
    AS 'i8tooid' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION public.reggstore_from_smallint(smallint) RETURNS public.reggstore
    AS 'i2toi4' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;

CREATE CAST (public.reggstore AS oid) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (oid AS public.reggstore) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (public.reggstore AS int) WITHOUT FUNCTION AS ASSIGNMENT;
CREATE CAST (int AS public.reggstore) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (public.reggstore AS bigint) WITH FUNCTION public.reggstore_to_bigint(public.reggstore) AS ASSIGNMENT;
CREATE CAST (bigint AS public.reggstore) WITH FUNCTION public.reggstore_from_bigint(bigint) AS IMPLICIT;
CREATE CAST (smallint AS public.reggstore) WITH FUNCTION public.reggstore_from_smallint(smallint) AS IMPLICIT;
CREATE CAST (regclass AS public.reggstore) WITHOUT FUNCTION AS ASSIGNMENT;
CREATE CAST (public.reggstore AS regclass) WITHOUT FUNCTION AS ASSIGNMENT;

-- ---- what there is of a table, as the statement sees it; SELECT on the table is needed
CREATE FUNCTION public.gstore_fdw_format(public.reggstore) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION public.gstore_fdw_nitems(public.reggstore) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION public.gstore_fdw_nattrs(public.reggstore) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION public.gstore_fdw_rawsize(public.reggstore) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION public.gstore_fdw_format(public.reggstore) IS 'format of the table in GPU memory';
COMMENT ON FUNCTION public.gstore_fdw_nitems(public.reggstore) IS 'number of rows';
COMMENT ON FUNCTION public.gstore_fdw_nattrs(public.reggstore) IS 'number of columns, dropped ones too';
COMMENT ON FUNCTION public.gstore_fdw_rawsize(public.reggstore) IS 'bytes in GPU memory, dead rows too';

CREATE FUNCTION public.gstore_fdw_compact(public.reggstore) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION public.gstore_fdw_compact(public.reggstore)
    IS 'rewrites the table without its deleted rows; returns how many there were';

-- ---- between tables, GPU programs and large objects
CREATE FUNCTION public.gstore_export_ipchandle(public.reggstore) RETURNS bytea
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION public.gstore_export_ipchandle(public.reggstore)
    IS 'CUipcMemHandle of a dense copy of the table; NULL without rows';

CREATE FUNCTION public.lo_import_gpu(
    device_nr int, ipc_mhandle bytea, offset_bytes bigint, length_bytes bigint, loid oid DEFAULT 0)
    RETURNS oid
    AS 'MODULE_PATHNAME', 'gstore_lo_import_gpu' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE FUNCTION public.lo_export_gpu(
    loid oid, device_nr int, ipc_mhandle bytea, offset_bytes bigint, length_bytes bigint)
    RETURNS bigint
    AS 'MODULE_PATHNAME', 'gstore_lo_export_gpu' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION public.lo_import_gpu(int, bytea, bigint, bigint, oid)
    IS 'memory of a GPU program to a large object';
COMMENT ON FUNCTION public.lo_export_gpu(oid, int, bytea, bigint, bigint)
    IS 'large object to memory of a GPU program; bytes written';
-- A role with a handle reads or overwrites the memory of another program, with the server's rights.
REVOKE EXECUTE ON FUNCTION public.lo_import_gpu(int, bytea, bigint, bigint, oid) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION public.lo_export_gpu(oid, int, bytea, bigint, bigint) FROM PUBLIC;

-- ---- views: versions of tables, the keeper, statements at work
CREATE SCHEMA pgstrom;
GRANT USAGE ON SCHEMA pgstrom TO PUBLIC;

CREATE FUNCTION pgstrom.gstore_fdw_chunk_info(
    OUT database_oid oid, OUT table_oid oid, OUT revision int, OUT xmin xid, OUT xmax xid,
    OUT pinning int, OUT format text, OUT rawsize bigint, OUT nitems bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE VIEW pgstrom.gstore_fdw_chunk_info AS SELECT * FROM pgstrom.gstore_fdw_chunk_info();
COMMENT ON VIEW pgstrom.gstore_fdw_chunk_info
    IS 'revisions of tables in GPU memory: of all databases for superusers, else of readable tables';

CREATE FUNCTION pgstrom.gstore_fdw_keeper_info(
    OUT ready boolean, OUT epoch int, OUT pid int, OUT keeper_pid bigint, OUT socket text,
    OUT problem text, OUT host_budget bigint, OUT host_used bigint, OUT clients bigint,
    OUT windows int, OUT windows_in_use int,
    OUT device int, OUT device_name text, OUT software boolean, OUT device_budget bigint,
    OUT device_resident bigint, OUT device_on_host bigint, OUT device_copies bigint,
    OUT objects bigint, OUT evicted bigint, OUT promoted bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE VIEW pgstrom.gstore_fdw_keeper_info AS SELECT * FROM pgstrom.gstore_fdw_keeper_info();
COMMENT ON VIEW pgstrom.gstore_fdw_keeper_info
    IS 'GPU memory keeper, a row for each device; sizes in bytes, as of the last second';

CREATE FUNCTION pgstrom.gstore_fdw_progress(
    OUT pid int, OUT datid oid, OUT relid oid, OUT command text, OUT started timestamptz,
    OUT rows_written bigint, OUT bytes_written bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE VIEW pgstrom.gstore_fdw_progress AS
    SELECT p.pid, p.datid, d.datname, p.relid, p.command, p.started, p.rows_written, p.bytes_written
    FROM pgstrom.gstore_fdw_progress() p LEFT JOIN pg_catalog.pg_database d ON d.oid = p.datid;
COMMENT ON VIEW pgstrom.gstore_fdw_progress
    IS 'statements that are writing tables in GPU memory, and how far they are';
GRANT SELECT ON pgstrom.gstore_fdw_chunk_info, pgstrom.gstore_fdw_keeper_info,
    pgstrom.gstore_fdw_progress TO PUBLIC;

-- ---- a token with which other processes attach the table's memory (gvmem/table.h)
CREATE FUNCTION public.gstore_export(public.reggstore) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION public.gstore_export(public.reggstore)
    IS 'token with which other processes read the table where it is; NULL without rows';
