"""Delivers messages that were set aside; one that cannot be delivered stops no other.

What a put or a read refuses is tried again; a damaged or deleted record is left out.

:class:`Delays` has the messages with a delay level. Queue ``level - 1`` of ``SCHEDULE_TOPIC_XXXX``
has the messages of a level, in the order of their delivery. The tags code of a ConsumeQueue unit is
the time of delivery, in ms since 1970. ``config/delayOffset.json`` has the next queue offset of
each level. The times of delivery follow from store times, so from the system's clock as it was. If
that clock was wrong for a while, a message waits no longer than its delay: its time is corrected as
by RocketMQ, and by each step of the clock that this process sees. Source: RocketMQ 5.3.3,
``ScheduleMessageService``.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from lakelog import errors, results
from lakelog.errors import PutRefused
from lakelog.files.filesystem import FileSystem
from lakelog.format import properties
from lakelog.format.encoder import system_ms
from lakelog.format.properties import SCHEDULE_TOPIC
from lakelog.format.queue_offsets import Queue, Units
from lakelog.message import Message, StoredMessage
from lakelog_queues.consumers.offsettable import OffsetTable
from lakelog_queues.units.properties import property_value, with_properties
from lakelog_queues.units.tags import DELAYS_MS
from lakelog_rocketmq.config import load_delay_offsets, save_delay_offsets

if TYPE_CHECKING:
    from lakelog_queues.store import Store

_LOG: Final = logging.getLogger("lakelog")
REAL_TOPIC: Final = properties.REAL_TOPIC.encode()
REAL_QUEUE: Final = properties.REAL_QUEUE.encode()
_TRIED_AGAIN: Final = "%s at offset %d of the log could not be delivered and is tried again: %s"
_NEVER: Final = 1 << 62
_REMOVED: Final = (b"DELAY", b"TIMER_DELIVER_MS", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS")
RETRY_MS: Final = 1_000
"""Pause before another attempt to deliver a message."""
MAX_DEFERRED: Final = 1_000
"""With this many deferred messages no further ones are read: the disk accepts no writes."""

BATCH: Final = 128
"""Most messages that are read at once, so that other tasks run between."""
LONGEST_WAIT_MS: Final = 5_000
"""Longest single sleep: the system's clock may be set meanwhile."""
_STEP_MS: Final = 1_000
"""A larger change of the system's clock against the steady one is a step."""

Clock: TypeAlias = Callable[[], int]
"""Returns a time in ms."""


