/* What clients do of their own accord, until somebody kills them. */
#include <stdio.h>
#include <string.h>

#include "driver/driver.h"
#include "memory/device.h"
#include "tests/proc/keeper_child.h"

#define WRITE_PIECES 4u /* a lease's bytes are whole chunks, which it divides */

gvm_status life_fill(gvm_device *device, const gvm_lease *lease, uint64_t seed)
{
    gvm_status status = gvm_kernel_fill_random_f64(device, lease->address, lease->size_bytes / 8, 0,
                                                   seed, NULL);

    return status != GVM_OK ? status : gvm_device_synchronize(device);
}

gvm_status life_check(gvm_device *device, const gvm_lease *lease, uint64_t *checksum)
{
    return gvm_kernel_checksum(device, lease->address, lease->size_bytes, NULL, checksum);
}

uint64_t life_wrote_from, life_wrote_until;

/* ---- one life, from end to end */

typedef struct life {
    gvm_device *device;
    gvm_client *keeper;
    gvm_object *own, *still;
    CUstream stream;
} life;

/* In pieces, with steps between them: a process that is stopped within its lease has pieces left to write. */
static gvm_status write_in_pieces(const life *l, const gvm_lease *lease, uint64_t seed)
{
    const uint64_t piece = lease->size_bytes / WRITE_PIECES;
    gvm_status status = GVM_OK;

    for (uint64_t at = 0; at < lease->size_bytes && status == GVM_OK; at += piece) {
        status = gvm_kernel_fill_random_f64(l->device, (char *)lease->address + at, piece / 8,
                                            at / 8, seed, NULL);
        if (status == GVM_OK)
            status = gvm_device_synchronize(l->device);
    }
    return status;
}

static gvm_status visit(const life *l, gvm_object *object, gvm_lease_mode mode, gvm_hint hint,
                        uint64_t seed)
{
    const gvm_acquire_options options = {.struct_size = sizeof options, .hint = hint};
    gvm_lease lease;
    uint64_t checksum;
    gvm_status status = gvm_object_acquire(object, mode, &options, LEASE_WAIT_MS, &lease);

    if (status != GVM_OK)
        return status;
    if (mode == GVM_LEASE_WRITE) {
        const uint64_t from = step_count();

        status = write_in_pieces(l, &lease, seed);
        if (object == l->still) {
            life_wrote_from = from;
            life_wrote_until = step_count();
        }
    }
    if (status == GVM_OK)
        status = life_check(l->device, &lease, &checksum);
    if (status != GVM_OK) {
        (void)gvm_object_release(object, &lease);
        return status;
    }
    return l->stream != NULL && hint == GVM_HINT_ONCE
               ? gvm_object_release_async(object, &lease, l->stream)
               : gvm_object_release(object, &lease);
}

static gvm_status make_own(life *l)
{
    const gvm_object_options options = {
        .struct_size = sizeof options, .chunk_bytes = CHUNK_BYTES, .size_bytes = CHUNK_BYTES};
    gvm_status status = gvm_object_create(l->keeper, "/victim", 3 * CHUNK_BYTES, &options, &l->own);

    if (status == GVM_OK)
        status = visit(l, l->own, GVM_LEASE_WRITE, GVM_HINT_NONE, 3);
    if (status == GVM_OK)
        status = gvm_object_grow(l->own, 2 * CHUNK_BYTES);
    if (status == GVM_OK)
        status = visit(l, l->own, GVM_LEASE_READ, GVM_HINT_SCAN, 0);
    if (status == GVM_OK)
        status = gvm_object_set_metadata(l->own, "metadata", 8);
    return status;
}

/* Writing there means writing what is there, so that a death in the middle changes nothing. */
static gvm_status visit_still(life *l)
{
    gvm_status status = gvm_object_open(l->keeper, STILL_NAME, 0, &l->still);

    if (status == GVM_OK)
        status = visit(l, l->still, GVM_LEASE_READ, GVM_HINT_NONE, 0);
    if (status == GVM_OK)
        status = visit(l, l->still, GVM_LEASE_WRITE, GVM_HINT_ONCE, STILL_SEED);
    if (status == GVM_OK)
        status = visit(l, l->still, GVM_LEASE_READ, GVM_HINT_HOT, 0);
    return status;
}

