/* keeper/protocol/wire.h - what clients and the keeper send to each other.
 *
 * A message is a gvmi_wire_head, a body of fixed layout by type, and for some types a tail (bytes
 * of metadata, or chunks). Sent as it lies in memory: fixed widths, no padding, the machine's byte
 * order. fds travel beside the head. Magic and version are in HELLO and WELCOME, which come first;
 * their place there and the head stay for ever, so that every version can tell any other from
 * garbage. A change of anything else here raises the version. RESTRICT may come before HELLO.
 *
 * Every request has a number, and exactly one reply with that number: the type's own, DONE, or
 * FAILED. Messages without a reply have number 0, and so has a FAILED that answers no request: it
 * refuses a connection before a request came, or is the last message before the keeper ends the
 * connection, with the reason.
 *
 * GVMI_WIRE_TABLE is the one list: X(NAME, value, from, body, tail, fds).
 *   from  C: a client sends it, K: the keeper
 *   body  the struct's name without gvmi_wire_
 *   tail  NONE, BYTES (head.tail_bytes of anything) or CHUNKS (an array of gvmi_wire_chunk)
 *   fds   how many come along; CHUNKS: one for each
 *
 * The functions here are pure: bytes in, verdict out.
 */
#ifndef GVMI_KEEPER_PROTOCOL_WIRE_H
#define GVMI_KEEPER_PROTOCOL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gvmem/client.h>

#include "base/private.h"
#include "keeper/protocol/snapshot.h"

#define GVMI_WIRE_MAGIC 0x70656b6d7667ull /* "gvmkep" */
/* Above that of the last release: 0.1.0 had 5, 0.2.0 had 7. */
#define GVMI_WIRE_VERSION 9u
#define GVMI_WIRE_CHUNKS_MAX 64u /* of one MAP */
#define GVMI_WIRE_TAIL_BYTES_MAX 4096u
#define GVMI_WIRE_TEXT_BYTES 200u

/* clang-format off */
#define GVMI_WIRE_TABLE(X) \
    X(HELLO, 1, C, hello, NONE, 0)             /* the first message -> WELCOME */ \
    X(CREATE, 2, C, create, BYTES, 0)          /* tail: metadata -> OPENED, then MAPs */ \
    X(OPEN, 3, C, open, NONE, 0)               /* -> OPENED, then MAPs */ \
    X(GROW, 4, C, grow, NONE, 0)               /* -> MAPs to all openings, DONE */ \
    X(SEAL, 5, C, seal, NONE, 0)               /* -> MAP without chunks to all, DONE */ \
    X(PUBLISH, 6, C, publish, NONE, 0)         /* -> DONE */ \
    X(DROP, 7, C, name, NONE, 0)               /* -> DONE */ \
    X(SET_MODE, 8, C, slot_value, NONE, 0)     /* value: mode -> DONE */ \
    X(SET_METADATA, 9, C, slot, BYTES, 0)      /* -> DONE */ \
    X(GET_METADATA, 10, C, slot, NONE, 0)      /* -> METADATA */ \
    X(ACQUIRE, 11, C, acquire, NONE, 0)        /* -> GRANTED */ \
    X(TAKEN, 12, C, taken, NONE, 0)            /* no reply: the lease granted is in the lease word */ \
    X(MAPPED, 13, C, mapped, NONE, 0)          /* no reply: what a MAP asked for is done, or failed */ \
    X(CLOSE, 14, C, slot, NONE, 0)             /* nothing is mapped any more -> DONE */ \
    X(SNAPSHOT, 15, C, none, NONE, 0)          /* -> SNAPSHOT_IS */ \
    X(GET_INFO, 16, C, slot, NONE, 0)          /* -> INFO */ \
    X(EVICT, 17, C, name_value, NONE, 0)       /* value: bytes at most -> DONE with bytes */ \
    X(TRIM, 18, C, trim, NONE, 0)              /* -> DONE with bytes */ \
    X(SET_QUOTA, 19, C, quota, NONE, 0)        /* -> DONE */ \
    X(BYE, 20, C, none, NONE, 0)               /* nothing is mapped any more; the socket closes */ \
    X(UNMAPPED, 21, C, unmapped, NONE, 0)      /* no reply: what a MAP replaces is released */ \
    X(SNAPSHOT_READ, 22, C, none, NONE, 0)     /* no reply: the bytes of the SNAPSHOT_IS are copied */ \
    X(LINK, 23, C, link, NONE, 0)              /* -> DONE */ \
    X(UNLINK, 24, C, name, NONE, 0)            /* -> DONE */ \
    X(SHRINK, 25, C, grow, NONE, 0)            /* -> MAPs to all openings, DONE */ \
    X(RESTRICT, 26, C, none, NONE, 0)          /* before HELLO, too: from now on links alone -> DONE */ \
    X(LIST_CHUNKS, 27, C, name_value, NONE, 0) /* value: the first one -> CHUNK_STATES */ \
    X(WELCOME, 64, K, welcome, NONE, 3)        /* fds: lease page, permit page, doorbell (eventfd) */ \
    X(OPENED, 65, K, opened, NONE, 0) \
    X(MAP, 66, K, map, CHUNKS, CHUNKS)         /* number 0; -> UNMAPPED, if need be; MAPPED */ \
    X(GRANTED, 67, K, slot, NONE, 0)           /* -> TAKEN */ \
    X(DONE, 68, K, value, NONE, 0) \
    X(FAILED, 69, K, failed, NONE, 0) \
    X(METADATA, 70, K, none, BYTES, 0) \
    X(INFO, 71, K, info, NONE, 0) \
    X(SNAPSHOT_IS, 72, K, value, NONE, 1)      /* value: bytes of the memfd -> SNAPSHOT_READ */ \
    X(CHUNK_STATES, 73, K, value, BYTES, 0)    /* value: of so many; tail: GVM_CHUNK_..., a byte each */
