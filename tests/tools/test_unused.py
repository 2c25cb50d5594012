#!/usr/bin/env python3
"""The lint's check for names that nobody uses (scripts/unused.py), on made-up folders.

usage: test_unused.py UNUSED-PY COMPILER...
"""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK, *COMPILER = sys.argv[1:]


class Unused(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.commands = []
        self.addCleanup(self.folder.cleanup)
        (self.root / "build").mkdir()

    def add(self, file, text):
        source, output = self.root / file, self.root / "build" / f"{Path(file).name}.o"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        subprocess.run([*COMPILER, "-fPIC", "-c", source, "-o", output], check=True)
        self.commands.append({"directory": str(self.root / "build"), "file": f"../{file}", "output": output.name})
        return output

    def expect(self, code, said=""):
        (self.root / "build/compile_commands.json").write_text(json.dumps(self.commands))
        done = subprocess.run([CHECK, "build"], cwd=self.root, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stdout, said)

    def test_name_without_user_is_a_finding(self):
        self.add("part/one.c", "int one(void); int one(void) { return 1; }")
        self.expect(1, "part/one.c:1: no other file uses one; make it static, or remove it\n")

    def test_name_used_by_a_test_is_no_finding(self):
        self.add("part/one.c", "int one(void); int one(void) { return 1; }")
        self.add("tests/two.c", "int one(void); int main(void) { return one(); }")
        self.expect(0)

    def test_name_that_a_test_defines_is_no_finding(self):
        self.add("tests/one.c", "int one(void); int one(void) { return 1; }")
        self.expect(0)

    def test_name_exported_is_no_finding(self):
        output = self.add("part/one.c", "int one(void); int one(void) { return 1; }")
        subprocess.run([*COMPILER, "-shared", output, "-o", self.root / "build/libone.so"], check=True)
        self.expect(0)

    def test_static_name_is_no_finding(self):
        self.add("part/one.c", "static int one(void) { return 1; } int main(void) { return one(); }")
        self.expect(0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
