/* Moving chunks between the device and the host, at an address that does not change.
 *
 * A batch of chunks at a time: a handle in the other tier is made for each and mapped at scratch
 * addresses, the bytes are copied there, then both are unmapped and the new handles take the
 * chunks' places. Several chunks share one unmap, one set-access and one wait, which is what the
 * driver charges for; a batch is bounded so that a move needs little memory besides.
 *
 * Nothing is lost whatever fails: until the bytes are copied the old handles stay in place; from
 * the moment the old mapping is gone, the chunk is UNMAPPED with the old or the new handle, both
 * with the same bytes, and settles on the next call if it cannot at once.
 *
 * The buffer is locked only to find a batch and to exchange its handles. Making handles (0.3 s a GiB of
 * host memory) and copying go without the lock, since commits elsewhere in the buffer must not wait for
 * them; the call's exclusive use keeps the chunks as they are meanwhile. Absent chunks of the
 * range may be committed by others then: they are moved or not.
 */
#include "base/cancel.h"
#include "base/error.h"
#include "base/size.h"
#include "memory/buffer.h"
#include "memory/idle.h"

#define BATCH_BYTES (64ull << 20) /* copied between two waits: 1.2 ms of a PCIe 5 link */
#define BATCH_CHUNKS (BATCH_BYTES / GVM_CHUNK_BYTES_MIN)

/* The part of a move that is under way: chunks [first, first + count) of the buffer, all present
 * and in one other tier. */
typedef struct batch {
    gvm_buffer *buffer;
    gvm_tier to;
    uint64_t first, count, mapped;
    CUdeviceptr scratch;
    CUmemGenericAllocationHandle handles[BATCH_CHUNKS];
} batch;

/* The bytes of the batch's first count chunks. */
static uint64_t bytes_of(const batch *w, uint64_t count)
{
    return gvmi_chunks_bytes(w->buffer, w->first, w->first + count);
}

/* Of whatever owner, until the copy has written every byte of them. */
static gvmi_chunk_spec unwritten_spec(const batch *w, uint64_t i)
{
    gvmi_chunk_spec spec = gvmi_buffer_chunk_spec(w->buffer, w->first + i, w->to);

    spec.owner = GVMI_OWNER_ANY;
    return spec;
}

static gvm_status create_handles(batch *w)
{
    for (uint64_t i = 0; i < w->count; i++) {
        const gvmi_chunk_spec spec = unwritten_spec(w, i);
        gvm_status status = gvmi_chunk_create(w->buffer->device, &spec, &w->handles[i]);

        if (status != GVM_OK) {
            w->count = i; /* so many are to be released */
            return status;
        }
    }
    return GVM_OK;
}

static void release_handles(batch *w)
{
    for (uint64_t i = 0; i < w->count; i++) {
        const gvmi_chunk_spec spec = unwritten_spec(w, i);

        gvmi_chunk_release(w->buffer->device, &spec, GVMI_RELEASE_KEEP, w->handles[i]);
    }
}

static gvm_status map_scratch(batch *w)
{
    const CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, w->buffer->device->info.ordinal},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = CUDA_SUCCESS;

    for (w->mapped = 0; w->mapped < w->count; w->mapped++) {
        result = gvmi_cu->cuMemMap(w->scratch + bytes_of(w, w->mapped),
                                   gvmi_chunk_bytes(w->buffer, w->first + w->mapped), 0,
                                   w->handles[w->mapped], 0);
        if (result != CUDA_SUCCESS)
            return gvmi_buffer_fail_mapping(result, "cuMemMap");
    }
    result = gvmi_cu->cuMemSetAccess(w->scratch, bytes_of(w, w->count), &desc, 1);
    if (result != CUDA_SUCCESS)
        return gvmi_buffer_fail_mapping(result, "cuMemSetAccess");
    return GVM_OK;
}

