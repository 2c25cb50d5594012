#!/usr/bin/env python3
"""Checks META.json against what PGXN asks for. usage: check-meta.py FOLDER, in which the file is

Each finding is a line; exits 1 if there are any."""
import json
import re
import sys
from pathlib import Path

folder = Path(sys.argv[1])
meta = json.loads((folder / "META.json").read_text())
findings = []
SEMANTIC = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[A-Za-z][0-9A-Za-z-]*)?")


def want(holder, where, *keys):
    findings.extend(f"META.json: {where} has no {key}" for key in keys if not holder.get(key))


def want_version(text, where):
    if not SEMANTIC.fullmatch(str(text)):
        findings.append(f"META.json: {where} is {text}, no semantic version")


want(meta, "it", "name", "version", "abstract", "maintainer", "license", "provides", "meta-spec")
want(meta.get("meta-spec", {}), "meta-spec", "version", "url")
want_version(meta.get("version"), "version")
for name, extension in meta.get("provides", {}).items():
    want(extension, name, "file", "version")
    want_version(extension.get("version"), f"version of {name}")
    for key in "file", "docfile":
        if key in extension and not (folder / extension[key]).is_file():
            findings.append(f"META.json: {name}: there is no {extension[key]}")
print("\n".join(findings), end="\n" if findings else "")
sys.exit(bool(findings))
