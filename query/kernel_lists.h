/* query/kernel_lists.h - marked rows and ordered lists: after the program, by whole warps; also by threads that have no active row. Device code.
 *
 * Threads: all of a warp.
 */
#ifndef GQUERY_KERNEL_LISTS_H
#define GQUERY_KERNEL_LISTS_H

#include "query/kernel_machine.h"
#include "query/kernel_values.h"
#include "query/search.h"

/* Other warps change the word's other bits at the same time. */
GVM_DEVICE void put_bits(uint32_t *word, uint32_t bits, uint32_t mask)
{
    uint32_t old = gvm_load_consume_u32(word), found;

    for (;; old = found) {
        found = gvm_atomic_cas_u32(word, old, (old & ~mask) | bits);
        if (found == old)
            return;
    }
}

/* A warp's rows are neighbours: together a word of the bitmap, or a part of it where a warp has fewer than 32 lanes. */
GVM_DEVICE void mark_rows(uint32_t *words, const machine *m, uint64_t limit)
{
    const uint32_t lanes = gvm_warp_size();
    const uint64_t first = m->row - gvm_lane();
    uint32_t r, own = 0;

    GVM_UNROLL
    for (r = 0; r < EACH; r++) {
        const uint32_t bits = gvm_warp_ballot(~0u, has(m->active, r));
        const uint64_t row = first + r * lanes;
        const uint32_t shift = (uint32_t)row % 32;

        if (lanes == 32)
            own = gvm_lane() == r ? bits : own;
        else if (gvm_lane() == r % lanes && row < limit) /* with what is behind the last row */
            put_bits(words + row / 32, bits << shift,
                     (limit - row <= lanes ? ~0u : (1u << lanes) - 1) << shift);
    }
    if (lanes == 32 && gvm_lane() < EACH && first + gvm_lane() * 32 < limit)
        words[first / 32 + gvm_lane()] = own;
}

/* Its place beside another entry: -1, 0, 1. */
GVM_DEVICE int compare_entry(const machine *m, uint32_t keys, uint32_t r, const int64_t *other)
{
    uint32_t k;

    for (k = 0; k < keys; k++) {
        const int c = compare_i64(*place(m, m->depth - keys + k, r), (uint64_t)other[k]);

        if (c != 0)
            return c;
    }
    return compare_i64(row_at(m, r), (uint64_t)other[keys]);
}

/* Active rows whose entries belong to the list. The first key tells most of the others. */
GVM_DEVICE uint32_t wanted_rows(const gquery_list *list, const machine *m, uint32_t keys)
{
    const uint64_t most = list->bounded ? (uint64_t)list->bound[0] : ~0ull >> 1;
    const uint64_t least = list->continued ? (uint64_t)list->after[0] : 1ull << 63;
    uint32_t r, rows = 0;

    GVM_UNROLL
    for (r = 0; r < EACH; r++) {
        const int64_t key = (int64_t)(keys == 1 ? m->top[r] : *place(m, m->depth - keys, r));

        rows |= (uint32_t)(key >= (int64_t)least && key <= (int64_t)most) << r;
    }
    rows &= m->active;
    GVM_NO_UNROLL
    for (r = 0; rows >> r != 0; r++)
        if (has(rows, r) && ((list->bounded && compare_entry(m, keys, r, list->bound) > 0) ||
                             (list->continued && compare_entry(m, keys, r, list->after) <= 0)))
            rows &= ~(1u << r);
    return rows;
}

GVM_DEVICE void put_entry(const gquery_list *list, const machine *m, uint32_t keys, uint32_t r,
                          uint64_t at)
{
    int64_t *entry = (int64_t *)(uintptr_t)list->entries + at * list->words;
    uint32_t k;

    if (at >= list->max)
        return;
    for (k = 0; k < keys; k++)
        entry[k] = (int64_t)*place(m, m->depth - keys + k, r);
    entry[keys] = (int64_t)(row_at(m, r));
}

GVM_DEVICE void emit_rows(gquery_list *list, const machine *m, uint32_t keys)
{
    uint32_t r, rows = 0, before, total;
    uint64_t at = 0;

    if (m->active != 0) { /* otherwise the program may have ended before the keys */
        store_top(m);
        rows = wanted_rows(list, m, keys);
    }
    if (!gvm_warp_any(~0u, rows != 0))
        return;
    before = gvm_warp_before_u32(gvm_count_ones(rows), &total);
    if (gvm_lane() == 0)
        at = gvm_atomic_add_u64(&list->count, total);
    at = gvm_warp_get_u64(at, 0) + before;
    GVM_NO_UNROLL
    for (r = 0; rows >> r != 0; r++)
        if (has(rows, r))
            put_entry(list, m, keys, r, at++);
}

#endif
