-- The library of plcuda's kernels, beside what SQL says: compressed values, sums and extremes of a table, sorting, dates, text.
\set VERBOSITY terse
CREATE EXTENSION IF NOT EXISTS plcuda;

-- ---- compressed values, in both formats: text, bytea and arrays; some are NULL, some too short to be compressed
CREATE FOREIGN TABLE lib_packed (id int, t text OPTIONS (compression 'pglz'), x bytea OPTIONS (compression 'pglz'),
    a smallint[] OPTIONS (compression 'pglz'), n int) SERVER gstore_fdw;
CREATE FOREIGN TABLE lib_arrow (id int, t text, x bytea, a smallint[], n int) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO lib_packed SELECT i, nullif(repeat(md5(i::text), i % 50), repeat(md5(i::text), 7)),
    set_byte(decode(repeat('00', 1 + i * 5), 'hex'), i, i % 256), array_fill((i % 7)::int2, ARRAY[i % 400]) || i::int2, i
    FROM generate_series(1, 400) i;
INSERT INTO lib_packed VALUES (401, '', '', NULL, 401), (402, NULL, NULL, '{}', 402);
INSERT INTO lib_arrow SELECT * FROM lib_packed;
CREATE FUNCTION lib_bytes(c text) RETURNS text LANGUAGE SQL AS $f$ SELECT format($p$
CREATE FUNCTION lib_%s(packed reggstore, warps bool) RETURNS bigint LANGUAGE plcuda AS $$
#plcuda_working_bufsz 4000000
#plcuda_begin
#plcuda_num_threads 256
#plcuda_kernel_blocksz 64
const plcuda_table *t = arg1.value;
const uint32_t lanes = arg2.value ? gvm_warp_size() : 1;
const uint64_t first = gvm_thread_global() / lanes;
uint64_t *sum = (uint64_t *)workbuf, total = 0;
char *mine = (char *)workbuf + 64 + first * 8192;

for (uint64_t row = first; row < t->rows; row += gvm_thread_count() / lanes) {
    const plcuda_compressed v = plcuda_get_compressed(t, %s, row);
    const int32_t n = arg2.value ? plcuda_decompress_warp(v, mine) : plcuda_decompress(v, mine);

    if (n != plcuda_raw_length(t, %s, row))
        plcuda_raise(plcuda, "XX000", "another length");
    for (int32_t i = (int32_t)(gvm_thread() %% lanes); i < n; i += (int32_t)lanes)
        total += (uint64_t)(unsigned char)mine[i] * (uint64_t)(i + 1 + (int64_t)row);
    if (arg2.value)
        gvm_warp_sync();
}
gvm_atomic_add_u64(sum, total);
#plcuda_end
#plcuda_post
retval->value = (int64_t)*(uint64_t *)workbuf;
retval->isnull = 0;
#plcuda_end
$$ $p$, c, n, n) FROM (VALUES ('t', 2), ('x', 3), ('a', 4), ('n', 5)) columns(column_name, n) WHERE column_name = c $f$;
DO $$ DECLARE c text; BEGIN FOREACH c IN ARRAY ARRAY['t', 'x', 'a', 'n'] LOOP EXECUTE lib_bytes(c); END LOOP; END $$;
CREATE FUNCTION lib_sum(bytea, bigint) RETURNS bigint LANGUAGE SQL AS
    'SELECT coalesce(sum(get_byte($1, i) * (i + 1 + $2)), 0)::bigint FROM generate_series(0, length($1) - 1) i';
CREATE FUNCTION lib_le16(int) RETURNS bytea LANGUAGE SQL AS $$ SELECT set_byte(set_byte('\x0000', 0, $1 & 255), 1, $1 >> 8 & 255) $$;
-- An array as PostgreSQL has it, without the 4 bytes of its length: dimensions, offset, type, length, lower bound, elements.
CREATE FUNCTION lib_array(smallint[]) RETURNS bytea LANGUAGE SQL AS $$
    SELECT CASE WHEN $1 = '{}' THEN '\x000000000000000015000000' ELSE '\x010000000000000015000000'::bytea || lib_le16(cardinality($1)) || '\x000001000000' ||
    (SELECT string_agg(lib_le16(e), '' ORDER BY o) FROM unnest($1) WITH ORDINALITY u(e, o)) END $$;
