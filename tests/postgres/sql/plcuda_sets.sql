-- What functions in the language plcuda return: composite values, sets, values that are anywhere on the GPU.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS plcuda;

-- Values of variable length are returned from where they are.
CREATE FOREIGN TABLE s_rows (id int, t text, x bytea) SERVER gstore_fdw;
INSERT INTO s_rows SELECT i, repeat('row ' || i || ' ', i % 5), decode(repeat('0a', i % 300), 'hex') FROM generate_series(0, 2000) i;
CREATE FUNCTION s_where(reggstore, place text) RETURNS text LANGUAGE plcuda AS $$
#plcuda_decl
GVM_DEVICE int is(pg_text_t t, char c) { return t.length > 0 && t.value[0] == c; }
#plcuda_end
#plcuda_begin
#plcuda_results_bufsz 64
#plcuda_working_bufsz 64
char *at = 0;

retval->isnull = 0;
if (is(arg2, 'c')) /* a column */
    *retval = plcuda_get_text(arg1.value, 2, 3);
else if (is(arg2, 'a')) /* an argument */
    *retval = arg2;
else if (is(arg2, 'l')) { /* a literal */
    retval->value = "literal";
    retval->length = 7;
} else if (is(arg2, 'r'))
    at = (char *)results + 5;
else if (is(arg2, 'w'))
    at = (char *)workbuf + 1;
else if (is(arg2, 'b'))
    at = plcuda_append_bytes(plcuda, 9);
else if (is(arg2, 'n')) /* nowhere */
    retval->length = 1;
else if (is(arg2, 'h')) { /* huge */
    retval->value = (const char *)workbuf;
    retval->length = 0x3fffffff;
} else
    retval->isnull = 1;
if (at != 0) {
    for (int i = 0; i < 9; i++)
        at[i] = "some text"[i];
    retval->value = at;
    retval->length = 9;
}
#plcuda_end
$$;
SELECT place, s_where('s_rows', place) FROM unnest(ARRAY['column', 'argument', 'literal', 'results', 'work buffer', 'bytes', '', NULL]) place;
SELECT s_where('s_rows', 'nowhere');
SELECT s_where('s_rows', 'huge');
-- Larger than any buffer that was asked for.
CREATE FUNCTION s_repeat(t text, n int) RETURNS text LANGUAGE plcuda AS $$
#plcuda_begin
char *to = plcuda_append_bytes(plcuda, (uint64_t)arg1.length * (uint32_t)arg2.value);
if (to == 0)
    return;
for (int32_t i = 0; i < arg2.value; i++)
    for (uint32_t c = 0; c < arg1.length; c++)
        to[(uint32_t)i * arg1.length + c] = arg1.value[c];
retval->value = to;
retval->length = arg1.length * (uint32_t)arg2.value;
retval->isnull = 0;
#plcuda_end
$$;
SELECT s_repeat('häschen ', 100000) = repeat('häschen ', 100000) AS same, s_repeat('x', 0) = '' AS none;
SET plcuda.buffer_memory = '4MB';
SELECT s_repeat('0123456789', 1000000);
RESET plcuda.buffer_memory;
SELECT length(s_repeat('0123456789', 1000000));

