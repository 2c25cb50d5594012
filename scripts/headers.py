"""Reads the public headers and the project's tables, for export map, manual pages and lint.

The headers keep a form (CONTRIBUTING.md) that makes this possible without a C parser: a declaration
starts with GVM_API at the start of a line and ends with a semicolon; the comment above it documents
it and the declarations after it up to a blank line. GVM_OPTIONS_INIT(type) declares type_init(). Tables are X-macros, one row a line:
X(NAME, ..., "text").
"""
import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Function:
    name: str
    result: str  # "gvm_status"
    arguments: list  # ["gvm_buffer *buffer", ...]
    comment: str  # of its paragraph; "" if there is none
    line: int
    inline: bool = False  # defined in the header, not exported


@dataclass
class Header:
    path: Path
    name: str  # "gvmem/buffer.h"
    title: str  # of a head comment "NAME - title"; "" if it has not that form
    description: str  # the rest of the head comment
    types: list = field(default_factory=list)  # types and constants with their comments
    functions: list = field(default_factory=list)

    @property
    def page(self):
        """Name of its manual page."""
        page = self.name.removesuffix(".h").replace("/", "-")
        return "gvmem" if page == "gvmem-gvmem" else page


def comment_text(raw):
    """The text of a /* */ comment without its frame of stars."""
    lines = [re.sub(r"^ \* ?", "", line) for line in raw.strip()[2:-2].split("\n")]
    return "\n".join(line.rstrip() for line in lines).strip()


def parse_function(text, comment, line):
    text = " ".join(text.split()).removeprefix("GVM_API ").removeprefix("GVM_CHECKED ").rstrip(";")
    text = re.sub(r"^GVM_PRINTF\(\d, \d\) ", "", text)
    match = re.match(r"(?P<result>.*?)(?P<name>\w+)\s*\((?P<arguments>.*?)\)[^()]*$", text)
    if not match:
        return None
    arguments = [a.strip() for a in match["arguments"].split(",")]
    return Function(match["name"], match["result"].strip(), arguments, comment, line)


def parse(path):
    path = Path(path)
    text = path.read_text()
    name = str(path).rpartition("include/")[2]
    head = re.match(r"\s*/\*.*?\*/", text, re.S)
    first, _, description = comment_text(head.group()).partition("\n") if head else ("", "", "")
    title = first.removeprefix(f"{name} - ").rstrip(".") if first.startswith(f"{name} - ") else ""
    header = Header(path, name, title, description.strip())

    position = head.end() if head else 0
    for paragraph in re.split(r"\n[ \t]*\n", text[position:]):
        start = text.index(paragraph, position)
        position = start + len(paragraph)
        code = re.sub(r"/\*.*?\*/", "", paragraph, flags=re.S).strip()
        comment = re.match(r"\s*(/\*.*?\*/)", paragraph, re.S)
        declarations = list(re.finditer(r"^GVM_API\b[^;{]*;", paragraph, re.M))
        for m in declarations:
            line = text.count("\n", 0, start + m.start()) + 1
            function = parse_function(m.group(), comment_text(comment.group(1)) if comment else "", line)
            if function:
                header.functions.append(function)
        made = re.fullmatch(r"GVM_OPTIONS_INIT\((\w+)\)", code)
        if made:
            line = text.count("\n", 0, start) + 1
            about = comment_text(comment.group(1)) if comment else ""
            header.functions.append(Function(f"{made[1]}_init", made[1], ["void"], about, line, inline=True))
        if not declarations and re.match(r"typedef|struct|enum|#define GVM_\w+ [^\\]", code) and not re.search(r"\(X\)|__", code):
            header.types.append(paragraph.strip("\n"))
    return header


def table(path, macro):
    """The rows of an X-macro: lists of arguments, string literals without their quotes. [] if there
    is no such table."""
    path = Path(path)
    text = path.read_text() if path.exists() else ""
    body = re.search(rf"#define {macro}\(X\) \\\n((?:.*\\\n)*.*\n)", text)
    if not body:
        return []
    rows = []
    source = re.sub(r"/\*.*?\*/", "", body.group(1).replace("\\\n", "\n"), flags=re.S)
    argument = r'\s*((?:"(?:[^"\\]|\\.)*"\s*)+|[^",()]*(?:\([^()]*\)[^",()]*)*)\s*'
    for m in re.finditer(rf"\bX\({argument}((?:,{argument})*)\)", source):
        row = [m.group(1)] + [a.group(1) for a in re.finditer(rf",{argument}", m.group(2))]
        rows.append([literal(value) for value in row])
    return rows


def literal(value):
    """A C argument as text: adjacent string literals joined and unquoted, others as they are."""
    value = value.strip()
    if not value.startswith('"'):
        return value
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"', value)
    return "".join(parts).replace('\\"', '"').replace("\\\\", "\\")
