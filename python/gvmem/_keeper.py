"""Connections to a keeper, and objects."""
from __future__ import annotations

import os
import socket
import threading
from types import SimpleNamespace
from typing import Any, NamedTuple, Optional, Union

from . import _gvmem
from ._array import Lease, Shape, dimensions, element, kept_stream
from ._wait import run, run_with_lease

_HINTS = {None: _gvmem.HINT_NONE, "scan": _gvmem.HINT_SCAN, "hot": _gvmem.HINT_HOT, "once": _gvmem.HINT_ONCE}
_RESERVE_LEAST = 2 << 20
Path = Union[str, bytes, os.PathLike[Any], None]


def hint_number(hint: Optional[str]) -> int:
    if hint not in _HINTS:
        raise ValueError(f'{hint!r} is no hint: "scan", "hot", "once" or None')
    return _HINTS[hint]


class Info(SimpleNamespace):
    """What is known of something, as attributes. gvmem/client.h describes each."""


class Snapshot(NamedTuple):
    keeper: Info
    devices: list[Info]
    objects: list[Info]
    clients: list[Info]


class Object:
    """An object of a keeper, opened here: memory of a GPU that processes share.

    `with obj.read("f4") as a:` is a lease; `a` is an array for NumPy (on a software GPU), CuPy, PyTorch and others. The
    object is closed by close(), by `with`, or with its last reference; what has consumed its memory keeps it open.
    """

    __slots__ = ("_handle", "_name", "_address", "__weakref__")

    def __init__(self, handle: _gvmem.Object, name: str, address: int):
        self._handle = handle
        self._name = name
        self._address = address

    def __enter__(self) -> Object:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<gvmem.Object {self._name or 'without a name'}{', closed' if self.closed else ''}>"

    # ---- leases

    def read(self, dtype: Any = "u1", shape: Shape = None, *, offset: int = 0, timeout: Optional[float] = None,
             hint: Optional[str] = None, cpu: bool = False, stream: Any = None) -> Lease:
        """A lease for reading; entered, it is an array of all there is from offset on, or of a shape.

        timeout: seconds; None waits for ever, 0 not at all. hint: "scan", "hot", "once" (gvmem/client.h).
        cpu: the CPU may use the memory; the object is moved to the host for it.
        stream: on which all work is that uses the lease. It then ends behind that work, and nothing waits.
        """
        return self._lease(_gvmem.LEASE_READ, dtype, shape, offset, timeout, hint, cpu, stream)

    def write(self, dtype: Any = "u1", shape: Shape = None, *, offset: int = 0, timeout: Optional[float] = None,
              hint: Optional[str] = None, cpu: bool = False, stream: Any = None) -> Lease:
        """A lease for writing and reading: nobody else has one meanwhile. As read() otherwise."""
        return self._lease(_gvmem.LEASE_WRITE, dtype, shape, offset, timeout, hint, cpu, stream)

    def _lease(self, mode: int, dtype: Any, shape: Shape, offset: int, timeout: Optional[float], hint: Optional[str],
               cpu: bool, stream: Any) -> Lease:
        name, wanted, kept, asked = element(dtype), dimensions(shape), kept_stream(stream), hint_number(hint)
        flags, thread = (_gvmem.ACQUIRE_CPU if cpu else 0), threading.get_ident()
        hold = run_with_lease(lambda waiting: self._handle.own_conflict(mode, flags, waiting), timeout,
                              lambda ms: self._handle.acquire(mode, asked, flags, ms, kept, thread), hint == "hot")
        return Lease(hold, lambda hold: hold.array(0, offset, name, wanted))

    # ---- copies

    def copy_in(self, data: Any, offset: int = 0, *, timeout: Optional[float] = None) -> None:
        """Copies what has a buffer (bytes, an array of NumPy) into the object, under a lease of its own."""
        run_with_lease(lambda thread: self._handle.own_conflict(_gvmem.LEASE_WRITE, 0, thread), timeout,
                       lambda ms: self._handle.copy_in(offset, data, ms))

    def copy_out(self, size: Optional[int] = None, offset: int = 0, *, into: Any = None,
                 timeout: Optional[float] = None) -> Any:
        """Copies a part of it, or all behind offset, into a new bytearray, or into a buffer: size bytes, or as many as that has. Returns that."""
        if into is None:
            if offset < 0 or (size is not None and size < 0):
                raise ValueError(f"offset={offset}, size={size} is no range: neither is negative")
            into = bytearray(max(0, self.size - offset) if size is None else size)
        run_with_lease(lambda thread: self._handle.own_conflict(_gvmem.LEASE_READ, 0, thread), timeout,
                       lambda ms: self._handle.copy_out(into, size, offset, ms))
        return into

    # ---- changing it

    def grow(self, size: int) -> None:
        """Makes it at least so large; its address stays, and what is new reads as zeros."""
        run(self._handle.grow, size)

    def shrink(self, size: int) -> None:
        """Gives back the chunks behind size. TimeoutError: somebody has a lease."""
        run(self._handle.shrink, size)

    def seal(self, timeout: Optional[float] = None) -> None:
        """Makes it read-only for good, for everyone. Waits for writers; of an object that is not tracked for readers, too."""
        def find_conflict(thread: int) -> str:
            writer = self._handle.own_conflict(_gvmem.LEASE_READ, 0, thread)
            reader = "" if writer else self._handle.own_conflict(_gvmem.LEASE_WRITE, 0, thread)
            return writer or (reader if reader and self.info().untracked else "")

        run_with_lease(find_conflict, timeout, self._handle.seal)

    def publish(self, name: str, *, replace: bool = False, private: bool = False) -> None:
        """Gives it a name in one step; from then on it outlives its creator, unless private."""
        flags = (_gvmem.PUBLISH_REPLACE if replace else 0) | (_gvmem.PUBLISH_PRIVATE if private else 0)
        run(self._handle.publish, name, flags)
        self._name = name

    def link(self, name: str, size: Optional[int] = None, *, mode: int = 0o400) -> None:
        """A second name, listed nowhere, by which its first bytes can be read: Keeper.open(name, link=True)."""
        run(self._handle.link, name, mode, self.size if size is None else size)

    def set_mode(self, mode: int) -> None:
        """Changes the permission bits."""
        run(self._handle.set_mode, mode)

    # ---- what it is

    @property
    def name(self) -> str:
        """As opened, created or published here; "" without one."""
        return self._name

    @property
    def address(self) -> int:
        """Of its first byte, valid under a lease."""
        return self._address

    @property
    def device(self) -> int:
        """The ordinal of its GPU in this process."""
        return self._handle.device

    @property
    def size(self) -> int:
        """In bytes, now."""
        return self.info().size_bytes

    @property
    def readonly(self) -> bool:
        """Whether it was opened so."""
        return self._handle.readonly

    @property
    def metadata(self) -> bytes:
        """Bytes that describe the object, at most 4096."""
        return run(self._handle.get_metadata)

    @metadata.setter
    def metadata(self, value: bytes) -> None:
        run(self._handle.set_metadata, value)

    def info(self) -> Info:
        """What the keeper knows of it: gvm_object_info in gvmem/client.h."""
        return Info(**run(self._handle.info))

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._handle.closed

    def close(self) -> None:
        """Closes it; twice is nothing. Leases that are left, and what has consumed them, keep the memory until they end. Waits for the GPU
        if the latest lease ended behind the work of a stream, or if there were arrays without a lease."""
        self._handle.close()


