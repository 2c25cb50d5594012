/* Who may do what: sealing, and granting to peers.
 *
 * Both change what the buffer says, mark every chunk, STALE or PEERS, and settle. If the driver fails
 * half way, what the buffer said before is put back the same way; chunks that even then could not be
 * set stay marked, and the next call on the buffer settles them.
 *
 * A grant says nothing of the buffer's own device: kernels may be using the memory there, and on a
 * real device they fault while their rights change, which they would where a patch's seal has left
 * chunks writable (sharing/update.c).
 */
#include "base/assert.h"
#include "base/cancel.h"
#include "base/error.h"
#include "memory/buffer.h"

/* behind: GVMI_CHUNK_STALE or PEERS */
static gvm_status settle_all(gvm_buffer *buffer, uint8_t behind)
{
    for (uint64_t i = 0; i < buffer->chunk_count; i++)
        if (buffer->chunks[i].tier != GVM_TIER_ABSENT)
            buffer->chunks[i].flags |= behind;
    return gvmi_buffer_settle_locked(buffer, 0, buffer->chunk_count);
}

static gvm_status restore_access(gvm_buffer *buffer, uint8_t behind)
{
    gvm_error error = gvmi_error_save();
    gvm_status status = settle_all(buffer, behind);

    gvm_error_restore(&error);
    return status;
}

static gvm_status check_device_vmm(const gvm_device *device)
{
    if (device->info.vmm)
        return GVM_OK;
    return gvm_error_set(GVM_E_NOTSUP,
                         "device %d has no virtual memory management: access rights cannot be set",
                         device->info.ordinal);
}

/* ---- sealing */

static gvm_status seal_locked(gvm_buffer *buffer)
{
    gvm_status status;

    if (buffer->sealed) /* again: nothing to do but what an earlier failure may have left */
        return gvmi_buffer_settle_locked(buffer, 0, buffer->chunk_count);
    buffer->access = GVM_ACCESS_READ;
    status = settle_all(buffer, GVMI_CHUNK_STALE);
    if (status != GVM_OK) {
        buffer->access = GVM_ACCESS_READWRITE;
        (void)restore_access(buffer, GVMI_CHUNK_STALE);
        return status;
    }
    buffer->sealed = true;
    buffer->generation++;
    return GVM_OK;
}

gvm_status gvm_buffer_seal(gvm_buffer *handle)
{
    GVMI_UNCANCELLED;
    gvm_buffer *buffer;
    gvmi_use use;
    gvm_status status = gvmi_buffer_hold(handle, &buffer);

    if (status != GVM_OK)
        return status;
    gvmi_use_begin_exclusive(buffer, 0, buffer->chunk_count, &use);
    if (buffer->imported)
        status = gvm_error_set(GVM_E_IMPORTED, "the buffer was imported: only its owner seals it");
    else
        status = check_device_vmm(buffer->device);
    if (status == GVM_OK)
        status = seal_locked(buffer);
    gvmi_use_end_locked(&use);
    gvmi_unlock(&buffer->lock);
    gvmi_buffer_drop(buffer);
    return status;
}

/* ---- granting */

static uint32_t find_grant(const gvm_buffer *buffer, const gvm_device *peer)
{
    uint32_t i;

    for (i = 0; i < buffer->grant_count && buffer->grants[i].peer != peer; i++)
        ;
    return i;
}

/* The caller has a reference to peer of its own, so the list's is never the last one here. */
static gvm_status grant_buffer_locked(gvm_buffer *buffer, gvm_device *peer, gvm_access access)
{
    const uint32_t index = find_grant(buffer, peer);
    const bool fresh = index == buffer->grant_count;
    gvm_access before = GVM_ACCESS_NONE;
    gvm_status status, settled;

    if (fresh && access == GVM_ACCESS_NONE)
        return GVM_OK;
    if (fresh && buffer->grant_count == GVMI_GRANTS_MAX)
        return gvm_error_set(GVM_E_LIMIT, "a buffer can be granted to %d peers", GVMI_GRANTS_MAX);
    if (fresh) {
        gvmi_device_retain(peer);
        buffer->grants[buffer->grant_count++].peer = peer;
    } else {
        before = buffer->grants[index].access;
    }
    buffer->grants[index].access = access;
    settled = status = settle_all(buffer, GVMI_CHUNK_PEERS);
    if (status != GVM_OK) {
        buffer->grants[index].access = before;
        settled = restore_access(buffer, GVMI_CHUNK_PEERS);
    }
    /* A grant of nothing leaves the list once the driver has taken the right away everywhere. */
    if (settled == GVM_OK && buffer->grants[index].access == GVM_ACCESS_NONE) {
        buffer->grants[index] = buffer->grants[--buffer->grant_count];
        gvmi_device_release(peer);
    }
    return status;
}

