#!/usr/bin/env python3
"""Makes a wheel of the package gvmem, in BUILD-FOLDER/wheel, of a library that was built there: usage: wheel.py [BUILD-FOLDER]

It holds the extension module, for every CPython from 3.11 on but the free-threaded ones, with the library, its kernels and the
software GPU beside it. Refuses a library without kernels for real GPUs, which nvcc makes; with NOCUDA=1 in the environment it does
not, and the wheel's version says so. PYTHON says which interpreter the module is compiled against (default: this one). Prints the
wheel's path.
"""
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
SYSTEM = re.compile(r"lib(c|m|dl|rt|pthread)\.so\.\d|ld-linux-[a-z0-9-]+\.so\.\d|libgvmem\.so\..*")


def give_up(why):
    sys.exit(f"wheel.py: {why}")


def output_of(*command, **arguments):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **arguments)
    if done.returncode:
        give_up(f"{' '.join(map(str, command))} fails:\n{done.stdout}")
    return done.stdout


def find_kernels(library):
    """For which GPUs a library has kernels: "" for none."""
    program = f"import ctypes; f = ctypes.CDLL({str(library)!r}).gvm_kernel_architectures; f.restype = ctypes.c_char_p; print(f().decode())"
    return output_of(sys.executable, "-c", program).strip()


def build_module(build, place):
    """The package, installed to place/site; the module finds libraries beside itself."""
    native, folder, site = place / "native.ini", place / "module", place / "site"
    native.write_text(f"[binaries]\npython3 = '{os.environ.get('PYTHON', sys.executable)}'\n")
    environ = {**os.environ, "PKG_CONFIG_PATH": str(build / "meson-uninstalled")}
    output_of("meson", "setup", "--native-file", native, f"-Dpython.purelibdir={site}", f"-Dpython.platlibdir={site}",
              "-Dc_link_args=-Wl,-rpath,$ORIGIN", folder, PROJECT / "python", env=environ)
    output_of("meson", "install", "-C", folder, "--quiet", env=environ)
    return site


def find_tag(libraries):
    """The oldest system that has what they need."""
    newest = (2, 17)
    for library in libraries:
        about = output_of("readelf", "-dVW", library, env={**os.environ, "LC_ALL": "C"})
        for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", about):
            if not SYSTEM.fullmatch(needed):
                give_up(f"{library} needs {needed}, which not every system has")
        newest = max([newest, *(tuple(map(int, number.split(".")[:2])) for number in re.findall(r"GLIBC_([0-9.]+)", about))])
    return f"cp311-abi3-manylinux_{newest[0]}_{newest[1]}_{os.uname().machine}"


def metadata(project, version):
    page = re.sub(r"\[([^\]]*)\]\((?!#|\w+://)[^)]*\)", r"\1", (PROJECT / "docs/python.md").read_text(encoding="utf-8"))  # a link to a file leads nowhere
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version}", f"Summary: {project['description']}",
             f"License: {project['license']['text']}", f"Requires-Python: {project['requires-python']}",
             *(f"Classifier: {classifier}" for classifier in project["classifiers"]), "Description-Content-Type: text/markdown", ""]
    return "\n".join([*lines, page]).encode()


def pack(path, files, info):
    """files: {name: bytes}; info is the folder of the metadata. The same files make the same wheel."""
    record = f"{info}/RECORD"
    rows = [f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
            for name, data in files.items()]
    files = {**files, record: "\n".join([*rows, f"{record},,", ""]).encode()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100755 if ".so" in name else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)


def main():
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    build = Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
    version = output_of(PROJECT / "scripts/version.sh").strip()
    soname = f"libgvmem.so.{version.rsplit('.', 1)[0]}"
    sources = {soname: build / soname, "libgvmem-softgpu.so": build / "softgpu/libgvmem-softgpu.so"}
    for library in sources.values():
        if not library.exists():
            give_up(f"there is no {library}: build first")
    if not find_kernels(sources[soname]):
        if not os.environ.get("NOCUDA"):
            give_up(f"{sources[soname]} has no kernels for real GPUs: build it with nvcc, which make setup fetches; or set NOCUDA=1, for a "
                    "wheel that says in its version that it has none")
        version += "+nocuda"
    place = build / "wheel"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    package = build_module(build, place) / "gvmem"
    for name, library in sources.items():
        shutil.copy(library, package / name)
    for library in package.glob("*.so*"):
        output_of("strip", "--strip-debug", library)
    tag = find_tag(package.glob("*.so*"))
    project = tomllib.loads((PROJECT / "python/pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = f"gvmem-{version}.dist-info"
    files = {f"gvmem/{path.name}": path.read_bytes() for path in sorted(package.iterdir()) if path.is_file()}
    files[f"{info}/LICENSE"] = (PROJECT / "LICENSE").read_bytes()
    files[f"{info}/METADATA"] = metadata(project, version)
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: gvmem\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    wheel = place / f"gvmem-{version}-{tag}.whl"
    pack(wheel, files, info)
    print(wheel)


if __name__ == "__main__":
    main()
