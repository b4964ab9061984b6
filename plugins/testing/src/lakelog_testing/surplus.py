"""A cleaner that deletes all but the newest segments; it is its own plugin."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from lakelog.hookspecs import hookimpl
from lakelog.interfaces import (
    CleaningContext,
    Deletion,
    DeletionRate,
    Factory,
    Kind,
    NoSettings,
    SegmentInfo,
)


def _at_once() -> DeletionRate:
    return DeletionRate(interval_ms=0)


@attrs.define(eq=False)
class SurplusCleaner:
    """Use it with ``lakelog.open(path, plugins=[SurplusCleaner()], cleaner="surplus")``.

    :ivar keep: number of the newest sealed segments to keep
    :ivar forced: whether segments in use are deleted too
    """

    keep: int = 0
    pace: DeletionRate = attrs.field(factory=_at_once)
    remove_empty_queues: bool = False
    forced: bool = False

    def choose(
        self,
        segments: Sequence[SegmentInfo],
        situation: CleaningContext,  # noqa: ARG002  # required by Cleaner
    ) -> Sequence[Deletion]:
        """All but the newest, regardless of disks and clock."""
        surplus = segments[: max(0, len(segments) - self.keep)]
        return [Deletion(each.start_offset, "surplus", self.forced) for each in surplus]

    @hookimpl
    def lakelog_cleaners(self) -> list[Factory]:
        """Offer itself."""
        return [Factory(Kind.CLEANER, "surplus", NoSettings, lambda _section, _context: self)]
