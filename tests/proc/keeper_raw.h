/* tests/proc/keeper_raw.h - the keeper's protocol, spoken by hand.
 *
 * For tests of what the library never sends. A raw_client has the pages and the doorbell that came
 * with WELCOME, and maps nothing: where it answers MAP it says that all is mapped.
 *
 * Threads: one for each raw_client. Ownership: raw_end() ends what raw_begin() started, also where
 * that failed.
 */
#ifndef PROC_KEEPER_RAW_H
#define PROC_KEEPER_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "keeper/protocol/wire.h"
#include "keeper/protocol/words.h"

#define RAW_FDS_MAX 256u         /* that came and were not taken yet */
#define RAW_SEND_WAIT_MS 2000    /* for a keeper that does not read */
#define RAW_ADDRESS (1ull << 33) /* where a raw client says that it maps an object */

/* What clients may send, HELLO first. */
extern const gvmi_wire_type raw_types[];
extern const unsigned raw_type_count;

/* A connected socket, -1 with errno. */
int raw_connect(const char *path);

/* Sends all of it. False: the keeper closed, or has not read for RAW_SEND_WAIT_MS. */
bool raw_say(int fd, const void *bytes, size_t len);
bool raw_say_message(int fd, const gvmi_wire_message *message);
bool raw_say_hello(int fd);

/* bytes with count copies of a descriptor beside them; does not wait. */
bool raw_say_with_fds(int fd, const void *bytes, size_t len, int passed, unsigned count);

typedef struct raw_client {
    int fd; /* -1: none */
    int doorbell;
    gvmi_lease_slot *leases; /* GVM_OBJECTS_OPEN_MAX of each */
    const gvmi_permit_slot *permits;
    bool silent; /* answers neither OPENED nor MAP nor SNAPSHOT_IS */
    bool keeps;  /* leaves open what messages bring, until the process ends */
    uint64_t requests;
    size_t len; /* of what came and makes no whole message yet */
    unsigned fd_count;
    int fds[RAW_FDS_MAX];
    uint8_t bytes[2 * sizeof(gvmi_wire_message)];
} raw_client;

/* Connects, says HELLO, waits for WELCOME and maps the pages. */
bool raw_begin(raw_client *c, const char *path);
void raw_end(raw_client *c);

/* The next message; its descriptors are closed. False: none within the time, the keeper closed, or
 * what it sent is malformed. OPENED, MAP and SNAPSHOT_IS are answered unless the client is silent. */
bool raw_receive(raw_client *c, int timeout_ms, gvmi_wire_message *out);

/* Sends a request under a new number, and waits for the reply with that number. */
bool raw_call(raw_client *c, gvmi_wire_message *request, int timeout_ms, gvmi_wire_message *reply);

/* Takes what has come, without waiting. False: the keeper closed. */
bool raw_drain(raw_client *c);

/* Has the keeper closed the connection? */
bool raw_is_closed(raw_client *c);

#endif
