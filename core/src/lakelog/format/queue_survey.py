"""Collects, during a scan, the last store time and the next queue offsets of a log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs

from lakelog.format import properties
from lakelog.format.layout import INNER_BATCH, PREPARED, RECORD_MIN_BYTES
from lakelog.format.queue_offsets import Queue

if TYPE_CHECKING:
    from lakelog.accelerate import PlainRecords
    from lakelog.format.record_batch import RecordBatch

INNER_NUMBER = "INNER_NUM"
"""Property with the number of messages in an inner batch; each takes a queue offset."""
_DISPATCHED = properties.INNER_MULTI_DISPATCH.encode()
_IMPOSSIBLE = 1 << 62
_LOG = logging.getLogger("lakelog")


@attrs.define(eq=False, repr=False)
class QueueOffsetChain:
    """Checks the sequence of queue offsets in the records of one queue.

    No checksum covers a stored queue offset. An offset is doubted if the bytes since the queue's
    last record cannot hold so many records. It counts only if a second record continues from it.

    :ivar next: the queue offset of the next message
    :ivar end: physical offset behind the last record not in doubt
    :ivar start: physical offset of the first record
    :ivar alone: whether only one record was read, so that no other one confirms its offset
    :ivar doubt_next: the next offset according to the last doubted record; -1 without one
    :ivar doubt_end: physical offset behind the last doubted record
    :ivar doubt_start: physical offset of the last doubted record
    """

    next: int
    end: int
    start: int = 0
    alone: bool = False
    doubt_next: int = -1
    doubt_end: int = 0
    doubt_start: int = 0

    @classmethod
    def of(
        cls, stated: int, start: int, end: int, taken: int = 1, *, free: bool = False
    ) -> QueueOffsetChain:
        """Start with the first record; a negative queue offset is ignored.

        Parameters as in :meth:`take`.
        """
        if stated < 0:
            return cls(0, -_IMPOSSIBLE, start, False, _IMPOSSIBLE, end, start)
        return cls(stated + taken, end, start, not free)

    def take(
        self, stated: int, start: int, end: int, taken: int = 1, *, free: bool = False
    ) -> None:
        """Add the record from ``start`` to ``end``, physical offsets in bytes.

        :param stated: the queue offset in the record
        :param taken: number of queue offsets that the record takes
        :param free: whether its offset has no upper bound: it is an inner batch, and a lost inner
            batch before it may have taken any number of offsets
        """
        after = stated + taken
        if stated >= self.next and (free or explains(stated - self.next, start - self.end)):
            self.next, self.end, self.alone = after, end, False
        elif stated < 0 or stated > self.next:
            self._doubt_or_follow(stated, start, end, after)
        else:
            if self.alone and after < self.next:
                self.doubt_first(after)
            self.next, self.end, self.alone = max(self.next, after), end, False

    def doubt_first(self, right: int) -> None:
        """Reject the offset of the only record: the next message takes ``right``."""
        self.doubt_next, self.doubt_start, self.doubt_end = self.next, self.start, self.end
        self.next, self.alone = right, False

    def _doubt_or_follow(self, stated: int, start: int, end: int, after: int) -> None:
        missing = stated - self.doubt_next
        if missing >= 0 <= self.doubt_next and explains(missing, start - self.doubt_end):
            self.next, self.end, self.alone, self.doubt_next = after, end, False, -1
        else:
            self.doubt_next, self.doubt_start, self.doubt_end = (
                _IMPOSSIBLE if stated < 0 else after,
                start,
                end,
            )

    def join(self, behind: QueueOffsetChain) -> None:
        """Append the chain of the records right behind, read separately."""
        if behind.alone:
            self.take(behind.next - 1, behind.start, behind.end)
        elif self.alone and 0 < behind.next < self.next:
            self.doubt_first(behind.next)
            self.end = behind.end
        elif behind.next:
            self.next, self.end, self.alone = max(self.next, behind.next), behind.end, False
        if behind.doubt_next >= 0:
            self._doubt_or_follow(
                behind.doubt_next - 1, behind.doubt_start, behind.doubt_end, behind.doubt_next
            )


def explains(missing: int, gap_bytes: int) -> bool:
    """Whether ``missing`` records fit into ``gap_bytes`` of the log."""
    return missing * RECORD_MIN_BYTES <= gap_bytes


@attrs.define(eq=False, repr=False)
class QueueOffsetSurvey:
    """The result of a scan; offsets in bytes of the log, store times in ms since 1970.

    :ivar start_offset: where the scan began
    :ivar end_offset: behind the last whole record or blank
    :ivar last_timestamp_ms: store time of the last record
    :ivar next_offsets: by queue, the queue offset of the next message
    :ivar records: number of whole records
    :ivar highest_timestamp_ms: highest store time; the clock may have been set back
    :ivar chains: by queue, the state for checking the next record
    :ivar first_timestamp_ms: store time of the first record
    :ivar last_offset: start of the last whole record; -1 without one
    """

    start_offset: int
    end_offset: int
    last_timestamp_ms: int = 0
    next_offsets: dict[Queue, int] = attrs.Factory(dict)
    records: int = 0
    highest_timestamp_ms: int = 0
    chains: dict[Queue, QueueOffsetChain] = attrs.Factory(dict)
    first_timestamp_ms: int = 0
    last_offset: int = -1

    def raise_offset(self, queue: Queue, next_offset: int) -> None:
        """Raise the next offset of ``queue`` to at least ``next_offset``."""
        if self.next_offsets.get(queue, 0) < next_offset:
            self.next_offsets[queue] = next_offset

    def join(self, behind: QueueOffsetSurvey) -> None:
        """Append the survey of the records right behind."""
        self.end_offset = behind.end_offset
        self.records += behind.records
        self.last_timestamp_ms = behind.last_timestamp_ms or self.last_timestamp_ms
        self.last_offset = max(behind.last_offset, self.last_offset)
        self._raise_time(behind.highest_timestamp_ms)
        for queue, chain in behind.chains.items():
            before = self.chains.get(queue)
            if before is None:
                before = self.chains[queue] = attrs.evolve(chain)
            else:
                before.join(chain)
            self.next_offsets[queue] = before.next

    def settle(self, queue: Queue, end: int, reached: int) -> None:
        """Compare with the files of ``queue``.

        The offset of a single record is rejected if the bytes since ``reached`` cannot hold the
        records up to it.

        :param end: queue offset behind the last unit
        :param reached: physical offset behind the record of that unit
        """
        chain = self.chains.get(queue)
        if chain is not None and chain.alone and not self._fits(chain, end, reached):
            chain.doubt_first(end + (chain.start >= reached))
            self.next_offsets[queue] = chain.next
        self.raise_offset(queue, end)

    @staticmethod
    def _fits(chain: QueueOffsetChain, end: int, reached: int) -> bool:
        missing = chain.next - 1 - end
        return missing <= 0 or explains(missing, max(0, chain.start - reached))

    def log_doubtful_offsets(self) -> None:
        """Log a warning for each rejected queue offset."""
        for queue, chain in self.chains.items():
            if chain.doubt_next >= 0:
                _LOG.warning(
                    "queue %s/%d: the record at %d has an impossible queue offset; the queue "
                    "continues at %d; `lakelog verify --queues` shows the place of the record",
                    *(*queue, chain.doubt_start, self.next_offsets.get(queue, chain.next)),
                )

    def count(self, batch: RecordBatch) -> None:
        """Add a run of records; prepared and rollback messages take no queue offset."""
        self.end_offset = batch.end_offset
        times = batch.store_timestamps_ms
        if not self.records:
            self.first_timestamp_ms = int(times[0])
        self.last_timestamp_ms = int(times[-1])
        self.last_offset = int(batch.physical_offsets[-1])
        self._raise_time(int(times.max()))
        self.records += len(batch)
        rows = zip(
            batch.topics,
            batch.queue_ids.tolist(),
            batch.queue_offsets.tolist(),
            batch.sys_flags.tolist(),
            strict=True,
        )
        for at, (topic, queue_id, stated, flags) in enumerate(rows):
            if not flags & PREPARED:
                inner = bool(flags & INNER_BATCH)
                taken = _taken(batch, at) if inner else 1
                self._take(batch, (topic, queue_id), at, stated, taken, free=inner)
        held = batch.buffer[int(batch.starts[0]) : int(batch.ends[-1])]
        if _DISPATCHED in bytes(held):  # one search in all bytes is cheap
            self._count_light_queues(batch)

    def count_plain(self, plain: PlainRecords) -> None:
        """Set the result for the first records, which compiled code has read."""
        self.end_offset, self.records, self.first_timestamp_ms, last_ms, queues = plain
        self.last_timestamp_ms = last_ms
        self._raise_time(self.last_timestamp_ms)
        for topic, queue_id, count, first, start, end in queues:
            chain = QueueOffsetChain.of(first, start, end)
            chain.next, chain.alone = first + count, count == 1
            self.chains[topic, queue_id] = chain
            self.next_offsets[topic, queue_id] = chain.next

    def _raise_time(self, found_ms: int) -> None:
        self.highest_timestamp_ms = max(self.highest_timestamp_ms, found_ms)

    def _take(
        self,
        batch: RecordBatch,
        queue: Queue,
        at: int,
        stated: int,
        taken: int,
        *,
        free: bool,
    ) -> None:
        start = int(batch.physical_offsets[at])
        end = start + int(batch.sizes[at])
        chain = self.chains.get(queue)
        if chain is None:
            chain = self.chains[queue] = QueueOffsetChain.of(stated, start, end, taken, free=free)
        else:
            chain.take(stated, start, end, taken, free=free)
        self.next_offsets[queue] = chain.next

    def _count_light_queues(self, batch: RecordBatch) -> None:
        for at, raw in enumerate(batch.property_strings):
            if _DISPATCHED in raw:
                named = properties.decode_properties(raw)
                topics = properties.light_queues(named.get(properties.INNER_MULTI_DISPATCH, ""))
                stated = named.get(properties.INNER_MULTI_QUEUE_OFFSET, "")
                offsets = stated.split(properties.MULTI_DISPATCH_SEPARATOR)
                for topic, offset in zip(topics, offsets, strict=False):
                    if offset.isdigit():
                        self._take(batch, (topic, 0), at, int(offset), 1, free=False)


def _taken(batch: RecordBatch, at: int) -> int:
    """The number of queue offsets that an inner batch takes."""
    number = batch.properties[at].get(INNER_NUMBER, "1")
    return int(number) if number.isdigit() else 1
