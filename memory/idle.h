/* memory/idle.h - who keeps device memory that it does not use, and how it is had back.
 *
 * A holder is whatever keeps idle memory: a heap, the cache of free chunks of a device, an appender that
 * has not begun. It gives memory back in two ways. By time: the library's thread (background.h) calls
 * decay when that is due. On shortage: every allocation that finds the device full has all holders of the
 * device give back what they can, and tries again.
 *
 * An inner call answers GVM_E_NOSPACE; the outermost one, which holds no lock, repeats it:
 *
 *     for (uint32_t tries = 0;; tries++) {
 *         status = ...;
 *         if (status != GVM_E_NOSPACE || !gvmi_idle_retry(device, wanted_bytes, tries))
 *             return status;
 *     }
 *
 * Threads: any. At most one call of a holder that does not wait is under way at a time, and one that may
 * wait beside it, so that nobody who must not wait for a kernel waits for somebody who does.
 * Ownership: the holder's struct is the caller's, from join to leave.
 */
#ifndef GVMI_MEMORY_IDLE_H
#define GVMI_MEMORY_IDLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "memory/device.h"

/* How long a shortage waits for streams at most: their work may itself wait for the thread that waits here. */
#define GVMI_IDLE_WAIT_MS 10000

typedef struct gvmi_idle gvmi_idle;

/* Both are called without a lock, and must not destroy a device, heap or buffer that may be the last to
 * hold the device. NULL: there is nothing to do. */
typedef struct gvmi_idle_calls {
    /* Gives device memory back, best effort: up to about wanted_bytes (UINT64_MAX: all). may_wait: may wait
     * for streams, until idle->until_ns; else it never waits for a kernel, nor for a lock that is held while
     * somebody waits for one. Returns the bytes given back, to the chunk cache or to the driver. */
    uint64_t (*reclaim)(gvmi_idle *idle, uint64_t wanted_bytes, bool may_wait);
    /* One bounded step of release by time, in the library's thread; never waits for a kernel. Returns when it
     * is to be called again (on CLOCK_MONOTONIC; GVMI_NEVER_NS: not before gvmi_idle_wake()). */
    int64_t (*decay)(gvmi_idle *idle, int64_t now_ns);
} gvmi_idle_calls;

struct gvmi_idle { /* idle.c's alone, but for until_ns */
    TAILQ_ENTRY(gvmi_idle) entry;
    gvm_device *device;
    const gvmi_idle_calls *calls;
    int64_t due_ns;   /* of the next decay; atomic */
    uint32_t callers; /* threads that call, or wait to call */
    uint32_t process; /* that it joined in */
    bool quick;       /* a call that does not wait is under way */
    bool waiting;     /* one that may wait is */
    int64_t until_ns; /* how long that may; for the holder to read */
    bool leaving;
};

/* A holder of the device is there. It is not called before gvmi_idle_wake(), but for a shortage. */
void gvmi_idle_join(gvm_device *device, gvmi_idle *idle, const gvmi_idle_calls *calls);

/* It goes; waits for a call under way, so no lock that the calls take may be held. Once the last holder of
 * the process has gone the library's thread ends. */
void gvmi_idle_leave(gvmi_idle *idle);

/* Decay is wanted at that time, or before. Cheap; under the holder's locks, too. Starts the thread if need
 * be; if it cannot be started nothing decays. */
void gvmi_idle_wake(gvmi_idle *idle, int64_t at_ns);

/* Has the holders of the device give back about wanted_bytes, and then its cache all it has, so that the driver
 * gets what they gave. Waits for calls of other threads that are giving back already. No lock is held.
 * Returns the bytes that the driver got. Keeps the thread's error. */
uint64_t gvmi_idle_reclaim(gvm_device *device, uint64_t wanted_bytes, bool may_wait);

/* For the outermost call, when the device was full: reclaims without waiting for kernels after the first
 * try, and waiting for streams after the second. False: there have been three tries. */
bool gvmi_idle_retry(gvm_device *device, uint64_t wanted_bytes, uint32_t tries);

/* Calls the holder whose decay is due first, if it is due. Returns when the next one is; at most now_ns: there
 * is more to do. For background.c. */
int64_t gvmi_idle_step(int64_t now_ns);

#endif
