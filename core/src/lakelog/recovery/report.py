"""The progress and the result of a recovery, for programs and users.

A recovery reads the log, then completes the queues. A progress callback receives bytes done and in
total, and starts again with each phase. If it has a method ``phase``, that receives a description
when a phase begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from lakelog.format.record_batch import Damage

if TYPE_CHECKING:
    from lakelog.files.checkpoint import StoreCheckpoint
    from lakelog.format.queue_offsets import Queue
    from lakelog.format.queue_survey import QueueOffsetSurvey
    from lakelog.recovery.examine import Length
    from lakelog.recovery.filler import Filling, Tail

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of bytes read so far, and its maximum."""


class Aside(NamedTuple):
    """Bytes removed from the log and kept in quarantine.

    :ivar offset: their offset in the log
    :ivar end_offset: behind the last one
    :ivar reason: why they are not part of the log
    :ivar path: the copy; ``None`` before it is made, as in a dry run
    """

    offset: int
    end_offset: int
    reason: str
    path: Path | None = None

    def __str__(self) -> str:
        """Their place, the reason, and the copy."""
        kept = f"; kept in {self.path}" if self.path else ""
        return f"{self.offset} to {self.end_offset}: {self.reason}{kept}"


class MissingEnd(NamedTuple):
    """Evidence of records lost behind the end of the log.

    :ivar offset: the end of the log as found
    :ivar end_offset: the former end
    :ivar how: the evidence
    """

    offset: int
    end_offset: int
    how: str

    def __str__(self) -> str:
        """The range and the evidence."""
        return f"{self.offset} to {self.end_offset}: {self.how}"


class RecoveryReport(NamedTuple):
    """The findings and actions of a recovery; offsets are in bytes of the log.

    :ivar clean: whether the store had been closed cleanly
    :ivar start_offset: where reading began
    :ivar start_reason: why there
    :ivar minimum: first byte of the log
    :ivar end_offset: behind its last record or blank
    :ivar records: number of whole records read
    :ivar damage: ranges that stay in the log without being whole records; readers skip and report
        them. In parts not read now, these are the entries of an earlier recovery, marked as such
    :ivar cut: ranges removed from the log and kept in quarantine
    :ivar mended: other corrections, such as file lengths, as text
    :ivar dispatched_from: where the completion of queues and index began; ``None`` if it did not
        run, as in a dry run
    :ivar seconds: duration
    :ivar missing: losses at the end of the log, one entry per source of evidence
    :ivar cut_at: the damage where ``on_damage="truncate"`` cut the log; no longer in it
    """

    clean: bool
    start_offset: int
    start_reason: str
    minimum: int
    end_offset: int
    records: int
    damage: tuple[Damage, ...] = ()
    cut: tuple[Aside, ...] = ()
    mended: tuple[str, ...] = ()
    dispatched_from: int | None = None
    seconds: float = 0.0
    missing: tuple[MissingEnd, ...] = ()
    cut_at: Damage | None = None

    @property
    def read_from(self) -> int:
        """The offset before which nothing was read."""
        return self.start_offset

    @property
    def read_all(self) -> bool:
        """Whether the whole log was read."""
        return self.start_offset <= self.minimum

    @property
    def changed(self) -> bool:
        """Whether the log was changed, or would be in a dry run."""
        return bool(self.cut or self.mended)

    def __str__(self) -> str:
        """A summary in one line."""
        stop = "a clean" if self.clean else "an unclean"
        cut = sum(each.end_offset - each.offset for each in self.cut)
        most = max((each.end_offset for each in self.missing), default=self.end_offset)
        lost = f"{most - self.end_offset} bytes behind its end are missing; " * bool(self.missing)
        return (
            f"after {stop} stop: read {self.records} records from {self.start_offset} "
            f"({self.start_reason}); the log ends at {self.end_offset}; {len(self.damage)} damaged "
            f"places stay in it, {cut} bytes were set aside, {len(self.mended)} other things "
            f"mended; {lost}{self.seconds:.3f} s"
        )


class RecoveryPlan(NamedTuple):
    """The findings of an examination, and the actions to take.

    :ivar report: the report of a dry run
    :ivar found: the survey of the records read, with the next queue offsets
    :ivar damage: ranges without whole records, followed by proved records
    :ivar tails: ranges to move to quarantine, in log order
    :ivar lengths: files of a wrong length
    :ivar checkpoint: the corrected checkpoint; ``None`` if it is correct
    :ivar lost_ends: former queue ends, if something is missing
    :ivar fillings: records that replace damage, so that no append follows a hole
    """

    report: RecoveryReport
    found: QueueOffsetSurvey
    damage: tuple[Damage, ...] = ()
    tails: tuple[Tail, ...] = ()
    lengths: tuple[Length, ...] = ()
    checkpoint: StoreCheckpoint | None = None
    lost_ends: Mapping[Queue, int] = MappingProxyType({})
    fillings: tuple[Filling, ...] = ()

    @property
    def staying(self) -> tuple[Damage, ...]:
        """The damage that is not filled."""
        return tuple(each for each in self.damage if not each.to_fill)

    @property
    def minimum(self) -> int:
        """Offset of the first byte of the log."""
        return self.report.minimum

    @property
    def end_offset(self) -> int:
        """Offset behind the last record or blank."""
        return self.report.end_offset


NO_LOG: Final = "there is no log yet"
READING: Final = "reading the log"
COMPLETING: Final = "completing queues and index"


def begin(progress: object, words: str) -> None:
    """Notify a callback that has the method ``phase``."""
    phase = getattr(progress, "phase", None)
    if phase is not None:
        phase(words)
