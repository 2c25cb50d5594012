#!/usr/bin/env python3
"""The comparison of libraries (scripts/abi.py), on small ones: what breaks programs is found, what does not is not.

usage: test_abi.py ABI-PY COMPILER... Exits with 77 where abidiff is missing.
"""
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK, *COMPILER = sys.argv[1:]

HEADER = """
#include <stddef.h>
typedef struct gvm_info {
    size_t struct_size;
    int first;
} gvm_info;
typedef struct gvm_pair {
    int first;
} gvm_pair;
int gvm_get(gvm_info *info, gvm_pair *pair);
int gvm_add(int a, int b);
"""
SOURCE = """
#include <gvmem/test.h>
int gvm_get(gvm_info *info, gvm_pair *pair) { return info->first + pair->first; }
int gvm_add(int a, int b) { return a + b; }
"""


class Abi(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def make(self, name, header, source):
        root = Path(self.folder.name) / name
        (root / "include/gvmem").mkdir(parents=True)
        (root / "include/gvmem/test.h").write_text(header)
        (root / "test.c").write_text(source)
        library = root / "libtest.so"
        subprocess.run([*COMPILER, "-g", "-shared", "-fPIC", "-Iinclude", "-Wl,-soname,libtest.so", "test.c", "-o", library], cwd=root, check=True)
        return library, root / "include/gvmem/test.h"

    def expect(self, code, header=HEADER, source=SOURCE):
        old, _ = self.make("old", HEADER, SOURCE)
        new, path = self.make("new", header, source)
        done = subprocess.run([sys.executable, CHECK, old, new, path], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)

    def test_same_library_passes(self):
        self.expect(0)

    def test_function_removed_fails(self):
        self.expect(1, HEADER.replace("int gvm_add(int a, int b);", ""), SOURCE.replace("int gvm_add", "static int gvm_add"))

    def test_function_added_passes(self):
        self.expect(0, HEADER + "int gvm_more(void);", SOURCE + "int gvm_more(void) { return 1; }")

    def test_parameter_changed_fails(self):
        self.expect(1, HEADER.replace("int a, int b", "int a, long b"), SOURCE.replace("int a, int b", "int a, long b"))

    def test_struct_with_its_size_grown_at_the_end_passes(self):
        self.expect(0, HEADER.replace("int first;\n} gvm_info", "int first;\n    long second;\n} gvm_info"))

    def test_struct_with_its_size_changed_inside_fails(self):
        self.expect(1, HEADER.replace("int first;\n} gvm_info", "long second;\n    int first;\n} gvm_info"))

    def test_struct_without_its_size_grown_fails(self):
        self.expect(1, HEADER.replace("int first;\n} gvm_pair", "int first;\n    long second;\n} gvm_pair"))


if __name__ == "__main__":
    if not shutil.which("abidiff"):
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
