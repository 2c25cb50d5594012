#!/usr/bin/env python3
"""usage: circles.py BUILD-FOLDER (in the root of the sources)

Inside a folder no C file is in a circle of calls with another, unless the head comment of a header of that
folder names the files of the circle and says why:

    Circle: a.c, b.c and c.c call each other, because ...

Who calls whom is read from the objects: a file calls another one if it uses a name that the other defines.
Exit 1 if there are findings; 77 if there are none, but postgres/ has not been built in BUILD-FOLDER, or
not since its latest change (scripts/pg-server.sh does that).
"""
import json
import re
import subprocess
import sys
from pathlib import Path

NOT_CHECKED = ("tests/", "examples/")  # programs of a file or two each
EXPLAINED = re.compile(r"\bCircle:(?: ([\w., -]+?) call each other, because \w)?")
HEAD = re.compile(r"/\*.*?\*/", re.S)
DEFINED = "TDBRCVW"

findings = 0


def complain(path, wrong, remedy):
    global findings
    findings += 1
    print(f"{path}:1: {wrong}; {remedy}")


def built_by_meson(build):
    """{folder: {file: object}}. A file that several programs have is read once."""
    found = {}
    for command in json.loads((build / "compile_commands.json").read_text()):
        built = Path(command["directory"])
        source = (built / command["file"]).resolve()
        if not source.is_relative_to(Path.cwd()) or source.is_relative_to(build.resolve()):
            continue
        path = source.relative_to(Path.cwd())
        if path.suffix == ".c" and not str(path).startswith(NOT_CHECKED) and path.parts[0] != "postgres":
            found.setdefault(str(path.parent), {})[path.name] = built / command["output"]
    return found


def source_of(file):
    """Of an object of postgres/: some sources are query/'s."""
    return next(path for folder in ("postgres", "query") if (path := Path(folder, file)).exists())


def built_by_pgxs(build):
    """{file: object} of postgres/, or None if one is older than what it was made of."""
    names = re.search(r"^OBJS = (.*)$", Path("postgres/Makefile").read_text(), re.M)[1].split()
    headers = list(Path("postgres").glob("*.h"))
    for folder in sorted((build / "postgres").glob("*/")):
        objects = {f"{name[:-2]}.c": folder / name for name in names}
        if all(is_current(path, [source_of(file), *headers]) for file, path in objects.items()):
            return objects
    return None


def is_current(path, sources):
    return path.exists() and all(path.stat().st_mtime >= source.stat().st_mtime for source in sources)


def read_calls(objects):
    """{file: {file that it calls: a name that it uses}}"""
    files = {str(path): file for file, path in objects.items()}
    owner, used = {}, {file: [] for file in objects}
    for line in subprocess.run(["nm", "-gA", *files], check=True, capture_output=True, text=True).stdout.splitlines():
        path, symbol = line.rsplit(":", 1)
        *_, kind, name = symbol.split()
        if kind in DEFINED:
            owner[name] = files[path]
        elif kind == "U":
            used[files[path]].append(name)
    return {file: {owner[name]: name for name in names if name in owner} for file, names in used.items()}


def way(calls, start, end):
    """The shortest way of calls, as a list of files from start to end; None if there is none."""
    ways, seen = [[start]], set()
    for path in ways:
        for file in calls[path[-1]]:
            if file == end:
                return [*path, end]
            if file not in seen:
                seen.add(file)
                ways.append([*path, file])
    return None


def find_circles(calls):
    """The groups of files that reach each other, each as a sorted tuple."""
    reached = {file: {other for other in calls if way(calls, file, other)} for file in calls}
    groups = {tuple(sorted(other for other in calls if other in reached[file] and file in reached[other])) for file in calls}
    return {group for group in groups if len(group) > 1}


def as_text(group):
    return f"{', '.join(group[:-1])} and {group[-1]}"


def explained(folder):
    """{group: header} of the head comments of the folder's headers."""
    found = {}
    for header in sorted(Path(folder).glob("*.h")):
        head = HEAD.match(header.read_text())
        text = re.sub(r"\s*\n \* *\s*", " ", head[0]) if head else ""
        for match in EXPLAINED.finditer(text):
            if match[1] is None:
                complain(header, 'cannot read what follows "Circle:"', 'write "Circle: a.c, b.c and c.c call each other, because ..."')
            else:
                found[tuple(sorted(re.split(r", | and ", match[1])))] = header
    return found


def check_folder(folder, objects):
    missing = [file for file, path in objects.items() if not path.exists()]
    for file in missing:
        complain(f"{folder}/{file}", "it has no object", "build first: ninja -C BUILD-FOLDER")
    if missing:
        return
    calls = read_calls(objects)
    circles, known = find_circles(calls), explained(folder)
    for group in sorted(circles - known.keys()):
        path = way(calls, group[0], group[0])
        steps = ", which uses ".join(f"{calls[a][b]} of {b}" for a, b in zip(path, path[1:]))
        complain(f"{folder}/{group[0]}", f"it uses {steps}", f'move code so that calls go one way, or say in the head comment of a header: "Circle: {as_text(group)} call each other, because ..."')
    for group in sorted(known.keys() - circles):
        complain(known[group], f"{as_text(group)} are no circle", "say which files call each other today, or remove the sentence")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = Path(sys.argv[1])
    folders = built_by_meson(build)
    left_out = False
    if Path("postgres/Makefile").exists():
        objects = built_by_pgxs(build)
        left_out = objects is None
        if objects:
            folders["postgres"] = objects
    for folder in sorted(folders):
        check_folder(folder, folders[folder])
    if left_out:
        print("lint: postgres/ has not been built since its latest change: its circles of calls are not checked")
    sys.exit(1 if findings else 77 if left_out else 0)


if __name__ == "__main__":
    main()
