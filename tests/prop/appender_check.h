/* tests/prop/appender_check.h - a run of kernels on one appender, and what it left. */
#ifndef APPENDER_CHECK_H
#define APPENDER_CHECK_H

#include <stdbool.h>

#include <gvmem/gvmem.h>

#include "tests/prop/appender_kernels.h"

/* Everything that is drawn for a run. */
typedef struct plan {
    uint64_t seed, row_bytes, reserve_bytes;
    gvm_appender_options options;
    uint64_t items;
    uint32_t mode, rows_max, bytes_max, gather;
    uint32_t kernels;                      /* that append at once, each its part of the items */
    unsigned blocks, block_threads, lanes; /* lanes: of a warp */
    unsigned block[3];                     /* block_threads, in one to three dimensions */
} plan;

/* Items that are claimed together, and those that are in work at a time. */
uint64_t plan_group(const plan *p);
uint64_t plan_workers(const plan *p);

/* What kernels wrote between a begin and a take, as the host has it. */
typedef struct written {
    const plan *plan;
    const append_log *logs;
    uint64_t first, end; /* the items whose logs these are */
    uint32_t launch_number;
    uint64_t rows, bytes, reserve_bytes; /* as finish said */
    const unsigned char *front, *back; /* the rows, and the bytes from [reserve_bytes - bytes] on */
} written;

/* Is each row and each byte of the launch what its item says, in a place of its own, and does every
 * row and unit belong to an item? What is wrong is written to problem. */
bool written_check(const written *w, char problem[256]);

#endif
