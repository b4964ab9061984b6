"""The errors of writing rows into a store."""

from __future__ import annotations

from pathlib import Path

from lakelog.errors import LakelogError


class NoSuchStore(LakelogError):
    """Rows were to be appended to a store that does not exist."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: there is no store; give option create=true to create one")


class BadRow(LakelogError):
    """A row that is not a valid message.

    :ivar partition: the partition of the data frame; :ivar row: its index there, from 0
    """

    def __init__(self, partition: int, row: int, why: str) -> None:
        super().__init__(f"row {row} of partition {partition}: {why}")
        self.partition = partition
        self.row = row


class StagingLost(LakelogError):
    """A staged file is missing or changed."""

    def __init__(self, path: Path, expected: object, found: object) -> None:
        super().__init__(
            f"{path}: expected {expected}, found {found}; does the folder of the store have the "
            "same path on the driver and on every executor?"
        )


class BadJournal(LakelogError):
    """The manifest or journal of a job cannot be read."""

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(f"{path}: expected a manifest or journal of a job, found {found}")


class LogLost(LakelogError):
    """The log was cut or restored, and no longer has the offset at which a job began to append."""

    def __init__(self, job: str, offset: int, first: int, end: int) -> None:
        super().__init__(
            f"job {job} began to append at offset {offset}, but the log has {first} to {end}: "
            "it was cut or restored, so it is not known which rows are in it; to append all "
            "rows again, use another job_id"
        )


class HandoverStopped(LakelogError):
    """A job was stopped with some of its rows in the log, and others missing.

    :ivar job: its id
    """

    def __init__(self, path: Path, job: str, cause: BaseException) -> None:
        super().__init__(
            f"{path}: job {job} was stopped while its rows were appended: {cause}; to append the "
            f"missing rows only, call lakelog_spark.finish_write({str(path)!r}, "
            f"{job!r}), or run the same write again with option job_id={job}"
        )
        self.job = job
