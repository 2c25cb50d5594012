#!/usr/bin/env python3
"""Builds the package of python/ against the build folder and runs its tests, python/tests: TAP, a line a test.

usage: run.py [PYTEST-ARGUMENT...]. BUILD says where the library was built (default build), PYTHON which interpreter is
taken; without it the first of python3 and /usr/bin/python3 that has headers, NumPy and pytest. Without one the tests are
skipped, but not in continuous integration (CI).
"""
import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("BUILD", PROJECT / "build")).resolve()
PLACE = BUILD / "python"
SITE = PLACE / "site"
FITS = """
import os, sys, sysconfig, numpy, pytest
sys.exit(sys.version_info < (3, 11) or not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
"""


def find_interpreter():
    for name in [os.environ["PYTHON"]] if "PYTHON" in os.environ else ["python3", "/usr/bin/python3"]:
        try:
            if subprocess.run([name, "-c", FITS], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                return subprocess.run([name, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=True).stdout.strip()
        except FileNotFoundError:
            pass
    return None


def build(python):
    """Into SITE. It is configured anew when another interpreter has come."""
    environ = {**os.environ, "PKG_CONFIG_PATH": str(BUILD / "meson-uninstalled")}
    native = PLACE / "native.ini"
    PLACE.mkdir(exist_ok=True)
    text = f"[binaries]\npython3 = '{python}'\n"
    if not (PLACE / "build.ninja").exists() or not native.exists() or native.read_text() != text:
        native.write_text(text)
        again = ["--wipe"] if (PLACE / "build.ninja").exists() else []
        yield ["meson", "setup", *again, f"-Dpython.purelibdir={SITE}", f"-Dpython.platlibdir={SITE}", "-Dwerror=true",
               "--native-file", str(native), str(PLACE), str(PROJECT / "python")], environ
    yield ["meson", "install", "-C", str(PLACE), "--quiet"], environ


class Tap:
    """Tells what pytest does."""

    def __init__(self):
        self.number = 0

    def pytest_addoption(self, parser):
        parser.addoption("--verbose", dest="verbose", default=0)  # which is the terminal's, and asked for elsewhere

    def pytest_collection_finish(self, session):
        print(f"1..{len(session.items)}", flush=True)

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or (report.when == "setup" and not report.passed):
            self.number += 1
            skipped = f" # SKIP {report.longrepr[2]}" if report.skipped else ""
            print(f"{'not ok' if report.failed else 'ok'} {self.number} - {report.nodeid.split('::', 1)[-1]}{skipped}", flush=True)
        if report.failed:
            if report.when == "teardown":
                print(f"Bail out! {report.nodeid}: fails in its end")
            print("\n".join(f"# {line}" for line in report.longreprtext.split("\n")), flush=True)

    def pytest_collectreport(self, report):
        if report.failed:
            print("Bail out! the tests cannot be read\n" + "\n".join(f"# {line}" for line in report.longreprtext.split("\n")), flush=True)


def main():
    if sys.argv[1:2] == ["--tests"]:
        import pytest

        return pytest.main(["-p", "no:terminal", "-p", "no:cacheprovider", str(PROJECT / "python/tests"), *sys.argv[2:]], plugins=[Tap()])
    python = find_interpreter()
    if python is None:
        why = "there is no Python from 3.11 on with headers, NumPy and pytest (Debian: python3-dev python3-numpy python3-pytest)"
        print(f"Bail out! {why}" if os.environ.get("CI") else f"1..0 # SKIP {why}")
        return 1 if os.environ.get("CI") else 0
    for command, environ in build(python):
        done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            print(f"Bail out! {' '.join(command)}\n" + "\n".join(f"# {line}" for line in done.stdout.split("\n")))
            return 1
    environ = {
        **os.environ,
        "BUILD": str(BUILD),
        "PYTHONPATH": str(SITE),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LD_LIBRARY_PATH": f"{BUILD}:{BUILD}/softgpu",
        "GVMEM_DRIVER": "soft",
        # Nothing that the machine's python3 has for its own user comes in between.
        "PYTHONNOUSERSITE": "1",
    }
    os.execve(python, [python, "-X", "dev", __file__, "--tests", *sys.argv[1:]], environ)


if __name__ == "__main__":
    sys.exit(main())
