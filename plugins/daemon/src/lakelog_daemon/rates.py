"""Rates computed from two samples of a shared page's counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

RATED: Final = ("appended", "flushed", "dispatched", "records", "syncs")
"""The counters with a meaningful rate."""


@attrs.frozen
class Look:
    """The counters of a shared page at a time in seconds."""

    time: float
    counts: Mapping[str, int]


def rates(former: Look | None, now: Look) -> dict[str, float]:
    """Increase per second, by name; a counter that decreased was reset by a new owner.

    >>> rates(Look(1.0, {"syncs": 5}), Look(3.0, {"syncs": 9}))["syncs"]
    2.0
    """
    if former is None or now.time <= former.time:
        return dict.fromkeys(RATED, 0.0)
    passed = now.time - former.time
    return {name: _grown(former, now, name) / passed for name in RATED}


def sync_ms(former: Look | None, now: Look) -> float | None:
    """The mean duration of a sync between two samples, in ms; ``None`` if there was none."""
    if former is None:
        return None
    syncs = _grown(former, now, "syncs")
    return _grown(former, now, "sync_us") / syncs / 1000 if syncs else None


def lags(counts: Mapping[str, int]) -> dict[str, int]:
    """The bytes that are not durable yet, and those not dispatched yet."""
    return {
        "flush_bytes": max(0, counts["appended"] - counts["flushed"]),
        "dispatch_bytes": max(0, counts["readable"] - counts["dispatched"]),
    }


def _grown(former: Look, now: Look, name: str) -> int:
    return max(0, now.counts.get(name, 0) - former.counts.get(name, 0))