static gvm_status move_own(life *l)
{
    gvm_snapshot *snapshot = NULL;
    gvm_status status = gvm_object_publish(l->own, "/victim/public", GVM_PUBLISH_REPLACE);

    if (status == GVM_OK)
        status = gvm_client_evict(l->keeper, "/victim/public", GVM_BYTES_UNLIMITED, NULL);
    if (status == GVM_OK)
        status = visit(l, l->own, GVM_LEASE_READ, GVM_HINT_HOT, 0);
    if (status == GVM_OK)
        status = visit(l, l->own, GVM_LEASE_WRITE, GVM_HINT_ONCE, 4);
    if (status == GVM_OK)
        status = gvm_object_seal(l->own, LEASE_WAIT_MS);
    if (status == GVM_OK)
        status = visit(l, l->own, GVM_LEASE_READ, GVM_HINT_NONE, 0);
    if (status == GVM_OK)
        status = gvm_client_get_snapshot(l->keeper, &snapshot);
    gvm_snapshot_destroy(snapshot);
    return status;
}

gvm_status life_scenario(gvm_device *device, const char *path)
{
    life l = {.device = device};
    gvm_status status = gvm_client_connect(path, &l.keeper);

    if (status == GVM_OK && gvmi_device_enter(device) == GVM_OK) {
        if (gvmi_cu->cuStreamCreate(&l.stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
            status = GVM_E_DRIVER;
        if (status == GVM_OK)
            status = make_own(&l);
        if (status == GVM_OK)
            status = visit_still(&l);
        if (status == GVM_OK)
            status = move_own(&l);
        if (l.stream != NULL) {
            gvmi_cu->cuStreamSynchronize(l.stream);
            gvmi_cu->cuStreamDestroy(l.stream);
        }
        gvmi_device_leave();
    }
    gvm_object_close(l.still);
    gvm_object_close(l.own);
    if (status == GVM_OK)
        status = gvm_object_drop(l.keeper, "/victim/public");
    gvm_client_close(l.keeper);
    return status;
}

/* ---- without end */

#define RANDOM_NAMES 3u

static gvm_status random_visit(const life *l, uint64_t *seed, gvm_object *object)
{
    const uint64_t random = random_next(seed);
    const gvm_acquire_options options = {.struct_size = sizeof options,
                                         .hint = (gvm_hint)(random >> 8 & 3)};
    gvm_lease lease;
    uint64_t checksum;
    gvm_status status = gvm_object_acquire(object, random >> 16 & 1 ? GVM_LEASE_READ : GVM_LEASE_WRITE,
                                           &options, random & 1 ? 50 : GVM_TRY, &lease);

    if (status != GVM_OK)
        return status;
    if (lease.mode == GVM_LEASE_WRITE && lease.size_bytes > 0)
        status = life_fill(l->device, &lease, random >> 32);
    if (status == GVM_OK && lease.size_bytes > 0)
        status = life_check(l->device, &lease, &checksum);
    return random >> 17 & 1 ? gvm_object_release_async(object, &lease, NULL)
                            : gvm_object_release(object, &lease);
}

/* Opens or makes an object of a few that all random clients know, does something, closes it. */
static gvm_status random_act(const life *l, uint64_t *seed)
{
    const uint64_t random = random_next(seed);
    const gvm_object_options options = {.struct_size = sizeof options,
                                        .chunk_bytes = CHUNK_BYTES,
                                        .size_bytes = random >> 8 & 1 ? CHUNK_BYTES : 0};
    gvm_object *object = NULL;
    char name[32];
    gvm_status status;

    snprintf(name, sizeof name, "/random/%u", (unsigned)(random % RANDOM_NAMES));
    status = gvm_object_open(l->keeper, name, 0, &object);
    if (status == GVM_E_ABSENT)
        status = gvm_object_create(l->keeper, name, 2 * CHUNK_BYTES, &options, &object);
    for (int i = 0; i < 4 && object != NULL && status != GVM_E_KEEPER && status != GVM_E_LOST; i++)
        switch (random_next(seed) % 8) {
        case 0: status = gvm_object_grow(object, 2 * CHUNK_BYTES); break;
        case 1: status = gvm_object_publish(object, name, GVM_PUBLISH_REPLACE); break;
        case 2: status = gvm_client_evict(l->keeper, name, GVM_BYTES_UNLIMITED, NULL); break;
        case 3: status = gvm_object_drop(l->keeper, name); break;
        default: status = random_visit(l, seed, object); break;
        }
    if (gvm_device_synchronize(l->device) != GVM_OK && status == GVM_OK)
        status = GVM_E_LOST;
    gvm_object_close(object);
    return status;
}

gvm_status life_random(gvm_device *device, const char *path, uint64_t seed)
{
    life l = {.device = device};
    gvm_status status = gvm_client_connect(path, &l.keeper);

    while (status != GVM_E_KEEPER && status != GVM_E_LOST && l.keeper != NULL)
        status = random_act(&l, &seed);
    gvm_client_close(l.keeper);
    return status;
}
