"""The interface of encoded messages: records that lack only the fields that depend on position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakelog.status import AppendStatus, PutStatus

if TYPE_CHECKING:
    from lakelog.format.queue_offsets import QueueOffsets
    from lakelog.results import PutResult


class EncodedBatch(ABC):
    """One or more records back to back, for a single append.

    :ivar buffer: the records; complete after :meth:`place`
    :ivar count: number of records
    :ivar wait: whether any put of the batch waits for the flush strategy
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
        """Advance the queue offsets that :meth:`place` used, after the bytes were written."""

    @abstractmethod
    def results(self, status: PutStatus) -> Sequence[PutResult]:
        """The result of each message, in order; valid only after :meth:`place`."""
