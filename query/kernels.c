/* Query programs on the device: program.h says what they mean, kernels.h who calls these kernels with what.
 *
 * An interpreter. A block has tiles of GQUERY_EACH rows a thread; row r of a thread is r warps' lanes behind its
 * first one, so that neighbouring lanes load neighbouring values, from addresses that are a constant apart. Each
 * instruction is decoded once for these rows, by all threads alike. In registers are the top of the stack (four
 * values), the bits of NULLs (one for each value of each row) and those of active rows; the rest of the stack is in
 * shared memory, where the same value of neighbouring threads lies side by side. What is on the stack in rows that
 * are not active stays as it is, since they may be active again behind GQUERY_ELSE or GQUERY_END.
 *
 * Programs have been through gquery_check() and gquery_fuse(): nothing is checked here, and where the right operand
 * of an operation is a column or a constant, it does not go over the stack.
 *
 * Operations that need many registers go through shared memory row by row, so that the others do not pay for them.
 */
#include <gvmem/device/kernel.h>

#include "query/kernel_calendar.h"
#include "query/kernel_columns.h"
#include "query/kernel_functions.h"
#include "query/kernel_groups.h"
#include "query/kernel_join.h"
#include "query/kernel_lists.h"
#include "query/kernel_machine.h"
#include "query/kernel_partial.h"
#include "query/kernel_text.h"
#include "query/kernel_values.h"
#include "query/kernels.h"

#ifdef GQUERY_JOINED
#define QUERY_SCAN query_join
#else
#define QUERY_SCAN query_scan
#endif

/* ---- operands */

/* The right one of two operands, and which rows have NULL there; the left one is the top then, in the result's place. */
GVM_DEVICE uint32_t take_right(const gquery_scan *p, machine *m, const gquery_instruction *i,
                               uint64_t *right)
{
    const uint32_t mode = i->b & GQUERY_OPERAND;
    uint32_t r, nulls = 0;

    if (mode == GQUERY_OPERAND_COLUMN) {
        const gquery_column *column = &m->program->columns[i->a];

        nulls = column_nulls(m, &p->sources[i->a]);
        load_values(m, &p->sources[i->a], right);
        if ((p->sources[i->a].has & GQUERY_HAS_BIAS) != 0)
            add_bias(m, column, nulls, right);
        return nulls;
    }
    GVM_UNROLL
    for (r = 0; r < EACH; r++)
        right[r] = mode == GQUERY_OPERAND_VALUE ? i->value : m->top[r];
    if (mode == 0) {
        nulls = nulls_of(m, m->depth - 1);
        pop(m);
    }
    return nulls;
}

/* ---- comparisons */

/* Of all rows, the values at left and right. outcomes: which of less, equal and greater. */
GVM_DEVICE uint32_t compare_rows(uint32_t order, uint32_t outcomes, const uint64_t *left,
                                 const uint64_t *right)
{
    uint32_t r, is = 0;

    if (order == GQUERY_ORDER_I64) {
        GVM_UNROLL
        for (r = 0; r < EACH; r++)
            is |= (outcomes >> (compare_i64(left[r], right[r]) + 1) & 1) << r;
    } else {
        GVM_UNROLL
        for (r = 0; r < EACH; r++)
            is |= (outcomes >> (compare_f64(left[r], right[r]) + 1) & 1) << r;
    }
    return is;
}

/* The left value is at the top, and the result comes there. */
GVM_DEVICE void set_compared(machine *m, uint32_t op, uint32_t is, uint32_t left_nulls,
                             uint32_t right_nulls)
{
    const uint32_t nulls = left_nulls | right_nulls;

    if (op == GQUERY_DISTINCT)
        is = (is & ~nulls) | (left_nulls ^ right_nulls);
    set_top_bits(m, is);
    set_nulls(m, op == GQUERY_DISTINCT ? 0 : nulls);
}

GVM_DEVICE void compare(const gquery_scan *p, machine *m, const gquery_instruction *i)
{
    const uint32_t op = i->op & GQUERY_OPERATION, outcomes = i->b >> GQUERY_OUTCOMES_SHIFT & 7,
                   order = i->b & GQUERY_KIND;
    uint64_t right[EACH];
    const uint32_t right_nulls = take_right(p, m, i, right);

    set_compared(m, op, compare_rows(order, outcomes, m->top, right), nulls_of(m, m->depth - 1),
                 right_nulls);
}

