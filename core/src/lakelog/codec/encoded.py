"""What encoding makes of messages: bytes that lack only what depends on their place in the log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakelog.status import AppendStatus, PutStatus

if TYPE_CHECKING:
    from lakelog.format.queue_offsets import QueueOffsets
    from lakelog.results import PutResult


class EncodedBatch(ABC):
    """One or more records back to back, used for one append and then done with.

    :ivar buffer: the records; complete after :meth:`place`
    :ivar count: how many there are
    :ivar wait: whether any of their puts waits for what the flush strategy promises
    """

    __slots__ = ("buffer", "count", "wait")

    buffer: bytearray
    count: int
    wait: bool

    @abstractmethod
    def place(
        self, position: int, remaining: int, queue_offsets: QueueOffsets, now_ms: int
    ) -> AppendStatus:
        """Fill in queue offsets, physical offsets, store time and record checksums."""

    @abstractmethod
    def advance(self, queue_offsets: QueueOffsets) -> None:
        """Take the queue offsets that :meth:`place` used, after the bytes were written."""

    @abstractmethod
    def results(self, status: PutStatus) -> Sequence[PutResult]:
        """What became of each message, in order; only after :meth:`place`."""
