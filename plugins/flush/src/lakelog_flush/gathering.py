"""Decides whether a sync waits for the puts that the previous sync released.

Without waiting, concurrent puts split into two halves. Puts released by one sync return while the
next one runs, so that each sync serves only half of them. If they return soon, compared with the
duration of a sync, waiting pays off. Otherwise it is tried ever more rarely.
"""

from __future__ import annotations

from typing import Final

MOST_OF_A_SYNC: Final = 0.3
"""Longest wait, as a fraction of the duration of a sync."""
MOST_SECONDS: Final = 0.01
"""Longest wait in seconds, on any disk."""
SLOW_SECONDS: Final = 0.002
"""For faster syncs, the extra thread switch costs more than the saved sync."""
MOST_SKIPPED: Final = 64
_WEIGHT: Final = 1 / 8


class Gathering:
    """Adapts to the durations of syncs and the success of waits."""

    def __init__(self) -> None:
        self._mean_seconds = 0.0
        self._skip = 0
        self._skipped = 0

    def synced(self, seconds: float) -> None:
        """Record the duration of a sync."""
        self._mean_seconds += (seconds - self._mean_seconds) * _WEIGHT

    def patience_seconds(self) -> float:
        """Seconds to wait now; 0 if a wait does not pay off."""
        if self._mean_seconds < SLOW_SECONDS:
            return 0.0
        if self._skipped < self._skip:
            self._skipped += 1
            return 0.0
        self._skipped = 0
        return min(self._mean_seconds * MOST_OF_A_SYNC, MOST_SECONDS)

    def ended(self, *, in_time: bool) -> None:
        """Record the end of a wait; ``in_time`` is whether all puts returned within it."""
        self._skip = 0 if in_time else min(max(1, 2 * self._skip), MOST_SKIPPED)
