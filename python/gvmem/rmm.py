"""RMM's memory from heaps: rmm.mr.set_current_device_resource(gvmem.rmm.resource())."""
from __future__ import annotations

from typing import Any

import rmm.mr

from . import _pools

__all__ = ["resource"]


def resource(device: int = 0) -> rmm.mr.CallbackMemoryResource:
    """A memory resource for a GPU. It takes and frees in the order of the streams that RMM names."""
    def take(size: int, stream: Any) -> int:
        return _pools.alloc(device, size, stream)

    def give(address: int, size: int, stream: Any) -> None:
        _pools.free(address, stream)

    return rmm.mr.CallbackMemoryResource(take, give)
