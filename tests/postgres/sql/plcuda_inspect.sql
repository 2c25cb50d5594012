-- What the driver says of kernels; #plcuda_include, #plcuda_library; names of the older system.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS plcuda;
RESET client_min_messages;
CREATE ROLE i_user;
CREATE FUNCTION i_fails(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE detail text; context text;
BEGIN
    EXECUTE statement;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, context = PG_EXCEPTION_CONTEXT;
    RETURN concat_ws(', ', SQLSTATE, SQLERRM, substring(context from 'line [0-9]+ of a plcuda'), replace(substring(detail from '(\w+[:(][0-9]+)[^\n]* error'), '(', ':'));
END $$;

-- Of each kernel; the software GPU's blocks have 64 threads, the least of real ones 1024, if they have the registers.
CREATE FUNCTION i_blocks(n int) RETURNS int LANGUAGE plcuda AS $$
#plcuda_prep
#plcuda_end
#plcuda_begin
*retval = arg1;
#plcuda_end
$$;
SELECT kernel, max_blocksz >= 64 AS threads, registers >= 0 AS registers, static_shmsz, dynamic_shmsz >= 65536 AS shared, const_memsz >= 0 AS constant, local_memsz >= 0 AS local FROM plcuda_kernel_info('i_blocks');
SELECT i.max_blocksz = g.max_blocksz AS threads, i.dynamic_shmsz = g.max_shmsz AS shared, multiprocessors > 0 AS multiprocessors, warp_size > 0 AS warp, memory > 0 AS memory, name <> '' AS name FROM plcuda_kernel_info('i_blocks') i, plcuda_gpu_info() g WHERE kernel = 'main';
SELECT plcuda_kernel_max_blocksz('i_blocks') = max_blocksz AS main, plcuda_kernel_max_blocksz('i_blocks', 'prep') = max_blocksz AS prep, plcuda_kernel_max_blocksz('i_blocks', 'post') AS post,
    plcuda_kernel_static_shmsz('i_blocks') AS static, plcuda_kernel_dynamic_shmsz('i_blocks') = max_shmsz AS dynamic, plcuda_kernel_const_memsz('i_blocks') >= 0 AS const, plcuda_kernel_local_memsz('i_blocks') >= 0 AS local FROM plcuda_gpu_info();
SELECT plcuda_kernel_max_blocksz(NULL) IS NULL AS of_null;
-- As large as may be is accepted, and one more is not.
CREATE FUNCTION i_shared(n int) RETURNS bigint LANGUAGE sql AS 'SELECT plcuda_kernel_dynamic_shmsz() + n';
CREATE FUNCTION i_threads(n int) RETURNS int LANGUAGE sql AS 'SELECT plcuda_kernel_max_blocksz()';
CREATE FUNCTION i_kernel(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE INFO 'of %', (SELECT string_agg(kernel, ' ') FROM plcuda_kernel_info()); RETURN 16; END $$;
CREATE FUNCTION i_most(n int) RETURNS int LANGUAGE plcuda AS $$
#plcuda_working_bufsz i_kernel
#plcuda_prep
#plcuda_num_threads i_kernel
#plcuda_end
#plcuda_begin
#plcuda_num_threads i_threads
#plcuda_kernel_blocksz i_threads
#plcuda_shmem_blocksz i_shared
((char *)gvm_shared())[0] = 1;
if (gvm_thread() == 0)
    retval->value = (int32_t)gvm_block_threads();
retval->isnull = 0;
#plcuda_end
#plcuda_post
#plcuda_shmem_unitsz i_kernel
#plcuda_end
$$;
SELECT i_most(0) = plcuda_kernel_max_blocksz('i_most') AS most;
SELECT substring(i_fails('SELECT i_most(1)') from '^.....');
-- A question about kernels comes before the first call: those that gather the result are there, too.
CREATE FUNCTION i_text_of(n int) RETURNS text LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_num_threads i_threads
if (gvm_thread_global() == 0) {
    retval->value = "abc";
    retval->length = 3;
    retval->isnull = 0;
}
#plcuda_end
$$;
SELECT i_text_of(0);
-- Who may not call it, may not ask; and what is no function.
SET ROLE i_user;
SELECT i_fails('SELECT plcuda_gpu_info()');
SELECT i_fails($$SELECT plcuda_kernel_max_blocksz('i_blocks')$$);
RESET ROLE;
REVOKE EXECUTE ON FUNCTION i_blocks FROM public;
SET ROLE i_user;
SELECT i_fails($$SELECT plcuda_kernel_max_blocksz('i_blocks')$$);
RESET ROLE;
SELECT i_fails(s) FROM unnest(ARRAY['SELECT plcuda_kernel_max_blocksz()', 'SELECT plcuda_kernel_info()', $$SELECT plcuda_kernel_max_blocksz('now')$$, 'SELECT plcuda_kernel_max_blocksz(99999999)']) s;

-- Texts that functions return: with the arguments, or without.
CREATE FUNCTION i_distance(kind text, a float8, b float8) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE kind WHEN 'manhattan' THEN '#define DISTANCE(x) ((x) < 0 ? -(x) : (x))' WHEN 'euclid' THEN '#define DISTANCE(x) ((x) * (x))' WHEN 'wrong' THEN E'\n#define DISTANCE(x) missing(x)\nint two = ;\n' END $$;
CREATE FUNCTION i_unit() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '#define UNIT 100' $$;
CREATE FUNCTION i_measured(kind text, a float8, b float8) RETURNS float8 LANGUAGE plcuda AS $$
#plcuda_include i_unit
#plcuda_include i_distance
#plcuda_begin
retval->value = DISTANCE(arg2.value - arg3.value) * UNIT;
retval->isnull = 0;
#plcuda_end
$$;
SELECT kind, i_measured(kind, 1, 4) FROM unnest(ARRAY['manhattan', 'euclid', 'manhattan']) kind;
SELECT i_fails($$SELECT i_measured('none', 1, 4)$$), i_fails($$SELECT i_measured('wrong', 1, 4)$$);
SELECT plcuda_function_source('i_measured') ~ '#plcuda_include i_unit.*#plcuda_include i_distance.*GVM_KERNEL' AS named, plcuda_function_source('i_measured') ~ 'define' AS texts;
SELECT i_fails($$SELECT plcuda_kernel_max_blocksz('i_measured')$$);
-- Of none at CREATE FUNCTION; when it returns another text that is compiled.
CREATE FUNCTION i_units() RETURNS int LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_include i_unit
retval->value = UNIT + __LINE__ * 1000;
retval->isnull = 0;
#plcuda_end
$$;
SELECT i_units(), plcuda_function_source('i_units') ~ '#line 1 "i_unit"\n#define UNIT 100\n' AS text, plcuda_kernel_max_blocksz('i_units') >= 64 AS threads;
CREATE OR REPLACE FUNCTION i_unit() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '#define UNIT 7' $$;
SELECT i_units();
CREATE OR REPLACE FUNCTION i_unit() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT E'#define UNIT 7\nerror here;' $$;
SELECT i_fails('SELECT i_units()'), i_fails($f$CREATE FUNCTION i_new() RETURNS int LANGUAGE plcuda AS E'\n#plcuda_include i_unit\n#plcuda_begin\n#plcuda_end\n'$f$);
-- No files by that way either, also not in pieces.
CREATE FUNCTION i_text(text) RETURNS text LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION i_any(text) RETURNS int LANGUAGE plcuda AS $$
#plcuda_include i_text
#plcuda_decl
include "/etc/passwd"
#plcuda_end
#plcuda_begin
retval->isnull = 1;
#plcuda_end
$$;
SELECT t, i_fails(format('SELECT i_any(%L)', t)) FROM unnest(ARRAY['#include "/etc/passwd"', E'#', E'/* */#/*\n*/include <x>', E'%:\\', '']) t;
SELECT left(i_fails(format('SELECT i_any(%L)', repeat('x', 1 << 20))), 5);
-- Rights: the caller needs EXECUTE, and the text is a superuser's.
CREATE FUNCTION i_plain() RETURNS text LANGUAGE sql AS $$ SELECT '#define PLAIN 1' $$;
CREATE FUNCTION i_plains() RETURNS int LANGUAGE plcuda AS $$
#plcuda_include i_plain
#plcuda_include "sort.h"
#plcuda_begin
#plcuda_include "pglz.h"
retval->value = PLAIN;
retval->isnull = 0;
#plcuda_end
$$;
SET ROLE i_user;
SELECT i_plains();
RESET ROLE;
REVOKE EXECUTE ON FUNCTION i_plain FROM public;
SET ROLE i_user;
SELECT i_fails('SELECT i_plains()');
RESET ROLE;
ALTER FUNCTION i_plain OWNER TO i_user;
SELECT i_fails('SELECT i_plains()');
-- Neither the caller's search_path nor a temporary table chooses what is compiled.
CREATE TABLE i_texts AS SELECT '#define CHOSEN 1' AS t;
GRANT SELECT ON i_texts TO i_user;
CREATE FUNCTION i_chosen() RETURNS text LANGUAGE sql AS $$ SELECT t FROM i_texts $$;
CREATE FUNCTION i_choice() RETURNS int LANGUAGE plcuda AS $$
#plcuda_include i_chosen
#plcuda_begin
retval->value = CHOSEN;
retval->isnull = 0;
#plcuda_end
$$;
SET ROLE i_user;
CREATE TEMP TABLE i_texts AS SELECT '#define CHOSEN 666' AS t;
SELECT i_choice();
SET search_path = pg_temp, pg_catalog;
SELECT public.i_choice();
SHOW search_path;
RESET search_path;
RESET ROLE;
DROP TABLE pg_temp.i_texts;
ALTER FUNCTION i_chosen SET search_path = pg_catalog;
SELECT i_fails('SELECT i_choice()');
SHOW search_path;
DROP TABLE i_texts;
-- What else is refused.
CREATE FUNCTION i_number() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION i_set() RETURNS SETOF text LANGUAGE sql AS 'SELECT ''x''';
SELECT d, i_fails(format('CREATE FUNCTION i_new(int) RETURNS int LANGUAGE plcuda AS %L', E'\n' || d || E'\n#plcuda_begin\n#plcuda_end\n')) FROM unnest(ARRAY['#plcuda_include', '#plcuda_include i_number', '#plcuda_include i_set', '#plcuda_include i_missing',
    '#plcuda_include "/etc/passwd"', '#plcuda_include "../device.h"', '#plcuda_include "sort.h', '#plcuda_include "missing.h"', '#plcuda_include ""', '#plcuda_include <sort.h>', '#plcuda_library cublas']) d;
SELECT i_fails($f$CREATE FUNCTION i_self() RETURNS text LANGUAGE plcuda AS E'\n#plcuda_begin\n#plcuda_end\n'; CREATE OR REPLACE FUNCTION i_self() RETURNS text LANGUAGE plcuda AS E'\n#plcuda_include i_self\n#plcuda_begin\n#plcuda_end\n'$f$);

-- Names of PG-Strom 2, which the extension has from 1.1 on.
SET client_min_messages = warning;
CREATE EXTENSION pg_strom VERSION '1.0';
SELECT i_fails($$SELECT pgstrom.plcuda_kernel_max_blocksz('i_blocks')$$);
ALTER EXTENSION pg_strom UPDATE;
RESET client_min_messages;
SELECT pgstrom.plcuda_function_source('i_blocks') = plcuda_function_source('i_blocks') AS source, pgstrom.plcuda_kernel_max_blocksz('i_blocks') = max_blocksz AS threads,
    pgstrom.plcuda_kernel_static_shmsz('i_blocks') = static_shmsz AS static, pgstrom.plcuda_kernel_dynamic_shmsz('i_blocks') = dynamic_shmsz AS dynamic,
    pgstrom.plcuda_kernel_const_memsz('i_blocks') = const_memsz AS const, pgstrom.plcuda_kernel_local_memsz('i_blocks') = local_memsz AS local FROM plcuda_kernel_info('i_blocks') WHERE kernel = 'main';
CREATE OR REPLACE FUNCTION i_threads(n int) RETURNS int LANGUAGE sql AS 'SELECT pgstrom.plcuda_kernel_max_blocksz()';
SELECT i_most(0) = plcuda_kernel_max_blocksz('i_most') AS most;
SELECT i_fails('SELECT pgstrom.plcuda_kernel_max_blocksz()');

SET client_min_messages = warning;
DROP EXTENSION plcuda CASCADE;
SELECT i_fails('SELECT pgstrom.plcuda_kernel_max_blocksz()');
DROP EXTENSION pg_strom;
DO $$ BEGIN EXECUTE (SELECT string_agg(format('DROP FUNCTION %s', oid::regprocedure), '; ') FROM pg_proc WHERE proname ~ '^i_' AND pronamespace = 'public'::regnamespace); END $$;
DROP ROLE i_user;
