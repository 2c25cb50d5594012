-- Groups on the GPU beyond GROUP BY of one table: the first of them in an order, partial aggregates of partitions, DISTINCT, statistics.
SET max_parallel_workers_per_gather = 0;
SET gstore_fdw.gpu_startup_cost = 0;
SET gstore_fdw.gpu_instruction_cost = 0;
CREATE TABLE gh (id int, k int, k2 int2, i4 int, i8 int8, f4 float4, f8 float8, b bool, d date, note text);
CREATE FOREIGN TABLE gg (id int, k int, k2 int2, i4 int, i8 int8, f4 float4, f8 float8, b bool, d date, note text) SERVER gstore_fdw;
INSERT INTO gh
SELECT i, nullif(i * 7919 % 500, 13), i % 3, CASE WHEN i % 11 <> 0 THEN i * 37 % 1000 - 500 END,
    CASE WHEN i % 13 <> 0 THEN (i * 7919 % 500 - 250) * 36893488147419103 END, (i % 64) / 4.0, CASE WHEN i % 500 <> 6 THEN (i % 1024) / 8.0 - 50 END,
    CASE WHEN i % 3 <> 0 THEN i % 4 = 1 END, date '1999-12-01' + i % 60, 'note ' || i
FROM generate_series(1, 6000) i;
-- Groups whose arguments are NULL alone, or not finite.
INSERT INTO gh SELECT 7000 + i, 1000 + i / 2, i % 3, NULL, NULL, NULL, CASE i WHEN 2 THEN 'nan'::float8 WHEN 4 THEN 'infinity' WHEN 6 THEN '-infinity' END, NULL, NULL, NULL FROM generate_series(0, 8) i;
INSERT INTO gg SELECT * FROM gh;

