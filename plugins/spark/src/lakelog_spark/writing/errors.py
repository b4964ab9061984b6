"""What writing rows into a store can meet."""

from __future__ import annotations

from pathlib import Path

from lakelog.errors import LakelogError


class NoSuchStore(LakelogError):
    """Rows should go into a store that is not there."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: no store is here; give option create=true to make one")


class BadRow(LakelogError):
    """A row that no record can hold.

    :ivar partition: the partition of the data frame; :ivar row: its number in there, from 0
    """

    def __init__(self, partition: int, row: int, why: str) -> None:
        super().__init__(f"row {row} of partition {partition}: {why}")
        self.partition = partition
        self.row = row


class StagingLost(LakelogError):
    """A staged file is not as the task left it."""

    def __init__(self, path: Path, expected: object, found: object) -> None:
        super().__init__(
            f"{path}: expected {expected}, found {found}; does the folder of the store have the "
            "same path on the driver and on every executor?"
        )


class BadJournal(LakelogError):
    """What lakelog notes about a job cannot be read."""

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(f"{path}: expected what lakelog notes of a job, found {found}")


class LogLost(LakelogError):
    """The log does not reach to where a job began to append: it was cut, or restored."""

    def __init__(self, job: str, offset: int, first: int, end: int) -> None:
        super().__init__(
            f"job {job} began to append at offset {offset}, and the log holds {first} to {end}: "
            "it was cut or restored since, and which rows are in it cannot be told; to append all "
            "rows again, use another job_id"
        )


class HandoverStopped(LakelogError):
    """Some rows of a job are in the log, and others are not yet.

    :ivar job: its id
    """

    def __init__(self, path: Path, job: str, cause: BaseException) -> None:
        super().__init__(
            f"{path}: job {job} was stopped while its rows were appended: {cause}; to append what "
            f"is missing, and nothing twice, call lakelog_spark.finish_write({str(path)!r}, "
            f"{job!r}), or run the same write again with option job_id={job}"
        )
        self.job = job
