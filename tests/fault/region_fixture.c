/* Spaces and collections of regions, for scenarios. Kernels of the library have written two of eight regions, the CPU one, and
 * no sync has passed that on yet, unless the row wants it. */
#include <string.h>

#include <gvmem/device/region.h>
#include <gvmem/region_object.h>

#include "region/region.h"
#include "tests/fault/fault.h"

#define REGION_BYTES FAULT_REGION_BYTES
#define REGIONS FAULT_REGIONS
#define WRITTEN 2u /* 0 and 1, by kernels */
#define BY_CPU 4u
#define CPU_BYTE 0x4d

static const gvm_collection_options cleaned = {
    .struct_size = sizeof cleaned, .clean_low = 50, .clean_high = 100};

/* What the row's operation has begun, in this attempt or in the one before. */
static bool is_mapped, is_resolved, was_lost;

static gvm_status run_list(fixture *w, uint32_t access, bool release)
{
    uint32_t *list = gvm_buffer_address(w->list);
    void **addresses = (void **)(list + 4 * REGIONS);

    return release ? gvm_region_release(w->collection, list, WRITTEN, NULL, NULL)
                   : gvm_region_resolve(w->collection, list, WRITTEN, access, list + REGIONS,
                                        addresses, NULL);
}

/* Resolved, written by kernels that cannot map, released. */
static bool write_by_kernels(fixture *w)
{
    void *addresses[WRITTEN];
    const uint64_t at = 4 * REGIONS * sizeof(uint32_t);

    if (run_list(w, GVM_REGION_READWRITE, false) != GVM_OK ||
        gvm_device_synchronize(w->device) != GVM_OK ||
        gvm_buffer_copy_out(addresses, w->list, at, sizeof addresses) != GVM_OK)
        return false;
    for (uint32_t i = 0; i < WRITTEN; i++)
        if (gvm_kernel_fill_random_f64(w->device, addresses[i], REGION_BYTES / 8, 0, 7 + i, NULL) !=
                GVM_OK ||
            gvm_kernel_checksum(w->device, addresses[i], REGION_BYTES, NULL, &w->sums[i]) != GVM_OK)
            return false;
    return run_list(w, 0, true) == GVM_OK && gvm_device_synchronize(w->device) == GVM_OK;
}

static bool write_by_cpu(fixture *w)
{
    void *row;

    if (gvm_region_map_cpu(w->collection, BY_CPU, GVM_REGION_WRITE, &row) != GVM_OK)
        return false;
    memset(row, CPU_BYTE, REGION_BYTES);
    return gvm_region_unmap_cpu(w->collection, BY_CPU) == GVM_OK;
}

bool region_make(fixture *w, unsigned needs)
{
    const gvm_space_options options = {
        .struct_size = sizeof options, .budget_bytes = 2 * CHUNK, .flags = GVM_SPACE_CHECK};
    uint32_t list[REGIONS];

    is_mapped = is_resolved = false;
    for (uint32_t i = 0; i < REGIONS; i++)
        list[i] = i;
    if (gvm_space_create(w->device, &options, &w->space) != GVM_OK ||
        gvm_collection_create(w->space, REGIONS, REGION_BYTES, &cleaned, &w->collection) != GVM_OK ||
        gvm_buffer_create(w->device, CHUNK, NULL, &w->list) != GVM_OK ||
        gvm_buffer_commit(w->list, 0, CHUNK) != GVM_OK ||
        gvm_buffer_copy_in(w->list, 0, list, sizeof list) != GVM_OK || !write_by_kernels(w) ||
        !write_by_cpu(w))
        return false;
    if ((needs & NEEDS_SYNCED) == 0)
        return true;
    return gvm_space_sync(w->space, NULL) == GVM_OK;
}

void region_end(fixture *w)
{
    gvm_buffer_destroy(w->list);
    gvm_space_destroy(w->made);
    gvm_space_destroy(w->space);
}

/* Another region is what it was, and nothing is mapped. */
bool region_intact(fixture *w)
{
    gvm_collection_info info = {.struct_size = sizeof info};
    uint8_t *row;
    bool good;

    if (w->collection == NULL)
        return true;
    if (gvm_collection_get_info(w->collection, &info) != GVM_OK || info.frame_count == 0 ||
        gvm_region_map_cpu(w->collection, REGIONS - 1, GVM_REGION_READ, (void **)&row) != GVM_OK)
        return false;
    good = row[0] == 0 && row[REGION_BYTES - 1] == 0;
    return gvm_region_unmap_cpu(w->collection, REGIONS - 1) == GVM_OK && good;
}

/* ---- operations */

