/* Graphs and their nodes: life, and what can be asked of them. */
#include "softgpu/graph.h"

#include <stdlib.h>
#include <string.h>

static uint64_t last_node_id, last_mark; /* under the lock */

soft_graph *soft_graph_new_locked(void)
{
    soft_graph *graph = calloc(1, sizeof *graph);

    if (!graph)
        return NULL;
    TAILQ_INIT(&graph->nodes);
    graph->handle = soft_handle_add_locked(SOFT_HANDLE_GRAPH, graph);
    if (!graph->handle) {
        free(graph);
        return NULL;
    }
    return graph;
}

void soft_graph_free_locked(soft_graph *graph)
{
    soft_graph_node *node;

    while ((node = TAILQ_FIRST(&graph->nodes))) {
        TAILQ_REMOVE(&graph->nodes, node, entry);
        soft_handle_remove_locked(node->handle);
        if (node->op)
            soft_op_unref_locked(node->op);
        free(node);
    }
    soft_handle_remove_locked(graph->handle);
    free(graph);
}

soft_graph *soft_graph_find_locked(CUgraph handle)
{
    return soft_handle_find_locked(SOFT_HANDLE_GRAPH, handle);
}

soft_graph_node *soft_graph_node_find_locked(CUgraphNode handle)
{
    return soft_handle_find_locked(SOFT_HANDLE_GRAPH_NODE, handle);
}

uint64_t soft_graph_mark_locked(const CUgraphNode *nodes, size_t count)
{
    last_mark++;
    for (size_t i = 0; i < count; i++)
        soft_graph_node_find_locked(nodes[i])->mark = last_mark;
    return last_mark;
}

/* Each is a node of the graph, and there once. */
static CUresult find_deps_locked(soft_graph_node *node, const CUgraphNode *deps, size_t count)
{
    const uint64_t mark = ++last_mark;

    for (size_t i = 0; i < count; i++) {
        soft_graph_node *dep = soft_graph_node_find_locked(deps[i]);

        if (!dep || dep->graph != node->graph || dep->mark == mark)
            return CUDA_ERROR_INVALID_VALUE;
        dep->mark = mark;
        node->deps[i] = dep;
    }
    node->dep_count = count;
    return CUDA_SUCCESS;
}

CUresult soft_graph_add_locked(soft_graph *graph, const soft_graph_work *work,
                               const CUgraphNode *deps, size_t count, soft_graph_node **out)
{
    soft_graph_node *node;
    CUresult result;

    if (count > graph->count || (count > 0 && !deps))
        return CUDA_ERROR_INVALID_VALUE;
    node = calloc(1, sizeof *node + count * sizeof node->deps[0]);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->graph = graph;
    node->type = work->type;
    node->event = work->event;
    node->context = work->context;
    node->context_id = work->context ? work->context->id : 0;
    result = find_deps_locked(node, deps, count);
    if (result == CUDA_SUCCESS) {
        node->handle = soft_handle_add_locked(SOFT_HANDLE_GRAPH_NODE, node);
        if (!node->handle)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        free(node);
        return result;
    }
    for (size_t i = 0; i < count; i++)
        node->deps[i]->followed = true;
    node->op = work->op;
    node->id = ++last_node_id;
    node->index = graph->count++;
    TAILQ_INSERT_TAIL(&graph->nodes, node, entry);
    *out = node;
    return CUDA_SUCCESS;
}

/* ---- the calls */

CUresult cuGraphCreate(CUgraph *out, unsigned int flags)
{
    soft_graph *graph;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!out || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    soft_lock();
    graph = soft_graph_new_locked();
    if (graph)
        *out = graph->handle;
    soft_unlock();
    return graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph handle)
{
    soft_graph *graph;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    graph = soft_graph_find_locked(handle);
    if (!graph || graph->capturing)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        soft_graph_free_locked(graph);
    soft_unlock();
    return result;
}

/* Gives the graph with the lock held; without the lock on failure. */
static CUresult lock_graph(CUgraph handle, soft_graph **out)
{
    CUresult result;

    *out = soft_handle_lock(SOFT_HANDLE_GRAPH, handle, CUDA_ERROR_INVALID_VALUE, &result);
    return result;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
    const soft_graph_node *node;
    soft_graph *graph;
    CUresult result;

    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    result = lock_graph(handle, &graph);
    if (result != CUDA_SUCCESS)
        return result;
    if (nodes) {
        memset(nodes, 0, *count * sizeof *nodes);
        TAILQ_FOREACH(node, &graph->nodes, entry)
        if (node->index < *count)
            nodes[node->index] = node->handle;
    }
    if (!nodes || *count > graph->count)
        *count = graph->count;
    soft_unlock();
    return CUDA_SUCCESS;
}

/* None of the edges has data: a zeroed entry is the usual dependency. */
CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode *from, CUgraphNode *to,
                            CUgraphEdgeData *data, size_t *count)
{
    const soft_graph_node *node;
    soft_graph *graph;
    size_t found = 0, room;
    CUresult result;

    if (!count || !from != !to || (data && !from))
        return CUDA_ERROR_INVALID_VALUE;
    result = lock_graph(handle, &graph);
    if (result != CUDA_SUCCESS)
        return result;
    room = from ? *count : 0;
    TAILQ_FOREACH(node, &graph->nodes, entry)
    for (size_t i = 0; i < node->dep_count; i++, found++)
        if (found < room) {
            from[found] = node->deps[i]->handle;
            to[found] = node->handle;
        }
    if (data)
        memset(data, 0, room * sizeof *data);
    for (size_t i = found; i < room; i++)
        from[i] = to[i] = NULL;
    if (!from || *count > found)
        *count = found;
    soft_unlock();
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
    CUresult result;
    const soft_graph_node *node = soft_handle_lock(SOFT_HANDLE_GRAPH_NODE, handle,
                                                   CUDA_ERROR_INVALID_VALUE, &result);

    if (!node)
        return result;
    if (type)
        *type = node->type;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    soft_unlock();
    return result;
}
