"""Syncs queues at intervals, in a thread; like RocketMQ's ``FlushConsumeQueueService``.

At each interval, files with enough changed pages are synced. At each thorough interval, all files
are synced, and the checkpoint advances. Unlike in RocketMQ, a thorough sync also follows a certain
length of dispatched log, which limits the work of a recovery.

After a failed sync there is no further one, because the operating system may have dropped the
changed pages, and a later sync would succeed without them. Appending continues, as queues can be
rebuilt from the log. But the checkpoint stays, and the next stop is not clean.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

import attrs

from lakelog.errors import StoreFailed, ThreadNotStarted
from lakelog.files.checkpoint import CheckpointKeeper, StoreCheckpoint
from lakelog.runtime.threads import started
from lakelog_queues.plugin import ConsumeQueueSettings

_LOG: Final = logging.getLogger(__name__)


@attrs.define(eq=False)
class Flushing:
    """Decides when queues are synced; :meth:`start` starts the thread.

    :param sync: syncs the files with at least this number of changed pages; 0 is all
    :param note: called before a thorough sync; its result is called after it
    :ivar dispatched_ms: store time of the last record whose units are all written, in ms since 1970
    :ivar dispatched_bytes: length of the log dispatched so far
    :ivar failure: the error of a failed sync
    """

    _settings: ConsumeQueueSettings
    _checkpoint: CheckpointKeeper
    _sync: Callable[[int], None]
    _note: Callable[[], Callable[[], None]]
    dispatched_ms: int = 0
    dispatched_bytes: int = 0
    failure: BaseException | None = None
    _thorough_at: float = attrs.field(init=False)
    _thorough_bytes: int = 0
    _one_at_a_time: threading.Lock = attrs.field(factory=threading.Lock)
    _over: bool = False
    _wake: threading.Event = attrs.field(factory=threading.Event)
    _thread: threading.Thread | None = None
    _has_warned: bool = False

    def __attrs_post_init__(self) -> None:
        self._thorough_at = self._next_thorough()

    def _next_thorough(self) -> float:
        return time.monotonic() * 1000 + self._settings.flush_thorough_interval_ms

    def start(self) -> None:
        """Start the thread, unless it runs.

        If no thread can be started, this call flushes what is due, and the next call tries again.
        """
        if self._thread is None and not self._over:
            thread = threading.Thread(target=self._run, name="lakelog-flush-queues", daemon=True)
            try:
                self._thread = started(thread)
            except ThreadNotStarted as error:
                if not self._has_warned:
                    _LOG.warning("queues are flushed by the dispatching thread: %s", error)
                self._has_warned = True
                self._tick()

    def dispatched(self, last_ms: int, log_bytes: int) -> None:
        """Note a run of records whose units are written; may wake the thread for a thorough sync.

        :param last_ms: store time of its last record, in ms since 1970
        :param log_bytes: its length in the log
        """
        self.dispatched_ms = last_ms
        self.dispatched_bytes += log_bytes
        if self._has_many():
            self._wake.set()

    def stop(self) -> None:
        """Stop the thread, and wait for its end."""
        self._over = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def flush(self) -> None:
        """Sync everything, then advance the checkpoint; raises :class:`StoreFailed`."""
        with self._one_at_a_time:
            self.check()
            self._thorough()

    def check(self) -> None:
        """Raise :class:`StoreFailed` if an earlier sync failed."""
        if self.failure is not None:
            raise StoreFailed(
                f"a sync of a queue failed ({self.failure}); check the disk, then close and reopen "
                "the store"
            ) from self.failure

    def _run(self) -> None:
        while True:
            self._wake.wait(self._settings.flush_interval_ms / 1000)
            if self._over:
                return
            self._wake.clear()
            try:
                self._tick()
            except StoreFailed:
                return

    def _tick(self) -> None:
        with self._one_at_a_time:
            self.check()
            if time.monotonic() * 1000 >= self._thorough_at or self._has_many():
                self._thorough()
            else:
                self._guarded(lambda: self._sync(self._settings.flush_least_pages))

    def _has_many(self) -> bool:
        behind = self.dispatched_bytes - self._thorough_bytes
        return behind >= self._settings.flush_thorough_bytes

    def _thorough(self) -> None:
        reached_ms = self.dispatched_ms  # read before the sync, which may miss later records
        self._thorough_bytes = self.dispatched_bytes
        keep = self._note()
        self._thorough_at = self._next_thorough()
        self._guarded(lambda: self._sync(0))
        self._guarded(keep)
        if reached_ms:
            self._guarded(
                lambda: self._checkpoint.advance(StoreCheckpoint(logics_timestamp_ms=reached_ms))
            )

    def _guarded(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        except BaseException as error:  # noqa: BLE001  # after any error, files may not be durable
            self.failure = error
            self._checkpoint.freeze()
            _LOG.exception("a sync of a queue failed; close and reopen the store to dispatch again")
            self.check()
