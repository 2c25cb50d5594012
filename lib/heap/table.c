/* Address to segment: an open hash of segments by the gigabytes that they touch.
 *
 * Written under the heap's lock, read without it by who owns a shelf. An entry is one
 * pointer; which addresses it stands for, the segment itself says, and a reader that meets
 * another's segment goes on to the next entry. An entry that was left is marked, not emptied, so that
 * readers do not stop short there. A table that gets full, of such entries too, is replaced by a new
 * one, and freed when each thread that might still read it has left its shelf.
 *
 * I1  half of the entries at least are empty.
 * I2  of the others, used of them, each key of each segment has one; the rest are marked.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "heap/heap.h"

#define ENTRIES_FIRST 64

/* Stands in entries that were left. Of no bytes: nothing is ever found in it. */
static gvmi_segment gone;

static gvmi_heap_table *make_table(uint64_t entries)
{
    gvmi_heap_table *table = calloc(1, sizeof *table + entries * sizeof table->entries[0]);

    if (table != NULL)
        table->mask = entries - 1;
    return table;
}

/* The keys of a segment: [*first, *last]. */
static void keys_of(const gvmi_segment *segment, uint64_t *first, uint64_t *last)
{
    const uint64_t base = segment->base;

    *first = *last = base / GVMI_HEAP_SEGMENT_BYTES;
    if (!segment->lone)
        *last = (base + segment->bytes - 1) / GVMI_HEAP_SEGMENT_BYTES;
}

static void table_insert(gvmi_heap_table *table, uint64_t key, gvmi_segment *segment)
{
    uint64_t i = gvmi_heap_hash(key);
    gvmi_segment *at;

    while ((at = table->entries[i & table->mask]) != NULL && at != &gone)
        i++;
    table->used += at == NULL;
    atomic_store_explicit(&table->entries[i & table->mask], segment, memory_order_release);
}

static void table_insert_arena(gvmi_heap_table *table, const gvmi_arena *arena)
{
    for (size_t i = 0; i < arena->count; i++) {
        uint64_t first, last;

        keys_of(arena->segments[i], &first, &last);
        for (uint64_t key = first; key <= last; key++)
            table_insert(table, key, arena->segments[i]);
    }
}

/* Two keys a segment. */
gvm_status gvmi_heap_table_make_room_locked(gvm_heap *heap)
{
    gvmi_heap_table *old = heap->table, *table;
    uint64_t entries = ENTRIES_FIRST;

    if (2 * (old->used + 2) <= old->mask + 1)
        return GVM_OK;
    while (entries < 8ull * (heap->segment_count + 1)) /* two keys each, and as much again before the next */
        entries *= 2;
    table = make_table(entries);
    if (table == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a heap's table of segments");
    table_insert_arena(table, &heap->plain);
    for (const gvmi_arena *arena = heap->arenas; arena != NULL; arena = arena->next)
        table_insert_arena(table, arena);
    atomic_store_explicit(&heap->table, table, memory_order_release);
    gvmi_shelves_pass_locked(heap);
    free(old);
    return GVM_OK;
}

gvm_status gvmi_heap_table_create(gvm_heap *heap)
{
    gvmi_heap_table *table = make_table(ENTRIES_FIRST);

    if (table == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a heap's table of segments");
    atomic_store(&heap->table, table);
    return GVM_OK;
}

void gvmi_heap_table_destroy(gvm_heap *heap)
{
    free(heap->table);
}

void gvmi_heap_table_add_locked(gvm_heap *heap, gvmi_segment *segment)
{
    uint64_t first, last;

    keys_of(segment, &first, &last);
    GVM_ASSERT(last - first <= 1);
    for (uint64_t key = first; key <= last; key++)
        table_insert(heap->table, key, segment);
}

void gvmi_heap_table_remove_locked(gvm_heap *heap, gvmi_segment *segment)
{
    gvmi_heap_table *table = heap->table;
    uint64_t first, last;

    keys_of(segment, &first, &last);
    for (uint64_t key = first; key <= last; key++) {
        uint64_t i = gvmi_heap_hash(key);

        while (table->entries[i & table->mask] != segment)
            i++;
        atomic_store_explicit(&table->entries[i & table->mask], &gone, memory_order_release);
    }
}

static uint64_t count_keys(const gvmi_arena *arena)
{
    uint64_t keys = 0;

    for (size_t i = 0; i < arena->count; i++) {
        uint64_t first, last;

        keys_of(arena->segments[i], &first, &last);
        keys += last - first + 1;
    }
    return keys;
}

bool gvmi_heap_table_check_locked(const gvm_heap *heap)
{
    const gvmi_heap_table *table = heap->table;
    uint64_t keys = count_keys(&heap->plain), live = 0, used = 0;

    for (const gvmi_arena *arena = heap->arenas; arena != NULL; arena = arena->next)
        keys += count_keys(arena);
    for (uint64_t i = 0; i <= table->mask; i++) {
        const gvmi_segment *at = table->entries[i];

        used += at != NULL;
        live += at != NULL && at != &gone;
    }
    return live == keys && used == table->used && 2 * used <= table->mask + 1;
}
