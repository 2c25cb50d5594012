-- Conditions on texts whatever the case of their letters, on their first characters, and on COALESCE of them, on the GPU, beside the same over a heap and without the GPU.
-- a and v have ASCII alone, t and b other characters as well; those of c are under "C", where these have no cases.
CREATE TABLE lh (id int, a text, v varchar(20), t text, b char(8), c text COLLATE "C", k int);
CREATE FOREIGN TABLE lg (id int, a text, v varchar(20), t text, b char(8), c text COLLATE "C", k int) SERVER gstore_fdw;
CREATE FOREIGN TABLE la (id int, a text, v varchar(20), t text, b char(8), c text COLLATE "C", k int) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO lh
SELECT i, CASE WHEN i % 11 <> 0 THEN (ARRAY['Apple', 'apple pie', 'APPLE', '', '@Z[a`z{', 'banana Split', 'BANANA', 'x_Y', 'x%y', 'aBcDeFgHiJkLmNoPqRsTuVwXyZ', 'ABCDEFGHI', 'abcdefgh'])[i % 12 + 1] END,
    CASE WHEN i % 7 <> 0 THEN chr(65 + i % 58) || chr(32 + i % 95) || i % 9 END, CASE WHEN i % 5 <> 0 THEN (ARRAY['É', 'Éa', 'éA', 'a€b', 'A€B', 'K', 'k', 'ſ', 'S', 'İ', 'i', 'I', 'apple'])[i % 13 + 1] END,
    (ARRAY['Ab', 'aB', 'AB', 'ab c', 'É', ''])[i % 6 + 1], CASE WHEN i % 5 <> 0 THEN (ARRAY['É', 'Éa', 'éA', 'a€b', 'A€B', 'K', 'k', 'ſ', 'S', 'İ', 'i', 'I', 'apple'])[i % 13 + 1] END, i % 10
FROM generate_series(1, 2500) i;
INSERT INTO lg SELECT * FROM lh;
INSERT INTO la SELECT * FROM lh;
SET test.tables = 'l';
SET test.node = '"GPU';
SET test.ordered = off;
SET test.shown = '80 40';
\getenv abs_srcdir PG_ABS_SRCDIR
\set include :abs_srcdir '/sql_include/query_same.sql'
\i :include
CREATE FUNCTION met(VARIADIC conditions text[]) RETURNS text LANGUAGE sql AS $$
    SELECT same('SELECT ' || string_agg('count(*) FILTER (WHERE ' || c || ')', ', ') || ' FROM q') FROM unnest(conditions) c
$$;

