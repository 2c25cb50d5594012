"""Buffers: memory of this process alone, as arrays of others; what may not be taken away from under them."""
import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy
import pytest

import gvmem
from conftest import MIB
from gvmem import _gvmem


@pytest.fixture
def buffer():
    with gvmem.Buffer(4 * MIB, reserve=16 * MIB, chunk=2 * MIB) as made:
        yield made


class Stream:
    """A stream of the driver that is loaded."""

    def __init__(self, device=0):
        self.driver = ctypes.CDLL(gvmem.driver().path)
        self.device = device
        self.cuda_stream = ctypes.c_void_p()
        self.context = ctypes.c_void_p()
        self.functions = []
        assert self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device) == 0
        assert self.driver.cuCtxSetCurrent(self.context) == 0
        assert self.driver.cuStreamCreate(ctypes.byref(self.cuda_stream), 1) == 0
        self.cuda_stream = self.cuda_stream.value

    def call_back(self, function):
        """Runs a function in the order of the stream."""
        self.functions.append(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: function()))
        assert self.driver.cuLaunchHostFunc(ctypes.c_void_p(self.cuda_stream), self.functions[-1], None) == 0

    @contextmanager
    def capture(self):
        """Work of the block becomes a graph, as long as nothing ends the capture."""
        graph = ctypes.c_void_p()
        assert self.driver.cuStreamBeginCapture_v2(ctypes.c_void_p(self.cuda_stream), 0) == 0
        try:
            yield
        finally:
            ended = self.driver.cuStreamEndCapture(ctypes.c_void_p(self.cuda_stream), ctypes.byref(graph))
        assert ended == 0 and self.driver.cuGraphDestroy(graph) == 0

    def wait(self):
        assert self.driver.cuStreamSynchronize(ctypes.c_void_p(self.cuda_stream)) == 0

    def close(self):
        self.wait()
        assert self.driver.cuStreamDestroy_v2(ctypes.c_void_p(self.cuda_stream)) == 0
        assert self.driver.cuDevicePrimaryCtxRelease_v2(self.device) == 0


@pytest.fixture
def streams():
    made = [Stream(), Stream()]
    yield made
    for stream in made:
        stream.close()


def test_buffer_is_written_and_read_by_numpy(buffer):
    array = numpy.asarray(buffer.array("f4", (2, 5), offset=64))
    array[:] = numpy.arange(10).reshape(2, 5)
    assert array.ctypes.data == buffer.address + 64
    assert numpy.from_dlpack(buffer.array("f4", 10, offset=64)).tolist() == list(range(10))
    assert numpy.frombuffer(buffer.copy_out(40, 64), "f4").tolist() == list(range(10))


def test_buffer_says_what_it_is(buffer):
    assert (buffer.size, len(buffer), buffer.committed, buffer.device, buffer.sealed, buffer.closed) == (16 * MIB, 16 * MIB, 4 * MIB, 0, False, False)
    info = buffer.info()
    assert (info.address, info.reserve_bytes, info.chunk_bytes) == (buffer.address, 16 * MIB, 2 * MIB)
    assert repr(buffer) == f"<gvmem.Buffer of {16 * MIB} bytes at {buffer.address:#x} on GPU 0>"
    buffer.close()
    assert buffer.closed and repr(buffer).endswith(", closed>") and buffer.address != 0


def test_buffer_of_second_device_is_there():
    with gvmem.Buffer(2 * MIB, device=1) as made:
        assert made.device == 1 and made.info().ordinal == 1
        made.grant(0, "read")
        made.grant(0, None)
        with pytest.raises(gvmem.errors.Invalid):
            made.grant(1)
        with pytest.raises(ValueError, match="access"):
            made.grant(0, "all")


def test_buffer_grows_and_its_arrays_stay(buffer):
    array = numpy.asarray(buffer.array("u1", 4 * MIB))
    array[:] = 7
    assert buffer.array().shape == (4 * MIB,)
    buffer.commit(4 * MIB, 2 * MIB)
    buffer.commit(10 * MIB, 2 * MIB)
    assert buffer.array().shape == (6 * MIB,) and buffer.array(offset=5 * MIB).shape == (MIB,) and buffer.committed == 8 * MIB
    assert (buffer.tier(), buffer.tier(6 * MIB), buffer.tier(10 * MIB)) == ("device", "absent", "device")
    assert (array == 7).all() and numpy.asarray(buffer.array("u1", 1)).ctypes.data == array.ctypes.data


