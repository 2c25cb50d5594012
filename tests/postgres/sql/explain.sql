-- EXPLAIN: what a scan reads, what it tests itself, what it moves; and plans with several processes.
SET max_parallel_workers_per_gather = 0;
SET gstore_fdw.gpu_queries = off; -- query.sql has those
-- EXPLAIN ANALYZE without what differs from run to run, and from release to release.
CREATE FUNCTION analyzed(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) ' || query LOOP
        RETURN NEXT regexp_replace(line, '(rows=\d+)\.\d+', '\1');
    END LOOP;
END $$;
CREATE FUNCTION figure(query text, name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, FORMAT JSON) ' || query INTO plan;
    RETURN jsonb_path_query_first(plan::jsonb, ('$.**."' || name || '"')::jsonpath);
END $$;
CREATE FUNCTION bytes_moved(query text) RETURNS bigint LANGUAGE sql AS $$ SELECT figure(query, 'Bytes Moved')::bigint $$;
CREATE FOREIGN TABLE e (id int, value float8, name text, note text, flag bool) SERVER gstore_fdw;
-- Without rows there is nothing to move.
SELECT * FROM analyzed('SELECT * FROM e WHERE id = 1');
INSERT INTO e SELECT i, i / 2.0, 'name ' || i, CASE WHEN i % 10 = 0 THEN 'note' END, i % 2 = 0 FROM generate_series(1, 10000) i;

-- Only columns that are needed are read: by the target list, by conditions, by the whole row, by nobody.
SELECT * FROM analyzed('SELECT id FROM e');
SELECT * FROM analyzed('SELECT id, value FROM e');
SELECT * FROM analyzed('SELECT count(*) FROM e');
EXPLAIN (COSTS OFF) SELECT name FROM e ORDER BY value;
EXPLAIN (COSTS OFF) SELECT e FROM e;
EXPLAIN (COSTS OFF) SELECT note FROM e WHERE length(name) = 3;
EXPLAIN (VERBOSE, COSTS OFF) SELECT id + 1 FROM e WHERE flag;
-- A column of variable width costs more than its offsets alone.
SELECT bytes_moved('SELECT id FROM e') AS int, bytes_moved('SELECT value FROM e') AS float8,
    bytes_moved('SELECT name FROM e') BETWEEN 10000 * (8 + 8) AND 10000 * (8 + 16) + 64 AS text,
    bytes_moved('SELECT flag FROM e') AS bool, bytes_moved('SELECT id, flag FROM e') AS both;
-- With NULLs: a bit a row more.
SELECT bytes_moved('SELECT note FROM e') < bytes_moved('SELECT name FROM e') AS fewer_bodies;

-- Comparisons of a column with what does not change in the scan are tested on columns; the rest on rows.
SELECT * FROM analyzed('SELECT id FROM e WHERE id <= 10');
SELECT * FROM analyzed('SELECT id FROM e WHERE id > 9990 AND value < 4999 AND name LIKE ''%9_''');
EXPLAIN (COSTS OFF) SELECT id FROM e WHERE note IS NULL;
EXPLAIN (COSTS OFF) SELECT id FROM e WHERE note IS NOT NULL AND flag;
EXPLAIN (COSTS OFF) SELECT id FROM e WHERE id IN (1, 2, 3);
EXPLAIN (COSTS OFF) SELECT id FROM e WHERE id = 1 OR id = 2;
EXPLAIN (COSTS OFF) SELECT id FROM e WHERE id BETWEEN 5 AND 7;
EXPLAIN (COSTS OFF) SELECT id FROM e WHERE 5 >= id;
EXPLAIN (COSTS OFF) SELECT id FROM e WHERE id = random()::int;
EXPLAIN (COSTS OFF) SELECT id FROM e WHERE id = value;
EXPLAIN (COSTS OFF) SELECT id FROM e WHERE name = 'name 1';
EXPLAIN (COSTS OFF) SELECT id FROM e WHERE id::numeric = 1;
-- IS NULL and IS NOT NULL need no values: of variable width the offsets, of fixed width and of format 'arrow' the bitmap.
CREATE FOREIGN TABLE e_nulls (id int, value float8, name text) SERVER gstore_fdw;
CREATE FOREIGN TABLE e_arrow (id int, value float8, name text, flag bool) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO e_nulls SELECT i, nullif(i % 3, 0), CASE WHEN i % 10 > 0 THEN repeat('x', 100) END FROM generate_series(1, 8000) i;
INSERT INTO e_arrow SELECT *, id % 2 = 0 FROM e_nulls;
SELECT query, bytes_moved(format(query, 'e_nulls')) AS pgstrom, bytes_moved(format(query, 'e_arrow')) AS arrow FROM (VALUES
    ('SELECT count(*) FROM %s WHERE name IS NULL'), ('SELECT count(*) FROM %s WHERE name IS NOT NULL'),
    ('SELECT count(*) FROM %s WHERE value IS NOT NULL'), ('SELECT count(*) FROM %s WHERE id IS NULL'),
    ('SELECT count(*) FROM %s WHERE value IS NULL AND value > 0')) AS q (query);
