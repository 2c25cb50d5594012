/* One keeper, several devices: an object lives on one of them, each device has its budget, a peer that
 * was granted an object reads it wherever it is.
 *
 * The keeper runs in this process. On a machine with one device the test is skipped.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gvmem/client.h>
#include <gvmem/keeper.h>
#include <gvmem/kernels.h>

#include "tests/lib/device.h"
#include "tests/lib/expect.h"
#include "tests/lib/fixture.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"
#include "tools/snapshot.h"

#define DEVICES_MAX 4
#define CHUNK_BYTES (2 * MIB)
#define BUDGET_BYTES (16 * MIB) /* of each device */
#define OBJECT_BYTES (12 * MIB) /* so one fits, and two do not */
#define NUMBERS (OBJECT_BYTES / sizeof(double))
#define OBJECTS 2 /* on each device */

typedef struct fixture {
    gvm_keeper *server;
    gvm_client *keeper;
    int32_t count;
    gvm_device *devices[DEVICES_MAX];
    gvm_object *objects[DEVICES_MAX][OBJECTS];
    uint64_t checksums[DEVICES_MAX][OBJECTS];
    snapshot_copy *snapshot;
} fixture;

static fixture w;

static bool begin(void)
{
    const int32_t none[] = {0}; /* keeper_lending.c is about lending */
    const gvm_keeper_options options = {.struct_size = sizeof options,
                                        .path = "",
                                        .lenders = none,
                                        .device_budget_bytes = BUDGET_BYTES,
                                        .host_budget_bytes = 256 * MIB};
    int fd = -1;

    for (int32_t d = 0; d < w.count; d++)
        if (!expect_gvm_ok(gvm_device_open(d, &w.devices[d]), "opening a device"))
            return false;
    return expect_gvm_ok(gvm_keeper_start(&options, &w.server), "starting a keeper") &&
           expect_gvm_ok(gvm_keeper_open_socket(w.server, &fd), "a socket") &&
           expect_gvm_ok(gvm_client_adopt(fd, &w.keeper), "connecting");
}

static bool make(int32_t device, int index)
{
    const gvm_object_options options = {.struct_size = sizeof options,
                                        .chunk_bytes = CHUNK_BYTES,
                                        .size_bytes = OBJECT_BYTES,
                                        .device = device};
    gvm_object **object = &w.objects[device][index];
    gvm_lease lease;
    char name[40];

    snprintf(name, sizeof name, "/devices/%d/%d", (int)device, index);
    return expect_gvm_ok(gvm_object_create(w.keeper, name, OBJECT_BYTES, &options, object), name) &&
           expect_gvm_ok(gvm_object_acquire(*object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease),
                         "acquire to write") &&
           expect_gvm_ok(gvm_kernel_fill_random_f64(w.devices[device], lease.address, NUMBERS, 0,
                                                    (uint64_t)(10 * device + index), NULL),
                         "fill") &&
           expect_gvm_ok(gvm_kernel_checksum(w.devices[device], lease.address, OBJECT_BYTES, NULL,
                                             &w.checksums[device][index]),
                         "checksum") &&
           expect_gvm_ok(gvm_object_release(*object, &lease), "release");
}

/* As the device `reader` sees it. */
static bool holds(int32_t device, int index, int32_t reader)
{
    const gvm_acquire_options options = {.struct_size = sizeof options, .hint = GVM_HINT_HOT};
    gvm_object *object = w.objects[device][index];
    uint64_t checksum = 0;
    gvm_lease lease;

    return expect_gvm_ok(gvm_object_acquire(object, GVM_LEASE_READ, &options, GVM_FOREVER, &lease),
                         "acquire to read") &&
           expect_gvm_ok(
               gvm_kernel_checksum(w.devices[reader], lease.address, OBJECT_BYTES, NULL, &checksum),
               "checksum") &&
           expect_gvm_ok(gvm_object_release(object, &lease), "release") &&
           EXPECT(checksum == w.checksums[device][index]);
}

static bool look(void)
{
    snapshot_free(w.snapshot);
    w.snapshot = NULL;
    return expect_gvm_ok(snapshot_take(w.keeper, &w.snapshot), "snapshot");
}

