"""``keep-forever``: nothing goes, and a disk that gets full stops the puts."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from lakelog.interfaces import Deletion, Pace, SegmentInfo, Situation


@attrs.define
class KeepForever:
    """Never chooses anything."""

    pace: Pace = attrs.field(factory=Pace)
    remove_empty_queues: bool = False

    def choose(
        self,
        segments: Sequence[SegmentInfo],  # noqa: ARG002  # a cleaner is given both
        situation: Situation,  # noqa: ARG002  # a cleaner is given both
    ) -> Sequence[Deletion]:
        """Nothing."""
        return ()
