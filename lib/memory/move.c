/* Moving chunks between the device, the host and peers of the device, at an address that does not change.
 *
 * A batch of chunks at a time: a handle in the other place is made for each and mapped at scratch
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
 * and in one other place. */
typedef struct batch {
    gvm_buffer *buffer;
    gvm_device *device; /* that makes the handles: the buffer's, or the peer that chunks are moved to */
    gvmi_chunk to;      /* tier and peer of chunks that have been moved */
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
    gvmi_chunk_spec spec = gvmi_buffer_chunk_spec(w->buffer, w->first + i, (gvm_tier)w->to.tier);

    spec.owner = GVMI_OWNER_ANY;
    return spec;
}

static gvm_status create_handles(batch *w)
{
    for (uint64_t i = 0; i < w->count; i++) {
        const gvmi_chunk_spec spec = unwritten_spec(w, i);
        gvm_status status = gvmi_chunk_create(w->device, &spec, &w->handles[i]);

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

        gvmi_chunk_release(w->device, &spec, GVMI_RELEASE_KEEP, w->handles[i]);
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

        gvmi_buffer_release_chunk_locked(buffer, w->first + i, GVMI_RELEASE_KEEP);
        *chunk = w->to;
        chunk->handle = w->handles[i];
        chunk->flags = GVMI_CHUNK_UNMAPPED | GVMI_CHUNK_STALE;
    }
    *gvmi_buffer_count_of(buffer, &w->to) += bytes;
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

    while (i < end && (chunks[i].tier == GVM_TIER_ABSENT || gvmi_chunks_together(&chunks[i], &w->to)))
        i++;
    w->first = i;
    while (i < end && gvmi_chunks_together(&chunks[i], &chunks[w->first]) &&
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
static gvm_status move_chunks(batch *w, uint64_t first, uint64_t end)
{
    const uint64_t scratch_bytes = gvmi_max(w->buffer->layout.chunk_bytes, BATCH_BYTES);
    CUresult result = gvmi_cu->cuMemAddressReserve(&w->scratch, scratch_bytes, 0, 0, 0);
    gvm_status status = GVM_OK;

    if (result == CUDA_ERROR_OUT_OF_MEMORY) /* of addresses; the device has nothing to do with it */
        return gvmi_driver_fail_as(GVM_E_ADDRESS, result, "cuMemAddressReserve",
                                   "no addresses are left to move chunks through");
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuMemAddressReserve",
                                "cannot reserve addresses to move chunks through");
    while (status == GVM_OK && find_batch(w, &first, end))
        status = move_batch(w);
    gvmi_cu->cuMemAddressFree(w->scratch, scratch_bytes);
    return status;
}

/* Do all devices that use the buffer reach the peer's memory? */
static gvm_status check_peer_locked(const gvm_buffer *buffer, const gvm_device *peer)
{
    gvm_status status = gvmi_device_check_reach(buffer->device, peer);

    for (uint32_t i = 0; i < buffer->grant_count && status == GVM_OK; i++)
        if (buffer->grants[i].peer != peer)
            status = gvmi_device_check_reach(buffer->grants[i].peer, peer);
    return status;
}

/* The peer's index among those of the buffer, of which it is one then. */
static gvm_status add_peer_locked(gvm_buffer *buffer, gvm_device *peer, uint8_t *index)
{
    uint32_t i = 0;

    while (i < buffer->peer_count && buffer->peers[i].device != peer)
        i++;
    if (i == GVMI_PEERS_MAX)
        return gvm_error_set(GVM_E_LIMIT, "chunks of the buffer have been on %d other peers", i);
    if (i == buffer->peer_count) {
        gvmi_device_retain(peer);
        buffer->peers[buffer->peer_count++].device = peer;
    }
    *index = (uint8_t)i;
    return GVM_OK;
}

static gvm_status check_move(const batch *w)
{
    const gvm_buffer *buffer = w->buffer;

    if (w->device == buffer->device && w->to.tier == GVM_TIER_PEER)
        return gvm_error_set(GVM_E_INVALID, "the peer is the buffer's own device");
    if (buffer->imported)
        return gvm_error_set(GVM_E_IMPORTED, "the buffer was imported: only its owner moves it");
    if (!buffer->vmm || !w->device->info.vmm)
        return gvm_error_set(GVM_E_NOTSUP, "device %d has no virtual memory management",
                             (buffer->vmm ? w->device : buffer->device)->info.ordinal);
    if (w->to.tier == GVM_TIER_HOST && !buffer->device->info.host_tier)
        return gvm_error_set(GVM_E_NOTSUP, "device %d has no host tier (CUDA 12.2 or later brings it)",
                             buffer->device->info.ordinal);
    return GVM_OK;
}

static gvm_status move_range(batch *w, uint64_t first, uint64_t end)
{
    gvm_buffer *buffer = w->buffer;
    gvm_status status = GVM_OK;
    gvmi_use use;

    gvmi_use_begin_exclusive(buffer, first, end, &use);
    if (w->to.tier == GVM_TIER_PEER) {
        status = check_peer_locked(buffer, w->device);
        if (status == GVM_OK)
            status = add_peer_locked(buffer, w->device, &w->to.peer);
    }
    if (status == GVM_OK)
        status = gvmi_buffer_settle_locked(buffer, first, end);
    gvmi_unlock(&buffer->lock);
    if (status == GVM_OK)
        status = move_chunks(w, first, end);
    gvmi_use_end(&use);
    return status;
}

/* peer: NULL where tier is not GVM_TIER_PEER */
static gvm_status move_buffer(gvm_buffer *handle, uint64_t offset_bytes, uint64_t len_bytes,
                              gvm_tier tier, gvm_device *peer)
{
    batch w = {.to = {.tier = (uint8_t)tier}};
    gvmi_shortage shortage = {0};
    uint64_t first, end;
    gvm_status status = gvmi_buffer_hold(handle, &w.buffer);

    if (status != GVM_OK)
        return status;
    w.device = peer != NULL ? peer : w.buffer->device;
    status = gvmi_buffer_chunk_range(w.buffer, offset_bytes, len_bytes, &first, &end);
    if (status == GVM_OK)
        status = check_move(&w);
    if (status == GVM_OK) {
        do
            status = move_range(&w, first, end);
        while (status == GVM_E_NOSPACE &&
               gvmi_idle_retry(w.device, gvmi_chunks_bytes(w.buffer, first, end), &shortage));
    }
    gvmi_buffer_drop(w.buffer);
    return status;
}

gvm_status gvm_buffer_move(gvm_buffer *buffer, uint64_t offset_bytes, uint64_t len_bytes, gvm_tier tier)
{
    GVMI_UNCANCELLED;

    if (tier == GVM_TIER_PEER)
        return gvm_error_set(GVM_E_INVALID, "the peer is not named: gvm_buffer_move_to_peer() does so");
    if (tier != GVM_TIER_DEVICE && tier != GVM_TIER_HOST)
        return gvm_error_set(GVM_E_INVALID, "tier %d is neither the device nor the host", (int)tier);
    return move_buffer(buffer, offset_bytes, len_bytes, tier, NULL);
}

gvm_status gvm_buffer_move_to_peer(gvm_buffer *buffer, uint64_t offset_bytes, uint64_t len_bytes,
                                   gvm_device *peer)
{
    GVMI_UNCANCELLED;
    gvm_device *held;
    gvm_status status = gvmi_device_hold(peer, &held);

    if (status != GVM_OK)
        return status;
    status = move_buffer(buffer, offset_bytes, len_bytes, GVM_TIER_PEER, held);
    gvmi_device_release(held);
    return status;
}
