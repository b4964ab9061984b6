"""Findings of a check that are explained by a crash: recovery repairs them without loss."""

from __future__ import annotations

import attrs

from lakelog import Store
from lakelog.errors import BadSegment
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.shared.ownership import is_owned
from lakelog.format.layout import ABORT_FILE
from lakelog.log.reading.pieces import Damage
from lakelog.recovery.examine import examine
from lakelog.recovery.report import MissingEnd
from lakelog_cli.progress import progress
from lakelog_cli.walk import directory_of
from lakelog_interfaces.strategies.verifying import Problem


@attrs.frozen
class Crash:
    """The outcome of a recovery of a store without an owner that was not closed.

    :ivar end_offset: end of the recovered log; later bytes are moved to quarantine
    :ivar missing: records that were durable, and are lost
    """

    end_offset: int
    missing: tuple[MissingEnd, ...]

    def explains_damage(self, damage: Damage) -> bool:
        """Whether it is the torn end of the log, which contains no acknowledged message."""
        return damage.offset >= self.end_offset and not self.missing

    def explains(self, problem: Problem) -> bool:
        """Whether queues or index only lag behind the log, or are ahead of it."""
        return problem.recoverable


def crash_of(store: Store) -> Crash | None:
    """Plan a recovery, without changing anything.

    ``None`` after a clean stop, beside an owner, or if recovery is impossible.
    """
    if not (store.path / ABORT_FILE).exists() or is_owned(RealFileSystem(), store.path):
        return None
    try:
        with progress("planning a recovery") as advance:
            core = attrs.evolve(store.settings.core, on_damage="skip")
            report = examine(directory_of(store), core, advance).report
    except (BadSegment, OSError):  # the check reports the cause itself
        return None
    return Crash(report.end_offset, report.missing)
