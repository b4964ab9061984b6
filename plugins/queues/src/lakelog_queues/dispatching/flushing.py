"""When queues are synced: RocketMQ's ``FlushConsumeQueueService``, in a thread of its own.

Every interval, files that changed by some pages are synced; every thorough interval, all of them,
and then the checkpoint says so. Unlike there, that also comes after so many bytes of the log, which
bounds what a recovery has to dispatch again. After a sync that failed there is no other: what was
not durable by then never counts as durable. The log goes on, since queues can be built from it
again; but the checkpoint does not move any more, and the stop will be no clean one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from lakelog.errors import StoreFailed, ThreadNotStarted
from lakelog.files.state.checkpoint import CheckpointKeeper, StoreCheckpoint
from lakelog.runtime.threads import started
from lakelog_queues.settings import ConsumeQueueSettings

_LOG: Final = logging.getLogger(__name__)


class Flushing:
    """Syncs what was dispatched.

    :ivar dispatched_ms: store time of the last record whose units are all written
    :ivar dispatched_bytes: how much of the log was dispatched
    :ivar failure: the sync that failed, if one did
    """

    def __init__(
        self,
        settings: ConsumeQueueSettings,
        checkpoint: CheckpointKeeper,
        sync: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        note: Callable[[], Callable[[], None]] | None = None,
    ) -> None:
        """Keep what is needed.

        :param sync: syncs what changed by so many pages
        :param note: called before a sync of all; what it gives is called behind it
        """
        self.dispatched_ms = 0
        self.dispatched_bytes = 0
        self.failure: BaseException | None = None
        self._settings = settings
        self._checkpoint = checkpoint
        self._sync = sync
        self._clock = clock
        self._note = note or _nothing
        self._thorough_at = clock() * 1000 + settings.flush_thorough_interval_ms
        self._thorough_bytes = 0
        self._one_at_a_time = threading.Lock()
        self._over = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._told = False

    def start(self) -> None:
        """Begin to flush by the clock; nothing happens if it has begun.

        Where no thread can be had, this flushes what is due, and the next call tries again.
        """
        if self._thread is None and not self._over:
            thread = threading.Thread(target=self._run, name="lakelog-flush-queues", daemon=True)
            try:
                self._thread = started(thread)
            except ThreadNotStarted as error:
                if not self._told:
                    _LOG.warning("queues are flushed by who dispatches: %s", error)
                self._told = True
                self._tick()

    def dispatched(self, last_ms: int, log_bytes: int) -> None:
        """Note a run of records whose units are written; many bytes are synced before the clock.

        :param last_ms: store time of its last record
        :param log_bytes: how much of the log it is
        """
        self.dispatched_ms = last_ms
        self.dispatched_bytes += log_bytes
        if self._has_many():
            self._wake.set()

    def stop(self) -> None:
        """Flush by the clock no more."""
        self._over = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def flush(self) -> None:
        """Sync everything, then move the checkpoint; raises :class:`StoreFailed`."""
        with self._one_at_a_time:
            self.check()
            self._thorough()

    def check(self) -> None:
        """Raise :class:`StoreFailed` if a sync failed before."""
        if self.failure is not None:
            raise StoreFailed(
                f"a sync of a queue failed ({self.failure}); close the store, see to the disk, "
                "reopen"
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
            if self._is_due():
                self._thorough()
            else:
                self._guarded(lambda: self._sync(self._settings.flush_least_pages))

    def _is_due(self) -> bool:
        """Whether it is time for all, or so much was written that a recovery would take long."""
        return self._clock() * 1000 >= self._thorough_at or self._has_many()

    def _has_many(self) -> bool:
        behind = self.dispatched_bytes - self._thorough_bytes
        return behind >= self._settings.flush_thorough_bytes

    def _thorough(self) -> None:
        reached_ms = self.dispatched_ms  # before the sync: what comes meanwhile does not count
        self._thorough_bytes = self.dispatched_bytes
        keep = self._note()
        self._thorough_at = self._clock() * 1000 + self._settings.flush_thorough_interval_ms
        self._guarded(lambda: self._sync(0))
        self._guarded(keep)
        if reached_ms:
            self._guarded(
                lambda: self._checkpoint.advance(StoreCheckpoint(logics_timestamp_ms=reached_ms))
            )

    def _guarded(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        except BaseException as error:  # noqa: BLE001  # whatever it was, nothing is durable
            self.failure = error
            self._checkpoint.freeze()
            _LOG.exception("a sync of a queue failed; queues stay as they are")
            self.check()


def _nothing() -> Callable[[], None]:
    return lambda: None
