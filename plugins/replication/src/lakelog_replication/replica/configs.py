"""Copies the state of the master's broker that is not in its log.

These are consumer offsets, topics, subscription groups and delay offsets. A RocketMQ slave copies
them, too; a broker that opens a promoted replica then has them. The source is RocketMQ 5.3.3,
``SlaveSynchronize``. Here each file is replaced if its content differs. Request modes (request 402)
and the timer wheel (requests 60 and 61) are not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.errors import LakelogError, StoreError
from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import CONFIG_DIR
from lakelog.hooks import Context
from lakelog_queues.consumers.offsettable import Commit, OffsetTable
from lakelog_replication import remoting
from lakelog_replication.settings import Address
from lakelog_rocketmq import config as tables


class GroupCopier(remoting.BrokerPoll):
    """Copies consumer offsets and settings of the master to a replica, in a thread, at an interval.

    Offsets of groups that the master does not have stay unchanged.
    """

    def __init__(self, broker: Address, context: Context, interval_s: float) -> None:
        """Start the thread; raises :class:`~lakelog.errors.ThreadNotStarted`.

        :param broker: the master's address for clients
        """
        self._files, self._path = context.files, context.path
        self._table = OffsetTable(context.files, context.path)
        self._known: tables.Offsets = {}
        super().__init__(broker, interval_s, "lakelog-replica-groups", "groups and topics: ")

    def ask(self) -> None:
        """Copy all; the settings are copied even if the offsets cannot be."""
        try:
            self._copy_positions()
        finally:
            copy_configs(self._broker, self._files, self._path)

    def _copy_positions(self) -> None:
        found = consumer_offsets(self._broker)
        commits: list[Commit] = []
        for name, offsets in found.items():
            split = tables.split_name(name)
            if split is not None and offsets != self._known.get(name):
                commits.append((split[1], split[0], offsets))
        if commits:
            self._table.commit_all(commits)
        self._known = found


def consumer_offsets(broker: Address) -> tables.Offsets:
    """The next queue offset to consume, by ``TOPIC@GROUP`` and queue id (request 43).

    Raises :class:`~lakelog_replication.remoting.BrokerRefused`.
    """
    body = remoting.call(broker, remoting.GET_ALL_CONSUMER_OFFSET).body
    try:
        return tables.read_offsets(tables.parse_object(body))
    except ValueError as error:
        raise remoting.BrokerRefused(
            f"{broker} answers with no consumer offsets: {error}"
        ) from None


def copy_configs(broker: Address, files: FileSystem, path: Path) -> None:
    """Replace the files of the store directory ``path`` that differ from the master's.

    A response with invalid content changes nothing, and the other files are still copied.

    :param broker: the master's address for clients

    Raises :class:`~lakelog_replication.remoting.BrokerRefused`, and
    :class:`~lakelog.errors.StoreError` if a file cannot be written.
    """
    refused: remoting.BrokerRefused | None = None
    for config in _CONFIGS:
        target = path / CONFIG_DIR / config.file
        try:
            content = _asked(broker, config)
            if content and content != _there(files, target, config):
                tables.save_config(files, target, content)
        except remoting.BrokerRefused as error:
            refused = error
        except OSError as error:
            raise StoreError(f"it cannot be written: {error}", path=target) from error
    if refused is not None:
        raise refused


def _asked(broker: Address, config: _Config) -> dict[str, Any]:
    """The content of the master's file; empty if the master has no such file yet."""
    body = remoting.call(broker, config.code).body
    if not body:
        return {}
    try:
        found = tables.parse_object(body)
        # The other keys of the response are not in the broker's own file.
        keys = (config.table, "forbiddenTable", "dataVersion")
        content = {key: found[key] for key in keys if found.get(key) is not None}
        if config.table not in content:
            raise ValueError(f"it has no {config.table}")
        config.read(content)
    except (ValueError, TypeError, AttributeError) as error:
        raise remoting.BrokerRefused(f"{broker} answers with no {config.file}: {error}") from None
    return content


def _there(files: FileSystem, path: Path, config: _Config) -> dict[str, Any]:
    """The content of the replica's file; empty if it is damaged, so that it is replaced."""
    try:
        return tables.load_config(files, path, config.read).content
    except LakelogError:
        return {}


@attrs.frozen
class _Config:
    """One file of ``config/``.

    :ivar file: name of the file
    :ivar code: request code
    :ivar read: raises ``ValueError`` for content that the file cannot have
    :ivar table: the key of the response that must be there
    """

    file: str
    code: int
    read: Callable[[Mapping[str, Any]], object]
    table: str


_CONFIGS: Final = (
    _Config(
        tables.TOPICS_FILE, remoting.GET_ALL_TOPIC_CONFIG, tables.read_topics, "topicConfigTable"
    ),
    _Config(
        tables.GROUPS_FILE,
        remoting.GET_ALL_SUBSCRIPTION_GROUPS,
        tables.read_groups,
        "subscriptionGroupTable",
    ),
    _Config(
        tables.DELAY_OFFSETS_FILE,
        remoting.GET_ALL_DELAY_OFFSET,
        tables.read_delay_offsets,
        "offsetTable",
    ),
)