/* By its instruction. */
GVM_DEVICE void test_by_code(const gquery_scan *p, machine *m, const gquery_test *test)
{
    const gquery_instruction *i = &m->program->code[test->at];
    const gquery_column *column = &m->program->columns[test->column];
    uint64_t left[EACH], right[EACH];
    uint32_t r;

    load_values(m, &p->sources[test->column], left);
    if ((p->sources[test->column].has & GQUERY_HAS_BIAS) != 0)
        add_bias(m, column, 0, left);
    GVM_UNROLL
    for (r = 0; r < EACH; r++)
        right[r] = i->value;
    m->active &= compare_rows(i->b & GQUERY_KIND, i->b >> GQUERY_OUTCOMES_SHIFT & 7, left, right);
}

/* Rows whose values are from low to high; others that are not active may be there as well. */
#define ROWS_WITHIN(type) \
    const type *values = (const type *)(uintptr_t)source->values; \
    const type low = (type)test->low, high = (type)test->high; \
    type v[EACH]; \
    uint32_t r, rows = 0; \
    GVM_UNROLL \
    for (r = 0; r < EACH; r++) \
        v[r] = has(m->active, r) ? values[row_at(m, r)] : 0; \
    GVM_UNROLL \
    for (r = 0; r < EACH; r++) \
        rows |= (uint32_t)(v[r] >= low && v[r] <= high) << r; \
    return rows

GVM_DEVICE uint32_t rows_within_i32(const machine *m, const gquery_source *source,
                                    const gquery_test *test)
{
    ROWS_WITHIN(int32_t);
}

GVM_DEVICE uint32_t rows_within_i64(const machine *m, const gquery_source *source,
                                    const gquery_test *test)
{
    ROWS_WITHIN(int64_t);
}

GVM_DEVICE void run_test(const gquery_scan *p, machine *m, const gquery_test *test)
{
    const gquery_source *source = &p->sources[test->column];
    uint32_t rows;

    m->active &= ~column_nulls(m, source);
    if (test->kind == GQUERY_TEST_CODE) {
        test_by_code(p, m, test);
        return;
    }
    rows = test->kind == GQUERY_TEST_I32 ? rows_within_i32(m, source, test)
                                         : rows_within_i64(m, source, test);
    m->active &= test->is_outside ? ~rows : rows;
}

GVM_DEVICE void look_up(machine *m, uint32_t first, uint32_t count)
{
    const int64_t *list = m->program->values + first;
    uint32_t r, is = 0;

    store_top(m);
    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++)
        if (has(m->active, r))
            is |= (uint32_t)is_in(list, count, (int64_t)*place(m, m->depth - 1, r)) << r;
    set_top_bits(m, is);
}

GVM_DEVICE void look_up_pairs(machine *m, uint32_t first, uint32_t count)
{
    const int64_t *list = m->program->values + first;
    const uint32_t nulls = nulls_of(m, m->depth - 1) | nulls_of(m, m->depth - 2);
    uint32_t r, is = 0;

    store_top(m);
    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++)
        if (has(m->active, r))
            is |= (uint32_t)is_in_pairs(list, count, (int64_t)*place(m, m->depth - 2, r),
                                        (int64_t)*place(m, m->depth - 1, r))
                  << r;
    pop(m);
    set_top_bits(m, is);
    set_nulls(m, nulls);
}

/* ---- booleans */

GVM_DEVICE void combine(machine *m, int is_and)
{
    const uint32_t right_nulls = nulls_of(m, m->depth - 1), left_nulls = nulls_of(m, m->depth - 2);
    const uint32_t right = top_bits(m);
    uint32_t left, is, decided;

    pop(m);
    left = top_bits(m);
    is = is_and ? left & right : left | right;
    decided = is_and ? (~left & ~left_nulls) | (~right & ~right_nulls)
                     : (left & ~left_nulls) | (right & ~right_nulls);
    set_top_bits(m, is_and ? is & ~decided : is | decided);
    set_nulls(m, (left_nulls | right_nulls) & ~decided);
}

GVM_DEVICE void set_boolean(machine *m, uint32_t is)
{
    set_top_bits(m, is);
    set_nulls(m, 0);
}

/* ---- arithmetic */

/* x: the left value, y: the right one; active rows without NULL raise errors. */
#define ARITHMETIC_EACH(result) \
    GVM_UNROLL \
    for (r = 0; r < EACH; r++) { \
        const uint64_t x = m->top[r], y = right[r]; \
        uint64_t v; \
        error = 0; \
        v = (result); \
        set_top(m, r, v); \
        if (error != 0 && has(valid, r) && m->error == 0) \
            m->error = error; \
    } \
    break

