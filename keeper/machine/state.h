/* keeper/machine/state.h - the inside of the machine (keeper/machine/machine.h), for the files that make it up.
 *
 *   machine.c   life, events, messages, ticks
 *   clients.c   clients: coming and going
 *   settle.c    the look at what an event touched
 *   ending.c    how a client ends, and when it is made to
 *   objects.c   objects: making, opening, changing them
 *   grow.c      new chunks
 *   leases.c    requests for leases: who is next, granting
 *   snapshot.c  figures of everything, in slices
 *   report.c    figures of one object, client, device
 *   names.c     names and links
 *   openings.c  one client's use of one object
 *   balance.c   what moves though no client asks for it: lent memory that is recalled, and budgets
 *   maps.c      MAPs: clients are sent where chunks are
 *   moves.c     chunks on their way
 *   fence.c     what clients hold that were cut off
 *   shrink.c    chunks given back from the end
 *   plans.c     what the policy would move (plans.h)
 *   lend.c      memory that devices lend each other (lend.h)
 *   room.c      frames and budgets (room.h)
 *   waits.c     the queues of requests
 *   permits.c   lease states, permits, lease words
 *   users.c     accounts, and rights to objects
 *   policy.c    which objects are kept on the device
 *   actions.c   what an event leaves to be done
 *
 * Each calls only those that are below it in this list. check.c checks the invariants below; probes.h: for tracing.
 *
 * An event handler changes what it must and marks objects as needing another look; gvmi_keep_settle()
 * then looks until nothing changes any more. So no function calls itself through others.
 *
 * I1  a frame in use belongs to exactly one chunk, in the role (device or away) its tier says or
 *     as its duplicate, and is of the object's device: host frames, too, are mapped for the one
 *     device that copies them. A frame that is lent is of another device, which may lend to the
 *     object's, and away.
 * I2  used_bytes of a device, and of the host, is the sum over its frames that are not unused, and
 *     at most the configured budget (a lowered one may be exceeded until moves are over).
 * I3  an object is FROZEN iff chunks of it are on their way to other frames, or its move is ending.
 * I4  SHARED: no permit of the object allows writing. EXCLUSIVE: only its writer's allows anything.
 *     DRAINING, FROZEN: none allows anything, all are REVOKED.
 * I5  a chunk is where its `where` says: it has that frame; clean implies both, one of the host. One that was
 *     moved out keeps its device frame no longer than somebody may have that mapped.
 *     Of an untracked object that is not sealed none is clean, but while it is FROZEN.
 * I6  waits of a chunk is the number of MAPs with it that moves wait for and that were not answered by MAPPED, and
 *     unmaps of those that were not answered by UNMAPPED either.
 * I7  a user's used_bytes is the sum of chunk_bytes * chunk_count over its objects, with growth under
 *     way counted in, and of the HELD frames charged to clients of the user.
 * I8  bytes of an object <= chunk_count * chunk_bytes; every chunk below chunk_count is somewhere. Chunks
 *     wholly beyond bytes are being cut off, and the object is FROZEN.
 * I9  what is taken of a limit is what there is of it, by user and together; an account counts
 *     something or has a quota of its own.
 * I10 what a client has open, created, asked for and waits for is what its lists have; no slot below
 *     its free_slot is free.
 * I11 an object with a chunk in a frame that has writers is fenced, and none of those is below its
 *     fence_first; a fenced object is DRAINING or FROZEN, so no lease on it is granted. No clean chunk has a frame with writers, except while
 *     it is on its way.
 * I12 a frame's holders, and writers, is how many clients hold it, and hold it for writing; each of
 *     them does so once, by the hold of that frame in its pages. A free frame that is foreign is in the list of
 *     those of its object.
 * I13 the counts of an object's openers are those of its openings, by user; first_leased of a DRAINING object
 *     is one of them, or NULL; the list of MAPs has those of all openings, in the order of sending.
 * I14 a link is in the tree and in its object's list, or has ended and is in that of those; an
 *     opening is sent no chunk from its chunk_limit on.
 * I15 an object is unserved iff it is in the list of those.
 * I16 an opening with a permit, or with a lease that was granted, follows all chunks. No chunk's mark is above
 *     its object's, and no mark above the machine's (gvmi_keep_follows()).
 * I17 a place's lent_bytes are those of its frames that are lent; an object's lent_chunks are those that
 *     are in one, lent_by the same by lender, and it is in the list of borrowers iff there are any; a
 *     device's leaving_bytes and wanted_bytes are what check.c says.
 * I18 a request that awaits the end of a freeze is in the list of those, and in its object's queue behind those
 *     that do not; some object is FROZEN then.
 * I19 an object is pinned (gvmi_policy_item) iff it is in its device's list of those.
 */
#ifndef GVMI_KEEPER_MACHINE_STATE_H
#define GVMI_KEEPER_MACHINE_STATE_H

#include <gvmem/buffer.h> /* gvm_tier, limits of chunks */

#include "base/assert.h"
#include "keeper/machine/machine.h"
#include "keeper/machine/policy.h"

/* ---- leases of an object: X(state, event, next). WAIT: a lease that conflicts, or a move, is
 * wanted. REOPEN, RESUME: nobody waits any more (and nobody, or still somebody, has the write
 * permit). FREEZE: there is no lease and a move begins; THAW: it is over. GONE: the writer is. */
/* clang-format off */
#define GVMI_LEASE_TRANSITIONS(X) \
    X(SHARED, GRANT_READ, SHARED) \
    X(SHARED, WAIT, DRAINING) \
    X(EXCLUSIVE, WAIT, DRAINING) \
    X(EXCLUSIVE, GONE, SHARED) \
    X(DRAINING, GRANT_READ, SHARED) \
    X(DRAINING, GRANT_WRITE, EXCLUSIVE) \
    X(DRAINING, REOPEN, SHARED) \
    X(DRAINING, RESUME, EXCLUSIVE) \
    X(DRAINING, GONE, DRAINING) \
    X(DRAINING, FREEZE, FROZEN) \
    X(FROZEN, THAW, SHARED)
/* clang-format on */

typedef enum keep_lease_state {
    KEEP_SHARED,
    KEEP_EXCLUSIVE,
    KEEP_DRAINING,
    KEEP_FROZEN
} keep_lease_state;

typedef enum keep_lease_event {
    KEEP_GRANT_READ,
    KEEP_GRANT_WRITE,
    KEEP_WAIT,
    KEEP_REOPEN,
    KEEP_RESUME,
    KEEP_FREEZE,
    KEEP_THAW,
    KEEP_GONE,
} keep_lease_event;

