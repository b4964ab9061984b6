"""The condition of a read: it is sent to tasks, and computes a mask over records.

The condition is always checked on the records themselves, also if a queue or index was used to find
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from lakelog.format.sysflag import PREPARED
from lakelog_lake.log.system_topics import is_system_topic

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lakelog.codec import RecordBatch
    from lakelog.format.queue_offsets import Queue

    Flags = NDArray[np.bool_]

LAST: Final = (1 << 63) - 1


@attrs.frozen
class NumberSpan:
    """Whole numbers from ``low`` (inclusive) to ``end`` (exclusive)."""

    low: int = -LAST
    end: int = LAST

    def both(self, other: NumberSpan) -> NumberSpan:
        """The intersection."""
        return NumberSpan(max(self.low, other.low), min(self.end, other.end))

    @property
    def is_all(self) -> bool:
        """Whether it contains every number."""
        return self == ALL

    def flags(self, values: Any) -> Flags:
        """Whether it contains each of ``values``."""
        return cast("Flags", (values >= self.low) & (values < self.end))


ALL: Final = NumberSpan()


@attrs.frozen
class RecordCondition:
    """A conjunction of conditions on records; a condition that is not given always holds.

    :ivar topics: the topic is one of them
    :ivar queue_ids: the queue id is one of them
    :ivar queues: topic and queue id are one of them
    :ivar physical: span of physical offsets, in bytes
    :ivar times_ms: span of store times, in ms since 1970
    :ivar queue_offsets: span of queue offsets
    :ivar by_queue: spans of queue offsets of single queues
    :ivar tags: the tag is one of them
    :ivar key: the unique key, or one of the keys
    :ivar unqueued: whether prepared and rollback records of transactions match
    :ivar system_topics: whether records of system topics match
    """

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    queues: frozenset[tuple[str, int]] | None = None
    physical: NumberSpan = ALL
    times_ms: NumberSpan = ALL
    queue_offsets: NumberSpan = ALL
    by_queue: Mapping[tuple[str, int], NumberSpan] = attrs.field(factory=dict)
    tags: frozenset[str] | None = None
    key: str | None = None
    unqueued: bool = False
    system_topics: bool = False

    def has_topic(self, topic: str) -> bool:
        """Whether records of ``topic`` can match."""
        if self.topics is not None and topic not in self.topics:
            return False
        if self.queues is not None and all(topic != name for name, _ in self.queues):
            return False
        return self.system_topics or not is_system_topic(topic)

    def has_queue(self, queue: Queue) -> bool:
        """Whether records of ``queue`` can match."""
        if self.queue_ids is not None and queue[1] not in self.queue_ids:
            return False
        return self.has_topic(queue[0]) and (self.queues is None or queue in self.queues)

    def span_of(self, queue: Queue) -> NumberSpan:
        """The queue offsets of ``queue`` that can match."""
        return self.queue_offsets.both(self.by_queue.get(queue, ALL))

    def flags(self, batch: RecordBatch) -> Flags:
        """Whether each record of ``batch`` matches."""
        good = self._by_numbers(batch)
        if good.any():
            good &= self._by_topic(batch)
        if good.any() and (self.tags, self.key) != (None, None):
            good &= self._by_text(batch)
        return good

    def _by_numbers(self, batch: RecordBatch) -> Flags:
        import numpy as np

        good = np.ones(len(batch), np.bool_)
        if not self.unqueued:
            good &= (batch.sys_flags & PREPARED) == 0
        if not self.physical.is_all:
            good &= self.physical.flags(batch.physical_offsets)
        if not self.times_ms.is_all:
            good &= self.times_ms.flags(batch.store_timestamps_ms)
        if not self.queue_offsets.is_all:
            good &= self.queue_offsets.flags(batch.queue_offsets)
        if self.queue_ids is not None:
            good &= np.isin(batch.queue_ids, list(self.queue_ids))
        return good

    def _by_topic(self, batch: RecordBatch) -> Flags:
        import numpy as np

        from lakelog_queues.arrow import to_arrow

        coded: Any = to_arrow(batch, columns=["topic"]).column(0).dictionary_encode()
        topics: list[str] = coded.dictionary.to_pylist()
        numbers = coded.indices.to_numpy()
        good: Flags = np.array([self.has_topic(each) for each in topics], np.bool_)[numbers]
        if self.queues is None and not self.by_queue:
            return good
        for number, topic in enumerate(topics):
            these = np.flatnonzero((numbers == number) & good)
            good[these] = self._by_queue(topic, batch, these)
        return good

    def _by_queue(self, topic: str, batch: RecordBatch, rows: Any) -> Flags:
        import numpy as np

        ids, places = batch.queue_ids[rows], batch.queue_offsets[rows]
        good: Flags = np.zeros(len(rows), np.bool_)
        for queue_id in set(ids.tolist()):
            if self.has_queue((topic, queue_id)):
                good |= (ids == queue_id) & self.span_of((topic, queue_id)).flags(places)
        return good

    def _by_text(self, batch: RecordBatch) -> Flags:
        import numpy as np

        from lakelog_queues.arrow import to_arrow

        table = to_arrow(batch, columns=["tags", "unique_key", "keys"])
        tags, unique, keys = (column.to_pylist() for column in table.columns)
        rows = zip(tags, unique, keys, strict=True)
        return np.fromiter((self._matches(*row) for row in rows), np.bool_, len(batch))

    def _matches(self, tag: str | None, unique: str | None, keys: list[str]) -> bool:
        return (self.tags is None or tag in self.tags) and (
            self.key is None or unique == self.key or self.key in keys
        )
