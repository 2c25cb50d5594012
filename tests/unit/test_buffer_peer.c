/* memory/: chunks of a buffer in the memory of a peer. On a machine with one device the tests do nothing.
 *
 * Each test runs in a child, because a driver is started once a process. The software GPU's devices are peers or not, as the
 * test asks; a table over the driver says of single pairs that they are none.
 */
#include "tests/lib/units.h"
#include "tests/unit/unit.h"

#include <gvmem/gvmem.h>

#include "base/address.h"
#include "driver/driver.h"
#include "memory/buffer.h"
#include "tests/lib/fixture.h"

#define CHUNK (2 * MIB)
#define CHUNKS 4

static gvmi_driver table; /* the driver, with some of its calls replaced */
static const gvmi_driver *real;
static gvm_device *device, *peer;
static gvm_buffer *buffer;
static uint8_t bytes[CHUNKS * CHUNK];

/* A buffer whose chunks are filled with 1, 2, ... False in *there: the machine has one device. */
static bool start(const char *machine, bool *there)
{
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};
    int32_t count;

    fixture_machine_default("%s", machine);
    *there = gvm_device_count(&count) == GVM_OK && count > 1;
    if (!*there)
        return true;
    real = gvmi_cu;
    table = *real;
    gvmi_driver_install(&table);
    if (gvm_device_open(0, &device) != GVM_OK || gvm_device_open(1, &peer) != GVM_OK ||
        gvm_buffer_create(device, CHUNKS * CHUNK, &options, &buffer) != GVM_OK ||
        gvm_buffer_commit(buffer, 0, CHUNKS * CHUNK) != GVM_OK)
        return false;
    for (uint8_t i = 0; i < CHUNKS; i++) {
        const uint8_t pattern = (uint8_t)(i + 1);

        if (gvm_buffer_fill(buffer, i * CHUNK, CHUNK, &pattern, 1) != GVM_OK)
            return false;
    }
    return true;
}

#define START(machine) \
    do { \
        bool there; \
\
        CHILD_EXPECT(start(machine, &there)); \
        if (!there) \
            return 0; \
    } while (0)

static void stop(void)
{
    gvm_buffer_destroy(buffer);
    gvm_device_close(peer);
    gvm_device_close(device);
    gvmi_driver_install(real);
}

static bool holds(gvm_buffer *of)
{
    if (!gvmi_buffer_check(of) || gvm_buffer_copy_out(bytes, of, 0, sizeof bytes) != GVM_OK)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        if (bytes[i] != i / CHUNK + 1)
            return false;
    return true;
}

static gvm_buffer_info info(void)
{
    gvm_buffer_info full = {.struct_size = sizeof full};

    (void)!gvm_buffer_get_info(buffer, &full);
    return full;
}

static gvm_tier tier_of(uint64_t chunk)
{
    gvm_tier tier = GVM_TIER_ABSENT;

    return gvm_buffer_get_tier(buffer, chunk * CHUNK, &tier) == GVM_OK ? tier : GVM_TIER_ABSENT;
}

/* The device that the driver says a chunk's memory is on, or -1. */
static int where_is(uint64_t chunk)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.location = {.id = -1}};

    if (gvmi_cu->cuMemRetainAllocationHandle(&handle, (char *)gvm_buffer_address(buffer) +
                                                          chunk * CHUNK) != CUDA_SUCCESS)
        return -1;
    (void)gvmi_cu->cuMemGetAllocationPropertiesFromHandle(&prop, handle);
    (void)gvmi_cu->cuMemRelease(handle);
    return prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? prop.location.id : -1;
}

static int rights_of(int ordinal, uint64_t chunk)
{
    const CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
    unsigned long long flags = 77;

    return gvmi_cu->cuMemGetAccess(&flags, &location,
                                   gvmi_address(gvm_buffer_address(buffer)) + chunk * CHUNK) == CUDA_SUCCESS
               ? (int)flags
               : -1;
}

