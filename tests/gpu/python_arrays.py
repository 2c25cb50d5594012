#!/usr/bin/env python3
"""Objects of a keeper, and memory of the process alone, as arrays of CuPy, PyTorch and numba, on a GPU: usage: python_arrays.py BUILD-FOLDER

Goal: both read and write the very memory, in two processes, by each protocol; a lease stays as long as a tensor does; what was
evicted is read at the same address. The package is compiled by cc against the build folder, as neither pip nor
network is needed so. Outcomes are told as TAP. Exits 77 without GPU, headers of Python, CuPy or PyTorch.
"""
import gc
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import traceback
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
COUNT = 16 * MIB  # floats
SUM = 3 * (COUNT // 4)  # of (0, 0, 1, 2) again and again
NAME = "/python/arrays"


def leave(why):
    print(f"1..0 # SKIP {why}")
    sys.exit(77)


def compile_package(build, folder):
    place = folder / "gvmem"
    shutil.copytree(PROJECT / "python/gvmem", place)
    shutil.copy(PROJECT / "python/src/pools.h", place)
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        leave(f"there is no {include}/Python.h")
    sources = [str(path) for path in (PROJECT / "python/src").glob("*.c")]
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-std=gnu11", "-DPy_LIMITED_API=0x030B0000", f"-I{include}", f"-I{PROJECT}/include",
                    *sources, f"-L{build}", "-lgvmem", f"-Wl,-rpath,{build}", "-o", str(place / "_gvmem.abi3.so")], check=True)
    return place


def start_keeper(build, path):
    ready, write = os.pipe()
    process = subprocess.Popen([build / "tools/gvmem-keeper", "--socket", path, "--device-budget", "512M", "--host-budget", "1G",
                                "--ready-fd", str(write)], pass_fds=[write], stdout=subprocess.DEVNULL)
    os.close(write)
    with open(ready, "rb") as said:
        if not said.readline():
            raise RuntimeError("the keeper did not start")
    return process


def leases(keeper):
    info = next(info for info in keeper.objects() if info.name == NAME)
    return info.read_leases, info.write_leases


def cupy_writes_by_cuda_interface(keeper):
    obj = keeper.open(NAME)
    with obj.write("f4") as a:
        array = cupy.asarray(a)
        assert array.data.ptr == a.address == obj.address and a.__dlpack_device__() == (2, 0)
        array.reshape(-1, 4)[:] = cupy.array([0, 0, 1, 2], dtype="f4")
        del array, a
    assert leases(keeper) == (0, 0)
    with obj.read("f4") as a:
        total = float(cupy.asarray(a).sum())
        del a
    assert total == SUM, total


def sum_of(obj):
    with obj.read("f4") as a:
        return float(cupy.asarray(a).sum(dtype="f8"))


def cupy_writes_by_dlpack(keeper):
    obj = keeper.open(NAME)
    with obj.write("f4") as a:
        array = cupy.from_dlpack(a)
        assert array.data.ptr == obj.address and float(array.sum()) == SUM
        array += 1
        del array
    assert leases(keeper) == (0, 0)
    assert sum_of(obj) == SUM + COUNT
    with obj.write("f4") as a:
        array = cupy.from_dlpack(a)
        array -= 1
        del array, a
    assert sum_of(obj) == SUM


def torch_writes_by_cuda_interface(keeper):
    """It refuses what is read-only."""
    obj = keeper.open(NAME)
    with obj.read("f4") as a:
        try:
            torch.as_tensor(a, device="cuda")
            print(f"# torch {torch.__version__} takes read-only memory")
        except TypeError as error:
            print(f"# torch {torch.__version__}: {error}")
        del a
    with obj.write("f4") as a:
        tensor = torch.as_tensor(a, device="cuda")
        assert tensor.data_ptr() == obj.address and float(tensor.sum(dtype=torch.float64)) == SUM
        tensor += 2
        del a, tensor
    assert leases(keeper) == (0, 0)
    assert sum_of(obj) == SUM + 2 * COUNT
    with obj.write("f4") as a:
        tensor = torch.as_tensor(a, device="cuda")
        tensor -= 2
        del a, tensor
    assert sum_of(obj) == SUM


