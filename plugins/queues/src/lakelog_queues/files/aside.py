"""Puts files of queues that cannot be what they should be aside, where somebody can look at them.

Queues are built from the log again, so nothing is lost. But files that all have another length come
from other settings, and are refused: they are as good as they were, and the settings are wrong.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from lakelog.errors import CorruptQueue
from lakelog.files.filesystem import FileSystem
from lakelog.files.segment_files import SegmentFile, segment_files
from lakelog.format.layout import OWN_DIR, QUARANTINE_DIR
from lakelog.format.queue_offsets import Queue

_LOG: Final = logging.getLogger("lakelog")


@attrs.frozen
class QueueFolderKind:
    """One folder of queues.

    :ivar folder: its name in the store directory
    :ivar size_bytes: how long each file must be
    :ivar unit_bytes: what every length that a setting can give is a multiple of
    :ivar setting: the setting that says so
    :ivar proved: whether the setting is known to be right
    :ivar gapless: whether files behind a missing one are of no use
    """

    folder: str
    size_bytes: int
    unit_bytes: int
    setting: str
    proved: bool = False
    gapless: bool = False


def set_odd_aside(files: FileSystem, path: Path, kinds: Sequence[QueueFolderKind]) -> int:
    """Move files of wrong lengths and places to ``lakelog/quarantine``; how many there were.

    Raises :class:`~lakelog.errors.CorruptQueue` where the settings are at fault; nothing was moved
    then.
    """
    odd = find_odd(files, path, kinds)
    for folder, file in odd:
        _move(files, path, folder, file)
    return len(odd)


def queues_with_odd(
    files: FileSystem, path: Path, kinds: Sequence[QueueFolderKind]
) -> frozenset[Queue]:
    """Queues of which files have wrong lengths and places; for readers, who may move none.

    Raises :class:`~lakelog.errors.CorruptQueue` where the settings are at fault.
    """
    odd = find_odd(files, path, kinds)
    for _, file in odd:
        _LOG.warning(
            "%s has %d bytes or a place that none of its kind can have; what its queue holds is "
            "read from the log. Recover the store to have it made again",
            file.path,
            file.length,
        )
    names = (file.path.parts[-3:-1] for _, file in odd)
    return frozenset((topic, int(queue_id)) for topic, queue_id in names if queue_id.isdecimal())


def find_odd(
    files: FileSystem, path: Path, kinds: Sequence[QueueFolderKind]
) -> list[tuple[str, SegmentFile]]:
    """Files of wrong lengths and places, each with its kind's folder.

    Raises :class:`~lakelog.errors.CorruptQueue` where the settings are at fault.
    """
    return [(kind.folder, file) for kind in kinds for file in _odd_of(files, path, kind)]


def _odd_of(files: FileSystem, path: Path, kind: QueueFolderKind) -> list[SegmentFile]:
    """The files of one kind that are to go; raises where all of them say the settings are wrong."""
    queues = [segment_files(each, files.list(each)) for each in _queue_folders(path / kind.folder)]
    odd = [file for queue in queues for file in _odd(queue, kind)]
    lengths = {file.length for queue in queues for file in queue if file.length}
    if odd and not kind.proved and len(lengths) == 1 and kind.size_bytes not in lengths:
        (length,) = lengths
        if not length % kind.unit_bytes:
            raise CorruptQueue(
                f"all files of queues have {length} bytes, and {kind.setting} makes "
                f"{kind.size_bytes}; set it as it was when they were made, or rebuild the queues",
                path=odd[0].path,
            )
    return odd


def _odd(queue: Sequence[SegmentFile], kind: QueueFolderKind) -> Iterator[SegmentFile]:
    following = None
    for file in queue:
        fits = file.length in (0, kind.size_bytes) and not file.start_offset % kind.size_bytes
        if not fits or (kind.gapless and following not in (None, file.start_offset)):
            yield file
        else:
            following = file.start_offset + kind.size_bytes


def _move(files: FileSystem, path: Path, folder: str, file: SegmentFile) -> None:
    quarantine = path / OWN_DIR / QUARANTINE_DIR
    files.make_dir(quarantine)
    topic, queue_id = file.path.parts[-3:-1]
    target = _free(quarantine / f"{folder}-{queue_id}-{file.path.name}-{topic}"[:200])
    files.rename(file.path, target)
    files.sync_dir(quarantine)
    files.sync_dir(file.path.parent)
    _LOG.warning(
        "%s has %d bytes or a place that none of its kind can have; it was moved to %s, and its "
        "queue is completed from the log",
        file.path,
        file.length,
        target,
    )


def _free(target: Path) -> Path:
    """``target``, or with a number behind it where that is taken."""
    number, free = 1, target
    while free.exists():
        number, free = number + 1, target.with_name(f"{target.name}.{number}")
    return free


def _queue_folders(root: Path) -> Iterator[Path]:
    for topic in _folders(root):
        yield from _folders(topic)


def _folders(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return sorted(Path(each.path) for each in entries if each.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
