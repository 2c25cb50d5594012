"""Regions: mapped by the CPU as arrays, and brought to frames and back."""
import ctypes
import gc
import subprocess
import sys
import threading

import numpy
import pytest

import gvmem
from conftest import MIB
from test_buffer import Stream, streams  # noqa: F401: a fixture

KIB = 1 << 10


@pytest.fixture
def space():
    with gvmem.Space(budget=8 * MIB, check=True) as made:
        yield made


@pytest.fixture
def rows(space):
    with space.collection(32, 512 * KIB) as made:
        yield made


def test_region_is_written_and_read(rows, space):
    for number in range(32):
        with rows[number].write("i4") as a:
            numpy.asarray(a)[:] = number
            assert repr(a) == f"<gvmem.Array ({128 * KIB},) of <i4 on CPU 0>"
    space.sync()
    for number in range(32):
        with rows[number].read("i4", (2, -1)) as a:
            assert (numpy.asarray(a) == number).all() and a.readonly and a.shape == (2, 64 * KIB)
        space.sync()
    with rows[3].write("u1", 5, offset=7, whole=True) as a:
        assert a.shape == (5,)


def test_it_says_what_it_is(rows, space):
    assert (len(rows), rows.size, rows.device, rows.policy, rows.closed) == (32, 512 * KIB, 0, "lirs", False)
    assert repr(rows) == f"<gvmem.Collection of 32 regions of {512 * KIB} bytes on GPU 0>" and repr(space) == "<gvmem.Space on GPU 0>"
    assert repr(rows[-1]) == f"<gvmem.Region 31 of {512 * KIB} bytes>" and rows[-1].number == 31 and len(rows[0]) == 512 * KIB
    assert (rows.info().region_count, rows.info().region_bytes, space.info().region_count, space.info().budget_bytes) == (32, 512 * KIB, 32, 8 * MIB)
    rows.policy = "clock"
    assert rows.policy == "clock"
    view = numpy.frombuffer(rows.view, "u8")
    assert view[1] == rows.info().stride_bytes and view[2] == 512 * KIB
    assert [region.number for region in rows][:3] == [0, 1, 2]


def test_regions_go_to_frames_and_back(rows, space):
    with rows[0].write("i4") as a:
        numpy.asarray(a)[:] = 5
    space.sync()
    rows.prefetch(0, 4)
    space.sync()
    assert rows.info().fetched == 4
    rows.evict(0, 2)
    space.sync()
    assert rows.info().evicted >= 2
    rows.prefetch(4, 2, engine=True)
    space.sync()
    assert rows.info().fetched >= 4
    with rows[0].read("i4") as a:
        assert (numpy.asarray(a) == 5).all()


def test_list_is_resolved_to_addresses(rows, space):
    with rows[5].write("i4") as a:
        numpy.asarray(a)[:] = 55
    space.sync()
    with gvmem.Buffer(2 * MIB) as lists:
        regions, slots, addresses = lists.array("u4", 2), lists.array("u4", 2, offset=64), lists.array("u8", 2, offset=128)
        numpy.asarray(regions)[:] = [5, 0xffffffff]
        rows.resolve(regions, slots=slots, addresses=addresses)
        place, none = (int(number) for number in numpy.asarray(lists.array("u8", 2, offset=128, stream=0)))
        assert none == 0 and ctypes.c_int.from_address(place + 4).value == 55  # memory of the software GPU
        rows.release(regions, slots=slots)
        rows.resolve(regions.address, "readwrite", count=1)
        rows.release(regions.address, count=1)
        space.sync()
        for arguments in ((5,), (lists.array("u8", 2),), (b"x",), (regions, "all")):
            with pytest.raises((ValueError, TypeError)):
                rows.resolve(*arguments)
        with pytest.raises(ValueError):
            rows.resolve(regions, slots=lists.array("u4", 1))
        with pytest.raises(ValueError):
            rows.resolve(regions, count=3)


