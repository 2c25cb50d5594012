/* softgpu/backing.h - the memory behind addresses: a charge and, where other processes may get at
 * it, a memfd.
 *
 * The memfd is sealed against a change of size, so that a process that receives it cannot take pages away
 * from those that map it, and its name says what it is: id, use, location, handle types. An importer
 * accepts the name as far as it is well-formed; a forged one gets its maker no more than a file of
 * the importer's own instance, charged like any other.
 *
 * Ownership: one owner, who ends it with soft_backing_destroy(). Mappings of the file outlive it.
 */
#ifndef SOFTGPU_BACKING_H
#define SOFTGPU_BACKING_H

#include <stdbool.h>

#include "softgpu/charge.h"

typedef enum soft_use {
    SOFT_USE_HANDLE = 'h', /* cuMemCreate: shared by cuMemExportToShareableHandle alone */
    SOFT_USE_PLAIN = 'p',  /* cuMemAlloc: shared by cuIpcGetMemHandle alone */
} soft_use;

typedef struct soft_backing {
    soft_charge charge;
    uint64_t size_bytes;
    soft_use use;
    CUmemLocation location;
    CUmemAllocationHandleType handle_types;
    bool rdma; /* asked for when it was made; not known of adopted memory */
    int fd;    /* -1: charged only; the pages are anonymous */
} soft_backing;

/* Makes new memory: size_bytes is a multiple of the page size. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult soft_backing_create(soft_backing *backing, soft_use use, CUmemLocation location,
                             CUmemAllocationHandleType handle_types, uint64_t size_bytes);

/* Charges pages that need no file. */
CUresult soft_backing_charge(soft_backing *backing, CUmemLocation location, uint64_t size_bytes);

/* Becomes a holder of the memory that a file descriptor from elsewhere stands for; the descriptor
 * stays the caller's. CUDA_ERROR_INVALID_VALUE if it is none of this instance for this use,
 * CUDA_ERROR_INVALID_DEVICE if its device is not there. */
CUresult soft_backing_adopt(soft_backing *backing, soft_use use, int fd);

/* A descriptor for the caller to keep, close-on-exec. */
CUresult soft_backing_dup(const soft_backing *backing, int *fd);

void soft_backing_destroy(soft_backing *backing);

#endif
