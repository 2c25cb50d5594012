-- Limits of groups on the GPU by parameters that are values of the groups, too, in generic plans.
SET max_parallel_workers_per_gather = 0;
SET gstore_fdw.gpu_startup_cost = 0;
SET gstore_fdw.gpu_instruction_cost = 0;
SET plan_cache_mode = force_generic_plan;
CREATE FOREIGN TABLE lg (id int, k int, i4 int) SERVER gstore_fdw;
INSERT INTO lg SELECT i, i * i % 7, i % 10 FROM generate_series(1, 1000) i;
CREATE TABLE lh AS SELECT * FROM lg;
PREPARE shown_limit (int8) AS SELECT $1 AS n, k, count(*) FROM lg GROUP BY 1, 2 ORDER BY 3 DESC, 2 LIMIT $1;
EXPLAIN (COSTS OFF) EXECUTE shown_limit (3);
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
DROP FUNCTION l_fail;
DROP FOREIGN TABLE lg;
DROP TABLE lh;
