\set ECHO none
-- What the tests of joins on the GPU compare, by query_same.sql, which is included before.
-- Tables T_g and T_a (format 'arrow') in GPU memory, with what the heap T_h has, for each T.
CREATE FUNCTION copy_tables(names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    t text;
    columns text;
BEGIN
    FOREACH t IN ARRAY names LOOP
        SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum) INTO columns FROM pg_attribute WHERE attrelid = (t || '_h')::regclass AND attnum > 0;
        EXECUTE format('CREATE FOREIGN TABLE %1$s_g (%2$s) SERVER gstore_fdw; CREATE FOREIGN TABLE %1$s_a (%2$s) SERVER gstore_fdw OPTIONS (format ''arrow'');
            INSERT INTO %1$s_g SELECT * FROM %1$s_h; INSERT INTO %1$s_a SELECT * FROM %1$s_h; ANALYZE %1$s_h, %1$s_g, %1$s_a', t, columns);
    END LOOP;
END $$;
-- Of a query of tables T@: the heaps' answer, if tables of both formats have the same, with joins on the GPU and without them; and where it ran, if
-- that was not the GPU for one of these. Long answers are shortened.
CREATE FUNCTION same_join(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    heap text := answer(replace(query, '@', '_h'));
    elsewhere text := '';
    found text;
    other text;
BEGIN
    FOREACH other IN ARRAY ARRAY['_g', '_a', '_m'] LOOP
        -- _m: the outer table in one format, inner ones in the other
        other := CASE other WHEN '_m' THEN regexp_replace(replace(query, 'f@', 'f_g'), '@', '_a', 'g') ELSE replace(query, '@', other) END;
        found := coalesce(place(other), 'no join on the GPU');
        IF found <> 'on the GPU' THEN
            elsewhere := ' [' || found || ']';
        END IF;
        found := answer(other);
        IF found <> heap THEN
            RETURN other || ' on the GPU: ' || found || ' and not ' || heap;
        END IF;
        SET LOCAL gstore_fdw.gpu_joins = off;
        found := answer(other);
        IF found <> heap THEN
            RETURN other || ': ' || found || ' and not ' || heap;
        END IF;
        SET LOCAL gstore_fdw.gpu_joins = on;
    END LOOP;
    RETURN CASE WHEN length(heap) > 60 THEN left(heap, 40) || '... ' || md5(heap) ELSE heap END || elsewhere;
END $$;
\set ECHO all
