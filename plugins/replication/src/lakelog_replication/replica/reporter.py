"""Writes the status of a replica and its master, for ``lakelog replication status`` and ``top``.

The protocol has no field for the end of the master's log. It follows from a heartbeat, which a
master sends only if there are no other bytes to send. The master's port for clients, if known, also
reports it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import Final

import attrs

from lakelog.interfaces import Context
from lakelog.runtime.threads import started
from lakelog_replication.address import Address
from lakelog_replication.remoting import BrokerRefused, runtime_info
from lakelog_replication.replica.settings import SlaveSettings
from lakelog_replication.status import ReplicaStatus
from lakelog_replication.wire import HaFrame

_LOG: Final = logging.getLogger("lakelog")
_INTERVAL_S: Final = 1.0


@attrs.define
class MasterProgress:
    """The latest state of the connection to the master.

    :ivar is_connected: whether there is a connection
    :ivar end: end offset of the master's log, if the last frame was a heartbeat; otherwise -1
    :ivar received_ms: time of the last frames, in ms since 1970; 0 before the first
    :ivar message: a text that describes the state of the replica
    """

    is_connected: bool = False
    end: int = -1
    received_ms: int = 0
    message: str = ""

    def note_frames(self, frames: Sequence[HaFrame]) -> None:
        """Note frames that were received together; ``frames`` is not empty."""
        last = frames[-1]
        self.end = -1 if len(last.body) else last.offset
        self.received_ms = time.time_ns() // 1_000_000


class ReplicaReporter:
    """Writes the status in a thread, about once a second while something changes."""

    def __init__(self, settings: SlaveSettings, context: Context, progress: MasterProgress) -> None:
        """Start the thread; raises :class:`~lakelog.errors.ThreadNotStarted`."""
        self._source = settings.master
        self._broker = Address.parse(settings.broker) if settings.broker else None
        self._context = context
        self._progress = progress
        self._former: ReplicaStatus | None = None
        self._why = ""
        self._over = Event()
        thread = Thread(target=self._run, name="lakelog-replica-status", daemon=True)
        self._thread = started(thread)

    def close(self) -> None:
        """Write the last status, and stop."""
        self._over.set()
        self._thread.join()
        self._write(self._progress.end)

    def _run(self) -> None:
        while True:
            self._write(self._end())
            if self._over.wait(_INTERVAL_S):
                return

    def _end(self) -> int:
        if self._broker is not None:
            with suppress(BrokerRefused):
                return runtime_info(self._broker).end
        return self._progress.end

    def _write(self, end: int) -> None:
        progress, context = self._progress, self._context
        status = ReplicaStatus(
            pid=os.getpid(),
            source=self._source,
            time_ms=0,
            heard_ms=progress.received_ms,
            is_connected=progress.is_connected,
            master_end=end,
            says=progress.message,
        )
        if status == self._former:
            return
        try:
            now_ms = time.time_ns() // 1_000_000
            attrs.evolve(status, time_ms=now_ms).write(context.files, context.path)
            self._former, self._why = status, ""
        except OSError as error:  # tried again after a second: a full disk may have room by then
            if str(error) != self._why:
                self._why = str(error)
                _LOG.warning(
                    "%s: the replication status cannot be written: %s", context.path, error
                )
