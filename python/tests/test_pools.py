"""Memory of CuPy, RMM and cuda.core from heaps: what their classes are given and ask for. These stand-ins have the interface alone, as the packages need a real GPU."""
import ctypes
import gc
import importlib
import os
import subprocess
import sys
import threading
import time
import types
import weakref

import pytest

import gvmem
from conftest import MIB
from gvmem import _pools


class Callbacks:
    """rmm.mr.CallbackMemoryResource."""

    def __init__(self, allocate, deallocate):
        self.allocate, self.deallocate = allocate, deallocate


class Handle:
    """cuda.core.Buffer.from_handle()."""

    def __init__(self, ptr, size, mr=None, stream=None):
        self.handle, self.size, self.memory_resource, self.stream = ptr, size, mr, stream

    from_handle = classmethod(lambda cls, *arguments, **more: cls(*arguments, **more))


@pytest.fixture(name="module")
def fixture_module(monkeypatch):
    """Imports a module of gvmem beside a stand-in of the package that it is for."""
    def load(name, package, **content):
        parts = package.split(".")
        for i in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
        for i in range(1, len(parts)):
            setattr(sys.modules[".".join(parts[:i])], parts[i], sys.modules[".".join(parts[:i + 1])])
        for key, value in content.items():
            setattr(sys.modules[package], key, value)
        monkeypatch.delitem(sys.modules, f"gvmem.{name}", raising=False)
        return importlib.import_module(f"gvmem.{name}")

    yield load
    for name in ("cupy", "rmm", "cuda_core"):
        sys.modules.pop(f"gvmem.{name}", None)


def check(take, give):
    """Blocks are apart from each other, at multiples of 256 bytes, and used again; what is no block is refused."""
    first, second = take(1000), take(1000)
    assert first % 256 == 0 and second % 256 == 0 and abs(first - second) >= 1000
    give(first, 1000)
    assert take(1000) == first
    with pytest.raises(MemoryError):
        take(1 << 45)
    give(first, 1000)
    give(second, 1000)
    with pytest.raises(ValueError):
        _pools.free(second)


def test_rmm_takes_and_frees_by_callbacks(module, streams):
    resource = module("rmm", "rmm.mr", CallbackMemoryResource=Callbacks).resource()
    assert resource.allocate(0, None) == 0
    check(lambda size: resource.allocate(size, None), lambda address, size: resource.deallocate(address, size, None))
    check_streams_that_go(streams, resource.allocate, resource.deallocate)


@pytest.fixture
def streams():
    driver, context = ctypes.CDLL(gvmem.driver().path), ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and driver.cuCtxSetCurrent(context) == 0
    made = [ctypes.c_void_p() for _ in range(3)]
    for stream in made:
        assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
    yield driver, made
    assert driver.cuDevicePrimaryCtxRelease_v2(0) == 0


def check_streams_that_go(streams, take, give):
    """What was freed on a stream that is destroyed then serves others: these packages do not say that it was."""
    driver, made = streams
    for stream in made:
        give(take(150 * MIB, stream.value), 150 * MIB, stream.value)  # of 256
        assert driver.cuStreamDestroy_v2(stream) == 0


def test_cuda_core_takes_and_frees_by_a_memory_resource(module, streams):
    resource = module("cuda_core", "cuda.core", MemoryResource=object, Buffer=Handle).MemoryResource()
    assert resource.device_id == 0 and resource.is_device_accessible and not resource.is_host_accessible
    buffer = resource.allocate(64, stream=None)
    assert buffer.size == 64 and buffer.memory_resource is resource
    resource.deallocate(buffer.handle, 64, stream=None)
    check(lambda size: resource.allocate(size, stream=None).handle, lambda address, size: resource.deallocate(address, size, stream=None))
    check_streams_that_go(streams, lambda size, stream: resource.allocate(size, stream=stream).handle, lambda address, size, stream: resource.deallocate(address, size, stream=stream))


def test_free_without_a_stream_waits_for_all_work(streams):
    """As cuMemFree() does."""
    driver, made = streams
    done = []
    address = _pools.alloc(0, MIB, made[0].value, ordered=False)
    started, go = threading.Event(), threading.Event()
    work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: (started.set(), go.wait(30), done.append("work")) and None)
    assert driver.cuLaunchHostFunc(made[1], work, None) == 0 and started.wait(30)
    threading.Timer(0.05, go.set).start()
    _pools.free(address)
    assert done == ["work"]
    for stream in made:
        assert driver.cuStreamDestroy_v2(stream) == 0


class PythonFunctionAllocator:
    """cupy.cuda's."""

    def __init__(self, take, give):
        self.malloc, self.free = lambda size: take(size, 0), lambda address: give(address, 0)


class BaseStream:
    def __init__(self, ptr):
        self.ptr = ptr


class ExternalStream(BaseStream):
    """Owns nothing."""


class Stream(BaseStream):
    """Owns what it has made."""

    driver = None

    def __del__(self):
        if self.driver is not None and self.ptr:
            assert self.driver.cuStreamDestroy_v2(ctypes.c_void_p(self.ptr)) == 0


