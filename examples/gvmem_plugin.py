"""The few lines that put a gvmem heap in the place of PyTorch's or CuPy's allocator.

    gvmem_plugin.use_in_torch("libgvmem-heap-plugin.so")   before the first tensor on the GPU
    gvmem_plugin.use_in_cupy("libgvmem-heap-plugin.so")

Both take any streams, and graphs: what a graph was captured with is given to no other work while its
pool lives (CuPy: while the process lives).

When there is no memory, PyTorch is given NULL and does not look at it: the reason is on stderr, and the next
kernel fails. torch.cuda.OutOfMemoryError is not raised.
"""
import ctypes
import sys

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


def find_cupy():
    """CuPy. Where it is not installed or finds no GPU the program ends, with the status of a test that is left out."""
    why = "CuPy is not installed"
    try:
        import cupy

        why = "CuPy finds no GPU"
        cupy.cuda.runtime.getDeviceCount()
        return cupy
    except (ImportError, RuntimeError):  # CUDARuntimeError is one
        print(f"skipped: {why}")
        sys.exit(77)


class CupyCalls(ctypes.Structure):
    """gvm_cupy_calls of lib/plugin/plugin.h."""

    KEEP = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    _fields_ = [("current_stream", ctypes.c_void_p), ("keep", KEEP), ("release_gil", ctypes.c_void_p), ("take_gil", ctypes.c_void_p)]


cupy_streams = {}  # kept: what was freed on a stream is still the stream's, so it must not be destroyed


@CupyCalls.KEEP
def keep_cupy_stream(address):
    import cupy

    stream = cupy.cuda.get_current_stream()
    cupy_streams.setdefault(stream.ptr, stream)
    return stream.ptr == address


ctypes.pythonapi.Py_IncRef(ctypes.py_object(keep_cupy_stream))  # arrays may be made until the process ends


def address_of(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def tell_cupy_calls(library):
    """Gives the library what it calls when CuPy wants memory, CuPy's get_current_stream_ptr() above all."""
    import cupy

    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    try:
        current = pointer_of(cupy.cuda.stream.__pyx_capi__["get_current_stream_ptr"], b"intptr_t (void)")
    except (AttributeError, KeyError, ValueError):
        raise RuntimeError(f"CuPy {cupy.__version__} does not export its current stream to C: use its own allocator") from None
    calls = CupyCalls(current, keep_cupy_stream, address_of(ctypes.pythonapi.PyEval_SaveThread), address_of(ctypes.pythonapi.PyEval_RestoreThread))
    library.gvm_cupy_set_calls(ctypes.byref(calls))


class CupyAllocator:
    """Its malloc() takes a size: from the heap of the current device, for CuPy's current stream."""

    def __init__(self, path):
        import cupy

        library = ctypes.CDLL(str(path))
        tell_cupy_calls(library)
        self.take = cupy.cuda.memory.CFunctionAllocator(0, address_of(library.gvm_cupy_alloc), address_of(library.gvm_cupy_free), library).malloc

    def malloc(self, size):
        pointer = self.take(size)
        if pointer.ptr == 0 and size > 0:
            raise MemoryError(f"gvmem: no {size} bytes; the reason is on stderr")
        return pointer


def use_in_cupy(path):
    """Every array of CuPy, from now on. Returns the allocator."""
    import cupy

    allocator = CupyAllocator(path)
    cupy.cuda.set_allocator(allocator.malloc)
    return allocator
