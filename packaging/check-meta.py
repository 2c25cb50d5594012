#!/usr/bin/env python3
"""Checks META.json against what PGXN asks for, and the extensions that it names against postgres/**/*.control.
usage: check-meta.py FOLDER, in which the file and postgres/ are

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
controls = {path.stem: path.read_text() for path in (folder / "postgres").rglob("*.control")}
if not controls:
    findings.append(f"{folder}/postgres has no *.control")
for name in sorted(controls.keys() - meta.get("provides", {}).keys()):
    findings.append(f"META.json: provides has no {name}")
for name, extension in meta.get("provides", {}).items():
    version = re.search(r"^default_version = '(.*)'", controls.get(name, ""), re.M)
    if not version:
        findings.append(f"META.json: {name} has no file {name}.control with a default_version")
    elif extension.get("version") != f"{version[1]}.0":
        findings.append(f"META.json: version of {name} is {extension.get('version')}, and in {name}.control {version[1]}")
print("\n".join(findings), end="\n" if findings else "")
sys.exit(bool(findings))
