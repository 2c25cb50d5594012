/* callback/callback.h - the callback server inside the library.
 *
 *   server.c    creation, functions, questions, end
 *   calls.c     finding what kernels have asked for, and calling the function
 *   threads.c   who does that: threads of the server, or the library's
 *
 * What kernels write and read is the mail, in pinned memory (gvmem/device/detail/callback.h). One thread at a time looks for calls: it is the
 * lookout, and is it no longer when it runs a function.
 *
 * I1  taken[i] is the number of the last use of slot i whose function was begun; it changes only by the lookout.
 * I2  a function that is not REENTRANT is run by one thread at a time, the one that set busy; the lookout sets it.
 * I3  finished[i] <= taken[i], served <= begun of each function; all only rise. The mail's done has the lowest bit of finished.
 * I4  after closed was set, nothing in the mail changes.
 */
#ifndef GVMI_CALLBACK_CALLBACK_H
#define GVMI_CALLBACK_CALLBACK_H

#include <stdbool.h>

#include <gvmem/callback.h>
#include <gvmem/device/detail/callback.h>

#include "memory/device.h"
#include "memory/serve.h"

typedef struct gvmi_callback {
    gvm_callback_function run; /* NULL: none; atomic, set last */
    void *context;
    uint32_t flags;
    bool busy;       /* atomic */
    uint64_t begun;  /* requests that calls have begun to serve; collective */
    uint64_t served; /* the same, of calls that have ended; atomic */
} gvmi_callback;

struct gvm_callback_server {
    gvmi_mutex lock;
    pthread_cond_t changed; /* a call has ended and somebody drains, or the server closes */
    gvm_device *device;     /* referenced */
    gvmi_words words;       /* on the device: gvm_callback_words */
    gvm_callback_mail *mail;
    uint64_t wait_ns;
    gvmi_callback functions[GVM_CALLBACK_FUNCTIONS];
    uint32_t taken[GVM_CALLBACK_SLOTS];
    uint32_t finished[GVM_CALLBACK_SLOTS]; /* atomic */
    bool has_lookout;                      /* atomic */
    uint32_t cursor;                       /* lookout's: where it looks next */
    int64_t asked_ns;                      /* when a call was found last; atomic */
    uint64_t calls, ended, requests, failures;
    uint32_t running, drainers; /* atomic, as those before */
    gvm_error error;            /* the first since the last drain; under the lock */
    bool closing, closed;       /* changed under the lock; atomic */
    uint32_t thread_count;
    pthread_t threads[GVM_CALLBACK_THREADS_MAX];
    gvmi_served served; /* where the library's thread serves it: thread_count is 0 */
};

/* ---- server.c: for parts of the library that have a server of their own, which no program knows */

/* The device is held. GVM_E_NOSPACE, GVM_E_NOMEM, GVM_E_LIMIT, GVM_E_LOST, GVM_E_DRIVER */
gvm_status gvmi_callback_make(gvm_device *device, uint64_t wait_ns, gvm_callback_server **out);
/* Once it has closed. The caller frees or retires the struct. */
void gvmi_callback_unmake(gvm_callback_server *server);

/* The first error of a function since the last time, which is recorded for the thread. */
gvm_status gvmi_callback_take_error(gvm_callback_server *server);

gvm_callback_view gvmi_callback_view(const gvm_callback_server *server);
void gvmi_callback_set(gvm_callback_server *server, uint32_t number, uint32_t flags,
                       gvm_callback_function function, void *context);

/* ---- calls.c */

typedef struct gvmi_callback_found {
    uint32_t slot; /* GVM_CALLBACK_SLOTS: none, a collective call */
    uint32_t function;
    bool known;      /* there is such a function, of this kind, and it is the caller's to run */
    uint64_t posted; /* what says the slot, or how many requests there are */
    uint64_t requests;
} gvmi_callback_found;

/* The next call that a kernel has asked for, by the lookout. It is taken, and must be made. */
bool gvmi_callback_find(gvm_callback_server *server, gvmi_callback_found *found);

/* Makes it. */
void gvmi_callback_run(gvm_callback_server *server, const gvmi_callback_found *found);

/* Is the calling thread in a function of the server? */
bool gvmi_callback_is_inside(const gvm_callback_server *server);

/* ---- threads.c */

/* Starts threads of its own, or has the library's thread serve it. GVM_E_LIMIT, GVM_E_SYSTEM, GVM_E_FOREIGN */
gvm_status gvmi_callback_start(gvm_callback_server *server, uint32_t thread_count);
gvm_status gvmi_callback_serve(gvm_callback_server *server);

/* Makes the calls that were asked for, ends what was started, and sets closed. Not inside a function of the server. */
void gvmi_callback_close(gvm_callback_server *server);

#endif
