/* Copies and fills.
 *
 * Under the buffer's lock the range is checked and put to use (memory/buffer.h); the driver is called
 * without it, since a copy from or to pageable memory comes back when the bytes have been moved, and on a
 * stream of the program when the work before it has ended, too. The use lasts until the driver is
 * back, in the waiting forms until the copy is over: until then nobody takes memory or rights from the
 * chunks. What the waiting forms submit goes to the device's own streams, which no other stream's
 * work delays.
 *
 * A range is cut where its tier changes: a driver copy then stays within memory of one kind.
 */
#include <string.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/size.h"
#include "memory/buffer.h"

/* Copies of at most so much between host and buffer go by the stream for words. It is what the driver
 * stages of pageable memory at a time, and 4 us of the link. */
#define SMALL_BYTES_MAX (64ull << 10)

/* One side of a copy that is in a buffer. */
typedef struct place {
    gvm_buffer *buffer;
    uint64_t offset;
} place;

static CUdeviceptr address_at(place p)
{
    return p.buffer->address + p.offset;
}

uint64_t gvmi_buffer_run(gvm_buffer *buffer, uint64_t offset_bytes, uint64_t len_bytes)
{
    uint64_t i = gvmi_chunk_at(buffer, offset_bytes), run_end = gvmi_chunk_start(buffer, i + 1);
    const gvmi_chunk *first = &buffer->chunks[i];

    gvmi_lock(&buffer->lock);
    while (run_end - offset_bytes < len_bytes && gvmi_chunks_together(first, &buffer->chunks[++i]))
        run_end = gvmi_chunk_start(buffer, i + 1);
    gvmi_unlock(&buffer->lock);
    return gvmi_min(run_end - offset_bytes, len_bytes);
}

gvm_status gvmi_buffer_ready_locked(gvm_buffer *buffer, uint64_t offset_bytes, uint64_t len_bytes)
{
    uint64_t first, end;
    gvm_status status = gvmi_buffer_chunk_range(buffer, offset_bytes, len_bytes, &first, &end);

    if (status != GVM_OK)
        return status;
    for (uint64_t i = first; i < end; i++)
        if (buffer->chunks[i].tier == GVM_TIER_ABSENT)
            return gvm_error_set(GVM_E_ABSENT,
                                 "nothing is committed at offset %llu: commit the range first",
                                 (unsigned long long)gvmi_chunk_start(buffer, i));
    return gvmi_buffer_settle_locked(buffer, first, end);
}

static uint64_t run_len(place p, uint64_t len)
{
    return gvmi_buffer_run(p.buffer, p.offset, len);
}

static gvm_status check_range_locked(place p, uint64_t len)
{
    return gvmi_buffer_ready_locked(p.buffer, p.offset, len);
}

static gvm_status check_target_locked(place p, uint64_t len)
{
    gvm_status status = gvmi_buffer_writable_locked(p.buffer);

    return status != GVM_OK ? status : check_range_locked(p, len);
}

static gvm_status check_within(const gvm_buffer *buffer, uint64_t offset, uint64_t len)
{
    if (gvmi_range_within(offset, len, buffer->reserve_bytes))
        return GVM_OK;
    return gvm_error_set(GVM_E_INVALID,
                         "the range of %llu bytes at offset %llu leaves the reservation of %llu",
                         (unsigned long long)len, (unsigned long long)offset,
                         (unsigned long long)buffer->reserve_bytes);
}

/* What a range of a buffer that is not empty uses. */
static gvmi_use use_of_place(place p, uint64_t len)
{
    return (gvmi_use){
        .buffer = p.buffer,
        .first = gvmi_chunk_at(p.buffer, p.offset),
        .end = gvmi_chunk_at(p.buffer, p.offset + len - 1) + 1,
    };
}

/* Begins the use of a range that is checked as the source or as the target of a copy. */
static gvm_status begin_place_use(place p, uint64_t len,
                                  gvm_status (*check_locked)(place p, uint64_t len), gvmi_use *use)
{
    gvm_status status;

    *use = use_of_place(p, len);
    gvmi_use_begin_shared(use, use);
    status = check_locked(p, len);
    if (status != GVM_OK)
        gvmi_use_end_locked(use);
    gvmi_unlock(&p.buffer->lock);
    return status;
}

/* Waits for what was submitted to a stream of the device's own; also after a failure, since what was
 * submitted before it uses the caller's memory. Returns the first failure. */
