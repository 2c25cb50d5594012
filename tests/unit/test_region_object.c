/* Collections whose homes are an object: two spaces have them in common, on one device or on two. The test maps as a kernel of one
 * thread does. */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/prctl.h>

#include <gvmem/device/region.h>
#include <gvmem/gvmem.h>

#include "base/registry.h"
#include "region/region.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"

#define REGION (256 * KIB)
#define COUNT 32u
#define FRAMES 8u /* in 2 MiB */
#define NAME "/regions"

/* One who has the homes. */
typedef struct side {
    gvm_client *client;
    gvm_object *object;
    gvm_device *device;
    gvm_space *space;
    gvm_collection *collection;
    gvm_region_view view;
} side;

/* What they have. */
typedef struct setting {
    uint64_t count, region_bytes;
    gvm_region_shape shape;
    bool checked;
    int devices; /* how many the sides are on */
    uint32_t wait_ms;
} setting;

static const setting plain = {.count = COUNT, .region_bytes = REGION, .devices = 1};
static const setting checked = {.count = COUNT, .region_bytes = REGION, .devices = 1, .checked = true};
static const setting far_apart = {.count = COUNT, .region_bytes = REGION, .devices = 2, .checked = true};

static gvm_keeper *keeper;
static side a, b;

static int join(side *s)
{
    int fd;

    CHILD_EXPECT(gvm_keeper_open_socket(keeper, &fd) == GVM_OK);
    CHILD_EXPECT(gvm_client_adopt(fd, &s->client) == GVM_OK);
    return 0;
}

/* The object is open. */
static int attach(side *s, const setting *what, int ordinal)
{
    gvm_space_options options = gvm_space_options_init();

    options.budget_bytes = 2 * MIB;
    options.flags = what->checked ? GVM_SPACE_CHECK : 0;
    options.wait_ms = what->wait_ms;
    CHILD_EXPECT(gvm_device_open(ordinal, &s->device) == GVM_OK);
    CHILD_EXPECT(gvm_space_create(s->device, &options, &s->space) == GVM_OK);
    CHILD_EXPECT(gvm_collection_attach(s->space, s->object, NULL, GVM_FOREVER, &s->collection) ==
                 GVM_OK);
    CHILD_EXPECT(gvm_collection_get_view(s->collection, &s->view) == GVM_OK);
    CHILD_EXPECT(s->view.count == what->count);
    return 0;
}

static gvm_status run_keeper(const char *path)
{
    gvm_keeper_options options = gvm_keeper_options_init();
    const int32_t first = 0;

    options.path = path;
    options.devices = &first;
    options.device_count = 1;
    options.device_budget_bytes = 16 * MIB;
    options.host_budget_bytes = 64 * MIB;
    return gvm_keeper_start(&options, &keeper);
}

static int start_keeper(void)
{
    fixture_machine("devices=2,memory=64MiB,sms=2");
    CHILD_EXPECT(run_keeper("") == GVM_OK);
    return join(&a) + join(&b);
}

/* The keeper runs. */
static int start_sides(const setting *what)
{
    gvm_object_options options = gvm_object_options_init();

    options.chunk_bytes = 2 * MIB;
    CHILD_EXPECT(gvm_region_object_create(a.client, NAME, what->count, what->region_bytes,
                                          &what->shape, &options, &a.object) == GVM_OK);
    CHILD_EXPECT(gvm_object_open(b.client, NAME, 0, &b.object) == GVM_OK);
    return attach(&a, what, 0) + attach(&b, what, what->devices - 1);
}

static int start(const setting *what)
{
    CHILD_EXPECT(start_keeper() == 0);
    return start_sides(what);
}

static void leave(side *s)
{
    gvm_space_destroy(s->space);
    gvm_object_close(s->object);
    gvm_client_close(s->client);
    gvm_device_close(s->device);
}

/* Nothing is left. */
static int stop(void)
{
    leave(&a);
    leave(&b);
    gvm_keeper_stop(keeper);
    CHILD_EXPECT(gvmi_registry_count(GVMI_KIND_SPACE) == 0);
    CHILD_EXPECT(gvmi_registry_count(GVMI_KIND_COLLECTION) == 0);
    CHILD_EXPECT(gvmi_registry_count(GVMI_KIND_OBJECT) == 0);
    CHILD_EXPECT(gvmi_registry_count(GVMI_KIND_BUFFER) == 0);
    return 0;
}

/* ---- what sides do */

static gvm_status sync_side(const side *s)
{
    return gvm_space_sync(s->space, NULL);
}

static bool cpu_writes(const side *s, uint32_t region, uint32_t value)
{
    void *pointer;

    if (gvm_region_map_cpu(s->collection, region, GVM_REGION_READWRITE, &pointer) != GVM_OK)
        return false;
    *(uint32_t *)pointer = value;
    return gvm_region_unmap_cpu(s->collection, region) == GVM_OK;
}

static uint32_t cpu_reads(const side *s, uint32_t region)
{
    uint32_t value;
    void *pointer;

    if (gvm_region_map_cpu(s->collection, region, GVM_REGION_READ, &pointer) != GVM_OK)
        return UINT32_MAX;
    value = *(uint32_t *)pointer;
    return gvm_region_unmap_cpu(s->collection, region) == GVM_OK ? value : UINT32_MAX;
}

static bool kernel_writes(const side *s, uint32_t region, uint32_t value)
{
    uint32_t *pointer = gvm_region_map(&s->view, region, GVM_REGION_READWRITE);

    if (pointer == NULL)
        return false;
    *pointer = value;
    gvm_region_unmap(&s->view, region);
    return true;
}

static uint32_t kernel_reads(const side *s, uint32_t region)
{
    const uint32_t *pointer = gvm_region_map(&s->view, region, GVM_REGION_READ);
    const uint32_t value = pointer != NULL ? *pointer : UINT32_MAX;

    if (pointer != NULL)
        gvm_region_unmap(&s->view, region);
    return value;
}

