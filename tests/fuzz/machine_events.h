/* tests/fuzz/machine_events.h - the bytes that fuzz_machine takes for events.
 *
 * An input is a machine (four bytes: MiB of host budget, of host memory made ahead, of device
 * memory kept; whether leases time out), then events: a byte with the event and, in its upper half,
 * the client, and the event's arguments, a byte each. */
#ifndef FUZZ_MACHINE_EVENTS_H
#define FUZZ_MACHINE_EVENTS_H

#define MACHINE_CLIENTS 4

enum {
    EVENT_JOB = 0,    /* which, how it ends: < JOB_FAILS well */
    EVENT_TICK = 1,   /* ms */
    EVENT_BUDGET = 2, /* device, or with SET_QUOTA user; 1/8 MiB or MiB */
    EVENT_PEER = 3,   /* a client comes: its user id; goes: PEER_LEAVES, PEER_EXITS, PEER_CLOSES */
    EVENT_BYTES = 4,  /* half of how many, and so many bytes */
    EVENT_LEASE = 5,  /* slot, LEASE_... */
    EVENT_BELL = 7,
    EVENT_ANSWER = 8,   /* what the keeper has waited for longest: MAPPED or TAKEN */
    EVENT_UNMAPPED = 9, /* half an answer to the same, if it is a MAP */
    EVENT_MESSAGE = 10, /* type - 1, slot, two values; and all events above */
};

#define EVENT_CLIENT(client) ((client) << 4)

enum {
    JOB_FAILS = 224,
    SET_QUOTA = 128,
    PEER_LEAVES = 0,
    PEER_EXITS = 1,
    PEER_CLOSES = 2,   /* its socket; it lives */
    PEER_SILENT = 128, /* comes without HELLO */
    LEASE_READ = 0,
    LEASE_WRITE = 1,
    LEASE_UNREAD = 2,
    LEASE_UNWRITE = 3,
    LEASE_SCRIBBLE = 4,
    LEASE_NONE = 5,
    LEASE_RING = 64, /* and ring */
};

#endif
