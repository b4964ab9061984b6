"""The flush strategies ``none`` (never sync) and ``inline`` (every put syncs)."""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Final

from lakelog.runtime.threads import started
from lakelog_format.status import PutStatus
from lakelog_interfaces.errors import StoreFailed
from lakelog_interfaces.strategies import Flushable, Outcome

SOON_SECONDS: Final = 0.01
"""How long puts that do not wait are gathered for one sync."""

_PUT_OK: Final = PutStatus.PUT_OK
"""Access to an enum member costs a tenth of a microsecond each time in Python 3.11."""


class NoFlush:
    """The operating system decides when to sync; messages survive the process, not a power cut.

    With a staged writer, each put commits its bytes to the page cache to keep that guarantee.
    """

    answers_at_once = True

    def __init__(self) -> None:
        self._log: Flushable | None = None
        self._staged: Flushable | None = None

    def start(self, log: Flushable) -> None:
        """Keep the log for the sync at close."""
        self._log = log
        self._staged = log if log.staged else None
        self.answers_at_once = not log.staged

    def submit(self, end_offset: int, wait: bool) -> Outcome:  # noqa: ARG002  # not needed here
        """Commit staged bytes to the page cache; there is nothing to wait for."""
        if self._staged is not None:
            self._staged.commit()
        return _PUT_OK

    def close(self) -> None:
        """Sync: a clean close makes everything durable."""
        if self._log is not None:
            self._log.sync()


class InlineFlush:
    """Each put that waits syncs, unless another sync has covered it."""

    waits_for_disk = True

    def __init__(self) -> None:
        self._log: Flushable | None = None
        self._asked = Event()
        self._closing = False
        self._starting = Lock()
        self._thread: Thread | None = None

    def start(self, log: Flushable) -> None:
        """Keep the log to sync."""
        self._log = log

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Sync now; for a put that does not wait, a thread syncs soon.

        Raises :class:`~lakelog.errors.StoreFailed`, and
        :class:`~lakelog.errors.ThreadNotStarted`.
        """
        log = self._log
        if log is None:
            return _PUT_OK
        if wait and log.flushed < end_offset:
            return _PUT_OK if log.sync() >= end_offset else PutStatus.FLUSH_DISK_TIMEOUT
        if not wait:
            if log.staged:
                log.commit()
            if self._thread is None:
                self._start_thread(log)
            self._asked.set()
        return _PUT_OK

    def _start_thread(self, log: Flushable) -> None:
        """Start the thread once; a signal handler of this thread may put meanwhile."""
        if self._starting.acquire(blocking=False):
            try:
                if self._thread is None:
                    thread = Thread(
                        target=self._run, args=(log,), name="lakelog-inline-flush", daemon=True
                    )
                    self._thread = started(thread)
            finally:
                self._starting.release()

    def _run(self, log: Flushable) -> None:
        """Sync for puts that do not wait, many at a time."""
        while self._asked.wait():
            self._asked.clear()
            if self._closing:  # after the clear, which may have cleared the event set by close()
                return
            with suppress(StoreFailed):  # the next put raises it
                log.sync()
            time.sleep(SOON_SECONDS)

    def close(self) -> None:
        """Stop the thread, and sync the puts that did not wait."""
        self._closing = True
        self._asked.set()
        if self._thread is not None:
            self._thread.join()
        if self._log is not None:
            self._log.sync()