static uint64_t fetched(const side *s)
{
    gvm_collection_info info = {.struct_size = sizeof info};

    return gvm_collection_get_info(s->collection, &info) == GVM_OK ? info.fetched : UINT64_MAX;
}

static bool is_in_frame(const side *s, uint32_t region)
{
    const uint64_t word = ((const uint64_t *)(uintptr_t)s->view.words)[region];

    return (word & (GVM_REGION_RESIDENT | GVM_REGION_REMOTE)) == GVM_REGION_RESIDENT;
}

static bool last_error_has(const char *text)
{
    gvm_error error;

    gvm_error_last(&error);
    return strstr(error.text, text) != NULL;
}

/* ---- who sees what */

static int share_writes(const setting *what)
{
    CHILD_EXPECT(start(what) == 0);
    for (uint32_t i = 0; i < COUNT; i++)
        CHILD_EXPECT(cpu_writes(&a, i, i));
    CHILD_EXPECT(sync_side(&a) == GVM_OK && sync_side(&b) == GVM_OK);
    for (uint32_t i = 0; i < FRAMES; i++)
        CHILD_EXPECT(kernel_reads(&a, i) == i && kernel_reads(&b, i) == i);
    CHILD_EXPECT(kernel_writes(&b, 3, 103) && kernel_writes(&b, COUNT - 1, 131));
    CHILD_EXPECT(kernel_reads(&a, 3) == 3); /* it has it in a frame */
    CHILD_EXPECT(sync_side(&a) == GVM_OK && kernel_reads(&a, 3) == 3);
    CHILD_EXPECT(sync_side(&b) == GVM_OK && sync_side(&a) == GVM_OK);
    for (uint32_t i = 0; i < FRAMES; i++) /* the others have stayed where they were */
        CHILD_EXPECT(is_in_frame(&a, i) == (i != 3));
    CHILD_EXPECT(kernel_reads(&a, 3) == 103);
    CHILD_EXPECT(cpu_reads(&a, 3) == 103 && cpu_reads(&a, COUNT - 1) == 131);
    CHILD_EXPECT(kernel_reads(&b, 3) == 103); /* of its own */
    CHILD_EXPECT(cpu_writes(&b, 5, 205) && kernel_reads(&a, 5) == 5);
    CHILD_EXPECT(sync_side(&b) == GVM_OK && sync_side(&a) == GVM_OK);
    CHILD_EXPECT(kernel_reads(&a, 5) == 205 && kernel_reads(&b, 5) == 205);
    return stop();
}

static int share_on_one_device(void *arg)
{
    (void)arg;
    return share_writes(&plain);
}

static int share_on_two_devices(void *arg)
{
    (void)arg;
    return share_writes(&far_apart);
}

/* What was not changed is not looked at again: of its own writes a side learns nothing. */
static int sync_alone(void *arg)
{
    uint64_t before;

    (void)arg;
    CHILD_EXPECT(start(&checked) == 0);
    for (uint32_t i = 0; i < FRAMES; i++)
        CHILD_EXPECT(kernel_writes(&a, i, i + 1));
    before = fetched(&a);
    for (int i = 0; i < 3; i++)
        CHILD_EXPECT(sync_side(&a) == GVM_OK && sync_side(&b) == GVM_OK);
    for (uint32_t i = 0; i < FRAMES; i++)
        CHILD_EXPECT(kernel_reads(&a, i) == i + 1);
    CHILD_EXPECT(fetched(&a) == before);
    for (uint32_t i = 0; i < FRAMES; i++)
        CHILD_EXPECT(kernel_reads(&b, i) == i + 1);
    return stop();
}

/* Versions lie in blocks; and small regions, whose stride divides no chunk. */
static int share_many_small(void *arg)
{
    static const setting many = {.count = 5000, .region_bytes = 656, .devices = 1, .checked = true};
    static const uint32_t changed[] = {0, 1, 1023, 1024, 2047, 2048, 4095, 4096, 4999};
    const uint32_t count = sizeof changed / sizeof changed[0];

    (void)arg;
    CHILD_EXPECT(start(&many) == 0);
    for (uint32_t i = 0; i < 5000; i++)
        CHILD_EXPECT(cpu_writes(&a, i, i));
    CHILD_EXPECT(sync_side(&a) == GVM_OK && sync_side(&b) == GVM_OK);
    for (uint32_t i = 0; i < 5000; i++)
        CHILD_EXPECT(kernel_reads(&a, i) == i && kernel_reads(&b, i) == i);
    for (uint32_t i = 0; i < count; i++)
        CHILD_EXPECT(kernel_writes(i % 2 == 0 ? &a : &b, changed[i], changed[i] + 10000));
    CHILD_EXPECT(sync_side(&a) == GVM_OK && sync_side(&b) == GVM_OK && sync_side(&a) == GVM_OK);
    for (uint32_t i = 0; i < count; i++) {
        CHILD_EXPECT(kernel_reads(&a, changed[i]) == changed[i] + 10000);
        CHILD_EXPECT(kernel_reads(&b, changed[i]) == changed[i] + 10000);
    }
    return stop();
}

/* Odd sizes: the homes begin with a chunk, frames somewhere in theirs. */
static int share_odd_sizes(void *arg)
{
    setting odd = {.region_bytes = *(const uint64_t *)arg, .devices = 1, .checked = true};

    odd.count = 20 * MIB / odd.region_bytes;
    odd.count = odd.count < 3000 ? odd.count : 3000;
    CHILD_EXPECT(start(&odd) == 0);
    for (uint32_t i = 0; i < odd.count; i++)
        CHILD_EXPECT(kernel_writes(&a, i, i + 7));
    CHILD_EXPECT(sync_side(&a) == GVM_OK && sync_side(&b) == GVM_OK);
    for (uint32_t i = 0; i < odd.count; i++)
        CHILD_EXPECT(kernel_reads(&b, i) == i + 7 && cpu_reads(&a, i) == i + 7);
    return stop();
}