/* clang-format on */

#define GVMI_WIRE_ENUMERATOR(name, value, from, body, tail, fds) GVMI_WIRE_##name = value,
typedef enum gvmi_wire_type { GVMI_WIRE_TABLE(GVMI_WIRE_ENUMERATOR) } gvmi_wire_type;
#undef GVMI_WIRE_ENUMERATOR

/* Padding would carry bytes of the sender's stack. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

typedef struct gvmi_wire_head {
    uint16_t type;
    uint16_t fd_count;
    uint32_t bytes; /* of the whole message, this head included */
    uint32_t tail_bytes;
    uint32_t reserved; /* 0 */
    uint64_t request;
} gvmi_wire_head;

typedef struct gvmi_wire_chunk {
    uint32_t index;
    uint32_t tier;  /* gvm_tier; absent: to be unmapped, and no fd comes with it */
    uint64_t stamp; /* of this memory; another memory has another */
} gvmi_wire_chunk;

typedef struct gvmi_wire_none {
    uint64_t reserved; /* 0 */
} gvmi_wire_none;

typedef struct gvmi_wire_hello {
    uint64_t magic;
    uint32_t version;
    uint32_t reserved;
} gvmi_wire_hello;

typedef struct gvmi_wire_welcome {
    uint64_t magic;
    uint32_t version;
    uint32_t keeper_pid;
    uint64_t client;
    uint32_t slots; /* GVM_OBJECTS_OPEN_MAX */
    uint32_t reserved;
} gvmi_wire_welcome;

typedef struct gvmi_wire_create {
    uint8_t device_uuid[16];
    uint64_t reserve_bytes, chunk_bytes, bytes;
    uint32_t mode, flags;
    char name[GVM_NAME_BYTES_MAX];
} gvmi_wire_create;

typedef struct gvmi_wire_open {
    uint32_t flags; /* GVM_OPEN_... */
    uint32_t reserved;
    char name[GVM_NAME_BYTES_MAX];
} gvmi_wire_open;

/* The addresses that keepers propose for objects lie here, and each client keeps all of it free: between what ASan and the driver
 * take at the bottom, and where Linux loads programs and maps files at the top of 47 bits. */
#define GVMI_OBJECT_RANGE_ADDRESS (32ull << 40)
#define GVMI_OBJECT_RANGE_BYTES (48ull << 40)

