"""Metrics of a store for Prometheus, and OpenTelemetry spans of its messages.

The context of a span is the W3C property ``traceparent`` of the message, as with RocketMQ's own
instrumented clients. Names and attributes are those of OpenTelemetry's semantic conventions for
messaging.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelog_telemetry.metrics import StoreCollector
    from lakelog_telemetry.tracing import TracedStore, handling

__all__ = ["StoreCollector", "TracedStore", "handling"]


def __getattr__(name: str) -> Any:
    """Import Prometheus' client or OpenTelemetry on first use: every open imports the hooks."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    part = "metrics" if name == "StoreCollector" else "tracing"
    return getattr(import_module(f"{__name__}.{part}"), name)
