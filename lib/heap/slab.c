/* Slabs: a few units each, cut into cells of one size, for blocks of 256 bytes to 14 KiB.
 *
 * Sizes of cells are multiples of 256 bytes, what devices want addresses to be multiples of: each up to 2 KiB, then four
 * to a doubling, so that rounding loses 255 bytes or a fifth of the cell at most. What more than 14 KiB needs
 * takes a unit. A slab has 4 units, or 8 for the larger sizes, of which its cells leave a sixteenth at most.
 *
 * A cell's record is that of any block, in host memory beside the slab's: states, shelves, streams and lists know no
 * difference. An address finds its unit's record first, and there its slab.
 *
 * A slab is opened when no other of its arena has a free cell, and closed with its last cell. Its units are then free
 * ones of the arena like any, and the rules of chunks say when they leave it. That cells come and go does not open and
 * close slabs: threads' shelves hold some.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "heap/heap.h"

#define LARGE_BYTES 4096u /* cells of more have slabs of twice the units */
#define SLAB_UNITS 4u

#define UNITS8(n) \
    (n) << 14, (n + 1) << 14, (n + 2) << 14, (n + 3) << 14, (n + 4) << 14, (n + 5) << 14, \
        (n + 6) << 14, (n + 7) << 14

/* clang-format off */
const uint32_t gvmi_bin_bytes[GVMI_HEAP_BINS] = {
    0,
    256, 512, 768, 1024, 1280, 1536, 1792, 2048,
    2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336,
    UNITS8(1), UNITS8(9), UNITS8(17), UNITS8(25), UNITS8(33), UNITS8(41), UNITS8(49), UNITS8(57),
};

const uint8_t gvmi_cell_bins[(GVMI_CELL_BYTES_MAX >> GVMI_CELL_SHIFT) + 1] = {
    0, 1, 2, 3, 4, 5, 6, 7, 8,
    9, 9, 10, 10, 11, 11, 12, 12,
    13, 13, 13, 13, 14, 14, 14, 14, 15, 15, 15, 15, 16, 16, 16, 16,
    17, 17, 17, 17, 17, 17, 17, 17, 18, 18, 18, 18, 18, 18, 18, 18, 19, 19, 19, 19, 19, 19, 19, 19,
};
/* clang-format on */

static uint32_t slab_units(uint32_t bin)
{
    return gvmi_bin_bytes[bin] > LARGE_BYTES ? 2 * SLAB_UNITS : SLAB_UNITS;
}

gvmi_request gvmi_heap_request(uint64_t size_bytes, uint64_t alignment_bytes)
{
    uint32_t bin = gvmi_heap_bin(size_bytes);

    if (alignment_bytes > GVM_HEAP_UNIT_BYTES)
        return (gvmi_request){.units = gvmi_heap_units(size_bytes),
                              .alignment = (uint32_t)(alignment_bytes >> GVMI_HEAP_UNIT_SHIFT)};
    /* A slab begins at a unit, so its cells begin at multiples of what their size is one of. A unit does for all. */
    while (gvmi_is_cell_bin(bin) && gvmi_bin_bytes[bin] % alignment_bytes != 0)
        bin++;
    return (gvmi_request){
        .units = gvmi_is_cell_bin(bin) ? slab_units(bin) : gvmi_heap_units(size_bytes), .bin = bin};
}

/* ---- slabs */

static gvmi_slab *make_slab(uint32_t bin)
{
    const uint32_t bytes = gvmi_bin_bytes[bin];
    const uint32_t count = (slab_units(bin) << GVMI_HEAP_UNIT_SHIFT) / bytes;
    gvmi_slab *slab = gvmi_heap_calloc_line(sizeof *slab + count * sizeof slab->cells[0]);

    GVM_ASSERT(count <= GVMI_SLAB_CELLS_MAX);
    if (slab == NULL)
        return NULL;
    slab->bin = bin;
    slab->count = count;
    slab->grains = bytes >> GVMI_CELL_SHIFT;
    /* grain * inverse >> 16 is exact for all grains of a slab, of which there are less than 2^16 / grains. */
    slab->inverse = ((1u << 16) + slab->grains - 1) / slab->grains;
    for (uint32_t i = 0; i < count; i++) {
        slab->cells[i].slab = slab;
        slab->cells[i].bin = bin;
    }
    return slab;
}

