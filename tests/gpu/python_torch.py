#!/usr/bin/env python3
"""PyTorch over heaps (gvmem.torch.use()), beside its own allocator: usage: python_torch.py BUILD-FOLDER [CASE...]

Goal: trainings, graphs, pools and streams give the same results with both; memory is counted, given back, refused and
shown as PyTorch documents. Each case runs in a process of its own, once with each allocator; what both return is compared. Outcomes are told as
TAP. Exits 77 where PyTorch, a GPU, a C++ compiler or headers of Python are missing.
"""
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from python_arrays import MIB, compile_package, leave

SIZE = 1 << 20
GIB = 1 << 30
LONG_CYCLES = 200_000_000  # about 0.1 s of a GPU's clock


def ours_only(case):
    """It is about what is not PyTorch's own: what it returns is True."""
    case.ours_only = True
    return case


def warm():
    """Ones, after the kernels that are captured later have been loaded."""
    ones = torch.ones(SIZE, device="cuda")
    ones = ones * 2 - ones * 1 + 1 - 1
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    return ones


# ---- graphs


def second_graph_keeps_its_output():
    """Two graphs; the first has a temporary. Launching the first leaves the second's output alone."""
    static = warm()

    def capture(factor):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            temporary = static * factor
            output = temporary + 1
            del temporary
        return graph, output

    torch.cuda.synchronize()
    first, one = capture(3.0)
    second, two = capture(5.0)
    second.replay()
    kept = two.clone()
    first.replay()
    torch.cuda.synchronize()
    return [one.sum().item(), two.sum().item(), bool(torch.equal(two, kept))]


def eager_work_leaves_a_graph_alone():
    """Tensors made after a capture, and filled, do not lie in the graph's temporaries, nor it in them."""
    static = warm()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        temporary = static * 2
        output = temporary * 3
        del temporary
    others = [torch.full((SIZE,), float(i), device="cuda") for i in range(16)]
    graph.replay()
    torch.cuda.synchronize()
    return [output.sum().item()] + [other.sum().item() for other in others]


def graph_with_side_stream_is_whole():
    """The side stream reads a tensor long after it was freed and the main stream has continued."""
    static = warm()
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        shared = static + 1
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            shared.record_stream(side)
            torch.cuda._sleep(LONG_CYCLES)
            far = shared * 2
        del shared
        near = static * 7
        torch.cuda.current_stream().wait_stream(side)
        total = near + far
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    return [total.sum().item()]


def released_graphs_leave_later_ones_right():
    static, sums = warm(), []
    for i in range(8):
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            output = static * i + 1
        graph.replay()
        sums.append(output.sum().item())
        del graph
        sums.append(output.sum().item())
    return sums


def graphs_of_one_pool_replay_in_order():
    """The second is captured into the first's pool, reads its output, and may use what its temporaries had."""
    static, first, second = warm(), torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        temporary = static * 3
        one = temporary + 1
        del temporary
    with torch.cuda.graph(second, pool=first.pool()):
        temporary = one * 2
        two = temporary + 5
        del temporary
    sums = []
    for factor in range(4):
        static.fill_(factor)
        rest = [torch.full((SIZE,), -1.0, device="cuda") for _ in range(8)]
        first.replay()
        second.replay()
        torch.cuda.synchronize()
        sums += [one.sum().item(), two.sum().item(), sum(other.sum().item() for other in rest)]
    return sums


