"""Finds where the log of a master and its copy differ, with single records as samples.

Nothing of the protocol tells it: a master that lost its tail sends other bytes, or none. Records
that have the same place and differ in time cannot be equal by chance, so all before an equal record
is equal too, and the search can halve the distance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, unique
from typing import Final

import attrs

from lakelog_replication.replica.connection import Dialer, MasterConnection
from lakelog_replication.replica.receivable import Receivable
from lakelog_replication.wire import HaFrame

_TICK_S: Final = 0.2
_ATTEMPTS: Final = 3


@unique
class Sample(Enum):
    """What a master has at the place of a record."""

    SAME = "the same bytes"
    OTHER = "other bytes"
    NOTHING = "nothing"
    CLOSED = "it closed the connection"


@attrs.frozen
class Prober:
    """Asks a master for pieces of its log, each on a connection of its own.

    :ivar is_over: whether to give up, by raising ``ConnectionAbortedError``
    """

    dialer: Dialer
    is_over: Callable[[], bool]

    def last_segment(self) -> int:
        """The start of the master's last segment; raises ``OSError``."""
        with self.dialer.dial(0) as connection:
            while True:
                for frame in self._frames(connection):
                    return frame.offset

    def has_bytes_at(self, offset: int) -> bool:
        """Whether the log has bytes from ``offset`` on; raises ``OSError``."""
        with self.dialer.dial(offset) as connection:
            while True:
                for frame in self._frames(connection):
                    return len(frame.body) > 0

    def sample(self, log: Receivable, start: int, end: int) -> Sample:
        """Compare the bytes from ``start`` to ``end``, within one segment; raises ``OSError``."""
        at = max(start, 1)  # 0 would be answered with the last segment
        with self.dialer.dial(at) as connection:
            while at < end:
                try:
                    frames = self._frames(connection)
                except ConnectionAbortedError:
                    raise
                except ConnectionError:
                    if connection.has_answered:
                        raise  # a master that lacks the bytes closes at once
                    return Sample.CLOSED
                for frame in frames:
                    if frame.offset != at:
                        return Sample.OTHER
                    if not len(frame.body):
                        return Sample.NOTHING
                    body = frame.body[: end - at]
                    if log.view(at, len(body)) != body:
                        return Sample.OTHER
                    at += len(body)
                    if at == end:
                        break
        return Sample.SAME

    def _frames(self, connection: MasterConnection) -> Sequence[HaFrame]:
        while True:
            if self.is_over():
                raise ConnectionAbortedError("the store is being closed")
            frames = connection.receive(_TICK_S)
            if frames:
                return frames
            connection.report(0)


@attrs.frozen
class DivergenceSearch:
    """Compares a replica with its master.

    :ivar last_segment: where the last segment of the master starts
    """

    log: Receivable
    prober: Prober
    last_segment: int

    @classmethod
    def begin(cls, log: Receivable, prober: Prober) -> DivergenceSearch:
        """Ask where the master is; raises ``OSError``."""
        return cls(log, prober, prober.last_segment())

    @property
    def is_cleaned(self) -> bool:
        """Whether the master has deleted what follows the end of the copy."""
        return self.last_segment > self.log.appended and not self._has_bytes_at(self.log.appended)

    def first_difference(self) -> int | None:
        """The end of the last record that both have; ``None`` if they do not differ.

        The first byte of the copy if they have nothing in common. Raises ``OSError`` if the master
        does not answer.
        """
        log, size = self.log, self.log.segment_size_bytes
        starts = range(log.minimum, log.appended, size)
        newest = self._records(starts[-1], log.appended)
        if not newest and len(starts) > 1:
            newest = self._records(starts[-2], log.appended)
        if not newest or self._is_same(newest[-1]):
            return None
        heads = [each for start in starts for each in self._records(start, start + 1)]
        first = self._last_same(heads)
        if first is None:
            return log.minimum
        start = first.start - first.start % size
        last = self._last_same(self._records(start, min(start + size, log.appended)))
        if last == newest[-1]:
            return None  # connections that broke off looked like a master without it
        return log.minimum if last is None else last.stop

    def _records(self, start: int, end: int) -> list[range]:
        """The places of the records that start there."""
        return [
            range(offset, offset + size)
            for batch in self.log.records(start, end)
            for offset, size in zip(
                batch.physical_offsets.tolist(), batch.sizes.tolist(), strict=True
            )
        ]

    def _last_same(self, records: Sequence[range]) -> range | None:
        """The last of the records that the master has too, by bisection."""
        low, high, found = 0, len(records), None
        while low < high:
            middle = (low + high) // 2
            record = records[middle]
            if self._is_same(record):
                low, found = middle + 1, record
            elif self._is_deleted(record):
                low = middle + 1
            else:
                high = middle
        return found

    def _is_same(self, record: range) -> bool:
        """Whether the master has it; raises ``OSError``.

        A master of lakelog ends a connection that asks for what it does not have. So may a network:
        it counts if it happens again and again while other questions are answered.
        """
        for _ in range(_ATTEMPTS):
            sample = self.prober.sample(self.log, record.start, record.stop)
            if sample is not Sample.CLOSED:
                return sample is Sample.SAME
            self.prober.last_segment()
        return False

    def _is_deleted(self, record: range) -> bool:
        """Whether the master may have had it: it answers with nothing below its first byte."""
        return record.stop <= self.last_segment and not self._has_bytes_at(max(record.start, 1))

    def _has_bytes_at(self, offset: int) -> bool:
        try:
            return self.prober.has_bytes_at(offset)
        except ConnectionAbortedError:
            raise
        except ConnectionError:
            return False
