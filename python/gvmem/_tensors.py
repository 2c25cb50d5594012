"""Tensors of a model: the table that says where each is, and where their bytes come from.

A model is one object. It begins as a file of safetensors does: 8 bytes, little-endian, are the length of the header; the header is
a JSON object with {"dtype", "shape", "data_offsets"} for each name, whose offsets count from the header's end; the bytes follow.
An object may have what such a file may not: tensors that begin at multiples of 256 bytes, with gaps between them; tensors that
share memory; and "strides", in elements, of tensors that are not in C's order.
"""
from __future__ import annotations

import json
import os
import struct
from bisect import bisect_right
from math import prod
from operator import index
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Optional

from . import _gvmem
from ._array import stream_number
from ._load import is_masked

ALIGN = 256  # of a block in its object
HEADER_BYTES_MAX = 100_000_000  # of safetensors' own readers
_ALIGNMENT_MAX = 8  # of an element
_DIMENSIONS_MAX = 16
_READ_BYTES = 16 << 20  # of a file at a time
_LENGTH = struct.Struct("<Q")
_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13  # device types of DLPack


class _Type(NamedTuple):
    bytes: int
    element: str  # of arrays
    dlpack: tuple[int, int]


TYPES = {  # by the names of safetensors, which has no C128
    "BOOL": _Type(1, "|b1", (6, 8)), "U8": _Type(1, "|u1", (1, 8)), "I8": _Type(1, "|i1", (0, 8)),
    "F8_E4M3": _Type(1, "float8_e4m3fn", (10, 8)), "F8_E5M2": _Type(1, "float8_e5m2", (12, 8)),
    "F8_E8M0": _Type(1, "float8_e8m0fnu", (14, 8)), "I16": _Type(2, "<i2", (0, 16)), "U16": _Type(2, "<u2", (1, 16)),
    "F16": _Type(2, "<f2", (2, 16)), "BF16": _Type(2, "bfloat16", (4, 16)), "I32": _Type(4, "<i4", (0, 32)),
    "U32": _Type(4, "<u4", (1, 32)), "F32": _Type(4, "<f4", (2, 32)), "I64": _Type(8, "<i8", (0, 64)), "U64": _Type(8, "<u8", (1, 64)),
    "F64": _Type(8, "<f8", (2, 64)), "C64": _Type(8, "<c8", (5, 64)), "C128": _Type(16, "<c16", (5, 128)),
}
_BY_DLPACK = {of.dlpack: name for name, of in TYPES.items()}
_BY_CODE = {of.element.lstrip("<|"): name for name, of in TYPES.items()}
_BY_FORMAT = {"?": "b1", "e": "f2", "f": "f4", "d": "f8", "Zf": "c8", "Zd": "c16"}  # of the buffer protocol; integers have several


class Layout(NamedTuple):
    """Where a tensor of a model is, and what: offset and size in bytes, strides in elements; None: C's order."""

    dtype: str
    shape: tuple[int, ...]
    strides: Optional[tuple[int, ...]]
    offset: int
    size: int


class Source(NamedTuple):
    """A tensor somewhere: its memory begins at an address, which owner keeps. Strides are in elements."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    device: Optional[int]  # None: memory of the CPU
    owner: Any


class Block(NamedTuple):
    """Bytes that are copied as they are, at an offset behind the header."""

    offset: int
    size: int
    device: Optional[int]
    address: int
    pieces: Callable[[], Iterable[memoryview]]  # of memory of the CPU and of files


class Tensor:
    """A tensor whose elements no array has: models.Tensor("BF16", (2, 3), data), where data has a buffer of as many bytes.

    The types are those of safetensors: BOOL, U8 to U64, I8 to I64, F8_E4M3, F8_E5M2, F8_E8M0, F16, BF16, F32, F64, C64; and C128.
    """

    __slots__ = ("dtype", "shape", "data")

    def __init__(self, dtype: str, shape: Iterable[int], data: Any):
        view = memoryview(data)
        self.dtype, self.shape, self.data = dtype, _integers(shape), view.cast("B") if view.nbytes else memoryview(b"")
        if dtype not in TYPES:
            raise ValueError(f'"{dtype}" is no type of tensors: {", ".join(TYPES)}')
        if any(length < 0 for length in self.shape) or prod(self.shape) * TYPES[dtype].bytes != self.data.nbytes:
            raise ValueError(f"{self.data.nbytes} bytes are not {self.shape} of {dtype}")


# ---- what others have


def _integers(numbers: Iterable[Any]) -> tuple[int, ...]:
    return tuple(int(index(number)) for number in numbers)


def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """In C's order, in elements."""
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def _is_dense(source: Source) -> bool:
    """Whether its elements fill their memory, each once, in whatever order."""
    step = 1
    for stride, length in sorted((stride, length) for stride, length in zip(source.strides, source.shape) if length > 1):
        if stride != step:
            return False
        step *= length
    return True


