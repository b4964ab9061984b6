"""Follows an owner's log and dispatches new records (RocketMQ's ReputMessageService).

A thread sleeps until there are new records. After a small round it pauses, so that under load many
records share one round. It does not pause while a reader waits for messages, unless more messages
were appended during the round.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import Final, Protocol

import attrs

from lakelog.dispatch.arrivals import Arrivals
from lakelog.dispatch.run import DispatchCursor, NamedDispatcher
from lakelog.files.pages.positions import Positions
from lakelog.files.pages.wake_page import LONGEST_SLEEP_S, PageWaiter
from lakelog.runtime.threads import started
from lakelog_format.pieces import Piece
from lakelog_interfaces.errors import DispatchStopped, StoreClosed, StoreFailed

_log = logging.getLogger("lakelog")
GATHER_SECONDS: Final = 0.05
"""The pause after a small round, while no reader waits for messages.

A round for a dozen records takes as much time from the putting threads, which share the
interpreter, as their puts.
"""
GATHER_FOR_SOMEBODY_SECONDS: Final = 0.01
"""The pause if a reader waits, and more messages were appended during the round."""
LET_IN_SECONDS: Final = 0.001
"""How long a thread in :meth:`DispatchRunner.paused` has to take the lock."""
FEW_BYTES: Final = 1 << 18
MORE_BYTES: Final = 1 << 20
"""Rounds below this size pause: larger ones take a third less time per record."""


@attrs.frozen
class Lag:
    """The distance of queues and index from the end of the log.

    :ivar bytes: bytes not dispatched yet
    :ivar ms: age of the last dispatched record, if more follow it; else 0. Before this owner has
        dispatched one, the time since it opened the store
    """

    bytes: int
    ms: int


class DispatchWait(Protocol):
    """The dispatch state of a store: :class:`DispatchRunner`, or that of a store extension."""

    @property
    def offset(self) -> int:
        """Offset up to which the log is dispatched."""

    @property
    def lag(self) -> Lag:
        """The distance from the end of the log."""

    @property
    def failure(self) -> DispatchStopped | None:
        """Why dispatching has stopped, if it has."""

    def wait(self, offset: int, timeout_s: float) -> bool:
        """Wait until the log is dispatched up to ``offset``; return ``False`` on timeout."""


class DispatchRunner:
    """The dispatching thread of an owner, and its waiters.

    :ivar arrivals: notifies the readers that wait for messages
    """

    def __init__(
        self,
        pieces: Callable[[int, int], Iterator[Piece]],
        dispatching: DispatchCursor,
        positions: Positions,
        page_waiter: PageWaiter,
        commit: Callable[[], object] | None = None,
    ) -> None:
        """Store the collaborators.

        :param pieces: reads the log from one offset to another
        :param page_waiter: wakes the thread for appends of other processes
        :param commit: writes the bytes of a staged writer to the page cache
        """
        self.arrivals = Arrivals()
        self._commit = commit
        self._page_waiter = page_waiter
        self._pieces = pieces
        self._dispatching = dispatching
        self._positions = positions
        self._known = positions.dispatched
        self._wake = Event()
        self._hurry = Event()
        self._lock = Lock()
        self._asked = 0
        self._begun_ms = _now_ms()
        self._closing = False
        self._progress: Callable[[int, int], None] | None = None
        self._thread = Thread(target=self._run, name="lakelog-reput", daemon=True)

    def complete(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Dispatch the existing records; does nothing without dispatchers.

        :param progress: called with the bytes dispatched so far, and their total
        """
        if not self._dispatching.dispatchers:
            return
        self._progress = progress
        self._round()
        self._progress = None
        if not self._is_behind():
            self._known = 0

    def follow(self) -> None:
        """Start the thread, which dispatches new records."""
        if not self._dispatching.dispatchers:
            return
        self.arrivals.on_wait = self._hurry.set
        started(self._thread)

    @property
    def failure(self) -> DispatchStopped | None:
        """Why dispatching has stopped, if it has."""
        return self._dispatching.failure

    @property
    def offset(self) -> int:
        """Offset up to which the log is dispatched."""
        return (
            self._positions.dispatched
            if self._dispatching.dispatchers
            else self._positions.readable
        )

    @property
    def lag(self) -> Lag:
        """The distance from the end of the log."""
        behind = self._positions.readable - self.offset
        if behind <= 0:
            return Lag(0, 0)
        since_ms = self._dispatching.last_timestamp_ms or self._begun_ms
        return Lag(behind, max(0, _now_ms() - since_ms))

    def wait(self, offset: int, timeout_s: float) -> bool:
        """Wait until the log is dispatched up to ``offset``; return ``False`` on timeout.

        Staged bytes are committed first.

        Raises :class:`~lakelog.errors.DispatchStopped` and :class:`~lakelog.errors.StoreClosed`.
        """
        deadline = time.monotonic() + timeout_s
        if self._commit is not None and self.offset < offset:
            with suppress(StoreFailed):  # bytes already committed can still be dispatched
                self._commit()
        while True:
            seen = self.arrivals.version
            if self.offset >= offset:
                return True
            if self.failure is not None:
                raise self.failure
            if self.arrivals.closed:
                raise StoreClosed("the store was closed meanwhile")
            if (left := deadline - time.monotonic()) <= 0:
                return False
            self.arrivals.wait(seen, left)

    def resume(self) -> None:
        """Retry after a failure; raises :class:`~lakelog.errors.DispatchStopped` if it recurs."""
        with self.paused():
            self._dispatching.failure = None
        self._round()
        self._wake.set()
        if self._dispatching.failure is not None:
            raise self._dispatching.failure

    @contextmanager
    def paused(self) -> Iterator[Sequence[NamedDispatcher]]:
        """Pause dispatching between two runs of records.

        Yields the dispatchers.
        """
        self._asked += 1
        try:
            self._lock.acquire()
        finally:
            self._asked -= 1
        try:
            yield self._dispatching.dispatchers
        finally:
            self._lock.release()

    def close(self) -> None:
        """Dispatch the records up to the readable end, then stop."""
        self._closing = True
        self._wake.set()
        self._hurry.set()
        self._page_waiter.wake_all()
        if self._thread.is_alive():
            self._thread.join()
        self.arrivals.close()

    def _run(self) -> None:
        while not self._closing:
            self._sleep()
            before = self._positions.dispatched
            self._round()
            while self._asked:  # releasing the lock alone does not let a waiting thread take it
                time.sleep(LET_IN_SECONDS)
            few = FEW_BYTES if self.arrivals.has_waiters else MORE_BYTES
            if self._positions.dispatched - before < few:
                self._gather()
        self._round()

    def _gather(self) -> None:
        """Let records accumulate; ends early when a reader begins to wait."""
        self._hurry.clear()
        has_waiters = self.arrivals.has_waiters
        if self._closing or (has_waiters and not self._is_behind()):
            return
        self._hurry.wait(GATHER_FOR_SOMEBODY_SECONDS if has_waiters else GATHER_SECONDS)

    def _sleep(self) -> None:
        """Sleep until there are new records: a process that moves a position wakes this thread."""
        self._wake.clear()
        self._positions.sleeper = self._wake.set
        if not self._positions.is_shared:
            if not self._is_awake():
                self._wake.wait()
            return
        asked = self._page_waiter.ask()
        if not self._is_awake() and (
            asked is None or not self._page_waiter.sleep(asked, LONGEST_SLEEP_S)
        ):
            self._wake.wait(LONGEST_SLEEP_S)

    def _is_awake(self) -> bool:
        return self._closing or (self._is_behind() and self.failure is None)

    def _is_behind(self) -> bool:
        return self._dispatching.offset < self._end()

    def _end(self) -> int:
        """The offset up to which records can be dispatched."""
        return self._positions.readable_elsewhere

    def _round(self) -> None:
        with self._lock:
            if self.failure is not None or not self._is_behind():
                return
            try:
                self._dispatch()
            except DispatchStopped as stopped:
                _log.error("%s", stopped)  # without the traceback, which does not help users
                _log.debug("the failure in full", exc_info=stopped.__cause__)
            except Exception as error:  # noqa: BLE001  # a failing disk: waiters must get the error
                _log.error("%s", self._dispatching.stop("the log's reader", error))
                _log.debug("the failure in full", exc_info=error)
            finally:
                self._publish()

    def _dispatch(self) -> None:
        dispatching, end = self._dispatching, self._end()
        begun = dispatching.offset
        for piece in self._pieces(begun, end):
            dispatching.run((piece,))
            self._publish()
            if self._progress is not None:
                self._progress(dispatching.offset - begun, end - begun)
            if self._asked:
                return

    def _publish(self) -> None:
        """Publish the offset, unless it is below that of a former owner, and notify the waiters."""
        if self._dispatching.offset >= self._known:
            self._positions.dispatched = self._dispatching.offset
        self._positions.count_records(self._dispatching.take_count())
        self.arrivals.notify()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