-- Composite values: a type, OUT and INOUT arguments; NULLs; names that are none in C.
CREATE TYPE s_pair AS (number int, name text, ratio float8, gone int, small int2, raw bytea, yes bool);
ALTER TYPE s_pair DROP ATTRIBUTE gone;
CREATE FUNCTION s_compose(number int, name text) RETURNS s_pair LANGUAGE plcuda AS $$
#plcuda_begin
retval->number = arg1;
retval->name = arg2;
retval->ratio.value = arg1.value / 4.0;
retval->ratio.isnull = arg1.isnull;
if (arg1.value > 1) {
    retval->small.value = -1;
    retval->small.isnull = 0;
    retval->raw = arg2;
    retval->yes.value = 1;
    retval->yes.isnull = 0;
}
#plcuda_end
$$;
SELECT s_compose(1, 'one'), s_compose(2, 'two'), s_compose(NULL, NULL), s_compose(3, '');
SELECT * FROM s_compose(7, 'seven');
SELECT (s_compose(7, 'seven')).name;
CREATE FUNCTION s_out(a int, INOUT b int8, OUT "int" text, OUT "Größe" float4, OUT column1 int2, OUT "class" bool, OUT int4) LANGUAGE plcuda AS $$
#plcuda_begin
retval->b.value = arg2.value + arg1.value;
retval->b.isnull = arg1.isnull | arg2.isnull;
retval->column2.value = "second";
retval->column2.length = 6;
retval->column2.isnull = 0;
retval->column3.value = 3;
retval->column3.isnull = 0;
retval->column4.value = 4;
retval->column4.isnull = 0;
retval->column5.value = 1;
retval->column5.isnull = 0;
retval->column6.value = 6;
retval->column6.isnull = 0;
#plcuda_end
$$;
SELECT * FROM s_out(1, 2);
SELECT s_out(1, NULL);
CREATE FUNCTION s_one(OUT single int) LANGUAGE plcuda AS $$
#plcuda_begin
retval->single.value = 1;
retval->single.isnull = 0;
#plcuda_end
$$;
SELECT s_one(), * FROM s_one();
CREATE FUNCTION s_void(int) RETURNS void LANGUAGE plcuda AS $$
#plcuda_begin
if (arg1.value == 0)
    plcuda_raise(plcuda, "22012", "raised");
#plcuda_end
$$;
SELECT s_void(1), s_void(1) IS NULL AS is_null;
SELECT s_void(0);
-- Lengths that a column's type has are kept, as in a table.
CREATE TYPE s_short AS (code varchar(3), t text);
CREATE FUNCTION s_shorten(text) RETURNS s_short LANGUAGE plcuda AS $$
#plcuda_begin
retval->code = retval->t = arg1;
#plcuda_end
$$;
SELECT s_shorten('abc'), s_shorten('abc  '), s_shorten(NULL);
SELECT s_shorten('abcd');
-- The type may change.
ALTER TYPE s_pair ADD ATTRIBUTE more int8;
SELECT s_compose(1, 'one');
CREATE FUNCTION s_record(int) RETURNS record LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_end
$$;
CREATE TYPE s_nested AS (p s_pair);
CREATE FUNCTION s_inner(int) RETURNS s_nested LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_end
$$;

-- Sets.
CREATE FUNCTION s_series(first int8, last int8) RETURNS SETOF int8 LANGUAGE plcuda ROWS 100 STRICT AS $$
#plcuda_begin
#plcuda_num_threads 256
for (int64_t i = arg1.value + (int64_t)gvm_thread_global(); i <= arg2.value; i += (int64_t)gvm_thread_count()) {
    plcuda_row *r = plcuda_append(plcuda);

    if (r == 0)
        return;
    if (i % 10 == 0)
        continue;
    r->value = i;
    r->isnull = 0;
}
#plcuda_end
$$;
SELECT * FROM s_series(8, 12) s ORDER BY s;
SELECT * FROM s_series(2, 1);
SELECT count(*), count(s) FROM s_series(NULL, 1) s;
SELECT count(*), count(s), sum(s) = (SELECT sum(i) FROM generate_series(1, 100000) i WHERE i % 10 <> 0) AS same FROM s_series(1, 100000) s;
SELECT i, s_series(i, i + 2) s FROM generate_series(1, 3) i ORDER BY i, s;
SELECT s_series(1, 2), s_series(3, 5);
SELECT i, count(s) FROM generate_series(1, 4) i LEFT JOIN LATERAL s_series(i, 3) s ON true GROUP BY i ORDER BY i;
SELECT s FROM s_series(1, 1000000) s WHERE s < 0 LIMIT 1;
SELECT s_series(1, 3) + 1 AS s ORDER BY 1;
SELECT 1 WHERE 1 IN (SELECT s_series(1, 3));
SELECT CASE WHEN s_series(1, 3) > 0 THEN 1 END;
-- Reading it back and forth.
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT * FROM s_series(1, 5) s;
FETCH ALL FROM c;
FETCH BACKWARD 2 FROM c;
FETCH ABSOLUTE 2 FROM c;
COMMIT;
-- More than work_mem.
SET work_mem = '64kB';
SELECT count(*), sum(s) = (SELECT sum(i) FROM generate_series(1, 300000) i WHERE i % 10 <> 0) AS same FROM s_series(1, 300000) s;
RESET work_mem;

