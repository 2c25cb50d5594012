"""PyTorch's memory on GPUs from heaps, and models: modules and state dicts that many processes share and swap.

    gvmem.torch.use()                                        # before the first tensor on a GPU
    gvmem.torch.publish(module, "/llama")                    # in one process
    model = gvmem.torch.attach("/llama", module=other)       # in any other: its parameters are the shared tensors, without a copy
    model.sleep(); model.wake()                              # at the same addresses: graphs that were captured stay valid

A tensor that is touched while its model sleeps loses the CUDA context; on a software GPU the process ends (SIGSEGV). The same
happens when one is written: the tensors are read-only, which PyTorch cannot know. See docs/python.md.
"""
from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Mapping, Optional, Union

import torch

from . import _gvmem, models
from ._array import stream_number
from ._gvmem import Hold
from ._saver import SavedRegion
from ._saver import Saver as PlainSaver
from ._tensors import Layout, Source
from ._torch_allocator import use

__all__ = ["Model", "Saver", "attach", "publish", "use"]

_NAMES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "I16": "int16", "U16": "uint16", "F16": "float16", "BF16": "bfloat16", "I32": "int32", "U32": "uint32", "F32": "float32",
    "I64": "int64", "U64": "uint64", "F64": "float64", "C64": "complex64", "C128": "complex128",
}
_DTYPES = {name: getattr(torch, attribute) for name, attribute in _NAMES.items() if hasattr(torch, attribute)}  # as of its release
_TYPES = {dtype: name for name, dtype in _DTYPES.items()}


# ---- publishing


def _source(name: str, tensor: Any) -> Source:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f'"{name}" is of {type(tensor).__name__}, and a model has tensors alone')
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(f'"{name}" is {tensor.layout} on {tensor.device}{", quantized" if tensor.is_quantized else ""}: a model has '
                        "plain tensors in memory of the CPU or a GPU")
    if tensor.dtype not in _TYPES:
        raise TypeError(f'"{name}" is of {tensor.dtype}, which a model cannot have: view it as torch.uint8')
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.numel() and not tensor.data_ptr():
        raise TypeError(f'"{name}", of {type(tensor).__name__}, has no memory of its own: give its parts')
    device = None if tensor.device.type == "cpu" else tensor.device.index
    return Source(_TYPES[tensor.dtype], tuple(tensor.shape), tensor.stride(), tensor.data_ptr(), device, tensor)


def _make_dense(name: str, source: Source) -> Source:
    return _source(name, source.owner.contiguous())


def publish(model: Union[torch.nn.Module, Mapping[str, Any]], name: str, *, keeper: Any = None, version: str = "",
            metadata: Optional[Mapping[str, str]] = None, replace: bool = False, mode: int = 0o600,
            device: Union[int, str, torch.device, None] = None) -> None:
    """Makes a model of a module's state_dict(), or of any mapping of names to tensors, as models.publish() does.

    Tensors of a GPU are copied there, behind the work of its current stream. Tied ones stay tied. device: the GPU; None or "cuda": that
    of the tensors, or 0.
    """
    state = model.state_dict(keep_vars=True) if isinstance(model, torch.nn.Module) else model
    sources = {key: _source(key, value) for key, value in state.items()}
    place = device if isinstance(device, int) or device is None else torch.device(device)
    if isinstance(place, torch.device) and place.type != "cuda":
        raise ValueError(f"a model is on a GPU, and cannot be on {place}")
    number = place.index if isinstance(place, torch.device) else place
    on_gpu = next((source.device for source in sources.values() if source.device is not None), None)
    stream = None if on_gpu is None else stream_number(torch.cuda.current_stream(on_gpu))
    models.publish_sources(sources, name, keeper=keeper, version=version, metadata=metadata, replace=replace, mode=mode, device=number,
                           stream=stream, make_dense=_make_dense)


# ---- attaching


