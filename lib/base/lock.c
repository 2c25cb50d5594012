/* Mutexes with a rank; see lock.h. In debug builds each thread counts the locks it holds per rank.
 */
#include "base/lock.h"

#include <errno.h>
#include <stdint.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"

#ifndef NDEBUG
static _Thread_local uint8_t held[GVMI_RANK_COUNT];

static bool held_from(int rank)
{
    for (int i = rank; i < GVMI_RANK_COUNT; i++)
        if (held[i] != 0)
            return true;
    return false;
}

bool gvmi_lock_held(gvmi_rank rank)
{
    return held[rank] != 0;
}

bool gvmi_lock_held_none(void)
{
    return !held_from(0);
}
#else
bool gvmi_lock_held(gvmi_rank rank)
{
    (void)rank;
    return true;
}

bool gvmi_lock_held_none(void)
{
    return true;
}
#endif

void gvmi_mutex_init(gvmi_mutex *mutex, gvmi_rank rank)
{
    pthread_mutex_init(&mutex->mutex, NULL);
    mutex->rank = rank;
}

void gvmi_mutex_destroy(gvmi_mutex *mutex)
{
    pthread_mutex_destroy(&mutex->mutex);
}

static void count_lock(const gvmi_mutex *mutex, int first_forbidden)
{
#ifndef NDEBUG
    GVM_ASSERT(!held_from(first_forbidden));
    held[mutex->rank]++;
#else
    (void)mutex, (void)first_forbidden;
#endif
}

static void lock_ranked(gvmi_mutex *mutex, int first_forbidden)
{
    count_lock(mutex, first_forbidden);
    pthread_mutex_lock(&mutex->mutex);
}

void gvmi_lock(gvmi_mutex *mutex)
{
    lock_ranked(mutex, (int)mutex->rank);
}

bool gvmi_try_lock(gvmi_mutex *mutex)
{
    if (pthread_mutex_trylock(&mutex->mutex) != 0)
        return false;
    count_lock(mutex, (int)mutex->rank);
    return true;
}

void gvmi_unlock(gvmi_mutex *mutex)
{
#ifndef NDEBUG
    GVM_ASSERT(held[mutex->rank] != 0);
    held[mutex->rank]--;
#endif
    pthread_mutex_unlock(&mutex->mutex);
}

void gvmi_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t steady;

    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &steady);
    pthread_condattr_destroy(&steady);
}

bool gvmi_wait_until(pthread_cond_t *cond, gvmi_mutex *mutex, int64_t deadline_ns)
{
    const int64_t second = 1000 * GVMI_NS_PER_MS;
    const struct timespec until = {.tv_sec = deadline_ns / second, .tv_nsec = deadline_ns % second};

    if (deadline_ns != GVMI_NEVER_NS)
        return pthread_cond_timedwait(cond, &mutex->mutex, &until) != ETIMEDOUT;
    pthread_cond_wait(cond, &mutex->mutex);
    return true;
}

void gvmi_lock_pair(gvmi_mutex *a, gvmi_mutex *b)
{
    gvmi_mutex *first = (uintptr_t)a < (uintptr_t)b ? a : b;

    GVM_ASSERT(a->rank == b->rank);
    lock_ranked(first, (int)first->rank);
    if (a != b)
        lock_ranked(first == a ? b : a, (int)first->rank + 1);
}

void gvmi_unlock_pair(gvmi_mutex *a, gvmi_mutex *b)
{
    gvmi_unlock(a);
    if (a != b)
        gvmi_unlock(b);
}
