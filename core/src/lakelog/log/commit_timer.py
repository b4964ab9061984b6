"""Commits the buffers of staged writers to the page cache at a fixed interval.

It wraps the configured flush strategy. Source: ``CommitRealTimeService`` of RocketMQ. Every
``interval_ms`` it commits if enough pages are dirty or the last commit is long ago. Each commit
wakes the strategy, if the strategy is :class:`~lakelog.interfaces.Wakeable`.
"""

from __future__ import annotations

import logging
import time
from threading import Event, Thread
from typing import Final

from lakelog.runtime.threads import started
from lakelog_interfaces.errors import StoreFailed
from lakelog_interfaces.strategies import CommitRules, Flushable, FlushStrategy, Outcome, Wakeable

PAGE_BYTES: Final = 4096
_SLOW_SECONDS: Final = 0.5
_log = logging.getLogger("lakelog")


class Committing:
    """A flush strategy with periodic commits."""

    def __init__(self, inner: FlushStrategy, rules: CommitRules) -> None:
        self.waits_for_disk: bool = getattr(inner, "waits_for_disk", False)
        if (submit_later := getattr(inner, "submit_later", None)) is not None:
            self.submit_later = submit_later
        self._inner = inner
        self._wake = inner.wake if isinstance(inner, Wakeable) else _nobody
        self._rules = rules
        self._over = Event()
        self._thread: Thread | None = None

    def start(self, log: Flushable) -> None:
        """Start the strategy, then the timer.

        Raises the strategy's error, and :class:`~lakelog.errors.ThreadNotStarted`.
        """
        self._inner.start(log)
        self._thread = started(
            Thread(target=self._run, args=(log,), name="lakelog-commit-staged", daemon=True)
        )

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Submit to the strategy, which may replace its ``submit`` in ``start``."""
        return self._inner.submit(end_offset, wait)

    def _run(self, log: Flushable) -> None:
        committed, last = log.flushed, time.monotonic()
        while not self._over.wait(self._rules.interval_ms / 1000):
            begun = time.monotonic()
            if not is_due(self._rules, log.appended, committed, begun - last):
                continue
            try:
                committed = log.commit()
            except StoreFailed:
                self._wake()  # its next sync raises the error, and fails its waiters
                return
            last = time.monotonic()
            if last - begun > _SLOW_SECONDS:
                _log.warning("a commit to the page cache took %.0f ms", (last - begun) * 1000)
            self._wake()

    def close(self) -> None:
        """Stop the timer; the strategy's last sync commits the rest."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._inner.close()


def is_due(rules: CommitRules, appended: int, committed: int, idle_seconds: float) -> bool:
    """Whether the bytes between ``committed`` and ``appended`` are to be committed now."""
    pages = appended // PAGE_BYTES - committed // PAGE_BYTES
    if pages >= max(rules.least_pages, 1):
        return True
    return appended > committed and (
        rules.least_pages == 0 or idle_seconds * 1000 >= rules.thorough_interval_ms
    )


def _nobody() -> None:
    """Do nothing: the strategy is not woken."""