class Model(models.Model):
    """A model, attached by attach(): a mapping of names to tensors, for use while it is awake. As models.Model otherwise.

    Names that were tied have one tensor. A tensor keeps its address over sleep() and wake(), so modules and graphs that have it
    need not be made anew.
    """

    _writable = True  # PyTorch has no read-only tensors, and older releases of it refuse read-only arrays

    def __init__(self, *arguments: Any):
        """For attach()."""
        super().__init__(*arguments)
        self._tensors: dict[Layout, torch.Tensor] = {}
        self._parameters: dict[Layout, torch.nn.Parameter] = {}

    def _make(self, view: Hold, layout: Layout) -> Any:
        tensor = self._tensors.get(layout)
        if tensor is None:
            tensor = self._tensors.setdefault(layout, self._consume(view, layout))
        return tensor

    def _consume(self, view: Hold, layout: Layout) -> torch.Tensor:
        """As bytes, since DLPack has not all types in all releases."""
        dtype = _DTYPES.get(layout.dtype)
        if dtype is None:
            raise TypeError(f"PyTorch {torch.__version__} has no type {_NAMES[layout.dtype]}")
        super()._make(view, layout)  # checks that it is there, and aligned
        whole = torch.from_dlpack(view.array(0, self._start + layout.offset, "|u1", (layout.size,)))
        if not layout.size:
            return torch.empty(layout.shape, dtype=dtype, device=whole.device)
        flat = whole.view(dtype)
        return flat.view(layout.shape) if layout.strides is None else flat.as_strided(layout.shape, layout.strides)

    def load_into(self, module: torch.nn.Module, *, strict: bool = True) -> None:
        """Makes the tensors the parameters and buffers of a module, without a copy, and the parameters such as need no gradient.

        As module.load_state_dict(…, strict=strict, assign=True), but names that were tied are one parameter. The module may be on
        the device "meta" before. Buffers that it writes, as running means in training, are to be its own: clone them afterwards.
        A module that does not fit stays as it was.
        """
        kept = [(part, dict(part._parameters), dict(part._buffers)) for part in module.modules()]
        try:
            self._load_into(module, strict)
        except BaseException:
            for part, parameters, buffers in kept:
                part._parameters.update(parameters)
                part._buffers.update(buffers)
            raise

    def _load_into(self, module: torch.nn.Module, strict: bool) -> None:
        buffers = dict(module.named_buffers(remove_duplicate=False))
        state = {key: self[key] if key in buffers else self._parameter(key) for key in self}
        module.load_state_dict(state, strict=strict, assign=True)
        for parameter in self._parameters.values():
            parameter.requires_grad_(False)  # assigning made them as the module's were
        tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
        left = [key for key, tensor in tensors if tensor.is_meta]
        if left and strict:
            raise RuntimeError(f'the model "{self.name}" does not have what this module has on the device "meta": {", ".join(left)}; '
                               "buffers that are in no state_dict() are to be computed")

    def _parameter(self, key: str) -> torch.nn.Parameter:
        layout = self._layout[key]
        parameter = self._parameters.get(layout)
        if parameter is None:
            parameter = self._parameters.setdefault(layout, torch.nn.Parameter(self[key], requires_grad=False))
        return parameter

    def close(self) -> None:
        super().close()
        self._tensors.clear()
        self._parameters.clear()


def attach(name: str, *, module: Optional[torch.nn.Module] = None, strict: bool = True, keeper: Any = None, awake: bool = True,
           version: Optional[str] = None, mapped: bool = False, timeout: Optional[float] = None, hint: Optional[str] = "hot") -> Model:
    """Attaches a model: its tensors in place, at one address in all processes; as models.attach().

    module: one whose parameters and buffers they become (Model.load_into()). A module keeps an awake model awake, also when
    nothing else is left of that.
    """
    model: Model = models.attach_as(Model, name, keeper, version, mapped, hint)
    try:
        if awake:
            model.wake(timeout)
        if module is not None:
            with model.use(timeout=timeout):
                model.load_into(module, strict=strict)
    except BaseException:
        model.close()
        raise
    return model


# ---- private memory


# One for all Savers, never freed: a pool of PyTorch may free memory with it after its Saver is gone.
_allocators: list[torch.cuda.memory.CUDAPluggableAllocator] = []
# Savers from which tensors got memory: kept until close().
_used: set["Saver"] = set()


class Saver(PlainSaver):
    """Tensors whose memory this process gives up and has back at the same addresses, as torch_memory_saver's.

        saver = gvmem.torch.Saver()
        with saver.region("weights", enable_cpu_backup=True):
            net = Net().cuda()
        saver.pause("weights")     # others may have the memory; what touches net now loses the CUDA context
        saver.resume("weights")    # net is what it was, and CUDA graphs that use it replay

    In the block, what this thread allocates on the GPU is the region's, by a torch.cuda.MemPool for each tag. Tensors are to be
    gone before close(), until which it and its memory stay. See gvmem.Saver. Not where PyTorch's own allocator was replaced.
    """

    def __init__(self, keeper: Any = None, *, device: int = 0, reserve: Optional[int] = None, chunk: Optional[int] = None):
        backend = torch.cuda.memory.get_allocator_backend()
        if backend != "native":
            raise RuntimeError(f'the allocator of PyTorch is "{backend}", and only its own one, "native", has pools of others')
        super().__init__(keeper, device=device, reserve=reserve, chunk=chunk)
        if not _allocators:
            _allocators.append(torch.cuda.memory.CUDAPluggableAllocator(_gvmem.__file__, "gvmem_arena_alloc", "gvmem_arena_free"))
        self._pools: dict[str, torch.cuda.MemPool] = {}

    @contextmanager
    def region(self, tag: str = "default", enable_cpu_backup: bool = False) -> Iterator[SavedRegion]:
        """`with saver.region(tag):` tensors that are made in the block are given up and come back with this tag.

        enable_cpu_backup: whether they are what they were then; else they are zeros, and nothing is copied.
        """
        with super().region(tag, enable_cpu_backup) as region:
            pool = self._pools.get(tag)
            if pool is None:
                with torch.cuda.device(self._device):  # a pool is the current device's
                    pool = self._pools.setdefault(tag, torch.cuda.MemPool(_allocators[0].allocator()))
            _used.add(self)
            before = _gvmem.enter_arena(region._arena)
            try:
                with torch.cuda.use_mem_pool(pool, self._device):
                    yield region
            finally:
                _gvmem.enter_arena(before)

    def close(self) -> None:
        """Ends it, and all regions: their memory cannot be used any more."""
        self._pools.clear()
        super().close()
        _used.discard(self)
