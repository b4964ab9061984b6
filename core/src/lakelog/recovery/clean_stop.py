"""Opens a store by the note of its clean stop, if nothing was written since.

The note alone is not enough. The segments must be those of the note. The last record must be whole
and end at the offset of the note. The queues must have all units of their last sync, and none
behind the end. If anything differs, the log is read as after any other stop.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Final

from lakelog.files.segment_files import SegmentFile
from lakelog.files.state.clean_stop import CleanStop, read_clean_stop, write_clean_stop
from lakelog.files.state.durable_queue_ends import DurableQueueEnds, read_kept
from lakelog.files.state.queue_ends import QueueEnd
from lakelog.log.store_directory import StoreDirectory
from lakelog.settings.model import StoreSettings
from lakelog_format.codec.decode import decode_frame
from lakelog_format.codec.frame import checked_frame
from lakelog_format.fields.layout import BLANK, MAGIC_BLANK
from lakelog_format.fields.queue_offsets import Queue
from lakelog_format.queue_survey import QueueOffsetSurvey
from lakelog_interfaces.checkpoint import read_checkpoint
from lakelog_interfaces.errors import CorruptRecord

UNCHANGED: Final = "a clean stop, and nobody has written since"
_LOG: Final = logging.getLogger("lakelog")


def note_clean_stop(
    directory: StoreDirectory,
    core: StoreSettings,
    minimum: int,
    end_offset: int,
    next_offsets: Mapping[Queue, int],
) -> None:
    """Write the note for a store whose files are closed, before ``abort`` is removed.

    The note only saves time. If it cannot be written, a warning is logged, and the next open reads
    more.

    :param next_offsets: the next queue offset of every queue
    """
    files, path = directory.files, directory.path
    kept = read_kept(files, path).ends
    try:
        write_clean_stop(
            files,
            path,
            directory.commitlog,
            minimum=minimum,
            end_offset=end_offset,
            segment_size_bytes=core.segment_size_bytes,
            require_record_crc=core.require_record_crc,
            next_offsets={
                queue: offset for queue, offset in next_offsets.items() if kept.get(queue) != offset
            },
        )
    except OSError as error:
        _LOG.warning("%s: the clean stop cannot be noted; the next open is slow: %s", path, error)


def left_unchanged(
    directory: StoreDirectory,
    core: StoreSettings,
    segments: Sequence[SegmentFile],
    ends: Mapping[Queue, QueueEnd],
) -> QueueOffsetSurvey | None:
    """The survey of an unchanged log after a clean stop; ``None`` if that is not proved.

    :param segments: the segment files, in order
    :param ends: the ends of the queues
    """
    files, path = directory.files, directory.path
    stop = read_clean_stop(files, path, directory.commitlog)
    if stop is None or not _is_of(stop, core, segments):
        return None
    kept = read_kept(files, path)
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


def _queues_agree(stop: CleanStop, kept: DurableQueueEnds, ends: Mapping[Queue, QueueEnd]) -> bool:
    """Whether the queues have all units of their last sync, and none behind the end of the log."""
    return kept.are_reached_by(ends) and all(
        each.reached <= stop.end_offset and each.highest < stop.end_offset for each in ends.values()
    )


def _last_record(
    directory: StoreDirectory, stop: CleanStop, kept: DurableQueueEnds
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
        blank = b"" if mark.end == end else file.read_at(mark.end - start, BLANK.size)
    if blank and (end != start + size or blank != BLANK.pack(end - mark.end, MAGIC_BLANK)):
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
