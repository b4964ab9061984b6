"""The topics of a broker and the settings of its groups, in memory and in files of ``config/``.

``topics.json`` and ``subscriptionGroup.json`` are those of the store. ``messageRequestMode.json``
says whether the members of a group pull or pop a topic: it has an entry for each topic and group.
Source: RocketMQ 5.3.3, ``TopicConfigManager`` and ``MessageRequestModeManager``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import CONFIG_DIR
from lakelog_broker.codes import Refused, ResponseCode
from lakelog_broker.settings import BrokerSettings
from lakelog_queues import configs
from lakelog_queues.groups.set_aside import DEAD_LETTER_PREFIX, RETRY_PREFIX
from lakelog_rocketmq.config import Loaded, TopicConfig, load_config, object_table, save_config

AUTO_CREATE_TOPIC: Final = "TBW102"
"""Clients ask for the route of this topic before they send to an unknown topic."""
READABLE: Final = 4
WRITABLE: Final = 2
INHERITED: Final = 1
_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")


class TopicTable:
    """All topics by name, and settings of groups; a change is written before it takes effect."""

    def __init__(self, files: FileSystem, path: Path, settings: BrokerSettings) -> None:
        self._files, self._path, self._settings = files, path, settings
        self._topics = dict(configs.topics_of(files, path))
        self._retry_limits = configs.retry_limits(files, path)
        every = READABLE | WRITABLE | INHERITED
        queues = settings.default_queues
        # Tools find a broker by the routes of topics with the names of the cluster and the broker.
        self._builtin = {
            AUTO_CREATE_TOPIC: TopicConfig(AUTO_CREATE_TOPIC, queues, queues, every),
            **{name: TopicConfig(name, 1, 1, every) for name in (settings.cluster, settings.name)},
            settings.reply_topic: TopicConfig(settings.reply_topic, 1, 1),
        }

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(list(({**self._builtin, **self._topics}).values()))

    def find(self, topic: str) -> TopicConfig | None:
        """The configuration of ``topic``, or ``None``."""
        return self._topics.get(topic) or self._builtin.get(topic)

    def require(self, topic: str) -> TopicConfig:
        """As :meth:`find`; raises :class:`Refused` for an unknown topic."""
        found = self.find(topic)
        if found is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!"
            )
        return found

    def set(self, config: TopicConfig) -> TopicConfig:
        """Create or change a topic; raises :class:`Refused` for a name that RocketMQ refuses."""
        if not _LEGAL.fullmatch(config.topic):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"the topic {config.topic!r} must have 1 to 127 characters of a-z A-Z 0-9 % | _ -",
            )
        configs.write_topic(self._files, self._path, config)
        self._topics[config.topic] = config
        return config

    def create(self, topic: str, queues: int | None = None, permission: int = 6) -> TopicConfig:
        """Return a topic; create it first if it is missing. Raises as :meth:`set`.

        :param queues: number of queues of a new topic; ``None`` is the default of the settings
        """
        count = self._settings.default_queues if queues is None else queues
        return self.find(topic) or self.set(TopicConfig(topic, count, count, permission))

    def of_group(self, prefix: str, group: str) -> TopicConfig:
        """Return the retry topic (``%RETRY%``) or dead letter topic (``%DLQ%``) of a group.

        It is created first if it is missing. Raises as :meth:`set`.
        """
        found = self.find(prefix + group)
        if found is not None:
            return found
        is_retries = prefix == RETRY_PREFIX
        return self.create(
            prefix + group, self.group_settings(group)["retryQueueNums"] if is_retries else 1
        )

    def created_by_sending(
        self, topic: str, default_topic: str = AUTO_CREATE_TOPIC, queues: int | None = None
    ) -> TopicConfig:
        """Return the topic of a client's message; create it under the same conditions as RocketMQ.

        :param default_topic: the client's template for a new topic
        :param queues: the client's number of queues for a new topic; at most ``default_queues``

        Raises :class:`Refused` for an unknown topic that is not created, or an illegal name.
        """
        found = self.find(topic)
        if found is not None:
            return found
        if self._settings.auto_create_topics and default_topic == AUTO_CREATE_TOPIC:
            most = self._settings.default_queues
            return self.create(topic, most if queues is None else max(1, min(queues, most)))
        if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            return self.create(topic, 1)
        return self.require(topic)

    def retry_limit(self, group: str) -> int:
        """The number of retries of a message in a group before it becomes a dead letter."""
        return self._retry_limits.get(group, configs.DEFAULT_RETRIES)

    def add_group(self, group: str) -> None:
        """Add a group to ``config/subscriptionGroup.json``, unless it exists."""
        if group not in self._retry_limits:
            configs.set_retry_limit(self._files, self._path, group, configs.DEFAULT_RETRIES)
            self._retry_limits[group] = configs.DEFAULT_RETRIES

    def groups(self) -> list[str]:
        """The names of all groups in the file."""
        return list(self._retry_limits)

    def group_settings(self, group: str) -> dict[str, Any]:
        """The settings of a group in RocketMQ's names; the defaults if it is not in the file."""
        return configs.group_settings(self._files, self._path, group)

    def set_group(self, group: str, settings: Mapping[str, Any]) -> None:
        """Create a group, or change its settings.

        Raises ``ValueError`` for a setting of another type.
        """
        changed = configs.set_group_settings(self._files, self._path, group, settings)
        self._retry_limits[group] = changed.max_retries

    def is_ordered(self, group: str) -> bool:
        """Whether members of a group that pop get the messages of a queue in order."""
        return group in configs.ordered_groups(self._files, self._path)

    def remove_group(self, group: str) -> None:
        """Remove a group from the file, if it exists."""
        configs.remove_group(self._files, self._path, group)
        self._retry_limits.pop(group, None)

    def remove(self, topic: str) -> None:
        """Remove a topic from the table and the file, if it exists."""
        if topic in self._topics:
            configs.remove_topic(self._files, self._path, topic)
            del self._topics[topic]


