#!/usr/bin/env python3
"""Trains a transformer on batches of varying length, and serves conversations by it, with PyTorch's allocator and with a heap: time and memory.

usage: BUILD=build-release python3 tests/python/package.py bench/bench-torch.py [-n STEPS] [-r ROUNDS] [-w WORK,WORK] [-o FILE]

training  width 1024, 8 layers, a vocabulary of 32000, batches of 8 texts of 128 to 1024 tokens, single precision with TF32
serving   16 conversations at once in half precision, with prompts of 128 to 1024 tokens. A step adds a token to each, and to the keys and values that each
          layer has of it, which are concatenated anew; after 20 to 400 tokens another one begins. Ten times as many steps

Each allocator works in processes of its own, ROUNDS times in turns, on the same numbers. Memory is what the device has less than before the first
tensor, looked at after every step. With -o the figures are recorded as JSON. Without PyTorch, a GPU or the package gvmem it prints so and exits with 77.
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
HEADS, CONVERSATIONS, ANSWERS, SERVING_STEPS = WIDTH // 64, 16, (20, 400), 10  # of serving: steps for one of training
WARM_UP = 10  # steps whose time does not count
NATIVE, EXPANDABLE, HEAP, KEEPING = "PyTorch", "PyTorch, expandable segments", "gvmem", "gvmem, everything kept"
ENVIRONMENTS = {
    NATIVE: {},
    EXPANDABLE: {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    HEAP: {},
    KEEPING: {"GVMEM_HEAP_KEEP": "1TiB"},
}


class Training:
    def __init__(self, torch):
        nn, self.torch = torch.nn, torch
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.model = nn.ModuleDict({"words": nn.Embedding(WORDS, WIDTH), "layers": layers, "head": nn.Linear(WIDTH, WORDS)})
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def step(self):
        """How many tokens, and a number that all allocators have alike."""
        torch, model, length = self.torch, self.model, random.randint(*LENGTHS)
        tokens = torch.randint(WORDS, (ROWS, length + 1))
        mask = torch.nn.Transformer.generate_square_subsequent_mask(length)
        scores = model["head"](model["layers"](model["words"](tokens[:, :-1]), mask=mask, is_causal=True))
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return ROWS * length, loss


class Serving:
    def __init__(self, torch):
        nn, self.torch = torch.nn, torch
        names = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
        self.layers = [nn.ModuleDict({name: nn.Linear(*size) for name, size in names.items()}).half() for _ in range(LAYERS)]
        self.words, self.head = nn.Embedding(WORDS, WIDTH).half(), nn.Linear(WIDTH, WORDS).half()
        self.conversations = [None] * CONVERSATIONS

    def forward(self, tokens, caches):
        """The next token. caches: keys and values of each layer, to which those of the tokens come."""
        attend, norm = self.torch.nn.functional.scaled_dot_product_attention, self.torch.nn.functional.layer_norm
        x = self.words(tokens)
        for number, layer in enumerate(self.layers):
            q, k, v = layer["qkv"](norm(x, (WIDTH,))).view(len(tokens), 3, HEADS, -1).permute(1, 2, 0, 3)
            if caches[number] is not None:
                k, v = (self.torch.cat(pair, 1) for pair in zip(caches[number], (k, v)))
            caches[number] = k, v
            seen = attend(q[None], k[None], v[None], is_causal=len(tokens) > 1)[0]
            x = x + layer["out"](seen.transpose(0, 1).reshape(len(tokens), WIDTH))
            x = x + layer["down"](self.torch.nn.functional.gelu(layer["up"](norm(x, (WIDTH,)))))
        return self.head(x[-1:]).argmax(-1)

    def step(self):
        """As that of Training."""
        count, last = 0, None
        with self.torch.inference_mode():
            for number, conversation in enumerate(self.conversations):
                if conversation is None:
                    tokens, caches, left = self.torch.randint(WORDS, (random.randint(*LENGTHS),)), [None] * LAYERS, random.randint(*ANSWERS)
                else:
                    tokens, caches, left = conversation
                count += len(tokens)
                last = self.forward(tokens, caches)
                self.conversations[number] = (last, caches, left - 1) if left > 1 else None
        return count, last


WORKS = {"training": Training, "serving": Serving}


def work(kind, name, steps):
    """The inner process: prints one line of JSON."""
    import torch

    random.seed(11)
    torch.manual_seed(7)
    torch.set_float32_matmul_precision("high")
    if name in (HEAP, KEEPING):
        import gvmem.torch

        gvmem.torch.use()
    torch.cuda.init()
    torch.set_default_device("cuda")
    free_before = torch.cuda.mem_get_info()[0]
    program = WORKS[kind](torch)
    times, held, tokens = [], [], 0
    for number in range(steps if kind == "training" else steps * SERVING_STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        count, last = program.step()
        torch.cuda.synchronize()
        if number >= WARM_UP:
            times.append(time.perf_counter() - start)
            tokens += count
        held.append(free_before - torch.cuda.mem_get_info()[0])
    figures = {
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "tokens_per_second": tokens / sum(times),
        "step_ms": statistics.median(times) * 1e3,
        "held_max_bytes": max(held),
        "held_mean_bytes": statistics.mean(held[WARM_UP:]),
        "live_max_bytes": torch.cuda.max_memory_allocated(),
        "last": last.item(),
    }
    print(json.dumps(figures))


def run(kind, name, arguments):
    environment = dict(os.environ, **ENVIRONMENTS[name])
    command = [sys.executable, __file__, "--inner", name, "-w", kind, "-n", arguments.steps]
    done = subprocess.run([str(word) for word in command], env=environment, stdout=subprocess.PIPE, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"bench-torch: {kind} with {name} failed with {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def summary(rounds):
    """Medians over the rounds; what is no number is that of the first."""
    return {key: statistics.median(r[key] for r in rounds) if isinstance(value, (int, float)) else value for key, value in rounds[0].items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--steps", type=int, default=80, help="of each training (80)")
    parser.add_argument("-w", "--works", type=lambda text: text.split(","), default=list(WORKS), help=f"some of {','.join(WORKS)}")
    parser.add_argument("-r", "--rounds", type=int, default=2, help="(2)")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--inner", choices=ENVIRONMENTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps <= WARM_UP:
        parser.error(f"the first {WARM_UP} steps do not count: ask for more")
    if arguments.inner:
        work(arguments.works[0], arguments.inner, arguments.steps)
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
    record = {"steps": arguments.steps, "works": {}}
    for kind in arguments.works:
        rounds = [{name: run(kind, name, arguments) for name in ENVIRONMENTS} for _ in range(arguments.rounds)]
        figures = {name: summary([r[name] for r in rounds]) for name in ENVIRONMENTS}
        native = figures[NATIVE]
        record["works"][kind] = {"rounds": rounds, "medians": figures}
        print(f"{kind:32} {'tokens/s':>9} {'beside':>7} {'a step':>10} {'beside':>7} {'held at most':>13} {'beside':>7} {'mean':>10}")
        for name, f in figures.items():
            print(
                f"{name:32} {f['tokens_per_second']:9.0f} {f['tokens_per_second'] / native['tokens_per_second']:6.2f}x"
                f" {f['step_ms']:7.2f} ms {f['step_ms'] / native['step_ms']:6.2f}x"
                f" {f['held_max_bytes'] / 2**30:9.2f} GiB {f['held_max_bytes'] / native['held_max_bytes']:6.2f}x"
                f" {f['held_mean_bytes'] / 2**30:6.2f} GiB", flush=True
            )
        if len({r["last"] for r in (round_[name] for round_ in rounds for name in ENVIRONMENTS)}) > 1:
            print(f"{kind}: the last numbers differ, which sums in another order explain, or an allocator that lends memory twice")
    if arguments.output:
        arguments.output.write_text(json.dumps(record, indent=2) + "\n")
        print(f"recorded in {arguments.output}")


if __name__ == "__main__":
    main()
