"""The critical section of appends: one thread of all processes at a time.

The order is :meth:`AppendSection.check`, :meth:`~AppendSection.enter`,
:meth:`~AppendSection.begin` with the end offset, write the bytes,
:meth:`~AppendSection.commit`, raise the queue ends, :meth:`~AppendSection.finish`,
:meth:`~AppendSection.leave`.

If a process dies in between, its intent stays in the shared page, and the next process repairs the
log. Uncommitted bytes are zeroed; for committed ones the queue ends are raised. So the log never
has a hole, and each record has both its bytes and its queue offset, or neither.

A process alone keeps the lock between its appends. Otherwise each append releases it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, Protocol

from lakelog.accelerate import SectionLock
from lakelog.errors import PutRefused
from lakelog.processes import shared_page
from lakelog.results import PutStatus
from lakelog.runtime.locks import YieldLock

_IN_A_PUT: Final = "put was called inside of a put; a signal handler cannot append to the log"


class RepairedLog(Protocol):
    """The interface of the log to a repair; both methods are idempotent: it may be interrupted."""

    def zero(self, start: int, end: int) -> None:
        """Write zeros from ``start`` to ``end``; raises ``OSError``."""

    def raise_ends(self, start: int, end: int) -> int:
        """Raise each queue end at least to the end of its last record from ``start`` to ``end``.

        :returns: store time of the last record, in ms since 1970; 0 without a record

        Raises ``OSError`` if the records cannot be read.
        """


class AppendSection:
    """The append section in one process.

    :ivar is_mine: returns whether this thread is in the section
    :ivar local: the lock between the threads of this process
    :ivar keeps: whether this process has the lock between processes
    """

    def __init__(
        self,
        page: shared_page.SharedPage,
        lock: SectionLock,
        log: RepairedLog,
        fail: Callable[[OSError | None], Exception],
        busy_timeout_ms: int,
    ) -> None:
        """Prepare; nothing is locked yet.

        :param fail: fails the store with an error of this process or, given ``None``, of another
            process; returns the exception to raise
        :param lock: the lock between processes
        :param log: repaired after an interrupted append
        :param busy_timeout_ms: limit for a single append elsewhere, after which a put is refused
        """
        self._words = page.words
        self._lock = lock
        self._log = log
        self._fail = fail
        self._busy_seconds = busy_timeout_ms / 1000
        self._pid = os.getpid()
        self.keeps = False
        self.local = YieldLock()
        self.is_mine = self.local.is_mine

    def check(self) -> None:
        """Raise :class:`~lakelog.errors.PutRefused` if this thread is already in the section.

        Call it outside of the ``try`` whose handler calls :meth:`leave`.
        """
        if self.is_mine():
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, _IN_A_PUT)

    def enter(self) -> None:
        """Wait for the section, and repair the log if an append was interrupted.

        Raises :class:`~lakelog.errors.PutRefused` if another append takes too long, and the error
        that ``fail`` returns.
        """
        local, words = self.local, self._words
        try:
            if not local.take(False):
                self._wait(local.acquire)
            if not self.keeps:
                if self._lock.take():
                    self._wait(self._lock.acquire)
                self.keeps = True
                words[shared_page.APPENDER_PID] = self._pid
            if words[shared_page.SEVERAL]:
                words[shared_page.APPENDER_SINCE] = time.monotonic_ns() // 1_000_000
            if words[shared_page.FAILED]:
                raise self._fail(None)
            if words[shared_page.INTENT_END]:
                self._repair()
        except BaseException:  # including one from a signal handler, at any point
            if self.is_mine():
                self.leave()
            raise

    def begin(self, end_offset: int) -> None:
        """Note the intent to write from the end of the log up to ``end_offset``."""
        # INTENT_END is stored last: a repair runs only if it is not 0, and then needs the start.
        words = self._words
        words[shared_page.INTENT_START] = words[shared_page.APPENDED]
        words[shared_page.INTENT_END] = end_offset

    def commit(self, end_offset: int, timestamp_ms: int) -> None:
        """Move the end of the log over the written bytes.

        A reader that loads the time before the end gets the time of a record before that end.
        """
        # The end is the commit point. If the process dies before it, the bytes are zeroed; if it
        # dies after it, only the queue ends are missing.
        self._words[shared_page.APPENDED] = end_offset
        self._words[shared_page.LAST_TIMESTAMP] = timestamp_ms

    def finish(self) -> None:
        """Clear the intent: the queue ends cover the committed records."""
        self._words[shared_page.INTENT_END] = 0

    def leave(self) -> None:
        """Release the section, in any state; also after an interrupted release.

        A lock of another process is not affected.
        """
        if self._words[shared_page.SEVERAL] or not self.keeps:
            self.keeps = False
            self._lock.release()
        self.local.release()

    def let_go(self) -> None:
        """Release a kept lock, from another thread, once several processes append."""
        with self.local:
            if self.keeps:
                self.keeps = False
                self._lock.release()

    def _repair(self) -> None:
        words = self._words
        start, end, appended = (
            words[shared_page.INTENT_START],
            words[shared_page.INTENT_END],
            words[shared_page.APPENDED],
        )
        try:
            if appended < end:
                self._log.zero(appended, end)
            else:
                timestamp_ms = self._log.raise_ends(start, end)
                words[shared_page.LAST_TIMESTAMP] = max(
                    timestamp_ms, words[shared_page.LAST_TIMESTAMP]
                )
        except OSError as error:
            raise self._fail(error) from error
        # Last: if this process dies in the repair, the next one repeats it.
        words[shared_page.INTENT_END] = 0

    def _wait(self, acquire: Callable[[float], bool]) -> None:
        """Wait for the lock; give up only if no append completes during the timeout."""
        words = self._words
        before = words[shared_page.APPENDED]
        while not acquire(self._busy_seconds):
            now = words[shared_page.APPENDED]
            if now == before:
                raise PutRefused(
                    PutStatus.OS_PAGE_CACHE_BUSY,
                    f"an append of process {words[shared_page.APPENDER_PID]} has taken more than "
                    f"{self._busy_seconds:g} s (os_page_cache_busy_timeout_ms)",
                )
            before = now
