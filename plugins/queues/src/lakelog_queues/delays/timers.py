"""Timer messages: delivered to the millisecond, unless they are recalled.

Timer messages wait in queue 0 of ``rmq_sys_wheel_timer``. A table in memory has the due time and
the queue offset of each. At start it is built from the lowest waiting offset on, which is the
committed offset of the group ``CID_RMQ_SYS_TIMER``. A message with ``TIMER_DEL_UNIQKEY`` recalls
another one; clients name it by a handle, which they get with the answer to its send.

The progress is saved in RocketMQ's ``config/timercheck``: ``i64 read time, ms | i64 flushed
position of timerlog | i64 queue offset | i64 master's queue offset | i64 state version | i64 time,
ms | i64 counter``, big-endian, in 4096 bytes. RocketMQ reads the queue from the smaller queue
offset on. A message below that offset was delivered if its ``TIMER_OUT_MS`` is before the read
time. lakelog's own ``config/timerProgress.json`` has the delivered times to the millisecond. It
counts only if ``timercheck`` is unchanged since: otherwise RocketMQ has served the directory
meanwhile.

Source: RocketMQ 5.3.3, ``TimerMessageStore``, ``TimerCheckpoint``.
"""

from __future__ import annotations

import heapq
import logging
import struct
from array import array
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog import errors
from lakelog.files.filesystem import FileSystem, overwrite_file, read_file
from lakelog.format.encoder import system_ms
from lakelog.format.layout import CONFIG_DIR
from lakelog.format.properties import TIMER_TOPIC
from lakelog.message import StoredMessage
from lakelog_queues.delays import delivering
from lakelog_queues.delays.delivering import REAL_TOPIC
from lakelog_queues.units.properties import property_value
from lakelog_rocketmq.config import load_config, save_config

GROUP: Final = "CID_RMQ_SYS_TIMER"
ROLL_MS: Final = 2 * 24 * 3_600_000
"""A message that has waited for this long is appended again, so that the log before it can be
deleted; RocketMQ's ``timerRollWindowSlot``."""
_QUEUE: Final = (TIMER_TOPIC, 0)
_RECALL: Final = b"TIMER_DEL_UNIQKEY"
_RECALL_KEPT_MS: Final = 3_000
"""A recall is kept for this long after its due time, which RocketMQ may have rounded down."""
_LOG: Final = logging.getLogger("lakelog")
CHECKPOINT: Final = "timercheck"
OWN_FILE: Final = "timerProgress.json"
_FIELDS: Final = struct.Struct(">7q")
_FILE_BYTES: Final = 4096
_OWN_FIELDS: Final = "lowestOffset", "readOffset", "dueBeforeMs"
_SLOT_MS: Final = 1_000
"""RocketMQ's ``timerPrecisionMs``: ``TIMER_OUT_MS`` is rounded down to a multiple of it."""
_MINUTE_MS: Final = 60_000
_OFFSET_BITS: Final = 47
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1
_SPANS: Final = ((b"TIMER_DELAY_SEC", 1000), (b"TIMER_DELAY_MS", 1))


