"""Copies topics, subscription groups and delay offsets of the master's broker.

A RocketMQ slave copies them, too; a broker that opens a promoted replica then has the topics. The
source is RocketMQ 5.3.3, ``SlaveSynchronize``. Here each file is replaced if its content differs.
Consumer offsets are copied by :mod:`.groups`. Request modes (request 402) and the timer wheel
(requests 60 and 61) are not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.errors import LakelogError, StoreError
from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import CONFIG_DIR
from lakelog_replication.address import Address
from lakelog_replication.remoting import (
    GET_ALL_DELAY_OFFSET,
    GET_ALL_SUBSCRIPTION_GROUPS,
    GET_ALL_TOPIC_CONFIG,
    BrokerRefused,
    call,
)
from lakelog_rocketmq.config import delayoffsets, topics
from lakelog_rocketmq.config.configfile import load_config, save_config
from lakelog_rocketmq.config.lenient import parse_object
from lakelog_rocketmq.config.tables import object_table

GROUPS_FILE: Final = "subscriptionGroup.json"


def _read_groups(content: Mapping[str, Any]) -> object:
    return object_table(content, "subscriptionGroupTable")


@attrs.frozen
class _Config:
    """One file of ``config/``.

    :ivar file: name of the file
    :ivar code: request code
    :ivar keys: keys of the response that the broker's own file has; the first one is required
    :ivar read: raises ``ValueError`` for content that the file cannot have
    """

    file: str
    code: int
    keys: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], object]


_CONFIGS: Final = (
    _Config(
        topics.FILE,
        GET_ALL_TOPIC_CONFIG,
        ("topicConfigTable", "dataVersion"),
        topics.read_topics,
    ),
    _Config(
        GROUPS_FILE,
        GET_ALL_SUBSCRIPTION_GROUPS,
        ("subscriptionGroupTable", "forbiddenTable", "dataVersion"),
        _read_groups,
    ),
    _Config(
        delayoffsets.FILE,
        GET_ALL_DELAY_OFFSET,
        ("offsetTable", "dataVersion"),
        delayoffsets.read_delay_offsets,
    ),
)


def copy_configs(broker: Address, files: FileSystem, path: Path) -> None:
    """Replace the files of the store directory ``path`` that differ from the master's.

    A response with invalid content changes nothing, and the other files are still copied.

    :param broker: the master's address for clients

    Raises :class:`~lakelog_replication.remoting.BrokerRefused`, and
    :class:`~lakelog.errors.StoreError` if a file cannot be written.
    """
    refused: BrokerRefused | None = None
    for config in _CONFIGS:
        target = path / CONFIG_DIR / config.file
        try:
            content = _asked(broker, config)
            if content and content != _there(files, target, config):
                save_config(files, target, content)
        except BrokerRefused as error:
            refused = error
        except OSError as error:
            raise StoreError(f"it cannot be written: {error}", path=target) from error
    if refused is not None:
        raise refused


def _asked(broker: Address, config: _Config) -> dict[str, Any]:
    """The content of the master's file; empty if the master has no such file yet."""
    body = call(broker, config.code).body
    if not body:
        return {}
    try:
        found = parse_object(body)
        content = {key: found[key] for key in config.keys if found.get(key) is not None}
        if config.keys[0] not in content:
            raise ValueError(f"it has no {config.keys[0]}")
        config.read(content)
    except (ValueError, TypeError, AttributeError) as error:
        raise BrokerRefused(f"{broker} answers with no {config.file}: {error}") from None
    return content


def _there(files: FileSystem, path: Path, config: _Config) -> dict[str, Any]:
    """The content of the replica's file; empty if it is damaged, so that it is replaced."""
    try:
        return load_config(files, path, config.read).content
    except LakelogError:
        return {}
