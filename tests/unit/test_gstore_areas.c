/* How gstore_fdw gives back memory of areas. The tests count what that costs: areas visited (twalk_r) and attempts to
 * shrink an object (gvm_object_shrink). The keeper runs in the test's process, on the software GPU.
 */
#include <pthread.h>
#include <search.h>
#include <semaphore.h>
#include <stdatomic.h>

#include <gvmem/client.h>
#include <gvmem/keeper.h>

#include "base/size.h"
#include "memory/device.h"
#include "postgres/area.h"
#include "postgres/cuda.h"
#include "tests/lib/fixture.h"
#include "tests/unit/unit.h"

#define STORES 8u
#define COLUMNS 4u                 /* of each */
#define LARGE_BYTES (4 * GVMI_MIB) /* of use; an area that has grown to it has a chunk ahead */
#define CHUNK_BYTES (2 * GVMI_MIB)

/* ---- counting */

static atomic_int visits, tries;

typedef struct counted {
    void (*action)(const void *, VISIT, void *);
    void *closure;
} counted;

void __real_twalk_r(const void *root, void (*action)(const void *, VISIT, void *), void *closure);
void __wrap_twalk_r(const void *root, void (*action)(const void *, VISIT, void *), void *closure);
gvm_status __real_gvm_object_shrink(gvm_object *object, uint64_t bytes);
gvm_status __wrap_gvm_object_shrink(gvm_object *object, uint64_t bytes);

static void count_visit(const void *node, VISIT visit, void *closure)
{
    const counted *c = closure;

    if (visit == postorder || visit == leaf)
        atomic_fetch_add(&visits, 1);
    c->action(node, visit, c->closure);
}

void __wrap_twalk_r(const void *root, void (*action)(const void *, VISIT, void *), void *closure)
{
    __real_twalk_r(root, count_visit, &(counted){.action = action, .closure = closure});
}

static bool refuses_to_shrink;

gvm_status __wrap_gvm_object_shrink(gvm_object *object, uint64_t bytes)
{
    atomic_fetch_add(&tries, 1);
    return refuses_to_shrink ? GVM_E_TIMEOUT : __real_gvm_object_shrink(object, bytes);
}

/* ---- calls of the keeper that wait until the test lets them go on */

static atomic_bool calls_wait;
static sem_t call_came, call_may_go;

gvm_status __real_gvm_object_create(gvm_client *client, const char *name, uint64_t reserve_bytes,
                                    const gvm_object_options *options, gvm_object **out);
gvm_status __wrap_gvm_object_create(gvm_client *client, const char *name, uint64_t reserve_bytes,
                                    const gvm_object_options *options, gvm_object **out);
gvm_status __real_gvm_object_grow(gvm_object *object, uint64_t bytes);
gvm_status __wrap_gvm_object_grow(gvm_object *object, uint64_t bytes);

static void wait_in_call(void)
{
    if (!atomic_load(&calls_wait))
        return;
    sem_post(&call_came);
    sem_wait(&call_may_go);
}

gvm_status __wrap_gvm_object_create(gvm_client *client, const char *name, uint64_t reserve_bytes,
                                    const gvm_object_options *options, gvm_object **out)
{
    wait_in_call();
    return __real_gvm_object_create(client, name, reserve_bytes, options, out);
}

gvm_status __wrap_gvm_object_grow(gvm_object *object, uint64_t bytes)
{
    wait_in_call();
    return __real_gvm_object_grow(object, bytes);
}

/* ---- a keeper, and stores in it */

typedef struct fixture {
    gvm_keeper *server;
    gvm_device *device;
    gstore_areas *areas;
    char path[64];
} fixture;

static bool begin(fixture *w)
{
    const int id = (int)getpid();
    const gvm_keeper_options options = {.struct_size = sizeof options,
                                        .path = w->path,
                                        .device_budget_bytes = 512 * GVMI_MIB,
                                        .host_budget_bytes = GVMI_MIB};

    fixture_machine("memory=1GiB");
    snprintf(w->path, sizeof w->path, "/tmp/gvmem-gstore-areas-%d", id);
    return gvm_keeper_start(&options, &w->server) == GVM_OK &&
           gvm_device_open(0, &w->device) == GVM_OK && gstore_cuda_load() == GVM_OK &&
           gstore_areas_create(w->path, 0400, &w->areas) == GVM_OK;
}

static void end(fixture *w)
{
    gstore_areas_destroy(w->areas);
    gvm_device_close(w->device);
    gvm_keeper_stop(w->server);
    unlink(w->path);
}

static gstore_range range_of(uint16_t column, uint64_t bytes)
{
    return (gstore_range){.column = column, .part = GSTORE_VALUES, .bytes = bytes};
}

