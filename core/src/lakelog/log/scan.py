"""Reads a log from end to end: runs of records, blanks, and damage with its range.

A scan continues behind damage at the next record proved whole by its lengths, place and checksums,
and by a store time not before that of the last record. It finds that record by its magic number and
all other checks. The caller can require more of a record: a whole one need not belong to the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Final

import attrs

from lakelog.errors import CorruptRecord
from lakelog.files.filesystem import last_nonzero
from lakelog.format import layout
from lakelog.format.record import checked_frame, decode
from lakelog.format.record_batch import Blank, Damage, Piece, RecordBatch, decode_run
from lakelog.log.sources import Extent, Source, head_in

_SEARCHED_BYTES: Final = 1 << 20
WINDOW_BYTES: Final = 512 << 10
"""The number of bytes read and checked at once: few enough to stay in the processor's cache."""
_HEAD_BYTES: Final = 64
_MAGICS: Final = [
    Struct(">I").pack(magic) for magic in (layout.MAGIC_V1, layout.MAGIC_V2, layout.MAGIC_BLANK)
]


def scan(
    source: Source,
    start: int,
    end: int | None = None,
    *,
    verify: bool = True,
    leading: Callable[[RecordBatch, int], int] | None = None,
    accepts: Callable[[memoryview, int, int], bool] | None = None,
    sealed: bool = False,
) -> Iterator[Piece]:
    """Yield the log's content from ``start`` on, in order.

    :param start: where a record starts, or an offset up to the start of the first segment
    :param end: where to stop; ``None`` reads to the end of the files
    :param verify: whether to compute checksums
    :param leading: returns how many records at the front of a run belong to the log; the others are
        damage. Its second argument is 0 if the run follows the last accepted record directly, and 1
        if damage is in between and the first record of the run was accepted. Called in log order,
        as ``accepts`` is
    :param accepts: returns whether a whole record behind damage belongs to the log, given its
        bytes, its offset, and that of the damage; without it, its store time decides
    :param sealed: whether a record without a record checksum is damage too

    Bytes behind the last whole record are damage unless they are zero. Raises
    :class:`~lakelog.errors.ReadFailed` if the bytes cannot be read.
    """
    walk = _Walk(start, end, verify, leading, accepts, source.known_damage, sealed)
    for extent in source.extents(start):
        yield from walk.through(extent)
        if walk.is_done(extent):
            break
    yield from walk.tail()


