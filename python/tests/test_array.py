"""Arrays: shapes and types, and the protocols by which others consume them."""
import ctypes

import numpy
import pytest

import gvmem
from conftest import MIB
from gvmem import _gvmem

TYPES = ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
NUMPY = tuple(int(number) for number in numpy.__version__.split(".")[:2])


@pytest.fixture
def obj(keeper):
    with keeper.create("/array", 2 * MIB) as made:
        yield made


@pytest.mark.parametrize("code", TYPES)
def test_type_arrives_in_numpy(obj, code):
    wanted = numpy.dtype(code)
    values = numpy.arange(12).astype(wanted).reshape(3, 4)
    obj.copy_in(values, 64)
    with obj.read(code, (3, 4), offset=64) as a:
        array = numpy.asarray(a)
        assert array.dtype == wanted and numpy.array_equal(array, values) and array.ctypes.data == a.address == obj.address + 64
        assert (a.dtype, a.strides, a.nbytes, len(a)) == (wanted.str, array.strides, array.nbytes, 3)
        del array
    if code == "b1" and NUMPY < (1, 25):
        return
    with obj.write(code, (3, 4), offset=64) as a:
        again = numpy.from_dlpack(a)
        assert again.dtype == wanted and numpy.array_equal(again, values) and again.ctypes.data == a.address
        del again


@pytest.mark.parametrize("dtype, wanted", [
    ("float32", "<f4"), ("<i8", "<i8"), ("=f8", "<f8"), ("|u1", "|u1"), ("bool", "|b1"), (numpy.float16, "<f2"), (float, "<f8"),
    (numpy.dtype("i2"), "<i2"), (numpy.dtype("?"), "|b1"), (int, "<i8"), (bool, "|b1"), (complex, "<c16"), ("torch.bfloat16", "bfloat16"),
    ("torch.int32", "<i4"), (numpy.int8, "|i1"), (numpy.bool_, "|b1"), ("bool_", "|b1"), (numpy.longlong, "<i8"), (numpy.ulonglong, "<u8"),
])
def test_type_is_understood_as_others_write_it(obj, dtype, wanted):
    with obj.read(dtype) as a:
        assert a.dtype == wanted


@pytest.mark.parametrize("dtype", [">f4", "S4", "f16", "O", "", "i3", "datetime64", None, 5, object, numpy.dtype("i4,i4"), numpy.dtype(">i4")])
def test_type_that_is_none_is_refused(obj, dtype):
    with pytest.raises(ValueError):
        obj.read(dtype)
    assert obj.info().read_leases == 0


