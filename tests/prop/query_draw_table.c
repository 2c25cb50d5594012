/* Random tables of query programs: values of which some are such that programs raise errors, most are not. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/prop/query_draft.h"
#include "tests/prop/query_draw.h"

#define FIXED_MAX 16u

/* ---- values */

static int64_t draw_integer(draft *d, uint32_t bits)
{
    const int64_t greatest = (int64_t)(UINT64_MAX >> (65 - bits));
    int64_t v;

    switch (draw(d, d->is_tame ? 3 : 6)) {
    case 0:
    case 1: return (int64_t)draw(d, 7) - 3;
    case 2: return (int64_t)draw(d, 60) - 20;
    case 3: v = greatest - (int64_t)draw(d, 3); return draw(d, 2) == 0 ? v : -v;
    case 4: return -greatest - 1;
    default: return (int64_t)random_next(d->state) >> (64 - bits);
    }
}

static double draw_double(draft *d, bool is_float)
{
    static const double special[] = {0.0,
                                     -0.0,
                                     NAN,
                                     -NAN,
                                     INFINITY,
                                     -INFINITY,
                                     0.5,
                                     1.5,
                                     2.5,
                                     -2.5,
                                     32767.5,
                                     2147483647.5,
                                     9223372036854775808.0,
                                     -9223372036854775808.0,
                                     1e300,
                                     0x1p52};
    static const float special_floats[] = {FLT_MAX, -FLT_MAX, FLT_MIN,    1e-45f,
                                           1e20f,   -1e-20f,  16777217.0f};
    static const double extremes[] = {DBL_MAX, -DBL_MAX, DBL_MIN, 4.9e-324, 1e200, 1e-200, -1e-310};
    uint64_t bits;
    double v;

    switch (draw(d, d->is_tame ? 4 : 8)) {
    case 0:
    case 1: return (double)((int64_t)draw(d, 13) - 6) / 2;
    case 2: return (double)(float)((double)draw(d, 1000003) / 1024 - 300);
    case 3: v = special[draw(d, d->is_tame ? 10 : 16)]; return is_float ? (double)(float)v : v;
    case 4: return (double)special_floats[draw(d, 7)];
    case 5: return is_float ? (double)special_floats[draw(d, 7)] : extremes[draw(d, 7)];
    default:
        bits = random_next(d->state);
        memcpy(&v, &bits, sizeof v);
        return is_float ? (double)(float)v : v;
    }
}

uint64_t query_draw_value(draft *d, type t)
{
    uint64_t bits;
    double v;

    switch (t) {
    case BOOL: return draw(d, 2);
    case I16: return (uint64_t)draw_integer(d, 16);
    case I32: return (uint64_t)draw_integer(d, 32);
    case I64: return (uint64_t)draw_integer(d, 64);
    default:
        v = draw_double(d, t == F32);
        memcpy(&bits, &v, sizeof bits);
        return bits;
    }
}

/* ---- tables */

/* Of a value that is no text. */
static uint32_t form_bits(uint32_t form)
{
    static const uint32_t bits[GQUERY_FORMS] = {1, 8, 16, 32, 32, 64, 32, 64, 128, 128, 128};

    return bits[form];
}

/* Values have room for FIXED_MAX bytes a row. */
uint64_t query_text_bytes(uint32_t form, const host_column *column)
{
    return form == GQUERY_TEXT_FIXED ? column->bytes % (FIXED_MAX + 1) : column->bytes;
}

uint64_t query_values_bytes(uint32_t form, const host_column *column, uint64_t rows)
{
    if (form == GQUERY_TEXT_FIXED)
        return rows * query_text_bytes(form, column);
    return gquery_is_text(form) ? (rows + (form == GQUERY_TEXT_OFFSETS)) * 8
                                : (rows * form_bits(form) + 7) / 8;
}

type query_type_of_form(uint32_t form)
{
    static const type types[GQUERY_FORMS] = {BOOL, I16, I16, I32, I64,  I64,  F32,
                                             F64,  I64, I64, I64, TEXT, TEXT, TEXT};

    return types[form];
}

/* Most of them have few digits. */
static void put_decimal(draft *d, uint8_t *value)
{
    uint64_t halves[2] = {(uint64_t)draw_integer(d, 61), 0};

    halves[1] = (uint64_t)((int64_t)halves[0] >> 63);
    if (draw(d, 200) == 0) {
        halves[0] = 0;
        halves[1] = 1ull << 63;
    } else if (!d->is_tame && draw(d, 100) == 0) {
        halves[draw(d, 2)] = random_next(d->state) >> draw(d, 4);
    }
    memcpy(value, halves, sizeof halves);
}

