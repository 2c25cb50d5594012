#!/usr/bin/env python3
"""Measures what the planner's costs of queries on the GPU should be, and where it chooses the slower way (docs/design/query.md, "Costs").

usage: bench-costs.py [-n ROWS] [-k HEAP-ROWS] [-r REPETITIONS] [-o FILE] [BUILD-FOLDER]

Queries of each kind, on tables of 1, 1,000, 10,000 and so on up to ROWS rows: the time of the local plan (gpu_queries off), of the plan on the GPU, to which
the planner is led by what only local plans cost, and of the one that it chooses by itself where that is a third one. They are prepared, and run in turns by one
session; rows that would be returned are left out by OFFSET. Costs are EXPLAIN's. Those on the GPU are sums of constants, which settings replace: how often each
is in a cost follows from what EXPLAIN shows with other values, and least squares of the times give values that fit, as multiples of what a unit of cost of
local plans takes. Needs numpy; GVMEM_DRIVER and GVMEM_SOFTGPU say which GPU.
"""
import json
import statistics
import sys
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent))
import sql_ways  # noqa: E402

CONSTANTS = ["startup", "instruction", "group", "probe", "page"]
CHEAP = {"startup": 0, "instruction": 1e-5, "group": 1e-5, "probe": 1e-4, "page": 0}  # the GPU does all that it can, and tables are joined in their usual order
FITTED = ["startup", "instruction", "group", "probe"]  # bytes alone say too little beside instructions
INNER_ROWS = 1000
GROUPS = 100_000
SLOWER = 1.1  # more than that is a wrong choice
SAMPLE_MS, SAMPLES_MOST = 20, 50  # a turn has as many executions as take that long
ONE_SAMPLE_MS, FEW = 400, 1_000_000  # what takes longer is executed once, but for tables of few rows
NO_JOINS = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_nestloop = off;"
PAGES = 1e7  # seq_page_cost: no local plan is cheaper then

COLUMNS = [("k", "int4", numpy.int32), ("few", "int4", numpy.int32), ("many", "int4", numpy.int32), ("amount", "int8", numpy.int64), ("price", "float8", numpy.float64), ("share", "float8", numpy.float64)]
INNER = [("k", "int4", numpy.int32), ("v", "int8", numpy.int64)]
MOST = {"join of the table with itself": 1_000_000}  # rows
# @t: the table, @h: as many rows in a heap, @s: 10,000 rows in a heap, @d: INNER_ROWS rows
ROWS = "SELECT few, amount, price FROM @t WHERE share < {} OFFSET 1000000000"
QUERIES = {
    "filter and count": "SELECT count(*) FROM @t WHERE few < 4",
    "three conditions, sum of a product": "SELECT sum(price * share) FROM @t WHERE few <> 3 AND many < 50000 AND amount > -500000",
    "ten operators": "SELECT sum((price + 1) * (price - 2) * (share + 3) * (share - 4) + price * share * 5) FROM @t",
    "rows, 0.01 %": ROWS.format(0.0001),
    "rows, 1 %": ROWS.format(0.01),
    "rows, 50 %": ROWS.format(0.5),
    "GROUP BY, 8 groups": "SELECT few, count(*), sum(amount) FROM @t GROUP BY few",
    "GROUP BY, 100,000 groups": "SELECT many, count(*), sum(amount) FROM @t GROUP BY many OFFSET 1000000000",
    "ORDER BY LIMIT 10": "SELECT price FROM @t ORDER BY price DESC LIMIT 10",
    "ORDER BY LIMIT 1000, a condition": "SELECT price, amount FROM @t WHERE few < 4 ORDER BY price LIMIT 1000",
    "join and sum": "SELECT sum(t.amount * d.v) FROM @t t JOIN @d d ON d.k = t.many % 1000",
    "join and groups, 1 % of a table": "SELECT d.v, sum(t.amount) FROM @t t JOIN @d d ON d.k = t.few WHERE t.share < 0.01 GROUP BY d.v",
    "join of the table with itself": "SELECT sum(t.amount + u.amount) FROM @t t JOIN @t u USING (k)",
    "joined rows, 1 %": "SELECT t.amount, d.v FROM @t t JOIN @d d ON d.k = t.many % 1000 WHERE t.share < 0.01 OFFSET 1000000000",
    "joined rows, all": "SELECT t.amount, d.v FROM @t t JOIN @d d ON d.k = t.many % 1000 OFFSET 1000000000",
    "a heap, join and sum": "SELECT sum(h.amount * d.v) FROM @h h JOIN @d d ON d.k = h.many % 1000",
    "10,000 rows of a heap, join and sum": "SELECT sum(s.amount + t.amount) FROM @s s JOIN @t t USING (k)",
}


