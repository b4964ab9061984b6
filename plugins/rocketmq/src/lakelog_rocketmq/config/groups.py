"""``config/subscriptionGroup.json``: the broker's configuration of each consumer group.

Source: RocketMQ 5.3.3, ``SubscriptionGroupManager`` and ``SubscriptionGroupConfig``, with its
defaults.
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

FILE: Final = "subscriptionGroup.json"
MAX_RETRIES: Final = 16
_TABLE: Final = "subscriptionGroupTable"
_RETRIES: Final = "retryMaxTimes"
_ORDERED: Final = "consumeMessageOrderly"
_SUBSCRIPTIONS: Final = "subscriptionDataSet"
_NEW: Final = {
    "attributes": {},
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    _ORDERED: False,
    "consumeTimeoutMinute": 15,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}
"""The settings that RocketMQ writes for a new group, and lakelog does not use."""


@attrs.frozen
class GroupConfig:
    """The configuration of one consumer group.

    :ivar max_retries: number of times a message is handed out again before it is a dead letter
    :ivar is_ordered: whether members that pop get the messages of a queue in order
    """

    group: str
    max_retries: int = MAX_RETRIES
    is_ordered: bool = False


def load_groups(files: FileSystem, path: Path) -> Loaded[dict[str, GroupConfig]]:
    """Load the groups of the store directory ``path``; raises ``CorruptConfig``."""
    return load_config(files, path / CONFIG_DIR / FILE, read_groups)


def read_groups(content: Mapping[str, Any]) -> dict[str, GroupConfig]:
    """Parse the groups in a file's content; raises ``ValueError``."""
    table = object_table(content, _TABLE)
    return {
        group: GroupConfig(
            group, int(found.get(_RETRIES, MAX_RETRIES)), bool(found.get(_ORDERED, False))
        )
        for group, found in table.items()
    }


def settings_of(content: Mapping[str, Any], group: str) -> dict[str, Any]:
    """All settings of a group in a file's content, in RocketMQ's names; defaults if it has none."""
    found = object_table(content, _TABLE).get(group, {})
    return {**_NEW, _RETRIES: MAX_RETRIES, "groupName": group, **found}


def with_settings(
    content: Mapping[str, Any], group: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """A file's content with changed settings of a group; other groups stay.

    Settings of unknown names, and those that are ``None``, are left out. Raises ``ValueError`` for
    a setting of another type than its default.
    """
    known = settings_of(content, group)
    changed = {
        name: value
        for name, value in settings.items()
        if value is not None and name in {*known, _SUBSCRIPTIONS}
    }
    for name, value in changed.items():
        if name in known and type(value) is not type(known[name]):
            kind = type(known[name]).__name__
            raise ValueError(f"{name} of the group {group} is {value!r}; it must be of type {kind}")
    table = {**object_table(content, _TABLE), group: {**known, **changed, "groupName": group}}
    return {**content, _TABLE: table}


def save_groups(
    files: FileSystem,
    path: Path,
    former: Mapping[str, Any],
    groups: Mapping[str, GroupConfig],
    now_ms: int,
) -> None:
    """Replace the file durably; arguments as those of ``save_topics``.

    Raises ``OSError`` if the file cannot be written.
    """
    known = object_table(former, _TABLE)
    content = {
        "forbiddenTable": {},
        **former,
        "dataVersion": next_version(former.get("dataVersion"), now_ms),
        _TABLE: {
            name: {
                **known.get(name, _NEW),
                "groupName": name,
                **_fields(each, known.get(name, _NEW)),
            }
            for name, each in groups.items()
        },
    }
    save_config(files, path / CONFIG_DIR / FILE, content)


def _fields(config: GroupConfig, former: Mapping[str, Any]) -> dict[str, Any]:
    """The settings to write for a group; ``consumeMessageOrderly`` only if it has changed."""
    fields: dict[str, Any] = {_RETRIES: config.max_retries}
    if config.is_ordered != bool(former.get(_ORDERED, False)):
        fields[_ORDERED] = config.is_ordered
    return fields
