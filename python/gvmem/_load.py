"""Rows for a PostgreSQL table, as columns: packed in Arrow's layout, copied to memory of the server, and appended by SQL.

The layout is that of gvmem/gstore_arrow.h. Values stay where they are until they are copied; bitmaps, and offsets that are put
together from several batches, are made anew.
"""
from __future__ import annotations

import ctypes
import re
import struct
from array import array
from itertools import accumulate
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence

from . import _gvmem
from ._wait import run

_HEAD = struct.Struct("<QQIIB3xIII24x")
_COLUMN = struct.Struct("<64s16s16s16x8QQ8x")
_ALIGN = 64
_COLUMNS_MAX = 1664
_SMALL = 1 << 20  # what is smaller is copied together
_GROUP_BYTES = 256 << 20  # about so much of a stream is loaded at a time

_FORMATS = {"?": "b", "h": "s", "i": "i", "l": "l", "q": "l", "I": "I", "f": "f", "d": "g"}  # by the buffer protocol's
_WIDTHS = {"s": 2, "i": 4, "l": 8, "I": 4, "f": 4, "g": 8, "tdD": 4, "ttu": 8, "e": 2}
_OFFSETS = {"u": 4, "z": 4, "+l": 4, "U": 8, "Z": 8, "+L": 8}  # their width, of what has offsets
_DECIMAL = re.compile(r"d:[0-9]+,-?[0-9]+(,128)?")
_SIGNED, _UNSIGNED, _BYTES = frozenset("bhilqn"), frozenset("BHILQN"), re.compile(r"[bBc]|[0-9]*[sx]")  # the buffer protocol's, of the machine's order
_FLOATS = {"e": "e", "f": "f", "g": "d"}
_DLPACK = {(0, 16): "h", (0, 32): "i", (0, 64): "q", (1, 8): "B", (1, 32): "I", (2, 32): "f", (2, 64): "d", (6, 8): "?"}


class Values:
    """Values of a column, where an array alone does not say enough. For load().

    data: the values; with offsets the bytes of all texts, or the elements of all lists, one after the other.
    validity: for each row whether it is not NULL; an array of booleans.
    offsets: row r is data[offsets[r]:offsets[r + 1]]; 32 or 64 bits.
    format: of Arrow's C data interface, where data does not tell: "Z" for bytea, "tsu:", "tsu:UTC", "tdD", "ttu" for times as
        integers; of lists that of their elements.
    """

    __slots__ = ("data", "validity", "offsets", "format")

    def __init__(self, data: Any, *, validity: Any = None, offsets: Any = None, format: Optional[str] = None):
        self.data, self.validity, self.offsets, self.format = data, validity, offsets, format


class _Buffer:
    """Pieces that follow each other."""

    def __init__(self, *pieces: Any):
        views = [memoryview(piece) for piece in pieces]
        self.pieces = [view.cast("B") for view in views if view.nbytes]
        self.bytes = sum(piece.nbytes for piece in self.pieces)


class _Column(NamedTuple):
    name: str
    format: str
    element: str
    rows: int
    validity: Optional[_Buffer]
    offsets: Optional[_Buffer]
    values: Optional[_Buffer]
    element_validity: Optional[_Buffer]
    elements: int

    @property
    def buffers(self) -> tuple[Optional[_Buffer], ...]:
        return self.validity, self.offsets, self.values, self.element_validity


def _column(name: str, format: str, rows: int, values: Optional[_Buffer], validity: Any = None, offsets: Optional[_Buffer] = None,
            element: str = "", element_validity: Optional[_Buffer] = None, elements: int = 0) -> _Column:
    return _Column(name, _utc(format), _utc(element), rows, _Buffer(validity) if validity else None, offsets, values, element_validity,
                   elements)


def _utc(format: str) -> str:
    """Whatever a time's zone is, values count from 1970 UTC."""
    return "tsu:UTC" if format.startswith("tsu:") and format[4:] else format


# ---- from arrays and lists


def _view(name: str, data: Any) -> tuple[Any, str]:
    """The values of an array in memory of the CPU, next to each other, and their format. The view's own is another for "e",
    which memoryview.cast() does not have before Python 3.12.
    """
    code = ""
    try:
        view = memoryview(data)
    except TypeError:
        if not hasattr(data, "__dlpack__"):
            raise TypeError(f'column "{name}": {type(data).__name__} has no buffer, DLPack or Arrow interface') from None
        view, code = _view_of_dlpack(name, data)
    except (ValueError, BufferError) as error:
        raise TypeError(f'column "{name}": {error}') from None
    code = code or view.format.lstrip("@=<")
    if view.c_contiguous and view.format == code or not view.nbytes or len(code) != 1:
        return view, code
    return memoryview(view.tobytes()).cast("H" if code == "e" else code, view.shape), code


