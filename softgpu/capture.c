/* Captures: what is submitted to a captured stream becomes nodes of a graph.
 *
 * A captured stream has the set of nodes that its next one comes behind. An event that is recorded there takes a copy of
 * the set, and a stream that waits for the event has it added to its own; one that was not captured is from then on.
 * When the capture ends, each node must be behind or in the set of the stream in which it began.
 *
 * What a graph could not repeat makes a capture invalid: nothing is added any more, and cuStreamEndCapture gives no graph.
 * Its events are those of a capture that has ended then: they can only be recorded again.
 * A captured stream that is destroyed makes its capture invalid; if that began in it, the capture is gone. */
#include "softgpu/graph.h"

#include <stdlib.h>
#include <string.h>

struct soft_capture {
    uint64_t id;
    CUstreamCaptureMode mode;
    uint64_t thread; /* the number of the thread that began it */
    bool invalid;
    soft_graph *graph;
    soft_stream *origin; /* in which it began */
    LIST_HEAD(, soft_stream) streams;
    LIST_ENTRY(soft_capture) entry;
};

static LIST_HEAD(, soft_capture) captures = LIST_HEAD_INITIALIZER(captures);
static uint64_t last_id, last_thread; /* under the lock */

static _Thread_local struct {
    CUstreamCaptureMode mode;
    uint64_t number; /* 0: has begun no capture */
} own = {.mode = CU_STREAM_CAPTURE_MODE_GLOBAL};

/* NULL: the capture of the event has ended, or is invalid. */
static soft_capture *find_capture_locked(const soft_event *event)
{
    soft_capture *capture;

    LIST_FOREACH(capture, &captures, entry)
    if (capture->id == event->capture && !capture->invalid)
        return capture;
    return NULL;
}

/* ---- sets of nodes: behind the handles there is as much edge data, which is zero */

static CUgraphNode *new_deps(size_t count)
{
    return calloc(count + 1, sizeof(CUgraphNode) + sizeof(CUgraphEdgeData));
}

static CUgraphNode *copy_deps(const CUgraphNode *deps, size_t count)
{
    CUgraphNode *copy = new_deps(count);

    if (copy && count > 0)
        memcpy(copy, deps, count * sizeof copy[0]);
    return copy;
}

static void set_deps(soft_stream *stream, CUgraphNode *deps, size_t count)
{
    free(stream->deps);
    stream->deps = deps;
    stream->dep_count = count;
}

/* ---- streams come and go */

static void join_locked(soft_capture *capture, soft_stream *stream, CUgraphNode *deps, size_t count)
{
    stream->capture = capture;
    LIST_INSERT_HEAD(&capture->streams, stream, captured);
    set_deps(stream, deps, count);
}

static void part_locked(soft_stream *stream)
{
    stream->capture = NULL;
    LIST_REMOVE(stream, captured);
    set_deps(stream, NULL, 0);
}

/* Its graph is the caller's. */
static soft_graph *end_capture_locked(soft_capture *capture)
{
    soft_graph *graph = capture->graph;
    soft_stream *stream;

    while ((stream = LIST_FIRST(&capture->streams)))
        part_locked(stream);
    LIST_REMOVE(capture, entry);
    free(capture);
    graph->capturing = false;
    return graph;
}

void soft_capture_leave_locked(soft_stream *stream)
{
    soft_capture *capture = stream->capture;

    capture->invalid = true;
    part_locked(stream);
    if (capture->origin == stream)
        soft_graph_free_locked(end_capture_locked(capture));
}

/* ---- what captures forbid */

