"""Arrays that grow in place."""
from __future__ import annotations

import array
from typing import Any

from . import _gvmem
from ._array import Shape, dimensions, element, kept_stream
from ._buffer import Memory, cut

_KINDS = {"?": "b", **dict.fromkeys("bhilq", "i"), **dict.fromkeys("BHILQ", "u"), **dict.fromkeys("efd", "f"), "Zf": "c", "Zd": "c"}
_CODES = {"|i1": "b", "<i2": "h", "<i4": "i", "<i8": "q", "|u1": "B", "<u2": "H", "<u4": "I", "<u8": "Q", "<f4": "f", "<f8": "d"}


def element_of(view: memoryview) -> str:
    """The element type of a buffer; "" if it is none of ours."""
    kind = _KINDS.get(view.format.lstrip("@=<"))
    return "" if kind is None else f"{'|' if view.itemsize == 1 else '<'}{kind}{view.itemsize}"


class Vector(Memory):
    """An array on a GPU that grows without moving: gvmem.Vector("f4", 10**9).

        rows = gvmem.Vector("f4", 10**9)
        rows.extend(numpy.random.rand(1000).astype("f4"))
        x = cupy.asarray(rows.array())      # stays valid, whatever rows grows to

    Addresses are reserved for max_count elements, and memory is put behind them as it grows. len(rows) is how many
    there are; rows[a:b] is an array of them.
    """

    __slots__ = ("_dtype", "_size", "_max")

    def __init__(self, dtype: Any, max_count: int, *, device: int = 0, chunk: int = 0, unshared: bool = False):
        self._dtype = element(dtype)
        self._size = 2 if self._dtype == "bfloat16" else int(self._dtype[2:])
        flags = _gvmem.BUFFER_UNSHARED if unshared else 0
        self._handle = _gvmem.vector(self._size, max_count, device, chunk, flags)
        self._max = max_count

    def __enter__(self) -> Vector:
        return self

    def __repr__(self) -> str:
        about = "closed" if self.closed else f"{len(self)} of {self._max}"
        return f"<gvmem.Vector of {self._dtype}, {about}, on GPU {self.device}>"

    def __len__(self) -> int:
        return self._handle.counts()[0]

    def __getitem__(self, key: slice) -> _gvmem.Array:
        first, count = cut(len(self), key)
        return self.array(count, offset=first)

    def array(self, shape: Shape = None, *, offset: int = 0, stream: Any = None, readonly: bool = False) -> _gvmem.Array:
        """An array of all elements from offset on, or of a shape; it stays valid when the vector grows. stream as for Buffer."""
        return self._handle.array(offset * self._size, self._dtype, dimensions(shape), kept_stream(stream), readonly)

    def extend(self, values: Any) -> None:
        """Copies elements behind the last one: of what has a buffer of that type (NumPy), of bytes, or of numbers."""
        if isinstance(values, (bytes, bytearray)):
            self._handle.append(values)
            return
        try:
            view = memoryview(values)
        except TypeError:
            if self._dtype not in _CODES:
                raise TypeError(f"elements of {self._dtype} come from what has a buffer, or from bytes") from None
            view = memoryview(array.array(_CODES[self._dtype], values))
        if element_of(view) != self._dtype:
            raise TypeError(f"values of format {view.format!r} are no {self._dtype}: convert them, or give bytes")
        self._handle.append(view)

    def resize(self, count: int) -> None:
        """Makes it so long. New elements have no defined contents; memory of dropped ones stays until shrink()."""
        self._handle.resize(count)

    def commit(self, capacity: int) -> None:
        """Has memory for so many elements at least; the length stays."""
        self._handle.commit(capacity)

    def shrink(self) -> None:
        """Gives back memory that holds no element. BufferError: an array has some that was dropped."""
        self._handle.shrink()

    @property
    def dtype(self) -> str:
        """The element type, as NumPy writes it."""
        return self._dtype

    @property
    def address(self) -> int:
        """Of element 0; it never changes."""
        return self._handle.address

    @property
    def capacity(self) -> int:
        """Elements that fit in the memory that there is."""
        return self._handle.counts()[1]

    @property
    def max_count(self) -> int:
        """Elements that it can grow to."""
        return self._max
