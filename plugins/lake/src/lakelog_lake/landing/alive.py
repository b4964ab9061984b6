"""Tells who started this process, by systemd's notifications, that it runs and gets on.

``WATCHDOG=1`` is told wherever something was done: a task, a commit, a look that found nothing. A
pass of minutes consists of tasks of seconds; who hears nothing for longer takes it that this hangs.
"""

from __future__ import annotations

import os
import time
from threading import Event
from typing import Final

import attrs

from lakelog_daemon.notify import READY, STATUS, STOPPING, WATCHDOG, Notifier

_BEATS: Final = 3
"""How often to tell in the time in which it has to be told once."""


@attrs.define
class Alive:
    """Whoever gets on calls it; any thread may."""

    _manager: Notifier
    _told: float = float("-inf")

    @classmethod
    def of_this_process(cls) -> Alive:
        """Tells the one that the environment names, if any."""
        return cls(Notifier.of(os.environ))

    def __call__(self, *_: object) -> None:
        """Something was done."""
        seconds, now = self._manager.watchdog_seconds, time.monotonic()
        if seconds is not None and now - self._told >= seconds / _BEATS:
            self._told = now
            self._manager.tell(WATCHDOG)

    def ready(self) -> None:
        """It runs: from now on it is missed."""
        self._manager.tell(READY)
        self()

    def say(self, what: str) -> None:
        """What there is to show of it."""
        self._manager.tell(STATUS + what)

    def stopping(self) -> None:
        """It ends as soon as it can."""
        self._manager.tell(STOPPING)

    def sleep(self, stop: Event, seconds: float) -> None:
        """Wait for ``stop``, but no longer than that, and be well meanwhile."""
        end = time.monotonic() + seconds
        longest = (self._manager.watchdog_seconds or seconds) / _BEATS
        while not stop.is_set() and (left := end - time.monotonic()) > 0:
            self()
            stop.wait(min(left, max(longest, 0.01)))
