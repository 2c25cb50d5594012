"""Private memory: regions give their memory up, and have it back at the same addresses, with their bytes or with zeros."""
import ctypes
import gc
import random
import subprocess
import sys
import threading
import time

import numpy
import pytest

import gvmem
from conftest import DEVICE_BUDGET, MIB
from gvmem import _gvmem
from test_buffer import streams  # noqa: F401: a fixture


@pytest.fixture
def saver(keeper):
    with gvmem.Saver(keeper) as made:
        yield made
    gc.collect()


def fill(region, size, value):
    part = region.alloc(size)
    array = numpy.asarray(part.array("f4"))
    array[:] = value
    return array


def device_bytes(keeper):
    return keeper.snapshot().devices[0].resident_bytes


def test_regions_take_turns_on_a_device_for_one(keeper, saver):
    """Both have more than half of the budget, and keep bytes and addresses."""
    arrays = {}
    for number, tag in enumerate(("a", "b")):
        with saver.region(tag, enable_cpu_backup=True) as region:
            arrays[tag] = [fill(region, 7 * MIB, 10 * number + i) for i in range(3)]
        saver.pause(tag)
    assert saver.regions["a"].resident_bytes + saver.regions["b"].resident_bytes <= DEVICE_BUDGET < 2 * 21 * MIB
    for tag, other in (("a", "b"), ("b", "a"), ("a", "b")):
        saver.resume(tag)
        region = saver.regions[tag]
        assert region.resident_bytes >= 21 * MIB and saver.regions[other].paused and not region.paused
        assert [float(array.mean()) for array in arrays[tag]] == [10 * (tag == "b") + i for i in range(3)]
        arrays[tag][0][5] += 1  # so that it has to be copied out anew
        arrays[tag][0][5] -= 1
        saver.pause(tag)


def test_without_backup_memory_is_gone_at_once_and_comes_back_as_zeros(keeper, saver):
    with saver.region("cache") as region:
        array = fill(region, 5 * MIB, 3)
    address = array.ctypes.data
    assert device_bytes(keeper) >= 5 * MIB and region.used == 5 * MIB
    saver.pause()
    assert device_bytes(keeper) == 0 and keeper.objects()[0].size_bytes == 0
    saver.resume()
    assert array.ctypes.data == address and region.resident_bytes >= 5 * MIB and not array.any()
    array[:] = 4
    with saver.region("cache") as again:
        assert again is region
        more = fill(again, MIB, 5)
    assert float(array.mean()) == 4 and float(more.mean()) == 5