GVM_DEVICE void add_or_subtract(machine *m, int is_add, uint32_t kind, const uint64_t *right,
                                uint32_t valid)
{
    uint32_t r, error;

    switch (kind) {
    case GQUERY_ARITHMETIC_I16:
    case GQUERY_ARITHMETIC_I32:
    case GQUERY_ARITHMETIC_DECIMAL: ARITHMETIC_EACH(narrow(is_add ? x + y : x - y, kind, &error));
    case GQUERY_ARITHMETIC_I64:
        ARITHMETIC_EACH(is_add ? add_i64(x, y, &error) : subtract_i64(x, y, &error));
    default:
        ARITHMETIC_EACH(sum_f64(to_double(x), is_add ? to_double(y) : -to_double(y), kind, &error));
    }
}

GVM_DEVICE void multiply(machine *m, uint32_t kind, const uint64_t *right, uint32_t valid)
{
    uint32_t r, error;

    switch (kind) {
    case GQUERY_ARITHMETIC_I16:
    case GQUERY_ARITHMETIC_I32: ARITHMETIC_EACH(narrow(x * y, kind, &error));
    case GQUERY_ARITHMETIC_I64: ARITHMETIC_EACH(multiply_i64(x, y, &error));
    case GQUERY_ARITHMETIC_DECIMAL: ARITHMETIC_EACH(multiply_decimals(x, y, &error));
    default: ARITHMETIC_EACH(product_f64(to_double(x), to_double(y), kind, &error));
    }
}

GVM_DEVICE void divide(machine *m, int remainder, uint32_t kind, uint32_t valid)
{
    uint32_t r, error;
    uint64_t v;

    store_top(m);
    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++) {
        uint64_t *left = place(m, m->depth - 2, r);
        const uint64_t y = *place(m, m->depth - 1, r);

        if (!has(valid, r))
            continue;
        error = 0;
        v = kind >= GQUERY_ARITHMETIC_F32 ? quotient_f64(to_double(*left), to_double(y), kind, &error)
                                          : divide_i64(*left, y, kind, remainder, &error);
        *left = v;
        if (error != 0 && m->error == 0)
            m->error = error;
    }
}

/* Row by row, in few registers. */
GVM_DEVICE void divide_all(machine *m, int remainder, uint32_t kind)
{
    const uint32_t nulls = nulls_of(m, m->depth - 1) | nulls_of(m, m->depth - 2);

    divide(m, remainder, kind, m->active & ~nulls);
    pop(m);
    set_nulls(m, nulls);
}

GVM_DEVICE void calculate(const gquery_scan *p, machine *m, const gquery_instruction *i)
{
    const uint32_t kind = i->b & GQUERY_KIND, op = i->op & GQUERY_OPERATION;
    uint64_t right[EACH];
    uint32_t nulls = take_right(p, m, i, right);

    nulls |= nulls_of(m, m->depth - 1); /* of the left value, once the other has left the stack */

    if (op == GQUERY_MULTIPLY)
        multiply(m, kind, right, m->active & ~nulls);
    else
        add_or_subtract(m, op == GQUERY_ADD, kind, right, m->active & ~nulls);
    set_nulls(m, nulls);
}

/* All but the most frequent one row by row, in few registers. */
GVM_DEVICE void convert(machine *m, uint32_t op, uint32_t kind)
{
    const uint32_t valid = m->active & ~nulls_of(m, m->depth - 1);
    uint32_t r, error;

    if (op == GQUERY_ORDER_KEY) {
        GVM_UNROLL
        for (r = 0; r < EACH; r++)
            if (has(valid, r))
                m->top[r] = order_key(m->top[r], kind != 0);
        return;
    }
    store_top(m);
    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++) {
        uint64_t *value = place(m, m->depth - 1, r);

        if (!has(valid, r))
            continue;
        error = 0;
        *value = convert_value(op, kind, *value, &error);
        if (error != 0 && m->error == 0)
            m->error = error;
    }
    load_top(m);
}

/* Row by row, in few registers. */
GVM_DEVICE void take_field(machine *m, uint32_t b, uint64_t offset)
{
    const uint32_t valid = m->active & ~nulls_of(m, m->depth - 1);
    uint32_t r;

    store_top(m);
    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++) {
        uint64_t *value = place(m, m->depth - 1, r);

        if (!has(valid, r))
            continue;
        *value = calendar(b & 0xff, b >> 8, (int64_t)offset, *value);
        if (*value == BAD_CALENDAR && m->error == 0)
            m->error = GQUERY_E_FIELD;
    }
    load_top(m);
}

/* ---- which rows are active */

GVM_DEVICE void begin_if(machine *m)
{
    const uint32_t taken = m->active & true_rows(m);

    pop(m);
    m->outer = m->outer << 2 * EACH | m->active << EACH | taken;
    m->floors = m->floors << 4 | m->depth;
    m->nested++;
    m->active = taken;
}

GVM_DEVICE void begin_else(machine *m)
{
    const uint32_t outer = (uint32_t)(m->outer >> EACH) & ALL_ROWS;

    store_top(m);
    m->active = outer & ~(uint32_t)m->outer;
    m->depth = (uint32_t)m->floors & 15;
    load_top(m);
}

