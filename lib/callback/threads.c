/* Who looks for calls and makes them: threads of the server, or the library's.
 *
 * One thread at a time is the lookout. It is no longer when it has found a call, and may be it again when that has ended; while it is
 * in the function, another thread takes over, which looks each NAP whether there is a lookout. So a call that is over soon wakes no thread, and one
 * that takes long delays others by a NAP.
 */
#include "callback/callback.h"

#include <sched.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/thread.h"
#include "memory/background.h"
#include "memory/pace.h"

#define CLOSING_CALLS_MAX \
    (4 * GVM_CALLBACK_SLOTS) /* that a thread makes once the server is closing */

static bool become_lookout(gvm_callback_server *s)
{
    return !__atomic_load_n(&s->has_lookout, __ATOMIC_RELAXED) &&
           !__atomic_exchange_n(&s->has_lookout, true, __ATOMIC_ACQUIRE);
}

static void end_lookout(gvm_callback_server *s)
{
    __atomic_store_n(&s->has_lookout, false, __ATOMIC_RELEASE);
}

/* One look, and the call that it finds. */
static bool look_once(gvm_callback_server *s)
{
    gvmi_callback_found found;
    bool any;

    if (!become_lookout(s))
        return false;
    any = gvmi_callback_find(s, &found);
    end_lookout(s);
    if (any)
        gvmi_callback_run(s, &found);
    return any;
}

/* ---- threads of the server */

/* Makes what is left of the calls. A look passes by a function that another thread is in, so that thread looks again after it, and waits until
 * it can: if it ended because there is a lookout just then, nobody would look for the calls which that one has passed by. */
static void make_last_calls(gvm_callback_server *s)
{
    gvmi_callback_found found;
    bool any = true;

    for (uint32_t i = 0; i < CLOSING_CALLS_MAX && any; i++) {
        while (!become_lookout(s))
            sched_yield(); /* for one look */
        any = gvmi_callback_find(s, &found);
        end_lookout(s);
        if (any)
            gvmi_callback_run(s, &found);
    }
}

static bool is_closing(const gvm_callback_server *s)
{
    return __atomic_load_n(&s->closing, __ATOMIC_ACQUIRE);
}

static void nap(gvm_callback_server *s, int64_t nap_ns)
{
    gvmi_lock(&s->lock);
    if (!is_closing(s))
        (void)gvmi_wait_until(&s->changed, &s->lock, gvmi_now_ns() + nap_ns);
    gvmi_unlock(&s->lock);
}

/* Until the next look of a thread that has found nothing, be it that it is not the lookout. */
static void rest(gvm_callback_server *s, bool is_lookout)
{
    const int64_t quiet_ns = gvmi_now_ns() - __atomic_load_n(&s->asked_ns, __ATOMIC_RELAXED);
    int64_t nap_ns = gvmi_pace_nap_ns(quiet_ns);

    if (nap_ns == 0 && !is_lookout)
        nap_ns = GVMI_PACE_NAP_NS;
    if (nap_ns > 0)
        nap(s, nap_ns);
    else
        sched_yield();
}

/* Looks until there is a call, or the server closes. */
static bool look_out(gvm_callback_server *s, gvmi_callback_found *found)
{
    while (!is_closing(s)) {
        if (gvmi_callback_find(s, found))
            return true;
        rest(s, true);
    }
    return false;
}

static void *run_thread(void *arg)
{
    gvm_callback_server *s = arg;
    const bool entered = gvmi_device_enter(s->device) == GVM_OK;
    gvmi_callback_found found;
    bool any;

    while (!is_closing(s)) {
        if (!become_lookout(s)) {
            rest(s, false);
            continue;
        }
        any = look_out(s, &found);
        end_lookout(s);
        if (any)
            gvmi_callback_run(s, &found);
    }
    make_last_calls(s);
    if (entered)
        gvmi_device_leave();
    return NULL;
}

static void tell_closing(gvm_callback_server *s)
{
    gvmi_lock(&s->lock);
    __atomic_store_n(&s->closing, true, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&s->changed);
    gvmi_unlock(&s->lock);
}

static void join_threads(gvm_callback_server *s)
{
    for (; s->thread_count > 0; s->thread_count--)
        pthread_join(s->threads[s->thread_count - 1], NULL);
}

gvm_status gvmi_callback_start(gvm_callback_server *s, uint32_t thread_count)
{
    int code = 0;

    for (; s->thread_count < thread_count && code == 0; s->thread_count += code == 0)
        code = gvmi_thread_start(&s->threads[s->thread_count], "gvmem-callback", run_thread, s);
    if (code == 0)
        return GVM_OK;
    tell_closing(s);
    join_threads(s);
    return gvmi_thread_fail(code, "to run callbacks");
}

/* ---- the library's thread */

static bool serve_server(gvmi_served *served)
{
    return look_once((gvm_callback_server *)((char *)served - offsetof(gvm_callback_server, served)));
}

gvm_status gvmi_callback_serve(gvm_callback_server *s)
{
    const gvm_status status = gvmi_background_start();

    if (status != GVM_OK)
        return status;
    s->served.step = serve_server;
    gvmi_serve_join(&s->served);
    gvmi_background_call();
    return GVM_OK;
}

/* ---- the end */

void gvmi_callback_close(gvm_callback_server *s)
{
    tell_closing(s);
    if (s->thread_count == 0 && s->served.step != NULL)
        gvmi_serve_leave(&s->served);
    join_threads(s);
    __atomic_store_n(&s->mail->closed, 1, __ATOMIC_RELEASE);
    gvmi_lock(&s->lock);
    __atomic_store_n(&s->closed, true, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&s->changed);
    gvmi_unlock(&s->lock);
}
