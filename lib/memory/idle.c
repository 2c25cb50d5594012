/* The holders of idle memory in this process; see idle.h.
 *
 * I1  a holder is on the list from join to leave, and stays there while callers > 0.
 * I2  quick and waiting are each set by one of the callers.
 * Lock: rank IDLE, never held during a call of a holder.
 *
 * In a child made by fork() the holders of the parent are unknown: their memory is the parent's.
 */
#include "memory/idle.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "memory/background.h"

#define BUSY_NS \
    GVMI_NS_PER_MS /* until a holder that is giving back on a shortage is looked at again */

static gvmi_mutex lock = GVMI_MUTEX_INIT(GVMI_RANK_IDLE);
static pthread_cond_t left = PTHREAD_COND_INITIALIZER; /* a call has ended */
static TAILQ_HEAD(, gvmi_idle) holders = TAILQ_HEAD_INITIALIZER(holders);
static uint32_t process; /* grows with each fork */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void reset_idle_in_child(void)
{
    gvmi_mutex_init(&lock, GVMI_RANK_IDLE);
    left = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    TAILQ_INIT(&holders);
    process++;
    gvmi_background_forget();
}

static void watch_idle_forks(void)
{
    /* Without memory for it a child is not protected from itself. */
    (void)pthread_atfork(NULL, NULL, reset_idle_in_child);
}

/* ---- joining and leaving */

void gvmi_idle_join(gvm_device *device, gvmi_idle *idle, const gvmi_idle_calls *calls)
{
    pthread_once(&fork_once, watch_idle_forks);
    *idle = (gvmi_idle){.device = device, .calls = calls, .due_ns = GVMI_NEVER_NS, .process = process};
    gvmi_background_retain(gvmi_idle_step);
    gvmi_lock(&lock);
    TAILQ_INSERT_TAIL(&holders, idle, entry);
    gvmi_unlock(&lock);
}

void gvmi_idle_leave(gvmi_idle *idle)
{
    if (idle->process != process)
        return;
    gvmi_lock(&lock);
    idle->leaving = true;
    while (idle->callers > 0)
        pthread_cond_wait(&left, &lock.mutex);
    TAILQ_REMOVE(&holders, idle, entry);
    gvmi_unlock(&lock);
    gvmi_background_release();
}

/* ---- calls */

/* Waits for calls that it must not be made beside, and releases the lock until end_call(). */
static void begin_call_locked(gvmi_idle *idle, bool may_wait)
{
    idle->callers++;
    while (idle->quick || (may_wait && idle->waiting))
        pthread_cond_wait(&left, &lock.mutex);
    *(may_wait ? &idle->waiting : &idle->quick) = true;
    gvmi_unlock(&lock);
}

static void end_call(gvmi_idle *idle, bool may_wait)
{
    gvmi_lock(&lock);
    *(may_wait ? &idle->waiting : &idle->quick) = false;
    idle->callers--;
    pthread_cond_broadcast(&left);
}

/* ---- by time */

static int64_t due_ns(const gvmi_idle *idle)
{
    return __atomic_load_n(&idle->due_ns, __ATOMIC_SEQ_CST);
}

static void set_due_locked(gvmi_idle *idle, int64_t at_ns)
{
    __atomic_store_n(&idle->due_ns, at_ns, __ATOMIC_SEQ_CST);
}

void gvmi_idle_wake(gvmi_idle *idle, int64_t at_ns)
{
    if ((due_ns(idle) <= at_ns && !gvmi_background_is_missing()) || idle->process != process)
        return;
    gvmi_lock(&lock);
    if (due_ns(idle) > at_ns)
        set_due_locked(idle, at_ns);
    gvmi_unlock(&lock);
    gvmi_background_nudge();
}

static gvmi_idle *first_due_locked(void)
{
    gvmi_idle *idle, *first = NULL;

    TAILQ_FOREACH(idle, &holders, entry)
    if (!idle->leaving && (first == NULL || due_ns(idle) < due_ns(first)))
        first = idle;
    return first;
}

int64_t gvmi_idle_step(int64_t now_ns)
{
    gvmi_idle *idle;
    int64_t next_ns;

    gvmi_lock(&lock);
    idle = first_due_locked();
    if (idle != NULL && due_ns(idle) <= now_ns) {
        if (idle->quick) {
            set_due_locked(idle, now_ns + BUSY_NS);
        } else {
            set_due_locked(idle, GVMI_NEVER_NS); /* before the call: what wakes it meanwhile counts */
            begin_call_locked(idle, false);
            next_ns = idle->calls->decay != NULL ? idle->calls->decay(idle, now_ns) : GVMI_NEVER_NS;
            end_call(idle, false);
            if (next_ns < due_ns(idle))
                set_due_locked(idle, next_ns);
        }
        idle = first_due_locked();
    }
    next_ns = idle != NULL ? due_ns(idle) : GVMI_NEVER_NS;
    gvmi_unlock(&lock);
    return next_ns;
}

/* ---- on shortage */

/* A device that was opened anew after a reset of its context is another gvm_device: what was made before holds
 * memory still. */
static bool shares_memory(const gvm_device *a, const gvm_device *b)
{
    return a->info.ordinal == b->info.ordinal;
}

static bool has_memory_of(const gvmi_idle *idle, const gvm_device *device)
{
    return shares_memory(idle->device, device) && !idle->leaving;
}

uint64_t gvmi_idle_reclaim(gvm_device *device, uint64_t wanted_bytes, bool may_wait)
{
    const gvm_error error = gvmi_error_save();
    const int64_t until_ns = gvmi_deadline_ns(GVMI_IDLE_WAIT_MS);
    uint64_t given_bytes = 0;
    gvmi_idle *idle;

    GVM_ASSERT(gvmi_lock_held_none());
    gvmi_lock(&lock);
    TAILQ_FOREACH(idle, &holders, entry)
    { /* goes on from one that was called: it has not left before */
        if (given_bytes >= wanted_bytes)
            break;
        if (idle->calls->reclaim == NULL || !has_memory_of(idle, device))
            continue;
        begin_call_locked(idle, may_wait);
        if (may_wait)
            idle->until_ns = until_ns;
        given_bytes += idle->calls->reclaim(idle, wanted_bytes - given_bytes, may_wait);
        end_call(idle, may_wait);
    }
    TAILQ_FOREACH(idle, &holders, entry)
    {
        if (idle->calls->flush == NULL || !has_memory_of(idle, device))
            continue;
        begin_call_locked(idle, may_wait);
        idle->calls->flush(idle);
        end_call(idle, may_wait);
    }
    gvmi_unlock(&lock);
    gvm_error_restore(&error);
    return given_bytes;
}

void gvmi_shortage_note(gvmi_shortage *shortage, uint64_t given_bytes)
{
    const bool waited = shortage->rounds++ > 0;

    if (!waited)
        shortage->until_ns = gvmi_deadline_ns(GVMI_IDLE_WAIT_MS);
    shortage->fruitless = given_bytes > 0 ? 0 : shortage->fruitless + waited;
}

bool gvmi_idle_retry(gvm_device *device, uint64_t wanted_bytes, gvmi_shortage *shortage)
{
    if (!gvmi_shortage_lasts(shortage))
        return false;
    gvmi_shortage_note(shortage, gvmi_idle_reclaim(device, wanted_bytes, shortage->rounds > 0));
    return true; /* also if nothing came: another thread may have given it back */
}
