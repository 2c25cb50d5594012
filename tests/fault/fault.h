/* tests/fault/fault.h - what the parts of every_call share.
 *
 *   inject.c          ways to fail: driver calls, memory, system calls
 *   table_fixture.c   a table of PostgreSQL's kind, for scenarios and other tests to read
 *   scenarios.c       one row per public operation: what it needs, the operation, how its success shows
 *   append_fixture.c  appenders, for scenarios
 *   callback_fixture.c  callback servers, for scenarios
 *   heap_fixture.c    heaps, for scenarios
 *   region_fixture.c  spaces of regions, for scenarios
 *   every_call.c      fails every call of every row, once and for ever, and looks at what is left
 */
#ifndef FAULT_H
#define FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gvmem/gvmem.h>
#include <gvmem/table.h>

#include "tests/lib/units.h"

#define CHUNK (2 * MIB)
#define CHUNKS 8 /* that a fixture's buffer reserves; [0, COMMITTED) are committed */
#define COMMITTED 2
#define PART 70000 /* bytes that copies move: not a multiple of anything, across a chunk's end */

/* ---- inject.c */

typedef struct injector {
    const char *name;
    bool for_ever_too; /* also fails for ever, not only once */
    uint64_t statuses; /* that any operation may answer then: drivers do not fail every call in this way */
    void (*arm)(uint64_t nth, bool for_ever); /* nth 0: only counts */
    uint64_t (*calls)(void);                  /* since arming */
    bool (*struck)(void);
} injector;

extern const injector injectors[];
extern const size_t injector_count;

/* ---- scenarios.c */

/* What operations work on; made anew for each attempt. */
typedef struct fixture {
    gvm_device *device, *peer;
    gvm_buffer *buffer, *target; /* target: an empty one; committed where a row wants it */
    gvm_vector *vector;
    void *piece;
    gvm_share *share, *later; /* of buffer; later: after it has grown */
    gvm_buffer *imported;
    gvm_ipc *ipc;
    void *opened; /* a CUDA IPC handle of another process */
    int sockets[2];
    gvm_table *table;
    gvm_client *loader; /* and the object that it has open: */
    gvm_object *rows;
    gvm_table_data columns[2]; /* under leases */
    /* what operations give */
    void *out;
    uint64_t number;
    double real;
    int32_t count;
    gvm_device_info device_info;
    gvm_buffer_info buffer_info;
    gvm_heap *heap;
    void *block, *stream_block;
    gvm_stream stream;
    gvm_appender *appender;
    gvm_buffer *taken; /* from it */
    gvm_space *space, *made;
    gvm_collection *collection, *other;
    gvm_callback_server *server;
    gvm_buffer *list; /* of regions; what resolve writes */
    void *row;        /* a region that the CPU maps */
    uint64_t sums[2]; /* of what kernels have written to regions */
    uint8_t bytes[PART];
} fixture;

enum {
    NEEDS_DEVICE = 1 << 0, /* the others imply it */
    NEEDS_BUFFER = 1 << 1,
    NEEDS_TARGET = 1 << 2,
    NEEDS_VECTOR = 1 << 3,
    NEEDS_PIECE = 1 << 4,
    NEEDS_SHARE = 1 << 5,
    NEEDS_IMPORT = 1 << 6, /* and a share of the buffer after it has grown */
    NEEDS_SOCKETS = 1 << 7,
    NEEDS_MESSAGE = 1 << 8, /* a share waits in the socket */
    NEEDS_KERNELS = 1 << 9, /* loaded already */
    NEEDS_HOSTED = 1 << 10, /* the buffer is on the host */
    NEEDS_PEER = 1 << 11,   /* skipped where there is one device */
    NEEDS_IPC = 1 << 12,
    NEEDS_OPENED = 1 << 13,
    NEEDS_FAR_TARGET = 1 << 14,     /* the target is on the peer */
    NEEDS_MIXED = 1 << 15,          /* the target is half on the host */
    NEEDS_TABLE = 1 << 16,          /* attached */
    NEEDS_LEASES = 1 << 17,         /* on both columns of the table */
    NEEDS_APPENDER = 1 << 18,       /* that has begun and finished */
    NEEDS_BEGUN = 1 << 19,          /* an appender that has begun */
    NEEDS_FRESH_APPENDER = 1 << 25, /* that nothing was done with; needs NEEDS_DEVICE */
    NEEDS_HEAP = 1 << 26, /* with two blocks, one of a stream; this and the next need NEEDS_DEVICE */
    NEEDS_HOST_HEAP = 1 << 27,
    NEEDS_MANAGED_HEAP = 1 << 28,
    NEEDS_SPACE = 1 << 29, /* with a collection, both sides of which have written; needs NEEDS_DEVICE */
    NEEDS_SYNCED = 1 << 30, /* after that; needs NEEDS_SPACE */
    /* What a failure may leave, because the operation's contract says so. */
    LEAVES_PARTLY_MOVED = 1 << 20, /* gvm_buffer_move(): chunks in either tier */
    LEAVES_CAPACITY = 1 << 21,     /* a vector that has grown, and got no elements */
    LEAVES_KERNELS = 1 << 22,      /* modules and their memory, kept with the device once loaded */
    LEAVES_COLUMNS = 1 << 24, /* columns that were opened, of a table that may have lost its keeper */
    LEAVES_STREAM = 1 << 23, /* the socket's stream is undefined: a new pair for the next try */
};

