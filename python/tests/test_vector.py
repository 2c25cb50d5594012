"""Vectors: arrays that grow in place, under arrays that were made before."""
import gc
import subprocess
import sys
import threading

import numpy
import pytest

import gvmem
from conftest import MIB


@pytest.fixture
def vector():
    with gvmem.Vector("i4", 4 * MIB, chunk=2 * MIB) as made:
        yield made


def test_vector_grows_in_place_under_arrays(vector):
    vector.extend(numpy.arange(10, dtype="i4"))
    a, address = vector.array(), vector.address
    array = numpy.asarray(a)
    vector.extend(numpy.arange(10, 2 * MIB, dtype="i4"))
    vector.extend(range(3))
    assert (len(vector), vector.address, a.address) == (2 * MIB + 3, address, address)
    assert array.tolist() == list(range(10)) and numpy.asarray(a).ctypes.data == array.ctypes.data
    array[0] = 77
    whole = numpy.asarray(vector.array())
    assert whole[0] == 77 and whole[2 * MIB - 1] == 2 * MIB - 1 and whole[-3:].tolist() == [0, 1, 2]


def test_vector_says_what_it_is(vector):
    vector.extend([1, 2, 3])
    assert (vector.dtype, len(vector), vector.capacity, vector.max_count, vector.device, vector.closed) == ("<i4", 3, MIB // 2, 4 * MIB, 0, False)
    assert repr(vector) == f"<gvmem.Vector of <i4, 3 of {4 * MIB}, on GPU 0>"
    vector.close()
    assert vector.closed and repr(vector) == "<gvmem.Vector of <i4, closed, on GPU 0>"


def test_slices_are_arrays_of_elements(vector):
    vector.extend(range(100))
    assert numpy.asarray(vector[10:13]).tolist() == [10, 11, 12] and numpy.asarray(vector[-2:]).tolist() == [98, 99]
    assert numpy.asarray(vector.array((2, -1), offset=50)).shape == (2, 25) and vector[200:].shape == (0,)
    for key, error in ((1, TypeError), (slice(0, 9, 3), ValueError)):
        with pytest.raises(error):
            vector[key]


@pytest.mark.parametrize("dtype, values", [
    ("f4", [1.5, 2]), ("u1", [1, 255]), ("i8", [2**62]), ("f8", numpy.array([1.5])), ("bool", numpy.array([True, False])), ("f2", numpy.array([1.5], "f2")),
    ("c8", numpy.array([1 + 2j], "c8")), ("u2", b"\1\0\2\0"), ("bfloat16", b"\x80\x3f"), ("i8", numpy.array([[1, 2], [3, 4]])), ("f4", []), ("i4", b""),
    ("f4", memoryview(numpy.arange(4, dtype="f4"))),
])
def test_values_that_fit_are_taken(dtype, values):
    with gvmem.Vector(dtype, 100) as made:
        made.extend(values)
        wanted = values if isinstance(values, (bytes, numpy.ndarray, memoryview)) else numpy.array(values, made.dtype)
        assert made.array().nbytes == len(bytes(wanted))
        if dtype != "bfloat16":
            assert bytes(memoryview(made.array())) == bytes(wanted)


@pytest.mark.parametrize("values", [
    numpy.array([1.5]), numpy.array([1], "i8"), numpy.array([1], ">i4"), numpy.array([1], "u4"), b"abc", 5, None, "text", [1.5], [2**40], object(), ["x"],
    numpy.arange(10, dtype="i4")[::2], numpy.array([1], "datetime64[s]"),
])
def test_values_that_do_not_fit_are_refused(vector, values):
    with pytest.raises((TypeError, ValueError, OverflowError, BufferError)):
        vector.extend(values)
    assert len(vector) == 0


@pytest.mark.parametrize("arguments", [
    ("f4", 0), ("f4", -1), ("f4", 2**64), ("f4", 2**62), ("x", 5), (None, 5), ("f4", "x"), ("f4", 1.5), ("f4", None),
])
def test_vector_of_nonsense_is_refused(arguments):
    with pytest.raises((ValueError, TypeError, gvmem.Error)):
        gvmem.Vector(*arguments)


@pytest.mark.parametrize("call", [
    lambda v: v.resize(-1), lambda v: v.resize(2**64), lambda v: v.resize(4 * MIB + 1), lambda v: v.commit(4 * MIB + 1), lambda v: v.commit("x"),
    lambda v: v.resize(None), lambda v: v.array(1), lambda v: v.array(offset=-1), lambda v: v.array(offset=1), lambda v: v.array(offset=2**64), lambda v: v.array(-3),
    lambda v: v.array(stream="x"),
])
def test_call_with_nonsense_is_refused(vector, call):
    with pytest.raises((ValueError, TypeError, OverflowError, gvmem.Error)):
        call(vector)
    assert len(vector) == 0


def test_vector_beyond_its_limit_is_refused_and_stays():
    with gvmem.Vector("u1", 2 * MIB) as made:
        made.extend(bytes(2 * MIB - 1))
        with pytest.raises(gvmem.errors.Limit):
            made.extend(b"ab")
        assert len(made) == 2 * MIB - 1


def test_resize_and_shrink(vector):
    vector.resize(2 * MIB)
    assert (len(vector), vector.capacity) == (2 * MIB, 2 * MIB)
    last = numpy.asarray(vector[-1:])
    vector.resize(10)
    last[0] = 1  # its memory stays
    with pytest.raises(BufferError, match="still there"):
        vector.shrink()
    del last
    first = numpy.asarray(vector.array())
    vector.shrink()
    assert (len(vector), vector.capacity) == (10, MIB // 2) and first.shape == (10,)
    first[:] = 1
    vector.commit(MIB)
    assert vector.capacity == MIB and len(vector) == 10


def test_vector_closed_refuses_everything_and_keeps_what_is_consumed(vector):
    vector.extend([1, 2, 3])
    array = numpy.asarray(vector.array())
    vector.close()
    for call in (vector.array, vector.shrink, lambda: vector.extend([1]), lambda: vector.resize(5), lambda: vector.commit(5), lambda: len(vector), lambda: vector[:1],
                 lambda: vector.capacity):
        with pytest.raises(ValueError, match="closed"):
            call()
    del vector
    gc.collect()
    assert array.tolist() == [1, 2, 3]


def test_threads_append_while_others_read(vector):
    """Each reads what was there when it made its array."""
    failures, end = [], threading.Event()

    def read():
        while not end.is_set():
            array = numpy.asarray(vector.array())
            if (array != 5).any():
                failures.append(len(array))

    def write():
        for _ in range(200):
            vector.extend(numpy.full(500, 5, "i4"))

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write) for _ in range(2)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    end.set()
    for thread in readers:
        thread.join()
    assert not failures and len(vector) == 200000


def test_child_by_fork_cannot_use_it_and_ends_well():
    program = """
import os, sys, gvmem, numpy
vector = gvmem.Vector("f4", 1000)
vector.extend([1, 2])
pid = os.fork()
if pid == 0:
    for call in (vector.array, vector.shrink, lambda: vector.extend([1]), lambda: vector.resize(1)):
        try:
            call()
            os._exit(2)
        except gvmem.errors.Foreign:
            pass
    vector.close()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
vector.extend([3])
assert numpy.asarray(vector.array()).tolist() == [1, 2, 3]
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=60)
