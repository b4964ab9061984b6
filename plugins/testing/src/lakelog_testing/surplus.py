"""A cleaner to which all but the newest segments are too old; it is its own plugin."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from lakelog.hookspecs import hookimpl
from lakelog.interfaces import (
    Deletion,
    Factory,
    Kind,
    NoSettings,
    Pace,
    SegmentInfo,
    Situation,
)


def _at_once() -> Pace:
    return Pace(interval_ms=0)


@attrs.define(eq=False)
class SurplusCleaner:
    """Give it to ``lakelog.open(path, plugins=[SurplusCleaner()], cleaner="surplus")``.

    :ivar keep: how many of the newest sealed segments stay
    :ivar forced: whether those that are read go, too
    """

    keep: int = 0
    pace: Pace = attrs.field(factory=_at_once)
    remove_empty_queues: bool = False
    forced: bool = False

    def choose(
        self,
        segments: Sequence[SegmentInfo],
        situation: Situation,  # noqa: ARG002  # a cleaner is given both
    ) -> Sequence[Deletion]:
        """All but the newest, whatever the disks and the clock say."""
        surplus = segments[: max(0, len(segments) - self.keep)]
        return [Deletion(each.start_offset, "surplus", self.forced) for each in surplus]

    @hookimpl
    def lakelog_cleaners(self) -> list[Factory]:
        """Offer itself."""
        return [Factory(Kind.CLEANER, "surplus", NoSettings, lambda _section, _context: self)]
