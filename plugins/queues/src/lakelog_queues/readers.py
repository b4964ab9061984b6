"""Queues and index of a process without the services: dispatched in memory, and waits for it.

The files lack entries after a crash, beside a living owner, or after they were removed. The missing
part is dispatched from the log to dispatchers that keep it in memory. Nothing on disk is changed,
and the code is the owner's.

An owner notifies waiters of new messages itself. A process without the services is woken by the
owner, or else polls. A store whose role may change moves its waiters to the signal of the new role.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import attrs

from lakelog import dispatch
from lakelog.arguments import wrong_type
from lakelog.errors import OffsetOutOfRange, StoreClosed
from lakelog.files.filesystem import FileSystem, identity_at
from lakelog.format.layout import ABORT_FILE, CHECKPOINT_FILE, LOCK_FILE
from lakelog.format.queue_offsets import Queue
from lakelog.hooks import DispatchedLog
from lakelog.log.log_reader import LogReader
from lakelog.log.store_directory import unread
from lakelog.processes.ownership import is_owned
from lakelog.processes.positions import PageWaiter, WakePage
from lakelog.runtime.locks import Mutex
from lakelog.runtime.threads import in_thread, may_wait
from lakelog_queues.dispatching.tombstones import TombstoneFile
from lakelog_queues.finding.results import QueueInfo

FIRST_LOOK_S: Final = 0.005
LAST_LOOK_S: Final = 0.1
MOST_WAITING: Final = 2
DENSE_S: Final = 0.0005
"""A waiter woken again within this time reads a dense stream."""
_VERSIONS: Final = 1 << 64
LOOK_SECONDS: Final = 0.002
"""The minimum time between two checks of the log, unless a waiter was woken."""
_WAIT_S: Final = 0.01
"""Seconds between two checks of the log by :meth:`ReaderWait.wait`."""
_SETTLED_NS: Final = 2_000_000_000


class ArrivalSignal(Protocol):
    """The signal as waiters use it: the ``Arrivals`` of an owner, or that of a reader."""

    @property
    def version(self) -> int:
        """A number that changes with each arrival."""

    @property
    def closed(self) -> bool:
        """Whether no more messages will come."""

    def wait(self, seen: int, timeout_s: float) -> int:
        """Sleep until the version differs from ``seen``, the time is over, or it is closed.

        :returns: the version on return
        """

    async def wait_async(self, seen: int, is_urgent: Callable[[], bool] = dispatch.always) -> None:
        """As :meth:`wait`, without a time limit and without blocking the event loop.

        :param is_urgent: while it is false, an owner may gather messages for some tens of ms
        """


@attrs.frozen
class CurrentArrivals:
    """The signal of a store whose role may change; waiters move to the new role's signal.

    Its versions contain the role, so that versions of two roles never compare equal.

    :param of: returns the current signal
    """

    _of: Callable[[], ArrivalSignal]

    @property
    def version(self) -> int:
        """A number that changes with each arrival, and with the role."""
        return _with_signal_id(signal := self._of(), signal.version)

    @property
    def closed(self) -> bool:
        """Whether no more messages will come."""
        return self._of().closed

    def wait(self, seen: int, timeout_s: float) -> int:
        """Sleep until the version changes, the time is over, or it is closed."""
        signal, (of, before) = self._of(), divmod(seen, _VERSIONS)
        if of != id(signal):
            return self.version
        if isinstance(signal, PolledArrivals):
            return _with_signal_id(
                signal, signal.wait(before, timeout_s, lambda: self._of() is not signal)
            )
        return _with_signal_id(signal, signal.wait(before, timeout_s))

    async def wait_async(self, seen: int, is_urgent: Callable[[], bool] = dispatch.always) -> None:
        """As :meth:`wait`, without a time limit and without blocking the event loop."""
        signal, (of, before) = self._of(), divmod(seen, _VERSIONS)
        if of != id(signal):
            return
        if isinstance(signal, PolledArrivals):
            await signal.wait_async(before, over=lambda: self._of() is not signal)
        else:
            await signal.wait_async(before, is_urgent)


def _with_signal_id(signal: ArrivalSignal, version: int) -> int:
    """The version with its signal's id, unique since the store keeps all its signals alive."""
    return id(signal) * _VERSIONS + version


