/* Worker threads: they run operations of class WORK, which may block (a wait for a value, a host
 * function) or take long (a copy).
 *
 * A stream has at most one ready operation, so as many threads as streams that use workers are
 * enough that none waits behind another; they are counted when a stream submits its first such
 * operation, where a failure can still be reported. Who hands a worker work wakes one thread, who
 * takes work and sees more wakes the next: a worker that readies the next operation of its stream
 * takes it itself and wakes nobody. */
#include "softgpu/engine.h"

#define WORKERS_KEPT 4 /* idle threads that stay although no stream wants them any more */

static STAILQ_HEAD(, soft_op) queue = STAILQ_HEAD_INITIALIZER(queue);
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static unsigned reserved, threads, idle;

static _Thread_local bool is_worker;

static void worker_main(void *unused)
{
    soft_op *op;

    (void)unused;
    is_worker = true;
    soft_lock();
    for (;;) {
        CUresult result = CUDA_SUCCESS;

        op = STAILQ_FIRST(&queue);
        if (!op) {
            if (threads > reserved && threads > WORKERS_KEPT)
                break;
            idle++;
            soft_sleep_locked(&work);
            idle--;
            continue;
        }
        STAILQ_REMOVE_HEAD(&queue, link);
        if (!STAILQ_EMPTY(&queue) && idle > 0)
            pthread_cond_signal(&work);
        if (op->context->error == CUDA_SUCCESS || op->class->always) {
            soft_unlock();
            result = op->class->run(op);
            soft_lock();
        }
        soft_op_finish_locked(op, result);
    }
    threads--;
    soft_unlock();
}

CUresult soft_worker_reserve_locked(void)
{
    if (threads <= reserved) {
        CUresult result = soft_thread_start(worker_main, NULL, "gvmem-worker");

        if (result != CUDA_SUCCESS)
            return result;
        threads++;
    }
    reserved++;
    return CUDA_SUCCESS;
}

void soft_worker_unreserve_locked(void)
{
    reserved--;
    if (idle > 0)
        pthread_cond_signal(&work); /* it may be one too many now */
}

void soft_worker_push_locked(soft_op *op)
{
    STAILQ_INSERT_TAIL(&queue, op, link);
    if (!is_worker)
        pthread_cond_signal(&work);
}
