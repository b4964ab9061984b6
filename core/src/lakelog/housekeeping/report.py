"""What a cleaning did, or would do."""

from __future__ import annotations

import attrs


@attrs.frozen
class Deleted:
    """A segment that was deleted, or would be.

    :ivar start_offset: offset of its first byte
    :ivar size_bytes: its length
    :ivar last_timestamp_ms: store time of its last message, in ms since 1970
    :ivar reason: the cleaner's
    :ivar pinned_by: followers that still needed it; ``override_pins`` let it go all the same
    """

    start_offset: int
    size_bytes: int
    last_timestamp_ms: int
    reason: str
    pinned_by: tuple[str, ...] = ()


@attrs.frozen
class KeptSegment:
    """The first segment that the cleaner chose and that had to stay, and with it all behind it.

    :ivar start_offset: offset of its first byte
    :ivar reason: why it stays
    """

    start_offset: int
    reason: str


@attrs.frozen
class CleaningReport:
    """What a cleaning did.

    :ivar dry_run: whether it only looked
    :ivar deleted: the segments, oldest first
    :ivar kept: what it stopped at, if it did
    :ivar min_offset: where the log begins now, or would
    :ivar other_files: how many files of queues and index went with them
    :ivar topics: topics of which nothing was left, whose queues were removed
    """

    dry_run: bool
    deleted: tuple[Deleted, ...]
    kept: KeptSegment | None
    min_offset: int
    other_files: int = 0
    topics: tuple[str, ...] = ()

    @property
    def freed_bytes(self) -> int:
        """Length of the segments together."""
        return sum(each.size_bytes for each in self.deleted)

    def __add__(self, later: CleaningReport) -> CleaningReport:
        """This round and the next one."""
        return CleaningReport(
            self.dry_run,
            self.deleted + later.deleted,
            later.kept,
            later.min_offset,
            self.other_files + later.other_files,
            self.topics + later.topics,
        )
