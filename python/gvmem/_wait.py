"""Waiting, so that Ctrl-C works.

A signal's handler runs in the main thread, and only while that executes Python or waits for a lock. So what may wait is
called by another thread, and the main thread waits for that. After Ctrl-C the call continues in its thread; what
it returns (a lease, an object) is released at once. Waits are not cut into short ones: each new one would queue at the end.
"""
from __future__ import annotations

import gc
import math
import os
import sys
import threading
import time
import weakref
from _thread import LockType, allocate_lock, start_new_thread
from typing import Any, Callable, Optional

from . import _gvmem

_MS_MAX = 2**31 - 1


_locked: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def make_lock(owner: Any) -> LockType:
    """For owner._lock. In a child made by fork() there is a new one in its place, as a thread of the parent may have had it."""
    _locked[id(owner)] = owner
    return allocate_lock()


def _renew_locks() -> None:
    for owner in _locked.values():
        owner._lock = allocate_lock()


os.register_at_fork(after_in_child=_renew_locks)


def run(call: Callable[..., Any], *arguments: Any) -> Any:
    """What call(*arguments) returns or raises; Ctrl-C leaves it."""
    if threading.get_ident() != threading.main_thread().ident or sys.is_finalizing():  # another thread would not run any more
        return call(*arguments)
    done = allocate_lock()
    outcome: list[tuple[Any, Optional[BaseException]]] = []
    left: list[bool] = []

    def work() -> None:
        try:
            outcome.append((call(*arguments), None))
        except BaseException as error:
            outcome.append((None, error))
        if left:
            outcome.clear()
        done.release()

    done.acquire()
    try:
        start_new_thread(work, ())
    except RuntimeError:  # the process has too many threads
        return call(*arguments)
    try:
        done.acquire()
        result, error = outcome.pop()
    except BaseException:
        left.append(True)
        outcome.clear()
        raise
    if error is None:
        return result
    try:
        raise error
    finally:
        del error


def milliseconds(timeout: Optional[float]) -> int:
    """A time-out in seconds, None for ever, as the library takes it."""
    if timeout is None:
        return _gvmem.FOREVER
    if not timeout >= 0:
        raise ValueError(f"{timeout!r} is no time-out in seconds")
    return _gvmem.FOREVER if timeout == math.inf else math.ceil(min(timeout * 1000, _MS_MAX))


def run_with_lease(find_conflict: Callable[[int], str], timeout: Optional[float], call: Callable[[int], Any], moving: bool = False) -> Any:
    """call(timeout_ms), which takes a lease: at once if it can be had, or else waiting.

    Without a time-out it does not wait for what only its caller can end: find_conflict(thread) says what that is, or "".
    moving: what is on the host comes in first, for which a lease that is had at once does not wait.
    """
    whole = milliseconds(timeout)
    deadline = time.monotonic() + (whole / 1000)
    thread = threading.get_ident()
    if not moving or whole == 0 or find_conflict(thread):
        try:
            return call(0)
        except TimeoutError:
            if whole == 0:
                raise
    if whole == _gvmem.FOREVER:
        if find_conflict(thread):
            gc.collect()  # what is left may be garbage
            conflict = find_conflict(thread)
            if conflict:
                raise BufferError(f"this would wait for ever: {conflict}")
    else:
        whole = milliseconds(max(0.0, deadline - time.monotonic()))
    return run(call, whole)
