"""``timed``: the log is synced by the clock; no put waits (RocketMQ's ``FlushRealTimeService``).

Every ``flush_interval_ms`` the log is flushed if ``flush_least_pages`` pages are dirty; every
``flush_thorough_interval_ms``, any dirty byte is enough. Pages are counted by their boundaries, as
in RocketMQ, but along the whole log: RocketMQ also flushes a full segment with fewer dirty pages.
"""

from __future__ import annotations

import logging
import time
from threading import Thread
from typing import Final

from attrs import field, frozen, validators

from lakelog.errors import NotOpened, StoreFailed
from lakelog.hooks import Flushable, Outcome
from lakelog.results import PutStatus
from lakelog.runtime.threads import Shortage, started
from lakelog_flush.waiter import Wakeup

PAGE_BYTES: Final = 4096
FINAL_ROUNDS: Final = 10
SLOW_SECONDS: Final = 0.5
_PUT_OK: Final = PutStatus.PUT_OK
_log = logging.getLogger("lakelog")


@frozen
class TimedSettings:
    """Settings of ``timed``; the defaults are RocketMQ's.

    :ivar flush_interval_ms: interval at which the log is checked (``flushIntervalCommitLog``)
    :ivar flush_least_pages: number of dirty pages of 4 KiB that a flush requires
        (``flushCommitLogLeastPages``); 0 is any byte
    :ivar flush_thorough_interval_ms: interval at which any dirty byte is enough
        (``flushCommitLogThoroughInterval``)
    :ivar fixed_rate: whether only the clock triggers flushes (``flushCommitLogTimed``); otherwise
        appends and commits do so too, once there are enough dirty pages
    """

    flush_interval_ms: int = field(default=500, validator=validators.ge(1))
    flush_least_pages: int = field(default=4, validator=validators.ge(0))
    flush_thorough_interval_ms: int = field(default=10_000, validator=validators.ge(0))
    fixed_rate: bool = True


class Timed:
    """One thread checks the log at an interval."""

    answers_at_once = True

    def __init__(self, settings: TimedSettings) -> None:
        self._settings = settings
        self._interval_seconds = settings.flush_interval_ms / 1000
        self._wakeup = Wakeup()
        self._closing = False
        self._log: Flushable | None = None
        self._last_thorough = float("-inf")
        self._thread: Thread | None = None
        self._shortage = Shortage("syncing is delayed")

    def start(self, log: Flushable) -> None:
        """Start the thread."""
        self._log = log
        if not self._settings.fixed_rate:
            self.answers_at_once = False
            self.submit = self._submit_and_wake  # type: ignore[method-assign]  # saves one check per put
        thread = Thread(target=self._run, args=(log,), name="lakelog-timed", daemon=True)
        self._thread = started(thread)

    def submit(self, end_offset: int, wait: bool) -> Outcome:  # noqa: ARG002  # declared by FlushStrategy
        """Return ``PUT_OK`` at once."""
        return _PUT_OK

    def _submit_and_wake(self, end_offset: int, wait: bool) -> Outcome:  # noqa: ARG002  # declared by FlushStrategy
        log = self._log
        if log is not None and self._enough(end_offset, log.flushed):
            self._wakeup.notify()
        return _PUT_OK

    def wake(self) -> None:
        """Called after a commit of a staged writer."""
        if not self._settings.fixed_rate:
            self._wakeup.notify()

    def _run(self, log: Flushable) -> None:
        """Check the log at the interval, or when notified, until :meth:`close`."""
        try:
            while not self._closing:
                self._wakeup.sleep(self._interval_seconds, lambda: self._closing)
                if not self._closing and self._is_due(log):
                    self._flush_soon(log)
        except StoreFailed as error:
            _log.error("flushing stops: %s", error)
        except Exception:  # noqa: BLE001  # log why the thread ends
            _log.exception("flushing stops")

    def _flush_soon(self, log: Flushable) -> None:
        try:
            self._flush(log)
            self._shortage.end()
        except NotOpened as error:
            self._shortage.begin(error)

    def _is_due(self, log: Flushable) -> bool:
        now = time.monotonic()
        if now - self._last_thorough >= self._settings.flush_thorough_interval_ms / 1000:
            self._last_thorough = now
            return log.flushed < log.appended
        return self._enough(log.appended, log.flushed)

    def _enough(self, end: int, flushed: int) -> bool:
        least = self._settings.flush_least_pages
        if not least:
            return end > flushed
        return end // PAGE_BYTES - flushed // PAGE_BYTES >= least

    def _flush(self, log: Flushable) -> None:
        begun = time.monotonic()
        log.sync()
        took = time.monotonic() - begun
        if took > SLOW_SECONDS:
            _log.warning("a flush took %.0f ms", took * 1000)

    def close(self) -> None:
        """Stop the thread, then flush the rest; raises the last sync's error."""
        self._closing = True
        self._wakeup.notify()
        if self._thread is not None:
            self._thread.join()
        if self._log is not None:
            self._finish(self._log)

    def _finish(self, log: Flushable) -> None:
        for _ in range(FINAL_ROUNDS):
            if log.flushed >= log.appended:
                return
            self._flush(log)
