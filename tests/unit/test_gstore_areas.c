/* gstore_fdw's areas: how memory goes back, links of tokens, and what waits for the keeper meanwhile. The tests count what
 * that costs: areas visited (twalk_r) and attempts to shrink an object (gvm_object_shrink). Calls on the keeper are wrapped:
 * they count the mutexes that their thread holds, and can be made to wait. The keeper runs in the test's process, on the
 * software GPU.
 */
#include <pthread.h>
#include <search.h>
#include <semaphore.h>
#include <stdatomic.h>

#include <gvmem/client.h>
#include <gvmem/keeper.h>

#include "driver/driver.h"
#include "memory/device.h"
#include "postgres/area.h"
#include "postgres/cuda.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"
#include "tests/unit/unit.h"

#define STORES 8u
#define COLUMNS 4u            /* of each */
#define LARGE_BYTES (4 * MIB) /* of use; an area that has grown to it has a chunk ahead */
#define CHUNK_BYTES (2 * MIB)
#define SMALL_BYTES 1000u /* it fits a room of the pack */

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

/* ---- calls on the keeper */

static _Thread_local int locks;           /* mutexes that this thread holds */
static atomic_int calls, calls_with_lock; /* on the keeper */
static const char *_Atomic waits;         /* calls of this name: until the test lets them go on */
static sem_t call_came, call_may_go;

static _Thread_local int locks_left; /* until the thread waits for the test; 0: it does not */

/* Within 20 s. */
static bool is_posted(sem_t *sem)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 20;
    return sem_clockwait(sem, CLOCK_MONOTONIC, &until) == 0;
}

static void wait_for_test(void)
{
    sem_post(&call_came);
    sem_wait(&call_may_go);
}

#define WRAP_LOCK(name, change) \
    int __real_##name(pthread_mutex_t *mutex); \
    int __wrap_##name(pthread_mutex_t *mutex); \
    int __wrap_##name(pthread_mutex_t *mutex) \
    { \
        int result; \
\
        if ((change) > 0 && locks_left > 0 && --locks_left == 0) \
            wait_for_test(); \
        result = __real_##name(mutex); \
        locks += result == 0 ? (change) : 0; \
        return result; \
    }

WRAP_LOCK(pthread_mutex_lock, 1)
WRAP_LOCK(pthread_mutex_trylock, 1)
WRAP_LOCK(pthread_mutex_unlock, -1)

static bool is_waiting(const char *name)
{
    const char *waiting = atomic_load(&waits);

    return waiting != NULL && strcmp(waiting, name) == 0;
}

static void note_call(const char *name)
{
    atomic_fetch_add(&calls, 1);
    atomic_fetch_add(&calls_with_lock, locks > 0);
    if (is_waiting(name))
        wait_for_test();
}

