/* query/scratch.c with a keeper of this process: what is kept for the next query, and what is given back. The clock is the test's own. Each test runs
 * in a child, since a driver is started once a process. */
#include "query/executor.h"
#include "tests/lib/units.h"
#include "tests/unit/unit.h"

#include <gvmem/keeper.h>

#define LARGE (300 * MIB) /* more than is kept of the driver's memory */

static int64_t clock_ns;
static unsigned created, closed; /* objects */

int64_t gquery_now_ns(void)
{
    return ++clock_ns;
}

gvm_status __real_gvm_object_create(gvm_client *client, const char *name, uint64_t bytes,
                                    const gvm_object_options *options, gvm_object **out);
gvm_status __wrap_gvm_object_create(gvm_client *client, const char *name, uint64_t bytes,
                                    const gvm_object_options *options, gvm_object **out);
gvm_status __wrap_gvm_object_create(gvm_client *client, const char *name, uint64_t bytes,
                                    const gvm_object_options *options, gvm_object **out)
{
    const gvm_status status = __real_gvm_object_create(client, name, bytes, options, out);

    created += status == GVM_OK;
    return status;
}

void __real_gvm_object_close(gvm_object *object);
void __wrap_gvm_object_close(gvm_object *object);
void __wrap_gvm_object_close(gvm_object *object)
{
    closed++;
    __real_gvm_object_close(object);
}

static int start(gvm_keeper **keeper, gvm_client **client)
{
    gvm_keeper_options options = gvm_keeper_options_init();
    gvm_device *device;
    char machine[80];
    int fd;

    snprintf(machine, sizeof machine, "memory=3GiB,instance=test-scratch-%d", (int)getpid());
    setenv("GVMEM_DRIVER", "soft", 1);
    setenv("GVMEM_SOFTGPU", machine, 1);
    options.path = "";
    options.device_budget_bytes = 2048 * MIB;
    options.host_budget_bytes = 32 * MIB;
    CHILD_EXPECT(gvm_keeper_start(&options, keeper) == GVM_OK);
    CHILD_EXPECT(gvm_keeper_open_socket(*keeper, &fd) == GVM_OK);
    CHILD_EXPECT(gvm_client_adopt(fd, client) == GVM_OK);
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(gvm_device_push_context(device) == GVM_OK);
    gquery_scratch_init(*client, 0);
    return 0;
}

static int stop(gvm_keeper *keeper, gvm_client *client)
{
    gquery_scratch_rest(INT64_MAX);
    CHILD_EXPECT(created == closed);
    gvm_client_close(client);
    gvm_keeper_stop(keeper);
    return 0;
}

static int run_query(const uint64_t *sizes, unsigned count)
{
    gquery_block blocks[8];

    for (unsigned i = 0; i < count; i++) {
        CHILD_EXPECT(gquery_scratch_take(sizes[i], &blocks[i]) == GVM_OK);
        CHILD_EXPECT(blocks[i].bytes >= sizes[i] && blocks[i].address != 0);
    }
    for (unsigned i = 0; i < count; i++)
        gquery_scratch_give(&blocks[i]);
    return 0;
}

static int repeat_queries(void *arg)
{
    const uint64_t sizes[] = {1 * MIB, 20 * MIB, LARGE, LARGE, LARGE + 32 * MIB};
    gvm_keeper *keeper;
    gvm_client *client;

    (void)arg;
    CHILD_EXPECT(start(&keeper, &client) == 0);
    for (int turn = 0; turn < 3; turn++) {
        CHILD_EXPECT(run_query(sizes, 5) == 0);
        gquery_scratch_rest(0);
        CHILD_EXPECT(created == 4 && closed == 0);
    }
    return stop(keeper, client);
}

/* What is more goes when gquery_scratch_rest() is called: the oldest first. */
static int exceed_bound(void *arg)
{
    const uint64_t old = 500 * MIB, next = 400 * MIB;
    gvm_keeper *keeper;
    gvm_client *client;

    (void)arg;
    CHILD_EXPECT(start(&keeper, &client) == 0);
    CHILD_EXPECT(run_query(&old, 1) == 0 && run_query(&next, 1) == 0);
    gquery_scratch_rest(0);
    CHILD_EXPECT(created == 2 && closed == 0);
    CHILD_EXPECT(run_query(&(uint64_t){LARGE}, 1) == 0);
    CHILD_EXPECT(created == 3 && closed == 0);
    gquery_scratch_await(INT64_MAX / 2); /* it does not wait */
    gquery_scratch_rest(0);
    CHILD_EXPECT(created == 3 && closed == 1);
    CHILD_EXPECT(run_query(&next, 1) == 0 && run_query(&(uint64_t){LARGE}, 1) == 0 && created == 3);
    CHILD_EXPECT(run_query(&old, 1) == 0 && created == 4);
    return stop(keeper, client);
}