def captured_training_replays_beside_other_work():
    """Whole steps in a graph; between launches memory is taken, filled with NaN and dropped."""
    torch.manual_seed(5)
    net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 16)).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, capturable=True)
    x, y = torch.randn(512, 256, device="cuda"), torch.randint(16, (512,), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for number in range(10):
        junk = [torch.full((1 << (10 + i % 12),), float("nan"), device="cuda") for i in range(30 + number)]
        graph.replay()
        del junk
        losses.append(round(loss.item(), 4))
        torch.cuda.empty_cache()
    return losses


# ---- streams


def recorded_stream_reads_what_it_was_given():
    """A tensor is freed while a side stream is about to read it."""
    side, sums = torch.cuda.Stream(), []
    for _ in range(4):
        source = torch.full((SIZE,), 3.0, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(LONG_CYCLES)
            copy = source.clone()
        source.record_stream(side)
        del source
        overwriting = [torch.full((SIZE,), 9.0, device="cuda") for _ in range(8)]
        torch.cuda.synchronize()
        sums += [copy.sum().item(), len(overwriting)]
    return sums


def streams_do_not_share_freed_memory():
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(first):
        torch.cuda._sleep(LONG_CYCLES)
        dropped = torch.full((SIZE,), 1.0, device="cuda")
        del dropped
    with torch.cuda.stream(second):
        kept = torch.full((SIZE,), 2.0, device="cuda")
    torch.cuda.synchronize()
    return [kept.sum().item()]


def threads_have_streams_of_their_own():
    sums = [0.0] * 8

    def work(index):
        with torch.cuda.stream(torch.cuda.Stream()):
            total = torch.zeros(1000, device="cuda", dtype=torch.float64)
            for size in range(200):
                total += torch.full((1000 + size * index,), float(index), device="cuda", dtype=torch.float64)[:1000]
            sums[index] = total.sum().item()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sums


# ---- trainings


def training_has_the_same_losses():
    """Batches of varying length."""
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    net = torch.nn.ModuleDict({"words": torch.nn.Embedding(1000, 128), "layers": torch.nn.TransformerEncoder(layer, 3), "head": torch.nn.Linear(128, 1000)}).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    losses = []
    for number in range(12):
        tokens = torch.randint(1000, (8, 33 + number * 37 % 190), device="cuda")
        scores = net["head"](net["layers"](net["words"](tokens)))
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 3))
    return losses


def convolutions_choose_by_measuring():
    """cuDNN asks how much memory its workspaces may have."""
    torch.manual_seed(2)
    torch.backends.cudnn.benchmark = True
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 5), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3)).cuda()
    return [round(net(torch.ones(4, 3, 64 + 16 * i, 64, device="cuda")).mean().item(), 3) for i in range(4)]


# ---- pools


def pool_has_what_is_made_in_it():
    pool = torch.cuda.MemPool()
    counts = [pool.use_count()]
    with torch.cuda.use_mem_pool(pool):
        inside = torch.full((SIZE,), 3.0, device="cuda")
        counts.append(pool.use_count())
    outside = torch.full((SIZE,), 4.0, device="cuda")
    counts.append(pool.use_count())

    def is_in(tensor, segments):
        return any(s["address"] <= tensor.data_ptr() < s["address"] + s["total_size"] for s in segments)

    of_pool = pool.snapshot()
    of_pool = of_pool if isinstance(of_pool, list) else of_pool["segments"]
    places = [is_in(inside, of_pool), is_in(outside, of_pool)]
    del inside
    del pool
    gc.collect()
    torch.cuda.empty_cache()
    return counts, places, outside.sum().item()


def pool_that_goes_leaves_its_tensors():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        kept = [torch.full((SIZE,), float(i), device="cuda") for i in range(4)]
    del pool
    others = [torch.full((SIZE,), 9.0, device="cuda") for _ in range(8)]
    return [tensor.sum().item() for tensor in kept + others]


# ---- memory


def statistics_count_what_is_allocated():
    before = torch.cuda.memory_allocated()
    a, b = torch.empty(SIZE, device="cuda"), torch.empty(3, device="cuda")
    counts = [torch.cuda.memory_allocated() - before]
    del a
    counts += [torch.cuda.memory_allocated() - before, torch.cuda.max_memory_allocated() - before]
    torch.cuda.reset_peak_memory_stats()
    counts += [torch.cuda.max_memory_allocated() - before, torch.cuda.memory_stats()["requested_bytes.all.current"], b.numel()]
    torch.cuda.reset_accumulated_memory_stats()
    stats = torch.cuda.memory_stats()
    counts += [stats["allocation.all.allocated"], stats["allocation.all.current"], stats["num_ooms"]]
    held = torch.cuda.memory_reserved()
    return counts, held >= torch.cuda.memory_allocated() > 0, torch.cuda.max_memory_reserved() >= held


def empty_cache_gives_back():
    torch.cuda.init()
    start = torch.cuda.mem_get_info()[0]
    tensors = [torch.empty(256 * MIB, dtype=torch.uint8, device="cuda") for _ in range(8)]
    taken = start - torch.cuda.mem_get_info()[0]
    del tensors
    torch.cuda.empty_cache()
    left = start - torch.cuda.mem_get_info()[0]
    return taken >= 2 * GIB, left <= 64 * MIB, torch.cuda.memory_reserved() <= 64 * MIB


