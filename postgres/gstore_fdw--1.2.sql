-- gstore_fdw: tables that live in GPU memory. See docs/gstore_fdw.md.
-- Names without a schema: all objects are in the schema of CREATE EXTENSION. A change of the last version's
-- script belongs in the script that updates to it, too.
\echo Use "CREATE EXTENSION gstore_fdw" to load this file. \quit

CREATE FUNCTION gstore_fdw_handler() RETURNS fdw_handler
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
CREATE FUNCTION gstore_fdw_validator(text[], oid) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FOREIGN DATA WRAPPER gstore_fdw
    HANDLER gstore_fdw_handler VALIDATOR gstore_fdw_validator;
CREATE SERVER gstore_fdw FOREIGN DATA WRAPPER gstore_fdw;

-- ---- reggstore: a table in GPU memory by its name, as regclass is for all relations
CREATE TYPE reggstore;
CREATE FUNCTION reggstore_in(cstring) RETURNS reggstore
    AS 'MODULE_PATHNAME', 'gstore_reggstore_in' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION reggstore_out(reggstore) RETURNS cstring
    AS 'MODULE_PATHNAME', 'gstore_reggstore_out' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION reggstore_recv(internal) RETURNS reggstore
    AS 'MODULE_PATHNAME', 'gstore_reggstore_recv' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION reggstore_send(reggstore) RETURNS bytea
    AS 'MODULE_PATHNAME', 'gstore_reggstore_send' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE TYPE reggstore (
    INPUT = reggstore_in, OUTPUT = reggstore_out,
    RECEIVE = reggstore_recv, SEND = reggstore_send,
    LIKE = pg_catalog.oid, CATEGORY = 'N');
COMMENT ON TYPE reggstore IS 'table in GPU memory';

-- Casts by functions of the server's under names of our own: with theirs, a cast would want another one to
-- be there, and pg_upgrade restores casts in any order.
CREATE FUNCTION reggstore_to_bigint(reggstore) RETURNS bigint
    AS 'oidtoi8' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION reggstore_from_bigint(bigint) RETURNS reggstore
    AS 'i8tooid' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION reggstore_from_smallint(smallint) RETURNS reggstore
    AS 'i2toi4' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;

CREATE CAST (reggstore AS oid) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (oid AS reggstore) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (reggstore AS int) WITHOUT FUNCTION AS ASSIGNMENT;
CREATE CAST (int AS reggstore) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (reggstore AS bigint) WITH FUNCTION reggstore_to_bigint(reggstore) AS ASSIGNMENT;
CREATE CAST (bigint AS reggstore) WITH FUNCTION reggstore_from_bigint(bigint) AS IMPLICIT;
CREATE CAST (smallint AS reggstore) WITH FUNCTION reggstore_from_smallint(smallint) AS IMPLICIT;
CREATE CAST (regclass AS reggstore) WITHOUT FUNCTION AS ASSIGNMENT;
CREATE CAST (reggstore AS regclass) WITHOUT FUNCTION AS ASSIGNMENT;

-- ---- what there is of a table, as the statement sees it; SELECT on the table is needed
CREATE FUNCTION gstore_fdw_format(reggstore) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION gstore_fdw_nitems(reggstore) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION gstore_fdw_nattrs(reggstore) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION gstore_fdw_rawsize(reggstore) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION gstore_fdw_format(reggstore) IS 'format of the table in GPU memory';
COMMENT ON FUNCTION gstore_fdw_nitems(reggstore) IS 'number of rows';
COMMENT ON FUNCTION gstore_fdw_nattrs(reggstore) IS 'number of columns, dropped ones too';
COMMENT ON FUNCTION gstore_fdw_rawsize(reggstore) IS 'bytes of the copy that gstore_export_ipchandle() makes';

CREATE FUNCTION gstore_fdw_compact(reggstore) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION gstore_fdw_compact(reggstore)
    IS 'rewrites the table without its deleted rows; returns how many there were';

-- ---- between tables, GPU programs and large objects
CREATE FUNCTION gstore_export_ipchandle(ftable_oid reggstore) RETURNS bytea
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION gstore_export_ipchandle(reggstore)
    IS 'CUipcMemHandle of a dense copy of the table; NULL without rows';

CREATE FUNCTION lo_import_gpu(
    device_nr int, ipc_mhandle bytea, "offset" bigint, length bigint, loid oid DEFAULT 0)
    RETURNS oid
    AS 'MODULE_PATHNAME', 'gstore_lo_import_gpu' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE FUNCTION lo_export_gpu(
    loid oid, device_nr int, ipc_mhandle bytea, "offset" bigint, length bigint)
    RETURNS bigint
    AS 'MODULE_PATHNAME', 'gstore_lo_export_gpu' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION lo_import_gpu(int, bytea, bigint, bigint, oid)
    IS 'memory of a GPU program to a large object';
COMMENT ON FUNCTION lo_export_gpu(oid, int, bytea, bigint, bigint)
    IS 'large object to memory of a GPU program; bytes written';
