"""Captures: what would end behind a stream that is being captured into a graph is refused, stays as it was, and leaves the capture whole."""
import threading

import numpy
import pytest

import gvmem
from conftest import MIB
from gvmem import models
from test_buffer import streams  # noqa: F401: a fixture


def test_lease_stays(keeper, streams):  # noqa: F811
    captured, other = streams
    with keeper.create("/lease", MIB) as obj:
        lease = obj.write(stream=other)
        with captured.capture():
            with pytest.raises(gvmem.errors.Invalid, match="captured"):
                lease.release(captured)
            assert (lease.ended, lease.released) == (False, False) and obj.info().write_leases == 1
        done = threading.Event()
        other.call_back(lambda: done.wait(20))
        with lease as a:
            assert len(numpy.asarray(a)) == MIB
        assert lease.released and obj.info().write_leases == 1  # behind the stream that it had before
        done.set()
        other.wait()
        assert obj.info().write_leases == 0


@pytest.mark.parametrize("made", ["buffer", "vector", "lease", "block"])
def test_memory_stays_under_work(keeper, streams, made):  # noqa: F811
    """Of another stream, while it is closed or let go within a capture, which stays whole."""
    captured, other = streams
    done = threading.Event()
    heap, obj = gvmem.Heap(), keeper.create("/under_work", MIB)
    if made == "lease":
        with obj.read() as lease:
            arrays = [numpy.asarray(lease)]
        del lease
        end = arrays.clear
    elif made == "block":
        end = heap.alloc(MIB).close
    else:
        end = (gvmem.Buffer(MIB) if made == "buffer" else gvmem.Vector("i4", MIB)).close
    other.call_back(lambda: done.wait(20))
    with captured.capture():
        thread = threading.Thread(target=end)
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        done.set()
        thread.join(20)
        assert not thread.is_alive() and obj.info().read_leases == 0
    heap.close()
    obj.close()


def test_model_stays_awake(keeper, streams):  # noqa: F811
    stream = streams[0]
    models.publish({"x": numpy.ones(3)}, "/model", keeper=keeper)
    model = models.attach("/model", keeper=keeper)
    with stream.capture():
        with pytest.raises(gvmem.errors.Invalid, match="captured"):
            model.sleep(stream)
        assert model.awake and model.info().read_leases == 1 and numpy.asarray(model["x"]).sum() == 3
        with pytest.raises(gvmem.errors.Invalid, match="captured"), model.use(stream=stream):
            pass
        assert model.awake and model.info().read_leases == 2
    model.sleep()
    assert not model.awake and model.info().read_leases == 0
    with stream.capture(), pytest.raises(gvmem.errors.Invalid), model.use(stream=stream):
        pass
    assert model.awake and model.info().read_leases == 1
    model.wake()
    model.sleep(stream)
    stream.wait()
    assert not model.awake and model.info().read_leases == 0
    model.close()
    keeper.drop("/model")


def test_region_is_not_paused(keeper, streams):  # noqa: F811
    with gvmem.Saver(keeper) as saver:
        with saver.region("a", enable_cpu_backup=True) as region:
            array = numpy.asarray(region.alloc(MIB).array())
        with streams[0].capture():
            with pytest.raises(gvmem.errors.Invalid, match="captured"):
                saver.pause(stream=streams[0])
            array[:] = 3
            more = region.alloc(MIB)
            assert not region.paused
        saver.pause(stream=streams[0])
        assert region.paused
        saver.resume()
        assert (array == 3).all()
        del array, more


def test_block_is_not_closed(streams):  # noqa: F811
    captured, other = streams
    with gvmem.Heap() as heap:
        block, own = heap.alloc(MIB, stream=other), heap.alloc(MIB, stream=captured)
        array, used = numpy.asarray(block.array()), heap.alloc(MIB)
        kept = used.array()
        used.close(stream=other)
        with captured.capture():
            with pytest.raises(gvmem.errors.Invalid, match="captured"):
                block.close(stream=captured)
            own.close(stream=captured)
            assert (block.closed, own.closed, heap.info().blocks) == (False, True, 2)
        with other.capture():
            del kept  # after its block was closed: nobody is there to be told
            assert heap.info().blocks == 2
        array[:] = 1
        del array
        block.close(stream=captured)
        heap.trim()
        assert heap.info().blocks == 1 and heap.info().pending_bytes == 0