def too_much_is_an_out_of_memory_error():
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda device, size, total, free: seen.append((device, size)))
    kept = torch.full((SIZE,), 2.0, device="cuda")
    total = torch.cuda.mem_get_info()[1]
    try:
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")
        return "no error"
    except torch.OutOfMemoryError as error:
        text = str(error)
    blocks = []
    try:
        while True:
            blocks.append(torch.empty(4 * GIB, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        filled = len(blocks) * 4 * GIB > 0.8 * total
    blocks.clear()
    again = torch.empty(int(0.5 * total), dtype=torch.uint8, device="cuda")
    return (text.startswith("CUDA out of memory. Tried to allocate"), filled, again.numel() > 0, seen[0][0] == 0 and seen[0][1] >= 2 * total, len(seen) == 2,
            torch.cuda.memory_stats()["num_ooms"], kept.sum().item())


def fraction_is_a_limit():
    torch.cuda.init()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(0.05)
    below = torch.empty(int(0.03 * total), dtype=torch.uint8, device="cuda")
    try:
        torch.empty(int(0.04 * total), dtype=torch.uint8, device="cuda")
        return "no error"
    except torch.OutOfMemoryError:
        pass
    del below
    torch.cuda.set_per_process_memory_fraction(1.0)
    return torch.empty(int(0.1 * total), dtype=torch.uint8, device="cuda").numel() > 0, torch.cuda.memory.get_per_process_memory_fraction()


def snapshot_has_blocks_and_history():
    torch.cuda.memory._record_memory_history(max_entries=1000)
    kept = torch.full((SIZE,), 1.0, device="cuda")
    dropped = torch.full((SIZE,), 2.0, device="cuda")
    address = dropped.data_ptr()
    del dropped
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    live = [block for segment in snapshot["segments"] for block in segment["blocks"] if block["state"] == "active_allocated"]
    mine = [block for block in live if block.get("address") == kept.data_ptr()]
    actions = [(entry["action"], entry["addr"] == address) for entry in snapshot["device_traces"][0] if entry["action"] != "segment_alloc"]
    with tempfile.TemporaryDirectory() as folder:
        torch.cuda.memory._dump_snapshot(str(Path(folder, "snapshot.pickle")))
        dumped = Path(folder, "snapshot.pickle").stat().st_size > 0
    names = [frame["name"] for frame in mine[0]["frames"]]
    return (sum(block["size"] for block in live) >= torch.cuda.memory_allocated(), len(mine), mine[0]["requested_size"], [a for a in actions if a[1]],
            "snapshot_has_blocks_and_history" in names, dumped)


def devices_reach_each_other():
    count = torch.cuda.device_count()
    tensors = [torch.full((SIZE,), float(i + 1), device=f"cuda:{i}") for i in range(count)]
    copies = [tensor.to(f"cuda:{j}") for tensor in tensors for j in range(count)]
    return [copy.sum().item() for copy in copies], [torch.cuda.memory_allocated(i) > 0 for i in range(count)]


def pinned_memory_is_copied_behind_work():
    sums = []
    for i in range(8):
        batch = torch.full((SIZE,), float(i)).pin_memory().to("cuda", non_blocking=True)
        sums.append(batch.sum())
    return [total.item() for total in sums]


# ---- what is gvmem's alone


@ours_only
def use_is_said_early_and_twice():
    assert torch.cuda.get_allocator_backend() == "gvmem"
    gvmem.torch.use()
    torch.ones(1, device="cuda")
    gvmem.torch.use()
    path = os.pathsep.join([site, *filter(None, [os.environ.get("PYTHONPATH")])])
    late = ("import torch, gvmem.torch\ntorch.ones(1, device='cuda')\ntry:\n    gvmem.torch.use()\nexcept RuntimeError as error:\n    print(error)")
    done = subprocess.run([sys.executable, "-c", late], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path})
    assert "initialized already" in done.stdout, done
    none = "import gvmem.torch\ntry:\n    gvmem.torch.use()\nexcept RuntimeError as error:\n    print(error)"
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run([sys.executable, "-c", none], capture_output=True, text=True, check=True,
                              env={**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": empty, "CXX": "no-such-compiler"})
    assert "no C++ compiler" in done.stdout and done.stdout.count("\n") == 1, done
    return True


@ours_only
def idle_memory_is_given_to_others():
    """What PyTorch has freed serves the rest of the process when the GPU is full."""
    free = torch.cuda.mem_get_info()[0]
    block = torch.empty(int(0.7 * free), dtype=torch.uint8, device="cuda")
    del block
    with gvmem.Buffer(int(0.6 * free) // GIB * GIB) as buffer:
        assert buffer.tier() == "device"
    return torch.ones(SIZE, device="cuda").sum().item() == SIZE


@ours_only
def idle_memory_goes_back_by_itself():
    start = torch.cuda.mem_get_info()[0]
    del_me = torch.empty(4 * GIB, dtype=torch.uint8, device="cuda")
    del del_me
    deadline = 100
    while start - torch.cuda.mem_get_info()[0] > 128 * MIB and deadline:
        threading.Event().wait(0.1)
        deadline -= 1
    return deadline > 0


@ours_only
def child_by_fork_ends_quietly():
    kept = torch.ones(SIZE, device="cuda")
    child = os.fork()
    if child == 0:
        del kept
        gc.collect()
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0 and kept.sum().item() == SIZE


@ours_only
def what_cannot_be_is_said():
    try:
        torch.ones(1, device="cuda").untyped_storage()._share_cuda_()
        return False
    except NotImplementedError as error:
        return "gvmem.torch.publish" in str(error)


CASES = [
    second_graph_keeps_its_output, eager_work_leaves_a_graph_alone, graph_with_side_stream_is_whole, released_graphs_leave_later_ones_right,
    graphs_of_one_pool_replay_in_order, captured_training_replays_beside_other_work, recorded_stream_reads_what_it_was_given,
    streams_do_not_share_freed_memory, threads_have_streams_of_their_own, training_has_the_same_losses, convolutions_choose_by_measuring,
    pool_has_what_is_made_in_it, pool_that_goes_leaves_its_tensors, statistics_count_what_is_allocated, empty_cache_gives_back,
    too_much_is_an_out_of_memory_error, fraction_is_a_limit, snapshot_has_blocks_and_history, devices_reach_each_other,
    pinned_memory_is_copied_behind_work, use_is_said_early_and_twice, idle_memory_is_given_to_others, idle_memory_goes_back_by_itself,
    child_by_fork_ends_quietly, what_cannot_be_is_said,
]


def answer(case, allocator):
    done = subprocess.run([sys.executable, __file__, "--one", case.__name__, allocator, site], capture_output=True, text=True, timeout=300, check=False)
    return done.stdout.strip() if done.returncode == 0 else f"exit {done.returncode}: {done.stderr[-1500:]}"


def run(cases):
    print(f"1..{len(cases)}", flush=True)
    failed = 0
    for number, case in enumerate(cases, 1):
        ours = answer(case, "gvmem")
        wanted = "True" if hasattr(case, "ours_only") else answer(case, "native")
        good = ours == wanted and not ours.startswith("exit")
        failed += not good
        print(f"{'ok' if good else 'not ok'} {number} - {case.__name__}", flush=True)
        if not good:
            print(f"# wanted: {wanted}\n# gvmem:  {ours}".replace("\n", "\n# "), flush=True)
    print(f"# {len(cases) - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        import torch
    except ImportError as missing:
        leave(missing)
    by_name = {case.__name__: case for case in CASES}
    if sys.argv[1] == "--one":
        site = sys.argv[4]
        sys.path.insert(0, site)
        if sys.argv[3] == "gvmem":
            import gvmem
            import gvmem.torch

            gvmem.torch.use()
        print(repr(by_name[sys.argv[2]]()))
        sys.exit()
    if not torch.cuda.is_available():
        leave("there is no GPU")
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        leave("there is no C++ compiler")
    with tempfile.TemporaryDirectory(prefix="gvmem-torch-") as made:
        site = made
        os.environ.setdefault("XDG_CACHE_HOME", made)
        compile_package(Path(sys.argv[1]).resolve(), Path(made))
        sys.exit(run([by_name[name] for name in sys.argv[2:]] or CASES))
