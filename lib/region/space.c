/* Spaces: creation, questions, end. */
#include <sched.h>
#include <stdlib.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/registry.h"
#include "base/size.h"
#include "base/struct.h"
#include "region/region.h"

#define WAIT_MS_DEFAULT 10000u

/* ---- creation */

static gvm_status read_space_options(const gvm_space_options *options, gvm_space_options *full)
{
    if (!gvmi_struct_in(full, sizeof *full, options, sizeof *full))
        return gvm_error_set(
            GVM_E_INVALID,
            "the options' struct_size is wrong, or they ask for what this version does not know");
    if ((full->flags & ~(uint32_t)GVM_SPACE_CHECK) != 0)
        return gvm_error_set(GVM_E_INVALID, "unknown space flags %#x", (unsigned)full->flags);
    return GVM_OK;
}

static gvm_status check_device(const gvm_device *device)
{
    if (device->info.vmm && device->info.host_tier)
        return GVM_OK;
    return gvm_error_set(GVM_E_NOTSUP,
                         "device %d has no virtual memory management with a host tier (CUDA 12.2 or "
                         "later brings it): there are no regions",
                         device->info.ordinal);
}

/* Half of what the device has, where the program does not say. */
static uint64_t choose_budget(const gvm_device *device, uint64_t asked_bytes)
{
    if (asked_bytes != 0)
        return gvmi_amount(asked_bytes, 0);
    return gvmi_device_free_bytes(device) / 2;
}

/* Once for the device: later launches are made under the space's lock. */
static gvm_status load_kernels(gvm_device *device)
{
    gvm_status status = gvmi_device_enter(device);

    if (status != GVM_OK)
        return status;
    status = gvmi_kernels_load(device, GVMI_IMAGE_region);
    gvmi_device_leave();
    return status;
}

static gvm_status make_space(gvm_device *device, const gvm_space_options *options, gvm_space **out)
{
    const gvmi_buffer_spec desk = {.reserve_bytes = GVMI_REGION_DESK_BYTES,
                                   .chunk_bytes = GVM_CHUNK_BYTES_MIN};
    gvm_space *space = calloc(1, sizeof *space);
    gvm_status status;
    gvm_error error;

    if (space == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a space");
    space->device = device;
    space->budget_bytes = choose_budget(device, options->budget_bytes);
    space->wait_ns = (options->wait_ms != 0 ? options->wait_ms : WAIT_MS_DEFAULT) * 1000000ull;
    space->flags = options->flags;
    LIST_INIT(&space->collections);
    status = gvmi_buffer_create(device, &desk, &space->desk);
    if (status != GVM_OK)
        goto fail_free;
    status = gvm_buffer_commit(space->desk, 0, GVMI_REGION_DESK_BYTES);
    if (status != GVM_OK)
        goto fail_desk;
    status = gvmi_region_make_callbacks(space);
    if (status != GVM_OK)
        goto fail_desk;
    gvmi_mutex_init(&space->lock, GVMI_RANK_SPACE);
    status = gvmi_registry_add(GVMI_KIND_SPACE, gvmi_key(space), space);
    if (status != GVM_OK)
        goto fail_destroy;
    gvmi_device_retain(device);
    *out = space;
    return GVM_OK;

fail_destroy:
    gvmi_mutex_destroy(&space->lock);
    gvmi_region_end_callbacks(space);
fail_desk:
    error = gvmi_error_save();
    gvm_buffer_destroy(space->desk);
    gvm_error_restore(&error);
fail_free:
    free(space);
    return status;
}

gvm_status gvm_space_create(gvm_device *handle, const gvm_space_options *options, gvm_space **out)
{
    GVMI_UNCANCELLED;
    gvm_space_options full;
    gvm_device *device;
    gvm_status status = read_space_options(options, &full);

    if (status == GVM_OK && out == NULL)
        status = gvm_error_set(GVM_E_INVALID, "out is NULL");
    if (status == GVM_OK)
        status = gvmi_device_hold(handle, &device);
    if (status != GVM_OK)
        return status;
    status = check_device(device);
    if (status == GVM_OK)
        status = load_kernels(device);
    if (status == GVM_OK)
        status = make_space(device, &full, out);
    gvmi_device_release(device);
    return status;
}

/* ---- questions, end */

gvm_status gvm_space_get_info(gvm_space *handle, gvm_space_info *info)
{
    GVMI_UNCANCELLED;
    gvm_space_info full = {0};
    gvm_collection *c;
    gvm_space *space;
    gvm_status status = gvmi_space_hold(handle, &space);

    if (status != GVM_OK)
        return status;
    full.budget_bytes = space->budget_bytes;
    full.frame_bytes = space->committed_bytes;
    full.metadata_bytes = space->desk->device_bytes + sizeof(gvm_callback_words);
    full.collection_count = space->collection_count;
    full.ordinal = space->device->info.ordinal;
    LIST_FOREACH(c, &space->collections, entry)
    {
        full.metadata_bytes += c->meta->device_bytes;
        full.host_bytes += c->buffer->host_bytes;
        full.region_count += c->table.count;
    }
    gvmi_space_drop(space);
    if (!gvmi_struct_out(info, &full, sizeof full, sizeof full))
        return gvm_error_set(GVM_E_INVALID, "info is NULL or its struct_size is too small");
    return GVM_OK;
}

/* Nobody can find the collections of a space that is removed from the registry but by their own handles. */
static void free_collections(gvm_space *space)
{
    gvm_collection *c;
    void *removed;

    gvmi_lock(&space->lock);
    while ((c = LIST_FIRST(&space->collections)) != NULL) {
        gvmi_unlock(&space->lock); /* for calls that hold it */
        if (gvmi_registry_remove(GVMI_KIND_COLLECTION, gvmi_key(c), &removed) == GVM_OK) {
            gvmi_device_drain(space->device);
            gvmi_lock(&space->lock);
            gvmi_collection_free_locked(removed);
            gvmi_unlock(&space->lock);
            gvmi_collection_end(removed);
            gvmi_lock(&space->lock);
        } else { /* another thread is destroying it */
            sched_yield();
            gvmi_lock(&space->lock);
        }
    }
    gvmi_unlock(&space->lock);
}

void gvm_space_destroy(gvm_space *handle)
{
    GVMI_UNCANCELLED;
    gvm_space *space;
    void *removed;
    gvm_error error;

    if (handle == NULL || gvmi_registry_remove(GVMI_KIND_SPACE, gvmi_key(handle), &removed) != GVM_OK)
        return;
    error = gvmi_error_save();
    space = removed;
    free_collections(space);
    gvmi_region_end_callbacks(space);
    gvm_buffer_destroy(space->desk);
    gvmi_device_release(space->device);
    gvmi_mutex_destroy(&space->lock);
    gvmi_registry_retire(space);
    gvm_error_restore(&error);
}
