/* A pool for the tests of `gvmem-bench heap --pool`: addresses without memory, each given once.
 *
 * TEST_POOL=closed  cannot be opened
 * TEST_POOL=short   has no memory
 * TEST_POOL=crash   ends the process when it is asked what it holds while that is 4 MiB
 *
 * It holds exactly what it has given, and complains on stderr if what is freed is not that, or if
 * something is left when it is trimmed.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/pool.h"

static _Atomic uint64_t next = 1 << 20, held, sums; /* sums: of the addresses that are out */

static int is_test_setting(const char *setting)
{
    const char *text = getenv("TEST_POOL");

    return text != NULL && strcmp(text, setting) == 0;
}

const char *bench_pool_open(int device)
{
    return is_test_setting("closed") || device != 0 ? "this pool is closed" : NULL;
}

const char *bench_pool_name(void)
{
    return "test pool";
}

void *bench_pool_alloc(size_t bytes, void *stream)
{
    static int is_short = -1;
    uint64_t at;

    if (is_short < 0)
        is_short = is_test_setting("short");
    if (is_short || stream == NULL)
        return NULL;
    at = atomic_fetch_add(&next, bytes);
    atomic_fetch_add(&held, bytes);
    atomic_fetch_add(&sums, at ^ bytes);
    return (void *)(uintptr_t)at;
}

void bench_pool_free(void *ptr, size_t bytes, void *stream)
{
    (void)stream;
    atomic_fetch_sub(&held, bytes);
    atomic_fetch_sub(&sums, (uintptr_t)ptr ^ bytes);
}

uint64_t bench_pool_committed_bytes(void)
{
    if (held == 4 << 20 && is_test_setting("crash"))
        raise(SIGKILL);
    return held;
}

void bench_pool_trim(void)
{
    if (held != 0 || sums != 0)
        fprintf(stderr, "test pool: not all of it came back, or with other sizes\n");
}
