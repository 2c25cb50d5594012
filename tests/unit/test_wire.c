/* keeper/protocol/wire.c: whatever bytes come, only a consistent message is accepted.
 *
 * Every type of the table is packed and unpacked. Then each rule is broken alone in an otherwise
 * valid message, and every byte of every type is damaged: what is still accepted must be the same
 * bytes again when it is packed.
 */
#include "tests/unit/unit.h"

#include <gvmem/buffer.h>

#include "keeper/protocol/wire.h"
#include "tests/fuzz/wire_samples.h"
#include "tests/lib/units.h"

enum { FROM_K, FROM_C };
enum { TAIL_NONE, TAIL_BYTES, TAIL_CHUNKS };

typedef struct row {
    uint16_t type;
    const char *name;
    bool from_client;
    int tail;
    size_t body_bytes;
} row;

#define ROW(name, value, from, body, tail, fds) \
    {value, #name, FROM_##from, TAIL_##tail, sizeof(gvmi_wire_##body)},
static const row rows[] = {GVMI_WIRE_TABLE(ROW)};
#undef ROW
#define ROWS (sizeof rows / sizeof rows[0])

#define HEAD sizeof(gvmi_wire_head)
#define CHUNK sizeof(gvmi_wire_chunk)
#define SLOT_LAST (GVM_OBJECTS_OPEN_MAX - 1)

/* A message as it travels, with room for one that is too long. */
typedef struct packet {
    size_t len;
    uint8_t bytes[sizeof(gvmi_wire_message) + 2 * CHUNK];
} packet;

static const row *row_of(uint16_t type)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].type == type)
            return &rows[i];
    return NULL;
}

/* ---- messages to begin with */

static bool has_number(uint16_t type)
{
    return type != GVMI_WIRE_TAKEN && type != GVMI_WIRE_MAPPED && type != GVMI_WIRE_UNMAPPED &&
           type != GVMI_WIRE_SNAPSHOT_READ && type != GVMI_WIRE_BYE && type != GVMI_WIRE_MAP;
}

static packet pack(uint16_t type)
{
    gvmi_wire_message m;
    packet p;

    wire_sample((gvmi_wire_type)type, &m);
    p.len = gvmi_wire_encode(&m, p.bytes);
    return p;
}

/* ---- judging */

/* From memory of exactly this length at an odd address: the byte beyond is the sanitizer's. */
static gvm_status judge_from(const packet *p, bool from_client, gvmi_wire_message *out)
{
    uint8_t *exact = malloc(p->len + 1);
    gvm_status status;

    assert_non_null(exact);
    memcpy(exact + 1, p->bytes, p->len);
    status = gvmi_wire_decode(exact + 1, p->len, from_client, out);
    free(exact);
    return status;
}

static gvmi_wire_head head_of(const packet *p)
{
    gvmi_wire_head head;

    memcpy(&head, p->bytes, sizeof head);
    return head;
}

static gvm_status judge(const packet *p)
{
    gvmi_wire_message out;

    return judge_from(p, row_of(head_of(p).type)->from_client, &out);
}

static void put(packet *p, size_t offset, uint64_t value, size_t bytes)
{
    memcpy(p->bytes + offset, &value, bytes); /* of little-endian values, the low bytes */
}

#define PUT_HEAD(packet, member, value) \
    put(packet, offsetof(gvmi_wire_head, member), value, sizeof((gvmi_wire_head *)NULL)->member)

/* Makes the tail len_bytes long, and head.bytes and the length fit. */
static void set_tail(packet *p, size_t len_bytes)
{
    const size_t fixed = HEAD + row_of(head_of(p).type)->body_bytes;

    assert_true(fixed + len_bytes <= sizeof p->bytes);
    if (fixed + len_bytes > p->len)
        memset(p->bytes + p->len, 0, fixed + len_bytes - p->len);
    p->len = fixed + len_bytes;
    PUT_HEAD(p, tail_bytes, len_bytes);
    PUT_HEAD(p, bytes, p->len);
}

/* ---- whole messages */

