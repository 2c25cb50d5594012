/* What kernels do with regions besides plain maps; tests/prop/region_ops.c has warps and blocks. */
#include "tests/unit/region_fixture.h"

/* In check mode. */
static bool start_without(uint32_t unused)
{
    gvm_space_options options = gvm_space_options_init();
    gvm_collection_options details = gvm_collection_options_init();

    options.flags = GVM_SPACE_CHECK;
    details.unused_count = unused;
    return start_with(options, details);
}

static bool start(void)
{
    return start_without(0);
}

/* No region is mapped by a kernel, and nothing is left. */
static bool stop_unmapped(void)
{
    const uint64_t *words = (const uint64_t *)(uintptr_t)view.words;
    bool mapped = false;

    for (uint32_t i = 0; i < COUNT; i++)
        mapped |= (words[i] & (GVM_REGION_REFERENCES | GVM_REGION_BUSY)) != 0;
    return stop() && !mapped;
}

static uint32_t references(uint32_t region)
{
    return (uint32_t)(((const uint64_t *)(uintptr_t)view.words)[region] & GVM_REGION_REFERENCES);
}

static uint64_t fetched(void)
{
    gvm_collection_info info = {.struct_size = sizeof info};

    return gvm_collection_get_info(collection, &info) == GVM_OK ? info.fetched : UINT64_MAX;
}

/* ---- by lanes */

static int map_by_lanes(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start());
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint32_t *found = gvm_region_map_lanes(&view, i, GVM_REGION_READ);

        CHILD_EXPECT(found != NULL && *found == i && references(i) == 1);
        gvm_region_unmap_lanes(&view, i);
        CHILD_EXPECT(references(i) == 0);
    }
    CHILD_EXPECT(fetched() == COUNT);
    CHILD_EXPECT(gvm_region_map_lanes(&view, GVM_REGION_NONE, GVM_REGION_READ) == NULL);
    gvm_region_unmap_lanes(&view, GVM_REGION_NONE);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_region_map_lanes(&view, COUNT, GVM_REGION_READ) == NULL);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("region 32 "));
    gvm_region_unmap_lanes(&view, 3);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("region 3 "));
    return stop_unmapped() ? 0 : 1;
}

/* What a kernel finds at the beginning of a region, or COUNT. Where there is none the next sync says so, which is this one. */
static uint32_t read_in_kernel(uint32_t region)
{
    const uint32_t *found = gvm_region_map(&view, region, GVM_REGION_READ);
    uint32_t value;

    if (found == NULL)
        return gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("does not exist")
                   ? COUNT
                   : 9999;
    value = *found;
    gvm_region_unmap(&view, region);
    return value;
}

/* ---- large regions */

/* A leader that has counted its reference. */
static gvm_region_search begin_map(uint32_t region)
{
    gvm_region_search s = {.region = region, .access = GVM_REGION_READ, .drawn = GVM_REGION_UNDRAWN};

    s.own = gvm_region_count_map(&view, region, GVM_REGION_BY_THREAD) + GVM_REGION_REFERENCE +
            GVM_REGION_USE;
    return s;
}

/* Its next job. One that waits has none. */
static uint64_t next_job(gvm_region_search *s)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)view.table;
    uint64_t job = 0;

    for (int i = 0; i < 100 && job == 0; i++)
        job = gvm_region_step(t, s);
    return job;
}

static int share_a_copy(void *arg)
{
    gvm_region_table *t;
    gvm_region_search first, second;
    uint64_t job, other;
    void *pointer;

    (void)arg;
    CHILD_EXPECT(start_with((gvm_space_options)gvm_space_options_init(),
                            (gvm_collection_options)gvm_collection_options_init()));
    t = (gvm_region_table *)(uintptr_t)view.table;
    CHILD_EXPECT(gvm_region_map_cpu(collection, 3, GVM_REGION_WRITE, &pointer) == GVM_OK);
    for (uint32_t i = 0; i < REGION / sizeof i; i++)
        ((uint32_t *)pointer)[i] = i * 2654435761u + 1;
    CHILD_EXPECT(gvm_region_unmap_cpu(collection, 3) == GVM_OK && gvm_space_sync(space, NULL) == GVM_OK);
    first = begin_map(3);
    job = next_job(&first);
    CHILD_EXPECT((job & GVM_REGION_PIECE_OF) != 0 && first.stage == GVM_REGION_SHARE);
    second = begin_map(3);
    other = next_job(&second);
    CHILD_EXPECT((other & GVM_REGION_PIECE_OF) != 0 && other != job && second.stage == GVM_REGION_LOOK);
    for (unsigned i = 2; i < REGION / GVM_REGION_PIECE; i++) { /* the first does its piece and all others */
        gvm_region_do(t, job, GVM_REGION_BY_THREAD);
        job = next_job(&first);
        CHILD_EXPECT((job & GVM_REGION_PIECE_OF) != 0);
    }
    gvm_region_do(t, job, GVM_REGION_BY_THREAD);
    CHILD_EXPECT(next_job(&first) == 0); /* it waits for the second */
    gvm_region_do(t, other, GVM_REGION_BY_THREAD);
    CHILD_EXPECT(next_job(&second) == 0 && (next_job(&first) & GVM_REGION_DONE) != 0);
    CHILD_EXPECT((next_job(&second) & GVM_REGION_DONE) != 0 && references(3) == 2 && fetched() == 1);
    pointer = gvm_region_map(&view, 3, GVM_REGION_READ);
    CHILD_EXPECT(!is_remote(pointer));
    for (uint32_t i = 0; i < REGION / sizeof i; i++)
        CHILD_EXPECT(((uint32_t *)pointer)[i] == i * 2654435761u + 1);
    for (int i = 0; i < 3; i++)
        gvm_region_unmap(&view, 3);
    return stop_unmapped() ? 0 : 1;
}

