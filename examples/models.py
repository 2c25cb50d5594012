#!/usr/bin/env python3
"""Two models in two processes, and device memory for one of them. usage: models.py KEEPER-SOCKET [MIB]

Each process has attached a model, which sleeps between requests. The process that gets a request wakes its model, and the other one's goes to host
memory. Weights are where they were, so nothing is loaded or made anew. MIB is the size of a model: at most the keeper's device budget, and more than half of it.
On a software GPU NumPy computes; on a real one CuPy or PyTorch is needed, without which it exits with 77.
"""
import importlib.util
import json
import math
import subprocess
import sys
import time

import gvmem
import numpy

NAMES = ("/demo/red", "/demo/blue")
LAYERS, REQUESTS = 32, 6


def attach(name, keeper):
    """A model that sleeps, and what makes an array of a tensor of it."""
    if gvmem.driver().software:
        return gvmem.models.attach(name, keeper=keeper, awake=False), numpy.asarray
    try:
        import cupy
    except ImportError:
        from gvmem import torch

        return torch.attach(name, keeper=keeper, awake=False), lambda tensor: tensor
    return gvmem.models.attach(name, keeper=keeper, awake=False), cupy.asarray


def answer(weights, number):
    """A network of its own kind: at last its largest output, and where that is."""
    x = weights[0][number]
    for layer in weights:
        x = abs(layer @ x)
        x = x / x.max()
    return int(x.argmax()), float(x.sum())


def serve(name, keeper):
    """The process of one model: a number a line is a request."""
    model, consume = attach(name, keeper)
    with model:
        weights = [consume(model[f"layers.{i}"]) for i in range(LAYERS)]
        answer(weights, 0)  # the first call compiles
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        with model:
            awake = time.perf_counter()
            told = answer(weights, int(line))
            end = time.perf_counter()
        print(json.dumps([*told, (awake - start) * 1e3, (end - awake) * 1e3, model.address]), flush=True)


def make(seed, mib):
    width = math.isqrt(((mib << 20) - (64 << 10)) // LAYERS // 4) // 16 * 16  # there is a header, too
    return {f"layers.{i}": numpy.random.default_rng([seed, i]).standard_normal((width, width), "f4") for i in range(LAYERS)}


def main():
    if sys.argv[1] == "--serve":
        serve(*sys.argv[2:])
        return
    if not gvmem.driver().software and not any(importlib.util.find_spec(name) for name in ("cupy", "torch")):
        print("skipped: neither CuPy nor PyTorch is there to compute on this GPU")
        sys.exit(77)
    socket, mib = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 128
    with gvmem.connect(socket) as keeper:
        wanted = {}
        for seed, name in enumerate(NAMES):
            tensors = make(seed, mib)
            wanted[name] = [answer(list(tensors.values()), number) for number in range(REQUESTS)]
            gvmem.models.publish(tensors, name, keeper=keeper)
            print(f"published {name}: {LAYERS} tensors, {sum(tensor.nbytes for tensor in tensors.values()) >> 20} MiB")
        processes = {name: subprocess.Popen([sys.executable, __file__, "--serve", name, socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            text=True, bufsize=1) for name in NAMES}
        for name, process in processes.items():
            if process.stdout.readline() != "ready\n":
                sys.exit(f"the process of {name} did not start")
        print("request to      awake after   answer in   on the device then")
        addresses = {name: set() for name in NAMES}
        for number in range(REQUESTS):
            name = NAMES[number % 2]
            processes[name].stdin.write(f"{number}\n")
            place, total, awake_ms, answer_ms, address = json.loads(processes[name].stdout.readline())
            there = {info.name: info.device_bytes >> 20 for info in keeper.objects()}
            print(f"{name:12} {awake_ms:11.1f} ms {answer_ms:8.1f} ms   " + ", ".join(f"{name} {there[name]} MiB" for name in NAMES))
            addresses[name].add(address)
            if place != wanted[name][number][0] or not math.isclose(total, wanted[name][number][1], rel_tol=1e-3):
                sys.exit(f"{name} answered {place}, {total}, and NumPy {wanted[name][number]}")
        for process in processes.values():
            process.communicate()
        print("All answers are those of the arrays before they were published; addresses stayed:", all(len(found) == 1 for found in addresses.values()))
        for name in NAMES:
            keeper.drop(name)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: models.py KEEPER-SOCKET [MIB]")
    main()
