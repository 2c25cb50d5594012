-- vector and halfvec of pgvector in plcuda functions, where it is installed.
\set QUIET on
\set VERBOSITY terse
SET client_min_messages = warning;
SELECT count(*) = 0 AS missing FROM pg_available_extensions WHERE name = 'vector' \gset
\if :missing
    \echo pgvector is not installed
    \quit
\endif
CREATE EXTENSION IF NOT EXISTS plcuda;
CREATE EXTENSION IF NOT EXISTS vector;

-- Columns of each kind, the value as an argument, and the result: the sum of what is in the column and the argument.
CREATE FUNCTION v_add(reggstore, vector, int) RETURNS vector LANGUAGE plcuda AS $$
#plcuda_results_bufsz 64000
#plcuda_begin
PLCUDA_FOR_ROWS (arg1.value, row) {
    pg_vector_t v = plcuda_get_vector(arg1.value, 2, row);
    float *sum = (float *)results;

    if (plcuda_get_int4(arg1.value, 1, row).value != arg3.value || v.isnull || arg2.isnull)
        continue;
    for (uint32_t i = 0; i < v.length; i++)
        sum[i] = v.value[i] + arg2.value[i];
    retval->value = sum;
    retval->length = v.length;
    retval->isnull = 0;
}
#plcuda_end
$$;
CREATE FUNCTION v_half(reggstore, halfvec, int) RETURNS halfvec LANGUAGE plcuda AS $$
#plcuda_results_bufsz 64000
#plcuda_begin
PLCUDA_FOR_ROWS (arg1.value, row) {
    pg_halfvec_t v = plcuda_get_halfvec(arg1.value, 3, row);
    unsigned short *larger = (unsigned short *)results;

    if (plcuda_get_int4(arg1.value, 1, row).value != arg3.value || v.isnull || arg2.isnull)
        continue;
    for (uint32_t i = 0; i < v.length; i++)
        larger[i] = plcuda_half_to_float(v.value[i]) > plcuda_half_to_float(arg2.value[i]) ? v.value[i] : arg2.value[i];
    retval->value = larger;
    retval->length = v.length;
    retval->isnull = 0;
}
#plcuda_end
$$;
CREATE FUNCTION v_dot(reggstore, vector) RETURNS float8 LANGUAGE plcuda STRICT AS $$
#plcuda_begin
#plcuda_num_threads 64
PLCUDA_FOR_ROWS (arg1.value, row) {
    pg_vector_t v = plcuda_get_vector(arg1.value, 2, row);
    pg_halfvec_t h = plcuda_get_halfvec(arg1.value, 3, row);
    double sum = 0;

    for (uint32_t i = 0; i < v.length; i++)
        sum += (double)v.value[i] * arg2.value[i];
    for (uint32_t i = 0; i < h.length; i++)
        sum += plcuda_half_to_float(h.value[i]);
    gvm_atomic_add_f64(&retval->value, sum);
}
retval->isnull = 0;
#plcuda_end
$$;
CREATE PROCEDURE v_check(columns text, format text, INOUT r text DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE FOREIGN TABLE v_table (id int, %s) SERVER gstore_fdw OPTIONS (format %L)', columns, format);
    INSERT INTO v_table SELECT i, CASE WHEN i % 5 > 0 THEN ARRAY[i, -i / 3.0, 0]::real[]::vector END, CASE WHEN i % 7 > 0 THEN ARRAY[i, -65504, 6e-8, 0.1]::real[]::halfvec END FROM generate_series(1, 20) i;
    COMMIT;
    SELECT concat_ws(' ', columns, format, 'compared:', count(*), count(w), 'different:', count(*) FILTER (WHERE v IS DISTINCT FROM w OR h IS DISTINCT FROM l)) INTO r FROM (
        SELECT v + '[1,2,3]' AS v, v_add('v_table', '[1,2,3]', id) AS w, CASE WHEN h IS NOT NULL THEN ARRAY[greatest(id, 9), 65504, 6e-8, 0.1]::real[]::halfvec END AS h, v_half('v_table', '[9,65504,-1,-65504]', id) AS l FROM v_table) u;
    SELECT r || ' dot: ' || (abs(v_dot('v_table', '[1,2,3]') - (SELECT sum(coalesce(-(v <#> '[1,2,3]'), 0) + coalesce((SELECT sum(e::float8) FROM unnest(h::real[]) e), 0)) FROM v_table)) < 0.01) INTO r;
    DROP FOREIGN TABLE v_table;
END $$;
CALL v_check('v vector(3), h halfvec(4)', 'pgstrom');
CALL v_check('v vector(3), h halfvec(4)', 'arrow');
CALL v_check('v vector, h halfvec', 'pgstrom');
CALL v_check('v vector, h halfvec', 'arrow');

-- Every number of 16 bits but those that are none in a halfvec.
CREATE FUNCTION v_floats(halfvec) RETURNS real[] LANGUAGE plcuda AS $$
#plcuda_results_bufsz 64000
#plcuda_begin
for (uint32_t i = 0; i < arg1.length; i++)
    ((float *)results)[i] = plcuda_half_to_float(arg1.value[i]);
retval->value = (float *)results;
retval->length = arg1.length;
retval->isnull = 0;
#plcuda_end
$$;
SELECT count(*), count(*) FILTER (WHERE v_floats(h) IS DISTINCT FROM h::real[]) AS different FROM (
    SELECT array_agg(n)::halfvec AS h FROM (
        SELECT s * (1024 * (e > 0)::int + f) * power(2::float8, greatest(e, 1) - 25) AS n, (e * 1024 + f) / 8000 AS part, s FROM generate_series(0, 30) e, generate_series(0, 1023) f, unnest('{1,-1}'::int[]) s) u
    GROUP BY part, s) v;
SELECT v_floats('[-0,1]');

-- What is no vector is refused.
CREATE FUNCTION v_wrong(int, real) RETURNS vector LANGUAGE plcuda AS E'\n#plcuda_results_bufsz 80000\n#plcuda_begin\n*(float *)results = arg2.value;\nretval->value = (float *)results;\nretval->length = (uint32_t)arg1.value;\nretval->isnull = 0;\n#plcuda_end\n';
SELECT v_wrong(3, 1), vector_dims(v_wrong(16000, 1));
SELECT v_wrong(0, 1);
SELECT v_wrong(16001, 1);
SELECT v_wrong(1, 'NaN');
SELECT v_wrong(1, 'Infinity');
DROP FUNCTION v_add, v_half, v_dot, v_floats, v_wrong;
DROP PROCEDURE v_check;
DROP EXTENSION vector;
SET client_min_messages = warning;
DROP EXTENSION plcuda CASCADE;