GVM_DEVICE void end_if(machine *m)
{
    m->active = (uint32_t)(m->outer >> EACH) & ALL_ROWS;
    m->outer >>= 2 * EACH;
    m->floors >>= 4;
    m->nested--;
}

/* ---- aggregates */

/* Where a sum is not finite any more: was it, and are the values? */
GVM_DEVICE void check_sum(machine *m, uint64_t sum, uint32_t rows)
{
    uint32_t r, error = 0;

    GVM_UNROLL
    for (r = 0; r < EACH; r++)
        if (has(rows, r))
            sum = add_f64(sum, m->top[r], &error);
    if (error != 0 && m->error == 0)
        m->error = error;
}

/* The rows' values into the thread's own state. */
GVM_DEVICE void add_to_state(machine *m, uint32_t first, uint32_t aggregate, uint32_t rows)
{
    uint64_t *word = m->state + first * gvm_warp_size();
    uint64_t v = *word;
    uint32_t r;

    if (aggregate <= GQUERY_COUNT) {
        v += gvm_count_ones(rows);
    } else if (aggregate == GQUERY_SUM_I64) {
        uint64_t high = word[gvm_warp_size()];

        GVM_UNROLL
        for (r = 0; r < EACH; r++) {
            const uint64_t x = has(rows, r) ? m->top[r] : 0;

            v += x;
            high += (uint64_t)((int64_t)x >> 63) + (v < x);
        }
        word[gvm_warp_size()] = high;
    } else if (aggregate == GQUERY_MOMENTS_F64) {
        store_top(m);
        GVM_NO_UNROLL
        for (r = 0; r < EACH; r++)
            if (has(rows, r))
                merge_moments(word, gvm_warp_size(), moments_of(*place(m, m->depth - 1, r)));
        return;
    } else {
        GVM_UNROLL
        for (r = 0; r < EACH; r++)
            if (has(rows, r))
                v = fold(aggregate, v, m->top[r]);
        if (aggregate == GQUERY_SUM_F64 && !is_finite(to_double(v)))
            check_sum(m, *word, rows);
    }
    *word = v;
}

/* ---- groups */

/* Among the block's own, or in device memory. */
GVM_DEVICE uint64_t find_state(const gquery_scan *p, machine *m, const row_keys *keys)
{
    const uint64_t state = find_local(p, m, keys);

    return state != 0 ? state
                      : find_group((gquery_groups *)(uintptr_t)p->groups, keys, hash_keys(keys));
}

/* Row by row. Lanes wait for each other after each search, as the compiler lets lanes that have
 * parted go on alone: through the rest of the program they would run one after the other. */
GVM_DEVICE void find_states(const gquery_scan *p, machine *m, uint32_t first, uint32_t count,
                            uint32_t rows, uint32_t lanes)
{
    uint32_t r, k;

    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++) {
        row_keys keys = {place(m, first, r), EACH * gvm_warp_size(), count, 0};
        uint64_t state;

        if (has(rows, r)) {
            for (k = 0; k < count; k++)
                keys.nulls |= (nulls_of(m, first + k) >> r & 1) << k;
            state = find_state(p, m, &keys);
            *place(m, p->depth, r) = state;
            if (state == 0)
                m->active &= ~(1u << r);
        }
        gvm_warp_sync_lanes(lanes);
    }
}

/* NULLs among the keys are 0. */
GVM_DEVICE void clear_null_keys(const machine *m, uint32_t first, uint32_t count)
{
    uint32_t r, k, nulls;

    GVM_NO_UNROLL
    for (k = 0; k < count; k++) {
        nulls = nulls_of(m, first + k) & m->active;
        if (nulls == 0)
            continue;
        GVM_UNROLL
        for (r = 0; r < EACH; r++)
            if (has(nulls, r))
                *place(m, first + k, r) = 0;
    }
}

/* Each row's state goes behind the stack; rows without one are out. */
GVM_DEVICE void group(const gquery_scan *p, machine *m, uint32_t count)
{
    const uint32_t first = m->depth - count;
    const uint32_t lanes = gvm_warp_active();
    uint32_t rows = m->active;

    store_top(m);
    clear_null_keys(m, first, count);
    if (looks_here(p, m))
        rows &= ~find_local_rows(p, m, first, count);
    if (gvm_warp_any(lanes, rows != 0))
        find_states(p, m, first, count, rows, lanes);
    m->depth = first;
    load_top(m);
}

