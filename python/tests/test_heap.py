"""Heaps and their blocks: when memory is freed, and behind what."""
import gc
import os
import pickle
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
def heap():
    with gvmem.Heap() as made:
        yield made
        made.check()


def blocks(heap):
    return heap.info().blocks


def test_block_is_written_and_read(heap):
    with heap.alloc(100 * KIB) as block:
        array = numpy.asarray(block.array("f4", (5, 5), offset=16))
        array[:] = 3
        assert array.ctypes.data == block.address + 16 and bytes(block[16:20]) == numpy.float32(3).tobytes()
        assert (block.size, len(block), block.device, block.closed, block.array().shape) == (100 * KIB, 100 * KIB, 0, False, (100 * KIB,))
        assert repr(block) == f"<gvmem.Block of {100 * KIB} bytes at {block.address:#x} on GPU 0>" and repr(heap) == "<gvmem.Heap on GPU 0>"
        del array
    assert block.closed and blocks(heap) == 0 and repr(block).endswith(", closed>")


@pytest.mark.parametrize("kind", ["device", "host", "managed"])
def test_heap_of_each_kind(kind):
    with gvmem.Heap(kind=kind, device=1) as made, made.alloc(MIB) as block:
        assert block.device == 1
        numpy.asarray(block.array("i4"))[:] = 7
        assert (numpy.asarray(block.array("i4")) == 7).all()


def test_block_is_freed_when_nothing_uses_it(heap):
    for consume in (numpy.asarray, memoryview, numpy.from_dlpack, lambda a: a[:5], lambda a: a, lambda a: a.__dlpack__()):
        block = heap.alloc(KIB)
        kept = consume(block.array())
        block.close()
        block.close()
        assert blocks(heap) == 1
        del kept
        gc.collect()
        assert blocks(heap) == 0
    block = heap.alloc(KIB)
    array = numpy.asarray(block.array())
    del block
    assert blocks(heap) == 1
    array[:] = 1
    del array
    assert blocks(heap) == 0


def test_block_closed_cannot_be_used(heap):
    block = heap.alloc(KIB)
    block.close()
    for call in (block.array, lambda: block.resize(5), lambda: block[:1]):
        with pytest.raises(ValueError, match="block is closed"):
            call()


def test_heap_closed_ends_its_blocks_but_for_what_is_used():
    heap = gvmem.Heap()
    unused, used = heap.alloc(KIB), heap.alloc(KIB)
    array = numpy.asarray(used.array())
    heap.close()
    assert unused.closed and used.closed
    for call in (lambda: heap.alloc(1), heap.info, heap.trim, heap.blocks, heap.usage, unused.array, used.array, heap.check, lambda: heap.grant(1),
                 lambda: heap.save_snapshot("x")):
        with pytest.raises(ValueError, match="closed"):
            call()
    array[:] = 5
    del heap, used, unused
    gc.collect()
    assert (array == 5).all()


def test_block_is_resized_where_it_is():
    heap = gvmem.Heap(shelf=0)
    block = heap.alloc(64 * KIB)
    address, array = block.address, numpy.asarray(block[:32 * KIB])
    array[:] = 9
    block.resize(40 * KIB)
    assert block.size == 40 * KIB and block.array().nbytes == 40 * KIB
    block.resize(128 * KIB)
    assert (block.size, block.address) == (128 * KIB, address) and (array == 9).all()
    with pytest.raises(BufferError, match="still there"):
        block.resize(16 * KIB)
    assert block.size == 128 * KIB
    second = heap.alloc(64 * KIB)
    with pytest.raises(gvmem.Error):
        block.resize(2 << 40)
    second.close()
    del array
    block.resize(1)
    assert block.array().shape == (1,)
    block.close()


def test_heap_says_what_there_is(heap):
    made = [heap.alloc(10 * KIB, tag=tag) for tag in ("ä tag", None, "ä tag")]
    assert [(u.tag, u.blocks, u.size_bytes) for u in heap.usage()] == [("ä tag", 2, 20 * KIB), ("", 1, 10 * KIB)]
    listed = heap.blocks()
    assert [b.address for b in listed] == sorted(b.address for b in made) and {b.size_bytes for b in listed} == {10 * KIB}
    info = heap.info()
    assert (info.blocks, info.requested_bytes, info.ordinal) == (3, 30 * KIB, 0) and info.committed_bytes >= 48 * KIB
    del made
    heap.trim()
    assert heap.info().committed_bytes == 0 and heap.blocks() == [] and heap.usage() == []