gvm_status run_space_create(fixture *w)
{
    const gvm_space_options options = {.struct_size = sizeof options, .budget_bytes = CHUNK};

    return gvm_space_create(w->device, &options, &w->made);
}

gvm_status run_collection_create(fixture *w)
{
    return gvm_collection_create(w->space, REGIONS, REGION_BYTES, &cleaned, &w->other);
}

/* It may have got no frames: the next sync sees to that. */
bool shows_collection_create(fixture *w)
{
    gvm_collection_info info = {.struct_size = sizeof info};

    return gvm_space_sync(w->space, NULL) == GVM_OK &&
           gvm_collection_get_info(w->other, &info) == GVM_OK && info.frame_count > 0;
}

gvm_status run_collection_create_unused(fixture *w)
{
    const gvm_collection_options options = {.struct_size = sizeof options, .unused_count = REGIONS};

    return gvm_collection_create(w->space, REGIONS, REGION_BYTES, &options, &w->other);
}

/* How many a kernel gets; on a real GPU, where none runs, as many as there should be. */
static uint32_t create_by_kernel(fixture *w, gvm_collection *collection, uint32_t wanted, uint32_t *last)
{
    gvm_region_view view;
    uint32_t created = 0;

    if (gvm_collection_get_view(collection, &view) != GVM_OK)
        return UINT32_MAX;
    if (!runs_device_functions(w))
        return wanted;
    for (uint32_t region; gvm_region_create_warp(&view, &region); *last = region)
        created++;
    return created;
}

/* A kernel creates all, of which it has half at first. */
bool shows_collection_create_unused(fixture *w)
{
    gvm_collection_info info = {.struct_size = sizeof info};
    uint32_t last = UINT32_MAX, wanted = REGIONS;

    if (create_by_kernel(w, w->other, wanted, &last) != wanted ||
        gvm_space_sync(w->space, NULL) != GVM_OK || gvm_collection_get_info(w->other, &info) != GVM_OK)
        return false;
    return info.live_count == (last != UINT32_MAX ? REGIONS : 0);
}

gvm_status run_region_delete(fixture *w)
{
    return gvm_region_delete(w->collection, 6);
}

/* Kernels can have its number from the next sync on. */
bool shows_region_delete(fixture *w)
{
    uint32_t last = 6;

    return gvm_space_sync(w->space, NULL) == GVM_OK &&
           create_by_kernel(w, w->collection, 1, &last) == 1 && last == 6;
}

gvm_status run_space_sync(fixture *w)
{
    return gvm_space_sync(w->space, NULL);
}

/* Each side sees what the other has written. */
bool shows_space_sync(fixture *w)
{
    uint8_t *row = NULL;
    void *address;
    bool good = true;
    const uint64_t at = 4 * REGIONS * sizeof(uint32_t);
    const uint32_t by_cpu = BY_CPU;
    uint64_t sum;

    if (gvm_device_synchronize(w->device) != GVM_OK) /* what was queued may have regions mapped */
        return false;
    for (uint32_t i = 0; i < WRITTEN && good; i++)
        good = gvm_region_map_cpu(w->collection, i, GVM_REGION_READ, (void **)&row) == GVM_OK &&
               gvm_kernel_checksum_host(row, REGION_BYTES) == w->sums[i] &&
               gvm_region_unmap_cpu(w->collection, i) == GVM_OK;
    if (!good || gvm_region_map_cpu(w->collection, BY_CPU, GVM_REGION_READ, (void **)&row) != GVM_OK ||
        row[0] != CPU_BYTE || gvm_buffer_copy_in(w->list, 0, &by_cpu, sizeof by_cpu) != GVM_OK ||
        gvm_region_resolve(w->collection, gvm_buffer_address(w->list), 1, GVM_REGION_READ, NULL,
                           (void **)((uint32_t *)gvm_buffer_address(w->list) + 4 * REGIONS),
                           NULL) != GVM_OK ||
        gvm_device_synchronize(w->device) != GVM_OK ||
        gvm_buffer_copy_out(&address, w->list, at, sizeof address) != GVM_OK)
        return false;
    return gvm_kernel_checksum(w->device, address, REGION_BYTES, NULL, &sum) == GVM_OK &&
           sum == gvm_kernel_checksum_host(row, REGION_BYTES);
}

gvm_status run_region_map_cpu(fixture *w)
{
    return gvm_region_map_cpu(w->collection, 1, GVM_REGION_READWRITE, &w->row);
}

bool shows_region_map_cpu(fixture *w)
{
    return gvm_kernel_checksum_host(w->row, REGION_BYTES) == w->sums[1] &&
           gvm_region_unmap_cpu(w->collection, 1) == GVM_OK &&
           gvm_space_sync(w->space, NULL) == GVM_OK;
}