static gvm_status wait_for_stream(gvm_device *device, CUstream stream, gvm_status status)
{
    const gvm_error error = gvmi_error_save();
    gvm_status finished = gvmi_device_enter(device);
    CUresult result;

    if (finished == GVM_OK) {
        result = gvmi_cu->cuStreamSynchronize(stream);
        gvmi_device_leave();
        if (result != CUDA_SUCCESS)
            finished = gvmi_driver_fail(result, "cuStreamSynchronize", "a copy on device %d failed",
                                        device->info.ordinal);
    }
    if ((status == GVM_E_DRIVER || finished == GVM_E_DRIVER) && gvmi_device_was_reset(device))
        return gvmi_device_fail_reset(device);
    if (status == GVM_OK)
        return finished;
    gvm_error_restore(&error);
    return status;
}

/* ---- between host and buffer */

typedef enum direction { IN, OUT } direction;

static gvm_status submit_host(place p, direction way, void *host, uint64_t len, CUstream stream)
{
    gvm_status status = gvmi_device_enter(p.buffer->device);

    if (status != GVM_OK)
        return status;
    for (uint64_t run; len > 0 && status == GVM_OK;
         len -= run, p.offset += run, host = (char *)host + run) {
        CUresult result;

        run = run_len(p, len);
        if (way == IN)
            result = gvmi_cu->cuMemcpyHtoDAsync(address_at(p), host, run, stream);
        else
            result = gvmi_cu->cuMemcpyDtoHAsync(host, address_at(p), run, stream);
        if (result != CUDA_SUCCESS)
            status = gvmi_driver_fail(result, way == IN ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync",
                                      "cannot copy %llu bytes", (unsigned long long)run);
    }
    gvmi_device_leave();
    return status;
}

/* Of a range that is not empty. wait: on a stream of the device's own. */
static gvm_status copy_range(place p, direction way, void *host, uint64_t len, bool wait, CUstream stream)
{
    gvm_device *device = p.buffer->device;
    gvmi_use use;
    gvm_status status = begin_place_use(p, len,
                                        way == IN ? check_target_locked : check_range_locked, &use);

    if (status != GVM_OK)
        return status;
    if (wait)
        stream = len <= SMALL_BYTES_MAX ? device->words_stream : device->stream;
    status = submit_host(p, way, host, len, stream);
    if (wait)
        status = wait_for_stream(device, stream, status);
    gvmi_use_end(&use);
    return status;
}

static gvm_status copy_host(gvm_buffer *handle, uint64_t offset, direction way, void *host,
                            uint64_t len, bool wait, CUstream stream)
{
    gvm_buffer *buffer;
    gvm_status status = gvmi_buffer_hold(handle, &buffer);

    if (status != GVM_OK)
        return status;
    if (len > 0 && host == NULL)
        status = gvm_error_set(GVM_E_INVALID, "the host pointer is NULL");
    else if (len > 0)
        status = check_within(buffer, offset, len);
    if (status == GVM_OK && len > 0)
        status = copy_range((place){buffer, offset}, way, host, len, wait, stream);
    gvmi_buffer_drop(buffer);
    return status;
}

gvm_status gvm_buffer_copy_in(gvm_buffer *dst, uint64_t dst_offset_bytes, const void *src,
                              uint64_t len_bytes)
{
    GVMI_UNCANCELLED;

    return copy_host(dst, dst_offset_bytes, IN, (void *)(uintptr_t)src, len_bytes, true, NULL);
}

gvm_status gvm_buffer_copy_in_async(gvm_buffer *dst, uint64_t dst_offset_bytes, const void *src,
                                    uint64_t len_bytes, gvm_stream stream)
{
    GVMI_UNCANCELLED;

    return copy_host(dst, dst_offset_bytes, IN, (void *)(uintptr_t)src, len_bytes, false, stream);
}

gvm_status gvm_buffer_copy_out(void *dst, gvm_buffer *src, uint64_t src_offset_bytes, uint64_t len_bytes)
{
    GVMI_UNCANCELLED;

    return copy_host(src, src_offset_bytes, OUT, dst, len_bytes, true, NULL);
}

gvm_status gvm_buffer_copy_out_async(void *dst, gvm_buffer *src, uint64_t src_offset_bytes,
                                     uint64_t len_bytes, gvm_stream stream)
{
    GVMI_UNCANCELLED;

    return copy_host(src, src_offset_bytes, OUT, dst, len_bytes, false, stream);
}

/* ---- between buffers */

/* The copy runs on the destination's device, which must be able to read the source. The driver
 * would say no more than CUDA_ERROR_INVALID_VALUE. (What cuMemAlloc gave, it copies without
 * access.) */
