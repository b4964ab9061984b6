"""Chooses the range of a log that may land next: durable, and directly behind the landed part."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

import attrs

import lakelog
from lakelog.format.checksum import Fingerprint
from lakelog.format.layout import COMMITLOG_DIR, CONSUMEQUEUE_DIR
from lakelog.format.record_batch import Blank, Damage, RecordBatch
from lakelog_lake.errors import RetentionGap, WrongLog
from lakelog_lake.log.extent import MANY, DurableEnd, RecordStarts
from lakelog_lake.log.records import LogSpan
from lakelog_lake.tables.position import UNCHECKED, Position
from lakelog_lake.tables.remote import sync

FILE_BYTES: Final = 128 << 20
_MOST_TOPICS: Final = 100
"""Most queues to search for cuts; for more, scanning the log is as fast."""
_MOST_LONGER: Final = 8
"""A range may exceed the requested size by this fraction, to end at a known record start."""


@attrs.frozen
class TaskLimits:
    """Limits of passes and tasks, in bytes of the log; a single record may be larger.

    :ivar pass_bytes: most bytes of one pass
    :ivar task_bytes: most bytes of one task, which has them in memory
    :ivar file_bytes: approximate largest size of a data file
    :ivar at_once: number of concurrent tasks; a pass is cut into ranges of equal size for them
    """

    pass_bytes: int = 512 << 20
    task_bytes: int = 56 << 20
    file_bytes: int = FILE_BYTES
    at_once: int = 1

    def cuts(self, size: int) -> list[int]:
        """Approximate ends of the parts of a pass over ``size`` bytes, from its start.

        >>> TaskLimits(task_bytes=100, at_once=2).cuts(210)
        [52, 105, 157, 210]
        """
        count = -(-size // self.task_bytes)
        if count > 1 and self.at_once <= 2 * count:  # more parts would be too small
            count = -(-count // self.at_once) * self.at_once
        return [size * number // count for number in range(1, count + 1)]


def first_offset(
    store: lakelog.Store, position: Position | None, table: str, *, accept_gaps: bool = False
) -> int:
    """The start of the next range, after checking that the log is the one that has landed.

    Raises :class:`WrongLog`, and :class:`RetentionGap` if messages were deleted before they landed.
    """
    if position is None:
        return store.min_offset
    minimum = _first_before(store, position.end)
    if position.last is not None:
        _check(store, position.last, position.end, table)
    if minimum > position.end:
        if not accept_gaps:
            raise RetentionGap(store.path, table, position.end, minimum)
        return minimum
    return position.end


def _first_before(store: lakelog.Store, offset: int) -> int:
    """The first readable byte; asks an archive only if the log begins behind ``offset``."""
    return store.min_offset if store.min_offset <= offset else store.oldest_offset


def _check(store: lakelog.Store, last: Fingerprint, end: int, table: str) -> None:
    """Raise :class:`WrongLog` unless the log has the record ``last``, or retention deleted it."""
    if _first_before(store, last.offset) > last.offset:
        return
    behind = last.offset + last.size
    found = _fingerprint_at(store, last.offset, behind)
    if found is None:
        raise WrongLog(
            store.path,
            table,
            f"the last record that landed stood at offset {last.offset} to {behind}, and no whole "
            f"record is there (the table holds what is before {end})",
        )
    if found.size != last.size or last.crc not in (found.crc, UNCHECKED):
        raise WrongLog(
            store.path,
            table,
            f"the last record that landed, at offset {last.offset}, has {last.size} bytes"
            f"{'' if last.crc == UNCHECKED else f' with the checksum {last.crc:08x}'}, and the one "
            f"there has {found.size} with {found.crc:08x}",
        )


def _fingerprint_at(store: lakelog.Store, offset: int, end: int) -> Fingerprint | None:
    for piece in store.scan_pieces(offset, end):
        if isinstance(piece, RecordBatch) and piece.base_offset + int(piece.starts[0]) == offset:
            record = piece.record(0)
            return Fingerprint(offset, len(record), zlib.crc32(record))
        break
    return None


def next_spans(
    store: lakelog.Store, start: int, bounds: TaskLimits, durable: DurableEnd | None = None
) -> list[LogSpan]:
    """The durable ranges from ``start`` on, cut between records, one per task.

    If the durable end is not known, the bytes of these ranges are synced here.

    :param durable: the cached durable end
    """
    flushed = (durable or DurableEnd()).behind(store, start)
    if flushed is not None:
        return list(_cut_to(store, start, flushed, bounds)) if flushed > start else []
    spans = list(_cut(store, start, bounds))
    if spans:
        sync_segments(store.path, spans[0].start, spans[-1].end)
    return spans


def _cut_to(store: lakelog.Store, start: int, end: int, bounds: TaskLimits) -> Iterator[LogSpan]:
    """Ranges from ``start`` up to the last record end at or before ``end``.

    Cuts are at record starts named by queues, or else found by scanning.
    """
    cuts = [start + each for each in bounds.cuts(min(end - start, bounds.pass_bytes))]
    at = start
    with _marks(store) if cuts[0] < end else nullcontext() as marks:
        for target in cuts:
            if target > at:  # otherwise a record spans the cut
                found = end if target >= end else _known_start(marks, at, target, end)
                found = found or _walked(store, at, target, end)
                yield LogSpan(at, found)
                at = found


def _marks(store: lakelog.Store) -> AbstractContextManager[RecordStarts | None]:
    folder = store.path / CONSUMEQUEUE_DIR
    if not folder.is_dir() or len(os.listdir(folder)) > _MOST_TOPICS:
        return nullcontext()
    return RecordStarts.of(store)


def _known_start(marks: RecordStarts | None, at: int, target: int, end: int) -> int | None:
    """The first record not far behind ``target`` that a queue names, if there is one."""
    if marks is None:
        return None
    limit = min(end, target + max(1, (target - at) // _MOST_LONGER))
    return marks.behind(target, limit) or marks.behind(target, limit, MANY)


def _walked(store: lakelog.Store, at: int, target: int, end: int) -> int:
    """The first record end at or behind ``target``, found by scanning from ``at``."""
    for piece in store.scan_pieces(at, end, verify=False):
        if piece.end_offset >= target:
            return piece.end_offset
    return end


def _cut(store: lakelog.Store, start: int, bounds: TaskLimits) -> Iterator[LogSpan]:
    """Ranges from ``start`` up to the last whole record; the bytes behind it may be incomplete.

    A blank behind damage does not count: recovery cuts both if no message follows.
    """
    begun = at = start
    is_torn = False
    for piece in store.scan_pieces(start):
        is_torn = isinstance(piece, Damage) or (is_torn and isinstance(piece, Blank))
        if is_torn:
            continue  # counts only if a whole record follows
        at = piece.end_offset
        if at - begun >= bounds.task_bytes:
            yield LogSpan(begun, at)
            begun = at
        if at - start >= bounds.pass_bytes:
            break
    if at > begun:
        yield LogSpan(begun, at)


def sync_segments(store_path: Path, start: int, end: int) -> None:
    """Sync the log from ``start`` to ``end``, without changing a byte of it."""
    folder = store_path / COMMITLOG_DIR
    for path in sorted(each for each in folder.iterdir() if each.name.isdigit()):
        if int(path.name) < end and int(path.name) + path.stat().st_size > start:
            sync(path)
    sync(folder)
