#!/usr/bin/env python3
"""Compares the libraries of a build with those of the newest release that has their soname.

abi.py [BUILD-FOLDER]
    builds the newest tag vX.Y.Z of this version's X.Y in a temporary folder and prints abidiff's report. Exits
    1 if a program made with the release would not work with the libraries of BUILD-FOLDER, 77 if there is
    nothing to compare with.

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
BUILD = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
VERSION = re.search(r"^  version: '(.*)',$", (ROOT / "meson.build").read_text(), re.M)[1]
SONAME = VERSION.rpartition(".")[0]
LIBRARIES = ("libgvmem", "libgvmem-keeper")
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
    if not shutil.which("git") or subprocess.run(["git", "-C", ROOT, "rev-parse"], stderr=subprocess.DEVNULL).returncode:
        leave_out("there is no git, or these files are no clone")
    patches = [tag.rpartition(".")[2] for tag in output("git", "tag", "--list", f"v{SONAME}.*").split()]
    patches = [int(patch) for patch in patches if patch.isdigit()]
    if not patches:
        leave_out(f"there is no tag v{SONAME}.*, so no release with this soname")
    return f"{SONAME}.{max(patches)}"


def build_release(version, folder):
    archive = subprocess.run(["git", "archive", f"v{version}"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-xf", "-"], cwd=folder, check=True, input=archive)
    targets = [f"{library}.so.{version}" for library in LIBRARIES]
    for command in (
        ["meson", "setup", "build", "-Dtests=false", "-Ddocs=false", "-Dcuda=disabled"],
        ["ninja", "-C", "build", *targets],
    ):
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"{done.stdout}abi: v{version} cannot be built")


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


def main():
    if not shutil.which("abidiff"):
        leave_out("abidiff is not installed (abigail-tools)")
    release = newest_release()
    headers = "".join(path.read_text() for path in sorted((ROOT / "include/gvmem").rglob("*.h")))
    may_grow = {name for names in MAY_GROW.findall(headers) for name in names if name}
    code = 0
    with tempfile.TemporaryDirectory() as folder:
        build_release(release, folder)
        suppressions = Path(folder) / "suppressions"
        for library in LIBRARIES:
            old, new = f"{folder}/build/{library}.so.{release}", f"{BUILD}/{library}.so.{VERSION}"
            suppressions.write_text(DROPPED + "".join(map(GROWN.format, grown(layouts(old), layouts(new), may_grow))))
            print(f"{library}: v{release} and {VERSION} of {BUILD}", flush=True)
            if subprocess.run(["abidiff", "--suppressions", suppressions, "--no-added-syms", old, new]).returncode:
                code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
