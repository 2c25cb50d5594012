/* query/kernel_machine.h - a thread of the interpreter of query programs (kernels.c) at work: its rows, its stack,
 * which rows are active. Device code.
 *
 * Threads: its own.
 */
#ifndef GQUERY_KERNEL_MACHINE_H
#define GQUERY_KERNEL_MACHINE_H

#include <gvmem/device/kernel.h>

#include "query/kernels.h"

#define EACH GQUERY_EACH
#define ALL_ROWS ((1u << EACH) - 1)

/* A thread at work. Sets of its rows are words with a bit for each. */
typedef struct machine {
    const gquery_program *program;
    uint64_t row; /* its first one of this tile */
    uint64_t *stack; /* value s of row r is (s * EACH + r) warps' lanes on; the top's place is not up to date */
    uint64_t *state; /* word w of its state is w warps' lanes on */
    uint64_t top[EACH];
    uint64_t nulls; /* EACH bits for each value */
    uint64_t outer; /* for each GQUERY_IF, the last one lowest: EACH bits active before, EACH bits in its first part */
    uint32_t floors; /* 4 bits each: the depth at it */
    uint32_t depth, nested, active, error;
    uint32_t local; /* of kernel_partial.h */
    /* kernel_join.h's: */
    uint64_t *joined; /* the row of table 1 + t is t * EACH warps' lanes before */
    uint32_t more;    /* EACH bits for each of these tables: there is another match */
    uint32_t search;  /* of a join with a condition */
} machine;

GVM_DEVICE int has(uint32_t rows, uint32_t r)
{
    return (rows >> r & 1) != 0;
}

/* Neighbouring lanes have neighbouring rows, and a warp has all rows between its first and its last one. */
GVM_DEVICE uint64_t row_at(const machine *m, uint32_t r)
{
    return m->row + r * gvm_warp_size();
}

/* Whether the run is to end early: its results are dropped. Reads host memory, so not often. */
GVM_DEVICE int end_if_halted(const gquery_scan *p, machine *m)
{
    if (p->halt == 0 || gvm_load_acquire_u32_system((const uint32_t *)(uintptr_t)p->halt) == 0)
        return 0;
    if (m->error == 0)
        m->error = GQUERY_E_LONG;
    return 1;
}

/* ---- the stack */

GVM_DEVICE uint64_t *place(const machine *m, uint32_t value, uint32_t r)
{
    return m->stack + (value * EACH + r) * gvm_warp_size();
}

GVM_DEVICE uint32_t nulls_of(const machine *m, uint32_t value)
{
    return (uint32_t)(m->nulls >> value * EACH) & ALL_ROWS;
}

/* Which rows have NULL at the top, as far as they are active. */
GVM_DEVICE void set_nulls(machine *m, uint32_t nulls)
{
    const uint32_t shift = (m->depth - 1) * EACH;

    m->nulls = (m->nulls & ~((uint64_t)m->active << shift)) | (uint64_t)(nulls & m->active) << shift;
}

GVM_DEVICE void store_top(const machine *m)
{
    uint32_t r;

    if (m->depth == 0)
        return;
    GVM_UNROLL
    for (r = 0; r < EACH; r++)
        *place(m, m->depth - 1, r) = m->top[r];
}

GVM_DEVICE void load_top(machine *m)
{
    uint32_t r;

    if (m->depth == 0)
        return;
    GVM_UNROLL
    for (r = 0; r < EACH; r++)
        m->top[r] = *place(m, m->depth - 1, r);
}

/* Between the two the new top's values are set, of all rows. */
GVM_DEVICE void begin_push(machine *m)
{
    store_top(m);
    m->depth++;
}

GVM_DEVICE void end_push(machine *m, uint32_t nulls)
{
    uint32_t r;

    if (m->nested > 0) { /* another branch may have put a value there */
        GVM_UNROLL
        for (r = 0; r < EACH; r++)
            if (!has(m->active, r))
                m->top[r] = *place(m, m->depth - 1, r);
    }
    set_nulls(m, nulls);
}

GVM_DEVICE void push_same(machine *m, uint64_t value, uint32_t nulls)
{
    uint32_t r;

    begin_push(m);
    GVM_UNROLL
    for (r = 0; r < EACH; r++)
        m->top[r] = value;
    end_push(m, nulls);
}

GVM_DEVICE void pop(machine *m)
{
    m->depth--;
    load_top(m);
}

/* The top, of active rows. */
GVM_DEVICE void set_top(machine *m, uint32_t r, uint64_t value)
{
    if (has(m->active, r))
        m->top[r] = value;
}

GVM_DEVICE void set_top_bits(machine *m, uint32_t rows)
{
    uint32_t r;

    GVM_UNROLL
    for (r = 0; r < EACH; r++)
        set_top(m, r, (uint64_t)has(rows, r));
}

/* Rows whose top is true, NULL or not. */
GVM_DEVICE uint32_t top_bits(const machine *m)
{
    uint32_t r, rows = 0;

    GVM_UNROLL
    for (r = 0; r < EACH; r++)
        rows |= (uint32_t)(m->top[r] != 0) << r;
    return rows;
}

GVM_DEVICE uint32_t true_rows(const machine *m)
{
    return top_bits(m) & ~nulls_of(m, m->depth - 1);
}

#endif
