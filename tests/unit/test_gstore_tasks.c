/* The order in which gstore_fdw's tasks are done. The service is a fake one, which writes down what it is called for
 * and waits in a trim until the test lets it go on.
 */
#include <semaphore.h>
#include <stdatomic.h>

#include "postgres/tasks.h"
#include "tests/unit/unit.h"

#define STORE_WAITING 100u /* a trim of it waits in the service */
#define STORE_KEPT 50      /* whose drop fails */

static struct {
    char done[256]; /* by the tasks' thread */
    sem_t reached, go_on;
    atomic_int looks;
} calls;

static void write_down(const char *what, uint64_t number)
{
    const size_t len = strlen(calls.done);

    snprintf(calls.done + len, sizeof calls.done - len, "%s%llu ", what, (unsigned long long)number);
}

bool gstore_service_drop(gstore_service *service, const gstore_store_name *name)
{
    (void)service;
    write_down("drop", name->store);
    return name->store != STORE_KEPT;
}

void gstore_service_trim(gstore_service *service, const gstore_store_name *name,
                         const gstore_extent *extents, uint32_t count)
{
    (void)service;
    if (name->store >= STORE_WAITING) {
        sem_post(&calls.reached);
        sem_wait(&calls.go_on);
    }
    write_down("trim", name->store);
    for (uint32_t i = 0; i < count; i++)
        write_down(":", extents[i].bytes);
}

void gstore_service_drop_copy(gstore_service *service, uint64_t copy)
{
    (void)service;
    write_down("copy", copy);
}

void gstore_service_unlink(gstore_service *service, const uint8_t secret[GSTORE_SECRET_BYTES])
{
    (void)service;
    write_down("unlink", secret[0]);
}

gvm_status gstore_service_report(gstore_service *service, gstore_report *out,
                                 gstore_store_size **sizes, uint32_t *size_count)
{
    (void)service;
    memset(out, 0, sizeof *out);
    *sizes = NULL;
    *size_count = 0;
    atomic_fetch_add(&calls.looks, 1);
    return GVM_OK;
}

int gstore_service_is_lost(gstore_service *service)
{
    (void)service;
    return 0;
}

static void ignore(void *latch)
{
    (void)latch;
}

static gstore_tasks *start(void)
{
    gstore_tasks *c;

    memset(&calls, 0, sizeof calls);
    sem_init(&calls.reached, 0, 0);
    sem_init(&calls.go_on, 0, 0);
    assert_int_equal(gstore_tasks_start(NULL, ignore, NULL, &c), GVM_OK);
    return c;
}

static void trim(gstore_tasks *c, uint64_t number, uint64_t bytes)
{
    const gstore_extent extent = {.bytes = bytes};

    gstore_tasks_trim_store(c, &(gstore_store_name){.store = number}, &extent, 1);
}

static void drop(gstore_tasks *c, uint64_t number)
{
    assert_true(gstore_tasks_drop_store(c, &(gstore_store_name){.store = number}));
}

static void trims_wait_for_drops_and_those_of_a_store_merge(void **state)
{
    const uint8_t secret[GSTORE_SECRET_BYTES] = {7};
    gstore_tasks *c = start();

    (void)state;
    trim(c, STORE_WAITING, 0);
    sem_wait(&calls.reached);
    trim(c, 1, 10);
    trim(c, 2, 20);
    trim(c, 3, 30);
    drop(c, 4);
    for (uint64_t i = 0; i < 1000; i++)
        trim(c, 1 + i % 3, i);
    assert_true(gstore_tasks_drop_copy(c, 5));
    assert_true(gstore_tasks_unlink(c, secret));
    drop(c, 6);
    trim(c, STORE_WAITING, 1); /* the one that is under way is not this one */
    sem_post(&calls.go_on);
    sem_wait(&calls.reached);
    trim(c, 9, 90);
    drop(c, 8);
    sem_post(&calls.go_on);
    gstore_tasks_stop(c);
    assert_string_equal(calls.done, "trim100 :0 drop4 copy5 unlink7 drop6 trim1 :999 trim2 :997 "
                                    "trim3 :998 trim100 :1 drop8 trim9 :90 ");
}

static void dropped_stores_of_no_table_are_listed_once(void **state)
{
    gstore_tasks *c = start();
    gstore_store_name name = {0};
    uint64_t sum = 0;

    (void)state;
    drop(c, 4);
    drop(c, STORE_KEPT);
    assert_true(gstore_tasks_drop_store(c, &(gstore_store_name){.store = 5, .table = 1}));
    drop(c, 6);
    trim(c, STORE_WAITING, 0); /* comes last */
    sem_wait(&calls.reached);
    while (gstore_tasks_take_dropped(c, &name))
        sum += name.store;
    assert_int_equal(sum, 4 + 6);
    drop(c, 7); /* is freed with the tasks */
    sem_post(&calls.go_on);
    gstore_tasks_stop(c);
    assert_string_equal(calls.done, "drop4 drop50 drop5 drop6 trim100 :0 drop7 ");
}

static void look_at_the_keeper_comes_while_there_are_trims(void **state)
{
    gstore_tasks *c = start();
    uint64_t next = STORE_WAITING;

    (void)state;
    trim(c, next, 0);
    sem_wait(&calls.reached);
    /* A store has a trim waiting whenever another one ends; without a look this would have no end. */
    while (atomic_load(&calls.looks) < 3) {
        trim(c, ++next, 0);
        calls.done[0] = '\0'; /* its thread waits */
        sem_post(&calls.go_on);
        sem_wait(&calls.reached);
    }
    sem_post(&calls.go_on);
    gstore_tasks_stop(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trims_wait_for_drops_and_those_of_a_store_merge),
        cmocka_unit_test(dropped_stores_of_no_table_are_listed_once),
        cmocka_unit_test(look_at_the_keeper_comes_while_there_are_trims),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
