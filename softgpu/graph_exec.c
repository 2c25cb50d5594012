/* Executable graphs: instantiated, updated, destroyed. */
#include "softgpu/graph.h"

#include <stdlib.h>

/* ---- life */

void soft_exec_drop_runs_locked(soft_exec *exec)
{
    for (size_t i = 0; i < exec->count; i++) {
        if (exec->nodes[i].run)
            soft_op_unref_locked(exec->nodes[i].run);
        exec->nodes[i].run = NULL;
    }
}

static void free_exec_locked(soft_exec *exec)
{
    for (size_t i = 0; i < exec->count; i++)
        if (exec->nodes[i].work.op)
            soft_op_unref_locked(exec->nodes[i].work.op);
    for (; exec->workers > 0; exec->workers--)
        soft_worker_unreserve_locked();
    free(exec->nodes);
    free(exec->deps);
    free(exec->after);
    free(exec);
}

void soft_exec_unref_locked(soft_exec *exec)
{
    if (--exec->refs == 0)
        free_exec_locked(exec);
}

static soft_op *copy_model_locked(const soft_graph_work *work)
{
    soft_op *op = soft_op_copy_locked(work->op);

    if (op)
        op->context = work->context;
    return op;
}

/* False: out of memory. */
static bool copy_nodes_locked(soft_exec *exec, const soft_graph *graph)
{
    const soft_graph_node *node;

    TAILQ_FOREACH(node, &graph->nodes, entry)
    {
        soft_exec_node *copy = &exec->nodes[exec->count];

        *copy = (soft_exec_node){
            .id = node->id,
            .work = {node->type, NULL, node->context, node->event},
            .context_id = node->context_id,
            .dep_count = node->dep_count,
            .deps = exec->deps + exec->dep_count,
        };
        for (size_t i = 0; i < node->dep_count; i++)
            exec->deps[exec->dep_count++] = node->deps[i]->index;
        exec->count++;
        if (node->op) {
            const soft_graph_work work = {node->type, node->op, node->context, node->event};

            copy->work.op = copy_model_locked(&work);
            if (!copy->work.op)
                return false;
        }
    }
    return true;
}

static bool needs_worker(const soft_exec_node *node)
{
    return node->work.op && node->work.op->class->type == SOFT_OP_WORK;
}

/* A chain is a row of nodes each of which comes behind the one before, so one of its operations is ready at most. Gives
 * how many chains need a worker, and notes which (works). ends: of each node, the number of the chain that ends with it,
 * from 1. */
static size_t count_chains(const soft_exec *exec, size_t *ends, bool *works)
{
    size_t chains = 0, workers = 0;

    for (size_t i = 0; i < exec->count; i++) {
        const soft_exec_node *node = &exec->nodes[i];
        size_t d = 0;

        while (d < node->dep_count && ends[node->deps[d]] == 0)
            d++;
        if (d < node->dep_count) {
            ends[i] = ends[node->deps[d]];
            ends[node->deps[d]] = 0;
        } else {
            ends[i] = ++chains;
        }
        if (needs_worker(node) && !works[ends[i] - 1]) {
            works[ends[i] - 1] = true;
            workers++;
        }
    }
    return workers;
}

static CUresult reserve_workers_locked(soft_exec *exec)
{
    size_t *ends = calloc(exec->count + 1, sizeof *ends);
    bool *works = calloc(exec->count + 1, sizeof *works);
    CUresult result = ends && works ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    const size_t wanted = result == CUDA_SUCCESS ? count_chains(exec, ends, works) : 0;

    free(ends);
    free(works);
    while (result == CUDA_SUCCESS && exec->workers < wanted) {
        result = soft_worker_reserve_locked();
        exec->workers += result == CUDA_SUCCESS;
    }
    return result;
}

