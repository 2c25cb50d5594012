/* Spaces and collections of regions: what calls and plain maps do. */
#include "tests/unit/region_fixture.h"

static bool start_as(gvm_space_options options, gvm_region_policy policy)
{
    gvm_collection_options details = gvm_collection_options_init();

    details.policy = policy;
    return start_with(options, details);
}

static bool start(gvm_region_policy policy)
{
    return start_as(gvm_space_options_init(), policy);
}

static const uint32_t *read_region(uint32_t i)
{
    return gvm_region_map(&view, i, GVM_REGION_READ);
}

static gvm_collection_info info_of(gvm_collection *c)
{
    gvm_collection_info info = {.struct_size = sizeof info};

    return gvm_collection_get_info(c, &info) == GVM_OK ? info : (gvm_collection_info){0};
}

/* ---- maps */

static int read_all_regions(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start(GVM_REGION_CLOCK));
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t i = 0; i < COUNT; i++) {
            const uint32_t *found = read_region(i);

            CHILD_EXPECT(found != NULL && *found == i && !is_remote(found));
            gvm_region_unmap(&view, i);
        }
    CHILD_EXPECT(info_of(collection).frame_count == FRAMES && info_of(collection).fetched == 2 * COUNT);
    CHILD_EXPECT(info_of(collection).evicted == 2 * COUNT - FRAMES && info_of(collection).written == 0);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    return stop() ? 0 : 1;
}

static int map_more_than_fits(void *arg)
{
    const uint32_t *found[COUNT];

    (void)arg;
    CHILD_EXPECT(start(GVM_REGION_CLOCK));
    for (uint32_t i = 0; i < COUNT; i++) {
        found[i] = read_region(i);
        CHILD_EXPECT(found[i] != NULL && is_remote(found[i]) == (i >= FRAMES));
    }
    CHILD_EXPECT(info_of(collection).remote == COUNT - FRAMES);
    for (uint32_t i = 0; i < COUNT; i++) {
        CHILD_EXPECT(*found[i] == i);
        gvm_region_unmap(&view, i);
    }
    found[0] = read_region(COUNT - 1); /* it has a frame now */
    CHILD_EXPECT(found[0] != NULL && *found[0] == COUNT - 1 && !is_remote(found[0]));
    gvm_region_unmap(&view, COUNT - 1);
    return stop() ? 0 : 1;
}

static int write_and_sync(void *arg)
{
    void *pointer;

    (void)arg;
    CHILD_EXPECT(start(GVM_REGION_CLOCK));
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t *found = gvm_region_map(&view, i, GVM_REGION_READWRITE);

        CHILD_EXPECT(found != NULL && *found == i);
        *found += 100;
        gvm_region_unmap(&view, i);
    }
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    for (uint32_t i = 0; i < COUNT; i++) { /* and again, as the first sync has emptied the list */
        uint32_t *found = gvm_region_map(&view, i, GVM_REGION_READWRITE);

        CHILD_EXPECT(found != NULL && *found == i + 100);
        *found += 100;
        gvm_region_unmap(&view, i);
    }
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        CHILD_EXPECT(gvm_region_map_cpu(collection, i, GVM_REGION_READWRITE, &pointer) == GVM_OK);
        CHILD_EXPECT(*(uint32_t *)pointer == i + 200);
        *(uint32_t *)pointer = i + 300;
        CHILD_EXPECT(gvm_region_unmap_cpu(collection, i) == GVM_OK);
    }
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint32_t *found = read_region(i);

        CHILD_EXPECT(found != NULL && *found == i + 300);
        gvm_region_unmap(&view, i);
    }
    return stop() ? 0 : 1;
}

static int change_what_is_mapped(void *arg)
{
    void *pointer;

    (void)arg;
    CHILD_EXPECT(start(GVM_REGION_CLOCK));
    CHILD_EXPECT(*read_region(3) == 3);
    CHILD_EXPECT(gvm_region_map_cpu(collection, 3, GVM_REGION_WRITE, &pointer) == GVM_OK);
    *(uint32_t *)pointer = 77;
    CHILD_EXPECT(gvm_region_unmap_cpu(collection, 3) == GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_TIMEOUT && last_error_has("1 regions mapped"));
    gvm_region_unmap(&view, 3);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(*read_region(3) == 77);
    gvm_region_unmap(&view, 3);
    return stop() ? 0 : 1;
}

/* ---- budgets */

