#!/usr/bin/env python3
"""Makes manual pages (mdoc) from the project's own tables and headers, so that none goes stale.

gen-man.py header HEADER -o PAGE [--see NAME...]    a page of section 3 from a public header
gen-man.py template FILE.in -o PAGE                 FILE.in with @ENVIRONMENT@ and @STATUS@ put in
gen-man.py aliases FOLDER HEADER...                 one page a function, pointing to its header's
                                                    page, under $MESON_INSTALL_DESTDIR_PREFIX; listed
                                                    beside meson's own list of what was installed
"""
import argparse
import os
import re
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import headers  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
STATUS = ROOT / "include/gvmem/status.h", "GVM_STATUS_TABLE"
OPTIONS = ROOT / "lib/base/options.h", "GVMI_OPTIONS"

REFERENCE = re.compile(r"(?P<open>\(?)(?P<name>gvm_\w+\(\)|GVMEM_[A-Z_]+|GVM_[A-Z0-9_]+)(?P<close>[.,;:)?!]*)")


def date_of(path):
    """The day the source last changed; SOURCE_DATE_EPOCH goes first, as in reproducible builds."""
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", path.stat().st_mtime))
    day = time.gmtime(seconds)
    return f"{time.strftime('%B', day)} {day.tm_mday}, {day.tm_year}"


def escape(text):
    text = text.replace("\\", "\\e")
    return re.sub(r"^([.'])", r"\\&\1", text)


def argument(text):
    """A macro argument: quoted, its quotes doubled."""
    return '"' + text.replace("\\", "\\e").replace('"', '""') + '"'


def prose(text):
    """A paragraph as mdoc lines. Names of functions, constants and variables become macros; two
    spaces are one; what the source broke is joined and broken again after sentences."""
    lines, words = [], []

    def flush():
        if words:
            lines.append(escape(" ".join(words)))
            words.clear()

    for word in text.split():
        match = REFERENCE.fullmatch(word)
        if not match:
            words.append(word)
            if re.search(r"[.!?][)\"]*$", word) and not re.fullmatch(r"e\.g\.|i\.e\.|\d+\.", word):
                flush()
            continue
        flush()
        name = match["name"]
        macro = "Fn" if name.endswith("()") else "Ev" if name.startswith("GVMEM_") else "Dv"
        parts = [f".{macro}", match["open"], name.removesuffix("()"), *match["close"]]
        lines.append(" ".join(part for part in parts if part))
    flush()
    return lines


ERROR = re.compile(r"((?:GVM_E_\w+|GVM_OK)(?:, (?:GVM_E_\w+))*)  +(\S.*)")

RULE = re.compile(r" ?\d+\. ")  # "1. a rule", its further lines indented
LABEL = re.compile(r"[A-Z][\w ]{2,60}: ")  # "Threads: any thread may call"


def body(text):
    """A comment's text as mdoc: paragraphs, error lists, code and numbered rules."""
    out, paragraph, errors = [], [], []

    def end_paragraph():
        if paragraph:
            out.extend(prose(" ".join(paragraph)))
            paragraph.clear()

    def end_errors():
        if errors:
            out.append(".Bl -tag -width Er -compact")
            for code, meaning in errors:
                out.append(".It " + " , ".join(f"Dv {name}" for name in code.split(", ")))
                out.extend(prose(meaning))
            out.append(".El")
            errors.clear()

    def blank():
        if out and out[-1] != ".Pp":
            out.append(".Pp")

    lines = text.split("\n")
    i = 0
    while i < len(lines):
        line = lines[i]
        error = ERROR.fullmatch(line)
        if error:
            end_paragraph()
            if not errors:
                blank()
            errors.append([error.group(1), error.group(2)])
        elif errors and line.startswith(" "):
            errors[-1][1] += " " + line.strip()
        elif RULE.match(line):
            end_paragraph()
            end_errors()
            blank()
            paragraph.append(line.strip())
            while i + 1 < len(lines) and lines[i + 1].startswith("    "):
                i += 1
                paragraph.append(lines[i].strip())
        elif line.startswith("    ") or re.match(r" +\w+  ", line):
            # Indented: code or a small table, kept as it is.
            end_paragraph()
            end_errors()
            if out and out[-1] == ".Pp":
                out.pop()
            out.append(".Bd -literal -offset indent")
            while i < len(lines) and (lines[i].startswith("  ") or (not lines[i] and "".join(lines[i + 1 : i + 2])[:4] == "    ")):
                out.append(escape(lines[i].removeprefix("    ")))
                i += 1
            while out[-1] == "":
                out.pop()
            out += [".Ed", ".Pp"]
            continue
        elif not line:
            end_paragraph()
            end_errors()
            blank()
        else:
            if errors:
                end_errors()
                blank()
            if LABEL.match(line) and paragraph:
                end_paragraph()
                blank()
            paragraph.append(line.strip())
        i += 1
    end_paragraph()
    end_errors()
    while out and out[-1] == ".Pp":
        out.pop()
    return out


