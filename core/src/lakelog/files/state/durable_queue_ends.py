"""``lakelog/queues.json``: the offset up to which queues are durable, and each queue's extent.

It is written after each sync of all queues. At the next open, all records before the mark have
their units, provided that every queue still has its listed extent. The list thus detects removed
folders and truncated files. Without a mark confirmed by the log, the whole log is dispatched again.

``{"queues": {"TOPIC": {"QUEUE ID": END}}, "firsts": {"TOPIC": {"QUEUE ID": FIRST}},
"file_entries": N, "synced": ["HEAD", ...]}``. ``END`` is the queue offset behind the last unit.
``FIRST`` is that of the first unit; 0 is left out. ``HEAD`` is the first 64 bytes, in hex, of the
last record with units, latest first (see :class:`RecordFingerprint`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog.files.filesystem import FileSystem, read_file
from lakelog.files.state.identity import write_own
from lakelog.files.state.queue_ends import QueueEnd
from lakelog_format.fields.layout import OWN_DIR
from lakelog_format.fields.queue_offsets import Queue

if TYPE_CHECKING:
    from lakelog_format.codec.record_batch import RecordBatch

QUEUES_FILE: Final = "queues.json"
HEAD_BYTES: Final = 64
"""Covers size, body CRC, queue, queue offset, physical offset and store time."""
PLACE: Final = Struct(">i24xq")
"""``totalSize | ... | physicalOffset``, the front of a record."""
_LOG: Final = logging.getLogger("lakelog")


@attrs.frozen
class RecordFingerprint:
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


@attrs.frozen
class DurableQueueEnds:
    """The content of the list.

    :ivar ends: by queue, the queue offset behind its last unit
    :ivar firsts: by queue, the queue offset of its first unit; 0 if not listed
    :ivar file_entries: units in each file of a queue, 0 if unknown
    :ivar marks: the records up to which the queues are durable, latest first
    """

    ends: Mapping[Queue, int] = attrs.field(factory=dict)
    firsts: Mapping[Queue, int] = attrs.field(factory=dict)
    file_entries: int = 0
    marks: tuple[RecordFingerprint, ...] = ()

    def are_reached_by(self, found: Mapping[Queue, QueueEnd]) -> bool:
        """Whether each listed queue is in ``found``, and has all units of its last sync."""
        return all(queue in found and found[queue].end >= end for queue, end in self.ends.items())


def read_kept(files: FileSystem, path: Path) -> DurableQueueEnds:
    """Read the list; empty if it is missing or not readable."""
    content = read_file(files, path / OWN_DIR / QUEUES_FILE)
    if content is None:
        return DurableQueueEnds()
    try:
        return _kept(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _LOG.warning("%s is damaged and was ignored: %s", QUEUES_FILE, error)
        return DurableQueueEnds()


def _kept(content: Mapping[str, Any]) -> DurableQueueEnds:
    heads = [bytes.fromhex(text) for text in content.get("synced", ())]
    return DurableQueueEnds(
        dict(by_queue(content["queues"])),
        dict(by_queue(content.get("firsts", {}))),
        int(content.get("file_entries", 0)),
        tuple(RecordFingerprint(head) for head in heads if len(head) == HEAD_BYTES),
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
    }
    write_own(files, path, QUEUES_FILE, content, ensure_ascii=False, separators=(",", ":"))


def by_topic(numbers: Mapping[Queue, int]) -> dict[str, dict[str, int]]:
    """Numbers of queues as stored in JSON: ``{"TOPIC": {"QUEUE ID": NUMBER}}``, sorted."""
    table: dict[str, dict[str, int]] = {}
    for (topic, queue_id), number in sorted(numbers.items()):
        table.setdefault(topic, {})[str(queue_id)] = number
    return table


def forget_ends(files: FileSystem, path: Path) -> None:
    """Remove the list durably."""
    with suppress(FileNotFoundError):
        files.unlink(path / OWN_DIR / QUEUES_FILE)
        files.sync_dir(path / OWN_DIR)
