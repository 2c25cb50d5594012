#!/usr/bin/env python3
"""The lint's check for circles of calls (scripts/circles.py), on made-up folders.

usage: test_circles.py CIRCLES-PY COMPILER...
Each case writes a tree of sources, compiles it as meson or PGXS do, and looks at what the check says.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK, *COMPILER = sys.argv[1:]

# one.c and two.c call each other; three.c calls both.
PAIR = {
    "one.c": "void one(void); void two(void); void one(void) { two(); }",
    "two.c": "void one(void); void two(void); void two(void) { one(); }",
    "three.c": "void one(void); void two(void); void three(void); void three(void) { one(); two(); }",
}
EXPLAINED = "/* both.h - what they share.\n *\n * Circle: one.c and two.c call\n * each other, because one is not without the other.\n */\n"


class Circles(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.build = self.root / "build"
        self.build.mkdir()
        self.commands = []
        self.addCleanup(self.folder.cleanup)

    def write(self, folder, files):
        (self.root / folder).mkdir(exist_ok=True)
        for name, text in files.items():
            (self.root / folder / name).write_text(text)

    def compile(self, source, output):
        output.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([*COMPILER, "-c", self.root / source, "-o", output], check=True)

    def add(self, folder, files):
        """A folder that meson builds."""
        self.write(folder, files)
        for name in files:
            if name.endswith(".c"):
                output = f"{folder}.p/{name}.o"
                self.compile(f"{folder}/{name}", self.build / output)
                self.commands.append({"directory": str(self.build), "file": f"../{folder}/{name}", "output": output})

    def add_postgres(self, files):
        """The extension, which is not built."""
        objects = " ".join(f"{name[:-2]}.o" for name in files if name.endswith(".c"))
        self.write("postgres", {"Makefile": f"OBJS = {objects}\n", **files})

    def build_postgres(self):
        for source in (self.root / "postgres").glob("*.c"):
            self.compile(source.relative_to(self.root), self.build / "postgres/15" / f"{source.stem}.o")

    def expect(self, code, *said):
        (self.build / "compile_commands.json").write_text(json.dumps(self.commands))
        done = subprocess.run([CHECK, "build"], cwd=self.root, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), len(said), done.stdout)
        for line, part in zip(done.stdout.splitlines(), said):
            self.assertIn(part, line)

    def test_calls_one_way_are_no_finding(self):
        self.add("part", {"one.c": PAIR["one.c"], "two.c": "void two(void); void two(void) {}"})
        self.expect(0)

    def test_circle_is_a_finding(self):
        self.add("part", PAIR)
        self.expect(1, "part/one.c:1: it uses two of two.c, which uses one of one.c; ")

    def test_circle_between_folders_is_no_finding(self):
        self.add("left", {"one.c": PAIR["one.c"]})
        self.add("right", {"two.c": PAIR["two.c"]})
        self.expect(0)

    def test_circle_by_a_variable_is_a_finding(self):
        self.add("part", {
            "one.c": "extern void (*table)(void); void one(void); void one(void) { table(); }",
            "two.c": "void one(void); void (*table)(void) = one;",
        })
        self.expect(1, "table of two.c")

    def test_circle_explained_is_no_finding(self):
        self.add("part", {**PAIR, "both.h": EXPLAINED})
        self.expect(0)

    def test_circle_explained_elsewhere_is_a_finding(self):
        self.add("part", PAIR)
        self.add("other", {"both.h": EXPLAINED, "four.c": "void four(void); void four(void) {}"})
        self.expect(1, "other/both.h:1: one.c and two.c are no circle", "part/one.c:1: ")

    def test_circle_larger_than_explained_is_a_finding(self):
        self.add("part", {**PAIR, "both.h": EXPLAINED, "one.c": PAIR["one.c"] + " void three(void); void four(void) { three(); }"})
        self.expect(1, "Circle: one.c, three.c and two.c call", "part/both.h:1: one.c and two.c are no circle")

    def test_circle_explained_that_is_gone_is_a_finding(self):
        self.add("part", {**PAIR, "both.h": EXPLAINED, "two.c": "void two(void); void two(void) {}"})
        self.expect(1, "part/both.h:1: one.c and two.c are no circle")

    def test_circle_explained_without_a_reason_is_a_finding(self):
        self.add("part", {**PAIR, "both.h": "/* Circle: one.c and two.c call each other. */\n"})
        self.expect(1, 'part/both.h:1: cannot read what follows "Circle:"', "part/one.c:1: ")

    def test_object_that_is_missing_is_a_finding(self):
        self.add("part", PAIR)
        (self.build / "part.p/two.c.o").unlink()
        self.expect(1, "part/two.c:1: it has no object")

    def test_postgres_that_is_not_built_is_said(self):
        self.add_postgres(PAIR)
        self.expect(77, "postgres/ has not been built")

    def test_postgres_that_was_changed_since_is_said(self):
        self.add_postgres(PAIR)
        self.build_postgres()
        os.utime(self.root / "postgres/two.c", (2**31, 2**31))
        self.expect(77, "postgres/ has not been built")

    def test_postgres_that_is_built_is_checked(self):
        self.add_postgres(PAIR)
        self.build_postgres()
        self.expect(1, "postgres/one.c:1: it uses two of two.c")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