#define KEEP_CLIENT_WAITS_MAX 1024   /* acquires that a client may have waiting */
#define KEEP_CLIENT_OPENINGS_MAX 16  /* of one object: what is done to it is done for each */
#define KEEP_USER_OPENINGS_MAX 512   /* likewise, by a user; not the keeper's or root */
#define KEEP_CLIENT_GROWTHS_MAX 1024 /* growths under way that a client asked for */
#define KEEP_GROWTH_JOBS_MAX 32      /* of a growth, at a time: until they run it can be given up */
#define KEEP_CLIENT_SNAPSHOTS_MAX 16 /* snapshots that a client may wait for */
#define KEEP_OPENINGS_MAX (1u << 18) /* these by all clients together */
#define KEEP_WAITS_MAX (1u << 16)
#define KEEP_LINKS_MAX (1u << 18)
#define KEEP_GROWTHS_MAX (1u << 16)
#define KEEP_SNAPSHOTS_MAX 1024u
#define KEEP_QUEUED_BYTES_MAX (512ull << 20) /* unsent messages, and snapshots that were not read */
#define KEEP_CHUNKS_MAX \
    (1u << 16)                    /* of an object: the MAPs of two such wait in a client's outbox */
#define KEEP_SERVED_MAX 256u      /* requests for leases, in an event or a turn */
#define KEEP_REQUEST_CHUNKS 256u  /* so many chunks are looked at in the time of a request */
#define KEEP_FREED_LINKS_MAX 512u /* of those that have ended, in a turn */
#define KEEP_MAP_TIMEOUTS_MAX \
    3                    /* revoke timeouts more that a client has at most where much is mapped */
#define KEEP_THAWS_MAX 8 /* that a request waits for at most, so that it has room on the device */
#define KEEP_LOOKS_MAX 65536u /* at objects and openings, for memory that can be recalled */
#define KEEP_AHEAD_JOBS_MAX 4 /* host frames being made ahead at a time */

/* ---- what users have allowances of: X(NAME, limit, set aside, what, what to do about it). What is set
 * aside is for the keeper's own user and root, and at most an eighth of the limit. m is the machine. */
/* clang-format off */
#define GVMI_ALLOWANCES(X) \
    X(CLIENTS, m->config.clients_max, 64, "connections", "close some") \
    X(OBJECTS, m->config.objects_max, 1024, "objects", "drop or close some") \
    X(OPENINGS, KEEP_OPENINGS_MAX, 8192, "openings of objects", "close some") \
    X(LINKS, KEEP_LINKS_MAX, 8192, "links", "end some") \
    X(WAITS, KEEP_WAITS_MAX, 2048, "requests that wait for a lease", "wait for some of them") \
    X(GROWTHS, KEEP_GROWTHS_MAX, 2048, "growths under way", "wait for some of them") \
    X(SNAPSHOTS, KEEP_SNAPSHOTS_MAX, 64, "snapshots to be made or read", "wait for some of them") \
    X(ADDRESSES, GVMI_OBJECT_RANGE_BYTES, 6ull << 40, "bytes of addresses", "close some objects") \
    X(QUEUED_BYTES, KEEP_QUEUED_BYTES_MAX, 32ull << 20, "bytes to be read", "read them")
/* clang-format on */

#define GVMI_ALLOWANCE_ENUMERATOR(name, limit, set_aside, what, remedy) KEEP_##name,
typedef enum keep_allowance {
    GVMI_ALLOWANCES(GVMI_ALLOWANCE_ENUMERATOR) KEEP_ALLOWANCES
} keep_allowance;
#undef GVMI_ALLOWANCE_ENUMERATOR

typedef struct keep_user keep_user;
typedef struct keep_snapshot keep_snapshot;
typedef struct keep_client keep_client;
typedef struct keep_object keep_object;
typedef struct keep_opening keep_opening;
typedef struct keep_opener keep_opener;
typedef struct keep_link keep_link;
typedef struct keep_links keep_links;
typedef struct keep_wait keep_wait;
typedef struct keep_hold keep_hold;
typedef struct keep_holds keep_holds;

/* Who may have seen a frame's bytes: those whom these let open an object. */
typedef struct keep_domain {
    uint32_t uid, gid, mode;
} keep_domain;

/* ---- frames */

typedef enum keep_frame_state {
    KEEP_FRAME_UNUSED, /* the number is free */
    KEEP_FRAME_MAKING, /* for nobody yet (made ahead) */
    KEEP_FRAME_FREE,
    KEEP_FRAME_USED,   /* by a chunk */
    KEEP_FRAME_HELD,   /* by clients alone (keep_hold): released, but counted */
    KEEP_FRAME_DROPPED /* a DROP is to be sent */
} keep_frame_state;

typedef struct keep_frame {
    gvmi_frame_spec spec;
    keep_frame_state state;
    bool seen;    /* some client was sent it: domain counts */
    bool tainted; /* it could not be written down who may have it: never to be used again */
    bool dropped; /* HELD: its DROP was sent */
    bool unsafe;  /* it could not be written down who may write it: as if it had writers for ever */
    bool lent;    /* USED: by a chunk of another device's object */
    keep_domain domain;
    keep_object *foreign; /* the object for which another user's process was sent it; NULL: none */
    uint32_t holders;     /* clients that may have it mapped, whatever they say (keep_hold) */
    uint32_t writers;     /* of them, those that may write it */
    keep_hold *holds;     /* theirs; HELD: the user of the first is charged */
    uint32_t prev, next;  /* in the list of its place's free frames, or of those to be dropped */
    uint32_t foreign_prev, foreign_next; /* FREE: in the list of those that are foreign's */
} keep_frame;

/* Where frames come from: a device, or the host. */
typedef struct keep_place {
    gvm_tier tier;
    uint32_t device;
    uint64_t budget_bytes;                       /* in force */
    uint64_t limit_bytes;                        /* configured */
    uint64_t used_bytes, free_bytes, held_bytes; /* used: all frames, with free and held ones */
    uint64_t lent_bytes; /* of a device: used by chunks of other devices' objects */
    uint32_t first_free;
} keep_place;

/* ---- chunks of an object */

typedef enum keep_op {
    KEEP_OP_NONE,
    KEEP_OP_MAKE_ROOM, /* grow: waits for a frame, of the device if it can be */
    KEEP_OP_MAKE_WAIT, /* grow: it has a frame, and its job waits for others of the growth */
    KEEP_OP_MAKE,      /* grow: its frame is being made and zeroed */
    KEEP_OP_OUT_COPY,
    KEEP_OP_OUT_MAP,
    KEEP_OP_IN_ROOM,
    KEEP_OP_IN_COPY,
    KEEP_OP_IN_MAP,
    KEEP_OP_STAY_MAP,   /* it could not come in: sent to those who wait, as it is */
    KEEP_OP_RENEW_COPY, /* to another frame of the same tier: its own has writers */
    KEEP_OP_RENEW_MAP,
    KEEP_OP_CUT, /* the object shrinks: clients are to unmap it, then its frames are free */
} keep_op;

