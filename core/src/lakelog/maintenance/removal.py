"""Deletes segments from the front, then trims queues and index to the log's minimum.

Segments go one at a time, so that no crash leaves a gap. The minimum is raised and published before
a file is deleted, so no reader is sent to a missing file. Each deletion is durable before the next,
since an open takes the first file as the start of the log. A file that could not be deleted is
tried again before any other. Queues and index may lag behind the minimum at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Final

import attrs

from lakelog.dispatch import DispatchRunner, NamedDispatcher, forget_topic
from lakelog.errors import StoreError
from lakelog.files.preallocation import MakingFailed
from lakelog.format.properties import REPAIRED_TOPIC
from lakelog.hooks import Clock, Deleted, DeletionRate, FrontRemover, KeptSegment, QueueReader
from lakelog.log.commit_log import CommitLog
from lakelog.log.health import Health
from lakelog.maintenance.planning import Candidate, Holds
from lakelog.processes.positions import Positions
from lakelog.registry.registry import Events

_LOG: Final = logging.getLogger("lakelog")


class Remover:
    """Deletes the cleaner's choices; for one thread at a time.

    :param path_of: returns the path of the segment that starts at an offset
    """

    def __init__(
        self,
        log: CommitLog,
        health: Health,
        events: Events,
        path_of: Callable[[int], Path],
        clock: Clock,
        pace: DeletionRate,
    ) -> None:
        self._log = log
        self._health = health
        self._events = events
        self._path_of = path_of
        self._clock = clock
        self._pace = pace
        self._left: Candidate | None = None

    def act(
        self, chosen: Sequence[Candidate], holds: Holds, stop: Event
    ) -> tuple[list[Deleted], KeptSegment | None]:
        """Delete at most one batch; return the deleted segments, and the one that stopped it."""
        deleted: list[Deleted] = []
        if self._left is not None:
            left, why = self._left, self._finish(self._left)
            if why is not None:
                first, name = self._log.segments.first_offset, left.info.start_offset
                return deleted, KeptSegment(first, f"the file of {name} cannot be deleted: {why}")
            deleted.append(left.deleted())
        for each in chosen[: self._pace.batch_max]:
            if deleted and self._clock.wait(stop, self._pace.interval_ms):
                break
            why = self._held(each, holds)
            if why is None:
                why = self._delete(each)
            if why is not None:
                return deleted, KeptSegment(each.info.start_offset, why)
            deleted.append(each.deleted())
        return deleted, None

    def _held(self, candidate: Candidate, holds: Holds) -> str | None:
        """The reason to stay; hooks of plugins run last, since they may act on the segment."""
        start = candidate.info.start_offset
        why = holds(candidate)
        if why is not None:
            return why
        segments = self._log.segments
        if not segments.is_durable(start):  # a sync may be using its file
            self._log.sync()
        if start != segments.first_offset:
            return f"the log begins at {segments.first_offset} now"
        if not segments.is_durable(start):
            return "it is not durable yet"
        return self._events.segment_deleting(self._path_of(start), start)

    def _delete(self, candidate: Candidate) -> str | None:
        """Delete it; return why its file remains, if it does."""
        start = candidate.info.start_offset
        _log_deletion(candidate, self._path_of(start))
        self._log.positions.minimum = candidate.end_offset
        self._log.segments.exclude_first()
        self._left = candidate
        why = self._finish(candidate)
        return None if why is None else f"its file cannot be deleted: {why}"

    def _finish(self, left: Candidate) -> str | None:
        """Remove the file that the minimum has passed already; return the error, if any."""
        start = left.info.start_offset
        try:
            self._log.segments.remove(start)
        except MakingFailed as error:  # a later deletion could become durable before this one
            raise self._health.fail(error.cause) from error
        except OSError as error:
            _LOG.warning("%s; it is tried again in the next round", error)
            return str(error)
        self._left = None
        self._events.segment_deleted(self._path_of(start), start)
        return None


def _log_deletion(candidate: Candidate, path: Path) -> None:
    """Log the deletion; as an error if pins still needed the messages."""
    info = candidate.info
    if info.pinned_by:
        _LOG.error(
            "%s is deleted although %s had not read it yet (maintenance.override_pins): offsets "
            "%d to %d are lost for them; %s",
            path,
            ", ".join(info.pinned_by),
            info.start_offset,
            candidate.end_offset,
            candidate.reason,
        )
    else:
        _LOG.info("%s is deleted: %s", path, candidate.reason)


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
