"""Models that many processes share and swap: tensors by name, in one object of a keeper.

    gvmem.models.publish({"w": array}, "/llama")     # in one process
    model = gvmem.models.attach("/llama")            # in any other
    total = cupy.asarray(model["w"]).sum()           # no copy, and at one address

A tensor that is touched while its model sleeps loses the CUDA context; on a software GPU the process ends (SIGSEGV). sleep() gives
the memory to others, wake() brings the model back, and addresses stay. gvmem.torch has the same for PyTorch. See
docs/python.md.
"""
from __future__ import annotations

import threading
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional

from . import _gvmem, errors
from ._array import stream_number
from ._keeper import Info, Keeper, Object, connect, hint_number
from ._load import copy_pieces
from ._tensors import (
    TYPES, Block, File, Layout, Source, Tensor, lay_out, lay_out_files, make_dense, read_header, read_length, read_source, write_header)
from ._wait import make_lock, run_with_lease

__all__ = ["Layout", "Model", "Tensor", "attach", "publish", "publish_files"]

_MARK = b"gvmem-model 1 "  # an object's metadata: that, how many tensors, and the version behind a space; gvmem models reads it
_VERSION_BYTES_MAX = 32
_HEADER_USUAL_BYTES = 64 << 10


# ---- publishing


@contextmanager
def _connection(keeper: Any) -> Iterator[Keeper]:
    """The caller's, or one for the block."""
    if isinstance(keeper, Keeper):
        yield keeper
    else:
        with connect(keeper) as own:
            yield own


def _check_version(version: str) -> bytes:
    encoded = version.encode()
    if len(encoded) > _VERSION_BYTES_MAX or not version.isprintable():
        raise ValueError(f"a version has at most {_VERSION_BYTES_MAX} bytes, all of them printable: {version!r}")
    return encoded


def _check_free(keeper: Keeper, name: str) -> None:
    """Before bytes are copied in vain."""
    try:
        keeper.open(name, readonly=True).close()
    except errors.Absent:
        return
    except errors.Denied:
        pass
    raise _taken(name)


def _taken(name: str) -> errors.Error:
    return errors.Exists(f'cannot publish the model "{name}": the name is taken; replace=True puts it in the place of what has it, '
                         "and holders finish with theirs")


def _copy_from_device(obj: Object, start: int, blocks: Iterable[Block], stream: Optional[int]) -> None:
    """By this thread: the stream may be that of the thread."""
    with obj.write() as whole:
        for block in blocks:
            _gvmem.copy_on_stream(obj.device, whole.address + start + block.offset, block.address, block.size, stream)


def _fill(obj: Object, header: bytes, blocks: Iterable[Block], stream: Optional[int]) -> None:
    on_cpu = [block for block in blocks if block.device is None]
    on_device = [block for block in blocks if block.device is not None]

    def pieces() -> Iterator[tuple[int, memoryview]]:
        yield 0, memoryview(header)
        for block in sorted(on_cpu, key=lambda block: block.offset):
            at = len(header) + block.offset
            for piece in block.pieces():
                yield at, piece
                at += piece.nbytes

    copy_pieces(obj._handle, pieces())
    if on_device:
        _copy_from_device(obj, len(header), on_device, stream)


def _publish(table: Mapping[str, Layout], blocks: list[Block], name: str, keeper: Any, version: str, metadata: Mapping[str, str],
             replace: bool, mode: int, device: int, stream: Optional[int]) -> None:
    mark = _MARK + b"%d " % len(table) + _check_version(version)
    header = write_header(table, metadata)
    size = len(header) + max((block.offset + block.size for block in blocks), default=0)
    with _connection(keeper) as connection:
        if not replace:
            _check_free(connection, name)
        with connection.create(None, size, device=device, mode=mode, metadata=mark) as obj:
            _fill(obj, header, blocks, stream)
            obj.seal()
            try:
                obj.publish(name, replace=replace)
            except errors.Exists:
                raise _taken(name) from None


