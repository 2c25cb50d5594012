-- gstore_fdw 1.2: rows from memory and files. See docs/gstore_fdw.md, "Loading".
\echo Use "ALTER EXTENSION gstore_fdw UPDATE TO '1.2'" to load this file. \quit

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

COMMENT ON FUNCTION gstore_revoke(text)
    IS 'ends a token of gstore_export() or gstore_load_begin(); false: it had ended';