static void wire_every_type_round_trips(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        const packet p = pack(rows[i].type);
        gvmi_wire_message in, out;
        packet again;

        wire_sample((gvmi_wire_type)rows[i].type, &in);
        memset(&out, 0xee, sizeof out);
        if (judge_from(&p, rows[i].from_client, &out) != GVM_OK)
            fail_msg("%s was refused", rows[i].name);
        assert_int_equal(out.head.bytes, p.len);
        out.head.bytes = in.head.bytes; /* which encoding alone sets */
        assert_memory_equal(&out.head, &in.head, sizeof out.head);
        assert_memory_equal(&out.body, &in.body, sizeof out.body);
        assert_memory_equal(&out.tail, &in.tail, in.head.tail_bytes);
        again.len = gvmi_wire_encode(&out, again.bytes);
        assert_int_equal(again.len, p.len);
        assert_memory_equal(again.bytes, p.bytes, p.len);
    }
}

static void wire_every_type_has_name_and_size(void **state)
{
    (void)state;
    for (uint32_t type = 0; type <= UINT16_MAX + 1u; type++) {
        const row *r = type <= UINT16_MAX ? row_of((uint16_t)type) : NULL;

        assert_string_equal(gvmi_wire_name_of(type), r == NULL ? "?" : r->name);
        assert_int_equal(gvmi_wire_body_bytes(type), r == NULL ? 0 : r->body_bytes);
    }
}

static void wire_unknown_types_are_refused(void **state)
{
    packet p = pack(GVMI_WIRE_SNAPSHOT);
    gvmi_wire_message out;

    (void)state;
    for (uint32_t type = 0; type <= UINT16_MAX; type++) {
        if (row_of((uint16_t)type) != NULL)
            continue;
        PUT_HEAD(&p, type, type);
        assert_int_equal(judge_from(&p, true, &out), GVM_E_FORMAT);
        assert_int_equal(judge_from(&p, false, &out), GVM_E_FORMAT);
    }
}

static void wire_from_the_wrong_end_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        const packet p = pack(rows[i].type);
        const gvmi_wire_head head = head_of(&p);
        gvmi_wire_message out;

        assert_int_equal(gvmi_wire_check_head(&head, rows[i].from_client), GVM_OK);
        assert_int_equal(gvmi_wire_check_head(&head, !rows[i].from_client), GVM_E_FORMAT);
        assert_int_equal(judge_from(&p, !rows[i].from_client, &out), GVM_E_FORMAT);
    }
}

static void wire_of_another_length_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        const packet whole = pack(rows[i].type);

        for (size_t len = 0; len <= whole.len + CHUNK; len++) {
            packet p = whole;

            if (len == whole.len)
                continue;
            if (len > whole.len)
                memset(p.bytes + whole.len, 0, len - whole.len);
            p.len = len; /* the head says otherwise */
            if (len >= HEAD && judge(&p) != GVM_E_FORMAT)
                fail_msg("%s was accepted with %zu bytes of %zu", rows[i].name, len, whole.len);
            if (len < HEAD) {
                gvmi_wire_message out;

                assert_int_equal(judge_from(&p, rows[i].from_client, &out), GVM_E_FORMAT);
                continue;
            }
            PUT_HEAD(&p, bytes, len); /* the head agrees, the table does not */
            if (judge(&p) != GVM_E_FORMAT)
                fail_msg("%s was accepted with a head of %zu bytes", rows[i].name, len);
        }
    }
}

static void wire_failure_leaves_out_untouched(void **state)
{
    packet p = pack(GVMI_WIRE_MAP);
    gvmi_wire_message out, before;

    (void)state;
    memset(&out, 0x5a, sizeof out);
    before = out;
    put(&p, p.len - CHUNK + offsetof(gvmi_wire_chunk, tier), GVM_TIER_ABSENT, 4);
    assert_int_equal(judge_from(&p, false, &out), GVM_E_FORMAT);
    assert_memory_equal(&out, &before, sizeof out);
}

static void wire_error_names_message_and_member(void **state)
{
    packet p = pack(GVMI_WIRE_ACQUIRE);
    gvm_error error;

    (void)state;
    put(&p, HEAD + offsetof(gvmi_wire_acquire, hint), 9, 4);
    assert_int_equal(judge(&p), GVM_E_FORMAT);
    assert_int_equal(gvm_error_last(&error), GVM_OK);
    assert_string_equal(error.text, "the message ACQUIRE is malformed: hint is 0x9");
}

/* ---- heads */

static void head_with_another_count_of_fds_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        const packet whole = pack(rows[i].type);

        for (uint32_t count = 0; count <= GVMI_WIRE_CHUNKS_MAX + 1; count++) {
            packet p = whole;

            PUT_HEAD(&p, fd_count, count);
            assert_int_equal(judge(&p), count == head_of(&whole).fd_count ? GVM_OK : GVM_E_FORMAT);
        }
    }
}

