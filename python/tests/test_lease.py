"""Leases: how they begin, wait, conflict and end."""
import gc
import signal
import threading
import time
import weakref

import numpy
import pytest

import gvmem
from conftest import MIB
from test_buffer import Stream


@pytest.fixture
def obj(keeper):
    with keeper.create("/lease", 2 * MIB) as made:
        yield made


def leases(obj):
    info = obj.info()
    return info.read_leases, info.write_leases


def test_lease_is_there_in_its_block_alone(obj, keeper):
    with obj.read() as a:
        assert leases(obj) == (1, 0) and not a.ended
    assert leases(obj) == (0, 0) and a.ended
    with obj.write() as a:
        assert leases(obj) == (0, 1)
    assert leases(obj) == (0, 0)


def test_lease_ends_with_an_exception(obj):
    with pytest.raises(KeyError), obj.write():
        raise KeyError
    assert leases(obj) == (0, 0)


def test_lease_without_block_ends_with_its_last_reference(obj):
    lease = obj.write()
    a = lease.array("f8")
    del lease
    assert leases(obj) == (0, 1)
    numpy.asarray(a)[0] = 1
    del a
    assert leases(obj) == (0, 0)


def test_lease_released_twice_is_nothing(obj):
    lease = obj.read()
    assert lease.release() is True and lease.release() is True
    assert lease.ended and lease.released and leases(obj) == (0, 0)
    with pytest.raises(ValueError), lease:
        pass
    with pytest.raises(BufferError):
        lease.array()


def test_lease_entered_twice_is_refused(obj):
    lease = obj.read()
    with lease:
        with pytest.raises(ValueError):
            lease.__enter__()


def test_array_after_its_lease_cannot_be_consumed(obj):
    with obj.write() as a:
        pass
    for consume in (memoryview, numpy.asarray, numpy.from_dlpack, lambda a: a.__dlpack__(max_version=(1, 0)), bytes):
        with pytest.raises(BufferError, match="has ended"):
            consume(a)
    assert "ended" in repr(a) and a.shape == (2 * MIB,)


@pytest.mark.parametrize("consume", [memoryview, numpy.asarray, numpy.from_dlpack, lambda a: numpy.asarray(a)[5:7].reshape(2, 1)])
def test_consumer_that_is_left_keeps_the_lease(obj, consume):
    lease = obj.write()
    with lease as a:
        kept = consume(a)
    assert lease.ended and not lease.released and lease.exports == 1 and leases(obj) == (0, 1)
    assert lease.release() is False
    assert kept[0] == 0
    with pytest.raises(BufferError):
        numpy.asarray(a)
    del kept
    assert lease.released and leases(obj) == (0, 0)


def test_consumer_that_is_left_is_an_error_for_the_next(obj):
    with obj.read() as a:
        kept = numpy.asarray(a)
    with pytest.raises(BufferError, match="still in use"):
        obj.write()
    with pytest.raises(BufferError):
        obj.copy_in(b"x")
    with pytest.raises(TimeoutError):
        obj.write(timeout=0)
    with pytest.raises(TimeoutError):
        obj.write(timeout=0.05)
    with obj.read():  # that one does not conflict
        pass
    del kept
    obj.write().release()


def test_consumer_in_a_cycle_is_collected_for_the_next(obj):
    with obj.read() as a:
        cycle = [numpy.asarray(a)]
    cycle.append(cycle)
    gc.disable()
    try:
        del cycle
        assert leases(obj) == (1, 0)
        obj.write().release()
    finally:
        gc.enable()


def test_lease_of_the_same_thread_is_an_error(obj):
    with obj.read():
        with pytest.raises(BufferError, match="this thread"):
            obj.write()
        with pytest.raises(TimeoutError):
            obj.write(timeout=0)
    with obj.write():
        with pytest.raises(BufferError):
            obj.copy_out(1)


def test_seal_beside_a_lease_of_the_same_thread_is_an_error(keeper):
    obj = keeper.create(None, MIB)
    with obj.write() as a:
        kept = numpy.asarray(a)
        with pytest.raises(BufferError, match="this thread"):
            obj.seal()
        with pytest.raises(TimeoutError):
            obj.seal(timeout=0.05)
    with pytest.raises(BufferError, match="still in use"):
        obj.seal()
    del kept
    with obj.read():
        obj.seal()
    untracked = keeper.create(None, MIB, untracked=True)
    with untracked.read():
        with pytest.raises(BufferError, match="this thread"):
            untracked.seal()
    untracked.seal()
    obj.close()
    untracked.close()


