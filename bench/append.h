/* bench/append.h - the argument of the kernel in append_kernel.c, as host and device see it. */
#ifndef BENCH_APPEND_H
#define BENCH_APPEND_H

#include <gvmem/appender.h>

#define BENCH_APPEND_ROW_BYTES 64u
#define BENCH_APPEND_RECORD_BYTES (64u << 10) /* what a block claims at a time */
#define BENCH_APPEND_LANE_BYTES 16u           /* what a thread writes at a time */

/* What the kernel leaves; the host sets begun and first to UINT64_MAX, the others to 0. */
typedef struct bench_append_words {
    uint64_t begun; /* clock of the first block's start, ns */
    uint64_t first; /* clock of the first record's claim */
    uint64_t failed;
    uint64_t cursor; /* of the kernel that needs no appender */
} bench_append_words;

typedef struct bench_append_params {
    gvm_append append;
    uint64_t words;
    uint64_t base; /* not 0: records go here, by the cursor in words, and there is no appender */
    uint64_t records;
} bench_append_params;

#endif
