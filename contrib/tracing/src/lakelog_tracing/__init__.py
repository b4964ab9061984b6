"""OpenTelemetry spans of messages: where they are put, dispatched, landed and handled.

The context is the W3C property ``traceparent`` of the message, as with RocketMQ's own
instrumented clients. Names and attributes are those of OpenTelemetry's semantic conventions for
messaging.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelog_tracing.spans import TracedStore, handling

__all__ = ["TracedStore", "handling"]


def __getattr__(name: str) -> Any:
    """Import OpenTelemetry on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lakelog_tracing import spans

    return getattr(spans, name)
