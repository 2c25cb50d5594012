/* query/kernel_lists.h - marked rows and ordered lists: after the program, by whole warps; also by threads that
 * have no active row; lists of joined rows before a thread's rows go on. Device code.
 *
 * Threads: all of a warp, but for emit_joined().
 */
#ifndef GQUERY_KERNEL_LISTS_H
#define GQUERY_KERNEL_LISTS_H

#include "query/kernel_join.h"
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

#ifdef GQUERY_JOINED

#define ENTRY_ROWS(list, keys) ((list)->words - (keys))

GVM_DEVICE uint64_t entry_row(const gquery_list *list, const machine *m, uint32_t t, uint32_t r)
{
    return t == 0                         ? row_at(m, r)
           : (list->tables >> t & 1) != 0 ? *joined_place(m, t - 1, r)
                                          : ~0ull;
}

#else

#define ENTRY_ROWS(list, keys) 1u

GVM_DEVICE uint64_t entry_row(const gquery_list *list, const machine *m, uint32_t t, uint32_t r)
{
    (void)list;
    (void)t;
    return row_at(m, r);
}

#endif

/* Its place beside another entry: -1, 0, 1. */
GVM_DEVICE int compare_entry(const gquery_list *list, const machine *m, uint32_t keys, uint32_t r,
                             const int64_t *other)
{
    uint32_t k, t;
    int c;

    for (k = 0; k < keys; k++) {
        c = compare_i64(*place(m, m->depth - keys + k, r), (uint64_t)other[k]);
        if (c != 0)
            return c;
    }
    for (c = 0, t = 0; t < ENTRY_ROWS(list, keys) && c == 0; t++)
        c = compare_i64(entry_row(list, m, t, r), (uint64_t)other[keys + t]);
    return c;
}

GVM_DEVICE int is_wanted(const gquery_list *list, const machine *m, uint32_t keys, uint32_t r)
{
    return !(list->bounded && compare_entry(list, m, keys, r, list->bound) > 0) &&
           !(list->continued && compare_entry(list, m, keys, r, list->after) <= 0);
}

GVM_DEVICE void put_entry(const gquery_list *list, const machine *m, uint32_t keys, uint32_t r,
                          uint64_t at)
{
    int64_t *entry = (int64_t *)(uintptr_t)list->entries + at * list->words;
    uint32_t k, t;

    if (at >= list->max)
        return;
    for (k = 0; k < keys; k++)
        entry[k] = (int64_t)*place(m, m->depth - keys + k, r);
    for (t = 0; t < ENTRY_ROWS(list, keys); t++)
        entry[keys + t] = (int64_t)entry_row(list, m, t, r);
}

#ifdef GQUERY_JOINED

/* Rows that have come to the program's end: they may go on once more. By a thread. */
GVM_DEVICE void emit_joined(const gquery_scan *p, machine *m)
{
    gquery_list *list = (gquery_list *)(uintptr_t)p->list;
    uint32_t r, rows = m->active;
    uint64_t at;

    if (list == 0 || rows == 0)
        return;
    store_top(m);
    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++)
        if (has(rows, r) && !is_wanted(list, m, p->keys, r))
            rows &= ~(1u << r);
    at = take_places(&list->count, rows);
    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++)
        if (has(rows, r))
            put_entry(list, m, p->keys, r, at++);
}

#else

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
        if (has(rows, r) && !is_wanted(list, m, keys, r))
            rows &= ~(1u << r);
    return rows;
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
#endif
