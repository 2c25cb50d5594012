#!/usr/bin/env python3
"""Makes the linker's export map from the public headers: what GVM_API declares, nothing else."""
import argparse
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import headers  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("-o", "--output", required=True, help="the file to write; - is standard output")
parser.add_argument("headers", nargs="+")
options = parser.parse_args()

names = sorted(f.name for path in options.headers for f in headers.parse(path).functions if not f.inline)
exported = "".join(f"        {name};\n" for name in names)
exported = f"    global:\n{exported}" if names else ""
text = f"GVMEM_0 {{\n{exported}    local:\n        *;\n}};\n"
if options.output == "-":
    print(text, end="")
else:
    Path(options.output).write_text(text)