static int move_there_and_back(void *arg)
{
    uint64_t before = 0, after = 1;
    gvm_buffer_info i;

    (void)arg;
    START("devices=2,memory=64MiB,sms=2");
    CHILD_EXPECT(gvm_kernel_checksum(device, gvm_buffer_address(buffer), sizeof bytes, NULL,
                                     &before) == GVM_OK);
    i = info();
    CHILD_EXPECT(gvm_buffer_move_to_peer(buffer, CHUNK, 2 * CHUNK, peer) == GVM_OK);
    CHILD_EXPECT(info().generation > i.generation && info().moved_bytes == 2 * CHUNK);
    i = info();
    CHILD_EXPECT(i.device_bytes == 2 * CHUNK && i.peer_bytes == 2 * CHUNK && i.host_bytes == 0);
    CHILD_EXPECT(tier_of(0) == GVM_TIER_DEVICE && tier_of(1) == GVM_TIER_PEER &&
                 tier_of(2) == GVM_TIER_PEER);
    CHILD_EXPECT(where_is(0) == 0 && where_is(1) == 1 && where_is(2) == 1 && where_is(3) == 0);
    CHILD_EXPECT(gvm_kernel_checksum(device, gvm_buffer_address(buffer), sizeof bytes, NULL,
                                     &after) == GVM_OK);
    CHILD_EXPECT(before == after && holds(buffer));
    CHILD_EXPECT(gvm_buffer_move_to_peer(buffer, CHUNK, 2 * CHUNK, peer) == GVM_OK); /* again: nothing to do */
    CHILD_EXPECT(info().moved_bytes == 2 * CHUNK);
    gvm_device_close(peer); /* the buffer keeps it */
    if (gvm_buffer_move(buffer, CHUNK, CHUNK, GVM_TIER_HOST) == GVM_OK)
        CHILD_EXPECT(tier_of(1) == GVM_TIER_HOST && info().host_bytes == CHUNK && holds(buffer));
    CHILD_EXPECT(gvm_device_open(1, &peer) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_move_to_peer(buffer, 0, 4 * CHUNK, peer) == GVM_OK);
    CHILD_EXPECT(info().peer_bytes == 4 * CHUNK && holds(buffer));
    i = info();
    CHILD_EXPECT(gvm_buffer_decommit(buffer, 3 * CHUNK, CHUNK) == GVM_OK);
    CHILD_EXPECT(info().peer_bytes == 3 * CHUNK && info().generation > i.generation);
    CHILD_EXPECT(gvm_buffer_move(buffer, 0, 4 * CHUNK, GVM_TIER_DEVICE) == GVM_OK);
    i = info();
    CHILD_EXPECT(i.device_bytes == 3 * CHUNK && i.peer_bytes == 0 && where_is(2) == 0 &&
                 gvmi_buffer_check(buffer));
    CHILD_EXPECT(gvm_buffer_move_to_peer(buffer, 0, CHUNK, peer) == GVM_OK);
    stop(); /* while a chunk is there */
    return 0;
}

CHILD_TEST(chunks_moved_to_a_peer_are_read_there, move_there_and_back)

static int move_where_it_cannot(void *arg)
{
    gvm_share *share;
    gvm_buffer *import;
    gvm_buffer_info before;

    (void)arg;
    START("devices=2,memory=64MiB,sms=2");
    before = info();
    CHILD_EXPECT(gvm_buffer_move_to_peer(buffer, 0, CHUNK, device) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_buffer_move_to_peer(buffer, 0, 0, peer) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_buffer_move_to_peer(buffer, 0, CHUNKS * CHUNK + 1, peer) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_buffer_move_to_peer(buffer, 0, CHUNK, NULL) == GVM_E_FOREIGN);
    CHILD_EXPECT(gvm_buffer_move_to_peer(NULL, 0, CHUNK, peer) == GVM_E_FOREIGN);
    CHILD_EXPECT(gvm_buffer_move(buffer, 0, CHUNK, GVM_TIER_PEER) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_share_export(buffer, 0, 0, &share) == GVM_OK);
    CHILD_EXPECT(gvm_share_import(device, share, NULL, &import) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_move_to_peer(import, 0, CHUNK, peer) == GVM_E_IMPORTED);
    gvm_buffer_destroy(import);
    gvm_share_destroy(share);
    CHILD_EXPECT(info().device_bytes == before.device_bytes && info().generation == before.generation);
    stop();
    return 0;
}

