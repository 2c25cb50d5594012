-- gstore_fdw 1.1. See docs/gstore_fdw.md.
\echo Use "ALTER EXTENSION gstore_fdw UPDATE TO '1.1'" to load this file. \quit

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
