-- Every type comes back as it went in: each is put into a heap table and from there into tables in GPU
-- memory, plain and compressed, and the three are compared as text, both ways, and byte by byte (*<>).
-- A row of NULLs follows every other row; a column is NULL throughout, one never is.
CREATE TYPE t_enum AS ENUM ('red', 'green', 'blue');
CREATE TYPE t_composite AS (a int, b text, c numeric(8,2));
CREATE TYPE t_nested AS (x t_composite, y t_composite[]);
CREATE DOMAIN t_domain AS int CHECK (VALUE > 0);
CREATE DOMAIN t_text_domain AS text NOT NULL DEFAULT 'none';
CREATE TYPE t_range AS RANGE (SUBTYPE = float8);

CREATE FUNCTION differences(one regclass, other regclass) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    found bigint;
    total bigint;
BEGIN
    EXECUTE format('SELECT (SELECT count(*) FROM (SELECT t::text FROM %1$s t EXCEPT ALL SELECT t::text FROM %2$s t) x)'
                || ' + (SELECT count(*) FROM (SELECT t::text FROM %2$s t EXCEPT ALL SELECT t::text FROM %1$s t) x)',
                   one, other) INTO total;
    -- Cast, or the operator would be applied to each pair of columns.
    EXECUTE format('SELECT count(*) FROM %s h JOIN %s f USING (id) WHERE ROW(h.v, h.a, h.n, h.w)::record *<> ROW(f.v, f.a, f.n, f.w)::record',
                   one, other) INTO found;
    total := total + found;
    EXECUTE format('SELECT abs((SELECT count(*) FROM %s) - (SELECT count(*) FROM %s))', one, other) INTO found;
    RETURN total + found;
END $$;

-- The number of differences, and of rows compared.
CREATE FUNCTION check_type(type text, samples text[], OUT plain bigint, OUT compressed bigint, OUT count bigint)
LANGUAGE plpgsql AS $$
DECLARE
    columns text := format('(id int, v %1$s, a %1$s[], n %1$s, w %1$s)', type);
    lossy text := format('(id int, v %1$s OPTIONS (compression ''pglz''), a %1$s[] OPTIONS (compression ''pglz''),'
                      || ' n %1$s OPTIONS (compression ''pglz''), w %1$s OPTIONS (compression ''pglz''))', type);
    number int := 0;
    i int;
