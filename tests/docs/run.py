#!/usr/bin/env python3
"""The examples of README.md and docs/*.md as tests. usage: run.py [PAGE...]; prints TAP, a line a block that is run.

A page is run from its top to its end, in a folder and in a database of its own, on the software GPU. Of its fenced blocks

    sql     runs in psql. It must not fail, unless the output that the page shows has the error.
    python  runs in an interpreter that has the package gvmem (tests/python/package.py); skipped without one.
    sh      runs in bash -eu, with the programs of the build folder and PostgreSQL's; cc warns as the library's build
            does, and stops there.
    c       is saved, where a comment names a file; a sh block of the page must compile it. Others are fragments:
            a comment names a file of preludes/, whose line BLOCK they replace, and they are compiled.
    text, and blocks without a language, are no examples, but for expected output.

A comment in the page's source right before a block says how it is run:

    <!-- file: NAME -->       saves the block, of any language, as NAME
    <!-- prelude: NAME -->    see above
    <!-- output -->           what the block before it prints, stdout and stderr; an ellipsis stands for any text
    <!-- not run: REASON -->  counted, and listed at the end
    <!-- needs: PROGRAM -->   skipped where the program is not found
    <!-- sql: STATEMENTS -->, <!-- sh: COMMANDS -->   run before the block, and not shown

BUILD says where the library was built (default build).
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parent / "postgres"), str(HERE.parent / "python")]
import package  # noqa: E402
import private  # noqa: E402
from private import BUILD, PROJECT, Failed  # noqa: E402

BLOCK_S = 300
COMMENT = re.compile(r"<!-- (file|prelude|output|not run|needs|sql|sh)(?:: (.*?))? -->", re.DOTALL)
FENCED = re.compile(r"((?:<!--(?:(?!-->).)*-->\s*)*)^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LAUNCH = re.compile(r"<<<.*?>>>")  # CUDA's syntax, which C does not have
STRICT = ["-Wall", "-Wextra", "-Werror"]


class Block:
    def __init__(self, page, match):
        self.comments = dict(COMMENT.findall(match[1]))
        self.language, self.text = match[2], match[3]
        self.line = page.count("\n", 0, match.start(2)) + 1
        self.output = None  # what the page says that it prints


def read_blocks(path):
    """The examples of a page, each with the output that belongs to it."""
    page, blocks = path.read_text(encoding="utf8"), []
    for match in FENCED.finditer(page):
        block = Block(page, match)
        if "output" in block.comments:
            blocks[-1].output = block.text
        elif block.comments or block.language not in ("", "text"):
            blocks.append(block)
    return blocks


def same(printed, wanted):
    """Line by line; an ellipsis in what is wanted stands for any text, also of several lines."""
    lines = (line.rstrip() for line in wanted.strip("\n").split("\n"))
    pattern = ".*".join(re.escape(part) for part in "\n".join(lines).split("…"))
    printed = "\n".join(line.rstrip() for line in printed.strip("\n").split("\n"))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


class Skipped(Exception):
    """Why a block cannot be run on this machine."""


class Page:
    def __init__(self, path, server, python):
        self.server = server
        self.sources = set()  # C files that no sh block has compiled yet
        self.folder = tempfile.TemporaryDirectory(prefix="gvmem-docs-")
        self.place = Path(self.folder.name)
        self.place.chmod(0o755)
        self.database = path.stem.lower()
        environ = server.environ if server else os.environ
        self.python = python
        programs = [str(self.make_programs()), f"{BUILD}/tools", *([server.bin] if server else [])]
        self.environ = {
            **environ,
            "PATH": ":".join([*programs, os.environ["PATH"]]),
            "PGDATABASE": self.database,
            "CPATH": str(PROJECT / "include"),  # where the system's compiler finds what is installed
            "PKG_CONFIG_PATH": f"{BUILD}/meson-uninstalled",
            "LD_LIBRARY_PATH": f"{BUILD}:{BUILD}/softgpu",
            "GVMEM_DRIVER": "soft",
            "GVMEM_KEEPER": str(self.place / "keeper.sock"),
        }
        if server:
            server.sql(f'CREATE DATABASE "{self.database}"')

    def make_programs(self):
        """A cc before the system's: warnings are errors, and what it compiles is noted. A python3 that finds the package."""
        folder = self.place / ".bin"
        folder.mkdir()
        compiler = folder / "cc"
        compiler.write_text(
            f'#!/bin/sh\nprintf \'%s\\n\' "$@" >>"{self.place}/.compiled"\nPATH="{os.environ["PATH"]}" exec {shutil.which("cc")} {" ".join(STRICT)} "$@"\n'
        )
        compiler.chmod(0o755)
        if self.python:
            words = " ".join(f"{name}='{value}'" for name, value in package.environment().items())
            (folder / "python3").write_text(f'#!/bin/sh\nexec env {words} {self.python} "$@"\n')
            (folder / "python3").chmod(0o755)
        return folder

    def run(self, block):
        comments = block.comments
        if "needs" in comments and not shutil.which(comments["needs"]):
            raise Skipped(f"there is no {comments['needs']}")
        if not self.server and (block.language == "sql" or "psql" in block.text or "sql" in comments):
            raise Skipped(private.why_not())
        if not self.python and (block.language == "python" or "python3" in block.text):
            raise Skipped(f"there is no {package.WANTED}")
        if "sql" in comments:
            self.psql(comments["sql"])
        if "sh" in comments:
            self.command("sh", comments["sh"])
        if "file" in comments:
            (self.place / comments["file"]).write_text(block.text, encoding="utf8")
            if block.language == "c" and "main(" in block.text:
                self.sources.add(comments["file"])
        elif block.language == "sql":
            self.check(block, self.psql(block.text, stop=block.output is None))
        elif block.language == "sh":
            self.check(block, self.command("sh", block.text))
        elif block.language == "python":
            self.check(block, self.command("python3", block.text, "-"))
        elif block.language == "c" and "prelude" in comments:
            self.compile(block.text, HERE / "preludes" / f"{comments['prelude']}.c.in")
        else:
            raise Failed(f"nothing says how to run a block of language {block.language!r}")

    def psql(self, text, stop=True):
        return self.command("psql", text, "-X", "-q", *(["-v", "ON_ERROR_STOP=1"] if stop else []))

    def command(self, program, text, *arguments):
        """What it prints; fails if it fails."""
        arguments = arguments or ("-eu",)
        program = {"sh": "bash"}.get(program, program)
        with open(self.place / ".printed", "w+", encoding="utf8") as printed:  # no pipe: a daemon may hold it
            done = subprocess.run(
                [shutil.which(program, path=self.environ["PATH"]), *arguments], input=text, stdout=printed, stderr=printed,
                env=self.environ, cwd=self.place, encoding="utf8", timeout=BLOCK_S,
            )
            printed.seek(0)
            said = printed.read()
        if done.returncode:
            raise Failed(f"exit status {done.returncode}\n{said}")
        return said

    def check(self, block, printed):
        if block.output is not None and not same(printed, block.output):
            raise Failed(f"it prints\n{printed}where the page has\n{block.output}")

    def compile(self, text, prelude):
        whole = prelude.read_text(encoding="utf8").replace("BLOCK\n", LAUNCH.sub("", text))
        (self.place / "fragment.c").write_text(whole, encoding="utf8")
        # A fragment looks at no result: the text around it says that programs do.
        self.command("sh", "cc -c -Wno-unused-result fragment.c -o fragment.o $(pkg-config --cflags gvmem)")

    def end(self):
        """Raises where a program was not compiled."""
        try:
            compiled = self.place / ".compiled"
            missed = self.sources - set(compiled.read_text().split("\n") if compiled.exists() else ())
            if missed:
                raise Failed(f"no sh block compiles {', '.join(sorted(missed))}")
        finally:
            if (self.place / "keeper.sock").exists():
                subprocess.run([f"{BUILD}/tools/gvmem", "keeper", "stop"], env=self.environ, check=False, capture_output=True)
            self.folder.cleanup()


