/* The thread that commits for all appenders that have begun.
 *
 * It goes round them, a step each, so that none waits for another's large result. While something
 * was asked a moment ago it spins, because a kernel that waits costs a whole device; else it looks
 * every NAP_US, and without an appender that has begun it sleeps. When nothing was asked for SPIN_US, it
 * gives the driver what appenders had committed ahead and have taken from its addresses: a chunk a step,
 * since a kernel that asks meanwhile waits for it. It calls only what never waits for a kernel: create,
 * map, set access, release, and on the way to GVM_E_NOSPACE the amount of free memory.
 *
 * The first chunks of a begin are its work, too: the first commit of a thread that was idle takes twice
 * as long as the next (on an H100 0.23 ms and 0.1), and that would be the one that a kernel waits for.
 *
 * It is there from the first begin until the last device goes that had appenders: to start it takes
 * half as long as a begin.
 *
 * I1  an appender is on the list iff it has begun, or is about to, and not yet been taken from here.
 * I2  serving is on the list, or NULL; its feed is the thread's alone.
 * I3  a device's cache that an appender has put beyond its limit is listed as a debt, or being paid.
 * Locks: lock, for the lists; life_lock, taken before it, for starting and ending, held while the
 * thread ends. So is START, by who lets the last device go: the thread takes neither.
 */
#include "appender/appender.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"

#define SPIN_US 2000 /* after the last thing that was asked */
#define NAP_US 50
#define NAP_LONG_US 1000 /* once nothing has been asked for IDLE_US */
#define IDLE_US 200000

static gvmi_mutex life_lock = GVMI_MUTEX_INIT(GVMI_RANK_APPENDER_THREAD);
static uint64_t devices; /* that have, or had, appenders; atomic */
static bool running;
static pid_t owner; /* atomic: whose the thread is; a child made by fork() has none */
static pthread_t thread;

static gvmi_mutex lock = GVMI_MUTEX_INIT(GVMI_RANK_APPENDER_LIST);
static pthread_cond_t wake;                            /* made when the first device joins */
static pthread_cond_t left = PTHREAD_COND_INITIALIZER; /* serving, or paying, has changed */
static TAILQ_HEAD(, gvm_appender) list = TAILQ_HEAD_INITIALIZER(list);
static const gvm_appender *serving;
static TAILQ_HEAD(, gvmi_append_debt) debts = TAILQ_HEAD_INITIALIZER(debts);
static const gvmi_append_debt *paying; /* whose memory is on its way to the driver */
static bool stopping, news; /* news: somebody has joined, or owes, since it looked last */

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
    if (more)
        owe_locked(debt);
    pthread_cond_broadcast(&left);
    return true;
}

static void nap_locked(int64_t us)
{
    (void)gvmi_wait_until(&wake, &lock, gvmi_now_ns() + us * 1000);
}

static void *run(void *unused)
{
    int64_t busy_us = 0;

    (void)unused;
    gvmi_capture_relax();
    gvmi_lock(&lock);
    while (!stopping) {
        int64_t idle_us;

        if (serve_all_locked() || news) {
            news = false;
            busy_us = gvmi_append_now_us();
            continue;
        }
        idle_us = gvmi_append_now_us() - busy_us;
        if (TAILQ_EMPTY(&list) && TAILQ_EMPTY(&debts)) {
            pthread_cond_wait(&wake, &lock.mutex);
        } else if (idle_us > SPIN_US) {
            if (!pay_locked())
                nap_locked(idle_us > IDLE_US ? NAP_LONG_US : NAP_US);
        } else if (TAILQ_EMPTY(&list)) {
            nap_locked(SPIN_US - idle_us + 1);
        } else {
            gvmi_unlock(&lock);
            sched_yield();
            gvmi_lock(&lock);
        }
    }
    gvmi_unlock(&lock);
    gvmi_capture_restore();
    return NULL;
}

/* Is this a child of the process that has, or had, the thread? Its locks may be held for ever. */
static bool is_child(void)
{
    const pid_t pid = __atomic_load_n(&owner, __ATOMIC_RELAXED);

    return pid != 0 && pid != getpid();
}

/* Signals are the program's: none is delivered to the thread. */
gvm_status gvmi_append_service_start(void)
{
    sigset_t all, before;
    int code = 0;

    if (is_child())
        return gvmi_fail(GVM_E_FOREIGN, "the process that used appenders was the parent of this one");
    gvmi_lock(&life_lock);
    if (!running) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        code = pthread_create(&thread, NULL, run, NULL);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        running = code == 0;
        __atomic_store_n(&owner, getpid(), __ATOMIC_RELAXED);
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

static void make_wake(void)
{
    gvmi_cond_init(&wake);
}

void gvmi_append_service_retain(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_wake);
    __atomic_fetch_add(&devices, 1, __ATOMIC_RELAXED);
}

static void stop_locked(void)
{
    gvmi_lock(&lock);
    GVM_ASSERT(TAILQ_EMPTY(&list));
    stopping = true;
    pthread_cond_signal(&wake);
    gvmi_unlock(&lock);
    pthread_join(thread, NULL);
    stopping = running = false;
}

void gvmi_append_service_release(gvmi_append_debt *debt)
{
    if (is_child())
        return;
    gvmi_lock(&lock);
    while (paying == debt)
        pthread_cond_wait(&left, &lock.mutex);
    forget_locked(debt);
    gvmi_unlock(&lock);
    gvmi_lock(&life_lock);
    if (__atomic_sub_fetch(&devices, 1, __ATOMIC_RELAXED) == 0 && running)
        stop_locked();
    gvmi_unlock(&life_lock);
}

/* Spins first: it is a matter of a tenth of a millisecond, unless the driver is slow. */
static void wait_for_first(gvm_appender *appender)
{
    const int64_t start_us = gvmi_append_now_us();

    while (__atomic_load_n(&appender->feed.starting, __ATOMIC_ACQUIRE)) {
        if (gvmi_append_now_us() - start_us > SPIN_US) {
            gvmi_lock(&lock);
            while (__atomic_load_n(&appender->feed.starting, __ATOMIC_ACQUIRE))
                pthread_cond_wait(&left, &lock.mutex);
            gvmi_unlock(&lock);
        }
        sched_yield();
    }
}

void gvmi_append_service_join(gvm_appender *appender)
{
    gvmi_lock(&lock);
    appender->feed.leaving = false;
    TAILQ_INSERT_HEAD(&list, appender, feed.entry); /* somebody waits */
    news = true;
    pthread_cond_signal(&wake);
    gvmi_unlock(&lock);
    wait_for_first(appender);
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
    news = true;
    pthread_cond_signal(&wake);
    gvmi_unlock(&lock);
}