class Keeper:
    """A connection to a keeper: gvmem.connect(path). Closed by close(), by `with`, or with its last reference.

    adopt: a socket that is connected to one, or its number. It is closed once the connection is made, and after a failure or
        Ctrl-C the caller's.
    """

    __slots__ = ("_client", "__weakref__")

    def __init__(self, path: Path = None, *, adopt: Union[socket.socket, int, None] = None):
        if adopt is None:
            self._client = run(_gvmem.connect, path)
            return
        given = adopt if isinstance(adopt, int) else adopt.fileno()
        if given < 0:
            raise ValueError(f"{given} is no descriptor")
        self._client = run(_adopt, os.dup(given))  # of its own: after Ctrl-C the call continues
        if isinstance(adopt, int):
            os.close(adopt)
        else:
            adopt.close()

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<gvmem.Keeper{', closed' if self.closed else ''}>"

    def create(self, name: Optional[str], size: int, *, reserve: Optional[int] = None, device: int = 0, chunk: int = 0,
               mode: int = 0o600, keep: bool = False, untracked: bool = False, host: bool = False, metadata: bytes = b"") -> Object:
        """Makes an object of size bytes, which can grow to reserve; None or "" for name: nameless until published."""
        flags = (_gvmem.OBJECT_KEEP if keep else 0) | (_gvmem.OBJECT_UNTRACKED if untracked else 0)
        flags |= _gvmem.OBJECT_HOST if host else 0
        room = max(size, _RESERVE_LEAST) if reserve is None else reserve
        return _wrap(run(self._client.create, name, room, size, chunk, device, mode, flags, metadata), name or "")

    def open(self, name: str, *, readonly: Optional[bool] = None, mapped: bool = False, same_address: bool = False,
             link: bool = False) -> Object:
        """Opens an object by its name.

        mapped: what moves to host memory is mapped again, for kernels that read without a lease; not while it moves. same_address: fail rather than have it at
        another address than its creator. link: the name is that of a link, which opens it read-only if nothing else is said.
        """
        flags = _gvmem.OPEN_READONLY if (link if readonly is None else readonly) else 0
        flags |= (_gvmem.OPEN_MAPPED if mapped else 0) | (_gvmem.OPEN_LINK if link else 0)
        flags |= _gvmem.OPEN_SAME_ADDRESS if same_address else 0
        return _wrap(run(self._client.open, name, flags), name)

    def drop(self, name: str) -> None:
        """Takes a name away, as unlink(2): who has the object open keeps it."""
        run(self._client.drop, name)

    def unlink(self, name: str) -> None:
        """Ends a link."""
        run(self._client.unlink, name)

    def evict(self, name: str, size: int = 2**64 - 1) -> int:
        """Moves chunks of an object to host memory; returns how many bytes moved."""
        return run(self._client.evict, name, size)

    def snapshot(self) -> Snapshot:
        """Everything that the caller may see."""
        keeper, *lists = run(self._client.snapshot)
        return Snapshot(Info(**keeper), *([Info(**record) for record in records] for records in lists))

    def objects(self) -> list[Info]:
        """The objects that the caller may read."""
        return self.snapshot().objects

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._client.closed

    def close(self) -> None:
        """Closes it with its objects; twice is nothing. What has consumed memory of them keeps it until that is gone."""
        self._client.close()

    def abort(self) -> None:
        """Breaks the connection without waiting: calls that wait fail with errors.Keeper."""
        self._client.abort()


def _adopt(socket_fd: int) -> _gvmem.Client:
    """A connection over a descriptor, which is closed if there is none."""
    try:
        return _gvmem.adopt(socket_fd)
    except BaseException:
        os.close(socket_fd)
        raise


def _wrap(handle: _gvmem.Object, name: str) -> Object:
    return Object(handle, name, run(handle.info)["address"])


def connect(path: Path = None) -> Keeper:
    """Connects to the keeper at a socket; None: at the place that the setting GVMEM_KEEPER names."""
    return Keeper(path)


def driver() -> Info:
    """The driver that is loaded: its version, path, and whether it is the software GPU."""
    return Info(**_gvmem.driver())
