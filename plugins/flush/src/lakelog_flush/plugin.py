"""The plugin that offers the flush strategies ``group-commit`` and ``timed``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakelog.hooks import Context, Factory, FlushStrategy, Kind
from lakelog.hooks.hookspecs import hookimpl

if TYPE_CHECKING:
    from lakelog_flush.groupcommit import GroupCommitSettings
    from lakelog_flush.timed import TimedSettings


def _group_commit(settings: GroupCommitSettings, context: Context) -> FlushStrategy:
    from lakelog_flush.groupcommit import GroupCommit

    return GroupCommit(settings, context.accelerator)


def _timed(settings: TimedSettings, _context: Context) -> FlushStrategy:
    from lakelog_flush.timed import Timed

    return Timed(settings)


@hookimpl
def lakelog_flush_strategies() -> Sequence[Factory]:
    """Offer the flush strategies ``group-commit`` and ``timed``."""
    kind, shared = Kind.FLUSH_STRATEGY, "puts wait until they are durable, and share syncs"
    grouped, clocked = "lakelog_flush.groupcommit", "syncs by the clock; no put waits"
    return [
        Factory(kind, "group-commit", f"{grouped}:GroupCommitSettings", _group_commit, shared),
        Factory(kind, "timed", "lakelog_flush.timed:TimedSettings", _timed, clocked),
    ]
