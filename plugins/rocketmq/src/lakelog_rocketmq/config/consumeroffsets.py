"""``config/consumerOffset.json``: the next queue offset of each group, topic and queue.

Source: RocketMQ 5.3.3, ``ConsumerOffsetManager``. ``offsetTable`` maps ``TOPIC@GROUP`` to a map of
queue ids to offsets. ``dataVersion`` has a counter and a time. ``groupTopicMap`` is derived from
the table and is informative only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import CONFIG_DIR
from lakelog_rocketmq.config.configfile import (
    Loaded,
    integer_table,
    load_config,
    next_version,
    object_table,
    save_config,
)

FILE: Final = "consumerOffset.json"
SEPARATOR: Final = "@"

Offsets: TypeAlias = dict[str, dict[int, int]]
"""Next queue offset to read, by ``TOPIC@GROUP`` and queue id."""


def load_offsets(files: FileSystem, path: Path) -> Loaded[Offsets]:
    """Load the offsets of the store directory ``path``; raises ``CorruptConfig``."""
    return load_config(files, path / CONFIG_DIR / FILE, read_offsets)


def read_offsets(content: Mapping[str, Any]) -> Offsets:
    """Parse the offsets in a file's content; raises ``ValueError``."""
    table = object_table(content, "offsetTable")
    return {name: integer_table(found, name) for name, found in table.items()}


def save_offsets(
    files: FileSystem, path: Path, former: Mapping[str, Any], offsets: Offsets, now_ms: int
) -> dict[str, Any]:
    """Replace the file durably; returns its new content.

    :param former: the former content; its unknown keys are kept
    :param now_ms: the time for ``dataVersion``, in ms since 1970

    Raises ``OSError`` if the file cannot be written.
    """
    content = {
        **former,
        "dataVersion": next_version(former.get("dataVersion"), now_ms),
        "groupTopicMap": group_topics(offsets),
        "offsetTable": {
            name: {str(queue): table[queue] for queue in sorted(table)}
            for name, table in offsets.items()
        },
    }
    save_config(files, path / CONFIG_DIR / FILE, content)
    return content


def split_name(name: str) -> tuple[str, str] | None:
    """Topic and group of a key of the table; ``None`` for a key that RocketMQ ignores too."""
    parts = name.split(SEPARATOR)
    return (parts[0], parts[1]) if len(parts) == 2 and all(parts) else None


def group_topics(offsets: Offsets) -> dict[str, list[str]]:
    """The topics of each group."""
    found: dict[str, list[str]] = {}
    for name in offsets:
        split = split_name(name)
        if split is not None:
            found.setdefault(split[1], []).append(split[0])
    return found
