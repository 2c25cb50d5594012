"""PyTorch's memory from heaps: gvmem.torch.use(), compiled, with PyTorch on the software GPU by cudart.c, where kernels do nothing, and copies
are real. Skipped where PyTorch with CUDA, its headers or a C++ compiler are missing. What takes kernels is in tests/gpu/python_torch.py."""
import ctypes
import gc
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

if __name__ != "__main__":
    torch = pytest.importorskip("torch", reason="PyTorch is missing")
    if torch.version.cuda is None or torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA, or a GPU", allow_module_level=True)
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("there is no C++ compiler", allow_module_level=True)

MIB = 1 << 20
SIZE = MIB  # floats


def on_gpu(value, size=SIZE):
    return torch.full((size,), float(value)).cuda()


def copy_of(tensor):
    """By a copy, which graphs capture."""
    return torch.empty_like(tensor).copy_(tensor)


def total(tensor):
    return tensor.cpu().sum().item()


def blocked(stream):
    """What the stream is given from now on waits for what is returned to be set."""
    go = threading.Event()
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: go.wait(30) and None)
    go.call = call
    assert ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc(ctypes.c_void_p(stream.cuda_stream), call, None) == 0
    return go


# ---- cases: each in a process of its own


def case_it_is_in_use():
    assert torch.cuda.get_allocator_backend() == "gvmem"
    gvmem.torch.use()
    assert total(on_gpu(3)) == 3 * SIZE
    gvmem.torch.use()
    assert torch.empty(0, device="cuda").numel() == 0


def case_memory_is_counted_as_by_pytorch():
    a, b = torch.empty(SIZE, device="cuda"), torch.empty(3, device="cuda")
    assert torch.cuda.memory_allocated() == 4 * MIB + 512
    del a
    assert torch.cuda.memory_allocated() == 512 and torch.cuda.max_memory_allocated() == 4 * MIB + 512
    torch.cuda.reset_peak_memory_stats()
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.peak"] == 512 and stats["requested_bytes.all.current"] == 12 and b.numel() == 3
    assert (stats["allocation.all.allocated"], stats["allocation.all.freed"], stats["allocation.large_pool.freed"]) == (2, 1, 1)
    assert stats["reserved_bytes.all.peak"] >= torch.cuda.memory_reserved() >= 2 * MIB
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0
    del b
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0 == torch.cuda.memory_allocated()


def case_pool_has_memory_of_its_own():
    pool = torch.cuda.MemPool()
    assert pool.use_count() == 1
    with torch.cuda.use_mem_pool(pool):
        inside = on_gpu(1)
        assert pool.use_count() == 2
        with pytest.raises(RuntimeError, match="in use already"):
            torch._C._cuda_beginAllocateCurrentThreadToPool(0, pool.id)
        thread = threading.Thread(target=lambda: others.append(on_gpu(2)))
        others = []
        thread.start()
        thread.join()
    others.append(on_gpu(3))
    assert pool.use_count() == 1
    snapshot = pool.snapshot()
    ranges = [(s["address"], s["address"] + s["total_size"]) for s in (snapshot if isinstance(snapshot, list) else snapshot["segments"])]
    assert [any(a <= tensor.data_ptr() < b for a, b in ranges) for tensor in [inside, *others]] == [True, False, False]
    held = torch.cuda.memory_reserved()
    del pool, snapshot
    gc.collect()
    assert total(inside) == SIZE and torch.cuda.memory_reserved() >= 4 * MIB
    del inside
    assert torch.cuda.memory_reserved() < held
    if "no_split" in inspect.signature(torch.cuda.MemPool.__init__).parameters:
        assert torch.cuda.MemPool(no_split=True).use_count() == 1


def case_innermost_pool_is_asked():
    """Whichever was made first."""
    inner, outer = torch.cuda.MemPool(), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(outer), torch.cuda.use_mem_pool(inner):
        kept = on_gpu(1)
    snapshot = inner.snapshot()
    segments = snapshot if isinstance(snapshot, list) else snapshot["segments"]
    assert any(s["address"] <= kept.data_ptr() < s["address"] + s["total_size"] for s in segments)


def case_graphs_have_memory_of_their_own():
    static, graph, second = on_gpu(2), torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        temporary = copy_of(static)
        output = copy_of(temporary)
        freed = temporary.data_ptr()
        del temporary
    others = [on_gpu(9) for _ in range(8)]
    assert freed not in {other.data_ptr() for other in others}
    with torch.cuda.graph(second, pool=graph.pool()):  # which goes behind the first, always
        temporary = copy_of(output)
        twice = copy_of(temporary)
        assert temporary.data_ptr() == freed
        del temporary
    for value in (4, 5):
        static.copy_(torch.full((SIZE,), float(value)))
        graph.replay()
        second.replay()
        torch.cuda.synchronize()
        assert total(output) == total(twice) == value * SIZE and all(total(other) == 9 * SIZE for other in others)
    torch.cuda.empty_cache()
    graph.replay()
    torch.cuda.synchronize()
    held = torch.cuda.memory_reserved()
    del graph
    assert total(output) == 5 * SIZE
    del second, twice, output
    gc.collect()
    assert torch.cuda.memory_reserved() <= held - 8 * MIB


