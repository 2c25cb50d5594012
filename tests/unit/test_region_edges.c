/* Regions at the edges: odd sizes, many changes, words that are spoilt, check mode, and what is left when a kernel
 * faults, a process forks or another thread destroys. The test is its own kernel, as in test_region.c. */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdatomic.h>

#include <gvmem/device/region.h>
#include <gvmem/gvmem.h>

#include "base/registry.h"
#include "driver/driver.h"
#include "region/region.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"

static gvm_device *device;
static gvm_space *space;
static gvm_collection *collection;
static gvm_region_view view;
static uint32_t space_flags;
static const char *machine = "devices=1,memory=256MiB,sms=2,warp=8";

/* A space, and a collection of regions that are all zeros. */
static bool start(uint64_t budget_bytes, uint64_t count, uint64_t region_bytes, gvm_region_policy policy)
{
    gvm_space_options of_space = gvm_space_options_init();
    gvm_collection_options options = gvm_collection_options_init();

    fixture_machine("%s", machine);
    setenv("GVMEM_CHECK", "1", 1);
    end_child_after(300);
    of_space.budget_bytes = budget_bytes;
    of_space.flags = space_flags;
    options.policy = policy;
    return gvm_device_open(0, &device) == GVM_OK &&
           gvm_space_create(device, &of_space, &space) == GVM_OK &&
           gvm_collection_create(space, count, region_bytes, &options, &collection) == GVM_OK &&
           gvm_collection_get_view(collection, &view) == GVM_OK;
}

static bool nothing_left(void)
{
    return gvmi_registry_count(GVMI_KIND_SPACE) == 0 &&
           gvmi_registry_count(GVMI_KIND_COLLECTION) == 0 &&
           gvmi_registry_count(GVMI_KIND_BUFFER) == 0 && gvmi_check_violations() == 0;
}

static bool stop(void)
{
    gvm_space_destroy(space);
    gvm_device_close(device);
    return nothing_left();
}

static bool last_error_has(const char *text)
{
    gvm_error error;

    gvm_error_last(&error);
    return strstr(error.text, text) != NULL;
}

static bool write_by_kernel(uint32_t region, uint8_t value)
{
    uint8_t *bytes = gvm_region_map(&view, region, GVM_REGION_WRITE);

    if (bytes == NULL)
        return false;
    memset(bytes, value, view.region_bytes);
    gvm_region_unmap(&view, region);
    return true;
}

static bool write_by_cpu(uint32_t region, uint8_t value)
{
    void *pointer;

    if (gvm_region_map_cpu(collection, region, GVM_REGION_WRITE, &pointer) != GVM_OK)
        return false;
    memset(pointer, value, view.region_bytes);
    return gvm_region_unmap_cpu(collection, region) == GVM_OK;
}

