/* K-means: centres of clusters by Lloyd's iterations.
 *
 *     SELECT kmeans('data', ARRAY['x', 'y'], 3);                   -- 3 centres of 2 coordinates
 *
 * Columns are of type real or double precision, at most 64; rows with a NULL in one of them are left out. The first centres are
 * those given, or rows at equal distances in the table. A centre to which no row is nearest stays where it is.
 *
 * Method: a thread keeps some points in registers; centres are in shared memory. Arithmetic is in single precision, and counts from
 * the middle of all centres, so that little is lost of a double. Each block adds up its points in shared memory, in several
 * copies, which lanes of a warp use in turns; sums over all blocks are in double precision. */

\ir columns.sql

CREATE FUNCTION kmeans_check(data reggstore, columns smallint[], centres float8[]) RETURNS boolean IMMUTABLE LANGUAGE SQL
    RETURN cardinality(columns) BETWEEN 1 AND 64 AND array_ndims(centres) = 2 AND array_length(centres, 2) = cardinality(columns)
        AND (SELECT bool_and(c IS NOT NULL) FROM unnest(centres) c);

/* Sums and a count for each centre, and a counter. */
CREATE FUNCTION kmeans_memory(data reggstore, columns smallint[], centres float8[]) RETURNS bigint IMMUTABLE LANGUAGE SQL
    RETURN 8 * (array_length(centres, 1)::bigint * (cardinality(columns) + 1) + cardinality(columns) + 8);

CREATE FUNCTION kmeans_bytes(data reggstore, columns smallint[], centres float8[]) RETURNS bigint IMMUTABLE LANGUAGE SQL
    RETURN 8 * cardinality(centres);

CREATE FUNCTION kmeans_step(data reggstore, columns smallint[], centres float8[]) RETURNS float8[] LANGUAGE plcuda STRICT AS $$
#plcuda_sanity_check kmeans_check
#plcuda_working_bufsz kmeans_memory
#plcuda_results_bufsz kmeans_bytes
#plcuda_decl
#define DIMENSIONS_MAX 64
#define CENTRES_FLOATS 4096 /* of the block's shared memory */
#define SUMS_FLOATS 7168
#define NOWHERE 0xffffffffu /* in place of a centre */
#define PIECES 256          /* of work, that are added up as floats */

typedef struct column {
    const char *values;
    const unsigned char *nulls;
    double middle; /* of all centres */
    int is_double;
} column;

typedef struct kmeans {
    const plcuda_table *data;
    const double *centres;
    uint32_t k, dimensions;
    uint64_t *pieces; /* of work that blocks have taken */
    double *sums;     /* dimensions and a count for each centre, counted from the middle */
    /* of the block */
    column *columns;
    float *near;      /* some centres, filled up with zeros to a multiple of 4 coordinates */
    float *part_sums; /* copies of dimensions + 1 rows of k; NULL if there is no room */
    uint32_t copies;
} kmeans;

/* All threads of the block, which has no shared memory in #plcuda_post. */
GVM_DEVICE kmeans begin_block(const plcuda_table *data, pg_int2_array_t columns, pg_float8_array_t centres, void *memory)
{
    GVM_SHARED(column, described, DIMENSIONS_MAX);
    kmeans m;
    uint32_t i, d;

    m.data = data;
    m.centres = centres.value;
    m.dimensions = columns.length;
    m.k = centres.length / m.dimensions;
    m.pieces = (uint64_t *)memory;
    m.sums = (double *)memory + 8;
    m.columns = described;
    m.near = (float *)gvm_shared();
    m.part_sums = m.near + CENTRES_FLOATS;
    m.copies = SUMS_FLOATS / (m.k * (m.dimensions + 1));
    m.copies = m.copies > gvm_warp_size() ? gvm_warp_size() : m.copies;
    for (d = gvm_thread(); d < m.dimensions; d += gvm_block_threads()) {
        const int32_t number = columns.value[d];
        const int known = number >= 1 && (uint32_t)number <= data->column_count;
        const plcuda_column *c = &data->columns[known ? number - 1 : 0];

        if (!known || (c->type != PLCUDA_FLOAT4 && c->type != PLCUDA_FLOAT8))
            plcuda_raise_in(data->state, "42804", "columns for k-means are of type real or double precision");
        described[d].values = known && c->stored ? c->values : 0;
        described[d].nulls = (const unsigned char *)(const void *)c->nulls;
        described[d].is_double = c->type == PLCUDA_FLOAT8;
        described[d].middle = 0;
        for (i = 0; i < m.k; i++)
            described[d].middle += m.centres[i * m.dimensions + d] / m.k;
    }
    gvm_block_sync();
    return m;
}

