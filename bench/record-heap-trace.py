#!/usr/bin/env python3
"""Records what PyTorch allocates and frees, to replay with `gvmem-bench heap --trace FILE`.

usage: python3 tests/python/package.py bench/record-heap-trace.py [-n EVENTS] [-s SECONDS] -o FILE.gz
       record-heap-trace.py --pack TRACE -o FILE.gz
       record-heap-trace.py --dry-run

A transformer is trained on batches of varying size and length, and then serves eight conversations in
turns, whose caches of keys and values grow with every token and go when a conversation ends: half the
events each. Its memory comes from heaps by gvmem.torch.use(), which writes the trace; that is then made
small: blocks are numbered in place of their addresses, times are left out. --pack does that with a trace
recorded by any program. --dry-run does a little of both on the CPU, and records nothing.
"""
import argparse
import gzip
import heapq
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIRST_LINE = "# gvmem heap trace 1"
LINE_BYTES = 37  # of an event as it is written, about
CONVERSATIONS = 8


# ---- making it small


def pack(lines, comments=()):
    """The lines of a small trace, and how many events it has. What was allocated before the recording
    began is left out. Numbers are the lowest that are free, so that what repeats looks the same."""
    lines = iter(lines)
    if next(lines, "").rstrip("\n") != FIRST_LINE:
        raise ValueError(f'not a heap trace: the first line should be "{FIRST_LINE}"')
    packed, numbers, spare, events = [FIRST_LINE, *(f"# {comment}" for comment in comments)], {}, [], 0
    for count, line in enumerate(lines, 2):
        line = line.rstrip("\n")
        if line.startswith("#"):
            packed.append(line)
            continue
        words = line.split()
        if len(words) < 4 or words[0] not in ("a", "f"):
            raise ValueError(f'line {count}: not an event: a line is "a|f ID BYTES STREAM [NS]"')
        kind, key, size, stream = words[:4]
        if kind == "a":
            if key in numbers:
                raise ValueError(f"line {count}: a block is allocated that is live already")
            numbers[key] = heapq.heappop(spare) if spare else len(numbers)
            number = numbers[key]
        elif key in numbers:
            number = numbers.pop(key)
            heapq.heappush(spare, number)
        else:
            continue
        packed.append(f"{kind} {number:x} {size} {stream}")
        events += 1
    return packed, events


def pack_file(raw, output, comments=()):
    with gzip.open(raw, "rt") if raw.suffix == ".gz" else raw.open() as lines:
        packed, events = pack(lines, comments)
    output.write_bytes(gzip.compress(("\n".join(packed) + "\n").encode(), 9, mtime=0))
    print(f"{events} events, {output.stat().st_size} bytes in {output}")


# ---- the programs that are recorded


