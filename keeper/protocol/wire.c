/* Judging what comes from the other end of a connection; see wire.h.
 *
 * The table says what a type looks like; how its body is judged goes by the body's layout, in a
 * function check_BODY().
 */
#include "keeper/protocol/wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <gvmem/buffer.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/size.h"

/* ---- what the table says */

typedef enum tail_kind { TAIL_NONE, TAIL_BYTES, TAIL_CHUNKS } tail_kind;

enum {
    FROM_K = 0,
    FROM_C = 1,
    FDS_0 = 0,
    FDS_1 = 1,
    FDS_3 = 3,
    FDS_CHUNKS = 0xff, /* one for each chunk of the tail that is not absent */
};

typedef struct wire_kind wire_kind;
struct wire_kind {
    const char *name; /* NULL: no type has this number */
    gvm_status (*check)(const wire_kind *kind, const void *body);
    uint16_t body_bytes;
    uint8_t from_client;
    uint8_t tail;
    uint8_t fds;
};

/* ---- bodies */

static gvm_status fail_malformed_message(const wire_kind *kind, const char *member, uint64_t value)
{
    return gvm_error_set(GVM_E_FORMAT, "the message %s is malformed: %s is %#" PRIx64, kind->name,
                         member, value);
}

/* Returns from the function around it. */
#define WANT(object, member, condition) \
    do { \
        if (!GVM_CHECK(condition)) \
            return fail_malformed_message(kind, #member, (uint64_t)(object)->member); \
    } while (0)

#define WANT_RESERVED(object) WANT(object, reserved, (object)->reserved == 0)
#define WANT_SLOT(object) WANT(object, slot, (object)->slot < GVM_OBJECTS_OPEN_MAX)
#define WANT_FLAGS(object, member, known) \
    WANT(object, member, ((object)->member & ~(uint32_t)(known)) == 0)
#define WANT_BOOL(object, member) WANT(object, member, (object)->member <= 1)

enum {
    MODE_BITS = 0777,
    CREATE_FLAGS = GVM_OBJECT_KEEP | GVM_OBJECT_UNTRACKED | GVM_OBJECT_HOST | GVM_OBJECT_REGIONS,
    OPEN_FLAGS = GVM_OPEN_READONLY | GVM_OPEN_SAME_ADDRESS | GVM_OPEN_LINK | GVM_OPEN_MAPPED,
    PUBLISH_FLAGS = GVM_PUBLISH_REPLACE | GVM_PUBLISH_PRIVATE,
};

static bool is_status(uint32_t value)
{
#define CASE(name, value, sqlstate, text) case value:
    switch (value) {
        GVM_STATUS_TABLE(CASE)
        return true;
    default: return false;
    }
#undef CASE
}

/* Terminated, and nothing of the sender's behind the end. */
static bool is_text(const char *text, size_t capacity)
{
    size_t len = strnlen(text, capacity);

    if (len == capacity)
        return false;
    while (len < capacity && text[len] == '\0')
        len++;
    return len == capacity;
}

static gvm_status check_object_name(const wire_kind *kind, const char name[GVM_NAME_BYTES_MAX],
                                    bool may_be_empty)
{
    if (!GVM_CHECK(is_text(name, GVM_NAME_BYTES_MAX)))
        return gvm_error_set(
            GVM_E_FORMAT,
            "the message %s is malformed: its name does not end, or something is behind", kind->name);
    if (may_be_empty && name[0] == '\0')
        return GVM_OK;
    if (!GVM_CHECK(gvmi_wire_check_name(name) == GVM_OK))
        return gvm_error_set(
            GVM_E_FORMAT, "the message %s is malformed: its name is none of an object", kind->name);
    return GVM_OK;
}

static gvm_status check_none(const wire_kind *kind, const void *body)
{
    const gvmi_wire_none *b = body;

    WANT_RESERVED(b);
    return GVM_OK;
}

/* Magic and version were judged before; see check_version(). */
static gvm_status check_hello(const wire_kind *kind, const void *body)
{
    const gvmi_wire_hello *b = body;

    WANT_RESERVED(b);
    return GVM_OK;
}

static gvm_status check_welcome(const wire_kind *kind, const void *body)
{
    const gvmi_wire_welcome *b = body;

    WANT(b, slots, b->slots == GVM_OBJECTS_OPEN_MAX);
    WANT_RESERVED(b);
    return GVM_OK;
}

static gvm_status check_create(const wire_kind *kind, const void *body)
{
    const gvmi_wire_create *b = body;

    WANT_FLAGS(b, mode, MODE_BITS);
    WANT_FLAGS(b, flags, CREATE_FLAGS);
    return check_object_name(kind, b->name, true);
}

static gvm_status check_open(const wire_kind *kind, const void *body)
{
    const gvmi_wire_open *b = body;

    WANT_FLAGS(b, flags, OPEN_FLAGS);
    WANT_RESERVED(b);
    return check_object_name(kind, b->name, false);
}

static gvm_status check_opened(const wire_kind *kind, const void *body)
{
    const gvmi_wire_opened *b = body;

    WANT_SLOT(b);
    WANT(b, chunk_bytes, gvmi_is_pow2(b->chunk_bytes));
    WANT(b, chunk_bytes,
         b->chunk_bytes >= GVM_CHUNK_BYTES_MIN && b->chunk_bytes <= GVM_CHUNK_BYTES_MAX);
    WANT(b, reserve_bytes, b->reserve_bytes > 0);
    WANT(b, bytes, b->bytes <= b->reserve_bytes);
    WANT_FLAGS(b, open_flags, OPEN_FLAGS);
    WANT_BOOL(b, sealed);
    return GVM_OK;
}

static gvm_status check_slot(const wire_kind *kind, const void *body)
{
    const gvmi_wire_slot *b = body;

    WANT_SLOT(b);
    WANT_RESERVED(b);
    return GVM_OK;
}

static gvm_status check_slot_value(const wire_kind *kind, const void *body)
{
    const gvmi_wire_slot_value *b = body;

    WANT_SLOT(b);
    WANT_FLAGS(b, value, MODE_BITS); /* SET_MODE is the only type of this layout */
    return GVM_OK;
}

static gvm_status check_grow(const wire_kind *kind, const void *body)
{
    const gvmi_wire_grow *b = body;

    WANT_SLOT(b);
    WANT_RESERVED(b);
    return GVM_OK;
}

static gvm_status check_seal(const wire_kind *kind, const void *body)
{
    const gvmi_wire_seal *b = body;

    WANT_SLOT(b);
    WANT(b, timeout_ms, b->timeout_ms >= -1);
    return GVM_OK;
}

static gvm_status check_publish(const wire_kind *kind, const void *body)
{
    const gvmi_wire_publish *b = body;

    WANT_SLOT(b);
    WANT_FLAGS(b, flags, PUBLISH_FLAGS);
    return check_object_name(kind, b->name, false);
}

static gvm_status check_link(const wire_kind *kind, const void *body)
{
    const gvmi_wire_link *b = body;

    WANT_SLOT(b);
    WANT_FLAGS(b, mode, MODE_BITS);
    return check_object_name(kind, b->name, false);
}

static gvm_status check_name(const wire_kind *kind, const void *body)
{
    const gvmi_wire_name *b = body;

    return check_object_name(kind, b->name, false);
}

static gvm_status check_name_value(const wire_kind *kind, const void *body)
{
    const gvmi_wire_name_value *b = body;

    return check_object_name(kind, b->name, false);
}

static bool is_lease_mode(uint32_t mode)
{
    return mode == GVM_LEASE_READ || mode == GVM_LEASE_WRITE;
}

static gvm_status check_acquire(const wire_kind *kind, const void *body)
{
    const gvmi_wire_acquire *b = body;

    WANT_SLOT(b);
    WANT(b, mode, is_lease_mode(b->mode));
    WANT(b, hint, b->hint <= GVM_HINT_ONCE);
    WANT(b, flags, (b->flags & ~(uint32_t)GVM_ACQUIRE_CPU) == 0);
    WANT(b, timeout_ms, b->timeout_ms >= -1);
    return GVM_OK;
}

static gvm_status check_taken(const wire_kind *kind, const void *body)
{
    const gvmi_wire_taken *b = body;

    WANT_SLOT(b);
    WANT(b, mode, is_lease_mode(b->mode));
    return GVM_OK;
}

static gvm_status check_mapped(const wire_kind *kind, const void *body)
{
    const gvmi_wire_mapped *b = body;

    WANT_SLOT(b);
    WANT(b, status, is_status(b->status));
    WANT(b, address, /* others are to have the object there, too */
         b->serial != 0 || b->status != GVM_OK ||
             (b->address != 0 && b->address % GVM_CHUNK_BYTES_MIN == 0));
    return GVM_OK;
}

static gvm_status check_unmapped(const wire_kind *kind, const void *body)
{
    const gvmi_wire_unmapped *b = body;

    WANT_SLOT(b);
    WANT_RESERVED(b);
    WANT(b, serial, b->serial != 0); /* OPENED replaces nothing */
    return GVM_OK;
}

static gvm_status check_map(const wire_kind *kind, const void *body)
{
    const gvmi_wire_map *b = body;

    WANT_SLOT(b);
    WANT(b, serial, b->serial != 0); /* 0 stands for OPENED in the answer */
    WANT_BOOL(b, sealed);
    WANT_BOOL(b, anew);
    return GVM_OK;
}

static gvm_status check_trim(const wire_kind *kind, const void *body)
{
    const gvmi_wire_trim *b = body;

    WANT_RESERVED(b);
    return GVM_OK;
}

static gvm_status check_quota(const wire_kind *kind, const void *body)
{
    const gvmi_wire_quota *b = body;

    WANT_RESERVED(b);
    return GVM_OK;
}

static gvm_status check_value(const wire_kind *kind, const void *body)
{
    (void)kind;
    (void)body;
    return GVM_OK;
}

static gvm_status check_failed(const wire_kind *kind, const void *body)
{
    const gvmi_wire_failed *b = body;

    WANT(b, status, b->status != GVM_OK && is_status(b->status));
    WANT_RESERVED(b);
    if (!GVM_CHECK(is_text(b->text, sizeof b->text)))
        return gvm_error_set(
            GVM_E_FORMAT,
            "the message %s is malformed: its text does not end, or something is behind", kind->name);
    return GVM_OK;
}

static gvm_status check_info(const wire_kind *kind, const void *body)
{
    const gvmi_snapshot_object *b = &((const gvmi_wire_info *)body)->info;

    WANT(b, size_bytes, b->size_bytes <= b->reserve_bytes);
    WANT_FLAGS(b, mode, MODE_BITS);
    WANT(b, metadata_bytes, b->metadata_bytes <= GVM_METADATA_BYTES_MAX);
    WANT_BOOL(b, sealed);
    WANT_BOOL(b, kept);
    WANT_BOOL(b, moving);
    WANT_BOOL(b, untracked);
    WANT_BOOL(b, fenced);
    WANT_BOOL(b, foreign);
    for (size_t i = 0; i < sizeof b->reserved; i++)
        WANT(b, reserved[i], b->reserved[i] == 0);
    for (size_t i = b->metadata_bytes; i < sizeof b->metadata_start; i++)
        WANT(b, metadata_start[i], b->metadata_start[i] == 0);
    return check_object_name(kind, b->name, true);
}

/* ---- the table of types */

#define KIND(name, value, from, body, tail, fds) \
    [value] = {#name,       check_##body, (uint16_t)sizeof(gvmi_wire_##body), \
               FROM_##from, TAIL_##tail,  FDS_##fds},
static const wire_kind kinds[] = {GVMI_WIRE_TABLE(KIND)};
#undef KIND

#define WHOLE(name, value, from, body, tail, fds) \
    _Static_assert(sizeof(gvmi_wire_##body) % 8 == 0, "tails are aligned"); \
    _Static_assert((value) > 0 && (value) <= UINT16_MAX, "fits the head");
GVMI_WIRE_TABLE(WHOLE)
#undef WHOLE
_Static_assert(GVMI_WIRE_CHUNKS_MAX * sizeof(gvmi_wire_chunk) <= GVMI_WIRE_TAIL_BYTES_MAX,
               "any tail fits");
_Static_assert(GVM_METADATA_BYTES_MAX <= GVMI_WIRE_TAIL_BYTES_MAX, "metadata fits a tail");

static const wire_kind *kind_of(uint32_t type)
{
    if (type >= sizeof kinds / sizeof kinds[0] || kinds[type].name == NULL)
        return NULL;
    return &kinds[type];
}

const char *gvmi_wire_name_of(uint32_t type)
{
    const wire_kind *kind = kind_of(type);

    return kind == NULL ? "?" : kind->name;
}

size_t gvmi_wire_body_bytes(uint32_t type)
{
    const wire_kind *kind = kind_of(type);

    return kind == NULL ? 0 : kind->body_bytes;
}

/* ---- heads */

static bool is_greeting(uint32_t type)
{
    return type == GVMI_WIRE_HELLO || type == GVMI_WIRE_WELCOME;
}

/* May a message have this number? Requests and replies have one, the others none. */
static bool number_fits(uint32_t type, uint64_t request)
{
    switch (type) {
    case GVMI_WIRE_TAKEN:
    case GVMI_WIRE_MAPPED:
    case GVMI_WIRE_BYE:
    case GVMI_WIRE_UNMAPPED:
    case GVMI_WIRE_SNAPSHOT_READ:
    case GVMI_WIRE_MAP: return request == 0;
    case GVMI_WIRE_FAILED: return true;
    default: return request != 0;
    }
}

static gvm_status check_tail_bytes(const wire_kind *kind, const gvmi_wire_head *head)
{
    switch ((tail_kind)kind->tail) {
    case TAIL_NONE: WANT(head, tail_bytes, head->tail_bytes == 0); break;
    case TAIL_BYTES: WANT(head, tail_bytes, head->tail_bytes <= GVMI_WIRE_TAIL_BYTES_MAX); break;
    case TAIL_CHUNKS:
        WANT(head, tail_bytes, head->tail_bytes % sizeof(gvmi_wire_chunk) == 0);
        WANT(head, tail_bytes, head->tail_bytes <= GVMI_WIRE_CHUNKS_MAX * sizeof(gvmi_wire_chunk));
        break;
    }
    return GVM_OK;
}

/* The size of the whole message, tail and fds against the table. */
static gvm_status check_message_sizes(const wire_kind *kind, const gvmi_wire_head *head)
{
    const gvm_status status = check_tail_bytes(kind, head);

    if (status != GVM_OK)
        return status;
    WANT(head, bytes, head->bytes == sizeof *head + kind->body_bytes + head->tail_bytes);
    if (kind->fds == FDS_CHUNKS) /* exactly: check_wire_chunks() */
        WANT(head, fd_count, head->fd_count <= head->tail_bytes / sizeof(gvmi_wire_chunk));
    else
        WANT(head, fd_count, head->fd_count == kind->fds);
    return GVM_OK;
}

gvm_status gvmi_wire_check_head(const gvmi_wire_head *head, bool from_client)
{
    const wire_kind *kind = kind_of(head->type);

    if (!GVM_CHECK(kind != NULL))
        return gvm_error_set(GVM_E_FORMAT, "there is no message of type %u", head->type);
    if (!GVM_CHECK(kind->from_client == from_client))
        return gvm_error_set(GVM_E_FORMAT, "the message %s came from the wrong end", kind->name);
    if (!is_greeting(head->type)) {
        WANT_RESERVED(head);
        WANT(head, request, number_fits(head->type, head->request));
        return check_message_sizes(kind, head);
    }
    /* Of another version perhaps: enough to see which one, and no more than a receiver has room
     * for. decode() judges the rest once the version is known. */
    WANT(head, bytes,
         head->bytes >= sizeof *head + sizeof(gvmi_wire_hello) &&
             head->bytes <= sizeof(gvmi_wire_message));
    WANT(head, fd_count, head->fd_count == kind->fds);
    return GVM_OK;
}

/* ---- whole messages */

/* A keeper's sentence is sent to the client: it is true at both ends, and fits a short message. */
static gvm_status fail_version(bool from_client, unsigned other)
{
    char own[64];

    snprintf(own, sizeof own, "%u (gvmem %d.%d.%d)", GVMI_WIRE_VERSION, GVM_VERSION_MAJOR,
             GVM_VERSION_MINOR, GVM_VERSION_PATCH);
    if (from_client)
        return gvm_error_set(
            GVM_E_VERSION,
            "the keeper has protocol version %s, the program %u: use one release for both", own,
            other);
    return gvm_error_set(
        GVM_E_VERSION,
        "the keeper has protocol version %u, the program %s: use one release for both", other, own);
}

/* What begins a connection, and then the head by the rules of this version. body has at least
 * sizeof(gvmi_wire_hello) bytes. */
static gvm_status check_version(const wire_kind *kind, const gvmi_wire_head *head, const void *body)
{
    gvmi_wire_hello hello;

    memcpy(&hello, body, sizeof hello); /* WELCOME begins alike */
    if (!GVM_CHECK(hello.magic == GVMI_WIRE_MAGIC))
        return gvm_error_set(GVM_E_FORMAT,
                             "what answers at the socket is no keeper or no client of one");
    if (!GVM_CHECK(hello.version == GVMI_WIRE_VERSION))
        return fail_version(kind->from_client != 0, hello.version);
    WANT_RESERVED(head);
    WANT(head, request, number_fits(head->type, head->request));
    return check_message_sizes(kind, head);
}

/* bytes need not be aligned. */
static gvm_status check_wire_chunks(const wire_kind *kind, const gvmi_wire_head *head,
                                    const uint8_t *bytes)
{
    uint64_t floor = 0; /* the lowest index that the next chunk may have */
    uint32_t fds = 0;

    for (uint32_t i = 0; i < head->tail_bytes / sizeof(gvmi_wire_chunk); i++) {
        gvmi_wire_chunk chunk;

        memcpy(&chunk, bytes + i * sizeof chunk, sizeof chunk);
        WANT(&chunk, index, chunk.index >= floor);
        WANT(&chunk, tier, chunk.tier <= GVM_TIER_HOST);
        floor = (uint64_t)chunk.index + 1;
        fds += chunk.tier != GVM_TIER_ABSENT;
    }
    WANT(head, fd_count, head->fd_count == fds);
    return GVM_OK;
}

gvm_status gvmi_wire_decode(const void *bytes, size_t len, bool from_client, gvmi_wire_message *out)
{
    const uint8_t *body = (const uint8_t *)bytes + sizeof(gvmi_wire_head);
    gvmi_wire_head head;
    __typeof__(out->body) copy;
    const wire_kind *kind;
    gvm_status status;

    if (!GVM_CHECK(len >= sizeof head))
        return gvm_error_set(GVM_E_FORMAT, "the message is cut short: %zu bytes of a head of %zu",
                             len, sizeof head);
    memcpy(&head, bytes, sizeof head);
    status = gvmi_wire_check_head(&head, from_client);
    if (status != GVM_OK)
        return status;
    if (!GVM_CHECK(len == head.bytes))
        return gvm_error_set(GVM_E_FORMAT, "the message %s is not whole: %zu bytes of %u",
                             gvmi_wire_name_of(head.type), len, head.bytes);

    kind = kind_of(head.type);
    if (is_greeting(head.type)) {
        status = check_version(kind, &head, body);
        if (status != GVM_OK)
            return status;
    }
    memset(&copy, 0, sizeof copy);
    memcpy(&copy, body, kind->body_bytes);
    status = kind->check(kind, &copy);
    if (status == GVM_OK && kind->tail == TAIL_CHUNKS)
        status = check_wire_chunks(kind, &head, body + kind->body_bytes);
    if (status != GVM_OK)
        return status;

    out->head = head;
    memcpy(&out->body, &copy, sizeof copy);
    memcpy(&out->tail, body + kind->body_bytes, head.tail_bytes);
    return GVM_OK;
}

size_t gvmi_wire_encode(const gvmi_wire_message *message, void *bytes)
{
    const wire_kind *kind = kind_of(message->head.type);
    gvmi_wire_head head = message->head;
    uint8_t *to = bytes;

    GVM_ASSERT(kind != NULL);
    head.bytes = (uint32_t)(sizeof head + kind->body_bytes + head.tail_bytes);
    GVM_ASSERT(gvmi_wire_check_head(&head, kind->from_client) == GVM_OK);
    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, &message->body, kind->body_bytes);
    memcpy(to + sizeof head + kind->body_bytes, &message->tail, head.tail_bytes);
    return head.bytes;
}

void gvmi_wire_start(gvmi_wire_message *message, gvmi_wire_type type, uint64_t request)
{
    memset(message, 0, sizeof *message);
    message->head.type = (uint16_t)type;
    message->head.request = request;
}

/* ---- names */

gvm_status gvmi_wire_check_name(const char *name)
{
    size_t len;

    if (name == NULL)
        return gvm_error_set(GVM_E_INVALID, "the name is NULL");
    len = strnlen(name, GVM_NAME_BYTES_MAX);
    if (len == GVM_NAME_BYTES_MAX)
        return gvm_error_set(GVM_E_INVALID, "the name is longer than %d bytes", GVM_NAME_BYTES_MAX - 1);
    for (size_t i = 0; i < len; i++)
        if (name[i] < ' ' || name[i] > '~') /* printable in ASCII, whatever the locale says */
            return gvm_error_set(GVM_E_INVALID, "the name has a byte that is not printable: %#x at %zu",
                                 (unsigned char)name[i], i);
    if (name[0] != '/' || len < 2)
        return gvm_error_set(GVM_E_INVALID,
                             "the name does not begin with \"/\" and something behind it: \"%s\"",
                             name);
    return GVM_OK;
}
