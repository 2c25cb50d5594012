/* keeper/server/mover.h - the threads that make, zero and copy frames.
 *
 * A mover serves one device with two threads, each with a stream of its own: one for what ends on
 * the device, one for what ends on the host, so that both directions of the link are used at once.
 * Each does the jobs of users in rotation, one of each, and those of a user in the order in which they came;
 * several are under way at a time.
 *
 * What is finished goes into a queue with an eventfd, which one thread (the server's) empties.
 *
 * Threads: one thread submits and empties the queue.
 */
#ifndef GVMI_KEEPER_SERVER_MOVER_H
#define GVMI_KEEPER_SERVER_MOVER_H

#include "keeper/machine/machine.h"
#include "keeper/server/frame.h"
#include "keeper/server/jobs.h"

typedef struct gvmi_mover gvmi_mover;
typedef struct gvmi_done_queue gvmi_done_queue;

typedef enum gvmi_job_kind {
    GVMI_JOB_ACTION, /* MAKE, COPY or ZERO of the machine's */
    GVMI_JOB_QUERY,  /* how much memory is free */
    GVMI_JOB_REAP,   /* dropped frames were given back */
} gvmi_job_kind;

typedef struct gvmi_job {
    struct gvmi_job *next;
    struct gvmi_job *next_user, *user_last; /* while it waits; jobs.c */
    uint32_t uid;                           /* ACTION: whose it is */
    gvmi_job_kind kind;
    gvm_status status;
    bool busy; /* QUERY, REAP, of which a mover has one each: from being submitted to its release */
    /* ACTION */
    gvmi_action_kind what;
    bool make;                /* a frame was made, which is to be undone if the rest fails */
    bool makes;               /* a frame was to be made */
    bool unmade;              /* and could not */
    uint64_t number;          /* the machine's */
    gvmi_frame_spec to, from; /* REAP: to.tier */
    uint32_t device;
    /* QUERY: what clients held of the device when it was submitted; what came of it */
    uint64_t held_bytes;
    gvmi_device_memory memory;
    char text[sizeof((gvm_error *)0)->text]; /* of a failure */
} gvmi_job;

/* ---- what is finished */

/* GVM_E_NOMEM, GVM_E_LIMIT, GVM_E_SYSTEM */
gvm_status gvmi_done_create(gvmi_done_queue **out);
void gvmi_done_destroy(gvmi_done_queue *queue);

/* Readable while something is in the queue. */
int gvmi_done_fd(const gvmi_done_queue *queue);

/* Takes out all that is finished, oldest first, as a list. Each is to be given to
 * gvmi_done_release(). */
gvmi_job *gvmi_done_take(gvmi_done_queue *queue);
void gvmi_done_release(gvmi_job *job);

/* ---- movers */

/* Starts the threads. index is what frames call the device; it, the frames and the queue must
 * outlive the mover.
 *
 * GVM_E_NOMEM, GVM_E_SYSTEM, GVM_E_DRIVER */
gvm_status gvmi_mover_start(gvm_device *device, uint32_t index, gvmi_frames *frames,
                            gvmi_done_queue *done, gvmi_mover **out);

/* Waits for what is under way and throws the rest away, with what is in the queue. NULL is ignored. */
void gvmi_mover_stop(gvmi_mover *mover);

/* Has a MAKE, COPY or ZERO done. GVM_E_NOMEM */
gvm_status gvmi_mover_submit(gvmi_mover *mover, const gvmi_action *action);

/* Has the free memory looked up, unless that is under way already. held_bytes: what gvmi_machine_held_bytes() says now. */
void gvmi_mover_query(gvmi_mover *mover, uint64_t held_bytes);

/* Has dropped frames of a tier given back, unless that is under way already: when it is done, there may be
 * more of them. No job that waits is about a dropped frame. */
void gvmi_mover_reap(gvmi_mover *mover, uint32_t tier);

#endif