def _view_of_dlpack(name: str, data: Any) -> tuple[Any, str]:
    """It and its format, which is not the view's own if there are no values in several dimensions."""
    try:
        capsule = data.__dlpack__(max_version=(1, 0))
    except TypeError:
        capsule = data.__dlpack__()
    memory, code, bits, shape = _gvmem.of_dlpack(capsule)
    if (code, bits) not in _DLPACK:
        raise TypeError(f'column "{name}": values of {bits} bits of DLPack\'s type {code} have no type in SQL')
    view: Any = memoryview(memory)
    found = _DLPACK[code, bits]
    if view.nbytes:
        return view.cast(found, shape), found
    if len(shape) == 1:
        return view.cast(found), found
    empty: Any = ctypes.c_uint8
    for length in reversed(shape):
        empty = empty * length
    return memoryview(empty()), found


def _formats_of(name: str, view: Any, code: str) -> tuple[str, str]:
    """Of the values, and of their elements if they are lists of one length."""
    format = _FORMATS.get(code) if code != "l" or view.itemsize == 8 else None
    if view.ndim == 1 and format:
        return format, ""
    if view.ndim == 2 and view.shape[1]:
        if code == "B":
            return f"w:{view.shape[1]}", ""
        if code == "e" or format not in (None, "b"):
            return f"+w:{view.shape[1]}", format or "e"
    raise TypeError(f'column "{name}": values of format {code!r} in {view.ndim} dimensions have no type in SQL')


def _check_code(name: str, view: Any, code: str, format: str) -> None:
    """Refuses values that a format of the same width, which the caller has named, would read as others."""
    if format in _FLOATS:
        fits = code == _FLOATS[format]
    elif format == "b":
        fits = code in ("?", "b", "B")
    elif format.startswith(("w:", "d:")):
        fits = _BYTES.fullmatch(code) is not None
    else:
        fits = code in (_UNSIGNED if format == "I" else _SIGNED)
    if view.nbytes and not fits:
        swapped = ', whose bytes are in the other order: cast the array by astype(array.dtype.newbyteorder("="))' if code[:1] in (">", "!") else ""
        raise TypeError(f'column "{name}": values of the buffer protocol\'s format {code!r} are none of format "{format}"{swapped}')


def _bits(name: str, validity: Any, rows: int) -> Optional[bytes]:
    if validity is None:
        return None
    view, _ = _view(name, bytes(map(bool, validity)) if isinstance(validity, (list, tuple)) else validity)
    if view.itemsize != 1 or view.shape != (rows,):
        raise TypeError(f'column "{name}": validity is an array of {rows} booleans, one a row, not of shape {view.shape}')
    return _gvmem.pack_bits(view)


def _from_texts(name: str, texts: Sequence[Any]) -> _Column:
    kinds = {type(text) for text in texts} - {type(None)}
    if not all(issubclass(kind, str) for kind in kinds) and not all(issubclass(kind, (bytes, bytearray)) for kind in kinds):
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(f'column "{name}": a list is one of str or of bytes, and None; numbers come as arrays (here {names})')
    if texts and not kinds:
        return _column(name, "n", len(texts), None)
    binary = bool(kinds) and not all(issubclass(kind, str) for kind in kinds)
    bodies = [b"" if text is None else text if binary else text.encode() for text in texts]
    offsets = array("q", accumulate(map(len, bodies), initial=0))
    validity = _gvmem.pack_bits(bytes(text is not None for text in texts)) if None in texts else None
    return _column(name, "Z" if binary else "U", len(texts), _Buffer(b"".join(bodies)), validity, _Buffer(offsets))


