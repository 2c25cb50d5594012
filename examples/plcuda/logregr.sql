/* Logistic regression, without a penalty, by Newton's method (iteratively reweighted least squares).
 *
 *     SELECT logregr_train('data', 'ill', ARRAY['age', 'weight']);  -- the intercept, then a coefficient for each feature
 *     SELECT logregr_predict(coefficients, ARRAY[50, 80]);          -- a probability
 *
 * The target is boolean; features are of type real or double precision, at most 64. Rows with a NULL in one of the columns are
 * left out. If some plane separates the two classes there is no best one, and it fails with 22023; features that depend on
 * each other linearly do so, too.
 *
 * Method: a step adds up, over all rows, the gradient and the matrix of second derivatives of the likelihood, and solves one
 * system of equations. A block brings a tile of rows into shared memory; then each of its threads has some elements of the
 * matrix, and goes through the rows of the tile. All arithmetic is in double precision. */

\ir columns.sql

CREATE FUNCTION logregr_check(data reggstore, target smallint, features smallint[], coefficients float8[]) RETURNS boolean
    IMMUTABLE LANGUAGE SQL
    RETURN cardinality(features) BETWEEN 1 AND 64 AND cardinality(coefficients) = cardinality(features) + 1
        AND array_position(coefficients, NULL) IS NULL;

/* The matrix and the gradient, one behind the other, and a counter. */
CREATE FUNCTION logregr_memory(data reggstore, target smallint, features smallint[], coefficients float8[]) RETURNS bigint
    IMMUTABLE LANGUAGE SQL
    RETURN 8 * (cardinality(coefficients) * (cardinality(coefficients) + 1) + 8);

CREATE FUNCTION logregr_bytes(data reggstore, target smallint, features smallint[], coefficients float8[]) RETURNS bigint
    IMMUTABLE LANGUAGE SQL
    RETURN 8 * cardinality(coefficients);

CREATE FUNCTION logregr_step(data reggstore, target smallint, features smallint[], coefficients float8[]) RETURNS float8[]
    LANGUAGE plcuda STRICT AS $$
#plcuda_sanity_check logregr_check
#plcuda_working_bufsz logregr_memory
#plcuda_results_bufsz logregr_bytes
#plcuda_decl
#define TERMS_MAX 65
#define TILE_DOUBLES 3072 /* of the block's shared memory: rows */
#define SUMS_DOUBLES 2210 /* one half of the matrix, and the gradient */
#define SINGULAR 1e-13    /* a pivot, as a part of what it was */

typedef struct regression {
    const plcuda_table *data;
    const double *coefficients;
    const short *features;
    int32_t target;
    uint32_t terms; /* the constant and the features */
    uint32_t sums;  /* elements of half the matrix, row by row, and of the gradient */
    uint64_t *tiles; /* that blocks have taken */
    double *matrix;  /* terms rows of terms + 1: the last column is the gradient */
    /* of the block */
    double *tile;      /* of each row its terms, weight and error */
    double *part_sums; /* each has one thread */
    uint32_t rows;     /* of a tile */
} regression;

GVM_DEVICE regression begin_block(const plcuda_table *data, int32_t target, pg_int2_array_t features,
                                  pg_float8_array_t coefficients, void *memory)
{
    regression r;

    r.data = data;
    r.coefficients = coefficients.value;
    r.features = features.value;
    r.target = target;
    r.terms = coefficients.length;
    r.sums = r.terms * (r.terms + 1) / 2 + r.terms;
    r.tiles = (uint64_t *)memory;
    r.matrix = (double *)memory + 8;
    r.tile = (double *)gvm_shared();
    r.part_sums = r.tile + TILE_DOUBLES;
    r.rows = TILE_DOUBLES / (r.terms + 2);
    return r;
}

GVM_DEVICE double get_number(const regression *r, int32_t number, uint64_t row, int *known)
{
    const int is_float4 =
        number >= 1 && (uint32_t)number <= r->data->column_count && r->data->columns[number - 1].type == PLCUDA_FLOAT4;

    if (is_float4) {
        const pg_float4_t f = plcuda_get_float4(r->data, number, row);

        *known = *known && !f.isnull;
        return (double)f.value;
    } else {
        const pg_float8_t f = plcuda_get_float8(r->data, number, row);

        *known = *known && !f.isnull;
        return f.value;
    }
}

/* Terms, weight and error of a row; zeros if it does not count. */
GVM_DEVICE void load_row(const regression *r, uint64_t row, double *to)
{
    int known = plcuda_is_live(r->data, row);
    double sum = r->coefficients[0], probability;
    pg_bool_t target = {0, 1};
    uint32_t i;

    if (known)
        target = plcuda_get_bool(r->data, r->target, row);
    known = known && !target.isnull;
    to[0] = 1;
    for (i = 1; i < r->terms; i++) {
        to[i] = known ? get_number(r, r->features[i - 1], row, &known) : 0;
        sum += to[i] * r->coefficients[i];
    }
    probability = 1 / (1 + exp(-sum));
    to[r->terms] = probability * (1 - probability);
    to[r->terms + 1] = (target.value ? 1 : 0) - probability;
    if (!known)
        for (i = 0; i < r->terms + 2; i++)
            to[i] = 0;
}

/* To which element of the matrix a sum belongs. */
GVM_DEVICE void find_element(const regression *r, uint32_t sum, uint32_t *i, uint32_t *j)
{
    const uint32_t half = r->terms * (r->terms + 1) / 2;

    *i = sum - half;
    *j = r->terms;
    if (sum < half)
        for (*i = 0, *j = sum; *j > *i; *j -= *i)
            ++*i;
}