-- What a query returns in its order, or its error.
CREATE FUNCTION listed(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    out text;
BEGIN
    EXECUTE 'SELECT string_agg(r::text, '' '') FROM (' || query || ') r' INTO out;
    RETURN coalesce(out, 'no rows');
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
CREATE FUNCTION plan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    plan text;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ' || query INTO plan;
    RETURN plan;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLERRM;
END $$;
-- Of a query FROM q: the heap's rows, if the table has the same, with and without the GPU; and what the GPU did not do of it: the order, or all.
CREATE FUNCTION same(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    heap text := listed(regexp_replace(query, '\mFROM q\M', 'FROM gh', 'g'));
    plan text;
    note text := '';
BEGIN
    query := regexp_replace(query, '\mFROM q\M', 'FROM gg', 'g');
    IF listed(query) <> heap THEN
        RETURN 'on the GPU: ' || listed(query) || ' and not ' || heap;
    END IF;
    plan := plan_of(query);
    IF plan !~ '"Ran": "(on the GPU|nowhere)' THEN
        note := ' [not on the GPU]';
    ELSIF query ~ 'LIMIT' AND plan !~ '"GPU Sort Key"' THEN
        note := ' [order not on the GPU]';
    END IF;
    SET LOCAL gstore_fdw.gpu_queries = off;
    IF listed(query) <> heap THEN
        RETURN listed(query) || ' and not ' || heap;
    END IF;
    SET LOCAL gstore_fdw.gpu_queries = on;
    RETURN CASE WHEN length(heap) > 90 THEN left(heap, 60) || '... ' || md5(heap) ELSE heap END || note;
END $$;

-- The first groups.
EXPLAIN (COSTS OFF) SELECT k, count(*) FROM gg GROUP BY k ORDER BY count(*) DESC, k LIMIT 10;
EXPLAIN (VERBOSE, COSTS OFF) SELECT k + 1, count(*) * 2, sum(i8) FROM gg WHERE i4 > 0 GROUP BY k HAVING max(i4) > 100 ORDER BY sum(i8) DESC NULLS LAST, max(i4) - min(i4), k LIMIT 5 OFFSET 2;
SELECT same('SELECT k, count(*) FROM q GROUP BY k ORDER BY count(*) DESC, k LIMIT 10');
SELECT same('SELECT k, count(*) FROM q GROUP BY k ORDER BY ' || o || ', k LIMIT ' || l) FROM unnest('{count(*),count(i4) DESC,count(f8) NULLS FIRST}'::text[]) o, unnest('{1,7,499,10000}'::int[]) l;
SELECT o, same('SELECT k, sum(i4), sum(i8), min(f8), max(d) FROM q GROUP BY k ORDER BY ' || o || ', k LIMIT 20')
FROM unnest('{sum(i4),sum(i4) DESC,sum(i4) NULLS FIRST,sum(i8),sum(i8) DESC,sum(i8) DESC NULLS LAST,sum(i8) NULLS FIRST,min(f8),max(f8) DESC,max(d) DESC NULLS LAST,min(d),sum(f8),sum(f4) DESC,avg(f8),avg(f4) DESC NULLS LAST,bool_or(b),bit_xor(i4)}'::text[]) o;
SELECT o, same('SELECT k, k2, max(id) FROM q GROUP BY k, k2 ORDER BY ' || o || ' LIMIT 30 OFFSET 5')
FROM unnest('{"k, k2","k DESC, k2","k NULLS FIRST, k2 DESC","k2, k DESC NULLS LAST","k2 DESC, max(id)","max(id) - min(id), k, k2","k + k2, k"}'::text[]) o;
-- By what is computed of a key that is an expression.
SELECT o, same('SELECT i4 % 7, count(*) FROM q GROUP BY i4 % 7 ORDER BY ' || o || ' LIMIT 4') FROM unnest('{"(i4 % 7) * 2","abs(i4 % 7 - 3), 1","count(*) % 5 + (i4 % 7), 1"}'::text[]) o;
-- Doubles whose keys have the bits of NaNs.
SELECT same('SELECT k, min(CASE k WHEN 1 THEN ''-5e-324'' WHEN 2 THEN ''5e-324'' WHEN 3 THEN ''-1e-300'' WHEN 4 THEN ''-0'' WHEN 5 THEN ''-infinity'' WHEN 6 THEN ''nan'' ELSE k::float8 END) + 0 AS m FROM q WHERE k < 9 GROUP BY k ORDER BY min(CASE k WHEN 1 THEN ''-5e-324'' WHEN 2 THEN ''5e-324'' WHEN 3 THEN ''-1e-300'' WHEN 4 THEN ''-0'' WHEN 5 THEN ''-infinity'' WHEN 6 THEN ''nan'' ELSE k::float8 END), k LIMIT 9');
-- HAVING.
SELECT h, same('SELECT k, count(*) FROM q GROUP BY k HAVING ' || h || ' ORDER BY count(*), k LIMIT 8')
FROM unnest('{"count(*) > 12","count(*) > 12 AND k > 100","sum(i4) > 0 OR k IS NULL","min(f8) < -40","avg(f8) > 50","k BETWEEN 10 AND 20","max(i4) - min(i4) > 900","bool_or(b)","sum(i4) IS NULL","max(d) = ''2000-01-29''","count(*) > 1000000"}'::text[]) h;
SELECT same('SELECT k FROM q GROUP BY k HAVING count(*) > 10 ORDER BY 1000 / (k - 20), k LIMIT 3'), same('SELECT k FROM q WHERE k <> 20 GROUP BY k HAVING count(*) > 10 ORDER BY 1000 / (k - 20), k LIMIT 3');
-- HAVING without an order, too.
EXPLAIN (COSTS OFF) SELECT k, count(*) FROM gg GROUP BY k HAVING count(*) < 12;
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT k2, max(i4) FROM gg GROUP BY k2 HAVING sum(k) > 0 AND k2 <> 1;
SELECT same('SELECT sum(n), count(*) FROM (SELECT k, count(*) AS n FROM q GROUP BY k HAVING ' || h || ') s') FROM unnest('{"count(*) < 12","sum(i8) > 0","count(*)::numeric < 12","1000 / (k - 20) > 100","k IS NULL","false","count(*) > (SELECT 11)"}'::text[]) h;
SELECT g, (SELECT count(*) FROM (SELECT k FROM gg GROUP BY k HAVING sum(i4) > g) s) FROM unnest('{0,1000,NULL}'::int[]) g;
-- What is left to PostgreSQL: an order of rounded values, of texts, that which needs more than the first rows.
SELECT same('SELECT k, avg(i4) FROM q GROUP BY k ORDER BY avg(i4), k LIMIT 3'), same('SELECT k, count(*) FROM q GROUP BY k HAVING count(*)::numeric / 2 > 6 ORDER BY count(*), k LIMIT 3');
EXPLAIN (COSTS OFF) SELECT k2, count(*) FROM gg GROUP BY k2 ORDER BY count(*) FETCH FIRST 1 ROW WITH TIES;
SELECT same('SELECT k2, count(*) FROM q WHERE id <= 3000 GROUP BY k2 ORDER BY count(*), k2 FETCH FIRST 1 ROW ONLY');
SELECT * FROM (SELECT k2, count(*) FROM gg WHERE id <= 3000 GROUP BY k2 ORDER BY count(*) FETCH FIRST 1 ROW WITH TIES) s ORDER BY k2;
-- Limits that are known when the query runs, or are none.
PREPARE first_groups (int8, int8) AS SELECT k, count(*) FROM gg GROUP BY k ORDER BY count(*) DESC, k LIMIT $1 OFFSET $2;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE first_groups (3, 1);
EXECUTE first_groups (3, 1);
EXECUTE first_groups (2, NULL);
EXECUTE first_groups (0, 0);
EXECUTE first_groups (-1, 0);
PREPARE all_groups (int8) AS SELECT count(*), md5(string_agg(k || ' ' || n, ',')) FROM (SELECT k, count(*) AS n FROM gg GROUP BY k ORDER BY count(*) DESC, k LIMIT $1) s;
EXECUTE all_groups (NULL);
EXECUTE all_groups (9223372036854775807);
RESET plan_cache_mode;
SELECT count(*), md5(string_agg(k || ' ' || n, ',')) FROM (SELECT k, count(*) AS n FROM gh GROUP BY k ORDER BY count(*) DESC, k) s;
-- Rows again, by parameters of an outer query, of cursors, of groups that have none.
SELECT g, t.* FROM generate_series(0, 2) g, LATERAL (SELECT k, count(*) AS n FROM gg WHERE k2 = g GROUP BY k ORDER BY n DESC, k LIMIT 2) t;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT k, count(*) FROM gg GROUP BY k ORDER BY count(*) DESC, k LIMIT 4;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH ALL FROM c;
COMMIT;
SELECT same('SELECT k, count(*) FROM q WHERE id < 0 GROUP BY k ORDER BY count(*) LIMIT 3');
-- No room: the local plan, in the same order.
SET gstore_fdw.gpu_query_memory = 1;
SELECT same('SELECT id, k, count(*) FROM q GROUP BY id, k ORDER BY k DESC, count(*), id LIMIT 3'), same('SELECT id, k, count(*) FROM q GROUP BY id, k ORDER BY max(i4) - min(i4), k DESC NULLS LAST, id LIMIT 3'), same('SELECT id + 1, k, count(*) FROM q GROUP BY id + 1, k ORDER BY (max(i4) - min(i4)) + (id + 1) % 10 DESC NULLS LAST, k, -(id + 1) LIMIT 3');
RESET gstore_fdw.gpu_query_memory;
SET gstore_fdw.gpu_order = off;
EXPLAIN (COSTS OFF) SELECT k, count(*) FROM gg GROUP BY k ORDER BY count(*) DESC LIMIT 10;
RESET gstore_fdw.gpu_order;
-- The local plan makes no hash table for so many groups before it runs.
CREATE FOREIGN TABLE gm (id int) SERVER gstore_fdw;
INSERT INTO gm SELECT generate_series(1, 200000);
ANALYZE gm;
SET work_mem = '64MB';
BEGIN;
DECLARE c CURSOR FOR SELECT id, count(*) AS n FROM gm GROUP BY id ORDER BY n, id LIMIT 2;
FETCH ALL FROM c;
SELECT count(*), sum(total_bytes) < 500000 AS small FROM pg_backend_memory_contexts WHERE name = 'HashAgg meta context';
ROLLBACK;
SET gstore_fdw.gpu_query_memory = 1;
SELECT count(*), sum(n) FROM (SELECT id, count(*) AS n FROM gm GROUP BY id) s;
SET work_mem = 64;
SELECT count(*), sum(n) FROM (SELECT id, count(*) AS n FROM gm GROUP BY id) s;
RESET work_mem;
RESET gstore_fdw.gpu_query_memory;
DROP FOREIGN TABLE gm;

-- DISTINCT.
EXPLAIN (COSTS OFF) SELECT DISTINCT k2, b FROM gg WHERE k < 100;
EXPLAIN (COSTS OFF) SELECT DISTINCT k FROM gg ORDER BY k DESC NULLS LAST LIMIT 3;
SELECT same('SELECT DISTINCT k2, b FROM q ORDER BY k2, b'), same('SELECT DISTINCT k, d FROM q WHERE k < 40 ORDER BY k, d'), same('SELECT DISTINCT k FROM q ORDER BY k DESC NULLS LAST LIMIT 3'), same('SELECT DISTINCT i4 % 7 AS m FROM q ORDER BY m'), same('SELECT DISTINCT k2 + 1, k2 * 2 FROM q ORDER BY 1');
SELECT same('SELECT count(*), sum(k) FROM (SELECT DISTINCT k, k2 FROM q) s');
-- By columns that are none of the keys, of doubles, of groups: as ever.
SELECT plan_of('SELECT DISTINCT ON (k2) k2, id FROM gg ORDER BY k2, id') ~ '"GPU":', plan_of('SELECT DISTINCT f8 FROM gg') ~ '"GPU":', plan_of('SELECT DISTINCT initcap(note) FROM gg') ~ '"GPU":';
SELECT same('SELECT DISTINCT count(*) FROM q GROUP BY k ORDER BY 1');

-- DISTINCT within aggregates.
EXPLAIN (COSTS OFF) SELECT k2, count(DISTINCT k), count(*) FROM gg GROUP BY k2 ORDER BY count(DISTINCT k) DESC LIMIT 2;
EXPLAIN (COSTS OFF) SELECT count(DISTINCT d), sum(DISTINCT d - '2000-01-01') FROM gg;
SELECT same('SELECT count(DISTINCT ' || x || ') FROM q'), same('SELECT k2, b, count(DISTINCT ' || x || ') FROM q GROUP BY k2, b ORDER BY k2, b'), same('SELECT k, count(DISTINCT ' || x || ') FROM q GROUP BY k ORDER BY 2 DESC, k DESC LIMIT 12')
FROM unnest('{i4,i8,d,b,k,i4 % 5,3}'::text[]) x;
SELECT same('SELECT count(DISTINCT i4), sum(DISTINCT i4), avg(DISTINCT i4), min(DISTINCT i4), max(DISTINCT i8), bool_or(DISTINCT b) FROM q'), same('SELECT sum(DISTINCT i8), avg(DISTINCT i8), count(DISTINCT i8) FROM q'), same('SELECT count(DISTINCT i4), sum(DISTINCT i4), avg(DISTINCT i8) FROM q WHERE id < 0'), same('SELECT sum(DISTINCT i4), count(*) FROM q WHERE i4 IS NULL');
SELECT same('SELECT k2, count(DISTINCT k), count(*), count(i4), sum(i4), avg(i4), sum(i8), avg(i8), min(f8), max(d), sum(f4), avg(f4), bool_and(b), bit_xor(i4), bit_or(i8), stddev(i4), count(*) FILTER (WHERE b), sum(i8) FILTER (WHERE i4 > 0) FROM q GROUP BY k2 ORDER BY k2');
SELECT same('SELECT count(DISTINCT k2), count(*), sum(i8), sum(-(i8 / 3)), avg(i8), sum(i4), var_pop(i4) FROM q'), same('SELECT b, count(DISTINCT k2), sum(i8) FROM q GROUP BY b ORDER BY sum(i8) DESC, b LIMIT 2'), same('SELECT k, count(DISTINCT i4), sum(i4) FROM q GROUP BY k HAVING count(DISTINCT i4) > 11 AND sum(i4) > 0 ORDER BY sum(i4), k LIMIT 4');
SELECT same('SELECT count(DISTINCT f8), count(f8) FROM q'), same('SELECT count(DISTINCT f8 * 0) FROM q'), same('SELECT k2, count(DISTINCT CASE WHEN b THEN ''-0'' ELSE f4 * 0 END) FROM q GROUP BY k2 ORDER BY k2'), same('SELECT count(DISTINCT CASE i4 % 3 WHEN 0 THEN ''nan'' WHEN 1 THEN -''nan''::float8 END) FROM q');
-- Of two arguments, of some rows, sums of doubles: as ever.
SELECT same('SELECT count(DISTINCT i4), count(DISTINCT i8) FROM q'), same('SELECT count(DISTINCT i4) FILTER (WHERE b) FROM q'), same('SELECT sum(DISTINCT f4) FROM q'), same('SELECT var_pop(DISTINCT i4) FROM q');
SET gstore_fdw.gpu_query_memory = 1;
SELECT same('SELECT k2, count(DISTINCT id), sum(i4), sum(i8), max(d), min(i8) FROM q GROUP BY k2 ORDER BY k2'), same('SELECT count(DISTINCT id), sum(i4), sum(i8), max(d), min(i8) FROM q'), same('SELECT k2, count(DISTINCT id), sum(i4), sum(i8), max(d), min(i8) FROM q GROUP BY k2 ORDER BY count(DISTINCT id), k2 LIMIT 2');
RESET gstore_fdw.gpu_query_memory;

-- Variance and standard deviation of integers.
SELECT same('SELECT var_pop(i4), var_samp(i4), variance(i4), stddev(i4), stddev_pop(i4), stddev_samp(i4), count(i4), sum(i4), avg(i4) FROM q');
SELECT same('SELECT var_pop(k2), stddev(k2), var_samp(id), stddev_pop(id), var_pop(i4 / 7), stddev(i8 / 36893488147419103), var_samp((i8 / 36893488147419103) * 1000000) FROM q');
SELECT same('SELECT k, var_pop(i4), stddev(i4), variance(k2) FILTER (WHERE b), stddev_samp(id) FROM q GROUP BY k ORDER BY k'), same('SELECT stddev(i4), var_pop(i4) FROM q WHERE id = 1'), same('SELECT stddev(i4), var_pop(i4) FROM q WHERE id < 0'), same('SELECT var_pop(5) FROM q');
-- A square that has more than 63 bits: the local plan.
SELECT same('SELECT stddev(i8), var_pop(i8) FROM q');

-- Of doubles: rounded in another order of additions.
CREATE FUNCTION six(float8) RETURNS numeric LANGUAGE sql IMMUTABLE AS 'SELECT round($1::numeric, 6)';
SELECT same('SELECT six(var_pop(f8)), six(var_samp(f4)), six(variance(f8 + 1e6)), six(stddev(f8)), six(stddev_pop(f4)), six(stddev_samp(f8 / 3)), count(f8), sum(f8), avg(f8) FROM q WHERE k < 1000');
SELECT same('SELECT k, six(var_pop(f8)), six(stddev(f4)), six(variance(f8) FILTER (WHERE b)), six(stddev_samp(f8 * 1000)) FROM q WHERE k < 1000 GROUP BY k ORDER BY k'), same('SELECT k2, six(stddev(f4)), six(avg(f4)::float8), count(*) FROM q WHERE k < 1000 GROUP BY k2 ORDER BY k2');
SELECT same('SELECT stddev(f8), var_pop(f8) FROM q WHERE id = 1'), same('SELECT stddev(f8), var_pop(f8) FROM q WHERE id < 0'), same('SELECT var_pop(7.5::float8), stddev(0::float8), stddev(''-0''::float8) FROM q'), same('SELECT k, stddev(f8), var_pop(f8), count(f8) FROM q WHERE k > 999 GROUP BY k ORDER BY k'), same('SELECT stddev(f8 * 1e200) FROM q WHERE k < 1000');
-- A sum that overflows is an error, also where all values are one.
SELECT same('SELECT var_pop(1e308 + id * 0::float8) FROM q WHERE id < 10'), same('SELECT k % 2, stddev(1e308 + id * 0::float8) FROM q WHERE id < 30 GROUP BY 1'), same('SELECT var_pop(1e308 + id * 0::float8) FROM q WHERE id = 1');
-- Differences from the first value whose sum has an infinite square, but finite squares.
SELECT same('SELECT six(var_pop(CASE WHEN id = 1 THEN 0::float8 ELSE 1e153::float8 END) / 1e300) FROM q WHERE id < 22'), same('SELECT k2 < 9, six(stddev(CASE WHEN id = 1 THEN 0::float8 ELSE 1e153::float8 END) / 1e150) FROM q WHERE id < 22 GROUP BY 1');
-- Decimals and uuid, which is two words: as keys, in an order, with DISTINCT.
ALTER TABLE gh ADD n numeric(12, 2), ADD u uuid;
UPDATE gh SET n = CASE WHEN id % 17 <> 0 THEN (id * 7919 % 2000 - 1000) / 8.0 END, u = CASE WHEN id % 19 <> 0 THEN md5((id % 40)::text)::uuid END;
ALTER FOREIGN TABLE gg ADD n numeric(12, 2), ADD u uuid;
DELETE FROM gg;
INSERT INTO gg SELECT * FROM gh;
EXPLAIN (COSTS OFF) SELECT u, k2, sum(n), count(DISTINCT n) FROM gg GROUP BY u, k2 HAVING max(n) > 0.5 ORDER BY sum(n) DESC, u LIMIT 3;
SELECT same('SELECT u, k2, count(*), sum(n), min(n) FROM q GROUP BY u, k2 ORDER BY ' || o || ' LIMIT 9')
FROM unnest('{"u, k2","u DESC NULLS LAST, k2 DESC","sum(n), u, k2","sum(n) DESC, k2, u","min(n), k2, u","max(n) DESC NULLS LAST, u, k2","k2, u NULLS FIRST","count(*), k2, u"}'::text[]) o;
SELECT same('SELECT k2, u, max(n) FROM q GROUP BY k2, u HAVING ' || h || ' ORDER BY k2, u LIMIT 7') FROM unnest('{"max(n) > 124.5","max(n) = 124.88","u > ''8f000000-0000-0000-0000-000000000000''","u IN (md5(''7'')::uuid, md5(''8'')::uuid)","u IS NULL","min(n) IN (-125, -124.63)","sum(n) > 0","max(n) + 1 > 125"}'::text[]) h;
SELECT same('SELECT n, count(*) FROM q GROUP BY n ORDER BY n DESC LIMIT 5'), same('SELECT n + 1, sum(id) FROM q GROUP BY n ORDER BY n + 1, n LIMIT 5'), same('SELECT DISTINCT u, n FROM q WHERE id < 300 ORDER BY u, n LIMIT 6'), same('SELECT DISTINCT n FROM q ORDER BY n LIMIT 3');
SELECT same('SELECT count(DISTINCT u) FROM q'), same('SELECT k2, count(DISTINCT u), sum(n), avg(n), min(n), max(id), sum(i8) FROM q GROUP BY k2 ORDER BY k2'), same('SELECT u, count(DISTINCT k), sum(i4), max(n) FROM q GROUP BY u ORDER BY count(DISTINCT k) DESC, u LIMIT 4'), same('SELECT u, count(DISTINCT u) FROM q GROUP BY u ORDER BY u LIMIT 3');
SELECT same('SELECT count(DISTINCT n), sum(DISTINCT n), avg(DISTINCT n), max(n) FROM q'), same('SELECT k2, sum(DISTINCT n), avg(n), count(*) FROM q GROUP BY k2 ORDER BY k2');
-- Of joined rows.
CREATE FOREIGN TABLE gj (jk int, name int, weight numeric(6, 1)) SERVER gstore_fdw;
INSERT INTO gj SELECT i / 2, i % 7, i / 10.0 FROM generate_series(0, 199) i;
EXPLAIN (COSTS OFF) SELECT name, count(*), count(DISTINCT k2) FROM gg q JOIN gj ON k = jk GROUP BY name HAVING count(*) > 5 ORDER BY count(*) DESC, name LIMIT 3;
SELECT same('SELECT ' || s || ' ORDER BY ' || o || ', name LIMIT 4') FROM (VALUES ('name, count(*), sum(i4) FROM q JOIN gj ON k = jk GROUP BY name', 'sum(i4) DESC'), ('name, sum(n * weight), max(f8) FROM q JOIN gj ON k = jk GROUP BY name', 'max(f8)'),
    ('name, count(*) FROM q LEFT JOIN gj ON k = jk AND weight > 3 GROUP BY name HAVING count(*) > 100', 'count(*)'), ('name, count(DISTINCT u), sum(n), stddev(i4) FROM q JOIN gj ON k = jk GROUP BY name', 'count(DISTINCT u)'), ('DISTINCT name, k2 FROM q JOIN gj ON k = jk', 'k2 DESC')) v (s, o);
SELECT same('SELECT count(DISTINCT name), sum(i8), count(*) FROM q JOIN gj ON k = jk'), same('SELECT six(var_pop(f8)), six(stddev(f4)), stddev(i4) FROM q JOIN gj ON k = jk WHERE name <> 3');
DROP FOREIGN TABLE gj;
-- Partitions.
CREATE TABLE gp (id int, k int, i2 int2, i4 int, i8 int8, f4 float4, f8 float8, b bool, d date) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE gp1 PARTITION OF gp FOR VALUES FROM (0) TO (2000) SERVER gstore_fdw;
CREATE FOREIGN TABLE gp2 PARTITION OF gp FOR VALUES FROM (2000) TO (5000) SERVER gstore_fdw OPTIONS (format 'arrow');
CREATE TABLE gp3 PARTITION OF gp FOR VALUES FROM (5000) TO (20000);
CREATE FOREIGN TABLE gp4 PARTITION OF gp FOR VALUES FROM (20000) TO (30000) SERVER gstore_fdw;
INSERT INTO gp SELECT id, k, k2, i4, i8, f4, f8, b, d FROM gh WHERE f8 IS NULL OR f8 <> 'nan' AND abs(f8) <> 'infinity';
CREATE VIEW gph AS SELECT id, k, k2 AS i2, i4, i8, f4, f8, b, d FROM gh WHERE f8 IS NULL OR f8 <> 'nan' AND abs(f8) <> 'infinity';
ANALYZE gp, gp1, gp2, gp3, gp4;
CREATE FUNCTION parts(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    heap text := listed(regexp_replace(query, '\mFROM q\M', 'FROM gph', 'g'));
    plan text;
BEGIN
    query := regexp_replace(query, '\mFROM q\M', 'FROM gp', 'g');
    IF listed(query) <> heap THEN
        RETURN 'on the GPU: ' || listed(query) || ' and not ' || heap;
    END IF;
    plan := plan_of(query);
    RETURN CASE WHEN length(heap) > 90 THEN left(heap, 60) || '... ' || md5(heap) ELSE heap END || ' [' ||
        (SELECT count(*) FROM regexp_matches(plan, '"Ran": "(on the GPU|nowhere)', 'g')) || ' on the GPU]';
END $$;
EXPLAIN (COSTS OFF) SELECT count(*) FROM gp;
SET enable_partitionwise_aggregate = on;
EXPLAIN (COSTS OFF) SELECT count(*), sum(i8) FROM gp WHERE i4 > 0;
EXPLAIN (VERBOSE, COSTS OFF) SELECT k, avg(i4), stddev(i4) FROM gp GROUP BY k HAVING count(*) > 3;
EXPLAIN (COSTS OFF) SELECT id, count(*), max(d) FROM gp GROUP BY id HAVING count(*) > 1;
SELECT parts('SELECT count(*), count(i4), sum(i2), sum(i4), sum(i8), avg(i2), avg(i4), avg(i8) FROM q');
SELECT parts('SELECT min(i2), max(i4), min(i8), max(f4), min(f8), max(d), bool_and(b), bool_or(b), every(b), bit_and(i2), bit_or(i4), bit_xor(i8), sum(f4), avg(f4), sum(f8), avg(f8) FROM q');
SELECT parts('SELECT var_pop(i2), stddev(i4), var_samp(i4) FILTER (WHERE b), stddev_pop(i8 / 36893488147419103), variance(i8 / 36893488147419103 + 5) FROM q');
SELECT parts('SELECT six(var_pop(f8)), six(stddev(f4)), avg(f8), six(variance(f8) FILTER (WHERE b)), six(avg(f4)) FROM q'), parts('SELECT i2, six(var_pop(f8)), avg(f8), six(stddev(f4)), avg(i4) FROM q GROUP BY i2 ORDER BY i2');
SELECT parts('SELECT k, count(*), sum(i4), sum(i8), avg(i2), avg(i8), avg(f8), min(d), stddev(i4) FROM q GROUP BY k ORDER BY k'), parts('SELECT k, avg(i8), sum(i8), sum(i8) FILTER (WHERE id < 100) FROM q GROUP BY k HAVING sum(i4) > 100 ORDER BY sum(i8) DESC, k LIMIT 5');
SELECT parts('SELECT sum(i8), avg(i8), avg(i4), avg(f8), stddev(i4), var_pop(i8), count(i8), max(i8) FROM q WHERE i8 IS NULL AND i4 IS NULL'), parts('SELECT sum(i8), avg(i4), stddev(i4), count(*) FROM q WHERE id < 0');
SELECT parts('SELECT id / 1000 AS m, count(*), avg(i4) FROM q GROUP BY m ORDER BY m'), parts('SELECT id, max(d), avg(i8) FROM q GROUP BY id HAVING max(d) > ''2000-01-20'' ORDER BY id'), parts('SELECT avg(i4), sum(i8) FROM q WHERE i4 > 0 AND id < 2500');
-- Sums of 128 bits, of both signs.
SELECT parts('SELECT sum(i8), avg(- i8), sum(-(i8 / 36893488147419103)), sum(i8 - i8), avg(9223372036854775807 - abs(i4)) FROM q WHERE i8 IS NOT NULL AND i4 IS NOT NULL');
RESET enable_partitionwise_aggregate;
DROP VIEW gph;
DROP TABLE gp;
DROP FUNCTION parts, same, listed, plan_of, six;
DROP FOREIGN TABLE gg;
DROP TABLE gh;
