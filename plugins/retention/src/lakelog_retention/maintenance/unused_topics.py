"""Removes the queues of topics without remaining records."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.dispatch.run import NamedDispatcher, forget_topic
from lakelog.format.properties import REPAIRED_TOPIC
from lakelog.interfaces import QueueReader
from lakelog.log.commit_log import CommitLog


def delete_unused(log: CommitLog, dispatchers: Sequence[NamedDispatcher]) -> list[str]:
    """Remove the queues of topics without remaining records; return the topic names.

    Dispatching must be paused; ``dispatchers`` come from ``DispatchRunner.paused``. The tombstone
    ends at ``dispatched``: records that are dispatched later create the queues again.
    """
    readers = [each.dispatcher for each in dispatchers if isinstance(each.dispatcher, QueueReader)]
    removed = unused_topics(readers[0], log.positions.minimum) if readers else []
    if removed:
        log.sync()  # a tombstone must not reach beyond the durable end
    for topic in removed:
        forget_topic(dispatchers, topic, log.positions.dispatched)
    return removed


def unused_topics(reader: QueueReader, minimum: int) -> list[str]:
    """Topics with queues that refer to no record still in the log.

    :param minimum: first byte of the log
    """
    used: dict[str, bool] = {}
    for topic, queue_id in reader.queues():
        bounds = reader.bounds((topic, queue_id), minimum)
        used[topic] = used.get(topic, False) or (bounds is not None and bounds[0] < bounds[1])
    used.pop(REPAIRED_TOPIC, None)  # it cannot be removed
    return sorted(topic for topic, has_some in used.items() if not has_some)
