-- Joins on the GPU without keys: of all rows, of ranges and other conditions; and by keys of two words, uuid, and decimals.
CREATE TABLE f_h (id int, x int, y float8, d date, n numeric(12, 2), wide numeric(30, 2), u uuid);
INSERT INTO f_h SELECT i, CASE WHEN i % 11 <> 0 THEN i % 100 END, (i % 64) / 8.0, date '2000-01-01' + i % 50, CASE WHEN i % 13 <> 0 THEN (i % 40) * -1.01 END, (i % 40) * 1.25,
    CASE WHEN i % 5 <> 0 THEN md5((i % 90)::text)::uuid END FROM generate_series(1, 3000) i;
-- Ranges that touch, lie within others, have no end, and are empty.
CREATE TABLE b_h (k int, low int, high int, since date, n numeric(10, 2), other numeric(12, 3), u uuid);
INSERT INTO b_h SELECT i, i * 10, i * 10 + 9, date '2000-01-01' + i, i * -1.01, i * 1.25, md5(i::text)::uuid FROM generate_series(0, 19) i;
INSERT INTO b_h VALUES (20, 25, 65, NULL, -1.01, 1, md5('3')::uuid), (21, NULL, 40, 'infinity', NULL, NULL, NULL), (22, 9, 3, '2000-01-09', 0, 0, md5('x')::uuid), (23, 0, 1000, '-infinity', -39.39, 0, md5('0')::uuid);
CREATE TABLE e_h (k int, low int, high int, since date, n numeric(10, 2), other numeric(12, 3), u uuid);
-- Comparisons with the heap: answer(), place(), same_join(); the same tables in GPU memory, in both formats.
SET test.node = '"GPU Join":';
SET test.ordered = off;
SET test.shown = '60 40';
\getenv abs_srcdir PG_ABS_SRCDIR
\set include :abs_srcdir '/sql_include/query_same.sql'
\i :include
\set include :abs_srcdir '/sql_include/query_join_same.sql'
\i :include
SELECT copy_tables('{f,b,e}');

EXPLAIN (COSTS OFF) SELECT count(*), sum(x) FROM f_g, b_g;
EXPLAIN (COSTS OFF) SELECT k, count(*) FROM f_g JOIN b_g ON x BETWEEN low AND high WHERE y < 4 GROUP BY k;
EXPLAIN (COSTS OFF) SELECT count(*) FROM f_g LEFT JOIN b_g ON x > low AND d < since AND k < 22;
-- Of all rows.
SELECT same_join(q) FROM unnest('{
"SELECT count(*), sum(x), sum(k) FROM f@, b@",
"SELECT count(*), sum(x), sum(k) FROM f@, b@ WHERE k < 3 AND x > 50",
"SELECT k, count(*), max(y) FROM f@ CROSS JOIN b@ GROUP BY k",
"SELECT count(*) FROM f@, e@",
"SELECT count(*), count(k) FROM f@ LEFT JOIN e@ ON true",
"SELECT count(*), count(k) FROM f@ LEFT JOIN b@ ON true",
"SELECT count(*) FROM f@ WHERE EXISTS (SELECT FROM b@ WHERE low > x)",
"SELECT count(*) FROM f@, b@ one, b@ two WHERE one.k + two.k = 7 AND x = one.k"}'::text[]) q;
-- Of ranges and other conditions.
SELECT same_join(q) FROM unnest('{
"SELECT count(*), sum(k) FROM f@ JOIN b@ ON x BETWEEN low AND high",
"SELECT k, count(*), sum(y) FROM f@ JOIN b@ ON x BETWEEN low AND high GROUP BY k",
"SELECT count(*), sum(k) FROM f@ JOIN b@ ON d > since",
"SELECT count(*), sum(k) FROM f@ JOIN b@ ON x <> low AND y < k",
"SELECT count(*), sum(k), count(k) FROM f@ LEFT JOIN b@ ON x BETWEEN low AND high AND k > 3",
"SELECT count(*) FROM f@ WHERE NOT EXISTS (SELECT FROM b@ WHERE x BETWEEN low AND high)",
"SELECT count(*) FROM f@ WHERE NOT EXISTS (SELECT FROM b@ WHERE x BETWEEN low AND high AND k < 8 AND d < since)",
"SELECT count(*) FROM f@ WHERE EXISTS (SELECT FROM b@ WHERE x > high AND since IS NOT NULL)",
"SELECT count(*), sum(one.k - two.k) FROM f@ JOIN b@ one ON x BETWEEN one.low AND one.high JOIN b@ two ON d = two.since",
"SELECT count(*) FROM f@ JOIN b@ ON x / (k - 5) > 3",
"SELECT one.k, two.k, count(*) FROM f@ JOIN b@ one ON x >= one.low JOIN b@ two ON x < two.high GROUP BY 1, 2"}'::text[]) q;
-- Keys of two words, and decimals: of one scale, of two, wide ones.
SELECT same_join(q) FROM unnest('{
"SELECT count(*), sum(k) FROM f@ JOIN b@ USING (u)",
"SELECT k, count(*) FROM f@ JOIN b@ USING (u) GROUP BY k",
"SELECT count(*), count(k) FROM f@ LEFT JOIN b@ USING (u)",
"SELECT count(*) FROM f@ WHERE NOT EXISTS (SELECT FROM b@ WHERE u = f@.u)",
"SELECT count(*), sum(k) FROM f@ JOIN b@ ON f@.n = b@.n",
"SELECT count(*), sum(k) FROM f@ JOIN b@ ON f@.n = b@.n AND f@.u = b@.u",
"SELECT count(*), sum(k) FROM f@ JOIN b@ ON f@.wide = b@.n",
"SELECT count(*), sum(k) FROM f@ JOIN b@ ON f@.wide = b@.other",
"SELECT count(*), sum(k) FROM f@ JOIN b@ ON f@.n + 1 = b@.n"}'::text[]) q;
-- Eight words of keys; another equality is a condition.
EXPLAIN (COSTS OFF) SELECT count(*) FROM f_g f JOIN b_g b ON x = k AND x + 1 = k + 1 AND x + 2 = k + 2 AND x + 3 = k + 3 AND x + 4 = k + 4 AND x + 5 = k + 5 AND x + 6 = k + 6 AND x + 7 = k + 7 AND x + 8 = k + 8;
SELECT same_join('SELECT count(*), sum(k) FROM f@ f JOIN b@ b ON x = k AND x + 1 = k + 1 AND x + 2 = k + 2 AND x + 3 = k + 3 AND x + 4 = k + 4 AND x + 5 = k + 5 AND x + 6 = k + 6 AND x + 7 = k + 7 AND x + 8 = k + 8'),
    same_join('SELECT count(*), sum(k) FROM f@ f JOIN b@ b ON f.u = b.u AND x = k AND x + 1 = k + 1 AND x + 2 = k + 2 AND x + 3 = k + 3 AND x + 4 = k + 4 AND x + 5 = k + 5 AND x + 6 = k + 6');
-- Rows as results.
SELECT same_join(q) FROM unnest('{
"SELECT id, k FROM f@ JOIN b@ ON x BETWEEN low AND high WHERE id < 50",
"SELECT id, k, low FROM f@ LEFT JOIN b@ ON y = k AND x > high WHERE id % 30 = 1",
"SELECT id, k FROM f@ JOIN b@ USING (u) WHERE id < 400"}'::text[]) q;

DROP TABLE f_h, b_h, e_h;
DROP FOREIGN TABLE f_g, b_g, e_g, f_a, b_a, e_a;
DROP FUNCTION answer, place, same, same_join, copy_tables;
