"""Charts as inline SVG and HTML; colours come from the page's style, for light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from lakelog_cli.amounts import size
from lakelog_cli.report.content import Content, Segment, TrafficOverTime

WIDTH: Final = 720
HEIGHT: Final = 160
_LEFT: Final = 64
"""Pixels for the labels of the vertical axis."""
_MOST_ROWS: Final = 20


def over_time(traffic: TrafficOverTime, values: Sequence[int], unit: str) -> str:
    """A line with its area: the rate in each bin."""
    seconds = traffic.bin_ms / 1000
    rates = [value / seconds for value in values]
    most = max(rates) or 1
    step = (WIDTH - _LEFT) / max(1, len(rates) - 1)
    points = [
        f"{_LEFT + at * step:.1f},{HEIGHT - 20 - rate / most * (HEIGHT - 30):.1f}"
        for at, rate in enumerate(rates)
    ]
    line = " ".join(points)
    base = HEIGHT - 20
    area = f"{_LEFT},{base} {line} {WIDTH},{base}"
    top = f"{_short(most)} {unit}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(top)} at most">'
        f'<line class="axis" x1="{_LEFT}" y1="{base}" x2="{WIDTH}" y2="{base}"/>'
        f'<polygon class="area" points="{area}"/><polyline class="line" points="{line}"/>'
        f'<text x="{_LEFT - 6}" y="14" text-anchor="end">{escape(_short(most))}</text>'
        f'<text x="{_LEFT - 6}" y="{base}" text-anchor="end">0</text>'
        f'<text x="{_LEFT}" y="{HEIGHT - 4}">{_time(traffic.first_ms)}</text>'
        f'<text x="{WIDTH}" y="{HEIGHT - 4}" text-anchor="end">{_time(traffic.last_ms)}</text>'
        "</svg>"
    )


def bars(rows: Iterable[tuple[str, float, str]]) -> str:
    """A bar for each row: a name, its value, and the value as text; the largest first."""
    found = sorted(rows, key=lambda row: -row[1])
    most = max((value for _, value, _ in found), default=0) or 1
    lines = [
        f'<tr><th>{escape(name)}</th><td class="bar"><span style="width:{value / most:.1%}">'
        f"</span></td><td>{escape(text)}</td></tr>"
        for name, value, text in found[:_MOST_ROWS]
    ]
    left = len(found) - _MOST_ROWS
    lines += [f"<tr><th>and {left} more</th><td></td><td></td></tr>"] if left > 0 else []
    return f"<table>{''.join(lines)}</table>" if lines else "<p>none</p>"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of texts; nothing but a word if it has no rows."""
    lines = [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows]
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>" if lines else "<p>none</p>"


def _cell(value: object) -> str:
    mark = ' class="number"' if isinstance(value, int | float) else ""
    return f"<td{mark}>{escape(str(value))}</td>"


def segment_map(segments: Sequence[Segment]) -> str:
    """A cell for each segment, filled as far as it has records; damage has another colour."""
    return f'<div class="map">{"".join(_cells(segments))}</div>'


def _cells(segments: Sequence[Segment]) -> Iterator[str]:
    for each in segments:
        kind = "damaged" if each.damaged_bytes else "whole" if each.used_bytes else "empty"
        words = (
            f"{each.start_offset:020}: {each.records} records, {size(each.used_bytes)} of "
            f"{size(each.length)}"
        )
        words += f", {size(each.damaged_bytes)} damaged" if each.damaged_bytes else ""
        words += f", from {_time(each.first_ms)}" if each.first_ms else ""
        filled = (each.used_bytes + each.damaged_bytes) / each.length if each.length else 0
        yield (
            f'<span class="cell {kind}" title="{escape(words)}">'
            f'<span style="height:{filled:.0%}"></span></span>'
        )


def disk_bars(content: Content) -> str:
    """A bar for each disk, with the time until it is full."""
    rows = []
    for each in content.disks:
        text = f"{each['used_ratio']:.1%} used, {size(each['free_bytes'])} free"
        days = _days_left(content, each["free_bytes"])
        rows.append(
            f'<tr><th>{escape(each["path"])}</th><td class="bar">'
            f'<span style="width:{each["used_ratio"]:.1%}"></span></td>'
            f"<td>{escape(text)}{escape(days)}</td></tr>"
        )
    return f"<table>{''.join(rows)}</table>"


def _days_left(content: Content, free_bytes: int) -> str:
    growth = content.traffic.growth_bytes_per_day
    if growth is None or growth < 1:
        return ""
    days = free_bytes / growth
    return f"; full in {days:,.1f} days at the last day's rate" if days < 10_000 else ""


def _time(at_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "no time"


def _short(number: float) -> str:
    """A number with at most four digits.

    >>> _short(1234567), _short(0.25), _short(999)
    ('1.2M', '0.2', '999')
    """
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.1f}{letter}"
    return f"{number:.0f}" if number >= 10 else f"{number:.1f}"
