"""A benchmark of this folder as a module, though its name has hyphens."""
import importlib.util
from pathlib import Path


def neighbour(name):
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), Path(__file__).resolve().parent / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
