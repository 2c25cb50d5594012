-- Functions in the language plcuda: every type in and out, tables of both formats, rights, what is refused, errors from the
-- compiler, from kernels and from directives.
\set VERBOSITY terse
CREATE EXTENSION IF NOT EXISTS plcuda;
SELECT lanname, lanpltrusted FROM pg_language WHERE lanname = 'plcuda';

-- Types: the value comes back, and NULL is NULL.
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['bool', 'int2', 'int4', 'int8', 'float4', 'float8'] LOOP
        EXECUTE format('CREATE FUNCTION p_same(%s) RETURNS %1$s LANGUAGE plcuda AS %L', t,
            E'\n#plcuda_begin\n*retval = arg1;\n#plcuda_end\n');
    END LOOP;
    FOREACH t IN ARRAY ARRAY['text', 'bytea'] LOOP
        EXECUTE format('CREATE FUNCTION p_length(%s) RETURNS int8 LANGUAGE plcuda AS %L', t,
            E'\n#plcuda_begin\nretval->value = arg1.length;\nretval->isnull = arg1.isnull;\n#plcuda_end\n');
        EXECUTE format('CREATE FUNCTION p_same(%s) RETURNS %1$s LANGUAGE plcuda AS %L', t, $f$
#plcuda_results_bufsz p_length
#plcuda_begin
for (uint32_t i = 0; i < arg1.length; i++)
    ((char *)results)[i] = arg1.value[i];
retval->value = (const char *)results;
retval->length = arg1.length;
retval->isnull = 0;
#plcuda_end
$f$);
    END LOOP;
END $$;
SELECT p_same(true), p_same(false), p_same(NULL::bool);
SELECT p_same((-32768)::int2), p_same((-2147483647 - 1)::int4), p_same(9223372036854775807), p_same(NULL::int2), p_same(NULL::int4),
    p_same(NULL::int8);
SELECT p_same('-0'::float4), p_same('NaN'::float4), p_same(1e-40::float4), p_same('-Infinity'::float8), p_same(0.1::float8),
    p_same(NULL::float8);
SELECT p_same('häschen'::text), p_same(''::text), p_same('\x00ff00'::bytea), length(p_same(repeat('x', 3000000)));
SELECT p_length(NULL::text), p_length(repeat('y', 100000));
SELECT p_same(NULL::text);
-- Nothing is returned: NULL.
CREATE FUNCTION p_nothing() RETURNS int LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_end
$$;
SELECT p_nothing() IS NULL AS is_null;

-- Blocks run in their order; buffers are cleared; threads and shared memory are as asked for.
CREATE FUNCTION p_wants(n int) RETURNS bigint IMMUTABLE LANGUAGE SQL AS 'SELECT n::bigint';
CREATE FUNCTION p_wants_work(n int) RETURNS int IMMUTABLE LANGUAGE SQL AS 'SELECT 8 * n';
CREATE FUNCTION p_blocks(n int) RETURNS bigint LANGUAGE plcuda AS $$
#plcuda_decl
GVM_DEVICE uint64_t square(uint64_t n) { return n * n; }
#plcuda_end
#plcuda_prep
#plcuda_num_threads p_wants
#plcuda_working_bufsz p_wants_work
uint64_t *squares = (uint64_t *)workbuf;
if (squares[gvm_thread_global()] != 0)
    plcuda_raise(plcuda, "XX000", "the work buffer is not cleared");
squares[gvm_thread_global()] = square(gvm_thread_global() + 1);
#plcuda_end
#plcuda_begin
#plcuda_num_threads 64
#plcuda_kernel_blocksz 32
#plcuda_shmem_unitsz 8
#plcuda_shmem_blocksz 16
uint64_t *shared = (uint64_t *)gvm_shared();
uint64_t sum = 0;
shared[gvm_thread()] = 0;
for (uint64_t i = gvm_thread_global(); i < (uint64_t)arg1.value; i += gvm_thread_count())
    shared[gvm_thread()] += ((uint64_t *)workbuf)[i];