class Timers(delivering.Scheduled):
    """Delivers timer messages; used by one thread at a time.

    :ivar delivered: number of messages delivered since the start

    Raises :class:`~lakelog.errors.CorruptConfig` if the saved progress cannot be read.
    """

    def __init__(
        self,
        access: delivering.DelayAccess,
        clock: delivering.Clock = system_ms,
        steady: delivering.Clock = delivering.steady_ms,
    ) -> None:
        super().__init__(clock, steady)
        self._access = access
        self._deliverer = delivering.Deliverer("a timer message", access.look_up)
        self._saved = load_progress(access.files, access.path)
        self._at_start = self._saved
        at = access.offsets.committed(GROUP, TIMER_TOPIC).get(0, 0)
        self._reader = delivering.SystemQueueReader(access, _QUEUE, at, self._deliverer, self._add)
        self._table = TimerTable()
        self._recalled: dict[bytes, int] = {}  # queue offset of the recall, by key of the message
        self._deferred: dict[int, int] = {}  # due time by queue offset, to deliver again
        self._noted: dict[int, int] = {}  # time in the log by queue offset, where it was moved
        self.delivered = 0
        self._changes = self._saved_changes = 0

    def __len__(self) -> int:
        return len(self._table) + len(self._deferred) + len(self._reader.unread)

    @property
    def unread(self) -> int:
        """Number of messages of the queue that are not in the table yet."""
        reader = self._reader
        return max(0, reader.bounds()[1] - reader.next_offset) + len(reader.unread)

    @property
    def behind_ms(self) -> int:
        """How long the earliest message has been due, in ms; 0 if none is due."""
        now = self._clock()
        due = [*self._deferred.values(), self._table.next_ms(now) or now]
        return max(0, now - min(due))

    def deliver_due(self) -> int:
        """Read new messages, and deliver due ones; at most ``delivering.BATCH`` of each.

        :returns: time of the next delivery, in ms since 1970; in the past if work remains
        """
        self._look_at_clock()
        now = self._clock()
        if not self._reader.has_failed and self._reader.read():
            self._changes += 1
            return now  # all are read first, as a message may recall another one
        if (self._deferred or self._reader.waits) and self._may_retry():
            self._retry()
        for _ in range(delivering.BATCH if len(self._deferred) < delivering.MAX_DEFERRED else 0):
            pair = self._table.take(now)
            if pair is None:
                break
            due_ms, queue_offset = pair
            self._changes += 1
            if not self._deliver(queue_offset):
                self._deferred[queue_offset] = self._noted.pop(queue_offset, due_ms)
            self._noted.pop(queue_offset, None)
        if len(self._deferred) >= delivering.MAX_DEFERRED:
            return self._retry_ms()
        first = self._table.next_ms(now)
        first = now + delivering.LONGEST_WAIT_MS if first is None else first
        return min(first, self._retry_ms()) if self._deferred or self._reader.waits else first

    def _move_times(self, step_ms: int) -> None:
        """Move relative delays only: another time is one of the system's clock."""
        former, self._table = self._table, TimerTable()
        for due_ms, offset in former.pairs():
            delay_ms = None
            with delivering.one_of_many(f"the look at timer message {offset}"):
                stored = self._access.look_up(self._physical_offset(offset))
                delay_ms = timer_delay_ms(stored.properties_bytes)
            if delay_ms is not None:
                self._noted.setdefault(offset, due_ms)
            moved_ms = due_ms if delay_ms is None else due_ms + step_ms
            self._table.add(moved_ms, offset, self._clock())

    def _add(self, stored: StoredMessage) -> None:
        queue_offset, properties, now = stored.queue_offset, stored.properties_bytes, self._clock()
        due_ms, slot_ms = due_of(stored)
        recalled = property_value(properties, _RECALL)
        if self._at_start.is_delivered(queue_offset, due_ms, slot_ms):
            return
        if recalled is not None:
            self._recalled[recalled] = queue_offset
        elif (delay_ms := timer_delay_ms(properties)) is not None:
            due_ms = min(due_ms, now + delay_ms)  # the clock was ahead when it was stored
        self._table.add(due_ms, queue_offset, now)

    def _deliver(self, queue_offset: int) -> bool:
        try:
            at = self._physical_offset(queue_offset)
        except errors.OffsetOutOfRange as error:
            _LOG.error("the timer message %d is left out: %s", queue_offset, error)
            return True
        return self._deliverer.deliver(at, self._put)

    def _put(self, stored: StoredMessage) -> None:
        properties = stored.properties_bytes
        recalled = property_value(properties, _RECALL)
        if recalled is not None:
            if self._recalled.get(recalled) == stored.queue_offset:
                del self._recalled[recalled]
            return
        if self._recalled and recall_key(properties) in self._recalled:
            return
        self._access.put(delivering.restored(stored))
        self.delivered += 1

    def _retry(self) -> None:
        self._reader.retry()
        for queue_offset in list(self._deferred):
            if self._deliver(queue_offset):
                del self._deferred[queue_offset]
                self._changes += 1

    def roll(self) -> None:
        """Append messages again that have waited for ``ROLL_MS``, so that their log can be deleted.

        One that is deleted or damaged is left out, and one that is refused is tried again later.
        """
        former, end = -1, self._reader.next_offset  # not those that this call appends
        while (lowest := self._table.lowest_offset(former + 1)) is not None and lowest < end:
            former = lowest
            with delivering.one_of_many(f"the renewal of timer message {lowest}"):
                if not self._roll_one(lowest):
                    return

    def _roll_one(self, offset: int) -> bool:
        """Append the message at a queue offset again; return whether it has waited long enough."""
        due_ms = self._table.due_ms(offset)
        try:
            stored = self._access.look_up(self._physical_offset(offset))
        except (errors.OffsetOutOfRange, errors.CorruptRecord) as error:
            _LOG.error("the timer message %d is left out: %s", offset, error)
        else:
            now = self._clock()
            if now - stored.store_timestamp_ms < ROLL_MS:
                return False
            if due_ms <= now + _MINUTE_MS:
                return True  # it is delivered soon
            self._access.put(delivering.copied(stored))
        self._table.remove(due_ms, offset)
        self._noted.pop(offset, None)
        self._changes += 1
        return True

    def _physical_offset(self, queue_offset: int) -> int:
        """The place of a message in the log; raises :class:`~lakelog.errors.OffsetOutOfRange`."""
        units = self._access.queue_units(*_QUEUE, queue_offset, 1)
        if not len(units) or int(units.queue_offsets[0]) != queue_offset:
            raise errors.OffsetOutOfRange("its queue has lost it", offset=queue_offset)
        return int(units.offsets[0])

    def progress(self) -> Callable[[], None] | None:
        """Return a function that saves the present progress; ``None`` if it is saved.

        The log must be durable before its call. It raises ``OSError`` and
        :class:`~lakelog.errors.StoreError`.
        """
        now, changes, access = self._clock(), self._changes, self._access
        if changes == self._saved_changes:
            return None
        progress = self._progress(now)

        def save() -> None:
            save_progress(access.files, access.path, progress, now)
            access.offsets.commit(GROUP, TIMER_TOPIC, {0: progress.lowest_offset})
            self._saved, self._saved_changes = progress, changes

        return save

    def _progress(self, now: int) -> TimerProgress:
        reader = self._reader
        lowest = [reader.next_offset, *self._deferred, *reader.unread]
        waiting = self._table.lowest_offset()
        if waiting is not None:
            lowest.append(waiting)
        first = self._table.next_ms(now)
        waiting_ms = *self._deferred.values(), *self._noted.values()
        times = [now + 1 if first is None else first, now + 1, *waiting_ms]
        if reader.unread:  # the times of unread messages are unknown
            times.append(self._saved.due_before_ms)
        return TimerProgress(min(lowest), reader.next_offset, min(times), by_slot=False)


