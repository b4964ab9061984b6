"""Reads a log from end to end: runs of records, blanks, and damage with its place.

Damage is not the end: behind it a scan goes on at the next record that can be proved whole, by
its lengths, its place, its checksums, and a store time that is not older than the last one's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from lakelog.codec.frame import read_frame, verify_frame
from lakelog.codec.recordbatch import RecordBatch
from lakelog.codec.run import decode_run
from lakelog.errors import CorruptRecord
from lakelog.layout import (
    BLANK,
    BLANK_MIN_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_MIN_BYTES,
)
from lakelog.pieces import Blank, Damage, Piece
from lakelog.resync import find_record
from lakelog.source import Extent, Source

WINDOW_BYTES: Final = 4 << 20
"""How much is looked at at once."""


def scan(
    source: Source, start: int, end: int | None = None, *, verify: bool = True
) -> Iterator[Piece]:
    """What stands in the log from ``start`` on, in order.

    :param start: where a record starts, or anything up to the start of the first segment
    :param end: where to stop; ``None`` reads to the end of what is there
    :param verify: whether checksums are computed

    What follows the last whole record is damage if it is other than zero.
    """
    walk = _Walk(start, end, verify)
    for extent in source.extents(start):
        yield from walk.through(extent)
        if walk.is_done(extent):
            break
    yield from walk.tail()


class _Walk:
    """One scan on its way."""

    def __init__(self, start: int, end: int | None, verify: bool) -> None:
        self._at = start
        self._end = end
        self._verify = verify
        self._last_time_ms = 0
        self._bad: Damage | None = None
        self._begun = False

    def is_done(self, extent: Extent) -> bool:
        return self._end is not None and extent.end >= self._end

    def through(self, extent: Extent) -> Iterator[Piece]:
        """Everything in one segment."""
        if self._begun and self._bad is None and extent.start > self._at:
            self._bad = Damage(self._at, self._at, _missing(self._at, extent.start), extent.path)
        self._begun = True
        self._at = max(self._at, extent.start)
        end = extent.end if self._end is None else min(self._end, extent.end)
        window = WINDOW_BYTES
        while self._at < end:
            data = extent.read(self._at, min(window, max(end - self._at, RECORD_MIN_BYTES)))
            batch = decode_run(data, self._at, verify=self._verify)
            if len(batch):
                yield from self._good(batch)
                window = WINDOW_BYTES
            elif self._fills(extent, data):
                yield from self._blank(extent)
                return
            elif larger := self._size_of_larger(extent, data):
                window = larger
                end = max(end, self._at + larger)  # it starts before the end: it belongs here
            elif not self._resume(extent, data):
                return

    def _good(self, batch: RecordBatch) -> Iterator[Piece]:
        yield from self._damage_before(self._at)
        yield batch
        self._at = batch.end_offset
        self._last_time_ms = int(batch.store_timestamps_ms[-1])

    def _fills(self, extent: Extent, data: memoryview) -> bool:
        """Whether a blank record fills the rest of the segment."""
        if len(data) < BLANK_MIN_BYTES:
            return False
        return BLANK.unpack_from(data) == (extent.end - self._at, MAGIC_BLANK)

    def _blank(self, extent: Extent) -> Iterator[Piece]:
        yield from self._damage_before(self._at)
        yield Blank(self._at, extent.end - self._at)
        self._at = extent.end

    def _size_of_larger(self, extent: Extent, data: memoryview) -> int:
        """The length of a record that the window has cut, or 0."""
        if len(data) < RECORD_MIN_BYTES:
            return 0
        size, magic = BLANK.unpack_from(data)
        cut = magic in (MAGIC_V1, MAGIC_V2) and len(data) < size <= extent.end - self._at
        return int(size) if cut else 0

    def _resume(self, extent: Extent, data: memoryview) -> bool:
        """Note the damage, and go to the next whole record of the segment if there is one."""
        if self._bad is None:
            self._bad = Damage(self._at, self._at, _why(data, self._at), extent.path)
        found = find_record(extent, self._at, self._last_time_ms)
        if found is None:
            self._note_tail(extent)
            self._at = extent.end
            return False
        self._bad = attrs.evolve(self._bad, end_offset=found)
        self._at = found
        return True

    def _note_tail(self, extent: Extent) -> None:
        """Whether there is anything but zeros behind the last record of a segment."""
        if self._bad is not None:
            last = _last_nonzero(extent, self._at)
            if last is not None:
                self._bad = attrs.evolve(self._bad, end_offset=last + 1)

    def _damage_before(self, offset: int) -> Iterator[Damage]:
        """The damage that ends here, if there is any."""
        if self._bad is not None:
            yield attrs.evolve(self._bad, end_offset=offset)
            self._bad = None

    def tail(self) -> Iterator[Damage]:
        """Damage that nothing follows; zeros there are just the end of the log."""
        if self._bad is not None and self._bad.end_offset > self._bad.offset:
            yield self._bad


def _missing(offset: int, behind: int) -> CorruptRecord:
    return CorruptRecord(
        "a segment, or its end, is missing", offset=offset, expected=offset, found=behind
    )


def _why(data: memoryview, offset: int) -> CorruptRecord:
    """What is wrong with the record at the start of ``data``."""
    try:
        verify_frame(data, read_frame(data, 0, len(data), offset), offset)
    except CorruptRecord as error:
        return error
    return CorruptRecord("it is damaged", offset=offset)


def _last_nonzero(extent: Extent, offset: int) -> int | None:
    """The last byte from ``offset`` on that is not zero."""
    last = None
    at = extent.next_data(offset)
    while at is not None and at < extent.end:
        data = bytes(extent.read(at, WINDOW_BYTES))
        if data != bytes(len(data)):  # much faster than to strip, and nearly all is zeros
            last = at + len(data.rstrip(b"\x00")) - 1
        at = extent.next_data(at + len(data)) if data else None
    return last
