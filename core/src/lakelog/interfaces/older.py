"""Serving what is not in the log any more: segments that were kept elsewhere before they went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class SegmentSource(Protocol):
    """Sealed segments, whole, as they stood in the log; read where an old offset is asked for.

    Called from any thread. Raises :class:`~lakelog.errors.StoreError` for what it cannot read.
    """

    def starts(self) -> Sequence[int]:
        """Physical offsets of the first bytes of those that it has now, in order."""

    def read(self, start: int, position: int, length: int) -> bytes:
        """``length`` bytes from byte ``position`` of the segment that starts at ``start``."""
