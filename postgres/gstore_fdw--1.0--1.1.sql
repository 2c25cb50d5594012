-- gstore_fdw 1.1: tokens that end. See docs/gstore_fdw.md.
\echo Use "ALTER EXTENSION gstore_fdw UPDATE TO '1.1'" to load this file. \quit

CREATE FUNCTION public.gstore_revoke(token text) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE FUNCTION public.gstore_revoke_all(public.reggstore) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION public.gstore_revoke(text)
    IS 'ends a token of gstore_export(); false: it had ended';
COMMENT ON FUNCTION public.gstore_revoke_all(public.reggstore)
    IS 'ends all tokens and CUDA handles of the table; returns how many tokens';
