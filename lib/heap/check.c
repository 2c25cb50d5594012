/* The invariants of heap/heap.h, walked. */
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/error.h"
#include "heap/heap.h"

typedef struct sums {
    uint64_t held_bytes, pending_bytes, committed_bytes, idle_bytes, leaving_bytes, address_bytes;
    uint64_t slab_bytes, slab_free_bytes, slab_count;
    uint64_t used_bytes; /* requested */
    uint64_t shelved_blocks;
    uint64_t order_blocks[GVMI_HEAP_ORDERS];
    uint32_t segments;
    bool may_exceed; /* idle chunks wait for a stream mark */
} sums;

static gvm_status fail_broken_heap(const char *what, uint64_t address, uint64_t found, uint64_t wanted)
{
    return gvm_error_set(GVM_E_INVALID, "the heap is broken at %#llx: %s: %llu, should be %llu",
                         (unsigned long long)address, what, (unsigned long long)found,
                         (unsigned long long)wanted);
}

/* Marks units; false if one is marked already. */
static bool mark_units(uint64_t *marks, uint64_t first, uint64_t end)
{
    for (uint64_t unit = first; unit < end; unit++) {
        if ((marks[unit / 64] >> unit % 64 & 1) != 0)
            return false;
        marks[unit / 64] |= 1ull << unit % 64;
    }
    return true;
}

static void sum_block(gvmi_block *block, uint64_t bytes, sums *all)
{
    if (block->state == GVMI_BLOCK_USED)
        all->used_bytes += block->size_bytes;
    else if (block->state == GVMI_BLOCK_SHELVED)
        all->shelved_blocks++;
    else
        all->pending_bytes += bytes;
    all->held_bytes += bytes;
    all->order_blocks[gvmi_heap_row(bytes)]++;
}

static gvm_status check_cell(const gvmi_segment *segment, gvmi_slab *slab, uint32_t index, sums *all)
{
    gvmi_block *cell = &slab->cells[index];
    const uint64_t bytes = gvmi_bin_bytes[slab->bin], address = slab->base + index * bytes;
    const bool is_free = (slab->free[index / 64] >> index % 64 & 1) != 0;

    if (cell->slab != slab || cell->bin != slab->bin || gvmi_slab_find(slab, address) != cell)
        return fail_broken_heap("H6, slab of a cell", address, cell->bin, slab->bin);
    if (is_free != (cell->state == GVMI_BLOCK_NONE) || cell->state > GVMI_BLOCK_PENDING)
        return fail_broken_heap("H6, state of a cell", address, cell->state, !is_free);
    if (is_free)
        return GVM_OK;
    if (cell->address != address || cell->segment != segment)
        return fail_broken_heap("address of a cell", address, cell->address, address);
    if (cell->state == GVMI_BLOCK_USED && (cell->size_bytes == 0 || cell->size_bytes > bytes))
        return fail_broken_heap("bytes of a cell", address, cell->size_bytes, bytes);
    sum_block(cell, bytes, all);
    return GVM_OK;
}

static bool is_listed(const gvm_heap *heap, const gvmi_segment *segment, const gvmi_slab *slab)
{
    const gvmi_arena *arena = segment->arena;
    const gvmi_slab *at = LIST_FIRST(slab->free_count > 0 ? &arena->slabs[slab->bin]
                                                          : &heap->full_slabs);

    while (at != NULL && at != slab)
        at = LIST_NEXT(at, entry);
    return at == slab;
}

static gvm_status check_slab(const gvm_heap *heap, const gvmi_segment *segment, gvmi_block *block,
                             sums *all)
{
    const uint64_t bytes = (uint64_t)block->units << GVMI_HEAP_UNIT_SHIFT;
    gvmi_slab *slab = block->slab;
    uint64_t held = all->held_bytes;
    uint32_t free_count = 0;
    gvm_status status = GVM_OK;

    if (slab == NULL || slab->block != block || slab->base != block->address ||
        (uint64_t)slab->count * gvmi_bin_bytes[slab->bin] > bytes)
        return fail_broken_heap("H6, a slab", block->address, 0, 1);
    for (uint32_t i = 0; i < slab->count && status == GVM_OK; i++)
        status = check_cell(segment, slab, i, all);
    if (status != GVM_OK)
        return status;
    for (uint32_t i = 0; i < sizeof slab->free / sizeof slab->free[0]; i++)
        free_count += (uint32_t)__builtin_popcountll(slab->free[i]);
    if (free_count != slab->free_count || free_count == slab->count)
        return fail_broken_heap("H6, free cells of a slab", slab->base, slab->free_count, free_count);
    if (!is_listed(heap, segment, slab))
        return fail_broken_heap("H6, list of a slab with free cells", slab->base, free_count, 1);
    all->slab_count++;
    all->slab_bytes += bytes;
    all->slab_free_bytes += bytes - (all->held_bytes - held);
    return GVM_OK;
}

