#!/usr/bin/env python3
"""Compares the libraries of a build with those of the newest release that has their soname.

abi.py [BUILD-FOLDER]
    builds the newest release of this version's X.Y (packaging/releases) in a temporary folder and prints abidiff's report.
    Exits 1 if a program made with the release would not work with the libraries of BUILD-FOLDER, 77 if there
    is nothing to compare with.
abi.py OLD-LIBRARY NEW-LIBRARY HEADER...
    compares these two, which have these public headers. Exits 1 likewise.

Functions may be added. A struct that says its size may get members behind its old end, where a program that is
older has none; so may the records of lists, whose callers pass their size. What only the other library uses
(lib/base/private.h) is left out, as are structs of which programs have only pointers.
"""
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = subprocess.run(ROOT / "scripts/version.sh", check=True, capture_output=True, encoding="utf8").stdout.strip()
SONAME = VERSION.rpartition(".")[0]
LIBRARIES = ("libgvmem", "libgvmem-keeper")
RELEASES = ROOT / "packaging/releases"
DROPPED = """
[suppress_type]
  type_kind = struct
  source_location_not_regexp = include/gvmem/
  drop = yes
[suppress_function]
  symbol_name_regexp = ^gvmi_
  drop = yes
[suppress_variable]
  symbol_name_regexp = ^gvmi_
  drop = yes
"""
GROWN = """
[suppress_type]
  type_kind = struct
  name = {}
"""
MAY_GROW = re.compile(r"typedef struct (\w+) \{\s+size_t struct_size;|stride_bytes,\s+(\w+)")


def leave_out(why):
    print(f"abi: left out: {why}")
    sys.exit(77)


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def newest_release():
    """Its version and commit."""
    rows = [line.split() for line in RELEASES.read_text().splitlines() if not line.startswith("#")]
    rows = [(version, commit) for version, commit in rows if version.rpartition(".")[0] == SONAME]
    if not rows:
        leave_out(f"{RELEASES.relative_to(ROOT)} has no release {SONAME}.*, so there is none with this soname")
    version, commit = rows[-1]
    if not shutil.which("git") or subprocess.run(["git", "-C", ROOT, "cat-file", "-e", f"{commit}^{{commit}}"], stderr=subprocess.DEVNULL).returncode:
        leave_out(f"there is no git, or these files are no clone with the commit of {version}, {commit}")
    return version, commit


def build_release(version, commit, folder):
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-xf", "-"], cwd=folder, check=True, input=archive)
    targets = [f"{library}.so.{version}" for library in LIBRARIES]
    for command in (
        ["meson", "setup", "build", "-Dtests=false", "-Ddocs=false", "-Dcuda=disabled"],
        ["ninja", "-C", "build", *targets],
    ):
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"{done.stdout}abi: {version} cannot be built")


def layouts(library):
    """{struct: (bits, {member: offset in bits})}"""
    found = {}
    for struct in ElementTree.fromstring(output("abidw", library)).iter("class-decl"):
        members = {m.find("var-decl").get("name"): int(m.get("layout-offset-in-bits")) for m in struct.iter("data-member")}
        if members:
            found[struct.get("name")] = int(struct.get("size-in-bits")), members
    return found


def grown(old, new, may_grow):
    """The structs of which programs that are older know the beginning."""
    for name in may_grow & old.keys() & new.keys():
        (old_bits, before), (_, after) = old[name], new[name]
        added = {member: bits for member, bits in after.items() if member not in before}
        if added and min(added.values()) >= old_bits and after == {**before, **added}:
            yield name


def compare(old, new, headers, folder):
    """Does a program that was made with the old library, with these headers, work with the new one?"""
    may_grow = {name for path in headers for names in MAY_GROW.findall(path.read_text()) for name in names if name}
    suppressions = Path(folder) / "suppressions"
    suppressions.write_text(DROPPED + "".join(map(GROWN.format, grown(layouts(old), layouts(new), may_grow))))
    return subprocess.run(["abidiff", "--suppressions", suppressions, "--no-added-syms", old, new]).returncode == 0


def compare_with_release(build, folder):
    version, commit = newest_release()
    build_release(version, commit, folder)
    headers = sorted((ROOT / "include/gvmem").rglob("*.h"))
    good = True
    for library in LIBRARIES:
        print(f"{library}: {version} and {VERSION} of {build}", flush=True)
        good &= compare(f"{folder}/build/{library}.so.{version}", f"{build}/{library}.so.{VERSION}", headers, folder)
    return good


def main(arguments):
    if not shutil.which("abidiff"):
        leave_out("abidiff is not installed (abigail-tools)")
    with tempfile.TemporaryDirectory() as folder:
        if len(arguments) > 1:
            old, new, *headers = arguments
            return not compare(old, new, map(Path, headers), folder)
        return not compare_with_release(Path(*arguments or [ROOT / "build"]).resolve(), folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
