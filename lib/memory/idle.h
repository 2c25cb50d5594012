/* memory/idle.h - who keeps device memory that it does not use, and how it is reclaimed.
 *
 * A holder is whatever keeps idle memory: a heap, the cache of free chunks of a device, an appender that
 * has not begun. It gives memory back in two ways. By time: the library's thread (background.h) calls
 * decay when that is due. On shortage: every allocation that finds the device full has all holders of the
 * device give back what they can, and tries again.
 *
 * An inner call returns GVM_E_NOSPACE; the outermost one, which holds no lock, repeats it:
 *
 *     gvmi_shortage shortage = {0};
 *
 *     do
 *         status = ...;
 *     while (status == GVM_E_NOSPACE && gvmi_idle_retry(device, wanted_bytes, &shortage));
 *
 * Other threads may take what one has had given back, and several that fail together hold parts of it meanwhile. So
 * it is repeated while holders give something.
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

#include "base/clock.h"
#include "memory/device.h"

/* How long a shortage waits for streams at most: their work may itself wait for the thread that waits here. */
#define GVMI_IDLE_WAIT_MS 10000

typedef struct gvmi_idle gvmi_idle;

/* All are called without a lock, and must not destroy a device, heap or buffer that may be the last to
 * hold the device. NULL: there is nothing to do. */
typedef struct gvmi_idle_calls {
    /* Gives device memory back, best effort: up to about wanted_bytes (UINT64_MAX: all). may_wait: may wait
     * for streams, until idle->until_ns; else it never waits for a kernel, nor for a lock that is held while
     * somebody waits for one, and for one that is held while memory is committed only a moment. Returns the
     * bytes given back, to the chunk cache or to the driver. */
    uint64_t (*reclaim)(gvmi_idle *idle, uint64_t wanted_bytes, bool may_wait);
    /* One bounded step of release by time, in the library's thread; never waits for a kernel. Returns when it
     * is to be called again (on CLOCK_MONOTONIC; GVMI_NEVER_NS: not before gvmi_idle_wake()). */
    int64_t (*decay)(gvmi_idle *idle, int64_t now_ns);
    /* Of a cache to which other holders give: gives all it has to the driver, after they have. */
    void (*flush)(gvmi_idle *idle);
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
 * be; if it cannot be started nothing decays until one of the next calls, of any holder, can. */
void gvmi_idle_wake(gvmi_idle *idle, int64_t at_ns);

/* Has the holders of the device give back about wanted_bytes, and then its cache all it has, so that the driver
 * gets what they gave. Waits for calls of other threads that are giving back already. No lock is held.
 * Returns the bytes that the holders gave. Keeps the thread's error. */
uint64_t gvmi_idle_reclaim(gvm_device *device, uint64_t wanted_bytes, bool may_wait);

#define GVMI_SHORTAGE_ROUNDS_MAX 64
#define GVMI_SHORTAGE_FRUITLESS_MAX 2

/* One call that finds memory short; zero at first. A round has idle memory given back: the first without waiting for
 * streams, so that it is not counted as unsuccessful. */
typedef struct gvmi_shortage {
    uint32_t rounds, fruitless; /* fruitless: of the latest, those that gave nothing */
    int64_t until_ns;           /* streams are waited for; from the second round on */
} gvmi_shortage;

static inline bool gvmi_shortage_lasts(const gvmi_shortage *shortage)
{
    return shortage->rounds < GVMI_SHORTAGE_ROUNDS_MAX &&
           shortage->fruitless < GVMI_SHORTAGE_FRUITLESS_MAX &&
           (shortage->rounds == 0 || gvmi_now_ns() < shortage->until_ns);
}

/* There was a round. */
void gvmi_shortage_note(gvmi_shortage *shortage, uint64_t given_bytes);

/* For the outermost call, when the device was full: one round. False: it is over. */
bool gvmi_idle_retry(gvm_device *device, uint64_t wanted_bytes, gvmi_shortage *shortage);

/* Calls the holder whose decay is due first, if it is due. Returns when the next one is; at most now_ns: there
 * is more to do. */
int64_t gvmi_idle_step(int64_t now_ns);

#endif
