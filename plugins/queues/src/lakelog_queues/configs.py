"""Changes RocketMQ's files in ``config/``, one process at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lakelog.errors import StoreError
from lakelog.files.filesystem import FileSystem
from lakelog.files.shared.byte_lock import Turn
from lakelog.format.layout import LOCK_FILE
from lakelog_rocketmq.config.groups import GroupConfig, load_groups, save_groups
from lakelog_rocketmq.config.topics import TopicConfig, load_topics, save_topics

_CHANGING: Final = 11
"""The byte of ``lock`` that is held while a file is read and replaced."""


@contextmanager
def config_turn(files: FileSystem, path: Path) -> Iterator[None]:
    """Keep other processes from replacing a file of the store directory ``path``."""
    file = files.open(path / LOCK_FILE, write=True, create=True)
    try:
        with Turn(file, _CHANGING):
            yield
    finally:
        file.close()


def change_topics(
    files: FileSystem, path: Path, change: Callable[[dict[str, TopicConfig]], None]
) -> None:
    """Replace ``config/topics.json`` durably.

    :param change: changes the table of topics by name, and may raise

    Raises :class:`~lakelog.errors.CorruptConfig` if the file cannot be parsed, and
    :class:`~lakelog.errors.StoreError` if it cannot be read or written.
    """
    with _failing(path), config_turn(files, path):
        loaded = load_topics(files, path)
        topics = dict(loaded.value)
        change(topics)
        save_topics(files, path, loaded.content, topics, time.time_ns() // 1_000_000)


def change_groups(
    files: FileSystem, path: Path, change: Callable[[dict[str, GroupConfig]], None]
) -> None:
    """Replace ``config/subscriptionGroup.json`` durably; as :func:`change_topics`."""
    with _failing(path), config_turn(files, path):
        loaded = load_groups(files, path)
        groups = dict(loaded.value)
        change(groups)
        save_groups(files, path, loaded.content, groups, time.time_ns() // 1_000_000)


@contextmanager
def _failing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"the configuration could not be written ({error}); check permissions and free space",
            path=error.filename or path,
        ) from error
