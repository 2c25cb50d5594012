"""Memory of cuda.core from heaps: device.memory_resource = gvmem.cuda_core.MemoryResource(device.device_id)."""
from __future__ import annotations

from typing import Any

import cuda.core

from . import _pools

__all__ = ["MemoryResource"]


class MemoryResource(cuda.core.MemoryResource):
    """For the memory of a GPU. What is freed is used again when the work of the stream that it was freed with is done."""

    def __init__(self, device: int = 0):
        self._device = device

    def allocate(self, size: int, *, stream: Any) -> cuda.core.Buffer:
        address = _pools.alloc(self._device, size, stream, ordered=False)
        try:
            return cuda.core.Buffer.from_handle(address, size, mr=self, stream=stream)
        except BaseException:  # a stream that cuda.core does not take
            _pools.free(address, stream)
            raise

    def deallocate(self, ptr: Any, size: int, *, stream: Any) -> None:
        _pools.free(int(ptr), stream)

    is_device_accessible = property(lambda self: True)
    is_host_accessible = property(lambda self: False)
    is_managed = property(lambda self: False)
    device_id = property(lambda self: self._device)