GVM_DEVICE void add_to_groups(const gquery_scan *p, machine *m, uint32_t first, uint32_t aggregate,
                              uint32_t rows)
{
    uint32_t r;

    if (p->local_groups > 0 && aggregate <= GQUERY_SUM_I64) {
        rows = add_local_rows(p, m, first, aggregate, rows);
        if (rows == 0)
            return;
    }
    store_top(m);
    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++) {
        const uint64_t state = has(rows, r) ? *place(m, p->depth, r) : 0;
        const uint64_t v = aggregate == GQUERY_COUNT_ROWS ? 0 : *place(m, m->depth - 1, r);

        if (is_local(state))
            add_to_local(state, first, aggregate, v);
        else if (state != 0)
            add_to_group(aggregate, (uint64_t *)(uintptr_t)state + first, v);
    }
}

GVM_DEVICE void aggregate_rows(const gquery_scan *p, machine *m, uint32_t first, uint32_t aggregate)
{
    const uint32_t rows = aggregate == GQUERY_COUNT_ROWS ? m->active
                                                         : m->active & ~nulls_of(m, m->depth - 1);

    if (p->groups != 0)
        add_to_groups(p, m, first, aggregate, rows);
    else
        add_to_state(m, first, aggregate, rows);
    if (aggregate != GQUERY_COUNT_ROWS)
        pop(m);
}

/* ---- the interpreter */

GVM_DEVICE void copy_value(machine *m, uint32_t below)
{
    const uint32_t from = m->depth - 1 - below, nulls = nulls_of(m, from);
    uint32_t r;

    begin_push(m);
    GVM_UNROLL
    for (r = 0; r < EACH; r++)
        m->top[r] = *place(m, from, r);
    end_push(m, nulls);
}

GVM_DEVICE void replace_value(machine *m)
{
    const uint32_t nulls = nulls_of(m, m->depth - 1);
    uint32_t r;

    m->depth--;
    GVM_UNROLL
    for (r = 0; r < EACH; r++)
        if (!has(m->active, r))
            m->top[r] = *place(m, m->depth - 1, r);
    set_nulls(m, nulls);
}

GVM_DEVICE void run_boolean(machine *m, uint32_t op)
{
    const uint32_t nulls = nulls_of(m, m->depth - 1), is = top_bits(m);

    switch (op) {
    case GQUERY_NOT: set_top_bits(m, ~is); break;
    case GQUERY_IS_NULL: set_boolean(m, nulls); break;
    case GQUERY_IS_TRUE: set_boolean(m, is & ~nulls); break;
    default: set_boolean(m, ~is & ~nulls); /* GQUERY_IS_FALSE */
    }
}

GVM_DEVICE void run_instruction(const gquery_scan *p, machine *m, gquery_instruction i)
{
    const uint32_t op = i.op & GQUERY_OPERATION;

    switch (op) {
    case GQUERY_LOAD:
    case GQUERY_FILTER: break; /* only what is before and after */
    case GQUERY_UNKNOWN:
        if (m->active != 0 && m->error == 0)
            m->error = GQUERY_E_UNKNOWN | i.a << GQUERY_UNKNOWN_SHIFT;
        /* fall through */
    case GQUERY_CONSTANT: push_same(m, i.value, 0); break;
    case GQUERY_NULL: push_same(m, 0, ALL_ROWS); break;
    case GQUERY_LOAD_NULL:
        push_same(m, 0, 0);
        set_top_bits(m, text_nulls(m, &p->sources[i.a], m->program->columns[i.a].form,
                                   column_nulls(m, &p->sources[i.a])));
        break;
    case GQUERY_COPY: copy_value(m, i.a); break;
    case GQUERY_REPLACE: replace_value(m); break;
    case GQUERY_EQ:
    case GQUERY_NE:
    case GQUERY_LT:
    case GQUERY_LE:
    case GQUERY_GT:
    case GQUERY_GE:
    case GQUERY_DISTINCT: compare(p, m, &i); break;
    case GQUERY_IN: look_up(m, i.a, i.b); break;
    case GQUERY_IN_PAIRS: look_up_pairs(m, i.a, i.b); break;
    case GQUERY_AND:
    case GQUERY_OR: combine(m, op == GQUERY_AND); break;
    case GQUERY_NOT:
    case GQUERY_IS_NULL:
    case GQUERY_IS_TRUE:
    case GQUERY_IS_FALSE: run_boolean(m, op); break;
    case GQUERY_ADD:
    case GQUERY_SUBTRACT:
    case GQUERY_MULTIPLY: calculate(p, m, &i); break;
    case GQUERY_DIVIDE:
    case GQUERY_MODULO: divide_all(m, op == GQUERY_MODULO, i.b); break;
    case GQUERY_FIELD: take_field(m, i.b, i.value); break;
    case GQUERY_FUNCTION: apply_function(m, i.b, i.value); break;
    case GQUERY_IF: begin_if(m); break;
    case GQUERY_ELSE: begin_else(m); break;
    case GQUERY_END: end_if(m); break;
    case GQUERY_MARK: /* after the program */
    case GQUERY_EMIT: break;
    case GQUERY_GROUP: group(p, m, i.a); break;
    case GQUERY_AGGREGATE: aggregate_rows(p, m, i.a, i.b); break;
#ifdef GQUERY_JOINED
    case GQUERY_PROBE: probe(p, m, &i); break;
    case GQUERY_BUILD: build(p, m, i.a); break;
    case GQUERY_APPEND: append_rows(p, m); break;
    case GQUERY_MATCH: match(p, m, &i); break;
#endif
    case GQUERY_TEXT: test_texts(p, m, &i, column_nulls(m, &p->sources[i.a])); break;
    default: convert(m, op, i.b);
    }
}

