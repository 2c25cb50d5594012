/* query/executor.h - what the files of the program gstore-executor share.
 *
 * It is started by the spawner (postgres/spawner.h), one for each device, and serves all backends that the spawner
 * passes on to it: a thread for each connection. It may be killed at any moment: it owns no memory but its own.
 *
 * connection.c   messages, the memory file of a connection
 * device.c       the device, its kernels, lanes
 * scratch.c      scratch memory
 * run.h          a query
 * results.c      results that wait to be fetched
 * executor.c     life
 */
#ifndef GQUERY_EXECUTOR_H
#define GQUERY_EXECUTOR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <gvmem/gvmem.h>

#include "driver/driver.h"
#include "query/tables.h"
#include "query/wire.h"

#define GQUERY_RUNNING_MAX 16 /* queries that have a turn at a time; others wait */
/* A query that the local plan can do waits for so long, for a turn and for tables that can be open. */
#define GQUERY_TURN_WAIT_MS 2000
/* After so long without use memory and tables are given up. */
#define GQUERY_REST_NS INT64_C(1000000000)

/* ---- connection.c */

/* Of device memory. */
typedef struct gquery_block {
    uint64_t address, bytes; /* no bytes: there is none */
    /* scratch.c's: */
    gvm_object *object; /* NULL: it is the driver's memory */
    gvm_lease lease;
} gquery_block;

/* What a query has left to be fetched. */
typedef struct gquery_results {
    gquery_block block;
    uint64_t count, sent; /* records */
    uint32_t record_words;
    bool gathered; /* as in a window */
} gquery_results;

typedef struct gquery_connection {
    int socket, memory;
    uint8_t *file; /* mapped */
    uint64_t file_bytes;
    gquery_window query; /* a copy, as these are: */
    gquery_program stages[GQUERY_STAGES_MAX];
    gquery_results results;
    bool has_context;
    bool crowded; /* its query could not open a table: others have as many open as can be */
    struct gquery_connection *whole; /* of which this is a copy, for a part of its query; NULL: it is none */
    struct gquery_lane *lane; /* device.c's: its query's; NULL: it has none */
    /* While a query runs: when it went on last (gquery_now_ns()); otherwise 0. */
    _Atomic int64_t moved_ns;
    struct gquery_connection *next, *before; /* executor.c's */
} gquery_connection;

int64_t gquery_now_ns(void);
/* As pthread_cond_wait(), for so long at most. */
void gquery_wait(pthread_cond_t *changed, pthread_mutex_t *lock, int wait_ms);

/* Maps the file as it is now, and copies its window. False: that is no query. */
bool gquery_read_window(gquery_connection *c);
/* The bytes of a span; NULL: it leaves the file. */
void *gquery_at(const gquery_connection *c, gquery_span span);
/* Room for results behind what the query uses. NULL: there is no memory. */
void *gquery_append(gquery_connection *c, uint64_t bytes, gquery_span *span);
void gquery_unmap_window(gquery_connection *c);

/* Whether the backend has closed its end. */
bool gquery_is_gone(const gquery_connection *c);
/* The same, and notes that the query goes on. */
bool gquery_is_closed(gquery_connection *c);

/* It waits for another process, which may take any time, until it goes on. */
static inline void gquery_await_other(gquery_connection *c)
{
    atomic_store(c->whole != NULL ? &c->whole->moved_ns : &c->moved_ns, 0);
}

/* What the backend has returned of the query already, the local plan would return again. */
static inline bool gquery_goes_on(const gquery_connection *c)
{
    const gquery_window *w = c->whole != NULL ? &c->whole->query : &c->query;

    return w->first_row > 0 || w->continued != 0;
}

void gquery_answer(gquery_message *answer, gquery_verb verb, const char *sqlstate,
                   const char *format, ...) GVM_PRINTF(4, 5);
/* For a failed call of the library, the thread's latest: GQUERY_NO_ROOM or GQUERY_FAULT where a local plan may do
 * it, or GQUERY_ERROR. */
void gquery_answer_status(gquery_message *answer, gvm_status status, const char *what);

/* ---- device.c */

typedef struct gquery_device {
    gvm_device *handle;
    gvm_device_info info;
    CUfunction begin, scan, join, reduce, collect, list_groups;
    CUfunction distance, select, keep, nearest, products, shorten;
    CUfunction count_marks, list_marks, gather;
    CUfunction present, number, put_texts;
    uint32_t threads;        /* of a block, at most */
    uint32_t select_threads; /* of a block of `select` and `shorten` */
    uint32_t shared_bytes;   /* dynamic, likewise */
    uint32_t multiprocessor_bytes; /* of shared memory; 0: on the software GPU groups in it are no faster */
} gquery_device;

