/* Stream memory operations: a stream writes a word, or waits for one.
 *
 * A wait polls, first giving way to other threads and then with sleeps that grow to POLL_NS_MAX; it
 * ends early if its context breaks. What was written before a value that is waited for is seen by
 * what follows the wait. */
#include "softgpu/engine.h"

#include <sched.h>
#include <time.h>

#define POLLS_AWAKE 64
#define POLL_NS_MAX 50000

#define WRITE_NO_MEMORY_BARRIER 1u /* may be reordered with earlier writes; here it never is */
#define WAIT_FLUSH (1u << 30)      /* CAN_FLUSH_REMOTE_WRITES is 0 */

typedef struct value_op {
    soft_op op;
    CUdeviceptr addr;
    uint64_t value;
    unsigned flags;
    unsigned width_bytes; /* 4 or 8 */
} value_op;

static uint64_t load_value(const value_op *self)
{
    const void *p = (const void *)(uintptr_t)self->addr;

    return self->width_bytes == 4 ? __atomic_load_n((const uint32_t *)p, __ATOMIC_ACQUIRE)
                                  : __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE);
}

/* The conditions of CUstreamWaitValue_flags; GEQ is cyclic. */
static bool is_wait_fulfilled(const value_op *self)
{
    uint64_t now = load_value(self), mask = self->width_bytes == 4 ? UINT32_MAX : UINT64_MAX;
    uint64_t sign = (mask >> 1) + 1;

    switch (self->flags) {
    case CU_STREAM_WAIT_VALUE_GEQ: return !((now - self->value) & sign);
    case CU_STREAM_WAIT_VALUE_EQ: return now == self->value;
    case CU_STREAM_WAIT_VALUE_AND: return (now & self->value) != 0;
    default: /* NOR */ return (~(now | self->value) & mask) != 0;
    }
}

static void wait_for_value(void *arg)
{
    value_op *self = arg;
    struct timespec pause = {.tv_nsec = 1000};

    for (unsigned polls = 0; !is_wait_fulfilled(self) && self->op.context->error == CUDA_SUCCESS;
         polls++) {
        if (polls < POLLS_AWAKE) {
            sched_yield();
            continue;
        }
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < POLL_NS_MAX)
            pause.tv_nsec *= 2;
    }
}

static void write_value(void *arg)
{
    const value_op *self = arg;
    void *p = (void *)(uintptr_t)self->addr;

    if (self->width_bytes == 4)
        __atomic_store_n((uint32_t *)p, (uint32_t)self->value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint64_t *)p, self->value, __ATOMIC_RELEASE);
}

static CUresult run_wait(soft_op *op)
{
    return soft_fault_guard(wait_for_value, op, NULL);
}

static CUresult run_write(soft_op *op)
{
    return soft_fault_guard(write_value, op, NULL);
}

static const soft_op_class wait_class = {
    .type = SOFT_OP_WORK,
    .run = run_wait,
    .repeatable = true,
    .node = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
};
static const soft_op_class write_class = {
    .type = SOFT_OP_WORK,
    .run = run_write,
    .repeatable = true,
    .node = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
};

static CUresult submit_value_op(const soft_op_class *class, CUstream stream, CUdeviceptr addr,
                                uint64_t value, unsigned flags, unsigned width_bytes)
{
    unsigned flags_max = class == &wait_class ? CU_STREAM_WAIT_VALUE_NOR : WRITE_NO_MEMORY_BARRIER;
    int access = class == &wait_class ? SOFT_ACCESS_READ : SOFT_ACCESS_READWRITE;
    value_op *op;
    int device;
    CUresult result = soft_enter();

    if (result == CUDA_SUCCESS)
        result = soft_stream_device(stream, &device);
    if (result == CUDA_SUCCESS && class == &wait_class && flags & WAIT_FLUSH)
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS && (flags > flags_max || addr % width_bytes))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = soft_space_check(device, addr, width_bytes, access);
    if (result != CUDA_SUCCESS)
        return result;
    op = soft_op_new(sizeof *op, class);
    if (op) {
        op->addr = addr;
        op->value = value;
        op->flags = flags;
        op->width_bytes = width_bytes;
    }
    return soft_op_submit(op ? &op->op : NULL, stream, false);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    return submit_value_op(&write_class, stream, addr, value, flags, 4);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
    return submit_value_op(&write_class, stream, addr, value, flags, 8);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    return submit_value_op(&wait_class, stream, addr, value, flags, 4);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
    return submit_value_op(&wait_class, stream, addr, value, flags, 8);
}
