"""What a reader can believe of a store's positions while it is open somewhere, or after that."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final

from lakelog.files.filesystem import FileSystem
from lakelog.files.pages.mapped_file import Identity
from lakelog.files.pages.page_view import BELIEVED, PageView, page_identity
from lakelog.files.shared.ownership import is_owned, is_published
from lakelog.files.state.checkpoint import read_checkpoint
from lakelog.format.layout import ABORT_FILE

TRUSTED_S: Final = 0.001


class Belief:
    """One reader's view of the page of those that have the store open."""

    def __init__(self, files: FileSystem, path: Path) -> None:
        self._files = files
        self._path = path
        self._page: PageView | None = None
        self._identity: Identity | None = None
        self._is_published = False
        self._until = 0.0

    def page(self) -> PageView | None:
        """The page of processes that have the store open; ``None`` where none has.

        The lock is looked at again after a millisecond, within which one answer may ask for many
        positions; those of processes that died stay right for longer. The state is looked at each
        time.
        """
        if time.monotonic() >= self._until:
            self._is_published = is_published(self._files, self._path)
            self._until = time.monotonic() + TRUSTED_S
            if page_identity(self._path) != self._identity:
                self._page = None  # the owner made another one
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


class ReaderFlushed:
    """Up to where a reader knows the log to be durable; what was durable once stays so.

    :param page: gives the page to go by now, if any
    """

    def __init__(self, files: FileSystem, path: Path, page: Callable[[], PageView | None]) -> None:
        self._files = files
        self._path = path
        self._page = page
        self._known: int | None = None
        self._lock = Lock()

    def end(self, log_end: Callable[[], int]) -> int | None:
        """End of what is durable; ``None`` if nobody says. It never falls."""
        found = self._found(log_end)
        with self._lock:
            if found is not None:
                self._known = max(found, self._known or 0)
            return self._known

    def _found(self, log_end: Callable[[], int]) -> int | None:
        """What can be told now.

        A clean stop leaves everything durable. After a crash of lakelog, or while it recovers,
        the checkpoint's ``confirm_offset`` moved after syncs only; RocketMQ's is no such promise.
        One that never moved says nothing.
        """
        page = self._page()
        if page is not None:
            return page.flushed
        if self._is_stopped():
            end = log_end()
            if self._is_stopped():  # an owner that came meanwhile may have moved the end
                return end
        if not self._ran_lakelog_last():
            return None
        return min(self._confirmed(), log_end()) or None

    def _is_stopped(self) -> bool:
        """Whether nobody owns the store, and its last owner closed it."""
        return not (self._path / ABORT_FILE).exists() and not is_owned(self._files, self._path)

    def _confirmed(self) -> int:
        try:
            return read_checkpoint(self._files, self._path).confirm_offset
        except OSError:  # what cannot be read vouches for nothing
            return 0

    def _ran_lakelog_last(self) -> bool:
        """RocketMQ locks byte 0 only, and leaves a process id in ``abort``, but no page."""
        if is_owned(self._files, self._path):
            return is_published(self._files, self._path)
        page = PageView.open(self._files, self._path)
        return page is not None and page.is_of_this_abort(self._path)
