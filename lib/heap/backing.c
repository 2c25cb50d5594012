/* What memory is, and how it comes and goes.
 *
 *   device   a segment is a gvm_buffer; chunks are committed and decommitted
 *   host     a segment is anonymous pages, pinned by one registration, as a whole: the driver refuses calls that
 *            copy or fill across two
 *   managed  a segment is one cuMemAllocManaged; its pages go where they are touched, and nothing
 *            short of freeing takes them off the device again, so it comes and goes as a whole
 *
 * A device without virtual memory management is like managed memory: whole, by cuMemAlloc.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/error.h"
#include "heap/heap.h"

#define SEGMENT_BYTES_WHOLE (64 * GVMI_MIB) /* it is allocated and freed at once */
#define SEGMENT_BYTES_HOST (16 * GVMI_MIB)  /* pinning takes milliseconds */

static gvm_status probe_attribute(const gvm_heap *heap, CUdevice_attribute attribute, const char *what)
{
    int value = 0;
    CUresult result = gvmi_cu->cuDeviceGetAttribute(&value, attribute, heap->device->cu);

    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE)
        return gvmi_driver_fail(result, "cuDeviceGetAttribute", "cannot ask device %d for %s",
                                heap->device->info.ordinal, what);
    return result == CUDA_SUCCESS && value != 0
               ? GVM_OK
               : gvm_error_set(GVM_E_NOTSUP, "device %d has no %s", heap->device->info.ordinal, what);
}

gvm_status gvmi_backing_probe(gvm_heap *heap)
{
    heap->whole = heap->kind != GVM_HEAP_DEVICE || !heap->device->info.vmm;
    heap->segment_bytes = !heap->whole                  ? GVMI_HEAP_SEGMENT_BYTES
                          : heap->kind == GVM_HEAP_HOST ? SEGMENT_BYTES_HOST
                                                        : SEGMENT_BYTES_WHOLE;
    switch (heap->kind) {
    case GVM_HEAP_MANAGED:
        return probe_attribute(heap, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, "managed memory");
    case GVM_HEAP_HOST: /* blocks have one address, for the process and the device */
        return probe_attribute(heap, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
                               "pinned memory at the process's addresses");
    default: return GVM_OK;
    }
}

/* ---- device */

static gvm_status open_device(gvm_heap *heap, gvmi_segment *segment, uint64_t bytes)
{
    const gvmi_buffer_spec spec = {
        .reserve_bytes = bytes,
        .chunk_bytes = heap->whole ? 0 : segment->chunk_bytes,
        .owner = heap->owner,
        .unshared = heap->unshared,
    };
    gvm_status status = gvmi_buffer_create(heap->device, &spec, &segment->buffer);

    if (status != GVM_OK)
        return status;
    for (uint32_t i = 0; i < heap->grant_count && status == GVM_OK; i++)
        status = gvmi_buffer_grant(segment->buffer, heap->grants[i].peer, heap->grants[i].access);
    if (status == GVM_OK)
        atomic_store_explicit(&segment->base, segment->buffer->address, memory_order_relaxed);
    else
        gvm_buffer_destroy(segment->buffer);
    return status;
}

/* ---- managed */

/* Counted for the device, not for the heap: all managed heaps of the process share what is free. The
 * bytes are counted first, so that of two heaps that ask at once at most one passes. */
static gvm_status count_managed(gvm_heap *heap, uint64_t bytes)
{
    char wanted[32], held[32], left[32];
    const uint64_t all = __atomic_add_fetch(&heap->device->managed_bytes, bytes, __ATOMIC_RELAXED);
    uint64_t free_bytes = gvmi_device_free_bytes(heap->device);

    if (all > free_bytes && all <= heap->device->info.total_bytes) {
        gvmi_chunk_cache_trim(heap->device->cache, 0);
        free_bytes = gvmi_device_free_bytes(heap->device);
    }
    /* Some of what is committed may be on the device already and missing from what is free; to
     * count it twice is the safe side. */
    if (all <= free_bytes)
        return GVM_OK;
    __atomic_sub_fetch(&heap->device->managed_bytes, bytes, __ATOMIC_RELAXED);
    return gvm_error_set(GVM_E_NOSPACE,
                         "%s of managed memory, with the %s there are, would not fit the %s that are "
                         "free on device %d",
                         gvmi_size_text(bytes, wanted), gvmi_size_text(all - bytes, held),
                         gvmi_size_text(free_bytes, left), heap->device->info.ordinal);
}

static void uncount_managed(gvm_heap *heap, uint64_t bytes)
{
    __atomic_sub_fetch(&heap->device->managed_bytes, bytes, __ATOMIC_RELAXED);
}

