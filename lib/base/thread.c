/* Threads of the library; see thread.h. */
#define _GNU_SOURCE
#include "base/thread.h"

#include <errno.h>
#include <signal.h>

#include "base/error.h"

int gvmi_thread_start(pthread_t *thread, const char *name, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    int code;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == 0)
        (void)pthread_setname_np(*thread, name);
    return code;
}

gvm_status gvmi_thread_fail(int code, const char *purpose)
{
    if (code == EAGAIN)
        return gvmi_fail_system(GVM_E_LIMIT, code, "pthread_create", "no thread can be started %s",
                                purpose);
    return gvmi_fail_system(GVM_E_SYSTEM, code, "pthread_create", "cannot start a thread %s", purpose);
}