static bool all_are(const uint8_t *bytes, uint8_t value)
{
    for (uint64_t i = 0; i < view.region_bytes; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

static bool kernel_reads(uint32_t region, uint8_t value)
{
    const uint8_t *bytes = gvm_region_map(&view, region, GVM_REGION_READ);
    const bool good = bytes != NULL && all_are(bytes, value);

    if (bytes != NULL)
        gvm_region_unmap(&view, region);
    return good;
}

static bool cpu_reads(uint32_t region, uint8_t value)
{
    void *pointer;

    if (gvm_region_map_cpu(collection, region, GVM_REGION_READ, &pointer) != GVM_OK)
        return false;
    return all_are(pointer, value) && gvm_region_unmap_cpu(collection, region) == GVM_OK;
}

static gvm_region_table *table(void)
{
    return (gvm_region_table *)(uintptr_t)view.table;
}

static uint64_t *word_of(uint32_t region)
{
    return (uint64_t *)(uintptr_t)view.words + region;
}

/* ---- sizes */

typedef struct shape {
    uint64_t budget_bytes, count, region_bytes;
    bool has_frames;
} shape;

static const shape shapes[] = {
    {2 * MIB, 100, 1, true},
    {2 * MIB, 1000, 17, true},
    {8 * MIB, 5, 3 * MIB + 1, true},
    {2 * MIB, 3, 2 * MIB, true},
    {2 * MIB, 3, 3 * MIB + 1, false}, /* a region is larger than the budget */
    {1, 20, 4096, false},             /* less than a region, and than a chunk */
    {100 * KIB, 20, 4096, false},
    {2 * MIB, 1, 1, true},
};

/* Regions lie beside each other: what is written to one is not seen in the next. */
static int use_odd_sizes(void *arg)
{
    const shape *s = arg;
    gvm_collection_info info = {.struct_size = sizeof info};

    CHILD_EXPECT(start(s->budget_bytes, s->count, s->region_bytes, GVM_REGION_CLOCK));
    CHILD_EXPECT(gvm_collection_get_info(collection, &info) == GVM_OK);
    CHILD_EXPECT((info.frame_count > 0) == s->has_frames);
    CHILD_EXPECT(info.stride_bytes % 16 == 0 && info.stride_bytes - info.region_bytes < 16);
    for (uint32_t i = 0; i < s->count; i++)
        CHILD_EXPECT(kernel_reads(i, 0) && (i % 2 == 0 || write_by_kernel(i, (uint8_t)(i + 1))));
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    for (uint32_t i = 0; i < s->count; i++)
        CHILD_EXPECT(cpu_reads(i, i % 2 == 0 ? 0 : (uint8_t)(i + 1)));
    for (uint32_t i = 0; i < s->count; i += 2)
        CHILD_EXPECT(write_by_cpu(i, (uint8_t)(i + 7)));
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    for (uint32_t i = 0; i < s->count; i++)
        CHILD_EXPECT(kernel_reads(i, (uint8_t)(i % 2 == 0 ? i + 7 : i + 1)));
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    return stop() ? 0 : 1;
}

/* Its homes begin where others have frames: they are not counted as such, nor given back. */
static int share_with_one_too_large(void *arg)
{
    gvm_space_info info = {.struct_size = sizeof info};
    gvm_collection *others[3];

    (void)arg;
    CHILD_EXPECT(start(4 * MIB, 2, 5 * MIB, GVM_REGION_CLOCK));
    CHILD_EXPECT(write_by_kernel(0, 7) && write_by_kernel(1, 8) &&
                 gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_space_get_info(space, &info) == GVM_OK && info.frame_bytes == 0);
    for (int i = 0; i < 3; i++)
        CHILD_EXPECT(gvm_collection_create(space, 100, MIB / 4, NULL, &others[i]) == GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK && cpu_reads(0, 7) && kernel_reads(1, 8));
    CHILD_EXPECT(gvm_space_get_info(space, &info) == GVM_OK && info.frame_bytes == 4 * MIB);
    return stop() ? 0 : 1;
}

/* What the machine has no memory or addresses for is refused, whatever the product of its sizes. */
static int ask_for_too_much(void *arg)
{
    const uint64_t region_max = 32 * GIB - 16, count_max = (1ull << 27) - 1;
    const struct {
        uint64_t count, region_bytes;
        gvm_status status;
    } asked[] = {
        {1, region_max, GVM_E_NOMEM}, /* the largest size; there is less host memory */
        {1, region_max + 1, GVM_E_INVALID},
        {1, 32 * GIB, GVM_E_INVALID},
        {1, 1ull << 47, GVM_E_INVALID},
        {1, UINT64_MAX, GVM_E_INVALID},
        {3, (1ull << 46) - 1, GVM_E_INVALID},
        {4096, region_max, GVM_E_INVALID}, /* more than 2^24 chunks */
        {4097, region_max, GVM_E_INVALID}, /* more than 128 TiB */
        {1ull << 20, 1 * MIB, GVM_E_NOMEM},
        {count_max, 16, GVM_E_INVALID}, /* with its frames more than there are slots */
        {count_max, 1 * MIB, GVM_E_INVALID},
        {count_max, UINT64_MAX, GVM_E_INVALID},
        {count_max + 1, 16, GVM_E_INVALID},
        {UINT64_MAX, 1, GVM_E_INVALID},
        {UINT64_MAX, UINT64_MAX, GVM_E_INVALID},
    };
    gvm_collection *other = NULL;

    (void)arg;
    machine = "devices=1,memory=256MiB,host=64MiB,sms=2,warp=8";
    CHILD_EXPECT(start(2 * MIB, 4, 4096, GVM_REGION_CLOCK));
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        CHILD_EXPECT(gvm_collection_create(space, asked[i].count, asked[i].region_bytes, NULL,
                                           &other) == asked[i].status);
        CHILD_EXPECT(other == NULL);
    }
    CHILD_EXPECT(write_by_kernel(1, 5) && gvm_space_sync(space, NULL) == GVM_OK && cpu_reads(1, 5));
    return stop() ? 0 : 1;
}

/* ---- changes */

/* More than the library passes at once. */
static int change_many(void *arg)
{
    enum { MANY = 132000, STEP = 101 };

    (void)arg;
    CHILD_EXPECT(start(2 * MIB, MANY, 16, GVM_REGION_CLOCK));
    for (uint32_t i = 0; i < MANY; i++)
        CHILD_EXPECT(write_by_kernel(i, (uint8_t)(i % 251 + 1)));
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(collection->far.count == MANY);
    for (uint32_t i = 0; i < MANY; i += STEP)
        CHILD_EXPECT(cpu_reads(i, (uint8_t)(i % 251 + 1)));
    for (uint32_t i = 0; i < MANY; i++)
        CHILD_EXPECT(write_by_cpu(i, (uint8_t)(i % 241 + 1)));
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    for (uint32_t i = 0; i < MANY; i += STEP)
        CHILD_EXPECT(kernel_reads(i, (uint8_t)(i % 241 + 1)));
    CHILD_EXPECT(collection->changed.count == 0 && collection->far.count == 0);
    return stop() ? 0 : 1;
}

/* The list of changes begins anew many times. */
static int change_often(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start(2 * MIB, 3, 100, GVM_REGION_CLOCK));
    for (uint32_t round = 1; round < 250; round++) {
        for (uint32_t i = 0; i < 1 + round % 3; i++)
            CHILD_EXPECT(write_by_kernel(i, (uint8_t)round));
        CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
        for (uint32_t i = 0; i < 1 + round % 3; i++)
            CHILD_EXPECT(cpu_reads(i, (uint8_t)round));
    }
    return stop() ? 0 : 1;
}

