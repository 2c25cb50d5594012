/* query/kernel_columns.h - values of columns, and which of them are NULL, for the rows that a thread has. Device code.
 *
 * Threads: its own.
 */
#ifndef GQUERY_KERNEL_COLUMNS_H
#define GQUERY_KERNEL_COLUMNS_H

#include "query/kernel_join.h"
#include "query/kernel_machine.h"
#include "query/kernel_values.h"

GVM_DEVICE int bit_of(uint64_t bitmap, uint64_t i)
{
    return ((const uint8_t *)(uintptr_t)bitmap)[i / 8] >> (i % 8) & 1;
}

/* Of these rows of the tile, those whose bit is 1. */
GVM_DEVICE uint32_t rows_in(const machine *m, uint64_t bitmap, uint32_t rows)
{
    const uint8_t *first = (const uint8_t *)(uintptr_t)bitmap + m->row / 8;
    uint32_t r, found = 0;

    GVM_UNROLL
    for (r = 0; r < EACH; r++)
        if (has(rows, r))
            found |= (gvm_warp_size() % 8 == 0 ? first[r * (gvm_warp_size() / 8)] >> m->row % 8 & 1u
                                               : (uint32_t)bit_of(bitmap, row_at(m, r)))
                     << r;
    return found;
}

GVM_DEVICE uint32_t column_nulls(const machine *m, const gquery_source *source)
{
    const uint32_t unmatched = unmatched_rows(m, source);
    uint32_t r, nulls = unmatched;

    if ((source->has & GQUERY_HAS_NULLS) == 0)
        return unmatched;
    if (source->nulls == 0)
        return ALL_ROWS;
    if (is_of_outer(source))
        return m->active & ~rows_in(m, source->nulls, m->active);
    GVM_UNROLL
    for (r = 0; r < EACH; r++)
        if (has(m->active & ~unmatched, r))
            nulls |= (uint32_t)!bit_of(source->nulls, row_of(m, source, r)) << r;
    return nulls;
}

/* Of the outer table from one address on. */
#define LOAD_EACH(type, expression) \
    { \
        const type *first = (const type *)(uintptr_t)source->values + m->row; \
        GVM_UNROLL \
        for (r = 0; r < EACH; r++) \
            if (has(rows, r)) { \
                const type v = is_of_outer(source) \
                                   ? first[r * gvm_warp_size()] \
                                   : ((const type *)(uintptr_t)source->values)[row_of(m, source, r)]; \
                to[r] = (uint64_t)(expression); \
            } \
        break; \
    }

/* Of active rows; 0 of others. */
GVM_DEVICE void load_values(const machine *m, const gquery_source *source, uint64_t *to)
{
    const uint32_t rows = (source->has & GQUERY_HAS_NULLS) != 0 && source->values == 0
                              ? 0
                              : m->active & ~unmatched_rows(m, source);
    uint32_t r;

    GVM_UNROLL
    for (r = 0; r < EACH; r++)
        to[r] = 0;
    switch (source->form) {
    case GQUERY_I32: LOAD_EACH(int32_t, (int64_t)v)
    case GQUERY_F64:
    case GQUERY_I64: LOAD_EACH(uint64_t, v)
    case GQUERY_I16: LOAD_EACH(int16_t, (int64_t)v)
    case GQUERY_U32: LOAD_EACH(uint32_t, v)
    case GQUERY_U8: LOAD_EACH(uint8_t, v)
    case GQUERY_F32: LOAD_EACH(float, to_bits((double)v))
    case GQUERY_BIT:
        GVM_UNROLL
        for (r = 0; r < EACH; r++)
            if (has(rows, r))
                to[r] = (uint64_t)bit_of(source->values, row_of(m, source, r));
        break;
    default: /* of 16 bytes */
        GVM_UNROLL
        for (r = 0; r < EACH; r++)
            if (has(rows, r)) {
                const uint64_t *v = (const uint64_t *)(uintptr_t)source->values +
                                    2 * row_of(m, source, r);

                to[r] = source->form == GQUERY_DECIMAL
                            ? narrow_decimal(v[0], v[1])
                            : word_of_bytes(v[source->form == GQUERY_UUID_LOW]);
            }
    }
}

GVM_DEVICE void check_decimals(machine *m, int64_t bias, uint32_t nulls, const uint64_t *values)
{
    const uint32_t rows = m->active & ~nulls;
    uint32_t r;

    GVM_UNROLL
    for (r = 0; r < EACH; r++)
        if (has(rows, r) && m->error == 0 &&
            (values[r] == NO_DECIMAL || (bias != 0 && values[r] == (uint64_t)GQUERY_DECIMAL_NAN)))
            m->error = GQUERY_E_DECIMAL;
}

/* What a column's bias is for. */
GVM_DEVICE void add_bias(machine *m, const gquery_column *column, uint32_t nulls, uint64_t *to)
{
    const uint32_t form = column->form;
    const uint64_t least = form == GQUERY_I32 ? 0xffffffff80000000u : 0x8000000000000000u,
                   bias = (uint64_t)column->bias;
    uint32_t r;

    if (form == GQUERY_DECIMAL)
        check_decimals(m, column->bias, nulls, to);
    if (bias == 0 || (form != GQUERY_I32 && form != GQUERY_I64))
        return;
    GVM_UNROLL
    for (r = 0; r < EACH; r++)
        if (to[r] != least && to[r] != ~least)
            to[r] += bias;
}

GVM_DEVICE void load_column(machine *m, const gquery_source *source, const gquery_column *column)
{
    const uint32_t nulls = column_nulls(m, source);

    begin_push(m);
    load_values(m, source, m->top);
    if ((source->has & GQUERY_HAS_BIAS) != 0)
        add_bias(m, column, nulls, m->top);
    end_push(m, nulls);
}

#endif