/* The piece of a thread whose map ends by its limit is copied: the copy ends. */
static int share_a_copy_that_is_late(void *arg)
{
    gvm_region_table *t;
    gvm_region_search first, second;
    uint64_t job;

    (void)arg;
    CHILD_EXPECT(start_with((gvm_space_options)gvm_space_options_init(),
                            (gvm_collection_options)gvm_collection_options_init()));
    t = (gvm_region_table *)(uintptr_t)view.table;
    first = begin_map(3);
    job = next_job(&first);
    second = begin_map(3);
    gvm_region_do(t, next_job(&second), GVM_REGION_BY_THREAD);
    second.until_ns = 1;
    CHILD_EXPECT(gvm_region_step(t, &second) == GVM_REGION_DONE);
    for (unsigned i = 1; i < REGION / GVM_REGION_PIECE; i++) {
        gvm_region_do(t, job, GVM_REGION_BY_THREAD);
        job = next_job(&first);
    }
    CHILD_EXPECT((job & GVM_REGION_DONE) != 0 && references(3) == 1);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_TIMEOUT && last_error_has("region 3 "));
    gvm_region_unmap(&view, 3);
    return stop_unmapped() ? 0 : 1;
}

/* ---- wrong kernels */

/* One whose image was compiled with other headers. */
static int use_another_layout(void *arg)
{
    gvm_region_table *t;
    gvm_callback_view callbacks;
    uint64_t words[2] = {0, 0};
    uint32_t region;

    (void)arg;
    CHILD_EXPECT(start_without(8));
    t = (gvm_region_table *)(uintptr_t)view.table;
    t->layout++;
    CHILD_EXPECT(gvm_region_map(&view, 3, GVM_REGION_READ) == NULL);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_VERSION && last_error_has("compile it again"));
    CHILD_EXPECT(!gvm_region_create_warp(&view, &region));
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_VERSION);
    t->layout--;
    CHILD_EXPECT(read_in_kernel(3) == 3 && gvm_region_create_warp(&view, &region));
    callbacks = collection->table.callbacks;
    callbacks.layout++;
    CHILD_EXPECT(gvm_callback_call(&callbacks, GVM_REGION_GIVE, words, 2) == GVM_CALLBACK_INVALID);
    return stop_unmapped() ? 0 : 1;
}

/* One whose blocks have three threads, with warps of two. */
static int map_by_a_part_of_a_warp(void *arg)
{
    gvm_soft_thread thread = {.threads = 3, .warp_size = 2, .size = {3, 1, 1}, .grid = {1, 1, 1}};
    uint32_t region = 0;
    void *found[2];
    int created;

    (void)arg;
    CHILD_EXPECT(start_without(8));
    while (gvm_region_create_warp(&view, &region)) /* the numbers that the device has */
        if (region == COUNT - 5)
            break;
    gvm_soft_current = &thread;
    found[0] = gvm_region_map_warp(&view, 3, GVM_REGION_READ);
    found[1] = gvm_region_map_block(&view, 3, GVM_REGION_READ);
    gvm_soft_current = NULL;
    CHILD_EXPECT(found[0] == NULL && found[1] == NULL);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("whole warps"));
    gvm_soft_current = &thread;
    created = gvm_region_create_warp(&view, &region);
    gvm_soft_current = NULL;
    CHILD_EXPECT(!created && gvm_space_sync(space, NULL) == GVM_E_INVALID &&
                 last_error_has("whole warps"));
    CHILD_EXPECT(read_in_kernel(3) == 3);
    return stop_unmapped() ? 0 : 1;
}

