"""A consumer for event loops: threads read files, and no thread waits for messages.

A member of a consumer group for event loops.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar

from lakelog.arguments import span_ms, whole
from lakelog.errors import StoreClosed
from lakelog.format.queue_offsets import Queue
from lakelog.message import StoredMessage
from lakelog.runtime.threads import in_thread
from lakelog_queues.consumers.consumer import BATCH_MESSAGES, Consumer
from lakelog_queues.consumers.queueaccess import StartPosition
from lakelog_queues.groups.consumer import GroupConsumer
from lakelog_queues.groups.delivery import Delivery
from lakelog_queues.readers.arrivals import ArrivalSignal

P = ParamSpec("P")
T = TypeVar("T")
_NAP_S: Final = 0.5
"""Interval at which a waiting consumer checks whether it was closed, or a queue was added."""


class AsyncConsumer:
    """The asynchronous form of :class:`~lakelog.Consumer`; used by one task at a time.

    A cancelled call loses no message: the next call returns what it fetched.

    :ivar group: the consumer group
    :ivar topic: the topic
    """

    def __init__(self, consumer: Consumer, arrivals: ArrivalSignal) -> None:
        self.group = consumer.group
        self.topic = consumer.topic
        self._consumer = consumer
        self._arrivals = arrivals
        self._under_way: asyncio.Future[Any] | None = None
        self._closed = False

    # --- reading ---

    async def poll(
        self, max_messages: int = BATCH_MESSAGES, wait_ms: float = 0
    ) -> list[StoredMessage]:
        """The next messages, from all queues in turn.

        :param wait_ms: longest wait for the first message
        :returns: at most ``max_messages``; empty on timeout
        """
        max_messages = whole("max_messages", max_messages, 1)
        end = asyncio.get_running_loop().time() + span_ms("wait_ms", wait_ms) / 1000
        await self._await_some(max_messages, end)
        return list(self._ready(max_messages))

    async def messages(self, *, follow: bool = True) -> AsyncIterator[StoredMessage]:
        """Yield one message after the other.

        A message counts as delivered once it is yielded. With the commit policy ``batch`` it is
        committed when the following ones are fetched.

        :param follow: wait for more at the end, until the consumer or its store is closed
        """
        while not self._closed:
            patience = _NAP_S if follow else 0
            end = asyncio.get_running_loop().time() + patience
            if not await self._await_some(BATCH_MESSAGES, end) and (
                not follow or self._arrivals.closed
            ):
                return
            for message in self._ready(BATCH_MESSAGES):
                yield message

    def __aiter__(self) -> AsyncIterator[StoredMessage]:
        """Yield all messages, then new ones as they arrive."""
        return self.messages()

    async def _await_some(self, max_messages: int, end: float) -> bool:
        """Wait until messages are ready, or until ``end``; returns whether there are any."""
        loop = asyncio.get_running_loop()
        while True:
            seen, found = await self._in_thread(self._look, max_messages)
            left = end - loop.time()
            if found or left <= 0 or self._arrivals.closed:
                return found
            try:
                await asyncio.wait_for(self._arrivals.wait_async(seen), min(left, _NAP_S))
            except TimeoutError:
                continue

    def _look(self, max_messages: int) -> tuple[int, bool]:
        """The arrivals version before the fetch, and whether the fetch found messages."""
        seen = self._arrivals.version
        return seen, self._consumer.fetch(max_messages)

    def _ready(self, most: int) -> Iterator[StoredMessage]:
        for _ in range(most):
            message = self._consumer.take()
            if message is None:
                return
            yield message

    # --- positions ---

    async def commit(self) -> None:
        """Commit the position after the last delivered message of every queue, durably."""
        await self._in_thread(self._consumer.commit)

    async def committed(self) -> dict[int, int]:
        """The committed next offset, by queue id."""
        return await self._in_thread(self._consumer.committed)

    async def seek(self, queue_id: int, offset: int) -> None:
        """Continue at ``offset`` in a queue."""
        await self._in_thread(self._consumer.seek, queue_id, offset)

    async def reset(self, to: StartPosition | int) -> None:
        """Continue at another place in all queues, and commit it."""
        await self._in_thread(self._consumer.reset, to)

    async def lag(self) -> dict[int, int]:
        """The number of messages not delivered yet, by queue id."""
        return await self._in_thread(self._consumer.lag)

    # --- end ---

    async def close(self) -> None:
        """Stop reading; with the commit policy ``batch``, commit what was delivered."""
        await self.__aexit__(None, None, None)

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an error without a commit, so that the batch is delivered again."""
        self._closed = True
        await self._in_thread(self._consumer.__exit__, kind, error, traceback)

    async def _in_thread(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run ``work`` in a thread, after any call whose task was cancelled."""
        # Cancelling a task does not stop its thread, and the consumer is not thread-safe. So the
        # next call waits for that thread first.
        while self._under_way is not None and not self._under_way.done():
            await asyncio.wait([self._under_way])
        under_way = asyncio.ensure_future(in_thread(work, *arguments, **named))
        self._under_way = under_way
        return await asyncio.shield(under_way)


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
