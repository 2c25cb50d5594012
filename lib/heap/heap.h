/* heap/heap.h - the heap inside the library.
 *
 *   segment.c   one segment's addresses: which are free, as a map and as a buddy's blocks
 *   run.c       runs of its free units, found without a walk
 *   chunk.c     which of its chunks have users, and so memory
 *   release.c   what is given back of the others: when, and without the lock
 *   place.c     which segment and where; new segments; units taken and given back
 *   slab.c      cells of a unit and less; blocks taken and given back
 *   table.c     address to segment, read without a lock
 *   own.c       who owns a shelf of free blocks, for a moment
 *   shelf.c     shelves emptied and ended
 *   thread.c    the shelves of the calling thread
 *   stream.c    arenas of streams, and blocks that wait for a stream
 *   backing.c   what memory is: device, host, managed
 *   peer.c      other devices that reach it
 *   alloc.c     the calls that move blocks
 *   heap.c      the others: create, destroy, information, trim
 *   walk.c      all blocks, lowest address first: lists, usage, reset
 *   extent.c    all memory: blocks, and what is free between them
 *   snapshot.c  the same, written for memory_viz
 *   check.c     the invariants
 *
 * An ARENA is what blocks of one stream come from, or, the plain one, blocks of no stream: a list of
 * segments. Within an arena freed memory is used again at once, because the stream's order keeps
 * old and new user apart; memory leaves an arena only by way of the driver, after a stream mark.
 *
 * A BLOCK takes units (16 KiB) for the bytes wanted, and nothing more: neighbours share the chunk
 * that one ends and the other begins in. One of up to 14 KiB is a CELL of a SLAB, which has a few units of its arena and
 * cuts them into cells of one size. Everything below holds for cells as for other blocks; a slab itself is in the state
 * SLAB, is nobody's block, and uses its chunks while it lasts.
 *
 *     NONE --take--> USED --free--> SHELVED --alloc--> USED       on a thread's shelf
 *                     |                +--give--> NONE
 *                     +--> PENDING --the stream has passed--> NONE
 *
 * What leaves USED does so by a compare-and-swap, so that of two frees one fails, and a free beside a
 * resize. Every other change is made by who holds the heap's lock, or owns the shelf that the
 * block lies on. What a block is (size, address, arena) may be relied on by who took it out of USED,
 * not before: a stale pointer's block may be given again, elsewhere even, between two looks at it.
 *
 * A CHUNK that has memory and no users is idle. While it is LEAVING, which is while the driver takes its memory, its
 * units are neither free nor a block's, so that nobody is given them, and the lock is released.
 *
 * Locks: the heap's, rank HEAP, then shelves (gvmi_shelf_own(): looking again, with pauses; a thread that owns one
 * never waits for anything), then those of the memory below. A thread that holds the lock and owns all shelves sees
 * everything unchanged, but for the driver's calls on chunks that are leaving. Memory is committed
 * under the lock, and what of it a request leaves that fails half way is taken back under it.
 * No stream and no kernel is waited for under it.
 *
 * H1  The blocks of a segment, its free blocks, and the units of its leaving chunks tile it.
 * H2  Of two buddies of one order not both are free.
 * H3  A chunk's users are the blocks, in whatever state but NONE, whose units touch it; a chunk with
 *     users is committed, and not leaving.
 * H4  Outside of calls, idle_bytes is at most the keep_bytes that the program has set, or the chunks beyond wait for a
 *     stream mark of their stream (or the driver has refused to take them, or takes some now), or for the library's thread,
 *     which empties shelves and gives back in steps. Heaps whose memory goes back by calls that wait for kernels are
 *     excepted.
 * H5  The statistics are what walking finds.
 * H6  A slab's free bits are those of its cells that are NONE; some are not. Its units, and no others, have it as slab.
 *     One with free cells is in its arena's list of that size, one without in the heap's.
 */
#ifndef GVMI_HEAP_HEAP_H
#define GVMI_HEAP_HEAP_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include <gvmem/heap.h>

#include "base/lock.h"
#include "base/registry.h"
#include "base/size.h"
#include "memory/buffer.h"
#include "memory/idle.h"

#define GVMI_HEAP_UNIT_SHIFT 14
#define GVMI_HEAP_SEGMENT_BYTES GVMI_GIB
#define GVMI_HEAP_ORDERS GVM_HEAP_ORDERS /* blocks of 2^0 to 2^16 units */
#define GVMI_HEAP_BYTES_MAX (1ull << 45) /* of a block: its units fit 32 bits */
#define GVMI_HEAP_SHELF_UNITS 64u        /* the largest block that goes on a shelf */
#define GVMI_HEAP_CALLBACKS_MAX 64       /* how often one request asks the program to make room */
#define GVMI_HEAP_IDLE_PART 32           /* of what is committed: what a heap may keep idle */
#define GVMI_HEAP_IDLE_LEAST \
    (64 * GVMI_MIB)                /* bytes that a heap may keep idle, however small it is */
