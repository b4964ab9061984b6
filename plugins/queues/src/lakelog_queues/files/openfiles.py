"""Open files by name, the least used of them closed: a store may have 20,000 queues.

A file that somebody reads or writes just now is never closed under them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final, TypeAlias

import attrs

from lakelog.files.filesystem import File, FileSystem, RealFile, unreadable

MOST_OPEN: Final = 512


@attrs.define(eq=False)
class CachedFile:
    """One file.

    :ivar own_map: all of it in memory, made and looked at by compiled code alone; ``False`` where
        others may cut the file: a look behind its end would end the process
    :ivar descriptor: of a file of the operating system, else -1; it stays that one's until
        ``dropped`` is set, which is done before it is closed
    """

    file: File
    own_map: object
    users: int = 0
    dropped: bool = False
    descriptor: int = attrs.field(init=False)

    @descriptor.default
    def _find_descriptor(self) -> int:
        return self.file.fileno() if type(self.file) is RealFile else -1


Place: TypeAlias = tuple[object, int, int]
"""A :class:`CachedFile` or bytes, the position of a unit in bytes, and the room there in units."""
PlainUnits: TypeAlias = tuple[int, int, object, int, int]
"""Both bounds of a queue, then :data:`Place`."""
NOT_HELD: Final[Place] = b"", 0, 0


class OpenFiles:
    """Files of queues; any thread may use them."""

    def __init__(self, files: FileSystem, *, write: bool, most: int = MOST_OPEN) -> None:
        self._files = files
        self._write = write
        self._most = most
        self._opened: OrderedDict[Path, CachedFile] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._opened)

    @contextmanager
    def use(self, path: Path, *, create: bool = False) -> Iterator[File]:
        """The file, for the length of a ``with`` block."""
        opened = self._take(path, create=create)
        try:
            yield opened.file
        finally:
            self._give_back(opened)

    def read(self, path: Path, position: int, length: int) -> bytes:
        """At most ``length`` bytes; none of a file that is not there.

        Raises :class:`~lakelog.errors.StoreError` where the disk, or the system, does not let us.
        """
        try:
            opened = self._take(path, create=False)
            try:
                return opened.file.read_at(position, length)
            finally:
                self._give_back(opened)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise unreadable(path, error) from error

    def held(self, path: Path) -> CachedFile | None:
        """The file, if it is open; for who asks it whether it is ``dropped`` before each use."""
        return self._opened.get(path)

    def drop(self, path: Path) -> None:
        """Close a file that is about to be removed."""
        with self._lock:
            opened = self._opened.pop(path, None)
            if opened is not None:
                self._close(opened)

    def close(self) -> None:
        """Close all."""
        with self._lock:
            while self._opened:
                self._close(self._opened.popitem()[1])

    def _take(self, path: Path, *, create: bool) -> CachedFile:
        with self._lock:
            opened = self._opened.get(path)
            if opened is None:
                file = self._files.open(path, write=self._write, create=create)
                opened = self._opened[path] = CachedFile(file, None if self._write else False)
                opened.users = 1
                self._shrink()
            else:
                self._opened.move_to_end(path)
                opened.users += 1
            return opened

    def _give_back(self, opened: CachedFile) -> None:
        with self._lock:
            opened.users -= 1
            if opened.dropped and not opened.users:
                opened.file.close()

    def _shrink(self) -> None:
        surplus = len(self._opened) - self._most
        if surplus > 0:
            idle = (path for path, each in self._opened.items() if not each.users)
            for path in [found for found, _ in zip(idle, range(surplus), strict=False)]:
                self._close(self._opened.pop(path))

    @staticmethod
    def _close(opened: CachedFile) -> None:
        opened.dropped, opened.own_map = True, None
        if not opened.users:
            opened.file.close()
