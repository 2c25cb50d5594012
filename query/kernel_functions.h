/* query/kernel_functions.h - GQUERY_FUNCTION: functions of values that are asked for seldom, as PostgreSQL has them. Device code.
 *
 * Threads: any.
 */
#ifndef GQUERY_KERNEL_FUNCTIONS_H
#define GQUERY_KERNEL_FUNCTIONS_H

#include <math.h>

#include "query/kernel_calendar.h"
#include "query/kernel_machine.h"
#include "query/kernel_values.h"

#define DAY_LIMIT 2145031949 /* finite dates are before it */
#define YEAR_LEAST (-5000) /* before all that a timestamp has; likewise the next one, behind them */
#define YEAR_MOST 300000
#define MONTHS_MOST (12ll * (YEAR_MOST - YEAR_LEAST))
#define EXACT_MOST (1ll << 53) /* of integers all of which doubles have */

/* ---- doubles */

GVM_DEVICE double rounded(uint32_t function, double v)
{
    const double size = v < 0 ? -v : v;
    double whole;

    if (!(size < 0x1p52))
        return v;
    whole = function == GQUERY_ROUND_F64 ? round_even(v) : (double)(int64_t)v;
    if (function == GQUERY_FLOOR_F64 && whole > v)
        whole -= 1;
    if (function == GQUERY_CEILING_F64 && whole < v)
        whole += 1;
    return whole == 0 ? to_double(to_bits(v) & 1ull << 63) : whole;
}

/* ---- integers */

GVM_DEVICE int64_t quotient(uint32_t function, int64_t v, int64_t by)
{
    const int64_t whole = v / by, rest = v % by, size = rest < 0 ? -rest : rest;

    switch (function) {
    case GQUERY_FLOOR_I64: return whole - (rest < 0);
    case GQUERY_CEILING_I64: return whole + (rest > 0);
    default: return size < by - size ? whole : v < 0 ? whole - 1 : whole + 1;
    }
}

