"""How long to look at shared memory before sleeping, and how.

To be woken takes longer than most answers do, so that looking a moment longer pays where something
comes soon. Where it did not last time, less is spent on it: on a machine without a free core, who
looks may keep the other one from running. Other threads of the process get their turn
meanwhile: looking holds the interpreter's lock.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Final

MOST_SECONDS: Final = 200e-6
LEAST_SECONDS: Final = 10e-6
_LOOKS: Final = 16
"""How often to look between two moments in which others have their turn."""


class Patience:
    """Learns whether it pays; for one thread at a time.

    A poll of nothing frees the interpreter's lock for less than a microsecond, where
    ``time.sleep(0)`` takes sixty; two threads cannot share it.
    """

    __slots__ = ("_let_others", "_seconds")

    def __init__(self) -> None:
        self._seconds = MOST_SECONDS
        self._let_others = select.poll().poll

    def comes(self, there: Callable[[], bool]) -> bool:
        """Whether something is ``there`` soon."""
        clock = time.perf_counter
        until = clock() + self._seconds
        while True:
            for _ in range(_LOOKS):
                if there():
                    self._seconds = MOST_SECONDS
                    return True
            if clock() > until:
                return False
            self._let_others(0)

    def slept(self, seconds: float) -> None:
        """It had to sleep, for so long."""
        pays = seconds < MOST_SECONDS
        self._seconds = MOST_SECONDS if pays else max(self._seconds / 2, LEAST_SECONDS)