def publish(tensors: Mapping[str, Any], name: str, *, keeper: Any = None, version: str = "", metadata: Optional[Mapping[str, str]] = None,
            replace: bool = False, mode: int = 0o600, device: Optional[int] = None, stream: Any = None) -> None:
    """Makes a model of tensors: arrays with a buffer, DLPack or __cuda_array_interface__, and models.Tensor.

    Writes it once, seals it and gives it the name in one step: nobody sees half of it, and who has an older one of that name keeps
    it. Tensors that share memory share it there, and their strides stay.

    name: as of any object of a keeper: "/llama". keeper: a Keeper, or the path of its socket; None: the default one.
    version: a short text that attach() can ask for. metadata: further texts by name. replace: whether the name may be taken.
    mode: who may attach it, as of a file; 0o644 everybody. device: the GPU; None: that of the tensors, or 0.
    stream: the stream of that GPU on which tensors are written, and copied; None: the default one.
    """
    publish_sources({key: read_source(key, value, device or 0, stream) for key, value in tensors.items()}, name, keeper=keeper,
                    version=version, metadata=metadata, replace=replace, mode=mode, device=device, stream=stream_number(stream),
                    make_dense=make_dense)


def publish_sources(sources: dict[str, Source], name: str, *, keeper: Any, version: str, metadata: Optional[Mapping[str, str]],
                    replace: bool, mode: int, device: Optional[int], stream: Optional[int],
                    make_dense: Callable[[str, Source], Source]) -> None:
    """publish(), of tensors that were read."""
    on_gpu = {source.device: key for key, source in sources.items() if source.device is not None}
    if device is None:
        device = next(iter(on_gpu), 0) or 0
    for number, key in on_gpu.items():
        if number != device:
            raise ValueError(f'"{key}" is on GPU {number}, and the model is to be on GPU {device}: move it there first')
    table, blocks = lay_out(sources, make_dense)
    _publish(table, blocks, name, keeper, version, metadata or {}, replace, mode, device, stream)


def publish_files(paths: Any, name: str, *, keeper: Any = None, version: str = "", metadata: Optional[Mapping[str, str]] = None,
                  replace: bool = False, mode: int = 0o600, device: int = 0) -> None:
    """Makes a model of a file of safetensors, or of all tensors of several, straight from there. Otherwise as publish().

    metadata: in the place of that which the first file has.
    """
    files: list[File] = []
    try:
        for path in [paths] if isinstance(paths, (str, bytes)) or hasattr(paths, "__fspath__") else paths:
            files.append(File(path))
        if not files:
            raise ValueError("no files")
        table, blocks = lay_out_files(files)
        _publish(table, blocks, name, keeper, version, files[0].metadata if metadata is None else metadata, replace, mode, device, None)
    finally:
        for file in files:
            file.close()


# ---- attaching


class _Awake:
    """The lease between wake() and sleep(), and those that could not be given back at the end of a block. What has consumed a
    tensor keeps this, and so the leases when the model itself is gone."""

    __slots__ = ("leases",)

    def __init__(self) -> None:
        self.leases: list[_gvmem.Hold] = []


