#!/usr/bin/env python3
"""usage: options.py ROOT

Every member of a public options struct, every flag of a public header and every option of a program has a
line in tests/options.txt, which names the test that fails when the option is ignored; what is named there
exists. Every option of a program's table is in its usage text and in its manual page, with the same
letter, and the other way round."""
import pathlib
import re
import sys

STRUCT = re.compile(r"typedef struct (gvm_\w+_options|gvm_quota) \{(.*?)\n\}", re.S)
MEMBER = re.compile(r"(?:\(\*(\w+)\)\([^;]*\)|(\w+)(?:\[\w*\])?)\s*;")
FLAG = re.compile(r"^\s+(GVM_\w+) = 1u? << \d+", re.M)
OPTION = re.compile(r"""\{"([a-z-]+)", *(?:(?:no|required|optional)_argument|[012]), *NULL, *(?:'(\w)'|\w+)\}""")
USAGE = re.compile(r"^ +(?:-(\w), |    )--([a-z-]+)", re.M)
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
MANUAL = re.compile(r"^\.It (?:Fl (\w) .*)?Fl -([a-z-]+)", re.M)
COMMENT = re.compile(r"/\*.*?\*/", re.S)
IGNORED = {"struct_size", "reserved"}
TABLES_MIN, ITEMS_MIN = 7, 100  # fewer are found only if the patterns above no longer fit

# Where the options of a source file are described: the page, and how the headings of the parts begin.
# "": all of it. A part says nothing of --help; the page does once, for all.
PAGES = {
    "bench.c": ("gvmem-bench.1", r"gvmem-bench (?!policy)"),
    "info.c": ("gvmem.1", "gvmem info"),
    "keeper.c": ("gvmem.1", "gvmem keeper"),
    "keeperd.c": ("gvmem-keeper.8", ""),
    "share.c": ("gvmem.1", "gvmem share"),
    "models.c": ("gvmem.1", "gvmem models"),
    "policy.c": ("gvmem-bench.1", "gvmem-bench policy"),
    "table.c": ("gvmem.1", "gvmem table"),
    "map.c": ("gvmem.1", "gvmem map"),
    "top.c": ("gvmem.1", "gvmem top"),
}


def library_items(root):
    """Members and flags of the public headers."""
    found = set()
    for header in sorted((root / "include/gvmem").rglob("*.h")):
        text = COMMENT.sub("", header.read_text())
        for name, body in STRUCT.findall(text):
            for members in MEMBER.findall(body):
                member = members[0] or members[1]
                if member not in IGNORED:
                    found.add(f"{name}.{member}")
        found.update(FLAG.findall(text))
    return found


def program_options(source):
    """{option: letter or ""} of the file's table."""
    letters = {}
    for name, letter in OPTION.findall(source.read_text()):
        letters[name] = letter if letter.isalpha() else ""  # a digit stands for none
    return letters


def usage_options(source):
    """The same of the text that it prints."""
    text = "".join(STRING.findall(source.read_text())).replace("\\n", "\n")
    return {name: letter for letter, name in USAGE.findall(text)}


def manual_options(root, source):
    """The same of its manual page."""
    page, heading = PAGES[source.name]
    text = (root / "docs/man" / page).read_text()
    parts = re.split(r"^\.S[sh] ", text, flags=re.M)
    parts = [part for part in parts if re.match(heading, part)]
    found = {name: letter for part in parts for letter, name in MANUAL.findall(part)}
    if "help" not in found and "Fl -help" in text:
        found["help"] = "h"
    return found


def differences(source, table, other, place):
    """What the option table and a description of it do not agree on."""
    for name in sorted(table.keys() | other.keys()):
        if name not in other:
            yield f"{source}:1: --{name} is not in {place}; describe it there"
        elif name not in table:
            yield f"{source}:1: --{name} is in {place} and not in the option table; remove one or add the other"
        elif table[name] != other[name]:
            yield f"{source}:1: --{name} is -{table[name]} in the option table and -{other[name]} in {place}"


def check_programs(root, wrong):
    """The items of all programs; what is wrong with their descriptions goes to the list."""
    found, tables = set(), 0
    sources = [source for folder in ("tools", "bench", "examples") for source in sorted((root / folder).rglob("*.c"))]
    for source in sources:
        table = program_options(source)
        if not table:
            continue
        tables += 1
        name_of = source.name if source.name in PAGES else f"{source.parent.name}/{source.name}"
        found.update(f"{name_of}:--{name}" for name in table)
        wrong.extend(differences(source, table, usage_options(source), "its usage text"))
        if source.parent.name == "hashjoin":
            continue  # no manual page
        if source.name in PAGES:
            wrong.extend(differences(source, table, manual_options(root, source), f"docs/man/{PAGES[source.name][0]}"))
        else:
            wrong.append(f"{source}:1: no manual page is known for it; name one in scripts/options.py")
    if tables < TABLES_MIN:
        wrong.append(f"{root}/tools:1: only {tables} option tables were found; fix scripts/options.py")
    return found


def is_named(folder, name):
    """A meson.build there, or a script that it runs, has the name."""
    build = (folder / "meson.build").read_text()
    if re.search(rf"'{re.escape(name)}'", build):
        return True
    return any(f"/{name}\"" in path.read_text() for path in folder.glob("*.sh") if f"'{path.name}'" in build)


def has_test(root, file, test):
    """Does the file have a test of that name which is run?"""
    path = root / file
    text = path.read_text() if path.is_file() else ""
    name = re.escape(test)
    if path.suffix == ".c":
        return re.search(rf"\b(?:cmocka_unit_test|TEST)\({name}\)", text) is not None
    if path.suffix == ".py":
        head = "" if test == "main" else "@case\n"
        return f"{head}def {test}(" in text and is_named(path.parent, path.name)
    return re.search(rf"^ *{name}", text, re.M) is not None and test.endswith(")") and is_named(path.parent, test[:-1])


def check_tests(root, needed, wrong):
    """Each item has a line that names a test."""
    path = root / "tests/options.txt"
    covered = set()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        where = f"{path}:{number}"
        if not line or line.startswith("#"):
            continue
        words = line.split()
        if len(words) != 3:
            wrong.append(f"{where}: not three words; write ITEM FILE TEST")
            continue
        item, file, test = words
        if item in covered:
            wrong.append(f"{where}: {item} has a line already; remove one")
        covered.add(item)
        if item not in needed:
            wrong.append(f"{where}: there is no {item}; remove the line")
        if not has_test(root, file, test):
            wrong.append(f"{where}: {file} has no {test}; name the test that sees the effect of {item}")
    for item in sorted(needed - covered):
        wrong.append(f"{path}:1: {item} is missing; write a test that sees its effect, and name it here")


def main():
    root, wrong = pathlib.Path(sys.argv[1]), []
    needed = library_items(root) | check_programs(root, wrong)
    if len(needed) < ITEMS_MIN:
        wrong.append(f"{root}:1: only {len(needed)} options were found; fix scripts/options.py")
    check_tests(root, needed, wrong)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


sys.exit(main())
