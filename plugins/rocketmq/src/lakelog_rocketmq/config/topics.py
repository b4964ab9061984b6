"""``config/topics.json``: the broker's configuration of each topic.

Source: RocketMQ 5.3.3, ``TopicConfigManager`` and ``TopicConfig``, with its defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import CONFIG_DIR
from lakelog_rocketmq.config.configfile import (
    Loaded,
    load_config,
    next_version,
    object_table,
    save_config,
)

FILE: Final = "topics.json"
_DEFAULT_QUEUES: Final = 16
_READ_AND_WRITE: Final = 6
_TABLE: Final = "topicConfigTable"
_NEW: Final = {"order": False, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
"""The settings that RocketMQ writes for a new topic, and lakelog does not use."""


@attrs.frozen
class TopicConfig:
    """The configuration of one topic.

    :ivar read_queues: number of queues for consumers
    :ivar write_queues: number of queues for producers
    :ivar permission: sum of 4 (read), 2 (write) and 1 (inherit)
    :ivar attributes: names and values, such as ``queue.type``
    """

    topic: str
    read_queues: int = _DEFAULT_QUEUES
    write_queues: int = _DEFAULT_QUEUES
    permission: int = _READ_AND_WRITE
    attributes: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def queue_count(self) -> int:
        """Number of queues that can be read or written."""
        return max(self.read_queues, self.write_queues)


def load_topics(files: FileSystem, path: Path) -> Loaded[dict[str, TopicConfig]]:
    """Load the topics of the store directory ``path``; raises ``CorruptConfig``."""
    return load_config(files, path / CONFIG_DIR / FILE, read_topics)


def read_topics(content: Mapping[str, Any]) -> dict[str, TopicConfig]:
    """Parse the topics in a file's content; raises ``ValueError``."""
    table = object_table(content, _TABLE)
    return {topic: _topic(topic, found) for topic, found in table.items()}


def _topic(topic: str, found: Mapping[str, Any]) -> TopicConfig:
    return TopicConfig(
        topic,
        int(found.get("readQueueNums", _DEFAULT_QUEUES)),
        int(found.get("writeQueueNums", _DEFAULT_QUEUES)),
        int(found.get("perm", _READ_AND_WRITE)),
        {str(name): str(value) for name, value in object_table(found, "attributes").items()},
    )


def save_topics(
    files: FileSystem,
    path: Path,
    former: Mapping[str, Any],
    topics: Mapping[str, TopicConfig],
    now_ms: int,
) -> None:
    """Replace the file durably; RocketMQ reads it when it starts.

    :param former: the former content; its unknown keys are kept, also those of each topic
    :param topics: all topics, by name
    :param now_ms: the time for ``dataVersion``, in ms since 1970

    Raises ``OSError`` if the file cannot be written.
    """
    known = object_table(former, _TABLE)
    content = {
        **former,
        "dataVersion": next_version(former.get("dataVersion"), now_ms),
        _TABLE: {name: {**known.get(name, _NEW), **_fields(each)} for name, each in topics.items()},
    }
    save_config(files, path / CONFIG_DIR / FILE, content)


def _fields(config: TopicConfig) -> dict[str, Any]:
    return {
        "attributes": dict(config.attributes),
        "perm": config.permission,
        "readQueueNums": config.read_queues,
        "topicName": config.topic,
        "writeQueueNums": config.write_queues,
    }
