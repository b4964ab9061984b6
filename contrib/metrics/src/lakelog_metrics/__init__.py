"""Metrics of a store for Prometheus: :class:`StoreCollector`, and an endpoint for any store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelog_metrics.collector import StoreCollector

__all__ = ["StoreCollector"]


def __getattr__(name: str) -> Any:
    """Import the collector on first use: a plugin's hooks are imported at every open."""
    if name != "StoreCollector":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lakelog_metrics.collector import StoreCollector

    return StoreCollector