@pytest.fixture
def cupy(module, streams):
    """gvmem.cupy; a list of the current stream; makes a stream."""
    def make():
        made = ctypes.c_void_p()
        assert Stream.driver.cuStreamCreate(ctypes.byref(made), 1) == 0
        return Stream(made.value)

    current = [None]
    Stream.driver = streams[0]
    yield module("cupy", "cupy.cuda", PythonFunctionAllocator=PythonFunctionAllocator, get_current_stream=lambda: current[0], MemoryPointer=object, Stream=Stream), current, make
    Stream.driver = None


def test_cupy_keeps_the_owner_of_a_stream(cupy):
    use, current, make = cupy
    stream = make()
    current[0], owner = ExternalStream(stream.ptr), weakref.ref(stream)
    use._allocator.free(use.allocate(1000))
    current[0] = stream
    use._allocator.free(use.allocate(1000))
    current[0] = stream = None
    gc.collect()
    assert owner() is not None


def use_streams(cupy, count):
    """Each takes 150 of 256 MiB: those of a stream that was destroyed too early would be missing. Weak references to the streams."""
    use, current, make = cupy
    found = []
    for _ in range(count):
        current[0] = make()
        found.append(weakref.ref(current[0]))
        use._allocator.free(use.allocate(150 * MIB))
    current[0] = None
    return found


def drop_unused(use, most):
    """As long as the GPU wants for events."""
    for _ in range(3000):
        use._end_unused()
        if len(use._streams) <= most:
            return
        time.sleep(0.01)


def test_cupy_drops_streams_that_nobody_has(cupy, monkeypatch):
    use, current, make = cupy
    monkeypatch.setattr(use, "_LEAST", 4)
    monkeypatch.setattr(use, "_most", 4)
    found = use_streams(cupy, 20)
    assert sum(stream() is not None for stream in found) < 20  # without a call of its own
    drop_unused(use, 0)
    assert not use._streams and not use._blocks and all(stream() is None for stream in found)
    use_streams(cupy, 2)


def test_cupy_keeps_streams_that_somebody_has_or_whose_blocks_live_or_that_have_work(cupy):
    use, current, make = cupy
    held, go = make(), threading.Event()
    current[0] = held
    use._allocator.free(use.allocate(1000))
    current[0] = make()
    of_block, block = weakref.ref(current[0]), use.allocate(1000)
    current[0] = make()
    busy, work = weakref.ref(current[0]), ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: go.wait(30) and None)
    use._allocator.free(use.allocate(1000))
    assert Stream.driver.cuLaunchHostFunc(ctypes.c_void_p(current[0].ptr), work, None) == 0
    current[0] = None
    for _ in range(3):
        use._end_unused()
    assert busy() is not None and of_block() is not None and len(use._streams) == 3
    go.set()
    drop_unused(use, 2)
    assert busy() is None and of_block() is not None and set(use._streams.values()) == {held, of_block()}
    use._allocator.free(block)
    drop_unused(use, 1)
    assert of_block() is None and list(use._streams.values()) == [held]


def test_cupy_keeps_no_default_stream(cupy):
    """Its memory would be others' whenever an object of it goes."""
    use, current, _ = cupy
    current[0] = Stream(0)
    use._allocator.free(use.allocate(1000))
    assert not use._streams


@pytest.mark.parametrize("limit, calls", [
    ("64MiB", "_pools.start(limit=4 << 20); _pools.start()"),
    ("4MiB", "fails(ValueError, limit=-1); _pools.start()"),
    ("4MiB", "fails(RuntimeError, limit=64 << 20, install=refuse); _pools.start()"),
], ids=["when another framework is used", "after an error", "after a framework refused it"])
def test_limit_stays(limit, calls):
    program = """
from gvmem import _pools
def refuse(calls):
    raise RuntimeError(calls)
def fails(error, **arguments):
    try:
        _pools.start(**arguments)
    except error:
        return
    raise AssertionError("no error")
""" + calls + """
try:
    _pools.alloc(0, 8 << 20, None)
except MemoryError:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "GVMEM_HEAP_LIMIT": limit}, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "refused\n"


def test_sizes_are_those_of_other_settings():
    sizes = {"": None, "0": 0, "17": 17, "1.5GiB": 3 << 29, " 2 k ": 2048, "0.25MB": 1 << 18, "3Gi": 3 << 30, "8B": 8}
    assert {text: _pools.parse_size("X", text) for text in sizes} == sizes
    for wrong in ("1.5", "-1", "1.G", ".5G", "1E", "iB", "1iB", "0.1234567G"):
        with pytest.raises(ValueError, match="such as"):
            _pools.parse_size("X", wrong)


@pytest.mark.parametrize("arguments, decay_ms", [({}, 0), ({"decay": 0}, 2**32 - 1), ({"decay": 5}, 5000), ({"decay": 2**40}, 2**32 - 2), ({"decay": 0, "keep": 5}, 0)])
def test_decay_of_0_is_said(monkeypatch, arguments, decay_ms):
    said = []
    monkeypatch.setattr(_pools, "_started", True)
    monkeypatch.setattr(_pools._gvmem, "pools_start", lambda *options: said.append(options[2:]))
    _pools.start(**arguments)
    assert said[-1] == (decay_ms, True)
