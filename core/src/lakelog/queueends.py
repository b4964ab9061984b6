"""Where consume queues end, read from the last file of each; a queue may outlive its messages.

Layout: 20-byte units ``offset i64 | size i32 | tagsCode i64``; the data ends at the first unit
whose size is not positive.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from lakelog.files import FileSystem, read_file
from lakelog.layout import CONSUMEQUEUE_DIR
from lakelog.queueoffsets import Queue
from lakelog.segmentdir import SegmentFile, segment_files

UNIT_BYTES = 20


def queue_ends(files: FileSystem, path: Path) -> dict[Queue, int]:
    """The offset behind the last unit of each consume queue of the store directory ``path``."""
    return {
        queue: _end(files, segment_files(directory, files.list(directory)))
        for queue, directory in _queues(path / CONSUMEQUEUE_DIR)
    }


def _queues(root: Path) -> Iterator[tuple[Queue, Path]]:
    for topic in _directories(root):
        for queue in _directories(topic):
            if queue.name.isdigit():
                yield (topic.name, int(queue.name)), queue


def _directories(path: Path) -> list[Path]:
    try:
        return sorted(Path(entry.path) for entry in os.scandir(path) if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _end(files: FileSystem, segments: list[SegmentFile]) -> int:
    for segment in reversed(segments):
        units = _units(read_file(files, segment.path) or b"")
        if units:
            return segment.start_offset // UNIT_BYTES + units
    return segments[0].start_offset // UNIT_BYTES if segments else 0


def _units(data: bytes) -> int:
    """How many units stand at the front of a queue file."""
    import numpy as np

    whole = len(data) // UNIT_BYTES
    unit = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
    units = np.frombuffer(data, unit, whole)
    ends = np.flatnonzero((units["size"] <= 0) | (units["offset"] < 0))
    return int(ends[0]) if len(ends) else whole
