#!/usr/bin/env python3
"""RMM and cuda.core over heaps (gvmem.rmm, gvmem.cuda_core), beside their own memory: usage: python_pools.py BUILD-FOLDER

Goal: buffers hold what is copied to them, are in the order of their streams, and are used again when they were given back;
too much is an error, after which the rest goes on, also where streams that were used are gone. Cases of a package that is not installed are skipped. Outcomes are told
as TAP. Exits 77 where both packages, a GPU or headers of Python are missing.
"""
import ctypes
import sys
import tempfile
from pathlib import Path

from python_arrays import compile_package, leave

SIZE = 1 << 20
TOO_MUCH = 1 << 45

try:
    import rmm
    import rmm.mr
    import rmm.pylibrmm.stream
except ImportError:
    rmm = None
try:
    import cuda.core as core
except ImportError:
    core = None


def content(number):
    return bytes((number + i) % 251 for i in range(SIZE))


def rmm_buffers_hold_what_they_are_given():
    made = [rmm.DeviceBuffer.to_device(content(number)) for number in range(8)]
    good = all(buffer.tobytes() == content(number) for number, buffer in enumerate(made))
    copy = rmm.DeviceBuffer(ptr=made[3].ptr, size=SIZE)
    made[3] = None
    grown = rmm.DeviceBuffer.to_device(content(9))
    grown.resize(4 * SIZE)
    return [good, copy.tobytes() == content(3), grown.tobytes()[:SIZE] == content(9), len({buffer.ptr for buffer in made if buffer})]


def rmm_uses_memory_again():
    stream = rmm.pylibrmm.stream.Stream()
    places = set()
    for _ in range(64):
        buffer = rmm.DeviceBuffer(size=SIZE, stream=stream)
        places.add(buffer.ptr)
        del buffer
        stream.synchronize()
    return [len(places)]


def rmm_too_much_is_a_memory_error():
    errors = []
    for _ in range(3):
        try:
            rmm.DeviceBuffer(size=TOO_MUCH)
        except MemoryError:
            errors.append("MemoryError")
    return [*errors, rmm.DeviceBuffer.to_device(content(1)).tobytes() == content(1)]


def core_copies(buffer, stream, number):
    """To the device and back."""
    there, back = pinned.allocate(SIZE, stream=stream), pinned.allocate(SIZE, stream=stream)
    stream.sync()
    view(there)[:] = content(number)
    buffer.copy_from(there, stream=stream)
    buffer.copy_to(back, stream=stream)
    stream.sync()
    return bytes(view(back)) == content(number)


def core_buffers_hold_what_they_are_given():
    stream = device.create_stream()
    made = [device.allocate(SIZE, stream=stream) for _ in range(8)]
    good = [core_copies(buffer, stream, number) for number, buffer in enumerate(made)]
    good += [len({int(buffer.handle) for buffer in made}), all(buffer.is_device_accessible and not buffer.is_host_accessible for buffer in made)]
    for buffer in made:
        buffer.close(stream)
    return good


def core_uses_memory_again():
    stream = device.create_stream()
    places = set()
    for _ in range(64):
        buffer = device.allocate(SIZE, stream=stream)
        places.add(int(buffer.handle))
        buffer.close(stream)
        stream.sync()
    return [len(places)]


def core_too_much_is_an_error():
    stream = device.create_stream()
    refused = 0
    for _ in range(3):
        try:
            device.allocate(TOO_MUCH, stream=stream)
        except Exception:  # cuda.core's own resource has an error of the driver
            refused += 1
    return [refused, core_copies(device.allocate(SIZE, stream=stream), stream, 5)]


def view(buffer):
    return (ctypes.c_char * buffer.size).from_address(int(buffer.handle))


RMM = [rmm_buffers_hold_what_they_are_given, rmm_uses_memory_again, rmm_too_much_is_a_memory_error]
CORE = [core_buffers_hold_what_they_are_given, core_uses_memory_again, core_too_much_is_an_error]


def run_rmm(case, native):
    rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=1 << 28) if native else gvmem.rmm.resource())
    return case()


def run_core(case, native):
    device.memory_resource = core.DeviceMemoryResource(device.device_id) if native else gvmem.cuda_core.MemoryResource(device.device_id)
    return case()


if len(sys.argv) != 2:
    sys.exit(__doc__)
if rmm is None and core is None:
    leave("neither rmm nor cuda.core is installed")

made_in = tempfile.TemporaryDirectory(prefix="gvmem-pools-")
compile_package(Path(sys.argv[1]).resolve(), Path(made_in.name))
sys.path.insert(0, made_in.name)
if core is not None:
    import gvmem.cuda_core  # noqa: E402

    device = core.Device()
    device.set_current()
    pinned = core.LegacyPinnedMemoryResource()
if rmm is not None:
    import gvmem.rmm  # noqa: E402

failed = 0
print(f"1..{len(RMM) + len(CORE)}", flush=True)
for number, case in enumerate(RMM + CORE, 1):
    if (rmm if case in RMM else core) is None:
        print(f"ok {number} - {case.__name__} # SKIP it is not installed", flush=True)
        continue
    answers = []
    for native in (True, False):
        try:
            answers.append(repr((run_rmm if case in RMM else run_core)(case, native)))
        except Exception as error:  # any failure is an outcome
            answers.append(f"{type(error).__name__}: {error}")
    good = answers[0] == answers[1] and answers[0].startswith("[") and "False" not in answers[0]
    failed += not good
    print(f"{'ok' if good else 'not ok'} {number} - {case.__name__}", flush=True)
    if not good:
        print(f"# native: {answers[0]}\n# gvmem:  {answers[1]}", flush=True)
sys.exit(1 if failed else 0)