CHILD_TEST(move_to_what_is_no_peer_is_refused, move_where_it_cannot)

static int be_apart(void *arg)
{
    gvm_buffer_info before;
    gvm_error error;

    (void)arg;
    fixture_machine("devices=2,memory=64MiB,peers=1,sms=2");
    START("");
    before = info();
    CHILD_EXPECT(gvm_buffer_move_to_peer(buffer, 0, CHUNKS * CHUNK, peer) == GVM_E_NOTSUP);
    CHILD_EXPECT(gvm_error_last(&error) == GVM_OK);
    CHILD_EXPECT(strcmp(error.text, "device 0 cannot reach the memory of device 1") == 0);
    CHILD_EXPECT(info().device_bytes == CHUNKS * CHUNK && info().generation == before.generation &&
                 info().moved_bytes == 0 && holds(buffer));
    stop();
    return 0;
}

CHILD_TEST(move_between_devices_apart_changes_nothing, be_apart)

/* ---- other devices */

/* Devices 1 and 2 do not reach each other. */
static CUresult part_1_and_2(int *can, CUdevice from, CUdevice to)
{
    const CUresult result = real->cuDeviceCanAccessPeer(can, from, to);

    if (from + to == 3)
        *can = 0;
    return result;
}

static int grant_and_move(void *arg)
{
    gvm_device *third;

    (void)arg;
    fixture_machine("devices=3,memory=64MiB,sms=2");
    START("");
    table.cuDeviceCanAccessPeer = part_1_and_2;
    CHILD_EXPECT(gvm_device_open(2, &third) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_grant(buffer, peer, GVM_ACCESS_READ) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_move_to_peer(buffer, 0, CHUNK, third) == GVM_E_NOTSUP);
    CHILD_EXPECT(info().peer_bytes == 0);
    CHILD_EXPECT(gvm_buffer_move_to_peer(buffer, CHUNK, CHUNK, peer) == GVM_OK);
    CHILD_EXPECT(rights_of(0, 1) == GVM_ACCESS_READWRITE && rights_of(1, 1) == GVM_ACCESS_READ);
    CHILD_EXPECT(rights_of(0, 0) == GVM_ACCESS_READWRITE && rights_of(1, 0) == GVM_ACCESS_READ);
    CHILD_EXPECT(gvm_buffer_grant(buffer, peer, GVM_ACCESS_NONE) == GVM_OK);
    CHILD_EXPECT(rights_of(0, 1) == GVM_ACCESS_READWRITE && rights_of(1, 1) == GVM_ACCESS_NONE);
    CHILD_EXPECT(gvm_buffer_grant(buffer, third, GVM_ACCESS_READ) == GVM_E_NOTSUP); /* of chunk 1 */
    CHILD_EXPECT(gvm_buffer_move_to_peer(buffer, CHUNK, 2 * CHUNK, third) ==
                 GVM_OK); /* also from one to the other */
    CHILD_EXPECT(where_is(1) == 2 && info().peer_bytes == 2 * CHUNK && holds(buffer));
    CHILD_EXPECT(gvm_buffer_grant(buffer, third, GVM_ACCESS_READWRITE) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_grant(buffer, peer, GVM_ACCESS_READ) == GVM_E_NOTSUP);
    CHILD_EXPECT(gvm_buffer_seal(buffer) == GVM_OK);
    CHILD_EXPECT(rights_of(0, 2) == GVM_ACCESS_READ && rights_of(2, 2) == GVM_ACCESS_READ);
    CHILD_EXPECT(gvm_buffer_move(buffer, 0, CHUNKS * CHUNK, GVM_TIER_DEVICE) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_grant(buffer, peer, GVM_ACCESS_READ) == GVM_OK && holds(buffer));
    gvm_device_close(third);
    stop();
    return 0;
}

CHILD_TEST(grants_stay_and_are_looked_at, grant_and_move)

