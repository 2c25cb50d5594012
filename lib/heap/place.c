/* Which segment, which block.
 *
 * A small request goes, in this order, where it needs no memory that is not there: into the lowest
 * free block of a chunk that has users; into the lowest idle chunk; and only then into the lowest
 * free addresses. That is a buddy's work: a few bits are looked at, and small blocks stay together.
 *
 * A larger one goes into the lowest run of free units that is long enough, wherever that begins. On
 * the buddy's boundaries every block would leave the rest of its last chunk to small ones, and there
 * are never enough of these: measured on traces of training, a fifth of all memory.
 *
 * "Lowest" is the oldest segment first, and within it the lowest address: drivers differ in whether
 * later reservations lie above or below earlier ones. What is low so fills up, and whole chunks come
 * free at the top.
 *
 * Segments are of two sorts. Those of one gigabyte have chunks of 2 MiB where it is an arena's first, else of 16
 * MiB, or for requests from 128 MiB on.
 * What needs more than half a segment gets a lone one, whose addresses are a power of two: freed it serves
 * every other request of that sort that it is long enough for, with memory under what that asks for.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/error.h"
#include "heap/heap.h"

#define CHUNK_BYTES_USUAL (16 * GVMI_MIB)
#define LARGE_BYTES (128 * GVMI_MIB)
#define SMALL_UNITS 16 /* 256 KiB */
#define LONE_WASTE 16  /* the part of a request that may be lost */

/* ---- segments */

static uint64_t least_chunk_bytes(const gvm_heap *heap)
{
    return gvmi_max(GVM_CHUNK_BYTES_MIN, heap->device->info.granularity_bytes);
}

/* Of a new segment. The driver charges by the chunk, so only where little is in use they are small. */
static uint64_t chunk_bytes_for(const gvm_heap *heap, const gvmi_arena *arena, uint64_t bytes)
{
    const uint64_t least = least_chunk_bytes(heap);
    const uint64_t usual = bytes < LARGE_BYTES && arena->count == 0 ? GVM_CHUNK_BYTES_MIN
                                                                    : CHUNK_BYTES_USUAL;

    if (heap->whole)
        return heap->segment_bytes;
    return gvmi_max(usual, least);
}

/* A part of the segment's addresses such that the smallest request for which one is opened, which is above half of
 * them, loses a sixteenth at most. */
static uint64_t lone_chunk_bytes(const gvm_heap *heap, uint64_t bytes)
{
    const uint64_t part = gvmi_pow2_up(bytes) / (2 * LONE_WASTE);

    if (heap->whole)
        return gvmi_round_up(bytes, GVM_CHUNK_BYTES_MIN);
    return gvmi_min(part, GVM_CHUNK_BYTES_MAX);
}

static void free_segment(gvmi_segment *segment)
{
    if (segment->blocks != NULL)
        munmap(segment->blocks, segment->blocks_bytes);
    free(segment->chunks);
    free(segment->idle);
    free(segment->starts);
    free(segment->buddy);
    free(segment);
}

void gvmi_segments_free(gvmi_segment *spare)
{
    while (spare != NULL) {
        gvmi_segment *next = spare->next;

        free_segment(spare);
        spare = next;
    }
}