static void head_with_reserved_bits_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        packet p = pack(rows[i].type);

        PUT_HEAD(&p, reserved, 1);
        assert_int_equal(judge(&p), GVM_E_FORMAT);
    }
}

static void head_has_a_number_iff_it_asks_or_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        packet p = pack(rows[i].type);
        const bool either = rows[i].type == GVMI_WIRE_FAILED;

        PUT_HEAD(&p, request, 0);
        assert_int_equal(judge(&p), either || !has_number(rows[i].type) ? GVM_OK : GVM_E_FORMAT);
        PUT_HEAD(&p, request, 1ull << 63);
        assert_int_equal(judge(&p), either || has_number(rows[i].type) ? GVM_OK : GVM_E_FORMAT);
    }
}

static void tail_is_bounded_by_its_kind(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        packet p = pack(rows[i].type);
        const size_t most = rows[i].tail == TAIL_BYTES ? GVMI_WIRE_TAIL_BYTES_MAX : 0;

        if (rows[i].tail == TAIL_CHUNKS)
            continue;
        set_tail(&p, 0);
        assert_int_equal(judge(&p), GVM_OK);
        set_tail(&p, most);
        assert_int_equal(judge(&p), GVM_OK);
        set_tail(&p, most + 1);
        assert_int_equal(judge(&p), GVM_E_FORMAT);
        set_tail(&p, most + CHUNK);
        assert_int_equal(judge(&p), GVM_E_FORMAT);
    }
}

static void tail_longer_than_the_message_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        packet p = pack(rows[i].type);

        /* The sum of all parts wraps around to head.bytes. */
        PUT_HEAD(&p, tail_bytes, (uint32_t)(p.len - HEAD - rows[i].body_bytes) + (1u << 31));
        assert_int_equal(judge(&p), GVM_E_FORMAT);
        PUT_HEAD(&p, tail_bytes, UINT32_MAX - 15);
        assert_int_equal(judge(&p), GVM_E_FORMAT);
    }
}

/* ---- the first messages of a connection */

static const uint16_t greetings[] = {GVMI_WIRE_HELLO, GVMI_WIRE_WELCOME};

static void greeting_of_another_version_is_distinguished_from_garbage(void **state)
{
    gvm_error error;
    char words[2][120];

    snprintf(words[0], sizeof words[0],
             "the keeper has protocol version %u (gvmem %d.%d.%d), the program %u: use one release for both",
             GVMI_WIRE_VERSION, GVM_VERSION_MAJOR, GVM_VERSION_MINOR, GVM_VERSION_PATCH,
             GVMI_WIRE_VERSION + 1);
    snprintf(words[1], sizeof words[1],
             "the keeper has protocol version %u, the program %u (gvmem %d.%d.%d): use one release for both",
             GVMI_WIRE_VERSION + 1, GVMI_WIRE_VERSION, GVM_VERSION_MAJOR, GVM_VERSION_MINOR,
             GVM_VERSION_PATCH);
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        packet p = pack(greetings[i]);

        put(&p, HEAD + offsetof(gvmi_wire_hello, version), GVMI_WIRE_VERSION + 1, 4);
        assert_int_equal(judge(&p), GVM_E_VERSION);
        gvm_error_last(&error);
        assert_string_equal(error.text, words[i]);
        put(&p, HEAD + offsetof(gvmi_wire_hello, version), 0, 4);
        assert_int_equal(judge(&p), GVM_E_VERSION);
        put(&p, HEAD, 0x1234, 8);
        assert_int_equal(judge(&p), GVM_E_FORMAT);
    }
}

/* A receiver takes fds in before it knows the version. */
static void greeting_with_another_count_of_fds_is_refused_by_its_head(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const packet p = pack(greetings[i]);
        gvmi_wire_head head = head_of(&p);

        assert_int_equal(gvmi_wire_check_head(&head, row_of(greetings[i])->from_client), GVM_OK);
        head.fd_count++;
        assert_int_equal(gvmi_wire_check_head(&head, row_of(greetings[i])->from_client), GVM_E_FORMAT);
    }
}

