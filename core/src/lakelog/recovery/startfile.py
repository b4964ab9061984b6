"""From which segment on a log is read after a stop, and why.

Source: ``CommitLog.recoverNormally`` and ``recoverAbnormally`` of RocketMQ 5.3.3. It trusts queues
that it finds; here a whole log is read wherever the next queue offsets could be wrong otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from lakelog.checkpoint import StoreCheckpoint
from lakelog.codec.decode import decode_frame
from lakelog.codec.frame import read_frame, verify_frame
from lakelog.consumequeue.ends import read_ends
from lakelog.errors import CorruptRecord
from lakelog.files import FileSystem
from lakelog.layout import BATCHCONSUMEQUEUE_DIR, BLANK
from lakelog.queueends import QueueEnd
from lakelog.queueoffsets import Queue
from lakelog.source import Extent, Source
from lakelog.tombstones import read_tombstones

MARGIN_MS: Final = 3_000
"""The checkpoint is taken to be this much too high."""


@attrs.frozen
class Start:
    """:ivar offset: where a segment starts; :ivar reason: why reading begins there."""

    offset: int
    reason: str


def after_clean_stop(
    source: Source,
    size_bytes: int,
    files: FileSystem,
    path: Path,
    ends: Mapping[Queue, QueueEnd],
) -> Start:
    """The last segment that the queues know, if they are what they were at the last close."""
    starts = source.starts()
    doubt = _doubt(files, path, ends, listed=True)
    if doubt:
        return Start(starts[0], doubt)
    reached = max((each.reached for each in ends.values()), default=0)
    if not starts[0] < reached <= starts[-1] + size_bytes:
        return Start(starts[0], "the queues do not know where the log ends")
    known = (reached - 1) - (reached - 1) % size_bytes
    return Start(known, f"a clean stop, and the queues reach to {reached}")


def after_unclean_stop(
    source: Source,
    files: FileSystem,
    path: Path,
    ends: Mapping[Queue, QueueEnd],
    checkpoint: StoreCheckpoint,
) -> Start:
    """The last segment that begins with what the checkpoint says is durable."""
    starts = source.starts()
    doubt = _doubt(files, path, ends, listed=False)
    if doubt:
        return Start(starts[0], doubt)
    durable_ms = min(checkpoint.physic_timestamp_ms, checkpoint.logics_timestamp_ms) - MARGIN_MS
    for start in reversed(starts):
        stored_ms = _first_store_time(source, start)
        if 0 < stored_ms <= durable_ms:
            reason = f"the checkpoint says that its first record, of {stored_ms}, is durable"
            return Start(start, reason)
    return Start(starts[0], "the checkpoint vouches for no segment")


def _doubt(files: FileSystem, path: Path, ends: Mapping[Queue, QueueEnd], *, listed: bool) -> str:
    """Why the queues may not say all queue offsets; empty where they do."""
    kept = read_ends(files, path)
    if not ends:
        return "there are no queues"
    if listed and not kept:
        return "nobody kept where the queues ended"
    if any(queue not in ends or ends[queue].end < end for queue, end in kept.items()):
        return "queues lack what they had at the last clean close"
    if read_tombstones(files, path):
        return "topics were removed"
    if (path / BATCHCONSUMEQUEUE_DIR).is_dir():
        return "there are queues of batches"
    return ""


def _first_store_time(source: Source, start: int) -> int:
    """Store time of the first record of a segment, all of it checked; 0 if there is none."""
    for extent in source.extents(start):  # open for as long as the loop holds it
        return _store_time(extent, start) if extent.start == start else 0
    return 0


def _store_time(extent: Extent, start: int) -> int:
    head = extent.read(start, BLANK.size)
    size = BLANK.unpack(head)[0] if len(head) == BLANK.size else 0
    if not 0 < size <= extent.end - start:
        return 0
    data = extent.read(start, size)
    try:
        frame = read_frame(data, 0, len(data), start)
        verify_frame(data, frame, start)
    except CorruptRecord:
        return 0
    return int(decode_frame(data, frame).store_timestamp_ms)