/* Access that is none reads, so that others find the region. */
static int map_for_nothing(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start());
    for (uint32_t i = 0; i < 2 * FRAMES; i++)
        CHILD_EXPECT(read_in_kernel(i) == i);
    CHILD_EXPECT(gvm_region_map(&view, 2 * FRAMES, 0) != NULL);
    gvm_region_unmap(&view, 2 * FRAMES);
    CHILD_EXPECT(read_in_kernel(2 * FRAMES) == 2 * FRAMES);
    return stop_unmapped() ? 0 : 1;
}

/* ---- lives of a number */

/* A kernel listed a write of the region that was deleted after the sync that deleted it had read the list. */
static int create_after_a_late_write(void *arg)
{
    const gvm_region_table *t;
    uint32_t region;
    void *pointer;

    (void)arg;
    CHILD_EXPECT(start());
    t = (const gvm_region_table *)(uintptr_t)view.table;
    CHILD_EXPECT(gvm_region_delete(collection, 3) == GVM_OK && gvm_space_sync(space, NULL) == GVM_OK);
    gvm_region_list_change(t, 3);
    CHILD_EXPECT(gvm_region_create(collection, &region) == GVM_OK && region == 3);
    CHILD_EXPECT(gvm_region_map_cpu(collection, 3, GVM_REGION_WRITE, &pointer) == GVM_OK);
    *(uint32_t *)pointer = 33;
    CHILD_EXPECT(gvm_region_unmap_cpu(collection, 3) == GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK); /* nobody has written it besides */
    CHILD_EXPECT(read_in_kernel(3) == 33);
    gvm_region_list_change(t, 3);
    CHILD_EXPECT(gvm_region_map_cpu(collection, 3, GVM_REGION_WRITE, &pointer) == GVM_OK);
    CHILD_EXPECT(gvm_region_unmap_cpu(collection, 3) == GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_TORN);
    return stop_unmapped() ? 0 : 1;
}

/* A kernel has another region mapped, and had written this one in its life before. */
static int map_what_was_created_again(void *arg)
{
    uint32_t region, *mapped;
    void *pointer;

    (void)arg;
    CHILD_EXPECT(start());
    mapped = gvm_region_map(&view, 1, GVM_REGION_READWRITE);
    CHILD_EXPECT(mapped != NULL && gvm_region_map(&view, 2, GVM_REGION_READWRITE) != NULL);
    gvm_region_unmap(&view, 2);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_region_map(&view, 2, GVM_REGION_READWRITE) != NULL);
    CHILD_EXPECT(gvm_region_delete(collection, 2) == GVM_OK);
    gvm_region_unmap(&view, 2);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_region_create(collection, &region) == GVM_OK && region == 2);
    CHILD_EXPECT(gvm_region_map_cpu(collection, 2, GVM_REGION_READ, &pointer) == GVM_OK);
    CHILD_EXPECT(*(uint32_t *)pointer == 0 && gvm_region_unmap_cpu(collection, 2) == GVM_OK);
    CHILD_EXPECT(gvm_region_map_cpu(collection, 1, GVM_REGION_READ, &pointer) == GVM_E_TIMEOUT &&
                 last_error_has("region 1 "));
    gvm_region_unmap(&view, 1);
    return stop_unmapped() ? 0 : 1;
}

/* ---- lists */

static int map_lists(void *arg)
{
    const uint32_t good[] = {4, 9, GVM_REGION_NONE, 4, 31};
    const uint32_t bad[] = {4, 9, COUNT, 31};
    uint32_t all[COUNT];
    void *found[COUNT];

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(gvm_region_map_many_warp(&view, good, 5, GVM_REGION_READ, found) == 1);
    CHILD_EXPECT(*(uint32_t *)found[0] == 4 && *(uint32_t *)found[1] == 9 && found[2] == NULL);
    CHILD_EXPECT(found[3] == found[0] && *(uint32_t *)found[4] == 31 && references(4) == 2);
    for (uint32_t i = 0; i < 5; i++)
        if (found[i] != NULL)
            gvm_region_unmap_warp(&view, good[i]);
    CHILD_EXPECT(gvm_region_map_many_block(&view, bad, 4, GVM_REGION_READ, found) == 0);
    CHILD_EXPECT(found[0] == NULL && found[1] == NULL && found[2] == NULL && found[3] == NULL);
    CHILD_EXPECT(references(4) == 0 && references(9) == 0 && references(31) == 0);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("region 32 "));
    for (uint32_t i = 0; i < COUNT; i++)
        all[i] = i;
    CHILD_EXPECT(gvm_region_map_many_warp(&view, all, COUNT, GVM_REGION_READWRITE, found) == 1);
    for (uint32_t i = 0; i < COUNT; i++) { /* more than there are frames for */
        CHILD_EXPECT(*(uint32_t *)found[i] == i);
        gvm_region_unmap_warp(&view, i);
    }
    CHILD_EXPECT(gvm_region_map_many_warp(&view, all, 0, GVM_REGION_READ, found) == 1);
    return stop_unmapped() ? 0 : 1;
}

