-- ANALYZE: statistics as for any table, of the rows that are there.
CREATE FOREIGN TABLE a (id int, few int, skewed text, half_null int, nothing int, word text, moment date, list int[])
    SERVER gstore_fdw;
CREATE FUNCTION estimate(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
    RETURN plan -> 0 -> 'Plan' ->> 'Plan Rows';
END $$;

-- Never analyzed; without rows. The planner knows how many rows there are without ANALYZE.
SELECT reltuples FROM pg_class WHERE oid = 'a'::regclass;
SELECT count(*) FROM pg_stats WHERE tablename = 'a';
ANALYZE a;
SELECT reltuples FROM pg_class WHERE oid = 'a'::regclass;
SELECT count(*) FROM pg_stats WHERE tablename = 'a';
INSERT INTO a SELECT i, i % 7, CASE WHEN i % 100 < 90 THEN 'common' ELSE 'rare ' || i % 10 END, CASE WHEN i % 2 = 0 THEN i END,
    NULL, 'word ' || i, date '2000-01-01' + i / 10, ARRAY[i % 3, 5] FROM generate_series(1, 20000) i;
SELECT estimate('SELECT * FROM a');

-- All rows are in the sample of a table of this size: the figures are exact.
ANALYZE a;
SELECT reltuples, relpages > 0 AS relpages FROM pg_class WHERE oid = 'a'::regclass;
SELECT attname, null_frac, avg_width, n_distinct FROM pg_stats WHERE tablename = 'a' ORDER BY attname;
SELECT attname, most_common_vals::text, most_common_freqs[1:3] FROM pg_stats WHERE tablename = 'a' AND attname = 'skewed';
SELECT array_length(most_common_vals::text::int[], 1) AS few FROM pg_stats WHERE tablename = 'a' AND attname = 'few';
SELECT histogram_bounds::text::int[] @> '{1,20000}' AS ends, array_length(histogram_bounds::text::int[], 1) AS bounds
    FROM pg_stats WHERE tablename = 'a' AND attname = 'id';
SELECT correlation FROM pg_stats WHERE tablename = 'a' AND attname IN ('id', 'moment');
SELECT most_common_elems::text, elem_count_histogram IS NOT NULL AS counts FROM pg_stats WHERE tablename = 'a' AND attname = 'list';
SELECT estimate('SELECT * FROM a WHERE id <= 5000') BETWEEN 4900 AND 5100 AS range,
    estimate('SELECT * FROM a WHERE skewed = ''common''') AS common, estimate('SELECT * FROM a WHERE half_null IS NULL') AS nulls,
    estimate('SELECT * FROM a WHERE nothing = 1') AS nothing, estimate('SELECT DISTINCT few FROM a') AS few;

-- Some columns; more or less of them.
ALTER FOREIGN TABLE a ALTER COLUMN word SET STATISTICS 0;
ALTER FOREIGN TABLE a ALTER COLUMN id SET STATISTICS 10;
DELETE FROM pg_statistic WHERE starelid = 'a'::regclass;
ANALYZE a (id, few);
SELECT attname, array_length(histogram_bounds::text::int[], 1) AS bounds FROM pg_stats WHERE tablename = 'a' ORDER BY attname;
ANALYZE a;
SELECT string_agg(attname, ' ' ORDER BY attname) FROM pg_stats WHERE tablename = 'a';
\set VERBOSITY sqlstate
ANALYZE a (missing);
ANALYZE a (id, id);
VACUUM ANALYZE a;
\set VERBOSITY default
-- What is set by hand wins.
ALTER FOREIGN TABLE a ALTER COLUMN few SET (n_distinct = 1234);
ANALYZE a;
SELECT n_distinct FROM pg_stats WHERE tablename = 'a' AND attname = 'few';
ALTER FOREIGN TABLE a ALTER COLUMN few RESET (n_distinct);
-- Extended statistics.
CREATE STATISTICS a_both (ndistinct) ON few, skewed FROM a;
ANALYZE a;
SELECT n_distinct::text ~ ': 77}' AS n_distinct FROM pg_stats_ext WHERE statistics_name = 'a_both';
DROP STATISTICS a_both;

-- Deleted rows do not count, whether compaction has taken them or not.
DELETE FROM a WHERE id % 4 = 0;
ANALYZE a;
SELECT reltuples FROM pg_class WHERE oid = 'a'::regclass;
SELECT n_distinct FROM pg_stats WHERE tablename = 'a' AND attname = 'half_null';
DELETE FROM a WHERE id > 1000;
ANALYZE a;
SELECT reltuples FROM pg_class WHERE oid = 'a'::regclass;
SELECT max(id), count(*), estimate('SELECT * FROM a') FROM a;

-- In a transaction: its own rows, too; undone with it.
BEGIN;
INSERT INTO a SELECT i FROM generate_series(1, 250) i;
ANALYZE a;
SELECT reltuples FROM pg_class WHERE oid = 'a'::regclass;
ROLLBACK;
ANALYZE a;
SELECT reltuples FROM pg_class WHERE oid = 'a'::regclass;
BEGIN;
TRUNCATE a;
ANALYZE a;
SELECT reltuples FROM pg_class WHERE oid = 'a'::regclass;
ROLLBACK;

-- A table of which runs of rows are read, and of those a part: the figures are near.
CREATE FOREIGN TABLE a_big (id int, few int, half int) SERVER gstore_fdw;
INSERT INTO a_big SELECT i, i % 11, CASE WHEN i % 2 = 0 THEN i % 50 END FROM generate_series(1, 500000) i;
SET default_statistics_target = 10;
ANALYZE a_big;
SELECT reltuples FROM pg_class WHERE oid = 'a_big'::regclass;
SELECT attname, null_frac BETWEEN CASE attname WHEN 'half' THEN 0.44 ELSE 0 END AND CASE attname WHEN 'half' THEN 0.56 ELSE 0 END AS null_frac,
    CASE attname WHEN 'id' THEN n_distinct = -1 WHEN 'few' THEN n_distinct = 11 ELSE n_distinct = 25 END AS n_distinct
    FROM pg_stats WHERE tablename = 'a_big' ORDER BY attname;
SELECT estimate('SELECT * FROM a_big WHERE id < 200000') BETWEEN 150000 AND 250000 AS two_fifths,
    estimate('SELECT * FROM a_big WHERE few = 3') BETWEEN 29000 AND 62000 AS eleventh;
RESET default_statistics_target;

-- As partition, as child: the parent's statistics have these rows as well.
CREATE TABLE a_part (id int, few int) PARTITION BY RANGE (id);
CREATE TABLE a_part1 PARTITION OF a_part FOR VALUES FROM (0) TO (1000);
CREATE FOREIGN TABLE a_part2 PARTITION OF a_part FOR VALUES FROM (1000) TO (3000) SERVER gstore_fdw;
INSERT INTO a_part SELECT i, i % 5 FROM generate_series(0, 2999) i;
ANALYZE a_part;
SELECT relname, reltuples FROM pg_class WHERE relname LIKE 'a\_part%' ORDER BY relname;
SELECT tablename, n_distinct, inherited FROM pg_stats WHERE tablename LIKE 'a\_part%' AND attname = 'few' ORDER BY tablename, inherited;

-- Who may: as for any table. Row security does not show values in statistics.
CREATE ROLE a_stranger;
GRANT SELECT ON a TO a_stranger;
SET ROLE a_stranger;
\set VERBOSITY sqlstate
ANALYZE a_big;
\set VERBOSITY default
SELECT count(*) FROM pg_stats WHERE tablename = 'a_big';
SELECT count(*) > 0 AS readable FROM pg_stats WHERE tablename = 'a';
RESET ROLE;
-- ANALYZE of the whole database leaves foreign tables out, as the server's manual says: the figure is still that of the
-- TRUNCATE that was undone, since no rollback reaches it.
ANALYZE;
SELECT reltuples, (SELECT count(*) FROM a) FROM pg_class WHERE oid = 'a'::regclass;
ANALYZE a;
-- Autovacuum's workers do their work beside such tables, and leave them alone.
CREATE TABLE a_heap (id int);
ALTER TABLE a_heap SET (autovacuum_analyze_threshold = 1, autovacuum_analyze_scale_factor = 0);
ALTER SYSTEM SET autovacuum_naptime = '1s';
ALTER SYSTEM SET autovacuum = on;
SELECT pg_reload_conf();
INSERT INTO a_heap SELECT generate_series(1, 1000);
INSERT INTO a VALUES (-1);
SELECT pg_stat_force_next_flush();
CREATE FUNCTION autoanalyzed(relation regclass) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..600 LOOP
        PERFORM pg_stat_clear_snapshot();
        IF pg_stat_get_autoanalyze_count(relation) > 0 THEN
            RETURN true;
        END IF;
        PERFORM pg_sleep(0.1);
    END LOOP;
    RETURN false;
END $$;
SELECT autoanalyzed('a_heap');
SELECT reltuples FROM pg_class WHERE oid = 'a_heap'::regclass;
SELECT reltuples, (SELECT count(*) FROM a), pg_stat_get_autoanalyze_count('a'::regclass) FROM pg_class WHERE oid = 'a'::regclass;
ALTER SYSTEM RESET autovacuum_naptime;
ALTER SYSTEM RESET autovacuum;
SELECT pg_reload_conf();

DROP TABLE a_part, a_heap;
DROP FOREIGN TABLE a, a_big;
DROP FUNCTION estimate, autoanalyzed;
DROP ROLE a_stranger;