/* As a command that writes so many bytes from the area's start. */
static bool write_area(fixture *w, uint64_t store, uint64_t turn, uint16_t column, uint64_t bytes)
{
    const gstore_store_name name = {.store = store, .table = (uint32_t)store, .turn = turn};
    const gstore_range range = range_of(column, bytes);
    gstore_hold hold;
    bool good = gstore_area_hold(w->areas, &name, &range, true, &hold) == GVM_OK;

    if (!good || gvmi_device_enter(w->device) != GVM_OK)
        return false;
    good = gstore_area_reserve(w->areas, &hold, &range, NULL) == GVM_OK;
    gvmi_device_leave();
    return gstore_area_release(w->areas, &hold) == GVM_OK && good;
}

static bool make_stores(fixture *w)
{
    bool good = true;

    for (uint64_t store = 1; store <= STORES && good; store++)
        for (uint16_t column = 1; column <= COLUMNS && good; column++)
            good = write_area(w, store, 1, column, CHUNK_BYTES) &&
                   write_area(w, store, 1, column, LARGE_BYTES);
    return good;
}

static void trim(fixture *w, uint64_t store, uint64_t turn, uint64_t bytes)
{
    gstore_extent extents[COLUMNS];

    for (uint16_t i = 0; i < COLUMNS; i++)
        extents[i] = (gstore_extent){.column = (uint16_t)(i + 1), .part = GSTORE_VALUES, .bytes = bytes};
    atomic_store(&visits, 0);
    atomic_store(&tries, 0);
    gstore_areas_trim(w->areas, &(gstore_store_name){.store = store, .turn = turn}, extents, COLUMNS);
}

static uint64_t bytes_of(fixture *w, uint64_t store)
{
    gstore_store_size *sizes;
    uint64_t bytes = UINT64_MAX;
    uint32_t count;

    if (gstore_areas_sizes(w->areas, &sizes, &count) != GVM_OK)
        return UINT64_MAX;
    for (uint32_t i = 0; i < count; i++)
        if (sizes[i].store == store)
            bytes = sizes[i].bytes;
    free(sizes);
    return bytes;
}

/* ---- tests */

static int trim_one_of_many(void *arg)
{
    fixture w;

    (void)arg;
    CHILD_EXPECT(begin(&w) && make_stores(&w));
    trim(&w, 3, 1, CHUNK_BYTES);
    CHILD_EXPECT(bytes_of(&w, 3) == COLUMNS * CHUNK_BYTES);
    CHILD_EXPECT(bytes_of(&w, 4) > COLUMNS * LARGE_BYTES);
    CHILD_EXPECT(atomic_load(&tries) == COLUMNS);
    end(&w);
    return 0;
}

CHILD_TEST(trim_gives_back_of_its_own_store_alone, trim_one_of_many)

static int count_trim(void *arg)
{
    fixture w;
    int seen;

    (void)arg;
    CHILD_EXPECT(begin(&w) && make_stores(&w));
    trim(&w, 3, 1, CHUNK_BYTES);
    seen = atomic_load(&visits);
    CHILD_EXPECT(seen >= (int)COLUMNS && seen <= 2 * (int)COLUMNS);
    gstore_areas_drop(w.areas, &(gstore_store_name){.store = 5});
    atomic_store(&visits, 0);
    gstore_areas_drop(w.areas, &(gstore_store_name){.store = 6});
    CHILD_EXPECT(atomic_load(&visits) == (int)COLUMNS);
    CHILD_EXPECT(bytes_of(&w, 5) == UINT64_MAX && bytes_of(&w, 6) == UINT64_MAX);
    trim(&w, 5, 1, CHUNK_BYTES); /* it is gone */
    CHILD_EXPECT(atomic_load(&visits) == 0 && atomic_load(&tries) == 0);
    end(&w);
    return 0;
}

CHILD_TEST(trim_and_drop_visit_the_areas_of_their_store, count_trim)

static int refuse_to_shrink(void *arg)
{
    const int all = (int)(STORES * COLUMNS);
    fixture w;

    (void)arg;
    CHILD_EXPECT(begin(&w) && make_stores(&w));
    refuses_to_shrink = true;
    CHILD_EXPECT(gstore_areas_give_back(w.areas) == 0);
    CHILD_EXPECT(atomic_load(&tries) == all && atomic_load(&visits) <= all + (int)STORES);
    refuses_to_shrink = false;
    CHILD_EXPECT(gstore_areas_give_back(w.areas) == STORES * COLUMNS * CHUNK_BYTES);
    CHILD_EXPECT(bytes_of(&w, 3) == COLUMNS * LARGE_BYTES);
    end(&w);
    return 0;
}

