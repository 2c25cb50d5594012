/* Shelves emptied, and ended with their heap or arena. */
#include <stdlib.h>

#include "heap/heap.h"

/* ---- emptying */

void gvmi_heap_note_requested(gvm_heap *heap, int64_t more)
{
    const int64_t now = atomic_fetch_add_explicit(&heap->requested_bytes, more, memory_order_relaxed) +
                        more;
    uint64_t peak = atomic_load_explicit(&heap->requested_peak_bytes, memory_order_relaxed);

    while (now > 0 && (uint64_t)now > peak &&
           !atomic_compare_exchange_weak_explicit(&heap->requested_peak_bytes, &peak, (uint64_t)now,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void gvmi_shelf_tell(gvmi_shelf *shelf)
{
    gvmi_heap_note_requested(shelf->heap, shelf->requested);
    shelf->requested = 0;
}

static void give_from_bin(gvmi_shelf *shelf, uint32_t bin, unsigned count)
{
    for (; count > 0; count--) {
        gvmi_block *block = shelf->bins[bin];

        shelf->bins[bin] = block->next;
        shelf->counts[bin]--;
        shelf->bytes -= gvmi_bin_bytes[bin];
        gvmi_heap_give_locked(shelf->heap, block);
    }
}

/* From every bin the same part, so that each size finds something the next time. */
void gvmi_shelf_empty_locked(gvmi_shelf *shelf, uint64_t keep_bytes)
{
    gvmi_shelf_tell(shelf);
    while (shelf->bytes > keep_bytes)
        for (uint32_t bin = GVMI_HEAP_BINS - 1; bin > 0 && shelf->bytes > keep_bytes; bin--)
            give_from_bin(shelf, bin, (shelf->counts[bin] + 1) / 2);
}

/* ---- the end */

void gvmi_shelves_end_locked(gvm_heap *heap, const gvmi_arena *arena)
{
    gvmi_shelf *next;

    for (gvmi_shelf *shelf = LIST_FIRST(&heap->shelves); shelf != NULL; shelf = next) {
        next = LIST_NEXT(shelf, entry);
        if (arena != NULL && shelf->arena != arena)
            continue;
        gvmi_shelf_empty_locked(shelf, 0);
        LIST_REMOVE(shelf, entry);
        if (shelf->orphan)
            free(shelf);
        else
            atomic_store_explicit(&shelf->dead, true, memory_order_release);
    }
}