def test_buffer_of_no_memory_has_empty_arrays():
    with gvmem.Buffer(0, reserve=2 * MIB) as made:
        assert made.array("f4").shape == (0,) and numpy.asarray(made.array("f4")).shape == (0,)
        made.commit()
        assert made.array("f4").shape == (MIB // 2,)


def test_slices_are_arrays_of_bytes(buffer):
    buffer.copy_in(bytes(range(100)))
    assert bytes(buffer[10:13]) == b"\n\x0b\x0c" and len(buffer[:0]) == 0 and len(buffer[5:3]) == 0
    for key, error in ((5, TypeError), ("a", TypeError), (slice(0, 10, 2), ValueError), (slice(3 * MIB, 5 * MIB), ValueError)):
        with pytest.raises(error):
            buffer[key]


def test_array_is_cut_without_a_copy(buffer):
    a = buffer.array("i4", (6, 2))
    numpy.asarray(a)[:] = numpy.arange(12).reshape(6, 2)
    part = a[2:4]
    assert part.shape == (2, 2) and part.address == a.address + 16 and part.nbytes == 16
    assert numpy.asarray(part).tolist() == [[4, 5], [6, 7]] and numpy.asarray(a[-1:]).tolist() == [[10, 11]]
    assert a[4:2].shape == (0, 2) and a[:].shape == (6, 2) and a[100:].nbytes == 0
    for key, error in ((0, TypeError), (slice(None, None, -1), ValueError), (slice("a"), TypeError)):
        with pytest.raises(error):
            a[key]
    with pytest.raises(TypeError):
        buffer.array("i4", ())[:]
    with pytest.raises(TypeError):
        iter(a)


@pytest.mark.parametrize("arguments", [
    {"size": -1}, {"size": 2**64}, {"size": 2**62}, {"size": "x"}, {"size": 1.5}, {"size": None}, {"size": 0}, {"size": 1, "device": 9},
    {"size": 1, "device": -1}, {"size": 1, "device": 2**40}, {"size": 1, "chunk": 3}, {"size": 1, "chunk": 2**40}, {"size": 1, "reserve": -5},
    {"size": 1, "reserve": "x"}, {"size": 1, "address": -1}, {"size": 1, "address": 4096}, {"size": 400 * MIB},
])
def test_buffer_of_nonsense_is_refused(arguments):
    with pytest.raises((ValueError, TypeError, OverflowError, gvmem.Error)):
        gvmem.Buffer(**arguments)


@pytest.mark.parametrize("arguments", [
    {"offset": -1}, {"offset": 2**64}, {"offset": 17 * MIB}, {"offset": "x"}, {"shape": 4 * MIB + 1}, {"shape": -2}, {"shape": 2**64}, {"dtype": "x"},
    {"dtype": "f8", "offset": 4}, {"stream": "x"}, {"stream": -1}, {"shape": (2**62, 2**62)}, {"offset": 4 * MIB, "shape": 1},
])
def test_array_of_nonsense_is_refused(buffer, arguments):
    with pytest.raises((ValueError, TypeError, OverflowError)):
        buffer.array(**arguments)
    buffer.decommit()  # no array is left


@pytest.mark.parametrize("call", [
    lambda b: b.commit(0, 0), lambda b: b.commit(16 * MIB, 1), lambda b: b.commit(-1, 1), lambda b: b.commit(0, 2**64), lambda b: b.decommit(1, 2**64 - 1),
    lambda b: b.decommit(0, -1), lambda b: b.move("moon"), lambda b: b.move(0), lambda b: b.move(9), lambda b: b.move([]), lambda b: b.move("host", 0, 17 * MIB), lambda b: b.move("absent"), lambda b: b.tier(16 * MIB),
    lambda b: b.tier("x"), lambda b: b.copy_in(b"x", 16 * MIB), lambda b: b.copy_in(5), lambda b: b.copy_in("text"), lambda b: b.copy_in(b"x", -1),
    lambda b: b.copy_out(-1), lambda b: b.copy_out(1, 16 * MIB), lambda b: b.copy_out(2**63), lambda b: b.copy_out(into=b"readonly"),
    lambda b: b.copy_out(65, into=bytearray(64)), lambda b: b.copy_out(-1, into=bytearray(64)), lambda b: b.copy_out("x", into=bytearray(64)),
    lambda b: b.fill(b"xyz"), lambda b: b.fill(b""), lambda b: b.fill(7), lambda b: b.fill(b"abcd", 2, 4), lambda b: b.copy_from(b"x"),
    lambda b: b.copy_from(b, 100, offset=50), lambda b: b.copy_from(b, -1), lambda b: b.grant("x"), lambda b: b.fill(b"x", 0, 16 * MIB),
])
def test_call_with_nonsense_is_refused(buffer, call):
    with pytest.raises((ValueError, TypeError, OverflowError, BufferError, gvmem.Error)):
        call(buffer)
    assert buffer.committed == 4 * MIB


def test_copies_and_fills(buffer):
    buffer.fill(numpy.float32(1.5), 0, 4000)
    assert numpy.asarray(buffer.array("f4", 1000)).tolist() == [1.5] * 1000
    buffer.copy_in(numpy.arange(100, dtype="i8"), 8000)
    with gvmem.Buffer(2 * MIB) as other:
        other.copy_from(buffer, 800, source_offset=8000, offset=16)
        assert numpy.asarray(other.array("i8", 100, offset=16)).sum() == 4950
        buffer.copy_from(other, 8, source_offset=24)
    into = numpy.empty(1, "i8")
    assert buffer.copy_out(into=into) is into and into[0] == 1
    assert len(buffer.copy_out(5)) == 5 and buffer.copy_out(0, 16 * MIB) == b""
    buffer.fill(b"\1", 0, 64)
    into = bytearray(64)
    assert buffer.copy_out(4, 8, into=into) is into and into == b"\1" * 4 + bytes(60)


# ---- what may not be taken away


def test_memory_under_an_array_is_not_taken_away(buffer):
    a = buffer.array("u1", 100, offset=2 * MIB)
    for keep in (lambda: a, lambda: numpy.asarray(a), lambda: memoryview(a), lambda: a[5:6], lambda: a.__dlpack__()):
        kept = keep()
        with pytest.raises(BufferError, match=f"array of .{2 * MIB}, {2 * MIB + 100}. is still there"):
            buffer.decommit()
        del kept
    buffer.decommit(0, 2 * MIB)  # beside it
    assert buffer.committed == 2 * MIB
    array = numpy.asarray(a)
    del a
    with pytest.raises(BufferError):
        buffer.decommit()
    array[:] = 1
    del array
    buffer.decommit()
    assert buffer.committed == 0


def test_buffer_sealed_is_readonly_for_good(buffer):
    reader = buffer.array(readonly=True)
    with pytest.raises((ValueError, TypeError)):
        numpy.asarray(reader)[0] = 1
    writer = buffer.array()
    with pytest.raises(BufferError):
        buffer.seal()
    del writer
    buffer.seal()
    assert buffer.sealed and buffer.array().readonly and numpy.asarray(reader)[0] == 0
    for call in (lambda: buffer.copy_in(b"x"), buffer.decommit, lambda: buffer.commit(8 * MIB), lambda: buffer.fill()):
        with pytest.raises((PermissionError, BufferError)):
            call()


def test_errors_say_what_to_give_instead(buffer):
    for place in (True, None, "absent", 1.0):
        with pytest.raises(ValueError, match="no place to move to.*device.*host.*number of another GPU"):
            buffer.move(place)
    with pytest.raises(TypeError, match="index is of type int, not a slice"):
        buffer[0]
    with pytest.raises(ValueError, match="offset=-1, size=None is no range"):
        buffer.copy_out(offset=-1)


def test_buffer_moved_is_the_same(buffer):
    a = buffer.array("u4", 100)
    array = numpy.asarray(a)
    array[:] = numpy.arange(100)
    for tier, name in (("host", "host"), (numpy.int64(1), "peer"), ("host", "host"), (1, "peer"), ("device", "device")):
        committed = buffer.committed
        buffer.move(tier)
        assert buffer.tier() == name and array.sum() == 4950 and buffer.info().moved_bytes > 0
        assert buffer.committed == committed and buffer.info().peer_bytes == (committed if name == "peer" else 0)
    assert numpy.asarray(a).ctypes.data == buffer.address


def test_buffer_closed_refuses_everything(buffer):
    buffer.close()
    buffer.close()
    for call in (buffer.array, buffer.commit, buffer.decommit, buffer.seal, buffer.info, buffer.tier, lambda: buffer[0:1], lambda: buffer.copy_in(b"x"),
                 lambda: buffer.move("host"), lambda: buffer.copy_out(1), lambda: buffer.fill(), lambda: buffer.grant(1), lambda: buffer.committed):
        with pytest.raises(ValueError, match="closed"):
            call()
    with gvmem.Buffer(2 * MIB) as other, pytest.raises(ValueError, match="closed"):
        other.copy_from(buffer, 1)


@pytest.mark.parametrize("consume", [numpy.asarray, memoryview, numpy.from_dlpack, lambda a: a[1:], lambda a: a])
def test_consumer_keeps_the_memory(consume):
    before = free_bytes()
    with gvmem.Buffer(2 * MIB, unshared=True) as made:
        made.fill(b"\x05")
        kept = consume(made.array())
    assert made.closed and free_bytes() < before
    assert bytes(memoryview(kept)[:3]) == b"\5\5\5"
    del kept
    gc.collect()
    assert free_bytes() == before


def free_bytes():
    """Of device 0, which no cache of this process holds back."""
    driver = ctypes.CDLL(gvmem.driver().path)
    with gvmem.Buffer(0, reserve=2 * MIB):  # the context is there
        context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and driver.cuCtxSetCurrent(context) == 0
        assert driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
        assert driver.cuDevicePrimaryCtxRelease_v2(0) == 0
    return free.value


# ---- streams


def test_array_of_a_stream_is_waited_for_on_the_cpu(buffer, streams):
    for consume in (numpy.asarray, memoryview, numpy.from_dlpack):
        buffer.fill(b"\0")
        go = threading.Event()
        streams[0].call_back(lambda go=go: go.wait(10))
        buffer.fill(b"\7", 0, 100, stream=streams[0])
        a = buffer.array("u1", 100, stream=streams[0])
        done = []
        waiter = threading.Thread(target=lambda a=a, consume=consume, done=done: done.append(bytes(memoryview(consume(a)))))
        waiter.start()
        waiter.join(0.1)
        assert waiter.is_alive() and not done
        go.set()
        waiter.join(10)
        assert done == [b"\7" * 100]


def test_stream_waits_for_another(streams):
    first, second = streams
    go, said = threading.Event(), []
    first.call_back(lambda: (go.wait(10), said.append("first")))
    _gvmem.order_streams(0, first.cuda_stream, second.cuda_stream)
    done = threading.Event()
    second.call_back(lambda: (said.append("second"), done.set()))
    assert not done.wait(0.1)
    go.set()
    assert done.wait(10) and said == ["first", "second"]


def test_copies_are_in_the_order_of_a_stream(buffer, streams):
    with gvmem.Buffer(2 * MIB) as other:
        other.fill(b"\3")
        go = threading.Event()
        streams[0].call_back(lambda: go.wait(10))
        buffer.copy_from(other, 100, stream=streams[0])
        assert buffer.copy_out(1) == b"\0"
        go.set()
        assert bytes(buffer.array("u1", 100, stream=streams[0])) == b"\3" * 100


# ---- threads and processes


@pytest.mark.parametrize("change", [lambda buffer: buffer.close(), lambda buffer: buffer.decommit(), lambda buffer: buffer.move("host")])
def test_memory_goes_behind_the_work_of_a_gpu_that_has_access(change):
    stream, go = Stream(1), threading.Event()
    with gvmem.Buffer(2 * MIB) as source, gvmem.Buffer(2 * MIB, device=1) as target:
        source.fill(b"\5")
        source.grant(1)
        stream.call_back(lambda: go.wait(20))
        target.copy_from(source, stream=stream)
        changer = threading.Thread(target=change, args=(source,))
        changer.start()
        changer.join(0.1)
        try:
            assert changer.is_alive()
        finally:
            go.set()
            changer.join(20)
            stream.close()
        assert bytes(target.copy_out(4)) == b"\5" * 4


def wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("take", [lambda b: b.decommit(), lambda b: b.seal(), lambda b: b.move("host")], ids=["decommit", "seal", "move"])
def test_nothing_uses_memory_that_is_being_taken_away(buffer, streams, take):
    go = threading.Event()
    with gvmem.Buffer(2 * MIB) as other:
        streams[0].call_back(lambda: go.wait(10))
        taker = threading.Thread(target=take, args=(buffer,))
        taker.start()  # waits for the stream
        try:
            wait_until(lambda: buffer._handle.users == 1)
            for use in (buffer.array, lambda: buffer.fill(stream=streams[1]), lambda: buffer.copy_from(other, 5, stream=streams[1]),
                        lambda: other.copy_from(buffer, 5, stream=streams[1])):
                with pytest.raises(BufferError, match="just now"):
                    use()
            assert buffer._handle.users == 1 and other._handle.users == 0
        finally:
            go.set()
            taker.join(10)
    assert buffer._handle.users == 0 and buffer.array().nbytes == buffer.committed


def test_memory_is_not_taken_away_while_a_thread_queues_a_fill(streams):
    with gvmem.Buffer(2 * MIB, reserve=4 * MIB, chunk=2 * MIB) as made:
        end, failures = threading.Event(), []

        def fill():
            while not end.is_set() and not failures:
                try:
                    made.fill(b"x", 0, 64, stream=streams[0])
                    streams[0].wait()  # or the queue would grow without an end
                except (BufferError, gvmem.errors.Absent):
                    pass
                except BaseException as error:
                    failures.append(error)

        thread = threading.Thread(target=fill)
        thread.start()
        taken, refused, late = 0, 0, time.monotonic() + 60
        while (taken < 50 or refused < 50) and not failures and time.monotonic() < late:
            try:
                made.decommit()
                taken += 1
                made.commit(0, 2 * MIB)
            except BufferError as error:
                assert "queues" in str(error)
                refused += 1
        end.set()
        thread.join()
        assert not failures and taken >= 50 and refused > 0  # how often threads meet is not ours to say


def test_threads_make_arrays_while_one_takes_memory_away():
    with gvmem.Buffer(2 * MIB, reserve=4 * MIB, chunk=2 * MIB) as made:
        end, failures = threading.Event(), []

        def consume():
            while not end.is_set():
                try:
                    array = numpy.asarray(made.array("u1", 2 * MIB))
                    array[::4096] = 1  # a fault, if the memory has gone
                    del array
                    time.sleep(0.001)
                except (BufferError, ValueError):
                    pass
                except BaseException as error:
                    failures.append(error)

        threads = [threading.Thread(target=consume) for _ in range(2)]
        for thread in threads:
            thread.start()
        taken, late = 0, time.monotonic() + 60
        while taken < 200 and not failures and time.monotonic() < late:
            try:
                made.decommit()
                taken += 1
            except BufferError:
                pass
            made.commit(0, 2 * MIB)
        end.set()
        for thread in threads:
            thread.join()
        assert not failures and taken == 200


def test_buffer_closed_under_threads_is_an_error_there():
    made, errors = gvmem.Buffer(8 * MIB), []

    def copy():
        try:
            while True:
                made.copy_in(bytes(MIB))
        except ValueError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=copy) for _ in range(2)]
    for thread in threads:
        thread.start()
    made.close()
    for thread in threads:
        thread.join(30)
    assert errors == ["the buffer is closed"] * 2