/* Of 16, which are often the same. */
static void put_bytes(draft *d, uint8_t *value)
{
    for (int i = 0; i < 16; i++)
        value[i] = (uint8_t)(d->is_tame ? 0x7f + draw(d, 2) : random_next(d->state));
}

static void put_value(draft *d, uint32_t form, uint8_t *values, uint64_t row)
{
    const uint64_t bits = form_bits(form);
    uint64_t v = form >= GQUERY_F32 && form <= GQUERY_F64
                     ? query_draw_value(d, query_type_of_form(form))
                     : (uint64_t)draw_integer(d, bits < 8    ? 8
                                                 : bits < 64 ? (uint32_t)bits
                                                             : 64);
    float f;
    double wide;

    if (form == GQUERY_BIT) {
        values[row / 8] = (uint8_t)(values[row / 8] & ~(1u << row % 8)) |
                          (uint8_t)((random_next(d->state) & 1) << row % 8);
    } else if (form == GQUERY_F32) {
        memcpy(&wide, &v, sizeof wide);
        f = (float)wide;
        memcpy(values + row * sizeof f, &f, sizeof f);
    } else if (form == GQUERY_DECIMAL) {
        put_decimal(d, values + row * 16);
    } else if (form > GQUERY_DECIMAL) {
        put_bytes(d, values + row * 16);
    } else {
        memcpy(values + row * bits / 8, &v, bits / 8);
    }
}

/* ---- texts: of few characters, some of several bytes, so that one is often within another */

