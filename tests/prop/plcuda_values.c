/* Accessors of columns of postgres/plcuda/device.h, on damaged columns.
 *
 *     plcuda_values [CASES [SEED]]
 *
 * Goal: whatever bytes a column has, an accessor and what is then read of its value stay inside the column. Method: columns of both
 * formats whose memory ends at a page that cannot be touched; their values are made as PostgreSQL makes them, and then most of them are
 * damaged: offsets, lengths, dimensions, bits. All that a value points to is read. Case i of a seed is case 0 of the seed + i.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "postgres/plcuda/device.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"

#define BYTES_MAX 4096
#define KINDS 6

static uint64_t state, seed, values, refused;
static char *bodies_end, *nulls_end; /* before pages that cannot be touched */
static volatile uint64_t sum;        /* of all that is read */

static uint64_t draw(uint64_t bound)
{
    return random_next(&state) % bound;
}

static void report_fault(int number)
{
    char text[64];
    const int n = snprintf(text, sizeof text, "not ok 1 - a fault\n# seed %llu\n",
                           (unsigned long long)seed);

    (void)number;
    if (write(1, text, (size_t)n) != n)
        _exit(2);
    _exit(1);
}

static char *map_before_guard(void)
{
    char *all = mmap(NULL, 2 * BYTES_MAX, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (all == MAP_FAILED || mprotect(all, BYTES_MAX, PROT_READ | PROT_WRITE) != 0)
        abort();
    return all + BYTES_MAX;
}

static void put_32(char *to, uint64_t value)
{
    const uint32_t word = (uint32_t)value;

    memcpy(to, &word, sizeof word);
}

/* ---- values as PostgreSQL has them, without the header of a varlena */

static uint64_t make_array(char *to, uint64_t most, uint32_t element, uint32_t width)
{
    const uint64_t ndim = draw(4), nulls = draw(2);
    uint64_t at = 12 + 8 * ndim, count = ndim > 0;

    if (most < 64)
        return most;
    put_32(to, ndim);
    put_32(to + 8, element);
    for (uint64_t i = 0; i < ndim; i++) {
        const uint64_t length = 1 + draw(6);

        put_32(to + 12 + 4 * i, length);
        put_32(to + 12 + 4 * (ndim + i), 1);
        count *= length;
    }
    if (nulls) /* bits are random */
        at += (count + 7) / 8;
    at = (at + 4 + 7) / 8 * 8 - 4;
    put_32(to + 4, nulls ? at + 4 : 0);
    at += count * width;
    return at < most ? at : most;
}

static uint64_t make_value(uint64_t kind, char *to, uint64_t most)
{
    const uint64_t length = most < 8 ? most : 8 + draw(most - 7);

    for (uint64_t i = 0; i < most; i++)
        to[i] = (char)draw(256);
    if (most < 8)
        return length;
    if (kind == 0)
        return make_array(to, most, PLCUDA_INT4, 4);
    if (kind == 1)
        return make_array(to, most, PLCUDA_BOOL, 1);
    if (kind == 2)
        put_32(to, (length - 4) * 8 - draw(8));
    if (kind == 3 || kind == 4)
        put_32(to, (length - 4) / (kind == 3 ? 4 : 2));
    return length;
}

/* ---- columns of one row */

static void damage(void *where, uint64_t bytes)
{
    char *at = where;
    const uint64_t bit = draw(bytes * 8);

    if (draw(3) == 0)
        at[bit / 8] = (char)(at[bit / 8] ^ (char)(1u << bit % 8));
    if (draw(6) == 0)
        at[draw(bytes)] = (char)draw(256);
}

static void make_column(uint64_t kind, bool arrow, plcuda_column *c, uint64_t offsets[2])
{
    static const uint32_t types[KINDS] = {PLCUDA_INT4_ARRAY, PLCUDA_BOOL_ARRAY, PLCUDA_VARBIT,
                                          PLCUDA_VECTOR,     PLCUDA_HALFVEC,    PLCUDA_NUMERIC};
    const bool list = arrow && kind == 0;
    const uint64_t bytes = 8 * (2 + draw(draw(4) == 0 ? BYTES_MAX / 8 - 2 : 30));
    char *bodies = bodies_end - bytes;
    uint64_t at = arrow ? 8 * draw(bytes / 8) : 8 + 8 * draw(bytes / 8 - 1), length;

    memset(c, 0, sizeof *c);
    c->type = types[kind];
    c->stored = 1;
    c->values = (const char *)offsets;
    c->bodies = bodies;
    c->bodies_bytes = bytes;
    c->varying = 1;
    offsets[0] = offsets[1] = at;
    if (list) {
        offsets[0] = at / 4;
        offsets[1] = offsets[0] + draw(bytes / 4 - offsets[0] + 1);
        c->element_nulls = draw(2) == 0 ? NULL : nulls_end - (bytes / 4 + 7) / 8;
    } else if (arrow) {
        offsets[1] = at + make_value(kind, bodies + at, bytes - at);
    } else {
        length = 4 + make_value(kind, bodies + at + 4, bytes - at - 4);
        put_32(bodies + at, length * 4);
        damage(bodies + at, 4);
    }
    damage(bodies, bytes);
    damage(bodies + at, bytes - at < 32 ? bytes - at : 32);
    damage(offsets, 16);
}

/* ---- reading */

static void read_bytes(const void *from, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        sum += ((const unsigned char *)from)[i];
}

/* Elements of arrays that are too long to be true are read at both ends. */
static uint32_t next_element(uint32_t i, uint32_t length)
{
    return i == 1000 && length > 3000 ? length - 1000 : i + 1;
}

static bool read_value(uint64_t kind, const plcuda_table *t)
{
    const pg_int4_array_t a = kind == 0 ? plcuda_get_int4_array(t, 1, 0)
                                        : (pg_int4_array_t){.isnull = 1};
    const pg_bool_array_t b = kind == 1 ? plcuda_get_bool_array(t, 1, 0)
                                        : (pg_bool_array_t){.isnull = 1};
    const pg_varbit_t v = kind == 2 ? plcuda_get_varbit(t, 1, 0) : (pg_varbit_t){.isnull = 1};
    const pg_vector_t f = kind == 3 ? plcuda_get_vector(t, 1, 0) : (pg_vector_t){.isnull = 1};
    const pg_halfvec_t h = kind == 4 ? plcuda_get_halfvec(t, 1, 0) : (pg_halfvec_t){.isnull = 1};
    const pg_numeric_t n = kind == 5 ? plcuda_get_numeric(t, 1, 0) : (pg_numeric_t){.isnull = 1};
    int64_t integer;

    for (uint32_t i = 0; i < a.length + 2; i = next_element(i, a.length))
        sum += (uint64_t)plcuda_int4_element(&a, i).value;
    for (uint32_t i = 0; i < b.length + 2; i = next_element(i, b.length))
        sum += (uint64_t)plcuda_bool_element(&b, i).value;
    read_bytes(v.value, v.isnull ? 0 : ((uint64_t)v.length + 7) / 8);
    read_bytes(f.value, f.isnull ? 0 : 4 * (uint64_t)f.length);
    read_bytes(h.value, h.isnull ? 0 : 2 * (uint64_t)h.length);
    if (!n.isnull) {
        read_bytes(n.value, n.kind == PLCUDA_NUMERIC_LONG ? n.length : 0);
        sum += plcuda_numeric_to_float8(&n) > 0;
        sum += (uint64_t)plcuda_numeric_to_int8(&n, &integer);
    }
    return !a.isnull || !b.isnull || !v.isnull || !f.isnull || !h.isnull || !n.isnull;
}

static void run_case(void)
{
    const uint64_t kind = draw(KINDS);
    uint64_t offsets[2];
    plcuda_state errors = {0};
    plcuda_column column;
    plcuda_table table = {.rows = 1, .columns = &column, .column_count = 1, .state = &errors};

    table.arrow = (uint32_t)draw(2);
    make_column(kind, table.arrow, &column, offsets);
    if (read_value(kind, &table))
        values++;
    if (errors.raised)
        refused++;
}

int main(int argc, char **argv)
{
    const uint64_t cases = argc > 1 ? strtoull(argv[1], NULL, 0) : 300000;
    const uint64_t first = random_seed(argc > 2 ? argv[2] : NULL);

    if (argc > 3 || cases == 0)
        return 2;
    signal(SIGSEGV, report_fault);
    signal(SIGBUS, report_fault);
    bodies_end = map_before_guard();
    nulls_end = map_before_guard();
    tap_plan(2);
    printf("# seed %llu\n", (unsigned long long)first);
    for (uint64_t i = 0; i < cases; i++) {
        seed = first + i;
        state = random_mix(seed);
        run_case();
    }
    printf("# %llu values, %llu refused\n", (unsigned long long)values, (unsigned long long)refused);
    tap_result(true, "damaged_columns_are_read_within_their_bytes");
    tap_result(cases < 1000 || (values > cases / 4 && refused > cases / 10),
               "of_the_cases_many_are_values_and_many_are_refused");
    return tap_finish();
}
