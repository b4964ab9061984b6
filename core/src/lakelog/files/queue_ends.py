"""The ends of consume queues: as their files have them, and as noted at their last sync.

Queues may outlast their messages. A few units of the last file of each queue are read. Layout:
20-byte units ``offset i64 | size i32 | tagsCode i64``. The data ends at the first unit whose size
is not positive. If a queue does not begin at 0, the units that fill its front have the size
``0x7fffffff``. Batch queues have 46-byte units: see :mod:`lakelog_queues.files.batchqueue`.

``lakelog/queues.json`` has the offset up to which queues are durable, and each queue's extent. It
is written after each sync of all queues. At the next open, all records before the mark have their
units, provided that every queue still has its listed extent. The list thus detects removed folders
and truncated files. Without a mark confirmed by the log, the whole log is dispatched again.

``{"queues": {"TOPIC": {"QUEUE ID": END}}, "firsts": {"TOPIC": {"QUEUE ID": FIRST}},
"file_entries": N, "synced": ["HEAD", ...], "former": {"TOPIC": {"QUEUE ID": END}}}``. ``END`` is
the queue offset behind the last unit. ``FIRST`` is that of the first unit; 0 is left out. ``HEAD``
is the first 64 bytes, in hex, of the last record with units, latest first (see
:class:`RecordFingerprint`).
``former`` has the ends of queues whose files were removed. A queue without files and records
continues there, since consumer groups may have committed offsets up to that end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import attrs

from lakelog.files.filesystem import File, FileSystem, folders_in
from lakelog.files.identity import read_own, write_own
from lakelog.files.segment_files import SegmentFile, segment_files
from lakelog.format.layout import BATCHCONSUMEQUEUE_DIR, CONSUMEQUEUE_DIR, OWN_DIR
from lakelog.format.queue_offsets import Queue

if TYPE_CHECKING:
    from lakelog.format.record_batch import RecordBatch

UNIT_BYTES: Final = 20
_UNIT: Final = Struct(">qi")
_FILLER_SIZE: Final = 0x7FFFFFFF
_BATCH_UNIT: Final = Struct(">qi16xqh8x")
"""``offset | size | ... | baseOffset | batchSize | ...``."""
_EVERYWHERE: Final = 1 << 63
QUEUES_FILE: Final = "queues.json"
HEAD_BYTES: Final = 64
"""Covers size, body CRC, queue, queue offset, physical offset and store time."""
PLACE: Final = Struct(">i24xq")
"""``totalSize | ... | physicalOffset``, the front of a record."""


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


def read_ends(files: FileSystem, path: Path, limit: int = _EVERYWHERE) -> dict[Queue, QueueEnd]:
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
        end = _end(files, segment_files(directory, files.list(directory)), limit, batch=True)
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
    return read_ends(files, path, limit)


def read_end(files: FileSystem, path: Path, queue: Queue, limit: int) -> int | None:
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
            with closing(files.open(file.path)) as opened:
                return _unit(opened, position - file.start_offset)
    return None


def _directory(path: Path, queue: Queue) -> Path:
    return path / CONSUMEQUEUE_DIR / queue[0] / str(queue[1])


def _queues(root: Path) -> Iterator[tuple[Queue, Path]]:
    for topic in folders_in(root):
        for queue in folders_in(topic):
            if queue.name.isdigit():
                yield (topic.name, int(queue.name)), queue


def _without_stray(segments: list[SegmentFile]) -> list[SegmentFile]:
    """The files without those that cannot be of their queue, by their names or lengths."""
    lengths = Counter(each.length for each in segments if each.length)
    if len(segments) < 2 or not lengths:
        return segments
    size = max(lengths, key=lambda length: (lengths[length], length))
    kept: list[SegmentFile] = []
    for each in segments:
        is_next = not kept or each.start_offset == kept[-1].start_offset + size
        if not each.start_offset % size and (is_next or each.length in (0, size)):
            kept.append(each)
    return kept


def _end(
    files: FileSystem, segments: list[SegmentFile], limit: int, *, batch: bool = False
) -> QueueEnd:
    """The end of a queue: behind its last unit; of a ``batch`` queue, behind its messages."""
    segments = _without_stray(segments)
    size, highest = (_BATCH_UNIT.size if batch else UNIT_BYTES), -1
    for segment in reversed(segments):
        with closing(files.open(segment.path)) as file:
            units, seen = _units(file, segment.length // size, limit, size)
            highest = max(highest, seen)
            last = file.read_at((units - 1) * size, size) if units else b""
        if last and batch:
            offset, record_bytes, base, count = _BATCH_UNIT.unpack(last)
            return QueueEnd(base + count, offset + record_bytes, highest)
        if last:
            offset, record_bytes = _UNIT.unpack_from(last)
            reached = 0 if record_bytes == _FILLER_SIZE else offset + record_bytes
            return QueueEnd(segment.start_offset // UNIT_BYTES + units, reached, highest)
    first = segments[0].start_offset // UNIT_BYTES if segments and not batch else 0
    return QueueEnd(first, 0, highest)


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


class RecordFingerprint(NamedTuple):
    """The head of the last record with units before a sync, up to which the queues are durable.

    The head is compared with the log before the mark is used. If the log was cut and continued with
    other records, the heads differ, and the mark does not apply.
    """

    head: bytes

    @classmethod
    def of(cls, batch: RecordBatch) -> RecordFingerprint:
        """The mark for the last record of a batch."""
        start, _, _ = batch.head(-1)
        return cls(bytes(batch.buffer[start : start + HEAD_BYTES]))

    @property
    def offset(self) -> int:
        """Start of the record, in bytes from the start of the log."""
        return int(PLACE.unpack_from(self.head)[1])

    @property
    def end(self) -> int:
        """End of the record, in bytes from the start of the log."""
        return self.offset + int(PLACE.unpack_from(self.head)[0])


class DurableQueueEnds(NamedTuple):
    """The content of the list.

    :ivar ends: by queue, the queue offset behind its last unit
    :ivar firsts: by queue, the queue offset of its first unit; 0 if not listed
    :ivar file_entries: units in each file of a queue, 0 if unknown
    :ivar marks: the records up to which the queues are durable, latest first
    :ivar former: by queue, where it continues if it has no files and no records any more
    """

    ends: Mapping[Queue, int] = MappingProxyType({})
    firsts: Mapping[Queue, int] = MappingProxyType({})
    file_entries: int = 0
    marks: tuple[RecordFingerprint, ...] = ()
    former: Mapping[Queue, int] = MappingProxyType({})

    def are_reached_by(self, found: Mapping[Queue, QueueEnd]) -> bool:
        """Whether each listed queue is in ``found``, and has all units of its last sync."""
        return all(queue in found and found[queue].end >= end for queue, end in self.ends.items())


def read_kept(files: FileSystem, path: Path) -> DurableQueueEnds:
    """Read the list; empty if it is missing or not readable."""
    return read_own(files, path, QUEUES_FILE, _kept) or DurableQueueEnds()


def _kept(content: Mapping[str, Any]) -> DurableQueueEnds:
    heads = [bytes.fromhex(text) for text in content.get("synced", ())]
    return DurableQueueEnds(
        dict(by_queue(content["queues"])),
        dict(by_queue(content.get("firsts", {}))),
        int(content.get("file_entries", 0)),
        tuple(RecordFingerprint(head) for head in heads if len(head) == HEAD_BYTES),
        dict(by_queue(content.get("former", {}))),
    )


def by_queue(table: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[Queue, int]]:
    """Numbers of queues from their form in JSON, see :func:`by_topic`."""
    for topic, queues in table.items():
        for queue_id, number in queues.items():
            yield (topic, int(queue_id)), int(number)


def write_kept(files: FileSystem, path: Path, kept: DurableQueueEnds) -> None:
    """Replace the list durably; the queues must be durable already.

    Does nothing without lakelog's own folder.
    """
    if not (path / OWN_DIR).is_dir():
        return
    content = {
        "queues": by_topic(kept.ends),
        "firsts": by_topic({queue: first for queue, first in kept.firsts.items() if first}),
        "file_entries": kept.file_entries,
        "synced": [mark.head.hex() for mark in kept.marks],
        "former": by_topic(kept.former),
    }
    write_own(files, path, QUEUES_FILE, content, ensure_ascii=False, separators=(",", ":"))


def by_topic(numbers: Mapping[Queue, int]) -> dict[str, dict[str, int]]:
    """Numbers of queues as stored in JSON: ``{"TOPIC": {"QUEUE ID": NUMBER}}``, sorted."""
    table: dict[str, dict[str, int]] = {}
    for (topic, queue_id), number in sorted(numbers.items()):
        table.setdefault(topic, {})[str(queue_id)] = number
    return table


def forget_ends(files: FileSystem, path: Path) -> None:
    """Remove the list durably, or replace it by one that says only where queues continue."""
    kept = read_kept(files, path)
    former = {**kept.former, **kept.ends}
    if former:
        write_kept(files, path, DurableQueueEnds(former=former))
    elif (path / OWN_DIR / QUEUES_FILE).exists():
        files.unlink(path / OWN_DIR / QUEUES_FILE)
        files.sync_dir(path / OWN_DIR)