def test_sync_waits_for_the_stream_of_its_own_thread(space, streams):  # noqa: F811
    go, done = threading.Event(), []
    work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: (go.wait(20), done.append("work")) and None)
    assert streams[0].driver.cuLaunchHostFunc(ctypes.c_void_p(2), work, None) == 0
    threading.Timer(0.1, go.set).start()
    space.sync(2)
    assert done == ["work"]


class Lent:
    """An array of CUDA of somebody else, by its interface."""

    def __init__(self, address, count, size, readonly=False, stream=None, **more):
        self.__cuda_array_interface__ = {"data": (address, readonly), "shape": (count,), "typestr": f"<u{size}", "version": 3, "stream": stream, **more}


@pytest.mark.parametrize("lent", [False, True])
@pytest.mark.parametrize("gpu", [0, 1])
def test_list_is_read_behind_its_stream(rows, streams, lent, gpu):  # noqa: F811
    first, second = Stream(gpu), streams[1]
    go = threading.Event()
    with gvmem.Buffer(2 * MIB) as lists:
        numpy.asarray(lists.array("u4", 4))[:] = 0xffffffff  # no region

        def write():
            go.wait(20)
            ctypes.c_uint32.from_address(lists.address).value = 5

        first.call_back(write)
        threading.Timer(0.1, go.set).start()
        rows.resolve(Lent(lists.address, 1, 4, stream=first.cuda_stream) if lent else lists.array("u4", 1, stream=first), stream=second,
                     addresses=lists.array("u8", 1, offset=64))
        second.wait()
        assert numpy.asarray(lists.array("u8", 1, offset=64))[0] != 0
        first.wait()
        rows.release(lists.array("u4", 1), stream=second)
        second.wait()
    first.close()


def test_list_that_cannot_be_used_is_refused(rows, keeper):
    with gvmem.Buffer(2 * MIB) as lists, keeper.create(None, 2 * MIB) as obj:
        regions = lists.array("u4", 1)
        numpy.asarray(regions)[:] = 0xffffffff
        with obj.write("u4", 1) as ended:
            pass
        with pytest.raises(BufferError, match="has ended"):
            rows.resolve(ended)
        with pytest.raises(BufferError, match="has ended"):
            rows.resolve(regions, slots=ended)
        for slots in (lists.array("u4", 1, offset=64, readonly=True), Lent(lists.address + 64, 1, 4, readonly=True)):
            with pytest.raises(ValueError, match="read-only"):
                rows.resolve(regions, slots=slots)
            rows.release(regions, slots=slots)
        rows.release(Lent(lists.address, 2, 4, strides=(4,)), count=1, slots=lists.array("u4", 1, offset=64))
        with pytest.raises(ValueError, match="next to each other"):
            rows.release(Lent(lists.address, 2, 4, strides=(8,)))
        with pytest.raises(TypeError, match="mask"):
            rows.release(Lent(lists.address, 2, 4, mask=Lent(lists.address, 2, 1)))


def test_regions_are_created_and_deleted(space):
    with space.collection(4, MIB, unused=2) as rows:
        made = rows.create()
        assert made.number in (2, 3)
        with made.write("u1") as a:
            assert not numpy.asarray(a).any()
        made.delete()
        space.sync()
        with pytest.raises(gvmem.errors.Invalid):
            made.read()
        with pytest.raises(gvmem.errors.Invalid):
            made.delete()


def test_regions_are_windows_of_an_array(space):
    with space.collection(4, shape=(64, 8, 1)) as rows:
        assert rows.size == 512


def test_region_is_unmapped_when_nothing_uses_it(rows):
    region = rows[2]
    for consume in (numpy.asarray, memoryview, numpy.from_dlpack):
        lease = region.write("u1")
        with lease as a:
            kept = consume(a)
        assert lease.ended and not lease.released
        with pytest.raises(gvmem.errors.Invalid):
            region.delete()  # the CPU has it mapped
        del kept, a
        gc.collect()
        assert lease.released
        with pytest.raises(BufferError, match="has ended"):
            lease.array()
    region.delete()


