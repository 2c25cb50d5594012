"""The package of python/, built against the build folder with an interpreter that fits.

usage: package.py PROGRAM [ARGUMENT...] builds it, if need be, and runs a program with it; that needs no pytest.

BUILD says where the library was built (default build), PYTHON which interpreter is taken; without it the first of python3 and
/usr/bin/python3 that fits.
"""
import fcntl
import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("BUILD", PROJECT / "build")).resolve()
PLACE = BUILD / "python"
SITE = PLACE / "site"
WANTED = "Python 3.11 or later with headers, NumPy and pytest (Debian: python3-dev python3-numpy python3-pytest)"
FITS = """
import os, sys, sysconfig, {modules}
if sys.version_info < (3, 11) or not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    sys.exit(1)
print(sys.executable)
"""


class BuildFailed(Exception):
    """What was said."""


def find_interpreter(modules="numpy, pytest"):
    """None if there is none."""
    for name in [os.environ["PYTHON"]] if "PYTHON" in os.environ else ["python3", "/usr/bin/python3"]:
        try:
            done = subprocess.run([name, "-c", FITS.format(modules=modules)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            return done.stdout.strip()
    return None


def run(*command):
    environ = {**os.environ, "PKG_CONFIG_PATH": str(BUILD / "meson-uninstalled")}
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise BuildFailed(f"{' '.join(command)}\n{done.stdout}")


def build(python):
    """Into SITE; configured anew when another interpreter is taken. One at a time: tests run side by side."""
    native = BUILD / "python.ini"
    text = f"[binaries]\npython3 = '{python}'\n"
    with open(BUILD / "python.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        there = (PLACE / "build.ninja").exists()
        if not there or not native.exists() or native.read_text() != text:
            native.write_text(text)
            run("meson", "setup", *(["--wipe"] if there else []), f"-Dpython.purelibdir={SITE}", f"-Dpython.platlibdir={SITE}",
                "-Dwerror=true", "--native-file", str(native), str(PLACE), str(PROJECT / "python"))
        run("meson", "install", "-C", str(PLACE), "--quiet", "--only-changed")  # what is there, others use meanwhile


def environment():
    """For an interpreter that is to find the package, and the library."""
    paths = [str(BUILD), str(BUILD / "softgpu"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    site = [str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": ":".join(site), "PYTHONDONTWRITEBYTECODE": "1", "LD_LIBRARY_PATH": ":".join(paths)}


def main():
    python = find_interpreter("numpy")
    if python is None:
        sys.exit(f"there is no {WANTED.replace(' and pytest', '').replace(' python3-pytest', '')}")
    try:
        build(python)
    except BuildFailed as error:
        sys.exit(f"the package cannot be built: {error}")
    os.execve(python, [python, *sys.argv[1:]], {**os.environ, **environment()})


if __name__ == "__main__":
    main()
