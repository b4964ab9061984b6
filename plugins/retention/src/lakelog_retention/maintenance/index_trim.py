"""Trims queues and index to the log's minimum, and removes the queues of unused topics.

Queues and index may lag behind the minimum at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from lakelog.dispatch.run import NamedDispatcher, forget_topic
from lakelog.dispatch.runner import DispatchRunner
from lakelog.errors import StoreError
from lakelog.files.pages.positions import Positions
from lakelog.format.properties import REPAIRED_TOPIC
from lakelog.interfaces import FrontRemover, QueueReader
from lakelog.log.commit_log import CommitLog

_LOG: Final = logging.getLogger("lakelog")


@attrs.define(eq=False)
class IndexTrimmer:
    """Queues and index of a log, as maintenance uses them.

    :ivar forget_unused: removes the queues of topics without remaining records and returns the
        names; called with the dispatchers while dispatching is paused. ``None`` keeps such queues
    """

    _reput: DispatchRunner
    _positions: Positions
    _forget_unused: Callable[[Sequence[NamedDispatcher]], Sequence[str]] | None = None
    _done: int = -1

    def follow(self) -> tuple[int, tuple[str, ...]]:
        """Remove files wholly below the minimum; return the number of files, and the topics.

        A file that cannot be removed is logged, and tried again with the next segment.
        """
        minimum = self._positions.minimum
        if self._done == minimum or self._reput.failure is not None:
            return 0, ()
        removed = 0
        with self._reput.paused() as dispatchers:
            for each in dispatchers:
                removed += _remove(each, minimum)
            forget = self._forget_unused
            topics = () if forget is None else tuple(forget(dispatchers))
        self._done = minimum
        return removed, topics


def _remove(named: NamedDispatcher, minimum: int) -> int:
    dispatcher = named.dispatcher
    if not isinstance(dispatcher, FrontRemover):
        return 0
    try:
        return dispatcher.remove_before(minimum)
    except (OSError, StoreError) as error:
        _LOG.warning("%s: files before offset %d were not removed: %s", named.name, minimum, error)
        return 0


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