/* The device with its kernels, opened by the first call; a failure is that of all later calls. */
gvm_status gquery_device_open(int32_t ordinal, const gquery_device **out);
/* Whether that is under way, and not for longer than it may take: queries wait for it. Calls no driver. */
bool gquery_device_is_opening(int64_t now_ns);
/* When that has failed; 0: it has not. */
int64_t gquery_device_failed_ns(void);

/* The context is current for these, but for gquery_device_rest(). */

/* What a query has from its first turn on: a stream, and memory on the host and on the device of the same layout. */
typedef struct gquery_lane {
    CUstream stream;
    CUevent start, stop;
    uint8_t *host; /* pinned */
    uint64_t device;
    _Atomic uint32_t *halt; /* on the host: not 0: what runs is to end early, if it can */
    uint64_t halt_address;  /* of that, for kernels */
    gquery_connection *owner;
    bool has_turn;
    int64_t turn_ns; /* since when */
    int64_t used_ns;
    struct gquery_lane *next;
} gquery_lane;

#define GQUERY_LANE_BYTES (2u << 20)
#define GQUERY_HALT_AT (GQUERY_LANE_BYTES - 64) /* of `halt`, in `host` */

/* With a turn. Waits while GQUERY_RUNNING_MAX others have one, or as many of its session's role as leave some to others.
 *
 * GVM_E_NOSPACE  it has waited for 2 s, and is not what goes on with a query of which results were returned; or
 *                there is no memory for a lane
 * GVM_E_PEER     the connection is closed */
gvm_status gquery_lane_take(gquery_connection *c, gquery_lane **out);
/* Between batches: if it has had its turn for a second, and others wait for it, it waits until it has another one. It
 * keeps its lane, and all that the query has. False: the connection is closed, and there is no turn. */
bool gquery_lane_pause(gquery_connection *c, gquery_lane *lane);
/* Nothing runs on it. */
void gquery_lane_give(gquery_lane *lane);
/* What runs on the connection's lane is to end early. Calls no driver. */
void gquery_lane_halt(const gquery_connection *c);

/* Frees what has not been used for GQUERY_REST_NS. */
void gquery_device_rest(void);

/* ---- scratch.c: device memory for queries. The context is current for these */

#define GQUERY_SCRATCH_MAX (UINT64_C(1) << 48)
/* Blocks of so many bytes and more are objects of the keeper, which may be waited for. */
#define GQUERY_OBJECT_LEAST (UINT64_C(16) << 20)

/* By which objects are created. Before all others. */
void gquery_scratch_init(gvm_client *keeper, int32_t ordinal);

/* What a block of so many bytes takes: up to an eighth more, or what the driver gives at least. UINT64_MAX: above
 * GQUERY_SCRATCH_MAX. */
uint64_t gquery_scratch_size(uint64_t bytes);
/* The most bytes of a block that takes no more than that. */
uint64_t gquery_scratch_fitting(uint64_t room);

/* More than so many bytes, as gquery_scratch_size() says. Waits for room for GQUERY_LEASE_MS, and as long again once what is kept was
 * freed.
 *
 * GVM_E_NOSPACE  also where all that is kept was freed
 * and the errors of gvm_object_create() and gvm_object_acquire() */
gvm_status gquery_scratch_take(uint64_t bytes, gquery_block *out);
/* Ends its lease, if it has one: what is in it stays, and is no longer at its address. */
void gquery_scratch_rest_block(gquery_block *block);
/* Keeps it for the next one, or frees it. Without a block this is nothing. Work that uses it must be over. */
void gquery_scratch_give(gquery_block *block);
/* Frees what is kept and has not been used since, or is more than is kept. */
void gquery_scratch_rest(int64_t until_ns);
/* Until more is kept than may be, or so long. The context need not be current. */
void gquery_scratch_await(int64_t limit_ns);

/* ---- run.c */

/* The connection's query. Results are in its window, or answer says why not; the backend may have gone. */
void gquery_run(gquery_tables *tables, int32_t ordinal, gquery_connection *c, gquery_message *answer);
/* The next piece. */
void gquery_fetch(gquery_connection *c, gquery_message *answer);

/* ---- results.c */

/* They wait: their lease ends. */
void gquery_results_rest(gquery_connection *c);
/* So many bytes of those that wait, from the first record that was not sent.
 *
 * GVM_E_TIMEOUT  the backend has gone; and the other errors of gvm_object_copy_out() */
gvm_status gquery_results_copy(gquery_connection *c, uint64_t bytes, void *to);
void gquery_forget(gquery_connection *c);

#endif
