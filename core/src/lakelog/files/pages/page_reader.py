"""The positions of a store that are valid for a reader, while it is open elsewhere and later."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lakelog.files.filesystem import FileSystem
from lakelog.files.pages.mapped_file import Identity
from lakelog.files.pages.page_view import BELIEVED, PageView, page_identity
from lakelog.files.shared.ownership import is_owned, is_published
from lakelog.files.state.replica import read_replica
from lakelog.runtime.locks import Mutex
from lakelog_format.fields.layout import ABORT_FILE
from lakelog_interfaces.checkpoint import read_checkpoint

TRUSTED_S: Final = 0.001


class PageReader:
    """A reader's view of the shared page while some process has the store open."""

    def __init__(self, files: FileSystem, path: Path) -> None:
        self._files = files
        self._path = path
        self._page: PageView | None = None
        self._identity: Identity | None = None
        self._is_published = False
        self._until = 0.0

    def page(self) -> PageView | None:
        """The page, if a process has the store open; else ``None``.

        The lock is checked at most once per millisecond, since one call may need many positions.
        Positions of a dead process stay valid for longer. The state is checked at each call.
        """
        if time.monotonic() >= self._until:
            self._is_published = is_published(self._files, self._path)
            self._until = time.monotonic() + TRUSTED_S
            if page_identity(self._path) != self._identity:
                self._page = None  # the owner created another file
        if not self._is_published:
            self._page = None
            return None
        page = self._page
        if page is None:
            page = self._page = self._look()
        return page if page is not None and page.state in BELIEVED else None

    def _look(self) -> PageView | None:
        page = PageView.open(self._files, self._path)
        if page is None or not page.is_whole:
            return None
        self._identity = page_identity(self._path)
        return page


class ReaderDurableEnd:
    """The durable end of the log, determined by a reader; it never decreases.

    :param page: returns the current page, if any
    """

    def __init__(self, files: FileSystem, path: Path, page: Callable[[], PageView | None]) -> None:
        self._files = files
        self._path = path
        self._page = page
        self._known: int | None = None
        self._lock = Mutex()

    def end(self, log_end: Callable[[], int]) -> int | None:
        """The durable end, in bytes from the start of the log; ``None`` if unknown.

        :param log_end: finds the end of the log
        """
        found = self._found(log_end)
        with self._lock:
            if found is not None:
                self._known = max(found, self._known or 0)
            return self._known

    def _found(self, log_end: Callable[[], int]) -> int | None:
        """The durable end from the present sources.

        After a clean stop the whole log is durable; of a replica, only the bytes that its master
        cannot lose. After a crash of lakelog, or during recovery, the checkpoint's
        ``confirm_offset`` is valid, since it moves after syncs only; 0 means unknown. RocketMQ's
        ``confirm_offset`` gives no such guarantee.
        """
        page = self._page()
        if page is not None:
            return page.flushed
        if self._is_stopped():
            end = log_end()
            if read_replica(self._files, self._path) is not None:
                end = min(self._confirmed(), end)
            if self._is_stopped():  # else a new owner may have moved the end meanwhile
                return end
        if not self._ran_lakelog_last():
            return None
        return min(self._confirmed(), log_end()) or None

    def _is_stopped(self) -> bool:
        """Whether the store has no owner and was closed cleanly."""
        return not (self._path / ABORT_FILE).exists() and not is_owned(self._files, self._path)

    def _confirmed(self) -> int:
        try:
            return read_checkpoint(self._files, self._path).confirm_offset
        except OSError:  # an unreadable checkpoint proves nothing
            return 0

    def _ran_lakelog_last(self) -> bool:
        """Whether lakelog was the last owner.

        RocketMQ also locks byte 0 and writes ``abort``, but has no shared page.
        """
        if is_owned(self._files, self._path):
            return is_published(self._files, self._path)
        page = PageView.open(self._files, self._path)
        return page is not None and page.is_of_this_abort(self._path)
