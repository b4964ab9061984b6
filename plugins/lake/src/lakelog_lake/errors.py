"""Why a log cannot be read for tables, a store cannot land in one, or a table be cared for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from lakelog.errors import LakelogError

if TYPE_CHECKING:
    from lakelog.errors import CorruptRecord
    from lakelog.log.reading.pieces import Damage

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


class NotKnown(LakelogError):
    """Nobody says up to where a log is durable."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is RocketMQ's, and was not closed cleanly or is open: up to where it is "
            "durable is not known; give option until=readable"
        )


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


class LandingError(LakelogError):
    """A store, and the table that it should land in, do not go together as they are."""


class WrongLog(LandingError):
    """The log does not hold what the table says has landed from it."""

    def __init__(self, path: Path, table: str, why: str) -> None:
        super().__init__(
            f"{path} is not the log that {table} holds rows of: {why}. It was cut, restored from "
            "an older copy, or is another store under the same identity: bring back the right "
            "directory, land in a new table, or give this one its own --store-id; if it was cut, "
            "'lakelog lake rewind' takes out the rows that it holds no more"
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


class NoPosition(TableMismatch):
    """Rows of a store are in a table, and nothing says how far it has landed."""

    def __init__(self, table: str, store: str) -> None:
        super().__init__(
            f"{table} has rows of the store {store}, and nothing in it says how far that has "
            "landed: it was replaced or copied, or rolled back behind what expired. To land them "
            f"again, take them out (DELETE ... WHERE store = '{store}'); or land in a new table"
        )


class OtherChoice(TableMismatch):
    """Other messages of a store have landed in a table than are asked for now."""

    def __init__(self, table: str, store: str, before: str, now: str) -> None:
        super().__init__(
            f"{table} has of the store {store} {before} up to its position, and {now} are asked "
            "for: what was left out before would never land. Ask for the same, or land in a new "
            "table"
        )


class Conflict(LandingError):
    """Somebody else changed the table first; nothing of this commit is in it."""


class MayPass(LandingError):
    """Of trouble that may be over later, with nothing done here: try again."""

    exit_code: ClassVar[int] = 4


class TooManyConflicts(MayPass):
    """Other writers were faster each time."""


_NO_ACCESS: Final = re.compile(
    r"\b40[13]\b|bucket|credential|denied|forbidden|unauthor|access.?key|signature|region", re.I
)
_ACCESS: Final = (
    " (of S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL; else "
    "--storage KEY=VALUE)"
)


class Unreachable(MayPass):
    """A table, its catalog or its disk could not be read, or took nothing."""

    def __init__(self, table: str, why: str) -> None:
        hint = _ACCESS if _NO_ACCESS.search(why) else ""
        super().__init__(
            f"{table} cannot be reached, or takes nothing: {why}; see to that{hint} and go on: "
            "nothing is lost, what has not landed lands then"
        )


class RegistryUnreachable(MayPass):
    """A schema registry does not answer, or refuses to."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"the schema registry {url} cannot be asked: {why}; see to that (user and password: in "
            "the URL, or in SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO) and go on: nothing is lost, "
            "what has not landed lands then"
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


class TooManyDeadLetters(LandingError):
    """More bodies of a run did not parse than it allows."""

    exit_code: ClassVar[int] = 1

    def __init__(self, count: int, most: int, start: int, end: int) -> None:
        super().__init__(
            f"with the messages from offset {start} to {end}, {count} would be dead letters, and "
            f"--max-dead-letters is {most}: nothing of them has landed; mend the schema (--body), "
            "or allow more"
        )


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

    def __init__(self, folder: object, why: str) -> None:
        super().__init__(
            f"data files cannot be written to {folder}: {why}; make room, or see to the disk: "
            "nothing is lost, the range lands when they can be written"
        )


class BadParser(LandingError):
    """A parser of bodies breaks its own rules."""


_NAMED = 5
"""How many of the stores that are there a message tells."""


class CareError(LakelogError):
    """A table cannot be compared, compacted or expired as it is."""


class NoTable(CareError):
    """No table is where one was named."""

    def __init__(self, target: str, why: str) -> None:
        super().__init__(
            f"{target}: {why}; name the table as for dispatch: iceberg:WAREHOUSE, delta:FOLDER or "
            "parquet:FOLDER, and with --table if it is not lakelog.messages"
        )


class NotLakelogs(CareError):
    """A table is there, and lakelog's messages have not landed in it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} is no table that lakelog landed messages in: {why}")


class NotLanded(CareError):
    """A table has nothing of a store."""

    def __init__(self, name: str, store: str, others: Iterable[str]) -> None:
        known = sorted(others)
        there = ", ".join(known[:_NAMED]) + (" and more" if len(known) > _NAMED else "")
        super().__init__(
            f"{name} holds nothing of store {store}; it holds {there or 'no rows'}. Name the right "
            "directory, or give the name that it landed under as --store-id"
        )


class Unreadable(CareError):
    """A file that a table names is gone or broken."""

    exit_code: ClassVar[int] = 1


class NeedsEngine(CareError):
    """One engine cannot do what is asked, and another can."""


class SparkFailed(CareError):
    """Spark ended a job, or refused a statement."""

    exit_code: ClassVar[int] = 4


class NoJava(LakelogError):
    """Spark needs Java, and none was found."""


class WrongSpark(LakelogError):
    """Spark, or a jar of its session, is of a version that does not fit, or is missing."""


class QueryFailed(CareError):
    """DuckDB ended a statement."""


class StatementRefused(CareError):
    """An engine does not take a statement as it is written."""

    exit_code: ClassVar[int] = 2


class TooDifferent(CareError):
    """A table and a log differ in more places than can be told."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(
            f"{name} and {path} differ in more places than are told, so that where the log was cut "
            "is not known: look with lakelog lake verify, and land in a new table"
        )


class TooBusy(CareError):
    """Other writers were faster each time; nothing was changed."""

    exit_code: ClassVar[int] = 4
