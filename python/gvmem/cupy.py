"""CuPy's memory from heaps: gvmem.cupy.use().

A block is for the current stream, and serves the work of that stream again as soon as CuPy has dropped it, as with CuPy's own
pool. What a graph is captured with is given to nothing else, for ever: CuPy names no end of a graph.
"""
from __future__ import annotations

from typing import Any, Optional

import cupy

from . import _pools

__all__ = ["allocate", "use"]

# Kept: what was freed on a stream is still the stream's, so it must not be destroyed. By type, too: an ExternalStream of the same handle keeps nothing.
_streams: dict[tuple[int, type], Any] = {}


def _take(size: int, device: int) -> int:
    stream = cupy.cuda.get_current_stream()
    _streams.setdefault((stream.ptr, type(stream)), stream)
    return _pools.alloc(device, size, stream)


def _give(address: int, device: int) -> None:
    _pools.free(address)


_allocator = cupy.cuda.PythonFunctionAllocator(_take, _give)


def allocate(size: int) -> cupy.cuda.MemoryPointer:
    """An allocator as cupy.cuda.set_allocator() and cupy.cuda.using_allocator() take it. MemoryError: there is not so much."""
    return _allocator.malloc(size)


def use(*, limit: Optional[int] = None, keep: Optional[int] = None, decay: Optional[float] = None) -> None:
    """Has arrays come from heaps of gvmem, from now on. limit, keep and decay are as gvmem.torch.use() has them."""
    _pools.start(limit, keep, decay)
    cupy.cuda.set_allocator(allocate)
