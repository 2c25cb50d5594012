/* keeper/server/jobs.h - jobs that wait for a thread of a mover: those of users in rotation, one of each.
 *
 * So a job waits for one of each other user, however many a user has. Jobs of nobody go first.
 *
 * Threads: one at a time.
 * Ownership: a job that waits belongs to the queue.
 */
#ifndef GVMI_KEEPER_SERVER_JOBS_H
#define GVMI_KEEPER_SERVER_JOBS_H

#include <stdbool.h>

struct gvmi_job;

/* All zeros is an empty one. The first job of each user is in a list of users, the others behind it. */
typedef struct gvmi_jobs {
    struct gvmi_job *own_first, *own_last; /* nobody's */
    struct gvmi_job *first, *last;         /* the first ones of users */
} gvmi_jobs;

/* own: it is nobody's; otherwise job->uid's. */
void gvmi_jobs_add(gvmi_jobs *jobs, struct gvmi_job *job, bool own);

/* Takes out the job that is to be done next; NULL: there is none. */
struct gvmi_job *gvmi_jobs_take(gvmi_jobs *jobs);

bool gvmi_jobs_wait(const gvmi_jobs *jobs);

#endif
