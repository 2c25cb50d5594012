/* Which region leaves its frame: what each policy decides, change of the policy, and advice.
 *
 * The test is a kernel of one thread, so each decision is the only one possible. There are two groups of eight frames. In an empty collection
 * region i < 16 comes to group i % 2, with LRU and LIRS in pass i / 2.
 */
#define FRAMES 16u
#include "tests/unit/region_fixture.h"

static bool start(gvm_region_policy policy)
{
    gvm_collection_options details = gvm_collection_options_init();

    details.policy = policy;
    return start_with(gvm_space_options_init(), details);
}

static gvm_collection_info info_now(void)
{
    gvm_collection_info info = {.struct_size = sizeof info};

    return gvm_collection_get_info(collection, &info) == GVM_OK ? info : (gvm_collection_info){0};
}

static bool is_in_frame(uint32_t region)
{
    const uint64_t word = ((const uint64_t *)(uintptr_t)view.words)[region];

    return (word & (GVM_REGION_RESIDENT | GVM_REGION_REMOTE)) == GVM_REGION_RESIDENT;
}

/* Those from first to end, and no others of them. */
static bool are_in_frames(uint32_t first, uint32_t end, bool in_frames)
{
    for (uint32_t i = first; i < end; i++)
        if (is_in_frame(i) != in_frames)
            return false;
    return true;
}

/* Maps and unmaps regions from first to end: each has its number. */
static bool use(uint32_t first, uint32_t end)
{
    bool good = true;

    for (uint32_t i = first; i < end; i++) {
        const uint32_t *found = gvm_region_map(&view, i, GVM_REGION_READ);

        good = good && found != NULL && *found == i;
        if (found != NULL)
            gvm_region_unmap(&view, i);
    }
    return good;
}

/* Uses a region that is in no frame: for it this one leaves its frame. */
static bool evicts(uint32_t region, uint32_t victim)
{
    const uint64_t before = info_now().evicted;

    return !is_in_frame(region) && is_in_frame(victim) && use(region, region + 1) &&
           is_in_frame(region) && !is_in_frame(victim) && info_now().evicted == before + 1;
}

#define START_FULL(policy) \
    CHILD_EXPECT(start(policy) && use(0, FRAMES) && are_in_frames(0, FRAMES, true) && \
                 info_now().fetched == FRAMES)

/* ---- each policy */

static int fifo(void *arg)
{
    (void)arg;
    START_FULL(GVM_REGION_FIFO);
    for (uint32_t i = 0; i < FRAMES; i++)
        CHILD_EXPECT(use(i, i + 1) && evicts(FRAMES + i, i));
    CHILD_EXPECT(evicts(0, FRAMES));
    return stop() ? 0 : 1;
}

static int clock_hand(void *arg)
{
    (void)arg;
    START_FULL(GVM_REGION_CLOCK);
    CHILD_EXPECT(use(0, 1) && use(2, 4)); /* these are passed by, once */
    CHILD_EXPECT(evicts(16, 1) && evicts(17, 4) && evicts(18, 5));
    for (uint32_t i = 6; i < FRAMES; i++)
        CHILD_EXPECT(evicts(13 + i, i));
    CHILD_EXPECT(use(16, 17)); /* it has the frame of 1 */
    CHILD_EXPECT(evicts(30, 0) && evicts(31, 2) && evicts(32, 3) && evicts(33, 17));
    return stop() ? 0 : 1;
}

