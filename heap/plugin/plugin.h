/* heap/plugin/plugin.h - a heap in the place of a framework's own allocator.
 *
 * libgvmem-heap-plugin has C functions with the signatures that PyTorch's CUDAPluggableAllocator and
 * CuPy's CFunctionAllocator call. Behind them is one gvm_heap a device, made at the first request.
 * examples/torch_heap.py and examples/cupy_heap.py show the few lines of Python.
 *
 * Free memory is kept, as these frameworks do themselves; GVMEM_HEAP_RESERVE bounds it and
 * GVMEM_HEAP_LIMIT bounds all of it. GVMEM_HEAP_TRACE names a file to which every request is
 * written, to be replayed by `gvmem bench heap --trace`; tools/heap_trace.h tells the format.
 *
 * Streams: a block belongs to the stream that it was taken on. There is no hook for PyTorch's
 * Tensor.record_stream(), which so does nothing: before a tensor that other streams have used is let go
 * of, its own stream has to wait for them. PyTorch keeps its streams until the process ends; of one that
 * the program made itself (torch.cuda.ExternalStream) gvm_heap_stream_end(gvm_plugin_heap(device),
 * stream) must be called before it is destroyed, because what was freed on it is still the stream's.
 *
 * Errors: neither framework asks for a reason, and PyTorch does not even look at a NULL. So a
 * failure is told by one line on stderr, and answered by NULL.
 *
 * Threads: any thread may call. The heaps live until the process ends, because frameworks free
 * blocks to the last. A child made by fork() cannot use its parent's, and adds nothing to the trace.
 * Ownership: a block is its framework's until it frees it.
 */
#ifndef GVMI_HEAP_PLUGIN_H
#define GVMI_HEAP_PLUGIN_H

#include <sys/types.h>

#include <gvmem/heap.h>

/* PyTorch: a tensor's memory is used on the stream, and freed when Python lets go of it, which may be
 * before the stream's work is done: both are in the stream's order. */
GVM_API void *gvm_torch_alloc(ssize_t size, int device, gvm_stream stream);
GVM_API void gvm_torch_free(void *ptr, ssize_t size, int device, gvm_stream stream);

/* CuPy tells no stream: the order is that of the legacy default stream, which waits for every stream
 * that was not made non-blocking. param is not used. */
GVM_API void *gvm_cupy_alloc(void *param, size_t size, int device);
GVM_API void gvm_cupy_free(void *param, void *ptr, int device);

/* The heap of a device, to look at (gvm_heap_get_info()); NULL if there can be none. */
GVM_API gvm_heap *gvm_plugin_heap(int device);

#endif
