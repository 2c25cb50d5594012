"""CuPy's memory from heaps: gvmem.cupy.use().

A block is for the current stream, and serves the work of that stream again as soon as CuPy has dropped it, as with CuPy's own
pool. What a graph is captured with is given to nothing else, for ever: CuPy names no end of a graph.
"""
from __future__ import annotations

import sys
from typing import Any, Iterable, Optional

import cupy

from . import _gvmem, _pools

__all__ = ["allocate", "use"]

# What was freed on a stream is still the stream's. So streams that have served blocks are kept, by id, and with each block its own: when nobody
# else has one, the heaps give up its part. An ExternalStream owns nothing, and a default stream is not destroyed.
_LEAST = 32
_most = _LEAST
_streams: dict[int, Any] = {}
_blocks: dict[int, Any] = {}


def _counts(streams: Iterable[Any]) -> list[int]:
    """Of references."""
    return [sys.getrefcount(stream) for stream in streams]


def _end_unused() -> None:
    """Drops streams that nobody has, and that have no work any more. Nobody can get one of them meanwhile; who runs this at the same
    time finds them in use."""
    global _most
    streams = list(_streams.values())
    unused = _counts([object()])[0] + 1  # _streams has it, too
    for stream, count in zip(streams, _counts(streams)):
        if count == unused and _gvmem.pools_end_stream(stream.ptr):
            del _streams[id(stream)]
    _most = max(_LEAST, 2 * len(_streams))


def _take(size: int, device: int) -> int:
    stream = cupy.cuda.get_current_stream()
    if id(stream) not in _streams and isinstance(stream, cupy.cuda.Stream) and stream.ptr > 2:
        if len(_streams) >= _most:
            _end_unused()
        _streams[id(stream)] = stream
    address = _pools.alloc(device, size, stream)
    if address:
        _blocks[address] = stream
    return address


def _give(address: int, device: int) -> None:
    stream = _blocks.pop(address, None)
    _pools.free(address)
    del stream  # and not before: the free may name it to the driver


_allocator = cupy.cuda.PythonFunctionAllocator(_take, _give)


def allocate(size: int) -> cupy.cuda.MemoryPointer:
    """An allocator as cupy.cuda.set_allocator() and cupy.cuda.using_allocator() take it. MemoryError: there is not so much."""
    return _allocator.malloc(size)


def use(*, limit: Optional[int] = None, keep: Optional[int] = None, decay: Optional[float] = None) -> None:
    """Has arrays come from heaps of gvmem, from now on. limit, keep and decay are as gvmem.torch.use() has them."""
    _pools.start(limit, keep, decay)
    cupy.cuda.set_allocator(allocate)
