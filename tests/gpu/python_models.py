#!/usr/bin/env python3
"""Models of PyTorch that processes share and swap, on a GPU: usage: python_models.py BUILD-FOLDER

Goal: tensors of the GPU are published in the order of its stream; two models under a budget for one keep contents and
addresses, in several processes; CUDA graphs replay after a swap; what is touched asleep, or written, loses the context of that process
alone. Outcomes are told as TAP. Exits 77 without GPU, headers of Python or PyTorch. With GVMEM_DRIVER=soft it runs on the software GPU, with
what needs no CUDA.
"""
import gc
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from python_arrays import MIB, compile_package, leave, run_cases

WIDTH, ROWS = 8192, 10240  # 320 MiB of floats: the keeper's device budget, 512 MiB, has room for one
NAMES = ("/models/a", "/models/b")


def on_gpu(case):
    """It needs CUDA."""
    case.needs_gpu = True
    return case


def make_net(seed, device=None):
    net = torch.nn.Linear(WIDTH, ROWS, device=device or DEVICE)
    if net.weight.device.type != "meta":
        torch.manual_seed(seed)
        with torch.no_grad():
            net.weight.uniform_(-1, 1)
            net.bias.uniform_(-1, 1)
    return net.eval()


def request():
    return torch.linspace(-1, 1, WIDTH, device=DEVICE)


def wanted(seed):
    with torch.no_grad():
        return make_net(seed)(request())


def attach(keeper, number, **more):
    net = make_net(0, "meta")
    return gvmem.torch.attach(NAMES[number], keeper=keeper, module=net, **more), net


def right(net, number):
    with torch.no_grad():
        return torch.allclose(net(request()), wanted(number), rtol=1e-3, atol=1e-3)


def tensors_are_published_behind_their_stream(keeper):
    """The work that makes them has not ended when they are published."""
    for number, name in enumerate(NAMES):
        gvmem.torch.publish(make_net(number), name, keeper=keeper, replace=True, version=str(number))
    if DEVICE == "cuda":
        busy, late = torch.rand(4096, 4096, device=DEVICE), torch.zeros(16 * MIB, device=DEVICE)
        with torch.cuda.stream(torch.cuda.Stream()) as _:
            for _ in range(50):
                busy @ busy
            late.fill_(1)
            gvmem.torch.publish({"late": late, "tied": late}, "/models/late", keeper=keeper)
        model = gvmem.torch.attach("/models/late", keeper=keeper)
        assert float(model["late"].sum(dtype=torch.float64)) == 16 * MIB and model["tied"] is model["late"]
        assert model["late"].device.type == "cuda"
        model.close()
        keeper.drop("/models/late")


def models_are_swapped_at_their_addresses(keeper):
    (a, net_a), (b, net_b) = attach(keeper, 0), attach(keeper, 1, awake=False)
    addresses = net_a.weight.data_ptr(), net_b.weight.data_ptr()
    assert a.resident_bytes == a.size and right(net_a, 0)
    for _ in range(3):
        a.sleep()
        b.wake(resident=True)
        assert a.resident_bytes < a.size and right(net_b, 1)
        b.sleep()
        a.wake(resident=True)
        assert right(net_a, 0)
    with a:
        with b:
            assert right(net_b, 1), "over the link"
    assert addresses == (net_a.weight.data_ptr(), net_b.weight.data_ptr())
    a.close()
    b.close()


def other_processes_share_and_swap(keeper):
    children = [subprocess.Popen([sys.executable, __file__, "--child", "swap", str(number), keeper_path, site], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True, bufsize=1) for number in (0, 1, 0, 1)]
    addresses = [child.stdout.readline().strip() for child in children]
    assert addresses[0] == addresses[2] and addresses[1] == addresses[3], addresses
    for _ in range(3):
        for child in children:
            child.stdin.write("\n")
            assert child.stdout.readline().strip() == "right"
    assert len({info.id for info in keeper.objects()}) == 2
    for child in children:
        child.communicate()
        assert child.returncode == 0


