"""Memory of this process alone: a range of addresses, and what is behind it."""
from __future__ import annotations

from operator import index
from typing import Any, Optional, SupportsIndex, Union

from . import _gvmem
from ._array import Shape, dimensions, element, kept_stream, stream_number
from ._keeper import Info

_TIERS = {"absent": _gvmem.TIER_ABSENT, "device": _gvmem.TIER_DEVICE, "host": _gvmem.TIER_HOST}
ACCESS = {None: _gvmem.ACCESS_NONE, "read": _gvmem.ACCESS_READ, "write": _gvmem.ACCESS_READWRITE}
_TIER_NAMES = {_gvmem.TIER_PEER: "peer"} | {number: name for name, number in _TIERS.items()}


def look_up(table: dict[Any, int], name: Any, what: str) -> int:
    try:
        return table[name]
    except (KeyError, TypeError):
        raise ValueError(f"{name!r} is no {what}: {', '.join(repr(known) for known in table)}") from None


def cut(length: int, key: Any) -> tuple[int, int]:
    """A slice of so many things: (first, how many)."""
    if not isinstance(key, slice):
        raise TypeError(f"the index is of type {type(key).__name__}, not a slice: [a:b] is an array, and numpy.asarray() or cupy.asarray() of that has elements")
    first, end, step = key.indices(length)
    if step != 1:
        raise ValueError(f"slices have step 1, not {step}")
    return first, max(0, end - first)


class Memory:
    """What Buffer, Vector, Heap and Block have in common: a handle, closed by close(), by `with`, or with its last reference. What has
    consumed an array keeps the memory until it is gone, and so does the array itself."""

    __slots__ = ("_handle", "__weakref__")
    _handle: Any

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def device(self) -> int:
        """The ordinal of its GPU."""
        return self._handle.device

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._handle.closed

    def close(self) -> None:
        """Closes it; twice is nothing. Arrays that are left, and what has consumed them, keep the memory."""
        self._handle.close()