uint32_t query_draw_character(draft *d, uint8_t *to)
{
    static const char *const characters[] = {
        "a", "b", "A", "b", " ", "[", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    const char *c = characters[draw(d, draw(d, 3) == 0 ? 9 : 4)];

    memcpy(to, c, strlen(c));
    return (uint32_t)strlen(c);
}

uint32_t query_draw_text(draft *d, uint8_t *to, uint32_t most)
{
    const uint64_t lengths[] = {3, 3, 5, 9, 20, 40, TEXT_MAX};
    const uint64_t wanted = draw(d, 1 + lengths[draw(d, 7)]);
    uint32_t bytes = 0;

    while (bytes < wanted && bytes + 4 <= most)
        bytes += query_draw_character(d, to + bytes);
    return bytes;
}

static void put_fixed_texts(draft *d, host_column *h, uint64_t rows)
{
    h->bytes = 1 + draw(d, FIXED_MAX);
    for (uint64_t row = 0; row < rows; row++) {
        uint8_t *to = h->values + row * h->bytes;
        const uint32_t bytes = query_draw_text(d, to, (uint32_t)h->bytes);

        memset(to + bytes, draw(d, 2) == 0 ? ' ' : 'a', h->bytes - bytes);
    }
}

/* What is wrong with some rows: their texts are not within the column, or compressed. */
typedef enum damage {
    NO_DAMAGE,
    SHORT_HEADERS,
    LONG_HEADERS,
    OTHER_HEADERS,
    WRONG_PLACES,
    CUT_BODIES,
    DAMAGES,
} damage;

/* A header, and a text, which is compressed if only its length can be read. False: there is no room. */
static bool put_body(draft *d, host_column *h, damage what)
{
    const bool is_damaged = draw(d, 60) == 0;
    const uint64_t at = (h->bytes + 7) / 8 * 8;
    uint32_t bytes, header[2] = {0};

    if (at + 8 + TEXT_MAX > BODIES_MAX)
        return false;
    bytes = query_draw_text(d, h->bodies + at + 4, TEXT_MAX);
    header[0] = (bytes + 4) << 2;
    header[1] = bytes;
    if (is_damaged && what == SHORT_HEADERS)
        header[0] = (uint32_t)draw(d, 4) << 2;
    else if (is_damaged && what == LONG_HEADERS)
        header[0] = ((uint32_t)random_next(d->state) | 1u << 29) << 2;
    else if (is_damaged && what == OTHER_HEADERS)
        header[0] |= (uint32_t)draw(d, 4);
    memcpy(h->bodies + at, header, header[0] % 4 == 2 ? 8 : 4);
    h->bytes = at + 4 + bytes + (header[0] % 4 == 2 ? 8 : 0);
    return true;
}

static void put_texts(draft *d, uint32_t form, host_column *h, uint64_t rows)
{
    const damage what = (damage)draw(d, draw(d, 2) == 0 ? DAMAGES : 1);
    uint64_t *values = (uint64_t *)h->values;

    h->bytes = form == GQUERY_TEXT_BODIES ? 8 : 0;
    values[0] = 0;
    for (uint64_t row = 0; row < rows; row++) {
        if (form == GQUERY_TEXT_OFFSETS) {
            if (h->bytes + TEXT_MAX <= BODIES_MAX)
                h->bytes += query_draw_text(d, h->bodies + h->bytes, TEXT_MAX);
            values[row + 1] = h->bytes;
        } else {
            const uint64_t at = (h->bytes + 7) / 8 * 8;

            values[row] = draw(d, 10) == 0 || !put_body(d, h, what) ? 0 : at;
        }
    }
    if (what == CUT_BODIES && form == GQUERY_TEXT_BODIES && h->bytes > 8)
        h->bytes = (h->bytes + 7) / 8 * 8 - 8; /* the last one is not within */
    for (uint64_t row = 0; what == WRONG_PLACES && row < rows; row += 1 + draw(d, 200))
        values[row + (form == GQUERY_TEXT_OFFSETS)] = draw(d, 2) == 0 ? random_next(d->state) | 1
                                                                      : h->bytes + draw(d, 9) + 1;
}

void query_put_column(draft *d, uint32_t form, host_column *h, uint64_t rows)
{
    h->bytes = 0;
    if (form == GQUERY_TEXT_FIXED)
        put_fixed_texts(d, h, rows);
    else if (gquery_is_text(form))
        put_texts(d, form, h, rows);
    else
        for (uint64_t row = 0; row < rows; row++)
            put_value(d, form, h->values, row);
}

static void draw_bits(draft *d, uint8_t *bitmap, uint64_t set_of_16)
{
    memset(bitmap, 0, ROWS_MAX / 8 + 1);
    for (uint64_t i = 0; i < ROWS_MAX; i++)
        bitmap[i / 8] |= (uint8_t)((draw(d, 16) < set_of_16) << i % 8);
}

void query_put_ascending(draft *d, uint32_t form, host_column *h, uint64_t rows)
{
    const uint64_t bytes = form_bits(form) / 8, each = 1 + draw(d, 100);

    for (uint64_t row = 0; row < rows; row++) {
        const uint64_t v = row / each;

        memcpy(h->values + row * bytes, &v, bytes);
    }
}

/* Doubles of which few have a finite sum. */
static void put_large(draft *d, uint8_t *values, uint64_t rows)
{
    const uint64_t parts = 1 + draw(d, draw(d, 2) == 0 ? 2 : 40);

    for (uint64_t row = 0; row < rows; row++) {
        const double v = draw(d, 500) == 0 ? -DBL_MAX : DBL_MAX / (double)(parts + draw(d, 3));

        memcpy(values + row * sizeof v, &v, sizeof v);
    }
}

/* Enough columns of each form, so that those in a group's keys differ in how many values they have. */
void query_draw_table(draft *d, host_table *table)
{
    const uint64_t bound = (const uint64_t[]){1, 2, 40, 700, ROWS_MAX, ROWS_MAX}[draw(d, 6)];

    table->rows = draw(d, bound + 1);
    d->program->column_count = COLUMNS;
    for (uint32_t i = 0; i < COLUMNS; i++) {
        gquery_column *c = &d->program->columns[i];
        host_column *h = &table->columns[i];

        *c = (gquery_column){.form = i < GQUERY_FORMS ? i : (uint32_t)draw(d, GQUERY_FORMS)};
        if (c->form == GQUERY_F64 && draw(d, 2) == 0) {
            c->table = GQUERY_DISTANCE;
            c->number = (uint32_t)draw(d, GQUERY_DISTANCES_MAX);
        }
        if (draw(d, 4) == 0 && (c->form == GQUERY_I64 || c->form == GQUERY_I32))
            c->bias = draw(d, 2) == 0 ? -10957 : (int64_t)draw(d, 20) - 10;
        if (c->form == GQUERY_I32) /* so that it has integers */
            c->bias = d->is_tame ? c->bias : 0;
        if (c->form == GQUERY_DECIMAL)
            c->bias = draw(d, 4) == 0;
        h->has_values = draw(d, 30) != 0;
        h->has_nulls = draw(d, 2) == 0;
        query_put_column(d, c->form, h, table->rows);
        if (c->form >= GQUERY_U8 && c->form <= GQUERY_I64 && draw(d, 4) == 0)
            query_put_ascending(d, c->form, h, table->rows);
        if (c->form == GQUERY_F64 && draw(d, 2) == 0)
            put_large(d, h->values, table->rows);
        if (h->has_nulls)
            draw_bits(d, h->nulls, h->has_values ? draw(d, 17) : 0);
    }
    for (int i = 0; i < 2; i++) {
        table->dead_rows[i] = draw(d, 2) == 0 ? 0 : draw(d, table->rows + 1);
        draw_bits(d, table->dead[i], draw(d, 16));
    }
}
void query_draw_texts(uint64_t *state, uint32_t form, host_column *column, uint64_t rows)
{
    draft d = {.state = state};

    query_put_column(&d, form, column, rows);
    column->has_values = true;
    column->has_nulls = draw(&d, 2) == 0;
    draw_bits(&d, column->nulls, 13);
}