GVM_DEVICE float get_coordinate(const column *c, uint64_t row, int *known)
{
    if (c->values == 0 || (c->nulls != 0 && (c->nulls[row / 8] >> (row % 8) & 1) == 0)) {
        *known = 0;
        return 0;
    }
    if (c->is_double)
        return (float)(((const double *)(const void *)c->values)[row] - c->middle);
    return ((const float *)(const void *)c->values)[row] - (float)c->middle;
}

/* Centres from first on, as many as there is room for. wide: coordinates of each. Returns how many. */
GVM_DEVICE uint32_t load_centres(const kmeans *m, uint32_t first, uint32_t wide)
{
    const uint32_t most = CENTRES_FLOATS / wide;
    const uint32_t count = m->k - first < most ? m->k - first : most;
    uint32_t i, d;

    gvm_block_sync();
    for (i = gvm_thread(); i < count * wide; i += gvm_block_threads()) {
        d = i % wide;
        m->near[i] = d < m->dimensions
            ? (float)(m->centres[(first + i / wide) * m->dimensions + d] - m->columns[d].middle)
            : 0;
    }
    gvm_block_sync();
    return count;
}

/* Which centre is nearest to each of some points. wide and points are constants. */
GVM_DEVICE void find_nearest(const kmeans *m, const float *x, uint32_t *nearest, uint32_t wide, uint32_t points)
{
    float least[4];
    uint32_t first, count, i, d, p;

    GVM_UNROLL
    for (p = 0; p < points; p++)
        nearest[p] = NOWHERE;
    for (first = 0; first < m->k; first += count) {
        count = m->k > CENTRES_FLOATS / wide ? load_centres(m, first, wide) : m->k;
        for (i = 0; i < count; i++) {
            const float *c = m->near + i * wide;
            float square[4] = {0, 0, 0, 0};

            GVM_UNROLL
            for (d = 0; d < wide; d++)
                GVM_UNROLL
                for (p = 0; p < points; p++) {
                    const float difference = x[p * wide + d] - c[d];

                    square[p] = fmaf(difference, difference, square[p]);
                }
            GVM_UNROLL
            for (p = 0; p < points; p++)
                if (nearest[p] == NOWHERE || square[p] < least[p]) {
                    least[p] = square[p];
                    nearest[p] = first + i;
                }
        }
    }
    GVM_UNROLL
    for (p = 0; p < points; p++)
        if (!(least[p] - least[p] == 0))
            plcuda_raise_in(m->data->state, "22023", "a coordinate is not finite, or out of the range of type real");
}

GVM_DEVICE void add_point(const kmeans *m, uint32_t centre, const float *x, uint32_t wide)
{
    const uint32_t copy = m->copies > 0 ? gvm_lane() % m->copies : 0;
    uint32_t d;

    GVM_UNROLL
    for (d = 0; d < wide; d++)
        if (d < m->dimensions) {
            if (m->copies > 0)
                gvm_atomic_add_f32(&m->part_sums[(d * m->k + centre) * m->copies + copy], x[d]);
            else
                gvm_atomic_add_f64(&m->sums[d * m->k + centre], x[d]);
        }
    if (m->copies > 0)
        gvm_atomic_add_f32(&m->part_sums[(m->dimensions * m->k + centre) * m->copies + copy], 1);
    else
        gvm_atomic_add_f64(&m->sums[m->dimensions * m->k + centre], 1);
}

