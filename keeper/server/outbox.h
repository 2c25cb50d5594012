/* keeper/server/outbox.h - what is to be sent to one client, in order.
 *
 * Messages wait here while the client does not read: at most GVMI_OUTBOX_BYTES_MAX, so that a client
 * that is stopped costs the keeper little. Sending never waits.
 *
 * Threads: one at a time.
 * Ownership: an outbox has references to the fds of the messages that wait in it.
 */
#ifndef GVMI_KEEPER_SERVER_OUTBOX_H
#define GVMI_KEEPER_SERVER_OUTBOX_H

#include <stddef.h>
#include <stdint.h>

#include "keeper/protocol/wire.h"
#include "keeper/server/fd.h"

#define GVMI_OUTBOX_BYTES_MAX (4u << 20) /* unsent, with what it takes to keep them */

typedef struct gvmi_outbox_entry gvmi_outbox_entry;

/* All zeros is an empty one. */
typedef struct gvmi_outbox {
    gvmi_outbox_entry *first, *last;
    size_t bytes;
} gvmi_outbox;

typedef enum gvmi_outbox_state {
    GVMI_OUTBOX_EMPTY,   /* all is sent */
    GVMI_OUTBOX_BLOCKED, /* the socket is full: go on when it can be written */
    GVMI_OUTBOX_LATER,   /* the system is short of something: go on after a while */
    GVMI_OUTBOX_SPENT,   /* the next message has more fds than may be sent now */
    GVMI_OUTBOX_BROKEN,  /* nobody will ever read it */
} gvmi_outbox_state;

/* Appends a message with its head.fd_count fds, to each of which it takes a reference.
 *
 * GVM_E_LIMIT  it would be over GVMI_OUTBOX_BYTES_MAX
 * GVM_E_NOMEM */
gvm_status gvmi_outbox_add(gvmi_outbox *outbox, const gvmi_wire_message *message, gvmi_fd *const *fds);

/* Sends over a unix stream socket as much as goes now, with at most *fds_left fds, of which it takes off
 * those that were sent. */
gvmi_outbox_state gvmi_outbox_flush(gvmi_outbox *outbox, int socket_fd, uint32_t *fds_left);

/* Throws away what waits. */
void gvmi_outbox_clear(gvmi_outbox *outbox);

#endif
