/* Random query programs: expressions are drawn from their type down, with as many places of the stack as are left. */
#include "tests/prop/query_draw.h"

#include <string.h>

#include "tests/prop/query_draft.h"

#define CODE_SOON_FULL (GQUERY_CODE_MAX - 120)
#define LISTS_MAX 600u

/* ---- expressions; room: places of the stack that they may use, at least 1 */

static void draw_expression(draft *d, type t, uint32_t room);

static uint32_t arithmetic_of(type t)
{
    return (uint32_t)(t - I16) + GQUERY_ARITHMETIC_I16;
}

static bool column_has(const draft *d, uint32_t column, type t)
{
    const type has = query_type_of_form(d->program->columns[column].form);

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
        emit(d, GQUERY_CONSTANT, 0, 0, query_draw_value(d, t));
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

/* Of values that are near to what PostgreSQL has, or infinite. A local time is 14 hours at most from a timestamp. */
static void draw_field(draft *d, uint32_t room)
{
    const int64_t limits[] = {9223371900000000000, 2147483000, 86400000001};
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

/* Most of what its arguments are is near to what PostgreSQL has. */
static void draw_moved(draft *d, uint32_t function, uint32_t room)
{
    const bool is_date = function <= GQUERY_DAYS_BETWEEN,
               is_between = function == GQUERY_DAYS_BETWEEN || function == GQUERY_TIME_BETWEEN;
    const uint64_t limit = is_date ? 2147483000 : UINT64_C(9223372000000000000);

    draw_expression(d, I64, room);
    emit(d, GQUERY_CONSTANT, 0, 0, 1 + draw(d, limit));
    emit(d, draw(d, 3) == 0 ? GQUERY_MULTIPLY : GQUERY_MODULO, 0, GQUERY_ARITHMETIC_I64, 0);
    if (draw(d, 10) == 0) {
        emit(d, GQUERY_CONSTANT, 0, 0,
             is_date ? (draw(d, 2) == 0 ? (uint64_t)INT32_MIN : INT32_MAX) : (1ull << 63) - draw(d, 2));
        emit(d, GQUERY_REPLACE, 0, 0, 0);
    }
    draw_expression(d, I64, room - 1);
    if (!is_between && draw(d, 3) != 0) {
        emit(d, GQUERY_CONSTANT, 0, 0, 1 + draw(d, 40000));
        emit(d, GQUERY_MODULO, 0, GQUERY_ARITHMETIC_I64, 0);
    }
    emit(d, GQUERY_FUNCTION, 0, function,
         function == GQUERY_ADD_MONTHS ? (draw(d, 57) - 28) * 1800000000 : 0);
}

/* Of a few words, that of a value which is mostly one of their lower halves. */
static void draw_find(draft *d, uint32_t room)
{
    gquery_program *p = d->program;
    const uint32_t first = p->value_count, count = first < LISTS_MAX ? (uint32_t)draw(d, 12) : 0;

    for (uint32_t i = 0; i < count; i++)
        p->values[p->value_count++] = (int64_t)(draw(d, UINT64_MAX) << 32 | i * 0x10000001u);
    draw_expression(d, I64, room);
    if (count > 0) {
        emit(d, GQUERY_CONSTANT, 0, 0, draw(d, 8) == 0 ? count + 1 : count);
        emit(d, GQUERY_MODULO, 0, GQUERY_ARITHMETIC_I64, 0);
        emit(d, GQUERY_ABS, 0, GQUERY_ARITHMETIC_I64, 0);
        emit(d, GQUERY_CONSTANT, 0, 0, 0x10000001);
        emit(d, GQUERY_MULTIPLY, 0, GQUERY_ARITHMETIC_I64, 0);
    }
    emit(d, GQUERY_FUNCTION, 0, GQUERY_FIND_I64, first | (uint64_t)count << 32);
}

static void draw_function_of_integers(draft *d, uint32_t room)
{
    static const uint64_t bits[] = {16, 32, 64},
                          ratios[] = {1, 10, 1000, UINT64_C(1000000000000000000)};
    const uint32_t function = GQUERY_ROUND_I64 +
                              (uint32_t)draw(d, GQUERY_GREATEST_I64 + 1 - GQUERY_ROUND_I64);

    if (function >= GQUERY_ADD_DAYS && function <= GQUERY_ADD_MONTHS) {
        draw_moved(d, function, room);
        return;
    }
    if (function == GQUERY_FIND_I64) {
        draw_find(d, room);
        return;
    }
    draw_expression(d, I64, room);
    if (function >= GQUERY_BITS_AND)
        draw_expression(d, I64, room - 1);
    if (function == GQUERY_SHIFT_LEFT || function == GQUERY_SHIFT_RIGHT)
        emit(d, GQUERY_FUNCTION, 0, function, bits[draw(d, 3)]);
    else
        emit(d, GQUERY_FUNCTION, 0, function, function > GQUERY_RATIO_F64 ? 0 : ratios[draw(d, 4)]);
    if (function == GQUERY_RATIO_F64)
        emit(d, GQUERY_ORDER_KEY, 0, 1, 0);
}

static void draw_function(draft *d, type t, uint32_t room)
{
    const bool is_pair = draw(d, 3) == 0;

    if (t == I64) {
        draw_function_of_integers(d, room);
        return;
    }
    draw_expression(d, t, room);
    if (is_pair)
        draw_expression(d, t, room - 1);
    emit(d, GQUERY_FUNCTION, 0,
         is_pair ? GQUERY_LEAST_F64 + (uint32_t)draw(d, 2)
                 : (uint32_t)draw(d, GQUERY_SQRT_F64 + (t == F64)),
         0);
}

static void draw_number(draft *d, type t, uint32_t room)
{
    static const gquery_op binary[] = {GQUERY_ADD,   GQUERY_SUBTRACT, GQUERY_MULTIPLY,
                                       GQUERY_ADD,   GQUERY_MULTIPLY, GQUERY_DIVIDE,
                                       GQUERY_MODULO};
    const uint64_t kind = draw(d, 11);

    if (kind == 10 && room > 2 && t >= I64) {
        draw_function(d, t, room);
    } else if (kind < 4 && room > 1) {
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
        const int64_t v = (int64_t)query_draw_value(d, t);
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
            bytes += query_draw_character(d, to + bytes);
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

    if (draw(d, 3) == 0)
        b |= draw(d, 2) == 0 ? GQUERY_TEXT_LOWER : GQUERY_TEXT_UPPER;
    if (b >= GQUERY_TEXT_LOWER && draw(d, 4) == 0)
        b |= GQUERY_TEXT_ASCII;
    if (is_like && count > 0)
        b |= (uint32_t)draw(d, 4) * GQUERY_TEXT_FROM_START;
    p->value_count += count;
    for (uint32_t i = 0; i < count; i++) {
        uint8_t text[TEXT_MAX];
        const uint32_t bytes = is_like ? draw_piece(d, text)
                                       : query_draw_text(d, text, draw(d, 9) == 0 ? TEXT_MAX : 16);

        add_text(p, first + i, text, bytes);
    }
    if (!is_like)
        sort_texts(p, first, count);
    emit(d, GQUERY_TEXT, draw_text_column(d), b, first | (uint64_t)count << 32);
}

static void draw_text_length(draft *d)
{
    const uint32_t kind = GQUERY_TEXT_LENGTH + (uint32_t)draw(d, 3);
    const bool is_word = kind == GQUERY_TEXT_WORD;

    emit(d, GQUERY_TEXT, draw_text_column(d),
         kind | (uint32_t)draw(d, 2) * GQUERY_TEXT_TRIMMED | (uint32_t)draw(d, 2) * GQUERY_TEXT_UTF8 |
             (is_word && draw(d, 3) == 0 ? GQUERY_TEXT_LOWER : 0),
         is_word ? draw(d, draw(d, 2) == 0 ? 3 : 40) : 0);
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
    emit(d, GQUERY_CONSTANT, 0, 0, query_draw_value(d, I64));
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
        query_put_ascending(d, GQUERY_I32, &table->columns[GQUERY_I32], table->rows);
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
    query_draw_table(d, table);
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