def make_model(torch, device, width, layers, words):
    nn = torch.nn

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.heads = max(1, width // 64)
            self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x, cache):
            """cache: keys and values of earlier tokens, to which these are added; None: there are none."""
            rows, length, _ = x.shape
            query, key, value = (part.view(rows, length, self.heads, -1).transpose(1, 2) for part in self.into(self.before(x)).chunk(3, dim=-1))
            if cache is not None:
                if cache:
                    key, value = torch.cat([cache[0], key], dim=2), torch.cat([cache[1], value], dim=2)
                cache[:] = [key, value]
            mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
            x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
            return x + self.narrow(nn.functional.gelu(self.wide(self.between(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(words, width), nn.Linear(width, words)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))

        def forward(self, tokens, caches=None):
            x = self.words(tokens)
            for index, layer in enumerate(self.layers):
                x = layer(x, caches[index] if caches is not None else None)
            return self.head(x)

    return Model().to(device)


def train(torch, model, device, words, scale, more):
    """scale: how many tokens a batch has, in units of 32."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    steps = 0
    while more():
        length = random.randint(8, 64) * scale
        tokens = torch.randint(words, (random.randint(2, 48), length), device=device)
        with torch.autocast(device, dtype=torch.bfloat16):
            scores = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(scores.float().flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    return steps


def serve(torch, model, device, words, scale, more):
    """Conversations take turns of a few tokens each; one that ends makes room for another."""
    layers, tokens_made, open_ones = len(model.layers), 0, []
    with torch.inference_mode(), torch.autocast(device, dtype=torch.bfloat16):
        while more():
            if len(open_ones) < CONVERSATIONS:
                prompt = torch.randint(words, (random.randint(1, 16), random.randint(4, 128) * scale), device=device)
                caches = [[] for _ in range(layers)]
                token = model(prompt, caches)[:, -1:].argmax(dim=-1)
                open_ones.append([token, caches, random.randint(8, 24 * scale)])
                continue
            index = random.randrange(len(open_ones))
            talk = open_ones[index]
            for _ in range(min(talk[2], random.randint(1, 8))):
                talk[0] = model(talk[0], talk[1])[:, -1:].argmax(dim=-1)
                talk[2] -= 1
                tokens_made += 1
            if talk[2] <= 0:
                del open_ones[index]
    return tokens_made


def until(seconds, count, is_enough):
    """A condition to go on by: time is left, and there is not enough yet. count: at most so many rounds."""
    end, rounds = time.monotonic() + seconds, [0]

    def more():
        rounds[0] += 1
        return (count is None or rounds[0] <= count) and time.monotonic() < end and not is_enough()

    return more


def work(device, seconds, count, is_enough, width=512, layers=6, words=8000, scale=4):
    """is_enough(share): whether that share of the events has come."""
    import torch

    random.seed(5)
    torch.manual_seed(3)
    model = make_model(torch, device, width, layers, words)
    steps = train(torch, model, device, words, scale, until(seconds / 2, count, lambda: is_enough(0.5)))
    model.zero_grad(set_to_none=True)
    tokens = serve(torch, model, device, words, scale, until(seconds / 2, count, lambda: is_enough(1.0)))
    return torch, f"{steps} steps of a training, then {tokens} tokens of conversations"


def record(trace, events, seconds):
    """In a process of its own: the last of the trace is written when that ends."""
    import torch

    if not torch.cuda.is_available():
        sys.exit("record-heap-trace: PyTorch finds no GPU")
    import gvmem.torch

    gvmem.torch.use()

    def is_enough(share):
        return trace.exists() and trace.stat().st_size > share * events * LINE_BYTES

    torch, what = work("cuda", seconds, None, is_enough)
    torch.cuda.synchronize()
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}: {what}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--events", type=int, default=300_000, help="about so many (300000)")
    parser.add_argument("-s", "--seconds", type=int, default=150, help="and no longer than that (150)")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)  # the inner process
    arguments = parser.parse_args()
    if arguments.dry_run:
        print(work("cpu", 60, 12, lambda share: False, width=64, layers=2, words=100, scale=1)[1])
        return
    if arguments.into:
        record(arguments.into, arguments.events, arguments.seconds)
        return
    if arguments.output is None:
        parser.error("say where to write: -o FILE.gz")
    try:
        if arguments.pack:
            pack_file(arguments.pack, arguments.output)
            return
        with tempfile.TemporaryDirectory(prefix="heap-trace-") as folder:
            raw = Path(folder) / "trace"
            command = [sys.executable, __file__, "--into", raw, "-n", str(arguments.events), "-s", str(arguments.seconds)]
            done = subprocess.run([str(word) for word in command], env=dict(os.environ, GVMEM_HEAP_TRACE=str(raw)), stdout=subprocess.PIPE, text=True, timeout=arguments.seconds + 120)
            if done.returncode != 0:
                sys.exit(f"record-heap-trace: the recorded program failed with {done.returncode}")
            pack_file(raw, arguments.output, done.stdout.strip().splitlines()[-1:])
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        sys.exit(f"record-heap-trace: {error}")


if __name__ == "__main__":
    main()
