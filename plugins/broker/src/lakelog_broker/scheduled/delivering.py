"""Reads and delivers messages that were set aside; one that cannot be delivered stops no other.

What a put or a read refuses for now is tried again; a damaged or deleted record is left out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from lakelog import PutRefused, Store, StoredMessage, errors
from lakelog.format.queue_offsets import Queue
from lakelog.results import PutStatus
from lakelog_broker.state.arrivals import ArrivalWaits

_LOG: Final = logging.getLogger("lakelog.broker")
_ILLEGAL: Final = {
    PutStatus.MESSAGE_ILLEGAL,
    PutStatus.MESSAGE_SIZE_EXCEEDED,
    PutStatus.PROPERTIES_SIZE_EXCEEDED,
}
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
                    text = (
                        "%s at offset %d of the log could not be delivered and is tried again: %s"
                    )
                    is_expected = isinstance(error, errors.StoreError | PutRefused)
                    _LOG.warning(text, *where, error, exc_info=None if is_expected else error)
                return False
            _LOG.error("%s at offset %d of the log is left out: %s", *where, error)
        self._failing.discard(physical_offset)
        return True


def _is_final(error: Exception) -> bool:
    if isinstance(error, PutRefused):
        return error.status in _ILLEGAL
    if isinstance(error, errors.ReadFailed):
        return False
    return isinstance(
        error, errors.CorruptRecord | errors.OffsetOutOfRange | errors.IllegalMessage | ValueError
    )


class SystemQueueReader:
    """Reads the new messages of a queue of a system topic, in order.

    :ivar next_offset: queue offset of the first message that was not read
    :ivar unread: physical offset of each message to read again, by queue offset
    :param add: takes a message that was read
    """

    def __init__(
        self,
        store: Store,
        queue: Queue,
        next_offset: int,
        deliverer: Deliverer,
        add: Callable[[StoredMessage], Any],
    ) -> None:
        self._store, self._queue, self._deliverer, self._add = store, queue, deliverer, add
        self.next_offset = next_offset
        self.unread: dict[int, int] = {}

    def bounds(self) -> tuple[int, int]:
        """First offset of the queue, and the offset of its next message."""
        return self._store.queue_bounds(*self._queue) or (0, 0)

    def has_grown(self) -> bool:
        """Whether the queue has messages that were not read."""
        return self.bounds()[1] > self.next_offset

    def read(self, is_known: Callable[[int], bool] = lambda _offset: False) -> bool:
        """Read at most ``BATCH`` new messages; return whether there was any.

        :param is_known: whether the message at a queue offset is to be left out
        """
        low, high = self.bounds()
        # RocketMQ corrects an offset outside of the queue in the same way.
        self.next_offset = min(max(self.next_offset, low), high)
        if self.next_offset == high or len(self.unread) >= MAX_DEFERRED:
            return False
        units = self._store.queue_units(*self._queue, self.next_offset, BATCH)
        columns = units.queue_offsets.tolist(), units.offsets.tolist()
        for queue_offset, physical_offset in zip(*columns, strict=True):
            self.next_offset = queue_offset + 1
            if is_known(queue_offset) or self._deliverer.deliver(physical_offset, self._add):
                continue
            self.unread[queue_offset] = physical_offset
        return True

    def retry(self) -> None:
        """Try again to read the messages of ``unread``."""
        for queue_offset, physical_offset in list(self.unread.items()):
            if self._deliverer.deliver(physical_offset, self._add):
                self.unread.pop(queue_offset, None)


async def pause(
    due_ms: int,
    clock: Clock,
    waits: ArrivalWaits,
    queues: Iterable[Queue],
    has_grown: Callable[[], bool],
) -> None:
    """Wait until some work is due, or one of ``queues`` has grown.

    :param due_ms: time of the work, in ms since 1970; for one in the past, other tasks run first
    """
    wait_ms = min(due_ms - clock(), LONGEST_WAIT_MS)
    if wait_ms <= 0:
        await asyncio.sleep(0)
    else:
        await waits.until(queues, wait_ms / 1000, has_grown, is_urgent=False)