def case_captured_pool_shares_nothing_with_what_is_not():
    """What a MemPool has of captures is used by captures alone."""
    pool, graph, static = torch.cuda.MemPool(), torch.cuda.CUDAGraph(), on_gpu(3)
    with torch.cuda.graph(graph, pool=pool.id):
        temporary = copy_of(static)
        output = copy_of(temporary)
        freed = temporary.data_ptr()
        del temporary
    with torch.cuda.use_mem_pool(pool):
        others = [on_gpu(7) for _ in range(8)]
    assert freed not in {other.data_ptr() for other in others}
    graph.replay()
    torch.cuda.synchronize()
    assert total(output) == 3 * SIZE and all(total(other) == 7 * SIZE for other in others)


def case_recorded_stream_is_waited_for():
    side = torch.cuda.Stream()
    tensor = on_gpu(1)
    address = tensor.data_ptr()
    go = blocked(side)
    tensor.record_stream(side)
    del tensor
    stats = torch.cuda.memory_stats()
    assert stats["active_bytes.all.current"] >= 4 * MIB > stats["allocated_bytes.all.current"]
    others = [torch.empty(SIZE, device="cuda") for _ in range(4)]
    assert address not in {other.data_ptr() for other in others}
    go.set()
    side.synchronize()
    del others
    others = [torch.empty(SIZE, device="cuda") for _ in range(8)]
    assert address in {other.data_ptr() for other in others}


def case_stream_keeps_what_it_has_freed():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        tensor = torch.empty(SIZE, device="cuda")
        address = tensor.data_ptr()
        del tensor
    assert torch.empty(SIZE, device="cuda").data_ptr() != address
    with torch.cuda.stream(side):
        assert torch.empty(SIZE, device="cuda").data_ptr() == address


def case_recorded_stream_may_be_captured():
    """An event would be part of the graph: the free waits until the capture is over."""
    side, tensor, static, graph = torch.cuda.Stream(), on_gpu(1), on_gpu(2), torch.cuda.CUDAGraph()
    address = tensor.data_ptr()
    with torch.cuda.graph(graph, stream=side):
        output = copy_of(static)
        tensor.record_stream(side)
        del tensor
        with torch.cuda.stream(torch.cuda.default_stream()):
            assert address not in {torch.empty(SIZE, device="cuda").data_ptr() for _ in range(2)}
    graph.replay()
    torch.cuda.synchronize()
    assert total(output) == 2 * SIZE
    others = [torch.empty(SIZE, device="cuda") for _ in range(8)]
    assert address in {other.data_ptr() for other in others}


def case_too_much_is_pytorchs_error():
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *what: seen.append(what))
    kept, room = on_gpu(1), torch.cuda.mem_get_info()[1]
    with pytest.raises(torch.OutOfMemoryError, match="^CUDA out of memory. Tried to allocate .* GPU 0 has a total capacity of .* gvmem: "):
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
    assert seen == [(0, 1 << 40, room, torch.cuda.mem_get_info()[0])] and torch.cuda.memory_stats()["num_ooms"] == 1
    torch.cuda.set_per_process_memory_fraction(64 * MIB / room)
    assert torch.cuda.memory.get_per_process_memory_fraction() == 64 * MIB / room
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        half = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
    with pytest.raises(torch.OutOfMemoryError, match="limit"):
        torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.empty(40 * MIB, dtype=torch.uint8, device="cuda").numel() == half.numel() and total(kept) == SIZE


def case_snapshot_has_blocks_and_history():
    torch.cuda.memory._record_memory_history(max_entries=4, stacks="python")
    kept = torch.empty(SIZE, device="cuda")
    dropped = torch.empty(2 * SIZE, device="cuda")
    address = dropped.data_ptr()
    del dropped
    before = torch.cuda.memory_reserved()  # what is idle may go back at any time
    snapshot = torch.cuda.memory._snapshot()
    after = torch.cuda.memory_reserved()
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    (mine,) = [block for block in blocks if block["address"] == kept.data_ptr()]
    assert mine["state"] == "active_allocated" and mine["requested_size"] == 4 * MIB
    assert mine["frames"][0]["name"] == "case_snapshot_has_blocks_and_history"
    assert [e["action"] for e in snapshot["device_traces"][0] if e["addr"] == address] == ["alloc", "free_requested", "free_completed"]
    for segment in snapshot["segments"]:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    assert before >= sum(segment["total_size"] for segment in snapshot["segments"]) >= after
    torch.cuda.memory._record_memory_history(enabled=None)
    assert torch.cuda.memory._snapshot()["device_traces"] == [[]]


def case_what_cannot_be_is_said():
    with pytest.raises(NotImplementedError, match="gvmem.torch.publish"):
        torch.empty(1, device="cuda").untyped_storage()._share_cuda_()
    with pytest.raises((NotImplementedError, RuntimeError), match="cudagraph_trees"):
        torch._C._cuda_getCheckpointState(0, (1, 0))
    assert attach_tracker() == 1


