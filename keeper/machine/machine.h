/* keeper/machine/machine.h - the keeper as a pure machine: events in, actions out.
 *
 * No I/O, no clock, no driver, no threads: the server (keeper/server/server.c) turns what happens into
 * events, and actions into system and driver calls; tests make events themselves. What the machine touches
 * besides its own memory are the lease and permit words of clients (keeper/protocol/words.h).
 *
 *     event()  ->  state changes  ->  gvmi_machine_next() until it is empty
 *
 * Names: a client is a connection; an opening is one client's use of one object; a frame is a
 * piece of memory, of one tier, one device and one size, that has one chunk of an object or
 * nothing.
 *
 * Threads: one at a time.
 */
#ifndef GVMI_KEEPER_MACHINE_MACHINE_H
#define GVMI_KEEPER_MACHINE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <gvmem/buffer.h> /* gvm_tier */

#include "keeper/protocol/wire.h"
#include "keeper/protocol/words.h"

#define GVMI_DEVICES_MAX 16
#define GVMI_GROUPS_MAX 64         /* supplementary groups looked at */
#define GVMI_GROUP_NONE UINT32_MAX /* a gid without members: rights of a group are nobody's */

typedef struct gvmi_machine gvmi_machine;

typedef struct gvmi_machine_device {
    uint8_t uuid[16];
    char name[96];
    int32_t ordinal;
    uint32_t lenders; /* devices that lend memory to this one's objects: a bit for each index */
    uint64_t budget_bytes;
} gvmi_machine_device;

typedef struct gvmi_machine_config {
    uint32_t device_count;
    gvmi_machine_device devices[GVMI_DEVICES_MAX];
    uint64_t host_budget_bytes;
    uint64_t host_ahead_bytes, device_keep_bytes;
    uint32_t lend_after_ms; /* for so long a device has had memory to spare: it is lent for what is on the host */
    uint64_t quota_bytes; /* UINT64_MAX: no limit */
    uint32_t clients_max, objects_max;
    uint32_t revoke_limit_ms, lease_limit_ms; /* 0: never, for the latter */
    bool fence_kills;     /* processes that were cut off while they could write are ended */
    bool restrict_others; /* clients of other users than it and root are restricted from the start */
    uint32_t uid;         /* the keeper's own: it may do everything, as may root */
    uint64_t pid;
    uint64_t random; /* to begin with: differs from keeper to keeper, for addresses */
    /* Called for every acquire that the policy sees; may be NULL. */
    void (*trace)(void *context, uint32_t device, uint64_t object, uint64_t bytes, uint32_t count,
                  uint32_t hint);
    void *trace_context;
    /* Asked before a client is cut off for being late: is there something of it to be read? If so it
     * has twice the time. May be NULL. */
    bool (*unread)(void *context, uint32_t client);
    void *unread_context;
} gvmi_machine_config;

typedef struct gvmi_credentials {
    uint32_t uid, gid;
    int32_t pid;
    uint32_t group_count;
    uint32_t groups[GVMI_GROUPS_MAX];
} gvmi_credentials;

/* The rule of allowances (keeper/machine/users.c): how much more somebody may take that has so much, of a limit
 * of which all together have taken so much. admin: root or the keeper's own user. */
static inline uint64_t gvmi_allowance_left(uint64_t limit, uint64_t set_aside, uint64_t taken,
                                           uint64_t has, bool admin)
{
    const uint64_t most = admin ? limit : limit - set_aside;
    const uint64_t left = taken < most ? most - taken : 0;

    return admin ? left : has < left ? left - has : 0;
}

/* ---- actions */

/* What a frame is; the number is the machine's, dense from 1 on, and used again after DROP. */
typedef struct gvmi_frame_spec {
    uint32_t frame;
    uint32_t device;
    uint32_t tier; /* gvm_tier */
    uint32_t reserved;
    uint64_t bytes;
} gvmi_frame_spec;

