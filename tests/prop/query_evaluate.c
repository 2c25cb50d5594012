/* Query programs on the CPU: each row by itself goes through the code, over branches that are not its own, as PostgreSQL would evaluate
 * the expressions. Integers are those of the compiler, with its checks for overflow; so are floats. */
#include "tests/prop/query_evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct datum {
    bool is_null;
    uint64_t bits;
} datum;

typedef struct walk {
    const gquery_program *program;
    const host_table *table;
    host_result *result;
    uint64_t row;
    datum stack[GQUERY_DEPTH_MAX];
    uint32_t depth, keys;
    host_group *group;
    uint32_t error;
} walk;

static bool bit_of(const uint8_t *bitmap, uint64_t i)
{
    return (bitmap[i / 8] & 1u << i % 8) != 0;
}

static void push(walk *w, bool is_null, uint64_t bits)
{
    w->stack[w->depth++] = (datum){is_null, bits};
}

static datum pop(walk *w)
{
    return w->stack[--w->depth];
}

static bool is_true(datum d)
{
    return !d.is_null && d.bits != 0;
}

/* ---- columns */

static int64_t biased(int64_t v, int64_t least, int64_t greatest, int64_t bias)
{
    return v == least || v == greatest ? v : (int64_t)((uint64_t)v + (uint64_t)bias);
}

/* In their order. */
static uint64_t read_bytes(const uint8_t *bytes)
{
    uint64_t v = 0;

    for (int i = 0; i < 8; i++)
        v = v << 8 | bytes[i];
    return v - (1ull << 63);
}

static uint64_t read_value(const gquery_column *column, const void *values, uint64_t row)
{
    switch (column->form) {
    case GQUERY_BIT: return bit_of(values, row);
    case GQUERY_U8: return ((const uint8_t *)values)[row];
    case GQUERY_I16: return (uint64_t)((const int16_t *)values)[row];
    case GQUERY_I32:
        return (uint64_t)biased(((const int32_t *)values)[row], INT32_MIN, INT32_MAX, column->bias);
    case GQUERY_U32: return ((const uint32_t *)values)[row];
    case GQUERY_I64:
        return (uint64_t)biased(((const int64_t *)values)[row], INT64_MIN, INT64_MAX, column->bias);
    case GQUERY_F32: return bits_of((double)((const float *)values)[row]);
    case GQUERY_UUID_HIGH: return read_bytes((const uint8_t *)values + 16 * row);
    case GQUERY_UUID_LOW: return read_bytes((const uint8_t *)values + 16 * row + 8);
    default: return ((const uint64_t *)values)[row];
    }
}

static void raise(walk *w, uint32_t error)
{
    if (w->error == GQUERY_E_NONE)
        w->error = error;
}

/* -2^61 to 2^61 - 1 */
static uint64_t checked_decimal(walk *w, __int128 v)
{
    if (v < -((__int128)1 << 61) || v >= (__int128)1 << 61)
        raise(w, GQUERY_E_DECIMAL);
    return (uint64_t)v;
}

static uint64_t read_decimal(walk *w, const void *values, bool nan_raises)
{
    __int128 v;

    memcpy(&v, (const uint8_t *)values + 16 * w->row, sizeof v);
    if (v >> 64 != INT64_MIN)
        return checked_decimal(w, v);
    if (nan_raises)
        raise(w, GQUERY_E_DECIMAL);
    return (uint64_t)GQUERY_DECIMAL_NAN;
}

static bool column_is_null(const walk *w, uint32_t column)
{
    const host_column *c = &w->table->columns[column];

    if (c->has_nulls ? !bit_of(c->nulls, w->row) : !c->has_values)
        return true;
    return w->program->columns[column].form == GQUERY_TEXT_BODIES &&
           ((const uint64_t *)c->values)[w->row] == 0;
}

static void load(walk *w, uint32_t column)
{
    const host_column *c = &w->table->columns[column];
    const bool is_null = column_is_null(w, column);

    const gquery_column *as = &w->program->columns[column];

    if (is_null)
        push(w, true, 0);
    else if (as->form == GQUERY_DECIMAL)
        push(w, false, read_decimal(w, c->values, as->bias != 0));
    else
        push(w, false, read_value(as, c->values, w->row));
}

/* ---- texts */

static uint64_t number_at(const uint8_t *bytes, uint64_t at, uint64_t size)
{
    uint64_t v = 0;

    while (size > 0)
        v = v << 8 | bytes[at + --size];
    return v;
}