typedef enum keep_where { KEEP_NOWHERE, KEEP_ON_DEVICE, KEEP_AWAY } keep_where;
typedef struct keep_chunk {
    uint32_t device_frame, away_frame; /* away: of the host, or lent by another device. 0: none */
    uint32_t twin_frame; /* RENEW_COPY: the frame to come; RENEW_MAP, IN_MAP: one that is left; or 0 */
    uint8_t where;       /* keep_where; NOWHERE: clients do not know it yet */
    uint8_t op;          /* keep_op */
    bool clean;          /* both frames have the same bytes */
    uint8_t lent;    /* it is AWAY, in a frame that this device lends: 1 + index; 0: it is not */
    bool make;       /* MAKE_WAIT: the frame does not exist yet */
    bool unsafe;     /* IN: the host frame had writers when the copy began */
    bool send;       /* a MAP of it is to be sent at the end of the event, or in the next turns */
    uint32_t waits;  /* unanswered MAPs of it that its move waits for */
    uint32_t unmaps; /* of them, those whose client may have what they replace */
    uint64_t stamp;
    uint64_t unmapped_mark; /* when it was last unmapped in all openings but those that keep it mapped */
} keep_chunk;

/* ---- objects */

typedef enum keep_wait_kind {
    KEEP_WAIT_READ,
    KEEP_WAIT_WRITE,
    KEEP_WAIT_SEAL,
    KEEP_WAIT_EVICT,
    KEEP_WAIT_SHRINK,
} keep_wait_kind;

struct keep_wait {
    keep_wait_kind kind;
    keep_client *client;
    keep_opening *opening; /* NULL for EVICT */
    keep_object *object;
    uint64_t request;
    int64_t since_ns, deadline_ns; /* INT64_MAX: none */
    uint64_t bytes;                /* EVICT, SHRINK */
    gvm_hint hint;
    bool considered;        /* the policy was asked */
    bool for_cpu;           /* READ, WRITE: all chunks leave the device first */
    bool demoted;           /* that was begun once */
    bool awaits_thaw;       /* in the machine's list of those: what moves may give it room */
    uint32_t thaws;         /* that it has waited for */
    uint32_t missing;       /* chunks, when others were last brought for it; 0: none were */
    keep_wait *prev, *next; /* in the object's queue */
    keep_wait *own_prev, *own_next, *thaw_prev, *thaw_next; /* in the client's and the machine's lists */
};

/* One object's growth: one at a time, the others queue. */
typedef struct keep_growth keep_growth;
struct keep_growth {
    keep_growth *next;                /* in the object's queue */
    keep_growth *own_prev, *own_next; /* in the client's list */
    keep_user *user;                  /* of the client */
    keep_client *client;              /* NULL: it left */
    uint64_t request, bytes;
    uint32_t old_count, new_count; /* of chunks */
    uint32_t left;                 /* of them not made yet */
    uint32_t making, waiting;      /* of those, with a job, and MAKE_WAIT */
    uint32_t next_waiting;         /* where to look for one */
    int64_t room_since_ns;         /* it has waited for room that others make; 0: it does not */
    gvm_status failure;
    gvm_status cause; /* of the job that failed; OK: it was none */
    bool started;
    keep_opening *opened_by; /* part of CREATE: the reply is OPENED, not DONE */
};

struct keep_object {
    uint64_t id;
    char name[GVM_NAME_BYTES_MAX];
    keep_domain domain; /* owner, group, mode */
    keep_user *user;    /* the owner's account */
    keep_links *links;  /* NULL: none yet */
    bool mixed;         /* the mode was changed: who has it open may not be who may open it now */
    bool kept, sealed;
    bool has_regions; /* it is not brought to a device; read leases on it last, and requests to write or to seal fail behind them */
    bool untracked;   /* who reads may write: no copy is clean once somebody may read */
    bool on_host;     /* new chunks are host memory where there is room */
    bool homed;       /* home_address is where its creator has it */
    bool proposed;    /* home_address is what was proposed: no other object's is to overlap it */
    bool fenced;      /* clients that were cut off may still write to it: no lease is granted */
    bool fence_waits; /* for room, or for their end: not to be tried again before the next look */
    bool fence_logged;      /* that was logged */
    bool foreign;           /* a process of another user was sent frames of it */
    uint32_t first_foreign; /* frame that is free, and kept for the object */
    uint32_t fence_first;   /* fenced: no chunk below it is in a frame that has writers */
    uint32_t device;
    uint32_t creator;                         /* client number; 0: gone */
    keep_object *created_prev, *created_next; /* among those of its creator */
    uint32_t generation;
    uint64_t chunk_bytes, reserve_bytes, bytes;
    uint64_t home_address; /* where processes are to have it: as proposed, or where its creator has it; 0: anywhere */
    uint32_t chunk_count;  /* made and known to clients */
    uint32_t chunk_places; /* of chunks[]: with those being made */
    keep_chunk *chunks;
    uint32_t device_chunks;    /* of chunk_count, where == KEEP_ON_DEVICE */
    uint32_t duplicate_chunks; /* of them, those that are clean */
    uint32_t clean_end;   /* of them, those whose host copy can be given up (room.c) are below it */
    uint32_t lent_chunks; /* of chunk_count, in memory that other devices lend */
    uint32_t lent_by[GVMI_DEVICES_MAX]; /* of them, by lender */
    bool in_failed; /* the last copy of one of them to its device: recalled ones go to the host until a request has one copied */
    keep_object *borrowers_prev, *borrowers_next; /* in the ring of those with lent_chunks */
    uint64_t unmapped_mark; /* the highest of its chunks, ended ones included */
    keep_object *duplicated_prev, *duplicated_next; /* while there are any */
    void *metadata;
    uint32_t metadata_bytes;
    keep_lease_state lease_state;
    keep_opening *writer; /* EXCLUSIVE, or DRAINING out of it */
    int64_t draining_since_ns;
    keep_wait *first_wait, *last_wait, *first_thaw; /* thaw: of those that await one, behind all others */
    uint32_t wait_count;
    bool unserved; /* in the list of those whose requests are served, and whose MAPs are sent, further in the next turns */
    keep_object *next_unserved;
    keep_opening *openings;
    uint32_t opening_count;
    keep_opener *openers;       /* whose openings these are */
    keep_opening *first_leased; /* DRAINING: those before it in the list have no lease; NULL: none has */