SELECT count(*) FILTER (WHERE name IS NULL) AS no_name, count(*) FILTER (WHERE value IS NULL) AS no_value FROM e_nulls;
SELECT count(*) FROM e_nulls WHERE name IS NULL;
SELECT count(*), min(length(name)) FROM e_arrow WHERE name IS NOT NULL;
SELECT count(*), sum(id) FROM e_arrow WHERE name IS NULL AND value IS NOT NULL;
SELECT count(*), sum(id) FROM e_nulls WHERE name IS NULL AND value IS NOT NULL;
SELECT count(*) FROM e_arrow WHERE flag IS NULL OR id IS NULL;
SELECT count(*) FROM e_arrow WHERE flag IS NOT NULL AND name IS NOT NULL;
-- count(column) and IS NULL anywhere in the query need no more, either: no values, no bodies.
SELECT query, bytes_moved(format(query, 'e_nulls')) AS pgstrom, bytes_moved(format(query, 'e_arrow')) AS arrow FROM (VALUES
    ('SELECT count(name) FROM %s'), ('SELECT count(id), count(value), count(name) FROM %s'), ('SELECT count(name) FROM %s WHERE id > 0'),
    ('SELECT count(*) FILTER (WHERE name IS NULL) FROM %s'), ('SELECT id FROM %s WHERE name IS NULL OR id < 0'),
    ('SELECT count(name) FROM %s HAVING count(value) > 0'), ('SELECT value IS NULL FROM %s'),
    ('SELECT count(name) FILTER (WHERE value IS NOT NULL) FROM %s')) AS q (query);
-- Values are read where anything looks at one.
SELECT query, bytes_moved(format(query, 'e_nulls')) > 8000 * 90 AS pgstrom, bytes_moved(format(query, 'e_arrow')) > 8000 * 90 AS arrow FROM (VALUES
    ('SELECT count(name), max(name) FROM %s'), ('SELECT count(DISTINCT name) FROM %s'), ('SELECT count(name ORDER BY name) FROM %s'),
    ('SELECT count(name || name) FROM %s'), ('SELECT count(name) FROM %s GROUP BY name'), ($$SELECT count(name) FROM %s WHERE name > ''$$),
    ($$SELECT count(name) FILTER (WHERE name > '') FROM %s$$), ($$SELECT count(name) FROM %s HAVING min(name) > ''$$),
    ('SELECT name IS NULL, name FROM %s'), ('SELECT count(name) OVER (ORDER BY name) FROM %s'),
    ('SELECT count(t.name) FROM %s t JOIN (VALUES (repeat(''x'', 100))) v (x) ON t.name = v.x'),
    ('SELECT count(t.name) FROM %s t, LATERAL (SELECT length(t.name) AS l OFFSET 0) o WHERE o.l > 0'),
    ('SELECT count(t.name) FROM %s t WHERE EXISTS (SELECT FROM pg_am WHERE amname <> t.name OFFSET 0)'),
    ('SELECT count(t.name), count(t) FROM %s t'), ('SELECT count(t.name), count(v.i) FROM %s t, LATERAL (SELECT length(t.name) AS i) v'),
    ('SELECT count(t.name) FROM %s t LEFT JOIN LATERAL (SELECT t.name || g AS x FROM generate_series(1, 1) g) o ON true WHERE o.x > t.id::text')) AS q (query);