typedef enum gvmi_action_kind {
    GVMI_ACTION_SEND = 1, /* message to client; fds of frames[0, message.head.fd_count) beside it */
    /* bytes[0, len) at offset_bytes of the snapshot being made for client, a memfd that the server
     * makes with the first piece. message: it is over; SNAPSHOT_IS, which it goes along with, or
     * FAILED, and it is given up. */
    GVMI_ACTION_SNAPSHOT,
    GVMI_ACTION_MAKE, /* make to (zeroed), in the background -> job_done */
    GVMI_ACTION_COPY, /* make to unless made, copy from to it, in the background -> job_done */
    GVMI_ACTION_ZERO, /* fill to with zeros, in the background -> job_done */
    GVMI_ACTION_DROP, /* release to; no answer; after every action before it that names it */
    GVMI_ACTION_CUT, /* send the client the reason, and read no more from it; disconnect() must not be
                       * called for it */
    GVMI_ACTION_KILL,   /* end the client's process, if that is permitted */
    GVMI_ACTION_FORGET, /* nothing of the client is mapped: exited() is to follow */
    GVMI_ACTION_LOG, /* reason is to be logged: what happened to a client of a user, or (client 0) what only
                      * an administrator can put right */
} gvmi_action_kind;

/* Of one MAP of all chunks, unless these are many. Descriptors beyond a process's first 64 have Linux enlarge its table, which takes 6 to 23 ms where
 * it has threads; those of a MAP are closed before the next one is read. */
#define GVMI_MAP_ALL_CHUNKS_MAX 8u

typedef struct gvmi_action {
    gvmi_action_kind kind;
    uint32_t client; /* SEND, SNAPSHOT, CUT, KILL, FORGET, LOG */
    uint32_t uid;    /* LOG: whose client; MAKE, COPY, ZERO: for whom */
    uint64_t job;    /* MAKE, COPY, ZERO */
    bool make;       /* COPY: to is to be made first */
    gvmi_frame_spec to, from;
    gvmi_wire_message *message; /* SEND, SNAPSHOT (or NULL): the receiver frees it */
    uint32_t frames[GVMI_WIRE_CHUNKS_MAX];
    void *bytes; /* SNAPSHOT (or NULL): the receiver frees it */
    size_t len;
    uint64_t offset_bytes;                  /* SNAPSHOT */
    char reason[GVMI_WIRE_TEXT_BYTES + 56]; /* CUT, LOG */
} gvmi_action;

/* The device that makes, copies and zeroes: that of the target, or the one that has the host memory mapped that is copied. It
 * has what devices that lend to it, or borrow from it, have. */
static inline uint32_t gvmi_action_device(const gvmi_action *action)
{
    return action->kind == GVMI_ACTION_COPY && action->from.tier == GVM_TIER_HOST
               ? action->from.device
               : action->to.device;
}

/* Takes the oldest action out. False: there is none. */
bool gvmi_machine_next(gvmi_machine *machine, gvmi_action *out);

/* ---- life */

/* GVM_E_NOMEM */
gvm_status gvmi_machine_create(const gvmi_machine_config *config, gvmi_machine **out);
void gvmi_machine_destroy(gvmi_machine *machine);

/* ---- events. A failed allocation is reported to the client that asked, or cuts it off. */

/* Would connect() admit somebody of this user? Asked before pages are made for it.
 *
 * GVM_E_LIMIT  with a text that says why, GVM_E_NOMEM */
gvm_status gvmi_machine_admits(gvmi_machine *machine, uint32_t uid);

/* Somebody connected. The pages have GVM_OBJECTS_OPEN_MAX slots, zeros; they stay until exited().
 *
 * GVM_E_LIMIT, GVM_E_NOMEM */
gvm_status gvmi_machine_connect(gvmi_machine *machine, const gvmi_credentials *who,
                                gvmi_lease_slot *leases, gvmi_permit_slot *permits, uint32_t *client);

