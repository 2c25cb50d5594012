#!/usr/bin/env python3
"""Checks standard input against the text exposition format 0.0.4 of Prometheus, and metrics' names
against its conventions. usage: check-metrics.py <METRICS; complaints go to standard output, status 1
"""
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
HELP = re.compile(rf"# HELP ({NAME}) (?:[^\\]|\\\\|\\n)+")
TYPE = re.compile(rf"# TYPE ({NAME}) (counter|gauge)")
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? ([0-9]+(?:\.[0-9]+)?)")
UNITS = re.compile(r"_(?:ms|us|kib|mib|gib|kb|mb|gb|percent)(?:_|$)")

faults = 0


def complain(number, text):
    global faults
    faults += 1
    print(f"line {number}: {text}")


def main():
    data = sys.stdin.buffer.read().decode("utf-8")  # raises if it is none
    lines = data.split("\n")
    if lines.pop() != "":
        complain(len(lines), "the last line has no end")
    current, described, series = None, {}, set()
    for number, line in enumerate(lines, 1):
        if match := HELP.fullmatch(line):
            current = match[1]
            if current in described:
                complain(number, f"{current} comes twice")
            described[current] = None
        elif match := TYPE.fullmatch(line):
            if match[1] != current or described.get(current) is not None:
                complain(number, "TYPE without its HELP before it")
            described[match[1]] = match[2]
            if (match[2] == "counter") != match[1].endswith("_total"):
                complain(number, f"{match[1]} is a {match[2]}")
        elif match := SAMPLE.fullmatch(line):
            if match[1] != current or described[current] is None:
                complain(number, f"a sample of {match[1]} outside its group")
            labels = re.findall(LABEL, match[2] or "")
            names = [label.split("=")[0] for label in labels]
            if len(set(names)) != len(names):
                complain(number, "a label comes twice")
            key = (match[1], *sorted(labels))
            if key in series:
                complain(number, "the same series twice")
            series.add(key)
        else:
            complain(number, f"malformed: {line!r}")
    for name in described:
        if not name.startswith("gvmem_keeper_") or UNITS.search(name):
            complain(0, f"{name}: wrong prefix or no base unit")
        if not any(key[0] == name for key in series):
            complain(0, f"{name} has no sample")
    if not series:
        complain(0, "no samples")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
