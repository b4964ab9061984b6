"""HTML pages about a store: numbers by segments and over time, charts, and the page around them.

A page is one file that loads nothing; charts are inline SVG and HTML. Colours come from the page's
style, light or dark as the system is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.metadata import version
from typing import Final

import attrs
import numpy as np

from lakelog import Store
from lakelog.files.segment_files import SegmentFile
from lakelog.format.record_batch import Blank, RecordBatch
from lakelog.times import iso
from lakelog_cli.output import shown, size
from lakelog_doctor.parallel_scan import Part, WholeSegment, directory_of


@attrs.define
class Segment:
    """One segment of the log.

    :ivar used_bytes: of records and blanks
    :ivar damaged_bytes: in ranges that are not whole records
    :ivar first_ms: store time of its first message; 0 if not known
    """

    start_offset: int
    length: int
    used_bytes: int = 0
    damaged_bytes: int = 0
    records: int = 0
    first_ms: int = 0

    @property
    def end_offset(self) -> int:
        """Its end, exclusive."""
        return self.start_offset + self.length


@attrs.frozen
class SegmentCounts:
    """Counts the content of the segments of a log.

    :ivar segments: in the order of the log
    :ivar segment_size_bytes: the length of a new segment
    """

    segments: tuple[Segment, ...]
    segment_size_bytes: int

    @classmethod
    def of(cls, store: Store) -> SegmentCounts:
        """Begin for the segments of a store that have bytes of the log."""
        found = tuple(Segment(each.start_offset, each.length) for each in log_files(store))
        return cls(found, store.settings.core.segment_size_bytes)

    def add(self, part: Part) -> None:
        """Add a part of the log; damage may span several segments."""
        if isinstance(part, RecordBatch):
            self._add_records(part)
            return
        if isinstance(part, WholeSegment):
            start, end = part.start_offset, part.end_offset
        else:
            start, end = part.offset, part.end_offset
        for segment in self.segments:
            length = min(end, segment.end_offset) - max(start, segment.start_offset)
            if length <= 0:
                continue
            if isinstance(part, Blank | WholeSegment):
                segment.used_bytes += length
                segment.records += part.records if isinstance(part, WholeSegment) else 0
            else:
                segment.damaged_bytes += length

    def _add_records(self, batch: RecordBatch) -> None:
        offsets = batch.starts + batch.base_offset
        for segment in self.segments:
            inside = (offsets >= segment.start_offset) & (offsets < segment.end_offset)
            if inside.any():
                segment.records += int(inside.sum())
                segment.used_bytes += int(batch.sizes[inside].sum())
                segment.first_ms = segment.first_ms or int(batch.store_timestamps_ms[inside][0])


def log_files(store: Store) -> list[SegmentFile]:
    """The segments that have bytes of the log."""
    found = directory_of(store).segments()
    return [each for each in found if each.start_offset + each.length > store.min_offset]


BINS: Final = 120
"""Points of the charts over time."""
_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000


@attrs.define
class TrafficOverTime:
    """Messages and bytes over time, in bins of equal width."""

    first_ms: int
    last_ms: int
    messages: list[int] = attrs.field(factory=lambda: [0] * BINS)
    record_bytes: list[int] = attrs.field(factory=lambda: [0] * BINS)

    @classmethod
    def of(cls, store: Store) -> TrafficOverTime:
        """Begin for the times from the first message to the last."""
        first, last = (each or 0 for each in first_and_last_time(store))
        return cls(first, max(first, last))

    @property
    def bin_ms(self) -> float:
        """Width of a bin; at least a millisecond."""
        return max(1.0, (self.last_ms - self.first_ms + 1) / BINS)

    @property
    def growth_bytes_per_day(self) -> float | None:
        """Bytes a day, of the last day that the log covers; ``None`` for less than an hour."""
        span_ms = self.last_ms - self.first_ms + 1
        if span_ms < _HOUR_MS:
            return None
        bins = min(BINS, max(1, round(_DAY_MS / self.bin_ms)))
        return sum(self.record_bytes[-bins:]) / (bins * self.bin_ms) * _DAY_MS

    def add(self, batch: RecordBatch) -> None:
        """Count the records of a batch; times outside of the range count at its ends."""
        at = ((batch.store_timestamps_ms - self.first_ms) / self.bin_ms).astype(np.int64)
        at = np.clip(at, 0, BINS - 1)
        for counts, weights in ((self.messages, None), (self.record_bytes, batch.sizes)):
            found = np.bincount(at, weights, BINS)
            counts[:] = [a + int(b) for a, b in zip(counts, found, strict=True)]


def read_traffic(store: Store) -> TrafficOverTime:
    """Messages and bytes over time, by one pass over the log without checksums."""
    traffic = TrafficOverTime.of(store)
    for piece in store.scan_pieces(verify=False):
        if isinstance(piece, RecordBatch):
            traffic.add(piece)
    return traffic


def first_and_last_time(store: Store) -> tuple[int | None, int | None]:
    """Store times of the first and the last message, in ms since 1970; ``None`` without any."""
    first = next(_times(store, store.min_offset, 0), None)
    for each in reversed(log_files(store)):
        last = deque(_times(store, max(each.start_offset, store.min_offset), -1), maxlen=1)
        if last:
            return first, last[0]
    return first, None


def _times(store: Store, start: int, at: int) -> Iterator[int]:
    """Store time of one record of each batch from ``start`` on."""
    for piece in store.scan_pieces(start, verify=False):
        if isinstance(piece, RecordBatch):
            yield int(piece.store_timestamps_ms[at])


# --- pages and charts ---

_STYLE: Final = """
:root{--back:#fff;--text:#1b1f24;--soft:#57606a;--line:#d0d7de;--main:#0b7a75;--fill:#0b7a7533;
--bad:#c62828;--empty:#eef1f4;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--back:#0d1117;--text:#e6edf3;--soft:#9198a1;--line:#30363d;
--main:#4fd1c5;--fill:#4fd1c533;--bad:#ff7b72;--empty:#1c2128}}
body{background:var(--back);color:var(--text);font:15px/1.5 system-ui,sans-serif;max-width:1120px;
margin:0 auto;padding:1.5rem}
h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.05rem;margin:2rem 0 .5rem}
h3{font-size:1rem;font-weight:400;margin:1rem 0 .25rem}
p,.soft{color:var(--soft)}.facts{display:flex;flex-wrap:wrap;gap:.5rem 2rem}
.facts div{min-width:8rem}.facts b{display:block;font-size:1.25rem;overflow-wrap:anywhere}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));gap:0 2rem}
svg{width:100%}svg text{fill:var(--soft);font-size:11px}.axis{stroke:var(--line)}
.line{fill:none;stroke:var(--main);stroke-width:1.5}.area{fill:var(--fill)}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.2rem .6rem .2rem 0;
border-bottom:1px solid var(--line);font-weight:400;overflow-wrap:anywhere}
.bar{width:35%}.bar span{display:block;height:.8rem;background:var(--main);min-width:1px}
.bar div{position:relative}.bar i{position:absolute;top:.35rem;height:.1rem;min-width:1px;
background:var(--text)}.bar i.one{top:-.2rem;height:1.2rem;width:1px}
.small .bar{width:24%}
.map{display:flex;flex-wrap:wrap;gap:3px}.cell{width:18px;height:18px;background:var(--empty);
display:flex;align-items:flex-end}.cell span{display:block;width:100%;background:var(--main)}
.number{white-space:nowrap}td:first-child{min-width:5.5rem}
.damaged{outline:2px solid var(--bad)}.damaged span{background:var(--bad)}
.bad{color:var(--bad)}
"""


def document(title: str, parts: Iterable[str]) -> str:
    """The whole page.

    :param title: any text
    :param parts: HTML, such as of :func:`section` and :func:`facts`
    """
    made = _time(time.time_ns() // 1_000_000)
    head, body = safe(title), "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{head}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>\n<h1>{head}</h1>\n{body}\n"
        f'<p class="soft">lakelog {version("lakelog-core")}, made at {made}; times are UTC</p>'
        "</body></html>\n"
    )


def facts(values: Mapping[str, str], bad: Container[str] = ()) -> str:
    """Short values with their names; those of ``bad`` are marked."""
    return f'<div class="facts">{"".join(_fact(*each, bad) for each in values.items())}</div>'


def _fact(name: str, value: str, bad: Container[str]) -> str:
    mark = ' class="bad"' if name in bad else ""
    return f'<div><span class="soft">{safe(name)}</span><b{mark}>{safe(value)}</b></div>'


def section(title: str, inner: str) -> str:
    """A part with a heading; ``inner`` is HTML."""
    return f"<section><h2>{safe(title)}</h2>{inner}</section>"


def paragraphs(lines: Iterable[str]) -> str:
    """A paragraph for each text."""
    return "".join(f"<p>{safe(line)}</p>" for line in lines)


def safe(text: str) -> str:
    """Text that cannot make elements, without control characters."""
    return escape(shown(text))


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
    base = HEIGHT - 20
    line = " ".join(
        f"{_LEFT + at * step:.1f},{base - rate / most * (HEIGHT - 30):.1f}"
        for at, rate in enumerate(rates)
    )
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
    lines = [bar_row(name, value / most, text) for name, value, text in found[:_MOST_ROWS]]
    left = len(found) - _MOST_ROWS
    lines += [f"<tr><th>and {left} more</th><td></td><td></td></tr>"] if left > 0 else []
    return f"<table>{''.join(lines)}</table>" if lines else "<p>none</p>"


def bar_row(name: str, share: float, text: str) -> str:
    """A row of a table: a name, a bar of this share of the width, and a text."""
    return f"<tr><th>{safe(name)}</th>{_bar(Bar(share))}<td>{safe(text)}</td></tr>"


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
    used = f"{size(each.used_bytes)} of {size(each.length)}"
    words = f"{each.start_offset:020}: {each.records} records, {used}"
    words += f", {size(each.damaged_bytes)} damaged" if each.damaged_bytes else ""
    words += f", from {_time(each.first_ms)}" if each.first_ms else ""
    filled = (each.used_bytes + each.damaged_bytes) / each.length if each.length else 0
    return Cell(filled, each.damaged_bytes > 0, words)


def _time(at_ms: int) -> str:
    """A time in UTC, as the last line of the page says."""
    return iso(at_ms).replace("T", " ").removesuffix("+00:00")


def _short(number: float) -> str:
    """A number with at most four digits.

    >>> _short(1234567), _short(0.25), _short(999)
    ('1.2M', '0.2', '999')
    """
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.1f}{letter}"
    return f"{number:.0f}" if number >= 10 else f"{number:.1f}"