-- Rows are sorted, hashed, joined and kept with what stands for the values.
SELECT count(name), count(value), count(id) FROM e_nulls;
SELECT count(name), count(value), count(flag) FROM e_arrow;
SELECT t.id % 3 AS g, count(t.name), count(u.name), count(t.value) FROM e_nulls t LEFT JOIN e_arrow u ON t.id = u.id + 10 GROUP BY 1 ORDER BY 1;
SELECT count(name), sum(CASE WHEN name IS NULL THEN 1 END) FROM (SELECT * FROM e_nulls ORDER BY id DESC OFFSET 1) s;
SELECT count(t.name) FROM (SELECT name FROM e_nulls UNION ALL SELECT name FROM e_arrow WHERE id > 10) t;
SELECT count(u.name) FROM (SELECT name FROM e_nulls UNION ALL SELECT name || 'x' FROM e_arrow) u WHERE length(u.name) > 100;
SELECT count(name) FROM e_nulls GROUP BY id % 2 ORDER BY count(value), 1;
CREATE FOREIGN TABLE e_wide (i interval, n name, u uuid, nothing name) SERVER gstore_fdw;
INSERT INTO e_wide VALUES ('1 day', 'a', NULL), (NULL, 'b', gen_random_uuid()), ('2 days', NULL, NULL);
SELECT count(i), count(n), count(u), count(nothing), count(*) FILTER (WHERE u IS NULL) FROM e_wide;
SELECT count(a.n), count(b.u) FROM e_wide a JOIN e_wide b ON a.i IS DISTINCT FROM b.i;
CREATE TABLE e_parent (id int, name text) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE e_part (name text, id int) SERVER gstore_fdw;
ALTER TABLE e_parent ATTACH PARTITION e_part FOR VALUES FROM (0) TO (10000);
INSERT INTO e_part SELECT name, id FROM e_nulls;
SELECT count(name), count(id) FROM e_parent;
SELECT count(name), max(length(name)) FROM e_parent;
SELECT bytes_moved('SELECT count(name) FROM e_parent') AS counted, bytes_moved('SELECT count(name), min(name) FROM e_parent') > 8000 * 90 AS looked_at;
-- Policies of row security look at values, too.
CREATE ROLE e_reader;
GRANT SELECT ON e_parent TO e_reader;
CREATE POLICY e_named ON e_parent USING (name > 'w' OR id = 10);
ALTER TABLE e_parent ENABLE ROW LEVEL SECURITY;
SET ROLE e_reader;
SELECT count(name), count(id) FROM e_parent;
RESET ROLE;
DROP TABLE e_parent;
DROP ROLE e_reader;
DROP FOREIGN TABLE e_nulls, e_arrow, e_wide;
-- What cannot be true is not read.
SELECT * FROM analyzed('SELECT id FROM e WHERE id = 1 AND false');
-- Where no row of a batch is left, its other columns are not read.
SELECT bytes_moved('SELECT * FROM e WHERE id < 0') AS id_alone, bytes_moved('SELECT * FROM e WHERE id > 0') >
    bytes_moved('SELECT * FROM e WHERE id < 0') AS all_columns;

-- Parameters: of a prepared statement, of a join.
PREPARE p (int) AS SELECT name FROM e WHERE id = $1;
SET plan_cache_mode = force_generic_plan;
SELECT * FROM analyzed('EXECUTE p (77)');
SELECT * FROM analyzed('EXECUTE p (NULL)');
RESET plan_cache_mode;
EXPLAIN (COSTS OFF) SELECT a.id, (SELECT b.name FROM e b WHERE b.id = a.id) FROM e a WHERE a.id < 3;
EXPLAIN (COSTS OFF) SELECT a.name FROM e a JOIN e b ON a.id = b.id WHERE b.value = 3;

