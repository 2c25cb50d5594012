-- pg_strom: gstore_fdw under the names of PG-Strom's GPU memory store. See docs/gstore_fdw.md.
\echo Use "CREATE EXTENSION pg_strom CASCADE" to load this file. \quit

-- PG-Strom has an extension, a library and a schema of these names.
DO LANGUAGE plpgsql $$
BEGIN
    IF current_setting('shared_preload_libraries') ~ '(^|[/, "])pg_strom(\.so)?($|[, "])'
        OR EXISTS (SELECT FROM pg_proc WHERE probin ~ '(^|/)pg_strom(\.so)?$')
    THEN
        RAISE duplicate_object USING
            MESSAGE = 'cannot install this extension beside PG-Strom, whose library pg_strom is in use',
            HINT = 'gstore_fdw works without it: CREATE EXTENSION gstore_fdw.';
    ELSIF to_regclass('pgstrom.gstore_fdw_keeper_info') IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'cannot install this extension while gstore_fdw 1.0 has the schema "pgstrom"',
            HINT = 'ALTER EXTENSION gstore_fdw UPDATE, then try again.';
    ELSIF to_regnamespace('pgstrom') IS NOT NULL THEN
        RAISE duplicate_schema USING
            MESSAGE = 'cannot install this extension: there is a schema "pgstrom"',
            HINT = 'If nobody needs it, DROP SCHEMA pgstrom.';
    END IF;
END
$$;

CREATE SCHEMA pgstrom;
GRANT USAGE ON SCHEMA pgstrom TO PUBLIC;

-- The views of gstore_fdw, whatever of that name another schema has.
DO LANGUAGE plpgsql $$
DECLARE
    home regnamespace;
BEGIN
    SELECT e.extnamespace INTO home FROM pg_catalog.pg_extension e WHERE e.extname OPERATOR(pg_catalog.=) 'gstore_fdw';
    EXECUTE pg_catalog.format('CREATE VIEW pgstrom.gstore_fdw_chunk_info AS
        SELECT database_oid, table_oid, revision, xmin, xmax, pinning, format, rawsize, nitems FROM %s.gstore_fdw_chunk_info', home);
    EXECUTE pg_catalog.format('CREATE VIEW pgstrom.gstore_fdw_keeper_info AS SELECT * FROM %s.gstore_fdw_keeper_info', home);
    EXECUTE pg_catalog.format('CREATE VIEW pgstrom.gstore_fdw_progress AS SELECT * FROM %s.gstore_fdw_progress', home);
END
$$;
GRANT SELECT ON pgstrom.gstore_fdw_chunk_info, pgstrom.gstore_fdw_keeper_info,
    pgstrom.gstore_fdw_progress TO PUBLIC;
COMMENT ON VIEW pgstrom.gstore_fdw_chunk_info IS 'revisions of tables in GPU memory';
COMMENT ON VIEW pgstrom.gstore_fdw_keeper_info IS 'GPU memory keeper, a row for each device';
COMMENT ON VIEW pgstrom.gstore_fdw_progress IS 'statements that are writing tables in GPU memory';
