"""Syncs once per so many appends, in the thread of the waiting put that comes to it."""

from __future__ import annotations

import threading

from lakelog.interfaces import Flushable, Outcome
from lakelog.status import PutStatus


class EveryN:
    """A :class:`~lakelog.interfaces.FlushStrategy`.

    :param appends: how many puts or batches share one sync
    """

    def __init__(self, appends: int) -> None:
        self._appends = appends
        self._unsynced = 0
        self._lock = threading.Lock()

    def start(self, log: Flushable) -> None:
        """Keep the log."""
        self._log = log

    def submit(self, end_offset: int, wait: bool) -> Outcome:  # noqa: ARG002  # appends are counted
        """Sync if it is time; a put that must not wait leaves that to the next one."""
        if self._is_due(wait):
            self._log.sync()
        return PutStatus.PUT_OK

    def close(self) -> None:
        """Sync what is left."""
        if self._log.flushed < self._log.appended:
            self._log.sync()

    def _is_due(self, wait: bool) -> bool:
        with self._lock:
            self._unsynced += 1
            due = wait and self._unsynced >= self._appends
            if due:
                self._unsynced = 0
            return due