static gvm_status check_reach_locked(const gvm_buffer *dst, const gvm_buffer *src)
{
    if (dst->device == src->device || (!dst->vmm && !src->vmm))
        return GVM_OK;
    for (uint32_t i = 0; i < src->grant_count; i++)
        if (src->grants[i].peer == dst->device && src->grants[i].access != GVM_ACCESS_NONE)
            return GVM_OK;
    return gvm_error_set(GVM_E_INVALID,
                         "device %d cannot read the source: grant the source to it first",
                         dst->device->info.ordinal);
}

static gvm_status submit_between(place dst, place src, uint64_t len, CUstream stream)
{
    const bool same_device = dst.buffer->device == src.buffer->device;
    gvm_status status = gvmi_device_enter(dst.buffer->device);

    if (status != GVM_OK)
        return status;
    for (uint64_t run; len > 0 && status == GVM_OK; len -= run, dst.offset += run, src.offset += run) {
        CUresult result;

        run = run_len(src, run_len(dst, len));
        result = same_device
                     ? gvmi_cu->cuMemcpyDtoDAsync(address_at(dst), address_at(src), run, stream)
                     : gvmi_cu->cuMemcpyAsync(address_at(dst), address_at(src), run, stream);
        if (result != CUDA_SUCCESS)
            status = gvmi_driver_fail(result, same_device ? "cuMemcpyDtoDAsync" : "cuMemcpyAsync",
                                      "cannot copy %llu bytes", (unsigned long long)run);
    }
    gvmi_device_leave();
    return status;
}

static gvm_status check_between(place dst, place src, uint64_t len)
{
    if (!gvmi_range_within(dst.offset, len, dst.buffer->reserve_bytes) ||
        !gvmi_range_within(src.offset, len, src.buffer->reserve_bytes))
        return gvm_error_set(
            GVM_E_INVALID, "a range of %llu bytes at offset %llu or %llu leaves its reservation",
            (unsigned long long)len, (unsigned long long)dst.offset, (unsigned long long)src.offset);
    if (dst.buffer == src.buffer && dst.offset < src.offset + len && src.offset < dst.offset + len)
        return gvm_error_set(GVM_E_INVALID, "the ranges overlap");
    return GVM_OK;
}

static gvm_status begin_uses(place dst, place src, uint64_t len, gvmi_use uses[2])
{
    gvm_status status;

    uses[0] = use_of_place(dst, len);
    uses[1] = use_of_place(src, len);
    gvmi_use_begin_shared(&uses[0], &uses[1]);
    status = check_reach_locked(dst.buffer, src.buffer);
    if (status == GVM_OK)
        status = check_target_locked(dst, len);
    if (status == GVM_OK)
        status = check_range_locked(src, len);
    if (status != GVM_OK) {
        gvmi_use_end_locked(&uses[0]);
        gvmi_use_end_locked(&uses[1]);
    }
    gvmi_unlock_pair(&dst.buffer->lock, &src.buffer->lock);
    return status;
}

/* As copy_range(). */
static gvm_status copy_ranges(place dst, place src, uint64_t len, bool wait, CUstream stream)
{
    gvm_device *device = dst.buffer->device;
    gvmi_use uses[2];
    gvm_status status = begin_uses(dst, src, len, uses);

    if (status != GVM_OK)
        return status;
    if (wait)
        stream = device->stream;
    status = submit_between(dst, src, len, stream);
    if (wait)
        status = wait_for_stream(device, stream, status);
    gvmi_use_end(&uses[0]);
    gvmi_use_end(&uses[1]);
    return status;
}

static gvm_status copy_between(gvm_buffer *dst_handle, uint64_t dst_offset, gvm_buffer *src_handle,
                               uint64_t src_offset, uint64_t len, bool wait, CUstream stream)
{
    place dst = {NULL, dst_offset}, src = {NULL, src_offset};
    gvm_status status = gvmi_buffer_hold(dst_handle, &dst.buffer);

    if (status != GVM_OK)
        return status;
    status = gvmi_buffer_hold(src_handle, &src.buffer);
    if (status == GVM_OK) {
        if (len > 0)
            status = check_between(dst, src, len);
        if (status == GVM_OK && len > 0)
            status = copy_ranges(dst, src, len, wait, stream);
        gvmi_buffer_drop(src.buffer);
    }
    gvmi_buffer_drop(dst.buffer);
    return status;
}

gvm_status gvm_buffer_copy(gvm_buffer *dst, uint64_t dst_offset_bytes, gvm_buffer *src,
                           uint64_t src_offset_bytes, uint64_t len_bytes)
{
    GVMI_UNCANCELLED;

    return copy_between(dst, dst_offset_bytes, src, src_offset_bytes, len_bytes, true, NULL);
}

