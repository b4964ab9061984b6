"""Checks whether a topic can be the name of a folder; records of any other topic get no unit.

``put`` refuses such topics, yet a log may hold them: RocketMQ's store accepts any topic, and only
its broker refuses (``TopicValidator``). RocketMQ creates a queue for such a topic in a nested
folder (``a/b``) or outside the queues (``..``), and does not find it after a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

_LOG: Final = logging.getLogger(__name__)
_LONGEST_BYTES: Final = 255
"""``NAME_MAX`` of Linux's file systems."""


def names_folder(topic: str) -> bool:
    """Whether ``topic`` is a valid name of one folder, without a path."""
    if topic in ("", ".", "..") or "/" in topic or "\x00" in topic:
        return False
    return len(topic.encode(errors="surrogateescape")) <= _LONGEST_BYTES


def without_folders(topics: Iterable[str]) -> set[str]:
    """The topics that cannot have queues; logs a warning for each."""
    bad = {topic for topic in topics if not names_folder(topic)}
    for topic in sorted(bad):
        _LOG.warning("topic %r cannot name a folder; its messages are in the log only", topic)
    return bad
