"""Topics and groups in RocketMQ's files of ``config/``, changed by one process at a time.

All functions that change a file raise :class:`~lakelog.errors.CorruptConfig` if it cannot be
parsed, and :class:`~lakelog.errors.StoreError` if it cannot be read or written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from lakelog.errors import StoreError
from lakelog.files.filesystem import FileSystem
from lakelog.processes.locks import ProcessLock
from lakelog.processes.ownership import open_lock
from lakelog_rocketmq import config

DEFAULT_RETRIES: Final = config.MAX_RETRIES
_CHANGING: Final = 11
"""The byte of ``lock`` that is held while a file is read and replaced."""
C = TypeVar("C", config.TopicConfig, config.GroupConfig)


@contextmanager
def config_lock(files: FileSystem, path: Path) -> Iterator[None]:
    """Keep other processes from replacing a file of the store directory ``path``."""
    opened = open_lock(files, path, write=True, create=True)
    with closing(opened) as file, ProcessLock(file, _CHANGING):
        yield


def topics_of(files: FileSystem, path: Path) -> dict[str, config.TopicConfig]:
    """The topics in ``config/topics.json``; raises as ``load_topics``."""
    return config.load_topics(files, path).value


def set_topic(files: FileSystem, path: Path, topic: str, queues: int, permission: int) -> None:
    """Add a topic to ``config/topics.json``, or change it; durable on return.

    :param queues: number of queues for reading and for writing
    :param permission: sum of 4 (read) and 2 (write)
    """
    with _changing_table(files, path, config.load_topics, config.save_topics) as topics:
        found = topics.get(topic) or config.TopicConfig(topic)
        topics[topic] = attrs.evolve(
            found, read_queues=queues, write_queues=queues, permission=permission
        )


def write_topic(files: FileSystem, path: Path, topic: config.TopicConfig) -> None:
    """Add or replace a topic in ``config/topics.json``; durable on return."""
    with _changing_table(files, path, config.load_topics, config.save_topics) as topics:
        topics[topic.topic] = topic


def remove_topic(files: FileSystem, path: Path, topic: str) -> None:
    """Remove a topic from ``config/topics.json``, if it is there."""
    with _changing_table(files, path, config.load_topics, config.save_topics) as topics:
        topics.pop(topic, None)


def retry_limits(files: FileSystem, path: Path) -> dict[str, int]:
    """``retryMaxTimes`` of each group in ``config/subscriptionGroup.json``."""
    return {name: each.max_retries for name, each in config.load_groups(files, path).value.items()}


def set_retry_limit(files: FileSystem, path: Path, group: str, max_retries: int) -> None:
    """Add a group to ``config/subscriptionGroup.json``, or change its limit."""
    with _changing_table(files, path, config.load_groups, config.save_groups) as groups:
        found = groups.get(group) or config.GroupConfig(group)
        groups[group] = attrs.evolve(found, max_retries=max_retries)


def group_settings(files: FileSystem, path: Path, group: str) -> dict[str, Any]:
    """The settings of a group in ``config/subscriptionGroup.json``; defaults if it has none."""
    return config.settings_of(config.load_groups(files, path).content, group)


def set_group_settings(
    files: FileSystem, path: Path, group: str, settings: Mapping[str, Any]
) -> config.GroupConfig:
    """Change settings of a group, in RocketMQ's names; adds the group if it is not there.

    Raises ``ValueError`` for a setting of another type than its default.
    """
    with _changing(files, path):
        content = config.with_settings(config.load_groups(files, path).content, group, settings)
        groups = config.read_groups(content)
        config.save_groups(files, path, content, groups, _now_ms())
    return groups[group]


def ordered_groups(files: FileSystem, path: Path) -> set[str]:
    """The groups in ``config/subscriptionGroup.json`` whose members pop in order."""
    return {name for name, each in config.load_groups(files, path).value.items() if each.is_ordered}


def remove_group(files: FileSystem, path: Path, group: str) -> None:
    """Remove a group from ``config/subscriptionGroup.json``, if it is there."""
    with _changing_table(files, path, config.load_groups, config.save_groups) as groups:
        groups.pop(group, None)


@contextmanager
def _changing_table(
    files: FileSystem,
    path: Path,
    load: Callable[[FileSystem, Path], config.Loaded[dict[str, C]]],
    save: Callable[[FileSystem, Path, Mapping[str, Any], dict[str, C], int], object],
) -> Iterator[dict[str, C]]:
    """The topics or groups by name; what the block changes is written after it."""
    with _changing(files, path):
        loaded = load(files, path)
        table = dict(loaded.value)
        yield table
        save(files, path, loaded.content, table, _now_ms())


@contextmanager
def _changing(files: FileSystem, path: Path) -> Iterator[None]:
    """Hold the lock of the configuration; turns ``OSError`` into ``StoreError``."""
    try:
        with config_lock(files, path):
            yield
    except OSError as error:
        raise StoreError(
            f"the configuration could not be written ({error}); check permissions and free space",
            path=error.filename or path,
        ) from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
