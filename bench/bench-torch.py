#!/usr/bin/env python3
"""Trains a transformer on batches of varying length with PyTorch's allocator and with a heap: time and memory.

usage: BUILD=build-release python3 tests/python/package.py bench/bench-torch.py [-n STEPS] [-r ROUNDS] [-o FILE]

Width 1024, 8 layers, a vocabulary of 32000, batches of 8 texts of 128 to 1024 tokens, single precision with
TF32. Each allocator trains in processes of its own, ROUNDS times in turns, on the same batches. Memory is
what the device has less than before the first tensor, looked at after every step. With -o the figures are
recorded as JSON. Without PyTorch, a GPU or the package gvmem it prints so and exits with 77.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

SKIPPED = 77  # what meson takes for a test that was left out
WIDTH, LAYERS, WORDS, ROWS, LENGTHS = 1024, 8, 32000, 8, (128, 1024)
WARM_UP = 10  # steps whose time does not count
NATIVE, EXPANDABLE, HEAP, KEEPING = "PyTorch", "PyTorch, expandable segments", "gvmem", "gvmem, everything kept"
ENVIRONMENTS = {
    NATIVE: {},
    EXPANDABLE: {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    HEAP: {},
    KEEPING: {"GVMEM_HEAP_KEEP": "1TiB"},
}


def make_model(torch):
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(WIDTH, WIDTH // 64, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
    layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    return nn.ModuleDict({"words": nn.Embedding(WORDS, WIDTH), "layers": layers, "head": nn.Linear(WIDTH, WORDS)}).cuda()


def step(torch, model, optimizer, length):
    tokens = torch.randint(WORDS, (ROWS, length + 1), device="cuda")
    mask = torch.nn.Transformer.generate_square_subsequent_mask(length, device="cuda")
    scores = model["head"](model["layers"](model["words"](tokens[:, :-1]), mask=mask, is_causal=True))
    loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def train(name, steps):
    """The inner process: prints one line of JSON."""
    import torch

    random.seed(11)
    torch.manual_seed(7)
    torch.set_float32_matmul_precision("high")
    if name in (HEAP, KEEPING):
        import gvmem.torch

        gvmem.torch.use()
    torch.cuda.init()
    free_before = torch.cuda.mem_get_info()[0]
    model = make_model(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    times, held, tokens = [], [], 0
    for number in range(steps):
        length = random.randint(*LENGTHS)
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = step(torch, model, optimizer, length)
        torch.cuda.synchronize()
        if number >= WARM_UP:
            times.append(time.perf_counter() - start)
            tokens += ROWS * length
        held.append(free_before - torch.cuda.mem_get_info()[0])
    figures = {
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "tokens_per_second": tokens / sum(times),
        "step_ms": statistics.median(times) * 1e3,
        "held_max_bytes": max(held),
        "held_mean_bytes": statistics.mean(held[WARM_UP:]),
        "live_max_bytes": torch.cuda.max_memory_allocated(),
        "loss": loss.item(),
    }
    print(json.dumps(figures))


def run(name, arguments):
    environment = dict(os.environ, **ENVIRONMENTS[name])
    command = [sys.executable, __file__, "--inner", name, "-n", arguments.steps]
    done = subprocess.run([str(word) for word in command], env=environment, stdout=subprocess.PIPE, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"bench-torch: the training with {name} failed with {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def summary(rounds):
    """Medians over the rounds; what is no number is that of the first."""
    return {key: statistics.median(r[key] for r in rounds) if isinstance(value, (int, float)) else value for key, value in rounds[0].items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--steps", type=int, default=80, help="of each training (80)")
    parser.add_argument("-r", "--rounds", type=int, default=2, help="(2)")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--inner", choices=ENVIRONMENTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps <= WARM_UP:
        parser.error(f"the first {WARM_UP} steps do not count: ask for more")
    if arguments.inner:
        train(arguments.inner, arguments.steps)
        return
    try:
        import gvmem.torch  # noqa: F401
        import torch

        why = None if torch.cuda.is_available() else "PyTorch finds no GPU"
    except ImportError as missing:
        why = str(missing)
    if why:
        print(f"bench-torch: left out: {why}")
        sys.exit(SKIPPED)
    rounds = [{name: run(name, arguments) for name in ENVIRONMENTS} for _ in range(arguments.rounds)]
    figures = {name: summary([r[name] for r in rounds]) for name in ENVIRONMENTS}
    native = figures[NATIVE]
    print(f"{'':32} {'tokens/s':>9} {'beside':>7} {'held at most':>13} {'beside':>7} {'mean':>10}")
    for name, f in figures.items():
        print(
            f"{name:32} {f['tokens_per_second']:9.0f} {f['tokens_per_second'] / native['tokens_per_second']:6.2f}x"
            f" {f['held_max_bytes'] / 2**30:9.2f} GiB {f['held_max_bytes'] / native['held_max_bytes']:6.2f}x"
            f" {f['held_mean_bytes'] / 2**30:6.2f} GiB"
        )
    if arguments.output:
        arguments.output.write_text(json.dumps({"steps": arguments.steps, "rounds": rounds, "medians": figures}, indent=2) + "\n")
        print(f"recorded in {arguments.output}")


if __name__ == "__main__":
    main()