def _from_times(name: str, times: Any) -> _Column:
    """NumPy's datetime64. NaT is NULL, and so is what a mask hides."""
    mask = None
    if is_masked(times):
        times, mask = times.data, times.mask if times.mask.shape else None
    if times.ndim != 1:
        raise TypeError(f'column "{name}": times in {times.ndim} dimensions have no type in SQL')
    valid = times == times
    if mask is not None:
        valid &= ~mask
    if not valid.all():
        times = times.copy()
        times.view("i8")[~valid] = 0  # what is NULL is not converted: from NumPy 2 on that may raise OverflowError
    unit = times.dtype.str[1:]
    if unit == "M8[D]":
        format, found = "tdD", times.astype("<M8[D]").view("i8")
        cast = found.astype("i4")
        exact = cast == found
        why = "beyond 32 bits of days: correct it, or load it as a timestamp"
    else:
        format, why = "tsu:", "beyond 64 bits of microseconds: correct it"
        if unit[3:-1].lstrip("0123456789") in ("ns", "ps", "fs", "as"):
            why = 'not a whole number of microseconds: cast the column by astype("M8[us]")'
        try:
            cast = times.astype("<M8[us]")
            exact = cast.astype(times.dtype) == times
        except OverflowError:
            counts = times.astype("i8")
            raise ValueError(f'column "{name}": a time from {counts.min()} to {counts.max()} in {unit} is {why}') from None
        cast = cast.view("i8")
    wrong = valid & ~exact
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f'column "{name}": row {row}, {times[row:row + 1].astype("i8")[0]} in {unit}, is {why}')
    return _from_values(name, Values(cast, validity=None if valid.all() else valid, format=format))


def _from_values(name: str, values: Values) -> _Column:
    view, code = _view(name, values.data)
    if values.offsets is not None:
        return _from_offsets(name, values, view, code)
    format, element = (values.format, "") if values.format else _formats_of(name, view, code)
    rows = view.shape[0] if view.ndim else 0
    width = view.shape[1] * view.itemsize if element else _width(format)
    if width is None or width * rows != view.nbytes:
        raise TypeError(f'column "{name}": {rows} rows of format "{format}" are not {view.nbytes} bytes')
    if values.format:
        _check_code(name, view, code, format)
    data = _Buffer(_gvmem.pack_bits(view) if format == "b" else view)
    return _column(name, format, rows, data, _bits(name, values.validity, rows), None, element,
                   elements=rows * view.shape[1] if element else 0)


def _from_offsets(name: str, values: Values, view: Any, code: str) -> _Column:
    offsets, kind = _view(name, values.offsets)
    if kind not in ("i", "l", "q") or offsets.ndim != 1 or not offsets.shape[0]:
        raise TypeError(f'column "{name}": offsets are an array of signed 32 or 64 bits, one more than rows')
    rows = offsets.shape[0] - 1
    validity = _bits(name, values.validity, rows)
    moved = _Buffer(offsets if offsets.itemsize == 8 else _gvmem.move_offsets(offsets, 4, 0))
    if view.itemsize == 1 and view.ndim == 1 and code != "?":
        if values.format not in (None, "U", "Z"):
            raise TypeError(f'column "{name}": texts are of format "U" or "Z", not "{values.format}"')
        return _column(name, values.format or "U", rows, _Buffer(view), validity, moved)
    element = values.format or _formats_of(name, view, code)[0]
    if view.ndim != 1 or (_width(element) or 0) * view.shape[0] != view.nbytes:
        raise TypeError(f'column "{name}": elements of format "{element}" are not of {view.itemsize} bytes')
    if values.format:
        _check_code(name, view, code, element)
    data = _Buffer(_gvmem.pack_bits(view) if element == "b" else view)
    return _column(name, "+L", rows, data, validity, moved, element, elements=view.shape[0])


def is_masked(values: Any) -> bool:
    """Whether it is a masked array of NumPy."""
    return hasattr(values, "mask") and hasattr(values, "filled")


def _from_anything(name: str, values: Any) -> _Column:
    if isinstance(values, Values):
        return _from_values(name, values)
    if hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__"):
        schema, batches = _open_arrow(values)
        arrays = [(holder, _Place(*tree)) for holder, tree in batches]
        return _from_arrow(name, schema, arrays)
    if hasattr(values, "to_numpy"):  # a series of pandas
        values = values.to_numpy()
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if kind == "M":
        return _from_times(name, values)
    if kind in ("U", "S", "O", "T"):
        values = values.tolist()
    if isinstance(values, (list, tuple)):
        return _from_texts(name, values)
    if is_masked(values):
        masked = values.mask
        return _from_values(name, Values(values.data, validity=~masked if masked.shape else None))
    return _from_values(name, Values(values))


def _width(format: str) -> Optional[int]:
    """Bytes of a value of fixed length; None: there is no such format."""
    if format.startswith("tsu:"):
        return 8
    if format.startswith("w:") and format[2:].isdigit():
        return int(format[2:])
    if _DECIMAL.fullmatch(format):
        return 16
    return _WIDTHS.get(format, 1 if format == "b" else None)