/* ---- in two steps */

static int map_in_two_steps(void *arg)
{
    gvm_region_request first, second;
    uint32_t *found;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(gvm_region_request_warp(&view, 1, GVM_REGION_READ, &first) == NULL);
    CHILD_EXPECT(gvm_region_request_block(&view, 2, GVM_REGION_READWRITE, &second) == NULL);
    CHILD_EXPECT(references(1) == 1 && references(2) == 1 && fetched() == 0);
    found = gvm_region_wait_block(&view, &second);
    CHILD_EXPECT(found != NULL && *found == 2 && fetched() == 1);
    found = gvm_region_map(&view, 1, GVM_REGION_READ); /* another one brings it */
    CHILD_EXPECT(found != NULL && *found == 1 && fetched() == 2);
    CHILD_EXPECT(gvm_region_wait_warp(&view, &first) == found && fetched() == 2);
    gvm_region_unmap(&view, 1);
    for (uint32_t i = 3; i < COUNT; i++) { /* it stays where it is */
        CHILD_EXPECT(gvm_region_map(&view, i, GVM_REGION_READ) != NULL);
        gvm_region_unmap(&view, i);
    }
    CHILD_EXPECT(gvm_region_request_warp(&view, 1, GVM_REGION_READ, &second) == found);
    CHILD_EXPECT(gvm_region_wait_warp(&view, &second) == found && references(1) == 2);
    gvm_region_unmap_warp(&view, 1);
    gvm_region_unmap_warp(&view, 1);
    gvm_region_unmap_block(&view, 2);
    CHILD_EXPECT(gvm_region_request_warp(&view, COUNT, GVM_REGION_READ, &first) == NULL);
    CHILD_EXPECT(gvm_region_wait_warp(&view, &first) == NULL);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("region 32 "));
    return stop_unmapped() ? 0 : 1;
}

/* ---- ahead of use */

static int prefetch(void *arg)
{
    const uint32_t *found[FRAMES + 1];

    (void)arg;
    CHILD_EXPECT(start_without(1));
    gvm_region_prefetch_warp(&view, 7);
    CHILD_EXPECT(fetched() == 1 && references(7) == 0);
    gvm_region_prefetch_block(&view, 7);
    gvm_region_prefetch_warp(&view, COUNT);
    gvm_region_prefetch_warp(&view, GVM_REGION_NONE);
    gvm_region_prefetch_warp(&view, COUNT - 1); /* does not exist */
    CHILD_EXPECT(fetched() == 1);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    for (uint32_t i = 0; i <= FRAMES; i++)
        found[i] = gvm_region_map(&view, i, GVM_REGION_READ);
    CHILD_EXPECT(is_remote(found[FRAMES]) && *found[7] == 7);
    for (uint32_t i = 0; i <= FRAMES; i++)
        gvm_region_unmap(&view, i);
    gvm_region_prefetch_block(&view, FRAMES); /* from its home to a frame */
    found[FRAMES] = gvm_region_map(&view, FRAMES, GVM_REGION_READ);
    CHILD_EXPECT(!is_remote(found[FRAMES]) && *found[FRAMES] == FRAMES);
    gvm_region_unmap(&view, FRAMES);
    return stop_unmapped() ? 0 : 1;
}

/* ---- regions that come and go: half of the numbers of those that do not exist are the device's */

static uint64_t live_count(void)
{
    gvm_collection_info info = {.struct_size = sizeof info};

    return gvm_collection_get_info(collection, &info) == GVM_OK ? info.live_count : UINT64_MAX;
}

static bool is_live_for_cpu(uint32_t region)
{
    void *pointer;

    return gvm_region_map_cpu(collection, region, GVM_REGION_READ, &pointer) == GVM_OK &&
           gvm_region_unmap_cpu(collection, region) == GVM_OK;
}

static bool write_by_cpu(uint32_t region, uint32_t value)
{
    void *pointer;

    if (gvm_region_map_cpu(collection, region, GVM_REGION_WRITE, &pointer) != GVM_OK)
        return false;
    *(uint32_t *)pointer = value;
    return gvm_region_unmap_cpu(collection, region) == GVM_OK;
}

