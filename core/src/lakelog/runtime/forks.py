"""Notifies registered objects in a forked child; the only process-wide state of lakelog.

A hook registered with :func:`os.register_at_fork` cannot be removed. So one hook is registered, for
a set of weak references.

A fork also waits for imports in other threads. lakelog imports many modules on first use, in its
own threads too. If another thread is importing a module during the fork, the child can never import
it, since the interpreter's lock of that module stays held.
"""

from __future__ import annotations

import _imp
import importlib
import os
import time
from contextlib import suppress
from threading import get_ident
from typing import Final, NoReturn, Protocol
from weakref import WeakValueDictionary

from lakelog.arguments import WrongType

IMPORT_WAIT_SECONDS: Final = 5.0
"""Longest wait of a fork, in seconds: an import may itself wait for the forking thread."""
_LOOK_SECONDS: Final = 0.001


class Forked(Protocol):
    """An object to notify of forks."""

    def forked(self) -> None:
        """Called in the child, in its only thread; locks of other threads may stay held forever."""


class _Imports:
    """Keeps other threads from importing during a fork.

    Uses undocumented means of the interpreter: its global import lock, without which no import
    begins, and its locks of modules that are being imported.
    """

    def __init__(self) -> None:
        self._is_held = False

    def hold(self) -> None:
        """Wait until other threads finish their imports, then block new ones.

        Gives up after :data:`IMPORT_WAIT_SECONDS`.
        """
        end = time.monotonic() + IMPORT_WAIT_SECONDS
        while not self._take() and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)

    def _take(self) -> bool:
        # The global lock blocks new imports, but imports in progress hold the lock of their module
        # only. So release it and try again until no other thread imports.
        _imp.acquire_lock()
        try:
            self._is_held = not _is_importing_elsewhere()
        finally:
            if not self._is_held:
                _imp.release_lock()
        return self._is_held

    def let_go(self) -> None:
        """Release the import lock; called in parent and child."""
        if self._is_held:
            self._is_held = False
            _imp.release_lock()


def _is_importing_elsewhere() -> bool:
    """Whether another thread imports, or is about to: its lock then exists without an owner."""
    locks = getattr(importlib, "_bootstrap", None)
    found = [each() for each in list(getattr(locks, "_module_locks", {}).values())]
    return any(lock is not None and lock.owner != get_ident() for lock in found)


class _ForkedObjects:
    """The registered objects; the fork hook is installed with the first of them."""

    def __init__(self) -> None:
        self._by_id = WeakValueDictionary[int, Forked]()  # by id: they need not be hashable
        self._is_set = False
        self._imports = _Imports()

    def add(self, one: Forked) -> None:
        """Notify ``one`` of forks from now on."""
        if not self._is_set:
            self._is_set = True
            os.register_at_fork(
                before=self._imports.hold,
                after_in_parent=self._imports.let_go,
                after_in_child=self._in_child,
            )
        self._by_id[id(one)] = one

    def _in_child(self) -> None:
        self._imports.let_go()
        # without a lock: a thread that does not exist in the child could hold it
        for each in list(self._by_id.values()):
            with suppress(OSError):
                each.forked()


_OBJECTS: Final = _ForkedObjects()


def register_forked(one: Forked) -> None:
    """Call ``one.forked()`` in every child that is forked while ``one`` is alive."""
    _OBJECTS.add(one)


class OfThisProcess:
    """An object with locks, threads and maps of one process: it is not pickled, nor copied."""

    __slots__ = ()

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        """Raise :class:`~lakelog.errors.WrongType`; ``pickle``, ``copy`` and ``spawn`` call it."""
        raise WrongType(
            f"a {type(self).__name__} belongs to its process: it is neither pickled nor copied; "
            "give the other process the path of the store, and call lakelog.open(path) there"
        )
