-- gstore_fdw.gpu_..._cost: what each adds to the planner's estimate of a query on the GPU.
SET max_parallel_workers_per_gather = 0;
CREATE FOREIGN TABLE qc (k int, v float8) SERVER gstore_fdw;
INSERT INTO qc SELECT i % 8, i FROM generate_series(1, 100000) i;
CREATE FOREIGN TABLE qd (k int, v int) SERVER gstore_fdw;
INSERT INTO qd SELECT i, i FROM generate_series(0, 7) i;
ANALYZE qc, qd;
-- Of a plan on the GPU.
CREATE FUNCTION estimated(query text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
    RETURN CASE WHEN plan::text ~ '"GPU"' THEN round((plan -> 0 -> 'Plan' ->> 'Total Cost')::numeric) END;
END $$;
-- What a value of a setting adds to costs where all others are 0.
CREATE FUNCTION added(setting text, value float8) RETURNS TABLE (filter numeric, groups numeric, joined numeric) LANGUAGE plpgsql AS $$
DECLARE
    queries constant text[] := ARRAY['SELECT count(*) FROM qc WHERE k < 4', 'SELECT k, count(*) FROM qc GROUP BY k', 'SELECT sum(qd.v) FROM qc JOIN qd USING (k)'];
    costs numeric[];
BEGIN
    FOR i IN 1 .. 3 LOOP
        PERFORM set_config(format('gstore_fdw.gpu_%s_cost', s), '0', true) FROM unnest(ARRAY['startup', 'instruction', 'group', 'probe', 'page']) s;
        costs[i] := -estimated(queries[i]);
        PERFORM set_config(format('gstore_fdw.gpu_%s_cost', setting), value::text, true);
        costs[i] := costs[i] + estimated(queries[i]);
    END LOOP;
    RETURN QUERY SELECT costs[1], costs[2], costs[3];
END $$;
SELECT setting, a.* FROM (VALUES ('startup', 100.0), ('instruction', 0.0005), ('group', 0.001), ('probe', 0.001), ('page', 1)) s (setting, value), added(setting, value::float8) a;
-- Unless they are set, groups and probes cost what an instruction does, and pages nothing.
SET gstore_fdw.gpu_startup_cost = 0;
SET gstore_fdw.gpu_instruction_cost = 0.0005;
SELECT estimated('SELECT k, count(*) FROM qc GROUP BY k') AS groups, estimated('SELECT sum(qd.v) FROM qc JOIN qd USING (k)') AS joined;
-- A list costs what the estimate of a sort has too much: nearly all rows are compared once, and not log2(20) times.
SET gstore_fdw.gpu_instruction_cost = 0;
SELECT estimated('SELECT v FROM qc ORDER BY v LIMIT 10') BETWEEN 1659 AND 1759 AS list;
-- By default they are the device's.
RESET gstore_fdw.gpu_startup_cost;
RESET gstore_fdw.gpu_instruction_cost;
SELECT estimated('SELECT k, count(*) FROM qc GROUP BY k') > 0 AS groups;
DROP FUNCTION added, estimated;
DROP FOREIGN TABLE qc, qd;
