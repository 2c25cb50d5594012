"""Columns by Arrow's C device data interface: what a consumer finds, and how long it keeps the lease."""
import ctypes
import gc
from types import SimpleNamespace

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
    5, (), ("i",), ("i", "a", 1, 0, [], None), ("i", "a", "x", 0, (), None), ("i", "a", 1, 0, (), 7), ("i", "a", 1, 0, (), None, 5), (None, "a", 1, 0, (), None),
    ("i", "a\0b", 1, 0, (), None), ("i", "a", 2**63, 0, (), None), ("+L", "a", 1, 0, (0,), ("i",)), ("+L", "a", 1, 0, (0,), 7),
])
def test_node_of_nonsense_is_refused(keeper, node):
    hold = make_hold(keeper)
    for call in (lambda: _gvmem.arrow_export(hold, node, True), lambda: _gvmem.arrow_make_schema(node)):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            call()
    assert hold.exports == 0


def test_buffers_of_nonsense_are_refused(keeper):
    hold = make_hold(keeper)
    for buffers, error in ((("x",), TypeError), ((0, 0, 2**64), OverflowError), ((0, 0, 0, 0), ValueError)):
        node = ("i", "a", 1, 0, buffers, None)
        for outer in (node, ("+L", "a", 1, 0, (0, 0), node)):
            with pytest.raises(error):
                _gvmem.arrow_export(hold, outer, True)
    assert hold.exports == 0


class Parts:
    """A lease on parts of a column: values, validity, bodies, validity of elements. None: there is no such part."""

    ended = False

    def __init__(self, *parts):
        self.parts = [None if part is None else numpy.asarray(part) for part in parts]

    def region(self, part):
        array = self.parts[part]
        return (0, 0) if array is None else (array.ctypes.data, array.nbytes)

    def array(self, part, offset, dtype, shape):
        array = self.parts[part].view(dtype)
        return array if shape is None else array.reshape(shape)


def make_column(parts, arrow, element="", element_length=0, rows=2, width=8):
    info = SimpleNamespace(name="c", type_name="of SQL", arrow=arrow, arrow_element=element, element_length=element_length, length=-1,
                           width=width, absent=False)
    return gvmem.Column(Parts(*parts), 0, rows, info)


@pytest.mark.parametrize("element, size", [("i", 4), ("w:16", 16), ("w:3", 3)])
def test_list_has_as_many_elements_as_there_are(element, size):
    column = make_column(([0, 1, 3], None, numpy.arange(3 * size, dtype="u1"), None), "+L", element, size)
    assert len(column.data) == 3
    assert column.data[column.offsets[1] : column.offsets[2]].tobytes() == bytes(range(size, 3 * size))
    assert column._node()[5][:3] == (element, "item", 3)


def test_nulls_are_counted_where_they_may_be():
    offsets, bits, data = numpy.arange(3), numpy.uint8([255]), numpy.zeros(2, "i4")
    for validity, count in ((None, 0), (bits, -1)):
        nodes = [make_column((offsets, validity, data, None), "U")._node(), make_column((data, validity, None, None), "i", width=4)._node(),
                 make_column((data, validity, None, None), "+w:1", "i", 4, width=4)._node(),
                 make_column((offsets, validity, data, None), "+L", "i", 4)._node()]
        assert [node[3] for node in nodes] == [count] * 4
        lists = [make_column((offsets, None, data, validity), "+L", "i", 4)._node(), make_column((data, None, None, validity), "+w:1", "i", 4, width=4)._node()]
        assert [(node[3], node[5][3]) for node in lists] == [(0, count)] * 2


def test_name_beyond_utf8_is_exported_with_marks(keeper):
    column = make_column((numpy.zeros(2, "i4"), None, None, None), "i", width=4)
    column.name = b"gr\xf6\xdfe, \xc3\xb6".decode("utf-8", "surrogateescape")
    for arrow in ("i", "n", "U", "+L", "+w:1"):
        column.info.arrow, column.info.arrow_element = arrow, "i"
        assert _gvmem.arrow_schema(column.__arrow_c_schema__())[1] == "gr??e, \u00f6"


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
        def __init__(self, hold):
            self.hold = hold  # of the object alone: a class is let go by the collector only

        def __arrow_c_array__(self, requested_schema=None):
            return _gvmem.arrow_make_schema(node_of(self.hold)), _gvmem.arrow_export(self.hold, node_of(self.hold), False)

    assert pyarrow.array(Column(hold)).to_pylist() == list(range(100))
