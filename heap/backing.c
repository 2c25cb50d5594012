/* What memory is, and how it comes and goes.
 *
 *   device   a segment is a gvm_buffer; chunks are committed and decommitted
 *   host     a segment is addresses of the process; a chunk is anonymous pages, pinned while it is
 *            committed
 *   managed  a segment is one cuMemAllocManaged; its pages go where they are touched, and nothing
 *            short of freeing takes them off the device again, so it comes and goes as a whole
 *
 * A device without virtual memory management is like managed memory: whole, by cuMemAlloc.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/error.h"
#include "heap/heap.h"

#define SEGMENT_BYTES_WHOLE (64 * GVMI_MIB) /* it is allocated and freed at once */

static gvm_status probe_attribute(const gvm_heap *heap, CUdevice_attribute attribute, const char *what)
{
    int value = 0;
    CUresult result = gvmi_cu->cuDeviceGetAttribute(&value, attribute, heap->device->cu);

    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE)
        return gvmi_driver_fail(result, "cuDeviceGetAttribute", "cannot ask device %d for %s",
                                heap->device->info.ordinal, what);
    return result == CUDA_SUCCESS && value != 0
               ? GVM_OK
               : gvmi_fail(GVM_E_NOTSUP, "device %d has no %s", heap->device->info.ordinal, what);
}

gvm_status gvmi_backing_probe(gvm_heap *heap)
{
    heap->whole = heap->kind == GVM_HEAP_MANAGED ||
                  (heap->kind == GVM_HEAP_DEVICE && !heap->device->info.vmm);
    heap->segment_bytes = heap->whole ? SEGMENT_BYTES_WHOLE : GVMI_HEAP_SEGMENT_BYTES;
    return heap->kind == GVM_HEAP_MANAGED
               ? probe_attribute(heap, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, "managed memory")
               : GVM_OK;
}

/* ---- device */

static gvm_status open_device(gvm_heap *heap, gvmi_segment *segment, uint64_t bytes)
{
    const gvmi_buffer_spec spec = {
        .reserve_bytes = bytes,
        .chunk_bytes = heap->whole ? 0 : segment->chunk_bytes,
        .unshared = heap->unshared,
    };
    gvm_status status = gvmi_buffer_create(heap->device, &spec, &segment->buffer);

    if (status == GVM_OK)
        atomic_store_explicit(&segment->base, segment->buffer->address, memory_order_relaxed);
    return status;
}

/* ---- managed */

static gvm_status check_free(gvm_heap *heap, uint64_t bytes)
{
    char wanted[32], held[32], left[32];
    const uint64_t free_bytes = gvmi_backing_free_bytes(heap);

    /* Some of what is committed may be on the device already and missing from what is free; to
     * count it twice is the safe side. */
    if (bytes <= free_bytes && heap->committed_bytes <= free_bytes - bytes)
        return GVM_OK;
    return gvmi_fail(GVM_E_NOSPACE,
                     "%s of managed memory, with the %s there are, would not fit the %s that are "
                     "free on device %d",
                     gvmi_size_text(bytes, wanted), gvmi_size_text(heap->committed_bytes, held),
                     gvmi_size_text(free_bytes, left), heap->device->info.ordinal);
}

static gvm_status open_managed(gvm_heap *heap, gvmi_segment *segment, uint64_t bytes)
{
    CUdeviceptr address = 0;
    CUresult result;
    char size[32];
    gvm_status status = check_free(heap, bytes);

    if (status == GVM_OK)
        status = gvmi_device_enter(heap->device);
    if (status != GVM_OK)
        return status;
    result = gvmi_cu->cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL);
    gvmi_device_leave();
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuMemAllocManaged", "cannot allocate %s of managed memory",
                                gvmi_size_text(bytes, size));
    atomic_store_explicit(&segment->base, address, memory_order_relaxed);
    return GVM_OK;
}

/* ---- host */

static gvm_status open_host(gvmi_segment *segment, uint64_t bytes)
{
    char size[32];
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at == MAP_FAILED)
        return gvmi_fail_system(GVM_E_ADDRESS, errno, "mmap", "cannot reserve %s of addresses",
                                gvmi_size_text(bytes, size));
    atomic_store_explicit(&segment->base, gvmi_key(at), memory_order_relaxed);
    return GVM_OK;
}

static void *host_chunk(const gvmi_segment *segment, uint64_t index)
{
    return (void *)(uintptr_t)(segment->base + index * segment->chunk_bytes);
}