/* Another version may have more to say in it, but not more than there is room for. */
static void greeting_of_another_version_may_have_another_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        packet p = pack(greetings[i]);
        const struct {
            size_t len;
            gvm_status status;
        } sizes[] = {
            {HEAD + sizeof(gvmi_wire_hello) - 1, GVM_E_FORMAT},
            {HEAD + sizeof(gvmi_wire_hello), GVM_E_VERSION},
            {HEAD + 777, GVM_E_VERSION},
            {sizeof(gvmi_wire_message), GVM_E_VERSION},
            {sizeof(gvmi_wire_message) + 1, GVM_E_FORMAT},
        };

        memset(p.bytes + p.len, 0xcc, sizeof p.bytes - p.len);
        put(&p, HEAD + offsetof(gvmi_wire_hello, version), GVMI_WIRE_VERSION + 1, 4);
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            p.len = sizes[s].len;
            PUT_HEAD(&p, bytes, p.len);
            assert_int_equal(judge(&p), sizes[s].status);
        }
    }
}

/* ---- bodies */

typedef struct change {
    const char *what;
    uint16_t type;
    size_t offset, bytes;
    uint64_t value;
} change;

#define IN(type, member, value) \
    { \
#type "." #member "=" #value, GVMI_WIRE_##type, \
            HEAD + offsetof(gvmi_wire_message, body.type.member) - offsetof(gvmi_wire_message, body), \
            sizeof((gvmi_wire_message *)NULL)->body.type.member, (uint64_t)(value) \
    }

static const change breaks[] = {
    IN(HELLO, reserved, 1),
    IN(CREATE, mode, 01000),
    IN(CREATE, mode, 1u << 31),
    IN(CREATE, flags, 16),
    IN(CREATE, flags, 1u << 31),
    IN(OPEN, flags, 16),
    IN(OPEN, reserved, 1u << 31),
    IN(GROW, slot, GVM_OBJECTS_OPEN_MAX),
    IN(GROW, reserved, 1),
    IN(SHRINK, slot, GVM_OBJECTS_OPEN_MAX),
    IN(SHRINK, reserved, 1),
    IN(SEAL, slot, GVM_OBJECTS_OPEN_MAX),
    IN(SEAL, timeout_ms, -2),
    IN(SEAL, timeout_ms, INT32_MIN),
    IN(PUBLISH, slot, GVM_OBJECTS_OPEN_MAX),
    IN(PUBLISH, flags, 4),
    IN(LINK, slot, GVM_OBJECTS_OPEN_MAX),
    IN(LINK, mode, 01000),
    IN(SET_MODE, slot, GVM_OBJECTS_OPEN_MAX),
    IN(SET_MODE, value, 01000),
    IN(SET_METADATA, slot, GVM_OBJECTS_OPEN_MAX),
    IN(SET_METADATA, reserved, 1),
    IN(GET_METADATA, slot, GVM_OBJECTS_OPEN_MAX),
    IN(GET_METADATA, reserved, 1),
    IN(ACQUIRE, slot, GVM_OBJECTS_OPEN_MAX),
    IN(ACQUIRE, slot, UINT32_MAX),
    IN(ACQUIRE, mode, 0),
    IN(ACQUIRE, mode, 3),
    IN(ACQUIRE, hint, 4),
    IN(ACQUIRE, timeout_ms, -2),
    IN(TAKEN, slot, GVM_OBJECTS_OPEN_MAX),
    IN(TAKEN, mode, 0),
    IN(TAKEN, mode, 257),
    IN(MAPPED, slot, GVM_OBJECTS_OPEN_MAX),
    IN(MAPPED, status, 1),
    IN(MAPPED, status, 256 + GVM_E_NOMEM),
    IN(UNMAPPED, slot, GVM_OBJECTS_OPEN_MAX),
    IN(UNMAPPED, reserved, 1),
    IN(UNMAPPED, serial, 0),
    IN(CLOSE, slot, GVM_OBJECTS_OPEN_MAX),
    IN(CLOSE, reserved, 1),
    IN(SNAPSHOT, reserved, 1),
    IN(SNAPSHOT_READ, reserved, 1),
    IN(GET_INFO, slot, GVM_OBJECTS_OPEN_MAX),
    IN(GET_INFO, reserved, 1),
    IN(TRIM, reserved, 1),
    IN(SET_QUOTA, reserved, 1),
    IN(BYE, reserved, 1ull << 63),
    IN(WELCOME, slots, GVM_OBJECTS_OPEN_MAX - 1),
    IN(WELCOME, slots, GVM_OBJECTS_OPEN_MAX + 1),
    IN(WELCOME, reserved, 1),
    IN(OPENED, slot, GVM_OBJECTS_OPEN_MAX),
    IN(OPENED, chunk_bytes, 0),
    IN(OPENED, chunk_bytes, 3 * MIB),
    IN(OPENED, chunk_bytes, GVM_CHUNK_BYTES_MIN / 2),
    IN(OPENED, chunk_bytes, GVM_CHUNK_BYTES_MAX * 2),
    IN(OPENED, bytes, 64 * MIB + 1),
    IN(OPENED, bytes, UINT64_MAX),
    IN(OPENED, open_flags, 16),
    IN(OPENED, sealed, 2),
    IN(MAP, slot, GVM_OBJECTS_OPEN_MAX),
    IN(MAP, serial, 0),
    IN(MAP, sealed, 2),
    IN(MAP, anew, 2),
    IN(GRANTED, slot, GVM_OBJECTS_OPEN_MAX),
    IN(GRANTED, reserved, 1),
    IN(FAILED, status, GVM_OK),
    IN(FAILED, status, 9),
    IN(FAILED, reserved, 1),
    IN(METADATA, reserved, 1),
    IN(INFO, info.size_bytes, 8 * MIB + 1),
    IN(INFO, info.mode, 01000),
    IN(INFO, info.metadata_bytes, GVM_METADATA_BYTES_MAX + 1),
    IN(INFO, info.sealed, 2),
    IN(INFO, info.kept, 2),
    IN(INFO, info.moving, 2),
    IN(INFO, info.untracked, 2),
    IN(INFO, info.fenced, 2),
    IN(INFO, info.foreign, 2),
    IN(INFO, info.reserved[0], 1),
    IN(INFO, info.reserved[1], 1),
    IN(INFO, info.metadata_start[8], 1), /* of 8 bytes */
};

