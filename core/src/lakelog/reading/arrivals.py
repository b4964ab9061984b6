"""Tells those who wait for messages that something new can be read."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition


class Arrivals:
    """A version that grows whenever something was dispatched.

    :ivar version: what to hand to :meth:`wait`; read it before looking for messages
    """

    def __init__(self) -> None:
        self.version = 0
        self._changed = Condition()
        self._listeners: list[Callable[[], None]] = []
        self._closed = False

    def notify(self) -> None:
        """Something new can be read."""
        with self._changed:
            self.version += 1
            self._changed.notify_all()
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def close(self) -> None:
        """Wake everybody; nothing more will come."""
        self._closed = True
        self.notify()

    def wait(self, seen: int, timeout_s: float) -> int:
        """Sleep until something came after version ``seen``; the version now."""
        with self._changed:
            self._changed.wait_for(lambda: self.version > seen or self._closed, timeout_s)
            return self.version

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after each change, in the thread that dispatches; ends it by a call."""
        with self._changed:
            self._listeners.append(listener)
        return lambda: self._unsubscribe(listener)

    def _unsubscribe(self, listener: Callable[[], None]) -> None:
        with self._changed:
            if listener in self._listeners:
                self._listeners.remove(listener)
