"""``config/consumerOffset.json``: the next queue offset of each group, topic and queue.

Source: RocketMQ 5.3.3, ``ConsumerOffsetManager``: ``offsetTable`` maps ``TOPIC@GROUP`` to a map
of queue ids to offsets; ``dataVersion`` has a counter and a time; ``groupTopicMap`` follows from
the table and is written for people only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from lakelog.config.configfile import Loaded, load_config, save_config
from lakelog.config.tables import integer_table, object_table
from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import CONFIG_DIR

FILE: Final = "consumerOffset.json"
SEPARATOR: Final = "@"

Offsets: TypeAlias = dict[str, dict[int, int]]
"""By ``TOPIC@GROUP`` and queue id: the next queue offset to read."""


def load_offsets(files: FileSystem, path: Path) -> Loaded[Offsets]:
    """The offsets in the store directory ``path``; raises ``CorruptConfig``."""
    return load_config(files, path / CONFIG_DIR / FILE, read_offsets)


def read_offsets(content: Mapping[str, Any]) -> Offsets:
    """The offsets that a file's content states; raises ``ValueError``."""
    table = object_table(content, "offsetTable")
    return {name: integer_table(found, name) for name, found in table.items()}


def save_offsets(
    files: FileSystem, path: Path, former: Mapping[str, Any], offsets: Offsets, now_ms: int
) -> dict[str, Any]:
    """Replace the file durably; the content that stands there then.

    :param former: the content before; what lakelog does not know in it is kept
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


def next_version(former: object, now_ms: int) -> dict[str, Any]:
    """RocketMQ's ``DataVersion`` after one more change."""
    known = dict(former) if isinstance(former, Mapping) else {}
    counter = known.get("counter")
    return {
        "stateVersion": 0,
        **known,
        "counter": counter + 1 if isinstance(counter, int) else 1,
        "timestamp": now_ms,
    }


def split_name(name: str) -> tuple[str, str] | None:
    """Topic and group of a key of the table; ``None`` for one that RocketMQ passes over too."""
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