def due_of(stored: StoredMessage) -> tuple[int, int]:
    """The exact due time of a timer message, and its ``TIMER_OUT_MS``, in ms since 1970.

    RocketMQ rounds ``TIMER_OUT_MS`` down to a second, and delivers at the end of that second. The
    exact time follows from the client's property then. A recall is due ``_RECALL_KEPT_MS`` later.
    Raises ``ValueError`` for a message without a time.
    """
    properties = stored.properties_bytes
    slot_ms = int(property_value(properties, b"TIMER_OUT_MS") or b"none")
    is_exact = slot_ms % _SLOT_MS != 0
    asked_ms = None if is_exact else timer_due_ms(properties, stored.store_timestamp_ms)
    due_ms = slot_ms if asked_ms is None else max(slot_ms, min(asked_ms, slot_ms + _SLOT_MS))
    if property_value(properties, _RECALL) is not None:
        due_ms += _RECALL_KEPT_MS
    return due_ms, slot_ms


def timer_due_ms(properties: bytes, now_ms: int) -> int | None:
    """The time of delivery of a timer message, in ms since 1970; ``None`` without one.

    :param now_ms: start of a relative delay, in ms since 1970

    Raises ``ValueError`` if the property is no number.
    """
    delay_ms = timer_delay_ms(properties)
    if delay_ms is not None:
        return now_ms + delay_ms
    at = property_value(properties, b"TIMER_DELIVER_MS")
    return None if at is None else int(at)


def timer_delay_ms(properties: bytes) -> int | None:
    """The relative delay of a timer message; ``None`` without one. Raises as above."""
    for name, unit_ms in _SPANS:
        span = property_value(properties, name)
        if span is not None:
            return int(span) * unit_ms
    return None


