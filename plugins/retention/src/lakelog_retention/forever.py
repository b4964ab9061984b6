"""``keep-forever``: deletes nothing; a full disk then stops the puts."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from lakelog.interfaces import CleaningContext, Deletion, DeletionRate, SegmentInfo


@attrs.define
class KeepForever:
    """Never chooses a segment."""

    pace: DeletionRate = attrs.field(factory=DeletionRate)
    remove_empty_queues: bool = False

    def choose(
        self,
        segments: Sequence[SegmentInfo],  # noqa: ARG002  # required by Cleaner
        situation: CleaningContext,  # noqa: ARG002  # required by Cleaner
    ) -> Sequence[Deletion]:
        """Always empty."""
        return ()
