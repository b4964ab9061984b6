"""Syncs the log in parallel with the recovery that reads it.

The writer may have died before a sync, so everything found must be synced before it counts.
:mod:`lakelog.recovery.mend` does that; bytes written back by then cost it nothing.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

from lakelog.errors import ThreadNotStarted
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.segment_files import segment_files
from lakelog.log.store_directory import StoreDirectory
from lakelog.runtime.threads import started


class BackgroundSync:
    """Syncs the segments of a locked store, in its own thread."""

    def __init__(self, directory: StoreDirectory, size_bytes: int) -> None:
        self._directory = directory
        self._size_bytes = size_bytes
        self._thread: Thread | None = None
        self._over = False
        self._error: Exception | None = None

    def begin(self, start_offset: int) -> None:
        """Sync each segment that ends behind ``start_offset``.

        Does nothing with replaced files (tests), which need all calls in one order. If no thread
        can be started, :mod:`lakelog.recovery.mend` does all the work.
        """
        if type(self._directory.files) is RealFileSystem:
            ahead = Thread(
                target=self._run, args=(start_offset,), name="lakelog-sync-ahead", daemon=True
            )
            with suppress(ThreadNotStarted):
                self._thread = started(ahead)

    def _run(self, start_offset: int) -> None:
        files, log = self._directory.files, self._directory.commitlog
        try:
            for each in segment_files(log, files.list(log)):
                if not self._over and each.start_offset + self._size_bytes > start_offset:
                    file = files.open(each.path, write=True)
                    try:
                        file.sync()
                    finally:
                        file.close()
        except Exception as error:  # noqa: BLE001  # it is raised by end(): no sync may fail unheard
            self._error = error

    def end(self) -> None:
        """Wait for the last sync; raises the error of any sync."""
        self.leave()
        if self._error is not None:
            raise self._error

    def leave(self) -> None:
        """Start no further sync, and wait for the current one."""
        self._over = True
        if self._thread is not None:
            self._thread.join()
