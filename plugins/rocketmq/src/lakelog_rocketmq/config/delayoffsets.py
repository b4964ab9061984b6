"""``config/delayOffset.json``: RocketMQ's progress at each delay level.

Source: RocketMQ 5.3.3, ``ScheduleMessageService`` and ``DelayOffsetSerializeWrapper``. Queue
``level - 1`` of ``SCHEDULE_TOPIC_XXXX`` holds the messages of a level.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import CONFIG_DIR
from lakelog_rocketmq.config.configfile import (
    Loaded,
    integer_table,
    load_config,
    next_version,
    save_config,
)

FILE: Final = "delayOffset.json"


def load_delay_offsets(files: FileSystem, path: Path) -> Loaded[dict[int, int]]:
    """The next queue offset of each delay level, from the store directory ``path``.

    Raises :class:`~lakelog.errors.CorruptConfig` if the file cannot be parsed.
    """
    return load_config(files, path / CONFIG_DIR / FILE, read_delay_offsets)


def read_delay_offsets(content: Mapping[str, Any]) -> dict[int, int]:
    """Parse the offsets in a file's content; raises ``ValueError``."""
    return integer_table(content.get("offsetTable") or {}, "offsetTable")


def save_delay_offsets(
    files: FileSystem,
    path: Path,
    former: Mapping[str, Any],
    offsets: Mapping[int, int],
    now_ms: int,
) -> None:
    """Replace the file durably; arguments as those of ``save_offsets``.

    Raises ``OSError`` if the file cannot be written.
    """
    content = {
        **former,
        "dataVersion": next_version(former.get("dataVersion"), now_ms),
        "offsetTable": {str(level): offsets[level] for level in sorted(offsets)},
    }
    save_config(files, path / CONFIG_DIR / FILE, content)
