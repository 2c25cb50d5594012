/* softgpu/block.h - the threads of a block, as fibers of one system thread.
 *
 * soft_block_run() runs all threads of one block and returns when they have ended, or when one of them has failed: then
 * the others are given up where they stand. Barriers, operations of warps, and whatever else the kernel's thread
 * waits with, are switches from one fiber to another.
 *
 * Threads: a soft_block belongs to one SM thread, which is in soft_fault_guard() when it runs blocks.
 * Ownership: a soft_block, and the fibers that it has made, stay as long as their thread.
 */
#ifndef SOFTGPU_BLOCK_H
#define SOFTGPU_BLOCK_H

#include <stdatomic.h>

#include <gvmem/device/kernel.h>

#include "softgpu/soft.h"

typedef struct soft_block soft_block;

/* stop: once set, blocks end with CUDA_ERROR_LAUNCH_FAILED. NULL: out of memory. */
soft_block *soft_block_new(atomic_bool *stop);
/* Runs the threads of one block. like: what all of them have in common, with the block's size. number: of the block among all,
 * for switches at random. */
CUresult soft_block_run(soft_block *block, const gvm_soft_kernel *kernel, const void *params,
                        const gvm_soft_thread *like, uint64_t number);

#endif
