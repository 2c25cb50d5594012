/* base/thread.h - threads of the library. */
#ifndef GVMI_BASE_THREAD_H
#define GVMI_BASE_THREAD_H

#include <pthread.h>

#include <gvmem/status.h>

/* Starts one, with a name for debuggers. Signals are the program's: none is delivered to it. Returns what pthread_create() does. */
int gvmi_thread_start(pthread_t *thread, const char *name, void *(*run)(void *arg), void *arg);

/* Records that failure: GVM_E_LIMIT, GVM_E_SYSTEM. purpose: "to serve kernels". */
gvm_status gvmi_thread_fail(int code, const char *purpose);

#endif