static gvm_status open_managed(gvm_heap *heap, gvmi_segment *segment, uint64_t bytes)
{
    CUdeviceptr address = 0;
    CUresult result;
    char size[32];
    gvm_status status = count_managed(heap, bytes);

    if (status != GVM_OK)
        return status;
    status = gvmi_device_enter(heap->device);
    if (status != GVM_OK) {
        uncount_managed(heap, bytes);
        return status;
    }
    result = gvmi_cu->cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL);
    gvmi_device_leave();
    if (result != CUDA_SUCCESS) {
        uncount_managed(heap, bytes);
        return gvmi_driver_fail(result, "cuMemAllocManaged", "cannot allocate %s of managed memory",
                                gvmi_size_text(bytes, size));
    }
    atomic_store_explicit(&segment->base, address, memory_order_relaxed);
    return GVM_OK;
}

/* ---- host */

/* The context is current. */
static gvm_status pin_host_range(void *at, uint64_t bytes)
{
    char size[32];
    CUresult result = gvmi_cu->cuMemHostRegister(
        at, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);

    if (result == CUDA_SUCCESS)
        return GVM_OK;
    gvmi_size_text(bytes, size);
    return result == CUDA_ERROR_OUT_OF_MEMORY
               ? gvmi_driver_fail_as(GVM_E_NOMEM, result, "cuMemHostRegister",
                                     "no %s of host memory left to pin", size)
               : gvmi_driver_fail(result, "cuMemHostRegister", "cannot pin %s of host memory", size);
}

/* The system promises pages alone. At a multiple of the least chunk, so that blocks begin at units and
 * it can be large pages; what was mapped beyond goes back. */
static gvm_status open_host(gvm_heap *heap, gvmi_segment *segment, uint64_t bytes)
{
    char size[32];
    uintptr_t first, begin, end;
    gvm_status status;
    void *at = mmap(NULL, bytes + GVM_CHUNK_BYTES_MIN, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at == MAP_FAILED)
        return gvmi_fail_system(GVM_E_ADDRESS, errno, "mmap", "cannot reserve %s of addresses",
                                gvmi_size_text(bytes, size));
    first = (uintptr_t)at;
    begin = gvmi_round_up(first, GVM_CHUNK_BYTES_MIN);
    end = first + bytes + GVM_CHUNK_BYTES_MIN;
    if (begin > first)
        munmap(at, begin - first);
    munmap((void *)(begin + bytes), end - (begin + bytes));
    status = gvmi_device_enter(heap->device);
    if (status == GVM_OK) {
        status = pin_host_range((void *)begin, bytes);
        gvmi_device_leave();
    }
    if (status == GVM_OK)
        atomic_store_explicit(&segment->base, begin, memory_order_relaxed);
    else
        munmap((void *)begin, bytes);
    return status;
}

/* Addresses that the driver still has pinned are not given to others. A reset of the context has ended that.
 * Waits for kernels that run. */
static void close_host(gvm_heap *heap, gvmi_segment *segment)
{
    void *at = (void *)(uintptr_t)segment->base;
    bool entered;
    const bool there = gvmi_device_enter_to_free(heap->device, &entered);
    const bool gone = !there || gvmi_cu->cuMemHostUnregister(at) == CUDA_SUCCESS;

    if (entered)
        gvmi_device_leave();
    if (gone)
        munmap(at, segment->bytes);
}

/* ---- all */

gvm_status gvmi_backing_open(gvm_heap *heap, gvmi_segment *segment, uint64_t bytes)
{
    segment->buffer = NULL;
    switch (heap->kind) {
    case GVM_HEAP_HOST: return open_host(heap, segment, bytes);
    case GVM_HEAP_MANAGED: return open_managed(heap, segment, bytes);
    default: return open_device(heap, segment, bytes);
    }
}

gvm_status gvmi_backing_commit(gvmi_segment *segment, uint64_t first, uint64_t end)
{
    return gvmi_buffer_commit(segment->buffer, first * segment->chunk_bytes,
                              (end - first) * segment->chunk_bytes);
}

gvm_status gvmi_backing_decommit(gvmi_segment *segment, uint64_t first, uint64_t end,
                                 gvmi_release how, bool may_wait)
{
    return gvmi_buffer_decommit(segment->buffer, first * segment->chunk_bytes,
                                (end - first) * segment->chunk_bytes, how, may_wait);
}

void gvmi_backing_close(gvm_heap *heap, gvmi_segment *segment)
{
    bool entered;

    if (segment->buffer != NULL)
        gvm_buffer_destroy(segment->buffer);
    else if (heap->kind == GVM_HEAP_HOST)
        close_host(heap, segment);
    else {
        if (gvmi_device_enter_to_free(heap->device, &entered))
            gvmi_cu->cuMemFree(segment->base);
        if (entered)
            gvmi_device_leave();
        uncount_managed(heap, segment->bytes);
    }
}
