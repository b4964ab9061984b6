"""The flush strategies ``none`` and ``inline``: never, and always."""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any, Final

from lakelog.errors import StoreFailed
from lakelog.interfaces import Context, Flushable, Outcome
from lakelog.runtime.threads import started
from lakelog.status import PutStatus

SOON_SECONDS: Final = 0.01
"""How long puts that do not wait gather for one sync."""

_PUT_OK: Final = PutStatus.PUT_OK
"""Members of an enumeration cost a tenth of a microsecond each time in Python 3.11."""


class NoFlush:
    """The operating system decides; what was put survives the process, not the machine.

    With a staged writer each put hands its bytes to the page cache, to keep that promise.
    """

    answers_at_once = True

    def __init__(self) -> None:
        self._log: Flushable | None = None
        self._staged: Flushable | None = None

    def start(self, log: Flushable) -> None:
        """Remember the log for the end."""
        self._log = log
        self._staged = log if log.staged else None

    def submit(self, end_offset: int, wait: bool) -> Outcome:  # noqa: ARG002  # the seam gives both
        """Nothing to wait for; what is staged goes to the page cache."""
        if self._staged is not None:
            self._staged.commit()
        return _PUT_OK

    def close(self) -> None:
        """A clean close leaves everything durable all the same."""
        if self._log is not None:
            self._log.sync()


class InlineFlush:
    """Each put that waits syncs for itself, unless another one's sync has covered it."""

    waits_for_disk = True

    def __init__(self) -> None:
        self._log: Flushable | None = None
        self._asked = Event()
        self._closing = False
        self._starting = Lock()
        self._thread: Thread | None = None

    def start(self, log: Flushable) -> None:
        """Remember what to sync."""
        self._log = log

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Sync now; for a put that does not wait a thread does it soon."""
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
        """Unless another thread does, or this one does and a signal's handler puts."""
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
            if self._closing:  # behind the clear, which may be of what the close has set
                return
            with suppress(StoreFailed):  # the next put is told
                log.sync()
            time.sleep(SOON_SECONDS)

    def close(self) -> None:
        """Sync what did not wait."""
        self._closing = True
        self._asked.set()
        if self._thread is not None:
            self._thread.join()
        if self._log is not None:
            self._log.sync()


def make_none(_settings: Any, _context: Context) -> NoFlush:
    """Build ``none``."""
    return NoFlush()


def make_inline(_settings: Any, _context: Context) -> InlineFlush:
    """Build ``inline``."""
    return InlineFlush()
