"""The steps of a repair, planned before anything is changed.

A scan of the whole log finds the gaps, and the data for the records that fill them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import attrs

from lakelog.errors import BadSegment
from lakelog.files.segment_files import SegmentFile, segment_files
from lakelog.format.checksum import is_sealed
from lakelog.format.layout import is_segment_name
from lakelog.format.record_batch import Blank, Damage, Piece, RecordBatch
from lakelog.log.store_directory import StoreDirectory
from lakelog.recovery.filler import FILLER_TOPIC, Filling, LogGap, Step, fillings_of
from lakelog.recovery.report import RecoveryReport


@attrs.define
class LogScan:
    """The result of the scan.

    :ivar gaps: damage followed by a record; a gap may span several segments
    :ivar end_offset: behind the last record
    :ivar fillers: queues with fillers of earlier repairs: by id, the physical offset of the last
        one, and the next queue offset
    """

    sealed: bool
    gaps: list[LogGap] = attrs.field(factory=list)
    end_offset: int = 0
    fillers: dict[int, tuple[int, int]] = attrs.field(factory=dict)
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
            if isinstance(piece, Damage):
                scanned._pending.append(piece)
            elif not isinstance(piece, Blank):
                scanned._close_gaps(piece)
                scanned._note(piece)
        return scanned

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
                self.fillers[int(batch.queue_ids[at])] = offset, number + 1

    def queue_for(self, first_gap: int) -> tuple[int, int]:
        """Id and next queue offset of a queue with no record behind ``first_gap``.

        Fillers of an earlier repair may stand behind a new gap. In the same queue, the queue
        offsets would then decrease.
        """
        queue_id = 0
        while queue_id in self.fillers and self.fillers[queue_id][0] > first_gap:
            queue_id += 1
        return queue_id, self.fillers.get(queue_id, (0, 0))[1]


def _seal(batch: RecordBatch, at: int) -> bool:
    return is_sealed(batch[at : at + 1].property_strings[0])


@attrs.frozen
class Stray:
    """A file among the segments that is not a segment: it is moved to quarantine."""

    path: Path
    length: int

    def step(self) -> Step:
        """The step that moves it."""
        return Step(self.path, 0, "move it to quarantine", "it is no segment")


@attrs.frozen
class MissingRange:
    """A segment missing between others: it is replaced by one blank record."""

    path: Path
    start_offset: int
    size_bytes: int

    def step(self) -> Step:
        """The step that creates it."""
        return Step(
            self.path,
            self.start_offset,
            f"make the segment, with one blank record of {self.size_bytes} bytes",
            "it is missing",
        )


@attrs.frozen
class RepairPlan:
    """All steps of a repair.

    :ivar recovery: the report of the recovery that runs first; ``None`` if it is not known until
        strays and missing segments are mended
    """

    strays: tuple[Stray, ...]
    missing: tuple[MissingRange, ...]
    recovery: RecoveryReport | None
    fillings: tuple[Filling, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps in order, without those of the recovery."""
        strays = [each.step() for each in self.strays]
        missing = [each.step() for each in self.missing]
        return (*strays, *missing, *(each.step() for each in self.fillings))


def check_sizes(segments: Sequence[SegmentFile], size_bytes: int) -> None:
    """Refuse a wrong setting of the segment size: nearly every file would seem to be wrong.

    Raises :class:`~lakelog.errors.BadSegment`.
    """
    odd = [each for each in segments if each.length != size_bytes or each.start_offset % size_bytes]
    if len(odd) > 1 and 2 * len(odd) > len(segments):
        raise BadSegment(
            f"{len(odd)} of {len(segments)} segments do not have the length or place that "
            f"segment_size_bytes = {size_bytes} requires; check this setting. Nothing was changed",
            path=odd[0].path,
            offset=odd[0].start_offset,
            expected=size_bytes,
            found=odd[0].length,
        )


def find_strays(directory: StoreDirectory, size_bytes: int) -> Iterator[Stray]:
    """Yield files whose name or length no segment can have."""
    for name, length in directory.files.list(directory.commitlog):
        if not is_segment_name(name) or int(name) % size_bytes:
            yield Stray(directory.commitlog / name, length)


def find_missing(directory: StoreDirectory, size_bytes: int) -> Iterator[MissingRange]:
    """Yield segments missing between others; a loss at either end only shortens the log."""
    starts = [each.start_offset for each in _segments(directory, size_bytes)]
    for before, behind in pairwise(starts):
        for start in range(before + size_bytes, behind, size_bytes):
            yield MissingRange(directory.segment(start), start, size_bytes)


def _segments(directory: StoreDirectory, size_bytes: int) -> list[SegmentFile]:
    found = segment_files(directory.commitlog, directory.files.list(directory.commitlog))
    return [each for each in found if not each.start_offset % size_bytes]


def find_fillings(
    directory: StoreDirectory, scanned: LogScan, size_bytes: int, missing: Sequence[MissingRange]
) -> Iterator[Filling]:
    """Yield the filling of each gap that is not a missing segment."""
    absent = {each.start_offset for each in missing}
    for gap in scanned.gaps:
        for filling in fillings_of(directory, gap, size_bytes):
            if filling.start_offset not in absent:
                yield filling