SELECT lib_t('lib_packed', w) = s AND lib_t('lib_arrow', w) = s AS t, lib_x('lib_packed', w) = x AND lib_x('lib_arrow', w) = x AS x, lib_a('lib_packed', w) = a AS a
    FROM (SELECT sum(lib_sum(convert_to(t, 'UTF8'), id - 1)) s, sum(lib_sum(x, id - 1)) x, sum(lib_sum(lib_array(a), id - 1)) a FROM lib_packed) sums,
    unnest(ARRAY[false, true]) w;
-- Not of varying length; an array of Arrow.
SELECT lib_n('lib_packed', false);
SELECT lib_a('lib_arrow', false);
-- In place only those are read that are not compressed.
CREATE FUNCTION lib_length(packed reggstore, line int) RETURNS int LANGUAGE plcuda AS $$
#plcuda_begin
pg_text_t v = plcuda_get_text(arg1.value, 2, (uint64_t)arg2.value);
retval->value = (int32_t)v.length;
retval->isnull = v.isnull;
#plcuda_end
$$;
SELECT lib_length('lib_packed', 49), lib_length('lib_packed', 400), lib_length('lib_packed', 401), lib_length('lib_arrow', 48);
SELECT lib_length('lib_packed', 48);
\echo :LAST_ERROR_SQLSTATE

-- ---- sums, extremes and counts of a table: the same as in SQL, and twice the same
CREATE FOREIGN TABLE lib_rows (i int, l int8, f float4, d float8) SERVER gstore_fdw;
INSERT INTO lib_rows SELECT (i * 7919::int8 % 20011 - 10000)::int, (i * 104729::int8 % 1000003 - 500000) * 4000000000, sin(i)::float4 * 1e10, nullif(sin(i) * exp(i % 60 - 30), 'NaN')
    FROM generate_series(1, 3000) i;
CREATE FUNCTION lib_fold(t reggstore, how int, rows_before int) RETURNS float8 LANGUAGE plcuda AS $$
#plcuda_working_bufsz 65536
#plcuda_begin
#plcuda_num_threads 300
#plcuda_kernel_blocksz 50
const plcuda_table *t = arg1.value;
int64_t sum = 0;
uint64_t most = 0, least = ~(uint64_t)0;
double total = 0;

for (uint64_t row = gvm_thread_global(); row < t->rows && row < (uint64_t)arg3.value; row += gvm_thread_count()) {
    const int64_t l = plcuda_get_int8(t, 2, row).value;
    const double d = plcuda_get_float8(t, 4, row).value;
    const uint64_t key = arg2.value < 4 ? plcuda_order_i64(l) : arg2.value < 6 ? plcuda_order_f64(d)
        : plcuda_order_f32(plcuda_get_float4(t, 3, row).value);

    sum += plcuda_get_int4(t, 1, row).value;
    total += d;
    most = key > most ? key : most;
    least = key < least ? key : least;
}
switch (arg2.value) {
case 0: plcuda_grid_sum_i64((int64_t *)workbuf, sum); break;
case 1: plcuda_grid_count((uint64_t *)workbuf, sum > 0); break;
case 2: case 4: case 6: plcuda_grid_min_key((uint64_t *)workbuf, least); break;
case 3: case 5: case 7: plcuda_grid_max_key((uint64_t *)workbuf, most); break;
default: plcuda_grid_store_f64((double *)workbuf, total);
}
#plcuda_end
#plcuda_post
#plcuda_num_threads 40
const uint64_t word = *(uint64_t *)workbuf;
double r = 0;

switch (arg2.value) {
case 0: r = (double)(int64_t)word; break;
case 1: r = (double)word; break;
case 2: r = (double)plcuda_unorder_i64(~word); break;
case 3: r = (double)plcuda_unorder_i64(word); break;
case 4: r = plcuda_unorder_f64(~word); break;
case 5: r = plcuda_unorder_f64(word); break;
case 6: r = plcuda_unorder_f32(~word); break;
case 7: r = plcuda_unorder_f32(word); break;
default: r = plcuda_block_sum_stored_f64((const double *)workbuf);
}
if (gvm_thread_global() == 0) {
    retval->value = r;
    retval->isnull = 0;
}
#plcuda_end
$$;
SELECT n, lib_fold('lib_rows', 0, n) = sum(i) AS sum, lib_fold('lib_rows', 2, n) = min(l) AS min_l, lib_fold('lib_rows', 3, n) = max(l) AS max_l, lib_fold('lib_rows', 4, n) = min(d) AS min_d,
    lib_fold('lib_rows', 5, n) = max(d) AS max_d, lib_fold('lib_rows', 6, n) = min(f) AS min_f, lib_fold('lib_rows', 7, n) = max(f) AS max_f,
    abs(lib_fold('lib_rows', 8, n) - sum(d)) <= 1e-12 * sum(abs(d)) AS total, lib_fold('lib_rows', 8, n) = lib_fold('lib_rows', 8, n) AS again
    FROM unnest(ARRAY[1, 49, 51, 300, 3000]) n, LATERAL (SELECT * FROM lib_rows LIMIT n) r GROUP BY n ORDER BY n;
