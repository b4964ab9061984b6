"""Delivers messages that were set aside; one that cannot be delivered stops no other.

What a put or a read refuses for now is tried again; a damaged or deleted record is left out.

:class:`Delays` has the messages with a delay level. Queue ``level - 1`` of ``SCHEDULE_TOPIC_XXXX``
has the messages of a level, in the order of their delivery. The tags code of a ConsumeQueue unit is
the time of delivery, in ms since 1970. ``config/delayOffset.json`` has the next queue offset of
each level. Source: RocketMQ 5.3.3, ``ScheduleMessageService``.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from lakelog import PutRefused, Store, StoredMessage, errors
from lakelog.files.filesystem import FileSystem
from lakelog.format.properties import SCHEDULE_TOPIC
from lakelog.format.queue_offsets import Queue
from lakelog_broker.appending import ILLEGAL_PUTS, BrokerAppender
from lakelog_broker.settings import BrokerSettings
from lakelog_broker.state import ArrivalWaits, GroupOffsetTable, MemberTable
from lakelog_queues.units.tags import DELAYS_MS
from lakelog_rocketmq.config import load_delay_offsets, save_delay_offsets

_LOG: Final = logging.getLogger("lakelog.broker")
_TRIED_AGAIN: Final = "%s at offset %d of the log could not be delivered and is tried again: %s"
_NEVER: Final = 1 << 62
_REMOVED: Final = (b"DELAY", b"TIMER_DELIVER_MS", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS")
RETRY_MS: Final = 1_000
"""Pause before another attempt to deliver a message."""
MAX_DEFERRED: Final = 1_000
"""With this many deferred messages no further ones are read: the disk accepts no writes."""

BATCH: Final = 128
"""Most messages that are read at once, so that other tasks run between."""
LONGEST_WAIT_MS: Final = 10_000
"""Longest single sleep: the system's clock may be set meanwhile."""

Clock: TypeAlias = Callable[[], int]
"""Returns the time in ms since 1970."""


def now_ms() -> int:
    """The system's time, in ms since 1970."""
    return time.time_ns() // 1_000_000


class Deliverer:
    """Delivers messages by their physical offset.

    :param what: a noun for the messages in log lines
    :param look_up: reads the message at a physical offset
    """

    def __init__(self, what: str, look_up: Callable[[int], StoredMessage]) -> None:
        self._what, self._look_up = what, look_up
        self._failing: set[int] = set()

    def deliver(self, physical_offset: int, put: Callable[[StoredMessage], Any]) -> bool:
        """Read the message at ``physical_offset``, and call ``put`` with it.

        :returns: ``True`` if the message was put, or can never be put because its record is damaged
            or deleted; RocketMQ skips such a message, too. ``False`` to try again later

        Raises :class:`~lakelog.errors.StoreClosed`. Repeated failures of a message are logged once.
        """
        try:
            put(self._look_up(physical_offset))
        except errors.StoreClosed:
            raise
        except Exception as error:  # noqa: BLE001  # any fault is of this message only
            where = self._what, physical_offset
            if not _is_final(error):
                if physical_offset not in self._failing:
                    self._failing.add(physical_offset)
                    is_expected = isinstance(error, errors.StoreError | PutRefused)
                    _LOG.warning(
                        _TRIED_AGAIN, *where, error, exc_info=None if is_expected else error
                    )
                return False
            _LOG.error("%s at offset %d of the log is left out: %s", *where, error)
        self._failing.discard(physical_offset)
        return True


def _is_final(error: Exception) -> bool:
    if isinstance(error, PutRefused):
        return error.status in ILLEGAL_PUTS
    if isinstance(error, errors.ReadFailed):
        return False
    return isinstance(
        error, errors.CorruptRecord | errors.OffsetOutOfRange | errors.IllegalMessage | ValueError
    )


@attrs.define(eq=False)
class SystemQueueReader:
    """Reads the new messages of a queue of a system topic, in order.

    :ivar next_offset: queue offset of the first message that was not read
    :ivar add: takes a message that was read
    :ivar unread: physical offset of each message to read again, by queue offset
    """

    store: Store
    queue: Queue
    next_offset: int
    deliverer: Deliverer
    add: Callable[[StoredMessage], Any]
    unread: dict[int, int] = attrs.field(factory=dict)

    def bounds(self) -> tuple[int, int]:
        """First offset of the queue, and the offset of its next message."""
        return self.store.queue_bounds(*self.queue) or (0, 0)

    def has_grown(self) -> bool:
        """Whether the queue has messages that were not read."""
        return self.bounds()[1] > self.next_offset

    def read(self, is_known: Callable[[int], bool] = lambda _offset: False) -> bool:
        """Read at most ``BATCH`` new messages; return whether there was any.

        :param is_known: whether the message at a queue offset is to be left out
        """
        has_read = False
        for queue_offset, physical_offset, _ in self._units():
            has_read = True
            self._read_one(queue_offset, None if is_known(queue_offset) else physical_offset)
        return has_read

    def _units(self) -> Iterator[tuple[int, int, int]]:
        """Queue offset, physical offset and tags code of the next units; none if too many wait."""
        low, high = self.bounds()
        # RocketMQ corrects an offset outside of the queue in the same way.
        self.next_offset = min(max(self.next_offset, low), high)
        if self.next_offset == high or len(self.unread) >= MAX_DEFERRED:
            return iter(())
        units = self.store.queue_units(*self.queue, self.next_offset, BATCH)
        columns = units.queue_offsets, units.offsets, units.tags_codes
        return zip(*(each.tolist() for each in columns), strict=True)

    def _read_one(self, queue_offset: int, physical_offset: int | None) -> None:
        self.next_offset = queue_offset + 1
        if physical_offset is not None and not self.deliverer.deliver(physical_offset, self.add):
            self.unread[queue_offset] = physical_offset

    def retry(self) -> None:
        """Try again to read the messages of ``unread``."""
        for queue_offset, physical_offset in list(self.unread.items()):
            if self.deliverer.deliver(physical_offset, self.add):
                self.unread.pop(queue_offset, None)


