"""Records at given places of the log, many at once; what is not whole is named, never served.

From memory of the files themselves, records of one segment are one batch over one view. From
files that nobody vouches for, they are read: neighbours with less than 64 KiB between them at one
go, all of a call into one buffer. A :class:`RecordBatch` made here has ``starts`` anywhere in its
buffer, so its ``base_offset`` and ``end_offset`` mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import attrs
import numpy as np
from numpy.typing import NDArray

from lakelog.codec import RecordBatch
from lakelog.codec.decode import decode_all
from lakelog.codec.recordbatch import Decoder
from lakelog.codec.run import sound_records
from lakelog.errors import OffsetOutOfRange
from lakelog.format.layout import RECORD_MIN_BYTES
from lakelog.log.reading.source import Extent, Source, ViewExtent
from lakelog.message import StoredMessage

Longs = NDArray[np.int64]
Ints = NDArray[np.int32]
_GAP_BYTES: Final = 64 << 10
_LONGEST_RUN_BYTES: Final = 8 << 20
"""No single read is longer, but for one record that is."""

WHOLE: Final = 0
GONE: Final = 1
"""The log does not hold that place any more."""
BROKEN: Final = 2
"""No whole record of that size stands there, or the log ends before."""


@attrs.frozen(eq=False)
class Gathered:
    """What was found.

    :ivar batches: the whole records; each batch in the order of ``rows``
    :ivar rows: for each batch, which of the places asked for its records stand at
    :ivar states: ``int8`` for each place: ``WHOLE``, ``GONE`` or ``BROKEN``
    """

    batches: list[RecordBatch]
    rows: list[Longs]
    states: NDArray[np.int8]


def gather(
    source: Source,
    minimum: int,
    end: int | None,
    offsets: Longs,
    sizes: Ints,
    *,
    verify: bool = True,
    known: NDArray[np.bool_] | None = None,
    decoder: Decoder | None = None,
) -> Gathered:
    """The records at ``offsets``, in any order, each ``sizes`` bytes long.

    :param minimum: the log's first byte
    :param end: where reading stops; ``None`` is where the files end
    :param known: which places are known to be damaged, whatever stands there
    :param decoder: of the batches
    """
    states = np.full(len(offsets), BROKEN, np.int8)
    states[offsets < minimum] = GONE
    states[offsets < 0] = BROKEN
    good = (sizes >= RECORD_MIN_BYTES) & (offsets >= max(minimum, 0))
    if end is not None:
        good &= offsets <= end - sizes.astype(np.int64)
    if known is not None:
        good &= ~known
    rows = np.flatnonzero(good)
    order = rows[np.argsort(offsets[rows], kind="stable")]
    parts = _Parts(offsets, sizes, states, decoder)
    for piece in parts.by_segment(source, order):
        piece.check(parts, verify)
    return Gathered(parts.batches, parts.rows, states)


def few(
    source: Source,
    minimum: int,
    end: int | None,
    offsets: Longs,
    sizes: Ints,
    *,
    verify: bool = True,
) -> list[StoredMessage] | None:
    """The messages at ``offsets``; ``None`` where :func:`gather` has to look.

    That is where one is not whole, and where they do not stand in one segment, or too far apart to
    be read at one go.
    """
    first, last = int(offsets[0]), int(offsets[-1]) + int(sizes[-1])
    if first < max(minimum, 0) or (end is not None and last > end):
        return None
    extents = source.extents(first)  # open for as long as it is held
    view = _stretch(next(extents, None), first, last)
    if view is None:
        return None
    return decode_all(view, offsets - first, sizes, offsets, verify=verify)


def _stretch(extent: Extent | None, first: int, last: int) -> memoryview | None:
    """The bytes of one segment from ``first`` to ``last``, if they are not too many to read."""
    if extent is None or not extent.start <= first < last <= extent.end:
        return None
    if last - first > _GAP_BYTES and not isinstance(extent, ViewExtent):
        return None
    try:
        view = extent.read(first, last - first)
    except (OffsetOutOfRange, FileNotFoundError):  # deleted meanwhile
        return None
    return view if len(view) == last - first else None


@attrs.define(eq=False)
class _Piece:
    """Records in one buffer.

    :ivar starts: where each starts in ``buffer``; -1 where not all of it was there
    """

    buffer: memoryview
    base_offset: int
    starts: Longs
    rows: Longs

    def check(self, parts: _Parts, verify: bool) -> None:
        """Sort the whole ones from the others."""
        there = self.starts >= 0
        rows, starts = self.rows[there], self.starts[there]
        if not len(rows):
            return
        batch = RecordBatch(self.buffer, self.base_offset, starts, parts.decoder)
        offsets, sizes = parts.offsets[rows], parts.sizes[rows]
        good, batch = sound_records(batch, offsets, sizes, verify=verify)
        rows = rows[good]
        parts.states[rows] = WHOLE
        if len(rows):
            parts.add(batch, rows)


class _Parts:
    """What is being gathered."""

    def __init__(
        self, offsets: Longs, sizes: Ints, states: NDArray[np.int8], decoder: Decoder | None
    ) -> None:
        self.decoder = decoder
        self.offsets = offsets
        self.sizes = sizes
        self.states = states
        self.batches: list[RecordBatch] = []
        self.rows: list[Longs] = []

    def add(self, batch: RecordBatch, rows: Longs) -> None:
        """Keep a batch, its records in the order in which they were asked for."""
        if (rows[1:] < rows[:-1]).any():
            order = np.argsort(rows)
            batch, rows = batch.take(order), rows[order]
        self.batches.append(batch)
        self.rows.append(rows)

    def by_segment(self, source: Source, order: Longs) -> Iterator[_Piece]:
        """The bytes of the records whose rows ``order`` has by rising offset."""
        read = _Read()
        while len(order):
            first = int(self.offsets[order[0]])
            extents = source.extents(first)  # open for as long as it is held
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
            if isinstance(extent, ViewExtent):
                yield from self._viewed(extent, rows)
            else:
                read.add(extent, self.offsets[rows], self.sizes[rows], rows)
            del extents
        if read.rows:
            yield read.piece()

    def _inside(self, extent: Extent, order: Longs) -> tuple[Longs, Longs]:
        """The rows whose records stand wholly in ``extent``, and those behind it."""
        count = int(np.searchsorted(self.offsets[order], extent.end))
        count = count or 1  # a segment that was cut short: this one is nowhere
        rows, rest = order[:count], order[count:]
        whole = self.offsets[rows] + self.sizes[rows] <= extent.end
        return rows[whole], rest

    def _viewed(self, extent: Extent, rows: Longs) -> Iterator[_Piece]:
        first = int(self.offsets[rows[0]])
        end = int((self.offsets[rows] + self.sizes[rows]).max())
        try:
            view = extent.read(first, end - first)
        except (OffsetOutOfRange, FileNotFoundError):  # deleted meanwhile
            self.states[rows] = GONE
            return
        yield _Piece(view, first, self.offsets[rows] - first, rows)


class _Read:
    """Bytes read from files, one run behind the other."""

    def __init__(self) -> None:
        self.rows: list[Longs] = []
        self._starts: list[Longs] = []
        self._runs: list[memoryview] = []
        self._length = 0

    def add(self, extent: Extent, offsets: Longs, sizes: Ints, rows: Longs) -> None:
        """Read some records of one segment, by rising offset."""
        ends = np.maximum.accumulate(offsets + sizes)
        for begin, stop in _runs(offsets, ends):
            first, end = int(offsets[begin]), int(ends[stop - 1])
            data = extent.read(first, end - first)
            starts = offsets[begin:stop] - first + self._length
            starts[ends[begin:stop] > first + len(data)] = -1
            self._starts.append(starts)
            self._runs.append(data)
            self._length += len(data)
        self.rows.append(rows)

    def piece(self) -> _Piece:
        """Everything in one buffer."""
        buffer = self._runs[0] if len(self._runs) == 1 else memoryview(b"".join(self._runs))
        return _Piece(buffer, 0, np.concatenate(self._starts), np.concatenate(self.rows))


def _runs(offsets: Longs, ends: Longs) -> Iterator[tuple[int, int]]:
    """Which records to read at one go: those with little between them, and not too many."""
    far = np.flatnonzero(offsets[1:] - ends[:-1] > _GAP_BYTES) + 1
    bounds = [0, *far.tolist(), len(offsets)]
    for begin, stop in pairwise(bounds):
        at = begin
        while at < stop:
            most = int(offsets[at]) + _LONGEST_RUN_BYTES
            cut = max(at + 1, at + int(np.searchsorted(ends[at:stop], most, side="right")))
            yield at, cut
            at = cut