SELECT lib_fold('lib_rows', 1, 300) = count(*) FILTER (WHERE i > 0) AS count FROM (SELECT i FROM lib_rows LIMIT 300) one_a_thread;
-- NaN is the greatest, as in SQL; 0 of -0 and infinities are in their order.
CREATE FUNCTION lib_order(a float8, b float8) RETURNS bool LANGUAGE plcuda AS $$
#plcuda_begin
retval->value = plcuda_order_f64(arg1.value) < plcuda_order_f64(arg2.value) &&
    plcuda_order_f32((float)arg1.value) < plcuda_order_f32((float)arg2.value);
retval->isnull = 0;
#plcuda_end
$$;
SELECT count(*), bool_and(lib_order(a, b) = (a < b)) AS same FROM unnest('{-Infinity,-1e30,-1,-1e-40,0,1e-40,1,2,1e30,Infinity,NaN}'::float8[]) a,
    unnest('{-Infinity,-1e30,-1,-1e-40,0,1e-40,1,2,1e30,Infinity,NaN}'::float8[]) b;

-- ---- sorting: the whole in two kernels, the k smallest in one and a bit
CREATE FUNCTION lib_kth(t reggstore, k int, how int) RETURNS bigint LANGUAGE plcuda AS $$
#plcuda_working_bufsz 2000000
#plcuda_prep
#plcuda_num_threads 256
plcuda_pair *pairs = (plcuda_pair *)workbuf;
for (uint64_t row = gvm_thread_global(); row < arg1.value->rows; row += gvm_thread_count()) {
    pairs[row].key = plcuda_order_i32(plcuda_get_int4(arg1.value, 1, row).value % 100);
    pairs[row].payload = row;
}
#plcuda_end
#plcuda_begin
#plcuda_num_threads 256
plcuda_pair *pairs = (plcuda_pair *)workbuf, *lists = pairs + 10000, *tops = pairs + 40000;
const uint32_t k = (uint32_t)arg2.value;

if (arg3.value == 0)
    plcuda_grid_sort_slices(pairs, arg1.value->rows, 7);
else {
    plcuda_pair *mine = lists + gvm_thread_global() * k;

    plcuda_topk_clear(mine, k);
    for (uint64_t row = gvm_thread_global(); row < arg1.value->rows; row += gvm_thread_count())
        plcuda_topk_add(mine, k, pairs[row].key, pairs[row].payload);
    plcuda_block_topk(lists + (uint64_t)gvm_block() * gvm_block_threads() * k, gvm_block_threads(), k, tops + gvm_block() * k);
    if (gvm_thread_global() == 0)
        lists[-1].key = gvm_block_count();
}
#plcuda_end
#plcuda_post
#plcuda_num_threads 32
plcuda_pair *pairs = (plcuda_pair *)workbuf, *lists = pairs + 10000, *tops = pairs + 40000;
const uint32_t k = (uint32_t)arg2.value;

if (arg3.value == 0)
    plcuda_grid_merge_slices(pairs, arg1.value->rows, 7, lists);
else
    plcuda_block_topk(tops, (uint32_t)lists[-1].key, k, lists);
gvm_block_sync();
if (gvm_thread_global() == 0) {
    retval->value = (int64_t)lists[k - 1].payload;
    retval->isnull = lists[k - 1].payload >= arg1.value->rows;
}
#plcuda_end
$$;
SELECT k, lib_kth('lib_rows', k::int, 0) = r AS sorted, k > 100 OR lib_kth('lib_rows', k::int, 1) = r AS smallest FROM
    (SELECT row_number() OVER (ORDER BY i % 100, r) AS k, r FROM (SELECT i, row_number() OVER () - 1 AS r FROM lib_rows) n) ranked
    WHERE k IN (1, 2, 50, 99, 100, 1500, 2999, 3000) ORDER BY k;

-- ---- dates
CREATE FUNCTION lib_date(days int, part int) RETURNS int LANGUAGE plcuda AS $$
#plcuda_begin
const plcuda_time_parts p = plcuda_date_to_parts(arg1.value);
int32_t again = 0;