CHILD_TEST(give_back_tries_each_area_once_in_one_walk, refuse_to_shrink)

/* Areas that cannot shrink at the trim: the next look tries them again. */
static int trim_again(void *arg)
{
    fixture w;

    (void)arg;
    CHILD_EXPECT(begin(&w) && make_stores(&w));
    refuses_to_shrink = true;
    trim(&w, 3, 1, CHUNK_BYTES);
    CHILD_EXPECT(bytes_of(&w, 3) > COLUMNS * LARGE_BYTES);
    refuses_to_shrink = false;
    gstore_areas_trim_again(w.areas);
    CHILD_EXPECT(bytes_of(&w, 3) == COLUMNS * CHUNK_BYTES);
    CHILD_EXPECT(bytes_of(&w, 4) > COLUMNS * LARGE_BYTES);
    atomic_store(&visits, 0);
    gstore_areas_trim_again(w.areas);
    CHILD_EXPECT(atomic_load(&visits) == 0);
    end(&w);
    return 0;
}

CHILD_TEST(trim_that_was_refused_is_done_at_the_next_look, trim_again)

/* ---- exports */

#define SMALL_BYTES 1000u /* it has room in the pack */

static const uint8_t secret[GSTORE_SECRET_BYTES] = {1};

static gvm_status link_columns(fixture *w, uint64_t store, uint16_t count)
{
    gstore_range ranges[COLUMNS + 1];
    uint32_t owner;

    for (uint16_t i = 0; i < count; i++)
        ranges[i] = range_of((uint16_t)(i + 1), SMALL_BYTES);
    return gstore_areas_link(w->areas, &(gstore_store_name){.store = store}, secret, ranges, count,
                             &owner);
}

static bool make_small_store(fixture *w, uint64_t store)
{
    bool good = true;

    for (uint16_t column = 1; column <= COLUMNS && good; column++)
        good = write_area(w, store, 1, column, SMALL_BYTES);
    return good && bytes_of(w, store) == CHUNK_BYTES;
}

/* Of a column that does not exist, or by a move that fails: what was unpacked before goes back with the token. */
static int fail_to_export(void *arg)
{
    fixture w;

    (void)arg;
    CHILD_EXPECT(begin(&w) && make_small_store(&w, 1));
    CHILD_EXPECT(link_columns(&w, 1, COLUMNS + 1) == GVM_E_ABSENT);
    CHILD_EXPECT(bytes_of(&w, 1) == (COLUMNS + 1) * CHUNK_BYTES);
    CHILD_EXPECT(gstore_areas_unlink(w.areas, secret) == GVM_OK);
    gstore_areas_trim_again(w.areas);
    CHILD_EXPECT(bytes_of(&w, 1) == CHUNK_BYTES);
    end(&w);
    return 0;
}

CHILD_TEST(export_that_fails_leaves_areas_packed, fail_to_export)

static char *link_name(uint16_t column)
{
    static char name[GVM_NAME_BYTES_MAX];
    char path[GSTORE_LINK_PATH_BYTES];

    gstore_link_path(secret, path);
    snprintf(name, sizeof name, "%s/%u.values", path, column);
    return name;
}

/* While a token is good its areas stay as they are. Who has one open keeps it. */
static int export_and_revoke(void *arg)
{
    gvm_client *other;
    gvm_object *object;
    gvm_lease lease;
    fixture w;

    (void)arg;
    CHILD_EXPECT(begin(&w) && make_small_store(&w, 1));
    CHILD_EXPECT(link_columns(&w, 1, COLUMNS) == GVM_OK);
    trim(&w, 1, 1, SMALL_BYTES);
    (void)gstore_areas_give_back(w.areas);
    CHILD_EXPECT(bytes_of(&w, 1) == (COLUMNS + 1) * CHUNK_BYTES);
    CHILD_EXPECT(gvm_client_connect(w.path, &other) == GVM_OK);
    CHILD_EXPECT(gvm_object_open(other, link_name(1), GVM_OPEN_READONLY | GVM_OPEN_LINK, &object) ==
                 GVM_OK);
    CHILD_EXPECT(gstore_areas_unlink(w.areas, secret) == GVM_OK);
    gstore_areas_trim_again(w.areas);
    CHILD_EXPECT(bytes_of(&w, 1) == CHUNK_BYTES);
    CHILD_EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, 20000, &lease) == GVM_OK);
    CHILD_EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    gvm_object_close(object);
    gvm_client_close(other);
    CHILD_EXPECT(link_columns(&w, 1, COLUMNS) == GVM_OK);
    CHILD_EXPECT(bytes_of(&w, 1) == (COLUMNS + 1) * CHUNK_BYTES);
    end(&w);
    return 0;
}