static void body_with_one_rule_broken_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof breaks / sizeof breaks[0]; i++) {
        packet p = pack(breaks[i].type);

        put(&p, breaks[i].offset, breaks[i].value, breaks[i].bytes);
        if (judge(&p) != GVM_E_FORMAT)
            fail_msg("%s was not refused", breaks[i].what);
    }
}

/* What a machine or a client must judge itself, and the last values before the rules break. */
static const change valid[] = {
    IN(CREATE, reserve_bytes, 0),
    IN(CREATE, chunk_bytes, 12345),
    IN(CREATE, bytes, UINT64_MAX),
    IN(CREATE, mode, 0777),
    IN(CREATE, mode, 0),
    IN(OPEN, flags, 0),
    IN(OPEN, flags, GVM_OPEN_READONLY | GVM_OPEN_LINK),
    IN(OPEN, flags, GVM_OPEN_MAPPED),
    IN(LINK, mode, 0444),
    IN(LINK, bytes, UINT64_MAX),
    IN(GROW, slot, 0),
    IN(GROW, bytes, UINT64_MAX),
    IN(SHRINK, bytes, 0),
    IN(SEAL, timeout_ms, INT32_MAX),
    IN(SEAL, timeout_ms, 0),
    IN(PUBLISH, flags, 0),
    IN(PUBLISH, flags, GVM_PUBLISH_REPLACE | GVM_PUBLISH_PRIVATE),
    IN(SET_MODE, value, 0),
    IN(ACQUIRE, slot, SLOT_LAST),
    IN(ACQUIRE, mode, GVM_LEASE_READ),
    IN(ACQUIRE, hint, GVM_HINT_NONE),
    IN(ACQUIRE, timeout_ms, -1),
    IN(ACQUIRE, timeout_ms, 0),
    IN(MAPPED, status, GVM_OK),
    IN(MAPPED, status, GVM_E_LOST),
    IN(MAPPED, address, 0),
    IN(MAPPED, serial, 0),
    IN(UNMAPPED, slot, SLOT_LAST),
    IN(UNMAPPED, serial, UINT64_MAX),
    IN(OPENED, chunk_bytes, GVM_CHUNK_BYTES_MIN),
    IN(OPENED, chunk_bytes, GVM_CHUNK_BYTES_MAX),
    IN(OPENED, bytes, 0),
    IN(OPENED, home_address, 0),
    IN(MAP, bytes, 0),
    IN(MAP, sealed, 0),
    IN(INFO, info.kept, 1),
};