    uint32_t moving;  /* chunks with an OUT or IN */
    uint32_t leaving; /* of them, those with an OUT that have a device frame yet */
    uint32_t sending; /* chunks with send */
    uint32_t send_first,
        send_end;      /* they are within these; what an event leaves is sent in the next turns */
    bool bringing;     /* FROZEN for those who wait: what comes in is sent to them, too */
    bool bring_failed; /* a copy of a chunk to its device, since chunks were last brought */
    uint32_t jobs;     /* under way, of any kind */
    bool bare_send;    /* a MAP is to be sent, even without chunks */
    const keep_client *asker; /* whose request is answered behind the MAPs being sent; NULL: nobody */
    keep_growth *growth, *last_growth; /* the queue; its first is under way */
    uint64_t evictor; /* id of the client to be answered, once nothing is leaving any more, how much went; 0 */
    uint64_t evict_request, evict_bytes;
    bool evict_short;                  /* of host memory */
    gvm_status evict_cause;            /* of the copy that failed; OK: the host budget is full */
    uint64_t shrinker, shrink_request; /* id of the client to be answered once the object is smaller */

    gvmi_policy_item item;
    keep_object *pinned_prev, *pinned_next; /* of the device's that plans found leased (plans.h) */
    uint64_t acquires, evicted_bytes, promoted_bytes;
    uint32_t interrupted;

    bool marked; /* in the list of those to look at */
    keep_object *next_marked;
    keep_object *prev, *next; /* all objects */
};

/* A further name of an object: who opens it has its first chunks. */
struct keep_link {
    keep_links *links;
    uint32_t mode;          /* in the place of the object's */
    uint32_t chunk_limit;   /* so many of its chunks */
    keep_link *prev, *next; /* of links */
    char name[];
};

/* Those of an object, which end together. Then nobody finds them, though their names stay in the tree until
 * gvmi_machine_work() has freed them, some in each turn. */
struct keep_links {
    keep_object *object; /* NULL: they have ended */
    keep_link *first;
    uint32_t count;
    keep_links *next_ended;
};

/* The object that a policy's item is part of. */
static inline keep_object *gvmi_keep_object_of(gvmi_policy_item *item)
{
    return (keep_object *)(void *)((char *)item - offsetof(keep_object, item));
}

/* Chunks that stay: those behind them, which clients are unmapping, are being cut off. */
static inline uint32_t gvmi_keep_kept_chunks(const keep_object *object)
{
    return (uint32_t)((object->bytes + object->chunk_bytes - 1) / object->chunk_bytes);
}

/* ---- openings and clients */

/* A user's openings of one object. */
struct keep_opener {
    keep_user *user;
    uint32_t count;
    keep_opener *prev, *next;
};

typedef struct keep_pending {
    struct keep_pending *next;          /* of the opening */
    struct keep_pending *older, *newer; /* of all */
    keep_client *client;
    uint64_t serial;
    int64_t sent_ns, due_ns;
    uint64_t host_bytes; /* of host memory that it maps */
    bool awaited;        /* moves wait for it: the opening mapped the chunks before it was sent */
    bool unmapped;       /* what it replaces is released, or it replaces nothing */
    uint32_t count;
    uint32_t indexes[];
} keep_pending;

struct keep_opening {
    keep_client *client;
    keep_object *object;
    keep_opener *opener;
    uint32_t slot, flags;
    uint32_t chunk_limit; /* it is sent chunks below it alone; UINT32_MAX: it was not opened by a link */
    gvmi_lease_slot *lease;
    gvmi_permit_slot *permit;
    uint32_t granted_readers, granted_writers;
    uint32_t seen_acquires;
    bool welcomed;        /* it was sent OPENED */
    uint64_t mapped_mark; /* when it was last sent all chunks that it did not follow; 0: never */
    bool ready;           /* those MAPs are answered */
    bool addressed;       /* serial 0 is answered */
    bool broken;          /* it could not map: nothing is mapped there until a lease is asked for */
    bool anew;            /* the next MAP is the first since */
    bool behind;          /* a MAP without chunks is to be sent once the others are answered */
    uint32_t sent_generation; /* by the latest MAP */
    uint64_t sent_bytes; /* by it, or by OPENED: the client takes a smaller size for a shrink */
    keep_pending *first_pending, *last_pending;
    keep_growth *creation;     /* the growth that is part of CREATE, until that is answered */
    keep_opening *prev, *next; /* of the object */
    keep_opening *own_prev, *own_next; /* of the client */
};

/* A frame that a client may have mapped which was cut off, or is not trusted
 * (gvmi_keep_hold_closed(), gvmi_keep_hold_not_mapped()). */
struct keep_hold {
    keep_client *client; /* NULL: it does not hold the frame */
    uint32_t frame;
    bool writes;            /* it may write there */
    keep_hold *prev, *next; /* of the frame */
};

/* Those of a client, by frame: found without a walk over what others hold of the frame. */
#define KEEP_HOLDS_A_PAGE 64u
struct keep_holds {
    uint32_t count;
    keep_hold holds[KEEP_HOLDS_A_PAGE];
};

struct keep_client {
    uint32_t number;
    bool connected, greeted;
    bool restricted; /* for good: it opens links, and owns nothing */
    bool cut;        /* by the machine */
    bool cut_due;    /* to be cut at the end of the event */
    bool voided;     /* its openings are gone, though its process may be there */
    bool mapped;     /* it was sent memory */
    bool closed;     /* its socket is closed, and its process goes on */
    bool over;       /* FORGET was sent */
    gvmi_credentials who;
    keep_user *user;
    gvmi_lease_slot *leases;
    gvmi_permit_slot *permits;
    uint64_t id;          /* unlike the number, never given twice */
    keep_opening **slots; /* GVM_OBJECTS_OPEN_MAX */
    uint32_t free_slot;   /* there is none below it */
    keep_opening *openings;
    keep_object *created; /* that live */
    keep_growth *growths;
    keep_wait *waits;
    uint32_t opening_count, wait_count, growth_count;
    uint64_t committed_bytes; /* of what it created */
    uint64_t outbox_bytes;    /* counted by the server: they wait to be sent */
    /* Snapshots: requests, the first of which may be being made; bytes of the one being made, or
     * sent; snapshot_sent: it was sent and not read, and the next waits. asking: in the user's queue. */
    uint64_t snapshot_requests[KEEP_CLIENT_SNAPSHOTS_MAX], snapshot_bytes;
    uint32_t snapshot_count;
    bool snapshot_sent, asking;
    keep_client *asking_prev, *asking_next;
    int64_t left_ns;    /* when the socket closed */
    int64_t delayed_ns; /* until when the system did not let it be sent something */
    uint64_t acquires;
    keep_holds **held; /* what it may still have mapped: pages, by number of the frame; NULL: one without any */
    uint32_t held_pages, held_count;
    char reason[96];
};

/* What a user has. Accounts do not move. */
struct keep_user {
    uint32_t uid;
    bool limited;                     /* limit_bytes is its own, not the default */
    uint64_t limit_bytes, used_bytes; /* of memory */
    uint64_t held_bytes;              /* of them, in HELD frames */
    uint64_t taken[KEEP_ALLOWANCES];
    keep_user *prev, *next;                  /* all users */
    keep_snapshot *snapshot;                 /* being made */
    keep_user *next_shown;                   /* in it */
    keep_client *first_asking, *last_asking; /* for whom others are to be made */
    bool busy;                               /* there is one of these: it is in the queue */
    keep_user *busy_prev, *busy_next;
};

