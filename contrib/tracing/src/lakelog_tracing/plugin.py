"""The plugin that offers the dispatcher ``tracing``. OpenTelemetry is imported when one is made."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.hookspecs import hookimpl
from lakelog.interfaces import Context, Factory, Kind, NoSettings


def make(_settings: NoSettings, context: Context) -> object:
    """Make the dispatcher; that of a reader makes no spans."""
    from lakelog_tracing.runs import TracingDispatcher

    return TracingDispatcher(is_silent=context.read_only)


@hookimpl
def lakelog_dispatchers() -> Sequence[Factory]:
    """Offer the dispatcher ``tracing``."""
    return [
        Factory(
            Kind.DISPATCHER, "tracing", NoSettings, make, "OpenTelemetry spans of dispatched runs"
        )
    ]