static void body_at_the_bounds_is_accepted(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof valid / sizeof valid[0]; i++) {
        packet p = pack(valid[i].type);

        put(&p, valid[i].offset, valid[i].value, valid[i].bytes);
        if (judge(&p) != GVM_OK)
            fail_msg("%s was refused", valid[i].what);
    }
}

static void opened_without_addresses_is_refused(void **state)
{
    packet p = pack(GVMI_WIRE_OPENED);

    (void)state;
    put(&p, HEAD + offsetof(gvmi_wire_opened, bytes), 0, 8);
    assert_int_equal(judge(&p), GVM_OK);
    put(&p, HEAD + offsetof(gvmi_wire_opened, reserve_bytes), 0, 8);
    assert_int_equal(judge(&p), GVM_E_FORMAT);
}

static void mapped_that_answers_opened_has_the_address_of_a_chunk(void **state)
{
    packet p = pack(GVMI_WIRE_MAPPED);

    (void)state;
    put(&p, HEAD + offsetof(gvmi_wire_mapped, serial), 0, 8);
    put(&p, HEAD + offsetof(gvmi_wire_mapped, address), 0, 8);
    assert_int_equal(judge(&p), GVM_OK); /* it failed */
    put(&p, HEAD + offsetof(gvmi_wire_mapped, status), GVM_OK, 4);
    assert_int_equal(judge(&p), GVM_E_FORMAT);
    put(&p, HEAD + offsetof(gvmi_wire_mapped, address), 0x1001, 8);
    assert_int_equal(judge(&p), GVM_E_FORMAT);
    put(&p, HEAD + offsetof(gvmi_wire_mapped, address), GVM_CHUNK_BYTES_MIN / 2, 8);
    assert_int_equal(judge(&p), GVM_E_FORMAT);
    put(&p, HEAD + offsetof(gvmi_wire_mapped, address), GVM_CHUNK_BYTES_MIN, 8);
    assert_int_equal(judge(&p), GVM_OK);
}

static void failed_text_that_does_not_end_is_refused(void **state)
{
    const size_t text = HEAD + offsetof(gvmi_wire_failed, text);
    packet p = pack(GVMI_WIRE_FAILED);

    (void)state;
    memset(p.bytes + text, 'x', GVMI_WIRE_TEXT_BYTES);
    assert_int_equal(judge(&p), GVM_E_FORMAT);
    put(&p, text + GVMI_WIRE_TEXT_BYTES - 1, 0, 1);
    assert_int_equal(judge(&p), GVM_OK);
    put(&p, text + 10, 0, 1);
    assert_int_equal(judge(&p), GVM_E_FORMAT); /* something behind the end */
    memset(p.bytes + text, 0, GVMI_WIRE_TEXT_BYTES);
    assert_int_equal(judge(&p), GVM_OK);
}

/* ---- names */

static const struct {
    const char *name;
    bool good;
} names[] = {
    {"/a", true},
    {"/sales/2026/q3", true},
    {"/with space~", true},
    {"//", true},
    {"", false},
    {"/", false},
    {"a", false},
    {"sales/q3", false},
    {" /a", false},
    {"/a\n", false},
    {"/a\x1f", false},
    {"/a\x7f", false},
    {"/\xc3\xa9", false},
    {"/\x80", false},
};

static void name_is_good_iff_printable_behind_a_slash(void **state)
{
    char longest[GVM_NAME_BYTES_MAX + 1];

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_int_equal(gvmi_wire_check_name(names[i].name), names[i].good ? GVM_OK : GVM_E_INVALID);
    assert_int_equal(gvmi_wire_check_name(NULL), GVM_E_INVALID);
    memset(longest, '/', sizeof longest);
    longest[GVM_NAME_BYTES_MAX - 1] = '\0';
    assert_int_equal(gvmi_wire_check_name(longest), GVM_OK);
    longest[GVM_NAME_BYTES_MAX - 1] = '/';
    longest[GVM_NAME_BYTES_MAX] = '\0';
    assert_int_equal(gvmi_wire_check_name(longest), GVM_E_INVALID);
}

