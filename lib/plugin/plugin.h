/* lib/plugin/plugin.h - a heap in the place of a framework's own allocator.
 *
 * libgvmem-heap-plugin has C functions that PyTorch's CUDAPluggableAllocator and CuPy's
 * CFunctionAllocator call. Behind them is one gvm_heap a device, made at the first request.
 * examples/gvmem_plugin.py has the few lines of Python that set them up.
 *
 * Memory that was free for a second is given back (gvm_heap_options.decay_ms, GVMEM_HEAP_DECAY): long enough for the steps
 * of a training to share it, whatever their sizes. GVMEM_HEAP_KEEP sets a bound instead, and GVMEM_HEAP_LIMIT bounds all of it. GVMEM_HEAP_TRACE names a file to which every request is
 * written, to be replayed by `gvmem-bench heap --trace`; bench/heap_trace.h describes the format.
 *
 * Streams: a block belongs to the stream that it was taken on, and serves that stream alone again: work
 * of it that is under way when the block is freed comes first. Other streams that use the block order
 * their work with that stream's, as with the frameworks' own allocators; or the framework says so
 * (gvm_torch_record_stream()), and a free waits for them. PyTorch keeps its streams until the process
 * ends; of one that the program made itself gvm_heap_stream_end(gvm_plugin_heap(device), stream) must be
 * called before it is destroyed, because what was freed on it is still the stream's. The per-thread
 * default stream is refused, with a message: gvm_torch_record_stream() does not note it.
 *
 * Graphs: what is taken while the stream is captured into a graph comes from a heap of that capture alone
 * (lib/plugin/graphs.h), and stays until PyTorch releases the graph's pool; without PyTorch, until the
 * process ends. GVMEM_HEAP_LIMIT does not count these. Streams other than the legacy
 * default one need a driver of CUDA 12.3 or later.
 *
 * Errors: neither framework asks for a reason, or even looks at a NULL. So
 * a failure is one line on stderr, and the call returns NULL.
 *
 * Threads: any thread may call. The heaps live until the process ends, because frameworks free
 * blocks to the last. A child made by fork() cannot use its parent's, and adds nothing to the trace.
 * Ownership: a block is its framework's until it frees it.
 */
#ifndef GVMI_PLUGIN_PLUGIN_H
#define GVMI_PLUGIN_PLUGIN_H

#include <sys/types.h>

#include <gvmem/heap.h>

/* PyTorch: a tensor's memory is used on the stream, and freed when Python drops its last reference,
 * which may be before the stream's work is done: both are in the stream's order. Refused until all
 * of the hooks below are set and gvm_torch_hooks_are_set() was called: without them memory would be
 * given away too early, without any error. */
GVM_API void *gvm_torch_alloc(ssize_t size, int device, gvm_stream stream);
GVM_API void gvm_torch_free(void *ptr, ssize_t size, int device, gvm_stream stream);
GVM_API void gvm_torch_hooks_are_set(void);

/* PyTorch's MempoolId_t, a pair of two numbers. */
typedef struct gvm_torch_pool {
    unsigned long long first, second;
} gvm_torch_pool;

/* For set_record_stream_fn(), set_begin_allocate_to_pool(), set_end_allocate_to_pool_fn() and
 * set_release_pool(). filter is a std::function, which is passed by address, and not used. */
GVM_API void gvm_torch_record_stream(void *ptr, gvm_stream stream);
GVM_API void gvm_torch_pool_begin(int device, gvm_torch_pool pool, const void *filter);
GVM_API void gvm_torch_pool_end(int device, gvm_torch_pool pool);
GVM_API void gvm_torch_pool_release(int device, gvm_torch_pool pool);

/* For programs that pass the stream. */
GVM_API void *gvm_plugin_alloc(size_t size, int device, gvm_stream stream);
GVM_API void gvm_plugin_free(void *ptr, int device);

/* What the plug-in calls in a process with CuPy. */
typedef struct gvm_cupy_calls {
    gvm_stream (*current_stream)(void); /* CuPy's get_current_stream_ptr(): the thread's, on the current device; -1: it fails */
    int (*keep)(gvm_stream stream); /* keeps the thread's current stream from being destroyed; 0: it fails */
    void *(*release_gil)(void);     /* PyEval_SaveThread() */
    void (*take_gil)(void *thread); /* PyEval_RestoreThread() */
} gvm_cupy_calls;

/* For CuPy's CFunctionAllocator, which calls them with Python's GIL held: a block is for the current stream, as with
 * CuPy's own pool. The GIL is released while a block is taken or freed, because that may wait for a
 * stream whose host functions want it. Refused until gvm_cupy_set_calls() was called, once and
 * before: the allocator passes no stream. CuPy does not look at a NULL: the caller must. param is
 * not used. keep() is called when the thread's current stream is not that of its last block: what
 * was freed on a stream is still the stream's. */
GVM_API void gvm_cupy_set_calls(const gvm_cupy_calls *calls);
GVM_API void *gvm_cupy_alloc(void *param, size_t size, int device);
GVM_API void gvm_cupy_free(void *param, void *ptr, int device);

/* The heap of a device, to look at (gvm_heap_get_info()); NULL if there can be none. */
GVM_API gvm_heap *gvm_plugin_heap(int device);

#endif
