"""Heaps in the place of a framework's allocator: one a device, and more for pools and graphs (src/pools.h)."""
from __future__ import annotations

import re
from typing import Optional

from . import _gvmem
from ._heap import option

_SIZE = re.compile(r"\s*(\d+)\s*([KMGT]?)(?:iB|B)?\s*", re.I)


def parse_size(name: str, text: str) -> Optional[int]:
    """Of a setting: a size as the library takes it, or None for an empty one."""
    if not text:
        return None
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f'{name} is "{text}": it should be a size, such as 8GiB')
    return int(found[1]) << " KMGT".index(found[2].upper() or " ") * 10


def start(limit: Optional[int] = None, keep: Optional[int] = None, decay: Optional[float] = None) -> int:
    """Says how the heaps are made that are still to come: the address of the calls. What is None the settings say."""
    def setting(name: str) -> Optional[int]:
        return parse_size(name, _gvmem.setting(name))

    limit = setting("GVMEM_HEAP_LIMIT") if limit is None else limit
    keep = setting("GVMEM_HEAP_KEEP") if keep is None else keep
    decay_ms = setting("GVMEM_HEAP_DECAY") if decay is None else int(decay * 1000)
    if keep is not None:
        decay_ms = 0
    return _gvmem.pools_start(option(limit), option(keep), min(decay_ms or 0, 2**32 - 1))
