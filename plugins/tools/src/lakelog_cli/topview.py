"""Renders one frame of ``lakelog top`` from a view of a running store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from lakelog_cli.amounts import blocks, milliseconds, size, span
from lakelog_cli.columns import Columns
from lakelog_cli.copylines import lag_table
from lakelog_cli.diskbars import bars
from lakelog_cli.shown import shown

View = Mapping[str, Any]
_COLOURS: Final = {"ok": "green", "degraded": "yellow", "failed": "bold red"}
_MOST_GROUPS: Final = 10
_HEALTH: Final = {"ok": "green", "restarting": "yellow", "hanging": "red", "stopped": "dim"}


def frame(view: View, keys: str = "") -> RenderableType:
    """Render ``view``; ``keys`` is a line of help."""
    parts: list[RenderableType] = [_head(view)]
    parts += [Text(keys, "dim")] if keys else []
    parts += _problems(view)
    if view.get("positions"):
        parts += [Text(), _log(view), *_history(view), _lags(view)]
    if view.get("groups"):
        parts += [Text(), _groups(view["groups"])]
    if view.get("replication") is not None:
        parts += [Text(), lag_table(view["replication"])]
    parts += [Text(line) for line in bars(view["disks"])]
    parts += [Text(), _processes(view["processes"])]
    if view.get("members") is not None:
        parts += [Text(), _members(view), *_remarks(view)]
    return Group(*parts)


def _head(view: View) -> Text:
    who = "serve" if view["served_by"] else "a program"
    head = Text(f"{shown(view['path'])}  {who}, process {view['pid']}  {view['state']}  ")
    head.append(view["health"], _COLOURS.get(view["health"], ""))
    if view.get("started_ms"):
        head.append(f"  up {span(time.time() - view['started_ms'] / 1000)}")
    return head


def _problems(view: View) -> Iterator[Text]:
    for each in view["problems"]:
        yield Text(f"! {shown(each)}", "yellow")
    if not view.get("positions") and "masters" not in view:
        yield Text("no positions are there; it is no lakelog")


def _log(view: View) -> Columns:
    """The positions of the log, and their rates."""
    counts, rates = view["positions"], view.get("rates", {})
    table = Columns("", "appended", "flushed", "dispatched", "records", "syncs", "flush latency")
    table.add_row(
        "now",
        *(str(counts[name]) for name in ("appended", "flushed", "dispatched", "records", "syncs")),
        milliseconds(view.get("flush", {}).get("mean_ms")),
    )
    if rates:
        grown = (f"{size(rates[name])}/s" for name in ("appended", "flushed", "dispatched"))
        table.add_row("rate", *grown, f"{rates['records']:.0f}/s", f"{rates['syncs']:.1f}/s", "")
    return table


def _history(view: View) -> Iterator[Text]:
    """The rates of the last frames, the newest on the right."""
    for name, unit in (("records", "/s"), ("appended", " bytes/s")):
        values = [each.get(name, 0.0) for each in view.get("history", ())]
        if len(values) > 1:
            yield Text(f"{name:<8} {blocks(values)}  at most {max(values):,.0f}{unit}")


def _groups(rows: Sequence[View]) -> Columns:
    """The consumer groups that are furthest behind."""
    table = Columns("group", "topic", "messages behind")
    for row in rows[:_MOST_GROUPS]:
        table.add_row(shown(row["group"]), shown(row["topic"]), f"{row['behind']:,}")
    if len(rows) > _MOST_GROUPS:
        table.add_row(f"and {len(rows) - _MOST_GROUPS} more", "", "")
    return table


def _lags(view: View) -> Text:
    lags = view["lags"]
    known = [f"not flushed {size(lags['flush_bytes'])}"]
    known.append(f"not dispatched {size(lags['dispatch_bytes'])}")
    known += [f"{shown(name)} {size(lag)} behind" for name, lag in lags["followers"].items()]
    return Text(f"lags: {', '.join(known)}")


def _members(view: View) -> Columns:
    """The processes that have the store open for writing."""
    table = Columns("has it open", "pid", "times", "for all...")
    for row in view["members"]:
        table.add_row(
            Text(shown(row["name"])), str(row["pid"]), str(row["opens"]), ", ".join(row["does"])
        )
    return table


def _remarks(view: View) -> Iterator[Text]:
    """Unusual findings, and limits of the view."""
    if view["members_not_seen"]:
        yield Text(f"{view['members_not_seen']} more have it open, of other users or containers")
    elif view["members_not_seen"] is None:
        yield Text("whether more have it open is not known: /proc/locks says nothing of it")
    appending = view["appending"]
    if appending is not None:
        since = span(max(0.0, time.time() - appending["since_ms"] / 1000))
        yield Text(f"! process {appending['pid']} has been appending for {since}", "yellow")
    for row in view["deleted"]:
        what = f"{row['files']} deleted files, {size(row['bytes'])}"
        yield Text(f"process {row['pid']} ({shown(row['name'])}) keeps {what}")
    if view["processes_not_readable"]:
        count = view["processes_not_readable"]
        others = "one other process" if count == 1 else f"{count} other processes"
        yield Text(f"deleted files that {others} may keep cannot be seen")


def _processes(rows: Sequence[View]) -> Columns:
    table = Columns(
        "process", "pid", "kind", "state", "health", "cpu", "memory", "restarts", "says..."
    )
    for row in rows:
        cpu = row.get("cpu_percent")
        table.add_row(
            Text(shown(row["name"])),
            str(row["pid"] or "-"),
            row["kind"],
            row["state"],
            Text(row["health"], _HEALTH.get(row["health"], "")),
            "-" if cpu is None else f"{cpu:.1f} %",
            size(row.get("rss_bytes")),
            str(row.get("restarts", "-")),
            Text(shown(row.get("says") or row.get("last_exit") or "")),
        )
    return table