def _end(source: Source) -> int:
    """The address behind its last element."""
    last = sum(stride * (length - 1) for stride, length in zip(source.strides, source.shape))
    return source.address + (last + 1) * TYPES[source.dtype].bytes


def _format_name(format: str, itemsize: int) -> Optional[str]:
    if format[:1] in ("@", "="):
        format = format[1:]
    if format.startswith("<") and len(format) > 1:
        format = format[1:]
    code = _BY_FORMAT.get(format) or (f"i{itemsize}" if format in tuple("bhilqn") else f"u{itemsize}" if format in tuple("BHILQN") else "")
    return _BY_CODE.get(code)


def _of_buffer(value: Any) -> Source:
    view = memoryview(value)
    dtype = _format_name(view.format, view.itemsize)
    if dtype is None:
        raise TypeError(f'elements of the buffer\'s format "{view.format}" are none of a model\'s')
    shape, steps = view.shape or (), view.strides or ()
    if any(step % view.itemsize or step < 0 for step in steps):
        data = view.tobytes()
        return Source(dtype, shape, strides_of(shape), _gvmem.read_buffer(data), None, data)
    return Source(dtype, shape, tuple(step // view.itemsize for step in steps), _gvmem.read_buffer(view), None, view)


def _of_dlpack(value: Any, stream: Optional[int]) -> Source:
    try:
        capsule = value.__dlpack__(stream=stream, max_version=(1, 1))
    except TypeError:
        capsule = value.__dlpack__(stream=stream)
    address, kind, number, code, bits, shape, strides = _gvmem.read_dlpack(capsule)
    dtype = _BY_DLPACK.get((code, bits))
    if dtype is None:
        raise TypeError(f"elements of {bits} bits of DLPack's type {code} are none of a model's")
    if kind not in (_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED):
        raise TypeError(f"the tensor is on device ({kind}, {number}), neither memory of the CPU nor of a GPU")
    device = number if kind in (_CUDA, _CUDA_MANAGED) else None
    return Source(dtype, shape, strides_of(shape) if strides is None else strides, address, device, capsule)


def _of_cuda_interface(value: Any, device: int, stream: Optional[int]) -> Source:
    said = value.__cuda_array_interface__
    dtype = _BY_CODE.get(said["typestr"].lstrip("<|="))
    if dtype is None:
        raise TypeError(f'elements of type "{said["typestr"]}" are none of a model\'s')
    itemsize, shape, steps = TYPES[dtype].bytes, tuple(said["shape"]), said.get("strides")
    if said.get("mask") is not None:
        raise TypeError("it has a mask")
    if steps is not None and any(step % itemsize for step in steps):
        raise TypeError(f"its strides {steps} are no multiples of {itemsize} bytes: make it contiguous first")
    if said.get("stream") is not None:
        _gvmem.order_streams(device, said["stream"], stream or 0)
    strides = strides_of(shape) if steps is None else tuple(step // itemsize for step in steps)
    return Source(dtype, shape, strides, said["data"][0], device, (value, said))


def _is_too_large(dtype: str, shape: tuple[int, ...]) -> bool:
    """For what arrays count with, also if a length is 0 or elements have the same bytes."""
    return prod(length or 1 for length in shape) * TYPES[dtype].bytes >= 2**63


def _check(source: Source) -> Source:
    """As a header can have it."""
    shape, strides = _integers(source.shape), _integers(source.strides)
    if len(strides) != len(shape) or not all(0 <= length < 2**63 for length in shape) or _is_too_large(source.dtype, shape):
        raise TypeError(f"its lengths are {shape}, its strides {strides}")
    if prod(shape) and any(stride < 0 and length > 1 for stride, length in zip(strides, shape)):
        raise TypeError(f"its strides {strides} are negative: make it contiguous first")
    return source._replace(shape=shape, strides=tuple(map(abs, strides)))


def read_source(name: str, value: Any, device: int, stream: Any) -> Source:
    """What a value is, ordered before the stream. device: that of memory which does not say its own."""
    number = stream_number(stream)
    try:
        if isinstance(value, Source):
            source = value
        elif isinstance(value, Tensor):
            source = Source(value.dtype, value.shape, strides_of(value.shape), _gvmem.read_buffer(value.data), None, value.data)
        elif is_masked(value):
            raise TypeError("it is masked: fill what is hidden, by filled()")
        elif hasattr(value, "__dlpack_device__"):
            if value.__dlpack_device__()[0] in (_CUDA, _CUDA_MANAGED):
                source = _of_dlpack(value, number or 1)
            else:
                try:
                    source = _of_buffer(value)
                except (TypeError, ValueError, BufferError):
                    source = _of_dlpack(value, None)
        elif hasattr(value, "__cuda_array_interface__"):
            source = _of_cuda_interface(value, device, number)
        else:
            source = _of_buffer(value)
        source = _check(source)
    except (TypeError, ValueError, LookupError, AttributeError, BufferError, RuntimeError) as error:
        raise TypeError(f'"{name}", of {type(value).__name__}, is no tensor of a model: {error}') from None
    if len(source.shape) > _DIMENSIONS_MAX:
        raise TypeError(f'"{name}" has {len(source.shape)} dimensions, of which {_DIMENSIONS_MAX} are the most')
    return source


# ---- laying them out


def _alignment(dtype: str) -> int:
    return min(_ALIGNMENT_MAX, TYPES[dtype].bytes)


class _Range:
    """Memory that dense tensors share."""

    __slots__ = ("device", "address", "end", "owner", "offset")

    def __init__(self, source: Source):
        self.device, self.address, self.end, self.owner = source.device, source.address, _end(source), [source.owner]
        self.offset = 0

    def pieces(self) -> Iterator[memoryview]:
        yield memoryview(_gvmem.memory(self.owner, self.address, self.end - self.address))


def _find_ranges(sources: Iterable[Source]) -> list[_Range]:
    """The ranges of memory that tensors fill, each once, by device and address."""
    ranges: list[_Range] = []
    for source in sorted(sources, key=_place):
        last = ranges[-1] if ranges else None
        if last is not None and last.device == source.device and source.address < last.end:
            last.end = max(last.end, _end(source))
            last.owner.append(source.owner)
        else:
            ranges.append(_Range(source))
    return ranges


def make_dense(name: str, source: Source) -> Source:
    """A copy in C's order of a tensor with gaps, which shares its memory with none that is kept whole."""
    if source.device is not None:
        raise TypeError(f'"{name}" has gaps between its elements: make it contiguous first')
    whole = memoryview(_gvmem.memory(source.owner, source.address, _end(source) - source.address))
    itemsize = TYPES[source.dtype].bytes
    rows, strides = source.shape, source.strides

    def copy(dimension: int, at: int) -> Iterator[memoryview]:
        if dimension == len(rows):
            yield whole[at * itemsize:(at + 1) * itemsize]
        elif strides[dimension:] == strides_of(rows[dimension:]):
            yield whole[at * itemsize:(at + prod(rows[dimension:])) * itemsize]
        else:
            for i in range(rows[dimension]):
                yield from copy(dimension + 1, at + i * strides[dimension])

    data = memoryview(source.owner.tobytes() if isinstance(source.owner, memoryview) else b"".join(copy(0, 0)))
    return Source(source.dtype, rows, strides_of(rows), _gvmem.read_buffer(data), None, data)


def _place(thing: Any) -> tuple[int, int]:
    return -1 if thing.device is None else thing.device, thing.address


def _within(ranges: list[_Range], source: Source) -> Optional[_Range]:
    """The one that has all of it. They are in order."""
    number = bisect_right(ranges, _place(source), key=_place)
    if number == 0:
        return None
    r = ranges[number - 1]
    return r if r.device == source.device and _end(source) <= r.end else None


def lay_out(sources: Mapping[str, Source], make_dense: Callable[[str, Source], Source] = make_dense) -> tuple[dict[str, Layout], list[Block]]:
    """The table of a model, with offsets behind the header, and what is copied where.

    Tensors that share memory share it there. One with gaps stays as it is if all of it is memory of others, and is made dense
    otherwise; the same one under several names is made so once.
    """
    placed: dict[str, Source] = {}
    copies: dict[tuple[Any, ...], Source] = {}
    whole = _find_ranges(source for source in sources.values() if prod(source.shape) and _is_dense(source))
    for name, source in sources.items():
        if prod(source.shape) and not _is_dense(source) and _within(whole, source) is None:
            if source[:5] not in copies:
                copies[source[:5]] = make_dense(name, source)
            source = copies[source[:5]]
        placed[name] = source
    ranges = _find_ranges(source for source in placed.values() if prod(source.shape) and _is_dense(source))
    found = {name: r for name, source in placed.items() if prod(source.shape) and (r := _within(ranges, source)) is not None}
    for name, r in found.items():  # the first byte of a range is aligned for all, or else as it is now
        if (placed[name].address - r.address) % _alignment(placed[name].dtype):
            r.offset = r.address % _ALIGNMENT_MAX
    at = 0
    for r in dict.fromkeys(found.values()):  # neighbours in a model are so in its object
        r.offset += at
        at = _align(r.offset + r.end - r.address)
    table = {}
    for name, source in placed.items():
        offset, size, strides = 0, 0, None
        if name in found:
            r = found[name]
            offset, size = r.offset + source.address - r.address, _end(source) - source.address
            strides = None if source.strides == strides_of(source.shape) or _is_c_order(source) else source.strides
            if offset % _alignment(source.dtype):
                raise ValueError(f'"{name}" lies in the memory of another tensor where {source.dtype} is not aligned')
        table[name] = Layout(source.dtype, source.shape, strides, offset, size)
    return table, [Block(r.offset, r.end - r.address, r.device, r.address, r.pieces) for r in ranges]


def _is_c_order(source: Source) -> bool:
    return all(length <= 1 or stride == wanted
               for length, stride, wanted in zip(source.shape, source.strides, strides_of(source.shape)))


def _align(size: int) -> int:
    return (size + ALIGN - 1) // ALIGN * ALIGN


# ---- the header


def write_header(table: Mapping[str, Layout], metadata: Mapping[str, str]) -> bytes:
    """With its length in front, and as long as blocks are aligned."""
    if not all(isinstance(text, str) for pair in metadata.items() for text in pair):
        raise TypeError(f"metadata are texts by name: {dict(metadata)!r:.200}")
    if any(not isinstance(name, str) or name == "__metadata__" for name in table):
        raise TypeError('tensors have names that are texts, and not "__metadata__"')
    described: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    for name, layout in table.items():
        described[name] = {"dtype": layout.dtype, "shape": layout.shape, "data_offsets": (layout.offset, layout.offset + layout.size)}
        if layout.strides is not None:
            described[name]["strides"] = layout.strides
    text = json.dumps(described, separators=(",", ":")).encode()
    if len(text) > HEADER_BYTES_MAX - ALIGN:
        raise ValueError(f"the table of {len(table)} tensors takes {len(text)} bytes, of which {HEADER_BYTES_MAX} are the most")
    text = text.ljust(_align(_LENGTH.size + len(text)) - _LENGTH.size)
    return _LENGTH.pack(len(text)) + text


def read_length(start: bytes, room: int) -> int:
    """How long the header is of which these are the first 8 bytes, where room bytes are there in all."""
    if len(start) < _LENGTH.size:
        raise ValueError(f"{len(start)} bytes are too few for a header")
    length: int = _LENGTH.unpack_from(start)[0]
    if not 2 <= length <= min(HEADER_BYTES_MAX, room - _LENGTH.size):
        raise ValueError(f"a header of {length} bytes in {room} bytes")
    return length


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _numbers(what: str, values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or len(values) > _DIMENSIONS_MAX:
        raise ValueError(f"{what} are {str(values)[:100]}")
    for value in values:  # a plain loop: models have thousands of tensors
        if type(value) is not int or not 0 <= value < 2**63:
            raise ValueError(f"{what} are {str(values)[:100]}")
    return tuple(values)


def _read_layout(said: Any, data_bytes: int, is_file: bool) -> Layout:
    if not isinstance(said, dict) or not {"dtype", "shape", "data_offsets"} <= said.keys():
        raise ValueError("it has no dtype, shape and data_offsets")
    dtype, shape = said["dtype"], _numbers("its lengths", said["shape"])
    if not isinstance(dtype, str) or dtype not in TYPES or (is_file and dtype == "C128"):
        raise ValueError(f"there are no arrays of its dtype, {str(dtype)[:40]!r}")
    offsets = _numbers("its data_offsets", said["data_offsets"])
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= data_bytes:
        raise ValueError(f"its data_offsets {offsets} do not lie in {data_bytes} bytes")
    strides = None
    if not is_file and "strides" in said:
        strides = _numbers("its strides", said["strides"])
        if len(strides) != len(shape):
            raise ValueError(f"it has {len(strides)} strides for {len(shape)} dimensions")
    if _is_too_large(dtype, shape):
        raise ValueError(f"its lengths {shape} are too many elements")
    count, size = prod(shape), offsets[1] - offsets[0]
    if strides is not None and count:
        count = 1 + sum(stride * (length - 1) for stride, length in zip(strides, shape))
    if count * TYPES[dtype].bytes != size:
        raise ValueError(f"its shape takes {count * TYPES[dtype].bytes} bytes, and its data_offsets are {size} apart")
    return Layout(dtype, shape, strides, offsets[0], size)


def read_header(text: bytes, data_bytes: int, is_file: bool) -> tuple[dict[str, Layout], dict[str, str]]:
    """The table and the metadata of a header, checked, and that of a file as its format has it: its tensors fill what is
    behind the header, each byte once."""
    if text[:1] != b"{":
        raise ValueError("the header does not begin with {")
    try:
        described = json.loads(text.decode(), object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("the header is nested too deeply") from None
    metadata = described.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("__metadata__ is no mapping of texts to texts")
    table = {}
    for name, said in described.items():
        try:
            table[name] = _read_layout(said, data_bytes, is_file)
        except ValueError as error:
            raise ValueError(f'tensor "{name[:200]}": {error}') from None
    if is_file:
        at = 0
        for layout in sorted(table.values(), key=lambda layout: (layout.offset, layout.size)):
            if layout.offset != at:
                raise ValueError(f"tensors overlap, or there is a gap, at byte {at} behind the header")
            at += layout.size
        if at != data_bytes:
            raise ValueError(f"there are {data_bytes} bytes behind the header, and tensors have {at} of them")
    return table, metadata


# ---- files of safetensors


class File:
    """A file of safetensors, open."""

    def __init__(self, path: Any):
        self.path = os.fspath(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO has no bytes, and is not waited for
        try:
            size = os.fstat(self._fd).st_size
            length = read_length(self._read(0, min(size, _LENGTH.size)), size)
            self._start = _LENGTH.size + length
            self.table, self.metadata = read_header(self._read(_LENGTH.size, length), size - self._start, True)
        except ValueError as error:
            self.close()
            raise ValueError(f"{self.path} is no file of safetensors: {error}") from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the file; twice is nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _fill(self, view: memoryview, at: int) -> None:
        while view.nbytes:
            done = os.preadv(self._fd, [view], at)
            if not done:
                raise ValueError(f"{self.path} ends at byte {at}, and has become shorter")
            view, at = view[done:], at + done

    def _read(self, at: int, size: int) -> bytes:
        got = bytearray(size)
        self._fill(memoryview(got), at)
        return bytes(got)

    def pieces(self, layout: Layout) -> Iterator[memoryview]:
        """The bytes of a tensor. Each piece is valid until the next one."""
        buffer = memoryview(bytearray(min(_READ_BYTES, layout.size)))
        for done in range(0, layout.size, _READ_BYTES):
            piece = buffer[:min(_READ_BYTES, layout.size - done)]
            self._fill(piece, self._start + layout.offset + done)
            yield piece


def lay_out_files(files: Iterable[File]) -> tuple[dict[str, Layout], list[Block]]:
    """As lay_out(), of all tensors of files."""
    table: dict[str, Layout] = {}
    blocks, at = [], 0
    for file in files:
        for name, layout in sorted(file.table.items(), key=lambda item: item[1].offset):
            if name in table:
                raise ValueError(f'tensor "{name}" is in {file.path} and in a file before it')
            table[name] = layout._replace(offset=at)
            blocks.append(Block(at, layout.size, None, 0, lambda file=file, layout=layout: file.pieces(layout)))  # type: ignore[misc]
            at = _align(at + layout.size)
    return table, blocks
