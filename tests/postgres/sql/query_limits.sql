-- Limits of groups on the GPU by parameters that are values of the groups, too, in generic plans.
SET max_parallel_workers_per_gather = 0;
SET gstore_fdw.gpu_startup_cost = 0;
SET gstore_fdw.gpu_instruction_cost = 0;
SET plan_cache_mode = force_generic_plan;
CREATE FOREIGN TABLE lg (id int, k int, i4 int) SERVER gstore_fdw;
INSERT INTO lg SELECT i, i * i % 7, i % 10 FROM generate_series(1, 1000) i;
CREATE TABLE lh AS SELECT * FROM lg;
PREPARE shown_limit (int8) AS SELECT $1 AS n, k, count(*) FROM lg GROUP BY 1, 2 ORDER BY 3 DESC, 2 LIMIT $1;
-- From 16 on PostgreSQL leaves out keys of groups that are constants: these are not shown.
CREATE FUNCTION shown_plan(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
        IF line !~ 'Group Key:' THEN
            RETURN NEXT line;
        END IF;
    END LOOP;
END $$;
SELECT * FROM shown_plan('EXECUTE shown_limit (3)');
EXECUTE shown_limit (3);
SELECT k, count(*) FROM lh GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3;
EXECUTE shown_limit (0);
PREPARE shown_cast (int) AS SELECT int8($1) AS n, k, count(*) FROM lg GROUP BY 1, 2 ORDER BY 3 DESC, 2 LIMIT int8($1) OFFSET int8($1);
EXECUTE shown_cast (2);
PREPARE shown_offset (int8, int8) AS SELECT $2 AS n, k, count(*) FROM lg GROUP BY 1, 2 ORDER BY 3 DESC, 2 LIMIT $1 OFFSET $2;
EXECUTE shown_offset (3, 1);
PREPARE shown_distinct (int) AS SELECT DISTINCT $1 AS n, k FROM lg ORDER BY k LIMIT $1;
EXECUTE shown_distinct (2);
PREPARE shown_joined (int8) AS SELECT $1 AS n, a.k, sum(a.i4) FROM lg a JOIN lg b ON a.id = b.id GROUP BY 1, 2 ORDER BY 3 DESC, 2 LIMIT $1;
EXECUTE shown_joined (2);
SELECT a.k, sum(a.i4) FROM lh a JOIN lh b ON a.id = b.id GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 2;
-- And one that conditions and orders of groups have.
PREPARE shown_having (int) AS SELECT $1 AS n, k, count(*) FROM lg GROUP BY 1, 2 HAVING count(*) > $1 AND sum(i4) + $1 > 0 ORDER BY count(*) + $1 DESC, 2 LIMIT $1;
EXECUTE shown_having (3);
DEALLOCATE ALL;
-- A value that a condition of groups may come to behind a limit.
CREATE FUNCTION l_fail() RETURNS int LANGUAGE sql STABLE AS 'SELECT 1 / (count(*)::int - count(*)::int) FROM (VALUES (1)) v';
EXPLAIN (COSTS OFF) SELECT k FROM lg GROUP BY k HAVING k > 0 OR max(i4) = (SELECT l_fail()) LIMIT 1;
SELECT k FROM lg GROUP BY k HAVING k > 0 OR max(i4) = (SELECT l_fail()) LIMIT 1;
SELECT k FROM lg GROUP BY k HAVING k > 0 OR max(i4) = (SELECT l_fail());
-- A child of an Append that a limit does not come to is sent to the GPU with the others, and raises no error: neither of a value, nor of a row, whatever computes it.
CREATE FOREIGN TABLE lf (k int) SERVER gstore_fdw;
INSERT INTO lf SELECT generate_series(1, 10);
EXPLAIN (COSTS OFF) SELECT k FROM lg WHERE k >= 0 UNION ALL SELECT k FROM lf WHERE k > (SELECT l_fail()) LIMIT 1;
SELECT k FROM lg WHERE k >= 0 UNION ALL SELECT k FROM lf WHERE k > (SELECT l_fail()) LIMIT 1;
SELECT count(*), sum(k) FROM (SELECT k FROM lg WHERE k >= 0 UNION ALL SELECT k FROM lf WHERE 10 / (k - 5) > 0 LIMIT 1000) t;
SELECT k FROM lg WHERE k >= 0 UNION ALL SELECT 10 / (k - 1) FROM lf WHERE k > 0 LIMIT 1;
SELECT k FROM lg WHERE k >= 0 UNION ALL SELECT max(10 / (k - 5)) FROM lf LIMIT 1;
SELECT k FROM lf WHERE k > 3 UNION ALL SELECT k FROM lf WHERE 10 / (k - 5) > 0 LIMIT 7;
-- It does, once rows of it are asked for, and all rows come.
SELECT k FROM lg WHERE k >= 0 UNION ALL SELECT k FROM lf WHERE k > (SELECT l_fail()) OFFSET 1000;
SELECT k FROM lf WHERE k > 3 UNION ALL SELECT k FROM lf WHERE 10 / (k - 5) > 0;
SELECT count(*), sum(k) FROM (SELECT k FROM lf WHERE 10 / (k + 5) > 0 UNION ALL SELECT k FROM lg WHERE k % 3 = 1 UNION ALL SELECT k FROM lf WHERE k > 3 UNION ALL SELECT k FROM lf WHERE k + 1 > 4 UNION ALL SELECT k FROM lh WHERE k > 3 UNION ALL SELECT k FROM lf WHERE k > (SELECT min(k) + 2 FROM lh) UNION ALL SELECT k * 2 FROM lf WHERE k > 3) t;
WITH lf AS (SELECT generate_series(1, 10) AS k)
SELECT count(*), sum(k) FROM (SELECT k FROM lf WHERE 10 / (k + 5) > 0 UNION ALL SELECT k FROM lh WHERE k % 3 = 1 UNION ALL SELECT k FROM lf WHERE k > 3 UNION ALL SELECT k FROM lf WHERE k + 1 > 4 UNION ALL SELECT k FROM lh WHERE k > 3 UNION ALL SELECT k FROM lf WHERE k > (SELECT min(k) + 2 FROM lh) UNION ALL SELECT k * 2 FROM lf WHERE k > 3) t;
DROP FUNCTION l_fail, shown_plan;
DROP FOREIGN TABLE lg, lf;
DROP TABLE lh;
-- Groups in an order, where the planner has dismissed the path on the GPU of groups alone: by what it takes to start, or as it runs locally.
RESET gstore_fdw.gpu_startup_cost;
RESET gstore_fdw.gpu_instruction_cost;
CREATE FOREIGN TABLE ld (id int, a int, b int, c numeric(10,2), t text, d date) SERVER gstore_fdw;
DO $$ BEGIN EXECUTE 'EXPLAIN SELECT b, count(*), sum(c), max(d) FROM ld GROUP BY b ORDER BY b LIMIT 3'; END $$;
DO $$ BEGIN EXECUTE 'EXPLAIN SELECT a, b, count(*), sum(c), max(d) FROM ld WHERE id > 5 GROUP BY a, b ORDER BY a, b LIMIT 3'; END $$;
SELECT b, count(*), sum(c), max(d) FROM ld GROUP BY b ORDER BY b LIMIT 3;
INSERT INTO ld SELECT i, i, i, i, 'n' || i, date '2000-01-01' + i % 9 FROM generate_series(1, 20000) i;
ANALYZE ld;
SET gstore_fdw.gpu_query_memory = '1MB';
SELECT count(*), b, id FROM ld GROUP BY id, b ORDER BY 1, 3 LIMIT 5;
SELECT max(c), t FROM ld GROUP BY t ORDER BY 1 DESC LIMIT 3;
SET gstore_fdw.gpu_startup_cost = 20;
SELECT count(*), b, id FROM ld GROUP BY id, b ORDER BY 1, 3 LIMIT 5;
RESET gstore_fdw.gpu_query_memory;
SELECT count(*), b, id FROM ld GROUP BY id, b ORDER BY 1, 3 LIMIT 5;
DROP FOREIGN TABLE ld;
