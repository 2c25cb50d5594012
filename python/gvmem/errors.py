"""Exceptions: a class for each status code of gvmem/status.h, by its name: Timeout for GVM_E_TIMEOUT.

All of them are Error; where Python has an exception of the same meaning they are that too, so that
`except TimeoutError` works.
"""
from . import _gvmem

_ALSO = {
    "GVM_E_INVALID": ValueError,
    "GVM_E_FOREIGN": ValueError,
    "GVM_E_ABSENT": FileNotFoundError,
    "GVM_E_SEALED": PermissionError,
    "GVM_E_READONLY": PermissionError,
    "GVM_E_IMPORTED": PermissionError,
    "GVM_E_EXISTS": FileExistsError,
    "GVM_E_DENIED": PermissionError,
    "GVM_E_NOMEM": MemoryError,
    "GVM_E_NOSPACE": MemoryError,
    "GVM_E_NOTSUP": NotImplementedError,
    "GVM_E_SETTING": ValueError,
    "GVM_E_PEER": ConnectionError,
    "GVM_E_TIMEOUT": TimeoutError,
    "GVM_E_KEEPER": ConnectionError,
    "GVM_E_SYSTEM": OSError,
}


class Error(RuntimeError):
    """A call of the library failed. The text says what was attempted, and what can be done."""

    status: int = 0
    """the code: 41"""
    name: str = ""
    """its name: "GVM_E_TIMEOUT\""""
    native_code: int = 0
    """of the driver or the system"""
    native_call: str = ""
    """which of their calls failed; "" if none did"""
    native_name: str = ""
    """what they call that code"""


def _make_classes():
    for name, status, _, text in _gvmem.statuses:
        if status:
            also = _ALSO.get(name)
            short = name.removeprefix("GVM_E_").capitalize()
            made = type(short, (Error, also) if also else (Error,), {"__doc__": text, "__module__": __name__, "status": status, "name": name})
            globals()[short] = _gvmem.errors[status] = made


_make_classes()
