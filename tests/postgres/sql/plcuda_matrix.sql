-- Matrices as arrays: shapes, aggregates, rows, and what is refused.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS plcuda;
RESET client_min_messages;
-- The SQLSTATE and the message of what must fail.
CREATE FUNCTION m_fails(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    RETURN concat_ws(' ', SQLSTATE, SQLERRM);
END $$;

-- Each type.
SELECT array_matrix(a > 1, a = 2) AS b FROM generate_series(1, 3) a;
SELECT array_matrix(a::int2, 2::int2) AS s, array_matrix(a, a * a) AS i, array_matrix(a::int8 << 40) AS l FROM generate_series(1, 3) a;
SELECT array_matrix(a::float4 / 4, 'NaN'::float4) AS f, array_matrix(a / 8.0::float8, '-Infinity') AS d FROM generate_series(1, 3) a;
-- Numeric values become double precision; one array a row, too.
SELECT array_matrix(a, 0.5) AS mixed, pg_typeof(array_matrix(a, 0.5)), array_matrix(VARIADIC ARRAY[a, 7]) FROM generate_series(1, 2) a;
SELECT array_matrix(a) IS NULL AS of_no_rows FROM generate_series(1, 0) a;
SELECT array_matrix(a, -a ORDER BY a DESC) AS ordered, array_matrix(a) FILTER (WHERE a % 2 = 0) AS some FROM generate_series(1, 4) a;
SELECT a % 2 AS rest, array_matrix(a, 0) FROM generate_series(1, 5) a GROUP BY 1 ORDER BY 1;
SELECT a, array_matrix(a) OVER (ORDER BY a) AS so_far FROM generate_series(1, 3) a;
-- Bits: bit n is bit n % 32 of word n / 32.
SELECT array_matrix(b) FROM (VALUES (B'1'), (B'0')) v (b);
SELECT array_matrix(b) FROM (VALUES (repeat('0', 31)::bit(31) || B'1' || B'01'), (repeat('1', 34)::bit(34))) v (b);
SELECT bool_and((m[i][1 + n / 32] >> (n % 32)) & 1 = get_bit(b, n)) AS same
FROM (SELECT array_agg(b ORDER BY i) AS bits, array_matrix(b ORDER BY i) AS m FROM (SELECT i, (('x' || encode(sha256(i::text::bytea), 'hex'))::bit(256))::bit(100) AS b FROM generate_series(1, 20) i) r) c,
    generate_series(1, 20) i, generate_series(0, 99) n, LATERAL (SELECT bits[i] AS b) x;

-- Shapes.
SELECT m, array_matrix_validation(m), array_ndims(m) FROM (VALUES ('{{1,2},{3,4}}'::int[]), ('{1,2}'), ('{}'), ('{{{1}}}'), ('{{1,NULL}}'), ('[0:0][1:2]={{1,2}}'), ('[1:1][2:3]={{1,2}}')) v (m);
SELECT array_matrix_validation('{{a}}'::text[]) AS of_text, array_matrix_validation('{{1}}'::numeric[]) AS of_numeric, array_matrix_validation(NULL::int[]) AS of_null;
SELECT array_matrix_height(m), array_matrix_width(m), transpose(m), transpose(transpose(m)) = m AS twice FROM (VALUES ('{{1,2,3},{4,5,6}}'::int[]), ('{{1}}'), ('{{1},{2}}')) v (m);
SELECT transpose('{{t,f,t}}'::bool[]), transpose('{{1,2,3}}'::int2[]), transpose('{{1},{2}}'::int8[]), transpose('{{0.5,-0}}'::float4[]), transpose('{{0.5},{NaN}}'::float8[]);
SELECT bool_and(m[r][c] = r * 1000 + c AND t[c][r] = m[r][c]) AS same, count(*)
FROM (SELECT m, transpose(m) AS t FROM (SELECT rbind(row ORDER BY r) AS m FROM (SELECT r, array_agg(r * 1000 + c ORDER BY c) AS row FROM generate_series(1, 70) r, generate_series(1, 45) c GROUP BY r) x) y) z,
    generate_series(1, 70) r, generate_series(1, 45) c;

-- Below and beside each other; what is missing is 0. A vector is a row to one and a column to the other.
SELECT rbind('{{1,2},{3,4}}'::int[], '{{5}}'), cbind('{{1,2},{3,4}}'::int[], '{{5}}'), rbind('{{1}}'::int[], '{{2,3}}'), cbind('{{1}}'::int[], '{{2},{3}}');
SELECT rbind('{1,2}'::int[], '{3,4,5}'), cbind('{1,2}'::int[], '{3,4,5}'), rbind('{}'::int[], '{{1}}'), cbind('{{1}}'::int[], '{}'), rbind('{}'::int[], '{}'), rbind(NULL::int[], '{{1}}');
SELECT rbind('{{1,2}}'::int[], '{{0.5}}'::float8[]) AS mixed, pg_typeof(rbind('{{1}}'::int2[], '{{2}}'::int8[])), rbind('{{t}}'::bool[], '{{t,t}}');
SELECT rbind(m ORDER BY n), cbind(m ORDER BY n) FROM (VALUES (1, '{{1,2},{3,4}}'::int[]), (2, NULL), (3, '{{5}}'), (4, '{}'), (5, '{{6}}'), (6, '{{7,8,9}}')) v (n, m);
SELECT rbind(m ORDER BY n), cbind(m ORDER BY n) FROM (VALUES (1, '{1,2}'::float4[]), (2, '{3}')) v (n, m);
SELECT rbind(m) IS NULL AS r, cbind(m) IS NULL AS c FROM (VALUES (NULL::int[])) v (m);
SELECT rbind('{}'::int[]), cbind('{}'::int[]) FROM generate_series(1, 2);
-- As functions of two arguments one after the other.
DO $$
DECLARE one float8[]; r float8[] := '{}'; c float8[] := '{}'; all_r float8[]; all_c float8[];
BEGIN
    PERFORM setseed(0.5);
    CREATE TEMP TABLE m_some AS SELECT i, (SELECT array_matrix(VARIADIC ARRAY(SELECT random() + 0 * i + 0 * j FROM generate_series(1, w))) FROM generate_series(1, h) j) AS m
        FROM (SELECT i, 1 + (random() * 4)::int AS w, 1 + (random() * 4)::int AS h FROM generate_series(1, 200) i) s;
    FOR one IN SELECT m FROM m_some ORDER BY i LOOP
        r := rbind(r, one);
        c := cbind(c, one);
    END LOOP;
    SELECT rbind(m ORDER BY i), cbind(m ORDER BY i) INTO all_r, all_c FROM m_some;
    RAISE INFO 'the same: % %, % rows, % columns', r = all_r, c = all_c, array_matrix_height(r) > 400, array_matrix_width(c) > 400;
END $$;

-- Rows.
SELECT * FROM matrix_unnest('{{1,2},{3,4}}'::int[]) AS (a int, b int);
SELECT a + b AS sum FROM matrix_unnest('{{0.5,1},{2,NaN}}'::float8[]) AS (a float8, b float8);
SELECT * FROM matrix_unnest('{{t,f}}'::bool[]) AS m (a bool, b bool), matrix_unnest('{{1},{-2}}'::int2[]) AS n (c int2), matrix_unnest('{{9223372036854775807}}'::int8[]) AS o (d int8), matrix_unnest('{{1e-40}}'::float4[]) AS p (e float4);
SELECT matrix_unnest('{{1,2},{3,4}}'::int[]);
SELECT count(*) FROM matrix_unnest(NULL::int[]) AS (a int);
SELECT m_fails(s) FROM unnest(ARRAY[$$SELECT * FROM matrix_unnest('{{1,2}}'::int[]) AS (a int)$$, $$SELECT * FROM matrix_unnest('{{1,2}}'::int[]) AS (a int, b int8)$$,
    $$SELECT * FROM matrix_unnest('{1,2}'::int[]) AS (a int)$$, $$SELECT matrix_unnest(rbind(ARRAY(SELECT generate_series(1, 1700)), '{}'))$$]) s;

-- What is refused.
SELECT s, m_fails('SELECT ' || s) FROM unnest(ARRAY[
    $$array_matrix(NULL::int)$$, $$array_matrix(1, NULL)$$, $$array_matrix(VARIADIC NULL::int[])$$, $$array_matrix(VARIADIC '{}'::int[])$$, $$array_matrix(VARIADIC '{{1}}'::int[])$$,
    $$array_matrix(NULL::bit)$$, $$array_matrix(''::varbit)$$, $$array_matrix('a'::text)$$,
    $$array_matrix(VARIADIC a) FROM (VALUES ('{1,2}'::int[]), ('{1}')) v (a)$$, $$array_matrix(b) FROM (VALUES (B'1'), (repeat('1', 33)::varbit)) v (b)$$,
    $$transpose('{1,2}'::int[])$$, $$transpose('{}'::int[])$$, $$transpose('{{1,NULL}}'::int[])$$, $$transpose('[0:0][1:1]={{1}}'::int[])$$, $$transpose('{{a}}'::text[])$$,
    $$array_matrix_height('{1,2}'::int[])$$, $$array_matrix_width('{{{1}}}'::int[])$$, $$rbind('{{{1}}}'::int[], '{{1}}')$$, $$cbind('{{1}}'::int[], '{{NULL}}')$$,
    $$rbind('{{a}}'::text[], '{{b}}'::text[])$$, $$rbind('{{a}}'::text[])$$,
    $$rbind(array_fill(1::float8, ARRAY[1, 50000]), array_fill(1::float8, ARRAY[50000, 1]))$$,
    $$cbind(array_fill(1::float8, ARRAY[1, 50000]), array_fill(1::float8, ARRAY[50000, 1]))$$,
    $$cbind(m) FROM (VALUES (array_fill(1::int2, ARRAY[1, 50000])), (array_fill(1::int2, ARRAY[50000, 1]))) v (m)$$,
    $$rbind(m) FROM (VALUES (array_fill(1::int2, ARRAY[1, 50000])), (array_fill(1::int2, ARRAY[50000, 1]))) v (m)$$]) s;

-- As many bits as may be are more words of 32 than a number of 32 bits can be rounded up to.
DO $$
DECLARE v varbit := 0::bit(67108864);
BEGIN
    FOR i IN 1..4 LOOP
        v := v || v;
    END LOOP;
    v := v || substring(v FROM 1 FOR length(v) - 20);
    PERFORM array_matrix(b) FROM (VALUES (B'1'::varbit), (v)) r (b);
EXCEPTION WHEN OTHERS THEN
    RAISE INFO '% % %', length(v), SQLSTATE, SQLERRM;
END $$;
-- A million rows, also of many shapes. The time grows as their number does: otherwise this file would not end in time.
DO $$
DECLARE m int[]; c int[]; v float8[];
BEGIN
    SELECT array_matrix(i, -i, i % 7) INTO m FROM generate_series(1, 1000000) i;
    SELECT cbind(ARRAY[[i], [2 * i]]) INTO c FROM generate_series(1, 1000000) i;
    SELECT rbind(CASE i % 2 WHEN 0 THEN ARRAY[i::float8] ELSE ARRAY[i, -0.5] END) INTO v FROM generate_series(1, 1000000) i;
    RAISE INFO '% x %, % x %, % x %', array_matrix_height(m), array_matrix_width(m), array_matrix_height(c), array_matrix_width(c), array_matrix_height(v), array_matrix_width(v);
    RAISE INFO '% % % %', m[1000000:], c[1:2][1000000:], v[999999:], (SELECT sum(a + b + r) FROM matrix_unnest(m) AS (a int, b int, r int));
    RAISE INFO '% %', transpose(c) = (SELECT array_matrix(i, 2 * i) FROM generate_series(1, 1000000) i), transpose(transpose(m)) = m;
END $$;
-- In parallel queries: nothing forbids a plan with workers, and the rows of one Gather are all there.
CREATE TABLE m_heap AS SELECT i FROM generate_series(1, 10000) i;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
EXPLAIN (COSTS off) SELECT array_matrix(i) FROM m_heap WHERE array_matrix_validation(ARRAY[[i]]);
SELECT array_matrix_height(m), (SELECT sum(a) FROM matrix_unnest(m) AS (a int)) FROM (SELECT array_matrix(i) AS m FROM m_heap WHERE array_matrix_validation(ARRAY[[i]])) x;

SET client_min_messages = warning;
DROP TABLE m_heap, m_some;
DROP EXTENSION plcuda CASCADE;
DROP FUNCTION m_fails;
