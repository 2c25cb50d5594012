"""The few lines that put a gvmem heap in the place of PyTorch's or CuPy's allocator.

    gvmem_plugin.use_in_torch("libgvmem-heap-plugin.so")   before the first tensor on the GPU
    gvmem_plugin.use_in_cupy("libgvmem-heap-plugin.so")

Both take any streams, and graphs: what a graph was captured with is given to no other work while its
pool lives (CuPy: while the process lives).

When there is no memory, PyTorch is given NULL and does not look at it: the reason is on stderr, and the next
kernel fails. torch.cuda.OutOfMemoryError is not raised.
"""
import ctypes

TORCH_HOOKS = {
    "set_record_stream_fn": "gvm_torch_record_stream",
    "set_begin_allocate_to_pool": "gvm_torch_pool_begin",
    "set_end_allocate_to_pool_fn": "gvm_torch_pool_end",
    "set_release_pool": "gvm_torch_pool_release",
}


def use_in_torch(path):
    """Every tensor of this process on a GPU, from now on. Returns the library."""
    import torch

    library = ctypes.CDLL(str(path))
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(path), "gvm_torch_alloc", "gvm_torch_free")
    hooks = allocator.allocator()
    missing = [name for name in TORCH_HOOKS if not hasattr(hooks, name)]
    if missing:
        raise RuntimeError(f"PyTorch {torch.__version__} has no {', '.join(missing)}: use its own allocator")
    for setter, function in TORCH_HOOKS.items():
        getattr(hooks, setter)(ctypes.cast(getattr(library, function), ctypes.c_void_p).value)
    library.gvm_torch_hooks_are_set()
    torch.cuda.memory.change_current_allocator(allocator)
    return library


def cupy_allocator(path):
    """An allocator whose malloc() takes a size: from the heap of the current device, for CuPy's current stream."""
    import cupy

    library = ctypes.CDLL(str(path))
    alloc, free = library.gvm_plugin_alloc, library.gvm_plugin_free
    alloc.restype, alloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
    free.restype, free.argtypes = None, (ctypes.c_void_p, ctypes.c_int)

    streams = {}  # kept: what was freed on a stream is still the stream's, so it must not be destroyed

    def malloc(size, device):
        if size == 0:
            return 0
        stream = cupy.cuda.get_current_stream()
        streams.setdefault(stream.ptr, stream)
        address = alloc(size, device, stream.ptr)
        if not address:
            raise MemoryError(f"gvmem: no {size} bytes on device {device}; the reason is on stderr")
        return address

    def release(address, device):
        if address:
            free(address, device)

    return cupy.cuda.memory.PythonFunctionAllocator(malloc, release)


def use_in_cupy(path):
    """Every array of CuPy, from now on. Returns the allocator."""
    import cupy

    allocator = cupy_allocator(path)
    cupy.cuda.set_allocator(allocator.malloc)
    return allocator
