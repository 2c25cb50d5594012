/* The threads that move memory; see mover.h.
 *
 * A lane is a thread, a stream and a ring of jobs that are submitted and not yet known to be over.
 * A job's end is reported when those before it in the ring have been.
 *
 * I1  a lane's ring has at most DEPTH jobs, flights[first, first + count), oldest first.
 * I2  a flight without an event recorded has its verdict in job->status already.
 * Lock: rank QUEUE for each list of jobs; no driver call under it.
 */
#include "keeper/server/mover.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"

#define DEPTH 16                        /* jobs submitted to a stream at a time */
#define FLIGHT_BYTES_MAX (256ull << 20) /* of them together, if there are more than two */
/* Between two looks at what is under way: waiting for an event instead, a lane could not submit the
 * job that comes meanwhile, and the link would be idle between the two. */
#define LOOK_NS 50000

typedef struct job_list {
    gvmi_job *first, *last;
} job_list;

struct gvmi_done_queue {
    gvmi_mutex lock;
    job_list jobs;
    int fd; /* eventfd */
};

typedef struct flight {
    gvmi_job *job;
    CUevent event;
    bool recorded;
} flight;

typedef struct lane {
    gvmi_mover *mover;
    uint32_t tier; /* where its jobs' frames are */
    pthread_t thread;
    gvmi_mutex lock;
    pthread_cond_t wake;
    gvmi_jobs waiting; /* under lock */
    bool stop;         /* likewise */
    gvmi_job reap;
    bool entered; /* the thread has the device's context current */
    CUstream stream;
    uint32_t events; /* made so far */
    flight flights[DEPTH];
    uint32_t first, count;
    uint64_t flight_bytes;
} lane;

struct gvmi_mover {
    gvm_device *device;
    uint32_t index;
    gvmi_frames *frames;
    gvmi_done_queue *done;
    lane lanes[2]; /* to the device, to the host */
    gvmi_job query;
};

static void list_add(job_list *list, gvmi_job *job)
{
    job->next = NULL;
    if (list->last != NULL)
        list->last->next = job;
    else
        list->first = job;
    list->last = job;
}

static gvmi_job *list_take(job_list *list)
{
    gvmi_job *job = list->first;

    if (job != NULL) {
        list->first = job->next;
        if (list->first == NULL)
            list->last = NULL;
    }
    return job;
}

/* ---- what is finished */

gvm_status gvmi_done_create(gvmi_done_queue **out)
{
    gvmi_done_queue *queue = calloc(1, sizeof *queue);

    if (queue == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a queue");
    queue->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (queue->fd < 0) {
        free(queue);
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "eventfd", "cannot make a queue");
    }
    gvmi_mutex_init(&queue->lock, GVMI_RANK_QUEUE);
    *out = queue;
    return GVM_OK;
}

void gvmi_done_release(gvmi_job *job)
{
    if (job->kind == GVMI_JOB_ACTION)
        free(job);
    else /* part of its mover */
        job->busy = false;
}

static void free_jobs(gvmi_job *job)
{
    while (job != NULL) {
        gvmi_job *next = job->next;

        gvmi_done_release(job);
        job = next;
    }
}

void gvmi_done_destroy(gvmi_done_queue *queue)
{
    if (queue == NULL)
        return;
    free_jobs(queue->jobs.first);
    close(queue->fd);
    gvmi_mutex_destroy(&queue->lock);
    free(queue);
}

int gvmi_done_fd(const gvmi_done_queue *queue)
{
    return queue->fd;
}

static void done_queue_put(gvmi_done_queue *queue, gvmi_job *job)
{
    const uint64_t one = 1;
    bool was_empty;

    gvmi_lock(&queue->lock);
    was_empty = queue->jobs.first == NULL;
    list_add(&queue->jobs, job);
    gvmi_unlock(&queue->lock);
    if (was_empty) /* cannot fail: the count is far from its end */
        (void)!write(queue->fd, &one, sizeof one);
}

/* Throws away what is in the queue of one device. */
static void done_queue_purge(gvmi_done_queue *queue, uint32_t device)
{
    job_list kept = {NULL, NULL};
    gvmi_job *job;

    gvmi_lock(&queue->lock);
    while ((job = list_take(&queue->jobs)) != NULL) {
        if (job->device == device)
            gvmi_done_release(job);
        else
            list_add(&kept, job);
    }
    queue->jobs = kept;
    gvmi_unlock(&queue->lock);
}

