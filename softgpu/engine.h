/* softgpu/engine.h - the executing half of the software GPU: what is to be done, in which order,
 * and which thread does it.
 *
 * Everything submitted is an operation (soft_op). Operations form a graph: each waits for a number
 * of earlier ones and is ready when the last of them has finished. A stream is no queue but the
 * name of its newest unfinished operation, its tail, which the next one waits for; the legacy
 * default stream's rules and cuStreamWaitEvent are more edges of the same kind, and an event is the
 * operation that recorded it. A ready operation goes, by its class,
 *   MARK    nowhere: it finishes at once (event records, waits for events)
 *   WORK    to a worker thread (copies, memsets, stream memory operations, host functions)
 *   LAUNCH  to the SM threads of the device, block by block
 *
 * One lock guards all of it, the first in the order of README.md. Functions ending in _locked are called with
 * it held. Nothing of the user's runs under it, and nothing under it blocks but the waits below, which release it.
 *
 * Circle: op.c, sm.c and worker.c call each other, because a ready operation is handed to the threads of one of the
 * other two, and these report its end, which readies others.
 *
 *   I1  an operation is on its context's list of unfinished ones from its submission until it is
 *       DONE.
 *   I2  stream->tail is NULL or an unfinished operation of that stream, and every other unfinished
 *       one of it was submitted earlier.
 *   I3  there are at least as many worker threads as streams that got WORK, so a WORK that is ready
 *       never waits behind one that blocks.
 *       (The parts of a graph that is launched have workers of their own: graph_exec.c.)
 *   I4  in a broken context nothing WAITING exists but the ends of launches of graphs, whose parts may run in other
 *       contexts: breaking it readies everything else, and of what is ready there only classes marked "always" are
 *       run; the rest just ends.
 */
#ifndef SOFTGPU_ENGINE_H
#define SOFTGPU_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "softgpu/soft.h"

#define SOFT_SHARED_BYTES_DEFAULT (48u << 10) /* dynamic shared memory of a block, without asking */
#define SOFT_SHARED_BYTES_MAX (227u << 10)    /* and after cuFuncSetAttribute */
#define SOFT_PARAMS_BYTES_MAX 4096u

typedef struct soft_op soft_op;
typedef struct soft_launch soft_launch;
typedef struct soft_stream soft_stream;
typedef struct soft_event soft_event;
typedef struct soft_module soft_module;
typedef struct soft_function soft_function;
typedef struct soft_context soft_context;
typedef struct soft_capture soft_capture;

/* ---- lock.c: the lock */
void soft_lock(void);
/* Also frees what the operations that ended meanwhile held, after releasing the lock. */
void soft_unlock(void);
/* Sleeps on a condition; may return early. */
void soft_sleep_locked(pthread_cond_t *cond);

/* ---- handle.c: what the user holds instead of pointers
 *
 * Such a handle (the word alone means VMM's in space.h) names an entry, its use number and
 * the kind of the object, so that any value at all can be looked up safely and a handle once
 * destroyed never names anything again. None equals NULL, CU_STREAM_LEGACY or
 * CU_STREAM_PER_THREAD. */
typedef enum soft_handle_kind {
    SOFT_HANDLE_CONTEXT = 1,
    SOFT_HANDLE_STREAM,
    SOFT_HANDLE_EVENT,
    SOFT_HANDLE_MODULE,
    SOFT_HANDLE_FUNCTION,
    SOFT_HANDLE_GRAPH,
    SOFT_HANDLE_GRAPH_NODE,
    SOFT_HANDLE_GRAPH_EXEC,
} soft_handle_kind;

void *soft_handle_add_locked(soft_handle_kind kind, void *object); /* NULL: out of memory */
void *soft_handle_find_locked(soft_handle_kind kind, const void *handle);
void soft_handle_remove_locked(const void *handle);
/* soft_enter(), and the object of a call's handle, with the lock held. Without the lock, and with NULL, on failure; *result
 * is missing if there is no such object. */
