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

COMMENT ON FUNCTION gstore_revoke(text)
    IS 'ends a token of gstore_export() or gstore_load_begin(); false: it had ended';
COMMENT ON VIEW gstore_fdw_chunk_info
    IS 'revisions of tables in GPU memory: of all databases for members of pg_read_all_stats, else of readable tables';
