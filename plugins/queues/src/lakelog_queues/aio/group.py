"""A member of a consumer group for event loops."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final

from lakelog.errors import StoreClosed
from lakelog.format.queue_offsets import Queue
from lakelog.runtime.threads import in_thread
from lakelog_format.arguments import span_ms, whole
from lakelog_queues.arrivals import ArrivalSignal
from lakelog_queues.groups.consumer import BATCH_MESSAGES, GroupConsumer
from lakelog_queues.groups.delivery import Delivery

_NAP_MS: Final = 500.0


class AsyncGroupConsumer:
    """The asynchronous form of :class:`~lakelog.GroupConsumer`; any task may use it.

    A cancelled poll loses no message: the next one returns what it fetched.

    :ivar group: the consumer group
    :ivar member: the number of this member in the store
    """

    def __init__(self, consumer: GroupConsumer, arrivals: ArrivalSignal) -> None:
        self.group = consumer.group
        self.member = consumer.member
        self._consumer = consumer
        self._arrivals = arrivals
        self._fetched: deque[Delivery] = deque()
        self._closed = False

    async def poll(self, max_messages: int = BATCH_MESSAGES, wait_ms: float = 0) -> list[Delivery]:
        """The next messages of this member's queues; empty on timeout."""
        most, wait = whole("max_messages", max_messages, 1), span_ms("wait_ms", wait_ms)
        deadline = time.monotonic() + wait / 1000
        while True:
            found = self._ready(most)
            if found:
                return found
            seen, nap_s = await in_thread(self._look, most)
            found, left = self._ready(most), deadline - time.monotonic()
            if found or left <= 0 or self._arrivals.closed:
                return found
            try:
                await asyncio.wait_for(self._arrivals.wait_async(seen), min(left, nap_s))
            except TimeoutError:
                continue

    def _look(self, most: int) -> tuple[int, float]:
        """Fetch, in a thread; return the version of arrivals before, and the longest wait."""
        seen = self._arrivals.version
        self._fetched.extend(self._consumer.fetch(most))
        return seen, self._consumer.nap_s()

    def _ready(self, most: int) -> list[Delivery]:
        """Fetched messages whose time is not over."""
        found: list[Delivery] = []
        while self._fetched and len(found) < most:
            each = self._fetched.popleft()
            if each.visible_ms > time.time_ns() // 1_000_000:
                found.append(each)
        return found

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        """Yield messages as they arrive, until the consumer or its store is closed."""
        while not (self._closed or self._arrivals.closed):
            try:
                found = await self.poll(1, _NAP_MS)
            except StoreClosed:
                return
            for each in found:
                yield each

    async def ack(self, *deliveries: Delivery) -> bool:
        """As :meth:`GroupConsumer.ack <lakelog.GroupConsumer.ack>`."""
        return await in_thread(self._consumer.ack, *deliveries)

    async def nack(self, delivery: Delivery, delay_ms: float | None = None) -> bool:
        """As :meth:`GroupConsumer.nack <lakelog.GroupConsumer.nack>`."""
        return await in_thread(self._consumer.nack, delivery, delay_ms)

    async def renew(self, delivery: Delivery, invisible_ms: float | None = None) -> bool:
        """As :meth:`GroupConsumer.renew <lakelog.GroupConsumer.renew>`."""
        return await in_thread(self._consumer.renew, delivery, invisible_ms)

    async def commit(self) -> None:
        """As :meth:`GroupConsumer.commit <lakelog.GroupConsumer.commit>`."""
        await in_thread(self._consumer.commit)

    def assigned(self) -> list[Queue]:
        """Topic and queue id of each queue in which this member looks for messages."""
        return self._consumer.assigned()

    async def close(self) -> None:
        """Leave the group, and commit; messages not acknowledged are visible at once."""
        self._closed = True
        await asyncio.shield(in_thread(self._consumer.close))

    async def __aenter__(self) -> AsyncGroupConsumer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
