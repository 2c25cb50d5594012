-- gstore_fdw 1.1: tokens that end, and which tables have lost their rows. See docs/gstore_fdw.md.
\echo Use "ALTER EXTENSION gstore_fdw UPDATE TO '1.1'" to load this file. \quit

CREATE FUNCTION public.gstore_revoke(token text) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE FUNCTION public.gstore_revoke_all(public.reggstore) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION public.gstore_revoke(text)
    IS 'ends a token of gstore_export(); false: it had ended';
COMMENT ON FUNCTION public.gstore_revoke_all(public.reggstore)
    IS 'ends all tokens and CUDA handles of the table; returns how many tokens';

-- ---- which tables have lost their rows
DROP VIEW pgstrom.gstore_fdw_chunk_info;
DROP FUNCTION pgstrom.gstore_fdw_chunk_info();
CREATE FUNCTION pgstrom.gstore_fdw_chunk_info(
    OUT database_oid oid, OUT table_oid oid, OUT revision int, OUT xmin xid, OUT xmax xid,
    OUT pinning int, OUT format text, OUT rawsize bigint, OUT nitems bigint, OUT lost boolean)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE VIEW pgstrom.gstore_fdw_chunk_info AS SELECT * FROM pgstrom.gstore_fdw_chunk_info();
COMMENT ON VIEW pgstrom.gstore_fdw_chunk_info
    IS 'revisions of tables in GPU memory: of all databases for superusers, else of readable tables';
GRANT SELECT ON pgstrom.gstore_fdw_chunk_info TO PUBLIC;