static void odd_sizes_of_regions_are_shared(void **state)
{
    static uint64_t sizes[] = {16, 4080, 300000, 700000, 1500000, 3 * MIB};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        assert_child_succeeds(share_odd_sizes, &sizes[i]);
}

static int share_windows(void *arg)
{
    static const setting windows = {
        .count = 64,
        .devices = 2,
        .checked = true,
        .shape = {.width_bytes = 1024, .height = 16, .row_pitch_bytes = 8192}};
    void *first, *below;

    (void)arg;
    CHILD_EXPECT(start(&windows) == 0);
    CHILD_EXPECT(b.view.region_bytes == 16384 && (b.view.flags & GVM_REGION_VIEW_SHAPED) != 0);
    CHILD_EXPECT(kernel_writes(&a, 0, 1) && kernel_writes(&a, 8, 2) && sync_side(&a) == GVM_OK);
    CHILD_EXPECT(sync_side(&b) == GVM_OK && kernel_reads(&b, 0) == 1 && kernel_reads(&b, 8) == 2);
    CHILD_EXPECT(gvm_region_map_cpu(b.collection, 0, GVM_REGION_READ, &first) == GVM_OK);
    CHILD_EXPECT(gvm_region_map_cpu(b.collection, 8, GVM_REGION_READ, &below) == GVM_OK);
    CHILD_EXPECT((char *)below - (char *)first == 16 * 8192 && *(uint32_t *)below == 2);
    CHILD_EXPECT(gvm_region_unmap_cpu(b.collection, 0) == GVM_OK);
    CHILD_EXPECT(gvm_region_unmap_cpu(b.collection, 8) == GVM_OK);
    return stop();
}

/* ---- two writers */

static int write_on_both(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start(&far_apart) == 0);
    CHILD_EXPECT(kernel_writes(&a, 4, 1) && kernel_writes(&b, 4, 2) && kernel_writes(&b, 5, 3));
    CHILD_EXPECT(sync_side(&a) == GVM_OK);
    CHILD_EXPECT(sync_side(&b) == GVM_E_TORN && last_error_has("region 4 of"));
    CHILD_EXPECT(sync_side(&a) == GVM_OK && sync_side(&b) == GVM_OK); /* said once */
    CHILD_EXPECT(kernel_reads(&a, 4) == kernel_reads(&b, 4) && kernel_reads(&a, 5) == 3);
    CHILD_EXPECT(kernel_writes(&a, 6, 1) && sync_side(&a) == GVM_OK);
    CHILD_EXPECT(sync_side(&b) == GVM_OK);
    CHILD_EXPECT(kernel_writes(&b, 6, 2) && sync_side(&b) == GVM_OK); /* one after the other */
    CHILD_EXPECT(sync_side(&a) == GVM_OK && kernel_reads(&a, 6) == 2);
    CHILD_EXPECT(cpu_writes(&a, 7, 1) && cpu_writes(&b, 7, 2) && sync_side(&b) == GVM_OK);
    CHILD_EXPECT(sync_side(&a) == GVM_E_TORN && last_error_has("region 7 of"));
    CHILD_EXPECT(sync_side(&b) == GVM_OK && kernel_reads(&a, 7) == 2 && kernel_reads(&b, 7) == 2);
    return stop();
}

/* Without check mode it is no error, and all find the same afterwards. */
static int write_on_both_unchecked(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start(&plain) == 0);
    CHILD_EXPECT(kernel_writes(&a, 4, 1) && kernel_writes(&b, 4, 2));
    CHILD_EXPECT(sync_side(&a) == GVM_OK && sync_side(&b) == GVM_OK && sync_side(&a) == GVM_OK);
    CHILD_EXPECT(kernel_reads(&a, 4) == kernel_reads(&b, 4) && cpu_reads(&a, 4) == kernel_reads(&a, 4));
    return stop();
}

/* ---- regions that are mapped when a side syncs */

static int sync_while_mapped_to_write(void *arg)
{
    uint32_t *pointer;

    (void)arg;
    CHILD_EXPECT(start(&checked) == 0);
    CHILD_EXPECT(kernel_reads(&a, 9) == 0 && kernel_writes(&b, 10, 1));
    pointer = gvm_region_map(&b.view, 9, GVM_REGION_READWRITE);
    CHILD_EXPECT(pointer != NULL);
    *pointer = 1;
    CHILD_EXPECT(sync_side(&b) == GVM_E_TIMEOUT && last_error_has("1 regions mapped"));
    CHILD_EXPECT(sync_side(&a) == GVM_OK && kernel_reads(&a, 10) == 1 && kernel_reads(&a, 9) == 0);
    *pointer = 2;
    gvm_region_unmap(&b.view, 9);
    CHILD_EXPECT(sync_side(&b) == GVM_OK && sync_side(&a) == GVM_OK && kernel_reads(&a, 9) == 2);
    return stop();
}

static int sync_while_mapped_to_read(void *arg)
{
    const uint32_t *pointer;

    (void)arg;
    CHILD_EXPECT(start(&checked) == 0);
    pointer = gvm_region_map(&a.view, 9, GVM_REGION_READ);
    CHILD_EXPECT(pointer != NULL && kernel_writes(&b, 9, 1) && sync_side(&b) == GVM_OK);
    CHILD_EXPECT(sync_side(&a) == GVM_E_TIMEOUT && *pointer == 0);
    gvm_region_unmap(&a.view, 9);
    CHILD_EXPECT(sync_side(&a) == GVM_OK && kernel_reads(&a, 9) == 1);
    return stop();
}

