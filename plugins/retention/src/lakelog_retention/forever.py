"""``keep-forever``: deletes nothing; a full disk then stops the puts."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from lakelog.interfaces import Deletion, Pace, SegmentInfo, Situation


@attrs.define
class KeepForever:
    """Never chooses a segment."""

    pace: Pace = attrs.field(factory=Pace)
    remove_empty_queues: bool = False

    def choose(
        self,
        segments: Sequence[SegmentInfo],  # noqa: ARG002  # required by Cleaner
        situation: Situation,  # noqa: ARG002  # required by Cleaner
    ) -> Sequence[Deletion]:
        """Always empty."""
        return ()