#define NEEDS_COMMON \
    (1u << 31) /* a second collection, of the other process's regions; needs NEEDS_SPACE */

typedef struct scenario {
    const char *name;
    unsigned flags;
    uint64_t statuses; /* documented, a bit for each */
    gvm_status (*run)(fixture *w);
    bool (*shows)(fixture *w); /* did it do all it should? NULL: its success is enough */
} scenario;

extern const scenario scenarios[];
extern const size_t scenario_count;

/* Makes and ends a fixture. False: nothing was made, what is missing was printed. */
bool fixture_begin(fixture *w, unsigned needs);
void fixture_end(fixture *w);
/* A new pair of sockets, with the message in it where the row wants one. */
bool fixture_renew_sockets(fixture *w, unsigned needs);

/* Attaches the table anew, whose keeper's connection was lost. */
bool fixture_reattach(fixture *w, unsigned needs);

/* Are the bytes of the buffer (and of the import) what they were made? */
bool fixture_intact(fixture *w);

/* Whether this program can call what kernels call: their memory is the host's, so on the software GPU. */
bool runs_device_functions(fixture *w);

/* The handle of memory of another process, for gvm_ipc_open(); NULL while none was given. */
extern const gvm_ipc_handle *foreign_handle;

/* ---- append_fixture.c */

bool append_make(fixture *w, bool begun);
bool append_intact(fixture *w);
gvm_status run_appender_create(fixture *w);
bool shows_appender_create(fixture *w);
gvm_status run_appender_begin(fixture *w);
bool shows_appender_begin(fixture *w);
gvm_status run_appender_finish(fixture *w);
bool shows_appender_finish(fixture *w);
gvm_status run_appender_take(fixture *w);
bool shows_appender_take(fixture *w);

/* ---- callback_fixture.c */

gvm_status run_callback_server_create(fixture *w);
bool shows_callback_server_create(fixture *w);

/* ---- heap_fixture.c */

bool heap_make(fixture *w, unsigned needs);
void heap_end(fixture *w);
gvm_status run_heap_create(fixture *w);
gvm_status run_heap_create_managed(fixture *w);
gvm_status run_heap_alloc_cell(fixture *w);
bool shows_heap_alloc_cell(fixture *w);
gvm_status run_heap_alloc_small(fixture *w);
gvm_status run_heap_alloc(fixture *w);
gvm_status run_heap_alloc_aligned(fixture *w);
gvm_status run_heap_alloc_lone(fixture *w);
gvm_status run_heap_alloc_async(fixture *w);
bool shows_heap_alloc(fixture *w);
gvm_status run_heap_free(fixture *w);
gvm_status run_heap_free_stream(fixture *w);
gvm_status run_heap_free_elsewhere(fixture *w);
bool shows_heap_free(fixture *w);
gvm_status run_heap_resize(fixture *w);
bool shows_heap_resize(fixture *w);
gvm_status run_heap_stream_end(fixture *w);
bool shows_heap_stream_end(fixture *w);
gvm_status run_heap_trim(fixture *w);
gvm_status run_heap_grant(fixture *w);
bool shows_heap_grant(fixture *w);
gvm_status run_heap_get_usage(fixture *w);
bool shows_heap_get_usage(fixture *w);
gvm_status run_heap_save_snapshot(fixture *w);

/* ---- region_fixture.c */

/* The object that the other process's keeper has. */
#define FAULT_REGIONS_NAME "/fault/regions"
#define FAULT_REGIONS 8u
#define FAULT_REGION_BYTES (64 * KIB)

bool region_make(fixture *w, unsigned needs);
bool region_make_common(fixture *w);
void region_end(fixture *w);
bool region_intact(fixture *w);
gvm_status run_space_create(fixture *w);
gvm_status run_collection_create(fixture *w);
bool shows_collection_create(fixture *w);
gvm_status run_collection_create_unused(fixture *w);
bool shows_collection_create_unused(fixture *w);
gvm_status run_region_delete(fixture *w);
bool shows_region_delete(fixture *w);
gvm_status run_space_sync(fixture *w);
bool shows_space_sync(fixture *w);
gvm_status run_region_map_cpu(fixture *w);
bool shows_region_map_cpu(fixture *w);
gvm_status run_region_unmap_cpu(fixture *w);
bool shows_region_unmap_cpu(fixture *w);
gvm_status run_region_resolve(fixture *w);
bool shows_region_resolve(fixture *w);
gvm_status run_region_release(fixture *w);
gvm_status run_region_prefetch(fixture *w);
gvm_status run_region_prefetch_by_engine(fixture *w);
bool shows_region_prefetch_by_engine(fixture *w);
gvm_status run_collection_attach(fixture *w);
gvm_status run_sync_in_common(fixture *w);
bool shows_sync_in_common(fixture *w);
gvm_status run_collection_get_info(fixture *w);

/* ---- table_fixture.c */

#define FAULT_TABLE_ROWS 1000u
#define FAULT_TABLE_NUMBER(row) (3 * (row) + 1)

/* Serves a table, until the end; which is called after a failure, too. */
bool table_serve(char token[GVM_TABLE_TOKEN_BYTES_MAX]);
void table_serve_end(void);
/* Do columns 0 and 1 read as they were made? */
bool table_reads_well(gvm_device *device, const gvm_table_data *data);

/* Of the table that another process serves; NULL while there is none. */
extern const char *foreign_token;

#endif