static int create_by_host(void *arg)
{
    uint32_t region, i;

    (void)arg;
    CHILD_EXPECT(start_without(8) && live_count() == COUNT - 8);
    CHILD_EXPECT(!is_live_for_cpu(COUNT - 8) && read_in_kernel(COUNT - 8) == COUNT);
    CHILD_EXPECT(gvm_region_create(collection, NULL) == GVM_E_INVALID);
    for (i = 0; i < 4; i++) {
        CHILD_EXPECT(gvm_region_create(collection, &region) == GVM_OK);
        CHILD_EXPECT(region == COUNT - 4 + i && live_count() == COUNT - 8 + i + 1);
        CHILD_EXPECT(is_live_for_cpu(region));
    }
    CHILD_EXPECT(gvm_region_create(collection, &region) == GVM_E_LIMIT && last_error_has("(4)"));
    CHILD_EXPECT(write_by_cpu(region, 77));
    CHILD_EXPECT(gvm_region_map(&view, region, GVM_REGION_READ) == NULL);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(read_in_kernel(region) == 77 && read_in_kernel(region - 1) == 0);
    return stop_unmapped() ? 0 : 1;
}

static int create_by_kernel(void *arg)
{
    uint32_t region, last = 0, *found;

    (void)arg;
    CHILD_EXPECT(start_without(8));
    for (uint32_t i = 0; i < 8; i++) { /* more than the device had at first */
        CHILD_EXPECT((i % 2 != 0 ? gvm_region_create_warp(&view, &region)
                                 : gvm_region_create_block(&view, &region)) == 1);
        CHILD_EXPECT(region >= COUNT - 8 && region < COUNT && region != last);
        found = gvm_region_map(&view, region, GVM_REGION_READWRITE);
        CHILD_EXPECT(found != NULL && *found == 0);
        *found = last = region;
        gvm_region_unmap(&view, region);
    }
    CHILD_EXPECT(gvm_region_create_warp(&view, &region) == 0 && region == GVM_REGION_NONE);
    CHILD_EXPECT(!is_live_for_cpu(last) && gvm_region_delete(collection, last) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_region_create(collection, &region) == GVM_E_LIMIT && last_error_has("(8)"));
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK && live_count() == COUNT);
    for (uint32_t i = COUNT - 8; i < COUNT; i++) {
        void *pointer;

        if (gvm_region_map_cpu(collection, i, GVM_REGION_READ, &pointer) != GVM_OK)
            continue;
        CHILD_EXPECT(*(uint32_t *)pointer == i && gvm_region_unmap_cpu(collection, i) == GVM_OK);
    }
    CHILD_EXPECT(gvm_region_create_warp(&view, &region) == 0);
    CHILD_EXPECT(gvm_region_delete(collection, last) == GVM_OK);
    CHILD_EXPECT(gvm_region_create_warp(&view, &region) == 0); /* not before the sync */
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_region_create_warp(&view, &region) == 1 && region == last);
    return stop_unmapped() ? 0 : 1;
}

/* As a kernel that asks for numbers and gives up before the answer comes. */
static uint32_t ask_for_numbers(uint64_t key, uint64_t position, uint64_t *count)
{
    const gvm_callback_view callbacks = collection->table.callbacks;
    uint64_t words[2] = {key, position};
    const uint32_t code = gvm_callback_call(&callbacks, GVM_REGION_GIVE, words, 2);

    *count = words[0];
    return code;
}

static int lose_numbers(void *arg)
{
    const gvm_region_table *table;
    uint64_t count, again;
    uint32_t region, created = 0;

    (void)arg;
    CHILD_EXPECT(start_without(COUNT));
    table = (const gvm_region_table *)(uintptr_t)view.table;
    CHILD_EXPECT(ask_for_numbers(table->collection, table->spare_tail, &count) == GVM_CALLBACK_OK);
    CHILD_EXPECT(count == COUNT / 4);
    CHILD_EXPECT(ask_for_numbers(table->collection, table->spare_tail, &again) == GVM_CALLBACK_OK);
    CHILD_EXPECT(again == count);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK); /* knows of none that were created */
    while (gvm_region_create_warp(&view, &region))
        created++;
    CHILD_EXPECT(created == COUNT); /* nothing is lost, and no number comes twice: */
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK && live_count() == COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        CHILD_EXPECT(is_live_for_cpu(i));
    return stop_unmapped() ? 0 : 1;
}

