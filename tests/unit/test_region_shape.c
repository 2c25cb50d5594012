/* Collections whose regions are windows of an array of two or three dimensions. The test is its own kernel, as test_region.c. Each
 * test runs in a child, since a driver is started once a process. */
#include "tests/unit/unit.h"

#include <gvmem/device/region.h>
#include <gvmem/gvmem.h>

#include "base/address.h"
#include "base/registry.h"
#include "region/region.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"

static gvm_device *device;
static gvm_space *space;
static gvm_collection *collection;
static gvm_region_view view;
static gvm_collection_info info;

/* An array: regions of this shape, count of them. */
typedef struct array {
    uint32_t count;
    gvm_region_shape shape;
} array;

static bool start(void)
{
    gvm_space_options options = gvm_space_options_init();

    fixture_machine("devices=1,memory=64MiB,sms=2");
    options.budget_bytes = 2 * MIB;
    return gvm_device_open(0, &device) == GVM_OK &&
           gvm_space_create(device, &options, &space) == GVM_OK;
}

static gvm_status make(const array *a, uint64_t region_bytes)
{
    gvm_collection_options options = gvm_collection_options_init();

    options.shape = a->shape;
    return gvm_collection_create(space, a->count, region_bytes, &options, &collection);
}

static bool start_with(const array *a)
{
    info = (gvm_collection_info){.struct_size = sizeof info};
    return start() && make(a, 0) == GVM_OK && gvm_collection_get_view(collection, &view) == GVM_OK &&
           gvm_collection_get_info(collection, &info) == GVM_OK;
}

static bool stop(void)
{
    gvm_space_destroy(space);
    gvm_device_close(device);
    return gvmi_registry_count(GVMI_KIND_SPACE) == 0 && gvmi_registry_count(GVMI_KIND_BUFFER) == 0;
}

static bool last_error_has(const char *text)
{
    gvm_error error;

    gvm_error_last(&error);
    return strstr(error.text, text) != NULL;
}

/* What a word of a region holds: its number, and where in the region it is. */
static uint32_t value(uint32_t region, uint32_t x, uint32_t y, uint32_t z)
{
    return region << 20 ^ z << 14 ^ y << 8 ^ x;
}

enum { CHECK, FILL, ADD };

/* All words of a region at an address, with its pitches. */
static bool walk(uint32_t region, void *at, uint64_t pitch, uint64_t slice_pitch, int what, uint32_t plus)
{
    for (uint32_t z = 0; z < info.shape.depth; z++)
        for (uint32_t y = 0; y < info.shape.height; y++)
            for (uint32_t x = 0; x < info.shape.width_bytes / 4; x++) {
                uint32_t *word = (uint32_t *)((char *)at + z * slice_pitch + y * pitch) + x;

                if (what == FILL)
                    *word = value(region, x, y, z);
                else if (*word != value(region, x, y, z) + plus)
                    return false;
                if (what == ADD)
                    *word += 1;
            }
    return true;
}

static bool walk_cpu(uint32_t region, uint32_t access, int what, uint32_t plus)
{
    void *at;

    return gvm_region_map_cpu(collection, region, access, &at) == GVM_OK &&
           walk(region, at, info.shape.row_pitch_bytes, info.shape.slice_pitch_bytes, what, plus) &&
           gvm_region_unmap_cpu(collection, region) == GVM_OK;
}

static bool walk_gpu(uint32_t region, void *at, int what, uint32_t plus)
{
    return at != NULL && walk(region, at, gvm_region_pitch(&view, at),
                              gvm_region_slice_pitch(&view, at), what, plus);
}

static bool fill(void)
{
    for (uint32_t i = 0; i < view.count; i++)
        if (!walk_cpu(i, GVM_REGION_WRITE, FILL, 0))
            return false;
    return gvm_space_sync(space, NULL) == GVM_OK;
}

/* ---- arrays */

/* 4 MiB of 16 strips: a row of the array is 4 KiB, one of a region 256 bytes. */
static const array strips = {16, {.width_bytes = 256, .height = 1024}};

/* 8 * 8 tiles of 512 * 96 bytes, in rows with a gap at the end. */
static const array tiles = {64, {.width_bytes = 512, .height = 96, .row_pitch_bytes = 8 * 512 + 48}};

