/* The queue of gstore_fdw's service: backends that are stopped while they post a command hold up no other one. The
 * windows are in this process; the keeper, too, on the software GPU.
 */
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

#include <gvmem/keeper.h>

#include "postgres/service.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"
#include "tests/unit/unit.h"

#define WINDOWS 4u
#define WINDOW_BYTES (64 * KIB)
#define WAIT_S 20

static struct {
    gvm_keeper *keeper;
    gstore_service *service;
    gstore_queue queue;
    gstore_window windows[WINDOWS];
    uint8_t bytes[WINDOWS * WINDOW_BYTES] __attribute__((aligned(4096)));
    char path[64];
    sem_t done;
    uint32_t order[WINDOWS]; /* in which commands were done */
    atomic_uint done_count;
} w;

/* A window's latch is the window. */
static void note_done(void *latch)
{
    w.order[atomic_fetch_add(&w.done_count, 1) % WINDOWS] = (uint32_t)((gstore_window *)latch -
                                                                       w.windows);
    sem_post(&w.done);
}

static void ignore(uint32_t window)
{
    (void)window;
}

static bool begin_with(const char *machine, const int32_t *devices, uint32_t device_count)
{
    const gvm_keeper_options keeper = {.struct_size = sizeof keeper,
                                       .path = w.path,
                                       .devices = devices,
                                       .device_count = device_count,
                                       .device_budget_bytes = 128 * MIB,
                                       .host_budget_bytes = MIB};
    const gstore_service_options options = {.path = w.path,
                                            .threads = 1,
                                            .queue = &w.queue,
                                            .windows = w.windows,
                                            .window_count = WINDOWS,
                                            .bytes = w.bytes,
                                            .window_bytes = WINDOW_BYTES,
                                            .epoch = 1,
                                            .link_mode = 0400,
                                            .wake = note_done,
                                            .give_back = ignore};

    fixture_machine("%s", machine);
    snprintf(w.path, sizeof w.path, "/tmp/gvmem-gstore-service-%d", (int)getpid());
    return sem_init(&w.done, 0, 0) == 0 && sem_init(&w.queue.posted, 0, 0) == 0 &&
           gvm_keeper_start(&keeper, &w.keeper) == GVM_OK &&
           gstore_service_start(&options, &w.service) == GVM_OK;
}

static bool begin(void)
{
    return begin_with("memory=1GiB", NULL, 0);
}

static void end(void)
{
    gstore_service_stop(w.service);
    gvm_keeper_stop(w.keeper);
    unlink(w.path);
}

/* A read of a table that has no rows. */
static gstore_window *fill(uint32_t index)
{
    gstore_window *window = &w.windows[index];

    window->verb = GSTORE_READ;
    window->name = (gstore_store_name){.store = 1, .epoch = 1};
    window->range_count = 1;
    window->ranges[0] = (gstore_range){.column = 1, .bytes = 8};
    window->latch = window;
    return window;
}

/* The steps of gstore_queue_put(), as far as a process comes that is stopped in it. */
static void begin_put(uint32_t index)
{
    atomic_store(&fill(index)->number, atomic_fetch_add(&w.queue.numbers, 1));
}

static void put_but_not_wake(uint32_t index)
{
    begin_put(index);
    atomic_store(&w.windows[index].state, GSTORE_POSTED);
}

static bool is_done(uint32_t index)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += WAIT_S;
    return sem_clockwait(&w.done, CLOCK_MONOTONIC, &until) == 0 &&
           atomic_load(&w.windows[index].state) == GSTORE_DONE &&
           w.windows[index].status == GVM_E_ABSENT;
}

/* ---- tests */

