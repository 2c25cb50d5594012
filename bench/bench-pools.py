#!/usr/bin/env python3
"""Measures a heap beside other pools of device memory, in one run: what `gvmem-bench heap` measures.

usage: bench-pools.py [-q] [-o FILE] [-t TRACE] [-p LIBRARY] [-l SECONDS] [BUILD-FOLDER]

The driver's pool; PyTorch's caching allocator and RMM's pool, called from C++ (bench/pools/, compiled
here with the headers that the packages torch and librmm bring along); CuPy's pool, which can be called
from Python alone, and a heap in its place beside it. All get the same pairs, threads and trace. What is
not installed, or fails, is left out with the reason; that is no failure of the run. With -o every
figure is recorded as JSON. GVMEM_DRIVER and GVMEM_SOFTGPU say which GPU.
"""
import argparse
import gzip
import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZES = (16 << 10, 1 << 20, 20 << 20)
GROUP, GROUPS, GROUPS_QUICK = 8, 4000, 100  # as bench/heap.c, but for the number of groups
THREADS, KEPT, SECONDS = 16, 16, 0.3
PACKAGES = ("torch", "cupy-cuda13x", "cupy-cuda12x", "librmm-cu13", "librmm-cu12", "nvidia-cuda-runtime")


class LeftOut(Exception):
    """Why something is not measured."""


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


def run(command, limit, environment=None):
    """Its standard output; LeftOut with what it said last if it fails or takes too long."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=limit, env=dict(os.environ, **(environment or {})))
    except subprocess.TimeoutExpired:
        raise LeftOut(f"{Path(str(command[0])).name} was not done after {limit} s") from None
    except OSError as error:
        raise LeftOut(str(error)) from None
    if done.returncode < 0:
        raise LeftOut(f"it was ended by signal {-done.returncode}: {last_line(done.stderr)}")
    if done.returncode != 0:
        raise LeftOut(last_line(done.stderr))
    return done.stdout


# ---- pools that C++ can call


def folder_of(package):
    found = importlib.util.find_spec(package)  # does not import it
    if found is None or not found.submodule_search_locations:
        raise LeftOut(f"the Python package {package} is not installed")
    return Path(list(found.submodule_search_locations)[0])


def toolkits():
    """Folders that CUDA's headers and runtime library may be under, likely ones first."""
    folders = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    nvcc = shutil.which("nvcc")
    if nvcc:
        folders.append(Path(nvcc).resolve().parent.parent)
    folders.append(Path("/usr/local/cuda"))
    for entry in sys.path:
        folders += [Path(entry) / "nvidia/cu13", Path(entry) / "nvidia/cuda_runtime"]
    return folders


def cuda_include():
    for folder in toolkits():
        if (folder / "include/cuda_runtime_api.h").is_file():
            return folder / "include"
    raise LeftOut("there are no headers of CUDA's runtime: set CUDA_HOME")


def cuda_runtime():
    for folder in toolkits():
        for place in ("lib64", "lib", "targets/x86_64-linux/lib"):
            for library in sorted((folder / place).glob("libcudart.so.*")):
                return library
    raise LeftOut("there is no libcudart.so: set CUDA_HOME")


def torch_flags():
    torch = folder_of("torch")
    libraries = torch / "lib"
    return ["-std=c++17", f"-I{torch}/include", f"-L{libraries}", "-lc10_cuda", "-lc10", f"-Wl,-rpath,{libraries}"]


def rmm_flags():
    rmm, logger, runtime = folder_of("librmm"), folder_of("rapids_logger"), cuda_runtime()
    flags = ["-std=c++20", f"-I{rmm}/include", f"-I{rmm}/include/rapids", f"-I{logger}/include"]
    for folder, name in ((rmm / "lib64", "rmm"), (logger / "lib64", "rapids_logger")):
        flags += [f"-L{folder}", f"-l{name}", f"-Wl,-rpath,{folder}"]
    return [*flags, str(runtime), f"-Wl,-rpath,{runtime.parent}"]


