"""Data larger than the memory of a GPU, which kernels map and unmap."""
from __future__ import annotations

from math import prod
from operator import index
from typing import Any, Optional

from . import _gvmem
from ._array import Lease, Shape, dimensions, element, stream_number
from ._buffer import Memory, look_up
from ._keeper import Info
from ._wait import run

_POLICIES = {"lirs": 0, "clock": 1, "lru": 2, "fifo": 3, "nfu": 4, "static": 5}
_ACCESS = {"read": 1, "write": 2, "readwrite": 3}


_CPU = 1  # DLPack's


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> bool:
    """Whether elements are next to each other, in the order of their indices. strides are in bytes, and no length is 0."""
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length > 1 and stride != item:
            return False
        item *= length
    return True


def _list_of(what: Any, count: Optional[int], size: int, device: int, stream: Optional[int], written: bool = False) -> tuple[int, int]:
    """(address, entries) of a list in memory of the device: an array of gvmem or with __cuda_array_interface__, which is consumed for a stream of the
    device, or an address."""
    if isinstance(what, int):
        if count is None:
            raise ValueError("an address alone does not say how many entries there are: give count")
        return what, count
    if isinstance(what, _gvmem.Array):
        address, bytes_there, item = what.address, what.nbytes, int(what.dtype[2:]) if what.dtype[2:].isdigit() else 0
        readonly = what.readonly
        if item and bytes_there and not _is_dense(what.shape, what.strides, item):
            raise ValueError("the entries are not next to each other")
    elif hasattr(what, "__cuda_array_interface__"):
        interface = what.__cuda_array_interface__
        (address, readonly), item, shape, strides = interface["data"], int(interface["typestr"][2:]), interface["shape"], interface.get("strides")
        bytes_there = item * prod(shape)
        if interface.get("mask") is not None:
            raise TypeError("it has a mask")
        if strides is not None and bytes_there and not _is_dense(shape, strides, item):
            raise ValueError("the entries are not next to each other")
    else:
        raise TypeError(f"{type(what).__name__} is no array on a GPU, and no address")
    if item != size:
        raise ValueError(f"entries have {size} bytes, not {item}")
    there = bytes_there // size
    if count is not None and not 0 <= count <= there:
        raise ValueError(f"{count} entries are not in a list of {there}")
    if written and readonly:
        raise ValueError("the array that is to be written is read-only")
    if isinstance(what, _gvmem.Array):  # BufferError: its lease has ended
        what.__dlpack__(stream=None if what.__dlpack_device__()[0] == _CPU else stream or 1, max_version=(1, 0))
    elif interface.get("stream") not in (None, stream or 1):
        _gvmem.order_streams(device, interface["stream"], stream or 1)
    return address, there if count is None else count


class Region:
    """One region of a collection, by its number: collection[7]. read() and write() map it for the CPU."""

    __slots__ = ("_collection", "_number")

    def __init__(self, collection: Collection, number: int):
        self._collection, self._number = collection, number

    def __repr__(self) -> str:
        return f"<gvmem.Region {self._number} of {self._collection.size} bytes>"

    def __len__(self) -> int:
        return self._collection.size

    @property
    def number(self) -> int:
        """By which kernels map it."""
        return self._number

    def read(self, dtype: Any = "u1", shape: Shape = None, *, offset: int = 0) -> Lease:
        """Maps it for reading; entered, it is an array of all there is from offset on, or of a shape.

        errors.Timeout: kernels have it mapped, and have written it.
        """
        return self._map(_ACCESS["read"], dtype, shape, offset)

    def write(self, dtype: Any = "u1", shape: Shape = None, *, offset: int = 0, whole: bool = False) -> Lease:
        """Maps it for writing. Kernels see what was written after the next Space.sync(). whole: all of it is written, so
        that what was there is not brought home before."""
        return self._map(_ACCESS["write" if whole else "readwrite"], dtype, shape, offset)

    def _map(self, access: int, dtype: Any, shape: Shape, offset: int) -> Lease:
        name, wanted = element(dtype), dimensions(shape)
        return Lease(self._collection._handle.map(self._number, access), lambda hold: hold.array(0, offset, name, wanted))

    def delete(self) -> None:
        """Deletes it; to kernels it is there until the next Space.sync()."""
        self._collection._handle.delete(self._number)