class Bytes(Memory):
    """Memory without a type: Buffer and Block."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """In bytes: what a buffer has reserved, or what a block was asked for."""
        return self._handle.size

    @property
    def address(self) -> int:
        """Of its first byte; it never changes."""
        return self._handle.address

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, key: slice) -> _gvmem.Array:
        first, count = cut(self.size, key)
        return self.array("u1", count, offset=first)

    def array(self, dtype: Any = "u1", shape: Shape = None, *, offset: int = 0, stream: Any = None,
              readonly: bool = False) -> _gvmem.Array:
        """An array of all there is from offset (bytes) on, or of a shape, without a copy.

        stream: on which the work is that writes it. Consumers by DLPack have their stream wait for it, those by
        __cuda_array_interface__ find it there, and those on the CPU wait. Without one there is no such work left.
        """
        return self._handle.array(offset, element(dtype), dimensions(shape), kept_stream(stream), readonly)


class Buffer(Bytes):
    """A range of device addresses, and memory behind any part of it: gvmem.Buffer(size, reserve=…).

        with gvmem.Buffer(1 << 20, reserve=1 << 40) as buffer:
            x = cupy.asarray(buffer.array("f4"))    # no copy; numpy.asarray() on a software GPU

    The address of a byte never changes. Memory comes in chunks, each of them absent, on the device, or, at the same address, in
    memory of another GPU or of the host. len(buffer) is what is reserved, in bytes; buffer[a:b] is an array of bytes.
    """

    __slots__ = ()

    def __init__(self, size: int, *, reserve: Optional[int] = None, device: int = 0, chunk: int = 0,
                 address: Optional[int] = None, unshared: bool = False):
        """Reserves addresses for `reserve` bytes (None: size), rounded up to whole chunks, and commits the first size.

        chunk: their size, a power of two from 2 MiB on; 0: chosen. address: wanted, or errors.Address. unshared: never to be
        exported to other processes.
        """
        room = size if reserve is None else reserve
        if room < size:
            raise ValueError(f"{reserve} bytes are reserved, which are less than the size, {size}")
        flags = _gvmem.BUFFER_UNSHARED if unshared else 0
        self._handle = _gvmem.buffer(room, size, device, chunk, address or 0, flags)

    def __enter__(self) -> Buffer:
        return self

    def __repr__(self) -> str:
        return f"<gvmem.Buffer of {self.size} bytes at {self.address:#x} on GPU {self.device}{', closed' if self.closed else ''}>"

    # ---- memory behind it

    def commit(self, offset: int = 0, size: Optional[int] = None) -> None:
        """Puts memory behind a range, rounded outwards to whole chunks; without size behind all from offset on."""
        self._handle.commit(offset, self._rest(offset, size))

    def decommit(self, offset: int = 0, size: Optional[int] = None) -> None:
        """Takes memory away from the chunks that are wholly inside the range, once work of this process on the GPU is over.

        BufferError: an array of it is there still, or what has consumed it.
        """
        self._handle.decommit(offset, self._rest(offset, size))

    def move(self, tier: Union[str, SupportsIndex], offset: int = 0, size: Optional[int] = None) -> None:
        """Moves chunks to "device", "host", or the memory of another GPU, by its number, which this one reads over the link between them;
        bytes and addresses stay, and so do arrays. Waits for work of this process on the GPU; nothing may use the range meanwhile."""
        if hasattr(tier, "__index__") and not isinstance(tier, bool):
            self._handle.move_to_peer(offset, self._rest(offset, size), index(tier))
        elif tier in ("device", "host"):
            self._handle.move(offset, self._rest(offset, size), _TIERS[tier])
        else:
            raise ValueError(f'{tier!r} is no place to move to: "device", "host", or the number of another GPU')

    def tier(self, offset: int = 0) -> str:
        """Where the chunk at an offset is: "absent", "device", "host" or "peer"."""
        number = self._handle.tier(offset)
        return _TIER_NAMES.get(number, str(number))

    def seal(self) -> None:
        """Makes it read-only for good. BufferError: there is an array that can be written."""
        self._handle.seal()

    def grant(self, device: int, access: Optional[str] = "write") -> None:
        """Gives another GPU access: "read", "write", or None, which takes it away."""
        self._handle.grant(device, look_up(ACCESS, access, "access"))

    def _rest(self, offset: int, size: Optional[int]) -> int:
        return max(0, self.size - offset) if size is None else size

    def _room(self, offset: int, size: Optional[int]) -> int:
        return self._handle.room(offset) if size is None else size

    # ---- copies

    def copy_in(self, data: Any, offset: int = 0) -> None:
        """Copies what has a buffer (bytes, an array of NumPy) into it."""
        self._handle.copy_in(offset, data)

    def copy_out(self, size: Optional[int] = None, offset: int = 0, *, into: Any = None) -> Any:
        """Copies a part of it, or all from offset on that has memory, into a new bytearray, or into a buffer: size bytes, or as many
        as that has. Returns that."""
        if into is None:
            if offset < 0 or (size is not None and not 0 <= size <= self.size - offset):
                raise ValueError(f"offset={offset}, size={size} is no range of {self.size} bytes")
            into = bytearray(self._room(offset, size))
        self._handle.copy_out(into, size, offset)
        return into

    def copy_from(self, source: Buffer, size: Optional[int] = None, *, offset: int = 0, source_offset: int = 0,
                  stream: Any = None) -> None:
        """Copies bytes of another buffer, or of this one, to offset; with a stream in its order, and without waiting."""
        if not isinstance(source, Buffer):
            raise TypeError(f"{type(source).__name__} is no gvmem.Buffer: copy_in() takes what has a buffer")
        self._handle.copy(offset, source._handle, source_offset, source._room(source_offset, size), stream_number(stream))

    def fill(self, pattern: Any = b"\0", offset: int = 0, size: Optional[int] = None, *, stream: Any = None) -> None:
        """Fills a range, or all from offset on that has memory, with 1, 2 or 4 bytes (numpy.float32(1), b"\\xff").

        With a stream it is done in its order, without waiting.
        """
        self._handle.fill(offset, self._room(offset, size), pattern, stream_number(stream))

    # ---- what it is

    @property
    def committed(self) -> int:
        """Bytes that have memory, now."""
        info = self._handle.info()
        return info["device_bytes"] + info["host_bytes"] + info["peer_bytes"]

    @property
    def sealed(self) -> bool:
        """Whether it was made read-only by seal()."""
        return self._handle.info()["sealed"]

    def info(self) -> Info:
        """What is known of it: gvm_buffer_info in gvmem/buffer.h."""
        return Info(**self._handle.info())
