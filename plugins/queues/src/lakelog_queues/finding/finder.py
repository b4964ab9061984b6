"""Builds the objects that find messages in one store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import attrs

from lakelog.errors import StoreError
from lakelog.format.queue_offsets import Queue
from lakelog.format.units import Units
from lakelog.interfaces import Dispatcher, KeyIndex, QueueReader
from lakelog.log.reading.log_reader import LogReader
from lakelog_queues.arrivals import ArrivalSignal
from lakelog_queues.finding.byqueue import QueueList, ReachingQueues
from lakelog_queues.finding.bytime import TimeSearch
from lakelog_queues.finding.compiled import lookups
from lakelog_queues.finding.follow import QueueFollower
from lakelog_queues.finding.get import QueueGetter
from lakelog_queues.finding.query import KeyQuery
from lakelog_queues.finding.records import PlacedRecords
from lakelog_queues.lookups import Lookups

Kind = TypeVar("Kind")


@attrs.frozen
class Finder:
    """The objects that find messages.

    :ivar getter: by queue and offset
    :ivar follower: like ``getter``, and waits for new messages
    :ivar lists: lists topics and queues
    :ivar times: by store time
    :ivar keys: by key
    :ivar lookups: the compiled form, tried before ``times`` and ``keys``
    :ivar records: by physical offset
    """

    getter: QueueGetter
    follower: QueueFollower
    lists: QueueList
    times: TimeSearch
    keys: KeyQuery
    lookups: Lookups
    records: PlacedRecords

    @classmethod
    def over(
        cls,
        path: Path,
        reader: LogReader,
        dispatchers: Sequence[Dispatcher],
        arrivals: ArrivalSignal,
        units_per_file: int,
        tombstone_of: Callable[[str], int],
        refresh: Callable[[], None] | None = None,
    ) -> Finder:
        """Build all of them for one store.

        :param path: the store directory, for error messages
        :param tombstone_of: returns the physical offset below which records of a topic do not
            count, because the topic was removed
        :param refresh: brings the dispatchers up to date before each lookup; ``None`` if another
            thread or process does

        Raises :class:`~lakelog.errors.StoreError` if no dispatcher keeps queues.
        """
        queues = first_of(dispatchers, QueueReader)  # type: ignore[type-abstract]  # for isinstance only
        if queues is None:
            raise StoreError(
                "the store keeps no queues; add 'consume-queue' to the setting 'dispatchers'",
                path=path,
            )
        index = first_of(dispatchers, KeyIndex)  # type: ignore[type-abstract]  # for isinstance only
        compiled = lookups(queues, index, reader, tombstone_of, refresh)
        reached = queues.reached if isinstance(queues, ReachingQueues) else None
        if refresh is not None:
            queues = _Fresh(queues, refresh)
            index = index and _FreshIndex(index, refresh)

        def minimum() -> int:
            return reader.min_offset

        getter = QueueGetter(queues, reader, minimum, units_per_file, compiled)
        return cls(
            getter,
            QueueFollower(getter, arrivals),
            QueueList(queues, minimum, reached),
            TimeSearch(queues, PlacedRecords(reader), minimum),
            KeyQuery(index, reader, tombstone_of),
            compiled,
            PlacedRecords(reader),
        )


def first_of(dispatchers: Sequence[Dispatcher], kind: type[Kind]) -> Kind | None:
    """The first dispatcher that implements the Protocol ``kind``; ``None`` if there is none."""
    return next((each for each in dispatchers if isinstance(each, kind)), None)


@attrs.frozen
class _Fresh:
    """Queues that are brought up to date before each request for their list or bounds."""

    reader: QueueReader
    refresh: Callable[[], None]

    def queues(self) -> Sequence[Queue]:
        self.refresh()
        return self.reader.queues()

    def bounds(self, queue: Queue, minimum: int) -> tuple[int, int] | None:
        self.refresh()
        return self.reader.bounds(queue, minimum)

    def units(self, queue: Queue, first: int, count: int) -> Units:
        return self.reader.units(queue, first, count)

    def kind(self, queue: Queue) -> str:
        return self.reader.kind(queue)


@attrs.frozen
class _FreshIndex:
    """A key index that is brought up to date before each lookup."""

    index: KeyIndex
    refresh: Callable[[], None]

    def offsets(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        self.refresh()
        return self.index.offsets(topic, key, begin_ms, end_ms)
