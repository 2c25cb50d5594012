#!/usr/bin/env python3
"""Makes a graph of Debian's packages: vertices are packages, edges what they depend on or recommend. It writes METIS.

usage: debian-graph.py [FILE...] > debian.metis

FILEs are lists of packages as apt keeps them (/var/lib/apt/lists/*_Packages); none: what `apt-cache dumpavail` prints.
For `gvmem-bench region --graph debian.metis bfs pagerank`.
"""
import re
import subprocess
import sys

FIELDS = ("Depends", "Pre-Depends", "Recommends")


def packages(text):
    """(name, names it refers to) of each paragraph."""
    for paragraph in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^([A-Za-z-]+): *((?:.*)(?:\n[ \t].*)*)", paragraph, re.M))
        if "Package" in fields:
            wanted = ",".join(fields.get(name, "") for name in FIELDS)
            yield fields["Package"].strip(), re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]*)", wanted)


def main():
    if len(sys.argv) > 1:
        text = "\n\n".join(open(name, encoding="utf-8").read() for name in sys.argv[1:])
    else:
        text = subprocess.run(["apt-cache", "dumpavail"], check=True, stdout=subprocess.PIPE).stdout.decode()
    neighbours = {}
    for name, wanted in packages(text):
        for other in wanted:
            if other != name:
                neighbours.setdefault(name, set()).add(other)
                neighbours.setdefault(other, set()).add(name)
    if not neighbours:
        sys.exit("debian-graph.py: no package depends on another; run `apt-get update`, or name a list of packages")
    number = {name: i for i, name in enumerate(sorted(neighbours), 1)}
    print(len(number), sum(map(len, neighbours.values())) // 2)
    for name in number:
        print(*sorted(number[other] for other in neighbours[name]))


if __name__ == "__main__":
    main()
