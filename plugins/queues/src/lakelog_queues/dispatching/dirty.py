"""Tracks writes that are not durable yet: ranges of files, and folders with changed names."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

from lakelog.files.filesystem import FileSystem
from lakelog_queues.files.openfiles import OpenFiles

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
        self._lock = Lock()

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
        """Sync the files in which at least ``least_pages`` pages changed; 0 is all, and folders."""
        for path in self._take(least_pages):
            self._sync(path)
        for folder in self._take_folders() if not least_pages else ():
            with suppress(FileNotFoundError):  # removed meanwhile
                self._files.sync_dir(folder)

    def _take(self, least_pages: int) -> list[Path]:
        with self._lock:
            due = [
                path
                for path, (low, high) in self._ranges.items()
                if high // PAGE_BYTES - low // PAGE_BYTES >= least_pages
            ]
            for path in due:
                del self._ranges[path]
            return due

    def _take_folders(self) -> list[Path]:
        with self._lock:
            folders, self._folders = sorted(self._folders), set()
            return folders

    def _sync(self, path: Path) -> None:
        try:
            with self._opened.use(path) as file:
                file.sync()
        except FileNotFoundError:
            return  # removed meanwhile