/* Those of the block to those of all; they begin again with zero. */
GVM_DEVICE void add_part_sums(const kmeans *m)
{
    uint32_t i, copy;

    gvm_block_sync();
    for (i = gvm_thread(); i < m->k * (m->dimensions + 1) && m->copies > 0; i += gvm_block_threads()) {
        double sum = 0;

        for (copy = 0; copy < m->copies; copy++) {
            sum += m->part_sums[i * m->copies + copy];
            m->part_sums[i * m->copies + copy] = 0;
        }
        if (sum != 0)
            gvm_atomic_add_f64(&m->sums[i], sum);
    }
    gvm_block_sync();
}

GVM_DEVICE void add_points(const kmeans *m, uint64_t first, uint32_t wide, uint32_t points)
{
    float x[64];
    uint32_t nearest[4], p, d;
    int known[4];

    GVM_UNROLL
    for (p = 0; p < points; p++) {
        const uint64_t row = first + p * gvm_block_threads() + gvm_thread();

        known[p] = plcuda_is_live(m->data, row);
        GVM_UNROLL
        for (d = 0; d < wide; d++)
            x[p * wide + d] = known[p] && d < m->dimensions ? get_coordinate(&m->columns[d], row, &known[p]) : 0;
    }
    find_nearest(m, x, nearest, wide, points);
    GVM_UNROLL
    for (p = 0; p < points; p++)
        if (known[p])
            add_point(m, nearest[p], x + p * wide, wide);
}

GVM_DEVICE void add_all(const kmeans *m, uint32_t wide, uint32_t points)
{
    const uint64_t rows = gvm_block_threads() * points;
    uint64_t first;
    uint32_t done, i;

    for (i = gvm_thread(); i < m->copies * m->k * (m->dimensions + 1); i += gvm_block_threads())
        m->part_sums[i] = 0;
    load_centres(m, 0, wide);
    first = plcuda_block_next(m->pieces) * rows;
    while (first < m->data->rows) {
        for (done = 0; done < PIECES && first < m->data->rows; done++) {
            add_points(m, first, wide, points);
            first = plcuda_block_next(m->pieces) * rows;
        }
        add_part_sums(m);
    }
}
#plcuda_end

#plcuda_begin
#plcuda_num_threads 135168
#plcuda_shmem_blocksz 45056
const kmeans m = begin_block(arg1.value, arg2, arg3, workbuf);

if (m.dimensions <= 4)
    add_all(&m, 4, 4);
else if (m.dimensions <= 16)
    add_all(&m, 16, 4);
else
    add_all(&m, 64, 1);
#plcuda_end

#plcuda_post
#plcuda_num_threads 256
const kmeans m = begin_block(arg1.value, arg2, arg3, workbuf);
double *to = (double *)results;

for (uint32_t i = gvm_thread(); i < m.k * m.dimensions; i += gvm_block_threads()) {
    const uint32_t centre = i / m.dimensions, d = i % m.dimensions;
    const double count = m.sums[m.dimensions * m.k + centre];

    to[i] = count > 0 ? m.columns[d].middle + m.sums[d * m.k + centre] / count : m.centres[i];
}
if (gvm_thread() == 0) {
    *retval = arg3;
    retval->value = to;
}
#plcuda_end
$$;

CREATE FUNCTION kmeans_start_check(data reggstore, columns smallint[], k int) RETURNS boolean IMMUTABLE LANGUAGE SQL
    RETURN cardinality(columns) BETWEEN 1 AND 64 AND k BETWEEN 1 AND 100000;

CREATE FUNCTION kmeans_start_bytes(data reggstore, columns smallint[], k int) RETURNS bigint IMMUTABLE LANGUAGE SQL
    RETURN 8 * cardinality(columns) * k;

