"""Notifies waiters of new messages, in every role of a store.

An owner notifies them itself. A process without the services is woken by the owner, or else polls.
A store whose role may change moves its waiters to the signal of the new role.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, Protocol

from lakelog.dispatch import Arrivals, always
from lakelog.errors import StoreClosed
from lakelog.format.queue_offsets import Queue
from lakelog.processes.positions import PageWaiter, WakePage
from lakelog.runtime.threads import in_thread
from lakelog_queues.finding.results import QueueInfo


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

    async def wait_async(self, seen: int, is_urgent: Callable[[], bool] = always) -> None:
        """As :meth:`wait`, without a time limit and without blocking the event loop.

        :param is_urgent: while it is false, an owner may gather messages for some tens of ms
        """


FIRST_LOOK_S: Final = 0.005
LAST_LOOK_S: Final = 0.1
MOST_WAITING: Final = 2
DENSE_S: Final = 0.0005
"""A waiter woken again within this time reads a dense stream."""
_VERSIONS: Final = 1 << 64


class CurrentArrivals:
    """The signal of a store whose role may change; waiters move to the new role's signal.

    Its versions contain the role, so that versions of two roles never compare equal.

    :param of: returns the current signal
    """

    def __init__(self, of: Callable[[], ArrivalSignal]) -> None:
        self._of = of

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

    async def wait_async(self, seen: int, is_urgent: Callable[[], bool] = always) -> None:
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


class PolledArrivals:
    """The signal in a process without the services: wake-ups by the owner, or else polling."""

    def __init__(
        self,
        refresh: Callable[[], int],
        page_waiter: PageWaiter | None = None,
        look: Callable[[], int] | None = None,
    ) -> None:
        """Keep the collaborators.

        :param refresh: dispatches new records; returns a number that changes with them
        :param page_waiter: waits for a wake-up by the owner; without it, this polls
        :param look: as ``refresh``, but never skipped; called after a wake-up
        """
        self._refresh = refresh
        self._look = look or refresh
        self._page_waiter = page_waiter
        self._waiting_count = 0
        self._grouping_s = 0.0
        self._close = Arrivals()

    @property
    def version(self) -> int:
        """The result of ``refresh``."""
        return self._refresh()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._close.closed

    def close(self) -> None:
        """Wake all waiters."""
        self._close.close()
        if self._page_waiter is not None:
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
            before, asked = asked, self._ask()
            if asked is None or before is not None:
                self._close.wait(0, min(pause, left))
                pause = min(2 * pause, LAST_LOOK_S)

    def _ask(self) -> tuple[WakePage, int] | None:
        """Set the waiting flag, so that no arrival after the next check is missed."""
        return None if self._page_waiter is None else self._page_waiter.ask()

    def _wait_on_page(self, asked: tuple[WakePage, int], left_s: float) -> bool:
        """Sleep until woken.

        In a dense stream it then sleeps a little longer, so that messages arrive in groups. This
        costs less per message, for the owner too.
        """
        if self._grouping_s:
            self._close.wait(0, min(self._grouping_s, left_s))
        begun = time.monotonic()
        slept = self._page_waiter is not None and self._page_waiter.sleep(asked, left_s)
        dense = time.monotonic() - begun < DENSE_S
        self._grouping_s = min(max(2 * self._grouping_s, DENSE_S), FIRST_LOOK_S) if dense else 0.0
        return slept

    async def wait_async(
        self,
        seen: int,
        is_urgent: Callable[[], bool] = always,  # noqa: ARG002  # the owner decides
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        """As :meth:`wait`, in an event loop, by using its threads.

        Only a few waiters may occupy a thread at once, since a loop has few; the others poll.
        """
        import asyncio

        pause = FIRST_LOOK_S
        while not (self.closed or over()):
            if self._page_waiter is not None and self._waiting_count < MOST_WAITING:
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