static gvm_status check_units_slab(const gvmi_segment *segment, uint64_t unit, uint64_t units)
{
    const bool is_slab = segment->blocks[unit].state == GVMI_BLOCK_SLAB;

    if (segment->lone)
        units = 1;
    for (uint64_t i = unit; i < unit + units; i++)
        if (segment->blocks[i].slab != (is_slab ? segment->blocks[unit].slab : NULL))
            return fail_broken_heap("H6, slab of a unit",
                                    segment->base + (i << GVMI_HEAP_UNIT_SHIFT), !is_slab, is_slab);
    return GVM_OK;
}

static gvm_status check_block(const gvm_heap *heap, const gvmi_segment *segment, uint64_t unit,
                              uint64_t *marks, uint32_t *users, uint64_t *covered, sums *all)
{
    gvmi_block *block = &segment->blocks[unit];
    const uint64_t units = block->units, base = segment->base;
    const uint64_t address = base + (unit << GVMI_HEAP_UNIT_SHIFT);
    gvm_status status;

    if (block->state == GVMI_BLOCK_NONE ||
        (block->state > GVMI_BLOCK_PENDING && block->state != GVMI_BLOCK_SLAB))
        return fail_broken_heap("state of a block", address, block->state, GVMI_BLOCK_USED);
    if (block->address != address || block->segment != segment)
        return fail_broken_heap("address of a block", address, block->address, address);
    if (units == 0 ||
        (unit + units) << GVMI_HEAP_UNIT_SHIFT > gvmi_round_up(segment->bytes, GVM_HEAP_UNIT_BYTES))
        return fail_broken_heap("units of a block", address, units, 1);
    if (gvmi_block_bytes(block) != units << GVMI_HEAP_UNIT_SHIFT)
        return fail_broken_heap("bin of a block", address, block->bin, units);
    if (block->state == GVMI_BLOCK_USED && gvmi_heap_units(block->size_bytes) != units)
        return fail_broken_heap("bytes of a block", address, block->size_bytes,
                                units << GVMI_HEAP_UNIT_SHIFT);
    status = check_units_slab(segment, unit, units);
    if (status == GVM_OK && block->state == GVMI_BLOCK_SLAB)
        status = check_slab(heap, segment, block, all);
    else if (status == GVM_OK)
        sum_block(block, units << GVMI_HEAP_UNIT_SHIFT, all);
    if (status != GVM_OK)
        return status;
    for (uint64_t i = unit / segment->chunk_units; i <= (unit + units - 1) / segment->chunk_units; i++)
        users[i]++;
    if (segment->lone)
        return GVM_OK;
    if (!mark_units(marks, unit, unit + units))
        return fail_broken_heap("units that two blocks have", address, units, 0);
    *covered += units;
    return GVM_OK;
}

static gvm_status check_chunks(const gvmi_segment *segment, const uint32_t *users, sums *all)
{
    uint64_t idle = 0, committed = 0, leaving = 0;

    for (uint64_t i = 0; i < segment->chunk_count; i++) {
        const gvmi_heap_chunk *chunk = &segment->chunks[i];
        const uint64_t address = segment->base + i * segment->chunk_bytes;
        const bool is_idle = chunk->committed && chunk->users == 0 && !chunk->leaving;

        if (chunk->users != users[i])
            return fail_broken_heap("H3, users of a chunk", address, chunk->users, users[i]);
        if (chunk->users > 0 && !chunk->committed)
            return fail_broken_heap("H3, memory of a chunk", address, 0, 1);
        if (chunk->leaving && (chunk->users > 0 || !chunk->committed))
            return fail_broken_heap("H3, users of a chunk that leaves", address, chunk->users, 0);
        if (((segment->idle[i / 64] >> i % 64 & 1) != 0) != is_idle)
            return fail_broken_heap("a chunk marked idle", address, !is_idle, is_idle);
        if (is_idle && chunk->idle_since > ((gvmi_arena *)segment->arena)->passed)
            all->may_exceed = true;
        idle += is_idle;
        committed += chunk->committed;
        leaving += chunk->leaving;
    }
    if (idle != segment->idle_count)
        return fail_broken_heap("H5, idle chunks", segment->base, segment->idle_count, idle);
    if (committed != segment->committed_count)
        return fail_broken_heap("H5, committed chunks", segment->base, segment->committed_count,
                                committed);
    if (leaving != segment->leaving_count)
        return fail_broken_heap("H5, leaving chunks", segment->base, segment->leaving_count, leaving);
    all->idle_bytes += idle * segment->chunk_bytes;
    all->leaving_bytes += leaving * segment->chunk_bytes;
    all->committed_bytes += committed * segment->chunk_bytes;
    if (leaving == 0 && segment->buffer != NULL && segment->buffer->vmm &&
        segment->buffer->device_bytes != committed * segment->chunk_bytes)
        return fail_broken_heap("memory of the buffer", segment->base,
                                segment->buffer->device_bytes, committed * segment->chunk_bytes);
    return GVM_OK;
}