gvmi_job *gvmi_done_take(gvmi_done_queue *queue)
{
    gvmi_job *jobs;
    uint64_t count;

    (void)!read(queue->fd, &count, sizeof count); /* before the list: what comes later rings anew */
    gvmi_lock(&queue->lock);
    jobs = queue->jobs.first;
    queue->jobs = (job_list){NULL, NULL};
    gvmi_unlock(&queue->lock);
    return jobs;
}

/* ---- a lane's work */

static gvm_status zero_frame(const lane *l, const gvmi_frame_spec *spec)
{
    const uint64_t address = gvmi_frames_address(l->mover->frames, spec->frame);
    CUresult result;

    if (!GVM_CHECK(address != 0))
        return gvm_error_set(GVM_E_INVALID, "there is no frame %u to fill with zeros", spec->frame);
    result = gvmi_cu->cuMemsetD32Async(address, 0, spec->bytes / sizeof(uint32_t), l->stream);
    return result == CUDA_SUCCESS
               ? GVM_OK
               : gvmi_driver_fail(result, "cuMemsetD32Async", "cannot fill a frame with zeros");
}

static gvm_status copy_frame(const lane *l, const gvmi_frame_spec *to, const gvmi_frame_spec *from)
{
    const uint64_t to_address = gvmi_frames_address(l->mover->frames, to->frame);
    const uint64_t from_address = gvmi_frames_address(l->mover->frames, from->frame);
    CUresult result;

    if (!GVM_CHECK(to_address != 0 && from_address != 0 && to->bytes == from->bytes))
        return gvm_error_set(GVM_E_INVALID, "there are no frames %u and %u of one size to copy between",
                             from->frame, to->frame);
    result = gvmi_cu->cuMemcpyDtoDAsync(to_address, from_address, to->bytes, l->stream);
    return result == CUDA_SUCCESS
               ? GVM_OK
               : gvmi_driver_fail(result, "cuMemcpyDtoDAsync", "cannot copy a frame");
}

static bool job_makes_frame(const gvmi_job *job)
{
    return job->what == GVMI_ACTION_MAKE || (job->what == GVMI_ACTION_COPY && job->make);
}

/* Takes over the status of the call just made, and what it said. */
static void set_outcome(gvmi_job *job, gvm_status status)
{
    const gvm_error error = gvmi_error_save();

    job->status = status;
    if (status != GVM_OK)
        memcpy(job->text, error.text, sizeof job->text);
}

/* The last step of a job: what failed is undone. Everything submitted for it is over. */
static void report_job(lane *l, gvmi_job *job)
{
    if (job->status != GVM_OK && job->kind == GVMI_JOB_ACTION && job_makes_frame(job) && job->make) {
        gvmi_frames_drop(l->mover->frames, job->to.frame);
        gvmi_frames_reap(l->mover->frames, job->to.tier);
    }
    done_queue_put(l->mover->done, job);
}

/* Waits for the oldest job. */
static void finish_oldest_job(lane *l)
{
    flight *oldest = &l->flights[l->first];

    if (oldest->recorded) {
        CUresult result = gvmi_cu->cuEventSynchronize(oldest->event);

        if (result != CUDA_SUCCESS)
            set_outcome(oldest->job, gvmi_driver_fail(result, "cuEventSynchronize", "a copy failed"));
    }
    l->flight_bytes -= oldest->job->to.bytes;
    report_job(l, oldest->job);
    l->first = (l->first + 1) % DEPTH;
    l->count--;
}

/* Reports those that are over. */
static void finish_ready_jobs(lane *l)
{
    while (l->count > 0 && (!l->flights[l->first].recorded ||
                            gvmi_cu->cuEventQuery(l->flights[l->first].event) != CUDA_ERROR_NOT_READY))
        finish_oldest_job(l);
}

static gvm_status submit_action(lane *l, gvmi_job *job)
{
    gvm_status status = GVM_OK;

    if (job_makes_frame(job)) {
        finish_ready_jobs(l); /* making takes long */
        status = gvmi_frames_make(l->mover->frames, &job->to);
        /* From now on: it was made here, and is to be undone if the rest fails. */
        job->make = status == GVM_OK;
        job->unmade = status != GVM_OK;
    }
    if (status != GVM_OK)
        return status;
    return job->what == GVMI_ACTION_COPY ? copy_frame(l, &job->to, &job->from)
                                         : zero_frame(l, &job->to);
}