@on_gpu
def graph_replays_after_a_swap(keeper):
    (a, net), (b, _) = attach(keeper, 0), attach(keeper, 1, awake=False)
    x = request()
    with torch.no_grad():
        net(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = net(x)
        for _ in range(3):
            out.zero_()
            with a:
                graph.replay()
                torch.cuda.synchronize()
            assert torch.allclose(out, wanted(0), rtol=1e-3, atol=1e-3)
            a.sleep()
            with b:
                assert b.resident_bytes == b.size
    a.close()
    b.close()


@on_gpu
def sleep_behind_a_stream_waits_for_nothing(keeper):
    a, net = attach(keeper, 0)
    stream, busy = torch.cuda.Stream(), torch.rand(8192, 8192, device=DEVICE)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(50):
            busy @ busy
        out = net(request())
        a.sleep(stream=stream)
        assert not stream.query() and a.info().read_leases == 1
    keeper.evict(NAMES[0])
    stream.synchronize()
    assert torch.allclose(out, wanted(0), rtol=1e-3, atol=1e-3)
    a.close()


def mapped_is_read_asleep(keeper):
    a, net = attach(keeper, 0, mapped=True)
    a.sleep()
    assert keeper.evict(NAMES[0]) > 0
    deadline = time.monotonic() + 60
    while a.moving:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert a.resident_bytes == 0 and right(net, 0)
    a.close()


def child_loses_its_context(how):
    done = subprocess.run([sys.executable, __file__, "--child", how, "0", keeper_path, site], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "alive" not in done.stdout and "before" in done.stdout, (done.returncode, done.stdout, done.stderr)


def touched_asleep_loses_the_context(keeper):
    child_loses_its_context("touch")
    models_are_swapped_at_their_addresses(keeper)


def written_loses_the_context(keeper):
    child_loses_its_context("write")
    models_are_swapped_at_their_addresses(keeper)


@on_gpu
def saver_gives_tensors_up_and_has_them_back(keeper):
    """Two regions of more than half of the budget each, of one of which a graph was captured; and a cache without a backup."""
    with gvmem.torch.Saver(keeper) as saver:
        nets, x = [], request()
        for number, tag in enumerate(("a", "b")):
            with saver.region(tag, enable_cpu_backup=True) as region:
                nets.append(make_net(number))
            assert region.used >= 4 * WIDTH * ROWS
            address = nets[number].weight.data_ptr()
            assert region._object.address <= address < region._object.address + region.used, "PyTorch's own memory"
            if number == 0:
                with torch.no_grad():
                    nets[0](x)
                    torch.cuda.synchronize()
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        out = nets[0](x)
            saver.pause(tag)
        assert sum(region.resident_bytes for region in saver.regions.values()) <= 512 * MIB
        for _ in range(3):
            saver.resume("a")
            resident = saver.regions["a"].resident_bytes
            assert resident >= 4 * WIDTH * ROWS, (resident, keeper.objects(), keeper.snapshot())
            assert right(nets[0], 0)
            out.zero_()
            graph.replay()
            torch.cuda.synchronize()
            assert torch.allclose(out, wanted(0), rtol=1e-3, atol=1e-3)
            saver.pause("a")
            saver.resume("b")
            assert right(nets[1], 1)
            saver.pause("b")
        with saver.region("cache") as region:
            cache = torch.ones(8 * MIB, device=DEVICE)
        saver.pause("cache")
        assert region.resident_bytes == 0
        saver.resume("cache")
        assert float(cache.abs().sum()) == 0
        cache.fill_(2)
        assert float(cache.mean()) == 2
        outside = torch.ones(8 * MIB, device=DEVICE)
        assert not region._object.address <= outside.data_ptr() < region._object.address + region.used
        with saver.region("cache"):
            try:
                torch.empty(1 << 40, dtype=torch.uint8, device=DEVICE)
                raise AssertionError("there was memory for 1 TiB")
            except torch.cuda.OutOfMemoryError:
                pass
        saver.resume()
        del cache, nets, graph, out, outside
        gc.collect()
        torch.cuda.empty_cache()
        print("# bytes that PyTorch keeps in regions:", {tag: region.used for tag, region in saver.regions.items()})
    assert {info.name for info in keeper.objects()} == set(NAMES)


@on_gpu
def saver_of_a_gpu_that_is_not_current_has_its_tensors(keeper):
    if torch.cuda.device_count() < 2:
        print("# there is one GPU")
        return
    with gvmem.torch.Saver(keeper, device=1) as saver:
        with saver.region("far") as region:
            tensor = torch.ones(8 * MIB, device="cuda:1")
        assert region._object.address <= tensor.data_ptr() < region._object.address + region.used, "PyTorch's own memory"
        saver.pause("far")
        saver.resume("far")
        del tensor
        gc.collect()
        torch.cuda.empty_cache()
    assert {info.name for info in keeper.objects()} == set(NAMES)


@on_gpu
def cupy_reads_and_is_read(keeper):
    try:
        import cupy
    except ImportError:
        print("# there is no CuPy")
        return
    given = {"plain": cupy.arange(1000.0), "turned": cupy.arange(60, dtype="i4").reshape(5, 12).T, "half": cupy.ones(7, "f2")}
    gvmem.models.publish(given, "/models/cupy", keeper=keeper)
    with gvmem.models.attach("/models/cupy", keeper=keeper, awake=False) as model:
        for key, value in given.items():
            for consume in (cupy.asarray, cupy.from_dlpack):
                try:
                    got = consume(model[key])
                except BufferError as error:  # a release that takes no read-only arrays
                    print(f"# CuPy {cupy.__version__}: {error}")
                    continue
                assert got.data.ptr == model[key].address and got.strides == value.strides and bool((got == value).all())
        del got
    model.close()
    keeper.drop("/models/cupy")


def types_are_what_they_were(keeper):
    given = {str(dtype): torch.randint(0, 2, (3, 5)).to(dtype).to(DEVICE) for dtype in gvmem.torch._TYPES}
    gvmem.torch.publish(given, "/models/types", keeper=keeper)
    model = gvmem.torch.attach("/models/types", keeper=keeper)
    for key, value in given.items():
        assert model[key].dtype == value.dtype and bool((model[key].view(torch.uint8) == value.view(torch.uint8)).all()), key
    model.close()
    keeper.drop("/models/types")


def child(keeper, what, number):
    model, net = attach(keeper, number, awake=what != "swap")
    if what == "swap":
        print(net.weight.data_ptr(), flush=True)
        while sys.stdin.readline():
            with model:
                print("right" if right(net, number) else "wrong", flush=True)
        return
    print("before", flush=True)
    if what == "touch":
        model.sleep()
        keeper.evict(NAMES[number])
        print(float(net.weight.sum()), "alive", flush=True)
    with torch.no_grad():
        net.weight.zero_()
        print(float(net.bias.sum() + request().sum()), "alive", flush=True)


CASES = [tensors_are_published_behind_their_stream, models_are_swapped_at_their_addresses, other_processes_share_and_swap,
         graph_replays_after_a_swap, sleep_behind_a_stream_waits_for_nothing, mapped_is_read_asleep, touched_asleep_loses_the_context,
         written_loses_the_context, saver_gives_tensors_up_and_has_them_back, saver_of_a_gpu_that_is_not_current_has_its_tensors, cupy_reads_and_is_read,
         types_are_what_they_were]


def why_not(case):
    return "it needs CUDA" if hasattr(case, "needs_gpu") and DEVICE != "cuda" else None


if __name__ == "__main__":
    is_child = sys.argv[1:2] == ["--child"]
    if is_child:
        keeper_path, site = sys.argv[-2:]
    elif len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        import torch
    except ImportError as missing:
        leave(missing)
    DEVICE = "cpu" if os.environ.get("GVMEM_DRIVER") == "soft" else "cuda"
    if DEVICE == "cuda" and not torch.cuda.is_available():
        leave("there is no GPU")
    os.environ.setdefault("GVMEM_DRIVER", DEVICE)
    with tempfile.TemporaryDirectory(prefix="gvmem-models-") as made:
        if not is_child:
            site, keeper_path = made, str(Path(made, "keeper.sock"))
            compile_package(Path(sys.argv[1]).resolve(), Path(made))
        sys.path.insert(0, site)
        import gvmem
        import gvmem.torch

        if is_child:
            with gvmem.connect(keeper_path) as connection:
                child(connection, sys.argv[2], int(sys.argv[3]))
        else:
            sys.exit(run_cases(CASES, keeper_path, why_not))