#define GVMI_HEAP_LINE 64          /* of the processor's caches */
#define GVMI_HEAP_PLAIN UINT64_MAX /* the key of the arena that is no stream's */
#define GVMI_HEAP_PENDING_POLLS 8  /* waiting blocks that one call looks at */

#define GVMI_CELL_SHIFT 8                 /* cells are of so many bytes, or multiples */
#define GVMI_CELL_BYTES_MAX (14ull << 10) /* more takes units */
#define GVMI_CELL_BINS 19u                /* sizes of cells */
#define GVMI_HEAP_BINS (1 + GVMI_CELL_BINS + GVMI_HEAP_SHELF_UNITS)
#define GVMI_SLAB_CELLS_MAX 256u

_Static_assert(GVM_HEAP_UNIT_BYTES == 1ull << GVMI_HEAP_UNIT_SHIFT, "the unit is in the interface");

typedef struct gvmi_segment gvmi_segment;
typedef struct gvmi_arena gvmi_arena;
typedef struct gvmi_slab gvmi_slab;

/* RESIZING: USED, while its size changes. Under the lock, and never seen by another who holds it. */
enum {
    GVMI_BLOCK_NONE,
    GVMI_BLOCK_USED,
    GVMI_BLOCK_SHELVED,
    GVMI_BLOCK_PENDING,
    GVMI_BLOCK_RESIZING,
    GVMI_BLOCK_SLAB
};

/* What is known of the block that begins at a unit, or of a cell. One cache line each, so that threads with
 * neighbouring blocks do not disturb each other. */
typedef struct gvmi_block {
    alignas(GVMI_HEAP_LINE) _Atomic uint32_t state;
    _Atomic uint32_t units;      /* a cell: 0 */
    _Atomic uint64_t size_bytes; /* wanted; while USED */
    _Atomic(const char *) tag;   /* or NULL; while USED */
    uint64_t address;
    gvmi_segment *segment;
    struct gvmi_block *next; /* on a shelf, or waiting */
    _Atomic(gvmi_slab *) slab; /* a cell: its slab, for good; a unit: the slab that it is part of, or NULL */
    _Atomic uint32_t bin; /* of a shelf: by bytes, ascending (gvmi_bin_bytes); 0: too large for one */
} gvmi_block;

_Static_assert(sizeof(gvmi_block) == GVMI_HEAP_LINE, "a record has a line");

/* Cells of one size. What one thread reads while another may end the slab stays as long as any shelf may be owned, as
 * segments do: a slab that is closed is kept for the next of its size. */
struct gvmi_slab {
    /* Read without the lock; all but base are the same as long as the struct lasts. */
    alignas(GVMI_HEAP_LINE) _Atomic uint64_t base;
    uint32_t grains;  /* that a cell has: of 256 bytes */
    uint32_t inverse; /* of grains */
    uint32_t count, bin;
    alignas(GVMI_HEAP_LINE) uint64_t free[GVMI_SLAB_CELLS_MAX / 64]; /* bitmap */
    uint32_t free_count;
    gvmi_block *block; /* its units */
    LIST_ENTRY(gvmi_slab) entry;
    gvmi_block cells[];
};

typedef LIST_HEAD(gvmi_slab_list, gvmi_slab) gvmi_slab_list;

/* ---- run.c */

#define GVMI_HEAP_MAP_WORDS 1024u

/* Of the units below a node: how many are free at either end, and in the longest run. */
typedef struct gvmi_run_node {
    uint32_t low, high, longest;
} gvmi_run_node;

typedef struct gvmi_runs {
    uint32_t leaves; /* a power of two; a leaf is a word of the map */
    bool any_stale;
    uint64_t stale[GVMI_HEAP_MAP_WORDS / 64];     /* leaves whose word has changed, as bits */
    gvmi_run_node nodes[2 * GVMI_HEAP_MAP_WORDS]; /* from 1 on; those below i are 2 i and 2 i + 1 */
} gvmi_runs;

/* The map is all there is: units beyond it are not free. */
void gvmi_runs_init(gvmi_runs *runs, const uint64_t *map, uint32_t units);

/* To be called for each word of the map that has changed. */
static inline void gvmi_runs_mark(gvmi_runs *runs, uint32_t word)
{
    runs->stale[word / 64] |= 1ull << word % 64;
    runs->any_stale = true;
}

/* The lowest run of so many free units, wherever it begins; false: there is none. */
bool gvmi_runs_lowest(gvmi_runs *runs, const uint64_t *map, uint32_t units, uint32_t *first);

/* Does each node agree with the map? */
bool gvmi_runs_check(gvmi_runs *runs, const uint64_t *map);

/* ---- segment.c */

/* Free blocks: for each order a bitmap, bits of its words that are not 0, and bits of those words
 * again. */
