"""Reads from ``config/topics.json`` which topics have batch queues.

RocketMQ writes the file in place, so it may be torn; then its ``.bak`` is read. Integer keys may be
unquoted (fastjson).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lakelog.files.filesystem import FileSystem, read_file
from lakelog.format.layout import CONFIG_DIR
from lakelog_rocketmq.config.configfile import parse_object

_LOG: Final = logging.getLogger(__name__)
_FILE: Final = "topics.json"


def batch_topics(files: FileSystem, path: Path) -> frozenset[str]:
    """The topics of the store directory ``path`` whose ``queue.type`` is ``BatchCQ``."""
    for name in (_FILE, f"{_FILE}.bak"):
        content = read_file(files, path / CONFIG_DIR / name)
        if content:
            try:
                return _batch_topics(parse_object(content))
            except (ValueError, TypeError, AttributeError) as error:
                _LOG.warning("%s cannot be read; ignored: %s", path / CONFIG_DIR / name, error)
    return frozenset()


def _batch_topics(document: Mapping[str, Any]) -> frozenset[str]:
    table = document.get("topicConfigTable") or {}
    return frozenset(
        topic
        for topic, config in table.items()
        if (config.get("attributes") or {}).get("queue.type") == "BatchCQ"
    )
