#!/usr/bin/env python3
"""CuPy over heaps (gvmem.cupy), beside its own pool: usage: cupy_streams.py BUILD-FOLDER

Goal: work on several streams, and captured work, gives the same results with both. Each case runs once
with each allocator; outcomes are told as TAP. Exits 77 where CuPy, a GPU or headers of Python are missing.
"""
import sys
import tempfile
from pathlib import Path

from python_arrays import compile_package, leave

SIZE = 1 << 20
LONG_CYCLES = 200_000_000  # about 0.1 s of a GPU's clock

SPIN = r"""extern "C" __global__ void spin(long long cycles)
{ const long long start = clock64(); while (clock64() - start < cycles); }"""


def two_streams(non_blocking):
    """Memory that was dropped with work under way on one stream is asked for on another."""
    spin = cupy.RawKernel(SPIN, "spin")
    sums = []
    for _ in range(4):
        first, second = cupy.cuda.Stream(non_blocking=non_blocking), cupy.cuda.Stream(non_blocking=non_blocking)
        with first:
            dropped = cupy.empty(SIZE, dtype=cupy.float32)
            spin((1,), (1,), (LONG_CYCLES,))
            dropped.fill(1)
            del dropped
        with second:
            kept = cupy.empty(SIZE, dtype=cupy.float32)
            kept.fill(2)
        first.synchronize()
        second.synchronize()
        sums.append(float(kept.sum()))
        cupy.cuda.runtime.deviceSynchronize()
    return sums


def blocking_streams_keep_apart():
    return two_streams(False)


def non_blocking_streams_keep_apart():
    return two_streams(True)


def graph_keeps_its_memory():
    """Without a heap that knows of captures the program allocates before and holds everything; here it
    allocates within the capture, and drops what it no longer needs."""
    static, stream = cupy.ones(SIZE, dtype=cupy.float32), cupy.cuda.Stream(non_blocking=True)
    with stream:
        before = [cupy.empty_like(static), cupy.empty_like(static)] if native else []
        cupy.add(cupy.multiply(static, 2), 1)  # loads the kernels
        cupy.cuda.runtime.deviceSynchronize()
        stream.begin_capture()
        temporary = before[0] if native else cupy.empty_like(static)
        output = before[1] if native else cupy.empty_like(static)
        cupy.multiply(static, 2, out=temporary)
        cupy.add(temporary, 1, out=output)
        graph = stream.end_capture()
        del temporary
        others = [cupy.full(SIZE, i, dtype=cupy.float32) for i in range(16)]
        graph.launch(stream)
        stream.synchronize()
        sums = [float(output.sum())] + [float(other.sum()) for other in others]
    del before
    return sums


def freed_block_serves_its_stream():
    """At once, as with CuPy's own pool; and too much is CuPy's error, or one of the same class."""
    stream, same = cupy.cuda.Stream(non_blocking=True), []
    for _ in range(3):
        with stream:
            array = cupy.full(SIZE, 3, dtype=cupy.float32)
            same.append(array.data.ptr)
            del array
    try:
        cupy.empty(1 << 46, dtype=cupy.uint8)
        return ["no error"]
    except MemoryError:
        return [len(set(same)), cupy.empty(0).size]


CASES = [blocking_streams_keep_apart, non_blocking_streams_keep_apart, graph_keeps_its_memory, freed_block_serves_its_stream]

if len(sys.argv) != 2:
    sys.exit(__doc__)
try:
    import cupy

    cupy.cuda.runtime.getDeviceCount()
except (ImportError, RuntimeError) as missing:  # CUDARuntimeError is one
    leave(missing)
made = tempfile.TemporaryDirectory(prefix="gvmem-cupy-")
compile_package(Path(sys.argv[1]).resolve(), Path(made.name))
sys.path.insert(0, made.name)
import gvmem.cupy  # noqa: E402

failed = 0
print(f"1..{len(CASES)}", flush=True)
for number, case in enumerate(CASES, 1):
    answers = []
    for native in (True, False):
        with cupy.cuda.using_allocator(cupy.cuda.MemoryPool().malloc if native else gvmem.cupy.allocate):
            try:
                answers.append(repr(case()))
            except Exception as error:  # any failure is an outcome
                answers.append(f"{type(error).__name__}: {error}")
        cupy.cuda.runtime.deviceSynchronize()
    good = answers[0] == answers[1] and answers[0].startswith("[")
    failed += not good
    print(f"{'ok' if good else 'not ok'} {number} - {case.__name__}", flush=True)
    if not good:
        print(f"# native: {answers[0]}\n# gvmem:  {answers[1]}", flush=True)
sys.exit(1 if failed else 0)
