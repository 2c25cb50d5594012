"""PyTorch's allocator of CUDA memory (torch_allocator.cpp): compiled where it is used, once for each PyTorch, and loaded."""
from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Iterator, Optional

import torch

from . import _pools

_HERE = Path(__file__).parent
_SOURCES = ("torch_allocator.cpp", "pools.h", "_torch_allocator.py")
_CUDA_HEADERS = ("cuda_runtime.h", "crt/host_config.h")
_lock = threading.Lock()
_library: Optional[ctypes.CDLL] = None  # while it is in use, which is for ever


def _refuse(why: str) -> RuntimeError:
    return RuntimeError(f"gvmem.torch.use(): {why}")


def _compiler() -> str:
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise _refuse(f"its allocator is compiled on first use, and there is no C++ compiler ({', '.join(names)}): install g++, or set CXX")
    return found


def _cuda_folders() -> Iterator[Path]:
    """Where headers of the CUDA runtime may be: those that came with PyTorch first."""
    for path in map(Path, sys.path):
        yield path / f"nvidia/cu{(torch.version.cuda or '').split('.')[0]}/include"
        yield path / "nvidia/cuda_runtime/include"
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name], "include")
    nvcc = shutil.which("nvcc")
    if nvcc:
        yield Path(nvcc).resolve().parents[1] / "include"
    yield Path("/usr/local/cuda/include")
    for path in map(Path, sys.path):
        yield path / "triton/backends/nvidia/include"


def _cuda_headers() -> Path:
    """The first folder that is whole: a package of the runtime may come without the headers that it includes."""
    found = next((folder for folder in _cuda_folders() if all((folder / name).exists() for name in _CUDA_HEADERS)), None)
    if found is None:
        raise _refuse(f"its allocator is compiled on first use, and no folder has {' and '.join(_CUDA_HEADERS)}:"
                      " install nvidia-cuda-runtime and nvidia-cuda-crt by pip, or set CUDA_HOME")
    return found


def _standard_library() -> list[str]:
    """The one that PyTorch has loaded, ahead of the compiler's, which may be an archive: a second one in the process has locales and streams of its
    own, and crashes where it is given those of the first."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return list({line.split()[-1]: None for line in maps if "/libstdc++.so.6" in line})


def _arguments() -> list[str]:
    root = Path(torch.__file__).parent
    return ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
            "-isystem", str(root / "include"), "-isystem", str(root / "include/torch/csrc/api/include"), f"-I{_HERE}",
            str(_HERE / _SOURCES[0]), f"-L{root / 'lib'}", "-lc10_cuda", "-lc10", *_standard_library()]


def _cache_name() -> str:
    hashed = hashlib.sha256()
    for name in _SOURCES:
        hashed.update((_HERE / name).read_bytes())
    hashed.update(torch.version.git_version.encode())
    return f"torch-{torch.__version__}-abi{int(torch._C._GLIBCXX_USE_CXX11_ABI)}-{os.uname().machine}-{hashed.hexdigest()[:16]}.so"


def _compile(into: Path) -> None:
    """Whole, or not at all: other processes may do the same."""
    compiler, cuda = _compiler(), _cuda_headers()
    number, made = tempfile.mkstemp(suffix=".so", dir=into.parent)
    os.close(number)
    try:
        done = subprocess.run([compiler, *_arguments(), "-isystem", str(cuda), "-o", made], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        if done.returncode:
            line = next((line for line in done.stdout.splitlines() if "error" in line), done.stdout.strip() or "no reason is said")
            raise _refuse(f"{compiler} cannot compile its allocator for PyTorch {torch.__version__}: {line.strip()}")
        os.chmod(made, 0o755)
        os.rename(made, into)
    finally:
        Path(made).unlink(missing_ok=True)


def _load() -> ctypes.CDLL:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gvmem")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / _cache_name()
        if path.exists() or os.access(folder, os.W_OK):
            if not path.exists():
                _compile(path)
            return ctypes.CDLL(str(path))
    except OSError:
        if "path" in locals() and path.exists():  # it is there, and cannot be loaded
            raise
    with tempfile.TemporaryDirectory(prefix="gvmem-") as made:  # there is no place to keep it
        path = Path(made, _cache_name())
        _compile(path)
        return ctypes.CDLL(str(path))


def use(*, limit: Optional[int] = None, keep: Optional[int] = None, decay: Optional[float] = None) -> None:
    """Has all of PyTorch's memory on GPUs come from heaps of gvmem, from now on. Called before the first tensor on a GPU; again, it does nothing.

    limit: bytes that a GPU gives at most; None: GVMEM_HEAP_LIMIT, or what there is. keep: bytes of free memory that are kept; None: GVMEM_HEAP_KEEP,
    or what the last while has needed. decay: seconds for which free memory is kept at least; None: GVMEM_HEAP_DECAY, which is in
    milliseconds, or one second.

    The allocator is compiled on first use, in some seconds, and kept in XDG_CACHE_HOME, or ~/.cache. RuntimeError: there is no
    compiler, PyTorch has no CUDA, or has begun to use it.
    """
    global _library
    with _lock:
        if _library is not None:
            return
        if torch.version.cuda is None:
            raise _refuse(f"PyTorch {torch.__version__} is built without CUDA")
        if torch.cuda.is_initialized():
            raise _refuse("CUDA is initialized already: call it before the first tensor on a GPU")
        library = _load()
        call = library.gvmem_torch_install
        call.argtypes, call.restype = [ctypes.c_void_p], ctypes.c_char_p

        def install(calls: int) -> None:
            why = call(calls)
            if why is not None:
                raise _refuse(why.decode())

        _pools.start(limit, keep, decay, install)
        _library = library