class Model(Mapping[str, Any]):
    """A model, attached by attach(): a mapping of names to arrays, for use while it is awake.

    It is awake between wake() and sleep(), and inside `with model:`. What was made of its tensors keeps its address, and may be
    used whenever the model is awake; otherwise it loses the CUDA context. Any thread may call anything.
    """

    _writable = False  # what arrays say; writing one loses the context, too

    def __init__(self, obj: Object, table: dict[str, Layout], metadata: dict[str, str], start: int, version: str, hint: Optional[str],
                 own: Optional[Keeper]):
        """For attach()."""
        self._object, self._start, self._hint, self._own = obj, start, hint_number(hint), own
        self._layout, self._metadata, self._version = table, metadata, version
        self._size = obj.size
        self._lock = make_lock(self)  # for what follows. It is awake by the leases alone, so that Ctrl-C can come between any two steps
        self._awake = _Awake()
        self._blocks: list[_gvmem.Hold] = []  # leases of blocks; all are alike: which block has which does not matter
        self._view: Optional[_gvmem.Hold] = None  # whose arrays can be consumed while it is awake

    def __reduce__(self) -> Any:
        raise TypeError(f'the model "{self.name}" cannot be copied or pickled: attach() it again, which copies nothing')

    def __repr__(self) -> str:
        state = "closed" if self.closed else "awake" if self.awake else "asleep"
        return f"<gvmem.models.Model {self.name} of {len(self)} tensors, {self._size} bytes on GPU {self._object.device}, {state}>"

    # ---- leases

    def _acquire(self, timeout: Optional[float]) -> _gvmem.Hold:
        thread = threading.get_ident()
        handle = self._object._handle
        lease: _gvmem.Hold = run_with_lease(lambda waiting: handle.own_conflict(_gvmem.LEASE_READ, 0, waiting), timeout,
                                            lambda ms: handle.acquire(_gvmem.LEASE_READ, self._hint, 0, ms, None, thread), True)
        return lease

    def _begin_locked(self) -> None:
        """Before there is a lease."""
        if self._view is None or self._view.ended:
            self._view = self._object._handle.view(self._object.address, self._size, self._writable, self._awake)

    def _end_locked(self) -> None:
        """After a lease was taken away."""
        if self._view is not None and not self.awake:
            self._view.end(None)
            self._view = None

    def _release(self, leases: list[_gvmem.Hold], stream: Any) -> None:
        """What cannot be given back stays until sleep()."""
        try:
            for lease in leases:
                lease.end(stream_number(stream))
        except BaseException:
            left = [lease for lease in leases if not lease.released]
            if left and not self.closed:
                with self._lock:
                    self._begin_locked()
                    self._awake.leases += left
            raise

    def wake(self, timeout: Optional[float] = None, *, resident: bool = False) -> None:
        """Brings it back into device memory, in the place of models that sleep, and keeps it there until sleep(). Awake already
        is nothing.

        What finds no room on the device, as others are awake, is read from the host over the link: resident_bytes tells. With
        resident=True that is a MemoryError, and the model is as it was. timeout: seconds; None waits for ever, 0 not at all.
        """
        if not self._awake.leases:
            lease = self._acquire(timeout)
            missing = self._size - self.resident_bytes if resident else 0
            if missing > 0:  # no other thread has seen it awake by this lease
                lease.end(None)
                raise errors.Nospace(f'cannot wake the model "{self.name}": {missing} of its {self._size} bytes have no room on the '
                                     "device beside what is in use; let others sleep, or raise the keeper's device budget")
            with self._lock:
                if not self._awake.leases:  # or else another thread was faster, and this lease goes
                    self._begin_locked()
                    self._awake.leases.append(lease)
        elif resident and self.resident_bytes < self._size:
            raise errors.Nospace(f'the model "{self.name}" is awake, and {self._size - self.resident_bytes} of its bytes are on the '
                                 "host: sleep(), and wake() when there is room")

    def sleep(self, stream: Any = None) -> None:
        """Lets pressure take its memory. Waits for all work of this process on the GPU; with a stream, the lease ends behind the
        work of that stream, and nothing waits. Asleep already is nothing. errors.Invalid: the stream is being captured into a
        graph; the model stays awake."""
        with self._lock:
            leases, self._awake.leases = self._awake.leases, []
            self._end_locked()
        self._release(leases, stream)

    def _enter(self, timeout: Optional[float]) -> None:
        lease = self._acquire(timeout)
        try:
            with self._lock:
                self._begin_locked()
                self._blocks.append(lease)
        except BaseException:  # Ctrl-C: there is no block, which would take it away
            with self._lock:
                if lease in self._blocks:
                    self._blocks.remove(lease)
                self._end_locked()
            lease.end(None)
            raise

    def _leave(self, stream: Any) -> None:
        with self._lock:
            lease = self._blocks.pop()
            self._end_locked()
        self._release([lease], stream)

    def __enter__(self) -> Model:
        self._enter(None)
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self._leave(None)

    @contextmanager
    def use(self, *, timeout: Optional[float] = None, stream: Any = None) -> Iterator[Model]:
        """`with model.use():` is `with model:`. stream: on which all work of the block is: its end then waits for nothing.
        errors.Invalid: that is being captured into a graph; the model stays awake until sleep()."""
        self._enter(timeout)
        try:
            yield self
        finally:
            self._leave(stream)

    # ---- tensors

    def __getitem__(self, key: str) -> Any:
        layout = self._layout[key]
        with self._lock:
            view = self._view if self.awake else None
        if view is None:
            raise ValueError(f'the model "{self.name}" is closed' if self.closed else
                             f'the model "{self.name}" sleeps: wake() it, or use it inside "with model:"')
        return self._make(view, layout)

    def _make(self, view: _gvmem.Hold, layout: Layout) -> Any:
        return view.array(0, self._start + layout.offset, TYPES[layout.dtype].element, layout.shape, layout.strides)

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout)

    def __len__(self) -> int:
        return len(self._layout)

    def __contains__(self, key: object) -> bool:
        return key in self._layout

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    @property
    def layout(self) -> dict[str, Layout]:
        """What each tensor is, and where; also while the model sleeps."""
        return dict(self._layout)

    # ---- what it is

    @property
    def awake(self) -> bool:
        """Whether its tensors may be used."""
        return bool(self._awake.leases or self._blocks)

    @property
    def current(self) -> bool:
        """Whether it has its name still: False after another one was published in its place."""
        return bool(self._object.info().name == self.name)

    @property
    def name(self) -> str:
        """Of the object in the keeper that has it."""
        return self._object.name

    @property
    def version(self) -> str:
        """As published."""
        return self._version

    @property
    def metadata(self) -> dict[str, str]:
        """As published, or of the file."""
        return dict(self._metadata)

    @property
    def address(self) -> int:
        """Where it begins, header and all, in memory of the device."""
        return self._object.address

    @property
    def device(self) -> int:
        """The ordinal of its GPU."""
        return self._object.device

    @property
    def size(self) -> int:
        """In bytes, with its header."""
        return self._size

    @property
    def resident_bytes(self) -> int:
        """How many of its bytes are in device memory now."""
        return min(self._size, int(self._object.info().device_bytes))

    @property
    def moving(self) -> bool:
        """Whether chunks of it are on their way to device or host memory. With mapped=True nothing may read it then."""
        return bool(self._object.info().moving)

    def info(self) -> Info:
        """What the keeper knows of its object: gvm_object_info in gvmem/client.h."""
        return self._object.info()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._object.closed

    def close(self) -> None:
        """Ends it: as sleep(), for good. What was made of its tensors keeps its address, and cannot be used any more."""
        self._object.close()
        self.sleep()
        if self._own is not None:
            self._own.close()