/* Threads in the order of rows take neighbouring rows; in the order of sums each takes one or more. */
GVM_DEVICE void add_tile(const regression *r, uint64_t first)
{
    const uint32_t wide = r->terms + 2;
    uint32_t row, s, i, j;

    for (row = gvm_thread(); row < r->rows; row += gvm_block_threads())
        load_row(r, first + row, r->tile + row * wide);
    gvm_block_sync();
    for (s = gvm_thread(); s < r->sums; s += gvm_block_threads()) {
        const double *t = r->tile;
        double sum = 0;

        find_element(r, s, &i, &j);
        if (j == r->terms)
            for (row = 0; row < r->rows; row++, t += wide)
                sum = fma(t[i], t[j + 1], sum);
        else
            for (row = 0; row < r->rows; row++, t += wide)
                sum = fma(t[i] * t[j], t[r->terms], sum);
        r->part_sums[s] += sum;
    }
}

GVM_DEVICE void add_all(const regression *r)
{
    uint32_t s, i, j;
    uint64_t first;

    for (s = gvm_thread(); s < r->sums; s += gvm_block_threads())
        r->part_sums[s] = 0;
    for (first = plcuda_block_next(r->tiles) * r->rows; first < r->data->rows; first = plcuda_block_next(r->tiles) * r->rows)
        add_tile(r, first);
    for (s = gvm_thread(); s < r->sums; s += gvm_block_threads()) {
        find_element(r, s, &i, &j);
        gvm_atomic_add_f64(&r->matrix[i * (r->terms + 1) + j], r->part_sums[s]);
    }
}

/* Solves the system by Cholesky's method; x is what the coefficients change by. One thread for each row, or more rows. */
GVM_DEVICE void solve(const regression *r, const plcuda_call *call, double *x)
{
    const uint32_t n = r->terms, wide = n + 1, thread = gvm_thread(), threads = gvm_block_threads();
    double *a = r->matrix, *diagonal = (double *)gvm_shared();
    uint32_t i, j, k;

    for (i = thread; i < n; i += threads)
        diagonal[i] = a[i * wide + i];
    gvm_block_sync();
    /* The lower half becomes the factor, and the last column the solution of its system. */
    for (k = 0; k < n; k++) {
        if (thread == 0) {
            if (!(a[k * wide + k] > SINGULAR * diagonal[k]))
                plcuda_raise(call, "22023", "there is no best plane: the classes are separated, or features depend on each other");
            a[k * wide + k] = sqrt(a[k * wide + k]);
            a[k * wide + n] /= a[k * wide + k];
        }
        gvm_block_sync();
        for (i = k + 1 + thread; i < n; i += threads) {
            a[i * wide + k] /= a[k * wide + k];
            a[i * wide + n] -= a[i * wide + k] * a[k * wide + n];
        }
        gvm_block_sync();
        for (i = k + 1 + thread; i < n; i += threads)
            for (j = k + 1; j <= i; j++)
                a[i * wide + j] -= a[i * wide + k] * a[j * wide + k];
        gvm_block_sync();
    }
    if (thread == 0)
        for (i = n; i-- > 0;) {
            x[i] = a[i * wide + n];
            for (k = i + 1; k < n; k++)
                x[i] -= a[k * wide + i] * x[k];
            x[i] /= a[i * wide + i];
        }
    gvm_block_sync();
}
#plcuda_end

#plcuda_begin
#plcuda_num_threads 135168
#plcuda_shmem_blocksz 42256
const regression r = begin_block(arg1.value, arg2.value, arg3, arg4, workbuf);

add_all(&r);
#plcuda_end

#plcuda_post
#plcuda_num_threads 64
#plcuda_shmem_blocksz 1040
const regression r = begin_block(arg1.value, arg2.value, arg3, arg4, workbuf);
double *x = (double *)gvm_shared() + TERMS_MAX, *to = (double *)results;

solve(&r, plcuda, x);
for (uint32_t i = gvm_thread(); i < r.terms; i += gvm_block_threads())
    to[i] = r.coefficients[i] + x[i];
if (gvm_thread() == 0) {
    *retval = arg4;
    retval->value = to;
}
#plcuda_end
$$;

/* Steps until no coefficient changes by more than tolerance, as a part of 1 and its size. */
CREATE FUNCTION logregr_train(data reggstore, target text, features text[], iterations int = 50, tolerance float8 = 1e-8)
    RETURNS float8[] STABLE LANGUAGE plpgsql AS $$
DECLARE
    columns smallint[] = column_numbers(data::regclass, target || features);
    coefficients float8[] = array_fill(0::float8, ARRAY[cardinality(columns)]);
    result float8[];
BEGIN
    FOR i IN 1 .. iterations LOOP
        result := logregr_step(data, columns[1], columns[2:], coefficients);
        IF (SELECT bool_and(abs(a - b) <= tolerance * (1 + abs(b))) FROM unnest(coefficients, result) AS pair (a, b)) THEN
            RETURN result;
        END IF;
        coefficients := result;
    END LOOP;
    RAISE invalid_parameter_value USING MESSAGE = format('the coefficients still change after %s iterations', iterations),
        HINT = 'Where a plane separates the two classes there are no best coefficients.';
END $$;

CREATE FUNCTION logregr_predict(coefficients float8[], features float8[]) RETURNS float8 IMMUTABLE STRICT LANGUAGE SQL
    RETURN 1 / (1 + exp(-(coefficients[1] + (SELECT sum(c * f) FROM unnest(coefficients[2:], features) AS pair (c, f)))));
