"""The thread that delivers delayed messages, in the process with the services.

It begins with the first message that waits, or has waited, and ends with the services of the
process. Progress is saved every few seconds, and only behind a durable log. So the next process
continues there, and delivers again at most what a killed one has delivered since.
"""

from __future__ import annotations

import logging
from typing import Final

from lakelog.errors import StoreClosed, StoreFailed
from lakelog.format.encoder import system_ms
from lakelog.hooks import Clock
from lakelog.lazy import cached_property
from lakelog.runtime.locks import LockFreeEvent, Mutex
from lakelog.runtime.threads import never_wait
from lakelog_queues.delays.delivering import (
    LONGEST_WAIT_MS,
    RETRY_MS,
    DelayAccess,
    Delays,
    steady_ms,
)
from lakelog_queues.delays.timers import Timers

_LOG: Final = logging.getLogger("lakelog")
SAVE_INTERVAL_MS: Final = 5_000
"""RocketMQ's broker saves every 10 s, and its timers every second."""
_ROLL_INTERVAL_MS: Final = 60_000


class DelayService:
    """Delivers the messages of levels and timers.

    :ivar access: the store
    :ivar lock: held while it delivers
    :ivar has_ended: whether :meth:`end` was called
    """

    def __init__(self, access: DelayAccess, clock: Clock | None = None) -> None:
        """Prepare; read nothing yet.

        :param clock: replaces the system's clocks, for tests
        """
        self.access = access
        self.lock = Mutex()
        self.has_ended = False
        self._times = (
            (system_ms, steady_ms) if clock is None else (clock.now_ms, clock.monotonic_ms)
        )
        self._wait = (clock or Clock()).wait
        self._wake = LockFreeEvent()
        self._save_at_ms = self._roll_at_ms = 0
        self._failure = ""

    @cached_property
    def levels(self) -> Delays:
        """The messages with a delay level.

        Raises :class:`~lakelog.errors.CorruptConfig` if the saved progress cannot be read.
        """
        return Delays(self.access, *self._times)

    @cached_property
    def timers(self) -> Timers:
        """The timer messages; raises the same."""
        return Timers(self.access, *self._times)

    def wake(self) -> None:
        """Look for new messages."""
        self._wake.set()

    def end(self) -> None:
        """Let :meth:`run` return soon, and any later call of it at once."""
        self.has_ended = True
        self._wake.set()

    def save_last(self) -> None:
        """As :meth:`save`, at the end; an error is logged: the saved progress is older then."""
        try:
            self.save()
        except Exception as error:  # noqa: BLE001  # of any kind: the store has to be closed
            self._report(error)

    def save(self) -> None:
        """Save the present progress.

        Raises ``OSError`` and :class:`~lakelog.errors.StoreError`; a later call saves it then.
        """
        with self.lock:
            writes = [write for each in (self.levels, self.timers) if (write := each.progress())]
            # No saved progress may be behind messages that a crash can lose.
            if writes and self.access.sync():
                for write in writes:
                    write()

    def deliver_due(self) -> int:
        """Deliver some of what is due; returns the time until the next call, in ms."""
        now_ms, steady = self._times
        with self.lock:
            due_ms = min(self.levels.deliver_due(), self.timers.deliver_due())
            if steady() >= self._roll_at_ms:
                self.timers.roll()
                self._roll_at_ms = steady() + _ROLL_INTERVAL_MS
        if steady() >= self._save_at_ms:
            self.save()
            self._save_at_ms = steady() + SAVE_INTERVAL_MS
        return min(due_ms - now_ms(), LONGEST_WAIT_MS)

    def run(self) -> None:
        """Deliver until :meth:`end`, or until the store has failed."""
        never_wait()
        while not self.has_ended:
            self._wake.clear()
            try:
                wait_ms = self.deliver_due()
                self._failure = ""
            except (StoreClosed, StoreFailed):
                return
            except Exception as error:  # noqa: BLE001  # of any kind: it is tried again
                self._report(error)
                wait_ms = RETRY_MS
            if wait_ms > 0 and not self.has_ended:
                self._wait(self._wake, wait_ms)

    def _report(self, error: Exception) -> None:
        if str(error) != self._failure:
            self._failure = str(error)
            _LOG.error("%s: delayed messages wait: %s", self.access.path, error, exc_info=error)
