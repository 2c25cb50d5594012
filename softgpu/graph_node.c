/* Nodes of graphs that a program describes: what each kind does. */
#include "softgpu/graph.h"

CUresult soft_graph_kernel_work(const CUDA_KERNEL_NODE_PARAMS *params, soft_graph_work *work)
{
    soft_launch *launch;
    CUresult result;

    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    result = soft_launch_new(params, &launch);
    if (result == CUDA_SUCCESS)
        *work = (soft_graph_work){CU_GRAPH_NODE_TYPE_KERNEL, &launch->op, launch->module->context,
                                  NULL};
    return result;
}

/* The work of a context that the handle names, if it takes work, and its device: another thread may destroy it after this. */
static CUresult begin_work(CUgraphNodeType type, const void *params, CUcontext handle,
                           soft_graph_work *work, int *device)
{
    soft_context *context;
    CUresult result;

    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    context = soft_handle_lock(SOFT_HANDLE_CONTEXT, handle, CUDA_ERROR_INVALID_CONTEXT, &result);
    if (!context)
        return result;
    result = soft_context_usable_locked(context);
    *work = (soft_graph_work){.type = type, .context = context};
    *device = context->device;
    soft_unlock();
    return result;
}

CUresult soft_graph_copy_work(const CUDA_MEMCPY3D *params, CUcontext ctx, soft_graph_work *work)
{
    int device = -1;
    CUresult result = begin_work(CU_GRAPH_NODE_TYPE_MEMCPY, params, ctx, work, &device);

    return result == CUDA_SUCCESS ? soft_copy_new(device, params, &work->op) : result;
}

CUresult soft_graph_set_work(const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx, soft_graph_work *work)
{
    int device = -1;
    CUresult result = begin_work(CU_GRAPH_NODE_TYPE_MEMSET, params, ctx, work, &device);

    return result == CUDA_SUCCESS ? soft_set_new(device, params, &work->op) : result;
}

/* ---- nodes are added */

/* Adds the node; what it does, if that could be made, is given up on failure. */
static CUresult add_node(CUgraphNode *out, CUgraph handle, const CUgraphNode *deps, size_t count,
                         const soft_graph_work *work)
{
    soft_graph_node *node;
    soft_graph *graph;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    soft_lock();
    graph = soft_graph_find_locked(handle);
    if (graph && out)
        result = soft_graph_add_locked(graph, work, deps, count, &node);
    if (result == CUDA_SUCCESS) {
        if (work->op)
            work->op->context = work->context;
        *out = node->handle;
    }
    soft_unlock();
    if (result != CUDA_SUCCESS && work->op)
        soft_op_discard(work->op);
    return result;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS *params)
{
    soft_graph_work work;
    CUresult result = soft_enter();

    if (result == CUDA_SUCCESS)
        result = soft_graph_kernel_work(params, &work);
    return result == CUDA_SUCCESS ? add_node(node, graph, deps, count, &work) : result;
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                              size_t count, const CUDA_MEMCPY3D *params, CUcontext ctx)
{
    soft_graph_work work;
    CUresult result = soft_enter();

    if (result == CUDA_SUCCESS)
        result = soft_graph_copy_work(params, ctx, &work);
    return result == CUDA_SUCCESS ? add_node(node, graph, deps, count, &work) : result;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx)
{
    soft_graph_work work;
    CUresult result = soft_enter();

    if (result == CUDA_SUCCESS)
        result = soft_graph_set_work(params, ctx, &work);
    return result == CUDA_SUCCESS ? add_node(node, graph, deps, count, &work) : result;
}

/* The function runs in no context; the model has that of the stream in which the graph is launched. */
CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count,
                            const CUDA_HOST_NODE_PARAMS *params)
{
    soft_graph_work work = {.type = CU_GRAPH_NODE_TYPE_HOST};
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!params || !params->fn)
        return CUDA_ERROR_INVALID_VALUE;
    work.op = soft_host_call_new(params->fn, params->userData);
    return work.op ? add_node(node, graph, deps, count, &work) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count)
{
    const soft_graph_work work = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    CUresult result = soft_enter();

    return result == CUDA_SUCCESS ? add_node(node, graph, deps, count, &work) : result;
}

static CUresult add_event_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                               size_t count, CUevent handle, CUgraphNodeType type)
{
    soft_graph_work work = {.type = type, .event = handle};
    CUresult result = soft_enter();
    const soft_event *event;

    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    event = soft_handle_find_locked(SOFT_HANDLE_EVENT, handle);
    work.context = event ? event->context : NULL;
    soft_unlock();
    return event ? add_node(node, graph, deps, count, &work) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                                   size_t count, CUevent event)
{
    return add_event_node(node, graph, deps, count, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                                 size_t count, CUevent event)
{
    return add_event_node(node, graph, deps, count, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

/* ---- parameters of kernels */

/* The list and the bytes that it points to are the node's. */
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS *params)
{
    soft_graph_node *node;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    node = soft_graph_node_find_locked(handle);
    if (!node || !params || node->type != CU_GRAPH_NODE_TYPE_KERNEL) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        soft_launch *launch = (soft_launch *)node->op;

        *params = (CUDA_KERNEL_NODE_PARAMS){.kernelParams = node->kernel_params};
        node->kernel_params[0] = launch->params;
        soft_launch_describe_locked(launch, params);
    }
    soft_unlock();
    return result;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS *params)
{
    soft_graph_node *node;
    soft_graph_work work;
    CUresult result = soft_enter();

    if (result == CUDA_SUCCESS)
        result = soft_graph_kernel_work(params, &work);
    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    node = soft_graph_node_find_locked(handle);
    if (!node || node->type != CU_GRAPH_NODE_TYPE_KERNEL || node->context != work.context ||
        node->context_id != work.context->id)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        result = soft_launch_replace_locked((soft_launch *)work.op, (soft_launch *)node->op);
    if (result != CUDA_SUCCESS) {
        soft_op_unref_locked(work.op);
    } else {
        soft_op_unref_locked(node->op);
        node->op = work.op;
        node->op->context = work.context;
    }
    soft_unlock();
    return result;
}
