"""A keeper on a software GPU of the test's own, and other processes."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

BUILD = Path(os.environ.get("BUILD", "build")).resolve()
os.environ["GVMEM_SOFTGPU"] = f"devices=2,memory=256MiB,instance=python-{os.getpid()}"  # before the driver is loaded
MIB = 1 << 20
DEVICE_BUDGET = 32 * MIB

import gvmem  # noqa: E402


class KeeperProcess:
    def __init__(self, folder, host_budget="128M"):
        self.path = str(folder / "socket")
        ready, write = os.pipe()
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", BUILD / "tools/gvmem-keeper", "--socket", self.path, "--device-budget", str(DEVICE_BUDGET), "--host-budget", host_budget, "--lend", "none",
             "--ready-fd", str(write)], pass_fds=[write], stdout=subprocess.DEVNULL,
        )
        os.close(write)
        with open(ready, "rb") as said:
            assert said.readline(), "the keeper did not start"

    def stop(self):
        self.process.kill()
        self.process.wait()


running = []  # the keeper, for all tests; after one that failed, whose frames keep what they have, there is a new one


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    if outcome.get_result().failed:
        item.has_failed = True
        while running:
            running.pop().stop()


@pytest.fixture
def server(tmp_path):
    if not running:
        running.append(KeeperProcess(tmp_path))
    return running[0]


def pytest_unconfigure():
    while running:
        running.pop().stop()


@pytest.fixture
def own_server(tmp_path):
    """One that the test may stop or kill."""
    made = KeeperProcess(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def keeper(server, request):
    """A connection. Afterwards the keeper has nothing left but names: no test leaks a lease or a connection."""
    with gvmem.connect(server.path) as connection:
        yield connection
    if hasattr(request.node, "has_failed"):
        return
    with gvmem.connect(server.path) as after:
        left = after.snapshot()
        assert [info.name for info in left.objects] == [] and len(left.clients) == 1


class Child:
    """Another process that runs a program, to which lines are told and which prints lines."""

    def __init__(self, server, program, *arguments):
        self.process = subprocess.Popen([sys.executable, "-c", CHILD + program, server.path, *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)

    def read(self):
        return self.process.stdout.readline().strip()

    def tell(self, line=""):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self):
        self.process.stdin.close()
        left = self.process.stdout.read()
        self.process.stdout.close()
        return self.process.wait(), left.strip()


CHILD = """
import sys, gvmem, numpy
keeper = gvmem.connect(sys.argv[1])
def say(*words): print(*words, flush=True)
def wait(): sys.stdin.readline()
"""


@pytest.fixture
def start_child(server):
    children = []

    def start(program, *arguments):
        children.append(Child(server, program, *arguments))
        return children[-1]

    yield start
    for child in children:
        child.process.kill()
        child.process.wait()
        child.process.stdin.close()
        child.process.stdout.close()


@pytest.fixture
def token():
    """Of a table (id int, body text) of 1000 rows: 3 * row + 1, and a text in every other row."""
    with subprocess.Popen([BUILD / "tools/table_holder"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        yield holder.stdout.readline().strip()