static gvm_status unmap_scratch(batch *w)
{
    CUresult result = CUDA_SUCCESS;

    if (w->mapped > 0)
        result = gvmi_cu->cuMemUnmap(w->scratch, bytes_of(w, w->mapped));
    w->mapped = 0;
    return result == CUDA_SUCCESS
               ? GVM_OK
               : gvmi_driver_fail(result, "cuMemUnmap", "cannot unmap chunks to move");
}

static gvm_status copy_to_scratch(batch *w)
{
    const gvm_buffer *buffer = w->buffer;
    const CUdeviceptr from = gvmi_chunk_address(buffer, w->first);
    gvm_status status = gvmi_device_enter(buffer->device);
    CUresult result;

    if (status != GVM_OK)
        return status;
    result = gvmi_cu->cuMemcpyDtoDAsync(w->scratch, from, bytes_of(w, w->count),
                                        buffer->device->stream);
    if (result != CUDA_SUCCESS)
        status = gvmi_driver_fail(result, "cuMemcpyDtoDAsync", "cannot copy chunks to move");
    /* Also after a failure: whatever was submitted must be over before anything is unmapped. */
    result = gvmi_cu->cuStreamSynchronize(buffer->device->stream);
    if (result != CUDA_SUCCESS && status == GVM_OK)
        status = gvmi_driver_fail(result, "cuStreamSynchronize", "cannot copy chunks to move");
    gvmi_device_leave();
    return status;
}

/* The new handles become the chunks', the old ones are released. */
static gvm_status swap_handles_locked(batch *w)
{
    gvm_buffer *buffer = w->buffer;
    const uint64_t bytes = bytes_of(w, w->count);
    CUresult result = gvmi_cu->cuMemUnmap(gvmi_chunk_address(buffer, w->first), bytes);

    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuMemUnmap", "cannot take chunks from their addresses");
    for (uint64_t i = 0; i < w->count; i++) {
        gvmi_chunk *chunk = &buffer->chunks[w->first + i];
        const gvmi_chunk_spec spec = gvmi_buffer_chunk_spec(buffer, w->first + i,
                                                            (gvm_tier)chunk->tier);

        gvmi_chunk_release(buffer->device, &spec,
                           (chunk->flags & GVMI_CHUNK_SEEN) == 0 ? GVMI_RELEASE_KEEP : GVMI_RELEASE_NOW,
                           chunk->handle);
        *chunk = (gvmi_chunk){
            .handle = w->handles[i],
            .tier = (uint8_t)w->to,
            .flags = GVMI_CHUNK_UNMAPPED | GVMI_CHUNK_STALE,
        };
    }
    buffer->device_bytes = w->to == GVM_TIER_DEVICE ? buffer->device_bytes + bytes
                                                    : buffer->device_bytes - bytes;
    buffer->host_bytes = w->to == GVM_TIER_HOST ? buffer->host_bytes + bytes
                                                : buffer->host_bytes - bytes;
    buffer->moved_bytes += bytes;
    buffer->generation++;
    w->count = 0; /* the handles are the buffer's now */
    return GVM_OK;
}

/* The new handles get the bytes. */
static gvm_status fill_handles(batch *w)
{
    gvm_error error;
    gvm_status status = map_scratch(w);

    if (status == GVM_OK)
        status = copy_to_scratch(w);
    if (status == GVM_OK)
        return unmap_scratch(w);
    error = gvmi_error_save();
    (void)unmap_scratch(w);
    gvm_error_restore(&error);
    return status;
}

static gvm_status move_batch(batch *w)
{
    const uint64_t first = w->first, end = w->first + w->count;
    gvm_status status = create_handles(w);

    if (status == GVM_OK)
        status = fill_handles(w);
    if (status == GVM_OK) {
        gvmi_lock(&w->buffer->lock);
        status = swap_handles_locked(w);
        if (status == GVM_OK)
            status = gvmi_buffer_settle_locked(w->buffer, first, end);
        gvmi_unlock(&w->buffer->lock);
    }
    release_handles(w);
    return status;
}

/* The next chunks of [*next, end) to move, as many adjacent ones as a batch takes. False when
 * there is none left. */