static const struct {
    uint16_t type;
    size_t offset;
    bool may_be_empty;
} named[] = {
    {GVMI_WIRE_CREATE, HEAD + offsetof(gvmi_wire_create, name), true},
    {GVMI_WIRE_OPEN, HEAD + offsetof(gvmi_wire_open, name), false},
    {GVMI_WIRE_PUBLISH, HEAD + offsetof(gvmi_wire_publish, name), false},
    {GVMI_WIRE_DROP, HEAD + offsetof(gvmi_wire_name, name), false},
    {GVMI_WIRE_LINK, HEAD + offsetof(gvmi_wire_link, name), false},
    {GVMI_WIRE_UNLINK, HEAD + offsetof(gvmi_wire_name, name), false},
    {GVMI_WIRE_EVICT, HEAD + offsetof(gvmi_wire_name_value, name), false},
    {GVMI_WIRE_LIST_CHUNKS, HEAD + offsetof(gvmi_wire_name_value, name), false},
    {GVMI_WIRE_INFO, HEAD + offsetof(gvmi_snapshot_object, name), true},
};

static void name_in_a_message_is_judged(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof named / sizeof named[0]; t++) {
        packet p = pack(named[t].type);
        char *name = (char *)p.bytes + named[t].offset;

        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            const bool good = names[i].good || (names[i].name[0] == '\0' && named[t].may_be_empty);

            memset(name, 0, GVM_NAME_BYTES_MAX);
            memcpy(name, names[i].name, strlen(names[i].name));
            assert_int_equal(judge(&p), good ? GVM_OK : GVM_E_FORMAT);
            name[GVM_NAME_BYTES_MAX - 1] = 'x'; /* behind the end */
            assert_int_equal(judge(&p), GVM_E_FORMAT);
        }
        memset(name, '/', GVM_NAME_BYTES_MAX);
        assert_int_equal(judge(&p), GVM_E_FORMAT); /* no end */
        name[GVM_NAME_BYTES_MAX - 1] = '\0';
        assert_int_equal(judge(&p), GVM_OK);
    }
}

/* ---- chunks */

static packet map_of(const gvmi_wire_chunk *chunks, uint32_t count)
{
    packet p = pack(GVMI_WIRE_MAP);
    uint32_t fds = 0;

    for (uint32_t i = 0; i < count; i++)
        fds += chunks[i].tier != GVM_TIER_ABSENT;
    set_tail(&p, count * CHUNK);
    PUT_HEAD(&p, fd_count, fds);
    memcpy(p.bytes + p.len - count * CHUNK, chunks, count * CHUNK);
    return p;
}

static void chunks_up_to_the_limit_are_accepted(void **state)
{
    gvmi_wire_chunk chunks[GVMI_WIRE_CHUNKS_MAX + 1];

    (void)state;
    for (uint32_t count = 0; count <= GVMI_WIRE_CHUNKS_MAX + 1; count++) {
        packet p;

        for (uint32_t i = 0; i < count; i++)
            chunks[i] = (gvmi_wire_chunk){2 * i, i % 2 ? GVM_TIER_HOST : GVM_TIER_DEVICE, i};
        p = map_of(chunks, count);
        assert_int_equal(judge(&p), count <= GVMI_WIRE_CHUNKS_MAX ? GVM_OK : GVM_E_FORMAT);
    }
}

static void chunks_in_part_are_refused(void **state)
{
    const gvmi_wire_chunk chunks[2] = {{0, GVM_TIER_DEVICE, 1}, {1, GVM_TIER_DEVICE, 1}};

    (void)state;
    for (size_t cut = 1; cut < CHUNK; cut++) {
        packet p = map_of(chunks, 2);

        set_tail(&p, 2 * CHUNK - cut);
        PUT_HEAD(&p, fd_count, 1);
        assert_int_equal(judge(&p), GVM_E_FORMAT);
    }
}