/* False: it is not within the column. */
static bool read_body(const host_column *c, uint64_t at, host_text *out)
{
    const bool has_header = at % 8 == 0 && at < c->bytes && c->bytes - at >= 4;
    const uint64_t header = has_header ? number_at(c->bodies, at, 4) : 0, whole = header / 4;

    if (!has_header || header % 2 != 0 || whole < (header % 4 == 2 ? 8 : 4) || whole > c->bytes - at)
        return false;
    *out = (host_text){c->bodies + at + 4, whole - 4};
    if (header % 4 == 2)
        *out = (host_text){NULL, number_at(c->bodies, at + 4, 4) & 0x3fffffff};
    return true;
}

bool query_read_text(const host_column *c, uint32_t form, uint64_t row, host_text *out)
{
    const uint64_t *values = (const uint64_t *)c->values;

    if (form == GQUERY_TEXT_FIXED)
        *out = (host_text){c->values + row * c->bytes, c->bytes};
    else if (form == GQUERY_TEXT_BODIES)
        return read_body(c, values[row], out);
    else if (values[row + 1] < values[row] || values[row + 1] > c->bytes)
        return false;
    else
        *out = (host_text){c->bodies + values[row], values[row + 1] - values[row]};
    return true;
}

static host_text wanted_text(const gquery_program *p, uint32_t at)
{
    const uint64_t word = (uint64_t)p->values[at];

    return (host_text){(const uint8_t *)&p->values[(uint32_t)word], word >> 32};
}

static uint64_t next_character(host_text t, uint64_t at, bool utf8)
{
    at++;
    while (utf8 && at < t.count && t.bytes[at] / 64 == 2)
        at++;
    return at;
}

/* What the bytes of a piece make of the places that were reached before: `reached` has room for one more than the text has. */
static void advance(bool *reached, host_text t, uint8_t byte, bool utf8)
{
    for (uint64_t at = t.count + 1; at-- > 0;) {
        const bool was = reached[at];

        reached[at] = false;
        if (was && at < t.count && (byte == 0 || t.bytes[at] == byte))
            reached[byte == 0 ? next_character(t, at, utf8) : at + 1] = true;
    }
}

/* From the first place on all places between characters. */
static void skip_any(bool *reached, host_text t, bool utf8)
{
    uint64_t at = 0;

    while (at <= t.count && !reached[at])
        at++;
    for (; at <= t.count; at = next_character(t, at, utf8))
        reached[at] = true;
}

static bool has_pieces(const gquery_program *p, const gquery_instruction *i, host_text t)
{
    static bool reached[BODIES_MAX + 1];
    const bool utf8 = (i->b & GQUERY_TEXT_UTF8) != 0;
    const uint32_t first = (uint32_t)i->value, count = (uint32_t)(i->value >> 32);

    memset(reached, 0, t.count + 1);
    reached[0] = true;
    for (uint32_t k = 0; k < count; k++) {
        const host_text wanted = wanted_text(p, first + k);

        if (k > 0 || (i->b & GQUERY_TEXT_FROM_START) == 0)
            skip_any(reached, t, utf8);
        for (uint64_t at = 0; at < wanted.count; at++)
            advance(reached, t, wanted.bytes[at], utf8);
    }
    if ((i->b & GQUERY_TEXT_TO_END) == 0)
        skip_any(reached, t, utf8);
    return reached[t.count];
}

static bool is_one_of(walk *w, const gquery_instruction *i, host_text t)
{
    bool found = false;

    for (uint32_t k = 0; k < (uint32_t)(i->value >> 32); k++) {
        const host_text wanted = wanted_text(w->program, (uint32_t)i->value + k);

        if (wanted.count == t.count && t.bytes == NULL)
            raise(w, GQUERY_E_TEXT);
        else if (wanted.count == t.count)
            found = found || memcmp(wanted.bytes, t.bytes, t.count) == 0;
    }
    return found;
}

/* With letters of one case, as the instruction says. False: there are others than of ASCII, and it says that there are none. */
static bool change_letters(uint32_t flags, host_text *t)
{
    static uint8_t changed[BODIES_MAX];

    for (uint64_t at = 0; at < t->count; at++) {
        const uint8_t c = t->bytes[at];

        if (c > 127 && (flags & GQUERY_TEXT_ASCII) != 0)
            return false;
        changed[at] = (flags & GQUERY_TEXT_LOWER) != 0 && c >= 'A' && c <= 'Z'
                          ? (uint8_t)(c + 'a' - 'A')
                      : (flags & GQUERY_TEXT_UPPER) != 0 && c >= 'a' && c <= 'z'
                          ? (uint8_t)(c + 'A' - 'a')
                          : c;
    }
    t->bytes = changed;
    return true;
}