def _count(format: str) -> int:
    """Of elements in each list of one length; 0: it is no such list."""
    return int(format[3:]) if format.startswith("+w:") and format[3:].isdigit() else 0


# ---- from Arrow's C interfaces


class _Place(NamedTuple):
    """An array of Arrow: some rows of its buffers."""

    length: int
    offset: int
    buffers: list[int]
    children: list[Any]


def _open_arrow(values: Any) -> tuple[Any, Iterator[tuple[Any, Any]]]:
    """The schema, and arrays with what owns them."""
    if hasattr(values, "__arrow_c_stream__"):
        stream = values.__arrow_c_stream__()
        schema = _gvmem.arrow_schema(_gvmem.arrow_stream_schema(stream))
        capsules = iter(lambda: run(_gvmem.arrow_stream_next, stream), None)
    else:
        schema_capsule, capsule = values.__arrow_c_array__()
        schema, capsules = _gvmem.arrow_schema(schema_capsule), iter([capsule])
    return schema, ((capsule, _gvmem.arrow_array(capsule)) for capsule in capsules)


def _batches(values: Any) -> tuple[list[Any], Iterator[tuple[Any, list[_Place]]]]:
    """The schemas of a table's columns, and batches of it: each column with the batch's own rows."""
    (format, _, fields, _), arrays = _open_arrow(values)
    if format != "+s":
        raise TypeError(f'that is a column of Arrow\'s format "{format}", not a table of columns')

    def places() -> Iterator[tuple[Any, list[_Place]]]:
        for holder, tree in arrays:
            whole = _Place(*tree)
            if whole.buffers and whole.buffers[0]:
                raise ValueError("rows that are NULL as a whole cannot be loaded")
            yield holder, [_Place(whole.length, whole.offset + child[1], child[2], child[3]) for child in whole.children]

    return fields, places()