/* A call of another kernel was late, and is run after this one's. */
static int overwrite_numbers(void *arg)
{
    gvm_region_table *table;
    uint64_t given, tail, count;
    uint32_t region, created = 0;

    (void)arg;
    CHILD_EXPECT(start_without(COUNT));
    table = (gvm_region_table *)(uintptr_t)view.table;
    tail = table->spare_tail;
    given = gvm_region_call_for_spares(table);
    CHILD_EXPECT((given & GVM_REGION_GIVEN_COUNT) == COUNT / 4);
    CHILD_EXPECT(ask_for_numbers(table->collection, tail, &count) == GVM_CALLBACK_OK);
    gvm_region_take_given(table, given, GVM_REGION_BY_THREAD);
    CHILD_EXPECT(table->spare_tail == tail);
    given = gvm_region_call_for_spares(table);
    gvm_region_take_given(table, given, GVM_REGION_BY_THREAD);
    CHILD_EXPECT(table->spare_tail == tail + COUNT / 4);
    while (gvm_region_create_warp(&view, &region))
        created++;
    CHILD_EXPECT(created == COUNT);
    return stop_unmapped() ? 0 : 1;
}

static int ask_wrongly(void *arg)
{
    const gvm_region_table *table;
    uint64_t count;
    uint32_t region;

    (void)arg;
    CHILD_EXPECT(start_without(COUNT));
    table = (const gvm_region_table *)(uintptr_t)view.table;
    CHILD_EXPECT(ask_for_numbers(table->collection, table->spare_tail + 1, &count) ==
                 GVM_CALLBACK_FAILED);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("region 17 "));
    CHILD_EXPECT(ask_for_numbers(table->collection + 1, 0, &count) == GVM_CALLBACK_FAILED);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_FOREIGN && gvm_space_sync(space, NULL) == GVM_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        CHILD_EXPECT(gvm_region_create_block(&view, &region) == 1);
    CHILD_EXPECT(gvm_region_create_block(&view, &region) == 0);
    return stop_unmapped() ? 0 : 1;
}

static int delete_region(void *arg)
{
    uint32_t region;
    void *pointer;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(gvm_region_delete(collection, COUNT) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_region_map_cpu(collection, 5, GVM_REGION_READ, &pointer) == GVM_OK);
    CHILD_EXPECT(gvm_region_delete(collection, 5) == GVM_E_INVALID && last_error_has("mapped"));
    CHILD_EXPECT(gvm_region_unmap_cpu(collection, 5) == GVM_OK);
    CHILD_EXPECT(gvm_region_delete(collection, 5) == GVM_OK && live_count() == COUNT - 1);
    CHILD_EXPECT(gvm_region_delete(collection, 5) == GVM_E_INVALID && !is_live_for_cpu(5));
    CHILD_EXPECT(gvm_region_create(collection, &region) == GVM_E_LIMIT);
    CHILD_EXPECT(*(uint32_t *)gvm_region_map(&view, 5, GVM_REGION_READWRITE) == 5);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_TIMEOUT);
    CHILD_EXPECT(gvm_region_create(collection, &region) == GVM_E_LIMIT);
    gvm_region_unmap(&view, 5);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(read_in_kernel(5) == COUNT);
    CHILD_EXPECT(gvm_region_create(collection, &region) == GVM_OK && region == 5);
    CHILD_EXPECT(gvm_region_map_cpu(collection, 5, GVM_REGION_READ, &pointer) == GVM_OK);
    CHILD_EXPECT(*(uint32_t *)pointer == 0 && gvm_region_unmap_cpu(collection, 5) == GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK && read_in_kernel(5) == 0);
    CHILD_EXPECT(gvm_region_create(collection, &region) == GVM_E_LIMIT);
    return stop_unmapped() ? 0 : 1;
}

/* Each number comes back, to either side, however often. */
static int create_and_delete_again(void *arg)
{
    bool live[COUNT] = {false};
    uint32_t region;

    (void)arg;
    CHILD_EXPECT(start_without(COUNT));
    for (uint32_t round = 0; round < 40; round++) {
        const uint64_t before = live_count();
        uint32_t created = 0;

        while (round % 2 == 0 ? gvm_region_create_warp(&view, &region)
                              : gvm_region_create(collection, &region) == GVM_OK) {
            CHILD_EXPECT(region < COUNT && !live[region]);
            live[region] = true;
            created++;
        }
        CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK && live_count() == before + created);
        for (uint32_t i = 0; i < COUNT; i++) {
            CHILD_EXPECT(is_live_for_cpu(i) == live[i]);
            if (!live[i] || (i + round) % 3 == 0)
                continue;
            CHILD_EXPECT(read_in_kernel(i) == 0 && write_by_cpu(i, i));
            CHILD_EXPECT(gvm_region_delete(collection, i) == GVM_OK);
            live[i] = false;
        }
        CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    }
    return stop_unmapped() ? 0 : 1;
}