static uint64_t bytes_from(host_text t, uint64_t first)
{
    uint64_t v = 0;

    for (uint64_t at = first; at < first + 8; at++)
        v = v << 8 | (at < t.count ? t.bytes[at] : 0);
    return v ^ UINT64_C(1) << 63;
}

static uint64_t answer_of(walk *w, const gquery_instruction *i, host_text t)
{
    const bool trimmed = (i->b & GQUERY_TEXT_TRIMMED) != 0;
    const uint32_t kind = i->b & GQUERY_TEXT_KIND;
    uint64_t count = 0;

    if (t.bytes == NULL && (trimmed || (kind != GQUERY_TEXT_IN && kind != GQUERY_TEXT_LENGTH) ||
                            (i->b & GQUERY_TEXT_ASCII) != 0)) {
        raise(w, GQUERY_E_TEXT);
        return 0;
    }
    while (trimmed && t.count > 0 && t.bytes[t.count - 1] == ' ')
        t.count--;
    if (t.bytes != NULL && (i->b & (GQUERY_TEXT_LOWER | GQUERY_TEXT_UPPER)) != 0 &&
        !change_letters(i->b, &t)) {
        raise(w, GQUERY_E_TEXT);
        return 0;
    }
    switch (kind) {
    case GQUERY_TEXT_IN: return is_one_of(w, i, t);
    case GQUERY_TEXT_LIKE: return has_pieces(w->program, i, t);
    case GQUERY_TEXT_LENGTH: return t.count;
    case GQUERY_TEXT_WORD: return bytes_from(t, i->value);
    default: break;
    }
    for (uint64_t at = 0; at < t.count; at = next_character(t, at, (i->b & GQUERY_TEXT_UTF8) != 0))
        count++;
    return count;
}

static void test_text(walk *w, const gquery_instruction *i)
{
    const host_column *c = &w->table->columns[i->a];
    host_text t;

    if (column_is_null(w, i->a)) {
        push(w, (i->b & GQUERY_TEXT_KIND) != GQUERY_TEXT_WORD, 0);
    } else if (query_read_text(c, w->program->columns[i->a].form, w->row, &t)) {
        push(w, false, answer_of(w, i, t));
    } else {
        raise(w, GQUERY_E_TEXT);
        push(w, false, 0);
    }
}

/* ---- comparisons */