/* What was brought home for the CPU, before a sync, is raised by the next one. */
static int map_on_the_cpu_between(void *arg)
{
    uint32_t *pointer;

    (void)arg;
    CHILD_EXPECT(start(&checked) == 0);
    CHILD_EXPECT(kernel_reads(&a, 2) == 0);
    pointer = gvm_region_map(&b.view, 2, GVM_REGION_READWRITE);
    CHILD_EXPECT(pointer != NULL);
    *pointer = 8;
    CHILD_EXPECT(sync_side(&b) == GVM_E_TIMEOUT);
    gvm_region_unmap(&b.view, 2);
    CHILD_EXPECT(cpu_reads(&b, 2) == 8);
    CHILD_EXPECT(sync_side(&b) == GVM_OK && sync_side(&a) == GVM_OK && kernel_reads(&a, 2) == 8);
    return stop();
}

/* ---- the end of one of them */

/* Writes a region, and has it evicted: its home has that, and nobody was told. */
static int write_and_evict(const side *s, uint32_t region, uint32_t value)
{
    CHILD_EXPECT(kernel_writes(s, region, value));
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 16; i < 16 + FRAMES; i++)
            (void)kernel_reads(s, i);
    return 0;
}

static int leave_without_sync(void *arg)
{
    uint64_t before;

    (void)arg;
    CHILD_EXPECT(start(&checked) == 0);
    CHILD_EXPECT(kernel_reads(&a, 1) == 0 && kernel_reads(&a, 2) == 0);
    CHILD_EXPECT(kernel_writes(&a, 2, 20)); /* its own is not lost */
    CHILD_EXPECT(write_and_evict(&b, 1, 11) == 0);
    CHILD_EXPECT(sync_side(&a) == GVM_OK && kernel_reads(&a, 1) == 0);
    gvm_collection_destroy(b.collection);
    CHILD_EXPECT(kernel_writes(&a, 3, 30));
    CHILD_EXPECT(sync_side(&a) == GVM_OK);
    before = fetched(&a);
    CHILD_EXPECT(kernel_reads(&a, 1) == 11 && cpu_reads(&a, 1) == 11); /* the same, whichever it is */
    CHILD_EXPECT(kernel_reads(&a, 2) == 20 && kernel_reads(&a, 3) == 30);
    CHILD_EXPECT(fetched(&a) == before + 3);
    CHILD_EXPECT(sync_side(&a) == GVM_OK && kernel_reads(&a, 1) == 11 && fetched(&a) == before + 3);
    return stop();
}

/* What the CPU writes is at home at once, and in no list before it unmaps. */
static int leave_while_cpu_writes(void *arg)
{
    void *pointer;

    (void)arg;
    CHILD_EXPECT(start(&checked) == 0);
    CHILD_EXPECT(kernel_reads(&a, 1) == 0);
    CHILD_EXPECT(gvm_region_map_cpu(b.collection, 1, GVM_REGION_WRITE, &pointer) == GVM_OK);
    *(uint32_t *)pointer = 42;
    gvm_collection_destroy(b.collection);
    CHILD_EXPECT(sync_side(&a) == GVM_OK && cpu_reads(&a, 1) == 42 && kernel_reads(&a, 1) == 42);
    return stop();
}

static const gvmi_driver *real;
static gvmi_driver altered;
static uint32_t abandoned_before, abandoned_at_end;

/* Of the cleaner's stream, which is waited for before: the head is mapped still. */
static CUresult look_and_destroy(CUstream stream)
{
    if (b.collection->cleaner.is_on && stream == b.collection->cleaner.stream)
        abandoned_at_end = atomic_load(&b.collection->homes->head->abandoned);
    return real->cuStreamDestroy(stream);
}

/* Who drops frames before the last copy home is over fetches what is not there yet, and does not look again. */
static int leave_behind_the_cleaner(void *arg)
{
    gvm_collection_options options = gvm_collection_options_init();
    gvmi_homes_head *head;

    (void)arg;
    CHILD_EXPECT(start(&plain) == 0);
    gvm_collection_destroy(b.collection);
    options.clean_low = 50;
    CHILD_EXPECT(gvm_collection_attach(b.space, b.object, &options, GVM_FOREVER, &b.collection) ==
                 GVM_OK);
    CHILD_EXPECT(gvm_collection_get_view(b.collection, &b.view) == GVM_OK);
    CHILD_EXPECT(kernel_writes(&b, 1, 11));
    head = a.collection->homes->head;
    abandoned_before = atomic_load(&head->abandoned);
    abandoned_at_end = UINT32_MAX;
    real = gvmi_cu;
    altered = *real;
    altered.cuStreamDestroy = look_and_destroy;
    gvmi_cu = &altered;
    gvm_collection_destroy(b.collection);
    gvmi_cu = real;
    CHILD_EXPECT(abandoned_at_end == abandoned_before);
    CHILD_EXPECT(atomic_load(&head->abandoned) == abandoned_before + 1);
    return stop();
}

/* A sync could not drop the frame, and a kernel writes it before the next one. */
static int write_a_stale_frame(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start(&checked) == 0);
    CHILD_EXPECT(gvm_region_map(&a.view, 1, GVM_REGION_READ) != NULL);
    CHILD_EXPECT(kernel_writes(&b, 1, 11) && sync_side(&b) == GVM_OK);
    CHILD_EXPECT(sync_side(&a) == GVM_E_TIMEOUT);
    gvm_region_unmap(&a.view, 1);
    CHILD_EXPECT(write_and_evict(&a, 1, 12) == 0 && sync_side(&a) == GVM_E_TORN);
    CHILD_EXPECT(sync_side(&b) == GVM_OK && kernel_reads(&a, 1) == 12 && kernel_reads(&b, 1) == 12);
    return stop();
}

