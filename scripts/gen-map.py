#!/usr/bin/env python3
"""Makes the linker's export map of a library: what the public headers declare with GVM_API, and of libgvmem
what libgvmem-keeper uses of its inside (GVMI_API, lib/base/private.h)."""
import argparse
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import headers  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
KEEPER = "gvmem/keeper.h"  # is libgvmem-keeper's
PRIVATE = re.compile(r"^(?:extern )?GVMI_API [^;{]*?\b(gvmi_\w+)(?:\(|;)", re.M)


def private_names():
    inside = [path for folder in ("lib", "keeper/protocol") for path in (ROOT / folder).rglob("*.h")]
    return sorted(name for path in inside for name in PRIVATE.findall(path.read_text()))


def node(name, names):
    return f"{name} {{\n    global:\n" + "".join(f"        {n};\n" for n in names)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("-o", "--output", required=True, help="the file to write; - is standard output")
parser.add_argument("--library", choices=("gvmem", "gvmem-keeper"), required=True)
parser.add_argument("--version", required=True)
parser.add_argument("headers", nargs="+")
options = parser.parse_args()

parsed = [headers.parse(path) for path in options.headers]
names = sorted(f.name for header in parsed if (header.name == KEEPER) == (options.library == "gvmem-keeper") for f in header.functions if not f.inline)
text = node("GVMEM_" + ".".join(options.version.split(".")[:2]), names) + "    local:\n        *;\n};\n"
if options.library == "gvmem":
    text += node(f"GVMEM_PRIVATE_{options.version}", private_names()) + "};\n"
if options.output == "-":
    print(text, end="")
else:
    Path(options.output).write_text(text)