static int count_versions_beyond_the_last(void *arg)
{
    gvm_region_record *record;

    (void)arg;
    CHILD_EXPECT(start(2 * MIB, 3, 100, GVM_REGION_CLOCK));
    record = (gvm_region_record *)(uintptr_t)table()->records + 1;
    record->version = collection->regions[1].version = UINT32_MAX;
    CHILD_EXPECT(write_by_kernel(1, 3) && record->version == 0);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK && collection->regions[1].version == 0);
    CHILD_EXPECT(cpu_reads(1, 3));
    return stop() ? 0 : 1;
}

static int count_versions(void *arg)
{
    gvm_region_record *record;

    (void)arg;
    CHILD_EXPECT(start(2 * MIB, 3, 100, GVM_REGION_CLOCK));
    record = (gvm_region_record *)(uintptr_t)table()->records + 1;
    for (uint32_t i = 1; i < 5; i++) {
        CHILD_EXPECT(write_by_kernel(1, 3) && write_by_kernel(1, 4) && record->version == i);
        CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK && collection->regions[1].version == i);
    }
    return stop() ? 0 : 1;
}

/* The host has entries, and does not learn that the device has forgotten them: it finds them again, crossed out. */
static int collect_again(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start(2 * MIB, 3, 100, GVM_REGION_CLOCK));
    CHILD_EXPECT(write_by_kernel(0, 3) && gvm_space_sync(space, NULL) == GVM_OK && cpu_reads(0, 3));
    CHILD_EXPECT(collection->collected == 1 && collection->far.count == 0);
    collection->collected = 0;
    CHILD_EXPECT(write_by_kernel(1, 4) && gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(collection->collected == 2 && collection->far.count == 1 && cpu_reads(1, 4));
    return stop() ? 0 : 1;
}

static atomic_bool has_synced;

static void *sync_once(void *arg)
{
    (void)arg;
    if (gvm_space_sync(space, NULL) == GVM_OK)
        atomic_store(&has_synced, true);
    return NULL;
}

/* A thread of a kernel has counted an entry, and is about to write it. */
static int collect_what_is_not_written_yet(void *arg)
{
    gvm_region_record *record;
    pthread_t thread;
    uint32_t *entry, lap;

    (void)arg;
    CHILD_EXPECT(start(2 * MIB, 3, 100, GVM_REGION_CLOCK));
    record = (gvm_region_record *)(uintptr_t)table()->records + 2;
    gvm_atomic_or_u32(&record->flags, GVM_REGION_CHANGED);
    entry = gvm_region_entry(table(), gvm_atomic_add_u64(&table()->change_count, 1), &lap);
    CHILD_EXPECT(pthread_create(&thread, NULL, sync_once, NULL) == 0);
    pause_ms(100);
    CHILD_EXPECT(!atomic_load(&has_synced));
    gvm_store_release_u32(entry, lap | 2);
    gvm_atomic_or_u32(&record->flags, GVM_REGION_COUNTED);
    CHILD_EXPECT(pthread_join(thread, NULL) == 0 && atomic_load(&has_synced));
    CHILD_EXPECT(collection->far.count == 1 && collection->far.numbers[0] == 2);
    return stop() ? 0 : 1;
}

/* The frame of a region that the CPU writes is not written home over that, even if the CPU says that it writes all. */
static int evict_what_the_cpu_writes(void *arg)
{
    void *pointer;

    (void)arg;
    CHILD_EXPECT(start(2 * MIB, 4, 1 * MIB, GVM_REGION_FIFO));
    CHILD_EXPECT(write_by_kernel(0, 10) && gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_region_map_cpu(collection, 0, GVM_REGION_WRITE, &pointer) == GVM_OK);
    memset(pointer, 20, MIB);
    for (uint32_t i = 1; i < 4; i++)
        CHILD_EXPECT(kernel_reads(i, 0));
    CHILD_EXPECT(all_are(pointer, 20));
    CHILD_EXPECT(gvm_region_unmap_cpu(collection, 0) == GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK && kernel_reads(0, 20));
    return stop() ? 0 : 1;
}