gvm_status run_region_unmap_cpu(fixture *w)
{
    void *row;
    gvm_status status = is_mapped ? GVM_OK
                                  : gvm_region_map_cpu(w->collection, 5, GVM_REGION_WRITE, &row);

    if (status != GVM_OK)
        return status;
    is_mapped = true;
    return gvm_region_unmap_cpu(w->collection, 5);
}

bool shows_region_unmap_cpu(fixture *w)
{
    return gvm_region_unmap_cpu(w->collection, 5) == GVM_E_INVALID &&
           gvm_space_sync(w->space, NULL) == GVM_OK && w->collection->changed.count == 0;
}

gvm_status run_region_resolve(fixture *w)
{
    return run_list(w, GVM_REGION_READ, false);
}

bool shows_region_resolve(fixture *w)
{
    return run_list(w, 0, true) == GVM_OK && shows_space_sync(w);
}

gvm_status run_region_release(fixture *w)
{
    gvm_status status = is_resolved ? GVM_OK : run_list(w, GVM_REGION_READ, false);

    if (status != GVM_OK)
        return status;
    is_resolved = true;
    return run_list(w, 0, true);
}

gvm_status run_region_prefetch(fixture *w)
{
    return gvm_region_prefetch(w->collection, 0, REGIONS, NULL);
}

gvm_status run_region_prefetch_by_engine(fixture *w)
{
    return gvm_region_prefetch_by_engine(w->collection, 0, REGIONS, NULL);
}

/* Frames of what failed are free again. */
bool shows_region_prefetch_by_engine(fixture *w)
{
    gvm_collection_info info = {.struct_size = sizeof info};

    return shows_space_sync(w) && gvm_collection_get_info(w->collection, &info) == GVM_OK &&
           info.fetched >= REGIONS && info.remote == 0;
}

gvm_status run_collection_get_info(fixture *w)
{
    gvm_collection_info info = {.struct_size = sizeof info};

    return gvm_collection_get_info(w->collection, &info);
}

/* ---- homes in common, in an object of the other process's keeper */

static gvm_status attach_regions(fixture *w)
{
    gvm_status status = gvm_client_connect(strrchr(foreign_token, ':') + 1, &w->loader);

    if (status == GVM_OK)
        status = gvm_object_open(w->loader, FAULT_REGIONS_NAME, 0, &w->rows);
    return status == GVM_OK ? gvm_collection_attach(w->space, w->rows, NULL, GVM_FOREVER, &w->other)
                            : status;
}

gvm_status run_collection_attach(fixture *w)
{
    gvm_status status = attach_regions(w);
    gvm_error error;

    if (status == GVM_OK)
        return status;
    gvm_error_last(&error);
    gvm_object_close(w->rows);
    gvm_client_close(w->loader);
    w->rows = NULL;
    w->loader = NULL;
    gvm_error_restore(&error);
    return status;
}

/* The CPU and a kernel have written, and no sync has told others. */
bool region_make_common(fixture *w)
{
    const uint32_t *list = gvm_buffer_address(w->list);
    void *row;

    was_lost = false;
    if (attach_regions(w) != GVM_OK ||
        gvm_region_map_cpu(w->other, BY_CPU, GVM_REGION_WRITE, &row) != GVM_OK)
        return false;
    memset(row, CPU_BYTE, REGION_BYTES);
    return gvm_region_unmap_cpu(w->other, BY_CPU) == GVM_OK &&
           gvm_region_resolve(w->other, list, 1, GVM_REGION_READWRITE, NULL, NULL, NULL) == GVM_OK &&
           gvm_region_release(w->other, list, 1, NULL, NULL) == GVM_OK &&
           gvm_device_synchronize(w->device) == GVM_OK;
}

/* Once the connection is lost each sync says so, after it has done all else. */
gvm_status run_sync_in_common(fixture *w)
{
    const gvm_status status = gvm_space_sync(w->space, NULL);

    if (status != GVM_E_KEEPER || !was_lost) {
        was_lost = status == GVM_E_KEEPER;
        return status;
    }
    return GVM_OK;
}

/* Nothing is left to be told. */
bool shows_sync_in_common(fixture *w)
{
    const uint8_t *row;
    bool good;

    if (w->other->untold.count != 0 || w->other->far.count != 0 || w->other->changed.count != 0 ||
        atomic_load(&w->other->homes->versions[BY_CPU]) == 0 ||
        atomic_load(&w->other->homes->versions[0]) == 0 ||
        gvm_region_map_cpu(w->other, BY_CPU, GVM_REGION_READ, (void **)&row) != GVM_OK)
        return false;
    good = row[0] == CPU_BYTE;
    return gvm_region_unmap_cpu(w->other, BY_CPU) == GVM_OK && good;
}
