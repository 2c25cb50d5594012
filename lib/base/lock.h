/* base/lock.h - mutexes with a rank: the library's lock order, written down and checked.
 *
 * A thread takes locks in rising rank only. Debug builds stop at the first lock taken out of order,
 * in whatever test runs into it, instead of at the one deadlock in a thousand runs. Locks of the
 * same rank are taken together only by gvmi_lock_pair(), which orders them by address.
 *
 * Object locks (HEAP, APPENDER, VECTOR, SPACE, CLEANING, BUFFER, SHARE) may be held across driver calls, which
 * serialises work on one object; a buffer's only across those that are answered at once, as a kernel
 * may wait for a commit (memory/buffer.h). Table locks (KEEPER, and from SERVED on) are held for a few
 * instructions: no driver call, no blocking call and no callback under them.
 */
#ifndef GVMI_BASE_LOCK_H
#define GVMI_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/private.h"

typedef enum gvmi_rank {
    GVMI_RANK_START, /* loading the driver, opening a device: held across driver calls, and while the
                        library's thread ends; taken first */
    GVMI_RANK_KEEPER_SEND, /* one connection to a keeper: who may send; a table lock */
    GVMI_RANK_KEEPER, /* one connection to a keeper: who waits for what, its objects; a table lock */
    GVMI_RANK_HEAP,   /* one gvm_heap; behind it, its shelves (heap/own.c) */
    GVMI_RANK_APPENDER,   /* one gvm_appender */
    GVMI_RANK_VECTOR,     /* one gvm_vector */
    GVMI_RANK_SPACE,      /* one gvm_space */
    GVMI_RANK_CLEANING,   /* copies for one collection by the library's thread */
    GVMI_RANK_NUMBERS,    /* numbers of a collection that no region has; a table lock */
    GVMI_RANK_BUFFER,     /* one gvm_buffer */
    GVMI_RANK_RANGE,      /* a range that buffers lie in; held across driver calls */
    GVMI_RANK_KERNELS,    /* loading the kernels of one device */
    GVMI_RANK_SERVED,     /* what the library's thread serves */
    GVMI_RANK_CALLBACK,   /* one gvm_callback_server */
    GVMI_RANK_DEVICE,     /* a device's table of free chunks; its free words */
    GVMI_RANK_IDLE,       /* the holders of idle memory */
    GVMI_RANK_BACKGROUND, /* starting, ending and waking the library's thread */
    GVMI_RANK_FRAMES,     /* the keeper's table of frames */
    GVMI_RANK_QUEUE,      /* what one thread of the keeper has for another */
    GVMI_RANK_REGISTRY,   /* the table of live objects */
    GVMI_RANK_DRIVER,     /* counters of the driver decorators */
    GVMI_RANK_COUNT,
} gvmi_rank;

typedef struct gvmi_mutex {
    pthread_mutex_t mutex;
    gvmi_rank rank;
} gvmi_mutex;

#define GVMI_MUTEX_INIT(rank_) \
    { \
        PTHREAD_MUTEX_INITIALIZER, rank_ \
    }

GVMI_API void gvmi_mutex_init(gvmi_mutex *mutex, gvmi_rank rank);
GVMI_API void gvmi_mutex_destroy(gvmi_mutex *mutex);
GVMI_API void gvmi_lock(gvmi_mutex *mutex);
GVMI_API void gvmi_unlock(gvmi_mutex *mutex);

/* False where another thread has it, or this one. */
bool gvmi_try_lock(gvmi_mutex *mutex);

/* A condition that gvmi_wait_until() waits for: its clock is CLOCK_MONOTONIC. */
GVMI_API void gvmi_cond_init(pthread_cond_t *cond);

/* Waits once, with the mutex held, up to a deadline (base/clock.h); wakes without cause as pthread_cond_wait()
 * does. False: the deadline has come. */
GVMI_API bool gvmi_wait_until(pthread_cond_t *cond, gvmi_mutex *mutex, int64_t deadline_ns);

/* Two locks of one rank, which may be the same lock. */
void gvmi_lock_pair(gvmi_mutex *a, gvmi_mutex *b);
void gvmi_unlock_pair(gvmi_mutex *a, gvmi_mutex *b);

/* For _locked functions to assert: does this thread hold a lock of the rank? Always true in release
 * builds. And does it hold none at all? */
bool gvmi_lock_held(gvmi_rank rank);
bool gvmi_lock_held_none(void);

#endif
