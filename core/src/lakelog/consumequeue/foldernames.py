"""Which topics can name a folder: records of others have no unit, and stand in the log only.

Put refuses such topics, yet a log may hold them: RocketMQ's store takes any topic, and leaves it to
its broker to refuse (``TopicValidator``). Where it makes a queue for one all the same, the folder
is nested (``a/b``), or above the queues (``..``), and is not found again after a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

_LOG: Final = logging.getLogger(__name__)
_LONGEST_BYTES: Final = 255
"""``NAME_MAX`` of Linux's file systems."""


def names_folder(topic: str) -> bool:
    """Whether ``topic`` is one name of a folder, which stays in the folder that it is made in."""
    if topic in ("", ".", "..") or "/" in topic or "\x00" in topic:
        return False
    return len(topic.encode(errors="surrogateescape")) <= _LONGEST_BYTES


def with_folders(topics: Sequence[str]) -> NDArray[np.bool_]:
    """For each topic, whether it can have queues; those that cannot are warned of."""
    good = np.fromiter(map(names_folder, topics), np.bool_, len(topics))
    for at in np.flatnonzero(~good).tolist():
        _LOG.warning("topic %r cannot name a folder: its messages stand in no queue", topics[at])
    return good