gvm_block_sync();
if (gvm_thread() == 0) {
    for (uint32_t i = 0; i < gvm_block_threads(); i++)
        sum += shared[i];
    gvm_atomic_add_u64((uint64_t *)&retval->value, sum);
}
#plcuda_end
#plcuda_post
retval->value += 1000000;
retval->isnull = 0;
#plcuda_end
$$;
SELECT n, p_blocks(n) = 1000000 + (SELECT sum(i * i) FROM generate_series(1, n) i) AS same FROM unnest(ARRAY[32, 64, 96, 128, 1024]) n;
SELECT p_blocks(0);
SELECT p_blocks(NULL);

-- Functions of mathematics; fma() rounds once, what is written as product and sum rounds twice.
CREATE FUNCTION p_math(float8) RETURNS float8 LANGUAGE plcuda AS $$
#plcuda_begin
retval->value = exp(log(arg1.value)) + sqrt(arg1.value) + pow(arg1.value, 3);
retval->isnull = 0;
#plcuda_end
$$;
SELECT abs(p_math(2) - (2 + sqrt(2) + 8)) < 1e-14 AS same;
CREATE FUNCTION p_rounds(float8) RETURNS boolean LANGUAGE plcuda AS $$
#plcuda_begin
const double square = arg1.value * arg1.value;
retval->value = fma(arg1.value, arg1.value, -square) != 0 && arg1.value * arg1.value - square == 0;
retval->isnull = 0;
#plcuda_end
$$;
SELECT p_rounds(0.1);

-- Tables: each type of column, NULLs, by name and by number; both formats; deleted rows.
CREATE FOREIGN TABLE p_rows (id int, b bool, s int2, l int8, f float4, d float8, t text, v varchar(9), x bytea, gone int) SERVER gstore_fdw;
CREATE FOREIGN TABLE p_arrow (id int, b bool, s int2, l int8, f float4, d float8, t text, v varchar(9), x bytea, gone int) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO p_rows SELECT i, nullif(i % 3, 0) = 1, nullif(i % 5, 0), i * 10000000000, i / 4.0, nullif(i / 8.0, 1.5), repeat('t', i % 7), nullif('v' || i % 4, 'v0'),
    decode(nullif(repeat('0a', i % 4), ''), 'hex'), 1 FROM generate_series(1, 1000) i;
INSERT INTO p_arrow SELECT * FROM p_rows;
ALTER FOREIGN TABLE p_rows DROP COLUMN gone;
ALTER FOREIGN TABLE p_arrow DROP COLUMN gone;
ALTER FOREIGN TABLE p_rows ADD COLUMN later int4;
ALTER FOREIGN TABLE p_arrow ADD COLUMN later int4;
CREATE FUNCTION p_sum(reggstore) RETURNS text LANGUAGE plcuda AS $$
#plcuda_results_bufsz 512
#plcuda_working_bufsz 128
#plcuda_begin
#plcuda_num_threads 200
const plcuda_table *t = arg1.value;
uint64_t *sums = (uint64_t *)workbuf;
double *d = (double *)workbuf + 15;
const int32_t text = plcuda_column_number(t, "t");

PLCUDA_FOR_ROWS (t, row) {
    pg_bool_t b = plcuda_get_bool(t, 2, row);
    pg_int2_t s = plcuda_get_int2(t, plcuda_column_number(t, "s"), row);
    pg_float8_t f8 = plcuda_get_float8(t, 6, row);
    pg_text_t x = plcuda_get_bytea(t, 9, row), v = plcuda_get_text(t, 8, row);

    gvm_atomic_add_u64(&sums[0], 1);
    gvm_atomic_add_u64(&sums[1], (uint64_t)plcuda_get_int4(t, 1, row).value);
    gvm_atomic_add_u64(&sums[2], b.isnull ? 1000000 : (uint64_t)b.value);
    gvm_atomic_add_u64(&sums[3], s.isnull ? 1000000 : (uint64_t)s.value);
    gvm_atomic_add_u64(&sums[4], (uint64_t)plcuda_get_int8(t, 4, row).value);
    gvm_atomic_add_u64(&sums[5], (uint64_t)(plcuda_get_float4(t, 5, row).value * 4));
    gvm_atomic_add_u64(&sums[6], f8.isnull ? 1000000 : (uint64_t)(f8.value * 8));
    gvm_atomic_add_u64(&sums[7], plcuda_get_text(t, text, row).length);
    gvm_atomic_add_u64(&sums[8], v.isnull ? 1000000 : (uint64_t)(v.value[1] - '0'));
    gvm_atomic_add_u64(&sums[9], x.isnull ? 1000000 : x.length > 0 ? (uint64_t)x.value[x.length - 1] : 0);
    gvm_atomic_add_u64(&sums[10], (uint64_t)plcuda_get_int4(t, 11, row).isnull);
    gvm_atomic_add_f64(d, f8.value);
}
#plcuda_end
#plcuda_post
char *to = (char *)results;
uint32_t n = 0;

