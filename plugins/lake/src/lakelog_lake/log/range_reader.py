"""Reads one range of the log as a single batch, independently of the windows of the scan.

A task accounts for every byte of its range: as records, blank or damage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs
import numpy as np
from numpy.typing import NDArray

from lakelog.errors import CorruptRecord
from lakelog.format.record_batch import Damage, Piece, RecordBatch
from lakelog_lake.errors import CorruptBody, CorruptLog
from lakelog_lake.log import wanted


def record_batches(
    pieces: Iterable[Piece], part: wanted.NumberSpan, on_damage: Callable[[Damage], None]
) -> Iterator[RecordBatch]:
    """The records among ``pieces``, which must cover ``part``.

    A scan silently skips trailing zeros and missing segments. At the end of a log that is right;
    inside of it, it is damage.
    """
    at = part.low
    for piece in pieces:
        if isinstance(piece, RecordBatch):
            first = piece.base_offset + int(piece.starts[0])
        else:
            first = piece.offset
        if first > at:
            on_damage(_nothing(at, first))
        if isinstance(piece, Damage):
            on_damage(piece)
        elif isinstance(piece, RecordBatch):
            yield piece
        at = max(at, piece.end_offset)
    if at < part.end:
        on_damage(_nothing(at, part.end))


def _nothing(offset: int, end_offset: int) -> Damage:
    what = "there are zeros or nothing where records were; was a segment deleted, moved or cut?"
    return Damage(offset, end_offset, CorruptRecord(what, offset=offset))


@attrs.frozen
class LogSpan:
    """Records that start in ``start`` (inclusive) to ``end`` (exclusive), in bytes of the log."""

    start: int
    end: int


def merged(spans: Iterable[LogSpan]) -> tuple[LogSpan, ...]:
    """Merge spans that touch or overlap.

    :param spans: in the order of their starts
    """
    found: list[LogSpan] = []
    for each in spans:
        if found and each.start <= found[-1].end:
            found[-1] = LogSpan(found[-1].start, max(found[-1].end, each.end))
        else:
            found.append(each)
    return tuple(found)


def one_batch(batches: Iterator[RecordBatch], span: LogSpan) -> RecordBatch | None:
    """Copy all records into one batch; ``None`` if there are none.

    Each window is copied and released at once, so its memory is reused, and each page of the range
    is touched once.
    """
    whole = np.empty(span.end - span.start, np.uint8)
    starts: list[NDArray[np.int64]] = []
    base = at = 0
    decoder = None
    for batch in batches:
        decoder = batch.decoder
        first, behind = int(batch.starts[0]), int(batch.ends[-1])
        if not starts:
            base = batch.base_offset + first
        size = behind - first
        if at + size > len(whole):
            whole = np.concatenate([whole[:at], np.empty(2 * (at + size), np.uint8)])
        whole[at : at + size] = np.frombuffer(batch.buffer, np.uint8)[first:behind]
        starts.append(batch.starts + (at - first))
        at += size
    return RecordBatch(whole[:at].data, base, np.concatenate(starts), decoder) if starts else None


_log = logging.getLogger("lakelog_lake")


@attrs.define
class DamagePolicy:
    """Either skips damage and logs it, or ends the task.

    :ivar count: number of damaged ranges and bodies skipped
    """

    skip: bool
    count: int = 0

    def records(self, pieces: Iterable[Piece], span: LogSpan) -> Iterator[RecordBatch]:
        """The records among ``pieces``, which must cover ``span``."""
        return record_batches(pieces, wanted.NumberSpan(span.start, span.end), self.met)

    def met(self, damage: Damage) -> None:
        """Handle bytes that are no record; may raise :class:`~lakelog_lake.errors.CorruptLog`."""
        if not self.skip:
            raise CorruptLog(damage)
        self.count += 1
        _log.warning("%s", damage)

    def bodies(self, errors: Mapping[int, CorruptRecord]) -> None:
        """Handle bodies that cannot be unpacked, by row; may raise :class:`CorruptBody`."""
        for error in errors.values():
            if not self.skip:
                raise CorruptBody(error)
            _log.warning("%s; its row has the stored body", error)


def steps(batch: RecordBatch, rows: NDArray[np.int64], step_bytes: int) -> Iterator[RecordBatch]:
    """Split ``rows`` of a batch into parts of about ``step_bytes``, or of one larger record."""
    behind = np.cumsum(batch.sizes[rows], dtype=np.int64) // step_bytes
    for part in np.split(rows, np.flatnonzero(np.diff(behind)) + 1):
        if len(part):
            yield batch.take(part)