/* Tried again with every job that needs it: one failure does not make the lane useless. */
static gvm_status enter_lane_context(lane *l)
{
    gvm_status status = GVM_OK;

    if (!l->entered)
        status = gvmi_device_enter(l->mover->device);
    l->entered = status == GVM_OK;
    return status;
}

static gvm_status do_job(lane *l, gvmi_job *job)
{
    gvm_status status;

    if (job->kind != GVMI_JOB_ACTION)
        finish_ready_jobs(l); /* giving memory back takes long */
    if (job->kind == GVMI_JOB_REAP) {
        gvmi_frames_reap(l->mover->frames, l->tier);
        return GVM_OK;
    }
    status = enter_lane_context(l);
    if (status != GVM_OK) {
        job->make = false; /* nothing was, and nothing is to be undone */
        return status;
    }
    return job->kind == GVMI_JOB_QUERY
               ? gvmi_frames_query(l->mover->frames, job->device, &job->memory)
               : submit_action(l, job);
}

static void start_job(lane *l, gvmi_job *job)
{
    flight *next;
    CUresult result;

    while (l->count == DEPTH || (l->count >= 2 && l->flight_bytes + job->to.bytes > FLIGHT_BYTES_MAX))
        finish_oldest_job(l); /* another user's job may come meanwhile: little is submitted ahead */
    set_outcome(job, do_job(l, job));
    next = &l->flights[(l->first + l->count++) % DEPTH]; /* after making, which lands others */
    next->job = job;
    next->recorded = false;
    l->flight_bytes += job->to.bytes;
    if (job->kind != GVMI_JOB_ACTION || job->status != GVM_OK)
        return;
    result = gvmi_cu->cuEventRecord(next->event, l->stream);
    next->recorded = result == CUDA_SUCCESS;
    if (!next->recorded) {
        set_outcome(job, gvmi_driver_fail(result, "cuEventRecord", "cannot tell when a copy is over"));
        (void)gvmi_cu->cuStreamSynchronize(l->stream);
    }
}

/* Waits for a job, or, while some are under way, for at most LOOK_NS. */
static void wait_for_job_locked(lane *l)
{
    (void)gvmi_wait_until(&l->wake, &l->lock, l->count == 0 ? GVMI_NEVER_NS : gvmi_now_ns() + LOOK_NS);
}

/* The next job; NULL: there is none just now, but some are under way. False: the lane is to end. */
static bool next_job(lane *l, gvmi_job **job)
{
    bool stop;

    gvmi_lock(&l->lock);
    while (l->count == 0 && !gvmi_jobs_wait(&l->waiting) && !l->stop)
        wait_for_job_locked(l);
    if (!gvmi_jobs_wait(&l->waiting) && !l->stop)
        wait_for_job_locked(l);
    stop = l->stop;
    *job = stop ? NULL : gvmi_jobs_take(&l->waiting);
    gvmi_unlock(&l->lock);
    return !stop;
}

/* With the context current, if it can be. */
static void free_stream(lane *l)
{
    while (l->events > 0)
        gvmi_cu->cuEventDestroy(l->flights[--l->events].event);
    if (l->stream != NULL)
        gvmi_cu->cuStreamDestroy(l->stream);
    l->stream = NULL;
}

static void *run_lane(void *arg)
{
    lane *l = arg;
    gvmi_job *job;

    (void)enter_lane_context(l); /* each job tries again */
    while (next_job(l, &job)) {
        finish_ready_jobs(l);
        if (job != NULL)
            start_job(l, job);
    }
    while (l->count > 0)
        finish_oldest_job(l);
    if (l->entered) { /* here, where nothing can come between */
        free_stream(l);
        gvmi_device_leave();
    }
    return NULL;
}

/* ---- life */

