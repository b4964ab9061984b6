"""Lends the connections to the threads of puts that wait for copies one by one.

Without lending, such a put wakes the thread of the connections twice and is woken once by it. Each
thread switch costs as much as the rest of the put. So the thread of the connections lends them: the
putting thread sends its bytes itself, and reads reports until enough slaves have the bytes. The
thread of the connections serves them only while no put does. It takes them back when the putting
thread alone cannot do all the work: a second put waits, another process appends to the log, or a
socket takes no more bytes.

A putting thread may be the main thread, where a signal handler may raise anywhere. The state of a
connection stays consistent then (:mod:`.link`). A handler may itself put while it interrupts a use
of the connections. That put gets ``FLUSH_SLAVE_TIMEOUT``: the thread of the connections cannot use
them before the handler returns.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Set
from contextlib import suppress
from threading import RLock
from typing import Final, Protocol

from lakelog.hooks import CopyProgress

LENT_SECONDS: Final = 0.005
"""Interval at which the thread of the connections checks them while they are lent."""
_REST_SECONDS: Final = 1.0
"""Time without a put after which the connections are taken back."""
_SLOW_SECONDS: Final = 0.02
"""The connections are taken back from a put that waits for longer."""
_NAP_SECONDS: Final = 0.05
_LONE_PUTS: Final = 8
"""Number of consecutive puts that waited alone, after which the connections are lent."""


class Lendable(Protocol):
    """The connections that :class:`Lending` lends."""

    def may_be_lent(self) -> bool:
        """Whether the putting threads alone can do all the work of the connections."""

    def has_more(self) -> bool:
        """Whether the log has bytes that were not sent."""

    def send(self) -> object:
        """Send the bytes that were not sent, as far as the sockets take them."""

    def take_reports(self, descriptors: Set[int]) -> None:
        """Read the reports that the sockets with these descriptors received."""


class Lending:
    """Decides which thread uses the connections; thread-safe.

    :ivar is_lent: whether a put that waits may call :meth:`drive`
    :ivar use_lock: held by the thread that uses the connections
    """

    def __init__(self, connections: Lendable, wake: Callable[[], object]) -> None:
        """Prepare.

        :param wake: wakes the thread of the connections
        """
        self.is_lent = False
        self.use_lock = RLock()
        self._connections = connections
        self._wake = wake
        self._drive_lock = RLock()
        self._holds_use_lock: Callable[[], bool] = self.use_lock._is_owned  # type: ignore[attr-defined]  # threading.Condition calls it, too; no public method returns the holder
        self._holds_drive_lock: Callable[[], bool] = self._drive_lock._is_owned  # type: ignore[attr-defined]  # as above
        self._lone_puts = 0
        self._driven_s = 0.0
        self._is_over = False
        self._recall = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._reports = select.epoll()
        self._reports.register(self._recall, select.EPOLLIN)

    # --- the thread of the connections ---

    def add(self, descriptor: int) -> None:
        """Poll one more socket for reports, until it is closed."""
        self._reports.register(descriptor, select.EPOLLIN)

    def lend(self) -> None:
        """Lend the connections if puts wait one by one, and the connections have no other work."""
        if self._lone_puts < _LONE_PUTS or not self._connections.may_be_lent():
            return
        with suppress(BlockingIOError):
            os.eventfd_read(self._recall)
        self._lone_puts, self._driven_s, self.is_lent = 0, time.monotonic(), True
        if not self._connections.may_be_lent():  # a put that waits has not seen that
            self.take_back()

    def take_back(self) -> None:
        """End the loan; wake the putting thread, so that it does not miss a report."""
        self.is_lent = False
        os.eventfd_write(self._recall, 1)

    def serve_if_idle(self, serve: Callable[[], object]) -> None:
        """Call ``serve`` if no put uses the connections; take them back after a rest or a slow put.

        :param serve: serves the connections once, without waiting
        """
        rests_s = time.monotonic() - self._driven_s
        if rests_s >= _REST_SECONDS or not self._connections.may_be_lent():
            self.take_back()
        elif rests_s < LENT_SECONDS:
            return
        elif self._drive_lock.acquire(blocking=False):
            # No put may drive meanwhile: it would miss the reports that are read here.
            try:
                serve()
            finally:
                self._drive_lock.release()
        elif rests_s >= _SLOW_SECONDS:
            self.take_back()

    def drop(self) -> None:
        """Close the descriptors; no thread may use the connections afterwards."""
        self._is_over, self.is_lent = True, False
        os.close(self._recall)
        self._reports.close()

    # --- the threads of puts ---

    def joined(self, *, is_alone: bool) -> None:
        """Note a put that waits for the thread of the connections.

        :param is_alone: whether it is the only one, and may call :meth:`drive` the next time
        """
        self._lone_puts = self._lone_puts + 1 if is_alone else 0
        if self.is_lent:
            self._wake()

    def send(self) -> bool:
        """Send in this thread if the connections are lent; return whether they are still lent."""
        if self.is_lent:
            self._use(self._connections.send)
        return self.is_lent

    def drive(self, copies: CopyProgress, end_offset: int, deadline: float) -> bool:
        """Send, and read reports, until enough slaves have the log up to ``end_offset``.

        :param end_offset: physical offset in bytes
        :param deadline: seconds of ``time.monotonic``
        :returns: ``False`` on timeout, and if the put must wait for the thread of the connections

        Raises ``OSError``.
        """
        driving = self._drive_lock
        if self._holds_use_lock():  # a signal handler has interrupted their use
            return False
        try:
            if not driving.acquire(blocking=False):
                return False
            while copies.end < end_offset:
                left = deadline - time.monotonic()
                if left <= 0 or not self._drive(min(left, _NAP_SECONDS)):
                    return False
        finally:
            if self._holds_drive_lock():
                driving.release()
        return True

    def _drive(self, timeout_s: float) -> bool:
        """Send the unsent bytes, and wait for a report; return whether to continue."""
        connections = self._connections
        if connections.has_more():
            self._use(connections.send)
        if not self.is_lent:
            return False
        self._driven_s = time.monotonic()
        try:
            ready = self._reports.poll(timeout_s)
        except (OSError, ValueError):
            if self._is_over:
                return False
            raise
        if ready:
            self._use(lambda: connections.take_reports({each for each, _ in ready}))
        return True

    def _use(self, work: Callable[[], object]) -> None:
        """Call ``work`` in this thread, unless another thread uses the connections."""
        use_lock = self.use_lock
        if self._holds_use_lock():
            return
        try:
            if use_lock.acquire(blocking=False) and self.is_lent:
                work()
        finally:
            if self._holds_use_lock():
                use_lock.release()
