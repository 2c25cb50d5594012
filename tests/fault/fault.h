/* tests/fault/fault.h - what the parts of every_call share.
 *
 *   inject.c      ways to fail: driver calls, memory, system calls
 *   table_scene.c a table of PostgreSQL's kind, for scenarios and other tests to read
 *   scenarios.c   one row per public operation: what it needs, the operation, how its success shows
 *   append_scene.c appenders, for scenarios
 *   heap_scene.c  heaps, for scenarios
 *   every_call.c  fails every call of every row, once and for ever, and looks at what is left
 */
#ifndef FAULT_H
#define FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gvmem/gvmem.h>
#include <gvmem/table.h>

#define MIB (1ull << 20)
#define CHUNK (2 * MIB)
#define CHUNKS 8 /* that a world's buffer reserves; [0, COMMITTED) are committed */
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
typedef struct world {
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
    uint8_t bytes[PART];
} world;

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
    /* What a failure may leave, because the operation's contract says so. */
    LEAVES_PARTLY_MOVED = 1 << 20, /* gvm_buffer_move(): chunks in either tier */
    LEAVES_CAPACITY = 1 << 21,     /* a vector that has grown, and got no elements */
    LEAVES_KERNELS = 1 << 22,      /* modules and their memory, kept with the device once loaded */
    LEAVES_COLUMNS = 1 << 24, /* columns that were opened, of a table that may have lost its keeper */
    LEAVES_STREAM = 1 << 23, /* the socket's stream is undefined: a new pair for the next try */
};

typedef struct scenario {
    const char *name;
    unsigned flags;
    uint64_t statuses; /* documented, a bit for each */
    gvm_status (*run)(world *w);
    bool (*shows)(world *w); /* did it do all it should? NULL: its success is enough */
} scenario;

extern const scenario scenarios[];
extern const size_t scenario_count;

/* Makes and ends a world. False: nothing was made, what is missing was printed. */
bool world_begin(world *w, unsigned needs);
void world_end(world *w);
/* A new pair of sockets, with the message in it where the row wants one. */
bool world_renew_sockets(world *w, unsigned needs);

/* Attaches the table anew, whose keeper's connection was lost. */
bool world_reattach(world *w, unsigned needs);

/* Are the bytes of the buffer (and of the import) what they were made? */
bool world_intact(world *w);

/* The handle of memory of another process, for gvm_ipc_open(); NULL while none was given. */
extern const gvm_ipc_handle *foreign_handle;

/* ---- append_scene.c */

bool append_make(world *w, bool begun);
bool append_intact(world *w);
gvm_status run_appender_create(world *w);
bool shows_appender_create(world *w);
gvm_status run_appender_begin(world *w);
bool shows_appender_begin(world *w);
gvm_status run_appender_finish(world *w);
bool shows_appender_finish(world *w);
gvm_status run_appender_take(world *w);
bool shows_appender_take(world *w);

/* ---- heap_scene.c */

bool heap_make(world *w, unsigned needs);
void heap_end(world *w);
gvm_status run_heap_create(world *w);
gvm_status run_heap_create_managed(world *w);
gvm_status run_heap_alloc_small(world *w);
gvm_status run_heap_alloc(world *w);
gvm_status run_heap_alloc_lone(world *w);
gvm_status run_heap_alloc_async(world *w);
bool shows_heap_alloc(world *w);
gvm_status run_heap_free(world *w);
gvm_status run_heap_free_stream(world *w);
gvm_status run_heap_free_elsewhere(world *w);
bool shows_heap_free(world *w);
gvm_status run_heap_resize(world *w);
bool shows_heap_resize(world *w);
gvm_status run_heap_stream_end(world *w);
bool shows_heap_stream_end(world *w);
gvm_status run_heap_trim(world *w);
gvm_status run_heap_grant(world *w);
bool shows_heap_grant(world *w);
gvm_status run_heap_get_usage(world *w);
bool shows_heap_get_usage(world *w);

/* ---- table_scene.c */

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
