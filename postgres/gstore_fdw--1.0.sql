-- gstore_fdw: tables that live in GPU memory. See docs/gstore_fdw.md.
\echo Use "CREATE EXTENSION gstore_fdw" to load this file. \quit

CREATE FUNCTION public.gstore_fdw_handler() RETURNS fdw_handler
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
CREATE FUNCTION public.gstore_fdw_validator(text[], oid) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FOREIGN DATA WRAPPER gstore_fdw
    HANDLER public.gstore_fdw_handler VALIDATOR public.gstore_fdw_validator;
CREATE SERVER gstore_fdw FOREIGN DATA WRAPPER gstore_fdw;
