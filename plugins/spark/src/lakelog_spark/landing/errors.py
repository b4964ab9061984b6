"""Why a store cannot land in a table."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from lakelog.errors import LakelogError


class LandingError(LakelogError):
    """A store, and the table that it should land in, do not go together as they are."""


class WrongLog(LandingError):
    """The log does not hold what the table says has landed from it."""

    def __init__(self, path: Path, table: str, why: str) -> None:
        super().__init__(
            f"{path} is not the log that {table} holds rows of: {why}. It was cut, restored from "
            "an older copy, or is another store under the same identity: bring back the right "
            "directory, land in a new table, or give this one its own --store-id"
        )


class Gone(LandingError):
    """Messages were deleted from the log before they landed."""

    exit_code: ClassVar[int] = 1

    def __init__(self, path: Path, table: str, at: int, minimum: int) -> None:
        super().__init__(
            f"{path}: the log begins at offset {minimum}, and {table} holds what is before {at}: "
            f"the {minimum - at} bytes between were deleted before they landed; to go on behind "
            "the gap, give --gaps accept"
        )


class TableMismatch(LandingError):
    """A table is not one that messages of lakelog land in."""


class Conflict(LandingError):
    """Somebody else changed the table first; nothing of this commit is in it."""


class MayPass(LandingError):
    """Of trouble that may be over later, with nothing done here: try again."""

    exit_code: ClassVar[int] = 4


class TooManyConflicts(MayPass):
    """Other writers were faster each time."""


class Unreachable(MayPass):
    """A table, its catalog or its disk could not be read, or took nothing."""

    def __init__(self, table: str, why: str) -> None:
        super().__init__(
            f"{table} cannot be reached, or takes nothing: {why}; see to that and go on: nothing "
            "is lost, what has not landed lands then"
        )


class SparkLost(LandingError):
    """The Spark that this process started, or was given, has ended."""

    exit_code: ClassVar[int] = 4

    def __init__(self, why: str) -> None:
        super().__init__(
            f"Spark has ended ({why}): start anew; nothing is lost, what has not landed lands then"
        )


class TaskFailed(LandingError):
    """A task could not turn its range into files; nothing of the pass has landed."""

    exit_code: ClassVar[int] = 4


class NotNow(TaskFailed, MayPass):
    """The same, by trouble that may pass."""


class WorkerLost(NotNow):
    """A process that was at a task has ended."""

    def __init__(self) -> None:
        super().__init__(
            "a process that writes data files was killed, perhaps for want of memory (then give "
            "fewer --processes): nothing is lost, its range lands in the next pass"
        )


class NotWritten(NotNow):
    """A task could not write its files."""

    def __init__(self, folder: Path, why: str) -> None:
        super().__init__(
            f"data files cannot be written to {folder}: {why}; make room, or see to the disk: "
            "nothing is lost, the range lands when they can be written"
        )


class BadParser(LandingError):
    """A parser of bodies breaks its own rules."""