static void set_slab_of_units(gvmi_block *block, gvmi_slab *slab)
{
    for (uint32_t i = 0; i < block->units; i++)
        atomic_store_explicit(&block[i].slab, slab, memory_order_release);
}

static gvm_status open_slab(gvm_heap *heap, gvmi_arena *arena, gvmi_request *request, gvmi_slab **out)
{
    gvmi_slab_list *spare = &heap->spare_slabs[request->bin];
    gvmi_slab *slab = LIST_FIRST(spare);
    gvm_status status;

    if (slab == NULL) {
        slab = make_slab(request->bin);
        if (slab == NULL)
            return gvm_error_set(GVM_E_NOMEM, "out of host memory for a slab of small blocks");
        LIST_INSERT_HEAD(spare, slab, entry);
    }
    status = gvmi_units_take_locked(heap, arena, request, &slab->block);
    if (status != GVM_OK)
        return status;
    LIST_REMOVE(slab, entry);
    LIST_INSERT_HEAD(&arena->slabs[slab->bin], slab, entry);
    slab->free_count = slab->count;
    for (uint32_t i = 0; i < slab->count; i++)
        slab->free[i / 64] |= 1ull << i % 64;
    atomic_store_explicit(&slab->block->state, GVMI_BLOCK_SLAB, memory_order_relaxed);
    atomic_store_explicit(&slab->base, slab->block->address, memory_order_relaxed);
    set_slab_of_units(slab->block, slab);
    heap->slab_count++;
    heap->slab_bytes += (uint64_t)slab->block->units << GVMI_HEAP_UNIT_SHIFT;
    heap->slab_free_bytes += (uint64_t)slab->block->units << GVMI_HEAP_UNIT_SHIFT;
    *out = slab;
    return GVM_OK;
}

/* All cells are free. */
static void close_slab(gvm_heap *heap, gvmi_slab *slab)
{
    const uint64_t bytes = (uint64_t)slab->block->units << GVMI_HEAP_UNIT_SHIFT;

    LIST_REMOVE(slab, entry);
    LIST_INSERT_HEAD(&heap->spare_slabs[slab->bin], slab, entry);
    memset(slab->free, 0, sizeof slab->free);
    set_slab_of_units(slab->block, NULL);
    heap->slab_count--;
    heap->slab_bytes -= bytes;
    heap->slab_free_bytes -= bytes;
    gvmi_units_give_locked(heap, slab->block);
}

void gvmi_slabs_move_locked(gvmi_arena *to, gvmi_arena *from)
{
    gvmi_slab *slab;

    for (uint32_t bin = 1; bin <= GVMI_CELL_BINS; bin++)
        while ((slab = LIST_FIRST(&from->slabs[bin])) != NULL) {
            LIST_REMOVE(slab, entry);
            LIST_INSERT_HEAD(&to->slabs[bin], slab, entry);
        }
}

static void free_list(gvmi_slab_list *list)
{
    gvmi_slab *slab;

    while ((slab = LIST_FIRST(list)) != NULL) {
        LIST_REMOVE(slab, entry);
        free(slab);
    }
}

void gvmi_slabs_free_spare_locked(gvm_heap *heap)
{
    gvmi_shelves_pass_locked(heap);
    for (uint32_t bin = 1; bin <= GVMI_CELL_BINS; bin++)
        free_list(&heap->spare_slabs[bin]);
}

void gvmi_slabs_free(gvm_heap *heap)
{
    free_list(&heap->full_slabs);
    for (uint32_t bin = 1; bin <= GVMI_CELL_BINS; bin++) {
        free_list(&heap->spare_slabs[bin]);
        free_list(&heap->plain.slabs[bin]);
        for (gvmi_arena *arena = heap->arenas; arena != NULL; arena = arena->next)
            free_list(&arena->slabs[bin]);
    }
}