def _join_bits(arrays: list[tuple[Any, _Place]], buffer: int) -> Optional[bytearray]:
    """A bitmap of all of them; None where none of them has one."""
    if not any(place.buffers[buffer] for _, place in arrays):
        return None
    rows, at = sum(place.length for _, place in arrays), 0
    bits = bytearray((rows + 7) // 8)
    for holder, place in arrays:
        address, end = place.buffers[buffer], place.offset + place.length
        source = _gvmem.memory(holder, address, (end + 7) // 8) if address else None
        _gvmem.put_bits(bits, at, source, place.offset, place.length)
        at += place.length
    return bits


def _join_fixed(arrays: list[tuple[Any, _Place]], width: int) -> _Buffer:
    return _Buffer(*(_gvmem.memory(holder, place.buffers[1] + width * place.offset, width * place.length)
                     for holder, place in arrays))


def _offsets_of(holder: Any, place: _Place, width: int) -> tuple[memoryview, int, int]:
    """An array's offsets, as bytes; the first and the last of them."""
    own = memoryview(_gvmem.memory(holder, place.buffers[1] + width * place.offset, width * (place.length + 1)))
    numbers = own.cast("i" if width == 4 else "q")
    first, last = numbers[0], numbers[-1]
    if not 0 <= first <= last:
        raise ValueError(f"offsets from {first} to {last}")
    return own, first, last


def _join_offsets(arrays: list[tuple[Any, _Place]], width: int) -> tuple[_Buffer, list[tuple[int, int]]]:
    """Offsets that count on over all of them, and the part of the bodies that each uses."""
    moved, parts, end = [struct.pack("<q", 0)], [], 0
    for holder, place in arrays:
        own, first, last = _offsets_of(holder, place, width)
        moved.append(_gvmem.move_offsets(own[width:], width, end - first))
        parts.append((first, last))
        end += last - first
    return _Buffer(*moved), parts


def _part(array: Any, first: int, length: int) -> _Place:
    """Some elements of a list's child."""
    _, offset, buffers, children = array
    return _Place(length, offset + first, buffers, children)


def _elements(name: str, schema: Any, arrays: list[tuple[Any, _Place]], validity: Any, offsets: Optional[_Buffer] = None) -> Any:
    """What the rest of a column of lists is."""
    inner = _from_arrow(name, schema, arrays)
    if inner.offsets is not None or inner.element or inner.format == "n":
        raise TypeError(f'column "{name}": lists of Arrow\'s format "{inner.format}" cannot be loaded')
    return inner.values, validity, offsets, inner.format, inner.validity, inner.rows


def _from_arrow(name: str, schema: Any, arrays: list[tuple[Any, _Place]]) -> _Column:
    format, _, fields, has_dictionary = schema
    rows = sum(place.length for _, place in arrays)
    arrays = [(holder, place) for holder, place in arrays if place.length]
    if format == "n":
        return _column(name, "n", rows, None)
    width, count = _width(format), _count(format)
    if has_dictionary or (width is None and not count and format not in _OFFSETS):
        what = "a dictionary" if has_dictionary else f'Arrow\'s format "{format}"'
        raise TypeError(f'column "{name}" is of {what}, which has no type in SQL: cast it first')
    validity = _join_bits(arrays, 0)
    if format == "b":
        return _column(name, "b", rows, _Buffer(_join_bits(arrays, 1) or b""), validity)
    if width is not None:
        return _column(name, format, rows, _join_fixed(arrays, width), validity)
    if count:
        lists = [(holder, _part(place.children[0], count * place.offset, count * place.length)) for holder, place in arrays]
        return _column(name, format, rows, *_elements(name, fields[0], lists, validity))
    offsets, parts = _join_offsets(arrays, _OFFSETS[format])
    if format not in ("+l", "+L"):
        bodies = _Buffer(*(_gvmem.memory(holder, place.buffers[2] + first, last - first)
                           for (holder, place), (first, last) in zip(arrays, parts)))
        return _column(name, format.upper(), rows, bodies, validity, offsets)
    lists = [(holder, _part(place.children[0], first, last - first)) for (holder, place), (first, last) in zip(arrays, parts)]
    return _column(name, "+L", rows, *_elements(name, fields[0], lists, validity, offsets))


# ---- the whole of it


def _align(size: int) -> int:
    return (size + _ALIGN - 1) // _ALIGN * _ALIGN


def _lay_out(columns: list[_Column]) -> tuple[int, list[tuple[int, memoryview]]]:
    """How long it is, and what goes where."""
    rows = {column.rows for column in columns}
    if len(rows) != 1:
        raise ValueError("columns of different length: " + ", ".join(f'"{column.name}" {column.rows}' for column in columns))
    if len(columns) > _COLUMNS_MAX:
        raise ValueError(f"{len(columns)} columns are more than {_COLUMNS_MAX}")
    at, pieces, described = _align(_HEAD.size + _COLUMN.size * len(columns)), [], b""
    for column in columns:
        places: list[int] = []
        for buffer in column.buffers:
            if buffer is None or (not buffer.bytes and buffer is not column.offsets):
                places += [0, 0]
                continue
            places += [at, buffer.bytes]
            for piece in buffer.pieces:
                pieces.append((at, piece))
                at += piece.nbytes
            at = _align(at)
        name = column.name.encode()
        if not 0 < len(name) < 64 or b"\0" in name:
            raise ValueError(f"{column.name!r} is no name of a column")
        described += _COLUMN.pack(name, column.format.encode(), column.element.encode(), *places, column.elements)
    head = _HEAD.pack(at, rows.pop(), _gvmem.ARROW_VERSION, len(columns), ord("a"), _HEAD.size, _COLUMN.size, 0)
    return at, [(0, memoryview(head + described)), *pieces]


def copy_pieces(handle: _gvmem.Object, pieces: Iterable[tuple[int, memoryview]]) -> None:
    """Small ones that are near each other go together."""
    gathered, start = bytearray(), 0

    def flush() -> None:
        if gathered:
            run(handle.copy_in, start, bytes(gathered), _gvmem.FOREVER)
            gathered.clear()

    for at, piece in pieces:
        if not piece.nbytes:
            continue
        if piece.nbytes >= _SMALL:
            flush()
            run(handle.copy_in, at, piece, _gvmem.FOREVER)
            continue
        if not gathered or at + piece.nbytes - start > _SMALL:
            flush()
            start = at
        gathered += bytes(at - start - len(gathered)) + piece
    flush()


def _fetch_value(cursor: Any) -> Any:
    """The only value of the only row, whether rows are sequences or mappings."""
    row = cursor.fetchone()
    return next(iter(row.values())) if isinstance(row, Mapping) else row[0]


def _load_columns(cursor: Any, table: str, columns: list[_Column]) -> int:
    size, pieces = _lay_out(columns)
    token, loaded = None, False
    cursor.execute("SELECT gstore_load_begin(CAST(%s AS reggstore), %s)", (table, size))
    try:
        token = _fetch_value(cursor)
        client, handle = run(_gvmem.open_load, token)
        try:
            copy_pieces(handle, pieces)
        finally:
            handle.close()
            client.close()
        cursor.execute("SELECT gstore_load(CAST(%s AS reggstore), %s)", (table, token))
        rows = _fetch_value(cursor)
        loaded = True
    finally:
        if not loaded and token is not None:
            try:
                cursor.execute("SELECT gstore_revoke(%s)", (token,))
            except Exception:  # the transaction has failed, and takes the token with it
                pass
    return rows


def _load_stream(cursor: Any, table: str, values: Any) -> int:
    """In groups of batches, so that no more of a stream is in memory."""
    fields, batches = _batches(values)
    loaded, size = 0, 0
    group: list[tuple[Any, list[_Place]]] = []

    def flush() -> int:
        columns = [_from_arrow(field[1], field, [(holder, places[i]) for holder, places in group])
                   for i, field in enumerate(fields)]
        group.clear()
        return _load_columns(cursor, table, columns) if columns and columns[0].rows else 0

    for holder, places in batches:
        if size >= _GROUP_BYTES:
            _check_transaction(cursor)
            loaded, size = loaded + flush(), 0
        group.append((holder, places))
        size += sum(_size(holder, field, place) for field, place in zip(fields, places))
    return loaded + (flush() if group else 0)


def _check_transaction(cursor: Any) -> None:
    """Refuses to load several groups where each would be a transaction of its own. A driver that cannot be asked passes."""
    connection = getattr(cursor, "connection", None)
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    if getattr(connection, "autocommit", None) is True and status == 0:  # psycopg and psycopg2: idle
        raise ValueError("the stream is loaded in several parts, and under autocommit each would be committed by itself: "
                         "load it in a transaction")


def _size(holder: Any, schema: Any, place: _Place) -> int:
    """How many bytes the rows take, of bitmaps about so many. What cannot be loaded counts as nothing."""
    format, _, fields, _ = schema
    width, count = _width(format), _count(format)
    if width is not None:
        return place.length * width
    if count:
        return _size(holder, fields[0], _part(place.children[0], count * place.offset, count * place.length))
    if not place.length or format not in _OFFSETS:
        return 0
    _, first, last = _offsets_of(holder, place, _OFFSETS[format])
    offsets = 8 * place.length
    if format in ("+l", "+L"):
        return offsets + _size(holder, fields[0], _part(place.children[0], first, last - first))
    return offsets + last - first


def load(connection: Any, table: str, columns: Any) -> int:
    """Appends rows to a table of gstore_fdw, in the connection's transaction, by columns. Returns how many rows.

    connection: of psycopg, psycopg2 or another DB-API module with %s parameters, or a cursor of one.
    table: its name, as SQL writes it.
    columns: a mapping of names to values, or a table or stream of Arrow (pyarrow, polars, DuckDB and others have
        __arrow_c_stream__), which is loaded in parts. Values are arrays with a buffer or DLPack in memory of the CPU, NumPy's
        datetime64, lists of str or bytes with None for NULL, arrays of Arrow, or gvmem.Values.

    Under autocommit a stream of several parts is a ValueError, as each part would be a transaction of its own. This is known
    of psycopg and psycopg2; with other modules begin a transaction before.

    Types must be the column's own: an int column takes 32 bits, bigint 64. What is not there gets its default.
    """
    if hasattr(columns, "__arrow_c_stream__") or hasattr(columns, "__arrow_c_array__"):
        packed = None
    elif isinstance(columns, Mapping):
        packed = [_from_anything(name, values) for name, values in columns.items()]
        if not packed:
            raise ValueError("no columns")
        _lay_out(packed)  # what it refuses is refused before SQL is asked for anything
    else:
        raise TypeError(f"{type(columns).__name__} is neither a mapping of columns nor a table of Arrow")
    if not hasattr(connection, "execute") and not hasattr(connection, "cursor"):
        raise TypeError(f"{type(connection).__name__} is neither a connection nor a cursor of psycopg or another DB-API module")
    cursor = connection if hasattr(connection, "execute") and hasattr(connection, "fetchone") else connection.cursor()
    try:
        return _load_stream(cursor, table, columns) if packed is None else _load_columns(cursor, table, packed)
    finally:
        if cursor is not connection:
            cursor.close()
