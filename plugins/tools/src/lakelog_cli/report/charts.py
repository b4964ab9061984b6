"""Charts as inline SVG and HTML; colours come from the page's style, for light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

import attrs

from lakelog_cli.amounts import size
from lakelog_cli.report.content import Content, TrafficOverTime
from lakelog_cli.report.document import safe
from lakelog_cli.report.segments import Segment, SegmentCounts

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
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{safe(top)} at most">'
        f'<line class="axis" x1="{_LEFT}" y1="{base}" x2="{WIDTH}" y2="{base}"/>'
        f'<polygon class="area" points="{area}"/><polyline class="line" points="{line}"/>'
        f'<text x="{_LEFT - 6}" y="14" text-anchor="end">{safe(_short(most))}</text>'
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
        f"<tr><th>{safe(name)}</th>{_bar(Bar(value / most))}<td>{safe(text)}</td></tr>"
        for name, value, text in found[:_MOST_ROWS]
    ]
    left = len(found) - _MOST_ROWS
    lines += [f"<tr><th>and {left} more</th><td></td><td></td></tr>"] if left > 0 else []
    return f"<table>{''.join(lines)}</table>" if lines else "<p>none</p>"


@attrs.frozen
class Bar:
    """A bar in a cell of a table, all as shares of the width of the cell.

    :ivar share: length of the bar
    :ivar low: start of a thin line over the bar, such as the least of several values
    :ivar high: end of this line; nothing is drawn if it is ``None``
    :ivar mark: place of a vertical line, to compare with; nothing is drawn if it is ``None``
    """

    share: float
    low: float = 0.0
    high: float | None = None
    mark: float | None = None


def _bar(drawn: Bar) -> str:
    inner = f'<span style="width:{drawn.share:.1%}"></span>'
    if drawn.high is not None:
        inner += f'<i style="left:{drawn.low:.1%};width:{drawn.high - drawn.low:.1%}"></i>'
    if drawn.mark is not None:
        inner += f'<i class="one" style="left:{drawn.mark:.1%}"></i>'
    return f'<td class="bar"><div>{inner}</div></td>'


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of texts and bars; a single word if it has no rows."""
    lines = [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows]
    head = "".join(f"<th>{safe(each)}</th>" for each in heads)
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>" if lines else "<p>none</p>"


def _cell(value: object) -> str:
    if isinstance(value, Bar):
        return _bar(value)
    mark = ' class="number"' if isinstance(value, int | float) else ""
    return f"<td{mark}>{safe(str(value))}</td>"


@attrs.frozen
class Cell:
    """A small square of a map.

    :ivar filled: share of the square with the colour of data, 0 to 1
    :ivar is_bad: whether it has the colour of damage
    :ivar words: text that is shown when the pointer is over it
    """

    filled: float
    is_bad: bool
    words: str


def cell_map(cells: Iterable[Cell]) -> str:
    """A row of squares, as many lines as it needs."""
    return f'<div class="map">{"".join(map(_square, cells))}</div>'


def _square(cell: Cell) -> str:
    kind = "damaged" if cell.is_bad else "whole" if cell.filled else "empty"
    return (
        f'<span class="cell {kind}" title="{safe(cell.words)}">'
        f'<span style="height:{cell.filled:.0%}"></span></span>'
    )


def segment_map(counts: SegmentCounts) -> str:
    """A square for each segment, filled as far as it has records; damage has another colour."""
    size_of_each = size(counts.segment_size_bytes)
    return (
        f"{cell_map(map(_segment, counts.segments))}"
        f"<p>{len(counts.segments)} segments of {size_of_each}. A cell is filled as far as its "
        "segment is; a red one has damage. Point at a cell to see its numbers.</p>"
    )


def _segment(each: Segment) -> Cell:
    words = (
        f"{each.start_offset:020}: {each.records} records, {size(each.used_bytes)} of "
        f"{size(each.length)}"
    )
    words += f", {size(each.damaged_bytes)} damaged" if each.damaged_bytes else ""
    words += f", from {_time(each.first_ms)}" if each.first_ms else ""
    filled = (each.used_bytes + each.damaged_bytes) / each.length if each.length else 0
    return Cell(filled, each.damaged_bytes > 0, words)


def disk_bars(content: Content) -> str:
    """A bar for each disk, with the time until it is full."""
    rows = []
    for each in content.disks:
        text = f"{each['used_ratio']:.1%} used, {size(each['free_bytes'])} free"
        days = _days_left(content, each["free_bytes"])
        rows.append(
            f"<tr><th>{safe(each['path'])}</th>{_bar(Bar(each['used_ratio']))}"
            f"<td>{safe(text + days)}</td></tr>"
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
