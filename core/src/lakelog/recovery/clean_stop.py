"""Opens a store by the note of its clean stop, if nothing was written since.

The note alone is not enough. The segments must be those of the note. The last record must be whole
and end at the offset of the note. The queues must have all units of their last sync, and none
behind the end. If anything differs, the log is read as after any other stop.

``lakelog/clean-stop.json``: the state of the store after a clean stop of lakelog.

::

    {"version": 1, "crc": CRC-32 of the JSON text of "stop", "stop":
      {"minimum": OFFSET, "end_offset": OFFSET, "segment_size_bytes": N,
       "require_record_crc": BOOL, "checkpoint": [the five numbers],
       "segment": FILE, "checkpoint_file": FILE, "lock_file": FILE,
       "next_offsets": {"TOPIC": {"QUEUE ID": NEXT}}}}

with ``FILE`` as ``{"inode": N, "length": BYTES, "mtime_ns": NS, "ctime_ns": NS}``. The log holds
``minimum`` to ``end_offset``, all of it durable, and the last segment is zero behind that.
``next_offsets`` are those that ``queues.json`` does not have.

The file is written before ``abort`` is removed. The next owner removes it, durably, before the
first append. It counts only if nothing was written since: the last segment, the checkpoint and
``lock`` must be the same files, unchanged. RocketMQ writes ``lock`` at each start before it
appends.
"""

from __future__ import annotations

import json
import logging
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from lakelog.errors import CorruptRecord
from lakelog.files import queue_ends
from lakelog.files.checkpoint import StoreCheckpoint, read_checkpoint
from lakelog.files.filesystem import FileIdentity, FileSystem, identity_at
from lakelog.files.identity import read_own, read_replica, write_own
from lakelog.files.segment_files import SegmentFile
from lakelog.format import layout
from lakelog.format.queue_offsets import Queue
from lakelog.format.queue_survey import QueueOffsetSurvey
from lakelog.format.record import checked_frame, decode_frame
from lakelog.hooks.kinds import StoreSettings
from lakelog.log.sources import read_damage
from lakelog.log.store_directory import StoreDirectory
from lakelog.recovery.report import NO_LOG, RecoveryPlan, RecoveryReport

CLEAN_STOP_FILE: Final = "clean-stop.json"
UNCHANGED: Final = "a clean stop, and nobody has written since"
_VERSION: Final = 1
_LOG: Final = logging.getLogger("lakelog")
_LOOK_BYTES: Final = 4096


class CleanStop(NamedTuple):
    """The content of the file; see the module. Offsets are in bytes of the log.

    :ivar segment: identity of the last segment; ``checkpoint_file`` and ``lock_file`` likewise
    :ivar require_record_crc: whether records without a record checksum counted as damage
    :ivar next_offsets: by queue, where it differs from ``queues.json``
    """

    minimum: int
    end_offset: int
    segment_size_bytes: int
    require_record_crc: bool
    checkpoint: StoreCheckpoint
    segment: FileIdentity
    checkpoint_file: FileIdentity
    lock_file: FileIdentity
    next_offsets: Mapping[Queue, int]

    @property
    def last_start(self) -> int:
        """Start of the last segment."""
        return self.end_offset - self.end_offset % self.segment_size_bytes

    def is_unchanged(self, path: Path, commitlog: Path) -> bool:
        """Whether the store is closed, and its files are unchanged; opens no file."""
        last = commitlog / layout.segment_name(self.last_start)
        return (
            identity_at(path / layout.ABORT_FILE) is None
            and identity_at(path / layout.LOCK_FILE) == self.lock_file
            and identity_at(path / layout.CHECKPOINT_FILE) == self.checkpoint_file
            and identity_at(last) == self.segment
            and self.segment.length == self.segment_size_bytes
        )


def read_clean_stop(files: FileSystem, path: Path, commitlog: Path) -> CleanStop | None:
    """The clean stop of the store directory ``path``, if lakelog made it and it still holds.

    Reads one page of the log, which must be zero behind the end, and no other file.
    """
    try:
        stop = read_own(files, path, CLEAN_STOP_FILE, _stop)
        if stop is None or not stop.is_unchanged(path, commitlog):
            return None
        with closing(files.open(commitlog / layout.segment_name(stop.last_start))) as file:
            behind = file.read_at(stop.end_offset - stop.last_start, _LOOK_BYTES)
    except OSError:
        return None
    return None if any(behind) else stop


