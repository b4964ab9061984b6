"""Sends systemd's watchdog notifications while landing makes progress.

``WATCHDOG=1`` is sent after each task, each commit and each check for new messages. A pass of
minutes consists of tasks of seconds. So a service manager can treat a process without notifications
for longer as hung.
"""

from __future__ import annotations

import os
import time
from threading import Event
from typing import Final

import attrs

from lakelog_daemon.notify import READY, STATUS, STOPPING, WATCHDOG, Notifier

_BEATS: Final = 3
"""Notifications per watchdog interval."""


@attrs.define
class WatchdogNotifier:
    """Notifies the service manager; to be called after each step of progress, from any thread."""

    _manager: Notifier
    _watchdog_sent_s: float = float("-inf")

    @classmethod
    def of_this_process(cls) -> WatchdogNotifier:
        """Make the notifier for the service manager of the environment, if any."""
        return cls(Notifier.of(os.environ))

    def __call__(self, *_: object) -> None:
        """Report progress; sends at most three notifications per watchdog interval."""
        seconds, now = self._manager.watchdog_seconds, time.monotonic()
        if seconds is not None and now - self._watchdog_sent_s >= seconds / _BEATS:
            self._watchdog_sent_s = now
            self._manager.send(WATCHDOG)

    def ready(self) -> None:
        """Report that startup is complete; the watchdog counts from now on."""
        self._manager.send(READY)
        self()

    def send_status(self, what: str) -> None:
        """Send a status line for users."""
        self._manager.send(STATUS + what)

    def stopping(self) -> None:
        """Report that the process is stopping."""
        self._manager.send(STOPPING)

    def sleep(self, stop: Event, seconds: float) -> None:
        """Wait for ``stop`` for at most ``seconds``, and notify the watchdog meanwhile."""
        end = time.monotonic() + seconds
        longest = (self._manager.watchdog_seconds or seconds) / _BEATS
        while not stop.is_set() and (left := end - time.monotonic()) > 0:
            self()
            stop.wait(min(left, max(longest, 0.01)))