static int divide_budget(void *arg)
{
    gvm_space_options options = gvm_space_options_init();
    gvm_collection_options own = gvm_collection_options_init();
    gvm_space_info info = {.struct_size = sizeof info};
    gvm_collection *second, *third;

    (void)arg;
    options.budget_bytes = 8 * MIB;
    CHILD_EXPECT(start_as(options, GVM_REGION_CLOCK));
    CHILD_EXPECT(info_of(collection).frame_count == COUNT);
    own.budget_bytes = 2 * MIB;
    CHILD_EXPECT(gvm_collection_create(space, COUNT, REGION, &own, &second) == GVM_OK);
    CHILD_EXPECT(info_of(second).frame_count == FRAMES && info_of(collection).frame_count == 3 * FRAMES);
    CHILD_EXPECT(gvm_collection_create(space, COUNT, REGION, NULL, &third) == GVM_OK);
    CHILD_EXPECT(info_of(collection).frame_count == FRAMES && info_of(third).frame_count == FRAMES);
    CHILD_EXPECT(gvm_space_get_info(space, &info) == GVM_OK && info.frame_bytes <= 8 * MIB);
    CHILD_EXPECT(info.collection_count == 3 && info.region_count == 3 * COUNT);
    gvm_collection_destroy(second);
    gvm_collection_destroy(third);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(info_of(collection).frame_count == COUNT);
    own.budget_bytes = GVM_BYTES_NONE;
    CHILD_EXPECT(gvm_collection_create(space, COUNT, REGION, &own, &second) == GVM_OK);
    CHILD_EXPECT(info_of(second).frame_count == 0 && info_of(collection).frame_count == COUNT);
    gvm_collection_destroy(second);
    return stop() ? 0 : 1;
}

/* One that is small beside the others would have less than a chunk by its size, and so none. */
static int divide_budget_with_a_small_one(void *arg)
{
    gvm_space_options options = gvm_space_options_init();
    gvm_collection *small;

    (void)arg;
    options.budget_bytes = 6 * MIB;
    CHILD_EXPECT(start_as(options, GVM_REGION_CLOCK));
    CHILD_EXPECT(info_of(collection).frame_count == 3 * FRAMES);
    CHILD_EXPECT(gvm_collection_create(space, 2, REGION, NULL, &small) == GVM_OK);
    CHILD_EXPECT(info_of(small).frame_count == 2 && info_of(collection).frame_count == 2 * FRAMES);
    return stop() ? 0 : 1;
}

/* Frames that are mapped stay, with what they hold. */
static int shrink_what_is_mapped(void *arg)
{
    gvm_space_options options = gvm_space_options_init();
    gvm_collection *second;
    uint32_t *found[COUNT];

    (void)arg;
    options.budget_bytes = 8 * MIB;
    CHILD_EXPECT(start_as(options, GVM_REGION_CLOCK));
    for (uint32_t i = 0; i < COUNT; i++) {
        found[i] = gvm_region_map(&view, i, GVM_REGION_READWRITE);
        CHILD_EXPECT(found[i] != NULL && !is_remote(found[i]));
        *found[i] = i + 1000;
    }
    CHILD_EXPECT(gvm_collection_create(space, COUNT, REGION, NULL, &second) == GVM_OK);
    CHILD_EXPECT(info_of(second).frame_count == 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        CHILD_EXPECT(*found[i] == i + 1000);
        gvm_region_unmap(&view, i);
    }
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(info_of(second).frame_count == 2 * FRAMES &&
                 info_of(collection).frame_count == 2 * FRAMES);
    for (uint32_t i = 0; i < COUNT; i++) {
        CHILD_EXPECT(*read_region(i) == i + 1000);
        gvm_region_unmap(&view, i);
    }
    return stop() ? 0 : 1;
}

/* ---- wrong use */

static int use_wrongly_in_kernels(void *arg)
{
    gvm_space_options options = gvm_space_options_init();

    (void)arg;
    options.flags = GVM_SPACE_CHECK;
    CHILD_EXPECT(start_as(options, GVM_REGION_CLOCK));
    CHILD_EXPECT(read_region(COUNT) == NULL && read_region(GVM_REGION_NONE) == NULL);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("region 32 "));
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    gvm_region_unmap(&view, 5); /* in check mode it is as if it had not been */
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("region 5 "));
    CHILD_EXPECT(*read_region(5) == 5);
    gvm_region_unmap(&view, 5);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    return stop() ? 0 : 1;
}

