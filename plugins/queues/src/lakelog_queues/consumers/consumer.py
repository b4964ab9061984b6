"""A consumer: a member of a group that reads queues of a topic and commits its position.

Delivery is at least once: messages delivered but not committed before a crash are delivered again.
Members of a group must read different queues; lakelog does not assign them. One thread uses a
consumer at a time, except that :meth:`Consumer.close` is thread-safe.

A consumer merges its queues: its messages come in the order of the log. A message is handed out
once each queue has shown a later one, or its end. What comes into a queue after that is behind the
end of the log that was read before, and so is what is handed out next (``Fetching``).
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import accumulate
from operator import itemgetter
from typing import Final, Literal, TypeAlias

import attrs

from lakelog.arguments import WrongValue, listed, shown, span_ms, whole
from lakelog.errors import SettingsError, StoreClosed, StoreReadOnly
from lakelog.format.queue_offsets import Queue
from lakelog.message import StoredMessage
from lakelog.runtime.forks import OfThisProcess
from lakelog_queues.consumers.offsettable import CurrentOffsets, offsets_name
from lakelog_queues.finding.results import GetResult, GetStatus
from lakelog_queues.readers import ArrivalSignal
from lakelog_queues.units.tags import tag_filter

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
StartPosition: TypeAlias = str | datetime
"""``earliest``, ``latest``, or a store time with its time zone."""
_log = logging.getLogger("lakelog")
_CORRECTED: Final = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY)
CommitPolicy: TypeAlias = Literal["explicit", "batch"]
BATCH_MESSAGES: Final = 32
_NAP_S: Final = 0.5
"""Interval at which a waiting consumer checks whether it was closed."""


class Consumer(OfThisProcess):
    """Reads messages in the order of the log; created by ``Store.consumer``.

    :ivar group: the consumer group
    :ivar topic: the topic
    """

    def __init__(
        self,
        group: str,
        topic: str,
        queue_ids: Sequence[int] | None,
        access: QueueAccess,
        *,
        start: StartPosition = EARLIEST,
        commit: CommitPolicy = "explicit",
        tags: str | None = None,
    ) -> None:
        """Find the position in each queue: the committed offset, or else ``start``.

        :param queue_ids: the queues to read; ``None`` is all, including future ones
        :param start: position in a queue for which the group committed nothing. A consumer of all
            queues reads a queue that is created later from its first message.
        :param commit: ``explicit``: only by :meth:`commit`; ``batch``: the messages of a poll are
            committed when the next one begins, and at close

        Raises :class:`~lakelog.errors.SettingsError`, and ``StoreReadOnly`` for ``batch`` in a
        read-only store. Raises ``TypeError`` for arguments of a wrong type, and ``ValueError`` for
        an empty tag filter.
        """
        offsets_name(topic, group)
        _check(commit, queue_ids, access.offsets)
        tag_filter(topic, tags)
        self.group = group
        self.topic = topic
        self._all_queues = queue_ids is None
        self._access = access
        self._offsets = access.offsets
        self._start = check_start_position(start)
        self._by_batch = commit == "batch"
        self._fetching = Fetching(access, topic, tags)
        self._waiting: deque[Fetched] = deque()
        self._delivered: dict[int, int] = {}
        self._before: dict[int, int] | None = None  # what was delivered when a poll began
        self._committed = access.offsets.committed(group, topic)
        self._arrived: tuple[int, int | None] | None = None
        self._known = self._all_queues and bool(self._committed)
        self._closed = False
        self._take_in(access.queues(topic) if queue_ids is None else queue_ids)
        self._known = self._all_queues

    # --- reading ---

    def poll(self, max_messages: int = BATCH_MESSAGES, wait_ms: float = 0) -> list[StoredMessage]:
        """The next messages, in the order of the log.

        :param wait_ms: longest wait for the first message
        :returns: at most ``max_messages``; empty on timeout
        """
        max_messages, wait_ms = whole("max_messages", max_messages, 1), span_ms("wait_ms", wait_ms)
        self._begin()
        self._before = dict(self._delivered)
        if len(self._waiting) < max_messages:
            self._fill(max_messages, wait_ms)
        count = min(max_messages, len(self._waiting))
        taken = [self._waiting.popleft() for _ in range(count)]
        self._delivered.update([each[1:3] for each in taken])
        self._settle()
        self._before = None
        return [each[3] for each in taken]

    def messages(self, *, follow: bool = True) -> Iterator[StoredMessage]:
        """Yield one message after the other.

        A message counts as delivered once it is yielded. With ``commit="batch"`` it is committed
        when the following ones are fetched.

        :param follow: wait for more at the end, until the consumer or its store is closed
        """
        while not self._closed:
            if self.fetch(BATCH_MESSAGES, _NAP_S * 1000 if follow else 0):
                if (message := self.take()) is not None:
                    yield message
            elif not follow or self._is_over():
                return

    def fetch(self, max_messages: int = BATCH_MESSAGES, wait_ms: float = 0) -> bool:
        """Fetch messages for :meth:`take`; returns whether there are any.

        :param wait_ms: longest wait for the first message
        """
        if not self._waiting:
            most, wait = whole("max_messages", max_messages, 1), span_ms("wait_ms", wait_ms)
            self._begin()
            self._before = dict(self._delivered)
            self._fill(most, wait)
        self._settle()
        self._before = None
        return bool(self._waiting)

    def take(self) -> StoredMessage | None:
        """The next fetched message, which now counts as delivered; reads no file."""
        if not self._waiting:
            return None
        _, queue_id, next_offset, message = self._waiting.popleft()
        self._delivered[queue_id] = next_offset
        self._settle()
        return message

    def __iter__(self) -> Iterator[StoredMessage]:
        """Yield all messages, then new ones as they arrive, until the consumer is closed."""
        return self.messages()

    def _begin(self) -> None:
        if self._closed:
            raise StoreClosed(f"the consumer of group {self.group!r} is closed")
        self._go_back()
        if self._by_batch:
            self.commit()

    def _go_back(self) -> None:
        """Fetch anew after an exception in a poll, such as a signal handler's: none came of it."""
        if self._before is not None:
            self._waiting.clear()
            self._delivered.update(self._before)
            for queue_id, offset in self._delivered.items():
                self._fetching.seek(queue_id, offset)
            self._before = None

    def _fill(self, max_messages: int, wait_ms: float) -> None:
        """Fetch until ``max_messages`` are there, and wait if there are none."""
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            seen = self._access.arrivals.version
            self._fetch(max_messages - len(self._waiting))
            left = deadline - time.monotonic()
            if self._waiting or left <= 0 or self._is_over():
                return
            self._access.arrivals.wait(seen, min(left, _NAP_S))

    def _fetch(self, most: int) -> None:
        """Fetch what lies before the limit of the last fetch, then up to the present end."""
        found = self._fetching.merged(most)
        self._waiting.extend(found)
        if len(found) >= most:
            return
        # Both are read before the queues are listed and read: what comes later changes one of them.
        arrived = self._access.arrivals.version, self._access.end()
        if arrived != self._arrived or arrived[1] is None:
            if self._all_queues:
                self._take_in(self._access.queues(self.topic))
            self._fetching.extend(arrived[1])
            self._arrived = arrived
            self._waiting.extend(self._fetching.merged(most - len(found)))

    def _is_over(self) -> bool:
        """Whether no further messages can arrive."""
        return self._closed or self._access.arrivals.closed

    def _settle(self) -> None:
        """Advance past filtered messages once no fetched message is left."""
        if not self._waiting:
            self._delivered.update(self._fetching.passed())

    # --- positions ---

    def position(self, queue_id: int) -> int:
        """The queue offset after the last delivered message."""
        self._check_queue(queue_id)
        return self._delivered[queue_id]

    def seek(self, queue_id: int, offset: int) -> None:
        """Continue at ``offset`` in a queue; commits nothing.

        The next poll corrects an offset outside the queue's bounds, as in RocketMQ.
        """
        self._check_queue(queue_id)
        offset = whole("offset", offset)
        self._waiting = deque(each for each in self._waiting if each[1] != queue_id)
        self._delivered[queue_id] = offset
        self._fetching.seek(queue_id, offset)

    def reset(self, to: StartPosition | int) -> None:
        """Continue at another place in every queue, and commit it.

        :param to: ``earliest``, ``latest``, a time with its time zone, or a queue offset; a place
            outside a queue's bounds means the nearest bound

        Raises :class:`~lakelog.errors.SettingsError` for an invalid place, ``ValueError`` for an
        offset below 0.
        """
        if hasattr(to, "__index__"):
            to = whole("to", to)
        else:
            check_start_position(to, "to")
        for queue_id in self._fetching.positions:
            self.seek(queue_id, self._find(queue_id, to))
        self.commit()

    def _find(self, queue_id: int, to: StartPosition | int) -> int:
        if isinstance(to, int):
            return within(to, self._access.bounds(self.topic, queue_id))
        return find(self._access, self.topic, queue_id, to)

    def lag(self) -> dict[int, int]:
        """The number of messages not delivered yet, by queue id.

        Messages that were deleted unread do not count.
        """
        return {queue: self._lag(queue, at) for queue, at in sorted(self._delivered.items())}

    def _lag(self, queue_id: int, offset: int) -> int:
        bounds = self._access.bounds(self.topic, queue_id)
        return 0 if bounds is None else max(0, bounds[1] - max(bounds[0], offset))

    def _check_queue(self, queue_id: int) -> None:
        if whole("queue_id", queue_id) not in self._fetching.positions:
            known = ", ".join(map(str, sorted(self._fetching.positions))) or "none"
            raise WrongValue(
                f"queue_id is {shown(queue_id)}; this consumer reads the queues {known}"
            )

    def _take_in(self, queue_ids: Sequence[int]) -> None:
        for queue_id in queue_ids:
            if queue_id not in self._fetching.positions:
                at = self._first_place(queue_id)
                self._delivered[queue_id] = at
                self._fetching.seek(queue_id, at)

    def _first_place(self, queue_id: int) -> int:
        if queue_id in self._committed:
            return self._committed[queue_id]
        start = EARLIEST if self._known and self._start == LATEST else self._start
        return find(self._access, self.topic, queue_id, start)

    # --- committing ---

    def commit(self) -> None:
        """Commit the position after the last delivered message of every queue.

        Durable on return. Each process writes the file of offsets itself.

        Raises :class:`~lakelog.errors.StoreReadOnly`, ``StoreClosed``, and ``CorruptConfig`` if the
        file cannot be parsed. Raises ``StoreError`` if it cannot be written; the commit can be
        retried.
        """
        self._go_back()
        changed = {
            queue: offset
            for queue, offset in self._delivered.items()
            if self._committed.get(queue) != offset
        }
        if changed or self._offsets.read_only:
            self._offsets.commit_all([(self.group, self.topic, changed)])
            self._committed.update(changed)

    def committed(self) -> dict[int, int]:
        """The committed next offset of the group, by queue id, as currently stored."""
        return self._offsets.committed(self.group, self.topic)

    def close(self) -> None:
        """Stop reading; with ``commit="batch"``, commit what was delivered."""
        self._end(commit=self._by_batch)

    def _end(self, *, commit: bool) -> None:
        if not self._closed:
            self._closed = True
            if commit:
                self.commit()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close; after an error without a commit, so that the batch is delivered again."""
        self._end(commit=self._by_batch and kind is None)


def _check(commit: str, queue_ids: Sequence[int] | None, offsets: CurrentOffsets) -> None:
    if not isinstance(commit, str) or commit not in ("explicit", "batch"):
        raise SettingsError(f"{shown(commit)} is unknown; give 'explicit' or 'batch'", key="commit")
    if queue_ids is not None:
        several = listed("queue_ids", queue_ids, "a list of queue ids, or None for all")
        ids = [whole("queue_ids", each, None) for each in several]
        if not ids or min(ids) < 0:
            raise SettingsError(
                f"{ids} are not valid; give queue ids from 0 on, or None for all", key="queue_ids"
            )
    if commit == "batch" and offsets.read_only:
        raise StoreReadOnly(
            "a consumer cannot commit in a store that is open for reading; use commit='explicit', "
            "or open it with mode='write'"
        )


Fetched: TypeAlias = tuple[int, int, int, StoredMessage]
"""Place in the order of the log, queue id, next offset to read in that queue, and the message.