/* There is no room for another group, or for joined rows: all is done again. */
GVM_DEVICE int is_full(const gquery_scan *p)
{
    return (p->groups != 0 &&
            gvm_load_consume_u32(&((const gquery_groups *)(uintptr_t)p->groups)->full) != 0) ||
           has_too_many(p);
}

/* Of these rows of the tile, those below `end`. */
GVM_DEVICE uint32_t rows_below(const machine *m, uint64_t end, uint32_t rows)
{
    const int64_t left = (int64_t)(end - m->row);
    uint32_t r;

    if (left <= (EACH - 1) * (int64_t)gvm_warp_size()) {
        GVM_UNROLL
        for (r = 0; r < EACH; r++)
            if (left <= (int64_t)(r * gvm_warp_size()))
                rows &= ~(1u << r);
    }
    return rows;
}

GVM_DEVICE uint32_t rows_seen(const gquery_scan *p, const machine *m)
{
    uint32_t rows = rows_below(m, p->limit, ALL_ROWS);

    if (p->dead != 0)
        rows &= ~rows_in(m, p->dead, rows_below(m, p->dead_rows, rows));
    if (p->deleted != 0)
        rows &= ~rows_in(m, p->deleted, rows_below(m, p->deleted_rows, rows));
    return rows;
}

/* All but the value, by one load: a compiler takes memcpy() for eight of a byte each. */
GVM_DEVICE uint64_t first_half(const gquery_instruction *i)
{
    return *(const uint64_t *)(const void *)i;
}

/* From instruction `at` on, where there is nothing on the stack. */
GVM_DEVICE void run_code(const gquery_scan *p, machine *m, uint32_t at)
{
    const gquery_instruction *code = m->program->code;
    uint64_t next; /* without its value: there are few registers */

    m->depth = m->nested = 0;
    next = first_half(&code[at < GQUERY_CODE_MAX ? at : 0]);
    for (; at < p->tests.code_count && (m->active | m->nested) != 0; at++) {
        const gquery_instruction i = {(uint16_t)next, (uint16_t)(next >> 16),
                                      (uint32_t)(next >> 32), code[at].value};

        /* on the way while this one runs */
        next = first_half(&code[at + 1 < GQUERY_CODE_MAX ? at + 1 : at]);
        if (i.op >> GQUERY_LOADED_SHIFT != 0) {
            const uint32_t column = (i.op >> GQUERY_LOADED_SHIFT) - 1;

            load_column(m, &p->sources[column], &m->program->columns[column]);
        }
        run_instruction(p, m, i);
        if ((i.op & GQUERY_THEN_FILTER) != 0) {
            m->active &= true_rows(m);
            pop(m);
        }
    }
}

GVM_DEVICE void run_program(const gquery_scan *p, machine *m)
{
    uint32_t t;

    for (t = 0; t < p->tests.count && m->active != 0; t++)
        run_test(p, m, &p->tests.each[t]);
    run_code(p, m, p->tests.end);
#ifdef GQUERY_JOINED
    for (t = 1;; t++) {
        emit_joined(p, m);
        if ((m->more | m->search) == 0 || is_full(p) || is_halted(p, m, t))
            break;
        run_code(p, m, m->search != 0 ? continue_search(p, m) : take_next_matches(p, m));
    }
#endif
}

/* ---- states */

/* Word 0 of a thread's state. */
GVM_DEVICE uint64_t *state_of(const gquery_scan *p, uint32_t thread)
{
    const uint32_t lanes = gvm_warp_size();

    return (uint64_t *)gvm_shared() + p->depth * EACH * gvm_block_threads() +
           thread / lanes * p->state_words * lanes + thread % lanes;
}

