"""Objects of the commands that check, repair and clean a store."""

from __future__ import annotations

from typing import Literal, TypedDict

from lakelog.hooks.housekeeping import KeptSegment


class PlaceRow(TypedDict):
    """A range of the log without whole records."""

    path: str | None
    offset: int
    end_offset: int
    what: str


class MissingRow(TypedDict):
    """Lost records: a range behind the end of the log, and the evidence of it."""

    offset: int
    end_offset: int
    how: str


class AsideRow(TypedDict):
    """A range that was kept in lakelog/quarantine.

    :ivar kept: file with the bytes; null before they are copied
    """

    offset: int
    end_offset: int
    what: str
    kept: str | None


class RecoveryDocument(TypedDict):
    """Findings and actions of a recovery.

    :ivar clean: whether the store had been closed cleanly
    :ivar read_from: offset from which the log was read
    :ivar start_reason: reason for reading from ``start_offset`` on
    :ivar records: number of whole records that were read
    :ivar mended: other repairs, as texts
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

    :ivar possible: whether the step can be done
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
    :ivar recovery: the recovery; null if none was possible
    :ivar kept: overwritten ranges
    :ivar rebuilt: folders of rebuilt files
    :ivar led: queues with units that point to records of the repair
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

    :ivar size_bytes: length of the log
    :ivar folders: folders of the built files
    """

    records: int
    size_bytes: int
    damaged_places: int
    damaged_bytes: int
    folders: list[str]
    seconds: float


class ProblemRow(TypedDict):
    """A fault in a derived file; of kind ``behind`` if a recovery repairs it without loss.

    :ivar position: position in the file, in bytes
    """

    kind: Literal["problem", "behind"]
    path: str
    position: int
    what: str
    expected: str
    found: str


class DamageRow(PlaceRow):
    """Damage in the log; of kind ``torn`` for an incomplete put at its end after a crash."""

    kind: Literal["damage", "torn"]


class BadSegmentRow(TypedDict):
    """A wrong name or length of a segment."""

    kind: Literal["segment"]
    what: str


class LostRow(MissingRow):
    """Durable records that are missing at the end of the log."""

    kind: Literal["missing"]


class CheckSummary(TypedDict):
    """The last line of a check.

    :ivar whole: whether all problems are normal after a crash, or there are none
    :ivar record_bytes: length of all records
    :ivar last_timestamp_ms: store time of the last message
    :ivar torn_bytes: length of an incomplete put at the end after a crash
    :ivar compared: derived files that were compared with the log
    :ivar problems: number of faults in the derived files
    :ivar behind: number of places where a derived file lags behind the log
    :ivar abort: whether the file ``abort`` exists
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
    """A written page."""

    path: str
    damaged_places: int


class DeletedSegmentRow(TypedDict):
    """A deleted segment; with ``--dry-run``, a segment to delete.

    :ivar last_timestamp_ms: store time of its last message
    :ivar pinned_by: followers whose pins need it
    """

    kind: Literal["segment"]
    start_offset: int
    size_bytes: int
    last_timestamp_ms: int
    reason: str
    pinned_by: list[str]


class CleanSummary(TypedDict):
    """The last line of a cleaning.

    :ivar min_offset: start of the log after the cleaning
    :ivar kept: the first segment that stays
    :ivar other_files: number of deleted files of queues and index
    :ivar topics: topics without messages, whose queues were removed
    """

    kind: Literal["summary"]
    dry_run: bool
    segments: int
    freed_bytes: int
    min_offset: int
    kept: KeptSegment | None
    other_files: int
    topics: list[str]
