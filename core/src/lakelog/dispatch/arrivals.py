"""Tells those who wait that something new was dispatched, or that nothing more will come.

A version counts the news. Who remembers the one that it saw before it looked misses nothing,
however late it comes to wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from threading import Condition
from typing import Final, Protocol

from lakelog.files.pages.wake_page import Sleeper, WakePage
from lakelog.runtime.threads import in_thread

FIRST_LOOK_S: Final = 0.005
LAST_LOOK_S: Final = 0.1
MOST_DOZING: Final = 2
DENSE_S: Final = 0.0005
"""Who is woken sooner than this, reads a dense stream."""
_VERSIONS: Final = 1 << 64


class ArrivalSignal(Protocol):
    """What :class:`Arrivals` and :class:`PolledArrivals` are to those who wait."""

    @property
    def version(self) -> int:
        """Changes with each arrival."""

    @property
    def closed(self) -> bool:
        """Whether nothing more will come."""

    def wait(self, seen: int, timeout_s: float) -> int:
        """Sleep until the version is another than ``seen``, the time is over, or all is closed.

        :returns: the version by then
        """

    async def wait_async(self, seen: int) -> None:
        """Like :meth:`wait`, without an end, and without stopping the event loop."""


class CurrentArrivals:
    """Those of a store whose role may change under who waits: they go over to the new role's.

    A version tells of which role it is, so that none is taken for another role's.

    :param of: the signal as it is now
    """

    def __init__(self, of: Callable[[], ArrivalSignal]) -> None:
        self._of = of

    @property
    def version(self) -> int:
        """Changes with each arrival, and with the role."""
        return _told(signal := self._of(), signal.version)

    @property
    def closed(self) -> bool:
        """Whether nothing more will come."""
        return self._of().closed

    def wait(self, seen: int, timeout_s: float) -> int:
        """Sleep until the version is another, the time is over, or all is closed."""
        signal, (of, before) = self._of(), divmod(seen, _VERSIONS)
        if of != id(signal):
            return self.version
        if isinstance(signal, PolledArrivals):
            return _told(signal, signal.wait(before, timeout_s, lambda: self._of() is not signal))
        return _told(signal, signal.wait(before, timeout_s))

    async def wait_async(self, seen: int) -> None:
        """Like :meth:`wait`, without an end, and without stopping the event loop."""
        signal, (of, before) = self._of(), divmod(seen, _VERSIONS)
        if of != id(signal):
            return
        if isinstance(signal, PolledArrivals):
            await signal.wait_async(before, lambda: self._of() is not signal)
        else:
            await signal.wait_async(before)


def _told(signal: ArrivalSignal, version: int) -> int:
    """With whose it is; a store keeps the signals of all its roles until its end."""
    return id(signal) * _VERSIONS + version


class Arrivals:
    """The signal of an owner; every method may be called from any thread.

    :ivar on_wait: called when somebody begins to wait, in their thread
    """

    def __init__(self) -> None:
        self.on_wait: Callable[[], None] = _nobody
        self._condition = Condition()
        self._version = 0
        self._waiting = 0
        self._closed = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def version(self) -> int:
        """Counts calls of :meth:`notify`."""
        return self._version

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    @property
    def has_waiters(self) -> bool:
        """Whether somebody waits or listens."""
        return bool(self._waiting or self._listeners)

    def notify(self) -> None:
        """Something new can be read."""
        with self._condition:
            self._version += 1
            if self._waiting:
                self._condition.notify_all()
            listeners = tuple(self._listeners)
        for listener in listeners:
            _tell(listener)

    def close(self) -> None:
        """Nothing more will come: wake everybody, now and from now on."""
        self._closed = True
        self.notify()

    def wait(self, seen: int, timeout_s: float) -> int:
        """Sleep until the version is not ``seen``; see :class:`ArrivalSignal`."""
        with self._condition:
            self._waiting += 1
            try:
                self.on_wait()
                self._condition.wait_for(
                    lambda: self._version != seen or self._closed, max(timeout_s, 0)
                )
            finally:
                self._waiting -= 1
            return self._version

    async def wait_async(self, seen: int) -> None:
        """Like :meth:`wait` in an event loop; takes no thread."""
        import asyncio

        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        unsubscribe = self.subscribe(lambda: _ignore(loop.call_soon_threadsafe(arrived.set)))
        try:
            while self._version == seen and not self._closed:
                await arrived.wait()
                arrived.clear()
        finally:
            unsubscribe()

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` at each arrival and at the close; calling the result ends that.

        It is called in the thread that dispatches, so it must be quick and must not raise, as
        ``loop.call_soon_threadsafe`` is.
        """
        with self._condition:
            self._listeners.append(listener)
        self.on_wait()

        def unsubscribe() -> None:
            with self._condition, suppress(ValueError):
                self._listeners.remove(listener)

        return unsubscribe


