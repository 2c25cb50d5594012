/* gvmem/device/appender.h - appending to a buffer whose memory comes while the kernel runs.
 *
 * The device's side of gvmem/appender.h, in the dialect of gvmem/device/kernel.h. A kernel claims places, writes there, and
 * publishes what it has written:
 *
 *     typedef struct { gvm_append append; ... } join_params;
 *
 *     GVM_KERNEL(join, join_params, p)
 *     {
 *         gvm_append_place place;
 *         uint64_t done = 0;
 *         ...
 *         if (gvm_append_claim(&p.append, 1, text_bytes, 1, &place) != GVM_APPEND_OK)
 *             goto save_position;               // nothing of this was claimed
 *         *(row *)place.rows = ...;              // text at place.bytes
 *         done += place.amount;
 *         ...
 *         gvm_append_publish(&p.append, done);  // once, for all that was written
 *     }
 *
 * A claim is of so many rows, which follow each other, and so many bytes of the back, aligned to a power of two up to 4096
 * (0 and 1: to nothing). Either may be 0. All claims take the same arguments, and each is one atomic addition:
 *
 *     function                        who calls                 what each thread gets
 *     gvm_append_claim()              one thread                what it claims
 *     gvm_append_claim_warp()         all threads of a warp     what it claims itself
 *     gvm_append_claim_whole_warp()   all, with equal numbers   the one place of the warp
 *     gvm_append_claim_block()        all threads of a block    what it claims itself
 *     gvm_append_claim_whole_block()  all, with equal numbers   the one place of the block
 *
 * In those of warps and blocks rows and bytes lie in the order of the threads (gvm_thread(): x first, then y,
 * then z), all threads pass the same alignment and get the same answer, and blocks of any number of
 * dimensions are made of whole warps. What one thread, warp or block claims later lies behind what it claimed before.
 *
 * Every claim that succeeded must be written and then published, before the kernel ends, by adding its place's amount (where
 * many threads claim together one thread's amount is that of all, the others' are 0). Amounts may be gathered and published
 * at once.
 *
 * These functions are given a pointer into the kernel's parameter. GVM_KERNEL declares that so that
 * nothing is copied; in a CUDA kernel of one's own write const __grid_constant__ before its type.
 *
 * How it works: gvmem/device/detail/appender.h. Invariants, and why so: docs/design/appender.md.
 */
#ifndef GVMEM_DEVICE_APPENDER_H
#define GVMEM_DEVICE_APPENDER_H

#include <gvmem/append.h>
#include <gvmem/device/kernel.h>

/* What a claim answers. */
enum {
    GVM_APPEND_OK = 0,
    GVM_APPEND_FULL = 1, /* budget or reservation are spent, for every thread from one point on */
    GVM_APPEND_LATE = 2, /* the same, because the library's thread did not answer in time */
    GVM_APPEND_INVALID = 3, /* so much could never be granted, or the alignment is wrong; nothing has changed for others */
};

/* What was claimed. */
typedef struct gvm_append_place {
    uint64_t row;          /* number of the first row */
    unsigned char *rows;   /* where they are */
    unsigned char *bytes;  /* where these are */
    uint64_t bytes_offset; /* the same from the buffer's start: good in any process */
    uint64_t amount;       /* for gvm_append_publish() */
} gvm_append_place;

#ifdef GVM_KERNEL

GVM_DEVICE uint32_t gvm_append_claim(const gvm_append *a, uint64_t rows, uint64_t bytes,
                                     uint32_t align, gvm_append_place *place);
GVM_DEVICE uint32_t gvm_append_claim_warp(const gvm_append *a, uint64_t rows, uint64_t bytes,
                                          uint32_t align, gvm_append_place *place);
GVM_DEVICE uint32_t gvm_append_claim_whole_warp(const gvm_append *a, uint64_t rows, uint64_t bytes,
                                                uint32_t align, gvm_append_place *place);
GVM_DEVICE uint32_t gvm_append_claim_block(const gvm_append *a, uint64_t rows, uint64_t bytes,
                                           uint32_t align, gvm_append_place *place);
GVM_DEVICE uint32_t gvm_append_claim_whole_block(const gvm_append *a, uint64_t rows, uint64_t bytes,
                                                 uint32_t align, gvm_append_place *place);

/* Says that what was claimed is written: the amount of one place, or the sum of many. */
GVM_DEVICE void gvm_append_publish(const gvm_append *a, uint64_t amount);

#endif /* GVM_KERNEL */

#include <gvmem/device/detail/appender.h>

#endif
