"""Tables of PostgreSQL in GPU memory, attached by token (gvmem/table.h)."""
from __future__ import annotations

import contextlib
import threading
from types import MappingProxyType
from typing import Any, Mapping, Optional

from . import _gvmem
from ._array import _Held, kept_stream
from ._keeper import Info, hint_number
from ._wait import milliseconds, run, run_with_lease

_BYTES = "|u1"
_ARROW = {"e": "<f2", "s": "<i2", "i": "<i4", "l": "<i8", "I": "<u4", "f": "<f4", "g": "<f8", "tdD": "<i4", "ttu": "<i8", "tsu:": "<i8",
          "tsu:UTC": "<i8"}
_POSTGRES = {16: "|b1", 18: "|i1", 20: "<i8", 21: "<i2", 23: "<i4", 26: "<u4", 700: "<f4", 701: "<f8", 1082: "<i4", 1083: "<i8",
             1114: "<i8", 1184: "<i8"}  # OIDs
_PARTS = 4


class Column:
    """A column under a lease: arrays, which are read-only, or None where there is no such part.

    data: the values, a row each; lists of one length have a second dimension, and so have the bytes of what is no number. Of
        text, bytea and lists the bytes or elements one after the other; of boolean in layout "arrow" bits.
    offsets: in layout "arrow" row r is data[offsets[r]:offsets[r + 1]]; in "pgstrom" it says where a varlena begins, as
        gvmem/table.h has it, and 0 is NULL.
    validity: bit r % 8 of byte r // 8 is 1 if row r is not NULL; None: no row is.
    element_validity: of a list's elements.
    """

    def __init__(self, hold: _gvmem.Hold, place: int, rows: int, info: Info):
        self._hold, self._first = hold, _PARTS * place
        self.info, self.name, self.type, self.rows = info, info.name, info.type_name, rows
        first = _PARTS * place
        values, bodies = first, first + 2

        def fixed(part: int, dtype: str, *shape: int) -> _gvmem.Array:
            return hold.array(part, 0, dtype, shape if hold.region(part)[1] else (0, *shape[1:]))

        def bits(part: int) -> Optional[_gvmem.Array]:
            return hold.array(part, 0, _BYTES, None) if hold.region(part)[0] else None

        self.data: Optional[_gvmem.Array] = None
        self.offsets: Optional[_gvmem.Array] = None
        self.validity, self.element_validity = bits(first + 1), bits(first + 3)
        if info.absent:
            return
        uniform = getattr(info, "uniform", 0)
        if info.arrow in ("U", "Z", "+L"):
            self.offsets = fixed(values, "<i8", rows + 1)
            dtype = _ARROW.get(info.arrow_element)
            self.data = hold.array(bodies, 0, dtype or _BYTES, None if dtype or info.arrow != "+L" else (-1, info.element_length))
        elif info.arrow is None and info.length < 0 and not uniform:
            self.offsets = fixed(values, f"<u{info.width}", rows)
            self.data = hold.array(bodies, 0, _BYTES, None)
        elif info.width == 0:
            self.data = hold.array(values, 0, _BYTES, None)
        elif info.arrow is not None and info.arrow.startswith("+w:") and info.arrow_element in _ARROW:
            self.data = fixed(values, _ARROW[info.arrow_element], rows, int(info.arrow[3:]))
        else:
            dtype = _ARROW.get(info.arrow) if info.arrow is not None else None if uniform else _POSTGRES.get(info.base_type)
            self.data = fixed(values, dtype, rows) if dtype else fixed(values, _BYTES, rows, info.width)

    def _node(self) -> tuple[Any, ...]:
        """It, as Arrow lays it out: (format, name, length, null count, buffers, child)."""
        arrow, element = self.info.arrow, self.info.arrow_element
        name = self.name.encode("utf-8", "replace").decode()  # Arrow's are UTF-8, whatever the database's encoding is
        if arrow is None:
            raise TypeError(f'column "{self.name}" is of a table of layout "pgstrom": Arrow\'s arrays are those of layout "arrow"')
        values, nulls, bodies, element_nulls = (self._hold.region(self._first + part)[0] for part in range(_PARTS))
        count, element_count = (-1 if bitmap else 0 for bitmap in (nulls, element_nulls))  # of NULLs: without a bitmap there are none
        if arrow == "n":
            return (arrow, name, self.rows, self.rows, (), None)
        if arrow in ("U", "Z"):
            return (arrow, name, self.rows, count, (nulls, values, bodies), None)
        child = None
        if arrow == "+L":
            elements = self.data.shape[0] if self.data is not None else 0
            child = (element, "item", elements, element_count, (element_nulls, bodies), None)
            return (arrow, name, self.rows, count, (nulls, values), child)
        if arrow.startswith("+w:"):
            child = (element, "item", self.rows * int(arrow[3:]), element_count, (element_nulls, values), None)
            return (arrow, name, self.rows, count, (nulls,), child)
        return (arrow, name, self.rows, count, (nulls, values), None)

    def __arrow_c_schema__(self) -> Any:
        """Its type, as a capsule of Arrow's C data interface."""
        return _gvmem.arrow_make_schema(self._node())

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """It as an array of Arrow in memory of the CPU, without a copy; on a GPU under cpu=True alone. The consumer keeps the
        lease."""
        node = self._node()
        return _gvmem.arrow_make_schema(node), _gvmem.arrow_export(self._hold, node, False)

    def __arrow_c_device_array__(self, requested_schema: Any = None, **kwargs: Any) -> tuple[Any, Any]:
        """It as an array of Arrow where it is, without a copy. The consumer keeps the lease; no stream has to wait."""
        unknown = [name for name, value in kwargs.items() if value is not None]
        if unknown:
            raise NotImplementedError(f"there is no argument {unknown[0]}")
        node = self._node()
        return _gvmem.arrow_make_schema(node), _gvmem.arrow_export(self._hold, node, True)

    def __repr__(self) -> str:
        return f"<gvmem.Column {self.name}: {self.type}, {self.rows} rows{', ended' if self._hold.ended else ''}>"

    def release(self, stream: Any = None) -> bool:
        """Ends the lease, which other columns of the same read() share; as Lease.release()."""
        return self._hold.end(kept_stream(stream))


