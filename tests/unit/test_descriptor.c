/* sharing/descriptor.c: whatever bytes come, only a consistent share is accepted.
 *
 * Each rule of the wire is broken alone in an otherwise valid descriptor; then random damage is
 * done, and what is still accepted must obey the rules as they are written down once more here.
 */
#include "tests/unit/unit.h"

#include "base/clock.h"
#include "memory/buffer.h"
#include "sharing/descriptor.h"
#include "tests/lib/random.h"
#include "tests/lib/units.h"

#define ROUNDS 200000

static gvmi_descriptor valid(void)
{
    gvmi_descriptor about;

    gvmi_descriptor_init(&about);
    about.chunk_count = 3;
    about.flags = GVMI_DESCRIPTOR_SEALED;
    memset(about.device_uuid, 0xd1, sizeof about.device_uuid);
    memset(about.buffer_id, 0xb2, sizeof about.buffer_id);
    about.generation = 7;
    about.exporter_address = 0x7f0000000000;
    about.reserve_bytes = 64 * MIB;
    about.chunk_bytes = 4 * MIB;
    about.span_offset_bytes = 8 * MIB;
    about.span_len_bytes = 32 * MIB;
    return about;
}

/* Chunks of 2, 6, 24, 32, 32, 24, 6, 2 MiB, of which the share has the last five. */
static gvmi_descriptor valid_graded(void)
{
    gvmi_descriptor about = valid();

    about.version = GVMI_DESCRIPTOR_VERSION_GRADED;
    about.flags = GVMI_DESCRIPTOR_GRADED;
    about.reserve_bytes = 128 * MIB;
    about.chunk_bytes = 32 * MIB;
    about.span_offset_bytes = 32 * MIB;
    about.span_len_bytes = 96 * MIB;
    return about;
}

static gvm_status decode(const gvmi_descriptor *about)
{
    gvmi_descriptor out;

    return gvmi_descriptor_decode(about, sizeof *about, &out);
}

static void descriptor_valid_is_decoded_unchanged(void **state)
{
    const gvmi_descriptor about = valid();
    char bytes[1 + sizeof about];
    gvmi_descriptor out;

    (void)state;
    memcpy(bytes + 1, &about, sizeof about); /* at an odd address */
    assert_int_equal(gvmi_descriptor_decode_start(bytes + 1, GVMI_DESCRIPTOR_START_BYTES), GVM_OK);
    assert_int_equal(gvmi_descriptor_decode(bytes + 1, sizeof about, &out), GVM_OK);
    assert_memory_equal(&out, &about, sizeof about);
}

static void descriptor_of_another_length_is_refused(void **state)
{
    const gvmi_descriptor about = valid();
    char *exact;
    gvmi_descriptor out;

    (void)state;
    for (size_t len = 0; len < sizeof about; len++) {
        exact = malloc(len + 1); /* the first byte beyond is the sanitizer's */
        memcpy(exact + 1, &about, len);
        assert_int_equal(gvmi_descriptor_decode(exact + 1, len, &out), GVM_E_FORMAT);
        free(exact);
    }
    assert_int_equal(gvmi_descriptor_decode(&about, sizeof about + 1, &out), GVM_E_FORMAT);
    assert_int_equal(gvmi_descriptor_decode_start(&about, GVMI_DESCRIPTOR_START_BYTES - 1),
                     GVM_E_FORMAT);
}

static void descriptor_failure_leaves_out_untouched(void **state)
{
    gvmi_descriptor about = valid(), out, before;

    (void)state;
    memset(&out, 0x5a, sizeof out);
    before = out;
    about.flags = 4;
    assert_int_equal(gvmi_descriptor_decode(&about, sizeof about, &out), GVM_E_FORMAT);
    assert_memory_equal(&out, &before, sizeof out);
}

static void descriptor_of_another_version_is_distinguished_from_garbage(void **state)
{
    gvmi_descriptor about = valid();

    (void)state;
    about.version = GVMI_DESCRIPTOR_VERSION_GRADED + 1;
    about.fixed_bytes = 9; /* another version may be of any size */
    assert_int_equal(decode(&about), GVM_E_VERSION);
    about.magic[7]++;
    assert_int_equal(decode(&about), GVM_E_FORMAT);
}

/* A member set to a value that it must not have. */
typedef struct broken_rule {
    const char *name;
    size_t offset, bytes;
    uint64_t value;
} broken_rule;

