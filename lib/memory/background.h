/* memory/background.h - the one thread that the library has in a process.
 *
 * It serves kernels that ask for something (serve.h), and while none does it has holders of idle
 * memory give some back (idle.h), a step at a time. It calls nothing that can wait for a kernel, but for one call: stream marks of heaps (heap/stream.c)
 * are events recorded on streams of the program, and a driver may wait there while the stream's queue is full.
 *
 * It is started by what joins those that it serves, or when the first holder has something to give back;
 * never when the library is loaded, since programs that fork load it. It ends with the last holder. A child
 * made by fork() of a process that had it has none.
 */
#ifndef GVMI_MEMORY_BACKGROUND_H
#define GVMI_MEMORY_BACKGROUND_H

#include <stdbool.h>
#include <stdint.h>

#include <gvmem/status.h>

/* Starts the thread unless it runs. GVM_E_SYSTEM, GVM_E_LIMIT, GVM_E_FOREIGN (in a child) */
gvm_status gvmi_background_start(void);

/* One more holder of idle memory; one less: after the last the thread has ended. step is the same for all: it calls
 * the holder that is due first, and returns when the next one is; at most now_ns: there is more to do. */
void gvmi_background_retain(int64_t (*step)(int64_t now_ns));
void gvmi_background_release(void);

/* There is something to serve at once; a decay may be due earlier than the thread knows, for which it is
 * started. Under any lock of an object. */
void gvmi_background_call(void);
void gvmi_background_nudge(void);

/* Would a wake-up start it? It does not run, be it that it could not be started, though it may. */
bool gvmi_background_is_missing(void);

/* In a child, before anything else of the library. */
void gvmi_background_forget(void);

#endif
