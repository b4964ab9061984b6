"""Topics and groups in RocketMQ's files of ``config/``, changed by one process at a time.

All functions that change a file raise :class:`~lakelog.errors.CorruptConfig` if it cannot be
parsed, and :class:`~lakelog.errors.StoreError` if it cannot be read or written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from lakelog.errors import CorruptConfig, StoreError
from lakelog.files.filesystem import FileSystem
from lakelog.format.properties import SCHEDULE_TOPIC
from lakelog.format.queue_offsets import Queue
from lakelog.format.queue_survey import explains
from lakelog.processes.locks import ProcessLock
from lakelog.processes.ownership import open_lock
from lakelog_rocketmq import config

DEFAULT_RETRIES: Final = config.MAX_RETRIES
_LOG: Final = logging.getLogger("lakelog")
_CHANGING: Final = 11
"""The byte of ``lock`` that is held while a file is read and replaced."""
_SERVICES: Final = "rmq_sys_"
"""Topics of RocketMQ's services, of which some note their progress in files of their own."""
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


def group_attributes(files: FileSystem, path: Path) -> dict[str, Mapping[str, str]]:
    """The attributes of each group in ``config/subscriptionGroup.json``."""
    return {name: each.attributes for name, each in config.load_groups(files, path).value.items()}


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
        groups = config.GROUPS.read(content)
        config.save_groups(files, path, content, groups, _now_ms())
    return groups[group]


def ordered_groups(files: FileSystem, path: Path) -> set[str]:
    """The groups in ``config/subscriptionGroup.json`` whose members pop in order."""
    return {name for name, each in config.load_groups(files, path).value.items() if each.is_ordered}


def remove_group(files: FileSystem, path: Path, group: str) -> None:
    """Remove a group from ``config/subscriptionGroup.json``, if it is there."""
    with _changing_table(files, path, config.load_groups, config.save_groups) as groups:
        groups.pop(group, None)


def odd_entries(files: FileSystem, path: Path) -> list[str]:
    """What cannot be read in RocketMQ's tables of the store directory ``path``, or whole files."""
    found: list[str] = []
    for table in (config.TOPICS, config.GROUPS, config.OFFSETS, config.DELAY_OFFSETS):
        try:
            odd = table.odd(table.load(files, path).content)
        except CorruptConfig as error:
            found.append(str(error))
            continue
        found += [f"{table.file}: {table.name}[{name!r}]" for name in odd]
    return found


# --- progress ---


def settle_offsets(
    files: FileSystem, path: Path, next_offsets: dict[Queue, int], minimum: int
) -> None:
    """Set offsets beyond the end of their queue to that end, with a warning; durable on return.

    Otherwise new messages would get offsets that count as consumed. A queue that is not in
    ``next_offsets`` has neither records nor files. It is added with the highest offset of a group,
    if the deleted part of the log can have held so many records; else its end is 0.

    :param next_offsets: by queue, the offset of its next message; queues are added
    :param minimum: physical offset of the first byte of the log

    Raises :class:`~lakelog.errors.StoreError` if a file cannot be written. One that cannot be read
    is left as it is, with a warning: nobody can commit to it either.
    """
    for load, save, queue_of in _PROGRESS:
        with _changing(files, path):
            _settle(files, path, load, save, queue_of, next_offsets, minimum)


def known_queues(files: FileSystem, path: Path) -> Callable[[Queue], bool] | None:
    """Whether a group, a delay level or a service of RocketMQ may have progress in a queue.

    ``None`` if a file of progress cannot be read.
    """
    from lakelog_queues.groups.state_words import queues_of_states

    known = set[Queue]()
    try:
        known |= queues_of_states(files, path)
        for load, _, queue_of in _PROGRESS:
            for name, table in load(files, path).value.items():
                known.update(queue_of(name, key)[1] for key in table)
    except (OSError, StoreError):
        return None
    return lambda queue: queue in known or queue[0].startswith(_SERVICES)


def _settle(
    files: FileSystem,
    path: Path,
    load: Callable[[FileSystem, Path], config.Loaded[config.Offsets]],
    save: Callable[[FileSystem, Path, Mapping[str, Any], config.Offsets, int], object],
    queue_of: Callable[[str, int], tuple[str, Queue]],
    next_offsets: dict[Queue, int],
    minimum: int,
) -> None:
    try:
        loaded = load(files, path)
    except StoreError as error:
        _LOG.warning("offsets cannot be compared with the ends of their queues: %s", error)
        return
    offsets = {name: dict(table) for name, table in loaded.value.items()}
    found = [(*queue_of(name, key), name, key) for name in offsets for key in offsets[name]]
    gone = {queue for _, queue, _, _ in found} - next_offsets.keys()
    for _, queue, name, key in found:
        if queue in gone and explains(offsets[name][key], minimum):
            next_offsets[queue] = max(offsets[name][key], next_offsets.get(queue, 0))
    for who, queue, name, key in found:
        offset, end = offsets[name][key], next_offsets.get(queue, 0)
        if offset > end:
            offsets[name][key] = end
            _LOG.warning(
                "%s: %s is at offset %d of queue %s/%d, which ends at %d; it continues there",
                *(path, who, offset, *queue, end),
            )
    if offsets != loaded.value:
        save(files, path, loaded.content, offsets, _now_ms())


def _queue_of_group(name: str, queue_id: int) -> tuple[str, Queue]:
    topic, group = config.split_name(name) or (name, "")
    return f"group {group!r}", (topic, queue_id)


def _queue_of_level(_: str, level: int) -> tuple[str, Queue]:
    return f"delay level {level}", (SCHEDULE_TOPIC, level - 1)


def _load_delays(files: FileSystem, path: Path) -> config.Loaded[config.Offsets]:
    loaded = config.load_delay_offsets(files, path)
    return config.Loaded({SCHEDULE_TOPIC: loaded.value}, loaded.content)


def _save_delays(
    files: FileSystem, path: Path, former: Mapping[str, Any], offsets: config.Offsets, now_ms: int
) -> None:
    config.save_delay_offsets(files, path, former, offsets[SCHEDULE_TOPIC], now_ms)


_PROGRESS: Final = (
    (config.load_offsets, config.save_offsets, _queue_of_group),
    (_load_delays, _save_delays, _queue_of_level),
)


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
