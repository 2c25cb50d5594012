/* Time stamps and percentiles for what takes nanoseconds. */
#include <stdlib.h>
#include <time.h>

#include "bench/keeper.h"

int64_t bench_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double bench_ns_per_stamp(void)
{
    static double ratio;
    const struct timespec pause = {.tv_nsec = 50000000};

    if (ratio == 0) {
        const int64_t begin_ns = bench_now_ns();
        const uint64_t begin = bench_stamp();

        nanosleep(&pause, NULL);
        const uint64_t end = bench_stamp();

        ratio = (double)(bench_now_ns() - begin_ns) / (double)(end - begin);
    }
    return ratio;
}

static int compare_clock_samples(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

double bench_percentile_ns(uint64_t *differences, uint32_t count, double p)
{
    qsort(differences, count, sizeof *differences, compare_clock_samples);
    return (double)differences[(uint32_t)((count - 1) * p)] * bench_ns_per_stamp();
}

double bench_stamp_cost_ns(void)
{
    enum { COUNT = 10001 };
    static uint64_t differences[COUNT];

    for (int i = 0; i < COUNT; i++) {
        const uint64_t begin = bench_stamp();

        differences[i] = bench_stamp() - begin;
    }
    return bench_percentile_ns(differences, COUNT, 0.5);
}
