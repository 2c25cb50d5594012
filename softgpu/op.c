/* The graph of operations: what waits for what, what is ready, what has ended. */
#include "softgpu/engine.h"

#include <stdlib.h>
#include <time.h>

STAILQ_HEAD(op_list, soft_op);

static pthread_mutex_t engine = PTHREAD_MUTEX_INITIALIZER;
static struct op_list ready = STAILQ_HEAD_INITIALIZER(ready); /* to be handed on by settle_locked() */
static struct op_list garbage = STAILQ_HEAD_INITIALIZER(garbage); /* to be freed by soft_unlock() */

void soft_lock(void)
{
    pthread_mutex_lock(&engine);
}

void soft_op_discard(soft_op *op)
{
    if (op->class->destroy)
        op->class->destroy(op);
    if (op->edges != op->inline_edges)
        free(op->edges);
    free(op);
}

void soft_unlock(void)
{
    struct op_list ended = STAILQ_HEAD_INITIALIZER(ended);
    soft_op *op;

    STAILQ_CONCAT(&ended, &garbage);
    pthread_mutex_unlock(&engine);
    while ((op = STAILQ_FIRST(&ended))) {
        STAILQ_REMOVE_HEAD(&ended, link);
        soft_op_discard(op);
    }
}

void soft_sleep_locked(pthread_cond_t *cond)
{
    int cancel;

    if (!STAILQ_EMPTY(&garbage)) {
        soft_unlock();
        soft_lock();
        return; /* the caller looks again at what it waits for */
    }
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE,
                           &cancel); /* a thread of the user's must not end with the lock */
    pthread_cond_wait(cond, &engine);
    pthread_setcancelstate(cancel, NULL);
}

uint64_t soft_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void *soft_op_new(size_t size_bytes, const soft_op_class *class)
{
    soft_op *op = calloc(1, size_bytes);

    if (!op)
        return NULL;
    op->class = class;
    op->refs = 1;
    op->edges = op->inline_edges;
    LIST_INIT(&op->waiters);
    return op;
}

void soft_op_unref_locked(soft_op *op)
{
    if (--op->refs == 0)
        STAILQ_INSERT_TAIL(&garbage, op, link);
}

/* Ends the operation; followers that waited only for it become ready. */
static void end_op_locked(soft_op *op)
{
    soft_waiter *waiter;

    op->state = SOFT_OP_DONE;
    op->result = op->context->error;
    op->finished_ns = soft_now_ns();
    TAILQ_REMOVE(&op->context->unfinished, op, unfinished);
    if (op->stream->tail == op)
        op->stream->tail = NULL;
    for (soft_edge *edge = op->followers, *next; edge; edge = next) {
        soft_op *to = edge->to;

        next = edge->next;
        to->waiting_for--;
        if (to->waiting_for == 0 && to->state == SOFT_OP_WAITING) {
            to->state = SOFT_OP_READY;
            STAILQ_INSERT_TAIL(&ready, to, link);
        }
        soft_op_unref_locked(to);
    }
    LIST_FOREACH(waiter, &op->waiters, entry)
    pthread_cond_signal(&waiter->cond);
    soft_stream_unref_locked(op->stream);
    soft_op_unref_locked(op);
}

/* Hands on what is ready, until nothing is. */
static void settle_locked(void)
{
    soft_op *op;

    while ((op = STAILQ_FIRST(&ready))) {
        bool broken = op->context->error != CUDA_SUCCESS;

        STAILQ_REMOVE_HEAD(&ready, link);
        if (op->class->type == SOFT_OP_MARK || (broken && !op->class->always))
            end_op_locked(op);
        else if (op->class->type == SOFT_OP_WORK && op->by_caller)
            continue; /* soft_op_submit() is about to */
        else if (op->class->type == SOFT_OP_WORK)
            soft_worker_push_locked(op);
        else
            soft_sm_push_locked((soft_launch *)op);
    }
}

static void add_edge(soft_op *op, soft_op *before)
{
    soft_edge *edge;

    if (!before || before->state == SOFT_OP_DONE)
        return;
    edge = &op->edges[op->waiting_for++];
    *edge = (soft_edge){.to = op, .next = before->followers};
    before->followers = edge;
    op->refs++;
}