@attrs.frozen
class Parts:
    """What scheduled work uses of its broker.

    :ivar files: creates files with the rights of the store's files
    """

    store: Store
    appender: BrokerAppender
    waits: ArrivalWaits
    offsets: GroupOffsetTable
    members: MemberTable
    settings: BrokerSettings
    files: FileSystem


class Scheduled:
    """Work that is due at some times; used from one event loop."""

    def __init__(self, parts: Parts) -> None:
        self._store, self._appender, self._waits = parts.store, parts.appender, parts.waits
        self._clock: Clock = now_ms
        self._retry_at_ms = 0

    async def _pause(
        self, due_ms: int, queues: Iterable[Queue], has_grown: Callable[[], bool]
    ) -> None:
        """Wait until some work is due, or one of ``queues`` has grown.

        :param due_ms: time of the work, in ms since 1970; for one in the past, other tasks run
            first
        """
        wait_ms = min(due_ms - self._clock(), LONGEST_WAIT_MS)
        if wait_ms <= 0:
            await asyncio.sleep(0)
        else:
            await self._waits.until(queues, wait_ms / 1000, has_grown, is_urgent=False)


class _Level(SystemQueueReader):
    """Delivers the messages of one level.

    :ivar due_ms: time of the next delivery, in ms since 1970; 0 if unknown, ``_NEVER`` at the end
        of the queue
    """

    due_ms = 0

    @property
    def first_open(self) -> int:
        """The lowest queue offset that was not delivered."""
        return min(self.unread, default=self.next_offset)

    def deliver(self, clock: Clock) -> None:
        """Deliver the due ones of the next messages, and note when the first other one is due."""
        if len(self.unread) >= MAX_DEFERRED:
            self.due_ms = clock() + RETRY_MS
            return
        self.due_ms = _NEVER
        for queue_offset, physical_offset, due_ms in self._units():
            if due_ms > clock():
                self.due_ms = due_ms
                return
            self._read_one(queue_offset, physical_offset)
            self.due_ms = 0  # the next unit is unknown


class Delays(Scheduled):
    """Delivers the messages of all levels; used from one event loop.

    Raises :class:`~lakelog.errors.CorruptConfig` if ``config/delayOffset.json`` is damaged.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._files, self._path = parts.files, Path(parts.store.path)
        deliverer = Deliverer("a delayed message", parts.store.look_up)
        self._saved = load_delay_offsets(parts.files, self._path).value
        self._levels = {
            level: _Level(
                parts.store,
                (SCHEDULE_TOPIC, level - 1),
                self._saved.get(level, 0),
                deliverer,
                lambda stored: parts.appender.put_real(stored, _REMOVED),
            )
            for level in range(1, len(DELAYS_MS) + 1)
        }
        self._saving = threading.Lock()

    async def run(self) -> None:
        """Deliver until the task is cancelled."""
        queues = [(SCHEDULE_TOPIC, level - 1) for level in self._levels]
        while True:
            await self._pause(self.deliver_due(), queues, self._has_grown)

    def _has_grown(self) -> bool:
        """Whether a level has a new message, at what was the end of its queue."""
        levels = self._levels.values()
        return any(level.has_grown() for level in levels if level.due_ms == _NEVER)

    def deliver_due(self) -> int:
        """Deliver at most ``BATCH`` due messages of each level.

        :returns: time of the next delivery, in ms since 1970; in the past if more is due now
        """
        retries, levels = self._clock() >= self._retry_at_ms, self._levels.values()
        for level in levels:
            if retries:
                level.retry()
            if level.due_ms <= self._clock() or level.due_ms == _NEVER:
                level.deliver(self._clock)
        first = min(level.due_ms for level in levels)
        if any(level.unread for level in levels):
            if retries:
                self._retry_at_ms = self._clock() + RETRY_MS
            first = min(first, self._retry_at_ms)
        return first

    def progress(self) -> Callable[[], None] | None:
        """Return a function that saves the present offsets; ``None`` if they are saved.

        The log must be durable before its call, which may be in any thread. It raises ``OSError``
        and :class:`~lakelog.errors.CorruptConfig`.
        """
        # A level whose queue does not exist has no offset.
        present = {level: each.first_open for level, each in self._levels.items()}
        offsets = {**self._saved, **{each: at for each, at in present.items() if at}}
        if offsets == self._saved:
            return None

        def save() -> None:
            with self._saving:
                former = load_delay_offsets(self._files, self._path).content
                save_delay_offsets(self._files, self._path, former, offsets, self._clock())
                self._saved = offsets

        return save
