#!/usr/bin/env python3
"""Draws the pictures of docs/benchmarks.md from records in bench/results. usage: plots.py [FOLDER]

Needs Matplotlib (Debian: python3-matplotlib). The same records give the same bytes.
"""
import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "bench/results"
OURS, OTHER, THIRD = "#1f6f54", "#9aa5b1", "#c9a227"
matplotlib.rcParams.update({
    "svg.hashsalt": "gvmem", "svg.fonttype": "none", "font.size": 10, "font.family": "sans-serif",
    "axes.spines.top": False, "axes.spines.right": False, "figure.figsize": (7.2, 3.4), "legend.frameon": False,
})


def record(name):
    return json.loads((RECORDS / f"{name}.json").read_text())


def medians(name, *keys):
    """{(key, ...): median} of a record's figures."""
    return {tuple(f.get(k) for k in keys): f["median"] for f in record(name)["figures"]}


def save(figure, folder, name):
    figure.tight_layout()
    path = folder / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    path.write_text("".join(line.rstrip() + "\n" for line in path.read_text().splitlines()))


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def bars(axes, labels, series):
    """Groups of bars: series is [(name, colour, values)]."""
    width = 0.8 / len(series)
    for i, (name, colour, values) in enumerate(series):
        at = [x + (i - (len(series) - 1) / 2) * width for x in range(len(labels))]
        drawn = axes.bar(at, values, width, label=name, color=colour)
        axes.bar_label(drawn, [number(v) for v in values], fontsize=8)
    axes.set_xticks(range(len(labels)), labels)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(series))


def growth(folder):
    m = medians("vmm-nvidia-h100-80gb-hbm3-20261121-102949", "section", "name", "chunk_bytes")
    chunks = [2 << 20, 32 << 20, 128 << 20, 1 << 30]
    figure, axes = plt.subplots()
    bars(axes, ["2 MiB", "32 MiB", "128 MiB", "1 GiB"], [
        (label, colour, [m["growth", name, c] / 1000 for c in chunks])
        for label, name, colour in (("gvm_vector, in place", "gvm_vector", OURS), ("cuMemAlloc twice the size, copy, free", "cuMemAlloc + copy", OTHER))
    ])
    axes.set_yscale("log")
    axes.set_ylabel("ms")
    axes.set_xlabel("chunk of the vector")
    figure.suptitle("Growing an array from 2 MiB to 32 GiB by doubling (H100; lower is better)")
    save(figure, folder, "growth")


def heap_memory(folder):
    m = medians("heap-pools-nvidia-h100-80gb-hbm3-20261122-164550", "section", "name")
    names = ["gvm_heap", "PyTorch, expandable segments", "cuMemAllocAsync", "PyTorch", "CuPy (called from Python)"]
    figure, axes = plt.subplots()
    bars(axes, ["gvm_heap", "PyTorch,\nexpandable", "cuMemAllocAsync", "PyTorch", "CuPy"], [
        ("at the peak", OURS, [m["trace, committed peak / requested peak", n] for n in names]),
        ("on average", OTHER, [m["trace, committed / requested, mean", n] for n in names]),
    ])
    axes.axhline(1, color="black", linewidth=0.6)
    axes.set_ylabel("memory held / requested")
    figure.suptitle("A PyTorch training replayed on five allocators (H100; lower is better)")
    save(figure, folder, "heap-memory")


def heap_pairs(folder):
    m = medians("heap-pools-nvidia-h100-80gb-hbm3-20261122-164550", "section", "name", "bytes")
    sizes = [16 << 10, 1 << 20, 20 << 20]
    figure, axes = plt.subplots()
    bars(axes, ["16 KiB", "1 MiB", "20 MiB"], [
        (name, colour, [m["pair, p50", name, s] for s in sizes])
        for name, colour in (("gvm_heap", OURS), ("cuMemAllocAsync", OTHER), ("PyTorch", THIRD))
    ])
    axes.set_yscale("log")
    axes.set_ylabel("ns")
    figure.suptitle("Alloc and free of one block, median (H100; lower is better)")
    save(figure, folder, "heap-pairs")