@attrs.define
class _Walk:
    """The state of one scan; its first fields are the arguments of :func:`scan`."""

    _at: int
    _end: int | None
    _verify: bool
    _leading: Callable[[RecordBatch, int], int] | None
    _accepts: Callable[[memoryview, int, int], bool] | None
    _known_damage: Mapping[int, Damage]
    _sealed: bool
    _unproven: Sequence[Damage] = attrs.field(init=False)
    _last_time_ms: int = attrs.field(default=0, init=False)
    _bad: Damage | None = attrs.field(default=None, init=False)
    _begun: bool = attrs.field(default=False, init=False)
    _found: int = attrs.field(default=-1, init=False)

    def __attrs_post_init__(self) -> None:
        # Without checksums, known damage may look whole.
        known = self._known_damage.values()
        self._unproven = [each for each in known if each.unproven or not self._verify]

    def is_done(self, extent: Extent) -> bool:
        return self._end is not None and extent.end >= self._end

    def through(self, extent: Extent) -> Iterator[Piece]:
        """Yield the content of one segment."""
        if self._begun and self._bad is None and extent.start > self._at:
            error = CorruptRecord(
                "a segment, or its end, is missing",
                offset=self._at,
                expected=self._at,
                found=extent.start,
            )
            self._bad = Damage(self._at, self._at, error, extent.path)
        self._begun = True
        self._at = max(self._at, extent.start)
        end = extent.end if self._end is None else min(self._end, extent.end)
        window = WINDOW_BYTES
        while self._at < end:
            asked = min(window, max(end - self._at, layout.RECORD_MIN_BYTES))
            data = extent.read(self._at, asked)  # shorter if the file is truncated meanwhile
            batch = self._run(data)
            if len(batch):
                yield from self._good(batch)
                window = WINDOW_BYTES
            elif self._fills(extent, data):
                yield from self._blank(extent)
                return
            elif larger := self._size_of_larger(extent, data) if len(data) == asked else 0:
                window = larger
                end = max(end, self._at + larger)  # it starts before the end, so it is included
            elif not self._resume(extent, data):
                return

    def _run(self, data: memoryview) -> RecordBatch:
        """The records at the start of ``data`` that belong to the log."""
        batch = decode_run(data, self._at, verify=self._verify, sealed=self._sealed)
        for each in self._unproven:
            within = self._at <= each.offset < batch.end_offset
            if within and each.is_at(data[each.offset - self._at :]):
                batch = batch[: int(batch.physical_offsets.searchsorted(each.offset))]
        accepts, bad = self._accepts, self._bad
        if not len(batch):
            return batch
        if accepts is not None and bad is not None and self._at != self._found:
            is_accepted = accepts(batch.record(0), self._at, bad.offset)
            batch = batch if is_accepted else batch[:0]
        if self._leading is None or not len(batch):
            return batch
        return batch[: self._leading(batch, int(bad is not None))]

    def _good(self, batch: RecordBatch) -> Iterator[Piece]:
        yield from self._damage_before(self._at)
        yield batch
        self._at = batch.end_offset
        self._last_time_ms = batch.head(-1)[2]

    def _fills(self, extent: Extent, data: memoryview) -> bool:
        """Whether a blank record fills the rest of the segment."""
        if len(data) < layout.BLANK_MIN_BYTES:
            return False
        return layout.BLANK.unpack_from(data) == (extent.end - self._at, layout.MAGIC_BLANK)

    def _blank(self, extent: Extent) -> Iterator[Piece]:
        yield from self._damage_before(self._at)
        yield Blank(self._at, extent.end - self._at)
        self._at = extent.end

    def _size_of_larger(self, extent: Extent, data: memoryview) -> int:
        """The length of a record that exceeds the window, or 0."""
        if len(data) < layout.RECORD_MIN_BYTES:
            return 0
        size, magic = layout.BLANK.unpack_from(data)
        cut = (
            magic in (layout.MAGIC_V1, layout.MAGIC_V2)
            and len(data) < size <= extent.end - self._at
        )
        return int(size) if cut else 0

    def _resume(self, extent: Extent, data: memoryview) -> bool:
        """Note the damage; move to the next whole record of the segment, if any."""
        known_damage = self._known_damage.get(self._at)
        if known_damage is not None and self._bad is None and known_damage.is_at(data):
            self._bad = attrs.evolve(known_damage, path=extent.path)
            self._at = self._found = known_damage.end_offset
            return self._at < extent.end
        if self._bad is None:
            self._bad = self._damage_at(extent, data)
        gap_start, candidates = self._bad.offset, _candidates(extent, self._at + 1)
        found = next((at for at in candidates if self._belongs(extent, at, gap_start)), None)
        if found is None:
            self._note_tail(extent)
            self._at = extent.end
            return False
        self._bad = attrs.evolve(self._bad, end_offset=found)
        self._at = self._found = found
        return True

    def _damage_at(self, extent: Extent, data: memoryview) -> Damage:
        """Damage that starts here; a scan without record checksums may not detect it."""
        head, why = bytes(data[:_HEAD_BYTES]), _why(data, self._at)
        unproven = why is None and self._sealed
        if unproven:
            why = _why(data, self._at, sealed=True)
        error = why or CorruptRecord("it is damaged", offset=self._at)
        return Damage(self._at, self._at, error, extent.path, unproven, head)

    def _belongs(self, extent: Extent, offset: int, gap_start: int) -> bool:
        """Whether a blank, or a whole record of the log, is behind a gap at ``offset``."""
        size, magic = head_in(extent, offset)
        if magic == layout.MAGIC_BLANK:
            return size == extent.end - offset
        record = extent.read(offset, size)
        if _why(record, offset, sealed=self._sealed) is not None:
            return False
        if self._accepts is not None:
            return self._accepts(record, offset, gap_start)
        # An older record is left from a log that was cut.
        return decode(record, verify=False).store_timestamp_ms >= self._last_time_ms

    def _note_tail(self, extent: Extent) -> None:
        """Note damage if non-zero bytes follow the last record of a segment."""
        if self._bad is not None:
            last = last_nonzero(extent.next_data, extent.read, self._at, extent.end)
            if last is not None:
                self._bad = attrs.evolve(self._bad, end_offset=last + 1)

    def _damage_before(self, offset: int) -> Iterator[Damage]:
        """Yield the damage that ends here, if any."""
        if self._bad is not None:
            yield attrs.evolve(self._bad, end_offset=offset)
            self._bad = None

    def tail(self) -> Iterator[Damage]:
        """Yield damage at the end of the log; zeros there are no damage."""
        if self._bad is not None and self._bad.end_offset > self._bad.offset:
            yield self._bad


def _why(data: memoryview, offset: int, *, sealed: bool = False) -> CorruptRecord | None:
    """The error of the record at the start of ``data``; ``None`` if the record itself is whole."""
    try:
        checked_frame(data, 0, len(data), offset, sealed=sealed)
    except CorruptRecord as error:
        return error.with_traceback(None)  # a traceback would keep the bytes alive
    return None


def _candidates(extent: Extent, start: int) -> Iterator[int]:
    """Offsets where the magic number suggests a record."""
    at = extent.next_data(start - 1)  # from the damage on, so that its end is found as well
    while at is not None and at < extent.end:
        data = bytes(extent.read(at, _SEARCHED_BYTES))
        for position in _magic_positions(data):
            if at + position - layout.AT_MAGIC >= start:
                yield at + position - layout.AT_MAGIC
        if len(data) < _SEARCHED_BYTES:  # the end, or the file was truncated meanwhile
            return
        at = extent.next_data(at + len(data) - len(_MAGICS[0]) + 1)


def _magic_positions(data: bytes) -> list[int]:
    found: list[int] = []
    if data == bytes(len(data)):  # the unused rest of a segment: faster than a search
        return found
    for magic in _MAGICS:
        position = data.find(magic)
        while position >= 0:
            found.append(position)
            position = data.find(magic, position + 1)
    return sorted(found)