#define ROW(member, value) \
    { \
#member "=" #value, offsetof(gvmi_descriptor, member), \
            sizeof((gvmi_descriptor *)NULL)->member, value \
    }

static void assert_each_refused(gvmi_descriptor valid_one, const broken_rule *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        gvmi_descriptor about = valid_one;

        memcpy((char *)&about + rows[i].offset, &rows[i].value, rows[i].bytes);
        if (decode(&about) != GVM_E_FORMAT)
            fail_msg("%s was not refused", rows[i].name);
    }
}

static void descriptor_with_one_rule_broken_is_refused(void **state)
{
    static const broken_rule rows[] = {
        ROW(fixed_bytes, 103),
        ROW(chunk_entry_bytes, 25),
        ROW(chunk_count, 0),
        ROW(chunk_count, 9), /* 32 MiB hold 8 */
        ROW(chunk_count, GVMI_SHARE_CHUNKS_MAX + 1),
        ROW(chunk_count, UINT32_MAX),
        ROW(flags, GVMI_DESCRIPTOR_GRADED), /* of version 2 */
        ROW(flags, 4),
        ROW(version, GVMI_DESCRIPTOR_VERSION_GRADED),
        ROW(flags, UINT32_MAX),
        ROW(exporter_address, 0),
        ROW(exporter_address, 0x7f0000001000),
        ROW(exporter_address, UINT64_MAX - 2 * MIB + 1), /* runs over the end */
        ROW(reserve_bytes, 0),
        ROW(reserve_bytes, 65 * MIB),
        ROW(reserve_bytes, 36 * MIB), /* shorter than the span */
        ROW(reserve_bytes, GVMI_SPAN_BYTES_MAX + 4 * MIB),
        ROW(reserve_bytes, UINT64_MAX - 4 * MIB + 1),
        ROW(chunk_bytes, 0),
        ROW(chunk_bytes, 1 * MIB),
        ROW(chunk_bytes, 3 * MIB),
        ROW(chunk_bytes, 2048 * MIB),
        ROW(chunk_bytes, 1ull << 63),
        ROW(span_offset_bytes, 2 * MIB),
        ROW(span_offset_bytes, 36 * MIB),
        ROW(span_offset_bytes, UINT64_MAX - 4 * MIB + 1),
        ROW(span_len_bytes, 0),
        ROW(span_len_bytes, 30 * MIB),
        ROW(span_len_bytes, 60 * MIB),
        ROW(span_len_bytes, UINT64_MAX - 4 * MIB + 1),
    };

    (void)state;
    assert_each_refused(valid(), rows, sizeof rows / sizeof rows[0]);
}

static void descriptor_graded_is_decoded_unchanged(void **state)
{
    const gvmi_descriptor about = valid_graded();
    gvmi_descriptor out;

    (void)state;
    assert_int_equal(gvmi_descriptor_decode_start(&about, GVMI_DESCRIPTOR_START_BYTES), GVM_OK);
    assert_int_equal(gvmi_descriptor_decode(&about, sizeof about, &out), GVM_OK);
    assert_memory_equal(&out, &about, sizeof about);
}

static void descriptor_graded_with_one_rule_broken_is_refused(void **state)
{
    static const broken_rule rows[] = {
        ROW(version, GVMI_DESCRIPTOR_VERSION),
        ROW(flags, 0),
        ROW(flags, GVMI_DESCRIPTOR_SEALED),
        ROW(chunk_count, 6), /* the span has 5 */
        ROW(chunk_bytes, 2 * MIB),
        ROW(chunk_bytes, 128 * MIB), /* the ends would overlap */
        ROW(reserve_bytes, 132 * MIB),
        ROW(span_offset_bytes, 4 * MIB),
        ROW(span_len_bytes, 88 * MIB + 2 * MIB),
    };

    (void)state;
    assert_each_refused(valid_graded(), rows, sizeof rows / sizeof rows[0]);
}

static void descriptor_largest_is_accepted(void **state)
{
    gvmi_descriptor about = valid();

    (void)state;
    about.chunk_bytes = GVM_CHUNK_BYTES_MAX;
    about.reserve_bytes = about.span_len_bytes = GVMI_SPAN_BYTES_MAX;
    about.span_offset_bytes = 0;
    about.chunk_count = GVMI_SPAN_BYTES_MAX / GVM_CHUNK_BYTES_MAX;
    about.generation = UINT64_MAX;
    assert_int_equal(decode(&about), GVM_OK);
}