/* A collection that evicts nothing gives frames whose regions the CPU has written to others, or to these. */
static int free_static_frames(void *arg)
{
    gvm_collection_info info = {.struct_size = sizeof info};

    (void)arg;
    CHILD_EXPECT(start(2 * MIB, 4, 1 * MIB, GVM_REGION_STATIC));
    for (uint32_t i = 0; i < 4; i++)
        CHILD_EXPECT(kernel_reads(i, 0));
    CHILD_EXPECT(gvm_collection_get_info(collection, &info) == GVM_OK && info.fetched == 2);
    CHILD_EXPECT(write_by_cpu(0, 1) && write_by_cpu(1, 1) && gvm_space_sync(space, NULL) == GVM_OK);
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 2; i++)
            CHILD_EXPECT(kernel_reads(i, 1));
    CHILD_EXPECT(gvm_collection_get_info(collection, &info) == GVM_OK && info.fetched == 4);
    return stop() ? 0 : 1;
}

/* ---- words */

/* Such a word may say BUSY for ever. The region was written before, so that the sync comes to it. */
static int spoil_what_was_written(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start(2 * MIB, 4, 1 * MIB, GVM_REGION_FIFO));
    CHILD_EXPECT(write_by_kernel(0, 10));
    for (uint32_t i = 1; i < 4; i++)
        CHILD_EXPECT(kernel_reads(i, 0));
    gvm_region_unmap(&view, 0);
    CHILD_EXPECT((*word_of(0) & GVM_REGION_BUSY) != 0);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(kernel_reads(1, 0));
    return stop() ? 0 : 1;
}

static atomic_bool has_mapped;

static void *write_region_2(void *arg)
{
    (void)arg;
    if (gvm_region_map(&view, 2, GVM_REGION_WRITE) != NULL)
        atomic_store(&has_mapped, true);
    return NULL;
}

/* Another thread is about to put the region into the list of changes: a sync after this thread's unmap must see it. */
static int write_while_another_lists(void *arg)
{
    gvm_region_record *record;
    pthread_t thread;

    (void)arg;
    CHILD_EXPECT(start(2 * MIB, 4, 1000, GVM_REGION_CLOCK));
    record = (gvm_region_record *)(uintptr_t)table()->records + 2;
    gvm_atomic_or_u32(&record->flags, GVM_REGION_CHANGED);
    CHILD_EXPECT(pthread_create(&thread, NULL, write_region_2, NULL) == 0);
    while ((gvm_load_acquire_u64(word_of(2)) & GVM_REGION_RESIDENT) == 0)
        pause_ms(1);
    pause_ms(50);
    CHILD_EXPECT(!atomic_load(&has_mapped));
    gvm_atomic_or_u32(&record->flags, GVM_REGION_COUNTED);
    CHILD_EXPECT(pthread_join(thread, NULL) == 0 && atomic_load(&has_mapped));
    return stop() ? 0 : 1;
}

/* ---- lists */

/* What a list has mapped stays where it is, once for each entry, until a release of each. */
/* As if another search had taken the place of the hand at which the last free frame is: 4096 looks from there on do not reach it. */
static int map_all_that_fit(void *arg)
{
    gvm_region_table *t;
    uint32_t last;

    CHILD_EXPECT(start(4 * MIB, 8192, 512, *(const gvm_region_policy *)arg));
    t = (gvm_region_table *)(uintptr_t)view.table;
    CHILD_EXPECT(t->frame_count == 8192);
    last = t->frame_count - 1;
    for (uint32_t i = 0; i < last; i++)
        CHILD_EXPECT(gvm_region_map(&view, i, GVM_REGION_READ) != NULL);
    t->hand++;
    CHILD_EXPECT(gvm_region_map(&view, last, GVM_REGION_READ) != NULL);
    CHILD_EXPECT((*word_of(last) & GVM_REGION_REMOTE) == 0);
    for (uint32_t i = 0; i <= last; i++)
        gvm_region_unmap(&view, i);
    return stop() ? 0 : 1;
}