typedef struct keep_job {
    uint64_t id;         /* 0: the entry is free */
    keep_object *object; /* NULL: a frame made ahead */
    uint32_t chunk, frame;
    bool make; /* the frame does not exist before it */
    uint32_t next_free;
} keep_job;

typedef struct keep_action_node {
    struct keep_action_node *next;
    gvmi_action action;
} keep_action_node;

typedef struct keep_room { /* a chunk that waits for a frame */
    struct keep_room *next;
    keep_object *object;
    uint32_t chunk;
} keep_room;

typedef struct keep_device {
    keep_place place;
    gvmi_policy *policy;
    keep_object *pinned;
    keep_room *first_room, *last_room;
    uint64_t wanted_bytes;  /* of the chunks in that queue */
    uint64_t leaving_bytes; /* of its frames that chunks are about to leave: room may come */
    int64_t settled_ns; /* since when it has had so much to spare that what is on the host may come to it */
    bool recall_short; /* until the next look: not all that was wanted back could be recalled */
    uint32_t arriving; /* chunks with an IN and a frame: then their host frames can be done without */
    uint64_t evictions, promotions, evicted_bytes, promoted_bytes;
    uint64_t driver_free_bytes, driver_total_bytes;
} keep_device;

struct gvmi_machine {
    gvmi_machine_config config;
    keep_device devices[GVMI_DEVICES_MAX];
    keep_place host;
    int64_t now_ns, start_ns, next_wait_ns, next_look_ns;
    uint32_t expire_next; /* index of the client with which the look at requests that wait goes on */
    int64_t later_wait_ns;    /* next_wait_ns after it, as far as it got */
    bool looking;             /* a look goes on */
    keep_object *looked_next; /* with this one; NULL: it is about to end */

    keep_client **clients; /* by number - 1 */
    uint32_t client_capacity;
    keep_object *objects, *marked;
    keep_object *first_unserved, *last_unserved;
    bool look_again;      /* clients are late that this look could not end */
    uint32_t served;      /* requests that this event has served; serves_left stops at 0 */
    uint32_t serves_left; /* requests that may be served yet in this event */
    uint32_t ended;       /* what clients had that were late and end in this tick (ending.c) */
    keep_pending *oldest_map, *newest_map; /* MAPs that are not answered */
    uint64_t mapping_bytes;                /* host_bytes of all of them */
    keep_object *duplicated;               /* those with duplicate_chunks */
    keep_object *borrowers;                /* where walks of that ring begin (lend.h) */
    keep_wait *thaw_waits;                 /* those that await one */
    void *names, *links;                   /* tsearch(3) */
    keep_links *ended_links;               /* to be freed */
    uint64_t object_ids, client_ids, stamps, serials, job_ids, marks;
    uint64_t random; /* of addresses to propose */

    keep_frame *frames; /* by number - 1 */
    uint32_t frame_capacity, first_unused_frame, first_drop;
    keep_job *jobs;
    uint32_t job_capacity, first_free_job, ahead_jobs;
    uint64_t ahead_bytes; /* size of the host frames to make ahead */
    uint32_t ahead_device;

    keep_user *users;
    keep_user *first_busy, *last_busy;
    void *user_tree; /* tsearch(3) */
    uint64_t taken[KEEP_ALLOWANCES];
    uint32_t quota_count; /* users that are limited */
    keep_action_node *first_action, *last_action;
    bool cut_due;    /* some client is to be cut */
    bool expire_due; /* the event brought a request that may not wait */

    uint64_t acquires, slow_acquires, revokes, timeouts, cut_offs, interrupted, messages, faults;
};

/* ---- look-ups */

static inline keep_frame *gvmi_keep_frame(gvmi_machine *m, uint32_t number)
{
    GVM_ASSERT(number >= 1 && number <= m->frame_capacity);
    return &m->frames[number - 1];
}

static inline keep_client *gvmi_keep_client(gvmi_machine *m, uint32_t number)
{
    return number >= 1 && number <= m->client_capacity ? m->clients[number - 1] : NULL;
}

/* The same by id; NULL: it is gone. */
static inline keep_client *gvmi_keep_client_of(gvmi_machine *m, uint64_t id)
{
    keep_client *client = gvmi_keep_client(m, (uint32_t)id);

    return client != NULL && client->id == id ? client : NULL;
}

/* What the client holds of the frame; NULL: nothing. */
static inline keep_hold *gvmi_keep_find_hold(const keep_client *client, uint32_t frame)
{
    const uint32_t page = (frame - 1) / KEEP_HOLDS_A_PAGE, place = (frame - 1) % KEEP_HOLDS_A_PAGE;
    keep_holds *holds = page < client->held_pages ? client->held[page] : NULL;

    return holds != NULL && holds->holds[place].client != NULL ? &holds->holds[place] : NULL;
}

/* What the opening may have of the object: how many chunks, and bytes. */
static inline uint32_t gvmi_keep_opened_chunks(const keep_opening *opening)
{
    const uint32_t chunks = opening->object->chunk_count;

    return chunks < opening->chunk_limit ? chunks : opening->chunk_limit;
}

static inline uint64_t gvmi_keep_opened_bytes(const keep_opening *opening, uint64_t bytes)
{
    const uint64_t limit = opening->chunk_limit * opening->object->chunk_bytes;

    return bytes < limit ? bytes : limit;
}

/* An opening follows a chunk from the acquire that mapped it until the chunk is evicted: meanwhile it is sent each
 * new place of it. One with GVM_OPEN_MAPPED follows all chunks from the beginning to the end. */
static inline bool gvmi_keep_follows(const keep_opening *opening, const keep_chunk *chunk)
{
    return opening->mapped_mark > chunk->unmapped_mark;
}

/* Chunks beyond a link's limit count too: when one of them is evicted, the next lease of the link's opening is
 * asked of the keeper, which then sends nothing. */
static inline bool gvmi_keep_follows_all(const keep_opening *opening)
{
    return opening->mapped_mark > opening->object->unmapped_mark;
}

/* ---- actions.c */
/* The object is looked at when the event is settled. */
void gvmi_keep_mark(gvmi_machine *m, keep_object *object);
/* A MAP of the chunk is to be sent at the end of the event, or in the next turns. */
void gvmi_keep_send_chunk(gvmi_machine *m, keep_object *object, uint32_t index);
/* Requests were served: a growth counts as one for each opening of its object, too, and a walk over chunks as
 * gvmi_keep_resident() has it. */