typedef struct gvmi_buddy {
    uint32_t units;   /* at most 2^16 */
    unsigned largest; /* order: that of a chunk */
    uint32_t orders;  /* that have free blocks, as bits */
    uint64_t top[GVMI_HEAP_ORDERS];
    uint64_t *middle[GVMI_HEAP_ORDERS], *bottom[GVMI_HEAP_ORDERS];
    uint64_t map[GVMI_HEAP_MAP_WORDS]; /* the free units */
    gvmi_runs runs;
    uint64_t words[2 * 1024 + 2 * 16 + 4 * GVMI_HEAP_ORDERS];
} gvmi_buddy;

/* All free; units is a multiple of 2^largest. */
void gvmi_buddy_init(gvmi_buddy *buddy, uint32_t units, unsigned largest);

/* The lowest free block of the orders [least, end); false: there is none. */
bool gvmi_buddy_lowest(const gvmi_buddy *buddy, unsigned least, unsigned end, unsigned *order,
                       uint32_t *unit);

/* The lowest run of so many free units, wherever it begins; false: there is none. */
bool gvmi_buddy_lowest_run(gvmi_buddy *buddy, uint32_t units, uint32_t *first);

/* The order of the free block that a unit lies in, -1 if it is not free. */
int gvmi_buddy_covering(const gvmi_buddy *buddy, uint32_t unit);

/* Whole ranges [first, end): frees, merging with what is free beside; asks; and takes. */
void gvmi_buddy_free(gvmi_buddy *buddy, uint32_t first, uint32_t end);
bool gvmi_buddy_is_free(const gvmi_buddy *buddy, uint32_t first, uint32_t end);
void gvmi_buddy_take(gvmi_buddy *buddy, uint32_t first, uint32_t end);

/* Is H2 true, and do the summaries agree with what is below them? Marks the free units in a bitmap
 * and counts them; false also if one is there already. */
bool gvmi_buddy_check(gvmi_buddy *buddy, uint64_t *marks, uint64_t *free_units);

typedef struct gvmi_heap_chunk {
    uint64_t idle_since; /* the heap's idle number in which its last user went */
    uint32_t users;
    bool committed;
    bool leaving; /* committed, until the driver has taken it */
} gvmi_heap_chunk;

/* A segment is also a place to look behind a stale pointer: one that is closed is kept for the next
 * one, until the heap ends. */
struct gvmi_segment {
    /* Read without the lock; on a line that is seldom written. */
    alignas(GVMI_HEAP_LINE) _Atomic uint64_t base;
    _Atomic uint64_t bytes; /* 0: closed */
    _Atomic(gvmi_arena *) arena;
    gvmi_block *blocks; /* one a unit; a lone one: one */
    bool lone;          /* for one large block alone; has no buddy */
    uint64_t chunk_bytes;
    uint32_t chunk_units, chunk_order; /* 2^chunk_order units; of one of the usual size */
    uint64_t chunk_count;
    alignas(GVMI_HEAP_LINE) uint64_t idle_count;
    uint64_t committed_count, leaving_count; /* leaving ones are committed */
    gvmi_heap_chunk *chunks;
    uint64_t *idle; /* bitmap */
    gvm_buffer *buffer;
    uint64_t blocks_bytes; /* mapped for blocks */
    uint32_t live;         /* blocks that are not NONE */
    uint64_t *starts;      /* bitmap of these */
    gvmi_buddy *buddy;
    gvmi_segment *next; /* among spare ones */
};

/* ---- the heap */

/* Of a stream. It ends with the context that it was made in. */
typedef struct gvmi_heap_event {
    CUevent event;
    uint64_t key;        /* the stream's */
    CUcontext foreign;   /* the context, if it is another than the device's; else NULL */
    uint64_t foreign_id; /* by cuCtxGetId(); 0: the driver is older than that call */
} gvmi_heap_event;

struct gvmi_arena {
    gvm_heap *heap;
    uint64_t key;            /* the stream's handle, or GVMI_HEAP_PLAIN */
    gvmi_segment **segments; /* oldest first */
    size_t count, capacity;
    /* Idle numbers of the heap. Chunks that became idle up to passed may go: the stream's work until then is
     * over. The plain arena's may always. */
    uint64_t idled, passed, marked; /* idled: the latest to become so; marked: when mark was recorded */
    /* passed + 1 when nothing that had passed was left to give back: so that calls that free while the
     * stream is busy do not look through its idle chunks each time. */
    uint64_t reaped;
    gvmi_slab_list slabs[1 + GVMI_CELL_BINS]; /* with free cells, by bin */
    gvmi_heap_event mark;                     /* of the stream */
    bool mark_recorded;
    gvmi_arena *next;
};

typedef struct gvmi_heap_table {
    uint64_t mask;
    uint64_t used; /* entries, those left behind included */
    _Atomic(gvmi_segment *) entries[];
} gvmi_heap_table;

typedef struct gvmi_heap_wait {
    gvmi_block *block;
    uint64_t since; /* an idle number of the heap */
    gvmi_heap_event event;
    gvmi_heap_event *others; /* to wait for after it, or NULL */
    size_t other_count;
} gvmi_heap_wait;

