"""The ends of consume queues, read from the last file of each; queues may outlast their messages.

Layout: 20-byte units ``offset i64 | size i32 | tagsCode i64``. The data ends at the first unit
whose size is not positive. If a queue does not begin at 0, the units that fill its front have the
size ``0x7fffffff``. Batch queues have 46-byte units: see :mod:`lakelog_queues.units.batchunits`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from struct import Struct
from typing import Final

import attrs

from lakelog.files.filesystem import File, FileSystem, folders_in
from lakelog.files.segment_files import SegmentFile, segment_files
from lakelog_format.fields.layout import BATCHCONSUMEQUEUE_DIR, CONSUMEQUEUE_DIR
from lakelog_format.fields.queue_offsets import Queue

UNIT_BYTES: Final = 20
_UNIT: Final = Struct(">qi")
_FILLER_SIZE: Final = 0x7FFFFFFF
_BATCH_UNIT: Final = Struct(">qi16xqh8x")
"""``offset | size | ... | baseOffset | batchSize | ...``."""
_EVERYWHERE: Final = 1 << 63


@attrs.frozen
class QueueEnd:
    """The end of one queue.

    :ivar end: queue offset behind its last unit
    :ivar reached: physical offset behind the record of that unit; 0 without a record
    :ivar highest: highest physical offset among the units read
    """

    end: int
    reached: int
    highest: int = attrs.field(default=-1, eq=False)


def queue_ends(files: FileSystem, path: Path, limit: int = _EVERYWHERE) -> dict[Queue, QueueEnd]:
    """The end of each consume queue of the store directory ``path``.

    :param limit: ignore units of records at or behind this log offset

    Reads a few units of each queue, by binary search: all units before one that counts are assumed
    to count too.
    """
    ends = {
        queue: _end(files, segment_files(directory, files.list(directory)), limit)
        for queue, directory in _queues(path / CONSUMEQUEUE_DIR)
    }
    for queue, directory in _queues(path / BATCHCONSUMEQUEUE_DIR):
        end = _batch_end(files, segment_files(directory, files.list(directory)), limit)
        other = ends.get(queue, end)
        further = max(end, other, key=lambda each: each.end)
        ends[queue] = attrs.evolve(further, highest=max(end.highest, other.highest))
    return ends


def settled_ends(
    files: FileSystem, path: Path, ends: Mapping[Queue, QueueEnd], limit: int
) -> Mapping[Queue, QueueEnd]:
    """As :func:`queue_ends` with a limit; ``ends`` is its result without a limit.

    Reads again only if the limit can change the result.
    """
    if all(each.highest < limit for each in ends.values()):
        return ends
    return queue_ends(files, path, limit)


def queue_end(files: FileSystem, path: Path, queue: Queue, limit: int) -> int | None:
    """The end of one queue, with ``limit`` as in :func:`queue_ends`; ``None`` if it is missing."""
    directory = _directory(path, queue)
    segments = segment_files(directory, files.list(directory))
    return _end(files, segments, limit).end if segments else None


def queue_unit(files: FileSystem, path: Path, queue: Queue, at: int) -> tuple[int, int] | None:
    """Physical offset and size of the record at queue offset ``at``; ``None`` without a unit."""
    directory = _directory(path, queue)
    position = at * UNIT_BYTES
    for file in reversed(segment_files(directory, files.list(directory))):
        if file.start_offset <= position:
            opened = files.open(file.path)
            try:
                return _unit(opened, position - file.start_offset)
            finally:
                opened.close()
    return None


def _directory(path: Path, queue: Queue) -> Path:
    return path / CONSUMEQUEUE_DIR / queue[0] / str(queue[1])


def _queues(root: Path) -> Iterator[tuple[Queue, Path]]:
    for topic in folders_in(root):
        for queue in folders_in(topic):
            if queue.name.isdigit():
                yield (topic.name, int(queue.name)), queue


def _end(files: FileSystem, segments: list[SegmentFile], limit: int) -> QueueEnd:
    highest = -1
    for segment in reversed(segments):
        with closing(files.open(segment.path)) as file:
            units, seen = _units(file, segment.length // UNIT_BYTES, limit, UNIT_BYTES)
            highest = max(highest, seen)
            last = _unit(file, (units - 1) * UNIT_BYTES) if units else None
        if last is not None:
            reached = 0 if last[1] == _FILLER_SIZE else sum(last)
            return QueueEnd(segment.start_offset // UNIT_BYTES + units, reached, highest)
    return QueueEnd(segments[0].start_offset // UNIT_BYTES if segments else 0, 0, highest)


def _batch_end(files: FileSystem, segments: list[SegmentFile], limit: int) -> QueueEnd:
    """The end of a batch queue: behind the messages of its last unit."""
    size, highest = _BATCH_UNIT.size, -1
    for segment in reversed(segments):
        with closing(files.open(segment.path)) as file:
            units, seen = _units(file, segment.length // size, limit, size)
            highest = max(highest, seen)
            if units:
                data = file.read_at((units - 1) * size, size)
                offset, record_bytes, base, count = _BATCH_UNIT.unpack(data)
                return QueueEnd(base + count, offset + record_bytes, highest)
    return QueueEnd(0, 0, highest)


def _units(file: File, room: int, limit: int, unit_bytes: int) -> tuple[int, int]:
    """The number of units at the front of a file that count, by binary search.

    The second result is the highest physical offset in the units read; -1 if none was read.
    """
    low, high, highest = 0, room, -1
    while low < high:
        middle = (low + high) // 2
        unit = _unit(file, middle * unit_bytes)
        highest = max(highest, unit[0]) if unit is not None else highest
        if unit is not None and unit[0] < limit:
            low = middle + 1
        else:
            high = middle
    return low, highest


def _unit(file: File, position: int) -> tuple[int, int] | None:
    data = file.read_at(position, _UNIT.size)
    if len(data) < _UNIT.size:
        return None
    offset, size = _UNIT.unpack(data)
    return (offset, size) if size > 0 and offset >= 0 else None
