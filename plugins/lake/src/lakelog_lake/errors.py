"""The errors of reading a log for tables, of landing messages, and of table maintenance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from lakelog.errors import LakelogError

if TYPE_CHECKING:
    from lakelog.errors import CorruptRecord
    from lakelog.format.record_batch import Damage

_SKIPPING: Final = "option corrupt=skip, or --corrupt skip"


class CorruptLog(LakelogError):
    """A range of the log is not made of whole records.

    :ivar damage: its place and cause
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, damage: Damage) -> None:
        super().__init__(f"{damage}; to read the whole records around it, give {_SKIPPING}")
        self.damage = damage


class CorruptBody(LakelogError):
    """The body of a whole record cannot be unpacked as the record's flags say."""

    exit_code: ClassVar[int] = 1

    def __init__(self, error: CorruptRecord) -> None:
        super().__init__(f"{error}; to get it as it is stored, give {_SKIPPING}")


class DurableEndUnknown(LakelogError):
    """The durable end of a log is not known."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is a store of RocketMQ that is open or was not closed cleanly, so its durable "
            "end is not known; give option until=readable"
        )


class OffsetUnavailable(LakelogError):
    """The start of a read is before the first or behind the last message of the log or queue."""

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
            "give option lost=skip to begin with the first one"
            if asked < first
            else "was the log cut, or is this another store?"
        )
        super().__init__(
            f"{path}: offset {asked} is not in {what}, which has {first} to {end}; {hint}"
        )


class OtherStore(LakelogError):
    """The given offsets belong to another store than the one that is read."""

    def __init__(self, path: Path | str, asked: str, found: str) -> None:
        super().__init__(
            f"{path} is store {found}, but the offsets belong to store {asked}; give the directory "
            "of that store, or start again with another checkpoint folder"
        )


_COLORS: Final = re.compile(r"\x1b\[[0-9;]*m")


def uncolored(text: str) -> str:
    """A text without terminal codes; deltalake's errors of object stores have them."""
    return _COLORS.sub("", text)


class LandingError(LakelogError):
    """A store cannot land in a table as both are now."""

    def __init__(self, message: str) -> None:
        super().__init__(uncolored(message))


class WrongLog(LandingError):
    """The last record that the table names is not in the log."""

    def __init__(self, path: Path, table: str, why: str) -> None:
        super().__init__(
            f"{path} is not the log whose rows are in {table}: {why}. It was cut, restored from "
            "an older copy, or is another store under the same identity: restore the right "
            "directory, land in a new table, or give this store its own --store-id; if it was cut, "
            "'lakelog lake rewind' removes the rows that are no longer in the log"
        )


class RetentionGap(LandingError):
    """Messages were deleted from the log before they landed."""

    exit_code: ClassVar[int] = 1

    def __init__(self, path: Path, table: str, at: int, minimum: int) -> None:
        super().__init__(
            f"{path}: the log begins at offset {minimum}, but {table} ends at {at}: "
            f"the {minimum - at} bytes between were deleted before they landed; to continue after "
            "the gap, give --gaps accept"
        )


class TableMismatch(LandingError):
    """A table is not one in which messages can land."""


class PositionMissing(TableMismatch):
    """A table does not show up to where a store has landed.

    :ivar marked: the end of the position outside of commits, if there is one
    :ivar rows: the end of the last row, if there is one
    """

    def __init__(
        self, table: str, store: str, marked: int | None = None, rows: int | None = None
    ) -> None:
        if marked is None:
            why = f"it has rows of the store up to offset {rows}, but no position for it"
        else:
            last = "no row" if rows is None else f"rows up to offset {rows}"
            why = f"it notes offset {marked}, and has {last}"
        ways = []
        if marked is not None and (rows is None or rows <= marked):
            ways.append(
                f"--resume position goes on from {marked}, if rows up to there landed and were "
                "deleted later"
            )
        if rows is not None:
            ways.append(
                f"--resume rows goes on from {rows}, behind the last row, and lands again what was "
                "deleted behind it"
            )
        super().__init__(
            f"{table} does not show up to where the store {store} has landed: {why}, and the "
            "commits that would show it were removed, or the table was replaced or copied. Nothing "
            f"was changed. Say with lakelog dispatch what counts: {'; '.join(ways)}; or land in a "
            "new table"
        )
        self.marked, self.rows = marked, rows


