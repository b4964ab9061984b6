"""The report of a cleaning or its dry run."""

from __future__ import annotations

import attrs


@attrs.frozen
class Deleted:
    """A segment that was deleted, or would be.

    :ivar start_offset: offset of its first byte
    :ivar size_bytes: its length
    :ivar last_timestamp_ms: store time of its last message, in ms since 1970
    :ivar reason: the cleaner's reason
    :ivar pinned_by: followers that still needed it, ignored because of ``override_pins``
    """

    start_offset: int
    size_bytes: int
    last_timestamp_ms: int
    reason: str
    pinned_by: tuple[str, ...] = ()


@attrs.frozen
class KeptSegment:
    """The first chosen segment that had to stay; all behind it stay too.

    :ivar start_offset: offset of its first byte
    :ivar reason: why it stays
    """

    start_offset: int
    reason: str


@attrs.frozen
class CleaningReport:
    """The result of a cleaning.

    :ivar dry_run: whether nothing was changed
    :ivar deleted: the segments, oldest first
    :ivar kept: the segment that stopped the cleaning, if any
    :ivar min_offset: start of the log afterwards
    :ivar other_files: number of deleted files of queues and index
    :ivar topics: topics without remaining records, whose queues were removed
    """

    dry_run: bool
    deleted: tuple[Deleted, ...]
    kept: KeptSegment | None
    min_offset: int
    other_files: int = 0
    topics: tuple[str, ...] = ()

    @property
    def freed_bytes(self) -> int:
        """The total length of the deleted segments."""
        return sum(each.size_bytes for each in self.deleted)

    def __add__(self, later: CleaningReport) -> CleaningReport:
        """Combine the reports of this round and the next."""
        return CleaningReport(
            self.dry_run,
            self.deleted + later.deleted,
            later.kept,
            later.min_offset,
            self.other_files + later.other_files,
            self.topics + later.topics,
        )