static int create_with_wrong_sizes(void *arg)
{
    gvm_collection_options options = gvm_collection_options_init();
    gvm_collection *other = NULL;

    (void)arg;
    CHILD_EXPECT(start());
    options.unused_count = COUNT + 1;
    CHILD_EXPECT(gvm_collection_create(space, COUNT, REGION, &options, &other) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_collection_create(space, 1, 64 * GIB, NULL, &other) == GVM_E_INVALID);
    CHILD_EXPECT(last_error_has("at most") && other == NULL);
    return stop_unmapped() ? 0 : 1;
}

/* ---- lines */

static uint64_t word_of(uint32_t region)
{
    return ((const uint64_t *)(uintptr_t)view.words)[region];
}

static int map_by_lines(void *arg)
{
    gvm_region_line lines[4];
    gvm_region_tlb tlb;
    uint32_t *found;
    uint64_t word;

    (void)arg;
    CHILD_EXPECT(start());
    gvm_region_tlb_begin(&tlb, &view, lines, 4);
    found = gvm_region_tlb_map_warp(&tlb, 1, GVM_REGION_READ);
    CHILD_EXPECT(found != NULL && *found == 1 && references(1) == 1);
    word = word_of(1);
    CHILD_EXPECT(gvm_region_tlb_map_warp(&tlb, 1, GVM_REGION_READ) == found && word_of(1) == word);
    gvm_region_tlb_unmap_warp(&tlb, 1);
    gvm_region_tlb_unmap_warp(&tlb, 1);
    CHILD_EXPECT(word_of(1) == word); /* the line keeps it */
    CHILD_EXPECT(gvm_region_tlb_map_warp(&tlb, 1, GVM_REGION_READ) == found && word_of(1) == word);
    for (uint32_t i = 2; i < 7; i++) { /* more than there are lines */
        found = gvm_region_tlb_map_warp(&tlb, i, GVM_REGION_READ);
        CHILD_EXPECT(found != NULL && *found == i && references(i) == 1);
    }
    for (uint32_t i = 1; i < 7; i++)
        gvm_region_tlb_unmap_warp(&tlb, i);
    CHILD_EXPECT(references(4) == 1 && references(5) == 0 && references(6) == 0);
    for (uint32_t i = 10; i < 14; i++) { /* and now in the place of the first */
        CHILD_EXPECT(*(uint32_t *)gvm_region_tlb_map_warp(&tlb, i, GVM_REGION_READ) == i);
        gvm_region_tlb_unmap_warp(&tlb, i);
    }
    for (uint32_t i = 0; i < COUNT; i++)
        CHILD_EXPECT(references(i) <= 1 && (i >= 10 || references(i) == 0 || i > 1));
    gvm_region_tlb_end(&tlb);
    return stop_unmapped() ? 0 : 1;
}

static int write_by_lines(void *arg)
{
    gvm_region_line lines[4];
    gvm_region_tlb tlb;
    uint32_t *found;
    void *pointer;

    (void)arg;
    CHILD_EXPECT(start());
    gvm_region_tlb_begin(&tlb, &view, lines, 4);
    CHILD_EXPECT(gvm_region_tlb_map_warp(&tlb, 1, GVM_REGION_READ) != NULL);
    found = gvm_region_tlb_map_warp(&tlb, 1, GVM_REGION_READWRITE); /* a reference of its own */
    CHILD_EXPECT(references(1) == 2);
    *found = 100;
    gvm_region_tlb_unmap_warp(&tlb, 1);
    gvm_region_tlb_unmap_warp(&tlb, 1);
    found = gvm_region_tlb_map_warp(&tlb, 2, GVM_REGION_READWRITE);
    CHILD_EXPECT(gvm_region_tlb_map_warp(&tlb, 2, GVM_REGION_READWRITE) == found && references(2) == 1);
    *found = 200;
    gvm_region_tlb_unmap_warp(&tlb, 2);
    gvm_region_tlb_unmap_warp(&tlb, 2);
    gvm_region_tlb_end(&tlb);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_region_map_cpu(collection, 1, GVM_REGION_READ, &pointer) == GVM_OK);
    CHILD_EXPECT(*(uint32_t *)pointer == 100 && gvm_region_unmap_cpu(collection, 1) == GVM_OK);
    CHILD_EXPECT(gvm_region_map_cpu(collection, 2, GVM_REGION_READ, &pointer) == GVM_OK);
    CHILD_EXPECT(*(uint32_t *)pointer == 200 && gvm_region_unmap_cpu(collection, 2) == GVM_OK);
    gvm_region_tlb_begin(&tlb, &view, lines, 0);
    CHILD_EXPECT(*(uint32_t *)gvm_region_tlb_map_warp(&tlb, 3, GVM_REGION_READ) == 3);
    gvm_region_tlb_unmap_warp(&tlb, 3);
    gvm_region_tlb_end(&tlb);
    return stop_unmapped() ? 0 : 1;
}

