"""What reading by Spark can meet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.errors import LakelogError

if TYPE_CHECKING:
    from lakelog.pieces import Damage


class CorruptLog(LakelogError):
    """Bytes of the log that should be records, and are not.

    :ivar damage: where they are, and what is wrong
    """

    def __init__(self, damage: Damage) -> None:
        super().__init__(f"{damage}; to read the whole records around it, give option corrupt=skip")
        self.damage = damage


class NoJava(LakelogError):
    """Spark needs Java, and none was found."""


class NotKnown(LakelogError):
    """Nobody says up to where a log is durable."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is RocketMQ's, and was not closed cleanly or is open: up to where it is "
            "durable is not known; give option until=readable"
        )
