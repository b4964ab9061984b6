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

FIRST_LOOK_S: Final = 0.005
LAST_LOOK_S: Final = 0.1


class Waiting(Protocol):
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
        """Sleep until the version is not ``seen``; see :class:`Waiting`."""
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


def _ignore(_handle: object) -> None:
    """What it returns is not needed."""


def _tell(listener: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # an event loop that was closed meanwhile
        listener()


class PolledArrivals:
    """For a store that is open for reading: nobody tells it, so it looks again and again.

    :param refresh: takes in what is there by now; returns a number that changes with it
    """

    def __init__(self, refresh: Callable[[], int]) -> None:
        self._refresh = refresh
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

    def wait(self, seen: int, timeout_s: float) -> int:
        """Look after 5 ms, then less and less often, down to every 100 ms."""
        end, pause = time.monotonic() + timeout_s, FIRST_LOOK_S
        while True:
            found = self._refresh()
            left = end - time.monotonic()
            if found != seen or self.closed or left <= 0:
                return found
            self._close.wait(0, min(pause, left))
            pause = min(2 * pause, LAST_LOOK_S)

    async def wait_async(self, seen: int) -> None:
        """As :meth:`wait` looks, in an event loop; each look is made in a thread."""
        import asyncio

        pause = FIRST_LOOK_S
        while not self.closed and await asyncio.to_thread(self._refresh) == seen:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_LOOK_S)
