"""RMM's memory from heaps: rmm.mr.set_current_device_resource(gvmem.rmm.resource())."""
from __future__ import annotations

from typing import Any

import rmm.mr

from . import _pools

__all__ = ["resource"]


def resource(device: int = 0) -> rmm.mr.CallbackMemoryResource:
    """A memory resource for a GPU. What is freed is used again when the work of the stream that RMM names then is done."""
    def take(size: int, stream: Any) -> int:
        return _pools.alloc(device, size, stream, ordered=False)

    def give(address: int, size: int, stream: Any) -> None:
        _pools.free(address, stream)

    return rmm.mr.CallbackMemoryResource(take, give)
