"""What reading by Spark can meet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from lakelog.errors import LakelogError

if TYPE_CHECKING:
    from lakelog.errors import CorruptRecord
    from lakelog.pieces import Damage


_SKIPPING: Final = "option corrupt=skip, or --corrupt skip"


class CorruptLog(LakelogError):
    """Bytes of the log that should be records, and are not.

    :ivar damage: where they are, and what is wrong
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, damage: Damage) -> None:
        super().__init__(f"{damage}; to read the whole records around it, give {_SKIPPING}")
        self.damage = damage


class CorruptBody(LakelogError):
    """A whole record, whose body is not what its flags say."""

    exit_code: ClassVar[int] = 1

    def __init__(self, error: CorruptRecord) -> None:
        super().__init__(f"{error}; to take it as it is stored, give {_SKIPPING}")


class OffsetGone(LakelogError):
    """A read should start where the log, or a queue, holds nothing any more, or not yet."""

    exit_code: ClassVar[int] = 1

    def __init__(
        self, path: Path, asked: int, first: int, end: int, queue: tuple[str, int] | None = None
    ) -> None:
        what = "the log" if queue is None else f"queue {queue[0]}/{queue[1]}"
        hint = (
            "give option lost=skip to begin with the first that is there"
            if asked < first
            else "was the log cut, or is this another store?"
        )
        super().__init__(
            f"{path}: offset {asked} is not in {what}, which holds {first} to {end}; {hint}"
        )


class OtherStore(LakelogError):
    """Offsets are of another store than the one that is read."""

    def __init__(self, path: Path, asked: str, found: str) -> None:
        super().__init__(
            f"{path} is store {found}, and the offsets are of store {asked}; give the directory "
            "of that one, or begin anew with another checkpoint folder"
        )


class NoJava(LakelogError):
    """Spark needs Java, and none was found."""


class WrongSpark(LakelogError):
    """Spark, or a jar of its session, is of a version that does not fit, or is missing."""


class NotKnown(LakelogError):
    """Nobody says up to where a log is durable."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is RocketMQ's, and was not closed cleanly or is open: up to where it is "
            "durable is not known; give option until=readable"
        )
