/* What pools.c, pools_list.c and pools_stats.c have in common: the devices, and their pools.
 *
 * Circle: pools.c, pools_list.c and pools_stats.c call each other, because the table of calls is in pools.c, as are devices and blocks,
 * and a pool ends with its last block. */
#ifndef GVMEM_PYTHON_POOLS_STATE_H
#define GVMEM_PYTHON_POOLS_STATE_H

#include <pthread.h>
#include <stdbool.h>

#include <gvmem/heap.h>

#include "pools.h"

#define DEVICES_MAX 64

typedef struct pool {
    struct pool *next;
    pool_id id;
    int device;
    bool own;       /* of a capture that has no pool: id.first is its number */
    bool open;      /* begun, and not ended */
    uint64_t begun; /* while it is open: a larger number than those that were begun before */
    int users;
    uint64_t blocks;    /* taken, and not yet free in their heap */
    gvm_heap *heap;     /* NULL until it is needed; as is the other */
    gvm_heap *captured; /* for what is taken in captures */
    pool_filter filter; /* while it is open */
} pool;

typedef struct device_state {
    gvm_device *_Atomic device; /* open from the first request on */
    pool first;
    pool *others;
    uint64_t limit_bytes;
    bool limit_is_shared;      /* heaps have what others had left of it */
    bool granted[DEVICES_MAX]; /* to whom */
    pool_stats counted;
    int64_t held_peak_bytes, lifetime_peak_bytes; /* when peaks were reset */
} device_state;

extern pthread_mutex_t pools_lock; /* for what follows */
extern device_state pools_devices[DEVICES_MAX];

/* Refuses numbers that are no device's, and all in a child made by fork(). */
gvm_status pools_check_device(int device);

/* pools.c: the device's first pool is there from then on; frees that waited for captures are made. */
gvm_status pools_open_device_locked(int ordinal);
void pools_give_late(void);

/* pools_list.c: the pool that a stream's request is served from, made if need be; NULL: out of memory. */
pool *pools_choose_locked(device_state *d, gvm_stream stream, uint64_t capture_id);
/* Ends the pools that have no users and no blocks, unless a pool is open. Without the lock. */
void pools_reap(int device);
/* See pool_calls. */
int pools_retain(int device, pool_id id);
int pools_begin(int device, pool_id id, pool_filter filter);
int pools_end(int device, pool_id id);
int pools_release(int device, pool_id id);
int pools_users(int device, pool_id id);

/* Calls a function for each heap of a device, or of one of its pools, without the lock: the pool has one more block
 * meanwhile, so that it stays. captured: those of captures, too. */
gvm_status pools_for_heaps(int device, pool_id id, bool captured,
                           gvm_status (*call)(const pool *p, gvm_heap *heap, void *arg), void *arg);

/* pools_stats.c; see pool_calls */
int pools_stats_of(int device, pool_stats *out);
int pools_reset_peaks(int device);
int pools_reset_counts(int device);
int pools_walk(pool_id id, void (*each)(void *arg, const pool_extent *extent), void *arg);

#endif