def _nobody() -> None:
    """Nobody wants to know."""


def _never() -> bool:
    """Nothing else is to be waited for."""
    return False


def _ignore(_handle: object) -> None:
    """What it returns is not needed."""


def _tell(listener: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # an event loop that was closed meanwhile
        listener()


class PolledArrivals:
    """For those beside an owner: it wakes them, where it can; else they look again and again."""

    def __init__(
        self,
        refresh: Callable[[], int],
        sleeper: Sleeper | None = None,
        look: Callable[[], int] | None = None,
    ) -> None:
        """Keep what is needed.

        :param refresh: takes in what is there by now; returns a number that changes with it
        :param sleeper: waits for the owner to wake us; without one, we only poll
        :param look: the same as ``refresh``, for those who were woken: it looks in any case
        """
        self._refresh = refresh
        self._look = look or refresh
        self._sleeper = sleeper
        self._dozing = 0
        self._nap_s = 0.0
        self._close = Arrivals()

    @property
    def version(self) -> int:
        """What ``refresh`` gives now."""
        return self._refresh()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._close.closed

    def close(self) -> None:
        """Wake everybody who waits."""
        self._close.close()
        if self._sleeper is not None:
            self._sleeper.rouse()

    def wait(self, seen: int, timeout_s: float, over: Callable[[], bool] = _never) -> int:
        """Sleep until the owner wakes us, and look at least every 100 ms.

        Where it cannot, look after 5 ms, then less and less often.

        :param over: asked at each look whether to wait for something else
        """
        end, pause = time.monotonic() + timeout_s, FIRST_LOOK_S
        asked = None
        while True:
            found = self._look()
            left = end - time.monotonic()
            if found != seen or self.closed or left <= 0 or over():
                return found
            if asked is not None and self._doze(asked, left):
                asked = None
                continue
            before, asked = asked, self._ask()
            if asked is None or before is not None:
                self._close.wait(0, min(pause, left))
                pause = min(2 * pause, LAST_LOOK_S)

    def _ask(self) -> tuple[WakePage, int] | None:
        """Say that somebody waits; what comes before the next look is not missed then."""
        return None if self._sleeper is None else self._sleeper.ask()

    def _doze(self, asked: tuple[WakePage, int], left_s: float) -> bool:
        """Sleep until we are woken.

        Who is woken again and again at once lets more and more arrive together, at less cost for
        each, and for the owner.
        """
        if self._nap_s:
            self._close.wait(0, min(self._nap_s, left_s))
        begun = time.monotonic()
        slept = self._sleeper is not None and self._sleeper.sleep(asked, left_s)
        dense = time.monotonic() - begun < DENSE_S
        self._nap_s = min(max(2 * self._nap_s, DENSE_S), FIRST_LOOK_S) if dense else 0.0
        return slept

    async def wait_async(self, seen: int, over: Callable[[], bool] = _never) -> None:
        """As :meth:`wait`, in an event loop: threads of it wait and look.

        Few of them sleep in a thread at the same time, since a loop has few; the others poll.
        """
        import asyncio

        pause = FIRST_LOOK_S
        while not (self.closed or over()):
            if self._sleeper is not None and self._dozing < MOST_DOZING:
                found = await in_thread(self._wait_counted, seen)
            else:
                found = await in_thread(self._look)
                if found == seen:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LAST_LOOK_S)
            if found != seen:
                return

    def _wait_counted(self, seen: int) -> int:
        self._dozing += 1
        try:
            return self.wait(seen, LAST_LOOK_S)
        finally:
            self._dozing -= 1
