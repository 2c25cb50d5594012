"""Reads the public headers and the project's tables, for export map, manual pages and lint.

The headers keep a form (CONTRIBUTING.md) that makes this possible without a C parser: a declaration
starts with GVM_API at the start of a line and ends with a semicolon; the comment above it documents
it and the declarations after it up to a blank line. GVM_OPTIONS_INIT(type) declares type_init(). Functions that are compiled with
the program begin with GVM_DEVICE (in kernels) or RSVM_CALL, and may have a body. Tables are X-macros, one row a line:
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


INSIDE = re.compile(r"gvm_(soft|hide)_|rsvm_find$")  # begins as a function that programs call, and is none


def comment_text(raw):
    """The text of a /* */ comment without its frame of stars."""
    lines = [re.sub(r"^ \* ?", "", line) for line in raw.strip()[2:-2].split("\n")]
    return "\n".join(line.rstrip() for line in lines).strip()


def parse_function(text, comment, line):
    text = re.sub(r"^(GVM_API|GVM_DEVICE|RSVM_CALL) ", "", " ".join(text.split())).removeprefix("GVM_CHECKED ").rstrip(";")
    text = re.sub(r"^GVM_PRINTF\(\d, \d\) ", "", text)
    match = re.match(r"(?P<result>.*?)(?P<name>\w+)\s*\((?P<arguments>.*?)\)[^()]*$", text)
    if not match:
        return None
    arguments = [a.strip() for a in match["arguments"].split(",")]
    return Function(match["name"], match["result"].strip(), arguments, comment, line)


def expand(text):
    """The text with the macros that define functions of kernels in their places."""
    define = re.compile(r"^#define (\w+)\(([^)]*)\) \\\n((?:.*\\\n)*.*GVM_DEVICE(?:.*\\\n)*.*)\n", re.M)
    while found := list(define.finditer(text)):
        macro = found[-1]  # of the last one first: it may use those before it
        name, names, body = macro[1], [n.strip() for n in macro[2].split(",")], re.sub(r" *\\$", "", macro[3], flags=re.M)

        def put(use):
            values = dict(zip(names, (v.strip() for v in use[2].split(","))))
            filled = re.sub(r"\w+", lambda word: values.get(word[0], word[0]), body)
            return re.sub(r"^" + re.match(r" *", filled)[0], "", filled.replace("##", ""), flags=re.M) + "\n"

        text = text[: macro.start()] + re.sub(rf"^( *){name}\((.*)\).*\n", put, text[macro.end() :], flags=re.M)
    return text


def inline_functions(whole):
    """The functions that are compiled with the program, each once: where it has a comment, if it has one anywhere."""
    found, comment = {}, ""
    text = re.sub(r"\A\s*/\*.*?\*/", "", whole, flags=re.S)  # the head comment
    text = re.sub(r"^#elif .*?^#endif", "", text, flags=re.M | re.S)  # the same functions once more
    parts = re.finditer(r"^/\*.*?\*/|\n[ \t]*(?=\n)|^(?:GVM_DEVICE|RSVM_CALL)\b[^;{=]*?\)(?=;|\s*\{)", expand(text), re.M | re.S)
    for part in parts:
        if part[0].startswith("/*"):
            comment = comment_text(part[0])
        elif not part[0].strip():
            comment = ""
        elif function := parse_function(part[0], comment, whole.count("\n", 0, max(0, whole.find(part[0]))) + 1):
            function.inline = True
            if not INSIDE.match(function.name) and not (function.name in found and found[function.name].comment):
                found[function.name] = function
    return list(found.values())


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
        if code.startswith("typedef") and "GVM_DEVICE" in paragraph:  # its comment is that of the functions
            paragraph = re.sub(r"^GVM_DEVICE\b[^;{]*;\n?", "", paragraph[comment.end() :] if comment else paragraph, flags=re.M)
        if not declarations and re.match(r"typedef|struct|enum|#define GVM_\w+ [^\\]", code) and not re.search(r"\(X\)|__", code):
            header.types.append(paragraph.strip("\n"))
        scopes = re.findall(r"^#define (\w+_SCOPE\w*)(\([^)]*\))", paragraph, re.M)
        if scopes and comment:  # macros with a body that no page needs
            heads = [f"{name}{arguments}" for name, arguments in scopes if not name.endswith("_BY")]
            header.types.append("\n".join([comment.group(1)] + heads))
    header.functions += inline_functions(text)
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