def make_rows(rows):
    rng = numpy.random.default_rng(1)
    return [rng.permutation(rows), rng.integers(0, 8, rows), rng.integers(0, GROUPS, rows), rng.integers(-1_000_000, 1_000_000, rows), rng.integers(1, 1000, rows) / 8, rng.random(rows)]


def make_inner(rows):
    return [numpy.arange(rows), numpy.arange(rows) % 10]


def decode_plans(lines):
    """What EXPLAIN (FORMAT JSON) has printed, one after the other."""
    text, at, out = "\n".join(lines), 0, []
    while at < len(text):
        (plan,), at = json.JSONDecoder().raw_decode(text, at)
        out.append(plan["Plan"])
        at += 1
    return out


def is_gpu_node(plan):
    return any(key.startswith("GPU") for key in plan) or plan.get("Custom Plan Provider") == "GPU Join"


def is_on_gpu(plan):
    return is_gpu_node(plan) or any(is_on_gpu(p) for p in plan.get("Plans", []))


def without_costs(plan):
    """What is below a node on the GPU runs if that cannot."""
    shape = {key: value for key, value in plan.items() if key != "Plans" and not key.endswith("Cost") and not key.startswith("Plan ")}
    return shape if is_gpu_node(plan) else {**shape, "Plans": [without_costs(p) for p in plan.get("Plans", [])]}


def setting(name, value):
    return f"SET gstore_fdw.gpu_{name}_cost = {value};"


def settings(**more):
    return "".join(setting(name, CHEAP[name] + more.get(name, 0)) for name in CONSTANTS)