/* Makes the operation wait for what one submitted to the stream now has to wait for. The legacy
 * stream waits for all streams that take part in its order, and they for it. */
static CUresult link_locked(soft_op *op, soft_stream *stream, soft_op *after)
{
    soft_context *context = stream->context;
    soft_stream *other;

    if (stream == context->legacy) {
        if (context->stream_count + 1 > SOFT_OP_EDGES) {
            soft_edge *edges = calloc(context->stream_count + 1, sizeof *edges);

            if (!edges)
                return CUDA_ERROR_OUT_OF_MEMORY;
            op->edges = edges;
        }
        LIST_FOREACH(other, &context->streams, entry)
        if (other->blocking)
            add_edge(op, other->tail);
    } else {
        add_edge(op, stream->tail);
        if (stream->blocking)
            add_edge(op, context->legacy->tail);
    }
    add_edge(op, after);
    return CUDA_SUCCESS;
}

CUresult soft_op_submit_locked(soft_op *op, soft_stream *stream, soft_op *after)
{
    soft_context *context = stream->context;
    CUresult result = soft_context_usable_locked(context);

    if (result != CUDA_SUCCESS)
        return result;
    if (op->class->type == SOFT_OP_WORK && !stream->has_worker) {
        result = soft_worker_reserve_locked();
        if (result != CUDA_SUCCESS)
            return result;
        stream->has_worker = true;
    }
    result = link_locked(op, stream, after);
    if (result != CUDA_SUCCESS)
        return result;
    op->context = context;
    op->stream = stream;
    op->serial = ++context->serial;
    stream->refs++;
    stream->tail = op;
    TAILQ_INSERT_TAIL(&context->unfinished, op, unfinished);
    if (op->waiting_for == 0) {
        op->state = SOFT_OP_READY;
        STAILQ_INSERT_TAIL(&ready, op, link);
        settle_locked();
    }
    return CUDA_SUCCESS;
}

/* What cannot begin yet is left to the workers. */
static void run_by_caller_locked(soft_op *op)
{
    CUresult result;

    op->by_caller = op->by_caller && op->state == SOFT_OP_READY;
    if (!op->by_caller)
        return;
    soft_unlock();
    result = op->class->run(op);
    soft_lock();
    soft_op_finish_locked(op, result);
}

CUresult soft_op_submit(soft_op *op, CUstream handle, bool wait)
{
    soft_stream *stream;
    CUresult result;

    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    soft_lock();
    op->refs++; /* ours, for the wait */
    op->by_caller |= wait && op->class->type == SOFT_OP_WORK;
    result = soft_stream_find_locked(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = soft_op_submit_locked(op, stream, NULL);
    if (result != CUDA_SUCCESS) {
        soft_unlock();
        soft_op_discard(op);
        return result;
    }
    run_by_caller_locked(op);
    if (wait)
        result = soft_op_wait_locked(op);
    soft_op_unref_locked(op);
    soft_unlock();
    return result;
}

CUresult soft_op_wait_locked(soft_op *op)
{
    soft_waiter waiter = {.cond = PTHREAD_COND_INITIALIZER};
    CUresult result;

    op->refs++;
    LIST_INSERT_HEAD(&op->waiters, &waiter, entry);
    while (op->state != SOFT_OP_DONE)
        soft_sleep_locked(&waiter.cond);
    LIST_REMOVE(&waiter, entry);
    pthread_cond_destroy(&waiter.cond);
    result = op->result;
    soft_op_unref_locked(op);
    return result;
}

void soft_op_finish_locked(soft_op *op, CUresult result)
{
    if (result != CUDA_SUCCESS)
        soft_context_break_locked(op->context, result);
    end_op_locked(op);
    settle_locked();
}

void soft_op_abandon_locked(soft_context *context)
{
    soft_op *op;

    TAILQ_FOREACH(op, &context->unfinished, unfinished)
    if (op->state == SOFT_OP_WAITING) {
        op->state = SOFT_OP_READY;
        STAILQ_INSERT_TAIL(&ready, op, link);
    }
    settle_locked();
}