/* With GVM_OPEN_MAPPED the chunks of the object come in MAPs right behind it, all with this generation; otherwise
 * before a GRANTED. */
typedef struct gvmi_wire_opened {
    uint32_t slot;
    uint32_t generation;
    uint64_t id;
    uint8_t device_uuid[16];
    uint64_t reserve_bytes, chunk_bytes, bytes;
    uint64_t home_address; /* where every process is to have it, if that is free; 0: anywhere */
    uint32_t open_flags;
    uint32_t sealed;
} gvmi_wire_opened;

typedef struct gvmi_wire_slot {
    uint32_t slot;
    uint32_t reserved;
} gvmi_wire_slot;

typedef struct gvmi_wire_slot_value {
    uint32_t slot;
    uint32_t value;
} gvmi_wire_slot_value;

typedef struct gvmi_wire_grow {
    uint32_t slot;
    uint32_t reserved;
    uint64_t bytes;
} gvmi_wire_grow;

typedef struct gvmi_wire_seal {
    uint32_t slot;
    int32_t timeout_ms; /* -1: for ever */
} gvmi_wire_seal;

typedef struct gvmi_wire_publish {
    uint32_t slot;
    uint32_t flags;
    char name[GVM_NAME_BYTES_MAX];
} gvmi_wire_publish;

typedef struct gvmi_wire_link {
    uint32_t slot;
    uint32_t mode;
    uint64_t bytes;
    char name[GVM_NAME_BYTES_MAX];
} gvmi_wire_link;

typedef struct gvmi_wire_name {
    char name[GVM_NAME_BYTES_MAX];
} gvmi_wire_name;

typedef struct gvmi_wire_name_value {
    uint64_t value;
    char name[GVM_NAME_BYTES_MAX];
} gvmi_wire_name_value;

typedef struct gvmi_wire_acquire {
    uint32_t slot;
    uint32_t mode; /* gvm_lease_mode */
    uint32_t hint;
    int32_t timeout_ms; /* -1: for ever, 0: not at all */
    uint32_t flags;     /* GVM_ACQUIRE_... */
    uint32_t unused;
} gvmi_wire_acquire;

typedef struct gvmi_wire_taken {
    uint32_t slot;
    uint32_t mode;
} gvmi_wire_taken;

/* serial 0: the answer to OPENED, with the address; otherwise to the MAP of that serial. */
typedef struct gvmi_wire_mapped {
    uint32_t slot;
    uint32_t status; /* gvm_status; not GVM_OK: nothing of the object is mapped here any more */
    uint64_t serial;
    uint64_t address;
} gvmi_wire_mapped;

/* All that the chunks of this MAP take the place of is unmapped, and this process has it no more.
 * It comes before MAPPED, which may take long, and need not come: MAPPED says the same. */
typedef struct gvmi_wire_unmapped {
    uint32_t slot;
    uint32_t reserved;
    uint64_t serial;
} gvmi_wire_unmapped;

/* What to do: put the chunks at their places, instead of what is there, then take over size,
 * generation and seal. Chunks that lie wholly beyond a size that has fallen are to be unmapped. serials
 * rise. Of chunks in several MAPs the last one has the new size and generation, those before it what was sent
 * before. */
typedef struct gvmi_wire_map {
    uint32_t slot;
    uint32_t generation;
    uint64_t serial;
    uint64_t bytes;
    uint32_t sealed;
    uint32_t anew; /* the first MAP since one failed: 1 */
} gvmi_wire_map;

typedef struct gvmi_wire_trim {
    uint32_t device; /* the keeper's ordinal */
    uint32_t reserved;
    uint64_t keep_bytes;
} gvmi_wire_trim;

typedef struct gvmi_wire_quota {
    uint32_t uid;
    uint32_t reserved;
    uint64_t bytes;
} gvmi_wire_quota;

typedef struct gvmi_wire_value {
    uint64_t value;
} gvmi_wire_value;

typedef struct gvmi_wire_failed {
    uint32_t status; /* gvm_status, never GVM_OK */
    char text[GVMI_WIRE_TEXT_BYTES];
    uint32_t reserved;
} gvmi_wire_failed;

