"""Heaps in the place of a framework's allocator: one a device, and more for pools and graphs (src/pools.h)."""
from __future__ import annotations

import re
from typing import Any, Callable, Optional

from . import _gvmem
from ._array import stream_number
from ._heap import option

_SIZE = re.compile(r"\s*(\d+)(?:\.(\d{1,6}))?\s*(?:([KMGT])i?)?B?\s*", re.I)


def parse_size(name: str, text: str) -> Optional[int]:
    """Of a setting: a size as the library takes it, or None for an empty one."""
    if not text:
        return None
    found = _SIZE.fullmatch(text)
    if found is not None:
        fraction = found[2] or ""
        size, rest = divmod(int(found[1] + fraction) << " KMGT".index((found[3] or " ").upper()) * 10, 10 ** len(fraction))
    if found is None or rest:
        raise ValueError(f'{name} is "{text}": it should be a size, such as 8GiB or 1.5G')
    return size


_devices: set[int] = set()  # that have given blocks by alloc()
_started = False
_DECAY_NONE = 2**32 - 1


def start(limit: Optional[int] = None, keep: Optional[int] = None, decay: Optional[float] = None, install: Optional[Callable[[int], None]] = None) -> None:
    """Says how the heaps are made that are still to come. What is None an earlier call has said, or the settings say. install is given the address
    of the calls first. Where anything fails, nothing is said."""
    global _started

    def setting(name: str) -> Optional[int]:
        return None if _started else parse_size(name, _gvmem.setting(name))

    limit = setting("GVMEM_HEAP_LIMIT") if limit is None else limit
    keep = setting("GVMEM_HEAP_KEEP") if keep is None else keep
    decay_ms = setting("GVMEM_HEAP_DECAY") if decay is None else int(decay * 1000)
    if keep is not None or decay_ms is None:
        said = 0
    else:
        said = min(decay_ms, _DECAY_NONE - 1) or _DECAY_NONE
    options = option(limit), option(keep), said
    calls = _gvmem.pools_start(*options, False)
    if install is not None:
        install(calls)
    _gvmem.pools_start(*options, True)
    _started = True


def alloc(device: int, size: int, stream: Any, ordered: bool = True) -> int:
    """The address of a block that work of the stream uses, or work that is ordered behind it; 0 for no bytes. GPUs that can reach
    each other's memory do, as these frameworks copy between them without a call of their allocators. Not ordered: the stream may
    be destroyed at any time; the block serves others when the work of the stream that it is freed with is done."""
    if device not in _devices:
        if not _started:
            start()
        for other in _devices - {device}:
            for giver, peer in ((device, other), (other, device)):
                try:
                    _gvmem.pools_grant(giver, peer)
                except NotImplementedError:
                    pass
        _devices.add(device)
    return _gvmem.pools_alloc(device, size, stream_number(stream), ordered)


def free(address: int, stream: Any = None) -> None:
    """Frees it behind the work of its stream, and of another one that has used it. One that is not ordered, freed without a stream, waits for
    all work of the GPU."""
    _gvmem.pools_free(address, stream_number(stream))
