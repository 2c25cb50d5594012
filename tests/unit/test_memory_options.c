/* The members of gvm_buffer_options, gvm_import_options and gvm_appender_options that describe memory, and
 * the flags of buffers, heaps, imports and tables: each has an effect that is seen through the public
 * interface. And rows of a piece.
 *
 * tests/options.txt names the test of each option. Each test runs in a child, since a driver is started
 * once a process, on a machine of its own.
 */
#include "tests/unit/unit.h"

#include <gvmem/gvmem.h>
#include <gvmem/table.h>

#include "base/registry.h"
#include "tests/fault/fault.h"
#include "tests/lib/fixture.h"

#define RESERVE (8 * CHUNK) /* of chunks of 2 MiB, unless something else is wanted */

static gvm_device *device;

static bool start(void)
{
    fixture_machine("devices=1,memory=256MiB,sms=2");
    return gvm_device_open(0, &device) == GVM_OK;
}

static int stop(void)
{
    gvm_device_close(device);
    return 0;
}

static gvm_status make_buffer(gvm_buffer_options options, gvm_buffer **out)
{
    options.struct_size = sizeof options;
    return gvm_buffer_create(device, RESERVE, &options, out);
}

static gvm_buffer_info buffer_info(gvm_buffer *buffer)
{
    gvm_buffer_info info = {.struct_size = sizeof info};

    if (gvm_buffer_get_info(buffer, &info) != GVM_OK)
        abort();
    return info;
}

/* Committed in its first chunk, which a share holds. */
static bool make_share(gvm_buffer **buffer, gvm_share **share)
{
    return make_buffer((gvm_buffer_options){0}, buffer) == GVM_OK &&
           gvm_buffer_commit(*buffer, 0, CHUNK) == GVM_OK &&
           gvm_share_export(*buffer, 0, CHUNK, share) == GVM_OK;
}

static gvm_status import(gvm_share *share, gvm_import_options options, gvm_buffer **out)
{
    options.struct_size = sizeof options;
    return gvm_share_import(device, share, &options, out);
}

/* ---- buffers */

static int be_chunk_bytes(void *arg)
{
    gvm_buffer *usual, *given;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(make_buffer((gvm_buffer_options){0}, &usual) == GVM_OK);
    CHILD_EXPECT(buffer_info(usual).chunk_bytes == CHUNK);
    CHILD_EXPECT(make_buffer((gvm_buffer_options){.chunk_bytes = 2 * CHUNK}, &given) == GVM_OK);
    CHILD_EXPECT(buffer_info(given).chunk_bytes == 2 * CHUNK);
    CHILD_EXPECT(gvm_buffer_commit(given, 0, 1) == GVM_OK);
    CHILD_EXPECT(buffer_info(given).device_bytes == 2 * CHUNK);
    gvm_buffer_destroy(given);
    gvm_buffer_destroy(usual);
    return stop();
}

static int be_address(void *arg)
{
    gvm_buffer_options there = {0};
    gvm_buffer *large, *given, *none = NULL;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(gvm_buffer_create(device, 64 * RESERVE, NULL, &large) == GVM_OK);
    there.address = (char *)gvm_buffer_address(large) + 32 * RESERVE;
    CHILD_EXPECT(make_buffer(there, &none) == GVM_E_ADDRESS && none == NULL);
    gvm_buffer_destroy(large); /* in its middle a buffer comes to be only if that is wanted */
    CHILD_EXPECT(make_buffer(there, &given) == GVM_OK && gvm_buffer_address(given) == there.address);
    gvm_buffer_destroy(given);
    return stop();
}

static int be_unshared_buffer(void *arg)
{
    gvm_buffer *buffer;
    gvm_share *share = NULL;

    (void)arg;
    CHILD_EXPECT(start());
    for (int unshared = 0; unshared < 2; unshared++) {
        const gvm_buffer_options options = {.flags = unshared ? GVM_BUFFER_UNSHARED : 0};

        CHILD_EXPECT(make_buffer(options, &buffer) == GVM_OK);
        CHILD_EXPECT(gvm_buffer_commit(buffer, 0, CHUNK) == GVM_OK);
        CHILD_EXPECT(gvm_share_export(buffer, 0, 0, &share) == (unshared ? GVM_E_NOTSUP : GVM_OK));
        if (!unshared)
            gvm_share_destroy(share);
        gvm_buffer_destroy(buffer);
    }
    return stop();
}

/* ---- heaps */