/* ---- cells */

/* The lowest free one of a slab that has one. */
static gvmi_block *take_cell(gvm_heap *heap, gvmi_slab *slab)
{
    uint32_t word = 0, index;
    gvmi_block *cell;

    while (slab->free[word] == 0)
        word++;
    index = word * 64 + (uint32_t)__builtin_ctzll(slab->free[word]);
    slab->free[word] &= slab->free[word] - 1;
    if (--slab->free_count == 0) {
        LIST_REMOVE(slab, entry);
        LIST_INSERT_HEAD(&heap->full_slabs, slab, entry);
    }
    cell = &slab->cells[index];
    GVM_ASSERT(cell->state == GVMI_BLOCK_NONE);
    cell->address = slab->base + (uint64_t)index * gvmi_bin_bytes[slab->bin];
    cell->segment = slab->block->segment;
    heap->slab_free_bytes -= gvmi_bin_bytes[slab->bin];
    return cell;
}

static void give_cell(gvm_heap *heap, gvmi_slab *slab, gvmi_block *cell)
{
    const uint32_t index = (uint32_t)(cell - slab->cells);
    gvmi_arena *arena = cell->segment->arena;

    atomic_store_explicit(&cell->state, GVMI_BLOCK_NONE, memory_order_relaxed);
    slab->free[index / 64] |= 1ull << index % 64;
    heap->slab_free_bytes += gvmi_bin_bytes[slab->bin];
    if (slab->free_count++ == 0) {
        LIST_REMOVE(slab, entry);
        LIST_INSERT_HEAD(&arena->slabs[slab->bin], slab, entry);
    }
    if (slab->free_count == slab->count)
        close_slab(heap, slab);
}

/* ---- blocks, of units or cells */

/* Where there is no room for a slab, a unit does, which any cell fits in. */
static gvm_status take_in_slab(gvm_heap *heap, gvmi_arena *arena, gvmi_request *request,
                               gvmi_block **out)
{
    gvmi_slab *slab = LIST_FIRST(&arena->slabs[request->bin]);
    const gvm_status status = slab != NULL ? GVM_OK : open_slab(heap, arena, request, &slab);
    gvmi_request unit = {.units = 1, .alignment = request->alignment, .smaller = request->smaller};

    if (status == GVM_E_NOSPACE ||
        status == GVM_E_NOMEM) /* the latter: no memory is pinned, or none is left for the slab's record */
        return gvmi_units_take_locked(heap, arena, &unit, out);
    if (status == GVM_OK)
        *out = take_cell(heap, slab);
    return status;
}

gvm_status gvmi_heap_take_locked(gvm_heap *heap, gvmi_arena *arena, gvmi_request *request,
                                 gvmi_block **out)
{
    const gvm_status status = gvmi_is_cell_bin(request->bin)
                                  ? take_in_slab(heap, arena, request, out)
                                  : gvmi_units_take_locked(heap, arena, request, out);

    if (status == GVM_OK)
        gvmi_heap_count_block(heap, gvmi_block_bytes(*out), true);
    return status;
}

gvmi_block *gvmi_heap_take_cheap_locked(gvm_heap *heap, gvmi_arena *arena, uint32_t bin)
{
    gvmi_slab *slab = gvmi_is_cell_bin(bin) ? LIST_FIRST(&arena->slabs[bin]) : NULL;
    gvmi_block *block = slab != NULL ? take_cell(heap, slab)
                        : gvmi_is_cell_bin(bin)
                            ? NULL
                            : gvmi_units_take_cheap_locked(heap, arena, bin - GVMI_CELL_BINS);

    if (block != NULL)
        gvmi_heap_count_block(heap, gvmi_block_bytes(block), true);
    return block;
}

void gvmi_heap_give_locked(gvm_heap *heap, gvmi_block *block)
{
    gvmi_slab *slab = block->slab;

    gvmi_heap_count_block(heap, gvmi_block_bytes(block), false);
    if (slab != NULL)
        give_cell(heap, slab, block);
    else
        gvmi_units_give_locked(heap, block);
}
