"""Dispatches an owner's log: follows it, passes its records to the dispatchers, wakes the waiters.

Runs of records go to the dispatchers in the configured order. An error in a dispatcher stops
dispatching: no record is skipped, and no later record is passed to any dispatcher until the error
is resolved.

A thread sleeps until there are new records (RocketMQ's ReputMessageService). After a small round it
pauses, so that under load many records share one round. It does not pause while a reader waits for
messages, unless more messages were appended during the round.

Waiters are told that messages were dispatched, or that no more will come. A version counts these
notifications. A waiter that reads the version before it reads messages cannot miss a notification,
however late it starts to wait.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import count
from pathlib import Path
from threading import Thread, get_ident
from typing import Final, NamedTuple, Protocol

from lakelog.errors import DispatchStopped, StoreClosed, StoreFailed, raised_by_handler
from lakelog.files.filesystem import lacks_resources
from lakelog.format.record_batch import Blank, Damage, Piece, RecordBatch
from lakelog.hooks import Dispatcher
from lakelog.processes.positions import LONGEST_SLEEP_S, PageWaiter, Positions
from lakelog.runtime.locks import LockFreeEvent, Mutex, WaitList
from lakelog.runtime.threads import Shortage, may_wait, started

_log = logging.getLogger("lakelog")


class NamedDispatcher(NamedTuple):
    """A dispatcher and its name in the settings.

    :ivar blaming: gives errors the name of the plugin; called with what is called
    """

    name: str
    dispatcher: Dispatcher
    blaming: Callable[[str], AbstractContextManager[None]] = lambda _call: nullcontext()


class DispatchCursor:
    """The progress of dispatching a log; used by one thread at a time.

    :ivar offset: the log is dispatched up to here, in bytes from its start
    :ivar dispatchers: all dispatchers, in order
    :ivar last_timestamp_ms: store time of the last dispatched record
    :ivar failure: why dispatching has stopped, if it has
    """

    def __init__(self, path: Path, dispatchers: Sequence[NamedDispatcher], offset: int) -> None:
        self.offset = offset
        self.last_timestamp_ms = 0
        self.failure: DispatchStopped | None = None
        self._path = path
        self._records = 0
        self._is_torn = False  # an exception of a signal handler ended a run
        self.dispatchers = dispatchers

    def run(self, pieces: Iterable[Piece]) -> None:
        """Dispatch the log from ``offset`` on; damage is skipped.

        Raises :class:`~lakelog.errors.DispatchStopped`.
        """
        if self._is_torn:
            for each in self.dispatchers:
                each.dispatcher.truncate(self.offset)
            self._is_torn = False
        try:
            self._run(pieces)
        except BaseException as error:
            self._is_torn = not isinstance(error, Exception) or raised_by_handler(error)
            raise

    def _run(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, Blank):
                self.offset = piece.offset + piece.size
            elif isinstance(piece, Damage):
                _log.warning("%s: nothing to dispatch there", piece)
            else:
                self.offset = piece.base_offset + piece.head(0)[0]
                self._batch(piece)

    def _batch(self, batch: RecordBatch) -> None:
        try:
            for each in self.dispatchers:
                each.dispatcher.dispatch(batch)
        except Exception as error:
            if raised_by_handler(error):
                raise
            self._singly(batch)  # a plugin's, of any type: it finds its record and reports it
        self._reached(batch)

    def _reached(self, batch: RecordBatch) -> None:
        self.last_timestamp_ms = batch.head(-1)[2]
        self.offset = batch.end_offset
        self._records += len(batch)

    def take_count(self) -> int:
        """The number of records dispatched since the last call; resets it."""
        count, self._records = self._records, 0
        return count

    def _singly(self, batch: RecordBatch) -> None:
        """Dispatch one by one up to the record that fails."""
        for at in range(len(batch)):
            record = batch[at : at + 1]
            for each in self.dispatchers:
                try:
                    each.dispatcher.dispatch(record)
                except Exception as error:
                    if lacks_resources(error) or raised_by_handler(error):
                        raise
                    raise self.stop(each.name, error) from error
            self._reached(record)

    def stop(self, name: str, error: Exception) -> DispatchStopped:
        """Stop: dispatcher ``name`` failed at the record at ``offset``."""
        self.failure = DispatchStopped(
            f"dispatcher {name!r} failed at offset {self.offset}: {type(error).__name__}: {error};"
            " puts continue, but queues and index get no new records until dispatching is retried: "
            "by a round of the cleaner, by resume_dispatch(), or by a reopen",
            dispatcher=name,
            offset=self.offset,
            path=self._path,
        )
        return self.failure


def forget(dispatchers: Iterable[NamedDispatcher], offset: int) -> None:
    """Have each dispatcher drop, durably, its entries of records at or behind ``offset``."""
    for each in dispatchers:
        each.dispatcher.truncate(offset)
        each.dispatcher.flush()


def resume(dispatchers: Iterable[NamedDispatcher], minimum: int, end: int) -> int:
    """Have each dispatcher examine its files; return the lowest offset to dispatch from.

    Raises :class:`~lakelog.errors.PluginError` for an offset beyond ``end``: the records before it
    would never be dispatched.
    """
    start = end
    for each in dispatchers:
        with each.blaming("resume()"):
            found = each.dispatcher.resume(minimum, end)
            if found > end:
                raise ValueError(f"it returned {found}, beyond the end of the log, {end}")
        start = min(start, found)
    return start


def forget_topic(dispatchers: Iterable[NamedDispatcher], topic: str, end_offset: int) -> None:
    """Have each dispatcher remove ``topic``, and ignore its records below ``end_offset``.

    Dispatching must be paused. Raises as their ``forget_topic``, see ``Dispatcher``.
    """
    for each in dispatchers:
        forget = getattr(each.dispatcher, "forget_topic", None)
        if forget is not None:
            forget(topic, end_offset)


def always() -> bool:
    """Return ``True``: the default of ``is_urgent``."""
    return True


class Arrivals:
    """The notifications of an owner; thread-safe.

    :ivar version: changed by each call of :meth:`notify`
    :ivar closed: whether :meth:`close` was called
    :ivar on_wait: called when a wait begins, in the waiting thread
    """

    def __init__(self) -> None:
        self.on_wait: Callable[[], None] = lambda: None
        self._waits = WaitList()
        self._versions = count(1)
        self.version = 0
        self.closed = False
        self._listeners: dict[object, tuple[Callable[[], object], Callable[[], bool]]] = {}

    @property
    def has_waiters(self) -> bool:
        """Whether there are waiters, or urgent listeners."""
        return bool(self._waits) or any(urgent() for _, urgent in tuple(self._listeners.values()))

    def notify(self) -> None:
        """Notify the waiters that new messages can be read."""
        self.version = next(self._versions)  # a number of its own for each call
        self._waits.notify_all()
        for listener, _ in tuple(self._listeners.values()):
            with suppress(RuntimeError):  # the event loop was closed meanwhile
                listener()

    def close(self) -> None:
        """Wake all present and future waiters: no more messages will come."""
        self.closed = True
        self.notify()

    def wait(self, seen: int, timeout_s: float) -> int:
        """Sleep until the version differs from ``seen``, on timeout, or until :meth:`close`.

        :returns: the version on return
        """
        self._waits.wait_for(
            lambda: self.version != seen or self.closed, max(timeout_s, 0), self.on_wait
        )
        return self.version

    async def wait_async(self, seen: int, is_urgent: Callable[[], bool] = always) -> None:
        """As :meth:`wait` without a timeout, in an event loop; uses no thread.

        :param is_urgent: as in :meth:`subscribe`
        """
        import asyncio

        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        unsubscribe = self.subscribe(lambda: loop.call_soon_threadsafe(arrived.set), is_urgent)
        try:
            while self.version == seen and not self.closed:
                await arrived.wait()
                arrived.clear()
        finally:
            unsubscribe()

    def subscribe(
        self, listener: Callable[[], object], is_urgent: Callable[[], bool] = always
    ) -> Callable[[], object]:
        """Call ``listener`` at each arrival and at the close.

        It runs in the dispatching thread, so it must be quick and must not raise, such as
        ``loop.call_soon_threadsafe``.

        :param is_urgent: called after each round of dispatching, in the same thread. While it
            returns false, messages are gathered for some tens of ms before the next round, which
            reduces the cost per put
        :returns: a function that removes the listener
        """
        key = object()
        self._listeners[key] = listener, is_urgent
        self.on_wait()
        return lambda: self._listeners.pop(key, None)


GATHER_SECONDS: Final = 0.05
"""The pause after a small round, while no reader waits for messages.

