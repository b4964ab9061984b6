"""What reading by Spark can meet."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from lakelog.errors import LakelogError


class OffsetGone(LakelogError):
    """A read should start where the log, or a queue, holds nothing any more, or not yet."""

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        path: Path | str,
        asked: int,
        first: int,
        end: int,
        queue: tuple[str, int] | None = None,
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

    def __init__(self, path: Path | str, asked: str, found: str) -> None:
        super().__init__(
            f"{path} is store {found}, and the offsets are of store {asked}; give the directory "
            "of that one, or begin anew with another checkpoint folder"
        )


class NoJava(LakelogError):
    """Spark needs Java, and none was found."""


class WrongSpark(LakelogError):
    """Spark, or a jar of its session, is of a version that does not fit, or is missing."""