class Collection(Memory):
    """An array of regions of one size, whose homes are in memory of the host: space.collection(count, size).

    collection[i] is a Region; len(collection) is how many there are. Kernels map them by `view`.
    """

    __slots__ = ("_count", "_size")

    def __init__(self, handle: _gvmem.Collection):
        self._handle = handle
        info = handle.info()
        self._count: int = info["region_count"]
        self._size: int = info["region_bytes"]

    def __enter__(self) -> Collection:
        return self

    def __repr__(self) -> str:
        return f"<gvmem.Collection of {self._count} regions of {self._size} bytes on GPU {self.device}{', closed' if self.closed else ''}>"

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Region:
        place = index(number)
        if not -self._count <= place < self._count:
            raise IndexError(f"there is no region {number} of {self._count}")
        return Region(self, place % self._count)

    @property
    def size(self) -> int:
        """Of a region, in bytes."""
        return self._size

    @property
    def view(self) -> bytes:
        """A gvm_region_view (gvmem/region_view.h), which a kernel takes by value."""
        return self._handle.view()

    @property
    def policy(self) -> str:
        """Which region leaves its frame: "lirs", "clock", "lru", "fifo", "nfu", "static"."""
        number = self._handle.info()["policy"]
        return next((name for name, known in _POLICIES.items() if known == number), str(number))

    @policy.setter
    def policy(self, policy: str) -> None:
        self._handle.set_policy(look_up(_POLICIES, policy, "policy"))

    def create(self) -> Region:
        """One of those that were left unused, all zeros. Kernels may map it from the next Space.sync() on."""
        return Region(self, self._handle.create())

    def prefetch(self, first: int = 0, count: Optional[int] = None, *, stream: Any = None, engine: bool = False) -> None:
        """Brings regions to frames, in the order of a stream; engine: by the copy engine, beside kernels."""
        call = self._handle.prefetch_by_engine if engine else self._handle.prefetch
        call(first, self._rest(first, count), stream_number(stream))

    def evict(self, first: int = 0, count: Optional[int] = None, *, stream: Any = None) -> None:
        """Takes regions out of their frames, in the order of a stream; what kernels have written comes home."""
        self._handle.evict(first, self._rest(first, count), stream_number(stream))

    def _rest(self, first: int, count: Optional[int]) -> int:
        return max(0, self._count - first) if count is None else count

    def resolve(self, regions: Any, access: str = "read", *, slots: Any = None, addresses: Any = None, count: Optional[int] = None,
                stream: Any = None) -> None:
        """Maps a list of regions for kernels that cannot, in the order of a stream.

        regions (uint32), slots (uint32) and addresses (uint64) are arrays on the GPU, or addresses of such; what is written to
        the latter two says where each region is. The stream waits for the arrays' streams; they must live until it has passed. release()
        unmaps them.
        """
        number, mode = stream_number(stream), look_up(_ACCESS, access, "access")
        place, entries = _list_of(regions, count, 4, self.device, number)
        into = [0 if what is None else _list_of(what, entries, size, self.device, number, written=True)[0]
                for what, size in ((slots, 4), (addresses, 8))]
        self._handle.resolve(place, entries, mode, *into, number)

    def release(self, regions: Any, *, slots: Any = None, count: Optional[int] = None, stream: Any = None) -> None:
        """Unmaps what resolve() of the same list has mapped, in the order of a stream; slots is what that wrote."""
        number = stream_number(stream)
        place, entries = _list_of(regions, count, 4, self.device, number)
        self._handle.release(place, entries, 0 if slots is None else _list_of(slots, entries, 4, self.device, number)[0], number)

    def info(self) -> Info:
        """What is known of it: gvm_collection_info in gvmem/region.h."""
        return Info(**self._handle.info())


class Space(Memory):
    """Collections of regions that share a budget of memory on a GPU: gvmem.Space(budget=…).

        with gvmem.Space(budget=4 << 30) as space:
            rows = space.collection(100, 1 << 30)
            with rows[7].write("f4") as a:
                numpy.asarray(a)[:] = 1
            space.sync()                         # kernels see it from here on
    """

    __slots__ = ()

    def __init__(self, *, device: int = 0, budget: Optional[int] = None, wait: float = 0, check: bool = False):
        """budget: None: half of what the GPU has free. wait: seconds that kernels wait for each other; 0: 10. check: wrong use
        is looked for, and reported by sync()."""
        if not 0 <= wait < 2**32 / 1000:
            raise ValueError(f"{wait!r} is no time in seconds")
        if budget == 0:
            raise ValueError("a budget of 0 bytes has no frames")
        self._handle = _gvmem.space(device, budget or 0, int(wait * 1000), _gvmem.SPACE_CHECK if check else 0)

    def __enter__(self) -> Space:
        return self

    def __repr__(self) -> str:
        return f"<gvmem.Space on GPU {self.device}{', closed' if self.closed else ''}>"

    def collection(self, count: int, size: int = 0, *, budget: Optional[int] = None, policy: str = "lirs", unused: int = 0,
                   clean_low: int = 0, clean_high: int = 0, shape: Optional[tuple[int, int, int]] = None) -> Collection:
        """count regions of size bytes each, all zeros.

        budget: of the space's; None: a share by size. unused: so many, the last ones, are there only once they are created.
        clean_low, clean_high: percent of the frames that are written home ahead of need. shape: (bytes of a row, rows,
        slices) of regions that are windows of an array, without size. See gvmem/region.h.
        """
        width, height, depth = shape or (0, 0, 0)
        return Collection(self._handle.collection(count, size, budget or 0, look_up(_POLICIES, policy, "policy"), unused,
                                                  clean_low, clean_high, (width, height, depth)))

    def sync(self, stream: Any = None) -> None:
        """Waits for a stream (None: the legacy default stream), and exchanges what the CPU and kernels have written since the
        last one. errors.Timeout: kernels have regions mapped that the CPU has changed; all else is done."""
        number = stream_number(stream)
        if number == 2:  # the per-thread default stream, which is another one in another thread
            self._handle.sync(number)
        else:
            run(self._handle.sync, number)

    def info(self) -> Info:
        """What is known of it: gvm_space_info in gvmem/region.h."""
        return Info(**self._handle.info())