def test_heap_says_what_slabs_take(heap):
    assert (heap.info().slabs, heap.info().slab_bytes) == (0, 0)
    with heap.alloc(100):
        info = heap.info()
        assert info.slabs == 1 and 0 < info.slab_free_bytes < info.slab_bytes <= info.committed_bytes


@pytest.mark.parametrize("size", [100, 3 * KIB, 20 * KIB, MIB])
def test_block_is_aligned_as_asked(heap, size):
    for align in (1, 256, 4 * KIB, 64 * KIB, 2 * MIB):
        held = [heap.alloc(size, align=align), heap.alloc(size, align=align, stream=0, tag="aligned"), heap.alloc(size)]
        assert [block.address % align for block in held[:2]] == [0, 0] and held[1].size == size
        for block in held:
            block.close()
    for align in (0, -1, 3, 4 * MIB, "x", None):
        with pytest.raises((gvmem.Error, ValueError, TypeError)):
            heap.alloc(size, align=align)


def test_snapshot_is_written(heap, tmp_path):
    with heap.alloc(20 * KIB, tag="weights") as block:
        for path in (tmp_path / "a", str(tmp_path / "a"), os.fsencode(tmp_path) + b"/\xff"):
            heap.save_snapshot(path)
            with open(path, "rb") as file:
                segments = pickle.load(file)["segments"]
            found = [part for segment in segments for part in segment["blocks"] if part["address"] == block.address]
            assert [(part["requested_size"], part["state"]) for part in found] == [(20 * KIB, "active_allocated")]
    for path, error in ((tmp_path / "no" / "folder", gvmem.Error), (os.fsencode(tmp_path) + b"/no/\xff", gvmem.Error), ("a\0b", ValueError), (5, TypeError), (None, TypeError)):
        with pytest.raises(error):
            heap.save_snapshot(path)


def test_limit_is_kept(heap):
    assert heap.limit is None
    heap.limit = 4 * MIB
    assert heap.limit == 4 * MIB
    with pytest.raises(MemoryError):
        heap.alloc(8 * MIB)
    heap.limit = None
    heap.alloc(8 * MIB).close()
    with gvmem.Heap(limit=4 * MIB) as other:
        assert other.limit == 4 * MIB
    with gvmem.Heap(limit=0) as other, pytest.raises(MemoryError):
        other.alloc(1)


def test_memory_that_is_kept_is_as_said():
    with gvmem.Heap(keep=0, shelf=0) as made:
        made.alloc(4 * MIB).close()
        assert made.info().committed_bytes == 0
    with gvmem.Heap(retain=True, shelf=0) as made:
        made.alloc(4 * MIB).close()
        assert made.info().committed_bytes >= 4 * MIB
        made.trim()
        assert made.info().committed_bytes == 0
    with gvmem.Heap(decay=100, shelf=0) as made:
        made.alloc(4 * MIB).close()
        assert made.info().committed_bytes >= 4 * MIB


@pytest.mark.parametrize("arguments", [
    {"device": 9}, {"device": -1}, {"device": "x"}, {"kind": "disk"}, {"kind": None}, {"limit": -1}, {"limit": "x"}, {"limit": 2**64}, {"keep": -1}, {"decay": -1},
    {"decay": float("nan")}, {"decay": 2**40}, {"shelf": 1.5}, {"retain": True, "keep": 5},
])
def test_heap_of_nonsense_is_refused(arguments):
    with pytest.raises((ValueError, TypeError, OverflowError, gvmem.Error)):
        gvmem.Heap(**arguments)


@pytest.mark.parametrize("arguments", [
    {"size": 0}, {"size": -1}, {"size": 2**64}, {"size": 2**62}, {"size": "x"}, {"size": 1.5}, {"size": None}, {"size": 1, "tag": 5}, {"size": 1, "tag": b"x"},
    {"size": 1, "stream": "x"}, {"size": 1, "stream": -1}, {"size": 1, "tag": "\udc80"}, {"size": 1, "tag": "a\0b"}, {"size": 200 * MIB + 2**30},
])
def test_block_of_nonsense_is_refused(heap, arguments):
    with pytest.raises((ValueError, TypeError, OverflowError, gvmem.Error)):
        heap.alloc(**arguments)
    assert blocks(heap) == 0


@pytest.mark.parametrize("call", [
    lambda h: h.trim(-1), lambda h: h.trim("x"), lambda h: h.grant(0), lambda h: h.grant(9), lambda h: h.grant(1, "x"), lambda h: h.end_stream("x"),
    lambda h: setattr(h, "limit", -1), lambda h: setattr(h, "limit", "x"),
])
def test_call_with_nonsense_is_refused(heap, call):
    with pytest.raises((ValueError, TypeError, gvmem.Error)):
        call(heap)


