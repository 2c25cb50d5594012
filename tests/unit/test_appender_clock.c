/* Appenders while the wall clock is set: what they wait for is measured on a clock that is not. The test's
 * clock_gettime() and timespec_get() take the place of the system's.
 */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

#include "tests/unit/appender_fixture.h"

#define HOUR_S 3600
#define ROWS 3000000u
#define ROWS_EACH 1000u

static _Atomic(long) wall_ahead_s;

int clock_gettime(clockid_t clock, struct timespec *t)
{
    const int answer = (int)syscall(SYS_clock_gettime, clock, t);

    if (answer == 0 && clock == CLOCK_REALTIME)
        t->tv_sec += atomic_load(&wall_ahead_s);
    return answer;
}

int timespec_get(struct timespec *t, int base)
{
    return clock_gettime(CLOCK_REALTIME, t) == 0 ? base : 0;
}

static uint32_t write_rows(void)
{
    gvm_append_place place;
    uint32_t answer = GVM_APPEND_OK;

    for (uint64_t rows = 0; rows < ROWS && answer == GVM_APPEND_OK; rows += ROWS_EACH)
        answer = write_place(ROWS_EACH, 0, 1, &place);
    return answer;
}

/* The thread's waits began while the clock was an hour ahead. */
static int be_set_back(void *arg)
{
    const gvm_appender_options options = {.wait_ms = 3000};

    (void)arg;
    atomic_store(&wall_ahead_s, HOUR_S);
    CHILD_EXPECT(start(8, 64 * CHUNK, &options));
    CHILD_EXPECT(begin() == GVM_OK);
    for (int waited = 0, naps = 0; naps < 3 && waited < 1000; waited++) {
        bool sleeps = false;

        nanosleep(&(struct timespec){0, 5000000}, NULL);
        CHILD_EXPECT(service_threads(&sleeps) == 1);
        naps += sleeps;
    }
    atomic_store(&wall_ahead_s, 0);
    CHILD_EXPECT(write_rows() == GVM_APPEND_OK);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1 && result.rows == ROWS);
    CHILD_EXPECT(info().rows == ROWS);
    CHILD_EXPECT(stop());
    return 0;
}

/* A kernel's patience does not end when the clock is set forward. */
static int be_set_forward(void *arg)
{
    const uint64_t before_ns = gvm_clock_ns();

    (void)arg;
    atomic_store(&wall_ahead_s, HOUR_S);
    CHILD_EXPECT(gvm_clock_ns() - before_ns < HOUR_S / 2 * 1000000000ull);
    return 0;
}

CHILD_TEST(appender_when_the_clock_is_set_back_commits_on, be_set_back)
CHILD_TEST(kernels_clock_when_the_clock_is_set_forward_goes_on, be_set_forward)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appender_when_the_clock_is_set_back_commits_on),
        cmocka_unit_test(kernels_clock_when_the_clock_is_set_forward_goes_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