static int order_of(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int order_of_doubles(double a, double b)
{
    if (isnan(a))
        return isnan(b) ? 0 : 1;
    if (isnan(b))
        return -1;
    return a < b ? -1 : a > b;
}

static __int128 wide(uint64_t low, uint64_t high)
{
    return (__int128)((unsigned __int128)high << 64 | low);
}

static void compare(walk *w, uint32_t op, uint32_t order)
{
    const datum b = pop(w), a = pop(w);
    int c;

    if (a.is_null || b.is_null) {
        push(w, op != GQUERY_DISTINCT, a.is_null != b.is_null);
        return;
    }
    if (order == GQUERY_ORDER_F64)
        c = order_of_doubles(double_of(a.bits), double_of(b.bits));
    else
        c = order_of((int64_t)a.bits, (int64_t)b.bits);
    switch (op) {
    case GQUERY_EQ: push(w, false, c == 0); break;
    case GQUERY_LT: push(w, false, c < 0); break;
    case GQUERY_LE: push(w, false, c <= 0); break;
    case GQUERY_GT: push(w, false, c > 0); break;
    case GQUERY_GE: push(w, false, c >= 0); break;
    default: push(w, false, c != 0);
    }
}

static void look_up(walk *w, const int64_t *list, uint32_t count)
{
    const datum d = pop(w);
    bool found = false;

    for (uint32_t i = 0; i < count; i++)
        found = found || list[i] == (int64_t)d.bits;
    push(w, d.is_null, found);
}

static void look_up_pair(walk *w, const int64_t *list, uint32_t count)
{
    const datum second = pop(w), first = pop(w);
    bool found = false;

    for (uint32_t i = 0; i < count; i++)
        found = found ||
                (list[2 * i] == (int64_t)first.bits && list[2 * i + 1] == (int64_t)second.bits);
    push(w, first.is_null || second.is_null, found);
}

static void combine(walk *w, bool is_and)
{
    const datum b = pop(w), a = pop(w);

    if (is_and && ((!a.is_null && a.bits == 0) || (!b.is_null && b.bits == 0)))
        push(w, false, 0);
    else if (!is_and && (is_true(a) || is_true(b)))
        push(w, false, 1);
    else
        push(w, a.is_null || b.is_null, is_and);
}

/* ---- arithmetic */

#define INTEGER_ARITHMETIC(name, type, least, range_error) \
    static int64_t name(walk *w, uint32_t op, int64_t x, int64_t y) \
    { \
        const type a = (type)x, b = (type)y; \
        type v = 0; \
        bool fits = true; \
\
        if ((op == GQUERY_DIVIDE || op == GQUERY_MODULO) && b == 0) { \
            raise(w, GQUERY_E_DIVISION); \
            return 0; \
        } \
        switch (op) { \
        case GQUERY_ADD: fits = !__builtin_add_overflow(a, b, &v); break; \
        case GQUERY_SUBTRACT: fits = !__builtin_sub_overflow(a, b, &v); break; \
        case GQUERY_MULTIPLY: fits = !__builtin_mul_overflow(a, b, &v); break; \
        case GQUERY_DIVIDE: \
            fits = a != least || b != -1; \
            v = fits ? (type)(a / b) : 0; \
            break; \
        default: v = b == -1 ? 0 : (type)(a % b); \
        } \
        if (!fits) \
            raise(w, range_error); \
        return v; \
    }
INTEGER_ARITHMETIC(calculate_i16, int16_t, INT16_MIN, GQUERY_E_I16_RANGE)
INTEGER_ARITHMETIC(calculate_i32, int32_t, INT32_MIN, GQUERY_E_I32_RANGE)
INTEGER_ARITHMETIC(calculate_i64, int64_t, INT64_MIN, GQUERY_E_I64_RANGE)

#define FLOAT_ARITHMETIC(name, type) \
    static double name(walk *w, uint32_t op, type a, type b) \
    { \
        const bool product = op == GQUERY_MULTIPLY || op == GQUERY_DIVIDE; \
        type v; \
\
        if (op == GQUERY_DIVIDE && b == 0 && !isnan(a)) { \
            raise(w, GQUERY_E_DIVISION); \
            return 0; \
        } \
        v = op == GQUERY_ADD        ? a + b \
            : op == GQUERY_SUBTRACT ? a - b \
            : op == GQUERY_MULTIPLY ? a * b \
                                    : a / b; \
        if (isinf(v) && !isinf(a) && (op == GQUERY_DIVIDE || !isinf(b))) \
            raise(w, GQUERY_E_OVERFLOW); \
        if (product && v == 0 && a != 0 && (op == GQUERY_DIVIDE ? !isinf(b) : b != 0)) \
            raise(w, GQUERY_E_UNDERFLOW); \
        return (double)v; \
    }
FLOAT_ARITHMETIC(calculate_f32, float)
FLOAT_ARITHMETIC(calculate_f64, double)

static uint64_t calculate_decimal(walk *w, uint32_t op, int64_t a, int64_t b)
{
    return checked_decimal(w, op == GQUERY_ADD        ? (__int128)a + b
                              : op == GQUERY_SUBTRACT ? (__int128)a - b
                                                      : (__int128)a * b);
}

static void calculate(walk *w, uint32_t op, uint32_t kind)
{
    const datum b = pop(w), a = pop(w);
    uint64_t v = 0;

    if (!a.is_null && !b.is_null)
        switch (kind) {
        case GQUERY_ARITHMETIC_I16:
            v = (uint64_t)calculate_i16(w, op, (int64_t)a.bits, (int64_t)b.bits);
            break;
        case GQUERY_ARITHMETIC_I32:
            v = (uint64_t)calculate_i32(w, op, (int64_t)a.bits, (int64_t)b.bits);
            break;
        case GQUERY_ARITHMETIC_I64:
            v = (uint64_t)calculate_i64(w, op, (int64_t)a.bits, (int64_t)b.bits);
            break;
        case GQUERY_ARITHMETIC_F32:
            v = bits_of(calculate_f32(w, op, (float)double_of(a.bits), (float)double_of(b.bits)));
            break;
        case GQUERY_ARITHMETIC_DECIMAL:
            v = calculate_decimal(w, op, (int64_t)a.bits, (int64_t)b.bits);
            break;
        default: v = bits_of(calculate_f64(w, op, double_of(a.bits), double_of(b.bits)));
        }
    push(w, a.is_null || b.is_null, v);
}

/* ---- one value */

static const int64_t least_of[] = {INT16_MIN, INT32_MIN, INT64_MIN};

static uint64_t negate(walk *w, uint32_t kind, uint64_t bits)
{
    if (kind >= GQUERY_ARITHMETIC_F32)
        return bits_of(-double_of(bits));
    if ((int64_t)bits == least_of[kind])
        raise(w, GQUERY_E_I16_RANGE + kind);
    return 0 - bits;
}

static uint64_t absolute(walk *w, uint32_t kind, uint64_t bits)
{
    if (kind >= GQUERY_ARITHMETIC_F32)
        return bits_of(fabs(double_of(bits)));
    return (int64_t)bits < 0 ? negate(w, kind, bits) : bits;
}

static uint64_t check_range(walk *w, int64_t v, uint32_t kind)
{
    if (kind == GQUERY_ARITHMETIC_I16 ? v != (int16_t)v : v != (int32_t)v)
        raise(w, GQUERY_E_I16_RANGE + kind);
    return (uint64_t)v;
}

static uint64_t round_double(walk *w, double v, uint32_t kind)
{
    const double least = (double)least_of[kind];

    v = rint(v);
    if (isnan(v) || v < least || v >= -least) {
        raise(w, GQUERY_E_I16_RANGE + kind);
        return 0;
    }
    return (uint64_t)(int64_t)v;
}

static uint64_t shorten(walk *w, double v)
{
    const float f = (float)v;

    if (isinf(f) && !isinf(v))
        raise(w, GQUERY_E_OVERFLOW);
    if (f == 0 && v != 0)
        raise(w, GQUERY_E_UNDERFLOW);
    return bits_of((double)f);
}

static uint64_t order_key(double v, bool keeps_sign)
{
    if (isnan(v))
        return 0x7ff8000000000000u;
    return v < 0 || (keeps_sign && signbit(v)) ? ~bits_of(-v) : bits_of(fabs(v));
}

/* ---- fields of dates and timestamps: by the C library's calendar */

#define DAY_US INT64_C(86400000000)
#define EPOCH_2000_S 946684800

static int number_of(const char *format, const struct tm *tm)
{
    char text[32];

    strftime(text, sizeof text, format, tm);
    return atoi(text);
}

static int64_t year_of(int64_t year)
{
    return year > 0 ? year : year - 1;
}

/* The beginning of the day, in microseconds since 2000. */
static int64_t beginning_of(struct tm tm)
{
    return ((int64_t)timegm(&tm) - EPOCH_2000_S) * 1000000;
}

static int64_t field_of_day(uint32_t what, int64_t days)
{
    const time_t seconds = days * 86400 + EPOCH_2000_S;
    struct tm tm;

    gmtime_r(&seconds, &tm);
    tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
    switch (what) {
    case GQUERY_YEAR: return year_of(tm.tm_year + INT64_C(1900));
    case GQUERY_QUARTER: return tm.tm_mon / 3 + 1;
    case GQUERY_MONTH: return tm.tm_mon + 1;
    case GQUERY_WEEK: return number_of("%V", &tm);
    case GQUERY_ISO_YEAR: return year_of(number_of("%G", &tm));
    case GQUERY_DAY: return tm.tm_mday;
    case GQUERY_DAY_OF_YEAR: return tm.tm_yday + 1;
    case GQUERY_DAY_OF_WEEK: return tm.tm_wday;
    case GQUERY_ISO_DAY_OF_WEEK: return number_of("%u", &tm);
    case GQUERY_TO_YEAR: tm.tm_mon = 0, tm.tm_mday = 1; break;
    case GQUERY_TO_QUARTER: tm.tm_mon -= tm.tm_mon % 3, tm.tm_mday = 1; break;
    case GQUERY_TO_MONTH: tm.tm_mday = 1; break;
    case GQUERY_TO_WEEK: tm.tm_mday -= number_of("%u", &tm) - 1; break;
    default: break;
    }
    return beginning_of(tm);
}

static int64_t field_of_time(uint32_t what, int64_t time)
{
    const int64_t units[] = {3600 * INT64_C(1000000), 60 * INT64_C(1000000), 1000000};

    switch (what) {
    case GQUERY_HOUR: return time / units[0];
    case GQUERY_MINUTE: return time / units[1] % 60;
    case GQUERY_SECOND: return time % units[1];
    default: return time / units[what - GQUERY_TO_HOUR] * units[what - GQUERY_TO_HOUR];
    }
}

static uint64_t checked_timestamp(walk *w, __int128 v)
{
    if (v < INT64_C(-211813488000000000) || v >= INT64_C(9223371331200000000))
        raise(w, GQUERY_E_FIELD);
    return (uint64_t)v;
}

static uint64_t infinite_field(walk *w, uint32_t what, bool is_less)
{
    if (what == GQUERY_TO_DATE)
        return is_less ? (uint64_t)INT32_MIN : INT32_MAX;
    if (what < GQUERY_TO_TIMESTAMP)
        raise(w, GQUERY_E_FIELD);
    return is_less ? (uint64_t)INT64_MIN : INT64_MAX;
}

static uint64_t take_field(walk *w, const gquery_instruction *i, int64_t v)
{
    const uint32_t what = i->b & 0xff, of = i->b >> 8;
    const int64_t offset = (int64_t)i->value;
    const bool is_date = of == GQUERY_OF_DATE;
    const __int128 local = is_date ? (__int128)v * DAY_US : (__int128)v + offset;
    const int64_t days = (int64_t)(local < 0 ? -((-local + DAY_US - 1) / DAY_US) : local / DAY_US),
                  time = (int64_t)(local - (__int128)days * DAY_US);

    if (of == GQUERY_OF_TIME)
        return what == GQUERY_EPOCH ? (uint64_t)v : (uint64_t)field_of_time(what, v);
    if (v == (is_date ? INT32_MIN : INT64_MIN) || v == (is_date ? INT32_MAX : INT64_MAX))
        return infinite_field(w, what, v < 0);
    if (days < -2451545 && (is_date || what != GQUERY_EPOCH)) /* before 4714-11-24 BC */
        raise(w, GQUERY_E_FIELD);
    if (what == GQUERY_EPOCH)
        return is_date ? (uint64_t)(v * 86400 + EPOCH_2000_S)
                       : (uint64_t)v + EPOCH_2000_S * UINT64_C(1000000);
    if (what == GQUERY_TO_DATE)
        return (uint64_t)days;
    if (what == GQUERY_TO_TIMESTAMP)
        return checked_timestamp(w, is_date ? local - offset : local);
    if (what >= GQUERY_TO_HOUR)
        return checked_timestamp(w, (__int128)days * DAY_US + field_of_time(what, time) - offset);
    if (what >= GQUERY_HOUR && what <= GQUERY_SECOND)
        return (uint64_t)field_of_time(what, time);
    return what < GQUERY_TO_YEAR ? (uint64_t)field_of_day(what, days)
                                 : checked_timestamp(w, (__int128)field_of_day(what, days) - offset);
}

static void convert(walk *w, const gquery_instruction *i)
{
    const datum d = pop(w);
    uint64_t v = 0;

    if (!d.is_null)
        switch (i->op) {
        case GQUERY_NEGATE: v = negate(w, i->b, d.bits); break;
        case GQUERY_ABS: v = absolute(w, i->b, d.bits); break;
        case GQUERY_TO_I16: v = check_range(w, (int64_t)d.bits, GQUERY_ARITHMETIC_I16); break;
        case GQUERY_TO_I32: v = check_range(w, (int64_t)d.bits, GQUERY_ARITHMETIC_I32); break;
        case GQUERY_F64_TO_I16:
            v = round_double(w, double_of(d.bits), GQUERY_ARITHMETIC_I16);
            break;
        case GQUERY_F64_TO_I32:
            v = round_double(w, double_of(d.bits), GQUERY_ARITHMETIC_I32);
            break;
        case GQUERY_F64_TO_I64:
            v = round_double(w, double_of(d.bits), GQUERY_ARITHMETIC_I64);
            break;
        case GQUERY_I64_TO_F64: v = bits_of((double)(int64_t)d.bits); break;
        case GQUERY_I64_TO_F32: v = bits_of((double)(float)(int64_t)d.bits); break;
        case GQUERY_F64_TO_F32: v = shorten(w, double_of(d.bits)); break;
        case GQUERY_INVERT:
            v = i->b == 1 ? d.bits + (UINT64_C(1) << 63) : UINT64_MAX - d.bits;
            break;
        case GQUERY_FIELD: v = take_field(w, i, (int64_t)d.bits); break;
        default: v = order_key(double_of(d.bits), i->b == 1);
        }
    push(w, d.is_null, v);
}

static uint64_t find_word(const int64_t *values, uint64_t list, uint64_t wanted, uint32_t *error)
{
    for (uint32_t i = 0; i < list >> 32; i++)
        if ((uint32_t)values[(uint32_t)list + i] == (uint32_t)wanted)
            return (uint64_t)values[(uint32_t)list + i];
    *error = GQUERY_E_FIELD;
    return 0;
}

static void apply_function(walk *w, const gquery_instruction *i)
{
    const datum y = pop(w), x = i->b >= GQUERY_BITS_AND ? pop(w) : y;
    uint32_t error = GQUERY_E_NONE;

    if (i->b >= GQUERY_LEAST_I64 && x.is_null != y.is_null)
        push(w, false, x.is_null ? y.bits : x.bits);
    else if (x.is_null || y.is_null)
        push(w, true, 0);
    else if (i->b == GQUERY_FIND_I64)
        push(w, false, find_word(w->program->values, i->value, x.bits, &error));
    else
        push(w, false, query_function(i->b, x.bits, y.bits, i->value, &error));
    if (error != GQUERY_E_NONE)
        raise(w, error);
}

static void test_value(walk *w, uint32_t op)
{
    const datum d = pop(w);

    switch (op) {
    case GQUERY_NOT: push(w, d.is_null, d.bits == 0); break;
    case GQUERY_IS_NULL: push(w, false, d.is_null); break;
    case GQUERY_IS_TRUE: push(w, false, is_true(d)); break;
    default: push(w, false, !d.is_null && d.bits == 0);
    }
}

/* ---- groups */

static host_group *find_group(host_result *result, uint32_t nulls, const uint64_t *keys,
                              uint32_t key_count)
{
    host_group *g = result->groups;

    for (uint32_t i = 0; i < result->group_count; i++, g++)
        if (g->nulls == nulls && memcmp(g->keys, keys, key_count * sizeof *keys) == 0)
            return g;
    memset(g, 0, sizeof *g);
    g->nulls = nulls;
    memcpy(g->keys, keys, key_count * sizeof *keys);
    result->group_count++;
    return g;
}

static void start_group(const gquery_program *program, host_group *g)
{
    for (uint32_t i = 0; i < program->code_count; i++)
        if (program->code[i].op == GQUERY_AGGREGATE)
            g->state[program->code[i].a] = program->code[i].b == GQUERY_MIN_I64 ? (uint64_t)INT64_MAX
                                           : program->code[i].b == GQUERY_MAX_I64 ? (uint64_t)INT64_MIN
                                           : program->code[i].b == GQUERY_AND_I64 ? UINT64_MAX
                                                                                  : 0;
}

static void group_row(walk *w, uint32_t key_count)
{
    const uint32_t before = w->result->group_count;
    uint64_t keys[GQUERY_KEYS_MAX] = {0};
    uint32_t nulls = 0;

    for (uint32_t k = key_count; k-- > 0;) {
        const datum d = pop(w);

        nulls |= (uint32_t)d.is_null << k;
        keys[k] = d.is_null ? 0 : d.bits;
    }
    w->group = find_group(w->result, nulls, keys, key_count);
    if (w->result->group_count > before)
        start_group(w->program, w->group);
}

static void add_double(double_sum *s, long double v)
{
    s->has_nan = s->has_nan || isnan(v);
    s->has_up = s->has_up || (isinf(v) && v > 0);
    s->has_down = s->has_down || (isinf(v) && v < 0);
    s->has_zero = s->has_zero || (v == 0 && !signbit(v));
    if (isfinite(v)) {
        s->sum += v;
        s->size += fabsl(v);
    }
    s->count++;
}

static void aggregate(walk *w, uint32_t first, uint32_t what)
{
    uint64_t *word = &w->group->state[first];
    const datum d = what == GQUERY_COUNT_ROWS ? (datum){0} : pop(w);
    const int64_t v = (int64_t)d.bits;
    __int128 sum;

    if (d.is_null)
        return;
    switch (what) {
    case GQUERY_COUNT_ROWS:
    case GQUERY_COUNT: *word += 1; break;
    case GQUERY_SUM_I64:
        sum = wide(word[0], word[1]) + v;
        word[0] = (uint64_t)sum;
        word[1] = (uint64_t)(sum >> 64);
        break;
    case GQUERY_SUM_F64: add_double(&w->group->sums[first], (long double)double_of(d.bits)); break;
    case GQUERY_MOMENTS_F64:
        *word += 1;
        add_double(&w->group->sums[first], (long double)double_of(d.bits));
        add_double(&w->group->sums[first + 1],
                   (long double)double_of(d.bits) * (long double)double_of(d.bits));
        break;
    case GQUERY_MIN_I64: *word = v < (int64_t)*word ? d.bits : *word; break;
    case GQUERY_MAX_I64: *word = v > (int64_t)*word ? d.bits : *word; break;
    case GQUERY_AND_I64: *word &= d.bits; break;
    case GQUERY_OR_I64: *word |= d.bits; break;
    default: *word ^= d.bits;
    }
}

/* ---- marks and lists */

static void emit_row(walk *w, uint32_t keys)
{
    int64_t *entry = w->result->entries[w->result->entry_count++];

    for (uint32_t k = keys; k-- > 0;)
        entry[k] = (int64_t)pop(w).bits;
    entry[keys] = (int64_t)w->row;
}

/* ---- a row */

/* The instruction behind which the row goes on: the ELSE or END that belongs to `at`; to_end: the END. */
static uint32_t skip_branch(const gquery_program *program, uint32_t at, bool to_end)
{
    for (int nested = 0;;) {
        const uint16_t op = program->code[++at].op;

        if (nested == 0 && (op == GQUERY_END || (op == GQUERY_ELSE && !to_end)))
            return at;
        nested += (op == GQUERY_IF) - (op == GQUERY_END);
    }
}

static void step(walk *w, uint32_t *at)
{
    const gquery_instruction *i = &w->program->code[*at];

    switch (i->op) {
    case GQUERY_LOAD: load(w, i->a); break;
    case GQUERY_CONSTANT: push(w, false, i->value); break;
    case GQUERY_NULL: push(w, true, 0); break;
    case GQUERY_UNKNOWN:
        raise(w, GQUERY_E_UNKNOWN);
        push(w, false, 0);
        break;
    case GQUERY_LOAD_NULL: push(w, false, column_is_null(w, i->a)); break;
    case GQUERY_COPY: w->stack[w->depth] = w->stack[w->depth - 1 - i->a], w->depth++; break;
    case GQUERY_REPLACE: w->stack[w->depth - 2] = w->stack[w->depth - 1], w->depth--; break;
    case GQUERY_IN: look_up(w, w->program->values + i->a, i->b); break;
    case GQUERY_TEXT: test_text(w, i); break;
    case GQUERY_FUNCTION: apply_function(w, i); break;
    case GQUERY_IN_PAIRS: look_up_pair(w, w->program->values + i->a, i->b); break;
    case GQUERY_AND:
    case GQUERY_OR: combine(w, i->op == GQUERY_AND); break;
    case GQUERY_IF:
        if (!is_true(pop(w)))
            *at = skip_branch(w->program, *at, false);
        break;
    case GQUERY_ELSE: *at = skip_branch(w->program, *at, true); break;
    case GQUERY_END: break;
    case GQUERY_MARK: w->result->marked[w->row / 8] |= (uint8_t)(1u << w->row % 8); break;
    case GQUERY_EMIT: emit_row(w, i->a); break;
    case GQUERY_GROUP: group_row(w, i->a); break;
    case GQUERY_AGGREGATE: aggregate(w, i->a, i->b); break;
    default:
        if (i->op >= GQUERY_EQ && i->op <= GQUERY_DISTINCT)
            compare(w, i->op, i->b);
        else if (i->op >= GQUERY_ADD && i->op <= GQUERY_MODULO)
            calculate(w, i->op, i->b);
        else if (i->op >= GQUERY_NOT && i->op <= GQUERY_IS_FALSE)
            test_value(w, i->op);
        else
            convert(w, i);
    }
}

static void evaluate_row(walk *w)
{
    w->depth = 0;
    w->error = GQUERY_E_NONE;
    for (uint32_t at = 0; at < w->program->code_count && w->error == GQUERY_E_NONE; at++) {
        if (w->program->code[at].op == GQUERY_FILTER && !is_true(pop(w)))
            return;
        if (w->program->code[at].op != GQUERY_FILTER)
            step(w, &at);
    }
    w->result->errors |= w->error != GQUERY_E_NONE ? 1u << w->error : 0;
}

void query_evaluate(const gquery_program *program, const host_table *table, uint32_t keys,
                    host_result *result)
{
    walk w = {.program = program, .table = table, .result = result, .keys = keys};

    result->errors = result->group_count = result->entry_count = 0;
    memset(result->marked, 0, sizeof result->marked);
    if (keys == 0) {
        w.group = find_group(result, 0, (const uint64_t[1]){0}, 0);
        start_group(program, w.group);
    }
    for (w.row = 0; w.row < table->rows; w.row++) {
        bool is_dead = false;

        for (int i = 0; i < 2; i++)
            is_dead = is_dead || (w.row < table->dead_rows[i] && bit_of(table->dead[i], w.row));
        if (!is_dead)
            evaluate_row(&w);
    }
}
