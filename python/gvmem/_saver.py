"""Memory of one process that it gives up and has back at the same addresses: regions, by tag."""
from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Any, Iterator, Optional

from . import _gvmem
from ._array import Shape, dimensions, element, stream_number
from ._keeper import Keeper, connect
from ._wait import make_lock, run, run_with_lease

_CHUNK_BYTES_MAX = 64 << 20  # larger ones are not faster to move
_CHUNK_BYTES_MIN = 2 << 20


class _Range:
    """What is allocated, until the last of those who have it is gone. It keeps the memory, also of a Saver that is gone."""

    __slots__ = ("region", "arena", "offset")

    def __init__(self, region: SavedRegion, arena: _gvmem.Arena, size: int):
        self.region, self.arena, self.offset = region, arena, arena.alloc(size)

    def __del__(self) -> None:
        if hasattr(self, "offset"):
            self.arena.free(self.offset)


class Part:
    """Memory of a region: region.alloc(size). Freed with its last reference, once no array of it is left, nor what has consumed one."""

    __slots__ = ("_range", "_size")

    def __init__(self, region: SavedRegion, arena: _gvmem.Arena, size: int):
        """For SavedRegion.alloc()."""
        self._range, self._size = run(_Range, region, arena, size), size

    def __repr__(self) -> str:
        return f'<gvmem.Part of {self._size} bytes at {self.address:#x}, region "{self._range.region.tag}">'

    def __len__(self) -> int:
        return self._size

    @property
    def size(self) -> int:
        """In bytes."""
        return self._size

    @property
    def address(self) -> int:
        """Of its first byte; it never changes."""
        return self._range.region._object.address + self._range.offset

    def array(self, dtype: Any = "u1", shape: Shape = None, *, offset: int = 0) -> Any:
        """An array of all there is from offset (bytes) on, or of a shape, without a copy. Not while its region is paused."""
        region = self._range.region
        region._use()
        view = region._object._handle.view(self.address, self._size, True, self._range)
        return view.array(0, offset, element(dtype), dimensions(shape))


class SavedRegion:
    """Memory that goes and comes back together: `with saver.region(tag) as region`."""

    def __init__(self, keeper: Keeper, tag: str, backup: bool, device: int, reserve: int, chunk: int):
        """For Saver.region()."""
        self._tag, self._backup = tag, backup
        self._object = keeper.create(None, 0, reserve=reserve, device=device, chunk=chunk)
        self._arena: Optional[_gvmem.Arena] = _gvmem.arena(self._object._handle, self._object.address, reserve, chunk)
        self._lock = make_lock(self)  # for what follows
        self._lease: Optional[_gvmem.Hold] = self._acquire(None)

    def __repr__(self) -> str:
        return f'<gvmem.SavedRegion "{self._tag}" of {self.used} bytes{", paused" if self.paused else ""}>'

    def _acquire(self, timeout: Optional[float]) -> _gvmem.Hold:
        thread, handle = threading.get_ident(), self._object._handle
        lease: _gvmem.Hold = run_with_lease(lambda waiting: handle.own_conflict(_gvmem.LEASE_WRITE, 0, waiting), timeout,
                                            lambda ms: handle.acquire(_gvmem.LEASE_WRITE, _gvmem.HINT_HOT, 0, ms, None, thread), True)
        return lease

    def _use(self) -> _gvmem.Arena:
        arena = self._arena
        if arena is None:
            raise ValueError(f'the region "{self._tag}" is closed')
        if self._lease is None:
            raise ValueError(f'the region "{self._tag}" is paused: resume() it')
        return arena

    def alloc(self, size: int) -> Part:
        """Memory for so many bytes, at a multiple of 512. MemoryError: the keeper's budgets or the reservation have no room."""
        return Part(self, self._use(), size)

    def pause(self, stream: Any = None) -> None:
        """As Saver.pause(), of this one."""
        with self._lock:  # each step does no harm a second time: after Ctrl-C, or a failure, another call does the rest
            lease, self._lease = self._lease, None
            if self._arena is None:
                return
            self._arena.pause(True)
            if lease is not None:
                try:
                    lease.end(stream_number(stream) if self._backup else None)
                except BaseException:
                    if not lease.released:
                        self._arena.pause(False)
                        self._lease = lease
                    raise
            if not self._backup:
                self._object.shrink(0)

    def resume(self, timeout: Optional[float] = None) -> None:
        """As Saver.resume(), of this one."""
        with self._lock:
            if self._arena is None:
                raise ValueError(f'the region "{self._tag}" is closed')
            if self._lease is None:
                if not self._backup:
                    self._object.grow(self._arena.committed)
                self._lease = self._acquire(timeout)
            self._arena.pause(False)

    def close(self) -> None:
        """Ends it. Memory that is allocated keeps its address, and cannot be used any more."""
        self._object.close()
        with self._lock:
            arena, self._arena = self._arena, None
            lease, self._lease = self._lease, None
        if arena is not None:
            arena.pause(True)  # a thread may have entered it
        if lease is not None:
            lease.end(None)

    @property
    def tag(self) -> str:
        """By which it is paused and resumed."""
        return self._tag

    @property
    def enable_cpu_backup(self) -> bool:
        """Whether it keeps its bytes while it is paused."""
        return self._backup

    @property
    def paused(self) -> bool:
        """Whether its memory may not be used."""
        return self._lease is None

    @property
    def used(self) -> int:
        """Bytes that are allocated."""
        arena = self._arena
        used: int = 0 if arena is None else run(lambda: arena.used)
        return used

    @property
    def resident_bytes(self) -> int:
        """How many bytes of memory it has on the device now."""
        return int(self._object.info().device_bytes)


