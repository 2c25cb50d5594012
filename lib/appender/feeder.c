/* Feeding all appenders that have begun, by the library's thread (memory/serve.h).
 *
 * A step commits for one appender, so that none waits for another's large result. It calls only what never
 * waits for a kernel: create, map, set access, release, and on the way to GVM_E_NOSPACE the amount of free
 * memory.
 *
 * The first chunks of a begin are the thread's work, too: the first commit of a thread that was idle takes twice
 * as long as the next (on an H100 0.23 ms and 0.1), and that would be the one that a kernel waits for.
 */
#include "appender/appender.h"

#include <sched.h>
#include <stddef.h>

#include "base/clock.h"
#include "memory/background.h"

#define SPIN_US 2000 /* of a begin, before it sleeps */

static gvm_appender *appender_of(const gvmi_served *served)
{
    return (gvm_appender *)((char *)(uintptr_t)served - offsetof(gvm_appender, served));
}

static bool feed(gvmi_served *served)
{
    return gvmi_append_feed_step(appender_of(served));
}

gvm_status gvmi_append_feeder_start(void)
{
    return gvmi_background_start();
}

static bool has_first(const gvmi_served *served)
{
    return !__atomic_load_n(&appender_of(served)->feed.starting, __ATOMIC_ACQUIRE);
}

/* Spins first: it is a matter of a tenth of a millisecond, unless the driver is slow. */
static void wait_for_first(const gvmi_served *served)
{
    const int64_t start_us = gvmi_now_us();

    while (!has_first(served)) {
        if (gvmi_now_us() - start_us > SPIN_US)
            gvmi_serve_wait(served, has_first);
        sched_yield();
    }
}

void gvmi_append_feeder_join(gvm_appender *appender)
{
    appender->served.step = feed;
    gvmi_serve_join(&appender->served);
    gvmi_background_call();
    wait_for_first(&appender->served);
}

void gvmi_append_feeder_leave(gvm_appender *appender)
{
    gvmi_serve_leave(&appender->served);
}
