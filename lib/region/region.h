/* region/region.h - spaces and collections inside the library.
 *
 * A space's lock serialises everything on it and its collections, kernels of the library included, which are waited for
 * under it. Who holds a collection keeps its space alive: a space that ends removes its collections first.
 *
 * I1  the committed chunks in front of a collection's buffer hold its frames below frame_count, and those that could not be
 *     emptied.
 * I2  committed_bytes of a space is the sum of those chunks over its collections, and at most budget_bytes.
 * I3  a region of the CPU is in the list of its collection's changes iff it has CHANGED, in that of the far ones iff it has FAR,
 *     and in that of the untold ones iff it has UNTOLD, once.
 */
#ifndef GVMI_REGION_REGION_H
#define GVMI_REGION_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

#include <gvmem/device/detail/region.h>
#include <gvmem/region.h>

#include "callback/callback.h"
#include "kernels/kernels.h"
#include "memory/buffer.h"
#include "memory/serve.h"
#include "region/region_kernels.h"

/* What the CPU's side knows of a region. */
enum {
    GVMI_REGION_LIVE = 1 << 0,    /* it exists */
    GVMI_REGION_CHANGED = 1 << 1, /* by the CPU since the last sync */
    GVMI_REGION_FAR = 1 << 2,     /* kernels have written it: the newest data may be in its frame */
    GVMI_REGION_WRITING = 1 << 3, /* the CPU has it mapped to write */
    GVMI_REGION_NEW = 1 << 5, /* created, and the device does not know it: what kernels have written was one before */
    GVMI_REGION_UNTOLD = 1 << 4, /* homes in common: changed here, and its version there is not raised yet */
};

typedef struct gvmi_region {
    uint32_t version;
    uint16_t maps; /* by the CPU */
    uint16_t flags;
} gvmi_region;

/* Numbers of regions that grow as they are added. */
typedef struct gvmi_region_numbers {
    uint32_t *numbers;
    uint64_t count, capacity;
} gvmi_region_numbers;

/* Of the space's buffer for what host and kernels of the library pass to each other, under its lock. It is committed from the
 * beginning, so that a sync needs no device memory; what does not fit is passed in pieces. */
#define GVMI_REGION_DESK_BYTES GVM_CHUNK_BYTES_MIN

/* What the library's thread does for one collection; the lock is held while it does, or while it must not. */
typedef struct gvmi_region_cleaner {
    gvmi_mutex lock;
    gvmi_served served;
    bool is_served, is_on;
    bool is_stopped; /* the device's table says so */
    CUstream stream;
    gvmi_words words; /* the host's: gvm_region_mail, and the number that goes to the device */
    uint64_t seen;    /* the batch that was copied last, or that was given up */
} gvmi_region_cleaner;

/* ---- homes in common: of several processes, or of several spaces of one */

/* Behind the homes, and behind it the versions: uint32_t for each block of regions and for each region, all of them 0 at first.
 * Processors alone use it. */
typedef struct gvmi_homes_head {
    _Atomic uint32_t abandoned; /* how often somebody left without raising the versions of all that it had changed */
    uint32_t reserved[15];
} gvmi_homes_head;

#define GVMI_HOMES_BLOCK 1024u /* regions whose versions are looked at together */

/* Of processes that had the homes and ended without leaving. */
typedef struct gvmi_homes_ended {
    uint64_t count;
    bool may_write; /* one of them may still write */
} gvmi_homes_ended;

typedef struct gvmi_homes gvmi_homes;
struct gvmi_homes {
    gvm_buffer *buffer; /* the maker's. Its first chunks are the homes, and stay where they are in host memory */
    uint64_t bytes, head_at; /* of it, from its beginning on; where the head lies */
    /* Functions of the maker; no lock is held when they are called. ask: GVM_E_KEEPER, GVM_E_TIMEOUT. release: frees it. */
    gvm_status (*ask)(gvmi_homes *homes, int64_t deadline_ns, gvmi_homes_ended *out);
    void (*release)(gvmi_homes *homes);
    /* The rest is the collection's. */
    gvmi_homes_head *head;
    _Atomic uint32_t *blocks, *versions;
    uint32_t *seen_blocks, *seen_versions; /* as of the last look */
    uint32_t seen_abandoned;
    gvmi_homes_ended ended, seen_ended; /* by the latest ask; as of the last look */
    uint64_t asked;                     /* the round of that answer */
    gvm_error failure;                  /* of it */
};

