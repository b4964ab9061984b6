"""Chooses the segment where reading begins after a stop, and the reason.

Source: ``CommitLog.recoverNormally`` and ``recoverAbnormally`` of RocketMQ 5.3.3. RocketMQ does not
check the queues. lakelog reads the whole log if the next queue offsets could be wrong otherwise. If
lakelog noted the offset up to which queues were synced, reading begins there at the latest, since
later records may lack units. It begins at a segment whose first record is whole: zeros do not prove
the end of the log unless the bytes before them are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from lakelog.files.filesystem import FileSystem
from lakelog.files.state.durable_queue_ends import DurableQueueEnds, RecordFingerprint, read_kept
from lakelog.files.state.queue_ends import QueueEnd
from lakelog.log.reading.sources import Extent, Source
from lakelog_format.codec import decode
from lakelog_format.fields.layout import BATCHCONSUMEQUEUE_DIR, BLANK, OWN_DIR, TOMBSTONES_FILE
from lakelog_format.fields.queue_offsets import Queue
from lakelog_interfaces.checkpoint import StoreCheckpoint
from lakelog_interfaces.errors import CorruptRecord

MARGIN_MS: Final = 3_000
"""Subtracted from the checkpoint's times, as RocketMQ does."""
_NOT_KEPT: Final = "the ends of the queues were not stored"
_OTHER_LOG: Final = "the log is not the one whose queues were synced"


@attrs.frozen
class Start:
    """Where reading begins.

    :ivar offset: the start of a segment, in bytes from the start of the log
    :ivar reason: why reading begins there
    """

    offset: int
    reason: str


def after_clean_stop(
    source: Source,
    size_bytes: int,
    files: FileSystem,
    path: Path,
    ends: Mapping[Queue, QueueEnd],
) -> Start:
    """The last segment covered by the queues, or the first if the queues may lack units."""
    starts = source.starts()
    kept = read_kept(files, path)
    doubt = _doubt(path, ends, kept) or ("" if kept.ends else _NOT_KEPT)
    if doubt:
        return Start(starts[0], doubt)
    reached = max((each.reached for each in ends.values()), default=0)
    if not starts[0] < reached <= starts[-1] + size_bytes:
        return Start(starts[0], "the queues do not show the end of the log")
    synced = _synced(source, kept)
    if synced is None:
        return Start(starts[0], _OTHER_LOG)
    known = min(reached - 1, synced)
    begins = _last_sound(source, [each for each in starts if each <= known])
    if begins + size_bytes <= known:
        return Start(begins, f"no whole record starts any segment from there to {known}")
    if synced < reached - size_bytes:
        return Start(begins, f"a clean stop, and queues were last synced up to {synced}")
    return Start(begins, f"a clean stop, and the queues reach to {reached}")


def after_unclean_stop(
    source: Source,
    files: FileSystem,
    path: Path,
    ends: Mapping[Queue, QueueEnd],
    checkpoint: StoreCheckpoint,
) -> Start:
    """The last segment whose first record is durable according to the checkpoint, or the first."""
    starts = source.starts()
    kept = read_kept(files, path)
    doubt = _doubt(path, ends, kept)
    if doubt:
        return Start(starts[0], doubt)
    synced = _synced(source, kept) if kept.ends else starts[-1]
    if synced is None:
        return Start(starts[0], _OTHER_LOG)
    durable_ms = min(checkpoint.physic_timestamp_ms, checkpoint.logics_timestamp_ms) - MARGIN_MS
    for start in reversed([each for each in starts if each <= synced]):
        stored_ms = _first_store_time(source, start)
        if 0 < stored_ms <= durable_ms:
            reason = f"the checkpoint says that its first record, of {stored_ms}, is durable"
            return Start(start, reason)
    return Start(starts[0], "the checkpoint confirms no segment")


def _synced(source: Source, kept: DurableQueueEnds) -> int | None:
    """Start of the last record that had units at the last sync confirmed by the log."""
    return max((each.offset for each in kept.marks if _holds(source, each)), default=None)


def _holds(source: Source, mark: RecordFingerprint) -> bool:
    """Whether the log still has the marked record; if not, the log was replaced since."""
    for extent in source.extents(mark.offset):  # open as long as the loop runs
        if extent.start <= mark.offset < extent.end:
            return bytes(extent.read(mark.offset, len(mark.head))) == mark.head
        break
    return False


def _last_sound(source: Source, starts: Sequence[int]) -> int:
    """The last segment that begins with a whole record; the first one if there is none."""
    return next((each for each in reversed(starts) if _first_store_time(source, each)), starts[0])


def _doubt(path: Path, ends: Mapping[Queue, QueueEnd], kept: DurableQueueEnds) -> str:
    """Why the queues may lack queue offsets; empty if they are complete."""
    if not ends:
        return "there are no queues"
    if not kept.are_reached_by(ends):
        return "queues lack what they had at the last sync"
    if (path / OWN_DIR / TOMBSTONES_FILE).exists():
        return "topics were removed"
    if (path / BATCHCONSUMEQUEUE_DIR).is_dir() and not set(ends) <= set(kept.ends):
        return "there are queues of batches"
    return ""


def _first_store_time(source: Source, start: int) -> int:
    """Store time of the checked first record of a segment; 0 if there is none."""
    for extent in source.extents(start):  # open as long as the loop runs
        return _store_time(extent, start) if extent.start == start else 0
    return 0


def _store_time(extent: Extent, start: int) -> int:
    head = extent.read(start, BLANK.size)
    size = BLANK.unpack(head)[0] if len(head) == BLANK.size else 0
    if not 0 < size <= extent.end - start:
        return 0
    try:
        return decode(extent.read(start, size), offset=start).store_timestamp_ms
    except CorruptRecord:
        return 0