class DemandsUnmet(TableMismatch):
    """A table demands of its writers what lakelog does not do."""

    def __init__(self, table: str, demands: Iterable[str]) -> None:
        super().__init__(
            f"{table} cannot take the rows, because of {'; '.join(demands)}: lakelog does not "
            "write such tables. Nothing was changed: remove this from the table, or land in a new "
            "one"
        )


class RowRefused(TableMismatch):
    """A row is null in a column that must not be null."""

    def __init__(self, folder: object, column: str, row: Mapping[str, object]) -> None:
        super().__init__(
            f"the message at offset {row['queue_offset']} of queue {row['topic']}/"
            f"{row['queue_id']}, at {row['physical_offset']} in the log, has no {column}, which "
            f"must not be null in the table with the files in {folder}. Nothing was committed: let "
            "the column be null, land only other topics, or land in another table"
        )


class TableElsewhere(TableMismatch):
    """A table has its files outside of the place where it was opened."""

    def __init__(self, table: str, opened: object, found: object) -> None:
        super().__init__(
            f"{table} was opened in {opened}, but its files are in {found}: the folder is a copy "
            "or was moved, and Iceberg's paths are absolute, so that rows would land there. "
            "Nothing was changed: give the folder of the files, or land in a new folder; lakelog "
            "dispatch makes a copy a table of its own while the original is there. A table "
            "that is meant to be elsewhere can be named by its catalog: catalog:NAME"
        )


class SelectionChanged(TableMismatch):
    """A table has landed another selection of a store's messages than the one requested now."""

    def __init__(self, table: str, store: str, before: str, now: str) -> None:
        super().__init__(
            f"{table} has {before} of the store {store} up to its position, and {now} are "
            "requested: messages left out before would never land. Request the same selection, or "
            "land in a new table"
        )


class Conflict(LandingError):
    """Another writer changed the table first; nothing of this commit is in it."""


class TemporaryError(LandingError):
    """A temporary error; nothing was changed, and a later try may succeed."""

    exit_code: ClassVar[int] = 4


class LayoutChanged(TemporaryError):
    """The columns or partitions of a table changed after files were written for it."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"the columns or partitions of {table} changed while messages landed; nothing was "
            "committed, and their files are written again"
        )


class TooManyConflicts(TemporaryError):
    """Other writers committed first in each of several tries."""


_NO_ACCESS: Final = re.compile(
    r"\b40[13]\b|bucket|credential|denied|forbidden|unauthor|access.?key|signature|region|\bs3\b",
    re.I,
)
_ACCESS: Final = (
    " (of S3: the bucket, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and "
    "AWS_ENDPOINT_URL; else --storage KEY=VALUE)"
)


class Unreachable(TemporaryError):
    """A table, its catalog or its disk cannot be read or written."""

    def __init__(self, table: str, why: str) -> None:
        hint = _ACCESS if _NO_ACCESS.search(f"{table} {why}") else ""
        super().__init__(
            f"{table} cannot be read or written: {why}; correct this{hint} and run again: "
            "nothing is lost, and what remains is done then"
        )


class ClockBehind(TemporaryError):
    """The clock of this machine was set back; Iceberg's Java library commits no earlier change."""

    def __init__(self, table: str, seconds: float) -> None:
        super().__init__(
            f"the clock of this machine is {seconds:.0f} s behind the last change of {table}: set "
            "it right, or wait"
        )