/* Regions that a warp maps several of: the list names more than there are frames, some twice, and none at places. */
static int hold_a_long_list(void *arg)
{
    enum { LIST = 1200, REGIONS = 700, BYTES = 8192 };
    gvm_buffer *buffer;
    uint32_t *list, *slots, in_frames = 0;
    uint8_t *home;

    (void)arg;
    CHILD_EXPECT(start(2 * MIB, REGIONS, BYTES, GVM_REGION_LIRS));
    for (uint32_t i = 0; i < REGIONS; i++) {
        CHILD_EXPECT(gvm_region_map_cpu(collection, i, GVM_REGION_WRITE, (void **)&home) == GVM_OK);
        for (uint32_t k = 0; k < BYTES / sizeof k; k++)
            ((uint32_t *)home)[k] = i * 2654435761u + k;
        CHILD_EXPECT(gvm_region_unmap_cpu(collection, i) == GVM_OK);
    }
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_create(device, 2 * MIB, NULL, &buffer) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, 2 * MIB) == GVM_OK);
    list = gvm_buffer_address(buffer);
    slots = list + LIST;
    for (uint32_t i = 0; i < LIST; i++)
        list[i] = i % 11 == 3 ? GVM_REGION_NONE : i / 2 * 11 % REGIONS;
    CHILD_EXPECT(gvm_region_resolve(collection, list, LIST, GVM_REGION_READ, slots, NULL, NULL) ==
                 GVM_OK);
    CHILD_EXPECT(gvm_device_synchronize(device) == GVM_OK);
    for (uint32_t i = 0; i < LIST; i++) {
        const uint32_t *data = (const uint32_t *)(uintptr_t)(view.address +
                                                             slots[i] * view.stride_bytes);

        CHILD_EXPECT((slots[i] == GVM_REGION_NONE) == (list[i] == GVM_REGION_NONE));
        in_frames += slots[i] < view.home;
        for (uint32_t k = 0; slots[i] != GVM_REGION_NONE && k < BYTES / sizeof k; k++)
            CHILD_EXPECT(data[k] == list[i] * 2654435761u + k);
    }
    CHILD_EXPECT(in_frames > 256 && in_frames < LIST - LIST / 11);
    CHILD_EXPECT(gvm_region_release(collection, list, LIST, slots, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    for (uint32_t i = 0; i < REGIONS; i++)
        CHILD_EXPECT((*word_of(i) & (GVM_REGION_REFERENCES | GVM_REGION_BUSY)) == 0);
    gvm_buffer_destroy(buffer);
    return stop() ? 0 : 1;
}

static int hold_a_list(void *arg)
{
    enum { LIST = 6 };
    static const uint32_t regions[LIST] = {1, 0, 1, GVM_REGION_NONE, 9, 0};
    gvm_buffer *buffer;
    uint32_t *list, *slots;
    uint8_t **found;

    (void)arg;
    CHILD_EXPECT(start(2 * MIB, 5, 1 * MIB, GVM_REGION_FIFO));
    CHILD_EXPECT(gvm_buffer_create(device, 2 * MIB, NULL, &buffer) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, 2 * MIB) == GVM_OK);
    list = gvm_buffer_address(buffer);
    slots = list + LIST;
    found = (uint8_t **)(list + 4 * LIST);
    memcpy(list, regions, sizeof regions);
    CHILD_EXPECT(write_by_kernel(0, 10) && write_by_kernel(1, 11));
    CHILD_EXPECT(gvm_region_resolve(collection, list, LIST, GVM_REGION_READ, slots, (void **)found,
                                    NULL) == GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("region 9 "));
    CHILD_EXPECT(slots[3] == GVM_REGION_NONE && slots[4] == GVM_REGION_NONE && found[4] == NULL);
    CHILD_EXPECT(slots[0] == slots[2] && slots[1] == slots[5] && slots[0] != slots[1]);
    for (uint32_t i = 2; i < 5; i++)
        CHILD_EXPECT(kernel_reads(i, 0) && (*word_of(i) & GVM_REGION_REMOTE) != 0);
    CHILD_EXPECT(all_are(found[0], 11) && all_are(found[1], 10));
    CHILD_EXPECT(gvm_region_release(collection, list, 2, slots, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(kernel_reads(2, 0) && (*word_of(2) & GVM_REGION_REMOTE) != 0);
    CHILD_EXPECT(gvm_region_release(collection, list + 2, LIST - 2, slots + 2, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(kernel_reads(2, 0) && (*word_of(2) & GVM_REGION_REMOTE) == 0);
    gvm_buffer_destroy(buffer);
    return stop() ? 0 : 1;
}

/* ---- check mode */

static bool start_checked(void)
{
    space_flags = GVM_SPACE_CHECK;
    return start(2 * MIB, 5, 1 * MIB - 7, GVM_REGION_FIFO);
}

/* A kernel that maps a region to read, and writes. */
static bool write_wrongly(uint32_t region, uint64_t at)
{
    uint8_t *bytes = gvm_region_map(&view, region, GVM_REGION_READ);

    if (bytes == NULL)
        return false;
    bytes[at]++;
    gvm_region_unmap(&view, region);
    return true;
}

static bool sync_names(gvm_status wanted, const char *region)
{
    return gvm_space_sync(space, NULL) == wanted && last_error_has(region);
}

static int overwrite_what_is_read(void *arg)
{
    const uint64_t last = 1 * MIB - 8;

    (void)arg;
    CHILD_EXPECT(start_checked());
    CHILD_EXPECT(kernel_reads(3, 0) && gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(write_wrongly(3, last) && sync_names(GVM_E_INVALID, "region 3 "));
    CHILD_EXPECT(last_error_has("not mapped to be written"));
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK); /* said once */
    CHILD_EXPECT(write_wrongly(4, 0));
    for (uint32_t i = 0; i < 3; i++) /* and where the region is evicted before the sync */
        CHILD_EXPECT(kernel_reads(i, 0));
    CHILD_EXPECT((*word_of(4) & GVM_REGION_RESIDENT) == 0);
    CHILD_EXPECT(sync_names(GVM_E_INVALID, "region 4 ") && gvm_space_sync(space, NULL) == GVM_OK);
    return stop() ? 0 : 1;
}

/* Also after the CPU has brought it home, and it is clean. */
static int write_what_is_mapped_to_be_written(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start_checked());
    for (uint8_t round = 1; round < 5; round++)
        for (uint32_t i = 0; i < 5; i++) {
            CHILD_EXPECT(kernel_reads(i, (uint8_t)(round - 1)) && write_by_kernel(i, round));
            CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
            CHILD_EXPECT((round & 1) == 0 || cpu_reads(i, round));
            CHILD_EXPECT(kernel_reads(i, round) && gvm_space_sync(space, NULL) == GVM_OK);
        }
    CHILD_EXPECT(cpu_reads(4, 4) && write_wrongly(4, 77) && sync_names(GVM_E_INVALID, "region 4 "));
    return stop() ? 0 : 1;
}

/* The CPU changes the homes of what kernels have in frames, which are evicted before the next sync. */
static int change_homes_of_frames(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start_checked());
    CHILD_EXPECT(kernel_reads(0, 0) && kernel_reads(1, 0));
    CHILD_EXPECT(write_by_cpu(0, 9) && write_by_cpu(1, 9));
    CHILD_EXPECT(kernel_reads(2, 0) && gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(kernel_reads(0, 9) && kernel_reads(1, 9) && gvm_space_sync(space, NULL) == GVM_OK);
    return stop() ? 0 : 1;
}

static int read_what_is_poison(void *arg)
{
    const uint64_t *words, poison = GVM_REGION_POISON;

    (void)arg;
    CHILD_EXPECT(start_checked());
    words = gvm_region_map(&view, 2, GVM_REGION_READ);
    CHILD_EXPECT(words != NULL && words[0] == 0);
    gvm_region_unmap(&view, 2);
    CHILD_EXPECT(write_by_cpu(2, 1) && gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(words[0] == poison && words[(MIB - 7) / 8 - 1] == poison);
    words = gvm_region_map(&view, 3, GVM_REGION_WRITE);
    CHILD_EXPECT(words != NULL && words[0] == poison && words[(MIB - 7) / 8 - 1] == poison);
    gvm_region_unmap(&view, 3);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK && kernel_reads(2, 1));
    return stop() ? 0 : 1;
}

static int write_on_both_sides(void *arg)
{
    void *pointer;

    (void)arg;
    CHILD_EXPECT(start_checked());
    CHILD_EXPECT(write_by_kernel(1, 5) && write_by_cpu(1, 6) && write_by_kernel(2, 7) &&
                 write_by_cpu(3, 8));
    CHILD_EXPECT(sync_names(GVM_E_TORN, "region 1 ") && gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(cpu_reads(2, 7) && kernel_reads(3, 8));
    /* Nor while the CPU has it mapped. */
    CHILD_EXPECT(gvm_region_map_cpu(collection, 4, GVM_REGION_READWRITE, &pointer) == GVM_OK);
    CHILD_EXPECT(write_by_kernel(4, 9) && sync_names(GVM_E_TORN, "region 4 "));
    CHILD_EXPECT(gvm_region_unmap_cpu(collection, 4) == GVM_OK && gvm_space_sync(space, NULL) == GVM_OK);
    /* One after the other is as it should be. */
    CHILD_EXPECT(write_by_kernel(1, 5) && gvm_space_sync(space, NULL) == GVM_OK && write_by_cpu(1, 6));
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK && write_by_kernel(1, 7));
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK && cpu_reads(1, 7));
    return stop() ? 0 : 1;
}

/* ---- ends */

static int fork_with_a_space(void *arg)
{
    int status = -1;
    void *pointer;
    pid_t pid;

    (void)arg;
    CHILD_EXPECT(start(2 * MIB, 4, 1000, GVM_REGION_CLOCK));
    pid = fork();
    if (pid == 0) {
        CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_FOREIGN && last_error_has("space"));
        CHILD_EXPECT(gvm_region_map_cpu(collection, 0, GVM_REGION_READ, &pointer) == GVM_E_FOREIGN);
        CHILD_EXPECT(last_error_has("collection"));
        gvm_collection_destroy(collection);
        gvm_space_destroy(space);
        _exit(0);
    }
    CHILD_EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    CHILD_EXPECT(write_by_kernel(0, 3) && gvm_space_sync(space, NULL) == GVM_OK && cpu_reads(0, 3));
    return stop() ? 0 : 1;
}

/* A kernel that reads a list which is nowhere. */
static int lose_the_context(void *arg)
{
    const uint32_t *nowhere = (const uint32_t *)(uintptr_t)0x10;
    gvm_collection *other = NULL;
    void *pointer;

    (void)arg;
    CHILD_EXPECT(start(2 * MIB, 4, 1000, GVM_REGION_CLOCK));
    CHILD_EXPECT(write_by_kernel(2, 3) && gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_region_resolve(collection, nowhere, 5, GVM_REGION_READ, NULL, NULL, NULL) ==
                 GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_LOST);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_LOST);
    CHILD_EXPECT(gvm_region_map_cpu(collection, 2, GVM_REGION_READ, &pointer) == GVM_E_LOST);
    CHILD_EXPECT(gvm_region_prefetch(collection, 0, 4, NULL) == GVM_E_LOST);
    CHILD_EXPECT(gvm_region_resolve(collection, nowhere, 5, GVM_REGION_READ, NULL, NULL, NULL) ==
                 GVM_E_LOST);
    CHILD_EXPECT(gvm_collection_create(space, 4, 1000, NULL, &other) == GVM_E_LOST && other == NULL);
    gvm_collection_destroy(collection);
    return stop() ? 0 : 1;
}

