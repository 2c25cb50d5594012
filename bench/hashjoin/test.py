#!/usr/bin/env python3
"""Runs the hash join and checks its results against the CPU's, and, for packages, against a join of this
script's own, which has versions compared by dpkg. Prints TAP.

usage: test.py HASHJOIN [CASE...]
"""
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

STATUS = Path("/var/lib/dpkg/status")
RIGHT = "the same as on the CPU"
SMALL = ["--chunk", "2MiB"]  # chunks of what real buffers have: the software GPU's memory is small

program = sys.argv[1]
cases = {}


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def case(function):
    cases[function.__name__] = function
    return function


def run(*arguments, status=0, text=None):
    done = subprocess.run([program, *arguments], input=text, capture_output=True, text=True, timeout=300)
    if done.returncode != status:
        raise Failed(f"hashjoin {' '.join(arguments)}: exit status {done.returncode}, not {status}: {done.stderr}{done.stdout}")
    return done


def join(*arguments, methods=("appender", "two-pass", "fixed")):
    """Joins by all methods, checks, and returns the record's case and its methods by name."""
    done = run("--check", "--json", "--method", "all" if len(methods) > 1 else methods[0], *arguments)
    if RIGHT not in done.stderr:
        raise Failed(f"hashjoin {' '.join(arguments)}: not checked: {done.stderr}")
    one = json.loads(done.stdout)["cases"][0]
    found = {m["method"]: m for m in one["methods"]}
    expect(sorted(found), sorted(methods), "methods")
    expect(one["same_as_on_the_cpu"], True, "the record's word on it")
    return one, found


def expect(value, wanted, what):
    if value != wanted:
        raise Failed(f"{what}: {value!r} instead of {wanted!r}")


def expect_more(value, least, what):
    if value < least:
        raise Failed(f"{what}: {value!r}, not at least {least!r}")


# ---- generated tables


@case
def uniform():
    one, _ = join("--rows", "20K")
    expect_more(one["result_rows"], 18000, "rows")
    expect_more(1.15, one["times_the_estimate"], "the estimate of keys that are all alike")


@case
def zipf():
    one, _ = join("--rows", "10K", "--zipf", "0.8")
    expect_more(one["times_the_estimate"], 4, "times the estimate")


@case
def one_key_explodes():
    one, _ = join("--rows", "4K", "--explode", "400")
    expect_more(one["result_rows"], 160000, "rows")


@case
def one_outer_row_has_all_candidates():
    # More than a warp keeps to itself: it is shared out in slices.
    one, _ = join("--rows", "3", "--inner", "90K", "--keys", "1", "--text", "0-8")
    expect(one["result_rows"], 270000, "rows")


@case
def outer_side_in_parts():
    one, methods = join("--rows", "5K", "--inner", "2K", "--zipf", "0.3", "--part", "1300")
    for method in methods.values():
        expect(method["parts"], 4, "parts")
    expect_more(one["result_bytes"] * 0.6, methods["two-pass"]["largest_buffer_bytes"], "a buffer of one part, not of all")


@case
def cross_is_bounded_by_its_parts_and_budget():
    # 6000 * 300 rows of 24 bytes are 41 MiB; a part of them is at most 7 MiB, a buffer of the appender 3.
    done = run("--cross", "--json", "--rows", "6000", "--inner", "300", "--part", "1000", "--budget", "4MiB", *SMALL, "--repeat", "1")
    if RIGHT not in done.stderr:
        raise Failed(f"not checked: {done.stderr}")
    one = json.loads(done.stdout)["cases"][0]
    expect(one["input"], "cross", "input")
    expect(one["result_rows"], 6000 * 300, "rows")
    expect(one["result_bytes"], 24 * 6000 * 300, "bytes without texts")
    methods = {m["method"]: m for m in one["methods"]}
    expect(sorted(methods), ["appender", "fixed", "two-pass"], "methods")
    for method in methods.values():
        expect(method["parts"], 6, "parts")
        expect_more(24 * 1000 * 300, method["largest_buffer_bytes"], "the largest buffer")
    expect_more(4 << 20, methods["appender"]["largest_buffer_bytes"], "the largest buffer under a budget")
    expect_more(methods["appender"]["buffers"], 7, "buffers")


@case
def cross_is_refused_with_what_it_is_not_for():
    run("--cross", "--sweep", status=2)
    run("--cross", "--print", status=2)
    run("--part", "0", status=2)