def torch_by_dlpack(keeper):
    """Readers get a read-only array where PyTorch understands the flag, or else a BufferError; writers get one always."""
    obj = keeper.open(NAME)
    with obj.read("f4") as a:
        try:
            tensor = torch.from_dlpack(a)
            print(f"# torch {torch.__version__} takes a read-only array")
            assert tensor.data_ptr() == obj.address and float(tensor.sum(dtype=torch.float64)) == SUM
            del tensor
        except (BufferError, RuntimeError) as error:
            print(f"# torch {torch.__version__}: {error}")
    with obj.write("bfloat16", (4, -1)) as a:
        tensor = torch.from_dlpack(a)
        assert tensor.dtype == torch.bfloat16 and tensor.shape == (4, COUNT // 2) and tensor.data_ptr() == obj.address
        del tensor
    gc.collect()
    assert leases(keeper) == (0, 0)


def tensor_keeps_the_lease(keeper):
    obj = keeper.open(NAME)
    lease = obj.write("f4")
    with lease as a:
        tensor = torch.from_dlpack(a)
    assert lease.ended and not lease.released and leases(keeper) == (0, 1)
    tensor[0] += 0
    del tensor
    gc.collect()
    assert lease.released and leases(keeper) == (0, 0)
    with obj.read("f4") as a:
        array = cupy.asarray(a)
    assert leases(keeper) == (1, 0)
    del array, a
    assert leases(keeper) == (0, 0)


def lease_ends_behind_a_stream(keeper):
    obj = keeper.open(NAME)
    for stream in (cupy.cuda.Stream(non_blocking=True), torch.cuda.Stream()):
        with obj.write("f4", stream=stream) as a:
            number = stream.ptr if hasattr(stream, "ptr") else stream.cuda_stream
            assert a.__cuda_array_interface__["stream"] == number
            if isinstance(stream, cupy.cuda.Stream):
                with stream:
                    array = cupy.asarray(a)
                    array += 1
                    array -= 1
                    del array, a
            else:
                with torch.cuda.stream(stream):
                    tensor = torch.as_tensor(a, device="cuda")
                    tensor += 1
                    tensor -= 1
                    del tensor, a
        with obj.read("f4", timeout=60) as a:
            assert float(cupy.asarray(a).sum()) == SUM
            del a


def evicted_is_read_at_the_same_address(keeper):
    obj = keeper.open(NAME, readonly=True)
    assert keeper.evict(NAME) > 0
    with obj.read("f4", hint="once") as a:
        array = cupy.asarray(a)
        assert array.data.ptr == obj.address and float(array.sum()) == SUM
        del array, a
    with obj.read("f4", cpu=True) as a:
        assert a.__dlpack_device__() == (1, 0)
        assert float(numpy.asarray(a).sum(dtype="f8")) == SUM and numpy.asarray(a).ctypes.data == obj.address
        device = a.__dlpack__(max_version=(1, 0), dl_device=(2, 0), stream=1)
        del device
    with obj.read("f4") as a:
        try:
            memoryview(a)
            raise AssertionError("the CPU may use memory of the GPU")
        except BufferError:
            pass
        try:
            numpy.asarray(a)
            raise AssertionError("NumPy may use memory of the GPU")
        except BufferError:
            pass


def streams_as_dlpack_numbers_them(keeper):
    obj = keeper.open(NAME)
    with obj.write("f4") as a:
        for stream in (None, 1, 2, -1, cupy.cuda.Stream().ptr):
            a.__dlpack__(stream=stream)
        try:
            a.__dlpack__(stream=0)
            raise AssertionError("stream 0 is taken")
        except ValueError:
            pass


def other_process_reads_and_writes(keeper):
    done = subprocess.run([sys.executable, __file__, "--child", *sys.argv[1:], keeper_path, site], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    obj = keeper.open(NAME, readonly=True)
    assert done.stdout.split() == [str(SUM), str(obj.address)], done.stdout
    assert obj.copy_out(4) == b"\x00\x00\x80\x3f"  # 1.0, which the other one wrote


# ---- numba


def numba_kernels_use_objects(keeper):
    obj = keeper.open(NAME)
    add, before = adding_kernel(), sum_of(obj)
    with obj.write("f4") as a:
        array = numba.cuda.as_cuda_array(a)
        assert array.shape == (COUNT,) and array.device_ctypes_pointer.value == obj.address
        add[COUNT // 256, 256](array, 1)
        add[COUNT // 256, 256](a, 1)  # it takes what has the interface, too
        numba.cuda.synchronize()
        del array, a
    gc.collect()
    assert leases(keeper) == (0, 0)
    assert sum_of(obj) == before + 2 * COUNT
    with obj.write("f4") as a:
        add[COUNT // 256, 256](a, -2)
        del a


def numba_waits_for_the_stream_of_an_array(_):
    with gvmem.Buffer(64 * MIB) as buffer:
        a, writer = array_that_is_being_filled(buffer)
        assert not writer.done
        reader = numba.cuda.stream()
        adding_kernel()[COUNT // 256, 256, reader](numba.cuda.as_cuda_array(a), 1)
        reader.synchronize()
        assert float(cupy.asarray(buffer.array("f4", COUNT)).sum(dtype="f8")) == 2 * COUNT
        del a


def adding_kernel():
    @numba.cuda.jit
    def add(array, number):
        at = numba.cuda.grid(1)
        if at < array.size:
            array[at] += number

    return add


# ---- memory of this process alone


def buffer_is_used_by_each_protocol(_):
    with gvmem.Buffer(4 * MIB, reserve=1 << 30) as buffer:
        a = buffer.array("f4", MIB)
        array = cupy.asarray(a)
        assert array.data.ptr == a.address == buffer.address and a.__dlpack_device__() == (2, 0)
        array[:] = 2
        assert float(cupy.from_dlpack(buffer.array("f4", MIB)).sum()) == 2 * MIB
        tensor = torch.from_dlpack(a)
        assert tensor.data_ptr() == buffer.address and float(tensor.sum()) == 2 * MIB
        assert float(torch.as_tensor(a, device="cuda").sum()) == 2 * MIB
        buffer.commit(4 * MIB, 64 * MIB)
        assert float(tensor.sum()) == 2 * MIB
        for call in (buffer.decommit, buffer.seal):
            try:
                call()
                raise AssertionError("memory is taken away from under an array")
            except BufferError:
                pass
        buffer.move("host", 0, 4 * MIB)
        assert buffer.tier() == "host" and float(tensor.sum()) == 2 * MIB
        buffer.move("device")
        assert float(array.sum()) == 2 * MIB
        try:
            memoryview(a)
            raise AssertionError("the CPU may use memory of the GPU")
        except BufferError:
            pass
        del a, array
    assert float(tensor.sum()) == 2 * MIB  # it keeps the memory


def array_that_is_being_filled(buffer):
    """With ones, behind slow work of the stream that is returned: a consumer whose stream did not wait would read zeros."""
    busy = cupy.random.rand(4096, 4096, dtype="f4")
    buffer.fill(b"\0")
    writer = cupy.cuda.Stream(non_blocking=True)
    with writer:
        for _ in range(50):
            busy @ busy
    buffer.fill(numpy.float32(1), 0, 4 * COUNT, stream=writer)
    return buffer.array("f4", COUNT, stream=writer), writer


def consumers_wait_for_the_stream_of_an_array(_):
    with gvmem.Buffer(64 * MIB) as buffer:
        for consume in ("cupy", "torch"):
            a, writer = array_that_is_being_filled(buffer)
            assert a.__cuda_array_interface__["stream"] == writer.ptr and not writer.done
            if consume == "cupy":
                reader = cupy.cuda.Stream(non_blocking=True)
                with reader:
                    total = float(cupy.from_dlpack(a).sum(dtype="f8"))
            else:
                with torch.cuda.stream(torch.cuda.Stream()):
                    total = float(torch.from_dlpack(a).sum(dtype=torch.float64))
            assert total == 16 * MIB, f"{consume}: {total}"


def vector_grows_under_a_tensor(_):
    rows = gvmem.Vector("f4", 1 << 30)
    rows.extend([1, 2, 3])
    tensor = torch.from_dlpack(rows.array())
    rows.extend(numpy.ones(8 * MIB, "f4"))
    assert tensor.tolist() == [1, 2, 3] and tensor.data_ptr() == rows.address
    assert float(cupy.asarray(rows[3:]).sum()) == 8 * MIB


def block_lives_as_long_as_a_tensor(_):
    with gvmem.Heap() as heap:
        tensor = torch.from_dlpack(heap.alloc(MIB).array("f4"))
        tensor.fill_(3)
        assert heap.info().blocks == 1 and float(tensor.mean()) == 3
        del tensor
        gc.collect()
        assert heap.info().blocks == 0
        stream = cupy.cuda.Stream(non_blocking=True)
        block = heap.alloc(MIB, stream=stream)
        with stream:
            cupy.asarray(block.array("f4", stream=stream))[:] = 1
        block.close()
        heap.end_stream(stream)
        assert heap.info().blocks == 0
        with gvmem.Heap(kind="host") as pinned, pinned.alloc(MIB) as shared:
            numpy.asarray(shared.array("f4"))[:] = 2
            assert float(cupy.asarray(shared.array("f4")).mean()) == 2


def regions_are_resolved_for_cupy(_):
    with gvmem.Space(budget=64 * MIB) as space, space.collection(64, 2 * MIB) as rows:
        for number in (3, 7):
            with rows[number].write("f4") as a:
                numpy.asarray(a)[:] = number
                assert not hasattr(a, "__cuda_array_interface__")
        space.sync()
        numbers, places = cupy.array([3, 7], "u4"), cupy.zeros(2, "u8")
        rows.resolve(numbers, addresses=places)
        for number, place in zip((3, 7), places.get().tolist()):
            memory = cupy.cuda.UnownedMemory(place, 2 * MIB, rows)
            assert float(cupy.ndarray(MIB // 2, "f4", cupy.cuda.MemoryPointer(memory, 0)).mean()) == number
        rows.release(numbers)
        space.sync()


def make_object(keeper):
    keeper.create(NAME, 4 * COUNT, keep=True).close()


def child(keeper):
    obj = keeper.open(NAME)
    with obj.read("f4") as a:
        print(int(cupy.asarray(a).sum()), obj.address)
        del a
    with obj.write("f4") as a:
        torch.from_dlpack(a)[0] = 1


CASES = [cupy_writes_by_cuda_interface, cupy_writes_by_dlpack, torch_writes_by_cuda_interface, torch_by_dlpack, tensor_keeps_the_lease,
         lease_ends_behind_a_stream, evicted_is_read_at_the_same_address, streams_as_dlpack_numbers_them, other_process_reads_and_writes,
         buffer_is_used_by_each_protocol, consumers_wait_for_the_stream_of_an_array, vector_grows_under_a_tensor, block_lives_as_long_as_a_tensor,
         regions_are_resolved_for_cupy, numba_kernels_use_objects, numba_waits_for_the_stream_of_an_array]


def why_no_numba(case):
    return "numba is not installed" if case.__name__.startswith("numba") and numba is None else None


def run_cases(cases, path, why_not=lambda case: None):
    """With a keeper at this path. why_not: a reason to skip a case. Returns the exit status."""
    import gvmem

    failed = 0
    keeper_process = start_keeper(Path(sys.argv[1]).resolve(), path)
    try:
        with gvmem.connect(path) as keeper:
            print(f"1..{len(cases)}", flush=True)
            for number, case in enumerate(cases, 1):
                reason = why_not(case)
                if reason:
                    print(f"ok {number} - {case.__name__} # SKIP {reason}", flush=True)
                    continue
                try:
                    case(keeper)
                    print(f"ok {number} - {case.__name__}", flush=True)
                except Exception as error:  # any failure is an outcome
                    failed += 1
                    print(f"not ok {number} - {case.__name__}\n# {type(error).__name__}: {error}", flush=True)
                    for frame in traceback.extract_tb(error.__traceback__):
                        print(f"#   {frame.filename}:{frame.lineno}: {frame.line}", flush=True)
                    del error
                gc.collect()
    finally:
        keeper_process.terminate()
        keeper_process.wait()
    return 1 if failed else 0


if __name__ == "__main__":
    is_child = sys.argv[1:2] == ["--child"]
    if is_child:
        keeper_path, site = sys.argv[-2:]
    elif len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        import cupy
        import numpy
        import torch
    except ImportError as missing:
        leave(missing)
    try:
        import numba.cuda
    except ImportError:
        numba = None
    if not torch.cuda.is_available():
        leave("there is no GPU")
    os.environ["GVMEM_DRIVER"] = "cuda"
    with tempfile.TemporaryDirectory(prefix="gvmem-python-") as made:
        if not is_child:
            site, keeper_path = made, str(Path(made, "keeper.sock"))
            compile_package(Path(sys.argv[1]).resolve(), Path(made))
        sys.path.insert(0, site)
        import gvmem

        if is_child:
            with gvmem.connect(keeper_path) as connection:
                child(connection)
        else:
            sys.exit(run_cases([make_object, *CASES], keeper_path, why_no_numba))