BEGIN
    EXECUTE 'CREATE TABLE heap_copy ' || columns;
    EXECUTE 'CREATE FOREIGN TABLE plain_copy ' || columns || ' SERVER gstore_fdw';
    EXECUTE 'CREATE FOREIGN TABLE pglz_copy ' || lossy || ' SERVER gstore_fdw OPTIONS (pinning '''
        || (SELECT greatest(count(*) - 1, 0) FROM gstore_fdw_keeper_info) || ''')';
    FOR i IN 1 .. cardinality(samples) LOOP
        EXECUTE format('INSERT INTO heap_copy VALUES (%1$s, %2$L::%3$s, ARRAY[%2$L, NULL, %4$L]::%3$s[], NULL, %2$L::%3$s),'
                    || ' (%1$s + 1, NULL, NULL, NULL, %2$L::%3$s)',
                       number, samples[i], type, samples[1]);
        number := number + 2;
    END LOOP;
    -- More rows than bits in a byte, and empty and two-dimensional arrays.
    EXECUTE format('INSERT INTO heap_copy SELECT %s + i, v, CASE i %% 3 WHEN 0 THEN ''{}'' WHEN 1 THEN ARRAY[a, a] ELSE a END, NULL, w'
                || ' FROM heap_copy, generate_series(1, 17) i WHERE id = 0', number);
    INSERT INTO plain_copy SELECT * FROM heap_copy ORDER BY id;
    INSERT INTO pglz_copy SELECT * FROM heap_copy ORDER BY id;
    plain := differences('heap_copy', 'plain_copy');
    compressed := differences('heap_copy', 'pglz_copy');
    SELECT count(*) INTO count FROM heap_copy;
    DROP TABLE heap_copy;
    DROP FOREIGN TABLE plain_copy, pglz_copy;
END $$;

CREATE TABLE samples (type text, samples text[]);
INSERT INTO samples VALUES
    ('bool', '{t,f}'),
    ('"char"', '{a,"",z}'),
    ('int2', '{0,-32768,32767}'),
    ('int4', '{0,-2147483648,2147483647}'),
    ('int8', '{0,-9223372036854775808,9223372036854775807}'),
    ('float4', '{0,-0,NaN,Infinity,-Infinity,1.17549435e-38,3.4028235e38}'),
    ('float8', '{0,-0,NaN,Infinity,-Infinity,2.2250738585072014e-308,1.7976931348623157e308,0.1}'),
    ('numeric', '{0,0.00,-1.50,NaN,Infinity,-Infinity,123456789012345678901234567890.123456789,1e-100,9e300}'),
    ('numeric(10,3)', '{0,1.5,-9999999.999}'),
    ('money', '{0,-1.25,92233720368547758.07}'),
    ('text', ARRAY['', 'a', 'seven b', 'eight by', 'größer – 雪', repeat('x', 126), repeat('y', 127), repeat('ab', 5000)]),
    ('varchar', '{"",a,"trailing   "}'),
    ('varchar(5)', '{"",abcde}'),
    ('bpchar', '{"",a,"a  "}'),
    ('char(7)', '{"",a,"abcdefg"}'),
    ('name', ARRAY['', 'a', repeat('n', 63)]),
    ('bytea', ARRAY['', '\x00', '\x00ff10', '\x' || repeat('de', 3000)]),
    ('bit', '{0,1}'),
    ('bit(13)', '{1010101010101,0000000000000}'),
    ('varbit', '{"",1,101010101010101010101}'),
    ('date', '{2000-01-01,"4713-01-01 BC",5874897-12-31,infinity,-infinity}'),
    ('time', '{00:00:00,24:00:00,12:34:56.789012}'),
    ('timetz', '{00:00:00+00,23:59:59.999999-15:59,12:00+05:30}'),
    ('timestamp', '{2000-01-01,infinity,-infinity,"294276-12-31 23:59:59.999999"}'),
    ('timestamptz', '{2000-01-01 00:00+00,infinity,-infinity,"1970-01-01 12:34:56.789+02"}'),
    ('interval', '{0,"1 year 2 mons -3 days 04:05:06.789","-178000000 years"}'),
    ('uuid', '{00000000-0000-0000-0000-000000000000,a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'),
    ('json', ARRAY['{}', '{"b": 1,  "a": [1, 2, {"c": null}]}', '"text"']),
    ('jsonb', ARRAY['{}', '{"b": 1, "a": [1, 2, {"c": null}]}', '1e10', '"text"', (SELECT jsonb_agg(i)::text FROM generate_series(1, 2000) i)]),
    ('jsonpath', '{$,"$.a[*] ? (@ > 1)"}'),
    ('xml', '{}'),
    ('point', ARRAY['(1,2)', '(-0.5,1e300)']),
    ('line', ARRAY['{1,2,3}', '{0,-1,0}']),
    ('lseg', ARRAY['[(1,2),(3,4)]']),
    ('box', ARRAY['(3,4),(1,2)']),
    ('path', ARRAY['[(1,2),(3,4),(5,6)]', '((0,0),(1,1))']),
    ('polygon', ARRAY['((0,0),(1,1),(2,0))']),
    ('circle', ARRAY['<(1,2),3>']),
    ('cidr', '{10.0.0.0/8,::/0,2001:db8::/32}'),
    ('inet', '{10.1.2.3/8,::1,2001:db8::1/64}'),
    ('macaddr', '{08:00:2b:01:02:03}'),
    ('macaddr8', '{08:00:2b:01:02:03:04:05}'),
    ('tsvector', ARRAY['', 'a fat cat', 'a:1A fat:2B,4C cat:5']),
    ('tsquery', ARRAY['', 'fat & (rat | !cat)', 'fat:ab <-> cat:*']),
    ('tid', ARRAY['(0,1)', '(4294967295,65535)']),
    ('xid', '{0,4294967295}'),
    ('xid8', '{0,18446744073709551615}'),
    ('cid', '{0,4294967295}'),
    ('oid', '{0,4294967295}'),
    ('oidvector', ARRAY['', '1 2 3']),
    ('int2vector', ARRAY['', '1 2 3']),
    ('pg_lsn', '{0/0,FFFFFFFF/FFFFFFFF}'),
    ('pg_snapshot', ARRAY['10:20:10,14,15']),
    ('txid_snapshot', '{10:20:10}'),
    ('refcursor', '{"",c}'),
    ('aclitem', '{postgres=r/postgres}'),
    ('gtsvector', '{}'),
    ('regclass', '{pg_class,4294967295}'), ('regcollation', ARRAY['"C"']), ('regconfig', '{simple}'),
    ('regdictionary', '{simple}'), ('regnamespace', '{pg_catalog}'), ('regoper', ARRAY['pg_catalog.||/']),
    ('regoperator', ARRAY['+(integer,integer)']), ('regproc', '{now}'), ('regprocedure', ARRAY['abs(integer)']),
    ('regrole', '{postgres}'), ('regtype', '{int4}'),
    ('int4range', ARRAY['empty', '[1,5)', '(,)', '[3,)']), ('int8range', ARRAY['empty', '[1,5)']),
    ('numrange', ARRAY['empty', '[1.50,5.0]', '(,)']), ('daterange', ARRAY['[2000-01-01,2001-01-01)']),
    ('tsrange', ARRAY['[2000-01-01,2001-01-01)']), ('tstzrange', ARRAY['[2000-01-01 00:00+00,infinity]']),
    ('int4multirange', ARRAY['{}', '{[1,3),[5,7)}']), ('int8multirange', ARRAY['{[1,3)}']),
    ('nummultirange', ARRAY['{[1.5,3)}']), ('datemultirange', ARRAY['{[2000-01-01,)}']),
    ('tsmultirange', ARRAY['{[2000-01-01,)}']), ('tstzmultirange', ARRAY['{(,)}']),
    ('t_enum', '{red,green,blue}'),
    ('t_composite', ARRAY['(1,x,2.50)', '(,,)', '(2,"a, b",)']),
    ('t_nested', ARRAY['("(1,x,1)","{""(2,y,2)"",NULL}")', '(,)']),
    ('t_domain', '{1,2147483647}'),
    ('t_range', ARRAY['empty', '[0.5,1e300)']),
    ('pg_class', '{}');

-- The comparison itself finds a row that differs, a NULL, a row too few.
CREATE TABLE one (id int, v text, a text[], n text, w text);
CREATE TABLE other (LIKE one);
INSERT INTO one VALUES (1, 'x', '{y}', NULL, 'z');
INSERT INTO other VALUES (1, 'x', '{y}', '', 'z');
SELECT differences('one', 'other') > 0 AS found;
DELETE FROM other;
SELECT differences('one', 'other') > 0 AS found;
DROP TABLE one, other;

SET client_min_messages = warning; -- an empty tsquery is worth a notice
SELECT type, (c).* FROM (SELECT type, check_type(type, samples) c FROM samples WHERE cardinality(samples) > 0) x ORDER BY type COLLATE "C";
RESET client_min_messages;

-- No type of the server is forgotten, but those whose input functions refuse everything.
SELECT typname FROM pg_type t
    WHERE typtype IN ('b', 'r', 'm') AND typnamespace = 'pg_catalog'::regnamespace AND typcategory <> 'A'
      AND typname NOT IN ('pg_node_tree', 'pg_ndistinct', 'pg_dependencies', 'pg_mcv_list', 'pg_brin_bloom_summary', 'pg_brin_minmax_multi_summary')
      AND NOT EXISTS (SELECT FROM samples s WHERE to_regtype(s.type) = t.oid)
    ORDER BY 1;

-- A domain that is NOT NULL, whole rows, arrays of arrays' element types.
CREATE FOREIGN TABLE t_odd (d t_text_domain, r samples, e t_enum[], c t_composite[][]) SERVER gstore_fdw;
INSERT INTO t_odd (r) SELECT s FROM samples s WHERE type IN ('bool', 'name') ORDER BY type;
INSERT INTO t_odd VALUES ('x', NULL, '{red,NULL}', ARRAY[ARRAY[ROW(1, 'a', 2)::t_composite]]);
INSERT INTO t_odd VALUES (NULL);
SELECT * FROM t_odd WHERE (r).type IS DISTINCT FROM 'name';
SELECT (r).samples[3] = repeat('n', 63) AS same FROM t_odd WHERE (r).type = 'name';

-- Pseudo-types and types without a fixed form are refused by the server itself.
\set VERBOSITY sqlstate
CREATE FOREIGN TABLE t_bad (x cstring) SERVER gstore_fdw;
CREATE FOREIGN TABLE t_bad (x record) SERVER gstore_fdw;
CREATE FOREIGN TABLE t_bad (x anyelement) SERVER gstore_fdw;
CREATE FOREIGN TABLE t_bad (x unknown) SERVER gstore_fdw;
\set VERBOSITY default

DROP FOREIGN TABLE t_odd;
DROP FUNCTION check_type, differences;
DROP TABLE samples;
DROP TYPE t_range, t_nested, t_composite, t_enum;
DROP DOMAIN t_domain, t_text_domain;
