"""Queues in memory over a real store, with the places of its records by a scan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from lakelog import Message, Store
from lakelog.format.layout import is_queued
from lakelog.format.queue_offsets import Queue, Units
from lakelog.log.log_reader import LogReader
from lakelog_queues.finding.get import QueueGetter
from lakelog_queues.finding.records import PlacedRecords
from lakelog_queues.finding.search import TimeSearch
from lakelog_queues.units.tags import java_hash

Unit = tuple[int, int, int, int, int]
"""Queue offset, offset, size, tags code, count."""


class QueuesInMemory:
    """A :class:`~lakelog.hooks.QueueReader` over lists of units, which tests may change."""

    def __init__(self, kind: str = "SimpleCQ") -> None:
        self.of: dict[Queue, list[Unit]] = {}
        self.unreadable: set[Queue] = set()
        self._kind = kind

    def take_in(self, store: Store) -> None:
        """Read the whole log again."""
        self.of.clear()
        for each in store.scan():
            if is_queued(each.sys_flag):
                queue = self.of.setdefault((each.topic, each.queue_id), [])
                tags = java_hash(each.tags or "")
                queue.append((each.queue_offset, each.physical_offset, each.size, tags, 1))

    def queues(self) -> Sequence[Queue]:
        return list(self.of)

    def bounds(self, queue: Queue, minimum: int) -> tuple[int, int] | None:
        units = self.of.get(queue)
        if units is None:
            return None
        if not units:
            return 0, 0
        end = units[-1][0] + units[-1][4]
        return next((unit[0] for unit in units if unit[1] >= minimum or unit[1] < 0), end), end

    def units(self, queue: Queue, first: int, count: int) -> Units:
        found: Iterable[Unit] = self.of.get(queue, ()) if queue not in self.unreadable else ()
        rows = [unit for unit in found if unit[0] + unit[4] > first][:count]
        if not rows or rows[0][0] > first:
            rows = []
        table = np.array(rows, np.int64).reshape(-1, 5)
        numbers, offsets, sizes, tags, counts = table.T
        return Units(numbers, offsets, sizes.astype(np.int32), tags, counts.astype(np.int32))

    def kind(self, queue: Queue) -> str:
        return self._kind


def getter_of(store: Store, queues: QueuesInMemory) -> QueueGetter:
    log = log_of_store(store)
    return QueueGetter(queues, log, lambda: log.min_offset)


def times_of(store: Store, queues: QueuesInMemory) -> TimeSearch:
    log = log_of_store(store)
    return TimeSearch(queues, PlacedRecords(log), lambda: log.min_offset)


def log_of_store(store: Store) -> LogReader:
    return store._reader


def put_numbered(store: Store, count: int, topic: str = "t", **more: object) -> None:
    """Put messages of about 300 bytes whose bodies start with their number."""
    messages = [
        Message(topic, b"%06d" % number + b"." * 150, queue_id=0, **more)  # type: ignore[arg-type]  # any field by name
        for number in range(count)
    ]
    for start in range(0, count, 20):
        store.put_batch(messages[start : start + 20])