def steady_ms() -> int:
    """Time in ms of a clock that nobody sets, from an arbitrary start; it runs during a suspend."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


@contextlib.contextmanager
def one_of_many(what: str) -> Iterator[None]:
    """Log an error of one item, so that the round goes on with the others.

    :param what: the item's work, for the log line

    Raises the errors of a closed and of a failed store, which has no further items.
    """
    try:
        yield
    except (errors.StoreClosed, errors.StoreFailed):
        raise
    except Exception as error:  # noqa: BLE001  # any fault is of this item only
        is_expected = isinstance(error, errors.LakelogError)
        _LOG.error(
            "%s failed, and is tried again: %s",
            what,
            error,
            exc_info=None if is_expected else error,
        )


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
    """Whether the message is lost; one over a limit is not, as limits are settings."""
    if isinstance(error, PutRefused | errors.IllegalMessage):
        return error.status is results.PutStatus.MESSAGE_ILLEGAL
    if isinstance(error, errors.ReadFailed):
        return False
    return isinstance(error, errors.CorruptRecord | errors.OffsetOutOfRange | ValueError)


def restored(stored: StoredMessage, without: tuple[bytes, ...] = ()) -> Message:
    """Return a message that was set aside, with its own topic and queue.

    :param without: further properties to remove

    Raises ``ValueError`` if the message has no own topic.
    """
    held = stored.properties_bytes
    topic = property_value(held, REAL_TOPIC)
    if not topic:
        raise ValueError(
            f"the message at offset {stored.physical_offset} of {stored.topic} does not say to "
            "which topic it belongs: it has no property REAL_TOPIC"
        )
    message = copied(stored)
    message.topic = topic.decode()
    message.properties = with_properties(held, (REAL_TOPIC, REAL_QUEUE, *without))
    message.queue_id = number(property_value(held, REAL_QUEUE))
    return message


def copied(stored: StoredMessage) -> Message:
    """A copy to be put, which does not wait for a sync.

    It may be lost by a power cut. It is put again then, since progress is saved only behind a
    durable log.
    """
    return Message(
        stored.topic,
        stored.body,
        properties=stored.properties_bytes,
        queue_id=stored.queue_id,
        flag=stored.flag,
        sys_flag=stored.sys_flag,
        born_timestamp_ms=stored.born_timestamp_ms,
        born_host=stored.born_host,
        store_host=stored.store_host,
        reconsume_times=stored.reconsume_times,
        wait_store_ok=False,
    )


def number(text: bytes | None) -> int:
    """The value of a property; 0 if it is no number."""
    try:
        return int(text or 0)
    except ValueError:
        return 0


@attrs.define
class DelayAccess:
    """The store, as the delivery of delayed messages uses it.

    :ivar files: creates files with the rights of the store's files
    :ivar queue_bounds: first present and next future offset of a queue
    :ivar queue_units: units of a queue from an offset on
    :ivar look_up: reads the message at a physical offset
    :ivar put: appends a message
    :ivar sync: makes the log durable, and returns whether it could
    :ivar offsets: those of groups
    """

    files: FileSystem
    path: Path
    queue_bounds: Callable[[str, int], tuple[int, int] | None]
    queue_units: Callable[[str, int, int, int], Units]
    look_up: Callable[[int], StoredMessage]
    put: Callable[[Message], object]
    sync: Callable[[], bool]
    offsets: OffsetTable


@attrs.define(eq=False)
class SystemQueueReader:
    """Reads the new messages of a queue of a system topic, in order.

    :ivar next_offset: queue offset of the first message that was not read
    :ivar add: takes a message that was read
    :ivar unread: physical offset of each message to read again, by queue offset
    :ivar has_failed: whether the queue itself could not be read the last time
    """

    store: Store | DelayAccess
    queue: Queue
    next_offset: int
    deliverer: Deliverer
    add: Callable[[StoredMessage], Any]
    unread: dict[int, int] = attrs.field(factory=dict)
    has_failed: bool = False

    def bounds(self) -> tuple[int, int]:
        """First offset of the queue, and the offset of its next message."""
        return self.store.queue_bounds(*self.queue) or (0, 0)

    def has_grown(self) -> bool:
        """Whether the queue has messages that can be read and were not."""
        return not self.has_failed and self.bounds()[1] > self.next_offset

    def read(self, is_known: Callable[[int], bool] = lambda _offset: False) -> bool:
        """Read at most ``BATCH`` new messages; return whether there was any.

        :param is_known: whether the message at a queue offset is to be left out
        """
        has_read, self.has_failed = False, True
        with one_of_many(f"the reading of queue {self.queue[1]} of {self.queue[0]}"):
            for queue_offset, physical_offset, _ in self._units():
                has_read = True
                self._read_one(queue_offset, None if is_known(queue_offset) else physical_offset)
            self.has_failed = False
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

    @property
    def waits(self) -> bool:
        """Whether something is to be read again."""
        return self.has_failed or bool(self.unread)

    def retry(self) -> None:
        """Try again to read the messages of ``unread``, and the queue."""
        self.has_failed = False
        for queue_offset, physical_offset in list(self.unread.items()):
            if self.deliverer.deliver(physical_offset, self.add):
                self.unread.pop(queue_offset, None)


class Scheduled:
    """Work that is due at some times; used by one thread at a time.

    :ivar _clock: the system's clock, in which the files have times
    :ivar _steady: the clock of intervals
    :ivar _retry_at_ms: time of the next retries, of the steady clock
    """

    def __init__(self, clock: Clock = system_ms, steady: Clock = steady_ms) -> None:
        self._clock = clock
        self._steady = steady
        self._retry_at_ms = 0
        self._lead_ms: int | None = None  # of the system's clock before the steady one

    def _may_retry(self) -> bool:
        """Whether retries are due; the next ones follow after ``RETRY_MS``."""
        now = self._steady()
        if now < self._retry_at_ms:
            return False
        self._retry_at_ms = now + RETRY_MS
        return True

    def _retry_ms(self) -> int:
        """The time of the next retries, in ms since 1970."""
        return self._clock() + max(0, self._retry_at_ms - self._steady())

    def _look_at_clock(self) -> None:
        """Find a step of the system's clock since the last call."""
        lead_ms = self._clock() - self._steady()
        step_ms = 0 if self._lead_ms is None else lead_ms - self._lead_ms
        self._lead_ms = lead_ms
        if abs(step_ms) > _STEP_MS:
            _LOG.warning("the system's clock was set by %d ms; delays continue", step_ms)
            self._move_times(step_ms)

    def _move_times(self, step_ms: int) -> None:
        """The delays of messages end later by ``step_ms`` of the system's clock."""