/* What ends them cannot enter the context any more. */
static int destroy_after_a_reset(void *arg)
{
    gvm_collection *other;

    (void)arg;
    CHILD_EXPECT(start(2 * MIB, 4, 1000, GVM_REGION_CLOCK));
    CHILD_EXPECT(gvm_collection_create(space, 4, 1000, NULL, &other) == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    gvm_error_set(GVM_E_INVALID, "of the program");
    gvm_collection_destroy(other);
    CHILD_EXPECT(last_error_has("of the program"));
    gvm_space_destroy(space);
    CHILD_EXPECT(last_error_has("of the program"));
    gvm_device_close(device);
    return nothing_left() ? 0 : 1;
}

static atomic_uint calls, succeeded;
static atomic_bool is_over;

/* Everything that can be called, until the collection is gone. */
static void *call_all(void *arg)
{
    gvm_space_info info = {.struct_size = sizeof info};
    gvm_collection_info of_collection = {.struct_size = sizeof of_collection};
    gvm_collection *mine;
    void *pointer;

    (void)arg;
    while (!atomic_load(&is_over)) {
        unsigned good = 0;

        good += gvm_region_map_cpu(collection, 1, GVM_REGION_READWRITE, &pointer) == GVM_OK &&
                gvm_region_unmap_cpu(collection, 1) == GVM_OK;
        good += gvm_space_sync(space, NULL) == GVM_OK;
        good += gvm_space_get_info(space, &info) == GVM_OK;
        good += gvm_collection_get_info(collection, &of_collection) == GVM_OK;
        good += gvm_region_prefetch(collection, 0, 4, NULL) == GVM_OK;
        if (gvm_collection_create(space, 4, 1000, NULL, &mine) == GVM_OK)
            gvm_collection_destroy(mine);
        atomic_fetch_add(&succeeded, good);
        atomic_fetch_add(&calls, 1);
    }
    return NULL;
}

static int destroy_under_calls(void *arg)
{
    const bool collection_first = *(const bool *)arg;
    pthread_t threads[3];

    CHILD_EXPECT(start(4 * MIB, 4, 1000, GVM_REGION_CLOCK));
    for (int i = 0; i < 3; i++)
        CHILD_EXPECT(pthread_create(&threads[i], NULL, call_all, NULL) == 0);
    while (atomic_load(&calls) < 10)
        pause_ms(1);
    CHILD_EXPECT(atomic_load(&succeeded) > 0);
    if (collection_first)
        gvm_collection_destroy(collection);
    gvm_space_destroy(space);
    atomic_store(&is_over, true);
    for (int i = 0; i < 3; i++)
        CHILD_EXPECT(pthread_join(threads[i], NULL) == 0);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_FOREIGN);
    gvm_device_close(device);
    return nothing_left() ? 0 : 1;
}