CHILD_TEST(areas_are_packed_again_after_the_last_token, export_and_revoke)

/* One thread at the keeper, and what others do meanwhile. */
typedef struct caller {
    pthread_t thread;
    fixture *w;
    uint64_t store;
    uint16_t column;
    uint64_t bytes;
    bool good;
    sem_t done;
} caller;

static void *write_column(void *arg)
{
    caller *c = arg;

    c->good = write_area(c->w, c->store, 1, c->column, c->bytes);
    sem_post(&c->done);
    return NULL;
}

static void *read_column(void *arg)
{
    caller *c = arg;
    const gstore_store_name name = {.store = c->store, .table = (uint32_t)c->store};
    const gstore_range range = range_of(c->column, c->bytes);
    gstore_hold hold;

    c->good = gstore_area_hold(c->w->areas, &name, &range, false, &hold) == GVM_OK &&
              gstore_area_bytes(&hold) >= c->bytes &&
              gstore_area_release(c->w->areas, &hold) == GVM_OK;
    sem_post(&c->done);
    return NULL;
}

static void *ask_sizes(void *arg)
{
    caller *c = arg;
    gstore_store_size *sizes;
    uint32_t count;

    c->good = gstore_areas_sizes(c->w->areas, &sizes, &count) == GVM_OK;
    if (c->good)
        free(sizes);
    sem_post(&c->done);
    return NULL;
}

static bool start_caller(caller *c, void *(*run)(void *))
{
    return sem_init(&c->done, 0, 0) == 0 && pthread_create(&c->thread, NULL, run, c) == 0;
}

static bool is_over(caller *c, int seconds)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    return sem_clockwait(&c->done, CLOCK_MONOTONIC, &until) == 0 &&
           pthread_join(c->thread, NULL) == 0 && c->good;
}

/* An area and its pack are made, and others: meanwhile another table's command and the sizes go on, and who
 * wants the very area waits until it is there. */
static int wait_at_the_keeper(void *arg)
{
    const bool packed = *(const bool *)arg;
    const uint64_t bytes = packed ? SMALL_BYTES : CHUNK_BYTES;
    fixture w;
    caller maker = {.w = &w, .store = 2, .column = 1, .bytes = bytes}, sizes = {.w = &w},
           reader = {.w = &w, .store = 2, .column = 1, .bytes = bytes},
           other = {.w = &w, .store = 1, .column = 1, .bytes = bytes};

    CHILD_EXPECT(sem_init(&call_came, 0, 0) == 0 && sem_init(&call_may_go, 0, 0) == 0);
    CHILD_EXPECT(begin(&w) && write_area(&w, 1, 1, 1, bytes));
    atomic_store(&calls_wait, true);
    CHILD_EXPECT(start_caller(&maker, write_column));
    sem_wait(&call_came);
    atomic_store(&calls_wait, false);
    CHILD_EXPECT(start_caller(&sizes, ask_sizes) && is_over(&sizes, 20));
    CHILD_EXPECT(start_caller(&other, write_column) && is_over(&other, 20));
    CHILD_EXPECT(start_caller(&reader, read_column));
    sem_post(&call_may_go);
    CHILD_EXPECT(is_over(&maker, 20) && is_over(&reader, 20));
    /* Dropped while it is made: the command ends, and nothing of it stays. */
    atomic_store(&calls_wait, true);
    maker.column = 2;
    maker.bytes = CHUNK_BYTES;
    CHILD_EXPECT(start_caller(&maker, write_column));
    sem_wait(&call_came);
    atomic_store(&calls_wait, false);
    gstore_areas_drop(w.areas, &(gstore_store_name){.store = 2, .table = 2});
    sem_post(&call_may_go);
    CHILD_EXPECT(is_over(&maker, 20));
    CHILD_EXPECT(bytes_of(&w, 2) == UINT64_MAX);
    end(&w);
    return 0;
}

static void keeper_is_asked_without_the_lock_of_areas(void **state)
{
    (void)state;
    assert_child_succeeds(wait_at_the_keeper, &(bool){false});
    assert_child_succeeds(wait_at_the_keeper, &(bool){true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trim_gives_back_of_its_own_store_alone),
        cmocka_unit_test(trim_and_drop_visit_the_areas_of_their_store),
        cmocka_unit_test(give_back_tries_each_area_once_in_one_walk),
        cmocka_unit_test(trim_that_was_refused_is_done_at_the_next_look),
        cmocka_unit_test(export_that_fails_leaves_areas_packed),
        cmocka_unit_test(areas_are_packed_again_after_the_last_token),
        cmocka_unit_test(keeper_is_asked_without_the_lock_of_areas),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