/* 3 layers of 4 * 2 boxes, rows and slices with gaps, and the last layer half full. */
static const array boxes = {20,
                            {.width_bytes = 2032,
                             .height = 10,
                             .depth = 12,
                             .row_pitch_bytes = 4 * 2032 + 1024,
                             .slice_pitch_bytes = 25 * (4 * 2032 + 1024)}};

static const array lines = {32, {.width_bytes = 256 * KIB}};

/* ---- tests */

/* Kernels find in each region what the CPU wrote, write it, and the CPU finds that; frames are used for several regions. */
static int write_by_turns(void *arg)
{
    CHILD_EXPECT(start_with(arg) && fill());
    CHILD_EXPECT(info.frame_count < info.region_count); /* so some are evicted */
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < view.count; i++) {
            void *at = gvm_region_map(&view, i, GVM_REGION_READWRITE);

            CHILD_EXPECT(walk_gpu(i, at, ADD, 2 * round) && gvm_region_slot(&view, at) < view.home);
            gvm_region_unmap(&view, i);
        }
        CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
        for (uint32_t i = 0; i < view.count; i++)
            CHILD_EXPECT(walk_cpu(i, GVM_REGION_READWRITE, ADD, 2 * round + 1));
        CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    }
    return stop() ? 0 : 1;
}

/* Regions without a frame are used in the array itself. */
static int map_all_at_once(void *arg)
{
    void *found[64];
    uint32_t homes = 0;

    CHILD_EXPECT(start_with(arg) && fill());
    for (uint32_t i = 0; i < view.count; i++) {
        found[i] = gvm_region_map(&view, i, GVM_REGION_READWRITE);
        homes += gvm_region_slot(&view, found[i]) == view.home + i;
        CHILD_EXPECT(gvm_region_slot(&view, found[i]) < view.home ||
                     found[i] == gvmi_pointer(gvmi_region_home(collection, i)));
    }
    CHILD_EXPECT(homes == info.region_count - info.frame_count && homes > 0);
    for (uint32_t i = 0; i < view.count; i++) {
        CHILD_EXPECT(walk_gpu(i, found[i], ADD, 0));
        gvm_region_unmap(&view, i);
    }
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    for (uint32_t i = 0; i < view.count; i++)
        CHILD_EXPECT(walk_cpu(i, GVM_REGION_READ, CHECK, 1));
    return stop() ? 0 : 1;
}

/* The CPU sees one array: row 5 of all strips lies behind each other. */
static int see_one_array(void *arg)
{
    void *first, *at;

    (void)arg;
    CHILD_EXPECT(start_with(&strips) && fill());
    CHILD_EXPECT(info.shape.row_pitch_bytes == 16 * 256 &&
                 info.shape.slice_pitch_bytes == 1024 * 16 * 256 && info.region_bytes == 256 * KIB);
    CHILD_EXPECT(gvm_region_map_cpu(collection, 0, GVM_REGION_READ, &first) == GVM_OK);
    for (uint32_t x = 0; x < 1024; x++)
        CHILD_EXPECT(((uint32_t *)first)[5 * 1024 + x] == value(x / 64, x % 64, 5, 0));
    CHILD_EXPECT(gvm_region_map_cpu(collection, 3, GVM_REGION_READ, &at) == GVM_OK);
    CHILD_EXPECT((char *)at - (char *)first == 3 * 256);
    return stop() ? 0 : 1;
}