static int rest(void *arg)
{
    const uint64_t sizes[] = {20 * MIB, LARGE};
    gvm_keeper *keeper;
    gvm_client *client;
    int64_t used_ns;

    (void)arg;
    CHILD_EXPECT(start(&keeper, &client) == 0);
    CHILD_EXPECT(run_query(sizes, 1) == 0);
    used_ns = clock_ns;
    CHILD_EXPECT(run_query(sizes + 1, 1) == 0);
    gquery_scratch_rest(used_ns - 1);
    CHILD_EXPECT(closed == 0);
    gquery_scratch_rest(used_ns);
    CHILD_EXPECT(closed == 1);
    CHILD_EXPECT(run_query(sizes + 1, 1) == 0 && created == 2);
    return stop(keeper, client);
}

/* A query that needs what is kept. */
static int need_room(void *arg)
{
    const uint64_t kept = 900 * MIB, needed = 1800 * MIB;
    gvm_keeper *keeper;
    gvm_client *client;

    (void)arg;
    CHILD_EXPECT(start(&keeper, &client) == 0);
    CHILD_EXPECT(run_query(&kept, 1) == 0 && run_query(&needed, 1) == 0);
    CHILD_EXPECT(closed >= 1);
    return stop(keeper, client);
}

/* A part of the block that is kept has gone to the host, which is full, and others have a lease on what took its place. */
static int need_room_for_a_kept_block(void *arg)
{
    const uint64_t sizes[] = {500 * MIB, 400 * MIB}, chunk = 32 * MIB;
    const uint64_t left = (2048 - 512 - 416) * MIB;
    const gvm_object_options options = {.struct_size = sizeof options, .chunk_bytes = chunk};
    const gvm_acquire_options hot = {.struct_size = sizeof hot, .hint = GVM_HINT_HOT};
    gvm_object_info info = {.struct_size = sizeof info};
    gvm_keeper *keeper;
    gvm_client *client;
    gvm_object *other;
    gvm_lease lease;

    (void)arg;
    CHILD_EXPECT(start(&keeper, &client) == 0);
    CHILD_EXPECT(run_query(sizes, 1) == 0 && run_query(sizes + 1, 1) == 0);
    CHILD_EXPECT(gvm_object_create(client, NULL, left + chunk, &options, &other) == GVM_OK);
    CHILD_EXPECT(gvm_object_grow(other, left + chunk) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(other, GVM_LEASE_WRITE, &hot, GVM_FOREVER, &lease) == GVM_OK);
    CHILD_EXPECT(gvm_object_get_info(other, &info) == GVM_OK && info.device_bytes == left + chunk);
    CHILD_EXPECT(run_query(sizes, 1) == 0);
    CHILD_EXPECT(closed == 2);
    CHILD_EXPECT(gvm_object_release(other, &lease) == GVM_OK);
    gvm_object_close(other);
    return stop(keeper, client);
}

CHILD_TEST_NOT_VALGRIND(queries_that_are_equal_create_objects_once, repeat_queries, VALGRIND_ADDRESSES)
CHILD_TEST_NOT_VALGRIND(blocks_beyond_the_bound_are_given_back_the_oldest_first, exceed_bound,
                        VALGRIND_ADDRESSES)
CHILD_TEST_NOT_VALGRIND(blocks_not_used_for_a_while_are_given_back, rest, VALGRIND_ADDRESSES)
CHILD_TEST_NOT_VALGRIND(kept_blocks_make_room_for_a_query, need_room, VALGRIND_ADDRESSES)
CHILD_TEST_NOT_VALGRIND(kept_blocks_make_room_for_one_of_them, need_room_for_a_kept_block,
                        VALGRIND_ADDRESSES)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queries_that_are_equal_create_objects_once),
        cmocka_unit_test(blocks_beyond_the_bound_are_given_back_the_oldest_first),
        cmocka_unit_test(blocks_not_used_for_a_while_are_given_back),
        cmocka_unit_test(kept_blocks_make_room_for_a_query),
        cmocka_unit_test(kept_blocks_make_room_for_one_of_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
