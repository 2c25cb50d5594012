"""Columns by Arrow's C device data interface: what a consumer finds, and how long it keeps the lease."""
import ctypes
import gc

import numpy
import pytest

import gvmem
from conftest import MIB
from gvmem import _gvmem


class DeviceArray(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")] + [
        ("buffers", ctypes.POINTER(ctypes.c_void_p)), ("children", ctypes.c_void_p), ("dictionary", ctypes.c_void_p), ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p), ("device_id", ctypes.c_int64), ("device_type", ctypes.c_int32), ("sync_event", ctypes.c_void_p)]


def read_device_array(capsule):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return DeviceArray.from_address(get(capsule, b"arrow_device_array"))


def make_hold(keeper):
    """A lease on an object, which it keeps."""
    with keeper.create(None, 2 * MIB) as obj:
        obj.copy_in(numpy.arange(100, dtype="i4"))
        return obj.read()._hold


def node_of(hold, format="i", length=100, child=None):
    return format, "a name", length, -1, (0, hold.region(0)[0]), child


def test_array_is_where_the_column_is(keeper):
    hold = make_hold(keeper)
    capsule = _gvmem.arrow_export(hold, node_of(hold), True)
    array = read_device_array(capsule)
    assert (array.length, array.null_count, array.offset, array.n_buffers, array.n_children) == (100, -1, 0, 2, 0)
    assert (array.device_id, array.device_type, array.sync_event) == (-1, 1, None)
    assert array.buffers[0] is None and (ctypes.c_int32 * 100).from_address(array.buffers[1])[99] == 99


def test_nested_array_is_read_back(keeper):
    hold = make_hold(keeper)
    node = ("+w:4", "lists", 25, -1, (0,), ("i", "item", 100, 0, (0, hold.region(0)[0]), None))
    assert _gvmem.arrow_schema(_gvmem.arrow_make_schema(node)) == ("+w:4", "lists", [("i", "item", [], False)], False)
    length, offset, buffers, children = _gvmem.arrow_array(_gvmem.arrow_export(hold, node, False))
    assert (length, offset, buffers, children) == (25, 0, [0], [(100, 0, [0, hold.region(0)[0]], [])])


def test_consumer_keeps_the_lease(keeper):
    hold = make_hold(keeper)
    capsule = _gvmem.arrow_export(hold, node_of(hold), True)
    nested = _gvmem.arrow_export(hold, node_of(hold, "+L", 1, node_of(hold)), False)
    assert hold.exports == 3 and hold.end(None) is False
    release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(read_device_array(capsule).release)
    release(ctypes.addressof(read_device_array(capsule)))  # as a consumer does, without the GIL
    assert hold.exports == 2 and read_device_array(capsule).release is None and not hold.released
    del nested
    gc.collect()
    assert hold.exports == 0 and hold.released
    del capsule
    with pytest.raises(BufferError, match="has ended"):
        _gvmem.arrow_export(hold, node_of(hold), True)


@pytest.mark.parametrize("node", [
    5, (), ("i",), ("i", "a", 1, 0, [], None), ("i", "a", "x", 0, (), None), ("i", "a", 1, 0, ("x",), None), ("i", "a", 1, 0, (1, 2, 3, 4), None),
    ("+L", "a", 1, 0, (0,), ("i",)), ("+L", "a", 1, 0, (0,), 7), (None, "a", 1, 0, (), None),
])
def test_node_of_nonsense_is_refused(keeper, node):
    hold = make_hold(keeper)
    for call in (lambda: _gvmem.arrow_export(hold, node, True), lambda: _gvmem.arrow_make_schema(node)):
        try:
            call()
        except (TypeError, MemoryError, SystemError):
            pass
    assert hold.exports == 0


def test_column_of_another_layout_is_refused(token):
    with gvmem.Table(token) as table:
        column = table["id"]
        for call in (column.__arrow_c_array__, column.__arrow_c_device_array__, column.__arrow_c_schema__):
            with pytest.raises(TypeError, match="pgstrom"):
                call()


def test_column_is_taken_by_pyarrow(keeper):
    pyarrow = pytest.importorskip("pyarrow")
    hold = make_hold(keeper)

    class Column:
        def __arrow_c_array__(self, requested_schema=None):
            return _gvmem.arrow_make_schema(node_of(hold)), _gvmem.arrow_export(hold, node_of(hold), False)

    assert pyarrow.array(Column()).to_pylist() == list(range(100))