class CleanEnd:
    """The end of a closed store's log, for a reader that needs it repeatedly.

    The note is read once; the identities of the files are checked each time.
    """

    def __init__(self, files: FileSystem, path: Path, commitlog: Path) -> None:
        self._files = files
        self._path = path
        self._commitlog = commitlog
        self._note: FileIdentity | None = None
        self._stop: CleanStop | None = None

    def __call__(self) -> int | None:
        """Return the end, in bytes from the start of the log; ``None`` if it must be searched."""
        note = identity_at(self._path / layout.OWN_DIR / CLEAN_STOP_FILE)
        if note is None:
            return None
        if note != self._note:
            self._stop = read_clean_stop(self._files, self._path, self._commitlog)
            self._note = note
        elif self._stop is not None and not self._stop.is_unchanged(self._path, self._commitlog):
            self._stop = None
        return None if self._stop is None else self._stop.end_offset


def _stop(found: Mapping[str, Any]) -> CleanStop | None:
    row = found["stop"]
    if found["version"] != _VERSION or found["crc"] != _crc(row):
        return None
    names = "segment", "checkpoint_file", "lock_file"
    identities = {name: FileIdentity(**row[name]) for name in names}
    checkpoint = StoreCheckpoint(*row["checkpoint"])
    next_offsets = dict(queue_ends.by_queue(row["next_offsets"]))
    fields = {**row, **identities, "checkpoint": checkpoint, "next_offsets": next_offsets}
    return CleanStop(**fields)


def _crc(row: object) -> int:
    return zlib.crc32(json.dumps(row).encode())


def forget_clean_stop(files: FileSystem, path: Path) -> None:
    """Remove the note durably, before the first append; raises ``OSError``."""
    if identity_at(path / layout.OWN_DIR / CLEAN_STOP_FILE) is not None:
        files.unlink(path / layout.OWN_DIR / CLEAN_STOP_FILE)
        files.sync_dir(path / layout.OWN_DIR)


def note_clean_stop(
    directory: StoreDirectory,
    core: StoreSettings,
    minimum: int,
    end_offset: int,
    next_offsets: Mapping[Queue, int],
) -> None:
    """Note durably the state of a store whose files are closed, before ``abort`` is removed.

    All data must be durable. The note only saves time. If it cannot be written, a warning is
    logged, and the next open reads more. If the file system does not keep exact times, no note is
    written.

    :param next_offsets: the next queue offset of every queue
    """
    files, path = directory.files, directory.path
    kept = queue_ends.read_kept(files, path).ends
    start = end_offset - end_offset % core.segment_size_bytes
    try:
        with closing(files.open(directory.segment(start), write=True)) as file:
            segment = file.stamp()
        checkpoint = identity_at(path / layout.CHECKPOINT_FILE)
        lock = identity_at(path / layout.LOCK_FILE)
        if segment is None or checkpoint is None or lock is None:
            return
        row = {
            "minimum": minimum,
            "end_offset": end_offset,
            "segment_size_bytes": core.segment_size_bytes,
            "require_record_crc": core.require_record_crc,
            "checkpoint": read_checkpoint(files, path),
            "segment": segment._asdict(),
            "checkpoint_file": checkpoint._asdict(),
            "lock_file": lock._asdict(),
            "next_offsets": queue_ends.by_topic(
                {queue: end for queue, end in next_offsets.items() if kept.get(queue) != end}
            ),
        }
        content = {"version": _VERSION, "crc": _crc(row), "stop": row}
        write_own(files, path, CLEAN_STOP_FILE, content)
    except OSError as error:
        _LOG.warning("%s: the clean stop cannot be noted; the next open is slow: %s", path, error)