def recall_key(properties: bytes) -> bytes:
    """The key of a waiting message, as its recall has it in ``TIMER_DEL_UNIQKEY``."""
    topic = property_value(properties, REAL_TOPIC) or b""
    return topic + b"+" + (property_value(properties, b"UNIQ_KEY") or b"")


@attrs.frozen
class TimerProgress:
    """Defines which timer messages were delivered.

    A message was delivered if its queue offset is below ``read_offset``, and its time is before
    ``due_before_ms``.

    :ivar lowest_offset: the lowest queue offset of a waiting message; 0 if unknown
    :ivar read_offset: queue offset below which all messages were read
    :ivar due_before_ms: a time in ms since 1970
    :ivar by_slot: whether to compare ``TIMER_OUT_MS`` instead of the exact time
    """

    lowest_offset: int = 0
    read_offset: int = 0
    due_before_ms: int = 0
    by_slot: bool = True

    def is_delivered(self, queue_offset: int, due_ms: int, slot_ms: int) -> bool:
        """Whether a message was delivered.

        :param due_ms: its exact time, in ms since 1970
        :param slot_ms: its ``TIMER_OUT_MS``
        """
        time_ms = slot_ms if self.by_slot else due_ms
        return queue_offset < self.read_offset and time_ms < self.due_before_ms


def load_progress(files: FileSystem, path: Path) -> TimerProgress:
    """Read the progress in the store directory ``path``.

    Raises :class:`~lakelog.errors.CorruptConfig` and ``OSError``.
    """
    checkpoint = read_file(files, path / CONFIG_DIR / CHECKPOINT) or b""
    if len(checkpoint) < _FIELDS.size:
        return TimerProgress()
    fields = _FIELDS.unpack_from(checkpoint)
    try:
        own = load_config(files, path / CONFIG_DIR / OWN_FILE, _read_own).value
    except (errors.CorruptConfig, KeyError, TypeError) as error:
        text = "%s is damaged (%s): RocketMQ's %s counts, and some timers may come again"
        _LOG.warning(text, OWN_FILE, error, CHECKPOINT)
        own = None
    if own is not None and own[0] == list(fields):
        return own[1]
    read_time_ms, _, queue_offset, masters_offset = fields[:4]
    return TimerProgress(0, min(queue_offset, masters_offset), read_time_ms)


def _read_own(content: Mapping[str, Any]) -> tuple[list[int], TimerProgress] | None:
    if not content:
        return None
    lowest, read, due = (int(content[name]) for name in _OWN_FIELDS)
    return list(content["timercheck"]), TimerProgress(lowest, read, due, by_slot=False)


