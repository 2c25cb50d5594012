/* softgpu/space.h - what the addresses of this process are.
 *
 * Two tables, sorted by address, of things that do not overlap: ranges (a reservation, an
 * allocation, pinned or managed memory, a global of an image) and mappings (a VMM handle at some
 * part of a reservation). One lock guards both, and everything they point to.
 *
 * Threads: functions ending in _locked want the space lock, those that change something for
 * writing.
 */
#ifndef SOFTGPU_SPACE_H
#define SOFTGPU_SPACE_H

#include "softgpu/backing.h"

/* What the tables sort. First member of what they hold. */
typedef struct soft_span {
    CUdeviceptr addr;
    uint64_t size_bytes;
} soft_span;

/* How the range came to be, which says how it ends. */
typedef enum soft_origin {
    SOFT_ORIGIN_RESERVE,  /* cuMemAddressReserve */
    SOFT_ORIGIN_ALLOC,    /* cuMemAlloc, cuMemAllocManaged */
    SOFT_ORIGIN_STREAM,   /* cuMemAllocAsync */
    SOFT_ORIGIN_HOST,     /* cuMemHostAlloc */
    SOFT_ORIGIN_REGISTER, /* cuMemHostRegister: the pages are the program's */
    SOFT_ORIGIN_IPC,      /* cuIpcOpenMemHandle */
    SOFT_ORIGIN_GLOBAL,   /* a loaded image's: the pages are the loader's */
} soft_origin;

/* Who accesses a mapping or a pool: devices by ordinal, then the CPU. */
enum { SOFT_ACCESSOR_CPU = SOFT_DEVICES_MAX, SOFT_ACCESSORS };

/* A pool of stream-ordered memory. It holds nothing but what is allocated from it. */
struct CUmemPoolHandle_st {
    CUmemoryPool next;
    CUmemAllocationType type;
    CUmemLocation location;
    uint64_t refs; /* until it is destroyed; and each range from it */
    uint64_t max_bytes;
    uint64_t used_bytes, used_high_bytes;         /* as asked for */
    uint64_t reserved_bytes, reserved_high_bytes; /* in whole granules */
    uint64_t release_threshold_bytes; /* stored and returned; memory goes back at once all the same */
    int reuse[3];                     /* likewise: CU_MEMPOOL_ATTR_REUSE_... */
    uint8_t access[SOFT_ACCESSORS];
};

typedef struct soft_range {
    soft_span span; /* as asked for; what is mapped is page_bytes long */
    uint64_t page_bytes;
    soft_kind kind;
    soft_origin origin;
    int device; /* that it is on, or whose context pinned it; -1: a reservation */
    uint64_t context_id; /* that it belongs to; 0: reservations, globals and stream-ordered memory have none */
    uint64_t buffer_id;   /* never used again in this process */
    soft_backing backing; /* charge.id 0: nothing is charged */
    uint64_t open_count;  /* of an opened IPC handle */
    CUmemoryPool pool;    /* of stream-ordered memory: a reference; else NULL */
    bool exported;        /* cuIpcGetMemHandle was asked for it: other processes may fetch it */
    bool ending;          /* a free is waiting for the device: no second one may begin */
} soft_range;

/* A VMM handle of this process: the values given out for it and its mappings keep it. */
typedef struct soft_vmm_handle {
    CUmemGenericAllocationHandle value;
    soft_backing backing;
    uint64_t value_count; /* how often cuMemRelease may be called; the value is stale at 0 */
    uint64_t mapping_count;
    uint64_t buffer_id;
} soft_vmm_handle;

typedef struct soft_mapping {
    soft_span span;
    soft_vmm_handle *handle;
    uint8_t access[SOFT_ACCESSORS]; /* SOFT_ACCESS_ of each */
} soft_mapping;

/* ---- the lock */
void soft_space_lock_read(void);
void soft_space_lock_write(void);
void soft_space_unlock(void);

/* ---- ranges and mappings */

/* The one that holds addr, or NULL. */
soft_range *soft_range_at_locked(CUdeviceptr addr);
soft_mapping *soft_mapping_at_locked(CUdeviceptr addr);

/* The one at a place, from 0 on, or NULL. */
soft_range *soft_range_nth_locked(size_t index);
soft_mapping *soft_mapping_nth_locked(size_t index);

/* The first one that ends behind addr, or NULL; *index is its place, for walking on from there. */
soft_mapping *soft_mapping_from_locked(CUdeviceptr addr, size_t *index);

/* Takes the mapping in; false if there is no memory for the table. The caller has seen to it that
 * it overlaps nothing. */
bool soft_mapping_add_locked(soft_mapping *mapping);
/* Takes mappings out of the table, from a place on; the objects are the caller's. */
void soft_mapping_forget_locked(size_t index, size_t count);

/* Makes a range like the model (its buffer_id is set here) and takes it in; takes the lock itself.
 * page_bytes is not 0 for addresses that the caller has just got from the kernel, 0 for addresses
 * that the caller chose. CUDA_ERROR_OUT_OF_MEMORY; and for the latter
 * CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED or CUDA_ERROR_INVALID_VALUE if they overlap what is
 * known already. */
CUresult soft_range_add(const soft_range *model);

/* Finds addresses for the model's pages, puts its backing behind them and takes it in. Sets the
 * model's address on success; destroys its backing on failure. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult soft_range_place(soft_range *model, uint64_t alignment);

/* Ends a range: takes it out, gives its pages back to the kernel (unless they are not ours) and
 * destroys its backing. The caller has made sure that nothing is mapped in it.
 * CUDA_ERROR_OUT_OF_MEMORY if the kernel would have to split a mapping and cannot: nothing has
 * changed then. */
CUresult soft_range_end_locked(soft_range *range);

/* How many frees of ranges have begun so far; *queued: not all of them have ended. */
uint64_t soft_frees_begun(bool *queued);

uint64_t soft_buffer_id_next(void);

/* Gives back a reference to a pool. */
void soft_pool_unref_locked(CUmemoryPool pool);

/* ---- pages: addresses from the kernel */

/* Addresses without memory behind them; alignment is a power of two, wanted a hint or 0. 0 if there
 * are none. */
CUdeviceptr soft_pages_reserve(uint64_t size_bytes, uint64_t alignment, CUdeviceptr wanted);
/* Puts memory behind reserved addresses: that of the file, or anonymous if fd is -1. prot as for
 * mmap. */
bool soft_pages_map(CUdeviceptr addr, uint64_t size_bytes, int fd, int prot);
/* Takes it away again; the addresses stay reserved. */
bool soft_pages_unmap(CUdeviceptr addr, uint64_t size_bytes);
bool soft_pages_protect(CUdeviceptr addr, uint64_t size_bytes, int prot);
bool soft_pages_release(CUdeviceptr addr, uint64_t size_bytes);

static inline void *soft_pages_pointer(CUdeviceptr addr)
{
    return (void *)(uintptr_t)addr;
}

#endif