static int nfu(void *arg)
{
    (void)arg;
    START_FULL(GVM_REGION_NFU);
    for (int i = 0; i < 4; i++)
        CHILD_EXPECT(use(0, 1));
    CHILD_EXPECT(use(1, 2)); /* once counts as nothing: it is halved */
    CHILD_EXPECT(use(2, 3) && use(2, 3));
    CHILD_EXPECT(evicts(16, 1) && evicts(17, 3)); /* counters: 0 has 2, 2 has 1 */
    for (uint32_t i = 4; i < FRAMES; i++)
        CHILD_EXPECT(evicts(14 + i, i));
    CHILD_EXPECT(evicts(30, 16) && evicts(31, 2)); /* the second pass: 0 has 1 */
    for (uint32_t i = 0; i < 13; i++)
        CHILD_EXPECT(evicts(32 + i, 17 + i));
    CHILD_EXPECT(evicts(45, 0));
    return stop() ? 0 : 1;
}

static int lru(void *arg)
{
    (void)arg;
    START_FULL(GVM_REGION_LRU);
    CHILD_EXPECT(use(0, 2)); /* one of each group */
    for (uint32_t i = 2; i < FRAMES; i++)
        CHILD_EXPECT(evicts(14 + i, i));
    CHILD_EXPECT(evicts(30, 0) &&
                 evicts(31, 1)); /* seen to have been used in pass 8, in which 16 and 17 came: the first of equals */
    CHILD_EXPECT(use(17, 18) && evicts(32, 16) && evicts(33, 19));
    return stop() ? 0 : 1;
}

static int keep_what_came_first(void *arg)
{
    (void)arg;
    START_FULL(GVM_REGION_STATIC);
    CHILD_EXPECT(use(0, COUNT) && are_in_frames(0, FRAMES, true) &&
                 are_in_frames(FRAMES, COUNT, false));
    CHILD_EXPECT(info_now().fetched == FRAMES && info_now().evicted == 0);
    CHILD_EXPECT(info_now().remote == COUNT - FRAMES);
    return stop() ? 0 : 1;
}

/* What is used once passes through one frame of each group. */
static int try_what_is_new(void *arg)
{
    (void)arg;
    START_FULL(GVM_REGION_LIRS);
    CHILD_EXPECT(evicts(16, 0) &&
                 evicts(17, 1)); /* nothing is on trial: what was not used for the longest time */
    for (uint32_t i = 18; i < COUNT; i++)
        CHILD_EXPECT(evicts(i, i - 2));
    CHILD_EXPECT(are_in_frames(2, FRAMES, true));
    return stop() ? 0 : 1;
}

static int keep_what_is_used_on_trial(void *arg)
{
    (void)arg;
    START_FULL(GVM_REGION_LIRS);
    CHILD_EXPECT(evicts(16, 0) && evicts(17, 1));
    CHILD_EXPECT(use(16, 17) && evicts(18, 2)); /* 16 is on trial no more, now 18 is */
    CHILD_EXPECT(evicts(19, 17) && evicts(20, 18) && evicts(21, 19));
    CHILD_EXPECT(is_in_frame(16));
    for (uint32_t i = 0; i < 3; i++) { /* and leaves when it was not used for the longest time */
        CHILD_EXPECT(use(20 + 2 * i, 21 + 2 * i) && evicts(22 + 2 * i, 4 + 2 * i));
        CHILD_EXPECT(evicts(23 + 2 * i, 21 + 2 * i));
    }
    return stop() ? 0 : 1;
}

/* A pass: two regions come to the two groups. */
static bool both_evict(uint32_t region, uint32_t victim)
{
    return evicts(region, victim) && evicts(region + 1, victim + 1);
}

/* What others bring ahead does not evict it. */
static int keep_what_is_prefetched(void *arg)
{
    (void)arg;
    START_FULL(GVM_REGION_LIRS);
    for (uint32_t i = 16; i < 24; i++)
        gvm_region_prefetch_warp(&view, i);
    CHILD_EXPECT(are_in_frames(0, 8, false) && are_in_frames(8, 24, true));
    CHILD_EXPECT(use(16, 24) && both_evict(24, 8));
    return stop() ? 0 : 1;
}