A round for a dozen records takes as much time from the putting threads, which share the
interpreter, as their puts.
"""
GATHER_FOR_SOMEBODY_SECONDS: Final = 0.01
"""The pause if a reader waits, and more messages were appended during the round."""
RETRY_SECONDS: Final = 0.2
"""The pause after a round that lacked descriptors, memory or room."""
CATCH_UP_SECONDS: Final = 5.0
"""The longest wait of a read for records that are not dispatched, such as behind a slow plugin."""
LET_IN_SECONDS: Final = 0.001
"""How long a thread in :meth:`DispatchRunner.paused` has to take the lock."""
FEW_BYTES: Final = 1 << 18
MORE_BYTES: Final = 1 << 20
"""Rounds below this size pause: larger ones take a third less time per record."""


class Lag(NamedTuple):
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
        self._wake = LockFreeEvent()
        self._hurry = LockFreeEvent()
        self._lock = Mutex()
        self._asked = list[object]()  # one for each thread that waits in `paused`
        self._shortage = Shortage("dispatching is stopped")
        self._begun_ms = _now_ms()
        self._closing = False
        self._thread = Thread(target=self._run, name="lakelog-reput", daemon=True)

    def complete(
        self,
        progress: Callable[[int, int], None] | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Dispatch the existing records; does nothing without dispatchers.

        :param progress: called with the bytes dispatched so far, and their total
        :param is_over: called after each run of records; if it returns true, the others are left
        """
        if not self._dispatching.dispatchers:
            return
        self._round(progress, is_over)
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
        positions = self._positions
        return positions.dispatched if self._dispatching.dispatchers else positions.readable

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

    def catch_up(self) -> None:
        """Wait until queues and index have every record that is readable now.

        Staged bytes are committed first. Does not wait while dispatching is stopped or lacks
        resources, nor in its thread, inside of :meth:`paused` or after :func:`never_wait`, and at
        most ``CATCH_UP_SECONDS``: a reader then finds what is there.
        """
        positions = self._positions
        if positions.dispatched >= positions.readable or not may_wait():
            return
        if self._commit is not None:
            with suppress(StoreFailed):
                self._commit()
        end = positions.readable_elsewhere  # below `readable` if the commit has failed
        if self.offset < end and not self._shortage.is_there and not self._is_mine():
            with suppress(DispatchStopped, StoreClosed):
                self.wait(end, CATCH_UP_SECONDS)

    def _is_mine(self) -> bool:
        """Whether this thread dispatches, or has paused it: a finalizer or a plugin may read."""
        return get_ident() == self._thread.ident or self._lock.is_mine()

    def resume(self) -> None:
        """Retry after a failure; raises :class:`~lakelog.errors.DispatchStopped` if it recurs."""
        with self.paused():
            self._dispatching.failure = None
        self._round()
        self._wake.set()
        if self.failure is not None:
            raise self.failure

    @contextmanager
    def paused(self) -> Iterator[Sequence[NamedDispatcher]]:
        """Pause dispatching between two runs of records.

        Yields the dispatchers.
        """
        asking = object()
        try:
            self._asked.append(asking)
            with self._lock:
                self._asked.remove(asking)
                yield self._dispatching.dispatchers
        finally:
            if asking in self._asked:
                self._asked.remove(asking)

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
        if self._shortage.is_there:
            self._hurry.wait(RETRY_SECONDS)
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
        return self._dispatching.offset < self._positions.readable_elsewhere

    def _round(
        self,
        progress: Callable[[int, int], None] | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        with self._lock:
            if self.failure is not None or not self._is_behind():
                return
            try:
                self._dispatch(progress, is_over)
            except DispatchStopped as stopped:
                _log.error("%s", stopped)  # without the traceback, which does not help users
                _log.debug("the failure in full", exc_info=stopped.__cause__)
            except Exception as error:  # noqa: BLE001  # a failing disk: waiters must get the error
                if not lacks_resources(error):
                    _log.error("%s", self._dispatching.stop("the log's reader", error))
                else:
                    self._shortage.begin(error)
                _log.debug("the failure in full", exc_info=error)
            else:
                self._shortage.end()
            finally:
                self._publish()

    def _dispatch(
        self, progress: Callable[[int, int], None] | None, is_over: Callable[[], bool]
    ) -> None:
        dispatching, end = self._dispatching, self._positions.readable_elsewhere
        begun = dispatching.offset
        for piece in self._pieces(begun, end):
            dispatching.run((piece,))
            self._publish()
            if progress is not None:
                progress(dispatching.offset - begun, end - begun)
            if self._asked or is_over():
                return

    def _publish(self) -> None:
        """Publish the offset, unless it is below that of a former owner, and notify the waiters."""
        if self._dispatching.offset >= self._known:
            self._positions.dispatched = self._dispatching.offset
        self._positions.count_records(self._dispatching.take_count())
        self.arrivals.notify()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
