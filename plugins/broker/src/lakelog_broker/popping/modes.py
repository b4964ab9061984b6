"""Which groups pop a topic: RocketMQ's ``config/messageRequestMode.json``.

Source: RocketMQ 5.3.3, ``MessageRequestModeManager``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import CONFIG_DIR
from lakelog_rocketmq.config.configfile import load_config, save_config

FILE: Final = "messageRequestMode.json"
_TABLE: Final = "messageRequestModeMap"
_PULL: Final = "PULL"


class RequestModes:
    """The modes of all groups; a change is in the file before it is visible.

    Raises :class:`~lakelog.errors.CorruptConfig` if the file cannot be read.
    """

    def __init__(self, files: FileSystem, path: Path) -> None:
        self._files, self._file = files, path / CONFIG_DIR / FILE
        self._modes = load_config(files, self._file, _read).value

    def get(self, topic: str, group: str) -> str:
        """``POP``, or ``PULL`` if the group has no mode for the topic."""
        return self._modes.get((topic, group), _PULL)

    def set(self, topic: str, group: str, mode: str, share_queues: int) -> None:
        """Change a mode; raises ``OSError`` if the file cannot be written.

        :param share_queues: RocketMQ's ``popShareQueueNum``, which is only kept in the file
        """
        content = load_config(self._files, self._file, _read).content
        groups = content.setdefault(_TABLE, {}).setdefault(topic, {})
        groups[group] = {
            "consumerGroup": group,
            "mode": mode,
            "popShareQueueNum": share_queues,
            "topic": topic,
        }
        self._files.make_dir(self._file.parent)
        save_config(self._files, self._file, content)
        self._modes[topic, group] = mode


def _read(content: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Modes by topic and group; raises ``ValueError``, ``TypeError`` and ``AttributeError``."""
    return {
        (topic, group): str(each.get("mode") or _PULL)
        for topic, groups in (content.get(_TABLE) or {}).items()
        for group, each in groups.items()
    }