void *soft_handle_lock(soft_handle_kind kind, const void *handle, CUresult missing, CUresult *result);
/* Was it once a handle of this kind, and is no longer? */
bool soft_handle_stale_locked(soft_handle_kind kind, const void *handle);

/* ---- fault.c: code that may fault */
void soft_fault_install(void);
/* Runs fn(arg). A memory fault, a bad instruction or a bad division in it ends fn at that point and
 * becomes the result. fn holds no lock and owns nothing. If stop is given, setting it and then
 * sending the thread SOFT_FAULT_STOP ends fn too (result CUDA_ERROR_LAUNCH_FAILED). Nests. */
CUresult soft_fault_guard(void (*fn)(void *arg), void *arg, atomic_bool *stop);
#define SOFT_FAULT_STOP SIGSEGV
/* The same on a stack with guard_bytes without access below it: a fault there is CUDA_ERROR_HARDWARE_STACK_ERROR. */
CUresult soft_fault_guard_stack(void (*fn)(void *arg), void *arg, atomic_bool *stop,
                                const unsigned char *stack, size_t guard_bytes);
/* Between both, fn is the driver's code again: a fault is a defect, a stop waits. Arming says false if it has been
 * stopped; the caller then ends fn. */
typedef struct soft_recovery soft_recovery;
soft_recovery *soft_fault_disarm(void);
bool soft_fault_arm(soft_recovery *point);
/* Starts a detached thread of the driver: it takes no signals but faults, and has a stack to handle
 * those on. */
CUresult soft_thread_start(void (*main)(void *arg), void *arg, const char *name);

/* ---- operations */
typedef enum soft_op_type { SOFT_OP_MARK, SOFT_OP_WORK, SOFT_OP_LAUNCH } soft_op_type;

typedef struct soft_op_class {
    soft_op_type type;
    bool always;                  /* run even in a broken context */
    bool last;                    /* ends behind what it waits for, even in a broken context */
    CUresult (*run)(soft_op *op); /* WORK: on a worker, without the lock; a failure breaks the context */
    void (*destroy)(soft_op *op); /* gives back what it holds besides its memory, without the lock; NULL: nothing */
    /* Can be a node of a graph, of this type: each launch of the graph runs a copy. */
    bool repeatable;
    CUgraphNodeType node;
    void (*copied)(soft_op *op); /* takes references for a copy, with the lock; NULL: it needs none */
} soft_op_class;

/* "to" waits for the operation whose list of followers this is on. Kept by "to". */
typedef struct soft_edge {
    soft_op *to;
    struct soft_edge *next;
} soft_edge;

typedef struct soft_waiter {
    pthread_cond_t cond;
    LIST_ENTRY(soft_waiter) entry;
} soft_waiter;

#define SOFT_OP_EDGES 3 /* as many as any operation needs outside the legacy stream */

struct soft_op {
    const soft_op_class *class;
    soft_context *context;
    soft_stream *stream;
    enum { SOFT_OP_WAITING, SOFT_OP_READY, SOFT_OP_DONE } state;
    size_t size_bytes;    /* of the struct that starts with it */
    bool by_caller;       /* if it waits for nothing, the thread that submits it runs it */
    bool once;            /* has what this run needs alone: no node of a graph */
    CUresult result;      /* once DONE: the context's error then */
    unsigned refs;        /* the engine until DONE, each edge to it, events, waiters */
    size_t waiting_for;   /* operations that have not finished */
    uint64_t serial;      /* counts up in a context */
    uint64_t finished_ns; /* CLOCK_MONOTONIC */
    soft_edge *followers;
    soft_edge *edges; /* inline_edges, or allocated */
    soft_edge inline_edges[SOFT_OP_EDGES];
    size_t edge_room;
    LIST_HEAD(, soft_waiter) waiters;
    TAILQ_ENTRY(soft_op) unfinished;
    STAILQ_ENTRY(soft_op) link; /* ready, then the workers' queue, then garbage */
};

