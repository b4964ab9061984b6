"""Removes the queues of a topic permanently."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from lakelog.dispatch.run import NamedDispatcher
from lakelog.errors import StoreError
from lakelog.files.filesystem import FileSystem
from lakelog.files.state.tombstones import add_tombstone
from lakelog.format.properties import REPAIRED_TOPIC
from lakelog.interfaces import TopicRemover
from lakelog.runtime.arguments import WrongValue


def delete_topic(
    files: FileSystem,
    path: Path,
    topic: str,
    end_offset: int,
    forget: Callable[[str, int], None],
) -> None:
    """Remove a topic's queues; its records stay in the log.

    The tombstone is written first. Until it is durable nothing has changed; from then on the topic
    is gone for all readers, even if some of its files remain.

    :param path: the store directory
    :param end_offset: the present end of the log; later records create new queues
    :param forget: removes the queues of a topic; called with its name and ``end_offset`` while
        dispatching is paused

    Raises ``ValueError`` for the topic of filler records, ``OSError`` if nothing was removed,
    and :class:`~lakelog.errors.StoreError` if the topic is gone but files remain.
    """
    if topic == REPAIRED_TOPIC:
        raise WrongValue(f"topic {topic!r} cannot be removed: units of other queues lead to it")
    add_tombstone(files, path, topic, end_offset)
    try:
        forget(topic, end_offset)
    except OSError as error:
        raise StoreError(
            f"{error.strerror or error}; topic {topic!r} was removed, but some of its files remain;"
            " check the disk, then delete it again, or let the next open remove them",
            path=error.filename or path,
        ) from error


def forget_topic(dispatchers: Iterable[NamedDispatcher], topic: str, end_offset: int) -> None:
    """Remove the queues of a topic from all dispatchers with queues."""
    for each in dispatchers:
        if isinstance(each.dispatcher, TopicRemover):
            each.dispatcher.forget_topic(topic, end_offset)
