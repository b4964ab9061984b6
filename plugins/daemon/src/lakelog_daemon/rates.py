"""Rates out of counts that only grow: two looks at a shared page, and the time between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

RATED: Final = ("appended", "flushed", "dispatched", "records", "syncs")
"""The counts of a page whose growth says something."""


@attrs.frozen
class Look:
    """The counts of a shared page at a time in seconds."""

    time: float
    counts: Mapping[str, int]


def rates(former: Look | None, now: Look) -> dict[str, float]:
    """Growth in a second, by name; what went back began anew, with another owner.

    >>> rates(Look(1.0, {"syncs": 5}), Look(3.0, {"syncs": 9}))["syncs"]
    2.0
    """
    if former is None or now.time <= former.time:
        return dict.fromkeys(RATED, 0.0)
    passed = now.time - former.time
    return {name: _grown(former, now, name) / passed for name in RATED}


def sync_ms(former: Look | None, now: Look) -> float | None:
    """How long a sync took in the mean of those between the looks; ``None`` if none returned."""
    if former is None:
        return None
    syncs = _grown(former, now, "syncs")
    return _grown(former, now, "sync_us") / syncs / 1000 if syncs else None


def lags(counts: Mapping[str, int]) -> dict[str, int]:
    """How many bytes are not durable yet, and how many are not dispatched."""
    return {
        "flush_bytes": max(0, counts["appended"] - counts["flushed"]),
        "dispatch_bytes": max(0, counts["readable"] - counts["dispatched"]),
    }


def _grown(former: Look, now: Look, name: str) -> int:
    return max(0, now.counts.get(name, 0) - former.counts.get(name, 0))
