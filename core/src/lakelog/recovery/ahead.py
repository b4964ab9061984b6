"""Makes durable what a recovery reads, while it is read: neither needs the other's end.

Whoever wrote the log may have died before a sync, so all that is found must be synced before it
counts. :mod:`lakelog.recovery.mend` does that; what was written back by then costs it nothing.
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
    """Syncs the segments of a store that is locked, in a thread of its own."""

    def __init__(self, directory: StoreDirectory, size_bytes: int) -> None:
        self._directory = directory
        self._size_bytes = size_bytes
        self._thread: Thread | None = None
        self._over = False
        self._error: Exception | None = None

    def begin(self, start_offset: int) -> None:
        """Sync each segment that ends behind ``start_offset``.

        Files that are not the operating system's want all calls in one order: they are left alone.
        Where no thread can be had, all is left to :mod:`lakelog.recovery.mend`.
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
        """Wait for the last sync; raises what one of them raised."""
        self.leave()
        if self._error is not None:
            raise self._error

    def leave(self) -> None:
        """Begin no further sync, and wait for the one that runs."""
        self._over = True
        if self._thread is not None:
            self._thread.join()