class Cell:
    """One query on tables of one size."""

    def __init__(self, server, name, rows, heap_rows):
        self.server, self.name, self.rows, self.samples = server, name, rows, {}
        self.query = QUERIES[name].replace("@t", f"gstore{rows}").replace("@h", f"heap{min(rows, heap_rows)}").replace("@s", f"heap{min(10_000, heap_rows)}").replace("@d", "gstoreinner")
        self.is_join = " JOIN " in self.query

    def explain(self):
        """What the planner chooses, the costs, and how often which constant is in that on the GPU."""
        pages = 1 if self.is_join else PAGES
        row = max(1 / max(self.rows, 10_000), 2e-5)
        little = {"startup": 1, "instruction": row, "group": row, "probe": row, "page": 0.1}  # so little that no plan with less on the GPU becomes cheaper
        unset = "".join(f"RESET gstore_fdw.gpu_{name}_cost;" for name in CONSTANTS)
        cases = ["", "SET gstore_fdw.gpu_queries = off;", f"RESET gstore_fdw.gpu_queries; {self.forced()}", *(unset + setting(name, 0) for name in CONSTANTS)]
        cases += [settings(), f"SET seq_page_cost = {2 * pages};", f"SET seq_page_cost = {pages};", *(settings(**{name: value}) for name, value in little.items())]
        _, lines = self.server.psql("".join(f"{case} EXPLAIN (FORMAT JSON) {self.query};\n" for case in cases))
        plans = decode_plans(lines)
        costs, shapes = [plan["Total Cost"] for plan in plans], [without_costs(plan) for plan in plans]
        cheap = 3 + len(CONSTANTS)
        self.on_gpu = is_on_gpu(plans[cheap]) and all(shape == shapes[cheap] for shape in shapes[cheap:])
        self.is_exact = self.on_gpu and all(shape == shapes[cheap] for shape in shapes[2:cheap])
        self.choice = "local" if shapes[0] == shapes[1] else "GPU" if shapes[0] == shapes[cheap] else "third"
        self.local_cost = costs[1]
        self.times = {name: (cost - costs[cheap]) / little[name] for name, cost in zip(CONSTANTS, costs[cheap + 3 :])}
        self.parts = {name: costs[2] - cost for name, cost in zip(CONSTANTS, costs[3:])}
        without = costs[cheap] - sum(CHEAP[name] * times for name, times in self.times.items())
        self.parts["instruction"] = costs[2] - without - sum(part for name, part in self.parts.items() if name != "instruction")  # which was the others', too
        self.rest = without - (costs[cheap + 1] - costs[cheap]) / pages * (pages - 1)  # nor what pages have in it

    def forced(self):
        return NO_JOINS if self.is_join else f"SET seq_page_cost = {PAGES};"

    def execute(self, turns, counts):
        """Samples in ms of each way, all in one session, which makes the plans first."""
        prepare = {"third": "", "local": "SET gstore_fdw.gpu_queries = off;", "GPU": f"RESET gstore_fdw.gpu_queries; {self.forced()} {settings()}"}
        text = "".join(f'{before} PREPARE "{way}" AS {self.query}; EXPLAIN EXECUTE "{way}";\n' for way, before in prepare.items())
        order = [way for turn in range(turns) for way in (counts if turn % 2 == 0 else reversed(counts)) for _ in range(counts[way])]
        times, _ = self.server.psql(f"{text} \\o /dev/null\n" + "\n".join(f'EXECUTE "{way}";' for way in order))
        samples = {way: [] for way in counts}
        for way, ms in zip(order, times[-len(order) :]):
            samples[way].append(ms)
        return samples

    def measure(self, turns):
        ways = ["local", "GPU"] + (["third"] if self.choice == "third" else [])
        first = self.execute(1, {way: 1 for way in ways})
        if self.rows < FEW and max(sum(first.values(), [])) > ONE_SAMPLE_MS:  # the executor has been started
            first = self.execute(1, {way: 1 for way in ways})
        self.samples = {way: ms for way, ms in first.items() if ms[0] > ONE_SAMPLE_MS}
        counts = {way: 1 + min(int(SAMPLE_MS / ms[0]), SAMPLES_MOST) for way, ms in first.items() if way not in self.samples}
        if counts:
            more = self.execute(turns + 1, counts)
            self.samples.update({way: ms[counts[way] :] for way, ms in more.items()})
        self.ms = {way: statistics.median(ms) for way, ms in self.samples.items()}

    def cost(self, constants):
        """On the GPU."""
        return self.rest + sum(constants[name] * self.times[name] for name in constants)

    def lost(self, choice):
        """ms by this choice, of how many, and how much slower it is."""
        best, ms = min(self.ms["local"], self.ms["GPU"]), self.ms[choice]
        return ms - best, ms, ms / best

    def figure(self):
        return {"name": self.name, "rows": self.rows, "unit": "ms", "choice": self.choice, "median": self.ms, "samples": self.samples, "local_cost": self.local_cost, "rest": self.rest, "times": self.times}


def fit(cells, unit, now):
    """Constants, from 0, by which costs times the unit are nearest to times, relatively."""
    names = [name for name in FITTED if any(cell.times[name] > 0 for cell in cells)]
    fixed = {name: value for name, value in now.items() if name not in FITTED}
    ms = numpy.array([cell.ms["GPU"] for cell in cells])
    wanted = 1 - unit * numpy.array([cell.cost(fixed) for cell in cells]) / ms
    while True:
        matrix = numpy.array([[cell.times[name] for name in names] for cell in cells]) * unit / ms[:, None]
        scale = numpy.abs(matrix).max(axis=0)
        found = dict(zip(names, numpy.linalg.lstsq(matrix / scale, wanted, rcond=None)[0] / scale))
        if min(found.values()) >= 0 or len(names) == 1:
            return {**fixed, **{name: max(float(found.get(name, 0)), 0.0) for name in FITTED}}
        names.remove(min(found, key=lambda name: found[name] * scale[names.index(name)]))


def present(cells, name):
    """The constant as the planner has it, of the cell where it is seen best."""
    cell = max((cell for cell in cells if cell.is_exact), key=lambda cell: cell.parts[name])
    return cell.parts[name] / cell.times[name] if cell.times[name] else 0.0


