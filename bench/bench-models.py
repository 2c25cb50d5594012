#!/usr/bin/env python3
"""Measures models that processes share and swap, in Python, beside what PyTorch does without a keeper, in one run.

usage: bench-models.py [-q] [-o FILE] [-s SIZE] [-n N,N...] [-r ROUNDS] [-p PART,PART...] [BUILD-FOLDER]

swap      two models of SIZE in 300 tensors, and a device budget for one: N processes let the one sleep and wake the other. Time until all have it, and until
          a kernel of each has read it; a CUDA graph that was captured before then sums all of it. Host memory
restart   a process that has a model is killed, and another one, which has a context, connects, attaches it and runs a kernel on it
requests  models of a quarter of that under a budget for ten of them, requests by Zipf's law, one at a time: time to the first kernel, and bytes that were there
          already, beside LRU and Belady's optimum on the same sequence
copies    one model in pinned memory, copied over one of before, and into new tensors of PyTorch's allocator, with expandable segments too
tms       as saver, by torch_memory_saver with backups in host memory, which it makes in each pause(), or keeps
saver     two models in regions of gvmem.torch.Saver: pause() of the one, resume() of the other

Parts that need what is not installed are left out, with the reason. On a software GPU (GVMEM_DRIVER=soft) NumPy takes PyTorch's place unless --torch is given, and the last three
are left out. With -o the figures are recorded as JSON, after each part anew. Without PyTorch or a GPU it prints so and exits with 77; a part of the first four that fails, or
reads wrong bytes, makes it exit with 1.
"""
import argparse
import bisect
import contextlib
import ctypes
import importlib.util
import itertools
import json
import os
import platform
import random
import select
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("swap", "restart", "requests", "copies", "saver", "tms")
OWN_PARTS = ("swap", "requests", "saver")  # which fail if they cannot be measured; restart is in swap
TENSORS, SMALL_TENSORS = 300, 75
HEADER_BYTES = 64 << 10  # more than a table of 300 tensors takes
DELAY_NS = 30_000_000  # until all processes have read their orders
NAMES = ("/bench/0", "/bench/1")
EXPANDABLE = "expandable_segments:True"
ZIPF = 1.0
GIB = 1 << 30
SKIPPED = 77  # what meson takes for a test that was left out


class LeftOut(Exception):
    """Why something is not measured."""


class Failed(LeftOut):
    """It was tried."""


def parse_size(text):
    units = {"K": 10, "M": 20, "G": 30, "T": 40}
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in units else (text, "")
    return int(number) << units.get(unit, 0)


def size_text(size):
    return f"{size / GIB:g} GiB" if size >= GIB else f"{size / (1 << 20):g} MiB"


def plural(count):
    return f"{count} process{'es' if count > 1 else ''}"


def round_up(size, unit):
    return -(-size // unit) * unit


def sizes_of(size, count):
    """Of tensors that fill an object, but for its header: some are four times as large as others."""
    parts = [1 + i % 4 for i in range(count)]
    return [(size - HEADER_BYTES) * part // sum(parts) // 256 * 256 for part in parts]


# ---- processes


class Process:
    """A process of models_child.py, or of another kind, which obeys."""

    def __init__(self, bench, kind, **environment):
        self.limit = bench.arguments.limit
        command = [sys.executable, str(ROOT / "bench/models_child.py"), kind, bench.framework, "1" if bench.software else "0"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**bench.environment, **environment})

    def tell(self, order, **arguments):
        self.process.stdin.write(json.dumps([order, arguments]) + "\n")
        self.process.stdin.flush()

    def answer(self):
        """Of the oldest order that has none."""
        if not select.select([self.process.stdout], [], [], self.limit)[0]:
            raise Failed(f"a process has not answered within {self.limit} s")
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"a process has ended with {self.process.wait()}")
        said = json.loads(line)
        if "error" in said:
            raise Failed(said["error"])
        return said["value"]

    def ask(self, order, **arguments):
        self.tell(order, **arguments)
        return self.answer()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def ask_all(processes, order, **arguments):
    for process in processes:
        process.tell(order, **arguments)
    return [process.answer() for process in processes]


