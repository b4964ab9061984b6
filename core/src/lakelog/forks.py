"""Tells objects when they find themselves in a forked child; the one state of a process in lakelog.

What :func:`os.register_at_fork` was told stays told for as long as the process lives, so it is told
once, of a set that forgets what is forgotten elsewhere.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final, Protocol
from weakref import ref


class Forked(Protocol):
    """What wants to know."""

    def forked(self) -> None:
        """It is in a child now, in its only thread; locks of other threads may be held for ever."""


class _Told:
    """Who is told; the hook is set when somebody comes."""

    def __init__(self) -> None:
        self._those: dict[int, ref[Forked]] = {}
        self._is_set = False

    def add(self, one: Forked) -> None:
        """Tell ``one`` from now on."""
        if not self._is_set:
            self._is_set = True
            os.register_at_fork(after_in_child=self._tell)
        key = id(one)
        self._those[key] = ref(one, lambda _: self._forget(key))

    def _forget(self, key: int) -> None:
        self._those.pop(key, None)

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
