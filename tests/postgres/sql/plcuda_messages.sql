-- Messages from kernels: values in texts, order, bound, levels, failing calls, encodings; volatility, cost and rows.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS plcuda;
RESET client_min_messages;

-- Values of each kind.
CREATE FUNCTION n_values(a int, b float8, c text) RETURNS int LANGUAGE plcuda AS $$
#plcuda_begin
float third = 1.0f / 3;
uint64_t most = ~(uint64_t)0;
char letters[4] = {'a', 'b', 'c', 0};
plcuda_notice(plcuda, "no value");
plcuda_notice(plcuda, "int % uint64 % float % double %", arg1.value, most, third, arg2.value);
plcuda_notice(plcuda, "text <%>, string <%>, letters <%>", arg3, "of C", letters);
plcuda_notice(plcuda, "100 %% and 5%", 7);
plcuda_notice(plcuda, "a value too few: % %", (short)-3);
plcuda_notice(plcuda, "a value too many: %", 1, 2);
plcuda_notice(plcuda, "% without any");
plcuda_notice(plcuda, "%", (uint64_t)1 << 63);
plcuda_notice(plcuda, "%", (int64_t)((uint64_t)1 << 63));
plcuda_debug(plcuda, "seen at debug1: %", arg1.value);
*retval = arg1;
#plcuda_end
$$;
SELECT n_values(-5, 0.1, 'häschen');
SELECT n_values(0, 'NaN', NULL);
SELECT n_values(0, '-Infinity', '');
SELECT n_values(0, 1e300, repeat('long ', 100));
SET client_min_messages = debug1;
SELECT n_values(1, 5e-324, 'x');
SET client_min_messages = warning;
SELECT n_values(1, 2, 'x');
RESET client_min_messages;

-- In order, over all kernels of a call; the first ones, and how many more.
CREATE FUNCTION n_many(n int) RETURNS int LANGUAGE plcuda AS $$
#plcuda_prep
plcuda_notice(plcuda, "first");
#plcuda_end
#plcuda_begin
for (int i = 0; i < arg1.value; i++)
    plcuda_notice(plcuda, "number %", i);
#plcuda_end
#plcuda_post
plcuda_notice(plcuda, "last");
*retval = arg1;
#plcuda_end
$$;
SELECT n_many(3);
SELECT n_many(0) FROM generate_series(1, 2);
SELECT n_many(100000);
CREATE FUNCTION n_threads(n int) RETURNS int LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_num_threads 64
if (gvm_thread_global() < 20)
    plcuda_notice(plcuda, "from a thread");
if (gvm_thread_global() == 0)
    plcuda_debug(plcuda, "of thread %", gvm_thread_global());
retval->isnull = 0;
#plcuda_end
$$;
SELECT n_threads(1);
-- Where all are debug messages, so is that there are more.
CREATE FUNCTION n_debug(n int) RETURNS int LANGUAGE plcuda AS $$
#plcuda_begin
for (int i = 0; i < arg1.value; i++)
    plcuda_debug(plcuda, "number %", i);
#plcuda_end
$$;
SELECT n_debug(100);

-- Also when the call fails, by each way.
CREATE FUNCTION n_fails(how int) RETURNS int LANGUAGE plcuda AS $$
#plcuda_prep
plcuda_notice(plcuda, "before it fails");
#plcuda_end
#plcuda_begin
if (arg1.value == 1)
    plcuda_raise(plcuda, "22003", "value % in row % is not %", arg1.value * 1000, gvm_thread_count(), 0.5);
if (arg1.value == 2)
    *(volatile int *)8 = 1;
if (arg1.value == 3)
    for (;;)
        gvm_pause();
if (arg1.value == 4)
    plcuda_fall_back(plcuda);
plcuda_notice(plcuda, "after it");
#plcuda_end
$$;
SELECT n_fails(1);
\set VERBOSITY sqlstate
SELECT n_fails(2);
SET plcuda.time_limit = '500ms';
SELECT n_fails(3);
RESET plcuda.time_limit;
\set VERBOSITY terse
SELECT n_fails(4);
DO $$ BEGIN PERFORM n_fails(1); EXCEPTION WHEN OTHERS THEN RAISE INFO '% %', SQLSTATE, SQLERRM; END $$;
SELECT n_fails(0);

-- Encodings; a text that is cut off ends with a whole character.
CREATE FUNCTION n_bytes(b bytea) RETURNS int LANGUAGE plcuda AS $$
#plcuda_begin
pg_text_t t = {arg1.value, arg1.length, 0};
plcuda_notice(plcuda, "<%", t);
plcuda_raise(plcuda, "22021", "<%", t);
#plcuda_end
$$;
SELECT n_bytes('\xff41');
SELECT n_bytes('\x41c3');
SELECT n_bytes('\x4100c3a4');
SELECT n_bytes(convert_to(repeat('ä', 200), 'UTF8'));
-- What does not fit is an error of the compiler.
CREATE FUNCTION n_five() RETURNS int LANGUAGE plcuda AS $$
#plcuda_begin
plcuda_notice(plcuda, "% % % % %", 1, 2, 3, 4, 5);
#plcuda_end
$$;

-- An IMMUTABLE function without tables is called once, when the query is planned; a VOLATILE one for each row.
CREATE FUNCTION n_once(n int) RETURNS int IMMUTABLE COST 7 LANGUAGE plcuda AS $$
#plcuda_begin
plcuda_notice(plcuda, "called with %", arg1.value);
*retval = arg1;
#plcuda_end
$$;
SELECT i, n_once(5) FROM generate_series(1, 3) i;
EXPLAIN (COSTS off, VERBOSE) SELECT i FROM generate_series(1, 3) i WHERE n_once(1) = 1 AND n_once(i) > 0;
ALTER FUNCTION n_once VOLATILE;
SELECT i, n_once(5) FROM generate_series(1, 2) i;
-- A STABLE one over a table may be the key of an index scan, and sees what the query sees.
CREATE FOREIGN TABLE n_table (id int) SERVER gstore_fdw;
INSERT INTO n_table SELECT generate_series(1, 100);
CREATE FUNCTION n_count(t reggstore) RETURNS int8 STABLE LANGUAGE plcuda AS $$
#plcuda_begin
PLCUDA_FOR_ROWS (arg1.value, row) retval->value++;
retval->isnull = 0;
#plcuda_end
$$;
CREATE TABLE n_heap AS SELECT i::int8 AS i FROM generate_series(1, 1000) i;
CREATE UNIQUE INDEX n_index ON n_heap (i);
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS off) SELECT i FROM n_heap WHERE i = n_count('n_table');
SELECT i FROM n_heap WHERE i = n_count('n_table');
DELETE FROM n_table WHERE id > 40;
SELECT i FROM n_heap WHERE i = n_count('n_table');
RESET enable_seqscan;
RESET enable_bitmapscan;
-- Cost is PostgreSQL's.
CREATE FUNCTION n_cost(query text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
    RETURN plan -> 0 -> 'Plan' ->> 'Total Cost';
END $$;
SELECT n_cost('SELECT n_many(i) FROM generate_series(1, 1000) i') AS usual;
ALTER FUNCTION n_many COST 1001;
SELECT n_cost('SELECT n_many(i) FROM generate_series(1, 1000) i') - 2500 AS more;

SET client_min_messages = warning;
DROP EXTENSION plcuda CASCADE;
DROP FOREIGN TABLE n_table;
DROP TABLE n_heap;
DROP FUNCTION n_cost;