static int be_unshared_heap(void *arg)
{
    gvm_heap *heap;
    gvm_buffer *buffer;
    gvm_share *share = NULL;
    uint64_t offset_bytes;
    void *block;

    (void)arg;
    CHILD_EXPECT(start());
    for (int unshared = 0; unshared < 2; unshared++) {
        const gvm_heap_options options = {.struct_size = sizeof options,
                                          .flags = unshared ? GVM_HEAP_UNSHARED : 0};

        CHILD_EXPECT(gvm_heap_create(device, &options, &heap) == GVM_OK);
        CHILD_EXPECT(gvm_heap_alloc(heap, CHUNK, &block) == GVM_OK);
        CHILD_EXPECT(gvm_heap_locate(heap, block, &buffer, &offset_bytes) == GVM_OK);
        CHILD_EXPECT(gvm_share_export(buffer, offset_bytes, CHUNK, &share) ==
                     (unshared ? GVM_E_NOTSUP : GVM_OK));
        if (!unshared)
            gvm_share_destroy(share);
        gvm_heap_destroy(heap);
    }
    return stop();
}

/* ---- imports */

/* A kernel that writes breaks the context: what can be read and written is tried first. */
static int be_read_only(void *arg)
{
    const gvm_import_options read_only = {.flags = GVM_IMPORT_READONLY};
    gvm_buffer *buffer, *usual, *given;
    gvm_share *share;
    uint64_t sum;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(make_share(&buffer, &share));
    CHILD_EXPECT(import(share, (gvm_import_options){0}, &usual) == GVM_OK);
    CHILD_EXPECT(buffer_info(usual).access == GVM_ACCESS_READWRITE);
    CHILD_EXPECT(gvm_kernel_fill_random_f64(device, gvm_buffer_address(usual), 1000, 0, 1, NULL) ==
                 GVM_OK);
    CHILD_EXPECT(gvm_device_synchronize(device) == GVM_OK);
    CHILD_EXPECT(import(share, read_only, &given) == GVM_OK);
    CHILD_EXPECT(buffer_info(given).access == GVM_ACCESS_READ);
    CHILD_EXPECT(gvm_kernel_checksum(device, gvm_buffer_address(given), CHUNK, NULL, &sum) == GVM_OK);
    CHILD_EXPECT(gvm_kernel_fill_random_f64(device, gvm_buffer_address(given), 1000, 0, 1, NULL) ==
                 GVM_OK);
    CHILD_EXPECT(gvm_device_synchronize(device) == GVM_E_LOST);
    return 0;
}

static int be_same_address(void *arg)
{
    const gvm_import_options same = {.flags = GVM_IMPORT_SAME_ADDRESS};
    gvm_buffer *buffer, *elsewhere, *given;
    gvm_share *share;
    void *address;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(make_share(&buffer, &share));
    address = gvm_buffer_address(buffer);
    CHILD_EXPECT(import(share, (gvm_import_options){0}, &elsewhere) == GVM_OK);
    CHILD_EXPECT(import(share, same, &given) == GVM_E_ADDRESS); /* the exporter is there */
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(import(share, same, &given) == GVM_OK && gvm_buffer_address(given) == address);
    gvm_buffer_destroy(given);
    gvm_buffer_destroy(elsewhere);
    gvm_share_destroy(share);
    return stop();
}

static int be_import_reserve(void *arg)
{
    const gvm_import_options roomy = {.reserve_bytes = 4 * CHUNK};
    gvm_buffer *buffer, *usual, *given;
    gvm_share *share, *later;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(make_share(&buffer, &share));
    CHILD_EXPECT(import(share, (gvm_import_options){0}, &usual) == GVM_OK);
    CHILD_EXPECT(import(share, roomy, &given) == GVM_OK);
    CHILD_EXPECT(buffer_info(usual).reserve_bytes == CHUNK);
    CHILD_EXPECT(buffer_info(given).reserve_bytes == 4 * CHUNK);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, 4 * CHUNK) == GVM_OK);
    CHILD_EXPECT(gvm_share_export(buffer, 0, 4 * CHUNK, &later) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_update(usual, later) == GVM_E_ADDRESS);
    CHILD_EXPECT(gvm_buffer_update(given, later) == GVM_OK);
    CHILD_EXPECT(buffer_info(given).device_bytes == 4 * CHUNK);
    gvm_share_destroy(later);
    gvm_share_destroy(share);
    gvm_buffer_destroy(given);
    gvm_buffer_destroy(usual);
    gvm_buffer_destroy(buffer);
    return stop();
}

/* ---- appenders */