/* A thread's free blocks of one arena. */
typedef struct gvmi_shelf {
    alignas(GVMI_HEAP_LINE) atomic_uint owned;
    bool orphan; /* the thread is no more; the heap frees it */
    bool asleep; /* empty, and its limit 0, so that the thread's next free takes the lock */
    atomic_bool dead; /* the heap or its arena is no more; the thread frees it. Set last, owned for good */
    const gvm_heap *handle;
    uint64_t key;
    gvm_heap *heap;
    gvmi_arena *arena;
    struct gvmi_shelf *mine; /* the thread's next */
    uint64_t bytes, limit_bytes;
    int64_t requested;                /* not yet reported to the heap */
    gvmi_segment *segment;            /* in which the last block freed here lies, or NULL */
    gvmi_block *bins[GVMI_HEAP_BINS]; /* 0: none */
    uint32_t counts[GVMI_HEAP_BINS];
    LIST_ENTRY(gvmi_shelf) entry; /* of the heap's list; under its lock */
    uint64_t seen_bytes;          /* bytes and requested at the last look at whether it is used */
    int64_t seen_requested;
} gvmi_shelf;

#define GVMI_HEAP_LEAVING_MAX 16 /* runs of chunks, in a list */

/* Chunks that leave; detached: with all of their segment. And what leaves at once. */
typedef struct gvmi_leaving {
    gvmi_segment *segment;
    uint64_t first, end, bytes;
    bool detached, gone;
} gvmi_leaving;

typedef struct gvmi_leaving_list {
    gvmi_leaving runs[GVMI_HEAP_LEAVING_MAX];
    size_t count;
    uint64_t wanted_bytes, bytes; /* wanted: in all */
    gvmi_release how;
    bool may_wait; /* for other calls on the segments' buffers */
} gvmi_leaving_list;

struct gvm_heap {
    alignas(GVMI_HEAP_LINE) _Atomic(gvmi_heap_table *) table; /* read without the lock, seldom written */
    alignas(GVMI_HEAP_LINE) gvmi_mutex lock;
    gvm_device *device;
    gvm_heap_kind kind;
    bool unshared;
    uint64_t owner; /* of what its chunks hold (memory/device.h), in all segments */
    /* A segment is one chunk, which comes and goes with it: by calls that wait for all kernels that run (cuMemFree,
     * cuMemHostUnregister). */
    bool whole;
    bool keeps;   /* nothing goes back but by gvm_heap_trim() */
    bool bounded; /* at most keep_bytes stay idle; else intervals and peaks decide */
    uint64_t segment_bytes, limit_bytes, keep_bytes, shelf_bytes;
    gvm_heap_exhausted exhausted;
    void *exhausted_arg;
    gvm_heap_waits request_waits;
    void *request_waits_arg;
    gvmi_arena plain, *arenas; /* arenas: the streams' */
    uint64_t idle_number; /* a counter: a new one when a chunk becomes idle, and when a block begins to wait */
    gvmi_segment *spare_usual, *spare_lone;
    LIST_HEAD(, gvmi_shelf) shelves;
    gvmi_heap_wait *waits; /* a ring of a power of two */
    size_t wait_first, wait_count, wait_capacity;
    CUevent *events; /* free ones, of the device's context */
    size_t event_count;
    _Atomic int64_t requested_bytes; /* without what shelves have not reported */
    _Atomic uint64_t requested_peak_bytes;
    uint64_t committed_bytes, committed_peak_bytes, idle_bytes, address_bytes;
    gvmi_grant grants[GVMI_GRANTS_MAX]; /* each with a reference to its peer */
    uint32_t grant_count;
    gvmi_idle idle; /* unless it keeps, or has no memory of the device */
    bool holds;     /* idle has joined */
    /* Of the interval that goes on: what had been asked for when it began, and the least of idle_bytes since. surplus:
     * of the last interval that least, as far as it is not yet given back. */
    uint64_t asked_bytes, interval_asked_bytes, idle_low_bytes, surplus_bytes;
    int64_t interval_ns, decay_ns; /* when it began, if it must last so long */
    uint64_t tick_asked_bytes;     /* asked_bytes at the last tick */
    int64_t tick_ns;               /* when the next is; 0: none is set */
    uint64_t leaving_bytes;
    pthread_cond_t left; /* leaving_bytes has become 0 */
    /* Of a call that does not wait for the lock: what it gives back, without the lock until quick_done is set; then the
     * next call under the lock finishes it. */
    gvmi_leaving_list quick;
    atomic_bool quick_done;
    uint64_t held_bytes, pending_bytes; /* of blocks that are not NONE, and of PENDING ones */
    uint64_t slab_bytes,
        slab_free_bytes; /* what slabs take; of that, what is in no cell, or in one that is NONE */
    uint64_t slab_count;
    gvmi_slab_list full_slabs, spare_slabs[1 + GVMI_CELL_BINS];
    uint64_t order_blocks[GVMI_HEAP_ORDERS], order_pending[GVMI_HEAP_ORDERS];
    uint64_t commits, decommits, times_exhausted;
    uint32_t segment_count;
    bool stuck;     /* the driver has refused to take memory back */
    bool unsettled; /* shelves were emptied, and what is due of that is not yet given back */
};

