\set ECHO none
-- What the tests of queries on the GPU compare: a query over a heap with the same over two tables in GPU memory. Settings of the test:
--   test.tables   the tables are q of these queries with this in place of q, and h (the heap), g, a (format 'arrow') behind it
--   test.node     what EXPLAIN (FORMAT JSON) has of a plan that uses the GPU so
--   test.ordered  the order of rows is compared, too
--   test.shown    'count': of rows their number; 'N M': all of them up to N bytes, otherwise M and a hash
-- Tables of these tests are small: the planner is to choose the GPU all the same.
SET max_parallel_workers_per_gather = 0;
SET gstore_fdw.gpu_startup_cost = 0;
SET gstore_fdw.gpu_instruction_cost = 0;
-- What a query returns, or its error.
CREATE FUNCTION answer(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    one text;
    rows text[] := '{}';
BEGIN
    FOR one IN EXECUTE 'SELECT r::text FROM (' || query || ') r' || CASE WHEN NOT current_setting('test.ordered')::bool THEN ' ORDER BY 1' ELSE '' END LOOP
        rows := rows || one;
    END LOOP;
    IF current_setting('test.shown') = 'count' THEN
        RETURN cardinality(rows) || ' ' || md5(array_to_string(rows, ' '));
    END IF;
    RETURN CASE WHEN rows = '{}' THEN 'no rows' ELSE array_to_string(rows, ' ', 'NULL') END;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
-- Where it runs: "on the GPU", by what else and why, or NULL: not there, as planned. Of an error, where it was planned for.
CREATE FUNCTION place(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    plan text;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ' || query INTO plan;
    RETURN CASE WHEN plan ~ current_setting('test.node') THEN substring(plan FROM '"Ran": "([^"]*)"') END;
EXCEPTION WHEN OTHERS THEN
    EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
    RETURN CASE WHEN plan ~ current_setting('test.node') THEN 'on the GPU' END;
END $$;
-- Of a query FROM q: the heap's answer, if tables of both formats have the same, with and without the GPU; and where it ran, if not where
-- it is wanted.
CREATE FUNCTION same(query text, wanted text = 'on the GPU') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    tables text := current_setting('test.tables');
    shown text := current_setting('test.shown');
    heap text := answer(regexp_replace(query, '\mq\M', tables || 'h', 'g'));
    found text;
    elsewhere text := '';
    own text;
BEGIN
    FOREACH own IN ARRAY ARRAY[tables || 'g', tables || 'a'] LOOP
        own := regexp_replace(query, '\mq\M', own, 'g');
        SET LOCAL gstore_fdw.gpu_queries = on;
        found := place(own);
        IF found IS DISTINCT FROM wanted THEN
            elsewhere := ' [' || coalesce(found, 'local') || ']';
        END IF;
        found := answer(own);
        IF found <> heap THEN
            RETURN own || ' on the GPU: ' || found || ' and not ' || heap;
        END IF;
        SET LOCAL gstore_fdw.gpu_queries = off;
        found := answer(own);
        IF place(own) IS NOT NULL OR found <> heap THEN
            RETURN own || ' without the GPU: ' || found || ' and not ' || heap;
        END IF;
    END LOOP;
    SET LOCAL gstore_fdw.gpu_queries = on;
    IF shown = 'count' THEN
        heap := regexp_replace(heap, '^(\d{1,4}) .*', '\1');
    ELSIF length(heap) > split_part(shown, ' ', 1)::int THEN
        heap := left(heap, split_part(shown, ' ', 2)::int) || '... ' || md5(heap);
    END IF;
    RETURN heap || elsewhere;
END $$;
\set ECHO all