@attrs.define(eq=False)
class PolledArrivals:
    """The signal in a process without the services: wake-ups by the owner, or else polling.

    :param completion: dispatches new records
    :param page_waiter: waits for a wake-up by the owner
    """

    _completion: ReaderCatchUp
    _page_waiter: PageWaiter
    _waiting_count: int = 0
    _grouping_s: float = 0.0
    _close: dispatch.Arrivals = attrs.field(factory=dispatch.Arrivals)

    @property
    def version(self) -> int:
        """The end of the dispatched log, after new records were dispatched."""
        return self._completion.reach()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._close.closed

    def close(self) -> None:
        """Wake all waiters."""
        self._close.close()
        self._page_waiter.wake_all()

    def wait(self, seen: int, timeout_s: float, over: Callable[[], bool] = lambda: False) -> int:
        """Sleep until woken by the owner, with a check at least every 100 ms.

        Without wake-ups, check after 5 ms, and then at growing intervals.

        :param over: checked each time; true ends the wait
        """
        end, pause = time.monotonic() + timeout_s, FIRST_LOOK_S
        asked = None
        while True:
            found = self._look()
            left = end - time.monotonic()
            if found != seen or self.closed or left <= 0 or over():
                return found
            if asked is not None and self._wait_on_page(asked, left):
                asked = None
                continue
            # The waiting flag is set before the next check, so that no arrival after it is missed.
            before, asked = asked, self._page_waiter.ask()
            if asked is None or before is not None:
                self._close.wait(0, min(pause, left))
                pause = min(2 * pause, LAST_LOOK_S)

    def _look(self) -> int:
        return self._completion.reach(now=True)

    def _wait_on_page(self, asked: tuple[WakePage, int], left_s: float) -> bool:
        """Sleep until woken.

        In a dense stream it then sleeps a little longer, so that messages arrive in groups. This
        costs less per message, for the owner too.
        """
        if self._grouping_s:
            self._close.wait(0, min(self._grouping_s, left_s))
        begun = time.monotonic()
        slept = self._page_waiter.sleep(asked, left_s)
        dense = time.monotonic() - begun < DENSE_S
        self._grouping_s = min(max(2 * self._grouping_s, DENSE_S), FIRST_LOOK_S) if dense else 0.0
        return slept

    async def wait_async(
        self,
        seen: int,
        is_urgent: Callable[[], bool] = dispatch.always,  # noqa: ARG002  # the owner decides
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        """As :meth:`wait`, in an event loop, by using its threads.

        Only a few waiters may occupy a thread at once, since a loop has few; the others poll.
        """
        import asyncio

        pause = FIRST_LOOK_S
        while not (self.closed or over()):
            if self._waiting_count < MOST_WAITING:
                found = await in_thread(self._wait_counted, seen)
            else:
                found = await in_thread(self._look)
                if found == seen:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LAST_LOOK_S)
            if found != seen:
                return

    def _wait_counted(self, seen: int) -> int:
        self._waiting_count += 1
        try:
            return self.wait(seen, LAST_LOOK_S)
        finally:
            self._waiting_count -= 1


async def queue_growth(
    arrivals: ArrivalSignal,
    queues: Callable[[str | None], Sequence[QueueInfo]],
    topic: str | None,
    since: Mapping[Queue, int] | None,
) -> AsyncIterator[dict[Queue, int]]:
    """Yield the queues that have grown, each with its end, until the store is closed.

    The ends of queues are compared after each arrival.

    :param queues: lists the queues of a topic, or all
    :param since: ends of queues to compare with at first; ``None`` is the present ones
    """
    if since is not None and not isinstance(since, Mapping):
        raise wrong_type("since", since, "a mapping of (topic, queue_id) to a queue offset")

    def ends() -> dict[Queue, int]:
        return {(each.topic, each.queue_id): each.max_offset for each in queues(topic)}

    seen = arrivals.version
    known = dict(await in_thread(ends) if since is None else since)
    while True:
        try:
            now = await in_thread(ends)
        except StoreClosed:
            return
        grown = {queue: end for queue, end in now.items() if end > known.get(queue, 0)}
        known.update(now)
        if grown:
            yield grown
        await arrivals.wait_async(seen)
        if arrivals.closed:
            return
        seen = arrivals.version