static void regions_of_any_size_keep_what_is_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        assert_child_succeeds(use_odd_sizes, (void *)(uintptr_t)&shapes[i]);
}

static void frame_that_is_free_is_found(void **state)
{
    static gvm_region_policy policies[] = {GVM_REGION_LIRS, GVM_REGION_CLOCK, GVM_REGION_STATIC};

    (void)state;
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        assert_child_succeeds(map_all_that_fit, &policies[i]);
}

static void space_destroyed_under_calls_waits_for_them(void **state)
{
    static bool firsts[] = {false, true};

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_child_succeeds(destroy_under_calls, &firsts[i]);
}

CHILD_TEST(collection_of_regions_larger_than_the_budget_has_no_share, share_with_one_too_large)
CHILD_TEST_NOT_VALGRIND(collection_too_large_is_refused, ask_for_too_much, VALGRIND_ADDRESSES)
CHILD_TEST(sync_passes_more_changes_than_fit_at_once, change_many)
CHILD_TEST(sync_of_many_laps_of_changes_misses_none, change_often)
CHILD_TEST(region_version_counts_writes_between_syncs, count_versions)
CHILD_TEST(sync_collects_each_entry_once, collect_again)
CHILD_TEST(sync_waits_for_entries_that_are_counted, collect_what_is_not_written_yet)
CHILD_TEST(region_version_after_the_last_is_newer, count_versions_beyond_the_last)
CHILD_TEST(region_written_by_the_cpu_is_not_overwritten_from_a_frame, evict_what_the_cpu_writes)
CHILD_TEST(policy_static_uses_freed_frames_again, free_static_frames)
CHILD_TEST(region_spoilt_does_not_stop_a_sync, spoil_what_was_written)
CHILD_TEST(region_written_by_two_is_listed_before_either_goes_on, write_while_another_lists)
CHILD_TEST(list_that_is_resolved_is_mapped_until_it_is_released, hold_a_list)
CHILD_TEST(list_of_small_regions_is_resolved, hold_a_long_list)
CHILD_TEST(region_overwritten_is_reported_in_check_mode, overwrite_what_is_read)
CHILD_TEST(region_written_rightly_is_not_reported_in_check_mode, write_what_is_mapped_to_be_written)
CHILD_TEST(region_whose_home_is_changed_is_not_reported_in_check_mode, change_homes_of_frames)
CHILD_TEST(frame_without_data_is_poisoned_in_check_mode, read_what_is_poison)
CHILD_TEST(region_written_by_both_sides_is_torn_in_check_mode, write_on_both_sides)
CHILD_TEST(child_of_fork_knows_no_space, fork_with_a_space)
CHILD_TEST_NOT_VALGRIND(space_of_a_lost_context_says_so_and_ends, lose_the_context, VALGRIND_FAULT)
CHILD_TEST(space_and_collection_that_end_after_a_reset_keep_the_error, destroy_after_a_reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_of_any_size_keep_what_is_written),
        cmocka_unit_test(collection_of_regions_larger_than_the_budget_has_no_share),
        cmocka_unit_test(collection_too_large_is_refused),
        cmocka_unit_test(sync_passes_more_changes_than_fit_at_once),
        cmocka_unit_test(sync_of_many_laps_of_changes_misses_none),
        cmocka_unit_test(region_version_counts_writes_between_syncs),
        cmocka_unit_test(sync_collects_each_entry_once),
        cmocka_unit_test(sync_waits_for_entries_that_are_counted),
        cmocka_unit_test(region_version_after_the_last_is_newer),
        cmocka_unit_test(region_written_by_the_cpu_is_not_overwritten_from_a_frame),
        cmocka_unit_test(policy_static_uses_freed_frames_again),
        cmocka_unit_test(region_spoilt_does_not_stop_a_sync),
        cmocka_unit_test(region_written_by_two_is_listed_before_either_goes_on),
        cmocka_unit_test(list_that_is_resolved_is_mapped_until_it_is_released),
        cmocka_unit_test(list_of_small_regions_is_resolved),
        cmocka_unit_test(frame_that_is_free_is_found),
        cmocka_unit_test(region_overwritten_is_reported_in_check_mode),
        cmocka_unit_test(region_written_rightly_is_not_reported_in_check_mode),
        cmocka_unit_test(region_whose_home_is_changed_is_not_reported_in_check_mode),
        cmocka_unit_test(frame_without_data_is_poisoned_in_check_mode),
        cmocka_unit_test(region_written_by_both_sides_is_torn_in_check_mode),
        cmocka_unit_test(child_of_fork_knows_no_space),
        cmocka_unit_test(space_of_a_lost_context_says_so_and_ends),
        cmocka_unit_test(space_and_collection_that_end_after_a_reset_keep_the_error),
        cmocka_unit_test(space_destroyed_under_calls_waits_for_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