def test_other_device_has_access(heap):
    heap.grant(1, "read")
    block = heap.alloc(KIB)
    heap.grant(1, None)
    block.close()


def test_block_is_freed_behind_its_stream(heap, streams):  # noqa: F811
    for argument in ("alloc", "close"):
        go = threading.Event()
        block = heap.alloc(MIB, stream=streams[0] if argument == "alloc" else None)
        streams[0].call_back(lambda go=go: go.wait(20))
        try:
            block.close(stream=streams[0] if argument == "close" else None)  # waits for nothing
            assert not go.is_set() and blocks(heap) == 0
            if argument == "close":
                assert heap.info().pending_bytes >= MIB
        finally:
            go.set()
    heap.end_stream(streams[0])
    heap.trim()
    assert heap.info().committed_bytes == 0 and heap.info().streams == 0


def test_block_is_freed_behind_a_stream_of_another_gpu(heap):
    heap.grant(1)
    stream, go, block = Stream(1), threading.Event(), heap.alloc(MIB)
    address = block.address
    stream.call_back(lambda: go.wait(20))
    try:
        block.close(stream=stream)
        assert heap.info().pending_bytes >= MIB
        others = [heap.alloc(MIB) for _ in range(4)]
        assert address not in [other.address for other in others]
    finally:
        go.set()
        stream.close()
    others += [heap.alloc(MIB) for _ in range(4)]
    assert address in [other.address for other in others]


def test_block_that_no_event_can_follow_waits_for_the_stream():
    """Of another GPU, for which a wait for all work of its own is not enough."""
    program = """
import threading, gvmem
from test_buffer import Stream
heap, stream, go, done = gvmem.Heap(), Stream(1), threading.Event(), []
block = heap.alloc(1 << 20)
stream.call_back(lambda: (go.wait(20), done.append(1)))
threading.Timer(0.2, go.set).start()
block.close(stream=stream)
assert done
stream.close()
heap.close()
"""
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "GVMEM_FAULT": "cuEventCreate:1+", "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])}, check=True)


def test_block_that_was_consumed_is_freed_behind_all_work(heap, streams):  # noqa: F811
    first, second = streams
    for said in (False, True):
        go = threading.Event()
        block = heap.alloc(MIB, stream=first)
        array = numpy.asarray(block.array())
        second.call_back(lambda go=go: go.wait(20))  # as a consumer's kernel does
        if said:
            block.close(stream=first)
            del array  # waits for nothing
            assert not go.is_set() and blocks(heap) == 0
        else:
            del array
            closer = threading.Thread(target=block.close)
            closer.start()
            closer.join(0.1)
            assert closer.is_alive() and blocks(heap) == 1
        go.set()
        if not said:
            closer.join(20)
        assert blocks(heap) == 0


def test_array_of_a_block_is_ordered_behind_its_stream(heap, streams):  # noqa: F811
    first, second = streams
    block, done = heap.alloc(MIB, stream=first), []
    for make, waits in ((block.array, True), (lambda: block[:5], True), (lambda: block.array(stream=second), False)):
        go = threading.Event()
        first.call_back(lambda go=go: go.wait(20))
        consumer = threading.Thread(target=lambda make=make: done.append(numpy.asarray(make()).size))
        consumer.start()
        consumer.join(0.1 if waits else 20)
        assert consumer.is_alive() == waits
        go.set()
        consumer.join(20)
    assert done == [MIB, 5, MIB]


@pytest.mark.parametrize("keep", [
    lambda h, b: h.alloc(MIB, stream=2), lambda h, b: b.close(stream=2), lambda h, b: b.array(stream=2),
], ids=["alloc", "close", "array"])
def test_stream_of_each_thread_is_not_kept(heap, keep):
    with heap.alloc(MIB) as block:
        with pytest.raises(NotImplementedError, match="per-thread"):
            keep(heap, block)
        assert not block.closed and blocks(heap) == 1


def test_block_of_a_stream_that_has_ended_is_not_ordered_behind_it(heap):
    stream = Stream()
    block = heap.alloc(MIB, stream=stream)
    closed, array = heap.alloc(MIB, stream=stream), block.array()
    other = heap.alloc(MIB)
    kept, behind = closed.array(), other.array(stream=stream)
    closed.close(stream=stream)
    heap.end_stream(stream)
    stream.close()
    assert numpy.asarray(array).size == numpy.asarray(block.array()).size == numpy.asarray(behind).size == MIB
    del array, kept, behind
    other.close()
    block.close()
    assert blocks(heap) == 0


