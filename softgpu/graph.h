/* softgpu/graph.h - graphs: operations that are kept, to be run many times.
 *
 * A node has a model: an operation that is never submitted. An executable graph has copies of the models of its graph,
 * and each launch submits copies of those (graph_exec.c). Nodes of events, and empty ones, have no model.
 *
 * All of it is guarded by the engine's lock.
 *
 *   I1  A node comes behind nodes of its own graph, and those were added before it: a graph in the order of
 *       its list is in an order in which it can run.
 */
#ifndef SOFTGPU_GRAPH_H
#define SOFTGPU_GRAPH_H

#include "softgpu/engine.h"

typedef struct soft_graph soft_graph;
typedef struct soft_graph_node soft_graph_node;

struct soft_graph_node {
    void *handle;
    soft_graph *graph;
    uint64_t id;  /* of all nodes of the process */
    size_t index; /* in its graph */
    CUgraphNodeType type;
    soft_op *op;           /* the model, or NULL */
    soft_context *context; /* in which it runs; NULL: any */
    uint64_t context_id;   /* of that use of it */
    CUevent event;         /* of a node that records or waits for one */
    bool followed;         /* another node comes behind it */
    uint64_t mark;         /* of the newest set in which it was looked for */
    void *kernel_params[1];
    TAILQ_ENTRY(soft_graph_node) entry;
    size_t dep_count;
    soft_graph_node *deps[];
};

struct soft_graph {
    void *handle;
    bool capturing; /* a capture still adds to it, and ends it */
    size_t count;
    TAILQ_HEAD(, soft_graph_node) nodes; /* in the order in which they were added */
};

/* What a node does. The function that fills it in owns op until the node is added. */
typedef struct soft_graph_work {
    CUgraphNodeType type;
    soft_op *op;
    soft_context *context;
    CUevent event;
} soft_graph_work;

/* ---- graph.c */
/* NULL: out of memory. */
soft_graph *soft_graph_new_locked(void);
void soft_graph_free_locked(soft_graph *graph);
soft_graph *soft_graph_find_locked(CUgraph handle);
soft_graph_node *soft_graph_node_find_locked(CUgraphNode handle);
/* Marks nodes that exist; gives the mark, which no other node has. */
uint64_t soft_graph_mark_locked(const CUgraphNode *nodes, size_t count);
/* Adds a node behind others of the graph; on success the model is the graph's.
 * CUDA_ERROR_INVALID_VALUE: one of them is no node of it, or named twice */
CUresult soft_graph_add_locked(soft_graph *graph, const soft_graph_work *work,
                               const CUgraphNode *deps, size_t count, soft_graph_node **out);

/* ---- graph_node.c: what nodes do, from what a program says. Without the lock; on success op is the caller's. */
CUresult soft_graph_kernel_work(const CUDA_KERNEL_NODE_PARAMS *params, soft_graph_work *work);
CUresult soft_graph_copy_work(const CUDA_MEMCPY3D *params, CUcontext ctx, soft_graph_work *work);
CUresult soft_graph_set_work(const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx,
                             soft_graph_work *work);

/* ---- executable graphs */
typedef struct soft_exec_node {
    uint64_t id;          /* of the node from which it was made */
    soft_graph_work work; /* op: a copy of that node's model */
    uint64_t context_id;
    size_t dep_count;
    const size_t *deps; /* numbers of nodes */
    soft_op *run;       /* while a launch is being made */
} soft_exec_node;

typedef struct soft_exec {
    void *handle;   /* NULL: destroyed */
    unsigned refs;  /* the handle, and each launch until its last mark is gone */
    size_t workers; /* that it has reserved */
    soft_op *last;  /* mark of the last launch; a reference */
    size_t count, dep_count;
    soft_exec_node *nodes; /* in the order of the graph */
    size_t *deps;
    soft_op **after; /* room for the operations that one waits for */
} soft_exec;

/* ---- graph_exec.c */
/* Success, or why the context for which the node was made takes no work. */
CUresult soft_exec_node_check_locked(const soft_exec_node *node);
/* Gives the executable graph with the lock held; without the lock on failure. */
CUresult soft_exec_lock(CUgraphExec handle, soft_exec **out);
void soft_exec_unref_locked(soft_exec *exec);
/* Gives up the operations of a launch, or the models of an update, that the nodes hold meanwhile. */
void soft_exec_drop_runs_locked(soft_exec *exec);

#endif
