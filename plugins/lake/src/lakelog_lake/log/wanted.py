"""Which records are wanted: by a read (:class:`RecordCondition`), or as rows (:class:`Chosen`).

A condition is sent to tasks, and computes a mask over records. It is always checked on the records
themselves, also if a queue or index was used to find them.

Topics for internal use of a broker or a repair (RocketMQ's ``TopicValidator``) are left out unless
they are asked for. Delayed messages wait in such topics, and are stored again under their real
topic on delivery. So rows of both topics would be duplicates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import attrs
import numpy as np
from numpy.typing import NDArray

from lakelog.arrow import to_arrow
from lakelog.format import layout, properties, record_batch
from lakelog.format.queue_offsets import Queue

Flags: TypeAlias = "NDArray[np.bool_]"


SYSTEM_TOPICS: Final = frozenset(
    {
        properties.SCHEDULE_TOPIC,
        properties.REPAIRED_TOPIC,
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "CHECKPOINT_TOPIC",
        "OFFSET_MOVED_EVENT",
        "SELF_TEST_TOPIC",
        "BenchmarkTest",
        "TBW102",
    }
)
PREFIXES: Final = ("rmq_sys_", "%RETRY%")


def is_system_topic(topic: str) -> bool:
    """Whether ``topic`` is internal; a topic of dead letters, ``%DLQ%``, is not.

    >>> is_system_topic("%RETRY%group"), is_system_topic("orders")
    (True, False)
    """
    return topic in SYSTEM_TOPICS or topic.startswith(PREFIXES)


LAST: Final = (1 << 63) - 1


@attrs.frozen
class NumberSpan:
    """Whole numbers from ``low`` (inclusive) to ``end`` (exclusive)."""

    low: int = -LAST
    end: int = LAST

    def both(self, other: NumberSpan) -> NumberSpan:
        """The intersection."""
        return NumberSpan(max(self.low, other.low), min(self.end, other.end))

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

    def flags(self, batch: record_batch.RecordBatch) -> Flags:
        """Whether each record of ``batch`` matches."""
        good = self._by_numbers(batch)
        if good.any():
            good &= self._by_topic(batch)
        if good.any() and (self.tags, self.key) != (None, None):
            good &= self._by_text(batch)
        return good

    def _by_numbers(self, batch: record_batch.RecordBatch) -> Flags:

        good = np.ones(len(batch), np.bool_)
        if not self.unqueued:
            good &= (batch.sys_flags & layout.PREPARED) == 0
        for span, name in (
            (self.physical, "physical_offsets"),
            (self.times_ms, "store_timestamps_ms"),
            (self.queue_offsets, "queue_offsets"),
        ):
            if span != ALL:
                good &= span.flags(getattr(batch, name))  # decoded at the first use
        if self.queue_ids is not None:
            good &= np.isin(batch.queue_ids, list(self.queue_ids))
        return good

    def _by_topic(self, batch: record_batch.RecordBatch) -> Flags:

        topics, numbers = coded_topics(batch)
        good: Flags = np.array([self.has_topic(each) for each in topics], np.bool_)[numbers]
        if self.queues is None and not self.by_queue:
            return good
        for number, topic in enumerate(topics):
            these = np.flatnonzero((numbers == number) & good)
            good[these] = self._by_queue(topic, batch, these)
        return good

    def _by_queue(self, topic: str, batch: record_batch.RecordBatch, rows: Any) -> Flags:

        ids, places = batch.queue_ids[rows], batch.queue_offsets[rows]
        good: Flags = np.zeros(len(rows), np.bool_)
        for queue_id in set(ids.tolist()):
            if self.has_queue((topic, queue_id)):
                good |= (ids == queue_id) & self.span_of((topic, queue_id)).flags(places)
        return good

    def _by_text(self, batch: record_batch.RecordBatch) -> Flags:

        table = to_arrow(batch, columns=["tags", "unique_key", "keys"])
        tags, unique, keys = (column.to_pylist() for column in table.columns)
        rows = zip(tags, unique, keys, strict=True)
        return np.fromiter((self._matches(*row) for row in rows), np.bool_, len(batch))

    def _matches(self, tag: str | None, unique: str | None, keys: list[str]) -> bool:
        return (self.tags is None or tag in self.tags) and (
            self.key is None or unique == self.key or self.key in keys
        )


@attrs.frozen
class Chosen:
    """The condition for a record to become a row.

    :ivar system_topics: whether RocketMQ's own topics are included
    :ivar topics: the selected topics; ``None`` for all
    :ivar since_ms: least store time, in ms since 1970; ``None`` for no limit
    """

    system_topics: bool = False
    topics: frozenset[str] | None = None
    since_ms: int | None = None

    @classmethod
    def of(
        cls, topics: Sequence[str] | None, since_ms: int | None, *, system_topics: bool = False
    ) -> Chosen:
        """Build a condition from options; no topics are all topics."""
        return cls(system_topics, frozenset(topics) if topics else None, since_ms)

    @property
    def is_partial(self) -> bool:
        """Whether some messages of users are left out."""
        return self.topics is not None or self.since_ms is not None

    def description(self, *, of_one_topic: bool = False) -> str:
        """Describe the selection, for users and for the comparison with another selection.

        :param of_one_topic: whether to describe a table of a single chosen topic
        """
        if of_one_topic:
            what = "all messages of its topic"
        elif self.topics is not None:
            names = json.dumps(sorted(self.topics), ensure_ascii=False)
            what = f"messages of the topics {names}"
        else:
            what = "all messages"
            what += (
                ", of system topics too" if self.system_topics else " but those of system topics"
            )
        since = "" if self.since_ms is None else f" stored since {self.since_ms} ms"
        return what + since

    def takes(self, topic: str) -> bool:
        """Whether messages of ``topic`` are selected; a topic given by name always is."""
        if self.topics is not None:
            return topic in self.topics
        return self.system_topics or not is_system_topic(topic)


EVERYTHING: Final = Chosen()
"""All messages of users."""


def coded_topics(batch: record_batch.RecordBatch) -> tuple[list[str], NDArray[np.int64]]:
    """The distinct topics of ``batch``, and the index of each record's topic among them."""
    column = to_arrow(batch, columns=["topic"]).column(0).dictionary_encode()
    codes = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return column.dictionary.to_pylist(), codes


def chosen_rows(
    batch: record_batch.RecordBatch, topics: Sequence[str], codes: NDArray[np.int64], chosen: Chosen
) -> NDArray[np.int64]:
    """The indices of the records of ``batch`` that become rows.

    :param topics: the distinct topics of the batch
    :param codes: for each record the index of its topic
    """
    wanted = (batch.sys_flags & layout.PREPARED) == 0
    of_topic = np.array([chosen.takes(each) for each in topics], np.bool_)
    wanted &= of_topic[codes]
    if chosen.since_ms is not None:
        wanted &= batch.store_timestamps_ms >= chosen.since_ms
    return np.flatnonzero(wanted)