static inline uint64_t gvmi_heap_units(uint64_t bytes)
{
    return (bytes + GVM_HEAP_UNIT_BYTES - 1) >> GVMI_HEAP_UNIT_SHIFT;
}

/* Zeros, at the start of a cache line. */
static inline void *gvmi_heap_calloc_line(size_t bytes)
{
    const size_t whole = gvmi_round_up(bytes, GVMI_HEAP_LINE);
    void *at = aligned_alloc(GVMI_HEAP_LINE, whole);

    return at != NULL ? memset(at, 0, whole) : NULL;
}

static inline unsigned gvmi_heap_order(uint64_t units)
{
    return units <= 1 ? 0 : 64u - (unsigned)__builtin_clzll(units - 1);
}

/* In statistics; the bytes that a block takes. */
static inline unsigned gvmi_heap_row(uint64_t bytes)
{
    const unsigned order = gvmi_heap_order(gvmi_heap_units(bytes));

    return order < GVMI_HEAP_ORDERS ? order : GVMI_HEAP_ORDERS - 1;
}

static inline void gvmi_heap_count_block(gvm_heap *heap, uint64_t bytes, bool more)
{
    heap->held_bytes += more ? bytes : -bytes;
    heap->order_blocks[gvmi_heap_row(bytes)] += more ? 1 : UINT64_MAX;
}

/* ---- slab.c: sizes of cells */

extern const uint32_t gvmi_bin_bytes[GVMI_HEAP_BINS];
/* By a size's grains, rounded up. */
extern const uint8_t gvmi_cell_bins[(GVMI_CELL_BYTES_MAX >> GVMI_CELL_SHIFT) + 1];

/* That of blocks of a size; 0: there is none. */
static inline uint32_t gvmi_heap_bin(uint64_t size_bytes)
{
    if (size_bytes - 1 < GVMI_CELL_BYTES_MAX)
        return gvmi_cell_bins[(size_bytes + (1u << GVMI_CELL_SHIFT) - 1) >> GVMI_CELL_SHIFT];
    return size_bytes - 1 < GVMI_HEAP_SHELF_UNITS * GVM_HEAP_UNIT_BYTES
               ? GVMI_CELL_BINS + (uint32_t)gvmi_heap_units(size_bytes)
               : 0;
}

static inline bool gvmi_is_cell_bin(uint32_t bin)
{
    return bin - 1 < GVMI_CELL_BINS;
}

/* Relied on as units is. */
static inline uint64_t gvmi_block_bytes(const gvmi_block *block)
{
    const uint32_t bin = atomic_load_explicit(&block->bin, memory_order_relaxed);

    return bin != 0 ? gvmi_bin_bytes[bin]
                    : (uint64_t)atomic_load_explicit(&block->units, memory_order_relaxed)
                          << GVMI_HEAP_UNIT_SHIFT;
}

/* The cell that begins at an address; NULL if none does. */
static inline gvmi_block *gvmi_slab_find(gvmi_slab *slab, uint64_t address)
{
    const uint64_t offset = address - atomic_load_explicit(&slab->base, memory_order_relaxed);
    const uint64_t grain = offset >> GVMI_CELL_SHIFT;
    uint64_t index;

    if (grain >= (uint64_t)slab->count * slab->grains || offset % (1u << GVMI_CELL_SHIFT) != 0)
        return NULL;
    index = grain * slab->inverse >> 16;
    return index * slab->grains == grain ? &slab->cells[index] : NULL;
}

/* ---- table.c: segments by address; lone ones by their first address alone
 *
 * Each is in once. */

gvm_status gvmi_heap_table_create(gvm_heap *heap);
void gvmi_heap_table_destroy(gvm_heap *heap);
/* Makes room for one more segment, GVM_E_NOMEM; and adds it. */
gvm_status gvmi_heap_table_make_room_locked(gvm_heap *heap);
void gvmi_heap_table_add_locked(gvm_heap *heap, gvmi_segment *segment);
void gvmi_heap_table_remove_locked(gvm_heap *heap, gvmi_segment *segment);
/* Has it the keys of all segments, each once, and room? */
bool gvmi_heap_table_check_locked(const gvm_heap *heap);

static inline uint64_t gvmi_heap_hash(uint64_t gib)
{
    return gib * 0x9e3779b97f4a7c15ull >> 20;
}

/* Is an address in a segment? And the record of the block that begins there; NULL if none could. The base is read once:
 * the segment may be closed, and opened elsewhere, meanwhile. */