def _read_table(obj: Object, name: str) -> tuple[dict[str, Layout], dict[str, str], int, str]:
    """(table, metadata, where blocks begin, version)"""
    info = obj.info()
    mark = info.metadata_start[:info.metadata_bytes]
    if not mark.startswith(_MARK) or not info.sealed:
        raise ValueError(f'"{name}" is no model: gvmem.models.publish() did not make it')
    try:
        first = obj.copy_out(min(_HEADER_USUAL_BYTES, info.size_bytes))  # one request, mostly
        start = 8 + read_length(first, info.size_bytes)
        if start > len(first):
            first += obj.copy_out(start - len(first), len(first))
        table, metadata = read_header(bytes(first[8:start]), info.size_bytes - start, False)
        return table, metadata, start, mark[len(_MARK):].partition(b" ")[2].decode()
    except ValueError as error:
        raise ValueError(f'the model "{name}" is malformed: {error}') from None


def attach_as(made: type[Any], name: str, keeper: Any, version: Optional[str], mapped: bool, hint: Optional[str]) -> Any:
    """attach(), as a model of a class, asleep."""
    connection = keeper if isinstance(keeper, Keeper) else connect(keeper)
    obj = None
    try:
        try:
            obj = connection.open(name, readonly=True, mapped=mapped)
        except errors.Absent:
            raise errors.Absent(f'there is no model "{name}" at this keeper: publish() makes one, "gvmem models" lists them') from None
        except errors.Denied:
            raise errors.Denied(f'the model "{name}" may not be read by this user: its owner publishes it with a mode that allows it, '
                                "such as 0o644") from None
        table, metadata, start, found = _read_table(obj, name)
        if version is not None and version != found:
            raise ValueError(f'the model "{name}" is of version "{found}", not "{version}": publish() that one, or leave the version out')
        return made(obj, table, metadata, start, found, hint, None if connection is keeper else connection)
    except BaseException:
        if obj is not None:
            obj.close()
        if connection is not keeper:
            connection.close()
        raise


def attach(name: str, *, keeper: Any = None, awake: bool = True, version: Optional[str] = None, mapped: bool = False,
           timeout: Optional[float] = None, hint: Optional[str] = "hot") -> Model:
    """Attaches a model: its tensors in place, read-only, at one address in all processes.

    It is awake until sleep(), as long as this object or something that was made of a tensor is there. With awake=False pressure
    may take it, and it is used inside `with model:`.

    A tensor that is touched while the model sleeps loses the CUDA context. With mapped=True it is read from the host instead,
    unless it is just then being moved (Model.moving): all of it stays mapped, which each move pays for (GVM_OPEN_MAPPED of
    gvmem/client.h).

    version: ValueError unless it is of that one. timeout: seconds, for the lease. hint: how a lease brings it in (Object.read()).
    """
    model: Model = attach_as(Model, name, keeper, version, mapped, hint)
    if awake:
        try:
            model.wake(timeout)
        except BaseException:
            model.close()
            raise
    return model
