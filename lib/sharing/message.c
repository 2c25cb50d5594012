/* A share on its way: how a message is cut into pieces for the socket.
 *
 *     the fixed part           104 bytes, no fds
 *     the first 253 chunks     24 bytes each, their 253 fds beside the first byte
 *     the next 253 chunks      and so on
 *
 * A piece is the unit in which fds and bytes belong together, so at every moment the receiver has
 * as many fds as it has chunks. It makes room as pieces arrive, not as the fixed part promises: a
 * false count costs its sender the bytes. Nor does it read past the first 16 bytes before it
 * knows that they begin a share of a version it understands.
 */
#include "base/cancel.h"
#include "base/error.h"
#include "sharing/share.h"
#include "sharing/socket.h"

static uint32_t piece_count(const gvm_share *share, uint32_t first)
{
    const uint32_t rest = share->about.chunk_count - first;

    return rest < GVMI_FDS_MAX ? rest : GVMI_FDS_MAX;
}

static gvm_status send_all(const gvmi_socket *socket, const gvm_share *share)
{
    gvm_status status = gvmi_socket_send(socket, &share->about, sizeof share->about, NULL, 0);

    for (uint32_t i = 0, count; i < share->count && status == GVM_OK; i += count) {
        count = piece_count(share, i);
        status = gvmi_socket_send(socket, &share->chunks[i], count * sizeof share->chunks[i],
                                  &share->fds[i], count);
    }
    return status;
}

gvm_status gvm_share_send(const gvm_share *handle, int socket_fd, int timeout_ms)
{
    GVMI_UNCANCELLED;
    gvmi_socket socket;
    gvm_share *share;
    gvm_status status = gvmi_share_hold(handle, &share);

    if (status != GVM_OK)
        return status;
    status = gvmi_socket_begin(socket_fd, timeout_ms, &socket);
    if (status == GVM_OK)
        status = send_all(&socket, share);
    gvmi_share_drop(share);
    return status;
}

static gvm_status receive_descriptor(gvmi_socket *socket, gvmi_descriptor *out)
{
    char bytes[sizeof *out];
    gvm_status status = gvmi_socket_receive(socket, bytes, GVMI_DESCRIPTOR_START_BYTES, NULL, 0);

    if (status == GVM_OK)
        status = gvmi_descriptor_decode_start(bytes, GVMI_DESCRIPTOR_START_BYTES);
    if (status == GVM_OK)
        status = gvmi_socket_receive(socket, bytes + GVMI_DESCRIPTOR_START_BYTES,
                                     sizeof bytes - GVMI_DESCRIPTOR_START_BYTES, NULL, 0);
    return status == GVM_OK ? gvmi_descriptor_decode(bytes, sizeof bytes, out) : status;
}

/* Doubling, so that what a message costs here is proportional to what has come. */
static gvm_status grow_share(gvm_share *share, uint32_t count)
{
    uint32_t capacity = share->capacity > 0 ? share->capacity * 2 : GVMI_FDS_MAX;

    if (share->count + count <= share->capacity)
        return GVM_OK;
    return gvmi_share_grow(share, capacity < share->about.chunk_count ? capacity
                                                                      : share->about.chunk_count);
}

static gvm_status receive_piece(const gvmi_socket *socket, gvm_share *share, uint64_t *floor_bytes)
{
    const uint32_t first = share->count, count = piece_count(share, first);
    gvm_status status = grow_share(share, count);

    if (status == GVM_OK)
        status = gvmi_socket_receive(socket, &share->chunks[first],
                                     count * sizeof share->chunks[first], &share->fds[first], count);
    if (status != GVM_OK)
        return status;
    share->count += count; /* the fds are the share's now */
    return gvmi_descriptor_check_chunks(&share->about, &share->chunks[first], count, floor_bytes);
}

gvm_status gvm_share_receive(int socket_fd, int timeout_ms, gvm_share **out)
{
    GVMI_UNCANCELLED;
    gvmi_socket socket;
    gvm_share *share;
    uint64_t floor_bytes = 0;
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    status = gvmi_socket_begin(socket_fd, timeout_ms, &socket);
    if (status != GVM_OK)
        return status;
    status = gvmi_share_new(&share);
    if (status != GVM_OK)
        return status;
    status = receive_descriptor(&socket, &share->about);
    if (status == GVM_OK)
        socket.fds_of_message = share->about.chunk_count;
    while (status == GVM_OK && share->count < share->about.chunk_count)
        status = receive_piece(&socket, share, &floor_bytes);
    if (status != GVM_OK) {
        gvmi_share_free(share);
        return status;
    }
    return gvmi_share_publish(share, out);
}