static void drop_pages(void *at, uint64_t bytes)
{
    madvise(at, bytes, MADV_DONTNEED);
    mprotect(at, bytes, PROT_NONE);
}

/* The context is current. The device must reach the pages at the process's own address. */
static gvm_status pin(void *at, uint64_t bytes)
{
    char size[32];
    CUdeviceptr seen = 0;
    CUresult result;

    gvmi_size_text(bytes, size);
    if (mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "mprotect", "cannot make %s of pages usable",
                                size);
    result = gvmi_cu->cuMemHostRegister(at, bytes,
                                        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result != CUDA_SUCCESS) {
        drop_pages(at, bytes);
        return result == CUDA_ERROR_OUT_OF_MEMORY
                   ? gvmi_driver_fail_as(GVM_E_NOMEM, result, "cuMemHostRegister",
                                         "no %s of host memory left to pin", size)
                   : gvmi_driver_fail(result, "cuMemHostRegister", "cannot pin %s of host memory",
                                      size);
    }
    result = gvmi_cu->cuMemHostGetDevicePointer(&seen, at, 0);
    if (result == CUDA_SUCCESS && seen == gvmi_key(at))
        return GVM_OK;
    gvmi_cu->cuMemHostUnregister(at);
    drop_pages(at, bytes);
    return result == CUDA_SUCCESS
               ? gvmi_fail(GVM_E_NOTSUP, "the device sees pinned memory at another address")
               : gvmi_driver_fail(result, "cuMemHostGetDevicePointer", "cannot find pinned memory");
}

static void unpin(const gvmi_segment *segment, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++) {
        gvmi_cu->cuMemHostUnregister(host_chunk(segment, i)); /* waits for kernels that run */
        drop_pages(host_chunk(segment, i), segment->chunk_bytes);
    }
}

static gvm_status commit_host(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end)
{
    uint64_t done = first;
    gvm_status status = gvmi_device_enter(heap->device);

    if (status != GVM_OK)
        return status;
    while (done < end && (status = pin(host_chunk(segment, done), segment->chunk_bytes)) == GVM_OK)
        done++;
    if (status != GVM_OK)
        unpin(segment, first, done);
    gvmi_device_leave();
    return status;
}

static gvm_status decommit_host(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end)
{
    gvm_status status = gvmi_device_enter(heap->device);

    if (status != GVM_OK)
        return status;
    unpin(segment, first, end);
    gvmi_device_leave();
    return GVM_OK;
}

static void close_host(gvm_heap *heap, gvmi_segment *segment)
{
    bool entered;
    const bool there = gvmi_device_enter_to_free(heap->device, &entered);

    for (uint64_t i = 0; i < segment->chunk_count && there; i++)
        if (segment->chunks[i].committed)
            gvmi_cu->cuMemHostUnregister(host_chunk(segment, i));
    if (entered)
        gvmi_device_leave();
    munmap(host_chunk(segment, 0), segment->bytes);
}

/* ---- all */

gvm_status gvmi_backing_open(gvm_heap *heap, gvmi_segment *segment, uint64_t bytes)
{
    segment->buffer = NULL;
    switch (heap->kind) {
    case GVM_HEAP_HOST: return open_host(segment, bytes);
    case GVM_HEAP_MANAGED: return open_managed(heap, segment, bytes);
    default: return open_device(heap, segment, bytes);
    }
}

gvm_status gvmi_backing_commit(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end)
{
    if (heap->kind == GVM_HEAP_HOST)
        return commit_host(heap, segment, first, end);
    return gvm_buffer_commit(segment->buffer, first * segment->chunk_bytes,
                             (end - first) * segment->chunk_bytes);
}

gvm_status gvmi_backing_decommit(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end)
{
    if (heap->kind == GVM_HEAP_HOST)
        return decommit_host(heap, segment, first, end);
    return gvm_buffer_decommit(segment->buffer, first * segment->chunk_bytes,
                               (end - first) * segment->chunk_bytes);
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
    }
}

uint64_t gvmi_backing_free_bytes(const gvm_heap *heap)
{
    size_t free_bytes = 0, total_bytes;

    if (gvmi_device_enter(heap->device) != GVM_OK)
        return 0;
    if (gvmi_cu->cuMemGetInfo(&free_bytes, &total_bytes) != CUDA_SUCCESS)
        free_bytes = 0;
    gvmi_device_leave();
    return free_bytes;
}