static uint64_t count_host_bytes_locked(const gvm_buffer *buffer)
{
    uint64_t i = 0;

    while (i < buffer->chunk_count && buffer->chunks[i].tier == GVM_TIER_HOST)
        i++;
    return i < buffer->chunk_count ? gvmi_chunk_start(buffer, i) : buffer->reserve_bytes;
}

gvm_status gvmi_buffer_open_to_cpu(gvm_buffer *buffer, uint64_t *bytes)
{
    gvm_status status = GVM_OK;

    gvmi_lock(&buffer->lock);
    if (!buffer->open_to_cpu) {
        buffer->open_to_cpu = true;
        status = settle_all(buffer, GVMI_CHUNK_PEERS);
        if (status != GVM_OK) {
            buffer->open_to_cpu = false;
            (void)restore_access(buffer, GVMI_CHUNK_PEERS);
        }
    }
    *bytes = count_host_bytes_locked(buffer);
    gvmi_unlock(&buffer->lock);
    return status;
}

gvm_status gvmi_device_check_reach(const gvm_device *device, const gvm_device *memory)
{
    int can = 0;
    const CUresult result = gvmi_cu->cuDeviceCanAccessPeer(&can, device->cu, memory->cu);

    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuDeviceCanAccessPeer",
                                "cannot tell whether device %d reaches device %d",
                                device->info.ordinal, memory->info.ordinal);
    if (!can)
        return gvm_error_set(GVM_E_NOTSUP, "device %d cannot reach the memory of device %d",
                             device->info.ordinal, memory->info.ordinal);
    return GVM_OK;
}

gvm_status gvmi_grant_check(const gvm_device *device, const gvm_device *peer, gvm_access access)
{
    gvm_status status = check_device_vmm(device);

    if (status != GVM_OK)
        return status;
    if (peer == device)
        return gvm_error_set(GVM_E_INVALID, "the peer is the memory's own device");
    if (access != GVM_ACCESS_NONE && access != GVM_ACCESS_READ && access != GVM_ACCESS_READWRITE)
        return gvm_error_set(GVM_E_INVALID, "access %d is none of GVM_ACCESS_NONE, READ, READWRITE",
                             (int)access);
    return access == GVM_ACCESS_NONE ? GVM_OK : gvmi_device_check_reach(peer, device);
}

/* Does a peer reach all other ones that chunks of the buffer are on? */
static gvm_status check_chunk_peers_locked(const gvm_buffer *buffer, const gvm_device *peer)
{
    gvm_status status = GVM_OK;

    for (uint32_t i = 0; i < buffer->peer_count && status == GVM_OK; i++)
        if (buffer->peers[i].bytes > 0 && buffer->peers[i].device != peer)
            status = gvmi_device_check_reach(peer, buffer->peers[i].device);
    return status;
}

gvm_status gvmi_buffer_grant(gvm_buffer *handle, gvm_device *peer, gvm_access access)
{
    gvm_buffer *buffer;
    gvmi_use use;
    gvm_status status = gvmi_buffer_hold(handle, &buffer);

    if (status != GVM_OK)
        return status;
    gvmi_use_begin_exclusive(buffer, 0, buffer->chunk_count, &use);
    status = gvmi_grant_check(buffer->device, peer, access);
    if (status == GVM_OK && access != GVM_ACCESS_NONE)
        status = check_chunk_peers_locked(buffer, peer);
    if (status == GVM_OK && access == GVM_ACCESS_READWRITE)
        status = gvmi_buffer_writable_locked(buffer);
    if (status == GVM_OK)
        status = grant_buffer_locked(buffer, peer, access);
    gvmi_use_end_locked(&use);
    gvmi_unlock(&buffer->lock);
    gvmi_buffer_drop(buffer);
    return status;
}

void gvmi_buffer_add_peer(gvm_buffer *buffer, gvm_device *peer)
{
    GVM_ASSERT(buffer->grant_count < GVMI_GRANTS_MAX && find_grant(buffer, peer) == buffer->grant_count);
    gvmi_device_retain(peer);
    buffer->grants[buffer->grant_count++] = (gvmi_grant){.peer = peer, .access = GVM_ACCESS_READWRITE};
}

gvm_status gvm_buffer_grant(gvm_buffer *buffer, gvm_device *peer_handle, gvm_access access)
{
    GVMI_UNCANCELLED;
    gvm_device *peer;
    gvm_status status = gvmi_device_hold(peer_handle, &peer);

    if (status != GVM_OK)
        return status;
    status = gvmi_buffer_grant(buffer, peer, access);
    gvmi_device_release(peer);
    return status;
}