def function_synopsis(function):
    lines = [f".Ft {argument(function.result)}", f".Fo {function.name}"]
    lines += [f".Fa {argument(a)}" for a in function.arguments]
    return lines + [".Fc"]


def status_list():
    lines = [".Bl -tag -width Er"]
    for name, value, sqlstate, text in headers.table(*STATUS):
        lines.append(f".It Dv {name} Pq {value}, SQLSTATE {sqlstate}")
        lines += prose(text[0].upper() + text[1:] + ".")
    return lines + [".El"]


def environment_list():
    lines = [".Bl -tag -width Ds"]
    for name, default, text in (row[:3] for row in headers.table(*OPTIONS)):
        lines.append(f".It Ev {name}")
        lines += prose(text[0].upper() + text[1:] + ".")
        lines.append(f"Default: {escape(default)}." if default else "Default: not set.")
    return lines + [".El"]


def library_of(name):
    """What a program that calls these functions is linked with."""
    if name == "gvmem/keeper.h":
        return "keeper of GPU memory (libgvmem-keeper, \\-lgvmem-keeper)"
    return "GPU virtual memory (libgvmem, \\-lgvmem)"


def header_page(path, see):
    header = headers.parse(path)
    if not header.title:
        sys.exit(f"{path}:1: the head comment must start with \"{header.name} - what it is\"")
    lines = [f".Dd {date_of(path)}", f".Dt {header.page.upper()} 3", ".Os", ".Sh NAME", f".Nm {header.page}"]
    lines += [f".Nd {escape(header.title)}", ".Sh LIBRARY", library_of(header.name)]
    lines += [".Sh SYNOPSIS", f".In {header.name}"]
    for function in header.functions:
        lines += function_synopsis(function)
    lines += [".Sh DESCRIPTION"] + body(header.description)
    done = set()
    for function in header.functions:
        if function.comment in done or not function.comment:  # then the head comment describes it
            continue
        done.add(function.comment)
        group = [f.name for f in header.functions if f.comment == function.comment]
        lines += [".Ss " + ", ".join(f"{name}()" for name in group)] + body(function.comment)
    if path.samefile(STATUS[0]):
        lines += [".Sh STATUS CODES"] + status_list()
    if header.types:
        lines += [".Sh TYPES", ".Bd -literal"]
        for number, paragraph in enumerate(header.types):
            lines += [""] * (number > 0) + [escape(line) for line in paragraph.split("\n")]
        lines += [".Ed"]
    if any(f.result == "gvm_status" for f in header.functions):
        lines += [".Sh RETURN VALUES"]
        lines += prose(
            "Functions of type gvm_status return GVM_OK on success. On failure they return the code listed and leave their outputs "
            "untouched; gvm_error_last() has what the driver or the system reported and what can be done."
        )
    pages = sorted({f"{name} 3" for name in see if name != header.page}) + ["gvmem 7"]
    lines += [".Sh SEE ALSO"] + [f".Xr {page} ," for page in pages[:-1]] + [f".Xr {pages[-1]}"]
    return lines


def template_page(path):
    fill = {"@ENVIRONMENT@": environment_list, "@STATUS@": status_list, "@DATE@": lambda: [date_of(path)]}
    lines = []
    for line in path.read_text().rstrip("\n").split("\n"):
        if line == ".Dd @DATE@":
            lines.append(f".Dd {date_of(path)}")
        else:
            lines += fill[line]() if line in fill else [line]
    return lines


def install_aliases(folder, paths):
    target = Path(os.environ.get("MESON_INSTALL_DESTDIR_PREFIX", "/usr/local")) / folder
    target.mkdir(parents=True, exist_ok=True)
    with_page = [headers.parse(ROOT / path) for path in paths if "detail" not in path.parts]
    pages = {target / f"{f.name}.3": h.page for h in with_page for f in h.functions}
    for alias, page in pages.items():
        alias.write_text(f".so man3/{page}.3\n")
    log = Path(os.environ.get("MESON_BUILD_ROOT", ".")) / "meson-logs/install-aliases.txt"
    log.write_text("".join(f"{alias}\n" for alias in pages))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("header", "template"):
        command = commands.add_parser(name)
        command.add_argument("source", type=Path)
        command.add_argument("-o", "--output", type=Path, required=True)
        command.add_argument("--see", nargs="*", default=[])
    command = commands.add_parser("aliases")
    command.add_argument("folder")
    command.add_argument("headers", nargs="+", type=Path)
    options = parser.parse_args()

    if options.command == "aliases":
        install_aliases(options.folder, options.headers)
        return
    make = (lambda: header_page(options.source, options.see)) if options.command == "header" else (lambda: template_page(options.source))
    options.output.write_text("\n".join(make()) + "\n")


if __name__ == "__main__":
    main()