/* lock.c. size_bytes: of the struct that starts with the soft_op; zeroed. NULL: out of memory. */
void *soft_op_new(size_t size_bytes, const soft_op_class *class);
/* One that does the same; for a class that is repeatable. */
soft_op *soft_op_copy_locked(const soft_op *op);
/* Room for the operation to wait for so many; false: out of memory. */
bool soft_op_reserve_edges(soft_op *op, size_t count);
/* Frees an operation that was not submitted. */
void soft_op_discard(soft_op *op);
void soft_op_unref_locked(soft_op *op);

/* ---- op.c */
/* Puts the operation behind what the stream holds, and behind "after" too if that is not NULL; where the stream is
 * captured, into the graph. On success it belongs to the engine (the caller keeps no pointer unless it took a reference
 * before); on failure it is still the caller's. */
CUresult soft_op_submit_locked(soft_op *op, soft_stream *stream, soft_op *after);
/* A part of a graph that is launched in the stream: behind these operations alone. Cannot fail: its edges are reserved,
 * and so are the workers. Its context is set already. */
void soft_op_submit_part_locked(soft_op *op, soft_stream *stream, soft_op *const *after, size_t count);
/* Runs a submitted operation that is by_caller and ready. */
void soft_op_run_locked(soft_op *op);
/* Called by who ran it. */
void soft_op_finish_locked(soft_op *op, CUresult result);
/* Waits for the end; gives the operation's result. */
CUresult soft_op_wait_locked(soft_op *op);
/* Gives the context its sticky error, unless it has one: ends what runs there, and what has not begun. */
void soft_context_stop_locked(soft_context *context, CUresult error);
/* The same for all contexts of its device, which the process has lost for good. */
void soft_context_break_locked(soft_context *context, CUresult error);
/* Gives back a reference to a stream. */
void soft_stream_unref_locked(soft_stream *stream);

/* ---- worker.c */
CUresult soft_worker_reserve_locked(void);
void soft_worker_unreserve_locked(void);
void soft_worker_push_locked(soft_op *op);

/* ---- sm.c */
struct soft_launch {
    soft_op op;
    soft_module *module; /* a reference */
    const struct gvm_soft_kernel *kernel;
    uint32_t grid[3], block[3];
    uint32_t threads; /* of a block */
    uint32_t shared_bytes;
    bool cooperative;
    uint64_t blocks, taken, finished; /* of the grid; handed to SM threads; back from them */
    uint64_t group;                   /* blocks an SM thread takes at once */
    TAILQ_ENTRY(soft_launch) entry;   /* on the device's list while taken < blocks */
    unsigned char params[];
};

/* ---- launch.c: launches as nodes of graphs */
/* Makes the launch that params describe, of a usable context. */
CUresult soft_launch_new(const CUDA_KERNEL_NODE_PARAMS *params, soft_launch **out);
/* The launch is to stand in the place of the one before: whether its blocks run at once is not among the parameters.
 * CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE */
CUresult soft_launch_replace_locked(soft_launch *launch, const soft_launch *before);
/* What it launches; kernelParams and the fields behind it are left alone. */
void soft_launch_describe_locked(const soft_launch *launch, CUDA_KERNEL_NODE_PARAMS *params);

/* ---- copy.c: the same for copies and memsets, by a device */
CUresult soft_copy_new(int device, const CUDA_MEMCPY3D *params, soft_op **out);
CUresult soft_set_new(int device, const CUDA_MEMSET_NODE_PARAMS *params, soft_op **out);

/* Makes sure that the device's SM threads run. */
CUresult soft_sm_start_locked(int device);
void soft_sm_push_locked(soft_launch *launch);
/* The context is stopped: forgets its blocks not yet begun and ends those that run. */
void soft_sm_interrupt_locked(const soft_context *context);

