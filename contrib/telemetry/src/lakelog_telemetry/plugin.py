"""The follower and command ``metrics``, and the dispatcher ``tracing``.

OpenTelemetry and Prometheus' client are imported when one is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakelog.hooks import Context, Factory, Kind, NoSettings
from lakelog.hooks.hookspecs import hookimpl

if TYPE_CHECKING:
    from lakelog_telemetry.metrics import MetricsFollower, MetricsSettings


def _make(settings: MetricsSettings, context: Context) -> MetricsFollower:
    from lakelog_telemetry.metrics import MetricsFollower

    return MetricsFollower([context.path], settings)


@hookimpl
def lakelog_followers() -> list[Factory]:
    """Offer ``followers = ["metrics"]``."""
    words = "serves metrics to Prometheus (lakelog metrics)"
    settings = "lakelog_telemetry.metrics:MetricsSettings"
    return [Factory(Kind.FOLLOWER, "metrics", settings, _make, words)]


@hookimpl
def lakelog_cli_commands(app: Any) -> None:
    """Add ``lakelog metrics``."""
    from lakelog_telemetry.metrics import metrics

    app.command()(metrics)


def make_tracing(_settings: NoSettings, context: Context) -> object:
    """Make the dispatcher; that of a reader makes no spans."""
    from lakelog_telemetry.tracing import TracingDispatcher

    return TracingDispatcher(is_silent=context.read_only)


@hookimpl
def lakelog_dispatchers() -> Sequence[Factory]:
    """Offer the dispatcher ``tracing``."""
    summary = "OpenTelemetry spans of dispatched runs"
    return [Factory(Kind.DISPATCHER, "tracing", NoSettings, make_tracing, summary)]