/* The entry of the table may have another context by now. */
CUresult soft_exec_node_check_locked(const soft_exec_node *node)
{
    const soft_context *context = node->work.context;

    if (!context)
        return CUDA_SUCCESS;
    return context->id == node->context_id ? soft_context_usable_locked(context)
                                           : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult start_devices_locked(const soft_exec *exec)
{
    CUresult result = CUDA_SUCCESS;

    for (size_t i = 0; i < exec->count && result == CUDA_SUCCESS; i++) {
        const soft_exec_node *node = &exec->nodes[i];

        result = soft_exec_node_check_locked(node);
        if (result == CUDA_SUCCESS && node->work.type == CU_GRAPH_NODE_TYPE_KERNEL)
            result = soft_sm_start_locked(node->work.context->device);
    }
    return result;
}

static CUresult instantiate_locked(CUgraph handle, CUgraphExec *out)
{
    const soft_graph *graph = soft_graph_find_locked(handle);
    const soft_graph_node *node;
    size_t edges = 0;
    soft_exec *exec;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (!graph || graph->capturing)
        return CUDA_ERROR_INVALID_VALUE;
    if (soft_capture_check_unsafe_locked() != CUDA_SUCCESS)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    exec = calloc(1, sizeof *exec);
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    TAILQ_FOREACH(node, &graph->nodes, entry)
    edges += node->dep_count;
    exec->refs = 1;
    exec->nodes = calloc(graph->count + 1, sizeof *exec->nodes);
    exec->deps = calloc(edges + 1, sizeof *exec->deps);
    exec->after = calloc(graph->count + 2, sizeof(soft_op *));
    if (exec->nodes && exec->deps && exec->after && copy_nodes_locked(exec, graph))
        result = reserve_workers_locked(exec);
    if (result == CUDA_SUCCESS)
        result = start_devices_locked(exec);
    if (result == CUDA_SUCCESS) {
        exec->handle = soft_handle_add_locked(SOFT_HANDLE_GRAPH_EXEC, exec);
        if (!exec->handle)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        *out = exec->handle;
    else
        soft_exec_unref_locked(exec);
    return result;
}

/* upload: is the stream given? An upload has nothing to do here. */
static CUresult instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags, CUstream stream)
{
    soft_stream *found;
    CUresult result = CUDA_SUCCESS;

    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return CUDA_ERROR_NOT_SUPPORTED;
    soft_lock();
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
        result = soft_stream_find_locked(stream, &found);
    if (result == CUDA_SUCCESS)
        result = instantiate_locked(graph, out);
    soft_unlock();
    return result;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    const unsigned long long known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                     CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                                     CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!out || flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    return instantiate(out, graph, flags, NULL);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    if (!out || params->flags > 15)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        result = instantiate(out, graph, params->flags, params->hUploadStream);
    params->hErrNode_out = NULL;
    params->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                                                : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

CUresult soft_exec_lock(CUgraphExec handle, soft_exec **out)
{
    CUresult result;

    *out = soft_handle_lock(SOFT_HANDLE_GRAPH_EXEC, handle, CUDA_ERROR_INVALID_VALUE, &result);
    return result;
}

/* A launch that is under way goes on. */
CUresult cuGraphExecDestroy(CUgraphExec handle)
{
    soft_exec *exec;
    CUresult result = soft_exec_lock(handle, &exec);

    if (result != CUDA_SUCCESS)
        return result;
    result = soft_capture_check_unsafe_locked();
    if (result == CUDA_SUCCESS) {
        soft_handle_remove_locked(exec->handle);
        exec->handle = NULL;
        if (exec->last)
            soft_op_unref_locked(exec->last);
        soft_exec_unref_locked(exec);
    }
    soft_unlock();
    return result;
}

/* ---- changes: of what later launches do */

/* work has a context. */
static bool same_place(const soft_exec_node *node, const soft_graph_work *work)
{
    return node->work.type == work->type && node->work.context == work->context &&
           node->context_id == work->context->id;
}

/* Gives a node of the executable graph something else to do; what cannot be used is given up. */
static CUresult set_work(CUgraphExec handle, CUgraphNode node_handle, const soft_graph_work *work)
{
    const soft_graph_node *node;
    soft_exec_node *to = NULL;
    soft_exec *exec;
    CUresult result = soft_exec_lock(handle, &exec);

    if (result != CUDA_SUCCESS) {
        soft_op_discard(work->op);
        return result;
    }
    node = soft_graph_node_find_locked(node_handle);
    if (node && node->index < exec->count && exec->nodes[node->index].id == node->id)
        to = &exec->nodes[node->index];
    result = to && same_place(to, work) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && work->type == CU_GRAPH_NODE_TYPE_KERNEL)
        result = soft_launch_replace_locked((soft_launch *)work->op, (soft_launch *)to->work.op);
    if (result == CUDA_SUCCESS) {
        soft_op_unref_locked(to->work.op);
        to->work = *work;
        to->work.op->context = work->context;
    } else {
        soft_op_unref_locked(work->op);
    }
    soft_unlock();
    return result;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *params)
{
    soft_graph_work work;
    CUresult result = soft_enter();

    if (result == CUDA_SUCCESS)
        result = soft_graph_kernel_work(params, &work);
    return result == CUDA_SUCCESS ? set_work(exec, node, &work) : result;
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D *params, CUcontext ctx)
{
    soft_graph_work work;
    CUresult result = soft_enter();

    if (result == CUDA_SUCCESS)
        result = soft_graph_copy_work(params, ctx, &work);
    return result == CUDA_SUCCESS ? set_work(exec, node, &work) : result;
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx)
{
    soft_graph_work work;
    CUresult result = soft_enter();

    if (result == CUDA_SUCCESS)
        result = soft_graph_set_work(params, ctx, &work);
    return result == CUDA_SUCCESS ? set_work(exec, node, &work) : result;
}

/* How the node differs from its pair in what an update cannot change. */
static CUgraphExecUpdateResult compare_node(const soft_exec_node *pair, const soft_graph_node *node,
                                            CUgraphNode *from)
{
    const bool kernel = node->type == CU_GRAPH_NODE_TYPE_KERNEL;

    if (pair->dep_count != node->dep_count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < node->dep_count; i++)
        if (pair->deps[i] != node->deps[i]->index) {
            *from = node->deps[i]->handle;
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        }
    if (pair->work.type != node->type)
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (pair->work.context != node->context || pair->context_id != node->context_id)
        return kernel ? CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE
                      : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    if (kernel && ((soft_launch *)pair->work.op)->cooperative != ((soft_launch *)node->op)->cooperative)
        return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* Nodes are paired by their order in both graphs. */
static void compare_graph_locked(const soft_exec *exec, const soft_graph *graph,
                                 CUgraphExecUpdateResultInfo *info)
{
    const soft_graph_node *node;

    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
    if (exec->count != graph->count) {
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        return;
    }
    TAILQ_FOREACH(node, &graph->nodes, entry)
    {
        info->result = compare_node(&exec->nodes[node->index], node, &info->errorFromNode);
        if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
            info->errorNode = node->handle;
            return;
        }
    }
}

/* All or nothing. */
static CUresult take_models_locked(soft_exec *exec, const soft_graph *graph)
{
    const soft_graph_node *node;

    TAILQ_FOREACH(node, &graph->nodes, entry)
    {
        const soft_graph_work work = {node->type, node->op, node->context, node->event};

        if (node->op && !(exec->nodes[node->index].run = copy_model_locked(&work))) {
            soft_exec_drop_runs_locked(exec);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    TAILQ_FOREACH(node, &graph->nodes, entry)
    {
        soft_exec_node *to = &exec->nodes[node->index];

        if (to->work.op)
            soft_op_unref_locked(to->work.op);
        to->work = (soft_graph_work){node->type, to->run, node->context, node->event};
        to->run = NULL;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle,
                              CUgraphExecUpdateResultInfo *info)
{
    const soft_graph *graph;
    soft_exec *exec;
    CUresult result;

    if (!info)
        return CUDA_ERROR_INVALID_VALUE;
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    result = soft_exec_lock(handle, &exec);
    if (result != CUDA_SUCCESS)
        return result;
    graph = soft_graph_find_locked(graph_handle);
    if (!graph || graph->capturing) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        compare_graph_locked(exec, graph, info);
        result = info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? start_devices_locked(exec)
                                                              : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        if (result == CUDA_SUCCESS) /* its nodes are of the same contexts */
            result = take_models_locked(exec, graph);
    }
    if (result != CUDA_SUCCESS && info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS)
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
    soft_unlock();
    return result;
}
