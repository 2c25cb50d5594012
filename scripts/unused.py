#!/usr/bin/env python3
"""usage: unused.py BUILD-FOLDER (in the root of the sources)

What a C file of the product defines for other files, some other file uses, or a library exports; tests count as users.
Read from the objects of a build with tests; postgres/ is not looked at, as PGXS exports all of it.
Exit 1 if there are findings.
"""
import json
import subprocess
import sys
from pathlib import Path

import circles


def read_symbols(paths, *options):
    """(path, kind, name) of each name that the objects define for others, or use."""
    paths = [str(path) for path in paths if path.exists()]
    if not paths:
        return
    for line in subprocess.run(["nm", "-gA", *options, *paths], check=True, capture_output=True, text=True).stdout.splitlines():
        path, symbol = line.rsplit(":", 1)
        *_, kind, name = symbol.split()
        yield path, kind, name.split("@")[0]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = Path(sys.argv[1])
    product = {str(path): f"{folder}/{file}" for folder, files in circles.built_by_meson(build).items() for file, path in files.items()}
    commands = json.loads((build / "compile_commands.json").read_text())
    used = {name for _, kind, name in read_symbols({Path(c["directory"], c["output"]) for c in commands}) if kind == "U"}
    used |= {name for _, _, name in read_symbols(build.rglob("*.so"), "-D", "--defined-only")}
    for path, kind, name in read_symbols(map(Path, product)):
        # A name that begins with "_" is the system's (probes have one in each object).
        if kind in circles.DEFINED and name not in used and name != "main" and not name.startswith("_"):
            circles.complain(product[path], f"no other file uses {name}", "make it static, or remove it")
    sys.exit(1 if circles.findings else 0)


if __name__ == "__main__":
    main()