static void chunks_with_one_rule_broken_are_refused(void **state)
{
    static const struct {
        const char *name;
        gvmi_wire_chunk second;
        gvm_status status;
    } cases[] = {
        {"between", {5, GVM_TIER_HOST, 0}, GVM_OK},
        {"twice the first", {3, GVM_TIER_HOST, 0}, GVM_E_FORMAT},
        {"before the first", {2, GVM_TIER_HOST, 0}, GVM_E_FORMAT},
        {"twice the next", {7, GVM_TIER_HOST, 0}, GVM_E_FORMAT},
        {"behind the next", {UINT32_MAX, GVM_TIER_HOST, 0}, GVM_E_FORMAT},
        {"absent", {5, GVM_TIER_ABSENT, 0}, GVM_OK},
        {"of an unknown tier", {5, 3, 0}, GVM_E_FORMAT},
        {"of an unknown tier that wraps", {5, 256 + GVM_TIER_HOST, 0}, GVM_E_FORMAT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const gvmi_wire_chunk chunks[3] = {
            {3, GVM_TIER_DEVICE, 9}, cases[i].second, {7, GVM_TIER_DEVICE, 9}};
        packet p = map_of(chunks, 3);
        const uint32_t fds = head_of(&p).fd_count;

        if (judge(&p) != cases[i].status)
            fail_msg("a chunk %s was judged wrongly", cases[i].name);
        for (uint32_t count = 0; count <= 4; count++) {
            PUT_HEAD(&p, fd_count, count);
            if (count != fds && judge(&p) != GVM_E_FORMAT)
                fail_msg("a chunk %s was accepted with %u descriptors", cases[i].name, count);
        }
    }
}

/* The last index there is has none behind it. */
static void chunks_behind_the_last_index_are_refused(void **state)
{
    const gvmi_wire_chunk chunks[2] = {{UINT32_MAX, GVM_TIER_DEVICE, 1}, {0, GVM_TIER_DEVICE, 1}};
    const packet p = map_of(chunks, 2);

    (void)state;
    assert_int_equal(judge(&p), GVM_E_FORMAT);
}

/* ---- damage */

/* True if it was accepted. */
static bool judge_damaged(const packet *p, bool from_client)
{
    gvmi_wire_message out;
    packet again;
    const gvm_status status = judge_from(p, from_client, &out);

    if (status != GVM_OK) {
        assert_true(status == GVM_E_FORMAT || status == GVM_E_VERSION);
        return false;
    }
    again.len = gvmi_wire_encode(&out, again.bytes);
    assert_int_equal(again.len, p->len);
    assert_memory_equal(again.bytes, p->bytes, p->len);
    return true;
}

static void wire_every_byte_damaged_is_refused_or_the_same_again(void **state)
{
    static const uint8_t masks[] = {1, 2, 4, 8, 16, 32, 64, 128, 0xff};
    size_t accepted = 0, refused = 0;

    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        packet p = pack(rows[i].type);

        for (size_t at = 0; at < p.len; at++) {
            for (size_t m = 0; m < sizeof masks; m++) {
                p.bytes[at] ^= masks[m];
                for (int from_client = 0; from_client <= 1; from_client++) {
                    if (judge_damaged(&p, from_client))
                        accepted++;
                    else
                        refused++;
                }
                p.bytes[at] ^= masks[m];
            }
        }
    }
    print_message("%zu accepted, %zu refused\n", accepted, refused);
    assert_true(accepted > 0 && refused > accepted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wire_every_type_round_trips),
        cmocka_unit_test(wire_every_type_has_name_and_size),
        cmocka_unit_test(wire_unknown_types_are_refused),
        cmocka_unit_test(wire_from_the_wrong_end_is_refused),
        cmocka_unit_test(wire_of_another_length_is_refused),
        cmocka_unit_test(wire_failure_leaves_out_untouched),
        cmocka_unit_test(wire_error_names_message_and_member),
        cmocka_unit_test(head_with_another_count_of_fds_is_refused),
        cmocka_unit_test(head_with_reserved_bits_is_refused),
        cmocka_unit_test(head_has_a_number_iff_it_asks_or_answers),
        cmocka_unit_test(tail_is_bounded_by_its_kind),
        cmocka_unit_test(tail_longer_than_the_message_is_refused),
        cmocka_unit_test(greeting_of_another_version_is_distinguished_from_garbage),
        cmocka_unit_test(greeting_with_another_count_of_fds_is_refused_by_its_head),
        cmocka_unit_test(greeting_of_another_version_may_have_another_size),
        cmocka_unit_test(body_with_one_rule_broken_is_refused),
        cmocka_unit_test(body_at_the_bounds_is_accepted),
        cmocka_unit_test(opened_without_addresses_is_refused),
        cmocka_unit_test(mapped_that_answers_opened_has_the_address_of_a_chunk),
        cmocka_unit_test(failed_text_that_does_not_end_is_refused),
        cmocka_unit_test(name_is_good_iff_printable_behind_a_slash),
        cmocka_unit_test(name_in_a_message_is_judged),
        cmocka_unit_test(chunks_up_to_the_limit_are_accepted),
        cmocka_unit_test(chunks_in_part_are_refused),
        cmocka_unit_test(chunks_with_one_rule_broken_are_refused),
        cmocka_unit_test(chunks_behind_the_last_index_are_refused),
        cmocka_unit_test(wire_every_byte_damaged_is_refused_or_the_same_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