-- Sets of rows, with text and bytes from a table, and with text that was made.
CREATE FUNCTION s_list(t reggstore, below int) RETURNS TABLE (id int, t text, made text, x bytea, half float8) LANGUAGE plcuda AS $$
#plcuda_decl
GVM_DEVICE pg_text_t make_text(const plcuda_call *plcuda, uint32_t n)
{
    pg_text_t made = {0, 0, 1};
    char *to = plcuda_append_bytes(plcuda, n);

    if (to == 0)
        return made;
    for (uint32_t i = 0; i < n; i++)
        to[i] = (char)('a' + n % 26);
    made.value = to;
    made.length = n;
    made.isnull = 0;
    return made;
}
#plcuda_end
#plcuda_begin
#plcuda_num_threads 512
PLCUDA_FOR_ROWS (arg1.value, row) {
    pg_int4_t id = plcuda_get_int4(arg1.value, 1, row);
    plcuda_row *r;

    if (id.value >= arg2.value)
        continue;
    r = plcuda_append(plcuda);
    if (r == 0)
        return;
    r->id = id;
    if (id.value % 7 == 6)
        continue;
    r->t = plcuda_get_text(arg1.value, 2, row);
    r->made = make_text(plcuda, (uint32_t)id.value % 100);
    r->x = plcuda_get_bytea(arg1.value, 3, row);
    r->half.value = id.value / 2.0;
    r->half.isnull = 0;
}
#plcuda_end
$$;
SELECT * FROM s_list('s_rows', 9) ORDER BY id;
CREATE FUNCTION s_expected(below int) RETURNS TABLE (id int, t text, made text, x bytea, half float8) STABLE LANGUAGE SQL AS $$
SELECT id, CASE WHEN set THEN t END, CASE WHEN set THEN repeat(chr(97 + id % 100 % 26), id % 100) END, CASE WHEN set THEN x END, CASE WHEN set THEN id / 2.0 END
FROM (SELECT *, id % 7 <> 6 AS set FROM s_rows WHERE id < below) r $$;
SELECT count(*) FROM (SELECT * FROM s_list('s_rows', 3000) EXCEPT ALL SELECT * FROM s_expected(3000)) d;
SELECT count(*) FROM s_list('s_rows', 3000);
DELETE FROM s_rows WHERE id % 3 = 0;
SELECT count(*) FROM (SELECT * FROM s_list('s_rows', 3000) EXCEPT ALL SELECT * FROM s_expected(3000)) d;
SELECT count(*) FROM s_list('s_rows', 3000);
SELECT (s_list('s_rows', 3)).*;
SELECT s_list('s_rows', 3);
CREATE FUNCTION s_pairs(n int) RETURNS SETOF s_pair LANGUAGE plcuda AS $$
#plcuda_begin
for (int32_t i = 0; i < arg1.value; i++) {
    plcuda_row *r = plcuda_append(plcuda);
    if (r == 0)
        return;
    r->number.value = i;
    r->number.isnull = i == 1;
    r->more.value = -i;
    r->more.isnull = 0;
}
#plcuda_end
$$;
SELECT * FROM s_pairs(3);
SELECT p, p.number FROM s_pairs(2) p;

