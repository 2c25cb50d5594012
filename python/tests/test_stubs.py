"""Type stubs: they have what the modules have, and nothing else; what is public has types and a text."""
import ast
import inspect
from pathlib import Path

import pytest

import gvmem
from gvmem import _gvmem, errors

FOLDER = Path(gvmem.__file__).parent
OF_ALL = {"__class__", "__doc__", "__module__", "__new__", "__init__", "__dict__", "__weakref__"}


def read(name):
    """What a .pyi file declares: names of functions and values with None, those of classes with their members, inherited ones too."""
    found = {}
    for node in ast.parse((FOLDER / name).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = None
        elif isinstance(node, ast.AnnAssign):
            found[node.target.id] = None
        elif isinstance(node, ast.ClassDef):
            members = set()
            for base in node.bases:
                members |= found.get(base.id) or set() if isinstance(base, ast.Name) else set()
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    members.add(part.name)
                elif isinstance(part, ast.AnnAssign):
                    members.add(part.target.id)
            found[node.name] = members
    return {name: members for name, members in found.items() if not (name.startswith("_") and not name.startswith("__"))}


def members_of(made):
    """What a class adds to object, but for what no type checker needs to know."""
    return {name for name in vars(made)} - OF_ALL - {"__repr__", "__array__", "__release_buffer__"}


def test_stub_of_the_extension_is_what_it_has():
    stub = read("_gvmem.pyi")
    there = {name for name in vars(_gvmem) if not name.startswith("__")}
    assert set(stub) == there
    for name, members in stub.items():
        made = getattr(_gvmem, name)
        assert (members is not None) == isinstance(made, type), name
        if members is not None:
            wanted = set(members)
            if "__buffer__" in wanted and not hasattr(made, "__buffer__"):  # before Python 3.12 it has no name
                wanted.discard("__buffer__")
            assert wanted == members_of(made), name


def test_stub_of_errors_is_what_it_has():
    stub = read("errors.pyi")
    there = {name: made for name, made in vars(errors).items() if isinstance(made, type) and not name.startswith("_")}
    assert set(stub) == set(there)
    bases = {node.name: [base.id for base in node.bases]
             for node in ast.parse((FOLDER / "errors.pyi").read_text()).body if isinstance(node, ast.ClassDef)}
    for name, made in there.items():
        assert [base.__name__ for base in made.__bases__] == bases[name]


def public():
    for name, made in [(name, getattr(module, name)) for module in (gvmem, gvmem.models) for name in module.__all__]:
        yield name, made
        if isinstance(made, type) and made.__module__.startswith("gvmem"):
            for part, member in vars(made).items():
                if not part.startswith("_"):
                    yield f"{name}.{part}", member


@pytest.mark.parametrize("name, made", [pytest.param(*pair, id=pair[0]) for pair in public()])
def test_public_function_has_types(name, made):
    function = made.fget if isinstance(made, property) else made
    if not inspect.isfunction(function):
        return
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty, name
    for parameter in list(signature.parameters.values())[1 if "." in name else 0:]:
        assert parameter.annotation is not inspect.Parameter.empty, f"{name}: {parameter.name}"


def test_what_is_public_has_a_text():
    for name, made in public():
        if inspect.ismemberdescriptor(made) or inspect.ismodule(made) or not (
                callable(made) or isinstance(made, property) or inspect.isgetsetdescriptor(made)):
            continue
        assert made.__doc__, name