@case
def slices_are_resumed():
    one, methods = join("--rows", "3", "--inner", "90K", "--keys", "1", "--budget", "6MiB", *SMALL, methods=["appender"])
    expect(one["result_rows"], 270000, "rows")
    expect_more(methods["appender"]["buffers"], 4, "buffers")


@case
def slices_wait_for_all_tiles():
    # The budget is spent before the second of the two rows that have slices is met.
    one, methods = join("--rows", "202", "--inner", "80K", "--keys", "1", "--explode", "200", "--text", "0-600",
                        "--budget", "4MiB", *SMALL, methods=["appender"])
    expect(one["result_rows"], 200 * 200 + 2 * (80000 - 200), "rows")
    expect_more(methods["appender"]["buffers"], 10, "buffers")


@case
def duplicates_on_both_sides():
    one, _ = join("--rows", "500", "--inner", "400", "--keys", "2")
    expect_more(one["result_rows"], 90000, "rows")


@case
def inner_is_empty():
    one, _ = join("--rows", "1000", "--inner", "0")
    expect(one["result_rows"], 0, "rows")


@case
def outer_is_empty():
    one, _ = join("--rows", "0", "--inner", "1000")
    expect(one["result_rows"], 0, "rows")


@case
def both_are_empty():
    one, _ = join("--rows", "0", "--inner", "0")
    expect(one["result_rows"], 0, "rows")


@case
def one_row_each():
    one, _ = join("--rows", "1", "--inner", "1")
    expect(one["result_rows"], 1, "rows")


@case
def nothing_matches():
    one, _ = join("--rows", "5K", "--disjoint")
    expect(one["result_rows"], 0, "rows")


@case
def a_range_lets_few_pass():
    one, _ = join("--rows", "20K", "--inner", "2K", "--keys", "100", "--fraction", "0.05")
    expect_more(0.06 * 400000, one["result_rows"], "rows")
    expect_more(one["result_rows"], 0.04 * 400000, "rows")


@case
def a_guess_is_the_estimates():
    estimates = [join("--rows", "4K", "--fraction", "0.5", "--guess", guess)[0]["estimate_rows"] for guess in ("0.5", "0.05")]
    expect_more(estimates[0], 9 * estimates[1], "the estimate of a guess ten times as large")


@case
def another_seed_draws_other_rows():
    results = [run("--rows", "200", "--seed", seed, "--print").stdout for seed in ("1", "1", "2")]
    expect(results[0] == results[1], True, "the same rows of one seed")
    expect(results[0] == results[2], False, "the same rows of two seeds")


@case
def a_device_that_is_not_there_is_refused():
    if "no device 999" not in run("--rows", "10", "--device", "999", status=1).stderr:
        raise Failed("device 999")


@case
def texts_are_empty():
    one, _ = join("--rows", "5K", "--text", "0-0")
    expect(one["result_bytes"], one["result_rows"] * 24, "bytes")


@case
def texts_are_of_any_length():
    join("--rows", "3K", "--text", "0-700", "--zipf", "0.5")


@case
def texts_are_longer_than_a_chunk():
    join("--rows", "12", "--inner", "6", "--keys", "3", "--text", "2100000-5000000", *SMALL)


@case
def long_texts_are_resumed():
    # A list of matches is larger than any buffer: it is made smaller until it fits.
    _, methods = join("--rows", "8", "--inner", "40", "--keys", "2", "--text", "900000-1100000", "--budget", "8MiB", *SMALL,
                      methods=["appender"])
    expect_more(methods["appender"]["buffers"], 20, "buffers")


