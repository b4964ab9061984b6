"""Access to segments that were archived before they were deleted from the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class SegmentSource(Protocol):
    """Complete sealed segments, read when an offset below the log is requested.

    Called from any thread. Raises :class:`~lakelog.errors.StoreError` if a segment cannot be read.
    """

    def starts(self) -> Sequence[int]:
        """Physical start offsets of the available segments, in order."""

    def read(self, start: int, position: int, length: int) -> bytes:
        """``length`` bytes from byte ``position`` of the segment that starts at ``start``."""
