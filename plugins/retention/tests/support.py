"""Segments and situations by day, and a meter that returns what a test sets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

from lakelog.interfaces import CleaningContext, DiskState, SegmentInfo
from lakelog_retention.cleaner import Retention
from lakelog_retention.measure import Measure
from lakelog_retention.settings import RetentionSettings

HOUR_MS = 3_600_000
SEGMENT_BYTES = 1 << 20
NOON_MS = int(datetime(2026, 3, 10, 12, 30, tzinfo=UTC).timestamp() * 1000)


def at_hour(hour: int, minute: int = 0) -> int:
    """A time on that day, in ms since 1970."""
    return NOON_MS + (hour - 12) * HOUR_MS + (minute - 30) * 60_000


def retention(**settings: Any) -> Retention:
    """A cleaner with hours in UTC."""
    return Retention(RetentionSettings(**{"time_zone": "UTC", **settings}))


def aged(*hours: float, now_ms: int = NOON_MS) -> list[SegmentInfo]:
    """Segments whose last messages have the given ages."""
    return [
        SegmentInfo(at * SEGMENT_BYTES, SEGMENT_BYTES, int(now_ms - age * HOUR_MS))
        for at, age in enumerate(hours)
    ]


def reasons(
    cleaner: Retention, segments: Sequence[SegmentInfo], now_ms: int = NOON_MS, **situation: Any
) -> list[str]:
    """The reasons of the deletions; checks that these are the oldest segments."""
    chosen = cleaner.choose(segments, CleaningContext(now_ms, **situation))
    front = [segment.start_offset for segment in segments[: len(chosen)]]
    assert [each.start_offset for each in chosen] == front
    forced = situation.get("disk") is DiskState.STOP_WRITING
    assert all(each.forced is forced for each in chosen)
    return [each.reason for each in chosen]


@attrs.define
class Disks:
    """A meter: folders are on the disk of their nearest named parent."""

    sizes: dict[Path, Measure] = attrs.field(factory=dict)
    asked: list[Path] = attrs.field(factory=list)

    def put(self, path: str, used: float, total: int = 1000, inodes: int | None = None) -> None:
        """A disk of ``total`` bytes with the ratio ``used`` in use."""
        taken = round(used * total)
        device = self.sizes[Path(path)].device if Path(path) in self.sizes else len(self.sizes)
        self.sizes[Path(path)] = Measure(device, taken, total - taken, inodes)

    def __call__(self, path: Path) -> Measure:
        """Measure."""
        self.asked.append(path)
        return next(self.sizes[each] for each in (path, *path.parents) if each in self.sizes)