/* ---- chunks */

static const gvmi_descriptor_chunk good_chunks[] = {
    {.offset_bytes = 0, .stamp = 0, .tier = GVM_TIER_DEVICE},
    {.offset_bytes = 8 * MIB, .stamp = 7, .tier = GVM_TIER_HOST},
    {.offset_bytes = 28 * MIB, .stamp = 3, .tier = GVM_TIER_DEVICE},
};

static gvm_status check_three(const gvmi_descriptor_chunk chunks[3])
{
    const gvmi_descriptor about = valid();
    uint64_t floor_bytes = 0;

    return gvmi_descriptor_check_chunks(&about, chunks, 3, &floor_bytes);
}

static void chunks_in_pieces_are_judged_as_one(void **state)
{
    const gvmi_descriptor about = valid();
    uint64_t floor_bytes = 0;

    (void)state;
    assert_int_equal(check_three(good_chunks), GVM_OK);
    assert_int_equal(gvmi_descriptor_check_chunks(&about, good_chunks, 0, &floor_bytes), GVM_OK);
    assert_int_equal(gvmi_descriptor_check_chunks(&about, good_chunks, 2, &floor_bytes), GVM_OK);
    assert_int_equal(floor_bytes, 12 * MIB);
    assert_int_equal(gvmi_descriptor_check_chunks(&about, good_chunks + 1, 1, &floor_bytes),
                     GVM_E_FORMAT);
    assert_int_equal(gvmi_descriptor_check_chunks(&about, good_chunks + 2, 1, &floor_bytes), GVM_OK);
    assert_int_equal(floor_bytes, 32 * MIB);
}

static void chunks_with_one_rule_broken_are_refused(void **state)
{
    static const struct {
        const char *name;
        gvmi_descriptor_chunk second;
    } rows[] = {
        {"twice the same", {.offset_bytes = 0, .tier = GVM_TIER_DEVICE}},
        {"not whole", {.offset_bytes = 9 * MIB, .tier = GVM_TIER_DEVICE}},
        {"before the next", {.offset_bytes = 28 * MIB, .tier = GVM_TIER_DEVICE}},
        {"past the span", {.offset_bytes = 32 * MIB, .tier = GVM_TIER_DEVICE}},
        {"far past the span", {.offset_bytes = UINT64_MAX - 4 * MIB + 1, .tier = GVM_TIER_DEVICE}},
        {"newer than the share", {.offset_bytes = 8 * MIB, .stamp = 8, .tier = GVM_TIER_DEVICE}},
        {"absent", {.offset_bytes = 8 * MIB, .tier = GVM_TIER_ABSENT}},
        {"unknown tier", {.offset_bytes = 8 * MIB, .tier = 3}},
        {"unknown tier that wraps", {.offset_bytes = 8 * MIB, .tier = 257}},
        {"reserved", {.offset_bytes = 8 * MIB, .tier = GVM_TIER_DEVICE, .reserved = 1}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        gvmi_descriptor_chunk chunks[3];

        memcpy(chunks, good_chunks, sizeof chunks);
        chunks[1] = rows[i].second;
        if (check_three(chunks) != GVM_E_FORMAT)
            fail_msg("a chunk %s was not refused", rows[i].name);
    }
}

/* The share begins at 32 MiB of the owner's: edges of chunks lie at 0, 32, 64, 88, 94 and 96 of it. */
static void chunks_of_graded_ends_are_judged_by_their_sizes(void **state)
{
    static const uint64_t good[] = {32 * MIB, 64 * MIB, 88 * MIB, 94 * MIB};
    static const uint64_t bad[] = {2 * MIB, 34 * MIB, 66 * MIB, 90 * MIB, 92 * MIB, 96 * MIB};
    const gvmi_descriptor about = valid_graded();
    uint64_t floor_bytes = 0;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const gvmi_descriptor_chunk chunk = {.offset_bytes = good[i], .tier = GVM_TIER_DEVICE};

        assert_int_equal(gvmi_descriptor_check_chunks(&about, &chunk, 1, &floor_bytes), GVM_OK);
        assert_int_equal(floor_bytes, i + 1 < sizeof good / sizeof good[0] ? good[i + 1] : 96 * MIB);
        assert_int_equal(gvmi_descriptor_check_chunks(&about, &chunk, 1, &floor_bytes), GVM_E_FORMAT);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const gvmi_descriptor_chunk chunk = {.offset_bytes = bad[i], .tier = GVM_TIER_DEVICE};

        floor_bytes = 0;
        assert_int_equal(gvmi_descriptor_check_chunks(&about, &chunk, 1, &floor_bytes), GVM_E_FORMAT);
    }
}