/* ---- a peer that is full */

static int fill_peer(void *arg)
{
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};
    gvm_device_info about = {.struct_size = sizeof about};
    gvm_buffer_info before;
    gvm_buffer *full;
    gvm_error error;

    (void)arg;
    fixture_machine("devices=2,memory=64MiB,sms=2");
    START("");
    CHILD_EXPECT(gvm_device_get_info(peer, &about) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_create(peer, about.free_bytes, &options, &full) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_commit(full, 0, about.free_bytes - 2 * CHUNK) == GVM_OK);
    before = info();
    CHILD_EXPECT(gvm_buffer_move_to_peer(buffer, 0, CHUNKS * CHUNK, peer) == GVM_E_NOSPACE);
    CHILD_EXPECT(gvm_error_last(&error) == GVM_OK &&
                 strstr(error.text, "device 1 has no 2 MiB left") != NULL);
    CHILD_EXPECT(info().peer_bytes == 0 && info().generation == before.generation && holds(buffer));
    CHILD_EXPECT(gvm_buffer_move_to_peer(buffer, 0, 2 * CHUNK, peer) == GVM_OK && holds(buffer));
    CHILD_EXPECT(gvm_buffer_move_to_peer(buffer, 0, CHUNKS * CHUNK, peer) == GVM_E_NOSPACE &&
                 holds(buffer));
    CHILD_EXPECT(info().peer_bytes == 2 * CHUNK);
    gvm_buffer_destroy(full);
    CHILD_EXPECT(gvm_buffer_move_to_peer(buffer, 0, CHUNKS * CHUNK, peer) == GVM_OK && holds(buffer));
    CHILD_EXPECT(info().peer_bytes == CHUNKS * CHUNK);
    stop();
    return 0;
}

CHILD_TEST(peer_that_is_full_loses_nothing, fill_peer)

/* ---- beyond the process */

static int share_moved(void *arg)
{
    gvm_buffer_info i = {.struct_size = sizeof i};
    gvm_share *share;
    gvm_buffer *import;

    (void)arg;
    START("devices=2,memory=64MiB,sms=2");
    CHILD_EXPECT(gvm_buffer_move_to_peer(buffer, CHUNK, CHUNK, peer) == GVM_OK);
    CHILD_EXPECT(gvm_share_export(buffer, 0, 0, &share) == GVM_OK);
    CHILD_EXPECT(gvm_share_import(device, share, NULL, &import) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_get_info(import, &i) == GVM_OK);
    CHILD_EXPECT(i.device_bytes == CHUNKS * CHUNK && i.peer_bytes == 0 && holds(import));
    gvm_buffer_destroy(import);
    gvm_share_destroy(share);
    stop();
    return 0;
}

CHILD_TEST(importer_finds_chunks_of_a_peer_on_a_device, share_moved)

static int ask_as_before(void *arg)
{
    union {
        gvm_buffer_info info;
        uint8_t bytes[sizeof(gvm_buffer_info)];
    } old;
    const size_t old_bytes = offsetof(gvm_buffer_info, peer_bytes);

    (void)arg;
    START("devices=2,memory=64MiB,sms=2");
    memset(&old, 0x55, sizeof old);
    old.info.struct_size = old_bytes;
    CHILD_EXPECT(gvm_buffer_get_info(buffer, &old.info) == GVM_OK);
    CHILD_EXPECT(old.info.device_bytes == CHUNKS * CHUNK && old.bytes[old_bytes] == 0x55);
    stop();
    return 0;
}

CHILD_TEST(program_built_before_peers_is_answered, ask_as_before)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_moved_to_a_peer_are_read_there),
        cmocka_unit_test(move_to_what_is_no_peer_is_refused),
        cmocka_unit_test(move_between_devices_apart_changes_nothing),
        cmocka_unit_test(grants_stay_and_are_looked_at),
        cmocka_unit_test(peer_that_is_full_loses_nothing),
        cmocka_unit_test(importer_finds_chunks_of_a_peer_on_a_device),
        cmocka_unit_test(program_built_before_peers_is_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
