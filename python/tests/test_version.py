"""A library of another version is refused, by a sentence that names both; and so are other interpreters of a process."""
import os
import re
import subprocess
import sys

import pytest

import gvmem

OWN = [int(part) for part in gvmem.__version__.split(".")]
BEFORE = (OWN[0], OWN[1] - 1) if OWN[1] > 0 else (OWN[0] - 1, 99)  # the minor version


def import_beside(folder, version):
    """An interpreter that finds a gvm_version() which says so."""
    source, library = folder / "version.c", folder / "libversion.so"
    source.write_text(f"unsigned gvm_version(void) {{ return {version}; }}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return subprocess.run([sys.executable, "-c", "import gvmem; print(gvmem.__version__)"], env={**os.environ, "LD_PRELOAD": str(library)},
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


@pytest.mark.parametrize("major, minor, patch, taken", [
    (*OWN, True), (*OWN[:2], OWN[2] + 1, True), (OWN[0], OWN[1] + 1, 0, False), (*BEFORE, 99, False), (OWN[0] + 1, *OWN[1:], False), (0, 0, 0, False),
])
def test_library_of_another_version_is_refused(tmp_path, major, minor, patch, taken):
    done = import_beside(tmp_path, major * 10000 + minor * 100 + patch)
    if taken:
        assert (done.returncode, done.stdout.strip()) == (0, f"{major}.{minor}.{patch}"), done.stderr
        return
    assert done.returncode == 1
    assert re.search(rf"ImportError: the package gvmem is of version {gvmem.__version__}, and the library that was loaded, \S*libversion.so, of version "
                     rf"{major}\.{minor}\.{patch}: install both", done.stderr), done.stderr


ELSEWHERE = r"""
import sys, gvmem
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
program = "import sys; sys.path[:] = %r\ntry: import gvmem\nexcept ImportError as error: print(error, flush=True)" % (sys.path,)
interpreters.run_string(interpreters.create(), program)
def fail(module):
    try:
        module.Heap().alloc(1 << 50)
    except gvmem.errors.Invalid:
        print("caught")
old = gvmem
fail(old)
for name in [name for name in sys.modules if name.split(".")[0] == "gvmem"]:
    del sys.modules[name]
import gvmem
fail(old), fail(gvmem)
"""


def test_other_interpreter_is_refused():
    """It would have the classes of errors to itself. Imported again in the main one, the module is what it was."""
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    refused = "the main interpreter alone", "does not support loading in subinterpreters"  # by the module, by Python 3.12 and later
    assert any(text in lines[0] for text in refused) and lines[1:] == ["caught"] * 3, done.stdout
