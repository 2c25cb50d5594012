-- gstore_fdw 1.1: no names of schemas, tokens that end, which tables have lost their rows, and what memory they take. See docs/gstore_fdw.md.
\echo Use "ALTER EXTENSION gstore_fdw UPDATE TO '1.1'" to load this file. \quit

-- ---- What 1.0 had in the schemas public and pgstrom goes to the extension's; pgstrom is the extension pg_strom's
-- now. Sorted: the name of a function has those of its types in it.
DO LANGUAGE plpgsql $$
DECLARE
    member record;
BEGIN
    FOR member IN
        SELECT o.type, o.identity
        FROM pg_catalog.pg_depend d
        JOIN pg_catalog.pg_extension e
            ON d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass::pg_catalog.oid AND d.refobjid = e.oid,
            pg_catalog.pg_identify_object(d.classid, d.objid, d.objsubid) o
        WHERE e.extname = 'gstore_fdw' AND d.deptype = 'e'
            AND o.type IN ('function', 'type', 'view') AND o.schema <> current_schema()
        ORDER BY o.type
    LOOP
        EXECUTE pg_catalog.format('ALTER %s %s SET SCHEMA %I', member.type, member.identity, current_schema());
    END LOOP;
END
$$;
ALTER EXTENSION gstore_fdw DROP SCHEMA pgstrom;
DROP SCHEMA pgstrom;

-- ---- Names of parameters: CREATE OR REPLACE cannot change them, and DROP would take privileges away.
UPDATE pg_catalog.pg_proc SET proargnames = '{ftable_oid}'
    WHERE oid = 'gstore_export_ipchandle(reggstore)'::pg_catalog.regprocedure::pg_catalog.oid;
UPDATE pg_catalog.pg_proc SET proargnames = '{device_nr,ipc_mhandle,offset,length,loid}'
    WHERE oid = 'lo_import_gpu(int, bytea, bigint, bigint, oid)'::pg_catalog.regprocedure::pg_catalog.oid;
UPDATE pg_catalog.pg_proc SET proargnames = '{loid,device_nr,ipc_mhandle,offset,length}'
    WHERE oid = 'lo_export_gpu(oid, int, bytea, bigint, bigint)'::pg_catalog.regprocedure::pg_catalog.oid;

-- ---- Tokens.
CREATE FUNCTION gstore_revoke(token text) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE FUNCTION gstore_revoke_all(reggstore) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION gstore_revoke(text)
    IS 'ends a token of gstore_export(); false: it had ended';
COMMENT ON FUNCTION gstore_revoke_all(reggstore)
    IS 'ends all tokens and CUDA handles of the table; returns how many tokens';

-- ---- Which tables have lost their rows, and what they have of the keeper. The view stays, and what depends on it.
CREATE FUNCTION gstore_fdw_revisions(
    OUT database_oid oid, OUT table_oid oid, OUT revision int, OUT xmin xid, OUT xmax xid,
    OUT pinning int, OUT format text, OUT rawsize bigint, OUT nitems bigint, OUT lost boolean,
    OUT committed bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'gstore_fdw_chunk_info' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE OR REPLACE VIEW gstore_fdw_chunk_info AS SELECT * FROM gstore_fdw_revisions();
DROP FUNCTION gstore_fdw_chunk_info();

COMMENT ON FUNCTION gstore_fdw_rawsize(reggstore)
    IS 'bytes of the copy that gstore_export_ipchandle() makes';
