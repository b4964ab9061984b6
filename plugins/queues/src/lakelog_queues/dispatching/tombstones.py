"""``lakelog/tombstones.json``: topics whose queues were removed, and must not be restored.

``{"queues": {"TOPIC": END}}``: records of ``TOPIC`` that start below the physical offset ``END``
get no queue units. A recovery rebuilds queues from the log, which keeps these records; only a
rebuild ignores the tombstones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from lakelog.arguments import WrongValue
from lakelog.errors import CorruptConfig, StoreError
from lakelog.files.filesystem import FileSystem, read_file, unreadable, write_file
from lakelog.files.identity import parsed, shown
from lakelog.format.layout import OWN_DIR, TOMBSTONES_FILE
from lakelog.format.properties import REPAIRED_TOPIC

_writes = 0  # by this process, of any store


def read_tombstones(files: FileSystem, path: Path) -> dict[str, int]:
    """By topic, the offset below which its records are ignored, in the store directory ``path``.

    Raises :class:`~lakelog.errors.CorruptConfig` for an invalid file, since ignoring it could
    restore removed queues. Raises :class:`~lakelog.errors.StoreError` for an unreadable one.
    """
    try:
        content = read_file(files, _file(path))
    except OSError as error:
        raise unreadable(_file(path), error) from error
    if content is None:
        return {}
    match parsed(content):
        case {"queues": dict(found)} if all(type(at) is int and at >= 0 for at in found.values()):
            return dict(found)
    raise CorruptConfig(
        f'it is damaged: expected {{"queues": {{TOPIC: OFFSET}}}}, found {shown(content)}; '
        "restore it; if you delete it, the next rebuild brings removed topics back",
        path=_file(path),
    )


def add_tombstone(files: FileSystem, path: Path, topic: str, end_offset: int) -> None:
    """Ignore records of ``topic`` below ``end_offset`` from now on, durably; it never decreases.

    After ``OSError`` the tombstone is removed again, as far as the disk permits: it may be visible
    without being durable.
    """
    found = read_tombstones(files, path)
    wanted = {**found, topic: max(end_offset, found.get(topic, 0))}
    try:
        write_tombstones(files, path, wanted)
    except OSError:
        with suppress(OSError, StoreError):
            if read_tombstones(files, path) != found:
                write_tombstones(files, path, found)
        raise


def delete_topic(
    files: FileSystem,
    path: Path,
    topic: str,
    end_offset: int,
    forget: Callable[[str, int], None],
) -> None:
    """Remove a topic's queues; its records stay in the log.

    The tombstone is written first. Until it is durable nothing has changed. From then on no reader
    finds the topic, even if some of its files remain.

    :param end_offset: the present end of the log; later records create new queues
    :param forget: removes the queues of a topic; called with its name and ``end_offset``

    Raises ``ValueError`` for the topic of filler records, ``OSError`` if nothing was removed,
    and :class:`~lakelog.errors.StoreError` if the topic is gone but files remain.
    """
    if topic == REPAIRED_TOPIC:
        raise WrongValue(f"topic {topic!r} cannot be removed: units of other queues lead to it")
    add_tombstone(files, path, topic, end_offset)
    try:
        forget(topic, end_offset)
    except OSError as error:
        raise StoreError(
            f"{error.strerror or error}; topic {topic!r} was removed, but some of its files remain;"
            " check the disk, then delete it again, or let the next open remove them",
            path=error.filename or path,
        ) from error


def lower_tombstones(files: FileSystem, path: Path, tombstones: dict[str, int], end: int) -> None:
    """Lower tombstones to the end of the log; otherwise they would hide later messages.

    :param tombstones: the content of the file; changed in place, and then in the file
    """
    beyond = [topic for topic, tombstone in tombstones.items() if tombstone > end]
    tombstones.update(dict.fromkeys(beyond, end))
    if beyond:
        write_tombstones(files, path, tombstones)


class TombstoneFile:
    """The current tombstones, written by any process; each call costs one ``stat``."""

    def __init__(
        self,
        files: FileSystem,
        path: Path,
        *,
        alone: bool = False,
        known: Mapping[str, int] | None = None,
    ) -> None:
        """Read them, unless ``known``; raises as :func:`read_tombstones`, here and later.

        :param alone: whether only this process writes them; the file is then not checked
        :param known: tombstones that were read before, to which :meth:`changes` compares
        """
        self._alone = alone
        self._files = files
        self._path = path
        self._file = os.fspath(_file(path))  # used by every look-up
        self._stamp: object = None
        self._known = dict(known or {})
        if known is None:
            self.changes()

    def end_of(self, topic: str) -> int:
        """The offset below which records of ``topic`` are ignored; 0 without a tombstone."""
        if not self._alone or _writes != self._stamp:
            self.changes()
        return self._known.get(topic, 0)

    def changes(self) -> dict[str, int]:
        """Tombstones added or raised since the last call."""
        stamp = _writes if self._alone else _stamp(self._file)
        if stamp == self._stamp:
            return {}
        known, self._known = self._known, read_tombstones(self._files, self._path)
        self._stamp = stamp  # taken before the read: a later replacement is then detected
        return {topic: end for topic, end in self._known.items() if end > known.get(topic, 0)}


def _stamp(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def clear_tombstones(files: FileSystem, path: Path) -> None:
    """Remove all tombstones, durably, even unreadable ones."""
    try:
        with suppress(FileNotFoundError):
            files.unlink(_file(path))
            files.sync_dir(_file(path).parent)
    finally:
        _count_write()


def write_tombstones(files: FileSystem, path: Path, tombstones: Mapping[str, int]) -> None:
    """Replace all tombstones durably."""
    files.make_dir(_file(path).parent)
    content = json.dumps({"queues": dict(tombstones)}, indent=2, ensure_ascii=False)
    try:
        write_file(files, _file(path), content.encode() + b"\n")
    finally:
        _count_write()


def _count_write() -> None:
    """Count a change, even a failed one, so that :class:`TombstoneFile` reads again."""
    global _writes  # noqa: PLW0603  # as many files as stores, all written by this process
    _writes += 1


def _file(path: Path) -> Path:
    return path / OWN_DIR / TOMBSTONES_FILE