/* The parts that do not depend on the chunks. Pages of the blocks' records come as they are touched. */
static gvmi_segment *make_shell(const gvm_heap *heap, bool lone)
{
    const uint64_t units = lone ? 1 : heap->segment_bytes >> GVMI_HEAP_UNIT_SHIFT;
    gvmi_segment *segment = gvmi_heap_calloc_line(sizeof *segment);
    void *blocks;

    if (segment == NULL)
        return NULL;
    segment->lone = lone;
    segment->blocks_bytes = units * sizeof(gvmi_block);
    segment->starts = calloc((units + 63) / 64, sizeof *segment->starts);
    segment->buddy = lone ? NULL : malloc(sizeof *segment->buddy);
    blocks = mmap(NULL, segment->blocks_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    segment->blocks = blocks == MAP_FAILED ? NULL : blocks;
    if (segment->blocks != NULL && segment->starts != NULL && (lone || segment->buddy != NULL))
        return segment;
    free_segment(segment);
    return NULL;
}

static gvm_status take_shell(gvm_heap *heap, bool lone, gvmi_segment **out)
{
    gvmi_segment **spare = lone ? &heap->spare_lone : &heap->spare_usual;

    *out = *spare;
    if (*out != NULL)
        *spare = (*out)->next;
    else
        *out = make_shell(heap, lone);
    return *out != NULL ? GVM_OK
                        : gvm_error_set(GVM_E_NOMEM, "out of host memory for a heap's segment");
}

void gvmi_segment_keep_locked(gvm_heap *heap, gvmi_segment *segment)
{
    gvmi_segment **spare = segment->lone ? &heap->spare_lone : &heap->spare_usual;

    atomic_store_explicit(&segment->bytes, 0, memory_order_relaxed);
    /* Beyond all addresses. A shelf may still look here for a block that lies at one of the old addresses by now: it must not find
     * the old base together with the size that the segment has when it is used again. */
    atomic_store_explicit(&segment->base, 1ull << 63, memory_order_relaxed);
    free(segment->chunks);
    free(segment->idle);
    segment->chunks = NULL;
    segment->idle = NULL;
    segment->next = *spare;
    *spare = segment;
}

static gvm_status cut_segment_chunks(gvm_heap *heap, gvmi_segment *segment, uint64_t bytes,
                                     uint64_t chunk_bytes)
{
    segment->chunk_bytes = chunk_bytes;
    segment->chunk_units = (uint32_t)(chunk_bytes >> GVMI_HEAP_UNIT_SHIFT);
    segment->chunk_order = gvmi_heap_order(segment->chunk_units);
    segment->chunk_count = bytes / chunk_bytes;
    segment->idle_count = segment->committed_count = segment->leaving_count = 0;
    segment->chunks = calloc(segment->chunk_count, sizeof *segment->chunks);
    segment->idle = calloc((segment->chunk_count + 63) / 64, sizeof *segment->idle);
    if (segment->chunks != NULL && segment->idle != NULL)
        return gvmi_backing_open(heap, segment, bytes);
    return gvm_error_set(GVM_E_NOMEM, "out of host memory for a table of %llu chunks",
                         (unsigned long long)segment->chunk_count);
}

gvm_status gvmi_arena_make_room_locked(gvmi_arena *arena, size_t more)
{
    size_t capacity = arena->capacity > 0 ? arena->capacity : 8;
    gvmi_segment **grown;

    while (capacity < arena->count + more)
        capacity *= 2;
    if (capacity == arena->capacity)
        return GVM_OK;
    grown = realloc(arena->segments, capacity * sizeof(gvmi_segment *));
    if (grown == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a heap's list of segments");
    arena->segments = grown;
    arena->capacity = capacity;
    return GVM_OK;
}

void gvmi_arena_add_locked(gvmi_arena *arena, gvmi_segment *segment)
{
    GVM_ASSERT(arena->count < arena->capacity);
    arena->segments[arena->count++] = segment;
    atomic_store_explicit(&segment->arena, arena, memory_order_relaxed);
}

static void remove_from_arena(gvmi_segment *segment)
{
    gvmi_arena *arena = segment->arena;
    size_t at = 0;

    while (arena->segments[at] != segment)
        at++;
    arena->count--;
    memmove(&arena->segments[at], &arena->segments[at + 1],
            (arena->count - at) * sizeof(gvmi_segment *));
}

static gvm_status open_segment(gvm_heap *heap, gvmi_arena *arena, uint64_t bytes, bool lone,
                               uint64_t chunk_bytes, gvmi_segment **out)
{
    gvmi_segment *segment;
    gvm_status status = heap->whole ? gvmi_heap_check_limit(heap, bytes, 0) : GVM_OK;

    /* Room first: what has memory is not given up again for want of it, which may wait for kernels. */
    if (status == GVM_OK)
        status = gvmi_arena_make_room_locked(arena, 1);
    if (status == GVM_OK)
        status = gvmi_heap_table_make_room_locked(heap);
    if (status == GVM_OK)
        status = take_shell(heap, lone, &segment);
    if (status != GVM_OK)
        return status;
    status = cut_segment_chunks(heap, segment, bytes, chunk_bytes);
    if (status != GVM_OK) {
        gvmi_segment_keep_locked(heap, segment);
        return status;
    }
    atomic_store_explicit(&segment->bytes, bytes, memory_order_relaxed);
    if (!lone)
        gvmi_buddy_init(segment->buddy, (uint32_t)(bytes >> GVMI_HEAP_UNIT_SHIFT),
                        segment->chunk_order);
    gvmi_heap_table_add_locked(heap, segment);
    gvmi_arena_add_locked(arena, segment);
    heap->segment_count++;
    heap->address_bytes += bytes;
    if (heap->whole) { /* it comes with its memory */
        heap->commits++;
        gvmi_chunk_come_locked(heap, segment, 0);
    }
    *out = segment;
    return GVM_OK;
}

void gvmi_segment_detach_locked(gvm_heap *heap, gvmi_segment *segment)
{
    GVM_ASSERT(segment->live == 0 && segment->leaving_count == 0);
    gvmi_heap_table_remove_locked(heap, segment);
    remove_from_arena(segment);
    heap->segment_count--;
    heap->address_bytes -= segment->bytes;
    heap->committed_bytes -= segment->committed_count * segment->chunk_bytes;
    heap->idle_bytes -= segment->idle_count * segment->chunk_bytes;
    heap->idle_low_bytes = gvmi_min(heap->idle_low_bytes, heap->idle_bytes);
}

/* One without memory, or of a heap in which nobody is. */
static void close_segment_locked(gvm_heap *heap, gvmi_segment *segment)
{
    gvmi_segment_detach_locked(heap, segment);
    gvmi_backing_close(heap, segment);
    gvmi_segment_keep_locked(heap, segment);
}

void gvmi_arena_close_locked(gvmi_arena *arena)
{
    while (arena->count > 0) {
        gvmi_segment *segment = arena->segments[arena->count - 1];

        segment->live = 0; /* leaks go with the heap */
        close_segment_locked(arena->heap, segment);
    }
}

static bool is_empty(const gvmi_segment *segment)
{
    return segment->live == 0 && segment->committed_count == 0;
}

void gvmi_arena_close_empty_locked(gvmi_arena *arena, bool all)
{
    uint64_t usual = 0;

    for (size_t i = 0; i < arena->count; i++)
        usual += is_empty(arena->segments[i]) && !arena->segments[i]->lone;
    for (size_t i = arena->count; i-- > 0;) {
        gvmi_segment *segment = arena->segments[i];

        if (is_empty(segment) && (all || segment->lone || usual-- > 1))
            close_segment_locked(arena->heap, segment);
    }
}

/* ---- choosing */

typedef struct place {
    gvmi_segment *segment;
    uint32_t unit;
    bool fresh; /* the segment was opened for it */
} place;

/* In a chunk that has users: its free pieces are the free blocks smaller than a chunk. */
static bool in_used_chunk(const gvmi_arena *arena, unsigned order, place *out)
{
    for (size_t i = 0; i < arena->count; i++) {
        gvmi_segment *segment = arena->segments[i];
        unsigned found;

        if (!segment->lone &&
            gvmi_buddy_lowest(segment->buddy, order, segment->chunk_order, &found, &out->unit)) {
            out->segment = segment;
            return true;
        }
    }
    return false;
}

/* most: of the size of chunks. */
static bool in_idle_chunk(const gvmi_arena *arena, unsigned order, uint64_t most, place *out)
{
    for (size_t i = 0; i < arena->count; i++) {
        gvmi_segment *segment = arena->segments[i];

        if (segment->lone || segment->idle_count == 0 || segment->chunk_bytes > most ||
            order > segment->chunk_order)
            continue;
        for (uint64_t word = 0; word < (segment->chunk_count + 63) / 64; word++)
            for (uint64_t bits = segment->idle[word]; bits != 0; bits &= bits - 1) {
                const uint64_t chunk = word * 64 + (uint64_t)__builtin_ctzll(bits);

                out->unit = (uint32_t)(chunk * segment->chunk_units);
                out->segment = segment;
                /* It may also lie in the addresses that a block keeps to grow. */
                if (gvmi_buddy_covering(segment->buddy, out->unit) >= (int)segment->chunk_order)
                    return true;
            }
    }
    return false;
}

static bool in_free_addresses(const gvmi_arena *arena, unsigned order, uint64_t most, place *out)
{
    for (size_t i = 0; i < arena->count; i++) {
        gvmi_segment *segment = arena->segments[i];
        unsigned found;

        if (!segment->lone && segment->chunk_bytes <= most &&
            gvmi_buddy_lowest(segment->buddy, order, GVMI_HEAP_ORDERS, &found, &out->unit)) {
            out->segment = segment;
            return true;
        }
    }
    return false;
}

/* On 16 KiB, not on the chunk: a block may begin in the last chunk of another. */
static bool in_free_run(const gvmi_arena *arena, uint32_t units, uint64_t most, place *out)
{
    for (size_t i = 0; i < arena->count; i++) {
        gvmi_segment *segment = arena->segments[i];

        if (!segment->lone && segment->chunk_bytes <= most &&
            gvmi_buddy_lowest_run(segment->buddy, units, &out->unit)) {
            out->segment = segment;
            return true;
        }
    }
    return false;
}

/* The first unit at or behind one whose address is a multiple of so many units. */
static uint32_t aligned_unit(const gvmi_segment *segment, uint64_t unit, uint32_t alignment)
{
    const uint64_t base = segment->base >> GVMI_HEAP_UNIT_SHIFT;

    return (uint32_t)(gvmi_round_up(base + unit, alignment) - base);
}

/* In a run that is so long that it holds the block at its first good address. */
static bool in_free_aligned_run(const gvmi_arena *arena, const gvmi_request *request, uint64_t most,
                                place *out)
{
    if (!in_free_run(arena, (uint32_t)request->units + request->alignment - 1, most, out))
        return false;
    out->unit = aligned_unit(out->segment, out->unit, request->alignment);
    return true;
}

/* most: of the size of chunks. */
static bool in_arena(const gvmi_arena *arena, const gvmi_request *request, uint64_t most, place *out)
{
    const uint64_t units = request->units;
    const unsigned order = gvmi_heap_order(units);

    if (request->alignment > 1)
        return in_free_aligned_run(arena, request, most, out);
    return units <= SMALL_UNITS
               ? in_used_chunk(arena, order, out) || in_idle_chunk(arena, order, most, out) ||
                     in_free_addresses(arena, order, most, out)
               : in_free_run(arena, (uint32_t)units, most, out);
}

/* Takes over a segment of the plain arena in which no block is, with what memory it has: streams that ended have left it
 * there. False: there is none. */
static bool adopt_locked(gvm_heap *heap, gvmi_arena *arena, uint64_t chunk_bytes)
{
    for (size_t i = 0; i < heap->plain.count && arena != &heap->plain; i++) {
        gvmi_segment *segment = heap->plain.segments[i];

        if (segment->lone || segment->live > 0 || segment->leaving_count > 0 ||
            segment->chunk_bytes != chunk_bytes || gvmi_arena_make_room_locked(arena, 1) != GVM_OK)
            continue;
        remove_from_arena(segment);
        gvmi_arena_add_locked(arena, segment);
        arena->idled = heap->idle_number; /* what has become idle leaves after a stream mark, as all of the stream's does */
        arena->reaped = 0;
        return true;
    }
    return false;
}

/* Whatever its chunks are, the lowest place is taken, unless memory is short. */
static gvm_status choose_place(gvm_heap *heap, gvmi_arena *arena, const gvmi_request *request,
                               uint64_t chunk_bytes, place *out)
{
    const uint64_t most = request->smaller ? chunk_bytes : UINT64_MAX;
    gvm_status status;

    out->fresh = false;
    if (in_arena(arena, request, most, out) ||
        (adopt_locked(heap, arena, chunk_bytes) && in_arena(arena, request, most, out)))
        return GVM_OK;
    out->fresh = true;
    status = open_segment(heap, arena, heap->segment_bytes, false, chunk_bytes, &out->segment);
    if (status == GVM_OK)
        out->unit = request->alignment > 1 ? aligned_unit(out->segment, 0, request->alignment) : 0;
    return status;
}

static bool begins_aligned(const gvmi_segment *segment, uint32_t alignment)
{
    return alignment <= 1 || segment->base % ((uint64_t)alignment << GVMI_HEAP_UNIT_SHIFT) == 0;
}

/* The bytes that a free lone segment has no memory for; UINT64_MAX: it does not do. Chunks of what is missing have at
 * most chunk_bytes. */
static uint64_t lone_missing(const gvm_heap *heap, const gvmi_segment *segment,
                             const gvmi_request *request, uint64_t chunk_bytes)
{
    const uint64_t bytes = request->units << GVMI_HEAP_UNIT_SHIFT;
    const uint64_t end = (bytes + segment->chunk_bytes - 1) / segment->chunk_bytes;
    uint64_t missing = 0;

    if (!segment->lone || segment->live > 0 || segment->leaving_count > 0 ||
        segment->bytes < bytes || !begins_aligned(segment, request->alignment))
        return UINT64_MAX;
    if (heap->whole) /* of whose memory nothing can be given back alone */
        return segment->bytes - bytes <= bytes / LONE_WASTE ? 0 : UINT64_MAX;
    for (uint64_t i = 0; i < end; i++)
        missing += segment->chunks[i].committed ? 0 : segment->chunk_bytes;
    return missing == 0 || segment->chunk_bytes <= chunk_bytes ? missing : UINT64_MAX;
}

static bool is_lone(const gvm_heap *heap, uint64_t units)
{
    return units > heap->segment_bytes >> (GVMI_HEAP_UNIT_SHIFT + 1);
}

/* Any free segment does that is long enough, unless memory is short and its chunks are too large. */
static gvm_status choose_lone_place(gvm_heap *heap, gvmi_arena *arena, const gvmi_request *request,
                                    uint64_t chunk_bytes, place *out)
{
    const uint64_t bytes = request->units << GVMI_HEAP_UNIT_SHIFT;
    const uint64_t most = request->smaller ? chunk_bytes : UINT64_MAX;
    uint64_t least = UINT64_MAX;
    gvm_status status;

    *out = (place){.unit = 0};
    for (size_t i = 0; i < arena->count; i++) {
        const uint64_t missing = lone_missing(heap, arena->segments[i], request, most);

        if (missing < least) {
            out->segment = arena->segments[i];
            least = missing;
        }
    }
    if (out->segment != NULL)
        return GVM_OK;
    out->fresh = true;
    status = open_segment(heap, arena, heap->whole ? chunk_bytes : gvmi_pow2_up(bytes), true,
                          chunk_bytes, &out->segment);
    if (status != GVM_OK || begins_aligned(out->segment, request->alignment))
        return status;
    return gvm_error_set(GVM_E_ADDRESS,
                         "the driver gave addresses that begin at no multiple of %llu KiB",
                         (unsigned long long)request->alignment << (GVMI_HEAP_UNIT_SHIFT - 10));
}

static uint32_t unit_of(const gvmi_block *block)
{
    return (uint32_t)(block - block->segment->blocks);
}

static void set_units(gvmi_block *block, uint64_t units)
{
    const uint32_t bin = units <= GVMI_HEAP_SHELF_UNITS ? GVMI_CELL_BINS + (uint32_t)units : 0;

    atomic_store_explicit(&block->units, (uint32_t)units, memory_order_relaxed);
    atomic_store_explicit(&block->bin, bin, memory_order_relaxed);
}

/* ---- blocks */

static gvm_status take_block_at(gvm_heap *heap, const place *at, gvmi_request *request, gvmi_block **out)
{
    const uint64_t units = request->units;
    gvmi_segment *segment = at->segment;
    gvmi_block *block = &segment->blocks[at->unit];
    gvm_status status = gvmi_chunks_use_locked(heap, segment, at->unit, at->unit + units, request);

    if (status != GVM_OK)
        return status;
    if (!segment->lone)
        gvmi_buddy_take(segment->buddy, at->unit, at->unit + (uint32_t)units);
    GVM_ASSERT(block->state == GVMI_BLOCK_NONE);
    block->address = segment->base + ((uint64_t)at->unit << GVMI_HEAP_UNIT_SHIFT);
    block->segment = segment;
    segment->starts[at->unit / 64] |= 1ull << at->unit % 64;
    segment->live++;
    set_units(block, units);
    *out = block;
    return GVM_OK;
}

static gvm_status take_with_chunk_bytes(gvm_heap *heap, gvmi_arena *arena, gvmi_request *request,
                                        uint64_t chunk_bytes, gvmi_block **out)
{
    place at;
    gvm_status status = is_lone(heap, request->units)
                            ? choose_lone_place(heap, arena, request, chunk_bytes, &at)
                            : choose_place(heap, arena, request, chunk_bytes, &at);

    if (status != GVM_OK)
        return status;
    status = take_block_at(heap, &at, request, out);
    if (status != GVM_OK && at.fresh && at.segment->committed_count == 0)
        close_segment_locked(heap, at.segment);
    return status;
}

/* What the device, with the free chunks that are given back when it is full, and the limit have room for. */
static uint64_t room_bytes(const gvm_heap *heap)
{
    const gvm_error error = gvmi_error_save();
    const uint64_t room = gvmi_device_free_bytes(heap->device) +
                          gvmi_chunk_cache_bytes(heap->device->cache);

    gvm_error_restore(&error);
    if (heap->limit_bytes > heap->committed_bytes + room)
        return room;
    return heap->limit_bytes > heap->committed_bytes ? heap->limit_bytes - heap->committed_bytes : 0;
}

/* A block of its own segment: what its last chunk takes beyond it may be just what is missing. */
static gvm_status take_shortened_segment(gvm_heap *heap, gvmi_arena *arena, gvmi_request *request,
                                         uint64_t chunk_bytes, gvm_status status, gvmi_block **out)
{
    const uint64_t bytes = request->units << GVMI_HEAP_UNIT_SHIFT, least = least_chunk_bytes(heap);
    const uint64_t room = room_bytes(heap);

    while (status == GVM_E_NOSPACE && chunk_bytes > least) {
        chunk_bytes = is_lone(heap, request->units) ? chunk_bytes / 2 : least;
        if (!is_lone(heap, request->units) || gvmi_round_up(bytes, chunk_bytes) <= room)
            status = take_with_chunk_bytes(heap, arena, request, chunk_bytes, out);
    }
    return status;
}

gvm_status gvmi_units_take_locked(gvm_heap *heap, gvmi_arena *arena, gvmi_request *request,
                                  gvmi_block **out)
{
    const uint64_t bytes = request->units << GVMI_HEAP_UNIT_SHIFT;
    const uint64_t chunk_bytes = is_lone(heap, request->units) ? lone_chunk_bytes(heap, bytes)
                                                               : chunk_bytes_for(heap, arena, bytes);
    gvm_status status = take_with_chunk_bytes(heap, arena, request, chunk_bytes, out);

    if (status == GVM_E_NOSPACE && request->smaller && !heap->whole)
        status = take_shortened_segment(heap, arena, request, chunk_bytes, status, out);
    if (status == GVM_OK)
        heap->asked_bytes += bytes;
    return status;
}

gvmi_block *gvmi_units_take_cheap_locked(gvm_heap *heap, gvmi_arena *arena, uint64_t units)
{
    gvmi_request request = {.units = units};
    gvmi_block *block;
    place at;

    return in_used_chunk(arena, gvmi_heap_order(units), &at) &&
                   take_block_at(heap, &at, &request, &block) == GVM_OK
               ? block
               : NULL;
}

void gvmi_units_give_locked(gvm_heap *heap, gvmi_block *block)
{
    gvmi_segment *segment = block->segment;
    const uint32_t unit = unit_of(block), units = block->units;

    atomic_store_explicit(&block->state, GVMI_BLOCK_NONE, memory_order_relaxed);
    segment->starts[unit / 64] &= ~(1ull << unit % 64);
    segment->live--;
    if (!segment->lone)
        gvmi_buddy_free(segment->buddy, unit, unit + units);
    gvmi_chunks_leave_locked(heap, segment, unit, (uint64_t)unit + units);
}

gvm_status gvmi_heap_refit_locked(gvm_heap *heap, gvmi_block *block, uint64_t units)
{
    gvmi_segment *segment = block->segment;
    const uint32_t unit = unit_of(block), old = block->units;
    const uint64_t end_bytes = (unit + units) << GVMI_HEAP_UNIT_SHIFT;
    gvm_status status;

    if (end_bytes > segment->bytes ||
        (!segment->lone && units > old &&
         !gvmi_buddy_is_free(segment->buddy, unit + old, unit + (uint32_t)units)) ||
        (segment->lone && units > old && segment->leaving_count > 0))
        return gvm_error_set(GVM_E_ADDRESS,
                             "the addresses behind the block are in use: allocate, copy and free");
    /* The new users first, so that no chunk is without one in between. */
    status = gvmi_chunks_use_locked(heap, segment, unit, unit + units, NULL);
    if (status != GVM_OK)
        return status;
    gvmi_chunks_leave_locked(heap, segment, unit, (uint64_t)unit + old);
    if (!segment->lone && units > old)
        gvmi_buddy_take(segment->buddy, unit + old, unit + (uint32_t)units);
    else if (!segment->lone)
        gvmi_buddy_free(segment->buddy, unit + (uint32_t)units, unit + old);
    gvmi_heap_count_block(heap, (uint64_t)old << GVMI_HEAP_UNIT_SHIFT, false);
    gvmi_heap_count_block(heap, units << GVMI_HEAP_UNIT_SHIFT, true);
    set_units(block, units);
    return GVM_OK;
}