def show_cells(cells, now):
    print(f"{'':42} {'rows':>9} {'local ms':>10} {'cost':>11} {'us/unit':>8} {'GPU ms':>10} {'cost':>11} {'us/unit':>8}  chosen")
    for cell in cells:
        sides = "".join(f" {cell.ms[way]:10.3f} {cost:11.2f} {1000 * cell.ms[way] / cost:8.2f}" for way, cost in (("local", cell.local_cost), ("GPU", cell.cost(now))))
        _, ms, ratio = cell.lost(cell.choice)
        third = f", {ms:.3f} ms" if cell.choice == "third" else ""
        print(f"{cell.name:42} {cell.rows:9}{sides}  {cell.choice}{third}" + (f", {ratio:.2f} times as long" if ratio > SLOWER else ""))


def sum_up(what, cells, choices):
    """Of choices: how many are wrong, the worst, and what all lose."""
    lost, ms, ratios = zip(*(cell.lost(choice) for cell, choice in zip(cells, choices)))
    wrong = [ratio for ratio in ratios if ratio > SLOWER]
    out = {"wrong": len(wrong), "of": len(cells), "worst": max(ratios), "ms_lost": sum(lost), "ms": sum(ms)}
    print(f"{what}: {len(wrong)} of {len(cells)} choices are wrong, the worst {max(ratios):.2f} times as long; {sum(lost):.1f} of {sum(ms):.1f} ms are lost")
    return out


def report(cells, floor):
    now = {name: present(cells, name) for name in CONSTANTS}
    show_cells(cells, now)
    unit = statistics.median((cell.ms["local"] - floor) / cell.local_cost for cell in cells)
    gpu_unit = statistics.median((cell.ms["GPU"] - floor) / cell.cost(now) for cell in cells)
    fitted = fit(cells, unit, now)
    print(f"\nSELECT 1 takes {floor:.3f} ms. A unit of cost: {1000 * unit:.2f} us of local plans, {1000 * gpu_unit:.2f} us of those on the GPU (medians)")
    for name in CONSTANTS:
        print(f"gpu_{name}_cost: {now[name]:.3g}" + (f", by times {fitted[name]:.3g}" if name in FITTED else ""))
    outcomes = {
        "as it is": sum_up("as it is", cells, [cell.choice for cell in cells]),
        "by times": sum_up("with constants by times", cells, ["GPU" if cell.cost(fitted) < cell.local_cost else "local" for cell in cells]),
        "local": sum_up("without the GPU", cells, ["local"] * len(cells)),
    }
    return {"floor_ms": floor, "us_a_unit": {"local": 1000 * unit, "GPU": 1000 * gpu_unit}, "constants": now, "fitted": fitted, "outcomes": outcomes}


def main():
    arguments = sql_ways.parse(__doc__, 1_000_000)
    heap_rows = min(arguments.heap_rows, arguments.rows)
    sizes = [1] + [10**power for power in range(3, 10) if 10**power <= arguments.rows]
    server = sql_ways.bench_gstore.Server(arguments.build.resolve())
    try:
        ways = sql_ways.Ways(server, heap_rows)
        server.psql("CREATE EXTENSION gstore_fdw;")
        for rows in sizes:
            ways.load_table(str(rows), sql_ways.Table(rows, COLUMNS, make_rows, large=True))
        ways.load_table("inner", sql_ways.Table(INNER_ROWS, INNER, make_inner))
        cells = [Cell(server, name, rows, heap_rows) for name in QUERIES for rows in sizes if rows <= MOST.get(name, rows)]
        for cell in cells:
            cell.explain()
        left_out, cells = [cell for cell in cells if not cell.on_gpu], [cell for cell in cells if cell.on_gpu]
        for cell in cells:
            cell.measure(arguments.repetitions)
        times, _ = server.psql("PREPARE one AS SELECT 1;\n" + "EXECUTE one;\n" * 100)
        _, devices = server.psql("SELECT device_name FROM gstore_fdw_keeper_info ORDER BY device;")
    finally:
        server.stop()
    for cell in left_out:
        print(f"left out, as the plan on the GPU changes with what it costs: {cell.name}, {cell.rows} rows")
    found = report(cells, statistics.median(times[-50:]))
    sql_ways.write_record("costs", arguments, heap_rows, devices=devices, **found, figures=[cell.figure() for cell in cells])


if __name__ == "__main__":
    main()
