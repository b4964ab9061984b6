"""Which topics can name a folder: records of others have no unit, and stand in the log only.

Put refuses such topics, yet a log may hold them: RocketMQ's store takes any topic, and leaves it to
its broker to refuse (``TopicValidator``). Where it makes a queue for one all the same, the folder
is nested (``a/b``), or above the queues (``..``), and is not found again after a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

_LOG: Final = logging.getLogger(__name__)
_LONGEST_BYTES: Final = 255
"""``NAME_MAX`` of Linux's file systems."""


def names_folder(topic: str) -> bool:
    """Whether ``topic`` is one name of a folder, which stays in the folder that it is made in."""
    if topic in ("", ".", "..") or "/" in topic or "\x00" in topic:
        return False
    return len(topic.encode(errors="surrogateescape")) <= _LONGEST_BYTES


def without_folders(topics: Iterable[str]) -> set[str]:
    """The topics that cannot have queues; they are warned of."""
    bad = {topic for topic in topics if not names_folder(topic)}
    for topic in sorted(bad):
        _LOG.warning("topic %r cannot name a folder: its messages stand in no queue", topic)
    return bad
