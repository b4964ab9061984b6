"""What a recovery found and did, for programs and for people."""

from __future__ import annotations

from pathlib import Path

import attrs

from lakelog.log.reading.pieces import Damage


@attrs.frozen
class Aside:
    """Bytes that were taken out of the log, and are kept.

    :ivar offset: where they stood in the log
    :ivar end_offset: behind the last one
    :ivar reason: why they are no part of it
    :ivar path: the copy; ``None`` as long as there is none, as in a dry run
    """

    offset: int
    end_offset: int
    reason: str
    path: Path | None = None

    def __str__(self) -> str:
        """Where they stood, why they went, and where they are."""
        kept = f"; kept in {self.path}" if self.path else ""
        return f"{self.offset} to {self.end_offset}: {self.reason}{kept}"


@attrs.frozen
class MissingEnd:
    """Where records are known to have been, behind the end that was found.

    :ivar offset: the end of the log that was found
    :ivar end_offset: how far it reached once
    :ivar how: how that is known
    """

    offset: int
    end_offset: int
    how: str

    def __str__(self) -> str:
        """Where, and how it is known."""
        return f"{self.offset} to {self.end_offset}: {self.how}"


@attrs.frozen
class RecoveryReport:
    """What a recovery found, and what it did about it; offsets are in bytes of the log.

    :ivar clean: whether the store had been closed cleanly
    :ivar start_offset: from where the log was read
    :ivar start_reason: why from there
    :ivar minimum: first byte of the log
    :ivar end_offset: behind its last record or blank
    :ivar records: whole records that were read
    :ivar damage: what stays in the log and is no whole record; reads pass over it, and say so. That
        of a part that was not read is what an earlier recovery noted, and says so
    :ivar cut: what was taken out, and is kept in quarantine
    :ivar mended: what else was put right, such as lengths of files, in words
    :ivar dispatched_from: from where queues and index were completed; ``None`` where nobody looked,
        as in a dry run
    :ivar seconds: how long it took
    :ivar missing: what the log held behind its end, and lost; one for each that knows of it
    :ivar cut_at: the damage at which ``on_damage="truncate"`` cut the log; no longer in it
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
        """Nothing before it was looked at."""
        return self.start_offset

    @property
    def read_all(self) -> bool:
        """Whether all of the log was read."""
        return self.start_offset <= self.minimum

    @property
    def changed(self) -> bool:
        """Whether the log was, or in a dry run would be, changed."""
        return bool(self.cut or self.mended)

    def __str__(self) -> str:
        """One line."""
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
