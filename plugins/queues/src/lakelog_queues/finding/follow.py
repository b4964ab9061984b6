"""Reads a queue and waits for new messages at its end, in threads and in an event loop."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, NamedTuple

import attrs

from lakelog.arguments import span_ms, whole
from lakelog.message import StoredMessage
from lakelog.runtime.threads import in_thread
from lakelog_queues.finding.results import GetResult, GetStatus
from lakelog_queues.readers import ArrivalSignal

BATCH_MESSAGES: Final = 256
_WORTH_WAITING: Final = {
    GetStatus.OFFSET_OVERFLOW_ONE,
    GetStatus.NO_MESSAGE_IN_QUEUE,
    GetStatus.NO_MATCHED_LOGIC_QUEUE,
}
_AT_THE_END: Final = _WORTH_WAITING | {GetStatus.OFFSET_OVERFLOW_BADLY}
_LONG_S: Final = 3600.0


class GetRequest(NamedTuple):
    """The arguments of one read; the getter validates them."""

    topic: str
    queue_id: int
    offset: int
    max_messages: int = 32
    max_bytes: int | None = None
    tags: str | None = None


@attrs.frozen
class QueueFollower:
    """Reads queues and waits for new messages.

    :ivar read_now: reads without waiting, as ``QueueGetter.get``
    :ivar arrivals: signals new messages, and the close of the store
    """

    read_now: Callable[..., GetResult]
    arrivals: ArrivalSignal

    def get(self, request: GetRequest, wait_ms: int = 0) -> GetResult:
        """Long polling: return the getter's result once there is a message, or at the timeout.

        Waits at the end of a queue, and for a queue that does not exist yet. After messages with
        other tags it continues at the next ones; ``next_offset`` advances with it. Any other status
        is returned at once.
        """
        end = time.monotonic() + span_ms("wait_ms", wait_ms) / 1000
        while True:
            seen = self.arrivals.version
            result = self._get(request)
            left = end - time.monotonic()
            if left <= 0 or _is_answer(result) or self.arrivals.closed:
                return result
            request = _onward(request, result)
            if result.status in _WORTH_WAITING:
                self.arrivals.wait(seen, left)

    async def get_async(self, request: GetRequest, wait_ms: int = 0) -> GetResult:
        """:meth:`get` for an event loop: files are read in a thread, and no thread waits."""
        import asyncio

        end = time.monotonic() + span_ms("wait_ms", wait_ms) / 1000
        while True:
            seen, result = await in_thread(self._look, request)
            left = end - time.monotonic()
            if left <= 0 or _is_answer(result) or self.arrivals.closed:
                return result
            request = _onward(request, result)
            if result.status in _WORTH_WAITING:
                try:
                    await asyncio.wait_for(self.arrivals.wait_async(seen), left)
                except TimeoutError:
                    return result

    def read(
        self,
        topic: str,
        queue_id: int,
        start: int | None = None,
        *,
        follow: bool = False,
        tags: str | None = None,
        batch: int = BATCH_MESSAGES,
    ) -> Iterator[StoredMessage]:
        """Yield the messages of a queue in order, to its end.

        :param start: a queue offset; ``None`` is the first existing one. An offset before that
            means the first existing one. From an offset past the end, reading starts once the queue
            has reached it
        :param follow: wait for more at the end, until the store is closed
        :param tags: ``"TagA || TagB"``; ``None`` and ``"*"`` mean all messages
        :param batch: number of messages read at a time
        """
        request = GetRequest(topic, queue_id, _first(start), batch, None, tags)
        while True:
            # Both are read before the messages: a message that arrives later changes the version,
            # so the wait below returns at once, and the last messages before a close are not lost.
            seen, ended = self.arrivals.version, self.arrivals.closed
            result = self._get(request)
            yield from result.messages
            if result.status not in _AT_THE_END:
                request = _onward(request, result)
            elif not follow or ended:
                return
            else:
                self.arrivals.wait(seen, _LONG_S)

    async def read_async(
        self,
        topic: str,
        queue_id: int,
        start: int | None = None,
        *,
        follow: bool = False,
        tags: str | None = None,
        batch: int = BATCH_MESSAGES,
    ) -> AsyncIterator[StoredMessage]:
        """:meth:`read` for an event loop: files are read in a thread, and no thread waits."""
        request = GetRequest(topic, queue_id, _first(start), batch, None, tags)
        while True:
            ended = self.arrivals.closed
            seen, result = await in_thread(self._look, request)
            for message in result.messages:
                yield message
            if result.status not in _AT_THE_END:
                request = _onward(request, result)
            elif not follow or ended:
                return
            else:
                await self.arrivals.wait_async(seen)

    def _look(self, request: GetRequest) -> tuple[int, GetResult]:
        """The version of the arrivals before the read, and the result of the read."""
        seen = self.arrivals.version
        return seen, self._get(request)

    def _get(self, request: GetRequest) -> GetResult:
        *queue, max_bytes, tags = request
        return self.read_now(*queue, max_bytes=max_bytes, tags=tags)


def _first(start: int | None) -> int:
    return 0 if start is None else whole("start", start)


def _is_answer(result: GetResult) -> bool:
    return result.status not in _WORTH_WAITING | {GetStatus.NO_MATCHED_MESSAGE}


def _onward(request: GetRequest, result: GetResult) -> GetRequest:
    """The request that continues after ``result``; at the end of a queue, the same request."""
    if result.status in _AT_THE_END:
        return request
    # After OFFSET_FOUND_NULL, next_offset is the start of the next file, perhaps past the end.
    return request._replace(offset=min(result.next_offset, result.max_offset))