static inline bool gvmi_segment_find(gvmi_segment *segment, uint64_t address, gvmi_block **out)
{
    const uint64_t offset = address - atomic_load_explicit(&segment->base, memory_order_relaxed);
    gvmi_slab *slab;

    if (offset >= atomic_load_explicit(&segment->bytes, memory_order_relaxed))
        return false;
    *out = segment->blocks;
    if (segment->lone) {
        *out = offset == 0 ? *out : NULL;
        return true;
    }
    *out += offset >> GVMI_HEAP_UNIT_SHIFT;
    slab = atomic_load_explicit(&(*out)->slab, memory_order_acquire);
    if (slab != NULL)
        *out = gvmi_slab_find(slab, address);
    else if (offset % GVM_HEAP_UNIT_BYTES != 0)
        *out = NULL;
    return true;
}

/* The record of the block that begins at an address; NULL if none of the heap's could. Its state
 * shows whether there is one. Under the heap's lock, or owning one of its shelves: else the
 * table may go. */
static inline gvmi_block *gvmi_heap_find(gvm_heap *heap, uint64_t address, gvmi_segment **out)
{
    gvmi_heap_table *table = atomic_load_explicit(&heap->table, memory_order_acquire);

    for (uint64_t i = gvmi_heap_hash(address / GVMI_HEAP_SEGMENT_BYTES);; i++) {
        gvmi_block *block;

        *out = atomic_load_explicit(&table->entries[i & table->mask], memory_order_acquire);
        if (*out == NULL)
            return NULL;
        if (gvmi_segment_find(*out, address, &block))
            return block;
    }
}

/* ---- backing.c */

/* Can the device do the heap's kind? GVM_E_NOTSUP. Sets whole and segment_bytes. */
gvm_status gvmi_backing_probe(gvm_heap *heap);

/* Reserves addresses for a segment of bytes (whole heaps: with memory) and sets base and buffer.
 * Then puts memory behind chunks that have none, and takes it away, both all or nothing (may_wait: for other calls on
 * the segment's buffer, else GVM_E_TIMEOUT), in heaps that are not whole; and the reverse of open, which takes what
 * memory is left. Where the heap is whole close waits for kernels: not under the heap's lock.
 *
 * GVM_E_NOSPACE (host: GVM_E_NOMEM), GVM_E_ADDRESS, GVM_E_LIMIT, GVM_E_SYSTEM, GVM_E_NOTSUP */
gvm_status gvmi_backing_open(gvm_heap *heap, gvmi_segment *segment, uint64_t bytes);
gvm_status gvmi_backing_commit(gvmi_segment *segment, uint64_t first, uint64_t end);
gvm_status gvmi_backing_decommit(gvmi_segment *segment, uint64_t first, uint64_t end,
                                 gvmi_release how, bool may_wait);
void gvmi_backing_close(gvm_heap *heap, gvmi_segment *segment);

/* ---- chunk.c */

/* What a request wants, and may. */
typedef struct gvmi_request {
    uint64_t units;     /* for a cell: of a new slab */
    uint32_t bin;       /* 0: for no shelf, and no cell */
    uint32_t alignment; /* in units; 0: 1 */
    bool may_purge;     /* it fails where idle memory is to be given back first */
    bool smaller;       /* chunks are tried that are smaller than usual */
    uint64_t purge_bytes; /* out: to be given back first; the status is GVM_E_NOSPACE then, without an error */
} gvmi_request;

/* Counts one more user in and out of the chunks under the units [first, end). In: commits those
 * that have no memory, all or nothing, but that idle ones may be left where giving back waits for kernels.
 * GVM_E_NOSPACE also for the heap's limit. */
gvm_status gvmi_chunks_use_locked(gvm_heap *heap, gvmi_segment *segment, uint64_t first,
                                  uint64_t end, gvmi_request *request);
void gvmi_chunks_leave_locked(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end);

/* May so much more be committed, and so much of what is idle be used? GVM_E_NOSPACE */
gvm_status gvmi_heap_check_limit(const gvm_heap *heap, uint64_t more_bytes, uint64_t idle_bytes);

/* Have chunks of the arena memory and no users? */
bool gvmi_arena_has_idle(const gvmi_arena *arena);

/* Counts a chunk that has got memory, idle at first; and idle ones that are about to leave: they are LEAVING, and
 * their units nobody's; then those whose memory is gone, or that stay after all. */
void gvmi_chunk_come_locked(gvm_heap *heap, gvmi_segment *segment, uint64_t index);
void gvmi_chunks_part_locked(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end);
void gvmi_chunks_gone_locked(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end);
void gvmi_chunks_stay_locked(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end);

/* ---- release.c: all are called with the heap's lock, and let it go around the driver's calls; what was found under
 * it before may be gone. They keep the thread's error. */

/* Gives idle chunks back, about so many bytes, highest address first, as far as their streams have passed them. Their
 * handles are released as asked. Waits for other calls on the buffers that they are of. Returns the
 * bytes given back. */
