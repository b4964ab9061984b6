"""Reports of cleanings: combined, and read from the answer of another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakelog.interfaces import CleaningReport, Deleted, KeptSegment


def joined(report: CleaningReport, later: CleaningReport) -> CleaningReport:
    """Combine the reports of a round and the next."""
    return CleaningReport(
        report.dry_run,
        report.deleted + later.deleted,
        later.kept,
        later.min_offset,
        report.other_files + later.other_files,
        report.topics + later.topics,
    )


def report_of(said: Mapping[str, Any]) -> CleaningReport:
    """A report from its JSON values."""
    kept = said["kept"]
    deleted = (
        Deleted(**{**each, "pinned_by": tuple(each["pinned_by"])}) for each in said["deleted"]
    )
    given = {
        "deleted": tuple(deleted),
        "kept": None if kept is None else KeptSegment(**kept),
        "topics": tuple(said["topics"]),
    }
    return CleaningReport(**{**said, **given})