-- A role with a handle reads or overwrites the memory of another program, with the server's rights.
REVOKE EXECUTE ON FUNCTION lo_import_gpu(int, bytea, bigint, bigint, oid) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION lo_export_gpu(oid, int, bytea, bigint, bigint) FROM PUBLIC;

-- ---- views: versions of tables, the keeper, statements at work
CREATE FUNCTION gstore_fdw_revisions(
    OUT database_oid oid, OUT table_oid oid, OUT revision int, OUT xmin xid, OUT xmax xid,
    OUT pinning int, OUT format text, OUT rawsize bigint, OUT nitems bigint, OUT lost boolean,
    OUT committed bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'gstore_fdw_chunk_info' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE VIEW gstore_fdw_chunk_info AS SELECT * FROM gstore_fdw_revisions();
COMMENT ON VIEW gstore_fdw_chunk_info
    IS 'revisions of tables in GPU memory: of all databases for members of pg_read_all_stats, else of readable tables';

CREATE FUNCTION gstore_fdw_keeper_info(
    OUT ready boolean, OUT epoch int, OUT pid int, OUT keeper_pid bigint, OUT socket text,
    OUT problem text, OUT host_budget bigint, OUT host_used bigint, OUT clients bigint,
    OUT windows int, OUT windows_in_use int,
    OUT device int, OUT device_name text, OUT software boolean, OUT device_budget bigint,
    OUT device_resident bigint, OUT device_on_host bigint, OUT device_copies bigint,
    OUT objects bigint, OUT evicted bigint, OUT promoted bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE VIEW gstore_fdw_keeper_info AS SELECT * FROM gstore_fdw_keeper_info();
COMMENT ON VIEW gstore_fdw_keeper_info
    IS 'GPU memory keeper, a row for each device; sizes in bytes, as of the last second';

CREATE FUNCTION gstore_fdw_progress(
    OUT pid int, OUT datid oid, OUT relid oid, OUT command text, OUT started timestamptz,
    OUT rows_written bigint, OUT bytes_written bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE VIEW gstore_fdw_progress AS
    SELECT p.pid, p.datid, d.datname, p.relid, p.command, p.started, p.rows_written, p.bytes_written
    FROM gstore_fdw_progress() p LEFT JOIN pg_catalog.pg_database d ON d.oid = p.datid;
COMMENT ON VIEW gstore_fdw_progress
    IS 'statements that are writing tables in GPU memory, and how far they are';
GRANT SELECT ON gstore_fdw_chunk_info, gstore_fdw_keeper_info, gstore_fdw_progress TO PUBLIC;

-- ---- a token with which other processes attach the table's memory (gvmem/table.h)
CREATE FUNCTION gstore_export(reggstore) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION gstore_export(reggstore)
    IS 'token with which other processes read the table where it is; NULL without rows';

CREATE FUNCTION gstore_revoke(token text) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE FUNCTION gstore_revoke_all(reggstore) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION gstore_revoke(text)
    IS 'ends a token of gstore_export() or gstore_load_begin(); false: it had ended';
COMMENT ON FUNCTION gstore_revoke_all(reggstore)
    IS 'ends all tokens and CUDA handles of the table; returns how many tokens';

-- ---- rows from memory that programs have written (gvmem/load.h), and from files of Arrow's
CREATE FUNCTION gstore_load_begin(ftable reggstore, size_bytes bigint) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE FUNCTION gstore_load(ftable reggstore, token text) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE FUNCTION gstore_load_file(ftable reggstore, path text) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION gstore_load_begin(reggstore, bigint)
    IS 'token with which another process writes rows for the table to GPU memory of that size';
COMMENT ON FUNCTION gstore_load(reggstore, text)
    IS 'appends the rows that were written by a token of gstore_load_begin(); returns how many';
COMMENT ON FUNCTION gstore_load_file(reggstore, text)
    IS 'appends the rows of an Arrow IPC file or stream of the server; returns how many';

-- ---- distances of vectors, which the GPU computes as well: see docs/gstore_fdw.md, "Distances"; those of bit strings are operators by gstore_fdw_bit
CREATE FUNCTION gstore_l2_distance(real[], real[]) RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION gstore_l2_distance(double precision[], double precision[]) RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION gstore_l2_distance(smallint[], smallint[]) RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION gstore_negative_inner_product(real[], real[]) RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION gstore_negative_inner_product(double precision[], double precision[]) RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION gstore_negative_inner_product(smallint[], smallint[]) RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION gstore_cosine_distance(real[], real[]) RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION gstore_cosine_distance(double precision[], double precision[]) RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION gstore_cosine_distance(smallint[], smallint[]) RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION gstore_l1_distance(real[], real[]) RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION gstore_l1_distance(double precision[], double precision[]) RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION gstore_l1_distance(smallint[], smallint[]) RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION gstore_hamming_distance(bit, bit) RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION gstore_jaccard_distance(bit, bit) RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE OPERATOR <-> (LEFTARG = real[], RIGHTARG = real[], COMMUTATOR = <->, FUNCTION = gstore_l2_distance);
CREATE OPERATOR <-> (LEFTARG = double precision[], RIGHTARG = double precision[], COMMUTATOR = <->, FUNCTION = gstore_l2_distance);
CREATE OPERATOR <-> (LEFTARG = smallint[], RIGHTARG = smallint[], COMMUTATOR = <->, FUNCTION = gstore_l2_distance);
CREATE OPERATOR <#> (LEFTARG = real[], RIGHTARG = real[], COMMUTATOR = <#>, FUNCTION = gstore_negative_inner_product);
CREATE OPERATOR <#> (LEFTARG = double precision[], RIGHTARG = double precision[], COMMUTATOR = <#>, FUNCTION = gstore_negative_inner_product);
CREATE OPERATOR <#> (LEFTARG = smallint[], RIGHTARG = smallint[], COMMUTATOR = <#>, FUNCTION = gstore_negative_inner_product);
CREATE OPERATOR <=> (LEFTARG = real[], RIGHTARG = real[], COMMUTATOR = <=>, FUNCTION = gstore_cosine_distance);
CREATE OPERATOR <=> (LEFTARG = double precision[], RIGHTARG = double precision[], COMMUTATOR = <=>, FUNCTION = gstore_cosine_distance);
CREATE OPERATOR <=> (LEFTARG = smallint[], RIGHTARG = smallint[], COMMUTATOR = <=>, FUNCTION = gstore_cosine_distance);
CREATE OPERATOR <+> (LEFTARG = real[], RIGHTARG = real[], COMMUTATOR = <+>, FUNCTION = gstore_l1_distance);
CREATE OPERATOR <+> (LEFTARG = double precision[], RIGHTARG = double precision[], COMMUTATOR = <+>, FUNCTION = gstore_l1_distance);
CREATE OPERATOR <+> (LEFTARG = smallint[], RIGHTARG = smallint[], COMMUTATOR = <+>, FUNCTION = gstore_l1_distance);
COMMENT ON OPERATOR <-> (real[], real[]) IS 'Euclidean distance';
COMMENT ON OPERATOR <-> (double precision[], double precision[]) IS 'Euclidean distance';
COMMENT ON OPERATOR <-> (smallint[], smallint[]) IS 'Euclidean distance';
COMMENT ON OPERATOR <#> (real[], real[]) IS 'negative inner product';
COMMENT ON OPERATOR <#> (double precision[], double precision[]) IS 'negative inner product';
COMMENT ON OPERATOR <#> (smallint[], smallint[]) IS 'negative inner product';
COMMENT ON OPERATOR <=> (real[], real[]) IS 'cosine distance';
COMMENT ON OPERATOR <=> (double precision[], double precision[]) IS 'cosine distance';
COMMENT ON OPERATOR <=> (smallint[], smallint[]) IS 'cosine distance';
COMMENT ON OPERATOR <+> (real[], real[]) IS 'taxicab distance';
COMMENT ON OPERATOR <+> (double precision[], double precision[]) IS 'taxicab distance';
COMMENT ON OPERATOR <+> (smallint[], smallint[]) IS 'taxicab distance';
COMMENT ON FUNCTION gstore_hamming_distance(bit, bit) IS 'number of bits that differ';
COMMENT ON FUNCTION gstore_jaccard_distance(bit, bit) IS '1 - bits in both / bits in either';

-- ---- of each of many vectors the rows nearest to it: see docs/gstore_fdw.md, "Many queries at once"
CREATE FUNCTION gstore_search(ft anyelement, vector_column name, queries anycompatiblearray, k int, operator text, filter text DEFAULT NULL)
    RETURNS TABLE (query int, distance double precision, r anyelement)
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION gstore_search(anyelement, name, anycompatiblearray, int, text, text)
    IS 'the k rows of a table that are nearest to each of the queries, by a distance that an operator computes';

-- ---- queries on the GPU, since the server's start or the last reset
CREATE FUNCTION gstore_fdw_queries(
    OUT kind text, OUT queries bigint, OUT rows_read bigint, OUT bytes_read bigint, OUT rows_returned bigint,
    OUT kernel_time double precision, OUT reruns bigint, OUT no_room bigint, OUT row_errors bigint, OUT decimals bigint,
    OUT unavailable bigint, OUT executor_lost bigint, OUT device_errors bigint, OUT unsupported bigint, OUT cancelled bigint,
    OUT failed bigint, OUT stats_reset timestamptz)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE VIEW gstore_fdw_queries AS SELECT * FROM gstore_fdw_queries();
COMMENT ON VIEW gstore_fdw_queries
    IS 'queries on the GPU of all databases, a row for each kind: what ran there, and why others did not';
GRANT SELECT ON gstore_fdw_queries TO PUBLIC;
CREATE FUNCTION gstore_fdw_queries_reset() RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION gstore_fdw_queries_reset()
    IS 'sets the counters of gstore_fdw_queries to 0';
REVOKE EXECUTE ON FUNCTION gstore_fdw_queries_reset() FROM PUBLIC;