/* Each sync returns the error of one. */
static int use_two_collections_wrongly(void *arg)
{
    gvm_space_options options = gvm_space_options_init();
    gvm_collection *second;
    gvm_region_view seconds_view;

    (void)arg;
    options.flags = GVM_SPACE_CHECK;
    CHILD_EXPECT(start_as(options, GVM_REGION_CLOCK));
    CHILD_EXPECT(gvm_collection_create(space, COUNT, REGION, NULL, &second) == GVM_OK);
    CHILD_EXPECT(gvm_collection_get_view(second, &seconds_view) == GVM_OK);
    CHILD_EXPECT(read_region(COUNT) == NULL &&
                 gvm_region_map(&seconds_view, COUNT + 1, GVM_REGION_READ) == NULL);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("region 33 "));
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("region 32 "));
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    return stop() ? 0 : 1;
}

/* Without check mode the region fails from then on, at once after wait_ms, and others do not. */
static int unmap_without_a_map(void *arg)
{
    gvm_space_options options = gvm_space_options_init();
    uint64_t start_ms;

    (void)arg;
    options.wait_ms = 50;
    CHILD_EXPECT(start_as(options, GVM_REGION_CLOCK));
    gvm_region_unmap(&view, 5);
    start_ms = now_ms();
    gvm_region_unmap(&view, 5);
    CHILD_EXPECT(read_region(5) == NULL);
    CHILD_EXPECT(now_ms() - start_ms >= 50);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("unmapped more often"));
    CHILD_EXPECT(*read_region(4) == 4);
    gvm_region_unmap(&view, 6); /* once, so that the next map makes up for it */
    CHILD_EXPECT(read_region(6) == NULL);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("region 6 "));
    CHILD_EXPECT(read_region(6) == NULL && *read_region(7) == 7);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("region 6 "));
    return stop() ? 0 : 1;
}

/* Another stream is being captured, which the driver lets nobody wait for the device during. */
static int destroy_beside_a_capture(void *arg)
{
    CUstream streams[2];
    CUgraph graph = NULL;

    (void)arg;
    CHILD_EXPECT(start_with((gvm_space_options)gvm_space_options_init(),
                            (gvm_collection_options)gvm_collection_options_init()));
    CHILD_EXPECT(gvmi_device_enter(device) == GVM_OK);
    for (int i = 0; i < 2; i++)
        CHILD_EXPECT(gvmi_cu->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED) ==
                 CUDA_SUCCESS);
    for (int i = 0; i < 20; i++)
        CHILD_EXPECT(gvm_region_prefetch(collection, 0, COUNT, (gvm_stream)streams[1]) == GVM_OK);
    gvm_collection_destroy(collection);
    CHILD_EXPECT(gvmi_cu->cuStreamQuery(streams[1]) == CUDA_SUCCESS);
    (void)gvmi_cu->cuStreamEndCapture(streams[0], &graph);
    gvmi_device_leave();
    return stop() ? 0 : 1;
}