typedef struct gvmi_wire_info {
    gvmi_snapshot_object info;
} gvmi_wire_info;

#pragma GCC diagnostic pop

_Static_assert(sizeof(gvmi_wire_head) == 24, "layout of the wire");
_Static_assert(offsetof(gvmi_wire_head, request) == 16, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_chunk) == 16, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_none) == 8, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_hello) == 16, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_welcome) == 32, "layout of the wire");
_Static_assert(offsetof(gvmi_wire_welcome, version) == offsetof(gvmi_wire_hello, version),
               "what begins a connection in every version");
_Static_assert(sizeof(gvmi_wire_create) == 304, "layout of the wire");
_Static_assert(offsetof(gvmi_wire_create, name) == 48, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_open) == 264, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_opened) == 72, "layout of the wire");
_Static_assert(offsetof(gvmi_wire_opened, reserve_bytes) == 32, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_slot) == 8, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_slot_value) == 8, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_grow) == 16, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_seal) == 8, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_publish) == 264, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_link) == 272, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_name) == 256, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_name_value) == 264, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_acquire) == 24, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_taken) == 8, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_mapped) == 24, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_unmapped) == 16, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_map) == 32, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_trim) == 16, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_quota) == 16, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_value) == 8, "layout of the wire");
_Static_assert(sizeof(gvmi_wire_failed) == 8 + GVMI_WIRE_TEXT_BYTES, "layout of the wire");
/* Name, 13 members of 64 bits, 10 of 32 and 8 bytes. */
_Static_assert(sizeof(gvmi_wire_info) ==
                   GVM_NAME_BYTES_MAX + 13 * 8 + 10 * 4 + 8 + GVM_METADATA_START_BYTES,
               "layout of the wire");

#define GVMI_WIRE_MEMBER(name, value, from, body, tail, fds) gvmi_wire_##body name;
/* A whole message, as large as any. */
typedef struct gvmi_wire_message {
    gvmi_wire_head head;
    union {
        GVMI_WIRE_TABLE(GVMI_WIRE_MEMBER)
    } body;
    union {
        uint8_t bytes[GVMI_WIRE_TAIL_BYTES_MAX];
        gvmi_wire_chunk chunks[GVMI_WIRE_CHUNKS_MAX];
    } tail;
} gvmi_wire_message;
#undef GVMI_WIRE_MEMBER

/* "ACQUIRE", or "?" for a number that is no type. */
const char *gvmi_wire_name_of(uint32_t type);

/* Judges a head that came from a client (from_client) or the keeper: how many bytes and fds follow.
 * head->bytes is at most sizeof(gvmi_wire_message). HELLO and WELCOME may have the size that they
 * have in another version.
 *
 * GVM_E_FORMAT */
GVMI_API gvm_status gvmi_wire_check_head(const gvmi_wire_head *head, bool from_client);

/* A whole message from bytes as they came: head, body, tail, in out's places; judges sizes, flags,
 * names (terminated; the rest is zeros), enums, slots and chunks (rising index, tiers, no more than
 * GVMI_WIRE_CHUNKS_MAX). What a caller may get wrong, as the size of an object that it wants, is
 * the machine's to refuse. out is written on success only, its tail as far as there is one.
 *
 * GVM_E_FORMAT, GVM_E_VERSION (in HELLO and WELCOME) */
GVMI_API gvm_status gvmi_wire_decode(const void *bytes, size_t len, bool from_client,
                                     gvmi_wire_message *out);

/* The reverse: writes at most sizeof(gvmi_wire_message) bytes and returns how many. head.bytes is
 * set here; type, request, tail_bytes and fd_count are the caller's and must fit the table. */
GVMI_API size_t gvmi_wire_encode(const gvmi_wire_message *message, void *bytes);

/* A message of a type, the rest zeros. */
GVMI_API void gvmi_wire_start(gvmi_wire_message *message, gvmi_wire_type type, uint64_t request);

/* The size of a type's body; 0 for a number that is no type. */
size_t gvmi_wire_body_bytes(uint32_t type);

/* Is it a name of an object? (gvmem/client.h) GVM_E_INVALID */
gvm_status gvmi_wire_check_name(const char *name);

#endif
