/* The thread that commits for all appenders that have begun.
 *
 * It goes round them, a step each, so that none waits for another's large result. While something
 * was asked a moment ago it spins, because a kernel that waits costs a whole device; else it looks
 * every NAP_US, and without an appender that has begun or is about to it sleeps. When nothing was asked
 * for SPIN_US, it gives the driver what appenders had committed ahead and have taken from its addresses:
 * a chunk a step, since a kernel that asks meanwhile waits for it. It calls only what never waits for a
 * kernel: create, map, set access, release, and on the way to GVM_E_NOSPACE the amount of free memory.
 *
 * It runs while there are appenders: started by the first begin, ended by the last destroy.
 *
 * I1  an appender is on the list iff it has begun and not yet been taken from here.
 * I2  serving is on the list, or NULL; its feed is the thread's alone.
 * I3  a device's cache that an appender has put beyond its limit is settled by whoever has taken the
 *     debt off the list, or listed again; by the last appender of the device when it goes.
 * Locks: lock, for the list; life_lock, taken before it, for starting and ending, held while the
 * thread ends.
 */
#include "appender/appender.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#include "base/assert.h"
#include "base/error.h"

#define SPIN_US 2000 /* after the last thing that was asked */
#define NAP_US 50
#define NAP_LONG_US 1000 /* once nothing has been asked for IDLE_US */
#define IDLE_US 200000

static gvmi_mutex life_lock = GVMI_MUTEX_INIT(GVMI_RANK_APPENDER_THREAD);
static uint64_t appenders; /* that exist */
static bool running;
static pthread_t thread;

static gvmi_mutex lock = GVMI_MUTEX_INIT(GVMI_RANK_APPENDER_LIST);
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static pthread_cond_t left = PTHREAD_COND_INITIALIZER; /* serving, or paying, has changed */
static TAILQ_HEAD(, gvm_appender) list = TAILQ_HEAD_INITIALIZER(list);
static const gvm_appender *serving;
static TAILQ_HEAD(, gvmi_append_debt) debts = TAILQ_HEAD_INITIALIZER(debts);
static const gvmi_append_debt *paying; /* whose memory is on its way to the driver */
static uint64_t expected;              /* appenders that are about to join */
static bool stopping, joined; /* joined: somebody has, or will, since the thread looked last */

/* A step for each; true if any had something to do. */
static bool serve_all_locked(void)
{
    gvm_appender *appender = TAILQ_FIRST(&list);
    bool busy = false;

    while (appender != NULL) {
        if (!appender->feed.leaving) {
            serving = appender;
            gvmi_unlock(&lock);
            busy = gvmi_append_feed_step(appender) || busy;
            gvmi_lock(&lock);
            serving = NULL;
            pthread_cond_broadcast(&left);
        }
        /* Nobody can have taken it from the list: it was served until now. */
        appender = TAILQ_NEXT(appender, feed.entry);
    }
    return busy;
}

static void owe_locked(gvmi_append_debt *debt)
{
    if (!debt->listed)
        TAILQ_INSERT_TAIL(&debts, debt, entry);
    debt->listed = true;
}

static void forget_locked(gvmi_append_debt *debt)
{
    if (debt->listed)
        TAILQ_REMOVE(&debts, debt, entry);
    debt->listed = false;
}

/* Gives one chunk to the driver; false: there is none to give. */
static bool pay_locked(void)
{
    gvmi_append_debt *debt = TAILQ_FIRST(&debts);
    bool more;

    if (debt == NULL)
        return false;
    forget_locked(debt); /* before the look: what comes to it later lists it again */
    paying = debt;
    gvmi_unlock(&lock);
    more = gvmi_chunk_cache_settle(debt->cache);
    gvmi_lock(&lock);
    paying = NULL;
    if (more && debt->appenders > 0) /* the last of them pays all of it */
        owe_locked(debt);
    pthread_cond_broadcast(&left);
    return true;
}

static void nap_locked(int64_t us)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += us * 1000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&wake, &lock.mutex, &until);
}