/* How many bytes follow the homes of so many regions. */
uint64_t gvmi_homes_tail_bytes(uint64_t count);

struct gvm_space {
    gvmi_mutex lock;
    gvm_device *device; /* referenced */
    uint64_t budget_bytes, committed_bytes;
    uint64_t wait_ns;
    uint32_t flags;
    uint32_t collection_count;
    bool has_changed; /* collections came or went: idle memory of others may be had for their frames */
    uint64_t asked; /* rounds of questions about those who have the same homes */
    gvm_buffer *desk;
    gvm_callback_server *callbacks; /* that the library's thread serves */
    bool has_callbacks;             /* from when kernels can create regions */
    uint64_t page_turns;            /* of the page of callbacks; of the library's thread alone */
    LIST_HEAD(, gvm_collection) collections;
};

struct gvm_collection {
    gvm_space *space;
    LIST_ENTRY(gvm_collection) entry;
    gvm_buffer *buffer; /* frames, then homes */
    gvmi_homes *homes;  /* in common with others; NULL: they are the collection's alone */
    gvm_buffer *meta;   /* gvm_region_table, then its arrays */
    gvm_region_table table; /* what the device's holds that never changes; frame_count is the current one */
    gvmi_region *regions;
    gvmi_region_numbers unused;  /* that the host may give to regions */
    gvmi_region_numbers changed; /* by the CPU */
    gvmi_region_numbers far;
    gvmi_region_numbers untold;
    uint32_t torn; /* the number + 1 of a region that two sides have written: for the next sync to say; check mode */
    const char *torn_by;      /* which sides */
    uint64_t collected;       /* entries of the device's list of changes that the CPU's side has */
    uint64_t frames_max;      /* room in front of the buffer */
    uint64_t front_bytes;     /* whole chunks */
    uint64_t front_at;        /* in the first of them: where slot 0 begins */
    uint64_t homes_bytes;     /* behind them */
    uint64_t committed_bytes; /* of these */
    uint64_t budget_bytes;    /* asked for; 0: a share */
    gvmi_region_cleaner cleaner;
    CUevent brought;    /* behind what the copy engine is to bring */
    bool gives_up;      /* frames that were claimed for that are to be made free */
    uint64_t coming_at; /* in meta: the list of that */
    uint64_t live_count,
        deleted_count; /* regions that exist; that do until kernels know that they do not */
    gvmi_mutex numbers; /* guards unused and given: a kernel may wait for them while the space is locked */
    uint64_t given_head;       /* position, in the ring of the device, of the first of: */
    gvmi_region_numbers given; /* what the device has to create regions, as of the last sync and later */
};

/* Checks a handle, keeps the collection alive and locks its space, and undoes both. */
gvm_status gvmi_collection_hold(const gvm_collection *handle, gvm_collection **out);
void gvmi_collection_drop(gvm_collection *collection);
gvm_status gvmi_space_hold(const gvm_space *handle, gvm_space **out);
void gvmi_space_drop(gvm_space *space);

/* ---- region/shape.c: regions that are windows of an array */

/* Sets the table's shape with its defaults, homes_bytes, and region_bytes, which is 0 or what the shape says; nothing where there is
 * no shape. GVM_E_INVALID. */
gvm_status gvmi_region_set_shape(gvm_collection *collection, const gvm_region_shape *shape,
                                 uint64_t count, uint64_t *region_bytes);

/* The address of a region's home. */
uint64_t gvmi_region_home(const gvm_collection *collection, uint32_t region);