class Saver:
    """Memory of this process that it gives up and has back at the same addresses, as torch_memory_saver's: gvmem.Saver().

        with saver.region("cache", enable_cpu_backup=True) as region:
            part = region.alloc(1 << 30)
        x = cupy.asarray(part.array("f4"))
        saver.pause("cache")     # others may have its memory
        saver.resume("cache")    # x is what it was

    A keeper has the memory, so models and objects of other processes take it while a region is paused. What is touched
    meanwhile loses the CUDA context. gvmem.torch.Saver is the same for PyTorch. Any thread may call anything.
    """

    def __init__(self, keeper: Any = None, *, device: int = 0, reserve: Optional[int] = None, chunk: Optional[int] = None):
        """keeper: a Keeper, or the path of its socket; None: the default one. device: the GPU.

        reserve: how many bytes a region can have; None: the keeper's device budget. chunk: what its memory comes in, a power of two from
        2 MiB on; None: a 64th of that, 64 MiB at most.
        """
        self._keeper: Keeper = keeper if isinstance(keeper, Keeper) else connect(keeper)
        self._own = None if self._keeper is keeper else self._keeper
        self._device = device
        self._reserve = reserve or max(found.budget_bytes for found in self._keeper.snapshot().devices)
        wanted = min(_CHUNK_BYTES_MAX, max(_CHUNK_BYTES_MIN, self._reserve // 64))
        self._chunk = chunk or 1 << (wanted.bit_length() - 1)
        self._lock = make_lock(self)
        self._regions: dict[str, SavedRegion] = {}

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _find(self, tag: str, backup: bool) -> SavedRegion:
        with self._lock:
            region = self._regions.get(tag)
            if region is None:
                region = SavedRegion(self._keeper, tag, backup, self._device, self._reserve, self._chunk)
                self._regions[tag] = region
        if region.enable_cpu_backup != backup:
            raise ValueError(f'the region "{tag}" was made with enable_cpu_backup={not backup}')
        region._use()
        return region

    @contextmanager
    def region(self, tag: str = "default", enable_cpu_backup: bool = False) -> Iterator[SavedRegion]:
        """`with saver.region(tag) as region`: what is allocated by region.alloc() is given up and comes back with this tag.

        enable_cpu_backup: whether its bytes are what they were then; else they are zeros, and nothing is copied.

        What is allocated displaces no bytes that another region has given up a moment before: it may lie in host memory, and is
        read over the link, until this region is paused and resumed; resident_bytes tells.
        """
        yield self._find(tag, enable_cpu_backup)

    def _matching(self, tag: Optional[str]) -> list[SavedRegion]:
        with self._lock:
            if tag is None:
                return list(self._regions.values())
            if tag not in self._regions:
                raise ValueError(f'there is no region "{tag}"')
            return [self._regions[tag]]

    def pause(self, tag: Optional[str] = None, *, stream: Any = None) -> None:
        """Gives the memory of a region up, or of all of them, once all work of this process on the GPU is over.

        With a backup the bytes stay on the device until others need the place; with a stream that may be behind the
        work of that stream, and nothing waits. Without a backup memory and bytes are gone at once. Paused already is nothing.
        errors.Invalid: the stream is being captured into a graph; the region is not paused.
        """
        for region in self._matching(tag):
            region.pause(stream)

    def resume(self, tag: Optional[str] = None, *, timeout: Optional[float] = None) -> None:
        """Brings the memory of a region back, or of all of them, at the same addresses, in the place of what is not in use.

        What finds no room on the device, as others use that, is read from the host over the link: resident_bytes tells. MemoryError: there is none
        there either. timeout: seconds, for each; None waits for ever. Not paused is nothing.
        """
        for region in self._matching(tag):
            region.resume(timeout)

    @property
    def regions(self) -> dict[str, SavedRegion]:
        """All of them, by tag."""
        with self._lock:
            return dict(self._regions)

    def close(self) -> None:
        """Ends it, and all regions: their memory cannot be used any more."""
        for region in self._matching(None):
            region.close()
        if self._own is not None:
            self._own.close()