class TableLease(_Held):
    """A lease on columns of a table; entered, it is a mapping of names to columns."""

    __slots__ = ()


class Table:
    """A table of a PostgreSQL server: gvmem.Table(token), with the token from gstore_export().

        with table.read("price", "quantity") as columns:
            numpy.asarray(columns["price"].data)

    It is one revision, of `rows` rows; what SQL changes later is not seen. table["price"] is a column with a lease of its own,
    which lasts until the column and what has consumed it are gone.
    """

    def __init__(self, token: str, *, whole: bool = False):
        """whole: opens all columns at once, so that they stay whatever becomes of the token."""
        self._table = run(_gvmem.attach, token, _gvmem.TABLE_WHOLE if whole else 0)
        info = self._table.info()
        self.schema: str = info["schema"]
        self.name: str = info["name"]
        self.layout: str = info["layout"]
        self.rows: int = info["rows"]
        self.revision: int = info["revision"]
        columns = [Info(**self._table.column(i)) for i in range(info["columns"])]
        self.columns: Mapping[str, Info] = MappingProxyType({column.name: column for column in columns})
        self._places = {column.name: place for place, column in enumerate(columns)}

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        # Whoever has made the table has named it, and this goes to terminals.
        name = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in f"{self.schema}.{self.name}")
        return f"<gvmem.Table {name}, {self.rows} rows{', closed' if self.closed else ''}>"

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, name: str) -> Column:
        hold = self._acquire((name,), None, None, False, None)
        try:
            return Column(hold, 0, self.rows, self.columns[name])
        except BaseException:
            with contextlib.suppress(Exception):
                hold.end(None)
            raise

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    __iter__ = None  # or Python would count rows from 0

    def _acquire(self, names: tuple[str, ...], timeout: Optional[float], hint: Optional[str], cpu: bool,
                 stream: Any) -> _gvmem.Hold:
        places, asked, kept = tuple(self._places[name] for name in names), hint_number(hint), kept_stream(stream)
        flags, thread = (_gvmem.ACQUIRE_CPU if cpu else 0), threading.get_ident()

        def acquire(timeout_ms: int) -> _gvmem.Hold:
            return self._table.acquire(places, asked, flags, timeout_ms, kept, thread)

        if not cpu:
            return run(acquire, milliseconds(timeout))
        run(self._table.open, places)
        return run_with_lease(lambda waiting: self._table.own_conflict(places, flags, waiting), timeout, acquire)

    def read(self, *names: str, timeout: Optional[float] = None, hint: Optional[str] = None, cpu: bool = False,
             stream: Any = None) -> TableLease:
        """A lease on columns, all of them if none is named. The other arguments are those of Object.read()."""
        wanted = names or tuple(self.columns)
        hold = self._acquire(wanted, timeout, hint, cpu, stream)
        return TableLease(hold, lambda hold: MappingProxyType(
            {name: Column(hold, place, self.rows, self.columns[name]) for place, name in enumerate(wanted)}))

    def open(self, *names: str) -> None:
        """Opens columns without a lease: from then on they stay, whatever becomes of the token."""
        run(self._table.open, tuple(self._places[name] for name in names or self.columns))

    @property
    def device(self) -> int:
        """The ordinal of its GPU in this process."""
        return self._table.device

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._table.closed

    def close(self) -> None:
        """Detaches it; what has consumed columns keeps them until that is gone."""
        self._table.close()