/* ---- context.c: a table of contexts; entry i below SOFT_DEVICES_MAX is the primary one of device i */
struct soft_context {
    int device;
    unsigned index; /* in the table */
    enum { SOFT_CONTEXT_IDLE, SOFT_CONTEXT_ACTIVE, SOFT_CONTEXT_CLOSING } state;
    _Atomic(void *) handle; /* NULL while not retained or created */
    unsigned retained;      /* of a primary one */
    unsigned flags;         /* CU_CTX_... */
    uint64_t id;            /* of this use of it: another one after a reset */
    uint64_t peers;         /* bit i: may use what the context at i allocates */
    CUresult lost;          /* of a primary one: the error of its device, which nothing clears */
    _Atomic(CUresult) error;
    uint64_t serial; /* of the newest operation */
    soft_stream *legacy;
    TAILQ_HEAD(soft_op_queue, soft_op) unfinished; /* in the order of submission */
    size_t stream_count;
    LIST_HEAD(, soft_stream)
    streams; /* the legacy one too, and destroyed ones with unfinished work */
    LIST_HEAD(, soft_event) events;
    LIST_HEAD(, soft_module) modules;
};

soft_context *soft_context_of(int device);     /* the primary one */
soft_context *soft_context_at(unsigned index); /* of any device, in use or not */
/* CUDA_ERROR_CONTEXT_IS_DESTROYED or CUDA_ERROR_INVALID_CONTEXT */
CUresult soft_context_find_locked(CUcontext handle, soft_context **out);
/* Makes a handle for the context, which is ACTIVE from here on; NULL if there is no memory. */
void *soft_context_open_locked(soft_context *context);
/* Ends the handle of a context that is not ACTIVE. */
void soft_context_forget_locked(soft_context *context);
/* Makes the context the calling thread's current one. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult soft_current_push(CUcontext handle);
/* Takes it off again if it is the current one. */
void soft_current_pop(CUcontext handle);
CUresult soft_context_current_locked(soft_context **out); /* whether broken or not */
/* Success, or why the context takes no work. */
CUresult soft_context_usable_locked(const soft_context *context);

/* ---- created.c */
/* Do copies and sets without a stream wait for their end in the current context, whatever they touch? */
bool soft_current_syncs(void);

/* ---- primary.c */
/* Waits for the context's work and takes down what it owns; it is CLOSING meanwhile, and IDLE afterwards. */
void soft_context_close_locked(soft_context *context);

/* ---- stream.c */
struct soft_stream {
    void *handle; /* NULL: destroyed, or the legacy stream */
    soft_context *context;
    bool blocking; /* takes part in the legacy stream's order */
    bool has_worker;
    unsigned refs; /* the handle, and each unfinished operation */
    soft_op *tail;
    LIST_ENTRY(soft_stream) entry;
    soft_capture *capture; /* that it is part of; NULL: what is submitted runs */
    CUgraphNode *deps;     /* then: what its next node comes behind */
    size_t dep_count;
    LIST_ENTRY(soft_stream) captured;
};

/* Ends the handle; queued work still runs. */
void soft_stream_close_locked(soft_stream *stream);
/* Any handle that calls take: NULL and the special ones as well. */
CUresult soft_stream_find_locked(CUstream handle, soft_stream **out);
/* soft_op_submit_locked() with a handle, and waiting for the end if so asked; discards the operation on failure.
 * Runs the operation itself where it is by_caller, as it is if it is waited for. */
CUresult soft_op_submit(soft_op *op, CUstream stream, bool wait);
/* The device whose context the stream belongs to; with the errors of
 * soft_context_usable_locked(). */
CUresult soft_stream_device(CUstream handle, int *device);
bool soft_stream_is_captured(CUstream handle);
/* An operation that calls the function; NULL: out of memory. */
soft_op *soft_host_call_new(CUhostFn fn, void *data);

/* ---- event.c */
struct soft_event {
    void *handle;
    soft_context *context;
    bool timing;
    soft_op *recorded; /* a reference; NULL: never recorded, or in a capture */
    uint64_t capture;  /* the number of the capture in which it was recorded last, 0: in none */
    CUgraphNode *deps; /* then: the nodes that the stream was behind */
    size_t dep_count;
    LIST_ENTRY(soft_event) entry;
};

