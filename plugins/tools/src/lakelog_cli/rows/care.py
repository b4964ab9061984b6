"""Objects of the commands that check, mend and clean a store."""

from __future__ import annotations

from typing import Literal, TypedDict

from lakelog_interfaces.strategies.maintaining import KeptSegment


class PlaceRow(TypedDict):
    """A range of the log that is not whole records."""

    path: str | None
    offset: int
    end_offset: int
    what: str


class MissingRow(TypedDict):
    """Records that are lost: a range behind the end of the log, and how it is known."""

    offset: int
    end_offset: int
    how: str


class AsideRow(TypedDict):
    """A range that was kept in lakelog/quarantine.

    :ivar kept: its file; null if nothing was done yet
    """

    offset: int
    end_offset: int
    what: str
    kept: str | None


class RecoveryDocument(TypedDict):
    """What a recovery found and did.

    :ivar clean: whether the store had been closed cleanly
    :ivar read_from: offset from which the log was read
    :ivar start_reason: why reading began at ``start_offset``
    :ivar records: number of whole records that were read
    :ivar mended: what else was put right, in words
    :ivar dispatched_from: offset from which queues and index were completed; null if not done
    """

    clean: bool
    read_from: int
    start_offset: int
    start_reason: str
    min_offset: int
    end_offset: int
    records: int
    damage: list[PlaceRow]
    missing: list[MissingRow]
    cut: list[AsideRow]
    cut_at: PlaceRow | None
    mended: list[str]
    dispatched_from: int | None
    seconds: float


class RecoverRow(RecoveryDocument):
    """A recovery.

    :ivar dry_run: whether nothing was changed
    """

    dry_run: bool


class StepRow(TypedDict):
    """A step of a repair.

    :ivar possible: whether it can be done
    """

    path: str
    offset: int
    what: str
    why: str
    possible: bool


class QueueName(TypedDict):
    """A queue."""

    topic: str
    queue_id: int


class RepairRow(TypedDict):
    """A repair.

    :ivar dry_run: whether nothing was changed
    :ivar recovery: null if none was possible
    :ivar kept: what was written over
    :ivar rebuilt: folders that were built again
    :ivar led: queues that were led over what is missing
    """

    dry_run: bool
    recovery: RecoveryDocument | None
    steps: list[StepRow]
    kept: list[AsideRow]
    rebuilt: list[str]
    led: list[QueueName]
    seconds: float


class RebuildRow(TypedDict):
    """A rebuild.

    :ivar size_bytes: of the log that was read
    :ivar folders: what was built
    """

    records: int
    size_bytes: int
    damaged_places: int
    damaged_bytes: int
    folders: list[str]
    seconds: float


class ProblemRow(TypedDict):
    """A fault in a file that is built from the log; ``behind`` if a recovery mends it without loss.

    :ivar position: byte of the file
    """

    kind: Literal["problem", "behind"]
    path: str
    position: int
    what: str
    expected: str
    found: str


class DamageRow(PlaceRow):
    """Damage in the log; ``torn`` for a put at its end that a crash cut off."""

    kind: Literal["damage", "torn"]


class BadSegmentRow(TypedDict):
    """A wrong name or length of a segment."""

    kind: Literal["segment"]
    what: str


class LostRow(MissingRow):
    """Records that were durable and are missing at the end of the log."""

    kind: Literal["missing"]


class CheckSummary(TypedDict):
    """The last line of a check.

    :ivar whole: whether nothing is wrong that a crash does not explain
    :ivar record_bytes: length of all records
    :ivar last_timestamp_ms: store time of the last message
    :ivar torn_bytes: of a put at the end that a crash cut off
    :ivar compared: what was compared with the log, besides
    :ivar problems: number of faults in it
    :ivar behind: number of places where it lags behind the log
    :ivar abort: whether the file of this name is there
    """

    kind: Literal["summary"]
    whole: bool
    state: Literal["whole", "crashed", "damaged"]
    start_offset: int
    segment_problems: int
    end_offset: int
    records: int
    record_bytes: int
    blanks: int
    damaged_places: int
    damaged_bytes: int
    last_timestamp_ms: int
    torn_bytes: int
    compared: list[str]
    problems: int
    behind: int
    abort: bool


class ReportRow(TypedDict):
    """A page that was written."""

    path: str
    damaged_places: int


class DeletedSegmentRow(TypedDict):
    """A segment that was deleted, or would be.

    :ivar last_timestamp_ms: store time of its last message
    :ivar pinned_by: followers that still needed it
    """

    kind: Literal["segment"]
    start_offset: int
    size_bytes: int
    last_timestamp_ms: int
    reason: str
    pinned_by: list[str]


class CleanSummary(TypedDict):
    """The last line of a cleaning.

    :ivar min_offset: start of the log afterwards
    :ivar kept: the segment that stopped it
    :ivar other_files: deleted files of queues and index
    :ivar topics: those without messages, whose queues were removed
    """

    kind: Literal["summary"]
    dry_run: bool
    segments: int
    freed_bytes: int
    min_offset: int
    kept: KeptSegment | None
    other_files: int
    topics: list[str]
