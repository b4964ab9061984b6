"""Scans a whole log for a repair: finds the gaps and the data for their fillers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs

from lakelog.log.reading.pieces import Blank, Damage, Piece
from lakelog.recovery.filler import FILLER_TOPIC, LogGap
from lakelog_format.codec.record_crc import is_sealed

if TYPE_CHECKING:
    from lakelog_format.codec.record_batch import RecordBatch


@attrs.frozen
class FillerQueue:
    """A queue of fillers: log offset of its last record, and its next queue offset."""

    last_offset: int
    next_offset: int


@attrs.define
class LogScan:
    """The result of the scan.

    :ivar gaps: damage followed by a record; a gap may span several segments
    :ivar end_offset: behind the last record
    :ivar fillers: queues with fillers of earlier repairs, by id
    """

    sealed: bool
    gaps: list[LogGap] = attrs.field(factory=list)
    end_offset: int = 0
    fillers: dict[int, FillerQueue] = attrs.field(factory=dict)
    _last_ms: int | None = None
    _last_sealed: bool = False
    _pending: list[Damage] = attrs.field(factory=list)

    @classmethod
    def at(cls, pieces: Iterable[Piece], *, sealed: bool) -> LogScan:
        """Evaluate everything that a scan yields.

        :param sealed: whether fillers need a record checksum, whatever their neighbours have
        """
        scanned = cls(sealed)
        for piece in pieces:
            scanned.take(piece)
        return scanned

    def take(self, piece: Piece) -> None:
        """Evaluate the next piece."""
        if isinstance(piece, Damage):
            self._pending.append(piece)
        elif not isinstance(piece, Blank):
            self._close_gaps(piece)
            self._note(piece)

    def _close_gaps(self, behind: RecordBatch) -> None:
        """Turn pending damage into gaps, as a record follows."""
        for damage in self._pending:
            before_ms = self._last_ms
            time_ms = int(behind.store_timestamps_ms[0]) if before_ms is None else before_ms
            sealed = self.sealed or self._last_sealed or _seal(behind, 0)
            reason = damage.error.what
            self.gaps.append(LogGap(damage.offset, damage.end_offset, reason, time_ms, sealed))
        self._pending.clear()

    def _note(self, batch: RecordBatch) -> None:
        self.end_offset = batch.end_offset
        self._last_ms = int(batch.store_timestamps_ms[-1])
        self._last_sealed = _seal(batch, len(batch) - 1)
        for at, topic in enumerate(batch.topics):
            if topic == FILLER_TOPIC:
                offset, number = int(batch.physical_offsets[at]), int(batch.queue_offsets[at])
                self.fillers[int(batch.queue_ids[at])] = FillerQueue(offset, number + 1)

    def queue_for(self, first_gap: int) -> tuple[int, int]:
        """Id and next queue offset of a queue with no record behind ``first_gap``.

        Fillers of an earlier repair may stand behind a new gap. In the same queue, the queue
        offsets would then decrease.
        """
        queue_id = 0
        while queue_id in self.fillers and self.fillers[queue_id].last_offset > first_gap:
            queue_id += 1
        found = self.fillers.get(queue_id)
        return queue_id, found.next_offset if found is not None else 0


def _seal(batch: RecordBatch, at: int) -> bool:
    return is_sealed(batch[at : at + 1].property_strings[0])
