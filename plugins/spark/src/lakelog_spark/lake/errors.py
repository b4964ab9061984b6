"""Why a table cannot be cared for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from lakelog.errors import LakelogError

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


class StatementRefused(SparkFailed):
    """Spark does not take a statement as it is written."""

    exit_code: ClassVar[int] = 2


class TooBusy(CareError):
    """Other writers were faster each time; nothing was changed."""

    exit_code: ClassVar[int] = 4