-- Of ASCII, and under "C".
SELECT x, met('lower(' || x || ') = ''apple''', 'upper(' || x || ') = ''APPLE''', 'lower(' || x || ') = ''APPLE''', 'upper(' || x || ') = ''x%y''', 'lower(' || x || ') <> ''abcdefghi''', 'upper(' || x || ') IN (''APPLE'', ''BANANA'', ''I'', ''É'')', 'lower(' || x || ') NOT IN (''apple'', ''k'')', 'lower(' || x || ') LIKE ''%a_p%''', 'upper(' || x || ') LIKE ''%PL%E''', 'upper(' || x || ') NOT LIKE ''a%''', 'starts_with(lower(' || x || '), ''ab'')', 'lower(' || x || ') IS DISTINCT FROM ''k''', 'lower(' || x || ') = ''É''')
FROM unnest('{a,v,c}'::text[]) x;
SELECT x, met(x || ' ILIKE ''APP%''', x || ' ILIKE ''%SPLIT''', x || ' NOT ILIKE ''%b%''', x || ' ILIKE ''x\_y''', x || ' ILIKE ''X%y''', x || ' ILIKE ''aPPle''', x || ' ILIKE ''@Z[A`_{''', x || ' ILIKE ''%''', x || ' ILIKE ''É%''', x || ' ILIKE ''%€b''', x || ' ILIKE ''_''', x || ' ILIKE NULL', x || ' ILIKE ''%m%z%''', x || ' ILIKE ''i''')
FROM unnest('{a,v,c}'::text[]) x;
SELECT same('SELECT id, a FROM q WHERE a ILIKE ''%an%'' AND k > 3'), same('SELECT count(*) FROM q WHERE a ILIKE (SELECT ''%AN%'')'), same('SELECT lower(a), count(*) FROM q GROUP BY 1'), same('SELECT sum(length(lower(a))) FROM q', NULL), same('SELECT count(*) FROM q WHERE lower(upper(a)) = ''apple''', NULL), same('SELECT count(*) FROM q WHERE a ILIKE ''x\''');
SELECT same('SELECT count(*) FROM q WHERE b ILIKE ''AB%'' COLLATE "C"'), same('SELECT count(*) FROM q WHERE lower(b COLLATE "C") = ''ab'''), same('SELECT count(*) FROM q WHERE t ILIKE ''É%'' COLLATE "C"'), same('SELECT count(*) FROM q WHERE upper(t COLLATE "C") IN (''éA'', ''ÉA'', ''A€B'')');
-- Where other characters have cases, too, the local plan has the query.
SELECT same('SELECT count(*) FROM q WHERE t ILIKE ''k''', 'by the local plan: a row raises an error, or a sum may'), same('SELECT count(*) FROM q WHERE lower(t) = ''éa''', 'by the local plan: a row raises an error, or a sum may'), same('SELECT count(*) FROM q WHERE upper(t) LIKE ''S%''', 'by the local plan: a row raises an error, or a sum may'), same('SELECT count(*) FROM q WHERE k > 10 AND lower(t) = ''i'''), same('SELECT count(*) FROM q WHERE t IN (''i'', ''I'') AND lower(t) = ''i''');
-- There the letters of ASCII have other cases, where PostgreSQL has such collations.
CREATE FUNCTION l_turkish() RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
    CREATE COLLATION l_turkish (provider = icu, locale = 'tr');
    RETURN same('SELECT count(*) FROM q WHERE lower(a COLLATE l_turkish) = ''apple''', NULL) !~ '\[|not' AND same('SELECT count(*) FROM q WHERE a ILIKE ''%i%'' COLLATE l_turkish', NULL) !~ '\[|not'
        AND same('SELECT count(*) FROM q WHERE a LIKE ''%I%'' COLLATE l_turkish') !~ '\[|not';
EXCEPTION WHEN feature_not_supported THEN
    RETURN true;
END $$;
SELECT l_turkish();
-- The first characters.
SELECT met('left(a, 2) = ''Ap''', 'left(a, 2) <> ''Ap''', 'left(t, 2) = ''Éa''', 'left(t, 1) = ''É''', 'left(a, 3) = ''x''', 'left(a, 0) = ''''', 'left(a, 2) = ''App''', 'substr(a, 1, 3) = ''ABC''', 'substring(a FROM 1 FOR 3) = ''APP''', 'substring(v, 1, 1) = ''a''', '''é'' = left(c, 1)', 'left(lower(a), 3) = ''app''', 'left(a, 3) IS DISTINCT FROM ''App''', 'left(b, 3) = ''Ab''', 'left(a, 5) = NULL', 'left(a, 5) = ''x_Y''', 'left(a, 4) = ''''');
SELECT same('SELECT count(*) FROM q WHERE left(a, -2) = ''App''', NULL), same('SELECT count(*) FROM q WHERE substr(a, 2, 2) = ''pp''', NULL), same('SELECT count(*) FROM q WHERE left(a, k) = ''A''', NULL), same('SELECT count(*) FROM q WHERE left(a, 2) LIKE ''A%''', NULL), same('SELECT count(*) FROM q WHERE left(a, k) IN (''Ap'', ''AB'')', NULL);
SELECT met('left(a, 2) IN (''Ap'', ''AB'')', 'left(a, 2) NOT IN (''Ap'', ''AB'')', 'left(a, 2) NOT IN (''Ap'', NULL, ''AB'')', 'left(a, 2) IN (''Ap'', NULL, ''AB'')', 'left(t, 1) = ANY (''{É,A}'')', 'left(a, 5) IN (''x_Y'', ''apple'', ''longer'', '''')', 'left(a, 5) IN (''longer'', ''longest'')', 'left(a, 3) = ANY (''{}'')', 'left(a, 3) <> ALL (''{}'')', 'left(a, 3) = ANY (''{NULL}'')', 'substr(lower(a), 1, 3) IN (''app'', ''abc'')', 'left(a, 0) IN ('''', ''A'')', 'left(c, 1) IN (''é'', ''a'')');
-- COALESCE.
SELECT met('coalesce(a, '''') = ''''', 'coalesce(a, '''') <> ''''', 'coalesce(a, ''x'') = ''x''', 'coalesce(a, ''none'') LIKE ''n%''', 'coalesce(a, ''none'') ILIKE ''%A%''', 'coalesce(v, '''') = ''''', 'coalesce(t, a, '''') = ''APPLE''', 'coalesce(lower(a), ''APPLE'') = ''apple''', 'coalesce(a, NULL) = ''apple''', 'coalesce(a, ''b'') NOT LIKE ''%p%''');
-- A comparison of constants that raises an error: only if a row comes to it.
SELECT same('SELECT count(*) FROM q WHERE id < 0 AND coalesce(a, ''x'') LIKE ''\'''), same('SELECT count(*) FROM q WHERE coalesce(a, ''x'') ILIKE ''x\''', NULL);
SELECT same('SELECT count(*) FROM q WHERE coalesce(a, (SELECT ''x'')) = ''x''', NULL), same('SELECT count(*) FROM q WHERE coalesce(a, t) = (SELECT ''apple'')', NULL);
-- Joins, UPDATE and DELETE.
SELECT same('SELECT count(*) FROM q x JOIN q y ON x.id = y.id + 1 AND lower(y.a) = ''apple'' WHERE x.a ILIKE ''%pie''');
DELETE FROM lh WHERE a ILIKE 'APPLE%';
DELETE FROM lg WHERE a ILIKE 'APPLE%';
DELETE FROM la WHERE a ILIKE 'APPLE%';
SELECT same('SELECT count(*) FROM q WHERE k < 9');
DROP FOREIGN TABLE lg, la;
DROP TABLE lh;
DROP FUNCTION same, place, answer, met, l_turkish;
SET client_min_messages = warning;
DROP COLLATION IF EXISTS l_turkish;
