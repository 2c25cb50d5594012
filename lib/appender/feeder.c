/* Feeding all appenders that have begun, by the library's thread (memory/background.h).
 *
 * It goes round them, a step each, so that none waits for another's large result. It calls only what never
 * waits for a kernel: create, map, set access, release, and on the way to GVM_E_NOSPACE the amount of free
 * memory.
 *
 * The first chunks of a begin are its work, too: the first commit of a thread that was idle takes twice
 * as long as the next (on an H100 0.23 ms and 0.1), and that would be the one that a kernel waits for.
 *
 * I1  an appender is on the list iff it has begun, or is about to, and not yet been taken from here.
 * I2  serving is on the list, or NULL; its feed is the thread's alone.
 */
#include "appender/appender.h"

#include <sched.h>

#include "base/clock.h"
#include "memory/background.h"

#define SPIN_US 2000 /* of a begin, before it sleeps */

static gvmi_mutex lock = GVMI_MUTEX_INIT(GVMI_RANK_APPENDER_LIST);
static pthread_cond_t left = PTHREAD_COND_INITIALIZER; /* serving has changed */
static TAILQ_HEAD(, gvm_appender) list = TAILQ_HEAD_INITIALIZER(list);
static const gvm_appender *serving;

/* A step for each. */
static gvmi_duty feed_all(void)
{
    gvmi_duty duty = GVMI_DUTY_NONE;
    gvm_appender *appender;

    gvmi_lock(&lock);
    /* From one that was served it goes on to the next: nobody can have taken it from the list. */
    TAILQ_FOREACH(appender, &list, feed.entry)
    {
        bool busy = false;

        if (!appender->feed.leaving) {
            serving = appender;
            gvmi_unlock(&lock);
            busy = gvmi_append_feed_step(appender);
            gvmi_lock(&lock);
            serving = NULL;
            pthread_cond_broadcast(&left);
        }
        duty = busy || duty == GVMI_DUTY_BUSY ? GVMI_DUTY_BUSY : GVMI_DUTY_QUIET;
    }
    gvmi_unlock(&lock);
    return duty;
}

gvm_status gvmi_append_feeder_start(void)
{
    __atomic_store_n(&gvmi_background_serve[GVMI_SERVE_APPENDERS], feed_all, __ATOMIC_RELEASE);
    return gvmi_background_start();
}

/* Spins first: it is a matter of a tenth of a millisecond, unless the driver is slow. */
static void wait_for_first(gvm_appender *appender)
{
    const int64_t start_us = gvmi_now_us();

    while (__atomic_load_n(&appender->feed.starting, __ATOMIC_ACQUIRE)) {
        if (gvmi_now_us() - start_us > SPIN_US) {
            gvmi_lock(&lock);
            while (__atomic_load_n(&appender->feed.starting, __ATOMIC_ACQUIRE))
                pthread_cond_wait(&left, &lock.mutex);
            gvmi_unlock(&lock);
        }
        sched_yield();
    }
}

void gvmi_append_feeder_join(gvm_appender *appender)
{
    gvmi_lock(&lock);
    appender->feed.leaving = false;
    TAILQ_INSERT_HEAD(&list, appender, feed.entry); /* somebody waits */
    gvmi_unlock(&lock);
    gvmi_background_call();
    wait_for_first(appender);
}

void gvmi_append_feeder_leave(gvm_appender *appender)
{
    gvmi_lock(&lock);
    appender->feed.leaving = true; /* or it would be served again before this thread has the lock */
    while (serving == appender)
        pthread_cond_wait(&left, &lock.mutex);
    TAILQ_REMOVE(&list, appender, feed.entry);
    gvmi_unlock(&lock);
}
