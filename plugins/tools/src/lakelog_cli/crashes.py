"""Findings of a check that a crash explains: a recovery puts them right, and loses nothing."""

from __future__ import annotations

import attrs

from lakelog.errors import BadSegment
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.shared.ownership import is_owned
from lakelog.format.layout import ABORT_FILE
from lakelog.interfaces.verifying import Problem
from lakelog.log.reading.pieces import Damage
from lakelog.recovery.examine import examine
from lakelog.recovery.report import Missing
from lakelog.store.store import Store
from lakelog_cli.progress import progress
from lakelog_cli.walk import directory_of


@attrs.frozen
class Crash:
    """What a recovery would make of a store that was not closed and has no owner.

    :ivar end_offset: where the log ends then; bytes behind it are kept in quarantine
    :ivar missing: records that were durable once, and are lost
    """

    end_offset: int
    missing: tuple[Missing, ...]

    def explains_damage(self, damage: Damage) -> bool:
        """Whether it is the torn end of the log, of which nothing was acknowledged."""
        return damage.offset >= self.end_offset and not self.missing

    def explains(self, problem: Problem) -> bool:
        """Whether queues or index only lag behind the log, or are ahead of it."""
        return problem.recoverable


def crash_of(store: Store) -> Crash | None:
    """Look at what a recovery would do, and change nothing.

    ``None`` after a clean stop, beside an owner, and where no recovery can go on.
    """
    if not (store.path / ABORT_FILE).exists() or is_owned(RealFileSystem(), store.path):
        return None
    try:
        with progress("planning a recovery") as advance:
            core = attrs.evolve(store.settings.core, on_damage="skip")
            report = examine(directory_of(store), core, advance).report()
    except (BadSegment, OSError):  # what keeps it from it is among what the check finds
        return None
    return Crash(report.end_offset, report.missing)
