"""Finds where the log of a master and its copy differ, with single records as samples.

The protocol has no message for it: a master that lost the end of its log sends other bytes, or
none. Two different records at one offset differ in their store time, so they are not equal by
chance. Hence all bytes before an equal record are equal, too, and a binary search is possible.
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
    """A master's answer for the place of a record."""

    SAME = "the same bytes"
    OTHER = "other bytes"
    NOTHING = "nothing"
    CLOSED = "it closed the connection"


@attrs.frozen
class Prober:
    """Requests parts of a master's log, each on a new connection.

    :ivar is_over: returns whether to give up; all methods then raise ``ConnectionAbortedError``
    """

    dialer: Dialer
    is_over: Callable[[], bool]

    def last_segment(self) -> int:
        """The start of the master's last segment; raises ``OSError``."""
        with self.dialer.dial(0) as connection:
            return self._frames(connection)[0].offset

    def has_bytes_at(self, offset: int) -> bool:
        """Whether the master's log has bytes at the physical ``offset``; raises ``OSError``.

        A lakelog master closes a connection that asks for bytes that it lacks. A network failure
        looks the same. So a closed connection counts only if each attempt fails and another request
        in between is answered.
        """
        for _ in range(_ATTEMPTS):
            try:
                with self.dialer.dial(offset) as connection:
                    return len(self._frames(connection)[0].body) > 0
            except ConnectionAbortedError:
                raise
            except ConnectionError:
                self.last_segment()
        return False

    def sample(self, log: Receivable, start: int, end: int) -> Sample:
        """Compare the bytes from offset ``start`` to ``end``, within one segment.

        Raises ``OSError``.
        """
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

    :ivar last_segment: start offset of the master's last segment
    """

    log: Receivable
    prober: Prober
    last_segment: int

    @classmethod
    def begin(cls, log: Receivable, prober: Prober) -> DivergenceSearch:
        """Ask the master for its last segment; raises ``OSError``."""
        return cls(log, prober, prober.last_segment())

    @property
    def is_cleaned(self) -> bool:
        """Whether the master has deleted the bytes that follow the end of the copy.

        Raises ``OSError``.
        """
        end = self.log.appended
        return self.last_segment > end and not self.prober.has_bytes_at(end)

    def first_difference(self) -> int | None:
        """The end offset of the last common record; ``None`` if the logs do not differ.

        It is the start of the copy if there is no common record. Raises ``OSError`` if the master
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
            return None  # broken connections had looked like a master without the newest record
        return log.minimum if last is None else last.stop

    def _records(self, start: int, end: int) -> list[range]:
        """The places of the records that start from ``start`` to before ``end``."""
        return [
            range(offset, offset + size)
            for batch in self.log.records(start, end)
            for offset, size in zip(
                batch.physical_offsets.tolist(), batch.sizes.tolist(), strict=True
            )
        ]

    def _last_same(self, records: Sequence[range]) -> range | None:
        """The last record that the master has, too, by bisection."""
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
        """Whether the master has the same record; raises ``OSError``.

        A closed connection counts as in :meth:`Prober.has_bytes_at`.
        """
        for _ in range(_ATTEMPTS):
            sample = self.prober.sample(self.log, record.start, record.stop)
            if sample is not Sample.CLOSED:
                return sample is Sample.SAME
            self.prober.last_segment()
        return False

    def _is_deleted(self, record: range) -> bool:
        """Whether the master may have had the record: it sends no bytes below its first offset."""
        return record.stop <= self.last_segment and not self.prober.has_bytes_at(
            max(record.start, 1)
        )
