"""What a view of a store says of an owner that is held, which cannot say so by itself.

A living owner stores its heartbeat on the shared page every half second. One that a signal or
a debugger holds does not, and its last word is that all is well; Linux knows better.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from lakelog.files.pages.page_view import PageView
from lakelog_daemon.procstat import look_at

SILENT_MS: Final = 3000
"""From this age of a heartbeat on it is worth a word; it is stored every 500 ms."""


def as_seen(view: Mapping[str, Any], page: PageView | None) -> dict[str, Any]:
    """``view`` with what its owner cannot have told: its silence, and processes that are held."""
    rows = [_row(each) for each in view["processes"]]
    silence = None if page is None else _silence(page)
    if silence is None:
        return {**view, "processes": rows}
    health = "degraded" if view["health"] == "ok" else view["health"]
    problems = [silence, *view["problems"]]
    return {**view, "health": health, "problems": problems, "processes": rows}


def _silence(page: PageView) -> str | None:
    age_ms = time.time_ns() // 1_000_000 - page.heartbeat_ms
    if age_ms < SILENT_MS:
        return None
    return f"no heartbeat for {age_ms // 1000} s: process {page.owner[0]} is held, or hangs"


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    found = None if row["pid"] is None else look_at(row["pid"])
    if found is None or not found.is_stopped:
        return dict(row)
    return {**row, "state": "stopped", "health": "hanging"}
