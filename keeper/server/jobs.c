/* Jobs that wait for a thread of a mover; see jobs.h.
 *
 * I1  of a user's jobs the first alone is in the list of users; its user_last is the last of them. */
#include "keeper/server/jobs.h"

#include <stddef.h>

#include "keeper/server/mover.h"

static void add_job_user(gvmi_jobs *jobs, gvmi_job *first)
{
    first->next_user = NULL;
    *(jobs->last != NULL ? &jobs->last->next_user : &jobs->first) = first;
    jobs->last = first;
}

void gvmi_jobs_add(gvmi_jobs *jobs, gvmi_job *job, bool own)
{
    gvmi_job *first = jobs->first;

    job->next = NULL;
    if (own) {
        *(jobs->own_last != NULL ? &jobs->own_last->next : &jobs->own_first) = job;
        jobs->own_last = job;
        return;
    }
    while (first != NULL && first->uid != job->uid)
        first = first->next_user;
    if (first == NULL) {
        job->user_last = job;
        add_job_user(jobs, job);
    } else {
        first->user_last->next = job;
        first->user_last = job;
    }
}

static gvmi_job *pop_own_job(gvmi_jobs *jobs)
{
    gvmi_job *job = jobs->own_first;

    jobs->own_first = job->next;
    if (jobs->own_first == NULL)
        jobs->own_last = NULL;
    return job;
}

gvmi_job *gvmi_jobs_take(gvmi_jobs *jobs)
{
    gvmi_job *job = jobs->first;

    if (jobs->own_first != NULL)
        return pop_own_job(jobs);
    if (job == NULL)
        return NULL;
    jobs->first = job->next_user;
    if (jobs->first == NULL)
        jobs->last = NULL;
    if (job->next != NULL) {
        job->next->user_last = job->user_last;
        add_job_user(jobs, job->next);
    }
    return job;
}

bool gvmi_jobs_wait(const gvmi_jobs *jobs)
{
    return jobs->own_first != NULL || jobs->first != NULL;
}
