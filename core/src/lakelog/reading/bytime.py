"""Queue offsets by store time: a binary search that reads only the heads of the records it meets.

RocketMQ 5.3.3: ``ConsumeQueue.getOffsetInQueueByTime`` with its ``BoundaryType``. Store times rise
with the queue; where a clock was set back, the search finds one of the places that fit.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal, TypeAlias

import attrs

from lakelog.accelerate import Accelerator
from lakelog.files.pages import shared_page as sharedpage
from lakelog.format.queue_offsets import Queue
from lakelog.interfaces import QueueReader
from lakelog.log.open_segment import Viewable
from lakelog.log.reading.log_reader import LogReader
from lakelog.reading.heads import HeadLog, Heads
from lakelog.reading.plainway import PlainQueues
from lakelog.runtime.arguments import WrongValue, queue_name, time_ms

Boundary: TypeAlias = Literal["lower", "upper"]
Search: TypeAlias = Callable[[Any, Any, Any, Any], "int | None"]
"""What :meth:`TimeSearch.offset_by_time` finds, by its arguments; ``None``: Python has to look."""


def _leave_it(*_arguments: Any) -> None:
    """Python has to look."""


@attrs.frozen
class TimeSearch:
    """Finds queue offsets by time.

    :ivar minimum: gives the log's first byte
    :ivar search: to be asked before :meth:`offset_by_time`
    """

    queues: QueueReader
    log: HeadLog
    minimum: Callable[[], int]
    search: Search = _leave_it

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = "lower"
    ) -> int:
        """The queue offset for a store time in ms since 1970.

        ``lower`` is the first message that is not older, and the queue's end if all are older.
        ``upper`` is the last message that is not younger, and the queue's first if all are
        younger. So between two times the upper one comes before the lower one, as in RocketMQ.
        0 where no such queue is. Messages that cannot be read are passed over.

        Raises ``TypeError`` for arguments of a wrong type, and ``ValueError`` for a time that can
        only be seconds, a boundary of another name, or a queue id below 0.
        """
        timestamp_ms = time_ms("timestamp_ms", timestamp_ms)
        if boundary not in ("lower", "upper"):
            raise WrongValue(f"boundary {boundary!r} is unknown; give 'lower' or 'upper'")
        bounds = self._bounds(topic, queue_id)
        if bounds is None:
            return 0
        first, end = bounds
        heads = Heads(self.queues, self.log, (topic, queue_id))
        if boundary == "lower":
            return _search(heads, first, end, lambda ms: ms >= timestamp_ms)[1]
        return max(first, _search(heads, first, end, lambda ms: ms > timestamp_ms)[0])

    def earliest_time(self, topic: str, queue_id: int) -> int | None:
        """Store time of the first message that can be read, in ms; ``None`` if there is none."""
        bounds = self._bounds(topic, queue_id)
        if bounds is None:
            return None
        found = Heads(self.queues, self.log, (topic, queue_id)).first_readable(*bounds)
        return None if found is None else found.time_ms

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        return self.queues.bounds(queue_name(topic, queue_id), self.minimum())


@attrs.frozen
class SearchParts:
    """What an owner searches a queue by, for compiled code that does the same.

    :ivar memory: the shared page; :ivar layout: where its words stand, by their names
    :ivar bounds: see :class:`~lakelog.interfaces.QueueReader`; :ivar plain: see `PlainQueues`
    :ivar open_segments: see :class:`~lakelog.log.segments.Segments`; :ivar segment_bytes: of each
    """

    memory: memoryview
    bounds: Callable[[Queue, int], tuple[int, int] | None]
    plain: Callable[[Queue, int, int], Any]
    open_segments: dict[int, Viewable]
    segment_bytes: int
    layout: ModuleType = sharedpage


def searching(accelerator: Accelerator | None, queues: QueueReader, log: LogReader) -> Search:
    """What compiled code finds; nothing where there is none, and for who is no owner."""
    owned = log.owned()
    if accelerator is None or owned is None or not isinstance(queues, PlainQueues):
        return _leave_it
    memory, segments = owned
    if segments.staged:
        return _leave_it  # what is staged is copied to be seen, and whole segments are looked at
    open_segments, length = segments.open_segments, segments.size_bytes
    parts = SearchParts(memory, queues.bounds, queues.plain, open_segments, length)
    return accelerator.searching(parts) or _leave_it


def _search(heads: Heads, low: int, high: int, is_behind: Callable[[int], bool]) -> tuple[int, int]:
    """The last message before a time, or ``low``; and the first behind it, or ``high``."""
    before, behind = low, high
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