def test_region_is_never_the_gpus_while_it_is_mapped(rows):
    with rows[0].read() as a:
        assert not hasattr(a, "__cuda_array_interface__") and a.__dlpack_device__() == (1, 0)
        with pytest.raises(BufferError):
            a.__dlpack__(dl_device=(2, 0), max_version=(1, 0))


@pytest.mark.parametrize("arguments", [
    {"budget": -1}, {"budget": 0}, {"budget": "x"}, {"budget": 2**64}, {"device": 9}, {"device": -1}, {"wait": -1}, {"wait": float("nan")}, {"wait": 2**40}, {"wait": "x"},
])
def test_space_of_nonsense_is_refused(arguments):
    with pytest.raises((ValueError, TypeError, gvmem.Error)):
        gvmem.Space(**arguments)


@pytest.mark.parametrize("arguments", [
    {"count": 0}, {"count": -1}, {"count": 2**64}, {"count": 2**60}, {"count": "x"}, {"size": 0}, {"size": -1}, {"size": 2**50}, {"policy": "best"}, {"policy": None},
    {"unused": 9}, {"unused": -1}, {"clean_low": 200}, {"clean_low": 2**40}, {"shape": (5,)}, {"shape": (1, 2, 3)}, {"shape": "abc"}, {"budget": "x"},
])
def test_collection_of_nonsense_is_refused(space, arguments):
    with pytest.raises((ValueError, TypeError, MemoryError, gvmem.Error)):
        space.collection(**{"count": 4, "size": MIB, **arguments})
    assert space.info().collection_count == 0


@pytest.mark.parametrize("call", [
    lambda r: r[32], lambda r: r[-33], lambda r: r["x"], lambda r: r[2**64], lambda r: r[0].read("x"), lambda r: r[0].read("f4", 2**40), lambda r: r[0].read("f4", offset=-1),
    lambda r: r[0].write("f4", offset=513 * KIB), lambda r: r.prefetch(30, 5), lambda r: r.prefetch(-1), lambda r: r.prefetch("x"), lambda r: r.evict(0, 2**64),
    lambda r: r.evict(33), lambda r: setattr(r, "policy", "x"), lambda r: r.create(), lambda r: r.prefetch(stream="x"),
])
def test_call_with_nonsense_is_refused(rows, call):
    with pytest.raises((ValueError, TypeError, IndexError, gvmem.Error)):
        call(rows)
    rows[0].delete()  # nothing has it mapped


def test_space_closed_refuses_everything_and_keeps_what_is_consumed():
    space = gvmem.Space(budget=8 * MIB)
    rows = space.collection(4, MIB)
    unused = space.collection(4, MIB)
    with rows[0].write("u1") as a:
        array = numpy.asarray(a)
    space.close()
    assert rows.closed and unused.closed and space.closed
    for call in (space.sync, space.info, lambda: space.collection(1, MIB), rows.info, rows.create, rows[0].read, lambda: rows.view, rows.prefetch, rows.evict,
                 lambda: rows.policy, rows[0].delete):
        with pytest.raises(ValueError, match="closed"):
            call()
    array[:] = 7
    del space, rows, unused, a
    gc.collect()
    assert (array == 7).all()


def test_child_by_fork_and_the_end_of_the_interpreter():
    program = """
import os, sys, gvmem, numpy
space = gvmem.Space(budget=8 << 20)
rows = space.collection(4, 1 << 20)
lease = rows[0].write("u1")
with lease as a: kept = numpy.asarray(a)
pid = os.fork()
if pid == 0:
    for call in (rows[1].read, rows.info, space.sync, rows.create, rows.evict, lambda: space.collection(1, 16)):
        try:
            call()
            os._exit(2)
        except gvmem.errors.Foreign:
            pass
    del kept, a
    rows.close()
    space.close()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
kept[:] = 1
sys.kept = rows[2].read()
sys.exit(3)
"""
    done = subprocess.run([sys.executable, "-X", "dev", "-W", "ignore", "-c", program], stderr=subprocess.PIPE, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (3, b"")