class _Level(SystemQueueReader):
    """Delivers the messages of one level.

    :ivar due_ms: time of the next delivery, in ms since 1970; 0 if unknown, ``_NEVER`` at the end
        of the queue
    :ivar delay_ms: the delay of the level
    """

    due_ms = 0
    delay_ms = 0
    _seen_end = 0
    _steps: tuple[tuple[int, int], ...] = ()

    @property
    def first_open(self) -> int:
        """The lowest queue offset that was not delivered."""
        return min(self.unread, default=self.next_offset)

    def has_new(self) -> bool:
        """Whether the queue has grown since the last look; each new message is seen once."""
        end = self.bounds()[1]
        has_grown, self._seen_end = end != self._seen_end, end
        return has_grown

    def move_times(self, step_ms: int) -> None:
        """The clock was set: the messages seen so far are due later by ``step_ms`` of its time."""
        waiting = [each for each in self._steps if each[0] > self.next_offset]
        self._steps = (*waiting, (self._seen_end, step_ms))
        self.due_ms = 0

    def _due_ms(self, queue_offset: int, noted_ms: int, now: int) -> int:
        """When a message is due, by the time that its unit has noted.

        A time of delivery beyond the delay was noted by a clock that was ahead; the message is
        delivered now. Source: RocketMQ 5.3.3, ``correctDeliverTimestamp``.
        """
        due = noted_ms + sum(step for end, step in self._steps if queue_offset < end)
        return now if due > now + self.delay_ms else due

    def deliver(self, clock: Clock) -> None:
        """Deliver the due ones of the next messages, and note when the first other one is due."""
        if len(self.unread) >= MAX_DEFERRED:
            self.due_ms = clock() + RETRY_MS
            return
        self.due_ms = _NEVER
        for queue_offset, physical_offset, noted_ms in self._units():
            now = clock()
            due_ms = self._due_ms(queue_offset, noted_ms, now)
            if due_ms > now:
                self.due_ms = due_ms
                return
            self._read_one(queue_offset, physical_offset)
            self.due_ms = 0  # the next unit is unknown


class Delays(Scheduled):
    """Delivers the messages of all levels; used by one thread at a time.

    Raises :class:`~lakelog.errors.CorruptConfig` if ``config/delayOffset.json`` is damaged.
    """

    def __init__(
        self, access: DelayAccess, clock: Clock = system_ms, steady: Clock = steady_ms
    ) -> None:
        super().__init__(clock, steady)
        self._access = access
        deliverer = Deliverer("a delayed message", access.look_up)
        self._saved = load_delay_offsets(access.files, access.path).value
        self._levels = {
            level: _Level(
                access,
                (SCHEDULE_TOPIC, level - 1),
                self._saved.get(level, 0),
                deliverer,
                lambda stored: access.put(restored(stored, _REMOVED)),
            )
            for level in range(1, len(DELAYS_MS) + 1)
        }
        for level, delay_ms in enumerate(DELAYS_MS, 1):
            self._levels[level].delay_ms = delay_ms

    def _move_times(self, step_ms: int) -> None:
        for level in self._levels.values():
            level.move_times(step_ms)

    def deliver_due(self) -> int:
        """Deliver at most ``BATCH`` due messages of each level.

        :returns: time of the next delivery, in ms since 1970; in the past if more is due now
        """
        self._look_at_clock()
        levels = self._levels.values()
        retries = any(level.unread for level in levels) and self._may_retry()
        for number, level in self._levels.items():
            with one_of_many(f"the delivery of delay level {number}"):
                level.has_new()
                if retries:
                    level.retry()
                if level.due_ms <= self._clock() or level.due_ms == _NEVER:
                    level.deliver(self._clock)
                continue
            level.due_ms = self._clock() + RETRY_MS
        first = min(level.due_ms for level in levels)
        return min(first, self._retry_ms()) if any(level.unread for level in levels) else first

    def progress(self) -> Callable[[], None] | None:
        """Return a function that saves the present offsets; ``None`` if they are saved.

        The log must be durable before its call. It raises ``OSError`` and
        :class:`~lakelog.errors.CorruptConfig`.
        """
        # A level whose queue does not exist has no offset.
        present = {level: each.first_open for level, each in self._levels.items()}
        offsets = {**self._saved, **{each: at for each, at in present.items() if at}}
        if offsets == self._saved:
            return None

        def save() -> None:
            files, path = self._access.files, self._access.path
            former = load_delay_offsets(files, path).content
            save_delay_offsets(files, path, former, offsets, self._clock())
            self._saved = offsets

        return save
