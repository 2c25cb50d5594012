#!/usr/bin/env python3
"""usage: options.py ROOT

Every member of a public options struct, every flag of a public header and every option of a program is
named in tests/options.txt, with the test that sees its effect; what is named there exists. Those without
a test yet ("?") may only become fewer."""
import pathlib
import re
import sys

STRUCT = re.compile(r"typedef struct (gvm_\w+_options|gvm_quota) \{(.*?)\n\}", re.S)
MEMBER = re.compile(r"(?:\(\*(\w+)\)\([^;]*\)|(\w+)(?:\[\w*\])?)\s*;")
FLAG = re.compile(r"^\s+(GVM_\w+) = 1u? << \d+", re.M)
OPTION = re.compile(r'\{"([a-z-]+)", *(?:no|required|optional)_argument')
COMMENT = re.compile(r"/\*.*?\*/", re.S)
UNSEEN_MAX = 44
IGNORED = {"struct_size", "reserved"}


def items(root):
    """What must be covered."""
    found = set()
    for header in sorted((root / "include/gvmem").rglob("*.h")):
        text = COMMENT.sub("", header.read_text())
        for name, body in STRUCT.findall(text):
            for members in MEMBER.findall(body):
                member = members[0] or members[1]
                if member not in IGNORED:
                    found.add(f"{name}.{member}")
        found.update(FLAG.findall(text))
    for source in sorted((root / "tools").glob("*.c")):
        for option in OPTION.findall(source.read_text()):
            found.add(f"{source.name}:--{option}")
    return found


def main():
    root = pathlib.Path(sys.argv[1])
    path = root / "tests/options.txt"
    needed, covered, wrong = items(root), set(), []
    unseen = 0
    if len(needed) < 50:
        wrong.append(f"{path}:1: only {len(needed)} options were found: mend scripts/options.py")
    for number, line in enumerate(path.read_text().splitlines(), 1):
        where = f"{path}:{number}"
        if not line or line.startswith("#"):
            continue
        words = line.split()
        if len(words) != 3:
            wrong.append(f"{where}: not three words; write ITEM FILE TEST")
            continue
        item, file, test = words
        covered.add(item)
        if item not in needed:
            wrong.append(f"{where}: there is no {item}; remove the line")
        if (file, test) == ("?", "?"):
            unseen += 1
        elif not (root / file).exists() or test not in (root / file).read_text():
            wrong.append(f"{where}: {file} has no {test}; name the test that sees the effect of {item}")
    if unseen > UNSEEN_MAX:
        wrong.append(f"{path}:1: {unseen} options have no test, more than {UNSEEN_MAX}: write one")
    for item in sorted(needed - covered):
        wrong.append(f"{path}:1: {item} is missing; write a test that sees its effect, and name it here")
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


sys.exit(main())
