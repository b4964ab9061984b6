"""Shows the lags of copies as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lakelog_cli.amounts import size
from lakelog_cli.columns import Columns
from lakelog_cli.shown import shown

Lag = Mapping[str, Any] | None


def lag_rows(view: Mapping[str, Any]) -> Iterator[tuple[str, Lag, str]]:
    """The name of each lag of a view of :mod:`lakelog_cli.copylags`, the lag, and a remark."""
    if view["role"] == "master":
        for each in view["slaves"]:
            unsent = f"not sent {size(each['unsent_bytes'])}"
            remark = f"learner, {unsent}" if each["learner"] else unsent
            yield f"slave {each['address']}", each["lag"], remark
    else:
        yield f"behind {view['source']}", view["lag"], view["says"]
        yield "not durable", view["not_durable"], ""
    for name, lag in view["landed"].items():
        yield f"not landed: {name}", lag, ""


def lag_table(view: Mapping[str, Any]) -> Columns:
    """The lags as a table."""
    table = Columns("copies", "bytes", "messages", "seconds", "says...")
    for name, lag, remark in lag_rows(view):
        table.add_row(shown(name), *_cells(lag), shown(remark))
    return table


def lag_text(lag: Lag) -> str:
    """One lag in words.

    >>> lag_text({"bytes": 2048, "messages": 3, "seconds": 1.25}), lag_text(None)
    ('2.0 KiB, 3 messages, 1.2 s', 'not known')
    """
    if lag is None:
        return "not known"
    length, messages, seconds = _cells(lag)
    return f"{length}, {messages} messages, {seconds} s"


def _cells(lag: Lag) -> tuple[str, str, str]:
    if lag is None:
        return "-", "-", "-"
    messages, seconds = lag["messages"], lag["seconds"]
    return (
        size(lag["bytes"]),
        "-" if messages is None else str(messages),
        "-" if seconds is None else f"{seconds:.1f}",
    )