class RegistryUnreachable(TemporaryError):
    """A schema registry does not answer, or refuses the request."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"the schema registry {url} does not answer: {why}; correct this (user and password: "
            "in the URL, or in SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO) and run again: nothing is "
            "lost, the remaining messages land then"
        )


class SparkLost(LandingError):
    """The Spark session that this process started or was given has ended."""

    exit_code: ClassVar[int] = 4

    def __init__(self, why: str) -> None:
        super().__init__(
            f"Spark has ended ({why}): start again; nothing is lost, the remaining messages land "
            "then"
        )


class TaskFailed(LandingError):
    """A task could not write the files of its range; nothing of the pass has landed."""

    exit_code: ClassVar[int] = 4


class TooManyDeadLetters(LandingError):
    """A run met more bodies that do not parse than its limit allows."""

    exit_code: ClassVar[int] = 1

    def __init__(self, count: int, most: int, start: int, end: int) -> None:
        super().__init__(
            f"with the messages from offset {start} to {end}, {count} would be dead letters, and "
            f"--max-dead-letters is {most}: none of them has landed; correct the schema (--body), "
            "or allow more"
        )


class TemporaryTaskError(TaskFailed, TemporaryError):
    """A task failed by a temporary error."""


class WorkerLost(TemporaryTaskError):
    """A process that ran a task has ended."""

    def __init__(self) -> None:
        super().__init__(
            "a process that writes data files was killed, perhaps for lack of memory (then give "
            "fewer --processes): nothing is lost, its range lands in the next pass"
        )


class NotWritten(TemporaryTaskError):
    """Files of a table could not be written.

    :param what: these files, in words
    """

    def __init__(self, folder: object, why: str, what: str = "data files") -> None:
        way = "make room, or repair the disk"
        if not isinstance(folder, Path):
            way = f"see to the object store and the access to it{_ACCESS}"
        super().__init__(
            f"{what} cannot be written to {folder}: {why}; {way}: "
            "nothing is lost, the messages land when they can be written"
        )


class BadParser(LandingError):
    """A body parser violates the contract of :class:`~lakelog_lake.bodies.base.BodyParser`."""


_NAMED = 5
"""Most stores that a message lists."""


class TableMaintenanceError(LakelogError):
    """A table cannot be compared, compacted, expired or otherwise maintained."""


class NoTable(TableMaintenanceError):
    """No table exists at the given place."""

    def __init__(self, target: str, why: str) -> None:
        super().__init__(
            f"{target}: {why}; name the table as for dispatch: iceberg:WAREHOUSE, delta:FOLDER or "
            "parquet:FOLDER, and with --table if it is not lakelog.messages"
        )


class NotAMessageTable(TableMaintenanceError):
    """A table exists, but it has not the columns of lakelog's messages."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} is not a table of lakelog's messages: {why}")


class NotLanded(TableMaintenanceError):
    """A table has no rows of the given store."""

    def __init__(self, name: str, store: str, others: Iterable[str]) -> None:
        known = sorted(others)
        there = ", ".join(known[:_NAMED]) + (" and more" if len(known) > _NAMED else "")
        super().__init__(
            f"{name} has no rows of store {store}; it has {there or 'no rows'}. Name the right "
            "directory, or give the store's name in the table as --store-id"
        )


class Unreadable(TableMaintenanceError):
    """A data file of a table is missing or broken."""

    exit_code: ClassVar[int] = 1


class NeedsEngine(TableMaintenanceError):
    """The chosen engine does not support an operation that another engine does."""


class SparkFailed(TableMaintenanceError):
    """A Spark job failed, or Spark rejected a statement."""

    exit_code: ClassVar[int] = 4


class NoJava(LakelogError):
    """Spark needs Java, and none was found."""


class WrongSpark(LakelogError):
    """Spark, or a jar of its session, is missing or has an unsupported version."""


class QueryFailed(TableMaintenanceError):
    """DuckDB failed to run a statement."""


class StatementRefused(TableMaintenanceError):
    """An engine rejects a statement as written."""

    exit_code: ClassVar[int] = 2


class TooManyDifferences(TableMaintenanceError):
    """A table and a log differ in more places than a comparison lists."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(
            f"{name} and {path} differ in too many places to find where the log was cut: "
            "inspect with lakelog lake verify, and land in a new table"
        )


class TooBusy(TableMaintenanceError):
    """Other writers committed first in each try; nothing was changed."""

    exit_code: ClassVar[int] = 4
