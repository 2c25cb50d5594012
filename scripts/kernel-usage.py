#!/usr/bin/env python3
"""Prints what kernels need on real GPUs. usage: kernel-usage.py [BUILD-FOLDER]

Compiles each fatbin of the build once more, with ptxas's report, and prints one line for each: how many
kernels it has and, by architecture, the most registers that one of them takes and the bytes that all of
them spill. Exits 1 if one does not compile, or if the build has none of the library's.
"""
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

# In the order of ptxas's lines: the kernel and its architecture, what it spills, its registers.
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\w+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
LIBRARY = "lib/kernels/basic.fatbin"


def ninja(build, *arguments):
    return subprocess.run(["ninja", "-C", build, "-t", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def compile_again(build, target):
    """(exit status, output, {architecture: [(kernel, registers, spilled bytes)]})"""
    command = shlex.split(ninja(build, "commands", "-s", target).strip())
    command[command.index("-o") + 1] = os.devnull
    if "-MF" in command:
        command[command.index("-MF") + 1] = os.devnull
    command += ["-Xptxas", "-v"]
    done = subprocess.run(command, cwd=build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    usage, entry, spilled = {}, None, 0
    for line in done.stdout.splitlines():
        if found := ENTRY.search(line):
            entry, spilled = found.groups(), 0
        elif found := SPILLS.search(line):
            spilled = int(found[1]) + int(found[2])
        elif entry and (found := REGISTERS.search(line)):
            usage.setdefault(entry[1], []).append((entry[0], int(found[1]), spilled))
            entry = None
    return done.returncode, done.stdout, usage


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    targets = re.findall(r"^(\S+\.fatbin): CUSTOM_COMMAND", ninja(build, "targets", "all"), re.M)
    if LIBRARY not in targets:
        sys.exit(f"kernel-usage: {build} has no {LIBRARY}: it was configured without nvcc")
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        compiled = dict(zip(targets, threads.map(lambda target: compile_again(build, target), targets)))
    architectures = sorted({name for _, _, usage in compiled.values() for name in usage})
    print("most registers of a kernel, and bytes spilled by all, for each architecture\n")
    print(f"{'file':<32}{'kernels':>8}" + "".join(f"{name:>14}" for name in architectures))
    failed = False
    for target, (code, output, usage) in sorted(compiled.items()):
        name = os.path.basename(target).removesuffix(".fatbin")
        if code != 0 or not usage:
            failed = True
            print(f"{name:<32} does not compile:\n{output}")
            continue
        cells = ""
        for architecture in architectures:
            kernels = usage.get(architecture)
            cells += f"{f'{max(k[1] for k in kernels)} / {sum(k[2] for k in kernels)}' if kernels else '-':>14}"
        print(f"{name:<32}{max(map(len, usage.values())):>8}{cells}")
    return failed


sys.exit(main())
