/* GQUERY_FUNCTION on the CPU: by the C library, and by integers of 128 bits. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "tests/prop/query_evaluate.h"

#define DAY_US INT64_C(86400000000)
#define TIMESTAMP_LEAST INT64_C(-211813488000000000)
#define TIMESTAMP_LIMIT INT64_C(9223371331200000000)
#define EPOCH_2000_S 946684800

static int order_of_doubles(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b);
    return a < b ? -1 : a > b;
}

/* Downwards. */
static __int128 floor_quotient(__int128 v, __int128 by)
{
    return (v - ((v % by + by) % by)) / by;
}

static int64_t quotient_of(uint32_t function, int64_t x, int64_t by)
{
    const __int128 size = x < 0 ? -(__int128)x : x;

    if (function == GQUERY_FLOOR_I64)
        return (int64_t)floor_quotient(x, by);
    if (function == GQUERY_CEILING_I64)
        return (int64_t)-floor_quotient(-(__int128)x, by);
    return (int64_t)((2 * size + by) / (2 * (__int128)by) * (x < 0 ? -1 : 1));
}

static bool is_finite_date(uint64_t v)
{
    return (int64_t)v != INT32_MIN && (int64_t)v != INT32_MAX;
}

static bool is_finite_time(uint64_t v)
{
    return (int64_t)v != INT64_MIN && (int64_t)v != INT64_MAX;
}

static uint64_t move_date(uint64_t date, __int128 days, uint32_t *error)
{
    const __int128 v = (int64_t)date + days;

    if (!is_finite_date(date))
        return date;
    if (v < -2451545 || v >= 2145031949)
        *error = GQUERY_E_FIELD;
    return (uint64_t)v;
}

static uint64_t check_timestamp(__int128 v, uint32_t *error)
{
    if (v < TIMESTAMP_LEAST || v >= TIMESTAMP_LIMIT)
        *error = GQUERY_E_FIELD;
    return (uint64_t)v;
}

static uint64_t between(bool is_finite, uint64_t x, uint64_t y, uint32_t *error)
{
    int64_t v = 0;

    if (!is_finite)
        *error = GQUERY_E_FIELD;
    else if (__builtin_sub_overflow((int64_t)x, (int64_t)y, &v))
        *error = GQUERY_E_I64_RANGE;
    return (uint64_t)v;
}

/* The first one of the month, so many months behind it, in days since 1970. */
static int64_t first_of_month(const struct tm *tm, int64_t months)
{
    const int64_t all = tm->tm_year * INT64_C(12) + tm->tm_mon + months;
    struct tm first = {.tm_year = (int)floor_quotient(all, 12), .tm_mday = 1};

    first.tm_mon = (int)(all - (int64_t)first.tm_year * 12);
    return (int64_t)timegm(&first) / 86400;
}

static uint64_t add_months(uint64_t timestamp, int64_t months, int64_t offset, uint32_t *error)
{
    const __int128 local = (__int128)(int64_t)timestamp + offset, days = floor_quotient(local, DAY_US);
    const time_t seconds = (time_t)(days * 86400 + EPOCH_2000_S);
    int64_t first, next;
    struct tm tm;

    if (!is_finite_time(timestamp))
        return timestamp;
    if (days < -2451545 || months < -5000000 || months > 5000000) {
        *error = GQUERY_E_FIELD;
        return 0;
    }
    gmtime_r(&seconds, &tm);
    first = first_of_month(&tm, months);
    next = first_of_month(&tm, months + 1);
    first += (tm.tm_mday < next - first ? tm.tm_mday : next - first) - 1;
    return check_timestamp(
        (__int128)(first - EPOCH_2000_S / 86400) * DAY_US + local - days * DAY_US - offset, error);
}

static uint64_t shift(uint32_t function, uint64_t x, uint64_t by, uint64_t bits, uint32_t *error)
{
    const __int128 power = (__int128)1 << (by < 64 ? by : 0);
    uint64_t v;

    if (by >= bits) {
        *error = GQUERY_E_FIELD;
        return 0;
    }
    if (function == GQUERY_SHIFT_RIGHT)
        return (uint64_t)floor_quotient((int64_t)x, power);
    v = x * (uint64_t)power;
    return bits == 16 ? (uint64_t)(int16_t)v : bits == 32 ? (uint64_t)(int32_t)v : v;
}

static uint64_t of_doubles(uint32_t function, double x, double y, uint32_t *error)
{
    switch (function) {
    case GQUERY_ROUND_F64: return bits_of(rint(x));
    case GQUERY_FLOOR_F64: return bits_of(floor(x));
    case GQUERY_CEILING_F64: return bits_of(ceil(x));
    case GQUERY_TRUNCATE_F64: return bits_of(trunc(x));
    case GQUERY_SIGN_F64: return bits_of(x > 0 ? 1 : x < 0 ? -1 : 0);
    case GQUERY_SQRT_F64: *error = x < 0 ? GQUERY_E_FIELD : *error; return bits_of(sqrt(x));
    case GQUERY_LEAST_F64: return bits_of(order_of_doubles(x, y) > 0 ? y : x);
    default: return bits_of(order_of_doubles(x, y) < 0 ? y : x);
    }
}

uint64_t query_function(uint32_t function, uint64_t x, uint64_t y, uint64_t value, uint32_t *error)
{
    const int64_t a = (int64_t)x, b = (int64_t)y;

    switch (function) {
    case GQUERY_ROUND_I64:
    case GQUERY_FLOOR_I64:
    case GQUERY_CEILING_I64: return (uint64_t)quotient_of(function, a, (int64_t)value);
    case GQUERY_SIGN_I64: return (uint64_t)(a < 0 ? INT64_C(-1) : a > 0);
    case GQUERY_WITHIN_I64:
        *error = (a < 0 ? -(__int128)a : a) >= (int64_t)value ? GQUERY_E_DECIMAL : *error;
        return x;
    case GQUERY_RATIO_F64:
        *error = a > INT64_C(1) << 53 || a < -(INT64_C(1) << 53) ? GQUERY_E_DECIMAL : *error;
        return bits_of((double)a / (double)value);
    case GQUERY_BITS_AND: return x & y;
    case GQUERY_BITS_OR: return x | y;
    case GQUERY_BITS_XOR: return x ^ y;
    case GQUERY_SHIFT_LEFT:
    case GQUERY_SHIFT_RIGHT: return shift(function, x, y, value, error);
    case GQUERY_ADD_DAYS: return move_date(x, b, error);
    case GQUERY_SUBTRACT_DAYS: return move_date(x, -(__int128)b, error);
    case GQUERY_DAYS_BETWEEN: return between(is_finite_date(x) && is_finite_date(y), x, y, error);
    case GQUERY_ADD_TIME: return is_finite_time(x) ? check_timestamp((__int128)a + b, error) : x;
    case GQUERY_TIME_BETWEEN: return between(is_finite_time(x) && is_finite_time(y), x, y, error);
    case GQUERY_ADD_MONTHS: return add_months(x, b, (int64_t)value, error);
    case GQUERY_LEAST_I64: return a > b ? y : x;
    case GQUERY_GREATEST_I64: return a < b ? y : x;
    default: return of_doubles(function, double_of(x), double_of(y), error);
    }
}
