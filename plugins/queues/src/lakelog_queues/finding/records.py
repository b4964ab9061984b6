"""Reads records of the log at the places that queues name.

Many records are read at once; those that are missing or broken are reported. Records with less than
64 KiB between them come from one read, all of a call in one buffer. A :class:`RecordBatch` of it
has ``starts`` anywhere in its buffer, so its ``base_offset`` and
``end_offset`` have no meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.accelerate import current
from lakelog.errors import CorruptRecord, OffsetOutOfRange
from lakelog.format import layout
from lakelog.format.message_id import host_bytes
from lakelog.format.queue_offsets import Flags, Ints, Longs
from lakelog.format.record import checked_frame, decode
from lakelog.format.record_batch import Decoder, RecordBatch
from lakelog.lazy import np
from lakelog.log.log_reader import LogReader
from lakelog.log.segments import deleted
from lakelog.log.sources import Extent, Source
from lakelog.message import StoredMessage

if TYPE_CHECKING:
    from numpy.typing import NDArray

WHOLE: Final = 0
"""State: the record was read."""
GONE: Final = 1
"""State: the log no longer holds that offset."""
BROKEN: Final = 2
"""State: no whole record of that size is there, or the log ends before it."""
_GAP_BYTES: Final = 64 << 10
_LONGEST_RUN_BYTES: Final = 8 << 20
"""The longest single read, except for a longer record."""
_LONG: Final = Struct(">q")
_HEAD_MOST_BYTES: Final = layout.AT_BORN_HOST + layout.HOST_V6_BYTES + _LONG.size
"""Bytes up to the end of the store time if both hosts are IPv6."""


@attrs.frozen
class PlacedRecords:
    """Records of one log, by physical offset and size."""

    log: LogReader

    def gather(
        self, offsets: Longs, sizes: Ints, *, verify: bool = True, pack_bodies: bool = False
    ) -> Gathered:
        """Read whole records at physical ``offsets``, in any order, each ``sizes`` bytes long.

        Never raises for a record: ``Gathered`` has the state of each. Records in known damage are
        not served.

        :param pack_bodies: see :func:`sound_records`
        """
        log, minimum, end = self.log, self.log.bounds.minimum(), self.log.bounds.end()
        states = np.full(len(offsets), BROKEN, np.int8)
        states[offsets < minimum] = GONE
        states[offsets < 0] = BROKEN
        good = (sizes >= layout.RECORD_MIN_BYTES) & (offsets >= max(minimum, 0))
        good &= ~self._in_damage(offsets, verify)
        if end is not None:
            good &= offsets <= end - sizes.astype(np.int64)
        rows = np.flatnonzero(good)
        order = rows[np.argsort(offsets[rows], kind="stable")]
        packed = pack_bodies and log.decoder is None
        parts = _Parts(offsets, sizes, states, log.decoder, verify, packed)
        parts.read(log.source, order)
        return Gathered(parts.batches, parts.rows, states)

    def one(self, offset: int, size: int) -> bytes:
        """The bytes of the record at ``offset``; raises ``OffsetOutOfRange`` or ``CorruptRecord``.

        The latter if no whole record of ``size`` bytes is there.
        """
        found = self.gather(np.array([offset], np.int64), np.array([size], np.int32))
        if found.states[0] == GONE:
            raise deleted(offset, self.log.bounds.minimum())
        if found.states[0] != WHOLE:
            raise CorruptRecord("no whole record is there", offset=offset)
        return bytes(found.batches[0].record(0))

    def few(
        self, offsets: Longs, sizes: Ints, *, verify: bool = True
    ) -> list[StoredMessage] | None:
        """The messages at physical ``offsets``, in order; ``None`` if :meth:`gather` must be used.

        That is the case if a record is not whole, or if the records are not in one segment and
        close enough for one read.
        """
        log, first, last = self.log, int(offsets[0]), int(offsets[-1]) + int(sizes[-1])
        if self._in_damage(offsets, verify).any():
            return None
        minimum, end = log.bounds.minimum(), log.bounds.end()
        if first < max(minimum, 0) or (end is not None and last > end):
            return None
        extents = log.source.extents(first)  # keep it: its file is open as long as it lives
        view = _stretch(next(extents, None), first, last)
        if view is None:
            return None
        found = decode_all(view, offsets - first, sizes, offsets, verify=verify)
        return found if found is None or log.decoder is None else list(log.decoder(found))

    def store_time_ms(self, offset: int, size: int) -> int | None:
        """The store time of the record at ``offset``, in ms since 1970; reads only its head.

        ``None`` if the head at that place does not have this offset and ``size``.
        """
        log, end = self.log, self.log.bounds.end()
        if offset < log.bounds.minimum() or (end is not None and offset + size > end):
            return None
        if log.known_damage.at(offset):
            return None
        for extent in log.source.extents(offset):  # open for as long as the loop holds it
            if extent.start <= offset and offset + size <= extent.end:
                return _head_store_time(extent.read(offset, _HEAD_MOST_BYTES), offset, size)
            break
        return None

    def _in_damage(self, offsets: Longs, verify: bool) -> Flags:
        """For each offset, whether it lies in known damage."""
        known, hit = self.log.known_damage, np.zeros(len(offsets), np.bool_)
        if known:
            hit[:] = [known.at(each, verify=verify) is not None for each in offsets.tolist()]
        return hit


def _stretch(extent: Extent | None, first: int, last: int) -> memoryview | None:
    """The bytes of one segment from ``first`` to ``last``, if short enough for one read."""
    if extent is None or not extent.start <= first < last <= extent.end:
        return None
    if last - first > _GAP_BYTES:
        return None
    try:
        view = extent.read(first, last - first)
    except (OffsetOutOfRange, FileNotFoundError):  # deleted meanwhile
        return None
    return view if len(view) == last - first else None


def decode_all(
    view: memoryview, starts: Longs, sizes: Ints, offsets: Longs, *, verify: bool = True
) -> list[StoredMessage] | None:
    """The messages of the records at given positions; ``None`` if any record fails its checks.

    :param starts: ``int64``, start of each record in ``view``
    :param sizes: ``int32``, expected length of each record in bytes
    :param offsets: ``int64``, physical offset that each record must state
    :param verify: whether checksums are computed; lengths and offsets are always checked
    """
    accelerator = current()
    if accelerator is not None:
        messages = accelerator.messages(view, starts, sizes, offsets, verify=verify)
        if messages is not None:
            return messages
    found: list[StoredMessage] = []
    places = zip(starts.tolist(), sizes.tolist(), offsets.tolist(), strict=True)
    try:
        for start, size, offset in places:
            found.append(decode(view, start, offset=offset, verify=verify))
            if found[-1].size != size:
                return None
    except CorruptRecord:
        return None
    return found


def _head_store_time(head: memoryview, offset: int, size: int) -> int | None:
    """The store time, in ms since 1970, from the first bytes of a record.

    ``None`` unless these bytes state a record of ``size`` bytes at ``offset``.
    """
    if size < layout.RECORD_MIN_BYTES or len(head) < layout.PREFIX.size:
        return None
    stated_size, magic, _, _, _, _, place, sys_flag, _ = layout.PREFIX.unpack_from(head)
    if (stated_size, place) != (size, offset) or magic not in (layout.MAGIC_V1, layout.MAGIC_V2):
        return None
    at = layout.AT_BORN_HOST + host_bytes(bool(sys_flag & layout.BORN_HOST_V6))
    return int(_LONG.unpack_from(head, at)[0]) if len(head) >= at + _LONG.size else None


@attrs.frozen(eq=False)
class Gathered:
    """The result.

    :ivar batches: the whole records; each batch in the order of ``rows``
    :ivar rows: for each batch, the indexes of its records in the requested offsets
    :ivar states: ``int8`` for each offset: ``WHOLE``, ``GONE`` or ``BROKEN``
    """

    batches: list[RecordBatch]
    rows: list[Longs]
    states: NDArray[np.int8]


@attrs.define(eq=False)
class _Parts:
    """The state of one call of :func:`gather`."""

    offsets: Longs
    sizes: Ints
    states: NDArray[np.int8]
    decoder: Decoder | None
    verify: bool
    pack_bodies: bool
    batches: list[RecordBatch] = attrs.field(factory=list)
    rows: list[Longs] = attrs.field(factory=list)

    def read(self, source: Source, order: Longs) -> None:
        """Read the records, segment by segment; ``order`` sorts rows by offset."""
        read = _Read()
        while len(order):
            first = int(self.offsets[order[0]])
            extents = source.extents(first)  # keep it: its file is open as long as it lives
            extent = next(extents, None)
            if extent is None:
                break
            if extent.start > first:  # deleted meanwhile
                skipped = int(np.searchsorted(self.offsets[order], extent.start))
                self.states[order[:skipped]] = GONE
                order = order[skipped:]
                continue
            rows, order = self._inside(extent, order)
            if not len(rows):
                continue
            try:
                read.add(extent, self.offsets[rows], self.sizes[rows], rows)
            except (OffsetOutOfRange, FileNotFoundError):  # deleted meanwhile
                self.states[rows] = GONE
            del extents
        if read.rows:
            self._check(read.buffer(), np.concatenate(read.starts), np.concatenate(read.rows))

    def _inside(self, extent: Extent, order: Longs) -> tuple[Longs, Longs]:
        """Split the rows: records that lie wholly in ``extent``, and those behind it."""
        count = int(np.searchsorted(self.offsets[order], extent.end))
        count = count or 1  # a truncated segment: this record is in none
        rows, rest = order[:count], order[count:]
        whole = self.offsets[rows] + self.sizes[rows] <= extent.end
        return rows[whole], rest

    def _check(self, buffer: memoryview, starts: Longs, rows: Longs) -> None:
        """Add the whole records of one buffer, in the requested order.

        :param starts: where each record starts in ``buffer``; -1 if it is incomplete
        """
        there = starts >= 0
        rows, starts = rows[there], starts[there]
        if not len(rows):
            return
        batch = RecordBatch(buffer, 0, starts, self.decoder)
        good, batch = sound_records(
            *(batch, self.offsets[rows], self.sizes[rows]),
            verify=self.verify,
            pack_bodies=self.pack_bodies,
        )
        rows = rows[good]
        self.states[rows] = WHOLE
        if (rows[1:] < rows[:-1]).any():
            order = np.argsort(rows)
            batch, rows = batch.take(order), rows[order]
        if len(rows):
            self.batches.append(batch)
            self.rows.append(rows)


class _Read:
    """Bytes read from files, concatenated."""

    def __init__(self) -> None:
        self.rows: list[Longs] = []
        self.starts: list[Longs] = []
        self._runs: list[memoryview] = []
        self._length = 0

    def add(self, extent: Extent, offsets: Longs, sizes: Ints, rows: Longs) -> None:
        """Read the given records of one segment, in order of offset."""
        ends = np.maximum.accumulate(offsets + sizes)
        found = [
            (begin, stop, extent.read(int(offsets[begin]), int(ends[stop - 1] - offsets[begin])))
            for begin, stop in _runs(offsets, ends)
        ]
        for begin, stop, data in found:
            starts = offsets[begin:stop] - offsets[begin] + self._length
            starts[ends[begin:stop] > offsets[begin] + len(data)] = -1
            self.starts.append(starts)
            self._runs.append(data)
            self._length += len(data)
        self.rows.append(rows)

    def buffer(self) -> memoryview:
        """All bytes in one buffer."""
        return self._runs[0] if len(self._runs) == 1 else memoryview(b"".join(self._runs))


def _runs(offsets: Longs, ends: Longs) -> Iterator[tuple[int, int]]:
    """Group the records into single reads: small distances, and limited length."""
    far = np.flatnonzero(offsets[1:] - ends[:-1] > _GAP_BYTES) + 1
    bounds = [0, *far.tolist(), len(offsets)]
    for begin, stop in pairwise(bounds):
        at = begin
        while at < stop:
            most = int(offsets[at]) + _LONGEST_RUN_BYTES
            cut = max(at + 1, at + int(np.searchsorted(ends[at:stop], most, side="right")))
            yield at, cut
            at = cut


def sound_records(
    batch: RecordBatch,
    offsets: Longs,
    sizes: Ints,
    *,
    verify: bool = True,
    pack_bodies: bool = False,
) -> tuple[Flags, RecordBatch]:
    """A mask of the records of a batch that are whole and as expected, and the batch of these.

    :param offsets: the physical offset that each record must state
    :param sizes: the length that each record must have, at least ``RECORD_MIN_BYTES``; must lie
        inside the buffer
    :param pack_bodies: whether an accelerator also fills ``packed_bodies`` of the batch
    """
    view, starts = batch.buffer, batch.starts
    accelerator = current()
    if accelerator is not None:
        found = accelerator.sound_records(
            view, starts, offsets, sizes, verify=verify, pack_bodies=pack_bodies
        )
        if found is not None:
            whole, columns, bodies = found
            some = RecordBatch.of_columns(view, batch.base_offset, columns, batch.decoder)
            some.packed_bodies = bodies
            return np.frombuffer(whole, np.bool_), some
    places = zip(starts.tolist(), offsets.tolist(), sizes.tolist(), strict=True)
    good = np.array([_is_sound(view, *place, verify=verify) for place in places], np.bool_)
    return good, batch.take(good)


def _is_sound(view: memoryview, start: int, offset: int, size: int, *, verify: bool) -> bool:
    try:
        return checked_frame(view, start, start + size, offset, verify=verify).size == size
    except CorruptRecord:
        return False