/* A window's slot says nothing of where it is; its address does. */
static int resolve_windows(void *arg)
{
    uint32_t *list;
    void **addresses;
    void *memory;

    (void)arg;
    CHILD_EXPECT(start_with(&strips) && fill());
    CHILD_EXPECT(gvm_alloc(device, 4096, &memory) == GVM_OK);
    list = memory;
    addresses = (void **)((char *)memory + 2048);
    for (uint32_t i = 0; i < 16; i++)
        list[i] = 15 - i;
    CHILD_EXPECT(gvm_region_resolve(collection, list, 16, GVM_REGION_READ, list + 16, addresses,
                                    NULL) == GVM_OK);
    CHILD_EXPECT(gvm_device_synchronize(device) == GVM_OK);
    for (uint32_t i = 0; i < 16; i++) {
        const uint32_t slot = list[16 + i];

        CHILD_EXPECT(walk_gpu(15 - i, addresses[i], CHECK, 0));
        CHILD_EXPECT(slot < view.home ? (char *)addresses[i] == (char *)gvmi_pointer(view.address) +
                                                                    slot * view.stride_bytes
                                      : slot == view.home + 15 - i);
    }
    CHILD_EXPECT(gvm_region_release(collection, list, 16, list + 16, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK && gvm_free(memory) == GVM_OK);
    return stop() ? 0 : 1;
}

static bool is_refused(gvm_region_shape shape, uint32_t count, uint64_t region_bytes, const char *text)
{
    const array a = {count, shape};

    return make(&a, region_bytes) == GVM_E_INVALID && last_error_has(text);
}

static int refuse_odd_shapes(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(is_refused((gvm_region_shape){.width_bytes = 24}, 4, 0, "multiples of 16"));
    CHILD_EXPECT(is_refused((gvm_region_shape){.width_bytes = 32, .row_pitch_bytes = 40}, 1, 0,
                            "multiples of 16"));
    CHILD_EXPECT(is_refused((gvm_region_shape){.width_bytes = 32, .slice_pitch_bytes = 40}, 1, 0,
                            "multiples of 16"));
    CHILD_EXPECT(is_refused((gvm_region_shape){.width_bytes = 32, .row_pitch_bytes = 16}, 1, 0,
                            "no room for regions 32 bytes wide"));
    CHILD_EXPECT(is_refused(
        (gvm_region_shape){
            .width_bytes = 32, .height = 4, .row_pitch_bytes = 64, .slice_pitch_bytes = 192},
        2, 0, "no room for 4 rows"));
    CHILD_EXPECT(is_refused((gvm_region_shape){.height = 2}, 2, 4096, "without a width"));
    CHILD_EXPECT(is_refused((gvm_region_shape){.width_bytes = 32, .height = 2}, 2, 65,
                            "do not have a shape of 64"));
    CHILD_EXPECT(is_refused((gvm_region_shape){.width_bytes = 1ull << 62, .height = 8}, 2, 0, ""));
    CHILD_EXPECT(is_refused((gvm_region_shape){.width_bytes = 1ull << 36, .height = 1}, 2, 0,
                            "a region has at most"));
    CHILD_EXPECT(is_refused((gvm_region_shape){.width_bytes = 32, .slice_pitch_bytes = 1ull << 46},
                            9, 0, "128 TiB") == false); /* one slice of 64 TiB that holds all */
    CHILD_EXPECT(
        is_refused((gvm_region_shape){.width_bytes = 32, .depth = 3, .slice_pitch_bytes = 1ull << 46},
                   9, 0, "128 TiB"));
    return stop() ? 0 : 1;
}

static void region_with_a_shape_is_written_by_turns(void **state)
{
    (void)state;
    assert_child_succeeds(write_by_turns, (void *)&strips);
    assert_child_succeeds(write_by_turns, (void *)&tiles);
    assert_child_succeeds(write_by_turns, (void *)&boxes);
    assert_child_succeeds(write_by_turns, (void *)&lines);
}

static void region_with_a_shape_without_a_frame_is_a_window(void **state)
{
    (void)state;
    assert_child_succeeds(map_all_at_once, (void *)&strips);
    assert_child_succeeds(map_all_at_once, (void *)&tiles);
    assert_child_succeeds(map_all_at_once, (void *)&boxes);
    assert_child_succeeds(map_all_at_once, (void *)&lines);
}

static void regions_with_a_shape_are_one_array_at_home(void **state)
{
    (void)state;
    assert_child_succeeds(see_one_array, NULL);
}

static void region_with_a_shape_is_resolved_by_its_address(void **state)
{
    (void)state;
    assert_child_succeeds(resolve_windows, NULL);
}

static void shape_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    assert_child_succeeds(refuse_odd_shapes, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(region_with_a_shape_is_written_by_turns),
        cmocka_unit_test(region_with_a_shape_without_a_frame_is_a_window),
        cmocka_unit_test(regions_with_a_shape_are_one_array_at_home),
        cmocka_unit_test(region_with_a_shape_is_resolved_by_its_address),
        cmocka_unit_test(shape_that_does_not_fit_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