/* 16 comes back one pass after it left; 2, the oldest of the group, was not used since pass 1. */
static int keep_what_comes_back(void *arg)
{
    (void)arg;
    START_FULL(GVM_REGION_LIRS);
    CHILD_EXPECT(evicts(16, 0) && evicts(17, 1) && evicts(18, 16) && evicts(19, 17));
    CHILD_EXPECT(evicts(16, 18));                  /* not on trial */
    CHILD_EXPECT(evicts(20, 19) && evicts(21, 2)); /* so the next one needs the frame of another */
    CHILD_EXPECT(evicts(22, 20) && evicts(23, 21));
    CHILD_EXPECT(is_in_frame(16) && is_in_frame(4));
    return stop() ? 0 : 1;
}

/* The others of the group were used since, or not long before: it is on trial again, and the next to leave. */
static int try_what_comes_back_late(void *arg)
{
    (void)arg;
    START_FULL(GVM_REGION_LIRS);
    CHILD_EXPECT(use(0, 2) && both_evict(16, 2) && both_evict(18, 16));
    CHILD_EXPECT(use(0, 2) && use(4, FRAMES));
    CHILD_EXPECT(both_evict(16, 18)); /* after one pass, in which the others were used */
    CHILD_EXPECT(both_evict(20, 16) && both_evict(22, 20));
    CHILD_EXPECT(both_evict(16, 22)); /* after two passes; the others were used three passes ago */
    CHILD_EXPECT(both_evict(24, 16) && are_in_frames(0, 2, true) && are_in_frames(4, FRAMES, true));
    CHILD_EXPECT(both_evict(26, 24) && both_evict(24, 26)); /* after one; the others five passes ago */
    CHILD_EXPECT(both_evict(26, 0) && are_in_frames(24, 26, true));
    return stop() ? 0 : 1;
}

/* Frames of regions that are mapped are passed over; where all are mapped the region is used at its home. */
static int pass_over_what_is_mapped(void *arg)
{
    const gvm_region_policy policy = *(const gvm_region_policy *)arg;
    const uint32_t *found;

    START_FULL(policy);
    for (uint32_t i = 0; i < FRAMES - 1; i++)
        CHILD_EXPECT(gvm_region_map(&view, i, GVM_REGION_READ) != NULL);
    CHILD_EXPECT(evicts(FRAMES, FRAMES - 1) && evicts(FRAMES + 1, FRAMES));
    CHILD_EXPECT(gvm_region_map(&view, FRAMES + 1, GVM_REGION_READ) != NULL);
    found = gvm_region_map(&view, FRAMES + 2, GVM_REGION_READ);
    CHILD_EXPECT(found != NULL && *found == FRAMES + 2 && is_remote(found));
    gvm_region_unmap(&view, FRAMES + 2);
    CHILD_EXPECT(are_in_frames(0, FRAMES - 1, true));
    for (uint32_t i = 0; i < FRAMES - 1; i++)
        gvm_region_unmap(&view, i);
    gvm_region_unmap(&view, FRAMES + 1);
    CHILD_EXPECT(use(0, COUNT));
    return stop() ? 0 : 1;
}

/* ---- changes */

static int change_policy(void *arg)
{
    (void)arg;
    START_FULL(GVM_REGION_LIRS);
    CHILD_EXPECT(info_now().policy == GVM_REGION_LIRS && evicts(16, 0) && evicts(17, 1));
    CHILD_EXPECT(gvm_collection_set_policy(collection, GVM_REGION_STATIC) == GVM_OK);
    CHILD_EXPECT(info_now().policy == GVM_REGION_STATIC && use(0, 2) && !is_in_frame(0) &&
                 !is_in_frame(1));
    CHILD_EXPECT(are_in_frames(2, 18, true) && info_now().evicted == 2);
    CHILD_EXPECT(gvm_collection_set_policy(collection, GVM_REGION_FIFO) == GVM_OK);
    CHILD_EXPECT(use(18, 18 + FRAMES) && are_in_frames(18, 18 + FRAMES, true));
    CHILD_EXPECT(gvm_collection_set_policy(collection, GVM_REGION_STATIC + 1) == GVM_E_INVALID);
    CHILD_EXPECT(last_error_has("no policy 6") && info_now().policy == GVM_REGION_FIFO);
    CHILD_EXPECT(gvm_collection_set_policy(NULL, GVM_REGION_FIFO) == GVM_E_FOREIGN);
    return stop() ? 0 : 1;
}