static int pass_wrong_arguments(void *arg)
{
    gvm_collection_options options = gvm_collection_options_init();
    gvm_space_options of_space = gvm_space_options_init();
    gvm_collection *other = NULL;
    gvm_space *none = NULL;
    void *pointer = NULL;

    (void)arg;
    CHILD_EXPECT(start(GVM_REGION_CLOCK));
    of_space.flags = 2;
    CHILD_EXPECT(gvm_space_create(device, &of_space, &none) == GVM_E_INVALID && none == NULL);
    CHILD_EXPECT(gvm_space_create(device, NULL, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_space_create(NULL, NULL, &none) == GVM_E_FOREIGN);
    CHILD_EXPECT(gvm_collection_create(space, 0, REGION, NULL, &other) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_collection_create(space, COUNT, 0, NULL, &other) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_collection_create(space, 1ull << 27, 16, NULL, &other) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_collection_create(space, COUNT, UINT64_MAX, NULL, &other) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_collection_create(NULL, COUNT, REGION, NULL, &other) == GVM_E_FOREIGN);
    options.flags = 1;
    CHILD_EXPECT(gvm_collection_create(space, COUNT, REGION, &options, &other) == GVM_E_INVALID);
    options.flags = 0;
    options.policy = (gvm_region_policy)9;
    CHILD_EXPECT(gvm_collection_create(space, COUNT, REGION, &options, &other) == GVM_E_INVALID);
    CHILD_EXPECT(other == NULL);
    CHILD_EXPECT(gvm_region_map_cpu(collection, COUNT, GVM_REGION_READ, &pointer) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_region_map_cpu(collection, 0, 0, &pointer) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_region_map_cpu(collection, 0, 4, &pointer) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_region_map_cpu(collection, 0, GVM_REGION_READ, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(pointer == NULL);
    CHILD_EXPECT(gvm_region_unmap_cpu(collection, 0) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_region_unmap_cpu(collection, COUNT) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_region_prefetch(collection, 1, COUNT, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_region_resolve(collection, NULL, 1, GVM_REGION_READ, NULL, NULL, NULL) ==
                 GVM_E_INVALID);
    CHILD_EXPECT(gvm_space_dump(space, NULL) == GVM_E_INVALID);
    gvm_collection_destroy(collection);
    CHILD_EXPECT(gvm_collection_get_view(collection, &view) == GVM_E_FOREIGN);
    gvm_collection_destroy(collection);
    gvm_collection_destroy(NULL);
    return stop() ? 0 : 1;
}

static int dump_space(void *arg)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    (void)arg;
    CHILD_EXPECT(file != NULL && start(GVM_REGION_CLOCK));
    CHILD_EXPECT(gvm_region_map(&view, 7, GVM_REGION_READWRITE) != NULL && read_region(9) != NULL);
    gvm_region_unmap(&view, 9);
    CHILD_EXPECT(gvm_space_dump(space, file) == GVM_OK);
    fclose(file);
    CHILD_EXPECT(strstr(text, "       7  CPU shared    v1") != NULL &&
                 strstr(text, "GPU modifying v2") != NULL);
    CHILD_EXPECT(strstr(text, "       9  CPU shared    v1") != NULL &&
                 strstr(text, "GPU shared    v1") != NULL);
    CHILD_EXPECT(strstr(text, "      10  ") == NULL);
    free(text);
    return stop() ? 0 : 1;
}

CHILD_TEST(region_read_holds_what_the_cpu_wrote, read_all_regions)
CHILD_TEST(region_without_a_frame_is_used_at_its_home, map_more_than_fits)
CHILD_TEST(region_written_is_seen_by_the_other_side_after_a_sync, write_and_sync)
CHILD_TEST(region_mapped_by_a_kernel_keeps_its_data_at_a_sync, change_what_is_mapped)
CHILD_TEST(budget_is_divided_by_size_and_given_back, divide_budget)
CHILD_TEST(budget_has_a_chunk_for_a_small_collection, divide_budget_with_a_small_one)
CHILD_TEST(budget_leaves_frames_that_are_mapped, shrink_what_is_mapped)
CHILD_TEST(space_in_check_mode_reports_wrong_use_and_goes_on, use_wrongly_in_kernels)
CHILD_TEST(each_sync_says_the_error_of_one_collection, use_two_collections_wrongly)
CHILD_TEST(region_unmapped_too_often_fails_after_a_wait, unmap_without_a_map)
CHILD_TEST(collection_destroyed_beside_a_capture_waits_for_kernels, destroy_beside_a_capture)
CHILD_TEST(region_calls_with_wrong_arguments_are_refused, pass_wrong_arguments)
CHILD_TEST(space_dump_has_both_sides_of_a_region, dump_space)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(region_read_holds_what_the_cpu_wrote),
        cmocka_unit_test(region_without_a_frame_is_used_at_its_home),
        cmocka_unit_test(region_written_is_seen_by_the_other_side_after_a_sync),
        cmocka_unit_test(region_mapped_by_a_kernel_keeps_its_data_at_a_sync),
        cmocka_unit_test(budget_is_divided_by_size_and_given_back),
        cmocka_unit_test(budget_has_a_chunk_for_a_small_collection),
        cmocka_unit_test(budget_leaves_frames_that_are_mapped),
        cmocka_unit_test(space_in_check_mode_reports_wrong_use_and_goes_on),
        cmocka_unit_test(each_sync_says_the_error_of_one_collection),
        cmocka_unit_test(region_unmapped_too_often_fails_after_a_wait),
        cmocka_unit_test(collection_destroyed_beside_a_capture_waits_for_kernels),
        cmocka_unit_test(region_calls_with_wrong_arguments_are_refused),
        cmocka_unit_test(space_dump_has_both_sides_of_a_region),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
