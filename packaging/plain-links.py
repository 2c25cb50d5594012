#!/usr/bin/env python3
"""Makes plain text of links that lead nowhere in an installed folder of pages.

usage: plain-links.py FOLDER...

Pages of the repository link to headers, sources and pages that a package does not have. In each page (*.md) directly in
FOLDER a link to a file stays if the file is there, also compressed.
"""
import re
import sys
from pathlib import Path

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")


def plain(folder):
    def of_link(match):
        picture, text, target, _ = match.groups()
        if "://" in target or (folder / target).exists() or (folder / f"{target}.gz").exists():
            return match[0]
        return "" if picture else text
    return of_link


for argument in sys.argv[1:]:
    folder = Path(argument)
    for page in folder.glob("*.md"):
        page.write_text(LINK.sub(plain(folder), page.read_text()))
