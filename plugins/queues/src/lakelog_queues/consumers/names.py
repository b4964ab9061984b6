"""Validates names of consumer groups and topics, as RocketMQ does.

Source: RocketMQ 5.3.3, ``Validators`` and ``TopicValidator``.
"""

from __future__ import annotations

import re
from typing import Final

from lakelog.errors import SettingsError
from lakelog_format.arguments import wrong_type
from lakelog_queues.arguments import text
from lakelog_rocketmq.config.consumeroffsets import SEPARATOR

MAX_GROUP_CHARACTERS: Final = 255
MAX_TOPIC_CHARACTERS: Final = 127
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def check_group(group: str) -> str:
    """The name of a group, if RocketMQ accepts it; raises ``SettingsError``."""
    if not isinstance(group, str):
        raise wrong_type("group", group, "a str such as 'billing'")
    if not _NAME.fullmatch(group):
        raise SettingsError(
            f"a consumer group's name may contain a-z A-Z 0-9 _ - | % only, but is {group!r}",
            key="group",
        )
    if len(group) > MAX_GROUP_CHARACTERS:
        raise SettingsError(
            f"a consumer group's name has at most {MAX_GROUP_CHARACTERS} characters, "
            f"not {len(group)}",
            key="group",
        )
    return group


def check_topic(topic: str) -> str:
    """The name of a topic, if RocketMQ's clients accept it; raises ``SettingsError``."""
    if not _NAME.fullmatch(topic) or len(topic) > MAX_TOPIC_CHARACTERS:
        raise SettingsError(
            f"a topic's name has 1 to {MAX_TOPIC_CHARACTERS} characters of a-z A-Z 0-9 _ - | %, "
            f"but is {topic!r}",
            key="topic",
        )
    return topic


def offsets_name(topic: str, group: str) -> str:
    """The key of a topic and group in RocketMQ's table; raises ``SettingsError``."""
    if not topic or SEPARATOR in text("topic", topic, "orders"):
        raise SettingsError(
            f"offsets cannot be kept for topic {topic!r}: RocketMQ joins topic and group by "
            f"{SEPARATOR!r}",
            key="topic",
        )
    return f"{topic}{SEPARATOR}{check_group(group)}"