static int use_lines_wrongly(void *arg)
{
    gvm_region_line lines[4];
    gvm_region_tlb tlb;

    (void)arg;
    CHILD_EXPECT(start_without(1));
    gvm_region_tlb_begin(&tlb, &view, lines, 4);
    CHILD_EXPECT(gvm_region_tlb_map_warp(&tlb, COUNT, GVM_REGION_READ) == NULL);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("region 32 "));
    CHILD_EXPECT(gvm_region_tlb_map_warp(&tlb, COUNT - 1, GVM_REGION_READ) == NULL);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("region 31 "));
    gvm_region_tlb_unmap_warp(&tlb, 3);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("region 3 "));
    gvm_region_tlb_end(&tlb);
    return stop_unmapped() ? 0 : 1;
}

CHILD_TEST(map_by_lanes_counts_each_lane, map_by_lanes)
CHILD_TEST(region_that_is_large_is_copied_by_those_that_wait_for_it, share_a_copy)
CHILD_TEST(copy_in_pieces_ends_without_a_thread_that_was_late, share_a_copy_that_is_late)
CHILD_TEST(kernel_of_another_layout_is_refused, use_another_layout)
CHILD_TEST(block_of_parts_of_warps_is_refused, map_by_a_part_of_a_warp)
CHILD_TEST(map_for_no_access_reads, map_for_nothing)
CHILD_TEST(write_of_a_deleted_region_is_not_a_write_of_the_next_one, create_after_a_late_write)
CHILD_TEST(region_created_again_is_mapped_beside_others_that_kernels_have, map_what_was_created_again)
CHILD_TEST(map_of_a_list_is_all_or_nothing, map_lists)
CHILD_TEST(map_in_two_steps_counts_at_the_first, map_in_two_steps)
CHILD_TEST(prefetch_brings_what_exists_and_maps_nothing, prefetch)
CHILD_TEST(region_created_by_the_host_is_there_for_kernels_after_a_sync, create_by_host)
CHILD_TEST(region_created_by_a_kernel_is_there_for_the_cpu_after_a_sync, create_by_kernel)
CHILD_TEST(numbers_whose_answer_came_too_late_are_given_again, lose_numbers)
CHILD_TEST(numbers_on_a_page_that_another_call_wrote_do_not_count, overwrite_numbers)
CHILD_TEST(numbers_asked_for_wrongly_are_not_given, ask_wrongly)
CHILD_TEST(region_deleted_is_gone_for_kernels_after_a_sync, delete_region)
CHILD_TEST(region_numbers_are_used_again_by_both_sides, create_and_delete_again)
CHILD_TEST(collection_with_wrong_sizes_is_refused, create_with_wrong_sizes)
CHILD_TEST(tlb_line_keeps_its_region, map_by_lines)
CHILD_TEST(tlb_map_to_write_is_seen_by_the_cpu, write_by_lines)
CHILD_TEST(tlb_reports_wrong_use, use_lines_wrongly)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(map_by_lanes_counts_each_lane),
        cmocka_unit_test(region_that_is_large_is_copied_by_those_that_wait_for_it),
        cmocka_unit_test(copy_in_pieces_ends_without_a_thread_that_was_late),
        cmocka_unit_test(kernel_of_another_layout_is_refused),
        cmocka_unit_test(block_of_parts_of_warps_is_refused),
        cmocka_unit_test(map_for_no_access_reads),
        cmocka_unit_test(write_of_a_deleted_region_is_not_a_write_of_the_next_one),
        cmocka_unit_test(region_created_again_is_mapped_beside_others_that_kernels_have),
        cmocka_unit_test(map_of_a_list_is_all_or_nothing),
        cmocka_unit_test(map_in_two_steps_counts_at_the_first),
        cmocka_unit_test(prefetch_brings_what_exists_and_maps_nothing),
        cmocka_unit_test(region_created_by_the_host_is_there_for_kernels_after_a_sync),
        cmocka_unit_test(region_created_by_a_kernel_is_there_for_the_cpu_after_a_sync),
        cmocka_unit_test(numbers_whose_answer_came_too_late_are_given_again),
        cmocka_unit_test(numbers_on_a_page_that_another_call_wrote_do_not_count),
        cmocka_unit_test(numbers_asked_for_wrongly_are_not_given),
        cmocka_unit_test(region_deleted_is_gone_for_kernels_after_a_sync),
        cmocka_unit_test(region_numbers_are_used_again_by_both_sides),
        cmocka_unit_test(collection_with_wrong_sizes_is_refused),
        cmocka_unit_test(tlb_line_keeps_its_region),
        cmocka_unit_test(tlb_map_to_write_is_seen_by_the_cpu),
        cmocka_unit_test(tlb_reports_wrong_use),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