retval->value = arg2.value == 0 ? p.year : arg2.value == 1 ? p.month : arg2.value == 2 ? p.day : arg2.value == 3 ? plcuda_date_dow(arg1.value)
    : arg2.value == 4 ? plcuda_date_doy(arg1.value) : plcuda_date_week(arg1.value);
retval->isnull = !plcuda_date_from_parts(p.year, p.month, p.day, &again) || again != arg1.value;
#plcuda_end
$$;
SELECT count(*), bool_and(lib_date(d - '2000-01-01', 0) = extract(year FROM d)) AS year, bool_and(lib_date(d - '2000-01-01', 1) = extract(month FROM d)) AS month,
    bool_and(lib_date(d - '2000-01-01', 2) = extract(day FROM d)) AS day, bool_and(lib_date(d - '2000-01-01', 3) = extract(dow FROM d)) AS dow,
    bool_and(lib_date(d - '2000-01-01', 4) = extract(doy FROM d)) AS doy, bool_and(lib_date(d - '2000-01-01', 5) = extract(week FROM d)) AS week
    FROM (SELECT '4713-01-01 BC'::date + 9973 * i AS d FROM generate_series(0, 400) i UNION ALL SELECT '1995-12-25'::date + i FROM generate_series(0, 400) i
    UNION ALL SELECT unnest('{4713-01-01 BC,0001-12-31 BC,0001-01-01,5874897-12-31,1900-02-28,1900-03-01,2000-02-29,2400-02-29,infinity}'::date[])) dates WHERE isfinite(d);
SELECT lib_date(2147483647, 0), lib_date((-2147483647 - 1), 0);
CREATE FUNCTION lib_make_date(int, int, int) RETURNS int LANGUAGE plcuda AS $$
#plcuda_begin
retval->isnull = !plcuda_date_from_parts(arg1.value, arg2.value, arg3.value, &retval->value);
#plcuda_end
$$;
CREATE FUNCTION lib_make_date_sql(y int, m int, d int) RETURNS int LANGUAGE plpgsql AS
    $$ BEGIN RETURN make_date(y, m, d) - '2000-01-01'; EXCEPTION WHEN datetime_field_overflow THEN RETURN NULL; END $$;
SELECT count(*), count(lib_make_date(y, m, d)) AS dates, bool_and(lib_make_date(y, m, d) IS NOT DISTINCT FROM lib_make_date_sql(y, m, d)) AS same
    FROM unnest('{-4714,-4713,-1,0,1,1900,2000,2023,2024,5874897,5874898,2147483647,-2147483648}'::int[]) y, unnest('{-1,0,1,2,11,12,13}'::int[]) m, unnest('{0,1,28,29,30,31,32}'::int[]) d;

-- ---- timestamps
CREATE FUNCTION lib_us(timestamp) RETURNS int8 LANGUAGE SQL AS $$ SELECT CASE WHEN $1 = 'infinity' THEN 9223372036854775807 WHEN $1 = '-infinity' THEN (-9223372036854775807 - 1)
    ELSE ($1::date - '2000-01-01')::int8 * 86400000000 + (extract(epoch FROM $1::time) * 1000000)::int8 END $$;
CREATE FUNCTION lib_part(us int8, part int) RETURNS float8 LANGUAGE plcuda AS $$
#plcuda_begin
const plcuda_time_parts p = plcuda_timestamp_to_parts(arg1.value);
int64_t again = 0;

retval->value = arg2.value == 0 ? plcuda_timestamp_epoch(arg1.value) : arg2.value == 1 ? p.year : arg2.value == 2 ? p.day : arg2.value == 3 ? p.hour : arg2.value == 4 ? p.minute
    : p.second * 1e6 + p.microsecond;
retval->isnull = plcuda_timestamp_is_finite(arg1.value) && (!plcuda_timestamp_from_parts(p, &again) || again != arg1.value);
#plcuda_end
$$;
CREATE FUNCTION lib_trunc(us int8, unit int) RETURNS int8 LANGUAGE plcuda AS $$
#plcuda_begin
retval->value = plcuda_timestamp_trunc(arg1.value, (plcuda_unit)arg2.value);
retval->isnull = 0;
#plcuda_end
$$;
CREATE TABLE lib_times AS SELECT t::timestamp FROM unnest('{4713-01-01 BC,4713-12-31 23:59:59.999999 BC,0001-12-31 23:59:59.999999 BC,0001-01-01,1582-10-04 12:00:00.5,1969-12-31 23:59:59.999999,
    1970-01-01,1999-12-31 23:59:59.999999,2000-01-01,2000-01-01 00:00:00.000001,2024-02-29 13:14:15.161718,2026-11-26 10:49:30,294276-12-31 23:59:59.999999,infinity,-infinity}'::text[]) t
    UNION ALL SELECT '1900-01-01'::timestamp + i * interval '1234567.890123 seconds' FROM generate_series(1, 300) i;
