-- Types of plcuda functions: each as an argument, as a column of both formats, of one length too, and as a result; compared with
-- the same values in SQL.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS plcuda;
RESET client_min_messages;
SET timezone = 'UTC';
CREATE TYPE t_mood AS ENUM ('sad', 'ok', 'happy');
CREATE DOMAIN t_positive AS int CHECK (VALUE > 0);
CREATE DOMAIN t_price AS numeric(6, 2) NOT NULL;
CREATE DOMAIN t_pair AS int[] CHECK (array_length(VALUE, 1) = 2);

-- Values of a type come back from a function, and from columns of each kind. What is returned: that, and what differs.
CREATE PROCEDURE t_check(type text, name text, vals text[], formats text[] DEFAULT '{pgstrom,arrow}', options text DEFAULT '', INOUT r text DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE format text; v text; got text; expected text; wrong text := ''; n int := 0;
BEGIN
    vals := vals || NULL::text;
    EXECUTE format('CREATE FUNCTION pg_temp.t_same(reggstore, int, %s) RETURNS %1$s LANGUAGE plcuda AS %L', type,
        format(E'\n#plcuda_begin
if (arg1.isnull)
    *retval = arg3;
else
    PLCUDA_FOR_ROWS (arg1.value, row)
        if (plcuda_get_int4(arg1.value, 1, row).value == arg2.value)
            *retval = plcuda_get_%s(arg1.value, plcuda_column_number(arg1.value, "v"), row);\n#plcuda_end\n', name));
    FOREACH v IN ARRAY vals LOOP
        EXECUTE format('SELECT %L::%s::text, pg_temp.t_same(NULL, NULL, %1$L::%2$s)::text', v, type) INTO expected, got;
        n := n + 1;
        IF expected IS DISTINCT FROM got THEN
            wrong := wrong || format(' argument %s: %s.', left(expected, 99), left(got, 99));
        END IF;
    END LOOP;
    FOREACH format IN ARRAY formats LOOP
        EXECUTE format('CREATE FOREIGN TABLE t_values (id int, v %s %s) SERVER gstore_fdw OPTIONS (format %L)', type, options, format);
        EXECUTE format('INSERT INTO t_values SELECT i, v::%s FROM unnest($1) WITH ORDINALITY u(v, i)', type) USING vals;
        COMMIT;
        FOR i IN 1 .. array_length(vals, 1) LOOP
            EXECUTE format('SELECT v::text, pg_temp.t_same(''t_values'', id, NULL)::text FROM t_values WHERE id = %s', i) INTO expected, got;
            n := n + 1;
            IF expected IS DISTINCT FROM got OR (vals[i] IS NULL) <> (got IS NULL) THEN
                wrong := wrong || format(' %s %s: %s.', format, left(expected, 99), left(got, 99));
            END IF;
        END LOOP;
        DROP FOREIGN TABLE t_values;
    END LOOP;
    DROP FUNCTION pg_temp.t_same;
    r := concat_ws(' ', name, options, 'compared:', n) || wrong;
END $$;

CALL t_check('bool', 'bool', '{t,f}');
CALL t_check('"char"', 'char', '{a,"\\377",""}');
CALL t_check('int2', 'int2', '{-32768,0,32767}');
CALL t_check('int4', 'int4', '{-2147483648,2147483647}');
CALL t_check('int8', 'int8', '{-9223372036854775808,9223372036854775807}');
CALL t_check('float4', 'float4', '{NaN,-0,Infinity,-Infinity,1e-40,0.1}');
CALL t_check('float8', 'float8', '{NaN,-0,Infinity,-Infinity,1e-320,0.1}');
CALL t_check('oid', 'oid', '{0,4294967295}');
CALL t_check('money', 'money', '{-0.01,92233720368547758.07}');
CALL t_check('date', 'date', '{4713-01-01 BC,5874897-12-31,infinity,-infinity,2000-01-01,1969-12-31}');
CALL t_check('time', 'time', '{00:00,24:00,12:34:56.789012}');
CALL t_check('timetz', 'timetz', '{00:00+15:59:59,24:00-15:59,12:34:56.789012+00}');
CALL t_check('timestamp', 'timestamp', '{4713-01-01 00:00:00 BC,294247-01-01 00:00:00,infinity,-infinity,1969-12-31 23:59:59.999999}');
CALL t_check('timestamp', 'timestamp', '{294276-12-31 23:59:59.999999}', '{pgstrom}');
CALL t_check('timestamptz', 'timestamptz', '{4713-01-01 00:00:00+00 BC,294247-01-01 00:00:00+00,infinity,-infinity,2000-01-01 00:00:00+00}');
CALL t_check('interval', 'interval', '{178000000 years,-178000000 years,1 mon -3 days 00:00:00.000001,0}');
CALL t_check('uuid', 'uuid', '{00000000-0000-0000-0000-000000000000,a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,ffffffff-ffff-ffff-ffff-ffffffffffff}');
CALL t_check('point', 'point', '{"(-0,NaN)","(Infinity,1e-320)"}');
CALL t_check('t_mood', 'enum', '{sad,happy}');
CALL t_check('text', 'text', ARRAY['', 'häschen', repeat('x', 5000)]);
CALL t_check('varchar(9)', 'text', ARRAY['', 'häschen']);
CALL t_check('char(9)', 'text', ARRAY['', 'häschen  ']);
CALL t_check('bytea', 'bytea', ARRAY['', '\x00ff00', '\x' || repeat('ab', 5000)]);
CALL t_check('bytea', 'bytea', ARRAY['\x00ff00'], options := $$OPTIONS (length '3')$$);
CALL t_check('varbit', 'varbit', ARRAY['', '1', '0', '1010101', '11111111', '000000001', repeat('10', 5000)]);
CALL t_check('bit varying(9)', 'varbit', ARRAY['', '111111111']);
CALL t_check('bit(9)', 'varbit', ARRAY['000000001', '111111111']);

-- numeric: up to 38 digits, more, and those that are none; scales that a point is between digits to the base of 10000.
CALL t_check('numeric', 'numeric', ARRAY['0', '0.00', '-0.0000', '1', '-1.50', '10000', '99990000', '0.0001', '0.00001000', '12345.678901', '1e-37', '1e37', repeat('9', 38), '-' || repeat('9', 38),
    '0.' || repeat('9', 38), repeat('9', 19) || '.' || repeat('9', 19), 'NaN', 'Infinity', '-Infinity', '1e38', repeat('9', 39), '-1e-38', '-1e100', '1e-100', '1e-1000', repeat('123456789', 1000) || '.5', '1e131071']);
CALL t_check('numeric(38,0)', 'numeric', ARRAY['0', repeat('9', 38), '-' || repeat('9', 38), 'NaN']);
CALL t_check('numeric(38,38)', 'numeric', ARRAY['0', '0.' || repeat('9', 38), '-1e-38', 'NaN']);
CALL t_check('numeric(10,2)', 'numeric', ARRAY['0', '-0.01', '99999999.99', 'NaN']);
CALL t_check('numeric(5,-3)', 'numeric', ARRAY['0', '1000', '-99999000']);
CALL t_check('numeric(50,10)', 'numeric', ARRAY['0', '-0.5', repeat('9', 40) || '.0000000001', 'NaN']);

-- Arrays: of each type; empty, with NULLs, of several dimensions, from other bounds on. Columns of format 'arrow' have neither of the last two.
CALL t_check('bool[]', 'bool_array', '{"{}","{t}","{t,f,NULL,t}"}');
CALL t_check('int2[]', 'int2_array', '{"{}","{1,-2,3}","{NULL,1,NULL}"}');
CALL t_check('int4[]', 'int4_array', '{"{}","{1}","{NULL}","{NULL,NULL,7,8,9,10,11,12,NULL,14}","{1,2,3,4,5,6,7,8}"}');
CALL t_check('int4[]', 'int4_array', '{"{{1,2,3},{4,5,6}}","[0:2]={1,2,3}","[-3:-2][7:8]={{1,NULL},{3,4}}","{{{{{{1,2}}}}}}","[2147483645:2147483646]={1,2}","[-2147483648:-2147483647]={1,2}"}', '{pgstrom}');
CALL t_check('int8[]', 'int8_array', '{"{}","{9223372036854775807,NULL}"}');
CALL t_check('float4[]', 'float4_array', '{"{}","{NaN,-0,NULL,1e-40}"}');
CALL t_check('float8[]', 'float8_array', '{"{}","{NaN,-0,NULL,1e-320}"}');
CALL t_check('oid[]', 'oid_array', '{"{}","{0,NULL,4294967295}"}');
CALL t_check('date[]', 'date_array', '{"{}","{infinity,-infinity,NULL,1969-12-31,2000-01-01}"}');
CALL t_check('time[]', 'time_array', '{"{}","{24:00,NULL}"}');
CALL t_check('timestamp[]', 'timestamp_array', '{"{}","{infinity,-infinity,NULL,2000-01-01 00:00:00}"}');
CALL t_check('timestamptz[]', 'timestamptz_array', '{"{}","{infinity,-infinity,NULL,2000-01-01 00:00:00+00}"}');
CALL t_check('uuid[]', 'uuid_array', '{"{}","{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL,ffffffff-ffff-ffff-ffff-ffffffffffff}"}');
CALL t_check('int4[]', 'int4_array', '{"{1,2,3}","{-1,0,2147483647}"}', options := $$OPTIONS (length '3')$$);
CALL t_check('date[]', 'date_array', '{"{infinity,2000-01-01}"}', options := $$OPTIONS (length '2')$$);
CALL t_check('uuid[]', 'uuid_array', '{"{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}"}', options := $$OPTIONS (length '1')$$);
CALL t_check('int4[]', 'int4_array', ARRAY['{' || repeat('1,NULL,2,3,4,5,6,', 500) || '7}', '{' || repeat('8,', 4000) || '9}']);

-- Domains: as what they are over; constraints and modifiers of a result's are checked.
CALL t_check('t_pair', 'int4_array', '{"{1,2}"}');
CREATE FUNCTION t_to_positive(int) RETURNS t_positive LANGUAGE plcuda AS E'\n#plcuda_begin\n*retval = arg1;\n#plcuda_end\n';
SELECT t_to_positive(3), t_to_positive(NULL);
SELECT t_to_positive(-3);
CREATE FUNCTION t_to_price(numeric) RETURNS t_price LANGUAGE plcuda AS E'\n#plcuda_begin\n*retval = arg1;\n#plcuda_end\n';
SELECT t_to_price(1.005), t_to_price(-9999.99);
SELECT t_to_price(9999.999);
SELECT t_to_price(NULL);
CREATE DOMAIN t_seconds AS timestamp(0)[];
CREATE TYPE t_moments AS (a timestamp(0)[], b time(1)[], c timestamptz(2), d varchar(3)); -- of an array the modifier is that of its elements
CREATE FUNCTION t_to_seconds(timestamp[]) RETURNS t_seconds LANGUAGE plcuda AS E'\n#plcuda_begin\n*retval = arg1;\n#plcuda_end\n';
CREATE FUNCTION t_to_moments(timestamp[], time[], timestamptz, text) RETURNS t_moments LANGUAGE plcuda AS E'\n#plcuda_begin\nretval->a = arg1; retval->b = arg2; retval->c = arg3; retval->d = arg4;\n#plcuda_end\n';
SELECT t_to_seconds(a)::text = a::t_seconds::text AS domain, t_to_moments(a, b, c, d)::text = ROW(a::timestamp(0)[], b::time(1)[], c::timestamptz(2), d::varchar(3))::text AS composite,
    t_to_seconds(a) FROM (VALUES ('{2000-01-01 00:00:00.7,NULL,infinity,1999-12-31 23:59:59.4}'::timestamp[], '[0:1]={00:00:00.77,NULL}'::time[], '2000-01-01 00:00:00.777+00'::timestamptz, 'abc'),
    ('{}', '{{23:59:59.99},{24:00}}', NULL, NULL), ('{NULL}', NULL, 'infinity', 'a')) v (a, b, c, d);
CREATE FUNCTION t_from_positive(t_positive) RETURNS int LANGUAGE plcuda AS E'\n#plcuda_begin\n*retval = arg1;\n#plcuda_end\n';
SELECT t_from_positive(3), t_from_positive(NULL);

-- Nothing is returned; arrays from lists of arguments.
CREATE FUNCTION t_nothing(int) RETURNS void LANGUAGE plcuda AS E'\n#plcuda_begin\nif (arg1.value < 0) plcuda_raise(plcuda, "22003", "below 0");\n#plcuda_end\n';
SELECT t_nothing(1), t_nothing(1) IS NULL AS is_null;
SELECT t_nothing(-1);
CREATE FUNCTION t_sum(VARIADIC int[]) RETURNS int8 LANGUAGE plcuda AS $$
#plcuda_begin
for (uint32_t i = 0; i < arg1.length; i++) {
    pg_int4_t e = plcuda_int4_element(&arg1, i);
    retval->value += e.isnull ? 1000 : e.value;
}
retval->isnull = 0;
#plcuda_end
$$;
SELECT t_sum(1, 2, 3), t_sum(4), t_sum(VARIADIC '{}'), t_sum(5, NULL, 6), t_sum(VARIADIC NULL);

-- Elements one by one: of arrays of columns, in both formats, those that are NULL are found, and those beyond are.
CREATE FUNCTION t_elements(reggstore) RETURNS text LANGUAGE plcuda AS $$
#plcuda_results_bufsz 100
#plcuda_begin
int64_t sums[5] = {0};
char *to = (char *)results;

PLCUDA_FOR_ROWS (arg1.value, row) {
    pg_int2_array_t a = plcuda_get_int2_array(arg1.value, 2, row);
    pg_date_array_t d = plcuda_get_date_array(arg1.value, 3, row);
    pg_timestamptz_array_t z = plcuda_get_timestamptz_array(arg1.value, 4, row);

    for (uint32_t i = 0; i < a.length + 3; i++) {
        pg_int2_t e = plcuda_int2_element(&a, i);

        sums[0] += e.isnull;
        sums[1] += e.value * (i + 1);
    }
    for (uint32_t i = 0; i < d.length; i++)
        sums[2] += plcuda_date_element(&d, i).value;
    for (uint32_t i = 0; i < z.length; i++)
        sums[3] += plcuda_timestamptz_element(&z, i).value / 1000000;
    sums[4] += a.isnull ? 1000000 : a.dims[0];
}
for (int i = 0; i < 5; i++) {
    char digits[24];
    int n = 0;

    do
        digits[n++] = (char)('0' + sums[i] % 10);
    while ((sums[i] /= 10) > 0);
    while (n > 0)
        *to++ = digits[--n];
    *to++ = ' ';
}
retval->value = (char *)results;
retval->length = (uint32_t)(to - (char *)results);
retval->isnull = 0;
#plcuda_end
$$;
CREATE FOREIGN TABLE t_lists (id int, a int2[], d date[], z timestamptz[]) SERVER gstore_fdw;
CREATE FOREIGN TABLE t_arrow (id int, a int2[], d date[], z timestamptz[]) SERVER gstore_fdw OPTIONS (format 'arrow');
INSERT INTO t_lists SELECT i, CASE WHEN i % 9 > 0 THEN (SELECT coalesce(array_agg(nullif(j * i % 5, 0)), '{}') FROM generate_series(1, i % 23) j) END,
    ARRAY['2000-01-01'::date + i, NULL, '2001-01-01'], ARRAY['2000-01-01 00:00:00+00'::timestamptz + i * interval '1 hour', NULL] FROM generate_series(1, 500) i;
INSERT INTO t_arrow SELECT * FROM t_lists;
CREATE FUNCTION t_as_sql(t text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r text;
BEGIN
    EXECUTE format($f$SELECT concat_ws(' ', sum(3 + (SELECT count(*) FROM unnest(a) e WHERE e IS NULL)), sum((SELECT sum(e * o) FROM unnest(a) WITH ORDINALITY u(e, o))),
        sum((SELECT sum(e - '2000-01-01') FROM unnest(d) e)), sum((SELECT sum(extract(epoch FROM e - '2000-01-01 00:00:00+00')::int8) FROM unnest(z) e)),
        sum(CASE WHEN a IS NULL THEN 1000000 ELSE cardinality(a) END)) || ' ' FROM %s$f$, t) INTO r;
    RETURN r;
END $$;
SELECT t_elements('t_lists') = t_as_sql('t_lists') AS same, t_elements('t_arrow') = t_as_sql('t_arrow') AS same_arrow, t_elements('t_arrow');
DELETE FROM t_arrow WHERE id % 3 = 0;
SELECT t_elements('t_arrow') = t_as_sql('t_arrow') AS same_arrow;

-- A matrix: dimensions of an argument, and those of a result.
CREATE FUNCTION t_transpose(float8[]) RETURNS float8[] LANGUAGE plcuda STRICT AS $$
#plcuda_results_bufsz 80000
#plcuda_begin
double *to = (double *)results;

if (arg1.dimensions != 2) {
    plcuda_raise(plcuda, "2202E", "a matrix has two dimensions");
    return;
}
for (int32_t i = 0; i < arg1.dims[0]; i++)
    for (int32_t j = 0; j < arg1.dims[1]; j++)
        to[j * arg1.dims[0] + i] = arg1.value[i * arg1.dims[1] + j];
retval->value = to;
retval->length = arg1.length;
retval->dimensions = 2;
retval->dims[0] = arg1.dims[1];
retval->dims[1] = arg1.dims[0];
retval->isnull = 0;
#plcuda_end
$$;
SELECT t_transpose('{{1,2,3},{4,5,6}}'), t_transpose(NULL);
SELECT t_transpose('{1,2,3}');

-- What is no value of the result's type is refused.
CREATE FUNCTION t_refused(type text, bodies text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE r text;
BEGIN
    EXECUTE format('CREATE FUNCTION pg_temp.t_wrong(int) RETURNS %s LANGUAGE plcuda AS %L', type, E'\n#plcuda_results_bufsz 200000\n#plcuda_begin\nretval->isnull = 0;\n' ||
        (SELECT string_agg(format(E'if (arg1.value == %s) {\n%s\n}\n', n, body), '') FROM unnest(bodies) WITH ORDINALITY u(body, n)) || E'#plcuda_end\n');
    FOR i IN 1 .. array_length(bodies, 1) LOOP
        BEGIN
            EXECUTE format('SELECT pg_temp.t_wrong(%s)', i) INTO r;
            r := 'returned ' || left(r, 20) || ', length ' || length(r);
        EXCEPTION WHEN OTHERS THEN
            r := SQLSTATE || ' ' || SQLERRM;
        END;
        RETURN NEXT r;
    END LOOP;
    DROP FUNCTION pg_temp.t_wrong;
END $$;
SELECT t_refused('bool', ARRAY[
    'retval->value = 77;']);
SELECT t_refused('date', ARRAY[
    'retval->value = 0x7ffffffe;']);
SELECT t_refused('timestamp', ARRAY[
    'retval->value = 0x7ffffffffffffffe;']);
SELECT t_refused('time', ARRAY[
    'retval->value = -1;']);
SELECT t_refused('timetz', ARRAY[
    'retval->value.zone = 1 << 20;']);
SELECT t_refused('t_mood', ARRAY[
    'retval->value = 16;']);
SELECT t_refused('varbit', ARRAY[
    'retval->length = 13; retval->value = (unsigned char *)results; ((unsigned char *)results)[1] = 255;']);
SELECT t_refused('numeric', ARRAY[
    'retval->kind = 9;',
    'retval->high = 0x7fffffffffffffff;',
    'retval->low = 5; retval->scale = 2000;',
    'retval->low = 5; retval->scale = -3;',
    'retval->kind = PLCUDA_NUMERIC_LONG; retval->value = (char *)results; retval->length = 3;',
    'retval->kind = PLCUDA_NUMERIC_LONG; retval->value = (char *)results; retval->length = 8; ((short *)results)[3] = 10000;',
    'retval->kind = PLCUDA_NUMERIC_LONG; retval->value = (char *)results; retval->length = 8; ((short *)results)[1] = 9999; ((short *)results)[2] = 1;',
    'retval->kind = PLCUDA_NUMERIC_LONG; retval->value = (char *)results; retval->length = 2 * (2 + 65536 + 1); ((short *)results)[2] = 7; ((short *)results)[3] = 5000;']);
SELECT t_refused('text', ARRAY[
    'retval->value = (char *)results; retval->length = 1; *(unsigned char *)results = 255;']);
SELECT t_refused('int[]', ARRAY[
    'retval->length = 3;',
    'retval->length = 0x7fffffff; retval->value = (int32_t *)results;',
    'retval->length = 3; retval->value = (int32_t *)results;',
    'retval->length = 3; retval->value = (int32_t *)results; retval->dimensions = 2; retval->dims[0] = 2; retval->dims[1] = 2;',
    'retval->length = 1; retval->value = (int32_t *)results; retval->dimensions = 2; retval->dims[0] = -1; retval->dims[1] = -1;',
    'retval->length = 1; retval->value = (int32_t *)results; retval->dimensions = 7;',
    'retval->length = 2; retval->value = (int32_t *)results; retval->dimensions = 1; retval->dims[0] = 2; retval->base[0] = 0x7ffffffd;',
    'retval->length = 2; retval->value = (int32_t *)results; retval->packed = -3;',
    'retval->length = 2; retval->value = (int32_t *)results; retval->packed = -1;',
    'retval->length = 2; retval->value = (int32_t *)results; retval->nulls_from = -5; retval->nulls = (unsigned char *)results;',
    'retval->length = 3; retval->value = (int32_t *)results; retval->nulls = (unsigned char *)results + 96; ((unsigned char *)results)[96] = 5;']);
SELECT t_refused('date[]', ARRAY[
    'retval->length = 1; retval->value = (int32_t *)results; *(int32_t *)results = 0x7ffffffe;']);

-- numeric to other numbers, as SQL converts them: by columns that are decimals, and that are not.
CREATE FUNCTION t_wrong(reggstore) RETURNS int8 LANGUAGE plcuda AS $$
#plcuda_begin
#plcuda_num_threads 64
uint64_t wrong = 0;

PLCUDA_FOR_ROWS (arg1.value, row) {
    const pg_numeric_t n = plcuda_get_numeric(arg1.value, 1, row);
    const pg_float8_t f = plcuda_get_float8(arg1.value, 2, row);
    const pg_int8_t i = plcuda_get_int8(arg1.value, 3, row);
    const double d = plcuda_numeric_to_float8(&n);
    int64_t got;

    if (n.isnull || (d != f.value && (d == d || f.value == f.value)))
        wrong++;
    if (plcuda_numeric_to_int8(&n, &got) == i.isnull || (!i.isnull && got != i.value))
        wrong += 1000000;
}
gvm_atomic_add_u64((uint64_t *)&retval->value, wrong);
retval->isnull = 0;
#plcuda_end
$$;
CREATE FUNCTION t_float8(numeric) RETURNS float8 LANGUAGE plpgsql AS 'BEGIN RETURN $1::float8; EXCEPTION WHEN numeric_value_out_of_range THEN RETURN CASE WHEN abs($1) < 1 THEN 0 ELSE sign($1) * ''Infinity''::float8 END; END';
CREATE FUNCTION t_int8(numeric) RETURNS int8 LANGUAGE plpgsql AS 'BEGIN RETURN $1::int8; EXCEPTION WHEN numeric_value_out_of_range OR feature_not_supported THEN RETURN NULL; END';
CREATE FOREIGN TABLE t_numbers (n numeric, f float8, i int8) SERVER gstore_fdw;
CREATE FOREIGN TABLE t_decimals (n numeric(38, 19), f float8, i int8) SERVER gstore_fdw;
CREATE FOREIGN TABLE t_both (n numeric, f float8, i int8) SERVER gstore_fdw OPTIONS (format 'arrow');
SELECT setseed(0.5);
-- Any number of digits, any place of the point; halves between two doubles, and next to them.
INSERT INTO t_numbers SELECT n, t_float8(n), t_int8(n) FROM (
    SELECT (CASE WHEN random() < 0.5 THEN '-' ELSE '' END || (SELECT string_agg((random() * 9)::int::text, '') FROM generate_series(1, 1 + (i + random() * 60)::int % 60))
        || 'e' || CASE WHEN i % 3 = 0 THEN (random() * 40)::int - 40 ELSE (random() * 680)::int - 360 END)::numeric AS n FROM generate_series(1, 3000) i
    UNION ALL SELECT (9007199254740993 * power(2::numeric, k)) + e FROM generate_series(0, 300, 7) k, unnest('{0,-1,1,0.5,1e-60}'::numeric[]) e
    UNION ALL SELECT 9007199254740993 / power(2::numeric, k) + e FROM generate_series(1, 60) k, unnest('{0,1e-300,-1e-300}'::numeric[]) e
    UNION ALL SELECT unnest('{NaN,Infinity,-Infinity,0,0.5,-0.5,1.5,2.5,-2.5,0.49999999999999999999999999999999999999,9223372036854775807,9223372036854775807.5,9223372036854775807.49999999999999999999999999,-9223372036854775808.4,-9223372036854775808.5,179769313486231580793728971405303415079934132710037826936173778980444968292764750946649017977587207096330286416692887910946555547851940402630657488671505820681908902000708383676273854845817711531764475730270069855571366959622842914819860834936475292719074168444365510704342711559699508093042880,1e309,4.9e-324,2.4703282292062327e-324,2.4703282292062328e-324,2.2250738585072011e-308}'::numeric[])) u;
SELECT t_wrong('t_numbers'), count(*), count(*) FILTER (WHERE length(trim(n::text, '0.')) > 40) > 1000 AS long FROM t_numbers;
INSERT INTO t_both SELECT * FROM t_numbers;
SELECT t_wrong('t_both');
INSERT INTO t_decimals SELECT n, t_float8(n), t_int8(n) FROM (SELECT n::numeric(38, 19) FROM t_numbers WHERE abs(n) < 1e19 OR n = 'NaN') u;
SELECT t_wrong('t_decimals'), count(*) > 1000 AS many FROM t_decimals;
DROP FOREIGN TABLE t_lists, t_arrow, t_numbers, t_decimals, t_both;
DROP FUNCTION t_to_positive, t_to_price, t_from_positive, t_wrong;
DROP DOMAIN t_positive, t_price, t_pair;
DROP TYPE t_mood;
SET client_min_messages = warning;
DROP EXTENSION plcuda CASCADE;