def appender(folder):
    m = medians("appender-nvidia-h100-80gb-hbm3-20261122-164456", "name", "bytes", "chunk_bytes")
    size, chunk = 8 << 30, 512 << 20
    rows = [("a fixed buffer, of known size", "a fixed buffer, no appender"), ("appender, everything committed before", "everything committed"),
            ("appender, from nothing, with begin and finish", "from nothing committed, begin to finish"), ("managed memory, first touch", "managed memory, first touch")]
    figure, axes = plt.subplots()
    values = [m[name, size, chunk] if "managed" not in name else m[name, size, 64 << 20] for _, name in rows]
    drawn = axes.barh([label for label, _ in rows], values, color=[OTHER, OURS, OURS, OTHER])
    axes.bar_label(drawn, [f"{v:.0f}" for v in values], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("GB/s")
    figure.suptitle("A kernel writes 8 GiB (H100; higher is better)")
    save(figure, folder, "appender")


def hash_join(folder):
    cases = [c for c in record("hashjoin-nvidia-h100-80gb-hbm3-20261122-044201")["cases"] if c["input"] == "range"]
    figure, axes = plt.subplots()
    for zipf, label, colour in ((0, "keys all alike", OURS), (0.48, "keys skewed (Zipf 0.48)", THIRD)):
        points = sorted((c["times_the_estimate"], m["times_as_fast_as_two_pass"]) for c in cases if abs(c["zipf"] - zipf) < 0.01
                        for m in c["methods"] if m["method"] == "appender")
        if points:
            axes.plot(*zip(*points), "o-", label=label, color=colour)
    axes.axhline(1, color="black", linewidth=0.6)
    axes.set_xscale("log")
    axes.set_ylim(0)
    axes.set_xlabel("rows of the result / rows estimated")
    axes.set_ylabel("times as fast")
    figure.suptitle("Hash join through an appender over count-then-write (H100; higher is better)")
    axes.legend()
    save(figure, folder, "hash-join")


def tables(folder):
    m = medians("gstore-nvidia-h100-80gb-hbm3-20261122-003754", "name", "table")
    rows = [("INSERT … SELECT", "INSERT ... SELECT of 10000000 rows"), ("COPY", "COPY of 10000000 rows, text"), ("SELECT of all columns", "SELECT of all columns"),
            ("count(*), few pass", "count(*) with a filter that few rows pass"), ("count(*), half pass", "count(*) with a filter that half the rows pass"),
            ("UPDATE of 1 %", "UPDATE of 1 % of the rows"), ("INSERT of one row, commit", "INSERT of one row and commit, table of 10000000")]
    values = [m[name, "heap"] / m[name, "gstore"] for _, name in rows]
    figure, axes = plt.subplots()
    drawn = axes.barh([label for label, _ in rows], values, color=[OURS if v >= 1 else OTHER for v in values])
    axes.bar_label(drawn, [f"{v:.2g}" for v in values], fontsize=8)
    axes.axvline(1, color="black", linewidth=0.6)
    axes.invert_yaxis()
    axes.set_xlabel("times as fast as an unlogged heap table")
    figure.suptitle("gstore_fdw, 10 million rows, PostgreSQL 15 (H100 host; higher is better)")
    save(figure, folder, "tables")


def keeper(folder):
    m = medians("keeper-nvidia-h200-20261123-183103", "name")
    rows = [("swap in a clean set\nof another process", "acquire of a clean set"), ("swap a dirty set", "acquire of a dirty set"),
            ("scan twice the budget", "a pass with the hint SCAN")]
    figure, axes = plt.subplots()
    floors = [m[f"{name}, floor",] for _, name in rows]
    bars(axes, [label for label, _ in rows], [
        ("keeper", OURS, [m[name,] / 1000 for _, name in rows]), ("floor: the link, the memory", OTHER, [f / 1000 for f in floors]),
    ])
    axes.set_ylabel("ms")
    figure.suptitle("More objects than device memory: budget 8 GiB (H200; lower is better)")
    save(figure, folder, "keeper")


# ---- regions: the charts of RSVM's slides, from the latest records that have them

def regions(section, key):
    """The figures of a section in the latest record of regions that has one of that name: {(name, unit, bytes): median}; or None."""
    for path in sorted(RECORDS.glob("region-*.json"), key=lambda p: p.stem[-15:], reverse=True):
        found = {(f["name"], f["unit"], f.get("bytes", 0)): f["median"] for f in json.loads(path.read_text())["figures"] if f["section"] == section}
        if any(key in name for name, _, _ in found):
            return found
    return None


def region_matmul(folder):
    m = regions("region matmul", "regions, half the memory")
    if m is None:
        return
    ways = ["no regions", "regions, all in frames", "regions, half the memory"]
    values = [m[key] for way in ways for key in m if key[0] == way and key[1] == "TFLOP/s"]
    figure, axes = plt.subplots()
    drawn = axes.barh(ways, values, color=[OTHER, OURS, OURS])
    axes.bar_label(drawn, [f"{v:.2f} ({v / values[0]:.3f})" for v in values], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("TFLOP/s (of no regions)")
    figure.suptitle("Matrix multiply, fp32 (higher is better)")
    save(figure, folder, "region-matmul")


def region_degrees(folder):
    m = regions("region bfs", "series, ")
    if m is None:
        return
    degrees = [4, 8, 16, 32, 64]
    figure, (left, right) = plt.subplots(1, 2)
    for way, label, colour in (("in core", "no regions", OTHER), ("regions", "regions", OURS)):
        for axes, unit in ((left, "GTEPS"), (right, "set-up, ratio")):
            axes.plot(degrees, [m[f"series, {d} edges a vertex, {way}", unit, 0] for d in degrees], "o-", label=label, color=colour)
    for axes, label in ((left, "GTEPS"), (right, "set-up / time")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(degrees, degrees)
        axes.set_ylim(0)
        axes.set_xlabel("edges a vertex")
        axes.set_ylabel(label)
    left.legend()
    figure.suptitle("Breadth-first search, R-MAT, all edges in frames")
    save(figure, folder, "region-degrees")


def region_graphs(folder, section, name, title):
    m = regions(section, ", STATIC, zero-copy")
    if m is None:
        return
    graphs = sorted({n.split(", budget ")[0] for n, unit, _ in m if n.endswith(", STATIC, zero-copy") and unit == "us"})
    ways = [("partition", "STATIC, partition", OTHER), ("zero-copy", "STATIC, zero-copy", THIRD), ("static share", "STATIC, static share", "#7a8fa6"),
            ("regions, CLOCK", "CLOCK, regions", "#c4dfd1"), ("regions, LIRS", "LIRS, regions", "#8fc1a9"), ("regions, STATIC", "STATIC, regions", OURS)]

    def rate(graph, way):
        return next(v for (n, unit, size), v in m.items() if unit == "G edges read/s" and size == 4096 and n.startswith(f"{graph}, budget ")
                    and n.endswith(f"iB, {way}"))

    figure, axes = plt.subplots()
    bars(axes, graphs, [(label, colour, [rate(g, way) for g in graphs]) for label, way, colour in ways])
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
    axes.set_ylabel("G edges read/s")
    figure.suptitle(title)
    save(figure, folder, name)


def region_hits(folder):
    m = regions("region bfs", "beside the best choice")
    if m is None:
        return
    names = [n for n, unit, _ in m if unit == "hit ratio, best"]
    figure, axes = plt.subplots()
    bars(axes, [n.split(", ")[1] for n in names], [(label, colour, [m[n, unit, 4096] for n in names]) for label, unit, colour in (
        ("regions", "hit ratio", OURS), ("LRU", "hit ratio, LRU", OTHER), ("best choice (Belady)", "hit ratio, best", THIRD))])
    axes.set_ylabel("hits / maps")
    axes.set_ylim(0, 1)
    figure.suptitle("Breadth-first search, half of the edges in frames")
    save(figure, folder, "region-hits")


def region_kernels(folder):
    m = regions("region kernels", "triad, regions")
    if m is None:
        return
    names = [n for n, unit, _ in m if unit == "ratio"]
    size = next(size for _, unit, size in m if unit == "ratio")
    figure, (speed, registers) = plt.subplots(2, 1, figsize=(7.2, 5.4))
    drawn = speed.bar(names, [m[n, "ratio", size] for n in names], color=OURS)
    speed.bar_label(drawn, [f"{m[n, 'ratio', size]:.2f}" for n in names], fontsize=8)
    speed.axhline(1, color="black", linewidth=0.6)
    speed.set_ylabel("speed / no regions")
    bars(registers, names, [(label, colour, [m[f"{n}, {way}", "registers", size] for n in names])
                            for label, way, colour in (("no regions", "plain", OTHER), ("regions", "regions", OURS))])
    registers.set_ylabel("registers a thread")
    for axes in (speed, registers):
        axes.tick_params(axis="x", labelsize=7)
    figure.suptitle("Kernels whose data is in frames")
    save(figure, folder, "region-kernels")


def draw_regions(folder):
    region_matmul(folder)
    region_degrees(folder)
    region_graphs(folder, "region bfs", "region-bfs", "Breadth-first search, half of the edges fit (higher is better)")
    region_graphs(folder, "region pagerank", "region-pagerank", "PageRank, half of the edges fit (higher is better)")
    region_hits(folder)
    region_kernels(folder)


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/pictures"
    folder.mkdir(parents=True, exist_ok=True)
    for draw in (growth, heap_memory, heap_pairs, appender, hash_join, tables, keeper, draw_regions):
        draw(folder)


if __name__ == "__main__":
    main()
