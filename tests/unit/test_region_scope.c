/* Regions that are mapped for a statement. The test is its own kernel, as test_region.c; each test runs in a child. */
#include "tests/unit/unit.h"

#include <gvmem/device/region.h>
#include <gvmem/gvmem.h>

#include "base/registry.h"
#include "region/region.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"

#define COUNT 4u

static gvm_device *device;
static gvm_space *space;
static gvm_collection *collection;
static gvm_region_view view;

static bool start(void)
{
    gvm_space_options options = gvm_space_options_init();

    fixture_machine("devices=1,memory=64MiB,sms=2");
    options.budget_bytes = 2 * MIB;
    return gvm_device_open(0, &device) == GVM_OK &&
           gvm_space_create(device, &options, &space) == GVM_OK &&
           gvm_collection_create(space, COUNT, 4096, NULL, &collection) == GVM_OK &&
           gvm_collection_get_view(collection, &view) == GVM_OK;
}

static bool stop(void)
{
    gvm_space_destroy(space);
    gvm_device_close(device);
    return gvmi_registry_count(GVMI_KIND_SPACE) == 0;
}

/* How often kernels have a region mapped. */
static uint64_t references(uint32_t region)
{
    return ((const uint64_t *)(uintptr_t)view.words)[region] & GVM_REGION_REFERENCES;
}

/* Whether the CPU has it mapped; then it has not any more. */
static bool was_mapped_by_the_cpu(uint32_t region)
{
    return gvm_region_unmap_cpu(collection, region) == GVM_OK;
}

static int map_in_kernels(void *arg)
{
    uint32_t runs = 0;

    (void)arg;
    CHILD_EXPECT(start());
    GVM_REGION_SCOPE(uint32_t *, one, &view, 1, GVM_REGION_READWRITE)
        GVM_REGION_SCOPE_WARP(const uint32_t *, two, &view, 2, GVM_REGION_READ)
            GVM_REGION_SCOPE_BLOCK(const uint32_t *, again, &view, 1, GVM_REGION_READ) {
                CHILD_EXPECT(references(1) == 2 && references(2) == 1 && again == one && *two == 0);
                *one = 7;
                runs++;
            }
    CHILD_EXPECT(runs == 1 && references(1) == 0 && references(2) == 0);
    GVM_REGION_SCOPE(const uint32_t *, one, &view, 1, GVM_REGION_READ) {
        if (*one == 7)
            break;
        runs++;
    }
    for (uint32_t i = 0; i < COUNT; i++)
        GVM_REGION_SCOPE(const uint32_t *, each, &view, i, GVM_REGION_READ) {
            if (*each != 7)
                continue;
            runs++;
        }
    GVM_REGION_SCOPE(const uint32_t *, none, &view, COUNT, GVM_REGION_READ)
        runs += *none;
    CHILD_EXPECT(runs == 2);
    for (uint32_t i = 0; i < COUNT; i++)
        CHILD_EXPECT(references(i) == 0);
    return stop() ? 0 : 1;
}

/* Returns from inside. */
static uint32_t read_first(uint32_t region)
{
    GVM_REGION_SCOPE_CPU(const uint32_t *, words, collection, region, GVM_REGION_READ)
        return *words;
    return UINT32_MAX;
}

static int map_by_the_cpu(void *arg)
{
    gvm_error error;
    uint32_t runs = 0;

    (void)arg;
    CHILD_EXPECT(start());
    GVM_REGION_SCOPE_CPU(uint32_t *, words, collection, 3, GVM_REGION_WRITE) {
        *words = 9;
        runs++;
    }
    CHILD_EXPECT(runs == 1 && !was_mapped_by_the_cpu(3) && read_first(3) == 9 &&
                 !was_mapped_by_the_cpu(3));
    for (uint32_t i = 0; i < COUNT; i++)
        GVM_REGION_SCOPE_CPU(const uint32_t *, words, collection, i, GVM_REGION_READ) {
            if (*words == 0)
                continue;
            if (runs++ > 0)
                break;
        }
    for (uint32_t i = 0; i < COUNT; i++)
        CHILD_EXPECT(!was_mapped_by_the_cpu(i));
    CHILD_EXPECT(runs == 2 && read_first(COUNT) == UINT32_MAX);
    gvm_error_last(&error);
    CHILD_EXPECT(strstr(error.text, "there is no region 4") != NULL);
    GVM_REGION_SCOPE_CPU(const uint32_t *, words, collection, 0, GVM_REGION_READ)
        CHILD_EXPECT(*words == 0 && was_mapped_by_the_cpu(0)); /* the scope finds it unmapped */
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    GVM_REGION_SCOPE(const uint32_t *, words, &view, 3, GVM_REGION_READ)
        CHILD_EXPECT(*words == 9);
    return stop() ? 0 : 1;
}

static void region_of_a_scope_is_unmapped_by_kernels_however_it_is_left(void **state)
{
    (void)state;
    assert_child_succeeds(map_in_kernels, NULL);
}

static void region_of_a_scope_is_unmapped_by_the_cpu_however_it_is_left(void **state)
{
    (void)state;
    assert_child_succeeds(map_by_the_cpu, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(region_of_a_scope_is_unmapped_by_kernels_however_it_is_left),
        cmocka_unit_test(region_of_a_scope_is_unmapped_by_the_cpu_however_it_is_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