void gvmi_keep_count_served(gvmi_machine *m, uint32_t count);
/* The object has requests that may be granted, but the event has served as many as it may. */
void gvmi_keep_serve_later(gvmi_machine *m, keep_object *object);
/* The client is cut off when the event is settled. */
void gvmi_keep_cut_later(gvmi_machine *m, keep_client *client, const char *reason);
/* The same, for breaking the protocol. */
void gvmi_keep_violated(gvmi_machine *m, keep_client *client, const char *how);
bool gvmi_keep_act(gvmi_machine *m, const gvmi_action *action);
void gvmi_keep_free_actions(gvmi_machine *m);
/* A message to a client; false: no memory, and the client will be cut. frames may be NULL. */
bool gvmi_keep_send(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message,
                    const uint32_t *frames);
void gvmi_keep_reply_done(gvmi_machine *m, keep_client *client, uint64_t request, uint64_t value);
void gvmi_keep_reply_failed(gvmi_machine *m, keep_client *client, uint64_t request, gvm_status status,
                            const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Starts a job on a chunk (object NULL: none); false: no memory. */
bool gvmi_keep_start_job(gvmi_machine *m, gvmi_action_kind kind, keep_object *object,
                         uint32_t chunk, uint32_t to, uint32_t from, bool make);
/* It is over. False: there is no such job. */
bool gvmi_keep_end_job(gvmi_machine *m, uint64_t id, keep_job *out);
/* Why a job failed, and what to do. */
const char *gvmi_keep_job_failure_text(gvm_status status);

/* ---- users.c */
/* A user's account, made if it is new; NULL: no memory. One that is found to count nothing ends with
 * gvmi_keep_end_user(), which leaves others alone. */
keep_user *gvmi_keep_user(gvmi_machine *m, uint32_t uid);
void gvmi_keep_end_user(gvmi_machine *m, keep_user *user);
void gvmi_keep_free_users(gvmi_machine *m);
/* Memory: may so much more be charged? The last discharge may end the account. */
bool gvmi_keep_has_quota(const gvmi_machine *m, const keep_user *user, uint64_t bytes);
void gvmi_keep_charge(keep_user *user, uint64_t bytes);
void gvmi_keep_discharge(gvmi_machine *m, keep_user *user, uint64_t bytes);
/* Processes of the user hold more than its quota: it gets no leases for writing, and opens nothing, as each that
 * is cut off then costs another copy. */
bool gvmi_keep_holds_too_much(const gvmi_machine *m, const keep_user *user);
void gvmi_keep_reply_holds(gvmi_machine *m, keep_client *client, uint64_t request);
/* Allowances: may the user take so many more? Giving back may end the account. */
bool gvmi_keep_may_take(const gvmi_machine *m, const keep_user *user, keep_allowance allowance,
                        uint64_t count);
void gvmi_keep_take(gvmi_machine *m, keep_user *user, keep_allowance allowance, uint64_t count);
void gvmi_keep_give(gvmi_machine *m, keep_user *user, keep_allowance allowance, uint64_t count);
/* Why it may not, and what to do. */
void gvmi_keep_refusal(const gvmi_machine *m, const keep_user *user, keep_allowance allowance,
                       char text[GVMI_WIRE_TEXT_BYTES]);
/* The same, as the reply. */
void gvmi_keep_reply_allowance(gvmi_machine *m, keep_client *client, uint64_t request,
                               keep_allowance allowance);
/* Of addresses: others may have them. */
void gvmi_keep_end_proposal(gvmi_machine *m, keep_object *object);
bool gvmi_keep_is_admin(const gvmi_machine *m, const keep_client *client);
/* A user whose clients are restricted from the start. */
bool gvmi_keep_is_restricted(const gvmi_machine *m, uint32_t uid);
bool gvmi_keep_owns(const gvmi_machine *m, const keep_client *client, const keep_object *object);
bool gvmi_keep_may_read(const gvmi_machine *m, const keep_client *client, const keep_object *object);
/* Of an object with that mode; bits as for others: 4 read, 2 write. */
bool gvmi_keep_mode_allows(const gvmi_machine *m, const keep_client *client,
                           const keep_object *object, uint32_t mode, uint32_t bits);

/* ---- permits.c */
bool gvmi_keep_step(keep_lease_state state, keep_lease_event event, keep_lease_state *next);
/* Changes the object's state, where the permits are as they should be. */
void gvmi_keep_step_object(keep_object *object, keep_lease_event event);
/* Changes it, and the permits. */
void gvmi_keep_change_state(keep_object *object, keep_lease_event event);
void gvmi_keep_publish_permits(keep_object *object);
void gvmi_keep_publish_permit(const keep_opening *opening);
/* The leases of an opening, those granted and not taken yet included, as far as it may have them. */
uint32_t gvmi_keep_readers(const keep_opening *opening);
uint32_t gvmi_keep_writers(const keep_opening *opening);
/* Is there a lease on the object? */
bool gvmi_keep_leased(const keep_object *object);
/* Of a DRAINING object: is there a lease yet that was there when the permits were withdrawn? All looks
 * together cost one walk over the openings. */
bool gvmi_keep_drains(keep_object *object);
/* Reports to the policy the acquires that took the fast path, of all openings or of one. True: there were some since. */
bool gvmi_keep_sample(gvmi_machine *m, keep_object *object);
bool gvmi_keep_sample_opening(gvmi_machine *m, keep_opening *opening);
/* Takes the permits of a SHARED or EXCLUSIVE object away. */
void gvmi_keep_withdraw(gvmi_machine *m, keep_object *object);
/* Gives them back if nobody waits. */
void gvmi_keep_end_draining(keep_object *object);
/* Does it have a lease under which it may write? */
bool gvmi_keep_could_write(const keep_opening *opening);
/* Withdraws permits and, if there is no lease, freezes. False: as before. */
bool gvmi_keep_freeze(gvmi_machine *m, keep_object *object);
void gvmi_keep_end_freeze(gvmi_machine *m, keep_object *object);
void gvmi_keep_writer_gone(gvmi_machine *m, keep_opening *opening);

/* ---- waits.c */
/* Must leases for reading end before the request is granted? Those for writing must in any case. */
bool gvmi_keep_waits_for_readers(const keep_wait *wait);
/* For the CPU, while a part of the object is on the device. */
bool gvmi_keep_waits_for_host(const keep_wait *wait);
/* Queues a request; it is looked at when the event is settled. NULL: the reply with the reason is sent. */
keep_wait *gvmi_keep_new_wait(gvmi_machine *m, keep_client *client, keep_object *object,
                              keep_opening *opening, keep_wait_kind kind, uint64_t request,
                              int32_t timeout_ms);
void gvmi_keep_end_wait(gvmi_machine *m, keep_wait *wait);
/* The request is considered again when an object is FROZEN no more: there is one that is. Until then others pass it. */
void gvmi_keep_await_thaw(gvmi_machine *m, keep_wait *wait);
void gvmi_keep_end_thaw_waits(gvmi_machine *m);
void gvmi_keep_end_waits(gvmi_machine *m, keep_client *client, keep_opening *opening);
void gvmi_keep_expire_waits(gvmi_machine *m);
/* Only the client's, that may not wait at all. */
void gvmi_keep_expire_waits_of(gvmi_machine *m, const keep_client *client);

/* ---- fence.c */
/* Writes down what the opening, which is about to end, may have mapped; fences the object if the
 * client could write. */
void gvmi_keep_hold_frames(gvmi_machine *m, const keep_opening *opening);
/* CLOSE: the client says that nothing of the opening is mapped any more. It is not accepted while a lease is in
 * its lease word: then as above, but for the end of the process. */
void gvmi_keep_hold_closed(gvmi_machine *m, const keep_opening *opening);
/* The client says that it could not map, and that nothing is mapped any more. It is accepted of the processes
 * that gvmi_keep_close_is_enough() names; of others as above, but for the end of the process. */
void gvmi_keep_hold_not_mapped(gvmi_machine *m, const keep_opening *opening);
/* Is the client's word enough that it has nothing of the object mapped any more? */
bool gvmi_keep_close_is_enough(const gvmi_machine *m, const keep_client *client,
                               const keep_domain *owner);
/* What the client holds, one after the other: *next is 0 before the first. NULL: there is no more. */
keep_hold *gvmi_keep_next_hold(const keep_client *client, uint32_t *next);
/* The client holds nothing any more, or, if its process goes on, nothing of its own user's. */
void gvmi_keep_release_holds(gvmi_machine *m, keep_client *client, bool gone);
/* Looks whether the fence is still needed. */
void gvmi_keep_check_fence(gvmi_machine *m, keep_object *object);
void gvmi_keep_retry_fence(gvmi_machine *m, keep_object *object);
/* The process that may write to the object; 0: it is not known. */
int32_t gvmi_keep_fence_writer(gvmi_machine *m, keep_object *object);
/* Once: somebody waits, perhaps for ever, and only the administrator can do something. */
void gvmi_keep_log_no_room(gvmi_machine *m, keep_object *object);

/* ---- shrink.c */
/* Begins to take the chunks of a FROZEN object from count on from clients. */
void gvmi_keep_cut_chunks(gvmi_machine *m, keep_object *object, uint32_t count);
/* Nobody has them mapped any more, if there are any: frees their frames, and replies to the client
 * that asked. */
void gvmi_keep_end_cut(gvmi_machine *m, keep_object *object);
/* Gives back the places of chunks beyond those that there are. */
void gvmi_keep_drop_places(keep_object *object);

/* ---- maps.c */
/* Sends the openings that follow them the chunks of which something is to be sent, as many as the event may, and all
 * openings size and generation where those changed. The rest is for the next turns. */
void gvmi_keep_send_maps(gvmi_machine *m, keep_object *object);
/* Likewise all chunks from first on, which are new. */
void gvmi_keep_send_new(gvmi_machine *m, keep_object *object, uint32_t first);
/* Has the opening follow all chunks, and sends it those that it did not follow, as far as they are not on their way. */
void gvmi_keep_map_all(gvmi_machine *m, keep_opening *opening);
/* Likewise the openings whose requests wait while chunks come in: so they map some while others are copied. */
void gvmi_keep_map_for_waits(gvmi_machine *m, keep_object *object);
/* Sends the MAP that was put off, if there is one: once the others are answered, or before a reply
 * that depends on it. */
void gvmi_keep_catch_up(gvmi_machine *m, keep_opening *opening);
void gvmi_keep_unmapped(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_mapped(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_answer_all(gvmi_machine *m, keep_opening *opening);

/* ---- balance.c */
/* Begins to move chunks out of what the device lends, until those that wait for frames of it have room within its budget, or as many as
 * can be. */
void gvmi_keep_recall_wanted(gvmi_machine *m, keep_device *lender);
void gvmi_keep_rebalance(gvmi_machine *m);

/* ---- moves.c */
/* Does it leave lent memory, and not for its device? Then it is unmapped, as one that is evicted. */
bool gvmi_keep_leaves_lent(const gvmi_machine *m, const keep_chunk *chunk);
/* Of a FROZEN object, out of what the device lends: to its own device if there is room, or to the host. */
uint64_t gvmi_keep_recall_chunks(gvmi_machine *m, keep_object *object, const keep_device *lender,
                                 uint64_t bytes, bool *host_full);
/* Likewise all chunks that are not on the host, to the host. */
void gvmi_keep_move_to_host(gvmi_machine *m, keep_object *object, bool *host_full);
/* Likewise so many bytes of those on the host, to memory that was to spare for a while. */
void gvmi_keep_lend_chunks(gvmi_machine *m, keep_object *object, uint64_t bytes);
/* Begins to move chunks from the device of a FROZEN object. to_host: not to memory that another device lends. */
uint64_t gvmi_keep_evict_chunks(gvmi_machine *m, keep_object *object, uint64_t bytes, bool to_host,
                                bool *host_full);
/* Moves chunks of a FROZEN object out of frames that have writers, as far as there is room; returns
 * whether anything was begun. */
bool gvmi_keep_renew_chunks(gvmi_machine *m, keep_object *object);
/* Carries out a plan for a FROZEN object, or one that grows; returns whether anything was begun. */
bool gvmi_keep_bring(gvmi_machine *m, keep_object *object, const gvmi_policy_plan *plan);
void gvmi_keep_take_victims(gvmi_machine *m, const keep_object *wanting, const gvmi_policy_plan *plan);
/* The chunk has waited for a device frame, and has one; or it moves no more. */
void gvmi_keep_start_copy_in(gvmi_machine *m, keep_object *object, uint32_t chunk, uint32_t frame,
                             bool make);
/* The chunk, with an IN, does not come in. */
void gvmi_keep_stay(gvmi_machine *m, keep_object *object, keep_chunk *chunk);
/* Will the device have room for so many bytes when what leaves it has left? Will any, or host copies be of no need? */
bool gvmi_keep_device_room_comes(const keep_device *device, uint64_t bytes);
bool gvmi_keep_room_comes(const gvmi_machine *m, uint64_t bytes);
bool gvmi_keep_wait_room(gvmi_machine *m, keep_object *object, uint32_t chunk);
/* All clients that the chunk's move waits for have answered, perhaps. */
void gvmi_keep_check_answers(gvmi_machine *m, keep_object *object, uint32_t chunk);
/* The copy of a chunk has ended. made: its frame exists now. */
void gvmi_keep_copied(gvmi_machine *m, keep_object *object, uint32_t chunk, gvm_status status,
                      bool made);
void gvmi_keep_stale_copies(gvmi_machine *m, keep_object *object);
/* What an EVICT began has left the device, if there was one: that others are still to map what takes
 * its place is not the evictor's concern. */
void gvmi_keep_answer_evictor(gvmi_machine *m, keep_object *object);
/* Nothing of a FROZEN object moves any more: permits come back. */
void gvmi_keep_thaw(gvmi_machine *m, keep_object *object);
void gvmi_keep_resident(gvmi_machine *m, keep_object *object);

/* ---- openings.c */
/* The client's; NULL: there is none, and it will be cut off. */
keep_opening *gvmi_keep_opening(gvmi_machine *m, keep_client *client, uint32_t slot);
/* Of the object, by the client. */
uint32_t gvmi_keep_count_openings(const keep_client *client, const keep_object *object);
/* May the client open the object once more, or one more of any? If not, the reply with the reason is sent. */
bool gvmi_keep_check_openings_limit(gvmi_machine *m, keep_client *client, const keep_object *object,
                                    const char *name, uint64_t request);
/* May the size and the metadata be changed by the opening? If not, the reply with the reason is sent. */
bool gvmi_keep_may_change(gvmi_machine *m, keep_client *client, const keep_opening *opening,
                          uint64_t request);
bool gvmi_keep_may_open(gvmi_machine *m, keep_client *client, uint64_t request);
/* NULL: no memory. The client may open one. */
keep_opening *gvmi_keep_new_opening(gvmi_machine *m, keep_client *client, keep_object *object,
                                    uint32_t flags, uint32_t chunk_limit);
/* Sends OPENED and what is to be mapped. */
void gvmi_keep_welcome_opening(gvmi_machine *m, keep_opening *opening, uint64_t request);
/* The growth that is part of CREATE has no opening any more. */
void gvmi_keep_forget_creation(keep_opening *opening);
/* The opening ends: nothing is mapped there any more, or what is mapped is held. */
void gvmi_keep_end_opening(gvmi_machine *m, keep_opening *opening);

/* ---- names.c */
keep_object *gvmi_keep_find(const gvmi_machine *m, const char *name);
/* Only objects whose CREATE was answered. */
keep_object *gvmi_keep_find_made(const gvmi_machine *m, const char *name);
void gvmi_keep_unname(gvmi_machine *m, keep_object *object);
/* The name is free. False: no memory; then it has none. */
bool gvmi_keep_give_name(gvmi_machine *m, keep_object *object, const char *name);
/* NULL: there is none, or it has ended. */
const keep_link *gvmi_keep_find_link(const gvmi_machine *m, const char *name);
/* All links of the object, at once: they are freed in later turns. */
void gvmi_keep_end_links(gvmi_machine *m, keep_object *object);
void gvmi_keep_free_ended_links(gvmi_machine *m, uint32_t most);
void gvmi_keep_link(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_unlink(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);

/* ---- grow.c */
void gvmi_keep_grow(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
/* May the client ask for one more? If not, the reply with the reason is sent. */
bool gvmi_keep_may_grow(gvmi_machine *m, keep_client *client, uint64_t request);
/* GVM_OK: under way, the answer follows. */
gvm_status gvmi_keep_grow_to(gvmi_machine *m, keep_object *object, keep_client *client,
                             keep_opening *opened_by, uint64_t request, uint64_t bytes);
void gvmi_keep_grow_settle(gvmi_machine *m, keep_object *object);
void gvmi_keep_make_chunk(gvmi_machine *m, keep_object *object, uint32_t chunk, uint32_t frame,
                          bool make);
/* The chunk has waited, and neither place has room: the growth fails. */
void gvmi_keep_refuse_chunk(gvmi_machine *m, keep_object *object, uint32_t chunk);
/* made: the frame exists now. */
void gvmi_keep_made(gvmi_machine *m, keep_object *object, uint32_t chunk, gvm_status status, bool made);
/* The client's growths, of any object, end without a reply. */
void gvmi_keep_forget_grower(keep_client *client);
void gvmi_keep_free_growth(gvmi_machine *m, keep_growth *growth);

/* ---- leases.c */
void gvmi_keep_acquire(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_taken(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_seal(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_evict(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_shrink(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_serve(gvmi_machine *m, keep_object *object);

/* ---- report.c */
void gvmi_keep_get_info(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_list_chunks(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_describe_object(gvmi_machine *m, keep_object *object, gvmi_snapshot_object *info);
void gvmi_keep_describe_client(gvmi_machine *m, const keep_client *client, gvmi_snapshot_client *info);
void gvmi_keep_describe_user(const gvmi_machine *m, const keep_user *user, gvmi_snapshot_user *info);
/* Sums over objects stay as they are in info. */
void gvmi_keep_describe_device(const gvmi_machine *m, uint32_t index, gvmi_snapshot_device *info);
void gvmi_keep_describe_keeper(const gvmi_machine *m, gvmi_snapshot_keeper *info);

/* ---- snapshot.c */
void gvmi_keep_snapshot(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_snapshot_read(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
/* The client asks no more: what was to be made for it, and counts for it, does so no more. */
void gvmi_keep_end_snapshots(gvmi_machine *m, keep_client *client);
/* Makes a slice of the first that waits. */
void gvmi_keep_make_snapshots(gvmi_machine *m);
/* The object goes: what is being made goes on after it. */
void gvmi_keep_skip_object(gvmi_machine *m, const keep_object *object);

/* ---- objects.c */
void gvmi_keep_create(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_open(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_publish(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_drop(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_set_mode(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_set_metadata(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_get_metadata(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
void gvmi_keep_close(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);
/* Nobody can reach it any more. */
bool gvmi_keep_is_over(const keep_object *object);
void gvmi_keep_forget_creator(gvmi_machine *m, keep_client *client);
void gvmi_keep_free_object(gvmi_machine *m, keep_object *object);

/* ---- ending.c */
/* The client sends no more requests and replies. */
void gvmi_keep_silence(gvmi_machine *m, keep_client *client);
/* Its leases and openings end. may_map: its process may have memory mapped. */
void gvmi_keep_void(gvmi_machine *m, keep_client *client, bool may_map);
/* The client was voided though it broke no rule that could be reported to it. If it holds
 * something, that is reported, as it costs others memory, or a copy. */
void gvmi_keep_report_voided(gvmi_machine *m, keep_client *client, const char *why);
/* Nothing of it is mapped: the server need not watch its process any longer. */
void gvmi_keep_forget_if_over(gvmi_machine *m, keep_client *client);
void gvmi_keep_make_due_cuts(gvmi_machine *m);
void gvmi_keep_watch_clients(gvmi_machine *m);                           /* revoke timeouts */
void gvmi_keep_watch_leases(gvmi_machine *m, const keep_object *object); /* lease timeouts */

/* ---- settle.c */
void gvmi_keep_settle(gvmi_machine *m);
/* Serves a part of what gvmi_keep_serve_later() put off. */
void gvmi_keep_serve_rest(gvmi_machine *m);

#endif
