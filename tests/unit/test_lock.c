/* base/lock.c: locks exclude; debug builds stop a thread that takes them out of order. */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/lock.h"

static gvmi_mutex buffer_a = GVMI_MUTEX_INIT(GVMI_RANK_BUFFER),
                  buffer_b = GVMI_MUTEX_INIT(GVMI_RANK_BUFFER);
static gvmi_mutex table = GVMI_MUTEX_INIT(GVMI_RANK_REGISTRY);

static void lock_in_rising_rank_is_held(void **state)
{
    (void)state;
    gvmi_lock(&buffer_a);
    gvmi_lock(&table);
    assert_true(gvmi_lock_held(GVMI_RANK_BUFFER));
    assert_true(gvmi_lock_held(GVMI_RANK_REGISTRY));
    gvmi_unlock(&table);
    gvmi_unlock(&buffer_a);
#ifndef NDEBUG
    assert_false(gvmi_lock_held(GVMI_RANK_BUFFER));
    assert_false(gvmi_lock_held(GVMI_RANK_REGISTRY));
#endif
}

#ifndef NDEBUG
static int take_in_falling_rank(void *arg)
{
    (void)arg;
    gvmi_lock(&table);
    gvmi_lock(&buffer_a);
    return 0;
}

static int take_two_of_a_rank(void *arg)
{
    (void)arg;
    gvmi_lock(&buffer_a);
    gvmi_lock(&buffer_b);
    return 0;
}

static int give_back_what_is_not_held(void *arg)
{
    (void)arg;
    gvmi_unlock(&buffer_a);
    return 0;
}

static int without_core(void *arg)
{
    const struct rlimit none = {0, 0};

    setrlimit(RLIMIT_CORE, &none);
    return (*(int (**)(void *))arg)(NULL);
}
#endif

static void lock_out_of_order_aborts_debug_builds(void **state)
{
#ifdef NDEBUG
    (void)state;
    skip();
#else
    int (*wrong[])(void *) = {take_in_falling_rank, take_two_of_a_rank, give_back_what_is_not_held};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int status = run_in_child(without_core, &wrong[i], true);

        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
#endif
}

static void lock_pair_takes_both_in_any_order(void **state)
{
    (void)state;
    gvmi_lock_pair(&buffer_a, &buffer_b);
    assert_int_not_equal(pthread_mutex_trylock(&buffer_a.mutex), 0);
    assert_int_not_equal(pthread_mutex_trylock(&buffer_b.mutex), 0);
    gvmi_unlock_pair(&buffer_a, &buffer_b);
    gvmi_lock_pair(&buffer_b, &buffer_a);
    gvmi_unlock_pair(&buffer_b, &buffer_a);
    gvmi_lock(&buffer_a); /* both free again */
    gvmi_unlock(&buffer_a);
    gvmi_lock(&buffer_b);
    gvmi_unlock(&buffer_b);
}

static void lock_pair_of_one_is_taken_once(void **state)
{
    (void)state;
    gvmi_lock_pair(&buffer_a, &buffer_a);
    gvmi_unlock_pair(&buffer_a, &buffer_a);
    gvmi_lock(&buffer_a);
    gvmi_unlock(&buffer_a);
}

enum { THREADS = 4, ROUNDS = 20000 };
static uint64_t counter_a, counter_b;

static void *count_up(void *arg)
{
    bool swapped = arg != NULL;

    for (int i = 0; i < ROUNDS; i++) {
        gvmi_lock_pair(swapped ? &buffer_b : &buffer_a, swapped ? &buffer_a : &buffer_b);
        counter_a++;
        counter_b++;
        gvmi_unlock_pair(swapped ? &buffer_b : &buffer_a, swapped ? &buffer_a : &buffer_b);
    }
    return NULL;
}

static void lock_pair_by_many_threads_excludes_and_never_deadlocks(void **state)
{
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_up, i % 2 ? threads : NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(counter_a, THREADS * ROUNDS);
    assert_int_equal(counter_b, THREADS * ROUNDS);
}

static void *try_lock(void *got)
{
    *(bool *)got = gvmi_try_lock(&buffer_a);
    if (*(bool *)got)
        gvmi_unlock(&buffer_a);
    return NULL;
}

static void lock_that_is_tried_is_taken_where_it_is_free(void **state)
{
    pthread_t thread;
    bool got = true;

    (void)state;
    gvmi_lock(&buffer_a);
    assert_int_equal(pthread_create(&thread, NULL, try_lock, &got), 0);
    pthread_join(thread, NULL);
    assert_false(got);
    gvmi_unlock(&buffer_a);
    assert_true(gvmi_try_lock(&buffer_a) && gvmi_lock_held(GVMI_RANK_BUFFER));
    gvmi_unlock(&buffer_a);
#ifndef NDEBUG
    assert_false(gvmi_lock_held(GVMI_RANK_BUFFER));
#endif
}

static void lock_made_at_run_time_works(void **state)
{
    gvmi_mutex mutex;

    (void)state;
    gvmi_mutex_init(&mutex, GVMI_RANK_DEVICE);
    gvmi_lock(&mutex);
    assert_true(gvmi_lock_held(GVMI_RANK_DEVICE));
    gvmi_unlock(&mutex);
    gvmi_mutex_destroy(&mutex);
}

static void wait_with_a_deadline_ends_then(void **state)
{
    const int64_t start_ns = gvmi_now_ns();
    pthread_cond_t cond;

    (void)state;
    gvmi_cond_init(&cond);
    gvmi_lock(&buffer_a);
    while (gvmi_wait_until(&cond, &buffer_a, start_ns + 10 * GVMI_NS_PER_MS))
        ;
    gvmi_unlock(&buffer_a);
    assert_true(gvmi_now_ns() - start_ns >= 10 * GVMI_NS_PER_MS);
    pthread_cond_destroy(&cond);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lock_in_rising_rank_is_held),
        cmocka_unit_test(lock_out_of_order_aborts_debug_builds),
        cmocka_unit_test(lock_pair_takes_both_in_any_order),
        cmocka_unit_test(lock_pair_of_one_is_taken_once),
        cmocka_unit_test(lock_pair_by_many_threads_excludes_and_never_deadlocks),
        cmocka_unit_test(lock_that_is_tried_is_taken_where_it_is_free),
        cmocka_unit_test(lock_made_at_run_time_works),
        cmocka_unit_test(wait_with_a_deadline_ends_then),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
