"""The section in which records are appended: one thread of all processes at a time.

:meth:`AppendSection.check` and :meth:`~AppendSection.enter`; :meth:`~AppendSection.begin` with the
end of what is written next; the bytes; :meth:`~AppendSection.commit`; the queue ends;
:meth:`~AppendSection.finish` and :meth:`~AppendSection.leave`. A process that dies in between
leaves its intent standing, and whoever enters next repairs: what was not committed is zeroed, of
what was the queue ends are raised. So there is never a hole, and a record is in the log with its
place in a queue, or not at all.

A process alone keeps the lock on the byte from one append to the next; where the page says that
there are several, it lets go behind each. ``tests/protocol`` walks this with deaths at every step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, Protocol

from lakelog.errors import PutRefused
from lakelog.files.pages.shared_page import (
    APPENDED,
    APPENDER_PID,
    APPENDER_SINCE,
    FAILED,
    INTENT_END,
    INTENT_START,
    LAST_TIMESTAMP,
    SEVERAL,
    SharedPage,
)
from lakelog.files.shared.append_lock import SectionLock
from lakelog.runtime.yieldlock import YieldLock
from lakelog.status import PutStatus

_IN_A_PUT: Final = "a put inside of a put: the handler of a signal cannot append to the log"


class RepairedLog(Protocol):
    """The log as a repair sees it; both may be done again, as often as a repair is cut short."""

    def zero(self, start: int, end: int) -> None:
        """Write zeros from ``start`` to ``end``; raises ``OSError``."""

    def raise_ends(self, start: int, end: int) -> int:
        """Let each queue end behind its last record between ``start`` and ``end``, at least.

        :returns: store time of the last one, in ms since 1970; 0 where there is none

        Raises ``OSError`` where the records cannot be read.
        """


class AppendSection:
    """One process's way in.

    :ivar is_mine: whether this thread is inside
    :ivar local: keeps the threads of this process apart
    :ivar keeps: whether this process has the byte locked
    """

    def __init__(
        self,
        page: SharedPage,
        lock: SectionLock,
        log: RepairedLog,
        fail: Callable[[OSError | None], Exception],
        busy_timeout_ms: int,
    ) -> None:
        """Prepare; nothing is locked yet.

        :param fail: makes the store fail by an error of this process or, with ``None``, by one in
            another; the error to raise
        :param busy_timeout_ms: a put is refused once a single other append has taken longer
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
        """Raise :class:`~lakelog.errors.PutRefused` where this thread is inside.

        To be called before what calls :meth:`enter` and, thrown out of it, :meth:`leave`.
        """
        if self.is_mine():
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, _IN_A_PUT)

    def enter(self) -> None:
        """Wait for the section; behind this, the log is whole.

        Raises :class:`~lakelog.errors.PutRefused` where somebody takes too long in it, and what
        ``fail`` gives.
        """
        local, words = self.local, self._words
        try:
            if not local.take(False):
                self._wait(local.acquire)
            if not self.keeps:
                if self._lock.take():
                    self._wait(self._lock.acquire)
                self.keeps = True
                words[APPENDER_PID] = self._pid
            if words[SEVERAL]:
                words[APPENDER_SINCE] = time.monotonic_ns() // 1_000_000
            if words[FAILED]:
                raise self._fail(None)
            if words[INTENT_END]:
                self._repair()
        except BaseException:  # of a signal's handler, too, in the middle of anything
            if self.is_mine():
                self.leave()
            raise

    def begin(self, end_offset: int) -> None:
        """Note that bytes from the end of the log up to ``end_offset`` are written next."""
        words = self._words
        words[INTENT_START] = words[APPENDED]
        words[INTENT_END] = end_offset

    def commit(self, end_offset: int, timestamp_ms: int) -> None:
        """What was written is in the log; a time that is read first is of a record in it."""
        self._words[APPENDED] = end_offset
        self._words[LAST_TIMESTAMP] = timestamp_ms

    def finish(self) -> None:
        """The queues end behind what was committed."""
        self._words[INTENT_END] = 0

    def leave(self) -> None:
        """Let the next one in; in whatever state, and once too often is no error.

        A byte that another process has locked stays locked.
        """
        if self._words[SEVERAL] or not self.keeps:
            self.keeps = False
            self._lock.release()
        self.local.release()

    def let_go(self) -> None:
        """Give a lock back that is kept; for another thread, once several processes are there."""
        with self.local:
            if self.keeps:
                self.keeps = False
                self._lock.release()

    def _repair(self) -> None:
        words = self._words
        start, end, appended = words[INTENT_START], words[INTENT_END], words[APPENDED]
        try:
            if appended < end:
                self._log.zero(appended, end)
            else:
                timestamp_ms = self._log.raise_ends(start, end)
                words[LAST_TIMESTAMP] = max(timestamp_ms, words[LAST_TIMESTAMP])
        except OSError as error:
            raise self._fail(error) from error
        words[INTENT_END] = 0

    def _wait(self, acquire: Callable[[float], bool]) -> None:
        """Wait on, unless it is one append that takes all the time."""
        words = self._words
        before = words[APPENDED]
        while not acquire(self._busy_seconds):
            now = words[APPENDED]
            if now == before:
                raise PutRefused(
                    PutStatus.OS_PAGE_CACHE_BUSY,
                    f"an append of process {words[APPENDER_PID]} has taken more than "
                    f"{self._busy_seconds:g} s (os_page_cache_busy_timeout_ms)",
                )
            before = now
