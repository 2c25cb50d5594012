/* base/cancel.h - no call of the library is a cancellation point.
 *
 * pthread_cancel() acts inside poll, write, pthread_cond_wait and the like. There it would leave
 * locks taken, requests in tables and work half done, and inside the driver whatever the driver has
 * begun. So a public function that comes to such a call begins with GVMI_UNCANCELLED: until it
 * returns, a cancellation of the thread is put off. It then takes effect at the program's own next
 * cancellation point.
 */
#ifndef GVMI_BASE_CANCEL_H
#define GVMI_BASE_CANCEL_H

#include <pthread.h>

static inline int gvmi_cancel_disable(void)
{
    int before = PTHREAD_CANCEL_ENABLE;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void gvmi_cancel_restore(const int *before)
{
    pthread_setcancelstate(*before, NULL);
}

/* A declaration: holds to the end of the block. */
#define GVMI_UNCANCELLED \
    __attribute__((cleanup(gvmi_cancel_restore), unused)) \
    const int gvmi_cancel_before = gvmi_cancel_disable()

#endif
