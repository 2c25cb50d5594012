/* The engine's lock, and cancellation under locks; operations made, and freed once the lock is released. */
#include "softgpu/engine.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t engine = PTHREAD_MUTEX_INITIALIZER;
static STAILQ_HEAD(, soft_op) garbage = STAILQ_HEAD_INITIALIZER(garbage); /* to be freed by soft_unlock() */

static _Thread_local struct {
    unsigned depth;
    int before;
} cancel;

void soft_cancel_hold(void)
{
    if (cancel.depth++ == 0)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel.before);
}

void soft_cancel_release(void)
{
    if (--cancel.depth == 0)
        pthread_setcancelstate(cancel.before, NULL);
}

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
    STAILQ_HEAD(, soft_op) ended = STAILQ_HEAD_INITIALIZER(ended);
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
    if (!STAILQ_EMPTY(&garbage)) {
        soft_unlock();
        soft_lock();
        return; /* the caller looks again at what it waits for */
    }
    soft_cancel_hold();
    pthread_cond_wait(cond, &engine);
    soft_cancel_release();
}

void *soft_op_new(size_t size_bytes, const soft_op_class *class)
{
    soft_op *op = calloc(1, size_bytes);

    if (!op)
        return NULL;
    op->class = class;
    op->size_bytes = size_bytes;
    op->refs = 1;
    op->edges = op->inline_edges;
    op->edge_room = SOFT_OP_EDGES;
    LIST_INIT(&op->waiters);
    return op;
}

soft_op *soft_op_copy_locked(const soft_op *model)
{
    soft_op *op = soft_op_new(model->size_bytes, model->class);

    if (!op)
        return NULL;
    memcpy((char *)op + sizeof *op, (const char *)model + sizeof *model,
           model->size_bytes - sizeof *model);
    if (op->class->copied)
        op->class->copied(op);
    return op;
}

bool soft_op_reserve_edges(soft_op *op, size_t count)
{
    soft_edge *edges;

    if (count <= op->edge_room)
        return true;
    edges = calloc(count, sizeof *edges);
    if (!edges)
        return false;
    if (op->edges != op->inline_edges)
        free(op->edges);
    op->edges = edges;
    op->edge_room = count;
    return true;
}

void soft_op_unref_locked(soft_op *op)
{
    if (--op->refs == 0)
        STAILQ_INSERT_TAIL(&garbage, op, link);
}
