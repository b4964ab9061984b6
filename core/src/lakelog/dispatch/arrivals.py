"""Notifies waiters that messages were dispatched, or that no more will come.

A version counts the notifications. A waiter that reads the version before it reads messages cannot
miss a notification, however late it starts to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Condition


def always() -> bool:
    """Return ``True``: the default of ``is_urgent``."""
    return True


class Arrivals:
    """The notifications of an owner; thread-safe.

    :ivar on_wait: called when a wait begins, in the waiting thread
    """

    def __init__(self) -> None:
        self.on_wait: Callable[[], None] = _nobody
        self._condition = Condition()
        self._version = 0
        self._waiting = 0
        self._closed = False
        self._listeners: dict[object, tuple[Callable[[], object], Callable[[], bool]]] = {}

    @property
    def version(self) -> int:
        """The number of calls of :meth:`notify`."""
        return self._version

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    @property
    def has_waiters(self) -> bool:
        """Whether there are waiters, or urgent listeners."""
        return bool(self._waiting) or any(urgent() for _, urgent in tuple(self._listeners.values()))

    def notify(self) -> None:
        """Notify the waiters that new messages can be read."""
        with self._condition:
            self._version += 1
            if self._waiting:
                self._condition.notify_all()
            listeners = tuple(self._listeners.values())
        for listener, _ in listeners:
            with suppress(RuntimeError):  # the event loop was closed meanwhile
                listener()

    def close(self) -> None:
        """Wake all present and future waiters: no more messages will come."""
        self._closed = True
        self.notify()

    def wait(self, seen: int, timeout_s: float) -> int:
        """Sleep until the version differs from ``seen``, on timeout, or until :meth:`close`.

        :returns: the version on return
        """
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

    async def wait_async(self, seen: int, is_urgent: Callable[[], bool] = always) -> None:
        """As :meth:`wait` without a timeout, in an event loop; uses no thread.

        :param is_urgent: as in :meth:`subscribe`
        """
        import asyncio

        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        unsubscribe = self.subscribe(lambda: loop.call_soon_threadsafe(arrived.set), is_urgent)
        try:
            while self._version == seen and not self._closed:
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
        with self._condition:
            self._listeners[key] = listener, is_urgent
        self.on_wait()
        return lambda: self._listeners.pop(key, None)


def _nobody() -> None:
    """Do nothing: there is no listener."""
