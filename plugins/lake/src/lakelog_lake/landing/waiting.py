"""Waits until more may land than the last pass found, at next to no cost.

A living owner of lakelog wakes who waits for what becomes durable. Beside RocketMQ, and after a
crash, only a pass can tell, so there is one whenever the time is over. A store that is closed is
looked at by the times of its files.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import Final

import attrs

from lakelog_lake.log.cached_store import CachedStore
from lakelog_lake.log.durable_end import DurableEnd

TICK_SECONDS: Final = 0.5
"""How soon it is seen that somebody says stop."""
LONGEST_SECONDS: Final = 30.0
"""A pass at least so often: pins are renewed, and what has become of log and tables is seen."""


@attrs.frozen
class AppendWaiter:
    """For one dispatcher.

    :ivar durable: knows the states of the files that the last pass went by
    :ivar looked_to: where the last pass found nothing that could land
    """

    kept: CachedStore
    durable: DurableEnd
    looked_to: Callable[[], int | None]

    def wait(self, stop: Event, interval_seconds: float, on_tick: Callable[[], None]) -> None:
        """Sleep until a pass may find something, or ``stop``.

        :param interval_seconds: how often to look where nobody wakes us
        """
        end = time.monotonic() + max(LONGEST_SECONDS, interval_seconds)
        while not stop.is_set() and time.monotonic() < end:
            on_tick()
            told = self._may_be_told()
            if told is None:
                stop.wait(interval_seconds)
                told = not self.durable.is_still(self.kept.path)
            if told:
                return

    def _may_be_told(self) -> bool | None:
        """Whether there is more, after a tick at most; ``None`` at once where nobody tells."""
        behind, store = self.looked_to(), self.kept.kept
        if behind is None or store is None:
            return None
        begun = time.monotonic()
        if store.wait_flushed(behind + 1, round(TICK_SECONDS * 1000)):
            return True
        return False if time.monotonic() - begun >= TICK_SECONDS else None