static void *run(void *unused)
{
    int64_t busy_us = 0;

    (void)unused;
    gvmi_lock(&lock);
    while (!stopping) {
        int64_t idle_us;

        if (TAILQ_EMPTY(&list) && expected == 0) {
            if (!pay_locked())
                pthread_cond_wait(&wake, &lock.mutex);
            continue;
        }
        if (joined || serve_all_locked()) {
            joined = false;
            busy_us = gvmi_append_now_us();
            continue;
        }
        idle_us = gvmi_append_now_us() - busy_us;
        if (idle_us > SPIN_US) {
            if (!pay_locked())
                nap_locked(idle_us > IDLE_US ? NAP_LONG_US : NAP_US);
        } else {
            gvmi_unlock(&lock);
            sched_yield();
            gvmi_lock(&lock);
        }
    }
    gvmi_unlock(&lock);
    return NULL;
}

/* Signals are the program's: none is delivered to the thread. */
gvm_status gvmi_append_service_start(void)
{
    sigset_t all, before;
    int code = 0;

    gvmi_lock(&life_lock);
    if (!running) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        code = pthread_create(&thread, NULL, run, NULL);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        running = code == 0;
        if (running)
            (void)pthread_setname_np(thread, "gvmem-appender");
    }
    gvmi_unlock(&life_lock);
    if (code == EAGAIN)
        return gvmi_fail_system(GVM_E_LIMIT, code, "pthread_create",
                                "no thread can be started to commit for appenders");
    if (code != 0)
        return gvmi_fail_system(GVM_E_SYSTEM, code, "pthread_create",
                                "cannot start a thread to commit for appenders");
    return GVM_OK;
}

void gvmi_append_service_retain(gvm_device *device)
{
    gvmi_lock(&life_lock);
    appenders++;
    gvmi_unlock(&life_lock);
    gvmi_lock(&lock);
    gvmi_append_debt_of(device)->appenders++;
    gvmi_unlock(&lock);
}

/* True for the last appender of a device: what all of them owe is its to pay. */
static bool leave_debt(gvmi_append_debt *debt)
{
    bool last;

    gvmi_lock(&lock);
    GVM_ASSERT(debt->appenders > 0);
    last = --debt->appenders == 0;
    if (last) {
        forget_locked(debt);
        while (paying == debt)
            pthread_cond_wait(&left, &lock.mutex);
    }
    gvmi_unlock(&lock);
    return last;
}

static void leave_thread(void)
{
    gvmi_lock(&life_lock);
    GVM_ASSERT(appenders > 0);
    if (--appenders == 0 && running) {
        gvmi_lock(&lock);
        GVM_ASSERT(TAILQ_EMPTY(&list));
        stopping = true;
        pthread_cond_signal(&wake);
        gvmi_unlock(&lock);
        pthread_join(thread, NULL);
        stopping = running = false;
    }
    gvmi_unlock(&life_lock);
}

void gvmi_append_service_release(gvm_device *device)
{
    gvmi_append_debt *debt = gvmi_append_debt_of(device);

    if (leave_debt(debt))
        while (gvmi_chunk_cache_settle(debt->cache))
            ;
    leave_thread();
}

void gvmi_append_service_expect(void)
{
    gvmi_lock(&lock);
    expected++;
    joined = true;
    pthread_cond_signal(&wake);
    gvmi_unlock(&lock);
}

void gvmi_append_service_forgo(void)
{
    gvmi_lock(&lock);
    expected--;
    gvmi_unlock(&lock);
}

void gvmi_append_service_join(gvm_appender *appender)
{
    gvmi_lock(&lock);
    GVM_ASSERT(expected > 0);
    expected--;
    appender->feed.leaving = false;
    TAILQ_INSERT_TAIL(&list, appender, feed.entry);
    joined = true;
    pthread_cond_signal(&wake);
    gvmi_unlock(&lock);
}

void gvmi_append_service_leave(gvm_appender *appender)
{
    gvmi_lock(&lock);
    appender->feed.leaving = true; /* or it would be served again before this thread has the lock */
    while (serving == appender)
        pthread_cond_wait(&left, &lock.mutex);
    TAILQ_REMOVE(&list, appender, feed.entry);
    gvmi_unlock(&lock);
}

void gvmi_append_service_owe(gvm_device *device)
{
    gvmi_lock(&lock);
    owe_locked(gvmi_append_debt_of(device));
    pthread_cond_signal(&wake);
    gvmi_unlock(&lock);
}
