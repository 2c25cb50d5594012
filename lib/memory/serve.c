/* The list of what the library's thread serves; see serve.h.
 *
 * I1  an entry is on the list iff it has joined and not yet left.
 * I2  serving is on the list, or NULL.
 * Lock: rank SERVED; not held during a step.
 */
#include "memory/serve.h"

#include <stddef.h>

#include "base/lock.h"

_Thread_local bool gvmi_kernel_waits;

static gvmi_mutex lock = GVMI_MUTEX_INIT(GVMI_RANK_SERVED);
static pthread_cond_t stepped = PTHREAD_COND_INITIALIZER; /* serving has changed */
static TAILQ_HEAD(, gvmi_served) list = TAILQ_HEAD_INITIALIZER(list);
static const gvmi_served *serving;

gvmi_duty gvmi_serve_all(void)
{
    gvmi_duty duty = GVMI_DUTY_NONE;
    gvmi_served *served;

    gvmi_lock(&lock);
    /* From one that was served it goes on to the next: it cannot have left meanwhile. */
    TAILQ_FOREACH(served, &list, entry)
    {
        bool busy = false;

        if (!served->leaving) {
            serving = served;
            gvmi_unlock(&lock);
            busy = served->step(served);
            gvmi_lock(&lock);
            serving = NULL;
            pthread_cond_broadcast(&stepped);
        }
        duty = busy || duty == GVMI_DUTY_BUSY ? GVMI_DUTY_BUSY : GVMI_DUTY_QUIET;
    }
    gvmi_unlock(&lock);
    return duty;
}

void gvmi_serve_join(gvmi_served *served)
{
    gvmi_lock(&lock);
    served->leaving = false;
    TAILQ_INSERT_HEAD(&list, served, entry);
    gvmi_unlock(&lock);
}

void gvmi_serve_leave(gvmi_served *served)
{
    gvmi_lock(&lock);
    served->leaving = true; /* or it would be served again before this thread has the lock */
    while (serving == served)
        pthread_cond_wait(&stepped, &lock.mutex);
    TAILQ_REMOVE(&list, served, entry);
    gvmi_unlock(&lock);
}

void gvmi_serve_wait(const gvmi_served *served, bool (*is_over)(const gvmi_served *served))
{
    gvmi_lock(&lock);
    while (!is_over(served))
        pthread_cond_wait(&stepped, &lock.mutex);
    gvmi_unlock(&lock);
}