def compile_pool(name, flags, folder):
    compiler = os.environ.get("CXX", "c++")
    library = folder / f"libbench-pool-{name}.so"
    command = [compiler, "-O2", "-w", "-shared", "-fPIC", f"-I{ROOT}", f"-I{cuda_include()}", ROOT / f"bench/pools/{name}.cpp", "-o", library]
    words = flags()
    try:
        done = subprocess.run([str(word) for word in [*command, *words]], capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LeftOut(f"it cannot be compiled: {error}") from None
    if done.returncode != 0:
        wrong = [line for line in done.stderr.splitlines() if "error" in line] or [last_line(done.stderr)]
        raise LeftOut(f"it cannot be compiled: {wrong[0]}")
    return library


def bench_heap(program, libraries, folder, arguments, environment=None):
    """The record of one `gvmem-bench heap`."""
    file = folder / "record.json"
    file.unlink(missing_ok=True)
    command = [program, "heap", f"--json={file}", "--trace", arguments.trace]
    for library in libraries:
        command += ["--pool", library]
    if arguments.quick:
        command.append("--quick")
    run(command, arguments.limit, environment)
    return json.loads(file.read_text())


# ---- CuPy, from Python: runs in a process of its own


def read_trace(path):
    """Events of (is_free, number of the block, bytes). Streams are taken as one."""
    events, numbers, spare = [], {}, []
    opened = gzip.open(path, "rt") if str(path).endswith(".gz") else open(path)
    with opened as lines:
        for line in lines:
            if line.startswith("#"):
                continue
            kind, key, size = line.split()[:3]
            if kind == "a" and int(size) > 0:
                numbers[key] = (spare.pop() if spare else len(numbers), int(size))
                events.append((False, *numbers[key]))
            elif kind == "f" and key in numbers:  # else of before the recording began
                number, size = numbers.pop(key)
                spare.append(number)
                events.append((True, number, size))
    return events


def replay(malloc, committed, events):
    """Ratios of what is committed to what is requested, and us an event. Looks at what is committed
    every 16 events and whenever more is requested than ever before."""
    blocks = {}
    requested = peak = at_peak = most = 0
    sums = [0, 0]
    for index, (is_free, number, size) in enumerate(events):
        if is_free:
            del blocks[number]
            requested -= size
        else:
            blocks[number] = malloc(size)
            requested += size
        if index % 16 == 0 or requested > peak:
            now = committed()
            most = max(most, now)
            if requested > peak:
                peak, at_peak = requested, now
            if index % 16 == 0:
                sums[0] += requested
                sums[1] += now
    blocks.clear()
    return {"committed peak / requested peak": most / peak, "committed / requested at the peak": at_peak / peak, "committed / requested, mean": sums[1] / sums[0]}


def replay_timed(malloc, events):
    blocks = {}
    start = time.perf_counter_ns()
    for is_free, number, size in events:
        if is_free:
            del blocks[number]
        else:
            blocks[number] = malloc(size)
    return (time.perf_counter_ns() - start) / len(events) / 1000


def pairs(malloc, size, groups):
    """p50 and p99 of a pair, in ns."""
    times = []
    for _ in range(groups):
        start = time.perf_counter_ns()
        for _ in range(GROUP):
            block = malloc(size)
            del block
        times.append((time.perf_counter_ns() - start) / GROUP)
    times.sort()
    return times[len(times) // 2], times[len(times) * 99 // 100]


def threads(malloc, count):
    """Million pairs a second."""
    stop, counts, ready = threading.Event(), [0] * count, threading.Barrier(count + 1)

    def work(index):
        kept, state, done = [None] * KEPT, index + 1, 0
        ready.wait()
        while not stop.is_set():
            state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
            size = (256 << 10 if state >> 33 & 7 == 0 else 16 << 10) + (state >> 33) % (48 << 10)
            kept[done % KEPT] = None
            kept[done % KEPT] = malloc(size)
            done += 1
        counts[index] = done

    workers = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for worker in workers:
        worker.start()
    ready.wait()
    start = time.perf_counter()
    time.sleep(SECONDS)
    stop.set()
    seconds = time.perf_counter() - start
    for worker in workers:
        worker.join()
    return sum(counts) / seconds / 1e6


def python_figures(name, malloc, committed, events, quick):
    """committed: None if what the pool holds is recorded elsewhere."""
    figures = []

    def record(section, unit, value, **more):
        figures.append({"section": section, "name": name, **more, "unit": unit, "median": value})

    for size in SIZES:
        pairs(malloc, size, GROUPS_QUICK)  # warm up
        p50, p99 = pairs(malloc, size, GROUPS_QUICK if quick else GROUPS)
        record("pair, p50", "ns", p50, bytes=size)
        record("pair, p99", "ns", p99, bytes=size)
    rates = {count: statistics.median(threads(malloc, count) for _ in range(1 if quick else 3)) for count in (1, THREADS)}
    for count, rate in rates.items():
        record(f"threads, {count}", "M pairs/s", rate)
    record(f"threads, {THREADS} / 1", "ratio", rates[THREADS] / rates[1])
    if committed:
        for section, value in replay(malloc, committed, events).items():
            record(f"trace, {section}", "ratio", value)
    record("trace, an event", "us", replay_timed(malloc, events))
    return figures


def measure_cupy(trace, quick):
    events = read_trace(trace)
    figures = python_figures("Python alone (called from Python)", id, None, events, quick)  # the floor
    import cupy

    pool = cupy.cuda.MemoryPool()
    figures += python_figures("CuPy (called from Python)", pool.malloc, pool.total_bytes, events, quick)
    pool.free_all_blocks()
    import gvmem.cupy

    return figures + python_figures("gvm_heap in CuPy (called from Python)", gvmem.cupy.allocate, None, events, quick)


def measure_fake(trace, quick):
    """For the tests: what holds what it has given, and 1 MiB more."""
    held = [1 << 20]

    class Block:
        def __init__(self, size):
            self.size = size
            held[0] += size

        def __del__(self):
            held[0] -= self.size

    return python_figures("fake", Block, lambda: held[0], read_trace(trace), quick)


# ---- all


def versions():
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def measure_libraries(program, libraries, left_out, arguments, folder):
    """Records of `gvmem-bench heap`: of all in one process if that works."""
    tiny = folder / "tiny"
    tiny.write_text("# gvmem heap trace 1\na 1 3145728 0\nf 1 3145728 0\n")
    for name, library in list(libraries.items()):
        try:
            run([program, "heap", "--quick", "--trace", tiny, "--pool", library], arguments.limit)
        except LeftOut as why:
            left_out[name] = str(why)
            del libraries[name]
    try:
        return [bench_heap(program, libraries.values(), folder, arguments)]
    except LeftOut as why:
        left_out["all in one process"] = str(why)
    records = []
    for name, some in [("gvm_heap", []), *((name, [library]) for name, library in libraries.items())]:
        try:
            records.append(bench_heap(program, some, folder, arguments))
        except LeftOut as why:
            left_out[name] = str(why)
    return records


def show(figures):
    names = list(dict.fromkeys(f["name"] for f in figures if f["section"] != "trace"))
    value = {(f["section"], f["name"], f.get("bytes", 0)): f["median"] for f in figures}
    columns = [("pair, p50", size) for size in SIZES] + [(section, 0) for section in ("threads, 1", "threads, 16", "trace, committed peak / requested peak", "trace, committed / requested, mean", "trace, an event")]
    print(f"{'':38} {'pair, ns: 16 KiB':>17} {'1 MiB':>9} {'20 MiB':>9} {'1 thread':>9} {'16, M/s':>9} {'peak/peak':>9} {'mean':>9} {'us/event':>9}")
    for name in names:
        cells = [value.get((section, name, size)) for section, size in columns]
        print(f"{name:38} " + " ".join(f"{'-' if cell is None or cell == 0 else format(cell, '.3f' if i > 2 else '.1f'):>{17 if i == 0 else 9}}" for i, cell in enumerate(cells)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-q", "--quick", action="store_true", help="fewer repetitions: to try it out")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("-t", "--trace", type=Path, default=ROOT / "bench/traces/torch-serving.heap.gz")
    parser.add_argument("-p", "--pool", type=Path, action="append", default=[], help="one more library with the functions of bench/pool.h")
    parser.add_argument("-l", "--limit", type=int, default=500, help="seconds that one process may take")
    parser.add_argument("--python", choices=["cupy", "fake"], help=argparse.SUPPRESS)  # the inner process
    parser.add_argument("build", nargs="?", type=Path, default=ROOT / "build")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    if arguments.python:
        figures = measure_fake(arguments.trace, arguments.quick) if arguments.python == "fake" else measure_cupy(arguments.trace, arguments.quick)
        json.dump(figures, sys.stdout)
        return
    program = build / "bench/gvmem-bench"
    software = os.environ.get("GVMEM_DRIVER") == "soft"
    libraries, left_out = {path.name: path.resolve() for path in arguments.pool}, {}
    with tempfile.TemporaryDirectory(prefix="bench-pools-") as folder:
        for name, flags in (("torch", torch_flags), ("rmm", rmm_flags)):
            try:
                if software:
                    raise LeftOut("it does not support the software GPU")
                libraries[name] = compile_pool(name, flags, Path(folder))
            except LeftOut as why:
                left_out[name] = str(why)
        records = measure_libraries(program, libraries, left_out, arguments, Path(folder))
        if "torch" in libraries:
            try:
                records.append(bench_heap(program, [libraries["torch"]], Path(folder), arguments, {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}))
            except LeftOut as why:
                left_out["torch, expandable segments"] = str(why)
    figures, notes = [], []
    for record in records:  # of a pool that is in several, the first counts
        known = {f["name"] for f in figures}
        figures += [f for f in record["figures"] if f["name"] not in known]
        notes += [note for note in record["notes"] if note not in notes]
    for name in ("fake",) if arguments.pool and software else ("cupy",):
        try:
            command = [sys.executable, __file__, "--python", name, "--trace", arguments.trace, build]
            figures += json.loads(last_line(run([*command, "--quick"] if arguments.quick else command, arguments.limit)))
        except (LeftOut, ValueError) as why:
            left_out[name] = str(why)
    if not records:
        sys.exit(f"bench-pools: nothing was measured: {left_out}")
    show(figures)
    for name, why in left_out.items():
        print(f"left out: {name}: {why}")
    for note in notes:
        print(note)
    if arguments.output:
        first = records[0]
        record = {
            "benchmark": "heap-pools", "command": shlex.join(["bench/bench-pools.py", *sys.argv[1:]]), "date": first["date"], "gvmem_version": first["gvmem_version"],
            "host": first["host"], "device": first["device"], "versions": versions(), "trace": arguments.trace.name, "figures": figures, "left_out": left_out, "notes": notes,
        }
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")
        print(f"recorded in {arguments.output}")


if __name__ == "__main__":
    main()
