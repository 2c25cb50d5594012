/* memory/serve.h - what kernels that run may ask the library's thread for: a list of those that it serves, a step each.
 *
 * The thread (background.h) goes round the list, so that none waits for another's long work. A step calls nothing that can
 * wait for a kernel.
 */
#ifndef GVMI_MEMORY_SERVE_H
#define GVMI_MEMORY_SERVE_H

#include <stdbool.h>
#include <sys/queue.h>

/* What there was to serve. */
typedef enum gvmi_duty {
    GVMI_DUTY_NONE, /* the list is empty */
    GVMI_DUTY_QUIET,
    GVMI_DUTY_BUSY,
} gvmi_duty;

typedef struct gvmi_served gvmi_served;
struct gvmi_served {
    TAILQ_ENTRY(gvmi_served) entry;
    bool (*step)(gvmi_served *served); /* true: there was something to do */
    bool leaving;                      /* not to be served again */
};

/* From now on the thread serves it, first of all; it no longer does, and a step under way has ended. The thread that joins has started the
 * thread before (gvmi_background_start()) and calls it (gvmi_background_call()) where there is something to do. */
void gvmi_serve_join(gvmi_served *served);
void gvmi_serve_leave(gvmi_served *served);

/* Waits for what a step changes. */
void gvmi_serve_wait(const gvmi_served *served, bool (*is_over)(const gvmi_served *served));

/* Is the calling thread in a function that a kernel waits for? It must not wait for a kernel, as that may find no room. */
extern _Thread_local bool gvmi_kernel_waits;

/* A step for each, by the library's thread. */
gvmi_duty gvmi_serve_all(void);

#endif