/* What a policy has noted in the records of frames is not a counter of the next one: each evicts at its first search. */
static int change_to_each_policy(void *arg)
{
    (void)arg;
    START_FULL(GVM_REGION_LIRS);
    for (int from = 0; from < GVM_REGION_STATIC; from++)
        for (int to = 0; to < GVM_REGION_STATIC; to++) {
            CHILD_EXPECT(gvm_collection_set_policy(collection, (gvm_region_policy)from) == GVM_OK);
            CHILD_EXPECT(use(0, COUNT) && use(0, COUNT));
            CHILD_EXPECT(gvm_collection_set_policy(collection, (gvm_region_policy)to) == GVM_OK);
            CHILD_EXPECT(use(0, COUNT) && info_now().remote == 0);
        }
    return stop() ? 0 : 1;
}

/* Regions that were mapped at home since find the frames that others have left. */
static int change_from_static(void *arg)
{
    (void)arg;
    START_FULL(GVM_REGION_STATIC);
    CHILD_EXPECT(use(FRAMES, COUNT) && info_now().remote == COUNT - FRAMES);
    CHILD_EXPECT(gvm_collection_set_policy(collection, GVM_REGION_CLOCK) == GVM_OK);
    CHILD_EXPECT(use(FRAMES, COUNT) && info_now().remote == COUNT - FRAMES);
    CHILD_EXPECT(info_now().fetched == COUNT);
    return stop() ? 0 : 1;
}

/* ---- advice */

static uint32_t read_by_cpu(uint32_t region)
{
    uint32_t value = UINT32_MAX;
    void *pointer;

    if (gvm_region_map_cpu(collection, region, GVM_REGION_READ, &pointer) == GVM_OK) {
        value = *(uint32_t *)pointer;
        if (gvm_region_unmap_cpu(collection, region) != GVM_OK)
            value = UINT32_MAX;
    }
    return value;
}