static int leave_after_sync(void *arg)
{
    uint64_t before;

    (void)arg;
    CHILD_EXPECT(start(&checked) == 0);
    CHILD_EXPECT(kernel_reads(&a, 1) == 0 && kernel_reads(&a, 2) == 0);
    CHILD_EXPECT(write_and_evict(&b, 1, 11) == 0 && sync_side(&b) == GVM_OK);
    gvm_space_destroy(b.space);
    before = fetched(&a);
    CHILD_EXPECT(sync_side(&a) == GVM_OK && kernel_reads(&a, 1) == 11 && kernel_reads(&a, 2) == 0);
    CHILD_EXPECT(fetched(&a) == before + 1); /* frames were not dropped */
    return stop();
}

/* A frame that is mapped when all are to be dropped is dropped by a later sync. */
static int leave_while_others_map(void *arg)
{
    const uint32_t *pointer;

    (void)arg;
    CHILD_EXPECT(start(&plain) == 0);
    pointer = gvm_region_map(&a.view, 1, GVM_REGION_READ);
    CHILD_EXPECT(pointer != NULL && write_and_evict(&b, 1, 11) == 0);
    gvm_collection_destroy(b.collection);
    CHILD_EXPECT(sync_side(&a) == GVM_E_TIMEOUT && *pointer == 0);
    gvm_region_unmap(&a.view, 1);
    CHILD_EXPECT(sync_side(&a) == GVM_OK && kernel_reads(&a, 1) == 11);
    return stop();
}

/* One that ends between the two additions of a sync has raised a region's version alone: that is no writer whom others did not see. */
static int end_between_additions(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start(&checked) == 0);
    CHILD_EXPECT(kernel_reads(&a, 4) == 0 && write_and_evict(&b, 4, 11) == 0);
    atomic_fetch_add(&b.collection->homes->versions[4], 1);
    gvm_collection_destroy(b.collection);
    CHILD_EXPECT(sync_side(&a) == GVM_OK && kernel_reads(&a, 4) == 11);
    CHILD_EXPECT(kernel_writes(&a, 4, 12) && sync_side(&a) == GVM_OK);
    return stop();
}

/* Who comes later finds what is there. */
static int come_later(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start(&checked) == 0);
    CHILD_EXPECT(kernel_writes(&a, 1, 11) && sync_side(&a) == GVM_OK);
    gvm_space_destroy(b.space);
    CHILD_EXPECT(attach(&b, &checked, 1) == 0);
    CHILD_EXPECT(kernel_reads(&b, 1) == 11 && kernel_writes(&b, 1, 12) && sync_side(&b) == GVM_OK);
    CHILD_EXPECT(sync_side(&a) == GVM_OK && kernel_reads(&a, 1) == 12);
    return stop();
}

/* ---- what goes wrong */

static int lose_the_keeper(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start(&checked) == 0);
    CHILD_EXPECT(kernel_writes(&b, 1, 11));
    gvm_keeper_stop(keeper);
    CHILD_EXPECT(sync_side(&b) == GVM_E_KEEPER && sync_side(&a) == GVM_E_KEEPER);
    CHILD_EXPECT(kernel_reads(&a, 1) == 11); /* all else was done */
    return stop();
}

static pid_t keeper_process;
static fixture_folder folder;

