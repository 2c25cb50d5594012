#!/usr/bin/env python3
"""Builds the package of python/ (package.py) and runs its tests, python/tests, by pytest: TAP, a line a test.

usage: run.py [PYTEST-ARGUMENT...]. Without an interpreter that fits the tests are skipped; in continuous integration (CI)
they fail.
"""
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import package  # noqa: E402


def comment(text):
    print("\n".join(f"# {line}" for line in text.split("\n")), flush=True)


class Tap:
    """Tells what pytest does."""

    def __init__(self):
        self.number = 0

    def pytest_addoption(self, parser):
        parser.addoption("--verbose", dest="verbose", default=0)  # which is the terminal's, and asked for elsewhere

    def pytest_collection_finish(self, session):
        print(f"1..{len(session.items)}", flush=True)

    def pytest_collectreport(self, report):
        if report.skipped:
            comment(f"{report.nodeid}: {report.longrepr[2]}")
        if report.failed:
            comment(report.longreprtext)
            print(f"Bail out! {report.nodeid} cannot be read", flush=True)

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.split("::", 1)[-1]
        if report.when == "call" or (report.when == "setup" and not report.passed):
            self.number += 1
            skipped = f" # SKIP {report.longrepr[2]}" if report.skipped else ""
            print(f"{'not ok' if report.failed else 'ok'} {self.number} - {name}{skipped}", flush=True)
        if report.failed:
            comment(report.longreprtext)
            if report.when == "teardown":
                print(f"Bail out! {name} leaves something behind", flush=True)


def main():
    if sys.argv[1:2] == ["--tests"]:
        import pytest

        tests = str(package.PROJECT / "python/tests")
        return pytest.main(["-p", "no:terminal", "-p", "no:cacheprovider", tests, *sys.argv[2:]], plugins=[Tap()])
    python = package.find_interpreter()
    if python is None:
        print(f"{'Bail out!' if os.environ.get('CI') else '1..0 # SKIP'} there is no {package.WANTED}")
        return 1 if os.environ.get("CI") else 0
    try:
        package.build(python)
    except package.BuildFailed as error:
        comment(str(error))
        print("Bail out! the package cannot be built")
        return 1
    environ = {**os.environ, **package.environment(), "BUILD": str(package.BUILD), "GVMEM_DRIVER": "soft"}
    os.execve(python, [python, "-X", "dev", __file__, "--tests", *sys.argv[1:]], environ)


if __name__ == "__main__":
    sys.exit(main())