uint64_t gvmi_heap_release(gvm_heap *heap, uint64_t bytes, gvmi_release how);
/* Waits until the driver has what other threads are giving it. */
void gvmi_heap_await_leaving(gvm_heap *heap);
/* At the end of every call that allocates, and of every one that frees, or finds blocks which have waited: ends a
 * interval; gives back what is beyond what is kept, or has the library's thread do that. */
void gvmi_heap_settle_asked(gvm_heap *heap);
void gvmi_heap_settle(gvm_heap *heap);

/* As a holder of idle memory. */
extern const gvmi_idle_calls gvmi_heap_idle_calls;

/* For tests: what goes back then depends on the calls alone. Calls give back themselves what is due, and the library's
 * thread nothing. Set while there is no heap. */
extern bool gvmi_heap_threadless;
/* Empties the shelves of all threads. */
void gvmi_heap_empty_shelves_locked(gvm_heap *heap);

/* ---- place.c */

/* Takes a block of so many units out of an arena, its state NONE, its memory committed; and gives
 * one back, whose state is set to NONE. Neither counts it. */
gvm_status gvmi_units_take_locked(gvm_heap *heap, gvmi_arena *arena, gvmi_request *request,
                                  gvmi_block **out);
/* The same where it costs nothing: in a chunk that has users; NULL if there is no room there. */
gvmi_block *gvmi_units_take_cheap_locked(gvm_heap *heap, gvmi_arena *arena, uint64_t units);
void gvmi_units_give_locked(gvm_heap *heap, gvmi_block *block);

/* Another size in the same place; GVM_E_ADDRESS if it does not fit. */
gvm_status gvmi_heap_refit_locked(gvm_heap *heap, gvmi_block *block, uint64_t units);

/* Makes room for so many more segments of an arena, GVM_E_NOMEM; and adds an open one. */
gvm_status gvmi_arena_make_room_locked(gvmi_arena *arena, size_t more);
void gvmi_arena_add_locked(gvmi_arena *arena, gvmi_segment *segment);
/* Ends a segment whose blocks are all NONE, of which no chunk is leaving: nobody finds it any more and the statistics
 * are without it; its memory, which goes back without the lock where that waits; its struct, kept for the next. */
void gvmi_segment_detach_locked(gvm_heap *heap, gvmi_segment *segment);
void gvmi_segment_keep_locked(gvm_heap *heap, gvmi_segment *segment);
/* Ends all such that have no memory either, if all is set, else lone ones and all but one of the others; and all segments,
 * whatever lives. */
void gvmi_arena_close_empty_locked(gvmi_arena *arena, bool all);
void gvmi_arena_close_locked(gvmi_arena *arena);
/* Frees what segments leave behind. */
void gvmi_segments_free(gvmi_segment *spare);

/* ---- slab.c */

/* Takes a block, of units or a cell, its state NONE, its memory committed; the same where it costs nothing, or NULL; and
 * gives one back, whose state is set to NONE. */
gvm_status gvmi_heap_take_locked(gvm_heap *heap, gvmi_arena *arena, gvmi_request *request,
                                 gvmi_block **out);
gvmi_block *gvmi_heap_take_cheap_locked(gvm_heap *heap, gvmi_arena *arena, uint32_t bin);
void gvmi_heap_give_locked(gvm_heap *heap, gvmi_block *block);

/* What a request for so many bytes at a multiple of alignment_bytes, a power of two, takes. */
gvmi_request gvmi_heap_request(uint64_t size_bytes, uint64_t alignment_bytes);

/* All slabs of an arena's lists are another's from now on, as its segments are. */
void gvmi_slabs_move_locked(gvmi_arena *to, gvmi_arena *from);
/* Frees the structs of closed slabs: waits until nobody can look behind a stale pointer any more. And those of all. */
void gvmi_slabs_free_spare_locked(gvm_heap *heap);
void gvmi_slabs_free(gvm_heap *heap);

/* ---- own.c: who owns a shelf, for a moment */

extern _Thread_local gvmi_shelf *gvmi_shelf_mine __attribute__((tls_model("initial-exec")));

static inline bool gvmi_shelf_own(gvmi_shelf *shelf)
{
    return atomic_exchange_explicit(&shelf->owned, 1, memory_order_acquire) == 0;
}

static inline void gvmi_shelf_leave(gvmi_shelf *shelf)
{
    atomic_store_explicit(&shelf->owned, 0, memory_order_release);
}

/* Waits until the thread owns the shelf; waits is 0 at first; and all shelves of the heap. */
void gvmi_shelf_wait(unsigned *waits);
void gvmi_shelf_own_locked(gvmi_shelf *shelf);
void gvmi_shelves_own_locked(gvm_heap *heap);
void gvmi_shelves_leave_locked(gvm_heap *heap);

/* Waits until each other thread that owns its shelf now has left it once; the caller owns none but
 * its own. */