static gvm_status check_blocks(const gvm_heap *heap, const gvmi_segment *segment, uint64_t *marks,
                               uint32_t *users, sums *all)
{
    const uint64_t units = segment->lone ? 1 : segment->bytes >> GVMI_HEAP_UNIT_SHIFT;
    uint64_t covered = 0, free_units = 0, live = 0;
    gvm_status status = GVM_OK;

    for (uint64_t word = 0; word < (units + 63) / 64; word++)
        for (uint64_t bits = segment->starts[word]; bits != 0 && status == GVM_OK; bits &= bits - 1) {
            status = check_block(heap, segment, word * 64 + (uint64_t)__builtin_ctzll(bits), marks,
                                 users, &covered, all);
            live++;
        }
    if (status == GVM_OK && live != segment->live)
        status = fail_broken_heap("H5, blocks of a segment", segment->base, segment->live, live);
    if (status != GVM_OK || segment->lone)
        return status;
    for (uint64_t i = 0; i < segment->chunk_count; i++) {
        if (!segment->chunks[i].leaving)
            continue;
        if (!mark_units(marks, i * segment->chunk_units, (i + 1) * segment->chunk_units))
            return fail_broken_heap("H1, units of a chunk that leaves",
                                    segment->base + i * segment->chunk_bytes, 1, 0);
        covered += segment->chunk_units;
    }
    if (!gvmi_buddy_check(segment->buddy, marks, &free_units))
        return fail_broken_heap("H1 or H2, free blocks", segment->base, free_units, units - covered);
    if (covered + free_units != units)
        return fail_broken_heap("H1, units that nobody has", segment->base,
                                units - covered - free_units, 0);
    return GVM_OK;
}

static gvm_status check_segment(gvm_heap *heap, const gvmi_arena *arena, gvmi_segment *segment,
                                sums *all)
{
    const uint64_t units = segment->lone ? 1 : segment->bytes >> GVMI_HEAP_UNIT_SHIFT;
    uint64_t *marks = calloc((units + 63) / 64, sizeof *marks);
    uint32_t *users = calloc(segment->chunk_count, sizeof *users);
    gvmi_segment *found = NULL;
    gvm_status status = marks != NULL && users != NULL
                            ? check_blocks(heap, segment, marks, users, all)
                            : gvm_error_set(GVM_E_NOMEM, "out of host memory for a check");

    if (status == GVM_OK)
        status = check_chunks(segment, users, all);
    if (status == GVM_OK && segment->arena != arena)
        status = fail_broken_heap("arena of a segment", segment->base, 0, 1);
    if (status == GVM_OK && (gvmi_heap_find(heap, segment->base, &found) == NULL || found != segment))
        status = fail_broken_heap("the table's segment", segment->base, 0, 1);
    if (status == GVM_OK && !segment->lone &&
        (gvmi_heap_find(heap, segment->base + segment->bytes - GVM_HEAP_UNIT_BYTES, &found) == NULL ||
         found != segment))
        status = fail_broken_heap("the table's segment, at its end", segment->base, 0, 1);
    all->segments++;
    all->address_bytes += segment->bytes;
    free(marks);
    free(users);
    return status;
}

static gvm_status check_arena(gvm_heap *heap, const gvmi_arena *arena, sums *all)
{
    gvm_status status = GVM_OK;

    for (size_t i = 0; i < arena->count && status == GVM_OK; i++)
        status = check_segment(heap, arena, arena->segments[i], all);
    return status;
}