def test_end_of_a_stream_waits_for_work_on_arrays(heap, streams):  # noqa: F811
    """Also if the stream has no memory of the heap."""
    go = threading.Event()
    block = heap.alloc(MIB)
    array = block.array(stream=streams[0])
    streams[0].call_back(lambda: go.wait(20))
    ender = threading.Thread(target=heap.end_stream, args=(streams[0],))
    ender.start()
    ender.join(0.1)
    assert ender.is_alive()
    go.set()
    ender.join(20)
    assert numpy.asarray(array).size == MIB


def test_block_without_a_stream_is_freed_behind_all_work(heap, streams):  # noqa: F811
    go = threading.Event()
    block = heap.alloc(MIB)
    streams[0].call_back(lambda: go.wait(20))
    closer = threading.Thread(target=block.close)
    closer.start()
    closer.join(0.1)
    assert closer.is_alive() and blocks(heap) == 1
    go.set()
    closer.join(20)
    assert blocks(heap) == 0


def test_block_is_freed_behind_all_work_of_a_gpu_that_has_access(heap):
    heap.grant(1, "read")
    stream, go, block = Stream(1), threading.Event(), heap.alloc(MIB)
    stream.call_back(lambda: go.wait(20))
    closer = threading.Thread(target=block.close)
    closer.start()
    closer.join(0.1)
    try:
        assert closer.is_alive() and blocks(heap) == 1
    finally:
        go.set()
        closer.join(20)
        stream.close()
    assert blocks(heap) == 0


@pytest.mark.parametrize("own", [False, True])
def test_heap_ends_behind_work_of_another_gpu(own):
    heap = gvmem.Heap()
    heap.grant(1)
    stream, go = Stream(1), threading.Event()
    block = heap.alloc(MIB, stream=stream if own else None)
    stream.call_back(lambda: go.wait(20))
    block.close(stream=stream)
    closer = threading.Thread(target=heap.close)
    closer.start()
    closer.join(0.1)
    try:
        assert closer.is_alive()
    finally:
        go.set()
        closer.join(20)
        stream.close()
    assert not closer.is_alive()


def test_threads_allocate_at_once(heap):
    failures = []

    def work(seed):
        random = numpy.random.RandomState(seed)
        held = []
        try:
            for i in range(300):
                block = heap.alloc(int(random.randint(1, 256 * KIB)), tag=f"tag {i % 7}")
                array = numpy.asarray(block.array())
                array[:64] = seed
                held.append((block, array))
                if len(held) > 20:
                    block, array = held.pop(random.randint(20))
                    assert (array[:64] == seed).all()
                if i % 50 == 0:
                    heap.usage(), heap.blocks(), heap.info()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    gc.collect()
    assert blocks(heap) == 0


def test_child_by_fork_cannot_use_it_and_ends_well():
    program = """
import os, sys, gvmem, numpy
heap = gvmem.Heap()
block = heap.alloc(1000)
kept = numpy.asarray(block.array())
pid = os.fork()
if pid == 0:
    for call in (block.array, heap.info, heap.trim, lambda: heap.alloc(1), lambda: block.resize(1), heap.blocks):
        try:
            call()
            os._exit(2)
        except (gvmem.errors.Foreign, BufferError):
            pass
    del block, kept
    heap.close()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
heap.check()
heap.alloc(5).close()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=60)


def test_interpreter_that_ends_with_live_things_ends_well():
    program = """
import sys, gvmem, numpy
heap = gvmem.Heap()
block = heap.alloc(1000)
sys.array = numpy.asarray(heap.alloc(1000).array())
sys.cycle = [heap, block.array()]
sys.cycle.append(sys.cycle)
vector = gvmem.Vector("f4", 100)
sys.view = memoryview(vector.array())
sys.exit(3)
"""
    done = subprocess.run([sys.executable, "-X", "dev", "-c", program], stderr=subprocess.PIPE, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (3, b"")


def test_nothing_leaks_in_a_long_loop(heap):
    def rss():
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * 4096

    def turn(times):
        for _ in range(times):
            with heap.alloc(MIB, tag="loop") as block:
                numpy.asarray(block.array("f4")), block.array()[5:], heap.usage(), heap.blocks(), heap.info()
                with pytest.raises(ValueError):
                    block.array("f4", -7)
                with pytest.raises(gvmem.Error):
                    heap.alloc(0)

    turn(100)
    gc.collect()
    before = rss()
    turn(2000)
    gc.collect()
    assert rss() - before < 4 * MIB and blocks(heap) == 0