/* ---- random damage */

static uint64_t seed;

static uint64_t draw(void)
{
    return random_next(&seed);
}

/* By adding up, from the end that is nearer. */
static bool is_graded_edge(const gvmi_descriptor *d, uint64_t offset)
{
    const uint64_t from_end = d->reserve_bytes - offset;
    const uint64_t near = offset < from_end ? offset : from_end;
    uint64_t edge = 2 * MIB;

    if (near == 0 || near % d->chunk_bytes == 0)
        return true;
    while (edge < near)
        edge *= 4;
    return edge == near && near < d->chunk_bytes;
}

static void assert_consistent(const gvmi_descriptor *d)
{
    assert_true(d->chunk_bytes >= 2 * MIB && d->chunk_bytes <= 1024 * MIB);
    assert_int_equal(d->chunk_bytes & (d->chunk_bytes - 1), 0);
    assert_true(d->span_len_bytes > 0 && d->span_offset_bytes <= d->reserve_bytes);
    assert_true(d->span_len_bytes <= d->reserve_bytes - d->span_offset_bytes);
    assert_true(d->exporter_address + d->reserve_bytes > d->exporter_address);
    assert_int_equal(d->reserve_bytes % d->chunk_bytes, 0);
    assert_true(d->chunk_count > 0);
    if (d->version == GVMI_DESCRIPTOR_VERSION) {
        assert_true(d->chunk_count <= d->span_len_bytes / d->chunk_bytes);
        assert_int_equal(d->span_offset_bytes % d->chunk_bytes, 0);
        assert_int_equal(d->span_len_bytes % d->chunk_bytes, 0);
        assert_int_equal(d->flags & ~(uint32_t)GVMI_DESCRIPTOR_SEALED, 0);
    } else {
        assert_true(is_graded_edge(d, d->span_offset_bytes));
        assert_true(is_graded_edge(d, d->span_offset_bytes + d->span_len_bytes));
        assert_true(d->chunk_count <= d->span_len_bytes / (2 * MIB));
        assert_int_equal(d->flags & ~(uint32_t)GVMI_DESCRIPTOR_SEALED, GVMI_DESCRIPTOR_GRADED);
    }
}

static void descriptor_random_damage_is_refused_or_consistent(void **state)
{
    uint64_t accepted = 0;

    (void)state;
    seed = (uint64_t)gvmi_now_ns() * 2 + 1;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < ROUNDS; i++) {
        gvmi_descriptor about = i % 2 == 0 ? valid() : valid_graded(), out;

        for (uint64_t hits = 1 + draw() % 3; hits > 0; hits--) {
            const uint64_t bit = GVMI_DESCRIPTOR_START_BYTES * 8 +
                                 draw() % ((sizeof about - GVMI_DESCRIPTOR_START_BYTES) * 8);

            ((unsigned char *)&about)[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        if (gvmi_descriptor_decode(&about, sizeof about, &out) == GVM_OK) {
            assert_consistent(&out);
            accepted++;
        }
    }
    assert_true(accepted > 0 && accepted < ROUNDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptor_valid_is_decoded_unchanged),
        cmocka_unit_test(descriptor_of_another_length_is_refused),
        cmocka_unit_test(descriptor_failure_leaves_out_untouched),
        cmocka_unit_test(descriptor_of_another_version_is_distinguished_from_garbage),
        cmocka_unit_test(descriptor_with_one_rule_broken_is_refused),
        cmocka_unit_test(descriptor_graded_is_decoded_unchanged),
        cmocka_unit_test(descriptor_graded_with_one_rule_broken_is_refused),
        cmocka_unit_test(descriptor_largest_is_accepted),
        cmocka_unit_test(chunks_in_pieces_are_judged_as_one),
        cmocka_unit_test(chunks_with_one_rule_broken_are_refused),
        cmocka_unit_test(chunks_of_graded_ends_are_judged_by_their_sizes),
        cmocka_unit_test(descriptor_random_damage_is_refused_or_consistent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
