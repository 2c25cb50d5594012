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

#include "base/address.h"
#include "tests/proc/buffer_child.h"
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

#define EXPECT(condition) ((condition) || proc_complain(__FILE__, __LINE__, #condition))

static bool good(gvm_status status, const char *what)
{
    gvm_error error;

    if (status == GVM_OK)
        return true;
    gvm_error_last(&error);
    printf("# %s: %s: %s\n", what, gvm_status_name(status), error.text);
    return false;
}

static bool begin(void)
{
    const gvm_keeper_options options = {.struct_size = sizeof options,
                                        .path = "",
                                        .device_budget_bytes = BUDGET_BYTES,
                                        .host_budget_bytes = 256 * MIB};
    int fd = -1;

    for (int32_t d = 0; d < w.count; d++)
        if (!good(gvm_device_open(d, &w.devices[d]), "opening a device"))
            return false;
    return good(gvm_keeper_start(&options, &w.server), "starting a keeper") &&
           good(gvm_keeper_open_socket(w.server, &fd), "a socket") &&
           good(gvm_client_adopt(fd, &w.keeper), "connecting");
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
    return good(gvm_object_create(w.keeper, name, OBJECT_BYTES, &options, object), name) &&
           good(gvm_object_acquire(*object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease),
                "acquire to write") &&
           good(gvm_kernel_fill_random_f64(w.devices[device], lease.address, NUMBERS, 0,
                                           (uint64_t)(10 * device + index), NULL),
                "fill") &&
           good(gvm_kernel_checksum(w.devices[device], lease.address, OBJECT_BYTES, NULL,
                                    &w.checksums[device][index]),
                "checksum") &&
           good(gvm_object_release(*object, &lease), "release");
}

/* As the device `reader` sees it. */
static bool holds(int32_t device, int index, int32_t reader)
{
    const gvm_acquire_options options = {.struct_size = sizeof options, .hint = GVM_HINT_HOT};
    gvm_object *object = w.objects[device][index];
    uint64_t checksum = 0;
    gvm_lease lease;

    return good(gvm_object_acquire(object, GVM_LEASE_READ, &options, GVM_FOREVER, &lease),
                "acquire to read") &&
           good(gvm_kernel_checksum(w.devices[reader], lease.address, OBJECT_BYTES, NULL, &checksum),
                "checksum") &&
           good(gvm_object_release(object, &lease), "release") &&
           EXPECT(checksum == w.checksums[device][index]);
}

static bool look(void)
{
    snapshot_free(w.snapshot);
    w.snapshot = NULL;
    return good(snapshot_take(w.keeper, &w.snapshot), "snapshot");
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
    return good(status, "grant") && holds(0, 0, 1) &&
           good(gvm_client_evict(w.keeper, "/devices/0/0", GVM_BYTES_UNLIMITED, &evicted), "evict") &&
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
    proc_begin(256 * MIB);
    if (!good(gvm_device_count(&w.count), "counting devices"))
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
    proc_result(objects_live_on_their_device(), "objects_live_on_their_device");
    proc_result(each_device_has_its_budget(), "each_device_has_its_budget");
    proc_result(devices_do_not_disturb_each_other(), "devices_do_not_disturb_each_other");
    proc_result(peer_that_was_granted_reads_it_wherever_it_is(),
                "peer_that_was_granted_reads_it_wherever_it_is");
    proc_result(everything_is_given_back(), "everything_is_given_back");
    return proc_finish();
}
