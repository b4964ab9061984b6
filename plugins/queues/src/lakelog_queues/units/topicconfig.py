"""Reads from ``config/topics.json`` which topics have batch queues."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lakelog.errors import CorruptConfig
from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import CONFIG_DIR
from lakelog_rocketmq.config import TOPICS_FILE, load_config

_LOG: Final = logging.getLogger(__name__)


def batch_topics(files: FileSystem, path: Path) -> frozenset[str]:
    """The topics of the store directory ``path`` whose ``queue.type`` is ``BatchCQ``."""
    try:
        return load_config(files, path / CONFIG_DIR / TOPICS_FILE, _batch_topics).value
    except CorruptConfig as error:
        _LOG.warning("it is ignored: %s", error)
        return frozenset()


def _batch_topics(document: Mapping[str, Any]) -> frozenset[str]:
    table = document.get("topicConfigTable") or {}
    return frozenset(
        topic
        for topic, config in table.items()
        if (config.get("attributes") or {}).get("queue.type") == "BatchCQ"
    )
