#!/usr/bin/env python3
"""PyTorch over a gvmem heap, beside its own allocator: usage: torch_streams.py LIBRARY

Goal: graphs and streams give the same results with both. Each case runs in a process of its own, once
with each allocator; outcomes are told as TAP. Exits 77 where PyTorch or a GPU is missing.
"""
import subprocess
import sys
from pathlib import Path

SKIPPED = 77
SIZE = 1 << 20
LONG_CYCLES = 200_000_000  # about 0.1 s of a GPU's clock
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))


def warm(torch):
    """Ones, after the kernels that are captured later have been loaded."""
    ones = torch.ones(SIZE, device="cuda")
    ones = ones * 2 - ones * 1 + 1 - 1
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    return ones


def second_graph_keeps_its_output(torch):
    """Two graphs; the first has a temporary. Launching the first leaves the second's output alone."""
    static = warm(torch)

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


def eager_work_leaves_a_graph_alone(torch):
    """Tensors made after a capture, and filled, do not lie in the graph's temporaries, nor it in them."""
    static = warm(torch)
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


def graph_with_side_stream_is_whole(torch):
    """The side stream reads a tensor long after it was freed and the main stream has continued."""
    static = warm(torch)
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


def released_graphs_leave_later_ones_right(torch):
    static, sums = warm(torch), []
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


def recorded_stream_reads_what_it_was_given(torch):
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


def streams_do_not_share_freed_memory(torch):
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(first):
        torch.cuda._sleep(LONG_CYCLES)
        dropped = torch.full((SIZE,), 1.0, device="cuda")
        del dropped
    with torch.cuda.stream(second):
        kept = torch.full((SIZE,), 2.0, device="cuda")
    torch.cuda.synchronize()
    return [kept.sum().item()]


CASES = [
    second_graph_keeps_its_output,
    eager_work_leaves_a_graph_alone,
    graph_with_side_stream_is_whole,
    released_graphs_leave_later_ones_right,
    recorded_stream_reads_what_it_was_given,
    streams_do_not_share_freed_memory,
]


def run_one(name, library):
    import torch

    if library != "native":
        import gvmem_plugin

        gvmem_plugin.use_in_torch(library)
    print(repr({case.__name__: case for case in CASES}[name](torch)))


def main(library):
    try:
        import torch
    except ImportError:
        print("skipped: PyTorch is not installed")
        return SKIPPED
    if not torch.cuda.is_available():
        print("skipped: PyTorch finds no GPU")
        return SKIPPED
    print(f"1..{len(CASES)}", flush=True)
    failed = 0
    for number, case in enumerate(CASES, 1):
        answers = []
        for allocator in ("native", library):
            done = subprocess.run([sys.executable, __file__, "--one", case.__name__, allocator], capture_output=True, text=True, timeout=300)
            answers.append(done.stdout.strip() if done.returncode == 0 else f"exit {done.returncode}: {done.stderr[-500:]}")
        good = answers[0] == answers[1] and answers[0].startswith("[")
        failed += not good
        print(f"{'ok' if good else 'not ok'} {number} - {case.__name__}", flush=True)
        if not good:
            print(f"# native: {answers[0]}\n# gvmem:  {answers[1]}".replace("\n", "\n# "), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--one":
        run_one(sys.argv[2], sys.argv[3])
    elif len(sys.argv) == 2:
        sys.exit(main(sys.argv[1]))
    else:
        sys.exit(__doc__)