@pytest.mark.parametrize("shape, wanted", [
    (None, (MIB,)), (5, (5,)), ((), ()), ((2, -1), (2, MIB // 2)), (-1, (MIB,)), ([3, 4], (3, 4)), ((0, 5), (0, 5)), ((0, -1), (0, 0)),
    ((1,) * 16, (1,) * 16), ((0, 2**31, 2**30), (0, 2**31, 2**30)), (numpy.int64(4), (4,)),
])
def test_shape_is_as_wanted(obj, shape, wanted):
    with obj.write("u2", shape) as a:
        assert a.shape == wanted
        if a.nbytes:
            assert numpy.asarray(a).shape == wanted and numpy.from_dlpack(a).shape == wanted and memoryview(a).shape == wanted


@pytest.mark.parametrize("shape", [
    MIB + 1, (2, MIB), (-1, -1), -2, (2**63, 1), (2**62, 2**62), (2**32, 2**32), (0, 2**62, 2**62), (0, 2**63 - 1, 2), 2**64, "ab", (1.5,), (None,), (1,) * 17, ("1",),
])
def test_shape_beyond_the_object_is_refused(obj, shape):
    with pytest.raises((ValueError, TypeError, OverflowError)):
        obj.read("u2", shape)
    assert obj.info().read_leases == 0


@pytest.mark.parametrize("dtype, offset", [("u1", 2 * MIB + 1), ("u1", -1), ("u1", 2**64), ("u8", 4), ("c16", 4), ("u1", "x"), ("f4", 2**64 - 4)])
def test_offset_beyond_or_not_aligned_is_refused(obj, dtype, offset):
    with pytest.raises((ValueError, TypeError)):
        obj.read(dtype, 1, offset=offset)


@pytest.mark.parametrize("name", ["read", "write"])
def test_array_that_cannot_be_made_has_no_lease_while_its_exception_lives(obj, name):
    with pytest.raises(ValueError) as raised:
        getattr(obj, name)("u2", MIB + 1)
    info = obj.info()
    assert (info.read_leases, info.write_leases) == (0, 0)
    obj.write().release()
    del raised


def test_empty_array_has_no_address_in_dlpack(obj):
    with obj.read("f4", (0, 5)) as a:
        assert _gvmem.read_dlpack(a.__dlpack__(max_version=(1, 0)))[0] == 0


def test_lease_lends_several_arrays(obj):
    lease = obj.write()
    with lease:
        numpy.asarray(lease.array("f4", 4))[:] = 1
        numpy.asarray(lease.array("i8", (2, 2), offset=16))[:] = 7
    out = obj.copy_out(48)
    assert numpy.frombuffer(out[:16], "f4").tolist() == [1] * 4 and numpy.frombuffer(out[16:], "i8").tolist() == [7] * 4
    assert lease.size == 2 * MIB and lease.address == obj.address


def test_array_of_nothing_is_empty(keeper):
    with keeper.create(None, 0, reserve=2 * MIB) as obj, obj.read("f4") as a:
        assert a.shape == (0,) and numpy.asarray(a).shape == (0,)


# ---- writing is by a lease for writing


def test_readonly_array_is_readonly_everywhere(obj):
    with obj.read() as a:
        assert a.readonly and memoryview(a).readonly and not numpy.asarray(a).flags.writeable
        with pytest.raises((TypeError, BufferError)):
            (ctypes.c_char * 4).from_buffer(a)
    with obj.write() as a:
        assert not a.readonly and not memoryview(a).readonly and numpy.asarray(a).flags.writeable


def test_buffer_as_asked_for(obj):
    with obj.write("i4", (2, 3)) as a:
        view = memoryview(a)
        assert (view.format, view.itemsize, view.ndim, view.c_contiguous) == ("i", 4, 2, True)
        assert view.cast("B").nbytes == 24 and bytes(a) == bytes(24)
        view.release()
    with obj.read("bfloat16") as a:
        for consume in (memoryview, numpy.asarray):
            with pytest.raises(BufferError, match="bfloat16"):
                consume(a)


# ---- DLPack, read as its ABI says


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)), ("flags", ctypes.c_uint64), ("tensor", Tensor)]


get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
get_name = ctypes.pythonapi.PyCapsule_GetName
get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
set_name = ctypes.pythonapi.PyCapsule_SetName
set_name.argtypes = [ctypes.py_object, ctypes.c_char_p]


def read_versioned(capsule):
    assert get_name(capsule) == b"dltensor_versioned"
    return Versioned.from_address(get_pointer(capsule, b"dltensor_versioned"))


def test_dlpack_versioned_says_what_is_readonly(obj):
    with obj.read("f4", (2, 5)) as a:
        capsule = a.__dlpack__(max_version=(1, 1))
        managed = read_versioned(capsule)
        tensor = managed.tensor
        assert (managed.major, managed.flags) == (1, 1)
        assert (tensor.data, tensor.device_type, tensor.device_id, tensor.ndim) == (a.address, 1, 0, 2)
        assert (tensor.code, tensor.bits, tensor.lanes, tensor.byte_offset) == (2, 32, 1, 0)
        assert tensor.shape[:2] == [2, 5] and tensor.strides[:2] == [5, 1]
        del capsule
    with obj.write("bfloat16") as a:
        capsule = a.__dlpack__(max_version=(1, 0), dl_device=(1, 0), copy=False, stream=None)
        managed = read_versioned(capsule)
        assert (managed.major, managed.flags, managed.tensor.bits) == (1, 0, 16)
        del capsule
    with obj.write("bfloat16") as a:
        capsule = a.__dlpack__(max_version=(2, 0))
        managed = read_versioned(capsule)
        assert (managed.flags, managed.tensor.code, managed.tensor.bits) == (0, 4, 16)
        del capsule
    assert a.__dlpack_device__() == (1, 0)