static int stop_before_the_post(void *arg)
{
    (void)arg;
    CHILD_EXPECT(begin());
    begin_put(0);
    gstore_queue_put(&w.queue, fill(1));
    CHILD_EXPECT(is_done(1));
    gstore_queue_put(&w.queue, fill(2));
    CHILD_EXPECT(is_done(2));
    CHILD_EXPECT(atomic_load(&w.windows[0].state) == GSTORE_IDLE);
    atomic_store(&w.windows[0].state, GSTORE_POSTED); /* it goes on */
    sem_post(&w.queue.posted);
    CHILD_EXPECT(is_done(0));
    end();
    return 0;
}

CHILD_TEST(backend_stopped_before_it_posts_holds_up_no_other, stop_before_the_post)

static int stop_before_the_wake(void *arg)
{
    (void)arg;
    CHILD_EXPECT(begin());
    put_but_not_wake(0);
    gstore_queue_put(&w.queue, fill(1));
    CHILD_EXPECT(is_done(0) && is_done(1));
    end();
    return 0;
}

CHILD_TEST(backend_stopped_before_it_wakes_the_service_holds_up_no_other, stop_before_the_wake)

static int post_in_order(void *arg)
{
    (void)arg;
    CHILD_EXPECT(begin());
    put_but_not_wake(2);
    put_but_not_wake(0);
    put_but_not_wake(3);
    atomic_store(&w.windows[3].state, GSTORE_IDLE); /* it is given up, and comes last then */
    put_but_not_wake(1);
    put_but_not_wake(3);
    sem_post(&w.queue.posted);
    for (uint32_t i = 0; i < WINDOWS; i++)
        CHILD_EXPECT(sem_wait(&w.done) == 0);
    CHILD_EXPECT(w.order[0] == 2 && w.order[1] == 0 && w.order[2] == 1 && w.order[3] == 3);
    end();
    return 0;
}

CHILD_TEST(commands_are_carried_out_in_the_order_of_their_posting, post_in_order)

/* ---- a keeper of some devices */

static bool leave_free_memory_at_the_keeper(int32_t device, uint64_t bytes)
{
    gvm_object_options options = gvm_object_options_init();
    gvm_client *client = NULL;
    gvm_object *object = NULL;
    bool good;

    options.size_bytes = bytes;
    options.device = device;
    good = gvm_client_connect(w.path, &client) == GVM_OK &&
           gvm_object_create(client, NULL, bytes, &options, &object) == GVM_OK;
    gvm_object_close(object);
    gvm_client_close(client);
    return good;
}

/* Its device 0 is device 1 here. */
static int copy_on_another_device(void *arg)
{
    gstore_report report;
    gstore_store_size *sizes = NULL;
    uint32_t size_count = 0;
    gstore_window *window = &w.windows[0];

    (void)arg;
    CHILD_EXPECT(begin_with("devices=2,memory=256MiB", (int32_t[]){1}, 1));
    CHILD_EXPECT(leave_free_memory_at_the_keeper(1, 128 * MIB));
    window->verb = GSTORE_COPY_MAKE; /* its state is the threads', too */
    window->name = (gstore_store_name){.store = 1, .epoch = 1, .device = 1};
    window->copy = 7;
    window->copy_bytes = 200 * MIB;
    window->latch = window;
    gstore_queue_put(&w.queue, window);
    CHILD_EXPECT(sem_wait(&w.done) == 0 && window->status == GVM_OK);
    CHILD_EXPECT(gstore_service_report(w.service, &report, &sizes, &size_count) == GVM_OK);
    free(sizes);
    CHILD_EXPECT(report.device_count == 1 && report.devices[0].ordinal == 1);
    CHILD_EXPECT(report.devices[0].copies_bytes >= 200 * MIB);
    end();
    return 0;
}

CHILD_TEST(copy_has_the_free_memory_of_a_keeper_that_serves_other_devices, copy_on_another_device)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backend_stopped_before_it_posts_holds_up_no_other),
        cmocka_unit_test(backend_stopped_before_it_wakes_the_service_holds_up_no_other),
        cmocka_unit_test(commands_are_carried_out_in_the_order_of_their_posting),
        cmocka_unit_test(copy_has_the_free_memory_of_a_keeper_that_serves_other_devices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