/* An appender of RESERVE bytes that has begun and finished. */
static bool make_appender(gvm_appender_options options, gvm_appender **out, gvm_appender_info *info)
{
    gvm_append append = {.struct_size = sizeof append};

    options.struct_size = sizeof options;
    info->struct_size = sizeof *info;
    return gvm_appender_create(device, 64, RESERVE, &options, out) == GVM_OK &&
           gvm_appender_begin(*out, &append) == GVM_OK &&
           gvm_appender_finish(*out, NULL, NULL) == GVM_OK &&
           gvm_appender_get_info(*out, info) == GVM_OK;
}

/* What one byte in the middle of an appender's buffer takes; its ends are smaller. */
static uint64_t inner_chunk_bytes(gvm_appender *appender)
{
    uint64_t before, after;
    gvm_buffer *buffer;

    if (gvm_appender_take(appender, &buffer) != GVM_OK)
        return 0;
    before = buffer_info(buffer).device_bytes;
    if (gvm_buffer_commit(buffer, RESERVE / 2, 1) != GVM_OK)
        return 0;
    after = buffer_info(buffer).device_bytes;
    gvm_buffer_destroy(buffer);
    return after - before;
}

static int be_appender_chunks(void *arg)
{
    gvm_appender *usual, *given;
    gvm_appender_info info = {0};

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(make_appender((gvm_appender_options){0}, &usual, &info));
    CHILD_EXPECT(info.chunk_bytes == CHUNK && info.front_bytes == CHUNK);
    CHILD_EXPECT(make_appender((gvm_appender_options){.chunk_bytes = 2 * CHUNK}, &given, &info));
    CHILD_EXPECT(info.chunk_bytes == 2 * CHUNK && info.front_bytes == CHUNK);
    CHILD_EXPECT(inner_chunk_bytes(usual) == CHUNK && inner_chunk_bytes(given) == 2 * CHUNK);
    gvm_appender_destroy(given);
    gvm_appender_destroy(usual);
    return stop();
}

static int be_unshared_appender(void *arg)
{
    gvm_appender *appender;
    gvm_appender_info info = {0};
    gvm_share *share = NULL;

    (void)arg;
    CHILD_EXPECT(start());
    for (int unshared = 0; unshared < 2; unshared++) {
        const gvm_appender_options options = {.flags = unshared ? GVM_BUFFER_UNSHARED : 0};

        CHILD_EXPECT(make_appender(options, &appender, &info));
        CHILD_EXPECT(gvm_share_export(gvm_appender_buffer(appender), 0, CHUNK, &share) ==
                     (unshared ? GVM_E_NOTSUP : GVM_OK));
        if (!unshared)
            gvm_share_destroy(share);
        gvm_appender_destroy(appender);
    }
    return stop();
}

/* ---- tables */

/* The server takes the name of a column's values away: who has not opened them comes too late. */
static int be_whole_table(void *arg)
{
    static const uint32_t both[] = {0, 1};
    char token[GVM_TABLE_TOKEN_BYTES_MAX], name[GVM_NAME_BYTES_MAX];
    gvm_table *usual, *whole;
    gvm_table_info info = {.struct_size = sizeof info};
    gvm_table_data data[2];
    gvm_client *keeper;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(table_serve(token));
    CHILD_EXPECT(gvm_table_attach(token, 0, &usual) == GVM_OK);
    CHILD_EXPECT(gvm_table_attach(token, GVM_TABLE_WHOLE, &whole) == GVM_OK);
    CHILD_EXPECT(gvm_table_get_info(whole, &info) == GVM_OK);
    CHILD_EXPECT(gvm_client_connect(info.socket, &keeper) == GVM_OK);
    snprintf(name, sizeof name, "%s/1.values", info.objects);
    CHILD_EXPECT(gvm_object_drop(keeper, name) == GVM_OK);
    CHILD_EXPECT(gvm_table_acquire(usual, both, 2, NULL, GVM_FOREVER, data) == GVM_E_ABSENT);
    CHILD_EXPECT(gvm_table_acquire(whole, both, 2, NULL, -2, data) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_table_acquire(whole, both, 0, NULL, -2, data) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_table_acquire(whole, both, 2, NULL, GVM_FOREVER, data) == GVM_OK);
    CHILD_EXPECT(table_reads_well(device, data));
    CHILD_EXPECT(gvm_table_release(whole, data, 2) == GVM_OK);
    gvm_client_close(keeper);
    gvm_table_detach(whole);
    gvm_table_detach(usual);
    table_serve_end();
    CHILD_EXPECT(gvmi_registry_count(GVMI_KIND_CONNECTION) == 0 &&
                 gvmi_registry_count(GVMI_KIND_SERVER) == 0);
    (void)stop();
    CHILD_EXPECT(gvmi_registry_count(GVMI_KIND_DEVICE) == 0);
    return 0;
}

