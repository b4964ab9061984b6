"""``rocketmq-ha`` as master: a :class:`~lakelog.interfaces.LeadingReplicator`."""

from __future__ import annotations

import os
from threading import RLock
from typing import Final
from weakref import WeakSet

from lakelog.interfaces import Context, Outcome, ReplicatedLog
from lakelog.status import PutStatus
from lakelog_replication.master.server import HaServer
from lakelog_replication.master.waits import CopyWaits
from lakelog_replication.settings import RocketmqHaSettings

_PUT_OK: Final = PutStatus.PUT_OK


class HaMaster:
    """Serves slaves in the process that runs the services; makes puts of all processes wait.

    :ivar answers_at_once: whether no put waits for copies; the log then need not pass puts to
        :meth:`submit`, as the sending thread watches the log itself
    """

    def __init__(self, settings: RocketmqHaSettings, context: Context) -> None:
        self.answers_at_once = settings.in_sync_replicas == 1
        self._settings = settings
        self._context = context
        self._waits = CopyWaits(settings)
        self._server: HaServer | None = None
        self._log: ReplicatedLog | None = None
        self._lock = RLock()
        _ALL.add(self)

    @property
    def port(self) -> int | None:
        """The bound port for slaves; ``None`` if another process leads."""
        server = self._server
        return None if server is None else server.port

    def start(self, log: ReplicatedLog) -> None:
        """Serve the slaves if this process leads, and begin to let puts wait.

        Raises :class:`~lakelog.errors.ThreadNotStarted`.
        """
        with self._lock:
            self._log = log
            if self._settings.in_sync_replicas > 1:
                self._waits.start(log)
            if self._server is not None:
                self._begin(self._server, log)

    def lead(self) -> None:
        """Bind the port; serve the slaves once :meth:`start` was called.

        Raises :class:`~lakelog.errors.StoreError` if the port cannot be bound.
        """
        with self._lock:
            if self._server is not None:
                return
            server = HaServer(self._settings, self._context, self._copied, self._waits.has_waits)
            try:
                if self._log is None:
                    server.bind()
                else:
                    self._begin(server, self._log)
            except BaseException:  # Ctrl-C too
                server.close()
                raise
            self._server = server

    def _begin(self, server: HaServer, log: ReplicatedLog) -> None:
        log.copies.publish(-1)  # the value may be from a leading process that was killed
        self._waits.leads = True
        server.start(log)
        log.on_synced = server.notify

    def stop_leading(self) -> None:
        """Close the port; slaves then reconnect to the next process that leads."""
        with self._lock:
            server, self._server = self._server, None
            self._waits.leads = False
            if server is not None:
                server.close()
                if self._log is not None:
                    self._log.copies.publish(-1)

    def _copied(self, reachable_end: int) -> None:
        assert self._log is not None  # the server has started
        self._log.copies.publish(reachable_end)
        self._waits.answer()

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Wake the sending thread if it sleeps; return the status of a put, or its future.

        :param end_offset: physical offset of the put's end, in bytes
        """
        server = self._server
        if server is not None:
            server.notify()
        if not wait or self.answers_at_once:
            return _PUT_OK
        return self._waits.submit(end_offset, server)

    def close(self) -> None:
        """Wait at most ``close_timeout_ms`` until connected slaves have the log; then stop."""
        timeout_s = self._settings.close_timeout_ms / 1000
        try:
            if self._server is not None:
                self._server.drain(timeout_s)
            self._waits.close(timeout_s)
        finally:
            self.stop_leading()

    def forked(self) -> None:
        """Close the parent's descriptors in a forked child.

        Otherwise the slaves' connections would stay open after the end of the parent.
        """
        server, self._server = self._server, None
        if server is not None:
            server.forked()


class RefusingHaMaster(HaMaster):
    """Also refuses puts before their append."""

    def admit(self, length: int) -> None:
        """Raise :class:`~lakelog.errors.PutRefused` unless enough slaves are in sync."""
        self._waits.admit(length)


_ALL: Final = WeakSet[HaMaster]()


def _forked() -> None:
    for each in [*_ALL]:
        each.forked()
    _ALL.clear()


os.register_at_fork(after_in_child=_forked)