FILE: Final = "messageRequestMode.json"
PULL: Final = "PULL"
POP: Final = "POP"
_TABLE: Final = "messageRequestModeMap"
_Table = dict[str, dict[str, Any]]


class RequestModes:
    """The modes by topic and group; a change is written to the file before it takes effect."""

    def __init__(self, files: FileSystem, path: Path) -> None:
        """Read the file, if there is one; raises :class:`~lakelog.errors.CorruptConfig`."""
        self._files, self._path = files, path
        self._table = self._load().value

    def of(self, topic: str, group: str) -> str:
        """The mode of a group: ``POP`` or ``PULL``."""
        return str(self._table.get(topic, {}).get(group, {}).get("mode", PULL))

    def set(self, topic: str, group: str, mode: str, shared_queues: int) -> None:
        """Change the mode of a group; durable on return.

        :param mode: ``POP`` or ``PULL``
        :param shared_queues: RocketMQ's ``popShareQueueNum``, which has no effect here

        Raises :class:`~lakelog.errors.CorruptConfig` and ``OSError``.
        """
        entry: dict[str, Any] = {"topic": topic, "consumerGroup": group, "mode": mode}
        entry["popShareQueueNum"] = shared_queues
        with configs.config_lock(self._files, self._path):
            loaded = self._load()
            table = {**loaded.value, topic: {**loaded.value.get(topic, {}), group: entry}}
            content = {**loaded.content, _TABLE: table}
            save_config(self._files, self._path / CONFIG_DIR / FILE, content)
        self._table = table

    def _load(self) -> Loaded[_Table]:
        return load_config(self._files, self._path / CONFIG_DIR / FILE, _read)


def _read(content: Mapping[str, Any]) -> _Table:
    table = object_table(content, _TABLE)
    return {
        topic: {group: object_table(groups, group) for group in groups}
        for topic, groups in ((name, object_table(table, name)) for name in table)
    }