gvm_status gvm_buffer_copy_async(gvm_buffer *dst, uint64_t dst_offset_bytes, gvm_buffer *src,
                                 uint64_t src_offset_bytes, uint64_t len_bytes, gvm_stream stream)
{
    GVMI_UNCANCELLED;

    return copy_between(dst, dst_offset_bytes, src, src_offset_bytes, len_bytes, false, stream);
}

/* ---- filling */

static CUresult set_run(CUdeviceptr address, const void *pattern, size_t pattern_bytes,
                        uint64_t len, CUstream stream, const char **call)
{
    uint32_t word;
    uint16_t half;
    uint8_t byte;

    switch (pattern_bytes) {
    case 1:
        *call = "cuMemsetD8Async";
        memcpy(&byte, pattern, sizeof byte);
        return gvmi_cu->cuMemsetD8Async(address, byte, len, stream);
    case 2:
        *call = "cuMemsetD16Async";
        memcpy(&half, pattern, sizeof half);
        return gvmi_cu->cuMemsetD16Async(address, half, len / 2, stream);
    default:
        *call = "cuMemsetD32Async";
        memcpy(&word, pattern, sizeof word);
        return gvmi_cu->cuMemsetD32Async(address, word, len / 4, stream);
    }
}

static gvm_status submit_fill(place dst, uint64_t len, const void *pattern, size_t pattern_bytes,
                              CUstream stream)
{
    gvm_status status = gvmi_device_enter(dst.buffer->device);

    if (status != GVM_OK)
        return status;
    for (uint64_t run; len > 0 && status == GVM_OK; len -= run, dst.offset += run) {
        const char *call;
        CUresult result;

        run = run_len(dst, len);
        result = set_run(address_at(dst), pattern, pattern_bytes, run, stream, &call);
        if (result != CUDA_SUCCESS)
            status = gvmi_driver_fail(result, call, "cannot fill %llu bytes", (unsigned long long)run);
    }
    gvmi_device_leave();
    return status;
}

/* As copy_range(). */
static gvm_status fill_range(place dst, uint64_t len, const void *pattern, size_t pattern_bytes,
                             bool wait, CUstream stream)
{
    gvm_device *device = dst.buffer->device;
    gvmi_use use;
    gvm_status status = begin_place_use(dst, len, check_target_locked, &use);

    if (status != GVM_OK)
        return status;
    if (wait)
        stream = device->stream;
    status = submit_fill(dst, len, pattern, pattern_bytes, stream);
    if (wait)
        status = wait_for_stream(device, stream, status);
    gvmi_use_end(&use);
    return status;
}

static gvm_status fill_buffer(gvm_buffer *handle, uint64_t offset, uint64_t len,
                              const void *pattern, size_t pattern_bytes, bool wait, CUstream stream)
{
    gvm_buffer *buffer;
    gvm_status status = gvmi_buffer_hold(handle, &buffer);

    if (status != GVM_OK)
        return status;
    if (pattern == NULL || (pattern_bytes != 1 && pattern_bytes != 2 && pattern_bytes != 4))
        status = gvm_error_set(GVM_E_INVALID, "a fill pattern has 1, 2 or 4 bytes");
    else if (offset % pattern_bytes != 0 || len % pattern_bytes != 0)
        status = gvm_error_set(GVM_E_INVALID,
                               "offset and length must be multiples of the pattern's %zu bytes",
                               pattern_bytes);
    else if (len > 0)
        status = check_within(buffer, offset, len);
    if (status == GVM_OK && len > 0)
        status = fill_range((place){buffer, offset}, len, pattern, pattern_bytes, wait, stream);
    gvmi_buffer_drop(buffer);
    return status;
}

gvm_status gvm_buffer_fill(gvm_buffer *dst, uint64_t offset_bytes, uint64_t len_bytes,
                           const void *pattern, size_t pattern_bytes)
{
    GVMI_UNCANCELLED;

    return fill_buffer(dst, offset_bytes, len_bytes, pattern, pattern_bytes, true, NULL);
}

gvm_status gvm_buffer_fill_async(gvm_buffer *dst, uint64_t offset_bytes, uint64_t len_bytes,
                                 const void *pattern, size_t pattern_bytes, gvm_stream stream)
{
    GVMI_UNCANCELLED;

    return fill_buffer(dst, offset_bytes, len_bytes, pattern, pattern_bytes, false, stream);
}
