"""Finds messages by key, through the key index, and queue offsets by store time.

By key, the source is RocketMQ 5.3.3, ``DefaultMessageStore.queryMessage``. That method returns all
messages the index points to; here topic, key and store time of each message are checked as well.

By time, the source is ``ConsumeQueue.getOffsetInQueueByTime`` and ``BoundaryType``. A binary search
reads only heads of records. It assumes that store times ascend with the queue offset. If the clock
was set back, several offsets may fit, and the search returns one of them. Units are read one at a
time, and all at once when a search has narrowed to a short range.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Literal, NamedTuple, TypeAlias

import attrs

from lakelog.arguments import (
    FOREVER_MS,
    WrongValue,
    queue_name,
    shown,
    text,
    time_ms,
    topic_name,
    whole,
)
from lakelog.errors import CorruptIndex, CorruptRecord, MissingIndex, OffsetOutOfRange
from lakelog.format.properties import KEY_SEPARATOR, KEYS, UNIQUE_KEY
from lakelog.format.queue_offsets import Queue, Units
from lakelog.hooks import KeyIndex, QueueReader
from lakelog.log.log_reader import LogReader
from lakelog.message import StoredMessage
from lakelog_queues.finding.records import PlacedRecords

DEFAULT_MESSAGES: Final = 64

_log = logging.getLogger("lakelog")


@attrs.frozen
class KeyQuery:
    """Finds messages by key.

    :ivar index: ``None`` if the store has none
    :ivar tombstone_of: returns the physical offset below which records of a topic do not count,
        because the topic was removed
    :ivar catch_up: brings the index up to the readable end of the log
    """

    index: KeyIndex | None
    log: LogReader
    tombstone_of: Callable[[str], int]
    catch_up: Callable[[], object] = lambda: None

    def query(
        self,
        topic: str,
        key: str,
        since_ms: int | None = None,
        until_ms: int | None = None,
        max_messages: int = DEFAULT_MESSAGES,
    ) -> list[StoredMessage]:
        """Messages of ``topic`` whose unique key, or one of whose keys, is ``key``; newest first.

        For a topic that was removed, only messages put since then are found. A damaged message is
        skipped and logged. At damage in the index the search ends, with a warning. Messages deleted
        by retention are skipped.

        :param since_ms: earliest store time, in ms since 1970
        :param until_ms: latest store time, inclusive

        Raises :class:`~lakelog.errors.MissingIndex`. Raises ``TypeError`` for arguments of a wrong
        type. Raises ``ValueError`` for a key with a space, times that are evidently in seconds, or
        ``max_messages`` below 1.
        """
        (begin, end), most = _times(since_ms, until_ms), whole("max_messages", max_messages, 1)
        found: list[StoredMessage] = []
        tombstone = self.tombstone_of(topic_name(topic))
        for offset in self._offsets(topic, key, begin, end):
            if len(found) >= most:
                break
            message = self._message(offset) if offset >= tombstone else None
            if message and begin <= message.store_timestamp_ms <= end and _has(message, topic, key):
                found.append(message)
        return found

    def offsets(
        self,
        topic: str,
        key: str,
        since_ms: int | None = None,
        until_ms: int | None = None,
        max_count: int = DEFAULT_MESSAGES,
    ) -> list[int]:
        """The physical offsets in the index, newest first, in the order of RocketMQ's index.

        They may include records of other keys and topics with the same hash.

        Raises :class:`~lakelog.errors.MissingIndex`.
        """
        most = whole("max_count", max_count, 1)
        return list(
            islice(self._offsets(topic, key, *_times(since_ms, until_ms)), min(most, sys.maxsize))
        )

    def _offsets(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        topic_name(topic)
        if KEY_SEPARATOR in text("key", key, "order-42"):
            raise WrongValue(
                f"key {key!r} contains a space, which separates keys in RocketMQ; query one key at "
                "a time"
            )
        if self.index is None:
            raise MissingIndex(
                "messages cannot be found by key without an index; install lakelog-hash-index, "
                "and add 'hash-index' to the setting 'dispatchers'"
            )
        self.catch_up()
        seen: set[int] = set()
        try:
            for offset in self.index.offsets(topic, key, begin_ms, end_ms):
                if offset not in seen:
                    seen.add(offset)
                    yield offset
        except CorruptIndex as error:
            _log.warning("%s; the query returns only messages found before the damage", error)

    def _message(self, offset: int) -> StoredMessage | None:
        try:
            return self.log.look_up(offset)
        except (CorruptRecord, OffsetOutOfRange) as error:
            if offset >= self.log.oldest_offset:  # retention deletes the log before its index files
                _log.warning("the key index points to no whole record; it was skipped: %s", error)
            return None


def _times(since_ms: int | None, until_ms: int | None) -> tuple[int, int]:
    begin = 0 if since_ms is None else time_ms("since_ms", since_ms)
    end = FOREVER_MS if until_ms is None else time_ms("until_ms", until_ms)
    if begin > end:
        raise WrongValue(f"since_ms {begin} is later than until_ms {end}; exchange them")
    return begin, end


def _has(message: StoredMessage, topic: str, key: str) -> bool:
    if message.topic != topic:
        return False
    properties = message.properties  # kept: each access parses the string
    keys = properties.get(KEYS, "").split(KEY_SEPARATOR)
    return properties.get(UNIQUE_KEY) == key or (key != "" and key in keys)


_AT_ONCE: Final = 4096
"""Number of units (80 KiB) whose reading takes no longer than a few reads of one unit."""

Boundary: TypeAlias = Literal["lower", "upper"]


class TimedRecord(NamedTuple):
    """A readable message.

    :ivar offset: its queue offset
    :ivar behind: the queue offset of the next message
    :ivar time_ms: its store time, in ms since 1970
    """

    offset: int
    behind: int
    time_ms: int


@attrs.define(eq=False)
class Heads:
    """Reads store times of one queue; made for each search."""

    _queues: QueueReader
    _log: PlacedRecords
    _queue: Queue
    _held: Units | None = None

    def narrow(self, low: int, high: int) -> None:
        """Restrict later calls to queue offsets from ``low`` to ``high``; may read units ahead."""
        if self._held is None and high - low <= _AT_ONCE:
            self._held = self._queues.units(self._queue, low, high - low)

    def first_readable(self, start: int, end: int) -> TimedRecord | None:
        """The first readable message at or after queue offset ``start`` and before ``end``."""
        while start < end:
            units, at = self._at(start)
            if at == len(units):
                return None
            number = int(units.queue_offsets[at])
            if number >= end:  # there is no unit before `end`
                return None
            behind = number + max(int(units.counts[at]), 1)
            time = self._log.store_time_ms(int(units.offsets[at]), int(units.sizes[at]))
            if time is not None:
                return TimedRecord(number, behind, time)
            start = max(behind, start + 1)
        return None

    def _at(self, start: int) -> tuple[Units, int]:
        """Units, and the index among them of the unit at a queue offset, or else of the next."""
        held = self._held
        if held is not None and len(held):
            at = int(held.queue_offsets.searchsorted(start, "right")) - 1
            if at >= 0 and start < int(held.queue_offsets[at]) + int(held.counts[at]):
                return held, at
        return self._queues.units(self._queue, start, 1), 0


@attrs.frozen
class TimeSearch:
    """Finds queue offsets by time.

    :ivar minimum: returns the physical offset of the first byte still in the log
    """

    queues: QueueReader
    log: PlacedRecords
    minimum: Callable[[], int]

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = "lower"
    ) -> int:
        """The queue offset for a store time in ms since 1970.

        ``lower`` is the first message stored at that time or later; if there is none, the end of
        the queue. ``upper`` is the last message stored at that time or earlier; if there is none,
        the first offset of the queue. For a time between two messages, ``upper`` is therefore less
        than ``lower``, as in RocketMQ. The result is 0 if the queue does not exist. Messages that
        cannot be read are skipped.

        Raises ``TypeError`` for arguments of a wrong type. Raises ``ValueError`` for a time that is
        evidently in seconds, an unknown boundary, or a queue id below 0.
        """
        timestamp_ms = time_ms("timestamp_ms", timestamp_ms)
        if not isinstance(boundary, str) or boundary not in ("lower", "upper"):
            raise WrongValue(f"boundary {shown(boundary)} is unknown; give 'lower' or 'upper'")
        bounds = self._bounds(topic, queue_id)
        if bounds is None:
            return 0
        first, end = bounds
        heads = Heads(self.queues, self.log, (topic, queue_id))
        if boundary == "lower":
            return _search(heads, first, end, lambda ms: ms >= timestamp_ms)[1]
        return max(first, _search(heads, first, end, lambda ms: ms > timestamp_ms)[0])

    def earliest_time(self, topic: str, queue_id: int) -> int | None:
        """The store time of the first readable message, in ms; ``None`` if there is none."""
        bounds = self._bounds(topic, queue_id)
        if bounds is None:
            return None
        found = Heads(self.queues, self.log, (topic, queue_id)).first_readable(*bounds)
        return None if found is None else found.time_ms

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        return self.queues.bounds(queue_name(topic, queue_id), self.minimum())


def _search(heads: Heads, low: int, high: int, is_behind: Callable[[int], bool]) -> tuple[int, int]:
    """The last message for which ``is_behind`` is false, and the first for which it is true.

    Queue offsets; ``low`` and ``high`` if there is no such message.
    """
    before, behind = low, high
    # A message that cannot be read has no time. So each step looks at the first readable message
    # from the middle on; if there is none, the upper half is dropped. After a message before the
    # boundary, the search continues at `found.behind`, past the unreadable ones.
    while low < high:
        heads.narrow(low, high)
        middle = (low + high) // 2
        found = heads.first_readable(middle, high)
        if found is None:
            high = middle
        elif is_behind(found.time_ms):
            behind, high = found.offset, middle
        else:
            before, low = found.offset, found.behind
    return before, behind
