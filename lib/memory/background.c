/* The library's thread; see background.h.
 *
 * It looks as often as pace.h says whether a kernel has asked for something, and with none that could it sleeps until a
 * holder is due. Holders are called when it does not spin, one step between two looks, since a kernel
 * that asks meanwhile waits.
 *
 * I1  the thread runs iff state is RUNNING or ENDING.
 * I2  users > 0 while a holder is on idle.c's list: no holder is called while the thread ends, so the caller that
 *     ends it may hold START.
 * Lock: rank BACKGROUND; held while the thread is started, not while it ends.
 */
#include "memory/background.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "memory/device.h"
#include "memory/pace.h"
#include "memory/serve.h"

static gvmi_mutex lock = GVMI_MUTEX_INIT(GVMI_RANK_BACKGROUND);
static pthread_cond_t wake;                             /* made when the first holder joins */
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER; /* state has left ENDING */
enum { NONE, RUNNING, ENDING };
static int state; /* changed under the lock; atomic */
static pthread_t thread;
static uint64_t users;
static int64_t (*step_holders)(int64_t now_ns); /* always the same; atomic */
static bool again;                              /* it was wanted while it ended */
static bool had;                                /* this process has, or had, the thread */
static bool is_child;                           /* of one that did */
static bool called, nudged, stopping;           /* atomic */

static bool is_set(const bool *flag)
{
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static bool take_flag(bool *flag)
{
    return is_set(flag) && __atomic_exchange_n(flag, false, __ATOMIC_ACQ_REL);
}

/* ---- what it does */

static void sleep_until(int64_t at_ns)
{
    gvmi_lock(&lock);
    if (!is_set(&called) && !take_flag(&nudged) && !is_set(&stopping))
        (void)gvmi_wait_until(&wake, &lock, at_ns);
    gvmi_unlock(&lock);
}

static void *run_background_thread(void *unused)
{
    int64_t busy_ns = 0;

    (void)unused;
    gvmi_capture_relax();
    while (!is_set(&stopping)) {
        const gvmi_duty duty = gvmi_serve_all();
        const int64_t now_ns = gvmi_now_ns(), nap_ns = gvmi_pace_nap_ns(now_ns - busy_ns);
        int64_t next_ns;

        if (duty == GVMI_DUTY_BUSY || take_flag(&called)) {
            busy_ns = now_ns;
            continue;
        }
        if (duty == GVMI_DUTY_QUIET && nap_ns == 0) {
            sched_yield();
            continue;
        }
        next_ns = __atomic_load_n(&step_holders, __ATOMIC_ACQUIRE)(now_ns);
        if (next_ns <= now_ns)
            continue;
        if (duty == GVMI_DUTY_QUIET && now_ns + nap_ns < next_ns)
            next_ns = now_ns + nap_ns;
        sleep_until(next_ns);
    }
    gvmi_capture_restore();
    return NULL;
}

/* ---- starting and ending */

static void set_state_locked(int next)
{
    __atomic_store_n(&state, next, __ATOMIC_RELEASE);
}

/* Returns what pthread_create() says. */
static int start_background_locked(void)
{
    int code;

    if (state == ENDING)
        again = true;
    if (state != NONE)
        return 0;
    code = gvmi_thread_start(&thread, "gvmem-thread", run_background_thread, NULL);
    if (code == 0) {
        set_state_locked(RUNNING);
        had = true;
    }
    return code;
}

gvm_status gvmi_background_start(void)
{
    int code;

    if (is_child)
        return gvm_error_set(GVM_E_FOREIGN,
                             "a process made by fork() after its parent used appenders or callbacks, or had "
                             "regions cleaned, must "
                             "exec a program");
    gvmi_lock(&lock);
    while (state == ENDING)
        pthread_cond_wait(&ended, &lock.mutex);
    code = start_background_locked();
    gvmi_unlock(&lock);
    return code == 0 ? GVM_OK : gvmi_thread_fail(code, "to serve kernels");
}

static void make_wake(void)
{
    gvmi_cond_init(&wake);
}

void gvmi_background_retain(int64_t (*step)(int64_t now_ns))
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_wake);
    gvmi_lock(&lock);
    __atomic_store_n(&step_holders, step, __ATOMIC_RELEASE);
    users++;
    gvmi_unlock(&lock);
}

static void stop_locked(void)
{
    set_state_locked(ENDING);
    __atomic_store_n(&stopping, true, __ATOMIC_RELEASE);
    pthread_cond_signal(&wake);
    gvmi_unlock(&lock);
    pthread_join(thread, NULL);
    gvmi_lock(&lock);
    __atomic_store_n(&stopping, false, __ATOMIC_RELEASE);
    set_state_locked(NONE);
    if (again && users > 0)
        (void)start_background_locked();
    again = false;
    pthread_cond_broadcast(&ended);
}

void gvmi_background_release(void)
{
    gvmi_lock(&lock);
    if (--users == 0 && state == RUNNING)
        stop_locked();
    gvmi_unlock(&lock);
}

/* ---- waking */

void gvmi_background_call(void)
{
    gvmi_lock(&lock);
    __atomic_store_n(&called, true, __ATOMIC_RELEASE);
    pthread_cond_signal(&wake);
    gvmi_unlock(&lock);
}

void gvmi_background_nudge(void)
{
    gvmi_lock(&lock);
    if (!is_child)
        (void)start_background_locked();
    __atomic_store_n(&nudged, true, __ATOMIC_RELEASE);
    pthread_cond_signal(&wake);
    gvmi_unlock(&lock);
}

bool gvmi_background_is_missing(void)
{
    return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == NONE && !is_child;
}

void gvmi_background_forget(void)
{
    gvmi_mutex_init(&lock, GVMI_RANK_BACKGROUND);
    make_wake();
    ended = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    is_child = is_child || had;
    state = NONE;
    users = 0;
    again = called = nudged = stopping = false;
}
