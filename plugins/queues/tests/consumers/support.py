"""Queues in memory, with the results of a store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lakelog.dispatch.arrivals import Arrivals
from lakelog.files.filesystem import RealFileSystem
from lakelog.message import StoredMessage
from lakelog_queues.consumers.consumer import Consumer
from lakelog_queues.consumers.offsettable import OffsetTable
from lakelog_queues.consumers.queueaccess import QueueAccess
from lakelog_queues.finding.results import GetResult, GetStatus


def a_message(
    queue_id: int, offset: int, tag: str = "A", topic: str = "T", time_ms: int = 0
) -> StoredMessage:
    return StoredMessage(
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        physical_offset=0,
        size=0,
        magic=0,
        body=b"%d/%d" % (queue_id, offset),
        body_crc=0,
        properties_bytes=b"TAGS\x01" + tag.encode(),
        flag=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host="",
        store_timestamp_ms=time_ms or 1000 * offset,
        store_host="",
        reconsume_times=0,
        prepared_transaction_offset=0,
    )


class Queues:
    """The queues of topic ``T``; message ``n`` was stored ``n`` seconds after 1970."""

    def __init__(self, *lengths: int) -> None:
        self.held = {q: [a_message(q, n) for n in range(count)] for q, count in enumerate(lengths)}
        self.first = dict.fromkeys(self.held, 0)
        self.arrivals = Arrivals()
        self.asked: list[tuple[int, int]] = []
        self.on_get: Callable[[], None] | None = None

    def put(self, queue_id: int, tag: str = "A") -> None:
        queue = self.held.setdefault(queue_id, [])
        self.first.setdefault(queue_id, 0)
        queue.append(a_message(queue_id, len(queue), tag))
        self.arrivals.notify()

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        if topic != "T" or queue_id not in self.held:
            return None
        return self.first[queue_id], len(self.held[queue_id])

    def get(
        self, topic: str, queue_id: int, offset: int, max_messages: int, *, tags: str | None
    ) -> GetResult:
        self.asked.append((queue_id, max_messages))
        bounds = self.bounds(topic, queue_id)
        if bounds is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, [], 0, 0, 0)
        low, high = bounds
        if offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, [], low, low, high)
        if offset == high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, [], high, low, high)
        if offset > high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, [], high, low, high)
        read = self.held[queue_id][offset : offset + max_messages]
        found = [each for each in read if tags in (None, each.tags)]
        status = GetStatus.FOUND if found else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, found, offset + len(read), low, high)

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int) -> int:
        assert self.bounds(topic, queue_id) is not None
        return -(-time_ms // 1000)

    def access(self) -> QueueAccess:
        return QueueAccess(
            self.get,
            lambda topic: sorted(self.held) if topic == "T" else [],
            self.bounds,
            self.offset_by_time,
            self.arrivals,
        )


def a_table(path: Path, **more: Any) -> OffsetTable:
    return OffsetTable(RealFileSystem(), path, **more)


def a_consumer(
    queues: Queues, path: Path, queue_ids: list[int] | None = None, **more: Any
) -> Consumer:
    offsets = more.pop("offsets", None) or a_table(path)
    given = {"start": "earliest", **more}
    return Consumer("g", "T", queue_ids, queues.access(), offsets, **given)


def places(messages: list[StoredMessage]) -> list[str]:
    return [each.body.decode() for each in messages]