/* Written data comes home; what is mapped stays; freed frames are used before anything is evicted. */
static int evict_range(void *arg)
{
    const gvm_region_policy policy = *(const gvm_region_policy *)arg;
    uint32_t *written;

    START_FULL(policy);
    written = gvm_region_map(&view, 3, GVM_REGION_READWRITE);
    CHILD_EXPECT(written != NULL && gvm_region_map(&view, 5, GVM_REGION_READ) != NULL);
    *written = 77;
    gvm_region_unmap(&view, 3);
    CHILD_EXPECT(gvm_region_evict(collection, 2, 5, NULL) == GVM_OK &&
                 gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(are_in_frames(2, 5, false) && is_in_frame(5) && !is_in_frame(6));
    CHILD_EXPECT(are_in_frames(0, 2, true) && are_in_frames(7, FRAMES, true));
    CHILD_EXPECT(info_now().evicted == 4 && info_now().written == 1 && read_by_cpu(3) == 77);
    for (uint32_t i = 0; i < 4; i++) /* whatever the hand comes to before */
        CHILD_EXPECT(use(FRAMES + i, FRAMES + i + 1));
    if (policy == GVM_REGION_STATIC)
        CHILD_EXPECT(info_now().evicted == 4 && are_in_frames(FRAMES, FRAMES + 4, true));
    gvm_region_unmap(&view, 5);
    CHILD_EXPECT(gvm_region_evict(collection, 0, COUNT, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK && are_in_frames(0, COUNT, false));
    CHILD_EXPECT(use(FRAMES, 2 * FRAMES) && are_in_frames(FRAMES, 2 * FRAMES, true));
    CHILD_EXPECT(gvm_region_evict(collection, 1, COUNT, NULL) == GVM_E_INVALID &&
                 last_error_has("leave"));
    CHILD_EXPECT(gvm_region_evict(collection, 0, 0, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_region_evict(NULL, 0, 1, NULL) == GVM_E_FOREIGN);
    return stop() ? 0 : 1;
}

static gvm_region_policy each[] = {GVM_REGION_LIRS, GVM_REGION_CLOCK, GVM_REGION_LRU,
                                   GVM_REGION_FIFO, GVM_REGION_NFU,   GVM_REGION_STATIC};

#define REGION_TEST(test, fn, arg) \
    static void test(void **state) \
    { \
        (void)state; \
        assert_int_equal(run_in_child(fn, arg, false), 0); \
    }
#define EACH_POLICY_TEST(test, fn, last) \
    static void test(void **state) \
    { \
        (void)state; \
        for (int i = 0; i <= last; i++) \
            assert_int_equal(run_in_child(fn, &each[i], false), 0); \
    }

REGION_TEST(policy_fifo_evicts_what_came_first, fifo, NULL)
REGION_TEST(policy_clock_passes_by_what_was_used, clock_hand, NULL)
REGION_TEST(policy_nfu_halves_its_counters, nfu, NULL)
REGION_TEST(policy_lru_evicts_the_oldest_of_a_group, lru, NULL)
REGION_TEST(policy_static_keeps_what_came_first, keep_what_came_first, NULL)
REGION_TEST(policy_lirs_has_what_is_new_on_trial, try_what_is_new, NULL)
REGION_TEST(policy_lirs_keeps_what_is_used_on_trial, keep_what_is_used_on_trial, NULL)
REGION_TEST(policy_lirs_keeps_what_is_prefetched, keep_what_is_prefetched, NULL)
REGION_TEST(policy_lirs_keeps_what_comes_back_soon, keep_what_comes_back, NULL)
REGION_TEST(policy_lirs_has_what_comes_back_late_on_trial, try_what_comes_back_late, NULL)
EACH_POLICY_TEST(policy_passes_over_what_is_mapped, pass_over_what_is_mapped, GVM_REGION_NFU)
REGION_TEST(policy_changed_holds_at_once, change_policy, NULL)
REGION_TEST(policy_changed_forgets_what_the_last_one_noted, change_to_each_policy, NULL)
REGION_TEST(policy_changed_from_static_brings_regions_to_frames, change_from_static, NULL)
EACH_POLICY_TEST(region_evicted_leaves_its_frame_free, evict_range, GVM_REGION_STATIC)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policy_fifo_evicts_what_came_first),
        cmocka_unit_test(policy_clock_passes_by_what_was_used),
        cmocka_unit_test(policy_nfu_halves_its_counters),
        cmocka_unit_test(policy_lru_evicts_the_oldest_of_a_group),
        cmocka_unit_test(policy_static_keeps_what_came_first),
        cmocka_unit_test(policy_lirs_has_what_is_new_on_trial),
        cmocka_unit_test(policy_lirs_keeps_what_is_used_on_trial),
        cmocka_unit_test(policy_lirs_keeps_what_is_prefetched),
        cmocka_unit_test(policy_lirs_keeps_what_comes_back_soon),
        cmocka_unit_test(policy_lirs_has_what_comes_back_late_on_trial),
        cmocka_unit_test(policy_passes_over_what_is_mapped),
        cmocka_unit_test(policy_changed_holds_at_once),
        cmocka_unit_test(policy_changed_forgets_what_the_last_one_noted),
        cmocka_unit_test(policy_changed_from_static_brings_regions_to_frames),
        cmocka_unit_test(region_evicted_leaves_its_frame_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