void gvmi_shelves_pass_locked(gvm_heap *heap);

/* ---- thread.c: the shelves of the calling thread */

/* This thread's shelf of a handle (not looked behind) and a key, NULL if it has none that lives. Not
 * owned. */
gvmi_shelf *gvmi_shelf_seek(const gvm_heap *handle, uint64_t key);

/* The same for an arena, made if there is none; NULL if there can be none. */
gvmi_shelf *gvmi_shelf_get_locked(gvm_heap *heap, gvmi_arena *arena);

/* Owned: one that is asleep is used again. */
static inline void gvmi_shelf_awake(gvmi_shelf *shelf)
{
    shelf->asleep = false;
    shelf->limit_bytes = shelf->heap->shelf_bytes;
}

/* ---- shelf.c */

/* Gives blocks of an owned shelf back to the heap, until at most keep_bytes are left; largest
 * first. Tells the heap what was requested. */
void gvmi_shelf_empty_locked(gvmi_shelf *shelf, uint64_t keep_bytes);
void gvmi_shelf_tell(gvmi_shelf *shelf);
void gvmi_heap_note_requested(gvm_heap *heap, int64_t more);

/* Ends owned shelves: of an arena, or all of the heap (NULL). */
void gvmi_shelves_end_locked(gvm_heap *heap, const gvmi_arena *arena);

static inline void gvmi_shelf_put(gvmi_shelf *shelf, gvmi_block *block, uint32_t bin)
{
    block->next = shelf->bins[bin];
    shelf->bins[bin] = block;
    shelf->counts[bin]++;
    shelf->bytes += gvmi_bin_bytes[bin];
}

/* ---- stream.c */

/* The key of a stream, and its arena; made if there is none. GVM_E_NOMEM */
uint64_t gvmi_stream_key(gvm_stream stream);
gvm_status gvmi_stream_arena_locked(gvm_heap *heap, uint64_t key, gvmi_arena **out);

/* REFUSED: the driver says no, or the stream is being captured into a graph; the error is recorded. */
typedef enum gvmi_passing { GVMI_PASSED, GVMI_BUSY, GVMI_REFUSED } gvmi_passing;

/* Has the arena's stream passed what became idle up to an idle number? 0: all so far, as far as the stream mark
 * shows that there is. Sets passed; does not wait. */
gvmi_passing gvmi_arena_mark_locked(gvmi_arena *arena, uint64_t until);

/* Lets a USED block wait for the work that is on streams, one at least; and gives back those of the oldest few that
 * need not wait any more. */
gvm_status gvmi_heap_delay_locked(gvm_heap *heap, gvmi_block *block, const gvm_stream *streams,
                                  size_t count);
void gvmi_heap_poll_locked(gvm_heap *heap);

/* Waits until the streams have passed all that is idle or waits for them now, with the lock
 * released: their work may itself wait for a thread that allocates. Keeps the thread's error.
 * False: they have not, by until_ns. */
bool gvmi_heap_await_streams(gvm_heap *heap, int64_t until_ns);

/* Likewise for all blocks that wait for streams. Asks their events alone. */
void gvmi_heap_await_pending_locked(gvm_heap *heap);

/* Waits for a stream in the same way, also where only blocks that were freed behind it wait for it, and lets the plain arena
 * have what is its. GVM_E_TIMEOUT: it has work still at until_ns. */
gvm_status gvmi_heap_end_stream(gvm_heap *heap, uint64_t key, int64_t until_ns);
void gvmi_streams_free(gvm_heap *heap);

/* ---- walk.c: all under the heap's lock, all shelves owned */

typedef bool gvmi_visit(gvm_heap *heap, gvmi_block *block, void *arg); /* false: enough */

/* The lowest segment at or above an address, of all arenas. */
gvmi_segment *gvmi_heap_next_segment(const gvm_heap *heap, uint64_t from);
/* Visits blocks that are not NONE, cells in place of slabs, lowest address first. visit may give them back. */
bool gvmi_segment_visit(gvm_heap *heap, const gvmi_segment *segment, gvmi_visit *visit, void *arg);

/* Is there room for records? GVM_E_INVALID */
gvm_status gvmi_heap_check_room(const void *records, size_t capacity, size_t stride_bytes,
                                size_t record_bytes, const size_t *count);

/* ---- extent.c: under the heap's lock, all shelves owned */

typedef void gvmi_extent_fn(const gvm_heap_extent *extent, void *arg);

/* Of all memory, lowest address first. */
void gvmi_heap_visit_extents_locked(gvm_heap *heap, gvmi_extent_fn *visit, void *arg);

/* ---- heap.c */

/* GVM_E_FOREIGN: unknown, being destroyed, or the parent process's. */
gvm_status gvmi_heap_hold(const gvm_heap *handle, gvm_heap **out);
void gvmi_heap_drop(gvm_heap *heap);
gvm_status gvmi_heap_fail_foreign(const void *ptr);

#endif
