"""The signal that messages were dispatched, as waiters use it in every role of a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lakelog.dispatch.arrivals import always


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