/* A decoded message came. */
void gvmi_machine_message(gvmi_machine *machine, uint32_t client, const gvmi_wire_message *message);

/* What came is no message: the client is cut off. */
void gvmi_machine_violation(gvmi_machine *machine, uint32_t client, const char *what);

/* The client's doorbell rang: some lease word may have become zero. */
void gvmi_machine_doorbell(gvmi_machine *machine, uint32_t client);

/* The client sends nothing more. Its process may live on, with the memory mapped. */
void gvmi_machine_disconnect(gvmi_machine *machine, uint32_t client);

/* The client's end of the socket is closed, and its process is not about to end. Of memory of its own
 * user's objects nothing is mapped there any more, once leases that it had have ended: they count
 * until exited(), at most the revoke timeout. After disconnect() or CUT, or instead. */
void gvmi_machine_closed(gvmi_machine *machine, uint32_t client);

/* The client said BYE: its library has unmapped everything. Of its openings, those for which the
 * close of its socket would be enough (of its own user's objects; all, of root's and the keeper's user's) end
 * at once, with their leases.
 * For the others the same follows as from closed(). Instead of it. */
void gvmi_machine_bye(gvmi_machine *machine, uint32_t client);

/* The client's socket was passed to another process, which greets. Before HELLO. */
void gvmi_machine_adopted(gvmi_machine *machine, uint32_t client, int32_t pid);

/* The client's process is gone, or FORGET came: it maps nothing any more. Comes once
 * for every client, after disconnect(), closed() or CUT, and makes the number free. */
void gvmi_machine_exited(gvmi_machine *machine, uint32_t client);

/* A job ended; on failure to was not made, and is unchanged if it was there before. */
void gvmi_machine_job_done(gvmi_machine *machine, uint64_t job, gvm_status status);

/* The time, which never falls: of the events that follow. */
void gvmi_machine_clock(gvmi_machine *machine, int64_t now_ns);

/* Time has passed: who waited or was waited for too long is looked for. Events that happened before are
 * to be passed in before. */
void gvmi_machine_tick(gvmi_machine *machine, int64_t now_ns);

/* Does a slice of what takes too long for one event: snapshots, links that have ended, requests for leases
 * that can be granted, many at once. To be called at the end of a turn, until there is no more. True: there is. */
bool gvmi_machine_work(gvmi_machine *machine);

/* The client will not be sent the snapshot that was made for it: the same as its SNAPSHOT_READ. Only
 * then the next is made for it. */
void gvmi_machine_snapshot_read(gvmi_machine *machine, uint32_t client);

/* The system did not let something be sent to the client: its time to answer begins anew. */
void gvmi_machine_delayed(gvmi_machine *machine, uint32_t client);

/* So many bytes wait to be sent to the client. False: its user's allowance is spent, and the client counts as
 * before. Less than before is always right. */
bool gvmi_machine_queued(gvmi_machine *machine, uint32_t client, uint64_t bytes);

/* When the machine needs the next tick, at the latest; INT64_MAX: never. */
int64_t gvmi_machine_deadline(const gvmi_machine *machine);

/* Of a device's budget, what clients hold and no object has (fence.c): the frames were dropped. */
uint64_t gvmi_machine_held_bytes(const gvmi_machine *machine, uint32_t device);

/* What the driver says of a device's memory, for figures; and how much of the budget may be used
 * just now, at most what the configuration says: other programs want memory, or gave it back. */
void gvmi_machine_driver_memory(gvmi_machine *machine, uint32_t device, uint64_t free_bytes,
                                uint64_t total_bytes, uint64_t budget_bytes);

/* GVM_E_LIMIT, GVM_E_NOMEM */
gvm_status gvmi_machine_set_quota(gvmi_machine *machine, uint32_t uid, uint64_t bytes);

/* Walks everything and checks it against the invariants in keeper/machine/state.h. */
bool gvmi_machine_check(const gvmi_machine *machine);

#endif