@contextlib.contextmanager
def crowd(bench, count, kind, **environment):
    """So many processes, which are ready."""
    processes = [Process(bench, kind, **environment) for _ in range(count)]
    try:
        for process in processes:
            bench.version = process.answer()
        yield processes
    finally:
        for process in processes:
            if process.process.poll() is None:
                process.kill()


@contextlib.contextmanager
def keeper(bench, device_bytes, host_bytes):
    """The path of one with these budgets. It makes its host memory ahead."""
    with tempfile.TemporaryDirectory(prefix="bench-models-") as folder:
        path = str(Path(folder, "socket"))
        ready, write = os.pipe()
        command = [bench.build / "tools/gvmem-keeper", "--socket", path, "--device", "0", "--device-budget", str(device_bytes), "--host-budget", str(host_bytes),
                   "--host-ahead", str(host_bytes), "--ready-fd", str(write)]
        process = subprocess.Popen([str(word) for word in command], pass_fds=[write], stdout=subprocess.DEVNULL, env=bench.environment)
        os.close(write)
        try:
            with open(ready, "rb") as said:
                if not said.readline():
                    raise Failed("the keeper did not start")
            yield path
        finally:
            process.terminate()
            process.wait()


def available_bytes():
    with open("/proc/meminfo", encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def need_host(size):
    if available_bytes() < size:
        raise LeftOut(f"it takes {size / GIB:.1f} GiB of host memory, and {available_bytes() / GIB:.1f} GiB are available")


# ---- figures


class Bench:
    """What all parts have in common: options, the processes' environment, figures and what is left out."""

    def __init__(self, arguments, environment, framework):
        self.arguments, self.environment, self.framework = arguments, environment, framework
        self.build, self.software = arguments.build.resolve(), os.environ.get("GVMEM_DRIVER") == "soft"
        self.version, self.link = None, {}
        self.figures, self.left_out, self.failed = [], {}, False

    def add(self, section, name, unit, samples, floor=None, goal=None, show=True):
        """A figure, whose floor and goal are in its unit. Returns its median."""
        samples = [samples] if isinstance(samples, (int, float)) else list(samples)
        figure = {"section": section, "name": name, "unit": unit, "min": min(samples), "median": statistics.median(samples), "max": max(samples), "samples": len(samples)}
        figure.update({key: value for key, value in (("floor", floor), ("goal", goal)) if value is not None})
        self.figures.append(figure)
        if show:
            ratio = f"{figure['median'] / floor:8.3f}" if floor else " " * 8
            shown_floor = f"{floor:10.4g}" if floor else " " * 10
            verdict = "" if goal is None else f"   at most {goal:.4g}" + ("" if figure["median"] <= goal or self.arguments.quick else ", MISSED")
            print(f"  {name:62} {figure['median']:10.4g} {unit:5} {shown_floor} {ratio}{verdict}", flush=True)
        return figure["median"]

    def floor_ms(self, size):
        """What the link needs for so many bytes."""
        return size / self.link["in"] * 1e3

    def head(self, title):
        print(f"\n{title}\n  {'':62} {'median':>10} {'':5} {'floor':>10} {'ratio':>8}", flush=True)

    def measure_link(self, process):
        if self.link:
            return
        self.head("the link: pinned memory, copied by the copy engine")
        rates = process.ask("link", rounds=3 if self.arguments.quick else 7)
        for way, name in (("in", "host to device"), ("out", "device to host")):
            self.link[way] = self.add("link", name, "GB/s", [r / 1e9 for r in rates[way]]) * 1e9

    def record(self):
        if not self.arguments.output:
            return
        said = json.loads(subprocess.run([self.build / "tools/gvmem", "info", "--json"], env=self.environment, capture_output=True, text=True, check=True).stdout)
        device = {key: said["devices"][0][key] for key in ("name", "software", "total_bytes", "sm_count")}
        record = {
            "benchmark": "python-models", "command": shlex.join(["bench/bench-models.py", *sys.argv[1:]]), "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "host": {"machine": platform.machine(), "cpus": os.cpu_count(), "kernel": platform.release()}, "device": {**device, "cuda_version": said["driver"]["cuda_version"]},
            "framework": self.version, "figures": self.figures, "left_out": self.left_out,
        }
        self.arguments.output.parent.mkdir(parents=True, exist_ok=True)
        self.arguments.output.write_text(json.dumps(record, indent=1) + "\n")


# ---- two models, and a budget for one


class Swap:
    """Processes that all have both models. One model is awake, or none."""

    def __init__(self, bench, processes, path):
        self.bench, self.processes, self.path = bench, processes, path
        self.size, self.attached, self.known = bench.arguments.size, 0, {}
        processes[0].ask("connect", path=path)
        for number, name in enumerate(NAMES):
            processes[0].ask("publish", name=name, seed=number + 1, sizes=sizes_of(self.size, TENSORS))

    def attach(self, count):
        """All of the first count. They capture their graphs, and see the same bytes at the same addresses."""
        new = self.processes[self.attached : count]
        for process in new if self.attached else new[1:]:
            process.ask("connect", path=self.path)
        for number, name in enumerate(NAMES):
            ask_all(new, "attach", number=number, name=name)
            for said in ask_all(new, "prepare", number=number):
                if self.known.setdefault(number, said) != said:
                    raise Failed(f"model {number} is {said} in one process, and {self.known[number]} in another")
        self.attached = count

    def turn(self, users, old, new):
        """ms until all users have let one model sleep; and have the other; and a kernel has read it. Bytes that the keeper brought in."""
        asleep = max(ask_all(users, "sleep", number=old)) * 1e3
        before = users[0].ask("figures")
        said = ask_all(users, "wake", number=new, at=time.monotonic_ns() + DELAY_NS)
        after = users[0].ask("figures")
        for digest in ask_all(users, "check", number=new):
            if digest != self.known[new]["digest"]:
                raise Failed(f"after a swap the graph read other bytes of model {new}")
        return asleep, max(s["wake"] for s in said) * 1e3, max(s["first"] for s in said) * 1e3, after["in"] - before["in"]

    def measure(self, count, goal):
        """Returns the median time of waking, in ms."""
        available = available_bytes()
        self.attach(count)
        users = self.processes[:count]
        ask_all(users, "wake", number=0)
        turns = [self.turn(users, i % 2, 1 - i % 2) for i in range(2 + self.bench.arguments.rounds)][2:]
        ask_all(users, "sleep", number=len(turns) % 2)
        floor, who = self.bench.floor_ms(statistics.mean(t[3] for t in turns)), plural(count)
        add = self.bench.add
        add("swap", f"sleep, {who}", "ms", [t[0] for t in turns])
        median = add("swap", f"sleep of one and wake of the other, {who}", "ms", [t[0] + t[1] for t in turns], floor, goal)
        add("swap", f"the same, to the end of a first kernel, {who}", "ms", [t[0] + t[2] for t in turns], floor)
        add("swap", f"bytes brought in, {who}", "GiB", [t[3] / GIB for t in turns])
        figures = users[0].ask("figures")
        add("swap", f"host memory of the keeper, {who}", "GiB", figures["host"] / GIB, 2 * self.size / GIB)
        add("swap", f"host memory that went as these attached, {who}", "GiB", max(0, available - available_bytes()) / GIB)
        add("swap", f"graphs replayed, with the right sums, {who}", "", count * len(turns))
        return median

    def measure_restarts(self, spares):
        """The victim is a process that has a model; a spare one takes its place."""
        key, said = "layers.7.weight", []
        users = self.processes[: self.attached]
        victim, here = users[-1], users[0]
        ask_all(users, "wake", number=0)
        again = [here.ask("sleep", number=0) + here.ask("wake", number=0)["first"] for _ in range(2 + len(spares))][2:]
        for spare in spares:
            victim.kill()
            said.append(spare.ask("restart", path=self.path, name=NAMES[0], key=key))
            if spare.ask("prepare", number=0)["digest"] != self.known[0]["digest"]:
                raise Failed("a process that was started again read other bytes")
            victim = spare
        self.bench.head(f"a process that has {size_text(self.size)} is killed, and another one with a context attaches that")
        for name, step in (("connect", "connect"), ("connect and attach", "attach")):
            self.bench.add("restart", name, "ms", [s[step] * 1e3 for s in said])
        self.bench.add("restart", "connect, attach, a first kernel", "ms", [s["first"] * 1e3 for s in said], statistics.median(again) * 1e3, 5)


def measure_swap(bench):
    """With restarts, as both need the same two models."""
    arguments = bench.arguments
    host = 2 * arguments.size
    need_host(host + (2 << 30 if not bench.software else 0))
    most = max(arguments.processes)
    restarts = (2 if arguments.quick else 5) if "restart" in arguments.parts else 0
    with keeper(bench, arguments.size, host + host // 16) as path, crowd(bench, most + restarts, "keeper") as processes:
        bench.measure_link(processes[0])
        swap = Swap(bench, processes[:most], path)
        bench.head(f"two models of {size_text(arguments.size)} in {TENSORS} tensors, a device budget for one, {bench.version}")
        of_one = None
        for count in arguments.processes:
            goal = 340 * arguments.size / (16 * GIB) if of_one is None else 1.1 * of_one
            median = swap.measure(count, goal)
            of_one = median if of_one is None else of_one
        if restarts:
            swap.measure_restarts(processes[most:])


# ---- many models, and requests


def zipf_sequence(models, count, seed):
    chance = random.Random(seed)
    order = chance.sample(range(models), models)
    sums = list(itertools.accumulate(1 / (rank + 1) ** ZIPF for rank in range(models)))
    return [order[bisect.bisect_left(sums, chance.random() * sums[-1])] for _ in range(count)]


def count_hits(sequence, room, warm, victim):
    """Of those behind the first `warm`, where `room` models fit. victim(present, place): which of them goes."""
    present, hits = [], 0  # the one used last is the last
    for place, number in enumerate(sequence):
        if number in present:
            hits += place >= warm
            present.remove(number)
        elif len(present) >= room:
            present.remove(victim(present, place))
        present.append(number)
    return hits


def lru_hits(sequence, room, warm):
    return count_hits(sequence, room, warm, lambda present, place: present[0])


def belady_hits(sequence, room, warm):
    def next_use(number, place):
        return next((i for i in range(place, len(sequence)) if sequence[i] == number), len(sequence))

    return count_hits(sequence, room, warm, lambda present, place: max(present, key=lambda number: next_use(number, place)))


def measure_requests(bench):
    arguments = bench.arguments
    size, models, room = arguments.size // 4, 2 * arguments.room, arguments.room
    need_host(models * size + (2 << 30 if not bench.software else 0))
    count, warm = (60, 20) if arguments.quick else (400, 80)
    sequence = zipf_sequence(models, count, arguments.seed)
    with keeper(bench, room * size, models * size + size) as path, crowd(bench, 1, "keeper") as (process,):
        bench.measure_link(process)
        process.ask("connect", path=path)
        for number in range(models):
            process.ask("publish", name=f"/bench/{number}", seed=number + 1, sizes=sizes_of(size, SMALL_TENSORS))
        digests = []
        for number in range(models):
            process.ask("attach", number=number, name=f"/bench/{number}")
            digests.append(process.ask("prepare", number=number, graph=False)["digest"])
        said = process.ask("serve", sequence=sequence, digests=digests, warm=warm)
    counted, ms = count - warm, [s * 1e3 for s in said["seconds"]]
    bench.head(f"{models} models of {size_text(size)}, a device budget for {room}, {counted} requests by Zipf's law (exponent {ZIPF:g}), one at a time")
    floor = bench.floor_ms(size)
    bench.add("requests", "to the first kernel, all requests", "ms", ms)
    bench.add("requests", "to the first kernel, p50", "ms", statistics.quantiles(ms, n=100)[49])
    bench.add("requests", "to the first kernel, p99", "ms", statistics.quantiles(ms, n=100)[98], floor, 100 * size / (4 * GIB))
    shares = {
        "keeper: bytes that were there": 1 - said["in"] / (counted * size), "keeper: requests whose model was wholly there": said["hits"] / counted,
        "least recently used": lru_hits(sequence, room, warm) / counted,
    }
    best = belady_hits(sequence, room, warm) / counted
    for name, share in shares.items():
        bench.add("requests", f"hit ratio, {name}", "", share, best)
    bench.add("requests", "hit ratio, Belady's optimum", "", best)


# ---- without a keeper


def need_torch(bench):
    if bench.framework != "torch":
        raise LeftOut("it needs PyTorch")


def copy_over(bench, processes):
    """Each has a model of its own, and all copy at once."""
    digests = [process.ask("place") for process in processes]
    times = []
    for i in range(2 + bench.arguments.rounds):
        said = ask_all(processes, "copy_over", at=time.monotonic_ns() + 3 * DELAY_NS)
        if ask_all(processes, "check", number=0) != digests:
            raise Failed("a copy has other bytes")
        if i >= 2:
            times.append(max(s["first"] for s in said) * 1e3)
    size, count = sum(sizes_of(bench.arguments.size, TENSORS)), len(processes)
    bench.add("copies", f"copied over the old one, to a first kernel, {plural(count)}", "ms", times, bench.floor_ms(size * count))


def copy_anew(bench, process, name):
    digest = process.ask("place")
    said = [process.ask("copy_anew") for _ in range(2 + bench.arguments.rounds)][2:]
    if any(s["digest"] != digest for s in said):
        raise Failed("a copy has other bytes")
    bench.add("copies", f"freed, allocated anew and copied, to a first kernel, {name}", "ms", [s["first"] * 1e3 for s in said], bench.floor_ms(sum(sizes_of(bench.arguments.size, TENSORS))))
    bench.add("copies", f"freed alone, {name}", "ms", [s["sleep"] * 1e3 for s in said])


def measure_copies(bench):
    need_torch(bench)
    sizes = sizes_of(bench.arguments.size, TENSORS)
    most = 1 if bench.arguments.quick else 2
    need_host((most + 1) * sum(sizes))
    with crowd(bench, most, "copies") as native, crowd(bench, 1, "copies", PYTORCH_ALLOC_CONF=EXPANDABLE, PYTORCH_CUDA_ALLOC_CONF=EXPANDABLE) as (expandable,):
        bench.measure_link(native[0])
        for number, process in enumerate([*native, expandable]):
            process.tell("pin", seed=number + 1, sizes=sizes)
        for process in [*native, expandable]:
            process.answer()
        bench.head("models in pinned memory, of each process its own")
        bench.add("copies", "host memory, each process and model", "GiB", sum(sizes) / GIB)
        for count in range(1, most + 1):
            copy_over(bench, native[:count])
        ask_all(native, "leave")
        copy_anew(bench, native[0], "PyTorch")
        ask_all(native, "leave")
        copy_anew(bench, expandable, "PyTorch, expandable segments")
        if not bench.software and not expandable.ask("is_expandable"):
            raise LeftOut("PyTorch did not make expandable segments")


def take_turns(bench, process, digests, what, warm, rounds):
    """An even number of turns, so that the first one is awake again."""
    times = []
    for i in range(warm + (rounds + 1) // 2 * 2):
        asleep, said = process.ask("sleep", number=i % 2), process.ask("wake", number=1 - i % 2)
        if process.ask("check", number=1 - i % 2) != digests[1 - i % 2]:
            raise Failed("a graph read other bytes after resume()")
        times.append((asleep * 1e3, (asleep + said["wake"]) * 1e3, (asleep + said["first"]) * 1e3))
    floor, times = bench.floor_ms(sum(sizes_of(bench.arguments.size, TENSORS))), times[warm:]
    bench.add("saver", f"pause, {what}", "ms", [t[0] for t in times])
    bench.add("saver", f"pause of one and resume of the other, {what}", "ms", [t[1] for t in times], floor)
    bench.add("saver", f"the same, to the end of a first kernel, {what}", "ms", [t[2] for t in times], floor)


def fill_regions(bench, process):
    """Two, of which the first is awake then. The digests."""
    sizes = sizes_of(bench.arguments.size, TENSORS)
    digests = [process.ask("publish", number=number, seed=number + 1, sizes=sizes) for number in range(2)]
    process.ask("wake", number=0)
    return digests


def measure_saver(bench):
    need_torch(bench)
    if bench.software:
        raise LeftOut("it needs pools of PyTorch, which are of a GPU")
    chunk = 64 << 20
    size = sum(round_up(size, 2 << 20) for size in sizes_of(bench.arguments.size, TENSORS))  # as PyTorch asks for it
    budget = round_up(size, chunk) + chunk
    need_host(2 * budget + (2 << 30))
    with keeper(bench, budget, 2 * budget + budget // 8) as path, crowd(bench, 1, "own-saver") as (process,):
        bench.measure_link(process)
        process.ask("connect", path=path)
        bench.head("regions of memory that one process gives up, with the bytes, and has back")
        take_turns(bench, process, fill_regions(bench, process), "gvmem.torch.Saver", 2, bench.arguments.rounds)


def measure_tms(bench):
    need_torch(bench)
    if importlib.util.find_spec("torch_memory_saver") is None:
        raise LeftOut("torch_memory_saver is not installed")
    need_host(2 * bench.arguments.size + (2 << 30 if not bench.software else 0))
    with crowd(bench, 1, "saver") as (process,):
        bench.measure_link(process)
        bench.head("the same by torch_memory_saver")
        digests = fill_regions(bench, process)
        for keep, warm, count in ((False, 0, 2), (True, 2, bench.arguments.rounds)):
            process.ask("keep_backups", keep=keep)
            take_turns(bench, process, digests, "torch_memory_saver" + (", backups kept" if keep else ""), warm, count)


# ---- the whole


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-q", "--quick", action="store_true", help="small sizes and few rounds: to try it out")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("-s", "--size", type=parse_size, help="of a model: 16G; with --quick 16M")
    parser.add_argument("-n", "--processes", type=lambda text: [int(word) for word in text.split(",")], help="1,2,4,8; with --quick 1,2")
    parser.add_argument("-r", "--rounds", type=int, help="8; with --quick 2")
    parser.add_argument("-m", "--room", type=int, help="how many models the budget of requests has room for: 10; with --quick 4")
    parser.add_argument("-p", "--parts", type=lambda text: text.split(","), default=list(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--seed", type=int, default=1, help="of the sequence of requests (1)")
    parser.add_argument("--limit", type=float, default=120, help="seconds that a process may take for an answer (120)")
    parser.add_argument("--torch", action="store_true", help="PyTorch also on a software GPU")
    parser.add_argument("build", nargs="?", type=Path, default=ROOT / "build-release")
    arguments = parser.parse_args()
    quick = arguments.quick
    for name, usual, small in (("size", 16 * GIB, 16 << 20), ("processes", [1, 2, 4, 8], [1, 2]), ("rounds", 8, 2), ("room", 10, 4)):
        if getattr(arguments, name) is None:
            setattr(arguments, name, small if quick else usual)
    unknown = set(arguments.parts) - set(PARTS)
    if unknown or arguments.processes != sorted(set(arguments.processes)) or arguments.processes[0] < 1 or arguments.size < 8 << 20 or arguments.rounds < 1 or arguments.room < 1:
        parser.error(f"there is no part {', '.join(unknown)}" if unknown else "processes are to be in ascending order, models to have 8 MiB at least; there is one round, and room for one model, at least")
    if "restart" in arguments.parts and "swap" not in arguments.parts:
        parser.error("restart comes with swap")
    return arguments


def environment_for(build, folder):
    """Where processes find the package: as it is installed, or compiled here."""
    paths = [str(build), str(build / "softgpu"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    if importlib.util.find_spec("gvmem") is None:
        sys.path.insert(0, str(ROOT / "tests/gpu"))
        from python_arrays import compile_package

        compile_package(build, Path(folder))
        environment["PYTHONPATH"] = ":".join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return environment


def why_not():
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed"
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return str(error)
    return None


def main():
    arguments = parse_arguments()
    software = os.environ.get("GVMEM_DRIVER") == "soft"
    why = None if software else why_not()
    if why:
        print(f"bench-models: left out: {why}; GVMEM_DRIVER=soft, with --quick, measures the software GPU")
        sys.exit(SKIPPED)
    torch = arguments.torch or not software
    with tempfile.TemporaryDirectory(prefix="bench-models-") as folder:
        bench = Bench(arguments, environment_for(arguments.build.resolve(), folder), "torch" if torch else "numpy")
        for part, measure in (("swap", measure_swap), ("requests", measure_requests), ("copies", measure_copies), ("saver", measure_saver),
                              ("tms", measure_tms)):
            if part not in arguments.parts:
                continue
            start = time.monotonic()
            try:
                measure(bench)
            except LeftOut as why:
                bench.left_out[part] = str(why)
                bench.failed = bench.failed or (isinstance(why, Failed) and part in OWN_PARTS)
                print(f"left out: {part}: {why}", flush=True)
            print(f"({part} took {time.monotonic() - start:.0f} s)", flush=True)
            bench.record()
    if arguments.output:
        print(f"recorded in {arguments.output}")
    sys.exit(1 if bench.failed else 0)


if __name__ == "__main__":
    main()
