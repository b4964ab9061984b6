"""The position of a store in its tables, and their sizes, without reading data files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

import lakelog
from lakelog_lake.landing.committing import table_errors
from lakelog_lake.verify.landed_table import TableCommit
from lakelog_lake.verify.open import all_opened


@attrs.frozen
class Status:
    """The status of one table.

    :ivar table: name of the table
    :ivar topic: the only topic of the table; ``None`` if it has all topics
    :ivar log_start: physical offset of the start of the log
    :ivar landed_to: physical offset up to which the store has landed; ``None`` if it never did
    :ivar durable_to: physical offset up to which the log is durable; ``None`` if not known
    :ivar rows: number of rows of all stores
    :ivar dead_letters: number of rows of the table of dead letters
    :ivar files: number of data files of the newest version
    :ivar bytes: total size of these files
    :ivar versions: number of versions kept
    :ivar commits: the last commits, oldest first
    """

    table: str
    topic: str | None
    log_start: int
    landed_to: int | None
    durable_to: int | None
    rows: int
    dead_letters: int
    files: int
    bytes: int
    versions: int
    commits: tuple[TableCommit, ...] = ()

    @property
    def lag_bytes(self) -> int | None:
        """Bytes of the log that are durable and have not landed; ``None`` if not known."""
        if self.durable_to is None:
            return None
        return max(
            0, self.durable_to - (self.log_start if self.landed_to is None else self.landed_to)
        )

    @property
    def landed_share(self) -> float | None:
        """The part of the present log that has landed, from 0 to 1; ``None`` if not known."""
        if self.lag_bytes is None or self.durable_to is None:
            return None
        there = self.durable_to - self.log_start
        return 1.0 if there <= 0 else max(0.0, 1 - self.lag_bytes / there)


def statuses(
    path: Path, store: str, to: str, table: str | None, storage: Mapping[str, str]
) -> Iterator[Status]:
    """Yield one status for each table of ``to``.

    :param store: the identity of the store in the tables

    Raises :class:`~lakelog_lake.errors.TableMaintenanceError`, and the errors of opening the store.
    """
    with lakelog.open(path, mode="read") as opened:
        start = opened.min_offset
        durable = opened.flushed_offset if opened.is_flushed_known else None
    for each in all_opened(to, table, None, storage):
        with table_errors(each.table.name):
            position = each.table.position(store)
            size = each.table.size()
            commits = tuple(each.table.commits())
            dead = 0 if each.dead_letters is None else each.dead_letters.size().rows
        yield Status(
            each.table.name,
            each.topic,
            start,
            None if position is None else position.end,
            durable,
            size.rows,
            dead,
            size.files,
            size.bytes,
            size.versions,
            commits,
        )