@case
def a_small_budget_is_resumed_many_times():
    one, methods = join("--rows", "20K", "--zipf", "0.7", "--text", "100-900", "--budget", "4MiB", *SMALL, methods=["appender"])
    expect_more(methods["appender"]["buffers"], one["result_bytes"] // (4 << 20), "buffers")
    expect_more(methods["appender"]["buffers"], 20, "buffers")
    expect(methods["appender"]["launches"], methods["appender"]["buffers"], "launches")


@case
def a_fixed_buffer_overflows():
    one, methods = join("--rows", "4K", "--explode", "300", "--factor", "2")
    expect(methods["fixed"]["overflowed"], True, "overflowed")
    # What was written first is at most what there was room for.
    expect_more(methods["fixed"]["lost_rows"], one["result_rows"] - 2 * one["estimate_rows"], "lost rows")
    expect(methods["fixed"]["launches"], 2, "launches")


@case
def a_fixed_buffer_overflows_by_its_texts():
    # Room enough for rows: the exploding key has the longest texts. And claims of many units.
    _, methods = join("--rows", "60", "--inner", "30", "--keys", "3", "--text", "1-700000", "--factor", "0.5")
    expect(methods["fixed"]["overflowed"], True, "overflowed")


@case
def a_fixed_buffer_is_large_enough():
    _, methods = join("--rows", "4K", "--factor", "3")
    expect(methods["fixed"]["overflowed"], False, "overflowed")
    expect(methods["fixed"]["lost_rows"], 0, "lost rows")
    expect(methods["fixed"]["launches"], 1, "launches")


@case
def repetitions_are_counted():
    _, methods = join("--rows", "1K", "--repeat", "3")
    for m in methods.values():
        expect(m["ms"]["samples"], 3, "samples")
        expect_more(m["ms"]["max"], m["ms"]["median"], "the largest")
        expect_more(m["ms"]["median"], m["ms"]["min"], "the median")


@case
def a_sweep_is_checked_and_recorded():
    done = run("--sweep", "--rows", "2K", "--inner", "500", "--keys", "500", "--repeat", "1", "--json")
    record = json.loads(done.stdout)
    expect(record["benchmark"], "hashjoin", "benchmark")
    expect([c["input"] for c in record["cases"]], ["range"] * 6 + ["zipf"] * 8 + ["explode"] * 2, "cases")
    for one in record["cases"]:
        expect(one["same_as_on_the_cpu"], True, "right")
        expect([m["method"] for m in one["methods"]], ["appender", "two-pass", "fixed"], "methods")
    expect([c["guess"] for c in record["cases"][:7]], [0.005] * 6 + [1], "guesses")
    expect_more(record["cases"][2]["times_the_estimate"], 50, "times the estimate")
    expect_more(record["cases"][10]["times_the_estimate"], 10, "times the estimate")


# ---- packages

SAMPLE = """\
Package: mutt
Status: install ok installed
Version: 2:1.0~rc1-1
Depends: libc (>= 2.36), exim | mail-agent, python3:any (<< 3.12~),
 tiny (= 0), nowhere
Pre-Depends: base
Recommends: reader (>= 1), libc (> 2.37)
Provides: reader
Suggests: libc

Package: libc
Version: 2.36-9+deb12u10
Provides: libc-api (= 6)
Description: has a field
 Depends: mutt
 .
 in its text

Package: gone
Status: deinstall ok config-files
Version: 1
Depends: libc

Package: exim
Version: 4.96-15
Depends: libc (<= 2.36-9+deb12u9), libc-api (>= 6), libc-api (>> 6), mutt (<< 2:1.0), libc (< 2.36-9+deb12u10),
 tail (<< 1.0+)
Provides: mail-agent, reader (= 1:0)

Package: python3
Version: 3.12~a1
Provides: mail-agent

Package: tail
Version: 1.0a

Package: tiny
Version: 0:0
"""

SAMPLE_RESULT = """\
exim	Depends	1	libc-api (>= 6)	libc 2.36-9+deb12u10 provides libc-api
exim	Depends	3	mutt (<< 2:1.0)	mutt 2:1.0~rc1-1
exim	Depends	4	libc (< 2.36-9+deb12u10)	libc 2.36-9+deb12u10
exim	Depends	5	tail (<< 1.0+)	tail 1.0a
mutt	Depends	0	libc (>= 2.36)	libc 2.36-9+deb12u10
mutt	Depends	1	exim	exim 4.96-15
mutt	Depends	1	mail-agent	exim 4.96-15 provides mail-agent
mutt	Depends	1	mail-agent	python3 3.12~a1 provides mail-agent
mutt	Depends	3	tiny (= 0)	tiny 0:0
mutt	Recommends	0	reader (>= 1)	exim 4.96-15 provides reader
""".splitlines()


@case
def packages_of_a_sample():
    done = run("--check", "--print", "--method", "all", "-", text=SAMPLE)
    if RIGHT not in done.stderr:
        raise Failed(done.stderr)
    expect(sorted(done.stdout.splitlines()), SAMPLE_RESULT, "rows")


@case
def packages_with_a_small_budget():
    packages = "".join(f"Package: p{i}\nVersion: {i}\nDepends: all (>= {i % 7}), p{i * 7 % 900}\nProvides: all (= {i % 5})\n\n"
                       for i in range(900))
    _, methods = run_packages(packages, "--budget", "4MiB", *SMALL)
    expect_more(methods["appender"]["buffers"], 5, "buffers")


def run_packages(text, *arguments):
    done = run("--check", "--json", *arguments, "-", text=text)
    one = json.loads(done.stdout)["cases"][0]
    expect(one["same_as_on_the_cpu"], True, "right")
    return one, {m["method"]: m for m in one["methods"]}


def stanzas(text):
    for stanza in re.split(r"\n[ \t]*\n", text):
        fields = {}
        for line in re.sub(r"\n[ \t]+", " ", stanza).strip("\n").split("\n"):
            name, _, value = line.partition(":")
            fields[name] = value.strip()
        if "Package" in fields and fields.get("Status", "installed").endswith("installed"):
            yield fields


def items(fields, field, separator=","):
    return [i.strip() for i in fields.get(field, "").split(separator) if i.strip()]


def split_item(item):
    name, how, version = re.fullmatch(r"([^\s(:]+)(?::\w+)?\s*(?:\(\s*([<=>]+)\s*(\S+)\s*\))?", item).groups()
    return name, how, version


def dpkg_join(text):
    """The lines that the program should print, by other means."""
    providers, lines, known = {}, Counter(), {}
    packages = list(stanzas(text))
    for p in packages:
        providers.setdefault(p["Package"], []).append((p["Version"], f"{p['Package']} {p['Version']}"))
        for item in items(p, "Provides"):
            name, _, version = split_item(item)
            providers.setdefault(name, []).append((version, f"{p['Package']} {p['Version']} provides {name}"))

    def passes(version, how, wanted):
        if how is None:
            return True
        if version is None:
            return False
        if (version, how, wanted) not in known:
            known[version, how, wanted] = subprocess.run(["dpkg", "--compare-versions", version, how, wanted]).returncode == 0
        return known[version, how, wanted]

    for p in packages:
        for field in ("Pre-Depends", "Depends", "Recommends"):
            for group, alternatives in enumerate(items(p, field)):
                for item in [i.strip() for i in alternatives.split("|")]:
                    name, how, wanted = split_item(item)
                    for version, shown in providers.get(name, []):
                        if passes(version, how, wanted):
                            lines[f"{p['Package']}\t{field}\t{group}\t{item}\t{shown}"] += 1
    return lines


@case
def packages_of_this_machine():
    if not STATUS.exists():
        raise Skipped("no dpkg here")
    done = run("--check", "--print", "--method", "all", str(STATUS))
    if RIGHT not in done.stderr:
        raise Failed(done.stderr)
    got, wanted = Counter(done.stdout.splitlines()), dpkg_join(STATUS.read_text())
    expect(list((got - wanted).elements())[:5], [], "rows that dpkg would not have")
    expect(list((wanted - got).elements())[:5], [], "rows that are missing")
    expect_more(sum(got.values()), 1, "rows")


# ---- what is refused


@case
def wrong_options_are_refused():
    for arguments in (["--rows", "many"], ["--rows", "1e9"], ["--rows", "-1"], ["--method", "none"], ["--explode", "2", "--rows", "1"],
                      ["--text", "9-3"], ["--fraction", "1.5"], ["--what"], ["a", "b"], ["--sweep", "a"], ["--chunk", "2Mi"]):
        run(*arguments, status=2)


@case
def files_that_are_none_are_refused():
    done = run("-", text="not a list of packages\n", status=1)
    if "there are no packages" not in done.stderr:
        raise Failed(done.stderr)
    done = run("/nonexistent/status", status=1)
    if "cannot read /nonexistent/status" not in done.stderr:
        raise Failed(done.stderr)


@case
def a_row_larger_than_the_budget_is_refused():
    done = run("--rows", "4", "--inner", "4", "--keys", "1", "--text", "5000000", "--budget", "4MiB", *SMALL, status=1)
    if "larger than the budget" not in done.stderr:
        raise Failed(done.stderr)


@case
def a_budget_of_less_than_a_chunk_is_refused():
    done = run("--rows", "4", "--budget", "1MiB", *SMALL, status=1)
    if "use smaller chunks" not in done.stderr:
        raise Failed(done.stderr)


@case
def help_is_printed():
    if "usage: hashjoin" not in run("--help").stdout:
        raise Failed("no usage")


def main():
    wanted = sys.argv[2:] or list(cases)
    print(f"1..{len(wanted)}", flush=True)
    failed = 0
    for number, name in enumerate(wanted, 1):
        try:
            cases[name]()
            print(f"ok {number} {name}", flush=True)
        except Skipped as why:
            print(f"ok {number} {name} # SKIP {why}", flush=True)
        except (Failed, subprocess.TimeoutExpired) as why:
            failed += 1
            print(f"not ok {number} {name}", flush=True)
            print("".join(f"# {line}\n" for line in str(why).splitlines()), end="", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
