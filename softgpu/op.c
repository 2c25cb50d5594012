/* The graph of operations: what waits for what, what is ready, what has ended. */
#include "softgpu/engine.h"

#include <stdlib.h>

static STAILQ_HEAD(, soft_op) ready = STAILQ_HEAD_INITIALIZER(ready); /* to be handed on by settle_locked() */

void soft_stream_unref_locked(soft_stream *stream)
{
    if (--stream->refs > 0)
        return;
    if (stream->has_worker)
        soft_worker_unreserve_locked();
    LIST_REMOVE(stream, entry);
    stream->context->stream_count--;
    free(stream);
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
            continue; /* soft_op_run_locked() is about to */
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
        if (!soft_op_reserve_edges(op, context->stream_count + 1))
            return CUDA_ERROR_OUT_OF_MEMORY;
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

/* The engine has it from here on. */
static void begin_op_locked(soft_op *op, soft_stream *stream)
{
    op->stream = stream;
    op->serial = ++op->context->serial;
    stream->refs++;
    TAILQ_INSERT_TAIL(&op->context->unfinished, op, unfinished);
    if (op->waiting_for == 0) {
        op->state = SOFT_OP_READY;
        STAILQ_INSERT_TAIL(&ready, op, link);
        settle_locked();
    }
}

CUresult soft_op_submit_locked(soft_op *op, soft_stream *stream, soft_op *after)
{
    CUresult result = soft_context_usable_locked(stream->context);

    if (result == CUDA_SUCCESS && stream->capture)
        return soft_capture_add_locked(stream, op);
    if (result == CUDA_SUCCESS && stream == stream->context->legacy)
        result = soft_capture_check_legacy_locked(stream->context, true);
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
    op->context = stream->context;
    stream->tail = op;
    begin_op_locked(op, stream);
    return CUDA_SUCCESS;
}

void soft_op_submit_part_locked(soft_op *op, soft_stream *stream, soft_op *const *after, size_t count)
{
    for (size_t i = 0; i < count; i++)
        add_edge(op, after[i]);
    begin_op_locked(op, stream);
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

/* What cannot begin yet is left to the workers. */
void soft_op_run_locked(soft_op *op)
{
    CUresult result;

    op->by_caller = op->by_caller && op->state == SOFT_OP_READY;
    if (!op->by_caller)
        return;
    soft_cancel_hold(); /* nobody else would finish it */
    soft_unlock();
    result = op->class->run(op);
    soft_lock();
    soft_cancel_release();
    soft_op_finish_locked(op, result);
}

/* ---- the end */

/* Ends what has not begun in the context. */
static void abandon_locked(soft_context *context)
{
    soft_op *op;

    TAILQ_FOREACH(op, &context->unfinished, unfinished)
    if (op->state == SOFT_OP_WAITING && !op->class->last) {
        op->state = SOFT_OP_READY;
        STAILQ_INSERT_TAIL(&ready, op, link);
    }
    settle_locked();
}

void soft_context_stop_locked(soft_context *context, CUresult error)
{
    if (context->error != CUDA_SUCCESS)
        return;
    context->error = error;
    soft_sm_interrupt_locked(context);
    abandon_locked(context);
}

void soft_context_break_locked(soft_context *context, CUresult error)
{
    soft_context *primary = soft_context_of(context->device);

    if (context->error != CUDA_SUCCESS)
        return;
    if (primary->lost == CUDA_SUCCESS)
        primary->lost = error;
    for (unsigned i = 0; i < SOFT_CONTEXTS_MAX; i++)
        if (soft_context_at(i)->device == context->device)
            soft_context_stop_locked(soft_context_at(i), error);
}

void soft_op_finish_locked(soft_op *op, CUresult result)
{
    if (result != CUDA_SUCCESS)
        soft_context_break_locked(op->context, result);
    end_op_locked(op);
    settle_locked();
}