void soft_event_close_locked(soft_event *event);
/* The event is what op records from here on; op NULL: nothing. Forgets what was recorded before. */
void soft_event_set_locked(soft_event *event, soft_op *op);

/* ---- capture.c: streams that are captured into graphs. Called by op.c, event.c and stream.c, and calls none of them. */
/* For calls that do what a graph would not repeat (cuMemAlloc): CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if the mode of a
 * capture or of the thread forbids them now, which ends the captures that do. */
CUresult soft_capture_check_unsafe_locked(void);
/* What cannot be done in a captured stream: makes the capture invalid. Gives the error, or that the capture was invalid
 * before. */
CUresult soft_capture_refuse_locked(soft_capture *capture, CUresult error);
/* For what needs the own state of an event that was recorded in a capture: CUDA_ERROR_CAPTURED_EVENT, and with spoil the
 * capture is invalid; CUDA_ERROR_INVALID_VALUE if that is over. */
CUresult soft_capture_refuse_event_locked(const soft_event *event, bool spoil);
/* For the legacy stream: CUDA_ERROR_STREAM_CAPTURE_IMPLICIT while a stream that it waits for is captured; spoil: which
 * makes that capture invalid. */
CUresult soft_capture_check_legacy_locked(const soft_context *context, bool spoil);
/* Takes the operation into the graph, as soft_op_submit_locked() does. */
CUresult soft_capture_add_locked(soft_stream *stream, soft_op *op);
/* What an event remembers of a captured stream: the capture's number, and a copy of the stream's set of nodes. */
CUresult soft_capture_record_locked(const soft_stream *stream, uint64_t *id, CUgraphNode **deps);
/* The stream waits for an event that was recorded in a capture, or is captured itself. */
CUresult soft_capture_wait_locked(soft_stream *stream, const soft_event *event);
/* A node of the graph that records the event, or waits for it, whenever the graph is launched. */
CUresult soft_capture_external_locked(soft_stream *stream, const soft_event *event,
                                      CUgraphNodeType type);
/* The stream is about to be closed. */
void soft_capture_leave_locked(soft_stream *stream);
CUresult soft_capture_begin_locked(soft_stream *stream, CUstreamCaptureMode mode);
/* Gives the graph, or NULL where the capture ends without one, as it does by another thread. In another stream is no end
 * of it, and makes it invalid. */
CUresult soft_capture_end_locked(soft_stream *stream, CUgraph *graph);
/* id and graph may be NULL. */
CUstreamCaptureStatus soft_capture_status_locked(const soft_capture *capture, cuuint64_t *id,
                                                 CUgraph *graph);

/* ---- module.c */
struct soft_function {
    void *handle;
    soft_module *module;
    const struct gvm_soft_kernel *kernel;
    uint32_t shared_bytes_max;
    LIST_ENTRY(soft_function) entry;
};

struct soft_module {
    void *handle;
    soft_context *context;
    unsigned refs; /* the handle, and each unfinished launch */
    int fd; /* the image's file; open as long as the image, because the loader knows it by this number */
    void *library;
    size_t tls_module; /* the loader's number for its thread-local variables, 0: it has none */
    LIST_HEAD(, soft_function) functions;
    LIST_HEAD(, soft_module_global) globals;
    LIST_ENTRY(soft_module) entry;
};

/* Makes the calling thread's copy of the image's thread-local variables, which the loader would
 * make, with its locks held, at the first use: in the middle of a kernel that may be stopped at any
 * instruction. */
void soft_module_touch(const soft_module *module);
/* Ends the handles of the module and of its functions. The reference that they were is the caller's
 * now. */
void soft_module_close_locked(soft_module *module);
/* Gives back a reference, without the lock: unloads the image with the last one. */
void soft_module_unref(soft_module *module);

#endif
