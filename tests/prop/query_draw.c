/* Random query programs: expressions are drawn from their type down, with as many places of the stack as are left. */
#include "tests/prop/query_draw.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/lib/random.h"

#define CODE_SOON_FULL (GQUERY_CODE_MAX - 120)
#define COLUMNS 17u
#define LISTS_MAX 600u
#define FIXED_MAX 16u

typedef enum type { BOOL, I16, I32, I64, F32, F64, TYPES, TEXT = TYPES } type;

typedef struct draft {
    uint64_t *state;
    gquery_program *program;
    bool is_tame; /* small values */
    bool is_too_long;
    uint32_t nested;
} draft;

static uint64_t draw(draft *d, uint64_t bound)
{
    return random_next(d->state) % bound;
}

static void emit(draft *d, gquery_op op, uint32_t a, uint32_t b, uint64_t value)
{
    d->is_too_long = d->program->code_count == GQUERY_CODE_MAX;
    if (!d->is_too_long)
        d->program->code[d->program->code_count++] = (gquery_instruction){
            .op = (uint16_t)op, .a = a, .b = (uint16_t)b, .value = value};
}

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

static uint64_t draw_value(draft *d, type t)
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

static type type_of_form(uint32_t form)
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
                     ? draw_value(d, type_of_form(form))
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

#define TEXT_MAX 300u