/* The keeper is a process of its own, that may be stopped. */
static int start_keeper_apart(void)
{
    int ready[2];
    char byte;

    fixture_machine("devices=2,memory=64MiB,sms=2");
    CHILD_EXPECT(fixture_folder_make(&folder) && pipe2(ready, O_CLOEXEC) == 0);
    keeper_process = fork();
    if (keeper_process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (run_keeper(folder.socket) != GVM_OK || write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    CHILD_EXPECT(keeper_process > 0 && read(ready[0], &byte, 1) == 1 && close(ready[0]) == 0);
    CHILD_EXPECT(gvm_client_connect(folder.socket, &a.client) == GVM_OK);
    CHILD_EXPECT(gvm_client_connect(folder.socket, &b.client) == GVM_OK);
    return 0;
}

/* What needs the keeper fails in time, all else is done, and nothing is lost. */
static int stop_the_keeper(void *arg)
{
    static const setting brief = {
        .count = COUNT, .region_bytes = REGION, .devices = 1, .checked = true, .wait_ms = 200};
    gvm_collection *second;

    (void)arg;
    end_child_after(30);
    CHILD_EXPECT(start_keeper_apart() == 0 && start_sides(&brief) == 0);
    CHILD_EXPECT(kernel_reads(&a, 1) == 0 && kernel_writes(&b, 1, 11));
    CHILD_EXPECT(kill(keeper_process, SIGSTOP) == 0);
    CHILD_EXPECT(waitpid(keeper_process, NULL, WUNTRACED) == keeper_process); /* it has stopped */
    CHILD_EXPECT(sync_side(&b) == GVM_E_TIMEOUT && last_error_has("does not answer"));
    CHILD_EXPECT(sync_side(&a) == GVM_E_TIMEOUT && kernel_reads(&a, 1) == 11);
    CHILD_EXPECT(gvm_collection_attach(a.space, a.object, NULL, 200, &second) == GVM_E_TIMEOUT);
    CHILD_EXPECT(gvm_collection_attach(a.space, a.object, NULL, GVM_TRY, &second) == GVM_E_TIMEOUT);
    CHILD_EXPECT(kernel_writes(&b, 2, 12));
    gvm_collection_destroy(b.collection);
    CHILD_EXPECT(kill(keeper_process, SIGCONT) == 0);
    CHILD_EXPECT(sync_side(&a) == GVM_OK && kernel_reads(&a, 1) == 11);
    CHILD_EXPECT(gvm_collection_attach(a.space, a.object, NULL, GVM_FOREVER, &second) == GVM_OK);
    leave(&a);
    leave(&b);
    CHILD_EXPECT(kill(keeper_process, SIGKILL) == 0 && waitpid(keeper_process, NULL, 0) > 0);
    fixture_folder_end(&folder);
    return 0;
}

/* Of the object, as a says. */
static bool has_openings(uint32_t openings, uint32_t read_leases)
{
    gvm_object_info info = {.struct_size = sizeof info};

    return gvm_object_get_info(a.object, &info) == GVM_OK && info.openings == openings &&
           info.read_leases == read_leases;
}

static uint32_t count_clients(void)
{
    gvm_keeper_info info = {.struct_size = sizeof info};
    gvm_snapshot *snapshot;

    if (gvm_client_get_snapshot(a.client, &snapshot) != GVM_OK)
        return UINT32_MAX;
    if (gvm_snapshot_get_keeper(snapshot, &info) != GVM_OK)
        info.clients = UINT32_MAX;
    gvm_snapshot_destroy(snapshot);
    return info.clients;
}

static int use_after_close(void)
{
    CHILD_EXPECT(kernel_writes(&b, 1, 11) && sync_side(&b) == GVM_OK);
    CHILD_EXPECT(sync_side(&a) == GVM_OK && kernel_reads(&a, 1) == 11);
    CHILD_EXPECT(cpu_writes(&a, 2, 12) && sync_side(&a) == GVM_OK);
    CHILD_EXPECT(sync_side(&b) == GVM_OK && kernel_reads(&b, 2) == 12 && cpu_reads(&b, 2) == 12);
    return 0;
}

static int close_the_object(void *arg)
{
    gvm_lease lease, other;

    (void)arg;
    CHILD_EXPECT(start(&checked) == 0);
    CHILD_EXPECT(gvm_object_acquire(b.object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    other = lease;
    CHILD_EXPECT(gvm_object_release_async(b.object, &other, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_device_synchronize(b.device) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(b.object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    CHILD_EXPECT(has_openings(2, 3));
    gvm_object_close(b.object);
    CHILD_EXPECT(has_openings(2, 2)); /* the program's lease has ended */
    CHILD_EXPECT(gvm_object_release(b.object, &lease) == GVM_E_FOREIGN && has_openings(2, 2));
    CHILD_EXPECT(use_after_close() == 0);
    gvm_collection_destroy(b.collection);
    CHILD_EXPECT(has_openings(1, 1));
    return stop();
}

/* The memory is not another object's before the last collection has ended, though the object has no name any more. */
static int close_the_last_opening(void *arg)
{
    gvm_object_options options = gvm_object_options_init();
    gvm_acquire_options for_cpu = gvm_acquire_options_init();
    gvm_object *other;
    gvm_lease lease;

    (void)arg;
    CHILD_EXPECT(start(&plain) == 0);
    gvm_collection_destroy(a.collection);
    gvm_object_close(a.object); /* the name goes with its creator's opening */
    gvm_object_close(b.object);
    options.size_bytes = 32 * MIB;
    options.chunk_bytes = 2 * MIB;
    options.flags = GVM_OBJECT_HOST;
    for_cpu.flags = GVM_ACQUIRE_CPU;
    CHILD_EXPECT(gvm_object_create(a.client, NULL, 32 * MIB, &options, &other) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(other, GVM_LEASE_WRITE, &for_cpu, GVM_FOREVER, &lease) == GVM_OK);
    memset(lease.address, 0x11, 32 * MIB);
    for (uint32_t i = 0; i < COUNT; i++)
        CHILD_EXPECT(cpu_reads(&b, i) == 0 && cpu_writes(&b, i, 0x22222222));
    CHILD_EXPECT(sync_side(&b) == GVM_OK);
    gvm_collection_destroy(b.collection);
    for (uint64_t i = 0; i < 32 * MIB; i++)
        if (((const unsigned char *)lease.address)[i] != 0x11) {
            dprintf(STDERR_FILENO, "# byte %llu is %x\n", (unsigned long long)i,
                    ((const unsigned char *)lease.address)[i]);
            return 1;
        }
    gvm_object_close(other);
    return stop();
}

static int close_the_connection(void *arg)
{
    gvm_collection *second;

    (void)arg;
    CHILD_EXPECT(start(&checked) == 0);
    CHILD_EXPECT(gvm_collection_attach(b.space, b.object, NULL, GVM_FOREVER, &second) == GVM_OK);
    CHILD_EXPECT(has_openings(2, 3) && count_clients() == 2);
    gvm_client_close(b.client);
    CHILD_EXPECT(has_openings(2, 3) && count_clients() == 2);
    CHILD_EXPECT(use_after_close() == 0);
    gvm_collection_destroy(second);
    CHILD_EXPECT(has_openings(2, 2) && sync_side(&b) == GVM_OK);
    gvm_space_destroy(b.space);
    CHILD_EXPECT(has_openings(1, 1));
    while (count_clients() != 1) /* the keeper is to read BYE */
        sched_yield();
    return stop();
}

static int attach_what_is_none(void *arg)
{
    gvm_collection_options options = gvm_collection_options_init();
    gvm_object_options object_options = gvm_object_options_init();
    gvm_collection *none = NULL;
    gvm_object *object;
    uint32_t region;

    (void)arg;
    CHILD_EXPECT(start(&plain) == 0);
    CHILD_EXPECT(gvm_region_delete(a.collection, 1) == GVM_E_NOTSUP);
    CHILD_EXPECT(gvm_region_create(a.collection, &region) == GVM_E_LIMIT);
    options.unused_count = 1;
    CHILD_EXPECT(gvm_collection_attach(a.space, a.object, &options, 0, &none) == GVM_E_INVALID);
    options.unused_count = 0;
    options.shape.height = 2;
    CHILD_EXPECT(gvm_collection_attach(a.space, a.object, &options, 0, &none) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_collection_attach(a.space, a.object, NULL, 0, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_collection_attach(a.space, a.object, NULL, -2, &none) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_collection_attach(NULL, a.object, NULL, GVM_FOREVER, &none) == GVM_E_FOREIGN);
    CHILD_EXPECT(gvm_collection_attach(a.space, NULL, NULL, 0, &none) == GVM_E_FOREIGN);
    CHILD_EXPECT(gvm_region_object_create(a.client, NULL, 0, 16, NULL, NULL, &object) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_region_object_create(a.client, NULL, 16, 0, NULL, NULL, &object) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_region_object_create(a.client, NAME, 16, 16, NULL, NULL, &object) == GVM_E_EXISTS);
    CHILD_EXPECT(gvm_region_object_create(NULL, NULL, 16, 16, NULL, NULL, &object) == GVM_E_FOREIGN);

    CHILD_EXPECT(gvm_object_open(a.client, NAME, GVM_OPEN_READONLY, &object) == GVM_OK);
    CHILD_EXPECT(gvm_collection_attach(a.space, object, NULL, 0, &none) == GVM_E_READONLY);
    gvm_object_close(object);
    object_options.size_bytes = 2 * MIB;
    CHILD_EXPECT(gvm_object_create(a.client, NULL, 2 * MIB, &object_options, &object) == GVM_OK);
    CHILD_EXPECT(gvm_collection_attach(a.space, object, NULL, GVM_FOREVER, &none) == GVM_E_FORMAT);
    gvm_object_close(object);
    CHILD_EXPECT(gvm_region_object_create(a.client, NULL, 16, 16, NULL, NULL, &object) == GVM_OK);
    CHILD_EXPECT(gvm_object_seal(object, GVM_FOREVER) == GVM_OK);
    CHILD_EXPECT(gvm_collection_attach(a.space, object, NULL, 0, &none) == GVM_E_SEALED);
    gvm_object_close(object);
    CHILD_EXPECT(none == NULL);
    return stop();
}

static void *seal_object(void *object)
{
    return (void *)(intptr_t)gvm_object_seal(object, GVM_FOREVER);
}

static void *attach_object(void *space)
{
    gvm_collection *none;

    return (void *)(intptr_t)gvm_collection_attach(space, b.object, NULL, GVM_FOREVER, &none);
}

static bool wait_for_waiting(const side *s, uint32_t count)
{
    gvm_object_info info = {.struct_size = sizeof info};

    do {
        if (gvm_object_get_info(s->object, &info) != GVM_OK)
            return false;
        sched_yield();
    } while (info.waiting != count);
    return true;
}

static int attach_behind_a_seal(void *arg)
{
    pthread_t sealing, attaching;
    gvm_object *third;
    gvm_lease lease;
    void *sealed, *attached;

    (void)arg;
    CHILD_EXPECT(start(&plain) == 0);
    gvm_collection_destroy(a.collection);
    gvm_collection_destroy(b.collection);
    CHILD_EXPECT(gvm_object_open(a.client, NAME, 0, &third) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(third, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease) == GVM_OK);
    CHILD_EXPECT(pthread_create(&sealing, NULL, seal_object, a.object) == 0);
    CHILD_EXPECT(wait_for_waiting(&a, 1));
    CHILD_EXPECT(pthread_create(&attaching, NULL, attach_object, b.space) == 0);
    CHILD_EXPECT(wait_for_waiting(&a, 2));
    CHILD_EXPECT(gvm_object_release(third, &lease) == GVM_OK);
    CHILD_EXPECT(pthread_join(sealing, &sealed) == 0 && (intptr_t)sealed == GVM_OK);
    CHILD_EXPECT(pthread_join(attaching, &attached) == 0 && (intptr_t)attached == GVM_E_SEALED);
    gvm_object_close(third);
    return stop();
}

/* The function that maps checks it itself. */
static int map_sealed_twice(void *arg)
{
    gvm_buffer *source, *target;

    (void)arg;
    CHILD_EXPECT(start(&plain) == 0);
    CHILD_EXPECT(gvm_buffer_create(a.device, 2 * MIB, NULL, &source) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_create(a.device, 2 * MIB, NULL, &target) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_commit(source, 0, 2 * MIB) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_seal(source) == GVM_OK);
    CHILD_EXPECT(gvmi_buffer_alias(target, 0, source, 1) == GVM_E_SEALED);
    gvm_buffer_destroy(source);
    gvm_buffer_destroy(target);
    return stop();
}

/* What another program has written into the metadata is checked. */
static int attach_forged(void *arg)
{
    struct {
        uint32_t magic, version;
        uint64_t count, region_bytes;
        gvm_region_shape shape;
    } about, forged;
    gvm_collection *none;
    uint32_t len;

    (void)arg;
    CHILD_EXPECT(start(&plain) == 0);
    CHILD_EXPECT(gvm_object_get_metadata(a.object, &about, sizeof about, &len) == GVM_OK);
    CHILD_EXPECT(len == sizeof about);
    forged = about;
    forged.count = COUNT * 100; /* more than the object has room for */
    CHILD_EXPECT(gvm_object_set_metadata(a.object, &forged, sizeof forged) == GVM_OK);
    CHILD_EXPECT(gvm_collection_attach(a.space, a.object, NULL, GVM_FOREVER, &none) == GVM_E_FORMAT);
    forged.count = UINT64_MAX;
    CHILD_EXPECT(gvm_object_set_metadata(a.object, &forged, sizeof forged) == GVM_OK);
    CHILD_EXPECT(gvm_collection_attach(a.space, a.object, NULL, GVM_FOREVER, &none) == GVM_E_FORMAT);
    forged = about;
    forged.version = 2;
    CHILD_EXPECT(gvm_object_set_metadata(a.object, &forged, sizeof forged) == GVM_OK);
    CHILD_EXPECT(gvm_collection_attach(a.space, a.object, NULL, GVM_FOREVER, &none) == GVM_E_VERSION);
    CHILD_EXPECT(gvm_object_set_metadata(a.object, &about, sizeof about - 1) == GVM_OK);
    CHILD_EXPECT(gvm_collection_attach(a.space, a.object, NULL, GVM_FOREVER, &none) == GVM_E_FORMAT);
    return stop();
}

/* The homes never lie on the device, and a lease that needs them there is not granted meanwhile. */
static int homes_stay_on_the_host(void *arg)
{
    gvm_object_info info = {.struct_size = sizeof info};
    gvm_lease lease;
    uint64_t evicted;

    (void)arg;
    end_child_after(30);
    CHILD_EXPECT(start(&plain) == 0);
    do /* leases that are not needed any more are given back a little later */
        CHILD_EXPECT(gvm_object_get_info(a.object, &info) == GVM_OK);
    while (info.read_leases > 2);
    CHILD_EXPECT(info.device_bytes == 0 && info.read_leases == 2 && info.promoted_bytes == 0);
    CHILD_EXPECT(info.evicted_bytes == 0); /* it was made there */
    CHILD_EXPECT(gvm_object_acquire(b.object, GVM_LEASE_WRITE, NULL, 0, &lease) == GVM_E_TIMEOUT);
    CHILD_EXPECT(gvm_object_acquire(b.object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease) ==
                 GVM_E_TIMEOUT);
    CHILD_EXPECT(last_error_has("has attached"));
    CHILD_EXPECT(gvm_object_seal(a.object, GVM_FOREVER) == GVM_E_TIMEOUT);
    CHILD_EXPECT(gvm_client_evict(a.client, NAME, UINT64_MAX, &evicted) == GVM_OK && evicted == 0);
    CHILD_EXPECT(kernel_writes(&a, 1, 5) && sync_side(&a) == GVM_OK && cpu_reads(&b, 1) == 5);
    return stop();
}

/* ---- two threads that sync one space */

static atomic_uint questions;
static atomic_bool answers;

/* The first question's answer comes after that to the second, and says less. */
static gvm_status answer_late(gvmi_homes *homes, int64_t deadline_ns, gvmi_homes_ended *out)
{
    const bool first = atomic_fetch_add(&questions, 1) == 0;

    (void)homes;
    (void)deadline_ns;
    while (first && !atomic_load(&answers))
        pause_ms(1);
    *out = (gvmi_homes_ended){.count = !first};
    return GVM_OK;
}

static void *sync_a(void *arg)
{
    *(gvm_status *)arg = sync_side(&a);
    return NULL;
}

static int ask_at_once(void *arg)
{
    pthread_t thread;
    gvm_status status;

    (void)arg;
    CHILD_EXPECT(start(&checked) == 0);
    a.collection->homes->ask = answer_late;
    CHILD_EXPECT(pthread_create(&thread, NULL, sync_a, &status) == 0);
    while (atomic_load(&questions) == 0)
        pause_ms(1);
    CHILD_EXPECT(sync_side(&a) == GVM_OK && atomic_load(&questions) == 2);
    CHILD_EXPECT(a.collection->homes->seen_ended.count == 1);
    atomic_store(&answers, true);
    CHILD_EXPECT(pthread_join(thread, NULL) == 0 && status == GVM_OK);
    CHILD_EXPECT(a.collection->homes->seen_ended.count == 1);
    return stop();
}

/* clang-format off */
#define TESTS(X) \
    X(writes_are_seen_after_sync_on_one_device, share_on_one_device) \
    X(writes_are_seen_after_sync_on_two_devices, share_on_two_devices) \
    X(own_writes_are_not_fetched_again, sync_alone) \
    X(versions_in_blocks_are_found, share_many_small) \
    X(windows_are_shared, share_windows) \
    X(two_writers_are_torn_in_check_mode, write_on_both) \
    X(two_writers_unchecked_leave_the_same_everywhere, write_on_both_unchecked) \
    X(region_mapped_to_write_is_left_by_sync, sync_while_mapped_to_write) \
    X(region_mapped_to_read_is_left_by_sync, sync_while_mapped_to_read) \
    X(region_brought_home_for_the_cpu_is_raised_later, map_on_the_cpu_between) \
    X(collection_destroyed_unsynced_has_others_drop_frames, leave_without_sync) \
    X(collection_destroyed_while_cpu_writes_has_others_drop_frames, leave_while_cpu_writes) \
    X(collection_destroyed_announces_it_behind_its_last_copies, leave_behind_the_cleaner) \
    X(collection_destroyed_synced_has_others_keep_frames, leave_after_sync) \
    X(frames_that_are_mapped_are_dropped_later, leave_while_others_map) \
    X(version_raised_without_its_block_is_seen_at_a_death, end_between_additions) \
    X(collection_attached_later_has_what_was_written, come_later) \
    X(sync_without_keeper_says_so_and_goes_on, lose_the_keeper) \
    X(stopped_keeper_is_waited_for_in_time, stop_the_keeper) \
    X(collection_of_closed_object_goes_on, close_the_object) \
    X(memory_of_closed_object_stays_the_collections, close_the_last_opening) \
    X(collection_of_closed_connection_goes_on, close_the_connection) \
    X(attach_checks_what_it_is_given, attach_what_is_none) \
    X(attach_behind_a_seal_fails, attach_behind_a_seal) \
    X(sealed_memory_is_not_mapped_twice, map_sealed_twice) \
    X(attach_checks_metadata, attach_forged) \
    X(homes_stay_in_host_memory, homes_stay_on_the_host) \
    X(later_answer_of_the_keeper_stays, ask_at_once) \
    X(writer_whose_frame_is_stale_leaves_the_same_everywhere, write_a_stale_frame)
/* clang-format on */

TESTS(CHILD_TEST)

#define ROW(test, function) cmocka_unit_test(test),

int main(void)
{
    const struct CMUnitTest tests[] = {TESTS(ROW) cmocka_unit_test(odd_sizes_of_regions_are_shared)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
