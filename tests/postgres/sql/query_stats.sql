-- What queries have done on the GPU, and why others have not: gstore_fdw_queries; and how each kind is turned off.
SET max_parallel_workers_per_gather = 0;
SET gstore_fdw.gpu_startup_cost = 0;
SET gstore_fdw.gpu_instruction_cost = 0;
SET enable_sort = off;
CREATE FOREIGN TABLE sq (id int, k int, n numeric(20, 0), v real[] OPTIONS (length '2'), note text) SERVER gstore_fdw;
INSERT INTO sq SELECT i, i % 10, i, ARRAY[i % 100, i], 'note ' || i FROM generate_series(1, 30000) i;
INSERT INTO sq VALUES (0, 99, 9000000000000000000);
CREATE FOREIGN TABLE si (k int, name "char") SERVER gstore_fdw;
INSERT INTO si SELECT i, (65 + i)::"char" FROM generate_series(0, 4) i;
ANALYZE sq, si;

-- The counters that a statement has changed; behind them its error, if it has one.
CREATE FUNCTION counted(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    one record;
    error text;
    counters text;
BEGIN
    PERFORM gstore_fdw_queries_reset();
    BEGIN
        FOR one IN EXECUTE query LOOP END LOOP;
    EXCEPTION WHEN OTHERS THEN
        error := SQLSTATE;
    END;
    SELECT string_agg(kind || ': ' || changed, '; ') INTO counters
        FROM gstore_fdw_queries q,
            LATERAL (SELECT string_agg(key || CASE key WHEN 'kernel_time' THEN '' ELSE ' ' || value END, ', ' ORDER BY at) AS changed
                FROM json_each_text(to_json(q)) WITH ORDINALITY c (key, value, at) WHERE key NOT IN ('kind', 'stats_reset') AND value::float8 <> 0) c;
    RETURN concat_ws(' ', counters, error);
END $$;
SELECT kind, queries FROM gstore_fdw_queries WHERE queries < 0;
SELECT kind, stats_reset <= now() AS reset FROM gstore_fdw_queries;

-- What runs there.
SELECT counted('SELECT * FROM sq WHERE k = 3') AS marked, counted('SELECT id FROM sq WHERE id < 4') AS gathered;
SELECT counted('SELECT count(*), sum(k) FROM sq WHERE k > 5') AS sums, counted('SELECT k, count(*) FROM sq GROUP BY k') AS groups, counted('SELECT k, count(*) FROM sq GROUP BY k ORDER BY 2, k LIMIT 3') AS first_groups;
-- What is read of inner tables is so where a hash table is made, and not found.
SELECT regexp_replace(counted('SELECT count(*) FROM sq JOIN si USING (k)'), 'rows_read .*, (?=rows_)', '') AS joined,
    regexp_replace(counted('SELECT name, count(*) FROM sq JOIN si USING (k) GROUP BY name'), 'rows_read .*, (?=rows_)', '') AS joined_groups;
-- Joined rows that come in several runs are one query.
SET cpu_tuple_cost = 0.0001;
SELECT regexp_replace(counted('SELECT id, name FROM sq JOIN si USING (k)'), 'rows_read .*, (?=rows_)', '') AS joined_rows, counted('SELECT id, name FROM sq JOIN si USING (k) WHERE 1 / (k - 3) < 7') AS error;
RESET cpu_tuple_cost;
SELECT counted('SELECT id, note FROM sq ORDER BY k DESC, id LIMIT 3') AS list, counted('SELECT id FROM sq ORDER BY v <-> ''{3,4}'' LIMIT 3') AS nearest,
    counted('SELECT * FROM gstore_search(NULL::sq, ''v'', ''{{3,4},{9,9}}''::real[], 5, ''<->'')') AS search, counted('SELECT * FROM gstore_search(NULL::sq, ''v'', ''{3,4}''::real[], 5, ''<->'', ''id < 4'')') AS few;
SELECT counted('SELECT count(*) FROM sq WHERE id >= 0 AND k = (SELECT min(i) FROM generate_series(3, 4) i)') AS rerun;
SELECT counted('SELECT note FROM sq') AS nothing, counted('SELECT count(*) FROM si WHERE false') AS no_scan;

-- What does not.
SET gstore_fdw.gpu_query_memory = 1;
SELECT counted('SELECT id, count(*) FROM sq GROUP BY id') AS no_room;
RESET gstore_fdw.gpu_query_memory;
SELECT counted('SELECT sum(1 / (k - 3)) FROM sq') AS error, counted('SELECT id FROM sq WHERE 1 / (k - 3) > 0') AS filter, counted('SELECT sum(n) FROM sq') AS decimals,
    counted('SELECT sum(n) FROM sq WHERE k < 10') AS none;
PREPARE many (int[]) AS SELECT count(*) FROM sq WHERE k = ANY ($1);
SET plan_cache_mode = force_generic_plan;
SELECT counted(format('EXPLAIN (ANALYZE) EXECUTE many (%L)', array_agg(i))) AS too_many FROM generate_series(1, 4000) i;
RESET plan_cache_mode;
BEGIN;
TRUNCATE si;
INSERT INTO si VALUES (1, 'x');
SELECT counted('SELECT count(*) FROM si') AS own_rows;
ROLLBACK;

-- Who may see and reset them.
CREATE ROLE sq_reader;
SET ROLE sq_reader;
SELECT count(*) FROM gstore_fdw_queries;
\set VERBOSITY sqlstate
SELECT gstore_fdw_queries_reset();
\set VERBOSITY default
RESET ROLE;
GRANT EXECUTE ON FUNCTION gstore_fdw_queries_reset() TO sq_reader;
SELECT count(*) FROM sq;
SELECT max(stats_reset) AS before FROM gstore_fdw_queries \gset
SET ROLE sq_reader;
SELECT gstore_fdw_queries_reset();
RESET ROLE;
SELECT sum(queries) AS queries, min(stats_reset) > :'before' AS later FROM gstore_fdw_queries;
REVOKE EXECUTE ON FUNCTION gstore_fdw_queries_reset() FROM sq_reader;
DROP ROLE sq_reader;

-- Each kind has a setting.
CREATE FUNCTION planned(query text, setting text, value text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    plan text;
BEGIN
    PERFORM set_config('gstore_fdw.' || setting, value, true);
    EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
    PERFORM set_config('gstore_fdw.' || setting, 'on', true);
    RETURN plan ~ '"GPU';
END $$;
SELECT setting, query, planned(query, setting, 'on') AS "on", planned(query, setting, 'off') AS "off", planned(query, 'gpu_queries', 'off') AS none
FROM (VALUES ('gpu_filters', 'SELECT id FROM sq WHERE k = 3'), ('gpu_aggregates', 'SELECT count(*) FROM sq'), ('gpu_joins', 'SELECT count(*) FROM sq JOIN si USING (k)'),
    ('gpu_order', 'SELECT id FROM sq ORDER BY k LIMIT 3'), ('gpu_search', 'SELECT id FROM sq ORDER BY v <-> ''{3,4}'' LIMIT 3'), ('gpu_order', 'SELECT id FROM sq ORDER BY v <-> ''{3,4}'' LIMIT 3')) q (setting, query);
SET gstore_fdw.gpu_search = off;
SELECT counted('SELECT * FROM gstore_search(NULL::sq, ''v'', ''{{3,4},{9,9}}''::real[], 5, ''<->'')') AS search;
SET gstore_fdw.gpu_search = on;
SET gstore_fdw.gpu_order = off;
SELECT counted('SELECT * FROM gstore_search(NULL::sq, ''v'', ''{3,4}''::real[], 5, ''<->'')') AS search;
RESET gstore_fdw.gpu_search;
RESET gstore_fdw.gpu_order;
-- What is not for the GPU is said while a query is planned. Each is planned twice: the first time others may say something, too.
\set VERBOSITY terse
CREATE FUNCTION explained(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    plan text;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
    SET LOCAL client_min_messages = debug1;
    EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
    SET LOCAL client_min_messages = notice;
    RETURN coalesce(substring(plan FROM '"GPU[^"]*'), 'local');
END $$;
SELECT explained('SELECT count(*) FROM sq WHERE initcap(note) = ''a''');
SELECT explained('SELECT k, max(coalesce(n, 1.5)) FROM sq GROUP BY k');
SELECT explained('SELECT sum(CASE WHEN k > 3 THEN 1.50 WHEN k > 2 THEN 2.5 ELSE 0 END) FROM sq');
SELECT explained('SELECT k / 2.0::float8, count(*) FROM sq GROUP BY 1');
SELECT explained('SELECT note || ''x'', count(*) FROM sq GROUP BY 1');
SELECT explained('SELECT min(note), string_agg(note, '' '') FROM sq');
SELECT explained('SELECT count(DISTINCT id), count(DISTINCT k) FROM sq');
SELECT explained('SELECT count(*) FROM sq WHERE v = ''{1,2}'' AND k IN (1, 2)');
SELECT explained('SELECT note, name FROM sq JOIN si USING (k)');
SELECT explained('SELECT count(*) FROM sq WHERE ' || string_agg('k + ' || i || ' > id', ' OR ')) FROM generate_series(1, 400) i;
SELECT explained('SELECT count(*) FROM sq WHERE note = ''a''');
\set VERBOSITY default
-- What is never executed has no figures, but for programs.
CREATE TABLE sh AS SELECT i % 7 AS k FROM generate_series(1, 1000) i;
ANALYZE sh;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_nestloop = off;
\set unasked 'SELECT CASE x WHEN 1 THEN 1 WHEN 2 THEN (SELECT count(*) FROM sq WHERE k > 5) WHEN 3 THEN (SELECT id FROM sq ORDER BY k DESC, id LIMIT 1) WHEN 4 THEN (SELECT max(length(note)) FROM sq WHERE k = 3 AND note ~ ''1'') WHEN 5 THEN (SELECT count(*) FROM sh JOIN si USING (k)) END FROM generate_series(1, 1) x'
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) :unasked;
CREATE FUNCTION figures(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    plan text;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ' || query INTO plan;
    RETURN QUERY SELECT f[1] FROM regexp_matches(plan, '"(GPU[A-Za-z ]*|Batches|Bytes Moved)": 0', 'g') f ORDER BY 1;
END $$;
SELECT figures, count(*) FROM figures(:'unasked') GROUP BY 1 ORDER BY 1;
DROP FUNCTION figures;
DROP TABLE sh;
DROP FUNCTION planned, counted, explained;
DROP FOREIGN TABLE sq, si;
