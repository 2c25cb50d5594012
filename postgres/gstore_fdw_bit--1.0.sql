-- gstore_fdw_bit: distances of bit strings by operators. They are pgvector's as well, so they are an extension of their own, for
-- databases without pgvector. See docs/gstore_fdw.md, "Distances".
\echo Use "CREATE EXTENSION gstore_fdw_bit" to load this file. \quit

-- The functions of gstore_fdw, whatever of that name the schema has that this extension goes to.
DO LANGUAGE plpgsql $$
DECLARE
    home regnamespace;
BEGIN
    SELECT e.extnamespace INTO home FROM pg_catalog.pg_extension e WHERE e.extname OPERATOR(pg_catalog.=) 'gstore_fdw';
    EXECUTE pg_catalog.format('CREATE OPERATOR <~> (LEFTARG = bit, RIGHTARG = bit, COMMUTATOR = <~>, FUNCTION = %s.gstore_hamming_distance)', home);
    EXECUTE pg_catalog.format('CREATE OPERATOR <%%> (LEFTARG = bit, RIGHTARG = bit, COMMUTATOR = <%%>, FUNCTION = %s.gstore_jaccard_distance)', home);
END
$$;
COMMENT ON OPERATOR <~> (bit, bit) IS 'number of bits that differ';
COMMENT ON OPERATOR <%> (bit, bit) IS '1 - bits in both / bits in either';