static bool objects_live_on_their_device(void)
{
    bool fine = true;

    for (int32_t d = 0; d < w.count && fine; d++)
        for (int i = 0; i < OBJECTS && fine; i++)
            fine = make(d, i);
    if (!fine || !look() || !EXPECT(w.snapshot->keeper.devices == (uint32_t)w.count))
        return false;
    for (int32_t d = 0; d < w.count; d++)
        fine = EXPECT(w.snapshot->devices[d].objects == OBJECTS) && fine;
    for (uint32_t i = 0; i < w.snapshot->keeper.objects; i++) {
        int device = -1;

        fine = EXPECT(sscanf(w.snapshot->objects[i].name, "/devices/%d/", &device) == 1) &&
               EXPECT(w.snapshot->objects[i].device == device) && fine;
    }
    return fine;
}

static bool each_device_has_its_budget(void)
{
    bool fine = true;

    for (int round = 0; round < 3; round++)
        for (int32_t d = 0; d < w.count; d++)
            for (int i = 0; i < OBJECTS; i++)
                fine = holds(d, i, d) && fine;
    if (!look())
        return false;
    for (int32_t d = 0; d < w.count; d++) {
        const gvm_keeper_device_info *info = &w.snapshot->devices[d];

        fine = EXPECT(info->resident_bytes + info->free_bytes + info->held_bytes <= BUDGET_BYTES) &&
               EXPECT(info->resident_bytes + info->host_backed_bytes == OBJECTS * OBJECT_BYTES) &&
               EXPECT(info->resident_bytes > 0) && EXPECT(info->evicted_bytes > 0) &&
               EXPECT(info->promoted_bytes > 0) && fine;
    }
    return fine;
}

/* Pressure on one device moves nothing of another. */
static bool devices_do_not_disturb_each_other(void)
{
    uint64_t evictions;
    bool fine;

    if (!look())
        return false;
    evictions = w.snapshot->devices[1].evictions;
    fine = holds(0, 0, 0) && holds(0, 1, 0) && holds(0, 0, 0) && holds(0, 1, 0);
    return fine && look() && EXPECT(w.snapshot->devices[1].evictions == evictions);
}

static bool peer_that_was_granted_reads_it_wherever_it_is(void)
{
    uint64_t evicted = 0;
    gvm_status status = gvm_object_grant(w.objects[0][0], w.devices[1], GVM_ACCESS_READ);

    if (status == GVM_E_NOTSUP) {
        printf("# these devices are no peers\n");
        return true;
    }
    return expect_gvm_ok(status, "grant") && holds(0, 0, 1) &&
           expect_gvm_ok(gvm_client_evict(w.keeper, "/devices/0/0", GVM_BYTES_UNLIMITED, &evicted),
                         "evict") &&
           EXPECT(evicted == OBJECT_BYTES) && holds(0, 0, 1) && holds(0, 1, 0) && holds(0, 0, 1);
}

static bool everything_is_given_back(void)
{
    bool fine = true;

    snapshot_free(w.snapshot);
    w.snapshot = NULL;
    for (int32_t d = 0; d < w.count; d++)
        for (int i = 0; i < OBJECTS; i++) {
            gvm_object_close(w.objects[d][i]);
            w.objects[d][i] = NULL;
        }
    if (look())
        for (int32_t d = 0; d < w.count; d++)
            fine = EXPECT(w.snapshot->devices[d].resident_bytes == 0) &&
                   EXPECT(w.snapshot->devices[d].objects == 0) && fine;
    snapshot_free(w.snapshot);
    gvm_client_close(w.keeper);
    gvm_keeper_stop(w.server);
    for (int32_t d = 0; d < w.count; d++)
        gvm_device_close(w.devices[d]);
    return fine;
}

int main(void)
{
    fixture_machine_default("devices=2,memory=256MiB,sms=2");
    fixture_raise_fd_limit();
    memory_watch();
    if (!expect_gvm_ok(gvm_device_count(&w.count), "counting devices"))
        return 2;
    if (w.count < 2) {
        printf("1..0 # SKIP there is one device\n");
        return 0;
    }
    if (w.count > DEVICES_MAX)
        w.count = DEVICES_MAX;
    if (!begin()) {
        printf("Bail out! no keeper\n");
        return 2;
    }
    tap_result(objects_live_on_their_device(), "objects_live_on_their_device");
    tap_result(each_device_has_its_budget(), "each_device_has_its_budget");
    tap_result(devices_do_not_disturb_each_other(), "devices_do_not_disturb_each_other");
    tap_result(peer_that_was_granted_reads_it_wherever_it_is(),
               "peer_that_was_granted_reads_it_wherever_it_is");
    tap_result(everything_is_given_back(), "everything_is_given_back");
    memory_watch_end();
    return tap_finish();
}