The queue cannot be derived from the message: a light queue holds records of other topics.
"""
_PLACE: Final = itemgetter(0)
_ANYWHERE: Final = 1 << 63
_AHEAD_MESSAGES: Final = 256
"""The most messages that are read ahead, of all queues together, unless a poll wants more."""
_AHEAD_BYTES: Final = 1 << 20
"""The same in bytes, by the length of the last message."""


@attrs.define(eq=False)
class Fetching:
    """Reads the queues of a topic, and merges their messages in the order of the log.

    :ivar positions: next queue offset to fetch, by queue id
    """

    _access: QueueAccess
    _topic: str
    _tags: str | None
    positions: dict[int, int] = attrs.field(factory=dict)
    _read: dict[int, list[Fetched]] = attrs.field(factory=dict)  # not handed out yet
    _last: dict[int, int] = attrs.field(factory=dict)  # the place of the last fetched message
    _ended: set[int] = attrs.field(factory=set)  # queues without more messages before the limit
    _limit: int = 0
    _record_bytes: int = _AHEAD_BYTES  # of the last message

    def seek(self, queue_id: int, offset: int) -> None:
        """Continue at ``offset`` in a queue, which may be a new one."""
        self.positions[queue_id] = offset
        self._read[queue_id], self._last[queue_id] = [], 0
        self._ended.discard(queue_id)

    def extend(self, limit: int | None) -> None:
        """Hand out messages before ``limit``, an offset of the log; ``None`` if it is unknown."""
        self._limit = _ANYWHERE if limit is None else limit
        self._ended.clear()

    def passed(self) -> dict[int, int]:
        """The next queue offset of each queue of which no fetched message is left."""
        return {queue: at for queue, at in self.positions.items() if not self._read[queue]}

    def merged(self, most: int) -> list[Fetched]:
        """At least ``most`` of the messages before the limit, fewer if there are no more."""
        found: list[Fetched] = []
        while len(found) < most:
            open_queues = [queue for queue in self.positions if queue not in self._ended]
            empty = [queue for queue in open_queues if not self._read[queue]]
            if empty:
                ahead = max(most, min(_AHEAD_MESSAGES, _AHEAD_BYTES // self._record_bytes))
                ahead -= sum(map(len, self._read.values()))
                for queue in empty:
                    self._fetch(queue, max(-(-ahead // len(empty)), 1))
            # A queue that has not ended may have further messages behind its last fetched one.
            ends = (self._last[queue] for queue in open_queues if queue not in self._ended)
            taken = self._take_to(min((self._limit - 1, *ends)))
            if not taken and not empty:
                break
            found += taken
        return found

    def _take_to(self, place: int) -> list[Fetched]:
        """Take the fetched messages up to ``place``, in the order of the log."""
        taken: list[Fetched] = []
        for read in self._read.values():
            count = bisect_right(read, place, key=_PLACE)
            taken += read[:count]
            del read[:count]
        taken.sort(key=_PLACE)
        return taken

    def _fetch(self, queue_id: int, count: int) -> None:
        """Read one queue, and continue at the offset in the result, as a RocketMQ client does."""
        read = self._read[queue_id]
        while not read and queue_id not in self._ended:
            offset = self.positions[queue_id]
            result = self._access.get(self._topic, queue_id, offset, count, tags=self._tags)
            warn_if_corrected(result, (self._topic, queue_id), offset, "reading")
            self.positions[queue_id] = result.next_offset
            read += self._placed(result, queue_id, offset)
            is_all = len(read) < count and result.next_offset >= result.max_offset
            if is_all or self._last[queue_id] >= self._limit:
                self._ended.add(queue_id)

    def _placed(self, result: GetResult, queue_id: int, offset: int) -> list[Fetched]:
        """Add to each message the queue offset after it, and its place in the order.

        A message of a light queue has the queue offset of its own queue, so the offset after it is
        not known. Such messages keep the start of the fetch; only the last one advances. A repair
        may have moved the record of a message to the end of the log: its place is there, and that
        of later messages of its queue is not before it.
        """
        messages, topic = result.messages, self._topic
        if not messages:
            return []
        found = [
            (
                each.physical_offset,
                queue_id,
                each.queue_offset + 1 if each.topic == topic else offset,
                each,
            )
            for each in messages
        ]
        found[-1] = found[-1][0], queue_id, result.next_offset, messages[-1]
        places = [self._last[queue_id], *(each[0] for each in found)]
        if places != sorted(places):
            places = list(accumulate(places, max))
            found = [(at, *each[1:]) for at, each in zip(places[1:], found, strict=True)]
        self._last[queue_id], self._record_bytes = places[-1], max(messages[-1].size, 1)
        return found


def warn_if_corrected(result: GetResult, queue: Queue, offset: int, reader: str) -> None:
    """Log that ``reader`` continues elsewhere, if ``offset`` is outside the queue's bounds."""
    if result.status in _CORRECTED:
        bounds = result.min_offset, result.max_offset
        _log.warning(
            "queue %d of topic %s holds offsets %d to %d, not %d; %s continues at %d",
            *(queue[1], queue[0], *bounds, offset, reader, result.next_offset),
        )


