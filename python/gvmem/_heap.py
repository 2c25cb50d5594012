"""Heaps: many blocks out of few calls of the driver."""
from __future__ import annotations

import os
from typing import Any, Optional, Union

from . import _gvmem
from ._array import kept_stream, stream_number
from ._buffer import ACCESS, Bytes, Memory, look_up
from ._keeper import Info
from ._wait import run

_KINDS = {"device": _gvmem.HEAP_DEVICE, "host": _gvmem.HEAP_HOST, "managed": _gvmem.HEAP_MANAGED}
_BYTES_NONE = 2**64 - 2
_BYTES_UNLIMITED = 2**64 - 1


def option(size: Optional[int]) -> int:
    """An amount as options have it, where 0 is the default."""
    return 0 if size is None else size or _BYTES_NONE


class Block(Bytes):
    """Memory of a heap: heap.alloc(size). Freed by close(), by `with`, or with its last reference, once no array of it is left.

    len(block) is its size; block[a:b] is an array of bytes. Arrays of a block with a stream are ordered behind the work of that
    stream, or of the one that array() is given.
    """

    __slots__ = ()

    def __init__(self, handle: _gvmem.Block):
        self._handle = handle

    def __enter__(self) -> Block:
        return self

    def __repr__(self) -> str:
        return f"<gvmem.Block of {self.size} bytes at {self.address:#x} on GPU {self.device}{', closed' if self.closed else ''}>"

    def resize(self, size: int) -> None:
        """Makes it larger or smaller where it is. errors.Address: there is no room behind it. BufferError: an array has what
        would be cut off."""
        self._handle.resize(size)

    def close(self, stream: Any = None) -> None:
        """Frees it; twice is nothing. With a stream, behind the work of that stream: all use of the block must be on it, or
        ordered before. Without one it waits for all work of this process on the GPU, unless alloc() had a stream, and nothing has
        consumed an array of the block: then it is freed behind the work of that. errors.Invalid: the stream is being captured into
        a graph, and not that of alloc(); the block is not closed. If its last array goes in a capture that has begun since, the
        memory stays until the heap's end."""
        self._handle.close(kept_stream(stream))


class Heap(Memory):
    """malloc for the memory of a GPU: gvmem.Heap().

        with gvmem.Heap(limit=1 << 30) as heap, heap.alloc(1 << 20) as block:
            x = cupy.asarray(block.array("f4"))
    """

    __slots__ = ()

    def __init__(self, *, device: int = 0, kind: str = "device", limit: Optional[int] = None, keep: Optional[int] = None,
                 shelf: Optional[int] = None, decay: float = 0, retain: bool = False, unshared: bool = False):
        """kind: "device"; "host", pinned memory that both reach; or "managed". limit: of its memory; None: what there is.

        keep: idle memory that is kept; None: what the last while has needed. shelf: of each thread. decay: seconds for which
        free memory is kept at least. retain: all memory stays until trim(), as graphs need it. unshared: blocks are never
        exported. See gvmem/heap.h.
        """
        if not 0 <= decay < 2**32 / 1000:
            raise ValueError(f"{decay!r} is no time in seconds")
        flags = (_gvmem.HEAP_KEEP if retain else 0) | (_gvmem.HEAP_UNSHARED if unshared else 0)
        self._handle = _gvmem.heap(device, look_up(_KINDS, kind, "kind of memory"), flags, option(limit), option(keep),
                                   option(shelf), int(decay * 1000))

    def __enter__(self) -> Heap:
        return self

    def __repr__(self) -> str:
        return f"<gvmem.Heap on GPU {self.device}{', closed' if self.closed else ''}>"

    def alloc(self, size: int, *, align: int = 1, stream: Any = None, tag: Optional[str] = None) -> Block:
        """A block of size bytes, whose contents are not defined.

        align: its address is a multiple of that, a power of two up to 2 MiB; of 256 bytes in any case. stream: only work of that stream, or ordered behind it, uses the block, as consumers of its arrays are. tag: what it
        is for, in blocks() and usage(); each text is kept for ever. The heap needs the stream until end_stream(), or its own end.
        """
        return Block(self._handle.alloc(size, align, tag, kept_stream(stream)))

    def trim(self, keep: int = 0) -> None:
        """Gives back memory that no block uses, but so much. Waits for streams on which blocks were freed."""
        run(self._handle.trim, keep)

    def end_stream(self, stream: Any) -> None:
        """Before a stream that was used here ends: waits for its work, and its memory is everybody's; no array is ordered behind it any more."""
        run(self._handle.end_stream, stream_number(stream))

    def grant(self, device: int, access: Optional[str] = "write") -> None:
        """Gives another GPU access to all blocks: "read", "write", or None, which takes it away."""
        self._handle.grant(device, look_up(ACCESS, access, "access"))

    @property
    def limit(self) -> Optional[int]:
        """Bytes of memory that it may have; None: what there is."""
        limit = self._handle.info()["limit_bytes"]
        return None if limit == _BYTES_UNLIMITED else limit

    @limit.setter
    def limit(self, limit: Optional[int]) -> None:
        self._handle.set_limit(_BYTES_UNLIMITED if limit is None else limit)

    def info(self) -> Info:
        """What is known of it: gvm_heap_info in gvmem/heap.h."""
        return Info(**self._handle.info())

    def blocks(self) -> list[Info]:
        """Live blocks, lowest address first: address, size_bytes, tag."""
        return [Info(**block) for block in self._handle.blocks()]

    def usage(self) -> list[Info]:
        """Live blocks by tag, most bytes first: tag, blocks, size_bytes."""
        return [Info(**usage) for usage in self._handle.usage()]

    def check(self) -> None:
        """Walks the whole heap, and raises errors.Invalid if something does not hold."""
        self._handle.check()

    def save_snapshot(self, path: Union[str, bytes, os.PathLike[Any]]) -> None:
        """Writes all memory that it holds to a file in the format of PyTorch's memory snapshots, for pytorch.org/memory_viz. A
        file that is there is replaced."""
        self._handle.save_snapshot(os.fsencode(path))
