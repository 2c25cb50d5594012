/* Messages that wait to be sent; see outbox.h.
 *
 * fds go beside the first byte of their message: a send that took one byte took them all (base/fds.h), so they are released then, though the rest of the message may still wait.
 *
 * I1  bytes is the sum of the entries' costs.
 * I2  only the first entry may be sent in part, and it has fds only while nothing of it is sent.
 */
#include "keeper/server/outbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/fds.h"

struct gvmi_outbox_entry {
    gvmi_outbox_entry *next;
    uint32_t len, sent; /* bytes */
    uint32_t fd_count;
    gvmi_fd **fds; /* behind the bytes */
    _Alignas(8) uint8_t bytes[];
};

static size_t fds_offset(size_t len)
{
    return (len + sizeof(gvmi_fd *) - 1) / sizeof(gvmi_fd *) * sizeof(gvmi_fd *);
}

static size_t entry_cost(size_t len, uint32_t fd_count)
{
    return sizeof(gvmi_outbox_entry) + fds_offset(len) + fd_count * sizeof(gvmi_fd *);
}

gvm_status gvmi_outbox_add(gvmi_outbox *outbox, const gvmi_wire_message *message, gvmi_fd *const *fds)
{
    uint8_t encoded[sizeof *message];
    const size_t len = gvmi_wire_encode(message, encoded);
    const uint32_t fd_count = message->head.fd_count;
    const size_t bytes = entry_cost(len, fd_count);
    gvmi_outbox_entry *entry;

    GVM_ASSERT(fd_count <= GVMI_WIRE_CHUNKS_MAX);
    if (bytes > GVMI_OUTBOX_BYTES_MAX - outbox->bytes)
        return gvm_error_set(GVM_E_LIMIT, "%zu bytes wait to be read by the client", outbox->bytes);
    entry = malloc(bytes);
    if (entry == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a message of %zu bytes", len);
    *entry = (gvmi_outbox_entry){.len = (uint32_t)len, .fd_count = fd_count};
    memcpy(entry->bytes, encoded, len);
    entry->fds = (gvmi_fd **)(void *)(entry->bytes + fds_offset(len));
    for (uint32_t i = 0; i < fd_count; i++)
        entry->fds[i] = gvmi_fd_retain(fds[i]);
    if (outbox->last != NULL)
        outbox->last->next = entry;
    else
        outbox->first = entry;
    outbox->last = entry;
    outbox->bytes += bytes;
    return GVM_OK;
}

static void release_entry_fds(gvmi_outbox_entry *entry)
{
    for (uint32_t i = 0; i < entry->fd_count; i++)
        gvmi_fd_release(entry->fds[i]);
}

static void remove_first(gvmi_outbox *outbox, size_t bytes)
{
    gvmi_outbox_entry *entry = outbox->first;

    outbox->first = entry->next;
    if (outbox->first == NULL)
        outbox->last = NULL;
    outbox->bytes -= bytes;
    free(entry);
}

static ssize_t send_some(const gvmi_outbox_entry *entry, int socket_fd)
{
    int fds[GVMI_WIRE_CHUNKS_MAX];
    ssize_t sent;

    for (uint32_t i = 0; i < entry->fd_count; i++)
        fds[i] = entry->fds[i]->fd;
    do
        sent = gvmi_fds_send(socket_fd, entry->bytes + entry->sent, entry->len - entry->sent, fds,
                             entry->fd_count, MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent;
}

static gvmi_outbox_state after_failure(int code)
{
    switch (code) {
    case EAGAIN: return GVMI_OUTBOX_BLOCKED;
    case ETOOMANYREFS: /* too many fds of this user are on their way (RLIMIT_NOFILE) */
    case ENOBUFS:
    case ENOMEM: return GVMI_OUTBOX_LATER;
    default: return GVMI_OUTBOX_BROKEN;
    }
}

gvmi_outbox_state gvmi_outbox_flush(gvmi_outbox *outbox, int socket_fd, uint32_t *fds_left)
{
    while (outbox->first != NULL) {
        gvmi_outbox_entry *entry = outbox->first;
        const size_t bytes = entry_cost(entry->len, entry->fd_count);
        ssize_t sent;

        if (entry->fd_count > *fds_left)
            return GVMI_OUTBOX_SPENT;
        sent = send_some(entry, socket_fd);
        if (sent < 0)
            return after_failure(errno);
        *fds_left -= entry->fd_count;
        entry->sent += (uint32_t)sent;
        release_entry_fds(entry);
        if (entry->sent == entry->len) {
            remove_first(outbox, bytes);
        } else {
            outbox->bytes -= bytes - entry_cost(entry->len, 0);
            entry->fd_count = 0;
        }
    }
    return GVMI_OUTBOX_EMPTY;
}

void gvmi_outbox_clear(gvmi_outbox *outbox)
{
    while (outbox->first != NULL) {
        gvmi_outbox_entry *entry = outbox->first;

        release_entry_fds(entry);
        remove_first(outbox, entry_cost(entry->len, entry->fd_count));
    }
}