@attrs.frozen
class QueueAccess:
    """The queues of one store.

    :ivar get: reads one queue, as ``Store.get``
    :ivar queues: returns the queue ids of a topic
    :ivar end: returns the end of reads, an offset of the log; ``None`` if it is unknown
    :ivar bounds: returns first and next queue offset of a topic and queue id; ``None`` if missing
    :ivar offset_by_time: returns, for a topic, a queue id and a time in ms, the first queue offset
        whose message was stored then or later
    :ivar arrivals: lets a reader wait for new messages
    :ivar offsets: the committed offsets of all groups
    """

    get: Callable[..., GetResult]
    queues: Callable[[str], Sequence[int]]
    end: Callable[[], int | None]
    bounds: Callable[[str, int], tuple[int, int] | None]
    offset_by_time: Callable[[str, int, int], int]
    arrivals: ArrivalSignal
    offsets: CurrentOffsets


def check_start_position(position: StartPosition, argument: str = "start") -> StartPosition:
    """The position, if it is valid; raises ``SettingsError``."""
    if isinstance(position, datetime):
        if position.tzinfo is None:
            raise SettingsError(
                f"the time {position} has no time zone; add one, such as tzinfo=UTC", key=argument
            )
    elif not isinstance(position, str) or position not in (EARLIEST, LATEST):
        raise SettingsError(
            f"{shown(position)} is not a place in a queue; give 'earliest', 'latest' or a datetime",
            key=argument,
        )
    return position


def find(access: QueueAccess, topic: str, queue_id: int, position: StartPosition) -> int:
    """The queue offset of a start position; 0 if the queue does not exist yet.

    For a time it is that of the first message stored then or later, or else the end of the queue.
    """
    bounds = access.bounds(topic, queue_id)
    if bounds is None:
        return 0
    if isinstance(position, datetime):
        time_ms = int(position.timestamp() * 1000)
        return within(access.offset_by_time(topic, queue_id, time_ms), bounds)
    return bounds[0] if position == EARLIEST else bounds[1]


def within(offset: int, bounds: tuple[int, int] | None) -> int:
    """``offset``, limited to the bounds of its queue."""
    return max(offset, 0) if bounds is None else max(bounds[0], min(offset, bounds[1]))