static bool find_batch_locked(batch *w, uint64_t *next, uint64_t end)
{
    const gvmi_chunk *chunks = w->buffer->chunks;
    uint64_t i = *next;

    while (i < end && (chunks[i].tier == GVM_TIER_ABSENT || chunks[i].tier == w->to))
        i++;
    w->first = i;
    while (i < end && chunks[i].tier != GVM_TIER_ABSENT && chunks[i].tier != w->to &&
           (i == w->first || gvmi_chunks_bytes(w->buffer, w->first, i + 1) <= BATCH_BYTES))
        i++;
    w->count = i - w->first;
    *next = i;
    return w->count > 0;
}

static bool find_batch(batch *w, uint64_t *next, uint64_t end)
{
    bool found;

    gvmi_lock(&w->buffer->lock);
    found = find_batch_locked(w, next, end);
    gvmi_unlock(&w->buffer->lock);
    return found;
}

/* The chunks are in place. */
static gvm_status move_chunks(gvm_buffer *buffer, uint64_t first, uint64_t end, gvm_tier to)
{
    batch w = {.buffer = buffer, .to = to};
    const uint64_t chunk_bytes = buffer->layout.chunk_bytes;
    const uint64_t scratch_bytes = gvmi_max(chunk_bytes, BATCH_BYTES);
    CUresult result = gvmi_cu->cuMemAddressReserve(&w.scratch, scratch_bytes, 0, 0, 0);
    gvm_status status = GVM_OK;

    if (result == CUDA_ERROR_OUT_OF_MEMORY) /* of addresses; the device has nothing to do with it */
        return gvmi_driver_fail_as(GVM_E_ADDRESS, result, "cuMemAddressReserve",
                                   "no addresses are left to move chunks through");
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuMemAddressReserve",
                                "cannot reserve addresses to move chunks through");
    while (status == GVM_OK && find_batch(&w, &first, end))
        status = move_batch(&w);
    gvmi_cu->cuMemAddressFree(w.scratch, scratch_bytes);
    return status;
}

static gvm_status check_move(const gvm_buffer *buffer, gvm_tier to)
{
    if (to != GVM_TIER_DEVICE && to != GVM_TIER_HOST)
        return gvm_error_set(GVM_E_INVALID, "tier %d is neither the device nor the host", (int)to);
    if (buffer->imported)
        return gvm_error_set(GVM_E_IMPORTED, "the buffer was imported: only its owner moves it");
    if (!buffer->vmm || !buffer->device->info.host_tier)
        return gvm_error_set(GVM_E_NOTSUP, "device %d has no host tier (CUDA 12.2 or later brings it)",
                             buffer->device->info.ordinal);
    return GVM_OK;
}

static gvm_status move_range(gvm_buffer *buffer, uint64_t first, uint64_t end, gvm_tier to)
{
    gvmi_use use;
    gvm_status status;

    gvmi_use_begin_exclusive(buffer, first, end, &use);
    status = gvmi_buffer_settle_locked(buffer, first, end);
    gvmi_unlock(&buffer->lock);
    if (status == GVM_OK)
        status = move_chunks(buffer, first, end, to);
    gvmi_use_end(&use);
    return status;
}

gvm_status gvm_buffer_move(gvm_buffer *handle, uint64_t offset_bytes, uint64_t len_bytes, gvm_tier tier)
{
    GVMI_UNCANCELLED;
    gvm_buffer *buffer;
    uint64_t first, end;
    gvm_status status = gvmi_buffer_hold(handle, &buffer);

    if (status != GVM_OK)
        return status;
    status = gvmi_buffer_chunk_range(buffer, offset_bytes, len_bytes, &first, &end);
    if (status == GVM_OK)
        status = check_move(buffer, tier);
    if (status == GVM_OK) {
        gvmi_shortage shortage = {0};

        do
            status = move_range(buffer, first, end, tier);
        while (status == GVM_E_NOSPACE &&
               gvmi_idle_retry(buffer->device, gvmi_chunks_bytes(buffer, first, end), &shortage));
    }
    gvmi_buffer_drop(buffer);
    return status;
}
