"""Removes the queues of a topic for good, and finds topics whose queues have nothing left."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from lakelog.dispatch.run import NamedDispatcher
from lakelog.errors import StoreError
from lakelog.files.filesystem import FileSystem
from lakelog.files.state.tombstones import add_tombstone
from lakelog.format.properties import REPAIRED_TOPIC
from lakelog.interfaces import QueueReader, TopicRemover
from lakelog.runtime.arguments import WrongValue


def delete_topic(
    files: FileSystem,
    path: Path,
    topic: str,
    end_offset: int,
    forget: Callable[[str, int], None],
) -> None:
    """Remove a topic's queues; its records stay in the log.

    The tombstone comes first, and decides: before it is durable nothing has changed, and from then
    on the topic is gone for all readers, whatever becomes of its files.

    :param path: the store directory
    :param end_offset: where the log ends now; records from there on make queues again
    :param forget: removes the queues of a topic, told their name and ``end_offset``; it is called
        between two dispatches

    Raises ``ValueError`` for the topic of records that a repair made, ``OSError`` if nothing was
    removed, and :class:`~lakelog.errors.StoreError` if the topic is gone and files are left.
    """
    if topic == REPAIRED_TOPIC:
        raise WrongValue(f"topic {topic!r} stays: units of other queues lead to its records")
    add_tombstone(files, path, topic, end_offset)
    try:
        forget(topic, end_offset)
    except OSError as error:
        raise StoreError(
            f"{error.strerror or error}; topic {topic!r} is gone, but files of it are left: see to "
            "the disk, and delete it again, or let the next open remove them",
            path=error.filename or path,
        ) from error


def forgetter(dispatchers: Iterable[NamedDispatcher]) -> Callable[[str, int], None]:
    """Removes the queues of a topic from all dispatchers that have any."""
    removers = [
        each.dispatcher for each in dispatchers if isinstance(each.dispatcher, TopicRemover)
    ]

    def forget(topic: str, end_offset: int) -> None:
        for each in removers:
            each.forget_topic(topic, end_offset)

    return forget


def unused_topics(reader: QueueReader, minimum: int) -> list[str]:
    """Topics that have queues, and of whose queues none holds a record that the log still has.

    :param minimum: the log's first byte
    """
    used: dict[str, bool] = {}
    for topic, queue_id in reader.queues():
        bounds = reader.bounds((topic, queue_id), minimum)
        used[topic] = used.get(topic, False) or (bounds is not None and bounds[0] < bounds[1])
    used.pop(REPAIRED_TOPIC, None)  # it cannot be removed
    return sorted(topic for topic, has_some in used.items() if not has_some)
