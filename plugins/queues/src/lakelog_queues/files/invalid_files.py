"""Moves queue files with an impossible length or name to the quarantine.

Nothing is lost, because queues are rebuilt from the log. But if all files have the same impossible
length, the settings are wrong and the files are right; then an error is raised and no file moves.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from lakelog.errors import CorruptQueue
from lakelog.files.filesystem import FileSystem, folders_in, free_name
from lakelog.files.segment_files import SegmentFile, segment_files
from lakelog.format.layout import OWN_DIR, QUARANTINE_DIR
from lakelog.format.queue_offsets import Queue

_LOG: Final = logging.getLogger("lakelog")


@attrs.frozen
class QueueFolderKind:
    """A folder of the store directory that holds queues of one kind.

    :ivar folder: its name in the store directory
    :ivar size_bytes: the required length of each file
    :ivar unit_bytes: every valid value of ``setting`` gives a multiple of this length
    :ivar setting: the setting of ``[consume-queue]`` that determines the length
    :ivar proved: whether the present value of the setting is known to be right
    :ivar gapless: whether files after a missing one cannot be used
    """

    folder: str
    size_bytes: int
    unit_bytes: int
    setting: str
    proved: bool = False
    gapless: bool = False


def quarantine_invalid(files: FileSystem, path: Path, kinds: Sequence[QueueFolderKind]) -> int:
    """Move files with a wrong length or name to ``lakelog/quarantine``; returns their number.

    Raises :class:`~lakelog.errors.CorruptQueue` if the settings are wrong; then no file was moved.
    """
    odd = find_invalid(files, path, kinds)
    for folder, file in odd:
        _move(files, path, folder, file)
    return len(odd)


def queues_with_invalid(
    files: FileSystem, path: Path, kinds: Sequence[QueueFolderKind]
) -> frozenset[Queue]:
    """The queues with such files; for readers, which may not move files.

    Raises :class:`~lakelog.errors.CorruptQueue` if the settings are wrong.
    """
    odd = find_invalid(files, path, kinds)
    for _, file in odd:
        _LOG.warning(
            "%s has a wrong length (%d bytes) or name; its queue is read from the log instead. "
            "Open the store with mode='write' to rebuild the file",
            file.path,
            file.length,
        )
    names = (file.path.parts[-3:-1] for _, file in odd)
    return frozenset((topic, int(queue_id)) for topic, queue_id in names if queue_id.isdecimal())


def find_invalid(
    files: FileSystem, path: Path, kinds: Sequence[QueueFolderKind]
) -> list[tuple[str, SegmentFile]]:
    """Files with a wrong length or name, each with the folder of its kind.

    Raises :class:`~lakelog.errors.CorruptQueue` if the settings are wrong.
    """
    return [(kind.folder, file) for kind in kinds for file in _invalid_of(files, path, kind)]


def _invalid_of(files: FileSystem, path: Path, kind: QueueFolderKind) -> list[SegmentFile]:
    """The files of one kind with a wrong length or name; raises if the setting is wrong instead."""
    folders = (each for topic in folders_in(path / kind.folder) for each in folders_in(topic))
    queues = [segment_files(each, files.list(each)) for each in folders]
    odd = [file for queue in queues for file in _odd(queue, kind)]
    lengths = {file.length for queue in queues for file in queue if file.length}
    if odd and not kind.proved and len(lengths) == 1 and kind.size_bytes not in lengths:
        (length,) = lengths
        if not length % kind.unit_bytes:
            raise CorruptQueue(
                f"all queue files have {length} bytes, but consume-queue.{kind.setting} requires "
                f"{kind.size_bytes}; restore the value they were made with, or rebuild the queues",
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
    target = free_name(quarantine / f"{folder}-{queue_id}-{file.path.name}-{topic}"[:200])
    files.rename(file.path, target)
    files.sync_dir(quarantine)
    files.sync_dir(file.path.parent)
    _LOG.warning(
        "%s has a wrong length (%d bytes) or name; it was moved to %s, and its queue is "
        "completed from the log",
        file.path,
        file.length,
        target,
    )