GVM_DEVICE void start_state(const machine *m)
{
    uint32_t at, w;

    for (at = 0; at < m->program->code_count; at++) {
        const gquery_instruction *i = &m->program->code[at];

        if ((i->op & GQUERY_OPERATION) != GQUERY_AGGREGATE)
            continue;
        m->state[i->a * gvm_warp_size()] = first_word(i->b);
        for (w = 1; w < (i->b == GQUERY_MOMENTS_F64 ? 4 : i->b == GQUERY_SUM_I64 ? 2 : 1); w++)
            m->state[(i->a + w) * gvm_warp_size()] = 0;
    }
}

/* One state becomes that of both. Words of each are so far from each other. An error is added to those before. */
GVM_DEVICE void merge_states(const gquery_program *program, uint64_t *state, uint32_t pitch,
                             const uint64_t *other, uint32_t other_pitch, uint32_t *error)
{
    uint32_t at;

    for (at = 0; at < program->code_count; at++) {
        const gquery_instruction *i = &program->code[at];
        uint64_t *word = state + i->a * pitch;
        const uint64_t *from = other + i->a * other_pitch;

        if ((i->op & GQUERY_OPERATION) != GQUERY_AGGREGATE)
            continue;
        if (i->b == GQUERY_MOMENTS_F64) {
            merge_moments(word, pitch, load_moments(from, other_pitch));
            continue;
        }
        *word = i->b == GQUERY_SUM_F64 ? add_f64(*word, *from, error) : fold(i->b, *word, *from);
        if (i->b == GQUERY_SUM_I64)
            word[pitch] += from[other_pitch] + (*word < *from);
    }
}

/* The threads' states, added up two and two, go to the block's own. */
GVM_DEVICE void add_to_block(const gquery_scan *p, machine *m)
{
    uint64_t *block = (uint64_t *)(uintptr_t)p->partial + (uint64_t)gvm_block() * p->state_words;
    uint32_t left, half;

    for (left = gvm_block_threads(); left > 1; left = half) {
        half = (left + 1) / 2;
        gvm_block_sync();
        if (gvm_thread() < left - half)
            merge_states(m->program, m->state, gvm_warp_size(), state_of(p, gvm_thread() + half),
                         gvm_warp_size(), &m->error);
    }
    if (gvm_thread() == 0)
        merge_states(m->program, block, 1, m->state, gvm_warp_size(), &m->error);
}

GVM_DEVICE void raise_error(uint64_t address, uint32_t error)
{
    gvm_atomic_cas_u32((uint32_t *)(uintptr_t)address, GQUERY_E_NONE, error);
}

GVM_KERNEL_BOUNDED(QUERY_SCAN, gquery_scan, p, GQUERY_THREADS, 4)
{
    const uint64_t tile = (uint64_t)gvm_block_threads() * EACH;
    const uint32_t own = gvm_warp() * gvm_warp_size() * EACH + gvm_lane(); /* row of a tile */
    machine m;

    m.program = (const gquery_program *)(uintptr_t)p.program;
    m.stack = (uint64_t *)gvm_shared() + p.stack_at + gvm_lane() +
              gvm_warp() * (p.depth + (p.groups != 0)) * EACH * gvm_warp_size();
    m.state = state_of(&p, gvm_thread());
    m.nulls = m.outer = m.floors = 0;
    m.error = 0;
    start_joins(&p, &m);
    m.local = p.local_groups > 0 ? 0 : LOCAL_MISSES;
    if (p.groups == 0)
        start_state(&m);
    if (p.local_groups > 0)
        local_begin(&p);
    /* Threads of a block have as many tiles as each other: some wait for all. */
    for (m.row = p.first + gvm_block() * tile + own; m.row - own < p.limit;
         m.row += gvm_block_count() * tile) {
        m.active = rows_seen(&p, &m);
        if (is_full(&p)) {
            if (p.local_groups == 0)
                break;
            m.active = 0;
        }
        if (p.local_groups > 0)
            m.local = local_review(&p, m.local);
        run_program(&p, &m);
        if (p.marked != 0)
            mark_rows((uint32_t *)(uintptr_t)p.marked, &m, p.limit);
#ifndef GQUERY_JOINED
        if (p.list != 0)
            emit_rows((gquery_list *)(uintptr_t)p.list, &m, p.keys);
#endif
    }
    if (p.state_words > 0 && p.groups == 0)
        add_to_block(&p, &m);
    if (p.local_groups > 0)
        local_end(&p);
    if (m.error != 0)
        raise_error(p.error, m.error);
}

#ifndef GQUERY_JOINED
/* ---- before and after */

