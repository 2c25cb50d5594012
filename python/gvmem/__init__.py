"""gvmem: device memory that processes share and that may be larger than the card, from Python.

    with gvmem.connect() as keeper:
        prices = keeper.open("/prices", readonly=True)
        with prices.read("f4") as a:         # a lease: meanwhile nothing moves
            total = cupy.asarray(a).sum()    # no copy; numpy.asarray() on a software GPU

Memory may be used under a lease only, and the `with` block is one. Arrays cannot be consumed after it; what has consumed one
and is still alive keeps the lease. See docs/python.md.
"""
from . import errors, models
from ._array import Lease
from ._buffer import Buffer
from ._gvmem import Array
from ._gvmem import version as __version__
from ._heap import Block, Heap
from ._keeper import Info, Keeper, Object, Snapshot, connect, driver
from ._load import Values, load
from ._region import Collection, Region, Space
from ._saver import Part, SavedRegion, Saver
from ._table import Column, Table, TableLease
from ._vector import Vector
from .errors import Error

__all__ = [
    "Array", "Block", "Buffer", "Collection", "Column", "Error", "Heap", "Info", "Keeper", "Lease", "Object", "Part", "Region",
    "SavedRegion", "Saver", "Snapshot", "Space", "Table", "TableLease", "Values", "Vector", "connect", "driver", "errors", "load", "models",
]
