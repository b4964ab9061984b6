"""``retention``: deletes by age at certain hours or on disk pressure, by size, and by number.

Source: RocketMQ's ``CleanCommitLogService`` and ``MappedFileQueue.deleteExpiredFileByTime``. A
segment expires by the store time of its last message. RocketMQ uses the file's modification time,
which a copy, a restored backup or a repair resets.

``keep-forever``: deletes nothing; a full disk then stops the puts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from lakelog.hooks import CleaningContext, Deletion, DeletionRate, DiskState, SegmentInfo
from lakelog_retention.settings import RetentionSettings, local_time
from lakelog_retention.watcher import percent, size

HOUR_MS: Final = 3_600_000
_FORCIBLY: Final = (DiskState.CLEAN_FORCIBLY, DiskState.STOP_WRITING)
_STATES: Final = {
    DiskState.OK: "the disk has room",
    DiskState.CLEAN: "the disk is above its limit",
    DiskState.CLEAN_FORCIBLY: "the disk is nearly full",
    DiskState.STOP_WRITING: "the disk is so full that puts are refused",
}


class Retention:
    """Chooses the oldest segments that have a reason to be deleted.

    :ivar pace: rate at which the store deletes the chosen segments
    :ivar remove_empty_queues: whether queues without remaining messages are removed too
    """

    def __init__(self, settings: RetentionSettings) -> None:
        self.settings: Final = settings
        self.pace = settings.pace
        self.remove_empty_queues = settings.remove_empty_queues

    def choose(
        self, segments: Sequence[SegmentInfo], situation: CleaningContext
    ) -> Sequence[Deletion]:
        """The oldest segments with a reason for deletion, at most ``delete_files_batch_max``."""
        occasion = self._occasion(situation)
        # The active segment counts like the last sealed one.
        total_bytes = sum(each.size_bytes for each in (*segments, *segments[-1:]))
        chosen: list[Deletion] = []
        for at, segment in enumerate(segments[: self.settings.delete_files_batch_max]):
            reason = (
                self._too_old(segment, situation.now_ms, occasion)
                or _above(len(segments) + 1 - at, "segments", "max_segments", self.settings)
                or _above(total_bytes, "bytes", "max_total_bytes", self.settings)
                or self._not_expired_but_in_need(situation)
            )
            if not reason:
                break
            chosen.append(Deletion(segment.start_offset, reason))
            total_bytes -= segment.size_bytes
        return chosen

    def _occasion(self, situation: CleaningContext) -> str:
        """Why expired segments are deleted now; empty if they are not."""
        if situation.manual:
            return "a person asked for it"
        if situation.disk is not DiskState.OK:
            return _of_disk(situation)
        hour = local_time(situation.now_ms, self.settings.time_zone).hour
        if hour in self.settings.hours:
            return f"hour {hour:02} is one to delete in (delete_when = {self.settings.delete_when})"
        return ""

    def _too_old(self, segment: SegmentInfo, now_ms: int, occasion: str) -> str:
        kept_hours = self.settings.file_reserved_hours
        age_ms = now_ms - segment.last_timestamp_ms
        if not occasion or age_ms < kept_hours * HOUR_MS:
            return ""
        old = f"{age_ms // 360_000 / 10:g} h"  # never rounded up
        return f"its last message is {old} old and kept for {kept_hours} h; {occasion}"

    def _not_expired_but_in_need(self, situation: CleaningContext) -> str:
        if not (self.settings.clean_forcibly and situation.disk in _FORCIBLY):
            return ""
        return f"it is the oldest, though not expired, and {_of_disk(situation)}"


def _above(found: int, unit: str, limit: str, settings: RetentionSettings) -> str:
    """How the log is above a limit, in words; empty if it is not, or without that limit."""
    most = getattr(settings, limit)
    if most is None or found <= most:
        return ""
    return f"the log has {found} {unit}, and {limit} is {most}"


def _of_disk(situation: CleaningContext) -> str:
    """The watcher's state, with figures if known."""
    known = []
    if situation.used_ratio is not None:
        known.append(f"{percent(situation.used_ratio)} used")
    if situation.free_bytes is not None:
        known.append(f"{size(situation.free_bytes)} free")
    return _STATES[situation.disk] + (f" (the log's: {', '.join(known)})" if known else "")


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