static gvm_status check_shelf(const gvmi_shelf *shelf, uint64_t *blocks)
{
    uint64_t bytes = 0;

    for (uint32_t bin = 1; bin < GVMI_HEAP_BINS; bin++) {
        uint64_t count = 0;

        for (gvmi_block *block = shelf->bins[bin]; block != NULL; block = block->next) {
            if (block->state != GVMI_BLOCK_SHELVED || block->bin != bin ||
                block->segment->arena != shelf->arena)
                return fail_broken_heap("a block on a shelf", block->address, block->state,
                                        GVMI_BLOCK_SHELVED);
            count++;
        }
        if (count != shelf->counts[bin])
            return fail_broken_heap("H5, blocks on a shelf", 0, shelf->counts[bin], count);
        *blocks += count;
        bytes += count * gvmi_bin_bytes[bin];
    }
    if (bytes != shelf->bytes || bytes > shelf->limit_bytes)
        return fail_broken_heap("H5, bytes on a shelf", 0, shelf->bytes, bytes);
    return GVM_OK;
}

static gvm_status check_sums(const gvm_heap *heap, const sums *all, uint64_t shelved)
{
    int64_t requested = heap->requested_bytes;

    for (const gvmi_shelf *shelf = LIST_FIRST(&heap->shelves); shelf != NULL;
         shelf = LIST_NEXT(shelf, entry))
        requested += shelf->requested;
#define SAME(what, member) \
    if (heap->member != all->member) \
    return fail_broken_heap("H5, " what, 0, heap->member, all->member)
    SAME("bytes held", held_bytes);
    SAME("bytes that wait", pending_bytes);
    SAME("slabs", slab_count);
    SAME("bytes of slabs", slab_bytes);
    SAME("free bytes of slabs", slab_free_bytes);
    SAME("bytes committed", committed_bytes);
    SAME("bytes idle", idle_bytes);
    SAME("bytes of addresses", address_bytes);
#undef SAME
    if (heap->segment_count != all->segments)
        return fail_broken_heap("H5, segments", 0, heap->segment_count, all->segments);
    if (requested != (int64_t)all->used_bytes)
        return fail_broken_heap("H5, bytes requested", 0, (uint64_t)requested, all->used_bytes);
    if (shelved != all->shelved_blocks)
        return fail_broken_heap("H5, blocks on shelves", 0, shelved, all->shelved_blocks);
    for (unsigned i = 0; i < GVMI_HEAP_ORDERS; i++)
        if (heap->order_blocks[i] != all->order_blocks[i])
            return fail_broken_heap("H5, blocks of an order", i, heap->order_blocks[i],
                                    all->order_blocks[i]);
    /* Whole segments that leave are in no arena. */
    if (heap->whole ? all->leaving_bytes != 0 : heap->leaving_bytes != all->leaving_bytes)
        return fail_broken_heap("H5, bytes that leave", 0, heap->leaving_bytes, all->leaving_bytes);
    if (heap->bounded && !heap->keeps && !all->may_exceed && !heap->whole && !heap->stuck &&
        !heap->unsettled && heap->leaving_bytes == 0 && heap->idle_bytes > heap->keep_bytes)
        return fail_broken_heap("H4, idle bytes", 0, heap->idle_bytes, heap->keep_bytes);
    if (heap->idle_low_bytes > heap->idle_bytes)
        return fail_broken_heap("H4, least idle bytes of the interval", 0, heap->idle_low_bytes,
                                heap->idle_bytes);
    return GVM_OK;
}

/* The lock is held, and all shelves are owned. */
static gvm_status check_heap_locked(gvm_heap *heap)
{
    uint64_t shelved = 0;
    sums all = {0};
    gvm_status status = check_arena(heap, &heap->plain, &all);

    for (const gvmi_arena *arena = heap->arenas; arena != NULL && status == GVM_OK; arena = arena->next)
        status = check_arena(heap, arena, &all);
    for (const gvmi_shelf *shelf = LIST_FIRST(&heap->shelves); shelf != NULL && status == GVM_OK;
         shelf = LIST_NEXT(shelf, entry))
        status = check_shelf(shelf, &shelved);
    if (status == GVM_OK && !gvmi_heap_table_check_locked(heap))
        status = fail_broken_heap("the table of segments", 0, 0, 1);
    return status == GVM_OK ? check_sums(heap, &all, shelved) : status;
}

gvm_status gvm_heap_check(gvm_heap *handle)
{
    GVMI_UNCANCELLED;
    gvm_heap *heap;
    gvm_status status = gvmi_heap_hold(handle, &heap);

    if (status != GVM_OK)
        return status;
    gvmi_lock(&heap->lock);
    gvmi_shelves_own_locked(heap);
    status = check_heap_locked(heap);
    gvmi_shelves_leave_locked(heap);
    gvmi_unlock(&heap->lock);
    gvmi_heap_drop(heap);
    return status;
}