-- Rows of many threads at once: n rows, a warp's, a block's.
CREATE FUNCTION s_threads(kind int, threads int) RETURNS int LANGUAGE SQL AS 'SELECT threads';
CREATE FUNCTION s_ways(kind int, threads int) RETURNS TABLE (thread int, part int) LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_num_threads s_threads
#plcuda_kernel_blocksz 64
const uint32_t thread = (uint32_t)gvm_thread_global(), wanted = thread % 4;
plcuda_row *r = arg1.value == 0   ? plcuda_append_rows(plcuda, wanted)
                : arg1.value == 1 ? plcuda_append_warp(plcuda, wanted)
                                  : plcuda_append_block(plcuda, wanted);
if (r == 0)
    return;
for (uint32_t i = 0; i < wanted; i++) {
    r[i].thread.value = (int32_t)thread;
    r[i].thread.isnull = 0;
    r[i].part.value = (int32_t)i;
    r[i].part.isnull = 0;
}
#plcuda_end
$$;
SELECT kind, count(*), count(DISTINCT (thread, part)), max(part), sum(thread) FROM generate_series(0, 2) kind, LATERAL s_ways(kind, 1024) GROUP BY kind ORDER BY kind;
-- Lanes that do not exist cannot say how many rows they want.
SELECT kind, count(*) FROM generate_series(0, 0) kind, LATERAL s_ways(kind, 40) GROUP BY kind;
SELECT count(*) FROM s_ways(1, 40);
SELECT count(*) FROM s_ways(2, 40);

-- The bound.
SET plcuda.buffer_memory = '8MB';
SELECT count(*) FROM s_series(1, 2000000);
SELECT count(*) FROM s_series(1, 100000);
RESET plcuda.buffer_memory;
SELECT count(*) FROM s_series(1, 2000000);

-- Errors end the set; text is checked.
CREATE FUNCTION s_bad(kind int) RETURNS SETOF text LANGUAGE plcuda AS $$
#plcuda_begin
for (int i = 0; i < 1000; i++) {
    plcuda_row *r = plcuda_append(plcuda);
    if (r == 0)
        return;
    r->value = arg1.value == 1 && i == 900 ? "\xff" : arg1.value == 3 && i == 900 ? (const char *)0 : "x";
    r->length = 1;
    r->isnull = 0;
}
if (arg1.value == 2)
    plcuda_raise(plcuda, "22012", "raised behind the rows");
#plcuda_end
$$;
SELECT count(*) FROM s_bad(0);
SELECT count(*) FROM s_bad(1);
SELECT count(*) FROM s_bad(2);
SELECT count(*) FROM s_bad(3);
SELECT count(*) FROM s_bad(0);

-- The CPU fallback of a set, and of a composite value.
CREATE FUNCTION s_cpu(n int) RETURNS TABLE (i int, t text) LANGUAGE SQL AS $$ SELECT i, 'row ' || i FROM generate_series(1, n) i $$;
CREATE FUNCTION s_gpu(n int) RETURNS TABLE (i int, t text) LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_cpu_fallback s_cpu
plcuda_row *r = plcuda_append(plcuda);
if (arg1.value > 1)
    plcuda_fall_back(plcuda);