def save_progress(files: FileSystem, path: Path, progress: TimerProgress, now_ms: int) -> None:
    """Replace both files; raises ``OSError``.

    After a crash between the two, more messages are delivered again, and none is lost.

    :param now_ms: the present time, in ms since 1970
    """
    former = read_file(files, path / CONFIG_DIR / CHECKPOINT) or b""
    _, log_position, _, _, state, _, version = _FIELDS.unpack_from(
        former.ljust(_FIELDS.size, b"\0")
    )
    slot_ms = max(0, progress.due_before_ms // _SLOT_MS - 1) * _SLOT_MS
    fields = [
        slot_ms, log_position, progress.lowest_offset, progress.read_offset, state, now_ms,
        version + 1,
    ]  # fmt: skip  # in the order of the format
    files.make_dir(path / CONFIG_DIR)
    overwrite_file(
        files, path / CONFIG_DIR / CHECKPOINT, _FIELDS.pack(*fields).ljust(_FILE_BYTES, b"\0")
    )
    own = progress.lowest_offset, progress.read_offset, progress.due_before_ms
    content = {"timercheck": fields, **dict(zip(_OWN_FIELDS, own, strict=True))}
    save_config(files, path / CONFIG_DIR / OWN_FILE, content)


class TimerTable:
    """A priority queue of pairs of a due time (ms since 1970) and a queue offset.

    A pair of a future minute takes 8 bytes: the milliseconds within the minute, and the offset, are
    packed into one integer. Only the pairs of minutes that have begun are in a heap; these take
    about 45 bytes each.
    """

    def __init__(self) -> None:
        self._later: dict[int, array[int]] = {}  # by minute
        self._lowest: dict[int, int] = {}  # lowest queue offset, by minute
        self._minutes: list[int] = []  # a heap of the keys of _later
        self._begun: list[int] = []  # a heap of packed pairs with times in ms since 1970

    def __len__(self) -> int:
        return len(self._begun) + sum(map(len, self._later.values()))

    def add(self, due_ms: int, offset: int, now_ms: int) -> None:
        """Add a pair; ``now_ms`` is the present time in ms since 1970."""
        minute, ms = divmod(due_ms, _MINUTE_MS)
        if minute * _MINUTE_MS <= now_ms:
            heapq.heappush(self._begun, due_ms << _OFFSET_BITS | offset)
            return
        pairs = self._later.get(minute)
        if pairs is None:
            pairs = self._later[minute] = array("q")
            heapq.heappush(self._minutes, minute)
            self._lowest[minute] = offset
        self._lowest[minute] = min(offset, self._lowest[minute])
        pairs.append(ms << _OFFSET_BITS | offset)

    def take(self, now_ms: int) -> tuple[int, int] | None:
        """Remove and return the earliest pair that is due; ``None`` if no pair is due."""
        self._begin(now_ms)
        if not self._begun or self._begun[0] >> _OFFSET_BITS > now_ms:
            return None
        pair = heapq.heappop(self._begun)
        return pair >> _OFFSET_BITS, pair & _OFFSET_MASK

    def remove(self, due_ms: int, offset: int) -> None:
        """Remove a pair; raises ``ValueError`` if it does not exist."""
        minute, ms = divmod(due_ms, _MINUTE_MS)
        pairs = self._later.get(minute)
        if pairs is None:
            self._begun.remove(due_ms << _OFFSET_BITS | offset)
            heapq.heapify(self._begun)
            return
        pairs.remove(ms << _OFFSET_BITS | offset)
        self._lowest[minute] = min((pair & _OFFSET_MASK for pair in pairs), default=_OFFSET_MASK)

    def next_ms(self, now_ms: int) -> int | None:
        """Time of the earliest pair, or the start of its minute; ``None`` without pairs."""
        self._begin(now_ms)
        if self._begun:
            return self._begun[0] >> _OFFSET_BITS
        return self._minutes[0] * _MINUTE_MS if self._minutes else None

    def due_ms(self, offset: int) -> int:
        """The due time of an offset; raises ``KeyError`` if no pair has it."""
        for minute in [minute for minute, lowest in self._lowest.items() if lowest == offset]:
            for pair in self._later[minute]:
                if pair & _OFFSET_MASK == offset:
                    return minute * _MINUTE_MS + (pair >> _OFFSET_BITS)
        for due_ms, found in self.pairs():
            if found == offset:
                return due_ms
        raise KeyError(offset)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """All pairs."""
        for pair in self._begun:
            yield pair >> _OFFSET_BITS, pair & _OFFSET_MASK
        for minute, pairs in self._later.items():
            for pair in pairs:
                yield minute * _MINUTE_MS + (pair >> _OFFSET_BITS), pair & _OFFSET_MASK

    def lowest_offset(self, start: int = 0) -> int | None:
        """The lowest queue offset, from ``start`` on, of all pairs; ``None`` without one."""
        found = [offset for each in self._begun if (offset := each & _OFFSET_MASK) >= start]
        for minute, lowest in self._lowest.items():
            if lowest >= start:
                found.append(lowest)
            else:  # the first ones of this minute could not be removed
                found += [
                    at for each in self._later[minute] if (at := each & _OFFSET_MASK) >= start
                ]
        return min((each for each in found if each != _OFFSET_MASK), default=None)

    def _begin(self, now_ms: int) -> None:
        """Move the pairs of minutes that have begun into the heap."""
        while self._minutes and self._minutes[0] * _MINUTE_MS <= now_ms:
            minute = heapq.heappop(self._minutes)
            begin_ms = minute * _MINUTE_MS
            pairs = self._later.pop(minute)
            del self._lowest[minute]
            self._begun += [
                begin_ms + (pair >> _OFFSET_BITS) << _OFFSET_BITS | pair & _OFFSET_MASK
                for pair in pairs
            ]
            heapq.heapify(self._begun)
