/* keeper/server/process.c: whether a process is about to end. The threads are this process's; what proc(5) says of each,
 * the test does.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "keeper/server/server.h"
#include "tests/unit/unit.h"

#define THREADS 300

static char ending[] = "1 (name) S 0 0 0 0 0 4";
static char living[] = "1 (name) S 0 0 0 0 0 0";
static int looks, living_look; /* which look finds a thread that goes on; 0: none does */

FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);

FILE *__wrap_fopen(const char *path, const char *mode)
{
    char *text = ++looks == living_look ? living : ending;

    (void)path, (void)mode;
    return fmemopen(text, strlen(text), "r");
}

FILE *__wrap_fopen64(const char *path, const char *mode)
{
    return __wrap_fopen(path, mode);
}

static bool look(int living_one)
{
    looks = 0;
    living_look = living_one;
    return gvmi_process_is_ending(getpid());
}

static pthread_barrier_t barrier;

static void *wait_for_end(void *arg)
{
    pthread_barrier_wait(&barrier);
    return arg;
}

static void process_with_many_threads_costs_a_bounded_look(void **state)
{
    pthread_t threads[THREADS];

    (void)state;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS + 1), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_end, NULL), 0);
    assert_true(look(0));
    assert_true(looks <= 256);
    assert_false(look(200));
    assert_int_equal(looks, 200);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void process_goes_on_as_long_as_one_thread_does(void **state)
{
    (void)state;
    assert_false(look(1));
    assert_true(look(0));
    assert_in_range(looks, 1, 2); /* ThreadSanitizer has a thread of its own */
    assert_true(gvmi_process_is_ending(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(process_with_many_threads_costs_a_bounded_look),
        cmocka_unit_test(process_goes_on_as_long_as_one_thread_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
