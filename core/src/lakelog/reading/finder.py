"""Everything that finds messages in one store, put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import attrs

from lakelog.accelerate import current
from lakelog.dispatch.arrivals import Waiting
from lakelog.dispatch.run import Named
from lakelog.errors import StoreError
from lakelog.format.queue_offsets import Queue
from lakelog.format.units import Units
from lakelog.interfaces import Dispatcher, KeyIndex, QueueReader
from lakelog.log.reading.log_reader import LogReader
from lakelog.reading.byqueue import QueueList
from lakelog.reading.bytime import TimeSearch, searching
from lakelog.reading.follow import QueueFollower
from lakelog.reading.get import QueueGetter
from lakelog.reading.plainway import plain_way
from lakelog.reading.query import KeyQuery, finding

Kind = TypeVar("Kind")


@attrs.frozen
class Finder:
    """The ways to a message.

    :ivar getter: by queue and offset
    :ivar follower: the same, and waits for what comes
    :ivar lists: which queues there are
    :ivar times: by store time
    :ivar keys: by key
    """

    getter: QueueGetter
    follower: QueueFollower
    lists: QueueList
    times: TimeSearch
    keys: KeyQuery

    @classmethod
    def over(  # what they are made of
        cls,
        path: Path,
        reader: LogReader,
        dispatchers: Sequence[Named],
        arrivals: Waiting,
        units_per_file: int,
        buried: Callable[[str], int],
        refresh: Callable[[], None] | None = None,
    ) -> Finder:
        """Put them together.

        :param buried: the offset below which records of a topic do not count: it was removed
        :param refresh: brings the dispatchers up to date before each look, where nobody else does

        Raises :class:`~lakelog.errors.StoreError` where no dispatcher keeps queues.
        """
        queues = first_of(dispatchers, QueueReader)  # type: ignore[type-abstract]  # only asked of, never made
        if queues is None:
            raise StoreError(
                "no queues are kept here: name 'consume-queue' in the setting 'dispatchers'",
                path=path,
            )
        index = first_of(dispatchers, KeyIndex)  # type: ignore[type-abstract]  # only asked of, never made
        find = finding(current(), index, reader, buried)
        if refresh is not None:
            queues = _Fresh(queues, refresh)
            index = index and _FreshIndex(index, refresh)

        def minimum() -> int:
            return reader.min_offset

        plain = plain_way(current(), queues, reader)
        getter = QueueGetter(queues, reader, minimum, units_per_file, plain)
        return cls(
            getter,
            QueueFollower(getter, arrivals),
            QueueList(queues, minimum),
            TimeSearch(queues, reader, minimum, searching(current(), queues, reader)),
            KeyQuery(index, reader, buried, find),
        )


def first_of(dispatchers: Sequence[Named], kind: type[Kind]) -> Kind | None:
    """The first dispatcher that can do what ``kind``, a Protocol, asks for."""
    found: list[Dispatcher] = [each.dispatcher for each in dispatchers]
    return next((each for each in found if isinstance(each, kind)), None)


@attrs.frozen
class _Fresh:
    """Queues that are brought up to date whenever their ends are asked for."""

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
    """A key index that is brought up to date before each question."""

    index: KeyIndex
    refresh: Callable[[], None]

    def offsets(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        self.refresh()
        return self.index.offsets(topic, key, begin_ms, end_ms)
