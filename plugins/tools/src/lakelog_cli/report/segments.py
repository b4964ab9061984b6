"""Counts the content of each segment while a log is read."""

from __future__ import annotations

import attrs

from lakelog import Store
from lakelog.files.segment_files import SegmentFile, segment_files
from lakelog.log.reading.pieces import Blank
from lakelog_cli.walk import directory_of
from lakelog_doctor.parallel_scan import Part, WholeSegment
from lakelog_format.codec.record_batch import RecordBatch


@attrs.define
class Segment:
    """One segment of the log.

    :ivar used_bytes: of records and blanks
    :ivar damaged_bytes: in ranges that are not whole records
    :ivar first_ms: store time of its first message; 0 if not known
    """

    start_offset: int
    length: int
    used_bytes: int = 0
    damaged_bytes: int = 0
    records: int = 0
    first_ms: int = 0

    @property
    def end_offset(self) -> int:
        """Its end, exclusive."""
        return self.start_offset + self.length


@attrs.frozen
class SegmentCounts:
    """Counts the content of the segments of a log.

    :ivar segments: in the order of the log
    :ivar segment_size_bytes: the length of a new segment
    """

    segments: tuple[Segment, ...]
    segment_size_bytes: int

    @classmethod
    def of(cls, store: Store) -> SegmentCounts:
        """Begin for the segments of a store that have bytes of the log."""
        found = tuple(Segment(each.start_offset, each.length) for each in log_files(store))
        return cls(found, store.settings.core.segment_size_bytes)

    def add(self, part: Part) -> None:
        """Add a part of the log; damage may span several segments."""
        if isinstance(part, RecordBatch):
            self._add_records(part)
            return
        if isinstance(part, WholeSegment):
            start, end = part.start_offset, part.end_offset
        else:
            start, end = part.offset, part.end_offset
        for segment in self.segments:
            length = min(end, segment.end_offset) - max(start, segment.start_offset)
            if length <= 0:
                continue
            if isinstance(part, Blank | WholeSegment):
                segment.used_bytes += length
                segment.records += part.records if isinstance(part, WholeSegment) else 0
            else:
                segment.damaged_bytes += length

    def _add_records(self, batch: RecordBatch) -> None:
        offsets = batch.starts + batch.base_offset
        for segment in self.segments:
            inside = (offsets >= segment.start_offset) & (offsets < segment.end_offset)
            if inside.any():
                segment.records += int(inside.sum())
                segment.used_bytes += int(batch.sizes[inside].sum())
                segment.first_ms = segment.first_ms or int(batch.store_timestamps_ms[inside][0])


def log_files(store: Store) -> list[SegmentFile]:
    """The segments that have bytes of the log."""
    directory = directory_of(store)
    found = segment_files(directory.commitlog, directory.files.list(directory.commitlog))
    return [each for each in found if each.start_offset + each.length > store.min_offset]