class Report:
    def __init__(self):
        self.count, self.failed = 0, 0

    def ok(self, name, more=""):
        self.count += 1
        print(f"ok {self.count} - {name}{more}", flush=True)

    def not_ok(self, name, why):
        self.count, self.failed = self.count + 1, self.failed + 1
        print(f"not ok {self.count} - {name}")
        print("".join(f"# {line}\n" for line in str(why).splitlines()), end="", flush=True)


def run_page(path, server, python, report):
    """Returns the blocks that are not run."""
    blocks, left = read_blocks(path), []
    if not blocks:
        return left
    page = Page(path, server, python)
    for block in blocks:
        name = f"{path.relative_to(PROJECT)}:{block.line} {block.language}"
        if "not run" in block.comments:
            left.append(f"{name}: {block.comments['not run']}")
            continue
        try:
            page.run(block)
            if "file" not in block.comments:
                report.ok(name)
        except Skipped as why:
            report.ok(name, f" # SKIP {why}")
        except (Failed, OSError, subprocess.TimeoutExpired) as why:
            report.not_ok(name, why)
    try:
        page.end()
    except Failed as why:
        report.not_ok(f"{path.relative_to(PROJECT)}: programs", why)
    return left


def main():
    pages = [Path(name).resolve() for name in sys.argv[1:]] or [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
    os.environ.setdefault("GVMEM_SOFTGPU", f"devices=1,memory=4GiB,sms=2,instance=docs-{os.getpid()}")
    reason = private.why_not()
    if reason:
        print(f"# without PostgreSQL: {reason}")
    server = None if reason else private.Server("docs", "unix_socket_permissions=0777")
    python = package.find_interpreter()
    if python:
        package.build(python)
    elif os.environ.get("CI"):
        print(f"Bail out! there is no {package.WANTED}")
        return 1
    report, left = Report(), []
    try:
        for path in pages:
            left += run_page(path, server, python, report)
    finally:
        if server:
            server.end()
    print(f"1..{report.count}")
    print(f"# {len(left)} blocks are not run:")
    print("".join(f"#   {line}\n" for line in left), end="")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