/* With the context current. */
static gvm_status make_stream(lane *l)
{
    CUresult result = gvmi_cu->cuStreamCreate(&l->stream, CU_STREAM_NON_BLOCKING);

    if (result != CUDA_SUCCESS) {
        l->stream = NULL;
        return gvmi_driver_fail(result, "cuStreamCreate", "cannot make a stream to move memory on");
    }
    for (; l->events < DEPTH; l->events++) {
        result = gvmi_cu->cuEventCreate(&l->flights[l->events].event,
                                        CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
        if (result != CUDA_SUCCESS)
            return gvmi_driver_fail(result, "cuEventCreate", "cannot make an event");
    }
    return GVM_OK;
}

static void lane_free(lane *l)
{
    bool entered = false;
    gvmi_job *job;

    if (l->stream != NULL && gvmi_device_enter_to_free(l->mover->device, &entered))
        free_stream(l); /* of a thread that had nothing to do, or never got the context */
    if (entered)
        gvmi_device_leave();
    while ((job = gvmi_jobs_take(&l->waiting)) != NULL)
        gvmi_done_release(job);
    pthread_cond_destroy(&l->wake);
    gvmi_mutex_destroy(&l->lock);
}

static gvm_status lane_start(gvmi_mover *mover, lane *l, uint32_t tier)
{
    gvm_status status = gvmi_device_enter(mover->device);
    int code;

    l->mover = mover;
    l->tier = tier;
    gvmi_mutex_init(&l->lock, GVMI_RANK_QUEUE);
    gvmi_cond_init(&l->wake);
    if (status == GVM_OK) {
        status = make_stream(l);
        if (status != GVM_OK)
            free_stream(l);
        gvmi_device_leave();
    }
    if (status != GVM_OK)
        goto fail_free;
    code = pthread_create(&l->thread, NULL, run_lane, l);
    if (code == 0)
        return GVM_OK;
    status = gvmi_fail_system(GVM_E_SYSTEM, code, "pthread_create", "cannot start a thread");

fail_free:
    lane_free(l);
    return status;
}

static void lane_stop(lane *l)
{
    gvmi_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->wake);
    gvmi_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    lane_free(l);
}

gvm_status gvmi_mover_start(gvm_device *device, uint32_t index, gvmi_frames *frames,
                            gvmi_done_queue *done, gvmi_mover **out)
{
    gvmi_mover *mover = calloc(1, sizeof *mover);
    gvm_status status;

    if (mover == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a mover");
    mover->device = device;
    mover->index = index;
    mover->frames = frames;
    mover->done = done;
    status = lane_start(mover, &mover->lanes[0], GVM_TIER_DEVICE);
    if (status != GVM_OK)
        goto fail_free;
    status = lane_start(mover, &mover->lanes[1], GVM_TIER_HOST);
    if (status != GVM_OK)
        goto fail_stop;
    *out = mover;
    return GVM_OK;

fail_stop:
    lane_stop(&mover->lanes[0]);
fail_free:
    free(mover);
    return status;
}

void gvmi_mover_stop(gvmi_mover *mover)
{
    if (mover == NULL)
        return;
    lane_stop(&mover->lanes[0]);
    lane_stop(&mover->lanes[1]);
    done_queue_purge(mover->done, mover->index); /* some of those are part of it */
    free(mover);
}

/* ---- orders */

static lane *lane_of(gvmi_mover *mover, uint32_t tier)
{
    return &mover->lanes[tier == GVM_TIER_HOST];
}

static void lane_add(lane *l, gvmi_job *job)
{
    gvmi_lock(&l->lock);
    gvmi_jobs_add(&l->waiting, job, job->kind != GVMI_JOB_ACTION);
    pthread_cond_signal(&l->wake);
    gvmi_unlock(&l->lock);
}

gvm_status gvmi_mover_submit(gvmi_mover *mover, const gvmi_action *action)
{
    gvmi_job *job = malloc(sizeof *job);

    if (job == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a job");
    *job = (gvmi_job){
        .kind = GVMI_JOB_ACTION,
        .what = action->kind,
        .make = action->make,
        .makes = action->make || action->kind == GVMI_ACTION_MAKE,
        .number = action->job,
        .uid = action->uid,
        .to = action->to,
        .from = action->from,
        .device = mover->index,
    };
    lane_add(lane_of(mover, action->to.tier), job);
    return GVM_OK;
}

/* One of those that a mover has one of. */
static void submit_own(gvmi_mover *mover, uint32_t tier, gvmi_job *job, gvmi_job_kind kind,
                       uint64_t held_bytes)
{
    if (job->busy)
        return;
    *job = (gvmi_job){
        .kind = kind, .busy = true, .device = mover->index, .to.tier = tier, .held_bytes = held_bytes};
    lane_add(lane_of(mover, tier), job);
}

void gvmi_mover_query(gvmi_mover *mover, uint64_t held_bytes)
{
    submit_own(mover, GVM_TIER_DEVICE, &mover->query, GVMI_JOB_QUERY, held_bytes);
}

void gvmi_mover_reap(gvmi_mover *mover, uint32_t tier)
{
    submit_own(mover, tier, &lane_of(mover, tier)->reap, GVMI_JOB_REAP, 0);
}