-- Changes: the target is read as far as it is needed.
EXPLAIN (COSTS OFF) DELETE FROM e WHERE id = 4;
EXPLAIN (COSTS OFF) UPDATE e SET value = value + 1 WHERE id = 4;
EXPLAIN (COSTS OFF) INSERT INTO e SELECT * FROM e WHERE id = 4;
BEGIN;
SELECT * FROM analyzed('DELETE FROM e WHERE id <= 5000');
SELECT count(*) FROM e;
SELECT * FROM analyzed('SELECT count(*) FROM e WHERE id <= 6000');
ROLLBACK;
-- own_rows_are_filtered_too: those of this transaction are one more row range, a batch of its own.
BEGIN;
INSERT INTO e VALUES (0), (-1);
SELECT * FROM analyzed('SELECT id FROM e WHERE id <= 0');
ROLLBACK;

-- In other forms.
EXPLAIN (COSTS OFF, FORMAT JSON) SELECT id FROM e WHERE flag AND id <= 10;
EXPLAIN (COSTS OFF, FORMAT YAML) SELECT count(*) FROM e;

-- A table of many batches, and a scan that several processes share. Who takes which batch differs, sums do not.
CREATE FOREIGN TABLE e_big (a int, b bigint) SERVER gstore_fdw;
INSERT INTO e_big SELECT i, i FROM generate_series(1, 1000000) i;
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
EXPLAIN (COSTS OFF) SELECT count(*) FROM e_big WHERE a % 2 = 0;
EXPLAIN (COSTS OFF) SELECT sum(b) FROM e_big WHERE a > 10;
SELECT bytes_moved('SELECT sum(b) FROM e_big') AS parallel;
SELECT sum(b), count(*) FROM e_big WHERE a > 10;
-- The counts are those of all processes.
SELECT figure('SELECT sum(b) FROM e_big WHERE a > 10', 'Workers Launched') AS launched,
    figure('SELECT sum(b) FROM e_big WHERE a > 10', 'Rows Removed by Scan Filter') AS filtered,
    figure('SELECT sum(b) FROM e_big WHERE a > 10', 'Batches')::int > 2 AS batches,
    figure('SELECT sum(b) FROM e_big WHERE a > 10', 'Bytes Moved') AS bytes;
SET max_parallel_workers_per_gather = 0;
SELECT figure('SELECT sum(b) FROM e_big WHERE a > 10', 'Bytes Moved') AS alone,
    figure('SELECT sum(b) FROM e_big WHERE a > 10', 'Rows Removed by Scan Filter') AS filtered;
-- By the costs that are set by default, several processes are for scans that last longer than workers take to begin.
RESET max_parallel_workers_per_gather;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
CREATE FOREIGN TABLE e_middle (a int, b bigint) SERVER gstore_fdw;
INSERT INTO e_middle SELECT * FROM e_big WHERE a <= 350000;
CREATE FUNCTION dear(int) RETURNS int IMMUTABLE PARALLEL SAFE COST 1000 LANGUAGE plpgsql AS 'BEGIN RETURN $1; END';
CREATE FUNCTION workers(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
    RETURN coalesce(jsonb_path_query_first(plan::jsonb, '$.**."Workers Planned"')::text, 'none');
END $$;
SELECT query, workers(format(query, 'e')) AS rows_1e4, workers(format(query, 'e_middle')) AS rows_35e4, workers(format(query, 'e_big')) AS rows_1e6
    FROM (VALUES ('SELECT count(*) FROM %s'), ('SELECT count(id) FROM %s AS t (id)'), ('SELECT count(*) FROM %s AS t (id) WHERE id < 0'),
    ('SELECT sum(sqrt(id) * ln(id) + exp(id / 1e7) + sin(id)) FROM %s AS t (id)'), ('SELECT sum(dear(id)) FROM %s AS t (id)')) AS q (query);
DROP FOREIGN TABLE e_middle;
DROP FUNCTION dear, workers;
SET max_parallel_workers_per_gather = 0;
-- Scanned more than once: each time counts.
SELECT * FROM analyzed('SELECT * FROM generate_series(1, 3) g, LATERAL (SELECT count(*) FROM e WHERE e.id < g) c');
-- LIMIT ends a scan early.
SELECT bytes_moved('SELECT * FROM e_big LIMIT 1') < 12000000 AS early;

DROP FOREIGN TABLE e, e_big;
DROP FUNCTION analyzed, bytes_moved, figure;
