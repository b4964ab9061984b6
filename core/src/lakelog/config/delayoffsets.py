"""``config/delayOffset.json``: how far RocketMQ has delivered each delay level; never changed.

Source: RocketMQ 5.3.3, ``ScheduleMessageService`` and ``DelayOffsetSerializeWrapper``. Queue
``level - 1`` of ``SCHEDULE_TOPIC_XXXX`` holds the messages of a level.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lakelog.config.configfile import Loaded, load_config
from lakelog.config.tables import integer_table
from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import CONFIG_DIR

FILE: Final = "delayOffset.json"


def load_delay_offsets(files: FileSystem, path: Path) -> Loaded[dict[int, int]]:
    """The next queue offset of each delay level in the store directory ``path``."""
    return load_config(files, path / CONFIG_DIR / FILE, read_delay_offsets)


def read_delay_offsets(content: Mapping[str, Any]) -> dict[int, int]:
    """The offsets that a file's content states; raises ``ValueError``."""
    return integer_table(content.get("offsetTable") or {}, "offsetTable")