#plcuda_end
$$;
SELECT * FROM s_gpu(1);
SELECT * FROM s_gpu(3);
SELECT s_gpu(2);
CREATE FUNCTION s_cpu_all(n int, VARIADIC more int[]) RETURNS SETOF int LANGUAGE SQL AS $$ SELECT n + m FROM unnest(more) m $$;
CREATE FUNCTION s_gpu_all(n int, VARIADIC more int[]) RETURNS SETOF int LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_cpu_fallback s_cpu_all
plcuda_fall_back(plcuda);
#plcuda_end
$$;
SELECT s_gpu_all(1, 2, 3), s_gpu_all(1, VARIADIC '{4,5}');
CREATE FUNCTION s_dropped(n int) RETURNS SETOF int LANGUAGE SQL AS 'SELECT n';
CREATE FUNCTION s_drops(n int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN DROP FUNCTION s_dropped(int); RETURN true; END $$;
CREATE FUNCTION s_without(n int) RETURNS SETOF int LANGUAGE plcuda AS $$
#plcuda_sanity_check s_drops
#plcuda_cpu_fallback s_dropped
#plcuda_begin
plcuda_fall_back(plcuda);
#plcuda_end
$$;
SELECT * FROM s_without(1);
CREATE FUNCTION s_cpu_pair(n int, OUT a int, OUT b text) LANGUAGE SQL AS $$ SELECT n, 'cpu' $$;
CREATE FUNCTION s_gpu_pair(n int, OUT a int, OUT b text) LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_cpu_fallback s_cpu_pair
plcuda_fall_back(plcuda);
#plcuda_end
$$;
SELECT s_gpu_pair(5), * FROM s_gpu_pair(6);
CREATE FUNCTION s_wrong_pair(n int, OUT a int, OUT b int) LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_cpu_fallback s_cpu_pair
#plcuda_end
$$;
CREATE FUNCTION s_count(n int) RETURNS int LANGUAGE SQL AS 'SELECT n';
CREATE FUNCTION s_wrong_set(n int) RETURNS SETOF int LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_cpu_fallback s_count
#plcuda_end
$$;

-- What the planner knows of it is what was declared.
EXPLAIN SELECT * FROM s_series(1, 10);
ALTER FUNCTION s_series(int8, int8) ROWS 5000 COST 77;
EXPLAIN SELECT * FROM s_series(1, 10);
SELECT provolatile, proparallel FROM pg_proc WHERE proname = 's_series';
CREATE TABLE s_plain AS SELECT generate_series(1, 1000) id;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
EXPLAIN (COSTS OFF) SELECT count(*) FROM s_plain WHERE id IN (SELECT s_series(1, 10));
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
CREATE FUNCTION s_stable(n int8) RETURNS int8 STABLE LANGUAGE plcuda AS $$
#plcuda_begin
*retval = arg1;
#plcuda_end
$$;
CREATE INDEX s_plain_id ON s_plain ((id::int8));
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM s_plain WHERE id::int8 = s_stable(5);
ALTER FUNCTION s_stable(int8) VOLATILE;
EXPLAIN (COSTS OFF) SELECT * FROM s_plain WHERE id::int8 = s_stable(5);
ALTER FUNCTION s_stable(int8) IMMUTABLE;
EXPLAIN (COSTS OFF) SELECT * FROM s_plain WHERE id::int8 = s_stable(5);
RESET enable_seqscan;
RESET enable_bitmapscan;

-- Mistakes when it is created.
CREATE FUNCTION s_mistake() RETURNS SETOF int LANGUAGE plcuda AS $$
#plcuda_begin
retval->isnull = 0;
#plcuda_end
$$;
\set VERBOSITY default
CREATE FUNCTION s_mistake() RETURNS int LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_num_threads 2
#plcuda_kernel_blocksz 2
#plcuda_num_threads 3
#plcuda_end
$$;
CREATE FUNCTION s_mistake() RETURNS int LANGUAGE plcuda AS $$
#plcuda_prep
#plcuda_results_bufsz 2
#plcuda_end
#plcuda_begin
#plcuda_results_bufsz 2
#plcuda_end
$$;
\set VERBOSITY terse
-- What is read of a function is read again when what it names, or its type, is another one.
\set VERBOSITY terse
CREATE FUNCTION s_bytes(n int) RETURNS bigint LANGUAGE SQL IMMUTABLE AS 'SELECT 8::bigint';
CREATE TYPE s_changing AS (a int);
CREATE FUNCTION s_named(n int) RETURNS int LANGUAGE plcuda AS $$
#plcuda_working_bufsz s_bytes
#plcuda_begin
retval->value = (int32_t)workbuf_bytes;
retval->isnull = 0;
#plcuda_end
$$;
CREATE FUNCTION s_row() RETURNS s_changing LANGUAGE plcuda AS $$
#plcuda_begin
retval->a.value = 5;
retval->a.isnull = 0;
#plcuda_end
$$;
DO $$
DECLARE sizes int[]; rows text[];
BEGIN
    FOR i IN 1..3 LOOP
        sizes[i] := s_named(i);
        rows[i] := s_row()::text;
        IF i = 1 THEN
            EXECUTE 'DROP FUNCTION s_bytes';
            EXECUTE 'CREATE FUNCTION s_bytes(n int) RETURNS bigint LANGUAGE SQL IMMUTABLE AS $f$SELECT 16::bigint$f$';
        ELSIF i = 2 THEN
            EXECUTE 'ALTER TYPE s_changing ADD ATTRIBUTE b int';
        END IF;
    END LOOP;
    RAISE WARNING '% %', sizes, rows;
END $$;
-- Bytes that an included text appends.
CREATE FUNCTION s_code() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'GVM_DEVICE char *room(const plcuda_call *c) { return plcuda_append_bytes(c, 4); }' $$;
CREATE FUNCTION s_appended() RETURNS SETOF text LANGUAGE plcuda AS $$
#plcuda_include s_code
#plcuda_begin
plcuda_row *r = plcuda_append(plcuda);
char *t = room(plcuda);
if (r == 0 || t == 0)
    return;
t[0] = t[1] = t[2] = t[3] = 'x';
r->value = t;
r->length = 4;
r->isnull = 0;
#plcuda_end
$$;
CREATE FUNCTION s_appended_one() RETURNS text LANGUAGE plcuda AS $$
#plcuda_include s_code
#plcuda_begin
char *t = room(plcuda);
t[0] = t[1] = t[2] = t[3] = 'y';
retval->value = t;
retval->length = 4;
retval->isnull = 0;
#plcuda_end
$$;
SELECT s_appended(), s_appended_one();
-- A function that says a size is called once.
CREATE SEQUENCE s_asked;
CREATE FUNCTION s_threads() RETURNS int LANGUAGE sql AS 'SELECT 31 + nextval(''s_asked'')::int';
CREATE FUNCTION s_block() RETURNS int LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_kernel_blocksz s_threads
#plcuda_shmem_blocksz s_threads
#plcuda_shmem_unitsz s_threads
retval->value = (int32_t)gvm_block_threads();
retval->isnull = 0;
#plcuda_end
$$;
SELECT s_block(), (SELECT last_value FROM s_asked);
-- Versions of a table of many columns that calls no longer use are closed, as their objects are more than a worker may have open.
DO $$ BEGIN EXECUTE (SELECT format('CREATE FOREIGN TABLE s_wide (%s) SERVER gstore_fdw', string_agg(format('c%s int', i), ', ')) FROM generate_series(1, 300) i); END $$;
INSERT INTO s_wide SELECT FROM generate_series(1, 2);
DO $$ BEGIN EXECUTE (SELECT format('INSERT INTO s_wide VALUES (%s)', string_agg('1', ', ')) FROM generate_series(1, 300) i); END $$;
CREATE FUNCTION s_counted(reggstore) RETURNS bigint LANGUAGE plcuda AS $$
#plcuda_begin
PLCUDA_FOR_ROWS (arg1.value, row)
    gvm_atomic_add_u64((uint64_t *)&retval->value, 1);
retval->isnull = 0;
#plcuda_end
$$;
DO $$
DECLARE counts bigint[];
BEGIN
    FOR i IN 1..10 LOOP
        counts[i] := s_counted('s_wide');
        INSERT INTO s_wide (c1) VALUES (i);
        COMMIT;
    END LOOP;
    RAISE WARNING '%', counts;
END $$;
DROP SEQUENCE s_asked;
DROP FOREIGN TABLE s_rows, s_wide;
DROP TABLE s_plain;
DROP TYPE s_pair, s_short, s_nested, s_changing CASCADE;
DROP EXTENSION plcuda CASCADE;
DO $$ BEGIN EXECUTE (SELECT string_agg(format('DROP FUNCTION %s', oid::regprocedure), '; ') FROM pg_proc WHERE proname ~ '^s_' AND pronamespace = 'public'::regnamespace); END $$;
