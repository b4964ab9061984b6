"""Follows the log of an owner and dispatches what can be read (RocketMQ's ReputMessageService).

A thread sleeps until there is more to read. Behind a small round it waits a moment before it looks
again, so that under load many records share one round; but not while somebody waits for messages,
unless more of them came during the round.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Lock, Thread
from typing import Final, Protocol

import attrs

from lakelog.dispatch.run import DispatchCursor, NamedDispatcher
from lakelog.errors import DispatchStopped
from lakelog.files.pages.positions import Positions
from lakelog.files.pages.wake_page import LONGEST_SLEEP_S, Sleeper
from lakelog.log.reading.pieces import Piece
from lakelog.runtime.threads import started

_log = logging.getLogger("lakelog")
GATHER_SECONDS: Final = 0.05
"""How long records may gather behind a round that found few bytes, while nobody waits for them.

A round for a dozen of records costs putting threads, with whom it shares the interpreter, about as
much as these puts do.
"""
GATHER_FOR_SOMEBODY_SECONDS: Final = 0.01
"""The same, while somebody waits and more of them came during the round."""
LET_IN_SECONDS: Final = 0.001
"""How long somebody who wants a pause has to take it."""
FEW_BYTES: Final = 1 << 18
MORE_BYTES: Final = 1 << 20
"""Few while nobody waits for them: larger rounds take a third less time for each record."""


class ArrivalNotifier(Protocol):
    """Tells those who wait for messages that some came.

    :ivar on_wait: called when somebody begins to wait
    """

    on_wait: Callable[[], None]

    @property
    def has_waiters(self) -> bool:
        """Whether somebody waits."""

    def notify(self) -> None:
        """Something new can be read."""

    def close(self) -> None:
        """Nothing more will come."""


@attrs.frozen
class Lag:
    """How far queues and index are behind the log.

    :ivar bytes: not dispatched yet
    :ivar ms: age of the last record that was dispatched, if something is behind it; else 0.
        While this owner has dispatched none, the time since it opened the store
    """

    bytes: int
    ms: int


class DispatchRunner(Protocol):
    """Builds queues and index behind an owner's log: in a thread of it, or in another process."""

    @property
    def failure(self) -> DispatchStopped | None:
        """Why it stands still, if a dispatcher failed."""

    @property
    def offset(self) -> int:
        """Everything before it was dispatched."""

    @property
    def lag(self) -> Lag:
        """How far it is behind."""

    def resume(self) -> None:
        """Try again after a failure; raises it again if it has not gone."""

    def paused(self) -> AbstractContextManager[Sequence[NamedDispatcher]]:
        """Let nothing be dispatched meanwhile; gives the dispatchers, to act on what they built."""

    def close(self) -> None:
        """Dispatch what can be read by now, then stop."""


