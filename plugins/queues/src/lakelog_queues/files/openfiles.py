"""Open files of queues, and their writes that are not durable yet.

The cache closes the least recently used file: a store may have 20,000 queues. A file is never
closed while a thread reads or writes it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

from lakelog.files.filesystem import File, FileSystem, RealFile, unreadable
from lakelog.runtime.locks import Mutex

MOST_OPEN: Final = 512


class CachedFile:
    """An open file.

    :ivar users: number of threads that use it now
    :ivar dropped: whether it is no longer in the cache; set before the file is closed
    :ivar own_map: a memory map of the file, made and used by compiled code only; ``False`` if the
        file is another process's, which may cut it: an access behind its end would kill this one
    :ivar descriptor: the file descriptor, valid until ``dropped`` is set; -1 if the file is not one
        of the operating system
    """

    __slots__ = ("descriptor", "dropped", "file", "own_map", "users")

    def __init__(self, file: File, own_map: object) -> None:
        self.file = file
        self.own_map = own_map
        self.users = 0
        self.dropped = False
        self.descriptor = file.fileno() if type(file) is RealFile else -1


UnitLocation: TypeAlias = tuple[object, int, int]
"""A :class:`CachedFile` or bytes, the position of a unit in bytes, and the room there in units."""
PlainUnits: TypeAlias = tuple[int, int, object, int, int]
"""Both bounds of a queue, then :data:`UnitLocation`."""
NOT_HELD: Final[UnitLocation] = b"", 0, 0


class OpenFiles:
    """The open files of queues; thread-safe.

    :param most: number of files above which unused ones are closed
    """

    def __init__(self, files: FileSystem, *, write: bool, most: int = MOST_OPEN) -> None:
        self._files = files
        self._write = write
        self._most = most
        self._opened: OrderedDict[Path, CachedFile] = OrderedDict()
        self._lock = Mutex()

    @contextmanager
    def use(self, path: Path, *, create: bool = False) -> Iterator[File]:
        """The file, which stays open for the length of a ``with`` block."""
        opened = self._take(path, create=create)
        try:
            yield opened.file
        finally:
            self._give_back(opened)

    def read(self, path: Path, position: int, length: int) -> bytes:
        """At most ``length`` bytes from ``position`` on; empty if the file does not exist.

        Raises :class:`~lakelog.errors.StoreError` if the file cannot be opened or read.
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
        """The file, if it can be opened; the caller must check ``dropped`` before each use."""
        opened = self._opened.get(path)
        if opened is None:
            with suppress(OSError):
                opened = self._take(path, create=False)
                self._give_back(opened)
        return opened

    def drop(self, path: Path) -> None:
        """Close a file that is about to be removed."""
        with self._lock:
            opened = self._opened.pop(path, None)
            if opened is not None:
                self._close(opened)

    def close(self) -> None:
        """Close all files."""
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
            idle = [path for path, each in self._opened.items() if not each.users]
            for path in idle[:surplus]:
                self._close(self._opened.pop(path))

    @staticmethod
    def _close(opened: CachedFile) -> None:
        opened.dropped, opened.own_map = True, None
        if not opened.users:
            opened.file.close()


PAGE_BYTES: Final = 4096
_LEVELS: Final = 3
"""Number of folder levels from the store directory to a queue's: kind, topic, queue id."""


class DirtyFiles:
    """Files and folders to be synced; thread-safe."""

    def __init__(self, files: FileSystem, opened: OpenFiles) -> None:
        self._files = files
        self._opened = opened
        self._ranges: dict[Path, tuple[int, int]] = {}
        self._folders: set[Path] = set()
        self._lock = Mutex()

    def wrote(self, path: Path, begin: int, end: int) -> None:
        """Note that bytes ``begin`` to ``end`` of a file were written."""
        with self._lock:
            low, high = self._ranges.get(path, (begin, end))
            self._ranges[path] = (min(low, begin), max(high, end))

    def named(self, folder: Path) -> None:
        """Note that a name was added to ``folder`` or removed from it."""
        with self._lock:
            self._folders.add(folder)

    def make_dir(self, folder: Path) -> None:
        """Create a queue's folder; it becomes durable at the next sync of all files.

        A sync for each new folder would take seconds with thousands of queues. A power cut before
        that sync may lose the folder and its files; they are then rebuilt from the log.
        """
        self._files.make_dir(folder, durable=False)
        self.named_above(folder)

    def named_above(self, folder: Path) -> None:
        """Note new names in a queue's folder, and in all folders above it in the store."""
        with self._lock:
            self._folders.update((folder, *folder.parents[:_LEVELS]))

    def forget(self, path: Path) -> None:
        """Forget a file that is about to be removed."""
        with self._lock:
            self._ranges.pop(path, None)

    def sync(self, least_pages: int) -> None:
        """Sync the files in which at least ``least_pages`` pages changed; 0 is all, and folders.

        What could not be opened is left for the next call.
        """
        due, folders = self._take(least_pages)
        try:
            for path in list(due):
                with (
                    suppress(FileNotFoundError),
                    self._opened.use(path) as file,
                ):  # removed meanwhile
                    file.sync()
                del due[path]
            for folder in sorted(folders):
                with suppress(FileNotFoundError):  # removed meanwhile
                    self._files.sync_dir(folder)
                folders.remove(folder)
        finally:
            for path, changed in due.items():
                self.wrote(path, *changed)
            with self._lock:
                self._folders |= folders

    def _take(self, least_pages: int) -> tuple[dict[Path, tuple[int, int]], set[Path]]:
        with self._lock:
            due = {
                path: (low, high)
                for path, (low, high) in self._ranges.items()
                if high // PAGE_BYTES - low // PAGE_BYTES >= least_pages
            }
            for path in due:
                del self._ranges[path]
            folders = set[Path]()
            if not least_pages:
                folders, self._folders = self._folders, folders
            return due, folders
