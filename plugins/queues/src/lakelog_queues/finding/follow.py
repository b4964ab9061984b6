"""Reads a queue on and on, and waits at its end: in threads, and in an event loop."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Final, Protocol

import attrs

from lakelog.dispatch.arrivals import ArrivalSignal
from lakelog.message import StoredMessage
from lakelog.runtime.arguments import span_ms, whole
from lakelog.runtime.threads import in_thread
from lakelog_queues.finding.results import GetResult, GetStatus

BATCH_MESSAGES: Final = 256
_AT_THE_END: Final = frozenset(
    {
        GetStatus.OFFSET_OVERFLOW_ONE,
        GetStatus.OFFSET_OVERFLOW_BADLY,
        GetStatus.NO_MESSAGE_IN_QUEUE,
        GetStatus.NO_MATCHED_LOGIC_QUEUE,
    }
)
_WORTH_WAITING: Final = _AT_THE_END - {GetStatus.OFFSET_OVERFLOW_BADLY}
_LONG_S: Final = 3600.0


class Getter(Protocol):
    """:class:`~lakelog_queues.finding.get.QueueGetter`, as a reader sees it."""

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int = ...,
        *,
        max_bytes: int | None = None,
        tags: str | None = None,
    ) -> GetResult:
        """Messages of a queue from an offset on."""


@attrs.frozen
class GetRequest:
    """What a call of :meth:`QueueFollower.get` asks for; the getter checks it."""

    topic: str
    queue_id: int
    offset: int
    max_messages: int = 32
    max_bytes: int | None = None
    tags: str | None = None


@attrs.frozen
class QueueFollower:
    """Reads queues, and waits for what comes."""

    getter: Getter
    arrivals: ArrivalSignal

    def get(self, request: GetRequest, wait_ms: int = 0) -> GetResult:
        """Long polling: what the getter gives, as soon as there is a message or the time is over.

        It waits at the end of a queue, and for a queue that is not there yet; behind messages of
        other tags it looks on, so that ``next_offset`` may be further on. Any other status is
        returned at once.
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
        """:meth:`get` in an event loop, which goes on meanwhile."""
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
        """Messages of a queue in order, to its end, or with ``follow`` until the store is closed.

        :param start: a queue offset; ``None`` is the first one that is there. Before that, reading
            begins there; behind the end, it begins when the queue has got so far
        :param tags: ``"TagA || TagB"``; ``None`` and ``"*"`` are all
        :param batch: how many messages are taken from the store at a time
        """
        request = GetRequest(topic, queue_id, _first(start), batch, None, tags)
        while True:
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
        """:meth:`read` in an event loop: files are read in a thread, and no thread waits."""
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
        """The version before the look, and what it found."""
        seen = self.arrivals.version
        return seen, self._get(request)

    def _get(self, request: GetRequest) -> GetResult:
        return self.getter.get(
            request.topic,
            request.queue_id,
            request.offset,
            request.max_messages,
            max_bytes=request.max_bytes,
            tags=request.tags,
        )


def _first(start: int | None) -> int:
    return 0 if start is None else whole("start", start)


def _is_answer(result: GetResult) -> bool:
    return result.status not in _WORTH_WAITING | {GetStatus.NO_MATCHED_MESSAGE}


def _onward(request: GetRequest, result: GetResult) -> GetRequest:
    """Where to look next; at the end of a queue, the same place again."""
    if result.status in _AT_THE_END:
        return request
    # After OFFSET_FOUND_NULL the next offset may be behind the end.
    return attrs.evolve(request, offset=min(result.next_offset, result.max_offset))
