"""The wheel: it is not made without kernels for real GPUs, and is whole by itself."""
import base64
import csv
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import gvmem
from conftest import BUILD

PROJECT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
import gvmem
assert not {"numpy", "torch", "cupy", "pyarrow", "numba"} & set(sys.modules), "it imports a framework"
driver = gvmem.driver()
print(driver.software, driver.path)
with gvmem.Buffer(1 << 20) as buffer:
    buffer.fill(b"\\x07")
    assert bytes(buffer[:3]) == b"\\7\\7\\7"
with gvmem.Space(budget=8 << 20) as space, space.collection(4, 1 << 20) as rows:
    with rows[1].write() as a: memoryview(a)[:2] = b"ab"
    space.sync()
    rows.prefetch()          # by kernels
    space.sync()
    assert rows.info().fetched == 4
"""


def make(**more):
    environ = {name: value for name, value in os.environ.items() if name != "NOCUDA"}
    return subprocess.run([sys.executable, PROJECT / "packaging/wheel.py", BUILD], env={**environ, "PYTHON": sys.executable, **more}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)


@pytest.fixture(scope="module")
def wheel():
    done = make(NOCUDA="1")
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def test_wheel_without_kernels_is_refused_or_says_so(wheel):
    done = make()
    if "+nocuda" not in wheel.name:
        assert done.returncode == 0
        pytest.skip("the library has kernels")
    assert done.returncode == 1 and "has no kernels for real GPUs: build it with nvcc" in done.stderr and not done.stdout
    assert wheel.exists()


def test_wheel_is_as_the_formats_have_it(wheel):
    assert re.fullmatch(rf"gvmem-{gvmem.__version__}(\+nocuda)?-cp311-abi3-manylinux_2_\d+_x86_64\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        info = next(name.split("/")[0] for name in archive.namelist() if name.endswith("/RECORD"))
        rows = list(csv.reader(archive.read(f"{info}/RECORD").decode().splitlines()))
        assert sorted(row[0] for row in rows) == sorted(archive.namelist())
        for name, digest, size in rows:
            data = archive.read(name)
            if not name.endswith("/RECORD"):
                assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode() and int(size) == len(data)
        about = archive.read(f"{info}/METADATA").decode()
        assert f"\nVersion: {info.removeprefix('gvmem-').removesuffix('.dist-info')}\n" in about and "\nRequires-Python: >= 3.11\n" in about
        assert "\n## Tables\n" in about and not re.search(r"\]\((?!#|https://)", about), "a link leads to a file, which the page of a wheel has not"
        tag = archive.read(f"{info}/WHEEL").decode().strip().rpartition(" ")[2]
        assert wheel.name.endswith(f"-{tag}.whl")
        wanted = {"gvmem/py.typed", "gvmem/_gvmem.pyi", "gvmem/errors.pyi", "gvmem/libgvmem-softgpu.so"}
        assert wanted <= set(archive.namelist())


@pytest.mark.parametrize("installer", ["pip", "unpacked"])
def test_wheel_works_with_nothing_else(wheel, tmp_path, installer):
    if installer == "unpacked":
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tmp_path)
    else:
        pip = [sys.executable, "-m", "pip"]
        if subprocess.run([*pip, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
            pytest.skip("there is no pip")
        subprocess.run([*pip, "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check", "--target", tmp_path, wheel], check=True)
    done = subprocess.run([sys.executable, "-c", PROGRAM], env={"PYTHONPATH": str(tmp_path), "GVMEM_DRIVER": "soft", "PATH": os.environ["PATH"]}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", str(tmp_path / "gvmem/libgvmem-softgpu.so")]