def test_lease_for_the_cpu_beside_one_of_the_same_thread_is_an_error(obj):
    with obj.read():
        with pytest.raises(BufferError, match="this thread"):
            obj.read(cpu=True)
        with pytest.raises(TimeoutError):
            obj.read(cpu=True, timeout=0.05)
    with obj.read(cpu=True), obj.read(cpu=True), obj.read():  # on the host, where nobody is in the way
        assert leases(obj) == (3, 0)


def test_consumer_that_another_thread_has_left_is_waited_for(obj):
    left = []

    def leave():
        with obj.read() as a:
            left.append(numpy.asarray(a))

    def drop():
        time.sleep(0.2)
        left.clear()

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    thread = threading.Thread(target=drop)
    thread.start()
    obj.write().release()
    assert left == []
    thread.join()


def test_lease_of_another_thread_is_waited_for(obj):
    taken, done = threading.Event(), []

    def hold():
        with obj.read():
            taken.set()
            time.sleep(0.2)
            done.append(True)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    with obj.write():
        assert done == [True]
    thread.join()


def test_waiting_lets_other_threads_run(obj, start_child):
    child = start_child('obj = keeper.open("/lease")\nwith obj.write():\n    say("has it")\n    wait()\n')
    assert child.read() == "has it"
    counted, granted = [0], []

    def wait():
        with obj.read():
            granted.append(time.monotonic())

    waiter = threading.Thread(target=wait)
    waiter.start()
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        counted[0] += 1
    assert not granted and counted[0] > 1000
    child.tell()
    waiter.join(30)
    assert granted
    assert child.end() == (0, "")


@pytest.mark.parametrize("timeout", [0, 0.15])
def test_timeout_passes(obj, start_child, timeout):
    child = start_child('obj = keeper.open("/lease")\nwith obj.write():\n    say("has it")\n    wait()\n')
    assert child.read() == "has it"
    begun = time.monotonic()
    for call in (obj.read, obj.write, lambda timeout: obj.copy_out(1, timeout=timeout)):
        with pytest.raises(TimeoutError) as caught:
            call(timeout=timeout)
        assert isinstance(caught.value, gvmem.errors.Timeout)
    assert 3 * timeout <= time.monotonic() - begun < 3 * timeout + 5
    child.tell()
    assert child.end() == (0, "")
    obj.write(timeout=30).release()


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1", -0.001])
def test_timeout_that_is_none_is_refused(obj, timeout):
    with pytest.raises((ValueError, TypeError)):
        obj.read(timeout=timeout)
    assert leases(obj) == (0, 0)


def test_timeout_that_is_long_is_taken(obj):
    for timeout in (1e9, float("inf"), 10**30, 1e306, 10**400):
        obj.read(timeout=timeout).release()


def test_ctrl_c_ends_the_wait_and_gives_back_what_comes_later(obj, server, start_child):
    child = start_child('obj = keeper.open("/lease")\nwith obj.write():\n    say("has it")\n    wait()\n')
    assert child.read() == "has it"
    main, late = threading.get_ident(), time.monotonic() + 60

    def press():
        with gvmem.connect(server.path) as other, other.open("/lease") as seen:
            while seen.info().waiting == 0 and time.monotonic() < late:
                time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        obj.write()
    assert time.monotonic() < late
    thread.join()
    assert obj.info().waiting == 1  # nobody can take that back
    child.tell()
    assert child.end() == (0, "")
    with obj.read(timeout=30):  # though the exception's frames are there still
        assert leases(obj) == (1, 0)
    assert caught.type is KeyboardInterrupt


def test_threads_take_leases_at_once(obj):
    errors = []

    def work(seed):
        try:
            for i in range(100):
                if (i + seed) % 7 == 0:
                    with obj.write("i8") as a:
                        array = numpy.asarray(a)
                        array[0] += 1
                        array[1] += 1
                        del array
                else:
                    with obj.read("i8") as a:
                        first, second = numpy.asarray(a)[:2].tolist()
                        assert first == second
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and leases(obj) == (0, 0)
    with obj.read("i8", 2) as a:
        assert numpy.asarray(a).tolist() == [sum((i + s) % 7 == 0 for i in range(100) for s in range(4))] * 2