CUresult soft_capture_check_unsafe_locked(void)
{
    soft_capture *capture;
    CUresult result = CUDA_SUCCESS;

    if (own.mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    LIST_FOREACH(capture, &captures, entry)
    {
        const bool forbids = capture->thread == own.number
                                 ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                 : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                       own.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;

        if (!forbids)
            continue;
        capture->invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

CUresult soft_enter_unsafe(int *device)
{
    uint64_t context_id;

    return soft_enter_owner_unsafe(device, &context_id);
}

CUresult soft_enter_owner_unsafe(int *device, uint64_t *context_id)
{
    CUresult result = soft_enter_owner(device, context_id);

    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    result = soft_capture_check_unsafe_locked();
    soft_unlock();
    return result;
}

CUresult soft_capture_refuse_locked(soft_capture *capture, CUresult error)
{
    if (capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    capture->invalid = true;
    return error;
}

CUresult soft_capture_refuse_event_locked(const soft_event *event, bool spoil)
{
    soft_capture *capture = find_capture_locked(event);

    if (!capture)
        return CUDA_ERROR_INVALID_VALUE;
    capture->invalid |= spoil;
    return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult soft_capture_check_legacy_locked(const soft_context *context, bool spoil)
{
    const soft_stream *stream;
    CUresult result = CUDA_SUCCESS;

    LIST_FOREACH(stream, &context->streams, entry)
    if (stream->capture && stream->blocking) {
        stream->capture->invalid |= spoil;
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return result;
}

CUresult soft_enter_wait(int *device)
{
    const soft_stream *stream;
    soft_context *context;
    CUresult result = soft_enter_context(device);

    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    result = soft_context_current_locked(&context);
    if (result == CUDA_SUCCESS) {
        LIST_FOREACH(stream, &context->streams, entry)
        if (stream->capture) {
            stream->capture->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    soft_unlock();
    return result;
}

/* ---- what is captured */

static CUresult add_locked(soft_stream *stream, const soft_graph_work *work)
{
    CUgraphNode *deps;
    soft_graph_node *node;
    CUresult result;

    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    deps = new_deps(1);
    if (!deps)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = soft_graph_add_locked(stream->capture->graph, work, stream->deps, stream->dep_count,
                                   &node);
    if (result != CUDA_SUCCESS) {
        free(deps);
        return result;
    }
    deps[0] = node->handle;
    set_deps(stream, deps, 1);
    return CUDA_SUCCESS;
}

CUresult soft_capture_add_locked(soft_stream *stream, soft_op *op)
{
    const soft_graph_work work = {op->class->node, op, stream->context, NULL};

    if (!op->class->repeatable || op->once)
        return soft_capture_refuse_locked(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    op->context = stream->context;
    return add_locked(stream, &work);
}

CUresult soft_capture_external_locked(soft_stream *stream, const soft_event *event, CUgraphNodeType type)
{
    const soft_graph_work work = {type, NULL, NULL, event->handle};

    return stream->capture ? add_locked(stream, &work) : CUDA_ERROR_ILLEGAL_STATE;
}

CUresult soft_capture_record_locked(const soft_stream *stream, uint64_t *id, CUgraphNode **deps)
{
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    *id = stream->capture->id;
    *deps = copy_deps(stream->deps, stream->dep_count);
    return *deps ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Its set and the event's, each node once. */
static CUresult add_deps_locked(soft_stream *stream, const soft_event *event)
{
    size_t count = stream->dep_count;
    CUgraphNode *deps = new_deps(count + event->dep_count);
    uint64_t mark;

    if (!deps)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (count > 0)
        memcpy(deps, stream->deps, count * sizeof deps[0]);
    mark = soft_graph_mark_locked(stream->deps, count);
    for (size_t i = 0; i < event->dep_count; i++)
        if (soft_graph_node_find_locked(event->deps[i])->mark != mark)
            deps[count++] = event->deps[i];
    set_deps(stream, deps, count);
    return CUDA_SUCCESS;
}

static CUresult join_by_event_locked(soft_capture *capture, soft_stream *stream, const soft_event *event)
{
    CUgraphNode *deps;
    CUresult result = soft_context_usable_locked(stream->context);

    if (result != CUDA_SUCCESS)
        return result;
    if (stream == stream->context->legacy)
        return soft_capture_refuse_locked(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    deps = copy_deps(event->deps, event->dep_count);
    if (!deps)
        return CUDA_ERROR_OUT_OF_MEMORY;
    join_locked(capture, stream, deps, event->dep_count);
    return CUDA_SUCCESS;
}

CUresult soft_capture_wait_locked(soft_stream *stream, const soft_event *event)
{
    soft_capture *capture = find_capture_locked(event);

    if (stream->capture && stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!event->capture && !event->recorded)
        return CUDA_SUCCESS;
    if (!event->capture)
        return soft_capture_refuse_locked(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    if (!capture)
        return stream->capture ? soft_capture_refuse_locked(stream->capture, CUDA_ERROR_INVALID_VALUE)
                               : CUDA_ERROR_INVALID_VALUE;
    if (stream->capture && stream->capture != capture) {
        stream->capture->invalid = capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    return stream->capture ? add_deps_locked(stream, event)
                           : join_by_event_locked(capture, stream, event);
}

/* ---- life */

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    const CUstreamCaptureMode before = own.mode;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    own.mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

CUresult soft_capture_begin_locked(soft_stream *stream, CUstreamCaptureMode mode)
{
    CUgraphNode *deps;
    soft_capture *capture;

    if (stream == stream->context->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    capture = calloc(1, sizeof *capture);
    deps = new_deps(0);
    if (capture && deps)
        capture->graph = soft_graph_new_locked();
    if (!capture || !capture->graph) {
        free(capture);
        free(deps);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (own.number == 0)
        own.number = ++last_thread;
    capture->graph->capturing = true;
    capture->id = ++last_id;
    capture->mode = mode;
    capture->thread = own.number;
    capture->origin = stream;
    LIST_INSERT_HEAD(&captures, capture, entry);
    join_locked(capture, stream, deps, 0);
    return CUDA_SUCCESS;
}

/* Has each node that nothing follows come back to the stream in which the capture began? */
static bool is_joined_locked(const soft_capture *capture)
{
    const uint64_t mark = soft_graph_mark_locked(capture->origin->deps, capture->origin->dep_count);
    const soft_graph_node *node;

    TAILQ_FOREACH(node, &capture->graph->nodes, entry)
    if (!node->followed && node->mark != mark)
        return false;
    return true;
}

CUresult soft_capture_end_locked(soft_stream *stream, CUgraph *out)
{
    soft_capture *capture = stream->capture;
    CUresult result;
    soft_graph *graph;

    if (out)
        *out = NULL; /* whatever is wrong */
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (capture->origin != stream)
        return soft_capture_refuse_locked(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    result = soft_context_usable_locked(stream->context);
    if (result == CUDA_SUCCESS && capture->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (result == CUDA_SUCCESS && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        capture->thread != own.number)
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (result == CUDA_SUCCESS && !is_joined_locked(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    graph = end_capture_locked(capture);
    if (result == CUDA_SUCCESS)
        *out = graph->handle;
    else
        soft_graph_free_locked(graph);
    return result;
}

CUstreamCaptureStatus soft_capture_status_locked(const soft_capture *capture, cuuint64_t *id,
                                                 CUgraph *graph)
{
    if (id)
        *id = capture->id;
    if (graph)
        *graph = capture->graph->handle;
    return capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}
