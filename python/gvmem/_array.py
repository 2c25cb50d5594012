"""Element types as people and other packages write them, and leases as context managers."""
from __future__ import annotations

import contextlib
from operator import index
from typing import Any, Callable, Optional, Sequence, SupportsIndex, Union

from . import _gvmem

_NAMES = {"bool": "|b1", "uint8": "|u1", "int8": "|i1", "complex64": "<c8", "complex128": "<c16", "bfloat16": "bfloat16"}
for _bytes in (2, 4, 8):
    _NAMES.update({f"int{8 * _bytes}": f"<i{_bytes}", f"uint{8 * _bytes}": f"<u{_bytes}", f"float{8 * _bytes}": f"<f{_bytes}"})
_NAMES.update({"bool_": "|b1", "longlong": "<i8", "ulonglong": "<u8"})  # other names of NumPy's
_CODES = {name[1:]: name for name in _NAMES.values() if name != "bfloat16"}
_BUILTIN = {bool: "|b1", int: "<i8", float: "<f8", complex: "<c16"}

Shape = Union[SupportsIndex, Sequence[SupportsIndex], None]
Stream = Union[int, tuple[int, Any], None]


def element(dtype: Any) -> str:
    """ "f4", "float32", numpy.float32, numpy.dtype("f4"), torch.float32, float: all that leads to one of our types."""
    if isinstance(dtype, type):
        text: str = _BUILTIN.get(dtype) or dtype.__name__
    else:
        text = getattr(dtype, "str", None)
        if not isinstance(text, str):
            text = str(dtype)
    text = text.removeprefix("torch.")
    if getattr(dtype, "name", None) == "bfloat16":
        text = "bfloat16"
    if text in _NAMES:
        return _NAMES[text]
    code = text[1:] if text[:1] in ("<", "=", "|") else text
    if code not in _CODES:
        raise ValueError(f"{dtype!r} is not an element type; these are: f2, f4, f8, i1 to i8, u1 to u8, b1, c8, c16, bfloat16")
    return _CODES[code]


def dimensions(shape: Any) -> Optional[tuple[int, ...]]:
    if shape is None:
        return None
    try:
        return (index(shape),)
    except TypeError:
        return tuple(shape)


def stream_number(stream: Any) -> Optional[int]:
    """CuPy's and PyTorch's streams, CUDA's protocol for streams, or the number itself."""
    if hasattr(stream, "__cuda_stream__"):
        return stream.__cuda_stream__()[1]
    for attribute in ("ptr", "cuda_stream"):
        if hasattr(stream, attribute):
            return getattr(stream, attribute)
    return stream


def kept_stream(stream: Any) -> Stream:
    """The same for use after the call: with what is kept until then, as the end of a stream's object destroys the stream."""
    number = stream_number(stream)
    return number if number is None or number is stream else (number, stream)


class _Held:
    """A lease, from the moment it is made. `with` ends it; so does release(), or its last reference."""

    __slots__ = ("_hold", "_lent", "__weakref__")

    def __init__(self, hold: _gvmem.Hold, lend: Callable[[_gvmem.Hold], Any]):
        self._hold = hold
        try:
            self._lent = lend(hold)
        except BaseException:  # which may live long, and with it the frames that have the lease
            with contextlib.suppress(Exception):
                hold.end(None)
            raise

    def __enter__(self) -> Any:
        if self._hold.ended:
            raise ValueError("the lease has ended")
        lent, self._lent = self._lent, None  # the caller has the only reference
        if lent is None:
            raise ValueError("the lease was entered before")
        return lent

    def __exit__(self, *_: Any) -> None:
        self.release()

    def release(self, stream: Any = None) -> bool:
        """Ends the lease: arrays of it cannot be consumed any more. What has consumed one and is still alive keeps it until
        that is gone: then this returns False.

        Waits for all work of this process on the GPU, unless a stream is given, here or before: then the lease ends behind
        the work of that stream. Releasing twice is nothing. errors.Invalid: the stream is being captured into a graph; the
        lease is as it was. If its last array goes inside the capture, it stays until the object is closed.
        """
        released = self._hold.end(kept_stream(stream))
        self._lent = None
        return released

    @property
    def ended(self) -> bool:
        """Whether release() was called, or the block left."""
        return self._hold.ended

    @property
    def released(self) -> bool:
        """Whether it was given back: it has ended, and no consumer is left."""
        return self._hold.released

    @property
    def exports(self) -> int:
        """How many consumers there are."""
        return self._hold.exports


class Lease(_Held):
    """A lease on an object; entered, it is an array of it."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """Bytes that it lends."""
        return self._hold.region(0)[1]

    @property
    def address(self) -> int:
        """Where the memory that it lends begins."""
        return self._hold.region(0)[0]

    @property
    def generation(self) -> int:
        """The object's when the lease was given: it counts growth and seal."""
        return self._hold.generation

    def array(self, dtype: Any = "u1", shape: Shape = None, *, offset: int = 0) -> _gvmem.Array:
        """Another array of it: a part, or of another type."""
        return self._hold.array(0, offset, element(dtype), dimensions(shape))
