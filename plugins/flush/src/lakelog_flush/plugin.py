"""The plugin that offers the flush strategies ``group-commit`` and ``timed``."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.hooks import Factory, Kind
from lakelog.hooks.hookspecs import hookimpl
from lakelog_flush import groupcommit, timed


@hookimpl
def lakelog_flush_strategies() -> Sequence[Factory]:
    """Offer the flush strategies ``group-commit`` and ``timed``."""
    return [
        Factory(
            Kind.FLUSH_STRATEGY,
            "group-commit",
            groupcommit.GroupCommitSettings,
            groupcommit.make,
            "puts wait until they are durable, and share syncs",
        ),
        Factory(
            Kind.FLUSH_STRATEGY,
            "timed",
            timed.TimedSettings,
            timed.make,
            "syncs by the clock; no put waits",
        ),
    ]