/* Of words whose lower halves ascend, the one with that of *at comes there. The error, or 0. */
GVM_DEVICE uint32_t find_word(const int64_t *values, uint32_t low, uint32_t count, uint64_t *at)
{
    const uint32_t wanted = (uint32_t)*at, end = low + count;
    uint32_t high = end, middle;

    while (low < high) {
        middle = (low + high) / 2;
        if ((uint32_t)values[middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == end || (uint32_t)values[low] != wanted)
        return GQUERY_E_FIELD;
    *at = (uint64_t)values[low];
    return 0;
}

GVM_DEVICE uint64_t shifted(uint32_t function, uint64_t v, uint64_t by, uint32_t bits, uint32_t *error)
{
    if (by >= bits) {
        *error = GQUERY_E_FIELD;
        return 0;
    }
    if (function == GQUERY_SHIFT_RIGHT)
        return (uint64_t)((int64_t)v >> by);
    return (uint64_t)((int64_t)(v << by << (64 - bits)) >> (64 - bits));
}

/* ---- dates and timestamps */

GVM_DEVICE uint64_t moved_date(uint64_t date, uint64_t days, uint32_t *error)
{
    const int64_t v = (int64_t)(date + days);

    if (is_infinite_date(GQUERY_OF_DATE, date))
        return date;
    if (v < DAY_LEAST || v >= DAY_LIMIT)
        *error = GQUERY_E_FIELD;
    return (uint64_t)v;
}

GVM_DEVICE uint64_t moved_time(uint64_t time, uint64_t by, uint32_t *error)
{
    const int64_t v = (int64_t)(time + by);

    if (is_infinite_date(GQUERY_OF_TIMESTAMP, time))
        return time;
    if (v < TIMESTAMP_LEAST || v >= TIMESTAMP_LIMIT || ((int64_t)by < 0) != (v < (int64_t)time))
        *error = GQUERY_E_FIELD;
    return (uint64_t)v;
}

GVM_DEVICE uint64_t between(uint32_t of, uint64_t x, uint64_t y, uint32_t *error)
{
    if (is_infinite_date(of, x) || is_infinite_date(of, y)) {
        *error = GQUERY_E_FIELD;
        return 0;
    }
    return subtract_i64(x, y, error);
}

GVM_DEVICE uint64_t moved_months(uint64_t timestamp, int64_t months, int64_t offset, uint32_t *error)
{
    const int64_t local = (int64_t)(timestamp + (uint64_t)offset);
    int64_t days, count;
    uint32_t month, day, last;
    int32_t year, first;

    if (is_infinite_date(GQUERY_OF_TIMESTAMP, timestamp))
        return timestamp;
    days = local / DAY_US - (local % DAY_US < 0);
    if (days >= DAY_LEAST && months > -MONTHS_MOST && months < MONTHS_MOST) {
        year = date_of((int32_t)days, &month, &day);
        count = (year - (int64_t)YEAR_LEAST) * 12 + month - 1 + months;
        if (count >= 0 && count < MONTHS_MOST) {
            year = (int32_t)(count / 12) + YEAR_LEAST;
            month = (uint32_t)(count % 12) + 1;
            first = day_of(year, month);
            last = (uint32_t)(day_of(year + (month == 12), month % 12 + 1) - first);
            first += (int32_t)(day < last ? day : last) - 1;
            /* Beyond all that a timestamp has the product wraps, and is beyond that, too. */
            return moved_time((uint64_t)first * (uint64_t)DAY_US,
                              (uint64_t)(local - days * DAY_US - offset), error);
        }
    }
    *error = GQUERY_E_FIELD;
    return 0;
}

/* ---- all */

/* *at: x, in whose place the result comes. The error, or 0. */
GVM_DEVICE uint32_t compute(uint32_t function, uint64_t *at, uint64_t y, uint64_t value)
{
    const uint64_t x = *at;
    uint32_t error = 0;
    uint64_t v;

    switch (function) {
    case GQUERY_ROUND_F64:
    case GQUERY_FLOOR_F64:
    case GQUERY_CEILING_F64:
    case GQUERY_TRUNCATE_F64: v = to_bits(rounded(function, to_double(x))); break;
    case GQUERY_SIGN_F64: v = to_bits((double)((to_double(x) > 0) - (to_double(x) < 0))); break;
    case GQUERY_SQRT_F64:
        v = to_bits(sqrt(to_double(x)));
        error = to_double(x) < 0 ? GQUERY_E_FIELD : 0;
        break;
    case GQUERY_ROUND_I64:
    case GQUERY_FLOOR_I64:
    case GQUERY_CEILING_I64: v = (uint64_t)quotient(function, (int64_t)x, (int64_t)value); break;
    case GQUERY_SIGN_I64: v = (uint64_t)(int64_t)compare_i64(x, 0); break;
    case GQUERY_WITHIN_I64:
        v = x;
        error = (int64_t)x < (int64_t)value && (int64_t)x > -(int64_t)value ? 0 : GQUERY_E_DECIMAL;
        break;
    case GQUERY_RATIO_F64:
        v = to_bits((double)(int64_t)x / (double)value);
        error = (int64_t)x > EXACT_MOST || (int64_t)x < -EXACT_MOST ? GQUERY_E_DECIMAL : 0;
        break;
    case GQUERY_BITS_AND: v = x & y; break;
    case GQUERY_BITS_OR: v = x | y; break;
    case GQUERY_BITS_XOR: v = x ^ y; break;
    case GQUERY_SHIFT_LEFT:
    case GQUERY_SHIFT_RIGHT: v = shifted(function, x, y, (uint32_t)value, &error); break;
    case GQUERY_ADD_DAYS: v = moved_date(x, y, &error); break;
    case GQUERY_SUBTRACT_DAYS: v = moved_date(x, 0 - y, &error); break;
    case GQUERY_DAYS_BETWEEN: v = between(GQUERY_OF_DATE, x, y, &error); break;
    case GQUERY_ADD_TIME: v = moved_time(x, y, &error); break;
    case GQUERY_TIME_BETWEEN: v = between(GQUERY_OF_TIMESTAMP, x, y, &error); break;
    case GQUERY_ADD_MONTHS: v = moved_months(x, (int64_t)y, (int64_t)value, &error); break;
    case GQUERY_LEAST_I64: v = compare_i64(x, y) > 0 ? y : x; break;
    case GQUERY_GREATEST_I64: v = compare_i64(x, y) < 0 ? y : x; break;
    case GQUERY_LEAST_F64: v = compare_f64(x, y) > 0 ? y : x; break;
    default: v = compare_f64(x, y) < 0 ? y : x; /* GQUERY_GREATEST_F64 */
    }
    *at = v;
    return error;
}

/* Row by row, in few registers. */
GVM_DEVICE void apply_function(machine *m, uint32_t function, uint64_t value)
{
    const int is_pair = function >= GQUERY_BITS_AND, ignores_null = function >= GQUERY_LEAST_I64;
    const uint32_t right = nulls_of(m, m->depth - 1),
                   left = is_pair ? nulls_of(m, m->depth - 2) : right;
    uint32_t r;

    store_top(m);
    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++) {
        uint64_t *x = place(m, m->depth - 1 - (uint32_t)is_pair, r);
        const uint64_t y = *place(m, m->depth - 1, r);
        uint32_t error;

        if (!has(m->active, r) || has(left | right, r)) {
            if (ignores_null && has(m->active & left, r))
                *x = y;
            continue;
        }
        error = function == GQUERY_FIND_I64
                    ? find_word(m->program->values, (uint32_t)value, (uint32_t)(value >> 32), x)
                    : compute(function, x, y, value);
        if (error != 0 && m->error == 0)
            m->error = error;
    }
    m->depth -= (uint32_t)is_pair;
    load_top(m);
    set_nulls(m, ignores_null ? left & right : left | right);
}

#endif
