/* bench/region/region.h - the argument of the kernels in region_kernel.c, as host and device see it. Addresses are numbers.
 *
 * A region's home holds a pattern, by which what a kernel reads is checked.
 */
#ifndef BENCH_REGION_REGION_H
#define BENCH_REGION_REGION_H

#include <gvmem/callback_view.h>
#include <gvmem/region_view.h>

/* Word w of a region: not 0, and different from its neighbours. */
#define BENCH_REGION_WORD(region, w) \
    (((uint64_t)(region) + 1) * 0x9e3779b97f4a7c15u + (uint64_t)(w)*0xc2b2ae3d27d4eb4fu)

/* What one loop of region_maps does each round. */
enum {
    BENCH_MAPS_BARE,         /* two atomics, of which the first is waited for */
    BENCH_MAPS_BARE_ORDERED, /* the same with the orders that a map and an unmap have */
    BENCH_MAPS_REGION,
};

/* Threads that map together; by lanes each maps its own region, and the warp together. */
enum { BENCH_BY_THREAD, BENCH_BY_WARP, BENCH_BY_BLOCK, BENCH_BY_LANES };

typedef struct bench_region_params {
    gvm_region_view view;
    uint64_t words;   /* region_maps: of a bare atomic each; experts: the token's number */
    uint64_t list;    /* uint32_t: numbers of regions; 0: all, in an order that jumps */
    uint64_t slots;   /* uint32_t */
    uint64_t scratch; /* device memory that a copy without regions goes to */
    uint64_t out;     /* uint64_t: sums, or times in ns */
    uint64_t first, count;
    uint64_t total; /* regions to choose from: a power of 2 where they are not in a list */
    uint32_t kind, by, access;
    uint32_t rounds;
} bench_region_params;

/* out of kernels that check. */
enum { BENCH_OUT_SUM, BENCH_OUT_WRONG, BENCH_OUT_CURSOR, BENCH_OUT_REMOTE, BENCH_OUT_WORDS };

/* Of kernels that serve requests with lists of items: a cache of slots for each request, written without regions. */
#define BENCH_ITEMS_MAX 2048u /* of a request in a step */

typedef struct bench_items_params {
    uint64_t homes, stride_bytes; /* of item 0 in host memory */
    uint64_t cache;               /* of slot 0 of request 0 */
    uint64_t items, slots;        /* uint32_t: of the step, and where each is */
    uint64_t slot_of;             /* uint32_t for each item of all requests */
    uint64_t item_of, used; /* uint32_t for each slot: its item, and the step that used it last */
    uint64_t order[2];      /* uint32_t: slots of a request, the least recently used first */
    uint32_t count;         /* items of a request in a step */
    uint32_t slot_count;    /* slots of a request */
    uint32_t step;          /* from 1 on */
    uint32_t reserved;
} bench_items_params;

/* Of kernels that call the host. */
enum { BENCH_CALL, BENCH_POST, BENCH_JOIN, BENCH_SIGNAL };

#define BENCH_MAILBOX_ANSWER 32u /* the word of the host, on another line than the device's */

typedef struct bench_callback_params {
    gvm_callback_view server;
    uint64_t mailbox; /* uint64_t, in host memory */
    uint64_t times;   /* uint64_t for each round, in ns; 0: not wanted */
    uint64_t out;     /* uint64_t: BENCH_OUT_... */
    uint32_t kind, function;
    uint32_t rounds;
    uint32_t reserved;
} bench_callback_params;

/* Of the loop over a model's layers. */
typedef struct bench_experts_params {
    uint64_t trace; /* uint32_t: the experts of each token and layer, numbered over all layers */
    uint64_t token; /* uint64_t word: which it is */
    uint64_t list;  /* uint32_t: the regions of the layer's experts */
    uint64_t slots; /* uint32_t: where they are */
    uint64_t address, stride_bytes, region_bytes;
    uint64_t out; /* uint64_t: BENCH_OUT_... */
    uint32_t layer, layers;
    uint32_t chosen; /* experts of a layer and token */
    uint32_t pieces; /* regions of an expert */
} bench_experts_params;

#endif
