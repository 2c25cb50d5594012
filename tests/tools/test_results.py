#!/usr/bin/env python3
"""The sums of tests (scripts/test-results.py), of made-up logs.

usage: test_results.py TEST-RESULTS-PY
"""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = sys.argv[1]


class Results(unittest.TestCase):
    def run_on(self, *tests):
        """The lines for tests (name, result, output), and the exit status."""
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log.json"
            log.write_text("".join(json.dumps({"name": name, "result": result, "stdout": text}) + "\n" for name, result, text in tests))
            done = subprocess.run([sys.executable, PROGRAM, "--failures", "--skipped", log], stdout=subprocess.PIPE, text=True, check=False)
        return done.stdout.splitlines(), done.returncode

    def test_parts_are_counted_and_failures_named(self):
        said = self.run_on(("a", "OK", "1..2\nok 1 - x\nok 2 - y\n"), ("b", "FAIL", "1..2\nok 1 - x\nnot ok 2 - y\n"), ("c", "TIMEOUT", ""))
        self.assertEqual(said, (["failed: b: y", "failed: c: timeout", "3 passed, 2 failed"], 1))

    def test_skipped_ones_are_named_and_do_not_count(self):
        said = self.run_on(
            ("a", "OK", "1..2\nok 1 - x\nok 2 - y # SKIP no z\n"), ("b", "SKIP", "1..0 # SKIP no server\n"), ("c", "SKIP", ""),
            ("d", "OK", "[       OK ] x\n[  SKIPPED ] y\n[  SKIPPED ] 1 test(s), listed below:\n[  SKIPPED ] y\n"),
        )
        left_out = ["left out: a: y: no z", "left out: b: no server", "left out: c: it cannot be done here", "left out: d: y"]
        self.assertEqual(said, ([*left_out, "2 passed, 0 failed"], 0))

    def test_a_run_without_tests_fails(self):
        self.assertEqual(self.run_on(("a", "SKIP", "1..0 # SKIP no server\n"))[1], 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