/* k rows at equal distances, or those that follow where they have a NULL. NULL: there is no row. */
CREATE FUNCTION kmeans_start(data reggstore, columns smallint[], k int) RETURNS float8[] LANGUAGE plcuda STRICT AS $$
#plcuda_sanity_check kmeans_start_check
#plcuda_results_bufsz kmeans_start_bytes
#plcuda_decl
GVM_DEVICE int get_point(const plcuda_table *t, pg_int2_array_t columns, uint64_t row, double *to)
{
    uint32_t d;

    for (d = 0; d < columns.length; d++) {
        const int32_t number = columns.value[d];

        if (number >= 1 && (uint32_t)number <= t->column_count && t->columns[number - 1].type == PLCUDA_FLOAT4) {
            const pg_float4_t f = plcuda_get_float4(t, number, row);

            if (f.isnull)
                return 0;
            to[d] = (double)f.value;
        } else {
            const pg_float8_t f = plcuda_get_float8(t, number, row);

            if (f.isnull)
                return 0;
            to[d] = f.value;
        }
    }
    return 1;
}
#plcuda_end
#plcuda_begin
#plcuda_num_threads 1024
const plcuda_table *t = arg1.value;
const uint64_t k = (uint64_t)arg3.value;

for (uint64_t i = gvm_thread_global(); i < k; i += gvm_thread_count()) {
    uint64_t row = t->rows / k * i, tried = 0;

    while (tried < t->rows && !(plcuda_is_live(t, row) && get_point(t, arg2, row, (double *)results + i * arg2.length))) {
        row = row + 1 == t->rows ? 0 : row + 1;
        tried++;
    }
    if (i == 0 && tried < t->rows) {
        retval->value = (const double *)results;
        retval->nulls = 0;
        retval->length = (uint32_t)k * arg2.length;
        retval->dimensions = 2;
        retval->dims[0] = (int32_t)k;
        retval->dims[1] = (int32_t)arg2.length;
        retval->isnull = 0;
    }
}
#plcuda_end
$$;

/* Iterations until no coordinate of a centre changes by more than tolerance, or as many as are allowed. */
CREATE FUNCTION kmeans(data reggstore, columns text[], k int, iterations int = 100, tolerance float8 = 1e-6, start float8[] = NULL)
    RETURNS float8[] STABLE LANGUAGE plpgsql AS $$
DECLARE
    numbers smallint[] = column_numbers(data::regclass, columns);
    centres float8[] = coalesce(start, kmeans_start(data, numbers, k));
    result float8[];
BEGIN
    IF array_length(centres, 1) <> k THEN
        RAISE invalid_parameter_value USING MESSAGE = format('there are %s centres to start from, not %s', array_length(centres, 1), k);
    END IF;
    FOR i IN 1 .. iterations LOOP
        result := kmeans_step(data, numbers, centres);
        EXIT WHEN (SELECT max(abs(a - b)) <= tolerance FROM unnest(centres, result) AS pair (a, b));
        centres := result;
    END LOOP;
    RETURN result;
END $$;

/* An iteration in SQL, over any table. */
CREATE FUNCTION kmeans_step_sql(data regclass, columns text[], centres float8[]) RETURNS float8[] LANGUAGE plpgsql AS $$
DECLARE
    point text = (SELECT string_agg(quote_ident(name), ', ' ORDER BY at) FROM unnest(columns) WITH ORDINALITY AS name (name, at));
    result float8[];
BEGIN
    EXECUTE format($q$
        WITH points AS (SELECT ARRAY[%1$s]::float8[] AS x FROM %2$s WHERE (%1$s) IS NOT NULL),
        nearest AS MATERIALIZED (SELECT x, (SELECT c FROM generate_subscripts($1, 1) c
            ORDER BY (SELECT sum((a - b) ^ 2) FROM unnest(x, $1[c:c]) AS pair (a, b)), c LIMIT 1) AS c FROM points),
        means AS (SELECT c, d, avg(x[d]) AS mean FROM nearest, generate_subscripts(x, 1) d GROUP BY c, d)
        SELECT array_agg(centre ORDER BY c) FROM (
            SELECT c, array_agg(coalesce(mean, $1[c][d]) ORDER BY d) AS centre
            FROM generate_subscripts($1, 1) c CROSS JOIN generate_subscripts($1, 2) d LEFT JOIN means USING (c, d) GROUP BY c) all_centres
        $q$, point, data) INTO result USING centres;
    RETURN result;
END $$;
