"""The objects that the commands of tables print with ``--json``.

Names may be added; existing ones keep their meaning. Positions and physical offsets
are in bytes of the log.
"""

from __future__ import annotations

from typing import Literal, TypedDict


class QueueRow(TypedDict):
    """The rows of a queue, in the log and in the table.

    :ivar missing: rows in the log before the table's position, but not in the table
    :ivar extra: rows in the table, but not in the log
    :ivar ahead: rows in the table behind its position
    :ivar doubled: rows more than once in the table
    :ivar place: rows in another queue, or at another queue offset
    :ivar body: rows with another body
    :ivar columns: rows with another value in another column
    :ivar parsed: rows with another value in a column of parsed bodies
    :ivar crc: rows with a wrong checksum of the body, and no longer in the log
    :ivar gaps: queue offsets without a row; no longer in the log
    :ivar older: rows of messages deleted from the log
    """

    kind: Literal["queue"]
    topic: str
    queue: int
    log: int
    table: int
    missing: int
    extra: int
    ahead: int
    doubled: int
    place: int
    body: int
    columns: int
    parsed: int
    crc: int
    gaps: int
    older: int


class RangeRow(TypedDict):
    """Adjacent rows of a queue that differ alike.

    :ivar difference: name of the count in the row of the queue
    :ivar first: queue offset of the first row
    :ivar physical_first: physical offset of the first row
    """

    kind: Literal["difference", "gap"]
    difference: str
    topic: str
    queue: int
    first: int
    last: int
    rows: int
    physical_first: int
    physical_last: int


class NotComparedRow(TypedDict):
    """A damaged range of the log, where nothing was compared."""

    kind: Literal["damage"]
    start: int
    end: int


class VerifySummary(TypedDict):
    """The last line for a table.

    :ivar store: identity of the store in the table
    :ivar position: landed position of the store
    :ivar problem: reason why the table is of another log; null if it is of this log
    :ivar not_parsed_rows: rows whose columns of bodies were not compared
    :ivar columns: compared columns
    :ivar damaged: number of damaged ranges
    """

    kind: Literal["summary"]
    clean: bool
    table: str
    store: str
    log_start: int
    log_end: int
    position: int
    problem: str | None
    log_rows: int
    table_rows: int
    not_compared_rows: int
    not_parsed_rows: int
    differing_rows: int
    ranges_not_listed: int
    columns: list[str]
    damaged: int


class CommitRow(TypedDict):
    """A commit to a table.

    :ivar bytes: size of the added files
    :ivar took_ms: its duration; null until the writer's next commit
    """

    at_ms: int
    rows: int
    files: int
    bytes: int
    took_ms: int | None


class StatusRow(TypedDict):
    """The landed position of a store in a table.

    :ivar topic: the topic of the table; null for several
    :ivar landed_to: landed position; null if nothing has landed
    :ivar durable_to: durable end of the log; null if unknown
    :ivar lag_bytes: length of the durable part of the log that has not landed
    :ivar versions: number of kept versions
    :ivar commits: the last commits, the oldest first
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
    commits: list[CommitRow]
    lag_bytes: int | None


class CompactedRow(TypedDict):
    """A merge of small files.

    :ivar removed: number of merged files
    :ivar made: number of new files
    :ivar rows: number of merged rows; null if unknown
    """

    table: str
    removed: int
    made: int
    rows: int | None


class ExpiredRow(TypedDict):
    """The numbers of removed versions and files."""

    table: str
    versions: int
    files: int


class RelandedRow(TypedDict):
    """Dead letters that landed.

    :ivar taken_out: number of dead letters removed
    :ivar left: number of dead letters that stay
    """

    table: str
    landed: int
    taken_out: int
    left: int


class RewoundQueue(TypedDict):
    """The rows of a queue that are to be removed.

    :ivar first: queue offset of the first row
    :ivar start: physical offset of the first row
    """

    topic: str
    queue: int
    first: int
    last: int
    start: int
    rows: int


class RewindRow(TypedDict):
    """Rows that are no longer in a log.

    :ivar start: physical offset from which they are removed
    :ivar position_before: the position of the table
    :ivar position_after: its position without these rows
    :ivar is_done: whether they were removed
    """

    table: str
    rows: int
    start: int
    position_before: int
    position_after: int
    queues: list[RewoundQueue]
    is_done: bool


class LandedRow(TypedDict):
    """A range of the log that landed.

    :ivar won: false if another run landed it in each table that was to be committed
    :ivar rows: rows in all tables, dead letters included; those of another run count only if
        ``won`` is false
    :ivar damaged: ranges of the log, and bodies, that were skipped
    """

    start: int
    end: int
    rows: int
    files: int
    damaged: int
    won: bool
    dead_letters: int


class ExportedRow(TypedDict):
    """The number of written rows."""

    rows: int