for (int i = 0; i < 11; i++) {
    char digits[24];
    int count = 0;
    uint64_t v = ((uint64_t *)workbuf)[i];

    do
        digits[count++] = (char)('0' + v % 10);
    while ((v /= 10) > 0);
    while (count > 0)
        to[n++] = digits[--count];
    to[n++] = i < 10 ? ' ' : '.';
}
retval->value = to;
retval->length = n;
retval->isnull = 0;
#plcuda_end
$$;
CREATE FUNCTION p_expected(t text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r text;
BEGIN
    EXECUTE format($f$SELECT concat_ws(' ', count(*), coalesce(sum(id), 0), coalesce(sum(coalesce(b::int, 1000000)), 0), coalesce(sum(coalesce(s, 1000000)), 0), coalesce(sum(l), 0),
        coalesce(sum((f * 4)::int8), 0), coalesce(sum(coalesce((d * 8)::int8, 1000000)), 0), coalesce(sum(length(t)), 0), coalesce(sum(coalesce(substr(v, 2, 1)::int, 1000000)), 0),
        coalesce(sum(CASE WHEN x IS NULL THEN 1000000 WHEN length(x) > 0 THEN get_byte(x, length(x) - 1) ELSE 0 END), 0), count(*) FILTER (WHERE later IS NULL)) || '.' FROM %s$f$, t) INTO r;
    RETURN r;
END $$;
SELECT p_sum('p_rows') = p_expected('p_rows') AS same, p_sum('p_arrow') = p_expected('p_arrow') AS same_arrow, p_sum('p_rows');
DELETE FROM p_rows WHERE id % 10 = 3 OR id > 990;
DELETE FROM p_arrow WHERE id <= 500;
SELECT p_sum('p_rows') = p_expected('p_rows') AS same, p_sum('p_arrow') = p_expected('p_arrow') AS same_arrow, p_sum('p_arrow');
INSERT INTO p_rows (id, l, f) VALUES (7, 7, 7);
UPDATE p_arrow SET later = 5, t = 'new' WHERE id = 700;
SELECT p_sum('p_rows') = p_expected('p_rows') AS same, p_sum('p_arrow') = p_expected('p_arrow') AS same_arrow;
DELETE FROM p_arrow;
SELECT p_sum('p_arrow') = p_expected('p_arrow') AS none_left;
TRUNCATE p_arrow;
SELECT p_sum('p_arrow');
SELECT p_sum(NULL);
-- Rows that are deleted from a table that is large enough for a bitmap on the device, which a scan of all makes.
CREATE FOREIGN TABLE p_many (id int) SERVER gstore_fdw;
INSERT INTO p_many SELECT generate_series(1, 200000);
DELETE FROM p_many WHERE id % 3 = 0;
CREATE FUNCTION p_ids(reggstore) RETURNS int8 LANGUAGE plcuda AS $$
#plcuda_begin
PLCUDA_FOR_ROWS (arg1.value, row) retval->value += plcuda_get_int4(arg1.value, 1, row).value;
retval->isnull = 0;
#plcuda_end
$$;
SELECT p_ids('p_many') = sum(id) AS same FROM p_many;
SELECT p_ids('p_many') = sum(id) AS same, sum(id) FROM p_many;
DELETE FROM p_many WHERE id < 100;
SELECT p_ids('p_many') = sum(id) AS same, sum(id) FROM p_many;
DROP FOREIGN TABLE p_many;
-- Values of one length.
CREATE FOREIGN TABLE p_uniform (id int, x bytea OPTIONS (length '16'), t text OPTIONS (length '4')) SERVER gstore_fdw;
CREATE FOREIGN TABLE p_uniform_arrow (id int, x bytea OPTIONS (length '16'), t text OPTIONS (length '4')) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO p_uniform SELECT i, decode(md5(i::text), 'hex'), CASE WHEN i % 4 > 0 THEN 'four' END FROM generate_series(1, 500) i;
INSERT INTO p_uniform_arrow SELECT * FROM p_uniform;
CREATE FUNCTION p_bytes(reggstore) RETURNS int8 LANGUAGE plcuda AS $$
#plcuda_begin
PLCUDA_FOR_ROWS (arg1.value, row) {
    pg_bytea_t x = plcuda_get_bytea(arg1.value, 2, row);
    pg_text_t t = plcuda_get_text(arg1.value, 3, row);

    for (uint32_t i = 0; i < x.length; i++)
        retval->value += (unsigned char)x.value[i];
    retval->value += t.isnull ? 1000000 : t.length;
}
retval->isnull = 0;
#plcuda_end
$$;
SELECT p_bytes('p_uniform') = p_bytes('p_uniform_arrow') AS same, p_bytes('p_uniform') = sum(coalesce(length(t), 1000000) + (SELECT sum(get_byte(x, i)) FROM generate_series(0, 15) i)) AS as_sql FROM p_uniform;
DROP FOREIGN TABLE p_uniform, p_uniform_arrow;
-- Two tables, one twice; a snapshot from before a change sees what a SELECT sees.
CREATE FUNCTION p_counts(reggstore, reggstore, reggstore) RETURNS int8 LANGUAGE plcuda AS $$
#plcuda_begin
PLCUDA_FOR_ROWS (arg1.value, row) retval->value += 1;
PLCUDA_FOR_ROWS (arg2.value, row) retval->value += 10000;
PLCUDA_FOR_ROWS (arg3.value, row) retval->value += 100000000;
retval->isnull = 0;
#plcuda_end
$$;
CREATE FOREIGN TABLE p_few (a int) SERVER gstore_fdw;
INSERT INTO p_few VALUES (1), (2), (3);
SELECT p_counts('p_rows', 'p_few', 'p_rows') = count(*) * 100000001 + 30000 AS same FROM p_rows;

-- Errors of a kernel, with their SQLSTATE; the worker goes on.
CREATE FUNCTION p_raise(text) RETURNS int LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_num_threads 100
char state[6] = {0};
for (int i = 0; i < 5 && i < (int)arg1.length; i++)
    state[i] = arg1.value[i];
plcuda_raise(plcuda, state, "this is said by a kernel");
#plcuda_end
#plcuda_post
for (;;) gvm_pause();
#plcuda_end
$$;
DO $$
DECLARE s text;
BEGIN
    FOREACH s IN ARRAY ARRAY['22012', 'P0001', '00000', '01000', 'abcde', ''] LOOP
        BEGIN
            PERFORM p_raise(s);
        EXCEPTION WHEN OTHERS THEN RAISE INFO '% becomes %: %', s, SQLSTATE, SQLERRM;
        END;
    END LOOP;
END $$;
CREATE FUNCTION p_column(reggstore, int) RETURNS int LANGUAGE plcuda AS $$
#plcuda_begin
if (arg2.value == 0)
    plcuda_column_number(arg1.value, "missing");
*retval = plcuda_get_int4(arg1.value, arg2.value, 0);
if (arg2.value == 1)
    *retval = plcuda_get_int4(arg1.value, 1, 1000000000);
#plcuda_end
$$;
SELECT p_column('p_rows', 0);
SELECT p_column('p_rows', -1);
SELECT p_column('p_rows', 10);
SELECT p_column('p_rows', 12);
SELECT p_column('p_rows', 7);
SELECT p_column('p_rows', 1) IS NULL AS beyond;
-- A result that is no text.
CREATE FUNCTION p_outside(int) RETURNS text LANGUAGE plcuda AS $$
#plcuda_results_bufsz 16
#plcuda_begin
retval->value = (const char *)results;
retval->length = arg1.value == 4 ? 0xffffffffu : 16;
retval->isnull = 0;
if (arg1.value == 5)
    ((char *)results)[0] = (char)0xff;
if (arg1.value == 6)
    for (int i = 0; i < 16; i++)
        ((char *)results)[i] = 'a';
#plcuda_end
$$;
SELECT p_outside(4);
SELECT p_outside(5);
SELECT p_outside(0);
SELECT p_outside(6);

-- Rights: those of the caller, or of the owner under SECURITY DEFINER.
CREATE ROLE p_user;
CREATE FUNCTION p_count(reggstore) RETURNS int8 LANGUAGE plcuda AS $$
#plcuda_begin
PLCUDA_FOR_ROWS (arg1.value, row) retval->value++;
retval->isnull = 0;
#plcuda_end
$$;
CREATE FUNCTION p_count_definer(reggstore) RETURNS int8 SECURITY DEFINER LANGUAGE plcuda AS $$
#plcuda_begin
PLCUDA_FOR_ROWS (arg1.value, row) retval->value++;
retval->isnull = 0;
#plcuda_end
$$;
SELECT p_count('p_few');
SET ROLE p_user;
SELECT p_count('p_few');
SELECT p_count_definer('p_few');
CREATE FUNCTION pg_temp.p_mine() RETURNS int LANGUAGE plcuda AS '';
RESET ROLE;
GRANT SELECT (a) ON p_few TO p_user;
SET ROLE p_user;
SELECT p_count('p_few');
RESET ROLE;
GRANT SELECT ON p_few TO p_user;
SET ROLE p_user;
SELECT p_count('p_few');
RESET ROLE;
REVOKE SELECT ON p_few FROM p_user;
SET ROLE p_user;
SELECT p_count('p_few');
RESET ROLE;
SELECT p_count(99999999::oid::reggstore);
SELECT p_count('pg_class'::regclass::oid::reggstore);

-- What the calls of one role have left in memory is not there for another.
CREATE FUNCTION p_left() RETURNS int LANGUAGE plcuda AS $$
#plcuda_begin
char *bytes = plcuda_append_bytes(plcuda, 1000);

for (int i = 0; bytes != 0 && i < 1000; i++) {
    retval->value += bytes[i] == 0x5a;
    bytes[i] = 0x5a;
}
retval->isnull = bytes == 0;
#plcuda_end
$$;
SELECT p_left();
SET ROLE p_user;
SELECT p_left();
RESET ROLE;
SELECT p_left();

-- Helper functions of directives.
CREATE FUNCTION p_sane(n int) RETURNS bool LANGUAGE SQL AS 'SELECT n < 10';
CREATE FUNCTION p_on_cpu(n int) RETURNS text LANGUAGE SQL AS $$ SELECT 'by the CPU: ' || n $$;
CREATE FUNCTION p_size(n int) RETURNS int8 LANGUAGE SQL AS $$ SELECT CASE n WHEN 5 THEN NULL WHEN 6 THEN -1 WHEN 7 THEN 1::int8 << 40 ELSE 10 END $$;
CREATE FUNCTION p_helped(n int) RETURNS text LANGUAGE plcuda AS $$
#plcuda_sanity_check p_sane
#plcuda_cpu_fallback public.p_on_cpu
#plcuda_results_bufsz p_size
#plcuda_begin
if (arg1.value == 3)
    plcuda_fall_back(plcuda);
((char *)results)[0] = 'G';
retval->value = (const char *)results;
retval->length = 1;
retval->isnull = 0;
#plcuda_end
$$;
SELECT p_helped(1), p_helped(3);
SELECT p_helped(11);
SELECT p_helped(NULL);
SELECT p_helped(5);
SELECT p_helped(6);
SELECT p_helped(7);
REVOKE EXECUTE ON FUNCTION p_sane FROM public;
SET ROLE p_user;
SELECT p_helped(1);
RESET ROLE;
CREATE FUNCTION p_falls() RETURNS int LANGUAGE plcuda AS $$
#plcuda_begin
plcuda_fall_back(plcuda);
#plcuda_end
$$;
SELECT p_falls();
CREATE FUNCTION p_large(n int8) RETURNS int8 LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_shmem_blocksz 100000000
#plcuda_end
$$;
SELECT p_large(1);

-- What the text of a function must be; lines are the user's.
CREATE FUNCTION p_refuse(body text, signature text DEFAULT '(int) RETURNS int') RETURNS text LANGUAGE plpgsql AS $$
DECLARE detail text; context text;
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION p_refused%s LANGUAGE plcuda AS %L', signature, body);
    RETURN 'created';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, context = PG_EXCEPTION_CONTEXT;
    RETURN concat_ws(', ', SQLSTATE, SQLERRM, substring(context from 'line [0-9]+ of a plcuda'),
        'plcuda:' || substring(detail from 'plcuda[:(]([0-9]+)[^\n]* error'));
END $$;
SELECT p_refuse('');
SELECT p_refuse(E'\n#plcuda_begin\n');
SELECT p_refuse(E'\n#plcuda_begin\n#plcuda_begin\n');
SELECT p_refuse(E'\n#plcuda_begin\n#plcuda_end\n#plcuda_begin\n#plcuda_end');
SELECT p_refuse(E'\n#plcuda_end\n');
SELECT p_refuse(E'\nint x;\n#plcuda_begin\n#plcuda_end\n');
SELECT p_refuse(E'\n// a comment\n\n#plcuda_begin\n#plcuda_end\n');
SELECT p_refuse(E'\n#plcuda_nonsense 3\n#plcuda_begin\n#plcuda_end\n');
SELECT p_refuse(E'\n#plcuda_num_threads 3\n#plcuda_begin\n#plcuda_end\n');
SELECT p_refuse(E'\n#plcuda_begin\n#plcuda_num_threads\n#plcuda_end\n');
SELECT p_refuse(E'\n#plcuda_begin\n#plcuda_num_threads 99999999999999999999\n#plcuda_end\n');
SELECT p_refuse(E'\n#plcuda_begin\n#plcuda_num_threads 0\n#plcuda_end\n');
SELECT p_refuse(E'\n#plcuda_begin extra\n#plcuda_end\n'), p_refuse(E'\n#plcuda_begin\n#plcuda_end trailing garbage\n');
SELECT p_refuse(E'\n#plcuda_begin\n#plcuda_num_threads missing.func\n#plcuda_end\n');
SELECT p_refuse(E'\n#plcuda_begin\n#plcuda_num_threads a b c\n#plcuda_end\n');
SELECT p_refuse(E'\n#plcuda_begin\n#plcuda_num_threads p_on_cpu\n#plcuda_end\n');
SELECT p_refuse(E'\n#plcuda_cpu_fallback p_sane\n#plcuda_begin\n#plcuda_end\n');
SELECT p_refuse(E'\n#plcuda_include "cuda_matrix.h"\n#plcuda_begin\n#plcuda_end\n');
SELECT p_refuse(E'\n#plcuda_begin\nint i = 1;\n\nretval->value = j;\n#plcuda_end\n');
SELECT p_refuse(E'\n#plcuda_decl\nenum { f = 1 };\n#plcuda_end\n\n#plcuda_begin\n#plcuda_num_threads 7\n\nreturn 1 +;\n#plcuda_end\n');
SELECT p_refuse(E'\n#plcuda_begin\nundeclared_function(1);\n#plcuda_end\n');
SELECT left(p_refuse(E'\n#plcuda_begin\nif (1) {\n#plcuda_end\n'), 5);
-- No files.
SELECT p_refuse(E'\n#plcuda_decl\n' || line || E'\n#plcuda_end\n#plcuda_begin\n#plcuda_end\n')
    FROM unnest(ARRAY['#include "/etc/passwd"', '# include </etc/passwd>', E'#inc\\\nlude "/etc/passwd"', E'#/* */ /*\n*/include "/etc/passwd"',
        '%:include "/etc/passwd"', E'#\\  \ninclude "/etc/passwd"', '??=include "/etc/passwd"', '#include_next <x>', '#import "x"', '#embed "x"',
        '#pragma once', '#define X 1']) line;
-- What a function cannot be.
SELECT p_refuse(E'\n#plcuda_begin\n#plcuda_end\n', signature) FROM unnest(ARRAY['() RETURNS SETOF record', '() RETURNS record', '(OUT a json)', '() RETURNS jsonb', '(inet) RETURNS int',
    '(text[]) RETURNS int', '() RETURNS trigger', '() RETURNS reggstore', '(anyelement) RETURNS int', '(VARIADIC "any") RETURNS int', '(record) RETURNS int']) signature;
CREATE PROCEDURE p_procedure() LANGUAGE plcuda AS '';
-- With checks off nothing is looked at before the first call.
SET check_function_bodies = off;
CREATE FUNCTION p_unchecked() RETURNS int LANGUAGE plcuda AS $$
#plcuda_begin
retval->value = missing;
#plcuda_end
$$;
RESET check_function_bodies;
SELECT p_unchecked();
-- The text.
SELECT plcuda_function_source('p_nothing') ~ 'GVM_KERNEL\(plcuda_main' AS source;
SELECT plcuda_function_source('p_sane');

-- The folder of images is the server's own.
SELECT (pg_stat_file('pg_plcuda')).isdir, count(*) > 10 AS images, bool_and(name ~ '^[0-9a-f]{16}\.image$') AS named FROM pg_ls_dir('pg_plcuda') name;

-- In queries: as an expression of rows, in a stable function inside a cursor, under an older snapshot.
SELECT sum(p_same(i)) FROM generate_series(1, 100) i;
CREATE FUNCTION p_stable(t reggstore) RETURNS int8 STABLE LANGUAGE plcuda AS $$
#plcuda_begin
PLCUDA_FOR_ROWS (arg1.value, row) retval->value++;
retval->isnull = 0;
#plcuda_end
$$;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT p_stable('p_few');
COMMIT;

-- What directives name is looked up beside the function, whatever search_path is, and is not the function itself.
CREATE SCHEMA p_other;
CREATE FUNCTION p_other.p_okay(int) RETURNS bool LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION p_okay(int) RETURNS bool LANGUAGE sql AS 'SELECT $1 < 10';
CREATE FUNCTION p_guarded(int) RETURNS int LANGUAGE plcuda AS $$
#plcuda_sanity_check p_okay
#plcuda_begin
*retval = arg1;
#plcuda_end
$$;
SET search_path = p_other, public;
SELECT public.p_guarded(50);
SELECT public.p_guarded(5);
RESET search_path;
SELECT p_refuse(E'\n#plcuda_begin\n#plcuda_num_threads p_refused\n#plcuda_end\n', '(int2) RETURNS int8');
-- Nor what only the executor can call.
SELECT p_refuse(E'\n#plcuda_begin\n#plcuda_num_threads pg_catalog.row_number\n#plcuda_end\n', '() RETURNS int8');
SELECT p_refuse(E'\n#plcuda_include pg_catalog.max\n#plcuda_begin\n#plcuda_end\n', '(text) RETURNS text');
CREATE FUNCTION p_pong(int) RETURNS int8 LANGUAGE sql AS 'SELECT 1::int8';
CREATE FUNCTION p_ping(int) RETURNS int8 LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_num_threads p_pong
retval->isnull = 0;
#plcuda_end
$$;
CREATE OR REPLACE FUNCTION p_pong(int) RETURNS int8 LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_num_threads p_ping
retval->isnull = 0;
#plcuda_end
$$;
SELECT p_ping(1);
-- Words that only begin as one for files are no such words.
SELECT p_refuse(E'\n#plcuda_begin\n// ticket #important\nretval->isnull = 1;\n#plcuda_end\n', '(float4) RETURNS int8');

SET client_min_messages = warning;
DROP SCHEMA p_other CASCADE;
DROP FOREIGN TABLE p_rows, p_arrow, p_few;
DROP EXTENSION plcuda CASCADE;
DO $$ BEGIN EXECUTE (SELECT string_agg(format('DROP FUNCTION %s', oid::regprocedure), '; ') FROM pg_proc WHERE proname ~ '^p_' AND pronamespace = 'public'::regnamespace); END $$;
DROP ROLE p_user;