def unread_plan(directory: StoreDirectory, core: StoreSettings) -> RecoveryPlan | None:
    """The plan for a store that needs no reading and no change; ``None`` for any other.

    That is a store without a log, queues and checkpoint, or one that is unchanged since a clean
    stop and has no known damage. Raises :class:`~lakelog.errors.BadSegment`.
    """
    begun, files, path = time.monotonic(), directory.files, directory.path
    directory.check_segments(core.segment_size_bytes)
    segments, ends = directory.segments(), queue_ends.read_ends(files, path)
    if (path / layout.ABORT_FILE).exists() or read_replica(files, path) is not None:
        return None
    if not segments:
        kept = (layout.CHECKPOINT_FILE, f"{layout.OWN_DIR}/{queue_ends.QUEUES_FILE}")
        if ends or any((path / each).exists() for each in kept):
            return None
        return RecoveryPlan(RecoveryReport(True, 0, NO_LOG, 0, 0, 0), QueueOffsetSurvey(0, 0))
    found = left_unchanged(directory, core, segments, ends)
    if found is None or read_damage(files, path):
        return None
    start, minimum = found.start_offset, segments[0].start_offset
    seconds = time.monotonic() - begun
    report = RecoveryReport(
        True, start, UNCHANGED, minimum, found.end_offset, found.records, seconds=seconds
    )
    return RecoveryPlan(report, found)


def left_unchanged(
    directory: StoreDirectory,
    core: StoreSettings,
    segments: Sequence[SegmentFile],
    ends: Mapping[Queue, queue_ends.QueueEnd],
) -> QueueOffsetSurvey | None:
    """The survey of an unchanged log after a clean stop; ``None`` if that is not proved.

    :param segments: the segment files, in order
    :param ends: the ends of the queues
    """
    files, path = directory.files, directory.path
    stop = read_clean_stop(files, path, directory.commitlog)
    if stop is None or not _is_of(stop, core, segments):
        return None
    kept = queue_ends.read_kept(files, path)
    if stop.checkpoint != read_checkpoint(files, path) or not _queues_agree(stop, kept, ends):
        return None
    found = _last_record(directory, stop, kept)
    if found is not None:
        for queue, each in ends.items():
            found.raise_offset(queue, each.end)
        for queue, offset in (*kept.ends.items(), *stop.next_offsets.items()):
            found.raise_offset(queue, offset)
    return found


def _is_of(stop: CleanStop, core: StoreSettings, segments: Sequence[SegmentFile]) -> bool:
    """Whether the note is for these settings and segments, each of full length."""
    size = core.segment_size_bytes
    starts = list(range(stop.minimum, stop.last_start + 1, size))
    return (
        stop.segment_size_bytes == size
        and stop.require_record_crc >= core.require_record_crc
        and [(each.start_offset, each.length) for each in segments] == [(at, size) for at in starts]
    )


def _queues_agree(
    stop: CleanStop, kept: queue_ends.DurableQueueEnds, ends: Mapping[Queue, queue_ends.QueueEnd]
) -> bool:
    """Whether the queues have all units of their last sync, and none behind the end of the log."""
    return kept.are_reached_by(ends) and all(
        each.reached <= stop.end_offset and each.highest < stop.end_offset for each in ends.values()
    )


def _last_record(
    directory: StoreDirectory, stop: CleanStop, kept: queue_ends.DurableQueueEnds
) -> QueueOffsetSurvey | None:
    """The survey of the last record; ``None`` if it is not whole or not that of the queues.

    Only a blank record may follow it up to the end of the log.
    """
    end, size = stop.end_offset, stop.segment_size_bytes
    if not kept.marks:
        return QueueOffsetSurvey(end, end) if end == stop.minimum else None
    mark = kept.marks[0]
    start = mark.offset - mark.offset % size
    if not stop.minimum <= mark.offset < mark.end <= min(end, start + size):
        return None
    with closing(directory.files.open(directory.segment(start))) as file:
        data = memoryview(file.read_at(mark.offset - start, mark.end - mark.offset))
        blank = b"" if mark.end == end else file.read_at(mark.end - start, layout.BLANK.size)
    expected = layout.BLANK.pack(end - mark.end, layout.MAGIC_BLANK)
    if blank and (end != start + size or blank != expected):
        return None
    try:
        frame = checked_frame(data, 0, len(data), mark.offset, sealed=stop.require_record_crc)
    except CorruptRecord:
        return None
    if bytes(data[: len(mark.head)]) != mark.head or frame.size != len(data):
        return None
    time_ms = decode_frame(data, frame).store_timestamp_ms
    return QueueOffsetSurvey(
        mark.offset, end, time_ms, records=1, highest_timestamp_ms=time_ms, last_offset=mark.offset
    )