def test_object_closed_under_threads_is_an_error_there(keeper):
    for _ in range(20):
        made = keeper.create(None, 2 * MIB)
        stopped = []

        def work():
            try:
                while True:
                    with made.read() as a:
                        numpy.asarray(a)[0]
            except ValueError:
                stopped.append(True)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        made.close()
        for thread in threads:
            thread.join(30)
        assert stopped == [True] * 3
    assert keeper.objects() == []


@pytest.mark.parametrize("how", ["lease", "view"])
def test_close_waits_for_work_that_no_lease_has_waited_for(keeper, how):
    go, closed, stream = threading.Event(), threading.Event(), Stream()
    obj = keeper.create("/behind", 2 * MIB)
    stream.call_back(lambda: go.wait(20))
    if how == "lease":
        obj.read(stream=stream).release(stream=stream)
    else:
        obj._handle.view(obj.address, MIB, False, None).array(0, 0, "|u1", None)
    closer = threading.Thread(target=lambda: (obj.close(), closed.set()))
    closer.start()
    assert not closed.wait(0.2)
    go.set()
    closer.join(20)
    assert closed.is_set()
    stream.close()


def test_stream_at_the_end_is_taken(obj):
    with obj.write(stream=0) as a:
        numpy.asarray(a)[0] = 1
    deadline = time.monotonic() + 30
    while leases(obj) != (0, 0) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert leases(obj) == (0, 0)
    lease = obj.read()
    lease.release(stream=0)

    class Protocol:
        def __cuda_stream__(self):
            return (0, 0)

    obj.read(stream=Protocol(), timeout=30).release()
    for wrong in (-1, 2**64, "1", object()):
        with pytest.raises((ValueError, TypeError)):
            obj.read(stream=wrong)


class OwnedStream(Stream):
    """As CuPy's: destroyed with its object."""

    def __del__(self):
        self.close()


def read_lease(obj, stream):
    with obj.read(stream=stream) as a:
        return memoryview(a)


def end_behind(obj, stream):
    lease = obj.read()
    kept = memoryview(lease.array())
    lease.release(stream=stream)
    return kept


def read_array(obj, stream):
    return gvmem.Buffer(MIB).array(stream=stream)


def read_vector(obj, stream):
    vector = gvmem.Vector("f4", 1000)
    vector.extend([1, 2])
    return vector.array(stream=stream)


def read_block(obj, stream):
    return gvmem.Heap().alloc(MIB, stream=stream).array()


def close_block(obj, stream):
    block = gvmem.Heap().alloc(MIB)
    kept = memoryview(block.array())
    block.close(stream=stream)
    return kept


@pytest.mark.parametrize("consume", [read_lease, end_behind, read_array, read_vector, read_block, close_block])
def test_stream_lives_as_long_as_what_needs_it(obj, consume):
    stream = OwnedStream()
    found = weakref.ref(stream)
    kept = consume(obj, stream)
    del stream
    gc.collect()
    assert found() is not None
    del kept
    gc.collect()
    assert found() is None
    deadline = time.monotonic() + 30
    while leases(obj) != (0, 0) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert leases(obj) == (0, 0)


def test_stream_of_each_thread_is_not_kept(obj):
    with pytest.raises(NotImplementedError, match="per-thread"):
        obj.read(stream=2)
    lease = obj.read()
    with pytest.raises(NotImplementedError, match="per-thread"):
        lease.release(stream=2)
    assert not lease.ended and leases(obj) == (1, 0)
    lease.release()


def test_hint_that_is_none_is_refused(obj):
    for hint in ("scan", "hot", "once", None):
        obj.read(hint=hint).release()
    for wrong in ("cold", 1, b"hot"):
        with pytest.raises(ValueError):
            obj.read(hint=wrong)
    with pytest.raises(ValueError):
        obj.read(hint="hot", cpu=True)


def test_lease_with_the_hint_hot_waits_for_what_comes_in(keeper):
    with keeper.create("/hot", 8 * MIB) as obj:
        keeper.evict("/hot")
        assert obj.info().device_bytes == 0
        with obj.read(hint="hot"):
            assert obj.info().device_bytes == 8 * MIB
