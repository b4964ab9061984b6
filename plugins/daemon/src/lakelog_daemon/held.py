"""Corrects a status view for processes that are stopped by a signal or a debugger.

A running owner writes its heartbeat to the shared page every 500 ms. A stopped owner does not, and
its last status still reports that all is well. Linux reports the true state.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from lakelog.files.pages.page_view import PageView
from lakelog_daemon.procstat import look_at

SILENT_MS: Final = 3000
"""Age of a heartbeat, in ms, from which it is reported; it is written every 500 ms."""


def as_seen(view: Mapping[str, Any], page: PageView | None) -> dict[str, Any]:
    """``view`` with two additions: a missing heartbeat of the owner, and stopped processes."""
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
