"""Decides which of the cleaner's choices may be deleted; changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import attrs

from lakelog.errors import BadStrategy
from lakelog.interfaces import (
    Cleaner,
    CleaningContext,
    CleaningReport,
    Clock,
    Deleted,
    Deletion,
    DeletionRate,
    DiskState,
    KeptSegment,
    SegmentInfo,
)

MANUAL_ROUNDS: Final = 20
"""Number of batches that one manual cleaning may delete, as in RocketMQ."""


@attrs.frozen
class Candidate:
    """A segment chosen by the cleaner."""

    info: SegmentInfo
    reason: str
    forced: bool

    @property
    def end_offset(self) -> int:
        """Offset behind its last byte."""
        return self.info.start_offset + self.info.size_bytes

    def deleted(self) -> Deleted:
        """Its entry in a report."""
        info = self.info
        return Deleted(
            info.start_offset,
            info.size_bytes,
            info.last_timestamp_ms,
            self.reason,
            info.pinned_by,
        )


def candidates(
    cleaner: Cleaner, infos: Sequence[SegmentInfo], situation: CleaningContext
) -> list[Candidate]:
    """Run the cleaner; raises :class:`~lakelog.errors.BadStrategy` if its choice has a gap."""
    chosen = list(cleaner.choose(infos, situation))
    front = [each.start_offset for each in infos[: len(chosen)]]
    if [each.start_offset for each in chosen] != front:
        raise BadStrategy(
            f"the cleaner chose {_starts(chosen)}, but must choose consecutive segments from the "
            f"first one on: {front or 'none'}; nothing is deleted"
        )
    return [
        Candidate(info, each.reason, each.forced) for info, each in zip(infos, chosen, strict=False)
    ]


def _starts(chosen: Sequence[Deletion]) -> list[int]:
    return [each.start_offset for each in chosen]


class Holds(Protocol):
    """Returns the reason why a segment must stay."""

    def __call__(self, candidate: Candidate) -> str | None:
        """The reason; ``None`` if it may be deleted."""


def dry_run(
    cleaner: Cleaner,
    infos: Sequence[SegmentInfo],
    situation: CleaningContext,
    holds: Holds,
    minimum: int,
) -> CleaningReport:
    """Report the segments that a manual cleaning would delete, and the one that would stop it.

    Deletion for lack of disk space counts as one batch, since its effect on the disk is unknown.
    """
    deleted: list[Deleted] = []
    for _ in range(MANUAL_ROUNDS):
        chosen = candidates(cleaner, infos[len(deleted) :], situation)[: cleaner.pace.batch_max]
        for each in chosen:
            why = holds(each)
            if why is not None:
                kept = KeptSegment(each.info.start_offset, why)
                return CleaningReport(True, tuple(deleted), kept, minimum)
            deleted.append(each.deleted())
            minimum = each.end_offset
        if not chosen:
            break
        situation = attrs.evolve(situation, disk=DiskState.OK)
    return CleaningReport(True, tuple(deleted), None, minimum)


class ReaderGrace:
    """Measures the time for which a segment in use by readers has waited for deletion."""

    def __init__(self, clock: Clock, pace: DeletionRate) -> None:
        self._clock = clock
        self._after_ms = pace.destroy_forcibly_after_ms
        self._since_ms: tuple[int, int] | None = None

    def is_over(self, start_offset: int) -> bool:
        """Whether the first segment has waited so long that it is deleted despite readers."""
        now_ms = self._clock.monotonic_ms()
        if self._since_ms is None or self._since_ms[0] != start_offset:
            self._since_ms = (start_offset, now_ms)
        return now_ms - self._since_ms[1] >= self._after_ms


@attrs.frozen
class RetentionHolds:
    """The reasons why a segment must stay, in order of checking.

    :ivar reached: returns the offset up to which the log is dispatched
    :ivar override_pins: whether to ignore pins
    :ivar patience: limits the wait for readers
    """

    reached: Callable[[], int]
    override_pins: bool
    patience: ReaderGrace

    def __call__(self, candidate: Candidate) -> str | None:
        """The reason; ``None`` if it may be deleted."""
        info = candidate.info
        if info.pinned_by and not self.override_pins:
            return f"followers still need it: {', '.join(info.pinned_by)}"
        if self.reached() < candidate.end_offset:
            return f"queues and index reach only to offset {self.reached()}"
        if info.readers and not (candidate.forced or self.patience.is_over(info.start_offset)):
            return f"it is being read by {info.readers}"
        return None
