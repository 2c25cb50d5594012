/* query/kernel_values.h - what operations of query programs do with values, as PostgreSQL does it: device code without a state.
 *
 * Values are words: integers, or the bits of doubles. Where PostgreSQL raises an error a function sets *error, and what it returns
 * means nothing.
 *
 * Threads: any.
 */
#ifndef GQUERY_KERNEL_VALUES_H
#define GQUERY_KERNEL_VALUES_H

#include <gvmem/device/kernel.h>

#include "query/program.h"

GVM_DEVICE double to_double(uint64_t bits)
{
    double v;

    memcpy(&v, &bits, sizeof v);
    return v;
}
GVM_DEVICE uint64_t to_bits(double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* ---- comparisons: -1, 0, 1 as the order has it */

GVM_DEVICE int compare_i64(uint64_t a, uint64_t b)
{
    return ((int64_t)a > (int64_t)b) - ((int64_t)a < (int64_t)b);
}

GVM_DEVICE int compare_f64(uint64_t a, uint64_t b)
{
    const double x = to_double(a), y = to_double(b);

    return x != x || y != y ? (x != x) - (y != y) : (x > y) - (x < y);
}

/* ---- lists */

GVM_DEVICE int is_in(const int64_t *list, uint32_t count, int64_t value)
{
    uint32_t low = 0, high = count, middle;

    while (low < high) {
        middle = (low + high) / 2;
        if (list[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && list[low] == value;
}

GVM_DEVICE int is_in_pairs(const int64_t *list, uint32_t count, int64_t first, int64_t second)
{
    uint32_t low = 0, high = count, middle;

    while (low < high) {
        const int64_t *pair;

        middle = (low + high) / 2;
        pair = list + 2 * middle;
        if (pair[0] < first || (pair[0] == first && pair[1] < second))
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && list[2 * low] == first && list[2 * low + 1] == second;
}

/* ---- arithmetic: results, and where they are none, *error */

/* Of int16, int32 or decimals. */
GVM_DEVICE uint64_t narrow(uint64_t v, uint32_t kind, uint32_t *error)
{
    const uint32_t shift = kind == GQUERY_ARITHMETIC_I16   ? 48
                           : kind == GQUERY_ARITHMETIC_I32 ? 32
                                                           : 2;

    if ((uint64_t)((int64_t)(v << shift) >> shift) != v)
        *error = kind == GQUERY_ARITHMETIC_DECIMAL ? GQUERY_E_DECIMAL : GQUERY_E_I16_RANGE + kind;
    return v;
}

/* Of 8 bytes in memory: the number whose order is that of the bytes. */
GVM_DEVICE uint64_t word_of_bytes(uint64_t v)
{
    v = (v & 0x00ff00ff00ff00ffu) << 8 | (v >> 8 & 0x00ff00ff00ff00ffu);
    v = (v & 0x0000ffff0000ffffu) << 16 | (v >> 16 & 0x0000ffff0000ffffu);
    return (v << 32 | v >> 32) ^ 1ull << 63;
}

/* A decimal of 128 bits; NO_DECIMAL: it does not fit. */
#define NO_DECIMAL 0x8000000000000000u
GVM_DEVICE uint64_t narrow_decimal(uint64_t low, uint64_t high)
{
    if (high == NO_DECIMAL)
        return (uint64_t)GQUERY_DECIMAL_NAN;
    return (int64_t)(low << 2) >> 2 == (int64_t)low && (uint64_t)((int64_t)low >> 63) == high
               ? low
               : NO_DECIMAL;
}

GVM_DEVICE uint64_t add_i64(uint64_t a, uint64_t b, uint32_t *error)
{
    const uint64_t v = a + b;

    if ((int64_t)((a ^ v) & (b ^ v)) < 0)
        *error = GQUERY_E_I64_RANGE;
    return v;
}

GVM_DEVICE uint64_t subtract_i64(uint64_t a, uint64_t b, uint32_t *error)
{
    const uint64_t v = a - b;

    if ((int64_t)((a ^ b) & (a ^ v)) < 0)
        *error = GQUERY_E_I64_RANGE;
    return v;
}

GVM_DEVICE uint64_t multiply_i64(uint64_t a, uint64_t b, uint32_t *error)
{
    const __int128 v = (__int128)(int64_t)a * (int64_t)b;

    if (v != (int64_t)v)
        *error = GQUERY_E_I64_RANGE;
    return (uint64_t)v;
}

GVM_DEVICE uint64_t multiply_decimals(uint64_t a, uint64_t b, uint32_t *error)
{
    const __int128 v = (__int128)(int64_t)a * (int64_t)b;

    if (v != (int64_t)v)
        *error = GQUERY_E_DECIMAL;
    else
        (void)narrow((uint64_t)v, GQUERY_ARITHMETIC_DECIMAL, error);
    return (uint64_t)v;
}

GVM_DEVICE int is_finite(double v)
{
    return v - v == 0;
}

GVM_DEVICE int is_infinite(double v)
{
    return !is_finite(v) && v == v;
}

/* The result is as wide as the operands are. */
GVM_DEVICE double round_to(double v, uint32_t kind)
{
    return kind == GQUERY_ARITHMETIC_F32 ? (double)(float)v : v;
}

/* Of two finite numbers there is no infinite sum. Floats: the sum, difference, product or quotient of two floats,
 * rounded to a double and then to a float, is the one rounded at once, for a double has more than twice as many
 * digits. */
GVM_DEVICE uint64_t sum_f64(double a, double b, uint32_t kind, uint32_t *error)
{
    const double v = round_to(a + b, kind);

    if (is_infinite(v) && !is_infinite(a) && !is_infinite(b))
        *error = GQUERY_E_OVERFLOW;
    return to_bits(v);
}

GVM_DEVICE uint64_t add_f64(uint64_t a, uint64_t b, uint32_t *error)
{
    return sum_f64(to_double(a), to_double(b), GQUERY_ARITHMETIC_F64, error);
}

GVM_DEVICE uint64_t product_f64(double a, double b, uint32_t kind, uint32_t *error)
{
    const double v = round_to(a * b, kind);

    if (is_infinite(v) && !is_infinite(a) && !is_infinite(b))
        *error = GQUERY_E_OVERFLOW;
    if (v == 0 && a != 0 && b != 0)
        *error = GQUERY_E_UNDERFLOW;
    return to_bits(v);
}

GVM_DEVICE uint64_t quotient_f64(double a, double b, uint32_t kind, uint32_t *error)
{
    double v;

    if (b == 0) {
        if (a == a)
            *error = GQUERY_E_DIVISION;
        return to_bits(a);
    }
    v = round_to(a / b, kind);
    if (is_infinite(v) && !is_infinite(a))
        *error = GQUERY_E_OVERFLOW;
    if (v == 0 && a != 0 && !is_infinite(b))
        *error = GQUERY_E_UNDERFLOW;
    return to_bits(v);
}

GVM_DEVICE uint64_t divide_i64(uint64_t a, uint64_t b, uint32_t kind, int remainder, uint32_t *error)
{
    uint64_t v;

    if (b == 0) {
        *error = GQUERY_E_DIVISION;
        return 0;
    }
    if (b == ~0ull) { /* INT64_MIN / -1 is a fault of some processors */
        v = remainder ? 0 : 0 - a;
        if (!remainder && kind == GQUERY_ARITHMETIC_I64 && a == 1ull << 63)
            *error = GQUERY_E_I64_RANGE;
    } else if ((uint64_t)(int32_t)a == a && (uint64_t)(int32_t)b == b) {
        v = (uint64_t)(remainder ? (int32_t)a % (int32_t)b : (int32_t)a / (int32_t)b);
    } else {
        v = (uint64_t)(remainder ? (int64_t)a % (int64_t)b : (int64_t)a / (int64_t)b);
    }
    return kind == GQUERY_ARITHMETIC_I64 ? v : narrow(v, kind, error);
}

/* ---- operations on one value */

GVM_DEVICE uint64_t negate(uint64_t v, uint32_t kind, uint32_t *error)
{
    if (kind >= GQUERY_ARITHMETIC_F32)
        return v ^ 1ull << 63;
    if (kind != GQUERY_ARITHMETIC_I64)
        return narrow(0 - v, kind, error);
    if (v == 1ull << 63)
        *error = GQUERY_E_I64_RANGE;
    return 0 - v;
}

GVM_DEVICE uint64_t absolute(uint64_t v, uint32_t kind, uint32_t *error)
{
    if (kind >= GQUERY_ARITHMETIC_F32)
        return v & ~(1ull << 63);
    return (int64_t)v < 0 ? negate(v, kind, error) : v;
}

/* Half to even: where a double has no digits behind the point any more, it has been rounded. */
GVM_DEVICE double round_even(double v)
{
    const double edge = 0x1p52, size = v < 0 ? -v : v;

    if (!(size < edge))
        return v;
    return v < 0 ? -((size + edge) - edge) : (size + edge) - edge;
}

/* bits: of the integer. */
GVM_DEVICE uint64_t to_integer(double v, uint32_t bits, uint32_t range_error, uint32_t *error)
{
    const double limit = bits == 16 ? 0x1p15 : bits == 32 ? 0x1p31 : 0x1p63;

    v = round_even(v);
    if (v >= -limit && v < limit)
        return (uint64_t)(int64_t)v;
    *error = range_error;
    return 0;
}

GVM_DEVICE uint64_t to_float(double v, uint32_t *error)
{
    const double f = (double)(float)v;

    if (is_infinite(f) && !is_infinite(v))
        *error = GQUERY_E_OVERFLOW;
    if (f == 0 && v != 0)
        *error = GQUERY_E_UNDERFLOW;
    return to_bits(f);
}

GVM_DEVICE uint64_t order_key(uint64_t bits, int keeps_sign)
{
    const double v = to_double(bits);

    if (v != v)
        return 0x7ff8000000000000u;
    if (v == 0 && !keeps_sign)
        return 0;
    return bits >> 63 != 0 ? bits ^ 0x7fffffffffffffffu : bits;
}

GVM_DEVICE uint64_t convert_value(uint32_t op, uint32_t kind, uint64_t v, uint32_t *error)
{
    switch (op) {
    case GQUERY_NEGATE: return negate(v, kind, error);
    case GQUERY_ABS: return absolute(v, kind, error);
    case GQUERY_TO_I16: return narrow(v, GQUERY_ARITHMETIC_I16, error);
    case GQUERY_TO_I32: return narrow(v, GQUERY_ARITHMETIC_I32, error);
    case GQUERY_F64_TO_I16: return to_integer(to_double(v), 16, GQUERY_E_I16_RANGE, error);
    case GQUERY_F64_TO_I32: return to_integer(to_double(v), 32, GQUERY_E_I32_RANGE, error);
    case GQUERY_F64_TO_I64: return to_integer(to_double(v), 64, GQUERY_E_I64_RANGE, error);
    case GQUERY_I64_TO_F64: return to_bits((double)(int64_t)v);
    case GQUERY_I64_TO_F32: return to_bits((double)(float)(int64_t)v);
    case GQUERY_F64_TO_F32: return to_float(to_double(v), error);
    case GQUERY_INVERT: return kind == 1 ? v ^ 1ull << 63 : ~v;
    default: return order_key(v, kind != 0); /* GQUERY_ORDER_KEY */
    }
}

/* ---- aggregates */

/* A word of a state and a value, or the same word of another state; of a sum of 128 bits, the low half. */
GVM_DEVICE uint64_t fold(uint32_t aggregate, uint64_t word, uint64_t v)
{
    switch (aggregate) {
    case GQUERY_SUM_F64: return to_bits(to_double(word) + to_double(v));
    case GQUERY_MIN_I64: return (int64_t)v < (int64_t)word ? v : word;
    case GQUERY_MAX_I64: return (int64_t)v > (int64_t)word ? v : word;
    case GQUERY_AND_I64: return word & v;
    case GQUERY_OR_I64: return word | v;
    case GQUERY_XOR_I64: return word ^ v;
    default: return word + v; /* counts, and the low half of a sum */
    }
}

GVM_DEVICE uint64_t first_word(uint32_t aggregate)
{
    switch (aggregate) {
    case GQUERY_MIN_I64: return 0x7fffffffffffffffu;
    case GQUERY_SUM_F64: /* -0.0 */
    case GQUERY_MAX_I64: return 0x8000000000000000u;
    case GQUERY_AND_I64: return ~0ull;
    default: return 0;
    }
}

/* GQUERY_MOMENTS_F64: of a state, or of one value, by itself. */
typedef struct moments {
    uint64_t count;
    double origin, sum, squares; /* of differences from it */
} moments;

GVM_DEVICE moments moments_of(uint64_t v)
{
    const moments m = {1, to_double(v), 0, 0};

    return m;
}

GVM_DEVICE moments load_moments(const uint64_t *word, uint32_t pitch)
{
    const moments m = {word[0], to_double(word[pitch]), to_double(word[2 * pitch]),
                       to_double(word[3 * pitch])};

    return m;
}

/* Differences from another one. */
GVM_DEVICE moments move_origin(moments m, double origin)
{
    const double step = m.origin - origin, all = (double)m.count * step;

    m.squares += (2 * m.sum + all) * step;
    m.sum += all;
    return m;
}

/* The origin as a state has it. */
GVM_DEVICE uint64_t origin_word(double origin)
{
    return origin == 0 ? 1ull << 63 : to_bits(origin);
}

GVM_DEVICE void merge_moments(uint64_t *word, uint32_t pitch, moments m)
{
    if (m.count == 0)
        return;
    if (word[pitch] == 0)
        word[pitch] = origin_word(m.origin);
    m = move_origin(m, to_double(word[pitch]));
    word[0] += m.count;
    word[2 * pitch] = to_bits(to_double(word[2 * pitch]) + m.sum);
    word[3 * pitch] = to_bits(to_double(word[3 * pitch]) + m.squares);
}

/* Likewise, where others do so at the same time. */
GVM_DEVICE void add_moments(uint64_t *word, uint32_t pitch, moments m)
{
    uint64_t origin = gvm_load_consume_u64(word + pitch);

    if (m.count == 0)
        return;
    if (origin == 0) {
        const uint64_t own = origin_word(m.origin);

        origin = gvm_atomic_cas_u64(word + pitch, 0, own);
        origin = origin == 0 ? own : origin;
    }
    m = move_origin(m, to_double(origin));
    gvm_atomic_add_u64(word, m.count);
    gvm_atomic_add_f64((double *)(void *)(word + 2 * pitch), m.sum);
    gvm_atomic_add_f64((double *)(void *)(word + 3 * pitch), m.squares);
}

#endif
