-- gstore_fdw_bit: distances of bit strings by operators. They are pgvector's as well, so they are an extension of their own, for
-- databases without pgvector. See docs/gstore_fdw.md, "Distances".
\echo Use "CREATE EXTENSION gstore_fdw_bit" to load this file. \quit

CREATE OPERATOR <~> (LEFTARG = bit, RIGHTARG = bit, COMMUTATOR = <~>, FUNCTION = gstore_hamming_distance);
CREATE OPERATOR <%> (LEFTARG = bit, RIGHTARG = bit, COMMUTATOR = <%>, FUNCTION = gstore_jaccard_distance);
COMMENT ON OPERATOR <~> (bit, bit) IS 'number of bits that differ';
COMMENT ON OPERATOR <%> (bit, bit) IS '1 - bits in both / bits in either';
