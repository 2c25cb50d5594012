/* tests/unit/region_fixture.h - a space with 2 MiB for frames, and a collection whose kernel is the test.
 *
 * The device's side is C too and the software GPU's memory can be touched: the test maps as a kernel of one thread does. Each test
 * runs in a child, since a driver is started once a process.
 */
#ifndef REGION_FIXTURE_H
#define REGION_FIXTURE_H

#include "tests/unit/unit.h"

#include <gvmem/device/region.h>
#include <gvmem/gvmem.h>

#include "base/registry.h"
#include "region/region.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"

#ifndef FRAMES
#define FRAMES 8u
#endif
#define REGION (2 * MIB / FRAMES)
#define COUNT (4 * FRAMES)

static gvm_device *device;
static gvm_space *space;
static gvm_collection *collection;
static gvm_region_view view;

/* Each region holds its number, if it exists. */
static bool start_with(gvm_space_options options, gvm_collection_options details)
{
    void *pointer;

    fixture_machine("devices=1,memory=64MiB,sms=2");
    if (options.budget_bytes == 0)
        options.budget_bytes = 2 * MIB;
    if (gvm_device_open(0, &device) != GVM_OK || gvm_space_create(device, &options, &space) != GVM_OK ||
        gvm_collection_create(space, COUNT, REGION, &details, &collection) != GVM_OK)
        return false;
    for (uint32_t i = 0; i < COUNT - details.unused_count; i++) {
        if (gvm_region_map_cpu(collection, i, GVM_REGION_WRITE, &pointer) != GVM_OK)
            return false;
        *(uint32_t *)pointer = i;
        if (gvm_region_unmap_cpu(collection, i) != GVM_OK)
            return false;
    }
    return gvm_space_sync(space, NULL) == GVM_OK &&
           gvm_collection_get_view(collection, &view) == GVM_OK;
}

/* Nothing is left. */
static bool stop(void)
{
    gvm_space_destroy(space);
    gvm_device_close(device);
    return gvmi_registry_count(GVMI_KIND_SPACE) == 0 &&
           gvmi_registry_count(GVMI_KIND_COLLECTION) == 0 &&
           gvmi_registry_count(GVMI_KIND_BUFFER) == 0;
}

static bool is_remote(const void *pointer)
{
    return gvm_region_slot(&view, pointer) >= view.home;
}

static bool last_error_has(const char *text)
{
    gvm_error error;

    gvm_error_last(&error);
    return strstr(error.text, text) != NULL;
}

#endif