class ThreadDispatchRunner:
    """The thread that dispatches, and those who wait for it."""

    def __init__(
        self,
        pieces: Callable[[int, int], Iterator[Piece]],
        dispatching: DispatchCursor,
        positions: Positions,
        arrivals: ArrivalNotifier,
        sleeper: Sleeper,
    ) -> None:
        """Keep what is needed.

        :param sleeper: wakes for what other processes append
        """
        self._sleeper = sleeper
        self._pieces = pieces
        self._dispatching = dispatching
        self._positions = positions
        self._known = positions.dispatched
        self._arrivals = arrivals
        self._wake = Event()
        self._hurry = Event()
        self._lock = Lock()
        self._asked = 0
        self._begun_ms = _now_ms()
        self._closing = False
        self._progress: Callable[[int, int], None] | None = None
        self._thread = Thread(target=self._run, name="lakelog-reput", daemon=True)

    def start(self, progress: Callable[[int, int], None] | None = None) -> None:
        """:meth:`complete`, then :meth:`follow`."""
        self.complete(progress)
        self.follow()

    def complete(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Dispatch what is there already; without dispatchers nothing is read.

        :param progress: told how many bytes of what is there were dispatched, and how many are to
            be
        """
        if not self._dispatching.dispatchers:
            return
        self._progress = progress
        self._round()
        self._progress = None
        if not self._is_behind():
            self._known = 0

    def follow(self) -> None:
        """Dispatch what comes, from now on."""
        if not self._dispatching.dispatchers:
            return
        self._arrivals.on_wait = self._hurry.set
        started(self._thread)

    @property
    def failure(self) -> DispatchStopped | None:
        """Why it stands still, if a dispatcher failed."""
        return self._dispatching.failure

    @property
    def offset(self) -> int:
        """Everything before it was dispatched."""
        return (
            self._positions.dispatched
            if self._dispatching.dispatchers
            else self._positions.readable
        )

    @property
    def lag(self) -> Lag:
        """How far it is behind."""
        behind = self._positions.readable - self.offset
        if behind <= 0:
            return Lag(0, 0)
        since_ms = self._dispatching.last_timestamp_ms or self._begun_ms
        return Lag(behind, max(0, _now_ms() - since_ms))

    def resume(self) -> None:
        """Try again after a failure; raises it again if it has not gone."""
        with self.paused():
            self._dispatching.failure = None
        self._round()
        self._wake.set()
        if self._dispatching.failure is not None:
            raise self._dispatching.failure

    @contextmanager
    def paused(self) -> Iterator[Sequence[NamedDispatcher]]:
        """Let nothing be dispatched meanwhile; begins between two runs of records.

        It gives the dispatchers.
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
        """Dispatch what can be read by now, then stop."""
        self._closing = True
        self._wake.set()
        self._hurry.set()
        self._sleeper.rouse()
        if self._thread.is_alive():
            self._thread.join()
        self._arrivals.close()

    def _run(self) -> None:
        while not self._closing:
            self._sleep()
            before = self._positions.dispatched
            self._round()
            while self._asked:  # the lock alone would not let anybody else in
                time.sleep(LET_IN_SECONDS)
            few = FEW_BYTES if self._arrivals.has_waiters else MORE_BYTES
            if self._positions.dispatched - before < few:
                self._gather()
        self._round()

    def _gather(self) -> None:
        """Let some records come together; who begins to wait meanwhile ends that."""
        self._hurry.clear()
        has_waiters = self._arrivals.has_waiters
        if self._closing or (has_waiters and not self._is_behind()):
            return
        self._hurry.wait(GATHER_FOR_SOMEBODY_SECONDS if has_waiters else GATHER_SECONDS)

    def _sleep(self) -> None:
        """Until there is more to read; who moves a position looks then who is to be woken."""
        self._wake.clear()
        self._positions.sleeper = self._wake.set
        if not self._positions.is_shared:
            if not self._is_awake():
                self._wake.wait()
            return
        asked = self._sleeper.ask()
        if not self._is_awake() and (
            asked is None or not self._sleeper.sleep(asked, LONGEST_SLEEP_S)
        ):
            self._wake.wait(LONGEST_SLEEP_S)

    def _is_awake(self) -> bool:
        return self._closing or (self._is_behind() and self.failure is None)

    def _is_behind(self) -> bool:
        return self._dispatching.offset < self._end()

    def _end(self) -> int:
        """Up to where there is something to dispatch."""
        return self._positions.readable_elsewhere

    def _round(self) -> None:
        with self._lock:
            if self.failure is not None or not self._is_behind():
                return
            try:
                self._dispatch()
            except DispatchStopped as stopped:
                _log.error("%s", stopped)  # whose traceback tells a user nothing
                _log.debug("the failure in full", exc_info=stopped.__cause__)
            except Exception as error:  # noqa: BLE001  # a failing disk: waiters must hear of it
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
        """While what a process of before did comes again, the word stays as it was."""
        if self._dispatching.offset >= self._known:
            self._positions.dispatched = self._dispatching.offset
        self._positions.count_records(self._dispatching.take_count())
        self._arrivals.notify()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