/* ---- region/collection.c */

/* Checks options, and fills in the defaults. GVM_E_INVALID */
gvm_status gvmi_collection_read_options(const gvm_collection_options *options,
                                        gvm_collection_options *full);

/* What regions are: fills in the defaults of a shape and region_bytes, which is 0 or what the shape says, and how many bytes
 * their homes take. GVM_E_INVALID, GVM_E_NOMEM */
gvm_status gvmi_collection_measure(uint64_t count, uint64_t *region_bytes, gvm_region_shape *shape,
                                   uint64_t *homes_bytes);

/* gvm_collection_create() with options that were read. homes NULL: it makes some of its own; else they are the collection's
 * from success on. */
gvm_status gvmi_collection_create(gvm_space *space, uint64_t count, uint64_t region_bytes,
                                  const gvm_collection_options *full, gvmi_homes *homes,
                                  gvm_collection **out);

/* Unlinks and frees all but the handle; the space is locked, and nobody else has the collection. The second is called without the
 * lock after the first. */
void gvmi_collection_free_locked(gvm_collection *collection);
void gvmi_collection_end(gvm_collection *collection);

/* ---- region/work.c: kernels of the library that work on a table, and what they are given */

/* Runs a kernel over count things on a stream and waits for it. A list has item_bytes for each: it goes to the device before
 * and, if back, comes back after. Long lists are passed in pieces, each to a launch of its own. *left: the sum of the
 * kernel's results. The space is locked. */
typedef struct gvmi_region_task {
    gvmi_kernel kernel;
    void *list; /* NULL: none */
    uint64_t item_bytes;
    uint64_t first, count;
    bool back;
    bool by_warp; /* a warp for each thing; else a thread */
} gvmi_region_task;
gvm_status gvmi_region_run(gvm_collection *collection, const gvmi_region_task *task,
                           CUstream stream, uint64_t *left);

/* GVM_E_INVALID in a callback that a kernel waits for. gvmi_region_run() asks it, too. */
gvm_status gvmi_region_check_caller(void);

/* Makes room for so many more numbers; GVM_E_NOMEM. Adds one for which there is room. */
gvm_status gvmi_region_numbers_make_room(gvmi_region_numbers *list, uint64_t more);
void gvmi_region_numbers_add(gvmi_region_numbers *list, uint32_t number);

/* Waits for a stream. GVM_E_INVALID: it is being captured. No lock is held. */
gvm_status gvmi_region_wait_for_stream(const gvm_space *space, CUstream stream);

/* A region was changed: kernels are to know, and others who have its home. There is room in the list. */
void gvmi_region_note_change(gvm_collection *collection, uint32_t region);
void gvmi_region_note_untold(gvm_collection *collection, uint32_t region);

/* The device's table as of now, for reading. */
gvm_status gvmi_region_read_table(gvm_collection *collection, gvm_region_table *out);

/* Says which numbers regions have at first: all but the last unused_count. GVM_E_NOMEM. */
gvm_status gvmi_region_numbers_make(gvm_collection *collection, uint64_t unused_count);

/* ---- region/cpu.c */

/* What kernels had written by the last sync comes home. *mapped: how many regions kernels have mapped, which stay FAR. */
gvm_status gvmi_region_bring_home(gvm_collection *collection, CUstream stream, uint64_t *mapped);

/* ---- region/homes.c: homes in common */

/* Maps them behind the frames, and begins to look at versions. GVM_E_NOMEM, and the errors of mapping. */
gvm_status gvmi_homes_map(gvm_collection *collection);

/* Asks, for each collection with such homes, about processes that have ended: for all of them as long as the space waits. The
 * space is held, and no lock. */
void gvmi_homes_ask(gvm_space *space);

/* For a sync, after it has learnt what kernels have written: writes that home and raises its versions, and notes what others have
 * changed, for kernels to drop. *mapped: regions that kernels have mapped, which are left for the next sync. */
