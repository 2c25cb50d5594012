/* Query programs on the CPU: each row by itself goes through the code, over branches that are not its own, as PostgreSQL would evaluate
 * the expressions. Integers are those of the compiler, with its checks for overflow; so are floats. */
#include "tests/prop/query_evaluate.h"

#include <math.h>
#include <string.h>

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

static double double_of(uint64_t bits)
{
    double v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

static uint64_t bits_of(double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    return bits;
}

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
    default: return ((const uint64_t *)values)[row];
    }
}

static bool column_is_null(const walk *w, uint32_t column)
{
    const host_column *c = &w->table->columns[column];

    return c->has_nulls ? !bit_of(c->nulls, w->row) : !c->has_values;
}

static void load(walk *w, uint32_t column)
{
    const host_column *c = &w->table->columns[column];
    const bool is_null = column_is_null(w, column);

    if (w->program->columns[column].form == GQUERY_I128) {
        push(w, is_null, is_null ? 0 : ((const uint64_t *)(const void *)c->values)[2 * w->row]);
        push(w, is_null, is_null ? 0 : ((const uint64_t *)(const void *)c->values)[2 * w->row + 1]);
    } else {
        push(w, is_null, is_null ? 0 : read_value(&w->program->columns[column], c->values, w->row));
    }
}

/* ---- comparisons */

static int order_of(__int128 a, __int128 b)
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
    const bool is_wide = order == GQUERY_ORDER_I128;
    const datum b2 = is_wide ? pop(w) : (datum){0}, b = pop(w);
    const datum a2 = is_wide ? pop(w) : (datum){0}, a = pop(w);
    int c;

    if (a.is_null || b.is_null) {
        push(w, op != GQUERY_DISTINCT, a.is_null != b.is_null);
        return;
    }
    if (is_wide)
        c = order_of(wide(a.bits, a2.bits), wide(b.bits, b2.bits));
    else if (order == GQUERY_ORDER_F64)
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

static void raise(walk *w, uint32_t error)
{
    if (w->error == GQUERY_E_NONE)
        w->error = error;
}

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
        case GQUERY_INVERT: v = UINT64_MAX - d.bits; break;
        default: v = order_key(double_of(d.bits), i->b == 1);
        }
    push(w, d.is_null, v);
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

static void add_double(double_sum *s, double v)
{
    s->has_nan = s->has_nan || isnan(v);
    s->has_up = s->has_up || (isinf(v) && v > 0);
    s->has_down = s->has_down || (isinf(v) && v < 0);
    s->has_zero = s->has_zero || (v == 0 && !signbit(v));
    if (isfinite(v)) {
        s->sum += (long double)v;
        s->size += fabsl((long double)v);
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
    case GQUERY_SUM_F64: add_double(&w->group->sums[first], double_of(d.bits)); break;
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
