/* Executable graphs are launched.
 *
 * A launch is a mark behind what the stream holds and behind the last launch of the same executable graph, then a copy
 * of each model behind those that its node comes behind, then a mark behind all of them. The stream's tail
 * is that last mark, so a launch is one operation to all that is outside. Where a context of it is broken, its parts in
 * other contexts run on, and the last mark, with its reference to the executable graph, stays until they have ended.
 *
 * Nodes that do not wait for each other run at once. So an executable graph has workers of its own, as many as it has
 * chains that need them; launches of one executable graph follow each other. */
#include "softgpu/graph.h"

typedef struct end_op {
    soft_op op;
    soft_exec *exec; /* a reference */
} end_op;

static void leave_exec(soft_op *op)
{
    soft_lock();
    soft_exec_unref_locked(((end_op *)op)->exec);
    soft_unlock();
}

static const soft_op_class begin_class = {.type = SOFT_OP_MARK};
static const soft_op_class end_class = {.type = SOFT_OP_MARK, .last = true, .destroy = leave_exec};

static CUresult make_run_locked(soft_exec_node *node, soft_stream *stream)
{
    soft_context *context = node->work.context ? node->work.context : stream->context;
    CUresult result = node->work.context ? soft_exec_node_check_locked(node)
                                         : soft_context_usable_locked(context);

    if (result == CUDA_SUCCESS && node->work.event &&
        !soft_handle_find_locked(SOFT_HANDLE_EVENT, node->work.event))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    node->run = node->work.op ? soft_op_copy_locked(node->work.op)
                              : soft_op_new(sizeof *node->run, &begin_class);
    if (!node->run || !soft_op_reserve_edges(node->run, node->dep_count + 2))
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->run->context = context;
    return CUDA_SUCCESS;
}

/* Makes all operations of a launch; on failure those that are there stay in the nodes. */
static CUresult make_launch_locked(soft_exec *exec, soft_stream *stream, soft_op **begin, soft_op **end)
{
    end_op *last;
    CUresult result = CUDA_SUCCESS;

    for (size_t i = 0; i < exec->count && result == CUDA_SUCCESS; i++)
        result = make_run_locked(&exec->nodes[i], stream);
    if (result != CUDA_SUCCESS)
        return result;
    *begin = soft_op_new(sizeof **begin, &begin_class);
    last = soft_op_new(sizeof *last, &end_class);
    if (last) {
        last->exec = exec;
        exec->refs++;
        *end = &last->op;
        last->op.context = stream->context;
    }
    return *begin && last && soft_op_reserve_edges(*end, exec->count + 1) ? CUDA_SUCCESS
                                                                          : CUDA_ERROR_OUT_OF_MEMORY;
}

static void submit_node_locked(soft_exec *exec, soft_exec_node *node, soft_stream *stream, soft_op *begin)
{
    soft_event *event = soft_handle_find_locked(SOFT_HANDLE_EVENT, node->work.event);
    size_t count = 0;

    for (; count < node->dep_count; count++)
        exec->after[count] = exec->nodes[node->deps[count]].run;
    if (count == 0)
        exec->after[count++] = begin;
    if (event && node->work.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT)
        exec->after[count++] = event->recorded;
    node->run->refs++; /* ours, for those that come behind */
    soft_op_submit_part_locked(node->run, stream, exec->after, count);
    if (event && node->work.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
        soft_event_set_locked(event, node->run);
}

/* From here on nothing can fail. */
static void submit_launch_locked(soft_exec *exec, soft_stream *stream, soft_op *begin, soft_op *end)
{
    size_t count = 0;

    for (size_t i = 0; i < exec->count; i++)
        submit_node_locked(exec, &exec->nodes[i], stream, begin);
    for (; count < exec->count; count++)
        exec->after[count] = exec->nodes[count].run;
    if (count == 0)
        exec->after[count++] = begin;
    if (exec->last)
        soft_op_unref_locked(exec->last);
    end->refs++; /* the executable graph's */
    exec->last = end;
    stream->tail = end;
    soft_op_submit_part_locked(end, stream, exec->after, count);
    soft_exec_drop_runs_locked(exec);
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
    soft_op *begin = NULL, *end = NULL;
    soft_stream *stream;
    soft_exec *exec;
    CUresult result = soft_exec_lock(handle, &exec);

    if (result != CUDA_SUCCESS)
        return result;
    result = soft_stream_find_locked(stream_handle, &stream);
    if (result == CUDA_SUCCESS && stream->capture)
        result = soft_capture_refuse_locked(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (result == CUDA_SUCCESS)
        result = make_launch_locked(exec, stream, &begin, &end);
    if (result == CUDA_SUCCESS) {
        begin->refs++; /* ours */
        result = soft_op_submit_locked(begin, stream, exec->last);
        if (result == CUDA_SUCCESS)
            submit_launch_locked(exec, stream, begin, end);
        else
            begin->refs--;
    }
    if (result != CUDA_SUCCESS) {
        soft_exec_drop_runs_locked(exec);
        if (end)
            soft_op_unref_locked(end);
    }
    if (begin)
        soft_op_unref_locked(begin);
    soft_unlock();
    return result;
}

/* What a launch needs is there already. */
CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle)
{
    soft_stream *stream;
    soft_exec *exec;
    CUresult result = soft_exec_lock(handle, &exec);

    if (result != CUDA_SUCCESS)
        return result;
    result = soft_stream_find_locked(stream_handle, &stream);
    if (result == CUDA_SUCCESS)
        result = soft_context_usable_locked(stream->context);
    if (result == CUDA_SUCCESS && stream->capture)
        result = soft_capture_refuse_locked(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    soft_unlock();
    return result;
}
