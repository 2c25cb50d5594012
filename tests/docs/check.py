#!/usr/bin/env python3
"""What the project's pages (*.md) say about its files, as tests; prints TAP.

    links    every relative link leads to a file, and its fragment to a heading there
    errors   every error text in docs/troubleshooting.md (in the first column, in backquotes, with a blank in it; an
             ellipsis stands for values) is in the sources
"""
import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
SOURCES = ("lib", "keeper", "softgpu", "postgres", "tools")


def anchors(page):
    """As code forges make them of headings."""
    texts = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(BLOCK.sub("", page)))
    return {text.strip().replace(" ", "-") for text in texts}


def broken_links(path):
    page = path.read_text(encoding="utf8")
    for match in LINK.finditer(BLOCK.sub("", page)):
        link = match[1] or match[2]
        if re.match(r"[a-z]+:", link):
            continue
        name, _, fragment = link.partition("#")
        target = path if not name else (path.parent / name).resolve()
        if not target.exists():
            yield f"{link}: there is no such file"
        elif fragment and fragment not in anchors(target.read_text(encoding="utf8")):
            yield f"{link}: there is no such heading"


def find_sources(*patterns):
    return subprocess.run([PROJECT / "scripts/sources.sh", *patterns], capture_output=True, text=True, check=True).stdout.split()


def source_text():
    """All C sources, with string literals that follow each other joined."""
    text = "".join((PROJECT / name).read_text(encoding="utf8") for name in find_sources("*.c", "*.h") if name.startswith(SOURCES))
    return re.sub(r'"\s*\n\s*"', "", text).replace('\\"', '"')


def missing_errors(path):
    sources = source_text()
    for line in path.read_text(encoding="utf8").splitlines():
        if not line.startswith("| "):
            continue
        for quoted in re.findall(r"`([^`]*)`", line.split(" | ")[0]):
            parts = [part.strip() for part in quoted.split("…")] if " " in quoted else []
            for part in parts:
                if part not in sources:
                    yield f"{part!r} is in no source"


def main():
    tests = [(f"links of {name}", list(broken_links(PROJECT / name))) for name in sorted(find_sources("*.md"))]
    tests.append(("errors of docs/troubleshooting.md", list(missing_errors(PROJECT / "docs/troubleshooting.md"))))
    print(f"1..{len(tests)}")
    for number, (name, problems) in enumerate(tests, 1):
        print(f"{'not ok' if problems else 'ok'} {number} - {name}")
        for problem in problems:
            print(f"# {problem}")
    return any(problems for _, problems in tests)


if __name__ == "__main__":
    sys.exit(main())