static uint32_t put_character(draft *d, uint8_t *to)
{
    static const char *const characters[] = {
        "a", "b", "a", "b", " ", "c", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    const char *c = characters[draw(d, draw(d, 3) == 0 ? 9 : 4)];

    memcpy(to, c, strlen(c));
    return (uint32_t)strlen(c);
}

/* Up to so many bytes. */
static uint32_t draw_text(draft *d, uint8_t *to, uint32_t most)
{
    const uint64_t lengths[] = {3, 3, 5, 9, 20, 40, TEXT_MAX};
    const uint64_t wanted = draw(d, 1 + lengths[draw(d, 7)]);
    uint32_t bytes = 0;

    while (bytes < wanted && bytes + 4 <= most)
        bytes += put_character(d, to + bytes);
    return bytes;
}

static void put_fixed_texts(draft *d, host_column *h, uint64_t rows)
{
    h->bytes = 1 + draw(d, FIXED_MAX);
    for (uint64_t row = 0; row < rows; row++) {
        uint8_t *to = h->values + row * h->bytes;
        const uint32_t bytes = draw_text(d, to, (uint32_t)h->bytes);

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
    bytes = draw_text(d, h->bodies + at + 4, TEXT_MAX);
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
                h->bytes += draw_text(d, h->bodies + h->bytes, TEXT_MAX);
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

static void put_column(draft *d, uint32_t form, host_column *h, uint64_t rows)
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

/* Ascending numbers, so that groups come one after another. */
static void put_ascending(draft *d, uint32_t form, host_column *h, uint64_t rows)
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
static void draw_table(draft *d, host_table *table)
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
        put_column(d, c->form, h, table->rows);
        if (c->form >= GQUERY_U8 && c->form <= GQUERY_I64 && draw(d, 4) == 0)
            put_ascending(d, c->form, h, table->rows);
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

/* ---- expressions; room: places of the stack that they may use, at least 1 */

static void draw_expression(draft *d, type t, uint32_t room);

static uint32_t arithmetic_of(type t)
{
    return (uint32_t)(t - I16) + GQUERY_ARITHMETIC_I16;
}

static bool column_has(const draft *d, uint32_t column, type t)
{
    const type has = type_of_form(d->program->columns[column].form);

    return has == t || (t == I64 && (has == I16 || has == I32)) || (t == I32 && has == I16) ||
           (t == F64 && has == F32);
}

static void draw_text_length(draft *d);

static void draw_leaf(draft *d, type t)
{
    const uint64_t kind = draw(d, 12);
    uint32_t column = (uint32_t)draw(d, COLUMNS);

    if (kind == 0) { /* a value that is not known is mostly where few rows come */
        const bool is_known = draw(d, d->nested > 0 ? 8 : 64) != 0;

        emit(d, is_known ? GQUERY_NULL : GQUERY_UNKNOWN, 0, 0, 0);
        return;
    }
    for (int tries = 0; kind > 3 && tries < 30; tries++, column = (column + 1) % COLUMNS)
        if (column_has(d, column, t)) {
            emit(d, GQUERY_LOAD, column, 0, 0);
            return;
        }
    if (kind == 1 && t == I64)
        draw_text_length(d);
    else
        emit(d, GQUERY_CONSTANT, 0, 0, draw_value(d, t));
}

static void draw_case(draft *d, type t, uint32_t room)
{
    const bool replaces = draw(d, 2) == 0 && room > 1;

    d->nested++;
    if (replaces)
        draw_expression(d, t, room);
    draw_expression(d, BOOL, room - replaces);
    emit(d, GQUERY_IF, 0, 0, 0);
    draw_expression(d, t, room - replaces);
    if (replaces)
        emit(d, GQUERY_REPLACE, 0, 0, 0);
    if (!replaces || draw(d, 2) == 0) {
        emit(d, GQUERY_ELSE, 0, 0, 0);
        draw_expression(d, t, room - replaces);
        if (replaces)
            emit(d, GQUERY_REPLACE, 0, 0, 0);
    }
    emit(d, GQUERY_END, 0, 0, 0);
    d->nested--;
}

static void draw_coalesce(draft *d, type t, uint32_t room)
{
    d->nested++;
    draw_expression(d, t, room);
    emit(d, GQUERY_COPY, 0, 0, 0);
    emit(d, GQUERY_IS_NULL, 0, 0, 0);
    emit(d, GQUERY_IF, 0, 0, 0);
    draw_expression(d, t, room - 1);
    emit(d, GQUERY_REPLACE, 0, 0, 0);
    emit(d, GQUERY_END, 0, 0, 0);
    d->nested--;
}

/* A quotient where the divisor is not 0. */
static void draw_guarded(draft *d, type t, uint32_t room)
{
    const uint32_t op = t <= I64 && draw(d, 2) == 0 ? GQUERY_MODULO : GQUERY_DIVIDE;

    d->nested++;
    draw_expression(d, t, room);
    draw_expression(d, t, room - 1);
    emit(d, GQUERY_COPY, 0, 0, 0);
    emit(d, GQUERY_CONSTANT, 0, 0, 0);
    emit(d, GQUERY_NE, 0, t >= F32 ? GQUERY_ORDER_F64 : GQUERY_ORDER_I64, 0);
    emit(d, GQUERY_IF, 0, 0, 0);
    emit(d, GQUERY_COPY, 1, 0, 0);
    emit(d, GQUERY_COPY, 1, 0, 0);
    emit(d, (gquery_op)op, 0, arithmetic_of(t), 0);
    emit(d, GQUERY_REPLACE, 0, 0, 0);
    emit(d, GQUERY_END, 0, 0, 0);
    emit(d, GQUERY_REPLACE, 0, 0, 0);
    d->nested--;
}

static void draw_cast(draft *d, type t, uint32_t room)
{
    static const gquery_op from_double[] = {GQUERY_F64_TO_I16, GQUERY_F64_TO_I32, GQUERY_F64_TO_I64};
    const bool of_double = draw(d, 2) == 0;

    draw_expression(d, of_double ? F64 : I64, room);
    if (t <= I64 && (of_double || t == I64)) {
        emit(d, of_double ? from_double[t - I16] : GQUERY_NEGATE, 0, GQUERY_ARITHMETIC_I64, 0);
    } else if (t <= I64) {
        emit(d, t == I16 ? GQUERY_TO_I16 : GQUERY_TO_I32, 0, 0, 0);
    } else if (of_double) {
        emit(d, t == F32 ? GQUERY_F64_TO_F32 : GQUERY_ABS, 0, GQUERY_ARITHMETIC_F64, 0);
    } else {
        emit(d, t == F32 ? GQUERY_I64_TO_F32 : GQUERY_I64_TO_F64, 0, 0, 0);
    }
}

/* Of values that are near to what PostgreSQL has, or infinite. */
static void draw_field(draft *d, uint32_t room)
{
    const int64_t limits[] = {9223372000000000000, 2147483000, 86400000001};
    const uint32_t of = (uint32_t)draw(d, GQUERY_FIELD_OFS);
    const bool is_time = of == GQUERY_OF_TIME, is_date = of == GQUERY_OF_DATE;
    const uint64_t offset = is_time || draw(d, 2) == 0 ? 0 : (draw(d, 57) - 28) * 1800000000;
    uint32_t what;

    do
        what = is_time ? GQUERY_HOUR + (uint32_t)draw(d, 4)
                       : (uint32_t)draw(d, is_date ? GQUERY_TO_TIMESTAMP + 1 : GQUERY_FIELDS);
    while (is_date && what >= GQUERY_HOUR && what <= GQUERY_SECOND);
    draw_expression(d, I64, room);
    if (!is_time && draw(d, 2) == 0) {
        emit(d, GQUERY_CONSTANT, 0, 0, is_date ? draw(d, 20000) : draw(d, 20000) * 3600123456);
        emit(d, GQUERY_MULTIPLY, 0, GQUERY_ARITHMETIC_I64, 0);
    }
    emit(d, GQUERY_CONSTANT, 0, 0, (uint64_t)limits[of]);
    emit(d, GQUERY_MODULO, 0, GQUERY_ARITHMETIC_I64, 0);
    if (is_time)
        emit(d, GQUERY_ABS, 0, GQUERY_ARITHMETIC_I64, 0);
    if (!is_time && draw(d, 10) == 0) {
        emit(d, GQUERY_CONSTANT, 0, 0,
             is_date ? (draw(d, 2) == 0 ? (uint64_t)INT32_MIN : INT32_MAX) : (1ull << 63) - draw(d, 2));
        emit(d, GQUERY_REPLACE, 0, 0, 0);
    }
    emit(d, GQUERY_FIELD, 0, what | of << 8, offset);
}

static void draw_decimal(draft *d, uint32_t room)
{
    draw_expression(d, I64, room);
    emit(d, GQUERY_CONSTANT, 0, 0, 1);
    emit(d, GQUERY_MULTIPLY, 0, GQUERY_ARITHMETIC_DECIMAL, 0); /* raises an error if it is none */
}

static void draw_decimal_arithmetic(draft *d, uint32_t room)
{
    draw_decimal(d, room);
    draw_decimal(d, room - 1);
    emit(d, (gquery_op)(GQUERY_ADD + draw(d, 3)), 0, GQUERY_ARITHMETIC_DECIMAL, 0);
}

static void draw_number(draft *d, type t, uint32_t room)
{
    static const gquery_op binary[] = {GQUERY_ADD,   GQUERY_SUBTRACT, GQUERY_MULTIPLY,
                                       GQUERY_ADD,   GQUERY_MULTIPLY, GQUERY_DIVIDE,
                                       GQUERY_MODULO};
    const uint64_t kind = draw(d, 10);

    if (kind < 4 && room > 1) {
        const gquery_op op = binary[draw(d, t <= I64 ? 7 : 6)];

        draw_expression(d, t, room);
        draw_expression(d, t, room - 1);
        emit(d, op, 0, arithmetic_of(t), 0);
    } else if (kind == 4) {
        draw_expression(d, t, room);
        emit(d, draw(d, 2) == 0 ? GQUERY_NEGATE : GQUERY_ABS, 0, arithmetic_of(t), 0);
    } else if (kind == 5 && room > 3 && d->nested < GQUERY_NESTED_MAX) {
        draw_guarded(d, t, room);
    } else if (kind < 8) {
        draw_cast(d, t, room);
    } else if (kind == 8 && t == I64 && room > 2 && draw(d, 3) != 0) {
        if (draw(d, 2) == 0)
            draw_decimal_arithmetic(d, room);
        else
            draw_field(d, room);
    } else if (kind == 8 && t <= I64) {
        draw_expression(d, t, room);
        emit(d, GQUERY_INVERT, 0, 0, 0);
    } else if (t == I64) {
        draw_expression(d, F64, room);
        emit(d, GQUERY_ORDER_KEY, 0, (uint32_t)draw(d, 2), 0);
    } else {
        draw_leaf(d, t);
    }
}

/* A pair of these values is in some of the lists. */
static void draw_pairs(draft *d, uint32_t room)
{
    gquery_program *p = d->program;
    const uint32_t first = p->value_count, count = (uint32_t)draw(d, 9);

    for (uint32_t i = 0; i < count; i++) {
        const int64_t high = (int64_t)draw(d, 5) - 2, low = (int64_t)draw(d, 5) - 2;
        uint32_t at = p->value_count;

        for (p->value_count += 2;
             at > first &&
             (p->values[at - 2] > high || (p->values[at - 2] == high && p->values[at - 1] > low));
             at -= 2)
            memcpy(&p->values[at], &p->values[at - 2], 2 * sizeof p->values[0]);
        p->values[at] = high;
        p->values[at + 1] = low;
    }
    draw_expression(d, I64, room);
    draw_expression(d, I64, room - 1);
    emit(d, GQUERY_IN_PAIRS, first, count, 0);
}

static void draw_list(draft *d, type t)
{
    gquery_program *p = d->program;
    const uint64_t bound = draw(d, 8) == 0 ? 200 : 9;
    const uint32_t first = p->value_count, count = (uint32_t)draw(d, bound);

    for (uint32_t i = 0; i < count; i++) {
        const int64_t v = (int64_t)draw_value(d, t);
        uint32_t at = p->value_count++;

        for (; at > first && p->values[at - 1] > v; at--)
            p->values[at] = p->values[at - 1];
        p->values[at] = v;
    }
    emit(d, GQUERY_IN, first, count, 0);
}

/* ---- texts that are compared with */

static void add_text(gquery_program *p, uint32_t at, const uint8_t *text, uint32_t bytes)
{
    const uint32_t words = (bytes + 7) / 8;

    memset(&p->values[p->value_count], 0, words * sizeof p->values[0]);
    memcpy(&p->values[p->value_count], text, bytes);
    p->values[at] = (int64_t)((uint64_t)bytes << 32 | p->value_count);
    p->value_count += words;
}

static int compare_texts(const gquery_program *p, int64_t left, int64_t right)
{
    const uint32_t bytes = (uint32_t)((uint64_t)left >> 32);

    if (left >> 32 != right >> 32)
        return left >> 32 < right >> 32 ? -1 : 1;
    for (uint32_t i = 0; i < (bytes + 7) / 8; i++) {
        const uint64_t l = (uint64_t)p->values[(uint32_t)left + i],
                       r = (uint64_t)p->values[(uint32_t)right + i];

        if (l != r)
            return l < r ? -1 : 1;
    }
    return 0;
}

static void sort_texts(gquery_program *p, uint32_t first, uint32_t count)
{
    for (uint32_t i = first + 1; i < first + count; i++)
        for (uint32_t at = i; at > first && compare_texts(p, p->values[at - 1], p->values[at]) > 0;
             at--) {
            const int64_t one = p->values[at];

            p->values[at] = p->values[at - 1];
            p->values[at - 1] = one;
        }
}

/* At least a byte; of 0 in the place of some characters. */
static uint32_t draw_piece(draft *d, uint8_t *to)
{
    const uint64_t characters = 1 + draw(d, draw(d, 8) == 0 ? 30 : 1 + draw(d, 3));
    uint32_t bytes = 0;

    for (uint64_t i = 0; i < characters; i++)
        if (draw(d, 6) == 0)
            to[bytes++] = 0;
        else
            bytes += put_character(d, to + bytes);
    return bytes;
}

static uint32_t draw_text_column(draft *d)
{
    uint32_t column;

    do
        column = (uint32_t)draw(d, COLUMNS);
    while (!gquery_is_text(d->program->columns[column].form));
    return column;
}

/* A boolean, of GQUERY_TEXT_IN and GQUERY_TEXT_LIKE. */
static void draw_text_test(draft *d)
{
    gquery_program *p = d->program;
    const bool is_like = draw(d, 2) == 0;
    const uint32_t first = p->value_count, count = (uint32_t)draw(d, draw(d, 8) == 0 ? 12 : 4);
    uint32_t b = (is_like ? GQUERY_TEXT_LIKE : GQUERY_TEXT_IN) |
                 (draw(d, 5) == 0 ? GQUERY_TEXT_TRIMMED : 0) |
                 (draw(d, 3) != 0 ? GQUERY_TEXT_UTF8 : 0);

    if (is_like && count > 0)
        b |= (uint32_t)draw(d, 4) * GQUERY_TEXT_FROM_START;
    p->value_count += count;
    for (uint32_t i = 0; i < count; i++) {
        uint8_t text[TEXT_MAX];
        const uint32_t bytes = is_like ? draw_piece(d, text)
                                       : draw_text(d, text, draw(d, 9) == 0 ? TEXT_MAX : 16);

        add_text(p, first + i, text, bytes);
    }
    if (!is_like)
        sort_texts(p, first, count);
    emit(d, GQUERY_TEXT, draw_text_column(d), b, first | (uint64_t)count << 32);
}

static void draw_text_length(draft *d)
{
    const uint32_t kind = GQUERY_TEXT_LENGTH + (uint32_t)draw(d, 2);

    emit(d, GQUERY_TEXT, draw_text_column(d),
         kind | (uint32_t)draw(d, 2) * GQUERY_TEXT_TRIMMED | (uint32_t)draw(d, 2) * GQUERY_TEXT_UTF8,
         0);
}

static void draw_comparison(draft *d, uint32_t room)
{
    const gquery_op op = (gquery_op)(GQUERY_EQ + draw(d, 7));
    const type t = (type)draw(d, TYPES);

    if (room > 1) {
        draw_expression(d, t, room);
        draw_expression(d, t, room - 1);
        emit(d, op, 0, t >= F32 ? GQUERY_ORDER_F64 : GQUERY_ORDER_I64, 0);
    } else {
        draw_leaf(d, BOOL);
    }
}

static void draw_boolean(draft *d, uint32_t room)
{
    const type t = (type)(I16 + draw(d, 3));

    switch (draw(d, 8)) {
    case 0:
        if (d->program->value_count < LISTS_MAX) {
            draw_expression(d, t, room);
            draw_list(d, t);
            return;
        }
        break;
    case 5:
        if (room > 1 && d->program->value_count < LISTS_MAX) {
            draw_pairs(d, room);
            return;
        }
        break;
    case 6:
        if (d->program->value_count < LISTS_MAX) {
            draw_text_test(d);
            return;
        }
        break;
    case 1:
        draw_expression(d, BOOL, room);
        emit(d, (gquery_op)(GQUERY_NOT + draw(d, 4)), 0, 0, 0);
        return;
    case 2:
        draw_expression(d, (type)draw(d, TYPES), room);
        emit(d, GQUERY_IS_NULL, 0, 0, 0);
        return;
    case 3: emit(d, GQUERY_LOAD_NULL, (uint32_t)draw(d, COLUMNS), 0, 0); return;
    case 4:
        if (room > 1) {
            draw_expression(d, BOOL, room);
            draw_expression(d, BOOL, room - 1);
            emit(d, draw(d, 2) == 0 ? GQUERY_AND : GQUERY_OR, 0, 0, 0);
            return;
        }
        break;
    default: break;
    }
    draw_comparison(d, room);
}

static void draw_expression(draft *d, type t, uint32_t room)
{
    const uint64_t kind = draw(d, 16);
    const bool may_nest = room > 1 && d->nested < GQUERY_NESTED_MAX;

    if (kind < 6 || d->program->code_count > CODE_SOON_FULL)
        draw_leaf(d, t);
    else if (kind == 6 && may_nest)
        draw_case(d, t, room);
    else if (kind == 7 && may_nest)
        draw_coalesce(d, t, room);
    else if (t == BOOL)
        draw_boolean(d, room);
    else
        draw_number(d, t, room);
}

/* ---- programs */

static void draw_keys(draft *d)
{
    uint32_t keys = 1 + (uint32_t)draw(d, 3), count = 0;

    for (; keys > 0; keys--) {
        const uint32_t column = (uint32_t)draw(d, COLUMNS), form = d->program->columns[column].form;

        if (draw(d, 2) == 0 && !gquery_is_text(form)) {
            emit(d, GQUERY_LOAD, column, 0, 0);
            if (form == GQUERY_F32 ||
                form == GQUERY_F64) /* NaNs have different bits on different processors */
                emit(d, GQUERY_ORDER_KEY, 0, 0, 0);
            count++;
        } else {
            const type t = (type)draw(d, TYPES);

            draw_expression(d, t, GQUERY_DEPTH_MAX - count);
            if (t >= F32)
                emit(d, GQUERY_ORDER_KEY, 0, 0, 0);
            count++;
        }
    }
    emit(d, GQUERY_GROUP, count, 0, 0);
}

static bool takes_double(uint32_t aggregate)
{
    return aggregate == GQUERY_SUM_F64 || aggregate == GQUERY_MOMENTS_F64;
}

static void draw_aggregate(draft *d)
{
    const gquery_aggregate what = draw(d, 4) == 0 ? GQUERY_SUM_F64
                                                  : (gquery_aggregate)draw(d, GQUERY_AGGREGATES);
    const bool is_filtered = draw(d, 4) == 0;

    if (is_filtered) {
        draw_expression(d, BOOL, GQUERY_DEPTH_MAX);
        emit(d, GQUERY_IF, 0, 0, 0);
        d->nested++;
    }
    if (takes_double(what) && draw(d, 2) == 0)
        emit(d, GQUERY_LOAD, GQUERY_F64, 0, 0);
    else if (what != GQUERY_COUNT_ROWS)
        draw_expression(d, takes_double(what) ? (type)(F32 + draw(d, 2)) : (type)(I16 + draw(d, 3)),
                        GQUERY_DEPTH_MAX);
    emit(d, GQUERY_AGGREGATE, d->program->state_words, what, 0);
    d->program->state_words += gquery_aggregate_words(what);
    if (is_filtered) {
        emit(d, GQUERY_END, 0, 0, 0);
        d->nested--;
    }
}

/* Not NULL. */
static void draw_list_key(draft *d, uint32_t room)
{
    const type t = (type)draw(d, TYPES);

    draw_expression(d, t, room);
    if (t >= F32)
        emit(d, GQUERY_ORDER_KEY, 0, (uint32_t)draw(d, 2), 0);
    if (draw(d, 4) == 0)
        emit(d, GQUERY_INVERT, 0, (uint32_t)draw(d, 2), 0);
    emit(d, GQUERY_COPY, 0, 0, 0);
    emit(d, GQUERY_IS_NULL, 0, 0, 0);
    emit(d, GQUERY_IF, 0, 0, 0);
    emit(d, GQUERY_CONSTANT, 0, 0, draw_value(d, I64));
    emit(d, GQUERY_REPLACE, 0, 0, 0);
    emit(d, GQUERY_END, 0, 0, 0);
}

/* Sometimes there is a value below the keys. */
static void draw_list_keys(draft *d)
{
    const uint32_t keys = 1 + (uint32_t)(draw(d, 3) == 0 ? draw(d, GQUERY_KEYS_MAX) : draw(d, 2));
    const uint32_t below = draw(d, 4) == 0;

    if (below != 0)
        draw_expression(d, I64, GQUERY_DEPTH_MAX);
    for (uint32_t k = 0; k < keys; k++)
        draw_list_key(d, GQUERY_DEPTH_MAX - below - k);
    emit(d, GQUERY_EMIT, keys, 0, 0);
}

static void draw_groups(draft *d)
{
    if (draw(d, 2) == 0)
        draw_keys(d);
    for (uint64_t count = draw(d, 6); count > 0 && d->program->code_count < CODE_SOON_FULL; count--)
        draw_aggregate(d);
}

/* Numbers whose sums need more than 64 bits, and whose parts of 32 bits overflow. */
static void put_wide(draft *d, host_column *h, uint64_t rows)
{
    for (uint64_t row = 0; row < rows; row++) {
        const uint64_t v = random_next(d->state);

        memcpy(h->values + row * sizeof v, &v, sizeof v);
    }
}

/* Keys and arguments are columns, so that nothing raises an error and all rows come into groups, which are few or many. */
static void draw_plain_groups(draft *d, host_table *table)
{
    const bool is_sorted = draw(d, 2) == 0;
    const uint32_t keys = is_sorted ? 1 : 1 + (uint32_t)draw(d, 3);

    if (is_sorted)
        put_ascending(d, GQUERY_I32, &table->columns[GQUERY_I32], table->rows);
    if (is_sorted && draw(d, 2) == 0)
        put_wide(d, &table->columns[GQUERY_I64], table->rows);
    for (uint32_t i = 0; i < keys; i++)
        emit(d, GQUERY_LOAD, is_sorted ? GQUERY_I32 : (uint32_t)draw(d, GQUERY_I64 + 1), 0, 0);
    emit(d, GQUERY_GROUP, keys, 0, 0);
    for (uint64_t count = 1 + draw(d, 5); count > 0; count--) {
        const uint32_t what = (uint32_t)draw(d, GQUERY_AGGREGATES);

        if (what != GQUERY_COUNT_ROWS)
            emit(d, GQUERY_LOAD,
                 takes_double(what) ? GQUERY_F32 : (uint32_t)draw(d, GQUERY_I64 + 1), 0, 0);
        emit(d, GQUERY_AGGREGATE, d->program->state_words, what, 0);
        d->program->state_words += gquery_aggregate_words(what);
    }
}

/* Rows by their texts alone. */
static void draw_plain_texts(draft *d)
{
    for (uint64_t count = draw(d, 3); count > 0; count--) {
        draw_text_length(d);
        emit(d, GQUERY_CONSTANT, 0, 0, draw(d, 12));
        emit(d, (gquery_op)(GQUERY_EQ + draw(d, 6)), 0, GQUERY_ORDER_I64, 0);
        draw_text_test(d);
        emit(d, draw(d, 4) == 0 ? GQUERY_AND : GQUERY_OR, 0, 0, 0);
        emit(d, GQUERY_FILTER, 0, 0, 0);
    }
    draw_text_test(d);
    emit(d, GQUERY_FILTER, 0, 0, 0);
    emit(d, GQUERY_MARK, 0, 0, 0);
}

static void draw_program(draft *d, host_table *table)
{
    uint64_t count;

    memset(d->program, 0, sizeof *d->program);
    d->is_too_long = false;
    d->is_tame = draw(d, 3) != 0;
    draw_table(d, table);
    if (draw(d, 4) == 0) {
        draw_plain_groups(d, table);
        return;
    }
    if (draw(d, 4) == 0) {
        draw_plain_texts(d);
        return;
    }
    for (count = draw(d, 3); count > 0; count--) {
        draw_expression(d, BOOL, GQUERY_DEPTH_MAX);
        emit(d, GQUERY_FILTER, 0, 0, 0);
    }
    switch (draw(d, 4)) {
    case 0: emit(d, GQUERY_MARK, 0, 0, 0); break;
    case 1: draw_list_keys(d); break;
    default: draw_groups(d);
    }
}

void query_draw(uint64_t *state, gquery_program *program, host_table *table)
{
    draft d = {.state = state, .program = program};

    do
        draw_program(&d, table);
    while (d.is_too_long);
}

void query_damage(uint64_t *state, gquery_program *program)
{
    draft d = {.state = state, .program = program};

    for (uint64_t times = 1 + draw(&d, 4); times > 0; times--) {
        gquery_instruction *i = &program->code[draw(&d, program->code_count + 1ull) % GQUERY_CODE_MAX];

        switch (draw(&d, 12)) {
        case 0: program->code_count += (uint32_t)draw(&d, 9) - 4; break;
        case 1: program->state_words += (uint32_t)draw(&d, 5) - 2; break;
        case 2: program->column_count = (uint32_t)draw(&d, COLUMNS + 3); break;
        case 3: program->value_count -= (uint32_t)draw(&d, 3); break;
        case 4:
            if (draw(&d, 4) == 0)
                program->columns[draw(&d, COLUMNS)].number += 1;
            program->columns[draw(&d, COLUMNS)].form = (uint32_t)draw(&d, GQUERY_FORMS + 1);
            break;
        case 5:
            i->a = (uint32_t)draw(&d, 5) == 0 ? (uint32_t)random_next(state) : (uint32_t)draw(&d, 70);
            break;
        case 6:
        case 7:
            i->b = draw(&d, 5) == 0 ? (uint16_t)random_next(state) : (uint16_t)draw(&d, 9);
            break;
        case 8: i->value = random_next(state); break;
        default: i->op = (uint16_t)draw(&d, GQUERY_OPS + 2);
        }
        if (program->code_count > GQUERY_CODE_MAX)
            program->code_count = GQUERY_CODE_MAX + 1;
    }
}

void query_draw_texts(uint64_t *state, uint32_t form, host_column *column, uint64_t rows)
{
    draft d = {.state = state};

    put_column(&d, form, column, rows);
    column->has_values = true;
    column->has_nulls = draw(&d, 2) == 0;
    draw_bits(&d, column->nulls, 13);
}
