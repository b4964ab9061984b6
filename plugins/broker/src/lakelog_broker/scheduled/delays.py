"""Delivers messages with a delay level when they are due.

Queue ``level - 1`` of ``SCHEDULE_TOPIC_XXXX`` has the messages of a level, in the order of their
delivery. The tags code of a ConsumeQueue unit is the time of delivery, in ms since 1970.
``config/delayOffset.json`` has the next queue offset of each level. Source: RocketMQ 5.3.3,
``ScheduleMessageService``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from lakelog import Store, StoredMessage
from lakelog.files.filesystem import FileSystem
from lakelog.format.properties import SCHEDULE_TOPIC
from lakelog_broker.appending import BrokerAppender
from lakelog_broker.scheduled import delivering
from lakelog_broker.state.arrivals import ArrivalWaits
from lakelog_queues.units.tags import DELAYS_MS
from lakelog_rocketmq.config import load_delay_offsets, save_delay_offsets

_NEVER: Final = 1 << 62
_REMOVED: Final = (b"DELAY", b"TIMER_DELIVER_MS", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS")


@attrs.define
class _Level:
    """The progress of one level.

    :ivar next_offset: queue offset of the first message whose delivery was not tried
    :ivar due_ms: time of its delivery, in ms since 1970; 0 if unknown, ``_NEVER`` at the end of
        the queue
    :ivar deferred: physical offset of each message to try again, by queue offset
    """

    queue_id: int
    next_offset: int
    due_ms: int = 0
    deferred: dict[int, int] = attrs.field(factory=dict)

    @property
    def first_open(self) -> int:
        """The lowest queue offset that was not delivered."""
        return min(self.deferred, default=self.next_offset)


class Delays:
    """Delivers the messages of all levels; used from one event loop.

    Raises :class:`~lakelog.errors.CorruptConfig` if ``config/delayOffset.json`` is damaged.
    """

    def __init__(
        self,
        store: Store,
        appender: BrokerAppender,
        waits: ArrivalWaits,
        files: FileSystem,
        *,
        clock: delivering.Clock = delivering.now_ms,
    ) -> None:
        self._store, self._appender, self._waits = store, appender, waits
        self._files, self._path, self._clock = files, Path(store.path), clock
        self._deliverer = delivering.Deliverer("a delayed message", store.look_up)
        self._saved = load_delay_offsets(files, self._path).value
        self._levels = [
            _Level(level - 1, self._saved.get(level, 0)) for level in range(1, len(DELAYS_MS) + 1)
        ]
        self._retry_at_ms = 0
        self._saving = threading.Lock()

    async def run(self) -> None:
        """Deliver until the task is cancelled."""
        queues = [(SCHEDULE_TOPIC, level.queue_id) for level in self._levels]
        while True:
            await delivering.pause(
                self.deliver_due(), self._clock, self._waits, queues, self._has_grown
            )

    def _has_grown(self) -> bool:
        """Whether a level has a new message, at what was the end of its queue."""
        ended = (level for level in self._levels if level.due_ms == _NEVER)
        return any(self._bounds(level)[1] > level.next_offset for level in ended)

    def deliver_due(self) -> int:
        """Deliver at most ``BATCH`` due messages of each level.

        :returns: time of the next delivery, in ms since 1970; in the past if more is due now
        """
        retries = self._clock() >= self._retry_at_ms
        for level in self._levels:
            if retries and level.deferred:
                self._retry(level)
            if level.due_ms <= self._clock() or level.due_ms == _NEVER:
                self._deliver(level)
        first = min(level.due_ms for level in self._levels)
        if any(level.deferred for level in self._levels):
            if retries:
                self._retry_at_ms = self._clock() + delivering.RETRY_MS
            first = min(first, self._retry_at_ms)
        return first

    def _deliver(self, level: _Level) -> None:
        if len(level.deferred) >= delivering.MAX_DEFERRED:
            level.due_ms = self._clock() + delivering.RETRY_MS
            return
        low, high = self._bounds(level)
        # RocketMQ corrects an offset outside of the queue in the same way.
        level.next_offset = min(max(level.next_offset, low), high)
        level.due_ms = _NEVER
        if level.next_offset == high:
            return
        units = self._store.queue_units(
            SCHEDULE_TOPIC, level.queue_id, level.next_offset, delivering.BATCH
        )
        columns = units.queue_offsets.tolist(), units.offsets.tolist(), units.tags_codes.tolist()
        for queue_offset, physical_offset, due_ms in zip(*columns, strict=True):
            if due_ms > self._clock():
                level.due_ms = due_ms
                return
            level.next_offset = queue_offset + 1
            if not self._deliverer.deliver(physical_offset, self._put):
                level.deferred[queue_offset] = physical_offset
        level.due_ms = 0  # the next unit is unknown

    def _retry(self, level: _Level) -> None:
        for queue_offset, physical_offset in list(level.deferred.items()):
            if self._deliverer.deliver(physical_offset, self._put):
                del level.deferred[queue_offset]

    def _put(self, stored: StoredMessage) -> None:
        self._appender.put_real(stored, _REMOVED)

    def _bounds(self, level: _Level) -> tuple[int, int]:
        return self._store.queue_bounds(SCHEDULE_TOPIC, level.queue_id) or (0, 0)

    def progress(self) -> Callable[[], None] | None:
        """Return a function that saves the present offsets; ``None`` if they are saved.

        The log must be durable before its call, which may be in any thread. It raises ``OSError``
        and :class:`~lakelog.errors.CorruptConfig`.
        """
        # A level whose queue does not exist has no offset.
        present = {level.queue_id + 1: level.first_open for level in self._levels}
        offsets = {**self._saved, **{each: at for each, at in present.items() if at}}
        if offsets == self._saved:
            return None

        def save() -> None:
            with self._saving:
                former = load_delay_offsets(self._files, self._path).content
                save_delay_offsets(self._files, self._path, former, offsets, self._clock())
                self._saved = offsets

        return save