TRACKER = """
#include <c10/cuda/CUDACachingAllocator.h>
extern "C" __attribute__((visibility("default"))) int attach()
{
    try {
        c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker([](const auto &) {});
        return 0;
    } catch (const c10::NotImplementedError &) {
        return 1;
    }
}
"""


def attach_tracker():
    """As PyTorch does for NCCL: 1 if it is refused."""
    from gvmem import _torch_allocator

    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "tracker.cpp"), Path(folder, "tracker.so")
        source.write_text(TRACKER)
        arguments = [str(source) if argument.endswith(".cpp") else argument for argument in _torch_allocator._arguments()]
        subprocess.run([_torch_allocator._compiler(), *arguments, "-isystem", str(_torch_allocator._cuda_headers()), "-o", str(made)], check=True)
        return ctypes.CDLL(str(made)).attach()


def case_child_by_fork_frees_nothing():
    kept = on_gpu(5)
    child = os.fork()
    if child == 0:
        del kept
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0 and total(kept) == 5 * SIZE


def case_threads_have_streams_of_their_own():
    wrong = []

    def work(number):
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(100):
                tensor = on_gpu(number, 1000 + 7919 * i % 5000)
                copy = copy_of(tensor)
                del tensor
                if total(copy) != number * copy.numel():
                    wrong.append((number, i))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and torch.cuda.memory_allocated() == 0


# ---- running them


@pytest.fixture(scope="session")
def runtime(tmp_path_factory):
    """The environment of PyTorch on the software GPU."""
    from gvmem import _torch_allocator

    folder = tmp_path_factory.mktemp("cudart")
    headers = next((f for f in _torch_allocator._cuda_folders() if all((f / name).exists() for name in _torch_allocator._CUDA_HEADERS)), None)
    if headers is None:
        pytest.skip("headers of the CUDA runtime are missing")
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{headers}", str(Path(__file__).with_name("cudart.c")), "-o", str(folder / "cudart.so"), "-ldl"], check=True)
    (folder / "libcuda.so.1").symlink_to(Path(os.environ["BUILD"], "softgpu/libgvmem-softgpu.so"))
    return {**os.environ, "LD_PRELOAD": str(folder / "cudart.so"), "LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}",
            "XDG_CACHE_HOME": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def start(runtime, *arguments, **environment):
    return subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**runtime, **environment})


def output_of(process, code=0):
    text = process.communicate(timeout=300)[0]
    assert process.returncode == code, text
    return text


@pytest.mark.parametrize("name", [name[5:] for name in dict(globals()) if name.startswith("case_")])
def test_pytorch(runtime, name):
    output_of(start(runtime, __file__, name))


USE = "import gvmem.torch, torch\ngvmem.torch.use()\nprint(torch.cuda.get_allocator_backend())"


def test_two_processes_compile_at_once(runtime, tmp_path):
    processes = [start(runtime, "-c", USE, XDG_CACHE_HOME=str(tmp_path)) for _ in range(2)]
    assert [output_of(process) for process in processes] == ["gvmem\n"] * 2
    (made,) = (tmp_path / "gvmem").iterdir()
    assert made.name.startswith(f"torch-{torch.__version__}-") and made.suffix == ".so"
    assert output_of(start(runtime, "-c", USE, XDG_CACHE_HOME=str(tmp_path), CXX="no-such-compiler")) == "gvmem\n"


def test_a_compiler_that_links_archives_gives_no_second_standard_library(runtime, tmp_path):
    """Its streams would be given locales of the first one: an error's text crashed."""
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\nexec c++ -static-libstdc++ "$@"\n')
    compiler.chmod(0o755)
    output_of(start(runtime, __file__, "too_much_is_pytorchs_error", XDG_CACHE_HOME=str(tmp_path), CXX=str(compiler)))
    (made,) = (tmp_path / "gvmem").iterdir()
    assert b"libstdc++.so.6\0" in made.read_bytes()


@pytest.mark.parametrize("before, environment, why", [
    ("", {"CXX": "no-such-compiler"}, "there is no C++ compiler (no-such-compiler): install g++, or set CXX"),
    ("", {"CXX": "false"}, "false cannot compile its allocator for PyTorch"),
    ("torch.cuda.init()\n", {}, "CUDA is initialized already: call it before the first tensor on a GPU"),
])
def test_why_it_is_refused(runtime, tmp_path, before, environment, why):
    if before:
        tmp_path = Path(runtime["XDG_CACHE_HOME"])
    text = output_of(start(runtime, "-c", f"import torch\n{before}{USE}", XDG_CACHE_HOME=str(tmp_path), **environment), 1).strip()
    assert text.splitlines()[-1].startswith("RuntimeError: gvmem.torch.use(): ") and why in text.splitlines()[-1]


if __name__ == "__main__":
    import torch

    import gvmem.torch

    gvmem.torch.use()
    globals()[f"case_{sys.argv[1]}"]()
