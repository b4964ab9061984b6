"""Whether the members of a group pull or pop a topic, in ``config/messageRequestMode.json``.

Source: RocketMQ 5.3.3, ``MessageRequestModeManager``: an entry for each topic and group.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import CONFIG_DIR
from lakelog_queues.configs import config_lock
from lakelog_rocketmq.config.configfile import Loaded, load_config, save_config
from lakelog_rocketmq.config.tables import object_table

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
        found = {"topic": topic, "consumerGroup": group, "mode": mode}
        with config_lock(self._files, self._path):
            loaded = self._load()
            groups = {
                **loaded.value.get(topic, {}),
                group: {**found, "popShareQueueNum": shared_queues},
            }
            table = {**loaded.value, topic: groups}
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
