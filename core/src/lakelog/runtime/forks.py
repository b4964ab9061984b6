"""Tells objects when they find themselves in a forked child; the one state of a process in lakelog.

What :func:`os.register_at_fork` was told stays told for as long as the process lives, so it is told
once, of a set that forgets what is forgotten elsewhere.

A fork waits for imports in other threads. lakelog imports much when it is first needed, its own
threads too, and a child could never import what another thread was importing when it was forked:
the interpreter's lock of that module stays held there.
"""

from __future__ import annotations

import _imp
import importlib
import os
import time
from contextlib import suppress
from threading import get_ident
from typing import Final, Protocol
from weakref import ref

IMPORT_WAIT_SECONDS: Final = 5.0
"""How long a fork waits at most: an import may be waiting for the thread that forks."""
_LOOK_SECONDS: Final = 0.001


class Forked(Protocol):
    """What wants to know."""

    def forked(self) -> None:
        """It is in a child now, in its only thread; locks of other threads may be held for ever."""


class _Imports:
    """Keeps other threads from importing while the process forks.

    By the interpreter's own means, which it does not document: its lock of all imports, without
    which none begins, and its locks of the modules that are being imported.
    """

    def __init__(self) -> None:
        self._is_held = False

    def hold(self) -> None:
        """Let the imports of other threads end, and none begin."""
        end = time.monotonic() + IMPORT_WAIT_SECONDS
        while not self._take() and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)

    def _take(self) -> bool:
        _imp.acquire_lock()
        try:
            self._is_held = not _is_importing_elsewhere()
        finally:
            if not self._is_held:
                _imp.release_lock()
        return self._is_held

    def let_go(self) -> None:
        """In parent and child."""
        if self._is_held:
            self._is_held = False
            _imp.release_lock()


def _is_importing_elsewhere() -> bool:
    """Also where a thread is about to: its lock is there, and is nobody's yet."""
    locks = getattr(importlib, "_bootstrap", None)
    found = [each() for each in list(getattr(locks, "_module_locks", {}).values())]
    return any(lock is not None and lock.owner != get_ident() for lock in found)


class _Told:
    """Who is told; the hook is set when somebody comes."""

    def __init__(self) -> None:
        self._those: dict[int, ref[Forked]] = {}
        self._is_set = False
        self._imports = _Imports()

    def add(self, one: Forked) -> None:
        """Tell ``one`` from now on."""
        if not self._is_set:
            self._is_set = True
            os.register_at_fork(
                before=self._imports.hold,
                after_in_parent=self._imports.let_go,
                after_in_child=self._in_child,
            )
        key = id(one)
        self._those[key] = ref(one, lambda _: self._forget(key))

    def _forget(self, key: int) -> None:
        self._those.pop(key, None)

    def _in_child(self) -> None:
        self._imports.let_go()
        self._tell()

    def _tell(self) -> None:
        for each in list(self._those.values()):  # no lock: a thread that is gone could hold it
            found = each()
            if found is not None:
                with suppress(OSError):
                    found.forked()


_TOLD: Final = _Told()


def tell_of_forks(one: Forked) -> None:
    """Call ``one.forked()`` in every child that is forked while ``one`` is in use."""
    _TOLD.add(one)