def test_models_wake_in_the_place_of_what_is_paused(keeper, saver):
    with saver.region("cache", enable_cpu_backup=True) as region:
        array = fill(region, 20 * MIB, 7)
    gvmem.models.publish({"w": numpy.full(20 * MIB // 4, 2, "f4")}, "/model", keeper=keeper)
    model = gvmem.models.attach("/model", keeper=keeper, awake=False)
    with pytest.raises(MemoryError):
        model.wake(resident=True)
    saver.pause()
    model.wake(resident=True)
    assert region.resident_bytes < 20 * MIB
    model.close()
    saver.resume()
    assert float(array.mean()) == 7 and region.resident_bytes >= 20 * MIB
    keeper.drop("/model")


def test_tags_pause_apart_or_together(saver):
    with saver.region("a") as a, saver.region("b") as b:
        pass
    saver.pause("a")
    saver.pause("a")
    assert a.paused and not b.paused
    saver.pause()
    assert a.paused and b.paused
    saver.resume("b")
    assert a.paused and not b.paused
    saver.resume()
    saver.resume()
    assert not a.paused and list(saver.regions) == ["a", "b"]


def test_paused_region_gives_nothing(saver):
    with saver.region("a") as region:
        part = region.alloc(100)
        saver.pause("a")
        with pytest.raises(ValueError, match="paused"):
            region.alloc(100)
    with pytest.raises(ValueError, match="paused"):
        part.array()
    with pytest.raises(ValueError, match="paused"):
        with saver.region("a"):
            pass
    saver.resume()
    assert numpy.asarray(part.array()).shape == (100,)


def test_wrong_use_is_refused(saver):
    with saver.region("a"):
        pass
    with pytest.raises(ValueError, match="enable_cpu_backup=False"):
        with saver.region("a", enable_cpu_backup=True):
            pass
    with pytest.raises(ValueError, match='no region "c"'):
        saver.pause("c")
    with saver.region("a") as region, pytest.raises(MemoryError, match="reserved"):
        region.alloc(DEVICE_BUDGET + 1)
    with pytest.raises(MemoryError, match="reserved"):
        region.alloc(2**64 - 1)


def test_what_finds_no_room_is_a_memory_error_and_the_region_is_as_it_was(keeper):
    """The budgets of both are spent: growing fails, and so does resume() without a backup, which can be called again."""
    with gvmem.Saver(keeper, reserve=1 << 30) as saver:
        with saver.region("a") as region:
            array = fill(region, 16 * MIB, 1)
            with pytest.raises(MemoryError):
                region.alloc(512 * MIB)
            assert region.used == 16 * MIB and float(array.mean()) == 1
        saver.pause()
        room = keeper.snapshot()
        other = keeper.create(None, room.devices[0].budget_bytes + room.keeper.host_budget_bytes - 8 * MIB)
        with pytest.raises(MemoryError):
            saver.resume()
        assert region.paused
        other.close()
        saver.resume()
        assert not array.any() and not region.paused
    del array


def test_memory_is_freed_with_its_last_user(saver):
    with saver.region("a") as region:
        part = region.alloc(MIB)
        array = numpy.asarray(part.array())
        half = array[: MIB // 2]
        address = part.address
        del part, array
        gc.collect()
        assert region.used == MIB
        del half
        gc.collect()
        assert region.used == 0 and region.alloc(10).address == address


def test_parts_are_disjoint_and_room_is_used_again(saver):
    """Random sizes and orders, against what the test has; at last all of it is one piece again."""
    seed = random.randrange(2**32)
    print("seed", seed)
    chance, live = random.Random(seed), {}
    with saver.region("a") as region:
        for i in range(400):
            if live and chance.random() < 0.45:
                array, value = live.pop(chance.choice(list(live)))
                assert (array == value).all()
                del array
            else:
                size = chance.choice((1, 511, 512, 513, 5000, 200000))
                array = numpy.asarray(region.alloc(size).array())
                assert array.ctypes.data % 512 == 0
                array[:] = i % 251
                live[i] = array, i % 251
                del array
        assert all((array == value).all() for array, value in live.values())
        wanted = sum((array.nbytes + 511) // 512 * 512 for array, _ in live.values())
        assert region.used == wanted
        live.clear()
        assert region.used == 0
        grown = region._arena.committed
        assert region.alloc(grown).address == region._object.address and region._arena.committed == grown


def test_threads_allocate_and_free_at_once(saver):
    failed = []

    def work(value):
        try:
            for _ in range(60):
                array = fill(region, 3000, value)
                if not (array == value).all():
                    failed.append(value)
        except Exception as error:
            failed.append(error)

    with saver.region("a") as region:
        threads = [threading.Thread(target=work, args=(value,)) for value in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    gc.collect()
    assert not failed and region.used == 0


def test_functions_for_allocators_use_the_region_of_the_thread(saver):
    """As PyTorch calls them, without the GIL: what is freed late, or by nobody, is ignored."""
    library = ctypes.CDLL(_gvmem.__file__)
    alloc, free = library.gvmem_arena_alloc, library.gvmem_arena_free
    alloc.restype, alloc.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    free.restype, free.argtypes = None, [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    assert alloc(100, 0, None) is None
    with saver.region("a") as region:
        before = _gvmem.enter_arena(region._arena)
        got = alloc(3 * MIB, 0, None)
        assert got == region._object.address and region.used == 3 * MIB
        ctypes.memset(got, 1, 3 * MIB)
        assert alloc(100, 1, None) is None and alloc(-1, 0, None) is None and alloc(2**50, 0, None) is None
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(alloc(100, 0, None)))
        thread.start()
        thread.join()
        assert elsewhere == [None]
        saver.pause()
        assert alloc(100, 0, None) is None
        saver.resume()
        free(got, 3 * MIB, 0, None)
        free(got, 3 * MIB, 0, None)
        free(16, 100, 0, None)
        assert region.used == 0
        assert _gvmem.enter_arena(before) is region._arena
    with pytest.raises(TypeError):
        _gvmem.enter_arena(1)


def test_allocation_says_why_there_is_no_room(keeper, saver):
    with saver.region("a") as region, pytest.raises(FileNotFoundError):
        keeper.open("/absent")
    region._arena.pause(True)  # as pause() does just before another thread allocates
    with pytest.raises(MemoryError, match="5 bytes cannot be allocated while the region is paused"):
        region.alloc(5)
    region._arena.pause(False)
    with pytest.raises(MemoryError, match="do not fit"):
        region.alloc(2**40)


def test_region_that_is_closed_while_a_thread_allocates_from_it_gives_nothing(keeper, saver):
    library = ctypes.CDLL(_gvmem.__file__)
    library.gvmem_arena_alloc.restype = ctypes.c_void_p
    with saver.region("a") as region:
        before = _gvmem.enter_arena(region._arena)
        saver.close()
        try:
            assert len(keeper.objects()) == 1  # or else the arena is gone, and must not be used
            assert library.gvmem_arena_alloc(ctypes.c_ssize_t(100), 0, None) is None
        finally:
            _gvmem.enter_arena(before)
    assert keeper.objects() == []


def test_free_that_waits_for_the_gpu_keeps_nobody_waiting(keeper, saver, streams):  # noqa: F811
    go, made = threading.Event(), threading.Event()
    with saver.region("a") as region:
        parts = [region.alloc(MIB)]
    streams[0].call_back(lambda: go.wait(20))
    freer = threading.Thread(target=parts.clear)
    freer.start()
    while parts:
        time.sleep(0.001)
    freer.join(0.1)
    maker = threading.Thread(target=lambda: (saver._find("b", False), made.set()))  # has an arena of its own
    maker.start()
    made.wait(10)
    assert made.is_set() and freer.is_alive()
    go.set()
    freer.join(20)
    maker.join(20)
    assert region.used == 0


def test_child_by_fork_frees_nothing_and_ends_well(server):
    program = """
import ctypes, os, signal, sys, threading, gvmem
saver = gvmem.Saver(sys.argv[1])
with saver.region("a") as region:
    parts = [region.alloc(1 << 20), region.alloc(1 << 20)]
driver, context, go = ctypes.CDLL(gvmem.driver().path), ctypes.c_void_p(), threading.Event()
call_back = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: go.wait(20))
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == driver.cuCtxSetCurrent(context) == 0
assert driver.cuLaunchHostFunc(None, call_back, None) == 0
freer = threading.Thread(target=parts.pop)
freer.start()
freer.join(0.1)  # it waits
pid = os.fork()
if pid == 0:
    signal.alarm(15)
    parts.clear()
    try:
        region.alloc(1)
        os._exit(2)
    except gvmem.errors.Foreign:
        pass
    saver.close()
    assert region.used == 0
    del region, saver
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert not go.is_set()
go.set()
freer.join()
assert region.used == 1 << 20
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program, server.path], check=True, timeout=60)


def test_child_by_fork_ends_what_a_thread_of_its_parent_was_in(server):
    program = """
import os, signal, sys, threading, gvmem
saver = gvmem.Saver(sys.argv[1])
with saver.region("a") as region:
    pass
go, inside = threading.Event(), threading.Event()
def resume():
    with saver._lock, region._lock:
        inside.set()
        go.wait(20)
threading.Thread(target=resume).start()
inside.wait(20)
pid = os.fork()
if pid == 0:
    signal.alarm(10)
    saver.close()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
go.set()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program, server.path], check=True, timeout=60)


def test_close_gives_everything_back(keeper):
    saver = gvmem.Saver(keeper)
    with saver.region("a", enable_cpu_backup=True) as region:
        part = region.alloc(MIB)
    saver.close()
    saver.close()
    with pytest.raises(ValueError):
        part.array()
    with pytest.raises(ValueError):
        saver.resume()
    del part, region, saver
    gc.collect()
    assert keeper.objects() == []


def test_parts_keep_the_memory_when_the_saver_goes(server):
    with gvmem.Saver(server.path).region("a") as region:
        array = fill(region, MIB, 9)
    del region
    gc.collect()
    assert float(array.mean()) == 9


def test_keeper_killed_is_an_error(own_server):
    saver = gvmem.Saver(own_server.path)
    with saver.region("a", enable_cpu_backup=True) as region:
        array = fill(region, MIB, 2)
    with saver.region("b") as other:
        other.alloc(MIB)
    saver.pause("b")
    own_server.stop()
    assert float(array.mean()) == 2  # what is not paused stays
    with pytest.raises(ConnectionError):
        region.alloc(16 * MIB)
    with pytest.raises(ConnectionError):
        saver.resume("b")
    assert other.paused
    del array
    saver.close()


def test_killed_process_leaves_nothing(keeper, start_child):
    child = start_child("""
saver = gvmem.Saver(keeper)
with saver.region("a", enable_cpu_backup=True) as region:
    part = region.alloc(8 << 20)
saver.pause()
say("paused"); wait()
""")
    assert child.read() == "paused" and [info.size_bytes >= 8 * MIB for info in keeper.objects()] == [True]
    child.process.kill()
    deadline = time.monotonic() + 30
    while keeper.objects() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert keeper.objects() == []