@attrs.define(eq=False)
class ReaderCatchUp:
    """The dispatch state of one reader; nothing is read before the first call.

    :param untouched: see :func:`untouched`
    :param tombstones: read before the dispatchers were built
    """

    _path: Path
    _reader: LogReader
    _dispatchers: Sequence[dispatch.NamedDispatcher]
    _untouched: Callable[[], object | None]
    _tombstones: TombstoneFile
    _removed: dict[str, int] = attrs.field(factory=dict)
    _dispatching: dispatch.DispatchCursor | None = None
    _looked: float = float("-inf")
    _state: object | None = None
    _found: int = 0  # the end of the log at the first check
    _lock: Mutex = attrs.field(factory=Mutex)

    @property
    def offset(self) -> int:
        """Offset up to which the log is in queues and index."""
        return self._dispatching.offset if self._dispatching is not None else 0

    def reach(self, *, now: bool = False) -> int:
        """Dispatch the new part of the log; return the offset reached.

        :param now: whether to ignore the minimum time between two checks

        Raises :class:`~lakelog.errors.DispatchStopped`, and :class:`~lakelog.errors.StoreError`
        for files and folders that cannot be read.
        """
        with self._lock:
            self._removed.update(self._tombstones.changes())
            if now or self._removed or time.monotonic() - self._looked > LOOK_SECONDS:
                try:
                    self._forget()
                    self._take_in()
                except OSError as error:
                    raise unread(error, self._path) from error
                self._looked = time.monotonic()
        return self.offset

    def catch_up(self) -> None:
        """Dispatch all records that are readable now, also between two checks of the log.

        Raises as :meth:`reach`.
        """
        # It is unknown beside an owner without a page; then the log is checked as by `reach`.
        end = self._reader.bounds.end() if may_wait() else None
        self.reach(now=end is not None and end > self.offset)

    def refresh(self, newest: bool) -> None:
        """:meth:`catch_up` if the ``newest`` messages are wanted, else :meth:`reach`."""
        if newest:
            self.catch_up()
        else:
            self.reach()

    def close(self) -> None:
        """Close the files of queues and index; a later read opens them again."""
        with self._lock:
            for each in self._dispatchers:
                each.dispatcher.close()

    def _forget(self) -> None:
        """Hide queues of removed topics; later messages of these topics are dispatched again."""
        if not self._removed:
            return
        dispatching = self._dispatching or self._begin()
        for topic, end_offset in self._removed.items():
            self._state = None  # earlier records are dispatched again
            dispatch.forget_topic(self._dispatchers, topic, end_offset)
            again = max(end_offset, self._reader.min_offset)
            dispatching.offset = min(dispatching.offset, again)
        self._removed.clear()

    def _take_in(self) -> None:
        if not self._dispatchers:
            return
        found, state = None, None if self._dispatching else self._untouched()
        dispatching = self._dispatching
        if dispatching is None:
            dispatching, found = self._begin(), self._found
        if dispatching.failure is not None:
            raise dispatching.failure
        while True:
            known = self._reader.end_now(dispatching.offset)
            if known is None and found is None:  # the end of the log is unknown
                state = self._untouched()
                if state is not None and state == self._state:
                    return
            end = found if known is None else known
            if end is not None and end <= dispatching.offset:
                break
            try:
                dispatching.run(self._reader.pieces(dispatching.offset, end))
            except OffsetOutOfRange:
                if dispatching.offset >= self._reader.min_offset:
                    raise
                continue  # deleted meanwhile: the log now begins later
            break
        self._state = state if known is None else None

    def _begin(self) -> dispatch.DispatchCursor:
        """Read the progress of the dispatchers; done at the first read: many queues take long."""
        minimum, end = self._reader.min_offset, self._reader.max_offset
        start = dispatch.resume(self._dispatchers, minimum, end)
        self._found = end
        self._dispatching = dispatch.DispatchCursor(self._path, self._dispatchers, start)
        return self._dispatching


@attrs.frozen
class ReaderWait:
    """The dispatch state of a process that dispatches on demand."""

    completion: ReaderCatchUp
    arrivals: PolledArrivals

    @classmethod
    def of(cls, log: DispatchedLog) -> ReaderWait:
        """Prepare; nothing is read yet."""
        # News are tombstones that are later than those with which the queues were built.
        seen = (getattr(each, "tombstones", None) for each in log.dispatchers.values())
        known: Mapping[str, int] = next((each for each in seen if each is not None), {})
        commitlog = log.settings.core.commitlog(log.path)
        completion = ReaderCatchUp(
            log.path,
            log.reader,
            [dispatch.NamedDispatcher(name, each) for name, each in log.dispatchers.items()],
            partial(untouched, log.files, log.path, commitlog),
            TombstoneFile(log.files, log.path, known=known),
        )
        return cls(completion, PolledArrivals(completion, PageWaiter(log.files, log.path)))

    @property
    def offset(self) -> int:
        """The offset reached by dispatching now."""
        return self.completion.reach()

    @property
    def lag(self) -> dispatch.Lag:
        """No lag: each query dispatches everything first."""
        return dispatch.Lag(0, 0)

    @property
    def failure(self) -> None:
        """``None``: these dispatchers raise from the query."""
        return None

    def wait(self, offset: int, timeout_s: float) -> bool:
        """Check repeatedly whether the log is dispatched up to ``offset``; ``False`` on timeout.

        Raises :class:`~lakelog.errors.StoreClosed` if the store is closed meanwhile.
        """
        deadline = time.monotonic() + timeout_s
        while self.offset < offset:
            if self.arrivals.closed:
                raise StoreClosed("the store was closed meanwhile")
            if time.monotonic() >= deadline:
                return False
            time.sleep(_WAIT_S)
        return True

    def close(self) -> None:
        """Wake the waiting threads, and close the files."""
        self.arrivals.close()
        self.completion.close()


def untouched(files: FileSystem, path: Path, commitlog: Path) -> object | None:
    """A value that stays equal as long as a closed store is not written.

    ``None`` if a process has the store open, since writes through a map do not change file times.
    Also ``None`` just after a write, since another write could leave the same time.
    """
    if is_owned(files, path):
        return None
    names = [name for name, _ in files.list(commitlog)]
    last = identity_at(commitlog / names[-1]) if names else None
    if last is None or time.time_ns() - last.ctime_ns < _SETTLED_NS:
        return None
    others = (identity_at(path / name) for name in (ABORT_FILE, CHECKPOINT_FILE, LOCK_FILE))
    return len(names), names[-1], last, *others
