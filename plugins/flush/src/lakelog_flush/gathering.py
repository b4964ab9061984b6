"""Whether a sync waits for those whom the one before has answered.

Puts that wait fall into two halves otherwise: who was answered by one sync comes back while the
next one runs, and so each sync serves only half of them. Where they come back soon, as measured by
the length of a sync, it pays to wait for them; where they do not, this is tried ever more rarely.
"""

from __future__ import annotations

from typing import Final

MOST_OF_A_SYNC: Final = 0.3
"""How long is waited at most, as a share of what a sync takes."""
MOST_SECONDS: Final = 0.01
"""However slow the disk is."""
SLOW_SECONDS: Final = 0.002
"""Below that, one more change of threads costs more than the sync that it saves."""
MOST_SKIPPED: Final = 64
_WEIGHT: Final = 1 / 8


class Gathering:
    """Learns from each sync and from each wait."""

    def __init__(self) -> None:
        self._mean_seconds = 0.0
        self._skip = 0
        self._skipped = 0

    def synced(self, seconds: float) -> None:
        """A sync took so long."""
        self._mean_seconds += (seconds - self._mean_seconds) * _WEIGHT

    def patience_seconds(self) -> float:
        """How long to wait now; 0 is not at all."""
        if self._mean_seconds < SLOW_SECONDS:
            return 0.0
        if self._skipped < self._skip:
            self._skipped += 1
            return 0.0
        self._skipped = 0
        return min(self._mean_seconds * MOST_OF_A_SYNC, MOST_SECONDS)

    def ended(self, *, in_time: bool) -> None:
        """A wait is over; whether all came, and soon."""
        self._skip = 0 if in_time else min(max(1, 2 * self._skip), MOST_SKIPPED)
