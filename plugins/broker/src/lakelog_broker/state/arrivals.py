"""Notifies requests that wait for messages in queues."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from lakelog.format.queue_offsets import Queue
from lakelog_queues.readers import ArrivalSignal

_URGENT_S: Final = 1.0
"""Arrivals stay urgent for this long after a request has waited, as clients repeat it."""


class ArrivalWaits:
    """Waiting requests by queue; used from one event loop.

    After an arrival, only the ends of queues with a waiting request are compared.

    :param end_of: returns the end offset of a queue, by topic and queue id
    """

    def __init__(self, arrivals: ArrivalSignal, end_of: Callable[[str, int], int]) -> None:
        self._arrivals, self._end_of = arrivals, end_of
        self._waiting: dict[Queue, set[asyncio.Event]] = {}
        self._ends: dict[Queue, int] = {}
        self._requests = 0
        self._urgent_until_s = 0.0

    async def run(self) -> None:
        """Wake waiting requests until the store is closed."""
        while not self._arrivals.closed:
            seen = self._arrivals.version
            self._wake()
            await self._arrivals.wait_async(seen, self._is_urgent)

    def _is_urgent(self) -> bool:
        return bool(self._requests) or time.monotonic() < self._urgent_until_s

    def _wake(self) -> None:
        for queue, events in list(self._waiting.items()):
            end = self._end_of(*queue)
            if end != self._ends.get(queue):
                self._ends[queue] = end
                for event in events:
                    event.set()

    def wake(self, topic: str, queue_id: int) -> None:
        """Notify the requests that wait for a queue, though it has not grown."""
        for event in self._waiting.get((topic, queue_id), ()):
            event.set()

    async def until(
        self,
        queues: Iterable[Queue],
        timeout_s: float,
        is_found: Callable[[], bool],
        *,
        is_urgent: bool = True,
    ) -> bool:
        """Call ``is_found`` now and whenever one of ``queues`` grows, until it returns true.

        :param is_urgent: false for work that may start some tens of ms after an arrival. Without an
            urgent wait, many messages are dispatched at once, which is much cheaper than a dispatch
            after each put
        :returns: the last result of ``is_found``, after ``timeout_s`` seconds at the latest
        """
        event, end = asyncio.Event(), asyncio.get_running_loop().time() + timeout_s
        watched = list(queues)
        self._requests += is_urgent
        for queue in watched:
            self._waiting.setdefault(queue, set()).add(event)
            self._ends.setdefault(queue, self._end_of(*queue))
        try:
            while not is_found():
                try:
                    async with asyncio.timeout_at(end):
                        await event.wait()
                except TimeoutError:
                    return is_found()
                event.clear()
            return True
        finally:
            self._requests -= is_urgent
            if is_urgent:
                self._urgent_until_s = time.monotonic() + _URGENT_S
            for queue in watched:
                events = self._waiting[queue]
                events.discard(event)
                if not events:
                    del self._waiting[queue], self._ends[queue]