gvm_status gvmi_homes_exchange(gvm_collection *collection, CUstream stream, uint64_t *mapped);

/* What asking has failed with. */
gvm_status gvmi_homes_failure(const gvm_collection *collection);

/* The collection ends, and writes nothing home any more: others learn of what it may have written without raising versions. */
void gvmi_homes_leave(gvm_collection *collection);
void gvmi_homes_free(gvmi_homes *homes);

/* ---- region/create.c: regions that come and go */

/* A deleted region is gone on the device, too. */
void gvmi_region_number_free(gvm_collection *collection, uint32_t region);

/* What kernels have created, by the device's table. */
void gvmi_region_learn_created(gvm_collection *collection, const gvm_region_table *table);

/* The first numbers for kernels to create regions, of a table that none knows yet. GVM_E_NOMEM */
gvm_status gvmi_region_give_first(gvm_collection *collection, const uint32_t **numbers,
                                  uint64_t *count);

/* The callbacks of a space; from now on they are served. GVM_E_NOSPACE, GVM_E_NOMEM, GVM_E_LIMIT, GVM_E_LOST, GVM_E_DRIVER;
 * GVM_E_LIMIT, GVM_E_SYSTEM */
gvm_status gvmi_region_make_callbacks(gvm_space *space);
gvm_status gvmi_region_serve_callbacks_locked(gvm_space *space);
void gvmi_region_end_callbacks(gvm_space *space);

/* ---- region/engine.c: copies by the copy engine */

#define GVMI_REGION_COPIES_MAX GVM_REGION_BATCH
typedef struct gvmi_region_copies {
    size_t count;
    CUdeviceptr dsts[GVMI_REGION_COPIES_MAX], srcs[GVMI_REGION_COPIES_MAX];
    size_t sizes[GVMI_REGION_COPIES_MAX];
} gvmi_region_copies;

/* One more, for which there is room; one with the last, if it goes on where that ends. */
void gvmi_region_copies_add(gvmi_region_copies *list, uint64_t dst, uint64_t src, uint64_t bytes);

/* Puts them into the stream, and empties the list. The context is current. GVM_E_LOST, GVM_E_DRIVER */
gvm_status gvmi_region_copies_submit(gvmi_region_copies *list, CUstream stream);

/* What the copy engine brings: waits until the frames that were claimed for that are taken or free. */
gvm_status gvmi_region_wait_brought(const gvm_collection *collection);

/* Of a collection that is being made. GVM_E_NOSPACE, GVM_E_LOST, GVM_E_DRIVER */
gvm_status gvmi_region_brought_begin(gvm_collection *collection);
void gvmi_region_brought_end(gvm_collection *collection);

/* ---- region/clean.c: dirty regions written home ahead of need by the copy engine */

/* Of a collection that is being made, whose table says that it is cleaned. The device's table is filled in later.
 * GVM_E_NOMEM, GVM_E_SYSTEM, GVM_E_LIMIT, GVM_E_FOREIGN, GVM_E_LOST, GVM_E_DRIVER */
gvm_status gvmi_region_cleaner_begin(gvm_collection *collection);

/* Kernels may use it from now on; not any more: all copies are over, and a second end does nothing. */
void gvmi_region_cleaner_join(gvm_collection *collection);
void gvmi_region_cleaner_end(gvm_collection *collection);

/* Around what the host has done to regions or frames: no copy is under way, and none begins. After a failure, too, resume
 * comes. */
gvm_status gvmi_region_cleaner_stop(gvm_collection *collection, CUstream stream);
gvm_status gvmi_region_cleaner_resume(gvm_collection *collection, gvm_status status);

/* ---- region/budget.c: who has how many frames */

/* Divides the budget anew: takes frames from those that have more than their share, and gives to those that have
 * less, as far as there is memory. Frames that are mapped stay. The space is held, and no lock. */
gvm_status gvmi_space_divide(gvm_space *space, CUstream stream);

#endif