/* ---- rows */

/* Each row is filled with its number; the bytes behind it keep what was there. */
static int rows_are_apart(void *rows, uint64_t width_bytes, uint64_t count, uint64_t pitch_bytes)
{
    unsigned char bytes[8192];
    gvm_buffer *buffer;

    CHILD_EXPECT(pitch_bytes * count <= sizeof bytes && gvm_alloc_buffer(rows, &buffer) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_address(buffer) == rows);
    CHILD_EXPECT(gvm_buffer_fill(buffer, 0, pitch_bytes * count, "-", 1) == GVM_OK);
    for (unsigned char y = 0; y < count; y++)
        CHILD_EXPECT(gvm_buffer_fill(buffer, y * pitch_bytes, width_bytes, &y, 1) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_copy_out(bytes, buffer, 0, pitch_bytes * count) == GVM_OK);
    for (uint64_t i = 0; i < pitch_bytes * count; i++)
        CHILD_EXPECT(bytes[i] == (i % pitch_bytes < width_bytes ? i / pitch_bytes : '-'));
    return 0;
}

static int be_rows(void *arg)
{
    static const uint64_t widths[] = {1, 511, 512, 513, 1000};
    uint64_t pitch_bytes = 7;
    void *rows = &pitch_bytes;

    (void)arg;
    CHILD_EXPECT(start());
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        CHILD_EXPECT(gvm_alloc_pitch(device, widths[i], 5, &rows, &pitch_bytes) == GVM_OK);
        CHILD_EXPECT(pitch_bytes % 512 == 0 && pitch_bytes >= widths[i] &&
                     pitch_bytes < widths[i] + 512);
        CHILD_EXPECT(rows_are_apart(rows, widths[i], 5, pitch_bytes) == 0);
        CHILD_EXPECT(gvm_free(rows) == GVM_OK);
        CHILD_EXPECT(gvm_free(rows) == GVM_E_FOREIGN);
    }
    pitch_bytes = 7;
    rows = &pitch_bytes;
    CHILD_EXPECT(gvm_alloc_pitch(device, 1 << 20, 512, &rows, &pitch_bytes) == GVM_E_NOSPACE);
    CHILD_EXPECT(gvm_alloc_pitch(device, UINT64_MAX / 2, 4, &rows, &pitch_bytes) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_alloc_pitch(device, 513, UINT64_MAX / 600, &rows, &pitch_bytes) == GVM_E_INVALID);
    CHILD_EXPECT(pitch_bytes == 7 && rows == &pitch_bytes); /* nothing is written on failure */
    return stop();
}

CHILD_TEST(rows_of_a_piece_begin_a_pitch_apart, be_rows)
CHILD_TEST(buffer_chunk_bytes_given_is_its_chunk, be_chunk_bytes)
CHILD_TEST(buffer_address_given_is_where_it_is, be_address)
CHILD_TEST(buffer_unshared_cannot_be_exported, be_unshared_buffer)
CHILD_TEST(heap_unshared_has_blocks_that_cannot_be_exported, be_unshared_heap)
CHILD_TEST(import_read_only_faults_kernels_that_write, be_read_only)
CHILD_TEST(import_at_the_same_address_is_there_or_fails, be_same_address)
CHILD_TEST(import_reserve_given_is_room_for_updates, be_import_reserve)
CHILD_TEST(appender_chunk_bytes_given_is_its_chunk, be_appender_chunks)
CHILD_TEST(appender_unshared_cannot_be_exported, be_unshared_appender)
CHILD_TEST(table_attached_whole_outlives_its_objects_names, be_whole_table)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_a_piece_begin_a_pitch_apart),
        cmocka_unit_test(buffer_chunk_bytes_given_is_its_chunk),
        cmocka_unit_test(buffer_address_given_is_where_it_is),
        cmocka_unit_test(buffer_unshared_cannot_be_exported),
        cmocka_unit_test(heap_unshared_has_blocks_that_cannot_be_exported),
        cmocka_unit_test(import_read_only_faults_kernels_that_write),
        cmocka_unit_test(import_at_the_same_address_is_there_or_fails),
        cmocka_unit_test(import_reserve_given_is_room_for_updates),
        cmocka_unit_test(appender_chunk_bytes_given_is_its_chunk),
        cmocka_unit_test(appender_unshared_cannot_be_exported),
        cmocka_unit_test(table_attached_whole_outlives_its_objects_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