SELECT count(*), bool_and(lib_part(lib_us(t), 0) = date_part('epoch', t)) AS epoch, bool_and(lib_part(lib_us(t), 1) = date_part('year', t) OR NOT isfinite(t)) AS year,
    bool_and(lib_part(lib_us(t), 2) = date_part('day', t) OR NOT isfinite(t)) AS day, bool_and(lib_part(lib_us(t), 3) = date_part('hour', t) OR NOT isfinite(t)) AS hour,
    bool_and(lib_part(lib_us(t), 4) = date_part('minute', t) OR NOT isfinite(t)) AS minute, bool_and(lib_part(lib_us(t), 5) = date_part('microsecond', t) OR NOT isfinite(t)) AS us FROM lib_times;
SELECT u, count(*), bool_and(lib_trunc(lib_us(t), n::int - 1) = lib_us(date_trunc(u, t))) AS same FROM lib_times,
    unnest('{millisecond,second,minute,hour,day,week,month,quarter,year}'::text[]) WITH ORDINALITY units(u, n) WHERE t > '4713-02-01 BC' OR t = '-infinity' GROUP BY u, n ORDER BY n;

-- ---- text: as with the collation "C"
CREATE FUNCTION lib_text(a text, b text, how int) RETURNS int LANGUAGE plcuda STRICT AS $$
#plcuda_begin
const int32_t c = plcuda_text_compare(arg1, arg2);

switch (arg3.value) {
case 0: retval->value = c; break;
case 1: retval->value = plcuda_text_is_equal(arg1, arg2); break;
case 2: retval->value = plcuda_text_begins_with(arg1, arg2); break;
case 3: retval->value = plcuda_utf8_position(arg1, arg2); break;
case 4: retval->value = plcuda_text_like(arg1, arg2); break;
case 5: retval->value = plcuda_text_like_ascii(arg1, arg2); break;
case 6: retval->value = plcuda_text_is_equal_ascii(arg1, arg2); break;
default: retval->value = (int32_t)plcuda_utf8_characters(arg1);
}
retval->isnull = 0;
#plcuda_end
$$;
CREATE TABLE lib_texts AS SELECT unnest(ARRAY['', 'a', 'A', 'ab', 'abc', 'aab', 'häschen', 'HÄschen', 'hä', '日本語', '日本', '本語', 'aaaaab', 'x%y', 'x_y', 'x\y', 'mississippi', 'ssi', 'issip', repeat('ab', 40) || 'c']) COLLATE "C" AS t;
SELECT count(*), bool_and(sign(lib_text(a.t, b.t, 0)) = CASE WHEN a.t < b.t THEN -1 WHEN a.t = b.t THEN 0 ELSE 1 END) AS compare, bool_and((lib_text(a.t, b.t, 1) = 1) = (a.t = b.t)) AS equal,
    bool_and((lib_text(a.t, b.t, 2) = 1) = starts_with(a.t, b.t)) AS begins, bool_and(lib_text(a.t, b.t, 3) = position(b.t IN a.t)) AS position,
    bool_and((lib_text(a.t, b.t, 6) = 1) = (lower(a.t) = lower(b.t))) AS equal_ascii, bool_and(lib_text(a.t, b.t, 7) = length(a.t)) AS length FROM lib_texts a, lib_texts b;
CREATE TABLE lib_patterns AS SELECT unnest(ARRAY['', '%', '_', '__', 'a%', '%a', '%b', '%a%b%', 'A_', '_ä%', '%语', '%語', '日_語', '_本%', 'x\%y', 'x\_y', 'x\\y', '%ss%ss%', '%s_i%', '%is%ip%i', 'm%i%s%p_',
    '%%', '%_%', '_%_%_', '%ab%c', '%abab%ababc', '\a%', 'AB%', '%Ssi%', 'h\ä%']) COLLATE "C" AS p;
SELECT count(*), count(*) FILTER (WHERE t LIKE p) AS alike, bool_and((lib_text(t, p, 4) = 1) = (t LIKE p)) AS same, bool_and((lib_text(t, p, 5) = 1) = (t ILIKE p)) AS same_ascii FROM lib_texts, lib_patterns;
SELECT lib_text('a\', 'a\', 4), lib_text('', '\', 4), lib_text('ab', 'a\\', 4);
SET client_min_messages = warning;
DROP EXTENSION plcuda CASCADE;
