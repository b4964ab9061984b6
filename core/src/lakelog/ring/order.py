"""In which order stores to shared memory become visible.

x86 keeps stores in the order of the program, and loads too, so that there nothing is done between
what an entry says and the word that publishes it. Elsewhere two turns of a lock keep them apart:
taking one acquires, letting it go releases, and an acquire is not moved before a release. A load
behind a store, as of who is about to sleep, needs that everywhere.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from threading import Lock
from typing import Final

_ORDERED: Final = frozenset({"x86_64", "amd64", "i386", "i686"})


def full_fence() -> None:
    """No load or store of before comes after it, and none of after before.

    With a lock of its own: one for all could be held by another thread while the process forks.
    """
    lock = Lock()
    with lock:
        pass
    with lock:
        pass


def _nothing() -> None:
    """The machine does it by itself."""


def _is_ordered() -> bool:
    return platform.machine().lower() in _ORDERED


store_fence: Final[Callable[[], None]] = _nothing if _is_ordered() else full_fence
"""Stores of before are seen before those of after, and loads of before are done before those."""
