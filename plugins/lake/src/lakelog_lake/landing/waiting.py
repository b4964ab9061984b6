"""Waits, at little cost, until a pass may find messages again.

The owner of an open lakelog store notifies waiting readers when messages become durable. For a
store that RocketMQ has open, and after a crash, there is no notification, so a pass runs after each
interval. For a closed store the modification times of its files are checked.
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
"""Longest time until a requested stop is noticed."""
LONGEST_SECONDS: Final = 30.0
"""Longest time between passes, which renew pins and check the log and the tables."""


@attrs.frozen
class AppendWaiter:
    """Waits for new messages for one dispatcher.

    :ivar kept: the open store
    :ivar durable: the state of the files as of the last pass
    :ivar looked_to: returns the physical offset up to which the last pass found no messages
    """

    kept: CachedStore
    durable: DurableEnd
    looked_to: Callable[[], int | None]

    def wait(self, stop: Event, interval_seconds: float, on_tick: Callable[[], None]) -> None:
        """Sleep until a pass may find messages, or until ``stop``.

        :param interval_seconds: time between checks where no notification comes
        """
        end = time.monotonic() + max(LONGEST_SECONDS, interval_seconds)
        while not stop.is_set() and time.monotonic() < end:
            on_tick()
            has_more = self._await_notification()
            if has_more is None:
                stop.wait(interval_seconds)
                has_more = not self.durable.is_still(self.kept.path)
            if has_more:
                return

    def _await_notification(self) -> bool | None:
        """Wait one tick for a notification; whether there is more, or ``None`` without an owner."""
        behind, store = self.looked_to(), self.kept.kept
        if behind is None or store is None:
            return None
        begun = time.monotonic()
        if store.wait_flushed(behind + 1, round(TICK_SECONDS * 1000)):
            return True
        return False if time.monotonic() - begun >= TICK_SECONDS else None