#define WRAP_CALL(name, parameters, arguments) \
    gvm_status __real_##name parameters; \
    gvm_status __wrap_##name parameters; \
    gvm_status __wrap_##name parameters \
    { \
        note_call(#name); \
        return __real_##name arguments; \
    }

WRAP_CALL(gvm_client_connect, (const char *path, gvm_client **out), (path, out))
WRAP_CALL(gvm_object_create,
          (gvm_client * client, const char *name, uint64_t reserve_bytes,
           const gvm_object_options *options, gvm_object **out),
          (client, name, reserve_bytes, options, out))
WRAP_CALL(gvm_object_grow, (gvm_object * object, uint64_t bytes), (object, bytes))
WRAP_CALL(gvm_object_publish, (gvm_object * object, const char *name, uint32_t flags),
          (object, name, flags))
WRAP_CALL(gvm_object_link, (gvm_object * object, const char *name, uint32_t mode, uint64_t bytes),
          (object, name, mode, bytes))
WRAP_CALL(gvm_object_unlink, (gvm_client * client, const char *name), (client, name))
WRAP_CALL(gvm_object_get_info, (gvm_object * object, gvm_object_info *info), (object, info))
WRAP_CALL(gvm_object_acquire,
          (gvm_object * object, gvm_lease_mode mode, const gvm_acquire_options *options,
           int timeout_ms, gvm_lease *lease),
          (object, mode, options, timeout_ms, lease))
WRAP_CALL(gvm_object_release, (gvm_object * object, gvm_lease *lease), (object, lease))

static bool refuses_to_shrink;

gvm_status __wrap_gvm_object_shrink(gvm_object *object, uint64_t bytes)
{
    note_call("gvm_object_shrink");
    atomic_fetch_add(&tries, 1);
    if (is_waiting("second lock after gvm_object_shrink"))
        locks_left = 2;
    return refuses_to_shrink ? GVM_E_TIMEOUT : __real_gvm_object_shrink(object, bytes);
}

void __real_gvm_object_close(gvm_object *object);
void __wrap_gvm_object_close(gvm_object *object);

void __wrap_gvm_object_close(gvm_object *object)
{
    note_call("gvm_object_close");
    __real_gvm_object_close(object);
}

/* ---- a keeper, and stores in it */

typedef struct fixture {
    gvm_keeper *server;
    gvm_device *device;
    gstore_areas *areas;
    char path[64];
} fixture;

static bool start(fixture *w, uint64_t budget)
{
    const int id = (int)getpid();
    const gvm_keeper_options options = {.struct_size = sizeof options,
                                        .path = w->path,
                                        .device_budget_bytes = budget,
                                        .host_budget_bytes = MIB};

    snprintf(w->path, sizeof w->path, "/tmp/gvmem-gstore-areas-%d", id);
    return gvm_keeper_start(&options, &w->server) == GVM_OK &&
           gvm_device_open(0, &w->device) == GVM_OK && gstore_cuda_load() == GVM_OK &&
           gstore_areas_create(w->path, 0400, &w->areas) == GVM_OK;
}

static bool begin(fixture *w)
{
    fixture_machine("memory=1GiB");
    return start(w, 512 * MIB);
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
static bool write_area(fixture *w, uint64_t store, uint16_t column, uint64_t bytes)
{
    const gstore_store_name name = {.store = store, .table = (uint32_t)store, .writer_number = 1};
    const gstore_range range = range_of(column, bytes);
    gstore_use use;
    bool good = gstore_area_use(w->areas, &name, &range, true, &use) == GVM_OK;

    if (!good || gvmi_device_enter(w->device) != GVM_OK)
        return false;
    good = gstore_area_provide(w->areas, &use, &range, NULL) == GVM_OK;
    gvmi_device_leave();
    return gstore_area_release(w->areas, &use) == GVM_OK && good;
}

static bool make_stores(fixture *w)
{
    bool good = true;

    for (uint64_t store = 1; store <= STORES && good; store++)
        for (uint16_t column = 1; column <= COLUMNS && good; column++)
            good = write_area(w, store, column, CHUNK_BYTES) &&
                   write_area(w, store, column, LARGE_BYTES);
    return good;
}

static void trim(fixture *w, uint64_t store, uint64_t bytes)
{
    gstore_extent extents[COLUMNS];

    for (uint16_t i = 0; i < COLUMNS; i++)
        extents[i] = (gstore_extent){.column = (uint16_t)(i + 1), .part = GSTORE_VALUES, .bytes = bytes};
    atomic_store(&visits, 0);
    atomic_store(&tries, 0);
    gstore_areas_trim(w->areas, &(gstore_store_name){.store = store, .writer_number = 1}, extents,
                      COLUMNS);
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
    trim(&w, 3, CHUNK_BYTES);
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
    trim(&w, 3, CHUNK_BYTES);
    seen = atomic_load(&visits);
    CHILD_EXPECT(seen >= (int)COLUMNS && seen <= 2 * (int)COLUMNS);
    (void)gstore_areas_drop(w.areas, &(gstore_store_name){.store = 5});
    atomic_store(&visits, 0);
    (void)gstore_areas_drop(w.areas, &(gstore_store_name){.store = 6});
    CHILD_EXPECT(atomic_load(&visits) == (int)COLUMNS);
    CHILD_EXPECT(bytes_of(&w, 5) == UINT64_MAX && bytes_of(&w, 6) == UINT64_MAX);
    trim(&w, 5, CHUNK_BYTES); /* it is gone */
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
    trim(&w, 3, CHUNK_BYTES);
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

/* ---- trims while an area is being trimmed */

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

static bool start_caller(caller *c, void *(*run)(void *))
{
    return sem_init(&c->done, 0, 0) == 0 && pthread_create(&c->thread, NULL, run, c) == 0;
}

static bool is_over(caller *c)
{
    return is_posted(&c->done) && pthread_join(c->thread, NULL) == 0 && c->good;
}

static void *trim_store(void *arg)
{
    caller *c = arg;
    const gstore_extent extent = {.column = c->column, .part = GSTORE_VALUES, .bytes = c->bytes};

    gstore_areas_trim(c->w->areas, &(gstore_store_name){.store = c->store, .writer_number = 1},
                      &extent, 1);
    c->good = true;
    sem_post(&c->done);
    return NULL;
}

typedef struct moment {
    const char *call;
    uint64_t bytes; /* of the area before */
} moment;

/* The first trim waits in a call; the second notes that less is needed, and then waits for the first. */
static int trim_twice(void *arg)
{
    const moment *when = arg;
    fixture w;
    caller first = {.w = &w, .store = 1, .column = 1, .bytes = 33 * KIB},
           second = {.w = &w, .store = 1, .column = 1, .bytes = SMALL_BYTES};
    int seen;

    CHILD_EXPECT(sem_init(&call_came, 0, 0) == 0 && sem_init(&call_may_go, 0, 0) == 0);
    CHILD_EXPECT(begin(&w) && write_area(&w, 1, 2, SMALL_BYTES)); /* with a pack */
    CHILD_EXPECT(write_area(&w, 1, 1, CHUNK_BYTES) && write_area(&w, 1, 1, when->bytes));
    atomic_store(&waits, when->call);
    CHILD_EXPECT(start_caller(&first, trim_store));
    CHILD_EXPECT(is_posted(&call_came));
    atomic_store(&waits, NULL);
    seen = atomic_load(&visits);
    CHILD_EXPECT(start_caller(&second, trim_store));
    while (atomic_load(&visits) == seen) /* it visits under the lock that bytes_of() waits for */
        sched_yield();
    CHILD_EXPECT(bytes_of(&w, 1) > CHUNK_BYTES);
    sem_post(&call_may_go);
    CHILD_EXPECT(is_over(&first) && is_over(&second));
    CHILD_EXPECT(bytes_of(&w, 1) == CHUNK_BYTES); /* the pack's */
    end(&w);
    return 0;
}

static void area_trimmed_again_while_it_is_trimmed_gives_back_all(void **state)
{
    static const moment moments[] = {
        {"gvm_object_shrink", LARGE_BYTES},
        {"second lock after gvm_object_shrink", LARGE_BYTES},
        {"gvm_object_shrink", 257 * MIB},
        {"gvm_object_create", 257 * MIB}, /* of the move to small chunks */
        {"gvm_object_publish", 257 * MIB},
    };

    (void)state;
    SKIP_UNDER_VALGRIND(VALGRIND_ADDRESSES);
    for (size_t i = 0; i < sizeof moments / sizeof moments[0]; i++)
        assert_child_succeeds(trim_twice, (void *)&moments[i]);
}

/* ---- columns of any size: memory of the software GPU that nobody writes takes none of the machine's */

static const gvmi_driver *real_cu;
static int (*copy_whole)(uint64_t to, uint64_t from, size_t bytes, gvm_stream stream);

/* Of a large move the beginning and the end alone, which is all that the test writes there. */
static int copy_ends(uint64_t to, uint64_t from, size_t bytes, gvm_stream stream)
{
    const size_t most = 4 * MIB;
    int result;

    if (bytes <= 2 * most)
        return copy_whole(to, from, bytes, stream);
    result = copy_whole(to, from, most, stream);
    return result != 0 ? result : copy_whole(to + bytes - most, from + bytes - most, most, stream);
}

/* A mark at the end of so many bytes of the first column of store 1: written, or looked for. */
static bool mark(fixture *w, uint64_t bytes, bool write)
{
    const gstore_store_name name = {.store = 1, .table = 1};
    const gstore_range range = range_of(1, bytes);
    uint8_t byte = 0;
    gstore_use use;
    int result;

    if (gstore_area_use(w->areas, &name, &range, false, &use) != GVM_OK ||
        gvmi_device_enter(w->device) != GVM_OK)
        return false;
    if (write)
        result = gstore_cu.cuMemsetD8Async(use.address + bytes - 1, 0x5a, 1, NULL);
    else
        result = gstore_cu.cuMemcpyDtoHAsync(&byte, use.address + bytes - 1, 1, NULL);
    if (result == 0)
        result = gstore_cu.cuStreamSynchronize(NULL);
    gvmi_device_leave();
    return gstore_area_release(w->areas, &use) == GVM_OK && result == 0 && (write || byte == 0x5a);
}

/* Of frames, which are new here for the most part, and zeros. */
static CUresult fill_small(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    return count * sizeof value > CHUNK_BYTES ? CUDA_SUCCESS
                                              : real_cu->cuMemsetD32Async(to, value, count, stream);
}

static bool begin_large(fixture *w, uint64_t budget)
{
    static gvmi_driver altered;

    fixture_machine("memory=100GiB");
    if (gvmi_driver_start() != GVM_OK)
        return false;
    real_cu = gvmi_cu;
    altered = *gvmi_cu;
    altered.cuMemsetD32Async = fill_small;
    gvmi_cu = &altered;
    if (!start(w, budget))
        return false;
    copy_whole = gstore_cu.cuMemcpyDtoDAsync;
    gstore_cu.cuMemcpyDtoDAsync = copy_ends;
    return true;
}

static uint64_t chunk_of_first(fixture *w)
{
    gvm_object_info info = {.struct_size = sizeof info};
    gvm_object *object;
    gvm_client *client;
    bool good = false;

    if (gvm_client_connect(w->path, &client) != GVM_OK)
        return 0;
    if (gvm_object_open(client, "/gstore/0/1/1/1.values", GVM_OPEN_READONLY, &object) == GVM_OK) {
        good = gvm_object_get_info(object, &info) == GVM_OK;
        gvm_object_close(object);
    }
    gvm_client_close(client);
    return good ? info.chunk_bytes : 0;
}

/* From kind to kind, beyond 32 GiB, and back. */
static int grow_large(void *arg)
{
    static const struct {
        uint64_t bytes, chunk_bytes;
    } steps[] = {{2 * MIB, 2 * MIB},
                 {300 * MIB, 32 * MIB},
                 {8 * GIB, 32 * MIB},
                 {9 * GIB, 512 * MIB},
                 {40 * GIB, 512 * MIB}};
    const gstore_range beyond = range_of(1, (1ull << 40) + 1);
    gstore_use use;
    fixture w;

    (void)arg;
    CHILD_EXPECT(begin_large(&w, 80 * GIB));
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        CHILD_EXPECT(write_area(&w, 1, 1, steps[i].bytes));
        CHILD_EXPECT(chunk_of_first(&w) == steps[i].chunk_bytes);
        CHILD_EXPECT(mark(&w, steps[i].bytes, true) && mark(&w, steps[0].bytes, false));
    }
    CHILD_EXPECT(bytes_of(&w, 1) >= 40 * GIB && bytes_of(&w, 1) <= 42 * GIB);
    CHILD_EXPECT(gstore_area_use(w.areas, &(gstore_store_name){.store = 1, .table = 1}, &beyond,
                                 true, &use) == GVM_OK);
    CHILD_EXPECT(gstore_area_provide(w.areas, &use, &beyond, NULL) == GVM_E_LIMIT);
    CHILD_EXPECT(gstore_area_release(w.areas, &use) == GVM_OK);
    trim(&w, 1, 300 * MIB);
    CHILD_EXPECT(bytes_of(&w, 1) < GIB && chunk_of_first(&w) == 32 * MIB);
    CHILD_EXPECT(mark(&w, 2 * MIB, false));
    end(&w);
    return 0;
}

CHILD_TEST_NOT_VALGRIND(area_moves_to_larger_chunks_beyond_32_gib, grow_large, VALGRIND_ADDRESSES)

/* Without memory for a second one an area grows where it is, and moves when there is some; at its end it must move. */
static int grow_where_memory_is_short(void *arg)
{
    fixture w;

    (void)arg;
    CHILD_EXPECT(begin_large(&w, 44 * GIB) && write_area(&w, 1, 1, 8 * GIB));
    CHILD_EXPECT(mark(&w, 2 * MIB, true) && write_area(&w, 2, 1, 30 * GIB));
    CHILD_EXPECT(write_area(&w, 1, 1, 10 * GIB) && chunk_of_first(&w) == 32 * MIB);
    CHILD_EXPECT(mark(&w, 2 * MIB, false) && !write_area(&w, 1, 1, 33 * GIB));
    CHILD_EXPECT(mark(&w, 2 * MIB, false) && chunk_of_first(&w) == 32 * MIB);
    (void)gstore_areas_drop(w.areas, &(gstore_store_name){.store = 2, .table = 2});
    CHILD_EXPECT(write_area(&w, 1, 1, 33 * GIB) && chunk_of_first(&w) == 512 * MIB);
    CHILD_EXPECT(mark(&w, 2 * MIB, false));
    end(&w);
    return 0;
}

CHILD_TEST_NOT_VALGRIND(area_grows_where_it_is_while_memory_is_short, grow_where_memory_is_short,
                        VALGRIND_ADDRESSES)

/* ---- exports */

static const uint8_t secret[GSTORE_SECRET_BYTES] = {1};

static gvm_status link_by(fixture *w, uint64_t store, const uint8_t by[GSTORE_SECRET_BYTES],
                          uint16_t count)
{
    gstore_range ranges[COLUMNS + 1];
    uint32_t owner;

    for (uint16_t i = 0; i < count; i++)
        ranges[i] = range_of((uint16_t)(i + 1), SMALL_BYTES);
    return gstore_areas_link(w->areas, &(gstore_store_name){.store = store}, by, ranges, count, &owner);
}

static gvm_status link_columns(fixture *w, uint64_t store, uint16_t count)
{
    return link_by(w, store, secret, count);
}

static bool make_small_store(fixture *w, uint64_t store)
{
    bool good = true;

    for (uint16_t column = 1; column <= COLUMNS && good; column++)
        good = write_area(w, store, column, SMALL_BYTES);
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
    trim(&w, 1, SMALL_BYTES);
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

static void *write_column(void *arg)
{
    caller *c = arg;

    c->good = write_area(c->w, c->store, c->column, c->bytes);
    sem_post(&c->done);
    return NULL;
}

static void *read_column(void *arg)
{
    caller *c = arg;
    const gstore_store_name name = {.store = c->store, .table = (uint32_t)c->store};
    const gstore_range range = range_of(c->column, c->bytes);
    gstore_use use;

    c->good = gstore_area_use(c->w->areas, &name, &range, false, &use) == GVM_OK &&
              gstore_area_bytes(&use) >= c->bytes && gstore_area_release(c->w->areas, &use) == GVM_OK;
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

static void *link_store(void *arg)
{
    caller *c = arg;

    c->good = link_by(c->w, c->store,
                      (const uint8_t[GSTORE_SECRET_BYTES]){(uint8_t)(100 + c->store)}, 1) == GVM_OK;
    sem_post(&c->done);
    return NULL;
}

static void *drop_store(void *arg)
{
    caller *c = arg;

    (void)gstore_areas_drop(c->w->areas, &(gstore_store_name){.store = c->store});
    c->good = true;
    sem_post(&c->done);
    return NULL;
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
    CHILD_EXPECT(begin(&w) && write_area(&w, 1, 1, bytes));
    atomic_store(&waits, "gvm_object_create");
    CHILD_EXPECT(start_caller(&maker, write_column));
    CHILD_EXPECT(is_posted(&call_came));
    atomic_store(&waits, NULL);
    CHILD_EXPECT(start_caller(&sizes, ask_sizes) && is_over(&sizes));
    CHILD_EXPECT(start_caller(&other, write_column) && is_over(&other));
    CHILD_EXPECT(start_caller(&reader, read_column));
    sem_post(&call_may_go);
    CHILD_EXPECT(is_over(&maker) && is_over(&reader));
    /* Dropped while it is made: the command ends, and nothing of it stays. */
    atomic_store(&waits, "gvm_object_create");
    maker.column = 2;
    maker.bytes = CHUNK_BYTES;
    CHILD_EXPECT(start_caller(&maker, write_column));
    CHILD_EXPECT(is_posted(&call_came));
    atomic_store(&waits, NULL);
    (void)gstore_areas_drop(w.areas, &(gstore_store_name){.store = 2, .table = 2});
    sem_post(&call_may_go);
    CHILD_EXPECT(is_over(&maker));
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

/* One link waits at the keeper: those of another table are made, and a table is dropped. */
static int wait_with_a_link(void *arg)
{
    fixture w;
    caller maker = {.w = &w, .store = 1}, other = {.w = &w, .store = 2}, drop = {.w = &w, .store = 3};

    (void)arg;
    CHILD_EXPECT(sem_init(&call_came, 0, 0) == 0 && sem_init(&call_may_go, 0, 0) == 0);
    CHILD_EXPECT(begin(&w));
    for (uint64_t store = 1; store <= 3; store++)
        CHILD_EXPECT(make_small_store(&w, store));
    CHILD_EXPECT(link_columns(&w, 3, COLUMNS) == GVM_OK);
    atomic_store(&waits, "gvm_object_link");
    CHILD_EXPECT(start_caller(&maker, link_store));
    CHILD_EXPECT(is_posted(&call_came));
    atomic_store(&waits, NULL);
    CHILD_EXPECT(start_caller(&other, link_store) && is_over(&other));
    CHILD_EXPECT(start_caller(&drop, drop_store) && is_over(&drop));
    sem_post(&call_may_go);
    CHILD_EXPECT(is_over(&maker));
    end(&w);
    return 0;
}

CHILD_TEST(link_at_the_keeper_holds_up_no_other_table, wait_with_a_link)

/* A token whose area moves while its link is made, or the next one's: neither link is lost. */
static int move_while_linked(void *arg)
{
    fixture w;
    caller maker = {.w = &w, .store = 1},
           writer = {.w = &w, .store = 1, .column = 1, .bytes = 257 * MIB};
    gvm_object_info info = {.struct_size = sizeof info};
    gvm_client *other;
    gvm_object *object;

    (void)arg;
    CHILD_EXPECT(sem_init(&call_came, 0, 0) == 0 && sem_init(&call_may_go, 0, 0) == 0);
    CHILD_EXPECT(begin(&w) && make_small_store(&w, 1) && link_columns(&w, 1, 1) == GVM_OK);
    atomic_store(&waits, "gvm_object_link");
    CHILD_EXPECT(start_caller(&maker, link_store));
    CHILD_EXPECT(is_posted(&call_came));
    atomic_store(&waits, "gvm_object_publish"); /* of the move */
    CHILD_EXPECT(start_caller(&writer, write_column));
    CHILD_EXPECT(is_posted(&call_came));
    atomic_store(&waits, NULL);
    sem_post(&call_may_go);
    sem_post(&call_may_go);
    CHILD_EXPECT(is_over(&maker) && is_over(&writer));
    CHILD_EXPECT(gvm_client_connect(w.path, &other) == GVM_OK);
    for (int i = 0; i < 2; i++) {
        const uint8_t by[GSTORE_SECRET_BYTES] = {(uint8_t)(i == 0 ? 1 : 101)};
        char path[GSTORE_LINK_PATH_BYTES], name[GVM_NAME_BYTES_MAX];

        gstore_link_path(by, path);
        snprintf(name, sizeof name, "%s/1.values", path);
        CHILD_EXPECT(gvm_object_open(other, name, GVM_OPEN_READONLY | GVM_OPEN_LINK, &object) == GVM_OK);
        CHILD_EXPECT(gvm_object_get_info(object, &info) == GVM_OK && info.chunk_bytes > CHUNK_BYTES);
        gvm_object_close(object);
        CHILD_EXPECT(gstore_areas_unlink(w.areas, by) == GVM_OK);
        CHILD_EXPECT(gvm_object_open(other, name, GVM_OPEN_READONLY | GVM_OPEN_LINK, &object) ==
                     GVM_E_ABSENT);
    }
    gvm_client_close(other);
    end(&w);
    return 0;
}

CHILD_TEST_NOT_VALGRIND(area_that_moves_while_it_is_linked_takes_all_links_along, move_while_linked,
                        VALGRIND_ADDRESSES)

/* A token ends while a writer asks who has the area mapped: the next write asks again, those behind it do not. */
static int revoke_while_asked(void *arg)
{
    static const uint8_t second[GSTORE_SECRET_BYTES] = {2};
    fixture w;
    caller writer = {.w = &w, .store = 1, .column = 1, .bytes = SMALL_BYTES};
    int made[3];

    (void)arg;
    CHILD_EXPECT(sem_init(&call_came, 0, 0) == 0 && sem_init(&call_may_go, 0, 0) == 0);
    CHILD_EXPECT(begin(&w) && make_small_store(&w, 1));
    CHILD_EXPECT(link_columns(&w, 1, 1) == GVM_OK && link_by(&w, 1, second, 1) == GVM_OK);
    CHILD_EXPECT(gstore_areas_unlink(w.areas, secret) == GVM_OK);
    atomic_store(&waits, "gvm_object_get_info");
    CHILD_EXPECT(start_caller(&writer, write_column));
    CHILD_EXPECT(is_posted(&call_came));
    atomic_store(&waits, NULL);
    CHILD_EXPECT(gstore_areas_unlink(w.areas, second) == GVM_OK);
    sem_post(&call_may_go);
    CHILD_EXPECT(is_over(&writer));
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        const int before = atomic_load(&calls);

        CHILD_EXPECT(write_area(&w, 1, 1, SMALL_BYTES));
        made[i] = atomic_load(&calls) - before;
    }
    CHILD_EXPECT(made[0] == made[1] + 1 && made[1] == made[2]);
    end(&w);
    return 0;
}

CHILD_TEST(keeper_is_asked_again_where_a_token_ends_meanwhile, revoke_while_asked)

/* Areas that are made, grow, are linked, move, shrink and go: the keeper is never called under a mutex. */
static int call_without_locks(void *arg)
{
    fixture w;

    (void)arg;
    CHILD_EXPECT(begin(&w) && make_small_store(&w, 1) && make_small_store(&w, 2));
    atomic_store(&calls, 0);
    CHILD_EXPECT(link_columns(&w, 1, COLUMNS) == GVM_OK);
    CHILD_EXPECT(write_area(&w, 1, 1, 257 * MIB));
    trim(&w, 1, SMALL_BYTES);
    CHILD_EXPECT(gstore_areas_unlink(w.areas, secret) == GVM_OK);
    gstore_areas_trim_again(w.areas);
    CHILD_EXPECT(link_columns(&w, 2, 1) == GVM_OK);
    CHILD_EXPECT(gstore_areas_unlink(w.areas, secret) == GVM_OK);
    CHILD_EXPECT(gstore_areas_give_back(w.areas) > 0);
    (void)gstore_areas_drop(w.areas, &(gstore_store_name){.store = 1});
    end(&w);
    CHILD_EXPECT(atomic_load(&calls) > 50);
    CHILD_EXPECT(atomic_load(&calls_with_lock) == 0);
    return 0;
}

CHILD_TEST(keeper_is_called_under_no_mutex, call_without_locks)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trim_gives_back_of_its_own_store_alone),
        cmocka_unit_test(trim_and_drop_visit_the_areas_of_their_store),
        cmocka_unit_test(give_back_tries_each_area_once_in_one_walk),
        cmocka_unit_test(trim_that_was_refused_is_done_at_the_next_look),
        cmocka_unit_test(area_trimmed_again_while_it_is_trimmed_gives_back_all),
        cmocka_unit_test(area_moves_to_larger_chunks_beyond_32_gib),
        cmocka_unit_test(area_grows_where_it_is_while_memory_is_short),
        cmocka_unit_test(export_that_fails_leaves_areas_packed),
        cmocka_unit_test(areas_are_packed_again_after_the_last_token),
        cmocka_unit_test(keeper_is_asked_without_the_lock_of_areas),
        cmocka_unit_test(link_at_the_keeper_holds_up_no_other_table),
        cmocka_unit_test(area_that_moves_while_it_is_linked_takes_all_links_along),
        cmocka_unit_test(keeper_is_asked_again_where_a_token_ends_meanwhile),
        cmocka_unit_test(keeper_is_called_under_no_mutex),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
