#!/usr/bin/env python3
"""Sums up what meson's tests said (meson-logs/*.json) and TAP that programs printed (*.tap).

test-results.py [--failures] [--skipped] LOG...
    prints "N passed, N failed"; with --failures, the failed ones before it; with --skipped, what was left out, and why
test-results.py --record OUT --info INFO LOG...
    writes OUT: INFO (a JSON file about the machine), every test, the sums

Tests that write TAP count by their subtests, cmocka's by its tests, others count as one. A skipped
test is neither. Exits 1 if anything failed, and also if nothing passed: a run without tests is no
success.
"""
import argparse
import json
import re
import sys
from pathlib import Path

GOOD = {"OK", "EXPECTEDFAIL"}
TAP = re.compile(r"^(not )?ok\b(?:[ \t]+\d+)?(.*)$", re.M)
CMOCKA = re.compile(r"^\[\s+(OK|FAILED)\s+\] (?!\d+ test)\S+", re.M)
CMOCKA_SKIPPED = re.compile(r"^\[\s+SKIPPED\s+\] (?!\d+ test)(\S+)", re.M)
TAP_SKIPPED = re.compile(r"^ok\b(?:[ \t]+\d+)?[ \t-]*(.*?)[ \t]*#[ \t]*skip\b[ \t]*(.*)$", re.M | re.I)
TAP_NONE = re.compile(r"^1\.\.0[ \t]*#[ \t]*skip\b[ \t]*(.*)$", re.M | re.I)


def tally(test):
    """How many parts of a test passed and failed, and the names of those that failed."""
    if test["result"] == "SKIP":
        return 0, 0, []
    text = test.get("stdout") or ""
    passed, failures = 0, []
    for bad, rest in TAP.findall(text):
        if re.search(r"#\s*(skip|todo)\b", rest, re.I):
            continue
        if bad:
            failures.append(rest.strip(" -"))
        else:
            passed += 1
    if not passed and not failures:
        output = text + (test.get("stderr") or "")
        passed = sum(1 for m in CMOCKA.finditer(output) if m[1] == "OK")
        failures = sorted({m[0].split("] ")[1] for m in CMOCKA.finditer(output) if m[1] == "FAILED"})
    if test["result"] in GOOD:
        return passed or 1, 0, []
    # A test that ended in the middle failed, whatever its parts said.
    return passed, max(len(failures), 1), failures or [test["result"].lower()]


def skipped(test):
    """What was left out of a test, and why it was where it says so: lines."""
    text, errors = test.get("stdout") or "", test.get("stderr") or ""
    if test["result"] == "SKIP":
        why = TAP_NONE.search(text)
        return [f"{test['name']}: {why[1] if why else 'it cannot be done here'}"]
    parts = [f"{name}: {why}" for name, why in TAP_SKIPPED.findall(text)] + CMOCKA_SKIPPED.findall(text + errors)
    return [f"{test['name']}: {part}" for part in dict.fromkeys(parts)]


def read_log(path):
    """The tests of a log, as meson writes them."""
    text = path.read_text()
    if path.suffix != ".tap":
        return [json.loads(line) for line in text.splitlines()]
    plan = re.search(r"^1\.\.(\d+)", text, re.M)
    complete = plan and len(TAP.findall(text)) == int(plan[1])
    good = complete and not re.search(r"^not ok\b(?!.*#\s*(?:skip|todo)\b)", text, re.M | re.I)
    return [{"name": path.stem, "result": "OK" if good else "FAIL" if complete else "ERROR", "stdout": text}]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failures", action="store_true")
    parser.add_argument("--skipped", action="store_true")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--info", type=Path)
    parser.add_argument("logs", nargs="*", type=Path)
    options = parser.parse_args()

    passed, failed, tests = 0, 0, []
    for log in options.logs:
        for test in read_log(log):
            good, bad, names = tally(test)
            passed, failed = passed + good, failed + bad
            tests.append(
                {
                    "name": test["name"],
                    "result": test["result"],
                    "passed": good,
                    "failed": bad,
                    "failures": names,
                    "duration_s": round(test.get("duration", 0), 3),
                }
            )
            if options.skipped:
                for line in skipped(test):
                    print(f"left out: {line}")
            if options.failures:
                for name in names:
                    print(f"failed: {test['name']}: {name}")
    if options.record:
        info = json.loads(options.info.read_text()) if options.info else {}
        record = {**info, "passed": passed, "failed": failed, "tests": tests}
        options.record.write_text(json.dumps(record, indent=2) + "\n")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
