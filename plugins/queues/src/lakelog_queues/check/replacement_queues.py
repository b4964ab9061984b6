"""Finds the queues with units that lead to a repair's records; see :mod:`.replaced`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lakelog.files.filesystem import FileSystem, folders_in, unreadable
from lakelog.files.segment_files import segment_files
from lakelog.format.layout import CONSUMEQUEUE_DIR
from lakelog.format.properties import REPAIRED_TOPIC
from lakelog.format.queue_offsets import Queue
from lakelog.lazy import np
from lakelog_queues.check.checkunits import CheckedFiles
from lakelog_queues.files.openfiles import OpenFiles
from lakelog_queues.files.replaced import Replacements
from lakelog_queues.files.simplequeue import first_behind
from lakelog_queues.units.simpleunits import UNIT, UNIT_BYTES, columns, unpack

_MOST_OPEN: Final = 64


def queues_with_replacements(files: FileSystem, path: Path) -> tuple[Queue, ...]:
    """The queues with such units, sorted; changes nothing.

    :param path: the store directory
    """
    root = path / CONSUMEQUEUE_DIR
    opened = OpenFiles(files, write=False, most=_MOST_OPEN)
    try:
        own = [_units(files, opened, root, each) for each in _queues(root, REPAIRED_TOPIC)]
        whole = [each.read(each.first, each.end) for each in own if each is not None]
        replacements = Replacements.of(unpack(units, 0) for units in whole)
        if not replacements:
            return ()
        return tuple(
            queue
            for topic in sorted(set(_folders(root)) - {REPAIRED_TOPIC})
            for queue in _queues(root, topic)
            if _points_to(_units(files, opened, root, queue), replacements)
        )
    finally:
        opened.close()


def _points_to(units: CheckedFiles | None, replacements: Replacements) -> bool:
    """Whether any unit leads to a replacement."""
    if units is None:
        return False

    def read(first: int, count: int) -> bytes:
        return units.read(first, first + count).tobytes()

    places = (
        first_behind(read, units.first, units.end, each) for each in replacements.offsets.tolist()
    )
    found = (read(at, 1) for at in places if at < units.end)
    return any(bool(np.any(replacements.are_pointed_to(columns(each)))) for each in found)


def _units(files: FileSystem, opened: OpenFiles, root: Path, queue: Queue) -> CheckedFiles | None:
    folder = root / queue[0] / str(queue[1])
    sizes = {each.length for each in segment_files(folder, files.list(folder)) if each.length}
    if len(sizes) != 1 or min(sizes) % UNIT_BYTES:
        return None
    return CheckedFiles(files, opened, folder, np.dtype(UNIT), sizes.pop())


def _queues(root: Path, topic: str) -> Iterator[Queue]:
    names = [each for each in _folders(root / topic) if each.isdecimal() and each.isascii()]
    yield from ((topic, number) for number in sorted(map(int, names)))


def _folders(path: Path) -> list[str]:
    try:
        return [each.name for each in folders_in(path)]
    except OSError as error:
        raise unreadable(path, error) from error