GVM_KERNEL(query_reduce, gquery_reduce, p)
{
    uint64_t *partial = (uint64_t *)(uintptr_t)p.partial;
    uint32_t left, half, i, error = 0;

    for (left = p.blocks; left > 1; left = half) {
        half = (left + 1) / 2;
        for (i = gvm_thread(); i < left - half; i += gvm_block_threads())
            merge_states((const gquery_program *)(uintptr_t)p.program,
                         partial + (uint64_t)i * p.state_words, 1,
                         partial + (uint64_t)(i + half) * p.state_words, 1, &error);
        gvm_block_sync();
    }
    if (error != 0)
        raise_error(p.error, error);
}

GVM_KERNEL(query_begin, gquery_begin, p)
{
    GVM_SHARED(uint64_t, words, 1 + GQUERY_KEYS_MAX + GQUERY_STATE_MAX);
    const gquery_program *program = (const gquery_program *)(uintptr_t)p.program;
    const gquery_groups *groups = (const gquery_groups *)(uintptr_t)p.groups;
    const uint32_t before = p.groups != 0 ? 1 + p.keys : 0, each = before + p.state_words;
    uint64_t *out = (uint64_t *)(uintptr_t)(p.groups != 0 ? groups->slots : p.partial), i;
    const uint64_t all = (p.groups != 0 ? groups->mask + 1 : p.count) * each;
    const uint32_t step = (uint32_t)(gvm_thread_count() % (each > 0 ? each : 1));
    uint32_t at;

    for (at = gvm_thread(); at < each; at += gvm_block_threads())
        words[at] = 0;
    gvm_block_sync();
    for (at = gvm_thread(); at < program->code_count; at += gvm_block_threads())
        if ((program->code[at].op & GQUERY_OPERATION) == GQUERY_AGGREGATE)
            words[before + program->code[at].a] = first_word(program->code[at].b);
    gvm_block_sync();
    at = (uint32_t)(gvm_thread_global() % (each > 0 ? each : 1));
    for (i = gvm_thread_global(); i < all; i += gvm_thread_count()) {
        out[i] = words[at];
        at = at + step < each ? at + step : at + step - each;
    }
}

/* Of a group: in the bitmaps of keys that are NULL. */
GVM_DEVICE void clear_bits(uint32_t *nulls, uint64_t pitch, uint64_t group, uint32_t keys)
{
    uint32_t k;

    for (k = 0; keys >> k != 0; k++)
        if ((keys >> k & 1) != 0)
            put_bits(nulls + (k * pitch + group) / 32, 0, 1u << group % 32);
}

GVM_KERNEL(query_collect, gquery_collect, p)
{
    const gquery_groups *groups = (const gquery_groups *)(uintptr_t)p.groups;
    const uint64_t *slots = (const uint64_t *)(uintptr_t)groups->slots;
    uint64_t first, at = 0;
    uint32_t w, rank, total, error = 0;

    for (first = gvm_thread_global() - gvm_lane(); first <= groups->mask; first += gvm_thread_count()) {
        const uint64_t *slot = slots + (first + gvm_lane()) * p.slot_words;
        const int used = first + gvm_lane() <= groups->mask && slot[0] != 0;
        uint64_t *out;

        rank = gvm_warp_rank(used, &total);
        if (gvm_lane() == 0 && total > 0)
            at = gvm_atomic_add_u64((uint64_t *)(uintptr_t)p.collected, total);
        at = gvm_warp_get_u64(at, 0);
        if (!used)
            continue;
        out = (uint64_t *)(uintptr_t)p.out + (at + rank) * p.group_pitch;
        out[0] = slot[0] & ~READY;
        for (w = 1; w < p.slot_words; w++) {
            out[w * p.word_pitch] = slot[w];
            if (w > p.keys && (p.sums >> (w - 1 - p.keys) & 1) != 0 && !is_finite(to_double(slot[w])))
                error = GQUERY_E_OVERFLOW;
        }
        if (p.nulls != 0)
            clear_bits((uint32_t *)(uintptr_t)p.nulls, p.word_pitch, at + rank, (uint32_t)out[0]);
    }
    if (error != 0)
        raise_error(p.error, error);
}

GVM_KERNEL(query_list_groups, gquery_listed_groups, p)
{
    const uint64_t *groups = (const uint64_t *)(uintptr_t)p.groups;
    const uint32_t words = p.entry_words + p.group_words;
    uint64_t i;

    for (i = gvm_thread_global(); i < p.count * words; i += gvm_thread_count()) {
        const uint64_t *entry = (const uint64_t *)(uintptr_t)p.entries + i / words * p.entry_words;
        const uint32_t w = (uint32_t)(i % words);

        ((uint64_t *)(uintptr_t)p.out)[i / words * p.pitch + w] =
            w < p.entry_words ? entry[w]
                              : groups[(w - p.entry_words) * p.word_pitch + entry[p.entry_words - 1]];
    }
}
#endif