def test_child_by_fork_cannot_use_it_and_ends_well():
    program = """
import os, sys, gvmem, numpy
buffer = gvmem.Buffer(2 << 20)
kept = numpy.asarray(buffer.array("f4"))
kept[:] = 1
pid = os.fork()
if pid == 0:
    for call in (buffer.array, buffer.info, buffer.commit, buffer.decommit, lambda: buffer.copy_in(b"x"), buffer.seal, lambda: gvmem.Buffer(1)):
        try:
            call()
            os._exit(2)
        except (gvmem.Error, BufferError):
            pass
    buffer.close()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert kept.sum() == 1 << 19
buffer.copy_in(b"x")
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=60)


def test_interpreter_that_ends_with_live_things_ends_well():
    program = """
import sys, gvmem, numpy
class Late:
    def __init__(self, kept): self.kept = kept
    def __del__(self): self.kept[:1] = b"x"
buffer = gvmem.Buffer(2 << 20)
array = numpy.asarray(buffer.array())
late = Late(memoryview(buffer.array()))
cycle = [buffer.array()]
cycle.append(cycle)
sys.late = Late(memoryview(gvmem.Buffer(2 << 20).array()))
sys.capsule = buffer.array().__dlpack__()
sys.exit(3)
"""
    done = subprocess.run([sys.executable, "-X", "dev", "-c", program], stderr=subprocess.PIPE, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (3, b"")


def test_nothing_leaks_in_a_long_loop():
    def rss():
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def turn(times):
        for _ in range(times):
            with gvmem.Buffer(2 * MIB) as made:
                a = made.array("f4", (2, 3))
                numpy.asarray(a), memoryview(a), numpy.from_dlpack(a), a[1:], repr(a), repr(made), made.info()
                with pytest.raises(BufferError):
                    made.decommit()
                with pytest.raises(ValueError):
                    made.array("f4", -5)

    turn(50)
    gc.collect()
    files, before, free = len(os.listdir("/proc/self/fd")), rss(), free_bytes()
    turn(500)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == files and rss() - before < 4 * MIB and free_bytes() == free