def test_dlpack_unversioned_is_for_writing_alone(obj):
    with obj.read() as a:
        for version in (None, (0, 8)):
            with pytest.raises(BufferError, match="read-only"):
                a.__dlpack__(max_version=version)
    with obj.write() as a:
        capsule = a.__dlpack__()
        assert get_name(capsule) == b"dltensor"
        del capsule


def test_dlpack_consumer_keeps_the_lease_until_its_deleter(obj):
    lease = obj.read()
    with lease as a:
        capsule = a.__dlpack__(max_version=(1, 0))
        managed = read_versioned(capsule)
        set_name(capsule, b"used_dltensor_versioned")
        del capsule
    del a
    assert not lease.released and lease.exports == 1
    managed.deleter(ctypes.addressof(managed))  # ctypes calls it without the GIL
    assert lease.released


def test_dlpack_refuses_what_it_cannot_do(obj):
    with obj.write() as a:
        for arguments in ({"copy": True}, {"dl_device": (2, 0)}, {"dl_device": (1, 1)}, {"stream": 1}, {"stream": -1}):
            with pytest.raises(BufferError):
                a.__dlpack__(**arguments)
        for arguments in ({"max_version": 1}, {"max_version": (1,)}, {"max_version": "ab"}, {"dl_device": 5}, {"max_version": (2**40, 0)}):
            with pytest.raises((TypeError, OverflowError)):
                a.__dlpack__(**arguments)
        with pytest.raises(TypeError):
            a.__dlpack__(nonsense=1)


class Ends:
    """A number that ends a lease when it is asked for."""

    def __init__(self, lease, value):
        self.lease, self.value = lease, value

    def __bool__(self):
        self.lease.release()
        return bool(self.value)

    def __index__(self):
        self.lease.release()
        return self.value


@pytest.mark.parametrize("argument", ["copy", "max_version", "dl_device"])
def test_dlpack_of_a_lease_that_its_arguments_end_is_refused(obj, argument):
    lease = obj.write()
    with lease as a:
        arguments = {"max_version": (1, 0)}
        arguments[argument] = Ends(lease, 0) if argument == "copy" else (Ends(lease, 1), 0)
        with pytest.raises(BufferError, match="has ended"):
            a.__dlpack__(**arguments)
        assert lease.released and lease.exports == 0


def test_dlpack_with_this_numpy(obj):
    with obj.read("f8", 4) as a:
        if NUMPY < (2, 1):
            with pytest.raises(BufferError):
                numpy.from_dlpack(a)
        else:
            array = numpy.from_dlpack(a)
            assert not array.flags.writeable and array.shape == (4,)
            with pytest.raises((BufferError, ValueError)):
                numpy.from_dlpack(a, copy=True)
            del array


# ---- __cuda_array_interface__


def test_cuda_interface_is_a_real_gpus(obj):
    with obj.read() as a:
        assert not hasattr(a, "__cuda_array_interface__")
    with obj.read(cpu=True) as a:
        assert a.__dlpack_device__() == (1, 0)


def test_types_cannot_be_made_by_hand():
    from gvmem import _gvmem

    for made in (_gvmem.Client, _gvmem.Object, _gvmem.Table, _gvmem.Hold, gvmem.Array):
        with pytest.raises(TypeError):
            made()
